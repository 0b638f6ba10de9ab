"""Reports of the engine: notices to listeners, sentences in the engine's log, progress at intervals."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from aptui import __version__
from aptui.core.notices import EngineMessage, JobChanged, LogLevel, LogRecord, Notice, Progress
from aptui.core.pipeline.pipeline import OVERHEAD_MS, PendingWork
from aptui.core.rows import SessionEnd, SessionKind
from aptui.shared.errors import HostError
from aptui.shared.files import git
from aptui.store.joblog import EngineLog

if TYPE_CHECKING:
    from aptui.core.messages import Rows
    from aptui.shared.result_store import Account
    from aptui.store.db.last_run import SessionArchive


_PROGRESS_S = 0.1

Listener = Callable[[Notice], None]


class NoticePublisher:
    """Publishes notices and sentences, and writes the engine's log."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self.listeners = list(listeners)
        self.from_threads: deque[str] = deque()
        """Messages that other threads added, and that the loop publishes."""
        self._log: EngineLog | None = None
        self._logs_jobs = False
        self._repeated: set[str] = set()
        self._cause = 0
        self._last: Progress | None = None
        self._last_s = 0.0
        self._took_s = {"scan": 0.0, "analysis": 0.0, "processing": 0.0}
        """{kind of work: duration (seconds) of the last work of this kind}.

        A scan that finds no change does not reset the durations of the other kinds.
        """
        self._begun: set[str] = set()
        """Kinds of work that have begun since the engine was last idle."""
        self._before = (0, 0)
        """Numbers of completed and failed runs when the engine was last idle."""

    # ---------------------------------------------------------------------------------------------------- log and sentences

    def open_log(self, folder: Path, *, logs_jobs: bool = False) -> None:
        """Open the engine's log. If the log's folder cannot be written, the engine runs without a log.

        Args:
            logs_jobs: whether the log also has a line for every step of a job.
        """
        self._logs_jobs = logs_jobs
        try:
            begins = f"aptui {__version__} started as process {os.getpid()}"
            self._log = EngineLog(folder, "aptui", time.time_ns() // 1_000_000, begins)
        except HostError as error:
            self.say_once(str(error))

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def notify(self, notice: Notice) -> None:
        """Notify every listener. Also write the notice to the engine's log if users may need it later."""
        self._cause = notice.cause
        if isinstance(notice, EngineMessage):
            self._note(notice.level, notice.text)
        elif isinstance(notice, JobChanged) and notice.status == "failed":
            self._note(LogLevel.ERROR, notice.failure)
        elif self._logs_jobs and isinstance(notice, JobChanged) and notice.status:
            self._note(LogLevel.DEBUG, _step(notice))
        for listener in self.listeners:
            listener(notice)

    def say(self, text: str, level: LogLevel = LogLevel.WARNING) -> None:
        """Report a sentence about the whole engine."""
        self.notify(EngineMessage(self._cause, level, text))

    def say_once(self, text: str) -> None:
        """Report a sentence about the whole engine, unless it was reported before."""
        if text not in self._repeated:
            self._repeated.add(text)
            self.say(text)

    def notify_from_threads(self) -> None:
        """Report the sentences that other threads have put into `from_threads`."""
        while self.from_threads:
            self.say_once(self.from_threads.popleft())

    def _note(self, level: int, text: str) -> None:
        if self._log is not None:
            try:
                self._log.append(LogRecord(level, "aptui", text, time.time_ns() // 1_000_000))
            except HostError as error:
                self._log = None
                self.say_once(str(error))

    # ------------------------------------------------------------------------------------------------------------- progress

    def progress_is_due(self, now: float) -> bool:
        """Whether the progress is due to be reported and there is a listener."""
        return bool(self.listeners) and now - self._last_s >= _PROGRESS_S

    def notify_progress(self, counts: Progress, now: float, *, is_processing: bool) -> None:
        """Add the durations of scan, analysis and processing to `counts`, and report the result if it changed.

        Args:
            is_processing: whether workers have jobs, even if no job runs at this moment.
        """
        if counts.is_working and not (self._last and self._last.is_working):
            self._begun.clear()
            self._last_s = now
            self._before = (self._last.jobs_done, self._last.jobs_failed) if self._last else (0, 0)
        elapsed = min(now - self._last_s, 10 * _PROGRESS_S)
        self._last_s = now
        self._count("scan", elapsed, goes_on=counts.is_scanning)
        self._count("analysis", elapsed, goes_on=counts.analyses_running > 0)
        self._count("processing", elapsed, goes_on=is_processing, has_ended=(counts.jobs_done, counts.jobs_failed) != self._before)
        news = replace(
            counts,
            scan_ms=int(self._took_s["scan"] * 1000),
            analysis_ms=int(self._took_s["analysis"] * 1000),
            processing_ms=int(self._took_s["processing"] * 1000),
            done_before=self._before[0],
            failed_before=self._before[1],
        )
        if self._last is None or counts.is_working or replace(news, cause=0) != replace(self._last, cause=0):
            self._last = news
            self.notify(news)

    def _count(self, kind: str, elapsed_s: float, *, goes_on: bool, has_ended: bool = False) -> None:
        if (goes_on or has_ended) and kind not in self._begun:
            self._begun.add(kind)
            self._took_s[kind] = 0.0
        self._took_s[kind] += elapsed_s * goes_on


def _step(notice: JobChanged) -> str:
    """Return one line that says what happened to a job."""
    after = f" after {notice.duration_ms:,} ms" if notice.status == "completed" and notice.is_run else ""
    why = f": {notice.reason}" if notice.status in ("pending", "processing") and notice.reason else ""
    return f"{notice.status} {notice.source} ({notice.platform}, {notice.job_key}){after}{why}"


# Estimate of the remaining time: the pending work divided by the pace of work, but at least the duration of the longest chain of
# jobs that wait for each other or for one resource.
#
# A job of a builder that never ran counts with the mean duration of the runs so far. The pace is unknown before the first run, and
# if most jobs get stored results and do not run. In these cases, the estimate is the number of pending jobs divided by the rate at
# which jobs end.
#
# An estimate is requested ten times a second, but summing up the pending work may be slow. So it is summed less often, and takes
# at most a fiftieth of the engine's time.

_ESTIMATE_EVERY_S = 1.0
_MOST_SHARE = 50
"""Minimum interval between two sums of the pending work, as a multiple of the time that the last sum took."""
_WINDOW_S = 30.0
_LEAST_WINDOW_S = 1.0
_RESTORED_SHARE = 0.5

EstimatePending = Callable[[dict[int, float]], PendingWork]
"""Function that returns the sums of the pending work; called with {run key: ms since the run began}."""


class Forecaster:
    """Estimates how long one engine needs for its pending work.

    Args:
        estimate: returns the sums of the pending work.
        spent: returns (number of measured runs, their total duration in ms) since the engine opened.
        workers: how many jobs run at a time.
        cost_clock: returns seconds; measures how long an estimate takes.
    """

    def __init__(
        self,
        estimate: EstimatePending,
        spent: Callable[[], tuple[int, int]],
        workers: int,
        cost_clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._estimate, self._spent, self._workers, self._cost_clock = estimate, spent, max(1, workers), cost_clock
        self._began_s: dict[int, float] = {}
        self._samples: deque[tuple[float, float, int, int]] = deque()
        self._work: PendingWork | None = None
        self._estimated_s = self._due_s = 0.0

    def complete_progress(self, counts: Progress, at_work: Collection[int], now: float) -> Progress:
        """Return `counts` with the estimated remaining time, or unchanged if the time cannot be estimated.

        Args:
            at_work: run keys of the jobs that workers run.
            now: monotonic seconds.
        """
        self._began_s = {key: self._began_s.get(key, now) for key in at_work}
        if counts.is_scanning or not counts.pending_count:
            self._samples.clear()
            self._work = None
            return counts if counts.is_scanning else replace(counts, eta_ms=0)
        elapsed = {key: 1000 * (now - began) for key, began in self._began_s.items()}
        pace = self._pace(counts, sum(elapsed.values()), now)
        if self._work is None or now >= self._due_s:
            self._add_up(elapsed, now)
        work = self._work
        if work is None:
            return counts
        gone_ms = 1000 * (now - self._estimated_s)
        if pace <= 0:
            each_ms = self._job_interval_ms()
            return replace(counts, eta_ms=max(1, int(work.job_count * each_ms - gone_ms))) if each_ms else counts
        runs, spent_ms = self._spent()
        work_ms = work.work_ms + work.unknown_count * spent_ms / max(1, runs)
        least = max(work.chain_ms, work.work_ms / max(pace, self._workers))
        likely = max(work.chain_ms, work_ms / pace)
        return replace(
            counts,
            eta_ms=max(1, int(likely - gone_ms)),
            least_ms=max(1, int(least - gone_ms)),
        )

    def _add_up(self, elapsed: dict[int, float], now: float) -> None:
        began = self._cost_clock()
        self._work = self._estimate(elapsed)
        self._estimated_s, self._due_s = now, now + max(_ESTIMATE_EVERY_S, _MOST_SHARE * (self._cost_clock() - began))

    def _job_interval_ms(self) -> float:
        """Return the mean time (ms) between the ends of jobs during the last 30 seconds, 0 if unknown."""
        (then, _, _, before), (now, _, _, done) = self._samples[0], self._samples[-1]
        return 1000 * (now - then) / (done - before) if done > before and now - then >= _LEAST_WINDOW_S else 0.0

    def _pace(self, counts: Progress, running_ms: float, now: float) -> float:
        """Return the pace: how many ms of work all workers together do in one ms; 0 if unknown."""
        runs, spent_ms = self._spent()
        done = counts.jobs_done + counts.jobs_failed
        self._samples.append((now, spent_ms + OVERHEAD_MS * runs + running_ms, runs, done))
        while self._samples[0][0] < now - _WINDOW_S:
            self._samples.popleft()
        then, before_ms, runs_before, done_before = self._samples[0]
        if now - then < _LEAST_WINDOW_S:
            return 0.0
        if runs - runs_before < _RESTORED_SHARE * (done - done_before):
            return 0.0  # most jobs got stored results, so the duration of runs says nothing about the pending jobs
        return (self._samples[-1][1] - before_ms) / (1000 * (now - then))


# The session in progress: when and why it began. The session's record is written when the engine becomes idle, in one transaction
# with other rows.
#
# Nothing is recorded while jobs run. Each time the engine is idle, some thousand runs of an old session are merged into session 0,
# the time before all recorded sessions.

LONGEST_HISTORY_MS = 180 * 24 * 3600 * 1000
MOST_RUNS = 2_000_000
"""Maximum number of runs in the history, about 80 MB of the database."""
MOST_SESSIONS = 5_000
_SHORT = 10


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class SessionRecorder:
    """Records the session of one engine, if one is in progress.

    Args:
        now_ms: returns the time of day, in ms since 1970.
        head: returns the Git commit that is checked out in a folder.
    """

    def __init__(
        self, folder: str, now_ms: Callable[[], int] = _now_ms, head: Callable[[str], git.CheckoutHead] = git.head
    ) -> None:
        self.is_held = False
        """Whether the session continues while the engine is reopened."""
        self._folder = folder
        self._now_ms = now_ms
        self._head = head
        self._started_ms = 0
        self._rested_ms = 0
        self._has_checked = False
        self._kind = SessionKind.START
        self._saved_ms = 0
        self._fetched_bytes = 0

    def begin(self, kind: SessionKind) -> None:
        """Note that work begins; a session in progress continues."""
        if not self._started_ms:
            self._started_ms, self._kind = self._now_ms(), kind
        self._rested_ms = 0

    def begin_scan(self, signature: str | None, wanted: str) -> None:
        """Record that a scan of all folders begins: at a start, after a change of the configuration, or on request.

        Args:
            signature: the signature of the last configuration whose idle state was recorded; None or "" if unknown.
            wanted: the signature of this engine's configuration.
        """
        is_reconfigured = bool(signature) and signature != wanted
        kind = SessionKind.EDIT if self._has_checked else SessionKind.CONFIGURATION if is_reconfigured else SessionKind.START
        self._has_checked = True
        self.begin(kind)

    def note_rest(self) -> None:
        """Record the present time, because no work is pending. This time becomes the end of the session if no work follows soon."""
        self._rested_ms = self._now_ms()

    def forget(self) -> None:
        """Drop the session, because the scan found no changes; keep it if the engine is being reopened."""
        if not self.is_held:
            self._started_ms = 0

    def find_killed(self, archive: SessionArchive) -> Rows:
        """Return the rows of the session of an engine that was killed, {} if every session is recorded."""
        if self._started_ms or not archive.is_session_pending():
            return {}
        return {"put_session": [(0, 0, SessionKind.START.value, "", archive.last_end()[0], SessionEnd.KILLED.value, 0, 0)]}

    def end(self, archive: SessionArchive, account: Account | None, *, is_stopping: bool) -> Rows:
        """End the session. Return its row, and one that removes an outdated session from the history if there is one.

        The runs of the removed session count as runs of session 0.
        """
        if self.is_held:
            return {}
        started_ms, self._started_ms = self._started_ms, 0
        now_ms = self._rested_ms or self._now_ms()
        rows: Rows = {}
        if started_ms or archive.is_session_pending():
            kind, detail, commit = self._why(*archive.last_end())
            how = SessionEnd.STOPPED if is_stopping else SessionEnd.RESTED
            shared = self._count_shared(account)
            rows["put_session"] = [(started_ms or now_ms, now_ms, kind.value, detail, commit, how.value, *shared)]
        if old := archive.find_outdated_session(now_ms - LONGEST_HISTORY_MS, MOST_RUNS, MOST_SESSIONS):
            rows["prune_session"] = [(old,)]
        return rows

    def _why(self, before: str, ended_ms: int) -> tuple[SessionKind, str, str]:
        head = self._head(self._folder)
        was = before if head.commit != before else head.left if head.moved_ms > ended_ms else before
        if before and head.commit and head.commit != was and not head.is_made_here:
            return SessionKind.CHECKOUT, f"{was[:_SHORT]} → {head.commit[:_SHORT]}", head.commit
        return self._kind, "", head.commit or before

    def _count_shared(self, account: Account | None) -> tuple[int, int]:
        """Return the pair (time in ms saved by reusing stored results, bytes fetched); both count since the last session."""
        if account is None:
            return 0, 0
        total = account.total()
        before, self._saved_ms, self._fetched_bytes = (self._saved_ms, self._fetched_bytes), total.saved_ms, total.fetched_bytes
        return total.saved_ms - before[0], total.fetched_bytes - before[1]
