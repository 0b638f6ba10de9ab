"""Reads maps of Tiled (TMX, TMJ) with their tilesets and templates (TSX, TSJ, TX, TJ) as objects of TMJ, and checks them.

Source: "TMX Map Format", "JSON Map Format" and "Global Tile IDs" in Tiled's reference, version 1.12. Fields that only the editor
needs are left out: terrains, settings, counters, versions.

Tests: `tests/builders/test_tilemap_builder.py`.
"""

from __future__ import annotations

import base64
import binascii
import math
import posixpath
import re
import zlib
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from aptui.builders.common import shorten, show_count
from aptui.builders.files.json_text import BrokenTextError, decode_text, read_json, refuse_larger
from aptui.builders.files.xml_tree import XmlElement, read_xml
from aptui.sdk import MissingError, library, placed_name

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Tiles = NDArray[np.uint32]

Fields = dict[str, Any]
"""A JSON object of TMJ, Tiled's JSON map format."""
ReadFile = Callable[[str], bytes]
"""Returns the bytes of a file by its path below the scan folder."""

MOST_MIB = 64
"""Maximum size of a map, and of each file that a map names (MiB)."""
MOST_TILES = 16_000_000
"""Maximum number of tiles in all layers of a map, for example 16 layers of 1,000 x 1,000."""
DEEPEST_NESTING = 100
MOST_TILESET_TILES = 1_000_000
FLIPS = 0xF0000000
"""The bits of a tile id that rotate or mirror the tile."""

_LAYERS = {"layer": "tilelayer", "objectgroup": "objectgroup", "imagelayer": "imagelayer", "group": "group"}
"""{element of TMX: type of the layer in TMJ}."""
# Readers of TMJ expect these fields, because Tiled always writes them into JSON.
_LAYER_DEFAULTS = {"id": 0, "name": "", "opacity": 1, "visible": True, "x": 0, "y": 0}
_OBJECT_DEFAULTS = {"id": 0, "name": "", "type": "", "rotation": 0, "visible": True, "width": 0, "height": 0, "x": 0, "y": 0}
_TILESET_DEFAULTS = {"name": "", "margin": 0, "spacing": 0}
_MAP_DEFAULTS = {
    "orientation": "orthogonal", "renderorder": "right-down", "infinite": False, "nextlayerid": 0, "nextobjectid": 0,
    "tiledversion": "", "version": "1.10",
}  # fmt: skip
_NUMBERS = frozenset((
    "columns", "duration", "firstgid", "gid", "height", "hexsidelength", "id", "imageheight", "imagewidth", "margin",
    "nextlayerid", "nextobjectid", "offsetx", "offsety", "opacity", "parallaxoriginx", "parallaxoriginy", "parallaxx", "parallaxy",
    "pixelsize", "probability", "rotation", "skewx", "skewy", "spacing", "startx", "starty", "tilecount", "tileheight", "tileid",
    "tilewidth", "width", "x", "y",
))  # fmt: skip
_FLAGS = frozenset((
    "bold", "infinite", "italic", "kerning", "repeatx", "repeaty", "strikeout", "underline", "visible", "wrap",
))  # fmt: skip
_EDITOR_FIELDS = frozenset((
    "backingwidth", "compressionlevel", "editorsettings", "export", "locked", "terrain", "terrains",
    "transformations", "wangsets",
))  # fmt: skip
_INTEGER = re.compile(r"[+-]?[0-9]{1,15}")


class NamedPicture(Struct, frozen=True):
    """A picture that a map needs: the file that names it, and its size in pixels according to that file, 0 if unknown."""

    named_by: str
    width: int
    height: int


class MapReader:
    """Reads a map and the files that it names. Pictures are not read.

    `files` lists the files that were read, and `pictures` lists the pictures.

    Args:
        source: path of the map below its scan folder.
    """

    def __init__(self, source: str, read: ReadFile) -> None:
        self._source, self._read_file = source, read
        self._opened: dict[str, Fields] = {}
        self._first_ids: dict[str, int] = {}
        self._tile_count = 0
        self.files: list[str] = []
        self.pictures: dict[str, NamedPicture] = {}

    def read(self, data: bytes) -> Fields:
        """Return the map with its tilesets and templates filled in, and the ids of the tiles as arrays.

        Raises:
            BrokenTextError: the map or one of its files is damaged.
        """
        level = _decode(data, "map")
        for key in ("width", "height", "tilewidth", "tileheight"):
            whole_number(level, key, "the map", least=0)
        listed = objects_of(level, "tilesets", "the map")
        level["tilesets"] = []
        for tileset in listed:
            self._add_tileset(level, tileset, self._source)
        for layer in walk_layers(level):
            self._read_layer(layer, level)
        return {"type": "map", **_MAP_DEFAULTS, **level}

    def _add_tileset(self, level: Fields, entry: Fields, named_by: str) -> None:
        """Append a tileset to the map's tilesets; an external tileset is read from its file."""
        path, tileset = named_by, entry
        first = whole_number(entry, "firstgid", "a tileset", least=1)
        if source := _text(entry, "source", "a tileset"):
            path = placed_name(named_by, source)
            tileset = {**self._open(path, "tileset"), "firstgid": first}
            self._first_ids[path] = first
        name = f"the tileset '{shorten(str(tileset.get('name', '')))}'"
        for holder in (tileset, *objects_of(tileset, "tiles", name)):
            self._add_picture(holder, path, name)
        own = {key: value for key, value in tileset.items() if key not in ("source", "type")}
        level["tilesets"].append({**_TILESET_DEFAULTS, **_count_tiles(tileset, name), **own})

    def _read_layer(self, layer: Fields, level: Fields) -> None:
        where = describe_layer(layer)
        for key, value in _LAYER_DEFAULTS.items():
            layer.setdefault(key, value)
        self._add_picture(layer, self._source, where)
        for number, found in enumerate(objects_of(layer, "objects", where)):
            layer["objects"][number] = {**_OBJECT_DEFAULTS, **self._fill_object(found, level, where)}
        if layer.get("type") == "objectgroup":
            layer.setdefault("draworder", "topdown")
        if layer.get("type") != "tilelayer":
            return
        if level.get("infinite") and not layer.get("data"):
            layer.pop("data", None)
            layer.setdefault("chunks", [])  # Tiled writes no chunk for an empty layer of an infinite map
        parts = objects_of(layer, "chunks", where) if "chunks" in layer else [layer]
        for part in parts:
            for key in ("width", "height"):
                part.setdefault(key, level[key])
            width, height = (whole_number(part, key, where, least=0) for key in ("width", "height"))
            for key in ("x", "y"):
                part.setdefault(key, 0)
                whole_number(part, key, where, least=-(1 << 31))
            self._tile_count += width * height
            if self._tile_count > MOST_TILES:
                raise BrokenTextError(f"the layers have more than {MOST_TILES:,} tiles together, which is the limit", _line(layer))
            part["data"] = _read_tiles(part.get("data"), width * height, layer, where)
        layer.pop("encoding", None)
        layer.pop("compression", None)

    def _fill_object(self, found: Fields, level: Fields, where: str) -> Fields:
        """Return an object, completed by the values of its template; the object's own values win."""
        if not (name := _text(found, "template", where)):
            return found
        path = placed_name(self._source, name)
        template = self._open(path, "template")
        base = dict(_object(template, "object", path))
        if "gid" in base and "gid" not in found:
            tileset = _object(template, "tileset", path)
            gid = whole_number(base, "gid", path, least=0)
            base["gid"] = gid + self._find_first_id(level, tileset, path) - whole_number(tileset, "firstgid", path, least=1)
        properties = {str(each.get("name")): each for holder in (base, found) for each in objects_of(holder, "properties", where)}
        filled = {**base, **found} | ({"properties": list(properties.values())} if properties else {})
        del filled["template"]
        return filled

    def _find_first_id(self, level: Fields, tileset: Fields, template: str) -> int:
        """Return the first id that a template's tileset has in the map; a missing tileset is added to the map."""
        path = placed_name(template, _text(tileset, "source", template))
        if path not in self._first_ids:
            last = max(level["tilesets"], key=lambda each: int(each["firstgid"]), default=None)
            first = 1 if last is None else int(last["firstgid"]) + max(local_ids(last), default=0) + 1
            self._add_tileset(level, {"firstgid": first, "source": posixpath.basename(path)}, path)
        return self._first_ids[path]

    def _open(self, path: str, kind: str) -> Fields:
        if path not in self._opened:
            self.files.append(path)
            try:
                self._opened[path] = _decode(self._read_file(path), kind)
            except BrokenTextError as error:
                raise BrokenTextError(error.explain(path)) from None
        return self._opened[path]

    def _add_picture(self, holder: Fields, named_by: str, where: str) -> None:
        """Add the picture of a tileset, tile or layer to `pictures`, and make its path relative to the map."""
        if name := _text(holder, "image", where):
            path = placed_name(named_by, name)
            size = [whole_number(holder, key, where, least=0) if key in holder else 0 for key in ("imagewidth", "imageheight")]
            self.pictures[path] = NamedPicture(named_by, *size)
            holder["image"] = posixpath.relpath(path, posixpath.dirname(self._source) or ".")


def walk_layers(level: Fields) -> Iterator[Fields]:
    """Yield all layers of a map, including those in groups."""
    for layer in objects_of(level, "layers", describe_layer(level)):
        yield layer
        yield from walk_layers(layer)


def describe_layer(layer: Fields) -> str:
    """Return the description of a layer for a message."""
    return f"layer '{shorten(str(layer['name']))}'" if layer.get("name") else "a layer"


def check_tiles(level: Fields) -> Iterator[BrokenTextError]:
    """Yield a message for each tile id of a layer that no tileset contains."""
    import numpy as np

    tilesets = sorted(level["tilesets"], key=lambda each: int(each["firstgid"]))
    firsts = [int(each["firstgid"]) for each in tilesets]
    known = [local_ids(each) for each in tilesets]

    def is_known(tile: int) -> bool:
        number = int(np.searchsorted(firsts, tile, "right")) - 1
        return number >= 0 and tile - firsts[number] in known[number]

    for layer in walk_layers(level):
        where = describe_layer(layer)
        for part in layer.get("chunks", [layer]) if layer.get("type") == "tilelayer" else ():
            tiles = part["data"] & ~np.uint32(FLIPS)
            for tile, place in zip(*np.unique(tiles, return_index=True), strict=True):
                if tile and not is_known(int(tile)):
                    row, column = divmod(int(place), part["width"])
                    at = f"column {part['x'] + column}, row {part['y'] + row}"
                    yield BrokenTextError(f"{where}: tile {tile} at {at} is not in any tileset", _line(layer))
        for found in layer.get("objects", ()):
            tile = whole_number(found, "gid", where, least=0) & ~FLIPS if "gid" in found else 0
            if tile and not is_known(tile):
                yield BrokenTextError(f"{where}: object {found.get('id', '')}: tile {tile} is not in any tileset", _line(found))


def local_ids(tileset: Fields) -> range | set[int]:
    """Return the ids of the tiles of a tileset, from 0. A collection of pictures may have gaps in its ids."""
    where = f"the tileset '{shorten(str(tileset.get('name', '')))}'"
    if "image" not in tileset:
        return {whole_number(tile, "id", where, least=0) for tile in objects_of(tileset, "tiles", where)}
    if "tilecount" in tileset:
        return range(min(MOST_TILESET_TILES, whole_number(tileset, "tilecount", where, least=0)))
    return range(MOST_TILESET_TILES)


def _count_tiles(tileset: Fields, where: str) -> Fields:
    """Compute the columns and the number of tiles of a tileset's picture, because maps of old versions do not store them."""
    if "image" not in tileset or not {"imagewidth", "imageheight", "tilewidth", "tileheight"} <= tileset.keys():
        return {}
    margin, spacing = (whole_number(tileset, key, where, least=0) if key in tileset else 0 for key in ("margin", "spacing"))
    counts = []
    for side in ("width", "height"):
        step = whole_number(tileset, f"tile{side}", where, least=1) + spacing
        counts.append(max(0, (whole_number(tileset, f"image{side}", where, least=0) - 2 * margin + spacing) // step))
    return {"columns": counts[0], "tilecount": counts[0] * counts[1]}


def whole_number(holder: Fields, key: str, where: str, *, least: int) -> int:
    """Return a field that must be a whole number.

    Raises:
        BrokenTextError: the field is missing, or has another value.
    """
    value = holder.get(key)
    if isinstance(value, float) and value.is_integer():
        value = holder[key] = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= 0xFFFFFFFF:
        what = "is missing" if value is None else f"must be a whole number of at least {least}, not {shorten(repr(value))}"
        raise BrokenTextError(f"{where}: '{key}' {what}", _line(holder))
    return value


def objects_of(holder: Fields, key: str, where: str) -> list[Fields]:
    """Return a field that must be a list of objects if it is present.

    Raises:
        BrokenTextError: the field has another value.
    """
    value = holder.get(key, [])
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise BrokenTextError(f"{where}: '{key}' must be a list of objects", _line(holder))
    return value


def _object(holder: Fields, key: str, where: str) -> Fields:
    if not isinstance(value := holder.get(key), dict):
        raise BrokenTextError(f"{where}: '{key}' must be an object")
    return value


def _text(holder: Fields, key: str, where: str) -> str:
    if not isinstance(value := holder.get(key, ""), str):
        raise BrokenTextError(f"{where}: '{key}' must be text", _line(holder))
    return value


def _line(holder: Fields) -> str:
    return str(holder.line) if isinstance(holder, _XmlFields) else ""


def _read_tiles(data: Any, count: int, layer: Fields, where: str) -> Tiles:
    """Return the ids of the tiles of a layer or chunk, row by row."""
    import numpy as np

    encoding, compression = layer.get("encoding", "csv"), layer.get("compression", "")
    line = _line(layer)
    if not data and count:
        needed = show_count(count, "tile")
        raise BrokenTextError(f"{where}: the data is empty, but the size of the layer needs {needed}", line)
    if encoding == "csv":
        listed = (data.split(",") if data else []) if isinstance(data, str) else data
        if not isinstance(listed, list) or len(listed) != count:
            found = show_count(len(listed) if isinstance(listed, list) else 0, "tile")
            raise BrokenTextError(f"{where}: the data has {found}, but the size of the layer needs {count:,}", line)
        try:
            return np.array(list(map(int, listed)), np.uint32)
        except (ValueError, TypeError, OverflowError):
            raise BrokenTextError(f"{where}: a tile is not a 32-bit number", line) from None
    if encoding != "base64" or not isinstance(data, str):
        raise BrokenTextError(f"{where}: unknown encoding '{shorten(str(encoding))}'; use csv or base64", line)
    try:
        packed = base64.b64decode(data, validate=False)
    except (binascii.Error, ValueError):
        raise BrokenTextError(f"{where}: the data of the tiles is not valid base64", line) from None
    unpacked = _decompress(packed, compression, count * 4, where, line)
    if len(unpacked) > count * 4:
        raise BrokenTextError(f"{where}: the data has more tiles than the {count:,} that the size of the layer needs", line)
    if len(unpacked) < count * 4:
        found = show_count(len(unpacked) // 4, "tile")
        raise BrokenTextError(f"{where}: the data has {found}, but the size of the layer needs {count:,}", line)
    return np.frombuffer(unpacked, "<u4").astype(np.uint32)


def _decompress(packed: bytes, compression: object, size: int, where: str, line: str) -> bytes:
    """Return at most `size` + 1 unpacked bytes; a result of `size` + 1 bytes shows that the data is too long."""
    try:
        if compression in ("zlib", "gzip"):
            return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(packed, size + 1)
        if compression == "zstd":
            with library("zstandard").ZstdDecompressor(max_window_size=1 << 27).stream_reader(packed) as stream:
                return bytes(stream.read(size + 1))
    except MissingError:
        raise
    except Exception as error:  # the optional package zstandard has exception classes of its own
        raise BrokenTextError(f"{where}: the {compression} data of the tiles is damaged", line) from error
    if compression:
        raise BrokenTextError(f"{where}: unknown compression '{shorten(str(compression))}'; use zlib, gzip or zstd", line)
    return packed


# ------------------------------------------------------------------------------------------------------------------ TMX and TMJ


class _XmlFields(Fields):
    """An object of TMJ that was read from TMX; `line` is the line of its element."""

    line = 0


def _decode(data: bytes, kind: str) -> Fields:
    """Return the content of a file as an object of TMJ."""
    refuse_larger(data, MOST_MIB)
    if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        root = read_xml(data)
        if root.name != kind:
            raise BrokenTextError(f"the root element is <{shorten(root.name)}>, not <{kind}>", str(root.line))
        return _CONVERTERS[kind](root)
    value = drop_fields(read_json(decode_text(data)).value, _EDITOR_FIELDS)
    if not isinstance(value, dict) or value.get("type", kind) != kind:
        raise BrokenTextError(f"the file is not a {kind} made with Tiled")
    return value


def drop_fields(value: Any, names: Collection[str], depth: int = 0) -> Any:
    """Return data without the fields called `names`.

    The content of `properties` is not changed, because the user chooses the names in it.

    Raises:
        BrokenTextError: the data is nested too deep.
    """
    if depth > DEEPEST_NESTING:
        raise BrokenTextError(f"the data is nested deeper than {DEEPEST_NESTING} levels")
    if isinstance(value, dict):
        remaining = {key: each for key, each in value.items() if key not in names}
        return {key: each if key == "properties" else drop_fields(each, names, depth + 1) for key, each in remaining.items()}
    if isinstance(value, list) and any(isinstance(each, dict) for each in value):
        return [drop_fields(each, names, depth + 1) for each in value]
    return value


def _fields(element: XmlElement, **more: Any) -> _XmlFields:
    """Return the attributes of an element, with the types that they have in TMJ, and its properties."""
    fields = _XmlFields()
    fields.line = element.line
    for name, value in element.attributes.items():
        if name in _NUMBERS:
            fields[name] = _number(value, name, element)
        elif name in _FLAGS:
            fields[name] = value not in ("0", "false")
        elif name not in _EDITOR_FIELDS:
            fields[name] = value
    if properties := element.find("properties"):
        fields["properties"] = [_property(each) for each in properties.find_all("property")]
    fields.update({key: value for key, value in more.items() if value is not None})
    return fields


def _number(text: str, name: str, element: XmlElement) -> float:
    try:
        value = int(text) if _INTEGER.fullmatch(text) else float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BrokenTextError(f"<{element.name}>: '{name}' is not a number: '{shorten(text)}'", str(element.line))
    return value


def _property(element: XmlElement) -> Fields:
    kind = element.attributes.get("type", "string")
    text = element.attributes.get("value", element.text)
    value: Any = text
    if kind in ("int", "float", "object"):
        value = _number(text, "value", element)
    elif kind == "bool":
        value = text == "true"
    elif kind == "class":
        inner = element.find("properties")
        value = {each["name"]: each["value"] for each in map(_property, inner.find_all("property"))} if inner else {}
    extra = {"propertytype": element.attributes["propertytype"]} if "propertytype" in element.attributes else {}
    return {"name": element.attributes.get("name", ""), "type": kind, **extra, "value": value}


def _map(element: XmlElement) -> Fields:
    fields = _fields(element)
    fields["tilesets"] = [_tileset(each) for each in element.find_all("tileset")]
    fields["layers"] = [_layer(each) for each in element.find_all(*_LAYERS)]
    return fields


def _layer(element: XmlElement) -> Fields:
    fields = _fields(element, type=_LAYERS[element.name])
    fields.update(_image(element.find("image")))
    if element.name == "group":
        fields["layers"] = [_layer(each) for each in element.find_all(*_LAYERS)]
    if element.name == "objectgroup":
        fields["objects"] = [_map_object(each) for each in element.find_all("object")]
    if element.name == "layer":
        data = element.find("data") or XmlElement("data", {}, element.line)
        fields.update({key: data.attributes[key] for key in ("encoding", "compression") if key in data.attributes})
        chunks = [_fields(each, data=_tile_data(each)) for each in data.find_all("chunk")]
        fields.update({"chunks": chunks} if chunks else {"data": _tile_data(data)})
    return fields


def _tile_data(element: XmlElement) -> Any:
    tiles = list(element.find_all("tile"))  # each tile is an XML element if the data has no encoding
    return [each.attributes.get("gid", "0") for each in tiles] if tiles else element.text.strip()


def _map_object(element: XmlElement) -> Fields:
    fields = _fields(element)
    if "class" in fields:
        fields["type"] = fields.pop("class")
    for child in element.children:
        if child.name in ("ellipse", "point", "capsule"):
            fields[child.name] = True
        elif child.name in ("polygon", "polyline"):
            pairs = [each.partition(",") for each in child.attributes.get("points", "").split()]
            fields[child.name] = [{"x": _number(x, "points", child), "y": _number(y, "points", child)} for x, _, y in pairs]
        elif child.name == "text":
            fields["text"] = {**_fields(child), "text": child.text}
    return fields


def _image(element: XmlElement | None) -> Fields:
    names = {"source": "image", "width": "imagewidth", "height": "imageheight", "trans": "transparentcolor"}
    return {names[key]: value for key, value in _fields(element).items() if key in names} if element else {}


def _tileset(element: XmlElement) -> Fields:
    fields = _fields(element)
    fields.update(_image(element.find("image")))
    for child in element.find_all("tileoffset", "grid"):
        fields[child.name] = _fields(child)
    if tiles := [_tile(each) for each in element.find_all("tile")]:
        fields["tiles"] = tiles
    return fields


def _tile(element: XmlElement) -> Fields:
    fields = _fields(element)
    if "class" in fields:
        fields["type"] = fields.pop("class")
    fields.update(_image(element.find("image")))
    if animation := element.find("animation"):
        fields["animation"] = [_fields(each) for each in animation.find_all("frame")]
    if shapes := element.find("objectgroup"):
        fields["objectgroup"] = _layer(shapes)
    return fields


def _template(element: XmlElement) -> Fields:
    fields = _XmlFields()
    for child in element.find_all("tileset", "object"):
        fields[child.name] = _tileset(child) if child.name == "tileset" else _map_object(child)
    return fields


_CONVERTERS: dict[str, Callable[[XmlElement], Fields]] = {"map": _map, "tileset": _tileset, "template": _template}
"""{root element of a file: function that converts it to an object of TMJ}."""
