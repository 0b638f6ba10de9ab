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

_OF_REAL_TIME = (
    "tests/tui/",
    "tests/drills/",
    "tests/link/",
    "tests/engine/test_live",
    "tests/engine/test_watcher",
    "tests/engine/test_pool",
)
"""Screens, watches, sockets and processes move in real time: on a machine that is taken by others they may be late once, not thrice."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests of real time another try."""
    root = Path(__file__).parents[1]
    for item in items:
        place = item.path.relative_to(root).as_posix()
        if place.startswith((*_OF_REAL_TIME, "tests/test_daemon")):
            item.add_marker(pytest.mark.flaky(reruns=2))
