"""Mip chains of textures: each level is the box average of the level before it. Averages depend on the kind of values.

Colours are averaged in linear light and weighted by their alpha, so that mips are not dark and have no halos. Normals are averaged
as vectors and made unit vectors again. Other values are averaged as they are.

Shapes: pictures are (height, width, 4), uint8. Memory: about 20 bytes a pixel of the first level, because it is converted to floats
band by band. A first level of odd height is converted as a whole, which needs about 40 bytes a pixel. A resize needs about 40 bytes
a pixel of its source.

Tests: `tests/builders/test_texture_builder.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]
    Floats = NDArray[np.float32]

_BAND_ROWS = 128
"""Number of rows of the full-size level that are converted to floats at a time."""
_COVERAGE_STEPS = 12
"""Number of steps of the binary search for the factor of a level's alpha; the result is exact to 1/1024 of the range."""


def make_mips(pixels: Pixels, usage: str, *, has_mips: bool, bleeds: bool, coverage: float | None) -> list[Pixels]:
    """Return the levels of a texture, from its full size down to one pixel.

    Args:
        pixels: the first level.
        usage: `color` and `ui` are sRGB, `normal` holds vectors, everything else is linear.
        has_mips: whether to make the levels below the first.
        bleeds: whether transparent pixels get the colour of the nearest visible pixels, because texture filters mix both.
        coverage: alpha threshold (0 to 1) above which pixels are drawn; each level keeps the first level's share of drawn pixels.
    """
    if usage not in ("color", "ui"):
        pixels = _restore_z(pixels) if usage == "normal" else pixels
        to_floats, to_pixels = (_read_vectors, _write_vectors) if usage == "normal" else (_read_values, _to_bytes)
        made = [to_pixels(level) for level in _halve_all(pixels, to_floats, has_mips=has_mips)]
        return [_make_unit_vectors(pixels) if usage == "normal" else pixels, *made]
    is_bled = bleeds and bool((pixels[..., 3] == 0).any())
    levels = _halve_all(pixels, _read_colours, has_mips=has_mips or is_bled)
    if is_bled:
        colours = _bleed(levels)
    else:
        colours = [np.asarray(level[..., :3] / np.maximum(level[..., 3:], 1e-6), np.float32) for level in levels]
    alphas = [level[..., 3] for level in levels]
    if coverage is not None:
        alphas = _keep_coverage(alphas, coverage, float((_read_alpha(pixels) > coverage).mean()))
    made = [
        np.dstack([_to_srgb(colour), _to_bytes(alpha * np.float32(255))]) for colour, alpha in zip(colours, alphas, strict=True)
    ]
    # Visible pixels of the first level keep their exact bytes, because a conversion to linear light and back would change some
    # bytes.
    first = _fill_transparent(pixels, made) if is_bled else pixels
    return [first, *made] if has_mips else [first]


def resize(pixels: Pixels, size: tuple[int, ...], usage: str) -> Pixels:
    """Return a picture in another size (height, width). Colours are averaged in linear light and weighted by alpha."""
    from PIL import Image

    is_color = usage in ("color", "ui")
    values = _linear_table()[pixels] if is_color else pixels.astype(np.float32)
    alpha = pixels[..., 3].astype(np.float32) / 255
    if is_color:
        values[..., :3] *= alpha[..., None]
    planes = [*np.moveaxis(values[..., :3], 2, 0), alpha]
    height, width = size
    resized = [np.asarray(Image.fromarray(plane, "F").resize((width, height), Image.Resampling.LANCZOS)) for plane in planes]
    colour, alpha = np.dstack(resized[:3]), np.clip(resized[3], 0, 1)
    made = _to_srgb(colour / np.maximum(alpha[..., None], 1e-6)) if is_color else _to_bytes(colour)
    return np.dstack([made, _to_bytes(alpha * np.float32(255))])


def premultiply(pixels: Pixels) -> Pixels:
    """Return a picture whose stored (not linear) colour values are multiplied by alpha, as engines expect."""
    product = pixels[..., :3].astype(np.uint16)
    product *= pixels[..., 3:]
    product += 127  # at most 255 * 255 + 127, which fits into 16 bits
    product //= 255
    return np.dstack([product.astype(np.uint8), pixels[..., 3]])


def _read_values(pixels: Pixels) -> Floats:
    return pixels.astype(np.float32)


def _read_vectors(pixels: Pixels) -> Floats:
    vectors = pixels.astype(np.float32)
    vectors[..., :3] = vectors[..., :3] / np.float32(127.5) - 1
    return vectors


def _write_vectors(level: Floats) -> Pixels:
    x, y, z = np.moveaxis(level[..., :3], 2, 0)
    length = np.maximum(np.sqrt(x * x + y * y + z * z), np.float32(1e-6))
    return np.dstack([_to_bytes((level[..., :3] / length[..., None] + 1) * np.float32(127.5)), _to_bytes(level[..., 3])])


def _restore_z(pixels: Pixels) -> Pixels:
    """Return normals with Z computed from X and Y, if the picture stores only X and Y: all values of its blue channel are equal."""
    if pixels[..., 2].min() != pixels[..., 2].max():
        return pixels
    x, y = (pixels[..., channel] / np.float32(127.5) - 1 for channel in (0, 1))
    z = np.sqrt(np.maximum(1 - x * x - y * y, 0))
    return np.dstack([pixels[..., :2], _to_bytes((z + 1) * np.float32(127.5)), pixels[..., 3]])


def _make_unit_vectors(pixels: Pixels) -> Pixels:
    bands = (pixels[top : top + _BAND_ROWS] for top in range(0, len(pixels), _BAND_ROWS))
    return np.concatenate([_write_vectors(_read_vectors(band)) for band in bands])


def _read_alpha(pixels: Pixels) -> Floats:
    return np.asarray(pixels[..., 3] / np.float32(255))


def _read_colours(pixels: Pixels) -> Floats:
    """Return the colours in linear light, multiplied by alpha."""
    weighted = _linear_table()[pixels]
    weighted[..., 3] = _read_alpha(pixels)
    weighted[..., :3] *= weighted[..., 3:]
    return weighted


def _halve_all(pixels: Pixels, to_floats: Callable[[Pixels], Floats], *, has_mips: bool) -> list[Floats]:
    """Return the levels below the first."""
    if not has_mips or max(pixels.shape[:2]) == 1:
        return []
    height = len(pixels)
    rows = _BAND_ROWS if height % 2 == 0 else height  # in a picture of odd height, the weights of a row depend on its place
    bands = (to_floats(pixels[top : top + rows]) for top in range(0, height, rows))
    level = np.concatenate([_halve(_halve(band, 0), 1) for band in bands])
    levels = [level]
    while max(level.shape[:2]) > 1:
        level = _halve(_halve(level, 0), 1)
        levels.append(level)
    return levels


def _halve(level: Floats, axis: int) -> Floats:
    """Halve one side, rounded down. Each result averages all source pixels that it covers: two, or more if the side is odd."""
    size = level.shape[axis]
    if size == 1:
        return level
    half = size // 2
    # The code uses slices, because numpy's moveaxis would take most of the time of a small level.
    first, second, third = (level[at::2] if axis == 0 else level[:, at::2] for at in range(3))
    if size % 2 == 0:
        return np.asarray((first + second) * np.float32(0.5))
    place = np.arange(half, dtype=np.float32).reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
    first = first[:half] if axis == 0 else first[:, :half]
    made = first * ((half - place) / size) + second * (np.float32(half) / size) + third * ((place + 1) / size)
    return np.asarray(made, np.float32)


def _bleed(levels: list[Floats]) -> list[Floats]:
    """Return the colours of all levels.

    Pixels with alpha 0 get the colour of the nearest coarser level that has a colour at this position.
    """
    colours: list[Floats] = []
    coarser: Floats | None = None
    for level in reversed(levels):
        alpha = level[..., 3:]
        colour = level[..., :3] / np.maximum(alpha, 1e-6)
        if coarser is not None:
            rows = np.minimum(np.arange(level.shape[0]) // 2, coarser.shape[0] - 1)
            columns = np.minimum(np.arange(level.shape[1]) // 2, coarser.shape[1] - 1)
            colour = np.where(alpha > 0, colour, coarser[rows][:, columns])
        coarser = colour.astype(np.float32, copy=False)
        colours.append(coarser)
    return colours[::-1]


def _fill_transparent(pixels: Pixels, levels: list[Pixels]) -> Pixels:
    """Return the full-size level with new colours for its pixels with alpha 0.

    These pixels get the colour of the same place in the next smaller level (`levels[0]`), or black if `levels` is empty.
    """
    is_empty = pixels[..., 3:] == 0
    if not levels:
        return np.where(is_empty, np.uint8(0), pixels)
    rows, columns = (np.minimum(np.arange(size) // 2, max(size // 2, 1) - 1) for size in pixels.shape[:2])
    filled: Pixels = levels[0][rows][:, columns]
    filled[..., 3] = 0
    np.copyto(filled, pixels, where=~is_empty)
    return filled


def _keep_coverage(alphas: list[Floats], threshold: float, wanted: float) -> list[Floats]:
    """Scale the alpha of each level so that the share `wanted` of its pixels is above the threshold, unless it already is."""
    scaled = []
    for alpha in alphas:
        if float((alpha > threshold).mean()) == wanted:
            scaled.append(alpha)
            continue
        low, high = 0.0, 4.0
        for _ in range(_COVERAGE_STEPS):
            middle = (low + high) / 2
            low, high = (middle, high) if float((alpha * middle > threshold).mean()) < wanted else (low, middle)
        scaled.append(np.minimum(alpha * np.float32((low + high) / 2), np.float32(1)))
    return scaled


@cache
def _linear_table() -> Floats:
    return np.array([_linear(value / 255) for value in range(256)], np.float32)


@cache
def _srgb_table() -> Pixels:
    """Return the sRGB byte of each linear value, in steps of 1/65535."""
    edges = [_linear((value + 0.5) / 255) * 65535 for value in range(255)]
    return np.searchsorted(np.array(edges), np.arange(65536)).astype(np.uint8)


def _linear(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def _to_srgb(linear: Floats) -> Pixels:
    # The values come from a table, because numpy's `power` gives different bits on processors with AVX-512, but all machines must
    # make equal products.
    made: Pixels = _srgb_table()[(np.clip(linear, 0, 1) * np.float32(65535) + np.float32(0.5)).astype(np.uint16)]
    return made


def _to_bytes(values: Floats) -> Pixels:
    made: Pixels = np.clip(values + np.float32(0.5), 0, 255).astype(np.uint8)
    return made
