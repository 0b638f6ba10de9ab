"""Lanes of the tests: marks fast tests and checks them, sorts the tests, and notes the skipped ones.

A test without the mark `real` or `slow` is `fast`: it must not start a process, open a socket or sleep, and it fails if it does. A
test that changes the current folder and does not restore it fails.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Container, Generator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

_REAL = {
    "subprocess.Popen": "starts a process",
    "os.posix_spawn": "starts a process",
    "os.fork": "starts a process",
    "os.forkpty": "starts a process",
    "socket.bind": "opens a socket",
    "socket.connect": "opens a socket",
    "socket.getaddrinfo": "asks for an address",
    "time.sleep": "sleeps",
}
"""{audit event: action that raises it, and that is forbidden in a fast test}."""
_FOLDER = pytest.StashKey[str]()
"""The folder in which a test began."""
_SLOW_MODULE = re.compile(r"^pytestmark = pytest\.mark\.(real|slow)\b", re.MULTILINE)

_LONGEST = (
    "tests/drills/hostile/test_serve_hostile.py",
    "tests/drills/live/test_live.py",
    "tests/drills/hostile/test_hostile.py",
    "tests/drills/hostile/test_hostile_content.py",
    "tests/tui/terminal/output/test_tmux.py",
    "tests/tui/test_terminal.py",
    "tests/engine/cluster/test_cluster.py",
)
"""Modules whose tests take ten seconds and more: they start first, because the whole run would wait for one that starts last."""


class _Watch:
    """Forbidden actions of the running fast test; `breaches` is None while no fast test runs."""

    def __init__(self) -> None:
        self.breaches: set[str] | None = None
        self._others: set[int | None] = set()
        self._sleep = time.sleep

    def begin(self) -> None:
        """Start recording forbidden actions of a test; actions of threads of earlier tests are not recorded."""
        self._others = {each.ident for each in threading.enumerate()} - {threading.get_ident()}
        self.breaches = set()
        time.sleep = self._note_sleep  # before Python 3.13 `time.sleep` raises no audit event

    def end(self) -> None:
        """Stop recording."""
        self.breaches = None
        time.sleep = self._sleep

    def _note_sleep(self, seconds: Any, /) -> None:
        self.record("time.sleep", (seconds,))
        self._sleep(seconds)

    def record(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Record a forbidden action of the running test; ignore a `time.sleep` of zero seconds, and a wait for children."""
        if self.breaches is None or threading.get_ident() in self._others:
            return
        if event == "time.sleep" and (not arguments[0] > 0 or _is_wait_for_children()):
            return
        self.breaches.add(f"{_REAL[event]} ({event} {' '.join(map(repr, arguments))[:100]})")

    def verify(self) -> None:
        """Fail the test if it did something forbidden."""
        if self.breaches:
            done, self.breaches = ", ".join(sorted(self.breaches)), set()
            pytest.fail(f"a test of the fast lane {done}; mark it `real`", pytrace=False)


def _is_wait_for_children() -> bool:
    """Whether `end_children` sleeps.

    A fast test starts no process, so it waits only for children of earlier tests, such as engines that are ending.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    processes = sys.modules.get("aptui.worker.processes")  # not imported here, so that coverage sees its import
    return frame is not None and processes is not None and frame.f_code is processes.end_children.__code__


_watch = _Watch()


def _record(event: str, arguments: tuple[Any, ...], real: Container[str] = frozenset(_REAL)) -> None:
    """Record only the relevant events, because each call of `id` is an event and a test of the screen makes ten thousand of them.

    `real` is a default argument, because globals are already deleted when the interpreter raises its last events.
    """
    if event in real:
        _watch.record(event, arguments)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Install the audit hook until the process ends; accept Ctrl+C; keep the folders of xdist's workers short.

    `pytest … &` in a script starts with SIGINT ignored. The programs that tests start and interrupt would inherit that.

    The path of a socket has at most 107 bytes. Engines whose own folder would have a longer path use one common folder in /tmp.
    With `popen-gw0` in every path, that would happen in many tests, and tests of different workers would share the folder.
    """
    sys.addaudithook(_record)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    worker = getattr(config, "workerinput", {}).get("workerid", "")
    if worker and config.option.basetemp:
        config.option.basetemp = str(Path(config.option.basetemp).with_name(worker.removeprefix("gw")))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """If only fast tests run, skip modules without a fast test. Importing them would take as long as all fast tests."""
    if config.option.markexpr != "fast" or collection_path.suffix != ".py":
        return None
    return True if _SLOW_MODULE.search(collection_path.read_text(encoding="utf-8")) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark fast tests, and put the longest modules first."""
    items.sort(key=lambda item: not item.nodeid.startswith(_LONGEST))
    for item in items:
        if not any(item.get_closest_marker(name) for name in ("real", "slow")):
            item.add_marker("fast")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Record forbidden actions of a fast test and of its fixtures."""
    item.stash[_FOLDER] = os.getcwd()
    if item.get_closest_marker("fast"):
        _watch.begin()
    try:
        return (yield)
    finally:
        _watch.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Fail a fast test if it, or the set-up of its fixtures, performed a forbidden action."""
    result = yield
    _watch.verify()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a fast test if the tear-down of its fixtures performed a forbidden action.

    Fail any test that does not restore the current folder.
    """
    result = yield
    _watch.verify()
    if os.getcwd() != item.stash[_FOLDER]:
        left = os.getcwd()
        os.chdir(item.stash[_FOLDER])
        pytest.fail(f"the test leaves the others in {left}; use `monkeypatch.chdir`", pytrace=False)
    return result


_skipped: dict[str, str] = {}
"""{skipped test: reason}."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note a skipped test."""
    if report.skipped and isinstance(report.longrepr, tuple):
        _skipped[report.nodeid] = report.longrepr[2].removeprefix("Skipped: ")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the list of skipped tests, if the user requested it."""
    if (file := os.environ.get("APTUI_TEST_SKIPS")) and not hasattr(session.config, "workerinput"):
        Path(file).write_text(json.dumps(_skipped), encoding="utf-8")
