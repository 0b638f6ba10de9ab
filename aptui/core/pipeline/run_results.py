"""Handles results of runs and analyses: decides their effect on jobs, and which results are committed.

The workers and the cache belong to `engine`.

The result of a run that is not the current run of its job has no effect, and its staged files are deleted. This happens if the run
was cancelled or lost, or if the job was planned again. A result is stale if an input changed while the run ran
(`core.state.stale_results`): the job is planned again. A run whose worker died is tried once more (`_discard_run`).
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from aptui.core import fingerprint
from aptui.core.machine import Trigger
from aptui.core.messages import (
    DeleteProducts,
    DescribeBuilder,
    DiscardStaging,
    FilesHashed,
    ProductsCommitted,
    RunsFinished,
    WriteLog,
)
from aptui.core.model import EdgeKind, FileFact, Job, JobPlan, JobState, PathKey, RelPath, SourceEdge
from aptui.core.notices import EngineMessage, LogLevel, LogRecord, ProductsChanged
from aptui.core.orders import AnalyseResult, Outcome, RunResult, StagedProduct
from aptui.core.paths import key_of, normalize
from aptui.core.patterns import WILDCARDS
from aptui.core.pipeline.failures import Failures
from aptui.core.pipeline.files import Spread
from aptui.core.pipeline.jobs import Jobs, PipelinePart
from aptui.core.pipeline.plain_copies import PlainCopies
from aptui.core.pipeline.plans import Plans
from aptui.core.project import COMMON_PLATFORM, Builder
from aptui.core.quality import as_final, is_of_draft
from aptui.core.retry import CHECK
from aptui.core.rows import PlainCopy
from aptui.core.run_report import NO_FILE, Ties, is_of_other_code, outside_file
from aptui.core.state.commits import Commit, Finished
from aptui.core.state.stale_results import UndeclaredReadCheck
from aptui.core.state.working_set import targets_of

# `Analyses` validates the results of analyses, and derives jobs and dependencies from these results.


_NO_SUCH_PATTERN = "the analysis requests files by an absolute path, or by the path of the source itself, which is not allowed"
"""Error of an analysis if its requests with `matching` add no dependency to the source."""


class Analyses(PipelinePart):
    """Handles the results of analyses."""

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
        if job.planned_inputs[: len(question)] != question:  # configuration or source changed during the run
            self._jobs.feed(job, Trigger.PLAN)
            job.planned = None
            self._jobs.save(job)
            self._todo.append((job, True))
            return
        if job.ties is not None or result.used.began_ns:
            job.ties = job.ties or Ties()
            job.ties.report = result.used
        plans, edges, log, problem = self._check_answer(job, builder, result)
        if result.is_unfinished and not set(edges) <= set(job.edges):
            self._repeat_with(job, edges)
            return
        # The analysis requested files, but declared no new edge for them. Another analysis would request them again, in an endless
        # loop.
        problem = problem or (_NO_SUCH_PATTERN if result.is_unfinished else "")
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
            self._plans.retries.pop_analysis(job)  # the jobs that the last successful analysis planned are out of date
            self._jobs.feed(job, Trigger.FAIL)
            self._failures.record(job, error or "its analysis failed without a reason", now_ms, kind=result.kind)
            return
        before = targets_of(source)
        edges_changed = job.edges != edges
        self._jobs.feed(job, Trigger.SUCCEED)
        self._jobs.feed(job, Trigger.COMMITTED)
        job.plans, job.edges, job.error, job.is_forced, job.failure = plans, edges, "", False, None
        self._memory.edges.renew(source, before)
        self._record_hidden(job, result)
        self._plans.apply(source, builder, plans, is_retry=self._plans.retries.pop_analysis(job))
        if result.is_for_all_sources and not (edges or log or any(plan.job_dependencies for plan in plans)):
            self._plans.answers.keep(job, builder)
        self._jobs.schedule_edges(source, builder.uuid)
        self._jobs.seal(job)
        self._reports.report(job)
        if edges_changed:
            self._spread.spread({source.key})
        self._jobs.note_settled(job, is_changed=False)

    def _repeat_with(self, job: Job, edges: tuple[SourceEdge, ...]) -> None:
        """Store the edges for new patterns whose files an analysis requested. Analyse again when these files are known."""
        self._jobs.feed(job, Trigger.PLAN)
        self._adopt_edges(job, edges)
        job.planned = None
        self._jobs.save(job)
        self._todo.append((job, True))

    def _record_hidden(self, job: Job, result: AnalyseResult) -> None:
        """Record the digests of the hidden files that an analysis read, or did not find."""
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
        """Return the valid plans and edges of an analysis, its log, and its error ("" = none).

        As in O3DE, two kinds of items are left out, and the log names them: plans for platforms that are not enabled, and edges to
        paths outside all scan folders. A plan for an undeclared platform is an error, except for builders of other programs.
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
            dependencies = tuple(sorted({replace(item, source=key_of(RelPath(rel))) for rel, item in known if rel}))
            # A job for the platform `common` is always critical, because other jobs may wait for the intermediate that it makes.
            is_critical = plan.is_critical or plan.platform == COMMON_PLATFORM
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
                log.append(_warn(builder, f"dependency '{edge.target}' is left out, because it is outside all scan folders"))
            elif key_of(RelPath(rel)) != job.source.key:
                is_wildcard = edge.kind is EdgeKind.WILDCARD and bool(WILDCARDS.intersection(rel))
                if is_wildcard and self._graph.is_ignored(rel):
                    text = (
                        f"wildcard dependency '{edge.target}' matches files that the project ignores, so aptui "
                        "does not notice new files"
                    )
                    log.append(_warn(builder, text))
                edges[SourceEdge(EdgeKind.WILDCARD if is_wildcard else EdgeKind.PATH, rel)] = None
        return tuple(plans.values()), tuple(sorted(edges)), tuple(log), problem

    def _find_undeclared(self, job: Job, builder: Builder, plan: JobPlan) -> str:
        """Return the error of a job whose platform is not declared. Return "" for declared platforms, also for disabled ones."""
        project = self._project
        tags = {tag for platform in project.platforms for tag in platform.tags}
        ids = [platform.id for platform in project.platforms if platform.id != COMMON_PLATFORM]
        others = {*project.resting_platforms, *project.disabled_platforms, *(set(project.declared_platforms) - tags)}
        if plan.platform in others or plan.platform in ids:
            return ""
        text = f"job '{plan.key}' of '{job.source.rel}' (builder '{builder.name}') is for platform '{plan.platform}'"
        return f"{text}, which the configuration does not declare; the platforms are: {', '.join(sorted({*ids, *others}))}"

    def _log_left_out(self, builder: Builder, plan: JobPlan, error: str) -> LogRecord:
        """Return the log record for a job that is left out because its platform is not enabled.

        `error` is set if the configuration does not even declare the platform; then clients are notified, too. As in O3DE, these
        jobs are left out only for builders of other programs.
        """
        if not error:
            return _warn(builder, f"job '{plan.key}' is left out, because its platform '{plan.platform}' is not enabled")
        self._ledger.notices.append(EngineMessage(self._ledger.cause, LogLevel.ERROR, f"{error}; the job is left out"))
        return LogRecord(LogLevel.ERROR, builder.name, f"{error}; the job is left out", 0)


def _warn(builder: Builder, text: str) -> LogRecord:
    return LogRecord(LogLevel.WARNING, builder.name, text, 0)


_WITHOUT_RESULT = frozenset({int(Outcome.LOST), int(Outcome.RETURNED), int(Outcome.STALE)})


class Runs(PipelinePart):
    """Handles the results of runs and of commits."""

    def __init__(
        self,
        jobs: Jobs,
        failures: Failures,
        plans: Plans,
        spread: Spread,
        analyses: Analyses,
        reads: UndeclaredReadCheck,
        plain: PlainCopies,
        staging: str,
    ) -> None:
        super().__init__(jobs)
        self._plain = plain
        self._staging = staging
        self._failures = failures
        self._plans = plans
        self._spread = spread
        self._analyses = analyses
        self._reads = reads
        self._copies: list[Finished] = []
        """Runs whose products were copied while their sources were read, and that are not committed yet.

        If another event `FilesHashed` follows soon, one commit has the runs of both events.
        """

    def runs_finished(self, event: RunsFinished) -> None:
        """Commit the results of successful runs, and record the failures of failed runs.

        A run that is not the current run of its job is ignored.
        """
        succeeded: list[Finished] = []
        if self._jobs.resources is not None:
            for result in event.results:
                self._jobs.resources.release(result.run_key)
        ended = (self._running.get(result.run_key) for result in event.results if isinstance(result, AnalyseResult))
        self._memory.expect_dependents(job.source for job in ended if job is not None)
        for result in (self._with_reads(result, event.now_ms) for result in event.results):
            job = self._running.get(result.run_key)
            if job is None or job.run_key != result.run_key or job.state is not JobState.RUNNING:
                # Stale-result guard: the result does not belong to the current run of a job.
                self._ledger.order(DiscardStaging(self._ledger.cause, (result.run_key,)))
                continue
            self._note_end(job, result, event.now_ms)
            if result.outcome in _WITHOUT_RESULT:  # perhaps the run ended before its code was loaded, so the code is not compared
                self._discard_run(job, result, Outcome(result.outcome), event.now_ms)
            elif is_of_other_code(self._builders[job.builder].code_files, result.used):
                self._had_other_code(job, result, event.now_ms)
            elif changed := self._find_changed(job, result):
                stale = replace(result, used=replace(result.used, changed=changed))
                self._discard_run(job, stale, Outcome.STALE, event.now_ms)
            elif result.outcome != Outcome.SUCCEEDED and self._is_tried_again(job, result, event.now_ms):
                continue
            elif isinstance(result, AnalyseResult):
                self._analyses.handle(job, result, event.now_ms)
            elif result.outcome == Outcome.SUCCEEDED:
                if self._may_commit(job, result, event.now_ms):
                    succeeded.append((job, result))
            else:
                self._put_discovered(job, result)
                text = result.error or "it failed without a reason"
                self._note_failed(job, result, f"{text}{_tries(job)}", event.now_ms, kind=result.kind)
        self._plans.evaluate_todo()  # an analysis and the jobs that it plans are saved together
        self._commit(succeeded, event.now_ms)

    @property
    def are_copies_held(self) -> bool:
        """Whether copied products wait for the next event `FilesHashed`, to be committed together with the copies of that event."""
        return bool(self._copies)

    def start_copies(self, event: FilesHashed) -> None:
        """Start the jobs whose products were copied while their sources were read; discard unused copies.

        The copied products are committed at once, or together with the copies of the next `FilesHashed`.
        """
        copied, self._jobs.copied, self._jobs.copies = self._jobs.copied, {}, {}
        took_ms = {run_key: each_ms for _key, run_keys, each_ms in event.copies for run_key in run_keys}
        for job, run_key in copied.items():
            fact = job.source.fact
            if job.state is not JobState.QUEUED or fact is None:
                continue
            self._jobs.start(job, run_key)
            product = StagedProduct(f"{self._staging}/{run_key}", "", 0, b"", 1, fact.digest, fact.hash64, fact.size)
            result = RunResult(
                run_key, Outcome.SUCCEEDED, "", (product,), fact.digest, duration_ms=took_ms.pop(run_key), is_durable=True
            )
            self._copies.append((job, result))
        for copied_key in self._plain.planned_run_keys:
            del took_ms[copied_key]
        if took_ms:
            self._ledger.order(DiscardStaging(self._ledger.cause, tuple(took_ms)))
        self._plain.commit(event.now_ms)
        if self._copies and not event.has_more:
            self._commit_copies(event.now_ms)

    def _commit_copies(self, now_ms: int) -> None:
        """Commit the copied products that are not committed yet. If a copy's run has ended, the copy is already discarded."""
        copies, self._copies = self._copies, []
        finished: list[Finished] = []
        for job, result in copies:
            if self._running.get(result.run_key) is job:
                self._note_end(job, result, now_ms)
                if self._may_commit(job, result, now_ms):
                    finished.append((job, result))
        self._commit(finished, now_ms)

    def _note_end(self, job: Job, result: AnalyseResult | RunResult, now_ms: int) -> None:
        del self._running[result.run_key]
        if self._chains.is_intermediate(job.source):
            self._plans.feedback.run_ended(job, result.used, now_ms)

    def _find_changed(self, job: Job, result: AnalyseResult | RunResult) -> tuple[str, ...]:
        """Return the files that the run may have read in another state than the manifest states; () = the result is valid."""
        stale_results = self._jobs.stale_results
        if changed := stale_results.find_changed(job, result.used):
            return changed
        found = result.discovered if isinstance(result, RunResult) else ()
        if isinstance(result, RunResult) and (
            changed := stale_results.unread(found) or (stale_results.find_differing(job, found) if result.origin else ())
        ):
            return changed
        read = [file.path for file in result.used.files if file.stamp]
        return stale_results.find_hiders(job, (*read, *(path for path, digest in found if digest)))

    def _had_other_code(self, job: Job, result: AnalyseResult | RunResult, now_ms: int) -> None:
        """Discard a run whose code or tools differ from those in the description of its builder.

        No run of any builder starts until the builders are described again.
        """
        builder = self._builders[job.builder].name
        if self._jobs.code_problem:
            self._note_failed(
                job, result, f"the code or a tool of '{builder}' changed while the job ran: {self._jobs.code_problem}", now_ms
            )
            return
        self._jobs.is_outdated = True
        self._ledger.order(DescribeBuilder(self._ledger.cause, builder))
        self._discard_run(job, result, Outcome.RETURNED, now_ms)

    def _with_reads(self, result: AnalyseResult | RunResult, now_ms: int) -> AnalyseResult | RunResult:
        job = self._running.get(result.run_key) if isinstance(result, RunResult) and result.reads else None
        if job is None or isinstance(result, AnalyseResult) or result.outcome in _WITHOUT_RESULT:
            return result
        return self._reads.of_run(job, self._builders[job.builder], result, now_ms)

    def _may_commit(self, job: Job, result: RunResult, now_ms: int) -> bool:
        """Whether to commit a successful run. If the result is False, this method has already handled the job."""
        fact = job.source.fact
        if fact is None or (result.source_digest and result.source_digest != fact.digest):
            self._discard_run(job, result, Outcome.STALE, now_ms)
            return False
        if blocked := self._jobs.find_block(job, result.products):
            self._note_failed(job, result, blocked, now_ms, kind=CHECK)
            return False
        return not (job.platform == COMMON_PLATFORM and self._is_misplaced(job, result, now_ms))

    def _is_misplaced(self, job: Job, result: RunResult, now_ms: int) -> bool:
        """Whether an intermediate of this run is invalid; if so, fail the job. The failed job claims the names of its products."""
        names = sorted(self._commits.name_of(job, product) for product in result.products)
        text = self._chains.problem(job, names)
        if text:
            conflicts = self._jobs.conflicts
            freed = dict.fromkeys([*conflicts.claim_all(job, names), *conflicts.free_names(job, names)])
            self._todo.extend((other, True) for other in freed)
            self._note_failed(job, result, text, now_ms, keeps_claims=True, drops_products=True)
        return bool(text)

    def _discard_run(self, job: Job, result: AnalyseResult | RunResult, outcome: Outcome, now_ms: int) -> None:
        """Handle a run whose result does not count: its job is pending again, or fails because its worker died too often."""
        self._ledger.order(DiscardStaging(self._ledger.cause, (result.run_key,)))
        if outcome is Outcome.STALE:
            self._jobs.recheck_first(job, result.used.changed)
            self._jobs.save(job)
            return
        if outcome is Outcome.LOST:
            if self._is_tried_again(job, result, now_ms):
                return
            if job.tried:
                died = "its worker process died twice" if len(job.tried) == 1 else "its worker process died"
                text = f"{died}: {result.error}{_tries(job) if len(job.tried) > 1 else ''}"
                self._note_failed(job, result, text, now_ms, kind=result.kind)
                return
            job.tried = (result.kind,)
        self._jobs.feed(job, Trigger.LOST)
        self._ready.push(job)
        if job.is_unsaved:
            self._jobs.save(job)

    def _is_tried_again(self, job: Job, result: AnalyseResult | RunResult, now_ms: int) -> bool:
        """Retry a failed run if a rule says so; return whether it is retried."""
        rule = self._builders[job.builder].retry or self._project.retry
        if rule is None or not rule.covers(result.kind) or len(job.tried) >= rule.times:
            return False
        job.tried = (*job.tried, result.kind)
        self._note_failure(job, result, result.error, now_ms)
        self._failures.try_again(job, result.error, now_ms)
        return True

    def _commit(self, finished: list[Finished], now_ms: int) -> None:
        """Request the commit of these finished runs. A run fails instead if it loses a conflict of product names."""
        # An analysis whose result arrived in the same event may have dropped some of the finished jobs, or planned them again.
        succeeded = [(job, result) for job, result in finished if job.state is JobState.RUNNING and job.run_key == result.run_key]
        if not succeeded:
            return
        for job, result in succeeded:
            self._put_discovered(job, result)
        prepared = self._commits.prepare(succeeded, now_ms)
        for commit in prepared.commits:
            if commit.result.reprocess:
                commit.requested = tuple(job for job in self._find_requested(commit) if self._plans.can_force(job))
        for job, result in prepared.ended:
            self._discard_run(job, result, Outcome.STALE, now_ms)
        again = self._commits.begin(prepared)
        for job, result, text in prepared.lost:
            self._note_failed(job, result, text, now_ms, keeps_claims=True)
        self._todo.extend((job, True) for job in again)
        for commit in prepared.commits:
            self._begin(commit)
        if prepared.deletes:
            self._delete(prepared.deletes)
        changed = [commit.job for commit in prepared.commits if commit.change.is_changed]
        for job in (*changed, *(job for job, _result, _text in prepared.lost)):
            for other in self._jobs.dependents_of(job):
                self._jobs.doubt(other)

    def _begin(self, commit: Commit) -> None:
        """Change the state of a job to COMMITTING, because its commit was requested."""
        job, result = commit.job, commit.result
        self._jobs.feed(job, Trigger.SUCCEED)
        self._committing[job.run_key] = commit
        if not result.origin:
            self._reports.record_duration(job, result.duration_ms)
        if commit.log:
            self._ledger.order(WriteLog(self._ledger.cause, commit.log_file, commit.log, commit.warnings, result.errors))

    def _delete(self, names: tuple[str, ...]) -> None:
        self._ledger.order(DeleteProducts(self._ledger.cause, names, self._ledger.ticket))
        self._chains.recheck(names)

    def _put_discovered(self, job: Job, result: RunResult) -> None:
        """Add the dependencies that a run discovered to the planned manifest of its job, and update the planned fingerprint.

        If the run made final products, the manifest is also marked as final.
        """
        if result.is_final and is_of_draft(job.planned_inputs):
            job.planned_inputs = as_final(job.planned_inputs)
            job.planned = fingerprint.number(job.planned_inputs)
        if not result.discovered and not job.discovered:
            return
        found: dict[str, str] = {}
        for path, digest in result.discovered:
            rel = self._graph.counting(path)
            name: str = key_of(RelPath(rel)) if rel is not None else normalize(path)
            if name != job.source.key:
                found[name] = digest[:32] if digest or rel is None else self._digest_of_other_case(rel)
        before = targets_of(job.source)
        job.discovered = tuple(sorted(found.items()))
        job.planned_inputs = self._graph.with_discovered(job.source, job.planned_inputs, job.discovered)
        job.planned = fingerprint.number(job.planned_inputs)
        self._memory.edges.renew(job.source, before)
        self._jobs.schedule_edges(job.source, job.builder)
        self._record_outside(result)
        unread = {}
        for name in found:
            fact = self._memory.file(PathKey(name)) if not name.startswith("/") else None
            if isinstance(fact, FileFact) and not fact.digest:
                unread[PathKey(name)] = fact
        self._jobs.hash(unread.items())

    def _digest_of_other_case(self, rel: str) -> str:
        """Return the digest of the file whose path differs from `rel` only in case, "" if the file does not exist.

        A run that opens an existing file by a path in another case does not find the file, and reports `rel` as missing. The
        manifest then gets the digest of the existing file (see `Graph._places`).
        """
        fact = self._memory.file(key_of(RelPath(rel)))
        return fact.digest.hex()[:32] if isinstance(fact, FileFact) and fact.rel != normalize(rel) else ""

    def _record_outside(self, result: RunResult) -> None:
        """Record the states of the files that a run found outside all scan folders, or hidden in a scan folder."""
        stamps = {file.path: file.stamp for file in (*result.used.files, *result.used.found)}
        named = [(path, digest) for path, digest in result.discovered if self._graph.counting(path) is None]
        # Fetched results have no file stamps; the next check records them.
        self._spread.outside_seen(
            (normalize(path), outside_file(digest, stamps.get(path, NO_FILE), result.used.began_ns)) for path, digest in named
        )

    def products_committed(self, event: ProductsCommitted) -> None:
        """Handle the end of a commit."""
        ended = [self._committing.pop(run_key) for run_key in event.committed]
        failed = [(self._committing.pop(run_key), text, placed) for run_key, text, placed in event.failed]
        committed = [commit for commit in ended if isinstance(commit, Commit)]
        if copies := [copy for copy in ended if isinstance(copy, PlainCopy)]:
            self._plain.note_committed(copies)
        self._plain.end(item for item in (*copies, *(item for item, _text, _placed in failed)) if isinstance(item, PlainCopy))
        self._memory.expect_dependents({commit.job.source: None for commit in committed})
        for commit in committed:
            self._record_commit(commit)
        for commit in committed:
            for job in self._find_requested(commit, warns=True):
                self._plans.force(job, f"requested by '{commit.job.source.rel}'")
        for item, text, placed in failed:
            commit = self._plain.as_commit(item) if isinstance(item, PlainCopy) else item
            self._commit_failed(commit, text, placed, event.now_ms)

    def _record_commit(self, commit: Commit) -> None:
        """Complete a job whose commit succeeded, and evaluate its dependents."""
        job, change = commit.job, commit.change
        self._jobs.feed(job, Trigger.COMMITTED)
        if job.is_unsaved:  # the row of the job was saved together with its products
            self._memory.unsaved.end(job)
        job.stale_count, job.lost = 0, ()
        self._reports.counts["run"] += 1
        self._reports.counts["done"] += 1
        self._commits.note_committed(commit, job)
        if job.is_draft:
            self._plans.drafts.mark_pending(job)
        self._ledger.touched[job.source] = None
        gone = [name for name, digest in change.products if not digest]
        self._todo.extend((other, True) for other in self._jobs.conflicts.release_names(job, gone))
        if change.products:
            self._ledger.notices.append(ProductsChanged(self._ledger.cause, change.products))
        if job.platform == COMMON_PLATFORM:
            if change.products:
                self._plans.count_round(job)
            # Unchanged products are checked, too, because another program may have overwritten one of them, and the engine may
            # have recorded the wrong bytes for the intermediate source.
            self._chains.recheck({*(name for name, _digest in change.products), *(product.name for product in job.products)})
        self._reports.report(job, is_settled=True)
        self._jobs.note_settled(job, is_changed=change.is_changed)

    def _commit_failed(self, commit: Commit, text: str, placed: int, now_ms: int) -> None:
        """Handle a failed commit.

        The products that the commit replaced before it failed belong to the job now. Clients are notified of them, and the
        intermediates among them are checked as sources.
        """
        job, replaced = commit.job, commit.find_replaced(placed)
        self._jobs.feed(job, Trigger.COMMIT_FAILED)
        self._commits.note_failed(commit)
        if commit.unrecorded:
            self._delete(commit.unrecorded)
        if replaced:
            self._jobs.conflicts.replace(job, replaced)
            self._ledger.notices.append(
                ProductsChanged(self._ledger.cause, tuple((name, item.digest.hex()) for name, item in replaced.items()))
            )
            self._chains.recheck(replaced)
        self._reports.write_log(job, commit.result.log, text)
        self._failures.record(job, text, now_ms)

    def _note_failed(
        self,
        job: Job,
        result: AnalyseResult | RunResult,
        text: str,
        now_ms: int,
        *,
        kind: str | None = None,
        keeps_claims: bool = False,
        drops_products: bool = False,
    ) -> None:
        """Move a job to its failed state after its run."""
        self._reports.record_duration(job, result.duration_ms)
        self._note_failure(job, result, text, now_ms)
        self._jobs.feed(job, Trigger.FAIL)
        self._failures.record(job, text, now_ms, kind=kind, keeps_claims=keeps_claims, drops_products=drops_products)

    def _note_failure(self, job: Job, result: AnalyseResult | RunResult, text: str, now_ms: int) -> None:
        """Record duration, warnings and errors of a failed run; discard its staged files."""
        self._ledger.order(DiscardStaging(self._ledger.cause, (result.run_key,)))
        self._failures.remember_run(job)
        job.duration_ms, job.completed_ms, job.is_fetched = result.duration_ms, now_ms, False
        warnings = sum(1 for record in result.log if record.level == LogLevel.WARNING)
        errors = sum(1 for record in result.log if record.level >= LogLevel.ERROR)
        job.warnings, job.errors = (max(warnings, getattr(result, "warnings", 0)), max(errors, getattr(result, "errors", 0), 1))
        self._reports.write_log(job, result.log, text)

    def _find_requested(self, commit: Commit, *, warns: bool = False) -> Iterable[Job]:
        """Yield the jobs of sources that a builder named in its result (O3DE: `ProcessJobResponse.m_sourcesToReprocess`)."""
        job = commit.job
        for path in commit.result.reprocess:
            rel = self._graph.relative(path)
            key = key_of(RelPath(rel)) if rel is not None else PathKey("")
            if key == job.source.key:
                continue
            named = self._memory.load((key,)) if key else ()
            if not named and warns:
                requester = f"'{job.source.rel}' ({self._builders[job.builder].name})"
                text = f"{requester} requests that '{path}' is processed again, but this file is not a source"
                self._ledger.notices.append(EngineMessage(self._ledger.cause, LogLevel.WARNING, text))
            for source in named:
                yield from source.jobs.values()


def _tries(job: Job) -> str:
    """Return the suffix for the error of a job that was retried; "" if the job was not retried."""
    return f" (tried {len(job.tried) + 1} times)" if job.tried else ""
