"""Chooses how a picture reaches the terminal: as pixels, as half blocks in colours or in a palette, or as shades.

Pixels are used if the user asked for them, the terminal has answered that it shows pixels, and the connection is fast. Otherwise
the picture is drawn with cells, for the available size, the available colours, and the speed of the connection. While the speed is
unknown, the picture is drawn with the fewest bytes; the time that these bytes take shows whether the connection is fast enough for
more.

Tests: `tests/tui/widgets/test_picture_drawing.py`, `tests/tui/widgets/test_textview.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style

from aptui.tui.background import run_in_background
from aptui.tui.pictures.decoder import Pixels
from aptui.tui.terminal.output.display import DiffRenderingApp, output_of
from aptui.tui.terminal.pixels import MOST_CELLS, PixelPicture, PixelScreen, encode
from aptui.tui.terminal.safety import FIRST_COLUMN, PICTURE, facts

if TYPE_CHECKING:
    from textual.timer import Timer
    from textual.widget import Widget

    from aptui.tui.pictures.blocks import Ground, Manner
    from aptui.tui.terminal.output.layer import OutputLayer
    from aptui.tui.widgets.cells import Painter

_FEW = 16
_MOST_S = 0.4
"""Maximum time that a picture may occupy the connection to the terminal (seconds); a slower picture is drawn with fewer bytes.

The slowest connections get shades of grey, which need at most as many bytes as a screen of text.
"""
_RETRIES, _RETRY_S = 4, 0.5
"""Number of retries with more bytes while the speed of the connection is unknown, and their interval (seconds)."""
_PIXELS_A_BYTE = 2
"""Typical number of pixels that one byte of a protocol carries; it decides whether a picture is encoded at all."""


class Picture:
    """A picture that is drawn again whenever the size or the theme changed; `close` removes it from the terminal."""

    def __init__(self, pixels: Pixels) -> None:
        self._pixels = pixels
        self._drawn_for: tuple[int, int, Painter, PixelScreen | None] | None = None
        self._lines: list[list[Segment]] = []
        self._is_least = False
        self._retries = 0
        self._retry_timer: Timer | None = None
        self._remove: Callable[[], object] = lambda: None

    def lines(self, widget: Widget, columns: int, rows: int, painter: Painter) -> list[list[Segment]]:
        """Return the lines, at most `rows`, each at most `columns` cells wide."""
        output = _pixel_output(widget, painter)
        wanted = (columns, rows, painter, output.pixels if output is not None else None)
        if wanted != self._drawn_for:
            self.close()
            self._drawn_for, self._retries = wanted, 0
            self._draw(widget)
        return self._lines

    def close(self) -> None:
        """Stop the retries and remove the picture from the terminal, because another picture is shown."""
        self._is_least, self._drawn_for = False, None
        if self._retry_timer is not None:
            self._retry_timer.stop()
        self._remove()
        self._remove = lambda: None

    def _retry(self, widget: Widget) -> None:
        """Draw with more bytes if the connection turned out to be fast enough."""
        before = self._lines
        if self._is_least and self._drawn_for is not None and widget.is_attached:
            self._draw(widget)
            if self._lines != before:
                widget.refresh()

    def _draw(self, widget: Widget) -> None:
        assert self._drawn_for is not None
        columns, rows, painter, screen = self._drawn_for
        output, ground = _pixel_output(widget, painter), _ground(widget, painter)
        if output is not None and screen is not None and _carries(widget, _estimate_bytes(columns, rows, screen)):
            self._lines, self._is_least = [], False
            self._encode(widget, output, ground)
            return
        self._draw_cells(widget, ground, is_least=screen is not None)

    def _draw_cells(self, widget: Widget, ground: Ground, *, is_least: bool) -> None:
        from aptui.tui.pictures.blocks import bytes_of, draw_picture  # imported here to start faster

        assert self._drawn_for is not None
        columns, rows, painter, _ = self._drawn_for
        best, *_ = manners = _manners(painter)
        for manner in manners:
            self._lines = draw_picture(self._pixels, columns, rows, manner, ground, is_utf8=facts().is_utf8)
            self._is_least = is_least or manner is not best
            if _carries(widget, bytes_of(self._lines)):
                break
        if self._is_least and self._retries < _RETRIES:
            self._retries += 1
            self._retry_timer = widget.set_timer(_RETRY_S, partial(self._retry, widget))

    # --------------------------------------------------------------------------------------------------------------- pixels

    def _encode(self, widget: Widget, output: OutputLayer, ground: Ground) -> None:
        """Encode the picture in a thread; its place is empty until then."""
        drawn_for = self._drawn_for
        assert drawn_for is not None
        columns, rows, _, screen = drawn_for
        assert screen is not None
        number = output.new_number()

        def work() -> None:
            from aptui.tui.pictures.blocks import draw_pixels  # imported here to start faster

            image = draw_pixels(self._pixels, min(columns, MOST_CELLS), min(rows, MOST_CELLS), screen.cell, ground)
            picture = None if image is None else encode(image, number, screen)
            if picture is not None:
                widget.call_later(accept, picture)

        def accept(picture: PixelPicture) -> None:
            if self._drawn_for is not drawn_for or not widget.is_attached:
                return
            if not _carries(widget, len(picture.data)):
                self._draw_cells(widget, ground, is_least=False)
            else:
                output.add_picture(picture)
                self._remove = partial(output.remove_picture, number)
                self._lines = _place(picture, ground.style)
            widget.refresh()

        run_in_background("aptui-pixels", work)


def pixel_cell(widget: Widget) -> tuple[int, int] | None:
    """Return width and height of a cell in pixels if the terminal shows pictures as pixels."""
    output = output_of(widget.app)
    return output.pixels.cell if output is not None and output.pixels is not None else None


def _pixel_output(widget: Widget, painter: Painter) -> OutputLayer | None:
    """Return the output if it takes pixels; a theme without colours has only shades."""
    output = output_of(widget.app)
    return output if output is not None and output.pixels is not None and _has_colours(painter) else None


def _estimate_bytes(columns: int, rows: int, screen: PixelScreen) -> int:
    return columns * screen.cell[0] * rows * screen.cell[1] // _PIXELS_A_BYTE


def _place(picture: PixelPicture, ground: Style) -> list[list[Segment]]:
    """Return the cells that show a picture."""
    text = "".join(chr(FIRST_COLUMN + column) for column in range(picture.columns))
    return [[Segment(text, ground + Style.from_meta({PICTURE: (picture.number, row)}))] for row in range(picture.rows)]


def _ground(widget: Widget, painter: Painter) -> Ground:
    from aptui.tui.pictures.blocks import Ground  # imported here to start faster

    is_dark = widget.app.current_theme.dark
    colour = painter.ground.bgcolor
    known = colour.triplet if colour is not None else None
    paper = (known.red, known.green, known.blue) if known is not None else (0, 0, 0) if is_dark else (255, 255, 255)
    return Ground(painter.ground, paper, is_dark)


def _carries(widget: Widget, size: int) -> bool:
    """Return whether the connection is known to carry `size` bytes in time."""
    if not isinstance(widget.app, DiffRenderingApp):
        return True
    takes_s = widget.app.line_takes_s(size)
    return takes_s is not None and takes_s <= _MOST_S


def _has_colours(painter: Painter) -> bool:
    colour = painter.style("failed").color
    return facts().colours > _FEW and colour is not None and not colour.is_default


def _manners(painter: Painter) -> tuple[Manner, ...]:
    """Return the ways to draw a picture in cells on this terminal, the best first.

    A theme without colours has only shades.
    """
    from aptui.tui.pictures.blocks import Manner  # imported here to start faster

    return tuple(Manner)[1 if facts().colours == 256 else 0 :] if _has_colours(painter) else (Manner.SHADES,)
