"""Changes that the catalogs (`engine.cache.catalog`) do not have yet.

A mark in the database means that the catalogs are up to date. The first change of a product deletes it. The mark
outlives the engine. Names of changed products are kept in memory while they are few, so that only their lines are written.

Tests: `tests/engine/cache/test_catalog.py`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from aptui.core.messages import Rows

CATALOG_STATE = "catalogs"
"""Key in `aptui_state`: the up-to-date catalogs, as `engine.cache.catalog` describes them; absent = out of date."""
MOST_NAMES = 256
"""Maximum number of changed products for which only their lines are written; for more, whole catalogs are written."""
_CHANGING = ("drop_source", "drop_job", "drop_products", "drop_product", "put_product", "put_link", "put_legacy_sub_id")
# Sources are saved again and again; only another UUID changes what a catalog says.
_TRIGGER = """CREATE TEMP TRIGGER aptui_other_identity AFTER UPDATE OF SourceGuid ON main.Sources
    WHEN OLD.SourceGuid <> NEW.SourceGuid BEGIN SELECT aptui_products_changed(); END"""
_OF_JOB = "SELECT ProductName FROM Products WHERE JobPK = ?"
_OF_SOURCE = "SELECT p.ProductName FROM Jobs j CROSS JOIN Products p ON p.JobPK = j.JobID WHERE j.SourcePK = ?"
_OF_PRODUCT = "SELECT ProductName FROM Products WHERE ProductID = ?"
_DROPS = (("drop_products", _OF_JOB), ("drop_product", _OF_PRODUCT), ("drop_job", _OF_JOB), ("drop_source", _OF_SOURCE))
_NAME = 2
"""Column of "put_product"."""


class CatalogMark:
    """Removes the mark in the transaction that changes a product; counts these transactions, and keeps the products' names."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self.changes = 0
        """Number of transactions that changed products."""
        self.names: set[str] | None = set()
        """The products that have changed since the mark was set; None = too many to say."""
        self._is_changed = False
        self._may_be_there = True
        database.create_function("aptui_products_changed", 0, self._note_all)
        database.execute(_TRIGGER)

    def begin(self) -> None:
        """Begin a transaction."""
        self._is_changed = False

    def watch(self, rows: Rows) -> None:
        """Note which products `rows`, which are about to be applied, change."""
        if not any(rows.get(operation) for operation in _CHANGING):
            return
        self._is_changed = True
        for operation, sql in _DROPS:
            self._note(sql, [row[0] for row in rows.get(operation, ())])
        if self.names is not None:
            self.names.update(cast("str", row[_NAME]) for row in rows.get("put_product", ()))
            self._limit()

    def settle(self, owners: Iterable[int] | None) -> None:
        """Handle the end of a transaction that changed the dependencies of these products, None = of too many to list."""
        if owners is None:
            self._note_all()
        else:
            self._note(_OF_PRODUCT, list(owners))
        if self._is_changed:
            self.changes += 1
            if self._may_be_there:
                self._database.execute("DELETE FROM aptui_state WHERE key = ?", (CATALOG_STATE,))

    def note_commit(self) -> None:
        """The transaction succeeded."""
        if self._is_changed:
            self._may_be_there = False

    def put(self, text: str) -> None:
        """Set the mark, inside a transaction."""
        self._may_be_there = True
        self.names = set()
        self._database.execute("INSERT OR REPLACE INTO aptui_state VALUES (?, ?)", (CATALOG_STATE, text))

    def _note(self, sql: str, ids: list[object] | list[int]) -> None:
        if not ids:
            return
        self._is_changed = True
        if len(ids) > MOST_NAMES:
            self.names = None
        if self.names is not None:
            self.names.update(name for key in ids for (name,) in self._database.execute(sql, (key,)))
            self._limit()

    def _note_all(self) -> None:
        self._is_changed, self.names = True, None

    def _limit(self) -> None:
        if self.names is not None and len(self.names) > MOST_NAMES:
            self.names = None
