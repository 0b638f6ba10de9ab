"""O3DE's own tables, version 40, name by name, as peewee models; the SQL that makes them is in `creation`.

Tests: `tests/store/queries/test_reader.py`.
"""

from __future__ import annotations

from peewee import SQL, AutoField, BlobField, ForeignKeyField, IntegerField, Model, Node, TextField

# Columns and tables as peewee has them and O3DE wants them; which there are is said in `o3de` and `ours`.


def text(column: str, *, default: str | None = None, primary_key: bool = False) -> TextField:
    """Return a column of text that is compared as O3DE compares it: `A` is `a`; `default` is SQL."""
    constraints: list[Node] = [] if default is None else [SQL(f"DEFAULT {default}")]
    return TextField(column_name=column, collation="NOCASE", constraints=constraints, primary_key=primary_key)


def number(column: str, default: int | None = None) -> IntegerField:
    """Return a column of integers."""
    return IntegerField(column_name=column, constraints=[] if default is None else [SQL(f"DEFAULT {default}")])


def owner(model: type[Model], column: str) -> ForeignKeyField:
    """Return a column that names the row of `model` with which this one goes."""
    return ForeignKeyField(model, column_name=column, on_delete="CASCADE", index=False, backref="+")


class DatabaseTable(Model):
    """A table that is called what it says."""

    class Meta:
        legacy_table_names = False


class DbInfoTable(DatabaseTable):
    """The version, in one row."""

    row_id = AutoField(column_name="rowID")
    version = number("version")

    class Meta:
        table_name = "dbinfo"


class ScanFoldersTable(DatabaseTable):
    """Scan folders; `PortableKey` is the name that stays when the project moves."""

    scan_folder_id = AutoField(column_name="ScanFolderID")
    scan_folder = text("ScanFolder")
    display_name = text("DisplayName")
    portable_key = text("PortableKey")
    is_root = number("IsRoot")

    class Meta:
        table_name = "ScanFolders"


class SourcesTable(DatabaseTable):
    """Files that have jobs."""

    source_id = AutoField(column_name="SourceID")
    scan_folder = owner(ScanFoldersTable, "ScanFolderPK")
    source_name = text("SourceName")
    source_guid = BlobField(column_name="SourceGuid")
    analysis_fingerprint = text("AnalysisFingerprint", default="''")

    class Meta:
        table_name = "Sources"


class JobsTable(DatabaseTable):
    """Jobs; `Fingerprint` is that of the last committed run."""

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

    class Meta:
        table_name = "Jobs"


class ProductsTable(DatabaseTable):
    """Products; asset id = source UUID and `SubID`."""

    product_id = AutoField(column_name="ProductID")
    job = owner(JobsTable, "JobPK")
    product_name = text("ProductName")
    sub_id = number("SubID")
    asset_type = BlobField(column_name="AssetType")
    legacy_guid = BlobField(column_name="LegacyGuid")
    hash = number("Hash")
    flags = number("Flags", 1)

    class Meta:
        table_name = "Products"


class LegacySubIdsTable(DatabaseTable):
    """Former sub ids of a product."""

    legacy_sub_id = AutoField(column_name="LegacySubID")
    product = owner(ProductsTable, "ProductPK")
    sub_id = number("SubID")

    class Meta:
        table_name = "LegacySubIDs"


class SourceDependencyTable(DatabaseTable):
    """Source dependencies as declared: a path, a pattern or 32 hex digits of a UUID."""

    source_dependency_id = AutoField(column_name="SourceDependencyID")
    builder_guid = BlobField(column_name="BuilderGuid")
    source_guid = BlobField(column_name="SourceGuid")
    depends_on_source = text("DependsOnSource")
    sub_ids = text("SubIds")
    type_of_dependency = number("TypeOfDependency", 0)
    from_asset_id = number("FromAssetId", 0)

    class Meta:
        table_name = "SourceDependency"


class ProductDependenciesTable(DatabaseTable):
    """What a product needs at run time."""

    product_dependency_id = AutoField(column_name="ProductDependencyID")
    product = owner(ProductsTable, "ProductPK")
    dependency_source_guid = BlobField(column_name="DependencySourceGuid")
    dependency_sub_id = number("DependencySubID")
    platform = text("Platform")
    dependency_flags = number("DependencyFlags")
    unresolved_path = text("UnresolvedPath")
    unresolved_dependency_type = number("UnresolvedDependencyType", 0)
    from_asset_id = number("FromAssetId", 0)

    class Meta:
        table_name = "ProductDependencies"


class MissingProductDependenciesTable(DatabaseTable):
    """What looks like a dependency in a product's bytes and was not declared."""

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

    class Meta:
        table_name = "MissingProductDependencies"


class FilesTable(DatabaseTable):
    """Every file seen; a view here, of sources and `aptui_files`."""

    file_id = AutoField(column_name="FileID")
    scan_folder = owner(ScanFoldersTable, "ScanFolderPK")
    file_name = text("FileName")
    is_folder = number("IsFolder")
    mod_time = number("ModTime")
    hash = number("Hash")

    class Meta:
        table_name = "Files"


class StatsTable(DatabaseTable):
    """Durations by name: `CreateJobs,…` and `ProcessJob,…` (`db.statements.job_stat_sql`); a view here."""

    stat_name = text("StatName", primary_key=True)
    stat_value = number("StatValue")
    last_log_time = number("LastLogTime")

    class Meta:
        table_name = "Stats"


class BuilderInfoTable(DatabaseTable):
    """Builders with the analysis fingerprint they had."""

    builder_id = AutoField(column_name="BuilderID")
    guid = BlobField(column_name="Guid")
    analysis_fingerprint = TextField(column_name="AnalysisFingerprint")

    class Meta:
        table_name = "BuilderInfo"


O3DE_TABLES: tuple[type[Model], ...] = (
    DbInfoTable,
    ScanFoldersTable,
    SourcesTable,
    JobsTable,
    ProductsTable,
    LegacySubIdsTable,
    SourceDependencyTable,
    ProductDependenciesTable,
    MissingProductDependenciesTable,
    FilesTable,
    StatsTable,
    BuilderInfoTable,
)
