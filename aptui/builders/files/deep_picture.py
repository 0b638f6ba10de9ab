"""A picture with 16 bits a channel. Pillow keeps 16 bits only in grey pictures; of other pictures it reads the upper 8 bits.

This module lets Pillow decode the picture twice, because with the opposite byte order Pillow reads the lower byte of each sample.
The result is exact for PNG, and for TIFF unless its channels are stored separately and compressed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from aptui.builders.files.png_file import write_png16

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image, ImageFile

    Samples = NDArray[np.uint16]

MOST = 65535

_DEEP_RAW_MODE = re.compile(r"(LA|RGB|RGBA|RGBX|RGBa|CMYK);16[BLN]$")
_SEPARATE_PLANES = 2
_TIFF_BITS, _TIFF_PHOTOMETRIC, _TIFF_PLANES = 258, 262, 284
_WHITE_IS_ZERO = 0


@dataclass(frozen=True)
class DeepPicture:
    """Samples as height × width × channels; `mode` names the channels as Pillow does: L, LA, RGB, RGBA or CMYK."""

    samples: Samples
    mode: str

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.width, self.height

    @property
    def width(self) -> int:
        """Width in pixels."""
        return int(self.samples.shape[1])

    @property
    def height(self) -> int:
        """Height in pixels."""
        return int(self.samples.shape[0])

    @property
    def has_alpha(self) -> bool:
        """Whether the last channel is alpha."""
        return self.mode in ("LA", "RGBA")

    def with_alpha(self, transparent: Sequence[int]) -> DeepPicture:
        """Return a grey or RGB picture in which pixels with exactly these samples are transparent."""
        import numpy as np

        is_opaque = (self.samples != np.array(transparent, np.uint16)).any(axis=2)
        alpha = np.where(is_opaque, MOST, 0).astype(np.uint16)
        return DeepPicture(np.dstack((self.samples, alpha)), f"{self.mode}A")

    def without_colour(self) -> DeepPicture:
        """Return the luma of the picture (ITU-R BT.601, as Pillow computes it), with its alpha channel if it has one."""
        import numpy as np

        if self.mode in ("L", "LA"):
            return self
        luma = np.full(self.samples.shape[:2], 0x8000, np.uint32)
        for channel, weight in enumerate((19595, 38470, 7471)):
            luma += self.samples[..., channel].astype(np.uint32) * np.uint32(weight)
        return DeepPicture(np.dstack(((luma >> 16).astype(np.uint16), self.samples[..., 3:])), "LA" if self.has_alpha else "L")

    def resize(self, size: tuple[int, int], resample: Image.Resampling) -> DeepPicture:
        """Return the picture in another size; colours are weighted by their alpha."""
        import numpy as np
        from PIL import Image

        def scale(band: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
            return np.asarray(Image.fromarray(band).resize(size, resample))

        small = np.empty((size[1], size[0], len(self.mode)), np.uint16)
        colours = len(self.mode) - self.has_alpha
        if self.has_alpha:
            alpha = self.samples[..., -1] / np.float32(MOST)
            small_alpha = scale(alpha)
            divisor = np.where(small_alpha > 0, small_alpha, np.float32(1))
            small[..., -1] = _round(small_alpha * MOST)
        for channel in range(colours):
            band = self.samples[..., channel].astype(np.float32)
            small[..., channel] = _round(scale(band * alpha) / divisor if self.has_alpha else scale(band))
        return DeepPicture(small, self.mode)

    def round_to_bytes(self) -> Image.Image:
        """Return the picture with 8 bits a channel, each rounded to the nearest."""
        import numpy as np
        from PIL import Image

        small = np.empty(self.samples.shape, np.uint8)
        for channel in range(len(self.mode)):  # one channel at a time, because the multiplication needs 32 bits for each sample
            small[..., channel] = (self.samples[..., channel].astype(np.uint32) * 255 + 32895) >> 16
        return Image.frombytes(self.mode, self.size, small.tobytes())

    def save(self, stream: IO[bytes]) -> None:
        """Write the picture as a PNG.

        Pillow writes greyscale pictures (mode L), because it is faster than `write_png16`. It cannot write colours or
        alpha with 16 bits.
        """
        import numpy as np
        from PIL import Image

        if self.mode == "L":
            Image.fromarray(np.ascontiguousarray(self.samples[..., 0])).save(stream, format="PNG")
        else:
            write_png16(stream, self.samples)


def _round(values: NDArray[np.floating[Any]]) -> Samples:
    import numpy as np

    whole: Samples = np.rint(values).clip(0, MOST).astype(np.uint16)
    return whole


def is_deep(picture: ImageFile.ImageFile) -> bool:
    """Return whether the samples of an opened picture have more than 8 bits, and at most 16."""
    if picture.mode.startswith("I;16") or _has_deep_planes(picture):
        return True
    return any(_DEEP_RAW_MODE.match(_raw_mode(tile.args)) for tile in picture.tile)


def read_deep(opened: Callable[[], ImageFile.ImageFile], load: Callable[[ImageFile.ImageFile], None]) -> DeepPicture | None:
    """Return a deep picture with all its bits; None if Pillow gives only the upper 8 bits of each sample.

    Args:
        opened: function that opens the picture again, without decoding it.
        load: function that decodes a picture, and turns it upright.
    """
    import numpy as np

    picture = opened()
    if picture.mode.startswith("I;16"):
        return DeepPicture(_read_grey(picture, load)[..., np.newaxis], "L")
    raw_mode = _raw_mode(picture.tile[0].args)
    if _has_deep_planes(picture):
        if any(tile.codec_name != "raw" for tile in picture.tile):
            return None  # libtiff, which decodes compressed pictures, returns only the upper byte of each sample
        raw_mode = f"{picture.mode};16{'L' if picture.tag_v2.prefix == b'II' else 'B'}"  # type: ignore[attr-defined]  # of TIFF
    if raw_mode.startswith("LA;16"):
        # Pillow decodes the four bytes of a pixel (two samples of 16 bits) as one RGBA pixel.
        return DeepPicture(np.ascontiguousarray(_decode_as(picture, "RGBA", load)).view(">u2").astype(np.uint16), "LA")
    name, order = raw_mode.split(";16")
    is_premultiplied, name = name == "RGBa", name.replace("RGBa", "RGBA")
    order = order.replace("N", "L" if sys.byteorder == "little" else "B")
    samples = _decode_as(picture, f"{name};16{order}", load).astype(np.uint16)
    samples <<= 8
    samples |= _decode_as(opened(), f"{name};16{'B' if order == 'L' else 'L'}", load)
    return DeepPicture(_divide_by_alpha(samples) if is_premultiplied else samples, name.replace("RGBX", "RGB"))


def _read_grey(picture: ImageFile.ImageFile, load: Callable[[ImageFile.ImageFile], None]) -> Samples:
    import numpy as np

    is_12_bit = any(_raw_mode(tile.args) == "I;12" for tile in picture.tile)
    is_inverted = getattr(picture, "tag_v2", {}).get(_TIFF_PHOTOMETRIC) == _WHITE_IS_ZERO
    load(picture)
    samples = np.asarray(picture).astype(np.uint16)
    if is_12_bit:
        samples = (samples.astype(np.uint32) * MOST // 4095).astype(np.uint16)
    return MOST - samples if is_inverted else samples


def _decode_as(picture: ImageFile.ImageFile, raw_mode: str, load: Callable[[ImageFile.ImageFile], None]) -> NDArray[np.uint8]:
    """Return the bytes of a picture, decoded as if its samples were stored in Pillow's raw mode `raw_mode`."""
    import numpy as np

    tiles = []
    for tile in picture.tile:
        name, separator, order = raw_mode.partition(";")
        # If a TIFF stores each channel separately, each tile has one channel. Only the raw mode of the tile names this channel.
        name = _raw_mode(tile.args) if _has_deep_planes(picture) else name
        new_mode = f"{name}{separator}{order}"
        tiles.append(tile._replace(args=(new_mode, *tile.args[1:]) if isinstance(tile.args, tuple) else new_mode))
    picture.tile = tiles
    load(picture)
    return np.asarray(picture)


def _has_deep_planes(picture: ImageFile.ImageFile) -> bool:
    """Return whether a TIFF stores each channel separately, with 16 bits a sample.

    Pillow reads such samples as bytes, unless they are compressed.
    """
    tags = getattr(picture, "tag_v2", {})
    bits = tags.get(_TIFF_BITS, (1,))
    return tags.get(_TIFF_PLANES) == _SEPARATE_PLANES and isinstance(bits, tuple) and bits[:1] == (16,) and picture.mode != "I;16"


def _divide_by_alpha(samples: Samples) -> Samples:
    import numpy as np

    alpha = samples[..., 3:].astype(np.float64)
    colours = np.rint(samples[..., :3] * float(MOST) / np.where(alpha > 0, alpha, 1)).clip(0, MOST).astype(np.uint16)
    return np.dstack((colours, samples[..., 3:]))


def _raw_mode(args: object) -> str:
    """Return Pillow's raw mode of a tile (the layout of its samples in the file) from the arguments of the tile's decoder."""
    first = args[0] if isinstance(args, tuple) and args else args
    return first if isinstance(first, str) else ""
