"""Reads projects of LDtk with their levels, checks them, and removes the fields that only the editor needs.

Source: "JSON format documentation" of LDtk 1.5 (https://ldtk.io/json).

Tests: `tests/builders/test_tilemap_builder.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from aptui.builders.common import shorten, show_count
from aptui.builders.files.json_text import BrokenTextError, decode_text, read_json, refuse_larger
from aptui.builders.files.tiled_map import MOST_MIB, Fields, NamedPicture, ReadFile, drop_fields, objects_of, whole_number
from aptui.sdk import placed_name

_EDITOR_FIELDS = frozenset((
    "appBuildId", "autoRuleGroups", "backupLimit", "backupOnSave", "backupRelPath", "cachedPixelData", "customCommands",
    "defaultEntityHeight", "defaultEntityWidth", "defaultGridSize", "defaultLevelBgColor", "defaultLevelHeight",
    "defaultLevelWidth", "defaultPivotX", "defaultPivotY", "exportLevelBg", "exportTiled", "flags", "imageExportMode",
    "intGridValuesGroups", "levelNamePattern", "minifyJson", "nextUid", "pngFilePattern", "savedSelections", "simplifiedExport",
    "tutorialDesc", "uiFilterTags",
))  # fmt: skip


class LdtkReader:
    """Reads a project with the levels that are separate files.

    Lists those files in `files`, and the project's pictures in `pictures`.

    Args:
        source: path of the project below its scan folder.
        read: returns the bytes of another file.
    """

    def __init__(self, source: str, read: ReadFile) -> None:
        self._source, self._read_file = source, read
        self.files: list[str] = []
        self.pictures: dict[str, NamedPicture] = {}

    def read(self, data: bytes) -> Fields:
        """Return the project with all levels filled in.

        Raises:
            BrokenTextError: the project or one of its levels is damaged.
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
    tilesets = {each.get("uid"): each for each in objects_of(project["defs"], "tilesets", "defs")}
    for level in [each for holder in (project, *objects_of(project, "worlds", "")) for each in holder["levels"]]:
        for layer in objects_of(level, "layerInstances", _name(level)) if level.get("layerInstances") else ():
            where = f"{_name(level)}, layer '{shorten(str(layer.get('__identifier', '')))}'"
            cells = whole_number(layer, "__cWid", where, least=0) * whole_number(layer, "__cHei", where, least=0)
            grid = layer.get("intGridCsv") or []
            if grid and len(grid) != cells:
                yield BrokenTextError(
                    f"{where}: the grid has {show_count(len(grid), 'cell')}, but the size of the layer needs {cells}"
                )
            tiles = [each for key in ("gridTiles", "autoLayerTiles") for each in objects_of(layer, key, where)]
            uid = layer.get("__tilesetDefUid")
            if tiles and uid not in tilesets:
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
