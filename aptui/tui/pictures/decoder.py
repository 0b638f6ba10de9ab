"""The process that decodes a picture from standard input to a small one on standard output; and the type of decoded pictures.

Files may be hostile, so they are not decoded in the screen's process. Before this process reads a byte of the file, it gives up
privileges: it cannot open files or connections, start processes or write files (root becomes `nobody`), and its memory and CPU time
are limited. However it ends, the parent shows one sentence.

The answer is a line of JSON, `{"size": [width, height]}`, followed by the pixels, or `{"why": …}`.

Tests: `tests/tui/pictures/test_decoding.py`.
"""

from __future__ import annotations

import json
import os
import resource
import struct
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from PIL import Image


MOST_WIDE, MOST_HIGH = 320, 200
"""Maximum size of a decoded picture (pixels): one for each half of a cell of a large terminal."""
CHANNELS = 4


class Pixels(Struct, frozen=True):
    """A decoded picture: rows of red, green, blue and alpha, a byte each."""

    width: int
    height: int
    data: bytes


def fit_size(width: int, height: int, columns: int, rows: int) -> tuple[int, int]:
    """Return the size of a picture in `columns` × `rows` pixels, with its aspect ratio; it is enlarged only by whole numbers."""
    if columns <= 0 or rows <= 0:
        return 0, 0
    enlarged = min(columns // width, rows // height)
    if enlarged:
        return width * enlarged, height * enlarged
    scale = min(columns / width, rows / height)
    return max(1, round(width * scale)), max(1, round(height * scale))


MOST_PIXELS = 32 << 20
READERS = {
    "PNG": "Png", "JPEG": "Jpeg", "GIF": "Gif", "BMP": "Bmp", "TGA": "Tga", "WebP": "WebP", "DDS": "Dds", "TIFF": "Tiff",
    "PSD": "Psd", "KTX 2": "",
}  # fmt: skip
"""{format: Pillow's module for it, "" for texture2ddecoder}. Some of Pillow's other readers start programs."""
DRAWN = ("WAV", "FLAC", "Ogg", "MP3", "TrueType", "OpenType")
"""Formats that are not pictures and that `media_drawing` draws."""
MOST_MEMORY_BYTES = 192 << 20
"""Memory limit: four bytes for each of the maximum number of pixels, plus Python and Pillow."""
_MOST_CPU_S = 5
_UNPRIVILEGED = 65534
"""UID of `nobody`; RLIMIT_NPROC has no effect on root."""
_FINE = 4
"""Maximum reduction by averaging, for each direction; beyond it, pixels are skipped."""


BLOCKS = {
    131: ("bc1", 4, 8), 137: ("bc3", 4, 16), 139: ("bc4", 4, 8), 141: ("bc5", 4, 16), 145: ("bc7", 4, 16), 147: ("etc2", 4, 8),
    151: ("etc2a8", 4, 16), 153: ("eacr", 4, 8), 155: ("eacrg", 4, 16), 157: ("astc", 4, 16), 161: ("astc", 5, 16),
    165: ("astc", 6, 16), 171: ("astc", 8, 16), 37: ("RGBA", 1, 4), 9: ("L", 1, 1),
}  # fmt: skip
"""{format of Vulkan: (function of texture2ddecoder, or mode of Pillow; side of a block; bytes of a block)}."""
SRGB = {132: 131, 138: 137, 146: 145, 148: 147, 152: 151, 158: 157, 162: 161, 166: 165, 172: 171, 43: 37, 15: 9}


def main(form: str) -> None:
    """Write the answer for one picture of a format."""
    try:
        answer, data = _decode_answer(form)
    except MemoryError:
        answer, data = {"why": f"decoding takes more than {MOST_MEMORY_BYTES >> 20} MiB of memory"}, b""
    except Exception as error:  # noqa: BLE001  # Pillow's readers raise any exception
        answer, data = {"why": _reason(error, form)}, b""
    os.write(1, json.dumps(answer).encode() + b"\n")
    while data:
        data = data[os.write(1, data) :]


def _decode_answer(form: str) -> tuple[dict[str, object], bytes]:
    from PIL import Image, ImageFile, ImageOps

    if form in DRAWN:
        return _draw(form)
    Image.preinit()
    plugin = f"PIL.{READERS[form]}ImagePlugin" if READERS[form] else "texture2ddecoder"
    for name in ("copy", "PIL.MpoImagePlugin", "PIL.TiffImagePlugin", plugin):
        try:
            import_module(name)  # modules that readers import lazily
        except ImportError:
            return {"why": f"a preview of {form} needs the Python package {name}, which is not installed"}, b""
    warnings.simplefilter("ignore")
    _drop_rights()
    Image.MAX_IMAGE_PIXELS = None  # the limit below is used instead
    with open(0, "rb", closefd=False) as stream:
        picture = Image.open(stream, formats=[form.upper()]) if READERS[form] else _decode_ktx2(stream.read())
        if picture.width * picture.height > MOST_PIXELS:
            return {"why": too_many(picture.width, picture.height)}, b""
        if isinstance(picture, ImageFile.ImageFile):
            picture.draft("RGB", (MOST_WIDE * _FINE, MOST_HIGH * _FINE))
        picture.load()
        small = _plain(_thin_out(picture))
    small = ImageOps.exif_transpose(small)
    small.thumbnail((MOST_WIDE, MOST_HIGH), Image.Resampling.BOX)
    return {"size": small.size}, small.tobytes()


def _draw(form: str) -> tuple[dict[str, object], bytes]:
    """Return the answer for a sound or a font."""
    media_drawing = import_module("aptui.tui.pictures.media_drawing")  # it imports this module
    media_drawing.import_modules(form)
    _drop_rights()
    with open(0, "rb", closefd=False) as stream:
        picture = media_drawing.DRAWERS[form](stream)
    return {"size": picture.size}, picture.tobytes()


def _decode_ktx2(data: bytes) -> Image.Image:
    """Return the first face or layer of a KTX2 file, in the largest level that is not much larger than the preview."""
    import texture2ddecoder
    from PIL import Image

    number, _, width, height = struct.unpack_from("<4I", data, 12)
    count, packing = struct.unpack_from("<II", data, 40)
    kind, side, size = BLOCKS.get(SRGB.get(number, number), ("", 0, 0))
    if not kind or packing:
        raise ValueError(f"format {number} of Vulkan, compression {packing}")
    level = 0
    while level + 1 < count and (width >> level > 2 * MOST_WIDE or height >> level > 2 * MOST_HIGH):
        level += 1
    width, height = max(1, width >> level), max(1, height >> level)
    if width * height > MOST_PIXELS:
        raise ValueError("too many pixels")
    (start,) = struct.unpack_from("<Q", data, 80 + 24 * level)
    length = -(-width // side) * -(-height // side) * size
    blocks = data[start : start + length]
    if len(blocks) < length:
        raise ValueError("truncated")
    if side == 1:
        return Image.frombytes(kind, (width, height), blocks)
    extra = (side, side) if kind == "astc" else ()
    pixels = getattr(texture2ddecoder, f"decode_{kind}")(blocks, width, height, *extra)
    return Image.frombytes("RGBA", (width, height), pixels, "raw", "BGRA")


def _reason(error: Exception, form: str) -> str:
    """Return the reason of an error of Pillow."""
    text = " ".join(str(error).split())[:200]
    if text.startswith("cannot identify"):
        return f"it is not a valid {form}"
    if "truncated" in text or "not enough" in text:
        return "its file ends too early"
    return f"it cannot be decoded: {text or type(error).__name__}"


def too_many(width: int, height: int) -> str:
    """Return why a picture of this size is not decoded."""
    return f"{width:,} × {height:,} are more pixels than a preview decodes ({MOST_PIXELS >> 20} Mi)"


def _drop_rights() -> None:
    os.nice(10)
    _drop_privileges()
    limits = {
        resource.RLIMIT_AS: MOST_MEMORY_BYTES, resource.RLIMIT_CPU: _MOST_CPU_S, resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0, resource.RLIMIT_NOFILE: 0, resource.RLIMIT_NPROC: 0,
    }  # fmt: skip
    for limit, most in limits.items():
        resource.setrlimit(limit, (most, most))


def _drop_privileges() -> None:
    """Change root to `nobody`: root can start processes and end those of other users. Stay root if there is no other user."""
    if os.geteuid() == 0:
        with suppress(OSError):
            os.setgroups([])
            os.setresgid(_UNPRIVILEGED, _UNPRIVILEGED, _UNPRIVILEGED)
            os.setresuid(_UNPRIVILEGED, _UNPRIVILEGED, _UNPRIVILEGED)


def _thin_out(picture: Image.Image) -> Image.Image:
    """Skip pixels before other calculations, which would need the memory of all pixels again."""
    from PIL import Image

    shrunk = max(picture.width / (MOST_WIDE * _FINE), picture.height / (MOST_HIGH * _FINE))
    if shrunk <= 1:
        return picture
    size = max(1, round(picture.width / shrunk)), max(1, round(picture.height / shrunk))
    return picture.resize(size, Image.Resampling.NEAREST)


def _plain(picture: Image.Image) -> Image.Image:
    """Return a picture as bytes of RGBA, from any kind of pixels."""
    if picture.mode.startswith(("I", "F")):
        lowest, highest = (0.0, 65535.0) if picture.mode.startswith("I;16") else _range(picture)
        scale = 255 / ((highest - lowest) or 1)
        picture = picture.convert("F").point(lambda value: value * scale - lowest * scale).convert("L")
    elif picture.mode in {"CMYK", "LAB", "HSV", "YCbCr"}:
        picture = picture.convert("RGB")
    return picture.convert("RGBA")


def _range(picture: Image.Image) -> tuple[float, float]:
    lowest, highest = picture.getextrema()
    assert isinstance(lowest, int | float)
    assert isinstance(highest, int | float)
    return lowest, highest


if __name__ == "__main__":
    main(sys.argv[1])
