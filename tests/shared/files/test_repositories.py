"""Locks and running operations of version control in repositories with sources."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aptui.shared.files.git import QUIET_S, STALE_S, Repositories

NOW_S = 1_800_000_000.0


def repositories(root: Path) -> Repositories:
    return Repositories([str(root)], lambda: NOW_S)


def put(path: Path, age_s: float = 0.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    os.utime(path, (NOW_S - age_s, NOW_S - age_s))
    return path


@pytest.mark.parametrize("lock", [".git/index.lock", ".hg/wlock", ".svn/lock"])
def test_repository_above_the_scan_folder_is_busy_while_its_lock_exists(tmp_path: Path, lock: str) -> None:
    path = put(tmp_path / lock)
    (tmp_path / "assets").mkdir()

    assert repositories(tmp_path / "assets").busy() == str(path)
    path.unlink()
    assert repositories(tmp_path / "assets").busy() == ""


def test_repository_with_an_old_lock_is_not_busy(tmp_path: Path) -> None:
    put(tmp_path / ".git/index.lock", STALE_S + 1)

    assert repositories(tmp_path).busy() == ""


@pytest.mark.parametrize("name", ["rebase-merge", "rebase-apply", "MERGE_HEAD", "CHERRY_PICK_HEAD"])
def test_git_operation_of_many_steps_is_busy_only_while_its_files_change(tmp_path: Path, name: str) -> None:
    operation = put(tmp_path / ".git" / name, 60.0)
    index = put(tmp_path / ".git/index", QUIET_S / 2)

    assert repositories(tmp_path).busy() == str(operation)
    os.utime(index, (NOW_S - 2 * QUIET_S, NOW_S - 2 * QUIET_S))
    assert repositories(tmp_path).busy() == ""


def test_git_lock_of_a_linked_work_tree_is_found(tmp_path: Path) -> None:
    control = tmp_path / "main/.git/worktrees/other"
    lock = put(control / "index.lock")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/.git").write_text(f"gitdir: {control}\n")

    assert repositories(tmp_path / "other").busy() == str(lock)


def test_folder_without_a_repository_is_never_busy(tmp_path: Path) -> None:
    assert repositories(tmp_path).busy() == ""
