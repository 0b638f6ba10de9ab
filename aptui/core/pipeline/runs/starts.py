"""Starts of runs: which jobs start, how many in one message, and what their workers receive.

Tests: `tests/core/pipeline/test_configuration.py`.
"""

from __future__ import annotations

from aptui.core.machine import Trigger
from aptui.core.messages import SlotsFree, StartRuns
from aptui.core.model import Job
from aptui.core.orders import AnalyseOrder, CopyOrder, ProcessOrder
from aptui.core.pipeline.jobs import Jobs
from aptui.core.results.quality import quality_of

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
                job.run_key, builder.name, root, source.rel, source.uuid, platforms, builder.analyse_limit_s, settings
            )
        staging = f"{self._staging}/{job.run_key}"
        if builder.is_plain_copy:
            present = job.products[0].digest if len(job.products) == 1 and job.fingerprint and not job.is_forced else b""
            return CopyOrder(job.run_key, f"{root}/{source.rel}", staging, present, builder.takes_pointers)
        fact, plan = source.fact, job.plan
        assert fact is not None
        assert plan is not None
        return ProcessOrder(
            job.run_key, builder.name, root, source.rel, source.uuid, job.platform, job.key, plan.params,
            plan.additional_fingerprint,
            plan.priority, plan.is_critical, (fact.size, fact.mtime_ns, fact.ctime_ns, fact.inode), fact.digest, staging,
            builder.process_limit_s, builder.memory_limit_bytes, self._project.debug_output, settings=settings,
            quality=quality_of(job.planned_inputs).value,
        )  # fmt: skip
