"""Checks the lines of Wavefront OBJ and MTL files, finds the files that they name, and splits concave faces.

Most readers of OBJ silently skip a missing file and an unknown line. These functions report both, with the number of the line.

Tests: `tests/builders/test_mesh_file.py`.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct, field

from aptui.builders.common import SourceError, shorten, show_count

MOST_CORNERS = 256
"""Maximum number of corners of a concave face that is split correctly, because the time grows with the square of their number."""

_CORNERS_AT_ONCE = 1 << 16
"""Number of corners whose geometry is computed at once; this limits the memory for a large model."""
_LEAST_BEND = 1e-6
"""Minimum bend at a corner of a concave face, as a share of the squared area; smaller bends are rounding errors."""
_LIBRARIES = re.compile(r"\S.*?\.mtl(?=\s|$)", re.IGNORECASE)
_OPTION = re.compile(
    r"-(?:blendu|blendv|bm|boost|cc|clamp|imfchan|texres|type)\s+\S+\s+|-mm\s+\S+\s+\S+\s+|-[ost](?:\s+[-+.\deE]+){1,3}\s+",
    re.IGNORECASE,
)
_TEXTURE = re.compile(r"^\s*(map_\w+|bump|disp|decal|refl|norm)\s+(\S.*?)\s*$", re.IGNORECASE)
_CORNER = re.compile(r"[+-]?[0-9]{1,18}(?:/(?:[+-]?[0-9]{1,18})?){0,2}")
_FEWEST = {"v": 3, "vt": 1, "vn": 3}
"""{keyword of a line: minimum count of numbers in the line}.

The indices in the corner of a face, such as 1/2/3, refer to the keywords in this order: vertex 1, texture coordinate 2, normal 3.
"""
_COLOURS = {"ka": 3, "kd": 3, "ks": 3, "ke": 3, "ns": 1, "d": 1, "tr": 1}
"""{keyword of a material file (in lower case): count of its numbers}: colours, the size of highlights, and the opacity."""
_USED_TEXTURE = "map_kd"
"""Keyword of the only picture of a material that becomes a part of the model: its colours."""
_KINDS = {"v": ("vertex", "vertices"), "vt": ("texture coordinate", "texture coordinates"), "vn": ("normal", "normals")}
"""{keyword of a line: (singular, plural) of the element that the line defines}."""


class Outline(Struct):
    """Content of a valid OBJ. `materials` has the used materials {name: line}; `libraries` are the files after `mtllib`."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_FEWEST, 0))
    face_count: int = 0
    libraries: list[str] = field(default_factory=list)
    materials: dict[str, int] = field(default_factory=dict)


def list_libraries(text: str) -> list[str]:
    """Return the names of the material files in the OBJ file with content `text`, each once."""
    found = [name for words in re.findall(r"^[ \t]*mtllib[ \t]+(\S.*?)\s*$", text, re.MULTILINE) for name in _find_names(words)]
    return list(dict.fromkeys(found))


def list_textures(text: str) -> list[str]:
    """Return the names of the pictures in the material file with content `text`, each once."""
    return list(dict.fromkeys(path for _, path in _texture_lines(text)))


def list_unused_textures(text: str) -> list[str]:
    """Return the keywords of the pictures in the material file with content `text` that do not become a part of the model."""
    return sorted({kind.lower() for kind, _ in _texture_lines(text)} - {_USED_TEXTURE})


def material_names(text: str) -> set[str]:
    """Return the names of the materials that the material file with content `text` defines."""
    return {" ".join(line.split()[1:]) for line in text.splitlines() if line.split()[:1] == ["newmtl"]}


def leave_out_wrong_colours(text: str) -> tuple[str, list[SourceError]]:
    """Return the content `text` of a material file without the colours that are not numbers, and their mistakes.

    Comments behind colours are removed.
    """
    lines, wrong = text.splitlines(), []
    for at, line in enumerate(lines):
        words = line.split()
        if words[:1] and words[0].lower() in _COLOURS and words[1:2] != ["spectral"] and words[1:2] != ["xyz"]:
            try:
                check_numbers(words, _COLOURS[words[0].lower()], at + 1)
                lines[at] = line.partition("#")[0]  # trimesh cannot read a comment behind numbers
            except SourceError as error:
                lines[at] = ""
                wrong.append(error)
    return "\n".join(lines) + "\n", wrong


def with_textures(text: str, renamed: Callable[[str], str]) -> str:
    """Return the content `text` of a material file with renamed pictures, and without their options, which few readers support."""
    lines = []
    for line in text.splitlines():
        match = _TEXTURE.match(line)
        lines.append(f"{match[1]} {renamed(_without_options(match[2]))}" if match else line)
    return "\n".join(lines) + "\n"


def outline_obj(text: str) -> Outline:
    """Parse `text`.

    Raises:
        SourceError: a vertex lacks numbers, or a face refers to an element that does not exist.
    """
    outline = Outline(libraries=list_libraries(text))
    highest: dict[str, tuple[int, int]] = {}
    for number, line in _lines(text):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        match words[0]:
            case "v" | "vt" | "vn":
                check_numbers(words, _FEWEST[words[0]], number)
                outline.counts[words[0]] += 1
            case "f":
                _check_face(words[1:], outline.counts, highest, number)
                outline.face_count += 1
            case "usemtl":
                outline.materials.setdefault(" ".join(words[1:]), number)
            case _:
                pass
    for kind, (value, number) in highest.items():
        if value > outline.counts[kind]:
            present = show_count(outline.counts[kind], *_KINDS[kind])
            raise SourceError(
                f"the face refers to {_KINDS[kind][0]} {value:,}, but the file has only {present}",
                str(number),
            )
    return outline


def split_concave_faces(text: str) -> str:
    """Return a checked OBJ with concave faces split into triangles, and without comments behind numbers.

    trimesh splits each face into a fan of triangles, which would cover the notches of a concave face.
    """
    import numpy as np

    lines, numbers = [line for _, line in _lines(text)], array("d")
    faces: dict[int, tuple[array[int], array[int]]] = {}
    for place, line in enumerate(lines):
        words = line.partition("#")[0].split()
        if "#" in line and words[:1] and (words[0] == "f" or words[0] in _FEWEST):
            lines[place] = " ".join(words)  # trimesh cannot read a comment behind numbers
        if words[:1] == ["v"]:
            numbers.extend(map(float, words[1:4]))
        elif words[:1] == ["f"] and 4 < len(words) <= MOST_CORNERS + 1:
            places, corners = faces.setdefault(len(words) - 1, (array("q"), array("q")))
            places.append(place)
            indices = (int(corner.partition("/")[0]) for corner in words[1:])
            corners.extend(each - 1 if each > 0 else each + len(numbers) // 3 for each in indices)
    vertices = np.array(numbers).reshape(-1, 3)
    for size, (places, corners) in faces.items():
        group_size = _CORNERS_AT_ONCE // size
        for first in range(0, len(places), group_size):
            group = np.array(corners[first * size : (first + group_size) * size]).reshape(-1, size)
            for at, triangles in _split_faces(vertices[group]):
                words = lines[places[first + at]].split()[1:]
                lines[places[first + at]] = "\n".join(f"f {words[a]} {words[b]} {words[c]}" for a, b, c in triangles)
    return "\n".join(lines)


def _split_faces(points: Any) -> Iterator[tuple[int, list[tuple[int, int, int]]]]:
    """Yield (number, triangles) of each concave face.

    `points` has the positions of the corners of each face; all faces have the same number of corners.
    """
    import numpy as np

    with np.errstate(all="ignore"):  # a later check reports numbers that are too large
        edges = np.roll(points, -1, axis=1) - points
        normals = np.cross(points - points[:, :1], edges).sum(axis=1)
        bends = (np.cross(np.roll(edges, 1, axis=1), edges) * normals[:, None]).sum(axis=2)
        is_concave = (bends < -_LEAST_BEND * (normals * normals).sum(axis=1)[:, None]).any(axis=1)
    for at in np.flatnonzero(is_concave):
        if triangles := _clip_ears(points[at], normals[at]):
            yield int(at), triangles


def _clip_ears(points: Any, normal: Any) -> list[tuple[int, int, int]]:
    """Return the triangles of a polygon as numbers of its corners; [] if its edges cross each other."""
    import numpy as np

    axis = int(np.abs(normal).argmax())
    flat = points[:, [(axis + 1) % 3, (axis + 2) % 3]] * [math.copysign(1.0, normal[axis]), 1.0]

    def side(first: int, second: int, others: Any) -> Any:
        """Return a positive number for each point at the left of the line from one corner to another."""
        (x, y), (left, top) = flat[second] - flat[first], (others - flat[first]).T
        return x * top - y * left

    corners, triangles = list(range(len(points))), []
    while len(corners) > 3:
        for at, middle in enumerate(corners):
            before, after = corners[at - 1], corners[(at + 1) % len(corners)]
            is_corner = (points[corners][:, None] == points[[before, middle, after]]).all(axis=2).any(axis=1)
            others = flat[corners][~is_corner]
            is_inside = [side(*edge, others) >= 0 for edge in ((before, middle), (middle, after), (after, before))]
            if side(before, middle, flat[[after]])[0] > 0 and not np.all(is_inside, axis=0).any():
                triangles.append((before, middle, after))
                del corners[at]
                break
        else:
            return []
    return [*triangles, (corners[0], corners[1], corners[2])]


def _lines(text: str) -> Iterator[tuple[int, str]]:
    r"""Yield (number, line); a line that ends in `\` is joined with the next line."""
    begun, first = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        if line.rstrip("\r").endswith("\\"):
            first = first or number
            begun += line.rstrip("\r")[:-1] + " "
        else:
            yield first or number, begun + line
            begun, first = "", 0
    if begun:
        yield first, begun


def check_numbers(words: list[str], fewest: int, number: int) -> None:
    """Check that at least `fewest` finite numbers follow the keyword of line `number`; a comment may follow them."""
    if len(words) <= fewest:
        raise SourceError(f"'{words[0]}' needs {show_count(fewest, 'number')}, but has {len(words) - 1}", str(number))
    for word in words[1:]:
        try:
            is_number = math.isfinite(float(word))
        except ValueError:
            is_number = False
        if not is_number and not word.startswith("#"):
            raise SourceError(f"'{words[0]}' has {shorten(repr(word))}, which is not a number", str(number))
        if not is_number:
            break


def _check_face(corners: list[str], counts: dict[str, int], highest: dict[str, tuple[int, int]], number: int) -> None:
    corners = corners[: next((at for at, corner in enumerate(corners) if corner.startswith("#")), len(corners))]
    if len(corners) < 3:
        raise SourceError(f"a face needs at least 3 corners, but this face has {len(corners)}", str(number))
    for corner in corners:
        if not _CORNER.fullmatch(corner):
            what = f"{shorten(repr(corner))} is not a valid corner of a face; write corners like 1, 1/2 or 1/2/3"
            raise SourceError(what, str(number))
        for kind, part in zip(_FEWEST, corner.split("/"), strict=False):
            if not part:
                continue
            value = int(part)
            if value == 0:
                raise SourceError(f"the face refers to {_KINDS[kind][0]} 0, but {_KINDS[kind][1]} are numbered from 1", str(number))
            if -value > counts[kind]:
                raise SourceError(
                    f"the face refers to {_KINDS[kind][0]} {value:,}, counted back from the face, but the file has only "
                    f"{show_count(counts[kind], *_KINDS[kind])} before it",
                    str(number),
                )
            if value > highest.get(kind, (0, 0))[0]:
                highest[kind] = value, number


def _find_names(words: str) -> list[str]:
    """Return the names after `mtllib`: several names, or one name that contains blanks."""
    return _LIBRARIES.findall(words) or [words]


def _texture_lines(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        if (match := _TEXTURE.match(line)) and (path := _without_options(match[2])):
            yield match[1], path


def _without_options(words: str) -> str:
    while match := _OPTION.match(words):
        words = words[match.end() :]
    return words
