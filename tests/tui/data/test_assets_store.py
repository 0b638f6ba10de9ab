"""Trees of sources and products, searches in them, and the facts about one source or product."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aptui.core.model import EdgeKind
from aptui.store.db.schema import uuid_text
from aptui.store.jobs.filter import FilterError
from aptui.store.queries import assets, dependencies, metrics
from aptui.store.queries.metrics import Amount, Spent
from aptui.store.queries.reader import Reader
from aptui.tui.data.assets_store import AssetModel, AssetsStore, AssetTree, FilesRead, Kind, build_tree
from tests.store.conftest import BUILDER, Store, analysis_row, edge_row, job_row, source_row, uuid_of

from ..database import database

PATHS = [
    "b.txt",
    "Textures/rock.png",
    "textures/Stone/wall.png",
    "a.txt",
    "textures/apple.PNG",
    "mesh/x.fbx",
    "Textures/stone/floor.png",
]


def tree_of(paths: list[str], folder_keys: dict[str, int] | None = None) -> AssetTree:
    count = len(paths)
    files = FilesRead(paths, np.arange(1, count + 1), np.arange(count))
    return build_tree(Kind.SOURCES, files, {} if folder_keys is None else folder_keys)


def drawn(tree: AssetTree, nodes: object = None) -> list[str]:
    wanted = range(len(tree)) if nodes is None else nodes
    return [f"{'  ' * int(tree.depth[node])}{tree.name(node)}{'/' if tree.is_folder(node) else ''}" for node in wanted]  # type: ignore[attr-defined]


@pytest.fixture
def tree() -> AssetTree:
    return tree_of(PATHS)


def test_folders_come_before_files_and_case_does_not_matter(tree: AssetTree) -> None:
    assert drawn(tree) == [
        "mesh/", "  x.fbx", "Textures/", "  Stone/", "    floor.png", "    wall.png", "  apple.PNG", "  rock.png", "a.txt", "b.txt",
    ]  # fmt: skip
    assert tree.file_count == 7


PARTS = st.text("aAbB", min_size=1, max_size=2)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(PARTS, min_size=1, max_size=4).map("/".join), max_size=25))
def test_tree_of_random_paths_is_valid(paths: list[str]) -> None:
    tree = tree_of(paths)

    files = [node for node in range(len(tree)) if not tree.is_folder(node)]
    assert sorted(tree.path(node).lower() for node in files) == sorted(path.lower() for path in paths)
    assert sorted(tree.key(node) for node in files) == list(range(1, len(paths) + 1))
    for node in range(len(tree)):
        parent, end = int(tree.parent[node]), int(tree.end[node])
        assert tree.depth[node] == (tree.depth[parent] + 1 if parent >= 0 else 0)
        assert parent < node < end <= len(tree)
        assert parent < 0 or end <= tree.end[parent]
        assert tree.node_of(tree.key(node)) == node
        assert tree.folders.get(tree.path(node).lower(), -1) == node or not tree.is_folder(node)


def test_node_keys_stay_the_same_when_a_tree_is_rebuilt() -> None:
    keys: dict[str, int] = {}
    before = tree_of(PATHS, keys)
    after = tree_of([*PATHS, "aaa/new.txt"], keys)

    by_path = {before.path(node).lower(): before.key(node) for node in range(len(before))}
    assert {path: key for path, key in by_path.items() if after.path(after.node_of(key) or 0).lower() != path} == {}
    assert before.node_of(99) is None
    assert before.node_of(-99) is None


def test_search_finds_hits_and_their_folders(tree: AssetTree) -> None:
    passing = tree.with_above_and_below(tree.search("wall"))

    assert drawn(tree, np.flatnonzero(passing)) == ["Textures/", "  Stone/", "    wall.png"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 10), ("wall", 1), ("stone", 1), ("textures", 1), (r"\.png$", 4), ("PNG", 4), ("(?-i)PNG", 1),
        ("txt !^a", 1), ("textures/.*png$", 4),
        ("^mesh/", 1), ("nothing", 0),
    ],
)  # fmt: skip
def test_search_with_a_slash_matches_paths(tree: AssetTree, text: str, expected: int) -> None:
    assert int(tree.search(text).sum()) == expected


def test_search_for_products_ignores_case() -> None:
    products = tree_of(["linux/quitonsuccess.lua", "linux/other.lua"])

    assert int(products.search("QuitOnSuccess").sum()) == 1
    assert int(products.search("Linux/Quit").sum()) == 1


def test_search_hit_on_a_folder_includes_its_content(tree: AssetTree) -> None:
    assert int(tree.with_above_and_below(tree.search("stone")).sum()) == 4


def test_invalid_search_raises_filter_error(tree: AssetTree) -> None:
    with pytest.raises(FilterError):
        tree.search("a(")


# ------------------------------------------------------------------------------------------------------------ the database

MESH = b"M" * 16


def product(number: int, job: int, name: str, sub_id: int = 0, flags: int = 1, size: int = 10) -> tuple[object, ...]:
    return (number, job, name, sub_id, b"T" * 16, 0, flags, b"D" * 32, size)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with database(tmp_path) as made:
        ids, _ = made.writer.sync_scan_folders(
            [("project", str(tmp_path), 0), ("intermediates", f"{tmp_path}/Intermediate Assets", -1)]
        )
        made.put(
            put_source=[
                source_row(1, "textures/rock.png"), source_row(2, "mesh/rock.fbx"),
                source_row(3, "mesh/rock.mat", ids["intermediates"]),
                source_row(4, "all.list"),
            ],
            put_analysis=[analysis_row(1, duration_ms=30), analysis_row(2, builder=MESH, duration_ms=50)],
            put_job=[
                job_row(1, 1, duration_ms=100), job_row(2, 1, platform="server", duration_ms=300, completed_ms=9000),
                job_row(3, 2, builder=MESH, platform="common", duration_ms=20), job_row(4, 4, state="failed", status=2),
            ],
            put_product=[
                product(1, 1, "linux/textures/rock.dds", size=100), product(2, 2, "server/textures/rock.dds", size=200),
                product(3, 3, "common/mesh/rock.mat", flags=2), product(4, 3, "common/mesh/rock.model", 7, size=50),
            ],
            put_edge=[
                edge_row(EdgeKind.PATH, "Textures/rock.png", source_id=2),
                edge_row(EdgeKind.WILDCARD, "*.png", bits=5, source_id=4),
                edge_row(EdgeKind.UUID, uuid_of(2).hex(), source_id=4),
                edge_row(EdgeKind.JOB, "mesh/rock.fbx", bits=2, source_id=1),
                edge_row(EdgeKind.PATH, "nobody.txt", source_id=2),
            ],
        )  # fmt: skip
        with closing(sqlite3.connect(made.path, isolation_level=None)) as connection:
            connection.executemany(
                "INSERT INTO ProductDependencies("
                "ProductPK, DependencySourceGuid, DependencySubID, Platform, DependencyFlags, UnresolvedPath)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (4, uuid_of(1), 0, "linux", 1, ""), (1, uuid_of(2), 7, "common", 0, ""), (4, uuid_of(9), 3, "linux", 0, ""),
                    (4, bytes(16), 0, "linux", 0, "textures/*.dds"),
                ],
            )  # fmt: skip
            connection.executemany(
                "INSERT INTO MissingProductDependencies("
                "ProductPK, ScannerId, ScannerVersion, SourceFileFingerprint, DependencySourceGuid, DependencySubId,"
                " MissingDependencyString, LastScanTime, ScanTimeSecondsSinceEpoch) VALUES (4, '', '', '', ?, ?, ?, '', ?)",
                [(uuid_of(1), 0, "rock.dds", 50), (uuid_of(8), 1, "gone.dds", 60), (bytes(16), 0, "", 70)],
            )
        yield made


@pytest.fixture
def reader(store: Store) -> Reader:
    return store.reader()


def test_source_details_contain_products_dependencies_jobs_and_uuid(reader: Reader) -> None:
    details = assets.source_details(reader, 1)

    assert details is not None
    assert [row.name for row in details.products] == ["linux/textures/rock.dds", "server/textures/rock.dds"]
    assert [(item.text, item.kind, item.source_id) for item in details.out] == [("mesh/rock.fbx", "job", 2)]
    assert [(item.text, item.kind) for item in details.incoming] == [("all.list", "wildcard"), ("mesh/rock.fbx", "source")]
    assert (len(details.jobs), details.analysis_ms, details.made_from, details.uuid) == (2, 30, None, uuid_text(uuid_of(1)))
    assert assets.source_details(reader, 99) is None


def test_unresolved_dependencies_are_shown_as_written(reader: Reader) -> None:
    mesh, everything = assets.source_details(reader, 2), assets.source_details(reader, 4)

    assert mesh is not None
    assert [(item.text, item.source_id) for item in mesh.out] == [("nobody.txt", 0), ("textures/rock.png", 1)]
    assert everything is not None
    assert sorted((item.text, item.kind, item.source_id) for item in everything.out) == [
        ("*.png", "wildcard", 0),
        ("mesh/rock.fbx", "source", 2),
    ]


def test_intermediate_asset_and_its_source_refer_to_each_other(reader: Reader) -> None:
    mesh, material = assets.source_details(reader, 2), assets.source_details(reader, 3)

    assert mesh is not None
    assert [(row.name, number) for row, number in mesh.intermediates] == [("common/mesh/rock.mat", 3)]
    assert [row.name for row in mesh.products] == ["common/mesh/rock.model"]
    assert material is not None
    assert material.made_from is not None
    assert material.made_from.source_id == 2


def test_product_details_contain_facts_and_dependencies(reader: Reader) -> None:
    details = assets.product_details(reader, 4)

    assert details is not None
    assert details.asset_id == f"{uuid_text(uuid_of(2))}:7"
    assert details.job is not None
    assert details.source is not None
    assert (details.job.platform, details.source.source) == ("common", "mesh/rock.fbx")
    assert (details.unmet, details.scanned_s) == (("textures/*.dds",), 70)
    assert [(item.text, item.product_id) for item in details.missing] == [("gone.dds", 0), ("rock.dds", 1)]
    assert assets.product_details(reader, 99) is None


def test_product_dependencies_are_read_by_level(reader: Reader) -> None:
    links = dependencies.outgoing(reader, 4)

    assert [(link.product_id, link.name, link.has_more) for link in links] == [
        (0, "", False), (1, "linux/textures/rock.dds", True),
    ]  # fmt: skip
    assert [link.product_id for link in dependencies.outgoing(reader, 1)] == [4]
    assert [link.product_id for link in dependencies.incoming(reader, 4)] == [1]
    assert dependencies.incoming(reader, 99) == []


@pytest.mark.parametrize("form", ["{form}", "{form}:7", "{form}:007", "{bare}", "{bare}:0x7", " {lower} "])
def test_assets_are_found_by_uuid_and_asset_id(reader: Reader, form: str) -> None:
    text = uuid_text(uuid_of(2))
    parsed = assets.parse_asset_id(form.format(form=text, bare=text[1:-1].replace("-", ""), lower=text.lower()))

    assert parsed is not None
    assert assets.source_ids(reader, parsed[0]) == [2]
    assert assets.product_ids(reader, *parsed) == ([4] if parsed[1] is not None else [3, 4])
    assert assets.parse_asset_id("rock") is None


def test_sub_id_that_is_too_large_for_an_asset_id_finds_nothing(reader: Reader) -> None:
    for text in (f"{uuid_text(uuid_of(2))}:{1 << 70}", f"{{049FCC20…}}:{1 << 70:#x}"):
        assert not assets.ids_named(reader, text, of_products=True)


def test_analysis_durations_are_read_for_the_selected_sources(reader: Reader) -> None:
    assert assets.analysis_durations(reader, [1, 2, 3]) == {1: 30, 2: 50}


def test_builder_metrics_are_read(reader: Reader) -> None:
    image, mesh = metrics.builders_spent(reader)

    assert (image.builder, image.analyses, image.jobs) == (BUILDER, Spent(1, 30, 30), Spent(3, 1900, 1500))
    assert (mesh.builder, mesh.jobs.average_ms, Spent().average_ms) == (MESH, 20.0, 0.0)
    entries = metrics.job_entries(reader, BUILDER, 2)
    assert [(entry.job_id, entry.duration_ms, entry.count, entry.slowest_ms) for entry in entries] == [
        (4, 1500, 1, 1500),
        (0, 400, 2, 300),
    ]
    assert [(entry.source, entry.source_id) for entry in metrics.analysis_entries(reader, MESH)] == [("mesh/rock.fbx", 2)]


def test_cache_contents_are_summed_by_platform_folder_and_builder(reader: Reader) -> None:
    contents = metrics.cache_contents(reader, since_ms=5000)

    assert contents.platforms == (Amount("common", 2, 60), Amount("linux", 1, 100), Amount("server", 1, 200))
    assert contents.folders == (Amount("textures", 2, 300), Amount("mesh", 2, 60))
    assert [uuid for uuid, _ in contents.builders] == [BUILDER, MESH]
    assert contents.grown == (Amount("server", 1, 200),)
    assert [product.size_bytes for product in contents.largest] == [200, 100, 50, 10]
    assert contents.total == Amount("", 4, 360)


# --------------------------------------------------------------------------------------------------------------- the store


@pytest.fixture
def held(store: Store) -> Iterator[tuple[AssetsStore, threading.Event]]:
    woken = threading.Event()
    made = AssetsStore(store.path, wake=woken.set)
    yield made, woken
    made.close()


def test_asset_trees_are_read_on_demand_and_after_changes(held: tuple[AssetsStore, threading.Event], store: Store) -> None:
    trees, woken = held
    trees.mark_stale()
    assert trees.version == 0
    model = AssetModel(trees, Kind.SOURCES)
    assert (model.refresh(), model.node_count, len(model.parent)) == (False, 0, 0)
    trees.wait_until_idle()
    assert woken.is_set()
    assert model.refresh()
    assert not model.refresh()
    labels = [[model.cell(node, column).text for column in ("name", "extension", "duration")] for node in range(model.node_count)]
    assert labels == [
        ["mesh", "", ""],
        ["rock.fbx", "fbx", "50 ms"],
        ["textures", "", ""],
        ["rock.png", "png", "30 ms"],
        ["all.list", "list", ""],
    ]

    store.put(put_source=[source_row(7, "a/new.txt")])
    trees.mark_stale()
    trees.wait_until_idle()
    before = model.key(2)
    assert model.refresh()
    assert model.node_of(before) == 4
    assert (model.version, model.structure_version) == (2, 2)


def test_each_kind_of_asset_has_its_own_tree(held: tuple[AssetsStore, threading.Event]) -> None:
    trees, _ = held
    for kind in Kind:
        trees.tree(kind)
    trees.wait_until_idle()

    found = {kind: trees.tree(kind) for kind in Kind}
    assert {kind: tree and tree.file_count for kind, tree in found.items()} == {
        Kind.SOURCES: 3,
        Kind.INTERMEDIATES: 1,
        Kind.PRODUCTS: 3,
    }


def test_nodes_are_found_by_text_or_uuid_and_matches_are_highlighted(
    held: tuple[AssetsStore, threading.Event], reader: Reader
) -> None:
    trees, _ = held
    model = AssetModel(trees, Kind.SOURCES)
    model.refresh()
    trees.wait_until_idle()
    model.refresh()

    assert model.tree is not None
    (rock,) = np.flatnonzero(model.tree.search("rock png"))
    model.highlight("rock png")
    assert model.cell(int(rock), "name").text == "rock.png"
    assert model.cell(int(rock), "name").spans == ((0, 4), (5, 8))
    (by_id,) = np.flatnonzero(model.tree.search(uuid_text(uuid_of(2)), reader))
    assert model.key(int(by_id)) == 2
    model.highlight("  ")
    assert model.cell(int(rock), "name").spans == ()
    assert not model.is_unread(0)


def test_asset_trees_report_a_missing_database_as_an_error(tmp_path: Path) -> None:
    trees = AssetsStore(tmp_path / "none.sqlite")
    assert trees.tree(Kind.SOURCES) is None
    trees.wait_until_idle()
    trees.close()

    assert trees.error is not None
    assert trees.tree(Kind.SOURCES) is None
