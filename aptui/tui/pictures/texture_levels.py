"""Headers of KTX2 and DDS textures: the name of the texel format, and the offsets of all levels, layers and faces in the file.

A level (mip) is one size of the texture, the largest first. Each layer of an array, and each of the six faces of a cube map, is a
picture; the faces of a layer follow each other. A header is not trusted: offsets may be outside the file, and sizes may be wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

BLOCKS = {
    131: ("bc1", 4, 8), 137: ("bc3", 4, 16), 139: ("bc4", 4, 8), 141: ("bc5", 4, 16), 145: ("bc7", 4, 16), 147: ("etc2", 4, 8),
    151: ("etc2a8", 4, 16), 153: ("eacr", 4, 8), 155: ("eacrg", 4, 16), 157: ("astc", 4, 16), 161: ("astc", 5, 16),
    165: ("astc", 6, 16), 171: ("astc", 8, 16), 37: ("RGBA", 1, 4), 9: ("L", 1, 1),
}  # fmt: skip
"""{format of Vulkan: (function of texture2ddecoder, or mode of Pillow; side of a block; bytes of a block)}."""
SRGB = {132: 131, 138: 137, 146: 145, 148: 147, 152: 151, 158: 157, 162: 161, 166: 165, 172: 171, 43: 37, 15: 9}
DDS_SIZE = slice(12, 20)
"""The bytes of a DDS header with height and width."""
_DXGI_FOLLOWS = b"DX10"
_DDS_IS_CUBE, _DDS_FACES, _DXGI_IS_CUBE = 0x200, 0xFC00, 4
"""Flags of a DDS header: "is a cube map", and one flag for each stored face; and "is a cube map" in the DirectX 10 header."""
_FACES = "+X", "-X", "+Y", "-Y", "+Z", "-Z"
_MOST_LAYERS = 2048
"""Maximum number of layers that are listed, which is the limit of DirectX and of most graphics cards."""
_MOST_LEVELS = 16
"""Maximum number of levels that are listed: a texture with more levels would be larger than 32,768 pixels a side."""


class Level(NamedTuple):
    """A level of the first picture: width and height in pixels, its first byte in the file, and its size in bytes.

    `step` is the number of bytes from this level of a picture to the same level of the next picture.
    """

    width: int
    height: int
    start: int
    size: int
    step: int


class Pictures(NamedTuple):
    """The pictures of a texture: number of layers, 0 if it is not an array; number of faces, 1 if it is not a cube map."""

    layers: int = 0
    faces: int = 1

    @property
    def total(self) -> int:
        """The number of pictures."""
        return max(1, self.layers) * self.faces

    def name(self, number: int) -> str:
        """Return the name of a picture: "layer 2 of 3, face +X"; "" if the texture has only one picture."""
        layer, face = divmod(number, self.faces)
        words = [f"layer {layer + 1:,} of {self.layers:,}"] if self.layers > 1 else []
        if self.faces > 1:
            words.append(f"face {_FACES[face]}" if self.faces == len(_FACES) else f"face {face + 1} of {self.faces}")
        return ", ".join(words)


def ktx2_format(head: bytes) -> str:
    """Return the name of the texel format."""
    (number,) = struct.unpack_from("<I", head, 12)
    kind, side, _ = BLOCKS.get(SRGB.get(number, number), ("", 0, 0))
    name = f"{kind.upper()}{f' {side}x{side}' if kind == 'astc' else ''}" if kind else f"Vulkan format {number}"
    return f"{name}, sRGB" if number in SRGB else name


def ktx2_levels(head: bytes) -> tuple[Level, ...]:
    """Return the levels of a KTX2 file."""
    width, height = struct.unpack_from("<2I", head, 20)
    pictures = _all_ktx2_pictures(head).total
    (count,) = struct.unpack_from("<I", head, 40)
    places = (struct.unpack_from("<2Q", head, 80 + 24 * level) for level in range(min(max(1, count), _MOST_LEVELS)))
    return tuple(
        Level(*size, start, length // pictures, length // pictures)
        for size, (start, length) in zip(_halve_repeatedly(width, height), places, strict=False)
    )


def ktx2_pictures(head: bytes) -> Pictures:
    """Return the layers of a KTX2 file, at most `_MOST_LAYERS`, and its faces."""
    pictures = _all_ktx2_pictures(head)
    return pictures._replace(layers=min(pictures.layers, _MOST_LAYERS))


def _all_ktx2_pictures(head: bytes) -> Pictures:
    """Return all layers and faces of a KTX2 file, even those beyond `_MOST_LAYERS`, because their number determines the offsets."""
    layers, faces = struct.unpack_from("<2I", head, 32)
    return Pictures(layers, len(_FACES) if faces == len(_FACES) else 1)


def dds_format(head: bytes) -> str:
    """Return the name of the texel format."""
    code = head[84:88]
    if code == _DXGI_FOLLOWS:
        return f"DXGI format {struct.unpack_from('<I', head, 128)[0]}"
    if code.strip(b"\0").isalnum():
        return code.decode("ascii")
    return f"{struct.unpack_from('<I', head, 88)[0]} bits"


def dds_levels(head: bytes) -> tuple[Level, ...]:
    """Return the levels of a DDS file; only the first level, with size 0, if the size of a block is unknown."""
    height, width = struct.unpack_from("<II", head, 12)
    (count,) = struct.unpack_from("<I", head, 28)
    side, size = _dds_block(head)
    levels, first = [], 148 if head[84:88] == _DXGI_FOLLOWS else 128
    start = first
    for level_width, level_height in _halve_repeatedly(width, height):
        length = -(-level_width // side) * -(-level_height // side) * size
        levels.append((level_width, level_height, start, length))
        start += length
        if len(levels) >= min(count, _MOST_LEVELS) or not size:
            break
    return tuple(Level(*level, start - first) for level in levels)


def dds_pictures(head: bytes) -> Pictures:
    """Return the layers and faces of a DDS file; one picture if the size of a block is unknown."""
    if not _dds_block(head)[1]:
        return Pictures()
    if head[84:88] == _DXGI_FOLLOWS:
        flags, layers = struct.unpack_from("<2I", head, 136)
        return Pictures(min(layers, _MOST_LAYERS) if layers > 1 else 0, len(_FACES) if flags & _DXGI_IS_CUBE else 1)
    (flags,) = struct.unpack_from("<I", head, 112)
    return Pictures(0, (flags & _DDS_FACES).bit_count() or 1 if flags & _DDS_IS_CUBE else 1)


def _dds_block(head: bytes) -> tuple[int, int]:
    """Return (side of a block in pixels, its size in bytes); the size is 0 if the format is unknown."""
    code = head[84:88]
    if code == _DXGI_FOLLOWS:
        (number,) = struct.unpack_from("<I", head, 128)
        return next((block for numbers, block in _DXGI_BLOCKS if number in numbers), (1, 0))
    if code.strip(b"\0"):
        return (4, _CODED_BYTES[code]) if code in _CODED_BYTES else (1, 0)
    return 1, struct.unpack_from("<I", head, 88)[0] // 8


_DXGI_BLOCKS = (
    (range(70, 73), (4, 8)),  # BC1
    (range(73, 79), (4, 16)),  # BC2, BC3
    (range(79, 82), (4, 8)),  # BC4
    (range(82, 85), (4, 16)),  # BC5
    (range(94, 100), (4, 16)),  # BC6H, BC7
    (range(27, 33), (1, 4)),  # RGBA
    (range(87, 94), (1, 4)),  # BGRA
    (range(60, 65), (1, 1)),  # R8
)
"""(numbers of DXGI formats, (side of a block in pixels, bytes of a block))."""
_CODED_BYTES = {
    b"DXT1": 8, b"DXT2": 16, b"DXT3": 16, b"DXT4": 16, b"DXT5": 16, b"ATI1": 8, b"BC4U": 8, b"BC4S": 8, b"ATI2": 16, b"BC5U": 16,
    b"BC5S": 16,
}  # fmt: skip


def _halve_repeatedly(width: int, height: int) -> Iterator[tuple[int, int]]:
    """Yield the sizes of the levels of a texture, down to one pixel."""
    while True:
        yield max(1, width), max(1, height)
        if width <= 1 and height <= 1:
            return
        width, height = width >> 1, height >> 1
