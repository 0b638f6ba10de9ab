"""Catalogs of what the cache holds, ours and a runtime's: when they are written, and what is said when they cannot be.

Tests: `tests/engine/loop/test_engine.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from aptui.core.notices import LogLevel
from aptui.engine.cache import preload
from aptui.engine.cache.catalog import Catalogs, platforms_of
from aptui.store.db.catalog_mark import CATALOG_STATE

if TYPE_CHECKING:
    from aptui.config.model import Config
    from aptui.core.project import Project
    from aptui.engine.cache.cache import Cache
    from aptui.engine.cache.runtime_catalog import RuntimeCatalogs
    from aptui.engine.loop.reporting.events import NoticePublisher
    from aptui.store.db.archive.archive import DatabaseArchive
    from aptui.store.db.writer import Writer


class CatalogPublisher:
    """Writes the catalogs of one engine once all is at rest.

    Args:
        wake: ends the loop's sleep; called in threads.
    """

    def __init__(
        self,
        config: Config,
        project: Project,
        database: Path,
        archive: DatabaseArchive,
        writer: Writer,
        cache: Cache,
        news: NoticePublisher,
        wake: Callable[[], None],
    ) -> None:
        self._database, self._writer, self._cache, self._news, self._wake = database, writer, cache, news, wake
        platforms = platforms_of(project)
        self._ours = Catalogs(writer, database, config.name, platforms, archive.state(CATALOG_STATE))
        self._runtime: RuntimeCatalogs | None = None
        if config.foreign:
            from aptui.engine.cache.runtime_catalog import RuntimeCatalogs  # O3DE's projects alone have them

            self._runtime = RuntimeCatalogs(config.cache_dir, platforms)

    def close(self) -> None:
        """Wait for what is being written: a runtime's are made of ours."""
        try:
            self._ours.close()
        finally:
            if self._runtime is not None:
                self._runtime.close()

    def begin(self, done: Callable[[], None]) -> None:
        """Write ours in a thread, which calls `done`."""
        self._ours.begin(done)

    def publish(self, *, waits: bool) -> bool:
        """Tell a runtime what there is now, and people which products can never be loaded.

        Args:
            waits: until it is written; else it is done in threads.

        Returns:
            Whether folders of the cache were written into (`note_written`).
        """
        for sentence in preload.sentences(self._database, self._writer.take_preloaders()):
            self._news.say(sentence, LogLevel.ERROR)
        if not waits:
            self._ours.begin(self._begin_runtime)
            return False
        self._ours.save()
        if self._runtime is not None:
            self._runtime.save()
        return self.note_written()

    def _begin_runtime(self) -> None:
        """Called in the thread of ours: those of a runtime are made of them, once there is time."""
        if self._runtime is not None:
            self._runtime.begin(self._wake)
        self._wake()

    def say_problems(self) -> None:
        """Say, once each, what could not be written."""
        for catalogs in (self._ours, self._runtime):
            if catalogs is not None and (problem := catalogs.take_problem()):
                self._news.say_once(problem)

    def note_written(self) -> bool:
        """Take note of the folders that catalogs were written into: nothing else changed in them; return whether there are any."""
        written = self._runtime.take_written() if self._runtime is not None else set()
        if written:
            self._cache.note_written(written)
        return bool(written)
