"""The lines of a picture in the room there is, in the colours there are, and in no more bytes than the line carries soon.

As long as nobody knows what the line carries a picture has the fewest bytes; what these took tells whether it can have more.

Tests: `tests/tui/widgets/test_picture.py`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from aptui.tui.terminal.output.display import ThriftyApp
from aptui.tui.terminal.safety import facts

if TYPE_CHECKING:
    from rich.segment import Segment
    from textual.timer import Timer
    from textual.widget import Widget

    from aptui.tui.pictures.blocks import Manner
    from aptui.tui.pictures.pixels import Pixels
    from aptui.tui.widgets.cells import Painter

_FEW = 16
_MOST_S = 0.4
"""A picture that fills the line for longer is drawn with fewer bytes; greys take no more than a screen of text."""
_RETRIES, _RETRY_S = 4, 0.5
"""So often, and after so long, is looked again whether the line carries more than was thought."""


class Picture:
    """A picture as it was drawn last; drawn anew where room or colours are others."""

    def __init__(self, pixels: Pixels) -> None:
        self._pixels = pixels
        self._drawn_for: tuple[int, int, Painter] | None = None
        self._lines: list[list[Segment]] = []
        self._is_least = False
        self._retries = 0
        self._retry_timer: Timer | None = None

    def lines(self, widget: Widget, columns: int, rows: int, painter: Painter) -> list[list[Segment]]:
        """Return the lines, at most `rows`, each at most `columns` cells wide."""
        wanted = (columns, rows, painter)
        if wanted != self._drawn_for:
            self.put_away()
            self._drawn_for, self._retries = wanted, 0
            self._draw(widget, columns, rows, painter)
        return self._lines

    def put_away(self) -> None:
        """Look no more: another one is shown."""
        if self._retry_timer is not None:
            self._retry_timer.stop()

    def _retry(self, widget: Widget) -> None:
        """Draw it with more bytes, if it has fewer than it could have and they would be there soon after all."""
        before = self._lines
        if self._is_least and self._drawn_for is not None and widget.is_attached:
            self._draw(widget, *self._drawn_for)
            if self._lines != before:
                widget.refresh()

    def _draw(self, widget: Widget, columns: int, rows: int, painter: Painter) -> None:
        from aptui.tui.pictures.blocks import Ground, bytes_of, draw_picture  # for start-up

        is_dark = widget.app.current_theme.dark
        colour = painter.ground.bgcolor
        known = colour.triplet if colour is not None else None
        paper = (known.red, known.green, known.blue) if known is not None else (0, 0, 0) if is_dark else (255, 255, 255)
        ground = Ground(painter.ground, paper, is_dark)
        best, *_ = manners = _manners(painter)
        for manner in manners:
            self._lines = draw_picture(self._pixels, columns, rows, manner, ground, is_utf8=facts().is_utf8)
            self._is_least = manner is not best
            if _carries(widget, bytes_of(self._lines)):
                break
        if self._is_least and self._retries < _RETRIES:
            self._retries += 1
            self._retry_timer = widget.set_timer(_RETRY_S, partial(self._retry, widget))


def _carries(widget: Widget, size: int) -> bool:
    """Return whether the line is known to carry so many bytes soon."""
    if not isinstance(widget.app, ThriftyApp):
        return True
    takes_s = widget.app.line_takes_s(size)
    return takes_s is not None and takes_s <= _MOST_S


def _manners(painter: Painter) -> tuple[Manner, ...]:
    """Return how a picture may be drawn here, the best first; a theme without colours has none for pictures either."""
    from aptui.tui.pictures.blocks import Manner  # for start-up

    colour = painter.style("failed").color
    if facts().colours <= _FEW or colour is None or colour.is_default:
        return (Manner.SHADES,)
    return tuple(Manner)[1 if facts().colours == 256 else 0 :]
