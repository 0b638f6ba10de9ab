"""Cycles among products that need each other, each described in one way however it was found."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from aptui.core.state.cycles import components

Edges = Mapping[int, Sequence[int]]
CYCLE_PROBLEM = "products that load each other before themselves can never be loaded: "
"""What a sentence about one of them begins with; behind it stands its chain, with `JOIN` between its names."""
JOIN = " -> "


def find_cycles(edges: Edges, names: Mapping[int, str], wanted: Iterable[int]) -> list[tuple[str, ...]]:
    """Return a shortest cycle through the first name of each strongly connected component that holds any of `wanted`.

    Args:
        edges: {thing: what it needs}.
        names: of every thing in `edges`.
        wanted: components without any of these are left out.

    Returns:
        Chains of names that begin and end with the same one, sorted.
    """
    asked = set(wanted)
    found = []
    for component in components(edges, lambda thing: edges.get(thing, ())):
        if asked.isdisjoint(component) or (len(component) == 1 and component[0] not in edges.get(component[0], ())):
            continue
        found.append(_describe_cycle(edges, names, set(component)))
    return sorted(found)


def _describe_cycle(edges: Edges, names: Mapping[int, str], component: set[int]) -> tuple[str, ...]:
    first = min(component, key=names.__getitem__)
    came_from: dict[int, int] = {}
    todo = deque([first])
    while todo:
        at = todo.popleft()
        for other in sorted(component.intersection(edges.get(at, ())), key=names.__getitem__):
            if other not in came_from:
                came_from[other] = at
                todo.append(other)
    chain, at = [names[first]], came_from[first]
    while at != first:
        chain.append(names[at])
        at = came_from[at]
    return (names[first], *reversed(chain))
