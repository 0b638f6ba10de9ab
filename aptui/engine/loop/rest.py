"""What is recorded when nothing is pending any more: what the next start compares with, and the session that has ended.

Tests: `tests/engine/loop/test_engine.py`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aptui.core.messages import RequestReceived
from aptui.shared.errors import InternalError

if TYPE_CHECKING:
    from aptui.engine.loop.commands import CommandExecutor
    from aptui.engine.loop.context import EngineContext
    from aptui.engine.loop.dispatch import RunDispatcher
    from aptui.engine.loop.files.scans import Scans
    from aptui.engine.loop.publishing import CatalogPublisher
    from aptui.engine.loop.reporting.sessions import SessionRecorder


class RestRecorder:
    """Writes it, if anything is otherwise than it is recorded.

    Args:
        dropped_folders: ids of scan folders that are configured no more; their rows go once nothing needs them.
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

    def refuse_stuck(self) -> None:
        """Raise when jobs wait although nothing moves any more, which is a bug."""
        jobs = self._context.pipeline.stuck()
        if not jobs:
            return
        names = ", ".join(f"{job.source.rel}@{job.platform}:{job.key}" for job in jobs[:5])
        raise InternalError(f"{len(jobs)} jobs are waiting for something that cannot happen: {names}", hint="please report this")

    def record(self, *, checkpoints: bool) -> None:
        """Record it.

        Args:
            checkpoints: also put the database's log away, which may take the disk a tenth of a second.
        """
        context, is_stopping = self._context, self._context.is_stopping()
        self._executor.finish()
        if is_stopping:
            self._executor.handle(RequestReceived(context.inbox.next_seq(), "stop"))
        else:
            self._executor.is_dirty |= self._catalogs.publish(waits=checkpoints)
        records_folders = context.live is None or is_stopping  # else who deletes a product there is heard
        if not (self._scans.is_dirty or self._executor.is_dirty or (records_folders and context.cache.is_unrecorded)):
            self._sessions.forget()
            return
        if context.live is not None:
            self._runs.note_shared()
        rows = context.cache.folder_rows(context.archive.products) if records_folders else {}
        state = self._runs.list_learned_state()
        if not is_stopping:
            state += [*self._scans.list_settled_state(), ("host", os.uname().nodename)]
            for scan_folder in self._dropped_folders:
                context.writer.drop_scan_folder(scan_folder)
            self._dropped_folders = []
            rows["put_folder"] = [*context.pipeline.memory.newer.list_learned_rows(context.archive.folders.folder_parts)]
        if state:
            rows["put_state"] = [*state]
        rows.update(self._sessions.end(context.archive.sessions, self._runs.account, is_stopping=is_stopping))
        context.writer.run(rows, durable=True)
        if not is_stopping:
            context.pipeline.memory.newer.forget_learned()
        if checkpoints:
            context.writer.checkpoint()
        self._scans.is_dirty = self._executor.is_dirty = False
