"""Writes GPU textures as KTX2 and DDS files with all levels, layers and faces, and defines the formats of texels.

Sources: the KTX 2.0 specification and the Khronos Data Format Specification 1.3; Microsoft's DDS_HEADER_DXT10.

Tests: `tests/builders/test_texture_builder.py`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from msgspec import Struct

ALPHA_CHANNEL = 15
"""Number of the alpha channel in a data format descriptor; 0, 1 and 2 are red, green and blue."""

_SRGB_TRANSFER, _LINEAR_TRANSFER, _BT709_PRIMARIES = 2, 1, 1
_IS_LINEAR = 0x10
"""Flag of the alpha channel in the data format descriptor of an sRGB texture: alpha is linear, although the colours are not."""
_IS_PREMULTIPLIED = 1
_DDS_CAPS, _DDS_CUBE = 0x401008, 0xFE00
_DDS_FLAGS = 0x1 | 0x2 | 0x4 | 0x1000 | 0x20000 | 0x80000
"""Fields that are present in a DDS header: caps, height, width, pixel format, mip count, linear size."""


class TextureFormat(Struct, frozen=True):
    """A texel format with its numbers in Vulkan, DirectX and KTX2; a number is 0 if that API does not have the format.

    `samples` are the (first bit, number of bits, channel) of each channel in a block. A block has `block` texels and `size` bytes.
    """

    block: tuple[int, int]
    size: int
    vulkan: int
    vulkan_srgb: int
    dxgi: int
    dxgi_srgb: int
    model: int
    samples: tuple[tuple[int, int, int], ...]


def _astc(width: int, height: int, vulkan: int) -> TextureFormat:
    return TextureFormat((width, height), 16, vulkan, vulkan + 1, 0, 0, 162, ((0, 128, 0),))


FORMATS = {
    "bc1": TextureFormat((4, 4), 8, 131, 132, 71, 72, 128, ((0, 64, 0),)),
    "bc3": TextureFormat((4, 4), 16, 137, 138, 77, 78, 130, ((0, 64, ALPHA_CHANNEL), (64, 64, 0))),
    "bc4": TextureFormat((4, 4), 8, 139, 0, 80, 0, 131, ((0, 64, 0),)),
    "bc5": TextureFormat((4, 4), 16, 141, 0, 83, 0, 132, ((0, 64, 0), (64, 64, 1))),
    "bc7": TextureFormat((4, 4), 16, 145, 146, 98, 99, 134, ((0, 128, 0),)),
    "etc2_rgb": TextureFormat((4, 4), 8, 147, 148, 0, 0, 161, ((0, 64, 2),)),
    "etc2_rgba": TextureFormat((4, 4), 16, 151, 152, 0, 0, 161, ((0, 64, ALPHA_CHANNEL), (64, 64, 2))),
    "eac_r": TextureFormat((4, 4), 8, 153, 0, 0, 0, 161, ((0, 64, 0),)),
    "eac_rg": TextureFormat((4, 4), 16, 155, 0, 0, 0, 161, ((0, 64, 0), (64, 64, 1))),
    "astc_4x4": _astc(4, 4, 157),
    "astc_5x5": _astc(5, 5, 161),
    "astc_6x6": _astc(6, 6, 165),
    "astc_8x8": _astc(8, 8, 171),
    "r8": TextureFormat((1, 1), 1, 9, 15, 61, 0, 1, ((0, 8, 0),)),
    "rgba8": TextureFormat((1, 1), 4, 37, 43, 28, 29, 1, tuple((8 * at, 8, channel) for at, channel in enumerate((0, 1, 2, 15)))),
}
"""{name of a texel format in the builder's parameters: the texel format}."""


class Texture(Struct, frozen=True):
    """An encoded texture. `levels[level][picture]` is bytes: level 0 is the largest, and the faces of a layer follow each other."""

    format_name: str
    width: int
    height: int
    levels: Sequence[Sequence[bytes]]
    is_srgb: bool
    is_premultiplied: bool = False
    face_count: int = 1
    is_array: bool = False
    swizzle: str = ""

    @property
    def format(self) -> TextureFormat:
        """The texel format with the name `format_name`."""
        return FORMATS[self.format_name]

    @property
    def layer_count(self) -> int:
        """Number of layers, 1 if the texture is not an array."""
        return len(self.levels[0]) // self.face_count


def encode_ktx2(texture: Texture) -> bytes:
    """Return a KTX 2.0 file, without supercompression, the smallest level first."""
    form = texture.format
    vulkan = form.vulkan_srgb if texture.is_srgb and form.vulkan_srgb else form.vulkan
    descriptor = _describe_format(texture)
    values = _encode_values({"KTXswizzle": texture.swizzle, "KTXwriter": "aptui texture"})
    descriptor_at = 80 + 24 * len(texture.levels)
    values_at = descriptor_at + len(descriptor)
    place, places, body = values_at + len(values), [(0, 0)] * len(texture.levels), bytearray()
    for index in reversed(range(len(texture.levels))):
        padding = -place % math.lcm(form.size, 4)
        data = b"".join(texture.levels[index])
        body += bytes(padding) + data
        places[index] = place + padding, len(data)
        place += padding + len(data)
    head = b"\xabKTX 20\xbb\r\n\x1a\n" + struct.pack(
        "<9I", vulkan, 1, texture.width, texture.height, 0, texture.layer_count if texture.is_array else 0, texture.face_count,
        len(texture.levels), 0,
    )  # fmt: skip
    head += struct.pack("<4I2Q", descriptor_at, len(descriptor), values_at, len(values), 0, 0)
    index_of_levels = b"".join(struct.pack("<3Q", at, size, size) for at, size in places)
    return head + index_of_levels + descriptor + values + bytes(body)


def _describe_format(texture: Texture) -> bytes:
    """Return the data format descriptor: its size, and one basic block."""
    form = texture.format
    is_srgb = texture.is_srgb and form.vulkan_srgb != 0
    highest = 255 if form.model == 1 else 0xFFFFFFFF
    samples = b"".join(
        struct.pack(
            "<HBB4BII",
            bit,
            count - 1,
            channel | (_IS_LINEAR if is_srgb and channel == ALPHA_CHANNEL else 0),
            0,
            0,
            0,
            0,
            0,
            highest,
        )
        for bit, count, channel in form.samples
    )
    width, height = form.block
    basic = struct.pack(
        "<HHHHBBBB4B8B", 0, 0, 2, 24 + len(samples), form.model, _BT709_PRIMARIES, _SRGB_TRANSFER if is_srgb else _LINEAR_TRANSFER,
        _IS_PREMULTIPLIED if texture.is_premultiplied else 0, width - 1, height - 1, 0, 0, form.size, 0, 0, 0, 0, 0, 0, 0,
    )  # fmt: skip
    return struct.pack("<I", 4 + len(basic) + len(samples)) + basic + samples


def _encode_values(values: dict[str, str]) -> bytes:
    """Return the key and value data of a KTX2 file; `values` are sorted by key, and empty values are left out."""
    data = bytearray()
    for name, text in values.items():
        if text:
            entry = f"{name}\0{text}\0".encode()
            data += struct.pack("<I", len(entry)) + entry + bytes(-len(entry) % 4)
    return bytes(data)


def encode_dds(texture: Texture) -> bytes:
    """Return a DDS file with the header of DirectX 10.

    Raises:
        ValueError: DDS does not have this format.
    """
    form = texture.format
    dxgi = form.dxgi_srgb if texture.is_srgb and form.dxgi_srgb else form.dxgi
    if not dxgi:
        raise ValueError(f"a DDS file cannot contain the format {texture.format_name}; use KTX2")
    is_cube = texture.face_count > 1
    header = struct.pack(
        "<7I44x", 124, _DDS_FLAGS, texture.height, texture.width, len(texture.levels[0][0]), 1, len(texture.levels)
    )
    header += struct.pack("<2I4s5I", 32, 4, b"DX10", 0, 0, 0, 0, 0)
    header += struct.pack("<5I", _DDS_CAPS, _DDS_CUBE if is_cube else 0, 0, 0, 0)
    header += struct.pack("<5I", dxgi, 3, 4 if is_cube else 0, texture.layer_count, 2 if texture.is_premultiplied else 0)
    images = range(len(texture.levels[0]))
    return b"DDS " + header + b"".join(level[image] for image in images for level in texture.levels)
