"""The log of one run inside a worker: records in order, bounded, with counts of warnings and errors.

Tests: `tests/worker/commands/test_workspace.py`.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable

from aptui.core.notices import LogLevel, LogRecord
from aptui.sdk import JobLog

KEPT_RECORDS = 2000
"""Kept of each end of a log; a builder that logs in a loop must not fill the engine."""
TEXT_CHARS = 16_000
ERROR_CHARS = 1000
_SANDBOX = (
    "it ran in a sandbox: wrote to its own folders alone, saw only files of the system, the project and PATH, and had no network, "
    "home folder, display or graphics card; 'sandbox_paths' in aptui.yaml shows it more, 'sandbox: off' everything"
)


class RunLog:
    """Collects the records of one run. `window` is the builder's name."""

    def __init__(self, window: str) -> None:
        self._window = window
        self._head: list[LogRecord] = []
        self._tail: deque[LogRecord] = deque(maxlen=KEPT_RECORDS)
        self._dropped = 0
        self._counts = [0, 0, 0, 0]
        self.first_error = ""

    @property
    def warnings(self) -> int:
        """Warnings so far, dropped ones too."""
        return self._counts[LogLevel.WARNING]

    @property
    def errors(self) -> int:
        """Errors so far, dropped ones too."""
        return self._counts[LogLevel.ERROR]

    def write(self, level: int, text: str, context: tuple[tuple[str, str], ...] = ()) -> None:
        """Add one record."""
        self.add(LogRecord(level, self._window, _valid(text), time.time_ns() // 1_000_000, _valid_pairs(context)))

    def add(self, record: LogRecord) -> None:
        """Add one record made elsewhere."""
        self._counts[record.level] += 1
        if record.level == LogLevel.ERROR and not self.first_error:
            self.first_error = one_line(record.text)
        if len(self._head) < KEPT_RECORDS:
            self._head.append(record)
            return
        self._dropped += len(self._tail) == KEPT_RECORDS
        self._tail.append(record)

    def note_sandbox(self) -> None:
        """Say what a run that failed had no access to, where it ran in a sandbox: that may be why."""
        if os.environ.get("APTUI_SANDBOX") == "on":
            self.write(LogLevel.INFO, _SANDBOX)

    def extend(self, records: Iterable[LogRecord]) -> None:
        """Add records made elsewhere."""
        for record in records:
            self.add(record)

    def for_builder(self) -> JobLog:
        """Return the face that the builder sees."""
        return JobLog(self.write)

    def records(self) -> tuple[LogRecord, ...]:
        """Return all records that were kept."""
        if not self._dropped:
            return (*self._head, *self._tail)
        gap = LogRecord(LogLevel.INFO, self._window, f"[… {self._dropped} records left out …]", self._head[-1].time_ms)
        return (*self._head, gap, *self._tail)


def one_line(text: str) -> str:
    """Return the first line of `text` that says something, cut to a bearable length."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= ERROR_CHARS else f"{line[:ERROR_CHARS]}…"


def valid_text(text: str) -> str:
    """Return `text` without lone surrogates (of undecodable names): no wire and no database takes them."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _valid(text: object) -> str:
    text = str(text)
    return valid_text(text if len(text) <= TEXT_CHARS else f"{text[:TEXT_CHARS]} [… {len(text) - TEXT_CHARS} characters …]")


def _valid_pairs(pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple((_valid(key), _valid(value)) for key, value in pairs)
