"""Draws a sound as its waveform and a font as some of its glyphs, in the process of `decoder`.

Tests: `tests/tui/pictures/test_media_drawing.py`.
"""

from __future__ import annotations

import wave
from array import array
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO

from aptui.tui.pictures.decoder import PictureView

if TYPE_CHECKING:
    from PIL import Image

_INK, _LOUD, _AXIS = (90, 150, 230, 255), (230, 90, 80, 255), (128, 128, 128, 120)
"""Colours that are readable on a dark and on a light ground: a line, a sample at full scale, the middle."""
_CHANNELS, _CHANNEL_SHARE = 2, 4
"""Maximum number of channels that are drawn, and the width of a channel divided by its height."""
_SAMPLED = 1024
"""Maximum number of samples of a column that are read: a long sound would need seconds."""
_FULL_SCALE = 32_767
_SAMPLE, _ROWS, _ROW_LENGTH = "AaBbGgQqRrSs&@?!01234567", 3, 8
_NO_CHARACTER = "\uffff"
_RANGES = ((0x21, 0x180), (0xE000, 0xE100), (0xF000, 0xF100))
"""Code points of Latin letters, and those that icon fonts use."""
_SMALLEST, _STEP = 8, 4
"""The smallest font size, and the distance of the font sizes that are tried (pixels)."""

Read = Callable[[int, int], "array[int]"]
"""Reads (first frame, number of frames); returns 16-bit samples, channel by channel."""


def import_modules(form: str) -> None:
    """Import modules that drawing needs, before files can no longer be opened."""
    from PIL import Image, ImageDraw  # noqa: F401  # as the docstring says

    if form in FONTS:
        from PIL import ImageFont, _imagingft  # noqa: F401  # as above
    with suppress(ImportError, OSError):
        import soundfile  # noqa: F401  # as above


def draw_sound(stream: BinaryIO, view: PictureView) -> Image.Image:
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


def draw_font(stream: BinaryIO, view: PictureView) -> Image.Image:
    """Return three rows of glyphs, as large as fits."""
    import io

    from PIL import Image, ImageDraw, ImageFont

    data = stream.read()

    def load(size: int) -> Any:
        return ImageFont.truetype(io.BytesIO(data), size, layout_engine=ImageFont.Layout.BASIC)

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
    """Return up to 24 characters that the font has: letters and digits first, then others, also of icon fonts."""
    missing = bytes(font.getmask(_NO_CHARACTER))
    others = (chr(code) for start, end in _RANGES for code in range(start, end))
    found = (each for each in dict.fromkeys((*_SAMPLE, *others)) if bytes(mask := font.getmask(each)) != missing and any(mask))
    return "".join(islice(found, _ROW_LENGTH * _ROWS)) or "A"


FONTS = ("TrueType", "OpenType")
DRAWERS = {**dict.fromkeys(("WAV", "FLAC", "Ogg", "MP3"), draw_sound), **dict.fromkeys(FONTS, draw_font)}
"""{format: function that draws it}."""
