"""Files that only plain copies want, as records: what the pipeline holds of each copy until it is placed, and its rows.

Tests: `tests/core/pipeline/runs/test_plain_copies.py`.
"""

from __future__ import annotations

from msgspec import Struct

from aptui.core import fingerprint
from aptui.core.fingerprint import Entry, Manifest
from aptui.core.model import Digest, FileFact, Job, JobPlan, JobState, PathKey, Product, SourceUuid
from aptui.core.orders import Outcome
from aptui.core.project import Builder
from aptui.core.records import history, rows
from aptui.core.records.rows import Row

NEW_SOURCE = "new source"
"""Why they are made, as any job is told of which nothing is known."""
_IS_PRODUCT = 1
_NO_TYPE = bytes(16)


class CopyRule(Struct, frozen=True):
    """What all copies of one builder for one platform have in common: `packed` is the plan as its row has it."""

    builder: Builder
    plan: JobPlan
    entry: Entry
    packed: str


class PlainCopy(Struct, frozen=True):
    """One copy of a file; `number` is the fingerprint over `manifest`, `job` who made it last, None where the file is new."""

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


def plain_copy(ids: tuple[int, int, int], rule: CopyRule, key: PathKey, fact: FileFact, duration_ms: int) -> PlainCopy:
    """Return the copy of a new file; `ids`: of its job and its source, and its run key."""
    return PlainCopy(*ids, rule, key, fact, *manifest_of(rule, fact), product_of(rule, key, fact), duration_ms)


def manifest_of(rule: CopyRule, fact: FileFact) -> tuple[Manifest, int]:
    """Return the manifest of a copy, and its fingerprint."""
    manifest = (rule.entry, ("source", str(fact.rel), fingerprint.file_digest(fact.digest)))
    return manifest, fingerprint.number(manifest)


def product_of(rule: CopyRule, key: PathKey, fact: FileFact) -> Product:
    """Return the product of a copy."""
    kind = rule.builder.asset_type or _NO_TYPE
    return Product(f"{rule.plan.platform}/{key}", 0, kind, _IS_PRODUCT, Digest(fact.digest), fact.hash64, fact.size)


def source_row(source_id: int, uuid: SourceUuid, key: PathKey, fact: FileFact) -> Row:
    """Return the parameters of "put_source" for a new file without an identity of its own."""
    mtime_ms, hash64 = fact.mtime_ns // 1_000_000, rows.to_signed(fact.hash64)
    return (source_id, fact.scan_folder, fact.rel, uuid, key, fact.digest, "", mtime_ms, hash64)


def commit_rows(copy: PlainCopy, product_id: int, now_ms: int) -> list[tuple[str, Row]]:
    """Return (operation, parameters) of what is saved with the product of a copy."""
    rule, product, number, took_ms = copy.rule, copy.product, copy.number, copy.duration_ms
    plan, builder, state, before = rule.plan, rule.builder, JobState.COMPLETED, copy.job
    escalation = 0 if before is None else before.escalation
    job = (
        copy.job_id, copy.source_id, plan.key, number, plan.platform, builder.uuid, rows.STATUS[state], copy.run_key,
        0, "", 0, "", now_ms, "", 0, 0, rows.RESTING[state], number, "", copy.reason, fingerprint.dump(copy.manifest), rule.packed,
        took_ms, now_ms, "", escalation, "", "",
    )  # fmt: skip
    made = (
        product_id, copy.job_id, product.name, 0, product.asset_type, rows.to_signed(product.hash64), _IS_PRODUCT, product.digest,
        product.size,
    )  # fmt: skip
    run = (
        copy.job_id, copy.run_key, now_ms, took_ms, int(Outcome.SUCCEEDED), copy.reason, "", "", number, builder.version,
        history.digest((product,)), _step_back(copy), "",
    )  # fmt: skip
    dropped: list[tuple[str, Row]] = [] if before is None else [("drop_products", (copy.job_id,))]
    return [*dropped, ("put_job", job), ("put_product", made), ("put_run", run)]


def _step_back(copy: PlainCopy) -> str:
    """Return the step from what a copy makes to what was there."""
    if copy.job is None:
        return history.BEGINNING
    before = history.moment(copy.job.inputs, copy.job.products)
    return history.make_committed_step(before, history.moment(copy.manifest, (copy.product,)))
