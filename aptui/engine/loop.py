"""The engine: one loop, one inbox, one clock. It performs what the pipeline orders and turns what happens into events.

Turning the crank: take events from the inbox, let the pipeline answer, perform the commands, tell the listeners; let the scan go on when
little is owed; offer free slots; sleep on the selector until a worker or the database writer has something to say. Nothing else in the
program owns a thread that decides.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import selectors
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from aptui.config import Config
from aptui.core.errors import HostError, InternalError, KnownError
from aptui.core.messages import (
    AnalyseOrder,
    AnalyseResult,
    Asked,
    Command,
    CommitProducts,
    CopyOrder,
    DeleteProducts,
    DiscardStaging,
    DropLogs,
    Event,
    FolderSeen,
    FoldersKept,
    HashFiles,
    HashResult,
    KillRuns,
    LogLevel,
    LookAgain,
    Outcome,
    ProcessOrder,
    ProductsCommitted,
    ProductsLost,
    Progress,
    Rows,
    RowsSaved,
    RunResult,
    RunsFinished,
    SaveRows,
    ScanFinished,
    ScanStarted,
    SlotsFree,
    StartRuns,
    WriteLog,
)
from aptui.core.model import FileFact, Job, PathKey
from aptui.core.paths import from_text, parent
from aptui.core.pipeline import Pipeline
from aptui.core.reads import with_default
from aptui.engine import preload
from aptui.engine.catalog import Catalogs, platforms_of
from aptui.engine.digests import Digests
from aptui.engine.lfs_files import Pointers
from aptui.engine.metadata import Metadata
from aptui.engine.news import Listener, News
from aptui.engine.opening import Opening
from aptui.engine.scanner import RACY_NS, Scanner
from aptui.engine.walk import Walk
from aptui.store import joblog, schema
from aptui.store.archive import DatabaseArchive
from aptui.store.catalog_mark import CATALOG_STATE
from aptui.store.writer import Writer

if TYPE_CHECKING:
    from aptui.engine.pool import Pool
    from aptui.engine.shared_cache import SharedCache
    from aptui.sharing.account import Account

_BACKLOG = 4096
"""The scan pauses while more than this is owed: memory stays flat however large the tree."""
_LOOK_AGAIN_S = 0.05
_GRACE_S = 2.0
_GC_THRESHOLDS = (50_000, 20, 50)
"""Sources and their jobs point at each other and die by the thousand: looking for them at every 700th object costs a tenth of the time."""
_RESULTS_PER_COMMIT = 256
_RESULTS_PER_LIVE_COMMIT = 64
"""Clients wait while a commit goes on: this many take about 15 ms (architecture, "Processes")."""
_HOLD_S = 0.02
_IDENTITIES, _MADE = "identities", "made"
"""Whether all sources of metadata types have their identity files: an engine that makes none leaves that to the next."""
NOT_SHARED = "its result is not in the shared cache"
_LAST = 1 << 30
"""The order of a scan folder whose row gets the highest number."""


class Live(Protocol):
    """What an engine that stays up asks of the half that watches (`watching`)."""

    unfinished: dict[PathKey, FileFact | None]
    """Files that somebody is writing just now, as they were before."""

    def is_being_written(self, path: str) -> bool:
        """Whether another process holds this source (absolute path in text form) open for writing."""
        ...


class Engine:
    """One project's engine.

    Args:
        config: the checked configuration.
        listeners: told every notice; they must be quick and may not raise.
        wants_all_news: also tell what is pending and starting, not only what settled.
        is_full_scan: read every file's bytes, whatever the times say.
        opening: the first half, when somebody has done it already.
        selector: whoever stays up longer than one engine brings its own.
        live: the other half of an engine that stays up.
        runs_builders: whether a job runs whose result nobody has; without that it fails (`NOT_SHARED`).
    """

    def __init__(
        self,
        config: Config,
        listeners: Sequence[Listener] = (),
        *,
        wants_all_news: bool = False,
        is_full_scan: bool = False,
        opening: Opening | None = None,
        selector: selectors.BaseSelector | None = None,
        live: Live | None = None,
        runs_builders: bool = True,
    ) -> None:
        self.config = config
        self._runs_builders = runs_builders
        self.news = News(listeners)
        self._live = live
        self._wants_all_news = wants_all_news
        self._is_full_scan = is_full_scan
        self._opening = opening
        self._inbox: deque[Event] = deque()
        self._seq = 0
        self._selector = selector or selectors.DefaultSelector()
        self._owns_selector = selector is None
        self._wake = -1
        self._saved_ticket = 0
        self._told_ticket = 0
        self._failure: KnownError | None = None
        self._results: list[RunResult] = []
        self._results_since = 0.0
        self._analyses: list[AnalyseResult] = []
        self._again: dict[PathKey, float] = {}
        self._told: deque[str] = deque()
        """What threads have to say."""
        self._scan: Iterator[list[FolderSeen | FoldersKept]] | None = None
        self._scanner: Scanner | None = None
        self._looked_ns: dict[str, int] = {}
        self._racy_ns = 0
        self._is_dirty = False
        self.epoch = 0
        self._failed_before = 0
        self._results_per_commit = _RESULTS_PER_COMMIT if live is None else _RESULTS_PER_LIVE_COMMIT
        self.is_stopping = False
        self.is_paused = False
        self._run_next: deque[int] = deque()
        self._closing = contextlib.ExitStack()
        self._pool: Pool | None = None
        self._shared: SharedCache | None = None
        self.account: Account | None = None
        """What was saved by results that were there already; complete when the engine is closed."""

    # ---------------------------------------------------------------------------------------------------------- open, close

    def open(self) -> None:
        """Take the cache, settle what a dead engine left, and get ready to scan."""
        if self._owns_selector:
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
        self.news.open_log(self.config.log_dir)
        self._closing.callback(self.news.close)
        for sentence in opening.sentences:
            self.news.say_once(sentence)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._wake, selectors.EVENT_READ, self._read_wake)
        self._closing.callback(self._close_wake)
        self.writer = Writer(opening.database, self._rows_saved, self._writer_failed)
        self._closing.callback(self.writer.close)
        ids, dropped = self.writer.sync_scan_folders(
            [(item.name, item.path, _LAST if item.is_intermediate else item.order) for item in opening.project.scan_folders]
        )
        folders = tuple(replace(folder, id=ids[folder.name]) for folder in opening.project.scan_folders)
        builders = with_default(opening.builders, opening.project.undeclared_reads)
        self.project = replace(opening.project, builders=builders, scan_folders=folders, workers=self.config.workers)
        self._roots = {folder.id: folder.path for folder in folders}
        types = self.project.metadata_types
        delay_s = self.config.meta_delay_ms / 1000
        self.metadata = Metadata(types, self._roots, creates=bool(types) and self._live is not None, delay_s=delay_s)
        self._digests = Digests(self._roots, self._next_seq, self._post, reads_few_here=self._live is not None)
        self._pointers = Pointers(self.config.project_dir, self._roots)
        self._dropped_folders = dropped
        ranks = {folder.id: rank for rank, folder in enumerate(folders)}
        self.archive = DatabaseArchive(opening.database, ranks, self.project.metadata_types)
        self._closing.callback(self.archive.close)
        mark = self.archive.state(CATALOG_STATE)
        self.catalogs = Catalogs(self.writer, opening.database, self.config.name, platforms_of(self.project), mark)
        self._closing.callback(self.catalogs.close)
        self.cache.recover(self.writer, self.archive)
        self.pipeline = Pipeline(self.project, self.archive, self._log_name, str(self.cache.staging))
        self.pipeline.wants_news = self._wants_all_news
        if self._live is not None:
            self._failed_before = self.archive.failed_count()
            self.epoch = int(self.archive.state("epoch") or 0) + 1
            self.writer.run({"put_state": [("epoch", str(self.epoch)), ("seq", "0")]}, durable=False)

    def close(self) -> None:
        """Stop the workers, save what is owed to the database, let go of the cache."""
        self._closing.close()

    def _close_wake(self) -> None:
        self._selector.unregister(self._wake)
        os.close(self._wake)
        self._wake = -1

    @property
    def pool_if_any(self) -> Pool | None:
        """The workers, if any were needed yet."""
        return self._pool

    @property
    def ordered_ticket(self) -> int:
        """The last rows that were ordered saved."""
        return self.pipeline.ledger.ticket - 1

    @property
    def saved_ticket(self) -> int:
        """The last rows that rest in the database."""
        return self._saved_ticket

    @property
    def seq(self) -> int:
        """The number of the last event."""
        return self._seq

    @property
    def pool(self) -> Pool:
        """The workers; a run that finds nothing to do never pays for them."""
        if self._pool is None:
            from aptui.engine.pool import Pool
            from aptui.engine.pool_crew import Settings

            self._pool = self._pool_class(Pool)(
                self.project.builders,
                self.project.platforms,
                self.config.workers,
                self._selector,
                self._pool_results,
                settings=Settings(
                    memory_budget_bytes=self.config.limits.all_memory_bytes,
                    scan_folders=tuple(folder.path for folder in self.project.scan_folders),
                ),
                learned_memory=json.loads(self.archive.state("learned_memory") or "{}"),
            )
            self._closing.callback(self._pool.close, _GRACE_S)
        return self._pool

    def _pool_class(self, plain: Callable[..., Pool]) -> Callable[..., Pool]:
        """Return what makes the pool: `plain`, or one with a cluster beside it."""
        if not self.config.cluster.is_used:
            return plain
        from aptui.engine.cluster_pool import cluster_pool

        return cluster_pool(self.config, self.pipeline, self.project, self._told.append)

    def _open_shared(self) -> SharedCache | None:
        """Return what looks results up elsewhere; a run that has nothing to process never pays for it."""
        if self._shared is None and self.account is None and (self.config.sharing.local_store or self.config.sharing.is_remote):
            from aptui.engine.shared_cache import SharedCache
            from aptui.sharing.account import Account
            from aptui.sharing.service import Service

            try:
                service = Service(self.config.sharing, self._told.append)
            except Exception as error:  # noqa: BLE001 - a run goes on without it
                self.account = Account()
                self.news.say_once(f"results are not shared: {error}")
                return None
            self.account = service.account
            self._shared = SharedCache(
                self.config.sharing, service, self.project.builders, self._roots, self.config.cache_dir, self.wake, self._told.append,
                is_patient=not self._runs_builders,
            )  # fmt: skip
            self._closing.callback(self._close_shared)
        return self._shared

    def _close_shared(self) -> None:
        if self._shared is not None:
            self._shared.close(is_stopping=self.is_stopping)
            while self._told:
                self.news.say_once(self._told.popleft())

    # ---------------------------------------------------------------------------------------------------------------- scans

    def start_scan(self, *, retries: bool = True, is_full: bool | None = None) -> None:
        """Begin to look at all scan folders; turning the crank carries it through.

        Args:
            retries: whether what failed is tried again.
            is_full: read every file's bytes; None = as the engine was told.
        """
        opening = self._opening
        assert opening is not None
        with schema.told(opening.database):
            self._start_scan(opening, retries=retries, is_full=self._is_full_scan if is_full is None else is_full)

    def _start_scan(self, opening: Opening, *, retries: bool, is_full: bool) -> None:
        is_known = self.archive.state("signature") == opening.signature
        self._post(ScanStarted(self._next_seq(), is_full, retries=retries))
        self._racy_ns = time.time_ns() - RACY_NS
        self._looked_ns.clear()
        glance, opening.glance = opening.glance, None
        is_known = is_known and (not self.metadata.creates or self.archive.state(_IDENTITIES) == _MADE)
        self._scanner = self._make_scanner(opening, glance=glance, is_full=is_full, reassess=not is_known)
        self._scan = self._scanner.steps()
        if not is_known:  # until all is at rest again, the next engine looks at everything too
            self.writer.run({"put_state": [("signature", "")]}, durable=True)
            self._is_dirty = True
        self.look_at_products()

    def look_at_products(self) -> None:
        """Look into every cache folder that is not as it was recorded."""
        lost = self.cache.lost(self.archive, self.news.say_once)
        if lost:
            self._is_dirty = True
            self.lose(lost)

    def _make_scanner(self, opening: Opening, **how: Any) -> Scanner:
        self._walk, opening.walk = opening.walk or Walk(self.project, opening.never), None
        return Scanner(
            self.project, self._walk, self.archive, self._next_seq, unfinished=self._unfinished, metadata=self.metadata, **how
        )

    @property
    def _unfinished(self) -> Mapping[PathKey, FileFact | None]:
        return self._live.unfinished if self._live is not None else {}

    @property
    def is_scanning(self) -> bool:
        """Whether a scan is under way."""
        return self._scan is not None

    def scan_below(self, folder: str) -> None:
        """Look at one relative folder (lower case) and everything under it, as no other scan is under way."""
        self._post(ScanStarted(self._next_seq(), below=folder, retries=False))
        self._racy_ns = time.time_ns() - RACY_NS
        self._scan = self._scanner_at_hand().steps(folder)

    def look_at(self, folder: str, again: frozenset[PathKey] = frozenset()) -> None:
        """Look at one relative folder (lower case) now, and at the files `again` in it as if nothing were remembered of them."""
        self._looked_ns[folder] = time.time_ns() - RACY_NS
        event = self._scanner_at_hand().look_at(folder, again)
        self._tell_walk()
        if event is not None:
            self._is_dirty = True
            self._post(event)

    def _scanner_at_hand(self) -> Scanner:
        """Return a scanner without the first scan's ways: it trusts what is remembered."""
        assert self._opening is not None
        self._scanner = self._make_scanner(self._opening)
        return self._scanner

    def lose(self, names: Sequence[str]) -> None:
        """Take note that products are not in the cache any more."""
        self._post(ProductsLost(self._next_seq(), tuple(names)))

    def _tell_walk(self) -> None:
        while self.metadata.said:
            self.news.say_once(self.metadata.said.pop(0))
        while self._walk.sentences:
            self.news.say_once(self._walk.sentences.pop(0))

    def _advance_scan(self) -> None:
        if self._scan is None or self.pipeline.backlog >= _BACKLOG:
            return
        events = next(self._scan, None)
        self._tell_walk()
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
            self.turn(self.patience_s())
            if self.is_idle:
                self.refuse_stuck()
                break
        self.settle()

    def stop(self) -> None:
        """Kill what runs and end the loop; what was running is owed again at the next start."""
        self.is_stopping = True
        self.wake()

    def _has_work(self) -> bool:
        if self._shared is not None and self._shared.is_waiting:
            return True
        can_scan = self._scan is not None and self.pipeline.backlog < _BACKLOG
        are_results_due = bool(self._results) and self._hold_s(time.monotonic()) <= 0
        return bool(self._inbox or self._analyses or are_results_due or can_scan or self._told_ticket < self._saved_ticket)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is owed, in memory or to the database."""
        is_saved = self._saved_ticket >= self.pipeline.ledger.ticket - 1
        return (
            self._scan is None
            and self.pipeline.is_idle
            and is_saved
            and self._digests.is_idle
            and not (self._again or self._results)
            and not self._has_work()
        )

    def _hold_s(self, now: float) -> float:
        """Return how long results are held back so that more of them share a commit; 0 when all that runs has reported.

        A commit costs several syncs however many jobs it holds: with tools that take milliseconds, one for each would be all we do.
        """
        if len(self._results) >= min(self._results_per_commit, len(self.pipeline.running)):
            return 0.0
        return self._results_since + _HOLD_S - now

    def patience_s(self) -> float:
        """Return how long the next turn may sleep, in seconds; infinite when only events matter."""
        if self._has_work():
            return 0.0
        now = time.monotonic()
        if self._results:
            return max(0.0, self._hold_s(now))
        deadlines = [*self._again.values()]
        if self._pool is not None and (due := self._pool.next_deadline()) is not None:
            deadlines.append(due)
        if self._shared is not None and (due := self._shared.next_due_s()) is not None:
            deadlines.append(due)
        if not self.is_idle:
            deadlines.append(now + 0.1)  # progress
        return max(0.0, min(deadlines, default=math.inf) - now)

    def turn(self, wait_s: float) -> None:
        """Sleep until something happens, `wait_s` at most; then deal with all that did."""
        for key, mask in self._selector.select(None if wait_s == math.inf else wait_s):
            key.data(mask)
        now = time.monotonic()
        if self._pool:
            self._pool.poll(now)
        if self._failure is not None:
            raise self._failure
        if problem := self.catalogs.take_problem():
            self.news.say_once(problem)
        while self._told:
            self.news.say_once(self._told.popleft())
        if self._told_ticket < self._saved_ticket:
            self._told_ticket = self._saved_ticket
            self._post(RowsSaved(self._next_seq(), self._told_ticket))
        if self._again:
            self._look_again(now)
        self._take_results(now)
        while self._inbox:
            self._handle(self._inbox.popleft())
        self._digests.read_few()
        if self._digests.are_waiting:
            self._digests.send(self.pool)
        if len(self.pipeline.ready):
            self._offer_slots()
        self._advance_scan()
        if self.news.progress_is_due(now):
            self.news.tell_progress(self._counts(), now)

    def _take_results(self, now: float) -> None:
        if self._shared is not None:
            self._take_shared(self._shared, now)
        if self._analyses:
            analyses, self._analyses = self._analyses, []
            self._post(RunsFinished(self._next_seq(), tuple(analyses), time.time_ns() // 1_000_000))
        if self._results and self._hold_s(now) <= 0:
            most = self._results_per_commit
            results, self._results = self._results[:most], self._results[most:]
            if self._live is not None:
                results = [self._checked(result) for result in results]
            self._post(RunsFinished(self._next_seq(), tuple(results), time.time_ns() // 1_000_000))

    def _take_shared(self, shared: SharedCache, now: float) -> None:
        """Take what was found elsewhere, and run what was not."""
        while self._told:
            self.news.say_once(self._told.popleft())
        turn = shared.turn(now)
        if turn.beaten:
            self.pool.kill(turn.beaten)
        self._take_runs(turn.results)
        for orders in turn.misses:
            self._run(orders)

    def _offer_slots(self) -> None:
        free, critical = self.pool.free, self.pool.free_for_critical
        if self._shared is not None and self._shared.has_found and free >= 0:
            free = max(free, self._shared.room)  # to find a result takes no worker
        if not self.is_paused and (free > 0 or critical > 0):
            self._handle(SlotsFree(self._next_seq(), max(0, free), critical=critical))
        elif self._run_next and free > 0:
            self._handle(SlotsFree(self._next_seq(), 1, 1, self._run_next.popleft()))

    def run_next(self, job_id: int = 0) -> None:
        """While paused: start one job more, the one with this id if it is owed."""
        self._run_next.append(job_id)

    def _checked(self, result: RunResult) -> RunResult:
        """A result of a source that somebody is writing just now is worth nothing: it is thrown away and the source looked at again."""
        job = self.pipeline.running.get(result.run_key)
        if job is None or self._live is None or result.outcome != Outcome.SUCCEEDED:
            return result
        path = f"{self._roots[job.source.scan_folder]}/{job.source.rel}"
        return RunResult(result.run_key, Outcome.STALE) if self._live.is_being_written(path) else result

    def _handle(self, event: Event) -> None:
        commands, notices = self.pipeline.handle(event)
        for command in commands:
            self._perform(command)
        for notice in notices:
            self.news.tell(notice)

    def _mark(self, cause: int) -> Rows:
        """Return rows that tell readers up to which event the database knows everything; without clients nobody asks."""
        return {"put_state": [("seq", str(cause))]} if self._live is not None else {}

    def _perform(self, command: Command) -> None:  # one case for each command, and nothing else
        match command:
            case StartRuns():
                self._is_dirty = True
                self._start_runs(command)
            case CommitProducts():
                self._commit(command)
            case SaveRows():
                self._is_dirty = True
                self.writer.save(command.ticket, self._packed(command.rows, self._mark(command.cause)))
            case HashFiles():
                self._digests.want(command.files)
            case KillRuns():
                self._kill(command.run_keys)
            case DeleteProducts():
                for problem in self.cache.delete(command.names):
                    self.news.say(problem)
            case DiscardStaging():
                self._discard(command.run_keys)
            case WriteLog():
                self._write_log(command)
            case DropLogs():
                self._drop_logs(command.files)
            case LookAgain():
                soon = time.monotonic() + _LOOK_AGAIN_S
                self._again.update((key, soon) for key in command.keys)

    def _commit(self, command: CommitProducts) -> None:
        committed, failed = self.cache.commit(command, self.writer, self._mark(command.cause))
        if self._shared is not None:
            self._shared.committed(command, committed, self.pipeline)
        now_ms = time.time_ns() // 1_000_000
        self._handle(ProductsCommitted(self._next_seq(), tuple(committed), tuple(failed), now_ms))

    def _kill(self, run_keys: Sequence[int]) -> None:
        if self._shared is not None:
            self._take_runs(self._shared.kill(run_keys))
        if self._pool:
            self._pool.kill(run_keys)

    def _discard(self, run_keys: Sequence[int]) -> None:
        self.cache.discard(run_keys)
        if self._shared is not None:
            self._shared.discarded(run_keys)

    def _start_runs(self, command: StartRuns) -> None:
        shared = self._open_shared() if isinstance(command.orders[0], ProcessOrder) else None
        orders = shared.take(command.orders, self.pipeline) if shared is not None else command.orders
        if orders:
            self._run(orders)

    def _run(self, orders: Sequence[AnalyseOrder | ProcessOrder | CopyOrder]) -> None:
        """Have workers do this, as far as it can be done here."""
        if not isinstance(orders[0], ProcessOrder):
            self.pool.send(orders)
            return
        problems = {order.run_key: text for order in orders if (text := self._obstacle(order.run_key))}
        self._take_runs([RunResult(run_key, Outcome.FAILED, text, errors=1) for run_key, text in problems.items()])
        rest = [order for order in orders if order.run_key not in problems]
        if rest:
            self.pool.send(rest)

    def _obstacle(self, run_key: int) -> str:
        """Say why a job cannot run here, "" when it can."""
        job = self.pipeline.running.get(run_key)
        if not self._runs_builders:
            return NOT_SHARED
        return self._pointers.among(job, self.pipeline.memory.file) if job is not None else ""

    def ask(self, verb: str, *, keys: Iterable[PathKey] = (), job_ids: Iterable[int] = (), value: int = 0) -> None:
        """Put a person's wish into the inbox."""
        self._post(Asked(self._next_seq(), verb, tuple(keys), tuple(job_ids), value))

    def refuse_stuck(self) -> None:
        """Raise when jobs wait although nothing moves any more, which is a bug."""
        jobs = self.pipeline.stuck()
        if not jobs:
            return
        names = ", ".join(f"{job.source.rel}@{job.platform}:{job.key}" for job in jobs[:5])
        raise InternalError(f"{len(jobs)} jobs wait for something that never comes: {names}", hint="please report this")

    def settle(self, *, checkpoints: bool = True) -> None:
        """Nothing is owed: record what the next start compares with.

        Args:
            checkpoints: also put the database's log away, which may take the disk a tenth of a second.
        """
        if self.is_stopping:
            self._handle(Asked(self._next_seq(), "stop"))
        else:
            self._publish(waits=checkpoints)
        if not self._is_dirty:
            return
        if self._shared is not None and self._live is not None:
            self._shared.note()
        rows = self.cache.folder_rows()
        if not self.is_stopping:
            assert self._opening is not None
            rows["put_state"] = [("signature", self._opening.signature), ("host", os.uname().nodename)]
            rows["put_state"].append((_IDENTITIES, _MADE if self.metadata.creates else ""))
            for scan_folder in self._dropped_folders:
                self.writer.drop_scan_folder(scan_folder)
            self._dropped_folders = []
        if self._pool is not None:
            rows.setdefault("put_state", []).append(("learned_memory", json.dumps(self._pool.learned_memory(), sort_keys=True)))
        self.writer.run(rows, durable=True)
        if checkpoints:
            self.writer.checkpoint()
        self._is_dirty = False

    def _publish(self, *, waits: bool) -> None:
        """Tell a runtime what there is now, and people which products can never be loaded."""
        assert self._opening is not None
        for sentence in preload.sentences(self._opening.database, self.writer.take_preloaders()):
            self.news.say(sentence, LogLevel.ERROR)
        if waits:
            self.catalogs.save()
        else:
            self.catalogs.begin(self.wake)

    # ---------------------------------------------------------------------------------------------------------------- files

    def _look_again(self, now: float) -> None:
        """Files that changed while they were read: look at their folders as the scan does."""
        due = [key for key, when in self._again.items() if when <= now]
        if not due:
            return
        for key in due:
            del self._again[key]
        for folder in sorted({parent(key) for key in due}):
            self.look_at(folder, frozenset(key for key in due if parent(key) == folder))

    # ----------------------------------------------------------------------------------------------------- rows, logs, news

    def _packed(self, rows: Rows, mark: Rows) -> Rows:
        for operation, listed in mark.items():
            rows.setdefault(operation, []).extend(listed)
        folders = rows.get("put_folder")
        if folders:
            rows["put_folder"] = [self._distrusted(*row) for row in folders]  # type: ignore[arg-type]  # rows of one operation have one form
        return rows

    def _distrusted(self, scan_folder: int, folder: str, digest: bytes, facts: Sequence[FileFact]) -> tuple[object, ...]:
        """Return a folder's row; a file too fresh to be trusted is remembered so that the next scan reads it again."""
        racy_ns = self._looked_ns.get(folder, self._racy_ns)
        if any(max(fact.mtime_ns, fact.ctime_ns) >= racy_ns for fact in facts):
            facts = [replace(fact, mtime_ns=0) if max(fact.mtime_ns, fact.ctime_ns) >= racy_ns else fact for fact in facts]
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
            self.news.say_once(str(error))

    def _drop_logs(self, files: Iterable[str]) -> None:
        for file in files:
            try:
                os.unlink(self.config.log_dir / os.fsdecode(from_text(file)))
            except OSError:
                continue

    def _counts(self) -> Progress:
        counts, pipeline = self.pipeline.counts, self.pipeline
        analysing = sum(1 for job in pipeline.running.values() if job.is_analysis)
        waiting = len(pipeline.ready) - pipeline.ready.analysis_count
        return Progress(
            self._seq,
            self._scanner.files_seen if self._scanner else 0,
            pipeline.ready.analysis_count,
            analysing,
            waiting,
            len(pipeline.running) - analysing,
            counts["done"],
            counts["failed"],
            self._scan is not None,
            failing_count=self._failed_before + pipeline.failing_count if self._live is not None else -1,
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
                self._digests.take(result)
            elif isinstance(result, AnalyseResult):
                self._analyses.append(result)
            elif self._shared is None or self._shared.ended(result):
                self._take_runs((result,))
            else:
                self.cache.discard((result.run_key,))

    def _take_runs(self, results: Sequence[RunResult]) -> None:
        if results and not self._results:
            self._results_since = time.monotonic()
        self._results += results

    def _rows_saved(self, ticket: int) -> None:
        """Called from the writer's thread."""
        self._saved_ticket = ticket
        self.wake()

    def _writer_failed(self, error: KnownError) -> None:
        """Called from the writer's thread."""
        self._failure = error
        self.wake()

    def wake(self) -> None:
        """End the loop's sleep; any thread may call this."""
        if self._wake >= 0:
            os.eventfd_write(self._wake, 1)

    def _read_wake(self, _mask: int) -> None:
        os.eventfd_read(self._wake)
