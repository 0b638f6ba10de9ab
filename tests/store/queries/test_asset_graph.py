"""The asset graph is compared with a naive implementation on databases of aptui and O3DE, and each special edge is tested."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from copy import copy
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aptui.core.paths import path_uuid
from aptui.features.shipping.asset_list import AssetList, closure, orphans
from aptui.store.queries.asset_graph import AssetFile, AssetGraph, Edge, Link, Node, ProductFact, SourceFact, is_product, is_source
from aptui.store.queries.reader import open_reader
from tests.store.graph_rows import FOUND, JOB, UUID, WILDCARD, Rows

COUNT = 6
Pairs = list[tuple[int, int]]
PAIRS = st.lists(st.tuples(st.integers(0, COUNT - 1), st.integers(0, COUNT - 1)), max_size=14)
ONES = st.sets(st.integers(0, COUNT - 1), min_size=1, max_size=2)


@contextmanager
def graph_of(rows: Rows, platform: str = "", links: tuple[Link, ...] = tuple(Link)) -> Iterator[AssetGraph]:
    with closing(open_reader(rows.path)) as reader:
        yield AssetGraph(reader, platform, links)


@pytest.fixture(scope="module")
def blank(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """A database without edges. Tests share it, because creating a database takes longer than all queries."""
    return Rows(tmp_path_factory.mktemp("blank") / "assetdb.sqlite", COUNT)


@contextmanager
def made(blank: Rows, products: Pairs, sources: Pairs, *, is_foreign: bool) -> Iterator[AssetGraph]:
    with tempfile.TemporaryDirectory() as folder:
        rows = copy(blank)
        rows.path = Path(folder) / "assetdb.sqlite"
        shutil.copyfile(blank.path, rows.path)
        rows.need(products)
        for owner, other in sources:
            rows.depend(owner, f"s{other}")
        if is_foreign:
            rows.as_o3de()
        with graph_of(rows) as graph:
            yield graph


class Oracle:
    """A naive graph: all edges in memory, and walks over them."""

    def __init__(self, products: Pairs, sources: Pairs) -> None:
        self.edges = {(Node(at + 1), Node(-at - 1)) for at in range(COUNT)}
        self.edges |= {(Node(owner + 1), Node(other + 1)) for owner, other in products}
        self.edges |= {(Node(-owner - 1), Node(-other - 1)) for owner, other in sources if owner != other}

    def reachable(self, starts: set[Node], depth: int, *, is_reverse: bool = False) -> set[Node]:
        found = set(starts)
        for _step in range(depth):
            found |= {far for near, far in self._seen(is_reverse=is_reverse) if near in found}
        return found

    def _seen(self, *, is_reverse: bool) -> set[tuple[Node, Node]]:
        return {(needed, needs) for needs, needed in self.edges} if is_reverse else self.edges

    def between(self, starts: set[Node], ends: set[Node]) -> set[Node]:
        return self.reachable(starts, 99) & self.reachable(ends, 99, is_reverse=True)

    def distance(self, starts: set[Node], ends: set[Node]) -> int | None:
        return next((depth for depth in range(2 * COUNT) if self.reachable(starts, depth) & ends), None)


@settings(max_examples=25, deadline=None)
@given(products=PAIRS, sources=PAIRS, start=ONES, end=ONES, depth=st.integers(0, 3), is_foreign=st.booleans())
def test_walks_and_paths_equal_the_results_of_a_simple_graph(
    blank: Rows, products: Pairs, sources: Pairs, start: set[int], end: set[int], depth: int, is_foreign: bool
) -> None:
    oracle = Oracle(products, sources)
    starts, ends = {Node(at + 1) for at in start}, {Node(-at - 1) for at in end} | {Node(at + 1) for at in end}
    with made(blank, products, sources, is_foreign=is_foreign) as graph:
        forward, backward = graph.walk(starts), graph.walk(ends, is_reverse=True)
        near, near_back = graph.walk(starts, depth), graph.walk(ends, depth, is_reverse=True)
        way, ways = graph.some_path(starts, ends), graph.all_paths(starts, ends)
        among = graph.between(forward)

    assert set(forward) == oracle.reachable(starts, 99)
    assert set(backward) == oracle.reachable(ends, 99, is_reverse=True)
    assert set(near) == oracle.reachable(starts, depth)
    assert set(near_back) == oracle.reachable(ends, depth, is_reverse=True)
    assert ways == oracle.between(starts, ends)
    assert {edge[:2] for edge in among} == {edge for edge in oracle.edges if edge[0] in forward}
    distance = oracle.distance(starts, ends)
    assert len(way) == (distance or 0)
    if way:
        assert way[0].needs in starts
        assert way[-1].needed in ends
        assert all(one.needed == two.needs for one, two in pairwise(way))
        assert all(edge[:2] in oracle.edges for edge in way)
    assert all(edge is None or (edge.needed == node and edge.needs in forward) for node, edge in forward.items())


@settings(max_examples=15, deadline=None)
@given(products=PAIRS, start=ONES)
def test_asset_list_has_all_reachable_products_and_orphans_are_all_other_products(
    blank: Rows, products: Pairs, start: set[int]
) -> None:
    oracle = Oracle(products, [])
    seeds = {Node(at + 1) for at in start}
    with made(blank, products, [], is_foreign=False) as graph:
        listed, left = closure(graph, seeds, ["x"], "linux"), orphans(graph, seeds, "linux")
        unneeded = orphans(graph, (), "linux")

    reached = {f"linux/p{node - 1}" for node in oracle.reachable(seeds, 99) if is_product(node)}
    assert {item.name for item in listed.products} == reached
    assert {item.name for item in left.products} == {f"linux/p{at}" for at in range(COUNT)} - reached
    needed = {f"linux/p{other}" for owner, other in products if owner != other}
    assert {item.name for item in unneeded.products} == {f"linux/p{at}" for at in range(COUNT)} - needed
    reasons = {(item.pulled_in_by, item.name) for item in listed.products if item.pulled_in_by}
    assert reasons <= {(f"linux/p{owner}", f"linux/p{other}") for owner, other in products}
    assert {item.name for item in listed.products if not item.pulled_in_by} == {f"linux/p{at}" for at in start}


# ---------------------------------------------------------------------------------------------------- kinds of dependency


@pytest.fixture
def rows(tmp_path: Path) -> Rows:
    return Rows(tmp_path / "assetdb.sqlite", 4)


def sources(edges: list[Edge]) -> set[tuple[int, int, Link]]:
    return {(-edge.needs - 1, -edge.needed - 1, edge.link) for edge in edges}


@pytest.mark.parametrize("is_foreign", [False, True])
def test_every_kind_of_source_dependency_is_followed_in_both_directions(rows: Rows, is_foreign: bool) -> None:
    rows.depend(0, "S1")
    rows.depend(0, "s[23]", WILDCARD)
    rows.depend(1, path_uuid("s2").hex(), UUID)
    rows.depend(2, "s?", WILDCARD)
    rows.depend(3, "s0", JOB)
    rows.depend(3, "s3")
    if is_foreign:
        rows.as_o3de()

    links = (Link.SOURCE, Link.WILDCARD, Link.UUID, Link.JOB, Link.FOUND)
    with graph_of(rows, links=links) as graph:
        nodes = [Node(-at - 1) for at in range(4)]
        away, towards = graph.list_needed(nodes), graph.needing(nodes)

    expected = {
        (0, 1, Link.SOURCE),
        (1, 2, Link.UUID),
        (2, 0, Link.WILDCARD),
        (2, 1, Link.WILDCARD),
        (2, 3, Link.WILDCARD),
        (3, 0, Link.JOB),
    }
    assert sources(away) == sources(towards) == expected


def test_discovered_dependencies_have_their_own_kind(rows: Rows) -> None:
    rows.depend(0, "s1", FOUND)

    with graph_of(rows) as graph:
        assert sources(graph.list_needed([Node(-1)])) == {(0, 1, Link.FOUND)}


def test_dependency_on_a_file_that_is_not_a_source_is_a_file_node(rows: Rows) -> None:
    rows.depend(0, "Shared/Base.hlsl")
    rows.depend(1, "shared/*", WILDCARD)

    with graph_of(rows) as graph:
        (edge,) = graph.list_needed([Node(-1)])
        needing = graph.needing([graph.file("shared/base.hlsl")])
        facts = graph.facts([edge.needed])

    assert facts == {edge.needed: AssetFile("shared/base.hlsl")}
    assert not is_source(edge.needed)
    assert not is_product(edge.needed)
    assert {(-found.needs, found.link) for found in needing} == {(1, Link.SOURCE), (2, Link.WILDCARD)}


def test_dependency_on_an_earlier_uuid_of_a_source_leads_to_that_source(rows: Rows) -> None:
    import sqlite3

    former = b"F" * 16
    with closing(sqlite3.connect(rows.path)) as database, database:
        database.execute("INSERT INTO aptui_legacy(uuid, source_id, created_ms) VALUES (?, 3, 0)", (former,))
    rows.depend(0, former.hex(), UUID)

    with graph_of(rows) as graph:
        assert sources(graph.list_needed([Node(-1)])) == {(0, 2, Link.UUID)}
        assert sources([edge for edge in graph.needing([Node(-3)]) if edge.link is Link.UUID]) == {(0, 2, Link.UUID)}


def test_dependencies_are_followed_only_on_the_same_platform(tmp_path: Path) -> None:
    import sqlite3

    rows = Rows(tmp_path / "assetdb.sqlite", 2)
    with closing(sqlite3.connect(rows.path)) as database, database:
        rows.product(database, 11, 1, "server/p0", path_uuid("s0"), "server", 5)
        rows.product(database, 12, 2, "server/p1", path_uuid("s1"), "server", 5)
    rows.need([(0, 1), (10, 11)])

    with graph_of(rows) as graph:
        every, back = graph.list_needed([Node(1), Node(11)]), graph.needing([Node(2), Node(12)])
    with graph_of(rows, "Server") as graph:
        of_source = graph.products_of([1])

    assert {edge[:2] for edge in every if edge.link is Link.PRODUCT} == {(1, 2), (11, 12)}
    assert {edge[:2] for edge in back if edge.link is Link.PRODUCT} == {(1, 2), (11, 12)}
    assert of_source == [11]


def test_intermediate_source_is_linked_to_the_product_with_the_same_file(tmp_path: Path) -> None:
    import sqlite3

    rows = Rows(tmp_path / "assetdb.sqlite", 2)
    with closing(sqlite3.connect(rows.path)) as database, database:
        rows.product(database, 11, 1, "common/s1", path_uuid("s0"), "common", 5, flags=2)

    with graph_of(rows, "linux") as graph:
        assert Edge(Node(-2), Node(11), Link.INTERMEDIATE) in graph.list_needed([Node(-2)])
        assert Edge(Node(-2), Node(11), Link.INTERMEDIATE) in graph.needing([Node(11)])
        assert Node(-1) in graph.walk([Node(2)])
        assert [fact.name for fact in graph.products()] == ["linux/p0", "linux/p1"]
        assert graph.ends_of_chains([Node(11)]) == [Node(2)]
        assert graph.ends_of_chains([Node(1)]) == [Node(1)]


# ------------------------------------------------------------------------------------------------ unresolved dependencies


def test_unresolved_dependencies_are_listed_by_kind(rows: Rows) -> None:
    rows.need([(0, 1)])
    rows.need_path(0, "textures/gone.dds")
    rows.need_path(0, "sounds/*")
    rows.need_path(0, ":sounds/hum")
    rows.need_asset(1, b"X" * 16, 7)

    with graph_of(rows) as graph:
        unmet = {item.path: (item.is_pattern, item.is_exclusion) for item in graph.unmet([Node(1), Node(2)])}
        dangling = graph.dangling([Node(1), Node(2)])
        listed = closure(graph, [Node(1)], ["s0"], "linux")

    assert unmet == {"textures/gone.dds": (False, False), "sounds/*": (True, False), ":sounds/hum": (False, True)}
    assert [(item.product_id, item.asset_id[-2:]) for item in dangling] == [(2, ":7")]
    assert [(end.kind, end.product) for end in listed.loose_ends] == [("unmet", "linux/p0"), ("dangling", "linux/p1")]


def test_node_facts_have_the_names_that_the_screen_displays(rows: Rows) -> None:
    with graph_of(rows) as graph:
        source, product = (graph.facts([node])[node] for node in (Node(-1), Node(1)))

    assert isinstance(source, SourceFact)
    assert source.name == "s0"
    assert isinstance(product, ProductFact)
    assert (product.name, product.platform, product.source, product.size) == ("linux/p0", "linux", "s0", 10)


def test_asset_list_without_seeds_is_empty(rows: Rows) -> None:
    with graph_of(rows) as graph:
        assert closure(graph, [], [], "linux") == AssetList("linux", (), ())
