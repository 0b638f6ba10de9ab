"""A product keeps its row when it is made again, and unchanged rows are not written.

The tables have the same content as after deleting all rows of a job and inserting them again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aptui.core.model import LinkKind
from aptui.store.db import writer

from ..conftest import Store, job_row, source_row

Rows = dict[str, list[tuple[object, ...]]]
PRODUCTS = """SELECT p.ProductID, p.ProductName, p.SubID, o.digest FROM Products p
JOIN aptui_products o ON o.product_id = p.ProductID ORDER BY p.ProductID"""


def product(product_id: int, name: str, digest: bytes = b"1", sub_id: int = 0, job_id: int = 1) -> tuple[object, ...]:
    return (product_id, job_id, name, sub_id, b"T" * 16, -int(digest), 1, digest, len(digest))


def link(product_id: int, path: str, at: int = 0, job_id: int = 1) -> tuple[object, ...]:
    return (product_id, job_id, at, int(LinkKind.PRODUCT_FILE), "linux", path, None, 0, bytes(16), 0, 2)


def again(*products: tuple[object, ...], **more: list[tuple[object, ...]]) -> Rows:
    """Return the rows of a run with these products."""
    return {"drop_products": [(1,)], "put_product": list(products), **more}


@pytest.fixture
def made(store: Store) -> Store:
    """A job with two products; one product depends on the other."""
    store.put(put_source=[source_row()], put_job=[job_row()])
    store.put(
        put_product=[product(1, "linux/a"), product(2, "linux/b", sub_id=1)], put_link=[link(1, "b")],
        put_legacy_sub_id=[(1, 1, 77)], put_facts=[(1, 1, 4, 4, 0, 0, 0.5, "png", "")],
    )  # fmt: skip
    return store


def written(store: Store, rows: Rows) -> int:
    """Save `rows` in the database and return how many rows SQLite wrote."""
    before = store.writer._database.total_changes
    store.put(**rows)
    return store.writer._database.total_changes - before


DECLARED: dict[str, Any] = {
    "put_link": [link(8, "b")], "put_legacy_sub_id": [(8, 1, 77)], "put_facts": [(8, 1, 4, 4, 0, 0, 0.5, "png", "")],
}  # fmt: skip


def test_equal_products_are_not_written_again(made: Store) -> None:
    assert written(made, again(product(8, "linux/a"), product(9, "linux/b", sub_id=1), **DECLARED)) == 0

    assert made.rows(PRODUCTS) == [(1, "linux/a", 0, b"1"), (2, "linux/b", 1, b"1")]
    assert made.writer.product_changes()[0] == 1


def test_changed_products_keep_their_ids_and_write_few_rows(made: Store) -> None:
    rows = again(product(8, "linux/a", b"22"), product(9, "linux/b", b"22", 1), **DECLARED)

    # For each product: two table rows (Products, aptui_products), one entry of the change log, and one row of a temporary table.
    assert written(made, rows) == 2 * (2 + 1 + 1)

    assert made.rows(PRODUCTS) == [(1, "linux/a", 0, b"22"), (2, "linux/b", 1, b"22")]
    assert made.rows("SELECT ProductPK FROM ProductDependencies") == [(1,)]


def test_product_with_another_sub_id_or_name_gets_a_new_row(made: Store) -> None:
    made.put(**again(product(8, "linux/a", sub_id=5), product(9, "linux/b", sub_id=1), product(10, "linux/B", sub_id=1)))

    assert made.rows(PRODUCTS) == [(2, "linux/b", 1, b"1"), (8, "linux/a", 5, b"1"), (10, "linux/B", 1, b"1")]
    assert [made.count(table) for table in ("aptui_product_links", "ProductDependencies", "LegacySubIDs", "aptui_facts")] == [0] * 4


@pytest.mark.parametrize("less", sorted(DECLARED))
def test_rows_that_a_product_no_longer_declares_are_deleted(made: Store, less: str) -> None:
    declared = {operation: rows for operation, rows in DECLARED.items() if operation != less}
    tables = {"put_link": "aptui_product_links", "put_legacy_sub_id": "LegacySubIDs", "put_facts": "aptui_facts"}

    made.put(**again(product(8, "linux/a"), product(9, "linux/b", sub_id=1), **declared))

    assert {table: made.count(table) for table in tables.values()} == {
        table: int(operation != less) for operation, table in tables.items()
    }
    assert made.count("ProductDependencies") == int(less != "put_link")


def test_new_dependencies_of_a_product_replace_its_earlier_ones(made: Store) -> None:
    made.put(**again(product(8, "linux/a"), product(9, "linux/b", sub_id=1), put_link=[link(8, "nowhere")]))

    assert made.rows("SELECT product_id, path FROM aptui_product_links") == [(1, "nowhere")]
    assert made.rows("SELECT ProductPK, UnresolvedPath FROM ProductDependencies") == [(1, "nowhere")]


def test_new_run_deletes_rows_of_missing_dependencies_and_keeps_the_scan_record(made: Store) -> None:
    found = (1, "scanner", "1", "", bytes(16), 0, "what", "when", 5, "linux/a", b"1")
    made.put(put_missing=[found], put_missing_scan=[(1, b"1", "terms", b"", "linux/a")])

    made.put(**again(product(8, "linux/a"), product(9, "linux/b", sub_id=1), **DECLARED))

    assert made.count("MissingProductDependencies") == 0
    assert made.rows("SELECT product_id FROM aptui_missing_scans") == [
        (1,)
    ]  # the scan record stays valid, because the bytes are unchanged


def test_product_that_moves_to_another_job_gets_a_new_row(made: Store) -> None:
    made.put(put_job=[job_row(2, job_key="Other")])

    made.put(
        drop_products=[(1,), (2,)],
        put_product=[product(8, "linux/a"), product(9, "linux/b", sub_id=1, job_id=2)],
    )

    assert made.rows("SELECT ProductID, JobPK, ProductName FROM Products") == [(1, 1, "linux/a"), (9, 2, "linux/b")]


def test_reuse_of_rows_does_not_change_the_given_rows(made: Store) -> None:
    rows = again(product(8, "linux/a", b"22"), product(9, "linux/c"), **DECLARED)
    copied_rows = {operation: list(listed) for operation, listed in rows.items()}

    made.put(**rows)

    assert rows == copied_rows


# ---------------------------------------------------------------------- same content as after deleting and inserting all rows

_bytes = st.sampled_from([b"1", b"2"])
_made = st.lists(
    st.tuples(
        st.sampled_from("abc"), st.integers(0, 1), _bytes, st.sampled_from(["", "a", "c", "z", "*"]), st.booleans(), st.booleans()
    ),
    max_size=4, unique_by=lambda one: one[:2],
)  # fmt: skip
_runs = st.lists(st.tuples(st.integers(1, 2), _made), min_size=1, max_size=3)
_SEEN = (
    """SELECT JobPK, ProductName, SubID, AssetType, LegacyGuid, Hash, Flags, digest, size
    FROM Products JOIN aptui_products ON product_id = ProductID""",
    "SELECT JobPK, ProductName, p.SubID, l.SubID FROM LegacySubIDs l JOIN Products p ON ProductID = ProductPK",
    "SELECT JobPK, ProductName, SubID, width, seconds, format FROM aptui_facts JOIN Products ON ProductID = product_id",
    "SELECT JobPK, ProductName, p.SubID, at, kind, path, prefix FROM aptui_product_links JOIN Products p ON ProductID = product_id",
    """SELECT JobPK, ProductName, SubID, DependencySourceGuid, DependencySubID, Platform, DependencyFlags, UnresolvedPath,
    UnresolvedDependencyType, FromAssetId FROM ProductDependencies JOIN Products ON ProductID = ProductPK""",
    "SELECT kind, uuid, sub_id, name, asset_type, digest, size, is_removed FROM aptui_changes WHERE kind > 0",
)


def rows_of(runs: list[tuple[int, list[tuple[str, int, bytes, str, bool, bool]]]], first_id: int) -> list[Rows]:
    """Return the batches of a transaction in which these jobs ran."""
    found = []
    for job_id, products in runs:
        rows: Rows = {"drop_products": [(job_id,)], "put_job": [job_row(job_id, job_id)]}
        for name, sub_id, digest, path, has_former, has_facts in products:
            first_id += 1
            rows.setdefault("put_product", []).append(product(first_id, f"linux/{name}{job_id}", digest, sub_id, job_id))
            if path:
                one = link(first_id, path if path == "*" else f"{path}{3 - job_id}", job_id=job_id)
                rows.setdefault("put_link", []).append((*one[:6], "" if path == "*" else None, *one[7:]))
            if has_former:
                rows.setdefault("put_legacy_sub_id", []).append((first_id, job_id, 9))
            if has_facts:
                rows.setdefault("put_facts", []).append((first_id, job_id, len(digest), 1, 1, 1, 0.5, "png", ""))
        found.append(rows)
    return found


def transact(store: Store, batches: list[Rows]) -> None:
    """Apply several batches in one transaction."""
    store.writer._ask(lambda: store.writer._transact(batches, durable=False))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(transactions=st.lists(_runs, min_size=1, max_size=5))
def test_reused_rows_have_the_same_content_as_deleted_and_inserted_rows(
    make_store: Callable[[], Store], transactions: list[list[tuple[int, list[tuple[str, int, bytes, str, bool, bool]]]]]
) -> None:
    seen = []
    for keep in (writer.keep_products, lambda _database, rows: rows):
        store = make_store()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(writer, "keep_products", keep)
            store.put(put_source=[source_row(1, "one"), source_row(2, "two")], put_job=[job_row(1, 1), job_row(2, 2)])
            for at, runs in enumerate(transactions):
                batches = rows_of(runs, 100 * at)
                transact(store, batches)
        seen.append([sorted(store.rows(sql), key=repr) for sql in _SEEN])
        store.close()
    assert seen[0] == seen[1]
