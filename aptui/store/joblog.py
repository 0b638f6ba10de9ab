"""Log files in O3DE's format: the logs of jobs and the engine's own log; other modules decide what is logged.

A record is one physical line: `~~<ms>~~<severity>~~<thread id hex>~~<window>~~<message>`. Severities are 0 (debug) to 5
(exception). Further content of a record is written in the text of messages: context as lines `C: [key] = value` before each line of
the record, warnings and errors as `W: window: text` and `E: window: text`.
"""

from __future__ import annotations

import errno
import os
import re
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from msgspec import Struct

from aptui.core.notices import LogLevel, LogRecord
from aptui.core.paths import os_path
from aptui.shared.errors import HostError
from aptui.shared.files.confinement import ConfinedTree
from aptui.shared.files.replacing import read_regular
from aptui.shared.printing import count
from aptui.store.db.schema import uuid_text

if TYPE_CHECKING:
    from aptui.core.model import Job

ENGINE_LOG_BYTES = 4 * 1024 * 1024
"""Maximum size (bytes) of the engine's log. A full log is renamed, and a new one begins."""
MOST_ENGINE_LOGS = 5
"""Maximum number of the engine's logs that are kept, including the log that is being written."""
_HEADER_FIELD_CHARS = 80
"""Maximum length of a header field; a line with a longer field is not a record."""
_LINE_BYTES = 1024
"""Number of bytes that are read for each requested line at the end of a log; if they do not suffice, more are read."""
_NAME_BYTES = 255
"""Maximum length of a file name in bytes, on all common file systems (NAME_MAX)."""

_RECORD = re.compile(r"~~(?P<ms>.*?)~~(?P<severity>.*?)~~(?P<thread>.*?)~~(?P<window>.*?)~~(?P<text>.*)", re.DOTALL)
# O3DE treats a path on drive C as malformed context; this pattern does not match such a path.
_IS_CONTEXT = re.compile(r"C:(?![\\/])|(?i:ctx:|context:)")
_CONTEXT = re.compile(r"(?:C:|(?i:ctx:|context:))\s*\[([^\n\r\[\]]+)\]\s*=\s*(.*)", re.DOTALL)
_LINE_END = re.compile(r"\r\n|\n|\r")
# The prefixes that O3DE's log viewer accepts: short forms in upper case, long forms in any case.
_PREFIXES = (
    (re.compile(r"W:|(?i:warn:|warning:)"), LogLevel.WARNING),
    (re.compile(r"E:|(?i:err:|error:)"), LogLevel.ERROR),
)
# O3DE marks errors and warnings with spans of rich text. If a line was cut, the end tag of its span is missing.
_SPAN = re.compile(r'<span\s+severity="(err|warn)"\s*>(.*?)(?:</span>|$)', re.IGNORECASE | re.DOTALL)
_COMPILER_TIME = re.compile(r"\A\s*\d+:\d\d(?=\s)")
_TALLY = re.compile(r"^(\d{1,9}) errors, (\d{1,9}) warnings$")
_SHORT = re.compile(r"[WES]: ")
_MARK = {LogLevel.WARNING: "W: ", LogLevel.ERROR: "E: "}
_MOST_LOGS = 16
"""Number of logs of a job above which old logs are deleted: twice the number of runs that are listed at most, and more."""


class JobLogLine(Struct, frozen=True):
    """One line of a log as it is shown to users, with the context of its record."""

    level: int
    window: str
    text: str
    time_ms: int
    context: tuple[tuple[str, str], ...] = ()


# ------------------------------------------------------------------------------------------------------------------- names


def name_of(job: Job, folders: Mapping[int, str]) -> str:
    """Return the path of the log of a job's last run, relative to the log folder; `folders` is {id: name} of scan folders."""
    if job.is_analysis:
        return analysis_log_name(job.source.rel, job.builder)
    return log_name(folders[job.source.scan_folder], job.source.rel, job.platform, job.key, job.builder, job.run_key)


def log_name(scan_folder: str, rel: str, platform: str, key: str, builder: bytes, run_key: int) -> str:
    """Return the path of the log of one run, relative to the log folder; `scan_folder` is its name, `builder` 16 bytes."""
    crc = zlib.crc32("\n".join((scan_folder, rel, platform, key, uuid_text(builder))).encode())
    return f"JobLogs/{_shorten(rel, f'-{crc:08x}-{run_key}.log')}"


def analysis_log_name(rel: str, builder: bytes) -> str:
    """Return the path of the log of the last analysis, relative to the log folder."""
    return f"JobLogs/{_shorten(rel, f'-{uuid_text(builder)}_createJobs.log')}"


def _shorten(rel: str, ending: str) -> str:
    """Return `rel` + `ending` with every part cut to the length of a file name; a cut part ends with its CRC to stay unique."""
    *folders, name = rel.split("/")
    return "/".join((*(_cut(folder, _NAME_BYTES) for folder in folders), _cut(name, _NAME_BYTES - len(ending)) + ending))


def _cut(name: str, limit: int) -> str:
    data = name.encode()
    if len(data) <= limit:
        return name
    ending = f"~{zlib.crc32(data):08x}"
    return data[: limit - len(ending)].decode(errors="ignore") + ending


def remove_superseded(log_dir: Path, folders: Iterable[str], list_logs: Callable[[], Iterable[str]]) -> None:
    """Delete old logs of the jobs that have more than `_MOST_LOGS` logs; errors are ignored.

    A log stays if it is listed. It also stays if it is newer than the listed logs of its job, because the row of its run may not be
    saved yet.

    Args:
        folders: folders below `log_dir` in which logs were written.
        list_logs: returns the logs of the runs that the database lists, relative to `log_dir`. It reads the rows of all jobs, so it
            is called only if a job has too many logs.
    """
    many: dict[str, list[str]] = {}
    for folder in folders:
        with suppress(OSError):
            files = os.listdir(log_dir / folder)
            jobs = {job for job, logs in Counter(map(_job_of, files)).items() if logs > _MOST_LOGS}
            for file in files if jobs else ():  # almost always empty: a folder may have the logs of 100,000 jobs
                if _job_of(file) in jobs and _run_key_of(file) >= 0:
                    many.setdefault(f"{folder}/{_job_of(file)}", []).append(file)
    if not many:
        return
    listed: dict[str, set[str]] = {}
    for folder, _, file in (os_path(name).rpartition("/") for name in list_logs()):
        listed.setdefault(f"{folder}/{_job_of(file)}", set()).add(file)
    with suppress(OSError), closing(ConfinedTree(os.fsencode(log_dir))) as tree:
        for job, files in many.items():
            runs = listed.get(job, set())
            newest = max(map(_run_key_of, runs), default=-1)
            for file in files:
                if file not in runs and _run_key_of(file) < newest:
                    with suppress(OSError):
                        tree.unlink(os.fsencode(f"{job.rpartition('/')[0]}/{file}"))


def _job_of(file: str) -> str:
    """Return the part of the name of a log that all runs of its job share."""
    return file.rpartition("-")[0]


def _run_key_of(file: str) -> int:
    """Return the run key in the name of a log, -1 = the name does not have a run key."""
    key = file.rpartition("-")[2].removesuffix(".log")
    return int(key) if key.isascii() and key.isdecimal() else -1


# ----------------------------------------------------------------------------------------------------------------- writing


def write(path: Path, records: Sequence[LogRecord], warnings: int, errors: int) -> bool:
    """Write the log of a run to a file, as `write_below` does."""
    return write_below(path.parent, os.fsencode(path.name), records, warnings, errors)


def write_below(folder: Path, name: bytes, records: Sequence[LogRecord], warnings: int, errors: int) -> bool:
    """Write the log of a run in one step; return whether the run has records, and so a log.

    Records without a time get the current time, because the core has no clock. The file is not synced, because losing a log in a
    power cut is harmless.

    Args:
        name: path of the log below `folder`. It may come from a database, so it is refused if it leads out of the folder.
    """
    if not records:
        return False
    now_ms = time.time_ns() // 1_000_000
    lines = [line for record in records for line in _record_lines(record, now_ms)]
    lines.append(_record(records[-1].time_ms or now_ms, LogLevel.INFO, "aptui", f"S: {errors} errors, {warnings} warnings"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with closing(ConfinedTree(os.fsencode(folder))) as tree:
            tree.write(name, _encode(lines))
    except OSError as error:
        raise _not_written(folder / os.fsdecode(name), error) from error
    return True


def _not_written(path: Path, error: OSError) -> HostError:
    what = f"the log '{path}' cannot be written: {error.strerror}"
    return HostError(what, hint="check its permissions and the free space on its disk")


def _encode(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")


def lines_of(records: Sequence[LogRecord]) -> list[JobLogLine]:
    """Return the same lines as `parse` would return after these records are written to a log."""
    now_ms = time.time_ns() // 1_000_000
    return parse_text("".join(f"{line}\n" for record in records for line in _record_lines(record, now_ms)), now_ms)


def _record_lines(record: LogRecord, now_ms: int = 0) -> Iterator[str]:
    time_ms = record.time_ms or now_ms
    window = _field(record.window)
    mark = f"{_MARK[LogLevel(record.level)]}{window}: " if record.level in _MARK else ""
    context = [f"C: [{_context_key(key)}] = {_one_line(value)}" for key, value in record.context]
    for line in _LINE_END.split(record.text):
        for entry in context:
            yield _record(time_ms, LogLevel.INFO, window, entry)
        yield _record(time_ms, record.level, window, mark + line)


def _record(time_ms: int, level: int, window: str, message: str) -> str:
    return f"~~{time_ms}~~{int(level)}~~{threading.get_native_id():x}~~{window}~~{message}"


def _field(text: str) -> str:
    """Return `text` as a header field: one line, shorter than the limit, without field separators."""
    return _one_line(text).replace("~~", "--")[: _HEADER_FIELD_CHARS - 1].strip("~")


def _one_line(text: str) -> str:
    return _LINE_END.sub(" ", text)


def _context_key(key: str) -> str:
    return _one_line(key).replace("[", "(").replace("]", ")") or "?"


# ----------------------------------------------------------------------------------------------------------------- reading


def is_tally(text: str) -> bool:
    """Whether a line is O3DE's last line of a log, which contains only the numbers of errors and warnings."""
    return _TALLY.match(text) is not None


def spoken(text: str) -> str:
    """Return the text of a line for users, with correct plurals in O3DE's last line of a log ("1 errors")."""
    found = _TALLY.match(text)
    return f"{count(int(found[1]), 'error')}, {count(int(found[2]), 'warning')}" if found else text


def parse(path: Path) -> list[JobLogLine]:
    """Return the lines of a log for users; a line that is not a record becomes a message.

    Raises:
        HostError: the file is missing or cannot be read.
    """
    data, now_ms = _read(path)
    return parse_text(data.decode("utf-8", "replace"), now_ms)


def parse_end(path: Path, line_count: int) -> list[JobLogLine]:
    """Return the last lines of a log for users. Unlike `parse`, it does not read the beginning of a long log.

    Raises:
        HostError: the file is missing or cannot be read.
    """
    most_bytes = _LINE_BYTES * (line_count + 1)
    while True:
        data, now_ms = _read(path, most_bytes, is_tail=True)
        is_whole = len(data) < most_bytes
        text = (data if is_whole else data.partition(b"\n")[2]).decode("utf-8", "replace")
        lines = parse_text(text, now_ms)
        if is_whole or len(lines) > line_count:  # one more line, because the context of the first line may have been cut off
            return lines[-line_count:]
        most_bytes *= 4


def _read(path: Path, most_bytes: int = -1, *, is_tail: bool = False) -> tuple[bytes, int]:
    """Return the bytes of a log, or of its end, and the time of its last change (ms since 1970)."""
    try:
        return read_regular(path, most_bytes, is_tail=is_tail), path.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError:
        raise HostError(f"the log '{path}' no longer exists", hint="the next run of the job writes a log") from None
    except OSError as error:
        hint = "remove it" if error.errno == errno.EINVAL else "check its permissions"
        raise HostError(f"the log '{path}' cannot be read: {error.strerror}", hint=hint) from error


def parse_text(text: str, now_ms: int) -> list[JobLogLine]:
    """Return the lines of a log; `now_ms` is the time of lines that have no time."""
    physical = _LINE_END.split(text)
    if physical[-1] == "":
        physical.pop()
    lines: list[JobLogLine] = []
    context: dict[str, str] = {}
    for line in physical:
        level, window, message, time_ms = _split(line, now_ms)
        if _IS_CONTEXT.match(message):
            entry = _CONTEXT.fullmatch(message)
            if entry:
                context[entry[1]] = entry[2]
            continue
        level, message = _clean(level, window, message)
        lines.append(JobLogLine(level, window, message, time_ms, tuple(context.items())))
        context.clear()
    return lines


def _split(line: str, now_ms: int) -> tuple[int, str, str, int]:
    """Return (level, window, message, time in ms) of a physical line."""
    record = _RECORD.fullmatch(line)
    if record is None or any(len(field) >= _HEADER_FIELD_CHARS for field in record.groups()[:4]):
        return LogLevel.INFO, "Message", line.rstrip(), now_ms
    try:
        time_ms, severity = int(record["ms"]), int(record["severity"])
    except ValueError:
        return LogLevel.INFO, "Message", line.rstrip(), now_ms
    return min(max(severity, LogLevel.DEBUG), LogLevel.ERROR), record["window"], record["text"].rstrip(), time_ms


def _clean(level: int, window: str, message: str) -> tuple[int, str]:
    """Return the level of the message, and the message without its prefix and the tags of spans.

    A prefix for warnings or errors determines the level. Without this prefix, the first tagged span determines it. Without a span,
    the level is `level`. After a prefix for warnings or errors, the name of the log window (`window`) is removed, too.
    """
    for prefix, level_name in _PREFIXES:
        match = prefix.match(message)
        if match:
            rest = _COMPILER_TIME.sub("", message[match.end() :], count=1).removeprefix(" ")
            return level_name, _SPAN.sub(r"\2", _without_window(rest, window))
    span = _SPAN.search(message)
    if span:
        level_name = LogLevel.ERROR if span[1].lower() == "err" else LogLevel.WARNING
        return level_name, _SPAN.sub(r"\2", message)
    return level, _SHORT.sub("", message, count=1) if _SHORT.match(message) else message


def _without_window(text: str, window: str) -> str:
    if text == f"{window}:":
        return ""
    return text.removeprefix(f"{window}: ")


# --------------------------------------------------------------------------------------------------------- the engine's log


def _open_to_append(path: Path) -> BinaryIO:
    return open(path, "ab", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666))


def engine_logs(log_dir: Path, base: str = "aptui") -> list[Path]:
    """Return the engine's own logs: first the log that is being written, then the others, the newest first.

    The list is empty if the folder cannot be read.
    """
    rolled = [path for path in log_dir.glob(f"{base}.*.log") if path.name[len(base) + 1 : -4].isdigit()]
    rolled.sort(key=lambda path: -int(path.name[len(base) + 1 : -4]))
    current = log_dir / f"{base}.log"
    return [*([current] if os.path.isfile(current) else []), *rolled]  # `Path.is_file` would raise PermissionError


class EngineLog:
    """The engine's own log, `<folder>/<base>.log`; a full log is renamed to `<base>.<epoch>.log`, and only the newest logs stay.

    Args:
        begins: text of the first record; "" = the first three records are those with which O3DE's logs begin.
    """

    def __init__(self, folder: Path, base: str, started_ms: int, begins: str = "") -> None:
        self._folder = folder
        self._base = base
        self._path = folder / f"{base}.log"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = _open_to_append(self._path)
        except OSError as error:
            raise _not_written(self._path, error) from error
        if begins:
            self.append(LogRecord(LogLevel.INFO, base, begins, started_ms))
            return
        ruler = "=" * 60
        self.append(
            *(LogRecord(LogLevel.INFO, "none", text, started_ms) for text in (ruler, "AzFramework File Logging New Run", ruler))
        )

    def append(self, *records: LogRecord) -> None:
        """Append records; if they do not fit into the log, rename the log first and begin a new one."""
        data = _encode([line for record in records for line in _record_lines(record)])
        try:
            if self._file.tell() and self._file.tell() + len(data) > ENGINE_LOG_BYTES:
                self._roll(records[0].time_ms // 1000)
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise _not_written(self._path, error) from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _roll(self, epoch_s: int) -> None:
        self._file.close()
        while (rolled := self._folder / f"{self._base}.{epoch_s}.log").exists():
            epoch_s += 1
        self._path.rename(rolled)
        self._file = _open_to_append(self._path)
        for path in engine_logs(self._folder, self._base)[MOST_ENGINE_LOGS:]:
            path.unlink(missing_ok=True)
