"""Prepares commits of results: the products that are moved into the cache, stale products, and the state of a job after its commit.

`prepare` only computes: it changes no job, row or claim. `begin` applies the changes that do not depend on the cache (`conflicts`),
and requests the commits. The job's new state is kept in its `Commit` until the commit has succeeded; then `note_committed` copies
it to the job. So no reader sees a product before it is in the cache, and no job has to be changed back after a failed commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy

from msgspec import Struct, field

from aptui.core import rows
from aptui.core.fingerprint import Manifest
from aptui.core.identity import duplicate_prefix, intermediate_uuid, path_uuids, render_new
from aptui.core.messages import JobCommit
from aptui.core.model import Digest, Job, JobState, Product, ProductFlag, RelPath, SourceIdentity
from aptui.core.notices import LogLevel, LogRecord
from aptui.core.orders import Outcome, RunResult, StagedProduct
from aptui.core.project import COMMON_PREFIX, Builder, Project
from aptui.core.quality import is_of_draft
from aptui.core.retry import flaky
from aptui.core.state.conflicts import Conflicts, ConflictVerdict
from aptui.core.state.ledger import Ledger

Log = tuple[LogRecord, ...]
Finished = tuple[Job, RunResult]
JobRow = tuple[str, tuple[object, ...]]
"""(operation of `core.rows`, its parameters)."""
_UNKNOWN_CREATION_MS = 1
"""Creation time in the identity file of an intermediate whose source has no creation time; 0 would mean a missing time."""


class CommitChange(Struct):
    """Effect of a commit on other jobs.

    `products` are the changed products: (name, digest in hex, "" = removed). `is_changed`: a product or the job's inputs changed.
    """

    products: tuple[tuple[str, str], ...]
    is_changed: bool


class Commit(Struct):
    """The commit of a run: the products that are moved into the cache, and the state that the job has after that.

    `products`, `fingerprint`, `inputs`, `warnings`, `log_file`: as in `Job`. `renames`: (staged path, product) of the products that
    are moved into the cache. `stale`: names that are deleted. `had`: the job's products before the commit. `change`: the difference
    between `had` and `products`. `requested`: jobs that have to run again because the run's builder requested it.
    """

    job: Job
    result: RunResult
    products: tuple[Product, ...]
    fingerprint: int
    inputs: Manifest
    warnings: int
    log: Log
    log_file: str
    renames: tuple[tuple[str, Product], ...]
    stale: tuple[str, ...]
    had: tuple[Product, ...]
    change: CommitChange
    now_ms: int
    requested: tuple[Job, ...] = ()

    def find_replaced(self, placed: int) -> dict[str, Product]:
        """Return {name: new product} for the products of the job that were replaced in the cache before a commit failed.

        `placed` is the number of products that were moved to the cache before the error.
        """
        known = {product.name for product in self.had}
        return {product.name: product for _staged, product in self.renames[:placed] if product.name in known}

    @property
    def unrecorded(self) -> tuple[str, ...]:
        """Names of new products: they have no row yet, but are in the cache if the commit fails after it has moved them."""
        known = {product.name for product in self.had}
        return tuple(product.name for product in self.products if product.name not in known)


class Prepared(Struct):
    """Effect of one batch of results on the cache and on jobs.

    `lost` are the jobs that lost a name conflict, with the reason; `ended` the jobs that are about to be deleted; `deletes` the
    names of products that are deleted before the commits.
    """

    verdict: ConflictVerdict
    commits: list[Commit] = field(default_factory=list)
    lost: list[tuple[Job, RunResult, str]] = field(default_factory=list)
    ended: list[Finished] = field(default_factory=list)
    deletes: tuple[str, ...] = ()


class Commits:
    """Prepares commits.

    Args:
        log_name: (job, builder name) -> path of the job's log.
    """

    def __init__(self, project: Project, ledger: Ledger, conflicts: Conflicts, log_name: Callable[[Job, str], str]) -> None:
        self._ledger = ledger
        self._conflicts = conflicts
        self._log_name = log_name
        self._builders: Mapping[bytes, Builder] = {builder.uuid: builder for builder in project.builders}
        self._touches_unchanged = project.touches_unchanged
        self._metadata_types = project.metadata_types
        self._folder_names = {folder.id: folder.name for folder in project.scan_folders}

    def prepare(self, finished: list[Finished], now_ms: int) -> Prepared:
        """Decide which results are committed, which lost a conflict of product names, and which jobs are to be deleted."""
        made = {job: self._products(job, result) for job, result in finished}
        verdict = self._conflicts.resolve({job: [product.name for product in products] for job, products in made.items()})
        placing = [products for job, products in made.items() if job not in verdict.lost and job not in verdict.ended]
        placed = {product.name for products in placing for product in products}
        prepared = Prepared(verdict, deletes=tuple(name for name in verdict.taken if name not in placed))
        for job, result in finished:
            if job in verdict.ended:
                prepared.ended.append((job, result))
            elif job in verdict.lost:
                prepared.lost.append((job, result, verdict.lost[job]))
            else:
                prepared.commits.append(self._commit_of(job, result, made[job], verdict, placed, now_ms))
        return prepared

    def begin(self, prepared: Prepared) -> list[Job]:
        """Settle conflicts and request the commits; return the jobs that have to run again because they lost a product."""
        again = self._conflicts.apply(prepared.verdict)
        self._ledger.commit(
            JobCommit(
                commit.job.run_key,
                commit.job.id,
                commit.renames,
                commit.stale,
                self._find_touched(commit),
                not commit.had,
                tuple(self._identities_of(commit)) if self._metadata_types else (),
                commit.result.is_durable,
            )
            for commit in prepared.commits
        )
        return again

    def _find_touched(self, commit: Commit) -> tuple[str, ...]:
        """Return the products that the run made with unchanged bytes, so that they are not moved."""
        if not self._touches_unchanged:
            return ()
        moved = {product.name for _staged, product in commit.renames}
        return tuple(product.name for product in commit.products if product.name not in moved)

    def _identities_of(self, commit: Commit) -> Iterable[tuple[str, bytes, bool]]:
        """Yield the identity files for the intermediates of `commit`, in the form of `JobCommit.identities`.

        An intermediate gets an identity file in two cases: its type is enabled for metadata, or its source has an identity file
        and a type enabled for metadata. The bytes of the identity file depend only on the source, so that each build makes the
        same file. As in O3DE, an existing identity file is kept, unless it belonged to the product of another job.
        """
        source = commit.job.source
        known = {product.name for product in (*commit.had, *commit.job.lost)}
        created_ms = source.identity.created_ms if source.identity else 0
        is_enabled = source.rel.lower().endswith(self._metadata_types) and source.uuid != path_uuids(source.rel)[0]
        for product in commit.products:
            rel = RelPath(product.name.removeprefix(COMMON_PREFIX))
            if product.flags & ProductFlag.INTERMEDIATE and (is_enabled or rel.endswith(self._metadata_types)):
                uuid = intermediate_uuid(source, commit.job.builder, product.sub_id, rel)
                data = render_new(SourceIdentity(uuid, path_uuids(rel), rel, created_ms or _UNKNOWN_CREATION_MS))
                if data:
                    yield product.name, data, product.name not in known

    def name_of(self, job: Job, staged: StagedProduct) -> str:
        """Return the name of a product of this project."""
        return name_of(job, staged, self._folder_names.get(job.source.scan_folder, ""))

    def _products(self, job: Job, result: RunResult) -> tuple[Product, ...]:
        asset_type = self._builders[job.builder].asset_type or bytes(16)
        return tuple(
            Product(
                self.name_of(job, staged),
                staged.sub_id,
                staged.asset_type or asset_type,
                staged.flags,
                Digest(staged.digest),
                staged.hash64,
                staged.size,
                staged.links,
                staged.legacy_sub_ids,
                staged.facts,
            )
            for staged in result.products
        )

    def _commit_of(
        self, job: Job, result: RunResult, products: tuple[Product, ...], verdict: ConflictVerdict, placed: set[str], now_ms: int
    ) -> Commit:
        had = verdict.products_of(job)
        fingerprint = 0 if job in verdict.left else job.fingerprint
        # A product whose bytes are already in the cache is not moved. If the job has no committed fingerprint, the bytes in the
        # cache are unknown, because a commit failed after it had moved some products, or a product was lost. A job that runs on
        # request replaces all its products.
        present = {} if job.is_forced or not fingerprint else {product.name: product.digest for product in had}
        renames = tuple(
            (staged.staged, product)
            for staged, product in zip(result.products, products, strict=True)
            if staged.staged and present.get(product.name) != product.digest
        )
        # Products that the job no longer makes are deleted, unless this batch places new products of the same names.
        stale = tuple(product.name for product in had if product.name not in placed)
        builder = self._builders[job.builder]
        log = _log_of(job, result, builder, now_ms)
        return Commit(
            job,
            result,
            products,
            job.planned or 0,
            job.planned_inputs,
            result.warnings + bool(job.cycle),
            log,
            self._log_name(job, builder.name) if log else "",
            renames,
            stale,
            had,
            _change_of(had, products, is_other=fingerprint != (job.planned or 0)),
            now_ms,
        )

    def rows_of(self, commit: Commit) -> Iterator[JobRow]:
        """Yield the rows of a committed run, which are saved together with its products.

        Call this once, after `begin` and before the next event is handled.
        """
        job, result = commit.job, commit.result
        if commit.had:
            yield "drop_products", (job.id,)
        committed = copy(job)
        self.note_committed(commit, committed)
        yield rows.job_row(committed, JobState.COMPLETED)
        for product in commit.products:
            yield from rows.product_rows(next(self._ledger.product_ids), job, product)
        yield (
            "put_run",
            (
                job.id,
                job.run_key,
                commit.now_ms,
                result.duration_ms,
                int(Outcome.SUCCEEDED),
                job.reason,
                "",
                commit.log_file,
                commit.fingerprint,
                self._builders[job.builder].version,
                rows.digest_of_products(commit.products),
                rows.make_committed_step(rows.moment(job.inputs, commit.had), rows.moment(commit.inputs, commit.products)),
                result.origin,
            ),
        )
        if remark := flaky(job.tried):
            yield "put_retries", (job.id, job.run_key, remark)
        if is_of_draft(commit.inputs):
            yield "put_draft", (job.id, None)
        elif job.is_draft:
            yield "drop_draft", (job.id,)
        for other in commit.requested:
            yield ("doubt_analysis", (other.source.id, other.builder)) if other.is_analysis else ("doubt_job", (other.id,))

    @staticmethod
    def note_committed(commit: Commit, job: Job) -> None:
        """Set the fields of `job` (`commit.job` or a copy of it) to the result of the finished commit."""
        job.products, job.fingerprint, job.inputs = commit.products, commit.fingerprint, commit.inputs
        job.error, job.log_file, job.origin = "", commit.log_file, commit.result.origin
        job.first_fail_ms, job.first_fail_log, job.last_fail_ms, job.last_fail_log, job.failure_cause = 0, "", 0, "", ""
        job.is_forced, job.is_fetched, job.flaky, job.failure = False, False, flaky(job.tried), None
        _describe_run(commit, job)

    @staticmethod
    def note_failed(commit: Commit) -> None:
        """Mark the job of a failed commit as needing a run, because some of its products may have been replaced."""
        commit.job.fingerprint, commit.job.failure = 0, None
        _describe_run(commit, commit.job)


def _change_of(had: tuple[Product, ...], made: tuple[Product, ...], *, is_other: bool) -> CommitChange:
    """Return the changed, new and removed products of a commit, and whether dependent jobs must be evaluated.

    `is_other`: whether the inputs of the committed job differ from those of its previous commit.
    """
    before = {product.name: product.digest for product in had}
    changed = [(product.name, product.digest.hex()) for product in made if before.get(product.name) != product.digest]
    if before:
        names = {product.name for product in made}
        changed += [(name, "") for name in before if name not in names]
    return CommitChange(tuple(changed), is_other or bool(changed))


def _describe_run(commit: Commit, job: Job) -> None:
    result = commit.result
    job.warnings, job.errors = commit.warnings, result.errors
    job.duration_ms, job.completed_ms, job.last_log_ms = result.duration_ms, commit.now_ms, commit.now_ms


def _log_of(job: Job, result: RunResult, builder: Builder, now_ms: int) -> Log:
    if not job.cycle:
        return result.log
    text = (
        "circular job dependencies; these jobs do not wait for each other, and do not run again when "
        "another of these jobs changes: "
    ) + " -> ".join(job.cycle)
    return (*result.log, LogRecord(LogLevel.WARNING, builder.name, text, now_ms))


def name_of(job: Job, staged: StagedProduct, scan_folder: str) -> str:
    """Return the name of a product; a duplicate path (`FileFact.is_duplicate`) has its scan folder's name before it."""
    path = staged.name or job.source.rel.lower()
    if job.source.is_duplicate:
        folder, slash, name = path.rpartition("/")
        path = f"{folder}{slash}{duplicate_prefix(scan_folder)}{name}"
    return f"{job.platform}/{path}"
