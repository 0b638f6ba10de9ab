"""Test the animated picture: if several frames have the same row, the row is drawn only once and visible only in these frames."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from rich.style import Style

from tests import pictures
from tests.cast import Frame, row_of, svg_of
from tests.pictures import CAST, FOLDER, MOST_CAST_BYTES

SVG = "{http://www.w3.org/2000/svg}"
QUIET = Style.parse("#c0c0c0 on #101010")


def frame(*lines: str, seconds: float = 1.0) -> Frame:
    return Frame(tuple(row_of([(line.ljust(20), QUIET)]) for line in lines), seconds)


def seen_at(svg: str, share: float) -> list[str]:
    """Return the visible lines after a given share of the animation's time."""
    seen = []
    for group in ET.fromstring(svg).iter(f"{SVG}g"):
        animation = group.find(f"{SVG}animate")
        values, times = ["visible"], [0.0]
        if animation is not None:
            values, times = animation.attrib["values"].split(";"), [float(each) for each in animation.attrib["keyTimes"].split(";")]
        if [value for value, time in zip(values, times, strict=True) if time <= share][-1] == "visible":
            seen += [text.text.replace("\xa0", " ") for text in group.findall(f"{SVG}text")]
    return seen


def test_animated_svg_shows_each_frame_at_its_time():
    svg = svg_of([frame("head", "one"), frame("head", "two", seconds=2.0), frame("head", "one")], 20, poster=1)

    assert [seen_at(svg, share) for share in (0.0, 0.2, 0.3, 0.7, 0.8)] == [
        ["head", "one"], ["head", "one"], ["head", "two"], ["head", "two"], ["head", "one"],
    ]  # fmt: skip
    assert svg.count(">head<") == svg.count(">one<") == 1


def test_animated_svg_shows_the_poster_frame_if_animation_is_off():
    svg = svg_of([frame("one"), frame("two")], 20, poster=1)

    groups = {
        group.find(f"{SVG}text").text: group.get("visibility")
        for group in ET.fromstring(svg).iter(f"{SVG}g")
        if group.get("visibility")
    }
    assert groups == {"one": "hidden", "two": "visible"}


def test_svg_keeps_text_styles_and_escapes_markup():
    row = row_of([("a<b", Style.parse("bold #ff0000 on #101010")), ("  ", QUIET), ("x", Style.parse("#112233 on #445566 reverse"))])

    svg = svg_of([Frame((row,), 1.0)], 6, poster=0)

    assert "a&lt;b" in svg
    assert "fill:#ff0000;font-weight:bold" in svg
    assert 'fill="#112233"' in svg
    assert "fill:#445566" in svg


@pytest.mark.real
def test_animated_picture_replays_the_recorded_build(monkeypatch):
    from tests.tui.scene import scene

    monkeypatch.setattr(pictures, "CAST_STEPS", (("1", "2 lines", 1.0), ("play 3", "idle", 0.5)))
    with scene() as here:
        svg = pictures.asyncio.run(pictures._cast(here))

    assert any("building" in line for line in seen_at(svg, 0.4) + seen_at(svg, 0.6))
    assert "/tmp/" not in svg


def test_animation_of_the_readme_is_small_and_loads_no_other_file():
    svg = (FOLDER / f"{CAST}.svg").read_text(encoding="utf-8")

    assert len(svg.encode()) <= MOST_CAST_BYTES
    assert {"idle", "building", "Metrics", "broken.json"} <= {
        word for word in ("idle", "building", "Metrics", "broken.json") if word in svg
    }
    assert not {word for word in ("url(http", "@font-face", "@import", "<image", "<script", "/tmp/") if word in svg}
