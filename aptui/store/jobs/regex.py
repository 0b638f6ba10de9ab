r"""Regular expressions over many short texts, in linear time.

A pattern has RE2's syntax. The texts of a chunk are in one buffer, so that a search calls RE2 only once for adjacent texts that
match, and not once for each text. Each text in the buffer is followed by a line break, a byte that UTF-8 does not use, and a line
break. So `^` and `$` match at the ends of a text, and no character class matches the byte between two texts. A match is always
within one line: in a text with line breaks, `^` and `$` match at the ends of each line.

Patterns of plain words, which users type most, are searched with numpy instead of RE2. RE2 would take longer if, for example, every
second text matches, because it needs one call for each match.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from aptui.shared.errors import HostError

if TYPE_CHECKING:
    import numpy.typing as npt

Mask: TypeAlias = "npt.NDArray[np.bool_]"

_END = b"\n\xff\n"
"""Separator of two texts in the buffer."""
_MOST_WORDS = 8
"""Maximum number of alternatives that numpy compares one after the other; RE2 searches patterns with more alternatives."""
_ROW_SHARE = 8
"""Texts are searched one by one when they are fewer than 1/8 of a chunk."""
_SPECIAL = re.compile(r"\\Q(?P<quoted>.*?)(?:\\E|\Z)|\\(?P<escaped>.)|\(\?(?P<around><?[=!])|\(\?[a-zA-Z]*-[a-zA-Z]*m", re.DOTALL)
"""Parts of a pattern that must be replaced or refused before RE2 compiles it.

Some would have another meaning in a buffer of many texts than in one text; for others RE2 reports an unclear error.
"""
_EXPLAINED = {
    "missing )": "unclosed group",
    "unexpected )": "unopened group",
    "missing ]": "unclosed character class",
    "invalid escape sequence": "unrecognized escape sequence",
    "trailing \\": "incomplete escape sequence",
    "no argument for repetition operator": "repetition operator missing expression",
    "bad repetition operator": "repetition of a repetition",
    "invalid repetition size": "invalid repetition: the pattern repeats more than 1000 times (too large), or its range is reversed",
    "invalid perl operator": "unrecognized group or flag",
    "pattern too large - compile failed": "the pattern is too large",
}
"""{RE2's message: our message}; RE2's other messages are shown unchanged."""
_WORD = re.compile(r"(\^?)(\.?)((?:[A-Za-z0-9_/ ,:;@#%&=~'\"<>!-]|\\[-./+*?()|^$\\#&~])+)(\.?)(\$?)")
_FOLDED = {b"k": "\N{KELVIN SIGN}".encode(), b"s": "\N{LATIN SMALL LETTER LONG S}".encode()}
"""Characters beyond ASCII that match an ASCII letter without regard to case."""


class PatternError(ValueError):
    """The pattern is not a regular expression; `at` is the index of the mistake in the pattern."""

    def __init__(self, what: str, at: int = 0) -> None:
        super().__init__(what)
        self.at = at


class TextBuffer:
    """Texts in one buffer, each followed by `_END`, so that one call of RE2 can search many of them."""

    __slots__ = ("_ends", "_has_breaks", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 0xFF).astype(np.uint32)
        self._has_breaks = data.count(b"\n") != 2 * len(self._ends) + 1

    @classmethod
    def of(cls, texts: Sequence[str]) -> TextBuffer:
        """Join texts; a half of a surrogate pair becomes a question mark."""
        return cls(b"\n" + b"".join(text.encode("utf-8", "replace") + _END for text in texts))

    @classmethod
    def of_encoded(cls, data: bytes) -> TextBuffer:
        """Join texts that are UTF-8 and end with NUL."""
        return cls(b"\n" + data.replace(b"\0", _END))

    def __len__(self) -> int:
        """Return how many texts there are."""
        return len(self._ends)

    def bounds(self, index: int) -> tuple[int, int]:
        """Return where a text begins and ends in the buffer."""
        return (int(self._ends[index - 1]) + 2 if index else 1), int(self._ends[index]) - 1

    def __getitem__(self, index: int) -> str:
        """Return one text."""
        start, end = self.bounds(index)
        return self.data[start:end].decode("utf-8", "replace")

    def texts(self) -> list[str]:
        """Return all texts."""
        return [text.decode("utf-8", "replace") for text in self.data[1:].split(_END)[:-1]]

    def with_pattern(self, pattern: TextPattern) -> Mask:
        """Return which texts contain a match of a pattern."""
        if self._has_breaks:
            return self.some_with_pattern(pattern, range(len(self)))
        if pattern.words and not any(code in self.data for code in pattern.other_spellings):
            return self._with_words(pattern)
        places = pattern.runs(self.data)
        change = np.zeros(len(self) + 1, np.int32)
        if places:
            rows = np.searchsorted(self._ends, places)
            np.add.at(change, rows[::2], 1)
            np.add.at(change, rows[1::2], -1)
        found: Mask = np.cumsum(change[:-1]) > 0
        return found

    def some_with_pattern(self, pattern: TextPattern, indexes: Sequence[int] | npt.NDArray[np.integer]) -> Mask:
        """Return which of the texts at `indexes` contain a match of a pattern."""
        if len(indexes) * _ROW_SHARE > len(self) and not self._has_breaks:
            return self.with_pattern(pattern)[np.asarray(indexes, np.int64)]
        found = (pattern.span(self.data, *self.bounds(int(index))) is not None for index in indexes)
        return np.fromiter(found, np.bool_, len(indexes))

    def _with_words(self, pattern: TextPattern) -> Mask:
        text = self.data.lower()
        codes = np.frombuffer(text, np.uint8)
        mask = np.zeros(len(self), np.bool_)
        for word, has_before, has_after in pattern.words:
            first = text.find(word)
            if first < 0:
                continue
            last = len(codes) - len(word) + 1
            hits = codes[first:last] == word[0]
            for place, code in enumerate(word[1:], 1):
                hits &= codes[first + place : last + place] == code
            places = np.flatnonzero(hits) + first
            if has_before:
                places = places[codes[places - 1] != 0x0A]
            if has_after:
                places = places[codes[places + len(word)] != 0x0A]
            inside = places.astype(np.uint32) + np.uint32(word.startswith(b"\n"))
            if len(inside) * 4 < len(self):
                mask[np.searchsorted(self._ends, inside)] = True
            else:
                mask |= np.diff(np.searchsorted(inside, self._ends), prepend=0) > 0
        return mask


class TextPattern:
    """A compiled pattern.

    If the pattern has only plain words, `words` has a tuple for each word: (the word in lower case, with a line break for an
    anchor; whether a character must precede the word; whether a character must follow it). `other_spellings` are other characters
    that match letters of these words.
    """

    def __init__(self, pattern: str) -> None:
        self._re2 = _engine()
        adapted = _adapt(pattern)
        self._single = self._compile(adapted, pattern)
        self._run = self._compile(rf"(?:.*(?:{adapted}).*\C\C\C)+", pattern)
        self.words = _words_of(pattern)
        letters = b"".join(word for word, _, _ in self.words)
        self.other_spellings = [spelling for letter, spelling in _FOLDED.items() if letter in letters]

    def runs(self, data: bytes) -> list[int]:
        """Find the runs of adjacent matching texts in `data`; return two offsets for each run, in one list.

        The first offset is inside the first text of the run, the second is after its last text.
        """
        match, anchor, size = self._run.Match, self._re2.RE2.Anchor.UNANCHORED, len(data)
        at = 1
        places: list[int] = []
        while at < size:
            ((start, end),) = match(anchor, data, at, size)
            if start < 0:
                break
            places += (start, end)
            at = end
        return places

    def span(self, data: bytes, start: int, end: int) -> tuple[int, int] | None:
        """Return the position of the first match in a part of `data`."""
        (found,) = self._single.Match(self._re2.RE2.Anchor.UNANCHORED, data, start, end)
        return None if found[0] < 0 else (int(found[0]), int(found[1]))

    def _compile(self, adapted: str, pattern: str) -> Any:
        options = self._re2.RE2.Options()
        options.never_capture, options.never_nl, options.log_errors = True, True, False
        made = self._re2.RE2(f"(?m){adapted}".encode("utf-8", "replace"), options)
        if not made.ok():
            raise _error_of(made.error().decode("utf-8", "replace") if isinstance(made.error(), bytes) else made.error(), pattern)
        return made


@lru_cache(maxsize=64)
def compile_pattern(pattern: str) -> TextPattern:
    """Return a compiled pattern.

    Raises:
        PatternError: the pattern is not a regular expression.
        HostError: RE2 cannot be imported.
    """
    return TextPattern(pattern)


def contains(texts: Sequence[str], pattern: str) -> Mask:
    """Return which texts contain a match of `pattern`."""
    return TextBuffer.of(texts).with_pattern(compile_pattern(pattern))


def _engine() -> Any:
    try:
        # RE2's Python layer is not used, because it makes an object of each match, which takes longer than the search.
        from re2 import _re2
    except ImportError as error:
        raise HostError(f"filters need the library 'google-re2': {error}", hint="run: pip install google-re2") from error
    return _re2


def _words_of(pattern: str) -> list[tuple[bytes, bool, bool]]:
    """Return the words of a pattern that ignores case and has only plain words, [] for any other pattern."""
    alternatives = re.split(r"(?<!\\)\|", pattern.removeprefix("(?i)")) if pattern.startswith("(?i)") else []
    found = [_WORD.fullmatch(word) for word in alternatives]
    if not found or len(found) > _MOST_WORDS:
        return []
    words = []
    for match in found:
        if match is None:
            return []
        start, before, word, after, end = match.groups()
        if (start and before) or (end and after):
            return []
        text = ("\n" if start else "") + re.sub(r"\\(.)", r"\1", word).lower() + ("\n" if end else "")
        words.append((text.encode(), bool(before), bool(after)))
    return words


def _adapt(pattern: str) -> str:
    """Convert a pattern for the search in a buffer of texts, in which a text begins and ends like a line.

    Raises:
        PatternError: the pattern has look-around or a back-reference, or uses syntax that would match beyond the end of a text.
    """

    def replace(match: re.Match[str]) -> str:
        if match["quoted"] is not None:
            return re.escape(match["quoted"])
        if match["around"]:
            raise PatternError("look-around, including look-ahead and look-behind, is not supported", match.start())
        if match["escaped"] is None:
            raise PatternError("the flag 'm' cannot be unset", match.start())
        if match["escaped"].isdigit():
            raise PatternError("backreferences are not supported", match.start())
        if match["escaped"] == "C":
            raise PatternError("unrecognized escape sequence", match.start())
        return {"A": "^", "z": "$"}.get(match["escaped"], match[0])

    return _SPECIAL.sub(replace, pattern)


def _error_of(message: str, pattern: str) -> PatternError:
    """Explain RE2's message, and find the position of the quoted part in the pattern.

    For example, "missing ]: [b" quotes "[b", and its position is the last "[b" of the pattern.
    """
    what, _, part = message.partition(": ")
    part = "(" if what == "missing )" else part
    return PatternError(_EXPLAINED.get(what, what), max(0, pattern.rfind(part)) if part else 0)
