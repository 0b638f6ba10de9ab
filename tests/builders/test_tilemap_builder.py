"""The `tilemap` builder: all encodings give equal tiles, products contain the tilesets of a map, and errors have positions."""

from __future__ import annotations

import base64
import gzip
import io
import json
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from aptui.builders.files import tiled_map
from aptui.builders.files.json_text import BrokenTextError
from aptui.builders.files.tiled_map import MapReader
from aptui.builders.tilemap_builder import TilemapBuilder
from aptui.sdk import PathDependency, has_library

BUILDER = TilemapBuilder

SIZE = {"width": 1, "height": 1, "tilewidth": 1, "tileheight": 1}
TILES = [1, 2, 0x80000003, 0x60000004, 0, 1]
RAW = struct.pack("<6I", *TILES)
IMAGE = '<image source="ground.png" width="16" height="16"/>'
TILESET = f'<tileset name="ground" tilewidth="8" tileheight="8" tilecount="4" columns="2">{IMAGE}'


def png(width, height):
    stream = io.BytesIO()
    Image.new("RGB", (width, height)).save(stream, "PNG")
    return stream.getvalue()


def tmx(data, tilesets='<tileset firstgid="1" source="../tiles/ground.tsx"/>', more=""):
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<map version="1.10" orientation="orthogonal" width="3" height="2" tilewidth="8" '
        f'tileheight="8" infinite="0">\n{tilesets}\n<layer id="1" name="floor" width="3" height="2">\n{data}\n</layer>{more}</map>'
    )


def write_map(bench, data="<data encoding='csv'>1,2,3,4,0,1</data>", **parts):
    bench.write("tiles/ground.tsx", f"{TILESET}<tile id='1' class='wall'/></tileset>")
    bench.write("tiles/ground.png", png(16, 16))
    return bench.write("maps/a.tmx", tmx(data, **parts))


def build_map(bench, source, **params):
    (product,) = bench.build(source, **params).values()
    return json.loads(product)


def packed(data, compression=""):
    return f'<data encoding="base64" compression="{compression}">\n  {base64.b64encode(data).decode()}\n</data>'


@pytest.mark.parametrize(
    "data",
    [
        f"<data encoding='csv'>\n1,2,{TILES[2]},\n{TILES[3]},0,1\n</data>",
        "<data>" + "".join(f'<tile gid="{tile}"/>' if tile else "<tile/>" for tile in TILES) + "</data>",
        packed(RAW),
        packed(zlib.compress(RAW), "zlib"),
        packed(gzip.compress(RAW), "gzip"),
    ],
    ids=["csv", "elements", "base64", "zlib", "gzip"],
)
def test_every_encoding_of_a_tile_layer_gives_equal_tiles(bench, data):
    level = build_map(bench, write_map(bench, data))

    assert level["layers"][0]["data"] == TILES
    assert bench.warnings == []


def test_zstd_tiles_are_read_if_the_zstandard_package_is_installed(bench):
    if not has_library("zstandard"):
        assert "zstandard" in bench.fail(write_map(bench, packed(b"", "zstd")))
        return
    import zstandard

    data = packed(zstandard.ZstdCompressor().compress(RAW), "zstd")

    assert build_map(bench, write_map(bench, data))["layers"][0]["data"] == TILES


def test_product_of_a_map_contains_its_tileset_and_depends_on_its_pictures(bench):
    source = write_map(bench)

    level = build_map(bench, source)

    assert bench.dependencies(source) == ["tiles/ground.tsx", "tiles/ground.png"]
    (tileset,) = level["tilesets"]
    assert (tileset["firstgid"], tileset["image"], tileset["tiles"]) == (1, "../tiles/ground.png", [{"id": 1, "type": "wall"}])
    assert "source" not in tileset
    (product,) = bench.products
    assert product.path_dependencies == [PathDependency("tiles/ground.png", load=product.path_dependencies[0].load)]


@pytest.mark.parametrize(("textures", "name"), [("files", "ground.png"), ("ktx2", "ground.ktx2")])
def test_textures_parameter_sets_the_picture_names_in_a_tiled_map(bench, textures, name):
    value = '<property name="icon" type="class"><properties><property name="image" value="Icon.PNG"/></properties></property>'
    more = f'<imagelayer id="2" name="sky"><image source="../tiles/Ground.png"/></imagelayer><properties>{value}</properties>'

    level = build_map(bench, write_map(bench, more=more), textures=textures)

    assert [each["image"] for each in (*level["tilesets"], level["layers"][1])] == [f"../tiles/{name}"] * 2
    assert level["properties"][0]["value"] == {"image": "Icon.PNG"}


def test_textures_parameter_changes_picture_names_in_an_ldtk_project(bench):
    project, level = ldtk()
    level["bgRelPath"] = level["layerInstances"][0]["__tilesetRelPath"] = "../tiles/ground.png"
    write_map(bench)

    made = build_map(bench, bench.write("maps/world.ldtk", json.dumps({**project, "levels": [level]})), textures="ktx2")

    (level,) = made["levels"]
    paths = made["defs"]["tilesets"][0]["relPath"], level["bgRelPath"], level["layerInstances"][0]["__tilesetRelPath"]
    assert paths == ("../tiles/ground.ktx2",) * 3


def test_old_map_that_does_not_say_whether_it_is_infinite_is_finite(bench):
    source = write_map(bench)
    old = (bench.folder / "assets" / source).read_text().replace(' infinite="0"', "")

    assert build_map(bench, bench.write(source, old))["infinite"] is False


def test_layer_without_tiles_may_have_empty_data(bench):
    text = tmx("<data encoding='csv'></data>", tilesets="").replace('width="3"', 'width="0"')

    assert build_map(bench, bench.write("a.tmx", text))["layers"][0]["data"] == []


def test_chunks_of_an_infinite_map_stay_separate(bench):
    chunks = (
        '<data encoding="csv"><chunk x="-2" y="0" width="2" height="1">1,2</chunk>'
        '<chunk x="0" y="0" width="1" height="1">9</chunk></data>'
    )

    level = build_map(bench, write_map(bench, chunks))

    assert [(each["x"], each["data"]) for each in level["layers"][0]["chunks"]] == [(-2, [1, 2]), (0, [9])]
    assert bench.warnings == ["maps/a.tmx:4: layer 'floor': tile 9 at column 0, row 0 is not in any tileset"]


@pytest.mark.parametrize("data", ['<data encoding="csv"></data>', '<data encoding="base64" compression="zlib">\n</data>'])
def test_empty_layer_of_an_infinite_map_has_no_chunks(bench, data):
    write_map(bench)
    source = bench.write("maps/a.tmx", tmx(data).replace('infinite="0"', 'infinite="1"'))

    (layer,) = build_map(bench, source)["layers"]

    assert layer["chunks"] == []
    assert "data" not in layer


def test_map_objects_have_their_shapes_and_properties(bench):
    objects = (
        '<group name="g"><objectgroup id="2" name="things" color="#ff0000">'
        '<object id="1" name="door" class="exit" '
        'x="1.5" y="2" gid="2147483650" width="8" height="8"><properties><property name="to" value="b"/>'
        '<property name="level" type="int" value="3"/>'
        '<property name="open" type="bool" value="true"/></properties></object>'
        '<object id="2" x="0" y="0"><polygon points="0,0 8,0 8,-4.5"/></object><object id="3" x="0" y="0"><point/></object>'
        '<object id="4" x="0" y="0"><text wrap="1">Hi</text></object></objectgroup></group>'
    )

    (group,) = build_map(bench, write_map(bench, more=objects))["layers"][1:]

    rectangle, polygon, point, text = group["layers"][0]["objects"]
    assert (rectangle["type"], rectangle["x"], rectangle["gid"], rectangle["rotation"]) == ("exit", 1.5, 2147483650, 0)
    assert [(each["name"], each["value"]) for each in rectangle["properties"]] == [("to", "b"), ("level", 3), ("open", True)]
    assert polygon["polygon"] == [{"x": 0, "y": 0}, {"x": 8, "y": 0}, {"x": 8, "y": -4.5}]
    assert point["point"] is True
    assert text["text"] == {"wrap": True, "text": "Hi"}


def test_template_completes_its_objects_and_adds_its_tileset_to_the_map(bench):
    bench.write("tiles/things.tsx", TILESET.replace("ground", "things") + "</tileset>")
    bench.write("tiles/things.png", png(16, 16))
    bench.write(
        "maps/block.tx",
        '<template><tileset firstgid="1" source="../tiles/things.tsx"/><object name="block" gid="3" width="8" '
        'height="8"><properties><property name="mass" type="float" value="2"/>'
        '<property name="body" value="dynamic"/></properties></object></template>',
    )
    objects = (
        '<objectgroup><object id="7" template="block.tx" x="4" y="5"><properties><property name="body" value="static"/>'
        "</properties></object></objectgroup>"
    )
    source = write_map(bench, more=objects)

    level = build_map(bench, source)

    (block,) = level["layers"][1]["objects"]
    assert (block["id"], block["name"], block["x"], block["width"], block["gid"]) == (7, "block", 4, 8, 7)
    assert {each["name"]: each["value"] for each in block["properties"]} == {"mass": 2, "body": "static"}
    assert [(each["name"], each["firstgid"]) for each in level["tilesets"]] == [("ground", 1), ("things", 5)]
    assert bench.dependencies(source) == [
        "tiles/ground.tsx", "maps/block.tx", "tiles/things.tsx", "tiles/ground.png", "tiles/things.png",
    ]  # fmt: skip


def test_tmj_and_tmx_of_the_same_map_give_equal_products(bench):
    from_tmx = build_map(bench, write_map(bench))
    text = json.dumps({**from_tmx, "tilesets": [{"firstgid": 1, "source": "../tiles/ground.tsx"}], "editorsettings": {"x": 1}})

    assert build_map(bench, bench.write("maps/b.tmj", text)) == from_tmx


SPACED = (
    '<tileset firstgid="1" tilewidth="8" tileheight="8" spacing="1" margin="1">'
    '<image source="../tiles/ground.png" width="19" height="19"/></tileset>'
)
COLLECTION = (
    '<tileset firstgid="1" name="c"><tile id="0"><image source="../tiles/ground.png" width="16" height="16"/></tile>'
    '<tile id="7"><image source="../tiles/ground.png" width="16" height="16"/></tile></tileset>'
)


@pytest.mark.parametrize(
    ("tilesets", "tiles", "wrong"),
    [
        (COLLECTION, "1,8,0,0,0,0", ""),
        (COLLECTION, "1,2,0,0,0,0", "tile 2 at column 1, row 0"),
        ('<tileset firstgid="3" source="../tiles/ground.tsx"/>', "3,6,0,0,0,1", "tile 1 at column 2, row 1"),
        (SPACED, "4,0,0,0,5,0", "tile 5 at column 1, row 1"),
    ],
)  # fmt: skip
def test_tile_that_no_tileset_contains_gives_a_warning(bench, tilesets, tiles, wrong):
    source = write_map(bench, f"<data encoding='csv'>{tiles}</data>", tilesets=tilesets)

    bench.build(source)

    found = [text for text in bench.warnings if "pixels" not in text]
    assert found == ([f"maps/a.tmx:4: layer 'floor': {wrong} is not in any tileset"] if wrong else [])
    assert not wrong or "is not in any tileset" in bench.fail(source, strict=True)


def test_picture_that_is_missing_or_has_another_size_gives_a_warning(bench):
    source = write_map(bench)
    bench.write("tiles/ground.png", png(8, 16))

    bench.build(source)
    (bench.folder / "assets/tiles/ground.png").unlink()
    bench.build(source)

    assert bench.warnings == [
        "tiles/ground.tsx: picture 'tiles/ground.png' has 8x16 pixels, but the map expects 16x16; save the map again",
        "tiles/ground.tsx: the file 'tiles/ground.png' is missing",
    ]


BOMB = base64.b64encode(zlib.compress(bytes(1 << 24), 9)).decode()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (
            "<data encoding='csv'>1,2,3</data>",
            "maps/a.tmx:4: layer 'floor': the data has 3 tiles, but the size of the layer needs 6",
        ),
        ("<data encoding='csv'>1,2,3,x,5,6</data>", "maps/a.tmx:4: layer 'floor': a tile is not a 32-bit number"),
        ("<data encoding='csv'>1,2,3,4,5,99999999999</data>", "maps/a.tmx:4: layer 'floor': a tile is not a 32-bit number"),
        (packed(b"junk", "zlib"), "maps/a.tmx:4: layer 'floor': the zlib data of the tiles is damaged"),
        (packed(b"junk", "lzma"), "maps/a.tmx:4: layer 'floor': unknown compression 'lzma'; use zlib, gzip or zstd"),
        ("<data encoding='rot13'>x</data>", "maps/a.tmx:4: layer 'floor': unknown encoding 'rot13'; use csv or base64"),
        ("<data encoding='base64'>x</data>", "maps/a.tmx:4: layer 'floor': the data of the tiles is not valid base64"),
        (
            f"<data encoding='base64' compression='zlib'>{BOMB}</data>",
            "maps/a.tmx:4: layer 'floor': the data has more tiles than the 6 that the size of the layer needs",
        ),
        (packed(bytes(20)), "maps/a.tmx:4: layer 'floor': the data has 5 tiles, but the size of the layer needs 6"),
        ("", "maps/a.tmx:4: layer 'floor': the data is empty, but the size of the layer needs 6 tiles"),
        (
            "<data encoding='csv'> \n </data>",
            "maps/a.tmx:4: layer 'floor': the data is empty, but the size of the layer needs 6 tiles",
        ),
        ("<data encoding='base64'/>", "maps/a.tmx:4: layer 'floor': the data is empty, but the size of the layer needs 6 tiles"),
    ],
)
def test_damaged_tiles_fail_with_the_name_and_line_of_their_layer(bench, data, error):
    assert bench.fail(write_map(bench, data)) == error


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("a.tmx", "", "a.tmx:1:1: the file is empty"),
        ("a.tmx", "<map>", "a.tmx:1:6: no element found"),
        ("a.tmx", "<tileset/>", "a.tmx:1: the root element is <tileset>, not <map>"),
        ("a.tmx", "<map/>", "a.tmx:1: the map: 'width' is missing"),
        ("a.tmx", "<map width='x'/>", "a.tmx:1: <map>: 'width' is not a number: 'x'"),
        ("a.tmx", "<map width='-1'/>", "a.tmx:1: the map: 'width' must be a whole number of at least 0, not -1"),
        ("a.tmx", '<!DOCTYPE a [<!ENTITY b "c">]><map/>', "a.tmx:1:25: the file declares the entity 'b'; remove it"),
        ("a.tmj", "[1]", "a.tmj: the file is not a map made with Tiled"),
        ("a.tmj", json.dumps({**SIZE, "layers": 5}), "a.tmj: a layer: 'layers' must be a list of objects"),
        ("a.tmj", '{"layers": [' * 90 + "{}" + "]}" * 90, "a.tmj: the data is nested deeper than 100 levels"),
        (
            "a.tmj",
            json.dumps({**SIZE, "layers": [{"type": "tilelayer", "x": [], "data": [1]}]}),
            "a.tmj: a layer: 'x' must be a whole number of at least -2147483648, not []",
        ),
        (
            "a.ldtk",
            '{"defs": {}, "levels": [{"layerInstances": [{"__cWid": 1, "__cHei": 1, "intGridCsv": 5}]}]}',
            "a.ldtk: '', layer '': 'intGridCsv' must be a list",
        ),
        ("a.ldtk", "{}", "a.ldtk: the file is not an LDtk project: 'defs' or 'levels' is missing"),
    ],
)  # fmt: skip
def test_broken_map_fails_with_its_position(bench, name, text, error):
    assert bench.fail(bench.write(name, text)).startswith(error)


def test_error_names_a_broken_or_missing_tileset(bench):
    source = write_map(bench)
    bench.write("tiles/ground.tsx", "<tileset>\n<image")
    broken = bench.fail(source)
    (bench.folder / "assets/tiles/ground.tsx").unlink()

    assert broken == "maps/a.tmx: tiles/ground.tsx:2:1: unclosed token"
    assert bench.fail(source) == "maps/a.tmx: the file 'tiles/ground.tsx' is missing"
    assert bench.dependencies(source) == ["tiles/ground.tsx"]


@pytest.mark.parametrize("name", ["../../../etc/passwd", "/etc/passwd"])
def test_a_tileset_outside_the_project_is_refused(bench, name):
    source = write_map(bench, tilesets=f'<tileset firstgid="1" source="{name}"/>')

    assert "outside" in bench.fail(source)
    assert bench.dependencies(source) == []


def test_map_with_too_many_tiles_is_refused_before_its_tiles_are_read(bench, monkeypatch):
    monkeypatch.setattr(tiled_map, "MOST_TILES", 5)

    assert bench.fail(write_map(bench)) == "maps/a.tmx:4: the layers have more than 5 tiles together, which is the limit"


def ldtk(tile=3, cells=4):
    layer = {
        "__identifier": "Ground", "__cWid": 2, "__cHei": 2, "__tilesetDefUid": 9, "intGridCsv": [0] * cells,
        "gridTiles": [{"px": [0, 0], "src": [0, 0], "f": 0, "t": tile}], "autoLayerTiles": [],
    }  # fmt: skip
    tileset = {"identifier": "Cave", "uid": 9, "relPath": "../tiles/ground.png", "pxWid": 16, "pxHei": 16, "__cWid": 2, "__cHei": 2}
    defs = {"tilesets": [tileset], "layers": [{"identifier": "Ground", "autoRuleGroups": [{"rules": [1]}]}]}
    return {"jsonVersion": "1.5.3", "defs": defs, "levels": [], "worlds": []}, {"identifier": "L0", "layerInstances": [layer]}


def test_separate_levels_of_an_ldtk_project_are_inserted_into_the_product(bench):
    project, level = ldtk()
    project["levels"] = [{"identifier": "L0", "externalRelPath": "world/L0.ldtkl"}]
    bench.write("tiles/ground.png", png(16, 16))
    bench.write("maps/world/L0.ldtkl", json.dumps(level))
    source = bench.write("maps/world.ldtk", json.dumps(project))

    made = build_map(bench, source)

    assert made["levels"] == [level]
    assert made["defs"]["layers"] == [{"identifier": "Ground"}]
    assert bench.dependencies(source) == ["maps/world/L0.ldtkl", "tiles/ground.png"]
    assert bench.warnings == []


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        ({"tile": 4}, "world.ldtk: 'L0', layer 'Ground': tile 4 is not in 'Cave', which has 4 tiles"),
        ({"cells": 3}, "world.ldtk: 'L0', layer 'Ground': the grid has 3 cells, but the size of the layer needs 4"),
    ],
)
def test_contradiction_in_an_ldtk_level_gives_a_warning(bench, change, warning):
    project, level = ldtk(**change)
    project["levels"] = [level]
    project["defs"]["tilesets"][0]["relPath"] = None

    bench.build(bench.write("world.ldtk", json.dumps(project)))

    assert bench.warnings == [warning]


@pytest.mark.parametrize("uid", [[], {}, None, 8])
def test_ldtk_layer_with_an_unknown_tileset_gives_a_warning(bench, uid):
    project, level = ldtk()
    level["layerInstances"][0]["__tilesetDefUid"] = uid
    project["defs"]["tilesets"][0]["relPath"] = None
    project["defs"]["tilesets"].append({"uid": [], "identifier": "Odd"})

    bench.build(bench.write("world.ldtk", json.dumps({**project, "levels": [level]})))

    assert bench.warnings == [f"world.ldtk: 'L0', layer 'Ground': the layer uses tileset {uid}, which is not in the project"]


def test_old_ldtk_project_that_lacks_tileset_sizes_is_accepted(bench):
    project, level = ldtk()
    del project["defs"]["tilesets"][0]["__cWid"], project["defs"]["tilesets"][0]["__cHei"]
    write_map(bench)

    build_map(bench, bench.write("maps/world.ldtk", json.dumps({**project, "levels": [level]})))

    assert bench.warnings == []


SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=3)
FIELDS = st.sampled_from(
    ["width", "height", "layers", "tilesets", "data", "type", "objects", "image", "gid", "firstgid", "chunks", "template"]
)


@given(
    fields=st.dictionaries(
        FIELDS,
        st.recursive(
            SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=5), max_leaves=10
        ),
    )
)
def test_map_with_random_fields_is_read_or_gives_an_error_of_one_line(fields):
    text = json.dumps({**SIZE, **fields}).encode()

    def read(path):
        raise BrokenTextError("missing")

    try:
        made = MapReader("a.tmj", read).read(text)
        list(tiled_map.check_tiles(made))
    except BrokenTextError:
        return
    assert made["type"] == "map"
