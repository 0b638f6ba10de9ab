"""Reads the kerning of a font from its table GPOS; if GPOS has no kerning, from its table kern.

Kerning changes the distance between pairs of glyphs.

Tests: `tests/builders/test_fontatlas_builder.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

MOST_PAIRS = 100_000
_PAIRS, _EXTENSION = 2, 9
"""Types of lookups in GPOS."""

Pairs = dict[tuple[str, str], int]


def read_kerning(font: Any, glyphs: Collection[str]) -> Pairs:
    """Return {(first glyph, second glyph): change of their distance in font units} of all pairs of `glyphs` with kerning.

    Args:
        font: an opened font of fontTools.
        glyphs: names of glyphs.

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

    The script is the default script; if that is missing, Latin; if Latin is missing, the first script.
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
