"""Where the links to files in scan folders lead: a change of a file changes its links too, and no notification names these.

This module is imported by runs that find nothing to do: it must stay light.

Tests: `tests/engine/live/test_links.py`.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Mapping
from contextlib import suppress

_STEPS_AT_MOST = 40
"""As many links as Linux follows."""
Ways = Mapping[str, tuple[str, ...]]
"""{link: the places that it leads to, from link to link}."""


class FileLinks:
    """The links that were met, folder by folder."""

    def __init__(self) -> None:
        self.ways: dict[str, Ways] = {}
        """{absolute folder: its links}."""
        self._sorted: list[tuple[bytes, bytes]] | None = None

    def note(self, folder: str, ways: Ways) -> None:
        """These are the links that a folder has now."""
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


def way_of(link: str, real: str) -> tuple[str, ...]:
    """Return the places that a link leads to; `real` is the last of them."""
    places = [real]
    with suppress(OSError):  # it went, or is a link no more: the watcher says so
        while len(places) < _STEPS_AT_MOST and os.path.islink(link := os.path.join(os.path.dirname(link), os.readlink(link))):
            folder, name = os.path.split(link)
            places.append(os.path.join(os.path.realpath(folder), name))
    return tuple(places)
