"""Opens or creates the asset database. Depending on its version, an existing database is used, refused, or renamed and rebuilt."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from aptui.config.dirs import xdg
from aptui.shared.errors import HostError, KnownError, UserError
from aptui.shared.files.replacing import PRIVATE, replace_bytes
from aptui.store.db import foreign
from aptui.store.db.foreign import read_only_uri

O3DE_VERSION = 40
"""Version of O3DE's tables that aptui reads and writes (`dbinfo.Version`)."""
OWN_VERSION = 12
"""Version of the tables that begin with `aptui_`. A database with an older version is set aside, and everything is rebuilt."""
VERSION_KEY = "schema"
"""Key of `OWN_VERSION` in `aptui_state`."""
CATALOG_STATE = "catalogs"
"""Key in `aptui_state`. If the key is missing, the catalogs are out of date.

The value describes up-to-date catalogs; it is a text that `engine.cache.catalog` makes.
"""

SCHEMA_DIGEST = "35daa24ab5a8725c2c2d3083f5e57eb5"
"""Digest of the schema that `table_models.creation_sql` makes. It is a constant, so that a start need not import peewee."""
SCHEMA_SQL = "SELECT type, name, sql FROM sqlite_master WHERE name NOT GLOB 'sqlite_*' ORDER BY name"
"""Lists the objects of a schema without SQLite's own objects. Other programs cannot use SQLite's prefix `sqlite_`."""
_ODD_NAME_SQL = """
WITH names(what, name) AS (
    SELECT 'product', ProductName FROM Products UNION ALL SELECT 'folder of products', name || '/-' FROM aptui_cache_folders
    UNION ALL SELECT 'product', name FROM aptui_intents WHERE name <> ''
    UNION ALL SELECT 'product', j.value FROM aptui_intents i, json_each(CASE WHEN json_valid(i.stale) THEN i.stale ELSE '[]' END) j
    UNION ALL SELECT 'log', '-/' || LastLogFile FROM Jobs WHERE LastLogFile <> ''
    UNION ALL SELECT 'log', '-/' || log_file FROM aptui_analyses WHERE log_file <> '')
SELECT what, name FROM names WHERE '/' || name || '/' GLOB '*//*' OR '/' || name || '/' GLOB '*/../*'
    OR '/' || name || '/' GLOB '*/./*' OR name NOT GLOB '*/*' OR name GLOB '.aptui/*' LIMIT 1"""
"""SQL that finds a stored name that leads out of the cache's folders; `shared.files.confinement` refuses such a name, too."""

_LEAST_BYTES = 64 * 1024
"""Minimum free space on the disk (bytes): a reader needs 32 KiB for the index of the write-ahead log."""
_DAMAGED = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT})


class DamagedError(HostError):
    """The database has content that aptui cannot have written; the next start sets the database aside (`translate_errors`)."""


def has_rows(database: sqlite3.Connection, table: str) -> bool:
    """Whether a table has any rows."""
    return database.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is not None


def uuid_text(uuid: bytes) -> str:
    """Return 16 big-endian bytes in O3DE's form, `{UPPER-CASE}` with braces."""
    text = uuid.hex().upper()
    return f"{{{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}}}"


def wire_asset_id(uuid: bytes, sub_id: int) -> str:
    """Return an asset id as programs read it: `{UUID}:<sub id in hexadecimal>`."""
    return f"{uuid_text(uuid)}:{sub_id & 0xFFFFFFFF:x}"


def prepare(path: Path, before_creation: Callable[[], None] = lambda: None) -> str:
    """Make sure that `path` is an up-to-date asset database; return a sentence for users if an old one was set aside, else "".

    A file that cannot be used, such as a database of an older version, is renamed to `<name>.<n>.old`, never deleted.
    `before_creation` is called before a new database is created. If it fails, or if this process dies during the call, a new
    database does not exist.

    If another program wrote the database after the last call of `note_left`, the names in it are checked: a database with a name
    that leads out of the folders of the cache is also set aside.

    Raises:
        UserError: the database was written by O3DE, or by a newer version.
        HostError: the file cannot be opened or created.
    """
    with _report_failure(path, "created"):
        path.parent.mkdir(parents=True, exist_ok=True)
        obstacle = _obstacle(path)
        if obstacle is None:
            _close_to_others(path)
            return ""
        note = ""
        if obstacle:
            note = f"the asset database {obstacle}; it was moved to '{_rename_database(path)}', and everything is rebuilt"
        before_creation()
        _mark_of_damage(path).unlink(missing_ok=True)
        _create(path)
    return note


@contextlib.contextmanager
def _report_failure(path: Path, action: str) -> Iterator[None]:
    """Translate errors of SQLite and of the disk in this block; the message says that the database cannot be `action`."""
    try:
        yield
    except sqlite3.Error as error:
        raise host_error(path, error) from error
    except OSError as error:
        what = f"the asset database '{path}' cannot be {action}: {error.strerror}"
        raise HostError(what, hint="check its permissions and the free space on its disk") from error


@contextlib.contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Translate errors of SQLite and of the disk in this block into errors for users.

    If the error shows damage, the next start sets the database aside.

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
        named, is_denied = error.filename, isinstance(error, PermissionError)
        what = f"'{os.fsdecode(named)}'" if named else f"the {'folder' if is_denied else 'disk'} of the cache '{path.parent}'"
        hint = (
            f"check the permissions of {'this file and of its folder' if named else 'this folder'}"
            if is_denied
            else "check the disk"
        )
        raise HostError(f"{what} cannot be used: {error.strerror or error}", hint=f"{hint}, then start again") from error


def _is_full(path: Path) -> bool:
    """Whether the disk of `path` is full. If so, SQLite may report damage of an intact database."""
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < _LEAST_BYTES


def _mark_of_damage(path: Path) -> Path:
    return path.with_name(path.name + ".damaged")


def host_error(path: Path, error: sqlite3.Error) -> HostError:
    """Return a HostError for an error of SQLite, with its errno if it has one."""
    name = getattr(error, "sqlite_errorname", "") or type(error).__name__
    what = f"the asset database '{path}' cannot be used: {error} ({name})"
    if name == "SQLITE_FULL" or _is_full(path):  # on a full disk, SQLite may report damage
        return HostError(f"{what}: no space left on device (ENOSPC)", hint="free some space on that disk")
    if name.startswith("SQLITE_IOERR"):
        return HostError(f"{what}: input/output error (EIO)", hint="check the disk; aptui can rebuild the cache from the sources")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return DamagedError(what, hint="start again; aptui then moves the database aside and rebuilds it from the sources")
    if any(f"such {kind}" in str(error) for kind in ("table", "column")):
        return DamagedError(what, hint="delete the database; 'aptui batch' rebuilds it from the sources")
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return HostError(what, hint="check the permissions of the file and of its folder")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return HostError(what, hint="close the program that is writing it, and try again")
    return HostError(
        what, hint="try again; if this does not help, delete the database, and 'aptui batch' rebuilds it from the sources"
    )


def _obstacle(path: Path) -> str | None:
    """Return None if the database file can be used, "" if it is missing or empty, otherwise a clause about the problem."""
    if not path.exists() or path.stat().st_size == 0:
        return ""
    if _mark_of_damage(path).exists():
        return "is damaged"
    try:
        refuse_foreign(path)
        is_known = _read_stamp(path) == _stamp_of(path) != ""
        with contextlib.closing(sqlite3.connect(path, timeout=5)) as database:
            database.execute("PRAGMA trusted_schema = OFF")
            obstacle = _check_schema(path, database)
            if obstacle is None and not is_known and (odd := database.execute(_ODD_NAME_SQL).fetchone()):
                return f"has the {odd[0]} '{odd[1].removeprefix('-/').removesuffix('/-')}', whose path is outside the cache"
            return obstacle
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED and not _is_full(path):
            return f"is damaged ({error})"
        raise


def note_left(path: Path) -> None:
    """Record the state of the database file when an engine ends.

    When the next engine starts, it compares the file with this record. If the file is unchanged, the engine need not search the
    database for names of files outside the cache. The record is in this user's state folder; if the folder is not writable, every
    engine searches. The caller must close the database before the call.
    """
    stamp, file = _stamp_of(path), _file_of_stamp(path)
    if stamp and stamp != _read_stamp(path):
        with contextlib.suppress(OSError, KnownError):
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_bytes(file, stamp.encode(), mode=PRIVATE, is_synced=False)


def _read_stamp(path: Path) -> str:
    try:
        return _file_of_stamp(path).read_text("ascii")
    except (OSError, ValueError):
        return ""


def _file_of_stamp(path: Path) -> Path:
    name = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:32]
    return Path(xdg("XDG_STATE_HOME", "~/.local/state"), "databases", name)


def _stamp_of(path: Path) -> str:
    """Return a text that differs after another program has written or replaced the database, "" while the database is in use."""
    try:
        found = path.lstat()
        if os.path.exists(f"{path}-wal") and os.path.getsize(f"{path}-wal"):
            return ""
    except OSError:
        return ""
    return f"{found.st_dev} {found.st_ino} {found.st_size} {found.st_ctime_ns}"


def refuse_foreign(path: Path) -> None:
    """Raise UserError if O3DE wrote the database at `path`; the database and the files beside it are not changed."""
    found = foreign.ForeignWriter.OTHER
    with contextlib.suppress(sqlite3.DatabaseError):  # a damaged database is not refused here, because `prepare` handles it
        found = foreign.writer_of(path)
    if found is foreign.ForeignWriter.O3DE:
        raise UserError(
            f"'{path}' was written by O3DE's Asset Processor",
            hint="choose another cache folder, or add '--adopt-cache', which moves the existing files aside and uses this folder",
        )


def set_aside_foreign(path: Path) -> Path | None:
    """Rename a database that O3DE wrote to `<name>.<n>.old`, with its companion files.

    Return its new path, None if the database does not exist.

    Raises:
        HostError: the database cannot be read or renamed.
    """
    with _report_failure(path, "moved aside"):
        return _rename_database(path) if foreign.writer_of(path) is foreign.ForeignWriter.O3DE else None


def _check_schema(path: Path, database: sqlite3.Connection) -> str | None:
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return ""
    if not {"dbinfo", "aptui_state"} <= tables:  # `refuse_foreign` has already refused databases of O3DE
        return "is not an asset database"
    version = _number(database.execute("SELECT version FROM dbinfo ORDER BY version DESC LIMIT 1").fetchone())
    if version > O3DE_VERSION:
        raise UserError(
            f"the asset database '{path}' has version {version}; this aptui supports versions up to {O3DE_VERSION}",
            hint="use a newer aptui, or another cache folder",
        )
    if version < O3DE_VERSION:
        return f"has the old version {version}"
    own = _number(database.execute("SELECT value FROM aptui_state WHERE key = ?", (VERSION_KEY,)).fetchone())
    refuse_newer(path, own)
    if own < OWN_VERSION:
        return f"has the old schema {own}"
    return describe_altered(database) or None


def refuse_newer(path: Path, version: int) -> None:
    """Raise UserError if `version` of our tables is higher than `OWN_VERSION`."""
    if version > OWN_VERSION:
        raise UserError(
            f"the asset database '{path}' was written by a newer aptui", hint="use that version of aptui, or another cache folder"
        )


def describe_altered(database: sqlite3.Connection) -> str:
    """Return the first difference between the schema and the schema that aptui creates, "" = no difference.

    A foreign view or trigger runs SQL in every program that uses it, so this function does not query views.
    """
    rows = database.execute(SCHEMA_SQL).fetchall()
    if digest_of(rows) == SCHEMA_DIGEST:
        return ""
    from aptui.store.db.table_models import creation_sql

    with contextlib.closing(sqlite3.connect(":memory:")) as empty:
        for statement in creation_sql():
            empty.execute(statement)
        ours = {(kind, name): sql for kind, name, sql in empty.execute(SCHEMA_SQL)}
    found = {(kind, name): sql for kind, name, sql in rows}
    # The kinds are sorted in reverse order, so that a wrong view or trigger is reported before a wrong table.
    for (kind, name), sql in sorted(found.items(), reverse=True):
        if ours.get((kind, name)) != sql:
            return f"has the {kind} '{name}', which aptui did not make"
    for kind, name in sorted(ours.keys() - found.keys()):
        return f"has no {kind} '{name}'"
    return ""


def refuse_altered(path: Path, database: sqlite3.Connection, *, is_ours: bool) -> None:
    """Raise UserError before the first query of a database whose schema another program changed.

    O3DE's own databases have only tables and indexes.
    """
    if is_ours:
        obstacle = describe_altered(database)
    else:
        query = "SELECT type, name FROM sqlite_master WHERE type IN ('view', 'trigger')"
        obstacle = next((f"has the {kind} '{name}', which O3DE does not make" for kind, name in database.execute(query)), "")
    if obstacle:
        hint = (
            "run 'aptui batch', which moves the database aside and rebuilds it from the sources"
            if is_ours
            else "open it with the program that wrote it"
        )
        raise UserError(f"the asset database '{path}' {obstacle}", hint=hint)


def digest_of(schema: Iterable[tuple[str, str, str | None]]) -> str:
    """Return the digest of a schema, given as rows (kind, name, SQL)."""
    return hashlib.sha256(repr(schema).encode()).hexdigest()[:32]


def _number(row: tuple[object, ...] | None) -> int:
    try:
        return int(str(row[0])) if row else -1
    except ValueError:
        return -1


def _rename_database(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.name}.{number}.old")).exists():
        number += 1
    # The write-ahead log is renamed, too, because SQLite needs the log to open the database that was set aside.
    for suffix in ("-wal", "-journal", "-shm", ""):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    return aside


def _close_to_others(path: Path) -> None:
    """Remove the access of other users to the database: a process that can open it could also lock it, and so delay commits."""
    for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        with contextlib.suppress(OSError):
            found = os.stat(name, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode) and found.st_mode & 0o077 and found.st_uid == os.geteuid():
                os.chmod(name, stat.S_IMODE(found.st_mode) & 0o700)


def _create(path: Path) -> None:
    from aptui.store.db.table_models import creation_sql

    # The mode is set first, because SQLite creates the files beside a database with the mode of the database.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    _close_to_others(path)
    with contextlib.closing(sqlite3.connect(path, timeout=5, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("BEGIN IMMEDIATE")
        # One transaction creates all tables, so that the file stays empty if the transaction is interrupted.
        for statement in creation_sql():
            database.execute(statement)
        database.execute("INSERT INTO dbinfo(version) VALUES (?)", (O3DE_VERSION,))
        database.execute("INSERT INTO aptui_state VALUES (?, ?)", (VERSION_KEY, str(OWN_VERSION)))
        database.execute("COMMIT")


# A program can be started with an option to ignore that the database has a newer version. Then it calls the function below.

_PARTS = ("-wal", "-shm", "")


def delete_if_newer(path: Path) -> str:
    """Delete an asset database of a newer version; return a message about the deletion, or "" if nothing was deleted.

    The caller holds the cache, so that no other process has the database open.
    """
    version = _version(path)
    if version <= O3DE_VERSION:
        return ""
    for part in _PARTS:
        path.with_name(path.name + part).unlink(missing_ok=True)
    return (
        f"the asset database '{path}' has version {version}, newer than {O3DE_VERSION}; it was deleted, and everything is rebuilt"
    )


def _version(path: Path) -> int:
    """Return the database's version, 0 if it has no readable version."""
    if not path.is_file():
        return 0
    with contextlib.closing(sqlite3.connect(read_only_uri(path), uri=True, timeout=5)) as database:
        try:
            if database.execute("SELECT type FROM sqlite_master WHERE name = 'dbinfo'").fetchone() != ("table",):
                return 0  # `dbinfo` is missing, or another program made it a view: a query of a view may never end
            row = database.execute("SELECT MAX(version) FROM dbinfo").fetchone()
        except sqlite3.DatabaseError:
            return 0
    return row[0] if row and isinstance(row[0], int) else 0
