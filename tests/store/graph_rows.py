"""Test databases of sources `s0`, `s1`, … with one product each, and with given dependencies between them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from aptui.core.paths import path_uuid
from aptui.store.db import schema

BUILDER = b"B" * 16
PATH, WILDCARD, UUID, JOB, FOUND = range(5)
_BITS = {PATH: 1, WILDCARD: 5, UUID: 1, JOB: 2, FOUND: 1}


class Rows:
    """A new database of `count` sources with one product each, for one platform. Ids of sources and of products count from 1."""

    def __init__(self, path: Path, count: int, platform: str = "linux", sizes: Iterable[int] = ()) -> None:
        schema.prepare(path)
        self.path = path
        self.platform = platform
        self.products: dict[int, tuple[bytes, int, str]] = {}
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("INSERT INTO ScanFolders VALUES (1, ?, 'game', 'game', 0)", (str(path.parent / "assets"),))
            known = dict(enumerate(sizes))
            for at in range(count):
                self._source(database, at, known.get(at, 10 + at))

    def _source(self, database: sqlite3.Connection, at: int, size: int) -> None:
        name, number = f"s{at}", at + 1
        uuid = path_uuid(name)
        database.execute(
            "INSERT INTO Sources(SourceID, ScanFolderPK, SourceName, SourceGuid) VALUES (?, 1, ?, ?)", (number, name, uuid)
        )
        database.execute(
            "INSERT INTO aptui_sources VALUES (?, ?, ?, '', 0, 0)",
            (number, name, b""),
        )
        self.product(database, number, number, f"{self.platform}/p{at}", uuid, self.platform, size)

    def product(
        self,
        database: sqlite3.Connection,
        number: int,
        source: int,
        name: str,
        uuid: bytes,
        platform: str,
        size: int,
        flags: int = 1,
    ) -> None:
        """Insert a job with one product."""
        database.execute(
            """INSERT INTO Jobs(JobID, SourcePK, JobKey, Fingerprint, Platform, BuilderGuid, Status, JobRunKey, FirstFailLogTime,
            FirstFailLogFile, LastFailLogTime, LastFailLogFile, LastLogTime, LastLogFile)
            VALUES (?, ?, 'main', 1, ?, ?, 4, 1, 0, '', 0, '', 0, '')""",
            (number, source, platform, BUILDER),
        )
        database.execute(
            "INSERT INTO Products VALUES (?, ?, ?, 0, ?, zeroblob(16), 0, ?)", (number, number, name, bytes(16), flags)
        )
        database.execute("INSERT INTO aptui_products VALUES (?, ?, ?)", (number, b"", size))
        self.products[number] = (uuid, 0, platform)

    def need(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Let products (by index) depend on products."""
        with closing(sqlite3.connect(self.path)) as database, database:
            database.execute("PRAGMA synchronous = OFF")
            for owner, other in pairs:
                self._dependency(database, owner + 1, *self.products[other + 1][:2])

    def need_path(self, owner: int, path: str, *, is_product: bool = True) -> None:
        """Let a product depend on a path that does not exist."""
        with closing(sqlite3.connect(self.path)) as database, database:
            database.execute("PRAGMA synchronous = OFF")
            self._dependency(database, owner + 1, bytes(16), 0, path, int(is_product))

    def need_asset(self, owner: int, uuid: bytes, sub_id: int) -> None:
        """Let a product depend on an asset id."""
        with closing(sqlite3.connect(self.path)) as database, database:
            database.execute("PRAGMA synchronous = OFF")
            self._dependency(database, owner + 1, uuid, sub_id)

    def _dependency(
        self, database: sqlite3.Connection, owner: int, uuid: bytes, sub_id: int, path: str = "", kind: int = 0
    ) -> None:
        database.execute(
            """INSERT INTO ProductDependencies(ProductPK, DependencySourceGuid, DependencySubID, Platform, DependencyFlags,
                UnresolvedPath,
            UnresolvedDependencyType) VALUES (?, ?, ?, ?, 0, ?, ?)""",
            (owner, uuid, sub_id, self.products[owner][2], path, kind),
        )

    def depend(self, source: int, target: str, kind: int = PATH, builder: bytes = BUILDER) -> None:
        """Let a source (by index) depend on a target."""
        with closing(sqlite3.connect(self.path)) as database, database:
            database.execute("PRAGMA synchronous = OFF")
            database.execute("INSERT OR REPLACE INTO aptui_edges VALUES (?, ?, ?, ?)", (target.lower(), source + 1, builder, kind))
            database.execute(
                """INSERT INTO SourceDependency(BuilderGuid, SourceGuid, DependsOnSource, SubIds, TypeOfDependency, FromAssetId)
                VALUES (?, ?, ?, '', ?, 0)""",
                (builder, path_uuid(f"s{source}"), target, _BITS[kind]),
            )

    def as_o3de(self) -> None:
        """Drop all tables of aptui, as if O3DE had written the database."""
        with closing(sqlite3.connect(self.path)) as database, database:
            database.execute("PRAGMA synchronous = OFF")
            triggers = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
            tables = [
                name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE name GLOB 'aptui_*' AND type = 'table'")
            ]
            indexes = [
                name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE name GLOB 'aptui_*' AND type = 'index'")
            ]
            for view in ("Files", "Stats"):  # These views of aptui's databases are tables in O3DE's databases.
                database.execute(f"CREATE TABLE made AS SELECT * FROM {view}")
                database.execute(f"DROP VIEW {view}")
                database.execute(f"CREATE TABLE {view} AS SELECT * FROM made")
                database.execute("DROP TABLE made")
            for name in triggers:
                database.execute(f"DROP TRIGGER {name}")
            for name in indexes:
                database.execute(f"DROP INDEX {name}")
            for name in tables:
                database.execute(f"DROP TABLE {name}")
