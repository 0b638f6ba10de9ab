"""From results to commits: which products move in, which are stale, and who loses when two jobs make the same product.

Two jobs must never make one product name. When they belong to different sources, both fail and neither's product is placed; within one
source the job that stands first (builder's place in the configuration, then key) keeps it (spec/engine.md §6, made independent of who
came first). A job that failed so holds a *claim* on the name, which outlives restarts, until it succeeds without it or goes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from aptui.core import history, rows
from aptui.core.messages import CommitProducts, JobCommit, LogLevel, LogRecord, Outcome, RunResult, StagedProduct
from aptui.core.model import SETTLED, Builder, Digest, Job, JobState, PathKey, Product, Source
from aptui.core.planner import Planner
from aptui.core.state.chains import Chains
from aptui.core.state.ledger import Ledger
from aptui.core.state.working_set import Memory

Log = tuple[LogRecord, ...]
Finished = tuple[Job, RunResult]


@dataclass(slots=True)
class Prepared:
    """What one batch of results leads to: jobs to commit with their logs, names to delete first, and the order itself."""

    ready: list[tuple[Job, RunResult, Log]] = field(default_factory=list)
    deletes: tuple[str, ...] = ()
    commits: CommitProducts | None = None


@dataclass(slots=True)
class _Court:
    """What is found out about one batch.

    What each job of it makes, and who made a name before it; who `lost` and why; who was `robbed` of a product, the names `taken`; and who
    has to run again because of it.
    """

    making: Mapping[Job, set[str]]
    makers: dict[str, list[Job]] = field(default_factory=dict)
    lost: dict[Job, str] = field(default_factory=dict)
    robbed: dict[Job, None] = field(default_factory=dict)
    taken: dict[str, None] = field(default_factory=dict)
    again: dict[Job, None] = field(default_factory=dict)


@dataclass(slots=True)
class Change:
    """What a commit changed for others: (name, digest hex or "" when removed), and whether anything did."""

    products: tuple[tuple[str, str], ...]
    is_changed: bool


@dataclass(slots=True)
class _Undo:
    fingerprint: int
    inputs: tuple[tuple[str, str, str], ...]
    products: tuple[Product, ...]


class Commits:
    """Prepares commits and keeps the claims."""

    def __init__(self, memory: Memory, ledger: Ledger, planner: Planner, chains: Chains) -> None:
        self._chains = chains
        self._memory = memory
        self._ledger = ledger
        self._planner = planner
        self._undo: dict[int, _Undo] = {}
        self._claims: dict[str, dict[int, PathKey]] = {}
        for name, claimants in memory.archive.conflicts(()).items():
            for job_id, key in claimants:
                self._claims.setdefault(name, {})[job_id] = key

    # -------------------------------------------------------------------------------------------------------------- prepare

    def prepare(
        self,
        finished: list[Finished],
        now_ms: int,
        log_name: Callable[[Job, str], str],
        builders: Mapping[bytes, Builder],
        folder_names: Mapping[int, str],
    ) -> tuple[Prepared, list[tuple[Job, RunResult, str]], list[Job]]:
        """Sort results into commits, losers of this batch with their reason, and jobs that have to run again because they lost."""
        products = {job: self._products(job, result, builders[job.builder]) for job, result in finished}
        names = [product.name for made in products.values() for product in made]
        owners = self._memory.archive.owners(names)
        court = _Court({job: {product.name for product in made} for job, made in products.items()})
        for job, _result in finished:
            for product in products[job]:
                for other in self._others(job, product.name, owners, court):
                    self._judge(job, other, product.name, court)
                court.makers.setdefault(product.name, []).append(job)
        for robbed in court.robbed:
            self._put_robbed(robbed)
        for job in court.lost:
            court.again.update(dict.fromkeys(self.claim_all(job, court.making[job])))
        placed = {product.name for job, made in products.items() if job not in court.lost for product in made}
        prepared = Prepared(deletes=tuple(name for name in court.taken if name not in placed))
        commits = []
        for job, result in finished:
            if job in court.lost:
                continue
            log = self._log_of(job, result, builders[job.builder], now_ms)
            commits.append(self._commit_of(job, result, products[job], log, now_ms, log_name, builders, folder_names, placed))
            prepared.ready.append((job, result, log))
        if commits:
            prepared.commits = CommitProducts(self._ledger.cause, tuple(commits))
        return (
            prepared,
            [(job, result, court.lost[job]) for job, result in finished if job in court.lost],
            [job for job in court.again if job not in court.lost],
        )

    @staticmethod
    def _products(job: Job, result: RunResult, builder: Builder) -> tuple[Product, ...]:
        return tuple(
            Product(
                name_of(job, staged),
                staged.sub_id,
                staged.asset_type or builder.asset_type or bytes(16),
                staged.flags,
                Digest(staged.digest),
                staged.hash64,
                staged.size,
                staged.links,
                staged.legacy_sub_ids,
            )
            for staged in result.products
        )

    def _others(self, job: Job, name: str, owners: Mapping[str, tuple[int, PathKey]], court: _Court) -> list[Job]:
        """Return the other jobs that own `name`, are about to, or lay claim to it."""
        found = {other: None for other in court.makers.get(name, ()) if other is not job}
        candidates = dict(self._claims.get(name, {}))
        if name in owners:
            candidates[owners[name][0]] = owners[name][1]
        candidates.pop(job.id, None)
        for job_id, key in candidates.items():
            is_claim = job_id in self._claims.get(name, {})
            for source in self._memory.load((key,)):
                for other in _jobs_with(source, job_id):
                    if name not in court.making.get(other, (name,)) or self._chains.is_ended(other, job, court.making[job]):
                        self._take_away(
                            name, other, court
                        )  # it has run too and does not make it any more, or goes with this commit
                    elif any(item.name == name for item in other.products) or (
                        is_claim and not self._chains.problem(other, (name,))
                    ):
                        found[other] = None
        return list(found)

    def _judge(self, job: Job, other: Job, name: str, court: _Court) -> None:
        """Two jobs make `name`: say who loses it, and take it away from a loser that has it."""
        if job.source is other.source:
            beaten: tuple[Job, ...] = (other,) if self._stands(job) < self._stands(other) else (job,)
        else:
            beaten = (job, other)
        for loser in beaten:
            winner = other if loser is job else job
            text = f"product '{name}' is made by '{winner.source.rel}' (job key '{winner.key}') as well"
            had_it = self._take_away(name, loser, court)
            if loser in court.making:
                court.lost.setdefault(loser, text)
                continue
            self._claim(name, loser)
            if had_it and loser.state in SETTLED:
                loser.is_forced, loser.reason = True, text
                court.again[loser] = None

    def _stands(self, job: Job) -> tuple[int, str, str]:
        return (self._planner.order_of(job.builder), job.key, job.platform)

    def _claim(self, name: str, job: Job) -> None:
        claimants = self._claims.setdefault(name, {})
        if job.id not in claimants:
            claimants[job.id] = job.source.key
            self._ledger.put("put_conflict", (name, job.id))

    def claim_all(self, job: Job, names: Collection[str]) -> list[Job]:
        """`job` failed for a name that others make too: it claims all that it makes, no more; return who may have what it let go."""
        freed = self._let_go(job, [name for name, claimants in self._claims.items() if job.id in claimants and name not in names])
        for name in sorted(names):
            self._claims.setdefault(name, {})[job.id] = job.source.key
            self._ledger.put("put_conflict", (name, job.id))
        return freed

    @staticmethod
    def _take_away(name: str, job: Job, court: _Court) -> bool:
        """Take a product from a job that has it; it is owed a run then, whatever its inputs are."""
        if all(product.name != name for product in job.products):
            return False
        job.products = tuple(product for product in job.products if product.name != name)
        job.fingerprint = 0
        court.robbed[job] = None
        court.taken[name] = None
        return True

    def lose(self, job: Job, names: set[str]) -> None:
        """These products of `job` are gone from the cache: it is owed a run, whatever its inputs are."""
        job.products = tuple(product for product in job.products if product.name not in names)
        job.fingerprint = 0
        self._put_robbed(job)

    def _put_robbed(self, job: Job) -> None:
        self._ledger.drop("drop_products", (job.id,))
        self._ledger.put("put_job", rows.job_row(job, JobState.WAITING))
        for item in job.products:
            for operation, row in rows.product_rows(self._ledger.next_product_id(), job, item):
                self._ledger.put(operation, row)
        self._ledger.touched[job.source] = None

    # --------------------------------------------------------------------------------------------------------------- commit

    @staticmethod
    def _log_of(job: Job, result: RunResult, builder: Builder, now_ms: int) -> Log:
        if not job.ring:
            return result.log
        text = "a ring of job dependencies is ignored for the order of jobs: " + " -> ".join(job.ring)
        return (*result.log, LogRecord(LogLevel.WARNING, builder.name, text, now_ms))

    def _commit_of(
        self,
        job: Job,
        result: RunResult,
        products: tuple[Product, ...],
        log: Log,
        now_ms: int,
        log_name: Callable[[Job, str], str],
        builders: Mapping[bytes, Builder],
        folder_names: Mapping[int, str],
        placed: set[str],
    ) -> JobCommit:
        builder = builders[job.builder]
        present = {} if job.is_forced or not job.fingerprint else {product.name: product.digest for product in job.products}
        moves = tuple(
            (staged.staged, product)
            for staged, product in zip(result.products, products, strict=True)
            if staged.staged and present.get(product.name) != product.digest
        )
        self._undo[job.run_key] = _Undo(job.fingerprint, job.inputs, job.products)
        if result.origin:
            job.reason = f"{job.reason}; its result is {result.origin}" if job.reason else f"its result is {result.origin}"
        stale = tuple(product.name for product in job.products if product.name not in placed)
        before = history.moment(job.inputs, job.products)
        job.products, job.fingerprint, job.inputs = (products, job.planned or 0, job.planned_inputs)
        job.warnings, job.errors, job.error = (result.warnings + bool(job.ring), result.errors, "")
        job.duration_ms, job.completed_ms, job.last_log_ms = (result.duration_ms, now_ms, now_ms)
        job.log_file = log_name(job, builder.name) if log else ""
        (job.first_fail_ms, job.first_fail_log, job.last_fail_ms, job.last_fail_log, job.failure_cause) = 0, "", 0, "", ""
        return JobCommit(job.run_key, job.id, moves, stale, tuple(self._rows_of(job, builder, folder_names, before)))

    def _rows_of(
        self, job: Job, builder: Builder, folder_names: Mapping[int, str], before: history.Moment
    ) -> Iterable[tuple[str, tuple[object, ...]]]:
        if before.products:
            yield "drop_products", (job.id,)
        yield "put_job", rows.job_row(job, JobState.COMPLETED)
        for product in job.products:
            yield from rows.product_rows(self._ledger.next_product_id(), job, product)
        yield (
            "put_run",
            (
                job.id,
                job.run_key,
                job.completed_ms,
                job.duration_ms,
                int(Outcome.SUCCEEDED),
                job.reason,
                "",
                job.log_file,
                job.fingerprint,
                builder.version,
                history.digest(job.products),
                history.committed_step(before, history.moment(job.inputs, job.products)),
            ),
        )
        folder = folder_names.get(job.source.scan_folder, "")
        name = f"ProcessJob,{folder},{job.source.rel},{job.key},{job.platform},{{{builder.uuid.hex()}}}"
        yield "put_stat", (name, job.duration_ms, job.completed_ms)

    def committed(self, job: Job) -> Change:
        """The commit of `job` is done; return what it changed for others."""
        change = self.change(job)
        del self._undo[job.run_key]
        job.is_forced = False
        return change

    def change(self, job: Job) -> Change:
        """Return what the commit of `job` changes for others."""
        undo = self._undo[job.run_key]
        before = {product.name: product.digest for product in undo.products}
        after = {product.name: product.digest for product in job.products}
        changed = [(name, digest.hex()) for name, digest in after.items() if before.get(name) != digest]
        changed += [(name, "") for name in before if name not in after]
        return Change(tuple(changed), bool(changed) or undo.fingerprint != job.fingerprint)

    def undo(self, job: Job) -> tuple[str, ...]:
        """The commit of `job` failed: what it may have half replaced must be made again, whatever its inputs are then.

        Returns:
            Names that may have been placed and that no row knows.
        """
        undo = self._undo.pop(job.run_key)
        known = {product.name for product in undo.products}
        strange = tuple(product.name for product in job.products if product.name not in known)
        job.fingerprint, job.inputs, job.products = 0, undo.inputs, undo.products
        return strange

    # --------------------------------------------------------------------------------------------------------------- claims

    def deletable(self, job: Job) -> tuple[str, ...]:
        """Return the names of the products of `job` that nobody else has taken over."""
        names = [product.name for product in job.products]
        owners = self._memory.archive.owners(names)
        return tuple(name for name in names if name not in owners or owners[name][0] == job.id)

    def claimants(self, name: str) -> list[Job]:
        """Return the jobs that lay claim to a name."""
        found = self._claims.get(name, {}) if self._claims else {}
        return [job for job_id, key in found.items() for source in self._memory.load((key,)) for job in _jobs_with(source, job_id)]

    def release(self, job: Job) -> list[Job]:
        """`job` goes: return the jobs that lost a product to it, which may have it now."""
        names = [name for name, claimants in self._claims.items() if job.id in claimants]
        names += [product.name for product in job.products]
        return self._let_go(job, names)

    def release_names(self, job: Job, gone: Iterable[str] = ()) -> list[Job]:
        """`job` ended without losing a name: drop its claims; return the jobs that may have those now, or the names in `gone`."""
        if not self._claims:
            return []
        return self._let_go(job, [*(name for name, claimants in self._claims.items() if job.id in claimants), *gone])

    def _let_go(self, job: Job, names: Iterable[str]) -> list[Job]:
        freed: dict[Job, None] = {}
        had_claim = False
        for name in names:
            claimants = self._claims.get(name)
            if claimants is None:
                continue
            had_claim = claimants.pop(job.id, None) is not None or had_claim
            for job_id, key in claimants.items():
                for source in self._memory.load((key,)):
                    freed.update((other, None) for other in _jobs_with(source, job_id))
            if not claimants:
                del self._claims[name]
        if had_claim:
            self._ledger.drop("drop_conflict", (job.id,))
        return [other for other in freed if other is not job]


def _jobs_with(source: Source, job_id: int) -> list[Job]:
    return [job for job in source.jobs.values() if job.id == job_id and not job.is_analysis]


def name_of(job: Job, staged: StagedProduct) -> str:
    """Return the name of a product; that of a shadow (`FileFact.is_shadow`) has its scan folder before the file name."""
    path = staged.name or job.source.rel.lower()
    if job.source.is_shadow:
        folder, slash, name = path.rpartition("/")
        path = f"{folder}{slash}({job.source.scan_folder}){name}"
    return f"{job.platform}/{path}"
