"""Validates JSON text, finds the places of its values, and describes mistakes. It does not interpret the data.

Tests: `tests/builders/files/test_json_text.py`, `tests/builders/test_json_builder.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, NoReturn

from msgspec import Struct

from aptui.builders.common import SourceError

Path = tuple[str | int, ...]
"""Keys and indices from the root of some data to a value."""

DEEPEST_NESTING = 500
"""Maximum nesting of `[` and `{`: below the limit of CPython's parser (1,000), so that every host accepts the same files."""

STRING = r'"[^"\\\r\n]*+(?:\\.[^"\\\r\n]*+)*+"'
TOKEN = re.compile(STRING + r"|[{}\[\],:]|[^\s{}\[\],:\"]+")
RUN_OF_TEXT = re.compile(rf'(?:{STRING}|[^ \t\r\n"]++)++')
"""Matches text up to the next blank outside a string; strings may contain blanks."""
STRING_OR_COMMENT = re.compile(rf'({STRING}|"[^\r\n]*+)|(//[^\r\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/)?+)')
_ALL_BUT_BRACKETS = re.compile(STRING + r"|[^\[\]{}\"]+")
DEPTH = {"[": 1, "{": 1, "]": -1, "}": -1}

TRAILING_COMMA = "JSON does not allow a comma before a closing bracket"
HALF_PAIR = "a string contains half of a surrogate pair (\\ud800 to \\udfff)"

_COMMA_AND_END = re.compile(r",[ \t\r\n]*[}\]]")
_BLANKS = " \t\r\n"
_MOST_DIGITS = 300
"""Maximum number of digits of an integer. A longer number becomes a float, because int() refuses more than 4,300 digits."""


class BrokenTextError(SourceError):
    """The content of a file cannot be used, for example because it is damaged, too large or in an unsupported format."""


class DataText(Struct, frozen=True):
    """A parsed text: its value in the types of JSON, and a function that finds the `line:column` of the values at given paths."""

    value: Any
    find_places: Callable[[Sequence[Path]], Sequence[str]]


class _NotANumberError(Exception):
    """The text contains `NaN`, `Infinity` or `-Infinity`; the parser does not report its position."""


def refuse_larger(data: bytes, most_mib: int, remedy: str = "") -> None:
    """Refuse the content of a file that has more than `most_mib` MiB; `remedy` ends the message.

    Raises:
        BrokenTextError: the file is larger.
    """
    if len(data) > most_mib << 20:
        raise BrokenTextError(f"the file is larger than {most_mib} MiB, which is the limit{remedy}")


def decode_text(data: bytes) -> str:
    """Return the text of bytes in UTF-8, or in UTF-16 with a byte order mark.

    Raises:
        BrokenTextError: the bytes are in another encoding.
    """
    encoding = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        before = data[: error.start].decode(error.encoding, "replace")
        raise _broken(f"invalid {error.encoding.upper()} at byte offset {error.start}", before, len(before)) from None


def read_json(text: str) -> DataText:
    """Return the value of a JSON text.

    Raises:
        BrokenTextError: the text is not JSON.
    """
    validate_json(text)
    return DataText(json.loads(text, parse_int=_read_integer), partial(find_places, text))


def write_json(value: Any, *, indent: int | None = None) -> bytes:
    """Return `value` as JSON with a line end, without blanks unless `indent` is given.

    Raises:
        BrokenTextError: the value cannot be written as JSON or in UTF-8.
    """
    separators = (",", ":") if indent is None else None
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent, separators=separators)
        return f"{text}\n".encode()
    except UnicodeEncodeError:
        raise BrokenTextError(HALF_PAIR) from None
    except ValueError:
        raise BrokenTextError("a number is too large to be written as JSON") from None


def find_places(text: str, paths: Sequence[Path]) -> list[str]:
    """Return the `line:column` of the values at `paths` in valid JSON.

    If a key is given twice, the place is that of the last value.
    """
    found = dict.fromkeys(paths, 0)
    path: list[str | int] = []
    previous = ""
    for match in TOKEN.finditer(text):
        token = match[0]
        if token in "]}":
            path.pop()
        elif token == "," and isinstance(index := path[-1], int):
            path[-1] = index + 1
        elif token not in ",:":
            if path and isinstance(path[-1], str) and previous in ("{", ","):
                path[-1] = json.loads(token)
            else:
                if (key := tuple(path)) in found:
                    found[key] = match.start()
                if token in "[{":
                    path.append(0 if token == "[" else "")
        previous = token
    return [write_place(text, found[path]) for path in paths]


def write_place(text: str, position: int) -> str:
    """Return the `line:column` of a position in `text`."""
    line, column = place_in(text[:position])
    return f"{line}:{column}"


def validate_json(text: str, *, comment_hint: str = "") -> bool:
    """Validate JSON, and return whether any of its objects has a duplicate key.

    Args:
        comment_hint: text that is added to the error if the text has a comment.

    Raises:
        BrokenTextError: the text is not JSON.
    """
    has_duplicates = False

    def examine(pairs: list[tuple[str, object]]) -> None:
        nonlocal has_duplicates
        if len({key for key, _ in pairs}) != len(pairs):
            has_duplicates = True

    def refuse(_constant: str) -> NoReturn:
        raise _NotANumberError

    # The decoder does not convert numbers, because int() refuses more than 4300 digits and float() rounds.
    decoder = json.JSONDecoder(object_pairs_hook=examine, parse_int=_nothing, parse_float=_nothing, parse_constant=refuse)
    try:
        decoder.decode(text)
    except json.JSONDecodeError as error:
        if _is_too_deep(text[: error.pos]):  # some versions of Python report deep nesting as a JSONDecodeError
            raise _too_deep(text) from None
        what, position = explain(error, text)
        if comment_hint and text.startswith(("//", "/*"), position):
            what = f"{what}; {comment_hint}"
        raise _broken(what, text, position) from None
    except _NotANumberError:
        constant = next(match for match in TOKEN.finditer(text) if match[0] in ("NaN", "Infinity", "-Infinity"))
        raise _broken(f"{constant[0]} is not JSON", text, constant.start()) from None
    except RecursionError:
        raise _too_deep(text) from None
    if _is_too_deep(text):
        raise _too_deep(text)
    return has_duplicates


def _is_too_deep(text: str) -> bool:
    brackets = _ALL_BUT_BRACKETS.sub("", text)  # only brackets remain, and the quotation mark of an unterminated string
    return max(accumulate(DEPTH.get(each, 0) for each in brackets), default=0) > DEEPEST_NESTING


def _nothing(_literal: str) -> None:
    """Replace a parsed number, because validation does not use the value."""


def _too_deep(text: str) -> BrokenTextError:
    depth = 0
    for match in TOKEN.finditer(text):
        depth += DEPTH.get(match[0], 0)
        if depth > DEEPEST_NESTING:
            return _broken(f"the data is nested deeper than {DEEPEST_NESTING} levels", text, match.start())
    return _broken(f"the data is nested too deeply for this computer; up to {DEEPEST_NESTING} levels always work", text, 0)


def _broken(what: str, text: str, position: int) -> BrokenTextError:
    return BrokenTextError(what, write_place(text, position))


def _read_integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


def explain(error: json.JSONDecodeError, text: str) -> tuple[str, int]:
    """Return a description of the mistake, and its position in `text`.

    The description is the parser's message, except for a trailing comma. There the parser of Python before 3.13 reports that a
    value or name is missing at the closing bracket.
    """
    if not text.strip():
        return "the file is empty", error.pos
    before = text[: error.pos].rstrip(_BLANKS)
    for at in (error.pos, len(before) - 1):
        if at >= 0 and (found := _COMMA_AND_END.match(text, at)) and found.end() > error.pos:
            return TRAILING_COMMA, at
    return error.msg, error.pos


def place_in(before: str) -> tuple[int, int]:
    """Return the (line, column), both from 1, of the character that follows the text `before`."""
    return before.count("\n") + 1, len(before) - before.rfind("\n")
