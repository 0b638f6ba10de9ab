import io
import struct
import sys
import time
import zlib

import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.misc.psCharStrings import T2CharString
from fontTools.pens.t2CharStringPen import T2CharStringPen
from fontTools.pens.ttGlyphPen import TTGlyphPen
from fontTools.ttLib import TTFont
from fontTools.ttLib.tables.DefaultTable import DefaultTable

from aptui.builders.files.font_work import FREE_WORK, WORK_PER_BYTE, Work, _woff2_stream
from aptui.builders.font_builder import FONT_ASSET_TYPE
from aptui.builders.font_builder import FontBuilder as Builder
from aptui.demo.demo_assets import EXTRAS
from aptui.sdk import library

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
    table = DefaultTable(tag)
    table.data = data
    font.tables[tag] = table
    return saved(font)


@pytest.mark.parametrize("flavor", ["none", "woff2"])
def test_subset_keeps_the_boxes_of_glyphs_and_of_the_font(bench, flavor):
    """Engines shift a glyph by the difference between its box and its bearing, and may compute line heights from the font's box."""
    font = TTFont(io.BytesIO(TTF), lazy=False, recalcTimestamp=False, recalcBBoxes=False)
    font["glyf"]["L"].xMin += 3
    font["head"].yMax = 950

    (made,) = bench.build(bench.write("a.ttf", saved(font)), text="L", flavor=flavor).values()

    subset = TTFont(io.BytesIO(made))
    assert subset["glyf"]["L"].xMin == font["glyf"]["L"].xMin
    assert subset["head"].yMax == 950


def test_valid_font_is_copied_unchanged(bench):
    response = bench.process(bench.write("ui/Lantern.ttf", TTF))

    (product,) = response.products
    assert (product.path, product.sub_id, product.asset_type) == ("Lantern.ttf", 0, FONT_ASSET_TYPE)
    assert (bench.products_dir / "Lantern.ttf").read_bytes() == TTF
    assert bench.warnings == []


@pytest.mark.parametrize(("flavor", "signature"), [("woff", b"wOFF"), ("woff2", b"wOF2")])
def test_packing_and_unpacking_a_font_keeps_its_glyphs(bench, flavor, signature):
    packed = bench.build(bench.write("a.ttf", TTF), flavor=flavor)[f"a.{flavor}"]

    plain = bench.build(bench.write(f"b.{flavor}", packed), flavor="none")["b.ttf"]

    assert packed.startswith(signature)
    assert opened(plain).getGlyphOrder() == opened(TTF).getGlyphOrder()
    assert opened(plain)["head"].modified == opened(TTF)["head"].modified
    assert bench.build(f"b.{flavor}") == {f"b.{flavor}": packed}


def test_otf_font_keeps_its_format(bench):
    source = bench.write("a.otf", otf())

    assert list(bench.build(source)) == ["a.otf"]
    assert list(bench.build(source, text="A", flavor="none")) == ["a.otf"]


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
def test_font_is_subset_to_the_requested_glyphs(bench, params, glyphs):
    font = opened(bench.build(bench.write("a.ttf", TTF), **params)["a.ttf"])

    assert set(font.getGlyphOrder()) == glyphs
    assert font["maxp"].numGlyphs == len(glyphs)


def test_requested_characters_without_glyphs_warn(bench):
    assert bench.build(bench.write("a.ttf", TTF), text="La é\n")
    assert bench.warnings == ["a.ttf: the font has no glyphs for U+0020 U+00E9"]


def test_unknown_glyph_fails(bench):
    assert (
        bench.fail(bench.write("a.ttf", TTF), glyphs=["x"])
        == "a.ttf: the font has no glyph 'x', which the parameter 'glyphs' names"
    )


def test_character_range_that_ends_before_it_begins_fails(bench):
    assert "the range U+7E-20 in parameter 'unicodes' ends before it begins" in bench.fail(
        bench.write("a.ttf", TTF), unicodes=["U+7E-20"]
    )


@pytest.mark.real
@pytest.mark.parametrize("params", [{"text": "am"}, {"flavor": "woff"}, {"flavor": "woff2"}])
def test_equal_sources_give_equal_bytes_across_time_and_processes(bench, made_elsewhere, digests_of, monkeypatch, params):
    source = bench.write("a.ttf", TTF)
    first = bench.build(source, **params)
    monkeypatch.setattr(time, "time", lambda: 2_000_000_000.0)

    assert bench.build(source, **params) == first
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
    ("collection", b"ttcf\0\1\0\0", "a.ttf: the file is a collection of several fonts (TTC); save each font as a file of its own"),
    ("text", b"hello", "a.ttf: the file is not a font: it does not begin with the signature of TTF, OTF, WOFF or WOFF2"),
    ("header", TTF[:8], "a.ttf: the file ends after 8 bytes, in the middle of its header"),
    ("directory", TTF[:20], "a.ttf: the file ends in the middle of its table directory, at table 1 of 10"),
    ("cut", TTF[: GLYF_AT + 4],
    f"a.ttf: table 'glyf' should end at byte {GLYF_AT + GLYF_LENGTH:,}, but the file has only {GLYF_AT + 4:,} bytes"),
    ("woff", b"wOFF" + bytes(8) + b"\0\x01" + bytes(30) + b"glyf" + struct.pack(">4I", 64, 99, 99, 0),
    "a.ttf: table 'glyf' should end at byte 163, but the file has only 64 bytes"),
    ("woff2", b"wOF2" + bytes(8), "a.ttf: the font is damaged: "),
    ("no cmap", without("cmap"), "a.ttf: the font has no table 'cmap'"),
    ("no head and hhea", without("head", "hhea"), "a.ttf: the font has no table 'head' (and 1 more)"),
    ("no outlines", without("glyf", "loca"), "a.ttf: the font has neither outlines nor bitmaps: no table"),
    ("bad cmap", spoiled("cmap", b"\0\0\0\x05"), "a.ttf: table 'cmap' is damaged: "),
    ("bad head", spoiled("head", b"\0" * 10), "a.ttf: table 'head' is damaged: "),
    ("bad glyf", TTF.replace(TTF[GLYF_AT : GLYF_AT + GLYF_LENGTH], b"\0\x05" + b"\xff" * (GLYF_LENGTH - 2)),
    "a.ttf: table 'glyf' is damaged: "),
]  # fmt: skip


@pytest.mark.parametrize(("data", "error"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_error_for_a_broken_font_names_the_table(bench, data, error):
    found = bench.fail(bench.write("a.ttf", data))

    assert found.startswith(error)
    assert found != error or not error.endswith(": ")


def test_font_without_expected_tables_or_names_warns(bench):
    font = opened(without("OS/2"))
    font["name"].names.clear()

    assert bench.build(bench.write("a.ttf", saved(font)))
    assert bench.warnings == [
        "a.ttf: the font has no table 'OS/2', which Windows needs",
        "a.ttf: table 'name' does not give the name of the font family",
    ]


@pytest.mark.parametrize("tag", ["name", "post", "OS/2"])
def test_missing_optional_font_table_warns(bench, tag):
    source = bench.write("a.ttf", without(tag))

    assert bench.build(source)
    assert len(bench.warnings) == 1
    assert bench.warnings[0].startswith(f"a.ttf: the font has no table '{tag}', ")
    assert bench.fail(source, strict=True) == bench.warnings[0]
    assert bench.build(source, text="a")
    assert bench.build(source, flavor="woff")


@pytest.mark.parametrize("tag", ["GPOS", "GSUB", "VARC", "kern", "OS/2", "name", "post", "STAT", "gvar"])
def test_damaged_optional_font_table_is_kept_and_warns(bench, tag):
    source = bench.write("a.ttf", spoiled(tag, b"\0\1\0\1\0\xff\0\xff\0\xff"))

    assert bench.build(source)["a.ttf"] == (bench.folder / "assets/a.ttf").read_bytes()
    assert any(text.startswith(f"a.ttf: table '{tag}' is damaged: ") for text in bench.warnings)
    assert bench.fail(source, strict=True) in bench.warnings
    assert tag not in opened(bench.build(source, text="a")["a.ttf"]) or tag in ("OS/2", "post")


def test_font_whose_damaged_table_cannot_be_unpacked_fails(bench):
    data = bytearray(saved(opened(TTF), "woff"))
    length_at = data.index(b"OS/2") + 12
    data[length_at : length_at + 4] = struct.pack(">I", 5000)

    error = bench.fail(bench.write("a.woff", bytes(data)), flavor="none")

    assert error == "a.woff: the font cannot be written: one of its tables is damaged: the values in the file contradict each other"


def test_messages_of_fonttools_appear_only_in_the_log(bench):
    source = bench.write("a.ttf", spoiled("GPOS", b"\0\1\0\0\0"))

    bench.build(source)

    assert "unpack" not in " ".join(bench.warnings)
    assert any("fontTools: " in text and "unpack" in text for _, text in bench.lines)


# ----------------------------------------------------------------------------------------------------------- hostile fonts


def many_glyphs(count=200, **tables):
    """Return a font of `count` triangular glyphs; `tables` contains further tables as {tag: bytes}."""
    builder = FontBuilder(1000, isTTF=True)
    names = [".notdef", *(f"g{number}" for number in range(1, count))]
    builder.setupGlyphOrder(names)
    builder.setupCharacterMap({0x4E00 + number: name for number, name in enumerate(names)})
    pen = TTGlyphPen(None)
    pen.moveTo((0, 0))
    pen.lineTo((0, 500))
    pen.lineTo((500, 0))
    pen.closePath()
    glyph = pen.glyph()
    builder.setupGlyf(dict.fromkeys(names, glyph))
    builder.setupHorizontalMetrics(dict.fromkeys(names, (500, 0)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "Test", "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    for tag, data in tables.items():
        builder.font[tag] = DefaultTable(tag)
        builder.font[tag].data = data
    return saved(builder.font)


def u16(*numbers):
    return struct.pack(f">{len(numbers)}H", *numbers)


def lookups(kind, subtable, lookup_count=1, subtable_count=1):
    """Return a layout table that lists the same lookup `lookup_count` times.

    This lookup lists the same subtable `subtable_count` times.
    """
    head = u16(1, 0, 10, 12, 14) + u16(0) + u16(0)
    lookup_list = u16(lookup_count, *[2 + 2 * lookup_count] * lookup_count)
    lookup = u16(kind, 0, subtable_count, *[6 + 2 * subtable_count] * subtable_count)
    return head + lookup_list + lookup + subtable


def ranges(count):
    return u16(2, count, *(0, 0xFFFF, 0) * count)


def shared_lookups():
    return many_glyphs(GPOS=lookups(1, u16(1, 6, 0) + ranges(1), 1500, 1500))


def ranges_of_all_glyphs():
    return many_glyphs(GSUB=lookups(1, u16(1, 6, 1) + ranges(4000)))


def classes_of_all_glyphs():
    pairs = u16(2, 16, 0, 0, 16, 16, 1, 1) + ranges(4000)
    return many_glyphs(GPOS=lookups(2, pairs))


def empty_variations():
    """Return a font whose variation store has 3,000 offsets to one VarData, which has 65,535 items of zero bytes."""
    store = u16(1) + struct.pack(">I", 8 + 4 * 3000) + u16(3000) + struct.pack(">3000I", *[14 + 4 * 3000] * 3000)
    store += u16(0, 0, 0) + u16(0xFFFF, 0, 0)
    return many_glyphs(HVAR=struct.pack(">HHIIII", 1, 0, 20, 0, 0, 0) + store)


def colours(paint, layers=b""):
    """Return a font with a COLR table: it paints one glyph with `paint` and contains the layer list `layers`."""
    glyphs = struct.pack(">IHI", 1, 0, 10) + paint
    places = 34, 34 + len(glyphs) if layers else 0
    return many_glyphs(COLR=struct.pack(">HHIIHIIIII", 1, 0, 0, 0, 0, *places, 0, 0, 0) + glyphs + layers)


def paints_of_paints():
    """Return a font with 200 nested composite paints of two parts each, which expand to 2^200 paints."""
    composite = bytes([32, 0, 0, 8, 3, 0, 0, 8])
    return colours(composite * 200 + struct.pack(">BHh", 2, 0, 0x4000))


def layers_of_layers():
    """Return a font with 50 nested groups of layers. Each group contains the next group twice, so they expand to 2^50 layers."""
    count = 50
    groups = b"".join(struct.pack(">BBI", 1, 2, 2 * (level + 1)) for level in range(count)) + struct.pack(">BHh", 2, 0, 0x4000)
    offsets = [4 + 8 * (count + 1) + 6 * (number // 2) for number in range(2 * (count + 1))]
    return colours(groups[:6], struct.pack(f">I{len(offsets)}I", len(offsets), *offsets) + groups)


def groups_of_all_characters(kind):
    groups = struct.pack(">III", 0, 0xFFFFFFF0, 1) * 3
    subtable = struct.pack(">HHIII", kind, 0, 16 + len(groups), 0, 3) + groups
    return many_glyphs(cmap=u16(0, 1, 3, 10) + struct.pack(">I", 12) + subtable)


def segments_of_all_characters():
    count = 2000
    arrays = u16(*[0xFFFF] * count, 0, *[0] * count, *[1] * count, *[0] * count)
    subtable = u16(4, 14 + len(arrays), 0, 2 * count, 0, 0, 0) + arrays
    data = u16(0, 60)
    data += b"".join(u16(3, 1) + struct.pack(">I", 4 + 8 * 60 + len(subtable) * number) for number in range(60)) + subtable * 60
    return many_glyphs(cmap=data)


def names_of_one_text():
    text = bytes(60_000)
    records = b"".join(u16(3, 1, 0x409, 256, len(text), 0) for _ in range(5000))
    return many_glyphs(name=u16(0, 5000, 6 + len(records)) + records + text)


def composites(count, parts):
    """Return a font in which each composite contains the previous one `parts` times."""
    font = opened(many_glyphs(count))
    for number in range(2, count):
        pen = TTGlyphPen(font["glyf"].glyphs)
        for _ in range(parts):
            pen.addComponent(f"g{number - 1}", (0.5, 0, 0, 0.5, 10, 10))
        glyph = pen.glyph()
        glyph.xMin = glyph.yMin = glyph.xMax = glyph.yMax = 0
        font["glyf"].glyphs[f"g{number}"] = glyph
    font.recalcBBoxes = False
    return saved(font)


def points_of_flags():
    """Return overlapping glyphs of 65,536 points, each stored in 530 bytes."""
    glyph = struct.pack(">5hH", 1, 0, 0, 0, 0, 0xFFFF) + u16(0) + bytes([0x39, 0xFF]) * 256
    glyph += bytes(len(glyph) % 2)
    font = opened(many_glyphs(2000))
    font["head"].indexToLocFormat = 1
    font["maxp"].recalc = lambda _font: None
    for tag, data in (("glyf", glyph), ("loca", struct.pack(">2001I", *[0, len(glyph)] * 1000, 0))):
        font[tag] = DefaultTable(tag)
        font[tag].data = data
    font.recalcBBoxes = False
    return saved(font)


def kern_of_itself():
    data = u16(0, 0xFFFF) + (u16(0, 0, 0) + u16(5000, 0, 0, 0) + bytes(6 * 5000))
    return many_glyphs(kern=data)


def zeros_in_woff():
    data = bytearray(saved(opened(TTF), "woff"))
    packed = zlib.compress(bytes(100 << 20), 9)
    data[44 + 4 : 44 + 16] = struct.pack(">3I", len(data), len(packed), 100 << 20)
    return bytes(data) + packed


def zeros_in_woff2():
    data = saved(opened(TTF), "woff2")
    packed = library("brotli").compress(bytes(100 << 20), quality=1)
    return data[:20] + struct.pack(">I", len(packed)) + data[24 : _woff2_stream(data)] + packed


HOSTILE = {
    "lookups": shared_lookups,
    "ranges": ranges_of_all_glyphs,
    "classes": classes_of_all_glyphs,
    "variations": empty_variations,
    "paints": paints_of_paints,
    "cmap 12": lambda: groups_of_all_characters(12),
    "cmap 13": lambda: groups_of_all_characters(13),
    "cmap 4": segments_of_all_characters,
    "names": names_of_one_text,
    "composites": lambda: composites(60, 4),
    "points": points_of_flags,
    "kern": kern_of_itself,
    "woff": zeros_in_woff,
    "woff2": zeros_in_woff2,
}


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE.keys())
def test_font_that_expands_far_beyond_its_size_fails(bench, make, monkeypatch):
    """The builder counts the steps that it needs to unpack a font, and stops when their number exceeds the limit."""
    steps = []
    spend = Work.spend
    monkeypatch.setattr(Work, "spend", lambda self, count: (steps.append(count), spend(self, count))[1])
    data = make()

    error = bench.fail(bench.write("a.ttf", data))

    assert "would expand to far more than its size" in error
    assert len(steps) < 2 * (WORK_PER_BYTE * len(data) + 16 * FREE_WORK)


def test_composite_glyphs_nested_too_deep_fail(bench):
    assert "a composite glyph is nested deeper than 64 levels" in bench.fail(bench.write("a.ttf", composites(100, 1)))


def test_composite_glyph_that_contains_itself_fails(bench):
    font = opened(composites(4, 1))
    font["glyf"]["g2"].components[0].glyphName = "g3"
    font.recalcBBoxes = False

    assert "contains itself" in bench.fail(bench.write("a.ttf", saved(font)))


def test_font_with_nested_colour_layers_fails_when_it_is_subset(bench):
    source = bench.write("a.ttf", layers_of_layers())

    assert bench.build(source)
    assert "would expand to far more than its size" in bench.fail(source, unicodes=["U+4E00"])


def test_font_with_too_many_subroutine_calls_fails_when_it_is_subset(bench):
    font = opened(otf())
    top = font["CFF "].cff.topDictIndex[0]
    for level in range(12):
        program = [*[-107 + level - 1, "callgsubr"] * (8 if level else 0), "return"]
        top.GlobalSubrs.append(T2CharString(program=program))
    top.CharStrings["A"].setProgram([-107 + 11, "callgsubr", "endchar"])
    font.recalcBBoxes = False

    assert "would expand to far more than its size" in bench.fail(bench.write("a.otf", saved(font)), text="A")


@pytest.mark.parametrize(("module", "name"), [("fontTools.ttLib", "fonttools"), ("brotli", "brotli")])
def test_missing_library_is_reported_with_its_install_command(bench, monkeypatch, module, name):
    monkeypatch.setitem(sys.modules, module, None)

    error = bench.fail(bench.write("a.ttf", TTF), flavor="woff2")

    assert error == f"a.ttf: the job needs the Python package '{name}', which is not installed; run pip install {name}"
