"""A short form of the drill `storm`, for every run of the tests; `python -m tests.drills storm` runs it at full length."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..storm import storm

pytestmark = pytest.mark.real


def test_products_equal_a_clean_build_after_a_storm_of_changes(tmp_path: Path) -> None:
    report = storm.storm(tmp_path, 2, 14, most=8)

    assert report.faults > 2
    assert not report.violations


def test_storm_drill_finds_an_engine_that_ignores_notifications(tmp_path: Path) -> None:
    # Seed 5 usually finds the broken engine. Then `any` returns, and the storms of the other seeds do not run.
    reports = (storm.storm(tmp_path / f"{seed}", 2, seed, mutant="deaf", most=6) for seed in (5, 4, 8))

    assert any(report.violations for report in reports)
