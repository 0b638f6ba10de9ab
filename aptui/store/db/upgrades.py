"""Upgrades of older asset databases in place: each step leads to the next version of our tables, in one transaction.

A version before `OLDEST` is set aside by `schema` and everything is rebuilt. A step changes what `tables` says today, so
it names tables and columns itself and uses nothing of that module.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

OLDEST = 2
"""The first version that can be brought up to date."""
_ORIGIN = "its result is "


def upgrade(database: sqlite3.Connection, version: int, key: str) -> bool:
    """Bring `database`, whose tables are of `version`, up to date; return whether that is possible.

    Args:
        key: of the version in `aptui_state`.
    """
    if version not in STEPS:
        return False
    database.isolation_level = None
    database.execute("BEGIN IMMEDIATE")
    while version in STEPS:
        STEPS[version](database)
        version += 1
    database.execute("UPDATE aptui_state SET value = ? WHERE key = ?", (str(version), key))
    database.execute("COMMIT")
    return True


def _origin_is_a_column(database: sqlite3.Connection) -> None:
    """Where a result came from was the end of the sentence that says why its job ran."""
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
"""O3DE's Files and Stats repeated what our rows hold; they are views of them from now on."""

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
"""What ran so far is what was before the first session."""

_FACTS = (
    """CREATE TABLE aptui_facts (product_id INTEGER NOT NULL PRIMARY KEY, width INTEGER NOT NULL, height INTEGER NOT NULL,
    triangles INTEGER NOT NULL, rate INTEGER NOT NULL, seconds REAL NOT NULL, format TEXT NOT NULL)""",
    """CREATE TRIGGER aptui_facts_go AFTER DELETE ON Products BEGIN
    DELETE FROM aptui_facts WHERE product_id = OLD.ProductID; END""",
)
"""What is there already has none until its jobs run again."""

_RETRIES = (
    "CREATE TABLE aptui_retries (job_id INTEGER NOT NULL PRIMARY KEY, run_key INTEGER NOT NULL, kinds TEXT NOT NULL)",
    """CREATE TRIGGER aptui_retries_go AFTER DELETE ON Jobs BEGIN
    DELETE FROM aptui_retries WHERE job_id = OLD.JobID; END""",
)
"""Of what ran so far nobody knows what was tried again."""

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
"""A job that needed no run after it had failed kept warnings, errors and log of the failed run. Nothing tells what they were
before, so such a job runs again once, and so does one that is failed now and is put back to what its products are made of."""


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
