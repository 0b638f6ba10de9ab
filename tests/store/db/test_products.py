"""Recorded products are read back by name and by folder."""

from __future__ import annotations

from tests.store.conftest import DIGEST, Store, job_row, product_row, source_row, two_jobs


def test_products_in_a_folder_exclude_products_in_its_subfolders(store: Store) -> None:
    two_jobs(store)

    archive = store.archive().products

    assert archive.products_in("linux/tex") == {"linux/tex/a": DIGEST}
    assert archive.products_in("linux") == {"linux/text": DIGEST}
    assert archive.products_in("windows") == {}


def test_products_in_a_folder_with_a_non_ascii_name_are_listed(store: Store) -> None:
    store.put(
        put_source=[source_row()], put_job=[job_row()], put_product=[product_row(name="linux/größe/a"), product_row(2, 1, "x")]
    )

    assert store.archive().products.products_in("linux/größe") == {"linux/größe/a": DIGEST}


def test_recorded_digest_of_a_product_is_returned(store: Store) -> None:
    two_jobs(store)

    archive = store.archive().products

    assert archive.product_digest("linux/text") == DIGEST
    assert archive.product_digest("linux/missing") is None


def test_products_below_a_folder_exclude_products_of_neighbour_folders(store: Store) -> None:
    two_jobs(store)

    assert sorted(store.archive().products.products_below("linux/tex")) == ["linux/tex/a", "linux/tex/deep/b"]


def test_cache_folders_are_read_back_with_their_times(store: Store) -> None:
    store.put(put_cache_folder=[("linux/ä", 1 << 60)])

    assert store.archive().products.cache_folders() == {"linux/ä": 1 << 60}
