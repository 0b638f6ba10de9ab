"""The SQL of every table, view, index and trigger of the asset database; versions are in `schema`.

Triggers delete our rows together with O3DE's rows. They cost nothing until a row is deleted; foreign keys would be checked at every
insert (1 µs for most of the rows). Primary keys are not AUTOINCREMENT for the same reason: the engine numbers its rows itself.

Tests: `tests/store/db/test_schema.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from aptui.store.db.foreign import job_stat_sql


def _tables(sql: str) -> dict[str, str]:
    """Return {table: its statement} of statements with comments; comments are not stored, so that their words may change."""
    plain = " ".join(line.partition("--")[0].strip() for line in sql.splitlines())
    statements = [statement.strip() for statement in plain.split(";") if statement.strip()]
    return {statement.partition("(")[0].split()[-1]: statement for statement in statements}


O3DE_TABLES = _tables("""
-- The version of O3DE's tables, in one row.
CREATE TABLE dbinfo(rowID INTEGER PRIMARY KEY, version INTEGER NOT NULL);

-- Scan folders; PortableKey is the name, which stays the same when the project is moved.
CREATE TABLE ScanFolders(
    ScanFolderID INTEGER PRIMARY KEY, ScanFolder TEXT NOT NULL COLLATE NOCASE, DisplayName TEXT NOT NULL COLLATE NOCASE,
    PortableKey TEXT NOT NULL COLLATE NOCASE, IsRoot INTEGER NOT NULL);

-- Files that have jobs.
CREATE TABLE Sources(
    SourceID INTEGER PRIMARY KEY, ScanFolderPK INTEGER NOT NULL REFERENCES ScanFolders(ScanFolderID) ON DELETE CASCADE,
    SourceName TEXT NOT NULL COLLATE NOCASE, SourceGuid BLOB NOT NULL, AnalysisFingerprint TEXT NOT NULL COLLATE NOCASE DEFAULT '');

-- Jobs; Fingerprint is the fingerprint of the last committed run.
CREATE TABLE Jobs(
    JobID INTEGER PRIMARY KEY, SourcePK INTEGER NOT NULL REFERENCES Sources(SourceID) ON DELETE CASCADE,
    JobKey TEXT NOT NULL COLLATE NOCASE, Fingerprint INTEGER NOT NULL, Platform TEXT NOT NULL COLLATE NOCASE,
    BuilderGuid BLOB NOT NULL, Status INTEGER NOT NULL, JobRunKey INTEGER NOT NULL,
    FailureCauseSourcePK INTEGER, FailureCauseFingerprint INTEGER,
    FirstFailLogTime INTEGER NOT NULL, FirstFailLogFile TEXT NOT NULL COLLATE NOCASE,
    LastFailLogTime INTEGER NOT NULL, LastFailLogFile TEXT NOT NULL COLLATE NOCASE,
    LastLogTime INTEGER NOT NULL, LastLogFile TEXT NOT NULL COLLATE NOCASE,
    ErrorCount INTEGER NOT NULL DEFAULT 0, WarningCount INTEGER NOT NULL DEFAULT 0);

-- Products; asset id = source UUID and SubID.
CREATE TABLE Products(
    ProductID INTEGER PRIMARY KEY, JobPK INTEGER NOT NULL REFERENCES Jobs(JobID) ON DELETE CASCADE,
    ProductName TEXT NOT NULL COLLATE NOCASE, SubID INTEGER NOT NULL, AssetType BLOB NOT NULL, LegacyGuid BLOB NOT NULL,
    Hash INTEGER NOT NULL, Flags INTEGER NOT NULL DEFAULT 1);

-- Former sub ids of a product.
CREATE TABLE LegacySubIDs(
    LegacySubID INTEGER PRIMARY KEY, ProductPK INTEGER NOT NULL REFERENCES Products(ProductID) ON DELETE CASCADE,
    SubID INTEGER NOT NULL);

-- Source dependencies as declared: a path, a pattern or 32 hex digits of a UUID.
CREATE TABLE SourceDependency(
    SourceDependencyID INTEGER PRIMARY KEY, BuilderGuid BLOB NOT NULL, SourceGuid BLOB NOT NULL,
    DependsOnSource TEXT NOT NULL COLLATE NOCASE, SubIds TEXT NOT NULL COLLATE NOCASE,
    TypeOfDependency INTEGER NOT NULL DEFAULT 0, FromAssetId INTEGER NOT NULL DEFAULT 0);

-- A run-time dependency of a product.
CREATE TABLE ProductDependencies(
    ProductDependencyID INTEGER PRIMARY KEY, ProductPK INTEGER NOT NULL REFERENCES Products(ProductID) ON DELETE CASCADE,
    DependencySourceGuid BLOB NOT NULL, DependencySubID INTEGER NOT NULL, Platform TEXT NOT NULL COLLATE NOCASE,
    DependencyFlags INTEGER NOT NULL, UnresolvedPath TEXT NOT NULL COLLATE NOCASE,
    UnresolvedDependencyType INTEGER NOT NULL DEFAULT 0, FromAssetId INTEGER NOT NULL DEFAULT 0);

-- A possible undeclared dependency in a product's bytes.
CREATE TABLE MissingProductDependencies(
    MissingProductDependencyId INTEGER PRIMARY KEY, ProductPK INTEGER NOT NULL REFERENCES Products(ProductID) ON DELETE CASCADE,
    ScannerId TEXT NOT NULL, ScannerVersion TEXT NOT NULL, SourceFileFingerprint TEXT NOT NULL,
    DependencySourceGuid BLOB NOT NULL, DependencySubId INTEGER NOT NULL, MissingDependencyString TEXT NOT NULL,
    LastScanTime TEXT NOT NULL, ScanTimeSecondsSinceEpoch INTEGER NOT NULL);

-- Every file seen; a view here, of sources and aptui_files.
CREATE TABLE Files(
    FileID INTEGER PRIMARY KEY, ScanFolderPK INTEGER NOT NULL, FileName TEXT NOT NULL COLLATE NOCASE, IsFolder INTEGER NOT NULL,
    ModTime INTEGER NOT NULL, Hash INTEGER NOT NULL);

-- Durations by name: `CreateJobs,…` and `ProcessJob,…` (`db.foreign.job_stat_sql`); a view here.
CREATE TABLE Stats(StatName TEXT PRIMARY KEY COLLATE NOCASE, StatValue INTEGER NOT NULL, LastLogTime INTEGER NOT NULL);

-- Builders, each with its analysis fingerprint at the last run.
CREATE TABLE BuilderInfo(BuilderID INTEGER PRIMARY KEY, Guid BLOB NOT NULL, AnalysisFingerprint TEXT NOT NULL);
""")
"""{table of O3DE, version 40: the statement that creates it}. Texts are compared without case, as in O3DE."""

OWN_TABLES = _tables("""
-- Single values: schema, epoch, seq, reserved run keys, scan signature.
CREATE TABLE aptui_state(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- path_key is in lower case also beyond ASCII, unlike NOCASE; identity is packed by `core.identity.pack`.
-- mtime_ms and hash64 (XXH64) are the values that O3DE's table Files has for the file.
CREATE TABLE aptui_sources(
    source_id INTEGER PRIMARY KEY, path_key TEXT NOT NULL, digest BLOB NOT NULL, identity TEXT NOT NULL,
    mtime_ms INTEGER NOT NULL, hash64 INTEGER NOT NULL);

-- Files that were not sources when they were checked last; a row of Sources takes precedence.
CREATE TABLE aptui_files(
    file_id INTEGER PRIMARY KEY, scan_folder_id INTEGER NOT NULL, name TEXT NOT NULL COLLATE NOCASE, is_folder INTEGER NOT NULL,
    mtime_ms INTEGER NOT NULL, hash64 INTEGER NOT NULL);

-- Durations of analyses, by their names in O3DE; durations of jobs are in aptui_jobs.
CREATE TABLE aptui_stats(
    name TEXT PRIMARY KEY COLLATE NOCASE, value_ms INTEGER NOT NULL, time_ms INTEGER NOT NULL) WITHOUT ROWID;

-- Additional UUIDs of a source: its earlier UUIDs, the UUIDs of its path, and a UUID that it declares but another source has.
CREATE TABLE aptui_legacy(
    uuid BLOB NOT NULL, source_id INTEGER NOT NULL, created_ms INTEGER NOT NULL, PRIMARY KEY(uuid, source_id)) WITHOUT ROWID;

-- Our columns of a job: state, plan, manifest, reason; origin is the origin of a result that was not made here.
-- failure is packed (`core.retry`), '' for a job that did not fail.
CREATE TABLE aptui_jobs(
    job_id INTEGER PRIMARY KEY, state TEXT NOT NULL, planned INTEGER, error TEXT NOT NULL, reason TEXT NOT NULL,
    inputs BLOB NOT NULL, plan BLOB NOT NULL, duration_ms INTEGER NOT NULL, completed_ms INTEGER NOT NULL,
    failure_cause TEXT NOT NULL, escalation INTEGER NOT NULL, origin TEXT NOT NULL, failure TEXT NOT NULL);

-- Failures of runs before the run with this run_key succeeded; ignored unless it is the job's last run.
CREATE TABLE aptui_retries(job_id INTEGER PRIMARY KEY, run_key INTEGER NOT NULL, kinds TEXT NOT NULL);

-- Jobs whose products are drafts (`core.quality`); final is the fingerprint of the planned final.
CREATE TABLE aptui_drafts(job_id INTEGER PRIMARY KEY, final INTEGER);

-- Analyses, which are never stored in Jobs. plans holds job plans and edges of the last success.
CREATE TABLE aptui_analyses(
    source_id INTEGER NOT NULL, builder BLOB NOT NULL, state TEXT NOT NULL, fingerprint INTEGER, error TEXT NOT NULL,
    warnings INTEGER NOT NULL, errors INTEGER NOT NULL, duration_ms INTEGER NOT NULL, completed_ms INTEGER NOT NULL,
    log_file TEXT NOT NULL, reason TEXT NOT NULL, plans BLOB NOT NULL, failure TEXT NOT NULL,
    PRIMARY KEY(source_id, builder)) WITHOUT ROWID;

-- Targets of all kinds of dependency in lower case: the sources that are planned again when target changes.
CREATE TABLE aptui_edges(
    target TEXT NOT NULL, source_id INTEGER NOT NULL, builder BLOB NOT NULL, kind INTEGER NOT NULL,
    PRIMARY KEY(target, source_id, builder, kind)) WITHOUT ROWID;

-- SHA-256 and size of a product.
CREATE TABLE aptui_products(product_id INTEGER PRIMARY KEY, digest BLOB NOT NULL, size INTEGER NOT NULL);

-- Facts that builders report about products (`core.run_report`); most products have no row. more is JSON, '' = nothing.
CREATE TABLE aptui_facts(
    product_id INTEGER PRIMARY KEY, width INTEGER NOT NULL, height INTEGER NOT NULL, triangles INTEGER NOT NULL,
    rate INTEGER NOT NULL, seconds REAL NOT NULL, format TEXT NOT NULL, more TEXT NOT NULL);

-- Declared dependencies of products; `store.db.product_links` makes the rows of ProductDependencies from them.
-- kind is `core.model.LinkKind`; path is in lower case and without a platform; prefix is the folder below which a path with `*`
-- can match, NULL for a path without `*`; source_guid and sub_id are those of a dependency by asset id.
CREATE TABLE aptui_product_links(
    product_id INTEGER NOT NULL, at INTEGER NOT NULL, kind INTEGER NOT NULL, platform TEXT NOT NULL, path TEXT NOT NULL,
    prefix TEXT, is_exclusion INTEGER NOT NULL, source_guid BLOB NOT NULL, sub_id INTEGER NOT NULL, flags INTEGER NOT NULL,
    PRIMARY KEY(product_id, at)) WITHOUT ROWID;

-- Names that were found in a product when it was last scanned for missing dependencies (`features.shipping`).
CREATE TABLE aptui_missing_scans(
    product_id INTEGER PRIMARY KEY, digest BLOB NOT NULL, terms TEXT NOT NULL, names BLOB NOT NULL);

-- The last runs of each job. products is one digest over the run's products, step leads back to the state before (`core.rows`).
CREATE TABLE aptui_runs(
    job_id INTEGER NOT NULL, run_key INTEGER NOT NULL, completed_ms INTEGER NOT NULL, duration_ms INTEGER NOT NULL,
    outcome INTEGER NOT NULL, reason TEXT NOT NULL, error TEXT NOT NULL, log_file TEXT NOT NULL, fingerprint INTEGER NOT NULL,
    version TEXT NOT NULL, products BLOB NOT NULL, step TEXT NOT NULL, origin TEXT NOT NULL,
    PRIMARY KEY(job_id, run_key)) WITHOUT ROWID;

-- Sessions of work, from a start until the engine is idle. Session 0 stands for everything before the first kept session;
-- run_key is the highest run key at the end of the session.
CREATE TABLE aptui_sessions(
    session_id INTEGER PRIMARY KEY, started_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL, kind TEXT NOT NULL,
    detail TEXT NOT NULL, commit_id TEXT NOT NULL, outcome TEXT NOT NULL, run_key INTEGER NOT NULL, jobs_run INTEGER NOT NULL,
    jobs_failed INTEGER NOT NULL, jobs_gone INTEGER NOT NULL, restored INTEGER NOT NULL, work_ms INTEGER NOT NULL,
    saved_ms INTEGER NOT NULL, fetched_bytes INTEGER NOT NULL, failing INTEGER NOT NULL);

-- The last run of each job in a session. ended_after_ms counts from the begin of the session, size is the total size of the
-- run's products (bytes); is_draft: the run made drafts (`core.quality`).
CREATE TABLE aptui_session_runs(
    job_id INTEGER NOT NULL, session_id INTEGER NOT NULL, outcome INTEGER NOT NULL, is_restored INTEGER NOT NULL,
    duration_ms INTEGER NOT NULL, ended_after_ms INTEGER NOT NULL, size INTEGER NOT NULL, is_draft INTEGER NOT NULL,
    PRIMARY KEY(job_id, session_id)) WITHOUT ROWID;

-- Deleted jobs, for the sessions in which they ran.
CREATE TABLE aptui_gone_jobs(
    job_id INTEGER PRIMARY KEY, source TEXT NOT NULL, platform TEXT NOT NULL, job_key TEXT NOT NULL, builder BLOB NOT NULL,
    gone_ms INTEGER NOT NULL);

-- Product names that a job failed for, because another job has a product with the same name.
CREATE TABLE aptui_conflicts(name TEXT NOT NULL, job_id INTEGER NOT NULL, PRIMARY KEY(name, job_id)) WITHOUT ROWID;

-- A relative folder in one scan folder: its digest, and its files as `store.db.folder_blobs` packs them.
CREATE TABLE aptui_folders(
    folder TEXT NOT NULL, scan_folder_id INTEGER NOT NULL, digest BLOB NOT NULL, files BLOB NOT NULL,
    PRIMARY KEY(folder, scan_folder_id)) WITHOUT ROWID;

-- Renames that a commit is about to make, one row per product; stale is a JSON list of names to delete afterwards.
CREATE TABLE aptui_intents(
    run_key INTEGER NOT NULL, job_id INTEGER NOT NULL, name TEXT NOT NULL, digest BLOB NOT NULL, size INTEGER NOT NULL,
    stale TEXT NOT NULL, PRIMARY KEY(run_key, name)) WITHOUT ROWID;

-- Cache folders with the ctime they had after the last commit: 0 if the next start has to check the folder, -1 if it is gone.
CREATE TABLE aptui_cache_folders(name TEXT PRIMARY KEY, ctime_ns INTEGER NOT NULL) WITHOUT ROWID;

-- The last changes of sources and products, in order (`store.db.change_log`).
CREATE TABLE aptui_changes(
    seq INTEGER PRIMARY KEY, kind INTEGER NOT NULL, uuid BLOB NOT NULL, sub_id INTEGER NOT NULL, name TEXT NOT NULL,
    asset_type BLOB NOT NULL, digest BLOB NOT NULL, size INTEGER NOT NULL, is_removed INTEGER NOT NULL);
""")
"""{table of our own, for data that O3DE's tables cannot hold: the statement that creates it}."""


_INDEXES = """
Jobs_JobRunKey ON Jobs(JobRunKey)
Jobs_JobKey ON Jobs(JobKey)
Sources_Jobs ON Jobs(SourcePK)
Jobs_Products ON Products(JobPK)
Sources_SourceName ON Sources(SourceName)
Sources_SourceGuid ON Sources(SourceGuid)
IdxSources_SourceAndScanFolder ON Sources(ScanFolderPK, SourceName)
Products_ProductName ON Products(ProductName)
Products_SubID ON Products(SubID)
LegacySubIDs_ProductPK ON LegacySubIDs(ProductPK)
DependsOnSource_SourceDependency ON SourceDependency(DependsOnSource)
BuilderGuid_Source_SourceDependency ON SourceDependency(BuilderGuid, SourceGuid)
SourceGuid_SourceDependency ON SourceDependency(SourceGuid)
TypeOfDependency_SourceDependency ON SourceDependency(TypeOfDependency)
ProductDependencies_ProductPK ON ProductDependencies(ProductPK)
ProductDependencies_UnresolvedPath ON ProductDependencies(UnresolvedPath)
ProductDependencies_UnresolvedPathWildcard ON ProductDependencies(UnresolvedPath) WHERE UnresolvedPath LIKE '%*%'
MissingProductDependencies_ProductPK ON MissingProductDependencies(ProductPK)
aptui_jobs_unfinished ON Jobs(Status) WHERE Status <> 4
aptui_jobs_logged ON Jobs(WarningCount, ErrorCount) WHERE WarningCount > 0 OR ErrorCount > 0
aptui_sources_path_key ON aptui_sources(path_key)
aptui_sources_identity ON aptui_sources(source_id) WHERE identity <> ''
aptui_legacy_source ON aptui_legacy(source_id)
aptui_analyses_unfinished ON aptui_analyses(state) WHERE state <> 'completed' OR fingerprint IS NULL
aptui_edges_source ON aptui_edges(source_id, builder)
aptui_product_links_path ON aptui_product_links(path, kind, platform) WHERE prefix IS NULL AND is_exclusion = 0
aptui_product_links_prefix ON aptui_product_links(prefix, kind, platform, path) WHERE prefix IS NOT NULL AND is_exclusion = 0
aptui_product_links_asset ON aptui_product_links(source_guid) WHERE kind = 2
aptui_product_links_exclusion ON aptui_product_links(product_id) WHERE is_exclusion = 1
aptui_dependencies_target ON ProductDependencies(DependencySourceGuid, DependencySubID, ProductPK) WHERE UnresolvedPath = ''
aptui_session_runs_session ON aptui_session_runs(session_id)
aptui_conflicts_job ON aptui_conflicts(job_id)
aptui_folders_digest ON aptui_folders(folder, scan_folder_id, digest)
"""
# Two files whose names differ only in case are two rows, so this index compares bytes although the column is NOCASE.
_UNIQUE_INDEX = "CREATE UNIQUE INDEX aptui_files_name ON aptui_files(scan_folder_id, name COLLATE BINARY)"
_VIEWS = {
    "Files": """SELECT 2 * s.SourceID AS FileID, s.ScanFolderPK AS ScanFolderPK, s.SourceName AS FileName, 0 AS IsFolder,
    o.mtime_ms AS ModTime, o.hash64 AS Hash FROM Sources s JOIN aptui_sources o ON o.source_id = s.SourceID
    UNION ALL SELECT 2 * f.file_id + 1, f.scan_folder_id, f.name, f.is_folder, f.mtime_ms, f.hash64 FROM aptui_files f
    WHERE NOT EXISTS (SELECT 1 FROM Sources s WHERE s.ScanFolderPK = f.scan_folder_id AND s.SourceName = f.name
    AND s.SourceName = f.name COLLATE BINARY)""",
    "Stats": f"""SELECT ({job_stat_sql()}) COLLATE NOCASE AS StatName, o.duration_ms AS StatValue, o.completed_ms AS LastLogTime
    FROM Jobs j JOIN aptui_jobs o ON o.job_id = j.JobID JOIN Sources s ON s.SourceID = j.SourcePK
    JOIN ScanFolders f ON f.ScanFolderID = s.ScanFolderPK WHERE o.completed_ms > 0
    UNION ALL SELECT name, value_ms, time_ms FROM aptui_stats""",
}
"""O3DE's tables whose content is in our tables; each is a view, so that no rows are written for it."""
# Our rows that are deleted together with a row of O3DE's, by whichever program: (table of O3DE, its key, our table, our column).
_COMPANIONS = (
    ("Sources", "SourceID", "aptui_sources", "source_id"),
    ("Sources", "SourceID", "aptui_legacy", "source_id"),
    ("Sources", "SourceID", "aptui_analyses", "source_id"),
    ("Sources", "SourceID", "aptui_edges", "source_id"),
    ("Jobs", "JobID", "aptui_jobs", "job_id"),
    ("Jobs", "JobID", "aptui_retries", "job_id"),
    ("Jobs", "JobID", "aptui_drafts", "job_id"),
    ("Jobs", "JobID", "aptui_runs", "job_id"),
    ("Jobs", "JobID", "aptui_conflicts", "job_id"),
    ("Products", "ProductID", "aptui_products", "product_id"),
    ("Products", "ProductID", "aptui_facts", "product_id"),
    ("Products", "ProductID", "aptui_product_links", "product_id"),
    ("Products", "ProductID", "aptui_missing_scans", "product_id"),
    ("ScanFolders", "ScanFolderID", "aptui_folders", "scan_folder_id"),
    ("ScanFolders", "ScanFolderID", "aptui_files", "scan_folder_id"),
)
_NOW_MS = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
# A source is deleted before its jobs, so the names of its jobs are deleted with it; a job may also be deleted without its source.
_GOING = (
    ("Sources", "OLD.SourceName, Platform, JobKey, BuilderGuid, {now} FROM Jobs WHERE SourcePK = OLD.SourceID"),
    ("Jobs", "SourceName, OLD.Platform, OLD.JobKey, OLD.BuilderGuid, {now} FROM Sources WHERE SourceID = OLD.SourcePK"),
)


@cache
def creation_sql() -> tuple[str, ...]:
    """Return the statements that make every table, view, index and trigger, in order."""
    return tuple(_statements())


def _statements() -> Iterator[str]:
    yield from (sql for table, sql in (O3DE_TABLES | OWN_TABLES).items() if table not in _VIEWS)
    for view, sql in _VIEWS.items():
        yield f"CREATE VIEW {view} AS {sql}"
    for line in _INDEXES.strip().splitlines():
        yield f"CREATE INDEX {line}"
    yield _UNIQUE_INDEX
    for table, key, own, column in _COMPANIONS:
        yield f"CREATE TRIGGER {own}_go AFTER DELETE ON {table} BEGIN DELETE FROM {own} WHERE {column} = OLD.{key}; END"
    for table, values in _GOING:
        job_id = "OLD.JobID" if table == "Jobs" else "JobID"
        what = f"INSERT OR REPLACE INTO aptui_gone_jobs SELECT {job_id}, {values.format(now=_NOW_MS)}"
        yield f"CREATE TRIGGER aptui_gone_{table} BEFORE DELETE ON {table} BEGIN {what}; END"
