"""Reports on jobs: log records, notices, counts, durations; no job changes its state here.

Tests: `tests/core/pipeline/test_reports.py`, `tests/core/state/test_undeclared_reads.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable

from msgspec.structs import replace

from aptui.core.messages import WriteLog
from aptui.core.model import LISTED_ANALYSIS, SHOWN, Job, JobState, Source
from aptui.core.notices import JobChanged, LogLevel, LogRecord
from aptui.core.project import Project
from aptui.core.run_report import together
from aptui.core.state.ledger import Ledger

_LAST_RUNS = 31
LogName = Callable[[Job, str], str]
"""(job, builder name) -> path of its run's log relative to the log folder."""
_PENDING = SHOWN[JobState.QUEUED]
_ENDED = frozenset({SHOWN[JobState.COMPLETED], SHOWN[JobState.FAILED]})
_UNSETTLED = frozenset({JobState.WAITING, JobState.QUEUED, JobState.RUNNING, JobState.COMMITTING})


class Reports:
    """Writes notices, logs and statistics into the ledger."""

    def __init__(self, project: Project, ledger: Ledger, log_name: LogName) -> None:
        self.reports_every_step = False
        """Whether a client follows every step of every job, not only its end."""
        self.is_followed = False
        """Whether a client polls for changes of unsettled jobs (`latest`)."""
        self.moved: dict[Job, int] = {}
        """Unsettled jobs that `latest` has to report: {job: `seq` of the event that last changed its state}."""
        self._reported_pending: set[Job] = set()
        """Jobs that `latest` reported as pending, and that have had no other notice since then."""
        self.starting: dict[Job, JobChanged] = {}
        """{job: notice that it runs}, held until a worker has started the run, for clients that follow every step."""
        self.counts = {"run": 0, "failed": 0, "analysed": 0, "done": 0}
        self._log_name = log_name
        self._ledger = ledger
        self._builders = {builder.uuid: builder for builder in project.builders}
        self._mean_ms: dict[tuple[bytes, bool], float] = {}
        self._last_ms: dict[bytes, deque[int]] = {}
        self._run_count = self._spent_ms = 0
        """Number of measured runs, and the sum (ms) of their expected durations, which shows whether all jobs became slower."""

    def write_log(self, job: Job, log: Iterable[LogRecord], error: str) -> None:
        """Request that the log of a run is written, and set its path in the job.

        If no record has the text `error`, this error is added as the last record.
        """
        records, builder = list(log), self._builders[job.builder]
        if error and not any(record.level >= LogLevel.ERROR and record.text == error for record in records):
            records.append(LogRecord(LogLevel.ERROR, builder.name, error, records[-1].time_ms if records else 0))
        if not records:
            return
        job.log_file = self._log_name(job, builder.name)
        self._ledger.order(WriteLog(self._ledger.cause, job.log_file, tuple(records), job.warnings, job.errors))

    def report(self, job: Job, *, is_settled: bool = False, is_run: bool = True) -> None:
        """Report a change of `job`. Unsettled jobs are reported only if a client follows every step; `is_run`: see `JobChanged`.

        Clients that poll get the latest state of unsettled jobs from `latest`. A client that follows every step is notified of a
        run when a worker has started the run (`list_started`), or just before the end of the run.
        """
        is_unsettled = job.state in _UNSETTLED
        if self.is_followed and is_unsettled:
            self.moved[job] = self._ledger.cause
        elif self.is_followed:
            self.moved.pop(job, None)
            self._reported_pending.discard(job)
        if (
            not (self.reports_every_step or is_settled or (self.is_followed and not is_unsettled))
            or job.state is JobState.COMMITTING
        ):
            return
        status = "" if job.state is None else SHOWN[job.state]
        notice, started = self._notice(job, self._ledger.cause, status, is_run=is_run), self.starting.pop(job, None)
        if job.state is JobState.RUNNING:
            self.starting[job] = notice
            return
        if started is not None and is_run and status in _ENDED and started.run_key == notice.run_key:
            self._ledger.notices.append(replace(started, cause=notice.cause))
        self._ledger.notices.append(notice)

    def list_started(self, at_work: Collection[int]) -> list[JobChanged]:
        """Return notices of the runs that workers have started since the last call, for clients that follow every step of each job.

        Args:
            at_work: run keys of the runs that workers have started.
        """
        jobs = [job for job, notice in self.starting.items() if notice.run_key in at_work]
        return [replace(self.starting.pop(job), cause=self._ledger.cause) for job in jobs]

    def report_old_names(self, source: Source) -> None:
        """Report the analyses of a source as gone before the source's name or scan folder changes.

        Clients identify analyses by name and scan folder.
        """
        for job in source.jobs.values():
            if job.is_analysis and (self.reports_every_step or self.is_followed):
                self._ledger.notices.append(self._notice(job, self._ledger.cause, "", is_run=False))

    def report_new_names(self, source: Source) -> None:
        """Report all jobs of a source whose file has moved to another name or scan folder."""
        for job in source.jobs.values():
            if job.state is not None:
                self.report(job, is_run=False)

    def latest(self, at_work: Collection[int]) -> list[JobChanged]:
        """Return a notice with the present state of each unsettled job whose state changed since the last call.

        A job counts as running only after a worker has started its run. Until then it is reported as pending. A later call
        reports that it is running.
        """
        moved, self.moved = self.moved, {}
        notices = []
        for job, cause in moved.items():
            if job.state not in _UNSETTLED:
                continue
            status, is_reported = SHOWN[job.state], job in self._reported_pending
            if job.state is JobState.RUNNING and job.run_key not in at_work:
                status, self.moved[job] = _PENDING, cause
                if is_reported:
                    continue
            if status == _PENDING:
                self._reported_pending.add(job)
            elif is_reported:
                self._reported_pending.discard(job)
            notices.append(self._notice(job, cause, status))
        return notices

    def list_unreported_ids(self) -> set[int]:
        """Return the ids of jobs that need another notice, because their state changed or `latest` reported them as pending."""
        return {job.id for job in (*self.moved, *self._reported_pending)}

    def follow(self, *, is_followed: bool) -> None:
        """Start or stop collecting changes for `latest`."""
        self.is_followed = is_followed
        if not is_followed:
            self.moved.clear()
            self._reported_pending.clear()

    def _notice(self, job: Job, cause: int, status: str, *, is_run: bool = True) -> JobChanged:
        source, builder = job.source, self._builders.get(job.builder)
        key = f"{LISTED_ANALYSIS}{{{job.builder.hex()}}}" if job.is_analysis else job.key
        return JobChanged(
            cause, job.id, source.rel, source.scan_folder, job.platform or "all", key, builder.name if builder else "",
            status, job.full_reason, job.error, job.warnings, job.errors, job.duration_ms, job.log_file, job.run_key,
            job.completed_ms, is_run, together(product.facts for product in job.products), job.flaky,
            job.is_draft and bool(job.fingerprint), job.is_critical,
        )  # fmt: skip

    def record_duration(self, job: Job, duration_ms: int) -> None:
        """Record the duration of a run of this job."""
        if job.is_analysis:
            self._record_mean((job.builder, True), duration_ms)
        else:
            self.record_durations(job.builder, ((duration_ms, job.duration_ms),))

    def record_durations(self, builder: bytes, runs: Collection[tuple[int, int]]) -> None:
        """Record runs of jobs of this builder.

        Each of `runs` is a pair (duration, duration of the same job's previous run), both in ms, in the order of the runs. 0 as
        the second number means that the job did not run before.
        """
        last = self._last_ms.get(builder)
        if last is None:
            last = self._last_ms[builder] = deque(maxlen=_LAST_RUNS)
        last.extend(duration_ms for duration_ms, _before_ms in runs)
        for duration_ms, before_ms in runs:
            self._record_mean((builder, False), duration_ms)
            self._spent_ms += before_ms or duration_ms
        self._run_count += len(runs)

    def _record_mean(self, kind: tuple[bytes, bool], duration_ms: int) -> None:
        mean = self._mean_ms.get(kind)
        self._mean_ms[kind] = duration_ms if mean is None else mean * 0.9 + duration_ms * 0.1

    def mean_ms(self, job: Job) -> float | None:
        """Return the mean duration of runs like that of `job`, with the most weight on recent runs; None if no run is known."""
        return self._mean_ms.get((job.builder, job.is_analysis))

    def spent(self) -> tuple[int, int]:
        """Return (number of measured runs since the engine opened, sum of their expected durations in ms)."""
        return self._run_count, self._spent_ms

    def usual_ms(self, builder: bytes) -> int | None:
        """Return the median duration of the last runs of a builder, None if no run is known."""
        last = self._last_ms.get(builder)
        return sorted(last)[len(last) // 2] if last else None
