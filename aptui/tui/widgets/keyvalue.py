r"""Details as keys and values: `KeyValue`, for the context of a log line and every panel of facts.

    details = KeyValue(id="details")
    details.show([("Chunk", "IDAT"), ("Trace", "png.py(212): decode\npng.py(80): read")])
    details.current()      # the pair under the cursor, with the whole value

A value takes as many rows as it has lines, and more where they are long.

Tests: `tests/tui/widgets/test_table.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from aptui.tui.widgets.cells import Cell, safe, width_of, wrap
from aptui.tui.widgets.columns import Column
from aptui.tui.widgets.table import Table

_WIDEST_KEY, _LEAST_VALUE = 28, 12
_AROUND_VALUE = 3
"""The edge at the left and the gap after the key."""


class _Pairs:
    """The lines of all pairs; a value of several lines takes several rows, and one that is wider than `width` too."""

    def __init__(self, pairs: list[tuple[str, str]], version: int, width: int) -> None:
        self.version = version
        self.pairs, self.width = pairs, width
        self.lines = [
            (at, key if not first else "", line)
            for at, (key, value) in enumerate(pairs)
            for first, line in enumerate(_rows_of(value, width))
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
    leads: ClassVar[bool] = False
    fits_texts: ClassVar[bool] = False

    def __init__(self, *, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002  # Textual's name
        super().__init__(_columns(8), name=name, id=id, classes=classes)
        self._pairs = _Pairs([], 0, 0)

    def show(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Show pairs in their order."""
        self.cursor, self.cursor_key = 0, None
        self._lay_out(list(pairs))

    def on_resize(self) -> None:
        """Break values anew where there is another width; what `Rows` does then Textual has it do as well."""
        if self._value_width(self._pairs.pairs) != self._pairs.width:
            self._lay_out(self._pairs.pairs)

    def _lay_out(self, pairs: list[tuple[str, str]]) -> None:
        self._pairs = _Pairs(pairs, self._pairs.version + 1, self._value_width(pairs))
        self.set_columns(_columns(_key_width(pairs)))
        self.set_model(self._pairs)

    def _value_width(self, pairs: list[tuple[str, str]]) -> int:
        return max(0, self.painting.width - _columns(_key_width(pairs))[0].width - _AROUND_VALUE) if self.size.width else 0

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """All pairs, as they were given."""
        return list(self._pairs.pairs)

    def current(self) -> tuple[str, str] | None:
        """Return the pair under the cursor."""
        return self._pairs.pairs[self._pairs.lines[self.cursor][0]] if self._pairs.lines else None


def _rows_of(value: str, width: int) -> list[str]:
    """Return the lines of a value, those that are too wide in pieces; as they are where there is hardly any room."""
    lines = value.splitlines() or [""]
    if width < _LEAST_VALUE:
        return lines
    texts = [safe(line).text for line in lines]
    return [text[start:end].rstrip() for text in texts for start, end in wrap(text, width)]


def _key_width(pairs: list[tuple[str, str]]) -> int:
    return max((width_of(key) for key, _ in pairs), default=8)


def _columns(width: int) -> tuple[Column, Column]:
    return (Column("key", "Key", min(max(width, 6), _WIDEST_KEY)), Column("value", "Value", 0, 8))
