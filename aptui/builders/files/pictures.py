"""Opens pictures of content safely: only listed formats, none whose reader runs a program, and a bounded number of pixels.

Pillow alone would try all that it knows: its EPS reader starts Ghostscript on the bytes of whoever made the file.

Tests: `tests/builders/test_params.py`.
"""

from __future__ import annotations

import warnings
from io import BytesIO
from typing import TYPE_CHECKING

from aptui.builders.params import one_line

if TYPE_CHECKING:
    from PIL import Image

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP")
"""What is told by its first bytes."""

TEXTURE_FORMATS = (*FORMATS, "DDS")
"""What a model's textures may be, besides TGA, which has no signature and is told by its name."""

MOST_MEGAPIXELS = 64
"""What a picture may have unless the project allows more: its parameter `max_megapixels`."""


class PictureError(Exception):
    """The picture cannot be used; the text is one line."""


def open_picture(
    data: bytes, name: str, formats: tuple[str, ...] = FORMATS, most_megapixels: float = MOST_MEGAPIXELS
) -> Image.Image:
    """Return `data` as a picture of a listed format that is not decoded yet.

    Args:
        data: all bytes of a file.
        name: of the file; one that ends with `.tga` may be a TGA as well.
        formats: as Pillow calls them.
        most_megapixels: more are refused before one is decoded.

    Raises:
        PictureError: it has too many pixels. PIL.UnidentifiedImageError and whatever Pillow raises: it is none of these formats.
    """
    from PIL import Image

    known = (*formats, "TGA") if name.lower().endswith(".tga") else formats
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the bound below is ours
            picture: Image.Image = Image.open(BytesIO(data), formats=known)
    except Image.DecompressionBombError as error:
        raise PictureError(f"too many pixels: {one_line(error)}") from None
    check_size(picture.size, most_megapixels)
    return picture


def check_size(size: tuple[int, int], most_megapixels: float = MOST_MEGAPIXELS) -> None:
    """Refuse a picture of more than so many million pixels.

    Raises:
        PictureError: it has more.
    """
    width, height = size
    if width * height > most_megapixels * 1_000_000:
        raise PictureError(f"too many pixels: {width}x{height} are more than {most_megapixels:g} million; see max_megapixels")
