import json
from io import BytesIO

import pytest
from atlas import Atlas
from PIL import Image

from aptui.sdk.testing import BuilderBench


@pytest.fixture
def bench(tmp_path):
    bench = BuilderBench(Atlas(), tmp_path)
    for number in range(5):
        file = BytesIO()
        image = Image.new("RGBA", (20, 20))
        image.paste((number * 50, 255, 0, 255), (2, 3, 10 + number, 12))
        image.save(file, "PNG")
        bench.write(f"sprites/{number}.png", file.getvalue())
    bench.write("ui.atlas", '{"sprites": ["sprites/*.png"]}')
    return bench


def test_atlas_holds_every_sprite_at_its_frame(bench):
    made = bench.build("ui.atlas")

    page, frames = Image.open(BytesIO(made["ui.png"])), json.loads(made["ui.json"])["frames"]
    assert page.size == (64, 32)
    assert bench.products[0].facts == {"width": 64, "height": 32, "format": "png"}
    for number in range(5):
        frame = frames[f"sprites/{number}.png"]
        x, y, w, h = (frame["frame"][key] for key in "xywh")
        assert (w, h, frame["trimmed"]) == (8 + number, 9, True)
        assert page.crop((x - 1, y - 1, x + w + 1, y + h + 1)).getcolors() == [((w + 2) * (h + 2), (number * 50, 255, 0, 255))]


def test_atlas_without_sprites_or_with_too_many_fails(bench):
    bench.write("none.atlas", '{"sprites": ["nothing/*"]}')

    assert bench.dependencies("none.atlas") == ["nothing/*"]
    assert bench.fail("none.atlas") == "no sprite matches"
    assert bench.fail("ui.atlas", max_size=64, trim=False, extrude=16) == "the sprites need more than a page of 64x64"
