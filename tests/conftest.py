"""Makes what lies in this folder importable by the tests of every room: as it is called here, and as `tests.…`.

The root of the checkout stays off the path: `pytest` alone has to test the package that is installed, not the folder beside this one.
"""

import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.register_assert_rewrite("disk_project", "live_project")
if "tests" not in sys.modules:
    package = ModuleType("tests")
    package.__path__ = [str(Path(__file__).parent)]
    sys.modules["tests"] = package
