"""Small values of the configuration that passed the schema: durations, sizes, patterns, ignore rules.

The only module that imports pathspec.

Tests: `tests/config/test_schema.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pathspec.patterns.gitignore import GitIgnorePatternError
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from aptui.config.yaml.nodes import Node, describe_value
from aptui.core.patterns import wildcard_regex
from aptui.core.project import SHARE_OF_MEMORY, Pattern, PatternKind
from aptui.shared.errors import UserError
from aptui.shared.globs import PATTERN_LIMIT

DURATION = r"^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h)\s*$"
SIZE = r"^\s*(\d+(?:\.\d+)?)\s*(B|[kK]B?|MB?|GB?|TB?|KiB|MiB|GiB|TiB)\s*$"
_MOST_SECONDS, _MOST_BYTES = 1e9, 1 << 60
"""Maximum of durations and sizes: system calls cannot hold more, and real values are far below it."""
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
    """Return a duration that passed the schema in seconds; a bare number is seconds."""
    found = re.match(DURATION, value) if isinstance(value, str) else None
    return min(float(found[1]) * _SECONDS[found[2]] if found else float(value), _MOST_SECONDS)


def byte_count(value: str | int) -> int:
    """Return a size that passed the schema in bytes; that of `auto` is `SHARE_OF_MEMORY`."""
    if value == "auto":
        return SHARE_OF_MEMORY
    found = re.match(SIZE, value) if isinstance(value, str) else None
    return int(min(float(found[1]) * _BYTES[_SHORT.get(found[2], found[2])] if found else int(value), _MOST_BYTES))


def compile_regex(node: Node) -> re.Pattern[str]:
    """Compile a regular expression of the user's."""
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
        raise UserError(f"a pattern of more than {PATTERN_LIMIT} characters", where=node.where, hint="take several shorter ones")
    return Pattern(PatternKind.GLOB, text, wildcard_regex(text))


def ignore_regex(node: Node) -> str:
    """Translate an ignore rule: it matches a path and, if that is a folder, everything below. Globs match as in .gitignore."""
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
        hint = "exceptions (!) are not supported" if node.value.startswith("!") else "quote it as in .gitignore"
        raise UserError(f"{describe_value(node)} is not an ignore rule", where=node.where, hint=hint)
    return f"(?s:{re.sub(r'[(][?]P<[^>]*>', '(?:', str(text))}.*)"


def join_rules(rules: Iterable[str]) -> str:
    """Join ignore rules; rules for a name at any depth share a prefix, so that matching is three times as fast."""
    start = "(?s:^(?:.+/)?"
    unique = list(dict.fromkeys(rules))
    names = [rule.removeprefix(start)[:-1] for rule in unique if rule.startswith(start)]
    shared = [f"{start}(?:{'|'.join(names)}))"] if names else []
    return "|".join(shared + [rule for rule in unique if not rule.startswith(start)])
