"""JSON as text: place and description of mistakes; the meaning of the data is not here.

Tests: `tests/builders/files/test_json_text.py`.
"""

from __future__ import annotations

import json
import re

TRAILING_COMMA = "a comma before the closing bracket, where JSON allows none"

_COMMA_AND_END = re.compile(r",[ \t\r\n]*[}\]]")
_BLANKS = " \t\r\n"


def explain(error: json.JSONDecodeError, text: str) -> tuple[str, int]:
    """Return what is wrong, and its position in `text`.

    Versions of Python describe a trailing comma differently: those before 3.13 expect a value or a name at the bracket.
    """
    if not text.strip():
        return "the file is empty", error.pos
    before = text[: error.pos].rstrip(_BLANKS)
    for at in (error.pos, len(before) - 1):
        if at >= 0 and (found := _COMMA_AND_END.match(text, at)) and found.end() > error.pos:
            return TRAILING_COMMA, at
    return error.msg, error.pos


def place_in(before: str) -> tuple[int, int]:
    """Return (line, column), both from 1, of the text after `before`."""
    return before.count("\n") + 1, len(before) - before.rfind("\n")
