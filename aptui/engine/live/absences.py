"""Confirmed absences: a known file or folder counts as gone when it was missing at two checks.

Some programs save by removing or renaming a file and writing it anew; for a moment nothing lies there, and nothing has been
deleted.

Tests: `tests/engine/live/test_supervisor.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from aptui.core.model import PathKey
from aptui.core.paths import is_below, key_of, parent

if TYPE_CHECKING:
    from aptui.engine.loop.engine import Engine

AWAY_S = 0.03
"""How long a file has to be away to be gone."""


class Absences:
    """The paths of one batch of notifications that were not there when they were asked the first time."""

    def __init__(self) -> None:
        self._paths: dict[bytes, None] = {}
        self._asked: set[str] = set()
        self._remembered: dict[str, frozenset[PathKey]] = {}
        """{folder: its files}, as far as this batch had to ask."""
        self.due = 0.0
        """When (monotonic) they are to be asked again."""

    def __bool__(self) -> bool:
        return bool(self._paths)

    def clear(self) -> None:
        """Begin with the next batch."""
        self._paths.clear()
        self._asked.clear()
        self._remembered.clear()

    def again(self, now: float) -> Iterable[bytes]:
        """Return what is to be asked again now."""
        return tuple(self._paths) if now >= self.due else ()

    def settle(self, path: bytes) -> bool:
        """It is known now what became of this path; return whether it was waited for."""
        return self._paths.pop(path, self) is None

    def may_come_back(self, engine: Engine, path: bytes, keys: Iterable[PathKey], now: float) -> bool:
        """Whether a path that is not there was there, and has to be asked again before that is trusted."""
        if path in self._paths:
            return False
        if not self._paths and not any(self._was_file(engine, key) or was_folder(engine, key) for key in keys):
            return False  # of those that come after the first nothing is asked: all of the batch waits anyway
        self._paths[path] = None
        self.due = now + AWAY_S
        return True

    def _was_file(self, engine: Engine, key: PathKey) -> bool:
        folder = parent(key)
        pending = engine.pipeline.memory.folders.get(folder)
        if pending is not None and key in pending.winners:
            return True
        if folder not in self._asked:
            self._asked.add(folder)
            return bool(engine.archive.folders.variants(key))
        if folder not in self._remembered:  # temporary files come and go beside many others
            parts = engine.archive.folders.folder_parts(folder)
            self._remembered[folder] = frozenset(key_of(fact.rel) for _digest, facts in parts.values() for fact in facts)
        return key in self._remembered[folder]


def was_folder(engine: Engine, key: PathKey) -> bool:
    """Whether a folder of sources is known by this key."""
    pending = engine.pipeline.memory.folders
    return engine.archive.folders.has_folder(key) or any(folder == key or is_below(folder, key) for folder in pending)
