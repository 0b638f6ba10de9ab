"""Dispatch of runs: for each order to run a job, looks up a stored result, or sends the order to a worker.

Results are held for a moment, so that several results share a commit. `RunDispatcher.offer_slots` says how many jobs may start,
also while the queue is paused.

Tests: `tests/engine/loop/test_engine.py`.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from aptui import feature
from aptui.core.messages import CommitProducts, RunsFinished, SlotsFree, StartRuns
from aptui.core.model import FileFact, Job, PathKey
from aptui.core.notices import JobProgress
from aptui.core.orders import AnalyseOrder, AnalyseResult, CopyOrder, HashResult, Outcome, ProcessOrder, RunResult
from aptui.core.paths import os_path
from aptui.core.retry import FailureKind
from aptui.core.run_report import Stamp, UsedFile
from aptui.shared import trace
from aptui.shared.files import lfs
from aptui.worker import file_access

if TYPE_CHECKING:
    from aptui.core.pipeline.pipeline import Pipeline
    from aptui.engine.loop.context import EngineContext
    from aptui.engine.pool.pool import Pool
    from aptui.engine.pool.spawning import EarlyWorker
    from aptui.shared.result_store import Account


# Check after each run: whether the job's files are unchanged since the job was planned.
#
# The engine makes this check because a worker does not observe every file that a builder opens.

Result = AnalyseResult | RunResult
_REPORTED = frozenset({int(Outcome.SUCCEEDED), int(Outcome.FAILED)})
"""Outcomes that the builder itself reported. Only results with these outcomes depend on the files of the job."""


def complete_results(pipeline: Pipeline, results: Sequence[Result]) -> list[Result]:
    """Add to each result the present stamps of its job's files. The stamp of a file that several jobs share is read once."""
    stamps: dict[str, Stamp] = {}
    return [_complete_result(pipeline, result, stamps) for result in results]


def _complete_result(pipeline: Pipeline, result: Result, stamps: dict[str, Stamp]) -> Result:
    job = pipeline.jobs.running.get(result.run_key)
    # a result with an origin comes from a shared or local store, so no run has read the files
    is_fetched = isinstance(result, RunResult) and bool(result.origin)
    if job is None or job.ties is None or not job.ties.known or result.outcome not in _REPORTED or is_fetched:
        return result
    # imported here, because most runs need no check, and the engine starts faster without the module
    from aptui.worker.reads import stamp_of

    for path in job.ties.known:
        if path not in stamps:
            stamps[path] = stamp_of(os_path(path))
    now = tuple(UsedFile(path, stamps[path]) for path in job.ties.known)
    return replace(result, used=replace(result.used, files=(*result.used.files, *now)))


# Finds Git LFS pointers among the inputs of a job. The source of the job is not checked here.
#
# A pointer is a short text in place of a file whose content was not fetched. A job must not read this text as the file's content.

_KINDS = frozenset({"dependency", "companion", "discovered"})
_MOST_KNOWN = 100_000


class Pointers:
    """Recognises Git LFS pointers by their bytes alone, not by `.gitattributes`.

    A `.gitattributes` file may be in any folder, and may not be checked out.

    Args:
        roots: {scan folder id: absolute path}.
    """

    def __init__(self, roots: Mapping[int, str]) -> None:
        self._roots = roots
        self._known: dict[tuple[int, str, int, int], bool] = {}

    def among(self, job: Job, file_of: Callable[[PathKey], object]) -> str:
        """Return a sentence about the first dependency of a job that is a Git LFS pointer, "" if no dependency is a pointer."""
        for kind, name, _digest in job.planned_inputs:
            fact = file_of(PathKey(name)) if kind in _KINDS else None
            if isinstance(fact, FileFact) and fact.size < lfs.LONGEST_POINTER_BYTES and self._is_pointer(fact):
                return f"dependency '{name}' is {lfs.NOT_HERE}"
        return ""

    def _is_pointer(self, fact: FileFact) -> bool:
        slot = (fact.scan_folder, fact.rel, fact.mtime_ns, fact.ctime_ns)
        if slot not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[slot] = file_access.is_pointer(os_path(f"{self._roots[fact.scan_folder]}/{fact.rel}"), fact.size)
        return self._known[slot]


Order = AnalyseOrder | ProcessOrder | CopyOrder
Restore = Callable[[ProcessOrder, Job, Mapping[int, str]], RunResult]
"""Function that makes the result of an order from stored products.

It is called with the order, its job and {scan folder id: absolute path}.
"""


class EndedLookups(Struct):
    """Lookups that ended since the last call of `take_ended`.

    `results` are results to use, `misses` are orders to run (one list for each message to a worker). `beaten` are runs to stop,
    because a stored result was found first.
    """

    results: list[RunResult] = field(default_factory=list)
    misses: list[list[Order]] = field(default_factory=list)
    beaten: list[int] = field(default_factory=list)


class StoredResults(Protocol):
    """Finds stored results of jobs, and stores new results (extension point `results`).

    All methods are called in the thread of the loop.
    """

    has_found: bool
    """Whether the last lookup found a result.

    If so, more jobs are looked up than workers are free, because a job whose result is found needs no worker.
    """

    @property
    def account(self) -> Account:
        """Processing time that stored results saved so far, and bytes that were fetched."""

    @property
    def free_count(self) -> int:
        """How many more jobs may be looked up now."""

    @property
    def is_waiting(self) -> bool:
        """Whether any lookup has ended since the last call of `take_ended`."""

    def next_due_s(self) -> float | None:
        """Return the time (monotonic) at which the next job runs although its lookup has not ended; None = no lookup is waiting."""

    def begin_lookups(self, orders: Sequence[Order], pipeline: Pipeline) -> list[Order]:
        """Begin to look up results for some of these orders; return the other orders, which run now."""

    def take_ended(self, now_s: float) -> EndedLookups:
        """Return the lookups that ended since the last call."""

    def kill(self, run_keys: Iterable[int]) -> list[RunResult]:
        """Cancel the lookups of these runs; return the result "cancelled" for each run that no worker has."""

    def note_ended(self, result: RunResult) -> bool:
        """Note the result of a worker; return False if a stored result was faster."""

    def note_committed(self, commits: CommitProducts, done: Iterable[int], pipeline: Pipeline) -> None:
        """Store the results of the runs `done`, whose products are in the cache now."""

    def note_discarded(self, run_keys: Iterable[int]) -> None:
        """Forget runs whose results are not used."""

    def note(self) -> None:
        """Record the processing time saved by reusing stored results, and the number of bytes fetched, since the last call."""

    def close(self, *, is_stopping: bool) -> None:
        """Wait for uploads within their time limit, then close."""


class QueuePause(Struct):
    """Whether the queue of one engine is paused, and which jobs may start during the pause; running jobs continue.

    The supervisor (`live.supervisor`) remembers that a client asked for a pause, and pauses each engine that it opens. It also
    pauses an engine before it closes that engine.
    """

    is_on: bool = False
    next_ids: deque[int] = field(default_factory=deque)
    """Ids of the jobs that may start during the pause; if one of them is not pending, the next pending job starts instead."""


_GRACE_S = 2.0
_RESULTS_PER_COMMIT = 256
_RESULTS_PER_LIVE_COMMIT = 64
"""Maximum number of results in a commit while clients wait: the pipeline handles them in some milliseconds."""
_HOLD_S = 0.02
_BATCH_HOLD_S = 0.1
"""Time (seconds) that results are held, in place of `_HOLD_S`, if no client waits and other ready jobs keep workers busy."""
NOT_SHARED = "its result is not in the shared cache"


class RunDispatcher:
    """Starts the runs of one engine on workers or answers them with stored results, and collects their results.

    Args:
        context: the shared objects of the engine; the inbox among them receives the results.
    """

    def __init__(self, context: EngineContext, *, runs_builders: bool, early: EarlyWorker | None = None) -> None:
        self._context, self._runs_builders, self._early = context, runs_builders, early
        self._pointers = Pointers(context.roots)
        self._results: list[RunResult] = []
        self._results_since = 0.0
        self._results_per_commit = _RESULTS_PER_COMMIT if context.live is None else _RESULTS_PER_LIVE_COMMIT
        self._analyses: list[AnalyseResult] = []
        self._shared: StoredResults | None = None
        self._restores: dict[int, Restore] = {}
        self.pool_if_any: Pool | None = None
        self.sandbox_problem = ""
        """Why builders run without a sandbox although the project enables it, "" otherwise."""
        self.account: Account | None = None
        """Totals of the time saved by reusing stored results, and of the fetched bytes; complete when the engine is closed."""

    # -------------------------------------------------------------------------------------------- workers and stored results

    @property
    def pool(self) -> Pool:
        """The workers, created on first use."""
        if self.pool_if_any is None:
            from aptui.engine.pool.pool import Pool
            from aptui.engine.pool.worker_processes import settings_for

            context = self._context
            self.pool_if_any = self._pool_class(Pool)(
                context.project.builders,
                context.project.platforms,
                context.config.workers,
                context.selector,
                self._take_from_pool,
                settings=settings_for(context.config, early=self._early, notify=self._note_no_sandbox),
                learned_memory=json.loads(context.archive.state("learned_memory") or "{}"),
                on_progress=self._note_progress,
            )
            context.closing.callback(self.pool_if_any.close, _GRACE_S)
        return self.pool_if_any

    def _note_progress(self, run_key: int, percent: int) -> None:
        job = self._context.pipeline.jobs.running.get(run_key)
        if job is not None and job.id:
            self._context.news.notify(JobProgress(self._context.inbox.seq, job.id, job.run_key, percent))

    def _note_no_sandbox(self, text: str) -> None:
        self.sandbox_problem = text
        self._context.news.say_once(text)

    def _pool_class(self, plain: Callable[..., Pool]) -> Callable[..., Pool]:
        """Return the constructor of the worker pool: a pool with a cluster if the project uses a cluster, otherwise `plain`."""
        pool_for = feature.load_first("pool") if self._context.config.cluster.is_used else None
        return plain if pool_for is None else pool_for(self._context, plain)

    def _open_shared(self) -> StoredResults | None:
        """Return the stored results, opened on first use."""
        context, sharing = self._context, self._context.config.sharing
        if self._shared is None and self.account is None and (sharing.local_store or sharing.is_remote):
            from aptui.shared.result_store import Account

            self.account = Account()
            open_results = feature.load_first("results")
            if open_results is None:
                return None
            try:
                shared: StoredResults = open_results(context, is_patient=not self._runs_builders)
            except Exception as error:  # noqa: BLE001 - runs do not need the stored results
                context.news.say_once(f"the shared cache is not used: {error}")
                return None
            self._shared, self.account = shared, shared.account
            context.closing.callback(self._close_shared)
        return self._shared

    def _close_shared(self) -> None:
        if self._shared is not None:
            self._shared.close(is_stopping=self._context.is_stopping())
            self._context.news.notify_from_threads()

    def note_shared(self) -> None:
        """Record what sharing saved since the last call."""
        if self._shared is not None:
            self._shared.note()

    def list_learned_state(self) -> list[tuple[str, str]]:
        """Return the learned resource use of builders, for the next engine."""
        if self.pool_if_any is None:
            return []
        return [("learned_memory", json.dumps(self.pool_if_any.list_learned_memory(), sort_keys=True))]

    # ---------------------------------------------------------------------------------------------------------- time limits

    @property
    def are_any_due(self) -> bool:
        """Whether any held results are due to be reported."""
        is_waiting = self._shared is not None and self._shared.is_waiting
        return is_waiting or bool(self._analyses) or (bool(self._results) and self.hold_s(time.monotonic()) <= 0)

    @property
    def are_results_held(self) -> bool:
        """Whether any results of runs are held back, for example so that one commit stores several results."""
        return bool(self._results)

    def hold_s(self, now: float) -> float:
        """Return how long (seconds) results are still held so that more of them share a commit.

        0 or less = they are due, for example because all runs have reported or enough results for a commit are held.

        A commit costs several syncs, even if it has only one job. With one commit per job, the syncs would take longer
        than the runs of fast tools.
        """
        pipeline = self._context.pipeline
        if len(self._results) >= min(self._results_per_commit, len(pipeline.jobs.running)):
            return 0.0
        # If jobs use resources, hold results only for `_HOLD_S`: a ready job may wait for a resource that a held result frees.
        may_wait = self._context.live is None and pipeline.jobs.ready and pipeline.jobs.resources is None
        return self._results_since + (_BATCH_HOLD_S if may_wait else _HOLD_S) - now

    def next_deadlines(self) -> list[float]:
        """Return the times (monotonic) at which `poll` has work for workers or lookups."""
        times = (
            self.pool_if_any.next_deadline() if self.pool_if_any is not None else None,
            self._shared.next_due_s() if self._shared is not None else None,
        )
        return [due for due in times if due is not None]

    def poll(self, now: float) -> None:
        """End the runs that exceed their time limit."""
        if self.pool_if_any:
            self.pool_if_any.poll(now)

    # --------------------------------------------------------------------------------------------------------------- orders

    def offer_slots(self, pause: QueuePause) -> SlotsFree | None:
        """Return an event that says how many messages (orders sent together) may be sent now, None if no job may start."""
        free, critical = self.pool.free, self.pool.free_for_critical
        if self._shared is not None and self._shared.has_found and free >= 0:
            free = max(free, self._shared.free_count)  # looking up a stored result needs no worker
        inbox = self._context.inbox
        if not pause.is_on and (free > 0 or (critical > 0 and self._is_first_urgent())):
            return SlotsFree(inbox.next_seq(), max(0, free), critical=critical)
        if pause.next_ids and free > 0:
            return SlotsFree(inbox.next_seq(), 1, 1, pause.next_ids.popleft())
        return None

    def _is_first_urgent(self) -> bool:
        """Whether the next job in the queue is critical or an analysis, so that it may use the slot that is reserved for them."""
        job = self._context.pipeline.jobs.ready.peek()
        return job is not None and (job.is_critical or job.is_analysis)

    def start(self, command: StartRuns) -> None:
        """Look up or run these orders."""
        if trace.active is not None:
            for order in command.orders:
                trace.begin("run", order.run_key, **self._run_details(order.run_key))
        orders = self._answer_restores(command.orders) if self._restores else command.orders
        shared = self._open_shared() if orders and isinstance(orders[0], ProcessOrder) else None
        orders = shared.begin_lookups(orders, self._context.pipeline) if shared is not None else orders
        if orders:
            self._run(orders)

    def restore(self, job_id: int, run_key: int) -> None:
        """Make the next run of this job return the products of an earlier run; the caller has to request the run.

        Raises:
            UserError: these products are not stored, or no feature stores products.
        """
        self._restores[job_id] = feature.load_needed("restore")(self._context.config, job_id, run_key)

    def _answer_restores(self, orders: Sequence[Order]) -> list[Order]:
        """Return the orders, except those of jobs for which a user requested the products of an earlier run.

        This method answers the orders of these jobs with the stored products, so they need no worker.
        """
        others = []
        for order in orders:
            job = self._context.pipeline.jobs.running.get(order.run_key)
            if job is None or job.id not in self._restores or not isinstance(order, ProcessOrder):
                others.append(order)
            else:
                self._queue_results([self._restores.pop(job.id)(order, job, self._context.roots)])
        return others

    def _run_details(self, run_key: int) -> dict[str, object]:
        job = self._context.pipeline.jobs.running.get(run_key)
        if job is None:
            return {}
        return {"source": job.source.rel, "platform": job.platform, "builder": job.builder.hex(), "is_analysis": job.is_analysis}

    def _run(self, orders: Sequence[Order]) -> None:
        """Send orders to workers, except orders of jobs with an obstacle (`_obstacle`): these orders fail."""
        if not isinstance(orders[0], ProcessOrder):
            self.pool.send(orders)
            return
        problems = {order.run_key: text for order in orders if (text := self._obstacle(order.run_key))}
        self._queue_results(
            [RunResult(run_key, Outcome.FAILED, text, errors=1, kind=FailureKind.OBSTACLE) for run_key, text in problems.items()]
        )
        rest = [order for order in orders if order.run_key not in problems]
        if rest:
            self.pool.send(rest)

    def _obstacle(self, run_key: int) -> str:
        """Return why this engine cannot run a job, "" if it can."""
        pipeline = self._context.pipeline
        job = pipeline.jobs.running.get(run_key)
        if not self._runs_builders:
            return NOT_SHARED
        return self._pointers.among(job, pipeline.jobs.memory.file) if job is not None else ""

    def kill(self, run_keys: Sequence[int]) -> None:
        """Stop these runs."""
        if self._shared is not None:
            self._queue_results(self._shared.kill(run_keys))
        if self.pool_if_any:
            self.pool_if_any.kill(run_keys)

    def note_discarded(self, run_keys: Sequence[int]) -> None:
        """Forget runs whose results are not used."""
        if self._shared is not None:
            self._shared.note_discarded(run_keys)

    def at_work(self) -> dict[int, int]:
        """Return {run key: ms since its worker began} of the jobs at work; jobs that wait in a worker's queue are left out."""
        return {} if self.pool_if_any is None else self.pool_if_any.jobs_at_work()

    def running_jobs(self) -> dict[int, int]:
        """Return {job id: ms since a worker began the job} of running jobs, 0 = not begun; analyses have no id."""
        at_work = self.at_work()
        return {job_id: at_work.get(run_key, 0) for job_id, run_key in self._context.pipeline.running_job_ids().items()}

    def list_progress(self) -> dict[int, int]:
        """Return {job id: per cent} of the running jobs whose builders reported progress."""
        progress = {} if self.pool_if_any is None else self.pool_if_any.list_progress()
        jobs = self._context.pipeline.running_job_ids().items() if progress else ()
        return {job_id: progress[run_key] for job_id, run_key in jobs if run_key in progress}

    def note_committed(self, command: CommitProducts, done: Iterable[int]) -> None:
        """Note that the products of these runs are in the cache."""
        if self._shared is not None:
            self._shared.note_committed(command, done, self._context.pipeline)

    # -------------------------------------------------------------------------------------------------------------- results

    def _take_from_pool(self, results: Sequence[AnalyseResult | RunResult | HashResult]) -> None:
        for result in results:
            if isinstance(result, HashResult):
                self._context.digests.accept_result(result)
            elif isinstance(result, AnalyseResult):
                self._analyses.append(result)
            elif self._shared is None or self._shared.note_ended(result):
                self._queue_results((result,))
            else:
                self._context.cache.discard((result.run_key,))

    def _queue_results(self, results: Sequence[RunResult]) -> None:
        if results and not self._results:
            self._results_since = time.monotonic()
        self._results += results

    def post_results(self, now: float) -> None:
        """Post the due results into the inbox."""
        if self._shared is not None:
            self._take_shared(self._shared, now)
        if self._analyses:
            analyses, self._analyses = self._analyses, []
            self._post(analyses)
        if self._results and self.hold_s(now) <= 0:
            most = self._results_per_commit
            results, self._results = self._results[:most], self._results[most:]
            self._post([self._discard_if_being_written(result) for result in results])

    def _post(self, results: Sequence[AnalyseResult | RunResult]) -> None:
        inbox, pipeline = self._context.inbox, self._context.pipeline
        if trace.active is not None:
            for result in results:
                trace.end("run", result.run_key, outcome=Outcome(result.outcome).name)
        inbox.post(RunsFinished(inbox.next_seq(), tuple(complete_results(pipeline, results)), time.time_ns() // 1_000_000))

    def _take_shared(self, shared: StoredResults, now: float) -> None:
        """Use the stored results that were found. Run the orders for which the stores have no result."""
        ended = shared.take_ended(now)
        if ended.beaten:
            self.pool.kill(ended.beaten)
        self._queue_results(ended.results)
        for orders in ended.misses:
            self._run(orders)

    def _discard_if_being_written(self, result: RunResult) -> RunResult:
        """Return the result of a run, or a `STALE` result if the source of the run is being written now.

        A stale result is discarded.
        """
        context = self._context
        job = context.pipeline.jobs.running.get(result.run_key)
        if job is None or context.live is None or result.outcome != Outcome.SUCCEEDED:
            return result
        path = f"{context.roots[job.source.scan_folder]}/{job.source.rel}"
        return RunResult(result.run_key, Outcome.STALE) if context.live.is_being_written(path) else result
