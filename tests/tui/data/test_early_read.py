"""The jobs are read before the feed exists. The feed uses the result unless the database changed after that read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aptui.store.jobs import parts as packed
from aptui.store.jobs.job_table import build_job_table, read_job_table
from aptui.store.jobs.parts import JobPiece
from aptui.tui.data import early_read, feed
from aptui.tui.data.early_read import EarlyRead
from aptui.tui.data.feed import Batch, Feed
from tests.bench import generate
from tests.store.conftest import Store, job_row, source_row
from tests.tui.database import ManualFeed, database
from tests.waiting import until

pytestmark = pytest.mark.real

JOBS = 40


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with database(tmp_path) as made:
        jobs = [job_row(number, platform=f"p{number}") for number in range(1, JOBS + 1)]
        made.put(put_source=[source_row()], put_job=jobs, put_state=[("epoch", "1"), ("seq", "40")])
        yield made


@pytest.fixture
def later_reads(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """A list that records each read of the database by `Feed`, but not the read by `EarlyRead` at the program's start."""
    reads: list[object] = []

    def note(*arguments: object) -> object:
        reads.append(arguments)
        return read_job_table(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(feed, "read_job_table", note)
    return reads


def shown(made: Feed) -> list[str]:
    made.read()
    table = made.drain().table
    assert table is not None
    return [table.words("platform", row) for row in range(table.row_count())]


def test_early_read_of_the_jobs_is_used_only_once(store: Store, later_reads: list[object]) -> None:
    made = ManualFeed(store.path, early=EarlyRead(store.path))

    assert shown(made) == [f"p{number}" for number in range(1, JOBS + 1)]
    assert later_reads == []

    assert len(shown(made)) == JOBS
    assert len(later_reads) == 1
    made.close()


def test_feed_reads_again_if_the_database_changed_after_the_read_at_startup(store: Store, later_reads: list[object]) -> None:
    early = EarlyRead(store.path)
    until(lambda: early._parts.qsize() >= 4, "the early read", 10)
    store.put(put_job=[job_row(JOBS + 1, platform="new")], put_state=[("seq", "41")])
    made = ManualFeed(store.path, early=early)

    assert shown(made)[-1] == "new"
    assert len(later_reads) == 1
    made.close()


def test_feed_reads_a_database_that_was_created_after_the_read_at_startup(tmp_path: Path, later_reads: list[object]) -> None:
    early = EarlyRead(tmp_path / "assetdb.sqlite")
    until(lambda: early._parts.qsize() == 1, "the early read found no database", 10)

    with database(tmp_path) as made:
        made.put(put_source=[source_row()], put_job=[job_row(platform="mine")])
        assert shown(ManualFeed(made.path, early=early)) == ["mine"]
    assert len(later_reads) == 1


def test_early_read_pauses_while_its_queue_of_parts_is_full(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "CHUNK", 4)
    monkeypatch.setattr(early_read, "_MOST_WAITING", 3)
    early = EarlyRead(store.path)
    until(lambda: early._parts.qsize() == 3, "three parts", 10)

    parts = list(early.parts())

    assert sum(isinstance(part, JobPiece) for part in parts) == JOBS // 4
    assert build_job_table(parts, {}).row_count() == JOBS


def test_thread_of_the_early_read_ends_after_close(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "CHUNK", 4)
    monkeypatch.setattr(early_read, "_MOST_WAITING", 1)
    early = EarlyRead(store.path)

    early.close()

    assert len(list(early.parts())) <= 2


def test_first_jobs_of_the_early_read_are_handed_out_before_all_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_LEAST_JOBS", 500)
    path = generate.make(tmp_path, 500)
    wakes: list[object] = []
    made = ManualFeed(path, early=EarlyRead(path, wants_first=True), wake=lambda: wakes.append(made.drain()))

    made.read()

    first, *_, last = wakes
    assert isinstance(first, Batch)
    assert isinstance(last, Batch)
    assert (first.first is not None, first.table) == (True, None)
    assert (last.first, last.table is not None) == (None, True)
    made.close()
