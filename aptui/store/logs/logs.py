"""The list of logs, of jobs and of the engine; how a line is read is `joblog`'s business."""

from __future__ import annotations

import os
import re
from pathlib import Path

from msgspec import Struct

from aptui.config.dirs import own_folder
from aptui.core.paths import from_text
from aptui.store.logs import joblog
from aptui.store.queries.reader import Reader

_ABSOLUTE = re.compile(r"/|[A-Za-z]:[\\/]")


class StoredRunLog(Struct, frozen=True):
    """One run of a job, or the last analysis, and its log; `lines` is empty and `note` says why where there is none."""

    run_key: int
    completed_ms: int
    outcome: int
    lines: tuple[joblog.JobLogLine, ...] = ()
    note: str = ""


def place_of(log_dir: Path, name: str) -> str:
    """Return where a log lies whose name the database has, as text.

    O3DE writes absolute names; where such a log is gone, the database may have come from another place or machine, and its
    logs with it.
    """
    if not _ABSOLUTE.match(name):
        return f"{log_dir}/{name}"
    _, found, rest = name.replace("\\", "/").partition("/JobLogs/")
    return f"{log_dir}/JobLogs/{rest}" if found and not os.path.isfile(_native(name)) else name


def path_of(log_dir: Path, name: str) -> Path:
    """Return the path of a log whose name the database has."""
    return Path(_native(place_of(log_dir, name)))


def _native(text: str) -> str:
    return os.fsdecode(from_text(text))


def log_folder(cache_dir: Path) -> Path:
    """Return the log folder of a cache whose configuration is not known: our default one, or else O3DE's."""
    ours, theirs = own_folder(cache_dir), cache_dir.parent / "user" / "log"
    return theirs if theirs.is_dir() and not ours.is_dir() else ours / "logs"


def engine_logs(log_dir: Path, base: str = "aptui") -> list[Path]:
    """Return the engine's own logs, the one that is written now first, then the newest."""
    rolled = [path for path in log_dir.glob(f"{base}.*.log") if path.name[len(base) + 1 : -4].isdigit()]
    rolled.sort(key=lambda path: -int(path.name[len(base) + 1 : -4]))
    current = log_dir / f"{base}.log"
    return [*([current] if current.is_file() else []), *rolled]


def run_log(reader: Reader, log_dir: Path, job_id: int, back: int = 0) -> StoredRunLog | None:
    """Return the log of a job's last run, or of the one `back` runs before; None when there is no such run.

    Raises:
        HostError: the log is gone or cannot be read.
    """
    runs = reader.runs_of(job_id)
    if not runs and back == 0:
        # O3DE's own databases know the last log alone.
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
