"""Headers of textures: every level is found where the encoder wrote it, and a hostile header gives few levels."""

import struct

import pytest

from aptui.builders.files.texture_file import FORMATS, Texture, encode_dds, encode_ktx2
from aptui.tui.pictures.texture_levels import dds_format, dds_levels, dds_pictures, ktx2_format, ktx2_levels, ktx2_pictures


def texture(name: str, layers: int = 1, faces: int = 1) -> Texture:
    """Return a texture of 20 × 9 pixels with five levels; each byte of a level of a picture is 16 × picture + level + 1."""
    side, form = FORMATS[name].block[0], FORMATS[name]
    sizes = [(20, 9), (10, 4), (5, 2), (2, 1), (1, 1)]
    levels = [
        [bytes([16 * number + at + 1]) * (-(-width // side) * -(-height // side) * form.size) for number in range(layers * faces)]
        for at, (width, height) in enumerate(sizes)
    ]
    return Texture(name, 20, 9, levels, is_srgb=False, face_count=faces, is_array=layers > 1)


@pytest.mark.parametrize(
    ("name", "encode", "find"),
    [(name, encode_ktx2, ktx2_levels) for name in ("bc1", "bc7", "astc_5x5", "rgba8", "r8")]
    + [(name, encode_dds, dds_levels) for name in ("bc1", "bc3", "bc4", "bc5", "bc7", "rgba8", "r8")],
)
def test_levels_are_found_at_the_offsets_where_the_encoder_wrote_them(name, encode, find):
    made = texture(name)
    data = encode(made)

    found = find(data)

    assert [(each.width, each.height) for each in found] == [(20, 9), (10, 4), (5, 2), (2, 1), (1, 1)]
    assert [data[each.start : each.start + each.size] for each in found] == [level for (level,) in made.levels]


@pytest.mark.parametrize(
    ("encode", "find", "count"), [(encode_ktx2, ktx2_levels, ktx2_pictures), (encode_dds, dds_levels, dds_pictures)]
)
@pytest.mark.parametrize(
    ("layers", "faces", "last"), [(1, 6, "face -Z"), (3, 1, "layer 3 of 3"), (2, 6, "layer 2 of 2, face -Z"), (1, 1, "")]
)
def test_every_level_of_every_face_and_layer_is_found(encode, find, count, layers, faces, last):
    made = texture("bc1", layers, faces)
    data = encode(made)

    pictures, levels = count(data), find(data)

    assert (pictures.total, pictures.name(pictures.total - 1)) == (layers * faces, last)
    for number in range(pictures.total):
        starts = [each.start + number * each.step for each in levels]
        assert [data[start : start + each.size] for start, each in zip(starts, levels, strict=True)] == [
            level[number] for level in made.levels
        ]


def test_pictures_of_an_array_with_many_layers_are_found_although_not_all_are_listed():
    data = encode_ktx2(Texture("r8", 2, 1, [[bytes([number % 251, 0]) for number in range(3000)]], is_srgb=False, is_array=True))

    pictures, (level, *_) = ktx2_pictures(data), ktx2_levels(data)

    assert pictures.total == 2048
    assert [data[level.start + number * level.step] for number in range(2048)] == [number % 251 for number in range(2048)]


def test_faces_of_an_old_dds_file_are_counted():
    data = bytearray(old_dds(b"DXT1", 0))
    assert dds_pictures(bytes(data)) == (0, 1)
    data[112:116] = struct.pack("<I", 0xFE00)
    assert dds_pictures(bytes(data)) == (0, 6)
    data[112:116] = struct.pack("<I", 0x200 | 0x400 | 0x1000)
    assert dds_pictures(bytes(data)).name(1) == "face 2 of 2"
    assert dds_pictures(old_dds(b"YUY2", 0)) == (0, 1)


def test_texture_format_numbers_have_readable_names():
    assert ktx2_format(encode_ktx2(texture("astc_5x5"))) == "ASTC 5x5"
    assert dds_format(encode_dds(texture("bc7"))) == "DXGI format 98"


def old_dds(code: bytes, bits: int) -> bytes:
    """Return the header of a DDS of 8 × 8 pixels and four levels, without the header of DirectX 10."""
    return b"DDS " + struct.pack("<7I44x2I4sI", 124, 0, 8, 8, 0, 0, 4, 32, 4, code, bits) + bytes(36)


@pytest.mark.parametrize(
    ("code", "bits", "sizes"),
    [
        (b"DXT1", 0, [32, 8, 8, 8]), (b"DXT5", 0, [64, 16, 16, 16]), (b"\0\0\0\0", 24, [192, 48, 12, 3]), (b"YUY2", 0, [0]),
    ],
)  # fmt: skip
def test_levels_are_found_in_a_dds_file_without_a_directx_10_header(code, bits, sizes):
    found = dds_levels(old_dds(code, bits))

    assert [each.size for each in found] == sizes
    assert found[0].start == 128


def test_hostile_texture_header_gives_at_most_16_levels():
    data = bytearray(encode_ktx2(texture("bc1")))
    data[20:28], data[40:44] = b"\xff" * 8, b"\xff" * 4
    dds = bytearray(encode_dds(texture("bc1")))
    dds[12:20], dds[28:32] = b"\xff" * 8, b"\xff" * 4

    data[32:40] = dds[136:144] = b"\xff" * 8

    assert len(ktx2_levels(bytes(data) + bytes(1000))) == len(dds_levels(bytes(dds))) == 16
    assert (ktx2_pictures(bytes(data)), dds_pictures(bytes(dds))) == ((2048, 1), (2048, 6))
    with pytest.raises(struct.error):
        ktx2_levels(bytes(data[:60]))
