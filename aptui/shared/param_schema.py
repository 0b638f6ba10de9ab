"""Checks builders' parameters against a `params_schema`, which may use a small part of JSON Schema; each error is one line.

The library `jsonschema` takes 100 ms to import, and its messages do not name the nearest known key. Unsupported keywords are
ignored, because the schema of another package may use more of JSON Schema.

Tests: `tests/engine/test_registry_params.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]

_LONGEST_SHOWN = 60
"""Maximum number of characters of a value in a message."""


class ParamError(ValueError):
    """A parameter is unknown, or its value is not allowed.

    The text is one line: `what`, then the suggestion `hint`. `name` is the parameter. `hint` and `name` may be "".
    """

    def __init__(self, what: str, hint: str = "", name: str = "") -> None:
        super().__init__(f"{what}, {hint}" if hint else what)
        self.name, self.what, self.hint = name, what, hint


def mistakes(schema: Schema, params: Mapping[str, Any]) -> Iterator[ParamError]:
    """Yield the mistakes in `params`; unknown names are mistakes only if `schema` forbids them."""
    known: Mapping[str, Schema] = schema.get("properties", {})
    is_closed = schema.get("additionalProperties") is False
    for name, value in params.items():
        if name not in known:
            if is_closed:
                yield ParamError(f"unknown parameter {_shorten_value(name)}", _nearest(str(name), [*known]), name)
        elif not _fits(known[name], value):
            what = f"parameter '{name}' must be {_describe_expected(known[name])}, not {_shorten_value(value)}"
            yield ParamError(what, _guess(known[name], value), name)


def _fits(rule: object, value: object) -> bool:
    if not isinstance(rule, Mapping):
        return rule is not False
    if "anyOf" in rule:
        return any(_fits(each, value) for each in rule["anyOf"])
    if "enum" in rule:
        return any(value == each and type(value) is type(each) for each in rule["enum"])
    match rule.get("type"):
        case "array":
            return (
                isinstance(value, list)
                and rule.get("minItems", 0) <= len(value) <= rule.get("maxItems", len(value))
                and all(_fits(rule.get("items"), each) for each in value)
            )
        case "object":
            return isinstance(value, Mapping) and all(_fits(rule.get("additionalProperties"), each) for each in value.values())
    return _is_scalar(rule, value)


def _is_scalar(rule: Schema, value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match rule.get("type"):
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "string":
            return (
                isinstance(value, str)
                and rule.get("minLength", 0) <= len(value) <= rule.get("maxLength", len(value))
                and re.search(rule.get("pattern", ""), value) is not None
            )
        case "integer" | "number" as kind:
            if not is_number or (kind == "integer" and not isinstance(value, int)):
                return False
            is_between = rule.get("minimum", value) <= value <= rule.get("maximum", value)  # False for NaN
            is_too_low = "exclusiveMinimum" in rule and rule["exclusiveMinimum"] >= value
            is_too_high = "exclusiveMaximum" in rule and rule["exclusiveMaximum"] <= value
            return bool(is_between) and not is_too_low and not is_too_high
    return True


def _describe_expected(rule: Schema) -> str:
    if "anyOf" in rule:
        return " or ".join(_describe_expected(each) for each in rule["anyOf"])
    if "enum" in rule:
        return ("one of " if len(rule["enum"]) > 1 else "") + ", ".join(map(str, rule["enum"]))
    match rule.get("type"):
        case "boolean":
            return "true or false"
        case "null":
            return "null"
        case "string":
            return str(rule.get("title", "text")) + (", not empty" if rule.get("minLength") else "")
        case "array":
            most = f" of at most {rule['maxItems']}" if "maxItems" in rule else ""
            return f"a list{most}" + (f", each {_describe_expected(rule['items'])}" if "items" in rule else "")
        case "object":
            each = rule.get("additionalProperties")
            return f"a mapping, each value {_describe_expected(each)}" if isinstance(each, Mapping) else "a mapping"
        case kind:
            return f"{'an integer' if kind == 'integer' else 'a number'}{_bounds(rule)}"


def _bounds(rule: Schema) -> str:
    if "exclusiveMinimum" not in rule and "exclusiveMaximum" not in rule:
        return "".join(f" {word} {rule[bound]}" for bound, word in (("minimum", "from"), ("maximum", "to")) if bound in rule)
    words = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
    return " " + " and ".join(f"{word} {rule[bound]}" for bound, word in words.items() if bound in rule)


def _guess(rule: Schema, value: object) -> str:
    """Return `did you mean 'webp'?` if a known value is similar, else ""."""
    words = [str(word) for each in rule.get("anyOf", [rule]) for word in each.get("enum", [])]
    import difflib  # imported here, because only a wrong parameter needs it

    near = difflib.get_close_matches(str(value).lower(), words, n=1)
    return f"did you mean '{near[0]}'?" if near else ""


def _nearest(name: str, known: list[str]) -> str:
    import difflib  # imported here, because only a wrong parameter needs it

    near = difflib.get_close_matches(name.lower().replace("-", "_"), known, n=1, cutoff=0.5)
    return f"did you mean '{near[0]}'?" if near else f"the parameters are: {', '.join(known)}"


def _shorten_value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}…"
