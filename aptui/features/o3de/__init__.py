"""O3DE projects as they are, and the four programs of O3DE."""

from aptui.feature import Feature

FEATURE = Feature(
    name="o3de",
    summary="O3DE projects as they are, and the four programs of O3DE",
)
