"""Versions of the database schema: a database is created, kept, refused or set aside."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from aptui.shared.errors import HostError, UserError
from aptui.store.db import schema

from .. import o3de_database
from ..conftest import Store, job_row, source_row


def change(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(sql)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "cache" / "assetdb.sqlite"
    schema.prepare(path)
    return path


def test_a_new_database_has_the_version_of_o3de_and_is_in_wal_mode(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT version FROM dbinfo").fetchall() == [(40,)]
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def shape_of(database: sqlite3.Connection, table: str) -> list[tuple[object, ...]]:
    """Return (name, type, default, is primary key, collation) of columns and (from, table, to, on delete) of foreign keys."""
    columns = database.execute(f"PRAGMA table_info({table})").fetchall()
    shape: list[tuple[object, ...]] = []
    for _, name, kind, _, default, key in columns:
        database.execute(f"CREATE INDEX look ON {table}({name})")  # an index without a collation has the collation of its column
        collation = database.execute("PRAGMA index_xinfo(look)").fetchone()[4]
        database.execute("DROP INDEX look")
        shape.append((name, kind, None if default is None else default.strip("()"), bool(key), collation))
    owners = database.execute(f"PRAGMA foreign_key_list({table})").fetchall()
    return [*shape, *((owner[3], owner[2], owner[4], owner[6]) for owner in owners)]


VIEWS = ("Files", "Stats")


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_has_the_columns_values_and_collations_of_o3de(store: Store, tmp_path: Path, view: str) -> None:
    store.put(put_file=[(1, "Read.me", 0, 1, 2)], put_source=[source_row()], put_job=[job_row()])
    store.put(put_stat=[("CreateJobs,a,image", 1, 2)])
    theirs = o3de_database.make(tmp_path / "theirs.sqlite")

    with closing(sqlite3.connect(store.path)) as ours, closing(sqlite3.connect(theirs)) as other:
        columns = [(name, kind) for _, name, kind, *_ in other.execute(f"PRAGMA table_info({view})")]
        assert [name for _, name, *_ in ours.execute(f"PRAGMA table_info({view})")] == [name for name, _kind in columns]
        kinds = ", ".join(f"typeof({name})" for name, _kind in columns)
        assert set(ours.execute(f"SELECT {kinds} FROM {view}")) == {tuple(kind.lower() for _name, kind in columns)}
        name = next(name for name, kind in columns if kind == "TEXT")
        texts = [text for (text,) in ours.execute(f"SELECT {name} FROM {view}")]
        assert len(texts) == 2
        capital = str.maketrans("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")  # NOCASE folds only ASCII letters
        for text in texts:
            assert ours.execute(f"SELECT COUNT(*) FROM {view} WHERE {name} = ?", (text.translate(capital),)).fetchone() == (1,)


@pytest.mark.parametrize("table", [table for table in o3de_database.TABLES if table not in VIEWS])
def test_a_table_equals_the_table_of_o3de_in_columns_and_foreign_keys(path: Path, tmp_path: Path, table: str) -> None:
    theirs = o3de_database.make(tmp_path / "theirs.sqlite")

    with closing(sqlite3.connect(path)) as ours, closing(sqlite3.connect(theirs)) as other:
        assert shape_of(ours, table) == shape_of(other, table)


def test_new_database_has_the_indexes_of_o3de(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql NOT NULL").fetchall()

    made = {name: " ".join(sql.partition(" ON ")[2].split()) for name, sql in rows if not name.startswith("aptui_")}
    assert made == {name: place for name, place in o3de_database.INDEXES.items() if not place.startswith("Files(")}


@pytest.mark.real
def test_up_to_date_database_is_unchanged_and_opened_without_importing_peewee(path: Path) -> None:
    change(path, "INSERT INTO aptui_state VALUES ('epoch', '3')")
    code = (
        "import sys, pathlib; from aptui.store.db import schema, writer, archive; from aptui.store.queries import reader; "
        f"assert schema.prepare(pathlib.Path({str(path)!r})) == ''; assert 'peewee' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", code], check=True)

    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT value FROM aptui_state WHERE key = 'epoch'").fetchone() == ("3",)


def test_empty_database_file_is_prepared_like_a_missing_one(tmp_path: Path) -> None:
    path = tmp_path / "assetdb.sqlite"
    path.touch()

    assert schema.prepare(path) == ""
    assert schema.prepare(path) == ""


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("UPDATE dbinfo SET version = 39", "old version 39"),
        ("DROP TABLE dbinfo", "not an asset database"),
        ("UPDATE aptui_state SET value = '10'", "old schema 10"),
        ("UPDATE aptui_state SET value = 'x'", "old schema -1"),
    ],
)
def test_unusable_database_is_set_aside_and_reported(path: Path, sql: str, message: str) -> None:
    change(path, sql)

    note = schema.prepare(path)

    assert message in note
    assert "everything is rebuilt" in note
    assert path.with_name("assetdb.sqlite.1.old").exists()
    assert schema.prepare(path) == ""


def test_damaged_database_is_set_aside_with_its_log_under_a_free_number(tmp_path: Path) -> None:
    path = tmp_path / "assetdb.sqlite"
    for number in (1, 2):
        path.write_bytes(b"this is no database" * 100)
        path.with_name("assetdb.sqlite-wal").write_bytes(b"")

        assert "damaged" in schema.prepare(path)
        assert path.with_name(f"assetdb.sqlite.{number}.old").read_bytes().startswith(b"this is no")


@pytest.mark.parametrize("sql", ["UPDATE dbinfo SET version = 41", "UPDATE aptui_state SET value = '99'"])
def test_a_newer_database_is_refused_and_kept(path: Path, sql: str) -> None:
    change(path, sql)

    with pytest.raises(UserError, match="newer"):
        schema.prepare(path)
    assert [entry.name for entry in path.parent.iterdir() if "old" in entry.name] == []


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            PermissionError(errno.EACCES, "Permission denied", b"/cache/a"),
            "'/cache/a' cannot be used: Permission denied; check the permissions of this file and of its folder, then start again",
        ),
        (
            PermissionError(errno.EPERM, "Operation not permitted"),
            "the folder of the cache '/cache' cannot be used: Operation not permitted; check the permissions of this folder",
        ),
        (OSError(errno.EIO, "Input/output error", "/cache/a"), "'/cache/a' cannot be used: Input/output error; check the disk"),
        (
            OSError(errno.EIO, "Input/output error"),
            "the disk of the cache '/cache' cannot be used: Input/output error; check the disk",
        ),
    ],
)
def test_error_of_the_disk_names_its_path_and_a_remedy_for_its_cause(error: OSError, message: str) -> None:
    with pytest.raises(HostError) as caught, schema.translate_errors(Path("/cache/assetdb.sqlite")):
        raise error

    assert message in str(caught.value)


def test_database_that_cannot_be_created_is_a_host_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(HostError, match="cannot be created"):
        schema.prepare(tmp_path / "file" / "assetdb.sqlite")


def test_a_database_that_is_a_folder_is_a_host_error(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="permissions"):
        schema.prepare(tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("SQLITE_FULL", "ENOSPC"),
        ("SQLITE_IOERR_WRITE", "EIO"),
        ("SQLITE_BUSY", "close the program"),
        ("SQLITE_MISMATCH", "MISMATCH"),
    ],
)
def test_sqlite_errors_are_reported_with_the_names_of_system_errors(tmp_path: Path, name: str, message: str) -> None:
    error = sqlite3.OperationalError("x")
    error.sqlite_errorname = name

    assert message in str(schema.host_error(tmp_path, error))


def test_new_database_cannot_be_opened_by_other_users(tmp_path: Path) -> None:
    path = tmp_path / "assetdb.sqlite"
    schema.prepare(path)
    with closing(sqlite3.connect(path)) as database:
        database.execute("INSERT INTO aptui_state VALUES ('a', '1')")
        assert [name.stat().st_mode & 0o077 for name in tmp_path.iterdir()] == [0, 0, 0]
        for name in tmp_path.iterdir():
            name.chmod(0o644)

        schema.prepare(path)

        assert [name.stat().st_mode & 0o077 for name in tmp_path.iterdir()] == [0, 0, 0]


def test_uuids_are_written_as_o3de_writes_them() -> None:
    uuid = bytes.fromhex("e68a85b0131d5a82b2d5bc58ee4062ae")

    assert schema.uuid_text(uuid) == "{E68A85B0-131D-5A82-B2D5-BC58EE4062AE}"


@pytest.mark.parametrize("name", ["SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_CANTOPEN", "SQLITE_IOERR_SHMSIZE"])
def test_sqlite_errors_on_a_full_disk_are_not_reported_as_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    error = sqlite3.DatabaseError("database disk image is malformed")
    error.sqlite_errorname = name
    monkeypatch.setattr(schema.os, "statvfs", lambda _path: os.statvfs_result((4096, 4096, 100, 3, 3, 1, 1, 1, 0, 255)))

    translated = schema.host_error(tmp_path / "assetdb.sqlite", error)

    assert not isinstance(translated, schema.DamagedError)
    assert "no space left" in str(translated)
    assert "set aside" not in str(translated)


def test_invalid_database_on_a_full_disk_is_not_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "assetdb.sqlite"
    path.write_bytes(b"no database at all" * 100)
    monkeypatch.setattr(schema.os, "statvfs", lambda _path: os.statvfs_result((4096, 4096, 100, 3, 3, 1, 1, 1, 0, 255)))

    with pytest.raises(HostError, match="no space left"), schema.translate_errors(path):
        schema.prepare(path, lambda: None)
    assert path.exists()
    assert not list(tmp_path.glob("*.damaged"))


def test_stored_schema_digest_equals_the_digest_of_a_new_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        found = schema.digest_of(database.execute(schema.SCHEMA_SQL).fetchall())

    assert found == schema.SCHEMA_DIGEST, "the tables changed: write this digest into schema.SCHEMA_DIGEST"
