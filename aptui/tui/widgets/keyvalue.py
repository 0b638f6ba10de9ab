r"""Details as keys and values: `KeyValue`, for the context of a log line and every panel of facts.

    details = KeyValue(id="details")
    details.show([("Chunk", "IDAT"), ("Trace", "png.py(212): decode\npng.py(80): read")])
    details.current()      # the pair under the cursor, with the whole value

A value of several lines takes several rows.

Tests: `tests/tui/widgets/test_table.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from aptui.tui.widgets.cells import Cell, width_of
from aptui.tui.widgets.table import Column, Table

_WIDEST_KEY = 28


class _Pairs:
    """The lines of all pairs; a value of several lines takes several rows."""

    def __init__(self, pairs: list[tuple[str, str]], version: int) -> None:
        self.version = version
        self.pairs = pairs
        self.lines = [
            (at, key if not first else "", line)
            for at, (key, value) in enumerate(pairs)
            for first, line in enumerate(value.splitlines() or [""])
        ]

    def row_count(self) -> int:
        return len(self.lines)

    def key(self, index: int) -> int:
        return index

    def index_of(self, key: int) -> int | None:
        return key if 0 <= key < len(self.lines) else None

    def cell(self, index: int, column_id: str) -> Cell:
        _, key, line = self.lines[index]
        return Cell(key, "key") if column_id == "key" else Cell(line, "value")


class KeyValue(Table):
    """A table of two columns; keys and messages are those of `Table`, message keys are line numbers and mean nothing else."""

    HEADER_LINES: ClassVar[int] = 1

    def __init__(self, *, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002  # Textual's name
        super().__init__(_columns(8), name=name, id=id, classes=classes)
        self._pairs = _Pairs([], 0)

    def show(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Show pairs in their order."""
        self._pairs = _Pairs(list(pairs), self._pairs.version + 1)
        self.set_columns(_columns(max((width_of(key) for key, _ in self._pairs.pairs), default=8)))
        self.cursor, self.cursor_key = 0, None
        self.set_model(self._pairs)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """All pairs, as they were given."""
        return list(self._pairs.pairs)

    def current(self) -> tuple[str, str] | None:
        """Return the pair under the cursor."""
        return self._pairs.pairs[self._pairs.lines[self.cursor][0]] if self._pairs.lines else None


def _columns(width: int) -> tuple[Column, Column]:
    return (Column("key", "Key", min(max(width, 6), _WIDEST_KEY)), Column("value", "Value", 0, 8))
