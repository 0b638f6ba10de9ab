"""The facts about a picture come from its header; the rest of the file is not read."""

import struct

import pytest

from aptui.tui.pictures.decoding import image_facts

PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBBBBB", 13, b"IHDR", 64, 32, 8, 6, 0, 0, 0)
TIFF_ENTRIES = struct.pack("<HHIHH HHII HHIHH", 256, 3, 1, 300, 0, 257, 4, 1, 70_000, 277, 3, 1, 3, 0)


@pytest.mark.parametrize(
    ("head", "name", "expected"),
    [
        (PNG, "a.png", ("PNG", 64, 32, "RGBA, 8 bits")),
        (b"GIF89a" + struct.pack("<HH", 3, 4), "a", ("GIF", 3, 4, "palette")),
        (b"BM" + bytes(12) + struct.pack("<IiiHH", 40, 5, -6, 1, 24), "a", ("BMP", 5, 6, "24 bits")),
        (b"DDS " + struct.pack("<4I", 124, 0, 8, 16) + bytes(64) + b"DXT5" + bytes(40), "a", ("DDS", 16, 8, "DXT5")),
        (
            b"\xff\xd8\xff\xe0" + b"\x00\x04ab" + b"\xff\xc0" + struct.pack(">HBHHB", 17, 8, 20, 30, 3) + bytes(9),
            "a",
            ("JPEG", 30, 20, "YCbCr, 8 bits"),
        ),
        (b"RIFF\0\0\0\0WEBPVP8X" + bytes(4) + b"\x10" + bytes(3) + b"\x09\0\0\x13\0\0", "a", ("WebP", 10, 20, "alpha")),
        (bytes([0, 0, 10]) + bytes(9) + struct.pack("<HHB", 7, 9, 32) + b"\0", "a.TGA", ("TGA", 7, 9, "32 bits, compressed")),
        (b"8BPS" + bytes(10) + struct.pack(">IIH", 2, 3, 16), "a", ("PSD", 3, 2, "16 bits")),
        (b"II*\0" + struct.pack("<IH", 8, 3) + TIFF_ENTRIES, "a.tif", ("TIFF", 300, 70_000, "3 channels")),
        (b"MM\0*" + struct.pack(">I", 1 << 20), "a.tif", ("TIFF", 0, 0, "")),
        (b"v/1\x01\2\0\0\0", "a.exr", ("OpenEXR", 0, 0, "")),
        (b"\xabKTX 20\xbb\r\n\x1a\n" + struct.pack("<4I", 146, 1, 16, 8) + bytes(80), "a", ("KTX 2", 16, 8, "BC7, sRGB")),
        (PNG[:20], "a.png", None),
        (b"text", "a.tga", None),
        (b"RIFF\0\0\0\0WAVEfmt ", "a.wav", None),
    ],
)  # fmt: skip
def test_images_are_recognised_by_their_first_bytes(head, name, expected):
    found = image_facts(head, name)

    assert (found and found[:4]) == expected


@pytest.mark.parametrize("head", [b"RIFF\0\0\0\0WEBPVP8X", b"\x89PNG\r\n\x1a\n", b"DDS "])
def test_file_that_ends_within_its_header_has_no_facts(head):
    assert image_facts(head, "a") is None
