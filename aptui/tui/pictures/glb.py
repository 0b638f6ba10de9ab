"""Models (GLB): the facts that the screen shows in place of a file's bytes, and a drawing of the model as a wireframe.

The facts (triangles, vertices, size of the scene, counts of objects) need only the JSON of the file. Its values are not trusted.

The process of `decoder` makes the drawing. It shows the edges of the triangles, seen from the front, from the right and from above,
in orthographic projection. Near edges cover far ones. The more a triangle faces the light, the brighter its edges are; the edges of
a triangle that faces away from the viewer are dark. So a dense mesh looks like a lit surface. Time and memory are bounded: models
with too many vertices are refused, and if drawing all edges would take too long, only every n-th triangle is drawn.

Shapes: points are (count, 3), float32: right, up and towards the viewer. Triangles are (count, 3), indices of points.

Tests: `tests/tui/pictures/test_glb.py`, `tests/tui/pictures/test_wireframe.py`.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, BinaryIO

from aptui.tui.pictures.decoder import CHANNELS, PictureView

_LIST, _STRIP, _FAN = 4, 5, 6
"""Modes of a primitive: its vertices form a list, a strip or a fan of triangles."""
_MOST_STEPS = 20_000
"""Maximum number of visited nodes and primitives: nodes that share children can make a small file a huge scene."""
LONGEST_JSON_BYTES = 8 << 20
"""Maximum length of a document that is summarized (bytes)."""
_COUNTED = ("meshes", "nodes", "skins", "animations", "materials", "textures", "images", "cameras")

Object = dict[str, Any]
Matrix = list[list[float]]


def _count(tree: Object) -> tuple[int, int]:
    """Return how many triangles and vertices the meshes of a document have, each mesh and each set of vertices once."""
    accessors = as_objects(tree.get("accessors"))
    triangles = 0
    vertices: dict[int, int] = {}
    for mesh in as_objects(tree.get("meshes")):
        for primitive in as_objects(mesh.get("primitives")):
            position = as_object(primitive.get("attributes")).get("POSITION")
            corners = _length(accessors, primitive.get("indices", position))
            if isinstance(position, int):
                vertices[position] = _length(accessors, position)
            mode = primitive.get("mode", _LIST)
            triangles += corners // 3 if mode == _LIST else max(0, corners - 2) if mode in (_STRIP, _FAN) else 0
    return triangles, sum(vertices.values())


def _length(accessors: list[Object], index: object) -> int:
    found = accessors[index].get("count") if isinstance(index, int) and 0 <= index < len(accessors) else 0
    return found if isinstance(found, int) else 0


def read_glb_tree(data: bytes) -> Object:
    """Return the JSON document of a GLB, whose beginning is `data`; {} if the file is not a GLB, or is damaged."""
    length = int.from_bytes(data[12:16], "little")
    if not data.startswith(b"glTF") or data[16:20] != b"JSON" or length > min(len(data) - 20, LONGEST_JSON_BYTES):
        return {}
    try:
        return as_object(json.loads(data[20 : 20 + length]))
    except (ValueError, RecursionError):
        return {}


def describe_glb(data: bytes) -> list[tuple[str, str]]:
    """Return (label, value) of each fact about a GLB, whose beginning is `data`; [] if the file is not a GLB, or is damaged."""
    try:
        tree = read_glb_tree(data)
        return _describe(tree) if tree else []
    except (ValueError, OverflowError, TypeError):
        return []


def _describe(tree: Object) -> list[tuple[str, str]]:
    """Return (label, value) of the facts of a document."""
    triangles, vertices = _count(tree)
    facts = [("Triangles", f"{triangles:,}"), ("Vertices", f"{vertices:,}")]
    if extent := _extent(tree):
        facts.append(("Size", " × ".join(f"{side:.4g}" for side in extent) + " m"))
    facts += [(kind.capitalize(), f"{len(tree[kind]):,}") for kind in _COUNTED if isinstance(tree.get(kind), list)]
    used = tree.get("extensionsUsed")
    if isinstance(used, list) and used:
        facts.append(("Extensions", ", ".join(map(str, used))))
    return facts


def _extent(tree: Object) -> list[float]:
    """Return the lengths of the sides of the box around all meshes, as the nodes place them in the scene; [] = unknown."""
    accessors = as_objects(tree.get("accessors"))
    low, high = [float("inf")] * 3, [float("-inf")] * 3
    for here, primitive in place_primitives(tree):
        if here is None:
            return []
        for position in _indices([as_object(primitive.get("attributes")).get("POSITION")], accessors):
            for corner in _corners(accessors[position]):
                place = [sum(row[k] * corner[k] for k in range(3)) + row[3] for row in here[:3]]
                low, high = list(map(min, low, place)), list(map(max, high, place))
    return [b - a for a, b in zip(low, high, strict=True)] if low[0] <= high[0] else []


def place_primitives(tree: Object) -> Iterator[tuple[Matrix | None, Object]]:
    """Yield (transformation to the scene, primitive) for all nodes; after `_MOST_STEPS`, yield (None, {}) and end."""
    nodes, meshes = (as_objects(tree.get(name)) for name in ("nodes", "meshes"))
    children = [_indices(node.get("children"), nodes) for node in nodes]
    below = {child for listed in children for child in listed}
    todo = [(index, _unit()) for index in range(len(nodes)) if index not in below]
    steps = 0
    while todo:
        index, above = todo.pop()
        here = _times(above, _matrix(nodes[index]))
        # Nodes beyond the limit are never visited. A node that lists itself many times would fill the memory with them.
        todo += [(child, here) for child in children[index][: max(0, _MOST_STEPS - steps - len(todo))]]
        steps += 1
        for mesh in _indices([nodes[index].get("mesh")], meshes):
            for primitive in as_objects(meshes[mesh].get("primitives"))[: _MOST_STEPS - steps]:
                steps += 1
                yield here, primitive
        if steps >= _MOST_STEPS:
            yield None, {}
            return


def _indices(listed: object, things: list[Object]) -> list[int]:
    found = listed if isinstance(listed, list) else []
    return [each for each in found if isinstance(each, int) and 0 <= each < len(things)]


def _corners(accessor: Object) -> list[tuple[float, ...]]:
    bounds = [accessor.get("min"), accessor.get("max")]
    if not all(isinstance(each, list) and len(each) == 3 and all(map(_is_number, each)) for each in bounds):
        return []
    return list(itertools.product(*zip(*bounds, strict=True)))


def _unit() -> Matrix:
    return [[float(row == column) for column in range(4)] for row in range(4)]


def _times(a: Matrix, b: Matrix) -> Matrix:
    return [[sum(a[row][k] * b[k][column] for k in range(4)) for column in range(4)] for row in range(4)]


def _matrix(node: Object) -> Matrix:
    """Return the transformation of a node as rows of a matrix (§3.5.3 of the glTF 2.0 specification)."""
    if numbers := _numbers(node, "matrix", 16):
        return [[numbers[row + 4 * column] for column in range(4)] for row in range(4)]
    x, y, z, w = _numbers(node, "rotation", 4) or [0, 0, 0, 1]
    turn = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    scale, move = _numbers(node, "scale", 3) or [1, 1, 1], _numbers(node, "translation", 3) or [0, 0, 0]
    return [[*(turn[row][k] * scale[k] for k in range(3)), move[row]] for row in range(3)] + [[0, 0, 0, 1]]


def _numbers(node: Object, key: str, length: int) -> list[Any]:
    given = node.get(key)
    return given if isinstance(given, list) and len(given) == length and all(map(_is_number, given)) else []


def as_object(value: object) -> Object:
    """Return `value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_objects(value: object) -> list[Object]:
    """Return the objects of a list; other values are replaced by empty objects."""
    return [as_object(each) for each in value] if isinstance(value, list) else []


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# ------------------------------------------------------------------------------------------------------------ the wireframe

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

    Points = NDArray[np.float32]
    Numbers = NDArray[np.int64]

_TURN, _TILT = 30, 20
"""Angles of the view (degrees): from the front to the right, and from the horizon upwards."""
_MOST_POINTS = 4 << 20
"""Maximum number of vertices: each takes 12 bytes, and 12 more while it is read."""
_MOST_DOTS, _CHUNK_DOTS = 24 << 20, 1 << 20
"""Limits for the dots that form the edges: `_MOST_DOTS` for the whole model, `_CHUNK_DOTS` for one step of the calculation.

Drawing `_MOST_DOTS` dots takes about two seconds.
"""
_CHUNK_TRIANGLES = 1 << 16
_SAMPLED_TRIANGLES = 1 << 12
_LIT, _DARK = (150, 205, 255), (35, 55, 85)
"""Colours of the edges of a triangle that faces the light, and of one that faces away from the viewer."""
_LIGHT = (-0.4, 0.6, 0.7)
_SHADES, _DEPTHS = 1 << 8, 1 << 20
"""Number of shades and of depths. A pixel is `depth * _SHADES + shade`, so the nearest edge has the largest value; -1 = empty."""
_KINDS = {5120: "i1", 5121: "u1", 5122: "i2", 5123: "u2", 5125: "u4", 5126: "f4"}
"""{component type of glTF: type of NumPy}."""


def import_modules() -> None:
    """Load the modules that drawing needs; call this before the process loses the right to open files."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # OpenBLAS reserves memory for each of its threads
    import numpy  # noqa: F401, ICN001  # only to load the module
    from PIL import Image  # noqa: F401  # only to load the module


def draw_model(stream: BinaryIO, view: PictureView) -> Image.Image:
    """Return the wireframe of a GLB, as large as fits.

    Raises:
        ValueError: the file is damaged, has no triangles, or is too large.
    """
    import numpy as np
    from PIL import Image

    data = _Buffer(stream.fileno())
    meshes = list(_read_meshes(data))
    if not meshes:
        raise ValueError("the model has no triangles")
    low = np.min([points.min(0) for points, _ in meshes], 0)
    size = np.max([points.max(0) for points, _ in meshes], 0) - low
    scale = min((view.width - 1) / max(size[0], 1e-9), (view.height - 1) / max(size[1], 1e-9))
    width, height = (min(most, round(float(size[at]) * scale) + 1) for at, most in ((0, view.width), (1, view.height)))
    meshes = [((points - low) * np.float32(scale), triangles) for points, triangles in meshes]
    nearest = np.full(width * height, -1, np.int64)
    deep = _DEPTHS / max(float(size[2]) * scale, 1e-9)
    stride = _choose_stride(meshes)
    for points, triangles in meshes:
        _draw_edges(points, triangles[::stride], nearest.reshape(height, width), deep)
    return Image.fromarray(_colour(nearest).reshape(height, width, CHANNELS)[::-1].copy())


def _choose_stride(meshes: list[tuple[Points, Numbers]]) -> int:
    """Return n: only every n-th triangle is drawn, so that by an estimate all edges need at most `_MOST_DOTS` dots."""
    import numpy as np

    dots = 0.0
    for points, triangles in meshes:
        some = points[triangles[:: max(1, len(triangles) // _SAMPLED_TRIANGLES)], :2]
        dots += float(np.abs(some - np.roll(some, 1, 1)).max(2).sum(1).mean() + 3) * len(triangles)
    return max(1, int(-(-dots // _MOST_DOTS)))


def _draw_edges(points: Points, triangles: Numbers, nearest: Numbers, deep: float) -> None:
    """Draw the edges of triangles into `nearest`; a pixel changes only if the edge is nearer than the edge drawn there before.

    Args:
        nearest: (height, width) of `depth * _SHADES + shade` for each pixel.
        deep: number of depth steps for a distance of one pixel.
    """
    import numpy as np

    flat, (height, width) = nearest.reshape(-1), nearest.shape
    for first in range(0, len(triangles), _CHUNK_TRIANGLES):
        corners = points[triangles[first : first + _CHUNK_TRIANGLES]]
        shades = np.repeat(_shade(corners), 3)
        starts, ways = corners.reshape(-1, 3), (np.roll(corners, -1, 1) - corners).reshape(-1, 3)
        counts = np.ceil(np.abs(ways[:, :2]).max(1)).astype(np.int64) + 1
        ends = np.cumsum(counts)
        cuts = np.searchsorted(ends, np.arange(0, int(ends[-1]) + _CHUNK_DOTS, _CHUNK_DOTS), "right")
        for begin, end in pairwise([*cuts[:-1].tolist(), len(ends)]):
            edge = np.repeat(np.arange(begin, end), counts[begin:end])
            step = np.arange(len(edge)) - (ends - counts)[edge] + (ends[begin - 1] if begin else 0)
            share = (step / np.maximum(counts[edge] - 1, 1)).astype(np.float32)[:, None]
            dots = starts[edge] + ways[edge] * share
            columns, rows = (np.clip(np.rint(dots[:, at]).astype(np.int64), 0, most - 1) for at, most in ((0, width), (1, height)))
            np.maximum.at(flat, rows * width + columns, (dots[:, 2] * deep).astype(np.int64) * _SHADES + shades[edge])


def _shade(corners: Points) -> Numbers:
    """Return the shade of each triangle. It is highest if the triangle faces the light, and 0 if it faces away from the viewer."""
    import numpy as np

    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    light = np.array(_LIGHT, np.float32)
    lengths = np.maximum(np.linalg.norm(normals, axis=1) * np.linalg.norm(light), 1e-12)
    shades = np.clip(normals @ light / lengths, 0.2, 1) * (normals[:, 2] > 0)
    numbers: Numbers = (shades * (_SHADES - 1)).astype(np.int64)
    return numbers


def _colour(nearest: Numbers) -> NDArray[np.uint8]:
    """Return the pixels (count, 4) for depths and shades; empty pixels are transparent."""
    import numpy as np

    lit, dark = np.array(_LIT, np.float32), np.array(_DARK, np.float32)
    pixels = np.zeros((len(nearest), CHANNELS), np.uint8)
    is_drawn = nearest >= 0
    pixels[is_drawn, :3] = dark + (lit - dark) * (nearest[is_drawn] % _SHADES / (_SHADES - 1))[:, None]
    pixels[is_drawn, 3] = 255
    return pixels


# ------------------------------------------------------------------------------------------------------------- the GLB file


class _Buffer:
    """The binary part of a GLB, read by ranges."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        head = os.pread(fd, LONGEST_JSON_BYTES + 20, 0)
        self.tree = read_glb_tree(head)
        self._start = 28 + int.from_bytes(head[12:16], "little")
        if not self.tree:
            raise ValueError("the JSON of the model is damaged or too long")
        self._accessors, self._views = (as_objects(self.tree.get(name)) for name in ("accessors", "bufferViews"))

    def read(self, index: object, width: int) -> NDArray[np.generic]:
        """Return the values of an accessor as an array (count, width) of its component type; normalized integers become floats.

        Raises:
            ValueError: the accessor is damaged, or its data are compressed or in another file.
        """
        import numpy as np

        accessor = _pick(self._accessors, index)
        view = _pick(self._views, accessor.get("bufferView"))
        if "extensions" in view or view.get("buffer", 0) != 0 or "uri" in as_objects(self.tree.get("buffers"))[0]:
            raise ValueError("the buffers of the model are compressed, or in another file")
        kind = np.dtype(f"<{_KINDS[accessor['componentType']]}")
        count, least = _whole(accessor.get("count")), kind.itemsize * width
        stride = _whole(view.get("byteStride", 0)) or least
        if count > _MOST_POINTS * 3 or not least <= stride <= 252:
            raise ValueError(f"the model has {count:,} vertices or indices, which are too many for a preview")
        start, length = _whole(accessor.get("byteOffset", 0)), stride * (count - 1) + least
        if count <= 0 or start + length > _whole(view.get("byteLength")):
            raise ValueError("the accessors of the model are damaged")
        data = os.pread(self._fd, length, self._start + _whole(view.get("byteOffset", 0)) + start)
        if len(data) < length:
            raise ValueError("truncated")
        values = np.ndarray((count, width), kind, data, strides=(stride, kind.itemsize))
        return values / np.float32(np.iinfo(kind).max) if accessor.get("normalized") and kind.kind in "iu" else values


def _read_meshes(data: _Buffer) -> Iterator[tuple[Points, Numbers]]:
    """Yield (points as the viewer sees them, triangles) of each primitive."""
    import numpy as np

    turn, tilt = np.radians((_TURN, _TILT))
    axes = np.array([[1, 0, 0], [0, np.cos(tilt), -np.sin(tilt)], [0, np.sin(tilt), np.cos(tilt)]])
    axes = axes @ np.array([[np.cos(turn), 0, -np.sin(turn)], [0, 1, 0], [np.sin(turn), 0, np.cos(turn)]])
    total = 0
    for here, primitive in place_primitives(data.tree):
        mode = primitive.get("mode", _LIST)
        if here is None or mode not in {_LIST, _STRIP, _FAN}:
            continue
        place = as_object(primitive.get("attributes")).get("POSITION")
        points = data.read(place, 3)
        total += len(points)
        if total > _MOST_POINTS:
            raise ValueError(f"the model has more than {_MOST_POINTS:,} vertices, the limit for previews")
        matrix = np.array(here)
        seen = points.astype(np.float32) @ (axes @ matrix[:3, :3]).T.astype(np.float32) + (axes @ matrix[:3, 3]).astype(np.float32)
        order = data.read(primitive["indices"], 1)[:, 0].astype(np.int64) if "indices" in primitive else np.arange(len(points))
        triangles = _as_triangles(order, mode)
        if len(triangles) and order.max() < len(points) and np.isfinite(seen).all():
            yield seen, triangles


def _as_triangles(order: Numbers, mode: int) -> Numbers:
    """Return the triangles of a list, strip or fan of points."""
    import numpy as np

    if mode == _LIST:
        return order[: len(order) // 3 * 3].reshape(-1, 3)
    first = np.broadcast_to(order[:1], len(order[2:])) if mode == _FAN else order[:-2]
    return np.stack((first, order[1:-1], order[2:]), 1)


def _pick(things: list[Object], index: object) -> Object:
    if isinstance(index, int) and 0 <= index < len(things):
        return things[index]
    raise ValueError("the accessors of the model are damaged")


def _whole(value: object) -> int:
    if isinstance(value, int) and value >= 0:
        return value
    raise ValueError("the accessors of the model are damaged")
