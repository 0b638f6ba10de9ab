"""The engine: one loop, one inbox, one clock. It performs what the pipeline orders and turns what happens into events.

Turning the crank: take events from the inbox, let the pipeline answer, perform the commands, tell the listeners; let the scan go on when
little is owed; offer free slots; sleep on the selector until a worker or the database writer has something to say. Nothing else in the
program owns a thread that decides.
"""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from aptui.config import Config
from aptui.core.errors import HostError, InternalError, KnownError
from aptui.core.messages import (
    AnalyseResult,
    Asked,
    Command,
    CommitProducts,
    DeleteProducts,
    DiscardStaging,
    DropLogs,
    Event,
    FilesHashed,
    FolderSeen,
    FoldersKept,
    HashFiles,
    HashOrder,
    HashResult,
    JobChanged,
    KillRuns,
    LogLevel,
    LogRecord,
    LookAgain,
    Notice,
    ProductsCommitted,
    ProductsLost,
    Progress,
    Rows,
    RowsSaved,
    RunResult,
    RunsFinished,
    Said,
    SaveRows,
    ScanFinished,
    ScanStarted,
    SlotsFree,
    StartRuns,
    WriteLog,
)
from aptui.core.model import Digest, FileFact, Job, PathKey
from aptui.core.paths import from_text, key_of, parent
from aptui.core.pipeline import Pipeline
from aptui.engine.opening import Opening
from aptui.engine.scanner import RACY_NS, Scanner
from aptui.engine.walk import Walk
from aptui.store import joblog, schema
from aptui.store.archive import DatabaseArchive
from aptui.store.writer import Writer

if TYPE_CHECKING:
    from aptui.engine.pool import Pool

_BACKLOG = 4096
"""The scan pauses while more than this is owed: memory stays flat however large the tree."""
_HASHES_PER_ORDER = 128
_PROGRESS_S = 0.1
_LOOK_AGAIN_S = 0.05
_GRACE_S = 2.0
_GC_THRESHOLDS = (50_000, 20, 50)
"""Sources and their jobs point at each other and die by the thousand: looking for them at every 700th object costs a tenth of the time."""
_RESULTS_PER_COMMIT = 256
_HOLD_S = 0.02

Listener = Callable[[Notice], None]


class Engine:
    """One project's engine.

    Args:
        config: the checked configuration.
        listeners: told every notice; they must be quick and may not raise.
        wants_all_news: also tell what is pending and starting, not only what settled.
        is_full_scan: read every file's bytes, whatever the times say.
        opening: the first half, when somebody has done it already.
    """

    def __init__(
        self,
        config: Config,
        listeners: Sequence[Listener] = (),
        *,
        wants_all_news: bool = False,
        is_full_scan: bool = False,
        opening: Opening | None = None,
    ) -> None:
        self.config = config
        self._listeners = list(listeners)
        self._wants_all_news = wants_all_news
        self._is_full_scan = is_full_scan
        self._opening = opening
        self._inbox: deque[Event] = deque()
        self._seq = 0
        self._selector = selectors.DefaultSelector()
        self._wake = -1
        self._saved_ticket = 0
        self._told_ticket = 0
        self._failure: KnownError | None = None
        self._hash_orders: dict[int, tuple[FileFact, ...]] = {}
        self._hash_waiting: deque[tuple[FileFact, ...]] = deque()
        self._results: list[RunResult] = []
        self._results_since = 0.0
        self._analyses: list[AnalyseResult] = []
        self._again: dict[PathKey, float] = {}
        self._scan: Iterator[list[FolderSeen | FoldersKept]] | None = None
        self._scanner: Scanner | None = None
        self._racy_ns = 0
        self._last_progress = 0.0
        self._is_dirty = False
        self._said: set[str] = set()
        self.is_stopping = False
        self._closing = contextlib.ExitStack()
        self._pool: Pool | None = None
        self._log: joblog.EngineLog | None = None

    # ---------------------------------------------------------------------------------------------------------- open, close

    def open(self) -> None:
        """Take the cache, settle what a dead engine left, and get ready to scan."""
        self._closing.callback(self._selector.close)
        if self._opening is None:
            self._opening = Opening(self.config, trusts_times=not self._is_full_scan)
            self._opening.take()
        self.cache = self._opening.cache
        self._closing.callback(self._opening.close)
        try:
            with schema.told(self._opening.database):
                self._open(self._opening)
        except BaseException:
            self.close()
            raise

    def _open(self, opening: Opening) -> None:
        gc.set_threshold(*_GC_THRESHOLDS)
        self._open_log()
        for sentence in opening.sentences:
            self._say_once(sentence)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._wake, selectors.EVENT_READ, self._read_wake)
        self._closing.callback(self._close_wake)
        self.writer = Writer(opening.database, self._rows_saved, self._writer_failed)
        self._closing.callback(self.writer.close)
        ids, dropped = self.writer.sync_scan_folders(
            [(item.name, item.path, item.order) for item in self.config.project.scan_folders]
        )
        folders = tuple(replace(folder, id=ids[folder.name]) for folder in self.config.project.scan_folders)
        self.project = replace(self.config.project, builders=opening.builders, scan_folders=folders, workers=self.config.workers)
        self._roots = {folder.id: folder.path for folder in folders}
        self._dropped_folders = dropped
        self.archive = DatabaseArchive(opening.database, {folder.id: rank for rank, folder in enumerate(folders)})
        self._closing.callback(self.archive.close)
        self.cache.recover(self.writer, self.archive)
        self.pipeline = Pipeline(self.project, self.archive, self._log_name, str(self.cache.staging))
        self.pipeline.wants_news = self._wants_all_news

    def close(self) -> None:
        """Stop the workers, save what is owed to the database, let go of the cache."""
        self._closing.close()

    def _close_wake(self) -> None:
        self._selector.unregister(self._wake)
        os.close(self._wake)
        self._wake = -1

    @property
    def pool(self) -> Pool:
        """The workers; a run that finds nothing to do never pays for them."""
        if self._pool is None:
            from aptui.engine.pool import Pool

            self._pool = Pool(
                self.project.builders, self.project.platforms, self.config.workers, self._selector, self._pool_results
            )
            self._closing.callback(self._pool.close, _GRACE_S)
        return self._pool

    # ---------------------------------------------------------------------------------------------------------------- scans

    def start_scan(self) -> None:
        """Begin to look at all scan folders; `run_until_idle` carries it through."""
        opening = self._opening
        assert opening is not None
        with schema.told(opening.database):
            self._start_scan(opening)

    def _start_scan(self, opening: Opening) -> None:
        is_known = self.archive.state("signature") == opening.signature
        self._post(ScanStarted(self._next_seq(), self._is_full_scan))
        self._racy_ns = time.time_ns() - RACY_NS
        walk = opening.walk or Walk(self.project, opening.never)
        glance, opening.glance, opening.walk = opening.glance, None, None
        self._walk = walk
        self._scanner = Scanner(
            self.project, walk, self.archive, self._next_seq, glance=glance, is_full=self._is_full_scan, reassess=not is_known
        )
        self._scan = self._scanner.steps()
        if not is_known:
            self._is_dirty = True
        lost = self.cache.lost(self.archive, self._say_once)
        if lost:
            self._is_dirty = True
            self._post(ProductsLost(self._next_seq(), tuple(lost)))

    def _advance_scan(self) -> None:
        if self._scan is None or self.pipeline.backlog >= _BACKLOG:
            return
        events = next(self._scan, None)
        while self._walk.sentences:
            self._say_once(self._walk.sentences.pop(0))
        if events is None:
            self._scan = None
            self._post(ScanFinished(self._next_seq()))
        else:
            for event in events:
                self._is_dirty = self._is_dirty or isinstance(event, FolderSeen)
                self._post(event)

    # ----------------------------------------------------------------------------------------------------------------- loop

    def run_until_idle(self) -> None:
        """Turn the crank until nothing is owed any more, or somebody asked to stop.

        Raises:
            HostError: the database or the cache cannot be written any more.
        """
        with schema.told(self.config.cache_dir / "assetdb.sqlite"):
            self._run_until_idle()

    def _run_until_idle(self) -> None:
        while not self.is_stopping:
            self._turn(wait_s=0.0 if self._has_work() else self._patience_s())
            if not self._has_work() and self._is_idle():
                if not self.pipeline.stuck():
                    break
                self._force_stuck()
        self._settle()

    def stop(self) -> None:
        """Kill what runs and end the loop; what was running is owed again at the next start."""
        self.is_stopping = True
        self._kick()

    def _has_work(self) -> bool:
        can_scan = self._scan is not None and self.pipeline.backlog < _BACKLOG
        are_results_due = bool(self._results) and self._hold_s(time.monotonic()) <= 0
        return bool(self._inbox or self._analyses or are_results_due or can_scan or self._told_ticket < self._saved_ticket)

    def _is_idle(self) -> bool:
        is_saved = self._saved_ticket >= self.pipeline.ledger.ticket - 1
        return (
            self._scan is None
            and self.pipeline.is_idle
            and is_saved
            and not (self._again or self._hash_orders or self._hash_waiting or self._results)
        )

    def _hold_s(self, now: float) -> float:
        """Return how long results are held back so that more of them share a commit; 0 when all that runs has reported.

        A commit costs several syncs however many jobs it holds: with tools that take milliseconds, one for each would be all we do.
        """
        if len(self._results) >= min(_RESULTS_PER_COMMIT, len(self.pipeline.running)):
            return 0.0
        return self._results_since + _HOLD_S - now

    def _patience_s(self) -> float:
        now = time.monotonic()
        if self._results:
            return max(0.0, self._hold_s(now))
        pool_deadline = self._pool.next_deadline() if self._pool else None
        deadlines = [item for item in (pool_deadline, *self._again.values()) if item is not None]
        return max(0.0, min([1.0, *(deadline - now for deadline in deadlines)]))

    def _turn(self, wait_s: float) -> None:
        for key, mask in self._selector.select(wait_s):
            key.data(mask)
        now = time.monotonic()
        if self._pool:
            self._pool.poll(now)
        if self._failure is not None:
            raise self._failure
        if self._told_ticket < self._saved_ticket:
            self._told_ticket = self._saved_ticket
            self._post(RowsSaved(self._next_seq(), self._told_ticket))
        if self._again:
            self._look_again(now)
        if self._analyses:
            analyses, self._analyses = self._analyses, []
            self._post(RunsFinished(self._next_seq(), tuple(analyses), time.time_ns() // 1_000_000))
        if self._results and self._hold_s(now) <= 0:
            results, self._results = self._results, []
            self._post(RunsFinished(self._next_seq(), tuple(results), time.time_ns() // 1_000_000))
        while self._inbox:
            self._handle(self._inbox.popleft())
        self._send_hashes()
        if len(self.pipeline.ready):
            free = self.pool.free
            if free > 0:
                self._handle(SlotsFree(self._next_seq(), free))
        self._advance_scan()
        self._tell_progress(now)

    def _handle(self, event: Event) -> None:
        commands, notices = self.pipeline.handle(event)
        for command in commands:
            self._perform(command)
        for notice in notices:
            self.tell(notice)

    def _perform(self, command: Command) -> None:  # noqa: C901  # one case for each command, and nothing else
        match command:
            case StartRuns():
                self._is_dirty = True
                self.pool.send(command.orders)
            case CommitProducts():
                committed, failed = self.cache.commit(command, self.writer)
                now_ms = time.time_ns() // 1_000_000
                self._handle(ProductsCommitted(self._next_seq(), tuple(committed), tuple(failed), now_ms))
            case SaveRows():
                self._is_dirty = True
                self.writer.save(command.ticket, self._packed(command.rows))
            case HashFiles():
                self._queue_hashes(command.files)
            case KillRuns():
                if self._pool:
                    self._pool.kill(command.run_keys)
            case DeleteProducts():
                for problem in self.cache.delete(command.names):
                    self._say(problem)
            case DiscardStaging():
                self.cache.discard(command.run_keys)
            case WriteLog():
                self._write_log(command)
            case DropLogs():
                self._drop_logs(command.files)
            case LookAgain():
                soon = time.monotonic() + _LOOK_AGAIN_S
                self._again.update((key, soon) for key in command.keys)

    def ask(self, verb: str, *, keys: Iterable[PathKey] = (), job_ids: Iterable[int] = ()) -> None:
        """Put a person's wish into the inbox."""
        self._post(Asked(self._next_seq(), verb, tuple(keys), tuple(job_ids)))

    def _force_stuck(self) -> None:
        jobs = self.pipeline.stuck()
        names = ", ".join(f"{job.source.rel}@{job.platform}:{job.key}" for job in jobs[:5])
        raise InternalError(f"{len(jobs)} jobs wait for something that never comes: {names}", hint="please report this")

    def _settle(self) -> None:
        """Nothing is owed: record what the next start compares with."""
        if self.is_stopping:
            self._handle(Asked(self._next_seq(), "stop"))
        if not self._is_dirty:
            return
        rows = self.cache.folder_rows()
        if not self.is_stopping:
            assert self._opening is not None
            rows["put_state"] = [("signature", self._opening.signature), ("host", os.uname().nodename)]
            for scan_folder in self._dropped_folders:
                self.writer.drop_scan_folder(scan_folder)
            self._dropped_folders = []
        self.writer.run(rows, durable=True)
        self.writer.checkpoint()
        self._is_dirty = False

    # ---------------------------------------------------------------------------------------------------------------- files

    def _queue_hashes(self, files: Sequence[FileFact]) -> None:
        for start in range(0, len(files), _HASHES_PER_ORDER):
            self._hash_waiting.append(tuple(files[start : start + _HASHES_PER_ORDER]))

    def _send_hashes(self) -> None:
        while self._hash_waiting and self.pool.free > 0:
            files = self._hash_waiting.popleft()
            order = self._next_seq()
            self._hash_orders[order] = files
            self.pool.send_hash(HashOrder(order, tuple(f"{self._roots[fact.scan_folder]}/{fact.rel}" for fact in files)))

    def _hashed(self, result: HashResult) -> None:
        files = self._hash_orders.pop(result.order, None)
        if files is None:
            return
        errors = dict(result.errors)
        facts: list[FileFact] = []
        unreadable: list[tuple[PathKey, str]] = []
        unstable: list[PathKey] = []
        for index, (fact, found) in enumerate(zip(files, result.files, strict=True)):
            if index in errors:
                unreadable.append((key_of(fact.rel), errors[index]))
            elif found is None:
                unstable.append(key_of(fact.rel))
            else:
                digest, hash64, size, mtime_ns, ctime_ns, inode = found
                facts.append(FileFact(fact.scan_folder, fact.rel, size, mtime_ns, ctime_ns, inode, Digest(digest), hash64))
        self._post(FilesHashed(self._next_seq(), tuple(facts), tuple(unreadable), tuple(unstable)))

    def _look_again(self, now: float) -> None:
        """Files that changed while they were read: look at their folders as the scan does."""
        due = [key for key, when in self._again.items() if when <= now]
        if not due:
            return
        for key in due:
            del self._again[key]
        assert self._scanner is not None
        for folder in sorted({parent(key) for key in due}):
            self._post(self._scanner.look_at(folder, frozenset(due)))

    # ----------------------------------------------------------------------------------------------------- rows, logs, news

    def _packed(self, rows: Rows) -> Rows:
        folders = rows.get("put_folder")
        if folders:
            rows["put_folder"] = [self._distrusted(*row) for row in folders]  # type: ignore[arg-type]  # rows of one operation have one form
        return rows

    def _distrusted(self, scan_folder: int, folder: str, digest: bytes, facts: Sequence[FileFact]) -> tuple[object, ...]:
        """Return a folder's row; a file too fresh to be trusted is remembered so that the next scan reads it again."""
        if any(max(fact.mtime_ns, fact.ctime_ns) >= self._racy_ns for fact in facts):
            facts = [replace(fact, mtime_ns=0) if max(fact.mtime_ns, fact.ctime_ns) >= self._racy_ns else fact for fact in facts]
            digest = b""
        return scan_folder, folder, digest, tuple(facts)

    def _log_name(self, job: Job, _builder: str) -> str:
        names = {folder.id: folder.name for folder in self.project.scan_folders}
        if job.is_analysis:
            return joblog.analysis_log_name(job.source.rel, job.builder)
        return joblog.log_name(names[job.source.scan_folder], job.source.rel, job.platform, job.key, job.builder, job.run_key)

    def _write_log(self, command: WriteLog) -> None:
        try:
            path = self.config.log_dir / os.fsdecode(from_text(command.file))
            joblog.write(path, command.records, command.warnings, command.errors)
        except HostError as error:
            self._say_once(str(error))

    def _drop_logs(self, files: Iterable[str]) -> None:
        for file in files:
            try:
                os.unlink(self.config.log_dir / os.fsdecode(from_text(file)))
            except OSError:
                continue

    def tell(self, notice: Notice) -> None:
        """Tell every listener, and the engine's log what somebody may look for tomorrow."""
        if isinstance(notice, Said):
            self._note(notice.level, notice.text)
        elif isinstance(notice, JobChanged) and notice.status == "failed":
            self._note(LogLevel.ERROR, f"failed {notice.source} ({notice.platform}, {notice.job_key}): {notice.error}")
        for listener in self._listeners:
            listener(notice)

    def _open_log(self) -> None:
        try:
            self._log = joblog.EngineLog(self.config.log_dir, "aptui", time.time_ns() // 1_000_000)
        except HostError as error:
            self._say_once(str(error))
        else:
            self._closing.callback(self._log.close)

    def _note(self, level: int, text: str) -> None:
        if self._log is not None:
            try:
                self._log.append(LogRecord(level, "aptui", text, time.time_ns() // 1_000_000))
            except HostError as error:
                self._log = None
                self._say_once(str(error))

    def _say(self, text: str) -> None:
        self.tell(Said(self._seq, LogLevel.WARNING, text))

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(text)

    def _tell_progress(self, now: float) -> None:
        if now - self._last_progress < _PROGRESS_S or not self._listeners:
            return
        self._last_progress = now
        counts, pipeline = self.pipeline.counts, self.pipeline
        self.tell(
            Progress(
                self._seq,
                self._scanner.files_seen if self._scanner else 0,
                0,
                0,
                len(pipeline.ready),
                len(pipeline.running),
                counts["done"],
                counts["failed"],
                self._scan is not None,
            )
        )

    # ---------------------------------------------------------------------------------------------------------------- inbox

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq

    def _post(self, event: Event) -> None:
        self._inbox.append(event)

    def _pool_results(self, results: Sequence[AnalyseResult | RunResult | HashResult]) -> None:
        for result in results:
            if isinstance(result, HashResult):
                self._hashed(result)
            elif isinstance(result, AnalyseResult):
                self._analyses.append(result)
            else:
                if not self._results:
                    self._results_since = time.monotonic()
                self._results.append(result)

    def _rows_saved(self, ticket: int) -> None:
        """Called from the writer's thread."""
        self._saved_ticket = ticket
        self._kick()

    def _writer_failed(self, error: KnownError) -> None:
        """Called from the writer's thread."""
        self._failure = error
        self._kick()

    def _kick(self) -> None:
        if self._wake >= 0:
            os.eventfd_write(self._wake, 1)

    def _read_wake(self, _mask: int) -> None:
        os.eventfd_read(self._wake)
