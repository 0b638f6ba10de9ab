"""Queries of the change feed: the last number, entries since one, what is there now; `db.change_log` writes it.

Tests: `tests/store/db/test_change_log.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aptui.store.queries.reader import Reader

from aptui.store.db.change_log import (
    CHANGE_COLUMNS,
    PRODUCT_ENTRY,
    PRODUCTS_FROM,
    SOURCE_ENTRY,
    SOURCES_FROM,
    TRIMMED_STATE,
    Change,
    ChangeKind,
)

_LIST_SOURCES = f"SELECT s.SourceID, {SOURCE_ENTRY} FROM {SOURCES_FROM} WHERE s.SourceID > ? ORDER BY s.SourceID LIMIT ?"
_LIST_PRODUCTS = f"SELECT p.ProductID, {PRODUCT_ENTRY} FROM {PRODUCTS_FROM} WHERE p.ProductID > ? ORDER BY p.ProductID LIMIT ?"


# ------------------------------------------------------------------------------------------------------------------ reading


def latest(database: Reader) -> int:
    """Return the number of the last entry, 0 where there is none."""
    return int(database.ask("SELECT COALESCE(MAX(seq), 0) FROM aptui_changes").fetchone()[0])


def is_known(database: Reader, since: int) -> bool:
    """Whether every entry since `since` is there; 0 is the time before the first one."""
    if since == 0:
        return database.state(TRIMMED_STATE) is None
    return database.ask("SELECT 1 FROM aptui_changes WHERE seq = ?", (since,)).fetchone() is not None


def entries(database: Reader, since: int, limit: int = -1) -> Iterator[Change]:
    """Yield the entries after `since` in order, `limit` at most (-1 = all)."""
    sql = f"SELECT seq, {CHANGE_COLUMNS}, is_removed FROM aptui_changes WHERE seq > ? AND kind <> 0 ORDER BY seq LIMIT ?"
    return map(_change, database.ask(sql, (since, limit)))


def listing(database: Reader, kind: ChangeKind, after: int = 0, limit: int = -1) -> Iterator[tuple[int, Change]]:
    """Yield (row id, line) of the sources or products as they are now, with a row id above `after`; at most `limit` (-1 = all)."""
    sql = _LIST_SOURCES if kind is ChangeKind.SOURCE else _LIST_PRODUCTS
    for row_id, *row in database.ask(sql, (after, limit)):
        yield row_id, _change((0, *row, 0))


def _change(row: tuple[Any, ...]) -> Change:
    seq, kind, uuid, sub_id, name, asset_type, digest, size, is_removed = row
    return Change(seq, ChangeKind(kind), uuid, sub_id, name, asset_type, digest, size, bool(is_removed))
