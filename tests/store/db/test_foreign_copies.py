"""Private copies of databases: a lock marks each copy in use, because a process id may belong to a process of another host."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from aptui.store.db import foreign


@pytest.fixture
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def old(folder: Path) -> Path:
    folder.mkdir()
    os.utime(folder, (1, 1))
    return folder


def test_copies_of_dead_processes_are_deleted_and_others_stay(temp: Path, tmp_path: Path) -> None:
    dead, held, new = old(temp / "aptui-copy-999999999-a"), old(temp / "aptui-copy-999999998-b"), temp / "aptui-copy-999999997-c"
    new.mkdir()
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").touch()
    (temp / "aptui-copy-1-link").symlink_to(tmp_path / "precious")
    claim = foreign._claim_folder(held)

    foreign._forget_copies_of_the_dead()

    assert (dead.exists(), held.exists(), new.exists()) == (False, True, True)
    assert (tmp_path / "precious/file").exists()
    os.close(claim)
    foreign._forget_copies_of_the_dead()
    assert not held.exists()


def test_folder_of_a_private_copy_is_locked_while_the_copy_is_kept(temp: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as database:
        database.execute("CREATE TABLE t (x)")
        database.commit()
    copy = foreign.private_copy(tmp_path / "a.sqlite")

    with pytest.raises(BlockingIOError):
        foreign._claim_folder(copy.parent)
    foreign.forget_copies()
    assert list(temp.iterdir()) == []
