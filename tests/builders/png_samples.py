"""A short PNG encoder and decoder for samples, which share no code with the library under test."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""Passes of Adam7: (first column, first row, column step, row step)."""

Pixel = tuple[int, ...]
Rows = Sequence[Sequence[Pixel]]


def chunk(kind: bytes, content: bytes, *, has_wrong_checksum: bool = False) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content) ^ has_wrong_checksum)


def png(rows: Rows, depth: int, colour_type: int, *chunks: bytes, is_interlaced: bool = False, after: bytes = b"") -> bytes:
    """Return a PNG with `chunks` before its pixels and `after` behind them."""
    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), depth, colour_type, 0, 0, is_interlaced)
    packed = zlib.compress(b"".join(_scanlines(rows, depth, is_interlaced=is_interlaced)))
    return b"".join((SIGNATURE, chunk(b"IHDR", header), *chunks, chunk(b"IDAT", packed), after, chunk(b"IEND", b"")))


def _scanlines(rows: Rows, depth: int, *, is_interlaced: bool) -> Iterator[bytes]:
    for left, top, across, down in PASSES if is_interlaced else ((0, 0, 1, 1),):
        for row in rows[top::down]:
            if pixels := row[left::across]:
                yield b"\0" + pack([value for pixel in pixels for value in pixel], depth)


def pack(values: Sequence[int], depth: int) -> bytes:
    if depth == 16:
        return struct.pack(f">{len(values)}H", *values)
    number = "".join(f"{value:0{depth}b}" for value in values)
    return int(number + "0" * (-len(number) % 8), 2).to_bytes((len(number) + 7) // 8)


def samples_of(data: bytes) -> tuple[int, int, list[list[Pixel]]]:
    """Return (bit depth, colour type, rows of pixels) of a PNG of 8 or 16 bits that is not interlaced."""
    assert data.startswith(SIGNATURE)
    at, packed = len(SIGNATURE), b""
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        content = data[at + 8 : at + 8 + length]
        assert data[at : at + 12 + length] == chunk(kind, content)
        if kind == b"IHDR":
            width, height, depth, colour_type, _, _, interlace = struct.unpack(">IIBBBBB", content)
            assert not interlace
        packed += content if kind == b"IDAT" else b""
        at += 12 + length
    pixel_bytes = CHANNELS[colour_type] * depth // 8
    lines, above = zlib.decompress(packed), bytes(width * pixel_bytes)
    rows = []
    for line in range(height):
        start = line * (width * pixel_bytes + 1)
        above = _unfiltered(lines[start], lines[start + 1 : start + 1 + width * pixel_bytes], above, pixel_bytes)
        values = struct.unpack(f">{width * CHANNELS[colour_type]}{'H' if depth == 16 else 'B'}", above)
        rows.append([values[each : each + CHANNELS[colour_type]] for each in range(0, len(values), CHANNELS[colour_type])])
    return depth, colour_type, rows


def _unfiltered(kind: int, line: bytes, above: bytes, pixel_bytes: int) -> bytes:
    row = bytearray(line)
    for at, value in enumerate(line):
        left = row[at - pixel_bytes] if at >= pixel_bytes else 0
        up, up_left = above[at], above[at - pixel_bytes] if at >= pixel_bytes else 0
        guess = left + up - up_left
        nearest = min((left, up, up_left), key=lambda each: abs(guess - each))
        row[at] = (value + (0, left, up, (left + up) // 2, nearest)[kind]) & 255
    return bytes(row)
