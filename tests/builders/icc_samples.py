"""ICC profiles made by hand (ICC.1:2001-04): RGB with primaries and a gamma, grey, and CMYK with a small table."""

from __future__ import annotations

import struct

SRGB_PRIMARIES = ((0.4360747, 0.2225045, 0.0139322), (0.3850649, 0.7168786, 0.0971045), (0.1430804, 0.0606169, 0.7141733))
"""Columns of the matrix of sRGB at the illuminant D50."""


def fixed(*values: float) -> bytes:
    return b"".join(struct.pack(">i", round(value * 65536)) for value in values)


def profile(
    space: bytes, tags: dict[bytes, bytes], kind: bytes = b"mntr", connection: bytes = b"XYZ ", name: str = "test"
) -> bytes:
    text = name.encode() + b"\0"
    description = b"desc" + bytes(4) + struct.pack(">I", len(text)) + text + bytes(78)
    everything = {b"desc": description, b"wtpt": b"XYZ " + bytes(4) + fixed(0.9642, 1, 0.8249), **tags}
    table, body, at = b"", b"", 132 + 12 * len(everything)
    for tag, unpadded in everything.items():
        content = unpadded + bytes(-len(unpadded) % 4)
        table += tag + struct.pack(">II", at + len(body), len(content))
        body += content
    head = bytes(4) + bytes(4) + struct.pack(">I", 0x02400000) + kind + space + connection + bytes(12) + b"acsp" + bytes(28)
    head += fixed(0.9642, 1, 0.8249)
    rest = struct.pack(">I", len(everything)) + table + body
    return struct.pack(">I", 128 + len(rest)) + head[4:].ljust(124, b"\0") + rest


def curve(gamma: float) -> bytes:
    return b"curv" + bytes(4) + struct.pack(">IH", 1, round(gamma * 256)) + b"\0\0"


def rgb(gamma: float = 2.2, primaries: tuple[tuple[float, ...], ...] = SRGB_PRIMARIES, name: str = "test") -> bytes:
    tags = {tag: b"XYZ " + bytes(4) + fixed(*xyz) for tag, xyz in zip((b"rXYZ", b"gXYZ", b"bXYZ"), primaries, strict=True)}
    return profile(b"RGB ", {**tags, b"rTRC": curve(gamma), b"gTRC": curve(gamma), b"bTRC": curve(gamma)}, name=name)


def grey(gamma: float) -> bytes:
    return profile(b"GRAY", {b"kTRC": curve(gamma)}, name="test grey")


def cmyk() -> bytes:
    """Return a profile whose inks are all grey: the lightness decreases with their sum."""
    corners = bytes(
        value
        for number in range(16)
        for value in (round(255 * (1 - number.bit_count() / 4)), 128, 128)
    )  # fmt: skip
    ramp = bytes(range(256))
    matrix = fixed(1, 0, 0, 0, 1, 0, 0, 0, 1)
    table = b"mft1" + bytes(4) + bytes((4, 3, 2, 0)) + matrix + ramp * 4 + corners + ramp * 3
    return profile(b"CMYK", {b"A2B0": table}, b"prtr", b"Lab ", "test inks")
