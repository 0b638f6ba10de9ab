"""Give an Ogg file the same bytes each time: replace the random serial number of its stream, and the checksum of each page.

Source: RFC 3533, section 6. Tests: `tests/builders/test_audio_builder.py`.
"""

from __future__ import annotations

import struct
from functools import cache

SERIAL = 1
_HEADER = struct.Struct("<4sBBqIIIB")
"""Capture pattern, version, type, granule position, serial number, page number, checksum, number of segments."""
_SERIAL_AT, _CHECKSUM_AT = 14, 22
_POLYNOMIAL = 0x04C11DB7


def set_serial(path: str) -> None:
    """Write the serial number `SERIAL` into all pages of a file with one logical stream.

    Raises:
        ValueError: the file does not consist of Ogg pages.
    """
    with open(path, "r+b") as file:
        at = 0
        while head := file.read(_HEADER.size):
            if len(head) < _HEADER.size or head[:4] != b"OggS":
                raise ValueError(f"there is no Ogg page at byte {at}")
            segments = file.read(head[-1])
            page = bytearray(head + segments + file.read(sum(segments)))
            struct.pack_into("<I", page, _SERIAL_AT, SERIAL)
            struct.pack_into("<I", page, _CHECKSUM_AT, 0)
            struct.pack_into("<I", page, _CHECKSUM_AT, checksum(page))
            file.seek(at)
            file.write(page)
            at += len(page)


def checksum(page: bytes | bytearray) -> int:
    """Return the checksum of a page whose checksum field is 0: a CRC without bit reflection, so zlib's CRC cannot be used."""
    table, value = _table(), 0
    for byte in page:
        value = ((value << 8) & 0xFFFFFFFF) ^ table[(value >> 24) ^ byte]
    return value


@cache
def _table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte << 24
        for _ in range(8):
            value = ((value << 1) ^ (_POLYNOMIAL if value & 0x80000000 else 0)) & 0xFFFFFFFF
        table.append(value)
    return table
