"""The pipeline: an event in, commands and notices out. It reads no clock, no file, and never waits.

A hint becomes a fact, a fact becomes an order, an order becomes a deed, a deed becomes a fact again. Each handler below moves jobs
through `machine.feed` and gathers in the `Ledger` what has to be done; `Graph` says what a job is made of, `Memory` holds what moves.

Handlers do not call each other in depth: what may have to be looked at again is put on `_todo` and looked at when the event itself has
been handled, so that a chain of ten thousand jobs needs no stack.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import assert_never

from aptui.core import fingerprint, rows
from aptui.core.archive import Archive
from aptui.core.commits import Commits
from aptui.core.fingerprint import Manifest
from aptui.core.graph import Assembly, Graph
from aptui.core.ledger import Ledger
from aptui.core.machine import Effect, Trigger, feed
from aptui.core.memory import Memory, PendingFolder, Unsettled
from aptui.core.messages import (
    AnalyseOrder,
    AnalyseResult,
    Asked,
    Command,
    CopyOrder,
    DeleteProducts,
    DiscardStaging,
    DropLogs,
    Event,
    FilesHashed,
    FolderSeen,
    FoldersKept,
    HashFiles,
    JobChanged,
    KillRuns,
    LogLevel,
    LogRecord,
    LookAgain,
    Notice,
    Outcome,
    ProcessOrder,
    ProductsChanged,
    ProductsCommitted,
    ProductsLost,
    RowsSaved,
    RunResult,
    RunsFinished,
    ScanFinished,
    ScanStarted,
    SlotsFree,
    SourcesChanged,
    StartRuns,
    WriteLog,
)
from aptui.core.model import (
    ANALYSIS_KEY,
    COMMON_PLATFORM,
    SETTLED,
    Builder,
    BuilderKind,
    DependencyKind,
    EdgeKind,
    FileFact,
    Job,
    JobDependency,
    JobPlan,
    JobState,
    PathKey,
    Project,
    RelPath,
    RunKey,
    Source,
    SourceEdge,
)
from aptui.core.paths import key_of, normalize, parent, path_uuid
from aptui.core.planner import Planner
from aptui.core.priority import ReadyQueue

LogName = Callable[[Job, str], str]
"""(job, builder name) -> path of its run's log relative to the log folder."""

_COPY_BATCH = 256
_COVERING = (DependencyKind.FINGERPRINT, DependencyKind.ORDER)
_SMALL_BATCH = 32
_UNKNOWN = 0
"""Planned fingerprint of a job that was cancelled before anybody knew what it would be made of: it rests until its source changes."""
_DEPENDENCY_ESCALATION = 50
_KILL_AND_DELETE = Effect.KILL | Effect.DELETE
_CAME_BACK = frozenset({int(Outcome.LOST), int(Outcome.RETURNED), int(Outcome.STALE)})


class Pipeline:
    """Everything that is decided. See the module's head.

    Args:
        project: the configuration as the core knows it.
        archive: what rests.
        log_name: where a job's log lies.
        staging: absolute folder in which every run gets a folder (or file) named by its run key.
    """

    def __init__(self, project: Project, archive: Archive, log_name: LogName, staging: str) -> None:
        self.project = project
        self.memory = Memory(archive)
        self.ledger = Ledger(*archive.next_ids())
        self.graph = Graph(project, self.memory)
        self.planner = Planner(project)
        self.ready = ReadyQueue(project.host_platform)
        self.running: dict[int, Job] = {}
        self.commits = Commits(self.memory, self.ledger, self.planner)
        self.wants_news = False
        self._log_name = log_name
        self._staging = staging
        self._builders = {builder.uuid: builder for builder in project.builders}
        self._roots = {folder.id: folder.path for folder in project.scan_folders}
        self._folder_names = {folder.id: folder.name for folder in project.scan_folders}
        self._platform_ids = {platform.id for platform in project.platforms}
        self._waiters: dict[PathKey, dict[Job, None]] = {}
        self._todo: deque[tuple[Job, bool]] = deque()
        self._edges_due: dict[tuple[Source, bytes], None] = {}
        self._retry: dict[str, set[PathKey]] = {}
        self._owed_retries: set[PathKey] = set()
        self._rules_said: set[str] = set()
        self._mean_ms: dict[bytes, float] = {}
        self._committing: dict[int, tuple[Job, RunResult]] = {}
        self.counts = {"run": 0, "failed": 0, "analysed": 0, "done": 0}

    # ------------------------------------------------------------------------------------------------------------ the ring

    def handle(self, event: Event) -> tuple[list[Command], list[Notice]]:
        """Take one fact; answer with what has to be done, in order, and the news."""
        self.ledger.cause = event.seq
        self.graph.forget_loose_ends()
        self._dispatch(event)
        self._look_at_todo()
        self._put_edges()
        ticket = self.ledger.ticket if self.ledger.rows else self.ledger.ticket - 1
        for source in self.ledger.touched:
            self.memory.leaves_after(source, ticket)
        self.ledger.touched.clear()
        if not self._committing:
            self.memory.let_go_of_loaded()
        self.ledger.flush_rows()
        return self.ledger.take()

    def _look_at_todo(self) -> None:
        while self._todo and not self._committing:  # what a commit leads to is known with the next event
            job, is_retry = self._todo.popleft()
            self._reconsider(job, is_retry=is_retry)
            if job.is_doubted:
                job.is_doubted = False
                if job.state in SETTLED:
                    self._save(job)

    def _dispatch(self, event: Event) -> None:
        match event:
            case SlotsFree():
                self._start(event.count)
            case RunsFinished():
                self._runs_finished(event)
            case ProductsCommitted():
                self._products_committed(event)
            case RowsSaved():
                self.memory.acknowledge(event.ticket)
            case FilesHashed():
                self._files_hashed(event)
            case FolderSeen():
                self._folder_seen(event)
            case FoldersKept():
                self._folders_kept(event.folders)
            case ScanStarted():
                self._scan_started()
            case ScanFinished():
                self._scan_finished()
            case ProductsLost():
                self._products_lost(event.names)
            case Asked():
                self._asked(event)
            case _:
                assert_never(event)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is owed: no run, no file being read, no job that could still move."""
        return not (self.running or self.memory.hashing or self._committing or len(self.ready)) and self.memory.scan_is_done

    @property
    def backlog(self) -> int:
        """How much is already owed; the scan pauses while it is large."""
        return len(self.ready) + len(self.running) + len(self.memory.hashing)

    def stuck(self) -> list[Job]:
        """Return jobs that wait although nothing moves any more; always [] unless there is a bug."""
        return [job for jobs in self._waiters.values() for job in jobs if job.state is JobState.WAITING]

    # --------------------------------------------------------------------------------------------------------------- files

    def _scan_started(self) -> None:
        self.memory.begin_scan()
        self._retry.clear()
        self._owed_retries.clear()
        for key in self.memory.archive.unfinished():
            self._retry.setdefault(parent(key).lower(), set()).add(key)
            self._owed_retries.add(key)

    def _scan_finished(self) -> None:
        self.memory.end_scan()
        for folder in list(self._retry):
            self._retry_folder(folder)
        for key in list(self._waiters):
            self._wake(key)

    def _folders_kept(self, folders: Iterable[str]) -> None:
        self.memory.keep(folders)
        for folder in folders:
            if folder in self._retry:
                self._retry_folder(folder)
        if self._waiters:
            kept = set(folders)
            for key in [key for key in self._waiters if parent(key) in kept]:
                self._wake(key)

    def _retry_folder(self, folder: str) -> None:
        for source in self.memory.load(sorted(self._retry.pop(folder) & self._owed_retries)):
            self._plan(source)

    def _plan_later(self, source: Source) -> None:
        """Plan a source when the scan has come to its folder."""
        self._owed_retries.add(source.key)
        self._retry.setdefault(parent(source.key), set()).add(source.key)
        for job in [job for job in source.jobs.values() if job.is_analysis] or list(source.jobs.values()):
            self._doubt(job)

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

    def _folder_seen(self, event: FolderSeen) -> None:
        parts = {row[0]: (row[1], {fact.rel: fact for fact in row[2]}) for row in event.rows}
        winners = self._winners(event)
        previous = self.memory.folders.get(event.folder)
        gone = set(event.gone) | (previous.winners.keys() - winners.keys() if previous else set())
        pending = PendingFolder(event.folder, parts, winners)
        self.memory.put_folder(pending)
        self._drop_file_rows(event, gone)
        for key in sorted(gone):
            self._gone(key)
        for fact, others in event.clashes:
            self._clash(fact, others)
        self._drop_strays(event)
        keys = [key_of(fact.rel) for fact in event.facts]
        self.memory.take_extra(pending, set(keys))
        self.memory.unreadable.difference_update(keys)
        self.memory.load(keys)
        unread: list[tuple[PathKey, FileFact]] = []
        for key, fact in zip(keys, event.facts, strict=True):
            if not self._needs_digest(key, fact):
                self.memory.unstable.discard(key)
                self._put_file_row(fact)
            elif fact.digest:
                self._settle(key, fact)
            else:
                unread.append((key, fact))
        pending.open = {key for key, _fact in unread}
        self._hash(unread)
        retry = self._retry.get(event.folder)
        if retry is not None:
            retry.difference_update(pending.open)
            self._retry_folder(event.folder)
        for key in [key for key in self._waiters if parent(key) == event.folder] if self._waiters else ():
            self._wake(key)
        self._close_folder(pending)
        self._spread({*gone, *(key for key in keys if key not in pending.open)})

    def _drop_file_rows(self, event: FolderSeen, gone: set[PathKey]) -> None:
        """Drop the rows of files that are no more, or lie elsewhere now, or are spelled otherwise."""
        now = {key_of(fact.rel): (fact.scan_folder, fact.rel) for fact in event.facts}
        for key, fact in self.memory.archive.files([*sorted(gone), *now]).items():
            if now.get(key) != (fact.scan_folder, fact.rel):
                self.ledger.put("drop_file", (fact.scan_folder, fact.rel))

    def _drop_strays(self, event: FolderSeen) -> None:
        """Drop what differed only in case from another file, and does not any more: its key is its path as it is spelled."""
        spelled = {PathKey(fact.rel) for row in event.rows for fact in row[2] if str(fact.rel) != key_of(fact.rel)}
        strays = spelled.difference(PathKey(fact.rel) for fact, _others in event.clashes)
        for source in self.memory.load(sorted(strays)):
            self._gone(source.key)

    @staticmethod
    def _winners(event: FolderSeen) -> dict[PathKey, FileFact]:
        """Return all files of the folder that win their path: the first part that has one, clashes left out."""
        clashing = {key_of(fact.rel) for fact, _others in event.clashes}
        winners: dict[PathKey, FileFact] = {}
        for _scan_folder, _digest, facts in event.rows:
            for fact in facts:
                key = key_of(fact.rel)
                if key not in clashing:
                    winners.setdefault(key, fact)
        return winners

    def _needs_digest(self, key: PathKey, fact: FileFact) -> bool:
        return (
            self.planner.wants(fact.rel, fact.scan_folder)
            or key in self.memory.sources
            or key in self._waiters
            or bool(self.graph.owners_of(fact.rel))
            or (self.memory.has_edges and bool(self.memory.dependents((key, path_uuid(key).hex()))))
        )

    def _hash(self, files: Iterable[tuple[PathKey, FileFact]]) -> None:
        wanted = []
        for key, fact in files:
            if key not in self.memory.hashing:
                wanted.append(fact)
            self.memory.hashing[key] = fact
        if wanted:
            self.ledger.order(HashFiles(self.ledger.cause, tuple(wanted)))

    def _files_hashed(self, event: FilesHashed) -> None:
        changed: set[PathKey] = set()
        restless = list(event.unstable)
        facts = [(key_of(fact.rel), fact) for fact in event.facts]
        self.memory.load([key for key, _fact in facts])
        for key, fact in facts:
            asked = self.memory.hashing.pop(key, None)
            if asked is None:
                continue  # it went while it was read
            if not _is_same(asked, fact):
                restless.append(key)
                continue
            self.memory.unstable.discard(key)
            self.memory.unreadable.discard(key)
            pending = self.memory.folders.get(parent(key))
            if pending is not None and key in pending.winners:
                pending.winners[key] = fact
                part = pending.parts.get(fact.scan_folder)
                if part is not None:
                    part[1][fact.rel] = fact
            else:
                self.memory.extra[key] = fact
            if self._settle(key, fact):
                changed.add(key)
        for key, text in event.unreadable:
            self._unreadable(key, text)
        for key in restless:
            self.memory.hashing.pop(key, None)
            self.memory.unstable.add(key)
        if restless:
            self.ledger.order(LookAgain(self.ledger.cause, tuple(restless)))
        self._close_folders_of(event)
        self._spread(changed)
        if self._waiters:
            for key, _fact in facts:
                self._wake(key)

    def _close_folders_of(self, event: FilesHashed) -> None:
        done: dict[str, list[PathKey]] = {}
        for key in (*map(key_of, (fact.rel for fact in event.facts)), *(key for key, _text in event.unreadable), *event.unstable):
            done.setdefault(parent(key), []).append(key)
        for folder, keys in done.items():
            pending = self.memory.folders.get(folder)
            if pending is not None:
                pending.open.difference_update(keys)
                self._close_folder(pending)

    def _close_folder(self, pending: PendingFolder) -> None:
        """Save the folder's row once all its files are planned: a crash before that makes the next start look at them again."""
        if pending.open or any(key in self.memory.unstable for key in pending.winners if self.memory.unstable):
            if len(pending.open) < len(pending.winners):
                self._note_folder(pending)
            return
        for scan_folder, (digest, facts) in pending.parts.items():
            if facts or digest:
                self.ledger.put("put_folder", (scan_folder, pending.folder, digest, tuple(facts.values())))
            else:
                self.ledger.put("drop_folder", (scan_folder, pending.folder))
        for scan_folder in self._roots.keys() - pending.parts.keys():
            self.ledger.put("drop_folder", (scan_folder, pending.folder))
        self.memory.folder_leaves_after(pending, self.ledger.ticket)

    def _note_folder(self, pending: PendingFolder) -> None:
        """Some of its files are sources already, others are not read yet: save their names, so that the next start misses what goes."""
        if pending.is_noted:
            return
        pending.is_noted = True
        for scan_folder, (_digest, facts) in pending.parts.items():
            noted = tuple(fact if self._is_handled(pending, fact) else replace(fact, mtime_ns=0) for fact in facts.values())
            if noted:
                self.ledger.put("put_folder", (scan_folder, pending.folder, b"", noted))

    def _is_handled(self, pending: PendingFolder, fact: FileFact) -> bool:
        key = key_of(fact.rel)
        return key not in pending.open and key not in self.memory.unstable

    def _put_file_row(self, fact: FileFact) -> None:
        self.ledger.put("put_file", (fact.scan_folder, fact.rel, 0, fact.mtime_ns // 1_000_000, rows.signed(fact.hash64)))

    def _settle(self, key: PathKey, fact: FileFact) -> bool:
        """The bytes of `key` are known: plan its jobs if it is a source. Return whether they are others than before."""
        self._put_file_row(fact)
        source = self.memory.sources.get(key)
        if source is None:
            if not self.planner.wants(fact.rel, fact.scan_folder):
                return True
            source = self._new_source(key, fact)
            self._plan(source)
            return True
        before = source.fact
        was_elsewhere = (source.scan_folder, source.rel) != (fact.scan_folder, fact.rel)
        source.fact, source.scan_folder, source.rel = fact, fact.scan_folder, fact.rel
        is_changed = before is None or before.digest != fact.digest or was_elsewhere or bool(source.trouble)
        source.trouble = ""
        for job in source.jobs.values() if is_changed else ():
            job.planned = None if job.planned == _UNKNOWN else job.planned
        if before is None or before != fact or was_elsewhere:
            self._save_source(source)
        self._plan(source)
        return is_changed

    def _new_source(self, key: PathKey, fact: FileFact) -> Source:
        source = Source(key, fact.rel, fact.scan_folder, path_uuid(fact.rel), self.ledger.next_source_id(), fact)
        self.memory.add(source)
        self._save_source(source)
        if self.wants_news:
            self.ledger.notices.append(SourcesChanged(self.ledger.cause, ((source.rel, True),)))
        return source

    def _save_source(self, source: Source) -> None:
        self.ledger.put("put_source", rows.source_row(source))
        self.ledger.touched[source] = None

    def _gone(self, key: PathKey) -> None:
        self.memory.hashing.pop(key, None)
        self.memory.unstable.discard(key)
        self.memory.extra.pop(key, None)
        for source in self.memory.load((key,)):
            for job in list(source.jobs.values()):
                self._drop(job)
            self.ledger.drop("drop_source", (source.id,))
            self.memory.reindex(source, self.memory.targets(source))
            self.memory.forget(source, self.ledger.ticket)
            self.ledger.touched.pop(source, None)
            self.ledger.notices.append(SourcesChanged(self.ledger.cause, ((source.rel, False),)))
        self._wake(key)

    def _clash(self, fact: FileFact, others: tuple[str, ...]) -> None:
        names = ", ".join(f"'{name}'" for name in others)
        self._trouble(
            PathKey(fact.rel), fact, f"'{fact.rel}' differs only in case from {names}: rename one of them", drops_jobs=True
        )

    def _unreadable(self, key: PathKey, text: str) -> None:
        self.memory.hashing.pop(key, None)
        self.memory.unreadable.add(key)
        fact = self._fact_of(key)
        if fact is not None:
            self._trouble(key, fact, f"'{fact.rel}' cannot be read: {text}", drops_jobs=False)
        self._wake(key)

    def _fact_of(self, key: PathKey) -> FileFact | None:
        pending = self.memory.folders.get(parent(key))
        return pending.winners.get(key) if pending is not None else self.memory.archive.files((key,)).get(key)

    def _trouble(self, key: PathKey, fact: FileFact, text: str, *, drops_jobs: bool) -> None:
        """A source that cannot be analysed: each builder that wants it gets a failed analysis that says why."""
        builders = self.planner.builders_for(fact.rel, fact.scan_folder)
        found = self.memory.load((key,))
        if not builders:
            self._gone(key)
            return
        source = found[0] if found else self._new_source(key, fact)
        source.trouble = text
        if source.fact != fact:
            source.fact, source.scan_folder, source.rel = fact, fact.scan_folder, fact.rel
            self._save_source(source)
        wanted = {builder.uuid for builder in builders}
        for job in list(source.jobs.values()):
            if (drops_jobs and not job.is_analysis) or (job.builder not in wanted and not self._rests(job)):
                self._drop(job)
        for builder in builders:
            self._auto_fail(self._analysis_of(source, builder), text)
        for job in [job for job in source.jobs.values() if job.state not in SETTLED or job.is_forced]:
            self._auto_fail(job, text)

    # -------------------------------------------------------------------------------------------------------------- plans

    def _spread(self, keys: set[PathKey]) -> None:
        """These files are not what they were: plan all that depends on them, however far."""
        owners = {owner for key in keys for owner in self.graph.owners_of(RelPath(key))}
        affected: set[PathKey] = set(owners)
        edge = set(keys) | owners
        while edge and self.memory.has_edges:
            targets = [*edge, *(path_uuid(key).hex() for key in edge)]
            edge = self.memory.dependents(targets) - affected - keys
            affected |= edge
        for source in self.memory.load(sorted(affected)):
            if not isinstance(self.memory.file(source.key), Unsettled):
                self._plan(source)
            elif source.key not in self.memory.hashing and source.key not in self.memory.unstable:
                self._plan_later(source)

    def _plan(self, source: Source) -> None:
        """Look at everything `source` should have: jobs of builders that want it are considered, all others go."""
        if source.fact is None:
            found = self.memory.file(source.key)
            if isinstance(found, Unsettled):
                return
            source.fact = found
        if source.trouble or source.fact is None:
            self._leave(source)
            return
        if not source.fact.digest:
            self._hash(((source.key, source.fact),))
            return
        is_retry = source.key in self._owed_retries
        self._owed_retries.discard(source.key)
        builders = self.planner.builders_for(source.rel, source.scan_folder)
        wanted = {builder.uuid for builder in builders}
        for job in list(source.jobs.values()):
            if job.builder not in wanted and not self._rests(job):
                self._drop(job)
        for builder in builders:
            if builder.needs_analysis:
                self._todo.append((self._analysis_of(source, builder), is_retry))
                if is_retry:  # whatever becomes of the analysis
                    jobs = [job for job in source.jobs.values() if job.builder == builder.uuid and job.state is JobState.FAILED]
                    self._todo.extend((job, True) for job in jobs if not job.is_analysis)
                continue
            stale = source.jobs.get((builder.uuid, "", ANALYSIS_KEY))
            if stale is not None:
                self._drop(stale)
            self._apply(source, builder, self.planner.inline_plans(builder, source.scan_folder), is_retry=is_retry)
        if not builders:
            self._gone(source.key)

    def _leave(self, source: Source) -> None:
        """Nothing can be done for `source` now: what was owed to its jobs is not any more."""
        for job in source.jobs.values():
            job.is_forced = False
            if job.is_doubted:
                job.is_doubted = False
                self._save(job)

    def _analysis_of(self, source: Source, builder: Builder) -> Job:
        index = (builder.uuid, "", ANALYSIS_KEY)
        job = source.jobs.get(index)
        if job is None:
            job = source.jobs[index] = Job(source, builder.uuid, "", ANALYSIS_KEY)
        return job

    def _apply(self, source: Source, builder: Builder, plans: tuple[JobPlan, ...], *, is_retry: bool = False) -> None:
        """Make the jobs of (source, builder) those that `plans` name."""
        before = self.memory.targets(source) if self.memory.has_edges or builder.needs_analysis else set()
        named: set[tuple[bytes, str, str]] = set()
        for plan in plans:
            index = (builder.uuid, plan.platform, plan.key)
            named.add(index)
            job = source.jobs.get(index)
            if job is None:
                job = source.jobs[index] = Job(source, builder.uuid, plan.platform, plan.key, self.ledger.next_job_id())
            if self.memory.has_edges and self._may_change_rings(job, plan):
                self.graph.forget_rings()
            job.plan = plan
            job.priority, job.is_critical = plan.priority, plan.is_critical
            self._todo.append((job, is_retry))
        if len(source.jobs) > len(named):
            for index, job in list(source.jobs.items()):
                if job.builder == builder.uuid and index not in named and not job.is_analysis and not self._rests(job):
                    self._drop(job)
        if builder.needs_analysis or before:
            self.memory.reindex(source, before)

    def _may_change_rings(self, job: Job, plan: JobPlan) -> bool:
        """Whether jobs that are known already may stand in other rings when `job` is planned so."""
        if job.plan is None:
            return self.memory.has_dependents(job.source.key)
        return job.plan.job_dependencies != plan.job_dependencies

    def _reconsider(self, job: Job, *, is_retry: bool) -> None:
        if job.source.jobs.get((job.builder, job.platform, job.key)) is not job or job.source.trouble:
            return  # dropped meanwhile
        if not self._is_configured(job):
            return  # not of this configuration: it goes when its source is planned, or it is left alone
        if job.is_analysis:
            self._consider_analysis(job, is_retry=is_retry)
        else:
            self._consider(job, is_retry=is_retry)

    def _rests(self, job: Job) -> bool:
        return job.platform in self.project.resting_platforms

    def _is_configured(self, job: Job) -> bool:
        return job.builder in self._builders and (job.is_analysis or job.platform in self._platform_ids)

    def _consider_analysis(self, job: Job, *, is_retry: bool) -> None:
        builder = self._builders[job.builder]
        assembly = self.graph.analysis(job, self.planner.platforms_of(builder, job.source.scan_folder))
        if assembly.waits:
            self._wait(job, assembly)
            return
        number = fingerprint.number(assembly.manifest)
        if job.fingerprint == number and not job.is_forced and job.state is not None and job.state is not JobState.FAILED:
            if job.state is not JobState.COMPLETED:
                self._match(job, number)
            self._apply(job.source, builder, job.plans, is_retry=is_retry)
        elif self._is_owed(job, number, is_retry=is_retry):
            self._owe(job, number, assembly.manifest)

    def _consider(self, job: Job, *, is_retry: bool) -> None:
        assert job.plan is not None
        problem = self._problem_of(job)
        if problem:
            self._auto_fail(job, problem)
            return
        assembly = self.graph.job(job)
        job.misses_dependency, job.ring = assembly.misses_dependency, assembly.ring
        if assembly.waits:
            self._wait(job, assembly)
            return
        number = fingerprint.number(assembly.manifest)
        if job.state is JobState.CANCELLED and job.planned == _UNKNOWN:
            job.planned = number
            self._save(job)
        if job.fingerprint == number and not job.is_forced and job.state in (JobState.WAITING, JobState.QUEUED, JobState.RUNNING):
            self._match(job, number)
        elif self._is_owed(job, number, is_retry=is_retry):
            self._owe(job, number, assembly.manifest)

    def _is_owed(self, job: Job, number: int, *, is_retry: bool) -> bool:
        """Whether a run is owed that is not under way already."""
        match job.state:
            case None:
                return True
            case JobState.COMPLETED:
                return job.fingerprint != number or job.is_forced
            case JobState.WAITING:
                return True
            case JobState.QUEUED | JobState.RUNNING | JobState.COMMITTING:
                return job.planned != number
            case JobState.FAILED:
                return job.planned != number or is_retry or job.is_forced
            case JobState.CANCELLED:
                return job.planned != number or job.is_forced
            case _:
                assert_never(job.state)

    def _problem_of(self, job: Job) -> str:
        """Return why a job can never run as it is declared (spec/engine.md §3), "" when it can."""
        assert job.plan is not None
        for dependency in job.plan.job_dependencies:
            if dependency.platform not in (job.platform, COMMON_PLATFORM):
                return (
                    f"job dependency on '{dependency.source}' is for platform '{dependency.platform}': "
                    f"only '{job.platform}' or '{COMMON_PLATFORM}' can be named here"
                )
        return ""

    def _wait(self, job: Job, assembly: Assembly) -> None:
        """Owe `job` a run as soon as what it waits for is known."""
        for key in assembly.waits:
            self._waiters.setdefault(key, {})[job] = None
        if assembly.unread:
            self._hash(assembly.unread.items())
        for blocker in assembly.blockers:
            if (job.is_critical or job.escalation) and blocker.escalation < max(job.escalation, _DEPENDENCY_ESCALATION):
                blocker.escalation = max(job.escalation, _DEPENDENCY_ESCALATION)
                if blocker.state is JobState.QUEUED:
                    self.ready.push(blocker)
        if job.state is JobState.WAITING and job.planned is None:
            return
        self._hold_back(job)
        self._feed(job, Trigger.PLAN)
        job.planned, job.planned_inputs, job.reason = None, (), job.reason
        self._save(job)

    def _owe(self, job: Job, number: int, manifest: Manifest) -> None:
        """Owe `job` a run with this fingerprint, and let it start when a slot is free."""
        job.reason = self._reason(job, manifest)
        self._hold_back(job)
        self._feed(job, Trigger.PLAN)
        job.planned, job.planned_inputs, job.lost_count = number, manifest, 0
        self._feed(job, Trigger.UNBLOCK)
        self.ready.push(job)
        self._say_rule(job)
        self._save(job)
        self._news(job)

    def _hold_back(self, job: Job) -> None:
        """`job` rested and is owed a run: whoever depends on it and is only queued yet is looked at again, and waits for it."""
        if job.state not in SETTLED or job.is_analysis or not self.memory.has_edges:
            return
        key = job.source.key
        for source in self.memory.load(sorted(self.memory.dependents((key,)))):
            for other in source.jobs.values():
                if (
                    other.state is JobState.QUEUED
                    and other.plan
                    and any(item.source == key for item in other.plan.job_dependencies)
                ):
                    self._todo.append((other, False))

    def _reason(self, job: Job, manifest: Manifest) -> str:
        if job.is_forced:
            return job.reason or "asked for"
        if not job.inputs:
            failed = job.state is JobState.FAILED
            return (
                "tried again: it failed before" if failed else "new source" if not job.fingerprint else job.reason or "not recorded"
            )
        old, new = self._expand(job, job.inputs), self._expand(job, manifest)
        if any(kind == "rule" for kind, _name, _digest in old):  # nobody knows any more what it stood for
            old, new = job.inputs, manifest
        difference = fingerprint.explain(old, new)
        return difference or ("tried again: it failed before" if job.state is JobState.FAILED else "products are missing")

    def _expand(self, job: Job, manifest: Manifest) -> Manifest:
        """Put in place of a rule's entry what it stands for, so that a difference names the very key."""
        if not manifest or manifest[0][0] != "rule":
            return manifest
        builder = self._builders.get(job.builder)
        expanded: list[tuple[str, str, str]] = []
        for entry in manifest:
            if entry[0] != "rule":
                expanded.append(entry)
                continue
            now = self.graph.rule(builder, job.platform) if builder and job.platform else None
            stored = now[1] if now and now[0] == entry else fingerprint.load(self.memory.archive.state("rule:" + entry[2]))
            expanded.extend(stored or (entry,))
        return tuple(expanded)

    def _say_rule(self, job: Job) -> None:
        if not job.platform:
            return
        entry, expansion = self.graph.rule(self._builders[job.builder], job.platform)
        if entry[2] not in self._rules_said:
            self._rules_said.add(entry[2])
            self.ledger.put("put_state", ("rule:" + entry[2], fingerprint.dump(expansion)))

    def _match(self, job: Job, number: int) -> None:
        self._feed(job, Trigger.MATCH)
        job.planned = number
        job.error = ""
        self._save(job)
        self._news(job)
        self._settled(job, is_changed=False)

    def _save(self, job: Job) -> None:
        self.ledger.touched[job.source] = None
        if job.is_analysis:
            self.ledger.put("put_analysis", rows.analysis_row(job))
        else:
            self.ledger.put("put_job", rows.job_row(job))

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
        effect = feed(job, trigger)
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

    # ---------------------------------------------------------------------------------------------------------------- runs

    def _start(self, count: int) -> None:
        for _message in range(count):
            job = self.ready.peek()
            if job is None:
                return
            self.ledger.order(StartRuns(self.ledger.cause, tuple(self._batch(job))))

    def _batch(self, first: Job) -> list[AnalyseOrder | ProcessOrder | CopyOrder]:
        """Take jobs of one kind off the queue: as many small ones as belong into a message."""
        kind, limit = self._kind_of(first), self._batch_size(first)
        share = max(1, -(-len(self.ready) // (2 * self.project.workers)))
        orders: list[AnalyseOrder | ProcessOrder | CopyOrder] = []
        while len(orders) < min(limit, share):
            job = self.ready.peek()
            if job is None or self._kind_of(job) != kind:
                break
            self.ready.pop()
            job.run_key = RunKey(self.ledger.next_run_key())
            self._feed(job, Trigger.START)
            self.running[job.run_key] = job
            orders.append(self._order_for(job))
            self._news(job)
        return orders

    def _kind_of(self, job: Job) -> object:
        builder = self._builders[job.builder]
        if job.is_analysis:
            return "analyse"
        return "copy" if builder.kind is BuilderKind.COPY else job.builder

    def _batch_size(self, job: Job) -> int:
        builder = self._builders[job.builder]
        if builder.kind is BuilderKind.COPY:
            return _COPY_BATCH
        mean = self._mean_ms.get(job.builder + (b"a" if job.is_analysis else b"p"))
        return 1 if mean is None else max(1, min(_SMALL_BATCH, int(40 / (mean + 0.5))))

    def _order_for(self, job: Job) -> AnalyseOrder | ProcessOrder | CopyOrder:
        builder, source = self._builders[job.builder], job.source
        root = self._roots[source.scan_folder]
        if job.is_analysis:
            platforms = self.planner.platforms_of(builder, source.scan_folder)
            return AnalyseOrder(job.run_key, builder.name, root, source.rel, source.uuid, platforms, builder.analyse_limit_s)
        staging = f"{self._staging}/{job.run_key}"
        if builder.kind is BuilderKind.COPY:
            present = job.products[0].digest if len(job.products) == 1 and job.fingerprint and not job.is_forced else b""
            return CopyOrder(job.run_key, f"{root}/{source.rel}", staging, present)
        fact, plan = source.fact, job.plan
        assert fact is not None
        assert plan is not None
        return ProcessOrder(
            job.run_key, builder.name, root, source.rel, source.uuid, job.platform, job.key, plan.params, plan.additional_fingerprint,
            plan.priority, plan.is_critical, (fact.size, fact.mtime_ns, fact.ctime_ns, fact.inode), fact.digest, staging,
            builder.process_limit_s, builder.memory_limit_bytes, self.project.debug_output,
        )  # fmt: skip

    def _runs_finished(self, event: RunsFinished) -> None:
        succeeded: list[tuple[Job, RunResult]] = []
        for result in event.results:
            job = self.running.get(result.run_key)
            if job is None or job.run_key != result.run_key or job.state is not JobState.RUNNING:
                self.ledger.order(DiscardStaging(self.ledger.cause, (result.run_key,)))  # the fence
                continue
            del self.running[result.run_key]
            if result.outcome in _CAME_BACK:
                self._run_came_back(job, result, Outcome(result.outcome), event.now_ms)
            elif isinstance(result, AnalyseResult):
                self._analysed(job, result, event.now_ms)
            elif result.outcome == Outcome.SUCCEEDED:
                problem = self._result_problem(job, result)
                if problem is None:
                    succeeded.append((job, result))
                elif problem == "":
                    self._run_came_back(job, result, Outcome.STALE, event.now_ms)
                else:
                    self._failed(job, result, problem, event.now_ms)
            else:
                self.graph_discovered(job, result)
                self._failed(job, result, result.error or "it failed without saying why", event.now_ms)
        self._look_at_todo()  # so that an analysis and what it plans are saved together
        self._commit(succeeded, event.now_ms)

    def _result_problem(self, job: Job, result: RunResult) -> str | None:
        """Return None when the result may be committed, "" when it is of other bytes than planned, else why it fails."""
        fact = job.source.fact
        if fact is None or (result.source_digest and result.source_digest != fact.digest):
            return ""
        if any(product.flags & 2 for product in result.products):
            return "it made an intermediate, and intermediates are not supported yet: make it a product"
        return None

    def _run_came_back(self, job: Job, result: AnalyseResult | RunResult, outcome: Outcome, now_ms: int) -> None:
        """A run that says nothing about the job: it is owed again."""
        self.ledger.order(DiscardStaging(self.ledger.cause, (result.run_key,)))
        if outcome is Outcome.STALE:
            self._feed(job, Trigger.PLAN)
            job.planned = None
            self.memory.unstable.add(job.source.key)
            self._waiters.setdefault(job.source.key, {})[job] = None
            self._save(job)
            self.ledger.order(LookAgain(self.ledger.cause, (job.source.key,)))
            return
        if outcome is Outcome.LOST:
            job.lost_count += 1
            if job.lost_count > 1:
                self._failed(job, result, f"its worker died twice: {result.error}", now_ms)
                return
        self._feed(job, Trigger.LOST)
        self.ready.push(job)

    def _analysed(self, job: Job, result: AnalyseResult, now_ms: int) -> None:
        builder, source = self._builders[job.builder], job.source
        self._learn(job, result.duration_ms)
        self.counts["analysed"] += 1
        plans, edges, log = self._checked(job, builder, result)
        warnings = sum(1 for record in log if record.level == LogLevel.WARNING)
        job.warnings, job.errors = (warnings, sum(1 for record in log if record.level >= LogLevel.ERROR))
        job.duration_ms, job.completed_ms = result.duration_ms, now_ms
        self._write_log(job, builder, log, result.error)
        self.ledger.put("put_stat", (f"CreateJobs,{source.rel},{builder.name}", result.duration_ms, now_ms))
        if result.outcome != Outcome.SUCCEEDED:
            self._fail(job, result.error or "its analysis failed without saying why", now_ms)
            return
        before = self.memory.targets(source)
        edges_changed = job.edges != edges
        self._feed(job, Trigger.SUCCEED)
        self._feed(job, Trigger.COMMITTED)
        job.plans, job.edges, job.error, job.is_forced = plans, edges, "", False
        self.memory.reindex(source, before)
        self._apply(source, builder, plans)
        self._edges_due[source, builder.uuid] = None
        self._seal(job)
        self._news(job)
        if edges_changed:
            self._spread({source.key})
        self._settled(job, is_changed=False)

    def _seal(self, job: Job) -> None:
        """Record the analysis fingerprint over what the analysis itself declared, as soon as all of that is known."""
        builder = self._builders[job.builder]
        assembly = self.graph.analysis(job, self.planner.platforms_of(builder, job.source.scan_folder))
        if assembly.waits:
            job.fingerprint = 0
            for key in assembly.waits:
                self._waiters.setdefault(key, {})[job] = None
            self._hash(assembly.unread.items())
        else:
            job.fingerprint = job.planned = fingerprint.number(assembly.manifest)
            job.inputs = assembly.manifest
        self._save(job)

    def _checked(
        self, job: Job, builder: Builder, result: AnalyseResult
    ) -> tuple[tuple[JobPlan, ...], tuple[SourceEdge, ...], tuple[LogRecord, ...]]:
        """Return plans and edges without what cannot be, with a warning for each thing left out (spec/engine.md §3)."""
        log = list(result.log)
        enabled = {*self.planner.platforms_of(builder, job.source.scan_folder)}
        plans: dict[tuple[str, str], JobPlan] = {}
        for plan in result.plans:
            if plan.platform not in enabled:
                log.append(
                    self._warn(builder, f"job '{plan.key}' is for platform '{plan.platform}', which is not enabled here: left out")
                )
                continue
            known = [(self.graph.relative(item.source), item) for item in plan.job_dependencies]
            dependencies = tuple(sorted({_moved(item, key_of(RelPath(rel))) for rel, item in known if rel}))
            plans[plan.platform, plan.key] = JobPlan(
                plan.key, plan.platform, plan.priority, plan.is_critical, plan.additional_fingerprint, plan.params, dependencies
            )
        edges: dict[SourceEdge, None] = {}
        for edge in result.edges:
            if edge.kind is EdgeKind.UUID:
                edges[edge] = None
                continue
            rel = self.graph.relative(edge.target)
            if rel is None:
                log.append(self._warn(builder, f"dependency '{edge.target}' lies outside every scan folder: left out"))
            elif edge.kind is EdgeKind.WILDCARD and "*" not in rel:
                log.append(self._warn(builder, f"wildcard dependency '{edge.target}' has no '*': left out"))
            elif key_of(RelPath(rel)) != job.source.key:
                edges[SourceEdge(edge.kind, rel)] = None
        return tuple(plans.values()), tuple(sorted(edges)), tuple(log)

    @staticmethod
    def _warn(builder: Builder, text: str) -> LogRecord:
        return LogRecord(LogLevel.WARNING, builder.name, text, 0)

    # ------------------------------------------------------------------------------------------------------------- endings

    def _commit(self, finished: list[tuple[Job, RunResult]], now_ms: int) -> None:
        # An analysis that came with the same message may have dropped or planned anew what its jobs have done.
        succeeded = [(job, result) for job, result in finished if job.state is JobState.RUNNING and job.run_key == result.run_key]
        if not succeeded:
            return
        for job, result in succeeded:
            self.graph_discovered(job, result)
        order, lost, losers = self.commits.prepare(succeeded, now_ms, self._log_name, self._builders, self._folder_names)
        for job, result, text in lost:
            self._failed(job, result, text, now_ms, keeps_claims=True)
        for job in losers:
            self._todo.append((job, True))
        for job, result, log in order.ready:
            self._feed(job, Trigger.SUCCEED)
            self._committing[job.run_key] = (job, result)
            self._learn(job, result.duration_ms)
            if log:
                self.ledger.order(WriteLog(self.ledger.cause, job.log_file, log, job.warnings, job.errors))
        if order.deletes:
            self.ledger.order(DeleteProducts(self.ledger.cause, order.deletes, self.ledger.ticket))
        changed = [job for job, _result, _log in order.ready if self.commits.change(job).is_changed]
        for job in (*changed, *(job for job, _result, _text in lost)):
            for other in self._dependents_of(job):
                self._doubt(other)
        self._put_edges()
        self.ledger.flush_rows()
        if order.commits is not None:
            self.ledger.order(order.commits)

    def graph_discovered(self, job: Job, result: RunResult) -> None:
        """Put what a run found while processing into the manifest that its fingerprint will stand for."""
        if not result.discovered and not job.discovered:
            return
        found: dict[str, str] = {}
        for path, digest in result.discovered:
            rel = self.graph.relative(path)
            name: str = key_of(RelPath(rel)) if rel is not None else normalize(path)
            if name != job.source.key:
                found[name] = digest[:32]
        before = self.memory.targets(job.source)
        job.discovered = tuple(sorted(found.items()))
        job.planned_inputs = self.graph.with_discovered(job.planned_inputs, job.discovered)
        job.planned = fingerprint.number(job.planned_inputs)
        self.memory.reindex(job.source, before)
        self._edges_due[job.source, job.builder] = None
        unread = {}
        for name in found:
            fact = self.memory.file(PathKey(name)) if not name.startswith("/") else None
            if isinstance(fact, FileFact) and not fact.digest:
                unread[PathKey(name)] = fact
        self._hash(unread.items())

    def _products_committed(self, event: ProductsCommitted) -> None:
        for run_key in event.committed:
            job, result = self._committing.pop(run_key)
            self._feed(job, Trigger.COMMITTED)
            self.counts["run"] += 1
            self.counts["done"] += 1
            change = self.commits.committed(job)
            self.ledger.touched[job.source] = None
            gone = [name for name, digest in change.products if not digest]
            self._todo.extend((other, True) for other in self.commits.release_names(job, gone))
            if change.products:
                self.ledger.notices.append(ProductsChanged(self.ledger.cause, change.products))
            self._news(job, is_settled=True)
            self._settled(job, is_changed=change.is_changed)
            self._reprocess(job, result.reprocess)
        for run_key, text in event.failed:
            job, result = self._committing.pop(run_key)
            self._feed(job, Trigger.COMMIT_FAILED)
            strange = self.commits.undo(job)
            if strange:
                self.ledger.order(DeleteProducts(self.ledger.cause, strange, self.ledger.ticket))
            self._write_log(job, self._builders[job.builder], result.log, text)
            self._record_failure(job, text, event.durations_ms)

    def _failed(self, job: Job, result: AnalyseResult | RunResult, text: str, now_ms: int, *, keeps_claims: bool = False) -> None:
        builder = self._builders[job.builder]
        self.ledger.order(DiscardStaging(self.ledger.cause, (result.run_key,)))
        self._learn(job, result.duration_ms)
        job.duration_ms, job.completed_ms = result.duration_ms, now_ms
        warnings = sum(1 for record in result.log if record.level == LogLevel.WARNING)
        errors = sum(1 for record in result.log if record.level >= LogLevel.ERROR)
        job.warnings, job.errors = (max(warnings, getattr(result, "warnings", 0)), max(errors, getattr(result, "errors", 0), 1))
        self._write_log(job, builder, result.log, text)
        if not job.is_analysis:
            self.ledger.put("put_stat", (self._stat_name(job, builder), result.duration_ms, now_ms))
        self._fail(job, text, now_ms, keeps_claims=keeps_claims)

    def _fail(self, job: Job, text: str, now_ms: int, *, keeps_claims: bool = False) -> None:
        self._feed(job, Trigger.FAIL)
        self._record_failure(job, text, now_ms, keeps_claims=keeps_claims)

    def _record_failure(self, job: Job, text: str, now_ms: int, *, keeps_claims: bool = False) -> None:
        job.error, job.is_forced = text, False
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
                ),
            )
            gone = [product.name for product in job.products] if builder.deletes_products_on_failure else []
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

    def _learn(self, job: Job, duration_ms: int) -> None:
        index = job.builder + (b"a" if job.is_analysis else b"p")
        mean = self._mean_ms.get(index)
        self._mean_ms[index] = duration_ms if mean is None else mean * 0.9 + duration_ms * 0.1

    def _stat_name(self, job: Job, builder: Builder) -> str:
        folder = self._folder_names.get(job.source.scan_folder, "")
        return f"ProcessJob,{folder},{job.source.rel},{job.key},{job.platform},{{{builder.uuid.hex()}}}"

    # ----------------------------------------------------------------------------------------------------- what follows

    def _settled(self, job: Job, *, is_changed: bool) -> None:
        """A job came to rest: whoever waited for it is looked at, and if it changed, whoever depends on it."""
        key = job.source.key
        if key in self._waiters:
            self._wake(key)
        if is_changed:
            self._todo.extend((other, False) for other in self._dependents_of(job))

    def _movers_after(self, job: Job) -> list[Job]:
        """Return the jobs that started, or are about to, on the word of `job`, which does not rest any more."""
        key = job.source.key
        return [
            other
            for source in self.memory.moving_dependents(key)
            for other in source.jobs.values()
            if other.plan
            and any(
                dependency.source == key and (other.state is JobState.QUEUED or dependency.kind in _COVERING)
                for dependency in other.plan.job_dependencies
            )
            and other.state in (JobState.QUEUED, JobState.RUNNING)
        ]

    def _dependents_of(self, job: Job) -> list[Job]:
        if not self.memory.has_edges or job.is_analysis:
            return []
        key = job.source.key
        return [
            other
            for source in self.memory.load(sorted(self.memory.dependents((key,))))
            for other in source.jobs.values()
            if other.plan and any(dependency.source == key for dependency in other.plan.job_dependencies)
        ]

    def _wake(self, key: PathKey) -> None:
        for job in self._waiters.pop(key, {}):
            if job.is_analysis and job.state is JobState.COMPLETED and not job.fingerprint:
                self._reseal(job)
            elif job.state is JobState.WAITING or job.state is None:
                self._todo.append((job, False))

    def _reseal(self, job: Job) -> None:
        if job.source.jobs.get((job.builder, job.platform, job.key)) is job:
            self._seal(job)

    def _products_lost(self, names: Iterable[str]) -> None:
        owners = self.memory.archive.owners(list(names))
        lost: dict[PathKey, dict[int, set[str]]] = {}
        for name, (job_id, key) in owners.items():
            lost.setdefault(key, {}).setdefault(job_id, set()).add(name)
        for source in self.memory.load(sorted(lost)):
            for job in source.jobs.values():
                if job.id in lost[source.key] and not job.is_analysis and self._is_configured(job):
                    self.commits.lose(job, lost[source.key][job.id])
                    if job.state is JobState.RUNNING:  # it may have been told that the product is there
                        self._feed(job, Trigger.PLAN)
                        job.planned = None
                    self._force(job, "a product is missing from the cache")

    def _reprocess(self, job: Job, paths: Iterable[str]) -> None:
        """Run the jobs of sources that a builder named in its answer (spec/engine.md §6, sourcesToReprocess)."""
        for path in paths:
            rel = self.graph.relative(path)
            key = key_of(RelPath(rel)) if rel is not None else job.source.key
            if key != job.source.key:
                for source in self.memory.load((key,)):
                    for other in source.jobs.values():
                        self._force(other, f"asked for by '{job.source.rel}'")

    def _force(self, job: Job, reason: str) -> None:
        if not self._is_configured(job):
            return
        source = job.source
        found = self.memory.file(source.key)
        if found is None:
            return  # it differs only in case from another
        job.is_forced, job.reason = True, reason
        if isinstance(found, Unsettled):
            self._plan_later(source)
            return
        source.fact = found
        self._todo.append((job, True))

    def _asked(self, event: Asked) -> None:
        if event.verb == "reprocess":
            for source in self.memory.load(event.keys):
                for job in source.jobs.values():
                    self._force(job, "asked for by a person")
        elif event.verb == "cancel":
            self._cancel(event.job_ids)
        elif event.verb == "stop":
            self._stop()

    def _cancel(self, job_ids: Iterable[int]) -> None:
        wanted = set(job_ids)
        for source in list(self.memory.sources.values()):
            for job in source.jobs.values():
                if job.id in wanted and job.state not in SETTLED and job.state is not None:
                    self._feed(job, Trigger.CANCEL)
                    job.is_forced = False
                    job.planned = job.planned or _UNKNOWN
                    self._save(job)
                    self._settled(job, is_changed=True)

    def _stop(self) -> None:
        """Kill every run; what was running is owed again at the next start."""
        if self.running:
            self.ledger.order(KillRuns(self.ledger.cause, tuple(self.running)))
            self.ledger.order(DiscardStaging(self.ledger.cause, tuple(self.running)))
            self.running.clear()

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
            )
        )  # fmt: skip


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


def _is_same(asked: FileFact, found: FileFact) -> bool:
    """Whether the bytes that were read are those of the file as the scan last saw it."""
    return (asked.scan_folder, asked.rel, asked.size, asked.mtime_ns) == (found.scan_folder, found.rel, found.size, found.mtime_ns)


def _moved(dependency: JobDependency, key: PathKey) -> JobDependency:
    return JobDependency(key, dependency.key, dependency.platform, dependency.kind, dependency.sub_ids)
