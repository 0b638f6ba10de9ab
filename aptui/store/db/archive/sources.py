"""Puts sources together from the rows of them and of their jobs, products, links and facts, as the core has them in memory.

Tests: `tests/store/db/archive/test_archive.py`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from aptui.core import fingerprint, identity
from aptui.core.model import (
    ANALYSIS_KEY,
    Digest,
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
from aptui.core.records import rows
from aptui.core.results import retry
from aptui.core.results.facts import ContentFacts
from aptui.store.db.schema import has_rows, to_unsigned

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
SELECT f.product_id, f.width, f.height, f.triangles, f.rate, f.seconds, f.format
FROM json_each(?) k JOIN Products p ON p.JobPK = k.value JOIN aptui_facts f ON f.product_id = p.ProductID"""
_RETRIES_SQL = """
SELECT t.job_id, t.kinds FROM json_each(?) k JOIN aptui_retries t ON t.job_id = k.value
    JOIN Jobs j ON j.JobID = t.job_id AND j.JobRunKey = t.run_key"""


def read_sources(database: sqlite3.Connection, keys: Sequence[PathKey]) -> list[tuple[Source, Digest]]:
    """Return the stored sources among `keys`, each with its jobs and what was last planned for it; what files are is not in it."""
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
        jobs[job_id].products += (Product(name, sub_id, kind, flags, Digest(digest), to_unsigned(hash64), size, *declared),)


def _links_of(database: sqlite3.Connection, job_ids: list[int]) -> tuple[dict[int, list[ProductLink]], dict[int, list[int]]]:
    """Return {product id: its links} and {product id: its legacy sub ids}; most projects have none of either."""
    links: dict[int, list[ProductLink]] = {}
    legacy: dict[int, list[int]] = {}
    if has_rows(database, "aptui_product_links"):
        for product_id, kind, path, flags, uuid, sub_id, is_exclusion in _ask(database, _LINKS_SQL, job_ids):
            link = ProductLink(LinkKind(kind), path, flags, uuid, sub_id, bool(is_exclusion))
            links.setdefault(product_id, []).append(link)
    if has_rows(database, "LegacySubIDs"):
        for product_id, sub_id in _ask(database, _LEGACY_SUB_IDS_SQL, job_ids):
            legacy.setdefault(product_id, []).append(sub_id)
    return links, legacy


def _facts_of(database: sqlite3.Connection, job_ids: list[int]) -> dict[int, ContentFacts]:
    """Return {product id: what its builder says of it}."""
    if not has_rows(database, "aptui_facts"):
        return {}
    return {product_id: ContentFacts(*values) for product_id, *values in _ask(database, _FACTS_SQL, job_ids)}


def _ask(database: sqlite3.Connection, sql: str, values: Sequence[object]) -> sqlite3.Cursor:
    return database.execute(sql, (json.dumps(values),))
