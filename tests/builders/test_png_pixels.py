"""The image builder keeps the pixel values of PNG files of every colour type and bit depth."""

import random
import struct

import pytest
from png_samples import CHANNELS, chunk, png, samples_of

from aptui.builders.image_builder import ImageBuilder

BUILDER = ImageBuilder
SIZE = (9, 11)
"""Pixels in every pass of an interlaced picture."""

KINDS = [(kind, depth) for kind, depths in {0: (1, 2, 4, 8, 16), 2: (8, 16), 4: (8, 16), 6: (8, 16)}.items() for depth in depths]


def noise(kind, depth):
    """Return rows of random pixels. Many differ in a single bit, and their upper halves are equal."""
    chance = random.Random(f"{kind} {depth}")
    few = [tuple(chance.randrange(1 << depth) for _ in range(CHANNELS[kind])) for _ in range(3)]

    def pixel():
        base = list(chance.choice(few))
        if chance.random() < 0.5:
            channel = chance.randrange(len(base))
            base[channel] ^= 1 << chance.randrange(min(8, depth))
        return tuple(base)

    return [[pixel() for _ in range(SIZE[0])] for _ in range(SIZE[1])]


def as_bytes(rows, depth):
    """Return samples of up to 8 bits with 8 bits, and those of 16 bits unchanged."""
    return rows if depth == 16 else [[tuple(v * 255 // ((1 << depth) - 1) for v in pixel) for pixel in row] for row in rows]


def opaque(depth):
    return 65535 if depth == 16 else 255


@pytest.mark.parametrize("is_interlaced", [False, True])
@pytest.mark.parametrize(("kind", "depth"), KINDS)
def test_png_samples_of_every_colour_type_and_depth_stay_exact(bench, kind, depth, is_interlaced):
    rows = noise(kind, depth)

    (made,) = bench.build(bench.write("a.png", png(rows, depth, kind, is_interlaced=is_interlaced))).values()

    assert samples_of(made) == (max(8, depth), kind, as_bytes(rows, depth))
    assert not bench.warnings


@pytest.mark.parametrize("is_interlaced", [False, True])
@pytest.mark.parametrize("has_upper_bits", [False, True])
@pytest.mark.parametrize(("kind", "depth"), [each for each in KINDS if each[0] in (0, 2)])
def test_transparent_colour_affects_only_pixels_of_exactly_that_colour(bench, kind, depth, has_upper_bits, is_interlaced):
    rows = noise(kind, depth)
    colour = rows[4][5]
    stored = [value | (0xFFFF << depth & 0xFFFF if has_upper_bits else 0) for value in colour]
    transparency = chunk(b"tRNS", struct.pack(f">{len(colour)}H", *stored))

    (made,) = bench.build(bench.write("a.png", png(rows, depth, kind, transparency, is_interlaced=is_interlaced))).values()

    expected = [
        [(*plain, 0 if pixel == colour else opaque(depth)) for pixel, plain in zip(row, plain_row, strict=True)]
        for row, plain_row in zip(rows, as_bytes(rows, depth), strict=True)
    ]
    assert samples_of(made) == (max(8, depth), kind + 4, expected)
    assert any(pixel[-1] == 0 for row in expected for pixel in row)
    assert any(pixel[-1] != 0 for row in expected for pixel in row)


@pytest.mark.parametrize("is_interlaced", [False, True])
@pytest.mark.parametrize("alphas", [b"", b"\x00", b"\xff\x00", b"\x80\x00\xff\x01"])
@pytest.mark.parametrize("depth", [1, 2, 4, 8])
def test_palette_colours_and_their_alpha_stay_exact(bench, depth, alphas, is_interlaced):
    chance = random.Random(depth)
    palette = [tuple(chance.randbytes(3)) for _ in range(min(1 << depth, 20))]
    alphas = alphas[: len(palette)]
    rows = [[(chance.randrange(len(palette)),) for _ in range(SIZE[0])] for _ in range(SIZE[1])]
    chunks = [chunk(b"PLTE", b"".join(map(bytes, palette)))] + ([chunk(b"tRNS", alphas)] if alphas else [])

    (made,) = bench.build(bench.write("a.png", png(rows, depth, 3, *chunks, is_interlaced=is_interlaced))).values()

    full = alphas + b"\xff" * 256
    expected = [[palette[index] + ((full[index],) if alphas else ()) for (index,) in row] for row in rows]
    assert samples_of(made) == (8, 6 if alphas else 2, expected)


@pytest.mark.parametrize(("kind", "depth"), [(kind, 16) for kind in (0, 2, 4, 6)])
@pytest.mark.parametrize("requested", ["webp", "jpeg"])
def test_samples_of_16_bits_are_rounded_with_a_warning_for_8_bit_formats(bench, kind, depth, requested):
    value = 0x80FF if kind in (0, 2) else 0xFFFF
    rows = [[(value,) * CHANNELS[kind]] * 8] * 8

    (made,) = bench.build(bench.write("a.png", png(rows, depth, kind)), format=requested, quality=100).values()

    import io

    from PIL import Image

    assert Image.open(io.BytesIO(made)).convert("RGB").getpixel((4, 4)) == (round(value / 257),) * 3
    assert bench.warnings == [f"a.png: the 16 bits per channel were rounded to 8, because {requested} supports only 8 bits"]


@pytest.mark.parametrize(("alpha", "rounded"), [(128, 0), (129, 1), (65406, 254), (65407, 255)])
def test_alpha_of_16_bits_is_rounded_and_not_truncated(bench, alpha, rounded):
    import io

    from PIL import Image

    (made,) = bench.build(bench.write("a.png", png([[(0, 0, 0, alpha)]], 16, 6)), format="webp", lossless=True).values()

    assert Image.open(io.BytesIO(made)).convert("RGBA").getpixel((0, 0))[3] == rounded


@pytest.mark.parametrize("kind", [0, 2, 4, 6])
def test_resized_16_bit_picture_still_has_16_bits(bench, kind):
    rows = [[(0x1234,) * CHANNELS[kind]] * 8] * 8

    products = bench.build(bench.write("a.png", png(rows, 16, kind)), max_size=4, mips=True)

    assert [samples_of(data)[0] for data in products.values()] == [16, 16, 16]
    assert {pixel for data in products.values() for row in samples_of(data)[2] for pixel in row} == {(0x1234,) * CHANNELS[kind]}


def test_resizing_a_deep_picture_ignores_the_colours_of_transparent_pixels(bench):
    rows = [[(65535, 0, 0, 65535), (0, 65535, 0, 0)] * 2] * 4

    (made,) = bench.build(bench.write("a.png", png(rows, 16, 6)), max_size=2).values()

    assert {pixel[:3] for row in samples_of(made)[2] for pixel in row} == {(65535, 0, 0)}


@pytest.mark.parametrize(("kind", "grey"), [(2, 0), (6, 4)])
def test_grayscale_of_a_deep_picture_keeps_depth_and_alpha(bench, kind, grey):
    (made,) = bench.build(
        bench.write("a.png", png([[(1000, 2000, 3000, 77)[: CHANNELS[kind]]]], 16, kind)), grayscale=True
    ).values()

    depth, colour_type, rows = samples_of(made)
    assert (depth, colour_type, rows[0][0][0]) == (16, grey, round(0.299 * 1000 + 0.587 * 2000 + 0.114 * 3000))
    assert rows[0][0][1:] == ((77,) if kind == 6 else ())


def test_deep_picture_is_turned_upright_by_its_exif_orientation(bench):
    exif = chunk(b"eXIf", b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0")

    (made,) = bench.build(bench.write("a.png", png([[(1, 2, 3), (40000, 5, 6)]], 16, 2, exif))).values()

    assert samples_of(made) == (16, 2, [[(1, 2, 3)], [(40000, 5, 6)]])


def test_deep_picture_is_written_exactly_in_several_blocks_of_rows(bench, monkeypatch):
    monkeypatch.setattr("aptui.builders.files.png_file._WRITE_ROWS_BYTES", 2000)
    chance = random.Random(5)
    smooth = [[(x * 300, y * 200, (x + y) * 90, 65535 - x * y) for x in range(30)] for y in range(70)]
    rows = [[tuple(min(65535, value + chance.randrange(3)) for value in pixel) for pixel in row] for row in smooth]

    (made,) = bench.build(bench.write("a.png", png(rows, 16, 6))).values()

    assert samples_of(made) == (16, 6, rows)
