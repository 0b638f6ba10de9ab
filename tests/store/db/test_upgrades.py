"""Older databases are upgraded in place: nothing is lost, nothing is set aside, and a half-done step counts as not begun."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from aptui.store.db import schema
from aptui.store.db.schema import OWN_VERSION, VERSION_KEY, prepare
from aptui.store.queries.reader import open_reader
from aptui.store.queries.session_history import runs_until, sessions

from ..conftest import Store, analysis_row, job_row, source_row

RUN = (1, 5, 1000, 5, 0, "new source; its result is from the shared cache (\\server\\x)", "", "", 7, "1", b"P" * 16, "0", "")
FILES = (
    "DROP VIEW Files",
    """CREATE TABLE Files (FileID INTEGER NOT NULL PRIMARY KEY, ScanFolderPK INTEGER NOT NULL REFERENCES ScanFolders(ScanFolderID)
    ON DELETE CASCADE, FileName TEXT NOT NULL COLLATE NOCASE, IsFolder INTEGER NOT NULL, ModTime INTEGER NOT NULL,
    Hash INTEGER NOT NULL)""",
    """INSERT INTO Files SELECT file_id, scan_folder_id, name, is_folder, mtime_ms, hash64 FROM aptui_files
    UNION ALL SELECT NULL, ScanFolderPK, SourceName, 0, mtime_ms, hash64 FROM Sources JOIN aptui_sources ON source_id = SourceID""",
    "DROP TABLE aptui_files",
    "DROP TRIGGER aptui_files_go",
    "CREATE INDEX Files_FileName ON Files(FileName)",
    "CREATE INDEX ScanFolders_Files ON Files(ScanFolderPK)",
    "CREATE UNIQUE INDEX aptui_files_name ON Files(ScanFolderPK, FileName COLLATE BINARY)",
    "ALTER TABLE aptui_sources DROP COLUMN mtime_ms",
    "ALTER TABLE aptui_sources DROP COLUMN hash64",
)
STATS = (
    "CREATE TABLE was AS SELECT * FROM Stats",
    "DROP VIEW Stats",
    """CREATE TABLE Stats (StatName TEXT NOT NULL COLLATE NOCASE PRIMARY KEY, StatValue INTEGER NOT NULL,
    LastLogTime INTEGER NOT NULL)""",
    "INSERT INTO Stats SELECT * FROM was",
    "DROP TABLE was",
    "DROP TABLE aptui_stats",
)
"""Makes the tables of version 4 from the present views."""
SESSION_TABLES = ("sessions", "session_runs", "gone_jobs")


def as_version_2(path: Path) -> None:
    """Make of a database of today what version 2 had."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        for sql in (*FILES, *STATS):
            database.execute(sql)
        database.execute("DROP TABLE aptui_retries")
        database.execute("DROP TRIGGER aptui_retries_go")
        database.execute("DROP TABLE aptui_drafts")
        database.execute("DROP TRIGGER aptui_drafts_go")
        database.execute("DROP TABLE aptui_facts")
        database.execute("DROP TRIGGER aptui_facts_go")
        for going in ("TRIGGER aptui_gone_Sources", "TRIGGER aptui_gone_Jobs", *(f"TABLE aptui_{name}" for name in SESSION_TABLES)):
            database.execute(f"DROP {going}")
        database.execute("ALTER TABLE aptui_jobs DROP COLUMN origin")
        database.execute("ALTER TABLE aptui_runs DROP COLUMN origin")
        database.execute("ALTER TABLE aptui_jobs DROP COLUMN failure")
        database.execute("ALTER TABLE aptui_analyses DROP COLUMN failure")
        database.execute("ALTER TABLE aptui_cache_folders RENAME COLUMN ctime_ns TO mtime_ns")
        database.execute("UPDATE aptui_state SET value = '2' WHERE key = ?", (VERSION_KEY,))


def columns_of(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return {table: [(name, type, is nullable, is part of the key)]}."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            table: [
                (name, kind, not_null, key)
                for _at, name, kind, not_null, _default, key in database.execute(f"PRAGMA table_info({table})")
            ]
            for table in tables
        }


@pytest.fixture
def old(store: Store, tmp_path: Path) -> Path:
    """Return the path of a database of version 2 with two jobs; the first one was fetched."""
    store.put(
        put_source=[source_row()],
        put_job=[
            job_row(reason="new source; its result is from this machine's store (local)"),
            job_row(2, platform="windows", reason="its result is what its builder said of it"),
            job_row(3, platform="mac", reason="source 'a' changed"),
        ],
        put_run=[RUN],
        put_file=[(1, "readme.md", 0, 11, 12)],
        put_stat=[("CreateJobs,a,image", 1, 2)],
    )
    store.close()
    as_version_2(store.path)
    return store.path


def test_where_a_result_came_from_becomes_a_column(old: Path) -> None:
    note = prepare(old)

    with contextlib.closing(sqlite3.connect(old)) as database:
        jobs = database.execute("SELECT reason, origin FROM aptui_jobs ORDER BY job_id").fetchall()
        runs = database.execute("SELECT reason, origin FROM aptui_runs").fetchall()
        version = database.execute("SELECT value FROM aptui_state WHERE key = ?", (VERSION_KEY,)).fetchone()
    assert note == ""
    assert jobs == [
        ("new source", "from this machine's store (local)"),
        ("", "what its builder said of it"),
        ("source 'a' changed", ""),
    ]
    assert runs == [("new source", "from the shared cache (\\server\\x)")]
    assert version == (str(OWN_VERSION),)
    assert not list(old.parent.glob("*.old"))


def test_people_read_the_same_words_before_and_after(old: Path) -> None:
    prepare(old)

    with contextlib.closing(open_reader(old)) as reader:
        assert [row.reason for row in reader.jobs_of(1)] == [
            "new source; its result is from this machine's store (local)", "its result is what its builder said of it",
            "source 'a' changed",
        ]  # fmt: skip
        assert [row.origin for row in reader.jobs_of(1)] == ["from this machine's store (local)", "what its builder said of it", ""]
        assert [run.reason for run in reader.runs_of(1)] == [RUN[5]]


def test_the_tables_are_those_of_a_new_database(old: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.sqlite"
    prepare(new)

    prepare(old)

    assert columns_of(old) == columns_of(new)
    assert others_of(old) == others_of(new)


def others_of(path: Path) -> set[tuple[str, str]]:
    """Return the names of indexes, triggers and views."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        return set(database.execute("SELECT type, name FROM sqlite_master WHERE type IN ('index', 'trigger', 'view')"))


def test_what_o3de_reads_is_the_same_before_and_after(old: Path) -> None:
    asked = (
        "SELECT ScanFolderPK, FileName, IsFolder, ModTime, Hash FROM Files ORDER BY 2",
        "SELECT StatName, StatValue, LastLogTime FROM Stats ORDER BY 1",
    )
    with contextlib.closing(sqlite3.connect(old)) as database:
        before = [database.execute(sql).fetchall() for sql in asked]

    prepare(old)

    with contextlib.closing(sqlite3.connect(old)) as database:
        assert [database.execute(sql).fetchall() for sql in asked] == before
    assert [len(rows) for rows in before] == [2, 4]


def test_what_ran_so_far_is_what_was_before_all_sessions(old: Path) -> None:
    prepare(old)

    with contextlib.closing(open_reader(old)) as reader:
        assert sessions(reader) == []
        assert [(run.source, run.session, run.is_restored) for run in runs_until(reader, 0)] == [("Textures/Ärger.png", 0, True)]
    with contextlib.closing(sqlite3.connect(old)) as database:
        assert database.execute("SELECT run_key FROM aptui_sessions").fetchall() == [(5,)], "none of it is owed a session"


def test_a_step_that_dies_half_way_has_not_begun(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = schema.STEPS[2]

    def dies(database: sqlite3.Connection) -> None:
        step(database)
        raise KeyboardInterrupt

    before = columns_of(old)
    monkeypatch.setitem(schema.STEPS, 2, dies)
    with pytest.raises(KeyboardInterrupt):
        prepare(old)
    assert columns_of(old) == before

    monkeypatch.setitem(schema.STEPS, 2, step)
    assert prepare(old) == ""


def run_row(job_id: int, run_key: int, outcome: int) -> tuple[object, ...]:
    return (job_id, run_key, 1000, 5, outcome, "edited", "", "", 7, "1", b"P" * 16, "0", "")


def test_rows_that_kept_the_errors_of_a_failed_run_are_made_again(store: Store) -> None:
    failed = {"state": "failed", "status": 2, "errors": 1}
    store.put(
        put_source=[source_row(number, f"{number}.png") for number in range(1, 5)],
        put_job=[
            job_row(1, 1, run_key=6, errors=1),  # it failed as 6, and was put back
            job_row(2, 2, run_key=5, errors=1),  # it logged an error, and succeeded
            job_row(3, 3, run_key=6, **failed),
            job_row(4, 4, run_key=6),
        ],
        put_analysis=[analysis_row(1, errors=1), analysis_row(2)],
        put_run=[
            run_row(1, 5, 0), run_row(1, 6, 1), run_row(2, 5, 0), run_row(3, 5, 0), run_row(3, 6, 1), run_row(4, 5, 1),
            run_row(4, 6, 0),
        ],
    )  # fmt: skip
    store.close()
    with contextlib.closing(sqlite3.connect(store.path, isolation_level=None)) as database:
        database.execute("ALTER TABLE aptui_jobs DROP COLUMN failure")
        database.execute("ALTER TABLE aptui_analyses DROP COLUMN failure")
        database.execute("ALTER TABLE aptui_cache_folders RENAME COLUMN ctime_ns TO mtime_ns")
        database.execute("UPDATE aptui_state SET value = '9' WHERE key = ?", (VERSION_KEY,))

    assert prepare(store.path) == ""

    with contextlib.closing(sqlite3.connect(store.path)) as database:
        jobs = database.execute(
            "SELECT o.state, j.Status, j.Fingerprint FROM Jobs j JOIN aptui_jobs o ON o.job_id = j.JobID ORDER BY j.JobID"
        ).fetchall()
        analyses = database.execute("SELECT state, fingerprint FROM aptui_analyses ORDER BY source_id").fetchall()
    assert jobs == [("waiting", 0, 0), ("completed", 4, 7), ("failed", 2, 0), ("completed", 4, 7)]
    assert analyses == [("waiting", None), ("completed", 3)]


def test_an_older_one_still_is_set_aside(old: Path) -> None:
    with contextlib.closing(sqlite3.connect(old, isolation_level=None)) as database:
        database.execute("UPDATE aptui_state SET value = '1' WHERE key = ?", (VERSION_KEY,))

    assert "has the old schema 1" in prepare(old)
