"""Cells of tables and lists, and their segments: measuring, shortening, highlighting, roles. This module has no widget."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.color import Color
from rich.segment import Segment
from rich.style import Style

from aptui.tui.preferences.theming import Roles, legible, roles
from aptui.tui.terminal.safety import facts, glyph, make_safe
from aptui.tui.words import shorten

if TYPE_CHECKING:
    from textual.widget import Widget

BAR_CELLS = 8
"""Width of the bar of a share, in cells."""
Spans = tuple[tuple[int, int], ...]
"""Ranges (start, end) of characters, ascending and not overlapping."""


class Cell(NamedTuple):
    """A cell: foreign text, its role (of `theming.ROLES`, "" = plain), and the ranges of the text to highlight as matches."""

    text: str
    role: str = ""
    spans: Spans = ()


def add_prefix(prefix: str, cell: Cell) -> Cell:
    """Return a copy of `cell` with `prefix` before its text; the ranges of matches move to the right."""
    shift = len(prefix)
    return Cell(prefix + cell.text, cell.role, tuple((start + shift, end + shift) for start, end in cell.spans))


class Fitted(NamedTuple):
    """The text of a cell at the requested width, with the ranges of its matches."""

    text: str
    spans: Spans


def width_of(text: str) -> int:
    """Return the width of a text in cells."""
    return len(text) if text.isascii() else cell_len(text)


def safe(text: str, spans: Spans = ()) -> Fitted:
    """Remove control characters from foreign text, and shift the ranges of its matches."""
    if text.isprintable():
        return Fitted(make_safe(text), spans)
    if not spans:
        return Fitted(make_safe(text), ())
    pieces, moved, at, length = [], [], 0, 0
    for start, end in spans:
        before, match = make_safe(text[at:start]), make_safe(text[start:end])
        pieces += [before, match]
        moved.append((length + len(before), length + len(before) + len(match)))
        length += len(before) + len(match)
        at = end
    return Fitted("".join(pieces) + make_safe(text[at:]), tuple(moved))


@lru_cache(maxsize=8192)
def fit(
    text: str,
    width: int,
    *,
    align: str = "left",
    spans: Spans = (),
    offset: int = 0,
    is_prose: bool = False,
    is_name: bool = False,
) -> Fitted:
    """Return foreign text in exactly `width` cells: padded, or shortened with "…".

    A path (it holds "/") loses its middle and keeps its file name; other text loses its end.

    Args:
        is_prose: the end is cut even if the text holds "/".
        is_name: the middle is cut even if the text holds no "/", because names often differ in a number at their end.
        offset: number of cells scrolled out at the left; scrolled text is cut at both ends instead of in the middle.
    """
    text, spans = safe(text, spans)
    if width <= 0:
        return Fitted("", ())
    wide = width_of(text)
    if offset and wide > width:
        text, spans = _scroll(text, spans, min(offset, wide - width))
        wide = width_of(text)
    if wide <= width:
        blanks = " " * (width - wide)
        if align == "right":
            return Fitted(blanks + text, tuple((start + len(blanks), end + len(blanks)) for start, end in spans))
        return Fitted(text + blanks, spans)
    lead = _count_lead(text)
    if offset or not 0 < lead <= width // 2:
        return _shorten(text, width, spans, keeps_end=(is_name or "/" in text) and not offset and not is_prose)
    # In a tree, the indent of a name shows the depth of its node, and a click on the sign opens the node. So neither is ever cut.
    name, spans = text[lead:], tuple((start - lead, end - lead) for start, end in spans if start >= lead)
    cut = _shorten(name, width - lead, spans, keeps_end=(is_name or "/" in name) and not is_prose)
    return Fitted(text[:lead] + cut.text, tuple((start + lead, end + lead) for start, end in cut.spans))


def _count_lead(text: str) -> int:
    """Return the number of characters before a name: its indent, and the sign of a row that can be opened or closed."""
    lead = len(text) - len(text.lstrip(" "))
    signs = (f"{glyph('open')} ", f"{glyph('closed')} ")
    return lead + len(signs[0]) if text[lead : lead + len(signs[0])] in signs else lead


def _scroll(text: str, spans: Spans, offset: int) -> Fitted:
    """Drop cells from the left and put "…" in their place."""
    dropped = _count_in(text, offset + 1)
    return Fitted(glyph("ellipsis") + text[dropped:], _move_place(spans, 0, dropped))


def _shorten(text: str, width: int, spans: Spans, *, keeps_end: bool) -> Fitted:
    """Cut one range out of a text and put "…" in its place."""
    tail = 0
    if keeps_end:
        name = text[text.rfind("/") :] if "/" in text else ""
        tail = width_of(name) if width_of(name) < width else (width - 1) * 2 // 3
        tail = max(tail, (width - 1) // 2)
    start = _count_in(text, width - 1 - tail)
    end = len(text) - _count_in(text[::-1], tail)
    cut = text[:start] + glyph("ellipsis") + text[end:]
    moved = _move_place(spans, start, end)
    if (wide := width_of(cut)) < width:  # a wide letter did not fit into the last cell: fill the cell with a blank
        cut += " " * (width - wide)
    return Fitted(cut, moved)


def _move_place(spans: Spans, start: int, end: int) -> Spans:
    """Return the spans for a text in which one character has replaced the characters from `start` to `end`."""
    shift = end - start - 1
    moved = []
    for a, b in spans:
        a = a if a < start else max(a - shift, start)  # noqa: PLW2901  # the same character, after the cut
        b = b if b <= start else max(b - shift, start + 1)  # noqa: PLW2901  # as above
        if b > a:
            moved.append((a, b))
    return tuple(moved)


def _count_in(text: str, cells: int) -> int:
    """Return the number of leading characters that fit into `cells`."""
    if text.isascii():
        return min(len(text), cells)
    taken = 0
    for count, character in enumerate(text):
        taken += cell_len(character)
        if taken > cells:
            return count
    return len(text)


def wrap_at_most(text: str, width: int, most: int) -> list[str]:
    """Return the rows of a safe text, at most `most`; if rows are left out, the last row ends with an ellipsis."""
    spans = wrap(text, width)
    rows = [text[start:end] for start, end in spans[:most]]
    if len(spans) > most:
        rows[-1] = shorten(text[spans[most - 1][0] :], width)
    return rows


def wrap(text: str, width: int) -> list[tuple[int, int]]:
    """Return (start, end) of each row of at most `width` cells of a safe text.

    Rows break at blanks. A word that is wider than a row is divided if it begins in the first half of a row, if possible after a
    slash. If it begins in the second half, the row breaks before the word.
    """
    rows, start, width = [], 0, max(1, width)
    while width_of(text[start : start + width + 1]) > width:
        count = max(1, _count_in(text[start : start + width + 1], width))
        end = _break(text, start, count, width)
        rows.append((start, end))
        start = end
    rows.append((start, len(text)))
    return rows


def _break(text: str, start: int, count: int, width: int) -> int:
    """Return the end of the row that starts at `start` and has room for `count` characters.

    A blank at the end belongs to the row.
    """
    blank = text.rfind(" ", start + 1, start + count + 1)
    half = start + count // 2
    if blank < half:
        word = text[max(blank, start) : start + 2 * width + 1].lstrip(" ").partition(" ")[0]
        if blank < 0 or width_of(word) > width:
            slash = text.rfind("/", half, start + count)
            if slash < 0:  # break after a slash in the first half of the row only if the rest of the word fits into the next row
                slash = text.rfind("/", start + 1, half)
                slash = slash if width_of(text[slash + 1 : slash + 2 + width].partition(" ")[0]) <= width else -1
            return slash + 1 if slash > 0 else start + count
    return blank + 1


class Painter:
    """Turns cells into segments in the styles of a theme.

    A widget makes a new painter when the theme or the widget's background changes.
    """

    def __init__(self, styles: Roles, ground: Style) -> None:
        self._roles, self.ground = styles, ground
        self._made: dict[tuple[str, bool, bool], Style] = {}

    def style(self, role: str = "", *, is_cursor: bool = False, is_match: bool = False) -> Style:
        """Return the style of a role; unknown roles are plain."""
        key = (role, is_cursor, is_match)
        style = self._made.get(key)
        if style is None:
            style = self._made[key] = self._combine(role, is_cursor=is_cursor, is_match=is_match)
        return style

    def _combine(self, role: str, *, is_cursor: bool, is_match: bool) -> Style:
        own = self._role(role)
        style = self.ground + own
        if is_cursor:
            bar = self._role("cursor")
            style = self.ground + own + bar
            if bar.bgcolor and not bar.reverse:
                style += Style(color=legible(own.color or style.color or bar.bgcolor, bar.bgcolor, facts().colours))
            # Dim letters are illegible on a reversed bar, and white letters on a yellow bar. So the bar uses only the
            # widget's own colours.
            if bar.reverse:
                style += Style(dim=False, color=self.ground.color or _DEFAULT, bgcolor=self.ground.bgcolor or _DEFAULT)
        return style + self._role("match") if is_match else style

    def _role(self, role: str) -> Style:
        try:
            return self._roles[role] if role else _PLAIN
        except KeyError:
            return _PLAIN

    def pieces(self, fitted: Fitted, role: str, *, is_cursor: bool = False) -> list[Segment]:
        """Return the segments of a text that was fitted to its width."""
        text, spans = fitted
        plain = self.style(role, is_cursor=is_cursor)
        blank = self.style("", is_cursor=is_cursor)
        if not spans:
            bare = text.strip(" ")
            if len(bare) == len(text):
                return [Segment(text, plain)]
            start = text.index(bare) if bare else 0
            return [Segment(text[:start], blank), Segment(bare, plain), Segment(text[start + len(bare) :], blank)]
        match = self.style(role, is_cursor=is_cursor, is_match=True)
        found, at = [], 0
        for start, end in spans:
            found += [Segment(text[at:start], plain), Segment(text[start:end], match)]
            at = end
        rest = text[at:].rstrip(" ")
        return [*found, Segment(rest, plain), Segment(text[at + len(rest) :], blank)]


_PLAIN = Style()
_DEFAULT = Color.default()


def painter_of(widget: Widget, known: Painter | None) -> Painter:
    """Return the painter for the current theme; return `known` if theme and background are unchanged."""
    ground = ground_of(widget)
    styles = roles(widget.app)
    if known is not None and known._roles is styles and known.ground == ground:  # noqa: SLF001  # of its own module
        return known
    return Painter(styles, ground)


def ground_of(widget: Widget) -> Style:
    """Return the widget's own colours without attributes."""
    style = widget.visual_style.rich_style
    return Style(color=style.color, bgcolor=style.bgcolor)


def merge(segments: list[Segment]) -> list[Segment]:
    """Join segments that look the same; each segment costs the terminal about 40 bytes.

    Blanks are joined with the text before or after them if both styles look the same on a blank.
    """
    joined: list[Segment] = []
    for segment in segments:
        text, style, _ = segment
        if joined and text:
            last, before, _ = joined[-1]
            if style is before or style == before or (text.isspace() and _blanks_alike(before, style)):
                joined[-1] = Segment(last + text, before)
                continue
            if last.isspace() and _blanks_alike(before, style):
                joined[-1] = Segment(last + text, style)
                continue
        if text:
            joined.append(segment)
    return joined


@lru_cache(maxsize=1024)
def _blanks_alike(one: Style | None, other: Style | None) -> bool:
    """Return whether a blank looks the same in both styles."""
    if one is None or other is None or one.bgcolor != other.bgcolor:
        return False
    return not any(style.underline or style.reverse or style.strike or style.underline2 for style in (one, other))


def pad(segments: list[Segment], width: int, style: Style) -> list[Segment]:
    """Return segments that fill `width` cells exactly; longer segments are cut."""
    taken = 0
    for at, segment in enumerate(segments):
        wide = width_of(segment.text)
        if taken + wide > width:
            return [*segments[:at], Segment(set_cell_size(segment.text, width - taken), segment.style)]
        taken += wide
    return [*segments, Segment(" " * (width - taken), style)] if taken < width else segments


def share_bar(share: float, cells: int = BAR_CELLS) -> str:
    """Return a bar for `share` of `cells`, rounded to half a cell."""
    halves = round(min(1.0, max(0.0, share)) * cells * 2)
    if not facts().is_utf8:
        return "#" * round(halves / 2)
    return "━" * (halves // 2) + "╸" * (halves % 2)
