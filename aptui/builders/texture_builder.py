"""The `texture` builder: a picture becomes one KTX2 or DDS file with all mips, compressed for the GPUs of the platform.

A job decodes the picture (as the `image` builder does), packs channels, resizes, makes the mips (`files.mips`), and encodes each
level. The format follows from the platform and from the usage of the texture; `formats` and `format` override it.

| usage | desktop (bc) | mobile (astc) | web (etc2) | space |
|---|---|---|---|---|
| color | bc7 | astc_6x6 | etc2_rgb, etc2_rgba with transparency | sRGB |
| ui | bc7, no mips | astc_4x4, no mips | as color, no mips | sRGB |
| normal | bc5: X, Y | astc_4x4: X in RGB, Y in alpha | eac_rg: X, Y | linear |
| mask | bc4 | astc_8x8: red in RGB | eac_r | linear, one channel |
| data | bc7 | astc_4x4 | as color | linear |

Memory: at most 80 bytes a pixel, but only 30 if the height is even and the picture is not resized. Time grows with the number of
pixels, with `effort`, and is bounded by `max_megapixels`.
"""

from __future__ import annotations

import os
import posixpath
import re
from functools import cache, lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal
from uuid import UUID

from msgspec import Meta, Struct

from aptui.builders.common import SourceBuilder, find_wrong_page_name, refuse_scaled_page, show_count
from aptui.builders.files.pictures import MOST_MEGAPIXELS, NEEDS_MEMORY
from aptui.builders.files.texture_file import FORMATS, Texture, encode_dds, encode_ktx2
from aptui.builders.image_builder import ImageParams, PictureJob, decode_rgba
from aptui.sdk import CreateJobsRequest, JobError, NamedFileError, PlatformInfo, ProcessJobRequest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]

TEXTURE_ASSET_TYPE = UUID("3c9d5c1e-7f0b-5b64-8f0e-2a4c9d7e1e0b")
"""Asset type of every product of this builder: a texture. The product's extension names its container (`.ktx2` or `.dds`)."""

Usage = Literal["auto", "color", "ui", "normal", "mask", "data"]
_FAMILIES: dict[str, dict[str, str]] = {
    "bc": {"color": "bc7", "ui": "bc7", "normal": "bc5", "mask": "bc4", "data": "bc7"},
    "astc": {"color": "astc_6x6", "ui": "astc_4x4", "normal": "astc_4x4", "mask": "astc_8x8", "data": "astc_4x4"},
    "etc2": {"color": "etc2_rgb", "ui": "etc2_rgb", "normal": "eac_rg", "mask": "eac_r", "data": "etc2_rgb"},
    "none": {"color": "rgba8", "ui": "rgba8", "normal": "rgba8", "mask": "r8", "data": "rgba8"},
}
"""{family of GPU formats: {usage of a texture: format}}."""
_OPAQUE = ("bc1", "bc4", "bc5", "etc2_rgb", "eac_r", "eac_rg", "r8")
"""Formats without an alpha channel."""
_FAMILY_OF_TAG = {"android": "astc", "ios": "astc", "mobile": "astc", "tvos": "astc", "web": "etc2"}
_USAGE_OF_ENDING = {
    "n": "normal", "nrm": "normal", "norm": "normal", "normal": "normal", "normals": "normal", "ddn": "normal",
    "nor": "normal", "normalmap": "normal", "normalgl": "normal", "normaldx": "normal", "nm": "normal",
    "ao": "mask", "ambientocclusion": "mask", "occlusion": "mask", "height": "mask", "displacement": "mask", "disp": "mask",
    "bump": "mask", "mask": "mask", "opacity": "mask", "metal": "mask", "metallic": "mask", "metalness": "mask", "rough": "mask",
    "roughness": "mask", "gloss": "mask", "glossiness": "mask", "smoothness": "mask", "sdf": "mask",
    "orm": "data", "arm": "data", "mra": "data", "rma": "data", "rmo": "data", "mro": "data", "lut": "data", "data": "data",
    "metallicroughness": "data", "occlusionroughnessmetallic": "data", "maskmap": "data", "flow": "data", "ui": "ui",
}  # fmt: skip
"""{end of the stem, after its last `_` or `-`: usage}, by the conventions of common art tools and libraries of materials."""
_NOT_USAGE = re.compile(r"(?:@\dx|[_\-. ](?:\d+k?|gl|dx|ogl|opengl|directx))+$")
"""Matches the part of a stem after the usage: a scale, size or number, or the direction of a normal map's Y."""
_ROWS = 64
"""Number of rows that one call encodes.

The library etcpak holds the interpreter lock during a call, so the worker can answer only between two calls.
"""
_SOURCE = re.compile(r"(1-)?(?:([rgba])|(0|1)|(.+?)(?::([rgba]))?)")
_CHANNELS = "rgba"
_FACES = 6

Name = Annotated[str, Meta(min_length=1)]


class TextureParams(Struct, frozen=True, kw_only=True):
    """Parameters of this builder; the documentation and `aptui explain` show the descriptions of the fields."""

    usage: Annotated[
        Usage, Meta(description="purpose of the texture; auto: decided by the end of the file name, such as _n, _ao, _orm")
    ] = "auto"
    format: Annotated[
        str,
        Meta(
            description="format of the pixels, such as bc7, or a family of formats (bc, astc, etc2, none); auto: decided by the "
            "platform"
        ),
    ] = "auto"
    formats: Annotated[
        dict[str, str],
        Meta(description="formats for some platforms, as {platform or platform tag: format or family}; overrides `format`"),
    ] = {}
    container: Annotated[Literal["ktx2", "dds"], Meta(description="format of the file")] = "ktx2"
    mips: Annotated[bool | None, Meta(description="make all mip levels; by default they are made for every usage except ui")] = None
    max_size: Annotated[
        int, Meta(ge=1, le=16384, description="maximum width and height in pixels; larger pictures are scaled down")
    ] = 16384
    sides: Annotated[
        Literal["any", "multiple_of_four", "power_of_two"],
        Meta(
            description="any: keep width and height; multiple_of_four: round both down to a multiple of 4; power_of_two: round "
            "both down to a power of two"
        ),
    ] = "any"
    premultiply: Annotated[bool, Meta(description="multiply the colours by the alpha channel")] = False
    bleed: Annotated[
        bool,
        Meta(description="give transparent pixels the colour of the visible pixels beside them, so that edges have no dark fringe"),
    ] = True
    coverage: (
        Annotated[float, Meta(gt=0, lt=1)]
        | Annotated[
            None,
            Meta(
                description="alpha threshold; each mip level keeps the share of pixels that are above it, so that foliage does not "
                "thin out"
            ),
        ]
    ) = None
    channels: Annotated[
        dict[str, str],
        Meta(
            description="sources of channels, as {r, g, b or a: source}; a source is a channel (g), 0, 1, a file "
            "({name}_ao.png) or a "
            "channel of a file ({name}_ao.png:g); 1- before the source inverts the values"
        ),
    ] = {}
    faces: Annotated[
        list[Name],
        Meta(description="six files beside the texture that become the faces of a cube map, in the order +x, -x, +y, -y, +z, -z"),
    ] = []
    layers: Annotated[list[Name], Meta(description="files beside the texture that become the layers of a texture array")] = []
    flip_green: Annotated[
        bool, Meta(description="invert Y (the green channel) of a normal map, to convert between OpenGL and DirectX")
    ] = False
    effort: Annotated[
        int, Meta(ge=0, le=100, description="effort of the encoder: higher values are slower and give better quality; drafts use 0")
    ] = 30
    strict: Annotated[bool, Meta(description="treat each warning as an error")] = False
    max_megapixels: Annotated[
        float,
        Meta(
            gt=0,
            le=100_000,
            description="maximum size in millions of pixels; a larger picture fails",
            extra_json_schema={"is_trusted_only": True},
        ),
    ] = MOST_MEGAPIXELS


class TextureBuilder(SourceBuilder):
    """Makes `<stem>.ktx2` or `<stem>.dds` of a picture."""

    name: ClassVar[str] = "texture"
    version: ClassVar[str] = "1"
    patterns: ClassVar[tuple[str, ...]] = ("*.png", "*.jpg", "*.jpeg", "*.tga", "*.bmp", "*.tif", "*.tiff", "*.webp")
    params_schema: ClassVar[Any] = TextureParams
    requires: ClassVar[tuple[str, ...]] = ("etcpak>=0.9.15", "astc-encoder-py>=0.1.12", "Pillow")

    def analyse(self, request: CreateJobsRequest) -> None:
        """Declare dependencies on the files of channels, faces and layers that the parameters name."""
        named, is_alone = set(), True
        for platform in request.platforms:
            options: TextureParams = request.options_for(platform.id)
            choose_format(options, platform, "color", has_alpha=False)
            files = _list_files(options, request.source)
            named.update(files)
            is_alone &= files == [request.source] and not options.layers
        request.is_same_for_all_sources = is_alone
        for path in sorted(named - {request.source}):
            request.depends_on(path)

    def build(self, request: ProcessJobRequest) -> None:
        """Encode one texture."""
        options: TextureParams = request.options
        usage = choose_usage(options.usage, request.stem)
        _list_files(options, request.source)
        try:
            images = [
                _prepare(_pack(path, request, options, usage), request, options, usage)
                for path in _list_images(options, request.source)
            ]
        except MemoryError:
            raise MemoryError(NEEDS_MEMORY) from None
        if len({image.shape for image in images}) > 1:
            sizes = ", ".join(f"{image.shape[1]}x{image.shape[0]}" for image in images)
            raise JobError(f"all faces or layers must have the same size, but their sizes are {sizes}")
        height, width = images[0].shape[:2]
        if options.faces and width != height:
            raise JobError(f"the faces of a cube map must be square, but these have {width}x{height} pixels")
        has_alpha = any(bool((image[..., 3] < 255).any()) for image in images)
        name = choose_format(options, request.platform, usage, has_alpha=has_alpha)
        if options.container == "dds" and not FORMATS[name].dxgi:
            raise JobError(f"a DDS file cannot contain the format {name}; set container: ktx2 for this platform")
        _report_size(request, name, width, height)
        if has_alpha and usage in ("color", "ui") and name in _OPAQUE:
            request.log.warning(f"{request.source}: the format {name} does not store the transparency of the picture")
        if wrong := find_wrong_page_name(request, options.container):
            request.log.warning(f"{request.source}: {wrong}")
        texture = _encode(images, name, usage, options, request)
        request.write_product(
            f"{request.stem}.{options.container}",
            encode_ktx2(texture) if options.container == "ktx2" else encode_dds(texture),
            asset_type=TEXTURE_ASSET_TYPE,
            facts={"width": width, "height": height, "format": name},
        )
        request.log.info(f"{name}, {show_count(len(texture.levels), 'level')}", usage=usage, srgb=texture.is_srgb)


def choose_usage(usage: str, stem: str) -> str:
    """Return the usage of a texture; `auto` chooses it by the end of the file name."""
    last = re.split(r"[_\-. ]", _NOT_USAGE.sub("", stem.lower()))[-1]
    return usage if usage != "auto" else _USAGE_OF_ENDING.get(last, "color")


def choose_format(options: TextureParams, platform: PlatformInfo, usage: str, *, has_alpha: bool) -> str:
    """Return the name of the format in which a texture is encoded.

    Raises:
        JobError: a parameter names an unknown format.
    """
    names = [options.formats[key] for key in (platform.id, *platform.tags) if key in options.formats]
    wanted = names[0] if names else options.format
    if wanted == "auto":
        wanted = next((_FAMILY_OF_TAG[tag] for tag in (platform.id, *platform.tags) if tag in _FAMILY_OF_TAG), "bc")
    if wanted in FORMATS:
        return wanted
    if wanted not in _FAMILIES:
        raise JobError(f"'{wanted}' is not a known texture format; use one of {', '.join([*_FAMILIES, *FORMATS])}")
    name = _FAMILIES[wanted][usage]
    return "etc2_rgba" if name == "etc2_rgb" and has_alpha else name


def _list_images(options: TextureParams, source: str) -> list[str]:
    """Return the paths of the pictures that become layers or faces.

    If the parameters name no pictures, return only the path of the source.
    """
    return [_place(path, source) for path in options.faces or options.layers] or [source]


def _list_files(options: TextureParams, source: str) -> list[str]:
    """Return the paths of all files that a texture is made from."""
    if options.faces and options.layers:
        raise JobError("only one of the parameters 'faces' and 'layers' can be set")
    if options.faces and len(options.faces) != _FACES:
        raise JobError(f"a cube map has {_FACES} faces, but the parameter 'faces' names {show_count(len(options.faces), 'file')}")
    if wrong := [name for name in options.channels if name not in tuple(_CHANNELS)]:
        raise JobError(f"parameter 'channels': '{wrong[0]}' is not a channel; the channels are r, g, b and a")
    packed = [file for text in options.channels.values() if (file := _parse_channel(text)[3])]
    return [*_list_images(options, source), *(_place(path, source) for path in packed)]


def _place(path: str, source: str) -> str:
    """Return a path beside the source, with `{stem}` and `{name}` (the stem without its last `_part`) filled in."""
    folder, file = posixpath.split(source)
    stem = os.path.splitext(file)[0]
    filled = path.replace("{stem}", stem).replace("{name}", re.sub(r"[_\-][^_\-]*$", "", stem))
    return posixpath.normpath(posixpath.join(folder, filled))


def _parse_channel(text: str) -> tuple[bool, str, str, str]:
    """Parse the source of a channel, such as `1-{name}_ao.png:g`; return (is inverted, channel, constant, file)."""
    match = _SOURCE.fullmatch(text)
    if match is None:
        raise JobError(
            f"parameter 'channels': '{text}' is not a valid source; use a channel (g), 0, 1, a file (ao.png), or a channel "
            "of a file (ao.png:g)"
        )
    inverted, own, constant, file, channel = match.groups(default="")
    return bool(inverted), own or channel or "r", constant, file


def _pack(path: str, request: ProcessJobRequest, options: TextureParams, usage: str) -> Pixels:
    """Return the pixels (height, width, 4) of a picture with its channels replaced as `channels` says."""
    import numpy as np

    pixels = _read(path, request, options, usage)
    if not options.channels:
        return pixels
    made = pixels.copy()
    for target, text in options.channels.items():
        is_inverted, channel, constant, file = _parse_channel(text)
        if constant:
            values = np.full(pixels.shape[:2], 255 * int(constant), np.uint8)
        else:
            other = _read(_place(file, request.source), request, options, "data") if file else pixels
            if other.shape != pixels.shape:
                raise JobError(
                    f"channel {target}: {_place(file, request.source)} has {other.shape[1]}x{other.shape[0]} pixels, but must have "
                    f"the size of {path}: {pixels.shape[1]}x{pixels.shape[0]}"
                )
            values = other[..., _CHANNELS.index(channel)]
        made[..., _CHANNELS.index(target)] = 255 - values if is_inverted else values
    return made


def _read(path: str, request: ProcessJobRequest, options: TextureParams, usage: str) -> Pixels:
    """Return the decoded pixels of a file of the project; if `usage` is color or ui, the pixels are converted to sRGB."""
    import numpy as np

    try:
        data = request.read_source() if path == request.source else request.read_named(path)
    except NamedFileError as error:
        raise JobError(f"{error} (the file is named in a parameter of this texture)") from None
    reading = ImageParams(strict=options.strict, max_megapixels=options.max_megapixels)
    return np.array(decode_rgba(data, PictureJob(request, reading, name=path, is_color=usage in ("color", "ui"))))


def _prepare(pixels: Pixels, request: ProcessJobRequest, options: TextureParams, usage: str) -> Pixels:
    """Return the pixels of level 0: resized and with Y inverted, if the parameters request this."""
    import numpy as np

    from aptui.builders.files.mips import resize

    height, width = pixels.shape[:2]
    factor = min(1.0, options.max_size / max(width, height))
    size = tuple(_round_side(max(1, int(side * factor + 0.5)), options.sides) for side in (height, width))
    if size != (height, width):
        refuse_scaled_page(request, (width, height), (size[1], size[0]))
        pixels = resize(pixels, size, usage)
    if options.flip_green and usage == "normal":
        pixels = np.dstack([pixels[..., 0], 255 - pixels[..., 1], pixels[..., 2:]])
    return pixels


def _round_side(side: int, rule: str) -> int:
    if rule == "power_of_two":
        return 1 << (side.bit_length() - 1)
    return max(4, side // 4 * 4) if rule == "multiple_of_four" else side


def _report_size(request: ProcessJobRequest, name: str, width: int, height: int) -> None:
    if name.startswith("bc") and (width % 4 or height % 4):
        request.log.warning(
            f"{request.source}: the sides of {width}x{height} pixels are not multiples of 4, which Direct3D and WebGPU "
            f"require for {name}; "
            "set sides: multiple_of_four"
        )


def _encode(images: list[Pixels], name: str, usage: str, options: TextureParams, request: ProcessJobRequest) -> Texture:
    from aptui.builders.files.mips import make_mips, premultiply

    has_mips = usage != "ui" if options.mips is None else options.mips
    is_color = usage in ("color", "ui")
    chains = [make_mips(image, usage, has_mips=has_mips, bleeds=options.bleed, coverage=options.coverage) for image in images]
    is_premultiplied = options.premultiply and is_color
    if is_premultiplied:  # done after the mips are made, because averages need colours that are not multiplied by alpha
        chains = [[premultiply(level) for level in chain] for chain in chains]
    total, done = sum(level.shape[0] * level.shape[1] for chain in chains for level in chain), 0
    effort = 0 if request.quality == "draft" else options.effort
    levels = []
    for level in zip(*chains, strict=True):
        encoded = []
        for image in level:
            parts = []
            for top in range(0, image.shape[0], _band(name)):
                band = image[top : top + _band(name)]
                parts.append(_encode_band(band, name, usage, effort))
                done += band.shape[0] * band.shape[1]
                request.progress(done / total)
            encoded.append(b"".join(parts))
        levels.append(encoded)
    height, width = images[0].shape[:2]
    return Texture(
        name, width, height, levels, is_srgb=is_color and FORMATS[name].vulkan_srgb != 0,
        is_premultiplied=is_premultiplied, face_count=_FACES if options.faces else 1, is_array=bool(options.layers),
        swizzle="ra01" if usage == "normal" and name.startswith("astc") else "",
    )  # fmt: skip


def _band(name: str) -> int:
    block = FORMATS[name].block[1]
    return _ROWS // block * block


def _encode_band(pixels: Pixels, name: str, usage: str, effort: int) -> bytes:
    """Return the encoded blocks of a band of rows.

    The number of rows is a multiple of the block's height, except at the bottom of the picture.
    """
    import numpy as np

    if name == "rgba8":
        return pixels.tobytes()
    if name == "r8":
        return pixels[..., 0].tobytes()
    if name.startswith("astc"):
        return _encode_astc(pixels, name, usage, effort)
    height, width = pixels.shape[:2]
    padded = pixels
    if height % 4 or width % 4:
        padded = np.pad(pixels, ((0, -height % 4), (0, -width % 4), (0, 0)), mode="edge")
    etcpak = _load_etcpak()
    arguments: tuple[Any, ...] = padded.tobytes(), padded.shape[1], padded.shape[0]
    if name == "bc7":
        params = etcpak.BC7CompressBlockParams()
        params.m_max_partitions = 64 * effort // 100
        arguments = (*arguments, params)
    # The result is cut, because compress_eac_r returns twice the needed bytes, and the second half is not initialized.
    encoded = bytes(getattr(etcpak, f"compress_{name}")(*arguments)[: padded.size // 64 * FORMATS[name].size])
    if name in ("bc1", "bc3") and effort > 0:
        from aptui.builders.files.colour_blocks import refine_colours

        return refine_colours(encoded, padded, steps=1 + effort // 50, is_bc3=name == "bc3")
    return encoded


def _encode_astc(pixels: Pixels, name: str, usage: str, effort: int) -> bytes:
    import astc_encoder as astc
    import numpy as np

    context = _make_astc_context(FORMATS[name].block, effort, is_srgb=usage in ("color", "ui"))
    image = astc.ASTCImage(astc.ASTCType.U8, pixels.shape[1], pixels.shape[0], 1, np.ascontiguousarray(pixels).tobytes())
    swizzle = astc.ASTCSwizzle.from_str({"normal": "RRRG", "mask": "RRR1"}.get(usage, "RGBA"))
    return bytes(context.compress(image, swizzle))


@lru_cache(maxsize=4)
def _make_astc_context(block: tuple[int, int], effort: int, *, is_srgb: bool) -> Any:
    """Return an encoder. It is reused, because its tables take 5 ms to compute: longer than a small level takes to encode."""
    import astc_encoder as astc

    profile = astc.ASTCProfile.LDR_SRGB if is_srgb else astc.ASTCProfile.LDR
    return astc.ASTCContext(astc.ASTCConfig(profile, *block, 1, float(effort)))


@cache
def _load_etcpak() -> ModuleType:
    """Return etcpak's build for SSE4.1, which every x86-64 of the last 15 years runs.

    `import etcpak` does not load this build: the wheel names its fast builds for CPython 3.7, so later versions of Python load the
    portable build without SIMD, which is 10 to 20 times slower. The builds for AVX make other bytes than the build for SSE4.1, but
    machines that share a cache need equal bytes. On processors other than x86-64 the portable build is used.
    """
    import importlib.machinery
    import importlib.util

    spec = importlib.util.find_spec("etcpak")
    folder = (spec.submodule_search_locations or [""])[0] if spec else ""
    names = [name for name in sorted(os.listdir(folder)) if name.startswith("_etcpak_sse41")] if folder else []
    if not names:
        import etcpak

        return etcpak
    path = os.path.join(folder, names[0])
    loader = importlib.machinery.ExtensionFileLoader("_etcpak_sse41", path)
    found = importlib.util.spec_from_file_location("_etcpak_sse41", path, loader=loader)
    assert found is not None
    module = importlib.util.module_from_spec(found)
    loader.exec_module(module)
    return module
