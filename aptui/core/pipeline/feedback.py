"""Feedback: a job writes the source that its own chain of jobs begins with, so that the chain would never end.

A job that writes its own source is detected in its run: the source at the end differs from that at the start. If a later stage
writes the source of an earlier stage, each run is correct by itself. But every change of the source coincides with a run of its
chain: the run is in progress when the change is noticed, or it has ended and had begun before the file was written. A
batch is not notified of changes: when idle, it compares the sources whose chains ran.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from msgspec import Struct

from aptui.core import fingerprint, quality
from aptui.core.fingerprint import Manifest
from aptui.core.model import FileFact, Job, JobState, PathKey, Source
from aptui.core.pipeline.jobs import Jobs, PipelinePart
from aptui.core.run_report import TICK_NS, Used
from aptui.core.state.chains import intermediates
from aptui.core.state.graph import Assembly
from aptui.core.state.working_set import Unsettled, WorkingSet

# A builder that supports drafts makes two results: a quick draft when an input changes, and the final result (the *final*) later.
# While a job has made only its draft, its final is *pending*, and clients get the draft. When no other work is left, jobs with
# pending finals are *due*: they are planned again. If an input changes before that, the job makes a new draft first.
#
# The inputs of a final are finals. So a job is not due while one of its inputs has a pending final, and an input that changes from
# draft to final causes no new draft. A chain of jobs therefore makes each draft and each final once. There is one exception: a job
# may be unable to make its final, for example because its platform is disabled. Then the jobs that depend on it use its draft.
#
# Pending finals are not stored. A job has a pending final if its committed manifest is the manifest of a draft, so the next
# engine finds the job even after a crash. When all finals are made, no product depends on a draft any more.

_BATCH = 256
"""Maximum number of sources whose finals become due together."""
_PLANNED = frozenset({JobState.QUEUED, JobState.RUNNING, JobState.COMMITTING, JobState.FAILED, JobState.CANCELLED})
_IN_FLIGHT = frozenset({JobState.QUEUED, JobState.RUNNING})


class Drafts(PipelinePart):
    """Chooses whether a job makes its draft or its final, and lists the jobs whose final is pending."""

    def __init__(self, jobs: Jobs) -> None:
        super().__init__(jobs)
        self._makes_finals = jobs.project.makes_finals
        self._pending: dict[PathKey, None] = {}
        if self._makes_finals and any(builder.has_drafts for builder in jobs.project.builders):
            self._pending = dict.fromkeys(jobs.memory.archive.drafts())
        self._held: dict[PathKey, None] = {}
        """Sources of jobs that were due while the finals of their inputs were still pending."""
        self._has_moved = self._takes_any = False
        """`_has_moved`: whether a final was planned since sources were added to `_held`.

        `_takes_any`: whether all held sources are due, because no final was planned.
        """

    def mark_pending(self, job: Job) -> None:
        """Record that `job` has made its draft and that its final is pending."""
        if self._makes_finals:
            self._pending[job.source.key] = None
            self._takes_any = False

    def choose(self, job: Job, number: int, assembly: Assembly) -> tuple[int, Manifest]:
        """Return fingerprint and manifest of the next run of `job`, which makes its draft or its final.

        `number` is the fingerprint of the final, and `assembly` has its manifest.
        """
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

    def blocks_with_final(self, blocker: Job, job: Job) -> bool:
        """Whether a new or edited `job` waits only for the final of `blocker`, although the draft of `blocker` is enough."""
        if not blocker.is_draft or blocker.state not in _IN_FLIGHT or job.is_due:
            return False
        fact = job.source.fact
        if job.is_draft and fact is not None and fingerprint.file_digest(fact.digest) in (entry[2] for entry in job.inputs):
            return False
        return fingerprint.number(quality.as_draft(blocker.planned_inputs)) == blocker.fingerprint

    def list_due(self) -> list[Job]:
        """Return the jobs whose finals are due now, [] while any other work is pending. The caller evaluates these jobs."""
        while (self._pending or self._held) and self._is_quiet():
            if not self._pending:
                if self._running:  # running jobs may still make inputs of the finals
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
        due = [job for job in jobs if self._jobs.is_configured(job) and self._builders[job.builder].has_drafts]
        for job in due:
            job.is_due = True
        return due

    def _is_quiet(self) -> bool:
        """Whether no job is pending except finals whose runs have begun."""
        jobs, memory = self._jobs, self._memory
        is_pending = len(jobs.ready) or jobs.todo or jobs.committing or memory.hashing or memory.awaited or memory.unstable
        return not is_pending and memory.scan_is_done and all(job.is_finishing for job in jobs.running.values())


_ENDED_MOST = 1000
_GAP_NS = 1_000_000_000
"""Maximum gap between runs of one source, on several platforms, that are counted as a single run.

The file may be checked only after the last of them.
"""


class _Span(Struct):
    """Runs of one intermediate: begin and end in nanoseconds since the epoch, and the name of the last job, for messages."""

    began_ns: int
    ended_ns: int
    name: str


class ChainFeedback:
    """Counts, for each source, the consecutive changes that happened during runs of later stages of its chain.

    Args:
        builder_names: {builder UUID: its name}, for messages.
        running: {run key: job} that is shared with the pipeline.
    """

    def __init__(self, memory: WorkingSet, builder_names: Mapping[bytes, str], running: Mapping[int, Job]) -> None:
        self._memory, self._builder_names, self._running = memory, builder_names, running
        self._ended: dict[PathKey, _Span] = {}
        self._counts: dict[PathKey, tuple[int, str]] = {}
        self._ran: dict[PathKey, None] = {}

    def run_ended(self, job: Job, used: Used, now_ms: int) -> None:
        """Record the end of a run of a job whose source is an intermediate, with any outcome."""
        if not used.began_ns:
            return
        self._ran[job.source.key] = None
        key, ended_ns = job.source.key, max(now_ms * 1_000_000, used.began_ns)
        before = self._ended.pop(key, None)
        began_ns = used.began_ns
        if before is not None and began_ns <= before.ended_ns + _GAP_NS:
            began_ns = min(before.began_ns, began_ns)
        self._ended[key] = _Span(began_ns, ended_ns, self._name_of(job))
        if len(self._ended) > _ENDED_MOST:
            del self._ended[next(iter(self._ended))]

    def pop_ran(self) -> list[PathKey]:
        """Return the intermediates that were sources of runs since the last call."""
        ran, self._ran = list(self._ran), {}
        return ran

    def source_changed(self, source: Source, fact: FileFact) -> None:
        """Count a change of `source` if its chain was running, otherwise reset the count. `fact` is its present file."""
        writer = self._writer_of(source, fact)
        if writer:
            self._counts[source.key] = (self.count(source) + 1, writer)
        else:
            self._counts.pop(source.key, None)

    def count(self, source: Source) -> int:
        """Return how many consecutive changes of a source happened during runs of later stages of its chain."""
        return self._counts.get(source.key, (0, ""))[0]

    def writer(self, source: Source) -> str:
        """Return the name of the job that was running at the last change of `source`, for messages."""
        return self._counts.get(source.key, (0, ""))[1]

    def _writer_of(self, source: Source, fact: FileFact) -> str:
        """Return the name of a job of a later stage that ran when the file was written, "" if no job ran then."""
        stages = self._stages_below(source)
        if not stages:
            return ""
        running = next((job for job in self._running.values() if job.source.key in stages), None)
        if running is not None:
            return self._name_of(running)
        spans = [self._ended[key] for key in stages if key in self._ended]
        return next((span.name for span in spans if span.began_ns - TICK_NS <= fact.mtime_ns <= span.ended_ns), "")

    def _stages_below(self, source: Source) -> dict[PathKey, None]:
        found: dict[PathKey, None] = {}
        todo = intermediates(source.jobs.values())
        while todo:
            key = todo.pop()
            if key not in found:
                found[key] = None
                stage = self._memory.view(key)
                todo += intermediates(stage.jobs.values()) if stage is not None else []
        return found

    def _name_of(self, job: Job) -> str:
        return f"'{job.source.rel}' ({self._builder_names[job.builder]})"
