"""Records changes for clients and catalogs: each change gets a numbered entry in a log, in the transaction of the change.

An entry is identified by kind, asset id and name. It has the whole new state of the source or product, or says that the source or
product was removed. So a client that reads the whole listing and then all later entries in order knows the content of the database,
even if it reads an entry twice. A change without effect gets no entry, for example a run that makes equal products, or a check of
an unchanged source.

The numbers of entries rise. The first number of each engine is computed from the time. Otherwise, after a power cut or in a
restored copy, new entries could get the numbers of lost entries that clients have already seen. A client that asks for an unknown
number gets `resync`.

Cost: rows with an id above the previous maximum are new, and one statement writes their entries. Only rows that will be deleted or
replaced are copied before the change, and compared with the state after it. SQL statements do both; only rows with a changed
identity are compared by Python.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from msgspec import Struct

from aptui.store.db.schema import CATALOG_STATE, uuid_text, wire_asset_id
from aptui.store.db.statements import query_ids

if TYPE_CHECKING:
    import sqlite3

    from aptui.core.messages import Rows


# `TouchedRows` finds the existing rows that an answer of the core changes, before the answer is applied. `product_links` uses the
# same rows.

_CHANGING = ("drop_source", "drop_job", "drop_products", "drop_product", "put_source", "put_product", "put_link")
_OF_JOBS = "SELECT p.ProductID FROM json_each(?) k CROSS JOIN Products p ON p.JobPK = k.value"
_OF_SOURCES = """SELECT p.ProductID FROM json_each(?) k CROSS JOIN Jobs j ON j.SourcePK = k.value
    CROSS JOIN Products p ON p.JobPK = j.JobID"""
_UUIDS_IN = "SELECT s.SourceID, s.SourceGuid FROM json_each(?) k CROSS JOIN Sources s ON s.SourceID = k.value"
_TOPS = "SELECT COALESCE((SELECT MAX(SourceID) FROM Sources), 0), COALESCE((SELECT MAX(ProductID) FROM Products), 0)"


class Touched(Struct):
    """Ids of the existing sources and products that a transaction changes or deletes.

    `are_renamed`: a source gets another UUID. Then all products of this source are included, because their asset ids change.
    """

    sources: list[int]
    products: list[int]
    are_renamed: bool


class TouchedRows:
    """Finds the existing rows that a transaction changes. Rows with ids above the highest id before the transaction are new."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self.source_top = self.product_top = 0
        """Highest id of a source, and highest id of a product, before the transaction."""

    def begin(self) -> None:
        """Begin a transaction."""
        self.source_top, self.product_top = self._database.execute(_TOPS).fetchone()

    def find(self, rows: Rows) -> Touched | None:
        """Return the existing rows that applying `rows` would change, None if it would change neither sources nor products."""
        if not any(rows.get(operation) for operation in _CHANGING):
            return None
        uuids = {row[0]: row[3] for row in rows.get("put_source", ())}
        put = [source for source in _first(rows, "put_source") if source <= self.source_top]
        renamed = [source for source, uuid in query_ids(self._database, _UUIDS_IN, put) if uuid != uuids[source]]
        gone = [source for source in _first(rows, "drop_source") if source <= self.source_top]
        products = _first(rows, "drop_product", "put_product", "put_link")
        for sql, owners in ((_OF_JOBS, _first(rows, "drop_products", "drop_job")), (_OF_SOURCES, [*gone, *renamed])):
            products += (number for (number,) in query_ids(self._database, sql, owners))
        known = [number for number in dict.fromkeys(products) if number <= self.product_top]
        return Touched([*gone, *put], known, bool(renamed))


def _first(rows: Rows, *operations: str) -> list[int]:
    return [cast("int", row[0]) for operation in operations for row in rows.get(operation, ())]


# The class below tracks changes that are not in the catalogs yet (`engine.cache.catalog`).
#
# A mark in the database means that the catalogs are up to date. The first change of a product deletes the mark. Otherwise the mark
# stays in the database when the engine ends, so the next engine need not write the catalogs. Names of changed products are kept in
# memory up to a maximum, so that only the catalog lines of these products are written.

MOST_NAMES = 256
"""Maximum number of changed products for which catalogs are updated line by line.

If more products have changed, the catalogs are written as a whole.
"""
_CATALOG_OPERATIONS = ("drop_source", "drop_job", "drop_products", "drop_product", "put_product", "put_link", "put_legacy_sub_id")
_NAMES = "SELECT p.ProductName FROM json_each(?) k CROSS JOIN Products p ON p.ProductID = k.value"
_NAME = 2
"""Index of the product's name in the parameters of "put_product"."""


class CatalogMark:
    """Removes the mark "catalogs are up to date" in each transaction that changes a product.

    It also counts these transactions, and collects the names of the products.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self.changes = 0
        """Number of transactions that changed products."""
        self.names: set[str] | None = set()
        """Names of the products that changed since the engine started or `put` set the mark; None = too many (`MOST_NAMES`)."""
        self._is_changed = False
        self._may_be_there = True

    def begin(self) -> None:
        """Begin a transaction."""
        self._is_changed = False

    def watch(self, rows: Rows, touched: Touched | None) -> None:
        """Note the products that `rows` will change; called before `rows` are applied."""
        if touched is not None and touched.are_renamed:
            self._note_all()
        if not any(rows.get(operation) for operation in _CATALOG_OPERATIONS):
            return
        self._is_changed = True
        if touched is not None:
            self._note(touched.products)
        if self.names is not None:
            self.names.update(cast("str", row[_NAME]) for row in rows.get("put_product", ()))
            self._limit()

    def end(self, owners: Iterable[int] | None) -> None:
        """Handle the end of a transaction that changed the dependencies of the products `owners`, None = too many to list."""
        if owners is None:
            self._note_all()
        else:
            self._note(list(owners))
        if self._is_changed:
            self.changes += 1
            if self._may_be_there:
                self._database.execute("DELETE FROM aptui_state WHERE key = ?", (CATALOG_STATE,))

    def note_commit(self) -> None:
        """Note that the transaction succeeded."""
        if self._is_changed:
            self._may_be_there = False

    def put(self, text: str) -> None:
        """Store the mark "catalogs are up to date" with the value `text`; called inside a transaction."""
        self._may_be_there = True
        self.names = set()
        self._database.execute("INSERT OR REPLACE INTO aptui_state VALUES (?, ?)", (CATALOG_STATE, text))

    def _note(self, ids: Sequence[int]) -> None:
        if not ids:
            return
        self._is_changed = True
        if len(ids) > MOST_NAMES:
            self.names = None
        if self.names is not None:
            self.names.update(name for (name,) in self._database.execute(_NAMES, (json.dumps(ids),)))
            self._limit()

    def _note_all(self) -> None:
        self._is_changed, self.names = True, None

    def _limit(self) -> None:
        if self.names is not None and len(self.names) > MOST_NAMES:
            self.names = None


MOST_CHANGES = 100_000
"""Number of the newest entries that are always kept."""
TRIMMED_STATE = "changes_trimmed"
"""Key in `aptui_state` that is set when the oldest entries have been dropped. From then on, clients cannot begin at entry 0."""
_NUMBERS_PER_MS = 1_000
"""The first entry number of an engine is the time (milliseconds since 1970) times this factor.

An engine makes fewer entries per millisecond, so the numbers of a later engine are higher. They never reach 2^53.
"""


class ChangeKind(IntEnum):
    """Kind of an entry of the change log.

    An entry is about a changed source, about a changed product, or (`BEGINNING`) about the start of an engine.
    """

    BEGINNING = 0
    SOURCE = 1
    PRODUCT = 2


class _Key(NamedTuple):
    kind: int
    uuid: bytes
    sub_id: int
    name: str


class _Fact(NamedTuple):
    """The values of a source or product. An entry is written if any of them changes; the entry does not contain `links`."""

    asset_type: bytes
    digest: bytes
    size: int
    links: str


class Change(Struct, frozen=True):
    """An entry of the change log, or a line of the listing of all sources and products (then `seq` is 0).

    `name` is the path of a source, or the name of a product with its platform. A removal is published with only kind, id and name.
    `size` is -1 if unknown.
    """

    seq: int
    kind: ChangeKind
    uuid: bytes
    sub_id: int
    name: str
    asset_type: bytes
    digest: bytes
    size: int
    is_removed: bool

    def record(self) -> dict[str, object]:
        """Return the entry as a JSON object."""
        is_product = self.kind is ChangeKind.PRODUCT
        asset_id = wire_asset_id(self.uuid, self.sub_id) if is_product else uuid_text(self.uuid)
        record: dict[str, object] = {"seq": self.seq} if self.seq else {}
        record |= {"kind": self.kind.name.lower(), "id": asset_id, "name": self.name}
        if self.is_removed:
            return {**record, "removed": True}
        record["digest"] = self.digest.hex()
        return {**record, "size": self.size, "type": uuid_text(self.asset_type)} if is_product else record


# ---------------------------------------------------------------------------------------------------------------------- SQL

SOURCE_ENTRY = f"{int(ChangeKind.SOURCE)}, s.SourceGuid, 0, s.SourceName, x'', COALESCE(o.digest, x''), -1"
SOURCES_FROM = "Sources s LEFT JOIN aptui_sources o ON o.source_id = s.SourceID"
PRODUCT_ENTRY = (
    f"{int(ChangeKind.PRODUCT)}, s.SourceGuid, p.SubID, p.ProductName, p.AssetType, COALESCE(o.digest, x''), COALESCE(o.size, -1)"
)
_OF_PRODUCT = """CROSS JOIN Jobs j ON j.JobID = p.JobPK CROSS JOIN Sources s ON s.SourceID = j.SourcePK
    LEFT JOIN aptui_products o ON o.product_id = p.ProductID"""
PRODUCTS_FROM = f"Products p {_OF_PRODUCT}"
_LINKS = """(SELECT json_group_array(json_array(l.kind, l.platform, l.path, l.is_exclusion, hex(l.source_guid), l.sub_id, l.flags))
    FROM aptui_product_links l WHERE l.product_id = p.ProductID)"""
CHANGE_COLUMNS = "kind, uuid, sub_id, name, asset_type, digest, size"
_PUT = f"INSERT INTO aptui_changes({CHANGE_COLUMNS}, is_removed)"
_BEGIN = f"""INSERT INTO aptui_changes(seq, {CHANGE_COLUMNS}, is_removed)
    SELECT MAX(?, COALESCE(MAX(seq), 0) + 1), {int(ChangeKind.BEGINNING)}, x'', 0, '', x'', x'', -1, 0 FROM aptui_changes"""
_TRIM = "DELETE FROM aptui_changes WHERE seq <= (SELECT seq FROM aptui_changes ORDER BY seq DESC LIMIT 1 OFFSET ?)"


class _Subject:
    """The SQL for one kind of row. `before` is a temporary table with the earlier states of the rows that may change."""

    def __init__(self, before: str, row_id: str, entry: str, tables: str, links: str, others: str) -> None:
        """Make the SQL for one kind of row.

        Args:
            tables: the tables to read from, without a condition.
            links: columns that are compared, too, but are not part of an entry.
            others: the SQL condition that the row's content differs from its earlier state; `b` is the alias of table `before`.
        """
        kind, uuid, sub_id, name, *_rest = entry.split(", ")
        is_known = f"{row_id} = b.row_id AND {uuid} = b.uuid AND {sub_id} = b.sub_id AND b.name = {name}"
        read = f"SELECT {row_id}, {entry}, {links} FROM"
        self.before = before
        self.scratch = f"""CREATE TEMP TABLE {before}(row_id INTEGER PRIMARY KEY, kind INTEGER DEFAULT {kind}, uuid BLOB,
            sub_id INTEGER, name TEXT, asset_type BLOB, digest BLOB, size INTEGER, links TEXT)"""
        self.put_new = f"{_PUT} SELECT {entry}, 0 FROM {tables} WHERE {row_id} > ? ORDER BY {row_id}"
        self.new = f"{read} {tables} WHERE {row_id} > ?"
        self.read = f"{read} json_each(?) k CROSS JOIN {tables} WHERE {row_id} = k.value"
        self.put_others = f"""{_PUT} SELECT {entry}, 0 FROM {before} b CROSS JOIN {tables} WHERE {is_known} AND ({others})
            ORDER BY b.row_id"""
        self.renamed = f"SELECT b.* FROM {before} b WHERE NOT EXISTS (SELECT 1 FROM {tables} WHERE {is_known})"
        self.note = f"INSERT OR IGNORE INTO {before} {self.read}"
        self.note_absent = f"INSERT OR IGNORE INTO {before}(row_id) SELECT value FROM json_each(?)"


_SOURCES = _Subject("sources_before", "s.SourceID", SOURCE_ENTRY, SOURCES_FROM, "''", "b.digest <> COALESCE(o.digest, x'')")
_PRODUCTS = _Subject(
    "products_before", "p.ProductID", PRODUCT_ENTRY, PRODUCTS_FROM, _LINKS,
    f"b.asset_type <> p.AssetType OR b.digest <> COALESCE(o.digest, x'') OR b.size <> COALESCE(o.size, -1) OR b.links <> {_LINKS}",
)  # fmt: skip

# ------------------------------------------------------------------------------------------------------------------ writing


class ChangeLog:
    """Writes entries, transaction by transaction, on the writer's connection."""

    def __init__(self, database: sqlite3.Connection, rows: TouchedRows) -> None:
        self._database, self._rows = database, rows
        self._has_begun = False
        """Whether this engine has numbered an entry."""
        self._count = -1
        """Number of entries before this transaction, -1 = not counted."""
        self._added = 0
        self._begins = self._is_touched = False
        self._noted: set[_Subject] = set()
        for subject in (_SOURCES, _PRODUCTS):
            database.execute(subject.scratch)

    def begin(self) -> None:
        """Begin a transaction."""
        self._is_touched = self._begins = False
        self._added = 0

    def watch(self, touched: Touched | None) -> None:
        """Record the earlier state of the rows that are about to be changed."""
        if touched is None:
            return
        if not self._is_touched:
            self._is_touched = True
            self._noted.clear()
            for subject in (_SOURCES, _PRODUCTS):
                self._database.execute(f"DELETE FROM {subject.before}")
        for subject, ids in ((_SOURCES, touched.sources), (_PRODUCTS, touched.products)):
            if ids:
                self._noted.add(subject)
                self._database.execute(subject.note, (json.dumps(ids),))
                self._database.execute(subject.note_absent, (json.dumps(ids),))

    def write_entries(self) -> None:
        """Write the entries of a transaction that is about to end."""
        if not self._is_touched:
            return
        before = self._database.total_changes
        self._begins = not self._has_begun and self._is_anything_new_or_noted()
        if self._begins:
            self._database.execute(_BEGIN, (time.time_ns() // 1_000_000 * _NUMBERS_PER_MS,))
        for subject, top in ((_SOURCES, self._rows.source_top), (_PRODUCTS, self._rows.product_top)):
            renamed = self._put_noted(subject) if subject in self._noted else []
            if renamed:
                self._put_differences(subject, top, renamed)
            else:
                self._database.execute(subject.put_new, (top,))
        self._added = self._database.total_changes - before
        if self._added:
            self._trim()

    def _is_anything_new_or_noted(self) -> bool:
        if self._noted:
            return True
        sql = "SELECT EXISTS (SELECT 1 FROM Sources WHERE SourceID > ?) OR EXISTS (SELECT 1 FROM Products WHERE ProductID > ?)"
        return bool(self._database.execute(sql, (self._rows.source_top, self._rows.product_top)).fetchone()[0])

    def _put_noted(self, subject: _Subject) -> list[tuple[Any, ...]]:
        """Write a log entry for each changed row that kept its key (`_Key`).

        Return the earlier states of rows that were deleted or renamed (have another key now).
        """
        self._database.execute(subject.put_others)
        return self._database.execute(subject.renamed).fetchall()

    def _put_differences(self, subject: _Subject, top: int, renamed: Sequence[tuple[Any, ...]]) -> None:
        """Write log entries for new rows (ids above `top`) and for deleted or renamed rows.

        Args:
            renamed: the earlier states of the deleted or renamed rows.
        """
        before = {key: fact for _row, key, fact in _unpack_rows(renamed) if key.uuid is not None}
        found = self._database.execute(subject.read, (json.dumps([row[0] for row in renamed]),)).fetchall()
        found += self._database.execute(subject.new, (top,))
        after = {key: fact for _row, key, fact in _unpack_rows(found)}
        gone = ((*key, b"", b"", -1, 1) for key in before if key not in after)
        put = ((*key, *fact[:3], 0) for key, fact in after.items() if before.get(key) != fact)
        sql = f"{_PUT} VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        self._database.executemany(sql, gone)
        self._database.executemany(sql, put)

    def _trim(self) -> None:
        """Drop the oldest entries when there are an eighth more entries than `MOST_CHANGES`."""
        if self._count < 0:
            self._count = self._database.execute("SELECT COUNT(*) FROM aptui_changes").fetchone()[0] - self._added
        if self._count + self._added > MOST_CHANGES + MOST_CHANGES // 8:
            self._added -= self._database.execute(_TRIM, (MOST_CHANGES,)).rowcount
            self._database.execute("INSERT OR REPLACE INTO aptui_state VALUES (?, '1')", (TRIMMED_STATE,))

    def note_commit(self) -> None:
        """Handle the commit of the transaction."""
        self._has_begun = self._has_begun or self._begins
        if self._count >= 0:
            self._count += self._added


def _unpack_rows(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[int, _Key, _Fact]]:
    for row_id, kind, uuid, sub_id, name, *fact in rows:
        yield row_id, _Key(kind, uuid, sub_id, name), _Fact(*fact)
