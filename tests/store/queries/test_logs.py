"""Logs of jobs, found by job and by run, and logs of the engine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aptui.core.notices import LogLevel, LogRecord
from aptui.shared.errors import HostError
from aptui.store import joblog
from aptui.store.queries import logs
from aptui.store.queries.logs import LogLines, read_lines
from tests.store.conftest import Store, job_row, source_row


def write(folder: Path, name: str, text: str) -> None:
    joblog.write(folder / name, [LogRecord(LogLevel.ERROR, "Builder", text, 5)], 0, 1)


def run(job_id: int, run_key: int, name: str) -> tuple[object, ...]:
    return (job_id, run_key, run_key * 10, 4, 1, "new source", "", name, 0, "1", b"", "", "")


def test_earlier_runs_are_counted_from_the_last_run(store: Store, tmp_path: Path) -> None:
    write(tmp_path, "JobLogs/one.log", "first try")
    store.put(
        put_source=[source_row()],
        put_job=[job_row()],
        put_run=[run(1, 1, "JobLogs/one.log"), run(1, 2, ""), run(1, 3, "JobLogs/gone.log")],
    )
    reader = store.reader()

    before, first = logs.run_log(reader, tmp_path, 1, 1), logs.run_log(reader, tmp_path, 1, 2)
    assert before == logs.StoredRunLog(2, 20, 1, note="this run logged nothing")
    assert first is not None
    assert first.lines[0].text == "first try"
    assert logs.run_log(reader, tmp_path, 1, 3) is None
    with pytest.raises(HostError):
        logs.run_log(reader, tmp_path, 1)


def test_a_job_without_history_has_its_last_log(store: Store, tmp_path: Path) -> None:
    write(tmp_path, "JobLogs/a.log", "said once")
    store.put(put_source=[source_row()], put_job=[job_row(), job_row(2, platform="mac", completed_ms=0)])

    found = logs.run_log(store.reader(), tmp_path, 1)
    assert found is not None
    assert found.lines[0].text == "said once"
    assert logs.run_log(store.reader(), tmp_path, 2) is None


def test_engine_logs_are_listed_newest_first(tmp_path: Path) -> None:
    for name in ("aptui.log", "aptui.5.log", "aptui.70.log", "aptui.old.log", "other.log"):
        (tmp_path / name).touch()

    assert [path.name for path in joblog.engine_logs(tmp_path)] == ["aptui.log", "aptui.70.log", "aptui.5.log"]
    assert joblog.engine_logs(tmp_path / "none") == []


RUN = 12


def write_lines(path: Path, *lines: tuple[LogLevel, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    joblog.write(path, [LogRecord(level, "levels", text, 1_000) for level, text in lines], 0, 0)


def nothing() -> None:
    """Do nothing."""


@pytest.fixture
def lines(store: Store, tmp_path: Path) -> LogLines:
    log_dir = tmp_path / "logs"
    store.put(put_source=[source_row(1, "a.stl")], put_job=[job_row(1, 1, run_key=RUN, last_log="JobLogs/a.log")])
    write_lines(log_dir / "JobLogs" / "a.log", (LogLevel.ERROR, "one"), (LogLevel.WARNING, "two"), (LogLevel.ERROR, "one"))
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


def test_no_lines_are_read_for_analyses_unknown_jobs_or_deleted_logs(lines: LogLines, tmp_path: Path) -> None:
    (tmp_path / "logs" / "JobLogs" / "a.log").unlink()

    assert lines.read("error", [(-1, 0), (7, 3), (1, RUN)], nothing) == ["", "", ""]
    assert LogLines(tmp_path / "none.sqlite", tmp_path).read("error", [(1, RUN)], nothing) == [""]


def test_pipe_in_place_of_a_log_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.log")

    assert not any(read_lines(tmp_path / "a.log").values())


def test_both_ends_of_a_huge_log_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    write_lines(path, (LogLevel.ERROR, "first"), *[(LogLevel.INFO, "x" * 500)] * 2000, (LogLevel.ERROR, "last"))

    assert path.stat().st_size > 600_000
    assert read_lines(path)["error"] == "first\nlast"
