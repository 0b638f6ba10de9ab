"""`ShownRows` updates the list of displayed rows after changes. A fake replaces the table of jobs and the filter."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from aptui.store.jobs.filter import Filter
from aptui.store.jobs.job_table import JobTable
from aptui.store.jobs.regex import Mask
from aptui.store.jobs.texts import Codes
from aptui.tui.data.jobs_store import ShownRows


class FakeTable:
    """A test double of a table and a filter: `alive` is 0 for deleted rows, `passing` contains the rows that match."""

    def __init__(self, count: int) -> None:
        self.alive, self.passing = np.ones(count, np.int8), set(range(count))

    def number(self, _name: str) -> Any:
        return self.alive

    def row_count(self) -> int:
        return len(self.alive)

    def matches(self, _table: object, rows: Codes, *, reads_logs: bool) -> Mask:
        assert not reads_logs
        return np.array([int(row) in self.passing for row in rows], np.bool_)


def shown(count: int, *rows: int) -> tuple[ShownRows, FakeTable]:
    made, table = ShownRows(), FakeTable(count)
    made.replace(np.array(rows, np.int32), count)
    return made, table


def changed(made: ShownRows, table: FakeTable, *rows: int) -> bool:
    return made.reconsider(cast(JobTable, table), cast(Filter, table), set(rows))


def test_newly_matching_row_is_added_last_and_counted_as_late() -> None:
    made, table = shown(4, 2, 0)

    assert changed(made, table, 3, 1)
    assert (made.rows.tolist(), made.late_count) == ([2, 0, 1, 3], 2)
    assert [made.index_of(row) for row in (3, 0, 9, -1)] == [3, 1, None, None]
    assert not changed(made, table, 3, 1)


def test_row_that_fails_the_filter_is_removed_when_off_the_screen() -> None:
    made, table = shown(3, 0, 1, 2)
    made.hold(0, 2)
    table.passing = {0}

    assert changed(made, table, 1, 2)
    assert (made.rows.tolist(), made.lingering) == ([0, 1], {1})
    assert not changed(made, table, 1)
    made.hold(0, 1)
    assert changed(made, table, 1)
    assert (made.rows.tolist(), made.lingering) == ([0], set())


def test_deleted_row_is_removed_although_it_is_visible() -> None:
    made, table = shown(2, 0, 1)
    made.hold(0, 2)
    table.alive[1] = 0

    assert changed(made, table, 1)
    assert (made.rows.tolist(), made.lingering) == ([0], set())


def test_visible_row_that_fails_the_filter_only_for_a_moment_is_kept() -> None:
    made, table = shown(2, 1, 0)
    made.hold(0, 2)
    table.passing = {0}
    changed(made, table, 1)
    table.passing = {0, 1}

    assert not changed(made, table, 1)
    assert (made.rows.tolist(), made.lingering) == ([1, 0], set())


def test_new_row_is_shown_after_the_table_grew_by_thousands_of_rows() -> None:
    made, table = shown(1, 0)
    table.alive, table.passing = np.ones(5000, np.int8), {0, 4999}

    assert changed(made, table, 4999)
    assert made.rows.tolist() == [0, 4999]
