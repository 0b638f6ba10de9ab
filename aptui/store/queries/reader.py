"""The reader: queries of users and clients about the asset database. It is read-only, cheap to import, and needs no engine.

It reads our databases and those of O3DE: a database without our tables gets empty temporary tables, so that each query works for
both.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from aptui.config.dirs import refuse_other_user
from aptui.core import fingerprint
from aptui.core.model import LISTED_ANALYSIS, SHOWN, FileFact
from aptui.shared.errors import HostError, UserError
from aptui.store.db import foreign
from aptui.store.db.folder_blobs import unpack_files
from aptui.store.db.foreign import job_stat_sql, read_only_uri
from aptui.store.db.schema import O3DE_VERSION, OWN_VERSION, VERSION_KEY, host_error, refuse_altered, refuse_newer, uuid_text

if TYPE_CHECKING:
    from aptui.core.rows import RunStep

STATUSES = ("pending", "processing", "completed", "failed", "cancelled")
"""All statuses that users see. Counts by status may have more entries, for completed jobs with warnings or errors."""
_OLDEST_READ = 36
"""Oldest O3DE version whose tables have all queried columns."""
_NOT_ASKED = frozenset({"FailureCauseSourcePK", "FailureCauseFingerprint"})
"""Columns of O3DE's database version 39 that no query of aptui reads, so a database without them can be read."""
_TOO_LONG, _MISSING = "the path of the source is too long for the job", "the source or the job is missing"
_STATE_SQL = (
    "COALESCE(o.state, CASE j.Status WHEN 0 THEN 'waiting' WHEN 1 THEN 'running' WHEN 4 THEN 'completed' ELSE 'failed' END)"
)
ERROR_SQL = f"COALESCE(o.error, CASE j.Status WHEN 3 THEN '{_TOO_LONG}' WHEN 5 THEN '{_MISSING}' ELSE '' END)"
"""The error of a job; for O3DE's own jobs, the meaning of their status."""
_FULL_REASON_SQL = """CASE WHEN origin = '' THEN reason WHEN reason = '' THEN 'its result is ' || origin
    ELSE reason || '; its result is ' || origin END"""
REASON_SQL = _FULL_REASON_SQL.replace("origin", "o.origin").replace("reason", "o.reason")
"""Why a job ran and where its result came from, in one sentence (`core.model.with_origin`)."""
_DURATION_SQL = f"COALESCE(o.duration_ms, (SELECT t.StatValue FROM Stats t WHERE t.StatName = {job_stat_sql()}), 0)"
CRITICAL_SQL = "CASE WHEN instr(o.plan, ',true,') THEN json_extract(o.plan, '$[0][3]') ELSE 0 END"
"""Whether a job is critical. Only packed plans that contain `true` must be unpacked, and they are few (`core.rows.pack_plan`)."""
_JOBS_SQL = f"""
SELECT s.SourceName, f.DisplayName, j.Platform, j.JobKey, j.BuilderGuid, {_STATE_SQL}, COALESCE({REASON_SQL}, ''),
    COALESCE(o.completed_ms, j.LastLogTime), {_DURATION_SQL}, j.WarningCount, j.ErrorCount, j.LastLogFile, j.JobID,
    {ERROR_SQL}, j.JobRunKey, s.SourceID, COALESCE(o.failure_cause, ''), COALESCE(o.origin, ''), COALESCE(t.kinds, ''),
    d.job_id IS NOT NULL, COALESCE(d.final = o.planned, 0), {CRITICAL_SQL}
FROM Jobs j JOIN Sources s ON s.SourceID = j.SourcePK JOIN ScanFolders f ON f.ScanFolderID = s.ScanFolderPK
LEFT JOIN aptui_jobs o ON o.job_id = j.JobID LEFT JOIN aptui_retries t ON t.job_id = j.JobID AND t.run_key = j.JobRunKey
LEFT JOIN aptui_drafts d ON d.job_id = j.JobID"""
_ANALYSES_SQL = """
SELECT s.SourceName, f.DisplayName, 'all', '', a.builder, a.state, a.reason, a.completed_ms, a.duration_ms, a.warnings, a.errors,
    a.log_file, 0, a.error, 0, s.SourceID, '', '', '', 0, 0, 0
FROM aptui_analyses a JOIN Sources s ON s.SourceID = a.source_id JOIN ScanFolders f ON f.ScanFolderID = s.ScanFolderPK
WHERE a.state = 'failed'"""
SOURCES_SQL = """
SELECT s.SourceID, s.SourceName, s.SourceGuid, f.ScanFolderID, f.DisplayName, f.ScanFolder, COALESCE(o.digest, x'')
FROM Sources s JOIN ScanFolders f ON f.ScanFolderID = s.ScanFolderPK LEFT JOIN aptui_sources o ON o.source_id = s.SourceID"""
PRODUCTS_SQL = """
SELECT p.ProductName, COALESCE(o.digest, x''), COALESCE(o.size, -1), p.JobPK, p.SubID, p.AssetType, p.Flags, p.ProductID
FROM Products p LEFT JOIN aptui_products o ON o.product_id = p.ProductID"""
_DEPENDENTS_SQL = """
SELECT s.SourceName FROM aptui_edges e JOIN Sources s ON s.SourceID = e.source_id WHERE e.target = :target
UNION SELECT s.SourceName FROM SourceDependency d JOIN Sources s ON s.SourceGuid = d.SourceGuid WHERE d.DependsOnSource = :target
ORDER BY 1"""


RESTORED = ", restored by hand"
"""If a user restored a result, the stored text about its origin ends with this text (`features.sharing.job_results`)."""


class JobRow(Struct, frozen=True):
    """A job as it is listed; `job_id` 0 is a failed analysis. `state` is as in `core.machine`, `status` one of `STATUSES`.

    `flaky` has the kinds of failures before the successful run, "" = none (`core.retry`). `is_draft`: its products are drafts
    (`core.quality`). `is_finishing`: it has its draft, and only the run that makes its final products is pending or running.
    `is_critical`: it runs before other jobs.
    """

    source: str
    scan_folder: str
    platform: str
    job_key: str
    builder: bytes
    status: str
    reason: str
    completed_ms: int
    duration_s: float
    warnings: int
    errors: int
    log: str
    job_id: int
    error: str
    run_key: int
    source_id: int
    state: str
    failure_cause: str
    origin: str = ""
    flaky: str = ""
    is_draft: bool = False
    is_finishing: bool = False
    is_critical: bool = False

    @property
    def is_restored(self) -> bool:
        """Whether the job's products are those of an earlier run, which a user restored."""
        return self.origin.endswith(RESTORED)


class SourceRow(Struct, frozen=True):
    """A source; `scan_folder` is the name, `root` the path of its scan folder; `digest` b"" when not known."""

    source_id: int
    source: str
    uuid: bytes
    scan_folder_id: int
    scan_folder: str
    root: str
    digest: bytes


class ProductRow(Struct, frozen=True):
    """A product; `digest` b"" and `size` -1 when not known."""

    name: str
    digest: bytes
    size: int
    job_id: int
    sub_id: int
    asset_type: bytes
    flags: int
    product_id: int


class RunRow(Struct, frozen=True):
    """One run of a job's history; `outcome` is `core.orders.Outcome`.

    `version` is the version of the builder. `products` is one digest over all products of the run, b"" if it has no products.
    `step` is a packed difference, from which `core.rows` computes the inputs and products of a job's runs.
    """

    run_key: int
    completed_ms: int
    duration_ms: int
    outcome: int
    reason: str
    error: str
    log_file: str
    fingerprint: int
    version: str
    products: bytes
    step: str


class EdgeRow(Struct, frozen=True):
    """A source dependency as declared; `type_bits`: 1 source to source, 2 job to job, 4 wildcard."""

    builder: bytes
    target: str
    type_bits: int
    sub_ids: str
    from_asset_id: bool


class JobTotals(Struct, frozen=True):
    """Counts over the whole database; `jobs` {status: count} has every status, and includes failed analyses."""

    sources: int
    products: int
    jobs: dict[str, int] = field(default_factory=dict)
    warnings: int = 0
    errors: int = 0


class Reader:
    """A read-only connection; make one with `open_reader`."""

    def __init__(self, database: sqlite3.Connection, path: Path | None = None) -> None:
        self._database, self._path = database, path
        self.roots: Mapping[str, str] = {}
        """{name of a scan folder: its path now}; the stored path is older if the project was copied or moved since the last run."""

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let all queries in the `with` block read the same state of the database; inside another such block, it has no effect.

        Raises:
            HostError: the database cannot be read, or is incomplete.
        """
        if self._database.in_transaction:
            yield
            return
        self._database.execute("BEGIN")
        try:
            yield
        except sqlite3.Error as error:
            raise host_error(self._path or Path(), error) from error
        finally:
            self._database.execute("COMMIT")

    # ---------------------------------------------------------------------------------------------------------------- jobs

    def jobs(self, *, statuses: Collection[str] = (), platform: str = "") -> Iterator[JobRow]:
        """Yield jobs by source path, failed analyses last.

        Args:
            statuses: the wanted statuses, each one of `STATUSES`; empty = all.
            platform: a platform id, "" = all.
        """
        conditions = ["j.Platform = ?"] if platform else []
        if statuses and "completed" not in statuses:
            conditions.append("j.Status <> 4")
        where, values = (f" WHERE {' AND '.join(conditions)}" if conditions else ""), (platform,) if platform else ()
        questions: list[tuple[str, tuple[str, ...]]] = [(f"{_JOBS_SQL}{where} ORDER BY s.SourceName, j.JobID", values)]
        if platform in ("", "all"):
            questions.append((f"{_ANALYSES_SQL} ORDER BY s.SourceName", ()))
        for sql, parameters in questions:
            for row in self._database.execute(sql, parameters):
                if not statuses or SHOWN[row[5]] in statuses:
                    yield _job_row(row)

    def job(self, job_id: int) -> JobRow | None:
        """Return one job; None if it does not exist, or if the number is too large for a database."""
        if job_id >= 1 << 63:
            return None
        row = self._database.execute(f"{_JOBS_SQL} WHERE j.JobID = ?", (job_id,)).fetchone()
        return _job_row(row) if row else None

    def flaky_jobs(self) -> list[int]:
        """Return the ids of the jobs that succeeded after a failed run, in the order of their sources."""
        sql = """SELECT j.JobID FROM aptui_retries t CROSS JOIN Jobs j ON j.JobID = t.job_id AND j.JobRunKey = t.run_key
            JOIN Sources s ON s.SourceID = j.SourcePK ORDER BY s.SourceName, j.JobID"""
        return [job_id for (job_id,) in self._database.execute(sql)]

    def draft_jobs(self) -> list[int]:
        """Return the ids of the jobs whose products are drafts, in the order of their sources."""
        sql = """SELECT j.JobID FROM aptui_drafts d CROSS JOIN Jobs j ON j.JobID = d.job_id
            JOIN Sources s ON s.SourceID = j.SourcePK ORDER BY s.SourceName, j.JobID"""
        return [job_id for (job_id,) in self._database.execute(sql)]

    def failures_before(self, before_ms: int) -> list[tuple[str, str, str]]:
        """Return the failures before this time (ms) as (source, platform, kind of the failure): first jobs, then analyses.

        Only jobs and analyses that are still failed are returned. An analysis has the platform "all".
        """
        kind = "CASE failure WHEN '' THEN '' ELSE json_extract(failure, '$[0]') END"
        sql = f"""SELECT s.SourceName, j.Platform, {kind} FROM Jobs j JOIN aptui_jobs o ON o.job_id = j.JobID
            JOIN Sources s ON s.SourceID = j.SourcePK WHERE o.state = 'failed' AND o.completed_ms < ?
            UNION ALL SELECT s.SourceName, 'all', {kind} FROM aptui_analyses a JOIN Sources s ON s.SourceID = a.source_id
            WHERE a.state = 'failed' AND a.completed_ms < ?"""
        return self._database.execute(sql, (before_ms, before_ms)).fetchall()

    def jobs_of(self, source_id: int) -> list[JobRow]:
        """Return the jobs of a source, its failed analyses last."""
        rows = self._database.execute(f"{_JOBS_SQL} WHERE s.SourceID = ? ORDER BY j.JobID", (source_id,)).fetchall()
        rows += self._database.execute(f"{_ANALYSES_SQL} AND s.SourceID = ? ORDER BY a.builder", (source_id,)).fetchall()
        return [_job_row(row) for row in rows]

    def runs_of(self, job_id: int) -> list[RunRow]:
        """Return the last runs of a job, the newest first."""
        sql = f"""SELECT run_key, completed_ms, duration_ms, outcome, {_FULL_REASON_SQL}, error, log_file, fingerprint, version,
            products, step
            FROM aptui_runs WHERE job_id = ? ORDER BY run_key DESC"""
        return [RunRow(*row) for row in self._database.execute(sql, (job_id,))]

    def moments_of(self, job_id: int) -> list[RunStep]:
        """Return the inputs and products of the runs of a job, in the order of `runs_of`."""
        from aptui.core.orders import Outcome  # imported here, because most commands do not read the history
        from aptui.core.rows import RunStep, moments

        made = tuple((row.name, row.digest.hex()[:32], row.size) for row in self.products_of(job_id))
        steps = ((run.outcome == Outcome.SUCCEEDED, run.step) for run in self.runs_of(job_id))
        return moments(RunStep(self.inputs_of(job_id), made), steps)

    def inputs_of(self, job_id: int) -> tuple[tuple[str, str, str], ...]:
        """Return the manifest of a job's last committed run: ((kind, name, digest hex), ...)."""
        row = self._database.execute("SELECT inputs FROM aptui_jobs WHERE job_id = ?", (job_id,)).fetchone()
        return fingerprint.load(row[0]) if row else ()

    def totals(self) -> JobTotals:
        """Return counts over the whole database; completed jobs without messages are counted without reading their rows."""
        jobs = dict.fromkeys(STATUSES, 0)
        unfinished = f"""SELECT {_STATE_SQL}, COUNT(*) FROM Jobs j LEFT JOIN aptui_jobs o ON o.job_id = j.JobID
            WHERE j.Status <> 4 GROUP BY 1 UNION ALL SELECT state, COUNT(*) FROM aptui_analyses WHERE state = 'failed' GROUP BY 1"""
        for state, count in self._database.execute(unfinished):
            jobs[SHOWN[state]] += count
        counts = """SELECT (SELECT COUNT(*) FROM Jobs), (SELECT COUNT(*) FROM Jobs WHERE Status <> 4),
            (SELECT COUNT(*) FROM Sources), (SELECT COUNT(*) FROM Products)"""
        all_jobs, open_jobs, sources, products = self._database.execute(counts).fetchone()
        jobs["completed"] = all_jobs - open_jobs
        logged = """SELECT COALESCE(SUM(w), 0), COALESCE(SUM(e), 0) FROM (
            SELECT WarningCount w, ErrorCount e FROM Jobs WHERE WarningCount > 0 OR ErrorCount > 0
            UNION ALL SELECT warnings, errors FROM aptui_analyses WHERE state = 'failed')"""
        warnings, errors = self._database.execute(logged).fetchone()
        return JobTotals(sources, products, jobs, warnings, errors)

    # ------------------------------------------------------------------------------------------ sources, products, files

    def folder_paths(self) -> dict[int, str]:
        """Return {ScanFolderID: present path of the scan folder}."""
        rows = self._database.execute("SELECT ScanFolderID, DisplayName, ScanFolder FROM ScanFolders")
        return {number: self.roots.get(name, stored) for number, name, stored in rows}

    def sources(self) -> Iterator[SourceRow]:
        """Yield every source by path."""
        for row in self._database.execute(f"{SOURCES_SQL} ORDER BY s.SourceName, s.SourceID"):
            yield self.source_row(row)

    def source(self, path_key: str) -> SourceRow | None:
        """Return the source with this path; upper and lower case are not distinguished."""
        key = path_key.lower()
        row = self._database.execute(f"{SOURCES_SQL} WHERE o.path_key = ?", (key,)).fetchone()
        row = row or self._database.execute(f"{SOURCES_SQL} WHERE s.SourceName = ? ORDER BY s.SourceID", (key,)).fetchone()
        return self.source_row(row) if row else None

    def source_row(self, row: Sequence[Any]) -> SourceRow:
        """Return the source of a row of `SOURCES_SQL`, with the present path of its scan folder."""
        found = SourceRow(*row)
        root = self.roots.get(found.scan_folder, found.root)
        return found if root == found.root else replace(found, root=root)

    def products(self) -> Iterator[ProductRow]:
        """Yield all products in the order of their names."""
        for row in self._database.execute(f"{PRODUCTS_SQL} ORDER BY p.ProductName, p.ProductID"):
            yield ProductRow(*row)

    def products_of(self, job_id: int) -> list[ProductRow]:
        """Return the products of a job, in the order in which the job made them."""
        return [
            ProductRow(*row) for row in self._database.execute(f"{PRODUCTS_SQL} WHERE p.JobPK = ? ORDER BY p.ProductID", (job_id,))
        ]

    def edges_of(self, source_id: int) -> list[EdgeRow]:
        """Return the declared dependencies of a source."""
        sql = """SELECT d.BuilderGuid, d.DependsOnSource, d.TypeOfDependency, d.SubIds, d.FromAssetId FROM Sources s
            JOIN SourceDependency d ON d.SourceGuid = s.SourceGuid WHERE s.SourceID = ?
                ORDER BY d.DependsOnSource, d.TypeOfDependency"""
        rows = self._database.execute(sql, (source_id,))
        return [EdgeRow(builder, target, bits, sub_ids, bool(by_id)) for builder, target, bits, sub_ids, by_id in rows]

    def dependents_of(self, target: str) -> list[str]:
        """Return the paths of sources that depend on `target`: a path, or 32 hex digits of a UUID; wildcards are not expanded."""
        return [name for (name,) in self._database.execute(_DEPENDENTS_SQL, {"target": target.lower()})]

    def file(self, path: str) -> FileFact | None:
        """Return the stored state of the file at a path. If several scan folders have it, prefer the file that is a source."""
        key = path.lower()
        sql = "SELECT scan_folder_id, files FROM aptui_folders WHERE folder = ? ORDER BY scan_folder_id"
        rows = self._database.execute(sql, (key.rpartition("/")[0],)).fetchall()
        found = [fact for part, data in rows for fact in unpack_files(data, part) if fact.rel.lower() == key]
        source = self.source(key)
        preferred = [fact for fact in found if source is not None and fact.scan_folder == source.scan_folder_id]
        return next(iter(preferred or found), None)

    def state(self, key: str) -> str | None:
        """Return a value of `aptui_state`, such as "epoch" or "seq"."""
        row = self._database.execute("SELECT value FROM aptui_state WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def moment(self) -> tuple[int, int]:
        """Return (epoch, seq) of the last transaction; (0, 0) if no engine of aptui wrote the database."""
        return int(self.state("epoch") or 0), int(self.state("seq") or 0)

    def ask(self, sql: str, values: Sequence[object] | Mapping[str, object] = ()) -> sqlite3.Cursor:
        """Run SQL, for the other modules of this package."""
        return self._database.execute(sql, values)


class NoDatabaseError(UserError):
    """Raised if the asset database does not exist yet."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"nothing was processed yet: there is no asset database '{path}'",
            hint="run 'aptui batch' to process the project",
        )


def open_reader(path: Path) -> Reader:
    """Open an asset database for reading. If O3DE wrote the database (versions 36 to 40), open a private copy of it.

    Raises:
        NoDatabaseError: the database does not exist.
        UserError: the database has an unsupported version.
        HostError: it cannot be read.
    """
    if not path.is_file():
        raise NoDatabaseError(path)
    refuse_other_user(path.parent)
    _refuse_special_companions(path)
    with ExitStack() as stack:
        try:
            is_ours = foreign.writer_of(path) is foreign.ForeignWriter.APTUI
            database = stack.enter_context(closing(_connect(path, is_ours=is_ours)))
            database.execute("PRAGMA trusted_schema = OFF")
            _check_version(path, database, is_ours=is_ours)
            refuse_altered(path, database, is_ours=is_ours)
            if not is_ours:
                _adapt(path, database)
            database.execute("PRAGMA query_only = ON")
        except sqlite3.Error as error:
            raise host_error(path, error) from error
        stack.pop_all()
    return Reader(database, path)


def _refuse_special_companions(path: Path) -> None:
    """Refuse a database if a file that SQLite reads with it is a pipe, a device or a link. SQLite would wait for a pipe forever."""
    for suffix in foreign.COMPANIONS:
        file = f"{path}{suffix}"
        with suppress(OSError):
            if not stat.S_ISREG(os.lstat(file).st_mode):
                raise HostError(f"'{file}' is not a regular file", hint="remove it, then run 'aptui batch'")


def _connect(path: Path, *, is_ours: bool) -> sqlite3.Connection:
    if not is_ours:
        return sqlite3.connect(foreign.private_copy(path), isolation_level=None, check_same_thread=False, timeout=5)
    database = sqlite3.connect(read_only_uri(path), uri=True, isolation_level=None, check_same_thread=False, timeout=5)
    try:
        database.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError as error:
        database.close()
        # WAL needs a shared-memory file, which cannot be created in a read-only folder. An immutable database needs none.
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CANTOPEN:
            raise
        uri = read_only_uri(path, is_immutable=True)
        database = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    return database


def _check_version(path: Path, database: sqlite3.Connection, *, is_ours: bool) -> None:
    known = database.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'dbinfo'").fetchone()
    version = database.execute("SELECT MAX(version) FROM dbinfo").fetchone()[0] if known else None
    if version is None:
        raise UserError(f"'{path}' is not an asset database", hint="give the path of an assetdb.sqlite, or its cache folder")
    if not (O3DE_VERSION if is_ours else _OLDEST_READ) <= version <= O3DE_VERSION:
        readable = f"{O3DE_VERSION}" if is_ours else f"{_OLDEST_READ} to {O3DE_VERSION}"
        raise UserError(
            f"the asset database '{path}' has version {version}; this aptui reads {readable}",
            hint="open it with the program that wrote it, or give another file",
        )
    if is_ours:
        own = database.execute("SELECT value FROM aptui_state WHERE key = ?", (VERSION_KEY,)).fetchone()
        if own is not None and own[0] != str(OWN_VERSION):
            refuse_newer(path, int(own[0]) if own[0].isdecimal() else 0)
            raise UserError(
                f"the asset database '{path}' was written by an older aptui",
                hint="run 'aptui batch', which moves the database aside and rebuilds it from the sources",
            )


def _adapt(path: Path, database: sqlite3.Connection) -> None:
    """Add our tables, empty, to a database of O3DE; refuse a database without the necessary columns."""
    from aptui.store.db.table_models import O3DE_TABLES, column_names, own_tables_sql

    for table, wanted in map(column_names, O3DE_TABLES):
        there = {name for _, name, *_ in database.execute(f"PRAGMA table_info({table})")}
        lacking = [name for name in wanted if name not in there and name not in _NOT_ASKED]
        if lacking:
            raise UserError(
                f"'{path}' cannot be read: its table {table!r} has no column {lacking[0]!r}",
                hint="open it with the program that wrote it, or give another file",
            )
    for statement in own_tables_sql():
        database.execute(statement)


def _job_row(row: tuple[Any, ...]) -> JobRow:
    source, scan_folder, platform, job_key, builder, state, reason, completed_ms, duration_ms, warnings, errors, log = row[:12]
    job_id, error, run_key, source_id, failure_cause, origin, flaky, is_draft, is_finishing, is_critical = row[12:]
    job_key = job_key or f"{LISTED_ANALYSIS}{uuid_text(builder)}"
    return JobRow(
        source, scan_folder, platform, job_key, builder, SHOWN[state], reason, completed_ms,
        duration_ms / 1000, warnings, errors, log, job_id, error, run_key, source_id, state, failure_cause, origin, flaky,
        bool(is_draft), bool(is_finishing), bool(is_critical),
    )  # fmt: skip
