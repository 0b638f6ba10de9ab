"""A decoded picture, small enough for a screen, and which of its pixels a room of cells has place for.

Tests: `tests/tui/pictures/test_blocks.py`.
"""

from __future__ import annotations

from msgspec import Struct

MOST_WIDE, MOST_HIGH = 320, 200
"""A picture is made so small before it comes to the screen: a pixel for each half of a cell of a large terminal."""
CHANNELS = 4


class Pixels(Struct, frozen=True):
    """Rows of red, green, blue and alpha, a byte each."""

    width: int
    height: int
    data: bytes


def fit_size(width: int, height: int, columns: int, rows: int) -> tuple[int, int]:
    """Return how large a picture is drawn in `columns` × `rows` pixels: with its aspect, enlarged by whole numbers alone."""
    if columns <= 0 or rows <= 0:
        return 0, 0
    enlarged = min(columns // width, rows // height)
    if enlarged:
        return width * enlarged, height * enlarged
    scale = min(columns / width, rows / height)
    return max(1, round(width * scale)), max(1, round(height * scale))
