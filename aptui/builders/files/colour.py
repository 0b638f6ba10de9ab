"""Convert pictures from the colour space of their ICC profile to sRGB, the colour space of products, with Pillow's Little CMS.

Tests: `tests/builders/files/test_colour.py`.
"""

from __future__ import annotations

import itertools
import re
from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL import Image

_SAME_LEVELS = 2
"""Maximum difference (of 255) between sRGB and a profile that counts as sRGB, because vendors round their profiles differently."""

_MODE_SPACES = {"L": "GRAY", "LA": "GRAY", "RGB": "RGB", "RGBA": "RGB", "CMYK": "CMYK"}
_SPACE_WORDS = {"GRAY": "grey", "RGB": "RGB", "CMYK": "CMYK", "Lab": "Lab"}
_DAMAGED = "the damaged colour profile is ignored"
_CACHED_PROFILES = 8
"""Number of profiles whose comparison with sRGB is cached: the pictures of a project share a few profiles."""


def convert_to_srgb(picture: Image.Image, profile: bytes) -> tuple[Image.Image, str, str]:
    """Return a picture of mode L, LA, RGB, RGBA or CMYK in sRGB.

    Args:
        picture: returned unchanged if the profile is sRGB or does not fit the picture's mode.
        profile: bytes of its ICC profile.

    Returns:
        The picture, a note of the conversion ("" if nothing was converted), and a warning ("" if nothing is wrong).
    """
    from PIL import Image, ImageCms

    source = _read_profile(profile)
    if source is None:
        return picture, "", _DAMAGED
    space = source.profile.xcolor_space.strip()
    needed = _MODE_SPACES[picture.mode]
    try:
        if space != needed:
            return picture, "", "" if space == "RGB" and is_srgb(profile) else _unfitting(source, space, needed)
        if space == "RGB" and is_srgb(profile):
            return picture, "", ""
        if space == "GRAY":
            ramp = _transform(Image.frombytes("L", (256, 1), bytes(range(256))), source).getchannel("G").tobytes()
            grey, *alpha = picture.split()
            converted = Image.merge(picture.mode, (grey.point(list(ramp)), *alpha))
        else:
            converted = _transform(picture, source, "RGBA" if picture.mode == "RGBA" else "RGB")
    except (ImageCms.PyCMSError, OSError, ValueError):
        return picture, "", _DAMAGED
    return converted, f"the colours were converted from the profile '{_name(source)}' to sRGB", ""


def describe_foreign(profile: bytes, *, is_grey: bool) -> str:
    """Return the warning for a profile that is not applied to a picture with 16 bits a channel, "" if it is sRGB."""
    source = _read_profile(profile)
    if source is None:
        return _DAMAGED
    space = source.profile.xcolor_space.strip()
    if (space == "RGB" and is_srgb(profile)) or (is_grey and space == "GRAY" and is_srgb(profile, "L")):
        return ""
    return (
        f"the colour profile '{_name(source)}' is ignored, because the picture has 16 bits per channel; save it in "
        "sRGB, or with 8 bits"
    )


@lru_cache(maxsize=_CACHED_PROFILES)
def is_srgb(profile: bytes, mode: str = "RGB") -> bool:
    """Return whether a profile for pictures of `mode` (RGB or L) gives the same colours as sRGB."""
    from PIL import Image, ImageCms

    steps = (0, 16, 48, 96, 128, 160, 192, 224, 255) if mode == "RGB" else range(256)
    colours = bytes(value for colour in itertools.product(steps, repeat=len(mode)) for value in colour)
    picture = Image.frombytes(mode, (len(colours) // len(mode), 1), colours)
    source = _read_profile(profile)
    try:
        shown = source and _transform(picture, source).tobytes()
    except (ImageCms.PyCMSError, OSError, ValueError):
        return False
    expected = picture.convert("RGB").tobytes()
    return bool(shown) and all(abs(one - other) <= _SAME_LEVELS for one, other in zip(expected, shown, strict=True))


def _read_profile(profile: bytes) -> Any:
    from PIL import ImageCms

    try:
        return ImageCms.ImageCmsProfile(BytesIO(profile))
    except (ImageCms.PyCMSError, OSError, ValueError):
        return None


def _transform(picture: Image.Image, source: Any, mode: str = "RGB") -> Image.Image:
    """Return colours of `source` as sRGB: relative colorimetric with black point compensation, as editors do by default."""
    from PIL import ImageCms

    converted = ImageCms.profileToProfile(
        picture,
        source,
        ImageCms.createProfile("sRGB"),
        renderingIntent=ImageCms.Intent.RELATIVE_COLORIMETRIC,
        outputMode=mode,
        flags=ImageCms.Flags.BLACKPOINTCOMPENSATION,
    )
    assert converted is not None
    return converted


def _unfitting(source: Any, space: str, needed: str) -> str:
    words = _SPACE_WORDS.get(space, "another kind of")
    return (
        f"the colour profile '{_name(source)}' is ignored, because it is for {words} pictures and this picture is "
        f"{_SPACE_WORDS[needed]}"
    )


def _name(source: Any) -> str:
    """Return the name of a profile as one short line of printable text."""
    text = re.sub(r"[^\x20-\x7e\xa1-\uffff]+", " ", str(source.profile.profile_description or "")).strip()
    return text[:60] or "without a name"
