"""Open and decode the pictures of a project safely.

Only listed formats are accepted, no reader runs a program, and the number of pixels is limited.

Pillow alone would try every format: its EPS reader starts Ghostscript on untrusted bytes. Pillow's messages name Python variables
and byte strings, so this module replaces all of them.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING

from aptui.builders.common import SourceError
from aptui.builders.files.kinds import describe_kind

if TYPE_CHECKING:
    from PIL import Image, ImageFile

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP")
"""Formats (Pillow's names) that are recognised by their first bytes."""

TEXTURE_FORMATS = (*FORMATS, "DDS")
"""Formats of a model's textures, besides TGA, which has no signature and is recognised by its name."""

MOST_MEGAPIXELS = 64
"""Default maximum size of a picture (million pixels); the parameter `max_megapixels` overrides it."""

NEEDS_MEMORY = "the picture needs more memory; raise memory_limit, or lower max_megapixels"
"""Error of a job that has too little memory for a picture."""

MOST_JPEG_SCANS = 500
"""Maximum number of scans of a progressive JPEG. Each scan is a pass over all pixels; encoders write about ten."""

MOST_COUNTED_FRAMES = 100
"""Maximum number of TIFF frames that are counted, because reading each frame takes a while."""

MOST_COUNTED_GIF_BYTES = 4 << 20
"""Maximum size (bytes) of a GIF whose frames are counted: a frame can be as small as 20 bytes, so a larger file may have very many
frames."""

_NAMES = {"WEBP": "WebP", "MPO": "JPEG"}
_TIFF_COMPRESSIONS = {
    1: "no", 2: "CCITT", 3: "CCITT", 4: "CCITT", 5: "LZW", 6: "JPEG", 7: "JPEG", 8: "Deflate", 32773: "PackBits", 32946: "Deflate",
    34925: "LZMA", 50000: "Zstandard",
}  # fmt: skip
"""Numbers (in the file) of the TIFF compressions that Pillow's wheels decode."""
_TIFF_COMPRESSION, _TIFF_TILE_WIDTH, _TIFF_TILE_HEIGHT = 259, 322, 323

_ENDS_EARLY = re.compile(
    r"truncat|not enough|unexpected end|requires a buffer|premature|eof|no more|incomplete|at least \d+ bytes|read failed"
    r"|short read|buffer is not large enough|buffer overrun",
    re.IGNORECASE,
)
_UNSUPPORTED = re.compile(
    r"unsupported|not supported|unknown pixel mode|unknown data organi|bitfields|pixel depth|unknown compression|not yet|unhandled"
    r"|unavailable|not available|not installed|samples per pixel|cannot handle",
    re.IGNORECASE,
)
_REMARKS = (
    (re.compile(r"truncated|tag \d+|expecting to read|corrupt|metadata|exif", re.IGNORECASE), "a part of the metadata is damaged"),
    (re.compile(r"palette", re.IGNORECASE), "the palette is incomplete"),
    (re.compile(r"animat|apng|frame", re.IGNORECASE), "the animation is damaged; only its first picture is used"),
    (re.compile(r"mpo", re.IGNORECASE), "the file has several pictures; only the first is used"),
)


class PictureError(SourceError):
    """The picture cannot be used."""


def open_picture(
    data: bytes, name: str, formats: tuple[str, ...] = FORMATS, most_megapixels: float = MOST_MEGAPIXELS
) -> ImageFile.ImageFile:
    """Return an opened picture that is not decoded yet.

    Args:
        name: name of the file. If it ends with `.tga`, the format TGA is also accepted.
        formats: Pillow's names of the accepted formats.
        most_megapixels: a larger picture is rejected before it is decoded.

    Raises:
        PictureError: the picture has too many pixels, is damaged, or has another format.
    """
    from PIL import Image, UnidentifiedImageError

    known = (*formats, "TGA") if name.lower().endswith(".tga") else formats
    with _pixel_limit(most_megapixels):
        try:
            picture = Image.open(BytesIO(data), formats=known)
        except UnidentifiedImageError:
            raise PictureError(_why_unidentified(data, known)) from None
        except MemoryError:
            raise
        except Image.DecompressionBombError as error:
            count = re.search(r"\d+", str(error))
            raise PictureError(_too_many(f"{int(count[0]) / 1e6:.0f} million" if count else "they", most_megapixels)) from None
        except Exception as error:  # noqa: BLE001 -- Pillow's readers raise whatever damaged bytes lead them to (struct, Index, Key …)
            raise PictureError(_reason(error, _format_of(data, known), data)) from None
    check_size(picture.size, most_megapixels)
    _check_work(picture, data, most_megapixels)
    return picture


def load_picture(picture: Image.Image, most_megapixels: float = MOST_MEGAPIXELS) -> None:
    """Decode the first frame of an opened picture.

    Raises:
        PictureError: its pixels are damaged, of an unsupported kind, or too many.
    """
    kind = picture.format or ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            picture.seek(0)
            check_size(picture.size, most_megapixels)
            picture.load()
    except (PictureError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 -- see open_picture
        compression = getattr(picture, "tag_v2", {}).get(_TIFF_COMPRESSION, 1)
        if compression not in _TIFF_COMPRESSIONS:
            raise PictureError(_describe_unsupported(kind)) from None
        raise PictureError(_reason(error, kind)) from None


def check_size(size: tuple[int, int], most_megapixels: float = MOST_MEGAPIXELS) -> None:
    """Refuse a picture of more than `most_megapixels` million pixels.

    Raises:
        PictureError: the picture has more pixels.
    """
    width, height = size
    if width * height > most_megapixels * 1_000_000:
        raise PictureError(_too_many(f"{width}x{height}", most_megapixels))


def count_frames(data: bytes, picture: Image.Image) -> int:
    """Return the number of frames of an opened picture; 0 if there are several frames and counting them would take long.

    The pictures of an MPO are views of one scene, so they count as one.
    """
    from PIL import Image

    if picture.format in ("WEBP", "PNG"):
        return int(getattr(picture, "n_frames", 1))
    if picture.format not in ("GIF", "TIFF"):
        return 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        number = 0
        try:
            # The picture is opened a second time, because counting the frames moves a reader to another frame.
            other: Image.Image = Image.open(BytesIO(data), formats=(picture.format,))
            if not getattr(other, "is_animated", False):
                return 1
            if other.format == "GIF":
                return int(getattr(other, "n_frames", 1)) if len(data) <= MOST_COUNTED_GIF_BYTES else 0
            for number in range(1, MOST_COUNTED_FRAMES):
                other.seek(number)
        except EOFError:
            return number
        except Exception:  # noqa: BLE001 -- a damaged later frame does not prevent the use of the first frame
            return 0
    return 0


def describe_remark(text: str) -> str:
    """Return aptui's text for a warning of Pillow."""
    return next((words for pattern, words in _REMARKS if pattern.search(text)), "a part of the file does not conform to its format")


@contextmanager
def _pixel_limit(most_megapixels: float) -> Iterator[None]:
    """Set Pillow's own pixel limit while Pillow reads headers.

    The previous limit is restored, because other code of this process relies on it.
    """
    from PIL import Image

    usual, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, max(1, int(most_megapixels * 1_000_000))
    try:
        with warnings.catch_warnings():
            # Pillow's warning is ignored, because `check_size` reports a picture with too many pixels.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            yield
    finally:
        Image.MAX_IMAGE_PIXELS = usual


def _too_many(what: str, most_megapixels: float) -> str:
    return f"the picture is too large: {what} are more than {most_megapixels:g} million pixels, which is the limit (max_megapixels)"


def _check_work(picture: Image.Image, data: bytes, most_megapixels: float) -> None:
    """Refuse pictures that take far more time or memory to decode than their size suggests."""
    if picture.format in ("JPEG", "MPO") and picture.info.get("progressive") and data.count(b"\xff\xda") > MOST_JPEG_SCANS:
        raise PictureError(f"the JPEG would take too long to decode: it has more than {MOST_JPEG_SCANS} scans; save it again")
    tags = getattr(picture, "tag_v2", {})
    tile = tags.get(_TIFF_TILE_WIDTH, 0), tags.get(_TIFF_TILE_HEIGHT, 0)
    if all(isinstance(side, int) for side in tile) and tile[0] * tile[1] > most_megapixels * 1_000_000:
        raise PictureError("damaged TIFF: its tiles are larger than the largest allowed picture")


def _format_of(data: bytes, known: tuple[str, ...]) -> str:
    """Return Pillow's name of the format of `data` by its first bytes, "" if it is not one of `known`."""
    kind = describe_kind(data).split()
    name = kind[1].upper() if len(kind) > 1 else ""
    name = "BMP" if data.startswith(b"BM") else name
    return name if name in known else ""


def _why_unidentified(data: bytes, known: tuple[str, ...]) -> str:
    """Describe why no reader opened the file: the error that Pillow hid, or the real kind of the file."""
    from PIL import Image

    if not data:
        return "the file is empty"
    if kind := _format_of(data, known):
        try:
            Image.OPEN[kind][0](BytesIO(data), "")
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 -- see open_picture
            return _reason(error, kind, data)
        return f"damaged {_NAMES.get(kind, kind)}: the header cannot be read; save the picture again"
    if b"PNG" in data[:5]:
        return "damaged PNG: a program changed its line ends as if the file were text; get the original file"
    names = ", ".join(_NAMES.get(each, each) for each in known)
    if what := describe_kind(data):
        return f"the file is {what}; the supported formats of pictures are {names}"
    if "TGA" in known:
        return "damaged TGA: the header cannot be read; save the picture again"
    return f"the file is not a picture in a supported format; the supported formats are {names}"


def _reason(error: Exception, kind: str, data: bytes = b"") -> str:
    """Return why a reader failed, without the reader's own message; an error that no pattern matches is reported as damage."""
    text = str(error)
    name = _NAMES.get(kind, kind) or "picture"
    cause = error.__cause__ or error  # Pillow's readers raise a SyntaxError whose `__cause__` is the real error
    if isinstance(cause, EOFError) or _ENDS_EARLY.search(text):
        return f"damaged {name}: the file ends too early"
    if _UNSUPPORTED.search(text) or (kind == "TIFF" and isinstance(cause, KeyError)) or (kind == "BMP" and _is_odd_bmp(data)):
        return _describe_unsupported(kind)
    return f"damaged {name}: the header or the pixels cannot be read; save the picture again, or get the original file"


def _is_odd_bmp(data: bytes) -> bool:
    """Return whether a BMP holds a JPEG or PNG, is packed as in OS/2, or has an unusual number of bits."""
    if len(data) < 34:
        return False
    header_bytes, bits, compression = (int.from_bytes(data[at:end], "little") for at, end in ((14, 18), (28, 30), (30, 34)))
    is_os2 = header_bytes in (16, 64)
    return header_bytes >= 16 and (bits not in (1, 4, 8, 16, 24, 32) or compression > 3 or (is_os2 and compression > 2))


def _describe_unsupported(kind: str) -> str:
    name = _NAMES.get(kind, kind) or "picture"
    return f"unsupported {name}: this variant of the format cannot be read; save the picture as PNG"
