"""Health of the database, and differences between the cache and the database.

The differences are damaged products, missing products and orphan files.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from aptui.core.model import FileFact, RelPath
from aptui.core.paths import to_text
from aptui.store.queries import checks
from aptui.store.queries.checks import amount, examine_products, mark_for_check, orphans, still_orphans
from tests.store.conftest import DIGEST, Store, job_row, product_row, source_row


def put(store: Store, *names: str) -> None:
    """Record products of these names, with the digest of b"as made", and write their files."""
    rows = []
    for number, name in enumerate(names, 1):
        row = list(product_row(number, 1, name))
        row[-2:] = [hashlib.sha256(b"as made").digest(), 7]
        rows.append(tuple(row))
        file = store.path.parent / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"as made")
    folders = sorted({name.rpartition("/")[0] for name in names})
    store.put(
        put_source=[source_row()], put_job=[job_row()], put_product=rows, put_cache_folder=[(folder, 1) for folder in folders]
    )


def found(store: Store) -> list[tuple[str, str]]:
    return [(each.name, finding.problem) for each, finding in examine_products(store.reader(), store.path.parent) if finding]


def unowned(store: Store, *platforms: str):
    return [orphan for _, here in orphans(store.reader(), store.path.parent, platforms) for orphan in here]


def test_intact_products_are_not_findings(store):
    put(store, "linux/a.png", "linux/sub/b.png")

    assert found(store) == []
    assert amount(store.reader()) == (2, 14)


def test_damaged_and_missing_products_are_found_with_their_source(store):
    put(store, "linux/a.png", "linux/b.png", "linux/c.png")
    (store.path.parent / "linux/a.png").write_bytes(b"as maed")
    (store.path.parent / "linux/c.png").unlink()

    assert found(store) == [("linux/a.png", "damaged"), ("linux/c.png", "missing")]
    findings = [finding for _, finding in examine_products(store.reader(), store.path.parent) if finding]
    assert {finding.source for finding in findings} == {"Textures/Ärger.png"}


def test_product_made_again_during_the_check_is_not_a_finding(store):
    put(store, "linux/a.png", "linux/b.png")
    examination = examine_products(store.reader(), store.path.parent)
    next(examination)
    (store.path.parent / "linux/b.png").write_bytes(b"anew")
    row = list(product_row(2, 1, "linux/b.png"))
    row[-2:] = [hashlib.sha256(b"anew").digest(), 4]
    store.put(put_product=[tuple(row)])

    assert [finding for _, finding in examination] == [None]


def test_all_products_beyond_one_page_are_checked(store, monkeypatch):
    monkeypatch.setattr("aptui.store.queries.checks._PAGE_ROWS", 2)
    put(store, *(f"linux/{number}.png" for number in range(5)))

    assert len(list(examine_products(store.reader(), store.path.parent))) == 5


def test_orphan_files_are_found_only_in_folders_of_platforms(store):
    put(store, "linux/a.png", "linux/sub/b.png")
    cache = store.path.parent
    for name in (
        "linux/stray.tmp",
        "linux/sub/stray",
        "linux/lonely/x",
        "linux/assetcatalog.xml",
        "pc/y",
        "notes/mine.txt",
        ".aptui/own",
    ):
        (cache / name).parent.mkdir(parents=True, exist_ok=True)
        (cache / name).write_bytes(b"1234")

    assert [(each.name, each.is_watched) for each in unowned(store, "pc")] == [
        ("linux/stray.tmp", True),
        ("linux/lonely/x", False),
        ("linux/sub/stray", True),
        ("pc/y", False),
    ]


def test_link_at_a_product_path_or_an_undecodable_name_is_an_orphan(store):
    put(store, "linux/a.png")
    cache = store.path.parent
    (cache / "linux/a.png").unlink()
    (cache / "linux/a.png").symlink_to("/etc/hostname")
    with open(os.fsencode(cache) + b"/linux/bad\xe9", "wb"):
        pass

    assert [each.name for each in unowned(store)] == ["linux/a.png", to_text(b"linux/bad\xe9")]


def test_identity_file_of_an_intermediate_belongs_to_its_product(store):
    put(store, "common/a.mid")
    (store.path.parent / "common").rename(folder := store.path.parent / "Intermediate Assets")
    for name in ("a.mid.meta", "b.mid.meta", "gone.mid.meta"):
        (folder / name).write_bytes(b"")
    found = unowned(store)
    store.put(put_product=[product_row(7, 1, "common/b.mid")])

    assert [each.name for each in found] == ["common/b.mid.meta", "common/gone.mid.meta"]
    assert [each.name for each in still_orphans(found, store.reader(), store.path.parent)] == ["common/gone.mid.meta"]


def test_file_that_was_deleted_or_became_a_product_is_not_an_orphan(store):
    put(store, "linux/a.png")
    cache = store.path.parent
    for name in ("b.png", "c.png", "d.png"):
        (cache / "linux" / name).write_bytes(b"")
    before = unowned(store)
    (cache / "linux/b.png").unlink()
    store.put(put_product=[product_row(7, 1, "linux/c.png")])

    assert [each.name for each in still_orphans(before, store.reader(), cache)] == ["linux/d.png"]


def test_marking_orphans_sets_times_only_of_folders_with_products(store):
    put(store, "linux/a.png")
    cache = store.path.parent
    for name in ("linux/stray", "linux/lonely/x"):
        (cache / name).parent.mkdir(exist_ok=True)
        (cache / name).write_bytes(b"")
    for folder in ("linux", "linux/lonely"):
        os.utime(cache / folder, ns=(5, 5))

    assert mark_for_check(unowned(store), cache) == 1
    assert (cache / "linux").stat().st_mtime_ns > 5
    assert (cache / "linux/lonely").stat().st_mtime_ns == 5
    assert (cache / "linux/stray").exists()


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


def test_undamaged_database_has_no_faults(store: Store) -> None:
    store.put(put_source=[source_row()], put_job=[job_row()])

    assert checks.faults(store.path) == []


def test_missing_or_invalid_database_is_a_fault(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes(b"this is no database" * 100)

    (missing,), (broken,) = checks.faults(tmp_path / "missing.sqlite"), checks.faults(damaged)

    assert "there is no asset database" in missing
    assert "cannot be used" in broken


def test_overwritten_database_pages_are_reported_as_damage(store: Store) -> None:
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


def test_folder_count_product_bytes_and_last_completion_are_read_from_the_database(store: Store) -> None:
    gem = store.writer.sync_scan_folders([("project", "/project", 0), ("gem", "/gem", 1)])[0]["gem"]
    store.put(
        put_source=[source_row()],
        put_job=[job_row(1, completed_ms=1000), job_row(2, platform="windows", completed_ms=3000)],
        put_product=[product_row(1, 1), product_row(2, 2, "windows/a")],
        put_folder=[(1, "a", DIGEST, (FACT,)), (gem, "a", DIGEST, (FACT,)), (1, "b", DIGEST, (FACT,))],
    )
    reader = store.reader()

    assert (checks.product_bytes(reader), checks.last_completed_ms(reader), checks.folder_count(reader)) == (20, 3000, 2)
