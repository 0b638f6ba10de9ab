"""A preview: `TextView` shows the start of a file with syntax colours, a binary file in hexadecimal, or a picture.

Sizes are bounded; the caller reads files in a thread.

    view = TextView(id="preview")
    view.show_preview(read_preview(path))     # in a thread: at most the first 256 KB; errors are shown in place
    view.show_preview(make_preview(data, "shader.lua"))   # the name selects the language
    view.title()                              # "Lua  41 lines" for the title line

Keys are those of `Rows`; left and right scroll long lines.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, cast

from msgspec import Struct
from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.strip import Strip

from aptui.tui.terminal.safety import glyph, make_safe
from aptui.tui.widgets.cells import Painter, pad, width_of
from aptui.tui.widgets.picture_drawing import Picture
from aptui.tui.widgets.row_list import Rows

if TYPE_CHECKING:
    from aptui.tui.pictures.decoder import Pixels


READ_BYTES = 256 * 1024
_HEX_BYTES = 4096
_COLOURED_CHARS = 128 * 1024
"""Maximum size of a text that is coloured: pygments handles 1 to 2 MB a second."""
LINE_CHARS = 4096
_SHIFT_CELLS = 8

Piece = tuple[str, str]
"""A stretch of safe text and its role."""

_ROLES = (
    ("Token.Comment", "muted"),
    ("Token.Keyword", "accent"),
    ("Token.Name.Tag", "accent"),
    ("Token.Name.Attribute", "key"),
    ("Token.Name.Function", "title"),
    ("Token.Name.Class", "title"),
    ("Token.Literal.String", "completed"),
    ("Token.Literal.Number", "processing"),
    ("Token.Literal.Date", "processing"),
    ("Token.Generic.Deleted", "failed"),
    ("Token.Generic.Inserted", "completed"),
    ("Token.Generic.Heading", "title"),
)
"""{token of pygments: role}; the first token that matches is used."""


class TextPreview(Struct, frozen=True):
    """A preview that is ready to be drawn: lines, and the kind of file. With `pixels`, a picture fills the view below the lines."""

    kind: str
    lines: tuple[tuple[Piece, ...], ...]
    is_cut: bool = False
    is_numbered: bool = True
    pixels: Pixels | None = None


def read_preview(path: str | os.PathLike[str]) -> TextPreview:
    """Return the preview of a file; an error becomes the text of the preview. The function blocks: call it in a thread."""
    try:
        data, is_cut = read_start(path)
    except OSError as error:
        return _unreadable(error)
    return make_preview(data, os.path.basename(os.fspath(path)), is_cut=is_cut)


def read_start(path: str | os.PathLike[str]) -> tuple[bytes, bool]:
    """Return (at most the first 256 KB of a file, whether the file is longer)."""
    # Opened without blocking, because a pipe in a scan folder must not block the thread.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as stream:
        return stream.read(READ_BYTES) or b"", bool(stream.read(1))


def _unreadable(error: OSError) -> TextPreview:
    text = f"the file cannot be read: {(error.strerror or 'no reason given').lower()}"
    return TextPreview("not readable", (((text, "error"),),), is_numbered=False)


def make_preview(data: bytes, name: str, *, is_cut: bool = False) -> TextPreview:
    """Return the preview of bytes; the extension of the name selects the language."""
    if not data:
        return TextPreview("empty", (), is_numbered=False)
    text = decode_text(data, is_cut=is_cut)
    if text is None:
        return TextPreview("binary", tuple(hex_lines(data[:_HEX_BYTES])), is_cut or len(data) > _HEX_BYTES, is_numbered=False)
    language, lines = _colour(text, name)
    return TextPreview(language, lines, is_cut)


def decode_text(data: bytes, *, is_cut: bool) -> str | None:
    """Return the first bytes of a file as text, None if they are binary. With `is_cut`, the last character may be incomplete."""
    for mark, encoding in ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    if b"\0" in data[:8192]:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        if is_cut and error.start >= len(data) - 3:
            return data[: error.start].decode("utf-8")
    odd = sum(byte < 9 or 13 < byte < 32 for byte in data[:8192])
    return None if odd * 20 > len(data[:8192]) else data.decode("utf-8", "surrogateescape")


def _colour(text: str, name: str) -> tuple[str, tuple[tuple[Piece, ...], ...]]:
    from pygments.lexers import get_lexer_for_filename  # type: ignore[import-untyped]  # pygments has no stubs; imported here to start faster
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]  # it has no stubs

    text = text.replace("\r\n", "\n").replace("\r", "\n")
    try:
        lexer = get_lexer_for_filename(name, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return "text", tuple(cut_line([(line, "")]) for line in text.removesuffix("\n").split("\n"))
    head = text if len(text) <= _COLOURED_CHARS else text[: text.rfind("\n", 0, _COLOURED_CHARS) + 1 or _COLOURED_CHARS]
    lines: list[list[Piece]] = [[]]
    for token, value in lexer.get_tokens(head):
        _append(lines, value, _role_of(str(token)))
    for at, line in enumerate(text[len(head) :].split("\n") if len(head) < len(text) else ()):
        _append(lines, line if at == 0 else f"\n{line}", "")
    if lines and not lines[-1]:
        lines.pop()
    return lexer.name.lower(), tuple(map(cut_line, lines))


def _append(lines: list[list[Piece]], value: str, role: str) -> None:
    for at, part in enumerate(value.split("\n")):
        if at:
            lines.append([])
        if part:
            lines[-1].append((part, role))


def cut_line(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """Return a line as safe text. A line of more than `LINE_CHARS` characters is cut, and ends with an ellipsis."""
    left, found = LINE_CHARS, []
    for text, role in pieces:
        found.append((make_safe(text[:left]), role))
        left -= len(text)
        if left < 0:
            return (*found, (glyph("ellipsis"), "muted"))
    return tuple(found)


def _role_of(token: str) -> str:
    return next((role for prefix, role in _ROLES if token.startswith(prefix)), "error" if token == "Token.Error" else "")


def hex_lines(data: bytes) -> Iterator[tuple[Piece, ...]]:
    """Yield the lines of a hex dump: the offset, 16 bytes in hexadecimal, and the same bytes as text."""
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        left, right = row[:8].hex(" "), row[8:].hex(" ")
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        yield ((f"{at:08x}  ", "muted"), (f"{left:<23}  {right:<23}  ", ""), (letters, "muted"))


class TextView(Rows):
    """The preview; the module docstring describes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right", "shift(1)", "see more of long lines", id="text.right", show=False),
        Binding("left", "shift(-1)", "back to the start of lines", id="text.left", show=False),
    ]

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self._preview = TextPreview("", ())
        self._picture: Picture | None = None
        self._offset = 0
        self._shown_number = 0

    def show_preview(self, preview: TextPreview) -> None:
        """Show a preview."""
        self._preview = preview
        if self._picture is not None:
            self._picture.close()
        self._picture = Picture(preview.pixels) if preview.pixels is not None else None
        self._shown_number += 1
        self._offset = 0
        self.marks.clear()
        self.cursor, self.cursor_key = 0, None
        self.empty_text = preview.kind
        self.refresh_rows()
        if self.is_attached:
            self.scroll_to(y=0, animate=False, force=True)
        self.refresh()

    def on_unmount(self) -> None:
        """Remove the picture from the terminal."""
        if self._picture is not None:
            self._picture.close()

    def title(self) -> str:
        """Return the kind and the number of lines, for the title line."""
        preview = self._preview
        if not preview.lines:
            return preview.kind
        words = f"{len(preview.lines):,} {'line' if len(preview.lines) == 1 else 'lines'}"
        return f"{preview.kind}  {f'the first {words}' if preview.is_cut else words}"

    def text_of(self, key: int) -> str:
        """Return a line as text, for copying."""
        return "".join(text for text, _ in self._preview.lines[key])

    def count_rows(self) -> int:
        """Return the number of lines."""
        return len(self._preview.lines)

    def key_of(self, index: int) -> int:
        """Return the line's number, from 0."""
        return index

    def index_of(self, key: int) -> int | None:
        """Return the line's number."""
        return key if 0 <= key < len(self._preview.lines) else None

    def row_state(self, index: int) -> tuple[object, ...]:
        """Return the line and its state: whether it has the cursor or a mark."""
        is_cursor = index == self.cursor
        return (self._shown_number, index, is_cursor, is_cursor and self.has_focus, self.marks.has(index, index), self._offset)

    def draw_row(self, state: tuple[object, ...]) -> list[Segment]:
        """Paint a line and its number."""
        _, index, is_cursor, is_lit, is_mark, offset = cast(tuple[int, int, bool, bool, bool, int], state)
        painter = self.painting.painter
        segments = [self.edge(is_cursor=is_cursor, is_mark=is_mark, painter=painter)]
        if self._preview.is_numbered:
            digits = len(str(len(self._preview.lines)))
            segments.append(Segment(f"{index + 1:>{digits}}  ", painter.style("muted", is_cursor=is_lit)))
        free_width = self.painting.width - sum(width_of(piece.text) for piece in segments)
        line = [Segment(text, painter.style(role, is_cursor=is_lit)) for text, role in self._preview.lines[index]]
        wide = sum(width_of(piece.text) for piece in line)
        if offset:
            line = _without_start(line, offset)
        if wide - offset > free_width > 0:
            line = [
                *pad(line, free_width - 1, painter.ground),
                Segment(glyph("ellipsis"), painter.style("muted", is_cursor=is_lit)),
            ]
        return [*segments, *pad(line, max(0, free_width), painter.style("", is_cursor=is_lit))]

    def below(self, y: int, width: int, painter: Painter) -> Strip:
        """Draw a line of the picture, if the preview has one; the terminal's cursor is on the picture's first line."""
        if self._picture is None:
            return super().below(y, width, painter)
        lines = self._picture.lines(self, width - 1, max(0, self.page_rows - self.shown_count), painter)
        edge = self.edge(is_cursor=y == 0 and self.has_focus, is_mark=False, painter=painter)
        y -= self.shown_count
        return Strip(pad([edge, *(lines[y] if y < len(lines) else ())], width, painter.ground), width)

    @property
    def size_in_cells(self) -> tuple[int, int]:
        """(columns, rows) of the view."""
        return max(0, self.scrollable_content_region.width - 1), self.page_rows

    def action_shift(self, steps: int) -> None:
        """Scroll horizontally."""
        self._offset = max(0, self._offset + steps * _SHIFT_CELLS)
        self.refresh()


def _without_start(line: list[Segment], cells: int) -> list[Segment]:
    rest = []
    for piece in line:
        wide = width_of(piece.text)
        if wide <= cells:
            cells -= wide
            continue
        if cells:
            _, piece = piece.split_cells(cells)  # noqa: PLW2901  # the part of the piece that is not cut off
            cells = 0
        rest.append(piece)
    return rest
