"""The engine's log as a source of lines: `LogReader` finds the lines of a view in a thread, `RecordLines` draws them from the file.

A line needs only nine bytes of memory, so levels, filters and hits can be known for all lines. A file that is too large even for
this is shown by `FileLines`, without levels and hits. New lines are read after a call of `check`; the file is not polled. A context
record is not shown as a line, because it contains details of the line after it.

Tests: `tests/tui/screens/logs/test_logs_pane.py`.
"""

from __future__ import annotations

import bisect
import os
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from aptui.core.notices import EngineMessage
from aptui.shared.errors import KnownError
from aptui.store.joblog import JobLogLine, parse_text
from aptui.tui.background import LatestOnly
from aptui.tui.screens.logs.log_tabs import STANDARD, LineFilter, LogTab, clean_texts, filter_of, parse_filter
from aptui.tui.widgets.log_sources import LINE_BYTES, FileLines, LineSource, LogPaneLine, MemoryLines, level_letter

LARGEST_BYTES = 256 << 20
"""Maximum size of a file whose lines are indexed (bytes).

A larger file is shown without levels and hits; the pager can search it.
"""
_TAIL_BYTES = 256 << 10
_BLOCK_BYTES = 1 << 20
_CONTEXT_BYTES = 64 << 10
_MOST_LINES = 4096


class LogView(Struct, frozen=True):
    """A request for a view: the lines of a tab, and the hits of a search. With `hits_only`, the view has only lines with hits."""

    path: Path
    tab: LogTab = STANDARD[0]
    search: str = ""
    hits_only: bool = False


class _ParsedView(Struct, frozen=True):
    """A request for a view, with two parsed filters: `shows` is the filter of the tab, and `search` is the filter of the search."""

    view: LogView
    shows: LineFilter
    search: LineFilter


class OpenLogFile:
    """An open log file; it is closed when the last reference to it is gone."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.path = path

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)

    def read(self, start: int, count: int) -> bytes:
        """Return `count` bytes from the offset `start`."""
        return os.pread(self.descriptor, count, start)

    def record(self, start: int, *, has_context: bool = False) -> JobLogLine:
        """Return the line at an offset, on request with the context records before it."""
        raw = self.read(start, LINE_BYTES).partition(b"\n")[0]
        before = self._context_before(start) if has_context else b""
        return (_records(before + raw) or [_NO_RECORD])[-1]

    def _context_before(self, start: int) -> bytes:
        first = max(0, start - _CONTEXT_BYTES)
        lines = self.read(first, start - first).split(b"\n")[:-1]
        count = 0
        while count < len(lines) and not _records(lines[-1 - count]):
            count += 1
        return b"".join(line + b"\n" for line in lines[len(lines) - count :])

    @property
    def size(self) -> int:
        """The length of the file (bytes)."""
        return os.fstat(self.descriptor).st_size

    def is_in_place(self) -> bool:
        """Return whether the log's path still leads to the open file. A full log is renamed, and a new file takes its path."""
        try:
            found = os.stat(self.path)
        except OSError:
            return True
        ours = os.fstat(self.descriptor)
        return (found.st_ino, found.st_dev) == (ours.st_ino, ours.st_dev)


class LogPiece(Struct):
    """Lines that the thread found in a file; they replace all shown lines from the offset `start` on.

    Args:
        file: the open file, in the first piece of a view.
        starts, levels: offset and level of each line.
        detailed: offsets of lines with context.
        is_whole: whether the piece has all lines of the view. If not, it has only the last lines, and a piece with all lines
            follows.
        large: the lines of a file that is too large to index.
        nothing: why there are no lines.
        mistake: a mistake in the search. If there is one, the shown lines do not change.
    """

    view: LogView
    search: LineFilter = field(default_factory=LineFilter)
    file: OpenLogFile | None = None
    start: int = 0
    starts: array[int] = field(default_factory=lambda: array("Q"))
    levels: bytearray = field(default_factory=bytearray)
    detailed: list[int] = field(default_factory=list)
    hits: array[int] = field(default_factory=lambda: array("Q"))
    is_whole: bool = True
    large: FileLines | None = None
    nothing: str = ""
    mistake: KnownError | None = None


class RecordLines:
    """A `LineSource` over the lines that the thread found; keys are offsets in the file. Use it in the app's thread only."""

    def __init__(self) -> None:
        self.version = 1
        self.starts: array[int] = array("Q")
        self.levels = bytearray()
        self.hits: array[int] = array("Q")
        self._detailed: set[int] = set()
        self._file: OpenLogFile | None = None
        self._known: dict[int, LogPaneLine] = {}

    def add(self, piece: LogPiece) -> None:
        """Add lines that the thread found."""
        if piece.file is not None:
            self._file = piece.file
            self._known.clear()
        at = bisect.bisect_left(self.starts, piece.start)
        for start in self.starts[at:]:
            self._known.pop(start, None)
        del self.starts[at:], self.levels[at:]
        del self.hits[bisect.bisect_left(self.hits, piece.start) :]
        self.starts += piece.starts
        self.levels += piece.levels
        self.hits += piece.hits
        self._detailed = {start for start in self._detailed if start < piece.start} | set(piece.detailed)
        self.version += 1

    def line_count(self) -> int:
        """Return the number of lines."""
        return len(self.starts)

    def key(self, index: int) -> int:
        """Return the offset of a line."""
        return self.starts[index]

    def index_of(self, key: int) -> int | None:
        """Return the line at an offset."""
        at = bisect.bisect_left(self.starts, key)
        return at if at < len(self.starts) and self.starts[at] == key else None

    def line(self, index: int) -> LogPaneLine:
        """Return a line."""
        start = self.starts[index]
        known = self._known.get(start)
        if known is None:
            if len(self._known) > _MOST_LINES:
                self._known.clear()
            known = self._known[start] = draw_record(self.record(index), has_details=start in self._detailed)
        return known

    def record(self, index: int) -> JobLogLine:
        """Return a line as it is in the file."""
        return _NO_RECORD if self._file is None else self._file.record(self.starts[index])

    def records(self) -> Callable[[int], JobLogLine]:
        """Return a function that returns the line with a given key, including its context.

        Any thread may call the function. It reads the log file that is open now, even if a new file takes the path of the log.
        """
        file, detailed = self._file, frozenset(self._detailed)
        return lambda key: _NO_RECORD if file is None else file.record(key, has_context=key in detailed)

    def of_levels(self, levels: str) -> list[int]:
        """Return the indices of the lines with these levels."""
        found: list[int] = np.flatnonzero(np.isin(np.frombuffer(bytes(self.levels), np.uint8), list(levels.encode()))).tolist()
        return found

    def next_of(self, index: int, levels: str, step: int) -> int | None:
        """Return the index of the nearest line of these levels after (`step` 1) or before (-1) `index`, None = not found."""
        if step > 0:
            return min((at for level in levels.encode() if (at := self.levels.find(level, index + 1)) >= 0), default=None)
        return max((at for level in levels.encode() if (at := self.levels.rfind(level, 0, index)) >= 0), default=None)


_NO_RECORD = JobLogLine(1, "", "", 0)


def _records(data: bytes) -> list[JobLogLine]:
    r"""Return the lines in some bytes; a `\r` within a line does not end the line."""
    return parse_text(data.replace(b"\r", b"").decode("utf-8", "surrogateescape"), 0)


def draw_record(record: JobLogLine, *, has_details: bool = False) -> LogPaneLine:
    """Return a record as the pane draws it; the day is shown unless it is today."""
    return LogPaneLine(_moment(record.time_ms), level_letter(record.level), record.window, record.text, has_details)


def _moment(time_ms: int) -> str:
    if not 0 < time_ms < 1 << 42:
        return ""
    moment = datetime.fromtimestamp(time_ms / 1000)  # noqa: DTZ006  # local time, for the user
    if moment.date() == datetime.now().date():  # noqa: DTZ005  # as above
        return f"{moment:%H:%M:%S}.{time_ms % 1000:03d}"
    return f"{moment:%m-%d %H:%M}"


def parse_large(data: bytes) -> LogPaneLine:
    """Return a line of a large file as the pane draws it."""
    return draw_record((_records(data) or [JobLogLine(1, "", data.decode("utf-8", "surrogateescape"), 0)])[-1])


# ── the reading thread ────────────────────────────────────────────────────────────────────────────────────────────────


_VIEW, _CHECK = "view", "check"


class LogReader:
    """Reads logs in a thread: first the lines of the newest view, then new lines of the file.

    Args:
        wake: called by the thread when `pop` has something to return.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._pieces: list[LogPiece] = []
        self._shown: _ParsedView | None = None
        self._worker = LatestOnly[LogView | None]("aptui-log", self._handle, last=_CHECK)
        self._file: OpenLogFile | None = None
        self._end = 0
        self._large: FileLines | None = None
        self._large_path = Path()
        self._retired: list[FileLines] = []

    def show(self, view: LogView) -> None:
        """Request another view; the previous request is dropped."""
        with self._lock:
            self._pieces.clear()
            self._worker.put(view, _VIEW, interrupts=True)

    def check(self) -> None:
        """Request a check whether the file has grown, was truncated or was replaced."""
        self._worker.put(None, _CHECK)

    def pop(self) -> list[LogPiece]:
        """Return and remove the pieces of the log that were read since the last call."""
        with self._lock:
            pieces, self._pieces = self._pieces, []
            return pieces

    def close(self) -> None:
        """End the thread."""
        self._worker.close()
        for lines in (*self._retired, *([self._large] if self._large is not None else ())):
            lines.close()

    def _handle(self, _kind: str, view: LogView | None) -> None:
        if view is not None:
            understood = self._understand(view)
            if understood is None:
                return
            self._shown = understood
        if self._shown is not None:
            self._serve(self._shown, is_new=view is not None)

    def _understand(self, view: LogView) -> _ParsedView | None:
        try:
            return _ParsedView(view, filter_of(view.tab), parse_filter(view.search))
        except KnownError as error:
            self._publish(LogPiece(view, mistake=error))
            return None

    def _serve(self, wanted: _ParsedView, *, is_new: bool) -> None:
        try:
            if is_new or (self._large is None and not self._is_same()):
                self._begin(wanted)
            elif self._large is not None:
                self._check_large(wanted.view)
            elif self._file is not None and self._file.size != self._end:
                self._publish(self._find_lines(wanted, self._file, self._end, self._file.size))
        except OSError as error:
            self._file = None
            self._publish(LogPiece(wanted.view, nothing=_why(wanted.view.path, error)))

    def _is_same(self) -> bool:
        """Return whether the open file is still the file at the path and has not shrunk."""
        return self._file is not None and self._file.is_in_place() and self._file.size >= self._end

    def _begin(self, wanted: _ParsedView) -> None:
        """Read a log; if it is long, publish its last lines first."""
        if self._large is not None and self._large_path != wanted.view.path:
            self._retired.append(self._large)  # the file is closed later, because the pane may still show it
            self._large = None
        self._file, self._end = OpenLogFile(wanted.view.path), 0
        size = self._file.size
        if size > LARGEST_BYTES:
            self._begin_large(wanted.view)
            return
        if size > 2 * _TAIL_BYTES:
            tail = self._find_lines(wanted, self._file, size - _TAIL_BYTES, size, skips_first=True)
            tail.file, tail.start, tail.is_whole = self._file, 0, False
            self._publish(tail)
        whole = self._find_lines(wanted, self._file, 0, size)
        whole.file, whole.start = self._file, 0
        if not self._worker.stop.is_set():
            self._publish(whole)

    def _begin_large(self, view: LogView) -> None:
        if self._large is None:
            self._large, self._large_path = FileLines(view.path, parse_large), view.path
        self._publish(LogPiece(view, large=self._large, is_whole=self._large.is_indexed))
        if self._large.index(self._worker.stop):
            self._publish(LogPiece(view, large=self._large))

    def _check_large(self, view: LogView) -> None:
        if self._large is not None and self._large.has_changed() and self._large.index(self._worker.stop):
            self._publish(LogPiece(view, large=self._large))

    def _find_lines(self, wanted: _ParsedView, file: OpenLogFile, first: int, last: int, *, skips_first: bool = False) -> LogPiece:
        """Return the lines in a range of the file.

        A last line without a line end is read again when the file has grown.
        """
        piece = LogPiece(wanted.view, wanted.search, start=first)
        self._end = first
        batch: list[_LogRow] = []
        has_context = False
        for start, raw, is_ended in _physical(file, first, last):
            if self._worker.stop.is_set():
                break
            found = [] if skips_first else _records(raw)
            if found:
                batch.append(_LogRow(start, found[-1], level_letter(found[-1].level), has_context))
            has_context = not found and not skips_first and (has_context or bool(raw))
            skips_first = False
            # Context precedes its log line. If that line is not written yet, the context is read again later, together with it.
            if is_ended and not has_context:
                self._end = start + len(raw) + 1
            if len(batch) >= _MOST_LINES:
                _add(wanted, piece, batch)
                batch = []
        _add(wanted, piece, batch)
        return piece

    def _publish(self, piece: LogPiece) -> None:
        with self._lock:
            if not self._worker.is_superseded(_VIEW):  # if another view was requested during the read, the lines are dropped
                self._pieces.append(piece)
        self._wake()


def _physical(file: OpenLogFile, first: int, last: int) -> Iterator[tuple[int, bytes, bool]]:
    """Yield (offset, bytes, whether the line has its line end) of each line of the file."""
    at, rest = first, b""
    while at < last:
        block = file.read(at, min(_BLOCK_BYTES, last - at))
        if not block:
            break
        lines = (rest + block).split(b"\n")
        start = at - len(rest)
        at += len(block)
        rest = lines.pop()
        for raw in lines:
            yield start, raw, True
            start += len(raw) + 1
        if len(rest) > _BLOCK_BYTES:  # the line is longer than a block, so the part read so far is dropped
            rest = b""
    if rest:
        yield at - len(rest), rest, False


class _LogRow(NamedTuple):
    start: int
    record: JobLogLine
    level: str
    has_context: bool


def _add(wanted: _ParsedView, piece: LogPiece, batch: list[_LogRow]) -> None:
    """Add the lines of a batch that pass the view's filters, and note which of them are hits."""
    batch = _passing(wanted.shows, [seen for seen in batch if seen.level in wanted.view.tab.levels])
    if wanted.search.terms:
        hits = _passing(wanted.search, batch)
        piece.hits.extend(seen.start for seen in hits)
        batch = hits if wanted.view.hits_only else batch
    piece.starts.extend(seen.start for seen in batch)
    piece.levels.extend("".join(seen.level for seen in batch).encode())
    piece.detailed += [seen.start for seen in batch if seen.has_context]


def _passing(wanted: LineFilter, batch: list[_LogRow]) -> list[_LogRow]:
    if not wanted.terms or not batch:
        return batch
    columns = zip(*((each.record.text, each.record.window) for each in batch), strict=True)
    texts, sources = map(clean_texts, columns)
    mask = wanted.masks(texts, sources, "".join(seen.level for seen in batch)).tolist()
    return [seen for seen, is_hit in zip(batch, mask, strict=True) if is_hit]


def _why(path: Path, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"no log yet: '{path}' does not exist"
    return f"the log '{path}' cannot be read: {(error.strerror or 'no reason given').lower()}"


class LogRecords:
    """The two sources of log records: `lines` of a log file, and `live`, the messages that the engine sent."""

    def __init__(self) -> None:
        self.lines, self.live = RecordLines(), MemoryLines()
        self._lines: list[JobLogLine] = []

    def add(self, messages: Iterable[EngineMessage]) -> None:
        """Add messages of the engine."""
        new = [JobLogLine(each.level, "aptui", each.text, int(time.time() * 1000)) for each in messages]
        self._lines += new
        self.live.add(map(draw_record, new))

    def knows(self, source: LineSource) -> bool:
        """Return whether `source` is `lines` or `live`. Only these two have complete records; other sources have only texts."""
        return source in (self.lines, self.live)

    def record(self, source: LineSource, key: int | None) -> JobLogLine | None:
        """Return the record of a line by its key; for a line of a large log, a record with only the shown texts."""
        place = None if key is None else source.index_of(key)
        if place is None or key is None:
            return None
        if source is self.lines:
            return self.lines.records()(key)
        if source is self.live:
            return self._lines[key]
        line = source.line(place)
        return JobLogLine(max(0, "DIWE".find(line.level or "I")), line.window, line.text, 0)

    def reader(self, source: LineSource) -> tuple[Callable[[int], JobLogLine | None], bool]:
        """Return the pair (function, is_thread_safe). The function takes the key of a line and returns its record.

        If `is_thread_safe` is False, only the current thread may call the function.
        """
        if source is self.lines:
            return self.lines.records(), True
        return lambda key: self.record(source, key), False
