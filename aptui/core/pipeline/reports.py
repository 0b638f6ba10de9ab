"""Reports about jobs: log records, notices, counts, durations; no job changes its state here.

Tests: `tests/core/pipeline/runs/test_undeclared_reads.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from aptui.core.messages import WriteLog
from aptui.core.model import Job, JobState
from aptui.core.notices import JobChanged, LogLevel, LogRecord
from aptui.core.project import Project
from aptui.core.results.facts import together
from aptui.core.state.ledger import Ledger

_LAST_RUNS = 31
LogName = Callable[[Job, str], str]
"""(job, builder name) -> path of its run's log relative to the log folder."""
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


class Reports:
    """Writes what people and statistics get to know into the ledger.

    Args:
        log_name: where a job's log lies.
    """

    def __init__(self, project: Project, ledger: Ledger, log_name: LogName) -> None:
        self.wants_news = False
        """Whether somebody wants to know of every step of every job, not of its end alone."""
        self.counts = {"run": 0, "failed": 0, "analysed": 0, "done": 0}
        self._log_name = log_name
        self._ledger = ledger
        self._builders = {builder.uuid: builder for builder in project.builders}
        self._mean_ms: dict[tuple[bytes, bool], float] = {}
        self._last_ms: dict[bytes, deque[int]] = {}
        self.run_count = self.spent_ms = 0
        """Runs of jobs that were measured, and what was expected of them: where all became slower, the pace is lower."""

    def write_log(self, job: Job, log: Iterable[LogRecord], error: str) -> None:
        """Order the log written, the error last if no line of it says the same; name it on the job."""
        records, builder = list(log), self._builders[job.builder]
        if error and not any(record.level >= LogLevel.ERROR and record.text == error for record in records):
            records.append(LogRecord(LogLevel.ERROR, builder.name, error, records[-1].time_ms if records else 0))
        if not records:
            return
        job.log_file = self._log_name(job, builder.name)
        self._ledger.order(WriteLog(self._ledger.cause, job.log_file, tuple(records), job.warnings, job.errors))

    def tell(self, job: Job, *, is_settled: bool = False, is_run: bool = True) -> None:
        """Tell that `job` changed, if it is `is_settled` or somebody wants to know every step; `is_run`: see `JobChanged`."""
        if not (self.wants_news or is_settled):
            return
        source, builder = job.source, self._builders.get(job.builder)
        status = "" if job.state is None else SHOWN[job.state]
        key = f"CreateJobs_{{{job.builder.hex()}}}" if job.is_analysis else job.key
        self._ledger.notices.append(
            JobChanged(
                self._ledger.cause, job.id, source.rel, source.scan_folder, job.platform or "all", key,
                builder.name if builder else "",
                status, job.told_reason, job.error, job.warnings, job.errors, job.duration_ms, job.log_file, job.run_key,
                job.completed_ms, is_run, together(product.facts for product in job.products), job.flaky,
                job.is_draft and bool(job.fingerprint), job.is_critical,
            )
        )  # fmt: skip

    def learn(self, job: Job, duration_ms: int) -> None:
        """A run of this job took so long."""
        index = job.builder, job.is_analysis
        mean = self._mean_ms.get(index)
        self._mean_ms[index] = duration_ms if mean is None else mean * 0.9 + duration_ms * 0.1
        if not job.is_analysis:
            if mean is None:
                self._last_ms[job.builder] = deque(maxlen=_LAST_RUNS)
            self._last_ms[job.builder].append(duration_ms)
            self.run_count += 1
            self.spent_ms += job.duration_ms or duration_ms

    def mean_ms(self, job: Job) -> float | None:
        """Return how long runs of the job's kind take, the last ones counting most; None when none has been seen."""
        return self._mean_ms.get((job.builder, job.is_analysis))

    def usual_ms(self, builder: bytes) -> int | None:
        """Return the median of the last runs of a builder, None when none has been seen."""
        last = self._last_ms.get(builder)
        return sorted(last)[len(last) // 2] if last else None
