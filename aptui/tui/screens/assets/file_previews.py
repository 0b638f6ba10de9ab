"""The preview of a file: its text, or facts about it and the picture that is decoded for it.

Tests: `tests/tui/screens/assets/test_file_previews.py`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from aptui.tui.pictures.decoder import DRAWN, MOST_HIGH, MOST_WIDE, PictureView, Pixels
from aptui.tui.pictures.decoding import HEAD_BYTES, Facts, image_facts, objection
from aptui.tui.pictures.texture_levels import Level, Pictures
from aptui.tui.terminal.safety import make_safe
from aptui.tui.widgets.textview import Piece, TextPreview, hex_lines, read_preview
from aptui.tui.words import size_text

_HEX_BYTES = 256
_MODEL = "GLB"
_MOST_PIXELS = 1000
"""Maximum width and height of a picture that is shown as pixels, because xterm cuts off larger ones."""
_FACTS_A_LINE = 3
"""Number of facts on a line above the picture of a model."""

Lines = tuple[tuple[Piece, ...], ...]


class TexturePlace(NamedTuple):
    """A level of a texture, and the number of a picture among its layers and faces."""

    level: int = 0
    number: int = 0


FIRST = TexturePlace()


class Preview(Struct, frozen=True):
    """The preview of a file.

    Args:
        text: the preview without a picture.
        form: the format of the picture to decode, "" if it is not a picture.
        levels: the levels of a texture, the largest first.
        pictures: the layers and faces of a texture.
        above: lines above the picture.
    """

    text: TextPreview
    form: str = ""
    levels: tuple[Level, ...] = ()
    pictures: Pictures = Pictures()
    above: Lines = ()

    @property
    def at_first(self) -> TextPreview:
        """The preview until the picture is decoded: without the text, so that no text flashes up."""
        return TextPreview("", self.above, is_numbered=False) if self.form else self.text

    def place(self, level: int, number: int) -> TexturePlace:
        """Return the nearest level and picture of the texture."""
        return TexturePlace(max(0, min(level, len(self.levels) - 1)), max(0, min(number, self.pictures.total - 1)))

    def view(
        self, place: TexturePlace, columns: int, rows: int, *, shares: int = 1, cell: tuple[int, int] | None = None
    ) -> PictureView:
        """Return the picture to decode for this number of cells.

        Args:
            place: the level and picture of a texture; if the texture has fewer, the nearest one is decoded.
            columns, rows: size of the part of the view that pictures fill (cells).
            shares: number of pictures beside each other.
            cell: width and height of a cell in pixels if the terminal shows pixels. If None, only drawings depend on the cells.
        """
        if cell is not None:
            wide, high = min(columns * cell[0], _MOST_PIXELS), min(rows * cell[1], _MOST_PIXELS)
        else:
            wide, high = (columns * 2, rows * 4) if self.form in DRAWN else (MOST_WIDE, MOST_HIGH)
        level, number = self.place(*place)
        return PictureView(self.form, level, max(1, wide // shares), max(1, high), number)

    def title(self, place: TexturePlace) -> str:
        """Return the title of the picture: its kind; if the texture has several pictures, also layer, face, level and size."""
        level, number = self.place(*place)
        words = [self.pictures.name(number)]
        if len(self.levels) > 1:
            width, height, _, size, _ = self.levels[level]
            words.append(f"level {level + 1} of {len(self.levels)}: {width:,} × {height:,}, {size_text(size)}")
        return ", ".join(filter(None, (*words, self.text.kind)))

    def beside(self, label: str, now: Preview, place: TexturePlace) -> Lines:
        """Return the lines above two pictures: this picture at the left, and the picture `now` at the right."""
        return (
            (("left   ", "key"), (f"{make_safe(label)}  ", "value"), (self.title(place), "muted")),
            (("right  ", "key"), ("now  ", "value"), (now.title(place), "muted")),
        )

    def with_picture(self, picture: Pixels | str, place: TexturePlace = FIRST) -> TextPreview:
        """Return the preview with the decoded picture, or with the reason why no picture is shown."""
        if isinstance(picture, Pixels):
            return TextPreview(self.title(place), self.above, is_numbered=False, pixels=picture)
        return without_picture(self.text, picture)


def without_picture(text: TextPreview, why: str) -> TextPreview:
    """Return the text preview of a picture that is not drawn."""
    return replace(text, lines=((("Picture ", "key"), (f"not shown: {why}", "warning")), *text.lines))


def preview_of(path: str, name: str = "") -> Preview:
    """Return the preview of a file; `name` replaces the name of the file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as stream:
            head = stream.read(HEAD_BYTES) or b""
            size = os.fstat(fd).st_size
    except OSError:
        return Preview(read_preview(path))  # the preview shows the error
    facts = image_facts(head, os.path.basename(name or path))
    if facts is None:
        return Preview(read_preview(path))
    listed = _list_model_facts(path, head) if facts.form == _MODEL else []
    if facts.form == _MODEL and not listed:
        return Preview(read_preview(path))
    listed.append(("File", size_text(size)))
    text = _as_text(facts, listed, head)
    if why := objection(facts, size):
        return Preview(without_picture(text, why))
    return Preview(text, facts.form, facts.levels, facts.pictures, _fold(listed) if facts.form == _MODEL else ())


def _list_model_facts(path: str, head: bytes) -> list[tuple[str, str]]:
    """Return (label, value) of the facts about a GLB file, [] if it is damaged."""
    from aptui.tui.pictures.glb import LONGEST_JSON_BYTES, describe_glb  # imported here because only models need this module

    if 20 + int.from_bytes(head[12:16], "little") > len(head):
        with open(path, "rb") as stream:
            head = stream.read(LONGEST_JSON_BYTES)
    return describe_glb(head)


def _as_text(facts: Facts, listed: Sequence[tuple[str, str]], head: bytes) -> TextPreview:
    """Return one line for each fact that the title does not have, and the first bytes."""
    width = 12 if facts.form == _MODEL else 8
    lines: list[tuple[Piece, ...]] = [((f"{name:<{width}}", "key"), (make_safe(value), "value")) for name, value in listed]
    kind = ", ".join(filter(None, (f"{facts.form} {facts.extent}".rstrip(), facts.more)))
    return TextPreview(kind, (*lines, (), *hex_lines(head[:_HEX_BYTES])), is_numbered=False)


def _fold(listed: Sequence[tuple[str, str]]) -> Lines:
    """Return a few facts on each line."""
    return tuple(
        tuple(
            piece for name, value in listed[at : at + _FACTS_A_LINE]
            for piece in ((f"{name} ", "key"), (f"{make_safe(value)}  ", "value"))
        )
        for at in range(0, len(listed), _FACTS_A_LINE)
    )  # fmt: skip
