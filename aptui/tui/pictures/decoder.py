"""The decoder: a process that reads a file from standard input and writes a small picture of it to standard output.

A sound becomes its waveform, a font some of its glyphs; `glb` draws models.

Files may be hostile, so they are not decoded in the screen's process. Before this process reads a byte of the file, it gives up
privileges: it cannot open files or connections, start processes or write files (root becomes `nobody`), and its memory and CPU time
are limited. If the process fails or is killed, the screen shows one sentence in place of the picture.

The answer is a line of JSON, `{"size": [width, height]}`, followed by the pixels, or `{"why": …}`.

Tests: `tests/tui/pictures/test_decoding.py`, `tests/tui/pictures/test_media_drawing.py`.
"""

from __future__ import annotations

import json
import os
import resource
import struct
import sys
import warnings
from array import array
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from io import BytesIO
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

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
    """Return (width, height) of a picture scaled to fit into `columns` × `rows` pixels; it is enlarged only by whole factors."""
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
"""Formats of sounds, fonts and models, for which the decoder draws a picture."""
_FONTS = ("TrueType", "OpenType")
MOST_MEMORY_BYTES = 192 << 20
"""Memory limit of the decoder (bytes): four bytes for each of `MOST_PIXELS` pixels, plus Python and Pillow."""
_MOST_CPU_S = 5
_UNPRIVILEGED = 65534
"""UID of `nobody`; RLIMIT_NPROC has no effect on root."""
_FINE = 4
"""Maximum factor by which averaging reduces width and height. If a picture must shrink more, pixels are skipped first."""
_MODEL_MEMORY_BYTES = 384 << 20
"""Memory limit of the decoder for models (bytes): NumPy, the vertices of the largest model that is drawn, and temporary arrays."""


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
            # Otherwise these modules would be imported during decoding, when this process can no longer open files.
            import_module(name)
        except ImportError:
            return {"why": f"a preview of {form} needs the Python package {name}, which is not installed"}, b""
    warnings.simplefilter("ignore")
    _drop_rights(_memory_bytes(view))
    Image.MAX_IMAGE_PIXELS = None  # `MOST_PIXELS` replaces Pillow's limit
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
    if view.form == "GLB":
        glb = import_module("aptui.tui.pictures.glb")  # imported at run time, because `glb` imports this module
        glb.import_modules()
        draw = glb.draw_model
    else:
        _import_drawing_modules(view.form)
        draw = _draw_font if view.form in _FONTS else _draw_sound
    _drop_rights(_memory_bytes(view))
    with open(0, "rb", closefd=False) as stream:
        picture = draw(stream, view)
    return {"size": picture.size}, picture.tobytes()


def _only_level(stream: BinaryIO, view: PictureView) -> BinaryIO:
    """Return the DDS file without the data before the wanted level and picture, because Pillow decodes only the first level."""
    data = stream.read()
    levels = dds_levels(data)
    wanted, head = levels[view.level], bytearray(data[: levels[0].start])
    head[DDS_SIZE] = struct.pack("<II", wanted.height, wanted.width)
    return BytesIO(head + data[wanted.start + view.number * wanted.step :])


def _decode_ktx2(data: bytes, view: PictureView) -> Image.Image:
    """Return a face or layer of a KTX2 file.

    The wanted level and the smaller levels are checked, the largest first. The first level that is at most twice as wide and high
    as the view is decoded. If all are larger, the smallest level is decoded.
    """
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
    """Return a sentence for the user that says why Pillow cannot decode the file."""
    text = " ".join(str(error).split())[:200]
    if text.startswith("cannot identify"):
        return f"the file is not a valid {form}"
    if "truncated" in text.lower() or "not enough" in text:
        return "the file ends too early"
    return f"the file cannot be decoded ({text or type(error).__name__})"


def too_many(width: int, height: int) -> str:
    """Return the message about a picture that has more than `MOST_PIXELS` pixels."""
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
    """Change from root to `nobody`. Stay root if the system refuses this.

    Root could start processes despite RLIMIT_NPROC, and could end processes of other users.
    """
    if os.geteuid() == 0:
        with suppress(OSError):
            os.setgroups([])
            os.setresgid(_UNPRIVILEGED, _UNPRIVILEGED, _UNPRIVILEGED)
            os.setresuid(_UNPRIVILEGED, _UNPRIVILEGED, _UNPRIVILEGED)


def _thin_out(picture: Image.Image, view: PictureView) -> Image.Image:
    """Reduce a large picture by skipping pixels. Smoother scaling would need memory for a second copy of all pixels."""
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


# ---------------------------------------------------------------------------------------------------------- sounds and fonts

_INK, _LOUD, _AXIS = (90, 150, 230, 255), (230, 90, 80, 255), (128, 128, 128, 120)
"""Colours of lines, of samples at full scale, and of the middle line; they are readable on a dark and on a light background."""
_CHANNELS, _CHANNEL_SHARE = 2, 4
"""Maximum number of channels that are drawn, and the width of a channel divided by its height."""
_SAMPLED = 1024
"""Maximum number of frames that are read for a column of the drawing: to read all of a long sound would take seconds."""
_FULL_SCALE = 32_767
_SAMPLE, _ROWS, _ROW_LENGTH = "AaBbGgQqRrSs&@?!01234567", 3, 8
_NO_CHARACTER = "\uffff"
_RANGES = ((0x21, 0x180), (0xE000, 0xE100), (0xF000, 0xF100))
"""Code points of Latin letters, and those that icon fonts use."""
_SMALLEST, _STEP = 8, 4
"""The smallest font size, and the difference between the font sizes that are tried (pixels)."""

Read = Callable[[int, int], "array[int]"]
"""Takes (first frame, number of frames); returns 16-bit samples: one sample of each channel for the first frame, and so on."""


def _import_drawing_modules(form: str) -> None:
    """Import modules that drawing needs, before files can no longer be opened."""
    import wave  # noqa: F401  # as the docstring says

    from PIL import Image, ImageDraw  # noqa: F401  # as above

    if form in _FONTS:
        from PIL import ImageFont, _imagingft  # noqa: F401  # as above
    with suppress(ImportError, OSError):
        import soundfile  # noqa: F401  # as above


def _draw_sound(stream: BinaryIO, view: PictureView) -> Image.Image:
    """Return the waveform: for each column the lowest and the highest sample; a sample at full scale is red."""
    from PIL import Image, ImageDraw

    frames, channels, read = _open_sound(stream)
    shown = min(channels, _CHANNELS)
    width = max(1, min(view.width, frames))
    channel_high = max(2, min(view.width // _CHANNEL_SHARE, view.height // shown))
    picture = Image.new("RGBA", (width, channel_high * shown))
    draw = ImageDraw.Draw(picture)
    for channel in range(shown):
        middle = channel_high * channel + channel_high // 2
        draw.line((0, middle, width, middle), _AXIS)
    for column in range(width if frames else 0):
        start, end = frames * column // width, frames * (column + 1) // width
        samples = read(start, min(end - start, _SAMPLED))
        for channel in range(shown):
            mine = samples[channel::channels]
            if mine:
                middle, half = channel_high * channel + channel_high // 2, channel_high // 2 - 1
                low, high = (round(value * half / _FULL_SCALE) for value in (min(mine), max(mine)))
                is_loud = max(mine) >= _FULL_SCALE or min(mine) <= -_FULL_SCALE
                draw.line((column, middle - high, column, middle - low), _LOUD if is_loud else _INK)
    return picture


def _open_sound(stream: BinaryIO) -> tuple[int, int, Read]:
    """Return the number of frames and of channels, and a function that reads samples."""
    try:
        import soundfile
    except (ImportError, OSError):
        return _open_wave(stream)
    sound = soundfile.SoundFile(stream)

    def read(start: int, count: int) -> array[int]:
        sound.seek(start)
        return array("h", bytes(sound.buffer_read(count, dtype="int16")))

    return sound.frames, sound.channels, read


def _open_wave(stream: BinaryIO) -> tuple[int, int, Read]:
    import wave

    sound = wave.open(stream, "rb")  # noqa: SIM115  # the caller closes the stream
    size = sound.getsampwidth()

    def read(start: int, count: int) -> array[int]:
        sound.setpos(start)
        data = sound.readframes(count)
        if size == 1:
            return array("h", [(value - 128) * 256 for value in data])
        # A sample is reduced to its two high bytes, because 16 bits are enough for a drawing.
        return array("h", b"".join(data[at + size - 2 : at + size] for at in range(0, len(data) - size + 1, size)))

    return sound.getnframes(), sound.getnchannels(), read


def _draw_font(stream: BinaryIO, view: PictureView) -> Image.Image:
    """Draw up to 24 characters of a font in up to three rows, in the largest size that fits."""
    from PIL import Image, ImageDraw, ImageFont

    data = stream.read()

    def load(size: int) -> Any:
        return ImageFont.truetype(BytesIO(data), size, layout_engine=ImageFont.Layout.BASIC)

    shown = _list_characters(load(_SMALLEST * 2))
    rows = [shown[at : at + _ROW_LENGTH] for at in range(0, max(1, len(shown)), _ROW_LENGTH)]
    high = max(1, view.height // len(rows))
    for size in range(max(high, _SMALLEST), _SMALLEST - 1, -_STEP):
        font = load(size)
        if max(map(font.getlength, rows)) <= view.width and sum(font.getmetrics()) <= high:
            break
    width = min(view.width, max(1, *(round(font.getlength(row)) for row in rows), 1))
    picture = Image.new("RGBA", (width, view.height))
    draw = ImageDraw.Draw(picture)
    for at, row in enumerate(rows):
        draw.text((0, high * at), row, fill=_INK, font=font)
    return picture


def _list_characters(font: Any) -> str:
    """Return up to 24 characters that the font has: letters and digits first, then other characters (also of icon fonts)."""
    missing = bytes(font.getmask(_NO_CHARACTER))
    others = (chr(code) for start, end in _RANGES for code in range(start, end))
    found = (each for each in dict.fromkeys((*_SAMPLE, *others)) if bytes(mask := font.getmask(each)) != missing and any(mask))
    return "".join(islice(found, _ROW_LENGTH * _ROWS)) or "A"


if __name__ == "__main__":
    main(PictureView(sys.argv[1], *map(int, sys.argv[2:])))
