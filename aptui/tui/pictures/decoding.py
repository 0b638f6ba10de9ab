"""Reads the headers of pictures, sounds and fonts. Decodes the file of the latest request in a separate process.

Tests: `tests/tui/pictures/test_decoding.py`, `tests/tui/pictures/test_facts.py`.
"""

from __future__ import annotations

import json
import os
import select
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from aptui.tui.background import LatestOnly
from aptui.tui.pictures.decoder import CHANNELS, DRAWN, MOST_PIXELS, READERS, PictureView, Pixels, too_many
from aptui.tui.pictures.texture_levels import (
    Level,
    Pictures,
    dds_format,
    dds_levels,
    dds_pictures,
    ktx2_format,
    ktx2_levels,
    ktx2_pictures,
)

HEAD_BYTES = 64 * 1024
_PNG_COLOURS = {0: "grey", 2: "RGB", 3: "palette", 4: "grey + alpha", 6: "RGBA"}


class Facts(NamedTuple):
    """Format, width and height in pixels (0 = unknown), other facts, and the levels and pictures of a texture."""

    form: str
    width: int
    height: int
    more: str
    levels: tuple[Level, ...] = ()
    pictures: Pictures = Pictures()

    @property
    def extent(self) -> str:
        """Width and height for users, "" = unknown."""
        return f"{self.width:,} × {self.height:,}" if self.width else ""


def image_facts(head: bytes, name: str) -> Facts | None:
    """Return the facts of an image by its first bytes, None if the file is not an image."""
    reads = next((read for mark, read in _BY_MARK.items() if head.startswith(mark)), None)
    if reads is None and name.lower().endswith(".tga"):
        reads = _tga
    try:
        return reads(head) if reads is not None else None
    except (struct.error, IndexError):  # the header is cut off
        return None


def _png(head: bytes) -> Facts:
    width, height, bits, colours = struct.unpack_from(">IIBB", head, 16)
    return Facts("PNG", width, height, f"{_PNG_COLOURS.get(colours, '?')}, {bits} bits")


def _gif(head: bytes) -> Facts:
    width, height = struct.unpack_from("<HH", head, 6)
    return Facts("GIF", width, height, "palette")


def _bmp(head: bytes) -> Facts | None:
    size, width, height, planes, bits = struct.unpack_from("<IiiHH", head, 14)
    return Facts("BMP", width, abs(height), f"{bits} bits") if size >= 40 and planes == 1 else None


def _psd(head: bytes) -> Facts:
    height, width, bits = struct.unpack_from(">IIH", head, 14)
    return Facts("PSD", width, height, f"{bits} bits")


def _tga(head: bytes) -> Facts | None:
    """Read the header of TGA, which has no magic number."""
    has_map, kind = struct.unpack_from("BB", head, 1)
    width, height, bits = struct.unpack_from("<HHB", head, 12)
    if has_map > 1 or kind not in {1, 2, 3, 9, 10, 11}:
        return None
    return Facts("TGA", width, height, f"{bits} bits{', compressed' if kind > 3 else ''}")


def _dds(head: bytes) -> Facts:
    height, width = struct.unpack_from("<II", head, 12)
    return Facts("DDS", width, height, dds_format(head), dds_levels(head), dds_pictures(head))


def _ktx2(head: bytes) -> Facts:
    width, height = struct.unpack_from("<2I", head, 20)
    return Facts("KTX 2", width, height, ktx2_format(head), ktx2_levels(head), ktx2_pictures(head))


def _wav(head: bytes) -> Facts:
    """Read the format of a WAV file, and its duration if the chunk "data" begins within the first bytes of the file."""
    channels, rate, bytes_a_second, _, bits = struct.unpack_from("<HIIHH", head, 22)
    words = [f"{channels} channel{'s' if channels != 1 else ''}", f"{rate:,} Hz", f"{bits} bits"]
    at = head.find(b"data", 36)
    if at > 0 and bytes_a_second:
        words.append(f"{struct.unpack_from('<I', head, at + 4)[0] / bytes_a_second:.1f} s")
    return Facts("WAV", 0, 0, ", ".join(words))


def _riff(head: bytes) -> Facts | None:
    if head[8:16] == b"WAVEfmt ":
        return _wav(head)
    if head[8:12] != b"WEBP":
        return None
    kind = head[12:16]
    if kind == b"VP8X":
        width, height = (int.from_bytes(head[at : at + 3], "little") + 1 for at in (24, 27))
        return Facts("WebP", width, height, "alpha" if head[20] & 16 else "")
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", head, 21)
        return Facts("WebP", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, "lossless")
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", head, 26)
        return Facts("WebP", width & 0x3FFF, height & 0x3FFF, "")
    return None


def _jpeg(head: bytes) -> Facts | None:
    """Read the size from the frame header of a JPEG file, None if that header is not within the first bytes."""
    at = 2
    while at + 9 < len(head) and head[at] == 0xFF:
        marker = head[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            bits, height, width, parts = struct.unpack_from(">BHHB", head, at + 4)
            return Facts("JPEG", width, height, f"{ {1: 'grey', 3: 'YCbCr', 4: 'CMYK'}.get(parts, '?') }, {bits} bits")
        at += 2 + struct.unpack_from(">H", head, at + 2)[0]
    return None


def _tiff(head: bytes) -> Facts | None:
    """Read the first directory if its entries are within the first bytes; otherwise the size is unknown."""
    order = "<" if head.startswith(b"I") else ">"
    (at,) = struct.unpack_from(f"{order}I", head, 4)
    if at + 2 > len(head):
        return Facts("TIFF", 0, 0, "")
    (count,) = struct.unpack_from(f"{order}H", head, at)
    numbers = {}
    for start in range(at + 2, min(at + 2 + 12 * count, len(head) - 11), 12):
        tag, kind = struct.unpack_from(f"{order}HH", head, start)
        (numbers[tag],) = struct.unpack_from(f"{order}{'H' if kind == _TIFF_SHORT else 'I'}", head, start + 8)
    samples = numbers.get(277, 1)
    return Facts("TIFF", numbers.get(256, 0), numbers.get(257, 0), f"{samples} channels" if samples > 1 else "")


_TIFF_SHORT = 3
_BY_MARK: dict[bytes, Callable[[bytes], Facts | None]] = {
    b"\x89PNG\r\n\x1a\n": _png,
    b"GIF87a": _gif,
    b"GIF89a": _gif,
    b"BM": _bmp,
    b"8BPS": _psd,
    b"DDS ": _dds,
    b"RIFF": _riff,
    b"\xff\xd8\xff": _jpeg,
    b"II*\0": _tiff,
    b"MM\0*": _tiff,
    b"v/1\x01": lambda _: Facts("OpenEXR", 0, 0, ""),
    b"#?RADIANCE": lambda _: Facts("Radiance HDR", 0, 0, ""),
    b"\xabKTX 11\xbb": lambda _: Facts("KTX", 0, 0, ""),
    b"\xabKTX 20\xbb": _ktx2,
    b"PVR\x03": lambda _: Facts("PVR", 0, 0, ""),
    b"fLaC": lambda _: Facts("FLAC", 0, 0, ""),
    b"OggS": lambda _: Facts("Ogg", 0, 0, ""),
    b"ID3": lambda _: Facts("MP3", 0, 0, ""),
    b"\0\1\0\0": lambda _: Facts("TrueType", 0, 0, ""),
    b"true": lambda _: Facts("TrueType", 0, 0, ""),
    b"OTTO": lambda _: Facts("OpenType", 0, 0, ""),
    b"glTF": lambda _: Facts("GLB", 0, 0, ""),
}


REST_S = 0.15
"""Delay before the picture under the cursor is decoded (seconds)."""
_TIMEOUT_S, _POLL_MS = 30.0, 50
"""Timeout of a decoder process (seconds), and interval between checks of `stop` (milliseconds).

The timeout is long, because jobs may keep the machine busy.
"""
_MOST_FILE_BYTES = 128 << 20


def objection(facts: Facts, size_bytes: int) -> str:
    """Return why a picture is not decoded, "" if it is decoded."""
    if facts.form not in READERS and facts.form not in DRAWN:
        return f"there is no preview for the format {facts.form}"
    if facts.width * facts.height > MOST_PIXELS:
        return too_many(facts.width, facts.height)
    if size_bytes > _MOST_FILE_BYTES:
        return f"the file is larger than {_MOST_FILE_BYTES >> 20} MiB, the limit for previews"
    return ""


def decode(path: str, view: PictureView, stop: threading.Event) -> Pixels | str:
    """Return the picture of a file, or the reason why it cannot be decoded. Blocks until the decoder ends or `stop` is set."""
    try:
        # Opened without blocking, because opening a pipe would block the thread.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return (error.strerror or "the file cannot be read").lower()
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-X", "utf8", "-m", "aptui.tui.pictures.decoder", *map(str, view)],
            stdin=fd, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return f"the decoder cannot be started: {error.strerror}"
    finally:
        os.close(fd)
    with process:
        return _read(_answer(process, view, stop), view)


def _answer(process: subprocess.Popen[bytes], view: PictureView, stop: threading.Event) -> bytes:
    """Return the output of the process, up to the maximum size of an answer."""
    assert process.stdout is not None
    most_bytes = view.width * view.height * CHANNELS + 1024
    fd, answer, deadline_s = process.stdout.fileno(), b"", time.monotonic() + _TIMEOUT_S
    news = select.poll()
    news.register(fd)
    try:
        while len(answer) <= most_bytes:
            if stop.is_set() or time.monotonic() > deadline_s:
                return b'{"why": "decoding takes too long"}\n'
            if news.poll(_POLL_MS):
                piece = os.read(fd, 1 << 16)
                if not piece:
                    break
                answer += piece
        return answer
    finally:
        process.kill()  # the decoder may still be running


def _read(answer: bytes, view: PictureView) -> Pixels | str:
    """Return the picture or the reason in the decoder's answer, checked strictly: a hostile file may control the decoder."""
    line, _, data = answer.partition(b"\n")
    try:
        reply = json.loads(line)
        if why := reply.get("why"):
            return str(why)
        width, height = reply["size"]
    except (AttributeError, KeyError, TypeError, ValueError):
        return "the decoder ended without an answer"
    is_so = isinstance(width, int) and isinstance(height, int) and 0 < width <= view.width and 0 < height <= view.height
    if not is_so or len(data) != width * height * CHANNELS:
        return "the decoder returned an invalid picture"
    return Pixels(width, height, data, view.form in DRAWN)


_GAP, _DIVIDER = 3, bytes((128, 128, 128, 255))
"""Width of the gap between two pictures (pixels), and the colour of the line in its middle."""


def put_beside(left: Pixels, right: Pixels) -> Pixels:
    """Join two pictures side by side, with a line between them."""
    height = max(left.height, right.height)
    margin = bytes(CHANNELS * (_GAP // 2))

    def row(picture: Pixels, y: int) -> bytes:
        width = picture.width * CHANNELS
        return picture.data[y * width : (y + 1) * width].ljust(width, b"\0")

    data = b"".join(row(left, y) + margin + _DIVIDER + margin + row(right, y) for y in range(height))
    return Pixels(left.width + _GAP + right.width, height, data, left.is_drawing and right.is_drawing)


class _DecodeRequest(NamedTuple):
    wanted: tuple[tuple[str, PictureView], ...]
    then: Callable[[Pixels | str], object]


class Decoder:
    """Decodes in a thread; the UI's thread calls its methods.

    Args:
        deliver: called by the thread with a function and its arguments; it makes the UI's thread call this function.
    """

    def __init__(self, deliver: Callable[..., object]) -> None:
        self._deliver = deliver
        self._worker = LatestOnly[_DecodeRequest | None]("aptui-pictures", self._decode)
        self._is_used = False

    def request(self, wanted: tuple[tuple[str, PictureView], ...], then: Callable[[Pixels | str], object]) -> None:
        """Decode pictures and call `then` in the UI's thread with the picture or a reason, unless another request replaces it.

        Args:
            wanted: (path, view) of one picture, or of two that are put beside each other.
            then: gets the picture, or the reason why it cannot be decoded.
        """
        self._is_used = True
        self._worker.put(_DecodeRequest(wanted, then), interrupts=True)

    def drop_request(self) -> None:
        """Drop the request."""
        if self._is_used:
            self._worker.put(None, interrupts=True)

    def close(self) -> None:
        """End the thread and its process."""
        self._worker.close()

    def _decode(self, _kind: str, wanted: _DecodeRequest | None) -> None:
        if wanted is None or self._worker.is_superseded(wait_s=REST_S):
            return
        picture: Pixels | str = ""
        for path, view in wanted.wanted:
            after = decode(path, view, self._worker.stop)
            picture = put_beside(picture, after) if isinstance(picture, Pixels) and isinstance(after, Pixels) else after
            if isinstance(picture, str):
                break
        if not self._worker.is_superseded():
            self._deliver(wanted.then, picture)
