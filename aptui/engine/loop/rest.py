"""Records of an idle engine: facts that the next start compares with, and the session that has ended.

Tests: `tests/engine/loop/test_engine.py`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from aptui import feature
from aptui.core.messages import RequestReceived
from aptui.core.notices import LogLevel
from aptui.core.state.graph import CYCLE_PROBLEM, JOIN, find_cycles
from aptui.engine.cache.catalog import Catalogs, platforms_of
from aptui.store.db.schema import CATALOG_STATE
from aptui.store.queries import dependencies
from aptui.store.queries.reader import Reader, open_reader

if TYPE_CHECKING:
    from aptui.config.configuration import Config
    from aptui.core.project import Project
    from aptui.engine.cache.cache import Cache
    from aptui.engine.loop.commands import CommandExecutor
    from aptui.engine.loop.context import EngineContext
    from aptui.engine.loop.dispatch import RunDispatcher
    from aptui.engine.loop.engine_reports import NoticePublisher, SessionRecorder
    from aptui.engine.loop.scans import Scans
    from aptui.store.db.archive import DatabaseArchive
    from aptui.store.db.writer import Writer


# Preload cycles: products that must each be loaded before the other; checked for products whose dependencies changed.
#
# They are reported, not repaired.


def sentences(database: Path, changed: set[int] | None) -> list[str]:
    """Return one sentence for each cycle that contains one of the products `changed` (None = all cycles)."""
    if changed is not None and not changed:
        return []
    with contextlib.closing(open_reader(database)) as reader, reader.snapshot():
        wanted = dependencies.preloading(reader) if changed is None else changed
        edges = _find_reached(reader, wanted)
        names = dependencies.names_of(reader, edges)
    chains = find_cycles(edges, names, wanted)
    return [f"{CYCLE_PROBLEM}{JOIN.join(chain)}" for chain in chains]


def _find_reached(reader: Reader, start: set[int]) -> dict[int, list[int]]:
    """Return {product: products that it preloads} for all products reachable from `start`.

    Products without preloads are left out.
    """
    edges: dict[int, list[int]] = {}
    seen, todo = set(start), start
    while todo:
        found = dependencies.find_preloaded(reader, todo)
        edges.update(found)
        todo = {target for targets in found.values() for target in targets} - seen
        seen |= todo
    return {owner: [target for target in targets if target in edges] for owner, targets in edges.items()}


# Catalogs of the cache (aptui's own and those for a runtime): when they are written, and how errors are reported.


class ForeignCatalogs(Protocol):
    """Catalogs for another program's runtime (extension point `catalogs`), made from aptui's own catalogs."""

    def save(self) -> None:
        """Write the catalogs that are out of date.

        Raises:
            HostError: they cannot be written.
        """

    def begin(self, done: Callable[[], None]) -> None:
        """Write the outdated catalogs in a thread, which calls `done` after each write."""

    def take_written(self) -> set[str]:
        """Return the platforms whose folders were written to since the last call."""

    def take_problem(self) -> str:
        """Return and clear the error of the thread that writes the catalogs; "" = no error."""

    def close(self) -> None:
        """Wait until the thread that writes the catalogs has ended."""


class CatalogPublisher:
    """Writes the catalogs of one engine when it is idle.

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
        runtime = feature.load_first("catalogs") if config.foreign else None
        self._runtime: ForeignCatalogs | None = None if runtime is None else runtime(config.cache_dir, platforms)

    def close(self) -> None:
        """Wait until catalogs in progress are written: first aptui's own catalogs, from which a runtime's catalogs are made."""
        try:
            self._ours.close()
        finally:
            if self._runtime is not None:
                self._runtime.close()

    def begin(self, done: Callable[[], None]) -> None:
        """Write aptui's own catalogs in a thread, which calls `done` after each write."""
        self._ours.begin(done)

    def publish(self, *, waits: bool) -> bool:
        """Write all catalogs, and report products that can never be loaded because of a preload cycle.

        Args:
            waits: whether to wait until the catalogs are written; otherwise threads write them.

        Returns:
            Whether files were written into folders of the cache (`note_written`).
        """
        for sentence in sentences(self._database, self._writer.pop_preloaders()):
            self._news.say(sentence, LogLevel.ERROR)
        if not waits:
            self._ours.begin(self._begin_runtime)
            return False
        self._ours.save()
        if self._runtime is not None:
            self._runtime.save()
        return self.note_written()

    def _begin_runtime(self) -> None:
        """Write the catalogs of a runtime from aptui's own catalogs; called in the thread that wrote aptui's own catalogs."""
        if self._runtime is not None:
            self._runtime.begin(self._wake)
        self._wake()

    def say_problems(self) -> None:
        """Report each error of writing catalogs once."""
        for catalogs in (self._ours, self._runtime):
            if catalogs is not None and (problem := catalogs.take_problem()):
                self._news.say_once(problem)

    def note_written(self) -> bool:
        """Record the folders in which a runtime's catalogs were written, so that they do not count as changed.

        Return whether there are any.
        """
        written = self._runtime.take_written() if self._runtime is not None else set()
        if written:
            self._cache.note_written(written)
        return bool(written)


class RestRecorder:
    """Writes the idle state to the database if it differs from the recorded state.

    Args:
        dropped_folders: ids of scan folders that are no longer configured; their rows are deleted when the engine is idle.
    """

    def __init__(
        self,
        context: EngineContext,
        scans: Scans,
        runs: RunDispatcher,
        commands: CommandExecutor,
        catalogs: CatalogPublisher,
        sessions: SessionRecorder,
        dropped_folders: Sequence[int],
    ) -> None:
        self._context, self._scans, self._runs, self._executor = context, scans, runs, commands
        self._catalogs, self._sessions = catalogs, sessions
        self._dropped_folders = list(dropped_folders)

    def record(self, *, checkpoints: bool) -> None:
        """Record the idle state."""
        context, is_stopping = self._context, self._context.is_stopping()
        self._executor.finish()
        if is_stopping:
            self._executor.handle(RequestReceived(context.inbox.next_seq(), "stop"))
        else:
            self._executor.is_dirty |= self._catalogs.publish(waits=checkpoints)
        # a long-running engine records the states of cache folders only when it ends: its watcher notices deleted products
        records_folders = context.live is None or is_stopping
        if not (self._scans.is_dirty or self._executor.is_dirty or (records_folders and context.cache.is_unrecorded)):
            self._sessions.forget()
            return
        if context.live is not None:
            self._runs.note_shared()
        rows = context.cache.folder_rows(context.archive.products) if records_folders else {}
        state = self._runs.list_learned_state()
        if not is_stopping:
            for scan_folder in self._dropped_folders:
                context.writer.drop_scan_folder(scan_folder)
            self._dropped_folders = []
            rows["put_folder"] = [*context.pipeline.jobs.memory.newer.list_digest_rows(context.archive.folders.folder_parts)]
            self._scans.note_changes(rows)
            state += [*self._scans.list_settled_state(), ("host", os.uname().nodename)]
        if state:
            rows["put_state"] = [*state]
        rows.update(self._sessions.end(context.archive.sessions, self._runs.account, is_stopping=is_stopping))
        context.writer.run(rows, durable=True)
        if not is_stopping:
            context.pipeline.jobs.memory.newer.forget_digest_rows()
        if checkpoints:
            context.writer.checkpoint()
        self._scans.is_dirty = self._executor.is_dirty = False
