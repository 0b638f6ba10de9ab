"""The log of one run inside a worker: a bounded list of records in order, with counts of warnings and errors.

Tests: `tests/worker/outputs/test_workspace.py`.
"""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import time
import warnings
from _thread import allocate_lock, stack_size, start_new_thread
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from aptui.core.notices import LogLevel, LogRecord
from aptui.sdk import JobLog
from aptui.worker import wire
from aptui.worker.output import BoundedText

MOST_RECORDS = 2000
"""Number of records kept at each end of a log. The limit keeps a builder that logs in a loop from filling the engine's memory."""
MOST_ANSWER_RECORDS, MOST_ANSWER_CHARS = 2 * MOST_RECORDS, 256 << 10
"""Maximum number of records, and of their characters, in one answer about a running job; clients ask about once a second."""
TEXT_CHARS = 16_000
"""Maximum characters of a record's text; a longer text is cut, with a note of the number of characters left out."""
ERROR_CHARS = 1000
"""Maximum characters of an error in one line."""
_SANDBOX = "sandboxed: no network, home or GPU; 'sandbox_paths' adds files"

_HIDDEN = re.compile(
    r"permission denied|operation not permitted|read-only file system|network|unreachable|name or service not known"
    r"|name resolution|resolve host|connection refused|connect to|socket|\bdisplay\b|x11|wayland|vulkan|opengl|\begl\b|cuda"
    r"|\bgpu\b|/dev/|/home/|/root/|~/|\$home|\bhome (folder|directory)\b|: not found|command not found|cannot open shared object",
    re.IGNORECASE,
)
"""Matches messages of programs that need files or services that a sandbox hides."""
_MISSING_FILE = re.compile(r"no such file or directory:? ?'?(/[^'\n]*)?", re.IGNORECASE)


def _is_of_sandbox(text: str) -> bool:
    """Whether the sandbox may have caused a message.

    A message about a missing file counts only if the folder of the file is missing, too, because the sandbox may hide that folder.
    If the folder is visible, the file is also missing outside the sandbox.
    """
    if _HIDDEN.search(text):
        return True
    return any(found[1] and not os.path.isdir(os.path.dirname(found[1])) for found in _MISSING_FILE.finditer(text))


class RunLog:
    """Collects the log records of one run. `window` is the builder's name.

    Only the thread of the run adds records; other threads may read the present records (`so_far`).
    """

    def __init__(self, window: str) -> None:
        self._window = window
        self._head: list[LogRecord] = []
        self._tail: deque[LogRecord] = deque(maxlen=MOST_RECORDS)
        self._dropped = 0
        self._counts = [0, 0, 0, 0]
        self._output = BoundedText()
        self._records_of: Callable[[BoundedText], Iterable[LogRecord]] = lambda _output: ()
        self._settled_bytes = 0
        self._settling = allocate_lock()
        self.first_error = ""
        self.percent, self._progress_count = -1, 0
        self.on_progress: Callable[[], None] = lambda: None
        """Called when `percent` changed, by the builder's thread."""

    @property
    def warnings(self) -> int:
        """Number of warnings so far, including those whose records were dropped."""
        return self._counts[LogLevel.WARNING]

    @property
    def errors(self) -> int:
        """Number of errors so far, including those whose records were dropped."""
        return self._counts[LogLevel.ERROR]

    def write(self, level: int, text: str, context: tuple[tuple[str, str], ...] = ()) -> None:
        """Add one record."""
        pairs = tuple((_valid(key), _valid(value)) for key, value in context)
        self.add(LogRecord(level, self._window, _valid(text), time.time_ns() // 1_000_000, pairs))

    def add(self, record: LogRecord) -> None:
        """Add a finished record."""
        self._counts[record.level] += 1
        if record.level == LogLevel.ERROR and not self.first_error:
            self.first_error = first_line(record.text)
        if len(self._head) < MOST_RECORDS:
            self._head.append(record)
            return
        is_full = len(self._tail) == MOST_RECORDS
        self._tail.append(record)
        self._dropped += is_full

    def note_sandbox(self, *, is_silent: bool = False) -> None:
        """Note in the log of a failed run that the sandbox may be the reason.

        That is possible if the log mentions something that a sandbox hides, or if a command failed without output (`is_silent`).
        """
        if os.environ.get("APTUI_SANDBOX") != "on":
            return
        texts = (
            text for record in (*self._head, *self._tail) for text in (record.text, *(value for _key, value in record.context))
        )
        if is_silent or any(_is_of_sandbox(text) for text in texts):
            self.write(LogLevel.INFO, _SANDBOX)

    def extend(self, records: Iterable[LogRecord]) -> None:
        """Add finished records."""
        for record in records:
            self.add(record)

    def follow_output(self, output: BoundedText, records: Callable[[BoundedText], Iterable[LogRecord]]) -> None:
        """Let `so_far` include the output of a running command, until `end_output` adds the final records of the command.

        `records` converts a copy of the output to records.
        """
        self._output, self._records_of = output, records

    def end_output(self, records: Iterable[LogRecord]) -> None:
        """Add the records of the command that has ended."""
        with self._settling:
            self._settled_bytes += self._output.byte_count
            self._output = BoundedText()
            self.extend(records)

    def note_progress(self, fraction: float) -> None:
        """Report the progress of the run, 0 … 1. Until the run has ended, the progress is the last line of its log."""
        percent = int(100 * min(1.0, max(0.0, fraction)))
        if percent != self.percent:
            self.percent, self._progress_count = percent, self._progress_count + 1
            self.on_progress()

    def so_far(self, seen: int = -1) -> tuple[int, tuple[LogRecord, ...]]:
        """Return (stamp of the log, the log's last records), without records if the stamp is still `seen`.

        Any thread may call this.
        """
        with self._settling:
            output = self._output
            # The stamp is computed before the records are read. So a record that is added in between is reported twice, but never
            # left out.
            stamp = len(self._head) + len(self._tail) + self._dropped + self._settled_bytes + output.byte_count
            stamp += self._progress_count
            if stamp == seen:
                return stamp, ()
            records = (*self.records(), *self._records_of(output.copy_text()))
            if self.percent >= 0:
                records += (LogRecord(LogLevel.INFO, self._window, f"[{self.percent} %]", time.time_ns() // 1_000_000),)
            return stamp, latest(records, self._window)

    def for_builder(self) -> JobLog:
        """Return the logger that the builder receives."""
        return JobLog(self.write)

    def records(self) -> tuple[LogRecord, ...]:
        """Return all kept records."""
        if not self._dropped:
            return (*self._head, *self._tail)
        gap = LogRecord(LogLevel.INFO, self._window, f"[… {self._dropped} records left out …]", self._head[-1].time_ms)
        return (*self._head, gap, *self._tail)


_FOR_DEVELOPERS = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)


@contextmanager
def noting_warnings(log: RunLog) -> Iterator[None]:
    """Log each warning of Python code (`warnings.warn`) once per run, with its place in the code.

    Warnings for developers, which Python hides unless `PYTHONWARNINGS` shows them, are logged as information and not counted.
    """
    builder_log = log.for_builder()

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        del line
        if file is None:
            write = builder_log.info if issubclass(category, _FOR_DEVELOPERS) else builder_log.warning
            write(f"{category.__name__}: {message} ({os.path.basename(filename)}:{lineno})")
        else:
            file.write(warnings.formatwarning(message, category, filename, lineno))

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def latest(records: tuple[LogRecord, ...], window: str) -> tuple[LogRecord, ...]:
    """Return the last records for an answer about a running job, with a note about the number of records that are left out."""
    first, chars = len(records), 0
    while first and chars < MOST_ANSWER_CHARS and len(records) - first < MOST_ANSWER_RECORDS:
        first -= 1
        record = records[first]
        chars += len(record.text) + sum(len(key) + len(value) for key, value in record.context)
    if not first:
        return records
    note = f"[… {first} earlier records; the log shows them when the run has ended …]"
    return (LogRecord(LogLevel.INFO, window, note, records[first].time_ms), *records[first:])


def first_line(text: str) -> str:
    """Return the first line of `text` that is not blank, truncated to a maximum length."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= ERROR_CHARS else f"{line[:ERROR_CHARS]}…"


def valid_text(text: str) -> str:
    """Return `text` without lone surrogates (from undecodable names): the wire and the database refuse them."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _valid(text: object) -> str:
    text = str(text)
    return valid_text(text if len(text) <= TEXT_CHARS else f"{text[:TEXT_CHARS]} [… {len(text) - TEXT_CHARS} characters …]")


# This part answers requests for the log of the current run and reports its progress, in a thread of its own.
#
# Requests arrive on a separate socket pair, and one thread reads them. So requests do not mix with orders or wait behind them, and
# do not interrupt the run. Each request names a run and gets an answer, even if this worker does not execute that run. Native code
# that holds the GIL only delays the answer. The same thread sends progress over the same socket. So a builder that reports progress
# in a loop, in threads or in forked processes can neither delay the run's result nor mix two frames.

ADDRESS_BYTES = 72 << 20
"""Address space (bytes) that malloc(3) reserves for one thread.

It is added to the memory limit, because the limit counts reserved addresses.
"""
_STACK_BYTES = 512 << 10
_RECEIVE_BYTES = 1 << 12
_PROGRESS_S = 0.1
"""Minimum interval (seconds) between two reports of a run's progress, and between its start and the first report."""


class LogAnswerer:
    """Answers requests about the current run that arrive at the socket `questions`, and reports the run's progress.

    Its thread starts with the first run.
    """

    def __init__(self, questions: socket.socket) -> None:
        self._questions = questions
        self._run: tuple[int, RunLog] | None = None
        self._has_begun = False
        self._signal = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._is_signalled = False
        self._due_s = 0.0

    def begin(self, run_key: int, log: RunLog) -> None:
        """Set the current run, about which requests are answered and progress is reported."""
        log.on_progress = self._note_progress
        self._due_s = time.monotonic() + _PROGRESS_S
        self._run = run_key, log
        if not self._has_begun:
            self._has_begun = True
            before = stack_size(_STACK_BYTES)
            start_new_thread(self._serve, ())
            stack_size(before)

    def end(self) -> None:
        """Clear the current run."""
        self._run = None

    def _note_progress(self) -> None:
        if not self._is_signalled:
            self._is_signalled = True
            with suppress(OSError):  # a builder may have closed the descriptor
                os.eventfd_write(self._signal, 1)

    def _serve(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        reader = wire.FrameReader()
        poll = select.poll()
        # `fileno()` is read once: later, it returns -1 if the socket was closed, and the loop would not notice the closing.
        questions = self._questions.fileno()
        for descriptor in (questions, self._signal):
            poll.register(descriptor, select.POLLIN)
        is_progress_due = False
        while True:
            try:
                left_ms = max(0.0, 1000 * (self._due_s - time.monotonic())) if is_progress_due else None
                ready = dict(poll.poll(left_ms))
                if self._signal in ready:
                    poll.unregister(self._signal)  # ignore further signals until the progress is sent
                    is_progress_due = True
                if is_progress_due and time.monotonic() >= self._due_s:
                    is_progress_due = False
                    self._report_progress()
                    poll.register(self._signal, select.POLLIN)
                if questions in ready and not self._answer_requests(reader):
                    return
            except (OSError, wire.WireError):
                return  # the engine has ended, or a builder closed this socket: the run continues, and requests get no answers
            except MemoryError:
                pass  # the builder uses all memory or descriptors; the engine will ask again

    def _report_progress(self) -> None:
        os.eventfd_read(self._signal)
        self._is_signalled = False  # reset the flag before the percentage is read, so that a later change signals again
        run, self._due_s = self._run, time.monotonic() + _PROGRESS_S
        if run is not None and run[1].percent >= 0:
            self._questions.sendall(wire.encode(wire.FrameKind.PROGRESS, wire.RunProgress(run[0], run[1].percent)))

    def _answer_requests(self, reader: wire.FrameReader) -> bool:
        """Read and answer requests; return whether more may arrive."""
        data = self._questions.recv(_RECEIVE_BYTES)
        for kind, payload in reader.feed(data):
            question = wire.decode(kind, payload)
            if isinstance(question, wire.LogQuestion):
                self._questions.sendall(self._answer(question))
        return bool(data)

    def _answer(self, question: wire.LogQuestion) -> bytes:
        run = self._run
        if run is None or run[0] != question.run_key:
            return wire.encode(wire.FrameKind.LOG_ANSWER, wire.LogAnswer(question.run_key))
        try:
            return wire.encode(wire.FrameKind.LOG_ANSWER, wire.LogAnswer(question.run_key, *run[1].so_far(question.seen)))
        except wire.WireError:
            return wire.encode(wire.FrameKind.LOG_ANSWER, wire.LogAnswer(question.run_key))
