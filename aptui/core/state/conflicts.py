"""Resolves conflicts of product names: decides which job may make a name, and remembers the claims of the losers.

Two jobs must never make products of the same name. If jobs of different sources make one name, all of them fail and no product is
placed. Among jobs of one source, the job whose builder comes first in the configuration keeps the name; among jobs of one builder,
the job with the first key keeps it. The order of the runs does not matter. A job that lost a name keeps a *claim* on the name until
the job succeeds without the name or is removed; claims are stored. The names of a product `a` and of a product in a folder `a/`
also conflict, because these products cannot both be in the cache.

`resolve` decides which jobs of a batch lose names, and changes nothing; `apply` applies the decision.

Tests: `tests/core/state/test_commits.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache

from msgspec import Struct, field

from aptui.core import rows
from aptui.core.model import SETTLED, Job, JobState, PathKey, Product
from aptui.core.planner import Planner
from aptui.core.state.chains import Chains
from aptui.core.state.ledger import Ledger
from aptui.core.state.working_set import WorkingSet

# Two product names conflict if one is a file where the other needs a folder: `a` and `a/b` cannot both be in the cache.


def folders_above(name: str) -> tuple[str, ...]:
    """Return the folders of a product, except the folder of its platform: "p/a/b/c" is in "p/a" and "p/a/b"."""
    return _chain(name.rpartition("/")[0])


@lru_cache(maxsize=4096)
def _chain(folder: str) -> tuple[str, ...]:
    """Return `folder` and the folders above it, except the folder of the platform; cached for products of one folder."""
    above, slash, _name = folder.rpartition("/")
    return (*_chain(above), folder) if slash else ()


class Nesting:
    """Names of products, with an index of the folders that contain them."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._below: dict[str, dict[str, None]] = {}
        self._names: dict[str, None] = {}
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        """Add a name."""
        self._names[name] = None
        for folder in folders_above(name):
            self._below.setdefault(folder, {})[name] = None

    def discard(self, name: str) -> None:
        """Remove a name."""
        del self._names[name]
        for folder in folders_above(name):
            del self._below[folder][name]
            if not self._below[folder]:
                del self._below[folder]

    def around(self, name: str) -> list[str]:
        """Return the names that conflict with `name`: names of folders above `name`, and names below a folder `name`."""
        if not self._names:
            return []
        return [*(folder for folder in folders_above(name) if folder in self._names), *self._below.get(name, ())]


Claims = dict[str, dict[int, PathKey]]
"""{product name: {job id: key of its source}} of the jobs that claim the name, in the order of their claims."""


class ConflictVerdict(Struct):
    """Decision about the product names of a batch of finished runs. `Conflicts.apply` applies it.

    Attributes:
        making: {job of the batch: names of the products of its run}.
        makers: {product name: the jobs of the batch that make it, in batch order}.
        lost: {job of the batch: reason} for the jobs whose new products must not be published.
        left: {job: products that it keeps} for the jobs that lose some products of earlier runs.
        taken: the names of the products that the jobs in `left` lose.
        again: {job: reason} for the settled jobs that lose a product. They run again and fail, so that the user sees the conflict.
        claims: the new claims of jobs outside the batch that lose a name. `apply` adds the claims of the jobs in `lost`.
        ended: jobs of the batch that share a product name with another job, but are about to be deleted.
    """

    making: Mapping[Job, set[str]]
    makers: dict[str, list[Job]] = field(default_factory=dict)
    lost: dict[Job, str] = field(default_factory=dict)
    left: dict[Job, tuple[Product, ...]] = field(default_factory=dict)
    taken: dict[str, None] = field(default_factory=dict)
    again: dict[Job, str] = field(default_factory=dict)
    claims: Claims = field(default_factory=dict)
    ended: dict[Job, None] = field(default_factory=dict)

    def products_of(self, job: Job) -> tuple[Product, ...]:
        """Return the products of `job`, except the products that it loses."""
        return self.left.get(job, job.products)

    def take_away(self, name: str, job: Job) -> bool:
        """Record that a job loses a product; return whether the job had this product."""
        products = self.products_of(job)
        left = tuple(product for product in products if product.name != name)
        if len(left) == len(products):
            return False
        self.left[job] = left
        self.taken[name] = None
        return True


class Conflicts:
    """Resolves conflicts of product names, and stores the claims."""

    def __init__(self, memory: WorkingSet, ledger: Ledger, planner: Planner, chains: Chains) -> None:
        self._memory = memory
        self._ledger = ledger
        self._planner = planner
        self._chains = chains
        self._claims: Claims = {}
        self._claimed: dict[int, dict[str, None]] = {}
        """{job id: the product names that the job claims}."""
        self._nested_claims = Nesting()
        for name, claimants in memory.archive.conflicts().items():
            for job_id, key in claimants:
                self._claim(name, job_id, key)

    # -------------------------------------------------------------------------------------------------------------- resolve

    def resolve(self, batch: Mapping[Job, Collection[str]]) -> ConflictVerdict:
        """Decide which jobs of a batch may make which product names; `batch` is {job: names of the products of its run}."""
        verdict = ConflictVerdict({job: set(made) for job, made in batch.items()})
        counts = Counter(name for made in batch.values() for name in made)
        names = set(counts)
        above = {folder for name in names for folder in folders_above(name)}
        owners = self._owners(names, above)
        if not self._claims and len(names) == counts.total() and names.isdisjoint(above):
            makers = {name: [job] for job, made in batch.items() for name in made}
            if all(name in makers and makers[name][0].id == job_id for name, (job_id, _key) in owners.items()):
                verdict.makers = makers  # each name is new, or is made again by the job that made it before
                return verdict
        nested = Nesting({*names, *owners})
        for job, made in batch.items():
            contested = any(self._is_contested(job, name, owners) or counts[name] > 1 for name in made)
            if contested and self._chains.is_ended(job, verdict.making):
                verdict.ended[job] = None
                continue
            for name in made:
                around = {*nested.around(name), *self._nested_claims.around(name)}
                for rival in (name, *sorted(around)):
                    for other in self._others(job, rival, owners, verdict):
                        self._decide((job, name), (other, rival), verdict)
                verdict.makers.setdefault(name, []).append(job)
        return verdict

    def are_free(self, names: Mapping[str, int]) -> bool:
        """Whether the jobs in `names` may publish products with these names: {product name: job id, 0 = the job has no id yet}.

        True only if no job claims any name, and no other job has a product with an equal or conflicting name. The names must not
        conflict with each other either.
        """
        unique = set(names)
        above = {folder for name in unique for folder in folders_above(name)}
        if self._claims or not unique.isdisjoint(above):
            return False
        return all(names.get(name) == job_id for name, (job_id, _key) in self._owners(unique, above).items())

    def _is_contested(self, job: Job, name: str, owners: Mapping[str, tuple[int, PathKey]]) -> bool:
        return name in self._claims or (name in owners and owners[name][0] != job.id)

    def _owners(self, names: set[str], above: set[str]) -> dict[str, tuple[int, PathKey]]:
        """Return {product name: (job id, key of its source)} of recorded products with equal or conflicting names.

        The name of each returned product is in `names`, or in `above` (the folders above `names`), or is below a folder whose
        name is in `names`.
        """
        archive = self._memory.archive
        return {**archive.owners_below(list(names)), **archive.owners(list(names | above))}

    def _others(self, job: Job, name: str, owners: Mapping[str, tuple[int, PathKey]], verdict: ConflictVerdict) -> list[Job]:
        """Return the jobs, except `job`, that make `name`: jobs of this batch, the owner of the name, and jobs that claim it.

        A job that no longer makes `name` is left out, and loses the name. There are two cases: the job's new result, in the same
        batch, lacks the name, or the job is about to be deleted (`Chains.is_ended`). A job that is about to be deleted must not
        make the new owner fail.
        """
        found = {other: None for other in verdict.makers.get(name, ()) if other is not job}
        claims = {**self._claims.get(name, {}), **verdict.claims.get(name, {})}
        candidates = dict(claims)
        if name in owners:
            candidates[owners[name][0]] = owners[name][1]
        candidates.pop(job.id, None)
        if name not in verdict.making[job]:  # `name` may be a product of the job's earlier run that conflicts with its new products
            verdict.take_away(name, job)
        for other in self._jobs_of(candidates):
            makes_it = name in verdict.making.get(other, (name,))
            if not makes_it or self._chains.is_ended(other, verdict.making):
                verdict.take_away(name, other)
            elif any(item.name == name for item in verdict.products_of(other)) or (
                other.id in claims and not self._chains.problem(other, self._claims_of(other))
            ):
                found[other] = None
        return list(found)

    def _jobs_of(self, claimants: Mapping[int, PathKey]) -> list[Job]:
        """Return the existing jobs among {job id: key of its source}, in the order of the mapping."""
        sources = self._memory.load(dict.fromkeys(claimants.values()))
        found = {job.id: job for source in sources for job in source.jobs.values() if job.id in claimants and not job.is_analysis}
        return [found[job_id] for job_id in claimants if job_id in found]

    def _decide(self, one: tuple[Job, str], two: tuple[Job, str], verdict: ConflictVerdict) -> None:
        """Decide which of two jobs with conflicting product names must not publish its product, and record this in `verdict`.

        Jobs of different sources both lose. Each of `one` and `two` is (job, its product name).
        """
        (job, _), (other, _) = one, two
        if job.source is other.source:
            losers: tuple[Job, ...] = (other,) if self._precedence(job) < self._precedence(other) else (job,)
        else:
            losers = (job, other)
        for loser in losers:
            (winner, other_name), (_, name) = (two, one) if loser is job else (one, two)
            text = f"product '{name}' is also made by '{winner.source.rel}' (job key '{winner.key}')"
            if other_name != name:
                text = f"product '{name}' conflicts with '{other_name}', which '{winner.source.rel}' (job key '{winner.key}') makes"
                text = f"{text}: one path needs a file where the other needs a folder"
            elif job.source is other.source:
                text += self._planner.describe_overlap(job.source, job.builder, other.builder)
            had_it = verdict.take_away(name, loser)
            if loser in verdict.making:
                # With `min`, the error of a job with several conflicts does not depend on the order in which the runs ended.
                verdict.lost[loser] = min(text, verdict.lost.get(loser, text))
                continue
            if loser.id not in self._claims.get(name, ()):
                verdict.claims.setdefault(name, {}).setdefault(loser.id, loser.source.key)
            if had_it and loser.state in SETTLED:
                verdict.again[loser] = text

    def _precedence(self, job: Job) -> tuple[int, str, str]:
        """Return the sort key of a job. If jobs of one source make the same product, the job with the lowest key keeps it."""
        return (self._planner.order_of(job.builder), job.key, job.platform)

    # ---------------------------------------------------------------------------------------------------------------- apply

    def apply(self, verdict: ConflictVerdict) -> list[Job]:
        """Apply the decisions about contested product names. Return the jobs to run again, except those in `verdict.lost`."""
        for name, claimants in verdict.claims.items():
            for job_id, key in claimants.items():
                self._claim(name, job_id, key)
                self._ledger.put("put_conflict", (name, job_id))
        for job, text in verdict.again.items():
            job.is_forced = True
            job.set_reason(text)
        for job, products in verdict.left.items():
            self._reduce(job, products)
        again = dict.fromkeys(verdict.again)
        for job in verdict.lost:
            again.update(dict.fromkeys(self.claim_all(job, verdict.making[job])))
        return [job for job in again if job not in verdict.lost]

    def remove_missing(self, job: Job, names: set[str]) -> None:
        """Remove these products, which are missing from the cache, from `job`, and mark the job as needing a run."""
        job.lost += tuple(product for product in job.products if product.name in names)
        self._reduce(job, tuple(product for product in job.products if product.name not in names))

    def replace(self, job: Job, placed: Mapping[str, Product]) -> None:
        """Record the products of `job` after a failed commit, and mark the job as needing a run.

        `placed` are the products that the commit had already exchanged for earlier products of the same names.
        """
        self._reduce(job, tuple(placed.get(product.name, product) for product in job.products))

    def _reduce(self, job: Job, products: tuple[Product, ...]) -> None:
        """Record `products` as the only products of `job`, and mark the job as needing a run."""
        job.products, job.fingerprint = products, 0
        self._ledger.drop("drop_products", (job.id,))
        self._ledger.put(*rows.job_row(job, JobState.WAITING))
        for item in products:
            for operation, row in rows.product_rows(next(self._ledger.product_ids), job, item):
                self._ledger.put(operation, row)
        self._ledger.touched[job.source] = None

    # --------------------------------------------------------------------------------------------------------------- claims

    def _claim(self, name: str, job_id: int, key: PathKey) -> None:
        if name not in self._claims:
            self._nested_claims.add(name)
        self._claims.setdefault(name, {})[job_id] = key
        self._claimed.setdefault(job_id, {})[name] = None

    def claimants(self, name: str) -> list[Job]:
        """Return the jobs that claim a name."""
        return self._jobs_of(self._claims.get(name, {})) if self._claims else []

    def has_claims(self, job: Job) -> bool:
        """Whether `job` claims a name."""
        return job.id in self._claimed

    def loses_again(self, job: Job) -> bool:
        """Whether the last run of `job` failed with a name conflict, and another run with the same products would fail, too.

        False if the other run would fail with another error, or would take a product name from another job.
        """
        names = sorted(self._claims_of(job))
        if not names:
            return False
        if problem := self._chains.problem(job, names):
            return problem == job.error
        verdict = self.resolve({job: names})
        return verdict.lost.get(job) == job.error and not verdict.taken

    def free_names(self, job: Job, names: Iterable[str]) -> list[Job]:
        """Return the other jobs that claim one of `names`, and that may publish it now.

        `job` made products with these names, but has an invalid intermediate, so it publishes nothing. Jobs that would also have
        an invalid intermediate are left out.
        """
        rivals = dict.fromkeys(other for name in names for other in self.claimants(name) if other is not job)
        return [other for other in rivals if not self._chains.problem(other, self._claims_of(other))]

    def claim_all(self, job: Job, names: Collection[str]) -> list[Job]:
        """Make `job`, which failed because of a conflict of product names, claim exactly these names.

        Return the other jobs that waited for a name that `job` no longer claims; they have to run again.
        """
        freed = self._release(job, [name for name in self._claims_of(job) if name not in names])
        for name in sorted(names):
            self._claim(name, job.id, job.source.key)
            self._ledger.put("put_conflict", (name, job.id))
        return freed

    def release(self, job: Job) -> list[Job]:
        """Release all product names of `job`, which is removed. Return the jobs that claim one of these names, to run again."""
        return self._release(job, [*self._claims_of(job), *(product.name for product in job.products)])

    def release_names(self, job: Job, gone: Iterable[str] = ()) -> list[Job]:
        """Drop all claims of `job`, because its last run had no name conflict.

        Return the other jobs that claim a name that is now free: a name that `job` claimed until now, or a name in `gone`.
        `gone` are names of products that `job` no longer makes.
        """
        return self._release(job, [*self._claims_of(job), *gone]) if self._claims else []

    def _claims_of(self, job: Job) -> list[str]:
        return list(self._claimed.get(job.id, ()))

    def _release(self, job: Job, names: Iterable[str]) -> list[Job]:
        """Drop the claims of `job` on these product names.

        Return the other jobs that claim one of these names, or a name that conflicts with one of them.
        """
        freed: dict[Job, None] = {}
        had_claim = False
        for name in names:
            for nested in self._nested_claims.around(name):
                freed.update(dict.fromkeys(self._jobs_of(self._claims[nested])))
            claimants = self._claims.get(name)
            if claimants is None:
                continue
            if claimants.pop(job.id, None) is not None:
                had_claim = True
                del self._claimed[job.id][name]
            freed.update(dict.fromkeys(self._jobs_of(claimants)))
            if not claimants:
                del self._claims[name]
                self._nested_claims.discard(name)
        if not self._claimed.get(job.id, True):
            del self._claimed[job.id]
        if had_claim:
            self._ledger.drop("drop_conflict", (job.id,))
        return [other for other in freed if other is not job]

    def deletable(self, job: Job, products: Iterable[Product]) -> tuple[str, ...]:
        """Return the names of these products of `job` that may be deleted: another job has not taken them over."""
        names = [product.name for product in products]
        owners = self._memory.archive.owners(names)
        return tuple(name for name in names if name not in owners or owners[name][0] == job.id)
