"""Finds the kind of a file by its first bytes, so that an error can name the kind. Files are not decoded here."""

from __future__ import annotations

import re

_TEXT_BYTES = 4096
"""Number of leading bytes that are examined to recognise a text."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LONGEST_POINTER_BYTES = 1024
"""Every Git LFS pointer file is smaller than this number of bytes (git-lfs docs/spec.md, "The Pointer")."""
_POINTER = (b"version https://git-lfs.github.com/spec/", b"version https://hawser.github.com/spec/")

_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "a PNG picture"),
    (0, b"\xff\xd8\xff", "a JPEG picture"),
    (0, b"GIF8", "a GIF picture"),
    (8, b"WEBP", "a WebP picture"),
    (0, b"II*\0", "a TIFF picture"),
    (0, b"MM\0*", "a TIFF picture"),
    (0, b"II+\0", "a TIFF picture"),
    (0, b"MM\0+", "a TIFF picture"),
    (0, b"\x8aMNG\r\n\x1a\n", "an MNG animation"),
    (0, b"\x8bJNG\r\n\x1a\n", "a JNG picture"),
    (0, b"\xff\x0a", "a JPEG XL picture"),
    (0, b"\0\0\0\x0cJXL \r\n\x87\n", "a JPEG XL picture"),
    (0, b"\0\0\0\x0cjP  \r\n\x87\n", "a JPEG 2000 picture"),
    (0, b"\xff\x4f\xff\x51", "a JPEG 2000 picture"),
    (0, b"8BPS", "a Photoshop file (PSD)"),
    (0, b"gimp xcf", "a GIMP file (XCF)"),
    (0, b"DDS ", "a DDS texture"),
    (0, b"\xabKTX 11\xbb", "a KTX texture"),
    (0, b"\xabKTX 20\xbb", "a KTX2 texture"),
    (0, b"PVR\x03", "a PVR texture"),
    (0, b"\x13\xab\xa1\x5c", "an ASTC texture"),
    (0, b"sB\x13\0", "a Basis texture"),
    (0, b"VTF\0", "a Valve texture (VTF)"),
    (0, b"\x76\x2f\x31\x01", "an OpenEXR picture"),
    (0, b"#?RADIANCE", "a Radiance HDR picture"),
    (0, b"#?RGBE", "a Radiance HDR picture"),
    (0, b"qoif", "a QOI picture"),
    (0, b"\0\0\1\0", "a Windows icon (ICO)"),
    (0, b"\0\0\2\0\0\0\0\0", "a TGA picture"),  # without a palette; a cursor has the number of its pictures at byte 4
    (0, b"\0\0\x0a\0\0\0\0\0", "a TGA picture"),
    (0, b"\0\0\2\0", "a Windows cursor (CUR)"),
    (0, b"icns", "an Apple icon (ICNS)"),
    (0, b"SIMPLE  =", "a FITS picture"),
    (0, b"\x0a\x05\x01\x08", "a PCX picture"),
    (0, b"%!PS", "a PostScript file"),
    (0, b"\xc5\xd0\xd3\xc6", "a PostScript file"),
    (0, b"%PDF-", "a PDF document"),
    (8, b"WAVE", "a WAV sound"),
    (8, b"AVI ", "an AVI video"),
    (0, b"RF64", "a WAV sound"),
    (0, b"riff\x2e\x91\xcf\x11", "a Wave64 sound"),
    (8, b"AIFF", "an AIFF sound"),
    (8, b"AIFC", "an AIFF sound"),
    (0, b"fLaC", "a FLAC sound"),
    (0, b"OggS", "an Ogg file"),
    (0, b"ID3", "an MP3 sound"),
    (0, b"caff", "a Core Audio sound (CAF)"),
    (0, b".snd", "a Sun sound (AU)"),
    (0, b"MThd", "a MIDI file"),
    (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "a Windows Media file (WMA)"),
    (0, b"\xff\xf1", "an AAC sound"),
    (0, b"\xff\xf9", "an AAC sound"),
    (0, b"#!AMR", "an AMR sound"),
    (0, b"wvpk", "a WavPack sound"),
    (0, b"MAC ", "a Monkey's Audio sound"),
    (0, b"TTA1", "a True Audio sound"),
    (0, b"MPCK", "a Musepack sound"),
    (0, b"Extended Module:", "a tracker module (XM)"),
    (0, b"IMPM", "a tracker module (IT)"),
    (44, b"SCRM", "a tracker module (S3M)"),
    (1080, b"M.K.", "a tracker module (MOD)"),
    (0, b"\x1a\x45\xdf\xa3", "a Matroska or WebM video"),
    (0, b"FLV\1", "a Flash video"),
    (0, b"glTF", "a glTF model (GLB)"),
    (0, b"Kaydara FBX Binary", "an FBX model"),
    (0, b"BLENDER", "a Blender file"),
    (0, b"PK\3\4", "a ZIP archive, or a document that is a ZIP archive inside, such as a .kra file of Krita"),
    (0, b"Rar!", "a RAR archive"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (0, b"\x1f\x8b", "a gzip archive"),
    (0, b"\xfd7zXZ\0", "an XZ archive"),
    (0, b"\x28\xb5\x2f\xfd", "a Zstandard archive"),
    (0, b"SQLite format 3\0", "an SQLite database"),
    (0, b"\x7fELF", "a program"),
    (0, b"MZ", "a Windows program"),
    (0, b"wOFF", "a WOFF font"),
    (0, b"wOF2", "a WOFF2 font"),
    (0, b"OTTO", "an OpenType font"),
)  # fmt: skip
"""Known kinds of files: (offset, bytes at this offset, name of the kind); the first match wins."""

_BRANDS = {
    b"avif": "an AVIF picture",
    b"avis": "an AVIF picture",
    b"heic": "a HEIC picture",
    b"heix": "a HEIC picture",
    b"heim": "a HEIC picture",
    b"hevc": "a HEIC picture",
    b"mif1": "a HEIF picture",
    b"msf1": "a HEIF picture",
    b"crx ": "a camera's raw picture (CR3)",
    b"M4A ": "an M4A sound (AAC)",
    b"M4B ": "an M4A sound (AAC)",
    b"qt  ": "a QuickTime video",
}
"""Kinds of files in the ISO base media format (ISO/IEC 14496-12), by their brand; files with another brand are called MP4."""

_MARKUP = (
    (re.compile(rb"<svg[\s>]", re.IGNORECASE), "an SVG drawing"),
    (
        re.compile(rb"^\s*(<!doctype html|<html|<head|<body)", re.IGNORECASE),
        "an HTML page, perhaps the error page of a failed download",
    ),
    (re.compile(rb"^\s*<\?xml"), "an XML document"),
    (re.compile(rb"^\s*[\[{]\s*[\"{\[]"), "a JSON document"),
)


def describe_kind(data: bytes) -> str:
    """Return the kind of a file by its first bytes, with an article, such as "a PNG picture"; "" if the kind is unknown.

    Args:
        data: the first 4096 bytes of a file, or the whole file.
    """
    if not data:
        return "an empty file"
    if is_pointer(data):
        return "a Git LFS pointer"
    if data[4:8] == b"ftyp":
        return _BRANDS.get(data[8:12], "an MP4 video or sound")
    for offset, signature, name in _SIGNATURES:
        if data.startswith(signature, offset):
            return name
    head = data[:_TEXT_BYTES].removeprefix(_BYTE_ORDER_MARK)
    for pattern, name in _MARKUP:
        if pattern.search(head):
            return name
    if not head.strip(b"\0"):
        return "a file that contains only zero bytes"
    return "a text file" if _is_text(head) else ""


def _is_text(head: bytes) -> bool:
    return not re.search(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]", head) and bool(re.fullmatch(rb"[\x09-\x7e]*", head))


def is_pointer(data: bytes) -> bool:
    """Return whether `data`, all bytes of a file, are a Git LFS pointer. The worker refuses a source that is a pointer."""
    return len(data) < _LONGEST_POINTER_BYTES and data.removeprefix(_BYTE_ORDER_MARK).startswith(_POINTER) and b"\noid " in data
