"""A short list of records as the model of a table, sorted by any column. The tables of jobs and assets use other models.

Tests: `tests/features/sharing/screen/test_screen.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Struct, field

from aptui.tui.widgets.cells import Cell

T = TypeVar("T")


class Listing(Generic[T]):
    """A `TableModel` of records.

    Args:
        order: returns the sort value of a record in a column; without `order` the records keep their order.
        key: returns the stable id of a record, by default its position.
    """

    def __init__(
        self,
        cell: Callable[[T, str], Cell],
        order: Callable[[T, str], object] | None = None,
        key: Callable[[T, int], int] = lambda _record, place: place,
    ) -> None:
        self.version = 0
        self.sort: tuple[str, bool] | None = None
        self._cell, self._order, self._key = cell, order, key
        self._shown: list[tuple[int, T]] = []
        self._rows = self._shown
        self._places: dict[int, int] = {}

    def show(self, records: Sequence[T]) -> None:
        """Show other records."""
        self._shown = [(self._key(record, place), record) for place, record in enumerate(records)]
        self.sort_by(self.sort)

    def sort_by(self, sort: tuple[str, bool] | None) -> None:
        """Sort by `sort`: (column id, is descending), None = the order in which the records were given.

        Equal records keep that order.
        """
        self.sort, self._rows = sort, self._shown
        if sort is not None and self._order is not None:
            column, is_descending = sort
            order = self._order
            self._rows = sorted(
                self._shown, key=lambda row: order(row[1], column), reverse=is_descending  # type: ignore[arg-type,return-value]
            )  # fmt: skip
        self._places = {key: place for place, (key, _) in enumerate(self._rows)}
        self.version += 1

    @property
    def records(self) -> list[T]:
        """All records in the order of the sort."""
        return [record for _, record in self._rows]

    def at(self, key: int) -> T:
        """Return the record with this key."""
        return self._rows[self._places[key]][1]

    # --------------------------------------------------------------------------------------------- methods of `TableModel`

    def row_count(self) -> int:
        """Return the number of records."""
        return len(self._rows)

    def cell(self, index: int, column_id: str) -> Cell:
        """Return a cell."""
        return self._cell(self._rows[index][1], column_id)

    def key(self, index: int) -> int:
        """Return the key of a row."""
        return self._rows[index][0]

    def index_of(self, key: int) -> int | None:
        """Return the index of a record."""
        return self._places.get(key)


_EMPTY = Cell("")


class ListedRow(Struct, frozen=True):
    """A row of finished cells.

    Args:
        order: {column id: sort value}; all other columns are sorted by their text.
    """

    key: int
    cells: Mapping[str, Cell]
    order: Mapping[str, Any] = field(default_factory=dict)
    data: Any = None

    def cell(self, column_id: str) -> Cell:
        """Return a cell."""
        return self.cells.get(column_id, _EMPTY)

    def value(self, column_id: str) -> Any:
        """Return the sort value of a column."""
        return self.order[column_id] if column_id in self.order else self.cell(column_id).text.lower()


class ListedRows(Listing[ListedRow]):
    """A `Listing` of rows with finished cells; its version rises only if the rows differ from the previous rows."""

    def __init__(self) -> None:
        super().__init__(ListedRow.cell, ListedRow.value, lambda row, _place: row.key)
        self._given: list[ListedRow] = []

    def show_rows(self, rows: Sequence[ListedRow]) -> None:
        """Show these rows."""
        if list(rows) != self._given:
            self._given = list(rows)
            self.show(self._given)

    def row(self, key: int | None) -> ListedRow | None:
        """Return the row with this key."""
        return None if key is None or self.index_of(key) is None else self.at(key)
