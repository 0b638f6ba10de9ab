"""What a job is made of now, and whether it is owed a run for it. Why somebody asks, and how runs go, stands elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from aptui.core import fingerprint
from aptui.core.fingerprint import Manifest
from aptui.core.identity import legacy_of, names_of
from aptui.core.machine import Trigger
from aptui.core.messages import (
    SourcesChanged,
)
from aptui.core.model import (
    ANALYSIS_KEY,
    COMMON_PLATFORM,
    SETTLED,
    Builder,
    Job,
    JobPlan,
    JobState,
    PathKey,
    RelPath,
    RunKey,
    Source,
    SourceUuid,
)
from aptui.core.paths import is_below, key_of, parent, path_uuid
from aptui.core.pipeline.identities import Identities
from aptui.core.pipeline.jobs import UNKNOWN
from aptui.core.state.chains import CHAINS_END
from aptui.core.state.graph import Assembly
from aptui.core.state.working_set import Unsettled, brings_sources

_STALE_MOST = 10
"""Runs in a row whose source changed under them. A person who saves so often in a row during one run each would be rare."""
_ROUNDS_MOST = 20
"""Times in a row that one job makes other intermediates before it is said to feed on itself."""
_DEPENDENCY_ESCALATION = 50


class Plans(Identities):
    """Plans sources and considers jobs; whoever may have to be looked at again is put on `_todo`."""

    def _look_at_todo(self) -> None:
        while self._todo and not self._committing:  # what a commit leads to is known with the next event
            job, is_retry = self._todo.popleft()
            self._reconsider(job, is_retry=is_retry)
            if job.is_doubted:
                job.is_doubted = False
                if job.state in SETTLED:
                    self._save(job)

    def _end_chains(self) -> None:
        """When no chain can grow any more, what is missing is missing: look at whoever waited to know."""
        while CHAINS_END in self._waiters and self._are_chains_still() and not self._committing:
            self.memory.has_grown = True
            self._wake(CHAINS_END)
            self._look_at_todo()
            self.memory.has_grown = False

    def _are_chains_still(self) -> bool:
        """Whether nothing can bring a new source but those jobs that wait for just that."""
        memory, waiting = self.memory, self._waiters[CHAINS_END]
        if memory.awaited or memory.hashing or not memory.scan_is_done or memory.moving > len(waiting):
            return False
        return memory.moving <= sum(map(brings_sources, waiting))

    def _sharers(self, keys: set[PathKey]) -> set[PathKey]:
        """Return what has one of these files as a companion that it shares with others."""
        shared = [key for key in keys if self.graph.is_shared(key)]
        if not shared:
            return set()
        facts = {fact.key: fact for fact in self.memory.archive.files_below(PathKey(""))}
        for pending in self.memory.folders.values():
            facts.update(pending.winners)
        return {key for key, fact in facts.items() if any(self.graph.shares(each, fact.rel) for each in shared)}

    def _spread(self, keys: set[PathKey]) -> None:
        """These files are not what they were: plan all that depends on them, however far."""
        owners = {owner for key in keys for owner in self.graph.owners_of(RelPath(key))} | self._sharers(keys)
        affected: set[PathKey] = set(owners)
        edge = set(keys) | owners
        while (edge or self._renamed) and self.memory.has_edges:
            targets = [*edge, *(uuid.hex() for key in edge for uuid in self._uuids_of(key)), *self._renamed]
            self._renamed.clear()
            edge = self.memory.dependents(targets) - affected - keys
            affected |= edge
        self._plan_all(affected)

    def _uuids_of(self, key: PathKey) -> tuple[SourceUuid, ...]:
        """Return the UUIDs by which others may depend on `key`."""
        source = self.memory.view(key) if self.memory.has_identities else None
        return (path_uuid(key),) if source is None else (path_uuid(key), source.uuid, *legacy_of(source))

    def _look_at_identities(self) -> None:
        """Plan those whose name may be another now, and all that depends on them."""
        while self._identity_owed:
            owed, self._identity_owed = self._identity_owed, {}
            for source in self.memory.load(owed):
                self._plan(source)
        if self._renamed:
            self._spread(set())

    def _plan_all(self, keys: Iterable[PathKey]) -> None:
        """Plan these sources, those that the scan has still to come to when it does."""
        for source in self.memory.load(sorted(keys)):
            if not isinstance(self.memory.file(source.key), Unsettled):
                self._plan(source)
            elif source.key not in self.memory.hashing and source.key not in self.memory.unstable:
                self._plan_later(source)

    def _plan_later(self, source: Source) -> None:
        """Plan a source when the scan has come to its folder."""
        self._owed_retries.add(source.key)
        self._retry.setdefault(parent(source.key), set()).add(source.key)
        for job in [job for job in source.jobs.values() if job.is_analysis] or list(source.jobs.values()):
            self._doubt(job)

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
        matching = self.planner.builders_for(source.rel, source.scan_folder)
        builders = [builder for builder in matching if self.planner.platforms_of(builder, source)]
        wanted = {builder.uuid for builder in builders}
        for job in list(source.jobs.values()):
            if job.builder not in wanted and not self._rests(job):
                self._drop(job)
        if self._identify(source):
            self._save_source(source)
        problem = source.misidentity or self.settings.problem(source.key)
        if problem:
            self._fail_all(source, builders, problem)
            self._leave(source)
        else:
            self._plan_jobs(source, builders, is_retry=is_retry)
        if not matching:
            self._gone(source.key)

    def _plan_jobs(self, source: Source, builders: Iterable[Builder], *, is_retry: bool) -> None:
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
            self._apply(source, builder, self.planner.inline_plans(builder, source), is_retry=is_retry)

    def _leave(self, source: Source) -> None:
        """Nothing can be done for `source` now: what was owed to its jobs is not any more."""
        for job in source.jobs.values():
            job.is_forced = False
            if job.is_doubted:
                job.is_doubted = False
                self._save(job)

    def _gone(self, key: PathKey) -> None:
        self.memory.hashing.pop(key, None)
        self.memory.unstable.discard(key)
        self.memory.extra.pop(key, None)
        for source in self.memory.load((key,)):
            for job in list(source.jobs.values()):
                self._drop(job)
            self.ledger.drop("drop_source", (source.id,))
            self.memory.reindex(source, self.memory.targets(source))
            if self.memory.has_identities:
                self._renamed.update(uuid.hex() for uuid in (source.uuid, *legacy_of(source)))
                self._note_departure(source)
                self._let_go_of(source.uuid, source.key)
            self.memory.forget(source, self.ledger.ticket)
            self.ledger.touched.pop(source, None)
            self.ledger.notices.append(SourcesChanged(self.ledger.cause, ((source.rel, False),)))
        self._wake(key)

    def _fail_all(self, source: Source, builders: Iterable[Builder], text: str) -> None:
        """Fail the analysis of each of `builders`, and every job that is owed a run."""
        for builder in builders:
            self._auto_fail(self._analysis_of(source, builder), text)
        for job in list(source.jobs.values()):
            if not self._is_configured(job):
                if not self._rests(job):
                    self._drop(job)
            elif job.state not in SETTLED or job.is_forced:
                self._auto_fail(job, text)

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
            return any(self.memory.has_dependents(PathKey(name)) for name in names_of(job.source))
        return job.plan.job_dependencies != plan.job_dependencies

    def _reconsider(self, job: Job, *, is_retry: bool) -> None:
        if job.source.jobs.get((job.builder, job.platform, job.key)) is not job or job.source.trouble:
            return  # dropped meanwhile
        if not self._is_configured(job):
            return  # not of this configuration: it goes when its source is planned, or it is left alone
        problem = job.source.misidentity or self.settings.problem(job.source.key)
        if problem:
            if job.is_analysis or job.state not in SETTLED or job.is_forced:
                self._auto_fail(job, problem)
            job.is_forced = False
        elif job.is_analysis:
            self._consider_analysis(job, is_retry=is_retry)
        else:
            self._consider(job, is_retry=is_retry)

    def _consider_analysis(self, job: Job, *, is_retry: bool) -> None:
        builder = self._builders[job.builder]
        assembly = self.graph.analysis(job, self.planner.platforms_of(builder, job.source))
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
        if job.state is JobState.CANCELLED and job.planned == UNKNOWN:
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
        job.reason = self._reason(job, number, manifest)
        self._hold_back(job)
        self._feed(job, Trigger.PLAN)
        job.planned, job.planned_inputs, job.lost_count = number, manifest, 0
        self._feed(job, Trigger.UNBLOCK)
        if job.stale_count >= _STALE_MOST:
            self._give_up(job, f"its source changed under each of {job.stale_count} runs: does the job itself write it?")
            return
        if self._rounds[job.id] >= _ROUNDS_MOST:
            self._give_up(job, f"it made other intermediates in each of {_ROUNDS_MOST} runs: is it made of what is made of it?")
            return
        self.ready.push(job)
        self._say_rule(job)
        self._save(job)
        self._news(job)

    def _give_up(self, job: Job, text: str) -> None:
        """Fail a job that may never end: what it is planned for stands, so that only another change of its source tries it again."""
        job.run_key = RunKey(self.ledger.next_run_key())
        self._feed(job, Trigger.START)
        job.warnings, job.errors = 0, 1
        self._write_log(job, self._builders[job.builder], (), text)
        self._fail(job, text, 0)

    def _reason(self, job: Job, number: int, manifest: Manifest) -> str:
        if job.is_forced:
            return job.reason or "asked for"
        if not job.inputs:
            if job.state is JobState.FAILED:
                is_same = job.planned in (None, number)
                return "tried again: it failed before" if is_same else "something it is made of changed since it failed"
            return "new source" if not job.fingerprint else job.reason or "not recorded"
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

    def _spread_settings(self, folder: str, builders: frozenset[bytes]) -> None:
        """Plan all sources below `folder` that one of `builders` wants."""
        if not builders:
            return
        facts = {fact.key: fact for fact in self.memory.archive.files_below(PathKey(f"{folder}/" if folder else ""))}
        for pending in self.memory.folders.values():
            facts.update((key, fact) for key, fact in pending.winners.items() if is_below(key, folder))
        self._plan_all(
            key
            for key, fact in facts.items()
            if any(builder.uuid in builders for builder in self.planner.builders_for(fact.rel, fact.scan_folder))
        )

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
