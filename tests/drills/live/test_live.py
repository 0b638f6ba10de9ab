"""Short forms of the drills over a live engine; `python -m tests.drills NAME` runs a drill without limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..live import live, live_scenes

pytestmark = pytest.mark.real


def test_all_files_of_new_folder_trees_are_processed(tmp_path: Path) -> None:
    assert not live.new_trees(tmp_path, 1, seed=11, trees=60).violations


def test_renamed_files_and_folders_are_processed(tmp_path: Path) -> None:
    assert not live.renames(tmp_path, 1, seed=12, files=60).violations


def test_files_are_processed_no_matter_how_a_program_saves_them(tmp_path: Path) -> None:
    assert not live.saves(tmp_path, 1).violations


def test_engine_finds_all_changes_made_while_it_was_suspended(tmp_path: Path) -> None:
    assert not live.stopped(tmp_path, 1, changes=500, stop_s=0.5, trust_s=0.0).violations


def test_no_change_is_lost_if_the_engine_is_killed_during_changes(tmp_path: Path) -> None:
    assert not live.kills(tmp_path, 2, seed=13).violations


def test_files_with_unusual_names_are_processed(tmp_path: Path) -> None:
    chosen = (b"new\nline.txt", b"[@click=app.quit]x[/].txt", b"-rf.txt", b"\xff.txt")

    assert not live.names(tmp_path, chosen=chosen, verbs=False).violations


def test_half_written_sources_do_not_become_products(tmp_path: Path) -> None:
    assert not live_scenes.written(tmp_path, 1, seed=14, size=100_000).violations


def test_drill_reports_violations_if_the_engine_reads_half_written_files(tmp_path: Path) -> None:
    assert live_scenes.written(tmp_path, 1, seed=14, size=100_000, mutant="without-leases").violations


def test_git_checkout_is_processed_as_one_batch(tmp_path: Path) -> None:
    assert not live_scenes.checkouts(tmp_path, 3, files=100).violations


def test_drill_reports_violations_if_the_engine_does_not_await_checkouts(tmp_path: Path) -> None:
    assert live_scenes.checkouts(tmp_path, 0, files=40, mutant="without-holds").violations


def test_products_deleted_by_hand_are_made_again(tmp_path: Path) -> None:
    assert not live_scenes.products_by_hand(tmp_path).violations


def test_each_of_many_changed_files_is_processed_exactly_once(tmp_path: Path) -> None:
    assert not live_scenes.much(tmp_path, 200, seed=15).violations


def test_file_changes_are_reported_and_names_match_in_any_letter_case(tmp_path: Path) -> None:
    assert not live_scenes.named(tmp_path).violations
