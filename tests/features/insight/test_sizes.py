"""Total product size of each group, for example of each builder, and the growth of this size."""

from __future__ import annotations

import pytest

from aptui.features.insight.size import SizeBy, add_growth, folder_of, sizes
from aptui.store.queries.session_history import session_named
from tests.features.insight.test_comparing import NOW
from tests.store.conftest import BUILDER, Store, job_row, product_row, source_row
from tests.store.queries.test_session_history import run_row, session_row


def product(store: Store, number: int, source: str, name: str, size: int, run_key: int = 1) -> None:
    store.put(
        put_source=[source_row(number, source)],
        put_job=[job_row(number, number, run_key=run_key)],
        put_product=[(*product_row(number, number, name)[:-1], size)],
        put_run=[run_row(number, run_key)],
    )


@pytest.fixture
def filled(store: Store) -> Store:
    product(store, 1, "Textures/stone/a.png", "linux/textures/stone/a.DDS", 500, 1)
    product(store, 2, "textures/b.png", "linux/textures/b.dds", 30, 2)
    product(store, 3, "c.txt", "linux/c", 7, 3)
    return store


@pytest.mark.parametrize(
    ("by", "depth", "found"),
    [
        (SizeBy.FOLDER, 1, [("Textures", 1, 500), ("textures", 1, 30), (".", 1, 7)]),
        (SizeBy.FOLDER, 2, [("Textures/stone", 1, 500), ("textures", 1, 30), (".", 1, 7)]),
        (SizeBy.TYPE, 1, [(".dds", 2, 530), ("(none)", 1, 7)]),
        (SizeBy.BUILDER, 1, [("image", 3, 537)]),
        (SizeBy.PLATFORM, 1, [("linux", 3, 537)]),
    ],
)
def test_sizes_are_grouped_by_folder_type_builder_or_platform(
    filled: Store, by: SizeBy, depth: int, found: list[tuple[str, int, int]]
) -> None:
    names = {BUILDER: "image"}

    assert [(row.name, row.count, row.size) for row in sizes(filled.reader(), by, names.__getitem__, depth)] == found


def test_growth_of_product_groups_since_a_session_is_computed(filled: Store) -> None:
    filled.put(put_session=[session_row(NOW - 9000, NOW - 5000)])
    product(filled, 2, "textures/b.png", "linux/textures/b.dds", 1030, 12)
    filled.put(drop_source=[(3,)])
    product(filled, 4, "new/d.txt", "linux/d", 100, 14)
    reader = filled.reader()
    since = session_named(reader, "1")

    rows = add_growth(reader, sizes(reader, SizeBy.FOLDER, str, 1), SizeBy.FOLDER, str, 1, since)

    assert [(row.name, row.size, row.grew) for row in rows] == [
        ("textures", 1030, 1000), ("new", 100, 100), (".", 0, -7), ("Textures", 500, 0),
    ]  # fmt: skip


def test_growth_of_sizes_ignores_jobs_deleted_before_the_session(filled: Store) -> None:
    filled.put(put_session=[session_row(NOW - 9000, NOW - 5000)])
    filled.put(drop_source=[(1,)])
    filled.put(put_session=[session_row(NOW - 4000, NOW + 3_600_000)])
    reader = filled.reader()

    rows = add_growth(reader, sizes(reader, SizeBy.PLATFORM, str, 1), SizeBy.PLATFORM, str, 1, session_named(reader, "2"))

    assert [(row.name, row.grew) for row in rows] == [("linux", 0)]


def test_empty_database_has_no_sizes(store: Store) -> None:
    assert sizes(store.reader(), SizeBy.TYPE, str) == []


@pytest.mark.parametrize(("source", "depth", "folder"), [("a.txt", 3, "."), ("a/b/c.txt", 1, "a"), ("a/b/c.txt", 9, "a/b")])
def test_sources_are_grouped_by_their_first_folders(source: str, depth: int, folder: str) -> None:
    assert folder_of(source, depth) == folder
