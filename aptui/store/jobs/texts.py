"""Columns of text: many strings in little memory, searched in linear time (polars' Rust regex).

What a pattern means is `filter`'s. Text is kept as one blob of UTF-8 a chunk until it is searched; then the chunk
becomes a polars series and the blob goes, so that nothing is held twice and polars (0.1 s and 50 MB) is imported by the
first search alone.

Tests: `tests/store/jobs/test_filter.py`.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from aptui.shared.errors import HostError
from aptui.store.jobs.parts import CHUNK

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl

_FEW = 20_000
"""So many texts are sorted by Python before polars pays for its import."""
_SEPARATOR = "\0"
_RECENT = 4096
"""So many of the last texts that came one by one are known, so that what is often said is held once."""

Codes: TypeAlias = "npt.NDArray[np.int32]"
Mask: TypeAlias = "npt.NDArray[np.bool_]"


def engine() -> type[pl.Series]:
    """Return polars' series, imported now.

    Raises:
        HostError: polars cannot be imported.
    """
    try:
        from polars import Series
    except ImportError as error:
        raise HostError(
            f"filters need the library 'polars', which cannot be imported: {error}", hint="install it: pip install 'polars>=1.30'"
        ) from error
    return Series


def series_of(texts: Sequence[str] | pl.Series) -> pl.Series:
    """Return texts as they are searched; none is a column of text, too."""
    return engine()(texts, dtype=_string())


class _TextBlob:
    """A full chunk as it was loaded."""

    __slots__ = ("_ends", "_text")

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._ends = np.flatnonzero(np.frombuffer(self._text, np.uint8) == 0).astype(np.uint32)

    def __getitem__(self, index: int) -> str:
        start = int(self._ends[index - 1]) + 1 if index else 0
        return self._text[start : int(self._ends[index])].decode("utf-8", "replace")

    def texts(self) -> list[str]:
        return self._text.decode("utf-8", "replace").split(_SEPARATOR)[:-1]


class Texts:
    """An append-only column of texts, each named by its code, its place.

    One thread appends, any thread reads what was there.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._full: list[_TextBlob | pl.Series] = []
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
        tail = self._tail  # first: what leaves it is among the full ones by then
        if chunk >= len(self._full):
            return tail[place]
        return str(self._full[chunk][place])

    def append(self, text: str) -> int:
        """Add one text; return its code."""
        self.extend((text,))
        return len(self) - 1

    def extend(self, texts: Iterable[str]) -> None:
        """Add texts; a NUL, which no file name can hold, becomes its picture."""
        clean = [text.replace(_SEPARATOR, "␀") if _SEPARATOR in text else text for text in texts]
        with self._lock:
            self._tail += clean
            while len(self._tail) >= CHUNK:
                joined = "".join(f"{text}{_SEPARATOR}" for text in self._tail[:CHUNK])
                self._full.append(_TextBlob(joined.encode("utf-8", "replace")))
                self._tail = self._tail[CHUNK:]

    def extend_joined(self, data: bytes, count: int) -> None:
        """Add `count` texts in UTF-8 that stand with NUL between them, as the database joins them."""
        if not self._tail and count == CHUNK and data.count(b"\0") == count - 1:
            with self._lock:
                self._full.append(_TextBlob(data + b"\0"))
        elif count:
            texts = data.decode("utf-8", "replace").split(_SEPARATOR)
            self.extend(texts[:count] + [""] * (count - len(texts)))

    def extend_distinct(self, texts: Sequence[str]) -> Codes:
        """Add the distinct ones among `texts`; return the code of each."""
        start = len(self)
        codes: defaultdict[str, int] = defaultdict()
        codes.default_factory = codes.__len__
        found = np.fromiter(map(codes.__getitem__, texts), np.int32, len(texts))
        self.extend(codes)
        return found + np.int32(start)

    def matches(self, pattern: str, count: int, check: Callable[[], None] = lambda: None) -> Mask:
        """Return which of the first `count` texts have `pattern` (Rust's syntax) in them; `check` is called between chunks."""
        mask = np.empty(count, np.bool_)
        for number, start in enumerate(range(0, count, CHUNK)):
            check()
            end = min(count, start + CHUNK)
            mask[start:end] = contains(self._series(number), pattern)[: end - start]
        return mask

    def matches_some(self, pattern: str, codes: npt.NDArray[np.integer]) -> Mask:
        """Return which of these texts have `pattern` in them; `codes` are sorted."""
        mask = np.empty(len(codes), np.bool_)
        edges = np.searchsorted(codes, np.arange(0, len(self) + CHUNK, CHUNK))
        for number, (start, end) in enumerate(pairwise(edges)):
            if start < end:
                mask[start:end] = contains(self._series(number).gather(codes[start:end] - number * CHUNK), pattern)
        return mask

    def warm(self) -> None:
        """Make all series now, so that the first search costs no more than the next one."""
        for number in range(len(self._full)):
            self._series(number)

    def ranks(self, count: int) -> Codes:
        """Return the place of each of the first `count` texts in their order, whatever their case; equal ones rank alike."""
        known, ranks = self._ranks
        if known < count:
            ranks = self._rank(count)
            self._ranks = count, ranks
        return ranks[:count]

    def _rank(self, count: int) -> Codes:
        if count <= _FEW:
            lower = [self[code].lower() for code in range(count)]
            place = {text: rank for rank, text in enumerate(sorted(set(lower)))}
            return np.fromiter(map(place.__getitem__, lower), np.int32, count)
        engine()
        import polars as pl

        numbers = range((count + CHUNK - 1) // CHUNK)
        series = pl.concat([self._series(number) for number in numbers], rechunk=False).head(count)
        return series.str.to_lowercase().rank("dense").to_numpy().astype(np.int32)

    def _series(self, number: int) -> pl.Series:
        with self._lock:
            if number >= len(self._full):
                return series_of(self._tail)
            chunk = self._full[number]
            if isinstance(chunk, _TextBlob):
                chunk = self._full[number] = series_of(chunk.texts())
            return chunk


class TextPool(dict[str, int]):
    """A column of few distinct texts: `pool[text]` is the code, made on first sight; `texts` is the column."""

    def __init__(self) -> None:
        super().__init__()
        self.texts = Texts()

    def __missing__(self, text: str) -> int:
        code = self[text] = self.texts.append(text)
        return code


class RecentTexts:
    """Codes of texts that come one by one: the last ones are known, so that what is often said is held once; "" is code 0."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._codes = {"": 0}

    def codes(self, texts: Sequence[str]) -> list[int]:
        """Return the codes of texts."""
        try:
            return [self._codes[text] for text in texts]  # nearly always: many jobs, few reasons
        except KeyError:
            return [self.code(text) for text in texts]

    def code(self, text: str) -> int:
        """Return the code of a text."""
        code = self._codes.get(text)
        if code is None:
            if len(self._codes) >= _RECENT:
                self._codes = {"": 0}
            code = self._codes[text] = self._texts.append(text)
        return code


def contains(series: pl.Series, pattern: str) -> Mask:
    """Return which texts have `pattern` in them."""
    found: Mask = series.str.contains(pattern).to_numpy()
    return found


def _string() -> pl.DataType:
    import polars as pl

    return pl.String()
