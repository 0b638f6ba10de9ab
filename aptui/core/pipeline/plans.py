"""Plans jobs: finds the present inputs of each job, and decides whether the job needs a run. Other modules start runs.

Tests: `tests/core/pipeline/test_configuration.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import assert_never

from aptui.core import fingerprint, quality
from aptui.core.fingerprint import Manifest
from aptui.core.identity import legacy_of, names_of
from aptui.core.machine import Trigger
from aptui.core.model import ANALYSIS_KEY, SETTLED, Job, JobPlan, JobState, PathKey, Source
from aptui.core.notices import SourcesChanged
from aptui.core.pipeline.failures import Failures
from aptui.core.pipeline.identities import Identities
from aptui.core.pipeline.jobs import UNKNOWN, Jobs, PipelinePart, Retries
from aptui.core.project import COMMON_PLATFORM, Builder
from aptui.core.retry import ENDLESS
from aptui.core.state.chains import CHAINS_END, ChainFeedback
from aptui.core.state.graph import Assembly
from aptui.core.state.working_set import Unsettled, may_add_sources, targets_of

# `Reasons` explains in words why a job needs a run.

_OF_ANALYSES = frozenset({"rule", "source", "dependency", "companion"})
"""Kinds of manifest entries that an analysis has in common with the jobs that it plans."""
RETRIED = "its previous run failed"
PLANNED = "parameters of its analysis changed"


class Reasons(PipelinePart):
    """Compares the present inputs of a job with those of its last run."""

    def __init__(self, jobs: Jobs, failures: Failures) -> None:
        super().__init__(jobs)
        self._failures = failures
        self._saved_rules: set[str] = set()

    def reason(self, job: Job, manifest: Manifest) -> str:
        """Return why `job` needs a run with the inputs in `manifest`."""
        if job.is_forced:
            return job.reason or "requested"
        failure = job.failure
        if failure is not None and (failure.inputs or failure.settings):
            now = (*manifest, *self._failures.list_settings_now(job))
            return self._explain(job, (*failure.inputs, *failure.settings), now) or RETRIED
        if job.state is JobState.FAILED or (failure is not None and not failure.committed):
            return RETRIED
        if job.is_analysis and not job.inputs and job.fingerprint:
            return self._explain_analysis(job, manifest) or job.reason or "not recorded"
        if not job.inputs:
            return "new source" if not job.fingerprint else job.reason or "not recorded"
        before = quality.as_final(job.inputs)
        if before == quality.as_final(manifest) and job.is_draft and manifest == quality.as_final(manifest) and not job.error:
            return "the final products follow the draft"
        return self._explain(job, job.inputs, manifest) or "products are missing"

    def _explain_analysis(self, job: Job, now: Manifest) -> str:
        """Return why the analysis of a known source runs again.

        Its own inputs are not stored, so the inputs of the jobs that it planned are compared.
        """
        planned = (other.inputs for other in job.source.jobs.values() if other.builder == job.builder)
        before = tuple({entry: None for inputs in planned for entry in inputs if entry[0] in _OF_ANALYSES})
        shared = tuple(entry for entry in now if entry[0] in _OF_ANALYSES)
        text = self._explain(job, before, shared) if before else ""
        is_planned = any(entry[0] == fingerprint.PLANNING for entry in now)
        return text or (PLANNED if is_planned else "")

    def _explain(self, job: Job, before: Manifest, now: Manifest) -> str:
        """Return the inputs in which two manifests of `job` differ, in words, "" if they are equal."""
        before, now = _differing(quality.as_final(before), quality.as_final(now))
        old, new = self._expand(job, before), self._expand(job, now)
        # A "rule" entry is only the digest of a builder's configuration. If the old configuration is no longer stored, the changed
        # part is unknown, so the result only says that the configuration changed.
        if any(kind == "rule" for kind, _name, _digest in old):
            old, new = before, now
        return fingerprint.explain(old, new)

    def _expand(self, job: Job, manifest: Manifest) -> Manifest:
        """Replace the entry "rule" (the digest of a builder's configuration) by one entry for each part of the configuration.

        The differences of two manifests then name the part that changed.
        """
        if not manifest or manifest[0][0] != "rule":
            return manifest
        builder = self._builders.get(job.builder)
        expanded: list[tuple[str, str, str]] = []
        for entry in manifest:
            if entry[0] != "rule":
                expanded.append(entry)
                continue
            now = self._graph.rule(builder, job.platform) if builder and job.platform else None
            stored = now[1] if now and now[0] == entry else fingerprint.load(self._memory.archive.state("rule:" + entry[2]))
            expanded.extend(stored or (entry,))
        return tuple(expanded)

    def save_rule(self, builder: Builder, platform: str) -> None:
        """Save the parts of a builder's configuration; their key is the digest of the manifest entry "rule".

        A later engine can then name a changed part.
        """
        if not platform:
            return
        entry, expansion = self._graph.rule(builder, platform)
        if entry[2] not in self._saved_rules:
            self._saved_rules.add(entry[2])
            self._ledger.put("put_state", ("rule:" + entry[2], fingerprint.dump(expansion)))


def _differing(before: Manifest, now: Manifest) -> tuple[Manifest, Manifest]:
    """Return, for each of two manifests, the entries that the other manifest does not have."""
    same = set(before).intersection(now)
    return tuple(entry for entry in before if entry not in same), tuple(entry for entry in now if entry not in same)


_Answer = tuple[tuple[JobPlan, ...], int]
"""Result of an analysis: (plans of its jobs, time of its end in milliseconds since the epoch)."""


class SharedAnswers(PipelinePart):
    """Answers that hold for all sources (`sdk.same_for_all_sources`). An analysis for which an answer is stored needs no run."""

    def __init__(self, jobs: Jobs) -> None:
        super().__init__(jobs)
        self._answers: dict[tuple[bytes, tuple[str, ...], str], _Answer] = {}
        """{(builder, platforms, settings): answer}."""

    def keep(self, job: Job, builder: Builder) -> None:
        """Keep the answer of a finished analysis; queued analyses of the same builder are evaluated again."""
        question = self._question(job, builder)
        if question not in self._answers:
            self._answers[question] = job.plans, job.completed_ms
            self._todo.extend((other, False) for other in self._ready if other.is_analysis and other.builder == job.builder)

    def find(self, job: Job, builder: Builder) -> _Answer | None:
        """Return the answer for an analysis, None if a worker has to do it."""
        if not self._answers or job.state not in _MAY_SHARE or job.is_forced or job.failure is not None:
            return None
        if job.edges or job.log_file or any(plan.job_dependencies for plan in job.plans):
            return None  # only a run can replace the edges, log or job dependencies of the previous analysis
        return self._answers.get(self._question(job, builder))

    def _question(self, job: Job, builder: Builder) -> tuple[bytes, tuple[str, ...], str]:
        settings = self._settings.adjustment(job.source.key, builder).order
        return builder.uuid, self._planner.platforms_of(builder, job.source), settings


_MAY_SHARE = frozenset({None, JobState.WAITING, JobState.QUEUED, JobState.COMPLETED})


# A builder that supports drafts makes two results: a quick draft when an input changes, and the final result (the *final*) later.
# While a job has made only its draft, its final is *pending*, and clients get the draft. When no other work is left, jobs with
# pending finals are *due*: they are planned again. If an input changes before that, the job makes a new draft first.
#
# The inputs of a final are finals. So a job is not due while one of its inputs has a pending final, and an input that changes from
# draft to final causes no new draft. A chain of jobs therefore makes each draft and each final once. There is one exception: a job
# may be unable to make its final, for example because its platform is disabled. Then the jobs that depend on it use its draft.
#
# Pending finals are not stored. A job has a pending final if its committed manifest is the manifest of a draft, so the next
# engine finds the job even after a crash. When all finals are made, no product depends on a draft any more.

_FINALS_MOST = 256
"""Maximum number of sources whose jobs are planned together to make their final result."""
_PLANNED = frozenset({JobState.QUEUED, JobState.RUNNING, JobState.COMMITTING, JobState.FAILED, JobState.CANCELLED})
_IN_FLIGHT = frozenset({JobState.QUEUED, JobState.RUNNING})


class Drafts(PipelinePart):
    """Chooses whether a job makes its draft or its final, and lists the jobs whose final is pending."""

    def __init__(self, jobs: Jobs) -> None:
        super().__init__(jobs)
        self._makes_finals = jobs.project.makes_finals
        self._pending: dict[PathKey, None] = {}
        if self._makes_finals and any(builder.has_drafts for builder in jobs.project.builders):
            self._pending = dict.fromkeys(jobs.memory.archive.drafts())
        self._held: dict[PathKey, None] = {}
        """Sources of jobs that could not make their final products yet, because some of their inputs were drafts."""
        self._has_moved = self._takes_any = False
        """`_has_moved`: whether a run for final products was planned since `_held` was last emptied to try its jobs again.

        `_takes_any`: whether a job may make its final products although some of its inputs are drafts. This is allowed if all
        jobs with sources in `_held` were tried, and none of them could be planned.
        """

    def mark_pending(self, job: Job) -> None:
        """Record that `job` has made its draft and that its final is pending."""
        if self._makes_finals:
            self._pending[job.source.key] = None
            self._takes_any = False

    def choose(self, job: Job, number: int, assembly: Assembly) -> tuple[int, Manifest]:
        """Return the pair (fingerprint, manifest) for the next run of `job`, a run for draft or final products.

        `number` is the fingerprint of a run that makes final products, and `assembly.manifest` is the manifest of this run.
        """
        final = number, assembly.manifest
        is_due, job.is_due = job.is_due, False
        if job.fingerprint == number and (self._makes_finals or not job.is_forced):
            return final
        manifest = quality.as_draft(assembly.manifest)
        draft = fingerprint.number(manifest), manifest
        if not self._makes_finals:
            return draft
        if job.state in _PLANNED and job.planned == number and not job.is_forced:
            return final
        if job.fingerprint == draft[0]:
            return final if is_due and not job.is_forced and self._may_follow(job, assembly) else draft
        is_overtaken = bool(job.fingerprint) and not assembly.has_drafts and job.is_draft and not job.is_forced
        if is_overtaken and quality.differs_by_jobs(job.inputs, assembly.manifest, assembly.finals):
            return final
        return draft

    def _may_follow(self, job: Job, assembly: Assembly) -> bool:
        if assembly.has_drafts and not self._takes_any:
            self._held[job.source.key] = None
            return False
        self._has_moved = True
        return True

    def blocks_with_final(self, blocker: Job, job: Job) -> bool:
        """Whether the final run of `blocker` is put off, because the new or edited `job` can start with the draft of `blocker`."""
        if not blocker.is_draft or blocker.state not in _IN_FLIGHT or job.is_due:
            return False
        fact = job.source.fact
        if job.is_draft and fact is not None and fingerprint.file_digest(fact.digest) in (entry[2] for entry in job.inputs):
            return False
        return fingerprint.number(quality.as_draft(blocker.planned_inputs)) == blocker.fingerprint

    def list_due(self) -> list[Job]:
        """Return the jobs that must make their final result now, for the caller to evaluate; [] while other work is pending."""
        while (self._pending or self._held) and self._is_quiet():
            if not self._pending:
                if self._running:  # running jobs may still replace drafts that are inputs of the held jobs
                    return []
                self._pending, self._held = self._held, {}
                self._takes_any, self._has_moved = not self._has_moved, False
            keys = list(islice(self._pending, _FINALS_MOST))
            for key in keys:
                del self._pending[key]
            if due := [job for key in keys for job in self._due(key)]:
                return due
        return []

    def _due(self, key: PathKey) -> list[Job]:
        fact = self._memory.file(key)
        if fact is None or isinstance(fact, Unsettled):
            return []
        jobs = []
        for source in self._memory.load((key,)):
            source.fact = fact
            jobs += [job for job in source.jobs.values() if job.is_draft and job.state is JobState.COMPLETED]
        due = [job for job in jobs if self._jobs.is_configured(job) and self._builders[job.builder].has_drafts]
        for job in due:
            job.is_due = True
        return due

    def _is_quiet(self) -> bool:
        """Whether no work is pending, except running jobs that replace their drafts by final products."""
        jobs, memory = self._jobs, self._memory
        is_pending = len(jobs.ready) or jobs.todo or jobs.committing or memory.hashing or memory.awaited or memory.unstable
        return not is_pending and memory.scan_is_done and all(job.is_finishing for job in jobs.running.values())


_STALE_MOST = 10
"""Maximum number of runs in a row during which the source changed. A user rarely saves a source in each of several runs."""
_ROUNDS_MOST = 20
"""Maximum number of times in a row that one job makes changed intermediates.

A job that exceeds this limit is assumed to process its own intermediates.
"""
_DEPENDENCY_ESCALATION = 50


class Plans(PipelinePart):
    """Plans sources and evaluates jobs; jobs to be evaluated later are put on `todo`."""

    def __init__(self, jobs: Jobs, failures: Failures, identities: Identities) -> None:
        super().__init__(jobs)
        self.retries = Retries()
        self.feedback = ChainFeedback(jobs.memory, {builder.uuid: builder.name for builder in jobs.project.builders}, jobs.running)
        self.drafts = Drafts(jobs)
        self.answers = SharedAnswers(jobs)
        self._failures = failures
        self._identities = identities
        self.reasons = Reasons(jobs, failures)
        self._rounds: Counter[int] = Counter()
        """{job id: how often the job made changed intermediates since everything was settled}."""

    def count_round(self, job: Job) -> None:
        """Add one to the number of times that `job` made intermediates that differ from its earlier intermediates."""
        self._rounds[job.id] += 1

    def forget_rounds(self) -> None:
        """Reset the counts of changed intermediates: everything is settled, so no chain of intermediates is running in a circle."""
        self._rounds.clear()

    def evaluate_todo(self) -> None:
        """Evaluate the jobs and sources in `todo` until none is left, or until a commit is in progress."""
        while self._todo and not self._committing:  # the next event reports the effects of the commit
            job, is_retry = self._todo.popleft()
            self._reconsider(job, is_retry=is_retry)
            if job.is_doubted:
                job.is_doubted = False
                if job.state in SETTLED:
                    self._jobs.save(job)

    def end_chains(self) -> None:
        """If no job can make another intermediate, evaluate the jobs that wait for missing intermediates.

        If no work is pending, the jobs that wait for many keys are evaluated first.
        """
        if self._jobs.is_idle and not self._todo:
            self._jobs.wake_deferred()
            self.evaluate_todo()
        while CHAINS_END in self._waiters and self._are_chains_still() and not self._committing:
            self._memory.has_grown = True
            self._jobs.wake(CHAINS_END)
            self.evaluate_todo()
            self._memory.has_grown = False

    def _are_chains_still(self) -> bool:
        """Whether no job can add a source any more, except jobs that wait for the end of all chains."""
        memory, waiting = self._memory, self._waiters.of(CHAINS_END)
        if memory.awaited or memory.hashing or not memory.scan_is_done or memory.moving > len(waiting):
            return False
        return memory.moving <= sum(map(may_add_sources, waiting))

    def plan_all(self, keys: Iterable[PathKey]) -> None:
        """Plan these sources. A source that the scan has not reached yet is planned when the scan reaches its folder."""
        for source in self._memory.load(sorted(keys)):
            if not isinstance(self._memory.file(source.key), Unsettled):
                self.plan(source)
            elif source.key not in self._memory.hashing and source.key not in self._memory.unstable:
                self.plan_later(source)

    def plan_later(self, source: Source) -> None:
        """Plan a source when the scan has reached its folder."""
        self.retries.schedule([source.key])
        for job in [job for job in source.jobs.values() if job.is_analysis] or list(source.jobs.values()):
            self._jobs.doubt(job)

    def plan(self, source: Source) -> None:
        """Evaluate all jobs of `source` by its builders; drop the jobs of other builders."""
        if source.fact is None:
            found = self._memory.file(source.key)
            if isinstance(found, Unsettled):
                return
            source.fact = found
        if source.trouble or source.fact is None:
            self._cancel_requested(source)
            return
        if not source.fact.digest:
            self._jobs.hash(((source.key, source.fact),))
            return
        is_retry = self.retries.pop(source.key)
        matching = self._planner.builders_for(source.rel, source.scan_folder)
        builders = [builder for builder in matching if self._planner.platforms_of(builder, source)]
        wanted = {builder.uuid for builder in builders}
        for job in list(source.jobs.values()):
            if job.builder not in wanted and not self._jobs.is_at_rest(job):
                self._jobs.drop(job)
        if self._identities.identify(source):
            self._jobs.save_source(source)
        problem = source.misidentity or self._settings.problem(source.key)
        if problem:
            self.fail_all(source, builders, problem)
            self._cancel_requested(source)
        else:
            self._plan_jobs(source, builders, is_retry=is_retry)
        if not matching:
            self.remove_unwanted(source.key)

    def _plan_jobs(self, source: Source, builders: Iterable[Builder], *, is_retry: bool) -> None:
        for builder in builders:
            if builder.needs_analysis:
                self._todo.append((self._analysis_of(source, builder), is_retry))
                if is_retry:
                    self.retries.after_analysis.add((source.key, builder.uuid))
                continue
            stale = source.jobs.get((builder.uuid, "", ANALYSIS_KEY))
            if stale is not None:
                self._jobs.drop(stale)
            self.apply(source, builder, self._planner.inline_plans(builder, source), is_retry=is_retry)

    def _cancel_requested(self, source: Source) -> None:
        """Cancel the requested runs of `source`, because none of its jobs can run now."""
        for job in source.jobs.values():
            job.is_forced = False
            if job.is_doubted:
                job.is_doubted = False
                self._jobs.save(job)

    def remove_unwanted(self, key: PathKey) -> None:
        """Remove the source at `key`, which no builder processes now, unless it has jobs of platforms that are not requested."""
        jobs = (job for source in self._memory.load((key,)) for job in source.jobs.values())
        if not any(map(self._jobs.is_at_rest, jobs)):
            self.remove_source(key)

    def remove_source(self, key: PathKey) -> None:
        """Remove the source at `key`, whose file is deleted or is not a source any more, with all its jobs."""
        self._memory.hashing.pop(key, None)
        self._memory.unstable.discard(key)
        self._memory.newer.facts.pop(key, None)
        for source in self._memory.load((key,)):
            for job in list(source.jobs.values()):
                self._jobs.drop(job)
            self._ledger.drop("drop_source", (source.id,))
            self._memory.edges.renew(source, targets_of(source))
            if self._memory.has_identities:
                self._identities.note_renamed((source.uuid, *legacy_of(source)))
                self._identities.note_departure(source)
                self._identities.release_uuid(source.uuid, source.key)
            self._memory.forget(source, self._ledger.ticket)
            self._ledger.touched.pop(source, None)
            self._ledger.notices.append(SourcesChanged(self._ledger.cause, ((source.rel, False),)))
        self._jobs.wake(key)

    def fail_all(self, source: Source, builders: Iterable[Builder], text: str) -> None:
        """Fail the analysis of each of `builders`, and every job that needs a run."""
        for builder in builders:
            self._failures.refuse(self._analysis_of(source, builder), text)
        for job in list(source.jobs.values()):
            if not self._jobs.is_configured(job):
                if not self._jobs.is_at_rest(job):
                    self._jobs.drop(job)
            elif job.state not in SETTLED or job.is_forced:
                self._failures.refuse(job, text)

    def _analysis_of(self, source: Source, builder: Builder) -> Job:
        index = (builder.uuid, "", ANALYSIS_KEY)
        job = source.jobs.get(index)
        if job is None:
            job = source.jobs[index] = Job(source, builder.uuid, "", ANALYSIS_KEY)
        return job

    def apply(self, source: Source, builder: Builder, plans: tuple[JobPlan, ...], *, is_retry: bool = False) -> None:
        """Create, update and drop jobs of (source, builder) so that they are the jobs of `plans`."""
        before = targets_of(source) if self._memory.edges.has_any or builder.needs_analysis else set()
        named: set[tuple[bytes, str, str]] = set()
        for plan in plans:
            index = (builder.uuid, plan.platform, plan.key)
            named.add(index)
            job = source.jobs.get(index)
            if job is None:
                job = source.jobs[index] = Job(source, builder.uuid, plan.platform, plan.key, next(self._ledger.job_ids))
                if self._is_new_by_folder(job):
                    self._memory.unsaved.mark_new(job)
            if self._memory.edges.has_any and self._may_change_cycles(job, plan):
                self._graph.forget_cycles()
            has_new_mark = job.is_critical != plan.is_critical and job.state in SETTLED and not job.is_unsaved
            job.plan = plan
            job.priority, job.is_critical = plan.priority, plan.is_critical
            if has_new_mark:
                self._jobs.save(job)
                self._reports.report(job, is_settled=True, is_run=False)
            self._todo.append((job, is_retry))
        if len(source.jobs) > len(named):
            for index, job in list(source.jobs.items()):
                if job.builder == builder.uuid and index not in named and not job.is_analysis and not self._jobs.is_at_rest(job):
                    self._jobs.drop(job)
        if builder.needs_analysis or before:
            self._memory.edges.renew(source, before)

    def _may_change_cycles(self, job: Job, plan: JobPlan) -> bool:
        """Whether the new plan of `job` may change the cycles of known jobs."""
        if job.plan is None:
            return self._memory.has_dependents(names_of(job.source))
        return job.plan.job_dependencies != plan.job_dependencies

    def _reconsider(self, job: Job, *, is_retry: bool) -> None:
        """Evaluate a job, unless its source is still being read, or the job cannot run at all."""
        if job.source.jobs.get((job.builder, job.platform, job.key)) is not job or job.source.trouble:
            return  # an earlier evaluation dropped the job, or its source cannot be analysed
        if not self._jobs.is_configured(job):
            # The builder or the platform of the job is not configured. The job is dropped when its source is planned, or stays
            # unchanged.
            return
        key = job.source.key
        # The source is being read, or is still changing, so a run that starts now could use old bytes.
        if key in self._memory.hashing or key in self._memory.unstable:
            self._waiters.add(key, job)
            return
        problem = job.source.misidentity or self._settings.problem(job.source.key)
        if problem:
            if job.is_analysis or job.state not in SETTLED or job.is_forced:
                self._failures.refuse(job, problem)
            job.is_forced = False
        elif job.is_analysis:
            self._consider_analysis(job, is_retry=is_retry)
        else:
            self._consider(job, is_retry=is_retry)

    def _consider_analysis(self, job: Job, *, is_retry: bool) -> None:
        """Evaluate an analysis: complete it without a run, queue a run, or make it wait."""
        builder = self._builders[job.builder]
        assembly = self._graph.analysis(job, self._planner.platforms_of(builder, job.source))
        if assembly.waits:
            self._wait(job, assembly)
            return
        number = fingerprint.number(assembly.manifest)
        if job.fingerprint == number and not job.is_forced and job.state is not None and job.state is not JobState.FAILED:
            if job.state is not JobState.COMPLETED:
                self._match(job, number)
            self.apply(job.source, builder, job.plans, is_retry=self.retries.pop_analysis(job) or is_retry)
        elif (answer := self.answers.find(job, builder)) is not None:
            self._use_answer(job, answer, number, assembly.manifest)
            self.apply(job.source, builder, job.plans, is_retry=self.retries.pop_analysis(job) or is_retry)
        elif self._needs_run(job, number, is_retry=is_retry):
            self._queue_run(job, number, assembly.manifest)

    def _consider(self, job: Job, *, is_retry: bool) -> None:
        """Evaluate a job: complete it without a run, queue a run, or make it wait."""
        assert job.plan is not None
        problem = self._problem_of(job)
        if problem:
            self._failures.refuse(job, problem)
            return
        assembly = self._graph.job(job)
        job.misses_dependency, job.cycle = assembly.misses_dependency, assembly.cycle
        if assembly.waits:
            self._wait(job, assembly)
            return
        number, manifest = fingerprint.number(assembly.manifest), assembly.manifest
        if self._builders[job.builder].has_drafts:
            number, manifest = self.drafts.choose(job, number, assembly)
        if job.state is JobState.CANCELLED and job.planned == UNKNOWN:
            job.planned = number
            self._jobs.save(job)
        is_blocked = bool(self._jobs.find_block(job, job.products))
        if job.fingerprint == number and not job.is_forced and not is_blocked and self._may_match(job, number):
            self._match(job, number)
        elif self._needs_run(job, number, is_retry=is_retry) or (is_blocked and job.state is JobState.COMPLETED):
            self._queue_run(job, number, manifest)

    @staticmethod
    def _may_match(job: Job, number: int) -> bool:
        """Whether a job whose inputs equal those of its last committed run can be completed without a run.

        It cannot if a later run failed with the same inputs.
        """
        if job.state is JobState.FAILED:
            return job.planned != number
        return job.state in (JobState.WAITING, JobState.QUEUED, JobState.RUNNING)

    def _needs_run(self, job: Job, number: int, *, is_retry: bool) -> bool:
        """Whether a run is needed and not already in progress."""
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
                is_other = job.planned != number or job.is_forced or self._failures.is_by_other_settings(job)
                return is_other or (is_retry and self._failures.may_retry(job))
            case JobState.CANCELLED:
                return job.planned != number or job.is_forced
            case _:
                assert_never(job.state)

    def _problem_of(self, job: Job) -> str:
        """Return why a job can never run as declared, "" if it can run.

        Each dependency must be on the job's platform or `common`.
        """
        assert job.plan is not None
        for dependency in job.plan.job_dependencies:
            if dependency.platform not in (job.platform, COMMON_PLATFORM):
                return (
                    f"its job dependency on '{dependency.source}' has platform '{dependency.platform}'; "
                    f"it can only have '{job.platform}' or '{COMMON_PLATFORM}'"
                )
        return ""

    def _wait(self, job: Job, assembly: Assembly) -> None:
        """Make `job` wait until all missing parts of its manifest are known."""
        self._waiters.add_all(assembly.waits, job)
        if assembly.unread:
            self._jobs.hash(assembly.unread.items())
        interest = self._ready.interest.of(job.source.key)
        for blocker in assembly.blockers:
            if interest and self._ready.interest.note(blocker.source.key, interest) and blocker.state is JobState.QUEUED:
                self._ready.push(blocker)
            if (job.is_critical or job.escalation) and blocker.escalation < max(job.escalation, _DEPENDENCY_ESCALATION):
                blocker.escalation = max(job.escalation, _DEPENDENCY_ESCALATION)
                if blocker.state is JobState.QUEUED:
                    self._ready.push(blocker)
        if not (job.state is JobState.WAITING and job.planned is None):
            self._jobs.hold_back(job)
            self._jobs.feed(job, Trigger.BLOCK if job.state is JobState.QUEUED else Trigger.PLAN)
            job.planned, job.planned_inputs = None, ()
            self._jobs.save(job)
        for blocker in assembly.blockers:
            if self.drafts.blocks_with_final(blocker, job):
                self._match(blocker, blocker.fingerprint)

    def _queue_run(self, job: Job, number: int, manifest: Manifest) -> None:
        """Queue a run of `job` with this fingerprint; it starts when a slot is free."""
        job.set_reason(self.reasons.reason(job, manifest))
        self._jobs.hold_back(job)
        was_current = job.state is JobState.COMPLETED and not job.is_forced and self._is_new_by_folder(job)
        job.planned, job.planned_inputs, job.tried = number, manifest, ()
        problem = self._endless(job)
        if problem:
            self._failures.give_up(job, problem, ENDLESS)
            return
        self._jobs.feed(job, Trigger.PLAN)
        self._jobs.feed(job, Trigger.UNBLOCK)
        if not self._jobs.use_copy(job):
            self._ready.push(job)
        self.reasons.save_rule(self._builders[job.builder], job.platform)
        if was_current:
            self._memory.unsaved.mark_outdated(job)
        self._jobs.save_plan(job)
        if job.is_finishing:
            self._ledger.put("put_draft", (job.id, number))
        self._reports.report(job)

    def _is_new_by_folder(self, job: Job) -> bool:
        """Whether the source is the only input of the job.

        The row of a new job of this kind may be saved late: if the engine ends before, the row of the source's folder is not saved
        either, so the next engine checks the source again.
        """
        return self._builders[job.builder].is_plain_copy and job.platform != COMMON_PLATFORM

    def _endless(self, job: Job) -> str:
        """Return why another run of `job` would fail like the previous runs, "" if another run may succeed."""
        if job.stale_count >= _STALE_MOST:
            what = (job.ties.changed if job.ties is not None else "") or f"its source '{job.source.rel}'"
            return f"{what} changed during each of {job.stale_count} runs; check whether the job itself writes it"
        count = self.feedback.count(job.source) if job.platform == COMMON_PLATFORM else 0
        if count >= _STALE_MOST:
            writer = self.feedback.writer(job.source)
            what = f"its source '{job.source.rel}' changed during each of {count} runs of the jobs that process it"
            return f"{what}; the job {writer} depends on this source: check whether that job also writes the source"
        if self._rounds[job.id] >= _ROUNDS_MOST:
            return (
                f"its intermediate products differed in each of {_ROUNDS_MOST} runs; check whether it depends on its own products"
            )
        return ""

    def _match(self, job: Job, number: int) -> None:
        """Complete `job` without a run, because it has the inputs of its last committed run; restore the reason of that run."""
        if job.id:
            reason, origin = self._memory.archive.reason_of(job.id)
            job.set_reason(reason or "not recorded")
            job.origin = origin
        self._jobs.feed(job, Trigger.MATCH)
        job.planned, was_failed = number, bool(job.error)
        self._failures.restore_run(job)
        self._jobs.save(job)
        self._reports.report(job, is_settled=was_failed, is_run=False)
        self._jobs.note_settled(job, is_changed=False)
        if job.is_draft:
            self.drafts.mark_pending(job)

    def _use_answer(self, job: Job, answer: _Answer, number: int, manifest: Manifest) -> None:
        """Complete an analysis without a run: another source's analysis gave `answer`, which holds for all sources."""
        job.set_reason(self.reasons.reason(job, manifest))
        self._jobs.feed(job, Trigger.MATCH)
        job.planned = job.fingerprint = number
        job.planned_inputs, job.inputs = (), manifest
        job.plans, job.completed_ms = answer
        job.duration_ms, job.warnings, job.errors, job.error = 0, 0, 0, ""
        self._reports.counts["analysed"] += 1
        self._jobs.save(job)
        self._reports.report(job)
        self._jobs.note_settled(job, is_changed=False)

    def make_finals(self) -> None:
        """If no other work is pending, plan the jobs that have made only their draft, so that they make their final result."""
        while due := self.drafts.list_due():
            self._todo.extend((job, False) for job in due)
            self.evaluate_todo()
            self.end_chains()

    def can_force(self, job: Job) -> bool:
        """Whether `force` can queue a run of `job`: its builder is configured, and its source exists."""
        return self._jobs.is_configured(job) and self._memory.file(job.source.key) is not None

    def force(self, job: Job, reason: str) -> None:
        """Queue a run of `job`, whether or not its inputs changed."""
        if not self._jobs.is_configured(job):
            return
        source = job.source
        found = self._memory.file(source.key)
        if found is None:
            return  # no file wins the path of this source, because two files differ only in case
        job.is_forced = True
        job.set_reason(reason)
        if isinstance(found, Unsettled):
            self.plan_later(source)
            return
        source.fact = found
        self._todo.append((job, True))

    def products_lost(self, names: Iterable[str], reason: str = "a product is missing from the cache") -> None:
        """Rerun the jobs whose products are missing from the cache or changed there."""
        owners = self._memory.archive.owners(list(names))
        lost: dict[PathKey, dict[int, set[str]]] = {}
        for name, (job_id, key) in owners.items():
            lost.setdefault(key, {}).setdefault(job_id, set()).add(name)
        for source in self._memory.load(sorted(lost)):
            for job in source.jobs.values():
                if job.id in lost[source.key] and not job.is_analysis and self._jobs.is_configured(job):
                    self._jobs.conflicts.remove_missing(job, lost[source.key][job.id])
                    if job.state is JobState.RUNNING:  # the running job may have read the lost product as an input
                        self._jobs.feed(job, Trigger.PLAN)
                        job.planned = None
                    self.force(job, reason)
