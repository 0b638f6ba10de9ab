"""New files that only plain copies want, decided together: from the bytes that came with their copies to products in place.

A cold build is of these by the thousand. Nothing else is decided between the event that brings the copies and the end of their
commit, so neither source nor job of them is ever in the working set: they are rows at once. Whatever is unusual about one file of
an event sends all of its copies the ordinary way, and a copy that cannot be placed becomes the job that it stands for.

Tests: `tests/core/pipeline/runs/test_fresh_copies.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from aptui.core import machine
from aptui.core.identity import path_uuids
from aptui.core.machine import Trigger
from aptui.core.messages import CommitProducts, FilesHashed, JobCommit
from aptui.core.model import FileFact, Job, JobState, PathKey, RunKey
from aptui.core.notices import JobChanged, ProductsChanged, SourcesChanged
from aptui.core.orders import Outcome, RunResult, StagedProduct
from aptui.core.paths import parent
from aptui.core.pipeline.jobs import Jobs
from aptui.core.pipeline.plans import Plans
from aptui.core.pipeline.reports import SHOWN
from aptui.core.records import rows
from aptui.core.records.fresh_copies import NEW_SOURCE, CopyRule, FreshCopy, commit_rows, fresh_copy, source_row
from aptui.core.state.commits import Commit, CommitChange

Copies = Mapping[PathKey, tuple[tuple[int, ...], int]]
"""{key: (run keys, milliseconds)}"""
_TO_COMMIT = (Trigger.PLAN, Trigger.UNBLOCK, Trigger.START, Trigger.SUCCEED)
"""What happens to the job of each of them within the event."""


class FreshCopies:
    """Takes the copies of new files.

    Args:
        staging: absolute folder in which every run gets a file named by its run key.
    """

    def __init__(self, jobs: Jobs, plans: Plans, staging: str) -> None:
        self._jobs, self._plans, self._staging = jobs, plans, staging
        self._memory = jobs.memory
        self._ledger = jobs.ledger
        self._reports = jobs.reports
        self._rules: dict[tuple[object, ...], tuple[CopyRule, ...]] = {}
        self._planned: list[FreshCopy] = []
        """Copies of this event that are about to be committed."""
        self._now_ms = 0

    def may_take(self, event: FilesHashed) -> bool:
        """Whether nothing stands against deciding the copies of this event together; the files themselves may."""
        return bool(event.copies) and not event.has_more and self.may_group

    @property
    def may_group(self) -> bool:
        """Whether copies of new files are decided together in this project, as things are."""
        jobs = self._jobs
        if jobs.is_outdated or self._reports.wants_news or jobs.resources is not None:
            return False
        return not (jobs.project.checks or jobs.settings.folders or self._memory.has_identities)

    def take(self, files: Sequence[tuple[PathKey, FileFact]], copies: Copies) -> bool:
        """Plan the copies of `files`, all or none; return whether that is done."""
        wanted = []
        for key, fact in files:
            rules = self._rules_of(fact)
            run_keys, took_ms = copies[key]
            if len(rules) != len(run_keys) or not self._is_new(key) or self._has_others(key, fact):
                return False
            wanted.append((key, fact, rules, run_keys, took_ms))
        names = [f"{rule.plan.platform}/{key}" for key, _fact, rules, _run_keys, _took_ms in wanted for rule in rules]
        if not self._jobs.conflicts.are_free(names) or self._are_depended_on(files):
            return False
        for key, fact, rules, run_keys, took_ms in wanted:
            self._plan(key, fact, zip(rules, run_keys, strict=True), took_ms)
        if self._reports.is_followed:
            self._ledger.notices.append(SourcesChanged(self._ledger.cause, tuple((fact.rel, True) for _key, fact in files)))
        return True

    def _is_new(self, key: PathKey) -> bool:
        """Whether no source is, or just was, at a path, and its folder's row is still to be saved, which brings it up again."""
        pending = self._memory.folders.get(parent(key))
        return pending is not None and not pending.ticket and key in pending.winners and self._memory.is_unknown(key)

    def _has_others(self, key: PathKey, fact: FileFact) -> bool:
        """Whether jobs look at other files beside this one, or jobs of others look at it or wait for it."""
        graph = self._jobs.graph
        has_companions = graph.companions_of(fact.rel) or graph.owners_of(fact.rel) or graph.is_shared(key)
        return bool(has_companions) or fact.is_shadow or key in self._jobs.waiters

    def _are_depended_on(self, files: Sequence[tuple[PathKey, FileFact]]) -> bool:
        if not self._memory.edges.has_any:
            return False
        uuids = (uuid.hex() for _key, fact in files for uuid in path_uuids(fact.rel))
        return bool(self._memory.dependents([*(key for key, _fact in files), *uuids]))

    def _rules_of(self, fact: FileFact) -> tuple[CopyRule, ...]:
        """Return the rules that a file is copied by, () where it has other jobs as well."""
        builders = self._jobs.planner.builders_for(fact.rel, fact.scan_folder)
        index = (fact.scan_folder, *(builder.uuid for builder in builders))
        found = self._rules.get(index)
        if found is None:
            found = self._rules[index] = tuple(self._make_rules(fact)) if self._jobs.planner.copy_count(fact) else ()
        return found

    def _make_rules(self, fact: FileFact) -> Iterable[CopyRule]:
        planner = self._jobs.planner
        for builder in planner.builders_for(fact.rel, fact.scan_folder):
            for plan in planner.inline_plans(builder, fact):
                self._plans.reasons.save_rule(builder, plan.platform)
                yield CopyRule(builder, plan, self._jobs.graph.rule(builder, plan.platform)[0], rows.pack_plan(plan, ()))

    def _plan(self, key: PathKey, fact: FileFact, copies: Iterable[tuple[CopyRule, int]], took_ms: int) -> None:
        source_id = self._ledger.next_source_id()
        uuid, *legacy = path_uuids(fact.rel)
        self._ledger.put("put_source", source_row(source_id, uuid, key, fact))
        for other in legacy:
            self._ledger.put("put_legacy", (other, source_id, 0))
        for rule, run_key in copies:
            self._planned.append(fresh_copy((self._ledger.next_job_id(), source_id, run_key), rule, key, fact, took_ms))
        self._memory.unsaved.begin_placing(key)

    @property
    def planned_run_keys(self) -> list[int]:
        """The run keys of what this event planned."""
        return [copy.run_key for copy in self._planned]

    def commit(self, now_ms: int) -> None:
        """Order the commit of what this event planned, if anything; its rows have been ordered saved then."""
        if not self._planned:
            return
        machine.follow(None, _TO_COMMIT)
        planned, self._planned, self._now_ms = self._planned, [], now_ms
        self._jobs.committing.update((copy.run_key, copy) for copy in planned)
        for copy in planned:
            self._reports.learn_run(copy.rule.builder.uuid, copy.duration_ms)
        self._ledger.flush_rows()
        moves = (((self._path_staged(copy), copy.product),) for copy in planned)
        orders = (JobCommit(copy.run_key, copy.job_id, move, (), is_first=True) for copy, move in zip(planned, moves, strict=True))
        self._ledger.order(CommitProducts(self._ledger.cause, tuple(orders)))

    def _path_staged(self, copy: FreshCopy) -> str:
        return f"{self._staging}/{copy.run_key}"

    def rows_of(self, copy: FreshCopy) -> list[tuple[str, rows.Row]]:
        """Return the rows that are saved with the product; asked once."""
        return commit_rows(copy, self._ledger.next_product_id(), self._now_ms)

    def note_committed(self, copies: Sequence[FreshCopy]) -> None:
        """These are in place, and so are all their rows."""
        state = machine.follow(JobState.COMMITTING, (Trigger.COMMITTED,))
        assert state is not None
        status = SHOWN[state]
        self._reports.counts["run"] += len(copies)
        self._reports.counts["done"] += len(copies)
        cause, notices = self._ledger.cause, self._ledger.notices
        notices.append(ProductsChanged(cause, tuple((copy.product.name, copy.product.digest.hex()) for copy in copies)))
        for copy in copies:
            plan, fact = copy.rule.plan, copy.fact
            notices.append(
                JobChanged(
                    cause, copy.job_id, fact.rel, fact.scan_folder, plan.platform, plan.key, copy.rule.builder.name, status,
                    NEW_SOURCE, "", 0, 0, copy.duration_ms, "", RunKey(copy.run_key), self._now_ms, is_critical=plan.is_critical,
                )
            )  # fmt: skip

    def end(self, copies: Iterable[FreshCopy]) -> None:
        """The commit of these has ended, one way or the other: their folders' rows need not wait for them any more."""
        keys = [copy.key for copy in copies]
        self._memory.end_placing(keys)
        for key in keys if self._jobs.waiters else ():
            self._jobs.wake(key)

    def as_commit(self, copy: FreshCopy) -> Commit:
        """Return a copy as the commit of the job that it stands for, which is in the working set from now on."""
        plan = copy.rule.plan
        (source,) = self._memory.load((copy.key,))
        job = Job(source, copy.rule.builder.uuid, plan.platform, plan.key, copy.job_id, plan=plan, priority=plan.priority)
        source.jobs[job.builder, job.platform, job.key] = job
        job.is_critical, job.reason, job.planned, job.planned_inputs = plan.is_critical, NEW_SOURCE, copy.number, copy.manifest
        job.run_key = RunKey(copy.run_key)
        for trigger in _TO_COMMIT:
            machine.feed(job, trigger)
        product = copy.product
        staged = StagedProduct(self._path_staged(copy), "", 0, b"", product.flags, product.digest, product.hash64, product.size)
        result = RunResult(copy.run_key, Outcome.SUCCEEDED, "", (staged,), product.digest, duration_ms=copy.duration_ms)
        change = CommitChange(((product.name, product.digest.hex()),), is_changed=True)
        moves = ((staged.staged, product),)
        return Commit(job, result, (product,), copy.number, copy.manifest, 0, (), "", moves, (), (), change, self._now_ms)
