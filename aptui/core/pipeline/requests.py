"""Requests for runs (reprocess, escalate, cancel) from users, from clients, and from a cache that has lost products.

Tests: `tests/core/pipeline/test_configuration.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from aptui.core.machine import Trigger
from aptui.core.messages import DiscardStaging, KillRuns, RequestReceived
from aptui.core.model import SETTLED, Job, JobState, PathKey, Source, SourceUuid
from aptui.core.pipeline.jobs import UNKNOWN, Jobs, PipelinePart
from aptui.core.pipeline.plans import Plans
from aptui.core.state.working_set import targets_of

_MOST_FOLLOWED = 2_000
"""Maximum number of sources whose dependencies are boosted by one request."""
_UUID_DIGITS = 32


class Requests(PipelinePart):
    """Handles requests of clients."""

    def __init__(self, jobs: Jobs, plans: Plans) -> None:
        super().__init__(jobs)
        self._plans = plans

    def carry_out(self, event: RequestReceived) -> None:
        """Handle a request."""
        if event.verb == "reprocess":
            self._reprocess(event)
        elif event.verb == "cancel":
            self.cancel(event.job_ids)
        elif event.verb == "escalate":
            self._escalate(event)
        elif event.verb == "analyse":
            for job in [job for job in self._jobs.ready if job.is_analysis]:
                self._escalate_job(job, event.value)
        elif event.verb == "interest":
            self._note_interest(event.keys, event.value)
        elif event.verb == "expire":
            for key in self._jobs.ready.interest.expire(event.value):
                self._rank_again(key)
        elif event.verb == "save":
            self._jobs.save_unsaved(but_committing=True)
        elif event.verb == "stop":
            self._stop()

    def _reprocess(self, event: RequestReceived) -> None:
        for source in self._memory.load(self._chains.members(event.keys)):
            for job in source.jobs.values():
                self._plans.force(job, "asked for by a person")
        self._force_jobs(event.job_ids)

    def _force_jobs(self, job_ids: Iterable[int]) -> None:
        wanted = set(job_ids)
        for source in self._memory.load(sorted(set(self._memory.archive.key_of_jobs(sorted(wanted)).values()))):
            for job in source.jobs.values():
                if job.id in wanted and not job.is_analysis:
                    self._plans.force(job, "asked for by a person")

    def _escalate(self, event: RequestReceived) -> None:
        """Raise the urgency of jobs that need a run, and of the dependencies of their sources. It is never lowered."""
        wanted, keys = set(event.job_ids), set(event.keys)
        named = []
        for source in self._memory.sources.values():
            jobs = [job for job in source.jobs.values() if source.key in keys or job.id in wanted]
            for job in jobs:
                self._escalate_job(job, event.value)
            if jobs:
                named.append(source)
        for source in self._dependencies_of(named):
            for job in source.jobs.values():
                self._escalate_job(job, event.value)

    def _escalate_job(self, job: Job, urgency: int) -> None:
        if job.state not in SETTLED and job.escalation < urgency:
            job.escalation = urgency
            self._ledger.touched[job.source] = None
            if job.state is JobState.QUEUED:
                self._jobs.ready.push(job)

    def _note_interest(self, keys: Iterable[PathKey], number: int) -> None:
        """Boost the jobs of these sources, and of their dependencies that are in flight, up to a maximum."""
        todo = [key for key in keys if self._jobs.ready.interest.note(key, number)]
        followed = 0
        while todo:
            key = todo.pop()
            self._rank_again(key)
            source = self._memory.sources.get(key)
            if source is None or followed >= _MOST_FOLLOWED:
                continue
            followed += 1
            for target in targets_of(source):
                needed = PathKey(target) if target in self._memory.sources else self._key_of(target)
                if needed in self._memory.sources and self._jobs.ready.interest.note(needed, number):
                    todo.append(needed)

    def _key_of(self, target: str) -> PathKey:
        """Return the key of the source that 32 hex digits name, else the same text."""
        if len(target) != _UUID_DIGITS or "/" in target or "." in target:
            return PathKey(target)
        try:
            return self._memory.key_of(SourceUuid(bytes.fromhex(target))) or PathKey(target)
        except ValueError:
            return PathKey(target)

    def _rank_again(self, key: PathKey) -> None:
        source = self._memory.sources.get(key)
        for job in source.jobs.values() if source is not None else ():
            if job.state is JobState.QUEUED:
                self._jobs.ready.push(job)

    def _dependencies_of(self, sources: Iterable[Source]) -> list[Source]:
        """Return all dependencies of these sources, direct and indirect, that are in flight; settled jobs need no escalation."""
        moving = self._memory.sources
        todo, by_uuid = (
            list(sources),
            {source.uuid.hex(): source for source in moving.values()} if self._memory.edges.has_any else {},
        )
        found: dict[Source, None] = {}
        known = set(todo)
        while todo:
            for target in targets_of(todo.pop()):
                needed = moving.get(PathKey(target)) or by_uuid.get(target)
                if needed is not None and needed not in known:
                    known.add(needed)
                    found[needed] = None
                    todo.append(needed)
        return list(found)

    def cancel(self, job_ids: Iterable[int]) -> None:
        """Cancel these jobs in any state; they stay cancelled until their sources change."""
        wanted = set(job_ids)
        for source in list(self._memory.sources.values()):
            for job in source.jobs.values():
                if job.id in wanted and job.state not in SETTLED and job.state is not None:
                    self._jobs.feed(job, Trigger.CANCEL)
                    job.is_forced = False
                    job.planned = job.planned or UNKNOWN
                    self._jobs.save(job)
                    self._jobs.reports.report(job, is_settled=True)
                    self._jobs.note_settled(job, is_changed=True)

    def _stop(self) -> None:
        """Kill every run; at the next start these jobs are pending again."""
        self._jobs.save_unsaved()
        if self._jobs.running:
            self._ledger.order(KillRuns(self._ledger.cause, tuple(self._jobs.running)))
            self._ledger.order(DiscardStaging(self._ledger.cause, tuple(self._jobs.running)))
            self._jobs.running.clear()
