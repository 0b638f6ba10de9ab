"""Every table, view, index and trigger of the asset database as peewee models and SQL; versions are in `schema`.

Importing this costs 0.1 s (peewee), so it is only imported to create a database, or to read a foreign one.

Triggers delete our rows together with O3DE's rows. They cost nothing until a row is deleted; foreign keys would be checked at every
insert (1 µs for most of the rows). Primary keys are not AUTOINCREMENT for the same reason: the engine numbers its rows itself.

Tests: `tests/store/queries/test_reader.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from peewee import (
    SQL,
    AutoField,
    BlobField,
    CompositeKey,
    FloatField,
    ForeignKeyField,
    IntegerField,
    Model,
    Node,
    SchemaManager,
    SqliteDatabase,
    TextField,
)

from aptui.store.db.foreign import job_stat_sql


def text(column: str, *, default: str | None = None, primary_key: bool = False) -> TextField:
    """Return a text column that is compared without case, as in O3DE; `default` is SQL."""
    constraints: list[Node] = [] if default is None else [SQL(f"DEFAULT {default}")]
    return TextField(column_name=column, collation="NOCASE", constraints=constraints, primary_key=primary_key)


def number(column: str, default: int | None = None) -> IntegerField:
    """Return a column of integers."""
    return IntegerField(column_name=column, constraints=[] if default is None else [SQL(f"DEFAULT {default}")])


def owner(model: type[Model], column: str) -> ForeignKeyField:
    """Return a column that names a row of `model`; a row is deleted with the row that it names."""
    return ForeignKeyField(model, column_name=column, on_delete="CASCADE", index=False, backref="+")


def make_meta(table: str, *key: str, has_row_id: bool = True) -> type:
    """Return the `Meta` of a table; with a `key` of several columns, rows have no other id."""
    more = {"primary_key": CompositeKey(*key)} if key else {}
    return type("Meta", (), {"table_name": table, "without_rowid": not has_row_id or bool(key), **more})


class O3deTable(Model):
    """A table of O3DE, version 40."""


class OwnTable(Model):
    """A table of our own, for data that O3DE's tables cannot hold."""


class DbInfoTable(O3deTable):
    """The version of O3DE's tables, in one row."""

    row_id = AutoField(column_name="rowID")
    version = number("version")
    Meta = make_meta("dbinfo")


class ScanFoldersTable(O3deTable):
    """Scan folders; `PortableKey` is the name, which stays the same when the project is moved."""

    scan_folder_id = AutoField(column_name="ScanFolderID")
    scan_folder = text("ScanFolder")
    display_name = text("DisplayName")
    portable_key = text("PortableKey")
    is_root = number("IsRoot")
    Meta = make_meta("ScanFolders")


class SourcesTable(O3deTable):
    """Files that have jobs."""

    source_id = AutoField(column_name="SourceID")
    scan_folder = owner(ScanFoldersTable, "ScanFolderPK")
    source_name = text("SourceName")
    source_guid = BlobField(column_name="SourceGuid")
    analysis_fingerprint = text("AnalysisFingerprint", default="''")
    Meta = make_meta("Sources")


class JobsTable(O3deTable):
    """Jobs; `Fingerprint` is the fingerprint of the last committed run."""

    job_id = AutoField(column_name="JobID")
    source = owner(SourcesTable, "SourcePK")
    job_key = text("JobKey")
    fingerprint = number("Fingerprint")
    platform = text("Platform")
    builder_guid = BlobField(column_name="BuilderGuid")
    status = number("Status")
    job_run_key = number("JobRunKey")
    failure_cause_source = IntegerField(column_name="FailureCauseSourcePK", null=True)
    failure_cause_fingerprint = IntegerField(column_name="FailureCauseFingerprint", null=True)
    first_fail_log_time = number("FirstFailLogTime")
    first_fail_log_file = text("FirstFailLogFile")
    last_fail_log_time = number("LastFailLogTime")
    last_fail_log_file = text("LastFailLogFile")
    last_log_time = number("LastLogTime")
    last_log_file = text("LastLogFile")
    error_count = number("ErrorCount", 0)
    warning_count = number("WarningCount", 0)
    Meta = make_meta("Jobs")


class ProductsTable(O3deTable):
    """Products; asset id = source UUID and `SubID`."""

    product_id = AutoField(column_name="ProductID")
    job = owner(JobsTable, "JobPK")
    product_name = text("ProductName")
    sub_id = number("SubID")
    asset_type = BlobField(column_name="AssetType")
    legacy_guid = BlobField(column_name="LegacyGuid")
    hash = number("Hash")
    flags = number("Flags", 1)
    Meta = make_meta("Products")


class LegacySubIdsTable(O3deTable):
    """Former sub ids of a product."""

    legacy_sub_id = AutoField(column_name="LegacySubID")
    product = owner(ProductsTable, "ProductPK")
    sub_id = number("SubID")
    Meta = make_meta("LegacySubIDs")


class SourceDependencyTable(O3deTable):
    """Source dependencies as declared: a path, a pattern or 32 hex digits of a UUID."""

    source_dependency_id = AutoField(column_name="SourceDependencyID")
    builder_guid = BlobField(column_name="BuilderGuid")
    source_guid = BlobField(column_name="SourceGuid")
    depends_on_source = text("DependsOnSource")
    sub_ids = text("SubIds")
    type_of_dependency = number("TypeOfDependency", 0)
    from_asset_id = number("FromAssetId", 0)
    Meta = make_meta("SourceDependency")


class ProductDependenciesTable(O3deTable):
    """A run-time dependency of a product."""

    product_dependency_id = AutoField(column_name="ProductDependencyID")
    product = owner(ProductsTable, "ProductPK")
    dependency_source_guid = BlobField(column_name="DependencySourceGuid")
    dependency_sub_id = number("DependencySubID")
    platform = text("Platform")
    dependency_flags = number("DependencyFlags")
    unresolved_path = text("UnresolvedPath")
    unresolved_dependency_type = number("UnresolvedDependencyType", 0)
    from_asset_id = number("FromAssetId", 0)
    Meta = make_meta("ProductDependencies")


class MissingProductDependenciesTable(O3deTable):
    """A possible undeclared dependency in a product's bytes."""

    missing_product_dependency_id = AutoField(column_name="MissingProductDependencyId")
    product = owner(ProductsTable, "ProductPK")
    scanner_id = TextField(column_name="ScannerId")
    scanner_version = TextField(column_name="ScannerVersion")
    source_file_fingerprint = TextField(column_name="SourceFileFingerprint")
    dependency_source_guid = BlobField(column_name="DependencySourceGuid")
    dependency_sub_id = number("DependencySubId")
    missing_dependency_string = TextField(column_name="MissingDependencyString")
    last_scan_time = TextField(column_name="LastScanTime")
    scan_time = number("ScanTimeSecondsSinceEpoch")
    Meta = make_meta("MissingProductDependencies")


class FilesTable(O3deTable):
    """Every file seen; a view here, of sources and `aptui_files`."""

    file_id = AutoField(column_name="FileID")
    scan_folder = owner(ScanFoldersTable, "ScanFolderPK")
    file_name = text("FileName")
    is_folder = number("IsFolder")
    mod_time = number("ModTime")
    hash = number("Hash")
    Meta = make_meta("Files")


class StatsTable(O3deTable):
    """Durations by name: `CreateJobs,…` and `ProcessJob,…` (`db.foreign.job_stat_sql`); a view here."""

    stat_name = text("StatName", primary_key=True)
    stat_value = number("StatValue")
    last_log_time = number("LastLogTime")
    Meta = make_meta("Stats")


class BuilderInfoTable(O3deTable):
    """Builders, each with its analysis fingerprint at the last run."""

    builder_id = AutoField(column_name="BuilderID")
    guid = BlobField(column_name="Guid")
    analysis_fingerprint = TextField(column_name="AnalysisFingerprint")
    Meta = make_meta("BuilderInfo")


O3DE_TABLES: tuple[type[Model], ...] = tuple(O3deTable.__subclasses__())


class StateTable(OwnTable):
    """Single values: schema, epoch, seq, reserved run keys, scan signature."""

    key = TextField(primary_key=True)
    value = TextField()
    Meta = make_meta("aptui_state", has_row_id=False)


class OwnSourcesTable(OwnTable):
    """`path_key` is in lower case also beyond ASCII, unlike NOCASE; `identity` is packed by `core.identity.pack`.

    `mtime_ms` and `hash64` (XXH64) are the values that O3DE's table Files has for the file.
    """

    source_id = IntegerField(primary_key=True)
    path_key = TextField()
    digest = BlobField()
    identity = TextField()
    mtime_ms = IntegerField()
    hash64 = IntegerField()
    Meta = make_meta("aptui_sources")


class OwnFilesTable(OwnTable):
    """Files that were not sources when they were checked last; a row of `Sources` takes precedence."""

    file_id = IntegerField(primary_key=True)
    scan_folder_id = IntegerField()
    name = text("name")
    is_folder = IntegerField()
    mtime_ms = IntegerField()
    hash64 = IntegerField()
    Meta = make_meta("aptui_files")


class OwnStatsTable(OwnTable):
    """Durations of analyses, by their names in O3DE; durations of jobs are in `aptui_jobs`."""

    name = text("name", primary_key=True)
    value_ms = IntegerField()
    time_ms = IntegerField()
    Meta = make_meta("aptui_stats", has_row_id=False)


class LegacyUuidsTable(OwnTable):
    """Additional UUIDs of a source.

    They are its earlier UUIDs, the UUIDs of its path, and a UUID that it declares but another source has.
    """

    uuid = BlobField()
    source_id = IntegerField()
    created_ms = IntegerField()
    Meta = make_meta("aptui_legacy", "uuid", "source_id")


class OwnJobsTable(OwnTable):
    """Our columns of a job: state, plan, manifest, reason. `origin` is "" for a result that was made here.

    `failure` is packed (`core.retry`), "" for a job that did not fail.
    """

    job_id = IntegerField(primary_key=True)
    state = TextField()
    planned = IntegerField(null=True)
    error = TextField()
    reason = TextField()
    inputs = BlobField()
    plan = BlobField()
    duration_ms = IntegerField()
    completed_ms = IntegerField()
    failure_cause = TextField()
    escalation = IntegerField()
    origin = TextField()
    failure = TextField()
    Meta = make_meta("aptui_jobs")


class RetriesTable(OwnTable):
    """Failures of runs before the run with `run_key` succeeded; ignored unless `run_key` is the job's last run."""

    job_id = IntegerField(primary_key=True)
    run_key = IntegerField()
    kinds = TextField()
    Meta = make_meta("aptui_retries")


class DraftsTable(OwnTable):
    """Jobs whose products are drafts (`core.quality`); `final` is the fingerprint of the planned final."""

    job_id = IntegerField(primary_key=True)
    final = IntegerField(null=True)
    Meta = make_meta("aptui_drafts")


class AnalysesTable(OwnTable):
    """Analyse jobs; they are never stored in Jobs. `plans` holds job plans and edges of the last success."""

    source_id = IntegerField()
    builder = BlobField()
    state = TextField()
    fingerprint = IntegerField(null=True)
    error = TextField()
    warnings = IntegerField()
    errors = IntegerField()
    duration_ms = IntegerField()
    completed_ms = IntegerField()
    log_file = TextField()
    reason = TextField()
    plans = BlobField()
    failure = TextField()
    Meta = make_meta("aptui_analyses", "source_id", "builder")


class EdgesTable(OwnTable):
    """Targets of all kinds of dependency in lower case: the sources that are planned again when `target` changes."""

    target = TextField()
    source_id = IntegerField()
    builder = BlobField()
    kind = IntegerField()
    Meta = make_meta("aptui_edges", "target", "source_id", "builder", "kind")


class OwnProductsTable(OwnTable):
    """SHA-256 and size of a product."""

    product_id = IntegerField(primary_key=True)
    digest = BlobField()
    size = IntegerField()
    Meta = make_meta("aptui_products")


class FactsTable(OwnTable):
    """Facts that builders report about products (`core.run_report`); most products have no row. `more` is JSON, "" = nothing."""

    product_id = IntegerField(primary_key=True)
    width = IntegerField()
    height = IntegerField()
    triangles = IntegerField()
    rate = IntegerField()
    seconds = FloatField()
    format = TextField()
    more = TextField()
    Meta = make_meta("aptui_facts")


class ProductLinksTable(OwnTable):
    """Declared dependencies of products; `store.db.product_links` makes the rows of ProductDependencies from them.

    `kind` is `core.model.LinkKind`; `path` is in lower case and without a platform; `prefix` is the folder below which a path
    with `*` can match, null for a path without `*`; `source_guid` and `sub_id` are those of a dependency by asset id.
    """

    product_id = IntegerField()
    at = IntegerField()
    kind = IntegerField()
    platform = TextField()
    path = TextField()
    prefix = TextField(null=True)
    is_exclusion = IntegerField()
    source_guid = BlobField()
    sub_id = IntegerField()
    flags = IntegerField()
    Meta = make_meta("aptui_product_links", "product_id", "at")


class MissingScansTable(OwnTable):
    """Names that were found in a product when it was last scanned for missing dependencies (`features.shipping`)."""

    product_id = IntegerField(primary_key=True)
    digest = BlobField()
    terms = TextField()
    names = BlobField()
    Meta = make_meta("aptui_missing_scans")


class RunsTable(OwnTable):
    """The last runs of each job.

    `products` is one digest over the run's products, `step` leads back to the state before the run (`core.rows`).
    """

    job_id = IntegerField()
    run_key = IntegerField()
    completed_ms = IntegerField()
    duration_ms = IntegerField()
    outcome = IntegerField()
    reason = TextField()
    error = TextField()
    log_file = TextField()
    fingerprint = IntegerField()
    version = TextField()
    products = BlobField()
    step = TextField()
    origin = TextField()
    Meta = make_meta("aptui_runs", "job_id", "run_key")


class SessionsTable(OwnTable):
    """Sessions of work, from a start until the engine is idle.

    Session 0 stands for everything before the first kept session; `run_key` is the highest run key at the end of the session.
    """

    session_id = IntegerField(primary_key=True)
    started_ms = IntegerField()
    ended_ms = IntegerField()
    kind = TextField()
    detail = TextField()
    commit_id = TextField()
    outcome = TextField()
    run_key = IntegerField()
    jobs_run = IntegerField()
    jobs_failed = IntegerField()
    jobs_gone = IntegerField()
    restored = IntegerField()
    work_ms = IntegerField()
    saved_ms = IntegerField()
    fetched_bytes = IntegerField()
    failing = IntegerField()
    Meta = make_meta("aptui_sessions")


class SessionRunsTable(OwnTable):
    """The last run of each job in a session.

    `ended_after_ms` counts from the begin of the session, `size` is the total size of the run's products (bytes).

    `is_draft`: the run made drafts (`core.quality`).
    """

    job_id = IntegerField()
    session_id = IntegerField()
    outcome = IntegerField()
    is_restored = IntegerField()
    duration_ms = IntegerField()
    ended_after_ms = IntegerField()
    size = IntegerField()
    is_draft = IntegerField()
    Meta = make_meta("aptui_session_runs", "job_id", "session_id")


class GoneJobsTable(OwnTable):
    """Deleted jobs, for the sessions in which they ran."""

    job_id = IntegerField(primary_key=True)
    source = TextField()
    platform = TextField()
    job_key = TextField()
    builder = BlobField()
    gone_ms = IntegerField()
    Meta = make_meta("aptui_gone_jobs")


class ConflictsTable(OwnTable):
    """Product names that made a job fail, because another job has a product with the same name."""

    name = TextField()
    job_id = IntegerField()
    Meta = make_meta("aptui_conflicts", "name", "job_id")


class FoldersTable(OwnTable):
    """A relative folder in one scan folder: its digest, and its files as `store.db.folder_blobs` packs them."""

    folder = TextField()
    scan_folder_id = IntegerField()
    digest = BlobField()
    files = BlobField()
    Meta = make_meta("aptui_folders", "folder", "scan_folder_id")


class IntentsTable(OwnTable):
    """Renames that a commit is about to make, one row per product; `stale` is a JSON list of names to delete afterwards."""

    run_key = IntegerField()
    job_id = IntegerField()
    name = TextField()
    digest = BlobField()
    size = IntegerField()
    stale = TextField()
    Meta = make_meta("aptui_intents", "run_key", "name")


class CacheFoldersTable(OwnTable):
    """Cache folders with the ctime they had after the last commit.

    The ctime is 0 if the next start has to check the folder, and -1 if the folder existed and is gone.
    """

    name = TextField(primary_key=True)
    ctime_ns = IntegerField()
    Meta = make_meta("aptui_cache_folders", has_row_id=False)


class ChangesTable(OwnTable):
    """The last changes of sources and products, in order (`store.db.change_log`)."""

    seq = IntegerField(primary_key=True)
    kind = IntegerField()
    uuid = BlobField()
    sub_id = IntegerField()
    name = TextField()
    asset_type = BlobField()
    digest = BlobField()
    size = IntegerField()
    is_removed = IntegerField()
    Meta = make_meta("aptui_changes")


OWN_TABLES: tuple[type[Model], ...] = tuple(OwnTable.__subclasses__())


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
    FilesTable: """SELECT 2 * s.SourceID AS FileID, s.ScanFolderPK AS ScanFolderPK, s.SourceName AS FileName, 0 AS IsFolder,
    o.mtime_ms AS ModTime, o.hash64 AS Hash FROM Sources s JOIN aptui_sources o ON o.source_id = s.SourceID
    UNION ALL SELECT 2 * f.file_id + 1, f.scan_folder_id, f.name, f.is_folder, f.mtime_ms, f.hash64 FROM aptui_files f
    WHERE NOT EXISTS (SELECT 1 FROM Sources s WHERE s.ScanFolderPK = f.scan_folder_id AND s.SourceName = f.name
    AND s.SourceName = f.name COLLATE BINARY)""",
    StatsTable: f"""SELECT ({job_stat_sql()}) COLLATE NOCASE AS StatName, o.duration_ms AS StatValue, o.completed_ms AS LastLogTime
    FROM Jobs j JOIN aptui_jobs o ON o.job_id = j.JobID JOIN Sources s ON s.SourceID = j.SourcePK
    JOIN ScanFolders f ON f.ScanFolderID = s.ScanFolderPK WHERE o.completed_ms > 0
    UNION ALL SELECT name, value_ms, time_ms FROM aptui_stats""",
}
"""O3DE's tables whose content is in our tables; each is a view, so that no rows are written for it."""
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
# Names of deleted jobs are recorded when a source is deleted, because the source is deleted before its jobs, and when a job is
# deleted without its source.
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
    meta = model._meta  # noqa: SLF001  # peewee calls it public
    return meta.table_name, [field.column_name for field in meta.sorted_fields]


def own_tables_sql() -> Iterator[str]:
    """Yield the statements that create our tables as temporary tables, for reading a foreign database."""
    yield from _table_sql(OWN_TABLES, is_temporary=True)


class _Statements(SqliteDatabase):
    """A peewee database that collects statements and does not execute them."""

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
