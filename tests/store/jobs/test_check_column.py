"""The column of the job table with the findings of checks."""

import numpy as np

from aptui.store.jobs.job_table import CheckColumn
from aptui.store.queries.checks import CheckMark

ONE, TWO = CheckMark("warn", 1, "large: bytes is 9"), CheckMark("fail", 2, "name: bad; large: x")


def words(column: CheckColumn, count: int) -> list[str]:
    codes, texts = column.text(count)
    return [texts[int(code)] for code in codes]


def test_check_marks_are_set_by_row_and_unknown_jobs_are_ignored() -> None:
    column = CheckColumn()
    assert (bool(column), column.mark(3), words(column, 2)) == (False, None, ["", ""])

    column.set(np.array([2, -1, 0]), [ONE, TWO, TWO])

    assert bool(column)
    assert words(column, 4) == [TWO.text, "", ONE.text, ""]
    assert words(column, 1) == [TWO.text]
    assert [column.mark(row) for row in range(4)] == [TWO, None, ONE, None]
    assert column.has_findings(np.array([3, 2, 1, 0])).tolist() == [False, True, False, True]
    column.set(np.empty(0, np.int64), [])
    assert (bool(column), words(column, 3), column.mark(2)) == (False, ["", "", ""], None)
