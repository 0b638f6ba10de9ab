"""Convert frames of the screen to one animated SVG.

A row that several frames share is drawn once, and is visible only during these frames.

`tests.pictures` records the frames, and stores the animation in `pictures/`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len

if TYPE_CHECKING:
    from rich.style import Style

_CELL, _LINE, _SIZE = 8.4, 18, 14
"""Pixels: the width of a cell, the height of a line, the size of a letter."""
_FONTS = "ui-monospace, 'Cascadia Mono', 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_BLANK = "\u00a0"
"""A non-breaking blank, because viewers merge ordinary blanks."""

Piece = tuple[int, str, str, str, bool, bool]
"""Text of one style within a row: (first cell, text, colour, background colour, is bold, is italic)."""


class Frame(NamedTuple):
    """A frame: the seconds for which the frame is shown, and the pieces (runs of equal style) of each row."""

    rows: tuple[tuple[Piece, ...], ...]
    seconds: float


def row_of(segments: Sequence[tuple[str, Style | None]]) -> tuple[Piece, ...]:
    """Return the pieces of a row; blanks with a different background are pieces, too."""
    pieces: list[Piece] = []
    at = 0
    for text, style in segments:
        fore, ground = _colours(style)
        if text:
            pieces.append((at, text, fore, ground, bool(style and style.bold), bool(style and style.italic)))
        at += cell_len(text)
    return tuple(pieces)


def svg_of(frames: Sequence[Frame], columns: int, *, poster: int) -> str:
    """Return the animation, which repeats; viewers without animation show the frame with the number `poster`."""
    ground = _most_common_ground(frames)
    total_s = sum(frame.seconds for frame in frames)
    starts = [sum(frame.seconds for frame in frames[:at]) / total_s for at in range(len(frames) + 1)]
    drawn: list[str] = []
    styles: dict[tuple[str, bool, bool], str] = {}
    for y in range(len(frames[0].rows)):
        variants: dict[tuple[Piece, ...], list[int]] = {}
        for at, frame in enumerate(frames):
            variants.setdefault(frame.rows[y], []).append(at)
        for row, places in variants.items():
            if body := "".join(_row(row, y, ground, styles)):
                drawn.append(_while_shown(body, places, starts, total_s, is_first=poster in places))
    width, height = round(columns * _CELL) + 16, len(frames[0].rows) * _LINE + 16
    rules = "".join(
        f".{name}{{fill:{fore}{';font-weight:bold' if is_bold else ''}{';font-style:italic' if is_italic else ''}}}"
        for (fore, is_bold, is_italic), name in styles.items()
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
        f"<style>text{{font:{_SIZE}px {_FONTS};white-space:pre}}{rules}</style>"
        f'<rect width="{width}" height="{height}" rx="6" fill="{ground}"/><g transform="translate(8 8)">\n'
        + "\n".join(drawn)
        + "\n</g></svg>\n"
    )


def _while_shown(body: str, places: list[int], starts: list[float], total_s: float, *, is_first: bool) -> str:
    """Return the SVG of a row. It is visible only in the frames whose numbers are in `places`."""
    if len(places) == len(starts) - 1:
        return f"<g>{body}</g>"
    times, values = [0.0], ["visible" if 0 in places else "hidden"]
    for at in range(1, len(starts) - 1):
        value = "visible" if at in places else "hidden"
        if value != values[-1]:
            times.append(starts[at])
            values.append(value)
    key_times = ";".join(f"{time:.4f}".rstrip("0").rstrip(".") for time in times)
    return (
        f'<g visibility="{"visible" if is_first else "hidden"}"><animate attributeName="visibility" calcMode="discrete" '
        f'dur="{total_s:g}s" repeatCount="indefinite" keyTimes="{key_times}" values="{";".join(values)}"/>{body}</g>'
    )


def _row(row: tuple[Piece, ...], y: int, ground: str, styles: dict[tuple[str, bool, bool], str]) -> Iterator[str]:
    for at, text, _fore, own, _is_bold, _is_italic in row:
        if own != ground:
            yield f'<rect x="{at * _CELL:.1f}" y="{y * _LINE}" width="{cell_len(text) * _CELL:.1f}" height="{_LINE}" fill="{own}"/>'
    for at, text, fore, _own, is_bold, is_italic in row:
        bare = text.strip(" ")
        if not bare:
            continue
        name = styles.setdefault((fore, is_bold, is_italic), f"s{len(styles)}")
        first = at + len(text) - len(text.lstrip(" "))
        length = cell_len(bare) * _CELL
        yield (
            f'<text class="{name}" x="{first * _CELL:.1f}" y="{y * _LINE + _SIZE - 1}" textLength="{length:.1f}">'
            f"{escape(bare, quote=False).replace(' ', _BLANK)}</text>"
        )


def _colours(style: Style | None) -> tuple[str, str]:
    fore = style.color.get_truecolor().hex if style and style.color else "#c0c0c0"
    ground = style.bgcolor.get_truecolor().hex if style and style.bgcolor else "#000000"
    return (ground, fore) if style and style.reverse else (fore, ground)


def _most_common_ground(frames: Sequence[Frame]) -> str:
    counts: dict[str, int] = {}
    for row in frames[0].rows:
        for _at, text, _fore, ground, *_ in row:
            counts[ground] = counts.get(ground, 0) + len(text)
    return max(counts, key=lambda each: counts[each])
