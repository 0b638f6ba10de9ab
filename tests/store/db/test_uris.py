"""URIs of database files equal those of `Path.as_uri`."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from aptui.store.db.foreign import read_only_uri, uri_of

NAMES = ["plain.sqlite", "a b.sqlite", "50%.sqlite", "what?mode=rwc", "#1", "größe", "~x&y=z;'", b"\xff.sqlite"]


@pytest.mark.parametrize("name", NAMES)
def test_uri_of_a_path_equals_the_uri_of_pathlib(name: str | bytes) -> None:
    path = Path("/folder") / os.fsdecode(name)

    assert uri_of(path) == path.as_uri()


@pytest.mark.parametrize("name", NAMES[:-1])
def test_a_file_of_any_name_is_read_and_cannot_be_written(tmp_path: Path, name: str) -> None:
    with closing(sqlite3.connect(tmp_path / name)) as database:
        database.execute("CREATE TABLE t(x)")

    for uri in (read_only_uri(tmp_path / name), read_only_uri(tmp_path / name, is_immutable=True)):
        with closing(sqlite3.connect(uri, uri=True)) as database:
            assert database.execute("SELECT name FROM sqlite_master").fetchall() == [("t",)]
            with pytest.raises(sqlite3.OperationalError):
                database.execute("CREATE TABLE u(x)")
