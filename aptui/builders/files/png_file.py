"""Read the chunks of a PNG file before a decoder sees it, and write PNG files with 16 bits a channel.

The decoder gets only the chunks that affect pixels, because metadata can be large, compressed or damaged. No product has metadata.
Section numbers are those of the PNG specification, third edition.

Pillow writes 16-bit files only of grey pictures without alpha. Libraries that can write all 16-bit files need OpenCV or a
collection of all codecs (50 MB and more), or filter each byte in Python. This module needs only numpy and zlib, which aptui uses
already.

Tests: `tests/builders/files/test_png_file.py`, `tests/builders/test_png_pixels.py`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

from aptui.builders.files.pictures import PictureError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Samples = NDArray[np.uint16]

SIGNATURE = b"\x89PNG\r\n\x1a\n"

GREY, RGB, PALETTE, GREY_ALPHA, RGB_ALPHA = 0, 2, 3, 4, 6
"""Colour types (11.2.1)."""

MOST_METADATA_BYTES = 1 << 20
"""Maximum size of one unpacked text (bytes); a longer text is dropped with a warning."""

MOST_UNPACKED_BYTES = 64 << 20
"""Maximum total size of a file's unpacked texts and profiles: a 1 MB file can hold thousands that unpack to a megabyte each."""

MOST_PROFILE_BYTES = 8 << 20
"""Maximum size of an unpacked colour profile (bytes); profiles of printing presses have up to 3 MiB."""

_DEPTHS = {GREY: (1, 2, 4, 8, 16), RGB: (8, 16), PALETTE: (1, 2, 4, 8), GREY_ALPHA: (8, 16), RGB_ALPHA: (8, 16)}
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""Passes of Adam7: (first column, first row, column step, row step)."""
_STEP_BYTES = 1 << 12
"""Number of packed bytes that are unpacked at a time; the result has at most 4 MiB."""
_ENDS_EARLY = "damaged PNG: the file ends too early"
_CRITICAL = {b"IHDR": "header", b"PLTE": "palette", b"IDAT": "pixel data", b"IEND": "end"}
_ANCILLARY = {
    b"tRNS": "transparency", b"iCCP": "colour profile", b"gAMA": "gamma", b"cHRM": "primaries", b"sRGB": "colour space",
    b"cICP": "colour space", b"eXIf": "EXIF", b"iTXt": "text", b"tEXt": "text", b"zTXt": "text", b"pHYs": "resolution",
    b"acTL": "animation",
}  # fmt: skip
_ORIENTING_TEXTS = (b"XML:com.adobe.xmp\0", b"Raw profile type exif\0", b"Raw profile type APP1\0", b"Raw profile type xmp\0")
"""Keywords of texts that may hold the orientation of the picture."""

_WRITE_ROWS_BYTES = 1 << 20
"""Number of bytes of rows that are filtered at a time: enough for numpy to be fast, and little compared with the picture."""


@dataclass
class PngFile:
    """Properties of a PNG file besides its pixels.

    Attributes:
        data: the file without metadata, for a decoder.
        transparent: the grey or RGB sample values (as stored) that are transparent, () if none are.
        profile: the unpacked ICC profile, b"" if the file has no profile.
        gamma: exponent of the encoding, 0 if it is not stored.
        is_other_space: whether the chunk cICP names a colour space other than sRGB.
        frame_count: 1 if it is not an animation; 0 if the file is not a PNG.
        unpacked_bytes: size of all metadata that was unpacked so far.
        remarks: descriptions of faults of the file that do not affect its pixels.
    """

    data: bytes = b""
    size: tuple[int, int] = (0, 0)
    is_interlaced: bool = False
    bit_depth: int = 0
    colour_type: int = 0
    transparent: tuple[int, ...] = ()
    profile: bytes = b""
    gamma: float = 0.0
    is_srgb: bool = False
    is_other_space: bool = False
    frame_count: int = 0
    remarks: list[str] = field(default_factory=list)
    unpacked_bytes: int = 0


def read_png(data: bytes) -> PngFile:
    """Return the content of the chunks of `data`, the bytes of a PNG file.

    Raises:
        PictureError: chunks that affect pixels are damaged, or the file violates the specification.
    """
    file = PngFile(frame_count=1)
    parts = [SIGNATURE]
    end = len(SIGNATURE)
    has_pixels = False
    for kind, start, end in _chunks(data, file):
        content = memoryview(data)[start : end - 4]
        if kind == b"IEND":
            break
        if not has_pixels and kind != b"IHDR" and len(parts) == 1:
            raise PictureError(_first_chunk(kind))
        if _read_chunk(kind, content, file, has_pixels):
            parts.append(memoryview(data)[start - 8 : end])  # type: ignore[arg-type]  # join takes any buffer
        has_pixels |= kind == b"IDAT"
    else:
        if has_pixels:
            file.remarks.append("the file has no end mark (chunk IEND)")
    if not has_pixels:
        raise PictureError(_ENDS_EARLY)
    parts.append(_chunk(b"IEND", b""))
    file.data = b"".join(parts)
    return file


def check_length(file: PngFile) -> None:
    """Refuse a PNG whose pixel data lacks whole rows: Pillow reads this file without an error, and leaves the missing rows black.

    Raises:
        PictureError: rows are missing.
    """
    missing, unpacker = _count_pixel_bytes(file), zlib.decompressobj()
    try:
        for packed in _split_pixels(file.data):
            missing -= len(unpacker.decompress(packed))
            if missing <= 0 or unpacker.eof:
                break
    except zlib.error:
        return  # the decoder reports the damaged pixel data
    if missing > 0:
        raise PictureError(_ENDS_EARLY)


def _split_pixels(data: bytes) -> Iterator[bytes]:
    """Yield the packed pixel data of a PNG in pieces of at most `_STEP_BYTES`."""
    at = len(SIGNATURE)
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        end = at + 8 + length
        if kind == b"IDAT":
            yield from (data[first : min(first + _STEP_BYTES, end)] for first in range(at + 8, end, _STEP_BYTES))
        at = end + 4


def _count_pixel_bytes(file: PngFile) -> int:
    """Return the size of the unpacked pixel data: each row of each pass begins with a byte for its filter (PNG, 7.2)."""
    width, height = file.size
    pixel_bits = file.bit_depth * {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGB_ALPHA: 4}[file.colour_type]
    total = 0
    for left, top, across, down in _PASSES if file.is_interlaced else ((0, 0, 1, 1),):
        columns, rows = -((left - width) // across), -((top - height) // down)
        total += rows * (1 + (columns * pixel_bits + 7) // 8) if columns > 0 and rows > 0 else 0
    return total


def write_png16(stream: IO[bytes], samples: Samples) -> None:
    """Write a PNG with 16 bits a channel.

    Args:
        samples: height × width × channels: grey, grey and alpha, RGB, or RGB and alpha.
    """
    import numpy as np

    height, width, channels = samples.shape
    colour_type = (GREY, GREY_ALPHA, RGB, RGB_ALPHA)[channels - 1]
    stream.write(SIGNATURE + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, colour_type, 0, 0, 0)))
    packer = zlib.compressobj()
    row_bytes = width * channels * 2
    above = np.zeros((1, row_bytes), np.uint8)
    step = max(1, _WRITE_ROWS_BYTES // row_bytes)
    for top in range(0, height, step):
        rows = samples[top : top + step].astype(">u2").reshape(-1, width * channels).view(np.uint8)
        packed = packer.compress(_filter(np.concatenate((above, rows)), channels * 2).tobytes())
        above = rows[-1:]
        if packed:
            stream.write(_chunk(b"IDAT", packed))
    stream.write(_chunk(b"IDAT", packer.flush()) + _chunk(b"IEND", b""))


def _chunks(data: bytes, file: PngFile) -> Iterator[tuple[bytes, int, int]]:
    """Yield (type, start of content, end with checksum) of chunks whose checksum is right."""
    at, has_pixels = len(SIGNATURE), False
    while at + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        start, end = at + 8, at + 12 + length
        is_chunk = kind.isalpha() and length < 1 << 31
        if not is_chunk or end > len(data):
            if not has_pixels or kind == b"IDAT":
                raise PictureError(_ENDS_EARLY if is_chunk else "damaged PNG: bytes between two chunks do not belong to any chunk")
            file.remarks.append("the file ends with bytes that do not belong to the picture")
            return
        is_right = zlib.crc32(memoryview(data)[at + 4 : end - 4]) == int.from_bytes(data[end - 4 : end])
        if is_right:
            yield kind, start, end
        elif kind in _CRITICAL:
            raise PictureError(f"damaged PNG: the checksum of the {_CRITICAL[kind]} (chunk {kind.decode()}) is wrong")
        elif not kind[0] & 0x20:
            raise PictureError("damaged PNG: the checksum of a chunk that the pixels depend on is wrong")
        else:
            what = _ANCILLARY.get(kind, "metadata")
            file.remarks.append(f"the {what} (chunk {kind.decode()}) has a wrong checksum and is ignored")
        has_pixels |= kind == b"IDAT"
        at = end


def _first_chunk(kind: bytes) -> str:
    if kind == b"CgBI":
        return "unsupported PNG: the file was packed for iOS (CgBI), which other programs cannot read; use the original file"
    return "damaged PNG: the file does not begin with its header (chunk IHDR)"


def _read_chunk(kind: bytes, content: memoryview, file: PngFile, has_pixels: bool) -> bool:
    """Record the content of a chunk in `file`, and return whether the decoder needs the chunk."""
    match kind:
        case b"IHDR":
            _read_header(content, file)
        case b"PLTE":
            return file.colour_type == PALETTE
        case b"tRNS":
            return not has_pixels and _is_decoders_transparency(content, file)
        case b"iTXt" | b"tEXt" | b"zTXt":
            return _is_needed_text(kind, bytes(content), file)
        case b"iCCP" if not has_pixels:
            file.profile = _unpack_profile(bytes(content), file)
        case b"gAMA" if len(content) >= 4:
            file.gamma = int.from_bytes(content[:4]) / 100_000
        case b"sRGB":
            file.is_srgb = True
        case b"cICP":
            file.is_other_space = bytes(content[:2]) != b"\x01\x0d"
        case b"acTL" if len(content) >= 8 and not has_pixels:
            file.frame_count = max(1, int.from_bytes(content[:4]))
        case b"IDAT" | b"eXIf":
            pass
        case _ if not kind[0] & 0x20:
            raise PictureError("unsupported PNG: the file uses a newer version of the format; save it again as an ordinary PNG")
    return kind in (b"IHDR", b"IDAT", b"eXIf")


def _read_header(content: memoryview, file: PngFile) -> None:
    if file.bit_depth:
        raise PictureError("damaged PNG: the file has two headers")
    if len(content) != 13:
        raise PictureError("damaged PNG: the header has a wrong length")
    width, height, depth, colour_type, compression, filtering, interlace = struct.unpack(">IIBBBBB", content)
    if not 0 < width < 1 << 31 or not 0 < height < 1 << 31:
        raise PictureError(f"damaged PNG: the header gives an impossible size of {width}x{height} pixels")
    if depth not in _DEPTHS.get(colour_type, ()) or compression or filtering or interlace > 1:
        raise PictureError("damaged PNG: the header names a kind of pixels that does not exist in PNG")
    file.bit_depth, file.colour_type = depth, colour_type
    file.size, file.is_interlaced = (width, height), bool(interlace)


def _is_decoders_transparency(content: memoryview, file: PngFile) -> bool:
    """Return whether the decoder applies the chunk tRNS, which makes colours transparent. It does so only for a palette.

    In other pictures aptui applies tRNS, because the values in tRNS have the bit depth of the file and are not scaled to 8 bits
    (PNG, 11.3.1.1).
    """
    count = {GREY: 1, RGB: 3}.get(file.colour_type, 0)
    if count and len(content) == 2 * count:
        mask = (1 << file.bit_depth) - 1
        file.transparent = tuple(value & mask for value in struct.unpack(f">{count}H", content))
    elif count:
        file.remarks.append("the transparency (chunk tRNS) has a wrong length and is ignored")
    return file.colour_type == PALETTE


def _unpack_profile(content: bytes, file: PngFile) -> bytes:
    _, _, packed = content.partition(b"\0")
    profile = _inflate(packed[1:], MOST_PROFILE_BYTES, file) if packed[:1] == b"\0" else b""
    if profile is None:
        file.remarks.append(f"the colour profile (chunk iCCP) is larger than {MOST_PROFILE_BYTES >> 20} MiB and is ignored")
    elif not profile:
        file.remarks.append("the colour profile (chunk iCCP) is damaged and is ignored")
    return profile or b""


def _is_needed_text(kind: bytes, content: bytes, file: PngFile) -> bool:
    keyword, _, text = content.partition(b"\0")
    packed = text[1:] if kind == b"zTXt" else b""
    if kind == b"iTXt" and text[:1] == b"\1":
        packed = text[2:].split(b"\0", 2)[-1]
    is_large = len(content) > MOST_METADATA_BYTES or _inflate(packed, MOST_METADATA_BYTES, file) is None
    if is_large:
        file.remarks.append(f"a text (chunk {kind.decode()}) is larger than {MOST_METADATA_BYTES >> 20} MiB and is ignored")
    return not is_large and (keyword + b"\0").startswith(_ORIENTING_TEXTS)


def _inflate(packed: bytes, most_bytes: int, file: PngFile) -> bytes | None:
    """Return the unpacked bytes of `packed`, b"" if `packed` is damaged.

    Return None if they are more than `most_bytes`, or if the file already has more than `MOST_UNPACKED_BYTES` unpacked bytes.
    """
    if packed and file.unpacked_bytes > MOST_UNPACKED_BYTES:
        return None
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(packed, most_bytes + 1)
    except zlib.error:
        return b""
    file.unpacked_bytes += len(data)
    return None if len(data) > most_bytes else data


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _filter(rows: Bytes, pixel_bytes: int) -> Bytes:
    """Return all rows except the first, each filtered by the filter that suits it best (9.2).

    The first row is only used to predict the second row.
    """
    import numpy as np

    up, raw = rows[:-1].astype(np.int16), rows[1:].astype(np.int16)
    left, up_left = np.zeros_like(raw), np.zeros_like(raw)
    left[:, pixel_bytes:], up_left[:, pixel_bytes:] = raw[:, :-pixel_bytes], up[:, :-pixel_bytes]
    by_left, by_up, by_both = np.abs(up - up_left), np.abs(left - up_left), np.abs(left + up - 2 * up_left)
    paeth = np.where((by_left <= by_up) & (by_left <= by_both), left, np.where(by_up <= by_both, up, up_left))
    predictions = (np.zeros_like(raw), left, up, (left + up) >> 1, paeth)
    best = np.empty((len(raw), raw.shape[1] + 1), np.uint8)
    smallest = np.full(len(raw), np.iinfo(np.int64).max)
    for number, prediction in enumerate(predictions):
        filtered = (raw - prediction).astype(np.uint8)
        cost = np.abs(filtered.view(np.int8).astype(np.int16)).sum(axis=1, dtype=np.int64)
        is_better = cost < smallest
        best[is_better, 0] = number
        best[is_better, 1:] = filtered[is_better]
        smallest = np.minimum(cost, smallest)
    return best
