"""Strongly connected components: nodes that reach each other form a component, which is yielded after its successors."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from aptui.core.state.graph import components

EDGES = st.dictionaries(st.integers(0, 6), st.lists(st.integers(0, 6), max_size=3, unique=True), max_size=7)


@given(EDGES)
def test_nodes_of_one_component_reach_each_other(edges: dict[int, list[int]]) -> None:
    nodes = {*edges, *(other for ways in edges.values() for other in ways)}
    reach = {node: {node} for node in nodes}
    for _step in nodes:
        reach = {node: {far for near in seen for far in (near, *edges.get(near, ()))} for node, seen in reach.items()}

    found = [set(component) for component in components(edges, lambda node: edges.get(node, ()))]

    part = {node: index for index, component in enumerate(found) for node in component}
    assert len(part) == sum(map(len, found))
    assert nodes - {node for node in nodes if node in part} == set()
    for one, other in permutations(nodes, 2):
        assert (part[one] == part[other]) == (other in reach[one] and one in reach[other])
        assert one not in part or other not in reach[one] or part[other] <= part[one]


def test_chain_longer_than_the_stack_is_searched() -> None:
    found = list(components([0], lambda node: [node + 1] if node < 50_000 else []))

    assert len(found) == 50_001
    assert found[0] == [50_000]


def test_only_components_reachable_from_the_roots_are_yielded() -> None:
    edges = {1: [2], 2: [1], 3: [1]}

    assert [sorted(component) for component in components([2], edges.__getitem__)] == [[1, 2]]
