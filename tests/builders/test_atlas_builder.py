"""The `atlas` builder: every sprite is where the list of frames says, pages are well filled, mistakes are explained."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from PIL import Image

from aptui.builders.atlas_builder import AtlasBuilder
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
def test_game_finds_every_sprite_in_the_pages(bench: BuilderBench, params: dict[str, Any]) -> None:
    sprites = draw_sprites(bench, 60)
    bench.write("hud.atlas", '{"sprites": ["ui/*.png"]}')

    found = unpack(bench.build("hud.atlas", **params))

    assert found.keys() == sprites.keys()
    for name, pixels in sprites.items():
        visible = pixels[..., 3] > 0
        assert (found[name][visible] == pixels[visible]).all(), name


def test_pages_are_well_filled(bench: BuilderBench) -> None:
    draw_sprites(bench, 120, border=0)
    bench.write("hud.atlas", '{"sprites": ["ui/*.png"]}')

    bench.build("hud.atlas", extrude=0, padding=0, power_of_two=False)

    share = int(bench.lines[-1][1].split(", ")[1].split(" ")[0])
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


def test_equal_pictures_are_stored_once(bench: BuilderBench) -> None:
    for name in ("a", "b", "c"):
        write_sprite(bench, f"ui/{name}.png", np.full((8, 8, 4), 255, np.uint8))
    bench.write("hud.atlas", '{"sprites": ["./ui/*.png"]}')

    frames = json.loads(bench.build("hud.atlas")["hud.json"])["frames"]

    assert len({str(frame["frame"]) for frame in frames.values()}) == 1


def test_slices_and_pivots_of_frames_are_written_as_an_array(bench: BuilderBench) -> None:
    write_sprite(bench, "menu/ui/a.png", np.full((20, 30, 4), 255, np.uint8))
    settings = '{"sprites": ["./ui/*.png"], "frames": {"menu/ui/a.png": {"slice": [4, 5, 6, 7], "pivot": [0.5, 1]}}}'
    bench.write("menu/hud.atlas", settings)

    (frame,) = json.loads(bench.build("menu/hud.atlas", format="array")["hud.json"])["frames"]

    assert frame["filename"] == "menu/ui/a.png"
    assert frame["pivot"] == {"x": 0.5, "y": 1.0}
    assert frame["scale9Borders"] == {"x": 4, "y": 5, "w": 20, "h": 8}
    assert bench.dependencies("menu/hud.atlas") == ["menu/ui/*.png"]


def test_equal_sprites_give_equal_bytes(bench: BuilderBench) -> None:
    draw_sprites(bench, 30)
    bench.write("hud.atlas", '{"sprites": ["ui/*.png"]}')

    assert bench.build("hud.atlas") == bench.build("hud.atlas")


@pytest.mark.parametrize(
    ("text", "params", "message"),
    [
        ('{"sprites": ["none/*.png"]}', {}, "hud.atlas: no file matches none/*.png"),
        ('{"sprites": ["ui/*.png"]}', {"max_size": 16}, "ui/s000.png has"),
        ('{"sprites": []}', {}, "length >= 1"),
        ('{"sprites": ["ui/*"], "frame": 1}', {}, "unknown field `frame`"),
        ('{"sprites": ["ui/*.png"],\n}', {}, "hud.atlas:1:25: a comma before"),
        ('{"sprites": ["ui/*.txt"]}', {}, "ui/a.txt: "),
        ("[" * 100_000, {}, "hud.atlas"),
    ],
)
def test_mistake_is_explained(bench: BuilderBench, text: str, params: dict[str, Any], message: str) -> None:
    draw_sprites(bench, 1)
    bench.write("ui/a.txt", "no picture")
    bench.write("hud.atlas", text)

    assert message in bench.fail("hud.atlas", **params)


def test_sprite_larger_than_the_largest_page_of_a_power_of_two_is_refused(bench: BuilderBench) -> None:
    write_sprite(bench, "ui/wide.png", np.full((8, 80, 4), 255, np.uint8))
    bench.write("hud.atlas", '{"sprites": ["ui/*.png"]}')

    assert "ui/wide.png has 80x8 pixels, a page holds 64" in bench.fail("hud.atlas", max_size=100)
    assert "hud.png" in bench.build("hud.atlas", max_size=100, power_of_two=False)


def test_settings_of_an_unknown_sprite_warn(bench: BuilderBench) -> None:
    draw_sprites(bench, 1)
    bench.write("hud.atlas", '{"sprites": ["ui/*.png"], "frames": {"ui/gone.png": {}}}')

    bench.build("hud.atlas")

    assert bench.warnings == ["hud.atlas: 'frames' names ui/gone.png, which is not among the sprites"]


def test_list_of_frames_depends_on_all_its_pages(bench: BuilderBench) -> None:
    draw_sprites(bench, 30)

    bench.build(bench.write("hud.atlas", '{"sprites": ["ui/*.png"]}'), max_size=128)

    *pages, frames = bench.products
    assert [(each.source_uuid, each.sub_id) for each in frames.dependencies] == [(UUID(int=1), page.sub_id) for page in pages]
    assert frames.dependencies_handled
