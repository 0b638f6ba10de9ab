"""Reports the progress of an engine: one line that is redrawn on a terminal, plain lines elsewhere, and each failure at once.

The reporter is a listener of the engine, so it must be fast, and must not raise an exception, even if the stream is closed. It also
records the jobs that ran, and the slowest of them. `batch.summary` reads the state of the whole project from the database.

Tests: `tests/batch/test_run.py`.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from aptui.core.model import LISTED_ANALYSIS, describe_key
from aptui.shared import printing

if TYPE_CHECKING:
    from aptui.core.notices import JobChanged, Notice, Progress

_REDRAW_S = 0.1
"""Minimum interval (seconds) of drawing the progress line on a terminal."""
_CALM_S = 0.3
"""Delay (seconds) before the first progress line; a shorter run draws none."""
_PLAIN_S = 10.0
"""Interval (seconds) of progress lines without a terminal."""
_WINDOW_S = 5.0
"""Time window (seconds) over which the rate of finished jobs is measured."""
_LEAST_SAMPLES = 2
"""Minimum number of samples of the rate, which are kept even if they are older than the time window: a rate needs two samples."""
_WHOLE_RATE = 10
"""Rate (jobs per second) below which a rate is shown with one decimal."""
SLOWEST = 5
"""Number of the slowest jobs that are recorded."""
_LEAST_SHOWN_MS = 1000
"""Minimum (milliseconds) of the lower bound of the remaining time. A smaller lower bound is not shown."""


class Reporter:
    """Listener of one engine.

    Args:
        stream: for progress and failures; stdout is for data.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self.slowest: list[tuple[int, str]] = []
        self.builders: dict[str, tuple[int, int]] = {}
        self.jobs_run: int = 0
        self._stream = stream
        self._clock = clock
        self._is_live = printing.is_terminal(stream)
        self._began_s = self._drawn_s = clock()
        self._samples: deque[tuple[float, int]] = deque()
        self._runs_before = 0
        self._line = ""
        self._ran = bytearray()
        self._progress: Progress | None = None

    def __call__(self, notice: Notice) -> None:
        """Handle one notice."""
        # notices are imported on demand, because a run without work has no notices
        from aptui.core.notices import EngineMessage, JobChanged, Progress

        match notice:
            case JobChanged():
                self._job_changed(notice)
            case Progress():
                if self._progress is None:
                    self._runs_before = notice.jobs_done + notice.jobs_failed
                self._progress = notice
                self._tick()
            case EngineMessage():
                self.say(printing.line(notice.text), "yellow")
            case _:
                pass

    def say(self, text: str, colour: str = "") -> None:
        """Write a line above the progress line; `text` must be safe for terminals."""
        self._erase()
        self._write(f"{printing.colour_text(text, colour, self._stream)}\n")
        self._draw()

    def close(self) -> None:
        """Remove the progress line."""
        self._erase()
        self._is_live = False
        self._progress = None

    # ---------------------------------------------------------------------------------------------------------------- jobs

    def _job_changed(self, job: JobChanged) -> None:
        if job.status not in ("completed", "failed"):
            return
        if job.is_run and job.job_id and not job.job_key.startswith(LISTED_ANALYSIS):
            self._count(job)
        if job.status == "failed":
            self.say(failure_text(job.source, job.platform, describe_key(job.job_key, job.builder), job.error), "red")

    def _count(self, job: JobChanged) -> None:
        index = job.job_id
        if index >= len(self._ran):
            self._ran.extend(bytes(index + 1024 - len(self._ran)))
        self.jobs_run += not self._ran[index]
        self._ran[index] = 1
        count, total_ms = self.builders.get(job.builder, (0, 0))
        self.builders[job.builder] = count + 1, total_ms + job.duration_ms
        if len(self.slowest) < SLOWEST:
            heapq.heappush(self.slowest, (job.duration_ms, job_name(job.source, job.platform, job.job_key)))
        elif job.duration_ms > self.slowest[0][0]:
            heapq.heapreplace(self.slowest, (job.duration_ms, job_name(job.source, job.platform, job.job_key)))

    # ------------------------------------------------------------------------------------------------------------ progress

    def _tick(self) -> None:
        now = self._clock()
        if now - self._began_s < _CALM_S or now - self._drawn_s < (_REDRAW_S if self._is_live else _PLAIN_S):
            return
        self._drawn_s = now
        if self._is_live:
            self._draw()
        else:
            self._write(f"{self._text()}\n")

    def _draw(self) -> None:
        if not self._is_live or self._progress is None or self._clock() - self._began_s < _CALM_S:
            return
        text = self._text()
        columns = printing.width(self._stream) or 80
        # The text leaves the last column empty, because some terminals begin a new line when that column is written.
        text = text if len(text) < columns else text[: max(columns - 2, 0)] + "…"
        if text != self._line:
            self._write(f"\r{text}\x1b[K")
            self._line = text

    def _erase(self) -> None:
        if self._line:
            self._write("\r\x1b[K")
            self._line = ""

    def _text(self) -> str:
        from aptui.core.notices import Progress

        news = self._progress or Progress(0, 0, 0, 0, 0, 0, 0, 0, is_scanning=True)
        finished = news.done_now + news.failed_now
        unfinished = news.jobs_waiting + news.jobs_running
        parts = [f"{finished:,} of {finished + unfinished:,} jobs"]
        if news.failed_now:
            parts.append(f"{news.failed_now:,} failed")
        if news.jobs_running:
            parts.append(f"{news.jobs_running:,} running")
        rate = self._rate(news.jobs_done + news.jobs_failed)
        if rate > 0:
            parts.append(f"{rate:,.0f}/s" if rate >= _WHOLE_RATE else f"{rate:.1f}/s")
        if news.is_scanning:
            parts.append(f"scanning: {news.files_scanned:,} files so far")
        elif news.eta_ms > 0:
            parts.append(format_time_left(news.eta_ms, news.least_ms))
        return ", ".join(parts)

    def _rate(self, runs: int) -> float:
        now = self._clock()
        self._samples.append((now, runs))
        while len(self._samples) > _LEAST_SAMPLES and now - self._samples[0][0] > _WINDOW_S:
            self._samples.popleft()
        then, before = self._samples[0]
        if now - then < _REDRAW_S:
            then, before = self._began_s, self._runs_before
        return (runs - before) / (now - then) if now > then else 0.0

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self._is_live = False  # if the stream is closed, the run continues without progress output


def format_time_left(eta_ms: int, least_ms: int) -> str:
    """Return the estimated time left as text, and its minimum `least_ms` if that is long enough to be shown."""
    estimate, least = printing.duration(max(1.0, eta_ms / 1000)), printing.duration(least_ms / 1000)
    is_shown = _LEAST_SHOWN_MS <= least_ms <= eta_ms and least != estimate
    return f"about {estimate} left, at least {least}" if is_shown else f"about {estimate} left"


def job_name(source: str, platform: str, job_key: str) -> str:
    """Return the displayed name of a job: PATH@PLATFORM:KEY, safe for terminals."""
    return printing.line(f"{source}@{platform}:{job_key}")


def failure_text(source: str, platform: str, job_key: str, error: str) -> str:
    """Return the line that reports a failed job."""
    return f"failed: {job_name(source, platform, job_key)}: {printing.line(error) or 'no reason given'}"
