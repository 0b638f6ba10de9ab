"""What the selected job has logged so far while it runs: asked of the engine about once a second, as long as it is shown.

Nothing is asked of a job that is not shown or does not run, nor while an answer is awaited; frames give the beat, and they come
later where line or processor is slow. How lines look is the event log's business.

Tests: `tests/tui/screens/jobs/log/test_running.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aptui.core.notices import LogRecord
from aptui.shared.errors import KnownError, UserError
from aptui.store.joblog import JobLogLine, lines_of
from aptui.tui.data.session import SessionState
from aptui.tui.screens.jobs.details import JobDetails, draw_record
from aptui.tui.widgets.lines import LogPaneLine

if TYPE_CHECKING:
    from aptui.link.port import Answer
    from aptui.tui.data.job_infos import JobRowInfo
    from aptui.tui.pane import Shell

FIRST_S, AGAIN_S = 0.25, 0.8
"""So long a job is looked at before it is asked about; and so long after an answer it is asked about again."""


class RunningLines(Struct, frozen=True):
    """The lines so far of the run `run_key` of the job `job_id`, and as they are drawn; `records` are what they were made of."""

    job_id: int
    run_key: int = 0
    stamp: int = -1
    records: tuple[LogRecord, ...] = ()
    lines: tuple[JobLogLine, ...] = ()
    drawn: tuple[LogPaneLine, ...] = ()


class RunningView(Protocol):
    """Where the lines are shown."""

    @property
    def running_id(self) -> int:
        """The job whose running log is wanted; 0 = none."""

    def take_running(self, running: RunningLines) -> None:
        """Show them."""


class RunningLog:
    """Asks about the job that `view` shows.

    Args:
        later: has a frame drawn in so many seconds.
        clock: seconds of a monotonic clock.
    """

    def __init__(
        self, shell: Shell, view: RunningView, later: Callable[[float], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._shell, self._view, self._later, self._clock = shell, view, later, clock
        self._known = RunningLines(0)
        self._due_s = 0.0
        self._is_asking = False
        self._deaf_pid = 0
        """The process of an engine that does not know the question."""

    def ask(self) -> None:
        """Ask, if it is time; call it with each frame."""
        job_id, now_s, session = self._view.running_id, self._clock(), self._shell.session
        if not job_id or session.state is not SessionState.ATTACHED or session.engine.pid == self._deaf_pid:
            self._known = RunningLines(0)
            return
        if job_id != self._known.job_id:
            self._known, self._due_s = RunningLines(job_id), now_s + FIRST_S
            self._later(FIRST_S)
            return
        if not self._is_asking and now_s >= self._due_s:
            from aptui.link.port import ReadRunLog  # for start-up: the verbs come after the first paint

            self._is_asking = True
            known = self._known
            answer = session.ask(ReadRunLog(job_id, known.run_key, known.stamp))
            answer.add_done_callback(lambda done: self._take_answer(known, done))

    def _take_answer(self, known: RunningLines, answer: Future[Answer]) -> None:
        """Make lines of an answer; called in the session's thread."""
        from aptui.link.client import make_run_log

        pid, found = 0, known
        try:
            log = make_run_log(answer.result())
            if log.records is not None:
                found = _with(known, log.run_key, log.stamp, log.records)
        except UserError:
            pid = self._shell.session.engine.pid
        except (KnownError, msgspec.ValidationError):
            pass  # it is asked again
        self._shell.in_ui(self._take, found, pid)

    def _take(self, found: RunningLines, deaf_pid: int) -> None:
        self._is_asking, self._deaf_pid = False, deaf_pid
        if found.job_id != self._known.job_id:
            return
        is_more = found is not self._known and bool(found.lines)
        self._known, self._due_s = found, self._clock() + AGAIN_S
        if is_more:
            self._view.take_running(found)


def _with(known: RunningLines, run_key: int, stamp: int, records: tuple[LogRecord, ...]) -> RunningLines:
    """Return what is known now; lines that were made already stay."""
    if not run_key:
        return known
    is_more = run_key == known.run_key and records[: len(known.records)] == known.records
    begun = known if is_more else RunningLines(known.job_id)
    lines = tuple(lines_of(records[len(begun.records) :]))
    return RunningLines(known.job_id, run_key, stamp, records, (*begun.lines, *lines), (*begun.drawn, *map(draw_record, lines)))


def with_running(
    job_details: JobDetails, info: JobRowInfo, running: RunningLines, *, is_wanted: bool
) -> tuple[JobDetails, RunningLines | None]:
    """Return what is to be shown of a job, and what is known of its run: its lines stand instead of those of a run before.

    Args:
        job_details: what was read.
        info: the job as its row is now.
        is_wanted: nobody stepped to another run.
    """
    is_over = info.status != "processing" or any(run.run_key == running.run_key for run in job_details.runs)
    if is_over or running.job_id != job_details.info.key:
        return job_details, None
    if not is_wanted:
        return job_details, running
    now = replace(job_details, log="", nothing="", records=running.lines, lines=running.drawn, running_key=running.run_key)
    return now, running


def goes_on(before: JobDetails | None, now: JobDetails) -> bool:
    """Whether these lines are those of before with more to them: of one run, while it goes on or when it has ended."""
    if before is None or not before.running_key or before.info.key != now.info.key:
        return False
    return before.running_key == (now.running_key or (now.run.run_key if now.run else 0))
