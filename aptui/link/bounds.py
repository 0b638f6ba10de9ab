"""How large what a client says may be, field by field: checked where it comes in, so that nothing behind the border has to.

Tests: `tests/link/test_codec.py`.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from aptui.shared.globs import PATTERN_LIMIT

LAST_NUMBER = (1 << 63) - 1
"""Largest number: what SQLite holds."""


class Bounds(Struct, frozen=True):
    """The largest that is taken.

    Args:
        text: characters of a text; `items`: of a list.
        patterns: texts with `*` or `?` in one list; each has at most `core.globs.PATTERN_LIMIT` characters.
    """

    text: int
    items: int
    patterns: int = 64


def beyond(record: Any, bounds: Bounds) -> str:
    """Return what of a record is too large, with the name of its field; "" = nothing."""
    for name in record.__struct_fields__:
        what = _too_much(getattr(record, name), bounds)
        if what:
            return f"'{name}': {what}"
    return ""


def _too_much(value: object, bounds: Bounds) -> str:
    match value:
        case bool() | None:
            return ""
        case int():
            return "a number beyond 64 bits" if abs(value) > LAST_NUMBER else ""
        case str():
            return _too_long(value, bounds)
        case tuple() | list():
            return _too_many(value, bounds)
        case dict():
            return _too_many([*value, *value.values()], bounds)
    if not isinstance(value, Struct):
        return ""
    return next((what for name in value.__struct_fields__ if (what := _too_much(getattr(value, name), bounds))), "")


def _too_long(text: str, bounds: Bounds) -> str:
    if _is_pattern(text) and len(text) > PATTERN_LIMIT:
        return f"a pattern of more than {PATTERN_LIMIT} characters"
    return f"a text of more than {bounds.text} characters" if len(text) > bounds.text else ""


def _too_many(values: list[object] | tuple[object, ...], bounds: Bounds) -> str:
    if len(values) > bounds.items:
        return f"more than {bounds.items} items"
    if sum(isinstance(each, str) and _is_pattern(each) for each in values) > bounds.patterns:
        return f"more than {bounds.patterns} patterns"
    return next((what for each in values if (what := _too_much(each, bounds))), "")


def _is_pattern(text: str) -> bool:
    return "*" in text or "?" in text
