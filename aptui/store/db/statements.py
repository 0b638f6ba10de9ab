"""The SQL of each row operation of `core.rows`; `writer` executes it.

Tests: `tests/store/db/test_writer.py`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from operator import itemgetter
from typing import Any, TypeVar, cast

from aptui.core.model import FileFact
from aptui.core.rows import ROW_OPERATIONS
from aptui.store.db.folder_blobs import pack_files

# The SQL that ends a session and prunes old sessions, executed in a transaction of an idle engine.
#
# Until a session ends, the database has no row about it: its engine keeps in memory when and why the session began. The runs of the
# session are found by their run keys, which are higher than those of earlier sessions. So if an engine is killed, the next engine
# still finds the runs of its last session.

PRUNED_AT_ONCE = 5_000
"""Maximum number of runs that one transaction prunes: it takes some milliseconds, and a save may have to wait for it."""
_MOST_REASONS = 1_000

_LAST = "(SELECT MAX(session_id) FROM aptui_sessions)"
_KEY_BEFORE = f"COALESCE((SELECT MAX(run_key) FROM aptui_sessions WHERE session_id < {_LAST}), 0)"
_FAILED = 1
_SIZE = """(SELECT COALESCE(SUM(o.size), 0) FROM Products p JOIN aptui_products o ON o.product_id = p.ProductID
    WHERE p.JobPK = j.JobID)"""
_FAILING = """(SELECT COUNT(*) FROM Jobs j JOIN aptui_jobs o ON o.job_id = j.JobID WHERE j.Status <> 4 AND o.state = 'failed')
    + (SELECT COUNT(*) FROM aptui_analyses WHERE (state <> 'completed' OR fingerprint IS NULL) AND state = 'failed')"""
_MINE = f"aptui_session_runs r WHERE r.session_id = {_LAST}"

PUT_SESSION = (
    """INSERT INTO aptui_sessions SELECT COALESCE((SELECT MAX(session_id) FROM aptui_sessions), 0) + 1, ?, ?, ?, ?, ?, ?,
    MAX(COALESCE((SELECT MAX(JobRunKey) FROM Jobs), 0), COALESCE((SELECT MAX(run_key) FROM aptui_sessions), 0)),
    0, 0, 0, 0, 0, ?, ?, 0""",
    # If the start of the session is unknown (started_ms is 0), the start of its first run is used. A failure of a job that
    # could not run has the time 0.
    f"""UPDATE aptui_sessions SET
    started_ms = COALESCE((SELECT MIN(r.completed_ms - r.duration_ms) FROM Jobs j JOIN aptui_runs r ON r.job_id = j.JobID
        AND r.run_key = j.JobRunKey WHERE j.JobRunKey > {_KEY_BEFORE} AND r.completed_ms > 0), 0),
    ended_ms = COALESCE((SELECT MAX(r.completed_ms) FROM Jobs j JOIN aptui_runs r ON r.job_id = j.JobID
        AND r.run_key = j.JobRunKey WHERE j.JobRunKey > {_KEY_BEFORE}), 0)
    WHERE session_id = {_LAST} AND started_ms = 0""",
    f"""INSERT OR REPLACE INTO aptui_session_runs SELECT j.JobID, s.session_id, r.outcome, r.origin <> '', r.duration_ms,
    COALESCE(NULLIF(r.completed_ms, 0), s.ended_ms) - s.started_ms, {_SIZE},
    EXISTS (SELECT 1 FROM aptui_drafts d WHERE d.job_id = j.JobID)
    FROM Jobs j JOIN aptui_runs r ON r.job_id = j.JobID AND r.run_key = j.JobRunKey
    JOIN aptui_sessions s ON s.session_id = {_LAST} WHERE j.JobRunKey > {_KEY_BEFORE} ORDER BY j.JobID""",
    f"""UPDATE aptui_sessions SET
    (jobs_run, jobs_failed, restored, work_ms) = (SELECT COUNT(*), COALESCE(SUM(outcome = {_FAILED}), 0),
        COALESCE(SUM(is_restored), 0), COALESCE(SUM(duration_ms * (is_restored = 0)), 0) FROM {_MINE}),
    jobs_gone = (SELECT COUNT(*) FROM aptui_gone_jobs WHERE gone_ms >= started_ms),
    failing = {_FAILING},
    detail = CASE detail WHEN '' THEN COALESCE((SELECT r.reason FROM (SELECT JobID, JobRunKey FROM Jobs
        WHERE JobRunKey > {_KEY_BEFORE} ORDER BY JobRunKey LIMIT {_MOST_REASONS}) j JOIN aptui_runs r
        ON r.job_id = j.JobID AND r.run_key = j.JobRunKey GROUP BY r.reason ORDER BY COUNT(*) DESC, r.reason LIMIT 1), '')
        ELSE detail END
    WHERE session_id = {_LAST}""",
    # A session is deleted if it had no effect, unless it followed a checkout or a new configuration. It had no effect if no job ran
    # or was deleted, and the number of failed jobs stayed the same.
    f"""DELETE FROM aptui_sessions WHERE session_id = {_LAST} AND session_id > 1 AND jobs_run = 0 AND jobs_gone = 0
    AND kind NOT IN ('checkout', 'configuration')
    AND failing = (SELECT failing FROM aptui_sessions WHERE session_id < {_LAST} ORDER BY session_id DESC LIMIT 1)""",
)
"""Statements of the operation `put_session`; only the first statement has parameters."""

_PART = f"SELECT job_id FROM aptui_session_runs WHERE session_id = ? ORDER BY job_id LIMIT {PRUNED_AT_ONCE}"
PRUNE_SESSION = (
    """INSERT OR IGNORE INTO aptui_sessions VALUES (0, 0, 0, 'before', '', '', '', 0, 0, 0, 0, 0, 0, 0, 0, 0)""",
    f"""INSERT OR REPLACE INTO aptui_session_runs SELECT r.job_id, 0, r.outcome, r.is_restored, r.duration_ms,
    r.ended_after_ms + s.started_ms, r.size, r.is_draft
    FROM aptui_sessions s JOIN aptui_session_runs r ON r.session_id = s.session_id
    WHERE s.session_id = ? AND r.job_id IN ({_PART}) AND r.job_id IN (SELECT JobID FROM Jobs)""",
    f"DELETE FROM aptui_session_runs WHERE session_id = ? AND job_id IN ({_PART})",
    """DELETE FROM aptui_gone_jobs WHERE gone_ms < (SELECT ended_ms FROM aptui_sessions WHERE session_id = ?)
    AND NOT EXISTS (SELECT 1 FROM aptui_session_runs WHERE session_id = ?)""",
    "DELETE FROM aptui_sessions WHERE session_id = ? AND NOT EXISTS (SELECT 1 FROM aptui_session_runs WHERE session_id = ?)",
)
"""Statements of the operation `prune_session`; the value of all their parameters is the session's id."""


K = TypeVar("K")
V = TypeVar("V")
Parameters = tuple[object, ...]
Statement = tuple[str, Callable[[Parameters], Parameters] | None]
"""(SQL, function that selects its parameters from the operation's parameters; None = all of them)."""

MOST_RUNS = 5
"""Number of runs of each job that are kept. The last successful run is always kept, so that users can restore it.
"""
_NO_UUID = "zeroblob(16)"


def _upsert(table: str, columns: str, key: str, values: str = "", *, fixed: str = "") -> str:
    """Return the SQL that inserts a row, or updates the row with the same key if it differs.

    Args:
        fixed: columns that never change. They are not updated, because an update would write their indexes again even for equal
            values.
    """
    names = [name.strip() for name in columns.split(",")]
    never = {name.split()[0] for name in f"{key}, {fixed}".split(", ") if name}
    may = [name for name in names if name not in never]
    updates = ", ".join(f"{name} = excluded.{name}" for name in may)
    # Names are compared as BINARY, because names that differ only in case are different names.
    differs = " OR ".join(f"{name} IS NOT excluded.{name} COLLATE BINARY" for name in may)
    values = values or ", ".join("?" * len(names))
    return f"INSERT INTO {table}({columns}) VALUES ({values}) ON CONFLICT({key}) DO UPDATE SET {updates} WHERE {differs}"


def _replace(table: str, count: int) -> str:
    """Return the SQL of a cheap upsert. It deletes the old row first, so it is only for tables to which no other table refers."""
    return f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * count)})"


def _make_repeat(count: int) -> Callable[[Parameters], Parameters]:
    return lambda row: row * count


def _pack_folder(row: Parameters) -> Parameters:
    """Pack the files of a folder if the core has not packed them; runs in the writer's thread."""
    return row if isinstance(row[3], bytes) else (*row[:3], pack_files(cast("Sequence[FileFact]", row[3])))


# '-' follows ',' in ASCII, so the range has all names that begin with "CreateJobs,<path>,".
_DROP_ANALYSIS_STATS = (
    "DELETE FROM aptui_stats WHERE name >= (SELECT 'CreateJobs,' || SourceName || ',' FROM Sources WHERE SourceID = ?) "
    "AND name < (SELECT 'CreateJobs,' || SourceName || '-' FROM Sources WHERE SourceID = ?)"
)
_JOB_COLUMNS = (
    "JobID, SourcePK, JobKey, Fingerprint, Platform, BuilderGuid, Status, JobRunKey, FirstFailLogTime, FirstFailLogFile, "
    "LastFailLogTime, LastFailLogFile, LastLogTime, LastLogFile, ErrorCount, WarningCount"
)
_JOB_WIDTH = _JOB_COLUMNS.count(",") + 1

_SQL: dict[str, tuple[Statement, ...]] = {
    "drop_source": (
        (_DROP_ANALYSIS_STATS, lambda row: (row[0], row[0])),
        ("DELETE FROM SourceDependency WHERE SourceGuid = (SELECT SourceGuid FROM Sources WHERE SourceID = ?)", None),
        ("DELETE FROM Sources WHERE SourceID = ?", None),
    ),
    "drop_analysis": (("DELETE FROM aptui_analyses WHERE source_id = ? AND builder = ?", None),),
    "drop_job": (("DELETE FROM Jobs WHERE JobID = ?", None),),
    "drop_products": (("DELETE FROM Products WHERE JobPK = ?", None),),
    "drop_product": (("DELETE FROM Products WHERE ProductID = ?", None),),
    "drop_declared": tuple(
        (f"DELETE FROM {table} WHERE {key} = ?", None)
        for table, key in (
            ("aptui_product_links", "product_id"),
            ("ProductDependencies", "ProductPK"),
            ("LegacySubIDs", "ProductPK"),
            ("aptui_facts", "product_id"),
        )
    ),
    "drop_draft": (("DELETE FROM aptui_drafts WHERE job_id = ?", None),),
    "drop_edges": (
        (
            "DELETE FROM aptui_edges WHERE source_id IN (SELECT SourceID FROM Sources WHERE SourceGuid = ?) AND builder = ?",
            None,
        ),
        ("DELETE FROM SourceDependency WHERE SourceGuid = ? AND BuilderGuid = ?", None),
    ),
    "drop_folder": (("DELETE FROM aptui_folders WHERE scan_folder_id = ? AND folder = ?", None),),
    "drop_file": (("DELETE FROM aptui_files WHERE scan_folder_id = ? AND name = ? COLLATE BINARY", None),),
    "drop_conflict": (("DELETE FROM aptui_conflicts WHERE job_id = ?", None),),
    "put_source": (
        (_upsert("Sources", "SourceID, ScanFolderPK, SourceName, SourceGuid", "SourceID"), itemgetter(slice(0, 4))),
        (
            _upsert("aptui_sources", "source_id, path_key, digest, identity, mtime_ms, hash64", "source_id", fixed="path_key"),
            itemgetter(0, *range(4, 9)),
        ),
    ),
    "drop_legacy": (("DELETE FROM aptui_legacy WHERE source_id = ?", None),),
    "put_legacy": ((_replace("aptui_legacy", 3), None),),
    "put_analysis": ((_replace("aptui_analyses", 13), None),),
    "put_job": (
        (_upsert("Jobs", _JOB_COLUMNS, "JobID", fixed="SourcePK, JobKey, Platform, BuilderGuid"), itemgetter(slice(0, _JOB_WIDTH))),
        (_replace("aptui_jobs", 13), itemgetter(0, *range(_JOB_WIDTH, _JOB_WIDTH + 12))),
    ),
    "put_product": (
        (
            _upsert(
                "Products",
                "ProductID, JobPK, ProductName, SubID, AssetType, Hash, Flags, LegacyGuid",
                "ProductID",
                f"?, ?, ?, ?, ?, ?, ?, {_NO_UUID}",
                fixed="JobPK, ProductName, SubID, LegacyGuid",
            ),
            itemgetter(slice(0, 7)),
        ),
        (_replace("aptui_products", 3), itemgetter(0, 7, 8)),
    ),
    "put_link": ((_replace("aptui_product_links", 10), itemgetter(0, *range(2, 11))),),
    "put_legacy_sub_id": (("INSERT INTO LegacySubIDs(ProductPK, SubID) VALUES (?, ?)", itemgetter(0, 2)),),
    "put_facts": ((_replace("aptui_facts", 8), itemgetter(0, *range(2, 9))),),
    "drop_missing": (("DELETE FROM MissingProductDependencies WHERE ProductPK = ?", None),),
    "put_missing": (
        (
            """INSERT INTO MissingProductDependencies(ProductPK, ScannerId, ScannerVersion, SourceFileFingerprint,
            DependencySourceGuid, DependencySubId, MissingDependencyString, LastScanTime, ScanTimeSecondsSinceEpoch)
            SELECT ?, ?, ?, ?, ?, ?, ?, ?, ? WHERE EXISTS (
                SELECT 1 FROM Products p LEFT JOIN aptui_products o ON o.product_id = p.ProductID
                WHERE p.ProductID = ? AND p.ProductName = ? AND COALESCE(o.digest, x'') = ?)""",
            itemgetter(*range(9), 0, 9, 10),
        ),
    ),
    "put_missing_scan": (
        (
            """INSERT OR REPLACE INTO aptui_missing_scans SELECT ?, ?, ?, ?
            WHERE EXISTS (SELECT 1 FROM Products WHERE ProductID = ? AND ProductName = ?)""",
            itemgetter(*range(4), 0, 4),
        ),
    ),
    "put_edge": (
        (
            """INSERT INTO SourceDependency(SourceGuid, BuilderGuid, DependsOnSource, TypeOfDependency, SubIds, FromAssetId)
            VALUES (?, ?, ?, ?, ?, ?)""",
            itemgetter(0, 1, 3, 4, 5, 6),
        ),
        (_replace("aptui_edges", 4), lambda row: (str(row[3]).lower(), row[7], row[1], row[2])),
    ),
    "put_run": (
        (_replace("aptui_runs", 13), None),
        (
            f"""DELETE FROM aptui_runs WHERE job_id = ? AND run_key <=
            (SELECT run_key FROM aptui_runs WHERE job_id = ? ORDER BY run_key DESC LIMIT 1 OFFSET {MOST_RUNS})
            AND run_key <> COALESCE((SELECT MAX(run_key) FROM aptui_runs WHERE job_id = ? AND outcome = 0), 0)""",
            lambda row: (row[0], row[0], row[0]),
        ),
    ),
    "put_draft": ((_replace("aptui_drafts", 2), None),),
    "put_retries": ((_replace("aptui_retries", 3), None),),
    "put_stat": ((_replace("aptui_stats", 3), None),),
    "put_conflict": ((_replace("aptui_conflicts", 2), None),),
    "put_folder": ((_upsert("aptui_folders", "scan_folder_id, folder, digest, files", "folder, scan_folder_id"), _pack_folder),),
    "put_file": (
        (_upsert("aptui_files", "scan_folder_id, name, is_folder, mtime_ms, hash64", "scan_folder_id, name COLLATE BINARY"), None),
    ),
    "put_cache_folder": ((_replace("aptui_cache_folders", 2), None),),
    "put_state": ((_replace("aptui_state", 2), None),),
    "put_session": tuple((sql, None if at == 0 else lambda _row: ()) for at, sql in enumerate(PUT_SESSION)),
    "prune_session": tuple((sql, _make_repeat(sql.count("?"))) for sql in PRUNE_SESSION),
    "doubt_job": (
        ("UPDATE Jobs SET Fingerprint = 0, Status = 0 WHERE JobID = ?", None),
        ("UPDATE aptui_jobs SET state = 'waiting', planned = NULL WHERE job_id = ?", None),
    ),
    "doubt_analysis": (
        ("UPDATE aptui_analyses SET state = 'waiting', fingerprint = NULL WHERE source_id = ? AND builder = ?", None),
    ),
}

STATEMENTS: dict[str, tuple[Statement, ...]] = {name: _SQL[name] for name in ROW_OPERATIONS}
"""The statements of each operation, in the order in which operations are applied within a transaction."""


MANY = (64, 16)
"""Numbers of rows that are inserted by a single statement, if enough rows are left. A number above 64 is not faster.

A statement with many rows costs a quarter less than single rows, and takes Python's interpreter lock only once.
"""


@cache
def of_many(sql: str, count: int) -> str:
    """Convert a statement that inserts one row into a statement that inserts `count` rows; return "" for other statements."""
    head, _, rest = sql.partition(" VALUES ")
    row, conflict, what = rest.partition(" ON CONFLICT")
    return f"{head} VALUES {', '.join([row] * count)}{conflict}{what}" if rest else ""


def execute(database: sqlite3.Connection, sql: str, rows: Iterable[Parameters]) -> None:
    """Execute a statement for each of `rows`, in order."""
    listed, at = list(rows), 0
    for count in MANY:
        while len(listed) - at >= count and of_many(sql, count):
            database.execute(of_many(sql, count), tuple(chain.from_iterable(listed[at : at + count])))
            at += count
    database.executemany(sql, listed[at:])


_CHUNK = 2_000
"""Maximum number of ids in one query. An id is an integer or a text."""


def query_ids(database: sqlite3.Connection, sql: str, ids: Iterable[object]) -> Iterator[Any]:
    """Yield the rows of a query whose only parameter is a JSON list of ids (`json_each(?)`); it runs once per `_CHUNK` ids."""
    listed = list(ids)
    for at in range(0, len(listed), _CHUNK):
        yield from database.execute(sql, (json.dumps(listed[at : at + _CHUNK]),)).fetchall()


def group_rows(rows: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Group pairs: return {first value: list of the second values of its pairs}."""
    found: dict[K, list[V]] = {}
    for key, value in rows:
        found.setdefault(key, []).append(value)
    return found
