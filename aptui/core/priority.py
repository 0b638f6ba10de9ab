"""The order in which ready jobs start: one tuple, compared left to right."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

from aptui.core.model import Job, JobState

Rank = tuple[bool, int, bool, bool, bool, int, str, str, str]


class ReadyQueue:
    """Jobs that are QUEUED, best first. Stale entries are skipped when they surface, so re-ranking costs one push.

    Args:
        host_platform: runs before other platforms.
        is_connected: whether a client of this platform is connected.
    """

    def __init__(self, host_platform: str, is_connected: Callable[[str], bool] = lambda _platform: False) -> None:
        self._host_platform = host_platform
        self._is_connected = is_connected
        self._heap: list[tuple[Rank, int, Job]] = []
        self._live: dict[Job, int] = {}
        self._serial = 0
        self.analysis_count = 0

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[Job]:
        return iter(self._live)

    def rank(self, job: Job) -> Rank:
        """Return where `job` stands; lower starts first."""
        return (
            not job.is_critical,
            -job.escalation,
            job.misses_dependency,
            not self._is_connected(job.platform),
            job.platform not in ("", self._host_platform),
            -job.priority,
            job.source.key,
            job.key,
            job.platform,
        )

    def push(self, job: Job) -> None:
        """Add `job`, or move it to where it now belongs."""
        self._put(job, self.rank(job))

    def put_first(self, job: Job) -> None:
        """Let `job` be the next one, whatever its rank."""
        self._put(job, (False, -(1 << 62), *self.rank(job)[2:]))

    def _put(self, job: Job, rank: Rank) -> None:
        self._serial += 1
        self.analysis_count += job.is_analysis and job not in self._live
        self._live[job] = self._serial
        heapq.heappush(self._heap, (rank, self._serial, job))

    def discard(self, job: Job) -> None:
        """Forget `job` if it is here."""
        if self._live.pop(job, None) is not None:
            self.analysis_count -= job.is_analysis

    def peek(self) -> Job | None:
        """Return the best job without taking it; None when empty."""
        while self._heap:
            _rank, serial, job = self._heap[0]
            if self._live.get(job) == serial and job.state is JobState.QUEUED:
                return job
            heapq.heappop(self._heap)
            if self._live.get(job) == serial:
                self.discard(job)
        return None

    def pop(self) -> Job | None:
        """Take the best job; None when empty."""
        job = self.peek()
        if job is not None:
            heapq.heappop(self._heap)
            self.discard(job)
        return job
