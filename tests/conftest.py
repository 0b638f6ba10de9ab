"""Makes what lies directly in this folder (fakes, projects on disk) importable by the tests of every room."""

import pytest

pytest.register_assert_rewrite("disk_project")
