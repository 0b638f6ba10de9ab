"""Defines the lines of O3DE's asset processor, the log that stores them, and the console that prints them.

Users read the lines, and tools parse them. A message has no window prefix and no final line break; `physical` adds both.
aptui's additional lines contain no text that a known tool searches for.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from aptui.config.configuration import ConfigErrors
from aptui.core.notices import LogLevel, LogRecord
from aptui.shared.errors import HostError, KnownError
from aptui.shared.printing import sanitize
from aptui.store.joblog import EngineLog

BATCH, LIVE = "AP_Batch", "AP_GUI"
"""File names of the logs without `.log`."""


WINDOW = "AssetProcessor"
"""O3DE's "window" of most lines: the name of the component that prints a line."""
SYSTEM_WINDOW = "System"
BUILDERS_WINDOW = "BuilderManager"
MOST_FAILURES = 9
"""Maximum number of failed assets whose log is printed."""
FATAL = "Error: "
"""Prefix of an error that ends the run at its start."""

RULER = "-" * 41
STARTED = "Asset Processor Batch Processing Started."
SCANNING = "Scanning file system for changes..."
SCANNED = "File system scan done."
ANALYZING = "Analyzing scanned files for changes..."
CHECKING_MISSING = "Initial Scan complete, checking for missing files..."
SHUTTING_DOWN = "No assets remain in the build queue.  Saving the catalog, and then shutting down."
COMPLETE = "Asset Processor Batch Processing complete"
COMPLETED = "Asset Processor Batch Processing Completed."
FAILED_ASSETS = "---------------FAILED ASSETS-------------"
LISTENING_PORT = "Listening Port: {}"
CONTROL_PORT = "Control Port: {}"
PROJECT_ROOT = "AssetProcessor will process assets from project root {}."
UNKNOWN_PLATFORM = (
    'The list of enabled platforms in the settings registry does not contain platform "{}" entries'
    " - check command line and settings registry files for errors!"
)
RECEIVED = "Received {} files from the scanner.  Assessing..."
PROCESSING = "Processing {} ({})..."
"""Placeholders: source, relative to its scan folder; platform."""
PROCESSED = 'Processed "{}" ("{}")... '
"""Placeholders: absolute path of the source; platform."""
JOB_FAILED = "Failed {}, ({})... "
"""Placeholders: absolute path of the source; platform."""
CREATE_JOBS_FAILED = "Createjobs Failed: {}."
IDLE = "Job processing completed. Asset Processor is currently idle. Process time: {:f}s"
MISSING_SCAN = "Scanning for missing dependencies:\t{}"
MISSING_DEPENDENCY = '\t\tMissing dependency: String "{}" matches asset: {}:{:x}'
"""Placeholders: the found text; UUID of the matching asset, in braces; sub id of this asset."""
SAVED_CATALOG = "Saved {} catalog containing {} assets in {:f}s"
"""Placeholders: platform; product count; seconds."""
CONNECTION_REFUSED = (
    "A program connected to the listening port and was refused: the Editor and launchers are served by AssetProcessor and by"
    " 'aptui serve', unless serve.o3de is false. Products are in '{}', one folder for each platform. This is printed once."
)
"""Placeholder: cache folder. The message explains why the Editor or a launcher was refused."""
TOO_MANY_ERRORS = "Too Many Compile Errors - not printing out full logs for remaining errors"

_TRACE_RULER = "=" * 66
_TRACES = {LogLevel.ERROR: "Trace::Error", LogLevel.WARNING: "Trace::Warning"}
_LEVELS = {LogLevel.DEBUG: "DEBUG", LogLevel.INFO: "Info", LogLevel.WARNING: "Warn", LogLevel.ERROR: "ERROR"}


def physical(window: str, text: str) -> list[str]:
    """Return a message as printed lines: each begins with `window`, and has no control characters of terminals."""
    return [f"{window}: {line}" for line in _lines_of(text)]


def format_traced(level: LogLevel, text: str, place: str = "", window: str = WINDOW) -> list[str]:
    """Return the printed lines of a warning or an error, between two lines of `=`; `place` is `file:line`, or empty."""
    file, _, line = place.partition(":")
    where = f" {file or 'aptui'}({line.partition(':')[0] or 0}): '{window}'"
    middle = [f"{SYSTEM_WINDOW}: {_TRACES[level]}", f"{SYSTEM_WINDOW}: {where}", *physical(window, text)]
    return [f"{SYSTEM_WINDOW}: {_TRACE_RULER}", *middle, f"{SYSTEM_WINDOW}: {_TRACE_RULER}"]


def _lines_of(text: str) -> list[str]:
    """Return the lines of a message without control characters. Tabs are kept, because some lines begin with a tab."""
    return ["\t".join(map(sanitize, line.split("\t"))) for line in re.split(r"\r\n|\r|\n", text.rstrip("\r\n"))]


def job_slots(asked: int, count: int) -> str:
    """Return the line about the number of parallel jobs, and whether the settings or the machine limit it."""
    if asked <= 1:
        return f"Auto ({asked}) selected for maxJobs: up to {count} jobs run at once on this machine."
    return f"Up to {count} jobs run at once (maxJobs)."


def optimization(analysed: int, seen: int, unclaimed: int) -> str:
    """Return the line with the number of analysed files. Its number of override collisions is always 0; only O3DE can have them."""
    return (
        f"Builder optimization: {analysed} / {seen} files required full analysis, "
        f"{unclaimed} sources found but not processed by anyone. 0 override collisions."
    )


def job_log(time_ms: int, level: int, window: str, text: str) -> str:
    """Return one line of a failed job's log in the form in which O3DE copies such lines to its own log."""
    moment = time.strftime("%x %X", time.localtime(time_ms / 1000))
    return f"JOB LOG: {moment} | {_LEVELS.get(LogLevel(level), 'Info')} | origin: {window} | {text}"


def format_preload_cycle(chain: Sequence[str]) -> str:
    """Return the warning about a cycle of preloaded products; `chain` begins and ends with the same product."""
    return (
        f"Preload circular dependency detected while processing asset ({chain[0]})."
        f" Preload hierarchy is {' -> '.join(chain)} . One of these must not be loaded before the one that needs it."
    )


# ----------------------------------------------------------------------------------------------------------------- totals


def format_failed_assets(paths: Iterable[str]) -> list[str]:
    """Return the block of failed assets, [] without failures."""
    listed = sorted(paths)
    return [FAILED_ASSETS, *listed, RULER] if listed else []


def totals(processed_count: int, failed_count: int, warnings: int, errors: int, seconds: float) -> list[str]:
    """Return the lines with the totals of all assets, which are printed at the end of a run."""
    return [
        f"Number of Assets Successfully Processed: {processed_count}.",
        f"Number of Assets Failed to Process: {failed_count}.",
        f"Number of Warnings Reported: {warnings}.",
        f"Number of Errors Reported: {errors}.",
        f"Total Assets Processing Time: {seconds:f}s",
    ]


def builder_list(builder: str, paths: Iterable[str]) -> list[str]:
    """Return the assets that one builder processed, in order, for `--debugOutput`; `builder` is its UUID in braces."""
    return [f"Builder {builder} processed these assets:", *(f"Builder with ID {builder} processed {path}" for path in paths)]


# An asset processor prints lines on stdout for its parent process, and writes records to its log for tools.


class ProgramConsole:
    """The output of one run of a program: lines on stdout, and records in its log file.

    Args:
        stream: stdout, except in tests.
        now_ms: returns milliseconds since 1970.
        window: the name of the component that warnings and errors are printed with.
    """

    def __init__(
        self, stream: TextIO, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000, window: str = WINDOW
    ) -> None:
        self._window = window
        self.started_ms = now_ms()
        self.is_verbose = False
        """Whether records of debug severity are written."""
        self._stream: TextIO | None = stream
        self._now_ms = now_ms
        self._log: EngineLog | None = None
        self._early: list[LogRecord] | None = []
        """Records from before the log was opened, None after that."""

    def open_log(self, folder: Path, base: str) -> None:
        """Also write all records, including earlier ones, to a log. If the log cannot be opened, the run continues without a log.

        Args:
            base: `BATCH` or `LIVE`.
        """
        early, self._early = self._early or (), None
        try:
            self._log = EngineLog(folder, base, self.started_ms)
        except HostError as error:
            self._print_trouble(error)
        for record in early:
            self._append(record)

    def say(self, text: str, window: str = WINDOW) -> None:
        """Print a message."""
        self._print(physical(window, text))
        self._record(LogLevel.INFO, window, text)

    def say_all(self, texts: Iterable[str], window: str = WINDOW) -> None:
        """Print several messages."""
        for text in texts:
            self.say(text, window)

    def note(self, text: str, window: str = WINDOW) -> None:
        """Write a record of debug severity, if the log is verbose."""
        if self.is_verbose:
            self._record(LogLevel.DEBUG, window, text)

    def warn(self, text: str, place: str = "") -> None:
        """Print a warning."""
        self._trace(LogLevel.WARNING, text, place)

    def complain(self, error: KnownError | str) -> None:
        """Print an error."""
        text, place = (error, "") if isinstance(error, str) else (_without_place(error), error.where)
        self._trace(LogLevel.ERROR, text, place)

    def complain_fatal(self, error: KnownError) -> None:
        """Print an error that ends the run at its start, in the form of O3DE's fatal errors; `ConfigErrors` has several errors."""
        for each in error.errors if isinstance(error, ConfigErrors) else (error,):
            self._trace(LogLevel.ERROR, f"{FATAL}{_without_place(each)}", each.where)

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def _trace(self, level: LogLevel, text: str, place: str) -> None:
        self._print(format_traced(level, text, place, self._window))
        self._record(level, self._window, f"{place}: {text}" if place else text)

    def _print(self, shown: Iterable[str]) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write("".join(f"{line}\n" for line in shown))
            self._stream.flush()  # write the lines now, because tools wait for certain lines
        except (BrokenPipeError, ValueError):
            self._stream = None

    def _record(self, level: LogLevel, window: str, text: str) -> None:
        record = LogRecord(level, window, text, self._now_ms())
        if self._early is None:
            self._append(record)
        else:
            self._early.append(record)

    def _append(self, record: LogRecord) -> None:
        if self._log is None:
            return
        try:
            self._log.append(record)
        except HostError as error:
            self.close()
            self._print_trouble(error)

    def _print_trouble(self, error: HostError) -> None:
        with suppress(OSError):
            self._print(format_traced(LogLevel.WARNING, str(error)))


def _without_place(error: KnownError) -> str:
    return f"{error.what}; {error.hint}" if error.hint else error.what
