"""Damaged and malicious pictures: each error has a message of aptui, and the work for a picture is limited by its size."""

import io
import random
import re
import struct
import time
import zlib

import pytest
from PIL import Image
from png_samples import SIGNATURE, chunk

from aptui.builders.files import pictures
from aptui.builders.files.pictures import PictureError, count_frames, load_picture, open_picture
from aptui.builders.image_builder import ImageBuilder
from aptui.sdk import Result

BUILDER = ImageBuilder

INNER_WORDS = re.compile(
    r"b'|\\x|0x|<|>|\bstr\b|\bint\b|bytes-like|NoneType|object|Error|error -?\d|\bindex\b|\btuple\b|\bkey\b|tile\b|codec|driver"
    r"|decoder|encoder"
    r"|buffer|unpack|struct|identify|identified|Image size|bomb|DOS|MAX_|_[A-Z]|PIL|Pillow|libtiff|libpng|Plugin|chunk b|raise"
    r"|broken|assert|module|argument|overflow|exceed|processed|cannot handle|SOI|SyntaxError|layers",
)
"""Words of Python and libraries that must not be in messages for artists."""


def noise(mode="RGB", size=(40, 30)):
    data = random.Random(3).randbytes(size[0] * size[1] * 4)
    return Image.frombytes("RGBA", size, data).convert("RGB").convert(mode)


def encoded(kind, mode="RGB", **options):
    stream = io.BytesIO()
    noise(mode).save(stream, format=kind, **options)
    return stream.getvalue()


def bmp(bits=24, compression=0, header=40, masks=b"", size=(4, 4)):
    info = struct.pack("<IiiHHIIiiII", header, *size, 1, bits, compression, 64, 0, 0, 0, 0).ljust(header, b"\0") + masks
    return b"BM" + struct.pack("<IHHI", 14 + len(info) + 64, 0, 0, 14 + len(info)) + info + bytes(64)


def tiff(*entries, order="<"):
    body = struct.pack(f"{order}H", len(entries))
    body += b"".join(struct.pack(f"{order}HHII", tag, kind, 1, value) for tag, kind, value in entries)
    return (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", 8) + body + bytes(4 + 64)


PLAIN = ((256, 4, 4), (257, 4, 4), (258, 3, 8), (259, 3, 1), (262, 3, 1), (273, 4, 120), (277, 3, 1), (278, 4, 4), (279, 4, 16))


def changed(**values):
    return tiff(*((tag, kind, values.get(f"t{tag}", value)) for tag, kind, value in PLAIN))


def png_header(width, height, depth=8, kind=2):
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0))
    return SIGNATURE + header + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


FILES = [encoded(kind) for kind in ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "TGA")]
FILES += [encoded("TIFF", compression=each) for each in ("tiff_lzw", "tiff_deflate", "jpeg", "packbits")]
FILES += [encoded("JPEG", "CMYK"), encoded("JPEG", progressive=True), encoded("TGA", compression="tga_rle"), encoded("PNG", "P")]
FILES += [encoded("WEBP", lossless=True), encoded("BMP", "1"), encoded("GIF", "L"), encoded("DDS")]

UNSUPPORTED = [
    ("a.bmp", bmp(bits=16, compression=3, masks=struct.pack("<III", 0x0F00, 0x00F0, 0x000F))),
    ("a.bmp", bmp(bits=0, compression=4)),
    ("a.bmp", bmp(bits=0, compression=5)),
    ("a.bmp", bmp(bits=7)),
    ("a.bmp", bmp(compression=9)),
    ("a.bmp", bmp(bits=24, compression=4, header=64)),
    ("a.bmp", bmp(bits=1, compression=3, header=64)),
    ("a.tif", changed(t259=50001)),
    ("a.tif", changed(t259=34712)),
    ("a.tif", changed(t259=9)),
    ("a.tif", changed(t258=64)),
    ("a.tif", changed(t262=32803)),
    ("a.jpg", encoded("JPEG").replace(b"\xff\xc0\0\x11\x08", b"\xff\xc0\0\x11\x0c")),
    ("a.png", SIGNATURE + chunk(b"CgBI", bytes(4)) + png_header(2, 2)[8:]),
]


@pytest.mark.parametrize(("source", "data"), UNSUPPORTED)
def test_format_variant_without_a_reader_is_reported_as_unsupported(bench, source, data):
    error = bench.fail(bench.write(source, data))

    assert error.startswith(f"{source}: unsupported ")
    assert not INNER_WORDS.search(error)


GIF = b"GIF89a%b\0\0\0,\0\0\0\0%b\0\2\2D\1\0;"
TILED = tiff(*PLAIN[:5], (322, 4, 1 << 20), (323, 4, 1 << 20), (324, 4, 120), (325, 4, 16))
WEBP = b"RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\xff\x3f\0\xff\x3f\0"
TGA = struct.pack("<BBBHHBHHHHBB", 0, 0, 2, 0, 0, 0, 0, 0, 65535, 65535, 24, 0)
JPEG = re.sub(rb"(\xff\xc0\0\x11\x08)....", lambda found: found[1] + b"\xff" * 4, encoded("JPEG"), flags=re.DOTALL)
HOSTILE = [
    ("gigapixel png", "a.png", png_header(100_000, 100_000), "the picture is too large"),
    ("sides of 31 bits", "a.png", png_header(2**31 - 1, 2**31 - 1), "the picture is too large"),
    ("gigapixel gif", "a.gif", GIF % (b"\xff" * 4, b"\1\0\1\0"), "the picture is too large"),
    ("small gif with a large frame", "a.gif", GIF % (b"\1\0\1\0", b"\xff" * 4), "the picture is too large"),
    ("gigapixel bmp", "a.bmp", bmp(size=(60000, 60000)), "the picture is too large"),
    ("gigapixel tiff", "a.tif", changed(t256=100_000, t257=100_000), "the picture is too large"),
    ("large tiff tiles", "a.tif", TILED, "damaged TIFF"),
    ("gigapixel webp", "a.webp", WEBP, "the picture is too large"),
    ("gigapixel tga", "a.tga", TGA, "the picture is too large"),
    ("gigapixel jpeg", "a.jpg", JPEG, "the picture is too large"),
]


@pytest.mark.parametrize(("source", "data", "reason"), [case[1:] for case in HOSTILE], ids=[case[0] for case in HOSTILE])
def test_enormous_picture_is_refused_when_its_header_is_read(bench, source, data, reason):
    started = time.perf_counter()

    error = bench.fail(bench.write(source, data))

    assert error.startswith(f"{source}: {reason}")
    assert not INNER_WORDS.search(error)
    assert time.perf_counter() - started < 5


def test_progressive_jpeg_with_hundreds_of_scans_is_refused(bench):
    data = encoded("JPEG", progressive=True)
    at = data.rindex(b"\xff\xda")

    error = bench.fail(bench.write("a.jpg", data[:-2] + data[at:-2] * 600 + b"\xff\xd9"))

    assert error == "a.jpg: the JPEG would take too long to decode: it has more than 500 scans; save it again"


@pytest.mark.parametrize("seed", range(6))
def test_randomly_damaged_file_is_read_or_fails_in_plain_words(bench, seed):
    chance = random.Random(seed)
    for data in FILES:
        kind = next((each for each in ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "DDS") if _has_signature(data, each)), "tga")
        for _ in range(25):
            bad = bytearray(data)
            for _ in range(chance.choice((0, 1, 3, 20))):
                bad[chance.randrange(min(len(bad), chance.choice((40, 200, len(bad)))))] = chance.randrange(256)
            cut = bytes(bad[: chance.choice((len(bad), chance.randrange(1, len(bad))))])
            response = bench.process(bench.write(f"a.{kind.lower()}", _with_right_checksums(cut) if seed % 2 else cut))
            assert not INNER_WORDS.search(response.error), response.error
            assert response.result is not Result.SUCCESS or not response.error
    for text in bench.warnings:
        assert not INNER_WORDS.search(text), text


def _has_signature(data, kind):
    starts = {
        "PNG": b"\x89PNG",
        "JPEG": b"\xff\xd8",
        "BMP": b"BM",
        "GIF": b"GIF",
        "TIFF": (b"II", b"MM"),
        "WEBP": b"RIFF",
        "DDS": b"DDS",
    }
    return data.startswith(starts[kind])


def _with_right_checksums(data):
    """Return `data` after recomputing the checksums of its PNG chunks; data that is not a PNG is unchanged."""
    at, parts = 8, [data[:8]]
    while data.startswith(SIGNATURE) and at + 12 <= len(data):
        length = int.from_bytes(data[at : at + 4])
        parts.append(chunk(data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    return b"".join(parts) if data.startswith(SIGNATURE) else data


OTHER_KINDS = [
    (b"\0\0\0\x1cftypavif\0\0\0\0avifmif1", "the file is an AVIF picture; the supported formats of pictures are PNG,"),
    (b"8BPS\0\1", "the file is a Photoshop file (PSD); the supported"),
    (b"DDS |\0\0\0", "the file is a DDS texture; the supported"),
    (b"<!DOCTYPE html><html>", "the file is an HTML page, perhaps the error page of a failed download; the supported"),
    (b"\x01\x02\x03\x04", "the file is not a picture in a supported format; the supported"),
    (bytes(100), "the file is a file that contains only zero bytes; the supported"),
    (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
        "the file is a Git LFS pointer; the supported",
    ),
]


@pytest.mark.parametrize(("data", "reason"), OTHER_KINDS)
@pytest.mark.parametrize("source", ["a.png", "a.jpg", "a.webp"])
def test_error_for_a_file_with_a_wrong_extension_names_its_real_kind(bench, data, reason, source):
    assert bench.fail(bench.write(source, data)).startswith(f"{source}: {reason}")


@pytest.mark.parametrize("old", [b"\r\n", b"\x89", b"\r", b"\x1a"])
def test_png_damaged_by_text_conversion_has_its_own_message(bench, old):
    bad = encoded("PNG").replace(old, b"\n" if old == b"\r\n" else b"", 1)

    assert bench.fail(bench.write("a.png", bad)) == (
        "a.png: damaged PNG: a program changed its line ends as if the file were text; get the original file"
    )


@pytest.mark.parametrize(("kind", "source"), [("JPEG", "a.png"), ("WEBP", "a.tga"), ("PNG", "a.gif"), ("BMP", "a.jpeg")])
def test_picture_with_wrong_extension_is_accepted_with_a_note(bench, kind, source):
    bench.build(bench.write(source, encoded(kind)))

    assert f"{source}: the file is a {kind} picture, although its name has another extension" in [text for _, text in bench.lines]
    assert not bench.warnings


def _frames(kind, count):
    stream = io.BytesIO()
    frames = [Image.new("RGB", (2, 2), (each, 0, 0)) for each in range(count)]
    frames[0].save(stream, format=kind, save_all=True, append_images=frames[1:])
    return stream.getvalue()


def test_frames_of_long_animations_are_not_counted(monkeypatch):
    monkeypatch.setattr(pictures, "MOST_COUNTED_FRAMES", 5)
    for count, found in ((4, 4), (5, 0), (9, 0)):
        data = _frames("TIFF", count)
        assert count_frames(data, open_picture(data, "a.tif")) == found
    data = _frames("GIF", 3)
    monkeypatch.setattr(pictures, "MOST_COUNTED_GIF_BYTES", len(data) - 1)
    assert count_frames(data, open_picture(data, "a.gif")) == 0


def test_first_frame_of_a_gif_is_used_if_a_later_frame_is_cut_off(bench):
    data = _frames("GIF", 2)
    last = data.rindex(b"\x21\xf9\x04")  # the extension that begins the last frame

    bench.build(bench.write("a.gif", data[: last + 4]))

    assert bench.warnings == ["a.gif: only the first of the frames is used"]


def test_animation_whose_frames_are_not_counted_warns(bench, monkeypatch):
    monkeypatch.setattr(pictures, "MOST_COUNTED_GIF_BYTES", 1)

    bench.build(bench.write("a.gif", _frames("GIF", 3)))

    assert bench.warnings == ["a.gif: only the first of the frames is used"]


def test_counting_tiff_frames_ends_if_the_directories_form_a_cycle():
    data = bytearray(changed())
    struct.pack_into("<I", data, 10 + 12 * len(PLAIN), 8)

    assert count_frames(bytes(data), open_picture(bytes(data), "a.tif")) in (0, 1)


@pytest.mark.parametrize("stage", ["open", "load"])
def test_lack_of_memory_is_not_reported_as_a_damaged_picture(monkeypatch, stage):
    def fail(*_args, **_kwargs):
        raise MemoryError

    data = encoded("PNG")
    picture = open_picture(data, "a.png")
    monkeypatch.setattr(Image, "open", fail)
    monkeypatch.setattr(picture, "load", fail)

    with pytest.raises(MemoryError):
        open_picture(data, "a.png") if stage == "open" else load_picture(picture)


def test_error_for_an_empty_picture_file_names_the_reason():
    with pytest.raises(PictureError, match="the file is empty"):
        open_picture(b"", "a.png")
