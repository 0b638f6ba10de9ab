"""Reads the stored logs of jobs and of the engine, and the log of a running job; `joblog` parses the lines."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path

import msgspec
from msgspec import Struct

from aptui.config.dirs import own_folder
from aptui.core.notices import LogLevel, LogRecord
from aptui.core.paths import os_path
from aptui.shared.errors import KnownError
from aptui.shared.files.replacing import read_regular
from aptui.shared.forms import prepare_form
from aptui.store import joblog
from aptui.store.joblog import JobLogLine, parse_text
from aptui.store.queries.reader import Reader, open_reader

# Clients convert the answer to `port.ReadRunLog` into these records.


class RunLogSoFar(Struct, frozen=True):
    """The log of a run so far. `run_key` 0 = the job does not run; `records` None = no new records since `stamp`."""

    run_key: int = 0
    stamp: int = -1
    records: tuple[LogRecord, ...] | None = None


def make_run_log(answer: object) -> RunLogSoFar:
    """Convert an engine's answer to `port.ReadRunLog` into a `RunLogSoFar`.

    Raises:
        msgspec.ValidationError: the answer does not have the fields of this record.
    """
    return msgspec.convert(answer, prepare_form(RunLogSoFar))


_ABSOLUTE = re.compile(r"/|[A-Za-z]:[\\/]")


class StoredRunLog(Struct, frozen=True):
    """One run of a job, or the last analysis, and its log; without a log `lines` is empty and `note` says why."""

    run_key: int
    completed_ms: int
    outcome: int
    lines: tuple[joblog.JobLogLine, ...] = ()
    note: str = ""


def place_of(log_dir: Path, name: str) -> str:
    """Convert `name`, the name of a log in the database, to the path of the log file, as text.

    O3DE stores absolute paths as names. If no file exists at the stored path, the database may have been moved together with its
    logs. Then the path of the log below `log_dir` is returned.
    """
    if not _ABSOLUTE.match(name):
        return f"{log_dir}/{name}"
    _, found, rest = name.replace("\\", "/").partition("/JobLogs/")
    return f"{log_dir}/JobLogs/{rest}" if found and not os.path.isfile(os_path(name)) else name


def path_of(log_dir: Path, name: str) -> Path:
    """Return the path of a log that has this name in the database."""
    return Path(os_path(place_of(log_dir, name)))


def log_folder(cache_dir: Path) -> Path:
    """Return the log folder of a cache without a known configuration: O3DE's folder if only that exists, else our default."""
    ours, theirs = own_folder(cache_dir), cache_dir.parent / "user" / "log"
    return theirs if theirs.is_dir() and not ours.is_dir() else ours / "logs"


def run_log(reader: Reader, log_dir: Path, job_id: int, back: int = 0) -> StoredRunLog | None:
    """Return the log of a job's last run, or of the run `back` runs before it; None if that run does not exist.

    Raises:
        HostError: the log is gone or cannot be read.
    """
    runs = reader.runs_of(job_id)
    if not runs and back == 0:
        # A database of O3DE records no runs, only the last log of each job.
        job = reader.job(job_id)
        return _read(log_dir, job.run_key, job.completed_ms, -1, job.log) if job and job.completed_ms else None
    if not 0 <= back < len(runs):
        return None
    run = runs[back]
    return _read(log_dir, run.run_key, run.completed_ms, run.outcome, run.log_file)


def _read(log_dir: Path, run_key: int, completed_ms: int, outcome: int, name: str) -> StoredRunLog:
    if not name:
        return StoredRunLog(run_key, completed_ms, outcome, note="this run logged nothing")
    return StoredRunLog(run_key, completed_ms, outcome, tuple(joblog.parse(path_of(log_dir, name))))


# The filter searches errors and warnings in the logs of jobs. The log of a run is read when the filter first needs it.
#
# Only jobs with errors or warnings are searched. Only the beginning and the end of a huge log are read.

LEVELS = {"error": LogLevel.ERROR, "warning": LogLevel.WARNING}
"""{field of the filter: level of the log lines that it searches}."""

_END_BYTES = 128 * 1024
"""Number of bytes that `worker.output` keeps at each end of a run's output.

A search reads at most three times as many bytes of a log: the first `2 * _END_BYTES` and the last `_END_BYTES` bytes.
"""
_MOST_CHARS = 4096
"""Maximum number of characters that are kept of one log at one level."""
_LOGS_SQL = "SELECT j.JobID, j.JobRunKey, j.LastLogFile FROM json_each(?) k JOIN Jobs j ON j.JobID = k.value"

LinesByField = dict[str, str]
"""{"error" or "warning": the distinct log lines of this level, joined by line breaks}."""
_NOTHING: LinesByField = dict.fromkeys(LEVELS, "")


class LogLines:
    """Lines from the log of each job's last run. One thread reads logs; any other thread may query the lines that were read.

    Args:
        database: the asset database, which has the names of the logs.
        log_dir: the folder of the logs; names of logs are relative to it.
    """

    def __init__(self, database: Path, log_dir: Path) -> None:
        self._database, self._log_dir = database, log_dir
        self._lines: dict[int, tuple[int, LinesByField]] = {}

    def list_known(self, field: str, jobs: Sequence[tuple[int, int]]) -> list[str]:
        """Return for each run (job id, run key) its errors or warnings (`field`) as one text, "" if its log was not read."""
        found = [self._lines.get(job_id, (0, _NOTHING)) for job_id, _run_key in jobs]
        return [lines[field] if key == run_key else "" for (key, lines), (_job_id, run_key) in zip(found, jobs, strict=True)]

    def read(self, field: str, jobs: Sequence[tuple[int, int]], check: Callable[[], None]) -> list[str]:
        """Return for each run (job id, run key) its errors or warnings (`field`) as one text. Read logs that were not read yet.

        `check` is called before each log is read; an exception that it raises ends the reading.
        """
        missing = [job_id for job_id, run_key in jobs if job_id > 0 and self._lines.get(job_id, (-1, _NOTHING))[0] != run_key]
        if missing:
            for job_id, run_key, name in self._names(missing):
                check()
                self._lines[job_id] = run_key, read_lines(path_of(self._log_dir, name)) if name else _NOTHING
        return self.list_known(field, jobs)

    def _names(self, job_ids: list[int]) -> list[tuple[int, int, str]]:
        try:
            with closing(open_reader(self._database)) as reader:
                return [(job_id, key or 0, name or "") for job_id, key, name in reader.ask(_LOGS_SQL, (json.dumps(job_ids),))]
        except KnownError:  # the database does not exist yet, or is locked; the caller asks again later
            return []


def read_lines(path: Path) -> LinesByField:
    """Return the lines of a log by level, empty if the log is gone."""
    try:
        data = read_regular(path, 2 * _END_BYTES)
        left_bytes = path.stat().st_size - len(data)
        if left_bytes > 0:
            data += b"\n" + read_regular(path, min(left_bytes, _END_BYTES), is_tail=True)
    except OSError:
        return _NOTHING
    return lines_of(parse_text(data.decode("utf-8", "replace"), 0))


def lines_of(lines: Iterable[JobLogLine]) -> LinesByField:
    """Return the distinct lines of each level."""
    listed = list(lines)
    return {
        field: "\n".join(dict.fromkeys(line.text for line in listed if line.level == level))[:_MOST_CHARS]
        for field, level in LEVELS.items()
    }
