"""The model on the demo's page: a paper lantern with brass caps and a handle, as glTF and its buffer.

Tests: `tests/features/gateway/web/test_web_demo.py`.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct, field

Vector: TypeAlias = tuple[float, float, float]
Surface: TypeAlias = Callable[[float, float], Vector]
"""A surface: a function from u and v (0 to 1) to a point in space."""

MODEL, BUFFER = "models/lamp.gltf", "models/lamp.bin"
PAPER = (0.93, 0.56, 0.24, 1.0)
"""The colour of the paper (RGBA), which the demo asks the user to change."""
_BRASS = (0.35, 0.29, 0.22, 1.0)
_RIBS = 9
_STEP = 1e-4


def files() -> dict[str, bytes]:
    """Return {path below assets: bytes} of the model."""
    paper, brass = _Mesh(), _Mesh()
    paper.add(_paper, 54, 48)
    brass.add(_cap(0.0), 12, 36)
    brass.add(_cap(1.0), 12, 36)
    brass.add(_handle, 10, 28)
    data, tree = _assemble([("paper", paper, PAPER, (0.1, 0.05, 0.01)), ("brass", brass, _BRASS, (0.0, 0.0, 0.0))])
    return {MODEL: (json.dumps(tree, indent=2) + "\n").encode(), BUFFER: data}


# ---------------------------------------------------------------------------------------------------------------- surfaces


def _paper(u: float, v: float) -> Vector:
    angle, radius = 2 * math.pi * u, 0.24 + 0.3 * math.sin(math.pi * v) ** 0.8
    radius *= 1 - 0.05 * abs(math.cos(math.pi * _RIBS * v))
    return radius * math.sin(angle), v, radius * math.cos(angle)


def _cap(height: float) -> Surface:
    """Return the surface of a cap: a flat cushion around the axis."""

    def point(u: float, v: float) -> Vector:
        angle, slope = 2 * math.pi * u, math.pi * (v - 0.5)
        radius = 0.25 * math.cos(slope) ** 0.3 if abs(slope) < math.pi / 2 else 0.0
        rise = math.copysign(abs(math.sin(slope)) ** 0.3, slope) * 0.045
        return radius * math.sin(angle), height + rise, radius * math.cos(angle)

    return point


def _handle(u: float, v: float) -> Vector:
    """Return the point at u, v on the surface of the handle, a half ring above the upper cap."""
    along, around = math.pi * v, 2 * math.pi * u
    radius = 0.17 + 0.017 * math.cos(around)
    return radius * math.cos(along), 1.03 + radius * math.sin(along), 0.017 * math.sin(around)


class _Mesh(Struct):
    points: list[Vector] = field(default_factory=list)
    normals: list[Vector] = field(default_factory=list)
    indices: list[int] = field(default_factory=list)

    def add(self, surface: Surface, rows: int, columns: int) -> None:
        """Add a grid of triangles over a surface."""
        first = len(self.points)
        for row in range(rows + 1):
            for column in range(columns + 1):
                u, v = column / columns, row / rows
                self.points.append(surface(u, v))
                self.normals.append(_normal(surface, u, v))
        for row in range(rows):
            for column in range(columns):
                corner = first + row * (columns + 1) + column
                above = corner + columns + 1
                self.indices += (corner, corner + 1, above + 1, corner, above + 1, above)


def _normal(surface: Surface, u: float, v: float) -> Vector:
    # `v` keeps a distance from both edges, because a surface may end in a point, which has no normal.
    v = min(max(v, 2 * _STEP), 1 - 2 * _STEP)
    across = _minus(surface(u + _STEP, v), surface(u - _STEP, v))
    along = _minus(surface(u, v + _STEP), surface(u, v - _STEP))
    x, y, z = (across[(i + 1) % 3] * along[(i + 2) % 3] - across[(i + 2) % 3] * along[(i + 1) % 3] for i in range(3))
    length = math.hypot(x, y, z) or 1.0
    return x / length, y / length, z / length


def _minus(one: Vector, other: Vector) -> Vector:
    return one[0] - other[0], one[1] - other[1], one[2] - other[2]


# -------------------------------------------------------------------------------------------------------------------- glTF


def _assemble(parts: list[tuple[str, _Mesh, tuple[float, ...], tuple[float, ...]]]) -> tuple[bytes, dict[str, object]]:
    """Return the buffer and the glTF tree of a model made of parts (name, mesh, colour, emitted light)."""
    data = b""
    views, accessors, primitives, materials = (list[dict[str, object]]() for _ in range(4))
    for name, mesh, colour, glow in parts:
        columns = list(zip(*mesh.points, strict=True))
        extent = {"min": [round(min(each), 6) for each in columns], "max": [round(max(each), 6) for each in columns]}
        for packed, kind, count, form, more in (
            (_floats(mesh.points), 5126, len(mesh.points), "VEC3", extent),
            (_floats(mesh.normals), 5126, len(mesh.normals), "VEC3", {}),
            (struct.pack(f"<{len(mesh.indices)}H", *mesh.indices), 5123, len(mesh.indices), "SCALAR", {}),
        ):
            accessors.append({"bufferView": len(views), "componentType": kind, "count": count, "type": form, **more})
            views.append({"buffer": 0, "byteOffset": len(data), "byteLength": len(packed)})
            data += packed + bytes(-len(packed) % 4)
        at = len(accessors)
        primitives.append({"attributes": {"POSITION": at - 3, "NORMAL": at - 2}, "indices": at - 1, "material": len(materials)})
        materials.append({"name": name, "pbrMetallicRoughness": {"baseColorFactor": list(colour)}, "emissiveFactor": list(glow)})
    return data, {
        "asset": {"version": "2.0", "generator": "aptui demo"},
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [{"name": "lamp", "mesh": 0}],
        "materials": materials,
        "meshes": [{"name": "lamp", "primitives": primitives}],
        "buffers": [{"uri": "lamp.bin", "byteLength": len(data)}],
        "bufferViews": views,
        "accessors": accessors,
    }


def _floats(vectors: list[Vector]) -> bytes:
    # Numbers are rounded, so that every machine writes the same file.
    return struct.pack(f"<{3 * len(vectors)}f", *(round(number, 6) for vector in vectors for number in vector))
