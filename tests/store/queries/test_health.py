"""Health of the database: damage, size, and an SQLite library with the WAL-reset bug."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from aptui.core.model import FileFact, RelPath
from aptui.store.queries import checks

from ..conftest import DIGEST, Store, job_row, product_row, source_row

FACT = FileFact(1, RelPath("a/x"), 1, 2, 3, 4)


def test_sqlite_version_is_the_version_of_the_loaded_library() -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        reported = database.execute("SELECT sqlite_version()").fetchone()[0]

    assert ".".join(map(str, checks.sqlite_version())) == reported


@pytest.mark.parametrize(
    ("version", "has_bug"),
    [((3, 6, 23), False), ((3, 7, 0), True), ((3, 40, 1), True), ((3, 51, 2), True), ((3, 51, 3), False), ((3, 52, 0), False)],
)
def test_sqlite_versions_that_may_damage_a_database_are_recognised(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...], has_bug: bool
) -> None:
    monkeypatch.setattr(checks.sqlite3, "sqlite_version_info", version)

    assert checks.has_wal_reset_bug() is has_bug


def test_a_sound_database_has_no_faults(store: Store) -> None:
    store.put(put_source=[source_row()], put_job=[job_row()])

    assert checks.faults(store.path) == []


def test_missing_or_invalid_database_is_a_fault(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes(b"this is no database" * 100)

    (missing,), (broken,) = checks.faults(tmp_path / "missing.sqlite"), checks.faults(damaged)

    assert "there is no asset database" in missing
    assert "cannot be used" in broken


def test_overwritten_pages_are_reported_as_faults(store: Store) -> None:
    store.put(put_source=[source_row(number, f"{number:0500}.png") for number in range(1, 200)])
    store.close()
    page_bytes = store.rows("PRAGMA page_size")[0][0]
    pages = store.path.stat().st_size // page_bytes
    with store.path.open("r+b") as file:
        file.seek((pages - 10) * page_bytes)
        file.write(b"\xff" * 8 * page_bytes)

    assert 1 <= len(checks.faults(store.path)) <= 5


def test_new_database_has_counts_of_zero(store: Store) -> None:
    reader = store.reader()

    assert (checks.product_bytes(reader), checks.last_completed_ms(reader), checks.folder_count(reader)) == (0, 0, 0)


def test_health_has_the_size_and_the_last_completion_of_a_database(store: Store) -> None:
    gem = store.writer.sync_scan_folders([("project", "/project", 0), ("gem", "/gem", 1)])[0]["gem"]
    store.put(
        put_source=[source_row()],
        put_job=[job_row(1, completed_ms=1000), job_row(2, platform="windows", completed_ms=3000)],
        put_product=[product_row(1, 1), product_row(2, 2, "windows/a")],
        put_folder=[(1, "a", DIGEST, (FACT,)), (gem, "a", DIGEST, (FACT,)), (1, "b", DIGEST, (FACT,))],
    )
    reader = store.reader()

    assert (checks.product_bytes(reader), checks.last_completed_ms(reader), checks.folder_count(reader)) == (20, 3000, 2)
