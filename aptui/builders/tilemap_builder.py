"""The `tilemap` builder: maps of Tiled and projects of LDtk become compact JSON. Each product is one file.

A map of Tiled is written as TMJ, even if the source is TMX. The product includes tilesets and templates, stores tiles as numbers,
and names pictures relative to the map. A project of LDtk stays LDtk JSON; levels in separate files are inserted. Fields that only
the editors need are left out.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

from msgspec import Meta, Struct

from aptui.builders.common import SourceBuilder, one_line, shorten, show_count, summarize_errors
from aptui.builders.files.json_text import BrokenTextError, decode_text, read_json, refuse_larger, write_json
from aptui.builders.files.pictures import PictureError, open_picture
from aptui.builders.files.references import declare_needed, declare_sources, filter_allowed
from aptui.builders.files.tiled_map import (
    MOST_MIB,
    Fields,
    MapReader,
    NamedPicture,
    ReadFile,
    check_tiles,
    drop_fields,
    objects_of,
    walk_layers,
    whole_number,
)
from aptui.sdk import (
    CreateJobsRequest,
    ForbiddenNameError,
    JobError,
    LoadBehavior,
    MissingError,
    NamedFileError,
    ProcessJobRequest,
    placed_name,
)

TILEMAP_ASSET_TYPE = UUID("c41d6e3f-0a97-5b28-9d5e-2f7b8a1c6e01")
"""Asset type of every product of this builder: a map in TMJ, or a project of LDtk."""

MOST_SHOWN = 50
_PICTURE_FIELDS = ("image", "relPath", "bgRelPath", "__tilesetRelPath")
"""Fields with the path of a picture, in maps of Tiled and in projects of LDtk."""


class TilemapParams(Struct, frozen=True, kw_only=True):
    """Parameters of this builder; the documentation and `aptui explain` show the descriptions of the fields."""

    textures: Annotated[
        Literal["files", "ktx2", "dds"],
        Meta(
            description="how the product names pictures; files: as in the map, in lower case; ktx2, dds: as products of the "
            "texture builder"
        ),
    ] = "files"
    strict: Annotated[bool, Meta(description="treat each warning as an error")] = False


class TilemapBuilder(SourceBuilder):
    """Makes `<stem>.json` of a map. The job of a broken map fails with a message such as `map.tmx:12: what is wrong`."""

    name: ClassVar[str] = "tilemap"
    version: ClassVar[str] = "1"
    patterns: ClassVar[tuple[str, ...]] = ("*.tmx", "*.tmj", "*.ldtk")
    params_schema: ClassVar[Any] = TilemapParams

    def analyse(self, request: CreateJobsRequest) -> None:
        """Declare the tilesets, templates, levels and pictures as dependencies."""
        reader = _reader(request)
        try:
            reader.read(request.read_source())
        except (BrokenTextError, NamedFileError, MissingError, OSError):
            pass  # the error is ignored here, because the job reports it
        paths = filter_allowed(request, (*reader.files, *reader.pictures))
        request.source_dependencies += declare_sources(request.scan_folder, paths)

    def build(self, request: ProcessJobRequest) -> None:
        """Check and write one map."""
        options: TilemapParams = request.options
        reader = _reader(request)
        level = reader.read(request.read_source())
        mistakes = [each.explain(request.source) for each in (check_tiles if _is_tiled(request) else check_project)(level)]
        mistakes += _check_pictures(reader, request)
        _name_textures(level, options.textures)
        if _is_tiled(request):
            _list_tiles(level)
        product = write_json(level)
        if mistakes and options.strict:
            raise JobError(summarize_errors(mistakes))
        for text in mistakes[:MOST_SHOWN]:
            request.log.warning(text)
        if len(mistakes) > MOST_SHOWN:
            request.log.warning(f"{request.source}: {show_count(len(mistakes) - MOST_SHOWN, 'more mistake')}")
        request.write_product(
            f"{request.stem}.json",
            product,
            asset_type=TILEMAP_ASSET_TYPE,
            path_dependencies=declare_needed(request.scan_folder, reader.pictures, LoadBehavior.QUEUE_LOAD),
            dependencies_handled=True,
        )


def _is_tiled(request: CreateJobsRequest | ProcessJobRequest) -> bool:
    return not request.source.lower().endswith(".ldtk")


def _reader(request: CreateJobsRequest | ProcessJobRequest) -> MapReader | LdtkReader:
    return (MapReader if _is_tiled(request) else LdtkReader)(request.source, request.read_named)


def _check_pictures(reader: MapReader | LdtkReader, request: ProcessJobRequest) -> list[str]:
    """Return messages about pictures that are missing or damaged, or whose size differs from the size in the map."""
    found = []
    for path, expected in reader.pictures.items():
        try:
            width, height = open_picture(request.read_named(path, named_by=expected.named_by), path).size
        except ForbiddenNameError:
            raise
        except (NamedFileError, PictureError) as error:
            text = one_line(error)
            found.append(f"{expected.named_by}: {text}" if path in text else f"{expected.named_by}: the picture '{path}': {text}")
            continue
        if expected.width and (width, height) != (expected.width, expected.height):
            found.append(
                f"{expected.named_by}: picture '{path}' has {width}x{height} pixels, but the map expects "
                f"{expected.width}x{expected.height}; save the map again"
            )
    return found


def _name_textures(value: Any, textures: str) -> None:
    """Replace the paths of pictures by the names of products, which are in lower case.

    If the `texture` builder makes the products, the names also get the extension of its products.
    """
    todo = [value]
    while todo:
        holder = todo.pop()
        for key, each in holder.items() if isinstance(holder, dict) else enumerate(holder):
            if isinstance(each, dict | list):
                if key != "properties":  # the user chooses the names in `properties`, and one of them may be `image`
                    todo.append(each)
            elif key in _PICTURE_FIELDS and isinstance(each, str):
                holder[key] = (each if textures == "files" else f"{posixpath.splitext(each)[0]}.{textures}").lower()


def _list_tiles(level: Fields) -> None:
    for layer in walk_layers(level):
        for part in layer.get("chunks", [layer]) if layer.get("type") == "tilelayer" else ():
            part["data"] = part["data"].tolist()


# --------------------------------------------------------------------------------------------------------- projects of LDtk

# The code below reads projects of LDtk with their levels, checks them, and removes the fields that only the editor needs.
# Source: "JSON format documentation" of LDtk 1.5 (https://ldtk.io/json).

_EDITOR_FIELDS = frozenset((
    "appBuildId", "autoRuleGroups", "backupLimit", "backupOnSave", "backupRelPath", "cachedPixelData", "customCommands",
    "defaultEntityHeight", "defaultEntityWidth", "defaultGridSize", "defaultLevelBgColor", "defaultLevelHeight",
    "defaultLevelWidth", "defaultPivotX", "defaultPivotY", "exportLevelBg", "exportTiled", "flags", "imageExportMode",
    "intGridValuesGroups", "levelNamePattern", "minifyJson", "nextUid", "pngFilePattern", "savedSelections", "simplifiedExport",
    "tutorialDesc", "uiFilterTags",
))  # fmt: skip


class LdtkReader:
    """Reads an LDtk project, and its levels that are stored in separate files.

    Lists these level files in `files`, and the project's pictures in `pictures`.

    Args:
        source: path of the project below its scan folder.
    """

    def __init__(self, source: str, read: ReadFile) -> None:
        self._source, self._read_file = source, read
        self.files: list[str] = []
        self.pictures: dict[str, NamedPicture] = {}

    def read(self, data: bytes) -> Fields:
        """Return the content of an LDtk project file, including the levels that are stored in separate files.

        Raises:
            BrokenTextError: the project file or one of its levels is damaged.
        """
        project = _decode(data)
        if not isinstance(project.get("defs"), dict) or "levels" not in project:
            raise BrokenTextError("the file is not an LDtk project: 'defs' or 'levels' is missing")
        for tileset in objects_of(project["defs"], "tilesets", "defs"):
            if isinstance(name := tileset.get("relPath"), str):
                size = [whole_number(tileset, key, _name(tileset), least=0) for key in ("pxWid", "pxHei")]
                self.pictures[placed_name(self._source, name)] = NamedPicture(self._source, *size)
        for holder in (project, *objects_of(project, "worlds", "the project")):
            holder["levels"] = [self._fill_level(each) for each in objects_of(holder, "levels", "the project")]
        return project

    def _fill_level(self, level: Fields) -> Fields:
        if isinstance(name := level.get("externalRelPath"), str):
            path = placed_name(self._source, name)
            self.files.append(path)
            try:
                level = _decode(self._read_file(path))
            except BrokenTextError as error:
                raise BrokenTextError(error.explain(path)) from None
        if isinstance(name := level.get("bgRelPath"), str):
            self.pictures[placed_name(self._source, name)] = NamedPicture(self._source, 0, 0)
        return level


def check_project(project: Fields) -> Iterator[BrokenTextError]:
    """Yield a message for each tile that is not in its tileset, and for each grid whose size differs from that of its layer."""
    listed = objects_of(project["defs"], "tilesets", "defs")
    tilesets = {each["uid"]: each for each in listed if isinstance(each.get("uid"), int)}
    for level in [each for holder in (project, *objects_of(project, "worlds", "")) for each in holder["levels"]]:
        for layer in objects_of(level, "layerInstances", _name(level)) if level.get("layerInstances") else ():
            where = f"{_name(level)}, layer '{shorten(str(layer.get('__identifier', '')))}'"
            cells = whole_number(layer, "__cWid", where, least=0) * whole_number(layer, "__cHei", where, least=0)
            grid = layer.get("intGridCsv") or []
            if not isinstance(grid, list):
                raise BrokenTextError(f"{where}: 'intGridCsv' must be a list")
            if grid and len(grid) != cells:
                yield BrokenTextError(
                    f"{where}: the grid has {show_count(len(grid), 'cell')}, but the size of the layer needs {cells}"
                )
            tiles = [each for key in ("gridTiles", "autoLayerTiles") for each in objects_of(layer, key, where)]
            uid = layer.get("__tilesetDefUid")
            if tiles and (not isinstance(uid, int) or uid not in tilesets):
                yield BrokenTextError(f"{where}: the layer uses tileset {uid}, which is not in the project")
            elif tiles and "__cWid" in (tileset := tilesets[uid]):  # LDtk before 0.9 does not write the size of a tileset
                columns, rows = (whole_number(tileset, key, _name(tileset), least=0) for key in ("__cWid", "__cHei"))
                wrong = {number for each in tiles if (number := whole_number(each, "t", where, least=0)) >= columns * rows}
                count = show_count(columns * rows, "tile")
                for number in sorted(wrong):
                    yield BrokenTextError(f"{where}: tile {number} is not in {_name(tileset)}, which has {count}")


def _decode(data: bytes) -> Fields:
    refuse_larger(data, MOST_MIB)
    value = drop_fields(read_json(decode_text(data)).value, _EDITOR_FIELDS)
    if not isinstance(value, dict):
        raise BrokenTextError("the file is not an LDtk project")
    return value


def _name(holder: Fields) -> str:
    return f"'{shorten(str(holder.get('identifier', '')))}'"
