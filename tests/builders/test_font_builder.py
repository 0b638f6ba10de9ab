import io
import struct
import sys
import time

import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.t2CharStringPen import T2CharStringPen
from fontTools.ttLib import TTFont

from aptui.builders.font_builder import FONT_ASSET_TYPE
from aptui.builders.font_builder import FontBuilder as Builder
from aptui.demo.assets import EXTRAS
from aptui.sdk import Result

BUILDER = Builder

TTF = next(extra for extra in EXTRAS if extra.name == "font").files["fonts/lantern.ttf"]()  # type: ignore[operator]


def otf():
    builder = FontBuilder(1000, isTTF=False)
    builder.setupGlyphOrder([".notdef", "A"])
    builder.setupCharacterMap({65: "A"})
    pen = T2CharStringPen(500, None)
    pen.moveTo((0, 0))
    pen.lineTo((0, 500))
    pen.lineTo((500, 0))
    pen.closePath()
    drawn = pen.getCharString()
    builder.setupCFF("Test", {}, {".notdef": T2CharStringPen(500, None).getCharString(), "A": drawn}, {})
    builder.setupHorizontalMetrics({".notdef": (500, 0), "A": (500, 0)})
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "Test", "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    return saved(builder.font)


def saved(font, flavor=None):
    font.flavor = flavor
    stream = io.BytesIO()
    font.save(stream)
    return stream.getvalue()


def opened(data):
    return TTFont(io.BytesIO(data), lazy=False, recalcTimestamp=False)


def without(*tags):
    font = opened(TTF)
    for tag in tags:
        del font[tag]
    return saved(font)


def spoiled(tag, data):
    """Return the font with other bytes in one table."""
    font = opened(TTF)
    font[tag]
    from fontTools.ttLib.tables.DefaultTable import DefaultTable

    table = DefaultTable(tag)
    table.data = data
    font.tables[tag] = table
    return saved(font)


def test_a_right_font_is_copied(bench):
    response = bench.process(bench.write("ui/Lantern.ttf", TTF))

    (product,) = response.products
    assert (product.path, product.sub_id, product.asset_type) == ("Lantern.ttf", 0, FONT_ASSET_TYPE)
    assert (bench.products_dir / "Lantern.ttf").read_bytes() == TTF
    assert bench.warnings == []


@pytest.mark.parametrize(("flavor", "signature"), [("woff", b"wOFF"), ("woff2", b"wOF2")])
def test_packing_and_unpacking_keep_the_glyphs(bench, flavor, signature):
    packed = bench.made(bench.write("a.ttf", TTF), flavor=flavor)[f"a.{flavor}"]

    plain = bench.made(bench.write(f"b.{flavor}", packed), flavor="none")["b.ttf"]

    assert packed.startswith(signature)
    assert opened(plain).getGlyphOrder() == opened(TTF).getGlyphOrder()
    assert opened(plain)["head"].modified == opened(TTF)["head"].modified
    assert bench.made(f"b.{flavor}") == {f"b.{flavor}": packed}


def test_an_otf_stays_one(bench):
    source = bench.write("a.otf", otf())

    assert list(bench.made(source)) == ["a.otf"]
    assert list(bench.made(source, text="A", flavor="none")) == ["a.otf"]


@pytest.mark.parametrize(
    ("params", "glyphs"),
    [
        ({"text": "am"}, {".notdef", "a", "m"}),
        ({"unicodes": ["U+61", "6C-6E"]}, {".notdef", "a", "m"}),
        ({"glyphs": ["p"]}, {".notdef", "p"}),
        ({"text": "a", "glyphs": ["p"]}, {".notdef", "a", "p"}),
        ({"text": ""}, {".notdef"}),
        ({"hinting": False}, {".notdef", "L", "a", "m", "p"}),
        ({"layout_features": []}, {".notdef", "L", "a", "m", "p"}),
    ],
)
def test_a_font_is_cut_down_to_what_is_wished(bench, params, glyphs):
    font = opened(bench.made(bench.write("a.ttf", TTF), **params)["a.ttf"])

    assert set(font.getGlyphOrder()) == glyphs
    assert font["maxp"].numGlyphs == len(glyphs)


def test_characters_that_are_not_there_warn(bench):
    assert bench.made(bench.write("a.ttf", TTF), text="La é\n")
    assert bench.warnings == ["a.ttf: has no glyphs for U+0020 U+00E9"]


def test_a_glyph_that_is_not_there_fails(bench):
    assert bench.error(bench.write("a.ttf", TTF), glyphs=["x"]) == "a.ttf: has no glyph 'x', which the parameter 'glyphs' names"


def test_a_range_that_ends_before_it_begins_fails(bench):
    assert "the range U+7E-20, which ends before it begins" in bench.error(bench.write("a.ttf", TTF), unicodes=["U+7E-20"])


@pytest.mark.real
@pytest.mark.parametrize("params", [{"text": "am"}, {"flavor": "woff"}, {"flavor": "woff2"}])
def test_equal_sources_give_equal_bytes_at_any_time_and_in_another_process(bench, made_elsewhere, digests_of, monkeypatch, params):
    source = bench.write("a.ttf", TTF)
    first = bench.made(source, **params)
    monkeypatch.setattr(time, "time", lambda: 2_000_000_000.0)

    assert bench.made(source, **params) == first
    assert made_elsewhere(bench, source, **params) == digests_of(first)


def table_offset(data, tag):
    count = struct.unpack_from(">H", data, 4)[0]
    return next(
        struct.unpack_from(">II", data, 12 + 16 * at + 8)
        for at in range(count)
        if data[12 + 16 * at : 16 + 16 * at] == tag.encode()
    )


GLYF_AT, GLYF_LENGTH = table_offset(TTF, "glyf")
LAST = max(table_offset(TTF, tag) for tag in opened(TTF).keys() if tag != "GlyphOrder")  # noqa: SIM118
BROKEN = [
    ("empty", b"", "a.ttf: the file is empty"),
    ("text", b"hello", "a.ttf: is no font: it begins with none of the signatures of ttf, otf, woff and woff2"),
    ("header", TTF[:8], "a.ttf: ends within its header, after 8 bytes"),
    ("directory", TTF[:20], "a.ttf: ends within its directory, at table 1 of 10"),
    ("cut", TTF[: GLYF_AT + 4],
    f"a.ttf: table 'glyf' should end at byte {GLYF_AT + GLYF_LENGTH:,}, and the file has {GLYF_AT + 4:,}"),
    ("woff", b"wOFF" + bytes(8) + b"\0\x01" + bytes(30) + b"glyf" + struct.pack(">4I", 64, 99, 99, 0),
    "a.ttf: table 'glyf' should end at byte 163, and the file has 64"),
    ("woff2", b"wOF2" + bytes(8), "a.ttf: damaged font: "),
    ("no cmap", without("cmap"), "a.ttf: has no table 'cmap'"),
    ("no name and post", without("name", "post"), "a.ttf: has no table 'name' (and 1 more)"),
    ("no outlines", without("glyf", "loca"), "a.ttf: has no outlines and no bitmaps: no table"),
    ("bad cmap", spoiled("cmap", b"\0\0\0\x05"), "a.ttf: table 'cmap' is damaged: "),
    ("bad head", spoiled("head", b"\0" * 10), "a.ttf: table 'head' is damaged: "),
    ("bad glyf", TTF.replace(TTF[GLYF_AT : GLYF_AT + GLYF_LENGTH], b"\0\x05" + b"\xff" * (GLYF_LENGTH - 2)),
    "a.ttf: table 'glyf' is damaged: "),
]  # fmt: skip


@pytest.mark.parametrize(("data", "error"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_a_broken_font_fails_naming_the_table(bench, data, error):
    found = bench.error(bench.write("a.ttf", data))

    assert found.startswith(error)
    assert found != error or not error.endswith(": ")


def test_odd_fonts_warn(bench):
    font = opened(without("OS/2"))
    font["name"].names.clear()

    assert bench.made(bench.write("a.ttf", saved(font)))
    assert bench.warnings == ["a.ttf: has no table 'OS/2', which Windows wants", "a.ttf: table 'name' gives no name of the family"]


@pytest.mark.parametrize(("module", "name"), [("fontTools.ttLib", "fonttools"), ("brotli", "brotli")])
def test_a_missing_library_says_how_to_get_it(bench, monkeypatch, module, name):
    monkeypatch.setitem(sys.modules, module, None)

    error = bench.error(bench.write("a.ttf", TTF), flavor="woff2")

    assert error == f"a.ttf: needs the Python package '{name}', which is not installed: pip install 'aptui[builders]'"


def test_parameters_differ_by_platform(bench):
    assert bench.analyse({}, {"server": {"text": "a"}}).result is Result.SUCCESS
    assert "each like U+41 or U+20-7E" in bench.analyse({}, {"server": {"unicodes": ["z"]}}).error
