"""A few power cuts; `python -m tests.drills p1` makes any number of cuts."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import MACHINE

from ..crashes import power

pytestmark = [pytest.mark.real, pytest.mark.skipif(not power.can_mount(), reason=MACHINE + "it cannot mount file systems")]


def test_products_equal_a_clean_build_after_a_power_cut_at_any_point(tmp_path: Path) -> None:
    report = power.power_cuts(tmp_path, 3, seed=1)

    assert report.faults > 0
    assert not report.violations


@pytest.mark.parametrize("mutant", sorted(power.MUTANTS))
def test_power_cut_drill_finds_an_omitted_sync(tmp_path: Path, mutant: str) -> None:
    assert power.power_cuts(tmp_path, 24, seed=1, mutant=mutant).violations
