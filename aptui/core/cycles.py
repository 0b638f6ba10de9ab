"""Dependency cycles: the strongly connected components of any graph, each yielded once.

`state.graph` uses it for jobs, the catalog for products that preload each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def components(roots: Iterable[Node], next_of: Callable[[Node], Iterable[Node]]) -> Iterator[list[Node]]:
    """Yield the strongly connected components of all nodes reachable from `roots`, dependencies first (Tarjan 1972).

    Without recursion: a chain of dependencies may be longer than Python's stack. `next_of` is called once for each node, and
    its result is read step by step, so that a caller may leave out nodes that it has seen.
    """
    order: dict[Node, int] = {}
    for root in roots:
        if root not in order:
            yield from _components_from(root, next_of, order)


def _components_from(root: Node, next_of: Callable[[Node], Iterable[Node]], order: dict[Node, int]) -> Iterator[list[Node]]:
    lowest = {root: len(order)}
    order[root] = len(order)
    stack, on_stack = [root], {root}
    trail = [(root, iter(next_of(root)))]
    while trail:
        at, ways = trail[-1]
        other = next(ways, None)
        if other is None:
            trail.pop()
            if trail:
                above = trail[-1][0]
                lowest[above] = min(lowest[above], lowest[at])
            if lowest[at] == order[at]:
                yield _pop_component(stack, on_stack, at)
        elif other not in order:
            order[other] = lowest[other] = len(order)
            stack.append(other)
            on_stack.add(other)
            trail.append((other, iter(next_of(other))))
        elif other in on_stack:
            lowest[at] = min(lowest[at], order[other])


def _pop_component(stack: list[Node], on_stack: set[Node], last: Node) -> list[Node]:
    component = []
    while True:
        at = stack.pop()
        on_stack.discard(at)
        component.append(at)
        if at == last:
            return component


# Cycles among products that need each other, each described in one way however it was found.

Edges = Mapping[int, Sequence[int]]
CYCLE_PROBLEM = "products that load each other before themselves can never be loaded: "
"""Beginning of a sentence about a cycle; the chain of names follows, separated by `JOIN`."""
JOIN = " -> "


def find_cycles(edges: Edges, names: Mapping[int, str], wanted: Iterable[int]) -> list[tuple[str, ...]]:
    """Return a shortest cycle through the first name of each strongly connected component that holds any of `wanted`.

    Args:
        edges: {node: the nodes that it needs}.
        names: {node: its name} for every node in `edges`.
        wanted: components without any of these are left out.

    Returns:
        Chains of names, sorted; each begins and ends with the same name.
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
