"""Short forms of the drill of shared results, for every test run.

`python -m tests.drills l1-killed` kills a machine at every call that changes a disk.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ..crashes import sharing

pytestmark = pytest.mark.real


def test_killed_machine_loses_at_most_one_shared_result(tmp_path: Path) -> None:
    report = sharing.killed_at_every_point(tmp_path, first=2, step=14)

    assert report.faults > 5
    assert not report.violations


@pytest.mark.parametrize("mutant", sorted(sharing.MUTANTS))
def test_sharing_drill_finds_a_broken_store(tmp_path: Path, mutant: str) -> None:
    assert sharing.killed_at_every_point(tmp_path, first=_WEAK_SPOT[mutant], step=1, mutant=mutant).violations


_WEAK_SPOT = {"in-place-store": 40}
"""{defect of the store: number of the first kill point to try}. The first blob is published soon after this point."""
