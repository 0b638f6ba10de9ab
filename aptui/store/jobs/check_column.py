"""What checks found of the jobs of a table: computed from the database as a whole, so it is set as a whole.

Tests: `tests/store/jobs/test_check_column.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from aptui.store.jobs.texts import Codes, Mask, Texts
from aptui.store.queries.problems.checks import CheckMark

if TYPE_CHECKING:
    import numpy.typing as npt


class CheckColumn:
    """The column; one thread sets it, any may read."""

    def __init__(self) -> None:
        self._held: tuple[Codes, Texts, list[CheckMark | None]] = np.empty(0, np.int32), Texts([""]), [None]

    def set(self, rows: npt.NDArray[np.integer], marks: Sequence[CheckMark]) -> None:
        """Set the marks of these rows (-1 = there is no such row), and of all others that there is none."""
        known = rows >= 0
        codes = np.zeros(int(rows.max(initial=-1)) + 1, np.int32)
        codes[rows[known]] = np.arange(1, len(rows) + 1)[known]
        self._held = codes, Texts(["", *(mark.text for mark in marks)]), [None, *marks]

    def text(self, count: int) -> tuple[Codes, Texts]:
        """Return the code of each of so many rows, and what the codes name."""
        codes, texts, _marks = self._held
        return np.concatenate([codes[:count], np.zeros(max(0, count - len(codes)), np.int32)]), texts

    def mark(self, row: int) -> CheckMark | None:
        """Return what checks found of a row."""
        codes, _texts, marks = self._held
        return marks[int(codes[row])] if row < len(codes) else None

    def have(self, rows: npt.NDArray[np.integer]) -> Mask:
        """Return of which of these rows checks found something."""
        codes = self._held[0]
        found: Mask = np.isin(rows, np.flatnonzero(codes))
        return found

    def __bool__(self) -> bool:
        """Whether checks found anything."""
        return len(self._held[2]) > 1
