"""Previews of sources and products: images by what their first bytes say, everything else as `widgets.textview` does it.

Blocks: call in a thread.

Tests: `tests/tui/screens/assets/test_pane.py`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator

from aptui.tui.widgets.textview import Piece, TextPreview, read_preview
from aptui.tui.words import size_text

_HEAD_BYTES = 64 * 1024
_HEX_BYTES = 256
_PNG_COLOURS = {0: "grey", 2: "RGB", 3: "palette", 4: "grey + alpha", 6: "RGBA"}
_DXGI_FOLLOWS = b"DX10"
Facts = tuple[str, int, int, str]
"""Format, width, height, and what more is known."""


def preview_of(path: str) -> TextPreview:
    """Return the preview of a file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as stream:
            head = stream.read(_HEAD_BYTES) or b""
            size = os.fstat(fd).st_size
    except OSError:
        return read_preview(path)  # says why
    facts = image_facts(head, os.path.basename(path))
    return read_preview(path) if facts is None else _picture(facts, head, size)


def _picture(facts: Facts, head: bytes, size: int) -> TextPreview:
    form, width, height, more = facts
    told = [("Format", form), ("Size", f"{width:,} × {height:,}"), ("Pixels", more), ("File", size_text(size))]
    lines: list[tuple[Piece, ...]] = [((f"{name:<8}", "key"), (value, "value")) for name, value in told if value]
    lines += [(), *_hex(head[:_HEX_BYTES])]
    return TextPreview(f"{form} {width:,} × {height:,}", tuple(lines), is_numbered=False)


def _hex(data: bytes) -> Iterator[tuple[Piece, ...]]:
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        yield ((f"{at:08x}  ", "muted"), (f"{row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}  ", ""), (letters, "muted"))


def image_facts(head: bytes, name: str) -> Facts | None:
    """Return what the first bytes say of an image, None = they are of none. Nothing is decoded, so none is too large."""
    reads = next((read for mark, read in _BY_MARK.items() if head.startswith(mark)), None)
    if reads is None and name.lower().endswith(".tga"):
        reads = _tga
    try:
        return reads(head) if reads is not None else None
    except struct.error:  # it is shorter than its kind must be
        return None


def _png(head: bytes) -> Facts:
    width, height, bits, colours = struct.unpack_from(">IIBB", head, 16)
    return "PNG", width, height, f"{_PNG_COLOURS.get(colours, '?')}, {bits} bits"


def _gif(head: bytes) -> Facts:
    width, height = struct.unpack_from("<HH", head, 6)
    return "GIF", width, height, "palette"


def _bmp(head: bytes) -> Facts | None:
    size, width, height, planes, bits = struct.unpack_from("<IiiHH", head, 14)
    return ("BMP", width, abs(height), f"{bits} bits") if size >= 40 and planes == 1 else None


def _psd(head: bytes) -> Facts:
    height, width, bits = struct.unpack_from(">IIH", head, 14)
    return "PSD", width, height, f"{bits} bits"


def _tga(head: bytes) -> Facts | None:
    """Read the header of the one kind that has no mark."""
    has_map, kind = struct.unpack_from("BB", head, 1)
    width, height, bits = struct.unpack_from("<HHB", head, 12)
    if has_map > 1 or kind not in {1, 2, 3, 9, 10, 11}:
        return None
    return "TGA", width, height, f"{bits} bits{', compressed' if kind > 3 else ''}"


def _dds(head: bytes) -> Facts:
    height, width = struct.unpack_from("<II", head, 12)
    return "DDS", width, height, _dds_pixels(head)


def _dds_pixels(head: bytes) -> str:
    code = head[84:88]
    if code == _DXGI_FOLLOWS:
        return f"DXGI format {struct.unpack_from('<I', head, 128)[0]}"
    if code.strip(b"\0").isalnum():
        return code.decode("ascii")
    return f"{struct.unpack_from('<I', head, 88)[0]} bits"


def _webp(head: bytes) -> Facts | None:
    if head[8:12] != b"WEBP":
        return None
    kind = head[12:16]
    if kind == b"VP8X":
        width, height = (int.from_bytes(head[at : at + 3], "little") + 1 for at in (24, 27))
        return "WebP", width, height, "alpha" if head[20] & 16 else ""
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", head, 21)
        return "WebP", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, "lossless"
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", head, 26)
        return "WebP", width & 0x3FFF, height & 0x3FFF, ""
    return None


def _jpeg(head: bytes) -> Facts | None:
    """Walk the segments up to the one that tells the size."""
    at = 2
    while at + 9 < len(head) and head[at] == 0xFF:
        marker = head[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            bits, height, width, parts = struct.unpack_from(">BHHB", head, at + 4)
            return "JPEG", width, height, f"{ {1: 'grey', 3: 'YCbCr', 4: 'CMYK'}.get(parts, '?') }, {bits} bits"
        at += 2 + struct.unpack_from(">H", head, at + 2)[0]
    return None


_BY_MARK: dict[bytes, Callable[[bytes], Facts | None]] = {
    b"\x89PNG\r\n\x1a\n": _png,
    b"GIF87a": _gif,
    b"GIF89a": _gif,
    b"BM": _bmp,
    b"8BPS": _psd,
    b"DDS ": _dds,
    b"RIFF": _webp,
    b"\xff\xd8\xff": _jpeg,
}
