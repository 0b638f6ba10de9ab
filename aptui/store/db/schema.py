"""Versions of the asset database: which are opened, created, refused or set aside; the SQL of a new one is in `tables`."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from aptui.config.dirs import xdg
from aptui.shared.errors import HostError, KnownError, UserError
from aptui.shared.files.replacing import PRIVATE, replace_bytes
from aptui.store.db import foreign
from aptui.store.db.foreign import read_only_uri

# Upgrades of older asset databases in place: each step leads to the next version of our tables, in one transaction.
#
# A version before `OLDEST` is set aside by `schema` and everything is rebuilt. A step changes what `tables` says today, so it
# names tables and columns itself and uses nothing of that module.

OLDEST = 2
"""The first version that can be brought up to date."""
_LAST_WITHOUT_VIEWS, _VIEWS_SINCE_6 = 5, {"Files", "Stats"}
_ORIGIN = "its result is "


def upgrade(database: sqlite3.Connection, version: int, key: str) -> bool:
    """Bring `database`, whose tables are of `version`, up to date; return whether that is possible.

    Args:
        key: of the version in `aptui_state`.
    """
    views = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'view'")}
    if version not in STEPS or not views <= (_VIEWS_SINCE_6 if version > _LAST_WITHOUT_VIEWS else set()):
        return False
    database.isolation_level = None
    database.execute("BEGIN IMMEDIATE")
    # The schema is compared afterwards. Until then triggers must not run and views must not be read: another program may have
    # made them.
    triggers = database.execute("SELECT replace(name, '\"', '\"\"'), sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _sql in triggers:
        database.execute(f'DROP TRIGGER "{name}"')
    while version in STEPS:
        STEPS[version](database)
        version += 1
    database.execute("UPDATE aptui_state SET value = ? WHERE key = ?", (str(version), key))
    for _name, sql in triggers:
        database.execute(sql)
    database.execute("COMMIT")
    return True


def _origin_is_a_column(database: sqlite3.Connection) -> None:
    """Move the origin of results from the end of the reason into a column."""
    for table, columns in (("aptui_jobs", "job_id"), ("aptui_runs", "job_id, run_key")):
        database.execute(f"ALTER TABLE {table} ADD COLUMN origin TEXT NOT NULL DEFAULT ''")
        found = database.execute(f"SELECT reason, {columns} FROM {table} WHERE instr(reason, ?)", (_ORIGIN,)).fetchall()
        where = " AND ".join(f"{column.strip()} = ?" for column in columns.split(","))
        for text, *keys in found:
            reason, _, origin = text.rpartition(_ORIGIN)
            values = (reason.removesuffix("; "), origin, *keys)
            database.execute(f"UPDATE {table} SET reason = ?, origin = ? WHERE {where}", values)


_PLACE = "f.ScanFolderPK = s.ScanFolderPK AND f.FileName = s.SourceName AND f.FileName = s.SourceName COLLATE BINARY"
_UUID = " || '-' || ".join(f"substr(hex(j.BuilderGuid), {at}, {size})" for at, size in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12)))
_VIEWS = (
    "ALTER TABLE aptui_sources ADD COLUMN mtime_ms INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE aptui_sources ADD COLUMN hash64 INTEGER NOT NULL DEFAULT 0",
    f"""UPDATE aptui_sources SET mtime_ms = f.ModTime, hash64 = f.Hash FROM Sources s CROSS JOIN Files f
    WHERE s.SourceID = source_id AND {_PLACE}""",
    """CREATE TABLE aptui_files (file_id INTEGER NOT NULL PRIMARY KEY, scan_folder_id INTEGER NOT NULL,
    name TEXT NOT NULL COLLATE NOCASE, is_folder INTEGER NOT NULL, mtime_ms INTEGER NOT NULL, hash64 INTEGER NOT NULL)""",
    f"""INSERT INTO aptui_files SELECT FileID, ScanFolderPK, FileName, IsFolder, ModTime, Hash FROM Files f
    WHERE NOT EXISTS (SELECT 1 FROM Sources s WHERE {_PLACE})""",
    "DROP TABLE Files",
    "CREATE UNIQUE INDEX aptui_files_name ON aptui_files(scan_folder_id, name COLLATE BINARY)",
    """CREATE TRIGGER aptui_files_go AFTER DELETE ON ScanFolders BEGIN
    DELETE FROM aptui_files WHERE scan_folder_id = OLD.ScanFolderID; END""",
    """CREATE TABLE aptui_stats (name TEXT NOT NULL COLLATE NOCASE PRIMARY KEY, value_ms INTEGER NOT NULL,
    time_ms INTEGER NOT NULL) WITHOUT ROWID""",
    "INSERT INTO aptui_stats SELECT StatName, StatValue, LastLogTime FROM Stats WHERE StatName LIKE 'CreateJobs,%'",
    "DROP TABLE Stats",
    """CREATE VIEW Files AS SELECT 2 * s.SourceID AS FileID, s.ScanFolderPK AS ScanFolderPK, s.SourceName AS FileName,
    0 AS IsFolder, o.mtime_ms AS ModTime, o.hash64 AS Hash FROM Sources s JOIN aptui_sources o ON o.source_id = s.SourceID
    UNION ALL SELECT 2 * f.file_id + 1, f.scan_folder_id, f.name, f.is_folder, f.mtime_ms, f.hash64 FROM aptui_files f
    WHERE NOT EXISTS (SELECT 1 FROM Sources s WHERE s.ScanFolderPK = f.scan_folder_id AND s.SourceName = f.name
    AND s.SourceName = f.name COLLATE BINARY)""",
    f"""CREATE VIEW Stats AS SELECT ('ProcessJob,' || f.ScanFolder || ',' || s.SourceName || ',' || j.JobKey || ',' || j.Platform
    || ',' || '{{' || {_UUID} || '}}') COLLATE NOCASE AS StatName, o.duration_ms AS StatValue, o.completed_ms AS LastLogTime
    FROM Jobs j JOIN aptui_jobs o ON o.job_id = j.JobID JOIN Sources s ON s.SourceID = j.SourcePK
    JOIN ScanFolders f ON f.ScanFolderID = s.ScanFolderPK WHERE o.completed_ms > 0
    UNION ALL SELECT name, value_ms, time_ms FROM aptui_stats""",
)
"""Makes O3DE's Files and Stats views of our rows."""

_NOW_MS = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
_SESSION_TABLES = (
    """CREATE TABLE aptui_sessions (session_id INTEGER NOT NULL PRIMARY KEY, started_ms INTEGER NOT NULL,
    ended_ms INTEGER NOT NULL, kind TEXT NOT NULL, detail TEXT NOT NULL, commit_id TEXT NOT NULL, outcome TEXT NOT NULL,
    run_key INTEGER NOT NULL, jobs_run INTEGER NOT NULL, jobs_failed INTEGER NOT NULL, jobs_gone INTEGER NOT NULL,
    restored INTEGER NOT NULL, work_ms INTEGER NOT NULL, saved_ms INTEGER NOT NULL, fetched_bytes INTEGER NOT NULL,
    failing INTEGER NOT NULL)""",
    """CREATE TABLE aptui_session_runs (job_id INTEGER NOT NULL, session_id INTEGER NOT NULL, outcome INTEGER NOT NULL,
    is_restored INTEGER NOT NULL, duration_ms INTEGER NOT NULL, ended_after_ms INTEGER NOT NULL, size INTEGER NOT NULL,
    PRIMARY KEY (job_id, session_id)) WITHOUT ROWID""",
    """CREATE TABLE aptui_gone_jobs (job_id INTEGER NOT NULL PRIMARY KEY, source TEXT NOT NULL, platform TEXT NOT NULL,
    job_key TEXT NOT NULL, builder BLOB NOT NULL, gone_ms INTEGER NOT NULL)""",
    "CREATE INDEX aptui_session_runs_session ON aptui_session_runs(session_id)",
    f"""CREATE TRIGGER aptui_gone_Sources BEFORE DELETE ON Sources BEGIN INSERT OR REPLACE INTO aptui_gone_jobs
    SELECT JobID, OLD.SourceName, Platform, JobKey, BuilderGuid, {_NOW_MS} FROM Jobs WHERE SourcePK = OLD.SourceID; END""",
    f"""CREATE TRIGGER aptui_gone_Jobs BEFORE DELETE ON Jobs BEGIN INSERT OR REPLACE INTO aptui_gone_jobs
    SELECT OLD.JobID, SourceName, OLD.Platform, OLD.JobKey, OLD.BuilderGuid, {_NOW_MS} FROM Sources
    WHERE SourceID = OLD.SourcePK; END""",
)
_SESSION_ROWS = (
    f"""INSERT INTO aptui_sessions SELECT 0, 0, {_NOW_MS}, 'before', '', '', '', MAX(JobRunKey), 0, 0, 0, 0, 0, 0, 0, 0
    FROM Jobs HAVING COUNT(*) > 0""",
    """INSERT INTO aptui_session_runs SELECT j.JobID, 0, r.outcome, r.origin <> '', r.duration_ms, r.completed_ms,
    (SELECT COALESCE(SUM(o.size), 0) FROM Products p JOIN aptui_products o ON o.product_id = p.ProductID WHERE p.JobPK = j.JobID)
    FROM Jobs j JOIN aptui_runs r ON r.job_id = j.JobID AND r.run_key = j.JobRunKey""",
)
"""Runs before the upgrade belong to the session "before all sessions"."""

_FACTS = (
    """CREATE TABLE aptui_facts (product_id INTEGER NOT NULL PRIMARY KEY, width INTEGER NOT NULL, height INTEGER NOT NULL,
    triangles INTEGER NOT NULL, rate INTEGER NOT NULL, seconds REAL NOT NULL, format TEXT NOT NULL)""",
    """CREATE TRIGGER aptui_facts_go AFTER DELETE ON Products BEGIN
    DELETE FROM aptui_facts WHERE product_id = OLD.ProductID; END""",
)
"""Existing products have no facts until their jobs run again."""

_RETRIES = (
    "CREATE TABLE aptui_retries (job_id INTEGER NOT NULL PRIMARY KEY, run_key INTEGER NOT NULL, kinds TEXT NOT NULL)",
    """CREATE TRIGGER aptui_retries_go AFTER DELETE ON Jobs BEGIN
    DELETE FROM aptui_retries WHERE job_id = OLD.JobID; END""",
)
"""Retries of earlier runs are unknown."""

_DRAFTS = (
    "CREATE TABLE aptui_drafts (job_id INTEGER NOT NULL PRIMARY KEY)",
    """CREATE TRIGGER aptui_drafts_go AFTER DELETE ON Jobs BEGIN
    DELETE FROM aptui_drafts WHERE job_id = OLD.JobID; END""",
)
"""Whatever is there already is a final."""

_MARK_DRAFTS = (
    "ALTER TABLE aptui_drafts ADD COLUMN final INTEGER",
    "ALTER TABLE aptui_session_runs ADD COLUMN is_draft INTEGER NOT NULL DEFAULT 0",
    """UPDATE aptui_session_runs SET is_draft = 1 WHERE (job_id, session_id) IN (SELECT r.job_id, MAX(r.session_id)
    FROM aptui_drafts d JOIN aptui_session_runs r ON r.job_id = d.job_id WHERE r.outcome = 0 GROUP BY r.job_id)""",
)
"""Of the runs so far, the last one of a job that rests on a draft made it; earlier ones count as finals."""

_SUCCEEDED = 0
_LAST_OUTCOME = "(SELECT outcome FROM aptui_runs r WHERE r.job_id = JobID ORDER BY r.run_key DESC LIMIT 1)"
_FAILURES = (
    "ALTER TABLE aptui_jobs ADD COLUMN failure TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE aptui_analyses ADD COLUMN failure TEXT NOT NULL DEFAULT ''",
    f"""UPDATE aptui_jobs SET state = 'waiting', planned = NULL WHERE state = 'completed' AND job_id IN
    (SELECT JobID FROM Jobs WHERE Status = 4 AND COALESCE({_LAST_OUTCOME}, {_SUCCEEDED}) <> {_SUCCEEDED})""",
    f"""UPDATE Jobs SET Fingerprint = 0, Status = CASE Status WHEN 4 THEN 0 ELSE Status END
    WHERE Status IN (2, 4) AND COALESCE({_LAST_OUTCOME}, {_SUCCEEDED}) <> {_SUCCEEDED}""",
    "UPDATE aptui_analyses SET state = 'waiting', fingerprint = NULL WHERE state = 'completed' AND errors > 0",
    "UPDATE aptui_analyses SET fingerprint = NULL WHERE state = 'failed'",
)
"""A job that needed no run after it had failed kept warnings, errors and log of the failed run.

The previous values are unknown, so such a job runs again once. So does a failed job whose inputs are changed back to those of
its products.
"""


def _step(*statements: str) -> Callable[[sqlite3.Connection], None]:
    """Return a step that performs statements."""

    def perform(database: sqlite3.Connection) -> None:
        for sql in statements:
            database.execute(sql)

    return perform


STEPS: dict[int, Callable[[sqlite3.Connection], None]] = {
    OLDEST: _origin_is_a_column,
    3: _step(*_SESSION_TABLES, *_SESSION_ROWS),
    4: _step(*_FACTS),
    5: _step(*_VIEWS),
    6: _step(*_RETRIES),
    7: _step(*_DRAFTS),
    8: _step(*_MARK_DRAFTS),
    9: _step(*_FAILURES),
    10: _step("ALTER TABLE aptui_cache_folders RENAME COLUMN mtime_ns TO ctime_ns"),
}
"""{version: what leads to the next one}."""


O3DE_VERSION = 40
"""Version of O3DE's tables that we read and write (`dbinfo.Version`)."""
OWN_VERSION = 11
"""Version of the tables that begin with `aptui_`; those of `upgrades.OLDEST` and later are brought up to date in place."""
VERSION_KEY = "schema"
"""Key of `OWN_VERSION` in `aptui_state`."""
RUN_KEY_STATE = "run_keys"
"""Key in `aptui_state` of the highest run key that is reserved, in decimal."""

SCHEMA_DIGESTS = ("4540ac45bb698dda2974ffafc8ea1348", "863d5da0c8a99bc643802c1f20158118")
"""Digests of the schema that `tables.creation` makes: of its text, and of `_objects_of` for a database that was brought up to date.
A comparison with them does not import peewee."""
_COMMA = re.compile(r",(?![^()]*\))")
_ADDED_DEFAULT = re.compile(r" DEFAULT (?:''|0)(?=,|$)")
"""Default of an added column; columns of a new table have no default."""
_ODD_NAME_SQL = """
WITH names(what, name) AS (
    SELECT 'product', ProductName FROM Products UNION ALL SELECT 'folder of products', name || '/-' FROM aptui_cache_folders
    UNION ALL SELECT 'product', name FROM aptui_intents WHERE name <> ''
    UNION ALL SELECT 'product', j.value FROM aptui_intents i, json_each(CASE WHEN json_valid(i.stale) THEN i.stale ELSE '[]' END) j
    UNION ALL SELECT 'log', '-/' || LastLogFile FROM Jobs WHERE LastLogFile <> ''
    UNION ALL SELECT 'log', '-/' || log_file FROM aptui_analyses WHERE log_file <> '')
SELECT what, name FROM names WHERE '/' || name || '/' GLOB '*//*' OR '/' || name || '/' GLOB '*/../*'
    OR '/' || name || '/' GLOB '*/./*' OR name NOT GLOB '*/*' OR name GLOB '.aptui/*' LIMIT 1"""
"""Finds a name by which clean-up would leave the folders of the cache; `shared.files.confinement` refuses the same when it acts."""

_SIGN = 1 << 63
_LEAST_BYTES = 64 * 1024
"""A reader needs 32 KiB for the index of the log."""
_DAMAGED = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT})


class DamagedError(HostError):
    """Impossible content of the database, which is set aside at the next start (`translate_errors`)."""


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
    what it does is done even if this process dies. A database that another program wrote since `note_left` is also set aside if a
    name in it leads out of the folders of the cache.

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
    """Return an error with our words for SQLite's, and with the errno if there is one."""
    name = getattr(error, "sqlite_errorname", "") or type(error).__name__
    what = f"the asset database '{path}' cannot be used: {error} ({name})"
    if name == "SQLITE_FULL" or _is_full(path):  # a reader without room for its shared memory speaks of damage
        return HostError(f"{what}: no space left on device (ENOSPC)", hint="free some space on that disk")
    if name.startswith("SQLITE_IOERR"):
        return HostError(f"{what}: input/output error (EIO)", hint="check the disk; the cache can be rebuilt from the sources")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return DamagedError(what, hint="start again: it is set aside then, and rebuilt from the sources")
    if any(f"such {kind}" in str(error) for kind in ("table", "column")):
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
        is_known = _read_stamp(path) == _stamp_of(path) != ""
        with contextlib.closing(sqlite3.connect(path, timeout=5)) as database:
            database.execute("PRAGMA trusted_schema = OFF")
            obstacle = _check_schema(path, database)
            if obstacle is None and not is_known and (odd := database.execute(_ODD_NAME_SQL).fetchone()):
                return f"names the {odd[0]} '{odd[1].removeprefix('-/').removesuffix('/-')}', which would not lie in the cache"
            return obstacle
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED and not _is_full(path):
            return f"is damaged ({error})"
        raise


def note_left(path: Path) -> None:
    """Note in this user's state folder how an engine leaves the database, so that the next engine need not check its names.

    The caller has closed the database. Without a state folder each engine checks them.
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
    """Return what changes when another program writes the database or puts another one in its place, "" if it is in use."""
    try:
        found = path.lstat()
        if os.path.exists(f"{path}-wal") and os.path.getsize(f"{path}-wal"):
            return ""
    except OSError:
        return ""
    return f"{found.st_dev} {found.st_ino} {found.st_size} {found.st_ctime_ns}"


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

    Return its new path, None if it does not exist.

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
    if not {"dbinfo", "aptui_state"} <= tables:  # `foreign` has refused one of O3DE's
        return "is not an asset database"
    version = _number(database.execute("SELECT version FROM dbinfo ORDER BY version DESC LIMIT 1").fetchone())
    if version > O3DE_VERSION:
        raise UserError(
            f"the asset database '{path}' has version {version}, newer than {O3DE_VERSION}, the latest supported version",
            hint="use the newer program, or another cache folder",
        )
    if version < O3DE_VERSION:
        return f"has the old version {version}"
    own = _number(database.execute("SELECT value FROM aptui_state WHERE key = ?", (VERSION_KEY,)).fetchone())
    if own > OWN_VERSION:
        raise UserError(
            f"the asset database '{path}' was written by a newer aptui", hint="use the newer aptui, or another cache folder"
        )
    if own != OWN_VERSION and not upgrade(database, own, VERSION_KEY):
        return f"has the old schema {own}"
    return describe_altered(database) or None


def describe_altered(database: sqlite3.Connection) -> str:
    """Return the first difference between the schema and ours, "" = none.

    A foreign view or trigger runs SQL in every program that opens the database. Views are not read here.
    """
    rows = database.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall()
    if _digest_of(rows) == SCHEMA_DIGESTS[0]:
        return ""
    found = _objects_of(rows)
    if _digest_of(sorted(found.items())) == SCHEMA_DIGESTS[1]:
        return ""
    from aptui.store.db.table_models import creation_sql

    with contextlib.closing(sqlite3.connect(":memory:")) as empty:
        for statement in creation_sql():
            empty.execute(statement)
        ours = _objects_of(empty.execute("SELECT type, name, sql FROM sqlite_master"))
    for (kind, name), sql in sorted(found.items(), reverse=True):  # views and triggers first
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
            "'aptui batch' sets it aside and rebuilds it from the sources" if is_ours else "open it with the program that made it"
        )
        raise UserError(f"the asset database '{path}' {obstacle}", hint=hint)


def _objects_of(rows: Iterable[tuple[str, str, str | None]]) -> dict[tuple[str, str], str]:
    """Return {(kind, name): SQL} of all tables, indexes, views and triggers, from their rows (kind, name, SQL).

    The SQL is in a form in which a table with columns that were added later equals one that was made with them.
    """
    found = {}
    for kind, name, sql in rows:
        if name.startswith("sqlite_"):
            continue  # SQLite's own: other programs cannot create objects with this prefix
        text = (sql or "").replace('"', "")
        if kind == "table":
            head, _, body = text.partition("(")
            parts = _COMMA.split(_ADDED_DEFAULT.sub("", body.rpartition(")")[0]))
            text = f"{head}({','.join(sorted(' '.join(sorted(part.split())) for part in parts))})"
        text = " ".join(text.split())
        found[kind, name] = text.lower()
    return found


def _digest_of(schema: object) -> str:
    return hashlib.sha256(repr(schema).encode()).hexdigest()[:32]


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
    """Remove other users' access to the database: a process that can open it can lock it, and delay commits."""
    for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        with contextlib.suppress(OSError):
            found = os.stat(name, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode) and found.st_mode & 0o077 and found.st_uid == os.geteuid():
                os.chmod(name, stat.S_IMODE(found.st_mode) & 0o700)


def _create(path: Path) -> None:
    from aptui.store.db.table_models import creation_sql

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


# Databases of a future version, for programs that would rather lose one than stop; the rest about versions is in `schema`.

_PARTS = ("-wal", "-shm", "")


def delete_if_newer(path: Path) -> str:
    """Delete an asset database of a newer version; return a message about it, "" if there was nothing to delete.

    The caller holds the cache, so that no other process has it open.
    """
    version = _version(path)
    if version <= O3DE_VERSION:
        return ""
    for part in _PARTS:
        path.with_name(path.name + part).unlink(missing_ok=True)
    return (
        f"the asset database '{path}' has version {version}, newer than {O3DE_VERSION}: it was deleted, and everything is rebuilt"
    )


def _version(path: Path) -> int:
    """Return the database's version, 0 if it has no readable version."""
    if not path.is_file():
        return 0
    with contextlib.closing(sqlite3.connect(read_only_uri(path), uri=True, timeout=5)) as database:
        try:
            if database.execute("SELECT type FROM sqlite_master WHERE name = 'dbinfo'").fetchone() != ("table",):
                return 0  # a view of others may never end
            row = database.execute("SELECT MAX(version) FROM dbinfo").fetchone()
        except sqlite3.DatabaseError:
            return 0
    return row[0] if row and isinstance(row[0], int) else 0
