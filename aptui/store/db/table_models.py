"""Every table, view, index and trigger of the asset database as peewee models and SQL; versions are in `schema`.

Importing this module takes 0.1 s because of peewee, so it is only imported to create a database or to read a foreign one.

Triggers delete our rows together with O3DE's rows. Foreign keys are not used for this, because they would be checked at every
insert (1 µs for most rows); triggers cost time only at deletions. Primary keys are not AUTOINCREMENT, because that costs time, too;
the engine numbers its rows itself.

Tests: `tests/store/queries/test_reader.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial

from peewee import (
    SQL,
    BlobField,
    CompositeKey,
    Field,
    FloatField,
    ForeignKeyField,
    IntegerField,
    Model,
    SchemaManager,
    SqliteDatabase,
    TextField,
)

from aptui.store.db.foreign import job_stat_sql

KEY = partial(IntegerField, primary_key=True)
INTEGER, BLOB, REAL, TEXT = IntegerField, BlobField, FloatField, TextField
INTEGER_OR_NULL, TEXT_OR_NULL = partial(IntegerField, null=True), partial(TextField, null=True)
NAME = partial(TextField, collation="NOCASE")
"""A text that is compared without case, as in O3DE."""
TEXT_KEY, NAME_KEY = partial(TEXT, primary_key=True), partial(NAME, primary_key=True)


def make_default(column: Callable[..., Field], default: str) -> Callable[..., Field]:
    """Return a column with a default, in SQL."""
    return partial(column, constraints=[SQL(f"DEFAULT {default}")])


def owner(model: type[Model]) -> Callable[..., Field]:
    """Return a column that refers to a row of `model`; when that row is deleted, the referring row is deleted, too."""
    return partial(ForeignKeyField, model, on_delete="CASCADE", index=False, backref="+")


def make_table(name: str, /, *key: str, has_row_id: bool = True, **columns: Callable[..., Field]) -> type[Model]:
    """Return the model of a table; a table with a `key` of several columns does not have SQLite's row id."""
    more = {"primary_key": CompositeKey(*key)} if key else {}
    meta = type("Meta", (), {"table_name": name, "without_rowid": not has_row_id or bool(key), **more})
    return type(name, (Model,), {"Meta": meta, **{column: make(column_name=column) for column, make in columns.items()}})


DB_INFO = make_table("dbinfo", rowID=KEY, version=INTEGER)
"""The version of O3DE's tables, in one row."""
SCAN_FOLDERS = make_table("ScanFolders", ScanFolderID=KEY, ScanFolder=NAME, DisplayName=NAME, PortableKey=NAME, IsRoot=INTEGER)
"""Table of scan folders. Its column `PortableKey` is the folder's name, which stays the same if the project is moved."""
SOURCES = make_table(
    "Sources", SourceID=KEY, ScanFolderPK=owner(SCAN_FOLDERS), SourceName=NAME, SourceGuid=BLOB,
    AnalysisFingerprint=make_default(NAME, "''"),
)  # fmt: skip
"""Files that have jobs."""
JOBS = make_table(
    "Jobs", JobID=KEY, SourcePK=owner(SOURCES), JobKey=NAME, Fingerprint=INTEGER, Platform=NAME, BuilderGuid=BLOB, Status=INTEGER,
    JobRunKey=INTEGER, FailureCauseSourcePK=INTEGER_OR_NULL, FailureCauseFingerprint=INTEGER_OR_NULL, FirstFailLogTime=INTEGER,
    FirstFailLogFile=NAME, LastFailLogTime=INTEGER, LastFailLogFile=NAME, LastLogTime=INTEGER, LastLogFile=NAME,
    ErrorCount=make_default(INTEGER, "0"), WarningCount=make_default(INTEGER, "0"),
)  # fmt: skip
"""Table of jobs. Its column `Fingerprint` has the fingerprint of the job's last committed run."""
PRODUCTS = make_table(
    "Products", ProductID=KEY, JobPK=owner(JOBS), ProductName=NAME, SubID=INTEGER, AssetType=BLOB, LegacyGuid=BLOB, Hash=INTEGER,
    Flags=make_default(INTEGER, "1"),
)  # fmt: skip
"""Products; asset id = source UUID and `SubID`."""
LEGACY_SUB_IDS = make_table("LegacySubIDs", LegacySubID=KEY, ProductPK=owner(PRODUCTS), SubID=INTEGER)
SOURCE_DEPENDENCY = make_table(
    "SourceDependency", SourceDependencyID=KEY, BuilderGuid=BLOB, SourceGuid=BLOB, DependsOnSource=NAME, SubIds=NAME,
    TypeOfDependency=make_default(INTEGER, "0"), FromAssetId=make_default(INTEGER, "0"),
)  # fmt: skip
"""Source dependencies as declared: a path, a pattern or 32 hex digits of a UUID."""
PRODUCT_DEPENDENCIES = make_table(
    "ProductDependencies", ProductDependencyID=KEY, ProductPK=owner(PRODUCTS), DependencySourceGuid=BLOB, DependencySubID=INTEGER,
    Platform=NAME, DependencyFlags=INTEGER, UnresolvedPath=NAME, UnresolvedDependencyType=make_default(INTEGER, "0"),
    FromAssetId=make_default(INTEGER, "0"),
)  # fmt: skip
"""A run-time dependency of a product."""
MISSING_PRODUCT_DEPENDENCIES = make_table(
    "MissingProductDependencies", MissingProductDependencyId=KEY, ProductPK=owner(PRODUCTS), ScannerId=TEXT, ScannerVersion=TEXT,
    SourceFileFingerprint=TEXT, DependencySourceGuid=BLOB, DependencySubId=INTEGER, MissingDependencyString=TEXT, LastScanTime=TEXT,
    ScanTimeSecondsSinceEpoch=INTEGER,
)  # fmt: skip
FILES = make_table(
    "Files", FileID=KEY, ScanFolderPK=owner(SCAN_FOLDERS), FileName=NAME, IsFolder=INTEGER, ModTime=INTEGER, Hash=INTEGER,
)  # fmt: skip
"""All files in the scan folders. In O3DE this is a table; here it is a view of sources and `aptui_files`."""
STATS = make_table("Stats", StatName=NAME_KEY, StatValue=INTEGER, LastLogTime=INTEGER)
"""Durations by name: `CreateJobs,…` and `ProcessJob,…` (`db.foreign.job_stat_sql`). In O3DE a table, here a view.
"""
BUILDER_INFO = make_table("BuilderInfo", BuilderID=KEY, Guid=BLOB, AnalysisFingerprint=TEXT)
"""Builders, each with its analysis fingerprint at the last run."""
O3DE_TABLES = (
    DB_INFO, SCAN_FOLDERS, SOURCES, JOBS, PRODUCTS, LEGACY_SUB_IDS, SOURCE_DEPENDENCY, PRODUCT_DEPENDENCIES,
    MISSING_PRODUCT_DEPENDENCIES, FILES, STATS, BUILDER_INFO,
)  # fmt: skip
"""The tables of O3DE, version 40."""

OWN_TABLES = (
    # Single values: schema, epoch, seq, reserved run keys, scan signature.
    make_table("aptui_state", has_row_id=False, key=TEXT_KEY, value=TEXT),
    # `path_key` is in lower case also beyond ASCII, unlike NOCASE; `identity` is packed by `core.identity.pack`. `mtime_ms`
    # and `hash64` (XXH64) are the values that O3DE's table Files has for the file.
    make_table("aptui_sources", source_id=KEY, path_key=TEXT, digest=BLOB, identity=TEXT, mtime_ms=INTEGER, hash64=INTEGER),
    # Files that were not sources at their last check. If a file also has a row in `Sources`, that row is valid.
    make_table("aptui_files", file_id=KEY, scan_folder_id=INTEGER, name=NAME, is_folder=INTEGER, mtime_ms=INTEGER, hash64=INTEGER),
    # Durations of analyses, by their names in O3DE; durations of jobs are in `aptui_jobs`.
    make_table("aptui_stats", has_row_id=False, name=NAME_KEY, value_ms=INTEGER, time_ms=INTEGER),
    # Additional UUIDs of a source. They are its earlier UUIDs, the UUIDs of its path, and a UUID that it declares but another
    # source has.
    make_table("aptui_legacy", "uuid", "source_id", uuid=BLOB, source_id=INTEGER, created_ms=INTEGER),
    # Our columns of a job: state, plan, manifest, reason. `origin` is "" for a result that was made here. `failure` is packed
    # (`core.retry`), "" for a job that did not fail.
    make_table(
        "aptui_jobs", job_id=KEY, state=TEXT, planned=INTEGER_OR_NULL, error=TEXT, reason=TEXT, inputs=BLOB, plan=BLOB,
        duration_ms=INTEGER, completed_ms=INTEGER, failure_cause=TEXT, escalation=INTEGER, origin=TEXT, failure=TEXT,
    ),
    # The failed attempts of a job before its successful run `run_key`. A row is used only while this run is the job's last run.
    make_table("aptui_retries", job_id=KEY, run_key=INTEGER, kinds=TEXT),
    # Jobs whose products are drafts (`core.quality`); `final` is the fingerprint of the planned run with final quality.
    make_table("aptui_drafts", job_id=KEY, final=INTEGER_OR_NULL),
    # The last analysis of each source by each builder; analyses have no rows in Jobs. `plans` has the job plans and edges of the
    # last successful analysis.
    make_table(
        "aptui_analyses", "source_id", "builder", source_id=INTEGER, builder=BLOB, state=TEXT, fingerprint=INTEGER_OR_NULL,
        error=TEXT, warnings=INTEGER, errors=INTEGER, duration_ms=INTEGER, completed_ms=INTEGER, log_file=TEXT, reason=TEXT,
        plans=BLOB, failure=TEXT,
    ),
    # The sources that are planned again when `target` changes. `target` is a path, a pattern or a UUID, in lower case.
    make_table("aptui_edges", "target", "source_id", "builder", "kind", target=TEXT, source_id=INTEGER, builder=BLOB, kind=INTEGER),
    # SHA-256 and size of a product.
    make_table("aptui_products", product_id=KEY, digest=BLOB, size=INTEGER),
    # Facts that builders report about products (`core.run_report`); most products have no row. `more` is JSON, "" = nothing.
    make_table(
        "aptui_facts", product_id=KEY, width=INTEGER, height=INTEGER, triangles=INTEGER, rate=INTEGER, seconds=REAL, format=TEXT,
        more=TEXT,
    ),
    # Declared dependencies of products; `store.db.product_links` makes the rows of ProductDependencies from them. `kind` is
    # `core.model.LinkKind`; `path` is in lower case and without a platform; `prefix` is the folder below which a path with
    # `*` can match, null for a path without `*`; `source_guid` and `sub_id` are those of a dependency by asset id.
    make_table(
        "aptui_product_links", "product_id", "at", product_id=INTEGER, at=INTEGER, kind=INTEGER, platform=TEXT, path=TEXT,
        prefix=TEXT_OR_NULL, is_exclusion=INTEGER, source_guid=BLOB, sub_id=INTEGER, flags=INTEGER,
    ),
    # Names that were found in a product when it was last scanned for missing dependencies (`features.shipping`).
    make_table("aptui_missing_scans", product_id=KEY, digest=BLOB, terms=TEXT, names=BLOB),
    # The last runs of each job. `products` is one digest of all the run's products. `step` is the difference between two states of
    # the job. `core.rows` computes the inputs and products of the run from these differences.
    make_table(
        "aptui_runs", "job_id", "run_key", job_id=INTEGER, run_key=INTEGER, completed_ms=INTEGER, duration_ms=INTEGER,
        outcome=INTEGER, reason=TEXT, error=TEXT, log_file=TEXT, fingerprint=INTEGER, version=TEXT, products=BLOB, step=TEXT,
        origin=TEXT,
    ),
    # Sessions of work, from a start until the engine is idle. Session 0 stands for all runs before the first session that is kept;
    # `run_key` is the highest run key at the end of the session.
    make_table(
        "aptui_sessions", session_id=KEY, started_ms=INTEGER, ended_ms=INTEGER, kind=TEXT, detail=TEXT, commit_id=TEXT,
        outcome=TEXT, run_key=INTEGER, jobs_run=INTEGER, jobs_failed=INTEGER, jobs_gone=INTEGER, restored=INTEGER, work_ms=INTEGER,
        saved_ms=INTEGER, fetched_bytes=INTEGER, failing=INTEGER,
    ),
    # The last run of each job in a session. `ended_after_ms` counts from the beginning of the session, `size` is the total size
    # of the run's products (bytes). `is_draft`: the run made drafts (`core.quality`).
    make_table(
        "aptui_session_runs", "job_id", "session_id", job_id=INTEGER, session_id=INTEGER, outcome=INTEGER, is_restored=INTEGER,
        duration_ms=INTEGER, ended_after_ms=INTEGER, size=INTEGER, is_draft=INTEGER,
    ),
    # Names of deleted jobs; lists of the sessions in which these jobs ran still show them.
    make_table("aptui_gone_jobs", job_id=KEY, source=TEXT, platform=TEXT, job_key=TEXT, builder=BLOB, gone_ms=INTEGER),
    # Product names that two jobs have, with the job that failed because of this.
    make_table("aptui_conflicts", "name", "job_id", name=TEXT, job_id=INTEGER),
    # A relative folder in one scan folder: its digest, and its files as `store.db.folder_blobs` packs them.
    make_table("aptui_folders", "folder", "scan_folder_id", folder=TEXT, scan_folder_id=INTEGER, digest=BLOB, files=BLOB),
    # Renames that a commit is about to make, one row per product; `stale` is a JSON list of names to delete afterwards.
    make_table(
        "aptui_intents", "run_key", "name", run_key=INTEGER, job_id=INTEGER, name=TEXT, digest=BLOB, size=INTEGER, stale=TEXT,
    ),
    # Cache folders with the ctime they had after the last commit. The ctime is 0 if the next start has to check the folder,
    # and -1 if the folder existed and is gone.
    make_table("aptui_cache_folders", has_row_id=False, name=TEXT_KEY, ctime_ns=INTEGER),
    # The last changes of sources and products, in order (`store.db.change_log`).
    make_table(
        "aptui_changes", seq=KEY, kind=INTEGER, uuid=BLOB, sub_id=INTEGER, name=TEXT, asset_type=BLOB, digest=BLOB, size=INTEGER,
        is_removed=INTEGER,
    ),
)  # fmt: skip
"""Our tables, for data that O3DE's tables cannot hold."""


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
    FILES: """SELECT 2 * s.SourceID AS FileID, s.ScanFolderPK AS ScanFolderPK, s.SourceName AS FileName, 0 AS IsFolder,
    o.mtime_ms AS ModTime, o.hash64 AS Hash FROM Sources s JOIN aptui_sources o ON o.source_id = s.SourceID
    UNION ALL SELECT 2 * f.file_id + 1, f.scan_folder_id, f.name, f.is_folder, f.mtime_ms, f.hash64 FROM aptui_files f
    WHERE NOT EXISTS (SELECT 1 FROM Sources s WHERE s.ScanFolderPK = f.scan_folder_id AND s.SourceName = f.name
    AND s.SourceName = f.name COLLATE BINARY)""",
    STATS: f"""SELECT ({job_stat_sql()}) COLLATE NOCASE AS StatName, o.duration_ms AS StatValue, o.completed_ms AS LastLogTime
    FROM Jobs j JOIN aptui_jobs o ON o.job_id = j.JobID JOIN Sources s ON s.SourceID = j.SourcePK
    JOIN ScanFolders f ON f.ScanFolderID = s.ScanFolderPK WHERE o.completed_ms > 0
    UNION ALL SELECT name, value_ms, time_ms FROM aptui_stats""",
}
"""O3DE's tables whose content is in our tables. Each is a view, so that the same content is not written twice."""
# When any program deletes a row of an O3DE table, a trigger deletes our rows: (O3DE's table, its key, our table, our column).
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
# Names of deleted jobs are recorded by two triggers. The trigger on Sources is needed because a source is deleted before its jobs.
# The trigger on Jobs covers jobs that are deleted without their source.
_GOING = (
    ("Sources", "OLD.SourceName, Platform, JobKey, BuilderGuid, {now} FROM Jobs WHERE SourcePK = OLD.SourceID"),
    ("Jobs", "SourceName, OLD.Platform, OLD.JobKey, OLD.BuilderGuid, {now} FROM Sources WHERE SourceID = OLD.SourcePK"),
)


@cache
def creation_sql() -> tuple[str, ...]:
    """Return the statements that make every table, view, index and trigger, in order."""
    return tuple(_statements())


def _statements() -> Iterator[str]:
    yield from _table_sql(tuple(model for model in O3DE_TABLES if model not in _VIEWS) + OWN_TABLES, is_temporary=False)
    for model, sql in _VIEWS.items():
        yield f"CREATE VIEW {column_names(model)[0]} AS {sql}"
    for line in _INDEXES.strip().splitlines():
        yield f"CREATE INDEX {line}"
    yield _UNIQUE_INDEX
    for table, key, own, column in _COMPANIONS:
        yield f"CREATE TRIGGER {own}_go AFTER DELETE ON {table} BEGIN DELETE FROM {own} WHERE {column} = OLD.{key}; END"
    for table, values in _GOING:
        job_id = "OLD.JobID" if table == "Jobs" else "JobID"
        what = f"INSERT OR REPLACE INTO aptui_gone_jobs SELECT {job_id}, {values.format(now=_NOW_MS)}"
        yield f"CREATE TRIGGER aptui_gone_{table} BEFORE DELETE ON {table} BEGIN {what}; END"


def column_names(model: type[Model]) -> tuple[str, list[str]]:
    """Return a table's name and the names of its columns."""
    meta = model._meta  # noqa: SLF001  # peewee documents `_meta` as public
    return meta.table_name, [field.column_name for field in meta.sorted_fields]


def own_tables_sql() -> Iterator[str]:
    """Yield the statements that create our tables as temporary tables, for reading a foreign database."""
    yield from _table_sql(OWN_TABLES, is_temporary=True)


class _Statements(SqliteDatabase):
    """A peewee database that collects the statements to be executed, and does not execute them."""

    def __init__(self) -> None:
        super().__init__(None)
        self.sql: list[str] = []

    def execute_sql(self, sql: str, *_parameters: object) -> None:
        """Collect a statement."""
        self.sql.append(sql)


def _table_sql(models: tuple[type[Model], ...], *, is_temporary: bool) -> list[str]:
    collected = _Statements()
    for model in models:
        # The models are not bound to a database, because even a temporary binding affects all threads.
        SchemaManager(model, collected).create_table(safe=False, temporary=is_temporary)
    return collected.sql
