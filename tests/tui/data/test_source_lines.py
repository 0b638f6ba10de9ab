"""Lines of the jobs table if it groups jobs by source: which jobs each line shows, and the key of each source line.

See also `test_table_model`.
"""

from __future__ import annotations

import numpy as np
import pytest

from aptui.tui.data.job_infos import SourceLines, is_source_key, job_of_key, source_key

SOURCES = np.array([7, 7, 3, 5, 5, 5])


def lines_of(*expanded: int) -> SourceLines:
    made = SourceLines()
    made.update(SOURCES, np.array(expanded, np.int64))
    return made


def test_all_rows_of_a_collapsed_source_share_one_line() -> None:
    lines = lines_of()

    assert (lines.count, lines.source_count) == (3, 3)
    assert [lines.rows_of(line) for line in range(3)] == [(0, 2), (2, 3), (3, 6)]
    assert lines.lines_of(np.array([0, 1, 4])).tolist() == [0, 2]
    assert [lines.top_of(row) for row in (1, 2, 5)] == [0, 1, 2]
    assert lines.rows_around(4) == (3, 6)


def test_jobs_of_an_expanded_source_are_lines_below_it() -> None:
    lines = lines_of(5, 3)  # a source with one job has no lines below it

    assert (lines.count, lines.source_count) == (6, 3)
    assert [lines.rows_of(line) for line in range(6)] == [(0, 2), (2, 3), (3, 6), (3, 4), (4, 5), (5, 6)]
    assert [lines.is_member(line) for line in range(6)] == [False] * 3 + [True] * 3
    assert [lines.is_expanded(line) for line in range(6)] == [False] * 2 + [True] * 4
    assert lines.lines_of(np.array([1, 4, 5])).tolist() == [0, 4, 5]
    assert lines.top_of(5) == 2


def test_table_of_sources_without_rows_has_no_lines() -> None:
    lines = SourceLines()
    lines.update(np.empty(0, np.int32), np.array([5]))

    assert (lines.count, lines.source_count) == (0, 0)


@pytest.mark.parametrize("ids", [[4, 9], [-3, 8], [1 << 40, (1 << 40) + 1]])
def test_key_of_a_source_line_is_derived_from_its_smallest_job_id(ids: list[int]) -> None:
    key = source_key(np.array(ids, np.int64))

    assert is_source_key(key)
    assert job_of_key(key) == min(ids)
    assert [(is_source_key(job), job_of_key(job)) for job in ids] == [(False, job) for job in ids]
