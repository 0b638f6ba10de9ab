"""Products that a job makes again keep their rows, and with them the ids by which others know them.

The core says of a run that what its job had goes and what it made comes. Here that becomes what differs: a product whose name and
sub id stay keeps its row, as in the reference program (`AssetDatabaseConnection::SetProduct`), and where it is as it was nothing
is written. To delete a row and insert it again costs every index of Products twice, and a look at each table that refers to it.

Tests: `tests/store/db/test_reused_rows.py`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import cast

from aptui.core.messages import Rows
from aptui.store.db.schema import has_rows
from aptui.store.db.statements import id_list

_Row = tuple[object, ...]
_PRODUCTS = """SELECT p.JobPK, p.ProductName, p.SubID, p.ProductID, p.AssetType, p.Hash, p.Flags, o.digest, o.size
FROM json_each(?) k CROSS JOIN Products p ON p.JobPK = k.value LEFT JOIN aptui_products o ON o.product_id = p.ProductID
ORDER BY p.ProductID"""
_DECLARED = {
    "put_link": (
        "aptui_product_links",
        """SELECT l.product_id, l.at, l.kind, l.platform, l.path, l.prefix, l.is_exclusion, l.source_guid, l.sub_id, l.flags
        FROM json_each(?) k CROSS JOIN aptui_product_links l ON l.product_id = k.value""",
    ),
    "put_legacy_sub_id": (
        "LegacySubIDs",
        "SELECT l.ProductPK, l.SubID FROM json_each(?) k CROSS JOIN LegacySubIDs l ON l.ProductPK = k.value",
    ),
    "put_facts": (
        "aptui_facts",
        """SELECT f.product_id, f.width, f.height, f.triangles, f.rate, f.seconds, f.format
        FROM json_each(?) k CROSS JOIN aptui_facts f ON f.product_id = k.value""",
    ),
}
"""{operation: (its table, SQL of what is there, in the order of its parameters without the job)}."""


def keep_products(database: sqlite3.Connection, rows: Rows) -> Rows:
    """Return `rows`, which are about to be applied, with what they drop and put again as changes of the rows that are there."""
    put = rows.get("put_product", ())
    again = {row[0] for row in rows.get("drop_products", ())} & {row[1] for row in put}
    if not again:
        return rows
    there: dict[_Row, tuple[int, _Row]] = {}
    gone: list[int] = []
    for job_id, name, sub_id, product_id, *columns in _query_ids(database, _PRODUCTS, again):
        if there.setdefault((job_id, name, sub_id), (product_id, tuple(columns)))[0] != product_id:
            gone.append(product_id)
    new_ids: dict[object, int] = {}
    """{id in `rows`: that of the row which stays}."""
    equal: set[int] = set()
    for row in put:
        product_id, before = there.pop(row[1:4], (0, ()))
        if product_id:
            new_ids[row[0]] = product_id
            if row[4:] == before:
                equal.add(product_id)
    gone += [product_id for product_id, _before in there.values()]
    others = _declaring_others(database, rows, new_ids)
    changed = {
        **rows,
        "drop_products": [row for row in rows["drop_products"] if row[0] not in again],
        "drop_product": [*rows.get("drop_product", ()), *((product_id,) for product_id in gone)],
        "drop_declared": [*rows.get("drop_declared", ()), *((product_id,) for product_id in others)],
        "put_product": list(_move_rows(put, new_ids, equal - others)),
    }
    for operation in _DECLARED.keys() & rows.keys():
        changed[operation] = list(_move_rows(rows[operation], new_ids, set(new_ids.values()) - others))
    if has_rows(database, "MissingProductDependencies"):  # what a scan found was in what the last run made
        changed["drop_missing"] = [*rows.get("drop_missing", ()), *((product_id,) for product_id in new_ids.values())]
    return changed


def _move_rows(rows: Iterable[_Row], new_ids: Mapping[object, int], left: Collection[int]) -> Iterator[_Row]:
    """Yield rows under the ids that stay, without those of the products in `left`."""
    for row in rows:
        product_id = new_ids.get(row[0], row[0])
        if product_id not in left:
            yield (product_id, *row[1:])


def _declaring_others(database: sqlite3.Connection, rows: Rows, new_ids: Mapping[object, int]) -> set[int]:
    """Return the kept products that declare something else than before."""
    before: set[_Row] = set()
    now: set[_Row] = set()
    for operation, (table, sql) in _DECLARED.items():
        if has_rows(database, table):
            before.update((*row, operation) for row in _query_ids(database, sql, new_ids.values()))
        now.update((new_ids[row[0]], *row[2:], operation) for row in rows.get(operation, ()) if row[0] in new_ids)
    return {cast("int", row[0]) for row in before ^ now}


def _query_ids(database: sqlite3.Connection, sql: str, ids: Iterable[object]) -> sqlite3.Cursor:
    return database.execute(sql, (id_list(ids),))
