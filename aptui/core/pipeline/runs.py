"""Runs: which jobs start together, what their results mean, what is committed. Workers and the cache are elsewhere."""

from __future__ import annotations

from aptui.core import fingerprint
from aptui.core.machine import Trigger
from aptui.core.messages import (
    AnalyseOrder,
    AnalyseResult,
    CopyOrder,
    DeleteProducts,
    DiscardStaging,
    LogLevel,
    LogRecord,
    LookAgain,
    Outcome,
    ProcessOrder,
    ProductsChanged,
    ProductsCommitted,
    RunResult,
    RunsFinished,
    SlotsFree,
    StartRuns,
    WriteLog,
)
from aptui.core.model import (
    COMMON_PLATFORM,
    Builder,
    EdgeKind,
    FileFact,
    Job,
    JobDependency,
    JobPlan,
    JobState,
    PathKey,
    RelPath,
    RunKey,
    SourceEdge,
)
from aptui.core.paths import key_of, normalize
from aptui.core.pipeline.plans import Plans
from aptui.core.state.commits import name_of

_COPY_BATCH = 256
_SMALL_BATCH = 32
_CAME_BACK = frozenset({int(Outcome.LOST), int(Outcome.RETURNED), int(Outcome.STALE)})


class Runs(Plans):
    """Takes free slots and the results of runs."""

    def _start(self, event: SlotsFree) -> None:
        named = next((job for job in self.ready if job.id == event.job_id), None) if event.job_id else None
        if named is not None:
            self.ready.put_first(named)
        most = max(event.count, event.critical)
        left = event.jobs or _COPY_BATCH * most
        for message in range(most):
            job = self.ready.peek()
            if job is None or left <= 0 or (message >= event.count and not (job.is_critical or job.is_analysis)):
                return
            orders = self._batch(job, left)
            left -= len(orders)
            self.ledger.order(StartRuns(self.ledger.cause, tuple(orders)))

    def _batch(self, first: Job, most: int) -> list[AnalyseOrder | ProcessOrder | CopyOrder]:
        """Take jobs of one kind off the queue: as many small ones as belong into a message."""
        kind, limit = self._kind_of(first), min(most, self._batch_size(first))
        share = max(1, -(-len(self.ready) // (2 * self.project.workers)))
        orders: list[AnalyseOrder | ProcessOrder | CopyOrder] = []
        while len(orders) < min(limit, share):
            job = self.ready.peek()
            if job is None or self._kind_of(job) != kind or job.is_critical != first.is_critical:
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
        return "copy" if builder.is_plain_copy else job.builder

    def _batch_size(self, job: Job) -> int:
        builder = self._builders[job.builder]
        if builder.is_plain_copy:
            return _COPY_BATCH
        mean = self._mean_ms.get(job.builder + (b"a" if job.is_analysis else b"p"))
        return 1 if mean is None else max(1, min(_SMALL_BATCH, int(40 / (mean + 0.5))))

    def _order_for(self, job: Job) -> AnalyseOrder | ProcessOrder | CopyOrder:
        builder, source = self._builders[job.builder], job.source
        root, settings = self._roots[source.scan_folder], self.settings.adjustment(source.key, builder).order
        if job.is_analysis:
            platforms = self.planner.platforms_of(builder, source)
            return AnalyseOrder(
                job.run_key, builder.name, root, source.rel, source.uuid, platforms, builder.analyse_limit_s, settings
            )
        staging = f"{self._staging}/{job.run_key}"
        if builder.is_plain_copy:
            present = job.products[0].digest if len(job.products) == 1 and job.fingerprint and not job.is_forced else b""
            return CopyOrder(job.run_key, f"{root}/{source.rel}", staging, present)
        fact, plan = source.fact, job.plan
        assert fact is not None
        assert plan is not None
        return ProcessOrder(
            job.run_key, builder.name, root, source.rel, source.uuid, job.platform, job.key, plan.params, plan.additional_fingerprint,
            plan.priority, plan.is_critical, (fact.size, fact.mtime_ns, fact.ctime_ns, fact.inode), fact.digest, staging,
            builder.process_limit_s, builder.memory_limit_bytes, self.project.debug_output, settings=settings,
        )  # fmt: skip

    def _runs_finished(self, event: RunsFinished) -> None:
        succeeded: list[tuple[Job, RunResult]] = []
        for result in (self._with_reads(result, event.now_ms) for result in event.results):
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
                if problem is None and not (job.platform == COMMON_PLATFORM and self._is_misplaced(job, result, event.now_ms)):
                    succeeded.append((job, result))
                elif problem is None:
                    continue
                elif problem == "":
                    self._run_came_back(job, result, Outcome.STALE, event.now_ms)
                else:
                    self._failed(job, result, problem, event.now_ms)
            else:
                self.graph_discovered(job, result)
                self._failed(job, result, result.error or "it failed without saying why", event.now_ms)
        self._look_at_todo()  # so that an analysis and what it plans are saved together
        self._commit(succeeded, event.now_ms)

    def _with_reads(self, result: AnalyseResult | RunResult, now_ms: int) -> AnalyseResult | RunResult:
        job = self.running.get(result.run_key) if isinstance(result, RunResult) and result.reads else None
        if job is None or isinstance(result, AnalyseResult) or result.outcome in _CAME_BACK:
            return result
        return self.reads.of_run(job, self._builders[job.builder], result, now_ms)

    def _result_problem(self, job: Job, result: RunResult) -> str | None:
        """Return None when the result may be committed, "" when it is of other bytes than planned, else why it fails."""
        fact = job.source.fact
        if fact is None or (result.source_digest and result.source_digest != fact.digest):
            return ""
        return None

    def _is_misplaced(self, job: Job, result: RunResult, now_ms: int) -> bool:
        """Whether an intermediate of this run cannot be; then the job has failed, and claims their names until that ends."""
        names = [name_of(job, product) for product in result.products]
        text = self.chains.problem(job, names)
        if text:
            self._todo.extend((other, True) for other in self.commits.claim_all(job, names))
            self._failed(job, result, text, now_ms, keeps_claims=True, drops_products=True)
        return bool(text)

    def _run_came_back(self, job: Job, result: AnalyseResult | RunResult, outcome: Outcome, now_ms: int) -> None:
        """A run that says nothing about the job: it is owed again."""
        self.ledger.order(DiscardStaging(self.ledger.cause, (result.run_key,)))
        if outcome is Outcome.STALE:
            self._feed(job, Trigger.PLAN)
            job.planned = None
            job.stale_count += 1
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
        told = self.graph.told(job, self.planner.platforms_of(builder, source))
        if job.planned_inputs[: len(told)] != told:  # it was asked before somebody changed what it is told
            self._feed(job, Trigger.PLAN)
            job.planned = None
            self._save(job)
            self._todo.append((job, True))
            return
        plans, edges, log = self._checked(job, builder, result)
        if result.reads:
            edges, log = self.reads.of_analysis(job, builder, result.reads, (plans, edges, log), now_ms)
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

    def _checked(
        self, job: Job, builder: Builder, result: AnalyseResult
    ) -> tuple[tuple[JobPlan, ...], tuple[SourceEdge, ...], tuple[LogRecord, ...]]:
        """Return plans and edges without what cannot be, with a warning for each thing left out (spec/engine.md §3)."""
        log = list(result.log)
        enabled = {*self.planner.platforms_of(builder, job.source), COMMON_PLATFORM}
        plans: dict[tuple[str, str], JobPlan] = {}
        for plan in result.plans:
            if plan.platform not in enabled:
                log.append(
                    self._warn(builder, f"job '{plan.key}' is for platform '{plan.platform}', which is not enabled here: left out")
                )
                continue
            known = [(item.source if item.is_uuid else self.graph.relative(item.source), item) for item in plan.job_dependencies]
            dependencies = tuple(sorted({_moved(item, key_of(RelPath(rel))) for rel, item in known if rel}))
            is_critical = plan.is_critical or plan.platform == COMMON_PLATFORM  # others may wait for what it makes
            plans[plan.platform, plan.key] = JobPlan(
                plan.key, plan.platform, plan.priority, is_critical, plan.additional_fingerprint, plan.params, dependencies
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
            if not result.origin:
                self._learn(job, result.duration_ms)
            if log:
                self.ledger.order(WriteLog(self.ledger.cause, job.log_file, log, job.warnings, job.errors))
        if order.deletes:
            self.ledger.order(DeleteProducts(self.ledger.cause, order.deletes, self.ledger.ticket))
            self.chains.look(order.deletes)
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
            job.stale_count = 0
            self.counts["run"] += 1
            self.counts["done"] += 1
            change = self.commits.committed(job)
            self.ledger.touched[job.source] = None
            gone = [name for name, digest in change.products if not digest]
            self._todo.extend((other, True) for other in self.commits.release_names(job, gone))
            if change.products:
                self.ledger.notices.append(ProductsChanged(self.ledger.cause, change.products))
                self._rounds[job.id] += job.platform == COMMON_PLATFORM
            # Those that are as their rows had them, too: what lay there meanwhile may have been others' bytes, and have been taken for theirs.
            self.chains.look({*(name for name, _digest in change.products), *(product.name for product in job.products)})
            self._news(job, is_settled=True)
            self._settled(job, is_changed=change.is_changed)
            self._reprocess(job, result.reprocess)
        for run_key, text in event.failed:
            job, result = self._committing.pop(run_key)
            self._feed(job, Trigger.COMMIT_FAILED)
            strange = self.commits.undo(job)
            if strange:
                self.ledger.order(DeleteProducts(self.ledger.cause, strange, self.ledger.ticket))
                self.chains.look(strange)
            self._write_log(job, self._builders[job.builder], result.log, text)
            self._record_failure(job, text, event.durations_ms)

    def _failed(
        self,
        job: Job,
        result: AnalyseResult | RunResult,
        text: str,
        now_ms: int,
        *,
        keeps_claims: bool = False,
        drops_products: bool = False,
    ) -> None:
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
        self._fail(job, text, now_ms, keeps_claims=keeps_claims, drops_products=drops_products)


def _moved(dependency: JobDependency, key: PathKey) -> JobDependency:
    return JobDependency(key, dependency.key, dependency.platform, dependency.kind, dependency.sub_ids, dependency.is_uuid)
