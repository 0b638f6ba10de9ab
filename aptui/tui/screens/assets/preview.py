"""Previews of sources and products: pictures by what their first bytes say, everything else as `widgets.textview` does it.

Blocks: call in a thread.

Tests: `tests/tui/screens/assets/test_preview.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from aptui.tui.pictures.decoding import objection
from aptui.tui.pictures.facts import HEAD_BYTES, Facts, image_facts
from aptui.tui.pictures.pixels import Pixels
from aptui.tui.widgets.textview import Piece, TextPreview, read_preview
from aptui.tui.words import size_text

_HEX_BYTES = 256


class Preview(Struct, frozen=True):
    """What is shown of a file.

    Args:
        text: what can be said of it at once.
        form: the format of the picture that is to be decoded, "" = none is.
    """

    text: TextPreview
    form: str = ""

    @property
    def at_first(self) -> TextPreview:
        """What is shown until the picture is decoded: nothing that goes away again."""
        return TextPreview("", (), is_numbered=False) if self.form else self.text

    def with_picture(self, picture: Pixels | str) -> TextPreview:
        """Return what is shown once it is known: the picture, or why there is none and what else can be said."""
        if isinstance(picture, Pixels):
            return TextPreview(self.text.kind, (), is_numbered=False, pixels=picture)
        return without_picture(self.text, picture)


def without_picture(text: TextPreview, why: str) -> TextPreview:
    """Return what can be said of a picture that is not shown."""
    return replace(text, lines=((("Picture ", "key"), (f"not shown: {why}", "warning")), *text.lines))


def preview_of(path: str) -> Preview:
    """Return the preview of a file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as stream:
            head = stream.read(HEAD_BYTES) or b""
            size = os.fstat(fd).st_size
    except OSError:
        return Preview(read_preview(path))  # says why
    facts = image_facts(head, os.path.basename(path))
    if facts is None:
        return Preview(read_preview(path))
    why = objection(facts, size)
    text = _text(facts, head, size)
    return Preview(without_picture(text, why)) if why else Preview(text, facts.form)


def _text(facts: Facts, head: bytes, size: int) -> TextPreview:
    extent = f"{facts.width:,} × {facts.height:,}" if facts.width else ""
    facts_shown = [("Format", facts.form), ("Size", extent), ("Pixels", facts.more), ("File", size_text(size))]
    lines: list[tuple[Piece, ...]] = [((f"{name:<8}", "key"), (value, "value")) for name, value in facts_shown if value]
    lines += [(), *_hex(head[:_HEX_BYTES])]
    kind = ", ".join(filter(None, (f"{facts.form} {extent}".rstrip(), facts.more)))
    return TextPreview(kind, tuple(lines), is_numbered=False)


def _hex(data: bytes) -> Iterator[tuple[Piece, ...]]:
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        yield ((f"{at:08x}  ", "muted"), (f"{row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}  ", ""), (letters, "muted"))
