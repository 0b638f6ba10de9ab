"""TIFF files with 16 bits a channel, written by hand; PNG files with 16 bits are in `test_png_pixels`."""

import random
import struct
import zlib

import pytest
from png_samples import samples_of

from aptui.builders.image_builder import ImageBuilder

BUILDER = ImageBuilder
SIZE = (7, 5)


def tiff(values, channels, photometric, *, order="<", is_deflated=False, extra=None, planes=1, bits=16, compressed_sizes=()):
    """Return a TIFF with one strip, or with one for each channel.

    `values` are samples in the order of the file, or encoded bytes.
    """
    pixels = values if isinstance(values, bytes) else struct.pack(f"{order}{len(values)}H", *values)
    pixels = zlib.compress(pixels) if is_deflated else pixels
    sizes = compressed_sizes or [len(pixels) // (channels if planes == 2 else 1)] * (channels if planes == 2 else 1)
    body, entries = pixels, []

    def entry(tag, kind, *numbers):
        nonlocal body
        content = struct.pack(f"{order}{len(numbers)}{'H' if kind == 3 else 'I'}", *numbers)
        if len(content) > 4:
            content, body = struct.pack(f"{order}I", 8 + len(body)), body + content
        entries.append(struct.pack(f"{order}HHI", tag, kind, len(numbers)) + content.ljust(4, b"\0"))

    entry(256, 3, SIZE[0])
    entry(257, 3, SIZE[1])
    entry(258, 3, *[bits] * channels)
    entry(259, 3, 8 if is_deflated or compressed_sizes else 1)
    entry(262, 3, photometric)
    entry(273, 4, *(8 + sum(sizes[:each]) for each in range(len(sizes))))
    entry(277, 3, channels)
    entry(278, 3, SIZE[1])
    entry(279, 4, *sizes)
    entry(284, 3, planes)
    if extra is not None:
        entry(338, 3, extra)
    mark = b"II*\0" if order == "<" else b"MM\0*"
    directory = struct.pack(f"{order}H", len(entries)) + b"".join(entries) + bytes(4)
    body += bytes(len(body) % 2)
    return mark + struct.pack(f"{order}I", 8 + len(body)) + body + directory


def samples(channels):
    chance = random.Random(channels)
    return [chance.randrange(65536) for _ in range(SIZE[0] * SIZE[1] * channels)]


def pixels(values, channels):
    flat = [tuple(values[at : at + channels]) for at in range(0, len(values), channels)]
    return [flat[at : at + SIZE[0]] for at in range(0, len(flat), SIZE[0])]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("is_deflated", [False, True])
@pytest.mark.parametrize(("channels", "extra", "kind"), [(3, None, 2), (4, 2, 6)])
def test_tiff_with_16_bit_colours_is_read_exactly(bench, order, is_deflated, channels, extra, kind):
    values = samples(channels)
    data = tiff(values, channels, 2, order=order, is_deflated=is_deflated, extra=extra)

    (made,) = bench.build(bench.write("a.tif", data)).values()

    assert samples_of(made) == (16, kind, pixels(values, channels))
    assert not bench.warnings


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("channels", "extra", "kind"), [(3, None, 2), (4, 2, 6)])
def test_tiff_with_separately_stored_16_bit_channels_is_read_exactly(bench, order, channels, extra, kind):
    values = samples(channels)
    apart = [value for channel in range(channels) for value in values[channel::channels]]

    (made,) = bench.build(bench.write("a.tif", tiff(apart, channels, 2, order=order, extra=extra, planes=2))).values()

    assert samples_of(made) == (16, kind, pixels(values, channels))
    assert not bench.warnings


def test_tiff_with_compressed_16_bit_planes_is_cut_to_8_bits_and_warns(bench):
    values = samples(3)
    parts = [zlib.compress(struct.pack(f"<{len(values) // 3}H", *values[channel::3])) for channel in range(3)]
    data = tiff(b"".join(parts), 3, 2, planes=2, compressed_sizes=[len(part) for part in parts])

    (made,) = bench.build(bench.write("a.tif", data)).values()

    assert samples_of(made) == (8, 2, [[tuple(value >> 8 for value in pixel) for pixel in row] for row in pixels(values, 3)])
    assert bench.warnings == [
        (
            "a.tif: the 16 bits per channel were cut to 8, because the channels are stored separately; save the picture "
            "with interleaved channels"
        )
    ]


def test_fourth_channel_of_a_tiff_is_dropped_if_it_is_not_alpha(bench):
    values = samples(4)

    (made,) = bench.build(bench.write("a.tif", tiff(values, 4, 2, extra=0))).values()

    assert samples_of(made) == (16, 2, [[pixel[:3] for pixel in row] for row in pixels(values, 4)])


def test_premultiplied_colours_of_a_tiff_are_divided_by_alpha(bench):
    values = [16384, 8192, 0, 32768] * (SIZE[0] * SIZE[1])

    (made,) = bench.build(bench.write("a.tif", tiff(values, 4, 2, extra=1))).values()

    assert samples_of(made)[2][0][0] == (32768, 16384, 0, 32768)


@pytest.mark.parametrize(("photometric", "expected"), [(1, [0, 1000, 65535]), (0, [65535, 64535, 0])])
@pytest.mark.parametrize("order", ["<", ">"])
def test_tiff_with_16_bit_grey_is_inverted_if_zero_means_white(bench, photometric, expected, order):
    values = [0, 1000, 65535, *[0] * (SIZE[0] * SIZE[1] - 3)]
    source = bench.write("a.tif", tiff(values, 1, photometric, order=order))
    if photometric == 0 and order == ">":
        assert "unsupported TIFF" in bench.fail(source)
        return

    (made,) = bench.build(source).values()

    assert [pixel[0] for pixel in samples_of(made)[2][0][:3]] == expected


def test_tiff_with_12_bit_grey_is_scaled_to_the_full_range_of_16_bits(bench):
    row = b"\x00\x00\x01\x80\x0f\xff" + bytes(5)  # the samples 0, 1, 0x800 and 0xfff, with 12 bits each

    (made,) = bench.build(bench.write("a.tif", tiff(row * SIZE[1], 1, 1, bits=12))).values()

    assert [value for (value,) in samples_of(made)[2][0][:4]] == [0, 16, 32775, 65535]


def test_tiff_with_16_bit_cmyk_is_rounded_to_8_bits_with_a_warning(bench):
    values = [0, 0, 0, 129] * (SIZE[0] * SIZE[1])

    (made,) = bench.build(bench.write("a.tif", tiff(values, 4, 5))).values()

    assert samples_of(made)[2][0][0] == (254, 254, 254)
    assert bench.warnings == ["a.tif: the 16 bits per channel were rounded to 8, because CMYK is converted with 8 bits"]
