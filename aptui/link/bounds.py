"""How large what a client says may be, field by field: checked where it comes in, so that nothing behind the border has to.

Tests: `tests/link/test_codec.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

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


class Excess(NamedTuple):
    """What is too large, and what to do about it."""

    what: str
    hint: str


def beyond(record: Any, bounds: Bounds) -> Excess | None:
    """Return what of a record is too large, with the name of its field."""
    for name in record.__struct_fields__:
        excess = _too_much(getattr(record, name), bounds)
        if excess:
            return Excess(f"'{name}': {excess.what}", excess.hint)
    return None


def _too_much(value: object, bounds: Bounds) -> Excess | None:
    match value:
        case bool() | None:
            return None
        case int():
            is_known = abs(value) <= LAST_NUMBER
            return None if is_known else Excess("a number beyond 64 bits", f"numbers go from -{LAST_NUMBER} to {LAST_NUMBER}")
        case str():
            return _too_long(value, bounds)
        case tuple() | list():
            return _too_many(value, bounds)
        case dict():
            return _too_many([*value, *value.values()], bounds)
    if not isinstance(value, Struct):
        return None
    return next((excess for name in value.__struct_fields__ if (excess := _too_much(getattr(value, name), bounds))), None)


def _too_long(text: str, bounds: Bounds) -> Excess | None:
    if _is_pattern(text) and len(text) > PATTERN_LIMIT:
        return Excess(f"a pattern of more than {PATTERN_LIMIT} characters", "say a shorter one")
    return Excess(f"a text of more than {bounds.text} characters", "say a shorter one") if len(text) > bounds.text else None


def _too_many(values: list[object] | tuple[object, ...], bounds: Bounds) -> Excess | None:
    if len(values) > bounds.items:
        return Excess(f"more than {bounds.items} items", "say them in several requests")
    if sum(isinstance(each, str) and _is_pattern(each) for each in values) > bounds.patterns:
        return Excess(f"more than {bounds.patterns} patterns", "say them in several requests")
    return next((excess for each in values if (excess := _too_much(each, bounds))), None)


def _is_pattern(text: str) -> bool:
    return "*" in text or "?" in text
