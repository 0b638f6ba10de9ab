"""The pipeline: it receives an event and returns commands and notices. It reads no clock and no file, and never waits.

Its classes decide; each class handles one kind of event or answers one kind of question:

* `Jobs`: moves jobs through `machine.feed`, saves them, drops them.
* `Failures`: records failed jobs.
* `Identities`: the UUID of each source.
* `Plans`: the present inputs of a job, and whether it needs a run.
* `Spread`: the dependents that a change affects.
* `PlainCopies`: files that are only copied, decided in batches.
* `Files`: results of scans and of reading files.
* `Analyses`: answers of analyses.
* `Starts`: which jobs run next.
* `Runs`: results of runs, and commits.
* `Requests`: requests of clients.

A class uses only classes above it in this list. A job that may need another plan is put on `Jobs.todo` and evaluated after the
event itself. So the depth of calls does not grow with the length of a chain of jobs, which may be ten thousand.

Tests: `tests/core/state/test_undeclared_reads.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import assert_never

from msgspec import Struct

from aptui.core.fingerprint import MISSING
from aptui.core.machine import Trigger
from aptui.core.messages import (
    Command,
    CompareFiles,
    DiscardStaging,
    Event,
    FilesHashed,
    FilesSeen,
    FolderSeen,
    FoldersUnchanged,
    KillRuns,
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
from aptui.core.model import SETTLED, Job, JobState, PathKey, Source, SourceUuid
from aptui.core.notices import Notice
from aptui.core.orders import AnalyseOrder, CopyOrder, PlannedInput, ProcessOrder
from aptui.core.pipeline.failures import Failures
from aptui.core.pipeline.files import Files, Spread
from aptui.core.pipeline.identities import Identities
from aptui.core.pipeline.jobs import UNKNOWN, Jobs, PipelinePart, Waiters
from aptui.core.pipeline.plain_copies import PlainCopies
from aptui.core.pipeline.plans import Plans
from aptui.core.pipeline.reports import LogName
from aptui.core.pipeline.run_results import Analyses, Runs
from aptui.core.project import Project
from aptui.core.quality import quality_of
from aptui.core.rows import Archive, PlainCopy
from aptui.core.state.commits import Commit, JobRow
from aptui.core.state.stale_results import UndeclaredReadCheck
from aptui.core.state.working_set import list_declared, targets_of

# `Requests` handles requests of users and clients to run, escalate or cancel jobs.

_MOST_FOLLOWED = 2_000
"""Maximum number of sources for which one request also boosts their dependencies."""
_UUID_DIGITS = 32


class Requests(PipelinePart):
    """Handles requests of clients."""

    def __init__(self, jobs: Jobs, plans: Plans) -> None:
        super().__init__(jobs)
        self._plans = plans

    def carry_out(self, event: RequestReceived) -> None:
        """Handle a request."""
        if event.verb == "reprocess":
            self._reprocess(event)
        elif event.verb == "cancel":
            self.cancel(event.job_ids)
        elif event.verb == "escalate":
            self._escalate(event)
        elif event.verb == "analyse":
            for job in [job for job in self._ready if job.is_analysis]:
                self._escalate_job(job, event.value)
        elif event.verb == "interest":
            self._note_interest(event.keys, event.value)
        elif event.verb == "expire":
            for key in self._ready.interest.expire(event.value):
                self._rank_again(key)
        elif event.verb == "save":
            self._jobs.save_unsaved(but_committing=True)
        elif event.verb == "stop":
            self._stop()

    def _reprocess(self, event: RequestReceived) -> None:
        for source in self._memory.load(self._chains.members(event.keys)):
            for job in source.jobs.values():
                self._plans.force(job, "requested by a user")
        wanted = set(event.job_ids)
        for source in self._memory.load(sorted(set(self._memory.archive.key_of_jobs(sorted(wanted)).values()))):
            for job in source.jobs.values():
                if job.id in wanted and not job.is_analysis:
                    self._plans.force(job, "requested by a user")

    def _escalate(self, event: RequestReceived) -> None:
        """Raise the urgency of jobs that need a run, and of the dependencies of their sources. The urgency is never lowered."""
        wanted, keys = set(event.job_ids), set(event.keys)
        named = []
        for source in self._memory.sources.values():
            jobs = [job for job in source.jobs.values() if source.key in keys or job.id in wanted]
            for job in jobs:
                self._escalate_job(job, event.value)
            if jobs:
                named.append(source)
        for source in self._dependencies_of(named):
            for job in source.jobs.values():
                self._escalate_job(job, event.value)

    def _escalate_job(self, job: Job, urgency: int) -> None:
        if job.state not in SETTLED and job.escalation < urgency:
            job.escalation = urgency
            self._ledger.touched[job.source] = None
            if job.state is JobState.QUEUED:
                self._ready.push(job)

    def _note_interest(self, keys: Iterable[PathKey], number: int) -> None:
        """Boost the jobs of these sources, and of their dependencies that are in flight, up to a maximum."""
        todo = [key for key in keys if self._ready.interest.note(key, number)]
        followed = 0
        while todo:
            key = todo.pop()
            self._rank_again(key)
            source = self._memory.sources.get(key)
            if source is None or followed >= _MOST_FOLLOWED:
                continue
            followed += 1
            todo += [needed.key for needed in self._find_needed(source) if self._ready.interest.note(needed.key, number)]

    def _find_needed(self, source: Source) -> Iterable[Source]:
        """Yield those dependencies of a source that are in memory. Other dependencies have no pending jobs to boost."""
        moving = self._memory.sources
        for target in targets_of(source):
            needed = moving.get(PathKey(target)) or moving.get(self._key_of(target))
            if needed is not None:
                yield needed

    def _key_of(self, target: str) -> PathKey:
        """Return the key of a source; `target` is its UUID in 32 hex digits, or already the key."""
        if len(target) != _UUID_DIGITS or "/" in target or "." in target:
            return PathKey(target)
        try:
            return self._memory.key_of(SourceUuid(bytes.fromhex(target))) or PathKey(target)
        except ValueError:
            return PathKey(target)

    def _rank_again(self, key: PathKey) -> None:
        """Compute the ranks of the queued jobs of a source again, and move the jobs in the queue accordingly."""
        source = self._memory.sources.get(key)
        for job in source.jobs.values() if source is not None else ():
            if job.state is JobState.QUEUED:
                self._ready.push(job)

    def _dependencies_of(self, sources: Iterable[Source]) -> list[Source]:
        """Return all dependencies of these sources, direct and indirect, that are in flight."""
        todo = list(sources)
        known = dict.fromkeys(todo)
        found = []
        while todo:
            for needed in self._find_needed(todo.pop()):
                if needed not in known:
                    known[needed] = None
                    found.append(needed)
                    todo.append(needed)
        return found

    def cancel(self, job_ids: Iterable[int]) -> None:
        """Cancel these jobs in any state; they stay cancelled until their sources change."""
        wanted = set(job_ids)
        for source in list(self._memory.sources.values()):
            for job in source.jobs.values():
                if job.id in wanted and job.state not in SETTLED and job.state is not None:
                    self._jobs.feed(job, Trigger.CANCEL)
                    job.is_forced = False
                    job.planned = job.planned or UNKNOWN
                    self._jobs.save(job)
                    self._reports.report(job, is_settled=True)
                    self._jobs.note_settled(job, is_changed=True)

    def _stop(self) -> None:
        """Kill every run; at the next start these jobs are pending again."""
        self._jobs.save_unsaved()
        if self._running:
            self._ledger.order(KillRuns(self._ledger.cause, tuple(self._running)))
            self._ledger.order(DiscardStaging(self._ledger.cause, tuple(self._running)))
            self._running.clear()


# The pending work is estimated in milliseconds: from the last run of each job, or from runs of its builder if the job never ran.
#
# `PendingWork` has the total and the longest chain of jobs. `engine.loop.engine_reports`, which has a clock, estimates the
# remaining time from these numbers.

OVERHEAD_MS = 1.0
"""Estimated duration (ms) of a job in addition to its builder's work. A copy or a restored result takes only this time."""
MOST_JOBS = 4_000
"""Maximum number of ready jobs, and of waiting jobs, whose duration is estimated one by one.

These estimates take about 5 ms in total. The other ready and waiting jobs count with the average of the examined ones.
All running jobs are examined. If more jobs than this are waiting, the longest chain of jobs is not estimated.
"""
_UNDER_WAY = -1.0


class PendingWork(Struct, frozen=True):
    """The pending work.

    `work_ms`: total of all jobs; `chain_ms`: the longest chain of jobs that wait for each other, or for one resource;
    `unknown_count`: the number of jobs of builders that never ran; `work_ms` has only the overhead of these jobs. `job_count`: the
    number of all jobs. New sources that wait for their bytes or their analysis count with one job per platform.
    """

    work_ms: float
    chain_ms: float
    unknown_count: float
    job_count: float = 0.0


def pending_work(jobs: Jobs, elapsed_ms: Mapping[int, float], most: int = MOST_JOBS) -> PendingWork:
    """Return the pending work.

    Args:
        elapsed_ms: {run key: ms since it started}.
        most: maximum number of ready jobs, and of waiting jobs, that are examined.
    """
    usual = {builder: jobs.reports.usual_ms(builder) for builder in jobs.builders}

    def estimate_ms(job: Job) -> float:
        known = job.duration_ms if _is_measured(job) else usual.get(job.builder)
        return OVERHEAD_MS + (known or 0.0)

    waiting_count = sum(len(jobs.waiters.of(key)) for key in jobs.waiters.list_awaited())
    after = _after(jobs.waiters, estimate_ms) if waiting_count <= most else {}
    work = chain = job_count = unknown = 0.0
    held: Counter[str] = Counter()
    for group, scale in _groups(jobs, most, waiting_count):
        job_count += scale * len(group)
        for job in group:
            need = estimate_ms(job)
            if job.state is JobState.RUNNING:
                need = max(OVERHEAD_MS, need - elapsed_ms.get(job.run_key, 0.0))
            work += need * scale
            if jobs.resources is not None:
                for name in jobs.resources.needs(job):
                    held[name] += round(need * scale)
            chain = max(chain, need + after.get(job.source.key, 0.0))
            if not _is_measured(job) and usual.get(job.builder) is None:
                unknown += scale
    for builder, expected in _count_unplanned(jobs, most).items():
        work += expected * (OVERHEAD_MS + (usual.get(builder) or 0.0))
        job_count += expected
        unknown += expected * (usual.get(builder) is None)
    if jobs.resources is not None:
        chain = max(chain, *(held[name] / limit for name, limit in jobs.resources.limits.items()))
    return PendingWork(work, chain, unknown, job_count)


def _count_unplanned(jobs: Jobs, most: int) -> dict[bytes, float]:
    """Return {builder: expected number of jobs} for new sources that are not read or analysed yet."""
    planner, expected = jobs.planner, dict.fromkeys(jobs.builders, 0.0)
    ready = [job for job in islice(jobs.ready, most) if job.is_analysis]
    running = [job for job in jobs.running.values() if job.is_analysis]
    for group, scale in ((ready, jobs.ready.analysis_count / len(ready) if ready else 1.0), (running, 1.0)):
        for analysis in group:
            siblings = (job for job in analysis.source.jobs.values() if job.builder == analysis.builder and not job.is_analysis)
            if next(siblings, None) is None:
                platforms = planner.platforms_of(jobs.builders[analysis.builder], analysis.source)
                expected[analysis.builder] += scale * len(platforms)
    unread = [key for key in islice(jobs.memory.hashing, most) if key not in jobs.memory.sources]
    scale = len(jobs.memory.hashing) / most if len(jobs.memory.hashing) > most else 1.0
    for fact in map(jobs.memory.hashing.__getitem__, unread):
        for builder in planner.builders_for(fact.rel, fact.scan_folder):
            expected[builder.uuid] += scale * len(planner.platforms_of(builder, fact))
    return {builder: count for builder, count in expected.items() if count}


def _is_measured(job: Job) -> bool:
    return not (job.origin or job.is_fetched) and (job.duration_ms > 0 or job.completed_ms > 0)


def _groups(jobs: Jobs, most: int, waiting_count: int) -> list[tuple[list[Job], float]]:
    """Return the groups of running, ready and waiting jobs, each as (jobs to examine, factor).

    At most `most` ready and `most` waiting jobs are examined. To estimate the total duration of a group, multiply the total
    of its examined jobs by the factor.
    """
    running = [job for job in jobs.running.values() if not job.is_analysis]
    ready = [job for job in islice(jobs.ready, most) if not job.is_analysis]
    ready_count = len(jobs.ready) - jobs.ready.analysis_count
    waiting = dict.fromkeys(islice(jobs.waiters, most))
    blocked = [job for job in waiting if job.state is JobState.WAITING and not job.is_analysis]
    return [(running, 1.0), (ready, ready_count / len(ready) if ready else 1.0), (blocked, max(1.0, waiting_count / most))]


def _after(waiters: Waiters, expected: Callable[[Job], float]) -> dict[PathKey, float]:
    """Return {key: duration of the longest chain of jobs that wait for the key}.

    A job that waits for itself counts once.
    """
    found: dict[PathKey, float] = {}
    for start in waiters.list_awaited():
        stack = [start]
        while stack:
            key = stack[-1]
            followers = [job for job in waiters.of(key) if job.state is JobState.WAITING and not job.is_analysis]
            if key not in found:
                found[key] = _UNDER_WAY
                stack += [job.source.key for job in followers if job.source.key in waiters and job.source.key not in found]
                continue
            stack.pop()
            if found[key] == _UNDER_WAY:
                found[key] = max((expected(job) + max(0.0, found.get(job.source.key, 0.0)) for job in followers), default=0.0)
    return found


# `Starts` chooses the jobs that start, groups these jobs into messages, and makes the orders for the workers.

_COPY_BATCH = 256
_SMALL_BATCH = 32
_MESSAGE_MS, _BATCH_MESSAGE_MS = 40, 400
"""Maximum work (ms) in one message to a worker, with and without a client that follows every step.

The higher value keeps workers busy during a commit.
"""


class Starts(PipelinePart):
    """Fills the free slots of workers with jobs.

    Args:
        staging: absolute folder in which every run gets a folder (or file) named by its run key.
    """

    def __init__(self, jobs: Jobs, staging: str) -> None:
        super().__init__(jobs)
        self._staging = staging
        self._roots = {folder.id: folder.path for folder in jobs.project.scan_folders}

    def start(self, event: SlotsFree) -> None:
        """Fill free slots with the first jobs of the queue."""
        if self._jobs.is_outdated:
            return
        named = next((job for job in self._ready if job.id == event.job_id), None) if event.job_id else None
        if named is not None:
            self._ready.put_first(named)
            if self._ready.peek() is not named:  # the resources of the named job are in use, so no job starts
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
        """Remove the next jobs of one kind from the queue and return their orders, which are sent in one message to a worker.

        The result has one order, or several orders if the jobs are quick, or if their command processes several files per start.
        """
        kind, limit = self._kind_of(first), min(most, self._batch_size(first))
        is_batched = self._files_per_start(first) > 1
        share = max(1, -(-len(self._ready) // ((1 if is_batched else 2) * self._project.workers)))
        orders: list[AnalyseOrder | ProcessOrder | CopyOrder] = []
        while len(orders) < min(limit, share):
            job = self._ready.peek()
            if job is None or self._kind_of(job) != kind or job.is_critical != first.is_critical:
                break
            self._ready.pop()
            self._jobs.start(job)
            orders.append(self._order_for(job))
        return orders

    def _kind_of(self, job: Job) -> object:
        builder = self._builders[job.builder]
        if job.is_analysis:
            return "analyse"
        return "copy" if builder.is_plain_copy else job.builder

    def _batch_size(self, job: Job) -> int:
        """Return the maximum number of jobs in one message to a worker, if `job` is the first of them."""
        builder = self._builders[job.builder]
        if builder.is_plain_copy:
            return _COPY_BATCH
        if (batch := self._files_per_start(job)) > 1:
            return batch
        if builder.resources:  # jobs that wait in a larger message would hold their resources without using them
            return 1
        mean = self._reports.mean_ms(job)
        work_ms = _MESSAGE_MS if self._reports.reports_every_step else _BATCH_MESSAGE_MS
        return 1 if mean is None else max(1, min(_SMALL_BATCH, int(work_ms / (mean + 0.5))))

    def _files_per_start(self, job: Job) -> int:
        rule = self._builders[job.builder].command
        return rule.batch if rule is not None and not self._project.debug_output else 1

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
            plan.priority, plan.is_critical, fact.stamp, fact.digest, staging,
            builder.process_limit_s, builder.memory_limit_bytes, self._project.debug_output, settings=settings,
            quality=quality_of(job.planned_inputs).value, declared=declared, inputs=inputs,
            is_batched=self._files_per_start(job) > 1,
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
    """State of all work, at this moment.

    Args:
        run, failed, done: numbers of runs, failed runs and successful runs that have ended since the engine opened.
        reading: number of files whose bytes are being read.
        is_scanned: whether the end of the last scan was reported.
        failing: change of the number of failed jobs and analyses since the engine opened.
    """

    run: int
    failed: int
    done: int
    ready_analyses: int
    ready_jobs: int
    running_analyses: int
    running_jobs: int
    reading: int
    is_scanned: bool
    failing: int

    @property
    def is_analysing(self) -> bool:
        """Whether any analysis is pending, so that its jobs are not known yet."""
        return bool(self.ready_analyses or self.running_analyses)


class PendingCounts(Struct, frozen=True):
    """Pending work: {platform: jobs}, {platform: critical jobs}, and the number of analyses."""

    pending: Mapping[str, int]
    critical: Mapping[str, int]
    analyses: int


class Pipeline:
    """Makes all decisions; see the docstring of the module."""

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
        """Handle one event; return the commands, in order, and the notices."""
        self.jobs.ledger.cause = event.seq
        self.jobs.graph.forget_loose_ends()
        self.jobs.memory.forget_answers()
        self._dispatch(event)
        self.spread.evaluate_identities()
        self.plans.evaluate_todo()
        self.plans.end_chains()
        if isinstance(event, FilesHashed):
            self.runs.start_copies(event)
        self.plans.make_finals()
        self.jobs.save_idle_plans()
        self.files.close_complete_folders()
        self.jobs.put_edges()
        self._release()
        # If another `FilesHashed` follows soon, and this event caused no command, its rows are saved together with the next rows.
        if self.jobs.ledger.commands or not (isinstance(event, FilesHashed) and event.has_more):
            self.jobs.ledger.flush_rows()
        self.jobs.memory.forget_answers()
        return self.jobs.ledger.finish()

    def _dispatch(self, event: Event) -> None:  # noqa: C901, PLR0912  # one case for each event, and nothing else
        match event:
            case SlotsFree():
                self.starts.start(event)
            case RunsFinished():
                self.runs.runs_finished(event)
            case ProductsCommitted():
                self.runs.products_committed(event)
            case RowsSaved():
                self.jobs.memory.acknowledge(event.ticket)
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

    def _release(self) -> None:
        """Release the sources whose rows are saved, and drop the state that is needed only while jobs are in flight."""
        ticket = self.jobs.ledger.ticket if self.jobs.ledger.rows else self.jobs.ledger.ticket - 1
        for source in self.jobs.ledger.touched:
            self.jobs.memory.leaves_after(source, ticket)
        self.jobs.ledger.touched.clear()
        if not self.jobs.committing:
            self.jobs.memory.release_loaded()
        if self.jobs.is_idle:
            if not self.jobs.memory.unstable:  # a file that is still changing may start the next round of an endless chain
                self.plans.forget_rounds()
            self.jobs.chains.changed.clear()
            self._compare_heads()

    def _compare_heads(self) -> None:
        """Request a check of the first source of each chain of intermediates in which a job ran.

        A later job of the chain may have changed this source, and `aptui batch` does not watch files.
        """
        ran = self.plans.feedback.pop_ran()
        heads = self.jobs.chains.heads(ran) if ran else []
        if heads:
            self.jobs.ledger.order(CompareFiles(self.jobs.ledger.cause, tuple(heads)))

    # ------------------------------------------------------------------------------------------------- answers to queries

    def status(self) -> PipelineStatus:
        """Return the state of all work."""
        counts, ready, running = self.jobs.reports.counts, self.jobs.ready, self.jobs.running
        analysing = sum(1 for job in running.values() if job.is_analysis)
        return PipelineStatus(
            counts["run"],
            counts["failed"],
            counts["done"],
            ready.analysis_count,
            len(ready) - ready.analysis_count,
            analysing,
            len(running) - analysing,
            len(self.jobs.memory.hashing),
            self.jobs.memory.scan_is_done,
            self.jobs.failing_count,
        )

    def count_pending(self) -> PendingCounts:
        """Count the pending jobs, in one pass over the working set."""
        pending: Counter[str] = Counter()
        critical: Counter[str] = Counter()
        analyses = 0
        for source in self.jobs.memory.sources.values():
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
        """Return the pending work; `elapsed_ms`: {run key: milliseconds since its start}."""
        return pending_work(self.jobs, elapsed_ms)

    def running_job_ids(self) -> dict[int, int]:
        """Return {id: run key} of the jobs that run; analyses have no id."""
        return {job.id: job.run_key for job in self.jobs.running.values() if not job.is_analysis}

    def next_job(self, job_id: int = 0) -> Job | None:
        """Return the job that starts next, or the job with the given id; None if it is not ready."""
        return next((job for job in self.jobs.ready if job.id == job_id), None) if job_id else self.jobs.ready.peek()

    def committing(self, run_key: int) -> Commit | None:
        """Return the commit of this run while its products are moved into the cache; None for a plain copy."""
        found = self.jobs.committing.get(run_key)
        return found if isinstance(found, Commit) else None

    def commit_rows(self, run_key: int) -> list[JobRow]:
        """Return the rows that are saved with the products of a run; called once, between `CommitProducts` and the next event."""
        found = self.jobs.committing[run_key]
        return self.plain_copies.rows_of(found) if isinstance(found, PlainCopy) else list(self.jobs.commits.rows_of(found))
