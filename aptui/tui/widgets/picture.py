"""The lines of a picture in the room there is, in the colours there are, and in no more bytes than the line carries soon.

Tests: `tests/tui/widgets/test_picture.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aptui.tui.terminal.output.display import ThriftyApp
from aptui.tui.terminal.safety import facts

if TYPE_CHECKING:
    from rich.segment import Segment
    from textual.widget import Widget

    from aptui.tui.pictures.blocks import Manner
    from aptui.tui.pictures.pixels import Pixels
    from aptui.tui.widgets.cells import Painter

_FEW = 16
_MOST_S = 0.4
"""A picture that fills the line for longer is drawn with fewer bytes; greys take no more than a screen of text."""


class Picture:
    """A picture as it was drawn last; drawn anew where room or colours are others."""

    def __init__(self, pixels: Pixels) -> None:
        self._pixels = pixels
        self._drawn_for: tuple[object, ...] = ()
        self._lines: list[list[Segment]] = []

    def lines(self, widget: Widget, columns: int, rows: int, painter: Painter) -> list[list[Segment]]:
        """Return the lines, at most `rows`, each at most `columns` cells wide."""
        wanted = (columns, rows, painter)
        if wanted != self._drawn_for:
            self._drawn_for, self._lines = wanted, self._draw(widget, columns, rows, painter)
        return self._lines

    def _draw(self, widget: Widget, columns: int, rows: int, painter: Painter) -> list[list[Segment]]:
        from aptui.tui.pictures.blocks import Ground, bytes_of, drawn  # for start-up

        is_dark = widget.app.current_theme.dark
        colour = painter.ground.bgcolor
        known = colour.triplet if colour is not None else None
        paper = (known.red, known.green, known.blue) if known is not None else (0, 0, 0) if is_dark else (255, 255, 255)
        ground = Ground(painter.ground, paper, is_dark)
        lines: list[list[Segment]] = []
        for manner in _manners(painter):
            lines = drawn(self._pixels, columns, rows, manner, ground, is_utf8=facts().is_utf8)
            if not isinstance(widget.app, ThriftyApp) or widget.app.line_takes_s(bytes_of(lines)) <= _MOST_S:
                break
        return lines


def _manners(painter: Painter) -> tuple[Manner, ...]:
    """Return how a picture may be drawn here, the best first; a theme without colours has none for pictures either."""
    from aptui.tui.pictures.blocks import Manner  # for start-up

    colour = painter.style("failed").color
    if facts().colours <= _FEW or colour is None or colour.is_default:
        return (Manner.SHADES,)
    return tuple(Manner)[1 if facts().colours == 256 else 0 :]
