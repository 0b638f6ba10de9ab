"""The order in which ready jobs start: one tuple, compared left to right; jobs that need resources have lanes of their own."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator
from itertools import chain

from msgspec import Struct

from aptui.core.model import Job, JobState, PathKey
from aptui.core.project import Builder

# A run holds limited resources (`resources:` in the configuration) until it ends. `Resources` records how many of each exist, and
# which runs hold them.

Names = tuple[str, ...]


class ResourceUse(Struct, frozen=True):
    """Use of one resource. `holders` are names of jobs; `waiting_count` is the number of jobs that wait for the resource."""

    name: str
    limit: int
    holders: Names
    waiting_count: int


class Resources:
    """Record of the runs that hold resources. A run holds all resources of its builder from its start until its result arrives.

    A killed run may continue for a moment; its result comes after it has ended.

    Args:
        limits: (name of a resource, number of runs that may hold it at a time).
    """

    def __init__(self, limits: Iterable[tuple[str, int]], builders: Iterable[Builder]) -> None:
        self.limits = dict(limits)
        self._needs = {builder.uuid: builder.resources for builder in builders if builder.resources}
        self._holders: dict[str, dict[int, Job]] = {name: {} for name in self.limits}

    def needs(self, job: Job) -> Names:
        """Return the resources that a run of `job` holds; analyses hold none."""
        return () if job.is_analysis else self._needs.get(job.builder, ())

    def are_free(self, names: Names) -> bool:
        """Whether one more run may hold all of these resources together."""
        return all(len(self._holders[name]) < self.limits[name] for name in names)

    def acquire(self, job: Job) -> None:
        """Record that `job` starts and holds its resources."""
        for name in self.needs(job):
            self._holders[name][job.run_key] = job

    def release(self, run_key: int) -> None:
        """Record that the run with this key has ended and no longer holds resources."""
        for held in self._holders.values():
            held.pop(run_key, None)

    def holders(self, name: str) -> Names:
        """Return the jobs that hold this resource, in the order of their starts."""
        return tuple(job.label for job in self._holders[name].values())


Rank = tuple[bool, bool, int, bool, bool, bool, int, str, str, str]


_STALE_SHARE, _STALE_LEAST = 4, 1024
"""The heap is cleaned of stale entries when it has more than 1024 entries plus 4 times the number of queued jobs."""
_MAX_BOOSTED = 20_000


class Boosts:
    """Sources that editors and running games show; their jobs start before other jobs of the same urgency (`ReadyQueue.rank`).

    The boost of a source has the number of the last request for it; later requests never have lower numbers. The boost lasts until
    `expire` is called with its number or a higher number.
    """

    def __init__(self) -> None:
        self._numbers: dict[PathKey, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def of(self, key: PathKey) -> int:
        """Return the number of the last request that boosted a source, 0 = it has no boost."""
        return self._numbers.get(key, 0)

    def note(self, key: PathKey, number: int) -> bool:
        """Boost a source for request `number`, and return True.

        If a request with this or a higher number already boosts the source, nothing changes, and the method returns False. If
        there are too many boosts, the oldest boost ends.
        """
        if self._numbers.get(key, 0) >= number:
            return False
        self._numbers.pop(key, None)
        self._numbers[key] = number
        if len(self._numbers) > _MAX_BOOSTED:
            del self._numbers[next(iter(self._numbers))]
        return True

    def expire(self, number: int) -> list[PathKey]:
        """End the boosts of all requests up to `number`; return the sources that lost their boost."""
        ended = list(itertools.takewhile(lambda key: self._numbers[key] <= number, self._numbers))
        for key in ended:
            del self._numbers[key]
        return ended


class ReadyQueue:
    """Jobs in the state QUEUED, best first.

    If the rank of a job changes, the job gets a new entry in the heap. Its old entry is skipped when it reaches the top of the
    heap.

    Args:
        host_platform: platform of this machine; `rank` prefers its jobs to jobs of other platforms.
    """

    def __init__(self, host_platform: str) -> None:
        self._host_platform = host_platform
        self.interest = Boosts()
        self._heap: list[tuple[Rank, int, Job]] = []
        self._live: dict[Job, int] = {}
        self._serial = 0
        self.analysis_count = 0

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[Job]:
        return iter(self._live)

    def rank(self, job: Job) -> Rank:
        """Return the rank of `job`; lower ranks start first."""
        return (
            job.is_finishing,
            not job.is_critical,
            -job.escalation,
            not self.interest.of(job.source.key),
            job.misses_dependency,
            job.platform not in ("", self._host_platform),
            -job.priority,
            job.source.key,
            job.key,
            job.platform,
        )

    def push(self, job: Job) -> None:
        """Add `job`, or move a queued job to its new rank."""
        self.put(job, self.rank(job))

    def put_first(self, job: Job) -> None:
        """Make `job` the next job to start, whatever its rank."""
        self.put(job, (False, False, -(1 << 62), *self.rank(job)[3:]))

    def put(self, job: Job, rank: Rank) -> None:
        """Add `job` with this rank, or move a queued job to this rank."""
        self._serial += 1
        self.analysis_count += job.is_analysis and job not in self._live
        self._live[job] = self._serial
        heapq.heappush(self._heap, (rank, self._serial, job))
        if len(self._heap) > _STALE_SHARE * len(self._live) + _STALE_LEAST:
            self._heap = [entry for entry in self._heap if self._live.get(entry[2]) == entry[1]]
            heapq.heapify(self._heap)

    def discard(self, job: Job) -> None:
        """Remove `job` if it is queued."""
        if self._live.pop(job, None) is not None:
            self.analysis_count -= job.is_analysis

    def peek(self) -> Job | None:
        """Return the best job without removing it; None when empty."""
        while self._heap:
            _rank, serial, job = self._heap[0]
            if self._live.get(job) == serial and job.state is JobState.QUEUED:
                return job
            heapq.heappop(self._heap)
            if self._live.get(job) == serial:
                self.discard(job)
        return None

    def pop(self) -> Job | None:
        """Remove and return the best job; None when empty."""
        job = self.peek()
        if job is not None:
            self.discard(job)
        return job

    def head_rank(self) -> Rank:
        """Return the rank of the best job, which `peek` has just found."""
        return self._heap[0][0]


class LanedQueue(ReadyQueue):
    """A queue of jobs that need resources: a job whose resources are in use does not delay other jobs.

    Jobs that need the same resources are in one queue, their *lane*. The outer queue has the jobs that need no resources.
    """

    def __init__(self, host_platform: str, resources: Resources) -> None:
        super().__init__(host_platform)
        self._resources = resources
        self._lanes: dict[Names, ReadyQueue] = {}

    def __len__(self) -> int:
        return super().__len__() + sum(map(len, self._lanes.values()))

    def __iter__(self) -> Iterator[Job]:
        return chain(super().__iter__(), *self._lanes.values())

    def waiting_for(self, name: str) -> int:
        """Return the number of queued jobs that wait for this resource, and perhaps for others, too; 0 if the resource is free."""
        if self._resources.are_free((name,)):
            return 0
        return sum(len(lane) for names, lane in self._lanes.items() if name in names)

    def put(self, job: Job, rank: Rank) -> None:
        """Queue `job` with this rank in the lane of its resources; if it is queued already, change its rank."""
        lane = self._lane_of(job)
        super().put(job, rank) if lane is None else lane.put(job, rank)

    def discard(self, job: Job) -> None:
        """Remove `job` from its lane if it is queued."""
        lane = self._lane_of(job)
        super().discard(job) if lane is None else lane.discard(job)

    def peek(self) -> Job | None:
        """Return the best job that may start now, None if no job may start. The job stays in the queue."""
        best = super().peek()
        rank = self.head_rank() if best is not None else None
        for names, lane in self._lanes.items():
            job = lane.peek() if len(lane) and self._resources.are_free(names) else None
            if job is not None and (rank is None or lane.head_rank() < rank):
                best, rank = job, lane.head_rank()
        return best

    def _lane_of(self, job: Job) -> ReadyQueue | None:
        names = self._resources.needs(job)
        if not names:
            return None
        lane = self._lanes.get(names)
        if lane is None:
            lane = self._lanes[names] = ReadyQueue(self._host_platform)
            lane.interest = self.interest
        return lane
