"""Columns of text: many strings in little memory, searched in linear time by `regex`.

Text is kept as one buffer of UTF-8 for each chunk, in the form that a search reads.

Tests: `tests/store/jobs/test_filter.py`.
"""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from aptui.store.jobs.parts import CHUNK
from aptui.store.jobs.regex import Mask, TextBuffer, compile_pattern

if TYPE_CHECKING:
    import numpy.typing as npt

_SEPARATOR = "\0"
_LEAST_INDEXED = 4096
"""Maximum number of texts in the dictionary of new texts; if more are added, all are sorted into the index.

For a large index, the maximum is a quarter of its size.
"""
_MOST_SORTED_BYTES = 256 << 20
"""Maximum memory (bytes) for sorting texts with numpy, which pads each text to the length of the longest text.

If more is needed, Python sorts the texts, and other threads wait for the interpreter lock.
"""

Codes: TypeAlias = "npt.NDArray[np.int32]"


class Texts:
    """An append-only column of texts; the code of a text is its index.

    One thread appends; any thread may read the existing texts.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._full: list[TextBuffer] = []
        self._tail: list[str] = []
        self._lock = threading.Lock()
        self._ranks: tuple[int, Codes] = (-1, np.empty(0, np.int32))
        self.extend(texts)

    def __len__(self) -> int:
        """Return how many texts there are."""
        return len(self._full) * CHUNK + len(self._tail)

    def __getitem__(self, code: int) -> str:
        """Return one text."""
        chunk, place = divmod(code, CHUNK)
        # The tail is read before the full chunks. If another thread moves the tail into the full chunks, the text is found there.
        tail = self._tail
        if chunk >= len(self._full):
            return tail[place]
        return self._full[chunk][place]

    def __iter__(self) -> Iterator[str]:
        """Iterate over all texts."""
        for number in range(-(-len(self) // CHUNK)):
            yield from self._read_chunk(number).texts()

    def append(self, text: str) -> int:
        """Add one text; return its code."""
        self.extend((text,))
        return len(self) - 1

    def extend(self, texts: Iterable[str]) -> None:
        """Add texts; a NUL, which no file name can contain, is replaced by the character U+2400."""
        clean = [text.replace(_SEPARATOR, "␀") if _SEPARATOR in text else text for text in texts]
        with self._lock:
            self._tail += clean
            while len(self._tail) >= CHUNK:
                self._full.append(TextBuffer.of(self._tail[:CHUNK]))
                self._tail = self._tail[CHUNK:]

    def extend_joined(self, data: bytes, count: int) -> None:
        """Add `count` texts in UTF-8, joined with NUL between them, as the database returns them."""
        if not self._tail and count == CHUNK and data.count(b"\0") == count - 1:
            with self._lock:
                self._full.append(TextBuffer.of_encoded(data + b"\0"))
        elif count:
            texts = data.decode("utf-8", "replace").split(_SEPARATOR)
            self.extend(texts[:count] + [""] * (count - len(texts)))

    def extend_distinct(self, texts: Sequence[str]) -> Codes:
        """Add each distinct text of `texts` once, even if the column has it already; return the code of each text."""
        start = len(self)
        places, distinct = number_distinct(texts)
        self.extend(distinct)
        return places + np.int32(start)

    def matches(self, pattern: str, count: int, check: Callable[[], None] = lambda: None) -> Mask:
        """Return which of the first `count` texts contain a match of `pattern`; `check` is called between chunks.

        Raises:
            PatternError: the pattern is not a regular expression.
        """
        wanted = compile_pattern(pattern)
        mask = np.empty(count, np.bool_)
        for number, start in enumerate(range(0, count, CHUNK)):
            check()
            end = min(count, start + CHUNK)
            mask[start:end] = self._read_chunk(number).with_pattern(wanted)[: end - start]
        return mask

    def matches_some(self, pattern: str, codes: npt.NDArray[np.integer]) -> Mask:
        """Return for each code whether its text contains a match of `pattern`. `codes` must be in ascending order."""
        wanted = compile_pattern(pattern)
        mask = np.empty(len(codes), np.bool_)
        edges = np.searchsorted(codes, np.arange(0, len(self) + CHUNK, CHUNK))
        for number, (start, end) in enumerate(pairwise(edges)):
            if start < end:
                mask[start:end] = self._read_chunk(number).some_with_pattern(wanted, codes[start:end] - number * CHUNK)
        return mask

    def ranks(self, count: int) -> Codes:
        """Return the ranks of the first `count` texts, sorted without regard to case.

        Equal texts have equal ranks.
        """
        known, ranks = self._ranks
        if known < count:
            ranks = rank([text.lower() for text in islice(self, count)])
            self._ranks = count, ranks
        return ranks[:count]

    def _read_chunk(self, number: int) -> TextBuffer:
        with self._lock:
            return self._full[number] if number < len(self._full) else TextBuffer.of(self._tail)


def number_distinct(texts: Sequence[str]) -> tuple[Codes, list[str]]:
    """Return for each text its index in the list of distinct texts, and this list."""
    codes: defaultdict[str, int] = defaultdict()
    codes.default_factory = codes.__len__
    places = np.fromiter(map(codes.__getitem__, texts), np.int32, len(texts))
    return places, list(codes)


def rank(texts: Sequence[str]) -> Codes:
    """Return the rank of each text in their order; equal texts have equal ranks."""
    encoded = [text.encode("utf-8", "replace") for text in texts]
    if not encoded:
        return np.empty(0, np.int32)
    if len(encoded) * max(map(len, encoded)) > _MOST_SORTED_BYTES:
        places = {text: place for place, text in enumerate(sorted(set(encoded)))}
        return np.fromiter(map(places.__getitem__, encoded), np.int32, len(encoded))
    column = np.array(encoded, np.bytes_)
    # The bytes of UTF-8 have the order of the characters. numpy is used because other threads can run while it sorts.
    order = np.argsort(column, kind="stable")
    ordered = column[order]
    steps = np.concatenate([[False], ordered[1:] != ordered[:-1]]).astype(np.int32)
    ranks = np.empty(len(encoded), np.int32)
    ranks[order] = np.cumsum(steps)
    return ranks


class TextPool(dict[str, int]):
    """Codes of the texts of a column: `pool[text]` is the code of a text, which is added if it is new; "" is code 0.

    Args:
        texts: the column, whose first text is "".
        most: maximum number of texts that are remembered, so that frequent texts are stored once; by default all.
    """

    def __init__(self, texts: Texts, most: int = sys.maxsize) -> None:
        super().__init__({"": 0})
        self.texts, self._most = texts, most

    def __missing__(self, text: str) -> int:
        if len(self) >= self._most:
            self.clear()
            self[""] = 0
        code = self[text] = self.texts.append(text)
        return code

    def codes(self, texts: Sequence[str]) -> Codes:
        """Return the code of each text; a text that this pool does not remember is appended to the column."""
        return np.fromiter(map(self.__getitem__, texts), np.int32, len(texts))


class TextIndex:
    """Finds the code of a text in a column, by a sorted array of hashes and an array of their codes.

    The arrays need 12 bytes for each text; the newest texts are in a dictionary until they are sorted into the arrays.
    """

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._hashes, self._codes = np.empty(0, np.int64), np.empty(0, np.int32)
        self._late: dict[str, int] = {}

    def code(self, text: str) -> int:
        """Return the index of a text in the column; append the text if it is new."""
        are_others_added = len(self._codes) + len(self._late) != len(self._texts)
        if are_others_added or len(self._late) > max(_LEAST_INDEXED, len(self._codes) // 4):
            self._index()
        code = self._late.get(text, -1)
        if code < 0:
            code = self._find(text)
        if code < 0:
            code = self._late[text] = self._texts.append(text)
        return code

    def _index(self) -> None:
        hashes = np.fromiter(map(hash, self._texts), np.int64, len(self._texts))
        self._codes = np.argsort(hashes, kind="stable").astype(np.int32)
        self._hashes = hashes[self._codes]
        self._late.clear()

    def _find(self, text: str) -> int:
        wanted = hash(text)
        at = int(np.searchsorted(self._hashes, wanted))
        while at < len(self._hashes) and self._hashes[at] == wanted:
            if self._texts[int(self._codes[at])] == text:
                return int(self._codes[at])
            at += 1
        return -1
