"""Finds the art of a game in a folder by the names of files and folders: textures, sprites, sounds, fonts, translations.

A team that loads files with its own engine, or with Bevy, needs products for GPUs. The proposal of `aptui init` (`config.proposal`)
gets the parameters and rules of the shipped builders from here. Textures of materials need no rules, because the builder `texture`
knows the ends of their names.

Tests: `tests/config/test_game_art.py`.
"""

from __future__ import annotations

import json
import posixpath
import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

PLATFORMS = """\
# The platform of this machine is always enabled; its textures are for GPUs of desktops (BC). Those of `mobile` are for phones
# (ASTC).
platforms:
  mobile: {tags: [mobile]}"""

_PICTURES = frozenset(("png", "jpg", "jpeg", "tga", "bmp", "tif", "tiff", "webp"))
_OTHER_ART = frozenset((
    "wav", "flac", "ogg", "mp3", "aif", "aiff", "gltf", "glb", "obj", "fbx", "tmx", "tmj", "ldtk", "atlas", "vert", "frag", "comp",
))  # fmt: skip
"""Extensions of files that, beside pictures, show that a folder has the art of a game."""
_MATERIAL = re.compile(
    r"[_-](n|nrm|nor|normal|orm|arm|mra|ao|roughness|metallic|metalness|albedo|basecolor|diffuse|height)(_?(gl|dx))?(@\dx)?\.\w+$"
)
"""Matches the name, in lower case, of a texture of a material."""
_FACES = (
    ("px", "nx", "py", "ny", "pz", "nz"),
    ("right", "left", "up", "down", "front", "back"),
    ("right", "left", "top", "bottom", "front", "back"),
)
"""Ends of the names of the six pictures of a cube map, in the order of the parameter `faces`."""
_FOLDERS = {
    "sprites": ("sprites", "sprite", "icons", "ui", "gui", "hud"),
    "ui": ("ui", "gui", "hud", "menu", "icons", "sprites", "fonts"),
    "normal": ("normals", "normalmaps"),
    "effects": ("sfx", "fx", "effects", "soundfx", "sound_effects", "foley", "footsteps"),
    "voice": ("voice", "voices", "vo", "speech", "dialog", "dialogue"),
}
"""{kind of files: common names of their folders}."""
_LANGUAGE = re.compile(
    r"(ar|bg|bn|ca|cs|da|de|el|en|es|et|eu|fa|fi|fr|gl|he|hi|hr|hu|id|it|ja|ko|lt|lv|ms|nb|nl|nn|no|pl|pt|ro|ru|sk|sl|sr|sv|th|tr|uk"
    r"|vi|zh)([_-]\w+)?"
)
"""Matches a common language in lower case, such as `de` or `pt_br`; columns of other tables may be named `hp` or `xp`."""
_SHADER = re.compile(r"\.(vert|frag|comp|geom|tesc|tese)(\.glsl)?$")
_OPENGL = re.compile(rb"^\s*#\s*version\s+(?:[123]\d\d|4[01]0)\b", re.MULTILINE)
"""Matches the version of GLSL before 4.20, in which textures cannot have the bindings that SPIR-V needs."""
_KEY_COLUMNS = ("", "key", "keys", "id", "string", "string_id", "name", "term")
_LONGEST_SIDE, _FEWEST_SPRITES = 1024, 4
"""Maximum side (pixels) of a picture that is put on a page, and minimum number of pictures for which a page is proposed."""


class Atlas(Struct, frozen=True):
    """A new `.atlas` file, which puts the `count` pictures of a folder on pages; `folder` is relative to the scan folder."""

    folder: str
    count: int
    patterns: tuple[str, ...]

    @property
    def path(self) -> str:
        """The path of the file, relative to the scan folder."""
        return f"{self.folder}/{posixpath.basename(self.folder)}.atlas"

    def text(self) -> str:
        """Return the content of the file."""
        return json.dumps({"sprites": self.patterns}) + "\n"


class Art(Struct, frozen=True):
    """The art in a folder, as its names show it; `is_game` is false if the files are not the art of a game.

    Args:
        folders: {kind as in `_FOLDERS`: patterns of existing folders}.
        faces: ends of the file names of cube maps, such as `_px.png`, in the order of the builder's parameter.
        template: value of the parameter `template` of the builder `locale`, "" = none.
        text_tables: CSV files with a column for each language.
        characters: patterns of all translations.
        gl_shaders: shaders in GLSL of OpenGL or OpenGL ES, which SPIR-V does not support.
    """

    is_game: bool = False
    folders: dict[str, list[str]] = {}
    faces: tuple[str, ...] = ()
    atlases: tuple[Atlas, ...] = ()
    template: str = ""
    text_tables: tuple[str, ...] = ()
    characters: tuple[str, ...] = ()
    gl_shaders: tuple[str, ...] = ()

    def keys_of(self, builder: str, *, has_textures: bool, has_simplifier: bool) -> dict[str, object]:
        """Return the keys of the entry for a builder, in addition to its name and patterns.

        Args:
            builder: the name in the key `uses`.
            has_textures: whether the project makes GPU textures.
            has_simplifier: whether the program that makes levels of detail is installed.
        """
        if builder == "audio":
            rules = [("effects", {"format": "adpcm"}), ("voice", {"format": "opus", "channels": "mono"})]
            found = [{"files": self.folders[kind], "params": params} for kind, params in rules if kind in self.folders]
            return {"params": {"format": "vorbis"}, **({"rules": found} if found else {})}
        if builder == "model":
            params: dict[str, object] = {"tangents": "needed"}
            params |= {"textures": "ktx2"} if has_textures else {}
            return {"params": params | ({"lods": [0.5, 0.2]} if has_simplifier else {})}
        if builder == "shader" and self.gl_shaders:
            copied = {"output": "source", "reflect": False}
            return {"params": {"reflect": True}, "rules": [{"files": self.gl_shaders, "params": copied}]}
        if builder == "shader":
            return {"params": {"reflect": True}}
        if builder == "tilemap" and has_textures:
            return {"params": {"textures": "ktx2"}}
        if builder == "locale" and self.template:
            params = {"template": self.template}
            return {"rules": [{"files": ["*.po"], "params": params}]} if self.text_tables else {"params": params}
        if builder == "table" and self.text_tables:
            return {"exclude": self.text_tables}
        return {}

    @property
    def packed_count(self) -> int:
        """Number of pictures that are on pages, and need no texture of their own."""
        return sum(atlas.count for atlas in self.atlases)

    def exclude_packed(self, more: Sequence[str] = ()) -> dict[str, object]:
        """Return the key `exclude` for pictures on pages, and for the patterns `more`."""
        excluded = [*(f"{atlas.folder}/*" for atlas in self.atlases), *more]
        return {"exclude": excluded} if excluded else {}

    def texture_keys(self) -> dict[str, object]:
        """Return the keys of the entry for GPU textures."""
        keys = self.exclude_packed([f"*{face}" for face in self.faces[1:]])
        rules: list[object] = [
            {"files": self.folders[usage], "params": {"usage": usage}} for usage in ("normal", "ui") if usage in self.folders
        ]
        if self.faces:
            faces = [f"{{name}}{face}" for face in self.faces]
            rules.append({"files": [f"*{self.faces[0]}"], "params": {"faces": faces}})
        keys |= {"params": {"sides": "multiple_of_four"}, "platforms": {"mobile": {"max_size": 1024}}}
        return keys | ({"rules": rules} if rules else {})


def inspect(root: Path, names: Sequence[str]) -> Art:
    """Return the art that the files `names` below the scan folder `root` show.

    Pictures are the art of a game if some are named as textures of materials, or if sounds, models, maps or shaders exist, too.
    """
    lowered = [name.lower() for name in names]
    kinds = {_extension(name) for name in lowered}
    pictures = [name for name in lowered if _extension(name) in _PICTURES]
    if not pictures or not (kinds & _OTHER_ART or any(map(_MATERIAL.search, pictures))):
        return Art()
    atlases = () if "atlas" in kinds else tuple(_find_atlases(root, names))
    packed = tuple(f"{atlas.folder.lower()}/" for atlas in atlases)
    folders = {}
    for kind, common in _FOLDERS.items():
        seen = [name for name in pictures if not name.startswith(packed)] if kind in ("ui", "normal") else lowered
        if found := [pattern for each in common for pattern in (f"{each}/*", f"*/{each}/*") if _has(pattern, seen)]:
            folders[kind] = found
    tables = tuple(name for name in names if _extension(name) in ("csv", "tsv") and _is_text_table(root / name))
    translations = tuple(f"*.{each}" for each in ("po", "xlf", "xliff") if each in kinds)
    shaders = tuple(name for name in names if _SHADER.search(name.lower()) and _OPENGL.search(_read(root / name, 4096)))
    faces, template = _find_faces(names), _find_template(names)
    return Art(True, folders, faces, atlases, template, tables, (*translations, *tables), shaders)


def _extension(name: str) -> str:
    return name.rpartition(".")[2].lower()


def _has(pattern: str, names: Iterable[str]) -> bool:
    part = pattern.rstrip("*")
    return any(part[1:] in name for name in names) if part.startswith("*") else any(name.startswith(part) for name in names)


def _find_atlases(root: Path, names: Sequence[str]) -> Iterator[Atlas]:
    """Yield an atlas for each folder of sprites whose pictures are all small PNGs.

    A folder with a GIF gets no atlas: the pages lack the GIF, and the rule for textures leaves out the whole folder.
    """
    folders: dict[str, list[str]] = {}
    for name in names:
        parts = name.split("/")[:-1]
        at = next((number for number, part in enumerate(parts, 1) if part.lower() in _FOLDERS["sprites"]), 0)
        if at:
            folders.setdefault("/".join(parts[:at]), []).append(name)
    for folder, files in folders.items():
        pictures = [name for name in files if _extension(name) in _PICTURES | {"gif"}]
        extensions = sorted({_extension(name) for name in pictures})
        if len(pictures) >= _FEWEST_SPRITES and all(_is_sprite(root / name) for name in pictures):
            tables = [name for name in files if _extension(name) == "json"]
            sheets = ["./*.json"] if tables and all(_is_sheet(root / name) for name in tables) else []
            yield Atlas(folder, len(pictures), (*(f"./*.{each}" for each in extensions), *sheets))


def _is_sprite(file: Path) -> bool:
    """Return whether a picture is a PNG with sides that fit on a page."""
    head = _read(file, 24)
    if not head.startswith(b"\x89PNG\r\n\x1a\n") or len(head) < 24:
        return False
    width, height = struct.unpack(">II", head[16:24])
    return bool(max(width, height) <= _LONGEST_SIDE)


def _is_sheet(file: Path) -> bool:
    return b"aseprite.org" in _read(file, 1 << 20)


def _is_text_table(file: Path) -> bool:
    """Return whether the first line of a CSV names a key, then only languages."""
    line = _read(file, 4096).decode("utf-8-sig", "replace").partition("\n")[0].strip().lower()
    columns = [column.strip(' "') for column in re.split(r"[,;\t]", line)]
    return columns[0] in _KEY_COLUMNS and len(columns) > 1 and all(map(_LANGUAGE.fullmatch, columns[1:]))


def _find_faces(names: Sequence[str]) -> tuple[str, ...]:
    """Return the ends of the file names of the first cube map, in their own case; () if no six pictures are named so."""
    known = {name.lower(): name for name in names}
    for name in known:
        for faces in _FACES:
            stem, extension = posixpath.splitext(name)
            head, separator = stem[: -len(faces[0]) - 1], stem[-len(faces[0]) - 1 : -len(faces[0])]
            found = [known.get(f"{head}{separator}{face}{extension}", "") for face in faces]
            if separator in ("_", "-") and all(found):
                return tuple(each[len(head) :] for each in found)
    return ()


def _find_template(names: Sequence[str]) -> str:
    """Return the template of the translations: a `.pot` beside all of them, or the only `.pot`."""
    folders = {posixpath.dirname(name) for name in names if name.lower().endswith(".po")}
    templates = [posixpath.split(name) for name in names if name.lower().endswith(".pot")]
    for file, _count in Counter(file for _folder, file in templates).most_common():
        if folders <= {folder for folder, each in templates if each == file}:
            return f"./{file}"
    return posixpath.join(*templates[0]) if len(templates) == 1 and folders else ""


def _read(file: Path, size: int) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(size)
    except OSError:
        return b""
