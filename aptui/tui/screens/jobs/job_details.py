"""Reads one job for the Jobs screen: its row, its runs and the log of one run from the database, a running log from the engine.

Nothing is drawn here. A thread reads the database for the newest request only, and does not read while a key is held down. The
engine is asked for new lines of a running job once per 0.8 s while the job's log is visible. The requests are sent when a frame is
drawn, so a slow connection or processor makes them rarer.

Tests: `tests/tui/screens/jobs/test_jobs_pane.py`, `tests/tui/screens/jobs/test_running.py`.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aptui.core.notices import LogLevel, LogRecord
from aptui.core.paths import builder_uuid
from aptui.shared.errors import HostError, KnownError, UserError
from aptui.shared.files.git import author_of, head
from aptui.shared.files.replacing import read_regular
from aptui.store import joblog
from aptui.store.joblog import JobLogLine, lines_of
from aptui.store.queries.logs import place_of
from aptui.store.queries.reader import JobRow, Reader, RunRow, open_reader
from aptui.store.queries.session_history import OutcomeChange, outcome_change
from aptui.tui.background import LatestOnly
from aptui.tui.data.job_infos import JobRowInfo
from aptui.tui.data.session import SessionState
from aptui.tui.screens.external_programs import native
from aptui.tui.widgets.log_sources import LogPaneLine, level_letter
from aptui.tui.words import size_text

if TYPE_CHECKING:
    from aptui.link.port import Answer
    from aptui.tui.pane import Shell


QUIET_S = 0.06
"""Debounce time (seconds). If requests arrive in quick succession, the newest is handled after this time without a request."""
CATCH_UP_S = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Delays between reads while the stored job is older than the last notice about the job (seconds)."""
LARGEST_BYTES = 8 << 20
"""Maximum size of a shown log (bytes). Of a larger log only the end is shown; the pager shows the whole log."""


class DetailsRequest(Struct, frozen=True):
    """A request to read a job.

    Args:
        run_key: the run; 0 = the newest.
        expects: (status, run key) of the job's last notice; the database may still have an older state.
    """

    info: JobRowInfo
    run_key: int = 0
    expects: tuple[str, int] | None = None


class JobDetails(Struct, frozen=True):
    """A job as stored, and the log of one run.

    Args:
        runs: the newest first; empty if no run is recorded.
        at: index of the shown run in `runs`.
        log: path of the run's log in text form, "" if it has no log.
        records: the lines of the log with their context; `lines` has the same lines as they are drawn.
        nothing: the reason why there are no lines; it is shown in place of the log.
        running_key: key of the run in progress whose lines are shown; 0 = the lines are from the finished run `runs[at]`.
        failing: the first run of the current series of failed runs, None if the last run did not fail.
    """

    info: JobRowInfo
    row: JobRow | None = None
    runs: tuple[RunRow, ...] = ()
    at: int = 0
    log: str = ""
    records: tuple[joblog.JobLogLine, ...] = ()
    lines: tuple[LogPaneLine, ...] = ()
    nothing: str = ""
    running_key: int = 0
    failing: OutcomeChange | None = None

    @property
    def run(self) -> RunRow | None:
        """The shown run, None = no run."""
        return self.runs[self.at] if self.runs else None

    @property
    def is_newest(self) -> bool:
        """Whether the shown run is the last run."""
        return self.at == 0


class DetailsReader:
    """Reads jobs in a thread.

    Args:
        deliver: called in the thread with the details of the requested job, and again with the author of `failing.commit`.
        project: the project folder, in whose Git history authors are found; None = the database has no project.
    """

    def __init__(self, database: Path, log_dir: Path, deliver: Callable[[JobDetails], object], project: Path | None = None) -> None:
        self._database, self._log_dir, self._deliver, self._project = database, log_dir, deliver, project
        self._authors: dict[str, str] = {}
        self._worker = LatestOnly[DetailsRequest]("aptui-details", self._read_current, pause_s=QUIET_S)

    def request(self, request: DetailsRequest) -> None:
        """Request a job; an earlier request that is still waiting is dropped."""
        self._worker.put(request)

    def close(self) -> None:
        """End the thread."""
        self._worker.close()

    def _read_current(self, _kind: str, request: DetailsRequest) -> None:
        """Read the job, and read it again until the database agrees with the notices; deliver the result.

        Stop when another job is requested.
        """
        details = self.read(request)
        for pause_s in CATCH_UP_S:
            if _is_current(details, request) or self._worker.is_superseded(wait_s=pause_s):
                break
            details = self.read(request)
        if self._worker.is_superseded():
            return
        self._deliver(details)
        failing = details.failing
        if failing is not None and failing.commit not in self._authors and self._project is not None:
            self._authors[failing.commit] = author_of(self._project, failing.commit)
            if not self._worker.is_superseded():
                self._deliver(replace(details, failing=replace(failing, author=self._authors[failing.commit])))

    def read(self, request: DetailsRequest) -> JobDetails:
        """Read a job once, in the calling thread."""
        try:
            with closing(open_reader(self._database)) as reader:
                row = find_job(reader, request.info)
                runs = tuple(reader.runs_of(request.info.key)) if request.info.key > 0 else ()
                failing = outcome_change(reader, request.info.key, self._head) if runs and runs[0].outcome else None
        except KnownError as error:
            return JobDetails(request.info, nothing=error.what)
        at = next((at for at, run in enumerate(runs) if run.run_key == request.run_key), 0)
        log = runs[at].log_file if runs else row.log if row else ""
        if failing is not None:
            failing = replace(failing, author=self._authors.get(failing.commit, ""))
        path = place_of(self._log_dir, log) if log else ""
        return self._with_log(JobDetails(request.info, row, runs, at, path, failing=failing))

    def _head(self) -> str:
        return head(str(self._project)).commit if self._project is not None else ""

    def _with_log(self, details: JobDetails) -> JobDetails:
        records, nothing = [], ""
        if details.log:
            try:
                records = read_log(native(details.log))
            except KnownError as error:
                nothing = error.what
        elif details.info.status == "processing":
            nothing = "no log yet: the run has not logged anything"
        elif details.info.status == "cancelled":
            nothing = "no log: the job was cancelled before it ended"
        elif details.row is not None and details.row.status in ("pending", "processing"):
            nothing = "no log yet: the job has not run"
        else:
            nothing = (
                details.row.error.partition("\n")[0] if details.row and details.row.error else "no log: the run wrote no lines"
            )
        lines = tuple(draw_records(records))
        return replace(details, records=tuple(records), lines=lines, nothing=nothing)


def read_log(path: str) -> list[joblog.JobLogLine]:
    """Return the lines of a log, or the end of a very large one.

    Raises:
        HostError: it cannot be read.
    """
    try:
        status = os.stat(path)  # before the read: a running job may add lines after it
        data = read_regular(path, LARGEST_BYTES, is_tail=True)
        left_out = max(0, status.st_size - LARGEST_BYTES)
    except FileNotFoundError:
        name = path.rpartition("/JobLogs/")[2]
        raise HostError(
            f"the log '{name}' no longer exists, because old logs are deleted", hint="the next run writes a log"
        ) from None
    except OSError as error:
        raise HostError(
            f"the log cannot be read: {(error.strerror or 'no reason given').lower()} ('{path}')",
            hint="check the permissions of the file",
        ) from error
    now_ms = status.st_mtime_ns // 1_000_000
    if not left_out:
        return joblog.parse_text(data.decode("utf-8", "replace"), now_ms)
    lines = joblog.parse_text(data.partition(b"\n")[2].decode("utf-8", "replace"), now_ms)
    return [
        joblog.JobLogLine(
            1, "aptui", f"{size_text(left_out)} of earlier lines are left out; open the log in the pager to see them", now_ms
        ),
        *lines,
    ]


def find_job(reader: Reader, info: JobRowInfo) -> JobRow | None:
    """Return the row of a job, or the row of a failed analysis."""
    if info.key > 0:
        return reader.job(info.key)
    source = None if info.source_id else reader.source(info.source)
    source_id = source.source_id if source else info.source_id
    failed = [row for row in reader.jobs_of(source_id) if not row.job_id]
    return next((row for row in failed if row.builder == builder_uuid(info.builder)), failed[0] if failed else None)


def _is_current(details: JobDetails, request: DetailsRequest) -> bool:
    return request.expects is None or details.row is None or (details.row.status, details.row.run_key) == request.expects


_EXIT = re.compile(r"command exited with status (\d+): (.+)", re.DOTALL)


def draw_records(records: Iterable[joblog.JobLogLine]) -> Iterator[LogPaneLine]:
    """Yield the lines of a log as they are drawn.

    The line about a command's exit leaves out the error if an earlier line shows the same error.
    """
    errors: set[str] = set()
    for record in records:
        found = _EXIT.fullmatch(record.text) if record.level >= LogLevel.ERROR else None
        errors.add(record.text)
        yield _draw_record(record, f"exit status {found[1]}" if found and found[2] in errors else joblog.spoken(record.text))


def _draw_record(record: joblog.JobLogLine, text: str) -> LogPaneLine:
    moment = datetime.fromtimestamp(record.time_ms / 1000)  # noqa: DTZ006  # local time, for the user
    time_of_day = f"{moment:%H:%M:%S}.{record.time_ms % 1000:03d}"
    return LogPaneLine(time_of_day, level_letter(record.level), record.window, text, bool(record.context), context=record.context)


FIRST_S, AGAIN_S = 0.25, 0.8
"""Delay before the engine is first asked about a job, and the interval after an answer (seconds)."""


class RunningLines(Struct, frozen=True):
    """The lines that the run `run_key` of the job `job_id` has logged up to now.

    The lines are stored as the engine sent them (`records`), as log lines (`lines`), and as lines ready to be drawn (`drawn`).
    `stamp` is the engine's number of this state of the log; the next request contains it, so that the engine returns only a later
    state.
    """

    job_id: int
    run_key: int = 0
    stamp: int = -1
    records: tuple[LogRecord, ...] = ()
    lines: tuple[JobLogLine, ...] = ()
    drawn: tuple[LogPaneLine, ...] = ()


class RunningLog:
    """Requests the log of a running job.

    Args:
        running_id: returns the id of the job whose running log is shown; 0 = none.
        later: requests a frame after a delay in seconds.
    """

    def __init__(
        self, shell: Shell, running_id: Callable[[], int], accept: Callable[[RunningLines], object],
        later: Callable[[float], object], clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._shell, self._running_id, self._accept_lines, self._later, self._clock = shell, running_id, accept, later, clock
        self._known = RunningLines(0)
        self._due_s = 0.0
        self._is_asking = False
        self._old_engine_pid = 0
        """Process id of an engine that is too old to answer `ReadRunLog`, 0 = none."""

    def ask(self) -> None:
        """Send a request if it is due; called with each frame."""
        job_id, now_s, session = self._running_id(), self._clock(), self._shell.session
        if not job_id or session.state is not SessionState.ATTACHED or session.engine.pid == self._old_engine_pid:
            self._known = RunningLines(0)
            return
        if job_id != self._known.job_id:
            self._known, self._due_s = RunningLines(job_id), now_s + FIRST_S
            self._later(FIRST_S)
            return
        if not self._is_asking and now_s >= self._due_s:
            from aptui.link.port import ReadRunLog  # imported here: not needed before the first paint

            self._is_asking = True
            known = self._known
            answer = session.ask(ReadRunLog(job_id, known.run_key, known.stamp))
            answer.add_done_callback(lambda done: self._accept_answer(known, done))

    def _accept_answer(self, known: RunningLines, answer: Future[Answer]) -> None:
        """Turn an answer into lines; runs in the session's thread."""
        from aptui.store.queries.logs import make_run_log

        pid, found = 0, known
        try:
            log = make_run_log(answer.result())
            if log.records is not None:
                found = _with(known, log.run_key, log.stamp, log.records)
        except UserError:
            pid = self._shell.session.engine.pid
        except (KnownError, msgspec.ValidationError):
            pass  # no retry is needed, because the next frame sends the request again
        self._shell.in_ui(self._accept, found, pid)

    def _accept(self, found: RunningLines, old_engine_pid: int) -> None:
        self._is_asking, self._old_engine_pid = False, old_engine_pid
        if found.job_id != self._known.job_id:
            return
        is_more = found is not self._known and bool(found.lines)
        self._known, self._due_s = found, self._clock() + AGAIN_S
        if is_more:
            self._accept_lines(found)


def _with(known: RunningLines, run_key: int, stamp: int, records: tuple[LogRecord, ...]) -> RunningLines:
    """Return the lines of the run with the new records; the `LogPaneLine`s of known records are reused."""
    if not run_key:
        return known
    is_more = run_key == known.run_key and records[: len(known.records)] == known.records
    begun = known if is_more else RunningLines(known.job_id)
    lines = tuple(lines_of(records[len(begun.records) :]))
    return RunningLines(known.job_id, run_key, stamp, records, (*begun.lines, *lines), (*begun.drawn, *draw_records(lines)))


def with_running(
    job_details: JobDetails, info: JobRowInfo, running: RunningLines, *, is_wanted: bool
) -> tuple[JobDetails, RunningLines | None]:
    """Put the lines of a run in progress into the details of its job; return (the details to show, `running`).

    If the user stepped to another run, the details stay unchanged. If the run has ended or belongs to another job, return
    (`job_details`, None).

    Args:
        job_details: the details as they were read from the database.
        is_wanted: False if the user stepped to another run.
    """
    is_over = info.status != "processing" or any(run.run_key == running.run_key for run in job_details.runs)
    if is_over or running.job_id != job_details.info.key:
        return job_details, None
    if not is_wanted:
        return job_details, running
    now = replace(job_details, log="", nothing="", records=running.lines, lines=running.drawn, running_key=running.run_key)
    return now, running


def continues_run(before: JobDetails | None, now: JobDetails) -> bool:
    """Return whether both show the same run, and the run was in progress in `before`. In `now`, the run may have ended."""
    if before is None or not before.running_key or before.info.key != now.info.key:
        return False
    return before.running_key == (now.running_key or (now.run.run_key if now.run else 0))
