"""Other names of files in scan folders: links, where they lead, and hard links. A change by one name concerns all others.

A notification names the path that a program wrote to, and none at all if that path lies outside the scan folders.

This module is imported by runs that find nothing to do: it must stay light.

Tests: `tests/engine/live/test_links.py`.
"""

from __future__ import annotations

import math
import os
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from aptui.shared.files.clocks import RACY_NS

_STEPS_AT_MOST = 40
"""As many links as Linux follows."""
_ROUND_S = 1.0
_PACE = 50
"""Checks take at most a fiftieth of the time."""
_CHECKED_TOGETHER = 500
"""Files checked before clients have their turn; about 1 ms."""
_Stamp = tuple[int, ...]
"""(size, mtime_ns, ctime_ns, inode); () = the file is not there."""
Ways = Mapping[str, tuple[str, ...]]
"""{link: the places that it leads to, from link to link}."""


class FileLinks:
    """The links that were met, folder by folder."""

    def __init__(self) -> None:
        self.ways: dict[str, Ways] = {}
        """{absolute folder: its links}."""
        self.shared: dict[str, Collection[str]] = {}
        """{absolute folder: names of its files that have another name somewhere}: links, and files with several hard links."""
        self._sorted: list[tuple[bytes, bytes]] | None = None

    def note(self, folder: str, ways: Ways, shared: Collection[str]) -> None:
        """Record the links that a folder has now, and its files that have another name somewhere."""
        if shared:
            self.shared[folder] = shared
        else:
            self.shared.pop(folder, None)
        if self.ways.get(folder, {}) == ways:
            return
        self._sorted = None
        if ways:
            self.ways[folder] = ways
        else:
            del self.ways[folder]

    def leading_to(self, path: bytes) -> list[bytes]:
        """Return the links that lead to a file, or to anything below a folder."""
        if not self.ways:
            return []
        if self._sorted is None:
            ways = [item for found in self.ways.values() for item in found.items()]
            self._sorted = sorted((os.fsencode(place), os.fsencode(link)) for link, places in ways for place in places)
        folder, name = os.path.split(path)
        real = os.path.join(os.path.realpath(folder), name)
        exact = self._between((real, b""), (real + b"\0", b""))
        return [*exact, *self._between((real + b"/", b""), (real + b"0", b""))]  # "0" comes after "/"

    def _between(self, first: tuple[bytes, bytes], end: tuple[bytes, bytes]) -> list[bytes]:
        known = self._sorted or []
        return [link for _place, link in known[bisect_left(known, first) : bisect_left(known, end)]]


class SharedFiles:
    """Checks files by stat that have another name somewhere, beside an engine that stays up.

    A round takes at least a second, and at most a fiftieth of the time.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began_ns = time.time_ns()
        self._stamps: dict[str, _Stamp] = {}
        self._waiting: deque[str] = deque()
        self._round_s = self._due_s = 0.0

    def next_deadline(self, links: FileLinks) -> float:
        """Return when (monotonic) `poll` has something to do; infinite if no file has another name."""
        return self._due_s if links.shared else math.inf

    def poll(self, links: FileLinks, now_s: float) -> list[bytes]:
        """Return the paths of files that are not as they were; checks some of them, if it is time."""
        if now_s < self.next_deadline(links):
            return []
        if not self._waiting:
            self._begin_round(links, now_s)
        found = self._check(min(len(self._waiting), _CHECKED_TOGETHER))
        rest_s = _PACE * (self._clock() - now_s)
        self._due_s = now_s + rest_s if self._waiting else max(now_s + rest_s, self._round_s + _ROUND_S)
        return found

    def check_all(self, links: FileLinks) -> list[bytes]:
        """Return the paths of all files that are not as they were."""
        self._begin_round(links, self._clock())
        return self._check(len(self._waiting))

    def _begin_round(self, links: FileLinks, now_s: float) -> None:
        self._round_s = now_s
        self._waiting = deque(os.path.join(folder, name) for folder, names in links.shared.items() for name in names)
        self._stamps = {path: stamp for path in self._waiting if (stamp := self._stamps.get(path)) is not None}

    def _check(self, count: int) -> list[bytes]:
        found = []
        for _ in range(count):
            path = self._waiting.popleft()
            stamp, before = _stamp(path), self._stamps.get(path)
            self._stamps[path] = stamp
            # A file that is new here was seen by a scan; it may have changed since then.
            if stamp != before and (before is not None or max(stamp[1:3], default=0) >= self._began_ns - RACY_NS):
                found.append(os.fsencode(path))
        return found


def _stamp(path: str) -> _Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def way_of(link: str, real: str) -> tuple[str, ...]:
    """Return the places that a link leads to; `real` is the last of them."""
    places = [real]
    with suppress(OSError):  # it went, or is a link no more: the watcher says so
        while len(places) < _STEPS_AT_MOST and os.path.islink(link := os.path.join(os.path.dirname(link), os.readlink(link))):
            folder, name = os.path.split(link)
            places.append(os.path.join(os.path.realpath(folder), name))
    return tuple(places)
