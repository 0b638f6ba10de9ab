"""Progress: what the parts of an engine have counted, put together for clients.

Tests: `tests/engine/loop/test_engine.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aptui.core.notices import Progress

if TYPE_CHECKING:
    from aptui.engine.loop.context import EngineContext
    from aptui.engine.loop.dispatch import RunDispatcher
    from aptui.engine.loop.files.scans import Scans
    from aptui.engine.loop.reporting.forecast import Forecaster


class ProgressReporter:
    """Counts and reports.

    Args:
        failed_before: how many jobs and analyses were failed when the engine began, None = nobody asks.
    """

    def __init__(
        self, context: EngineContext, scans: Scans, runs: RunDispatcher, forecaster: Forecaster, failed_before: int | None
    ) -> None:
        self._context, self._scans, self._runs = context, scans, runs
        self._forecaster, self._failed_before = forecaster, failed_before

    def report(self, now: float) -> None:
        """Tell how far the work is."""
        counts = self._forecaster.complete_progress(self.counts(), self._runs.at_work(), now)
        self._context.news.notify_progress(counts, now, is_processing=self._context.pipeline.status().running_jobs > 0)

    def counts(self) -> Progress:
        """Return how far the work is, without timers and forecast."""
        status, digests = self._context.pipeline.status(), self._context.digests
        at_work = min(status.running_jobs, len(self._runs.at_work()))
        pending = status.ready_analyses + status.running_analyses + status.ready_jobs + status.running_jobs
        return Progress(
            self._context.inbox.seq,
            self._scans.files_seen,
            status.ready_analyses,
            status.running_analyses,
            status.ready_jobs + status.running_jobs - at_work,
            at_work,
            status.done,
            status.failed,
            self._scans.is_scanning or not (pending or digests.is_idle),  # before the first files are read nobody knows of jobs
            failing_count=self._failed_before + status.failing if self._failed_before is not None else -1,
        )
