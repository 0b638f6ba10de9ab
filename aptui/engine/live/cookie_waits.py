"""Waits for sync cookies: each ends when the watcher has reported its cookie and all earlier changes have been checked.

Tests: `tests/engine/live/test_supervisor.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection

from msgspec import Struct

from aptui.engine.live.roots import cookie_folder

_LIMIT_S = 3.0


class _CookieWait(Struct):
    """Somebody waits until the watcher comes to `path`."""

    path: bytes
    deadline: float
    done: Callable[[bool], None]
    is_passed: bool = False


class CookieWaits:
    """The waits for sync cookies below one cache folder, in the order in which they began."""

    def __init__(self, cache: bytes) -> None:
        self._cache = cache
        self._waits: list[_CookieWait] = []
        self._count = 0

    def begin(self, now: float, done: Callable[[bool], None]) -> None:
        """Make a sync cookie; `done(True)` is called once the watcher has come to it, `done(False)` if that takes too long."""
        self._count += 1
        path = os.path.join(cookie_folder(self._cache), b"%d-%d" % (os.getpid(), self._count))
        self._waits.append(_CookieWait(path, now + _LIMIT_S, done))
        try:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
            os.unlink(path)
        except OSError:
            self._waits[-1].deadline = 0.0

    def note_passed(self, paths: Collection[bytes]) -> None:
        """The watcher has come to these files."""
        for wait in self._waits:
            wait.is_passed = wait.is_passed or wait.path in paths

    def end_due(self, now: float) -> None:
        """Answer those whose cookie has passed, and those that have waited too long."""
        for wait in [wait for wait in self._waits if wait.is_passed or wait.deadline <= now]:
            self._waits.remove(wait)
            wait.done(wait.is_passed)

    def deadlines(self) -> list[float]:
        """Return when those that wait have waited too long."""
        return [wait.deadline for wait in self._waits]
