"""Files of scan folders about undeclared dependencies: `*_Dependencies.xml` (always shipped), `*.filetag` (not scanned).

Both lie at the top of a scan folder. They are read as written; one that cannot be read has no rules, and says so.

Tests: `tests/engine/missing/test_scanner.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from xml.parsers import expat

from msgspec import Struct, field

from aptui.core.patterns import wildcard
from aptui.shared.globs import PATTERN_LIMIT

_SIZE_MAX = 16 << 20
_EXACT, _WILDCARD = 0, 1
"""Forms of a pattern in a `.filetag` file; 2 is a regular expression."""
_SKIPPED_PRODUCTS = (frozenset({"editoronly"}), frozenset({"shader"}))
_SKIPPED_FILES = (frozenset({"ignore", "productdependency"}),)


class ScanRules(Struct):
    """The rules of all scan folders; `complaints` says which files could not be read."""

    shipped: list[re.Pattern[str]] = field(default_factory=list)
    excluded: list[tuple[Callable[[str], object], frozenset[str]]] = field(default_factory=list)
    included: list[tuple[Callable[[str], object], frozenset[str]]] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def is_shipped(self, *paths: str) -> bool:
        """Whether one of these paths (lower case, without a platform) is always shipped."""
        return any(pattern.fullmatch(path) for pattern in self.shipped for path in paths)

    def tags_of(self, path: str, *, is_product: bool) -> tuple[str, ...]:
        """Return the tags for which a file (lower case, without a platform) is not scanned, () = it is."""
        for wanted in _SKIPPED_PRODUCTS if is_product else _SKIPPED_FILES:
            if _has(self.excluded, path, wanted) and not _has(self.included, path, wanted):
                return tuple(sorted(wanted))
        return ()


def _has(rules: Iterable[tuple[Callable[[str], object], frozenset[str]]], path: str, wanted: frozenset[str]) -> bool:
    return any(wanted <= tags and matches(path) for matches, tags in rules)


def read_rules(roots: Iterable[str]) -> ScanRules:
    """Read the rules of these scan folders."""
    rules = ScanRules()
    for path in _files(roots):
        name = path.name.lower()
        try:
            data = path.read_bytes() if path.stat().st_size <= _SIZE_MAX else b""
            if name.endswith(".filetag"):
                target = rules.included if name.startswith("include") else rules.excluded
                target += _tags(data)
            else:
                rules.shipped += [wildcard(pattern.replace("\\", "/").lower()) for pattern in _read_shipped(data)]
        except (OSError, expat.ExpatError, re.error, ValueError) as error:
            rules.complaints.append(f"'{path}' is not followed: {error}")
    return rules


def _files(roots: Iterable[str]) -> Iterator[Path]:
    for root in roots:
        try:
            with os.scandir(root) as entries:
                names = sorted(entry.name for entry in entries if entry.is_file())
        except OSError:
            continue
        yield from (Path(root, name) for name in names if name.lower().endswith(("_dependencies.xml", ".filetag")))


def _elements(data: bytes) -> Iterator[tuple[str, dict[str, str]]]:
    """Return names and attributes of all elements, in order."""
    found: list[tuple[str, dict[str, str]]] = []
    parser = expat.ParserCreate()
    parser.StartElementHandler = lambda name, attributes: found.append((name, attributes))
    parser.Parse(data, True)
    return iter(found)


def _read_shipped(data: bytes) -> Iterator[str]:
    for name, attributes in _elements(data):
        if name == "Dependency" and attributes.get("path"):
            yield attributes["path"]


def _tags(data: bytes) -> Iterator[tuple[Callable[[str], object], frozenset[str]]]:
    """Yield (matcher, tags) of each pair of an ObjectStream: `value1` is the pattern, then its form and its tags follow."""
    pattern, form, tags = "", _WILDCARD, set[str]()
    for _, attributes in (*_elements(data), ("", {"field": "value1", "value": ""})):
        value = attributes.get("value", "")
        match attributes.get("field"):
            case "value1":
                if pattern:
                    yield _matcher(pattern, form), frozenset(tags)
                pattern, form, tags = value, _WILDCARD, set()
            case "FilePatternType":
                form = int(value)
            case "element" if value:
                tags.add(value.lower())


def _matcher(pattern: str, form: int) -> Callable[[str], object]:
    if form == _EXACT:
        return lambda path: path == pattern.lower()
    if form == _WILDCARD:
        return wildcard(pattern).fullmatch
    return _linear(pattern)


def _linear(regex: str) -> Callable[[str], object]:
    """Return what matches a whole path with a regex that lies among the assets: by an engine that cannot be made to take long.

    Raises:
        ValueError: it is none.
    """
    from polars.exceptions import ComputeError

    from aptui.store.jobs.texts import contains, series_of

    whole = rf"(?is)\A(?:{regex})\z"
    if len(regex) > PATTERN_LIMIT:
        raise ValueError(f"a regex of more than {PATTERN_LIMIT} characters")
    try:
        contains(series_of([""]), whole)
    except ComputeError as error:
        raise ValueError(f"'{regex}' is no regex that is understood here: {str(error).splitlines()[-1]}") from None
    return lambda path: bool(contains(series_of([path]), whole)[0])
