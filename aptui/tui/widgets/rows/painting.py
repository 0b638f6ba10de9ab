"""The pictures of rows: the styles of now, and what was painted, kept by the state that it was painted from.

Tests: `tests/tui/widgets/test_table.py`.
"""

from __future__ import annotations

from textual.strip import Strip

from aptui.tui.widgets.cells import Painter, merge, pad, painter_of
from aptui.tui.widgets.rows.view import RowView

_MOST_STRIPS = 1024


class RowPainting:
    """Paints rows, each once."""

    def __init__(self, view: RowView) -> None:
        self._view = view
        self._painter: Painter | None = None
        self._fixed_width: int | None = None
        self._strips: dict[tuple[object, ...], Strip] = {}

    @property
    def painter(self) -> Painter:
        """The styles of now; with others, what was painted is forgotten."""
        if self._fixed_width is not None and self._painter is not None:
            return self._painter
        painter = painter_of(self._view, self._painter)
        if painter is not self._painter:
            self._painter = painter
            self.forget()
        return painter

    @property
    def width(self) -> int:
        """How many cells a row has, gutter included."""
        return self._view.scrollable_content_region.width if self._fixed_width is None else self._fixed_width

    def begin(self) -> None:
        """Look theme and width up, once for all lines until `end`."""
        _ = self.painter
        self._fixed_width = self.width

    def end(self) -> None:
        """Look them up again, each time."""
        self._fixed_width = None

    def forget(self) -> None:
        """Forget what was painted, for another theme or width."""
        self._strips.clear()

    def strip_of(self, state: tuple[object, ...], width: int) -> Strip:
        """Return the picture of a row in this state."""
        strip = self._strips.get(state)
        if strip is None or strip.cell_length != width:
            if len(self._strips) >= _MOST_STRIPS:
                self._strips.clear()
            strip = Strip(merge(pad(self._view.draw_row(state), width, self.painter.ground)), width)
            self._strips[state] = strip
        return strip
