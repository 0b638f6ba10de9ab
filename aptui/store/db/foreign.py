"""Recognizes databases that O3DE wrote, and copies them for reading, so that the originals never change.

SQLite never opens O3DE's file itself: if a database has a write-ahead log, even a reader creates a shared-memory file beside it,
and empties the log if it is the last to close the database. The copy includes the write-ahead log. If the database or its log
changes while being copied, both are copied again.
"""

from __future__ import annotations

import atexit
import os
import sqlite3
import threading
from contextlib import ExitStack, closing, suppress
from enum import Enum
from pathlib import Path

from msgspec import Struct

from aptui.shared.errors import HostError

# URIs of database files, with options for opening them (sqlite.org/uri.html).
#
# `Path.as_uri` is equivalent, but it imports `urllib` and `ipaddress`, which cost a short command 2 ms.

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/")


def uri_of(path: Path) -> str:
    """Return the URI of a file."""
    return "file://" + "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in os.fsencode(path.absolute()))


def read_only_uri(path: Path, *, is_immutable: bool = False) -> str:
    """Return the URI of a file to be read. `is_immutable`: no process writes to it, so SQLite creates no files beside it."""
    return f"{uri_of(path)}?mode=ro{'&immutable=1' if is_immutable else ''}"


COMPANIONS = ("-wal", "-journal")
"""Suffixes of files beside a database that are part of the database while they exist."""
_TRIES = 5
"""Maximum number of attempts to copy a database that is being written."""
_PREFIX = "aptui-copy-"
"""Prefix of the temporary folders of copies; the next process that copies removes the folders of dead processes."""

_Stamp = tuple[tuple[int, int, int] | None, ...]


class ForeignWriter(Enum):
    """Which program wrote a database."""

    NONE = "none"
    APTUI = "aptui"
    O3DE = "O3DE"
    OTHER = "other"


class _Copy(Struct, frozen=True):
    """A copy of a database. Closing `folder` deletes the copy's temporary folder, which this process has locked."""

    stamp: _Stamp
    path: Path
    folder: ExitStack


_ours: dict[Path, tuple[int, int, int]] = {}
"""{path: stamp} of databases that are known to be written by aptui. It is a cache, because a start checks a database several times.
"""
_copies: dict[Path, _Copy] = {}
"""{path of a database: its newest copy}."""
_former: dict[Path, _Copy] = {}
"""{path of a database: its second newest copy}."""
_lock = threading.Lock()


def writer_of(path: Path) -> ForeignWriter:
    """Return which program wrote a database, without a change to the files beside it.

    Raises:
        sqlite3.DatabaseError: the file is not a database.
        HostError: the file cannot be read.
    """
    if not path.is_file() or (path.stat().st_size == 0 and not _has_companion(path)):
        return ForeignWriter.NONE
    facts = _facts(path)
    if facts is not None and _ours.get(path) == facts:
        return ForeignWriter.APTUI
    found = None
    try:
        found = _identify_writer(read_only_uri(path, is_immutable=True))
    except sqlite3.DatabaseError:  # during a checkpoint some pages can be read only with the write-ahead log
        if not _has_companion(path):
            raise
    if found is not ForeignWriter.APTUI and _has_companion(path):  # the newest tables may exist only in the write-ahead log
        found = _identify_writer(uri_of(private_copy(path)))
    if found is ForeignWriter.APTUI and facts is not None:
        _ours[path] = facts
    return found or ForeignWriter.NONE


def private_copy(path: Path) -> Path:
    """Return a copy of a database with its write-ahead log.

    A copy is kept, and its path stays valid, until the database has changed twice. All copies are deleted when the process ends.

    Raises:
        HostError: the database cannot be copied, or another process keeps writing to it.
    """
    path = path.absolute()
    with _lock:
        known = _copies.get(path)
        stamp = _stamp(path)
        if known is not None and known.stamp == stamp:
            return known.path
        if not _copies:
            atexit.register(forget_copies)
        fresh = _copy(path)
        if known is not None:
            if path in _former:
                _former[path].folder.close()
            _former[path] = known  # the earlier copy is not deleted yet, because a caller may be about to open it
        _copies[path] = fresh
        return fresh.path


def forget_copies() -> None:
    """Delete all copies."""
    for copies in (_copies, _former):
        while copies:
            copies.popitem()[1].folder.close()


def _has_companion(path: Path) -> bool:
    return any(facts is not None and facts[0] > 0 for facts in _stamp(path)[1:])


def _identify_writer(uri: str) -> ForeignWriter:
    with closing(sqlite3.connect(uri, uri=True)) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "aptui_state" in tables:
        return ForeignWriter.APTUI
    if "dbinfo" in tables:
        return ForeignWriter.O3DE
    return ForeignWriter.OTHER if tables else ForeignWriter.NONE


def _copy(path: Path) -> _Copy:
    import shutil  # both modules are imported here for a faster start, because databases are rarely copied

    from aptui.shared.files.scratch import scratch_folder

    with ExitStack() as stack:
        try:
            copy = stack.enter_context(scratch_folder(_PREFIX)) / path.name
            for _ in range(_TRIES):
                before = _stamp(path)
                for suffix in ("", *COMPANIONS):
                    part = copy.with_name(copy.name + suffix)
                    part.unlink(missing_ok=True)
                    with suppress(FileNotFoundError):
                        shutil.copyfile(path.with_name(path.name + suffix), part)
                if _stamp(path) == before:
                    return _Copy(before, copy, stack.pop_all())
        except OSError as error:
            raise HostError(
                f"the database '{path}' cannot be copied to a temporary folder: {error.strerror or error}",
                hint="check its permissions and the free space on the disk of temporary files",
            ) from error
    raise HostError(
        f"the database '{path}' cannot be read, because another program is constantly writing it",
        hint="wait until O3DE's Asset Processor is idle",
    )


def _stamp(path: Path) -> _Stamp:
    return tuple(_facts(path.with_name(path.name + suffix)) for suffix in ("", *COMPANIONS))


def _facts(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino


def job_stat_sql() -> str:
    """Return the SQL expression of a job's name in Stats, for the aliases `f`, `s` and `j` of ScanFolders, Sources and Jobs.

    The name is O3DE's: `ProcessJob,<scan folder>,<relative path>,<job key>,<platform>,<{builder uuid}>`.
    """
    ends = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    uuid = "'{' || " + " || '-' || ".join(f"substr(hex(j.BuilderGuid), {at}, {size})" for at, size in ends) + " || '}'"
    return f"'ProcessJob,' || f.ScanFolder || ',' || s.SourceName || ',' || j.JobKey || ',' || j.Platform || ',' || {uuid}"
