"""Restores the products of an earlier run from this machine's store; the result is current until an input of the job changes.

Restored jobs have no special status: a restored job is current, like a job with a result from another machine, and its
origin names the run.

Tests: `tests/features/sharing/test_restore_verb.py`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct

from aptui.config.dirs import asset_database
from aptui.core.notices import LogLevel, LogRecord
from aptui.core.orders import Outcome, ProcessOrder, RunResult, StagedProduct
from aptui.core.paths import to_text
from aptui.core.quality import is_of_any_draft
from aptui.core.retry import FailureKind
from aptui.core.run_history import RunStep, moments
from aptui.features.sharing.job_results import place_of
from aptui.features.sharing.stores.folder_store import FolderStore
from aptui.link.port import FeatureRequest
from aptui.shared.errors import UserError
from aptui.store.queries.reader import RESTORED, ProductRow, Reader, open_reader
from aptui.worker import file_access

if TYPE_CHECKING:
    from aptui.config.configuration import Config
    from aptui.core.model import Job
    from aptui.engine.live.supervisor import EngineSupervisor
    from aptui.link.port import Request


class Restore(FeatureRequest, frozen=True):
    """Restore the products of an earlier run of a job from this machine's store. Answered with {} when the job is queued."""

    wire_name: ClassVar = "restore"
    job_id: int = 0
    run_key: int = 0


class RestoreRequests:
    """Answers `Restore` at once."""

    def __init__(self, live: EngineSupervisor) -> None:
        self._live = live

    def take(self, request: Request, verb: Restore) -> None:
        """Queue the job with the products of that run.

        Raises:
            KnownError: the engine does not work, or the products are not stored.
        """
        self._live.working_engine().restore(verb.job_id, verb.run_key)
        request.answer()

    def forget_client(self, client: int) -> None:
        """Do nothing: no request waits."""


class StoredProduct(Struct, frozen=True):
    """A product of the earlier run: the file with its bytes, and the row of the current product with that name."""

    path: str
    digest: str
    row: ProductRow


class StoredRun(Struct, frozen=True):
    """A run with all products in the store."""

    products: tuple[StoredProduct, ...]
    origin: str


def find_stored_run(config: Config, job_id: int, run_key: int) -> StoredRun:
    """Return the stored products of a run.

    Raises:
        UserError: the run is unknown or failed, or its products are no longer in the store.
    """
    with closing(open_reader(asset_database(config.cache_dir))) as database, database.snapshot():
        runs = database.runs_of(job_id)
        at = next((at for at, run in enumerate(runs) if run.run_key == run_key), -1)
        if at < 0:
            raise UserError("this job does not have this run", hint="'aptui log JOB --history' lists the stored runs")
        known = {product.name: product for product in database.products_of(job_id)}
        then = _moments(database, job_id, known)[at]
    run = runs[at]
    if run.outcome != Outcome.SUCCEEDED:
        raise UserError(
            f"run {at + 1} of this job failed: it has no products", hint="'aptui log JOB --history' shows the outcome of each run"
        )
    if is_of_any_draft(then.inputs):
        hint = "'aptui log JOB --history' lists all runs; the final follows its draft"
        raise UserError(f"run {at + 1} of this job made a draft, and only finals can be restored", hint=hint)
    if not config.sharing.local_store:
        raise UserError("nothing is kept: this machine's store is switched off", hint="local_store: {enabled: true}")
    products = tuple(_find_stored(config, name, digest, known) for name, digest, _size in then.products)
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.completed_ms / 1000))
    return StoredRun(products, f"that of its run of {when}{RESTORED}")


def _moments(database: Reader, job_id: int, known: Mapping[str, ProductRow]) -> list[RunStep]:
    made = tuple((row.name, row.digest.hex()[:32], row.size) for row in known.values())
    steps = ((run.outcome == Outcome.SUCCEEDED, run.step) for run in database.runs_of(job_id))
    return moments(RunStep(database.inputs_of(job_id), made), steps)


def _find_stored(config: Config, name: str, digest: str, known: Mapping[str, ProductRow]) -> StoredProduct:
    """Return the file of a product; the history has half of its digest, which is enough to find it."""
    if name not in known:
        raise UserError(
            f"the job makes no '{name}' any more, which that run made",
            hint="restore its source from version control, and build that",
        )
    beside = Path(FolderStore(config.sharing.local_store, config.sharing.namespace, syncs=False).blob_path(digest.ljust(64, "0")))
    found = sorted(beside.parent.glob(f"{digest}*")) if beside.parent.is_dir() else []
    if not found:
        hint = "copies of sources are not stored there, and results not used for long are removed"
        raise UserError(f"'{name}' of that run is not in this machine's store '{config.sharing.local_store}'", hint=hint)
    return StoredProduct(str(found[0]), digest, known[name])


def _place_name(name: str, roots: Sequence[str]) -> str:
    """Return the absolute path of a discovered file; names of files in scan folders are relative."""
    return name if name.startswith("/") else to_text(os.fsencode(place_of(name, roots)))


def open_stored_run(config: Config, job_id: int, run_key: int) -> Callable[[ProcessOrder, Job, Mapping[int, str]], RunResult]:
    """Return the function that answers an order with the products of an earlier run: the extension point `restore`.

    Raises:
        UserError: see `find_stored_run`.
    """
    return partial(restore_run, find_stored_run(config, job_id, run_key))


def restore_run(stored: StoredRun, order: ProcessOrder, job: Job, roots: Mapping[int, str]) -> RunResult:
    """Return the products of a run as the result of this order; fails if a stored file is damaged."""
    began_s = time.monotonic()
    staging = file_access.os_path(order.staging)
    try:
        if len(stored.products) != 1:
            os.mkdir(staging)
        products = tuple(
            _make_staged(product, staging if len(stored.products) == 1 else f"{staging}/{at}")
            for at, product in enumerate(stored.products)
        )
    except (OSError, file_access.FileChanged, ValueError) as error:
        return RunResult(order.run_key, Outcome.FAILED, f"it cannot be restored: {error}", errors=1, kind=FailureKind.OBSTACLE)
    return RunResult(
        order.run_key,
        Outcome.SUCCEEDED,
        products=products,
        source_digest=order.source_digest,
        discovered=tuple((_place_name(name, tuple(roots.values())), digest) for name, digest in job.discovered),
        log=(LogRecord(LogLevel.INFO, order.builder, f"the result is {stored.origin}", time.time_ns() // 1_000_000),),
        duration_ms=round(1000 * (time.monotonic() - began_s)),
        origin=stored.origin,
        is_final=True,
    )


def _make_staged(product: StoredProduct, target: str) -> StagedProduct:
    digest, hash64, size = file_access.copy_into(product.path, target)
    if not digest.hex().startswith(product.digest):
        raise ValueError(f"'{product.path}' in the store is damaged")
    file_access.sync_file(target)
    row = product.row
    inner = row.name.partition("/")[2]
    return StagedProduct(to_text(os.fsencode(target)), inner, row.sub_id, row.asset_type, row.flags, digest, hash64, size)
