"""Previews of files before decoding, with a decoded picture, and after a failed decoding."""

import json
import struct
import zlib

from PIL import Image

from aptui.tui.pictures.decoder import Pixels
from aptui.tui.screens.assets.asset_detail import preview_of


def lines(text):
    return ["".join(piece for piece, _ in line) for line in text.lines]


def test_unreadable_file_and_binary_file_have_no_picture_preview(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"\0\1")

    assert preview_of(str(tmp_path / "none")).text.kind == "not readable"
    assert preview_of(str(tmp_path / "a.bin")).text.kind == "binary"
    assert preview_of(str(tmp_path / "a.bin")).form == ""


def test_picture_preview_is_empty_until_decoded(tmp_path):
    Image.new("RGB", (64, 32)).save(tmp_path / "a.png")
    pixels = Pixels(1, 1, bytes(4))

    preview = preview_of(str(tmp_path / "a.png"))

    assert (preview.form, preview.at_first.kind, preview.at_first.lines) == ("PNG", "", ())
    shown = preview.with_picture(pixels)
    assert (shown.kind, shown.lines, shown.pixels) == ("PNG 64 × 32, RGB, 8 bits", (), pixels)


def test_preview_of_a_damaged_picture_shows_the_reason_before_the_facts(tmp_path):
    Image.new("RGB", (64, 32)).save(tmp_path / "a.png")

    told = lines(preview_of(str(tmp_path / "a.png")).with_picture("its file ends too early"))

    assert told[:4] == ["Picture not shown: its file ends too early", "Format  PNG", "Size    64 × 32", "Pixels  RGB, 8 bits"]
    assert told[-1].startswith("00000")


def test_preview_of_a_refused_picture_shows_the_reason_at_once(tmp_path):
    head = struct.pack(">I4sIIBBBBB", 13, b"IHDR", 50_000, 50_000, 8, 6, 0, 0, 0)
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + head + struct.pack(">I", zlib.crc32(head[4:])))
    (tmp_path / "a.exr").write_bytes(b"v/1\x01\2\0\0\0")

    large, foreign = (preview_of(str(tmp_path / name)) for name in ("a.png", "a.exr"))

    assert (large.form, foreign.form) == ("", "")
    assert lines(large.text)[0] == "Picture not shown: 50,000 × 50,000 are more pixels than a preview decodes (32 Mi)"
    assert lines(foreign.text)[:2] == ["Picture not shown: there is no preview of the format OpenEXR", "Format  OpenEXR"]
    assert foreign.text.kind == "OpenEXR"


def test_preview_of_a_model_shows_facts(tmp_path):
    text = json.dumps({"meshes": [], "extensionsUsed": ["EXT_\x1b[2J"], "extras": "x" * 70_000}).encode()
    (tmp_path / "a.glb").write_bytes(struct.pack("<4sIIII", b"glTF", 2, 20 + len(text), len(text), 0x4E4F534A) + text)

    model = preview_of(str(tmp_path / "a.glb")).text

    assert lines(model)[:4] == ["Format      GLB", "Triangles   0", "Vertices    0", "Meshes      0"]
    assert not any("\x1b" in line for line in lines(model))
    assert model.kind == "GLB"


def test_preview_of_a_damaged_model_shows_its_bytes(tmp_path):
    (tmp_path / "a.glb").write_bytes(b"glTF" + bytes(40))

    assert preview_of(str(tmp_path / "a.glb")).text.kind == "binary"
