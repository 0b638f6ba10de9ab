"""Reads YAML documents as checked nodes with the place of every value.

The reader is ruamel.yaml's safe, pure loader (YAML 1.2: `yes` is text), which only this module and the configuration's reader
import. Nodes are checked before they are converted: no tags, no duplicate keys, at most `DEEPEST_NESTING` levels, and at most
`MOST_NODES` values after aliases are expanded. A text has at most `max_mib`, because the loader takes six seconds per MiB.

Tests: `tests/builders/test_yaml_builder.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from aptui.builders.common import one_line, shorten
from aptui.builders.files.json_text import BrokenTextError, DataText, Path, decode_text, refuse_larger, write_place

if TYPE_CHECKING:
    from ruamel.yaml import YAML

DEEPEST_NESTING = 50

MOST_NODES = 100_000

_BRACKET = re.compile(r"[\[\]{}]")
_PREFIX = "tag:yaml.org,2002:"
_TAGS = {"null", "bool", "int", "float", "str", "seq", "map", "merge", "timestamp", "value"}


class YamlReading:
    """The documents of a text as checked nodes."""

    def __init__(self, data: bytes, max_mib: int, *, allows_tags: bool) -> None:
        from ruamel.yaml import YAML

        refuse_larger(data, max_mib, "; raise max_mib, or write the data as JSON")
        self._yaml = YAML(typ="safe", pure=True)
        self._allows_tags = allows_tags
        self._measures: dict[int, tuple[int, int]] = {}
        self._text = decode_text(data)
        _refuse_brackets(self._text)
        self.documents = _compose(self._yaml, self._text)
        for node in self.documents:
            self._measure(node)
            self._check(node, set())

    def read_values(self) -> list[DataText]:
        """Return the documents with their values in the types of JSON."""
        return [DataText(self.plain(node), partial(self._find_places, node)) for node in self.documents]

    def _find_places(self, node: Any, paths: Sequence[Path]) -> list[str]:
        return [self._place_of(node, path) for path in paths]

    def _place_of(self, node: Any, path: Path) -> str:
        """Return `line:column` of the value at `path` below `node`, or of its nearest parent that is in the text."""
        for step in path:
            found = None
            if isinstance(step, int) and not isinstance(node.value, str) and step < len(node.value):
                found = node.value[step]
            elif not isinstance(node.value, str):
                found = next((value for key, value in node.value if isinstance(key.value, str) and self._key(key) == step), None)
            if found is None or isinstance(found, tuple):
                break
            node = found
        return _place(node)

    def plain(self, node: Any) -> Any:
        """Return the value of `node` in the types of JSON; dates stay as they are written."""
        if node.id == "sequence":
            return [self.plain(each) for each in node.value]
        if node.id == "mapping":
            return self._plain_mapping(node)
        if _tag(node) == "timestamp":
            return node.value
        value = self._scalar(node)
        if isinstance(value, float) and not math.isfinite(value):
            raise BrokenTextError(f"{node.value} cannot be written as a number in JSON", _place(node))
        return value

    def _plain_mapping(self, node: Any) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, value in node.value:
            if _tag(key) == "merge":
                for each in value.value if value.id == "sequence" else [value]:
                    if each.id != "mapping":
                        raise BrokenTextError("'<<' can merge only mappings", _place(value))
                    merged = self._plain_mapping(each) | merged
            else:
                name = self._key(key)
                if name in own:
                    raise BrokenTextError(f"two keys become the text {shorten(repr(name))} in JSON", _place(key))
                own[name] = self.plain(value)
        return own | {name: value for name, value in merged.items() if name not in own}

    def _key(self, node: Any) -> str:
        if node.id != "scalar":
            raise BrokenTextError("a key must be text or an integer", _place(node))
        value = node.value if _tag(node) == "timestamp" else self._scalar(node)
        if isinstance(value, str):
            return str(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        raise BrokenTextError(f"a key must be text or an integer, not {node.value!r}", _place(node))

    def _scalar(self, node: Any) -> Any:
        if _tag(node) in ("merge", "value", "str") or _tag(node).startswith("!"):
            return node.value
        try:
            return self._yaml.constructor.construct_object(node)
        except Exception as error:  # ruamel.yaml raises various exceptions for invalid dates and numbers
            raise BrokenTextError(f"{shorten(repr(node.value))} is not of type {_tag(node)}", _place(node)) from error

    def _measure(self, node: Any) -> tuple[int, int]:
        """Return the number of nodes in `node` with all aliases expanded, and its number of levels."""
        if id(node) in self._measures:
            found = self._measures[id(node)]
            if not found[0]:
                raise BrokenTextError("an alias refers to itself", _place(node))
            return found
        self._measures[id(node)] = (0, 0)
        count, height = 1, 1
        for child in _children(node):
            size, levels = self._measure(child)
            count, height = count + size, max(height, levels + 1)
        if count > MOST_NODES:
            raise BrokenTextError(f"the file has more than {MOST_NODES:,} values when all aliases are expanded", _place(node))
        if height > DEEPEST_NESTING + 1:
            raise BrokenTextError(f"the data is nested deeper than {DEEPEST_NESTING} levels", _too_deep(self._text) or _place(node))
        self._measures[id(node)] = (count, height)
        return count, height

    def _check(self, node: Any, seen: set[int]) -> None:
        """Refuse tags and duplicate keys in `node` and below it; a node with several aliases is checked once."""
        if id(node) in seen:
            return
        seen.add(id(node))
        is_own = self._allows_tags and str(node.tag).startswith("!")
        if not is_own and (not str(node.tag).startswith(_PREFIX) or _tag(node) not in _TAGS):
            raise BrokenTextError(f"the tag {str(node.tag).replace(_PREFIX, '!!')} is not supported", _place(node))
        if node.id == "mapping":
            self._check_keys(node)
        for child in _children(node):
            self._check(child, seen)

    def _check_keys(self, node: Any) -> None:
        first: dict[Any, Any] = {}
        for key, _ in node.value:
            if key.id != "scalar":
                continue
            value = _tag(key), self._scalar(key)
            if value in first and _tag(key) != "merge":
                raise BrokenTextError(f"duplicate key {key.value!r}, first on line {first[value].start_mark.line + 1}", _place(key))
            first[value] = key


def _compose(yaml: YAML, text: str) -> list[Any]:
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.reader import ReaderError

    try:
        return list(yaml.compose_all(text))
    except RecursionError:
        raise BrokenTextError(f"the data is nested deeper than {DEEPEST_NESTING} levels", _too_deep(text)) from None
    except ReaderError as error:
        raise BrokenTextError(
            "the file contains a control character that YAML does not allow", write_place(text, error.position)
        ) from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = ", ".join(filter(None, (error.context, error.problem)))
        raise BrokenTextError(shorten(what or one_line(error)), f"{mark.line + 1}:{mark.column + 1}" if mark else "") from None
    except (YAMLError, ValueError) as error:
        raise BrokenTextError(shorten(one_line(error))) from None


def _refuse_brackets(text: str) -> None:
    """Reject text whose brackets are nested too deep, before the whole text is parsed.

    Parsing the whole text would be slow, because at each bracket the parser scans ahead over about a thousand later brackets.
    This function counts brackets, even those in strings. If the count exceeds the limit, it parses the text up to that bracket to
    find the real depth.
    """
    depth, limit = 0, DEEPEST_NESTING
    for match in _BRACKET.finditer(text):
        depth = depth + 1 if match[0] in "[{" else max(0, depth - 1)
        if depth > limit:
            try:
                place = _too_deep(text[: match.end()])
            except Exception:  # noqa: BLE001 -- a part of the text is parsed here; its mistakes are reported when the whole text is parsed
                place = ""
            if place:
                raise BrokenTextError(f"the data is nested deeper than {DEEPEST_NESTING} levels", place)
            limit *= 4


def _too_deep(text: str) -> str:
    """Return "line:column" of the first place that is nested too deep, or "". Aliases are not expanded."""
    from ruamel.yaml import YAML

    depth = 0
    for event in YAML(typ="safe", pure=True).parse(text):
        kind = type(event).__name__
        depth += kind in ("SequenceStartEvent", "MappingStartEvent")
        depth -= kind in ("SequenceEndEvent", "MappingEndEvent")
        if depth > DEEPEST_NESTING:
            return f"{event.start_mark.line + 1}:{event.start_mark.column + 1}"
    return ""


def _children(node: Any) -> Iterable[Any]:
    if node.id == "sequence":
        return list(node.value)
    return [part for pair in node.value for part in pair] if node.id == "mapping" else []


def _tag(node: Any) -> str:
    return str(node.tag).removeprefix(_PREFIX)


def _place(node: Any) -> str:
    return f"{node.start_mark.line + 1}:{node.start_mark.column + 1}"
