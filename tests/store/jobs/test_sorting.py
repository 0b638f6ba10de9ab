"""Numbers of any range are sorted stably."""

import numpy as np
import pytest

from aptui.store.jobs.job_table import argsort


@pytest.mark.parametrize(
    "keys", [[], [5], [3, 1, 3, -2, 1], [1 << 62, -(1 << 62), 0], [(1 << 63) - 1, 7, -(1 << 63), 7], [65536, 1, 65537, 0, 65536]]
)
def test_sorting_is_stable_whatever_the_range(keys: list[int]) -> None:
    expected = sorted(range(len(keys)), key=keys.__getitem__)

    assert argsort(np.array(keys, np.int64)).tolist() == expected
