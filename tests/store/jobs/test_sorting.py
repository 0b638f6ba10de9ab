"""Numbers of any range are sorted stably."""

import numpy as np
import pytest

from aptui.store.jobs.job_table import argsort, gather


@pytest.mark.parametrize(
    "keys", [[], [5], [3, 1, 3, -2, 1], [1 << 62, -(1 << 62), 0], [(1 << 63) - 1, 7, -(1 << 63), 7], [65536, 1, 65537, 0, 65536]]
)
def test_sort_order_is_stable_for_keys_of_any_range(keys: list[int]) -> None:
    expected = sorted(range(len(keys)), key=keys.__getitem__)

    assert argsort(np.array(keys, np.int64)).tolist() == expected


@pytest.mark.parametrize(("by_last", "expected"), [(False, [0, 2, 1, 4, 3]), (True, [0, 2, 3, 1, 4])])
def test_equal_codes_are_gathered_at_the_position_of_their_first_or_last_code(by_last: bool, expected: list[int]) -> None:
    codes = np.array([5, 2, 5, 9, 2])

    assert gather(codes, by_last=by_last).tolist() == expected
    assert gather(np.empty(0, np.int32), by_last=by_last).tolist() == []
