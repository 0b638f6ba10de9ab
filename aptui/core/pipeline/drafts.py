"""Drafts and finals: which of them a job is to make, and when the finals follow.

When an input changes, a job whose builder knows drafts makes its draft first; its final is *pending* then. When no other work is
left, such jobs are *due*: they are planned once more, behind all others, and their drafts are served meanwhile. Another change
makes the earlier final meaningless, as it does any run, and a new draft comes first again.

Finals are made of finals: a job is not due while the final of one of its inputs is pending, and an input that changes from draft
to final causes no new draft. So a chain of jobs makes each of its drafts and finals once. Where one of several jobs cannot become
a final (its platform is disabled, say), the others do without.

Only the drafts themselves are stored: a job whose committed manifest is that of a draft has a pending final, also after an engine
was killed. The result at the end depends on the finals alone.

Tests: `tests/core/pipeline/test_drafts.py`.
"""

from __future__ import annotations

from itertools import islice

from aptui.core import fingerprint
from aptui.core.fingerprint import Manifest
from aptui.core.model import Job, JobState, PathKey
from aptui.core.pipeline.jobs import Jobs
from aptui.core.results import quality
from aptui.core.state.graph import Assembly
from aptui.core.state.working_set import Unsettled

_BATCH = 256
"""Sources whose finals become due together."""
_PLANNED = frozenset({JobState.QUEUED, JobState.RUNNING, JobState.COMMITTING, JobState.FAILED, JobState.CANCELLED})
_IN_FLIGHT = frozenset({JobState.QUEUED, JobState.RUNNING})


class Drafts:
    """Chooses between draft and final, and knows the jobs whose final is pending."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._memory = jobs.memory
        self._makes_finals = jobs.project.makes_finals
        self._pending: dict[PathKey, None] = {}
        if self._makes_finals and any(builder.has_drafts for builder in jobs.project.builders):
            self._pending = dict.fromkeys(jobs.memory.archive.drafts())
        self._held: dict[PathKey, None] = {}
        """Sources of jobs that were due while others owed finals that they are made of."""
        self._has_moved = self._takes_any = False
        """Whether any final was planned since those were held; whether they are due all the same, for none was."""

    def mark_pending(self, job: Job) -> None:
        """Note that `job` has its draft and that its final follows."""
        if self._makes_finals:
            self._pending[job.source.key] = None
            self._takes_any = False

    def choose(self, job: Job, number: int, assembly: Assembly) -> tuple[int, Manifest]:
        """Return fingerprint and manifest of what `job` is to make now: those of its final are `number` and the assembly's."""
        final = number, assembly.manifest
        is_due, job.is_due = job.is_due, False
        if job.fingerprint == number and (self._makes_finals or not job.is_forced):
            return final
        manifest = quality.as_draft(assembly.manifest)
        draft = fingerprint.number(manifest), manifest
        if not self._makes_finals:
            return draft
        if job.state in _PLANNED and job.planned == number and not job.is_forced:
            return final
        if job.fingerprint == draft[0]:
            return final if is_due and not job.is_forced and self._may_follow(job, assembly) else draft
        is_overtaken = bool(job.fingerprint) and not assembly.has_drafts and job.is_draft and not job.is_forced
        if is_overtaken and quality.differs_by_jobs(job.inputs, assembly.manifest, assembly.finals):
            return final
        return draft

    def _may_follow(self, job: Job, assembly: Assembly) -> bool:
        if assembly.has_drafts and not self._takes_any:
            self._held[job.source.key] = None
            return False
        self._has_moved = True
        return True

    def is_in_the_way(self, blocker: Job, job: Job) -> bool:
        """Whether `job`, which is new or was edited, waits for the mere final of another, whose draft would do."""
        if not blocker.is_draft or blocker.state not in _IN_FLIGHT or job.is_due:
            return False
        fact = job.source.fact
        if job.is_draft and fact is not None and fingerprint.file_digest(fact.digest) in (entry[2] for entry in job.inputs):
            return False
        return fingerprint.number(quality.as_draft(blocker.planned_inputs)) == blocker.fingerprint

    def take(self) -> list[Job]:
        """Return the jobs whose finals are due now, () while anything else is pending; whoever asks looks at them."""
        while (self._pending or self._held) and self._is_quiet():
            if not self._pending:
                if self._jobs.running:  # what ends now may be what they wait for
                    return []
                self._pending, self._held = self._held, {}
                self._takes_any, self._has_moved = not self._has_moved, False
            keys = list(islice(self._pending, _BATCH))
            for key in keys:
                del self._pending[key]
            if due := [job for key in keys for job in self._due(key)]:
                return due
        return []

    def _due(self, key: PathKey) -> list[Job]:
        fact = self._memory.file(key)
        if fact is None or isinstance(fact, Unsettled):
            return []
        jobs = []
        for source in self._memory.load((key,)):
            source.fact = fact
            jobs += [job for job in source.jobs.values() if job.is_draft and job.state is JobState.COMPLETED]
        due = [job for job in jobs if self._jobs.is_configured(job) and self._jobs.builders[job.builder].has_drafts]
        for job in due:
            job.is_due = True
        return due

    def _is_quiet(self) -> bool:
        """Whether nothing is pending but finals, and of these none that has not begun."""
        jobs, memory = self._jobs, self._memory
        is_pending = len(jobs.ready) or jobs.todo or jobs.committing or memory.hashing or memory.awaited or memory.unstable
        return not is_pending and memory.scan_is_done and all(job.is_finishing for job in jobs.running.values())
