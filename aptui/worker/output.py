"""Converts the output of runs to log lines: limits its size, divides a worker's stream into runs by markers, finds severities.

The engine reads the output of workers. A thread of the worker could not read it, because native code may hold the GIL while it
writes. A flood of output takes time but no memory: only the first and the last 128 KiB of each run are kept, and the log reports
the size of the part that is dropped.

Tests: `tests/worker/commands/test_command.py`.
"""

from __future__ import annotations

import bisect
import re
from collections import deque
from collections.abc import Iterable

from aptui.core.notices import LogLevel, LogRecord

MOST_BYTES = 128 << 10
"""Number of bytes kept at each end of a run's output, because a builder may print gigabytes."""
MOST_LINES = 1000
"""Number of log lines kept at each end of a run's output: 256 KiB of empty lines would otherwise become 262,144 records."""
_ONE_TIME_MS, _MOST_ARRIVALS = 10, 4096
"""Interval (milliseconds): all output within it gets the same time. `_MOST_ARRIVALS`: maximum recorded times of one stream."""
LINE_CHARS = 16_000
"""Maximum characters of a log line. A longer line is cut, because users read the log."""

_WARNING = re.compile(r"\s*(?:W: |warn(?:ing)?:)\s*", re.IGNORECASE)
_ERROR = re.compile(r"\s*(?:E: |err(?:or)?:)\s*", re.IGNORECASE)
_KEY_DIGITS = 16


class TimedLine(str):
    """A line of output with its arrival time."""

    __slots__ = ("time_ms",)
    time_ms: int


class BoundedText:
    """The head and the tail of a stream, their arrival times, and the number of bytes dropped between them."""

    __slots__ = ("_arrivals", "_limit_bytes", "_tail", "dropped_count", "head")

    def __init__(self, limit_bytes: int = MOST_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self.head = bytearray()
        self._tail = bytearray()
        self.dropped_count = 0
        self._arrivals: list[tuple[int, int]] = []

    def add(self, data: bytes | bytearray, time_ms: int = 0) -> None:
        """Append `data`, which arrived at `time_ms`. If the stream exceeds the limit, drop bytes from its middle."""
        if time_ms and data:
            self._note_arrival(len(self.head) + len(self._tail) + self.dropped_count + len(data), time_ms)
        free_bytes = self._limit_bytes - len(self.head)
        if free_bytes > 0:
            self.head += data[:free_bytes]
            data = data[free_bytes:]
        if data:
            self._tail += data
            if len(self._tail) > 2 * self._limit_bytes:
                self._trim()

    @property
    def byte_count(self) -> int:
        """Number of bytes that the stream has received, including dropped bytes."""
        return len(self.head) + len(self._tail) + self.dropped_count

    def copy_text(self) -> BoundedText:
        """Return a copy of the current text, with at most `MOST_BYTES` of each end. Any thread may call this method."""
        copy = BoundedText()
        arrivals, tail, head, dropped_count = self._arrivals.copy(), self._tail.copy(), self.head.copy(), self.dropped_count
        copy.add(head)
        copy.add(tail)
        copy.dropped_count += dropped_count
        copy._arrivals = arrivals
        return copy

    def _note_arrival(self, end: int, time_ms: int) -> None:
        """Record that all bytes before `end` had arrived at `time_ms`.

        Output that arrives at nearly the same time shares one entry.
        """
        arrivals = self._arrivals
        if arrivals and (time_ms - arrivals[-1][1] < _ONE_TIME_MS or len(arrivals) >= _MOST_ARRIVALS):
            arrivals[-1] = (end, arrivals[-1][1] if len(arrivals) < _MOST_ARRIVALS else time_ms)
        else:
            arrivals.append((end, time_ms))

    def _trim(self) -> None:
        excess = len(self._tail) - self._limit_bytes
        if excess > 0:
            del self._tail[:excess]
            self.dropped_count += excess

    @property
    def tail(self) -> bytes:
        """The kept bytes of the end of the stream."""
        self._trim()
        return bytes(self._tail)

    def __bool__(self) -> bool:
        return bool(self.head)

    def lines(self) -> list[str]:
        r"""Return the lines that were kept, decoded (bytes that are not UTF-8 as `\xNN`), with a note where bytes were left out.

        A line is a `TimedLine` if the arrival time of its end is known.
        """
        tail = self.tail
        if not self.dropped_count:
            return _time_lines(bytes(self.head) + tail, 0, self._arrivals)
        note = f"[… {self.dropped_count} bytes of output left out …]"
        after = _time_lines(tail, len(self.head) + self.dropped_count, self._arrivals)
        return [*_time_lines(bytes(self.head), 0, self._arrivals), note, *after]


def _time_lines(data: bytes, start: int, arrivals: list[tuple[int, int]]) -> list[str]:
    """Return the lines of `data`, each with the arrival time of its last byte if times are known.

    `start` is the position of `data` in the stream (bytes).
    """
    if not arrivals:
        return _decode(data)
    ends, times = [end for end, _ in arrivals], [time_ms for _, time_ms in arrivals]
    lines: list[str] = []
    position = start
    for piece in data.splitlines(keepends=True):
        position += len(piece)
        time_ms = times[min(bisect.bisect_left(ends, position), len(times) - 1)]
        for text in _decode(piece):
            line = TimedLine(text)
            line.time_ms = time_ms
            lines.append(line)
    return lines


def _decode(data: bytes) -> list[str]:
    lines = data.decode("utf-8", "backslashreplace").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def bound_lines(lines: Iterable[str]) -> list[str]:
    """Return the first and the last lines of a long text, with a note between them."""
    every = [
        line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]} [… {len(line) - LINE_CHARS} characters …]" for line in lines
    ]
    excess = len(every) - 2 * MOST_LINES
    if excess <= 0:
        return every
    return [*every[:MOST_LINES], f"[… {excess} lines left out …]", *every[-MOST_LINES:]]


def record_of(line: str, window: str, time_ms: int) -> LogRecord:
    """Return the log record of one line of output; the beginning of the line determines the severity."""
    if found := _WARNING.match(line):
        return LogRecord(LogLevel.WARNING, window, line[found.end() :], time_ms)
    if found := _ERROR.match(line):
        return LogRecord(LogLevel.ERROR, window, line[found.end() :], time_ms)
    return LogRecord(LogLevel.INFO, window, line, time_ms)


def records_of(text: BoundedText, window: str, time_ms: int) -> list[LogRecord]:
    """Return the log records of a run's output; `window` is the builder's name, `time_ms` the time for lines of unknown time."""
    return [
        record_of(str(line), window, line.time_ms if isinstance(line, TimedLine) else time_ms) for line in bound_lines(text.lines())
    ]


def count_levels(records: Iterable[LogRecord]) -> tuple[int, int]:
    """Return the numbers of (warnings, errors) among `records`."""
    levels = [record.level for record in records]
    return levels.count(LogLevel.WARNING), levels.count(LogLevel.ERROR)


def marker(nonce: str, run_key: int) -> bytes:
    """Return the marker that a worker writes to its output at the end of the run `run_key`."""
    return f"\x00\x01{nonce}{run_key:0{_KEY_DIGITS}x}\n".encode("ascii")


class MarkedStream:
    """Divides a worker's output into runs. The worker writes a marker after each run."""

    def __init__(self, nonce: str) -> None:
        self._prefix = f"\x00\x01{nonce}".encode("ascii")
        self._length = len(self._prefix) + _KEY_DIGITS + 1
        self._rest = b""
        self.unfinished = BoundedText()
        """Output after the last marker so far."""
        self.finished: deque[tuple[int, BoundedText]] = deque()

    def feed(self, data: bytes, time_ms: int = 0) -> None:
        """Add bytes that arrived at `time_ms`; append finished runs to `finished` as (run key, text)."""
        data = self._rest + data
        at = data.find(self._prefix)
        while at >= 0 and len(data) >= at + self._length:
            self.unfinished.add(data[:at], time_ms)
            self.finished.append((_run_key(data[at + len(self._prefix) : at + self._length - 1]), self.unfinished))
            self.unfinished = BoundedText()
            data = data[at + self._length :]
            at = data.find(self._prefix)
        keep_from = at if at >= 0 else self._possible_start(data)
        self.unfinished.add(data[:keep_from], time_ms)
        self._rest = data[keep_from:]

    def _possible_start(self, data: bytes) -> int:
        # A marker may begin at the end of `data` and continue in later data. It begins with a NUL, which text hardly ever contains.
        at = data.find(b"\x00", max(0, len(data) - len(self._prefix) + 1))
        return at if at >= 0 else len(data)

    def take(self, run_key: int) -> BoundedText | None:
        """Return the output of a finished run, None before its marker has arrived; also drop the output of earlier runs."""
        while self.finished:
            key, text = self.finished.popleft()
            if key == run_key:
                return text
        return None

    def take_unfinished(self) -> BoundedText:
        """Return the output after the last marker, which belongs to a run that never ended."""
        self.unfinished.add(self._rest)
        self._rest, text, self.unfinished = b"", self.unfinished, BoundedText()
        return text


def _run_key(digits: bytes) -> int:
    try:
        return int(digits, 16)
    except ValueError:
        return -1  # a forged or damaged marker: the text before it does not belong to a run
