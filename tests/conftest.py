"""Makes the modules of this folder importable by all tests: by their own names and as `tests.…`.

The root of the checkout is not on the path: plain `pytest` must test the installed package, not the package's folder beside this
one.
"""

import gc
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from forks import Forks
from hypothesis import HealthCheck, settings
from tools import has_been_deleted

# Containers often set PYTHONDONTWRITEBYTECODE. With it, each of several thousand processes would compile its imports again, which
# would double the time of the suite.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Containers often set PYTHONUNBUFFERED, which would hide a verb that does not flush its output. Users rarely set it.
os.environ.pop("PYTHONUNBUFFERED", None)

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
pytest.register_assert_rewrite("disk_project", "live_project")
if "tests" not in sys.modules:
    package = ModuleType("tests")
    package.__path__ = [str(Path(__file__).parent)]
    sys.modules["tests"] = package

pytest_plugins = ["lanes"]
_forks = Forks()
_short = pytest.StashKey[str]()
_STARTS = (
    "tests/worker/",
    *(f"tests/drills/hostile/test_{name}.py" for name in ("hostile", "neighbours")),
    *(f"tests/engine/pool/test_{name}.py" for name in ("environment", "sandbox")),
)
"""Folders and modules whose tests check how processes start and end; single tests in other modules have the mark `starts`."""


_exit = subprocess.Popen.__exit__


def _exit_at_once(self: subprocess.Popen[Any], kind: type[BaseException] | None, *rest: Any) -> None:
    """Leave `with Popen(…)`. If the test failed or reached its time limit, kill the process, because it may never end."""
    if kind is not None:
        self.kill()
    _exit(self, kind, *rest)


subprocess.Popen.__exit__ = _exit_at_once  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Fork the processes of a test and its fixtures, unless the test is about how processes start."""
    if item.nodeid.startswith(_STARTS) or any(map(item.get_closest_marker, ("fast", "starts"))):
        return (yield)
    with _forks.on():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Disable garbage collection while tests are collected.

    Exclude the collected tests from later garbage collection, because they exist until the end.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    """Leave out a module of tests that imports a feature whose folder has been deleted."""
    report = yield
    found = re.search(r"No module named '(?:aptui|tests)\.features\.(\w+)", str(report.longrepr)) if report.failed else None
    if found and has_been_deleted(found[1]):
        report.outcome, report.longrepr = "skipped", (report.nodeid, 1, f"deleted feature: {found[1]}")
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Keep the paths of test folders short: engines whose paths are too long for a socket would all use the same folder in /tmp."""
    if not config.option.basetemp:
        config.option.basetemp = config.stash[_short] = tempfile.mkdtemp(prefix="t-", dir="/tmp")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Delete the folders of tests unless a test failed."""
    if exitstatus == 0 and (short := session.config.stash.get(_short, "")):
        shutil.rmtree(short, ignore_errors=True)


def pytest_unconfigure() -> None:
    """End the processes from which other processes are forked."""
    _forks.close()


@pytest.fixture(scope="session", autouse=True)
def _empty_user_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep the caches, settings and state of the user out of the tests."""
    home = tmp_path_factory.mktemp("xdg")
    before = {
        name: os.environ.get(name)
        for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "APTUI_SANDBOX", "APTUI_TRUST")
    }
    os.environ.update({name: str(home / name.lower()) for name in before} | {"APTUI_SANDBOX": "off", "APTUI_TRUST": "1"})
    yield home
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


_numbers = count()
_unused: list[Path] = []


@pytest.fixture(autouse=True)
def _results_of_no_other_test(_empty_user_folders: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Clear caches between tests, except the shipped themes and keys, which take long to read from YAML.

    The next test gets the same cache folder if that folder is empty and no process can still write into it.
    """
    is_fast = request.node.get_closest_marker("fast") is not None
    if is_fast and _unused and os.listdir(_unused[0]) == ["aptui"] and os.listdir(_unused[0] / "aptui") == ["screen"]:
        cache = _unused[0]
    else:
        cache = _empty_user_folders / f"cache-{next(_numbers)}"
        (cache / "aptui").mkdir(mode=0o700, parents=True)
        (_empty_user_folders / "screen").mkdir(exist_ok=True)
        (cache / "aptui" / "screen").symlink_to(_empty_user_folders / "screen")
        _unused[:] = [cache] if is_fast else _unused
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))


@pytest.fixture
def own_homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a test of the screen its own folders for configuration and state, and a terminal with colours."""
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
