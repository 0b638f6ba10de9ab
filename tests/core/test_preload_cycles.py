"""Cycles of preloaded products: all cycles are found, and each has one description."""

from __future__ import annotations

from aptui.core.state.graph import find_cycles

NAMES = {number: "gfedcba"[number] for number in range(7)}


def test_description_of_a_cycle_begins_with_its_alphabetically_first_name() -> None:
    edges = {1: [2], 2: [3], 3: [1], 4: [1]}
    names = {1: "m", 2: "a", 3: "z", 4: "b"}

    assert [find_cycles(edges, names, [wanted]) for wanted in (1, 2, 3)] == [[("a", "z", "m", "a")]] * 3
    assert find_cycles(edges, names, [4]) == []


def test_shortest_cycle_of_a_component_is_reported() -> None:
    assert find_cycles({0: [1, 2], 1: [2], 2: [0]}, NAMES, [0]) == [("e", "g", "e")]


def test_chain_longer_than_the_stack_is_searched() -> None:
    count = 50_000
    edges = {number: [(number + 1) % count] for number in range(count)}

    (chain,) = find_cycles(edges, {number: f"{number:06}" for number in range(count)}, [7])

    assert (chain[0], len(chain)) == ("000000", count + 1)
