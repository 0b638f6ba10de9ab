"""The `atlas` builder: the list of frames gives the position of every sprite, pages are well filled, mistakes are explained."""

from __future__ import annotations

import json
import random
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from PIL import Image

from aptui.builders.atlas_builder import AtlasBuilder, Item, Place, place_items
from aptui.builders.common import SourceBuilder
from aptui.builders.image_builder import ImageBuilder
from aptui.builders.texture_builder import TextureBuilder
from aptui.sdk.testing import BuilderBench


@pytest.fixture
def bench(tmp_path: Path) -> BuilderBench:
    return BuilderBench(AtlasBuilder(), tmp_path)


def draw_sprites(bench: BuilderBench, count: int, seed: int = 1, border: int = 3) -> dict[str, np.ndarray]:
    """Write sprites of many sizes with a transparent border; return {path: pixels}."""
    random = np.random.default_rng(seed)
    sprites = {}
    for number in range(count):
        height, width = random.integers(8, 64, 2)
        pixels = random.integers(0, 256, (height, width, 4)).astype(np.uint8)
        pixels[..., 3] = 255
        pixels = np.pad(pixels, ((border, border), (border, border), (0, 0)))
        sprites[f"ui/s{number:03}.png"] = pixels
        write_sprite(bench, f"ui/s{number:03}.png", pixels)
    return sprites


def write_sprite(bench: BuilderBench, path: str, pixels: np.ndarray) -> None:
    file = BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    bench.write(path, file.getvalue())


def unpack(products: dict[str, bytes], stem: str = "hud") -> dict[str, np.ndarray]:
    """Return {sprite: pixels in its original size} as a game reads them from the pages."""
    listed = json.loads(products[f"{stem}.json"])
    pages = {name: np.asarray(Image.open(BytesIO(data))) for name, data in products.items() if name.endswith(".png")}
    found = {}
    for name, frame in listed["frames"].items():
        page, box, source = pages[frame.get("page", listed["meta"]["image"])], frame["frame"], frame["spriteSourceSize"]
        width, height = (box["h"], box["w"]) if frame["rotated"] else (box["w"], box["h"])
        part = page[box["y"] : box["y"] + height, box["x"] : box["x"] + width]
        whole = np.zeros((frame["sourceSize"]["h"], frame["sourceSize"]["w"], 4), np.uint8)
        whole[source["y"] : source["y"] + source["h"], source["x"] : source["x"] + source["w"]] = (
            np.rot90(part, 1) if frame["rotated"] else part
        )
        found[name] = whole
    return found


@pytest.mark.parametrize(
    "params",
    [{}, {"trim": False}, {"rotate": True}, {"power_of_two": False}, {"max_size": 256}, {"extrude": 0, "padding": 0}],
    ids=["default", "untrimmed", "rotated", "any size", "several pages", "tight"],
)
def test_frame_list_gives_the_position_of_every_sprite_on_the_pages(bench: BuilderBench, params: dict[str, Any]) -> None:
    sprites = draw_sprites(bench, 60)
    bench.write("hud.atlas", '{"sprites": ["ui/*.png"]}')

    found = unpack(bench.build("hud.atlas", **params))

    assert found.keys() == sprites.keys()
    for name, pixels in sprites.items():
        visible = pixels[..., 3] > 0
        assert (found[name][visible] == pixels[visible]).all(), name


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_atlas_file_with_a_byte_order_mark_is_read(bench: BuilderBench, encoding: str) -> None:
    draw_sprites(bench, 2)
    bench.write("hud.atlas", '{"sprites": ["ui/*.png"]}'.encode(encoding))

    assert len(json.loads(bench.build("hud.atlas")["hud.json"])["frames"]) == 2


def test_sprites_fill_at_least_85_percent_of_the_pages(bench: BuilderBench) -> None:
    draw_sprites(bench, 120, border=0)
    bench.write("hud.atlas", '{"sprites": ["ui/*.png"]}')

    bench.build("hud.atlas", extrude=0, padding=0, power_of_two=False)

    share = int(bench.lines[-1][1].split("filled to ")[1].split(" ")[0])
    assert share >= 85


def test_sprites_do_not_overlap_and_are_extruded(bench: BuilderBench) -> None:
    write_sprite(bench, "ui/a.png", np.full((8, 8, 4), (255, 0, 0, 255), np.uint8))
    write_sprite(bench, "ui/b.png", np.full((8, 8, 4), (0, 255, 0, 255), np.uint8))
    bench.write("hud.atlas", '{"sprites": ["ui/*.png"]}')

    products = bench.build("hud.atlas", extrude=2, padding=4)

    page = np.asarray(Image.open(BytesIO(products["hud.png"])))
    assert (page[..., 3] > 0).sum() == 2 * 12 * 12
    frames = json.loads(products["hud.json"])["frames"]
    x = sorted(frame["frame"]["x"] + frame["frame"]["y"] for frame in frames.values())
    assert x[1] - x[0] >= 8 + 2 * 2 + 4


def test_equal_sprites_are_stored_once(bench: BuilderBench) -> None:
    for name in ("a", "b", "c"):
        write_sprite(bench, f"ui/{name}.png", np.full((8, 8, 4), 255, np.uint8))
    bench.write("hud.atlas", '{"sprites": ["./ui/*.png"]}')

    frames = json.loads(bench.build("hud.atlas")["hud.json"])["frames"]

    assert len({str(frame["frame"]) for frame in frames.values()}) == 1


def test_array_format_contains_the_slices_and_pivots_of_frames(bench: BuilderBench) -> None:
    write_sprite(bench, "menu/ui/a.png", np.full((20, 30, 4), 255, np.uint8))
    settings = '{"sprites": ["./ui/*.png"], "frames": {"menu/ui/a.png": {"slice": [4, 5, 6, 7], "pivot": [0.5, 1]}}}'
    bench.write("menu/hud.atlas", settings)

    (frame,) = json.loads(bench.build("menu/hud.atlas", format="array")["hud.json"])["frames"]

    assert frame["filename"] == "menu/ui/a.png"
    assert frame["pivot"] == {"x": 0.5, "y": 1.0}
    assert frame["scale9Borders"] == {"x": 4, "y": 5, "w": 20, "h": 8}
    assert bench.dependencies("menu/hud.atlas") == ["menu/ui/*.png"]


SHEET = {
    "frames": {
        "hero 0.aseprite": {
            "frame": {"x": 0, "y": 0, "w": 4, "h": 6}, "rotated": False, "trimmed": True,
            "spriteSourceSize": {"x": 2, "y": 1, "w": 4, "h": 6}, "sourceSize": {"w": 8, "h": 8}, "duration": 100,
        },
        "hero 1.aseprite": {"frame": {"x": 4, "y": 0, "w": 8, "h": 8}, "duration": 50},
        "hero 2.aseprite": {"frame": {"x": 12, "y": 0, "w": 8, "h": 8}, "duration": 50},
    },
    "meta": {
        "app": "https://www.aseprite.org/", "image": "hero.png", "format": "RGBA8888", "size": {"w": 20, "h": 8}, "scale": "1",
        "frameTags": [
            {"name": "walk", "from": 0, "to": 2, "direction": "pingpong", "color": "#000000ff"},
            {"name": "back", "from": 1, "to": 2, "direction": "reverse"},
        ],
        "slices": [{"name": "body", "keys": [{
            "frame": 0, "bounds": {"x": 1, "y": 1, "w": 6, "h": 6}, "center": {"x": 1, "y": 2, "w": 3, "h": 2},
            "pivot": {"x": 3, "y": 5},
        }]}],
    },
}  # fmt: skip


def write_sheet(bench: BuilderBench, **changes: Any) -> np.ndarray:
    """Write an atlas of a sheet that Aseprite exported; return the pixels of the sheet."""
    pixels = np.random.default_rng(2).integers(0, 256, (8, 20, 4)).astype(np.uint8)
    pixels[..., 3] = 255
    write_sprite(bench, "art/hero.png", pixels)
    bench.write("art/hero.json", json.dumps({**SHEET, **changes}))
    bench.write("hud.atlas", '{"sprites": ["art/*.json"]}')
    return pixels


@pytest.mark.parametrize("is_array", [False, True])
def test_frames_of_aseprite_become_sprites_and_its_tags_become_animations(bench: BuilderBench, is_array: bool) -> None:
    frames = SHEET["frames"]
    listed = [{"filename": name, **frame} for name, frame in frames.items()] if is_array else frames
    pixels = write_sheet(bench, frames=listed)

    products = bench.build("hud.atlas")

    found, document = unpack(products), json.loads(products["hud.json"])
    assert list(found) == ["art/hero/hero 0", "art/hero/hero 1", "art/hero/hero 2"]
    assert (found["art/hero/hero 0"][1:7, 2:6] == pixels[0:6, 0:4]).all()
    assert (found["art/hero/hero 2"] == pixels[:, 12:]).all()
    assert {name: [each[-1] for each in shown] for name, shown in document["animations"].items()} == {
        "art/hero/walk": ["0", "1", "2", "1"], "art/hero/back": ["2", "1"],
    }  # fmt: skip
    first = document["frames"]["art/hero/hero 0"]
    assert (first["duration"], first["sourceSize"], first["trimmed"]) == (100, {"w": 8, "h": 8}, True)
    assert first["scale9Borders"] == {"x": 2, "y": 3, "w": 3, "h": 2}
    assert first["pivot"] == {"x": 0.5, "y": 0.75}
    assert bench.dependencies("hud.atlas") == ["art/*.json", "art/hero.png"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"frames": {"a": {"frame": {"x": 15, "y": 0, "w": 8, "h": 8}}}},
            "frame 'art/hero/a' lies outside of the picture hero.png",
        ),
        ({"frames": {"a": {"frame": {"x": 0, "y": 0, "w": 8, "h": 8}, "sourceSize": {"w": 9999, "h": 9999}}}}, "9999x9999 pixels"),
        (
            {
                "frames": {
                    "a": {"frame": {"x": 0, "y": 0, "w": 8, "h": 8}, "spriteSourceSize": {"x": 16385, "y": 0, "w": 8, "h": 8}}
                }
            },
            "art/hero.json: the file is not a sprite sheet that Aseprite exported as JSON: Expected `int` <= 16384",
        ),
        (
            {"frames": {"a": {"frame": {"x": 0, "y": 0, "w": 8, "h": 8}, "spriteSourceSize": {"x": 8, "y": 0, "w": 8, "h": 8}}}},
            "art/hero.json: frame 'art/hero/a' lies outside of its own size of 8x8 pixels",
        ),
        (
            {
                "meta": {
                    "image": "hero.png",
                    "slices": [
                        {
                            "keys": [
                                {
                                    "bounds": {"x": -5, "y": 0, "w": 9, "h": 9},
                                    "center": {"x": 1, "y": 1, "w": 1, "h": 1},
                                }
                            ]
                        }
                    ],
                }
            },
            "hud.atlas: the 9-slice of sprite art/hero/hero 0 does not fit into its 8x8 pixels",
        ),
        ({"frames": [{"frame": {"x": 0, "y": 0, "w": 8, "h": 8}}] * 2}, "two frames have the same name"),
        ({"frames": {}, "meta": {"image": "hero.png"}}, "the sprite sheets of this atlas have no frames"),
        ({"meta": {"image": "hero.png", "frameTags": [{"name": "walk", "from": 1, "to": 3}]}}, "tag 'walk' names frames 1 to 3"),
        (
            {"meta": {"image": "hero.png", "frameTags": [{"name": "walk", "from": 0, "to": 1}] * 2}},
            "two tags have the same name 'walk'",
        ),
        ({"meta": {"image": "gone.png"}}, "art/hero.json: the file 'art/gone.png' is missing"),
        ({"meta": {"image": "../../secret.png"}}, "secret.png"),
        (
            {"meta": {}},
            "art/hero.json: the file is not a sprite sheet that Aseprite exported as JSON: Object missing required field `image`",
        ),
    ],
)
def test_mistake_in_a_sprite_sheet_is_explained(bench: BuilderBench, changes: dict[str, Any], message: str) -> None:
    write_sheet(bench, **changes)

    assert message in bench.fail("hud.atlas")


def test_picture_of_a_sheet_is_not_a_sprite(bench: BuilderBench) -> None:
    write_sheet(bench)
    write_sprite(bench, "art/coin.png", np.full((4, 4, 4), 255, np.uint8))
    bench.write("hud.atlas", '{"sprites": ["art/*.png", "art/*.json"]}')

    frames = json.loads(bench.build("hud.atlas")["hud.json"])["frames"]

    assert set(frames) == {"art/coin.png", "art/hero/hero 0", "art/hero/hero 1", "art/hero/hero 2"}


@pytest.mark.parametrize("form", ["hash", "array", "phaser", "godot"])
def test_textures_parameter_sets_the_extension_of_pages_in_the_frame_list(bench: BuilderBench, form: str) -> None:
    draw_sprites(bench, 30)
    bench.write("HUD.atlas", '{"sprites": ["ui/*.png"]}')

    products = bench.build("HUD.atlas", format=form, max_size=128, textures="ktx2")

    listed = products["HUD.tpsheet" if form == "godot" else "HUD.json"].decode()
    assert '"image": "hud-1.ktx2"' in listed
    assert '"hud-1.png"' not in listed.lower()


def bench_of_page(bench: BuilderBench, builder: SourceBuilder, textures: str) -> BuilderBench:
    """Return a bench of another builder that has a page of an atlas as its source, as with an intermediate."""
    draw_sprites(bench, 3)
    bench.write("HUD.atlas", '{"sprites": ["ui/*.png"]}')
    page = bench.build("HUD.atlas", textures=textures)["HUD.png"]
    later = BuilderBench(builder, bench.folder / "later")
    later.write("HUD.png", page)
    return later


@pytest.mark.parametrize(
    ("builder", "params"),
    [
        (ImageBuilder(), {"max_size": 32}),
        (ImageBuilder(), {"scale": 0.5}),
        (TextureBuilder(), {"max_size": 32, "format": "none"}),
    ],
)
def test_page_of_an_atlas_is_never_scaled(bench: BuilderBench, builder: SourceBuilder, params: dict[str, Any]) -> None:
    error = bench_of_page(bench, builder, "files").fail("HUD.png", **params)

    assert error.startswith("HUD.png: this atlas page has ")
    assert "set max_size of the atlas" in error


@pytest.mark.parametrize(
    ("builder", "params", "textures", "is_listed"),
    [
        (ImageBuilder(), {}, "files", True),
        (ImageBuilder(), {"format": "webp"}, "files", False),
        (ImageBuilder(), {"format": "webp", "lossless": True}, "webp", True),
        (TextureBuilder(), {"format": "none"}, "ktx2", True),
        (TextureBuilder(), {"format": "none"}, "files", False),
    ],
)
def test_product_of_a_page_that_its_atlas_lists_under_another_name_is_a_warning(
    bench: BuilderBench, builder: SourceBuilder, params: dict[str, Any], textures: str, is_listed: bool
) -> None:
    later = bench_of_page(bench, builder, textures)

    (name,) = later.build("HUD.png", **params)

    wrong = f"HUD.png: the list of this page's atlas names 'hud.png', but the product is '{name.lower()}'; set 'textures' of "
    assert [text.startswith(wrong) for text in later.warnings] == ([] if is_listed else [True])


def test_phaser_format_has_one_texture_with_its_frames_for_each_page(bench: BuilderBench) -> None:
    sprites = draw_sprites(bench, 30)
    bench.write("hud.atlas", '{"sprites": ["ui/*.png"]}')

    products = bench.build("hud.atlas", format="phaser", max_size=128)

    textures = json.loads(products["hud.json"])["textures"]
    assert sorted(each["image"] for each in textures) == [name for name in products if name.endswith(".png")]
    assert len(textures) > 1
    assert sorted(frame["filename"] for each in textures for frame in each["frames"]) == sorted(sprites)


def test_godot_format_has_the_region_and_margin_of_each_sprite(bench: BuilderBench) -> None:
    draw_sprites(bench, 3)
    bench.write("hud.atlas", '{"sprites": ["ui/*.png"]}')

    products = bench.build("hud.atlas", format="godot")

    (texture,) = json.loads(products["hud.tpsheet"])["textures"]
    page = np.asarray(Image.open(BytesIO(products["hud.png"])))
    for sprite in texture["sprites"]:
        region, margin = sprite["region"], sprite["margin"]
        assert margin == {"x": 3, "y": 3, "w": 6, "h": 6}
        assert (page[region["y"] : region["y"] + region["h"], region["x"] : region["x"] + region["w"], 3] == 255).all()
    assert "set rotate: false" in bench.analyse("hud.atlas", {"format": "godot", "rotate": True}).error


def test_equal_sprites_give_equal_bytes(bench: BuilderBench) -> None:
    draw_sprites(bench, 30)
    bench.write("hud.atlas", '{"sprites": ["ui/*.png"]}')

    assert bench.build("hud.atlas") == bench.build("hud.atlas")


@pytest.mark.parametrize(
    ("text", "params", "message"),
    [
        ('{"sprites": ["none/*.png"]}', {}, "hud.atlas: no file matches none/*.png"),
        ('{"sprites": ["ui/*.png"]}', {"max_size": 16}, "ui/s000.png has"),
        (
            '{"sprites": ["ui/*.png"], "frames": {"ui/s000.png": {"slice": [60, 0, 60, 0]}}}',
            {},
            "hud.atlas: the 9-slice of sprite ui/s000.png does not fit into its ",
        ),
        ('{"sprites": ["ui/*.png"], "frames": {"a": {"pivot": [1e999, 0]}}}', {}, "Expected `float` <= 1000000.0"),
        ('{"sprites": []}', {}, "length >= 1"),
        ('{"sprites": ["ui/*"], "frame": 1}', {}, "unknown field `frame`"),
        ('{"sprites": ["ui/*.png"],\n}', {}, "hud.atlas:1:25: JSON does not allow a comma"),
        ('{"sprites": ["ui/*.txt"]}', {}, "ui/a.txt: "),
        ("[" * 100_000, {}, "hud.atlas"),
    ],
)
def test_mistake_in_an_atlas_or_its_parameters_is_explained(
    bench: BuilderBench, text: str, params: dict[str, Any], message: str
) -> None:
    draw_sprites(bench, 1)
    bench.write("ui/a.txt", "no picture")
    bench.write("hud.atlas", text)

    assert message in bench.fail("hud.atlas", **params)


def test_sprite_larger_than_the_largest_power_of_two_page_is_refused(bench: BuilderBench) -> None:
    write_sprite(bench, "ui/wide.png", np.full((8, 80, 4), 255, np.uint8))
    bench.write("hud.atlas", '{"sprites": ["ui/*.png"]}')

    assert "sprite ui/wide.png has 80x8 pixels, but a page has at most 64 (max_size)" in bench.fail("hud.atlas", max_size=100)
    assert "hud.png" in bench.build("hud.atlas", max_size=100, power_of_two=False)


def test_sprite_larger_than_a_page_is_refused_before_later_sprites_are_read(bench: BuilderBench) -> None:
    write_sprite(bench, "ui/a.png", np.full((80, 80, 4), 255, np.uint8))
    bench.write("ui/b.png", "no picture")
    bench.write("hud.atlas", '{"sprites": ["ui/*.png"]}')

    assert "sprite ui/a.png has 80x80 pixels" in bench.fail("hud.atlas", max_size=64)


def test_file_name_that_is_not_utf_8_is_refused(bench: BuilderBench) -> None:
    write_sprite(bench, "ui/\udcff.png", np.full((8, 8, 4), 255, np.uint8))
    bench.write("hud.atlas", '{"sprites": ["ui/*.png"]}')

    assert "hud.json would contain a file name that is not UTF-8; rename the file" in bench.fail("hud.atlas")


def test_settings_of_an_unknown_sprite_warn(bench: BuilderBench) -> None:
    draw_sprites(bench, 1)
    bench.write("hud.atlas", '{"sprites": ["ui/*.png"], "frames": {"ui/gone.png": {}}}')

    bench.build("hud.atlas")

    assert bench.warnings == ["hud.atlas: 'frames' has settings for ui/gone.png, but no sprite has this name"]


def test_frame_list_depends_on_all_pages_of_the_atlas(bench: BuilderBench) -> None:
    draw_sprites(bench, 30)

    bench.build(bench.write("hud.atlas", '{"sprites": ["ui/*.png"]}'), max_size=128)

    *pages, frames = bench.products
    assert [(each.source_uuid, each.sub_id) for each in frames.dependencies] == [(UUID(int=1), page.sub_id) for page in pages]
    assert frames.dependencies_handled


# ----------------------------------------------------------------------------------------------------- places of rectangles
def make_items(count: int) -> list[Item]:
    """Return `count` rectangles with random sides of 10 to 66 pixels, longest side first. Equal counts give equal rectangles."""
    dice = random.Random(count)
    items = [Item(dice.randint(10, 66), dice.randint(10, 66), key) for key in range(count)]
    return sorted(items, key=lambda item: (-max(item[:2]), item.key))


def paint(places: list[Place], size: tuple[int, int]) -> list[bytearray]:
    """Return how many rectangles cover each pixel of the page."""
    rows = [bytearray(size[0]) for _row in range(size[1])]
    for place in places:
        for y in range(place.y, place.y + place.height):
            for x in range(place.x, place.x + place.width):
                rows[y][x] += 1
    return rows


@pytest.mark.parametrize("can_rotate", [False, True])
def test_rectangles_are_placed_without_overlap_and_fill_the_page(can_rotate: bool) -> None:
    items = make_items(300)
    size = (680, 680)

    places, left = place_items(items, size, can_rotate=can_rotate)

    area = sum(place.width * place.height for place in places)
    assert max(max(row) for row in paint(places, size)) == 1
    assert area > 0.85 * size[0] * size[1]
    assert {place.key for place in places} | {item.key for item in left} == set(range(300))
    shapes = {item.key: item[:2] for item in items}
    turned = [place for place in places if (place.width, place.height) != shapes[place.key]]
    assert all((place.height, place.width) == shapes[place.key] for place in turned)
    assert bool(turned) is can_rotate


def test_rectangle_of_the_page_size_fits_and_a_larger_rectangle_does_not() -> None:
    assert place_items([Item(40, 30, 1)], (40, 30)) == ([Place(0, 0, 40, 30, 1)], [])
    assert place_items([Item(30, 40, 1)], (40, 30)) == ([], [Item(30, 40, 1)])
    assert place_items([Item(30, 40, 1)], (40, 30), can_rotate=True) == ([Place(0, 0, 40, 30, 1)], [])


def test_placing_stops_at_the_first_misfit_if_all_rectangles_are_needed() -> None:
    items = [Item(10, 10, 1), Item(50, 50, 2), Item(5, 5, 3)]

    assert place_items(items, (20, 20)) == ([Place(0, 0, 10, 10, 1), Place(0, 10, 5, 5, 3)], [items[1]])
    assert place_items(items, (20, 20), is_all_needed=True) == ([Place(0, 0, 10, 10, 1)], [items[1]])


def test_thousands_of_rectangles_get_the_same_places_every_time() -> None:
    """A free rectangle that lies inside another free rectangle is dropped. Without this, the test would take too long."""
    items = make_items(2400)
    side = int((1.12 * sum(item.width * item.height for item in items)) ** 0.5)

    places, left = place_items(items, (side, side))

    assert left == []
    assert places == place_items(items, (side, side))[0]
