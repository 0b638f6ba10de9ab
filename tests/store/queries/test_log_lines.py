"""Logs are read when a filter needs their lines; the log of each run is read once."""

from __future__ import annotations

from pathlib import Path

import pytest

from aptui.core.notices import LogLevel, LogRecord
from aptui.store import joblog
from aptui.store.queries import logs
from aptui.store.queries.logs import LogLines, read_lines

from ..conftest import Store, job_row, source_row

RUN = 12


def write(path: Path, *lines: tuple[LogLevel, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    joblog.write(path, [LogRecord(level, "levels", text, 1_000) for level, text in lines], 0, 0)


def nothing() -> None:
    """Do nothing."""


@pytest.fixture
def lines(store: Store, tmp_path: Path) -> LogLines:
    log_dir = tmp_path / "logs"
    store.put(put_source=[source_row(1, "a.stl")], put_job=[job_row(1, 1, run_key=RUN, last_log="JobLogs/a.log")])
    write(log_dir / "JobLogs" / "a.log", (LogLevel.ERROR, "one"), (LogLevel.WARNING, "two"), (LogLevel.ERROR, "one"))
    return LogLines(store.path, log_dir)


def test_lines_of_a_log_are_listed_once_for_each_level(lines: LogLines) -> None:
    assert lines.list_known("error", [(1, RUN)]) == [""]
    assert lines.read("error", [(1, RUN)], nothing) == ["one"]
    assert lines.list_known("warning", [(1, RUN)]) == ["two"]


def test_filter_reads_the_log_of_a_run_once(lines: LogLines, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(logs, "read_lines", lambda path: read.append(path.name) or read_lines(path))
    lines.read("error", [(1, RUN)], nothing)
    lines.read("warning", [(1, RUN)], nothing)

    assert read == ["a.log"]
    assert lines.list_known("error", [(1, RUN + 1)]) == [""]
    assert lines.read("error", [(1, RUN + 1)], nothing) == [""]  # the run is not in the database yet
    assert read == ["a.log"] * 2


def test_cancelled_search_keeps_the_logs_that_it_has_read(lines: LogLines) -> None:
    def give_up() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lines.read("error", [(1, RUN)], give_up)

    assert lines.list_known("error", [(1, RUN)]) == [""]


def test_analyses_unknown_jobs_and_deleted_logs_have_no_lines(lines: LogLines, tmp_path: Path) -> None:
    (tmp_path / "logs" / "JobLogs" / "a.log").unlink()

    assert lines.read("error", [(-1, 0), (7, 3), (1, RUN)], nothing) == ["", "", ""]
    assert LogLines(tmp_path / "none.sqlite", tmp_path).read("error", [(1, RUN)], nothing) == [""]


def test_both_ends_of_a_huge_log_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    write(path, (LogLevel.ERROR, "first"), *[(LogLevel.INFO, "x" * 500)] * 2000, (LogLevel.ERROR, "last"))

    assert path.stat().st_size > 600_000
    assert read_lines(path)["error"] == "first\nlast"
