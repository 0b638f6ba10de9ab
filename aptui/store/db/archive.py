"""Queries that `core` needs (`core.rows.Archive`), on a read-only connection; queries for users are in `queries.reader`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from aptui.core import fingerprint, identity, retry, rows
from aptui.core.model import (
    ANALYSIS_KEY,
    Digest,
    EdgeKind,
    FileFact,
    Job,
    JobState,
    LinkKind,
    PathKey,
    Product,
    ProductLink,
    RelPath,
    RunKey,
    Source,
    SourceUuid,
)
from aptui.core.orders import Outcome
from aptui.core.project import COMMON_PLATFORM
from aptui.core.run_report import ContentFacts
from aptui.core.state.ledger import RUN_KEY_STATE
from aptui.shared.errors import UserError
from aptui.shared.globs import PATTERN_LIMIT
from aptui.store.db.last_run import LastRun, report_damage
from aptui.store.db.schema import has_rows
from aptui.store.db.statements import group_rows, query_ids

# These queries build the core's records of sources from the rows of sources, jobs, products, links and facts.

_STATES = {state.value: state for state in JobState}
_SOURCES_SQL = """
SELECT o.path_key, s.SourceName, s.ScanFolderPK, s.SourceGuid, s.SourceID, o.identity, o.digest
FROM json_each(?) k JOIN aptui_sources o ON o.path_key = k.value JOIN Sources s ON s.SourceID = o.source_id"""
_JOBS_SQL = """
SELECT j.SourcePK, j.JobID, j.BuilderGuid, j.Platform, j.JobKey, j.Fingerprint, j.JobRunKey, j.WarningCount, j.ErrorCount,
    j.LastLogFile, j.FirstFailLogFile, j.LastFailLogFile, j.FirstFailLogTime, j.LastFailLogTime, j.LastLogTime,
    o.state, o.planned, o.error, o.reason, o.inputs, o.plan, o.duration_ms, o.completed_ms, o.failure_cause, o.escalation, o.origin,
    o.failure
FROM json_each(?) k JOIN Jobs j ON j.SourcePK = k.value JOIN aptui_jobs o ON o.job_id = j.JobID"""
_ANALYSES_SQL = """
SELECT a.source_id, a.builder, a.state, a.fingerprint, a.error, a.warnings, a.errors, a.duration_ms, a.completed_ms,
    a.log_file, a.reason, a.plans, a.failure
FROM json_each(?) k JOIN aptui_analyses a ON a.source_id = k.value"""
_PRODUCTS_SQL = """
SELECT p.ProductID, p.JobPK, p.ProductName, p.SubID, p.AssetType, p.Flags, o.digest, p.Hash, o.size
FROM json_each(?) k JOIN Products p ON p.JobPK = k.value JOIN aptui_products o ON o.product_id = p.ProductID
ORDER BY p.JobPK, p.ProductID"""
_LINKS_SQL = """
SELECT l.product_id, l.kind, l.path, l.flags, l.source_guid, l.sub_id, l.is_exclusion
FROM json_each(?) k JOIN Products p ON p.JobPK = k.value JOIN aptui_product_links l ON l.product_id = p.ProductID
ORDER BY l.product_id, l.at"""
_LEGACY_SUB_IDS_SQL = """
SELECT l.ProductPK, l.SubID FROM json_each(?) k JOIN Products p ON p.JobPK = k.value
    JOIN LegacySubIDs l ON l.ProductPK = p.ProductID
ORDER BY l.ProductPK, l.SubID"""
_FACTS_SQL = """
SELECT f.product_id, f.width, f.height, f.triangles, f.rate, f.seconds, f.format, f.more
FROM json_each(?) k JOIN Products p ON p.JobPK = k.value JOIN aptui_facts f ON f.product_id = p.ProductID"""
_RETRIES_SQL = """
SELECT t.job_id, t.kinds FROM json_each(?) k JOIN aptui_retries t ON t.job_id = k.value
    JOIN Jobs j ON j.JobID = t.job_id AND j.JobRunKey = t.run_key"""


def read_sources(database: sqlite3.Connection, keys: Sequence[PathKey]) -> list[tuple[Source, Digest]]:
    """Return (source, digest of its file at the last planning) of the stored sources among `keys`.

    The sources have their jobs, but not the state of their files (`Source.fact`).
    """
    sources: dict[int, Source] = {}
    planned: list[Digest] = []
    for key, rel, scan_folder, uuid, source_id, named, digest in _ask(database, _SOURCES_SQL, keys):
        source = Source(PathKey(key), RelPath(rel), scan_folder, SourceUuid(uuid), source_id, is_stored=True)
        source.identity = identity.unpack(named)
        sources[source_id] = source
        planned.append(Digest(digest))
    if sources:
        _add_analyses(database, sources)
        _add_jobs(database, sources)
    return list(zip(sources.values(), planned, strict=True))


def _add_analyses(database: sqlite3.Connection, sources: dict[int, Source]) -> None:
    for row in _ask(database, _ANALYSES_SQL, list(sources)):
        source = sources[row[0]]
        job = Job(source, row[1], "", ANALYSIS_KEY, state=_STATES[row[2]], fingerprint=row[3] or 0, error=row[4])
        job.warnings, job.errors, job.duration_ms, job.completed_ms, job.log_file, job.reason = row[5:11]
        job.plans, job.edges = rows.unpack_analysis(row[11])
        job.failure = retry.load(row[12])
        job.planned = rows.find_planned(job)
        source.jobs[job.builder, "", ANALYSIS_KEY] = job


def _add_jobs(database: sqlite3.Connection, sources: dict[int, Source]) -> None:
    jobs: dict[int, Job] = {}
    for row in _ask(database, _JOBS_SQL, list(sources)):
        source = sources[row[0]]
        job_id, builder, platform, key = row[1:5]
        job = Job(source, builder, platform, key, job_id, _STATES[row[15]], row[5], row[16], RunKey(row[6]))
        job.warnings, job.errors, job.log_file, job.first_fail_log, job.last_fail_log = row[7:12]
        job.first_fail_ms, job.last_fail_ms, job.last_log_ms = row[12:15]
        job.error, job.reason, inputs, plan = row[17:21]
        job.duration_ms, job.completed_ms, job.failure_cause, job.escalation, job.origin = row[21:26]
        job.failure = retry.load(row[26])
        job.inputs = fingerprint.load(inputs)
        job.plan, job.discovered = rows.unpack_plan(plan, key, platform)
        job.priority, job.is_critical = job.plan.priority, job.plan.is_critical
        source.jobs[builder, platform, key] = jobs[job_id] = job
    for job_id, kinds in _ask(database, _RETRIES_SQL, list(jobs)) if has_rows(database, "aptui_retries") else ():
        jobs[job_id].flaky = kinds
    links, legacy = _links_of(database, list(jobs))
    facts = _facts_of(database, list(jobs))
    for product_id, job_id, name, sub_id, kind, flags, digest, hash64, size in _ask(database, _PRODUCTS_SQL, list(jobs)):
        declared = tuple(links.get(product_id, ())), tuple(legacy.get(product_id, ())), facts.get(product_id)
        jobs[job_id].products += (Product(name, sub_id, kind, flags, Digest(digest), rows.to_unsigned(hash64), size, *declared),)


def _links_of(database: sqlite3.Connection, job_ids: list[int]) -> tuple[dict[int, list[ProductLink]], dict[int, list[int]]]:
    """Return {product id: its links} and {product id: its legacy sub ids}. Most products have neither, and are left out."""
    links: dict[int, list[ProductLink]] = {}
    legacy = group_rows(_ask(database, _LEGACY_SUB_IDS_SQL, job_ids)) if has_rows(database, "LegacySubIDs") else {}
    if has_rows(database, "aptui_product_links"):
        for product_id, kind, path, flags, uuid, sub_id, is_exclusion in _ask(database, _LINKS_SQL, job_ids):
            link = ProductLink(LinkKind(kind), path, flags, uuid, sub_id, bool(is_exclusion))
            links.setdefault(product_id, []).append(link)
    return links, legacy


def _facts_of(database: sqlite3.Connection, job_ids: list[int]) -> dict[int, ContentFacts]:
    """Return {product id: the facts that its builder reported}."""
    if not has_rows(database, "aptui_facts"):
        return {}
    return {product_id: ContentFacts(*values) for product_id, *values in _ask(database, _FACTS_SQL, job_ids)}


def _ask(database: sqlite3.Connection, sql: str, values: Sequence[object]) -> sqlite3.Cursor:
    return database.execute(sql, (json.dumps(values),))


CHUNK = 2_000
"""Maximum number of keys in one query."""


class DatabaseArchive(LastRun):
    """Implementation of `core.rows.Archive`; its base classes implement further queries of the engine."""

    # ------------------------------------------------------------------------------------------------------------- sources

    @report_damage
    def sources(self, keys: Sequence[PathKey]) -> dict[PathKey, Source]:
        """Return the stored sources among `keys`, each with all its jobs (including analyses), products and edges."""
        found: dict[PathKey, Source] = {}
        with self._snapshot():
            for at in range(0, len(keys), CHUNK):
                stored = read_sources(self._database, keys[at : at + CHUNK])
                found.update({source.key: source for source, _digest in stored})
                planned = {source.key: digest for source, digest in stored}
                for key, fact in self.files(list(planned)).items():
                    found[key].fact = rows.as_planned(fact, planned[key])
        return found

    def keys_of(self, uuid: SourceUuid) -> list[PathKey]:
        """Return the keys of the stored sources that have or had this UUID; the source that has the UUID now comes first."""
        sql = """SELECT o.path_key FROM (
                SELECT SourceID, 0 AS is_legacy, 0 AS created_ms FROM Sources WHERE SourceGuid = :uuid
                UNION ALL SELECT source_id, 1, created_ms FROM aptui_legacy WHERE uuid = :uuid) f
            JOIN aptui_sources o ON o.source_id = f.SourceID ORDER BY f.is_legacy, f.created_ms, o.path_key"""
        return [PathKey(key) for (key,) in self._database.execute(sql, {"uuid": uuid})]

    def key_of_jobs(self, job_ids: Sequence[int]) -> dict[int, PathKey]:
        """Return {job id: key of its source}."""
        sql = """SELECT j.JobID, o.path_key FROM json_each(?) k JOIN Jobs j ON j.JobID = k.value
            JOIN aptui_sources o ON o.source_id = j.SourcePK"""
        return dict(query_ids(self._database, sql, job_ids))

    def keys_like(self, pattern: str) -> list[PathKey]:
        """Return the keys of the sources that match a pattern in lower case.

        In the pattern, `*` matches any text, including text with `/`; `?` matches one character.

        Raises:
            UserError: the pattern is longer than `shared.globs.PATTERN_LIMIT`.
        """
        if len(pattern) > PATTERN_LIMIT:
            raise UserError(f"a pattern of more than {PATTERN_LIMIT} characters", hint="use a shorter pattern")
        # GLOB takes linear time, because SQLite never goes back to a star before the last star.
        glob = pattern.replace("[", "[[]")
        return [
            PathKey(key) for (key,) in self._database.execute("SELECT path_key FROM aptui_sources WHERE path_key GLOB ?", (glob,))
        ]

    @report_damage
    def list_logs(self) -> list[str]:
        """Return the names of the logs of all listed runs, relative to the log folder."""
        sql = """SELECT log_file FROM aptui_runs UNION SELECT FirstFailLogFile FROM Jobs UNION SELECT LastFailLogFile FROM Jobs
            UNION SELECT LastLogFile FROM Jobs"""
        return [name for (name,) in self._database.execute(sql) if name]

    def count_failed(self) -> int:
        """Return the number of failed jobs and analyses."""
        sql = """SELECT (SELECT COUNT(*) FROM aptui_jobs WHERE state = 'failed')
            + (SELECT COUNT(*) FROM aptui_analyses WHERE state = 'failed')"""
        return int(self._database.execute(sql).fetchone()[0])

    # --------------------------------------------------------------------------------------------------------------- files

    def files(self, keys: Sequence[PathKey]) -> dict[PathKey, FileFact]:
        """Return {key: stored state} of these files; if several scan folders have a file, the state of the file that wins."""
        return self.folders.files(keys)

    def files_below(self, prefix: PathKey) -> Iterable[FileFact]:
        """Yield the stored state of the files whose key starts with `prefix` (a folder with its slash, or "").

        If several scan folders have a file with the same key, only the file with priority is included.
        """
        return self.folders.files_below(prefix)

    def forget(self, folder: str) -> None:
        """Drop the unpacked copy of a folder from memory, because its row was saved again."""
        self.folders.forget(folder)

    # -------------------------------------------------------------------------------------------------- edges and products

    def dependents(self, targets: Sequence[str]) -> dict[str, set[PathKey]]:
        """Return {target: keys of sources with an edge on it}; targets are keys or 32 hex digits, compared in lower case."""
        spelled = group_rows((target.lower(), target) for target in targets)
        sql = f"""SELECT e.target, o.path_key FROM json_each(?) k JOIN aptui_edges e ON e.target = k.value
            JOIN aptui_sources o ON o.source_id = e.source_id WHERE e.kind <> {int(EdgeKind.WILDCARD)}"""
        found: dict[str, set[PathKey]] = {}
        for target, key in query_ids(self._database, sql, list(spelled)):
            for spelling in spelled[target]:
                found.setdefault(spelling, set()).add(key)
        return found

    def wildcards(self) -> list[tuple[str, PathKey]]:
        """Return every wildcard edge: (pattern in lower case, key of the dependent source)."""
        sql = f"""SELECT DISTINCT e.target, o.path_key FROM aptui_edges e JOIN aptui_sources o ON o.source_id = e.source_id
            WHERE e.kind = {int(EdgeKind.WILDCARD)} ORDER BY e.target, o.path_key"""
        return [(pattern, PathKey(key)) for pattern, key in self._database.execute(sql)]

    def has_intermediates(self) -> bool:
        """Return whether any job made an intermediate."""
        sql = f"SELECT 1 FROM Products WHERE ProductName > '{COMMON_PLATFORM}/' AND ProductName < '{COMMON_PLATFORM}0' LIMIT 1"
        return self._database.execute(sql).fetchone() is not None

    def read_removed(self) -> dict[bytes, tuple[str, bytes]]:
        """Return {SHA-256: (relative path, UUID)} of sources that were removed without their identity file.

        The keys of these values in aptui_state begin with `core.identity.REMOVED_SOURCE_STATE`.
        """
        texts = [(uuid, *text.split(" ", 1)) for uuid, text in self._values_below(identity.REMOVED_SOURCE_STATE)]
        return {bytes.fromhex(digest): (rel, bytes.fromhex(uuid)) for uuid, digest, rel in texts}

    def has_identities(self) -> bool:
        """Return whether any source has a `.meta` file."""
        sql = "SELECT 1 FROM aptui_sources WHERE identity <> '' LIMIT 1"
        return self._database.execute(sql).fetchone() is not None

    def has_edges(self) -> bool:
        """Return whether any source has a dependency."""
        return self._database.execute("SELECT 1 FROM aptui_edges LIMIT 1").fetchone() is not None

    def owners(self, names: Sequence[str]) -> dict[str, tuple[int, PathKey]]:
        """Return {product name: (id of its job, key of its source)} for the products with these names."""
        sql = """SELECT k.value, p.JobPK, o.path_key FROM json_each(?) k JOIN Products p ON p.ProductName = k.value COLLATE NOCASE
            JOIN Jobs j ON j.JobID = p.JobPK JOIN aptui_sources o ON o.source_id = j.SourcePK ORDER BY p.ProductID DESC"""
        return {name: (job_id, PathKey(key)) for name, job_id, key in query_ids(self._database, sql, names)}

    def owners_below(self, names: Sequence[str]) -> dict[str, tuple[int, PathKey]]:
        """Return {product name: (id of its job, key of its source)} for all products below folders with these names."""
        sql = """SELECT p.ProductName, p.JobPK, o.path_key FROM json_each(?) k
            CROSS JOIN Products p ON p.ProductName > k.value || '/' AND p.ProductName < k.value || '0'
            JOIN Jobs j ON j.JobID = p.JobPK JOIN aptui_sources o ON o.source_id = j.SourcePK ORDER BY p.ProductID DESC"""
        return {name: (job_id, PathKey(key)) for name, job_id, key in query_ids(self._database, sql, names)}

    def conflicts(self) -> dict[str, list[tuple[int, PathKey]]]:
        """Return {product name: [(job id, key of its source)]} of jobs that failed because another job already has that product."""
        sql = """SELECT c.name, c.job_id, o.path_key FROM aptui_conflicts c JOIN Jobs j ON j.JobID = c.job_id
            JOIN aptui_sources o ON o.source_id = j.SourcePK ORDER BY c.name, c.job_id"""
        return group_rows((name, (job_id, PathKey(key))) for name, job_id, key in self._database.execute(sql))

    def reason_of(self, job_id: int) -> tuple[str, str]:
        """Return (why the job's last committed run was needed, the origin of its result), "" if unknown."""
        sql = "SELECT reason, origin FROM aptui_runs WHERE job_id = ? AND outcome = ? ORDER BY run_key DESC LIMIT 1"
        return self._database.execute(sql, (job_id, int(Outcome.SUCCEEDED))).fetchone() or ("", "")

    @report_damage
    def next_ids(self) -> tuple[int, int, int, int]:
        """Return the next free (source id, job id, product id, run key)."""
        jobs = "MAX(COALESCE((SELECT MAX(JobID) FROM Jobs), 0), COALESCE((SELECT MAX(job_id) FROM aptui_gone_jobs), 0))"
        sql = f"""SELECT COALESCE((SELECT MAX(SourceID) FROM Sources), 0), {jobs},
            COALESCE((SELECT MAX(ProductID) FROM Products), 0), COALESCE((SELECT MAX(JobRunKey) FROM Jobs), 0),
            COALESCE((SELECT MAX(run_key) FROM aptui_intents), 0)"""
        source, job, product, *run_keys = self._database.execute(sql).fetchone()
        return source + 1, job + 1, product + 1, max(*run_keys, int(self.state(RUN_KEY_STATE) or 0)) + 1

    # ------------------------------------------------------------------------------------------------------------- queries

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Make all queries in the block read the same state of the database."""
        self._database.execute("BEGIN")
        try:
            yield
        finally:
            self._database.execute("COMMIT")
