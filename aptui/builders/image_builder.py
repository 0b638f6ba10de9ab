"""The `image` builder: any common picture becomes a PNG, WebP or JPEG of the wished size, with its mip chain if asked for.

What every picture goes through, in this order: decoding (the first frame), turning as its EXIF orientation says, reduction of its
pixel mode, greyscale, resizing, mips, encoding without metadata. Pixel modes: palettes and bitmaps become RGB, RGBA or grey; CMYK,
YCbCr and Lab become RGB; 16-bit grey stays in PNG and is scaled to 8 bits elsewhere (Pillow itself reads 16-bit *colour* as 8-bit);
32 bits a channel are refused.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from aptui.builders.files import lfs
from aptui.builders.files.pictures import MOST_MEGAPIXELS, PictureError, check_size, open_picture
from aptui.builders.params import ParamError, check_params, library_versions, one_job_per_platform, one_line
from aptui.sdk import CreateJobsRequest, CreateJobsResponse, JobLog, JobProduct, ProcessJobRequest, ProcessJobResponse, Result

if TYPE_CHECKING:
    from PIL import Image

IMAGE_ASSET_TYPE = UUID("3c9d5c1e-7f0b-5b64-8f0e-2a4c9d7e1e02")
"""Asset type of every product of this builder: an encoded picture, its format told by the extension."""

MIP_LEVEL_SHIFT = 16
"""Bits 16–19 of a sub id hold the level of detail, as in O3DE; the picture itself is level 0."""

HIGHEST_MIP_LEVEL = 15

_LONGEST_SIDE = {"png": 2**31 - 1, "webp": 16383, "jpeg": 65500}

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


class _BadImageError(Exception):
    """The picture cannot be made into what is wished; the text is one line."""


class ImageBuilder:
    """Makes `<stem>.<format>` of a picture, and with `mips` also `<stem>.mip1.<format>` … down to one pixel."""

    name: ClassVar[str] = "image"
    version: ClassVar[str] = "1"
    patterns: ClassVar[tuple[str, ...]] = ("*.png", "*.jpg", "*.jpeg", "*.tga", "*.bmp", "*.gif", "*.tif", "*.tiff", "*.webp")
    # Pillow's wheels carry the codecs, whose upgrade changes bytes.
    analysis_fingerprint: ClassVar[str] = library_versions("Pillow")
    params_schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "format": {"enum": ["png", "webp", "jpeg"], "default": "png"},
            "quality": {"type": "integer", "minimum": 1, "maximum": 100, "default": 90, "description": "of jpeg and lossy webp"},
            "lossless": {"type": "boolean", "default": False, "description": "of webp; png always is, jpeg never"},
            "max_size": {
                "anyOf": [{"type": "integer", "minimum": 1, "maximum": 65500}, {"type": "null"}],
                "default": None,
                "description": "longest side in pixels; larger pictures are made smaller, with their aspect",
            },
            "scale": {"type": "number", "minimum": 0.001, "maximum": 1, "default": 1, "description": "applied before max_size"},
            "power_of_two": {
                "type": "boolean",
                "default": False,
                "description": "each side becomes the power of two at or below it",
            },
            "grayscale": {"type": "boolean", "default": False},
            "max_megapixels": {
                "type": "number",
                "minimum": 0.001,
                "maximum": 100_000,
                "default": MOST_MEGAPIXELS,
                "is_trusted_only": True,
                "description": "pictures with more million pixels are refused, before they take the memory",
            },
            "mips": {"type": "boolean", "default": False, "description": "one more product for each halving, down to one pixel"},
        },
    }

    def create_jobs(self, request: CreateJobsRequest) -> CreateJobsResponse:
        """Return one job per platform."""
        return one_job_per_platform(request, self.name, self.params_schema, self.analysis_fingerprint, _contradiction)

    def process_job(self, request: ProcessJobRequest) -> ProcessJobResponse:
        """Decode the source and write its products; sub ids are the mip level in bits 16–19."""
        try:
            options = check_params(self.params_schema, request.params)
            data = lfs.source_bytes(request)
            picture = _decode(data, request, options["max_megapixels"])
            request.check_cancelled()
            picture = _resize(picture, options, request)
            products = [
                _write_level(each, level, options, request) for level, each in enumerate(_levels(picture, has_mips=options["mips"]))
            ]
        except (_BadImageError, ParamError, OSError) as error:
            return ProcessJobResponse(error=f"{request.source}: {one_line(error)}")
        return ProcessJobResponse(Result.SUCCESS, products)


def _contradiction(params: Mapping[str, Any]) -> str:
    if params.get("format") == "jpeg" and params.get("lossless"):
        return "parameter 'lossless' contradicts 'format: jpeg', use webp or png"
    return ""


def _decode(data: bytes, request: ProcessJobRequest, most_megapixels: float) -> Image.Image:
    """Return the first frame of `data`, upright."""
    from PIL import Image, UnidentifiedImageError

    if not data:
        raise _BadImageError("the file is empty")
    # Pillow warns of oddities in the file by `warnings.warn`; they belong to the job.
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        try:
            picture = open_picture(data, request.source, most_megapixels=most_megapixels)
            if picture.format == "PNG":
                Image.open(BytesIO(data), formats=("PNG",)).verify()  # decoding does not look at the checksums
            frame_count = getattr(picture, "n_frames", 1) if picture.format != "MPO" else 1
            picture.seek(0)
            check_size(picture.size, most_megapixels)
            picture.load()
        except PictureError as error:
            raise _BadImageError(one_line(error)) from None
        except UnidentifiedImageError:
            raise _BadImageError(_why_unidentified(data)) from None
        except Image.DecompressionBombError as error:
            raise _BadImageError(f"too many pixels: {one_line(error)}") from None
        except Exception as error:  # noqa: BLE001 -- Pillow's decoders raise whatever damaged bytes lead them to (struct, Index, Key …)
            raise _BadImageError(f"damaged image: {one_line(error)}") from None
        picture = _upright(picture, request)
    for text in dict.fromkeys(one_line(str(each.message)) for each in noted if issubclass(each.category, UserWarning)):
        request.log.warning(f"{request.source}: {text}")
    if frame_count > 1:
        request.log.warning(f"{request.source}: only the first of {frame_count} frames is used")
    return picture


def _why_unidentified(data: bytes) -> str:
    """Return what `Image.open` swallowed when it knew the format and not the content."""
    if data.startswith(_PNG_SIGNATURE):
        from PIL import PngImagePlugin

        try:
            PngImagePlugin.PngImageFile(BytesIO(data))
        except Exception as error:  # noqa: BLE001 -- see _decoded
            return f"damaged image: {one_line(error)}"
    return "not an image of a known format (png, jpeg, tga, bmp, gif, tiff, webp), or its header is damaged"


def _upright(picture: Image.Image, request: ProcessJobRequest) -> Image.Image:
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(picture)
    except Exception as error:  # noqa: BLE001 -- a broken EXIF block raises anything, and is no reason to lose the picture
        request.log.warning(f"{request.source}: EXIF orientation ignored: {one_line(error)}")
        return picture


def _resize(picture: Image.Image, options: Mapping[str, Any], request: ProcessJobRequest) -> Image.Image:
    """Return `picture` in the mode and size in which it is to be saved, without metadata."""
    from PIL import Image

    picture = _fit_for_format(_halve(picture), options, request.source, request.log)
    size = _choose_size(picture.size, options)
    longest = _LONGEST_SIDE[options["format"]]
    if max(size) > longest:
        raise _BadImageError(f"{options['format']} holds {longest} pixels a side, this is {size[0]}x{size[1]}; set max_size")
    if size != picture.size:
        picture = picture.resize(size, Image.Resampling.LANCZOS)
    # Writers pick up profiles, comments and resolutions from here.
    picture.info = {}
    return picture


def _halve(picture: Image.Image) -> Image.Image:
    """Return `picture` as RGB, RGBA, L, LA or I;16."""
    mode = picture.mode
    if mode in ("I", "F"):
        raise _BadImageError(f"pixel mode {mode!r} (32 bits a channel) is not supported; save it with 8 or 16 bits")
    if mode.startswith("I;16"):
        return picture.copy() if mode == "I;16" else picture.convert("I").convert("I;16")
    if mode in ("L", "1", "LA", "La"):
        return picture.convert("LA" if picture.has_transparency_data else "L")
    return picture.convert("RGBA" if picture.has_transparency_data else "RGB")


def _fit_for_format(picture: Image.Image, options: Mapping[str, Any], source: str, log: JobLog) -> Image.Image:
    """Return `picture` in a mode that the wished format holds."""
    from PIL import Image

    requested_format = options["format"]
    if picture.mode == "I;16" and requested_format != "png":
        log.info(f"{source}: 16-bit grey becomes 8-bit in {requested_format}")
        # The upper bytes; Pillow's own conversion cuts all above 255 to white.
        picture = Image.frombytes("L", picture.size, picture.tobytes()[1::2])
    if options["grayscale"] and picture.mode != "I;16":
        picture = picture.convert("LA" if picture.mode in ("RGBA", "LA") else "L")
    if requested_format == "jpeg" and picture.mode in ("RGBA", "LA"):
        picture = _on_white(picture, source, log)
    if requested_format == "webp":
        picture = picture.convert("RGBA" if picture.mode in ("RGBA", "LA") else "RGB")
    return picture


def _on_white(picture: Image.Image, source: str, log: JobLog) -> Image.Image:
    """Return `picture` without alpha, and warn if that shows."""
    from PIL import Image

    opaque_mode = "RGB" if picture.mode == "RGBA" else "L"
    alpha = picture.getchannel("A")
    if alpha.getextrema() == (255, 255):
        return picture.convert(opaque_mode)
    log.warning(f"{source}: jpeg has no alpha; laid on white")
    ground = Image.new(opaque_mode, picture.size, "white")
    ground.paste(picture.convert(opaque_mode), mask=alpha)
    return ground


def _choose_size(size: tuple[int, int], options: Mapping[str, Any]) -> tuple[int, int]:
    factor = float(options["scale"])
    if options["max_size"] is not None:
        factor = min(factor, options["max_size"] / max(size))
    width, height = (max(1, math.floor(side * factor + 0.5)) for side in size)
    if options["power_of_two"]:
        return 1 << (width.bit_length() - 1), 1 << (height.bit_length() - 1)
    return width, height


def _levels(picture: Image.Image, *, has_mips: bool) -> Iterator[Image.Image]:
    """Yield `picture`, then with mips its halvings (rounded down, each the box average of the one before) to 1×1."""
    from PIL import Image

    if has_mips and max(picture.size).bit_length() - 1 > HIGHEST_MIP_LEVEL:
        raise _BadImageError(f"{picture.width}x{picture.height} needs more than {HIGHEST_MIP_LEVEL} mip levels; set max_size")
    yield picture
    while has_mips and picture.size != (1, 1):
        width, height = (max(1, side // 2) for side in picture.size)
        picture = picture.resize((width, height), Image.Resampling.BOX)
        yield picture


def _write_level(picture: Image.Image, level: int, options: Mapping[str, Any], request: ProcessJobRequest) -> JobProduct:
    request.check_cancelled()
    requested_format = options["format"]
    name = f"{request.stem}.mip{level}.{requested_format}" if level else f"{request.stem}.{requested_format}"
    arguments: dict[str, Any] = {}
    if requested_format != "png":
        arguments["quality"] = options["quality"]
    if requested_format == "webp" and options["lossless"]:
        # Here `quality` would mean effort.
        arguments = {"lossless": True}
    try:
        with open(request.product_path(name), "wb") as file:
            picture.save(file, format=requested_format.upper(), **arguments)
    except (ValueError, OSError) as error:
        raise _BadImageError(f"cannot write {name}: {one_line(error)}") from error
    facts = {"width": picture.width, "height": picture.height, "format": requested_format}
    return JobProduct(name, level << MIP_LEVEL_SHIFT, IMAGE_ASSET_TYPE, facts=facts)
