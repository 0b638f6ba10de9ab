"""The pipeline: an event in, commands and notices out. It reads no clock, no file, and never waits.

A hint becomes a fact, a fact becomes an order, an order becomes a deed, a deed becomes a fact again. Each handler below moves jobs
through `machine.feed` and gathers in the `Ledger` what has to be done; `Graph` says what a job is made of, `Memory` holds what moves.

Handlers do not call each other in depth: what may have to be looked at again is put on `_todo` and looked at when the event itself has
been handled, so that a chain of ten thousand jobs needs no stack.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from aptui.core.machine import Trigger
from aptui.core.messages import (
    Asked,
    Command,
    DiscardStaging,
    Event,
    FilesHashed,
    FolderSeen,
    FoldersKept,
    KillRuns,
    Notice,
    ProductsCommitted,
    ProductsLost,
    RowsSaved,
    RunsFinished,
    ScanFinished,
    ScanStarted,
    SlotsFree,
)
from aptui.core.model import (
    SETTLED,
    Job,
    JobState,
    PathKey,
    Source,
)
from aptui.core.pipeline.files import Files
from aptui.core.pipeline.jobs import UNKNOWN
from aptui.core.pipeline.runs import Runs


class Pipeline(Files, Runs):
    """Everything that is decided. See the module's head.

    Args:
        project: the configuration as the core knows it.
        archive: what rests.
        log_name: where a job's log lies.
        staging: absolute folder in which every run gets a folder (or file) named by its run key.
    """

    def handle(self, event: Event) -> tuple[list[Command], list[Notice]]:
        """Take one fact; answer with what has to be done, in order, and the news."""
        self.ledger.cause = event.seq
        self.graph.forget_loose_ends()
        self._dispatch(event)
        self._look_at_identities()
        self._look_at_todo()
        self._end_chains()
        self._put_edges()
        ticket = self.ledger.ticket if self.ledger.rows else self.ledger.ticket - 1
        for source in self.ledger.touched:
            self.memory.leaves_after(source, ticket)
        self.ledger.touched.clear()
        if not self._committing:
            self.memory.let_go_of_loaded()
        if (self._rounds or self.chains.came) and self.is_idle:
            self._rounds.clear()
            self.chains.came.clear()
        self.ledger.flush_rows()
        return self.ledger.take()

    def _dispatch(self, event: Event) -> None:
        match event:
            case SlotsFree():
                self._start(event)
            case RunsFinished():
                self._runs_finished(event)
            case ProductsCommitted():
                self._products_committed(event)
            case RowsSaved():
                self.memory.acknowledge(event.ticket)
            case FilesHashed():
                self._files_hashed(event)
            case FolderSeen():
                self._folder_seen(event)
            case FoldersKept():
                self._folders_kept(event.folders)
            case ScanStarted():
                self._scan_started(event)
            case ScanFinished():
                self._scan_finished()
            case ProductsLost():
                self._products_lost(event.names)
            case Asked():
                self._asked(event)
            case _:
                assert_never(event)

    def _asked(self, event: Asked) -> None:
        if event.verb == "reprocess":
            for source in self.memory.load(self.chains.members(event.keys)):
                for job in source.jobs.values():
                    self._force(job, "asked for by a person")
            self._force_jobs(event.job_ids)
        elif event.verb == "cancel":
            self._cancel(event.job_ids)
        elif event.verb == "escalate":
            self._escalate(event)
        elif event.verb == "analyse":
            for job in [job for job in self.ready if job.is_analysis]:
                self._hurry(job, event.value)
        elif event.verb == "stop":
            self._stop()

    def _force_jobs(self, job_ids: Iterable[int]) -> None:
        wanted = set(job_ids)
        for source in self.memory.load(sorted(set(self.memory.archive.key_of_jobs(sorted(wanted)).values()))):
            for job in source.jobs.values():
                if job.id in wanted and not job.is_analysis:
                    self._force(job, "asked for by a person")

    def _escalate(self, event: Asked) -> None:
        """Raise the urgency of jobs that are owed a run, and of what their sources depend on; it only rises."""
        wanted, keys = set(event.job_ids), set(event.keys)
        named = []
        for source in self.memory.sources.values():
            jobs = [job for job in source.jobs.values() if source.key in keys or job.id in wanted]
            for job in jobs:
                self._hurry(job, event.value)
            if jobs:
                named.append(source)
        for source in self._needed_by(named):
            for job in source.jobs.values():
                self._hurry(job, event.value)

    def _hurry(self, job: Job, urgency: int) -> None:
        if job.state not in SETTLED and job.escalation < urgency:
            job.escalation = urgency
            self.ledger.touched[job.source] = None
            if job.state is JobState.QUEUED:
                self.ready.push(job)

    def _needed_by(self, sources: Iterable[Source]) -> list[Source]:
        """Return what these sources depend on, however far, as far as it moves; what rests needs no hurry."""
        moving = self.memory.sources
        todo, by_uuid = list(sources), {source.uuid.hex(): source for source in moving.values()} if self.memory.has_edges else {}
        found: dict[Source, None] = {}
        known = set(todo)
        while todo:
            for target in self.memory.targets(todo.pop()):
                needed = moving.get(PathKey(target)) or by_uuid.get(target)
                if needed is not None and needed not in known:
                    known.add(needed)
                    found[needed] = None
                    todo.append(needed)
        return list(found)

    def _cancel(self, job_ids: Iterable[int]) -> None:
        wanted = set(job_ids)
        for source in list(self.memory.sources.values()):
            for job in source.jobs.values():
                if job.id in wanted and job.state not in SETTLED and job.state is not None:
                    self._feed(job, Trigger.CANCEL)
                    job.is_forced = False
                    job.planned = job.planned or UNKNOWN
                    self._save(job)
                    self._settled(job, is_changed=True)

    def _stop(self) -> None:
        """Kill every run; what was running is owed again at the next start."""
        if self.running:
            self.ledger.order(KillRuns(self.ledger.cause, tuple(self.running)))
            self.ledger.order(DiscardStaging(self.ledger.cause, tuple(self.running)))
            self.running.clear()
