"""How the files and folders of a tree are: jobs that are not well, added up over everything below a node.

What is not well was asked of the database (`store.queries.problems.unwell`);
a folder costs a difference of two sums, when it is drawn.

Tests: `tests/tui/data/test_asset_health.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from aptui.store.jobs.table import Moment
from aptui.store.jobs.texts import Codes
from aptui.store.queries.problems.unwell import UNWELL, unwell_sources
from aptui.store.queries.reader import Reader
from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import Cell, width_of
from aptui.tui.words import ROLES

if TYPE_CHECKING:
    import numpy.typing as npt

_SAYS = {"failed": "failed", "errors": "with errors", "warnings": "with warnings", "cancelled": "cancelled", "pending": "waiting"}


class UnwellSources(Struct, frozen=True):
    """(source id, place in `UNWELL`, how many jobs) as rows of an array, and the moment that they are of."""

    rows: npt.NDArray[np.int64]
    moment: Moment


def read_unwell(reader: Reader) -> UnwellSources:
    """Read which sources are not well."""
    with reader.snapshot():
        moment = reader.moment()
        found = unwell_sources(reader)
    return UnwellSources(np.array(found, np.int64).reshape(-1, 3), moment)


class TreeHealth:
    """The health of every node of one tree.

    Args:
        end: one past the last descendant of each node.
        nodes: the node of each row of `unwell`, -1 = it is not in this tree.
    """

    def __init__(self, end: Codes, nodes: npt.NDArray[np.int64], unwell: UnwellSources) -> None:
        known = nodes >= 0
        codes, counts = unwell.rows[known, 1], unwell.rows[known, 2]
        self._end, width = end, len(end) + 1
        flat = np.bincount(codes * width + nodes[known] + 1, counts, len(UNWELL) * width)
        self._sums = flat.reshape(-1, width).astype(np.int32)
        self._is_bad = self._sums[:2, 1:].any(axis=0)
        np.cumsum(self._sums, axis=1, out=self._sums)

    def counts(self, node: int) -> dict[str, int]:
        """Return {word of `UNWELL`: how many jobs of a file, or below a folder}, without zeros, the worst first."""
        found = self._sums[:, int(self._end[node])] - self._sums[:, node]
        return {word: int(count) for word, count in zip(UNWELL, found, strict=True) if count}

    def most_cells(self) -> int:
        """Return how many cells what is said of any node takes at most; 0 = all is well."""
        total = {word: int(count) for word, count in zip(UNWELL, self._sums[:, -1], strict=True) if count}
        words = list(total)
        return max((width_of(health_cell({word: total[word] for word in words[at:]}).text) for at in range(len(words))), default=0)

    def next_bad(self, node: int, step: int) -> int | None:
        """Return the nearest file after (1) or before (-1) a node with a failed job or errors, around the end; None = no other."""
        bad = np.flatnonzero(self._is_bad)
        bad = bad[bad != node]
        if not len(bad):
            return None
        at = int(np.searchsorted(bad, node)) - (step < 0)
        return int(bad[at % len(bad)])


def health_cell(counts: dict[str, int]) -> Cell:
    """Return the worst in words and the rest as signs: `✗ 2 failed  ! 3  · 12`; what is well says nothing."""
    words = [word for word in counts if word != "errors" or "failed" not in counts]  # they have one sign
    if not words:
        return Cell("")
    signs = [f"{glyph(ROLES.get(word, word))} {counts[word]:,}" for word in words]
    signs[0] += f" {_SAYS[words[0]]}"
    return Cell("  ".join(signs), ROLES.get(words[0], words[0]))


def health_text(counts: dict[str, int]) -> str:
    """Return all of it in words: `2 failed, 3 with warnings, 12 waiting`."""
    return ", ".join(f"{count:,} {_SAYS[word]}" for word, count in counts.items())
