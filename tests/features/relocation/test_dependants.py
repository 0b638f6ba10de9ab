"""Dependants of sources by path, by UUID and by product, and the sources' own dependencies."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from aptui.core.model import EdgeKind
from aptui.features.relocation.dependants import dependants_of, needs_of, sources_in
from tests.store.conftest import Store, edge_row, job_row, source_row, uuid_of


def filled(store: Store) -> Store:
    names = ["Ä/Rock.png", "a.scene", "b.scene", "c.scene"]
    store.put(
        put_source=[source_row(at, name, store.scan_folder) for at, name in enumerate(names, 1)],
        put_job=[job_row(at, at) for at in range(1, 5)],
        put_product=[(at, at, f"linux/{names[at - 1].lower()}", at, b"T" * 16, 0, 1, b"D" * 32, 1) for at in range(1, 5)],
        put_edge=[
            edge_row(EdgeKind.PATH, "ä/rock.png", source_id=2),
            edge_row(EdgeKind.UUID, uuid_of(1).hex(), source_id=3),
            edge_row(EdgeKind.WILDCARD, "ä/*.png", source_id=4),
            edge_row(EdgeKind.PATH, "nowhere.png", source_id=2),
        ],
    )
    with closing(sqlite3.connect(store.path)) as database:
        database.execute(
            "INSERT INTO ProductDependencies(ProductPK, DependencySourceGuid, DependencySubID, Platform, DependencyFlags,"
            " UnresolvedPath, FromAssetId) VALUES (4, ?, 1, 'linux', 0, '', 1), (1, ?, 1, 'linux', 0, '', 1)",
            (uuid_of(1), uuid_of(1)),
        )
        database.commit()
    return store


def test_sources_of_one_scan_folder_with_their_products(store: Store) -> None:
    reader = filled(store).reader()

    known = sources_in(reader, "project", "/moved/since", ["Ä/Rock.png", "ä/rock.png", "none.png"])

    assert list(known) == ["Ä/Rock.png"]
    assert [product.name for product in known["Ä/Rock.png"].products] == ["linux/ä/rock.png"]
    assert sources_in(reader, "another", "/somewhere", ["a.scene"]) == {}


def test_dependants_by_path_uuid_and_product(store: Store) -> None:
    reader = filled(store).reader()

    found = dependants_of(reader, sources_in(reader, "project", "", ["Ä/Rock.png"]).values())

    assert {(each.path, each.kind, each.by_uuid, each.needs) for each in found[1]} == {
        ("a.scene", "source", False, ""),
        ("b.scene", "source", True, ""),
        ("c.scene", "product", True, "linux/ä/rock.png"),
    }


def test_path_dependencies_keep_their_spelling(store: Store) -> None:
    reader = filled(store).reader()

    assert needs_of(reader, [2, 3, 4]) == {2: ["Ä/Rock.png"]}
