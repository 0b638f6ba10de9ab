"""A real database in a temporary folder, and rows with defaults."""

from __future__ import annotations

import contextlib
import functools
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from aptui.core.model import Digest, FileFact, RelPath
from aptui.core.notices import JobChanged
from aptui.core.rows import pack_plan
from aptui.store.db import schema
from aptui.store.db.archive import DatabaseArchive
from aptui.store.db.writer import Writer
from aptui.store.queries.reader import Reader, open_reader

BUILDER = b"B" * 16
DIGEST = b"D" * 32


def uuid_of(number: int) -> bytes:
    return number.to_bytes(16, "big")


def source_row(source_id: int = 1, rel: str = "Textures/Ärger.png", scan_folder: int = 1) -> tuple[object, ...]:
    return (source_id, scan_folder, rel, uuid_of(source_id), rel.lower(), DIGEST, "", 4, 5)


def job_row(job_id: int = 1, source_id: int = 1, **changes: Any) -> tuple[object, ...]:
    values: dict[str, Any] = {
        "job_id": job_id, "source_id": source_id, "job_key": "Image", "fingerprint": 7, "platform": "linux", "builder": BUILDER,
        "status": 4, "run_key": 5, "first_fail_ms": 0, "first_fail_log": "", "last_fail_ms": 0, "last_fail_log": "", "last_ms": 9,
        "last_log": "JobLogs/a.log", "errors": 0, "warnings": 2, "state": "completed", "planned": 7, "error": "",
        "reason": "new source",
        "inputs": '[["source","a.png","00ff"]]', "plan": pack_plan(None, ()), "duration_ms": 1500, "completed_ms": 1000,
        "failure_cause": "", "escalation": 0, "origin": "", "failure": "",
    }  # fmt: skip
    return tuple((values | changes).values())


def job_notice(job_id: int, **changes: Any) -> JobChanged:
    values: dict[str, Any] = {
        "cause": 0, "job_id": job_id, "source": "a.png", "scan_folder": 1, "platform": "linux", "job_key": "Image",
        "builder": "image", "status": "completed", "reason": "", "error": "", "warnings": 0, "errors": 0, "duration_ms": 1,
        "log_file": "", "run_key": 9, "completed_ms": 1,
    }  # fmt: skip
    return JobChanged(**(values | changes))


def analysis_row(source_id: int = 1, **changes: Any) -> tuple[object, ...]:
    values: dict[str, Any] = {
        "source_id": source_id, "builder": BUILDER, "state": "completed", "fingerprint": 3, "error": "", "warnings": 0, "errors": 0,
        "duration_ms": 4, "completed_ms": 5, "log_file": "", "reason": "new source", "plans": "", "failure": "",
    }  # fmt: skip
    return tuple((values | changes).values())


def product_row(product_id: int = 1, job_id: int = 1, name: str = "linux/textures/ärger.png") -> tuple[object, ...]:
    return (product_id, job_id, name, product_id, b"T" * 16, -2, 1, DIGEST, 10)


def edge_row(kind: int, target: str, *, bits: int = 1, source_id: int = 1) -> tuple[object, ...]:
    return (uuid_of(source_id), BUILDER, kind, target, bits, "", 0, source_id)


@functools.cache
def _empty() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        schema.prepare(path := Path(folder, "assetdb.sqlite"))
        return path.read_bytes()


def make_database(path: Path) -> None:
    """Copy an empty database to a path. The database is made only once, because making it takes longer than most tests."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(0o600)
        path.write_bytes(_empty())


@dataclass
class Store:
    """A database with one scan folder, its writer, and functions that open a `Reader` or a `DatabaseArchive` of it."""

    path: Path
    writer: Writer
    saved: list[int]
    scan_folder: int
    _open: list[Any] = field(default_factory=list)

    def put(self, **rows: list[tuple[object, ...]]) -> None:
        self.writer.run(rows, durable=False)

    def archive(self, ranks: dict[int, int] | None = None) -> DatabaseArchive:
        archive = DatabaseArchive(self.path, ranks or {self.scan_folder: 0})
        self._open.append(archive)
        return archive

    def reader(self) -> Reader:
        reader = open_reader(self.path)
        self._open.append(reader)
        return reader

    def rows(self, sql: str, *values: object) -> list[Any]:
        with closing(sqlite3.connect(self.path)) as database:
            return database.execute(sql, values).fetchall()

    def count(self, table: str) -> int:
        return int(self.rows(f"SELECT COUNT(*) FROM {table}")[0][0])

    def close(self) -> None:
        for opened in self._open:
            opened.close()
        # the database need not survive a power cut, and syncs to a busy disk would slow the test
        with contextlib.suppress(sqlite3.Error):
            self.writer._database.execute("PRAGMA synchronous = OFF")
        self.writer.close()


def fact(rel: str, scan_folder: int = 1, size: int = 1) -> FileFact:
    return FileFact(scan_folder, RelPath(rel), size, 2, 3, 4, Digest(DIGEST), (1 << 64) - 1)


def put_folder(store: Store, folder: str, *facts: FileFact, digest: bytes = DIGEST) -> None:
    store.put(put_folder=[(facts[0].scan_folder, folder, digest, facts)])


def with_gem(store: Store) -> int:
    """Add a second scan folder; return its id."""
    return store.writer.sync_scan_folders([("project", "/project", 0), ("Gem", "/gem", 1)])[0]["Gem"]


def two_jobs(store: Store) -> None:
    store.put(
        put_source=[source_row(1, "Ä.png"), source_row(2, "b.png")],
        put_job=[job_row(1, 1), job_row(2, 2)],
        put_product=[product_row(1, 1, "linux/tex/a"), product_row(2, 2, "linux/tex/deep/b"), product_row(3, 2, "linux/text")],
    )


@pytest.fixture
def make_store(tmp_path: Path) -> Iterator[Callable[[], Store]]:
    stores: list[Store] = []

    def make() -> Store:
        path = tmp_path / f"{len(stores)}" / "assetdb.sqlite"
        make_database(path)
        saved: list[int] = []
        writer = Writer(path, saved.append)
        ids, _ = writer.sync_scan_folders([("project", str(tmp_path), 0)])
        stores.append(Store(path, writer, saved, ids["project"]))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def store(make_store: Callable[[], Store]) -> Store:
    return make_store()
