"""Rings among things that need each other: which there are, each told in one way however it was found."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

Edges = Mapping[int, Sequence[int]]


def rings(edges: Edges, names: Mapping[int, str], wanted: Iterable[int]) -> list[tuple[str, ...]]:
    """Return a shortest ring through the first name of each knot (strongly connected part) that holds any of `wanted`.

    Args:
        edges: {thing: what it needs}.
        names: of every thing in `edges`.
        wanted: the knots of others are not told.

    Returns:
        Chains of names that begin and end with the same one, sorted.
    """
    asked = set(wanted)
    found = []
    for knot in knots(edges):
        if asked.isdisjoint(knot) or (len(knot) == 1 and knot[0] not in edges.get(knot[0], ())):
            continue
        found.append(_told(edges, names, set(knot)))
    return sorted(found)


def _told(edges: Edges, names: Mapping[int, str], knot: set[int]) -> tuple[str, ...]:
    first = min(knot, key=names.__getitem__)
    came_from: dict[int, int] = {}
    todo = deque([first])
    while todo:
        at = todo.popleft()
        for other in sorted(knot.intersection(edges.get(at, ())), key=names.__getitem__):
            if other not in came_from:
                came_from[other] = at
                todo.append(other)
    chain, at = [names[first]], came_from[first]
    while at != first:
        chain.append(names[at])
        at = came_from[at]
    return (names[first], *reversed(chain))


def knots(edges: Edges) -> Iterator[list[int]]:
    """Yield the strongly connected parts (Tarjan 1972), without recursion: a chain may be longer than Python's stack."""
    order: dict[int, int] = {}
    lowest: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in edges:
        if root in order:
            continue
        order[root] = lowest[root] = len(order)
        stack.append(root)
        on_stack.add(root)
        trail = [(root, iter(edges.get(root, ())))]
        while trail:
            at, ways = trail[-1]
            other = next(ways, None)
            if other is None:
                trail.pop()
                if trail:
                    lowest[trail[-1][0]] = min(lowest[trail[-1][0]], lowest[at])
                if lowest[at] == order[at]:
                    yield _popped(stack, on_stack, at)
            elif other not in order:
                order[other] = lowest[other] = len(order)
                stack.append(other)
                on_stack.add(other)
                trail.append((other, iter(edges.get(other, ()))))
            elif other in on_stack:
                lowest[at] = min(lowest[at], order[other])


def _popped(stack: list[int], on_stack: set[int], last: int) -> list[int]:
    knot = []
    while True:
        at = stack.pop()
        on_stack.discard(at)
        knot.append(at)
        if at == last:
            return knot
