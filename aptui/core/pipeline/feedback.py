"""Feedback: a job writes the source that its own chain of jobs begins with, so that the chain would run for ever.

A job that writes its own source is found by its own run, which ends with another source than it began with. Where a later
stage writes the source of an earlier one, each run is right for itself. What shows is that every change of the source falls
into a run of its chain: one that is under way when the change is seen, or one that has ended and had begun before the file was
written. A batch hears of no change: at rest it compares the sources whose chains ran.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from aptui.core.model import FileFact, Job, PathKey, Source
from aptui.core.results.run_report import TICK_NS, Used
from aptui.core.state.chains import intermediates
from aptui.core.state.working_set import WorkingSet

_ENDED_MOST = 1000
_GAP_NS = 1_000_000_000
"""Runs of one source, on several platforms, that lie no further apart count as one.

The file may be seen after the last of them only.
"""


class _Span(Struct):
    """Runs of one intermediate: when they began and had ended, nanoseconds since the epoch, and who ran last, for people."""

    began_ns: int
    ended_ns: int
    name: str


class ChainFeedback:
    """Counts, for each source, the changes in a row that fell into runs of later stages of its chain.

    Args:
        builder_names: {builder UUID: its name}, for people.
        running: {run key: job} that is shared with the pipeline.
    """

    def __init__(self, memory: WorkingSet, builder_names: Mapping[bytes, str], running: Mapping[int, Job]) -> None:
        self._memory, self._builder_names, self._running = memory, builder_names, running
        self._ended: dict[PathKey, _Span] = {}
        self._counts: dict[PathKey, tuple[int, str]] = {}
        self._ran: dict[PathKey, None] = {}

    def run_ended(self, job: Job, used: Used, now_ms: int) -> None:
        """Note that a run of a job whose source is an intermediate ended, with any outcome."""
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

    def take_ran(self) -> list[PathKey]:
        """Return the intermediates that runs worked on since this was asked last."""
        ran, self._ran = list(self._ran), {}
        return ran

    def source_changed(self, source: Source, fact: FileFact) -> None:
        """The bytes of `source`, a file on disk that is `fact` now, are others than before."""
        writer = self._writer_of(source, fact)
        if writer:
            self._counts[source.key] = (self.count(source) + 1, writer)
        else:
            self._counts.pop(source.key, None)

    def count(self, source: Source) -> int:
        """Return how many changes in a row fell into runs of later stages of its chain."""
        return self._counts.get(source.key, (0, ""))[0]

    def writer(self, source: Source) -> str:
        """Return the job that ran when `source` changed last, for people."""
        return self._counts.get(source.key, (0, ""))[1]

    def _writer_of(self, source: Source, fact: FileFact) -> str:
        """Return the name of a job of a later stage that ran when the file was written, "" when none did."""
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
