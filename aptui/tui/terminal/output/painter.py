"""The known content of a terminal, and the bytes that change it into another picture.

Only cells that differ are sent, as a move of the cursor, changes of the pen, and the characters. If the terminal can do so, it
repeats or erases runs of equal cells and scrolls lines that moved. After ASCII the column of the cursor is known. Terminals differ
in the width of other characters, so the text after them begins with a move to an absolute column.

Tests: `tests/tui/terminal/output/test_painter.py`.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import compress, groupby
from typing import TypeVar

from msgspec import Struct

from aptui.tui.terminal.output.cell_rows import REST, Abilities, Pen, Row, StyleCache
from aptui.tui.terminal.pixels import PLACEHOLDER

# Lines that only moved up or down are found by their texts, so that the terminal can scroll them.

T = TypeVar("T")
Columns = tuple[int, int]
"""The first column of a range of columns, and the column after its last."""

_FARTHEST = 16
"""Maximum number of lines by which a scroll moves lines."""
_LEAST_GAIN = 2
"""Minimum number of lines that a scroll must save."""
_MOST_ALIKE = 4
"""A text that occurs in this many lines is ignored, because it does not show to where each line moved."""


class Shift(Struct, frozen=True):
    """A scroll: the lines `top` to `bottom` (included) of the screen move up by `count`, or down if `count` is negative."""

    top: int
    bottom: int
    count: int


def find_shift(before: Mapping[int, str], after: Mapping[int, str]) -> Shift | None:
    """Return the scroll that saves the most lines, None if it would save too few lines.

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
"""Maximum number of unchanged cells between two changed cells that are written again instead of skipped."""
_WORTH_REPEATING = 8
"""Minimum number of equal characters in a run that is sent as one character and a repetition."""
_WORTH_ERASING = 14
"""Minimum number of blanks in a run that is erased instead of written."""
_WORTH_ERASING_TO_THE_END = 4
"""If more than this number of changed cells at the end of a line are blanks, they are erased together."""
_RUN = re.compile(r"(.)\1{7,}", re.DOTALL)
REPEATS_ASCII, REPEATS_ALL, SCROLLS_COLUMNS = "repeats ASCII", "repeats all characters", "scrolls columns"
"""Abilities that the layer tests: some terminals repeat (REP) only ASCII, and few have left and right margins (DECSLRM)."""


class FramePainter:
    """Makes the bytes of frames for one terminal.

    Args:
        pens: the cache of pens of the cells.
        abilities: sequences that the terminal supports.
    """

    def __init__(self, pens: StyleCache, abilities: Abilities) -> None:
        self._pens, self._abilities = pens, abilities
        self.tested: set[str] = set()
        """Abilities that the terminal has by a test: `REPEATS_ASCII`, `REPEATS_ALL`, `SCROLLS_COLUMNS`."""
        self.shows_placeholders = False
        """Whether cells of pictures are sent as placeholders; a sixel picture is sent over blanks."""
        self.has_sixels = False
        """Whether the terminal may show a sixel picture; a scroll would move a part of it."""
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
        """Return the bytes that make the terminal show `rows`, "" if it does already.

        Args:
            rows: rows of the size passed to `forget`.
            lines: {number of a row that may have changed: the columns that widgets have drawn there}.
            cursor: (column, line) of the cursor after the frame.
        """
        self._out, self.has_touched_pictures = [], False
        changed = [y for y in sorted(lines) if not rows[y].is_as(self._rows[y])]
        if len(changed) > _NEAR:
            changed = self._scroll(rows, changed, self._find_columns(changed, lines))
        for y in changed:
            self._line(y, self._rows[y], rows[y])
            self._rows[y] = rows[y].copy()
        if self._pen is not None and self._pen.link:
            self._set_pen(self._pens.pen(self._pen.sgr))
        self._go(cursor[1], cursor[0])
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
            self._go(y, erased_from)
            self._set_pen_for(" ", new.pens[erased_from])
            self._out.append("\x1b[K")

    def _erasable_from(self, row: Row) -> int:
        """Return the column from which only blanks follow that can be erased."""
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
        """Write characters that are not ASCII; a long run of one character is repeated by the terminal."""
        self._go(y, x)
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
        """Write ASCII characters; runs of one character take few bytes."""
        done = 0
        for run in _RUN.finditer(text) if len(text) >= _WORTH_REPEATING else ():
            count = run.end() - run.start()
            if REPEATS_ASCII in self.tested:
                self._plain(y, x + done, text[done : run.start() + 1])
                self._out.append(f"\x1b[{count - 1}b")
                self._advance(count - 1)
            elif count >= _WORTH_ERASING and run[1] == " " and self._abilities.is_modern and self._can_erase_now():
                self._plain(y, x + done, text[done : run.start()])
                self._go(y, x + run.start())
                self._out.append(f"\x1b[{count}X")
            else:
                continue
            done = run.end()
        self._plain(y, x + done, text[done:])

    def _plain(self, y: int, x: int, text: str) -> None:
        if text:
            self._go(y, x)
            self._put(text)
            self._advance(len(text))

    def _can_erase_now(self) -> bool:
        return self._pen is not None and self._erases(self._pen.blank)

    def _put(self, text: str) -> None:
        # `safety` has made the text safe already. This is the last check before the text is sent.
        self._out.append(text if text.isprintable() else "".join(each if each.isprintable() else "?" for each in text))

    def _advance(self, count: int) -> None:
        """Note that the cursor moved. At the right border its place is unknown, because terminals differ."""
        if self._x is not None:
            self._x = self._x + count if self._x + count < self._width else None

    # ------------------------------------------------------------------------------------------------------ cursor and pen

    def _go(self, y: int, x: int) -> None:
        """Move the cursor."""
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
        """Return the columns that may scroll: those of the widget that drew most cells of the changed lines, or all columns."""
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
            return changed  # the border of the columns would divide a wide character
        # Most terminals fill new lines with the current background, some with the default background. With the plain pen, both
        # backgrounds are the same.
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
        shift: the scroll.
        columns: the columns that scroll, None = all.
    """
    top, bottom = shift.top + 1, shift.bottom + 1
    line, feeds = (bottom, "\n" * shift.count) if shift.count > 0 else (top, "\x1bM" * -shift.count)
    if columns is None:
        return f"\x1b[{top};{bottom}r\x1b[{line}H{feeds}\x1b[r"
    left, right = columns[0] + 1, columns[1]
    return f"\x1b[?69h\x1b[{left};{right}s\x1b[{top};{bottom}r\x1b[{line};{left}H{feeds}\x1b[r\x1b[s\x1b[?69l"


_SCROLL_BAR = 2
"""Number of columns at the right that may show a scroll bar, which moves by other lines than the text."""


def _text(row: Row, columns: Columns) -> str | None:
    """Return the text of a line in these columns without a scroll bar; None = unknown."""
    cells = row.texts[columns[0] : columns[1] - _SCROLL_BAR]
    return None if None in cells else "".join(cells)  # type: ignore[arg-type]  # none is None


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
    """Add the cells beside characters that a terminal may draw wider, and the other halves of wide characters."""
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
    """Yield (start, end) of each range of columns that is written in one run."""
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
