"""Short forms of the drills B1, B2 and B3 (hostile builders); `python -m tests.drills b1` runs a drill at full length."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..hostile import hostile

pytestmark = pytest.mark.real


def test_hostile_builder_affects_only_its_own_jobs(tmp_path: Path) -> None:
    report = hostile.hostile_mix(tmp_path, rounds=1, seed=707)

    assert report.faults == len(hostile.HOSTILES) == 20
    assert not report.violations


def test_hostile_command_affects_only_its_own_jobs_in_an_engine(tmp_path: Path) -> None:
    assert not hostile.hostile_batch(tmp_path).violations


@pytest.mark.parametrize(("mutant", "name"), [("without-reaping", "Stubborn"), ("without-limits", "Hang")])
def test_builder_drill_finds_a_pool_that_breaks_one_of_its_rules(tmp_path: Path, mutant: str, name: str) -> None:
    assert hostile.hostile_mix(tmp_path, rounds=1, seed=1, mutant=mutant, names=(name,)).violations


def test_jobs_fail_if_their_builder_makes_false_claims_about_products(tmp_path: Path) -> None:
    assert not hostile.lies(tmp_path).violations


def test_drill_reports_violations_if_workers_do_not_check_products(tmp_path: Path) -> None:
    violations = hostile.lies(tmp_path, many=10, mutant="credulous").violations

    assert len(violations) >= 5


def test_builder_is_disabled_after_it_has_killed_three_workers(tmp_path: Path) -> None:
    assert not hostile.crash_loop(tmp_path).violations


def test_drill_reports_violations_if_killed_workers_are_not_limited(tmp_path: Path) -> None:
    assert hostile.crash_loop(tmp_path, 5, mutant="without-breaker").violations
