"""The `fontatlas` builder: the glyphs of a font on pages, as distance fields or pictures, with metrics and kerning.

FreeType renders the glyphs with integer arithmetic, so that every machine makes equal pages. The JSON has the form of
msdf-atlas-gen, which the builder `msdf` runs: lengths are in em, and positions on the page are in pixels from its lower left
corner. If there are several pages, each glyph names its page. `format: bmfont` writes AngelCode's text form instead,
in pixels.

Memory: at most `max_size` squared bytes for each page, and the glyphs.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
from collections.abc import Collection, Iterable, Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal
from uuid import UUID

from msgspec import Meta, Struct

from aptui.builders.atlas_builder import PAGE_ASSET_TYPE, AtlasParams, PageTextures, Sprite, pack, write_page_list, write_pages
from aptui.builders.common import SourceBuilder, one_line, show_count
from aptui.builders.files.catalogs import read_catalogs
from aptui.builders.files.json_text import BrokenTextError, decode_text, write_json
from aptui.builders.files.references import place_parameter
from aptui.builders.font_builder import (
    UNICODES,
    BrokenFontError,
    FontReport,
    code_points,
    fonttools_logged,
    open_checked,
    warn_of_missing_characters,
)
from aptui.sdk import (
    CreateJobsRequest,
    JobError,
    ProcessJobRequest,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]


METRICS_ASSET_TYPE = UUID("b5e4a082-6d3f-5c71-90ba-28f1d7e6430e")
"""Asset type of the metrics and kerning of glyphs, in JSON or in the text form of BMFont."""

MOST_CHARACTERS = 30_000
_ON_EDGE, _COVERED = 128, 255
"""Value of a distance field on an outline, and value of a picture's pixel that a glyph covers completely."""
_TRANSLATIONS = (".po", ".xlf", ".xliff", ".csv", ".tsv")
_EMPTY_PAGE = 16
"""Width and height (pixels) of the atlas page if all drawn characters are empty, such as blanks."""

Range = Annotated[str, Meta(pattern=rf"^{UNICODES}$")]


class FontAtlasParams(Struct, frozen=True, kw_only=True):
    """Parameters of this builder; the documentation and `aptui explain` show the descriptions of the fields."""

    characters: Annotated[str, Meta(description="characters to draw, in addition to the characters of ranges and files")] = ""
    ranges: Annotated[tuple[Range, ...], Meta(description="ranges of characters to draw, such as U+20-7E")] = ("U+20-7E",)
    files: Annotated[
        list[str],
        Meta(
            description="patterns of files; all characters that these files contain are drawn (in files of translations: all "
            "characters of translated texts)"
        ),
    ] = []
    mode: Annotated[
        Literal["sdf", "picture"],
        Meta(description="sdf: distance fields, which engines can scale; picture: smooth pictures for one size"),
    ] = "sdf"
    size: Annotated[int, Meta(ge=4, le=512, description="size of the font in pixels (1 em)")] = 48
    spread: Annotated[int, Meta(ge=2, le=32, description="width in pixels of the distance field on each side of an outline")] = 6
    padding: Annotated[int, Meta(ge=0, le=64, description="number of empty pixels between glyphs")] = 1
    max_size: Annotated[int, Meta(ge=16, le=8192, description="maximum width and height of a page in pixels")] = 2048
    power_of_two: Annotated[bool, Meta(description="make the sides of pages powers of two; false: multiples of 4")] = True
    format: Annotated[
        Literal["json", "bmfont"], Meta(description="format of the metrics; json: <stem>.json, bmfont: <stem>.fnt")
    ] = "json"
    kerning: Annotated[bool, Meta(description="write the kerning (the distances of pairs of glyphs)")] = True
    textures: PageTextures = "files"
    strict: Annotated[bool, Meta(description="treat each warning as an error")] = False


class Glyph(Struct):
    """A drawn character: its pixels (None if it is empty) and its advance in em.

    `left` and `top` are the left top corner of the pixels, relative to the pen (pixels).
    """

    code: int
    name: str
    advance: float
    left: int = 0
    top: int = 0
    sprite: Sprite | None = None


class FontAtlasBuilder(SourceBuilder):
    """Makes `<stem>.json` or `<stem>.fnt` and the pages `<stem>.png`, `<stem>-1.png` … of a font."""

    name: ClassVar[str] = "fontatlas"
    version: ClassVar[str] = "1"
    patterns: ClassVar[tuple[str, ...]] = ("*.ttf", "*.otf")
    params_schema: ClassVar[Any] = FontAtlasParams
    requires: ClassVar[tuple[str, ...]] = ("freetype-py>=2.5", "fonttools>=4.40", "Pillow")

    def analyse(self, request: CreateJobsRequest) -> None:
        """Declare dependencies on the text files that contain the characters to draw."""
        declare_files(request)

    def build(self, request: ProcessJobRequest) -> None:
        """Draw the glyphs of one font."""
        options: FontAtlasParams = request.options
        data = request.read_source()
        with _open_font(data, options, request) as (font, codes, report):
            metrics = _read_metrics(font)
            glyphs = list(_draw_glyphs(data, font, codes, options, request))
            kerning = _kern(font, glyphs, report) if options.kerning else {}
        sprites = [glyph.sprite for glyph in glyphs if glyph.sprite is not None]
        layout = AtlasParams(max_size=options.max_size, power_of_two=options.power_of_two, padding=options.padding, extrude=0)
        sizes = pack(sprites, layout, request.source) if sprites else [(_EMPTY_PAGE, _EMPTY_PAGE)]
        if options.format == "bmfont":
            sizes = sizes[:1] * len(sizes)  # a BMFont file has one size for all pages, but `pack` shrinks the last page
        pages = [_draw_page(size, [each for each in sprites if each.page == number]) for number, size in enumerate(sizes)]
        names = write_pages(pages, options.textures, request)
        text: str | bytes
        if options.format == "bmfont":
            text = _describe_bmfont(request.stem, glyphs, kerning, metrics, names, sizes, options)
        else:
            text = write_json(_describe_json(glyphs, kerning, metrics, names, sizes, options))
        extension = "fnt" if options.format == "bmfont" else "json"
        write_page_list(f"{request.stem}.{extension}", text, METRICS_ASSET_TYPE, len(names), request)
        request.log.info(
            f"{request.source}: drew {show_count(len(glyphs), 'character')} on {show_count(len(names), 'page')}, with "
            f"{show_count(len(kerning), 'kerning pair')}"
        )


class MsdfParams(Struct, frozen=True, kw_only=True):
    """Parameters of this builder; the documentation and `aptui explain` show the descriptions of the fields."""

    characters: str = ""
    ranges: tuple[Range, ...] = ("U+20-7E",)
    files: list[str] = []
    mode: Annotated[Literal["msdf", "mtsdf", "psdf", "sdf"], Meta(description="kind of distance field")] = "msdf"
    size: Annotated[int, Meta(ge=4, le=512, description="size of the font in pixels (1 em)")] = 48
    distance: Annotated[
        int, Meta(ge=1, le=64, description="full width in pixels of the distance field, both sides of an outline together")
    ] = 6
    kerning: bool = True
    strict: bool = False


class MsdfBuilder(SourceBuilder):
    """Makes `<stem>.json` and `<stem>.png` of a font with the program msdf-atlas-gen, whose distance fields keep corners sharp."""

    name: ClassVar[str] = "msdf"
    version: ClassVar[str] = "1"
    patterns: ClassVar[tuple[str, ...]] = ("*.ttf", "*.otf")
    params_schema: ClassVar[Any] = MsdfParams
    requires: ClassVar[tuple[str, ...]] = ("fonttools>=4.40",)
    tools: ClassVar[tuple[str, ...]] = ("msdf-atlas-gen",)

    def analyse(self, request: CreateJobsRequest) -> None:
        """Declare dependencies on the text files that contain the characters to draw."""
        declare_files(request)

    def build(self, request: ProcessJobRequest) -> None:
        """Draw the glyphs of one font."""
        options: MsdfParams = request.options
        charset, page = os.path.join(request.temp_dir, "charset.txt"), f"{request.stem}.png"
        with _open_font(request.read_source(), options, request) as (font, codes, report):
            units, names = _read_metrics(font).units, font.getBestCmap()
            glyphs = [Glyph(code, names[code], 0.0) for code in codes]
            kerning = _kern(font, glyphs, report) if options.kerning else {}
        with open(charset, "w", encoding="ascii") as file:
            file.write(", ".join(map(hex, codes)))
        made = os.path.join(request.temp_dir, "metrics.json")
        request.run_program([
            "msdf-atlas-gen", "-font", request.full_path, "-charset", charset, "-type", options.mode, "-format", "png",
            "-size", str(options.size), "-pxrange", str(options.distance), "-pots", "-threads", str(request.threads),
            "-nokerning", "-imageout", request.product_path(page), "-json", made,
        ])  # fmt: skip
        with open(made, "rb") as file:
            metrics = json.load(file)
        # aptui reads the kerning, because msdf-atlas-gen reads only the table 'kern', and many fonts have kerning only in GPOS.
        metrics["kerning"] = _describe_kerning(glyphs, kerning, units)
        facts = {"width": metrics["atlas"]["width"], "height": metrics["atlas"]["height"], "format": "png"}
        request.add_product(page, sub_id=1, asset_type=PAGE_ASSET_TYPE, facts=facts)
        write_page_list(f"{request.stem}.json", write_json(metrics), METRICS_ASSET_TYPE, 1, request)
        drawn = show_count(len(glyphs), "character")
        request.log.info(f"{request.source}: drew {drawn}, with {show_count(len(kerning), 'kerning pair')}")


def declare_files(request: CreateJobsRequest) -> None:
    """Declare dependencies on the text files that contain the characters to draw."""
    patterns = {pattern for platform in request.platforms for pattern in request.options_for(platform.id).files}
    for pattern in sorted(patterns):
        request.matching(place_parameter(pattern, request.source))


@contextlib.contextmanager
def _open_font(
    data: bytes, options: FontAtlasParams | MsdfParams, request: ProcessJobRequest
) -> Iterator[tuple[Any, list[int], FontReport]]:
    """Yield the font, the code points to draw, and the report for warnings.

    Raises:
        BrokenFontError: the font cannot be used, or lacks all requested characters.
        TooMuchWorkError: its tables need too many steps. MissingError: a package is not installed.
    """
    report = FontReport(request, is_strict=options.strict)
    with fonttools_logged(request.log, request.source):
        font, _ = open_checked(data, report)
        yield font, choose_characters(font, options, report, request), report


def choose_characters(
    font: Any, options: FontAtlasParams | MsdfParams, report: FontReport, request: ProcessJobRequest
) -> list[int]:
    """Return the sorted code points to draw: the characters that the parameters request and that the font has.

    Raises:
        BrokenFontError: the font lacks all of these characters.
    """
    wanted = set(options.characters)
    for pattern in options.files:
        matches = request.matching(place_parameter(pattern, request.source))
        if not matches:
            report.warn(f"no file matches '{pattern}', which the parameter 'files' names")
        for match in matches:
            with open(match.full_path, "rb") as file:
                wanted.update(_list_characters(match.path, file.read()))
    wanted = {character for character in wanted if character.isprintable()}
    known = font.getBestCmap() or {}
    warn_of_missing_characters(font, "".join(sorted(wanted)), report)
    # Missing characters of a range give no warning, because a range usually is a whole block of Unicode.
    codes = sorted(({ord(character) for character in wanted} | set(code_points(options.ranges, "ranges"))) & known.keys())
    if not codes:
        raise BrokenFontError("the font does not have any of the characters that the parameters name")
    if len(codes) > MOST_CHARACTERS:
        raise BrokenFontError(f"the parameters name {len(codes):,} characters; the limit is {MOST_CHARACTERS:,}")
    return codes


def _list_characters(path: str, data: bytes) -> str:
    """Return the characters of a file. For a file of translations, return only the characters of the translated texts."""
    try:
        if path.lower().endswith(_TRANSLATIONS):
            messages = (message for catalog in read_catalogs(path, data) for message in catalog.messages.values())
            return "".join(text for message in messages if message.is_translated for text in message.texts)
        return decode_text(data)
    except BrokenTextError as error:
        raise JobError(error.explain(path)) from None


class FontMetrics(Struct, frozen=True):
    """Lengths of a font in em; a positive length points upwards."""

    units: int
    ascender: float
    descender: float
    line_height: float
    underline_y: float
    underline_thickness: float


def _read_metrics(font: Any) -> FontMetrics:
    units = font["head"].unitsPerEm
    if not 16 <= units <= 16384:  # the range of OpenType's field unitsPerEm (table "head")
        raise BrokenFontError(f"table 'head' gives {units} units per em; the number must be from 16 to 16,384")
    header, post = font["hhea"], font.get("post")
    lengths = (
        header.ascent, header.descent, header.ascent - header.descent + header.lineGap,
        getattr(post, "underlinePosition", 0), getattr(post, "underlineThickness", 0),
    )  # fmt: skip
    return FontMetrics(units, *(round(length / units, 6) for length in lengths))


def _draw_glyphs(data: bytes, font: Any, codes: list[int], options: FontAtlasParams, request: ProcessJobRequest) -> Iterator[Glyph]:
    """Draw the characters, and yield their glyphs; glyphs with equal pixels share one array."""
    import freetype
    from freetype import raw

    is_field = options.mode == "sdf"
    names, advances, units = font.getBestCmap(), font["hmtx"].metrics, font["head"].unitsPerEm
    flags = freetype.FT_LOAD_NO_HINTING | freetype.FT_LOAD_NO_BITMAP
    known: dict[tuple[tuple[int, ...], bytes], Pixels] = {}
    try:
        face = freetype.Face(BytesIO(data))
        for module in (b"sdf", b"bsdf"):  # make the fields of contours and of pictures
            raw.FT_Property_Set(freetype.get_handle(), module, b"spread", ctypes.byref(ctypes.c_int(options.spread)))
        face.set_pixel_sizes(0, options.size)
        for number, code in enumerate(codes):
            name = names[code]
            if name not in advances:
                raise BrokenFontError(f"table 'cmap' maps U+{code:04X} to a glyph that the font does not have")
            glyph = Glyph(code, name, round(advances[name][0] / units, 6))
            face.load_glyph(font.getGlyphID(name), flags)
            slot = face.glyph
            box = slot.outline.get_bbox()
            margin = 2 * options.spread if is_field else 0
            width, height = ((each >> 6) + margin for each in (box.xMax - box.xMin, box.yMax - box.yMin))
            if max(width, height) > options.max_size:
                raise BrokenFontError(
                    f"the glyph of U+{code:04X} has {width}x{height} pixels, but a page has at most {options.max_size} (max_size)"
                )
            if slot.outline.n_points:
                slot.render(freetype.FT_RENDER_MODE_SDF if is_field else freetype.FT_RENDER_MODE_NORMAL)
            pixels = _copy_bitmap(slot)
            if pixels.size:
                glyph.left, glyph.top = slot.bitmap_left, slot.bitmap_top
                if is_field:
                    face.load_glyph(font.getGlyphID(name), flags)
                    pixels = _fill_overlaps(pixels, slot, options.spread)
                pixels = known.setdefault((pixels.shape, pixels.tobytes()), pixels)
                glyph.sprite = Sprite(f"{code:06x}", pixels, (pixels.shape[1], pixels.shape[0]), (0, 0))
            yield glyph
            request.progress((number + 1) / len(codes))
    except freetype.FT_Exception as error:
        raise BrokenFontError(f"FreeType cannot draw the font: {one_line(error).removeprefix('FT_Exception: ')}") from None


def _copy_bitmap(slot: Any) -> Pixels:
    import numpy as np

    flat = np.frombuffer(bytes(slot.bitmap.buffer), np.uint8)
    return flat.reshape(slot.bitmap.rows, slot.bitmap.pitch)[:, : slot.bitmap.width]


def _fill_overlaps(field: Pixels, slot: Any, spread: int) -> Pixels:
    """Return a distance field without cuts where contours of the glyph overlap, as in Ç.

    FreeType computes `field` from the contours, so the edges inside the glyph are part of it. In a glyph with overlaps, the larger
    value is used of this field and of the field that FreeType computes from a picture of the glyph, which is less exact.

    Args:
        spread: width of the field around the picture of the glyph.
    """
    import freetype
    import numpy as np

    slot.render(freetype.FT_RENDER_MODE_NORMAL)
    inside = field[spread:-spread, spread:-spread][_copy_bitmap(slot) == _COVERED]
    if not (inside < _ON_EDGE).any():
        return field
    slot.render(freetype.FT_RENDER_MODE_SDF)
    return np.maximum(field, _copy_bitmap(slot))


def _kern(font: Any, glyphs: list[Glyph], report: FontReport) -> Pairs:
    try:
        return read_kerning(font, sorted({glyph.name for glyph in glyphs}))
    except OverflowError:
        report.warn(f"the font has more than {MOST_PAIRS:,} kerning pairs, so the product has no kerning")
    except Exception as error:  # noqa: BLE001 -- fontTools raises whatever damaged bytes lead it to
        report.warn(report.describe("the kerning", error))
    return {}


def _draw_page(size: tuple[int, int], sprites: list[Sprite]) -> Any:
    import numpy as np
    from PIL import Image

    page = np.zeros((size[1], size[0]), np.uint8)
    for each in sprites:
        (x, y), (width, height) = each.place, each.shape
        page[y : y + height, x : x + width] = each.pixels
    return Image.fromarray(page, "L")


def _pair_codes(glyphs: list[Glyph], kerning: Pairs) -> Iterator[tuple[int, int, int]]:
    """Yield the kerning pairs of characters: (first code point, second code point, distance in font units)."""
    codes: dict[str, list[int]] = {}
    for glyph in glyphs:
        codes.setdefault(glyph.name, []).append(glyph.code)
    for (first, second), distance in kerning.items():
        yield from ((one, other, distance) for one in codes[first] for other in codes[second])


def _describe_json(
    glyphs: list[Glyph],
    kerning: Pairs,
    metrics: FontMetrics,
    names: list[str],
    sizes: list[tuple[int, int]],
    options: FontAtlasParams,
) -> dict[str, Any]:
    atlas: dict[str, Any] = {"type": "sdf" if options.mode == "sdf" else "softmask", "size": options.size}
    if options.mode == "sdf":
        atlas |= {"distanceRange": 2 * options.spread, "distanceRangeMiddle": 0}
    atlas |= {"width": sizes[0][0], "height": sizes[0][1], "yOrigin": "bottom"}
    if len(names) > 1:
        atlas["pages"] = [{"image": name, "width": size[0], "height": size[1]} for name, size in zip(names, sizes, strict=True)]
    listed = []
    for glyph in glyphs:
        entry: dict[str, Any] = {"unicode": glyph.code, "advance": glyph.advance}
        if sprite := glyph.sprite:
            width, height = sprite.shape
            (x, y), page_height = sprite.place, sizes[sprite.page][1]
            edges = (glyph.left, glyph.top - height, glyph.left + width, glyph.top)
            entry["planeBounds"] = _bounds(*(round(edge / options.size, 6) for edge in edges))
            entry["atlasBounds"] = _bounds(x, page_height - y - height, x + width, page_height - y)
            if len(names) > 1:
                entry["page"] = names[sprite.page]
        listed.append(entry)
    return {
        "atlas": atlas,
        "metrics": {
            "emSize": 1, "lineHeight": metrics.line_height, "ascender": metrics.ascender, "descender": metrics.descender,
            "underlineY": metrics.underline_y, "underlineThickness": metrics.underline_thickness,
        },
        "glyphs": listed,
        "kerning": _describe_kerning(glyphs, kerning, metrics.units),
    }  # fmt: skip


def _describe_kerning(glyphs: list[Glyph], kerning: Pairs, units: int) -> list[dict[str, Any]]:
    return [
        {"unicode1": first, "unicode2": second, "advance": round(distance / units, 6)}
        for first, second, distance in _pair_codes(glyphs, kerning)
    ]


def _bounds(left: float, bottom: float, right: float, top: float) -> dict[str, float]:
    return {"left": left, "bottom": bottom, "right": right, "top": top}


def _describe_bmfont(
    stem: str, glyphs: list[Glyph], kerning: Pairs, metrics: FontMetrics, names: list[str], sizes: list[tuple[int, int]],
    options: FontAtlasParams,
) -> str:  # fmt: skip
    """Return the text of a BMFont file ("Bitmap Font Generator", File format). Lengths are whole pixels; the y axis points down."""
    size, base = options.size, round(metrics.ascender * options.size)
    (width, height), face = sizes[0], stem.replace('"', "")
    line_height = round(metrics.line_height * size)
    lines = [
        f'info face="{face}" size={size} bold=0 italic=0 charset="" unicode=1 stretchH=100 smooth=1 aa=1 padding=0,0,0,0',
        f"common lineHeight={line_height} base={base} scaleW={width} scaleH={height} pages={len(names)} packed=0",
    ]
    lines += [f'page id={number} file="{name}"' for number, name in enumerate(names)]
    if options.mode == "sdf":
        lines.append(f"distanceField fieldType=sdf distanceRange={2 * options.spread}")
    lines.append(f"chars count={len(glyphs)}")
    for glyph in glyphs:
        sprite = glyph.sprite
        (x, y), (wide, high), page = (sprite.place, sprite.shape, sprite.page) if sprite else ((0, 0), (0, 0), 0)
        offset = base - glyph.top if sprite else 0
        lines.append(
            f"char id={glyph.code} x={x} y={y} width={wide} height={high} xoffset={glyph.left} yoffset={offset} "
            f"xadvance={round(glyph.advance * size)} page={page} chnl=15"
        )
    scaled = [(one, other, round(distance * size / metrics.units)) for one, other, distance in _pair_codes(glyphs, kerning)]
    pairs = [f"kerning first={one} second={other} amount={amount}" for one, other, amount in scaled if amount]
    return "\n".join([*lines, f"kernings count={len(pairs)}", *pairs]) + "\n"


# ------------------------------------------------------------------------------------------------------------------ kerning

# `read_kerning` reads the kerning of a font from its table GPOS; if GPOS has no kerning, from its table kern.
# Kerning changes the distance between pairs of glyphs.

MOST_PAIRS = 100_000
_PAIRS, _EXTENSION = 2, 9
"""Types of lookups in GPOS."""

Pairs = dict[tuple[str, str], int]


def read_kerning(font: Any, glyphs: Collection[str]) -> Pairs:
    """Return {(first glyph, second glyph): change of their distance in font units} of all pairs of `glyphs` with kerning.

    Raises:
        OverflowError: the font has more than `MOST_PAIRS` pairs.
        Exception: any exception that damaged bytes cause.
    """
    found: Pairs = {}
    if "GPOS" in font:
        for lookup in _kerning_lookups(font["GPOS"].table):
            _add_lookup(lookup, glyphs, found)
    if not found and "kern" in font:
        chosen = set(glyphs)
        for table in font["kern"].kernTables:
            if getattr(table, "kernTable", None) and getattr(table, "coverage", 1) & 1:
                found.update({pair: value for pair, value in table.kernTable.items() if chosen.issuperset(pair)})
    return {pair: value for pair, value in sorted(found.items()) if value}


def _kerning_lookups(table: Any) -> Iterator[list[Any]]:
    """Yield the subtables of each lookup of the feature `kern`.

    The lookups belong to the default script. If it is missing, they belong to Latin; if Latin is missing, to the first script.
    """
    if not table.FeatureList or not table.LookupList or not table.ScriptList:
        return
    scripts = {record.ScriptTag: record.Script for record in table.ScriptList.ScriptRecord}
    script = scripts.get("DFLT") or scripts.get("latn") or next(iter(scripts.values()), None)
    system = script and (script.DefaultLangSys or next((each.LangSys for each in script.LangSysRecord), None))
    features = [table.FeatureList.FeatureRecord[number] for number in system.FeatureIndex] if system else []
    numbers = sorted({number for each in features if each.FeatureTag == "kern" for number in each.Feature.LookupListIndex})
    for number in numbers:
        subtables = [
            each.ExtSubTable if each.LookupType == _EXTENSION else each for each in table.LookupList.Lookup[number].SubTable
        ]
        yield [each for each in subtables if each.LookupType == _PAIRS]


def _add_lookup(subtables: Iterable[Any], glyphs: Collection[str], found: Pairs) -> None:
    """Add the pairs of one lookup. If several subtables have the same pair, the first one is used."""
    waiting = {first: set(glyphs) for first in glyphs}
    for subtable in subtables:
        for first in sorted(waiting.keys() & set(subtable.Coverage.glyphs)):
            if subtable.Format == 1:
                records = subtable.PairSet[subtable.Coverage.glyphs.index(first)].PairValueRecord
                values = {each.SecondGlyph: each.Value1 for each in records if each.SecondGlyph in waiting[first]}
            else:
                row = subtable.Class1Record[subtable.ClassDef1.classDefs.get(first, 0)].Class2Record
                classes = subtable.ClassDef2.classDefs
                values = {second: row[classes.get(second, 0)].Value1 for second in waiting[first]}
            waiting[first] -= values.keys()
            for second, value in values.items():
                if distance := getattr(value, "XAdvance", 0) or 0:
                    found[first, second] = found.get((first, second), 0) + distance
                if len(found) > MOST_PAIRS:
                    raise OverflowError
