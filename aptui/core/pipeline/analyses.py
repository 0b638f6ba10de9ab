"""Results of analyses: validation, and the jobs and dependencies that follow from them.

Tests: `tests/core/pipeline/test_configuration.py`.
"""

from __future__ import annotations

from aptui.core.machine import Trigger
from aptui.core.model import EdgeKind, Job, JobDependency, JobPlan, PathKey, RelPath, SourceEdge
from aptui.core.notices import EngineMessage, LogLevel, LogRecord
from aptui.core.orders import AnalyseResult, Outcome
from aptui.core.paths import key_of, normalize
from aptui.core.patterns import WILDCARDS
from aptui.core.pipeline.failures import Failures
from aptui.core.pipeline.files import Spread
from aptui.core.pipeline.jobs import Jobs, PipelinePart
from aptui.core.pipeline.plans import Plans
from aptui.core.pipeline.undeclared_reads import UndeclaredReadCheck
from aptui.core.project import COMMON_PLATFORM, Builder
from aptui.core.run_report import NO_FILE, Ties, outside_file
from aptui.core.state.working_set import targets_of


class Analyses(PipelinePart):
    """Takes the results of analyses."""

    def __init__(self, jobs: Jobs, failures: Failures, plans: Plans, spread: Spread, reads: UndeclaredReadCheck) -> None:
        super().__init__(jobs)
        self._failures = failures
        self._plans = plans
        self._spread = spread
        self._reads = reads

    def handle(self, job: Job, result: AnalyseResult, now_ms: int) -> None:
        """Handle the end of an analysis: its source gets the jobs that the analysis planned."""
        builder, source = self._builders[job.builder], job.source
        self._reports.record_duration(job, result.duration_ms)
        self._reports.counts["analysed"] += 1
        question = self._graph.assemble_question(job, self._planner.platforms_of(builder, source))
        if job.planned_inputs[: len(question)] != question:  # the configuration changed while it ran
            self._jobs.feed(job, Trigger.PLAN)
            job.planned = None
            self._jobs.save(job)
            self._jobs.todo.append((job, True))
            return
        if job.ties is not None or result.used.began_ns:
            job.ties = job.ties or Ties()
            job.ties.report = result.used
        plans, edges, log, problem = self._check_answer(job, builder, result)
        if result.is_unfinished:
            self._repeat_with(job, edges)
            return
        if result.reads:
            edges, log = self._reads.of_analysis(job, builder, result.reads, (plans, edges, log), now_ms)
        is_failed = result.outcome != Outcome.SUCCEEDED or bool(problem)
        if is_failed:
            self._failures.remember_run(job)
        warnings = sum(1 for record in log if record.level == LogLevel.WARNING)
        job.warnings, job.errors = (warnings, sum(1 for record in log if record.level >= LogLevel.ERROR))
        job.duration_ms, job.completed_ms = result.duration_ms, now_ms
        error = result.error or problem
        self._reports.write_log(job, log, error)
        self._ledger.put("put_stat", (f"CreateJobs,{source.rel},{builder.name}", result.duration_ms, now_ms))
        if is_failed:
            self._adopt_edges(job, edges)
            self._record_hidden(job, result)
            self._plans.retries.pop_analysis(job)  # the plans of the last success are out of date
            self._failures.fail(job, error or "its analysis failed without saying why", now_ms, kind=result.kind)
            return
        before = targets_of(source)
        edges_changed = job.edges != edges
        self._jobs.feed(job, Trigger.SUCCEED)
        self._jobs.feed(job, Trigger.COMMITTED)
        job.plans, job.edges, job.error, job.is_forced, job.failure = plans, edges, "", False, None
        self._memory.edges.renew(source, before)
        self._record_hidden(job, result)
        self._plans.apply(source, builder, plans, is_retry=self._plans.retries.pop_analysis(job))
        self._jobs.schedule_edges(source, builder.uuid)
        self._jobs.seal(job)
        self._reports.report(job)
        if edges_changed:
            self._spread.spread({source.key})
        self._jobs.note_settled(job, is_changed=False)

    def _repeat_with(self, job: Job, edges: tuple[SourceEdge, ...]) -> None:
        """Declare the new patterns whose files an analysis requested, and analyse again when these files are known."""
        self._jobs.feed(job, Trigger.PLAN)
        self._adopt_edges(job, edges)
        job.planned = None
        self._jobs.save(job)
        self._jobs.todo.append((job, True))

    def _record_hidden(self, job: Job, result: AnalyseResult) -> None:
        """Record, with their digests, the files that an analysis read or did not find and that other files hide."""
        hidden = {edge.target for edge in job.edges if edge.kind is EdgeKind.DISCOVERED}
        stamps = {file.path: file.stamp for file in result.used.files} if hidden else {}
        began_ns = result.used.began_ns
        found = {normalize(read.path): outside_file(read.digest, stamps.get(read.path, NO_FILE), began_ns) for read in result.reads}
        self._spread.outside_seen((path, file) for path, file in found.items() if path in hidden)

    def _adopt_edges(self, job: Job, edges: tuple[SourceEdge, ...]) -> None:
        """Keep the edges of an analysis that failed because a file is missing, so that it is repeated when the file appears."""
        if edges and not set(edges) <= set(job.edges):
            before = targets_of(job.source)
            job.edges = tuple(sorted({*job.edges, *edges}))
            self._memory.edges.renew(job.source, before)
            self._jobs.schedule_edges(job.source, job.builder)

    def _check_answer(
        self, job: Job, builder: Builder, result: AnalyseResult
    ) -> tuple[tuple[JobPlan, ...], tuple[SourceEdge, ...], tuple[LogRecord, ...], str]:
        """Return the valid plans and edges, a log that warns of the others, and the error of the analysis ("" = none).

        O3DE discards these too: jobs for platforms that are not enabled, dependencies on paths outside all scan folders.
        """
        log, problem = list(result.log), ""
        enabled = {*self._planner.platforms_of(builder, job.source), COMMON_PLATFORM}
        plans: dict[tuple[str, str], JobPlan] = {}
        for plan in result.plans:
            if plan.platform not in enabled:
                text = self._find_undeclared(job, builder, plan)
                if text and not builder.adapter:
                    problem = problem or text
                else:
                    log.append(self._log_left_out(builder, plan, text))
                continue
            known = [(item.source if item.is_uuid else self._graph.relative(item.source), item) for item in plan.job_dependencies]
            dependencies = tuple(sorted({_move_dependency(item, key_of(RelPath(rel))) for rel, item in known if rel}))
            is_critical = plan.is_critical or plan.platform == COMMON_PLATFORM  # other jobs may wait for its product
            plans[plan.platform, plan.key] = JobPlan(
                plan.key, plan.platform, plan.priority, is_critical, plan.additional_fingerprint, plan.params, dependencies
            )
        edges: dict[SourceEdge, None] = {}
        for edge in result.edges:
            if edge.kind is EdgeKind.UUID:
                edges[edge] = None
                continue
            rel = self._graph.relative(edge.target)
            if rel is None:
                log.append(_warn(builder, f"dependency '{edge.target}' is outside all scan folders: left out"))
            elif key_of(RelPath(rel)) != job.source.key:
                is_wildcard = edge.kind is EdgeKind.WILDCARD and bool(WILDCARDS.intersection(rel))
                if is_wildcard and self._graph.is_ignored(rel):
                    text = f"wildcard dependency '{edge.target}' names files that the project ignores: new ones are not noticed"
                    log.append(_warn(builder, text))
                edges[SourceEdge(EdgeKind.WILDCARD if is_wildcard else EdgeKind.PATH, rel)] = None
        return tuple(plans.values()), tuple(sorted(edges)), tuple(log), problem

    def _find_undeclared(self, job: Job, builder: Builder, plan: JobPlan) -> str:
        """Return the error of a job for an undeclared platform, "" if its platform is only not enabled here."""
        project = self._jobs.project
        tags = {tag for platform in project.platforms for tag in platform.tags}
        ids = [platform.id for platform in project.platforms if platform.id != COMMON_PLATFORM]
        others = {*project.resting_platforms, *project.disabled_platforms, *(set(project.declared_platforms) - tags)}
        if plan.platform in others or plan.platform in ids:
            return ""
        text = f"job '{plan.key}' of '{job.source.rel}' (builder '{builder.name}') is for platform '{plan.platform}'"
        return f"{text}, which the configuration does not declare; known here: {', '.join(sorted({*ids, *others}))}"

    def _log_left_out(self, builder: Builder, plan: JobPlan, error: str) -> LogRecord:
        """Return the log record for a job whose platform is not enabled.

        A job for an undeclared platform (`error`) is dropped only for builders of other programs, as O3DE does; clients are
        notified.
        """
        if not error:
            return _warn(builder, f"job '{plan.key}' is for platform '{plan.platform}', which is not enabled here: left out")
        self._ledger.notices.append(EngineMessage(self._ledger.cause, LogLevel.ERROR, f"{error}: left out"))
        return LogRecord(LogLevel.ERROR, builder.name, f"{error}: left out", 0)


def _warn(builder: Builder, text: str) -> LogRecord:
    return LogRecord(LogLevel.WARNING, builder.name, text, 0)


def _move_dependency(dependency: JobDependency, key: PathKey) -> JobDependency:
    return JobDependency(key, dependency.key, dependency.platform, dependency.kind, dependency.sub_ids, dependency.is_uuid)
