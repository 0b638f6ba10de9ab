"""The database of a replay: rows follow the news, come and go with them, and are as they were after rewinding."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from aptui.core.model import RelPath, RunKey
from aptui.core.notices import JobChanged
from aptui.shared.errors import HostError
from aptui.store.history.replaying import ReplayedDatabase, copy_database
from aptui.store.jobs.reading import read_job_table
from aptui.store.jobs.table import FAILED
from aptui.store.queries.reader import JobRow, open_reader
from tests.store.conftest import BUILDER, job_row, source_row
from tests.tui.database import database

BUILDERS = {"image": BUILDER}


def notice(job_id: int, status: str, **changes: object) -> JobChanged:
    values: dict[str, object] = {
        "cause": 1, "job_id": job_id, "source": RelPath("textures/sand.png"), "scan_folder": 1, "platform": "linux",
        "job_key": "Image", "builder": "image", "status": status, "reason": "the source changed", "error": "", "warnings": 0,
        "errors": 0, "duration_ms": 5, "log_file": "", "run_key": RunKey(50),
    }  # fmt: skip
    return JobChanged(**(values | changes))  # type: ignore[arg-type]


@pytest.fixture
def replayed(tmp_path: Path) -> Iterator[tuple[Path, ReplayedDatabase]]:
    (tmp_path / "here").mkdir()
    with database(tmp_path) as store:
        store.put(put_source=[source_row(1, "textures/sand.png")], put_job=[job_row(1, 1, completed_ms=1_000, run_key=9)])
        path = tmp_path / "here/assetdb.sqlite"
        copy_database(tmp_path / "assetdb.sqlite", path)
    with closing(ReplayedDatabase(path, BUILDERS)) as found:
        yield path, found


def job(path: Path, job_id: int = 1) -> JobRow | None:
    with closing(open_reader(path)) as reader:
        return reader.job(job_id)


def test_a_job_is_what_its_last_news_say_and_so_is_its_run(replayed: tuple[Path, ReplayedDatabase]) -> None:
    path, replay = replayed

    failed = notice(1, "failed", error="no room", errors=2, completed_ms=2_000, log_file="JobLogs/a.log", duration_ms=70)
    replay.apply([notice(1, "processing"), failed], (1, 7))

    row = job(path)
    assert row is not None
    assert (row.status, row.error, row.errors, row.completed_ms, row.duration_s, row.log, row.run_key) == (
        "failed", "no room", 2, 2_000, 0.07, "JobLogs/a.log", 50,
    )  # fmt: skip
    with closing(open_reader(path)) as reader:
        runs = reader.runs_of(1)
        assert [(run.run_key, run.outcome, run.log_file) for run in runs][:1] == [(50, 1, "JobLogs/a.log")]
        assert reader.moment() == replay.moment() == (1, 7)


def test_what_runs_rests_as_pending_and_keeps_when_it_completed(replayed: tuple[Path, ReplayedDatabase]) -> None:
    path, replay = replayed

    replay.apply([notice(1, "processing")], (1, 7))

    row = job(path)
    assert row is not None
    assert (row.status, row.completed_ms) == ("pending", 1_000)


def test_jobs_come_with_their_sources_and_go(replayed: tuple[Path, ReplayedDatabase]) -> None:
    path, replay = replayed

    replay.apply([notice(2, "completed", source=RelPath("new/ä.png"), flaky="timeout"), notice(1, "")], (1, 7))

    assert job(path, 1) is None
    new = job(path, 2)
    assert new is not None
    assert (new.source, new.status, new.builder, new.flaky) == ("new/ä.png", "completed", BUILDER, "timeout")
    with closing(open_reader(path)) as reader:
        assert reader.source("new/ä.png") is not None
        assert reader.inputs_of(2) == ()


def test_a_job_is_a_draft_until_news_say_that_its_final_is_there(replayed: tuple[Path, ReplayedDatabase]) -> None:
    path, replay = replayed

    replay.apply([notice(1, "completed", is_draft=True), notice(2, "completed", is_draft=True)], (1, 7))
    drafts = [row and row.is_draft for row in (job(path, 1), job(path, 2))]
    replay.apply([notice(1, "completed")], (1, 8))

    assert drafts == [True, True]
    assert [row and row.is_draft for row in (job(path, 1), job(path, 2))] == [False, True]


def test_a_failed_analysis_is_listed_until_it_is_mended(replayed: tuple[Path, ReplayedDatabase]) -> None:
    path, replay = replayed
    key = f"CreateJobs_{{{BUILDER.hex()}}}"

    replay.apply([notice(0, "failed", job_key=key, error="no preset")], (1, 7))
    with closing(open_reader(path)) as reader:
        assert [row.error for row in reader.jobs(statuses=("failed",))] == ["no preset"]

    replay.apply([notice(0, "completed", job_key=key)], (1, 8))
    with closing(open_reader(path)) as reader:
        assert list(reader.jobs(statuses=("failed",))) == []


def test_rewinding_makes_all_as_it_was_also_for_those_who_look_meanwhile(replayed: tuple[Path, ReplayedDatabase]) -> None:
    path, replay = replayed
    with closing(open_reader(path)) as reader:
        before = (reader.job(1), reader.moment())
        replay.apply([notice(1, "failed"), notice(2, "failed", source=RelPath("new.png"))], (9, 9))
        assert reader.job(2) is not None

        replay.rewind()

        assert (reader.job(1), reader.moment()) == before
        assert reader.job(2) is None


def test_the_jobs_table_reads_it(replayed: tuple[Path, ReplayedDatabase]) -> None:
    path, replay = replayed

    replay.apply([notice(1, "failed", error="no room")], (4, 7))

    with closing(open_reader(path)) as reader:
        table = read_job_table(reader, {BUILDER: "image"})
    assert (table.value("status", 0), table.words("error", 0)) == (FAILED, "no room")


def test_what_is_no_database_is_refused_and_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "assetdb.sqlite").write_bytes(b"SQLite format 3\0" + b"oops" * 1000)
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *given, **named: opened.append(connect(*given, **named)) or opened[-1])

    with pytest.raises(HostError, match="asset database"):
        ReplayedDatabase(tmp_path / "assetdb.sqlite", {})

    assert len(opened) == 2
    for each in opened:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            each.execute("SELECT 1")
