"""The `font` builder: checks TrueType and OpenType fonts table by table, and subsets them to the requested glyphs and features.

fontTools reads, subsets and packs the fonts. Time stamps are those of the source, so that equal sources give equal bytes.
"""

from __future__ import annotations

import logging
import os
import re
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

from msgspec import Meta, Struct

from aptui.builders.common import SourceBuilder, SourceError, describe_damage, one_job_per_platform, one_line, summarize_errors
from aptui.builders.files.font_work import (
    TooMuchWorkError,
    check_unpacked_size,
    count_composites,
    count_drawing,
    count_table,
    is_counted,
)
from aptui.sdk import (
    CreateJobsRequest,
    CreateJobsResponse,
    JobLog,
    ParamError,
    ProcessJobRequest,
    library,
    library_versions,
    same_for_all_sources,
)

FONT_ASSET_TYPE = UUID("b5e4a082-6d3f-5c71-90ba-28f1d7e6430d")
"""Asset type of every font that this builder makes. The extension of the product (ttf, otf, woff or woff2) names its format."""

MOST_CHARACTERS_SHOWN = 20

_SFNT = {b"\x00\x01\x00\x00": "ttf", b"true": "ttf", b"OTTO": "otf"}
_SIGNATURES = (*_SFNT, b"wOFF", b"wOF2")
_NEEDED = ("head", "hhea", "maxp", "hmtx", "cmap")
"""Tables without which a font cannot be used."""
_USEFUL = {
    "name": "which gives operating systems the name of the font",
    "OS/2": "which Windows needs",
    "post": "which PostScript needs",
}
"""{table whose absence gives a warning: its purpose, as a clause of the warning}."""
_OUTLINES = (("glyf", "loca"), ("CFF ",), ("CFF2",), ("CBDT", "CBLC"), ("sbix",), ("EBDT", "EBLC"))
"""Groups of tables with outlines or bitmaps; a font needs all tables of one group."""
_DRAWN = {tag for outline in _OUTLINES for tag in outline}
"""Tables of all groups in `_OUTLINES`."""
UNICODES = r"(?:U\+)?[0-9A-Fa-f]{1,6}(?:-(?:U\+)?[0-9A-Fa-f]{1,6})?"
"""Pattern of a character (U+41) or a range of characters (U+20-7E)."""

Name = Annotated[str, Meta(pattern=".+")]


class BrokenFontError(SourceError):
    """The font cannot be used; the error's text names the table."""


class FontParams(Struct, frozen=True, kw_only=True):
    """Parameters of this builder; the documentation and `aptui explain` show the descriptions of the fields."""

    text: Annotated[
        str | None,
        Meta(description="keep only the glyphs for these characters; the glyphs that text, unicodes and glyphs name are all kept"),
    ] = None
    unicodes: Annotated[
        list[Annotated[str, Meta(pattern=rf"^{UNICODES}(?!\n)$", title="like U+41 or U+20-7E")]] | None,
        Meta(description="keep only the glyphs for these characters (such as U+41) and ranges (such as U+20-7E)"),
    ] = None
    glyphs: Annotated[list[Name] | None, Meta(description="keep only the glyphs with these names")] = None
    layout_features: Annotated[
        list[Name] | None,
        Meta(description="OpenType features to keep (* for all); by default the features that browsers turn on"),
    ] = None
    flavor: Annotated[
        Literal["keep", "none", "woff", "woff2"],
        Meta(description="compression of the product; keep: as in the source; none: an ordinary TTF or OTF"),
    ] = "keep"
    hinting: Annotated[bool, Meta(description="keep the instructions (hints) that make small sizes sharper")] = True
    strict: Annotated[bool, Meta(description="treat each warning as an error")] = False


class FontBuilder(SourceBuilder):
    """Makes `<stem>.<ttf, otf, woff or woff2>` of a font.

    The job of a broken font fails with a message such as `a.ttf: table 'glyf' …`.
    """

    name: ClassVar[str] = "font"
    version: ClassVar[str] = "1"
    patterns: ClassVar[tuple[str, ...]] = ("*.ttf", "*.otf", "*.woff", "*.woff2")
    # The fingerprint includes the compressors brotli and zlib, because an upgrade of a compressor may change the bytes of products.
    analysis_fingerprint: ClassVar[str] = f"{library_versions('fonttools', 'brotli')}, zlib {zlib.ZLIB_RUNTIME_VERSION}"
    params_schema: ClassVar[Any] = FontParams

    @same_for_all_sources
    def create_jobs(self, request: CreateJobsRequest) -> CreateJobsResponse:
        """Return one job per platform."""
        return one_job_per_platform(request, self.name, self.analysis_fingerprint)

    def build(self, request: ProcessJobRequest) -> None:
        """Check the source and write its one product."""
        options, data = request.options, request.read_source()
        with fonttools_logged(request.log, request.source):
            name, product = _product(data, options, request)
        request.write_product(name, product, sub_id=0, asset_type=FONT_ASSET_TYPE)


@contextmanager
def fonttools_logged(log: JobLog, source: str) -> Iterator[None]:
    """Write warnings of fontTools into the job's log as information, because the user need not correct faults such as odd dates."""
    seen: set[str] = set()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = one_line(record.getMessage())
            if record.levelno >= logging.WARNING and text not in seen:
                seen.add(text)
                log.info(f"{source}: {text}")

    logger, handler = logging.getLogger("fontTools"), Handler()
    propagates = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates


class FontReport:
    """Logs the warnings about one font, and the messages of fontTools; if `strict` is set, a warning is a failure."""

    def __init__(self, request: ProcessJobRequest, *, is_strict: bool) -> None:
        self._request = request
        self._is_strict = is_strict

    def warn(self, text: str) -> None:
        """Log a warning.

        Raises:
            BrokenFontError: `strict` makes the warning a failure.
        """
        if self._is_strict:
            raise BrokenFontError(text)
        self._request.log.warning(f"{self._request.source}: {text}")

    def describe(self, what: str, error: Exception) -> str:
        """Return the message that `what` is damaged; the message of fontTools is logged."""
        self._request.log.info(f"{self._request.source}: {what}: fontTools: {one_line(error)}")
        return f"{what} is damaged: {describe_damage(error)}"


def _product(data: bytes, options: FontParams, request: ProcessJobRequest) -> tuple[str, bytes]:
    """Return (name, bytes) of the product."""
    report = FontReport(request, is_strict=options.strict)
    font, left_out = open_checked(data, report)
    if options.flavor == "woff2":
        library("brotli")
    packing = font.flavor if options.flavor == "keep" else None if options.flavor == "none" else options.flavor
    is_cut = (
        any(getattr(options, name) is not None for name in ("text", "unicodes", "glyphs", "layout_features")) or not options.hinting
    )
    extension = packing or _SFNT.get(font.sfntVersion.encode("latin-1"), "ttf")
    name = f"{request.stem}.{extension}"
    if not is_cut and packing == font.flavor:
        return os.path.basename(request.source), data
    font = _read(data, report)  # the font is opened again, because fontTools writes unread tables unchanged
    if is_cut:
        _leave_out(font, left_out, report)
        _cut(font, options, report)
    font.flavor = packing
    stream = BytesIO()
    try:
        font.save(stream, reorderTables=None)
    except TooMuchWorkError:
        raise
    except Exception as error:  # noqa: BLE001 -- fontTools copies most tables unread, and raises whatever damaged bytes lead it to
        raise BrokenFontError(f"the font cannot be written: {report.describe('one of its tables', error)}") from None
    return name, stream.getvalue()


def open_checked(data: bytes, report: FontReport) -> tuple[Any, list[str]]:
    """Check the tables of a font; return the font without the tables that fontTools cannot read, and the names of these tables.

    Raises:
        BrokenFontError: the font cannot be used.
        TooMuchWorkError: its tables need too many steps.
        MissingError: a package is not installed.
    """
    _check_directory(data)
    font = _read(data, report)
    return font, _check_tables(font, report)


def _read(data: bytes, report: FontReport) -> Any:
    tools = library("fontTools.ttLib", "fonttools")
    if data.startswith(b"wOF2"):
        library("brotli")
    try:
        check_unpacked_size(data)
        return tools.TTFont(BytesIO(data), recalcTimestamp=False, recalcBBoxes=False, lazy=True)
    except TooMuchWorkError:
        raise
    except Exception as error:  # noqa: BLE001 -- fontTools raises whatever damaged bytes lead it to
        raise BrokenFontError(report.describe("the font", error)) from None


# ---------------------------------------------------------------------------------------------------------------- checking


def _check_directory(data: bytes) -> None:
    """Compare the table directory of a TTF, OTF or WOFF with the file's length (OpenType, "Table Directory"; WOFF 1.0, §4, 5)."""
    if not data:
        raise BrokenFontError("the file is empty")
    if data.startswith(b"ttcf"):
        raise BrokenFontError("the file is a collection of several fonts (TTC); save each font as a file of its own")
    if not data.startswith(_SIGNATURES):
        raise BrokenFontError("the file is not a font: it does not begin with the signature of TTF, OTF, WOFF or WOFF2")
    if data.startswith(b"wOF2"):
        return  # a WOFF2 stores all tables in one compressed stream, so its tables have no offsets
    is_woff = data.startswith(b"wOFF")
    start, size, count_at = (44, 20, 12) if is_woff else (12, 16, 4)
    if len(data) < start:
        raise BrokenFontError(f"the file ends after {len(data)} bytes, in the middle of its header")
    (count,) = struct.unpack_from(">H", data, count_at)
    for number in range(count):
        at = start + size * number
        if at + size > len(data):
            raise BrokenFontError(f"the file ends in the middle of its table directory, at table {number + 1} of {count}")
        tag = data[at : at + 4].decode("latin-1")
        offset, length = struct.unpack_from(">II", data, at + (4 if is_woff else 8))
        if offset + length > len(data):
            raise BrokenFontError(
                f"table '{tag}' should end at byte {offset + length:,}, but the file has only {len(data):,} bytes"
            )


def _check_tables(font: Any, report: FontReport) -> list[str]:
    """Check that the font can be drawn, and return the tables that fontTools cannot read but that engines do not need."""
    tags = [tag for tag in font.keys() if tag != "GlyphOrder"]  # noqa: SIM118 -- a TTFont is not a mapping
    missing = [tag for tag in _NEEDED if tag not in tags]
    if missing:
        raise BrokenFontError(summarize_errors([f"the font has no table '{tag}'" for tag in missing]))
    if not any(all(tag in tags for tag in outline) for outline in _OUTLINES):
        raise BrokenFontError("the font has neither outlines nor bitmaps: no table 'glyf', 'CFF ', 'CFF2', 'CBDT' or 'sbix'")
    # These tables are read first, because other tables need the counts and glyph names in these tables.
    first = [tag for tag in ("head", "maxp", "loca", "post") if tag in tags]
    unread = []
    for tag in [*first, *(tag for tag in tags if tag not in first)]:
        try:
            _check_table(font, tag)
        except TooMuchWorkError:
            raise
        except Exception as error:  # noqa: BLE001 -- fontTools raises whatever damaged bytes lead it to
            what = report.describe(f"table '{tag}'", error)
            if tag in _NEEDED or tag in _DRAWN:
                raise BrokenFontError(what) from None
            report.warn(f"{what}; the table is copied unchanged, or removed if the font is reduced to some glyphs")
            unread.append(tag)
            del font[tag]
    if not font["maxp"].numGlyphs:
        raise BrokenFontError("table 'maxp' says that there are no glyphs")
    for tag, purpose in _USEFUL.items():
        if tag not in tags:
            report.warn(f"the font has no table '{tag}', {purpose}")
    if "name" in font and not font["name"].getDebugName(1):
        report.warn("table 'name' does not give the name of the font family")
    if not font.getBestCmap():
        report.warn("table 'cmap' does not map any Unicode character to a glyph")
    return unread


def _check_table(font: Any, tag: str) -> None:
    """Count the decoded size of one table, and decode it if it has outlines, metrics or names."""
    if not is_counted(tag):
        return
    is_layout = count_table(font, tag, font.reader[tag])
    if is_layout:
        return
    table = font[tag]
    if hasattr(table, "ensureDecompiled"):
        table.ensureDecompiled(recurse=True)
    if tag == "glyf":
        for name in font.getGlyphOrder():
            table[name].expand(table)
        count_composites(font)


# ------------------------------------------------------------------------------------------------------------- subsetting


def _leave_out(font: Any, unread: list[str], report: FontReport) -> None:
    """Remove tables that cannot be subset: damaged tables, tables of Apple's layout, and SVG, which needs another library."""
    for tag in [tag for tag in font.keys() if tag != "GlyphOrder"]:  # noqa: SIM118 -- a TTFont is not a mapping
        if tag in unread:
            del font[tag]
        elif tag == "SVG ":
            report.warn(
                "table 'SVG ' is left out, because its pictures cannot be reduced to some glyphs; engines draw the outlines instead"
            )
            del font[tag]
        elif not is_counted(tag):
            del font[tag]


def _cut(font: Any, options: FontParams, report: FontReport) -> None:
    """Subset `font` to the glyphs and tables that `options` request."""
    subset = library("fontTools.subset", "fonttools")
    subset_options = subset.Options()
    subset_options.recalc_timestamp = False
    subset_options.hinting = options.hinting
    subset_options.notdef_outline = True
    subset_options.name_IDs = ["*"]
    if options.layout_features is not None:
        subset_options.layout_features = options.layout_features
    cutter = subset.Subsetter(subset_options)
    if all(getattr(options, name) is None for name in ("text", "unicodes", "glyphs")):
        cutter.populate(glyphs=font.getGlyphOrder())
    else:
        text, glyphs = options.text or "", options.glyphs or []
        _refuse_unknown_glyphs(font, glyphs)
        warn_of_missing_characters(font, text, report)
        cutter.populate(text=text, unicodes=code_points(options.unicodes or [], "unicodes"), glyphs=glyphs)
    try:
        count_drawing(font)
        cutter.subset(font)
    except TooMuchWorkError:
        raise
    except Exception as error:  # noqa: BLE001 -- fontTools raises whatever odd tables lead it to
        raise BrokenFontError(
            f"the font cannot be reduced to the chosen glyphs: {report.describe('one of its tables', error)}"
        ) from None


def code_points(ranges: Iterable[str], parameter: str) -> list[int]:
    """Return the code points of characters and ranges such as U+41 or U+20-7E.

    Raises:
        ParamError: a range ends before it begins; the error names the `parameter`.
    """
    found: list[int] = []
    for text in ranges:
        first, _, last = re.sub(r"[Uu]\+", "", text).partition("-")
        begin, end = int(first, 16), int(last or first, 16)
        if begin > end:
            raise ParamError(f"the range {text} in parameter '{parameter}' ends before it begins")
        found += range(begin, min(end, 0x10FFFF) + 1)
    return found


def _refuse_unknown_glyphs(font: Any, glyphs: list[str]) -> None:
    known = set(font.getGlyphOrder())
    for name in glyphs:
        if name not in known:
            raise BrokenFontError(f"the font has no glyph '{name}', which the parameter 'glyphs' names")


def warn_of_missing_characters(font: Any, text: str, report: FontReport) -> None:
    """Warn of printable characters for which a font has no glyph."""
    known = font.getBestCmap() or {}
    missing = sorted({character for character in text if ord(character) not in known and character.isprintable()})
    if missing:
        shown = " ".join(f"U+{ord(character):04X}" for character in missing[:MOST_CHARACTERS_SHOWN])
        more = f" and {len(missing) - MOST_CHARACTERS_SHOWN} more" if len(missing) > MOST_CHARACTERS_SHOWN else ""
        report.warn(f"the font has no glyphs for {shown}{more}")
