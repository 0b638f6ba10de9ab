"""Findings of checks mark the rows of jobs, and the filter matches them."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import pytest

from aptui.core.asset_checks import Check, Limit
from aptui.store.jobs.job_table import AnalysisKeys, read_job_table
from aptui.store.queries.checks import check_marks, findings_of
from aptui.store.queries.reader import open_reader
from aptui.tui.data.feed import Batch
from aptui.tui.data.jobs_store import JobsStore
from aptui.tui.screens.jobs import job_texts as marks_module
from aptui.tui.screens.jobs.job_texts import CheckMarks
from tests.store.conftest import Store, job_row, source_row
from tests.tui.database import database

LARGE = Check("large", "warn", limits=(Limit("bytes", "<100", 0, 100),))
NAMES = Check("names", "fail", files=(r"x/.*",), file_name="[a-z]+\\.txt")
CHECKS = (LARGE, NAMES)


@pytest.fixture
def store(tmp_path: Path):
    with database(tmp_path) as made:
        made.put(
            put_source=[source_row(1, "x/Rock.txt"), source_row(2, "y/sand.txt"), source_row(3, "y/mud.txt")],
            put_job=[
                job_row(1, 1, warnings=0), job_row(2, 2, warnings=0), job_row(3, 2, platform="server", warnings=2),
                job_row(4, 3, state="failed", status=2, warnings=0, error="check 'pixels': mud.dds: w is 9, wanted: <4"),
            ],
            put_product=[product(1, 1, 900), product(2, 2, 900), product(3, 3, 50)],
        )  # fmt: skip
        yield made


def product(number: int, job: int, size: int) -> tuple[object, ...]:
    return (number, job, f"linux/{number}.dds", 0, b"T" * 16, 0, 1, b"D" * 32, size)


def test_check_mark_of_a_job_shows_the_level_and_number_of_its_findings(store: Store) -> None:
    with closing(open_reader(store.path)) as reader:
        found = check_marks(reader, CHECKS)

        assert {job: (mark.level, mark.count) for job, mark in found.items()} == {1: ("fail", 2), 2: ("warn", 1), 4: ("block", 1)}
        assert found[1].text.startswith("large: bytes is 900, wanted: <100; names: the name 'Rock.txt'")
        assert found[4].text == "pixels: mud.dds: w is 9, wanted: <4"
        assert check_marks(reader, ()) == {}
        assert [finding.check for finding in findings_of(reader, CHECKS, "x/Rock.txt")] == ["names", "large"]
        assert findings_of(reader, CHECKS, "y/none.txt") == []


def test_check_marks_are_shown_in_rows_and_matched_by_the_filter(store: Store) -> None:
    with closing(open_reader(store.path)) as reader, closing(JobsStore()) as jobs:
        jobs.apply(Batch(table=read_job_table(reader, {}, AnalysisKeys())))
        jobs.wait_until_idle()
        jobs.set_filter("check:.")
        jobs.wait_until_idle()
        assert jobs.row_count() == 0
        jobs.set_checks(check_marks(reader, CHECKS))
        jobs.wait_until_idle()
        assert {jobs.key(row) for row in range(jobs.row_count())} == {1, 2, 4}

        for text, keys in (("check:large", {1, 2}), ("check:wanted.*100", {1, 2}), ("!check:. completed", {3}), ("", {1, 2, 3, 4})):
            jobs.set_filter(text)
            jobs.wait_until_idle()
            assert {jobs.key(row) for row in range(jobs.row_count())} == keys, text
        cells = {jobs.key(row): (jobs.cell(row, "status").text, jobs.cell(row, "status").role) for row in range(4)}
        assert cells == {
            1: ("✗ 2 checks", "failed"), 2: ("! 1 check", "warning"), 3: ("! 2 warnings", "warning"), 4: ("✗ failed", "failed")
        }  # fmt: skip
        reasons = {jobs.key(row): jobs.cell(row, "reason").text for row in range(4)}
        assert reasons[2] == "large: bytes is 900, wanted: <100"
        assert reasons[4] == "check 'pixels': mud.dds: w is 9, wanted: <4"
        info = jobs.info(2)
        assert info is not None
        assert info.check == reasons[2]
        at = jobs.index_of(2)
        warned = jobs.next_with("warnings", at if at is not None else -1, 1)
        assert warned is not None
        assert jobs.key(warned) in {1, 3}
        jobs.apply(Batch(table=read_job_table(reader, {}, AnalysisKeys())))
        jobs.wait_until_idle()
        row = jobs.index_of(2)
        assert row is not None
        assert jobs.cell(row, "status").text == "! 1 check"  # Findings of checks are kept when rows are read again.


def test_check_thread_reads_on_request_and_can_be_closed_during_its_pause(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks_module, "_REST_S", 600.0)
    woken = threading.Event()
    with closing(CheckMarks(store.path, CHECKS, woken.set)) as marks:
        assert marks.pop() is None
        marks.mark_stale()
        assert woken.wait(20)
        found = marks.pop()
        assert found is not None
        assert sorted(found) == [1, 2, 4]
        assert marks.pop() is None


def test_products_are_not_read_if_no_checks_are_configured(tmp_path: Path) -> None:
    with closing(CheckMarks(tmp_path / "none", (), lambda: None)) as marks:
        marks.mark_stale()
        assert not marks._worker.is_busy
