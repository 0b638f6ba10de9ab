"""What `checks:` in `aptui.yaml` means: each a name with what it looks at; `core.results.checks` applies them.

Tests: `tests/config/sections/test_checks.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from aptui.config.yaml import scalars
from aptui.config.yaml.nodes import Node
from aptui.core.patterns import wildcard_regex
from aptui.core.results.checks import Check, CheckLevel, Limit
from aptui.core.results.facts import NUMBER_FACTS
from aptui.shared import comparisons
from aptui.shared.errors import UserError

LIMITS = ("bytes", "pixels", *NUMBER_FACTS)
_KEYS = ("name", *LIMITS, "formats", "power_of_two", "budget", "lint", "command")
_OF_MANY = ("budget", "lint", "command")


def compile_checks(given: Mapping[str, Any]) -> tuple[Check, ...]:
    """Return what the mapping `checks:` means, in which `mistakes` found none."""
    return tuple(
        Check(
            name=name,
            level=limit.get("level", CheckLevel.WARN.value),
            files=tuple(text["regex"] if isinstance(text, dict) else wildcard_regex(text) for text in limit.get("files", ())),
            file_name=limit.get("name", ""),
            limits=tuple(_limit(field, limit[field]) for field in LIMITS if field in limit),
            formats=tuple(limit.get("formats", ())),
            power_of_two=limit.get("power_of_two", False),
            budget_bytes=scalars.byte_count(limit.get("budget", 0)),
            lint=tuple(limit.get("lint", ())),
            command=tuple(limit.get("command", ())),
        )
        for name, limit in given.items()
    )


def _limit(field: str, bounds: str | float) -> Limit:
    def size(text: str) -> float:
        return scalars.byte_count(text) if re.match(scalars.SIZE, text) else comparisons.plain_number(text)

    text = str(bounds)
    return Limit(field, text, *comparisons.between(text, size if field == "bytes" else comparisons.plain_number))


def mistakes(given: Node | None) -> Iterator[UserError]:
    """Yield what is wrong with `checks:` beyond its schema, each with its place."""
    for name, check in (given.value if given is not None else {}).items():
        if not any(key in check.value for key in _KEYS):
            yield UserError(f"the check '{name}' looks at nothing", where=check.where, hint=f"say one of {', '.join(_KEYS)}")
        yield from _bad_patterns(check)
        for field in LIMITS:
            limit = check.get(field)
            if limit is not None:
                yield from _bad_limit(field, limit)
        level = check.get("level")
        for key in _OF_MANY:
            if level is not None and level.value == CheckLevel.BLOCK and key in check.value:
                what = f"the check '{name}' cannot block: '{key}' looks at more than one job"
                yield UserError(what, where=level.where, hint="level: fail ends a batch with 1")


def _bad_patterns(check: Node) -> Iterator[UserError]:
    files = check.get("files")
    try:
        for pattern in files.value if files is not None else ():
            scalars.pattern_of(pattern)
        name = check.get("name")
        if name is not None:
            scalars.compile_regex(name)
    except UserError as error:
        yield error


def _bad_limit(field: str, limit: Node) -> Iterator[UserError]:
    try:
        _limit(field, limit.value)
    except ValueError:
        hint = "write <= 4MiB, > 1kB or 1kB..4MiB" if field == "bytes" else f"write {comparisons.FORMS}"
        yield UserError(f"'{limit.value}' is no range of {field}", where=limit.where, hint=hint)
