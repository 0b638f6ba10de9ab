"""Printing of results for users and programs: safe text, tables, JSON, durations.

All untrusted text is passed through `line`, so that no escape sequence reaches a terminal. JSON is pure ASCII,
so it is safe already.

Tests: `tests/cli/test_read_verbs.py`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import stat
import sys
import time
from collections.abc import Iterable, Sequence
from typing import TextIO

_LEAST_COLUMN = 12
"""Minimum width (terminal columns) to which the text columns of a table are cut."""
_MINUTE_S, _HOUR_MIN, _KIBI = 60, 60, 1024
_COLOURS = {"red": "31", "yellow": "33", "green": "32", "dim": "2", "bold": "1"}


def prepare_streams() -> None:
    """Prevent errors from closed standard streams, and from characters that the terminal's encoding does not have.

    Without this, a process started with closed streams (`>&-`) would open its first files, such as the database, as stdout.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # `open` returns the lowest free descriptor, which is the descriptor of the closed stream
            nowhere = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(nowhere, mode, encoding="utf-8", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            # `reconfigure` flushes the stream first. If this fails, the error is ignored here, because a later `flush` reports it.
            with contextlib.suppress(OSError):
                reconfigure(errors="backslashreplace")


is_always_coloured = False
"""Whether colours are also written to pipes and files (`--color always`)."""


def is_terminal(stream: TextIO) -> bool:
    """Whether `stream` is a terminal."""
    try:
        return stream.isatty()
    except ValueError:
        return False


def find_redirected() -> list[tuple[int, os.stat_result]]:
    """Return (descriptor, status) of standard output and standard error if they are regular files."""
    found = []
    for descriptor in (1, 2):
        try:
            seen = os.fstat(descriptor)
        except OSError:
            continue
        if stat.S_ISREG(seen.st_mode):
            found.append((descriptor, seen))
    return found


def width(stream: TextIO) -> int | None:
    """Return the width of the terminal `stream` in columns; None = `stream` is a pipe or a file, so text is not cut."""
    if not is_terminal(stream):
        return None
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def has_colour(stream: TextIO) -> bool:
    """Whether to write colours to `stream`: it is a terminal that supports them, and NO_COLOR is not set (no-color.org)."""
    return is_always_coloured or (is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb")


def colour_text(text: str, colour: str, stream: TextIO) -> str:
    """Return `text` in a colour if `stream` shows colours."""
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if colour and has_colour(stream) else text


def say(text: str = "", colour: str = "") -> None:
    """Write one line to stdout; the caller has sanitized `text`."""
    sys.stdout.write(colour_text(text, colour, sys.stdout) + "\n")


def say_now(text: str) -> None:
    """Write one line to stdout and flush it. Otherwise a pipe would get the line only when the verb ends."""
    say(text)
    flush()


def flush() -> None:
    """Flush stdout. Use this function, because `is_of_stdout` recognizes errors that were raised in this module."""
    sys.stdout.flush()


def complain(text: str, colour: str = "") -> None:
    """Write one line to stderr; the caller has sanitized `text`."""
    try:
        sys.stderr.write(colour_text(text, colour, sys.stderr) + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass  # stderr is closed: the text cannot be shown


def complain_of(error: Exception) -> None:
    """Write the traceback of a bug to stderr, so that the process can continue although stderr is closed or its disk is full."""
    import traceback  # imported here, because a bug is rare

    complain(sanitize_lines("".join(traceback.format_exception(error)).rstrip()))


def ask_consent(question: str, stream: TextIO) -> bool:
    """Print a question, and return whether the user types "y" or "yes"; any other answer is a no."""
    stream.write(f"{question} (y/N) ")
    stream.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def say_json(value: object) -> None:
    """Write one JSON value and a line break to stdout."""
    sys.stdout.write(json.dumps(value) + "\n")


def say_answer(is_json: bool, answer: object, text: str) -> int:
    """Write an answer, as JSON or as text; return exit code 0."""
    say_json(answer) if is_json else say(text)
    return 0


def say_json_list(rows: Iterable[object]) -> None:
    """Write a JSON list with one element per line; `rows` may be a generator, and is not collected in memory."""
    separator = "[\n"
    for row in rows:
        sys.stdout.write(separator + json.dumps(row))
        separator = ",\n"
    sys.stdout.write("[]\n" if separator == "[\n" else "\n]\n")


def is_of_stdout(error: OSError) -> bool:
    """Whether the error is a failed write to standard output."""
    try:
        sys.stdout.flush()
    except OSError:
        return True  # the flush fails, too, because the buffer still contains the unwritten text
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and last.tb_frame.f_code.co_filename == __file__


def silence_stdout() -> None:
    """Prevent an error when the interpreter flushes stdout at its end, because the reader of the pipe is gone."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


# ------------------------------------------------------------------------------------------------------------------ tables


class LineOutput(io.StringIO):
    """Output for screen readers, line by line: each row of a table names its values."""


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[int] = (),
    spare: Sequence[int] = (),
    stream: TextIO | None = None,
) -> None:
    """Write an aligned table. On a terminal, cells are cut so that a row fits into one line. The table sanitizes the cells.

    Args:
        header: one text per column.
        rows: each has one text per column.
        right: indices of columns that are numbers; they are never cut.
        spare: indices of columns that are left out on a narrow terminal, in this order.
        stream: stdout by default.
    """
    stream = stream or sys.stdout
    cells = [[line(cell) for cell in row] for row in rows]
    if isinstance(stream, LineOutput):
        for first, *rest in cells:
            named = [f"{name} {cell}" for name, cell in zip(header[1:], rest, strict=True) if cell]
            stream.write(f"{first}: {', '.join(named)}\n")
        return
    widths = [max(columns_of(cell) for cell in column) for column in zip(header, *cells, strict=True)]
    shown = list(range(len(header)))
    limit = width(stream)
    if limit is not None:
        shown = _squeeze(widths, limit, right, spare)
    stream.write(colour_text(_row(header, widths, right, shown), "bold", stream) + "\n")
    for row in cells:
        cut = [shorten(cell, size) for cell, size in zip(row, widths, strict=True)]
        stream.write(_row(cut, widths, right, shown) + "\n")


def _row(cells: Sequence[str], widths: Sequence[int], right: Sequence[int], shown: Sequence[int]) -> str:
    parts = []
    for index in shown:
        cell = cells[index]
        padding = " " * (widths[index] - columns_of(cell))
        parts.append(padding + cell if index in right else cell + padding)
    return "  ".join(parts).rstrip()


def _squeeze(widths: list[int], limit: int, right: Sequence[int], spare: Sequence[int]) -> list[int]:
    """Fit a row into `limit` columns: leave out spare columns, then shorten the widest text columns. Return the shown columns.

    A row may stay too wide if no column can be cut further.
    """
    shown = list(range(len(widths)))
    gone = list(spare)
    least = [size if index in right else min(size, _LEAST_COLUMN) for index, size in enumerate(widths)]
    while gone and sum(least[index] + 2 for index in shown) - 2 > limit:
        shown.remove(gone.pop(0))
    over = sum(widths[index] + 2 for index in shown) - 2 - limit
    while over > 0:
        index = max((index for index in shown if index not in right), key=widths.__getitem__)
        if widths[index] <= _LEAST_COLUMN:
            break
        widths[index] -= 1
        over -= 1
    return shown


def columns_of(text: str) -> int:
    """Return the width of `text` on a terminal in columns; the caller has sanitized `text`."""
    if text.isascii():
        return len(text)
    import unicodedata

    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) != 0 for char in text)


def shorten(text: str, limit: int) -> str:
    """Return `text`; if it needs more than `limit` columns, cut its middle, because both ends of a path matter."""
    if columns_of(text) <= limit:
        return text
    head = tail = ""
    front, back = 0, len(text)
    while front < back:
        if columns_of(head) <= columns_of(tail):
            head, front = head + text[front], front + 1
        else:
            back -= 1
            tail = text[back] + tail
        if columns_of(head) + columns_of(tail) >= limit - 1:
            break
    while head and columns_of(head) + columns_of(tail) > limit - 1:
        head = head[:-1]
    return f"{head}…{tail}"


# ------------------------------------------------------------------------------------------------------------------- words


def duration(seconds: float) -> str:
    """Return a duration for users: `12 ms`, `3.4 s`, `2 min 5 s`, `1 h 10 min`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < _MINUTE_S:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), _MINUTE_S)
    return f"{minutes} min {rest} s" if minutes < _HOUR_MIN else f"{minutes // _HOUR_MIN} h {minutes % _HOUR_MIN} min"


def size(byte_count: int) -> str:
    """Return a size in binary units."""
    value = float(byte_count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < _KIBI:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= _KIBI
    return f"{value:.1f} TiB"


def count(number: int, noun: str) -> str:
    """Return `1 job`, `2,000 jobs`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def when(time_ms: int) -> str:
    """Return a time in local time for users, or "" if `time_ms` is 0 (never)."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_ms / 1000)) if time_ms else ""


def minute(time_ms: int) -> str:
    """Return a time in local time for users, without seconds."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(time_ms / 1000))


def iso(time_ms: int) -> str | None:
    """Return a time in UTC for programs (ISO 8601), or None if `time_ms` is 0 (never)."""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(time_ms // 1000))}.{time_ms % 1000:03d}Z" if time_ms else None


# The streams and signals that a process inherits from its parent could break the process. So a process calls `prepare` first.


def prepare() -> None:
    """Reset inherited streams and signals that would break this process.

    A process that ignores SIGCHLD cannot wait for its children (wait(2)): the exit codes of commands and workers would be lost.
    """
    prepare_streams()
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


# ---------------------------------------------------------------------------------------------------------------- safe text

# Sanitizing makes untrusted text (of builders, file names, logs) safe for a terminal.
#
# Complete and incomplete escape sequences are removed, in 7-bit and 8-bit form. Other control characters are replaced, so that they
# cannot form a new sequence: C0 by its picture (`␛`), C1, bidirectional and zero-width controls by U+FFFD. Bytes of a file name
# that are not UTF-8 (`core.paths.to_text`) appear as `\xNN`. The raw text stays unchanged in the log file and in the database.

TAB = "    "
_PICTURES = 0x2400
_DELETE = 0x7F

# The pattern is not compiled at the import, because most text is plain and `batch` without work must not spend time on compiling.
# `re` caches the compiled pattern.
# The pattern has one alternative for each kind of sequence. Each part of an alternative excludes the first characters of the next
# part, so that the time to match is linear in the length of any text.
# An unterminated string sequence (OSC, DCS, APC, PM, SOS) ends at the end of its line, so that it does not hide the rest of a log.
_SEQUENCE = (
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI
    r"|(?:\x1b[]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x18\x1a\x1b\x9c\r\n]*(?:\x07|\x18|\x1a|\x1b\\|\x9c)?"  # OSC, DCS, SOS, PM, APC
    r"|\x1b[ -/]+[0-~]?"  # choice of character sets, as in `tput sgr0`
)
_C0 = r"[\x00-\x1f\x7f]"
_HIDDEN = (
    "[\x80-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udc7f\udd00-\udfff\U000e0000-\U000e0fff]"
)
_BYTES = "[\udc80-\udcff\U0010ff80-\U0010ffff]"


def sanitize(text: str) -> str:
    """Return `text` as one line without escape sequences and control characters; line breaks are shown as symbols such as `␊`."""
    if text.isprintable():
        return text
    text = re.sub(_SEQUENCE, "", text).replace("\t", TAB)
    text = re.sub(_C0, _picture, text)
    text = re.sub(_HIDDEN, "\ufffd", text)
    return re.sub(_BYTES, lambda found: f"\\x{ord(found[0]) & 0xFF:02x}", text)


line = sanitize


def sanitize_lines(text: str) -> str:
    r"""Return `text` as `sanitize` does, but keep its line breaks (`\n`, `\r\n`) as `\n`."""
    return "\n".join(sanitize(line) for line in text.replace("\r\n", "\n").split("\n"))


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    return "\u2421" if code == _DELETE else chr(_PICTURES + code)
