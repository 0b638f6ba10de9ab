"""Logs of jobs, found by job and by run, and logs of the engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from aptui.core.notices import LogLevel, LogRecord
from aptui.shared.errors import HostError
from aptui.store import joblog
from aptui.store.queries import logs
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
