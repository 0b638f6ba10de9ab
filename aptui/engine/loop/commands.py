"""The command executor: performs the pipeline's commands one after another, in the order in which the pipeline gave them.

A commit waits for the disk and the database, and clients must not wait for it. So a commit runs in a separate thread. Until the
commit has ended and the pipeline has handled its event, no other command is performed, no file is checked and no event is handled.
So for the pipeline, a commit in the thread is the same as a commit in the loop. During the commit, the loop only makes the commit's
rows, exchanges messages with workers (which also get files to hash), and answers clients.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from aptui.core.messages import (
    Command,
    CommitProducts,
    CompareFiles,
    DeleteProducts,
    DescribeBuilder,
    DiscardStaging,
    DropLogs,
    Event,
    HashFiles,
    KillRuns,
    ProductsCommitted,
    RecheckFiles,
    Rows,
    RowsSaved,
    SaveRows,
    StartRuns,
    WriteLog,
)
from aptui.core.notices import Notice
from aptui.core.paths import from_text, os_path, parent
from aptui.core.project import COMMON_PREFIX
from aptui.shared import trace
from aptui.shared.errors import HostError, KnownError
from aptui.shared.files.confinement import ConfinedTree, ConfinementError
from aptui.store import joblog

if TYPE_CHECKING:
    from aptui.core.state.commits import JobRow
    from aptui.engine.loop.context import EngineContext
    from aptui.engine.loop.dispatch import RunDispatcher
    from aptui.engine.loop.scans import Scans


# Products to be deleted: a product's file is deleted as soon as no row names the product any more.
#
# If a row has lost its product, the job has to run again; a product without a row is only a superfluous file. So the row is
# deleted first, and the same transaction marks the product's folder as doubtful. If the engine dies before it deletes the file,
# the next engine checks the folder.


class Deletions:
    """The products that one engine deletes as soon as the removal of their rows is saved."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._waiting: deque[DeleteProducts] = deque()
        self._announced = 0
        """The highest ticket that was given to the writer."""

    @property
    def are_waiting(self) -> bool:
        """Whether products wait to be deleted."""
        return bool(self._waiting)

    def put(self, order: DeleteProducts) -> None:
        """Delete the products of `order` after the save that has the number `order.ticket`."""
        self._waiting.append(order)

    def announce(self, order: SaveRows, rows: Rows) -> Rows:
        """Add rows that mark a folder as doubtful if products in it will be deleted after this save; return all rows."""
        folders = {parent(name) for item in self._waiting if item.ticket > self._announced for name in item.names}
        self._announced = order.ticket
        for operation, doubts in self._context.cache.doubt_rows(folders).items():
            rows.setdefault(operation, []).extend(doubts)
        return rows

    def perform(self, ticket: float) -> None:
        """Delete the products whose rows are saved. `ticket` is the number of the last save."""
        while self._waiting and self._waiting[0].ticket <= ticket:
            for problem in self._context.cache.delete(self._waiting.popleft().names):
                self._context.news.from_threads.append(problem)

    def perform_urgent(self) -> None:
        """Delete all waiting products at once if any of them may not wait for the next save.

        A product may not wait if no rows are saved for it. An intermediate may not wait either, because the engine checks it next,
        as a source.
        """
        waiting = self._waiting
        if waiting and (
            waiting[-1].ticket > self._announced or any(name.startswith(COMMON_PREFIX) for order in waiting for name in order.names)
        ):
            self.perform_all()

    def perform_all(self) -> None:
        """Wait until all rows are saved, and delete all waiting products.

        Raises:
            KnownError: rows cannot be saved.
        """
        if self._waiting:
            self._context.writer.run({}, durable=True)
            self.perform(math.inf)


_Committed = tuple[list[int], list[tuple[int, str, int]]]
"""The pair (committed, failed): run keys of committed runs, and failed runs in the form of `ProductsCommitted.failed`."""
_RowsOf = Callable[[int], Iterable["JobRow"]]
_ROWS_TOGETHER = 32
"""Number of jobs whose rows the loop makes before it answers clients again."""


class _PendingCommit:
    """A commit in progress: `perform` runs in a thread, which calls `wake` at its end.

    In parallel, the loop makes the rows of the commit's runs; `perform` waits for them.

    Args:
        perform: called with a function that returns the rows of a run.
        make_rows: makes the rows of a run; called by `go_on`.
    """

    def __init__(
        self, order: CommitProducts, perform: Callable[[_RowsOf], _Committed], make_rows: _RowsOf, wake: Callable[[], None]
    ) -> None:
        self.order = order
        self._perform, self._make_rows, self._wake = perform, make_rows, wake
        self._rows: dict[int, Iterable[JobRow]] = {}
        self._are_rows_made = threading.Event()
        self._answer: _Committed = [], []
        self._error: BaseException | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="commit")
        self._thread.start()

    def _run(self) -> None:
        try:
            with trace.span("commit", jobs=len(self.order.commits)):
                self._answer = self._perform(self._rows_of)
        except BaseException as error:  # noqa: BLE001  # the loop raises it (`answer`)
            self._error = error
        finally:
            self._end.set()
            self._wake()

    def _rows_of(self, run_key: int) -> Iterable[JobRow]:
        self._are_rows_made.wait()
        return self._rows[run_key]

    @property
    def is_over(self) -> bool:
        """Whether the thread has ended, with a result or an error."""
        return self._end.is_set()

    @property
    def wants_rows(self) -> bool:
        """Whether the loop still has to make rows for this commit."""
        return not self._are_rows_made.is_set()

    def go_on(self, count: int) -> None:
        """Make the rows of `count` more jobs."""
        commits = self.order.commits
        try:
            for commit in commits[len(self._rows) : len(self._rows) + count]:
                self._rows[commit.run_key] = self._make_rows(commit.run_key)
        except BaseException:
            self._rows.clear()  # the commit's thread waits for these rows; without rows, it ends with an error
            self._are_rows_made.set()
            raise
        if len(self._rows) == len(commits):
            self._are_rows_made.set()

    def wait(self) -> None:
        """Wait until the thread has ended."""
        try:
            if self.wants_rows:
                self.go_on(len(self.order.commits))
        finally:
            self._thread.join()

    def answer(self) -> _Committed:
        """Return the result of the commit, or raise its error."""
        self.wait()
        if self._error is not None:
            raise self._error
        return self._answer


class CommandExecutor:
    """Performs the commands of one engine.

    Args:
        scans: repeats the check of files that changed while they were read.
    """

    def __init__(self, context: EngineContext, scans: Scans, runs: RunDispatcher) -> None:
        self._context, self._scans, self._runs = context, scans, runs
        self._pending: deque[Command | tuple[Notice, ...]] = deque()
        """Commands to perform, and tuples of notices to publish. An event's notices come after the commands of the same event."""
        self._commit: _PendingCommit | None = None
        self._deletions = Deletions(context)
        context.closing.callback(self._close)
        self._log_folders: set[str] = set()
        self.is_dirty = False
        """Whether a command was performed since the idle state was last recorded."""

    @property
    def is_committing(self) -> bool:
        """Whether a commit is in progress. Until it has ended, `handle` may not be called."""
        return self._commit is not None

    @property
    def can_go_on(self) -> bool:
        """Whether the loop still has to make database rows for jobs in the commit that is in progress."""
        return self._commit is not None and self._commit.wants_rows

    def handle(self, event: Event) -> None:
        """Pass an event to the pipeline, perform its commands, publish its notices; return as soon as a commit begins."""
        self._schedule(event)
        self.go_on()
        if isinstance(event, RowsSaved) and self._commit is None:
            self._deletions.perform(event.ticket)

    def _schedule(self, event: Event) -> None:
        """Pass an event to the pipeline; its commands are performed after all pending commands, so that rows are saved in order."""
        with trace.span(type(event).__name__, seq=event.seq):
            commands, notices = self._context.pipeline.handle(event)
        self._pending += (*commands, tuple(notices))

    def go_on(self) -> None:
        """Perform pending commands until none is left or a commit is in progress; make some rows for this commit."""
        try:
            while self._commit is not None or self._pending:
                if self._commit is None:
                    self._do(self._pending.popleft())
                elif self._commit.is_over:
                    self._end_commit(self._commit)
                else:
                    if self._commit.wants_rows:
                        with trace.span("rows"):
                            self._commit.go_on(_ROWS_TOGETHER)
                    return
            self._deletions.perform_urgent()
        except BaseException:
            self._pending.clear()
            raise

    def finish(self) -> None:
        """Wait for the commit in progress, perform the pending commands, and delete the products that wait for deletion."""
        while self._commit is not None:
            self._commit.wait()
            self.go_on()
        self._deletions.perform_all()

    def _close(self) -> None:
        """Wait for the commit in progress before the cache is released; the next engine finds its result."""
        if self._commit is not None:
            self._commit.wait()
        # if this fails, the next engine deletes the products, because their folders are marked as doubtful
        with contextlib.suppress(KnownError):
            self._deletions.perform_all()
        with contextlib.suppress(KnownError):
            joblog.remove_superseded(self._context.config.log_dir, self._log_folders, self._context.archive.list_logs)

    def _do(self, step: Command | tuple[Notice, ...]) -> None:
        if not isinstance(step, tuple):
            with trace.span(type(step).__name__):
                self._perform(step)
        elif step:
            with trace.span("notices", count=len(step)):
                for notice in step:
                    self._context.news.notify(notice)

    def _perform(self, command: Command) -> None:  # noqa: C901, PLR0912  # one case for each command, and nothing else
        context = self._context
        match command:
            case StartRuns():
                self.is_dirty = True
                if self._deletions.are_waiting and self._may_read_products(command):
                    self._deletions.perform_all()  # otherwise a job could read a product that is about to be deleted
                self._runs.start(command)
            case CommitProducts():
                self._begin_commit(command)
            case SaveRows():
                self.is_dirty = True
                context.writer.save(command.ticket, self._deletions.announce(command, self._add_marks(command.rows, command.cause)))
            case HashFiles():
                context.digests.add(command)
            case KillRuns():
                self._runs.kill(command.run_keys)
            case DeleteProducts():
                self._deletions.put(command)
            case DiscardStaging():
                context.cache.discard(command.run_keys)
                context.cache.announced.withdraw(command.run_keys, context.writer)
                self._runs.note_discarded(command.run_keys)
            case WriteLog():
                self._write_log(command)
            case DropLogs():
                self._drop_logs(command.files)
            case RecheckFiles():
                self._scans.want_again(command.keys)
            case CompareFiles():
                self._scans.compare(command.facts)
            case DescribeBuilder():
                context.news.say_once(
                    f"the code or a tool of '{command.builder}' changed while its jobs ran, so their results are not used"
                )

    def _may_read_products(self, command: StartRuns) -> bool:
        """Whether one of these runs belongs to a job that depends on other jobs."""
        running = self._context.pipeline.jobs.running
        jobs = (running.get(order.run_key) for order in command.orders)
        return any(job is not None and job.plan is not None and job.plan.job_dependencies for job in jobs)

    def _begin_commit(self, command: CommitProducts) -> None:
        cache, writer, mark, deletions = self._context.cache, self._context.writer, self._mark(command.cause), self._deletions

        def perform(rows_of: _RowsOf) -> _Committed:
            deletions.perform_all()  # a new product may have the name of a product that is still to be deleted
            return cache.commit(command, writer, rows_of, mark)

        self._commit = _PendingCommit(command, perform, self._context.pipeline.commit_rows, self._context.wake)

    def _end_commit(self, commit: _PendingCommit) -> None:
        context, self._commit = self._context, None
        committed, failed = commit.answer()
        self._runs.note_committed(commit.order, committed)
        now_ms = time.time_ns() // 1_000_000
        self._schedule(ProductsCommitted(context.inbox.next_seq(), tuple(committed), tuple(failed), now_ms))

    # -------------------------------------------------------------------------------------------------------- rows and logs

    def _mark(self, cause: int) -> Rows:
        """Return rows that store the last event whose changes the database contains; {} for an engine that has no clients."""
        return {"put_state": [("seq", str(cause))]} if self._context.live is not None else {}

    def _add_marks(self, rows: Rows, cause: int) -> Rows:
        for operation, listed in self._mark(cause).items():
            rows.setdefault(operation, []).extend(listed)
        self._scans.mark_fresh_files(rows)
        self._scans.note_changes(rows)
        return rows

    def _write_log(self, command: WriteLog) -> None:
        self._log_folders.add(os.path.dirname(os_path(command.file)))
        try:
            folder = self._context.config.log_dir
            joblog.write_below(folder, from_text(command.file), command.records, command.warnings, command.errors)
        except HostError as error:
            self._context.news.say_once(str(error))

    def _drop_logs(self, files: Iterable[str]) -> None:
        with contextlib.closing(ConfinedTree(os.fsencode(self._context.config.log_dir))) as logs:
            for file in files:
                try:
                    logs.unlink(from_text(file))
                except ConfinementError as error:
                    self._context.news.say_once(f"the log '{file}' was not deleted: its path {error.strerror}")
                except OSError:
                    continue
