"""Counts the work of decoding a font before fontTools decodes it, and refuses fonts that need too much.

A few bytes of a font can expand to gigabytes: offsets that lead to the same subtable again and again, ranges of all glyphs,
composite glyphs of composite glyphs, compressed tables. As HarfBuzz does, this module limits the work by the length of the table:
each table may take `WORK_PER_BYTE` steps for each of its bytes, and `FREE_WORK` more. A step is one byte that is read, one point
of an outline, or one glyph or character in a range.

Tests: `tests/builders/test_font_builder.py`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from aptui.builders.common import SourceError
from aptui.sdk import library

WORK_PER_BYTE = 64
"""Maximum steps for each byte of a table, the same as in HarfBuzz (hb-sanitize.hh); real fonts need at most 13."""

FREE_WORK = 1 << 18
"""Number of steps that decoding a table of any length may take, in addition to `WORK_PER_BYTE` for each of its bytes."""

MOST_CHARACTERS = 4 * 0x110000
"""Maximum number of characters that all subtables of `cmap` map: a last-resort font maps all of Unicode in two subtables."""

MOST_UNPACKED_PER_BYTE = 64
"""Maximum unpacked bytes for each byte of a WOFF; real fonts have two or three."""

DEEPEST_COMPOSITE = 64
"""Maximum nesting of composite glyphs, as in HarfBuzz."""

_EMPTY_READ = 8
"""Cost (in steps of `Work`) of reading an empty entry. If a variation store has no regions, all its entries are empty.

An empty entry has no bytes, but reading it takes as much time and memory as reading any other entry.
"""

_COMPOSITE_HEADER_BYTES = 10
_TUPLE_COUNT_MASK = 0x0FFF


class TooMuchWorkError(SourceError):
    """Decoding would take too many steps."""


class Work:
    """Counts the steps of decoding a table or a compressed font, and raises an error if they exceed a limit."""

    def __init__(self, what: str, most: int) -> None:
        self._what = what
        self._left = most

    def spend(self, count: int) -> None:
        """Use up `count` steps.

        Raises:
            TooMuchWorkError: fewer steps are left.
        """
        self._left -= count
        if self._left < 0:
            raise TooMuchWorkError(f"{self._what} would expand to far more than its size; the file is damaged or malicious")


def work_for(tag: str, data: bytes) -> Work:
    """Return the maximum number of steps for unpacking the table `tag`, which grows with the size of the table."""
    return Work(f"table '{tag}'", WORK_PER_BYTE * len(data) + FREE_WORK)


# --------------------------------------------------------------------------------------------------------------- unpacking


def check_unpacked_size(data: bytes) -> None:
    """Check the unpacked size of a WOFF or WOFF2, by unpacking it without storing the result.

    Raises:
        TooMuchWorkError: the font unpacks to more bytes than its size allows.
    """
    work = Work("the compressed font", MOST_UNPACKED_PER_BYTE * len(data) + FREE_WORK)
    if data.startswith(b"wOF2"):
        _unpack_woff2(data, work)
    elif data.startswith(b"wOFF"):
        for at in range(44, 44 + 20 * struct.unpack_from(">H", data, 12)[0], 20):
            _, offset, packed, unpacked = struct.unpack_from(">4sIII", data, at)
            if packed < unpacked:
                _unpack_zlib(data[offset : offset + packed], work)


def _unpack_zlib(data: bytes, work: Work) -> None:
    unpacker = zlib.decompressobj()
    for start in range(0, len(data), FREE_WORK):
        # zlib copies the input that is left after each call, so it gets the input in short parts.
        part = data[start : start + FREE_WORK]
        while part and not unpacker.eof:
            work.spend(len(unpacker.decompress(part, FREE_WORK)) or 1)
            part = unpacker.unconsumed_tail


def _unpack_woff2(data: bytes, work: Work) -> None:
    brotli = library("brotli")

    unpacker = brotli.Decompressor()
    start, (length,) = _woff2_stream(data), struct.unpack_from(">I", data, 20)
    piece = unpacker.process(data[start : start + length], output_buffer_limit=FREE_WORK)
    while piece:
        work.spend(len(piece))
        piece = b"" if unpacker.is_finished() else unpacker.process(b"", output_buffer_limit=FREE_WORK)


def _woff2_stream(data: bytes) -> int:
    """Return the offset of the compressed stream, which follows the header and the table directory (WOFF2, §4, 5)."""
    at = 48

    def number() -> int:
        nonlocal at
        value = 0
        for _ in range(5):
            byte = data[at]
            at += 1
            value = value << 7 | byte & 0x7F
            if byte < 0x80:
                break
        return value

    for _ in range(struct.unpack_from(">H", data, 12)[0]):
        flags = data[at]
        at += 1
        tag = data[at : at + 4] if flags & 0x3F == 0x3F else b""
        at += len(tag)
        number()
        is_outline = flags & 0x3F in (10, 11) or tag in (b"glyf", b"loca")
        if (flags >> 6 == 0) if is_outline else (flags >> 6 != 0):
            number()
    return at


# ------------------------------------------------------------------------------------------------------------------ tables


def count_table(font: Any, tag: str, data: bytes) -> bool:
    """Count the steps of decoding table `tag`; return whether counting decoded the whole table.

    `data` has the bytes of the table; `font` has the number of glyphs.

    Raises:
        TooMuchWorkError: the table needs more steps than its length allows.
        Exception: any exception that damaged bytes cause.
    """
    from fontTools.ttLib import getTableClass
    from fontTools.ttLib.tables.otBase import BaseTTXConverter

    work = work_for(tag, data)
    if tag == "COLR" or issubclass(getTableClass(tag), BaseTTXConverter):
        _count_opentype(font, tag, data, work)
        return True
    if tag in _COUNTS:
        _COUNTS[tag](font, data, work)
    return False


def is_counted(tag: str) -> bool:
    """Return whether the number of steps for decoding table `tag` is limited, by a `Work` or by the length of the table."""
    from fontTools.ttLib import getTableClass
    from fontTools.ttLib.tables.otBase import BaseTTXConverter

    if tag in _COUNTS or tag in _LINEAR or tag == "COLR":
        return True
    return tag not in _APPLE and issubclass(getTableClass(tag), BaseTTXConverter)


def _count_opentype(font: Any, tag: str, data: bytes, work: Work) -> None:
    """Count the bytes of an OpenType layout table, and the glyphs in its ranges. The table is decoded in parts, to save memory."""
    from fontTools.ttLib.tables import otTables
    from fontTools.ttLib.tables.otBase import BaseTable, OTTableReader

    class CountingReader(OTTableReader):  # type: ignore[misc]
        """Counts each byte that is read as one step of decoding the table (`Work`)."""

        __slots__ = ("_at",)
        _at: int

        @property
        def pos(self) -> int:
            return self._at

        @pos.setter
        def pos(self, value: int) -> None:
            moved = value - self._at
            work.spend(moved if moved > 0 else _EMPTY_READ)
            self._at = value

        def __init__(self, data: bytes, localState: Any = None, offset: int = 0, tableTag: str | None = None) -> None:  # noqa: N803 -- as in fontTools
            self._at = offset
            super().__init__(data, localState, offset, tableTag)

        def seek(self, pos: int) -> None:
            self._at = pos

        def copy(self) -> Any:
            other = self.__class__(self.data, self.localState, self.offset, self.tableTag)
            other.seek(self._at)
            return other

    class CountingFont:
        """Stands in for the font: uses up a step for each glyph of a range. All other attributes are those of the font."""

        def getGlyphNameMany(self, glyphs: Sequence[int]) -> Any:  # noqa: N802 -- as in fontTools
            work.spend(len(glyphs))
            return font.getGlyphNameMany(glyphs)

        def __getattr__(self, name: str) -> Any:
            return getattr(font, name)

    table = getattr(otTables, tag)()
    table.decompile(CountingReader(data, tableTag=tag), CountingFont())
    todo: list[Iterator[Any]] = [iter([table])]
    while todo:
        table = next(todo[-1], None)
        if table is None:
            todo.pop()
            continue
        table.ensureDecompiled()
        values = [value for value in vars(table).values() if not isinstance(value, str | int)]
        vars(table).clear()
        todo.append(_parts_of(values, BaseTable))


def _parts_of(values: Sequence[Any], kind: type) -> Iterator[Any]:
    from fontTools.misc.lazyTools import LazyList

    for value in values:
        if isinstance(value, kind):
            yield value
        elif isinstance(value, list | LazyList):
            for index in range(len(value)):
                part = value[index]
                value[index] = None
                if isinstance(part, kind):
                    yield part


def _count_cmap(_font: Any, data: bytes, _work: Work) -> None:
    work = Work("table 'cmap'", MOST_CHARACTERS + WORK_PER_BYTE * len(data))
    (count,) = struct.unpack_from(">H", data, 2)
    offsets = {struct.unpack_from(">I", data, 8 + 8 * number)[0] for number in range(count)}
    for at in offsets:
        (kind,) = struct.unpack_from(">H", data, at)
        work.spend(256)
        if kind in (0, 2, 4, 6):
            work.spend(struct.unpack_from(">H", data, at + 2)[0])
        if kind in (2, 6):
            work.spend(0x10000 if kind == 2 else struct.unpack_from(">H", data, at + 8)[0])
        elif kind == 4:
            segments = struct.unpack_from(">H", data, at + 6)[0] // 2
            ends = struct.unpack_from(f">{segments}H", data, at + 14)
            starts = struct.unpack_from(f">{segments}H", data, at + 16 + 2 * segments)
            work.spend(sum(max(0, end - start + 1) for start, end in zip(starts, ends, strict=True)))
        elif kind in (12, 13):
            for number in range(struct.unpack_from(">I", data, at + 12)[0]):
                start, end = struct.unpack_from(">II", data, at + 16 + 12 * number)
                work.spend(max(0, end - start) + 1)
        elif kind == 14:
            _count_variation_selectors(data, at, work)


def _count_variation_selectors(data: bytes, at: int, work: Work) -> None:
    for number in range(struct.unpack_from(">I", data, at + 6)[0]):
        usual, other = struct.unpack_from(">II", data, at + 13 + 11 * number)
        if usual:
            (count,) = struct.unpack_from(">I", data, at + usual)
            for which in range(count):
                work.spend(1 + data[at + usual + 7 + 4 * which])
        if other:
            work.spend(struct.unpack_from(">I", data, at + other)[0])


def _count_name(_font: Any, data: bytes, work: Work) -> None:
    for number in range(struct.unpack_from(">H", data, 2)[0]):
        work.spend(12 + struct.unpack_from(">H", data, 6 + 12 * number + 8)[0])


def _count_kern(_font: Any, data: bytes, work: Work) -> None:
    version, count = struct.unpack_from(">HH", data)
    at, layout = (4, ">2xH") if version != 1 else (8, ">I")
    if version == 1:
        (count,) = struct.unpack_from(">I", data, 4)
    for _ in range(count if count != 1 else 0):
        work.spend(len(data) - at)  # for each subtable, fontTools copies all bytes up to the end of the table
        at = min(len(data), at + struct.unpack_from(layout, data, at)[0])


def _count_glyf(font: Any, data: bytes, work: Work) -> None:
    work.spend(sum(length + points for length, points in _outlines(font, data)))


def _outlines(font: Any, data: bytes) -> Iterator[tuple[int, int]]:
    """Yield (number of bytes, number of points) of each glyph; a component counts as a point."""
    locations = font["loca"].locations
    for start, end in pairwise(locations):
        length, points = max(0, min(end, len(data)) - start), 0
        if length >= _COMPOSITE_HEADER_BYTES:
            (contours,) = struct.unpack_from(">h", data, start)
            last = start + _COMPOSITE_HEADER_BYTES + 2 * (contours - 1)
            if contours > 0 and last + 2 <= len(data):
                points = struct.unpack_from(">H", data, last)[0] + 1
            elif contours < 0:
                points = length // 6
        yield length, points


def count_composites(font: Any) -> None:
    """Count the points of all glyphs with their components; this decodes the glyphs.

    Raises:
        TooMuchWorkError: there are more points than the table's length allows, or a glyph is a component of itself.
    """
    table = font["glyf"]
    work = work_for("glyf", font.reader["glyf"])
    known: dict[str, tuple[int, int]] = {}
    for name in font.getGlyphOrder():
        points, _ = _measure_glyph(table, name, known, ())
        work.spend(points)


def _measure_glyph(table: Any, name: str, known: dict[str, tuple[int, int]], inside: tuple[str, ...]) -> tuple[int, int]:
    """Return (number of points, number of levels of components) of a glyph."""
    if name not in known:
        if name in inside:
            raise TooMuchWorkError(f"table 'glyf' is damaged: glyph '{name}' contains itself")
        if len(inside) > DEEPEST_COMPOSITE:
            raise TooMuchWorkError(f"in table 'glyf', a composite glyph is nested deeper than {DEEPEST_COMPOSITE} levels")
        glyph = table[name]
        if glyph.isComposite():
            parts = [_measure_glyph(table, part.glyphName, known, (*inside, name)) for part in glyph.components]
            known[name] = sum(points for points, _ in parts), 1 + max((levels for _, levels in parts), default=0)
        else:
            known[name] = len(getattr(glyph, "coordinates", ())), 0
    if len(inside) + known[name][1] > DEEPEST_COMPOSITE:
        raise TooMuchWorkError(f"in table 'glyf', a composite glyph is nested deeper than {DEEPEST_COMPOSITE} levels")
    return known[name]


def _count_gvar(font: Any, data: bytes, work: Work) -> None:
    points = [points for _, points in _outlines(font, font.reader["glyf"])]
    count, flags, start = struct.unpack_from(">HHI", data, 12)
    wide = flags & 1
    offsets = struct.unpack_from(f">{count + 1}{'I' if wide else 'H'}", data, 20)
    for number in range(min(count, len(points))):
        begin, end = (offset if wide else 2 * offset for offset in offsets[number : number + 2])
        if end > begin:
            tuples = struct.unpack_from(">H", data, start + begin)[0] & _TUPLE_COUNT_MASK
            work.spend(end - begin + tuples * (points[number] + 4) // 4)


def _count_cvar(font: Any, data: bytes, work: Work) -> None:
    numbers = len(font.reader["cvt "]) // 2 if "cvt " in font else 0
    work.spend((struct.unpack_from(">H", data, 4)[0] & _TUPLE_COUNT_MASK) * (numbers + 4))


def _count_hdmx(font: Any, data: bytes, work: Work) -> None:
    work.spend(max(0, struct.unpack_from(">h", data, 2)[0]) * font["maxp"].numGlyphs)


def _count_palettes(_font: Any, data: bytes, work: Work) -> None:
    entries, palettes = struct.unpack_from(">HH", data, 2)
    work.spend(entries * palettes)


def _count_bitmap_places(_font: Any, data: bytes, work: Work) -> None:
    """Count the glyphs in the ranges of every bitmap size (EBLC, "BitmapSize Record", "IndexSubTableArray")."""
    for number in range(struct.unpack_from(">I", data, 4)[0]):
        at, _, count = struct.unpack_from(">III", data, 8 + 48 * number)
        for which in range(count):
            first, last = struct.unpack_from(">HH", data, at + 8 * which)
            work.spend(8 + 8 * max(0, last - first + 1))


def _count_sbix(font: Any, data: bytes, work: Work) -> None:
    glyphs = font["maxp"].numGlyphs
    for number in range(struct.unpack_from(">I", data, 4)[0]):
        (at,) = struct.unpack_from(">I", data, 8 + 4 * number)
        offsets = struct.unpack_from(f">{glyphs + 1}I", data, at + 4)
        work.spend(sum(4 + max(0, end - begin) for begin, end in pairwise(offsets)))


_COUNTS: dict[str, Callable[[Any, bytes, Work], None]] = {
    "cmap": _count_cmap,
    "name": _count_name,
    "kern": _count_kern,
    "glyf": _count_glyf,
    "gvar": _count_gvar,
    "cvar": _count_cvar,
    "hdmx": _count_hdmx,
    "CPAL": _count_palettes,
    "EBLC": _count_bitmap_places,
    "CBLC": _count_bitmap_places,
    "sbix": _count_sbix,
}

_LINEAR = {
    "head", "hhea", "hmtx", "vhea", "vmtx", "maxp", "OS/2", "post", "loca", "cvt ", "fpgm", "prep", "gasp", "fvar", "VORG",
    "CFF ", "CFF2", "EBDT", "CBDT",
}  # fmt: skip
"""Tables that fontTools reads once from start to end; the time to decode one of these tables is limited by its length."""

_APPLE = {"ankr", "bsln", "cidg", "feat", "gcid", "lcar", "mort", "morx", "opbd", "prop", "trak"}
"""Tables in Apple's layout. They are not decoded, because fontTools would expand every range in them; font engines do not."""


# ---------------------------------------------------------------------------------------------------------------- drawing


def count_drawing(font: Any) -> None:
    """Check the number of paints (drawing operations) of a colour font, and limit the subroutine calls of CFF outlines.

    The subroutine calls are counted later, when the outlines are drawn.

    Raises:
        TooMuchWorkError: there are more paints than the table's length allows.
    """
    for tag in ("CFF ", "CFF2"):
        if tag in font:
            _count_subroutines(font, tag)
    table = getattr(font["COLR"], "table", None) if "COLR" in font else None
    glyphs = getattr(table, "BaseGlyphList", None)
    if glyphs is not None:
        work = work_for("COLR", font.reader["COLR"])
        for record in glyphs.BaseGlyphPaintRecord:
            record.Paint.traverse(table, lambda _paint: work.spend(1))


def _count_subroutines(font: Any, tag: str) -> None:
    """Limit the total length of the called subroutines, because nested subroutines with two calls each take exponential time."""
    work = work_for(tag, font.reader[tag])
    top = font[tag].cff.topDictIndex[0]
    privates = [each.Private for each in getattr(top, "FDArray", ())] or [top.Private]
    for index in [top.GlobalSubrs, *(private.Subrs for private in privates if hasattr(private, "Subrs"))]:

        class CountedSubroutines(type(index)):  # type: ignore[misc]
            """Counts the length of each fetched subroutine as steps of decoding the table (`Work`)."""

            def __getitem__(self, number: int) -> Any:
                found = super().__getitem__(number)
                work.spend(1 + len(found.bytecode or found.program or ()))
                return found

        index.__class__ = CountedSubroutines
