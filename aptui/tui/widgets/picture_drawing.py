"""Chooses how a picture is drawn on the terminal: as pixels, as half blocks in all colours or in a palette, or as shades of grey.

Pixels are used if the user asked for them, the terminal has answered that it shows pixels, and the connection is fast. Otherwise
the picture is drawn with cells, for the available size, the available colours, and the speed of the connection. While the speed is
unknown, the picture is drawn with the fewest bytes. The time that these bytes take shows whether the connection is fast enough for
a better picture.

A cell shows two pixels as an upper half block in two colours, or a shade if colours are few. Drawings (lines on transparent ground)
become dots of braille in their colours: 2 × 4 dots for each cell. Transparent pixels show a faint checker, so that the shape of a
picture is visible. Two methods save bytes. Colours are rounded a little, so that more neighbours have the same colour. A cell whose
two pixels are equal is sent as a blank.

Tests: `tests/tui/widgets/test_blocks.py`, `tests/tui/widgets/test_picture_drawing.py`, `tests/tui/widgets/test_textview.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from rich.color import Color
from rich.segment import Segment
from rich.style import Style

from aptui.tui.background import call_after, run_in_background
from aptui.tui.pictures.decoder import CHANNELS, Pixels, fit_size
from aptui.tui.preferences.theming import PALETTE
from aptui.tui.terminal.output.display import DiffRenderingApp, output_of
from aptui.tui.terminal.pixels import MOST_CELLS, PixelPicture, PixelScreen, encode
from aptui.tui.terminal.safety import FIRST_COLUMN, PICTURE, facts

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from textual.timer import Timer
    from textual.widget import Widget

    from aptui.tui.terminal.output.layer import OutputLayer
    from aptui.tui.widgets.cells import Painter

    Grid = NDArray[np.float32]

_FEW = 16
_MOST_S = 0.4
"""Maximum time that a picture may occupy the connection to the terminal (seconds); a slower picture is drawn with fewer bytes.

The slowest connections get shades of grey, which need at most as many bytes as a screen of text.
"""
_RETRIES, _RETRY_S = 4, 0.5
"""Maximum number and interval (seconds) of retries that draw a coarse picture in better quality.

A picture is coarse if the connection to the terminal is slow, or if its speed is not measured yet.
"""
_PIXELS_A_BYTE = 2
"""Estimated number of pixels that one byte of an encoded picture carries.

A picture is not encoded as pixels if, by this estimate, the connection is too slow for its bytes.
"""


class Picture:
    """A picture, which is drawn again when the size or the theme changes; `close` removes it from the terminal."""

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
        """Draw the picture in better quality if the connection turned out to be fast enough."""
        before = self._lines
        if self._is_least and self._drawn_for is not None and widget.is_attached:
            self._draw(widget)
            if self._lines != before:
                widget.refresh()

    def _draw(self, widget: Widget) -> None:
        assert self._drawn_for is not None
        columns, rows, painter, screen = self._drawn_for
        output, ground = _pixel_output(widget, painter), _ground(widget, painter)
        if output is not None and screen is not None:
            estimated_bytes = columns * screen.cell[0] * rows * screen.cell[1] // _PIXELS_A_BYTE
            if _is_fast_enough(widget, estimated_bytes):
                self._lines, self._is_least = [], False
                self._encode(widget, output, ground)
                return
        self._draw_cells(widget, ground, is_least=screen is not None)

    def _draw_cells(self, widget: Widget, ground: Ground, *, is_least: bool) -> None:
        assert self._drawn_for is not None
        columns, rows, painter, _ = self._drawn_for
        best, *_ = manners = _manners(painter)
        for manner in manners:
            self._lines = draw_picture(self._pixels, columns, rows, manner, ground, is_utf8=facts().is_utf8)
            self._is_least = is_least or manner is not best
            if _is_fast_enough(widget, bytes_of(self._lines)):
                break
        if self._is_least and self._retries < _RETRIES:
            self._retries += 1
            self._retry_timer = call_after(widget, _RETRY_S, partial(self._retry, widget))

    # --------------------------------------------------------------------------------------------------------------- pixels

    def _encode(self, widget: Widget, output: OutputLayer, ground: Ground) -> None:
        """Encode the picture in a thread; its cells stay empty until it is encoded."""
        drawn_for = self._drawn_for
        assert drawn_for is not None
        columns, rows, _, screen = drawn_for
        assert screen is not None
        number = output.new_number()

        def work() -> None:
            image = draw_pixels(self._pixels, min(columns, MOST_CELLS), min(rows, MOST_CELLS), screen.cell, ground)
            picture = None if image is None else encode(image, number, screen)
            if picture is not None:
                widget.call_later(accept, picture)

        def accept(picture: PixelPicture) -> None:
            if self._drawn_for is not drawn_for or not widget.is_attached:
                return
            if not _is_fast_enough(widget, len(picture.data)):
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
    """Return the output layer if it can show pixels and the theme has colours, else None (draw with characters)."""
    output = output_of(widget.app)
    return output if output is not None and output.pixels is not None and _has_colours(painter) else None


def _place(picture: PixelPicture, ground: Style) -> list[list[Segment]]:
    """Return one line of cells for each row of a picture that is shown as pixels; a cell names the picture, a row and a column."""
    text = "".join(chr(FIRST_COLUMN + column) for column in range(picture.columns))
    return [[Segment(text, ground + Style.from_meta({PICTURE: (picture.number, row)}))] for row in range(picture.rows)]


def _ground(widget: Widget, painter: Painter) -> Ground:
    is_dark = widget.app.current_theme.dark
    colour = painter.ground.bgcolor
    known = colour.triplet if colour is not None else None
    paper = (known.red, known.green, known.blue) if known is not None else (0, 0, 0) if is_dark else (255, 255, 255)
    return Ground(painter.ground, paper, is_dark)


def _is_fast_enough(widget: Widget, size: int) -> bool:
    """Return whether the connection is known to be fast enough for `size` bytes (`_MOST_S`)."""
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
    return tuple(Manner)[1 if facts().colours == 256 else 0 :] if _has_colours(painter) else (Manner.SHADES,)


# ------------------------------------------------------------------------------------------------- pictures as cells and pixels

_UPPER = "▀"
_SHADES, _ASCII_SHADES = " ░▒▓█", " .:+#"
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of the dots of a braille character (from U+2800 on), by row and column."""
_INKED_FROM = 0.2
"""A dot is drawn if the lines of a drawing cover at least this share of it."""
_CHECKER_PIXELS = 4
_CHECKER = (0.06, 0.14)
"""The checker's two colours, each as a share of the way from the background to middle grey."""
_ROUNDED = 3
"""Each channel is rounded to multiples of this number: the difference is invisible, and areas of similar colours get one colour."""
_EYE = (0.299, 0.587, 0.114)
_STRETCHED_FROM = 0.12
"""Minimum contrast of greys that is stretched to full contrast; a picture with less contrast is a single grey with noise."""
_VIVID = 1.5
"""Factor of saturation before the nearest of 240 colours is chosen. Without it, most dark and pale colours would become grey."""


class Manner(StrEnum):
    """Ways to draw a picture, from the most to the fewest bytes."""

    COLOURS = "colours"
    PALETTE = "palette"
    SHADES = "shades"


class Ground(NamedTuple):
    """The background of a picture: the style of a blank, and its colour as far as known."""

    style: Style
    colour: tuple[int, int, int]
    is_dark: bool


def draw_picture(
    pixels: Pixels, columns: int, rows: int, manner: Manner, ground: Ground, *, is_utf8: bool = True
) -> list[list[Segment]]:
    """Return the lines of a picture, as large as fits into `columns` × `rows` cells; `Manner.SHADES` draws it in greys."""
    if pixels.is_drawing and is_utf8:
        return _in_dots(pixels, columns, rows, manner, ground)
    width, height = fit_size(pixels.width, pixels.height, columns, rows * 2)
    if not width:
        return []
    picture = _scale(pixels, width, height)
    if height % 2:
        picture = np.concatenate((picture, np.zeros((1, width, CHANNELS), np.float32)))
    if manner is Manner.SHADES:
        return _in_shades(picture, ground, is_utf8=is_utf8)
    return _in_colours(_on_checker(picture, ground, height), manner, ground, is_utf8=is_utf8)


def draw_pixels(pixels: Pixels, columns: int, rows: int, cell: tuple[int, int], ground: Ground) -> NDArray[np.uint8] | None:
    """Return a picture as large as fits into `columns` × `rows` cells, in whole cells of `cell` pixels; None = too narrow.

    Shape: (height, width, 3).
    """
    width, height = fit_size(pixels.width, pixels.height, columns * cell[0], rows * cell[1])
    if not width:
        return None
    scaled = _scale(pixels, width, height)
    paper = np.array(ground.colour, np.float32)
    if pixels.is_drawing:
        seen: Grid = (scaled[..., :3] + paper * (1 - scaled[..., 3:] / 255)).astype(np.float32)
    else:
        seen = _on_checker(scaled, ground, height, side=cell[0])[..., :3]
    image = np.empty((-(-height // cell[1]) * cell[1], -(-width // cell[0]) * cell[0], 3), np.uint8)
    image[:] = paper
    image[:height, :width] = np.clip(np.rint(seen), 0, 255)
    return image


def bytes_of(lines: list[list[Segment]]) -> int:
    """Return the approximate number of bytes of these lines."""
    return sum(
        len(text.encode()) + (40 if style is not None and style.color else 6 if style is None else 20)
        for line in lines
        for text, style, _ in line
    )


def _scale(pixels: Pixels, width: int, height: int) -> Grid:
    """Return the picture scaled to this size, with colours multiplied by alpha.

    Pixels are averaged to shrink it, and repeated to enlarge it.
    """
    data = np.frombuffer(pixels.data, np.uint8).reshape(pixels.height, pixels.width, CHANNELS).astype(np.float32)
    data[..., :3] *= data[..., 3:] / 255
    if width >= pixels.width and height >= pixels.height:
        return data.repeat(height // pixels.height, 0).repeat(width // pixels.width, 1)
    down, across = _shares(pixels.height, height), _shares(pixels.width, width)
    scaled: Grid = np.einsum("yh,hwc,xw->yxc", down, data, across, optimize=True)
    return scaled


def _shares(before: int, after: int) -> Grid:
    """Return the weight of each of `before` old pixels in each of `after` new pixels, as an array (after, before)."""
    edges = np.arange(after + 1) * (before / after)
    places = np.arange(before)
    covered = np.minimum(edges[1:, None], places + 1) - np.maximum(edges[:-1, None], places)
    shares: Grid = (np.clip(covered, 0, None) * (after / before)).astype(np.float32)
    return shares


def _on_checker(picture: Grid, ground: Ground, height: int, side: int = _CHECKER_PIXELS) -> Grid:
    """Put a picture on a checkerboard, which its transparent pixels show.

    In the result, the fourth channel is 1 for lines of the picture (`height` lines). It is 0 for a line that was added below them
    because a cell has two lines.
    """
    down, across = (np.arange(size) // side for size in picture.shape[:2])
    is_odd = ((down[:, None] + across) % 2)[..., None]
    paper = np.array(ground.colour, np.float32)
    fields = [paper + (128 - paper) * share for share in _CHECKER]
    seen = picture[..., :3] + np.where(is_odd, fields[1], fields[0]) * (1 - picture[..., 3:] / 255)
    there = np.ones((*picture.shape[:2], 1), np.float32)
    there[height:] = 0
    whole: Grid = np.concatenate((seen, there), 2)
    return whole


def _in_colours(picture: Grid, manner: Manner, ground: Ground, *, is_utf8: bool) -> list[list[Segment]]:
    upper, lower = picture[0::2], picture[1::2]
    if not is_utf8:  # ASCII has no half block, so each cell gets one colour
        upper = lower = np.where(lower[..., 3:] > 0, (upper + lower) / 2, upper)
    to_colours = _palette if manner is Manner.PALETTE else _round_colours
    tops, bottoms = to_colours(upper[..., :3]), to_colours(lower[..., :3])
    styles: dict[tuple[int, ...], Style] = {}
    lines = []
    for above, below, is_there in zip(tops.tolist(), bottoms.tolist(), (lower[..., 3] > 0).tolist(), strict=True):
        line: list[tuple[str, tuple[int, ...]]] = []
        for one, other, is_whole in zip(above, below, is_there, strict=True):
            is_even = is_whole and one == other
            colours = (-1, one) if is_even else (one, other if is_whole else -1)
            text = " " if is_even else _UPPER
            if line and line[-1][1] == colours:
                line[-1] = (line[-1][0] + text, colours)
            else:
                line.append((text, colours))
            styles[colours] = styles.get(colours) or _style(colours, ground.style)
        lines.append([Segment(text, styles[colours]) for text, colours in line])
    return lines


def _style(colours: tuple[int, ...], ground: Style) -> Style:
    front, back = (None if colour < 0 else Color.from_rgb(colour >> 16, colour >> 8 & 255, colour & 255) for colour in colours)
    return ground + Style(color=front, bgcolor=back)


def _round_colours(colours: Grid) -> NDArray[np.int64]:
    return _numbers(np.clip(np.rint(colours / _ROUNDED) * _ROUNDED, 0, 255))


def _palette(colours: Grid) -> NDArray[np.int64]:
    """Return the nearest of 240 colours for each pixel, weighted as the eye sees (see `theming.fit_colours`); greys stay grey."""
    grey = colours @ np.array(_EYE, np.float32)[:, None]
    vivid: Grid = (grey + (colours - grey) * _VIVID).astype(np.float32)
    flat = _round_colours(vivid)
    unique, places = np.unique(flat, return_inverse=True)
    mine = np.stack((unique >> 16, unique >> 8 & 255, unique & 255), 1).astype(np.float32)
    theirs = np.array(PALETTE, np.float32)
    mean = (mine[:, None, 0] + theirs[:, 0]) / 2
    difference = [(mine[:, None, channel] - theirs[:, channel]) ** 2 for channel in range(3)]
    distance = (2 + mean / 256) * difference[0] + 4 * difference[1] + (2 + (255 - mean) / 256) * difference[2]
    nearest: NDArray[np.int64] = _numbers(theirs[distance.argmin(1)])[places.reshape(flat.shape)]
    return nearest


def _numbers(colours: Grid) -> NDArray[np.int64]:
    whole = colours.astype(np.int64)
    numbers: NDArray[np.int64] = (whole[..., 0] << 16) | (whole[..., 1] << 8) | whole[..., 2]
    return numbers


def _in_dots(pixels: Pixels, columns: int, rows: int, manner: Manner, ground: Ground) -> list[list[Segment]]:
    width, height = fit_size(pixels.width, pixels.height, columns * 2, rows * 4)
    if not width:
        return []
    picture = np.zeros((-(-height // 4) * 4, -(-width // 2) * 2, CHANNELS), np.float32)
    picture[:height, :width] = _scale(pixels, width, height)
    is_inked = picture[..., 3] >= 255 * _INKED_FROM * min(1, 2 * width / pixels.width)
    letters = np.full((len(picture) // 4, picture.shape[1] // 2), 0x2800)
    inks = np.zeros((*letters.shape, CHANNELS), np.float32)
    for row, bits in enumerate(_DOTS):
        for column, bit in enumerate(bits):
            letters += is_inked[row::4, column::2] * bit
            inks += picture[row::4, column::2]
    colours: Grid = (inks[..., :3] * (255 / np.maximum(inks[..., 3:], 1))).astype(np.float32)
    numbers = (_palette if manner is Manner.PALETTE else _round_colours)(colours)
    if manner is Manner.SHADES:
        numbers[:] = -1
    numbers[letters == 0x2800] = -1
    lines = []
    for texts, foregrounds in zip(letters.tolist(), numbers.tolist(), strict=True):
        cells = zip(texts, foregrounds, strict=True)
        runs = groupby(cells, lambda cell: cell[1])
        lines.append([
            Segment("".join(chr(letter) if letter != 0x2800 else " " for letter, _ in run), _style((colour, -1), ground.style))
            for colour, run in runs
        ])  # fmt: skip
    return lines


def _in_shades(picture: Grid, ground: Ground, *, is_utf8: bool) -> list[list[Segment]]:
    """Return the lines of a picture in shades: each cell shows its grey by the share that is filled with ink.

    Ink is light on a dark ground, and dark on a light ground.
    """
    cells = (picture[0::2] + picture[1::2]) / 2
    alpha = cells[..., 3] / 255
    light = cells[..., :3] @ np.array(_EYE, np.float32) / 255
    light = light / np.maximum(alpha, 1 / 255)
    seen = light[alpha > 0.5]
    darkest, lightest = (float(each) for each in np.percentile(seen, (2, 98))) if seen.size else (0.0, 1.0)
    if lightest - darkest > _STRETCHED_FROM:
        light = np.clip((light - darkest) / (lightest - darkest), 0, 1)
    ink = (light if ground.is_dark else 1 - light) * alpha
    shades = _SHADES if is_utf8 else _ASCII_SHADES
    levels = np.rint(ink * (len(shades) - 1)).astype(int).tolist()
    return [[Segment("".join(shades[level] for level in line), ground.style)] for line in levels]
