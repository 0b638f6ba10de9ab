"""The process that decodes one picture: its file is standard input, its small pixels are standard output.

What is decoded may be hostile, so this is no part of the screen. Before a byte of the file is read, it gives away what it does not
need: it can open no file and no connection, start nothing (a superuser becomes nobody), write no file, and takes neither more
memory nor more time than a preview is worth. However it ends, its parent says one sentence.

Answers are a line of JSON, `{"size": [width, height]}` with the pixels behind it, or `{"why": …}`.

Tests: `tests/tui/pictures/test_decoding.py`.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from PIL import Image


# A decoded picture, small enough for a screen, and which of its pixels a room of cells has place for.

MOST_WIDE, MOST_HIGH = 320, 200
"""A picture is made so small before it comes to the screen: a pixel for each half of a cell of a large terminal."""
CHANNELS = 4


class Pixels(Struct, frozen=True):
    """Rows of red, green, blue and alpha, a byte each."""

    width: int
    height: int
    data: bytes


def fit_size(width: int, height: int, columns: int, rows: int) -> tuple[int, int]:
    """Return how large a picture is drawn in `columns` × `rows` pixels: with its aspect, enlarged by whole numbers alone."""
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
    "PSD": "Psd",
}  # fmt: skip
"""{format: Pillow's module for it}. What is not here is not tried: some of Pillow's readers start programs."""
MOST_MEMORY_BYTES = 192 << 20
"""Four bytes for each of the most pixels, Python, Pillow, and little more."""
_MOST_CPU_S = 5
_UNPRIVILEGED = 65534
"""The user of whom nothing is; limits on processes bind no superuser."""
_FINE = 4
"""So many pixels for one that is shown are averaged; of more, some are left out."""


def main(form: str) -> None:
    """Answer for one picture of a format."""
    try:
        answer, data = _decode_answer(form)
    except MemoryError:
        answer, data = {"why": f"decoding takes more than {MOST_MEMORY_BYTES >> 20} MiB of memory"}, b""
    except Exception as error:  # noqa: BLE001  # Pillow's readers raise what they like
        answer, data = {"why": _reason(error, form)}, b""
    os.write(1, json.dumps(answer).encode() + b"\n")
    while data:
        data = data[os.write(1, data) :]


def _decode_answer(form: str) -> tuple[dict[str, object], bytes]:
    from PIL import Image, ImageOps

    Image.preinit()
    for name in ("copy", "PIL.MpoImagePlugin", "PIL.TiffImagePlugin", f"PIL.{READERS[form]}ImagePlugin"):
        import_module(name)  # what readers import when they read
    warnings.simplefilter("ignore")
    _give_away()
    Image.MAX_IMAGE_PIXELS = None  # the bound below is ours
    with open(0, "rb", closefd=False) as stream:
        picture = Image.open(stream, formats=[form.upper()])
        if picture.width * picture.height > MOST_PIXELS:
            return {"why": too_many(picture.width, picture.height)}, b""
        picture.draft("RGB", (MOST_WIDE * _FINE, MOST_HIGH * _FINE))
        picture.load()
        small = _plain(_thin_out(picture))
    small = ImageOps.exif_transpose(small)
    small.thumbnail((MOST_WIDE, MOST_HIGH), Image.Resampling.BOX)
    return {"size": small.size}, small.tobytes()


def _reason(error: Exception, form: str) -> str:
    """Return in words what Pillow found wrong."""
    text = " ".join(str(error).split())[:200]
    if text.startswith("cannot identify"):
        return f"it is no {form}, or a broken one"
    if "truncated" in text or "not enough" in text:
        return "its file ends too early"
    return f"it cannot be decoded: {text or type(error).__name__}"


def too_many(width: int, height: int) -> str:
    """Return why a picture of this size is not decoded."""
    return f"{width:,} × {height:,} are more pixels than a preview decodes ({MOST_PIXELS >> 20} Mi)"


def _give_away() -> None:
    os.nice(10)
    _drop_privileges()
    limits = {
        resource.RLIMIT_AS: MOST_MEMORY_BYTES, resource.RLIMIT_CPU: _MOST_CPU_S, resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0, resource.RLIMIT_NOFILE: 0, resource.RLIMIT_NPROC: 0,
    }  # fmt: skip
    for limit, most in limits.items():
        resource.setrlimit(limit, (most, most))


def _drop_privileges() -> None:
    """Be no superuser: one may start what it likes, and end what others run. Where there is no other user it stays one."""
    if os.geteuid() == 0:
        with suppress(OSError):
            os.setgroups([])
            os.setresgid(_UNPRIVILEGED, _UNPRIVILEGED, _UNPRIVILEGED)
            os.setresuid(_UNPRIVILEGED, _UNPRIVILEGED, _UNPRIVILEGED)


def _thin_out(picture: Image.Image) -> Image.Image:
    """Leave pixels out before anything is computed: what is computed of all of them takes their memory again."""
    from PIL import Image

    shrunk = max(picture.width / (MOST_WIDE * _FINE), picture.height / (MOST_HIGH * _FINE))
    if shrunk <= 1:
        return picture
    size = max(1, round(picture.width / shrunk)), max(1, round(picture.height / shrunk))
    return picture.resize(size, Image.Resampling.NEAREST)


def _plain(picture: Image.Image) -> Image.Image:
    """Return a picture of bytes of colour and alpha, from whichever kind of pixels."""
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
