"""A model of a terminal: pyte with features that pyte lacks.

These are repeated characters (REP), left and right margins (DECSLRM), erasing without background colour (no `bce`), halves of wide
characters, replies with the cursor position, and links. The model also ignores sequences that pyte would print as text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyte

_PRIVATE = re.compile(r"\x1b\[[<>=][0-9;]*[a-zA-Z]|\x1b\[\?[0-9]+\$p|\x1b\](?!8;)[^\x07\x1b]*(?:\x07|\x1b\\)")
_PIECES = re.compile(r"\x1b\[(\d*)b|\x1b\]8;[^;\x1b]*;([^\x07\x1b]*)(?:\x07|\x1b\\)|(?:\x1b\[([0-9;]*)m)|\x1b\[(\d*;?\d*)s")
_PIXELS = re.compile(r"\x1b(?:P(?:tmux;(?:[^\x1b]|\x1b\x1b)*|[0-9;]*q[^\x1b]*)|_G[^\x1b]*)\x1b\\")
_UNFINISHED = re.compile(r"\x1b(?:\[[0-9;<=>?]*|\][^\x07\x1b]*\x1b?)?$")
_SEEN_ON_BLANKS = ("underscore", "strikethrough", "reverse")


@dataclass(frozen=True)
class Cell:
    """The visible attributes of a cell."""

    text: str
    style: tuple[object, ...]


class _Screen(pyte.Screen):
    def __init__(self, columns: int, lines: int, *, erases_in_colour: bool) -> None:
        super().__init__(columns, lines)
        self._erases_in_colour = erases_in_colour
        self.sides = range(columns)
        """The columns between the left and the right margin."""

    def _colourless(self, do, *arguments):
        """Erase as a terminal does: an erased cell keeps no attribute except possibly the background."""
        before = self.cursor.attrs
        self.cursor.attrs = self.default_char._replace(bg=before.bg) if self._erases_in_colour else self.default_char
        try:
            do(*arguments)
        finally:
            self.cursor.attrs = before

    def erase_characters(self, *arguments):
        self._colourless(super().erase_characters, *arguments)

    def erase_in_line(self, *arguments, **_named):
        self._halve(self.cursor.x, self.cursor.x - 1)
        self._colourless(super().erase_in_line, *arguments)

    def erase_in_display(self, *arguments, **_named):
        self._colourless(super().erase_in_display, *arguments)

    def index(self):
        self._between_sides(super().index)

    def reverse_index(self):
        self._between_sides(super().reverse_index)

    def carriage_return(self):
        self.cursor.x = self.sides.start if self.cursor.x >= self.sides.start else 0

    def _between_sides(self, do):
        """Scroll the columns between the margins; the others stay."""
        others = [x for x in range(self.columns) if x not in self.sides]
        before = [[self.buffer[y][x] for x in others] for y in range(self.lines)]
        self._new_line_in_colour(do)
        for y, cells in enumerate(before):
            self.buffer[y].update(zip(others, cells, strict=True))

    def _new_line_in_colour(self, do):
        before = [id(self.buffer[y]) for y in range(self.lines)]
        do()
        if self._erases_in_colour and self.cursor.attrs.bg != "default":
            for y in range(self.lines):
                if id(self.buffer[y]) not in before:
                    for x in range(self.columns):
                        self.buffer[y][x] = self.default_char._replace(bg=self.cursor.attrs.bg)

    def draw(self, data):
        line = self.buffer[self.cursor.y]
        if data.isascii() and not any(char.data == "" for char in line.values()):
            super().draw(data)
            return
        for character in data:
            x, width = min(self.cursor.x, self.columns - 1), pyte.screens.wcwidth(character)
            if width > 0:
                self._halve(x, x - 1)
                self._halve(x + width, x + width)
            super().draw(character)

    def _halve(self, end, blank):
        """Replace a wide character by a blank if its second half is at `end` and its first half will be overwritten."""
        line = self.buffer[self.cursor.y]
        if 0 < end < self.columns and line[end].data == "":
            line[blank] = line[blank]._replace(data=" ")


class ModelTerminal:
    """The content of a terminal after the received output.

    Args:
        columns, lines: the size of the terminal.
        erases_in_colour: whether erasing leaves the background that is set.
        repeats: whether the terminal supports REP.
        scrolls_columns: whether the terminal has left and right margins (DECSLRM).
    """

    def __init__(
        self, columns: int, lines: int, *, erases_in_colour: bool = True, repeats: bool = True, scrolls_columns: bool = True
    ) -> None:
        self.columns, self.lines = columns, lines
        self.answers: list[str] = []
        self._repeats, self._scrolls_columns = repeats, scrolls_columns
        self._screen = _Screen(columns, lines, erases_in_colour=erases_in_colour)
        self._screen.write_process_input = self.answers.append
        self._stream = pyte.Stream(self._screen)
        self._last = ""
        self._rest = ""
        self._link = ""
        self.links: set[str] = set()
        self.pixels: list[tuple[int, int, str]] = []
        """(column, line, sequence) of each picture that was received as pixels."""

    def feed(self, text: str) -> None:
        """Receive output."""
        at = 0
        for found in _PIXELS.finditer(text):
            self._feed(text[at : found.start()])
            self.pixels.append((*self.cursor, found[0]))
            at = found.end()
        self._feed(text[at:])

    def _feed(self, text: str) -> None:
        text = _PRIVATE.sub("", self._rest + text)
        cut = _UNFINISHED.search(text)
        self._rest = text[cut.start() :] if cut else ""
        text = text[: cut.start()] if cut else text
        at = 0
        for found in _PIECES.finditer(text):
            self._plain(text[at : found.start()])
            at = found.end()
            if found[2] is not None:
                self._link = found[2]
                self.links.add(found[2])
            elif found[3] is not None:
                self._stream.feed(found[0])
            elif found[4] is not None:
                self._set_sides(found[4])
            elif self._repeats and self._last:
                self._screen.draw(self._last * int(found[1] or 1))
        self._plain(text[at:])

    def _set_sides(self, columns: str) -> None:
        if self._scrolls_columns:
            left, _, right = columns.partition(";")
            self._screen.sides = range(int(left or 1) - 1, min(int(right or self.columns), self.columns))
            self._screen.cursor_position()

    def _plain(self, text: str) -> None:
        if text:
            self._stream.feed(text)
            self._last = text[-1] if text[-1].isprintable() and not re.search(r"\x1b[^a-zA-Z]*[a-zA-Z]$", text) else ""

    def resize(self, columns: int, lines: int) -> None:
        """Resize and keep the content that fits."""
        self.columns, self.lines = columns, lines
        self._screen.resize(lines, columns)
        self._screen.sides = range(columns)

    @property
    def cursor(self) -> tuple[int, int]:
        """The cursor's position: (column, line)."""
        return min(self._screen.cursor.x, self.columns - 1), self._screen.cursor.y

    @property
    def display(self) -> list[str]:
        """The texts of all lines."""
        return self._screen.display

    def cells(self) -> list[list[Cell]]:
        """Return the visible cells."""
        return [[_seen(self._screen.buffer[y][x]) for x in range(self.columns)] for y in range(self.lines)]


def _seen(char) -> Cell:
    if char.data == " " and not any(getattr(char, name) for name in _SEEN_ON_BLANKS):
        return Cell(" ", (char.bg,))
    styles = ("fg", "bg", "bold", "italics", "underscore", "strikethrough", "reverse", "blink")
    return Cell(char.data, tuple(getattr(char, name) for name in styles))
