"""Short forms of the drills, which inject faults, for every test run; `python -m tests.drills NAME` runs a drill at full length."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tools import MACHINE

from ..crashes import hosts, kills
from ..worlds import chained
from ..worlds.mutants import replace_members

pytestmark = pytest.mark.real

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason=MACHINE + "only root mounts a tmpfs")


@pytest.mark.starts
def test_products_equal_a_clean_build_after_random_kills(tmp_path: Path) -> None:
    report = kills.random_kills(tmp_path, count=6, seed=101)

    assert report.faults > 0
    assert not report.violations


def test_chained_products_equal_a_clean_build_after_random_kills(tmp_path: Path) -> None:
    report = kills.spread_kills(tmp_path, count=4, seed=505, kind=chained.ChainedWorld)

    assert report.faults > 0
    assert not report.violations


@pytest.mark.starts
def test_workers_die_with_a_killed_engine_and_the_next_engine_recovers(tmp_path: Path) -> None:
    report = kills.random_kills(tmp_path, count=3, seed=202, is_family=False)

    assert not report.violations


@pytest.mark.parametrize("first", [1, 2])
def test_products_equal_a_clean_build_after_a_kill_at_any_point(tmp_path: Path, first: int) -> None:
    report = kills.every_point(tmp_path, seed=303 + first, first=first, step=7, workers=1)

    assert report.faults > 5
    assert not report.violations


def test_mutant_cannot_replace_a_member_that_does_not_exist() -> None:
    with pytest.raises(AttributeError, match="no_such_rule"):
        replace_members(kills, no_such_rule=None)


@pytest.mark.parametrize("mutant", ["without-intents", "rows-before-renames", "in-place"])
def test_kill_drill_finds_a_broken_commit_protocol(tmp_path: Path, mutant: str) -> None:
    first = _WEAK_SPOT[mutant]
    report = kills.every_point(tmp_path, seed=1, mutant=mutant, first=first, limit=first + 24, workers=1)

    assert [text for text in report.violations if "ended with" not in text], (
        "the drill must find wrong results, not only an error of the broken engine"
    )


_WEAK_SPOT = {"without-intents": 14, "rows-before-renames": 14, "in-place": 20}
"""{broken commit protocol: number of the call that renames the first product}. Only calls that change the disk are counted.

A kill soon after this call reveals the broken protocol. Kills at later calls would only take time.
"""


@pytest.mark.parametrize(("error", "is_lasting"), [(errno.ENOSPC, True), (errno.EIO, False)])
def test_engine_reports_and_survives_a_disk_error_at_any_point(tmp_path: Path, error: int, is_lasting: bool) -> None:
    report = kills.every_point(tmp_path, seed=404, error=error, is_lasting=is_lasting, first=2, step=11, workers=1)

    assert report.faults > 3
    assert not report.violations


@needs_root
def test_engine_on_a_full_disk_leaves_no_incomplete_product_and_recovers(tmp_path: Path) -> None:
    report = hosts.full_disk(tmp_path, 505, range(200, 1000, 300))

    assert report.faults > 0
    assert not report.violations


@needs_root
def test_engine_refuses_a_read_only_cache(tmp_path: Path) -> None:
    assert not hosts.read_only_cache(tmp_path).violations


def test_engine_waits_for_a_locked_database(tmp_path: Path) -> None:
    assert not hosts.locked_database(tmp_path, 1.0).violations


def test_damaged_database_is_rebuilt_unless_the_damage_is_harmless(tmp_path: Path) -> None:
    assert not hosts.damaged_database(tmp_path, 5, seed=606).violations


@pytest.mark.starts
def test_second_engine_is_refused_with_the_process_id_of_the_first(tmp_path: Path) -> None:
    assert not hosts.two_engines(tmp_path).violations


def test_interrupted_engine_ends_cleanly_and_the_next_engine_continues(tmp_path: Path) -> None:
    assert not hosts.interrupted(tmp_path).violations


def test_deleted_cache_or_database_is_rebuilt(tmp_path: Path) -> None:
    assert not hosts.deleted(tmp_path).violations


def test_engine_killed_while_creating_its_database_leaves_no_unknown_files(tmp_path: Path) -> None:
    assert not hosts.deleted_and_killed(tmp_path, step=9).violations


def test_products_changed_by_hand_are_found_at_the_next_start(tmp_path: Path) -> None:
    assert not hosts.tampered(tmp_path).violations


@pytest.mark.parametrize("is_atomic", [True, False])
def test_product_has_the_last_version_of_a_source_saved_during_a_run(tmp_path: Path, is_atomic: bool) -> None:
    assert not hosts.rewritten(tmp_path, saves=40, is_atomic=is_atomic).violations
