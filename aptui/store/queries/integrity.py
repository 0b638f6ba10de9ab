"""Integrity check: missing or damaged products, and files without rows.

It only reads.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from aptui.core.identity import find_identified
from aptui.core.paths import cache_path, from_text, to_text
from aptui.shared.errors import KnownError
from aptui.store.queries.reader import ProductRow, Reader, open_reader

# Queries about the asset database itself: the version of SQLite, and damage.
#
# `reader` answers queries about its content.

_MOST_FAULTS = 5


def sqlite_version() -> tuple[int, ...]:
    """Return the version of the SQLite library, such as (3, 40, 1)."""
    return sqlite3.sqlite_version_info


def has_wal_reset_bug() -> bool:
    """Whether two connections that write or checkpoint at once may damage a database: the WAL-reset bug, 3.7.0 to 3.51.2."""
    return (3, 7, 0) <= sqlite_version() < (3, 51, 3)


def faults(path: Path) -> list[str]:
    """Return the errors that `quick_check` finds in a database."""
    try:
        with closing(open_reader(path)) as reader:
            rows = reader._database.execute(f"PRAGMA quick_check({_MOST_FAULTS})").fetchall()  # noqa: SLF001 - same room
    except (sqlite3.Error, KnownError) as error:
        return [str(error)]
    return [text for (text,) in rows if text != "ok"]


def product_bytes(reader: Reader) -> int:
    """Return the size of all products together."""
    row = reader._database.execute("SELECT COALESCE(SUM(size), 0) FROM aptui_products").fetchone()  # noqa: SLF001 - same room
    return int(row[0])


def last_completed_ms(reader: Reader) -> int:
    """Return when a job last ended, 0 = never."""
    row = reader._database.execute("SELECT COALESCE(MAX(completed_ms), 0) FROM aptui_jobs").fetchone()  # noqa: SLF001 - same room
    return int(row[0])


def folder_count(reader: Reader) -> int:
    """Return the number of scanned folders."""
    row = reader._database.execute("SELECT COUNT(DISTINCT folder) FROM aptui_folders").fetchone()  # noqa: SLF001 - same room
    return int(row[0])


_BITE = 500
"""Products read at a time: while a cursor is open, the write-ahead log cannot be moved into the database."""
_PRODUCTS_SQL = """SELECT p.ProductName, COALESCE(o.digest, x''), COALESCE(o.size, -1), p.JobPK, p.SubID, p.AssetType,
    p.Flags, p.ProductID
FROM Products p LEFT JOIN aptui_products o ON o.product_id = p.ProductID WHERE p.ProductID > ? ORDER BY p.ProductID LIMIT ?"""
_NAMES_SQL = """SELECT ProductName FROM Products WHERE ProductName > :folder || '/' AND ProductName < :folder || '0'
AND instr(substr(ProductName, length(:folder) + 2), '/') = 0"""
_DIGEST_SQL = """SELECT COALESCE(o.digest, x'') FROM Products p LEFT JOIN aptui_products o ON o.product_id = p.ProductID
WHERE p.ProductName = ?"""


class Finding(Struct, frozen=True):
    """A product that differs from its row; `problem` is "missing" or "damaged"."""

    product: str
    problem: str
    source: str
    job_id: int


class OrphanFile(Struct, frozen=True):
    """A file in the cache that is not a product.

    `is_watched`: its folder belongs to the engine, which deletes the file when it checks the folder.
    """

    name: str
    size_bytes: int
    is_watched: bool


def amount(reader: Reader) -> tuple[int, int]:
    """Return (how many products, of how many bytes)."""
    sql = "SELECT COUNT(*), COALESCE(SUM(o.size), 0) FROM Products p LEFT JOIN aptui_products o ON o.product_id = p.ProductID"
    count, size = reader.ask(sql).fetchone()
    return count, size


def examine_products(reader: Reader, cache_dir: Path) -> Iterator[tuple[ProductRow, Finding | None]]:
    """Yield every product with the finding about it, reading all its bytes; an engine may run at the same time."""
    root, last = os.fsencode(cache_dir), 0
    while rows := reader.ask(_PRODUCTS_SQL, (last, _BITE)).fetchall():
        for row in rows:
            product = ProductRow(*row)
            yield product, _finding(product, reader, root)
        last = product.product_id


def _finding(product: ProductRow, reader: Reader, root: bytes) -> Finding | None:
    if not _problem(root, product.name, product.digest):
        return None
    row = reader.ask(_DIGEST_SQL, (product.name,)).fetchone()  # the product may have been rebuilt since the row was read
    problem = _problem(root, product.name, row[0]) if row else ""
    if not problem:
        return None
    job = reader.job(product.job_id)
    return Finding(product.name, problem, job.source if job else "", product.job_id)


def _problem(root: bytes, name: str, recorded: bytes) -> str:
    try:
        with open(root + b"/" + from_text(cache_path(name)), "rb") as file:
            found = hashlib.file_digest(file, "sha256").digest()
    except OSError:
        return "missing"
    return "damaged" if recorded and found != recorded else ""


def orphans(reader: Reader, cache_dir: Path, platforms: Sequence[str] = ()) -> Iterator[tuple[str, list[OrphanFile]]]:
    """Yield every folder of the cache with its files without a row; only folders of platforms, which are ours.

    A product is placed before its row is saved: check the files again that were found while an engine worked (`still_orphans`).
    """
    watched = {name for (name,) in reader.ask("SELECT name FROM aptui_cache_folders")}
    tops = sorted({*platforms, *(name.partition("/")[0] for name in watched)})
    folders = [top for top in reversed(tops) if os.path.isdir(cache_dir / os.fsdecode(from_text(cache_path(top))))]
    root = os.fsencode(cache_dir)
    while folders:
        folder = folders.pop()
        below, found = _check_folder(folder, root, reader, is_watched=folder in watched)
        folders += sorted(below, reverse=True)
        yield folder, found


def _check_folder(folder: str, root: bytes, reader: Reader, *, is_watched: bool) -> tuple[list[str], list[OrphanFile]]:
    below: list[str] = []
    found: list[OrphanFile] = []
    known = {name for (name,) in reader.ask(_NAMES_SQL, {"folder": folder})}
    try:
        with os.scandir(root + b"/" + from_text(cache_path(folder))) as entries:
            for entry in entries:
                name = f"{folder}/{to_text(entry.name)}"
                if entry.is_dir(follow_symlinks=False):
                    below.append(name)
                elif entry.is_symlink() or not (name in known or find_identified(name) in known or _is_catalog(name)):
                    found.append(OrphanFile(name, entry.stat(follow_symlinks=False).st_size, is_watched))
    except OSError:
        pass  # the folder was deleted, or cannot be read
    return below, sorted(found, key=lambda orphan: orphan.name)


def still_orphans(found: Sequence[OrphanFile], reader: Reader, cache_dir: Path) -> list[OrphanFile]:
    """Return the files of `found` that still exist and are still not products."""
    root = os.fsencode(cache_dir)
    return [
        orphan
        for orphan in found
        if os.path.lexists(root + b"/" + from_text(cache_path(orphan.name)))
        and (
            os.path.islink(root + b"/" + from_text(cache_path(orphan.name)))
            or reader.ask(
                "SELECT 1 FROM Products WHERE ProductName IN (?, ?)", (orphan.name, find_identified(orphan.name))
            ).fetchone()
            is None
        )
    ]


def mark_for_check(found: Sequence[OrphanFile], cache_dir: Path) -> int:
    """Set the times of the folders of `found`, so that the engine checks them at its next scan; return the number of folders."""
    root, folders = os.fsencode(cache_dir), {orphan.name.rpartition("/")[0] for orphan in found if orphan.is_watched}
    for folder in folders:
        try:
            os.utime(root + b"/" + from_text(cache_path(folder)))
        except OSError:
            continue  # the folder was deleted, and with it the finding
    return len(folders)


def _is_catalog(name: str) -> bool:
    return name.count("/") == 1 and name.rpartition("/")[2].startswith("assetcatalog.")
