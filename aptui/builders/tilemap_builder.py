"""The `tilemap` builder: maps of Tiled and projects of LDtk become compact JSON with the files that they name filled in.

A map of Tiled is written as TMJ, even if the source is TMX. The product includes tilesets and templates, stores tiles as numbers,
and names pictures relative to the map. A project of LDtk stays LDtk JSON; levels in separate files are inserted. Fields that only
the editors need are left out.
"""

from __future__ import annotations

import posixpath
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

from msgspec import Meta, Struct

from aptui.builders.common import SourceBuilder, one_line, show_count, summarize_errors
from aptui.builders.files import lfs_source
from aptui.builders.files.json_text import BrokenTextError, write_json
from aptui.builders.files.ldtk_project import LdtkReader, check_project
from aptui.builders.files.pictures import PictureError, open_picture
from aptui.builders.files.references import declare_needed, declare_sources, filter_allowed
from aptui.builders.files.tiled_map import Fields, MapReader, check_tiles, walk_layers
from aptui.sdk import (
    CreateJobsRequest,
    ForbiddenNameError,
    JobError,
    LoadBehavior,
    MissingError,
    NamedFileError,
    ProcessJobRequest,
)

TILEMAP_ASSET_TYPE = UUID("c41d6e3f-0a97-5b28-9d5e-2f7b8a1c6e01")
"""Asset type of every product of this builder: a map in TMJ, or a project of LDtk."""

MOST_SHOWN = 50
_PICTURE_FIELDS = ("image", "relPath", "bgRelPath", "__tilesetRelPath")
"""Fields with the path of a picture, in maps of Tiled and in projects of LDtk."""


class TilemapParams(Struct, frozen=True, kw_only=True):
    """The parameters; the descriptions are shown by `aptui explain` and in the documentation."""

    textures: Annotated[
        Literal["files", "ktx2", "dds"],
        Meta(description="names of pictures; files: as in the map, in lower case; ktx2, dds: products of the texture builder"),
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
        level = reader.read(lfs_source.source_bytes(request))
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
    """Name products instead of pictures: products have lower-case names, and those of the `texture` builder its extension."""
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
    """Replace the arrays of tiles by lists."""
    for layer in walk_layers(level):
        for part in layer.get("chunks", [layer]) if layer.get("type") == "tilelayer" else ():
            part["data"] = part["data"].tolist()
