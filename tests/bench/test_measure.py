"""The measured cost of a command does not include the cost of the measuring process."""

from __future__ import annotations

import sys

import pytest

from tests.bench.measure import run


@pytest.mark.real
def test_peak_memory_of_a_command_does_not_count_the_memory_of_the_measuring_process() -> None:
    mine = b"\1" * 200_000_000

    small = run([sys.executable, "-c", "import time; time.sleep(0.3)"])
    large = run([sys.executable, "-c", "import time; held = b'1' * 100_000_000; time.sleep(0.3)"])

    assert len(mine) / 2**20 > 150
    assert 1 < small.peak_mib < 60
    assert small.peak_mib + 90 < large.peak_mib < 200
