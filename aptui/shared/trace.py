"""Traces: spans of time written to a file that Perfetto and Chrome open (the Trace Event Format, its JSON array form).

`TraceFile` writes the events that its methods receive. The functions below `TraceFile` write the trace of this process. The trace
is off until `start` is called; until then `span` costs only a function call. The callers of `span` choose the names of spans.

If the process is killed, its file lacks the last events, but can be opened: the format does not need the closing bracket.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager

from aptui.shared.files.replacing import not_written

VARIABLE = "APTUI_TRACE"
"""The environment variable that names the trace file of an engine that runs in the background."""
Details = Mapping[str, object]
"""JSON data that the viewer shows beside an event."""
_NO: Details = {}
_HELD = 512
"""Number of events that are written together."""


class TraceFile:
    """A file of trace events; any thread may write.

    Times are in nanoseconds; all times of a file are of the same clock. The viewer shows each track as a thread.

    Args:
        path: the file; an existing file is overwritten.

    Raises:
        UserError: its folder does not exist. HostError: it cannot be written.
    """

    def __init__(self, path: str) -> None:
        try:
            self._file = open(path, "w", encoding="utf-8")  # noqa: SIM115  # closed by `close`
        except OSError as error:
            raise not_written(f"the trace '{path}'", error) from None
        self._lock = threading.Lock()
        self._events: list[dict[str, object]] = []
        self.tracks: dict[str, int] = {}
        """{name of a track: its number}; the callers of this class fill it."""
        self._file.write("[\n")

    def name(self, text: str, *, process: int = 1, track: int | None = None) -> None:
        """Write the name that the viewer shows for a process, or for a track of a process."""
        what = "process_name" if track is None else "thread_name"
        self._add({"ph": "M", "name": what, "pid": process, "tid": track or 0, "args": {"name": text}})

    def span(self, name: str, began_ns: int, ended_ns: int, *, process: int = 1, track: int = 1, details: Details = _NO) -> None:
        """Write a span of a track. Two spans of a track must be separate, or one must contain the other."""
        micros = {"ts": began_ns / 1000, "dur": (ended_ns - began_ns) / 1000}
        self._add({"ph": "X", "name": name, "cat": "span", **micros, "pid": process, "tid": track, "args": details})

    def begin(self, name: str, number: int, at_ns: int, *, process: int = 1, details: Details = _NO) -> None:
        """Write the beginning of a span that may overlap with others; `end` with the same `name` and `number` writes its end."""
        self._add({"ph": "b", **_overlapping(name, number, at_ns), "pid": process, "args": details})

    def end(self, name: str, number: int, at_ns: int, *, process: int = 1, details: Details = _NO) -> None:
        """Write the end of a span that `begin` started."""
        self._add({"ph": "e", **_overlapping(name, number, at_ns), "pid": process, "args": details})

    def _add(self, event: dict[str, object]) -> None:
        with self._lock:
            self._events.append(event)
            if len(self._events) >= _HELD:
                self._write()

    def flush(self) -> None:
        """Write the buffered events to the file."""
        with self._lock:
            self._write()

    def _write(self) -> None:
        """Write the buffered events. Errors, such as a full disk, are ignored, so that the trace never stops the traced process."""
        events, self._events = self._events, []
        with contextlib.suppress(OSError, ValueError):
            self._file.write("".join(f"{json.dumps(event, separators=(',', ':'), default=str)},\n" for event in events))
            self._file.flush()

    def close(self) -> None:
        """Write the buffered events, and close the file."""
        self.flush()
        with contextlib.suppress(OSError, ValueError):
            self._file.write("{}]\n")
            self._file.close()


def _overlapping(name: str, number: int, at_ns: int) -> dict[str, object]:
    return {"name": name, "cat": name, "id": number, "ts": at_ns / 1000, "tid": 0}


# ------------------------------------------------------------------------------------------------ the trace of this process

active: TraceFile | None = None
"""The trace file of this process; None = it is not traced."""
_NOTHING = contextlib.nullcontext()


class _Span:
    """One span of the calling thread."""

    def __init__(self, name: str, details: dict[str, object]) -> None:
        self._name, self._details = name, details

    def __enter__(self) -> None:
        self._began_ns = time.perf_counter_ns()

    def __exit__(self, *_error: object) -> None:
        if active is not None:
            active.span(self._name, self._began_ns, time.perf_counter_ns(), track=_track(active), details=self._details)


def _track(trace: TraceFile) -> int:
    """Return the number of the calling thread's track. Threads with the same name (those of commits, for example) share a track."""
    name = threading.current_thread().name
    if name not in trace.tracks:
        trace.tracks[name] = len(trace.tracks) + 1
        trace.name(name, track=trace.tracks[name])
    return trace.tracks[name]


def span(name: str, **details: object) -> AbstractContextManager[None]:
    """Return a context manager that traces the duration of its block as a span of the calling thread, if this process is traced."""
    return _NOTHING if active is None else _Span(name, details)


def begin(name: str, number: int, **details: object) -> None:
    """Begin a span that may overlap with other spans of its name."""
    if active is not None:
        active.begin(name, number, time.perf_counter_ns(), details=details)


def end(name: str, number: int, **details: object) -> None:
    """End the span that `begin` started with the same name and number."""
    if active is not None:
        active.end(name, number, time.perf_counter_ns(), details=details)


def start(path: str) -> None:
    """Trace this process from now on; a process that is traced already keeps its file.

    Raises:
        UserError, HostError: the file cannot be written.
    """
    global active  # noqa: PLW0603  # a process has one trace
    if active is None:
        active = TraceFile(path)
        active.name(f"aptui {os.getpid()}")
        atexit.register(stop)


def start_if_asked() -> None:
    """Trace this process if the environment names a file."""
    if path := os.environ.get(VARIABLE):
        start(path)


@contextlib.contextmanager
def write_trace_to(path: str | None) -> Iterator[None]:
    """Trace this process into the file `path` during the block; if `path` is None, do not trace.

    Raises:
        UserError, HostError: the file cannot be written.
    """
    if path is None:
        yield
        return
    start(path)
    try:
        yield
    finally:
        stop()


def flush() -> None:
    """Write the buffered events of this process's trace to its file, so that other processes can read them."""
    if active is not None:
        active.flush()


def stop() -> None:
    """End the trace of this process."""
    global active
    if active is not None:
        atexit.unregister(stop)
        trace, active = active, None
        trace.close()
