"""New files that only plain copies want, as records: what the pipeline holds of each copy until it is placed, and its rows.

Tests: `tests/core/pipeline/runs/test_fresh_copies.py`.
"""

from __future__ import annotations

from msgspec import Struct

from aptui.core import fingerprint
from aptui.core.fingerprint import Entry, Manifest
from aptui.core.model import Digest, FileFact, JobPlan, JobState, PathKey, Product, SourceUuid
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


class FreshCopy(Struct, frozen=True):
    """One copy of a new file; `number` is the fingerprint over `manifest`."""

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


def fresh_copy(ids: tuple[int, int, int], rule: CopyRule, key: PathKey, fact: FileFact, duration_ms: int) -> FreshCopy:
    """Return the copy of `fact`; `ids`: of its job and its source, and its run key."""
    manifest = (rule.entry, ("source", str(fact.rel), fingerprint.file_digest(fact.digest)))
    name = f"{rule.plan.platform}/{key}"
    kind = rule.builder.asset_type or _NO_TYPE
    product = Product(name, 0, kind, _IS_PRODUCT, Digest(fact.digest), fact.hash64, fact.size)
    return FreshCopy(*ids, rule, key, fact, manifest, fingerprint.number(manifest), product, duration_ms)


def source_row(source_id: int, uuid: SourceUuid, key: PathKey, fact: FileFact) -> Row:
    """Return the parameters of "put_source" for a new file without an identity of its own."""
    mtime_ms, hash64 = fact.mtime_ns // 1_000_000, rows.to_signed(fact.hash64)
    return (source_id, fact.scan_folder, fact.rel, uuid, key, fact.digest, "", mtime_ms, hash64)


def commit_rows(copy: FreshCopy, product_id: int, now_ms: int) -> list[tuple[str, Row]]:
    """Return (operation, parameters) of what is saved with the product of a copy."""
    rule, product, number, took_ms = copy.rule, copy.product, copy.number, copy.duration_ms
    plan, builder, state = rule.plan, rule.builder, JobState.COMPLETED
    job = (
        copy.job_id, copy.source_id, plan.key, number, plan.platform, builder.uuid, rows.STATUS[state], copy.run_key,
        0, "", 0, "", now_ms, "", 0, 0, rows.RESTING[state], number, "", NEW_SOURCE, fingerprint.dump(copy.manifest), rule.packed,
        took_ms, now_ms, "", 0, "",
    )  # fmt: skip
    made = (
        product_id, copy.job_id, product.name, 0, product.asset_type, rows.to_signed(product.hash64), _IS_PRODUCT, product.digest,
        product.size,
    )  # fmt: skip
    run = (
        copy.job_id, copy.run_key, now_ms, took_ms, int(Outcome.SUCCEEDED), NEW_SOURCE, "", "", number, builder.version,
        history.digest((product,)), history.BEGINNING, "",
    )  # fmt: skip
    return [("put_job", job), ("put_product", made), ("put_run", run)]
