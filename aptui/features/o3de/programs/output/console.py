"""Output of an asset processor: lines on stdout for its parent, records in its log for tools; `lines` has their text.

Tests: `tests/features/o3de/programs/output/test_events.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TextIO

from aptui.core.notices import LogLevel
from aptui.features.o3de.programs.output import lines
from aptui.features.o3de.programs.output.lines import ProgramLog
from aptui.shared.errors import KnownError


class ProgramConsole:
    """The voice of one run.

    Args:
        stream: stdout, unless somebody tests.
        now_ms: milliseconds since 1970.
        window: what stands before warnings and errors.
    """

    def __init__(
        self, stream: TextIO, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000, window: str = lines.WINDOW
    ) -> None:
        self._window = window
        self.started_ms = now_ms()
        self.is_verbose = False
        """Whether records of debug severity are written."""
        self._stream: TextIO | None = stream
        self._now_ms = now_ms
        self._log: ProgramLog | None = None
        self._early: list[tuple[LogLevel, str, str, int]] = []
        """What was said before there was a log."""

    def keep(self, log: ProgramLog) -> None:
        """Write everything to `log` too, from the beginning of the run."""
        self._log = log
        for record in self._early:
            log.append(*record)
        self._early.clear()
        self._print_trouble(log)

    def say(self, text: str, window: str = lines.WINDOW) -> None:
        """Say a message."""
        self._print(lines.physical(window, text))
        self._record(LogLevel.INFO, window, text)

    def say_all(self, texts: Iterable[str], window: str = lines.WINDOW) -> None:
        """Say several messages."""
        for text in texts:
            self.say(text, window)

    def note(self, text: str, window: str = lines.WINDOW) -> None:
        """Write a record of debug severity, if the log is to be verbose."""
        if self.is_verbose:
            self._record(LogLevel.DEBUG, window, text)

    def warn(self, text: str, place: str = "") -> None:
        """Say a warning."""
        self._trace(LogLevel.WARNING, text, place)

    def complain(self, error: KnownError | str) -> None:
        """Say an error."""
        if isinstance(error, KnownError):
            text = f"{error.what}; {error.hint}" if error.hint else error.what
            self._trace(LogLevel.ERROR, text, error.where)
        else:
            self._trace(LogLevel.ERROR, error, "")

    def complain_fatal(self, error: KnownError) -> None:
        """Say an error that ends the run before it began, in the form in which the reference says those."""
        text = f"{error.what}; {error.hint}" if error.hint else error.what
        self._trace(LogLevel.ERROR, f"{lines.FATAL}{text}", error.where)

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()

    def _trace(self, level: LogLevel, text: str, place: str) -> None:
        self._print(lines.format_traced(level, text, place, self._window))
        self._record(level, self._window, f"{place}: {text}" if place else text)

    def _print(self, shown: Iterable[str]) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write("".join(f"{line}\n" for line in shown))
            self._stream.flush()  # tools read line by line, and wait for some of them
        except (BrokenPipeError, ValueError):
            self._stream = None

    def _record(self, level: LogLevel, window: str, text: str) -> None:
        if self._log is None:
            self._early.append((level, window, text, self._now_ms()))
            return
        was_well = not self._log.trouble
        self._log.append(level, window, text, self._now_ms())
        if was_well:
            self._print_trouble(self._log)

    def _print_trouble(self, log: ProgramLog) -> None:
        if log.trouble:
            with suppress(OSError):
                self._print(lines.format_traced(LogLevel.WARNING, log.trouble))
