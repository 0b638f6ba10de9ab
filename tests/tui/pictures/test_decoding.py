"""A separate process decodes pictures of every supported format; a hostile file only causes an error of one sentence."""

import json
import os
import struct
import subprocess
import sys
import threading
import zlib

import pytest
from PIL import Image
from tools import MACHINE
from waiting import until

from aptui.builders.files.texture_file import Texture, encode_dds, encode_ktx2
from aptui.tui.pictures import decoding
from aptui.tui.pictures.decoder import CHANNELS, MOST_HIGH, MOST_WIDE, PictureView, Pixels
from aptui.tui.pictures.decoding import Decoder, Facts, decode, objection

pytestmark = pytest.mark.real

RED, BLUE = (255, 0, 0, 255), (0, 0, 255, 255)


def halves(size=(8, 4), mode="RGBA") -> Image.Image:
    """Return a picture that is red at the left and blue at the right."""
    picture = Image.new("RGBA", size, RED)
    picture.paste(BLUE, (size[0] // 2, 0, *size))
    return picture.convert(mode)


def png_of(width: int, height: int, data: bytes = b"") -> bytes:
    """Return a PNG with this size in its header; its data need not match the size."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


def decoded(path, form: str, level: int = 0, number: int = 0) -> Pixels | str:
    return decode(str(path), PictureView(form, level, number=number), threading.Event())


@pytest.mark.parametrize(
    ("form", "mode", "how"),
    [
        ("PNG", "RGBA", {}), ("PNG", "P", {}), ("JPEG", "RGB", {"quality": 100}), ("JPEG", "CMYK", {"quality": 100}),
        ("TGA", "RGBA", {"compression": "tga_rle"}), ("BMP", "RGB", {}), ("GIF", "P", {}), ("WebP", "RGBA", {"lossless": True}),
        ("DDS", "RGBA", {}), ("TIFF", "RGB", {"compression": "tiff_lzw"}),
    ],
)  # fmt: skip
def test_every_picture_format_is_decoded(tmp_path, form, mode, how):
    halves((16, 8), mode).save(tmp_path / "a", format=form, **how)

    picture = decoded(tmp_path / "a", form)

    assert isinstance(picture, Pixels), picture
    assert (picture.width, picture.height, len(picture.data)) == (16, 8, 16 * 8 * CHANNELS)
    first, last = picture.data[:4], picture.data[-4:]
    assert (first[0] > 200, first[2] < 60, last[0] < 60, last[2] > 200, first[3], last[3]) == (True, True, True, True, 255, 255)


RED_BLOCK, BLUE_BLOCK = b"\x00\xf8" + bytes(6), b"\x1f\x00" + bytes(6)
"""Blocks of BC1 with one colour."""


@pytest.mark.parametrize(
    ("name", "data"),
    [("bc1", (RED_BLOCK * 2 + BLUE_BLOCK * 2) * 2), ("rgba8", (bytes(RED) * 8 + bytes(BLUE) * 8) * 8)],
)
def test_textures_for_gpus_are_decoded(tmp_path, name, data):
    texture = encode_ktx2(Texture(name, 16, 8, [[data]], is_srgb=True))
    (tmp_path / "a.ktx2").write_bytes(texture)
    (tmp_path / "short.ktx2").write_bytes(texture[:-10])

    picture = decoded(tmp_path / "a.ktx2", "KTX 2")

    assert isinstance(picture, Pixels), picture
    assert (picture.width, picture.height, picture.data[:4], picture.data[-4:]) == (16, 8, bytes(RED), bytes(BLUE))
    assert decoded(tmp_path / "short.ktx2", "KTX 2") == "the file ends too early"


@pytest.mark.parametrize(("form", "encode"), [("KTX 2", encode_ktx2), ("DDS", encode_dds)])
def test_requested_level_of_a_texture_is_decoded(tmp_path, form, encode):
    levels = [[RED_BLOCK * 8], [BLUE_BLOCK * 2], [RED_BLOCK]]
    (tmp_path / "a").write_bytes(encode(Texture("bc1", 16, 8, levels, is_srgb=False)))

    shown = [decoded(tmp_path / "a", form, level) for level in range(3)]

    assert [(each.width, each.height, each.data[:4]) for each in shown] == [
        (16, 8, bytes(RED)), (8, 4, bytes(BLUE)), (4, 2, bytes(RED)),
    ]  # fmt: skip


@pytest.mark.parametrize(("form", "encode"), [("KTX 2", encode_ktx2), ("DDS", encode_dds)])
@pytest.mark.parametrize(("layers", "faces"), [(1, 6), (6, 1)])
def test_requested_face_or_layer_of_a_texture_is_decoded(tmp_path, form, encode, layers, faces):
    colours = [RED_BLOCK, BLUE_BLOCK, BLUE_BLOCK, RED_BLOCK, RED_BLOCK, BLUE_BLOCK]
    levels = [[colour * 4 for colour in colours], colours[::-1]]
    made = encode(Texture("bc1", 8, 8, levels, is_srgb=False, face_count=faces, is_array=layers > 1))
    (tmp_path / "a").write_bytes(made)
    (tmp_path / "short").write_bytes(made[:-1])

    first = [decoded(tmp_path / "a", form, 0, number) for number in range(6)]
    second = [decoded(tmp_path / "a", form, 1, number) for number in range(6)]

    is_red = [picture.data[0] > picture.data[2] for picture in first]
    assert is_red == [True, False, False, True, True, False]
    assert [picture.data[0] > picture.data[2] for picture in second] == is_red[::-1]
    assert {(picture.width, picture.height) for picture in second} == {(4, 4)}
    assert decoded(tmp_path / "short", form, 0 if form == "KTX 2" else 1, 5) == "the file ends too early"


def test_bit_depth_and_orientation_are_applied(tmp_path):
    Image.new("I;16", (2, 1), 0x8000).save(tmp_path / "deep.png")
    exif = Image.Exif()
    exif[274] = 6  # the camera was held upright
    halves(mode="RGB").save(tmp_path / "turned.jpg", exif=exif)

    assert decoded(tmp_path / "deep.png", "PNG") == Pixels(2, 1, b"\x7f\x7f\x7f\xff" * 2)
    turned = decoded(tmp_path / "turned.jpg", "JPEG")
    assert (turned.width, turned.height) == (4, 8)


def test_large_picture_is_reduced(tmp_path):
    halves((3000, 1000)).save(tmp_path / "a.png")

    picture = decoded(tmp_path / "a.png", "PNG")

    assert (picture.width, picture.height) == (MOST_WIDE, 107)
    assert picture.height <= MOST_HIGH


@pytest.mark.parametrize("form", ["PNG", "JPEG", "TGA", "BMP", "WebP", "DDS", "TIFF"])
def test_truncated_picture_is_reported(tmp_path, form):
    noise = Image.effect_noise((64, 64), 90).convert("RGB")
    noise.save(tmp_path / "a", format=form)
    data = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(data[: len(data) // 2])

    why = decoded(tmp_path / "a", form)

    assert isinstance(why, str)
    assert why.startswith(("the file ends too early", "the file cannot be decoded (", f"the file is not a valid {form}"))


def test_huge_picture_is_refused_by_parent_and_decoder(tmp_path):
    (tmp_path / "a.png").write_bytes(png_of(50_000, 50_000))

    reported = "50,000 × 50,000 pixels are too many for a preview; the limit is 33,554,432 pixels"
    assert objection(Facts("PNG", 50_000, 50_000, ""), 100) == reported
    assert decoded(tmp_path / "a.png", "PNG") == reported


def in_process(code: str, stdin=subprocess.DEVNULL) -> bytes:
    """Return the output of a Python process that imports the decoder and then runs `code`."""
    command = [sys.executable, "-P", "-c", f"from aptui.tui.pictures import decoder\n{code}"]
    return subprocess.run(command, stdin=stdin, capture_output=True, check=True, timeout=60).stdout


def test_decoder_that_exceeds_its_memory_limit_is_reported(tmp_path):
    (tmp_path / "a.png").write_bytes(png_of(4000, 4000, bytes(4000 * (4000 * 4 + 1))))

    with open(tmp_path / "a.png", "rb") as file:
        process = in_process("decoder.MOST_MEMORY_BYTES = 64 << 20\ndecoder.main(decoder.PictureView('PNG'))", file)

    assert json.loads(process) == {"why": "decoding the picture takes more than 64 MiB of memory"}
    assert decoded(tmp_path / "a.png", "PNG") == Pixels(MOST_HIGH, MOST_HIGH, bytes(MOST_HIGH * MOST_HIGH * CHANNELS))


def test_decoder_cannot_open_files_or_connections():
    code = """
import os, socket
decoder._drop_rights(decoder.MOST_MEMORY_BYTES)
for act in (lambda: open("/etc/passwd"), socket.socket, os.fork, lambda: os.setuid(0), lambda: bytearray(256 << 20)):
    try:
        act()
    except (OSError, MemoryError) as error:
        os.write(1, f"{type(error).__name__} ".encode())
"""

    assert in_process(code).split() == [b"OSError", b"OSError", b"BlockingIOError", b"PermissionError", b"MemoryError"]


@pytest.mark.skipif(os.geteuid() != 0, reason=MACHINE + "only a superuser is somebody else afterwards")
def test_decoder_started_by_root_runs_without_root_privileges():
    code = """
import os
decoder._drop_rights(decoder.MOST_MEMORY_BYTES)
try:
    os.kill(os.getppid(), 0)
except PermissionError:
    os.write(1, f"{os.getresuid()} {os.getresgid()} {os.getgroups()}".encode())
"""

    assert in_process(code) == b"(65534, 65534, 65534) (65534, 65534, 65534) []"


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"\n", b"[1]\n", b'{"size": 3}\n', b'{"size": [1, 1]}\n123', b'{"size": [0, 0]}\n',
        b'{"size": [9999, 1]}\n' + bytes(9999 * 4),
        b'{"size": ["1", 1]}\n1234', json.dumps({"size": [1, 1]}).encode(),
    ],
)  # fmt: skip
def test_invalid_answers_of_the_decoder_are_refused(answer):
    why = decoding._read(answer, PictureView("PNG"))

    assert why in {"the decoder ended without an answer", "the decoder returned an invalid picture"}


def test_decoder_that_hangs_or_floods_is_killed(tmp_path, monkeypatch):
    file = tmp_path / "python"
    file.write_text("#!/bin/sh\nexec sleep 600\n")
    file.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(file))
    monkeypatch.setattr(decoding, "_TIMEOUT_S", 0.1)
    assert decoded(file, "PNG") == "decoding takes too long"

    file.write_text("#!/bin/sh\nexec yes\n")
    monkeypatch.setattr(decoding, "_TIMEOUT_S", 60)
    assert decoded(file, "PNG") == "the decoder ended without an answer"

    file.unlink()
    assert decoded(tmp_path / "gone", "PNG") == "no such file or directory"
    assert decoded(tmp_path, "PNG").startswith("the decoder cannot be started")


def test_only_the_last_picture_is_decoded_while_the_cursor_moves(monkeypatch):
    began, reported = [], []
    monkeypatch.setattr(decoding, "decode", lambda path, view, _stop: began.append(path) or f"{path} {view.form}")
    monkeypatch.setattr(decoding, "REST_S", 0.3)
    made = Decoder(lambda then, what: then(what))
    try:
        for number in range(20):
            made.request(((f"a{number}", PictureView("PNG")),), reported.append)
        until(lambda: reported)
        assert (began, reported) == (["a19"], ["a19 PNG"])
        made.request((("b", PictureView("PNG")),), reported.append)
        made.drop_request()
        made.request((("c", PictureView("GIF")),), reported.append)
        until(lambda: len(reported) == 2)
        assert (began[1:], reported[1:]) == (["c"], ["c GIF"])
    finally:
        made.close()


def test_unsupported_pictures_are_not_decoded():
    assert objection(Facts("OpenEXR", 0, 0, ""), 10) == "there is no preview for the format OpenEXR"
    assert objection(Facts("PNG", 10, 10, ""), 1 << 30) == "the file is larger than 128 MiB, the limit for previews"
    assert objection(Facts("PNG", 10, 10, ""), 100) == ""


def test_pictures_are_put_beside_each_other_with_a_line_between_them():
    left, right = Pixels(1, 2, bytes(RED) * 2), Pixels(2, 1, bytes(BLUE) * 2)

    both = decoding.put_beside(left, right)

    rows = [both.data[at : at + both.width * CHANNELS] for at in range(0, len(both.data), both.width * CHANNELS)]
    between = bytes(4) + bytes((128, 128, 128, 255)) + bytes(4)
    assert (both.width, both.height) == (6, 2)
    assert rows == [bytes(RED) + between + bytes(BLUE) * 2, bytes(RED) + between + bytes(8)]


def test_second_picture_that_cannot_be_decoded_is_reported(monkeypatch):
    reported = []
    monkeypatch.setattr(decoding, "decode", lambda path, _view, _stop: Pixels(1, 1, bytes(4)) if path == "a" else f"bad {path}")
    monkeypatch.setattr(decoding, "REST_S", 0)
    made = Decoder(lambda then, what: then(what))
    try:
        for number, paths in enumerate(("ab", "ba", "aa"), 1):
            made.request(tuple((path, PictureView("PNG")) for path in paths), reported.append)
            until(lambda number=number: len(reported) == number)
    finally:
        made.close()

    assert reported[:2] == ["bad b", "bad b"]
    assert reported[2].width == 5
