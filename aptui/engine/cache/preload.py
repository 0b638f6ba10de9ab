"""Preload cycles: products that load each other before themselves, found where dependencies changed.

They are reported, not repaired.

Tests: `tests/engine/cache/shared/test_shared_cache.py`.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from aptui.core.preload_cycles import CYCLE_PROBLEM, JOIN, find_cycles
from aptui.store.graph import dependencies
from aptui.store.queries.reader import Reader, open_reader


def sentences(database: Path, changed: set[int] | None) -> list[str]:
    """Return one sentence for each cycle that one of the products `changed` (None = any) belongs to."""
    if changed is not None and not changed:
        return []
    with contextlib.closing(open_reader(database)) as reader, reader.snapshot():
        wanted = dependencies.preloading(reader) if changed is None else changed
        edges = _find_reached(reader, wanted)
        names = dependencies.names_of(reader, edges)
    chains = find_cycles(edges, names, wanted)
    return [f"{CYCLE_PROBLEM}{JOIN.join(chain)}" for chain in chains]


def _find_reached(reader: Reader, start: set[int]) -> dict[int, list[int]]:
    """Return who loads whom, as far as it can be reached; those that load nobody lead nowhere and are left out."""
    edges: dict[int, list[int]] = {}
    seen, todo = set(start), start
    while todo:
        found = dependencies.find_preloaded(reader, todo)
        edges.update(found)
        todo = {target for targets in found.values() for target in targets} - seen
        seen |= todo
    return {owner: [target for target in targets if target in edges] for owner, targets in edges.items()}
