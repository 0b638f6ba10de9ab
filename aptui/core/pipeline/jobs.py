"""What every part of the pipeline does to a job: move it through `machine.feed`, save it, tell of it, see who is concerned.

Whether a job is owed a run is `pipeline.plans`', what files and runs mean for it is decided elsewhere.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable

from aptui.core import fingerprint, history, rows
from aptui.core.archive import Archive
from aptui.core.identity import names_of
from aptui.core.machine import Effect, Trigger, feed
from aptui.core.messages import (
    DeleteProducts,
    DiscardStaging,
    DropLogs,
    HashFiles,
    JobChanged,
    KillRuns,
    LogLevel,
    LogRecord,
    Outcome,
    ProductsChanged,
    RunResult,
    WriteLog,
)
from aptui.core.model import (
    COMMON_PLATFORM,
    SETTLED,
    Builder,
    DependencyKind,
    FileFact,
    Job,
    JobState,
    PathKey,
    Project,
    RunKey,
    Source,
)
from aptui.core.pipeline.undeclared_reads import Judge
from aptui.core.planner import Planner
from aptui.core.priority import ReadyQueue
from aptui.core.settings import Settings
from aptui.core.state.chains import Chains
from aptui.core.state.commits import Commits
from aptui.core.state.graph import Graph
from aptui.core.state.ledger import Ledger
from aptui.core.state.working_set import Memory, brings_sources

LogName = Callable[[Job, str], str]
"""(job, builder name) -> path of its run's log relative to the log folder."""
UNKNOWN = 0
"""Planned fingerprint of a job that was cancelled before anybody knew what it would be made of: it rests until its source changes."""
_COVERING = (DependencyKind.FINGERPRINT, DependencyKind.ORDER)
_KILL_AND_DELETE = Effect.KILL | Effect.DELETE
SHOWN = {
    JobState.WAITING: "pending",
    JobState.QUEUED: "pending",
    JobState.RUNNING: "processing",
    JobState.COMMITTING: "processing",
    JobState.COMPLETED: "completed",
    JobState.FAILED: "failed",
    JobState.CANCELLED: "cancelled",
}
"""What people see of a state."""


class Todo:
    """Jobs to be looked at, and whether what failed is tried again; those that may bring new sources come first."""

    def __init__(self) -> None:
        self._bringers: deque[tuple[Job, bool]] = deque()
        self._others: deque[tuple[Job, bool]] = deque()

    def __bool__(self) -> bool:
        return bool(self._bringers or self._others)

    def append(self, item: tuple[Job, bool]) -> None:
        """Add one."""
        job = item[0]
        (self._bringers if job.is_analysis or job.platform == COMMON_PLATFORM else self._others).append(item)

    def extend(self, items: Iterable[tuple[Job, bool]]) -> None:
        """Add some."""
        for item in items:
            self.append(item)

    def popleft(self) -> tuple[Job, bool]:
        """Take the next."""
        return (self._bringers or self._others).popleft()


class Moves:
    """Everything that is decided, and the moves that all of it is made of. See `pipeline` for the arguments."""

    def __init__(self, project: Project, archive: Archive, log_name: LogName, staging: str) -> None:
        self.project = project
        self.memory = Memory(archive, {folder.id: rank for rank, folder in enumerate(project.scan_folders)})
        self.memory.has_identities |= bool(project.metadata_types)  # shadows are not who their path says they are
        self.ledger = Ledger(*archive.next_ids())
        self.settings = Settings(project, archive.settings())
        self.graph = Graph(project, self.memory, self.settings)
        self.planner = Planner(project, self.settings)
        self.ready = ReadyQueue(project.host_platform)
        self.running: dict[int, Job] = {}
        self.chains = Chains(project, self.memory, self.ledger)
        self.commits = Commits(self.memory, self.ledger, self.planner, self.chains)
        self.reads = Judge(project, self.graph, self.memory)
        self.wants_news = False
        self.failing_count = 0
        """How many jobs and analyses are failed now, beyond those that were when the engine opened."""
        self._log_name = log_name
        self._staging = staging
        self._builders = {builder.uuid: builder for builder in project.builders}
        self._roots = {folder.id: folder.path for folder in project.scan_folders}
        self._folder_names = {folder.id: folder.name for folder in project.scan_folders}
        self._platform_ids = {platform.id for platform in project.platforms}
        self._waiters: dict[PathKey, dict[Job, None]] = {}
        self._todo = Todo()
        self._edges_due: dict[tuple[Source, bytes], None] = {}
        self.departed = archive.departed()
        self._renamed: set[str] = set()
        """UUIDs (hex) that mean another source than before: who depends on them is planned again."""
        self._identity_owed: dict[PathKey, None] = {}
        """Sources that may have to be called otherwise now."""
        self._retry: dict[str, set[PathKey]] = {}
        self._owed_retries: set[PathKey] = set()
        self._rules_said: set[str] = set()
        self._rounds: Counter[int] = Counter()
        """How often each job made other intermediates since everything was at rest."""
        self._mean_ms: dict[bytes, float] = {}
        self._committing: dict[int, tuple[Job, RunResult]] = {}
        self.counts = {"run": 0, "failed": 0, "analysed": 0, "done": 0}

    @property
    def is_idle(self) -> bool:
        """Whether nothing is owed: no run, no file being read, no job that could still move."""
        is_moving = self.running or self.memory.hashing or self.memory.awaited or self._committing or len(self.ready)
        return not is_moving and self.memory.scan_is_done

    @property
    def backlog(self) -> int:
        """How much is already owed; the scan pauses while it is large."""
        return len(self.ready) + len(self.running) + len(self.memory.hashing)

    def stuck(self) -> list[Job]:
        """Return jobs that wait although nothing moves any more; always [] unless there is a bug."""
        return [job for jobs in self._waiters.values() for job in jobs if job.state is JobState.WAITING]

    def _is_configured(self, job: Job) -> bool:
        return job.builder in self._builders and (job.is_analysis or job.platform in self._platform_ids)

    def _rests(self, job: Job) -> bool:
        return job.platform in self.project.resting_platforms

    def _hash(self, files: Iterable[tuple[PathKey, FileFact]]) -> None:
        wanted = []
        for key, fact in files:
            if key not in self.memory.hashing:
                wanted.append(fact)
            self.memory.hashing[key] = fact
        if wanted:
            self.ledger.order(HashFiles(self.ledger.cause, tuple(wanted)))

    def _save(self, job: Job) -> None:
        self.ledger.touched[job.source] = None
        if job.is_analysis:
            self.ledger.put("put_analysis", rows.analysis_row(job))
        else:
            self.ledger.put("put_job", rows.job_row(job))

    def _save_source(self, source: Source) -> None:
        self.ledger.put("put_source", rows.source_row(source))
        self.ledger.touched[source] = None

    def _put_edges(self) -> None:
        """Save the edges of all that changed in this event, once each: drops come before puts."""
        for source, builder in self._edges_due:
            if self.memory.sources.get(source.key) is source:
                self.ledger.put("drop_edges", (source.uuid, builder))
                self.ledger.put_all("put_edge", rows.edge_rows(source, builder))
        self._edges_due.clear()

    def _feed(self, job: Job, trigger: Trigger) -> None:
        """Move a job, and do what every move needs: kill its run, leave the queue."""
        if trigger is Trigger.PLAN and job.state in SETTLED and self.memory.has_edges:
            self._todo.extend((other, False) for other in self._movers_after(job))
        self.failing_count -= job.state is JobState.FAILED
        self.memory.moving -= brings_sources(job)
        effect = feed(job, trigger)
        self.failing_count += job.state is JobState.FAILED
        self.memory.moving += brings_sources(job)
        if effect is Effect.KILL or effect is _KILL_AND_DELETE:
            self.running.pop(job.run_key, None)
            self.ledger.order(KillRuns(self.ledger.cause, (job.run_key,)))
            self.ledger.order(DiscardStaging(self.ledger.cause, (job.run_key,)))
        if job.state is not JobState.QUEUED:
            self.ready.discard(job)

    def _drop(self, job: Job) -> None:
        """The job is no more: its products go, and whoever depends on it is looked at again."""
        if job.state is None:
            job.source.jobs.pop((job.builder, job.platform, job.key), None)
            return
        before = self.memory.targets(job.source) if self.memory.has_edges else set()
        self._feed(job, Trigger.DROP)
        job.source.jobs.pop((job.builder, job.platform, job.key), None)
        if self.memory.has_edges:
            self.memory.reindex(job.source, before)
            self.graph.forget_rings()
            self._edges_due[job.source, job.builder] = None
        self.ledger.touched[job.source] = None
        if job.is_analysis:
            self.ledger.drop("drop_analysis", (job.source.id, job.builder))
            return
        freed = self.commits.release(job)
        if job.products:
            self._delete_products(job)
        if job.log_file:
            self.ledger.order(DropLogs(self.ledger.cause, (job.log_file,)))
        self.ledger.drop("drop_job", (job.id,))
        self._todo.extend((other, True) for other in freed)
        self._news(job)
        self._settled(job, is_changed=True)

    def _delete_products(self, job: Job) -> None:
        names = self.commits.deletable(job)
        job.products = ()
        if names:
            self.ledger.order(DeleteProducts(self.ledger.cause, names, self.ledger.ticket))
            self.ledger.notices.append(ProductsChanged(self.ledger.cause, tuple((name, "") for name in names)))
            self.chains.look(names)

    def _hold_back(self, job: Job) -> None:
        """`job` rested and is owed a run: whoever depends on it and is only queued yet is looked at again, and waits for it."""
        if job.state not in SETTLED or job.is_analysis or not self.memory.has_edges:
            return
        names = names_of(job.source)
        for source in self.memory.load(sorted(self.memory.dependents(names))):
            for other in source.jobs.values():
                if (
                    other.state is JobState.QUEUED
                    and other.plan
                    and any(item.source in names for item in other.plan.job_dependencies)
                ):
                    self._todo.append((other, False))

    def _settled(self, job: Job, *, is_changed: bool) -> None:
        """A job came to rest: whoever waited for it is looked at, and if it changed, whoever depends on it."""
        key = job.source.key
        if key in self._waiters:
            self._wake(key)
        if is_changed:
            self._todo.extend((other, False) for other in self._dependents_of(job))

    def _wake(self, key: PathKey) -> None:
        for job in self._waiters.pop(key, {}):
            if job.is_analysis and job.state is JobState.COMPLETED and not job.fingerprint:
                self._reseal(job)
            elif job.state is JobState.WAITING or job.state is None:
                self._todo.append((job, False))

    def _reseal(self, job: Job) -> None:
        if job.source.jobs.get((job.builder, job.platform, job.key)) is job:
            self._seal(job)

    def _seal(self, job: Job) -> None:
        """Record the analysis fingerprint over what the analysis itself declared, as soon as all of that is known."""
        builder = self._builders[job.builder]
        assembly = self.graph.analysis(job, self.planner.platforms_of(builder, job.source))
        if assembly.waits:
            job.fingerprint = 0
            for key in assembly.waits:
                self._waiters.setdefault(key, {})[job] = None
            self._hash(assembly.unread.items())
        elif late := self.chains.came_since(job.run_key, job.edges):
            job.fingerprint, job.is_forced, job.reason = 0, True, f"'{late}' came or changed while this was analysed"
            self._todo.append((job, True))
        else:
            job.fingerprint = job.planned = fingerprint.number(assembly.manifest)
            job.inputs = assembly.manifest
        self._save(job)

    def _movers_after(self, job: Job) -> list[Job]:
        """Return the jobs that started, or are about to, on the word of `job`, which does not rest any more."""
        names = names_of(job.source)
        return [
            other
            for source in dict.fromkeys(source for name in names for source in self.memory.moving_dependents(PathKey(name)))
            for other in source.jobs.values()
            if other.plan
            and any(
                dependency.source in names and (other.state is JobState.QUEUED or dependency.kind in _COVERING)
                for dependency in other.plan.job_dependencies
            )
            and other.state in (JobState.QUEUED, JobState.RUNNING)
        ]

    def _dependents_of(self, job: Job) -> list[Job]:
        if not self.memory.has_edges or job.is_analysis:
            return []
        names = names_of(job.source)
        return [
            other
            for source in self.memory.load(sorted(self.memory.dependents(names)))
            for other in source.jobs.values()
            if other.plan and any(dependency.source in names for dependency in other.plan.job_dependencies)
        ]

    def _doubt(self, job: Job) -> None:
        """What `job` is made of changes now, and it is looked at later: if the engine dies between, the next one has to know."""
        if job.state not in SETTLED or job.is_doubted or not self._is_configured(job):
            return
        job.is_doubted = True
        self.ledger.touched[job.source] = None
        if job.is_analysis:
            self.ledger.put("put_analysis", rows.analysis_row(job, JobState.WAITING))
        else:
            self.ledger.put("put_job", rows.job_row(job, JobState.WAITING))

    def _fail(self, job: Job, text: str, now_ms: int, *, keeps_claims: bool = False, drops_products: bool = False) -> None:
        self._feed(job, Trigger.FAIL)
        self._record_failure(job, text, now_ms, keeps_claims=keeps_claims, drops_products=drops_products)

    def _record_failure(
        self, job: Job, text: str, now_ms: int, *, keeps_claims: bool = False, drops_products: bool = False
    ) -> None:
        job.error, job.is_forced, job.stale_count = text, False, 0
        builder = self._builders[job.builder]
        if not job.is_analysis:
            self.counts["run"] += 1
            job.first_fail_ms = job.first_fail_ms or now_ms
            job.first_fail_log = job.first_fail_log or job.log_file
            job.last_fail_ms, job.last_fail_log = now_ms, job.log_file
            job.failure_cause = self._cause_of(job)
            self.ledger.put(
                "put_run",
                (
                    job.id,
                    job.run_key,
                    now_ms,
                    job.duration_ms,
                    int(Outcome.FAILED),
                    job.reason,
                    text,
                    job.log_file,
                    job.planned or 0,
                    builder.version,
                    b"",
                    self._step_of(job),
                ),
            )
            drops_products = drops_products or builder.deletes_products_on_failure
            gone = [product.name for product in job.products] if drops_products else []
            if gone:
                self._delete_products(job)
                job.fingerprint = 0
                self.ledger.drop("drop_products", (job.id,))
            if not keeps_claims:
                self._todo.extend((other, True) for other in self.commits.release_names(job, gone))
        else:
            siblings = [other for other in job.source.jobs.values() if other.builder == job.builder]
            self._todo.extend((other, False) for other in siblings if other.state not in SETTLED or other.is_forced)
        self.counts["failed"] += 1
        self._save(job)
        self._news(job, is_settled=True)
        self._settled(job, is_changed=True)

    def _step_of(self, job: Job) -> str:
        """Return what the history keeps of a run that failed (`core.history`)."""
        if not job.planned:
            return ""
        known = history.moment(job.inputs, job.products)
        return history.step(known, history.Moment(job.planned_inputs, known.products))

    def _cause_of(self, job: Job) -> str:
        """Return the name of a dependency that failed, "" when none did (architecture: labelled with the dependency that failed)."""
        for dependency in job.plan.job_dependencies if job.plan else ():
            other = self.graph.find_job(dependency)
            if isinstance(other, Job) and other.state is JobState.FAILED:
                return f"{other.source.rel}@{other.platform}:{other.key}"
        return ""

    def _auto_fail(self, job: Job, text: str) -> None:
        """Fail a job without a run: what it is made of can never work."""
        if job.state is JobState.FAILED and job.error == text:
            return
        self._feed(job, Trigger.PLAN)
        self._feed(job, Trigger.UNBLOCK)
        job.run_key = RunKey(self.ledger.next_run_key())
        job.planned = None
        job.reason = "it cannot run as it is declared"
        self._feed(job, Trigger.START)
        job.warnings, job.errors = 0, 1
        self._write_log(job, self._builders[job.builder], (), text)
        self._fail(job, text, 0)

    def _write_log(self, job: Job, builder: Builder, log: Iterable[LogRecord], error: str) -> None:
        """Order the log written, the error last if no line of it says the same; name it on the job."""
        records = list(log)
        if error and not any(record.level >= LogLevel.ERROR and record.text == error for record in records):
            records.append(LogRecord(LogLevel.ERROR, builder.name, error, records[-1].time_ms if records else 0))
        if not records:
            return
        job.log_file = self._log_name(job, builder.name)
        self.ledger.order(WriteLog(self.ledger.cause, job.log_file, tuple(records), job.warnings, job.errors))

    def mean_ms(self, job: Job) -> float:
        """Return how long runs of the job's builder take, 0 when none has been seen."""
        return self._mean_ms.get(job.builder + b"p", 0.0)

    def committing(self, run_key: int) -> tuple[Job, RunResult] | None:
        """Return the job, and what its run left, of a commit that is under way."""
        return self._committing.get(run_key)

    def _learn(self, job: Job, duration_ms: int) -> None:
        index = job.builder + (b"a" if job.is_analysis else b"p")
        mean = self._mean_ms.get(index)
        self._mean_ms[index] = duration_ms if mean is None else mean * 0.9 + duration_ms * 0.1

    def _stat_name(self, job: Job, builder: Builder) -> str:
        folder = self._folder_names.get(job.source.scan_folder, "")
        return f"ProcessJob,{folder},{job.source.rel},{job.key},{job.platform},{{{builder.uuid.hex()}}}"

    def _news(self, job: Job, *, is_settled: bool = False) -> None:
        if not (self.wants_news or is_settled):
            return
        source, builder = job.source, self._builders.get(job.builder)
        status = "" if job.state is None else SHOWN[job.state]
        key = f"CreateJobs_{{{job.builder.hex()}}}" if job.is_analysis else job.key
        self.ledger.notices.append(
            JobChanged(
                self.ledger.cause, job.id, source.rel, source.scan_folder, job.platform or "all", key, builder.name if builder else "",
                status, job.reason, job.error, job.warnings, job.errors, job.duration_ms, job.log_file, job.run_key,
                job.completed_ms,
            )
        )  # fmt: skip
