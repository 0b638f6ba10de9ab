"""What the first bytes of a picture say: its format, its size, its kind of pixels. Nothing is decoded, so none is too large.

Tests: `tests/tui/pictures/test_facts.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

HEAD_BYTES = 64 * 1024
_PNG_COLOURS = {0: "grey", 2: "RGB", 3: "palette", 4: "grey + alpha", 6: "RGBA"}
_DXGI_FOLLOWS = b"DX10"


class Facts(NamedTuple):
    """Format, width and height in pixels (0 = the header was not read so far), and what more is known."""

    form: str
    width: int
    height: int
    more: str


def image_facts(head: bytes, name: str) -> Facts | None:
    """Return what the first bytes say of an image, None = they are of none."""
    reads = next((read for mark, read in _BY_MARK.items() if head.startswith(mark)), None)
    if reads is None and name.lower().endswith(".tga"):
        reads = _tga
    try:
        return reads(head) if reads is not None else None
    except struct.error:  # it is shorter than its kind must be
        return None


def _png(head: bytes) -> Facts:
    width, height, bits, colours = struct.unpack_from(">IIBB", head, 16)
    return Facts("PNG", width, height, f"{_PNG_COLOURS.get(colours, '?')}, {bits} bits")


def _gif(head: bytes) -> Facts:
    width, height = struct.unpack_from("<HH", head, 6)
    return Facts("GIF", width, height, "palette")


def _bmp(head: bytes) -> Facts | None:
    size, width, height, planes, bits = struct.unpack_from("<IiiHH", head, 14)
    return Facts("BMP", width, abs(height), f"{bits} bits") if size >= 40 and planes == 1 else None


def _psd(head: bytes) -> Facts:
    height, width, bits = struct.unpack_from(">IIH", head, 14)
    return Facts("PSD", width, height, f"{bits} bits")


def _tga(head: bytes) -> Facts | None:
    """Read the header of the one kind that has no mark."""
    has_map, kind = struct.unpack_from("BB", head, 1)
    width, height, bits = struct.unpack_from("<HHB", head, 12)
    if has_map > 1 or kind not in {1, 2, 3, 9, 10, 11}:
        return None
    return Facts("TGA", width, height, f"{bits} bits{', compressed' if kind > 3 else ''}")


def _dds(head: bytes) -> Facts:
    height, width = struct.unpack_from("<II", head, 12)
    return Facts("DDS", width, height, _dds_pixels(head))


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
        return Facts("WebP", width, height, "alpha" if head[20] & 16 else "")
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", head, 21)
        return Facts("WebP", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, "lossless")
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", head, 26)
        return Facts("WebP", width & 0x3FFF, height & 0x3FFF, "")
    return None


def _jpeg(head: bytes) -> Facts | None:
    """Walk the segments up to the one that tells the size."""
    at = 2
    while at + 9 < len(head) and head[at] == 0xFF:
        marker = head[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            bits, height, width, parts = struct.unpack_from(">BHHB", head, at + 4)
            return Facts("JPEG", width, height, f"{ {1: 'grey', 3: 'YCbCr', 4: 'CMYK'}.get(parts, '?') }, {bits} bits")
        at += 2 + struct.unpack_from(">H", head, at + 2)[0]
    return None


def _tiff(head: bytes) -> Facts | None:
    """Read the first directory, where its entries are within the first bytes; else the size is not known."""
    order = "<" if head.startswith(b"I") else ">"
    (at,) = struct.unpack_from(f"{order}I", head, 4)
    if at + 2 > len(head):
        return Facts("TIFF", 0, 0, "")
    (count,) = struct.unpack_from(f"{order}H", head, at)
    numbers = {}
    for start in range(at + 2, min(at + 2 + 12 * count, len(head) - 11), 12):
        tag, kind = struct.unpack_from(f"{order}HH", head, start)
        (numbers[tag],) = struct.unpack_from(f"{order}{'H' if kind == _TIFF_SHORT else 'I'}", head, start + 8)
    samples = numbers.get(277, 1)
    return Facts("TIFF", numbers.get(256, 0), numbers.get(257, 0), f"{samples} channels" if samples > 1 else "")


_TIFF_SHORT = 3
_BY_MARK: dict[bytes, Callable[[bytes], Facts | None]] = {
    b"\x89PNG\r\n\x1a\n": _png,
    b"GIF87a": _gif,
    b"GIF89a": _gif,
    b"BM": _bmp,
    b"8BPS": _psd,
    b"DDS ": _dds,
    b"RIFF": _webp,
    b"\xff\xd8\xff": _jpeg,
    b"II*\0": _tiff,
    b"MM\0*": _tiff,
    b"v/1\x01": lambda _: Facts("OpenEXR", 0, 0, ""),
    b"#?RADIANCE": lambda _: Facts("Radiance HDR", 0, 0, ""),
    b"\xabKTX 11\xbb": lambda _: Facts("KTX", 0, 0, ""),
    b"\xabKTX 20\xbb": lambda _: Facts("KTX 2", 0, 0, ""),
    b"PVR\x03": lambda _: Facts("PVR", 0, 0, ""),
}
