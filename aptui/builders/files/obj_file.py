"""Checks the lines of Wavefront OBJ and MTL files, and finds the files that they name. This module does not make meshes.

Readers of OBJ silently skip lines that they do not understand, and missing files. This module reports the line to the author.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator

from msgspec import Struct, field

from aptui.builders.common import SourceError, show_count

_LIBRARIES = re.compile(r"\S.*?\.mtl(?=\s|$)", re.IGNORECASE)
_OPTION = re.compile(
    r"-(?:blendu|blendv|bm|boost|cc|clamp|imfchan|texres|type)\s+\S+\s+|-mm\s+\S+\s+\S+\s+|-[ost](?:\s+[-+.\deE]+){1,3}\s+",
    re.IGNORECASE,
)
_TEXTURE = re.compile(r"^\s*(map_\w+|bump|disp|decal|refl|norm)\s+(\S.*?)\s*$", re.IGNORECASE)
_CORNER = re.compile(r"[+-]?[0-9]{1,18}(?:/(?:[+-]?[0-9]{1,18})?){0,2}")
_FEWEST = {"v": 3, "vt": 1, "vn": 3}
"""{kind of line: fewest numbers}, in the order in which the corner of a face refers to these kinds."""
_KINDS = {"v": "vertices", "vt": "texture coordinates", "vn": "normals"}


class Outline(Struct):
    """Content of a valid OBJ. `materials` has the used materials {name: line}; `libraries` are the files after `mtllib`."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_FEWEST, 0))
    face_count: int = 0
    libraries: list[str] = field(default_factory=list)
    materials: dict[str, int] = field(default_factory=dict)


def libraries(text: str) -> list[str]:
    """Return the material files that `text` names, each once."""
    found = [name for words in re.findall(r"^[ \t]*mtllib[ \t]+(\S.*?)\s*$", text, re.MULTILINE) for name in _find_names(words)]
    return list(dict.fromkeys(found))


def textures(text: str) -> list[str]:
    """Return the pictures that the material file `text` names, each once."""
    return list(dict.fromkeys(path for _, path in _texture_lines(text)))


def material_names(text: str) -> set[str]:
    """Return the materials that the material file `text` defines."""
    return {" ".join(line.split()[1:]) for line in text.splitlines() if line.split()[:1] == ["newmtl"]}


def with_textures(text: str, renamed: Callable[[str], str]) -> str:
    """Return the material file `text` with its pictures renamed and without their options, which few readers support."""
    lines = []
    for line in text.splitlines():
        match = _TEXTURE.match(line)
        lines.append(f"{match[1]} {renamed(_without_options(match[2]))}" if match else line)
    return "\n".join(lines) + "\n"


def outline_obj(text: str) -> Outline:
    """Parse `text`.

    Raises:
        SourceError: a vertex without its numbers, a face that refers to a missing element.
    """
    outline = Outline(libraries=libraries(text))
    highest: dict[str, tuple[int, int]] = {}
    for number, line in _lines(text):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        match words[0]:
            case "v" | "vt" | "vn":
                _check_numbers(words, number)
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
            raise SourceError(
                f"the face refers to number {value:,} of the {_KINDS[kind]}, but the file has only {outline.counts[kind]:,}",
                str(number),
            )
    return outline


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


def _check_numbers(words: list[str], number: int) -> None:
    if len(words) <= _FEWEST[words[0]]:
        raise SourceError(f"'{words[0]}' needs {show_count(_FEWEST[words[0]], 'number')}, but has {len(words) - 1}", str(number))
    for word in words[1:]:
        try:
            is_number = math.isfinite(float(word))
        except ValueError:
            is_number = False
        if not is_number and not word.startswith("#"):
            raise SourceError(f"'{words[0]}' has {word!r}, which is not a number", str(number))
        if not is_number:
            break


def _check_face(corners: list[str], counts: dict[str, int], highest: dict[str, tuple[int, int]], number: int) -> None:
    corners = corners[: next((at for at, corner in enumerate(corners) if corner.startswith("#")), len(corners))]
    if len(corners) < 3:
        raise SourceError(f"a face needs at least 3 corners, but this face has {len(corners)}", str(number))
    for corner in corners:
        if not _CORNER.fullmatch(corner):
            raise SourceError(f"{corner!r} is not a valid corner of a face; write corners like 1, 1/2 or 1/2/3", str(number))
        for kind, part in zip(_FEWEST, corner.split("/"), strict=False):
            if not part:
                continue
            value = int(part)
            if value == 0:
                raise SourceError(f"the face refers to number 0 of the {_KINDS[kind]}, but these numbers begin at 1", str(number))
            if -value > counts[kind]:
                raise SourceError(
                    f"the face refers to number {value:,} of the {_KINDS[kind]}, but the file defines only {counts[kind]:,} "
                    "before the face",
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
