"""Our tables of the asset database as peewee models: what O3DE has no place for; the SQL that makes them is in `creation`.

Rows of ours go with O3DE's by triggers, which cost nothing until something is deleted; foreign keys would be checked at
every insert (1 µs each, and these are most of the rows). Primary keys are not AUTOINCREMENT for the same reason: the engine
numbers its rows itself.

Tests: `tests/store/queries/test_reader.py`.
"""

from __future__ import annotations

from peewee import BlobField, CompositeKey, FloatField, IntegerField, Model, TextField

from aptui.store.db.tables.o3de import DatabaseTable, text


class StateTable(DatabaseTable):
    """Single values: schema, epoch, seq, reserved run keys, scan signature."""

    key = TextField(primary_key=True)
    value = TextField()

    class Meta:
        table_name = "aptui_state"
        without_rowid = True


class OwnSourcesTable(DatabaseTable):
    """`path_key` is in lower case beyond ASCII, where NOCASE does not reach; `identity` is `core.identity.pack`'s.

    `mtime_ms` and `hash64` (XXH64) are what O3DE's Files has of the file.
    """

    source_id = IntegerField(primary_key=True)
    path_key = TextField()
    digest = BlobField()
    identity = TextField()
    mtime_ms = IntegerField()
    hash64 = IntegerField()

    class Meta:
        table_name = "aptui_sources"


class OwnFilesTable(DatabaseTable):
    """Files that were no sources when they were looked at; one that is a source now counts as that."""

    file_id = IntegerField(primary_key=True)
    scan_folder_id = IntegerField()
    name = text("name")
    is_folder = IntegerField()
    mtime_ms = IntegerField()
    hash64 = IntegerField()

    class Meta:
        table_name = "aptui_files"


class OwnStatsTable(DatabaseTable):
    """Durations of analyses, by O3DE's name for them; those of jobs are in `aptui_jobs`."""

    name = text("name", primary_key=True)
    value_ms = IntegerField()
    time_ms = IntegerField()

    class Meta:
        table_name = "aptui_stats"
        without_rowid = True


class LegacyUuidsTable(DatabaseTable):
    """UUIDs that a source answers to beside its own: earlier ones, those of its path, and one it claims in vain."""

    uuid = BlobField()
    source_id = IntegerField()
    created_ms = IntegerField()

    class Meta:
        table_name = "aptui_legacy"
        primary_key = CompositeKey("uuid", "source_id")
        without_rowid = True


class OwnJobsTable(DatabaseTable):
    """The rest of a job: state, plan, manifest, cause; `origin` says where its result came from if no run here made it.

    `failure` is packed (`core.results.retry`), "" for a job that did not fail.
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

    class Meta:
        table_name = "aptui_jobs"


class RetriesTable(DatabaseTable):
    """What runs of a job failed of before the one with `run_key` succeeded; where that is not its last run, it says nothing."""

    job_id = IntegerField(primary_key=True)
    run_key = IntegerField()
    kinds = TextField()

    class Meta:
        table_name = "aptui_retries"


class DraftsTable(DatabaseTable):
    """Jobs whose products are drafts (`core.results.quality`); `final` is the fingerprint of what is planned to replace them."""

    job_id = IntegerField(primary_key=True)
    final = IntegerField(null=True)

    class Meta:
        table_name = "aptui_drafts"


class AnalysesTable(DatabaseTable):
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

    class Meta:
        table_name = "aptui_analyses"
        primary_key = CompositeKey("source_id", "builder")
        without_rowid = True


class EdgesTable(DatabaseTable):
    """Targets of all kinds of dependency in lower case: which sources are planned again when `target` changes."""

    target = TextField()
    source_id = IntegerField()
    builder = BlobField()
    kind = IntegerField()

    class Meta:
        table_name = "aptui_edges"
        primary_key = CompositeKey("target", "source_id", "builder", "kind")
        without_rowid = True


class OwnProductsTable(DatabaseTable):
    """SHA-256 and size of a product."""

    product_id = IntegerField(primary_key=True)
    digest = BlobField()
    size = IntegerField()

    class Meta:
        table_name = "aptui_products"


class FactsTable(DatabaseTable):
    """What builders say of their products (`core.results.facts`); most products have no row."""

    product_id = IntegerField(primary_key=True)
    width = IntegerField()
    height = IntegerField()
    triangles = IntegerField()
    rate = IntegerField()
    seconds = FloatField()
    format = TextField()

    class Meta:
        table_name = "aptui_facts"


class ProductLinksTable(DatabaseTable):
    """What products declare that they need; `store.product_links` makes the rows of ProductDependencies of it.

    `kind` is `core.model.LinkKind`; `path` is in lower case and without a platform; `prefix` is the folder below which a
    path with `*` can match anything, null for one without; `source_guid` and `sub_id` are those of a dependency by asset
    id.
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

    class Meta:
        table_name = "aptui_product_links"
        primary_key = CompositeKey("product_id", "at")
        without_rowid = True


class MissingScansTable(DatabaseTable):
    """Names that were read of a product when it was last scanned for missing dependencies (`engine.missing`)."""

    product_id = IntegerField(primary_key=True)
    digest = BlobField()
    terms = TextField()
    names = BlobField()

    class Meta:
        table_name = "aptui_missing_scans"


class RunsTable(DatabaseTable):
    """The last runs of each job.

    `products` is one digest over what it made, `step` leads back to the run before (`core.records.history`).
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

    class Meta:
        table_name = "aptui_runs"
        primary_key = CompositeKey("job_id", "run_key")
        without_rowid = True


class SessionsTable(DatabaseTable):
    """Spells of work, from the start to rest (`core.sessions`).

    Session 0 stands for everything before the first one that is kept; `run_key` is the highest one when it ended.
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

    class Meta:
        table_name = "aptui_sessions"


class SessionRunsTable(DatabaseTable):
    """The last run of each job in a session; `ended_after_ms` is since the session began, `size` that of all it made.

    `is_draft`: that was a draft (`core.results.quality`).
    """

    job_id = IntegerField()
    session_id = IntegerField()
    outcome = IntegerField()
    is_restored = IntegerField()
    duration_ms = IntegerField()
    ended_after_ms = IntegerField()
    size = IntegerField()
    is_draft = IntegerField()

    class Meta:
        table_name = "aptui_session_runs"
        primary_key = CompositeKey("job_id", "session_id")
        without_rowid = True


class GoneJobsTable(DatabaseTable):
    """What a job was that is no more, for the sessions in which it ran."""

    job_id = IntegerField(primary_key=True)
    source = TextField()
    platform = TextField()
    job_key = TextField()
    builder = BlobField()
    gone_ms = IntegerField()

    class Meta:
        table_name = "aptui_gone_jobs"


class ConflictsTable(DatabaseTable):
    """Product names that a failed job made too."""

    name = TextField()
    job_id = IntegerField()

    class Meta:
        table_name = "aptui_conflicts"
        primary_key = CompositeKey("name", "job_id")
        without_rowid = True


class FoldersTable(DatabaseTable):
    """One scan folder's part of a relative folder: its digest, and its files as `store.packing` packs them."""

    folder = TextField()
    scan_folder_id = IntegerField()
    digest = BlobField()
    files = BlobField()

    class Meta:
        table_name = "aptui_folders"
        primary_key = CompositeKey("folder", "scan_folder_id")
        without_rowid = True


class IntentsTable(DatabaseTable):
    """Renames that a commit is about to make, one row a product; `stale` is a JSON list of names to delete after."""

    run_key = IntegerField()
    job_id = IntegerField()
    name = TextField()
    digest = BlobField()
    size = IntegerField()
    stale = TextField()

    class Meta:
        table_name = "aptui_intents"
        primary_key = CompositeKey("run_key", "name")
        without_rowid = True


class CacheFoldersTable(DatabaseTable):
    """Cache folders with the ctime they had after the last commit.

    The ctime is 0 if the next start has to look into the folder, and -1 if the folder was made once and is gone.
    """

    name = TextField(primary_key=True)
    ctime_ns = IntegerField()

    class Meta:
        table_name = "aptui_cache_folders"
        without_rowid = True


class ChangesTable(DatabaseTable):
    """The last changes of sources and products, in order (`store.changes`)."""

    seq = IntegerField(primary_key=True)
    kind = IntegerField()
    uuid = BlobField()
    sub_id = IntegerField()
    name = TextField()
    asset_type = BlobField()
    digest = BlobField()
    size = IntegerField()
    is_removed = IntegerField()

    class Meta:
        table_name = "aptui_changes"


OWN_TABLES: tuple[type[Model], ...] = (
    StateTable,
    OwnSourcesTable,
    OwnFilesTable,
    OwnStatsTable,
    LegacyUuidsTable,
    OwnJobsTable,
    RetriesTable,
    DraftsTable,
    AnalysesTable,
    EdgesTable,
    OwnProductsTable,
    FactsTable,
    ProductLinksTable,
    MissingScansTable,
    RunsTable,
    SessionsTable,
    SessionRunsTable,
    GoneJobsTable,
    ConflictsTable,
    FoldersTable,
    IntentsTable,
    CacheFoldersTable,
    ChangesTable,
)
