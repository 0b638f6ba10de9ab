"""Private copies of databases: a lock marks each copy in use, because a process id may belong to a process of another host."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from aptui.shared.errors import HostError
from aptui.store.db import foreign


@pytest.fixture
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def database(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as database:
        database.execute("CREATE TABLE t (x)")
        database.commit()
    return tmp_path / "a.sqlite"


def test_folder_of_a_private_copy_is_locked_and_replaces_folders_of_dead_processes(temp: Path, database: Path) -> None:
    (temp / "aptui-copy-999999999-a").mkdir()
    copy = foreign.private_copy(database)

    assert list(temp.iterdir()) == [copy.parent]
    folder = os.open(copy.parent, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(folder)
    foreign.forget_copies()
    assert list(temp.iterdir()) == []


def test_missing_folder_for_temporary_files_is_a_host_error(temp: Path, database: Path) -> None:
    temp.rmdir()

    with pytest.raises(HostError, match="cannot be copied to a temporary folder: No such file or directory"):
        foreign.private_copy(database)
