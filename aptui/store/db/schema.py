"""Versions of the asset database: which are opened, created, refused or set aside; the SQL of a new one is in `tables`."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from aptui.shared.errors import HostError, UserError
from aptui.store.db import foreign, upgrades

O3DE_VERSION = 40
"""Version of O3DE's tables that we read and write (`dbinfo.Version`)."""
OWN_VERSION = 11
"""Version of the tables that begin with `aptui_`; those of `upgrades.OLDEST` and later are brought up to date in place."""
VERSION_KEY = "schema"
"""Key of `OWN_VERSION` in `aptui_state`."""
RUN_KEY_STATE = "run_keys"
"""Key in `aptui_state` of the highest run key that is reserved, in decimal."""

_SIGN = 1 << 63
_LEAST_BYTES = 64 * 1024
"""A reader needs 32 KiB for the index of the log."""
_DAMAGED = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT})


class DamagedError(HostError):
    """What the database says cannot be; it is set aside at the next start (`translate_errors`)."""


def to_signed(value: int) -> int:
    """Return an unsigned 64-bit value as SQLite holds it."""
    return value - (_SIGN << 1) if value >= _SIGN else value


def to_unsigned(value: int) -> int:
    """Return what `to_signed` was given."""
    return value + (_SIGN << 1) if value < 0 else value


def has_rows(database: sqlite3.Connection, table: str) -> bool:
    """Whether there is anything in a table."""
    return database.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is not None


def uuid_text(uuid: bytes) -> str:
    """Return 16 big-endian bytes in O3DE's form, `{UPPER-CASE}` with braces."""
    text = uuid.hex().upper()
    return f"{{{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}}}"


def prepare(path: Path, before_creation: Callable[[], None] = lambda: None) -> str:
    """Make sure that `path` is an up-to-date asset database; return a sentence for people when an old one was set aside, else "".

    An older one is brought up to date in place where `upgrades` knows how. A file that cannot be is renamed to
    `<name>.<n>.old`, never deleted. `before_creation` is called when there is no database and before there is a new one:
    what it does is done even if this process dies.

    Raises:
        UserError: the database was written by O3DE, or by a newer version.
        HostError: the file cannot be opened or created.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        obstacle = _obstacle(path)
        if obstacle is None:
            _close_to_others(path)
            return ""
        note = _set_aside(path, obstacle) if obstacle else ""
        before_creation()
        _mark_of_damage(path).unlink(missing_ok=True)
        _create(path)
    except sqlite3.Error as error:
        raise host_error(path, error) from error
    except OSError as error:
        raise HostError(
            f"the asset database '{path}' cannot be created: {error.strerror}",
            hint="check its permissions and the free space on its disk",
        ) from error
    return note


@contextlib.contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Translate errors of SQLite and the disk in this block into errors for people.

    A database that proves damaged is set aside at the next start.

    Raises:
        HostError: instead of `sqlite3.Error` and `OSError`.
    """
    try:
        yield
    except (sqlite3.Error, DamagedError) as error:
        known = host_error(path, error) if isinstance(error, sqlite3.Error) else error
        if isinstance(known, DamagedError):
            with contextlib.suppress(OSError):
                _mark_of_damage(path).touch()
        raise known from error
    except OSError as error:
        what = f"'{error.filename}'" if error.filename else f"the disk of the cache '{path.parent}'"
        raise HostError(f"{what} cannot be used: {error.strerror or error}", hint="check the disk, then start again") from error


def _is_full(path: Path) -> bool:
    """Whether the disk that `path` lies on has no room for one page more: then no report of SQLite about damage is trusted."""
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < _LEAST_BYTES


def _mark_of_damage(path: Path) -> Path:
    return path.with_name(path.name + ".damaged")


def host_error(path: Path, error: sqlite3.Error) -> HostError:
    """Return what SQLite says about `path` in our words, with the errno people know where there is one."""
    name = getattr(error, "sqlite_errorname", "") or type(error).__name__
    what = f"the asset database '{path}' cannot be used: {error} ({name})"
    if name == "SQLITE_FULL" or _is_full(path):  # a reader without room for its shared memory speaks of damage
        return HostError(f"{what}: no space left on device (ENOSPC)", hint="free some space on that disk")
    if name.startswith("SQLITE_IOERR"):
        return HostError(f"{what}: input/output error (EIO)", hint="check the disk; the cache can be rebuilt from the sources")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return DamagedError(what, hint="start again: it is set aside then, and rebuilt from the sources")
    if str(error).startswith(("no such table", "no such column")):
        return DamagedError(what, hint="delete it: 'aptui batch' rebuilds it from the sources")
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return HostError(what, hint="check the permissions of the file and of its folder")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return HostError(what, hint="another program holds it for writing")
    return HostError(what, hint="try again; if it stays so, delete it: 'aptui batch' rebuilds it from the sources")


def _obstacle(path: Path) -> str | None:
    """Return why the file cannot be used, "" when there is nothing in it, None when it is up to date."""
    if not path.exists() or path.stat().st_size == 0:
        return ""
    if _mark_of_damage(path).exists():
        return "is damaged"
    try:
        refuse_foreign(path)
        with contextlib.closing(sqlite3.connect(path, timeout=5)) as database:
            return _check_schema(path, database)
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED and not _is_full(path):
            return f"is damaged ({error})"
        raise


def refuse_foreign(path: Path) -> None:
    """Raise UserError when O3DE wrote the database at `path`, without a change to it or beside it."""
    found = foreign.ForeignWriter.OTHER
    with contextlib.suppress(sqlite3.DatabaseError):  # a damaged one is `prepare`'s business
        found = foreign.writer_of(path)
    if found is foreign.ForeignWriter.O3DE:
        raise UserError(
            f"'{path}' was written by O3DE's Asset Processor",
            hint="name another cache folder, or take this one over with '--adopt-cache', which sets aside what is there",
        )


def set_aside_foreign(path: Path) -> Path | None:
    """Rename a database that O3DE wrote to `<name>.<n>.old`, with its companion files.

    Return where it is now, None when there is none.

    Raises:
        HostError: it cannot be read or renamed.
    """
    try:
        return _rename_database(path) if foreign.writer_of(path) is foreign.ForeignWriter.O3DE else None
    except sqlite3.Error as error:
        raise host_error(path, error) from error
    except OSError as error:
        raise HostError(
            f"the asset database '{path}' cannot be set aside: {error.strerror}",
            hint="check its permissions and the free space on its disk",
        ) from error


def _check_schema(path: Path, database: sqlite3.Connection) -> str | None:
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return ""
    if "dbinfo" not in tables:
        return "is no asset database"
    version = _number(database.execute("SELECT version FROM dbinfo ORDER BY version DESC LIMIT 1").fetchone())
    if version > O3DE_VERSION:
        raise UserError(
            f"the asset database '{path}' has version {version}, newer than {O3DE_VERSION}, which this program knows",
            hint="use the newer program, or another cache folder",
        )
    if version < O3DE_VERSION:
        return f"has the old version {version}"
    own = _number(database.execute("SELECT value FROM aptui_state WHERE key = ?", (VERSION_KEY,)).fetchone())
    if own > OWN_VERSION:
        raise UserError(
            f"the asset database '{path}' was written by a newer aptui", hint="use the newer aptui, or another cache folder"
        )
    if own != OWN_VERSION and not upgrades.upgrade(database, own, VERSION_KEY):
        return f"has the old schema {own}"
    return None


def _number(row: tuple[object, ...] | None) -> int:
    try:
        return int(str(row[0])) if row else -1
    except ValueError:
        return -1


def _set_aside(path: Path, obstacle: str) -> str:
    return f"the asset database {obstacle}; it was set aside as '{_rename_database(path)}' and everything is rebuilt"


def _rename_database(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.name}.{number}.old")).exists():
        number += 1
    # The write-ahead log belongs to the file and keeps its suffix, so that SQLite can open what was set aside.
    for suffix in ("-wal", "-journal", "-shm", ""):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    return aside


def _close_to_others(path: Path) -> None:
    """Take other users' access to the database away: whoever can open it can lock it, and keep what is committed back."""
    for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        with contextlib.suppress(OSError):
            found = os.stat(name, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode) and found.st_mode & 0o077 and found.st_uid == os.geteuid():
                os.chmod(name, stat.S_IMODE(found.st_mode) & 0o700)


def _create(path: Path) -> None:
    from aptui.store.db.tables.creation import creation_sql

    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # SQLite gives its other files the mode of this one
    _close_to_others(path)
    with contextlib.closing(sqlite3.connect(path, timeout=5, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("BEGIN IMMEDIATE")
        # One transaction: a file that was left half-made holds nothing, and is made again.
        for statement in creation_sql():
            database.execute(statement)
        database.execute("INSERT INTO dbinfo(version) VALUES (?)", (O3DE_VERSION,))
        database.execute("INSERT INTO aptui_state VALUES (?, ?)", (VERSION_KEY, str(OWN_VERSION)))
        database.execute("COMMIT")
