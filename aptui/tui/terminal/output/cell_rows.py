"""Cells: the character and the style at each place of a screen. Text becomes cells here, with the widths that Textual uses.

Tests: `tests/tui/terminal/output/test_cell_rows.py`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct
from rich.cells import split_graphemes

# A pen is the style of a cell in the terms of a terminal: attributes, two colours, a link.
#
# A `StyleCache` makes each pen only once, so two cells look alike if and only if they have the same pen object. Thousands of cells
# can therefore be compared by identity. A blank shows only a part of its pen, so all pens that look the same on a blank share one
# pen for blanks, `blank`.

_OFF = {"1": "22", "2": "22", "3": "23", "4": "24", "5": "25", "7": "27", "9": "29"}
"""{parameter of SGR that turns an attribute on: parameter that turns it off}."""
_SEEN_ON_BLANKS = frozenset({"4", "6", "7", "9", "21", "51", "52", "53"})
"""Parameters of SGR that are visible on a blank: lines, frames, reversed colours. Bold, italic and similar ones are not."""
_MOST_PENS = 4096


class Pen:
    """The style of cells; only a `StyleCache` makes pens.

    Args:
        attributes: sorted parameters of SGR.
        foreground, background: parameters of SGR, "" = the terminal's default.
        link: an address, or "".
    """

    __slots__ = ("attributes", "background", "blank", "foreground", "is_bare", "link", "sgr")

    def __init__(self, attributes: tuple[str, ...], foreground: str, background: str, link: str) -> None:
        self.attributes, self.foreground, self.background, self.link = attributes, foreground, background, link
        self.sgr = ";".join(filter(None, (*attributes, foreground, background)))
        self.blank = self
        self.is_bare = not link and _SEEN_ON_BLANKS.isdisjoint(attributes)
        """Whether a blank in this style shows only the background, so that the terminal can make it by erasing."""


class StyleCache:
    """All pens (styles of cells) of one screen, and the escape sequences that change the terminal's pen to another pen."""

    def __init__(self) -> None:
        self._pens: dict[tuple[str, str], Pen] = {}
        self._changes: dict[tuple[Pen | None, Pen, bool], str] = {}
        self.plain = self.pen("")

    def pen(self, sgr: str, link: str = "") -> Pen:
        """Return the pen with these parameters of SGR."""
        found = self._pens.get((sgr, link))
        if found is None:
            # Many different links have filled the cache. Clearing it is safe, because a pen that is made twice only costs bytes.
            if len(self._pens) > _MOST_PENS:
                self._pens.clear()
                self._changes.clear()
            attributes, foreground, background = _part_sgr(sgr)
            found = Pen(attributes, foreground, background, link)
            if found.is_bare and found.sgr != background:
                found.blank = self.pen(background)
            self._pens[sgr, link] = found
        return found

    def change(self, old: Pen | None, new: Pen, *, one_by_one: bool = True) -> str:
        """Return the shortest sequence that changes the pen of a terminal.

        Args:
            old: its pen, None = unknown.
            new: the pen to set.
            one_by_one: whether the terminal can turn off one attribute and keep the others.
        """
        found = self._changes.get((old, new, one_by_one))
        if found is None:
            found = self._changes[old, new, one_by_one] = _sgr_change(old, new, one_by_one=one_by_one) + _link_change(old, new)
        return found


def _link_change(old: Pen | None, new: Pen) -> str:
    if new.link == ("" if old is None else old.link):
        return ""
    # All parts of a link have the same id. Otherwise a terminal would show a link on two lines as two links.
    return f"\x1b]8;id={zlib.crc32(new.link.encode())};{new.link}\x1b\\" if new.link else "\x1b]8;;\x1b\\"


def _sgr_change(old: Pen | None, new: Pen, *, one_by_one: bool) -> str:
    if old is not None and old.sgr == new.sgr:
        return ""
    if not new.sgr:
        return "\x1b[m"
    whole = f"\x1b[0;{new.sgr}m"
    gone = set(old.attributes).difference(new.attributes) if old is not None else set()
    if old is None or (gone and not one_by_one) or not gone.issubset(_OFF):
        return whole
    off = {_OFF[each] for each in gone}
    on = [each for each in new.attributes if each not in old.attributes or _OFF.get(each) in off]
    parts = sorted(off) + on
    if new.foreground != old.foreground:
        parts.append(new.foreground or "39")
    if new.background != old.background:
        parts.append(new.background or "49")
    return min(f"\x1b[{';'.join(parts)}m", whole, key=len)


def _part_sgr(sgr: str) -> tuple[tuple[str, ...], str, str]:
    """Return (attributes, foreground, background) of the SGR parameters that Rich writes."""
    attributes, foreground, background = set(), "", ""
    parts = sgr.split(";") if sgr else []
    while parts:
        code = parts.pop(0)
        if code in {"38", "48"}:
            count = 2 if parts[0] == "5" else 4
            code = ";".join([code, *parts[:count]])
            del parts[:count]
        if code.startswith("48;") or (code.isdecimal() and (40 <= int(code) <= 47 or 100 <= int(code) <= 107)):
            background = code
        elif code.startswith("38;") or (code.isdecimal() and (30 <= int(code) <= 37 or 90 <= int(code) <= 97)):
            foreground = code
        elif code not in {"39", "49"}:
            attributes.add(code)
    return tuple(sorted(attributes)), foreground, background


# Some sequences save bytes, but a sequence is sent only if the terminal supports it.
#
# The name in TERM shows which sequences the terminal supports. The terminfo database is not read, because a build machine may lack
# the entry of the user's terminal. The name does not show whether REP works (mosh calls itself xterm and drops REP), so `layer`
# tests REP on the terminal.

_ERASES_IN_COLOUR = re.compile(
    r"(xterm|linux|rxvt|konsole|vte|gnome|st|putty|foot|alacritty|kitty|wezterm|ghostty|contour|mlterm|iterm2?)(?![a-z])"
)
_BEFORE_1983 = re.compile(r"vt(52|1\d\d)")


class Abilities(Struct, frozen=True):
    """Sequences that the terminal supports.

    Args:
        erases_in_colour: whether erasing and scrolling fill with the current background (terminfo's `bce`). If not, blanks on a
            coloured background are written.
        is_modern: whether it has the sequences of VT220 and ECMA-48: erase characters, go to a column, turn one attribute off.
    """

    erases_in_colour: bool = True
    is_modern: bool = True


def abilities_of(environ: Mapping[str, str]) -> Abilities:
    """Return the abilities of the terminal that the environment variables name."""
    term = environ.get("TERM", "")
    # The program tmux fills erased cells with the background for every TERM. GNU screen does so only if the user has configured it,
    # which cannot be detected.
    return Abilities(
        erases_in_colour=bool(environ.get("TMUX") or _ERASES_IN_COLOUR.match(term)),
        is_modern=not _BEFORE_1983.match(term),
    )


REST = ""
"""The text of the second cell of a character that is two cells wide."""


class Row:
    """One line of cells: `texts[x]` is a character with its combining characters (None = unknown), `pens[x]` is its pen."""

    __slots__ = ("pens", "texts")

    def __init__(self, texts: list[str | None], pens: list[Pen | None]) -> None:
        self.texts, self.pens = texts, pens

    @classmethod
    def blank(cls, width: int, pen: Pen) -> Row:
        """Return a line of blanks."""
        return cls([" "] * width, [pen] * width)

    @classmethod
    def unknown(cls, width: int) -> Row:
        """Return a line with unknown content."""
        return cls([None] * width, [None] * width)

    def copy(self) -> Row:
        """Return an independent copy."""
        return Row(self.texts[:], self.pens[:])

    def is_as(self, other: Row) -> bool:
        """Return whether another line looks the same."""
        return self.texts == other.texts and self.pens == other.pens

    def write(self, x: int, text: str, pen: Pen, *, goes_on: bool = False) -> int:
        """Write a text and return the column after it; the text is cut at the end of the line.

        Args:
            x: column of the first character.
            text: printable text.
            pen: its style.
            goes_on: whether the previous text ends at `x`: leading combining characters of `text` are added to its last cell.
        """
        cells, styles, accents = draw_cells(text, pen)
        if accents and goes_on:
            self._combine(x - 1, accents)
        return self.write_cells(x, cells, styles)

    def write_cells(self, x: int, cells: tuple[str, ...], styles: tuple[Pen, ...]) -> int:
        """Write cells and their pens and return the column after them."""
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
        """If a write replaced one half of a wide character, replace the other half by a blank, as terminals do."""
        pen = self.pens[x]
        self.texts[x], self.pens[x] = " ", pen.blank if pen is not None else None


_ONE_CELL_EACH = re.compile(
    r"[\x00-\x7f"
    r"\u00a1-\u00ac\u00ae-\u024f"  # Latin letters without the soft hyphen
    r"\u2010-\u2027\u2030-\u205e"  # dashes, bullets and other punctuation
    r"\u2190-\u22ff\u2500-\u25fc\u2713-\u2718]*"  # arrows, operators, boxes, blocks, shapes, check marks
)
"""A text of characters that always fill one cell each. Nearly every row has a glyph, and dividing it into graphemes takes 30 µs."""


@lru_cache(maxsize=1024)
def draw_cells(text: str, pen: Pen) -> tuple[tuple[str, ...], tuple[Pen, ...], str]:
    """Return (the cells of a text, their pens, the combining characters at its start)."""
    accents = ""
    if _ONE_CELL_EACH.fullmatch(text):
        cells = tuple(text)
    else:
        spans = split_graphemes(text)[0]
        accents = "".join(text[start:end] for start, end, width in spans if width == 0)
        cells = tuple(cell for start, end, width in spans if width for cell in ((text[start:end], REST)[:width]))
    blank = pen.blank
    return cells, (pen,) * len(cells) if blank is pen else tuple([blank if cell == " " else pen for cell in cells]), accents
