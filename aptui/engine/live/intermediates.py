"""Intermediates that another program wrote: nothing may be made of them, so they are checked, and their jobs make them again.

The engine writes there itself, and the watcher reports its files as well. Its own files are recognized by the stamp that it noted
when it moved them in (`Cache.placed`), so that a build costs one stat for each. Names are gathered for a moment, and while a
commit is under way.

Tests: `tests/engine/live/test_supervisor.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from aptui.core.model import PathKey
from aptui.core.paths import cache_path, from_text, parent, product_at, to_text
from aptui.core.project import COMMON_PLATFORM, INTERMEDIATES
from aptui.engine.cache.places import stamp_of

if TYPE_CHECKING:
    from aptui.engine.loop.engine import Engine

_GATHER_S = 0.1
_PREFIX = f"{COMMON_PLATFORM}/"


class WrittenIntermediates:
    """What was named below the folder of intermediates since it was looked at last.

    Args:
        cache: the cache folder.
    """

    def __init__(self, cache: bytes) -> None:
        self._cache = cache + b"/"
        self._top = self._cache + os.fsencode(INTERMEDIATES)
        self._paths: dict[bytes, None] = {}
        self.due: float | None = None
        """When (monotonic) there is something to look at."""

    def note(self, paths: Iterable[bytes], now: float) -> None:
        """These files or folders in the cache changed somehow."""
        found = [path for path in paths if path.startswith(self._top)]
        self._paths.update(dict.fromkeys(found))
        if found and self.due is None:
            self.due = now + _GATHER_S

    def check(self, engine: Engine, now: float) -> None:
        """Have those files looked at that are not as the engine wrote them."""
        if self.due is None or now < self.due:
            return
        if engine.is_scanning or engine.pipeline.jobs.committing:
            self.due = now + _GATHER_S
            return
        paths, self._paths, self.due = self._paths, {}, None
        folders: dict[str, set[PathKey]] = {}
        for name in self._strange(engine, paths):
            key = PathKey(name.removeprefix(_PREFIX))
            folders.setdefault(parent(key), set()).add(key)
        for folder, keys in folders.items():
            engine.check_folder(folder, frozenset(keys))

    def _strange(self, engine: Engine, paths: Iterable[bytes]) -> list[str]:
        """Return the products among `paths`, and in folders among them, that are there and are not as they were placed."""
        names: dict[str, None] = {}
        for path in paths:
            name = product_at(to_text(path[len(self._cache) :]))
            inside = engine.archive.products.products_below(name) if os.path.isdir(path) else (name,)
            names.update(dict.fromkeys(inside))
        other = [name for name in names if not self._is_as_placed(engine, name)]
        return list(engine.archive.owners(other)) if other else []

    def _is_as_placed(self, engine: Engine, name: str) -> bool:
        """Whether a file is as the engine wrote it, or is not there, which is another matter."""
        seen = stamp_of(self._cache + from_text(cache_path(name)))
        return seen is None or seen == engine.cache.placed.get(name)
