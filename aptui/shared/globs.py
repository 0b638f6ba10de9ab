"""Wildcard patterns from untrusted input: their length is limited, and the time to match is linear in pattern and text.

A pattern is split at its stars. The pieces between stars have a fixed length, so the matcher searches them one after the other, and
never goes back to an earlier piece. To find the text of each star, it searches from the end: the last piece ends the text, and each
earlier piece is placed as far right as possible.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

PATTERN_LIMIT = 1_024
"""Maximum length of an untrusted pattern, in characters."""
_FLAGS = re.IGNORECASE | re.DOTALL


class _Piece:
    """The text between two stars of a pattern, with a fixed length; `?` is any character except a slash."""

    def __init__(self, text: str) -> None:
        self.length = len(text)
        self._regex = re.compile(re.escape(text).replace(r"\?", "[^/]"), _FLAGS)

    def is_at(self, text: str, at: int) -> bool:
        """Whether this piece of the pattern matches `text` at the index `at`."""
        return at >= 0 and self._regex.match(text, at) is not None

    def first(self, text: str, start: int) -> int:
        """Return the first index from `start` on at which this piece of the pattern matches `text`, -1 = no match."""
        found = self._regex.search(text, start)
        return found.start() if found else -1

    def last(self, text: str, start: int, end: int) -> int:
        """Return the index of the last match of this piece in `text[start:end]`, relative to `text`; -1 = no match."""
        return next((at for at in range(end - self.length, start - 1, -1) if self.is_at(text, at)), -1)


class Glob:
    """A pattern for a whole text; case is ignored. `*` is any text, including slashes; `?` is one character except a slash."""

    def __init__(self, pattern: str) -> None:
        self._first, *self._rest = map(_Piece, pattern.split("*"))

    def matches(self, text: str) -> bool:
        """Whether the whole text matches.

        Each piece between two stars is placed as far left as possible. The piece after the last star must end `text`.
        """
        at, end = self._first.length, len(text)
        if not self._first.is_at(text, 0):
            return False
        if not self._rest:
            return at == end
        for piece in self._rest[:-1]:
            found = piece.first(text, at)
            if found < 0:
                return False
            at = found + piece.length
        place = end - self._rest[-1].length
        return place >= at and self._rest[-1].is_at(text, place)

    def take_stars(self, text: str) -> tuple[str, ...] | None:
        """Return the text that each star matches. If there are several ways to match, earlier stars match as much as possible.

        The result is None if the text does not match.
        """
        at, ends = self._first.length, len(text)
        if not self._first.is_at(text, 0):
            return None
        if not self._rest:
            return () if at == ends else None
        places: list[tuple[int, int]] = []
        end = ends
        for piece in reversed(self._rest):
            place = piece.last(text, at, end) if places else end - piece.length
            if place < at or not piece.is_at(text, place):
                return None
            places.append((place, piece.length))
            end = place
        parts = []
        for place, length in reversed(places):
            parts.append(text[at:place])
            at = place + length
        return tuple(parts)


class LevelGlob:
    """A pattern for a whole path; case is ignored. The last `*` also matches slashes; other stars match within one folder name."""

    def __init__(self, pattern: str) -> None:
        head, star, last = pattern.rpartition("*")
        self._levels = [Glob(level) for level in (f"{head}*" if star else last).split("/")]
        self._last = _Piece(last) if star else None

    def take_stars(self, path: str) -> tuple[str, ...] | None:
        """Return the text that each star matches, None if the path does not match."""
        if self._last is None:
            return self._of_levels(path.split("/"))
        place = len(path) - self._last.length
        if not self._last.is_at(path, place):
            return None
        parts = path[:place].split("/")
        above = len(self._levels) - 1
        if len(parts) <= above:
            return None
        taken = self._of_levels(parts[: above + 1])
        return (*taken[:-1], "/".join((taken[-1], *parts[above + 1 :]))) if taken else None

    def _of_levels(self, parts: Sequence[str]) -> tuple[str, ...] | None:
        if len(parts) != len(self._levels):
            return None
        taken = [level.take_stars(part) for level, part in zip(self._levels, parts, strict=True)]
        return tuple(part for each in taken if each is not None for part in each) if None not in taken else None
