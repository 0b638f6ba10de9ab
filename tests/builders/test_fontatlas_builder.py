"""The `fontatlas` and `msdf` builders.

Positions of glyphs match the metrics, distances are right, and the font gives the kerning.
"""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
from fontTools.feaLib.builder import addOpenTypeFeaturesFromString
from fontTools.pens.ttGlyphPen import TTGlyphPen
from fontTools.ttLib import TTFont, newTable
from fontTools.ttLib.tables._k_e_r_n import KernTable_format_0
from PIL import Image

from aptui.builders import fontatlas_builder
from aptui.builders.fontatlas_builder import FontAtlasBuilder, MsdfBuilder
from aptui.demo.demo_assets import EXTRAS
from aptui.sdk.testing import BuilderBench

BUILDER = FontAtlasBuilder

TTF = next(extra for extra in EXTRAS if extra.name == "font").files["fonts/lantern.ttf"]()  # type: ignore[operator]
"""A font with the letters L, a, m and p. Each letter is a box; L extends from (50, 0) to (500, 700). An em has 1,000 units."""


def add_kerning(features: str) -> bytes:
    font = TTFont(io.BytesIO(TTF), recalcTimestamp=False)
    addOpenTypeFeaturesFromString(font, features)
    return save(font)


def save(font: TTFont) -> bytes:
    stream = io.BytesIO()
    font.save(stream)
    return stream.getvalue()


def draw(bench, data=TTF, **params):
    products = bench.build(bench.write("ui/lantern.ttf", data), **params)
    pages = [np.asarray(Image.open(io.BytesIO(products[name]))) for name in sorted(products, key=len) if name.endswith(".png")]
    return json.loads(products["lantern.json"]), pages


def glyph_of(metrics, character):
    return next(each for each in metrics["glyphs"] if each["unicode"] == ord(character))


def test_character_of_a_missing_glyph_fails(bench):
    font = TTFont(io.BytesIO(TTF), recalcTimestamp=False)
    for table in font["cmap"].tables:
        table.cmap[ord("L")] = "glyph00099"

    error = bench.fail(bench.write("a.ttf", save(font)))

    assert error == "a.ttf: table 'cmap' maps U+004C to a glyph that the font does not have"


@pytest.mark.parametrize("spread", [3, 8])
def test_distance_field_has_no_cut_where_contours_overlap(bench, spread):
    """The letter is a cross of two boxes, which overlap in its middle."""
    font = TTFont(io.BytesIO(TTF), recalcTimestamp=False)
    pen = TTGlyphPen(None)
    for left, bottom, right, top in ((0, 300, 900, 600), (300, 0, 600, 900)):
        pen.moveTo((left, bottom))
        for point in ((left, top), (right, top), (right, bottom)):
            pen.lineTo(point)
        pen.closePath()
    font["glyf"]["L"] = pen.glyph()

    metrics, (page,) = draw(bench, save(font), size=100, spread=spread)

    box, height = glyph_of(metrics, "L")["atlasBounds"], metrics["atlas"]["height"]
    field = page[height - box["top"] : height - box["bottom"], box["left"] : box["right"]][spread:-spread, spread:-spread]
    assert field.shape == (90, 90)
    assert field[31:59].min() >= 128
    assert field[:, 31:59].min() >= 128
    assert field[:29, :29].max() < 128


def test_metrics_give_the_bounds_of_the_distance_field_of_a_glyph(bench):
    metrics, (page,) = draw(bench, size=100, spread=8)

    letter = glyph_of(metrics, "L")
    assert letter["advance"] == 0.55
    assert letter["planeBounds"] == {"left": -0.03, "bottom": -0.08, "right": 0.58, "top": 0.78}
    box = letter["atlasBounds"]
    top = metrics["atlas"]["height"] - box["top"]
    field = page[top : top + 86, box["left"] : box["right"]].astype(int)
    assert field.shape == (86, 61)
    # The expected values are distances from the centres of the pixels of one row to the outline, which is 8 pixels from the left
    # edge.
    expected = [128 + (column + 0.5 - 8) * 128 / 8 for column in range(16)]
    assert np.abs(field[43, :16] - np.clip(expected, 0, 255)).max() <= 4
    assert metrics["atlas"] | {"width": 0, "height": 0} == {
        "type": "sdf", "size": 100, "distanceRange": 16, "distanceRangeMiddle": 0, "width": 0, "height": 0, "yOrigin": "bottom",
    }  # fmt: skip
    assert metrics["metrics"]["ascender"] == 0.8


def test_glyph_picture_covers_the_outline_of_the_glyph(bench):
    metrics, (page,) = draw(bench, size=20, mode="picture")

    box = glyph_of(metrics, "L")["atlasBounds"]
    assert (box["right"] - box["left"], box["top"] - box["bottom"]) == (9, 14)
    top = metrics["atlas"]["height"] - box["top"]
    assert page[top : top + 14, box["left"] : box["right"]].min() == 255


def test_glyphs_that_do_not_fit_on_one_page_are_drawn_on_further_pages(bench):
    metrics, pages = draw(bench, size=40, max_size=64)

    assert len(pages) > 1
    assert [each.sub_id for each in bench.products[-1].dependencies] == [page.sub_id for page in bench.products[:-1]]
    names = {each["image"]: each for each in metrics["atlas"]["pages"]}
    for each in metrics["glyphs"]:
        page = names[each["page"]]
        assert 0 <= each["atlasBounds"]["left"] < each["atlasBounds"]["right"] <= page["width"]
        assert 0 <= each["atlasBounds"]["bottom"] < each["atlasBounds"]["top"] <= page["height"]
    assert (
        bench.fail("ui/lantern.ttf", size=100, max_size=64)
        == "ui/lantern.ttf: the glyph of U+004C has 57x82 pixels, but a page has at most 64 (max_size)"
    )


def test_characters_are_collected_from_the_parameters_and_from_files(bench):
    bench.write("locale/de.po", 'msgid "L"\nmsgstr "ma"\n\n#, fuzzy\nmsgid "p"\nmsgstr "p"\n')
    bench.write("texts/a.txt", "Lä\n")
    source = bench.write("ui/lantern.ttf", TTF)
    params = {"ranges": [], "files": ["locale/*.po", "../texts/*.txt"]}

    assert bench.dependencies(source, **params) == ["texts/*.txt", "locale/*.po"]
    metrics = json.loads(bench.build(source, **params)["lantern.json"])

    assert [chr(each["unicode"]) for each in metrics["glyphs"]] == ["L", "a", "m"]
    assert bench.warnings == ["ui/lantern.ttf: the font has no glyphs for U+00E4"]
    assert bench.fail(source, strict=True, **params) == "ui/lantern.ttf: the font has no glyphs for U+00E4"
    assert "no file matches 'x/*.po'" in bench.fail(source, strict=True, files=["x/*.po"])
    assert "the range U+7E-20 in parameter 'ranges' ends before it begins" in bench.fail(source, ranges=["U+7E-20"])
    assert (
        bench.fail(source, ranges=["U+3040-309F"])
        == "ui/lantern.ttf: the font does not have any of the characters that the parameters name"
    )


PAIRS = "pos L a -80; pos L m 20;"
CLASSES = "@one = [L a]; @two = [m p]; enum pos L m -10; pos @one @two -40;"


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (f"feature kern {{ {PAIRS} }} kern;", {("L", "a"): -80, ("L", "m"): 20}),
        (f"feature kern {{ {CLASSES} }} kern;", {("L", "m"): -10, ("L", "p"): -40, ("a", "m"): -40, ("a", "p"): -40}),
        (f"feature kern {{ lookup one {{ {PAIRS} }} one; lookup two {{ pos L a -5; }} two; }} kern;",
         {("L", "a"): -85, ("L", "m"): 20}),
        (f"feature kern {{ lookup far useExtension {{ {PAIRS} }} far; }} kern;", {("L", "a"): -80, ("L", "m"): 20}),
        (f"feature cpsp {{ {PAIRS} }} cpsp;", {}),
    ],
)  # fmt: skip
def test_kerning_is_read_from_gpos(bench, features, expected):
    metrics, _ = draw(bench, add_kerning(features))

    found = {(chr(each["unicode1"]), chr(each["unicode2"])): round(each["advance"] * 1000) for each in metrics["kerning"]}
    assert found == expected


def test_kerning_is_read_from_the_kern_table_if_the_font_has_no_gpos(bench):
    font = TTFont(io.BytesIO(TTF), recalcTimestamp=False)
    table = KernTable_format_0()
    table.coverage, table.kernTable = 1, {("L", "a"): -30, ("L", "p"): 0}
    font["kern"] = newTable("kern")
    font["kern"].version, font["kern"].kernTables = 0, [table]

    assert draw(bench, save(font))[0]["kerning"] == [{"unicode1": 76, "unicode2": 97, "advance": -0.03}]
    assert draw(bench, save(font), kerning=False)[0]["kerning"] == []


def test_kerning_pairs_above_the_limit_are_dropped_with_a_warning(bench, monkeypatch):
    monkeypatch.setattr(fontatlas_builder, "MOST_PAIRS", 1)

    assert draw(bench, add_kerning(f"feature kern {{ {PAIRS} }} kern;"))[0]["kerning"] == []
    assert "the product has no kerning" in bench.warnings[0]


def test_all_pages_of_a_bmfont_file_have_the_size_that_the_file_gives(bench):
    font = bench.write("a.ttf", TTF)
    products = bench.build(font, size=48, mode="picture", max_size=48, power_of_two=False, format="bmfont")

    sizes = {Image.open(io.BytesIO(data)).size for name, data in products.items() if name.endswith(".png")}
    assert len(products) > 2
    assert [f"scaleW={width} scaleH={height}" for width, height in sizes] == ["scaleW=48 scaleH=48"]
    assert b"scaleW=48 scaleH=48" in products["a.fnt"]


def test_bmfont_file_lists_the_glyphs_with_positions_in_pixels(bench):
    data = add_kerning(f"feature kern {{ {PAIRS} }} kern;")

    text = bench.build(bench.write("Lantern.ttf", data), size=100, spread=8, format="bmfont")["Lantern.fnt"].decode()

    lines = {line.split(" ")[0]: line for line in text.splitlines()}
    assert lines["common"].startswith("common lineHeight=100 base=80 ")
    assert lines["page"] == 'page id=0 file="lantern.png"'
    named = bench.build("Lantern.ttf", size=100, format="bmfont", textures="ktx2")["Lantern.fnt"].decode()
    assert 'page id=0 file="lantern.ktx2"' in named
    (letter,) = [line for line in text.splitlines() if line.startswith("char id=76 ")]
    assert letter.endswith("width=61 height=86 xoffset=-3 yoffset=2 xadvance=55 page=0 chnl=15")
    assert [line for line in text.splitlines() if line.startswith("kerning ")] == [
        "kerning first=76 second=97 amount=-8", "kerning first=76 second=109 amount=2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "a.ttf: the file is empty"),
        (b"junk" * 9, "a.ttf: the file is not a font"),
        (TTF[:200], "a.ttf: "),
        (TTF[:-300], "a.ttf: table "),
    ],
)
def test_damaged_font_fails_with_an_error_of_one_line(bench, data, error):
    assert bench.fail(bench.write("a.ttf", data)).startswith(error)


@pytest.mark.real
def test_equal_fonts_give_equal_products_in_another_process(bench, made_elsewhere, digests_of):
    source = bench.write("a.ttf", TTF)

    assert made_elsewhere(bench, source) == digests_of(bench.build(source))


FAKE = """#!/bin/sh
echo "$@" > "$APTUI_TEST_WORDS"
while [ $# -gt 1 ]; do
  case $1 in
    -imageout) printf page > "$2";;
    -json) printf '{"atlas": {"width": 64, "height": 32}, "glyphs": []}' > "$2";;
    -charset) cat "$2" >> "$APTUI_TEST_WORDS";;
  esac
  shift
done
"""


@pytest.mark.real
def test_msdf_builder_passes_the_chosen_characters_to_its_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = BuilderBench(MsdfBuilder(), tmp_path / "bench")
    source = bench.write("lantern.ttf", add_kerning("feature kern { pos L a -80; } kern;"))
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "msdf-atlas-gen"
    program.write_text(FAKE)
    program.chmod(0o755)
    monkeypatch.setenv("APTUI_TEST_WORDS", str(tmp_path / "words"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")

    products = bench.build(source, distance=8)

    assert products["lantern.png"] == b"page"
    assert json.loads(products["lantern.json"]) == {
        "atlas": {"width": 64, "height": 32}, "glyphs": [], "kerning": [{"unicode1": 76, "unicode2": 97, "advance": -0.08}],
    }  # fmt: skip
    assert [product.facts.get("width") for product in bench.products] == [64, None]
    words = (tmp_path / "words").read_text()
    assert "-type msdf -format png -size 48 -pxrange 8 " in words
    assert words.endswith("0x4c, 0x61, 0x6d, 0x70")


def test_msdf_builder_names_its_program_if_the_program_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = BuilderBench(MsdfBuilder(), tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert "the program 'msdf-atlas-gen' was not found" in bench.fail(bench.write("lantern.ttf", TTF))
