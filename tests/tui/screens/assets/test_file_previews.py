"""Previews of files before decoding, with a decoded picture, and after a failed decoding."""

import json
import struct
import zlib

from PIL import Image

from aptui.builders.files.texture_file import Texture, encode_ktx2
from aptui.tui.pictures.decoder import PictureView, Pixels
from aptui.tui.screens.assets.file_previews import FIRST, TexturePlace, preview_of


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

    preview_lines = lines(preview_of(str(tmp_path / "a.png")).with_picture("the file ends too early"))

    assert preview_lines[0] == "Picture not shown: the file ends too early"
    assert preview_lines[1].startswith("File    ")
    assert preview_lines[2] == ""
    assert preview_lines[3].startswith("00000")


def test_preview_of_a_refused_picture_shows_the_reason_at_once(tmp_path):
    head = struct.pack(">I4sIIBBBBB", 13, b"IHDR", 50_000, 50_000, 8, 6, 0, 0, 0)
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + head + struct.pack(">I", zlib.crc32(head[4:])))
    (tmp_path / "a.exr").write_bytes(b"v/1\x01\2\0\0\0")

    large, foreign = (preview_of(str(tmp_path / name)) for name in ("a.png", "a.exr"))

    assert (large.form, foreign.form) == ("", "")
    assert (
        lines(large.text)[0]
        == "Picture not shown: 50,000 × 50,000 pixels are too many for a preview; the limit is 33,554,432 pixels"
    )
    assert lines(foreign.text)[:2] == ["Picture not shown: there is no preview for the format OpenEXR", "File    8 B"]
    assert foreign.text.kind == "OpenEXR"


def test_preview_of_a_model_shows_facts(tmp_path):
    text = json.dumps({"meshes": [], "extensionsUsed": ["EXT_\x1b[2J"], "extras": "x" * 70_000}).encode()
    (tmp_path / "a.glb").write_bytes(struct.pack("<4sIIII", b"glTF", 2, 20 + len(text), len(text), 0x4E4F534A) + text)

    preview = preview_of(str(tmp_path / "a.glb"))
    model = preview.with_picture("the model has no triangles")

    assert lines(model)[0] == "Picture not shown: the model has no triangles"
    assert lines(model)[1:4] == ["Triangles   0", "Vertices    0", "Meshes      0"]
    assert not any("\x1b" in line for line in lines(model))
    assert model.kind == "GLB"
    shown = preview.with_picture(Pixels(1, 1, bytes(4), is_drawing=True))
    assert lines(shown) == lines(preview.at_first) == [
        "Triangles 0  Vertices 0  Meshes 0  ", "Extensions EXT_  File 68 KiB  ",
    ]  # fmt: skip
    assert preview.view(FIRST, 60, 20) == PictureView("GLB", 0, 120, 80)


def test_preview_of_a_damaged_model_shows_its_bytes(tmp_path):
    (tmp_path / "a.glb").write_bytes(b"glTF" + bytes(40))

    assert preview_of(str(tmp_path / "a.glb")).text.kind == "binary"


def test_texture_preview_shows_the_size_of_the_displayed_mip_level(tmp_path):
    levels = [[bytes(128)], [bytes(32)], [bytes(8)]]
    (tmp_path / "a.ktx2").write_bytes(encode_ktx2(Texture("bc1", 16, 16, levels, is_srgb=True)))

    preview = preview_of(str(tmp_path / "a.ktx2"))

    assert preview.title(FIRST) == "level 1 of 3: 16 × 16, 128 B, KTX 2 16 × 16, BC1, sRGB"
    assert preview.with_picture(Pixels(4, 4, bytes(64)), TexturePlace(2)).kind.startswith("level 3 of 3: 4 × 4, 8 B, KTX 2")
    assert preview.view(TexturePlace(1), 60, 20) == PictureView("KTX 2", 1)
