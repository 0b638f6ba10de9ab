"""Which rows of a table of jobs are shown, in their order: they come last and leave, but not while they are on the screen.

Tests: `tests/tui/data/test_shown_rows.py`.
"""

from __future__ import annotations

import numpy as np

from aptui.store.jobs.filter import Filter
from aptui.store.jobs.table import JobTable, Rows
from aptui.store.jobs.texts import Codes, Mask

_LEAST_SIZE = 1024
"""For so many rows that the table does not have yet."""


class ShownRows:
    """The rows that are shown; `lingering` are those that stay only because they are on the screen."""

    def __init__(self) -> None:
        self.rows: Codes = np.empty(0, np.int32)
        self.lingering: set[int] = set()
        self.late_count = 0
        """How many came in after the last sorting and stand at the end."""
        self._is_shown: Mask = np.zeros(0, np.bool_)
        self._held = (0, 0)

    def index_of(self, row: int) -> int | None:
        """Return where a row is shown."""
        if row < 0 or row >= len(self._is_shown) or not self._is_shown[row]:
            return None
        return int(np.argmax(self.rows == row))

    def hold(self, start: int, end: int) -> None:
        """Say which places are on the screen: their rows do not leave while they are."""
        self._held = (start, end)

    def be(self, rows: Codes, row_count: int) -> None:
        """Show these rows, of a table of so many."""
        self.rows = rows
        self.lingering.clear()
        self._is_shown = np.zeros(row_count + _LEAST_SIZE, np.bool_)
        self._is_shown[rows] = True

    def reconsider(self, table: JobTable, passing: Filter, changed: Rows | set[int]) -> bool:
        """Let rows come and go as the filter says of them now; return whether any did."""
        rows = np.unique(np.fromiter(changed, np.int64, len(changed)))
        if int(rows[-1]) >= len(self._is_shown):
            self._is_shown = np.concatenate(
                [self._is_shown, np.zeros(table.row_count() + _LEAST_SIZE - len(self._is_shown), np.bool_)]
            )
        alive = table.number("alive")[rows].astype(np.bool_)
        passes = passing.matches(table, rows, reads_logs=False) & alive
        is_shown = self._is_shown[rows]
        come, leave = rows[passes & ~is_shown], rows[~passes & is_shown]
        self.lingering.difference_update(rows[passes].tolist())
        if len(leave):
            held = self.rows[self._held[0] : self._held[1]]
            stays = np.isin(leave, held) & table.number("alive")[leave].astype(np.bool_)
            self.lingering.update(leave[stays].tolist())
            leave = leave[~stays]
            self._leave(leave)
        if len(come):
            self._is_shown[come] = True
            self.rows = np.concatenate([self.rows, come.astype(np.int32)])
            self.late_count += len(come)
        return bool(len(come) or len(leave))

    def _leave(self, rows: Rows) -> None:
        if len(rows):
            self._is_shown[rows] = False
            self.lingering.difference_update(rows.tolist())
            self.rows = self.rows[self._is_shown[self.rows]]
