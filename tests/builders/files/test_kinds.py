import pytest

from aptui.builders.files.kinds import describe_kind

KINDS = [
    (b"", "an empty file"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "a Git LFS pointer"),
    (b"\xef\xbb\xbfversion https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "a Git LFS pointer"),
    (b"\0\0\0\x1cftypavif\0\0\0\0", "an AVIF picture"),
    (b"\0\0\0\x18ftypheic\0\0\0\0", "a HEIC picture"),
    (b"\0\0\0\x1cftypM4A \0\0\0\0", "an M4A sound (AAC)"),
    (b"\0\0\0\x1cftypisom\0\0\0\0", "an MP4 video or sound"),
    (b"\xff\x0a\x12\x34", "a JPEG XL picture"),
    (b"8BPS\0\1", "a Photoshop file (PSD)"),
    (b"DDS |\0\0\0", "a DDS texture"),
    (b"\xabKTX 20\xbb\r\n\x1a\n", "a KTX2 texture"),
    (b"\xff\xd8\xff\xe0\0\x10JFIF", "a JPEG picture"),
    (b"RIFF\x10\0\0\0WEBPVP8 ", "a WebP picture"),
    (b"RIFF\x10\0\0\0WAVEfmt ", "a WAV sound"),
    (b"RIFF\x10\0\0\0AVI LIST", "an AVI video"),
    (b"OggS\0\2", "an Ogg file"),
    (b"\x1a\x45\xdf\xa3\x01", "a Matroska or WebM video"),
    (b"PK\3\4\x14\0", "a ZIP archive, or a document that is a ZIP archive inside, such as a .kra file of Krita"),
    (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "an SVG drawing"),
    (b"<?xml version='1.0'?>\n<!-- x -->\n<svg width='1'>", "an SVG drawing"),
    (b"\n<!DOCTYPE html><html><body>404", "an HTML page, perhaps the error page of a failed download"),
    (b"<?xml version='1.0'?><a/>", "an XML document"),
    (b'{"a": 1}', "a JSON document"),
    (b"hello\n", "a text file"),
    (b"\0\0\2" + bytes(9) + b"\x10\0\x10\0\x20\x08", "a TGA picture"),
    (b"\0\0\x0a" + bytes(9) + b"\x10\0\x10\0\x20\x08", "a TGA picture"),
    (b"\0\0\2\0\1\0\x20\x20", "a Windows cursor (CUR)"),
    (bytes(5000), "a file that contains only zero bytes"),
    (b"\x01\x02\x03\x04\x05", ""),
    (b"x" * 1080 + b"M.K." + bytes(100), "a tracker module (MOD)"),
]


@pytest.mark.parametrize(("data", "kind"), KINDS, ids=[kind or "unknown" for _, kind in KINDS])
def test_first_bytes_of_a_file_determine_its_kind(data, kind):
    assert describe_kind(data) == kind


def test_kind_of_a_file_with_random_bytes_is_determined_without_an_error():
    import random

    chance = random.Random(1)
    for _ in range(2000):
        assert describe_kind(chance.randbytes(chance.randrange(60))).isprintable()
