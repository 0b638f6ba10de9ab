"""What the logs of jobs say of errors and warnings, for the filter: read when first asked for, and kept by run.

Only jobs that counted errors or warnings are asked about, and each log is read once a run; of a huge one its beginning and its end.

Tests: `tests/store/logs/test_log_lines.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path

from aptui.core.notices import LogLevel
from aptui.shared.errors import KnownError
from aptui.store.logs.joblog import JobLogLine, parse_text
from aptui.store.logs.logs import path_of
from aptui.store.queries.reader import open_reader

LEVELS = {"error": LogLevel.ERROR, "warning": LogLevel.WARNING}
"""{field of the filter: level of the lines that it is about}."""

_END_BYTES = 128 * 1024
"""So much is read of either end of a log: what is kept of a run's output (`worker.commands.output`)."""
_MOST_CHARS = 4096
"""So much is kept of what one log says at one level."""
_LOGS_SQL = "SELECT j.JobID, j.JobRunKey, j.LastLogFile FROM json_each(?) k JOIN Jobs j ON j.JobID = k.value"

LinesByField = dict[str, str]
"""{field of the filter: distinct lines of that level, one below the other}."""
_NOTHING: LinesByField = dict.fromkeys(LEVELS, "")


class LogLines:
    """Lines of the logs of jobs' last runs. One thread reads, any other may ask for what is known.

    Args:
        database: the asset database, which says where logs lie.
        log_dir: what names in it are relative to.
    """

    def __init__(self, database: Path, log_dir: Path) -> None:
        self._database, self._log_dir = database, log_dir
        self._lines: dict[int, tuple[int, LinesByField]] = {}

    def list_known(self, field: str, jobs: Sequence[tuple[int, int]]) -> list[str]:
        """Return the lines of the runs (job id, run key), "" for those whose logs were not read."""
        found = [self._lines.get(job_id, (0, _NOTHING)) for job_id, _run_key in jobs]
        return [lines[field] if key == run_key else "" for (key, lines), (_job_id, run_key) in zip(found, jobs, strict=True)]

    def read(self, field: str, jobs: Sequence[tuple[int, int]], check: Callable[[], None]) -> list[str]:
        """Return the lines of the runs (job id, run key); `check` is called before each log and may raise to stop this."""
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
        except KnownError:  # there is none (yet), or it is locked: what is not known now is asked for again
            return []


def read_lines(path: Path) -> LinesByField:
    """Return what a log says at each level, nothing of one that is gone."""
    try:
        with path.open("rb") as file:
            data = file.read(2 * _END_BYTES)
            size = os.fstat(file.fileno()).st_size
            if size > len(data):
                file.seek(max(len(data), size - _END_BYTES))
                data += b"\n" + file.read(_END_BYTES)
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
