"""The first `aptui.yaml` of a folder: proposes a project that fits its files and its game engine.

Every shipped builder for which the folder has files is used. If a package or program that the builder needs is missing, its entry
becomes a comment with the reason.
Files that only the game engine uses (its project files, its imports, its code) are neither copied nor read.

Tests: `tests/config/test_proposal.py`, `test_game_art.py`.
"""

from __future__ import annotations

import ast
import json
import os
import posixpath
import re
import shutil
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from aptui.config.dirs import FILE_NAME, data_dir
from aptui.config.yaml import nodes
from aptui.config.yaml.nodes import Node
from aptui.core.paths import as_text
from aptui.core.patterns import ignore_matcher
from aptui.core.settings import is_settings
from aptui.shared import printing
from aptui.shared.errors import HostError, UserError
from aptui.shared.files.replacing import read_regular

_MOST_FILES = 100_000
"""Maximum number of files that are counted, so that a huge folder takes little time. Users can add further rules by hand."""
_MOST_CODE_BYTES = 1 << 20
"""Maximum bytes read of a builder's file; the patterns of a longer file stay unknown."""
_EXTENSION = re.compile(r"[a-z0-9_+-]{1,16}")
_NOT_LITERAL = re.compile(r"[*?\\\x00-\x1f\x7f\ud800-\udfff]")
"""Characters that a pattern cannot contain as themselves: wildcards, backslashes, control characters, bytes that are not UTF-8."""
_SPECIAL_IN_RULES = re.compile(r"[*?\[\]\s\\\x00-\x1f\x7f\ud800-\udfff]+")
"""Characters that an ignore rule cannot contain as themselves; in rules of hidden files, `*` replaces them."""
_NEVER_COPIED = frozenset({
    "md", "rst", "log", "bak", "orig", "blend", "psd", "kra", "xcf", "aseprite", "cs", "cpp", "cc", "c", "h", "hpp", "rs", "py",
    "pyc", "sln", "csproj", "toml", "lock", "cfg", "ini", "fbx", "dae", "usd", "usda", "usdc", "usdz", "max", "mb", "ase", "clip",
    "svg", "als", "flp", "aup3", "rpp", "tps", "spp", "sbs", "ztl",
})  # fmt: skip
"""Extensions that are never copied: documents, working files of other programs, code and its settings."""
_STAGES = frozenset(("vert", "frag", "comp", "geom", "tesc", "tese"))
_GLSLANG = ("glslangValidator", "glslang", "glslc")


class ShippedBuilder(Struct, frozen=True):
    """A builder of aptui that can be proposed.

    Args:
        extensions: extensions of its sources. `companions` are extensions of files that its sources use, so these files need no
            copy rule.
        module: the Python module that the builder needs, "" = none. `programs`: the builder needs one of these, () = none.
        package: the package of `module`, by default its name.
    """

    name: str
    uses: str
    extensions: tuple[str, ...]
    companions: tuple[str, ...] = ()
    module: str = ""
    programs: tuple[str, ...] = ()
    package: str = ""

    def lacks(self) -> str:
        """Return the package or program that the builder needs and this machine lacks, "" = nothing is missing."""
        if self.module and find_spec(self.module) is None:
            return f"needs a Python package: pip install {self.package or self.module.lower()}"
        if self.programs and not any(shutil.which(name) for name in self.programs):
            return f"needs the program {self.programs[0]}, for example from the package glslang-tools"
        return ""


BUILDERS = (
    ShippedBuilder("textures", "image", ("png", "jpg", "jpeg", "tga", "bmp", "gif", "tif", "tiff", "webp")),
    ShippedBuilder("sounds", "audio", ("wav", "flac", "ogg", "mp3", "aif", "aiff")),
    ShippedBuilder("models", "model", ("gltf", "glb"), ("bin",)),
    ShippedBuilder("meshes", "model", ("obj", "stl", "ply", "off"), ("mtl",), module="trimesh"),
    ShippedBuilder(
        "shaders",
        "shader",
        (*sorted(_STAGES), *(f"{stage}.{language}" for language in ("glsl", "hlsl") for stage in sorted(_STAGES))),
        ("glsl", "glslinc", "hlsli", "inc"),
        programs=_GLSLANG,
    ),
    ShippedBuilder("scripts", "lua", ("lua",), module="lupa"),
    ShippedBuilder("fonts", "font", ("ttf", "otf", "woff", "woff2"), module="fontTools"),
    ShippedBuilder("sprites", "atlas", ("atlas",)),
    ShippedBuilder("maps", "tilemap", ("tmx", "tmj", "ldtk"), ("tsx", "tx", "ldtkl")),
    ShippedBuilder("texts", "locale", ("po", "xlf", "xliff"), ("pot",)),
    ShippedBuilder("tables", "table", ("csv", "tsv")),
    ShippedBuilder("data", "json", ("json",)),
    ShippedBuilder("documents", "xml", ("xml",)),
    ShippedBuilder("settings", "yaml", ("yaml", "yml")),
)


_GPU_TEXTURES = ShippedBuilder("textures", "texture", BUILDERS[0].extensions, module="etcpak", package="etcpak astc-encoder-py")
_GLYPHS = ShippedBuilder("glyphs", "fontatlas", ("ttf", "otf"), module="freetype", package="freetype-py fonttools")

# This part recognizes the art of a game by the names of files and folders: textures, sprites, sounds, fonts, translations.
#
# A team that loads files with its own engine, or with Bevy, needs products for GPUs. Textures of materials need no rules,
# because the builder `texture` recognizes them by the suffixes of their names.

_PICTURES = frozenset(("png", "jpg", "jpeg", "tga", "bmp", "tif", "tiff", "webp"))
_OTHER_ART = frozenset((
    "wav", "flac", "ogg", "mp3", "aif", "aiff", "gltf", "glb", "obj", "fbx", "tmx", "tmj", "ldtk", "atlas", "vert", "frag", "comp",
))  # fmt: skip
"""Extensions, besides those of pictures, that indicate the art of a game."""
_MATERIAL = re.compile(
    r"[_-](n|nrm|nor|normal|orm|arm|mra|ao|roughness|metallic|metalness|albedo|basecolor|diffuse|height)(_?(gl|dx))?(@\dx)?\.\w+$"
)
"""Matches the lower-case name of a material's texture."""
_FACES = (
    ("px", "nx", "py", "ny", "pz", "nz"),
    ("right", "left", "up", "down", "front", "back"),
    ("right", "left", "top", "bottom", "front", "back"),
)
"""Name suffixes of the six pictures of a cube map, in the order of the parameter `faces`."""
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
"""Matches the lower-case code of a common language, such as `de` or `pt_br`.

The codes are listed, because a pattern for any two letters would also match columns such as `hp` or `xp`.
"""
_SHADER = re.compile(r"\.(vert|frag|comp|geom|tesc|tese)(\.glsl)?$")
_GLSL_VERSION = re.compile(rb"^\s*#\s*version\s+(\d{3})\b", re.MULTILINE)
_FIRST_SPIRV_VERSION = 420
"""The first version of GLSL with the texture bindings that SPIR-V needs; that of OpenGL ES is always lower."""
_OPENGL_2 = re.compile(rb"\b(?:attribute|varying|gl_FragColor)\b")
"""Matches words of the GLSL of OpenGL 2, where the line `#version` may be missing."""
_KEY_COLUMNS = ("", "key", "keys", "id", "string", "string_id", "name", "term")
_LONGEST_SIDE, _FEWEST_SPRITES = 1024, 4
"""Maximum side (pixels) of a picture in an atlas, and minimum number of pictures in a folder for which an atlas is proposed."""


class Atlas(Struct, frozen=True):
    """A proposed `.atlas` file that packs the `count` pictures of a folder into pages; `folder` is relative to the scan folder."""

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
    """The art in a folder, derived from the names of its files; `is_game` is false if the files are not the art of a game.

    Args:
        folders: {kind as in `_FOLDERS`: patterns of existing folders}.
        faces: ends of the file names of cube maps, such as `_px.png`, in the order of the builder's parameter.
        template: value of the parameter `template` of the builder `locale`, "" = none.
        text_tables: CSV files with a column for each language.
        characters: patterns of all files of translations; a font atlas contains the characters of these files.
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

    def keys_of(self, builder: str, *, has_textures: bool) -> dict[str, object]:
        """Return the keys of the entry for a builder, in addition to its name and patterns.

        Args:
            builder: the name in the key `uses`.
        """
        if builder == "audio":
            rules = [("effects", {"format": "adpcm"}), ("voice", {"format": "opus", "channels": "mono"})]
            found = [{"files": self.folders[kind], "params": params} for kind, params in rules if kind in self.folders]
            return {"params": {"format": "vorbis"}, **({"rules": found} if found else {})}
        if builder == "model":
            params: dict[str, object] = {"tangents": "needed"}
            params |= {"textures": "ktx2"} if has_textures else {}
            return {"params": params | ({"lods": [0.5, 0.2]} if shutil.which("gltfpack") else {})}
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
        """Number of pictures that are packed into atlases and therefore get no separate textures."""
        return sum(atlas.count for atlas in self.atlases)

    def exclude_packed(self, more: Sequence[str] = ()) -> dict[str, object]:
        """Return {"exclude": patterns}, {} without patterns. The patterns match the pictures in atlases; `more` is added."""
        excluded = [*(f"{_pattern_for(atlas.folder)}/*" for atlas in self.atlases), *more]
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


def find_art(root: Path, names: Sequence[str]) -> Art:
    """Return the art among the files `names` below the scan folder `root`.

    Pictures count as game art only if sounds, models, maps or shaders also exist, or if a picture is named like a texture of a
    material (`rock_normal.png`).
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
    tables = tuple(_pattern_for(name) for name in names if _extension(name) in ("csv", "tsv") and _is_text_table(root / name))
    translations = tuple(f"*.{each}" for each in ("po", "xlf", "xliff") if each in kinds)
    shaders = tuple(_pattern_for(name) for name in names if _SHADER.search(name.lower()) and _is_opengl(_read(root / name, 4096)))
    faces, template = _find_faces(names), _find_template(names)
    return Art(True, folders, faces, atlases, template, tables, (*translations, *tables), shaders)


def _is_opengl(data: bytes) -> bool:
    """Whether a shader in GLSL that begins with `data` cannot be compiled to SPIR-V."""
    version = _GLSL_VERSION.search(data)
    return int(version[1]) < _FIRST_SPIRV_VERSION if version else _OPENGL_2.search(data) is not None


def _pattern_for(path: str) -> str:
    """Return a pattern that matches `path`; each character that a pattern cannot contain becomes `?`."""
    return _NOT_LITERAL.sub("?", path)


def _extension(name: str) -> str:
    return name.rpartition(".")[2].lower()


def _has(pattern: str, names: Iterable[str]) -> bool:
    part = pattern.rstrip("*")
    return any(part[1:] in name for name in names) if part.startswith("*") else any(name.startswith(part) for name in names)


def _find_atlases(root: Path, names: Sequence[str]) -> Iterator[Atlas]:
    """Yield an atlas for each folder of sprites whose pictures are all small PNGs.

    A folder with a GIF gets no atlas. An atlas cannot contain the GIF, and the texture rule would exclude the whole folder, so
    the GIF would not be processed.
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
    """Return whether a picture is a PNG that is small enough for an atlas."""
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
    """Return the name suffixes of the six pictures of the first cube map, spelled as in the files; () if no cube map is found."""
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


def _read(file: Path, size: int = -1) -> bytes:
    """Return the first bytes of a file (-1 = all), b"" if it cannot be read."""
    try:
        return read_regular(file, size)
    except OSError:
        return b""


class GameEngine(Struct, frozen=True):
    """A game engine, and the properties of its projects.

    Args:
        marks: globs; a folder with a matching file is a project of this engine.
        roots: possible folders of its sources; the first that exists is used.
        ignore: patterns of the engine's own files, in the form of the key `ignore`.
        own: extensions of files that only the engine uses.
        says: text that must be in a file that matches `marks`.
    """

    name: str
    marks: tuple[str, ...]
    roots: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    says: str = ""


ENGINES = (
    GameEngine(
        "Godot",
        ("project.godot",),
        (),
        (".godot/", ".import/", "*.import", "*.uid", "/android/", "/export_presets.cfg", "/project.godot"),
        ("gd", "gdshader", "gdshaderinc", "tscn", "scn", "tres", "res", "godot", "gdextension", "pck", "translation"),
    ),
    GameEngine(
        "Unity",
        ("ProjectSettings/ProjectVersion.txt",),
        ("Assets",),
        ("*.meta",),
        ("unity", "prefab", "asset", "mat", "controller", "anim", "asmdef", "asmref", "shader", "cginc", "hlsl", "dll", "meta"),
    ),
    GameEngine(
        "Unreal",
        ("*.uproject",),
        ("SourceArt", "RawContent"),
        (
            "/Binaries/", "/DerivedDataCache/", "/Intermediate/", "/Saved/", "/Config/", "/Source/",
            "*.uasset", "*.umap", "*.uproject",
        ),
        ("uasset", "umap", "uproject", "uplugin", "usf", "ush"),
    ),
    GameEngine(
        "Defold",
        ("game.project",),
        (),
        ("/build/", "/bundle/", ".internal/", "/game.project"),
        (
            "project", "collection", "go", "script", "gui_script", "render_script", "gui", "atlas", "sprite", "material", "fp",
            "vp", "tilemap", "tilesource", "input_binding", "font", "collectionproxy", "factory", "appmanifest", "render",
            "editor_script",
        ),
    ),
    GameEngine("Bevy", ("Cargo.toml",), ("assets",), ("/target/",), ("wgsl", "ron", "rs"), says="bevy"),
    GameEngine(
        "web",
        ("package.json", "index.html"),
        ("public", "static", "assets", "src/assets"),
        ("node_modules/", "/dist/", "/build/", "/out/", ".next/", ".svelte-kit/", "/package*.json", "/tsconfig*.json"),
        ("ts", "tsx", "jsx", "vue", "svelte", "map"),
    ),
)  # fmt: skip
PLAIN = GameEngine("files", ())
_NAMED_BY_STEM = frozenset(("image", "texture", "audio", "model", "table", "tilemap", "locale", "fontatlas"))
"""Builders that name a product by the stem of its source, so that two files of one stem cannot both be sources."""
_OWN_LOADERS = ("files", "Bevy")
"""Engines that load GPU textures from files; all other engines convert pictures themselves."""
_LONGEST_LINE = 118
_PLAIN_WORD = re.compile(r"(?!(?:true|false|null|yes|no|on|off|y|n)$)[a-z][a-z0-9_]*")
"""Matches texts that need no quotes in YAML."""


class ProposedRule(Struct, frozen=True):
    """A builder of the proposal; `count` files match.

    If the builder cannot run on this machine, the rule becomes a comment, and `lacks` is the reason; otherwise `lacks` is "".

    `keys` are the other keys of the entry: `params`, `rules`, `exclude`, `platforms`, or `steps` in place of `uses`.
    `doubles` are (excluded file, better file) whose products would have the same name.
    """

    name: str
    does: str
    patterns: tuple[str, ...]
    count: int
    lacks: str = ""
    keys: dict[str, object] = field(default_factory=dict)
    doubles: tuple[tuple[str, str], ...] = ()

    def text(self) -> str:
        """Return the rule as YAML, on one line if it is short."""
        use: dict[str, object] = {"copy": self.patterns} if self.does == "copy" else {"uses": self.does, "patterns": self.patterns}
        entry = {"name": self.name, **(use if "steps" not in self.keys else {}), **self.keys}
        lines = [f"- {_flow(entry)}"]
        if len(lines[0]) > _LONGEST_LINE:
            lines = []
            for key, value in entry.items():
                if isinstance(value, list) and isinstance(value[0], dict):
                    lines += [f"{key}:", *(f"  - {_flow(each)}" for each in value)]
                else:
                    lines.append(f"{key}: {_flow(value)}")
            lines = [f"{'  ' if number else '- '}{line}" for number, line in enumerate(lines)]
        if self.lacks:
            lines[0] += f"  # {self.lacks}"
        elif self.doubles:
            lines.insert(
                0, f"# excluded: {printing.count(len(self.doubles), 'file')}, because another file makes a product of the same name"
            )
        return "\n".join(f"  # {line}" if self.lacks else f"  {line}" for line in lines)


class Proposal(Struct, frozen=True):
    """A proposed project for `folder`; `root` is its scan folder, relative to `folder`."""

    folder: Path
    engine: GameEngine
    root: str
    rules: tuple[ProposedRule, ...]
    ignore: tuple[str, ...]
    left: Counter[str] = field(default_factory=Counter)
    """{extension: number of files that no rule matches}."""
    has_mobile: bool = False
    """Whether the project has a second platform, for the GPUs of phones."""
    atlases: tuple[Atlas, ...] = ()

    def text(self) -> str:
        """Return the `aptui.yaml`."""
        root = f'"{self.root}"' if self.root.startswith("-") else self.root
        name = "project" if self.root == "." else self.root.rpartition("/")[2].lower()
        rules = "".join(f"{rule.text()}\n" for rule in self.rules)
        is_empty = all(rule.lacks for rule in self.rules)
        builders = f"builders:{' []' if is_empty else ''}\n{rules}"
        platforms = _GPU_PLATFORMS if self.has_mobile else _PLATFORMS
        return _TEXT.format(name=name, root=root, ignore=_ignore_lines(self.ignore), builders=builders, platforms=platforms)


_PLATFORMS = """\
# The platform of this machine is always enabled. Each further platform gets its own products:
# platforms:
#   server: {tags: [server]}"""
_GPU_PLATFORMS = """\
# The platform of this machine is always enabled; its textures are for GPUs of desktops (BC). Those of `mobile` are for phones
# (ASTC).
platforms:
  mobile: {tags: [mobile]}"""
_TEXT = """\
# The configuration of aptui for this folder. 'aptui batch' makes the products, below the cache folder.
# Every key is described in aptui's config folder, in defaults.yaml and builders.yaml; 'aptui docs' describes the verbs.
# For completion in an editor, remove one # from the next line, and replace FILE by the path that 'aptui schema --path' prints:
# # yaml-language-server: $schema=FILE

{platforms}

# Folders with sources. If two folders have a file at the same path, the folder with the lower order wins.
scan_folders:
  - {{name: {name}, path: {root}, order: 0}}

# Files and folders that are never sources, as in .gitignore.
{ignore}
{builders}
cache: Cache
"""


def propose(folder: Path, copy_patterns: Sequence[str] = ()) -> Proposal:
    """Return a project that fits a folder.

    Args:
        copy_patterns: if given, the project has one rule that copies matching files, and the folder is not searched.

    Raises:
        UserError: the folder does not exist or is a project already, or a pattern is not valid.
    """
    folder = Path(os.path.abspath(folder))
    if not folder.is_dir():
        raise UserError(f"'{folder}' is not a folder", hint="create it, or give the folder that has the assets")
    engine = engine_of(folder)
    root = next((name for name in (*engine.roots, "assets") if (folder / name).is_dir()), ".")
    if root == "assets" and engine.name in ("Godot", "Defold"):
        root = "."
    ignore = ("*.tmp", *engine.ignore, *(_root_documents(folder) if root == "." else ()))
    if copy_patterns:
        copy_patterns = tuple(map(as_text, copy_patterns))
        for pattern in copy_patterns:
            nodes.pattern_of(Node(pattern, "--copy"))
        rule = ProposedRule("files", "copy", tuple(copy_patterns), _count_matches(folder / root, ignore, copy_patterns))
        return Proposal(folder, engine, root, (rule,), ignore)
    own = _read_own_patterns(folder / "builders")
    names = [name for name in _files(folder / root, ignore) if not any(fnmatchcase(name.lower(), each) for each in own)]
    art = find_art(folder / root, names) if engine.name in _OWN_LOADERS else Art()
    rules, left = _rules(names, engine, art, has_own=bool(own), foreign=_find_foreign_extensions(folder / root, names))
    return Proposal(folder, engine, root, rules, ignore, left, has_mobile=art.is_game, atlases=art.atlases)


def engine_of(folder: Path) -> GameEngine:
    """Return the game engine whose project is in a folder, `PLAIN` if no known engine has a project there."""
    for engine in ENGINES:
        for mark in engine.marks:
            files = list(folder.glob(mark))
            if any(not engine.says or engine.says.encode() in _read(file) for file in files):
                return engine
    return PLAIN


_CACHE_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# Products of aptui: they can be made again from the sources.\n"


def write(proposal: Proposal) -> tuple[Path, Path | None]:
    """Write the `aptui.yaml`, and make Git and backup programs ignore the cache.

    Return the `aptui.yaml` and the file by which the cache is ignored: `.gitignore` in a Git repository, otherwise the cache's tag.
    The second file is None if it was not changed.

    Raises:
        UserError: there is an `aptui.yaml`. HostError: a file cannot be written.
    """
    file = proposal.folder / FILE_NAME
    try:
        content = proposal.text().encode()
        with file.open("xb") as stream:
            stream.write(content)
    except FileExistsError:
        raise UserError(
            f"'{file}' already exists", hint="edit this file, or remove it first; 'aptui init --dry-run' prints a new one"
        ) from None
    except OSError as error:
        raise HostError(f"cannot write '{file}': {(error.strerror or str(error)).lower()}", hint="check its permissions") from None
    folder = proposal.folder
    for atlas in proposal.atlases:
        with suppress(OSError), (folder / proposal.root / atlas.path).open("x", encoding="utf-8") as stream:
            stream.write(atlas.text())
    has_git = (folder / ".gitignore").is_file() or any((each / ".git").exists() for each in (folder, *folder.parents))
    tag = _tag_cache(folder)  # written even in a Git repository, because backup programs need the tag there, too
    return file, _have_git_ignore(folder) if has_git else tag


def _tag_cache(folder: Path) -> Path | None:
    """Put the file CACHEDIR.TAG into the cache, so that backup programs leave the cache out (bford.info/cachedir)."""
    file = folder / "Cache" / "CACHEDIR.TAG"
    try:
        file.parent.mkdir(exist_ok=True)
        with open(file, "w", encoding="ascii", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK, 0o666)) as stream:
            stream.write(_CACHE_TAG)  # a pipe in place of the file cannot be opened, and does not block
    except OSError:  # a file, or another user's folder, has the path of the cache; the first run reports this problem
        return None
    return file


def _have_git_ignore(folder: Path) -> Path | None:
    """Add the cache to `.gitignore` unless a line names it already."""
    file = folder / ".gitignore"
    try:
        before = read_regular(file).decode("utf-8", "replace") if os.path.exists(file) else ""
        if any(line.strip().strip("/") == "Cache" for line in before.splitlines()):
            return None
        gap = "" if not before or before.endswith("\n") else "\n"
        with file.open("a", encoding="utf-8") as stream:
            stream.write(f"{gap}/Cache/\n")
    except OSError as error:
        what = f"cannot write '{file}': {(error.strerror or str(error)).lower()}"
        raise HostError(
            what, hint="add the line '/Cache/' to this file, because products need not be under version control"
        ) from None
    return file


def _read_own_patterns(folder: Path) -> list[str]:
    """Return the patterns of the classes in a `builders/` folder, in lower case, as far as they are literals; no code is run."""
    found: list[str] = []
    for path in sorted(folder.glob("*.py")):
        try:
            tree = ast.parse(read_regular(path, _MOST_CODE_BYTES))
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found += [pattern.lower() for each in node.body for pattern in _patterns_of(each)]
    return found


def _patterns_of(statement: ast.stmt) -> Iterator[str]:
    """Yield the texts that a statement of a class assigns to `patterns`."""
    pairs: list[tuple[ast.expr, ast.expr | None]] = []
    if isinstance(statement, ast.AnnAssign):
        pairs = [(statement.target, statement.value)]
    elif isinstance(statement, ast.Assign):
        pairs = [(target, statement.value) for target in statement.targets]
    for target, value in pairs:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            several = list(zip(target.elts, value.elts, strict=False))
        else:
            several = [(target, value)] if value is not None else []
        for name, given in several:
            if isinstance(name, ast.Name) and name.id == "patterns":
                constants = (node.value for node in ast.walk(given) if isinstance(node, ast.Constant))
                yield from (text for text in constants if isinstance(text, str))


def _rules(
    names: Sequence[str], engine: GameEngine, art: Art, *, has_own: bool, foreign: Collection[str]
) -> tuple[tuple[ProposedRule, ...], Counter[str]]:
    """Return a rule for each shipped builder that processes any of the files, and a rule that copies other files.

    The second result is {unused extension: number of files}. Files with `foreign` extensions are copied.
    """
    counts = _count_extensions(names)
    rest = Counter({name: count for name, count in counts.items() if name not in engine.own})
    left = counts - rest
    rules: list[ProposedRule] = []
    rest["atlas"] += len(art.atlases)
    for builder in BUILDERS:
        here = [name for name in builder.extensions if rest[name] and name not in foreign]
        tables = art.text_tables if builder.uses == "locale" else ()
        if here or tables:
            count = sum(rest.pop(name) for name in here) + len(tables)
            count -= len(art.text_tables) if builder.uses == "table" else 0
            for name in builder.companions:
                left[name] += rest.pop(name, 0)
            patterns = (*(f"*.{name}" for name in here), *tables)
            here_rules = _art_rules(builder, patterns, count, art) if art.is_game else [_plain_rule(builder, patterns, count)]
            rules += [_exclude_doubles(rule, names) for rule in here_rules]
    for name in _NEVER_COPIED & rest.keys():
        left[name] += rest.pop(name)
    copied = sorted(name for name in rest if rest[name])
    if copied or not (rules or has_own):
        patterns = tuple(f"*.{name}" for name in copied or ["txt"])
        rules.append(ProposedRule("files", "copy", patterns, sum(rest.values())))
    return tuple(rules), +left


_MOST_OPENED = 8
"""Maximum number of files whose contents decide whether an extension has its usual meaning."""


def _find_foreign_extensions(root: Path, names: Iterable[str]) -> set[str]:
    """Return extensions that have another meaning in this folder, because the contents of the first files do not fit.

    SuperTux's levels are texts named `*.stl`, so they are not meshes.
    """
    meshes = list(islice((name for name in names if name.lower().endswith(".stl")), _MOST_OPENED))
    return {"stl"} if meshes and not any(_is_mesh(root / name) for name in meshes) else set()


def _is_mesh(file: Path) -> bool:
    """Return whether a file may be an STL: text that begins with "solid", or 80 bytes, a count, and 50 bytes for each triangle."""
    head = _read(file, 84)
    is_binary = len(head) == 84 and file.stat().st_size >= 84 + 50 * int.from_bytes(head[80:], "little")
    return is_binary or head.lstrip().startswith(b"solid")


def _exclude_doubles(rule: ProposedRule, names: Sequence[str]) -> ProposedRule:
    """Return the rule with `exclude` for files that would make the same product as a better file: `sky.jpg` beside `sky.png`."""
    if rule.does not in _NAMED_BY_STEM:
        return rule
    extensions = [pattern.removeprefix("*.") for pattern in rule.patterns]
    excluded: list[str] = [*rule.keys.get("exclude", ())]  # type: ignore[misc]  # the values of `keys` have many types
    first: dict[str, str] = {}
    doubles: list[tuple[str, str]] = []
    for extension in extensions:  # the best formats are first
        for name in names:
            stem, _, found = name.lower().rpartition(".")
            if found == extension and first.setdefault(stem, name) != name:
                doubles.append((name, first[stem]))
    doubles = sorted(pair for pair in doubles if not any(fnmatchcase(pair[0].lower(), pattern.lower()) for pattern in excluded))
    keys = rule.keys | {"exclude": [*excluded, *(_pattern_for(name) for name, _better in doubles)]}
    return replace(rule, count=rule.count - len(doubles), keys=keys, doubles=tuple(doubles)) if doubles else rule


def _plain_rule(builder: ShippedBuilder, patterns: tuple[str, ...], count: int) -> ProposedRule:
    return ProposedRule(builder.name, builder.uses, patterns, count, builder.lacks())


def _art_rules(builder: ShippedBuilder, patterns: tuple[str, ...], count: int, art: Art) -> list[ProposedRule]:
    """Return the rules with which a builder processes its sources, if the scan folder contains game art."""
    plain = _plain_rule(builder, patterns, count)
    gpu = _GPU_TEXTURES.lacks()
    if builder.uses == "image":
        textures = ProposedRule(builder.name, "texture", patterns, count - art.packed_count, gpu, art.texture_keys())
        return [textures, replace(plain, count=textures.count, keys=art.exclude_packed())] if gpu else [textures]
    if builder.uses == "atlas" and not gpu:
        pages = {"uses": "atlas", "patterns": patterns, "params": {"textures": "ktx2"}}
        steps = [pages, {"uses": "texture", "params": {"usage": "ui"}}]
        return [replace(plain, keys={"steps": steps})]
    keys = art.keys_of(builder.uses, has_textures=not gpu)
    rules = [replace(plain, keys=keys)]
    outlines = tuple(pattern for pattern in patterns if pattern in ("*.ttf", "*.otf"))
    if builder.uses == "font" and outlines and not gpu:
        drawn = {"textures": "ktx2", **({"files": art.characters} if art.characters else {})}
        steps = [
            {"uses": "fontatlas", "patterns": outlines, "params": drawn},
            {"uses": "texture", "params": {"usage": "mask", "format": "r8", "mips": False}},
        ]
        rules.append(ProposedRule(_GLYPHS.name, _GLYPHS.uses, outlines, count, _GLYPHS.lacks(), {"steps": steps}))
    return rules


def _flow(value: object) -> str:
    """Return a value as YAML on one line."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_flow(each)}' for key, each in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_flow, value))}]"
    return value if isinstance(value, str) and _PLAIN_WORD.fullmatch(value) else json.dumps(value, ensure_ascii=False)


def _count_extensions(names: Iterable[str]) -> Counter[str]:
    """Return {extension: number of files}."""
    counts: Counter[str] = Counter()
    for name in names:
        stem, _, extension = name.rpartition("/")[2].lower().rpartition(".")
        stage = stem.rpartition(".")[2]
        if stem and _EXTENSION.fullmatch(extension):
            counts[f"{stage}.{extension}" if extension in ("glsl", "hlsl") and stage in _STAGES else extension] += 1
    return counts


def _count_matches(root: Path, ignore: Sequence[str], patterns: Sequence[str]) -> int:
    wanted = [pattern.lower() for pattern in patterns]
    return sum(any(fnmatchcase(as_text(name).lower(), pattern) for pattern in wanted) for name in _files(root, ignore))


def _files(root: Path, ignore: Sequence[str]) -> Iterable[str]:
    """Yield relative paths of files that a scan would visit."""
    is_ignored = _make_ignore_check(ignore)
    seen = 0
    for folder, below, names in os.walk(root):
        above = os.path.relpath(folder, root)
        prefix = "" if above == "." else f"{above}/"
        below[:] = sorted(
            name for name in below if not name.startswith(".") and name != "Cache" and not is_ignored(f"{prefix}{name}/")
        )
        for name in names:
            path = f"{prefix}{name}"
            if not is_settings(name) and path != FILE_NAME and not name.startswith(".") and not is_ignored(path):
                yield path
        seen += len(names)
        if seen > _MOST_FILES:
            return


def _make_ignore_check(rules: Sequence[str]) -> Callable[[str], bool]:
    """Return a function that tests whether `rules` or the shipped rules ignore a file, or a folder (with its slash)."""
    file = data_dir() / "config" / "defaults.yaml"
    shipped = nodes.read_yaml(file.read_bytes(), str(file)).value["ignore"].value
    every = [*shipped, *(Node(rule, "ignore") for rule in rules)]
    return ignore_matcher(nodes.join_rules([nodes.ignore_regex(node) for node in every]))


def _root_documents(folder: Path) -> list[str]:
    """Return ignore rules for files such as README that are not assets.

    `/.git*` is always one of the rules, because files of CI, such as `.gitlab-ci.yml`, are often added later.
    """
    names = [f"/{stem}*" for stem in ("README", "LICENSE", "CHANGELOG", "Makefile") if list(folder.glob(f"{stem}*"))]
    hidden = sorted(path.name for path in folder.glob(".*") if not path.name.startswith(".git") and not is_settings(path.name))
    names += ["/.git*", *(f"/{_SPECIAL_IN_RULES.sub('*', name)}" for name in hidden)]
    return [*names, *(["/builders/"] if (folder / "builders").is_dir() else [])]


def _ignore_lines(rules: Sequence[str]) -> str:
    one_line = f"ignore: {_flow(rules)}"
    return one_line if len(one_line) <= 100 else "ignore:\n" + "\n".join(f"  - {_flow(rule)}" for rule in rules)
