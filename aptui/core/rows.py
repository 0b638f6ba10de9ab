"""Converts sources, jobs and the history of runs into rows of the database, and rows back. This module has no SQL and no I/O."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import astuple, replace

from aptui.core import fingerprint, identity
from aptui.core.fingerprint import Entry, Manifest
from aptui.core.model import (
    SETTLED,
    UNKNOWN_SIZE,
    DependencyKind,
    Digest,
    EdgeKind,
    FileFact,
    Job,
    JobDependency,
    JobPlan,
    JobState,
    PathKey,
    Product,
    Source,
    SourceEdge,
    SourceUuid,
)
from aptui.core.orders import Outcome
from aptui.core.patterns import literal_prefix
from aptui.core.project import Builder
from aptui.core.retry import dump as dump_failure
from aptui.core.run_report import OutsideFile

# The history of a job stores the inputs and products of its runs as differences, because most inputs and products never change
# between runs. The state of the newest committed run is the job's present manifest and products. The states of earlier runs are
# computed backwards from it. For this purpose each committed run stores a *step*: the difference that turns its own state into
# the state of the previous run (`BEGINNING` for the first run). The step of a failed run has the other direction: it turns
# the state of the last committed run before it into the inputs of the failed run.

# A session is a period of work: it begins with a start, a save or a checkout, and lasts until the engine is idle. The two enums
# say why a session began and how it ended.


class SessionKind(StrEnum):
    """The reason why a session began."""

    BEFORE = "before"
    START = "start"
    CHECKOUT = "checkout"
    EDIT = "edit"
    CONFIGURATION = "configuration"
    ASKED = "asked"


class SessionEnd(StrEnum):
    """How a session ended: the engine became idle, was stopped, or died."""

    RESTED = ""
    STOPPED = "stopped"
    KILLED = "killed"


BEGINNING = "0"
"""Step that the first committed run of a job stores. The state before this run has no inputs and no products."""
_DIGEST_BYTES = 16
Made = tuple[str, str, int]
"""A product of a run in the history: name, the first 128 bits of its digest in hex, size."""


class RunStep(Struct, frozen=True):
    """Inputs and products of a run, in the form of the history. `step` computes the difference between two of them."""

    inputs: Manifest = ()
    products: tuple[Made, ...] = ()


def moment(inputs: Manifest, products: Iterable[Product]) -> RunStep:
    """Return these inputs and products in the form of the history, which has only a part of each digest."""
    return RunStep(inputs, tuple((product.name, product.digest[:_DIGEST_BYTES].hex(), product.size) for product in products))


def digest_of_products(products: Sequence[Product]) -> bytes:
    """Return a digest (16 bytes) over names, sub ids, flags and digests of products, b"" without products."""
    if not products:
        return b""
    lines = sorted(map(fingerprint.describe_product, products))
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).digest()[:_DIGEST_BYTES]


def make_committed_step(before: RunStep, now: RunStep) -> str:
    """Return the step to be stored with a committed run: the difference that turns `now` into the previous run's state `before`."""
    return make_step(now, before) if before.inputs else BEGINNING


def make_step(known: RunStep, wanted: RunStep) -> str:
    """Return the packed difference that turns `known` into `wanted`, "" when they are equal."""
    if known == wanted:
        return ""
    old, new = set(known.inputs), {entry[:2] for entry in wanted.inputs}
    made_before, names = set(known.products), {product[0] for product in wanted.products}
    parts = [
        [entry for entry in wanted.inputs if entry not in old],
        [entry[:2] for entry in known.inputs if entry[:2] not in new],
        [product for product in wanted.products if product not in made_before],
        [product[0] for product in known.products if product[0] not in names],
    ]
    return msgspec.json.encode(parts).decode()


def apply_step(known: RunStep, text: str) -> RunStep:
    """Apply the packed difference `text` (from `make_step`) to the inputs and products `known`; return the result."""
    if not text:
        return known
    if text == BEGINNING:
        return RunStep()
    entries, gone, products, gone_names = json.loads(text)
    inputs = {entry[:2]: entry for entry in known.inputs}
    for kind, name in gone:
        inputs.pop((kind, name), None)
    inputs.update(((kind, name), (kind, name, value)) for kind, name, value in entries)
    recorded = {product[0]: product for product in known.products}
    for name in gone_names:
        recorded.pop(name, None)
    recorded.update((name, (name, value, size)) for name, value, size in products)
    return RunStep(tuple(inputs.values()), tuple(recorded.values()))


def moments(now: RunStep, runs: Iterable[tuple[bool, str]]) -> list[RunStep]:
    """Return the inputs and products of each run; a failed run has no products.

    Args:
        now: the inputs and products of the job, which are those of its newest committed run.
        runs: (whether the run was committed, its step), the newest first.
    """
    found = []
    for is_committed, text in runs:
        if is_committed:
            found.append(now)
            now = apply_step(now, text)
        else:
            found.append(RunStep(apply_step(now, text).inputs))
    return found


Row = tuple[object, ...]

STATUS = {**dict.fromkeys(JobState, 0), JobState.COMPLETED: 4, JobState.FAILED: 2, JobState.CANCELLED: 2}
"""Value of O3DE's `Jobs.Status` for a state: 0 queued, 1 in progress, 2 failed, 4 completed."""
RESTING = {state: (state if state in SETTLED else JobState.WAITING).value for state in JobState}
"""Values of `state` columns; unsettled jobs are stored as pending."""


def to_signed(value: int) -> int:
    """Return an unsigned 64-bit number as SQLite stores it."""
    return value - (1 << 64) if value >= 1 << 63 else value


def to_unsigned(value: int) -> int:
    """Return the unsigned 64-bit number that `to_signed` converted."""
    return value + (1 << 64) if value < 0 else value


def source_row(source: Source) -> Row:
    """Return the parameters of "put_source"."""
    fact, packed = source.fact, identity.pack(source.identity)
    digest, mtime_ms, hash64 = (fact.digest, fact.mtime_ns // 1_000_000, to_signed(fact.hash64)) if fact else (b"", 0, 0)
    return (source.id, source.scan_folder, source.rel, source.uuid, source.key, digest, packed, mtime_ms, hash64)


def as_planned(fact: FileFact, digest: Digest) -> FileFact:
    """Return the file of a source with the digest that it had when the source was last planned.

    `fact` is from the folder's row, `digest` from the source's row. The source's row may be newer, because the folder's row is
    saved only when all its files have been read. An engine may plan a source with new bytes, and end before it saves the folder's
    row. If the user then restores the earlier bytes, the file equals the folder's row, but its products are those of the new bytes.
    The size of the new bytes is unknown.
    """
    return fact if fact.digest == digest else replace(fact, digest=digest, size=UNKNOWN_SIZE)


def job_row(job: Job, state: JobState | None = None) -> tuple[str, Row]:
    """Return (operation, parameters) for the row of a job or an analysis; `state` is stored instead of the job's present state.

    A job that runs on request is stored without a fingerprint until it has run, so that the next engine runs it, too.
    """
    state = state or job.state or JobState.WAITING
    number = 0 if job.is_forced and state not in SETTLED else job.fingerprint
    if job.is_analysis:
        return "put_analysis", (
            job.source.id, job.builder, RESTING[state], number or None, job.error, job.warnings, job.errors, job.duration_ms,
            job.completed_ms, job.log_file, job.reason, pack_analysis(job), dump_failure(job.failure),
        )  # fmt: skip
    return "put_job", (
        job.id, job.source.id, job.key, number, job.platform, job.builder, STATUS[state], job.run_key,
        job.first_fail_ms, job.first_fail_log, job.last_fail_ms, job.last_fail_log, job.last_log_ms, job.log_file,
        job.errors, job.warnings, RESTING[state], job.planned, job.error, job.reason,
        fingerprint.dump(job.inputs), pack_plan(job.plan, job.discovered), job.duration_ms, job.completed_ms, job.failure_cause,
        job.escalation, job.origin, dump_failure(job.failure),
    )  # fmt: skip


def find_planned(job: Job) -> int | None:
    """Return the fingerprint with which a stored analysis was planned last, None if it is not known."""
    if job.state is JobState.COMPLETED:
        return job.fingerprint or None
    if job.state is JobState.FAILED and job.failure is not None and job.failure.inputs:
        return fingerprint.number(job.failure.inputs)
    return None


def product_rows(product_id: int, job: Job, product: Product) -> Iterator[tuple[str, Row]]:
    """Yield (operation, parameters) for the rows of a product, its links, its former sub ids and its facts."""
    yield (
        "put_product",
        (
            product_id, job.id, product.name, product.sub_id, product.asset_type, to_signed(product.hash64), product.flags,
            product.digest, product.size,
        ),
    )  # fmt: skip
    for at, link in enumerate(product.links):
        prefix = literal_prefix(link.path) if "*" in link.path else None
        yield (
            "put_link",
            (
                product_id, job.id, at, int(link.kind), job.platform, link.path, prefix, int(link.is_exclusion), link.source_uuid,
                link.sub_id, link.flags,
            ),
        )  # fmt: skip
    for sub_id in product.legacy_sub_ids:
        yield "put_legacy_sub_id", (product_id, job.id, sub_id)
    if product.facts is not None:
        yield "put_facts", (product_id, job.id, *astuple(product.facts))


def edge_rows(source: Source, builder: bytes) -> list[Row]:
    """Return the parameters of "put_edge" for all dependencies of the jobs of `builder` on `source`."""
    rows: set[Row] = set()
    for (uuid, _platform, _key), job in source.jobs.items():
        if uuid != builder:
            continue
        for edge in job.edges:
            bits = 5 if edge.kind is EdgeKind.WILDCARD else 1
            rows.add((source.uuid, builder, int(edge.kind), edge.target, bits, "", int(edge.kind is EdgeKind.UUID), source.id))
        for name, _digest in job.discovered:
            rows.add((source.uuid, builder, int(EdgeKind.DISCOVERED), name, 1, "", 0, source.id))
        for dependency in job.plan.job_dependencies if job.plan else ():
            sub_ids = ",".join(map(str, dependency.sub_ids))
            kind = EdgeKind.UUID if dependency.is_uuid else EdgeKind.WILDCARD if dependency.is_wildcard else EdgeKind.JOB
            rows.add((source.uuid, builder, int(kind), dependency.source, 2, sub_ids, int(dependency.is_uuid), source.id))
    return sorted(rows, key=repr)


def pack_plan(plan: JobPlan | None, discovered: tuple[tuple[str, str], ...]) -> str:
    """Return a plan and the discovered dependencies as JSON, or "" for a plain plan without discovered dependencies.

    A plain plan can be restored from the stored analysis or from the rule.

    A critical plan is never plain, because readers of the row need to see that it is critical.
    """
    if plan is None or (not discovered and _is_plain(plan)):
        return ""
    return fingerprint.encode_json([_plan_to_json(plan), discovered])


def unpack_plan(text: str, key: str, platform: str) -> tuple[JobPlan, tuple[tuple[str, str], ...]]:
    """Return the plan and the discovered dependencies that `pack_plan` packed."""
    if not text:
        return JobPlan(key, platform), ()
    plan, discovered = json.loads(text)
    return _plan_from_json(plan), tuple((name, digest) for name, digest in discovered)


def pack_analysis(job: Job) -> str:
    """Return the plans and edges of an analysis as JSON."""
    plans = [_plan_to_json(plan) for plan in job.plans]
    return fingerprint.encode_json([plans, [[int(edge.kind), edge.target] for edge in job.edges]])


def unpack_analysis(text: str) -> tuple[tuple[JobPlan, ...], tuple[SourceEdge, ...]]:
    """Return the plans and edges that `pack_analysis` packed."""
    if not text:
        return (), ()
    plans, edges = json.loads(text)
    return tuple(map(_plan_from_json, plans)), tuple(SourceEdge(EdgeKind(kind), target) for kind, target in edges)


def _is_plain(plan: JobPlan) -> bool:
    return not (plan.is_critical or plan.additional_fingerprint or plan.job_dependencies or plan.params != "{}")


def _plan_to_json(plan: JobPlan) -> list[Any]:
    dependencies = [
        [item.source, item.key, item.platform, int(item.kind), item.sub_ids, *([1] if item.is_uuid else [])]
        for item in plan.job_dependencies
    ]
    return [
        plan.key, plan.platform, plan.priority, plan.is_critical, plan.additional_fingerprint, plan.params, dependencies,
    ]  # fmt: skip


def _plan_from_json(data: list[Any]) -> JobPlan:
    key, platform, priority, is_critical, additional, params, dependencies = data
    return JobPlan(
        key,
        platform,
        priority,
        is_critical,
        additional,
        params,
        tuple(
            JobDependency(PathKey(source), job_key, on, DependencyKind(kind), tuple(sub_ids), bool(is_uuid))
            for source, job_key, on, kind, sub_ids, *is_uuid in dependencies
        ),
    )


# A `PlainCopy` describes a copied file until its product is in the cache. The functions below make the rows of the copy.

NEW_SOURCE = "new source"
"""Reason that is shown for the first run of a job."""
_IS_PRODUCT = 1
_NO_TYPE = bytes(16)


class CopyRule(Struct, frozen=True):
    """The values that all copies of one builder for one platform share; `packed` is the plan as stored in rows."""

    builder: Builder
    plan: JobPlan
    entry: Entry
    packed: str


class PlainCopy(Struct, frozen=True):
    """One plain copy of a source, for one rule. `number` is the fingerprint of `manifest`; `job` is None if the source is new."""

    job_id: int
    source_id: int
    run_key: int
    rule: CopyRule
    key: PathKey
    fact: FileFact
    manifest: Manifest
    number: int
    product: Product
    duration_ms: int
    job: Job | None = None
    reason: str = NEW_SOURCE


def manifest_of(rule: CopyRule, fact: FileFact) -> tuple[Manifest, int]:
    """Return the manifest of a plain copy, and the fingerprint of this manifest."""
    manifest = (rule.entry, ("source", str(fact.rel), fingerprint.file_digest(fact.digest)))
    return manifest, fingerprint.number(manifest)


def product_of(rule: CopyRule, key: PathKey, fact: FileFact) -> Product:
    """Return the product that a plain copy of the file `fact` makes."""
    kind = rule.builder.asset_type or _NO_TYPE
    return Product(f"{rule.plan.platform}/{key}", 0, kind, _IS_PRODUCT, Digest(fact.digest), fact.hash64, fact.size)


def source_row_of_copy(source_id: int, uuid: SourceUuid, key: PathKey, fact: FileFact) -> Row:
    """Return the parameters of "put_source" for a new file without an identity file."""
    mtime_ms, hash64 = fact.mtime_ns // 1_000_000, to_signed(fact.hash64)
    return (source_id, fact.scan_folder, fact.rel, uuid, key, fact.digest, "", mtime_ms, hash64)


def commit_rows(copy: PlainCopy, product_id: int, now_ms: int) -> list[tuple[str, Row]]:
    """Return (operation, parameters) of the rows that are saved with the product of a copy."""
    rule, product, number, took_ms = copy.rule, copy.product, copy.number, copy.duration_ms
    plan, builder, state, before = rule.plan, rule.builder, JobState.COMPLETED, copy.job
    escalation, had = (0, RunStep()) if before is None else (before.escalation, moment(before.inputs, before.products))
    job = (
        copy.job_id, copy.source_id, plan.key, number, plan.platform, builder.uuid, STATUS[state], copy.run_key,
        0, "", 0, "", now_ms, "", 0, 0, RESTING[state], number, "", copy.reason, fingerprint.dump(copy.manifest), rule.packed,
        took_ms, now_ms, "", escalation, "", "",
    )  # fmt: skip
    made = (
        product_id, copy.job_id, product.name, 0, product.asset_type, to_signed(product.hash64), _IS_PRODUCT, product.digest,
        product.size,
    )  # fmt: skip
    run = (
        copy.job_id, copy.run_key, now_ms, took_ms, int(Outcome.SUCCEEDED), copy.reason, "", "", number, builder.version,
        digest_of_products((product,)), make_committed_step(had, moment(copy.manifest, (product,))), "",
    )  # fmt: skip
    dropped: list[tuple[str, Row]] = [] if before is None else [("drop_products", (copy.job_id,))]
    return [*dropped, ("put_job", job), ("put_product", made), ("put_run", run)]


# The core reads the asset database through the queries of `Archive`, and changes it with the operations in `ROW_OPERATIONS`.
#
# `store.db.archive` implements the queries; tests use a fake with dictionaries. Answers contain only committed rows. The pipeline
# adds the rows that it has ordered to be saved and whose saving is not acknowledged yet.

ROW_OPERATIONS: dict[str, str] = {
    # {name of the operation: its parameters}. Within a transaction, the writer applies the operations in the order of this table.
    # The comment above an operation says what the operation does.
    #
    # Drop a source with its jobs, products, analyses, runs, conflicts and stats.
    "drop_source": "source_id",
    "drop_analysis": "source_id, builder_uuid",
    # Drop a job with its products, runs and conflicts.
    "drop_job": "job_id",
    # Drop the products of a job. If the same transaction puts a product with the same name and sub id, the product keeps its id.
    "drop_products": "job_id",
    "drop_product": "product_id",
    # Drop the links, former sub ids and facts of a product.
    "drop_declared": "product_id",
    # Drop the note that a job's products are drafts, because the job has made its final products, or has no products.
    "drop_draft": "job_id",
    # Drop the edges of a source and builder in SourceDependency and aptui_edges.
    "drop_edges": "source_uuid, builder_uuid",
    # Drop the row of a folder in aptui_folders.
    "drop_folder": "scan_folder_id, folder",
    # Drop the row of a file that is not a source; `name` is its relative path.
    "drop_file": "scan_folder_id, name",
    "drop_conflict": "job_id",
    # Drop the missing dependencies that a scan of a product found, but keep the names that the scan read.
    "drop_missing": "product_id",
    "drop_legacy": "source_id",
    "put_source": "source_id, scan_folder_id, rel, source_uuid, path_key, digest, identity, mtime_ms, hash64",
    # Store another UUID by which the source is found.
    "put_legacy": "uuid, source_id, created_ms",
    "put_analysis": "source_id, builder_uuid, state, fingerprint|None, error, warnings, errors, duration_ms, completed_ms, "
    "log_file, reason, plans_blob, failure",
    "put_job": "job_id, source_id, job_key, fingerprint, platform, builder_uuid, status, run_key, first_fail_ms, first_fail_log, "
    "last_fail_ms, last_fail_log, last_ms, last_log, errors, warnings, state, planned|None, error, reason, inputs_blob, plan_blob, "
    "duration_ms, completed_ms, failure_cause, escalation, origin, failure",  # `failure` is packed by `core.retry.dump`
    "put_product": "product_id, job_id, name, sub_id, asset_type, hash64, flags, digest, size",
    "put_link": "product_id, job_id, at, kind, platform, path, prefix|None, is_exclusion, source_uuid, sub_id, flags",
    "put_legacy_sub_id": "product_id, job_id, sub_id",
    "put_facts": "product_id, job_id, width, height, triangles, rate, seconds, format, more",
    "put_missing": "product_id, scanner, version, source_fingerprint, uuid, sub_id, text, when, scanned_s, product_name, digest",
    "put_missing_scan": "product_id, digest, terms, names_blob, product_name",
    "put_edge": "source_uuid, builder_uuid, kind, target, type_bits, sub_ids, from_asset_id, source_id",
    # For `products_digest` and `step` see `RunStep` and the functions below it.
    "put_run": "job_id, run_key, completed_ms, duration_ms, outcome, reason, error, log_file, fingerprint, builder_version, "
    "products_digest, step, origin",
    # The job's products are drafts (core.quality). `final`: fingerprint of the job's planned run with final quality, None before
    # this run is planned.
    "put_draft": "job_id, final",
    # `kinds`: the kinds of failure (core.retry) of the failed attempts before this successful run.
    "put_retries": "job_id, run_key, kinds",
    # Store the duration of an analysis; the duration of a job is in the row of the job.
    "put_stat": "name, value_ms, time_ms",
    "put_conflict": "name, job_id",
    "put_folder": "scan_folder_id, folder, digest, files_blob",
    # Store a file that is not a source.
    "put_file": "scan_folder_id, name, is_folder, mtime_ms, hash64",
    # Store a folder of the cache; `name` is its path relative to the root of the cache.
    "put_cache_folder": "name, ctime_ns",
    "put_state": "key, value",
    # The row is written when the session ends. Until then, the runs with higher run keys than the last stored session belong to
    # the present session.
    "put_session": "started_ms|0, ended_ms|0, kind, detail, commit_id, outcome, saved_ms, fetched_bytes",
    # Move some runs of this session into session 0, which stands for the time before all recorded sessions. Drop the session when
    # it has no more runs.
    "prune_session": "session_id",
    # Mark a job so that the next engine runs it even if its inputs did not change. Either the job's products differ from their
    # rows, or a run was requested.
    "doubt_job": "job_id",
    # Mark an analysis so that the next engine repeats it even if its inputs did not change.
    "doubt_analysis": "source_id, builder",
}
"""Operations of `Rows`. 64-bit hashes among the parameters are signed (`to_signed`), because SQLite has only signed integers."""


class Archive(Protocol):
    """Queries of the asset database. Most take many keys at once, because one query per file would cost more than its answer."""

    def sources(self, keys: Sequence[PathKey]) -> dict[PathKey, Source]:
        """Return the stored sources among `keys`, each with all its jobs (analyses too), products and edges.

        `Source.fact` comes from the folder table, and is None if the table does not have the file. The digest in the fact comes
        from the source's row (`as_planned`).
        """

    def files(self, keys: Sequence[PathKey]) -> dict[PathKey, FileFact]:
        """Return the files with these keys from the folder table, except files hidden by a file of another scan folder."""

    def forget(self, folder: str) -> None:
        """Drop cached copies of the row of this relative folder, because the row was saved again."""

    def files_below(self, prefix: PathKey) -> Iterable[FileFact]:
        """Yield the files of the folder table with keys that begin with `prefix` ("folder/" or ""), without hidden files."""

    def dependents(self, targets: Sequence[str]) -> dict[str, set[PathKey]]:
        """Return {target: keys of sources that depend on it}; a target is a key or a UUID (32 hex digits), compared in lower case.

        Job dependencies (type bit 2) and discovered dependencies are included; wildcard edges are not.
        """

    def wildcards(self) -> list[tuple[str, PathKey]]:
        """Return every wildcard edge: (pattern in lower case, key of the source that has it)."""

    def keys_of(self, uuid: SourceUuid) -> list[PathKey]:
        """Return the keys of the stored sources that have or had this UUID.

        The present owner of the UUID comes first, then earlier owners by age and path.
        """

    def read_removed(self) -> dict[bytes, tuple[str, bytes]]:
        """Return {SHA-256: (relative path, UUID)} of sources that were removed without their identity file.

        Their keys in `aptui_state` begin with `core.identity.REMOVED_SOURCE_STATE`.
        """

    def has_identities(self) -> bool:
        """Return whether any source has a `.meta` file."""

    def owners(self, names: Sequence[str]) -> dict[str, tuple[int, PathKey]]:
        """Return {product name: (job id, key of its source)} for products recorded under these names."""

    def owners_below(self, names: Sequence[str]) -> dict[str, tuple[int, PathKey]]:
        """Return {product name: (job id, key of its source)} for products in folders of these names, and in folders below them."""

    def conflicts(self) -> dict[str, list[tuple[int, PathKey]]]:
        """Return {product name: [(job id, key of its source)]} of jobs that failed because another job makes this product."""

    def list_unfinished(self) -> list[PathKey]:
        """Return the keys of sources with unfinished work.

        A job or an analysis is unfinished if it is neither COMPLETED nor CANCELLED. So is an analysis without a fingerprint.
        """

    def drafts(self) -> list[PathKey]:
        """Return the keys of sources with jobs that have only drafts."""

    def key_of_jobs(self, job_ids: Sequence[int]) -> dict[int, PathKey]:
        """Return {job id: key of its source}."""

    def reason_of(self, job_id: int) -> tuple[str, str]:
        """Return (the reason of the job's last committed run, the origin of its result); unknown values are ""."""

    def state(self, key: str) -> str | None:
        """Return the value of `key` in aptui_state, None if the key does not exist."""

    def outside(self) -> dict[str, OutsideFile]:
        """Return {absolute path: its state} of files that runs read outside all scan folders (`core.run_report`)."""

    def settings(self) -> dict[str, str]:
        """Return {relative folder: text of its settings file} (`core.settings`) from aptui_state, without empty texts."""

    def has_intermediates(self) -> bool:
        """Return whether any job made an intermediate."""

    def has_edges(self) -> bool:
        """Return whether any source depends on anything."""

    def next_ids(self) -> tuple[int, int, int, int]:
        """Return the next free (source id, job id, product id, run key)."""
