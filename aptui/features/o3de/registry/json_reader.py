"""Reads the JSON of settings registry files: comments and trailing commas are allowed; each value has its line and column.

As in O3DE, text after the first value is not read.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable
from typing import NoReturn

from msgspec.structs import replace

from aptui.config.yaml.nodes import Node
from aptui.shared.errors import UserError

MAX_DEPTH = 100
_BEYOND = 1 << 64
"""Whole numbers with at least this absolute value do not fit into 64 bits, and are read as floats."""

_BLANK = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"((?:[^"\\\x00-\x1f]|\\.)*)"')
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_WORD = re.compile(r"[A-Za-z_]\w*")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})(?:\\u([dD][c-fC-F][0-9a-fA-F]{2}))?|(.))", re.DOTALL)
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_HIGH, _LOW = range(0xD800, 0xDC00), range(0xDC00, 0xE000)


def read_json(data: bytes, name: str, warn: Callable[[str], None] | None = None) -> Node:
    """Parse the first value of `data`.

    Args:
        name: prefix of `:line:column` in every place.
        warn: receives a message about text that is not UTF-8; each invalid byte is read as U+FFFD, because O3DE accepts any
            bytes between quotes. None = invalid UTF-8 is an error.

    Raises:
        UserError: at the first error.
    """
    try:
        return _JsonReader(data.decode("utf-8-sig"), name).value(1)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        mistake = UserError(
            f"byte 0x{data[error.start]:02x} is not valid UTF-8", where=f"{name}:{line}:{column}", hint="save the file as UTF-8"
        )
    if warn is None:
        raise mistake
    try:
        node = _JsonReader(data.decode("utf-8-sig", "replace"), name).value(1)
    except UserError:
        raise mistake from None  # replacing the invalid bytes did not help: the whole file has another encoding
    warn(f"{mistake.where}: {mistake.what}, and is read as '\ufffd'; {mistake.hint}")
    return node


class _JsonReader:
    """Reads the values of one text; `name` is the prefix of their places."""

    def __init__(self, text: str, name: str) -> None:
        self._text = text
        self._name = name
        self._at = 0
        self._lines = [0, *(found.end() for found in re.finditer("\n", text))]

    def value(self, depth: int) -> Node:
        """Read one value."""
        self._skip()
        if depth > MAX_DEPTH:
            self._wrong(f"the JSON is nested deeper than {MAX_DEPTH} levels")
        where = self._where(self._at)
        match self._text[self._at : self._at + 1]:
            case "{":
                return Node(self._object(depth), where)
            case "[":
                return Node(self._array(depth), where)
            case '"':
                return Node(self._string(), where)
            case _:
                return Node(self._scalar(), where)

    def _object(self, depth: int) -> dict[str, Node]:
        found: dict[str, Node] = {}
        opened = self._at
        self._at += 1
        while not self._ends("}", opened):
            place = self._at
            if self._text[place] != '"':
                self._wrong("a key in double quotes is expected")
            key = self._string()
            self._skip()
            if self._text[self._at : self._at + 1] != ":":
                self._wrong(f"':' is missing after '{key}'")
            self._at += 1
            node = self.value(depth + 1)
            node.key_where = self._where(place)
            found[key] = merge_members(found[key], node) if key in found else node
            self._separate("}", opened)
        return found

    def _array(self, depth: int) -> list[Node]:
        found: list[Node] = []
        opened = self._at
        self._at += 1
        while not self._ends("]", opened):
            found.append(self.value(depth + 1))
            self._separate("]", opened)
        return found

    def _ends(self, closing: str, opened: int) -> bool:
        """Skip blanks. Return whether the list or object ends here; if it does, skip its closing bracket."""
        self._skip()
        if self._at >= len(self._text):
            self._wrong(f"'{closing}' is missing", opened)
        is_end = self._text[self._at] == closing
        self._at += is_end
        return is_end

    def _separate(self, closing: str, opened: int) -> None:
        """Skip a comma; without a comma, only the end of the list or object may follow."""
        self._skip()
        if self._at >= len(self._text):
            self._wrong(f"'{closing}' is missing", opened)
        character = self._text[self._at]
        if character == ",":
            self._at += 1
        elif character != closing:
            self._wrong(f"',' or '{closing}' is expected")

    def _string(self) -> str:
        found = _STRING.match(self._text, self._at)
        if found is None:
            self._wrong("a string has no closing quote")
        start, self._at = self._at, found.end()
        if "\\" not in found[1]:
            return found[1]
        return _ESCAPE.sub(lambda escape: self._character(escape, start + 1), found[1])

    def _character(self, escape: re.Match[str], start: int) -> str:
        code, second, character = escape.groups()
        if character is not None:
            if character not in _ESCAPES:
                self._wrong(f"'\\{character}' is not a valid escape sequence", start + escape.start(), "write \\\\ for a backslash")
            return _ESCAPES[character]
        number = int(code, 16)
        if second is not None and number in _HIGH:
            return chr(0x10000 + ((number - 0xD800) << 10) + int(second, 16) - 0xDC00)
        if number in _HIGH or number in _LOW or second is not None:
            self._wrong("the escape sequence is only half of a character (half of a surrogate pair)", start + escape.start())
        return chr(number)

    def _scalar(self) -> float | bool | None:
        number = _NUMBER.match(self._text, self._at)
        if number:
            value = float(number[0])
            if not math.isfinite(value):
                self._wrong("a number is out of range")
            self._at = number.end()
            if number[1] or number[2]:
                return value
            whole = int(number[0])
            return whole if abs(whole) < _BEYOND else value
        word = _WORD.match(self._text, self._at)
        if word is None or word[0] not in _WORDS:
            what = (
                f"'{word[0]}' is not a value"
                if word
                else "a value is expected"
                if self._at < len(self._text)
                else "a value is missing"
            )
            self._wrong(what, hint="put strings in double quotes" if word else "")
        self._at = word.end()
        return _WORDS[word[0]]

    def _skip(self) -> None:
        found = _BLANK.match(self._text, self._at)
        self._at = found.end() if found else self._at
        if self._text.startswith("/*", self._at):
            self._wrong("a comment has no end (*/)")

    def _where(self, at: int) -> str:
        line = bisect_right(self._lines, at)
        return f"{self._name}:{line}:{at - self._lines[line - 1] + 1}"

    def _wrong(self, what: str, at: int | None = None, hint: str = "") -> NoReturn:
        raise UserError(f"not valid JSON: {what}", where=self._where(self._at if at is None else at), hint=hint)


def merge_members(first: Node, second: Node) -> Node:
    """Return the value of a key that is given twice: both values are merged in order, as in O3DE. A null is kept."""
    if not isinstance(first.value, dict) or not isinstance(second.value, dict):
        return second
    members = dict(first.value)
    for key, node in second.value.items():
        members[key] = merge_members(members[key], node) if key in members else node
    return replace(first, value=members)
