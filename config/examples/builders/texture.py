"""`texture`: any picture becomes one KTX2 with all mips, block-compressed for the platform."""

import functools
import importlib.util
import struct
from glob import glob
from typing import Annotated, Literal

from msgspec import Meta, Struct

from aptui.sdk import SimpleBuilder

# {format: (block width and height, bytes a block, VkFormat linear, VkFormat sRGB, colour model and samples of the descriptor)}
FORMATS = {
    "bc3": (4, 16, 137, 138, 130, [(0, 64, 15), (64, 64, 0)]), "bc4": (4, 8, 139, 139, 131, [(0, 64, 0)]),
    "bc5": (4, 16, 141, 141, 132, [(0, 64, 0), (64, 64, 1)]), "bc7": (4, 16, 145, 146, 134, [(0, 128, 0)]),
    "etc2_rgb": (4, 8, 147, 148, 161, [(0, 64, 2)]), "etc2_rgba": (4, 16, 151, 152, 161, [(0, 64, 15), (64, 64, 2)]),
    "eac_rg": (4, 16, 155, 155, 161, [(0, 64, 0), (64, 64, 1)]), "astc_4x4": (4, 16, 157, 158, 162, [(0, 128, 0)]),
    "astc_6x6": (6, 16, 165, 166, 162, [(0, 128, 0)]), "astc_8x8": (8, 16, 171, 172, 162, [(0, 128, 0)]),
}  # fmt: skip
FAMILIES = {  # {family: {usage: (format of opaque pictures, format of those with alpha)}}
    "bc": {"colour": ("bc7", "bc7"), "normal": ("bc5", "bc5"), "mask": ("bc4", "bc4")},
    "etc2": {"colour": ("etc2_rgb", "etc2_rgba"), "normal": ("eac_rg", "eac_rg"), "mask": ("etc2_rgb", "etc2_rgb")},
    "astc": {"colour": ("astc_6x6", "astc_6x6"), "normal": ("astc_4x4", "astc_4x4"), "mask": ("astc_8x8", "astc_8x8")},
}


class Options(Struct):
    family: Literal["bc", "etc2", "astc"] = "bc"
    usage: Literal["colour", "normal", "mask"] = "colour"
    effort: Annotated[float, Meta(ge=0, le=100)] = 30


class Texture(SimpleBuilder):
    name = "texture"
    patterns = ("*.png", "*.tga", "*.jpg")
    params_schema = Options
    requires = ("etcpak>=0.9.15", "astc-encoder-py>=0.1.12", "numpy>=2", "Pillow>=12")

    def build(self, request):
        import numpy as np
        from PIL import Image

        options = request.options
        pixels = np.asarray(Image.open(request.full_path).convert("RGBA"))
        name = FAMILIES[options.family][options.usage][int(pixels[..., 3].min() < 255)]
        effort, encoded = 0.0 if request.quality == "draft" else options.effort, []
        for level in mip_chain(pixels, options.usage):
            encoded.append(encode(level, name, effort, options.usage))
            request.progress(len(encoded) / (1 + max(pixels.shape[:2]).bit_length()))
        facts = {"width": pixels.shape[1], "height": pixels.shape[0], "format": name}
        request.write_product(f"{request.stem}.ktx2", ktx2(encoded, facts, options.usage == "colour"), facts=facts)


def mip_chain(pixels, usage):
    """Yield a picture and its halves down to 1x1: colours averaged in linear light, weighted by alpha; normals of length 1."""
    import numpy as np  # imported here, because it takes long, and only jobs need it

    now = pixels.astype(np.float32) / 255
    if usage == "colour":
        now = np.dstack([now[..., :3] ** 2.2 * now[..., 3:], now[..., 3]])
    yield pixels
    while max(now.shape[:2]) > 1:
        now = now.repeat(1 + (now.shape[0] == 1), 0).repeat(1 + (now.shape[1] == 1), 1)
        height, width = now.shape[0] // 2, now.shape[1] // 2
        now = now[: 2 * height, : 2 * width].reshape(height, 2, width, 2, 4).mean((1, 3))
        colour = now[..., :3]
        if usage == "colour":
            colour = (colour / np.maximum(now[..., 3:], 1e-6)).clip(0, 1) ** (1 / 2.2)
        elif usage == "normal":
            colour = (colour * 2 - 1) / np.maximum(np.linalg.norm(colour * 2 - 1, axis=2, keepdims=True), 1e-6) / 2 + 0.5
        yield (np.dstack([colour, now[..., 3]]) * 255 + 0.5).clip(0, 255).astype(np.uint8)


def encode(pixels, name, effort, usage):
    import astc_encoder as astc
    import numpy as np

    height, width = pixels.shape[:2]
    if name.startswith("astc"):
        profile = getattr(astc.ASTCProfile, "LDR_SRGB" if usage == "colour" else "LDR")
        context = astc.ASTCContext(astc.ASTCConfig(profile, FORMATS[name][0], FORMATS[name][0], 1, effort))
        image = astc.ASTCImage(astc.ASTCType.U8, width, height, 1, np.ascontiguousarray(pixels).tobytes())
        return context.compress(image, astc.ASTCSwizzle.from_str("RRRG" if usage == "normal" else "RGBA"))
    padded = np.pad(pixels, ((0, -height % 4), (0, -width % 4), (0, 0)), mode="edge")
    arguments = [padded.tobytes(), padded.shape[1], padded.shape[0]]
    if name == "bc7":
        arguments.append(etcpak().BC7CompressBlockParams())
        arguments[-1].m_max_partitions = int(64 * effort / 100)
    return getattr(etcpak(), f"compress_{name}")(*arguments)


@functools.cache
def etcpak():
    """Return etcpak's build for SSE4.1: `import etcpak` loads a slow build, and the builds for AVX make other bytes."""
    folder = importlib.util.find_spec("etcpak").submodule_search_locations[0]
    spec = importlib.util.spec_from_file_location("_etcpak_sse41", min(glob(f"{folder}/_etcpak_sse41*")))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ktx2(levels, facts, is_srgb):
    """Return a KTX2 file: header, index of levels, data format descriptor, levels with the smallest first."""
    block, size, linear, srgb, model, parts = FORMATS[facts["format"]]
    descriptor = struct.pack("<I4H4B4B8B", 28 + 16 * len(parts), 0, 0, 2, 24 + 16 * len(parts), model, 1, 1 + is_srgb, 0,
                             block - 1, block - 1, 0, 0, size, *[0] * 7)  # fmt: skip
    for at, bits, channel in parts:
        descriptor += struct.pack("<HBB4BII", at, bits - 1, channel | 16 * (is_srgb and channel == 15), *[0] * 5, 2**32 - 1)
    start, index, body = 80 + 24 * len(levels) + len(descriptor), b"", b""
    for level in reversed(levels):
        body += bytes(-(start + len(body)) % size)
        index, body = struct.pack("<3Q", start + len(body), len(level), len(level)) + index, body + level
    head = struct.pack("<9I", srgb if is_srgb else linear, 1, facts["width"], facts["height"], 0, 0, 1, len(levels), 0)
    head += struct.pack("<4I2Q", 80 + 24 * len(levels), len(descriptor), 0, 0, 0, 0)
    return b"\xabKTX 20\xbb\r\n\x1a\n" + head + index + descriptor + body
