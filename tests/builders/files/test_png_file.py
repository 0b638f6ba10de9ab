"""PNG chunks: harmless content is accepted, and content that may change pixels is refused."""

import io
import struct
import zlib

import numpy as np
import pytest
from png_samples import CHANNELS, SIGNATURE, chunk, png, samples_of

from aptui.builders.files.pictures import PictureError
from aptui.builders.files.png_file import MOST_PROFILE_BYTES, MOST_UNPACKED_BYTES, read_png, write_png16
from aptui.builders.image_builder import ImageBuilder

BUILDER = ImageBuilder
ROWS = [[(1, 2, 3), (4, 5, 6)]]
HEADER = chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 1, 8, 2, 0, 0, 0))
MIB = 1 << 20


def wrong(kind, content):
    return chunk(kind, content, has_wrong_checksum=True)


WRONG_CHECKSUMS = [
    (b"iCCP", b"x\0\0" + zlib.compress(b"profile"), "colour profile"),
    (b"tEXt", b"Comment\0hello", "text"),
    (b"zTXt", b"Comment\0\0" + zlib.compress(b"hello"), "text"),
    (b"iTXt", b"Comment\0\0\0\0\0hello", "text"),
    (b"pHYs", b"\0\0\x0b\x13\0\0\x0b\x13\1", "resolution"),
    (b"gAMA", b"\0\1\x86\xa0", "gamma"),
    (b"cHRM", bytes(32), "primaries"),
    (b"sRGB", b"\0", "colour space"),
    (b"tRNS", b"\0\1\0\2\0\3", "transparency"),
    (b"eXIf", b"II*\0\x08\0\0\0\0\0", "EXIF"),
    (b"cICP", b"\1\x0d\0\1", "colour space"),
    (b"acTL", b"\0\0\0\2\0\0\0\0", "animation"),
    (b"tIME", b"\x07\xe8\1\1\0\0\0", "metadata"),
    (b"prVt", b"of some program", "metadata"),
]


@pytest.mark.parametrize("is_behind", [False, True])
@pytest.mark.parametrize(("kind", "content", "what"), WRONG_CHECKSUMS)
def test_wrong_checksum_of_a_metadata_chunk_warns(bench, kind, content, what, is_behind):
    bad = wrong(kind, content)
    source = bench.write("a.png", png(ROWS, 8, 2, after=bad) if is_behind else png(ROWS, 8, 2, bad))

    (made,) = bench.build(source).values()

    text = f"a.png: the {what} (chunk {kind.decode()}) has a wrong checksum and is ignored"
    assert samples_of(made) == (8, 2, ROWS)
    assert bench.warnings == [text]
    assert bench.fail(source, strict=True) == f"{text} (the warning is an error, because 'strict' is set)"


LARGE = [
    chunk(b"zTXt", b"Comment\0\0" + zlib.compress(b"x" * 2 * MIB)),
    chunk(b"iTXt", b"Comment\0\1\0\0\0" + zlib.compress(b"x" * 2 * MIB)),
    chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + zlib.compress(b"x" * 2 * MIB)),
    chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + b"x" * 2 * MIB),
    chunk(b"tEXt", b"Comment\0" + b"x" * 2 * MIB),
    chunk(b"iCCP", b"x\0\0" + zlib.compress(bytes(MOST_PROFILE_BYTES + 1))),
]


@pytest.mark.parametrize("is_behind", [False, True])
@pytest.mark.parametrize("content", LARGE[:-1])
def test_metadata_above_the_size_limit_is_ignored_with_a_warning(bench, content, is_behind):
    source = bench.write("a.png", png(ROWS, 8, 2, after=content) if is_behind else png(ROWS, 8, 2, content))

    (made,) = bench.build(source).values()

    assert samples_of(made) == (8, 2, ROWS)
    (warning,) = bench.warnings
    assert warning.endswith("is larger than 1 MiB and is ignored")
    assert bench.fail(source, strict=True).endswith("(the warning is an error, because 'strict' is set)")


def test_many_large_texts_of_a_png_give_one_warning(bench):
    (made,) = bench.build(bench.write("a.png", png(ROWS, 8, 2, *LARGE[:1] * 80))).values()

    assert samples_of(made) == (8, 2, ROWS)
    assert len(bench.warnings) == 1


def test_unpacked_texts_of_a_png_share_one_size_limit():
    text = chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(MIB)))

    file = read_png(png(ROWS, 8, 2, *[text] * 200))

    assert MOST_UNPACKED_BYTES < file.unpacked_bytes <= MOST_UNPACKED_BYTES + MIB + 1
    assert file.remarks


@pytest.mark.parametrize("content", [LARGE[-1], chunk(b"iCCP", b"x\0\0junk"), chunk(b"iCCP", b"x\0\1"), chunk(b"iCCP", b"")])
def test_profile_that_cannot_be_unpacked_warns(bench, content):
    (made,) = bench.build(bench.write("a.png", png(ROWS, 8, 2, content))).values()

    assert samples_of(made) == (8, 2, ROWS)
    assert len(bench.warnings) == 1
    assert "colour profile (chunk iCCP)" in bench.warnings[0]


@pytest.mark.parametrize("wrong_length", [b"", b"\0", b"\0\1\0\2"])
def test_transparency_chunk_of_a_wrong_length_is_ignored_with_a_warning(bench, wrong_length):
    (made,) = bench.build(bench.write("a.png", png(ROWS, 8, 2, chunk(b"tRNS", wrong_length)))).values()

    assert samples_of(made) == (8, 2, ROWS)
    assert bench.warnings == ["a.png: the transparency (chunk tRNS) has a wrong length and is ignored"]


@pytest.mark.parametrize("text", [b"zTXt", b"tEXt", b"iTXt", b"gAMA", b"sRGB", b"cHRM", b"pHYs", b"acTL", b"tIME", b"cICP"])
@pytest.mark.parametrize("content", [b"", b"\0", b"\xff" * 5, b"a\0\7"])
def test_ancillary_chunk_with_odd_content_does_not_change_the_pixels(bench, text, content):
    (made,) = bench.build(bench.write("a.png", png(ROWS, 8, 2, chunk(text, content)))).values()

    assert samples_of(made) == (8, 2, ROWS)


@pytest.mark.parametrize(
    ("end", "remark"),
    [
        (b"", "the file has no end mark (chunk IEND)"),
        (b"IE", "the file has no end mark (chunk IEND)"),
        (b"\0\0\0\0IEND\xaeB`", "the file has no end mark (chunk IEND)"),
        (b"\n" * 20, "the file ends with bytes that do not belong to the picture"),
        (b"\0\0\1\0tEXtcut off here", "the file ends with bytes that do not belong to the picture"),
    ],
)
def test_png_whose_end_mark_is_missing_or_damaged_warns(bench, end, remark):
    (made,) = bench.build(bench.write("a.png", png(ROWS, 8, 2)[:-12] + end)).values()

    assert samples_of(made) == (8, 2, ROWS)
    assert bench.warnings[0] == f"a.png: {remark}"


def test_bytes_after_the_end_of_a_png_are_ignored(bench):
    bench.build(bench.write("a.png", png(ROWS, 8, 2) + b"appended archive" * 100))

    assert not bench.warnings


PIXELS = chunk(b"IDAT", zlib.compress(b"\0\1\2\3\4\5\6"))
END = chunk(b"IEND", b"")


def header(*values):
    return chunk(b"IHDR", struct.pack(">IIBBBBB", *values))


REFUSED = [
    ("checksum of the header", wrong(b"IHDR", HEADER[8:-4]) + PIXELS + END, "the checksum of the header (chunk IHDR) is wrong"),
    ("checksum of a palette", HEADER + wrong(b"PLTE", b"abc") + PIXELS + END, "the checksum of the palette (chunk PLTE) is wrong"),
    ("checksum of pixels", HEADER + wrong(b"IDAT", PIXELS[8:-4]) + END, "the checksum of the pixel data (chunk IDAT) is wrong"),
    ("no header", PIXELS + END, "the file does not begin with its header (chunk IHDR)"),
    ("no pixels", HEADER + END, "the file ends too early"),
    ("header alone", HEADER, "the file ends too early"),
    ("short header", chunk(b"IHDR", b"\0\0\0\2") + PIXELS + END, "the header has a wrong length"),
    ("no width", header(0, 1, 8, 2, 0, 0, 0) + PIXELS + END, "the header gives an impossible size of 0x1 pixels"),
    ("odd depth", header(2, 1, 3, 0, 0, 0, 0) + PIXELS + END, "the header names a kind of pixels that does not exist in PNG"),
    ("odd interlace", header(2, 1, 8, 2, 0, 0, 7) + PIXELS + END, "the header names a kind of pixels that does not exist in PNG"),
    ("bytes between", HEADER + b"\r\n" * 9 + PIXELS + END, "bytes between two chunks do not belong to any chunk"),
    ("cut in pixels", HEADER + PIXELS[:-6], "the file ends too early"),
]


@pytest.mark.parametrize(("data", "reason"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_damaged_pixel_chunk_is_refused(bench, data, reason):
    assert bench.fail(bench.write("a.png", SIGNATURE + data)) == f"a.png: damaged PNG: {reason}"


@pytest.mark.parametrize(
    "data", [chunk(b"CgBI", b"\x50\0\x20\6") + HEADER + PIXELS + END, HEADER + chunk(b"NEWx", b"") + PIXELS + END]
)
def test_unknown_critical_chunk_is_reported_as_unsupported(bench, data):
    assert bench.fail(bench.write("a.png", SIGNATURE + data)).startswith("a.png: unsupported PNG: ")


@pytest.mark.parametrize(("gamma", "is_noted"), [(45455, False), (45000, False), (100000, True), (55556, True)])
def test_unusual_gamma_of_a_png_is_logged(bench, gamma, is_noted):
    bench.build(bench.write("a.png", png(ROWS, 8, 2, chunk(b"gAMA", struct.pack(">I", gamma)))))

    assert any("gAMA" in text for _, text in bench.lines) == is_noted
    assert not bench.warnings


@pytest.mark.parametrize(("points", "is_warned"), [(b"\1\x0d\0\1", False), (b"\x09\x10\0\1", True), (b"\x0c\x0d\0\1", True)])
def test_png_with_a_different_colour_space_in_its_cicp_chunk_warns(bench, points, is_warned):
    bench.build(bench.write("a.png", png(ROWS, 8, 2, chunk(b"cICP", points))))

    assert bool(bench.warnings) == is_warned


def test_decoder_receives_only_the_chunks_that_affect_pixels():
    file = read_png(png(ROWS, 8, 2, *LARGE[:2], chunk(b"tIME", b"\x07\xe8\1\1\0\0\0")))

    assert file.data == SIGNATURE + HEADER + PIXELS + END


def test_png_with_two_headers_is_refused():
    with pytest.raises(PictureError):
        read_png(SIGNATURE + HEADER + HEADER + PIXELS + END)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [(1, 1), (3, 5), (40, 2)])
def test_written_16_bit_png_is_read_by_another_decoder(channels, size):
    samples = np.random.default_rng(4).integers(0, 65536, (size[1], size[0], channels), dtype=np.uint16)
    stream = io.BytesIO()

    write_png16(stream, samples)

    depth, colour_type, rows = samples_of(stream.getvalue())
    assert (depth, colour_type) == (16, (0, 4, 2, 6)[channels - 1])
    assert np.array_equal(np.array(rows), samples)


@pytest.mark.parametrize("is_interlaced", [False, True])
@pytest.mark.parametrize(("depth", "colour_type"), [(1, 0), (8, 0), (8, 2), (4, 3), (16, 4), (8, 6)])
def test_png_without_its_last_rows_is_refused_as_damaged(bench, depth, colour_type, is_interlaced):
    width, height = 9, 11
    rows = [[(1,) * CHANNELS[colour_type]] * width] * height
    black = [[(0,) * CHANNELS[colour_type]] * width]
    palette = (chunk(b"PLTE", bytes(6)),) if colour_type == 3 else ()
    header = struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, is_interlaced)

    for lines, is_whole in ((rows, True), (rows[:-1] + black, True), (rows[:-1], False)):
        made = png(lines, depth, colour_type, *palette, is_interlaced=is_interlaced)
        source = bench.write("a.png", made[:8] + chunk(b"IHDR", header) + made[33:])
        if is_whole:
            assert bench.build(source)
        else:
            assert bench.fail(source) == "a.png: damaged PNG: the file ends too early"
