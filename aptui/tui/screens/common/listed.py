"""Rows that were made already as the model of a table: a `Listing` that rises only where rows are not what they were.

Tests: `tests/tui/screens/connections/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field, structs

from aptui.tui.screens.common.listing import Listing
from aptui.tui.widgets.cells import Cell, width_of
from aptui.tui.widgets.columns import Column

_EMPTY = Cell("")


class ListedRow(Struct, frozen=True):
    """A row; a column that `order` does not name is sorted by its text, and `data` is whatever the screen needs to know it by."""

    key: int
    cells: Mapping[str, Cell]
    order: Mapping[str, Any] = field(default_factory=dict)
    data: Any = None

    def cell(self, column_id: str) -> Cell:
        """Return a cell."""
        return self.cells.get(column_id, _EMPTY)

    def value(self, column_id: str) -> Any:
        """Return what the row is sorted by."""
        return self.order[column_id] if column_id in self.order else self.cell(column_id).text.lower()


def fit_columns(columns: Sequence[Column], rows: Sequence[ListedRow]) -> tuple[Column, ...]:
    """Return columns that know what their texts need: what one does not need the others have."""
    needs = {column.id: max((width_of(row.cell(column.id).text) for row in rows), default=0) for column in columns}
    return tuple(
        column if column.width else structs.replace(column, needs=max(needs[column.id], column.min_width)) for column in columns
    )


class ListedRows(Listing[ListedRow]):
    """The model."""

    def __init__(self) -> None:
        super().__init__(ListedRow.cell, ListedRow.value, lambda row, _place: row.key)
        self._given: list[ListedRow] = []

    def put(self, rows: Sequence[ListedRow]) -> None:
        """Show these rows."""
        if list(rows) != self._given:
            self._given = list(rows)
            self.show(self._given)

    def row(self, key: int | None) -> ListedRow | None:
        """Return the row with this key."""
        return None if key is None or self.index_of(key) is None else self.at(key)
