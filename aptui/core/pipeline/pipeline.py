"""The pipeline: an event in, commands and notices out. It reads no clock, no file, and never waits.

Its parts decide; each takes one kind of event or answers one kind of question:

    Jobs         moves jobs through `machine.feed`, saves them, drops them
    Failures     what becomes of a job that fails
    Identities   the UUID of each source
    Plans        what a job is made of now, and whether it needs a run for that
    Spread       how far a change reaches
    PlainCopies  files that only copies want, many as one
    Files        what scans saw and workers read
    Analyses     what analyses answered
    Starts       what runs next
    Runs         what came of it, and what is committed
    Requests     what is asked for

A part knows those above it and none below. Parts do not call each other in depth: a job that may need another plan is put on
`Jobs.todo` and evaluated when the event itself has been handled, so that a chain of ten thousand jobs needs no stack.

Tests: `tests/core/pipeline/test_undeclared_reads.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import assert_never

from msgspec import Struct

from aptui.core.fingerprint import MISSING
from aptui.core.machine import Trigger
from aptui.core.messages import (
    Command,
    CompareFiles,
    Event,
    FilesHashed,
    FilesSeen,
    FolderSeen,
    FoldersUnchanged,
    OutsideSeen,
    ProductsCommitted,
    ProductsLost,
    RequestReceived,
    RowsSaved,
    RunsFinished,
    ScanFinished,
    ScanStarted,
    SlotsFree,
    StartRuns,
)
from aptui.core.model import SETTLED, Job, PathKey
from aptui.core.notices import JobChanged, Notice
from aptui.core.orders import AnalyseOrder, CopyOrder, PlannedInput, ProcessOrder
from aptui.core.pipeline.analyses import Analyses
from aptui.core.pipeline.failures import Failures
from aptui.core.pipeline.files import Files, Spread
from aptui.core.pipeline.forecast import PendingWork, pending_work
from aptui.core.pipeline.identities import Identities
from aptui.core.pipeline.jobs import Jobs
from aptui.core.pipeline.plain_copies import PlainCopies
from aptui.core.pipeline.plans import Plans
from aptui.core.pipeline.reports import LogName
from aptui.core.pipeline.requests import Requests
from aptui.core.pipeline.run_results import Runs
from aptui.core.pipeline.undeclared_reads import UndeclaredReadCheck
from aptui.core.priority import ReadyQueue, ResourceUse
from aptui.core.project import Project
from aptui.core.quality import quality_of
from aptui.core.rows import Archive, PlainCopy
from aptui.core.settings import SettingsTree
from aptui.core.state.commits import Commit, JobRow
from aptui.core.state.ledger import Ledger
from aptui.core.state.working_set import WorkingSet, list_declared

# Starts of runs: which jobs start, how many in one message, and what their workers receive.

_COPY_BATCH = 256
_SMALL_BATCH = 32


class Starts:
    """Takes free slots.

    Args:
        staging: absolute folder in which every run gets a folder (or file) named by its run key.
    """

    def __init__(self, jobs: Jobs, staging: str) -> None:
        self._jobs = jobs
        self._staging = staging
        self._project = jobs.project
        self._ledger = jobs.ledger
        self._planner = jobs.planner
        self._memory = jobs.memory
        self._settings = jobs.settings
        self._reports = jobs.reports
        self._builders = jobs.builders
        self._ready = jobs.ready
        self._roots = {folder.id: folder.path for folder in jobs.project.scan_folders}

    def start(self, event: SlotsFree) -> None:
        """Fill free slots with what stands first in the queue."""
        if self._jobs.is_outdated:
            return
        named = next((job for job in self._ready if job.id == event.job_id), None) if event.job_id else None
        if named is not None:
            self._ready.put_first(named)
            if self._ready.peek() is not named:  # what it needs is not free: nobody asked for another
                return
        most = max(event.count, event.critical)
        left = event.jobs or _COPY_BATCH * most
        for message in range(most):
            job = self._ready.peek()
            if job is None or left <= 0 or (message >= event.count and not (job.is_critical or job.is_analysis)):
                return
            orders = self._batch(job, left)
            left -= len(orders)
            self._ledger.order(StartRuns(self._ledger.cause, tuple(orders)))

    def _batch(self, first: Job, most: int) -> list[AnalyseOrder | ProcessOrder | CopyOrder]:
        """Take jobs of one kind off the queue: as many small ones as belong into a message."""
        kind, limit = self._kind_of(first), min(most, self._batch_size(first))
        share = max(1, -(-len(self._ready) // (2 * self._project.workers)))
        orders: list[AnalyseOrder | ProcessOrder | CopyOrder] = []
        while len(orders) < min(limit, share):
            job = self._ready.peek()
            if job is None or self._kind_of(job) != kind or job.is_critical != first.is_critical:
                break
            self._ready.pop()
            self._jobs.feed(job, Trigger.START)
            self._jobs.stale_results.begin(job)
            orders.append(self._order_for(job))
            self._reports.report(job)
        return orders

    def _kind_of(self, job: Job) -> object:
        builder = self._builders[job.builder]
        if job.is_analysis:
            return "analyse"
        return "copy" if builder.is_plain_copy else job.builder

    def _batch_size(self, job: Job) -> int:
        builder = self._builders[job.builder]
        if builder.is_plain_copy:
            return _COPY_BATCH
        if builder.resources:  # those behind it in a message would hold what they do not use yet
            return 1
        mean = self._reports.mean_ms(job)
        return 1 if mean is None else max(1, min(_SMALL_BATCH, int(40 / (mean + 0.5))))

    def _order_for(self, job: Job) -> AnalyseOrder | ProcessOrder | CopyOrder:
        builder, source = self._builders[job.builder], job.source
        root, settings = self._roots[source.scan_folder], self._settings.adjustment(source.key, builder).order
        if job.is_analysis:
            platforms = self._planner.platforms_of(builder, source)
            return AnalyseOrder(
                job.run_key, builder.name, root, source.rel, source.uuid, platforms, builder.analyse_limit_s, settings,
                *self._list_inputs(job),
            )  # fmt: skip
        staging = f"{self._staging}/{job.run_key}"
        if builder.is_plain_copy:
            present = job.products[0].digest if len(job.products) == 1 and job.fingerprint and not job.is_forced else b""
            return CopyOrder(job.run_key, f"{root}/{source.rel}", staging, present, builder.takes_pointers)
        fact, plan = source.fact, job.plan
        declared, inputs = self._list_inputs(job)
        assert fact is not None
        assert plan is not None
        return ProcessOrder(
            job.run_key, builder.name, root, source.rel, source.uuid, job.platform, job.key, plan.params,
            plan.additional_fingerprint,
            plan.priority, plan.is_critical, (fact.size, fact.mtime_ns, fact.ctime_ns, fact.inode), fact.digest, staging,
            builder.process_limit_s, builder.memory_limit_bytes, self._project.debug_output, settings=settings,
            quality=quality_of(job.planned_inputs).value, declared=declared, inputs=inputs,
        )  # fmt: skip

    def _list_inputs(self, job: Job) -> tuple[tuple[str, ...], tuple[PlannedInput, ...]]:
        """Return the paths and patterns that the builder declared for a source, and the planned files that exist."""
        declared = list_declared(job)
        if not declared:
            return (), ()
        inputs = []
        for kind, name, digest in job.planned_inputs:
            fact = self._memory.last_seen(PathKey(name)) if kind == "dependency" and digest != MISSING else None
            if fact is not None:
                inputs.append(PlannedInput(self._roots[fact.scan_folder], str(fact.rel), digest))
        return declared, tuple(inputs)


class PipelineStatus(Struct, frozen=True):
    """How far everything is, at this moment.

    `run`, `failed`, `done`, `analysed`: what ended since the engine opened; `ready_*`, `running_*`: what may start, and what runs;
    `reading`: files whose bytes are being read; `is_scanned`: whether the core knows the end of the last scan;
    `failing`: jobs and analyses that are failed now, beyond those that were when the engine opened.
    """

    run: int
    failed: int
    done: int
    analysed: int
    ready_analyses: int
    ready_jobs: int
    running_analyses: int
    running_jobs: int
    reading: int
    is_scanned: bool
    failing: int

    @property
    def is_analysing(self) -> bool:
        """Whether anything is still to be analysed, so that it is not known yet which jobs there are."""
        return bool(self.ready_analyses or self.running_analyses)


class PendingCounts(Struct, frozen=True):
    """What is pending: {platform: jobs}, {platform: critical jobs}, and how many analyses."""

    pending: Mapping[str, int]
    critical: Mapping[str, int]
    analyses: int


class Pipeline:
    """Everything that is decided. See the module's head.

    Args:
        project: the configuration as the core knows it.
        archive: what is stored.
        log_name: where a job's log lies.
        staging: absolute folder in which every run gets a folder (or file) named by its run key.
    """

    def __init__(self, project: Project, archive: Archive, log_name: LogName, staging: str) -> None:
        self.project = project
        self.jobs = Jobs(project, archive, log_name)
        self.reads = UndeclaredReadCheck(project, self.jobs.graph, self.jobs.memory)
        failures = Failures(self.jobs)
        identities = Identities(self.jobs)
        self.plans = Plans(self.jobs, failures, identities)
        self.spread = Spread(self.jobs, self.plans, identities)
        self.plain_copies = PlainCopies(self.jobs, self.plans, staging)
        self.files = Files(self.jobs, identities, self.plans, self.spread, self.plain_copies)
        analyses = Analyses(self.jobs, failures, self.plans, self.spread, self.reads)
        self.starts = Starts(self.jobs, staging)
        self.runs = Runs(self.jobs, failures, self.plans, self.spread, analyses, self.reads, self.plain_copies, staging)
        self.requests = Requests(self.jobs, self.plans)

    # -------------------------------------------------------------------------------------------------------------- events

    def handle(self, event: Event) -> tuple[list[Command], list[Notice]]:
        """Take one fact; answer with what has to be done, in order, and the news."""
        self.ledger.cause = event.seq
        self.jobs.graph.forget_loose_ends()
        self.memory.forget_answers()
        self._dispatch(event)
        self.spread.evaluate_identities()
        self.plans.evaluate_todo()
        self.plans.end_chains()
        if isinstance(event, FilesHashed):
            self.runs.take_copies(event)
        self.plans.make_finals()
        self.jobs.save_idle_plans()
        self.files.close_complete_folders()
        self.jobs.put_edges()
        self._let_go()
        if self.ledger.commands or not (isinstance(event, FilesHashed) and event.has_more):
            self.ledger.flush_rows()  # else they are saved with those of the next answer, and with nothing that relies on them
        self.memory.forget_answers()
        return self.ledger.take()

    def _dispatch(self, event: Event) -> None:  # noqa: C901, PLR0912  # one case for each event, and nothing else
        match event:
            case SlotsFree():
                self.starts.start(event)
            case RunsFinished():
                self.runs.runs_finished(event)
            case ProductsCommitted():
                self.runs.products_committed(event)
            case RowsSaved():
                self.memory.acknowledge(event.ticket)
            case FilesHashed():
                self.files.files_hashed(event, may_group=not self.runs.are_copies_held)
            case OutsideSeen():
                self.spread.outside_seen(event.files)
            case FolderSeen():
                self.files.folder_seen(event)
            case FilesSeen():
                self.files.files_seen(event)
            case FoldersUnchanged():
                self.files.folders_unchanged(event.folders)
            case ScanStarted():
                self.files.scan_started(event)
            case ScanFinished():
                self.files.scan_finished()
            case ProductsLost():
                self.plans.products_lost(event.names)
            case RequestReceived():
                self.requests.carry_out(event)
            case _:
                assert_never(event)

    def _let_go(self) -> None:
        """Let sources leave memory once their rows of this event are saved, and drop what counts only while jobs are in flight."""
        ticket = self.ledger.ticket if self.ledger.rows else self.ledger.ticket - 1
        for source in self.ledger.touched:
            self.memory.leaves_after(source, ticket)
        self.ledger.touched.clear()
        if not self.jobs.committing:
            self.memory.let_go_of_loaded()
        if self.is_idle:
            if not self.memory.unstable:  # what is looked at again may go on with a round
                self.plans.forget_rounds()
            self.jobs.chains.came.clear()
            self._compare_heads()

    def _compare_heads(self) -> None:
        """Have the first sources of chains compared: later stages may write them, which a batch is not notified of."""
        ran = self.plans.feedback.take_ran()
        heads = self.jobs.chains.heads(ran) if ran else []
        if heads:
            self.ledger.order(CompareFiles(self.ledger.cause, tuple(heads)))

    # ------------------------------------------------------------------------------------------------------------- answers

    def status(self) -> PipelineStatus:
        """Return how far everything is."""
        counts, ready, running = self.counts, self.ready, self.running
        analysing = sum(1 for job in running.values() if job.is_analysis)
        return PipelineStatus(
            counts["run"],
            counts["failed"],
            counts["done"],
            counts["analysed"],
            ready.analysis_count,
            len(ready) - ready.analysis_count,
            analysing,
            len(running) - analysing,
            len(self.memory.hashing),
            self.memory.scan_is_done,
            self.failing_count,
        )

    def count_pending(self) -> PendingCounts:
        """Count what is pending, one look at every job that moves."""
        pending: Counter[str] = Counter()
        critical: Counter[str] = Counter()
        analyses = 0
        for source in self.memory.sources.values():
            for job in source.jobs.values():
                if job.state in SETTLED or job.state is None:
                    continue
                if job.is_analysis:
                    analyses += 1
                    continue
                pending[job.platform] += 1
                critical[job.platform] += job.is_critical
        copies = (item for item in self.jobs.committing.values() if isinstance(item, PlainCopy))
        pending.update(copy.rule.plan.platform for copy in copies)
        return PendingCounts(pending, critical, analyses)

    def pending_work(self, elapsed_ms: Mapping[int, float]) -> PendingWork:
        """Add up the work that is pending; `elapsed_ms`: {run key: how long it runs already}."""
        return pending_work(self.jobs, elapsed_ms)

    def spent(self) -> tuple[int, int]:
        """Return how many runs of jobs were measured since the engine opened, and what was expected of them (ms)."""
        return self.jobs.reports.run_count, self.jobs.reports.spent_ms

    def running_job_ids(self) -> dict[int, int]:
        """Return {id: run key} of the jobs that run; analyses have no id."""
        return {job.id: job.run_key for job in self.running.values() if not job.is_analysis}

    def next_job(self, job_id: int = 0) -> Job | None:
        """Return the job that would start next, or this one; None when it is not ready."""
        return next((job for job in self.ready if job.id == job_id), None) if job_id else self.ready.peek()

    @property
    def memory(self) -> WorkingSet:
        """What moves."""
        return self.jobs.memory

    @property
    def ledger(self) -> Ledger:
        """What the present event leads to."""
        return self.jobs.ledger

    @property
    def settings(self) -> SettingsTree:
        """The settings of folders."""
        return self.jobs.settings

    @property
    def ready(self) -> ReadyQueue:
        """The jobs that may start, best first."""
        return self.jobs.ready

    @property
    def running(self) -> dict[int, Job]:
        """{run key: job} of what runs."""
        return self.jobs.running

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of jobs `run`, of them `failed` and `done`, and of sources `analysed`, since the engine opened."""
        return self.jobs.reports.counts

    @property
    def failing_count(self) -> int:
        """How many jobs and analyses are failed now, beyond those that were when the engine opened."""
        return self.jobs.failing_count

    @property
    def wants_news(self) -> bool:
        """Whether a listener wants every step of every job, not its end alone."""
        return self.jobs.reports.wants_news

    @wants_news.setter
    def wants_news(self, wants_news: bool) -> None:
        self.jobs.reports.wants_news = wants_news

    def follow(self, *, is_followed: bool) -> None:
        """Keep what became of unsettled jobs for `latest`, or do so no more: no news are made of their steps meanwhile."""
        self.jobs.reports.follow(is_followed=is_followed)

    @property
    def moved_count(self) -> int:
        """Of how many jobs `latest` has something to tell, or may have soon."""
        return len(self.jobs.reports.moved)

    def latest(self, at_work: Collection[int]) -> list[JobChanged]:
        """Return news of the unsettled jobs that moved, as they are now; `at_work`: run keys of the runs that workers are at."""
        return self.jobs.reports.latest(at_work)

    def list_reported_pending_ids(self) -> set[int]:
        """Return the ids of the jobs that `latest` told as pending, and has told nothing else of since."""
        return self.jobs.reports.list_reported_pending_ids()

    @property
    def is_outdated(self) -> bool:
        """Whether builders have to be described anew before anything more may start."""
        return self.jobs.is_outdated

    @is_outdated.setter
    def is_outdated(self, is_outdated: bool) -> None:
        self.jobs.is_outdated = is_outdated

    @property
    def code_problem(self) -> str:
        """Why describing builders anew is of no use, "" = it was not tried in vain: then runs of other code fail."""
        return self.jobs.code_problem

    @code_problem.setter
    def code_problem(self, problem: str) -> None:
        self.jobs.code_problem = problem

    @property
    def is_idle(self) -> bool:
        """Whether nothing is pending: no run, no file being read, no job that could still move."""
        return self.jobs.is_idle

    @property
    def has_unsaved_jobs(self) -> bool:
        """Whether there are jobs whose rows are still to come: "save" brings them, or their commits do."""
        return self.jobs.memory.unsaved.has_any

    @property
    def backlog(self) -> int:
        """How much is already pending; the scan pauses while it is large."""
        return self.jobs.backlog

    def resource_uses(self) -> tuple[ResourceUse, ...]:
        """Return how each resource of the project is used, and by which jobs."""
        return self.jobs.resource_uses()

    def stuck(self) -> list[Job]:
        """Return jobs that wait although nothing moves any more; always [] unless there is a bug."""
        return self.jobs.stuck()

    def mean_ms(self, job: Job) -> float:
        """Return how long runs of the job's kind take, 0 when none has been seen."""
        return self.jobs.reports.mean_ms(job) or 0.0

    def committing(self, run_key: int) -> Commit | None:
        """Return what becomes of the job of this run, while its products move in; None for a plain copy."""
        found = self.jobs.committing.get(run_key)
        return found if isinstance(found, Commit) else None

    def commit_rows(self, run_key: int) -> list[JobRow]:
        """Return the rows that are saved with the products of a run; asked once, between `CommitProducts` and the next event."""
        found = self.jobs.committing[run_key]
        return self.plain_copies.rows_of(found) if isinstance(found, PlainCopy) else self.jobs.commits.rows_of(found)
