"""The demo project's models, shaders, fonts and data: their sources, and which of them this host can build.

Sources that need a package of the extra `builders`, or a program, are in an `Extra`. The demo leaves out each `Extra` that this
host cannot build. The lamp on the demo's page is a paper lantern with brass caps and a handle, as glTF and its buffer.

Tests: `tests/demo/test_demo_project.py`.
"""

from __future__ import annotations

import io
import json
import math
import struct
from collections.abc import Callable, Mapping
from typing import TypeAlias

from msgspec import Struct, field

from aptui.builders.lua_builder import can_compile
from aptui.builders.shader_builder import COMPILERS
from aptui.sdk import find_program, has_library
from aptui.shared.errors import install_advice

Vector: TypeAlias = tuple[float, float, float]
Surface: TypeAlias = Callable[[float, float], Vector]
"""A surface: a function from u and v (0 to 1) to a point in space."""

MODEL, BUFFER = "models/lamp.gltf", "models/lamp.bin"
PAPER = (0.93, 0.56, 0.24, 1.0)
"""The colour of the lamp's paper (RGBA). The demo asks the user to change it."""
_BRASS = (0.35, 0.29, 0.22, 1.0)
_RIBS = 9
_STEP = 1e-4


def lamp_files() -> dict[str, bytes]:
    """Return {path below `assets`: bytes} of the glTF model of a lamp, which the demo's page in the browser shows."""
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
    # Keep `v` away from 0 and 1, because the surface may end there in a point, which has no normal.
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


class Extra(Struct, frozen=True):
    """A group of demo sources that not every host can build.

    `config` has its builders in YAML. `files` is {path below assets: text, or a function that returns the bytes}. `makes` names its
    products in a few words, and `needs` says how to install its requirements.
    """

    name: str
    is_possible: Callable[[], bool]
    product_count: int
    config: str
    files: Mapping[str, str | Callable[[], bytes]]
    makes: str
    needs: str


# The lantern is a cube. Each face has the texture of the floor.
_LANTERN = """# Eight corners, six sides.
mtllib lantern.mtl
o lantern
v -0.5 0.0 -0.5
v 0.5 0.0 -0.5
v 0.5 1.0 -0.5
v -0.5 1.0 -0.5
v -0.5 0.0 0.5
v 0.5 0.0 0.5
v 0.5 1.0 0.5
v -0.5 1.0 0.5
vt 0 0
vt 1 0
vt 1 1
vt 0 1
usemtl checker
f 5/1 6/2 7/3 8/4
f 2/1 1/2 4/3 3/4
f 6/1 2/2 3/3 7/4
f 1/1 5/2 8/3 4/4
f 8/1 7/2 3/3 4/4
f 1/1 2/2 6/3 5/4
"""

_SHADER = """#version 450
#extension GL_GOOGLE_include_directive : enable
#include "light.glsl"

layout(location = 0) in vec2 at;
layout(location = 0) out vec4 colour;

void main() {
  colour = vec4(lantern_light(length(at)), 1.0);
}
"""

_LIGHT = """vec3 lantern_light(float distance) {
  return vec3(1.0, 0.9, 0.7) / (1.0 + distance * distance);
}
"""


def _translations(language: str, greeting: str, moth: str, moths: str) -> str:
    head = f'msgid ""\nmsgstr ""\n"Language: {language}\\n"\n"Plural-Forms: nplurals=2; plural=(n > 1);\\n"\n\n'
    texts = f'msgid "Good evening, {{name}}."\nmsgstr "{greeting}"\n\nmsgid "%d moth"\nmsgid_plural "%d moths"\n'
    return f'{head}{texts}msgstr[0] "{moth}"\nmsgstr[1] "{moths}"\n'


FILES: Mapping[str, str] = {
    "levels/hill.yaml": "name: Lantern Hill\nsize: [64, 48]\nlamps:\n  - &lamp {at: [3, 4], light: 1.0}\n"
    "  - {<<: *lamp, at: [9, 2]}\n",
    "levels/stair.yaml": "name: The Unlit Stair\nsize: [16, 96]\nlamps: []\n",
    "levels/level.schema": json.dumps(
        {
            "type": "object",
            "required": ["name", "size"],
            "properties": {"name": {"type": "string"}, "size": {"type": "array", "items": {"type": "integer", "minimum": 1}}},
        },
        indent=2,
    )
    + "\n",
    "languages/de.po": _translations("de", "Guten Abend, {name}.", "%d Motte", "%d Motten"),
    "languages/fr.po": _translations("fr", "Bonsoir, {name}.", "%d papillon", "%d papillons"),
    "dialogue/keeper.xml": (
        '<?xml version="1.0" encoding="UTF-8"?>\n<!-- Who keeps the lantern. -->\n<dialogue who="keeper">\n'
        "  <line>Good evening.</line>\n  <line mood='tired'>Is it late?</line>\n</dialogue>\n"
    ),
}
"""{path below the assets folder: text} of the sources that every host can build."""


def moth_buffer() -> bytes:
    """Return the buffer of `models/moth.gltf`: two triangles with normals and texture coordinates, then their indices."""
    corners = [(-0.5, 0.0, 0.0), (0.5, 0.0, 0.0), (0.5, 1.0, 0.0), (-0.5, 1.0, 0.0)]
    places = [(0.0, 1.0), (0.25, 1.0), (0.25, 0.0), (0.0, 0.0)]
    numbers = (
        [number for corner in corners for number in corner] + [0.0, 0.0, 1.0] * 4 + [each for place in places for each in place]
    )
    return struct.pack("<32f6H", *numbers, 0, 1, 2, 0, 2, 3)


def moth_model() -> str:
    """Return `models/moth.gltf`, which refers to the file of its buffer and to a picture in another folder."""
    views = [(0, 48), (48, 48), (96, 32), (128, 12)]
    tree = {
        "asset": {"version": "2.0", "generator": "aptui demo"},
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [{"name": "moth", "mesh": 0}],
        "meshes": [
            {
                "name": "moth",
                "primitives": [{"attributes": {"POSITION": 0, "NORMAL": 1, "TEXCOORD_0": 2}, "indices": 3, "material": 0}],
            }
        ],
        "materials": [{"name": "wings", "pbrMetallicRoughness": {"baseColorTexture": {"index": 0}}, "alphaMode": "BLEND"}],
        "textures": [{"source": 0}],
        "images": [{"uri": "../sprites/moth.png"}],
        "buffers": [{"uri": "moth.bin", "byteLength": 140}],
        "bufferViews": [{"buffer": 0, "byteOffset": offset, "byteLength": length} for offset, length in views],
        "accessors": [
            {"bufferView": 0, "componentType": 5126, "count": 4, "type": "VEC3", "min": [-0.5, 0, 0], "max": [0.5, 1, 0]},
            {"bufferView": 1, "componentType": 5126, "count": 4, "type": "VEC3"},
            {"bufferView": 2, "componentType": 5126, "count": 4, "type": "VEC2"},
            {"bufferView": 3, "componentType": 5123, "count": 6, "type": "SCALAR"},
        ],
    }
    return json.dumps(tree, indent=2) + "\n"


def _font() -> bytes:
    """Return a font of four letters that are drawn as boxes."""
    from fontTools.fontBuilder import FontBuilder
    from fontTools.pens.ttGlyphPen import TTGlyphPen

    sizes = {"L": (500, 700), "a": (400, 450), "m": (600, 450), "p": (400, 300)}
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder([".notdef", *sizes])
    builder.setupCharacterMap({ord(character): character for character in sizes})
    glyphs = {".notdef": TTGlyphPen(None).glyph()}
    for character, (width, height) in sizes.items():
        pen = TTGlyphPen(None)
        pen.moveTo((50, 0))
        for corner in ((50, height), (width, height), (width, 0)):
            pen.lineTo(corner)
        pen.closePath()
        glyphs[character] = pen.glyph()
    builder.setupGlyf(glyphs)
    builder.setupHorizontalMetrics({".notdef": (500, 0)} | {character: (width + 50, 50) for character, (width, _) in sizes.items()})
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "Lantern", "styleName": "Regular"})
    builder.setupOS2(sTypoAscender=800, sTypoDescender=-200, usWinAscent=800, usWinDescent=200)
    builder.setupPost()
    builder.setupHead(unitsPerEm=1000, created=0, modified=0)
    builder.font.recalcTimestamp = False
    stream = io.BytesIO()
    builder.save(stream)
    return stream.getvalue()


_ADVICE = install_advice("builders")

EXTRAS = (
    # "lods" must be the first element: its YAML continues the entry of the builder `models`, which directly precedes the extras.
    Extra(
        "lods",
        lambda: bool(find_program("gltfpack", ())),
        6,
        "    rules: [{files: [models/lamp.gltf], params: {lods: [0.5, 0.1]}}]\n",
        {MODEL: lambda: lamp_files()[MODEL], BUFFER: lambda: lamp_files()[BUFFER]},
        "levels of detail",
        "the package gltfpack",
    ),
    Extra(
        "mesh",
        lambda: has_library("trimesh"),
        2,
        "  - {name: meshes, uses: model, patterns: ['*.obj'], params: {scale: 0.5, normals: smooth},\n"
        "     platforms: {server: {normals: none}}}\n",
        {
            "models/lantern.obj": _LANTERN,
            "models/lantern.mtl": "newmtl checker\nKd 1 1 1\nmap_Kd ../textures/checker.png\n",
        },
        "a model from OBJ",
        _ADVICE,
    ),
    Extra(
        "shader",
        lambda: bool(find_program(None, COMPILERS)),
        4,
        "  - {name: shaders, uses: shader, params: {optimise: size, reflect: true},\n"
        "     platforms: {server: {target_env: opengl, optimise: none}}}\n",
        {"shaders/lamp.frag": _SHADER, "shaders/light.glsl": _LIGHT},
        "shaders",
        "the package glslang-tools",
    ),
    Extra(
        "font",
        lambda: has_library("fontTools") and has_library("brotli"),
        2,
        '  - {name: fonts, uses: font, params: {flavor: woff2}, platforms: {server: {text: "Lamp", flavor: none}}}\n',
        {"fonts/lantern.ttf": _font},
        "fonts",
        _ADVICE,
    ),
    Extra(
        "texture",
        lambda: has_library("etcpak") and has_library("astc_encoder"),
        2,
        "  - {name: gpu, uses: texture, patterns: ['sprites/moth.png'], params: {formats: {linux: bc7, server: astc}}}\n",
        {},
        "GPU textures",
        install_advice("textures"),
    ),
    # A host with neither lupa nor luac cannot compile scripts: there, the demo copies them without changes.
    Extra(
        "lua",
        can_compile,
        0,
        "  - {name: scripts, uses: lua, params: {compile: bytecode, strip: true}, platforms: {server: {compile: check}}}\n",
        {},
        "bytecode of Lua",
        _ADVICE,
    ),
)
