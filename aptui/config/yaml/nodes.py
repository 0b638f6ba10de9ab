"""Reads YAML of limited size and depth as nodes with their places. Collects mistakes, and converts and describes values.

Only this module of `aptui.config` imports ruamel.yaml and pathspec.

Tests: `tests/config/test_schema.py`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct
from pathspec.patterns.gitignore import GitIgnorePatternError
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern
from ruamel.yaml import YAML, events
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.scanner import Scanner

from aptui.core.patterns import wildcard_regex
from aptui.core.project import SHARE_OF_MEMORY, Pattern, PatternKind
from aptui.shared.errors import UserError
from aptui.shared.globs import PATTERN_LIMIT

T = TypeVar("T")

MAX_BYTES, MAX_DEPTH = 1 << 20, 50
"""Maximum size of a YAML file in bytes, and maximum number of nested lists and mappings."""
_LAST_NUMBER = (1 << 63) - 1
"""Maximum absolute value of an integer, because databases and messages between processes hold at most 64 bits."""
_SHOWN = 60
"""Maximum characters of a value in a message."""


class Node(Struct, eq=False):
    """A YAML value with its place: `value` is a scalar, or a list or dict of nodes; `key_where` is the place of its key.

    `span` is its range of characters in the text, for `config.edit`; `is_flow`: it is written in brackets or braces.
    """

    value: Any
    where: str
    key_where: str = ""
    span: tuple[int, int] = (0, 0)
    is_flow: bool = False

    def __eq__(self, other: object) -> bool:
        """Compare the values and places of two nodes; whether they are written in flow or block style does not matter."""
        if not isinstance(other, Node):
            return NotImplemented
        return (self.value, self.where, self.key_where) == (other.value, other.where, other.key_where)

    __hash__ = None  # type: ignore[assignment]  # nodes are mutable

    def plain(self) -> Any:
        """Return the value as plain scalars, lists and dicts, without the places in the file."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value

    def get(self, key: str) -> Node | None:
        """Return the child named `key`, None if it does not exist or this is not a mapping."""
        return self.value.get(key) if isinstance(self.value, dict) else None

    def items(self, key: str) -> list[Node]:
        """Return the nodes in the list named `key`, [] if it does not exist."""
        node = self.get(key)
        return [] if node is None else list(node.value)

    def find(self, key: str) -> Node | None:
        """Return the node at a key with dots, for example "limits.memory"; None if it does not exist."""
        node: Node | None = self
        for step in key.split("."):
            node = node.get(step) if node is not None else None
        return node

    def at(self, path: Iterable[str | int]) -> Node:
        """Return the node at `path`, a sequence of keys and indices."""
        node = self
        for step in path:
            node = node.value[step]
        return node


def read_yaml(data: bytes, name: str, *, max_bytes: int = MAX_BYTES, max_nodes: int = MAX_BYTES) -> Node:
    """Parse one YAML document. Refuse documents that are too large or too deep, and anchors, aliases, tags and duplicate keys.

    Args:
        name: the name of the file, before `:line:column` in every message.
        max_nodes: maximum number of keys and values.

    Raises:
        UserError: at the first mistake.
    """
    if len(data) > max_bytes:
        size = f"{max_bytes >> 20} MiB" if max_bytes >> 20 else f"{max_bytes >> 10} KiB"
        raise UserError(f"the file is larger than {size}", where=f"{name}:1:1", hint="check whether this is a configuration file")
    text = decode_text(data, name)
    try:
        return _YamlReader(text, name, max_nodes).document()
    except _TooDeepError as error:
        raise UserError(f"the YAML is nested deeper than {MAX_DEPTH} levels", where=_place(text[: error.index], name)) from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else f"{name}:1:1"
        raise UserError(f"not valid YAML: {error.problem or error.context}", where=where) from None
    except ReaderError as error:
        where = _place(text[: error.position], name)
        raise UserError("not valid YAML: a control character that YAML does not allow", where=where) from None
    except YAMLError as error:
        raise UserError(f"not valid YAML: {' '.join(str(error).split())}", where=f"{name}:1:1") from None


def decode_text(data: bytes, name: str) -> str:
    """Return the text of a YAML file, without a byte order mark.

    Raises:
        UserError: the file is not UTF-8.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = _place(data[: error.start].decode("utf-8", "replace"), name)
        raise UserError(f"byte 0x{data[error.start]:02x} is not UTF-8", where=where, hint="save the file as UTF-8") from None


def _place(before: str, name: str) -> str:
    return f"{name}:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"


class _TooDeepError(Exception):
    """Brackets are nested deeper than `MAX_DEPTH`; `index` is the position of the first bracket that is too deep."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


class _ShallowScanner(Scanner):
    """Stops at the first bracket that is nested too deep.

    The usual scanner would be slow: it reads up to 1,024 characters ahead, and compares each bracket there with all open brackets.
    """

    def fetch_flow_collection_start(self, TokenClass: Any, to_push: str) -> None:  # noqa: N803  # its name in ruamel.yaml
        if len(self.indents) + self.flow_level >= MAX_DEPTH:
            raise _TooDeepError(self.reader.index)
        super().fetch_flow_collection_start(TokenClass, to_push)


class _YamlReader:
    """Builds nodes from the parser's events, so that aliases are refused before they are expanded, and every node has its place."""

    def __init__(self, text: str, name: str, max_nodes: int) -> None:
        self._yaml = YAML(typ="safe", pure=True)
        self._yaml.Scanner = _ShallowScanner
        self._events: Iterator[Any] = iter(self._yaml.parse(text))
        self._name = name
        self._max_nodes = self._nodes_left = max_nodes
        self._last: Any = None
        """The event that ended the last list or mapping."""

    def document(self) -> Node:
        """Read the only document; an empty file is an empty mapping."""
        next(self._events)
        if isinstance(next(self._events), events.StreamEndEvent):
            return Node({}, f"{self._name}:1:1")
        node = self._node(next(self._events), 1)
        next(self._events)
        after = next(self._events)
        if not isinstance(after, events.StreamEndEvent):
            raise UserError("the file has a second YAML document", where=self._where(after), hint="keep one document in the file")
        return node

    def _where(self, event: Any) -> str:
        return f"{self._name}:{event.start_mark.line + 1}:{event.start_mark.column + 1}"

    def _node(self, event: Any, depth: int) -> Node:
        where = self._where(event)
        self._refuse(event, depth, where)
        self._count(where)
        match event:
            case events.MappingStartEvent():
                return self._collection(event, self._mapping(depth), where)
            case events.SequenceStartEvent():
                items = []
                while not isinstance(child := next(self._events), events.SequenceEndEvent):
                    items.append(self._node(child, depth + 1))
                self._last = child
                return self._collection(event, items, where)
            case _:
                return Node(self._scalar(event, where), where, span=(event.start_mark.index, event.end_mark.index))

    def _count(self, where: str) -> None:
        self._nodes_left -= 1
        if self._nodes_left < 0:
            what = f"the file has more than {self._max_nodes:,} keys and values"
            raise UserError(what, where=where, hint="check whether this is a settings file of a folder")

    def _collection(self, event: Any, value: Any, where: str) -> Node:
        """Return a list or mapping.

        In block style the span of the node ends with its last value, because the end event is at the next token.
        """
        if event.flow_style:
            end = self._last.end_mark.index
        else:
            end = max((child.span[1] for child in (value.values() if isinstance(value, dict) else value)), default=0)
        return Node(value, where, span=(event.start_mark.index, end), is_flow=bool(event.flow_style))

    def _refuse(self, event: Any, depth: int, where: str) -> None:
        if isinstance(event, events.AliasEvent) or event.anchor is not None:
            raise UserError(
                "anchors and aliases (& and *) are not allowed", where=where, hint="repeat the full value in place of each alias"
            )
        if event.tag is not None:
            raise UserError(f"tags like {_shorten(event.tag)} are not allowed", where=where, hint="write the value without the tag")
        if depth > MAX_DEPTH:
            raise UserError(f"the YAML is nested deeper than {MAX_DEPTH} levels", where=where)

    def _mapping(self, depth: int) -> dict[str, Node]:
        found: dict[str, Node] = {}
        while not isinstance(event := next(self._events), events.MappingEndEvent):
            where = self._where(event)
            self._refuse(event, depth, where)
            self._count(where)
            if not isinstance(event, events.ScalarEvent):
                raise UserError("a key must be text", where=where)
            key = self._text(event, where)
            node = self._node(next(self._events), depth + 1)
            if key in found:
                first = found[key].key_where.rpartition("/")[2]
                raise UserError(f"key '{_shorten(key)}' is given twice, first at {first}", where=where)
            node.key_where = where
            if node.value is None:  # ruamel.yaml gives an empty value the place of the next token
                node.where = where
            found[key] = node
        self._last = event
        return found

    def _scalar(self, event: Any, where: str) -> str | int | float | bool | None:
        if not event.implicit[0]:
            return self._text(event, where)
        tag = self._yaml.resolver.resolve(ScalarNode, event.value, (True, False))
        if str(tag).rpartition(":")[2] not in ("int", "float", "bool", "null"):
            return self._text(event, where)
        value: int | float | bool | None = None
        if len(event.value) <= _SHOWN:  # longer text is refused below, because its conversion is very slow
            value = self._yaml.constructor.construct_object(ScalarNode(tag, event.value))
        is_odd = isinstance(value, float) and not math.isfinite(value)
        if is_odd or len(event.value) > _SHOWN or (isinstance(value, int) and abs(value) > _LAST_NUMBER):
            raise UserError(f"{event.value[:_SHOWN]} is not a finite number of at most 64 bits", where=where)
        return value

    def _text(self, event: Any, where: str) -> str:
        text = str(event.value)
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            raise UserError(
                "the escape sequence is only half of a character (a lone surrogate)",
                where=where,
                hint="write the character instead of the escape",
            )
        return text


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def describe_value(node: Node) -> str:
    """Return a value for a message: short, on one line."""
    if isinstance(node.value, dict | list):
        return "a mapping" if isinstance(node.value, dict) else "a list"
    if node.value is None:
        return "nothing"
    if isinstance(node.value, bool):
        return str(node.value).lower()
    text = repr(node.value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 4]}…'"


# `MergedTree` gives the compiler the values of the merged layers, with absolute paths, and collects the mistakes in the layers.


class MergedTree:
    """The merged layers; mistakes are collected, so that the user sees all of them at once.

    Args:
        folder: the project's folder, the base of relative paths.
    """

    def __init__(self, root: Node, folder: Path) -> None:
        self.root, self.folder = root, folder
        self.mistakes: list[UserError] = []
        self.warnings: list[str] = []

    def plain(self, key: str, default: T) -> T:
        """Return the value of a top-level key of the merged layers."""
        node = self.root.get(key)
        value: T = default if node is None else node.value
        return value

    def plain_tree(self, key: str) -> dict[str, Any]:
        """Return the mapping below a top-level key, without places."""
        node = self.root.get(key)
        return node.plain() if node is not None else {}

    def members(self, key: str) -> dict[str, Node]:
        """Return {key: node} of the mapping below a top-level key."""
        return self.plain(key, {})

    def attempt(self, action: Callable[[Node], T], node: Node) -> T | None:
        """Return `action(node)`; if it raises UserError, record the mistake and return None."""
        try:
            return action(node)
        except UserError as mistake:
            self.mistakes.append(mistake)
            return None

    def attempt_all(self, action: Callable[[Node], T | None], items: Iterable[Node]) -> list[T]:
        """Return the results of `action` for these nodes. For a node with a mistake, record the mistake and omit the result."""
        return [found for found in (self.attempt(action, node) for node in items) if found is not None]

    def wrong(self, what: str, node: Node, hint: str = "") -> None:
        """Record a mistake."""
        self.mistakes.append(UserError(what, where=node.where, hint=hint))

    def absolute(self, path: str) -> str:
        """Return an absolute path; a relative one is below the project."""
        return os.path.normpath(os.path.join(self.folder, os.path.expanduser(path)))

    def file(self, node: Node | None) -> str:
        """Return the absolute path of an optional file, "" if it is not set."""
        return self.absolute(node.value) if node is not None else ""

    def store(self, text: str) -> str:
        """Return the location of a store: a URL, or an absolute path."""
        return text if "://" in text else self.absolute(text)

    def path(self, key: str, default: str) -> str:
        """Return the absolute path that a top-level key sets."""
        return self.absolute(self.plain(key, default))

    def folders(self, key: str) -> tuple[str, ...]:
        """Return the absolute paths in a top-level list."""
        return tuple(self.absolute(node.value) for node in self.root.items(key))


# These functions convert small values that passed the schema: durations, sizes, patterns and ignore rules.

DURATION = r"^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h)\s*$"
SIZE = r"^\s*(\d+(?:\.\d+)?)\s*(B|[kK]B?|MB?|GB?|TB?|KiB|MiB|GiB|TiB)\s*$"
_MOST_SECONDS, _MOST_BYTES = 1e9, 1 << 60
"""Maximum of durations and sizes, because system calls cannot hold larger numbers; real values are far below it."""
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}
_SHORT = {"k": "kB", "K": "kB", "KB": "kB", "M": "MB", "G": "GB", "T": "TB"}


def seconds(value: str | float) -> float:
    """Convert a duration that passed the schema to seconds; a bare number is seconds."""
    found = re.match(DURATION, value) if isinstance(value, str) else None
    return min(float(found[1]) * _SECONDS[found[2]] if found else float(value), _MOST_SECONDS)


def byte_count(value: str | int) -> int:
    """Convert a size that passed the schema to bytes. `auto` gives the constant `SHARE_OF_MEMORY`, which is not a size."""
    if value == "auto":
        return SHARE_OF_MEMORY
    found = re.match(SIZE, value) if isinstance(value, str) else None
    return int(min(float(found[1]) * _BYTES[_SHORT.get(found[2], found[2])] if found else int(value), _MOST_BYTES))


def compile_regex(node: Node) -> re.Pattern[str]:
    """Compile a regular expression from the configuration."""
    try:
        return re.compile(node.value, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        where = f" at character {error.pos + 1}" if isinstance(error, re.error) and error.pos is not None else ""
        problem = error.msg if isinstance(error, re.error) else str(error)
        raise UserError(f"not a regular expression: {problem}{where}: {describe_value(node)}", where=node.where) from None


def pattern_of(node: Node) -> Pattern:
    """Translate a builder's pattern."""
    if isinstance(node.value, dict):
        regex, absolute = node.value["regex"], node.value.get("absolute")
        is_absolute = absolute is not None and bool(absolute.value)
        return Pattern(PatternKind.REGEX, regex.value, compile_regex(regex).pattern, is_absolute)
    if node.value.startswith("/") or "\\" in node.value:
        raise UserError(f"pattern {describe_value(node)} must be relative, with '/' between folders", where=node.where)
    text = node.value.removeprefix("./")
    if len(text) > PATTERN_LIMIT:
        raise UserError(f"a pattern of more than {PATTERN_LIMIT} characters", where=node.where, hint="use several shorter patterns")
    return Pattern(PatternKind.GLOB, text, wildcard_regex(text))


def ignore_regex(node: Node) -> str:
    """Translate an ignore rule to a regular expression that matches a path and everything below it.

    Globs match as in .gitignore.
    """
    if isinstance(node.value, dict):
        regex = node.value["regex"]
        found = compile_regex(regex)
        if found.groupindex or re.search(r"\\[1-9]|\(\?\(", found.pattern) or re.match(r"\(\?[a-zA-Z]+\)", found.pattern):
            raise UserError("named groups, back references and global flags are not allowed in ignore rules", where=regex.where)
        return f"(?:{found.pattern})(?s:/.*)?"
    try:
        text, is_ignoring = GitIgnoreSpecPattern.pattern_to_regex(node.value)
    except GitIgnorePatternError:
        text, is_ignoring = None, None
    if text is None or not is_ignoring:
        hint = (
            "exceptions that begin with ! are not supported"
            if node.value.startswith("!")
            else "escape special characters as in .gitignore"
        )
        raise UserError(f"{describe_value(node)} is not an ignore rule", where=node.where, hint=hint)
    return f"(?s:{re.sub(r'[(][?]P<[^>]*>', '(?:', str(text))}.*)"


def join_rules(rules: Iterable[str]) -> str:
    """Join ignore rules to one regular expression.

    Rules for a name at any depth share a prefix, which makes matching three times as fast.
    """
    start = "(?s:^(?:.+/)?"
    unique = list(dict.fromkeys(rules))
    names = [rule.removeprefix(start)[:-1] for rule in unique if rule.startswith(start)]
    shared = [f"{start}(?:{'|'.join(names)}))"] if names else []
    return "|".join(shared + [rule for rule in unique if not rule.startswith(start)])
