"""Admission of jobs to the pool: decides whether a job may start.

All running jobs must fit into memory together. A job that was killed for lack of memory runs alone until it has succeeded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from aptui.core.orders import ProcessOrder, RunResult
from aptui.engine.pool.worker_messages import Identity, Order, PoolMessage, builder_of, identity_of

# The memory budget: how much memory builders use, and whether one more run fits beside the running ones.
#
# The use of a builder is the highest peak of its runs (the high-water mark), which falls slowly when later runs use less. A run
# fits if its expected use, plus the expected further use of the current runs, is less than the free memory of the machine and of
# this process's cgroup.

GUESS_BYTES = 128 << 20
"""Assumed memory use of a builder before its first run."""
FADE = 32
"""Each run that uses less memory than the high-water mark lowers the mark by this fraction of the difference (1/32)."""
SAMPLE_S = 0.1
"""Time (seconds) after which the free memory of the machine is measured again.

The whole expected memory of a run that started since the last measurement counts as used.
"""
_RESERVE_SHARE = 16
_LEAST_RESERVE_BYTES, _MOST_RESERVE_BYTES = 64 << 20, 1 << 30
_CGROUPS = "/sys/fs/cgroup"


class MemoryBudget:
    """Memory use of builders, and available memory.

    Args:
        budget_bytes: memory limit for all runs together; 0 = the free memory of the machine, which is measured regularly.
        clock: seconds of a monotonic clock.
        learned: {builder: bytes} of an earlier session.
        available: returns how much memory is free, in bytes.
        taken: returns how much a process and its children use, in bytes.
    """

    def __init__(
        self,
        budget_bytes: int,
        clock: Callable[[], float],
        learned: Mapping[str, int] | None = None,
        available: Callable[[], int] | None = None,
        taken: Callable[[int], int] | None = None,
    ) -> None:
        self._budget_bytes, self._clock = budget_bytes, clock
        self._available, self._taken = available or available_bytes, taken or family_bytes
        self.learned: dict[str, int] = dict(learned or {})
        self._sampled_s = float("-inf")
        self._left_bytes = 0
        self._taken_bytes: dict[int, int] | None = None

    def note_peak(self, builder: str, peak_bytes: int) -> None:
        """Record the peak memory use of a run; 0 = unknown."""
        if peak_bytes <= 0:
            return
        known = self.learned.get(builder, 0)
        self.learned[builder] = peak_bytes if peak_bytes >= known else known - (known - peak_bytes) // FADE

    def note_death(self, builder: str) -> None:
        """Note a run that ended for lack of memory: it needed more memory than expected, but the amount is unknown."""
        expected = self.estimate_bytes(builder)
        self.learned[builder] = max(expected, min(2 * expected, self._budget_bytes or self._available()))

    def estimate_bytes(self, builder: str, limit_bytes: int = 0) -> int:
        """Return the expected memory of a run of `builder`, within its limit."""
        bytes_ = self.learned.get(builder, GUESS_BYTES)
        return min(bytes_, limit_bytes) if limit_bytes > 0 else bytes_

    def fits(self, need_bytes: int, at_work: Iterable[tuple[int, int]]) -> bool:
        """Return whether a run fits into memory beside the current runs. Each current run is (pid, expected bytes)."""
        runs = list(at_work)
        expected_bytes = need_bytes + sum(expected for _, expected in runs)
        if self._budget_bytes:
            return expected_bytes <= self._budget_bytes
        if self._clock() - self._sampled_s >= SAMPLE_S:
            self._sampled_s, self._left_bytes, self._taken_bytes = self._clock(), self._available(), None
        if expected_bytes <= self._left_bytes:
            return True
        if self._taken_bytes is None:  # memory that current runs already use must not be counted twice
            self._taken_bytes = {pid: self._taken(pid) for pid, _ in runs}
        expected_bytes = need_bytes + sum(max(0, expected - self._taken_bytes.get(pid, 0)) for pid, expected in runs)
        return expected_bytes <= self._left_bytes


# ------------------------------------------------------------------------------------------------------------- the machine


def available_bytes(proc: str = "/proc", cgroups: str = _CGROUPS) -> int:
    """Return the memory (bytes) that is available to runs on this machine and in this process's cgroup.

    This is `MemAvailable` of the kernel, or less if a cgroup (v2) allows less.
    """
    info = _fields(f"{proc}/meminfo")
    total, left = info.get("MemTotal:", 0) * 1024, info.get("MemAvailable:", 1 << 40) * 1024
    for limit_bytes, left_bytes in _cgroup_limits(proc, cgroups):
        total, left = min(total or limit_bytes, limit_bytes), min(left, left_bytes)
    return left - min(max(total // _RESERVE_SHARE, _LEAST_RESERVE_BYTES), _MOST_RESERVE_BYTES)


def _cgroup_limits(proc: str, cgroups: str) -> Iterable[tuple[int, int]]:
    """Yield (limit, unused bytes) of this process's cgroup and of each cgroup above it."""
    group = next((line[3:] for line in _read(f"{proc}/self/cgroup").splitlines() if line.startswith("0::")), "")
    while group:
        folder = f"{cgroups}{group.rstrip('/')}"
        limit, current = _read(f"{folder}/memory.max").strip(), _read(f"{folder}/memory.current").strip()
        if limit.isdigit() and current.isdigit():
            # Inactive file pages are available: the kernel frees them before it kills a process.
            cached = _fields(f"{folder}/memory.stat").get("inactive_file", 0)
            yield int(limit), int(limit) - int(current) + cached
        group = "" if group == "/" else os.path.dirname(group)


def _fields(path: str) -> dict[str, int]:
    return {words[0]: int(words[1]) for line in _read(path).splitlines() if len(words := line.split()) > 1 and words[1].isdigit()}


def resident_bytes(pid: int) -> int:
    """Return the memory use (bytes) of a process, 0 if it has ended."""
    words = _read(f"/proc/{pid}/statm").split()
    return int(words[1]) * os.sysconf("SC_PAGE_SIZE") if len(words) > 1 else 0


def family_bytes(pid: int) -> int:
    """Return the memory use (bytes) of a process and its descendants, because commands are children of workers."""
    bytes_ = resident_bytes(pid)
    for child in _read(f"/proc/{pid}/task/{pid}/children").split():
        bytes_ += family_bytes(int(child))
    return bytes_


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


MAX_FAILURES = 3
_MAX_LONELY = 10_000


class JobAdmission:
    """Decides whether a job may begin, and learns from the results of runs.

    It records the builders that killed their workers and are broken for this reason, and the jobs that have to run alone.
    """

    def __init__(self, memory: MemoryBudget) -> None:
        self._memory = memory
        self._failures: dict[str, tuple[int, str]] = {}
        self._answered: set[str] = set()
        self.lonely: dict[Identity, None] = {}
        """The jobs that ran out of memory and have to run alone."""

    def may_run(self, message: PoolMessage, jobs: Iterable[tuple[int, PoolMessage]]) -> bool:
        """Whether a job may run beside the current jobs.

        Any job may run when no other job runs, so that each job runs at some time.

        Args:
            jobs: (process id, job) of each worker that runs a job.
        """
        others = list(jobs)
        if not others:
            return True
        if message.is_alone or any(job.is_alone for _, job in others):
            return False
        return self._memory.fits(self._need_bytes(message), [(pid, self._need_bytes(job)) for pid, job in others])

    def _need_bytes(self, message: PoolMessage) -> int:
        wanted = {(order.builder, order.memory_limit_bytes) for order in message.orders if isinstance(order, ProcessOrder)}
        return max((self._memory.estimate_bytes(*one) for one in wanted), default=0)

    def note_peak(self, order: Order, result: RunResult) -> None:
        """Record the peak memory use of a run."""
        self._memory.note_peak(builder_of(order), result.peak_rss_bytes)

    def isolate(self, order: Order) -> bool:
        """From now on, run a job only while no other job runs, because another process killed it.

        Return True the first time. The job then runs again.
        """
        identity = identity_of(order)
        if identity is None or identity in self.lonely:
            return False
        if len(self.lonely) >= _MAX_LONELY:
            del self.lonely[next(iter(self.lonely))]
        self.lonely[identity] = None
        self._memory.note_death(builder_of(order))
        return True

    def release(self, order: Order) -> None:
        """Record that a run of a job ended and was not killed. From now on, other jobs may run at the same time."""
        if (identity := identity_of(order)) is not None:
            self.lonely.pop(identity, None)

    def note_answer(self, builder: str) -> None:
        """Record that a builder has answered an order. From now on, it does not count as broken, until `let_off` is called."""
        self._answered.add(builder)
        self._failures.pop(builder, None)

    def note_death(self, builder: str, reason: str) -> None:
        """Record that a worker died while it ran a builder. The call has no effect if the builder has answered an order before."""
        if builder not in self._answered:
            self._failures[builder] = (self._failures.get(builder, (0, ""))[0] + 1, reason)

    def list_broken(self) -> dict[str, str]:
        """Return {builder: reason} of the builders that are broken and get no worker."""
        return {name: reason for name, (count, reason) in self._failures.items() if count >= MAX_FAILURES}

    def refusal(self, builder: str) -> str:
        """Return why a builder may not get a worker, "" if it may."""
        count, reason = self._failures.get(builder, (0, ""))
        return (
            f"the worker of builder {builder!r} died three times before it gave a result: {reason}" if count >= MAX_FAILURES else ""
        )

    def let_off(self) -> None:
        """Clear the records of all builders, because their code may have changed."""
        self._failures.clear()
        self._answered.clear()
