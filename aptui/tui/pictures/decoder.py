"""The process that reads a picture from standard input and writes a small one to standard output; and the type of decoded pictures.

Files may be hostile, so they are not decoded in the screen's process. Before this process reads a byte of the file, it gives up
privileges: it cannot open files or connections, start processes or write files (root becomes `nobody`), and its memory and CPU time
are limited. If the process fails or is killed, the screen shows one sentence in place of the picture.

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
from io import BytesIO
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from msgspec import Struct

from aptui.tui.pictures.texture_levels import BLOCKS, DDS_SIZE, SRGB, dds_levels, ktx2_levels

if TYPE_CHECKING:
    from PIL import Image


MOST_WIDE, MOST_HIGH = 320, 200
"""Maximum width and height of a picture that is drawn with cells (pixels): a cell of a large terminal shows two pixels."""
CHANNELS = 4


class Pixels(Struct, frozen=True):
    """A decoded picture: rows of red, green, blue and alpha, a byte each; `is_drawing` = lines on transparent ground."""

    width: int
    height: int
    data: bytes
    is_drawing: bool = False


class PictureView(NamedTuple):
    """The wanted picture of a file: the format of the file, the level of a texture, and the maximum size (pixels).

    `number` is the number of the picture among the layers and faces of a texture, from 0.
    """

    form: str
    level: int = 0
    width: int = MOST_WIDE
    height: int = MOST_HIGH
    number: int = 0


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
DRAWN = ("WAV", "FLAC", "Ogg", "MP3", "TrueType", "OpenType", "GLB")
"""Formats that are not pictures: `media_drawing` draws sounds and fonts, `glb` draws models."""
MOST_MEMORY_BYTES = 192 << 20
"""Memory limit: four bytes for each of the maximum number of pixels, plus Python and Pillow."""
_MOST_CPU_S = 5
_UNPRIVILEGED = 65534
"""UID of `nobody`; RLIMIT_NPROC has no effect on root."""
_FINE = 4
"""Maximum factor by which width and height are reduced by averaging; of a larger picture, pixels are skipped first."""
_MODEL_MEMORY_BYTES = 384 << 20
"""Memory limit for models: NumPy, the vertices of the largest model that is drawn, and temporary arrays."""


def main(view: PictureView) -> None:
    """Write the answer for one picture."""
    try:
        answer, data = _decode_answer(view)
    except MemoryError:
        answer, data = {"why": f"decoding the picture takes more than {_memory_bytes(view) >> 20} MiB of memory"}, b""
    except Exception as error:  # noqa: BLE001  # Pillow's readers raise any exception
        answer, data = {"why": _reason(error, view.form)}, b""
    os.write(1, json.dumps(answer).encode() + b"\n")
    while data:
        data = data[os.write(1, data) :]


def _memory_bytes(view: PictureView) -> int:
    return _MODEL_MEMORY_BYTES if view.form == "GLB" else MOST_MEMORY_BYTES


def _decode_answer(view: PictureView) -> tuple[dict[str, object], bytes]:
    from PIL import Image, ImageFile, ImageOps

    form = view.form
    if form in DRAWN:
        return _draw(view)
    Image.preinit()
    plugin = f"PIL.{READERS[form]}ImagePlugin" if READERS[form] else "texture2ddecoder"
    for name in ("copy", "PIL.MpoImagePlugin", "PIL.TiffImagePlugin", plugin):
        try:
            # Imported now, because the readers would import these modules after this process has given up its privileges.
            import_module(name)
        except ImportError:
            return {"why": f"a preview of {form} needs the Python package {name}, which is not installed"}, b""
    warnings.simplefilter("ignore")
    _drop_rights(_memory_bytes(view))
    Image.MAX_IMAGE_PIXELS = None  # Pillow's limit is turned off, because the limit below replaces it
    with open(0, "rb", closefd=False) as stream:
        if READERS[form]:
            is_first = not (view.level or view.number)
            picture: Image.Image = Image.open(stream if is_first else _only_level(stream, view), formats=[form.upper()])
        else:
            picture = _decode_ktx2(stream.read(), view)
        if picture.width * picture.height > MOST_PIXELS:
            return {"why": too_many(picture.width, picture.height)}, b""
        if isinstance(picture, ImageFile.ImageFile):
            picture.draft("RGB", (view.width * _FINE, view.height * _FINE))
        picture.load()
        small = _plain(_thin_out(picture, view))
    small = ImageOps.exif_transpose(small)
    small.thumbnail((view.width, view.height), Image.Resampling.BOX)
    return {"size": small.size}, small.tobytes()


def _draw(view: PictureView) -> tuple[dict[str, object], bytes]:
    """Return the answer for a sound, a font or a model."""
    # The module is imported here, because it imports this module.
    drawing = import_module(f"aptui.tui.pictures.{'glb' if view.form == 'GLB' else 'media_drawing'}")
    drawing.import_modules(view.form)
    _drop_rights(_memory_bytes(view))
    with open(0, "rb", closefd=False) as stream:
        picture = drawing.DRAWERS[view.form](stream, view)
    return {"size": picture.size}, picture.tobytes()


def _only_level(stream: BinaryIO, view: PictureView) -> BinaryIO:
    """Return the DDS file without the data before the wanted level and picture, because Pillow decodes only the first level."""
    data = stream.read()
    levels = dds_levels(data)
    wanted, head = levels[view.level], bytearray(data[: levels[0].start])
    head[DDS_SIZE] = struct.pack("<II", wanted.height, wanted.width)
    return BytesIO(head + data[wanted.start + view.number * wanted.step :])


def _decode_ktx2(data: bytes, view: PictureView) -> Image.Image:
    """Return a face or layer of a level of a KTX2 file, or of a smaller level that is not smaller than the view."""
    import texture2ddecoder
    from PIL import Image

    (number,) = struct.unpack_from("<I", data, 12)
    (packing,) = struct.unpack_from("<I", data, 44)
    kind, side, size = BLOCKS.get(SRGB.get(number, number), ("", 0, 0))
    if not kind or packing:
        raise ValueError(f"Vulkan format {number} with compression {packing} is not supported")
    levels = ktx2_levels(data)[view.level :]
    fitting = (each for each in levels if each.width <= 2 * view.width and each.height <= 2 * view.height)
    width, height, start, _, step = next(fitting, levels[-1])
    start += view.number * step
    if width * height > MOST_PIXELS:
        raise ValueError("the picture has too many pixels")
    length = -(-width // side) * -(-height // side) * size
    blocks = data[start : start + length]
    if len(blocks) < length:
        raise ValueError("the file is truncated")
    if side == 1:
        return Image.frombytes(kind, (width, height), blocks)
    extra = (side, side) if kind == "astc" else ()
    pixels = getattr(texture2ddecoder, f"decode_{kind}")(blocks, width, height, *extra)
    return Image.frombytes("RGBA", (width, height), pixels, "raw", "BGRA")


def _reason(error: Exception, form: str) -> str:
    """Return the reason of an error of Pillow."""
    text = " ".join(str(error).split())[:200]
    if text.startswith("cannot identify"):
        return f"the file is not a valid {form}"
    if "truncated" in text.lower() or "not enough" in text:
        return "the file ends too early"
    return f"the file cannot be decoded ({text or type(error).__name__})"


def too_many(width: int, height: int) -> str:
    """Return why a picture of this size is not decoded."""
    return f"{width:,} × {height:,} pixels are too many for a preview; the limit is {MOST_PIXELS:,} pixels"


def _drop_rights(most_bytes: int) -> None:
    os.nice(10)
    _drop_privileges()
    limits = {
        resource.RLIMIT_AS: most_bytes, resource.RLIMIT_CPU: _MOST_CPU_S, resource.RLIMIT_CORE: 0,
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


def _thin_out(picture: Image.Image, view: PictureView) -> Image.Image:
    """Skip pixels before other calculations, which would need the memory of all pixels again."""
    from PIL import Image

    shrunk = max(picture.width / (view.width * _FINE), picture.height / (view.height * _FINE))
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
    main(PictureView(sys.argv[1], *map(int, sys.argv[2:])))
