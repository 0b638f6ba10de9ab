"""Cells of a screen, the last known content of the terminal, and the bytes that turn this content into the next frame.

A cell has a character and a style. Text becomes cells here, with the widths that Textual uses. Only the cells that differ are sent:
a cursor move, pen changes, and the characters. If the terminal supports it, runs of equal cells are repeated or erased by the
terminal, and moved lines are scrolled. After ASCII text the column of the cursor is known. Terminals differ in the width of other
characters, so text after such characters begins with a move to an absolute column.
"""

from __future__ import annotations

import operator
import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import compress, groupby
from typing import TypeVar

from msgspec import Struct
from rich.cells import split_graphemes

from aptui.tui.terminal.pixels import PLACEHOLDER

T = TypeVar("T")

# A pen is the style of a cell in the terms of a terminal: attributes, two colours, a link.
#
# A `StyleCache` makes each pen only once, so two cells look alike if and only if they have the same pen object. Thousands of cells
# can therefore be compared by identity. A blank shows only some attributes of its pen, so all pens that look the same on a blank
# share one pen for blanks, `blank`.

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
            # Each link needs styles of its own, so a text full of links would fill the memory. It is safe to forget all styles: a
            # style that is created a second time only costs some more bytes of output.
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
            old: the present pen of the terminal, None = unknown.
            one_by_one: whether the terminal can turn off a single attribute without resetting the others.
        """
        found = self._changes.get((old, new, one_by_one))
        if found is None:
            found = self._changes[old, new, one_by_one] = _sgr_change(old, new, one_by_one=one_by_one) + _link_change(old, new)
        return found


def _link_change(old: Pen | None, new: Pen) -> str:
    if new.link == ("" if old is None else old.link):
        return ""
    # All cells of a link get the same id. Otherwise a terminal would treat a link that spans two lines as two links.
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


# The sequences below only save bytes; each is sent only if the terminal supports it.
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
        is_modern: whether the terminal has the sequences of VT220 and ECMA-48: erase characters, go to a column, turn one attribute
            off.
    """

    erases_in_colour: bool = True
    is_modern: bool = True


def abilities_of(environ: Mapping[str, str]) -> Abilities:
    """Return the abilities of the terminal. Its type is taken from the environment variables `TERM` and `TMUX`."""
    term = environ.get("TERM", "")
    # tmux fills erased cells with the background for every TERM. GNU screen does so only if the user has configured it,
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
        """Return a line whose present cells on the terminal are unknown."""
        return cls([None] * width, [None] * width)

    def copy(self) -> Row:
        """Return an independent copy."""
        return Row(self.texts[:], self.pens[:])

    def write(self, x: int, text: str, pen: Pen, *, goes_on: bool = False) -> int:
        """Write a text and return the column after it; the text is cut at the end of the line.

        Args:
            x: column of the first character.
            text: printable text.
            goes_on: whether the previous text ends at `x`. If so, leading combining characters of `text` are added to the
                character before `x`.
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
"""Matches text whose characters all fill one cell. Only other text is divided into graphemes, which takes 30 µs for a row.

The glyphs of the screen are included, because nearly every row has one.
"""


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


# Lines that only moved up or down are found by their texts, so that the terminal can scroll them.

Columns = tuple[int, int]
"""The first column of a range of columns, and the column after its last."""

_FARTHEST = 16
"""Maximum distance of a scroll (lines)."""
_LEAST_GAIN = 2
"""A scroll is sent only if it saves the repainting of at least this number of lines."""
_MOST_ALIKE = 4
"""A text that occurs in at least this number of lines is ignored, because it does not show which line moved where."""


class Shift(Struct, frozen=True):
    """A scroll: the lines `top` to `bottom` (included) of the screen move up by `count`, or down if `count` is negative."""

    top: int
    bottom: int
    count: int


def find_shift(before: Mapping[int, str], after: Mapping[int, str]) -> Shift | None:
    """Return the scroll that saves the most repainted lines, None if it saves fewer than `_LEAST_GAIN`.

    Args:
        before, after: {line: its text} of the lines that differ.
    """
    places: dict[str, list[int]] = {}
    for line, text in before.items():
        if not text.isspace():
            places.setdefault(text, []).append(line)
    shifts: Counter[int] = Counter()
    for line, text in after.items():
        here = places.get(text, ())
        if len(here) < _MOST_ALIKE:
            shifts.update(at - line for at in here if 0 < abs(at - line) <= _FARTHEST)
    found = [_shift(before, after, count) for count, times in shifts.most_common(3) if times >= _LEAST_GAIN]
    return max(filter(None, found), key=lambda each: each[0], default=(0, None))[1]


def _shift(before: Mapping[int, str], after: Mapping[int, str], count: int) -> tuple[int, Shift] | None:
    """Return (number of lines that need no repainting after a scroll, the scroll)."""
    hits = [line for line, text in after.items() if before.get(line + count) == text and not text.isspace()]
    top, bottom = min(hits + [line + count for line in hits]), max(hits + [line + count for line in hits])
    # A scroll also moves the unchanged lines in its range. These lines must be painted again, so they reduce the gain.
    gain = len(hits) - sum(line not in after for line in range(top, bottom + 1))
    return (gain, Shift(top, bottom, count)) if gain >= _LEAST_GAIN else None


def shift_lines(lines: Sequence[T], count: int) -> list[T | None]:
    """Return lines as they are after a scroll up by `count`, or down if `count` is negative; None = a line that became blank."""
    return [*lines[count:], *[None] * count] if count > 0 else [*[None] * -count, *lines[:count]]


_NEAR = 4
"""Two changed cells of a line up to this distance (columns) are written together with the unchanged cells between them.

This takes fewer bytes than a cursor move.
"""
_MOST_WITHOUT_SCROLL = 4
"""Maximum number of changed lines that are written without an attempt to scroll."""
_WORTH_REPEATING = 8
"""Minimum number of equal characters in a run that is sent as one character and a repetition."""
_WORTH_ERASING = 14
"""Minimum number of blanks in a run that is erased instead of written."""
_WORTH_ERASING_TO_THE_END = 4
"""If more than this number of changed cells at the end of a line are blanks, they are erased together."""
_RUN = re.compile(r"(.)\1{7,}", re.DOTALL)
REPEATS_ASCII, REPEATS_ALL, SCROLLS_COLUMNS = "repeats ASCII", "repeats all characters", "scrolls columns"
"""Abilities that `layer` tests: some terminals repeat (REP) only ASCII, and few have left and right margins (DECSLRM)."""


class FramePainter:
    """Makes the bytes of frames for one terminal."""

    def __init__(self, pens: StyleCache, abilities: Abilities) -> None:
        self._pens, self._abilities = pens, abilities
        self.tested: set[str] = set()
        """Abilities that a test found in the terminal: `REPEATS_ASCII`, `REPEATS_ALL`, `SCROLLS_COLUMNS`."""
        self.shows_placeholders = False
        """Whether cells of pictures are sent as placeholders (kitty).

        If False, they are sent as blanks, and a sixel picture is drawn over them.
        """
        self.has_sixels = False
        """Whether the terminal may show a sixel picture.

        If so, lines are not scrolled, because a scroll would move a part of the picture.
        """
        self.has_touched_pictures = False
        """Whether the last frame wrote cells of a picture."""
        self._rows: list[Row] = []
        self._width = 0
        self._y: int | None = None
        self._x: int | None = None
        self._pen: Pen | None = None
        self._out: list[str] = []

    def forget(self, width: int, height: int) -> None:
        """Treat content, cursor and pen of the terminal as unknown."""
        self._width = width
        self._rows = [Row.unknown(width) for _ in range(height)]
        self._y = self._x = self._pen = None

    def paint(self, rows: Sequence[Row], lines: Mapping[int, Collection[Columns]], cursor: tuple[int, int]) -> str:
        """Return the bytes that make the terminal show `rows` and the cursor, "" if the terminal shows them already.

        Args:
            rows: rows of the size passed to `forget`.
            lines: {number of a row that may have changed: the columns that widgets have drawn there}.
            cursor: (column, line) of the cursor after the frame.
        """
        self._out, self.has_touched_pictures = [], False
        changed = [y for y in sorted(lines) if rows[y].texts != self._rows[y].texts or rows[y].pens != self._rows[y].pens]
        if len(changed) > _MOST_WITHOUT_SCROLL:
            changed = self._scroll(rows, changed, self._find_columns(changed, lines))
        for y in changed:
            self._line(y, self._rows[y], rows[y])
            self._rows[y] = rows[y].copy()
        if self._pen is not None and self._pen.link:
            self._set_pen(self._pens.pen(self._pen.sgr))
        self._move_cursor(cursor[1], cursor[0])
        return "".join(self._out)

    # ------------------------------------------------------------------------------------------------- the cells to write

    def _line(self, y: int, old: Row, new: Row) -> None:
        differing = _differing(old, new)
        if not differing:
            return
        tail = self._erasable_from(new)
        if sum(x >= tail for x in differing) > _WORTH_ERASING_TO_THE_END:
            erased_from = max(tail, differing[0])
            differing = [x for x in differing if x < erased_from]
        else:
            erased_from = self._width
        for start, end in _spans(differing):
            self._span(y, new, start, end)
        if erased_from < self._width:
            self._move_cursor(y, erased_from)
            self._set_pen_for(" ", new.pens[erased_from])
            self._out.append("\x1b[K")

    def _erasable_from(self, row: Row) -> int:
        """Return the first column of the blanks at the end of a row, if "erase to the end of the line" can draw them.

        Otherwise return the width of the row.
        """
        texts, pens = row.texts, row.pens
        x, pen = len(texts), pens[-1]
        if pen is None or not self._erases(pen):
            return x
        while x and texts[x - 1] == " " and pens[x - 1] is pen:
            x -= 1
        return x

    def _erases(self, pen: Pen) -> bool:
        return pen.is_bare and (self._abilities.erases_in_colour or not pen.background)

    # ------------------------------------------------------------------------------------------------ the sequences to write

    def _span(self, y: int, row: Row, start: int, end: int) -> None:
        """Write the cells of a line in a range of columns."""
        texts, pens = row.texts, row.pens
        x = start
        while x < end:
            self._set_pen_for(texts[x], pens[x])
            mine = self._pen
            blank = mine.blank if mine is not None else None
            stop = x + 1
            while stop < end and (pens[stop] is mine or (pens[stop] is blank and texts[stop] == " ")):
                stop += 1
            self._run(y, x, [text or "" for text in texts[x:stop]])
            x = stop

    def _run(self, y: int, x: int, cells: list[str]) -> None:
        """Write cells that have the same pen."""
        text = "".join(cells)
        if text.isascii() and len(text) == len(cells):
            self._ascii(y, x, text)
            return
        for is_ascii, group in groupby(cells, lambda cell: cell != REST and cell.isascii()):
            part = list(group)
            if is_ascii:
                self._ascii(y, x, "".join(part))
            else:
                self._foreign(y, x, part)
            x += len(part)

    def _foreign(self, y: int, x: int, cells: list[str]) -> None:
        """Write characters that are not ASCII; for a long run of one character, make the terminal repeat the character."""
        self._move_cursor(y, x)
        for cell, group in groupby(cells):
            count = len(list(group))
            if cell.startswith(PLACEHOLDER):
                self.has_touched_pictures = True
                self._out.append(cell if self.shows_placeholders else " ")
            elif REPEATS_ALL in self.tested and count >= _WORTH_REPEATING and len(cell) == 1:
                self._put(cell)
                self._out.append(f"\x1b[{count - 1}b")
            else:
                self._put(cell * count)
        self._x = None

    def _ascii(self, y: int, x: int, text: str) -> None:
        """Write ASCII characters; send runs of one character in a short form."""
        done = 0
        for run in _RUN.finditer(text) if len(text) >= _WORTH_REPEATING else ():
            count = run.end() - run.start()
            if REPEATS_ASCII in self.tested:
                self._plain(y, x + done, text[done : run.start() + 1])
                self._out.append(f"\x1b[{count - 1}b")
                self._advance(count - 1)
            elif count >= _WORTH_ERASING and run[1] == " " and self._can_erase_now():
                self._plain(y, x + done, text[done : run.start()])
                self._move_cursor(y, x + run.start())
                self._out.append(f"\x1b[{count}X")
            else:
                continue
            done = run.end()
        self._plain(y, x + done, text[done:])

    def _plain(self, y: int, x: int, text: str) -> None:
        if text:
            self._move_cursor(y, x)
            self._put(text)
            self._advance(len(text))

    def _can_erase_now(self) -> bool:
        return self._abilities.is_modern and self._pen is not None and self._erases(self._pen.blank)

    def _put(self, text: str) -> None:
        # `safety` has made the text safe already. This is the last check before the text is sent.
        self._out.append(text if text.isprintable() else "".join(each if each.isprintable() else "?" for each in text))

    def _advance(self, count: int) -> None:
        """Update the cursor's column after output of `count` cells. Terminals differ at the right border: there it is unknown."""
        if self._x is not None:
            self._x = self._x + count if self._x + count < self._width else None

    # ------------------------------------------------------------------------------------------------------ cursor and pen

    def _move_cursor(self, y: int, x: int) -> None:
        if self._y == y and self._x == x:
            return
        self._out.append(self._move(y, x))
        self._y, self._x = y, x

    def _move(self, y: int, x: int) -> str:
        if self._y == y:
            if x == 0:
                return "\r"
            ahead = x - self._x if self._x is not None else 0
            if ahead > 0:
                return "\x1b[C" if ahead == 1 else f"\x1b[{ahead}C"
            if self._abilities.is_modern:
                return f"\x1b[{x + 1}G"
        elif self._y is not None and y == self._y + 1 and x == 0:
            return "\r\n"
        return f"\x1b[{y + 1};{x + 1}H" if x else f"\x1b[{y + 1}H" if y else "\x1b[H"

    def _set_pen(self, pen: Pen) -> None:
        if pen is not self._pen:
            self._out.append(self._pens.change(self._pen, pen, one_by_one=self._abilities.is_modern))
            self._pen = pen

    def _set_pen_for(self, text: str | None, pen: Pen | None) -> None:
        """Set the pen for a cell. For a blank, keep the current pen if it looks the same on a blank."""
        if pen is not None and not (text == " " and self._pen is not None and self._pen.blank is pen):
            self._set_pen(pen)

    # ----------------------------------------------------------------------------------------------------- scrolled lines

    def _find_columns(self, changed: Sequence[int], lines: Mapping[int, Collection[Columns]]) -> Columns:
        """Return the columns that may scroll: those of the widget that drew most of the changed lines, or all columns.

        All columns are returned if the terminal cannot scroll some of them, or if the widget is nearly as wide as the screen.
        """
        drawn = Counter(columns for y in changed for columns in lines[y])
        if SCROLLS_COLUMNS in self.tested and drawn:
            start, end = max(drawn, key=lambda each: drawn[each] * (each[1] - each[0]))
            if end - start < self._width - _SCROLL_BAR:
                return start, end
        return 0, self._width

    def _scroll(self, rows: Sequence[Row], changed: list[int], columns: Columns) -> list[int]:
        """Scroll lines that moved within `columns`; return the lines that may still differ."""
        if self.has_sixels:
            return changed
        before = {y: text for y in changed if (text := _text(self._rows[y], columns)) is not None}
        if len(before) < len(changed):
            return changed
        shift = find_shift(before, {y: _text(rows[y], columns) or "" for y in changed})
        if shift is None:
            return changed
        block, start, end = self._rows[shift.top : shift.bottom + 1], *columns
        if any(REST in (row.texts[start], *row.texts[end : end + 1]) for row in block):
            return changed  # a scroll of only these columns would cut a wide character in half
        # Most terminals fill the lines that a scroll adds with the current background, some with the default background. With the
        # plain pen, both backgrounds are the same.
        self._set_pen(self._pens.plain)
        self._out.append(_region(shift, None if end - start == self._width else columns))
        self._y = self._x = None
        blank = Row.blank(end - start, self._pens.plain)
        moved = [
            blank if row is None else Row(row.texts[start:end], row.pens[start:end]) for row in shift_lines(block, shift.count)
        ]
        for row, part in zip(block, moved, strict=True):
            row.texts[start:end], row.pens[start:end] = part.texts, part.pens
        return sorted({*changed, *range(shift.top, shift.bottom + 1)})


def _region(shift: Shift, columns: Columns | None) -> str:
    """Return the bytes that scroll lines: line feeds, which every terminal with scroll regions supports.

    Args:
        shift: the lines that scroll, and by how many lines.
        columns: the columns that scroll, None = all.
    """
    top, bottom = shift.top + 1, shift.bottom + 1
    line, feeds = (bottom, "\n" * shift.count) if shift.count > 0 else (top, "\x1bM" * -shift.count)
    if columns is None:
        return f"\x1b[{top};{bottom}r\x1b[{line}H{feeds}\x1b[r"
    left, right = columns[0] + 1, columns[1]
    return f"\x1b[?69h\x1b[{left};{right}s\x1b[{top};{bottom}r\x1b[{line};{left}H{feeds}\x1b[r\x1b[s\x1b[?69l"


_SCROLL_BAR = 2
"""Number of columns at the right that may show a scroll bar.

The search for lines that moved ignores these columns, because a scroll bar does not move with the text.
"""


def _text(row: Row, columns: Columns) -> str | None:
    """Return the text of a line in these columns without a scroll bar; None = unknown."""
    cells = row.texts[columns[0] : columns[1] - _SCROLL_BAR]
    return None if None in cells else "".join(cells)  # type: ignore[arg-type]  # no cell is None


def _differing(old: Row, new: Row) -> list[int]:
    """Return the columns whose cells must be written, from left to right."""
    places = range(len(new.texts))
    # Every line of every frame is compared here. `compress` and `map` are used, because a Python statement for each cell would be
    # too slow.
    here = {
        *compress(places, map(operator.ne, old.texts, new.texts)),
        *compress(places, map(operator.is_not, old.pens, new.pens)),
    }
    if REST not in old.texts and REST not in new.texts and "".join([new.texts[x] or "" for x in here]).isascii():
        return sorted(here)
    return sorted(_widen(here, old, new))


def _widen(here: set[int], old: Row, new: Row) -> set[int]:
    """Add to `here` two kinds of cells that must be written too.

    If a character may be drawn too wide by a terminal, the cell to its right is added. If a cell is one half of a wide character,
    the cell of the other half is added.
    """
    width = len(new.texts)
    here |= {x + 1 for x in here if x + 1 < width and not (new.texts[x] or "").isascii()}
    more = True
    while more:
        halves = {x - 1 for x in here if x and REST in (old.texts[x], new.texts[x])}
        halves |= {x + 1 for x in here if x + 1 < width and REST in (old.texts[x + 1], new.texts[x + 1])}
        more = not halves <= here
        here |= halves
    return here


def _spans(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each range of columns that is written without a cursor move within it."""
    start = last = None
    for x in places:
        if start is None or last is None:
            start = x
        elif x - last > _NEAR:
            yield start, last + 1
            start = x
        last = x
    if start is not None and last is not None:
        yield start, last + 1
