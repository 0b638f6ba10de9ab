"""The `image` builder: any common picture becomes a PNG, WebP or JPEG of the requested size, with its mip chain on request.

Each job does these steps, in this order: decode the first frame, rotate it by its EXIF orientation, reduce its pixel mode, make the
transparent colour of a PNG transparent, convert to sRGB, convert to greyscale, resize, make mips, encode without metadata. Pixel
modes: palettes and bitmaps become RGB, RGBA or grey; CMYK, YCbCr and Lab become RGB; 16 bits a channel stay in PNG and are rounded
to 8 in other formats; 32 bits a channel are refused.

Memory: at most twice the size of the file plus 24 bytes a pixel. To resize a picture with 16 bits a channel, a job needs 48 instead
of 24 bytes a pixel. Time grows only with the number of pixels and the size of the file.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from io import BytesIO
from typing import IO, TYPE_CHECKING, Annotated, Any, ClassVar, Literal
from uuid import UUID

from msgspec import Meta, Struct

from aptui.builders.common import SourceBuilder, find_wrong_page_name, one_job_per_platform, refuse_scaled_page
from aptui.builders.files.deep_picture import DeepPicture, is_deep, read_deep
from aptui.builders.files.pictures import (
    MOST_MEGAPIXELS,
    NEEDS_MEMORY,
    PictureError,
    count_frames,
    describe_remark,
    load_picture,
    open_picture,
)
from aptui.builders.files.png_file import SIGNATURE, PngFile, check_length, read_png
from aptui.sdk import (
    CreateJobsRequest,
    CreateJobsResponse,
    ProcessJobRequest,
    library_versions,
    same_for_all_sources,
)

if TYPE_CHECKING:
    from PIL import Image, ImageFile


IMAGE_ASSET_TYPE = UUID("3c9d5c1e-7f0b-5b64-8f0e-2a4c9d7e1e02")
"""Asset type of every product of this builder: an encoded picture; the extension shows its format."""

MIP_LEVEL_SHIFT = 16
"""Bits 16–19 of a sub id hold the level of detail, as in O3DE; the picture itself is level 0."""

HIGHEST_MIP_LEVEL = 15

_LONGEST_SIDE = {"png": 2**31 - 1, "webp": 16383, "jpeg": 65500}

_EXTENSIONS = {
    ".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".bmp": "BMP", ".gif": "GIF", ".tif": "TIFF", ".tiff": "TIFF", ".webp": "WEBP",
    ".tga": "TGA",
}  # fmt: skip
"""{extension: Pillow's name of the format with this extension}."""

_USUAL_GAMMA, _GAMMA_TOLERANCE = 2.2, 0.05
"""Gamma of PNG files in sRGB (gAMA 0.45455), and the largest difference that counts as a rounding error."""


class ImageParams(Struct, frozen=True, kw_only=True):
    """Parameters of this builder; the documentation and `aptui explain` show the descriptions of the fields."""

    format: Literal["png", "webp", "jpeg"] = "png"
    quality: Annotated[int, Meta(ge=1, le=100, description="quality of jpeg, and of webp that is not lossless")] = 90
    lossless: Annotated[bool, Meta(description="write webp without loss; png is always lossless, and jpeg never is")] = False
    max_size: Annotated[
        Annotated[int, Meta(ge=1, le=65500)] | None,
        Meta(description="maximum width and height in pixels; larger pictures are scaled down and keep their aspect ratio"),
    ] = None
    scale: Annotated[float, Meta(ge=0.001, le=1, description="factor for the width and height; applied before max_size")] = 1
    power_of_two: Annotated[bool, Meta(description="reduce each side to a power of two")] = False
    grayscale: bool = False
    max_megapixels: Annotated[
        float,
        Meta(
            ge=0.001,
            le=100_000,
            description="maximum size in millions of pixels; a larger picture fails before it uses much memory",
            extra_json_schema={"is_trusted_only": True},
        ),
    ] = MOST_MEGAPIXELS
    mips: Annotated[
        bool,
        Meta(
            description="also write smaller copies (mip levels): each has half the width and height of the previous level, down "
            "to one pixel"
        ),
    ] = False
    strict: Annotated[bool, Meta(description="treat each warning as an error")] = False


class ImageBuilder(SourceBuilder):
    """Makes `<stem>.<format>` of a picture, and with `mips` also `<stem>.mip1.<format>` … down to one pixel."""

    name: ClassVar[str] = "image"
    version: ClassVar[str] = "1"
    patterns: ClassVar[tuple[str, ...]] = ("*.png", "*.jpg", "*.jpeg", "*.tga", "*.bmp", "*.gif", "*.tif", "*.tiff", "*.webp")
    # Pillow's wheels contain the codecs, so an upgrade of Pillow may change the bytes of products.
    analysis_fingerprint: ClassVar[str] = library_versions("Pillow")
    params_schema: ClassVar[Any] = ImageParams

    @same_for_all_sources
    def create_jobs(self, request: CreateJobsRequest) -> CreateJobsResponse:
        """Return one job per platform."""
        return one_job_per_platform(request, self.name, self.analysis_fingerprint, _contradiction)

    def build(self, request: ProcessJobRequest) -> None:
        """Decode the source and write its products; sub ids are the mip level in bits 16–19."""
        job = PictureJob(request, request.options)
        try:
            decoded = decode_picture(request.read_source(), job)
            picture = _resize(decoded, job)
            refuse_scaled_page(request, decoded.size, picture.size)
            if wrong := find_wrong_page_name(request, job.format):
                job.warn(wrong)
            for level, each in enumerate(_levels(picture, has_mips=job.options.mips)):
                _write_level(each, level, job)
        except MemoryError:
            raise MemoryError(NEEDS_MEMORY) from None


def _contradiction(params: Mapping[str, Any]) -> str:
    if params.get("format") == "jpeg" and params.get("lossless"):
        return "parameter 'lossless' contradicts 'format: jpeg'; set format: webp or png"
    return ""


class PictureJob:
    """Decodes one picture for a request with checked options; with the option `strict`, a warning is a failure.

    `name` is the path of the file in messages, by default the path of the source. If `is_color` is not set, the colours are not
    converted.
    """

    def __init__(self, request: ProcessJobRequest, options: ImageParams, *, name: str = "", is_color: bool = True) -> None:
        self.request, self.options = request, options
        self.name, self.is_color = name or request.source, is_color
        self.format: str = options.format

    def warn(self, text: str) -> None:
        """Warn of a fault in the source, or of a loss in the conversion.

        Raises:
            PictureError: the option `strict` makes the warning a failure.
        """
        if self.options.strict:
            raise PictureError(f"{text} (the warning is an error, because 'strict' is set)")
        self.request.log.warning(f"{self.name}: {text}")

    def note(self, text: str) -> None:
        """Log information about the conversion, for example that 16 bits per channel were rounded to 8."""
        self.request.log.info(f"{self.name}: {text}")


def decode_picture(data: bytes, job: PictureJob) -> Image.Image | DeepPicture:
    """Return the first frame of `data`, upright, in sRGB, in a mode of the requested format."""
    png = read_png(data) if data.startswith(SIGNATURE) else PngFile(data)
    opened = partial(open_picture, png.data, job.name, most_megapixels=job.options.max_megapixels)
    with warnings.catch_warnings(record=True) as noted:  # Pillow reports faults of the file by `warnings.warn`
        warnings.simplefilter("always")
        picture = opened()
        kind, profile = picture.format or "", png.profile or picture.info.get("icc_profile") or b""
        profile = profile if job.is_color else b""
        frame_count = png.frame_count or count_frames(data, picture)
        deep = _read_deep(picture, opened, png, job)
        if deep is None:
            _load(picture, png, job)
    for text in dict.fromkeys([*png.remarks, *(describe_remark(str(each.message)) for each in noted)]):
        job.warn(text)
    _report_kind(kind, frame_count, job)
    _report_encoding(png, job)
    if deep is not None:
        return _fit_deep(deep.with_alpha(png.transparent) if png.transparent else deep, profile, job)
    return _fit_for_format(_to_srgb(_simplify(picture, png), profile, job), job)


def decode_rgba(data: bytes, job: PictureJob) -> Image.Image:
    """Return the first frame of `data` as RGBA with 8 bits a channel, upright; see `decode_picture`."""
    picture = decode_picture(data, job)
    if isinstance(picture, DeepPicture):
        job.note("the 16 bits per channel were rounded to 8")
        picture = picture.round_to_bytes()
    return picture.convert("RGBA")


def _load(picture: ImageFile.ImageFile, png: PngFile, job: PictureJob) -> None:
    """Decode a picture and turn it upright."""
    from PIL import ImageOps

    if png.is_interlaced:  # if rows are missing, Pillow's error would not say so
        check_length(png)
    load_picture(picture, job.options.max_megapixels)
    if png.bit_depth and not png.is_interlaced and not _has_last_row(picture):
        check_length(png)
    try:
        ImageOps.exif_transpose(picture, in_place=True)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 -- a broken EXIF block may raise any exception; the picture is still usable
        job.warn("the damaged EXIF orientation is ignored")


def _has_last_row(picture: ImageFile.ImageFile) -> bool:
    """Return whether the last row has a value above 0; Pillow sets the values of missing rows to 0."""
    return bool(picture.crop((0, picture.height - 1, *picture.size)).tobytes().strip(b"\0"))


def _read_deep(
    picture: ImageFile.ImageFile, opened: Callable[[], ImageFile.ImageFile], png: PngFile, job: PictureJob
) -> DeepPicture | None:
    """Return a picture with more than 8 bits a channel; None if the picture has only 8 bits, or if only 8 bits can be read."""
    if picture.mode in ("I", "F"):
        raise PictureError("pictures with 32 bits per channel are not supported; save the picture with 8 or 16 bits")
    if not is_deep(picture):
        return None
    deep = read_deep(opened, partial(_load, png=png, job=job))
    if deep is None:
        job.warn(
            "the 16 bits per channel were cut to 8, because the channels are stored separately; save the picture with "
            "interleaved channels"
        )
    return deep


def _report_kind(kind: str, frame_count: int, job: PictureJob) -> None:
    expected = _EXTENSIONS.get(os.path.splitext(job.name)[1].lower())
    if expected and kind != expected and (kind, expected) != ("MPO", "JPEG"):
        job.note(f"the file is a {kind} picture, although its name has another extension")
    if frame_count != 1:
        job.warn(f"only the first of {frame_count or 'the'} frames is used")


def _report_encoding(png: PngFile, job: PictureJob) -> None:
    """Report that a PNG declares a colour space or gamma other than that of sRGB, and that its colours were not converted.

    A profile overrides the chunk sRGB, which overrides gAMA (PNG, 4.3).
    """
    if png.is_other_space:
        job.warn("the colour space of the file (chunk cICP) is not sRGB, but the colours were not converted")
    elif png.gamma and not png.profile and not png.is_srgb and abs(png.gamma * _USUAL_GAMMA - 1) > _GAMMA_TOLERANCE:
        job.note(f"the gamma of the file (chunk gAMA, {png.gamma:g}) was not applied; game engines ignore it, too")


def _fit_deep(deep: DeepPicture, profile: bytes, job: PictureJob) -> Image.Image | DeepPicture:
    """Return a picture with 16 bits a channel, or with 8 if the requested format holds at most 8."""
    if job.format == "png" and deep.mode != "CMYK":
        if profile and (text := describe_foreign(profile, is_grey=deep.mode in ("L", "LA"))):
            job.warn(text)
        return deep.without_colour() if job.options.grayscale else deep
    reason = "CMYK is converted with 8 bits" if deep.mode == "CMYK" else f"{job.format} supports only 8 bits"
    job.warn(f"the 16 bits per channel were rounded to 8, because {reason}")
    return _fit_for_format(_to_srgb(deep.round_to_bytes(), profile, job), job)


def _simplify(picture: Image.Image, png: PngFile) -> Image.Image:
    """Return `picture` as L, LA, RGB, RGBA or CMYK."""
    if picture.mode in ("L", "1", "LA", "La"):
        picture = picture.convert("LA" if picture.has_transparency_data else "L")
    elif picture.mode != "CMYK":
        picture = picture.convert("RGBA" if picture.has_transparency_data else "RGB")
    return _clear(picture, png) if png.transparent else picture


def _clear(picture: Image.Image, png: PngFile) -> Image.Image:
    """Return a grey or RGB picture in which the pixels of a PNG's transparent colour are transparent."""
    import numpy as np
    from PIL import Image

    highest = (1 << png.bit_depth) - 1
    colour = [value * 255 // highest for value in png.transparent]
    is_opaque = (np.atleast_3d(np.asarray(picture)) != np.array(colour, np.uint8)).any(axis=2)
    picture.putalpha(Image.fromarray(is_opaque.astype(np.uint8) * np.uint8(255)))
    return picture


def _to_srgb(picture: Image.Image, profile: bytes, job: PictureJob) -> Image.Image:
    """Return `picture` as L, LA, RGB or RGBA in sRGB."""
    if profile:
        picture, note, warning = convert_to_srgb(picture, profile)
        if note:
            job.note(note)
        if warning:
            job.warn(warning)
    return picture.convert("RGB") if picture.mode == "CMYK" else picture


def _fit_for_format(picture: Image.Image, job: PictureJob) -> Image.Image:
    """Return `picture` in a mode of the requested format, without metadata."""
    picture.info = {}  # Pillow would write the profile, comments and resolution in `info` into the product
    if job.options.grayscale:
        picture = picture.convert("LA" if picture.mode in ("RGBA", "LA") else "L")
    if job.format == "jpeg" and picture.mode in ("RGBA", "LA"):
        picture = _on_white(picture, job)
    if job.format == "webp":
        picture = picture.convert("RGBA" if picture.mode in ("RGBA", "LA") else "RGB")
    return picture


def _on_white(picture: Image.Image, job: PictureJob) -> Image.Image:
    """Return `picture` on white, without alpha, and warn if the result looks different."""
    from PIL import Image

    opaque_mode = "RGB" if picture.mode == "RGBA" else "L"
    alpha = picture.getchannel("A")
    if alpha.getextrema() == (255, 255):
        return picture.convert(opaque_mode)
    job.warn("jpeg does not support transparency; the picture was put on a white background")
    ground = Image.new(opaque_mode, picture.size, "white")
    ground.paste(picture.convert(opaque_mode), mask=alpha)
    return ground


def _resize(picture: Image.Image | DeepPicture, job: PictureJob) -> Image.Image | DeepPicture:
    """Return `picture`, resized as the options request."""
    from PIL import Image

    size = _choose_size(picture.size, job.options)
    longest = _LONGEST_SIDE[job.format]
    if max(size) > longest:
        raise PictureError(
            f"{size[0]}x{size[1]} pixels are too large for {job.format}, which supports up to {longest} pixels per side; "
            "set max_size"
        )
    return picture if size == picture.size else picture.resize(size, Image.Resampling.LANCZOS)


def _choose_size(size: tuple[int, int], options: ImageParams) -> tuple[int, int]:
    factor = options.scale
    if options.max_size is not None:
        factor = min(factor, options.max_size / max(size))
    width, height = (max(1, math.floor(side * factor + 0.5)) for side in size)
    if options.power_of_two:
        return 1 << (width.bit_length() - 1), 1 << (height.bit_length() - 1)
    return width, height


def _levels(picture: Image.Image | DeepPicture, *, has_mips: bool) -> Iterator[Image.Image | DeepPicture]:
    """Yield `picture`, and with mips also its levels down to 1×1; each halves the sides of the previous level by a box average."""
    from PIL import Image

    if has_mips and max(picture.size).bit_length() - 1 > HIGHEST_MIP_LEVEL:
        raise PictureError(
            f"a picture of {picture.width}x{picture.height} pixels needs more than {HIGHEST_MIP_LEVEL} mip levels; set max_size"
        )
    yield picture
    while has_mips and picture.size != (1, 1):
        width, height = (max(1, side // 2) for side in picture.size)
        picture = picture.resize((width, height), Image.Resampling.BOX)
        yield picture


def _write_level(picture: Image.Image | DeepPicture, level: int, job: PictureJob) -> None:
    name = f"{job.request.stem}.mip{level}.{job.format}" if level else f"{job.request.stem}.{job.format}"
    arguments: dict[str, Any] = {}
    if job.format != "png":
        arguments["quality"] = job.options.quality
    if job.format == "webp" and job.options.lossless:
        # `quality` is left out, because Pillow takes it as the compression effort if `lossless` is set.
        # `exact` keeps the colours of transparent pixels.
        arguments = {"lossless": True, "exact": True}
    with open(job.request.product_path(name), "wb") as file:
        if isinstance(picture, DeepPicture):
            picture.save(file)
        else:
            _save(picture, file, name, job.format, arguments)
    facts = {"width": picture.width, "height": picture.height, "format": job.format}
    job.request.add_product(name, sub_id=level << MIP_LEVEL_SHIFT, asset_type=IMAGE_ASSET_TYPE, facts=facts)


def _save(picture: Image.Image, file: IO[bytes], name: str, kind: str, arguments: Mapping[str, Any]) -> None:
    try:
        picture.save(file, format=kind.upper(), **arguments)
    except ValueError:
        raise PictureError(f"cannot write {name}: the format {kind} does not support this picture") from None
    except OSError as error:
        if error.errno is not None:  # the disk caused this error, for example because it is full
            raise
        raise PictureError(f"cannot write {name}: the format {kind} does not support this picture") from None


# ---------------------------------------------------------------------------------------------------------- colour profiles

# The functions below convert pictures from the colour space of their ICC profile to sRGB, the colour space of products, with
# Pillow's Little CMS.

_SAME_LEVELS = 2
"""Maximum difference (in steps of 1/255) up to which a profile counts as sRGB. It is above 0, because vendors round their profiles
differently."""

_MODE_SPACES = {"L": "GRAY", "LA": "GRAY", "RGB": "RGB", "RGBA": "RGB", "CMYK": "CMYK"}
_SPACE_WORDS = {"GRAY": "grey", "RGB": "RGB", "CMYK": "CMYK", "Lab": "Lab"}
_DAMAGED = "the damaged colour profile is ignored"
_CACHED_PROFILES = 8
"""Number of profiles whose comparison with sRGB is cached: the pictures of a project share a few profiles."""


def convert_to_srgb(picture: Image.Image, profile: bytes) -> tuple[Image.Image, str, str]:
    """Return a picture of mode L, LA, RGB, RGBA or CMYK in sRGB.

    Args:
        picture: returned unchanged if the profile is sRGB or does not fit the picture's mode.
        profile: bytes of the picture's ICC profile.

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
    """Return the warning that the profile of a picture with 16 bits a channel is ignored, "" if the profile is sRGB."""
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
