"""Facts of a GLB that the screen shows in place of its bytes: triangles, vertices, size of the scene, counts of objects.

Only the JSON of the file is read. Nothing in it is trusted.

Tests: `tests/tui/pictures/test_glb_facts.py`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

_TRIANGLES = 4
_STRIPS_AND_FANS = (5, 6)
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
            mode = primitive.get("mode", _TRIANGLES)
            triangles += corners // 3 if mode == _TRIANGLES else max(0, corners - 2) if mode in _STRIPS_AND_FANS else 0
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
    """Return the lengths of the sides of the box around all meshes as nodes place them; [] if it is not known."""
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
    """Yield (transformation to the scene, primitive) of all nodes; the transformation is None where the steps are used up."""
    nodes, meshes = (as_objects(tree.get(name)) for name in ("nodes", "meshes"))
    children = {child for node in nodes for child in _indices(node.get("children"), nodes)}
    todo = [(index, _unit()) for index in range(len(nodes)) if index not in children]
    steps = 0
    while todo:
        index, above = todo.pop()
        here = _times(above, _matrix(nodes[index]))
        todo += [(child, here) for child in _indices(nodes[index].get("children"), nodes)]
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
    """Return whether `value` is a number, and not true or false."""
    return isinstance(value, int | float) and not isinstance(value, bool)
