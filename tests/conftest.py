"""Makes what lies in this folder importable by the tests of every room: as it is called here, and as `tests.…`.

The root of the checkout stays off the path: `pytest` alone has to test the package that is installed, not the folder beside this one.
"""

import os
import sys
from collections.abc import Iterator
from itertools import count
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
    "tests/engine/test_cluster",
    "tests/engine/test_relocating",
    "tests/test_daemon_gateway",
    "tests/serve/",
    "tests/sharing/",
    "tests/test_asset_processor",
)
"""Screens, watches, sockets and processes move in real time: on a machine that is taken by others they may be late once, not thrice."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests of real time another try."""
    root = Path(__file__).parents[1]
    for item in items:
        place = item.path.relative_to(root).as_posix()
        if place.startswith((*_OF_REAL_TIME, "tests/test_daemon")):
            item.add_marker(pytest.mark.flaky(reruns=2))


@pytest.fixture(scope="session", autouse=True)
def _folders_of_nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep the caches, settings and state of whoever runs the tests out of them."""
    home = tmp_path_factory.mktemp("xdg")
    before = {name: os.environ.get(name) for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME")}
    os.environ.update({name: str(home / name.lower()) for name in before})
    yield home
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


_numbers = count()


@pytest.fixture(autouse=True)
def _results_of_no_other_test(_folders_of_nobody: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test has made another one makes itself."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(_folders_of_nobody / f"cache-{next(_numbers)}"))
