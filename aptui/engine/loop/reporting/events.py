"""Events of the engine for others: notices to listeners, sentences to its log, timed progress.

The listeners are not known here.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from aptui import __version__
from aptui.core.notices import EngineMessage, JobChanged, LogLevel, LogRecord, Notice, Progress
from aptui.engine.loop.reporting.begun import StartedRuns
from aptui.shared.errors import HostError
from aptui.store.logs.joblog import EngineLog

_PROGRESS_S = 0.1

Listener = Callable[[Notice], None]


class NoticePublisher:
    """The engine's voice.

    Args:
        listeners: called with every notice; they must be quick and may not raise.
    """

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self.listeners = list(listeners)
        self.from_threads: deque[str] = deque()
        """What threads have to say."""
        self._log: EngineLog | None = None
        self._logs_jobs = False
        self._repeated: set[str] = set()
        self._cause = 0
        self.begun = StartedRuns()
        self._last: Progress | None = None
        self._last_s = 0.0
        self._took_s = {"scan": 0.0, "analysis": 0.0, "processing": 0.0}
        """How long the last of each kind took: a look at all files that finds nothing is no reason to forget the others."""
        self._begun: set[str] = set()
        """Of which kind there was any in this spell of work."""
        self._before = (0, 0)
        """Runs that had completed and failed when this spell of work began."""

    # ------------------------------------------------------------------------------------------------------------ sentences

    def open_log(self, folder: Path, *, logs_jobs: bool = False) -> None:
        """Begin a log of the engine's own; a folder that cannot be written costs the log, not the run.

        Args:
            logs_jobs: whether every step of a job is a line for debugging.
        """
        self._logs_jobs = logs_jobs
        try:
            begins = f"aptui {__version__} begins, process {os.getpid()}"
            self._log = EngineLog(folder, "aptui", time.time_ns() // 1_000_000, begins)
        except HostError as error:
            self.say_once(str(error))

    def close(self) -> None:
        """End the log."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def notify(self, notice: Notice) -> None:
        """Notify every listener, and write to the engine's log what people may look for later."""
        self._cause = notice.cause
        if isinstance(notice, JobChanged):
            if (begin := self.begun.find_begin(notice)) is not None:
                self._notify(begin)
            if self.begun.holds_back(notice):
                return
        self._notify(notice)

    def notify_started(self, run_keys: Iterable[int]) -> None:
        """Notify listeners that these runs have started, of those whose notices were held back."""
        for notice in self.begun.list_started(run_keys, self._cause):
            self._notify(notice)

    def _notify(self, notice: Notice) -> None:
        if isinstance(notice, EngineMessage):
            self._note(notice.level, notice.text)
        elif isinstance(notice, JobChanged) and notice.status == "failed":
            self._note(LogLevel.ERROR, notice.failure)
        elif self._logs_jobs and isinstance(notice, JobChanged) and notice.status:
            self._note(LogLevel.DEBUG, _step(notice))
        for listener in self.listeners:
            listener(notice)

    def say(self, text: str, level: LogLevel = LogLevel.WARNING) -> None:
        """Say a sentence about the whole engine."""
        self.notify(EngineMessage(self._cause, level, text))

    def say_once(self, text: str) -> None:
        """Say a sentence unless it was said before."""
        if text not in self._repeated:
            self._repeated.add(text)
            self.say(text)

    def notify_from_threads(self) -> None:
        """Pass on what threads have to say."""
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
        """Whether it is time for progress, and there is a listener."""
        return bool(self.listeners) and now - self._last_s >= _PROGRESS_S

    def notify_progress(self, counts: Progress, now: float, *, is_processing: bool | None = None) -> None:
        """Complete `counts` with timers; tell it if it is not as it was.

        Args:
            is_processing: whether workers have jobs, be they at one in this moment or not; None = as `counts` say.
        """
        if counts.is_working and not (self._last and self._last.is_working):
            self._begun.clear()
            self._last_s = now
            self._before = (self._last.jobs_done, self._last.jobs_failed) if self._last else (0, 0)
        elapsed = min(now - self._last_s, 10 * _PROGRESS_S)
        self._last_s = now
        self._count("scan", elapsed, goes_on=counts.is_scanning)
        self._count("analysis", elapsed, goes_on=counts.analyses_running > 0)
        is_processing = counts.jobs_running > 0 if is_processing is None else is_processing
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

    @property
    def latest_progress(self) -> Progress | None:
        """The last progress that was reported."""
        return self._last


def _step(notice: JobChanged) -> str:
    """Return what happened to a job, in one line."""
    after = f" after {notice.duration_ms:,} ms" if notice.status == "completed" and notice.is_run else ""
    why = f": {notice.reason}" if notice.status in ("pending", "processing") and notice.reason else ""
    return f"{notice.status} {notice.source} ({notice.platform}, {notice.job_key}){after}{why}"
