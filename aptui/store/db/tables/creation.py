"""The SQL that makes every table, view, index and trigger of the asset database; what versions mean is in `schema`.

Importing this costs 0.1 s (peewee), so only what creates a database, or gives a foreign one our empty tables, does it.

Tests: `tests/store/queries/test_reader.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from peewee import Model, SchemaManager, SqliteDatabase

from aptui.store.db.statements import job_stat_sql
from aptui.store.db.tables.o3de import O3DE_TABLES, FilesTable, StatsTable
from aptui.store.db.tables.ours import OWN_TABLES

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
# Two files that differ in case alone are two rows, so this one compares bytes although the column is NOCASE.
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
"""What only repeats our rows for O3DE's readers is no table: nothing is written for it."""
# What goes with a row of O3DE's, whoever deletes it: (table, its key, our table, our column).
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
# A source goes before its jobs do, and takes their names with it; a job may go alone.
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
    """Return a table's name and those of its columns."""
    meta = model._meta  # noqa: SLF001  # peewee calls it public
    return meta.table_name, [field.column_name for field in meta.sorted_fields]


def own_tables_sql() -> Iterator[str]:
    """Yield the statements that make our tables as temporary ones, for reading a database that has none of them."""
    yield from _table_sql(OWN_TABLES, is_temporary=True)


def _table_sql(models: tuple[type[Model], ...], *, is_temporary: bool) -> Iterator[str]:
    nowhere = SqliteDatabase(None)
    for model in models:
        # Binding the models to a database, if only for a while, binds them for all threads.
        schema: Any = SchemaManager(model, nowhere)
        # Peewee has no public way to the text of its schema.
        sql, parameters = schema._create_table(safe=False, temporary=is_temporary).query()  # noqa: SLF001
        if parameters:
            message = f"peewee wants parameters in the schema of {model.__name__}"
            raise AssertionError(message)
        yield sql
