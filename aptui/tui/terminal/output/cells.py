"""Cells: what stands at each place of a screen and in which pen. Text becomes cells here, as wide as Textual thinks it is.

Tests: `tests/tui/terminal/output/test_cells.py`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from rich.cells import split_graphemes

if TYPE_CHECKING:
    from aptui.tui.terminal.output.pens import Pen

REST = ""
"""What stands in the second cell of a character that takes two."""


class Row:
    """One line of cells: `texts[x]` is a character with what combines with it (None = nobody knows), `pens[x]` its pen."""

    __slots__ = ("pens", "texts")

    def __init__(self, texts: list[str | None], pens: list[Pen | None]) -> None:
        self.texts, self.pens = texts, pens

    @classmethod
    def blank(cls, width: int, pen: Pen) -> Row:
        """Return a line of blanks."""
        return cls([" "] * width, [pen] * width)

    @classmethod
    def unknown(cls, width: int) -> Row:
        """Return a line of which nobody knows what stands there."""
        return cls([None] * width, [None] * width)

    def copy(self) -> Row:
        """Return a line that changes alone."""
        return Row(self.texts[:], self.pens[:])

    def is_as(self, other: Row) -> bool:
        """Whether it looks the same."""
        return self.texts == other.texts and self.pens == other.pens

    def write(self, x: int, text: str, pen: Pen, *, goes_on: bool = False) -> int:
        """Write a text from a place on and return where it ends; what does not fit is cut.

        Args:
            x: the place.
            text: holds nothing that does not print.
            pen: its looks.
            goes_on: whether what was written last ends at `x`: what combines with nothing in `text` combines with that.
        """
        cells, styles, accents = draw_cells(text, pen)
        if accents and goes_on:
            self._combine(x - 1, accents)
        texts, width = self.texts, len(self.texts)
        end = x + len(cells)
        is_cut_through = False
        if end > width:
            is_cut_through = x < width and cells[width - x] == REST
            cells, styles, end = cells[: width - x], styles[: width - x], width
        if x >= end:
            return x
        if texts[x] == REST:
            self._halve(x - 1)
        if end < width and texts[end] == REST:
            self._halve(end)
        texts[x:end], self.pens[x:end] = cells, styles
        if is_cut_through:
            self._halve(width - 1)
        return end

    def _combine(self, x: int, accents: str) -> None:
        x -= x > 0 and self.texts[x] == REST
        if 0 <= x < len(self.texts):
            self.texts[x] = (self.texts[x] or " ") + accents

    def _halve(self, x: int) -> None:
        """Leave a blank where half a character would stand, as terminals do."""
        pen = self.pens[x]
        self.texts[x], self.pens[x] = " ", pen.blank if pen is not None else None


@lru_cache(maxsize=1024)
def draw_cells(text: str, pen: Pen) -> tuple[tuple[str, ...], tuple[Pen, ...], str]:
    """Return the cells of a text, their pens, and what stands before the first and combines with what is before it."""
    accents = ""
    if text.isascii():
        cells = tuple(text)
    else:
        spans = split_graphemes(text)[0]
        accents = "".join(text[start:end] for start, end, width in spans if width == 0)
        cells = tuple(cell for start, end, width in spans if width for cell in ((text[start:end], REST)[:width]))
    blank = pen.blank
    return cells, (pen,) * len(cells) if blank is pen else tuple([blank if cell == " " else pen for cell in cells]), accents
