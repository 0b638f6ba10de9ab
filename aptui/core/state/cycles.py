"""Dependency cycles: the strongly connected components of a graph, each yielded once; jobs and products are unknown here.

Cycles of jobs are asked for by `graph`, those of products that need each other by `core/preload_cycles`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def components(roots: Iterable[Node], next_of: Callable[[Node], Iterable[Node]]) -> Iterator[list[Node]]:
    """Yield the strongly connected components of all that `roots` lead to, each after those that it leads to (Tarjan 1972).

    Without recursion: a chain of dependencies may be longer than Python's stack. `next_of` is asked once for each node, and
    its answer is read step by step, so that a caller may leave out what it knows already.
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
