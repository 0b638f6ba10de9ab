"""Sources of log lines: `MemoryLines`, a list, and `FileLines`, a file of any size read with `pread`. Nothing is drawn here.

Tests: `tests/tui/widgets/test_logpane.py`.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import threading
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from aptui.tui.widgets.cells import Spans

BLOCK_BYTES = 256 * 1024
LINE_BYTES = 80 * 1024
"""Maximum length of a line that is read.

A longer line has more characters than `logpane` shows, also if each needs four bytes. So the pane notes that it cuts the line.
"""
_NEWLINE = 10
_STEP_LINES = 200_000
"""Maximum number of lines that one search for a log level, such as error, goes through."""

LEVELS = "EWID"
"""Letters of the levels: error, warning, info, debug."""
LEVEL_WORDS = {"E": "error", "W": "warning", "I": "info", "D": "debug"}
"""{letter of a log level: the level as a word, which is also the name of its colour role and of its glyph}."""


def level_letter(number: int) -> str:
    """Return the letter of a `messages.LogLevel`; numbers out of range become the nearest level."""
    return "DIWE"[min(max(number, 0), 3)]


class LogPaneLine(NamedTuple):
    """A line of a log as the screen shows it. `level` is one letter of `LEVELS`, or "" if the source does not know the level.

    `context` has the details of the line as (key, value) pairs, if the source already has them.
    """

    time: str
    level: str
    window: str
    text: str
    has_details: bool = False
    spans: Spans = ()
    context: tuple[tuple[str, str], ...] = ()


class LineSource(Protocol):
    """A source of lines, the oldest first. Each line has a key that does not change while lines are added and removed."""

    @property
    def version(self) -> int:
        """Number that rises whenever lines are added, removed or changed."""

    def line_count(self) -> int:
        """Return the number of lines."""

    def line(self, index: int) -> LogPaneLine:
        """Return a line; called for visible lines only."""

    def key(self, index: int) -> int:
        """Return the key of a line, which does not change while other lines are added or removed."""

    def index_of(self, key: int) -> int | None:
        """Return the current index of a line."""

    def of_levels(self, levels: str) -> Sequence[int] | None:
        """Return the indices of the lines with these levels, ascending; None if the source would have to read the whole file."""

    def next_of(self, index: int, levels: str, step: int) -> int | None:
        """Return the nearest line of these levels after (`step` 1) or before (-1) a line, None = not found nearby."""


class MemoryLines:
    """Lines in memory; `show_only` limits the shown lines. The key of a line is its position among all lines, shown or not."""

    def __init__(self, lines: Iterable[LogPaneLine] = ()) -> None:
        self._lines = list(lines)
        self._filtered: Sequence[int] | None = None
        self._known: tuple[int, str, list[int]] = (-1, "", [])
        self.version = 1

    def add(self, lines: Iterable[LogPaneLine]) -> None:
        """Add lines at the end."""
        self._lines += lines
        self.version += 1

    def show_only(self, keys: Sequence[int] | None) -> None:
        """Show only the lines with these keys, ascending; None = all lines."""
        self._filtered = keys
        self.version += 1

    @property
    def _keys(self) -> Sequence[int]:
        return range(len(self._lines)) if self._filtered is None else self._filtered

    def line_count(self) -> int:
        """Return the number of shown lines."""
        return len(self._keys)

    def line(self, index: int) -> LogPaneLine:
        """Return a line."""
        return self._lines[self.key(index)]

    def key(self, index: int) -> int:
        """Return the key of a line."""
        return index if self._filtered is None else self._filtered[index]

    def index_of(self, key: int) -> int | None:
        """Return the index of a line."""
        keys = self._keys
        at = bisect.bisect_left(keys, key)
        return at if at < len(keys) and keys[at] == key else None

    def of_levels(self, levels: str) -> Sequence[int]:
        """Return the indices of the lines with these levels or without a level."""
        if self._known[:2] != (self.version, levels):
            found = [at for at, key in enumerate(self._keys) if not (level := self._lines[key].level) or level in levels]
            self._known = (self.version, levels, found)
        return self._known[2]

    def next_of(self, index: int, levels: str, step: int) -> int | None:
        """Return the index of the nearest line of these levels after (`step` 1) or before (-1) `index`, None = not found."""
        reach = range(index + step, self.line_count() if step > 0 else -1, step)
        return next((at for at in reach if (level := self.line(at).level) and level in levels), None)


def plain_line(data: bytes) -> LogPaneLine:
    """Convert the bytes of a line to a `LogPaneLine` that has only a text, for files whose format is unknown."""
    return LogPaneLine("", "", "", data.decode("utf-8", "surrogateescape"))


class FileLines:
    """Lines of a file that may be large, and may grow or shrink while it is shown.

    The last lines are available at once, the other lines after `index` has run in a thread. The key of a line is its
    offset in the file, so that cursor and marks stay valid. The file is read with `pread` and is never mapped into memory, because
    a process that reads a mapped file after it shrank is killed.

    Args:
        parse: makes a `LogPaneLine` from the bytes of a line, without its line end.
    """

    def __init__(self, path: str | os.PathLike[str], parse: Callable[[bytes], LogPaneLine] = plain_line) -> None:
        self._parse = parse
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._lock = threading.Lock()
        self._counts = array("Q", [0])  # number of newlines before each block
        self._indexed_bytes = 0
        self._size = os.fstat(self._fd).st_size
        self.is_indexed = False
        """Whether all lines are known, not only the last lines of the file."""
        self._loaded: tuple[int, bytes, list[int]] = (-1, b"", [])
        self.version = 1
        self._tail: list[int] = []
        self._load_tail()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def index(self, stop: threading.Event | None = None) -> bool:
        """Count the lines. Call this in a thread, and again if `has_changed` returns True.

        Return False if `stop` or `close` ended the count.

        Memory: one number per 256 KB.
        """
        buffer = bytearray(BLOCK_BYTES)
        letters = np.frombuffer(buffer, np.uint8)
        while not (stop is not None and stop.is_set()):
            with self._lock:
                if self._fd < 0:
                    return False
                start = (len(self._counts) - 1) * BLOCK_BYTES
                got = os.preadv(self._fd, [buffer], start)
                if got < BLOCK_BYTES:
                    self._finish(start, got)
                    return True
                self._counts.append(self._counts[-1] + int(np.count_nonzero(letters == _NEWLINE)))
        return False

    def _finish(self, start: int, got: int) -> None:
        self._size = self._indexed_bytes = start + got
        self._loaded = (-1, b"", [])
        rest = os.pread(self._fd, got, start) if got else b""
        total = self._counts[-1] + rest.count(b"\n")
        ends_open = bool(self._size) and not (rest or os.pread(self._fd, 1, self._size - 1)).endswith(b"\n")
        self._total = total + ends_open
        self.is_indexed = True
        self.version += 1

    def has_changed(self) -> bool:
        """Return whether the file grew or shrank since it was last read (costs one stat). After True, call `index` again."""
        size = os.fstat(self._fd).st_size
        if size < self._size:
            with self._lock:
                self._counts = array("Q", [0])
                self.is_indexed, self._size = False, size
                self._load_tail()
                self.version += 1
            return True
        if size > self._size and not self.is_indexed:
            with self._lock:
                self._size = size
                self._load_tail()
                self.version += 1
        return size > self._indexed_bytes

    def _load_tail(self) -> None:
        """Find the last lines without reading the rest of the file."""
        start = max(0, self._size - BLOCK_BYTES)
        data = os.pread(self._fd, BLOCK_BYTES, start)
        offsets = _starts(data)
        if start:
            offsets = offsets[1:]
        self._tail = [start + at for at in offsets]

    def line_count(self) -> int:
        """Return the number of known lines."""
        return self._total if self.is_indexed else len(self._tail)

    def line(self, index: int) -> LogPaneLine:
        """Return a line, or an empty line if the file was truncated after its lines were counted."""
        return self._parse(self.raw(index))

    def raw(self, index: int) -> bytes:
        """Return the bytes of a line, without its line end."""
        start = self.key(index)
        block, data, _ = self._loaded
        base = block * BLOCK_BYTES
        if block < 0 or not base <= start < base + len(data) or (end := data.find(b"\n", start - base)) < 0:
            data, base = os.pread(self._fd, LINE_BYTES, start), start
            end = data.find(b"\n")
        return data[start - base : end if end >= 0 else len(data)].removesuffix(b"\r")

    def key(self, index: int) -> int:
        """Return the offset of a line in the file."""
        if not self.is_indexed:
            return self._tail[index]
        if index <= 0:
            return 0
        block = bisect.bisect_left(self._counts, index) - 1
        starts = self._block(block)
        at = index - self._counts[block]
        return block * BLOCK_BYTES + starts[at] if at < len(starts) else self._size

    def _block(self, block: int) -> list[int]:
        """Return the starts of the lines in a block; entry 0 is the start of the block."""
        if self._loaded[0] != block:
            data = os.pread(self._fd, BLOCK_BYTES, block * BLOCK_BYTES)
            self._loaded = (block, data, _starts(data, with_end=True))
        return self._loaded[2]

    def index_of(self, key: int) -> int | None:
        """Return the line that begins at an offset."""
        if not self.is_indexed:
            at = bisect.bisect_left(self._tail, key)
            return at if at < len(self._tail) and self._tail[at] == key else None
        if not 0 <= key < self._size:
            return None
        block = min(max(0, (key - 1) // BLOCK_BYTES), len(self._counts) - 1)
        return self._counts[block] + bisect.bisect_left(self._block(block), key - block * BLOCK_BYTES)

    def of_levels(self, levels: str) -> None:
        """Return None: levels are known only for lines that were read."""

    def next_of(self, index: int, levels: str, step: int) -> int | None:
        """Return the index of the nearest line of these levels after (`step` 1) or before (-1) `index`.

        Return None if the nearest `_STEP_LINES` lines do not have these levels.
        """
        last = self.line_count() if step > 0 else -1
        reach = range(index + step, min(last, index + _STEP_LINES) if step > 0 else max(last, index - _STEP_LINES), step)
        with contextlib.suppress(IndexError):
            return next((at for at in reach if (level := self.line(at).level) and level in levels), None)
        return None


def _starts(data: bytes, *, with_end: bool = False) -> list[int]:
    """Return 0 and the offset after each newline. With `with_end`, a newline at the end also starts a line."""
    found, at = [0] if data else [], data.find(b"\n")
    while at >= 0:
        found.append(at + 1)
        at = data.find(b"\n", at + 1)
    if not with_end and found and found[-1] == len(data):
        found.pop()
    return found
