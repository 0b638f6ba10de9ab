"""The engine: one loop with one inbox and one clock.

It passes events to the pipeline, and the command executor performs the pipeline's commands.

A turn takes events from the inbox, lets the pipeline handle them, performs the commands and notifies the listeners. Then it
continues the scan if little work is pending, offers free slots, and sleeps on the selector until a worker or the database writer
has a message. No other thread of the program makes decisions. The engine's parts: `loop.context` (events and their numbers),
`loop.scans` (checks of files), `loop.dispatch` (runs and their results), `loop.commands` (performing commands), `loop.rest`
(records of an idle engine).
"""

from __future__ import annotations

import contextlib
import gc
import math
import selectors
import time
from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from aptui.config.configuration import Config
from aptui.config.dirs import asset_database, builders_record
from aptui.core.messages import OutsideSeen, RequestReceived, RowsSaved
from aptui.core.model import PathKey
from aptui.core.notices import Progress
from aptui.core.paths import parent
from aptui.core.pipeline.pipeline import Pipeline
from aptui.core.rows import SessionKind
from aptui.core.state.stale_results import with_default
from aptui.engine.loop.commands import CommandExecutor
from aptui.engine.loop.context import ChangeSource, EngineContext, Inbox
from aptui.engine.loop.dispatch import QueuePause, RunDispatcher
from aptui.engine.loop.engine_reports import Forecaster, Listener, NoticePublisher, SessionRecorder
from aptui.engine.loop.hashing import CopyStaging, HashQueue
from aptui.engine.loop.opening import PreparedSession
from aptui.engine.loop.rest import CatalogPublisher, RestRecorder
from aptui.engine.loop.scans import Scans
from aptui.engine.scan.metadata import Metadata
from aptui.engine.scan.up_to_date import find_changed_files
from aptui.engine.waking import Waker
from aptui.shared import trace
from aptui.shared.errors import InternalError, KnownError
from aptui.store import joblog
from aptui.store.db import schema
from aptui.store.db.archive import DatabaseArchive
from aptui.store.db.writer import Writer

# Messages of the writer's thread to the loop: the ticket of the last saved rows, or the error that stopped the writer.
#
# Each order to save rows has a ticket (`core.state.ledger`); `store.db.writer` writes the rows.

OVERDUE_S = 10.0
"""Time (seconds) that rows may stay unsaved after all other work ended.

After this time the log reports the delay: another program may have locked the database.
"""


class SavedRows:
    """The highest ticket that the writer of the database has saved, and the writer's error."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self.ticket = 0
        """The ticket of the last rows saved in the database."""
        self._acknowledged = 0
        self._failure: KnownError | None = None
        self._at_rest_since_s: float | None = None

    def restart(self) -> None:
        """Count tickets (numbers of saves) from 1 again for a new writer of the database. Keep an error of the previous writer."""
        self.ticket = self._acknowledged = 0

    def note(self, ticket: int) -> None:
        """Note that rows up to this ticket are saved; called in the writer's thread.

        A ticket lower than the previous one is an error.
        """
        if ticket < self.ticket:
            self.fail(
                InternalError(
                    f"rows were saved in the wrong order: save {ticket} came after save {self.ticket}", hint="please report this"
                )
            )
            return
        self.ticket = ticket
        self._wake()

    def find_overdue(self, ordered: int, now: float, *, is_at_rest: bool) -> str:
        """Return a message if a save has not ended `OVERDUE_S` after all other work ended, "" otherwise.

        Args:
            ordered: the ticket (number) of the last save that the pipeline ordered.
            now: seconds of a monotonic clock.
        """
        if not is_at_rest or self.ticket >= ordered:
            self._at_rest_since_s = None
        elif self._at_rest_since_s is None:
            self._at_rest_since_s = now
        elif now - self._at_rest_since_s >= OVERDUE_S:
            return (
                f"all jobs are done, but saves {self.ticket + 1} to {ordered} of the asset database did not end "
                f"within {OVERDUE_S:.0f} s; check whether another program has locked it, or its disk is slow"
            )
        return ""

    def fail(self, error: KnownError) -> None:
        """Note that the writer failed; called in its thread."""
        self._failure = error
        self._wake()

    def check(self) -> None:
        """Raise the error of the writer, if it failed."""
        if self._failure is not None:
            raise self._failure

    @property
    def has_unreported(self) -> bool:
        """Whether rows were saved since the pipeline was last notified."""
        return self._acknowledged < self.ticket

    def take_unreported(self) -> int:
        """Return the last saved ticket, and mark this ticket as reported to the pipeline."""
        self._acknowledged = self.ticket
        return self._acknowledged


_GC_THRESHOLDS = (50_000, 20, 50)
"""Thresholds of Python's garbage collector. Its default, a collection every 700 objects, takes a tenth of the engine's time."""
_PROGRESS_S = 0.1
_SLICE_S = 0.004
"""Time limit (seconds) of handling events in one turn; then the engine answers clients."""
_MOST_CODE_CHANGES = 10
"""Maximum number of successive changes of builder code while jobs run. After more changes, the jobs of these builders fail."""
_WINDING_DOWN_S = 10.0
"""Time limit (seconds) for running jobs to end before changed builders are described again."""
_LAST = 1 << 30
"""Sort order of the folder of intermediates among the scan folders: its row is the last."""


class CodeChanges:
    """Counts successive changes of the code of builders while their jobs ran. After too many changes, these jobs fail."""

    def __init__(self) -> None:
        self._count = 0

    def note(self) -> str:
        """Count a code change. Return "" if the builders may be described again; otherwise return why their jobs fail."""
        self._count += 1
        is_endless = self._count > _MOST_CODE_CHANGES
        return f"it changed more than {_MOST_CODE_CHANGES} times in a row while its jobs ran" if is_endless else ""

    def forget(self) -> None:
        """Set the number of code changes to 0, because the engine is idle."""
        self._count = 0


class Engine:
    """One project's engine.

    Args:
        listeners: called with every notice. Listeners must return quickly and must not raise.
        wants_all_news: also report pending and running jobs, not only jobs that ended.
        is_full_scan: read the bytes of every file, even if its size and times are unchanged.
        opening: the prepared session; None = `open` prepares one.
        selector: the selector of a supervisor, which stays open when the engine closes.
        live: the change tracker of a long-running engine; None if the engine ends when it is idle.
        runs_builders: whether a job without a stored result runs; otherwise the job fails (`dispatch.NOT_SHARED`).
    """

    def __init__(
        self,
        config: Config,
        listeners: Sequence[Listener] = (),
        *,
        wants_all_news: bool = False,
        is_full_scan: bool = False,
        opening: PreparedSession | None = None,
        selector: selectors.BaseSelector | None = None,
        live: ChangeSource | None = None,
        runs_builders: bool = True,
    ) -> None:
        self.config = config
        self.live = live
        self.news = NoticePublisher(listeners)
        self.inbox = Inbox()
        self.selector = selector or selectors.DefaultSelector()
        self.closing = contextlib.ExitStack()
        """Closes the engine's parts in the reverse order of their opening."""
        self.epoch = 0
        """Number that increases each time an engine opens.

        A supervisor passes the epoch of its previous engine, because a new database does not contain it.
        """
        self.sessions = SessionRecorder(str(config.project_dir))
        self.is_stopping = False
        self.pause = QueuePause()
        self._runs_builders = runs_builders
        self._wants_all_news = wants_all_news
        self.is_full_scan = is_full_scan
        """Whether scans read the bytes of every file; the default of `start_scan`."""
        self._opening = opening
        self._owns_selector = selector is None
        self._code_changes = CodeChanges()
        self._outdated_since_s: float | None = None
        self._waker: Waker | None = None
        self._saved = SavedRows(self.wake)

    # ---------------------------------------------------------------------------------------------------------- open, close

    def open(self) -> None:
        """Lock the cache, complete or undo the work of an engine that died, and prepare the scan."""
        trace.start_if_asked()
        self.closing.callback(trace.flush)
        if self._owns_selector:
            self.closing.callback(self.selector.close)
        if self._opening is None:
            self._opening = PreparedSession(self.config, trusts_times=not self.is_full_scan)
            self._opening.acquire()
        self.cache = self._opening.cache
        self.closing.callback(self._opening.close)
        try:
            with schema.translate_errors(self._opening.database):
                self._open(self._opening)
        except BaseException:
            self.close()
            raise

    def reopen(self, config: Config) -> None:
        """Close the engine, and open it over the same cache with another pipeline for other builders.

        Running jobs become pending.
        """
        counts = self.pipeline.jobs.reports.counts
        self.is_stopping = self.sessions.is_held = True
        self.settle()
        self.is_stopping = False
        self.close()
        self.closing, self.inbox = contextlib.ExitStack(), Inbox(self.inbox.seq)
        if self._owns_selector:
            self.selector = selectors.DefaultSelector()
        self.config = replace(config, workers=self.config.workers)
        self._opening = None
        self._saved.restart()
        self.open()
        self.sessions.is_held = False
        self.pipeline.jobs.reports.counts.update({name: counts[name] + self.pipeline.jobs.reports.counts[name] for name in counts})
        self.start_scan()

    def _open(self, opening: PreparedSession) -> None:
        gc.set_threshold(*_GC_THRESHOLDS)
        self.news.open_log(self.config.log_dir, logs_jobs=self.config.project.debug_output)
        self.closing.callback(self.news.close)
        for sentence in opening.sentences:
            self.news.say_once(sentence)
        self._waker = Waker(self.selector)
        self.closing.callback(self._waker.close)
        self.writer = Writer(opening.database, self._saved.note, self._saved.fail)
        self.closing.callback(self.writer.close)
        ids, dropped_folders = self.writer.sync_scan_folders(
            [(item.name, item.path, _LAST if item.is_intermediate else item.order) for item in opening.project.scan_folders]
        )
        folders = tuple(replace(folder, id=ids[folder.name]) for folder in opening.project.scan_folders)
        builders = with_default(opening.builders, opening.project.undeclared_reads)
        self.project = replace(
            opening.project, builders=builders, scan_folders=folders, workers=self.config.workers, **_settings_of_runs(self.config)
        )
        self.roots = {folder.id: folder.path for folder in folders}
        types = self.project.metadata_types
        delay_s = self.config.meta_delay_ms / 1000
        self.metadata = Metadata(types, self.roots, creates=bool(types) and self.live is not None, delay_s=delay_s)
        copying = CopyStaging(
            str(self.cache.staging),
            self._may_start,
            self._is_being_written,
            self.cache.discard,
            lambda: self.pipeline.plain_copies.may_group,
            lambda copies: self.cache.announced.announce(copies, self.writer),
            lambda run_keys: self.cache.announced.withdraw(run_keys, self.writer),
        )
        is_live = self.live is not None
        self.digests = HashQueue(
            self.roots,
            self.inbox.next_seq,
            self.inbox.post,
            is_live=is_live,
            is_small_build=opening.is_small_build,
            copying=copying,
            note_read=lambda fact, read_ns, read_s: self.scans.fresh_reads.note(fact, read_ns, read_s),  # noqa: PLW0108  # no scans yet
        )
        ranks = {folder.id: rank for rank, folder in enumerate(folders)}
        self.archive = DatabaseArchive(opening.database, ranks, self.project.metadata_types)
        self.closing.callback(self.archive.close)
        if killed := self.sessions.find_killed(self.archive.sessions):
            self.writer.run(killed, durable=False)
        self.catalogs = CatalogPublisher(
            self.config, self.project, opening.database, self.archive, self.writer, self.cache, self.news, self.wake
        )
        self.closing.callback(self.catalogs.close)
        self.cache.recover(self.writer, self.archive.products)
        names = {folder.id: folder.name for folder in folders}
        self.pipeline = Pipeline(self.project, self.archive, lambda job, _: joblog.name_of(job, names), str(self.cache.staging))
        self.pipeline.jobs.reports.reports_every_step = self._wants_all_news
        context = self._context()
        self.scans = Scans(context, opening)
        self.runs = RunDispatcher(context, runs_builders=self._runs_builders, early=opening.early)
        self.executor = CommandExecutor(context, self.scans, self.runs)
        self._rest = RestRecorder(context, self.scans, self.runs, self.executor, self.catalogs, self.sessions, dropped_folders)
        self._failed_before = self.archive.count_failed() if self.live is not None else None
        self._forecaster = Forecaster(self.pipeline.pending_work, self.pipeline.jobs.reports.spent, self.config.workers)
        if self.live is not None:
            self.epoch = max(self.epoch, int(self.archive.state("epoch") or 0)) + 1
            self.writer.run({"put_state": [("epoch", str(self.epoch)), ("seq", "0")]}, durable=False)

    def _context(self) -> EngineContext:
        return EngineContext(
            self.config, self.project, self.roots, self.pipeline, self.archive, self.writer, self.cache, self.inbox, self.news,
            self.metadata, self.digests, self.live, self.selector, self.closing, self.wake, lambda: self.is_stopping,
        )  # fmt: skip

    def close(self) -> None:
        """Stop the workers, save pending rows to the database, release the cache."""
        self.closing.close()

    @property
    def ordered_ticket(self) -> int:
        """The ticket of the last rows that the pipeline ordered to save."""
        return self.pipeline.jobs.ledger.ticket - 1

    @property
    def saved_ticket(self) -> int:
        """The ticket of the last rows that are saved in the database."""
        return self._saved.ticket

    # -------------------------------------------------------------------------------------------------------------- requests

    def start_scan(self, *, retries: bool = True, is_full: bool | None = None) -> None:
        """Begin to scan all scan folders; the turns of the loop perform it.

        Args:
            is_full: read every file's bytes; None = use `is_full_scan` of the engine.
        """
        assert self._opening is not None
        self.sessions.begin_scan(self.archive.state("signature"), self._opening.signature)
        with schema.translate_errors(self._opening.database):
            self.executor.finish()
            is_full = self.is_full_scan if is_full is None else is_full
            self.scans.start(retries=retries, is_full=is_full)
            self.check_outside_files(trusts_times=not is_full)

    def check_outside_files(self, *, trusts_times: bool = True) -> None:
        """Report changed files outside the scan folders to the pipeline; with `trusts_times`, an equal stamp means no change."""
        if changed := find_changed_files(self.pipeline.jobs.memory.outside, trusts_times=trusts_times):
            self.inbox.post(OutsideSeen(self.inbox.next_seq(), changed))

    def is_unknown_path(self, key: PathKey) -> bool:
        """Whether a path is unknown to the pipeline, the inbox and the database, so that a missing file can be ignored."""
        folder = parent(key)
        is_pending = folder in self.pipeline.jobs.memory.folders or folder in self.inbox.folders()
        return not (is_pending or self.archive.folders.variants(key))

    def check_products(self) -> None:
        """Check every cache folder that differs from its record."""
        self.executor.finish()  # otherwise the check would find products whose rows are not saved yet
        self.scans.check_products()

    def ask(self, verb: str, *, keys: Iterable[PathKey] = (), job_ids: Iterable[int] = (), value: int = 0) -> None:
        """Put a client's request into the inbox."""
        if verb == "reprocess":
            self.sessions.begin(SessionKind.ASKED)
        self.inbox.post(RequestReceived(self.inbox.next_seq(), verb, tuple(keys), tuple(job_ids), value))

    def restore(self, job_id: int, run_key: int) -> None:
        """Restore the products of an earlier run of a job.

        Raises:
            UserError: the products of that run are not stored.
        """
        self.runs.restore(job_id, run_key)
        self.ask("reprocess", job_ids=(job_id,))

    # ----------------------------------------------------------------------------------------------------------------- loop

    def run_until_idle(self) -> None:
        """Run the loop until nothing is pending, or `stop` was called.

        Raises:
            HostError: the database or the cache cannot be written any more.
        """
        with schema.translate_errors(asset_database(self.config.cache_dir)):
            while not self.is_stopping:
                self.turn(self.longest_wait_s())
                if self.pipeline.jobs.is_outdated:
                    self._describe_builders_again()
                if self.is_idle:
                    if stuck := self.pipeline.jobs.stuck():
                        names = ", ".join(job.label for job in stuck[:5])
                        what = f"{len(stuck)} jobs are waiting although no other job is running: {names}"
                        raise InternalError(what, hint="please report this")
                    break
            self.settle()

    def _describe_builders_again(self) -> None:
        """Describe builders again as soon as running jobs have ended, because a run used code that the descriptions do not cover.

        If the builders are unchanged, new workers are enough, because they load the present code; otherwise another pipeline over
        the same cache plans all jobs again.
        """
        from aptui.engine import registry  # imported here, because projects without Python builders do not need the module

        now_s = time.monotonic()
        self._outdated_since_s = self._outdated_since_s or now_s
        if self.pipeline.jobs.running and now_s < self._outdated_since_s + _WINDING_DOWN_S:
            return
        self._outdated_since_s = None
        if problem := self._code_changes.note():
            self.use_new_workers(problem)
            return
        config, builders = registry.describe_again(self.config, builders_record(self.config.cache_dir))
        if registry.code_of(builders) == registry.code_of(self.project.builders):
            self.use_new_workers()
        else:
            self.reopen(config)

    def note_described(self, error: str) -> None:
        """Go on after the builders of a long-running engine were described again.

        The new descriptions equal the old ones or, if `error` is not empty, could not be made.
        """
        jobs = self.pipeline.jobs
        if jobs.is_outdated:
            self.use_new_workers(error)
        elif jobs.code_problem and not error:
            self.use_new_workers()
            if not self.scans.is_scanning:
                self.start_scan()  # run those jobs again that failed only because of changed builder code

    def use_new_workers(self, problem: str = "") -> None:
        """Keep the present descriptions of builders, and use new workers.

        Args:
            problem: why builders cannot be described again, "" = no problem. With a problem, runs that use other code fail.
        """
        self.pipeline.jobs.code_problem, self.pipeline.jobs.is_outdated = problem, False
        if self.runs.pool_if_any is not None:
            self.runs.pool_if_any.reconfigure(self.project.builders, self.project.platforms)

    def stop(self) -> None:
        """Kill running jobs and end the loop; these jobs are pending at the next start."""
        self.is_stopping = True
        self.wake()

    @property
    def is_committing(self) -> bool:
        """Whether a commit is in progress. If so, no file may be checked, and the pipeline must not be queried."""
        return self.executor.is_committing

    @property
    def _has_work(self) -> bool:
        is_due = self.runs.are_any_due or (self.digests.are_answered and not self._is_amid_changes)
        return bool(self.inbox) or is_due or self.scans.can_go_on or self._saved.has_unreported

    def _may_start(self) -> bool:
        """Whether jobs may start now; otherwise, copies that workers staged while they read files are discarded."""
        return not self.pause.is_on and not self._is_amid_changes

    def _is_being_written(self, path: str, is_asked: bool) -> bool:  # `CopyStaging` calls this
        return self.live is not None and self.live.is_being_written(path, is_asked=is_asked)

    @property
    def _is_amid_changes(self) -> bool:
        return self.live is not None and self.live.is_amid_changes and not self.scans.is_scanning

    @property
    def is_idle(self) -> bool:
        """Whether no work is pending and all rows are saved."""
        return self._is_at_rest and self._saved.ticket >= self.ordered_ticket

    @property
    def _is_at_rest(self) -> bool:
        """Whether no work is pending; rows may still be unsaved."""
        is_anything_held = self.runs.are_results_held or bool(self.scans.due_times)
        is_pipeline_idle = self.pipeline.jobs.is_idle and self.digests.is_idle and not self.scans.is_scanning
        return is_pipeline_idle and not is_anything_held and not self._has_work

    def longest_wait_s(self) -> float:
        """Return how long the next turn may sleep, in seconds; infinity if the loop only waits for events."""
        if self.is_committing:
            return 0.0 if self.executor.can_go_on else _PROGRESS_S
        if self._has_work:
            return 0.0
        now = time.monotonic()
        if self.runs.are_results_held:
            return max(0.0, self.runs.hold_s(now))
        deadlines = [*self.scans.due_times, *self.runs.next_deadlines()]
        if not self.is_idle:
            deadlines.append(now + _PROGRESS_S)
        return max(0.0, min(deadlines, default=math.inf) - now)

    def turn(self, wait_s: float) -> None:
        """Sleep until an event arrives, at most `wait_s` seconds; then handle all events that arrived."""
        ready = self.selector.select(None if wait_s == math.inf else wait_s)
        with trace.span("turn"):
            self._turn(ready)

    def _turn(self, ready: list[tuple[selectors.SelectorKey, int]]) -> None:
        for key, mask in ready:
            key.data(mask)
        now = time.monotonic()
        self.runs.poll(now)
        self._saved.check()
        self.catalogs.say_problems()
        self.executor.is_dirty |= self.catalogs.note_written()
        self.news.notify_from_threads()
        is_at_rest = not self.is_committing and self._is_at_rest
        if overdue := self._saved.find_overdue(self.ordered_ticket, now, is_at_rest=is_at_rest):
            self.news.say_once(overdue)
        self.executor.go_on()
        if not self.is_committing:
            self._decide(now)
        elif self.digests.are_waiting and not self._is_amid_changes:
            # send files to workers now, because workers would otherwise have no files to hash until the commit ends
            self.digests.send(self.runs.pool)
        if self.pipeline.jobs.reports.starting:
            for notice in self.pipeline.jobs.reports.list_started(self.runs.at_work()):
                self.news.notify(notice)
        if self.news.progress_is_due(now):
            with trace.span("progress"):
                self._report_progress(now)

    def _report_progress(self, now: float) -> None:
        status, at_work = self.pipeline.status(), self.runs.at_work()
        count_at_work = min(status.running_jobs, len(at_work))
        pending = status.ready_analyses + status.running_analyses + status.ready_jobs + status.running_jobs
        counts = Progress(
            self.inbox.seq,
            self.scans.files_seen,
            status.ready_analyses,
            status.running_analyses,
            status.ready_jobs + status.running_jobs - count_at_work,
            count_at_work,
            status.done,
            status.failed,
            # the progress is not complete before the first files are read, because jobs are still unknown
            self.scans.is_scanning or not (pending or self.digests.is_idle),
            failing_count=self._failed_before + status.failing if self._failed_before is not None else -1,
        )
        counts = self._forecaster.complete_progress(counts, at_work, now)
        self.news.notify_progress(counts, now, is_processing=status.running_jobs > 0)

    def _decide(self, now: float) -> None:
        """Let the pipeline handle events until the time slice ends or a commit begins; then start jobs and continue the scan."""
        if self._saved.has_unreported:
            self.inbox.post(RowsSaved(self.inbox.next_seq(), self._saved.take_unreported()))
        self.scans.recheck(now)
        if not self.inbox:
            self.runs.post_results(now)
            # A worker that hashes a file may also stage a copy of it. No job may use the copy before all changes of the batch are
            # checked, so the worker's answer is held until then.
            if self.digests.are_answered and not self._is_amid_changes:
                self.digests.post_answers()
        until = now + _SLICE_S
        while self.inbox and not self.is_committing:
            self.executor.handle(self.inbox.take())
            if time.monotonic() >= until:
                break
        if self.is_committing:
            return
        self.digests.read_few()
        # A worker that reads a file also stages copies of it, for jobs that only copy. No job may start while changes are only
        # partly checked, so reading waits.
        if self.digests.are_waiting and not self._is_amid_changes:
            self.digests.send(self.runs.pool)
        if self.inbox:
            return
        if len(self.pipeline.jobs.ready) and not self._is_amid_changes and (slots := self.runs.offer_slots(self.pause)):
            self.executor.handle(slots)
        if not self.is_committing and self.scans.is_scanning:
            with trace.span("scan"):
                self.scans.advance()

    # ----------------------------------------------------------------------------------------------------------- idle state

    def settle(self, *, checkpoints: bool = True) -> None:
        """Record the idle state, so that the next start can compare the project with it.

        Args:
            checkpoints: also checkpoint the database's write-ahead log, which may take 0.1 s.
        """
        with trace.span("settle"):
            self._rest.record(checkpoints=checkpoints)

    def wake(self) -> None:
        """End the loop's sleep; any thread may call this."""
        if self._waker is not None:
            self._waker.wake()


def _settings_of_runs(config: Config) -> dict[str, tuple[tuple[str, str, str], ...]]:
    """Return the settings that can make a run fail (`core.pipeline.failures`): {field of the project: its value}."""
    mode = config.sandbox if config.may_use_sandbox else "off"
    pool = repr(config.cluster) if config.cluster.is_used else ""
    paths = config.sandbox_paths if mode != "off" else ()
    memory = str(config.limits.all_memory_bytes)
    return {
        "run_settings": (
            ("sandbox", mode, mode),
            *(("sandbox path", path, path) for path in paths),
            *([("pool", config.cluster.kind, pool)] if pool else []),
        ),
        "memory_settings": (("memory of all", memory, memory),),
    }
