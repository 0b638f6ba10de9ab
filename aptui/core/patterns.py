"""Patterns that match relative paths, for builders, wildcard dependencies and ignore rules; no YAML is read here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from msgspec.structs import replace

from aptui.core.project import Pattern, PatternKind

_FLAGS = re.IGNORECASE
_SPECIAL = re.compile(r"[*?]")
_GAPS = re.compile(r"((?:(?<=/)|^)\*\*+/|\*+)")
"""Matches wildcards for text of any length: `**/` at the beginning of the pattern or after a `/` (folders), and `*` (any text)."""
_OWN_FLAGS = re.compile(r"\(\?[a-zA-Z]+\)")


def wildcard_regex(pattern: str) -> str:
    """Translate a wildcard pattern for `re.fullmatch`: `*` is any text, also across `/`; `?` one character.

    `**/` is any number of folders; all other characters match themselves. All wildcards but the last keep their first match, as
    in `fnmatch`, so that a pattern with many wildcards does not take exponential time. No match is missed: the text between two
    wildcards has a fixed length, so a later match would only leave less text for the rest of the pattern.
    """
    first, *rest = _GAPS.split(pattern)
    gaps, pieces = rest[::2], list(map(_literal, rest[1::2]))
    if not gaps:
        return f"(?s:{_literal(first)})"
    middle = "".join(f"(?>{_gap(gap)}{piece})" for gap, piece in zip(gaps[:-1], pieces[:-1], strict=True))
    last = "(?:.*/)?" if _is_folders(gaps[-1]) else ".*"
    return f"(?s:{_literal(first)}{middle}{last}{pieces[-1]})"


def _literal(piece: str) -> str:
    return re.escape(piece).replace(r"\?", ".")


def _gap(gap: str) -> str:
    return "(?:.*?/)??" if _is_folders(gap) else ".*?"


def _is_folders(gap: str) -> bool:
    return gap.endswith("/")


def wildcard(pattern: str) -> re.Pattern[str]:
    """Return the compiled form of `wildcard_regex`, ignoring case; use `fullmatch`."""
    return re.compile(wildcard_regex(pattern), _FLAGS)


def is_like(pattern: str, text: str) -> bool:
    """Whether a wildcard pattern matches `text`, case-sensitively.

    This function is for many patterns that are each used once, because `wildcard` would compile every pattern.
    """
    if "?" in pattern or "**/" in pattern:
        return _compile(pattern).fullmatch(text) is not None
    first, *rest = pattern.split("*")
    if not rest:
        return pattern == text
    last = rest.pop()
    if len(first) + len(last) > len(text) or not (text.startswith(first) and text.endswith(last)):
        return False
    at, end = len(first), len(text) - len(last)
    for part in rest:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


@lru_cache(maxsize=512)
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(wildcard_regex(pattern))


def literal_prefix(pattern: str) -> str:
    """Return the folder, with its slash, that contains everything that a wildcard pattern can match; "" for any folder."""
    found = _SPECIAL.search(pattern)
    head = pattern[: found.start()] if found else pattern
    return head[: head.rfind("/") + 1]


_EVERYTHING = wildcard_regex("*")
WILDCARDS = frozenset("*?")
"""Characters that make the path of a source dependency a pattern."""


def ignore_matcher(ignore_regex: str) -> Callable[[str], bool]:
    """Return `is_ignored(rel)` for `Project.ignore_regex`; an empty regex ignores nothing."""
    if not ignore_regex:
        return lambda _rel: False
    match = re.compile(ignore_regex, _FLAGS).fullmatch
    return lambda rel: match(rel) is not None


def below_matcher(ignore_regex: str) -> Callable[[str], bool]:
    """Return a function that says whether a relative path, or a folder above it, is ignored."""
    ignores = ignore_matcher(ignore_regex)

    def is_ignored(rel: str) -> bool:
        parts = rel.split("/")
        return any(ignores("/".join(parts[: at + 1])) for at in range(len(parts)))

    return is_ignored


class PatternSet:
    """Finds the builders whose patterns match a path, for many builders at once.

    Nearly all patterns are `*.ext`, which take one look-up per dot of the file's name; `*` takes no look-up. All other patterns are
    joined to one regex per builder. A regex of all patterns is tried first, so that a path that matches no builder costs a single
    match.
    """

    def __init__(self, builders: Sequence[Sequence[Pattern]]) -> None:
        suffixes: dict[str, list[int]] = {}
        everything: list[int] = []
        relative: list[tuple[int, str]] = []
        absolute: list[tuple[int, str]] = []
        for index, patterns in enumerate(builders):
            for pattern in patterns:
                suffix = _suffix(pattern)
                if pattern.regex == _EVERYTHING:
                    everything.append(index)
                elif suffix:
                    suffixes.setdefault(suffix, []).append(index)
                else:
                    (absolute if pattern.is_absolute else relative).append((index, pattern.regex))
        self._suffixes = {suffix: tuple(dict.fromkeys(indices)) for suffix, indices in suffixes.items()}
        self._everything = tuple(dict.fromkeys(everything))
        self._relative = _Gated(relative)
        self._absolute = _Gated(absolute)

    def builders_for(self, rel: str, root: str = "") -> tuple[int, ...]:
        """Return the indices of the builders whose patterns match `rel` in the scan folder at `root`, in ascending order."""
        wanted = self._by_suffix(rel)
        others = self._relative.matching(rel) if self._relative.gates else []
        if self._absolute.gates:
            others = [*others, *self._absolute.matching(f"{root}/{rel}")]
        return tuple(sorted({*wanted, *others})) if others else wanted

    def _by_suffix(self, rel: str) -> tuple[int, ...]:
        found = self._everything
        if not self._suffixes:
            return found
        name = rel[rel.rfind("/") + 1 :].lower()
        dot = name.find(".")
        while dot >= 0:
            indices = self._suffixes.get(name[dot:])
            if indices:
                found = tuple(sorted({*found, *indices})) if found else indices
            dot = name.find(".", dot + 1)
        return found


class _Gated:
    """Regexes, each with the index of its builder. Combined regexes are tried first, and reject most paths at once."""

    def __init__(self, regexes: Sequence[tuple[int, str]]) -> None:
        of_each = {index: [regex for other, regex in regexes if other == index] for index in dict.fromkeys(at for at, _ in regexes)}
        self._regexes = [(index, regex) for index, texts in of_each.items() for regex in _join(texts)]
        self.gates = _join([regex.pattern for _, regex in self._regexes])

    def matching(self, path: str) -> list[int]:
        """Return the indices of the builders whose regexes match `path`."""
        if not any(gate.fullmatch(path) for gate in self.gates):
            return []
        return [index for index, regex in self._regexes if regex.fullmatch(path)]


def leave_out(patterns: Iterable[Pattern], excluded: Sequence[Pattern]) -> tuple[Pattern, ...]:
    """Return `patterns` changed so that they match no path that `excluded` matches; patterns in `excluded` have no groups."""
    if not excluded:
        return tuple(patterns)
    others = "|".join(f"(?:{pattern.regex})" for pattern in excluded)
    found = []
    for pattern in patterns:
        flags = _OWN_FLAGS.match(pattern.regex)
        head = flags[0] if flags else ""
        folders = "(?:.*/)?" if pattern.is_absolute else ""
        found.append(replace(pattern, regex=f"{head}(?!{folders}(?:{others})\\Z)(?:{pattern.regex[len(head) :]})"))
    return tuple(found)


def matches(pattern: Pattern, rel: str, root: str) -> bool:
    """Whether a pattern matches `rel` in the scan folder at `root`. This function is slow, and is meant for a single path."""
    return re.fullmatch(pattern.regex, f"{root}/{rel}" if pattern.is_absolute else rel, _FLAGS) is not None


def _suffix(pattern: Pattern) -> str:
    """Return ".ext" in lower case for a glob `*.ext`, else ""."""
    text = pattern.text
    is_plain = pattern.kind is PatternKind.GLOB and text.startswith("*.") and not _SPECIAL.search(text, 1) and "/" not in text
    return text[1:].lower() if is_plain and text.isascii() and not pattern.regex.startswith("(?!") else ""


def _join(regexes: Iterable[str]) -> list[re.Pattern[str]]:
    """Join regexes that can be joined.

    Regexes with groups or global flags stay separate, because joining them would renumber the groups and move the flags.
    """
    plain: list[str] = []
    alone: list[re.Pattern[str]] = []
    for regex in regexes:
        compiled = re.compile(regex, _FLAGS)
        if compiled.groups or _OWN_FLAGS.match(regex):
            alone.append(compiled)
        else:
            plain.append(f"(?:{regex})")
    return ([re.compile("|".join(plain), _FLAGS)] if plain else []) + alone
