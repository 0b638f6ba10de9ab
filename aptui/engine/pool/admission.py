"""Which job may run beside which: all together must fit into memory, and one that was killed for want of it runs alone.

What builders take is learned in `pool.memory_budget`; killed runs are counted in `pool.failures`.
"""

from __future__ import annotations

from collections.abc import Iterable

from aptui.core.orders import ProcessOrder, RunResult
from aptui.engine.pool.failures import FailureTracker
from aptui.engine.pool.memory_budget import MemoryBudget
from aptui.engine.pool.messages import Order, PoolMessage, builder_of, identity_of


class JobAdmission:
    """Says whether a job may begin, and learns from how runs end."""

    def __init__(self, memory: MemoryBudget, failures: FailureTracker) -> None:
        self._memory, self._failures = memory, failures

    def may_run(self, message: PoolMessage, jobs: Iterable[tuple[int, PoolMessage]]) -> bool:
        """Whether a job may run beside those at work.

        Any job may run when no other does, so that all come to an end.

        Args:
            jobs: (process id, job) of each that is at work.
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

    def learn(self, order: Order, result: RunResult) -> None:
        """Take note of what a run took at most."""
        self._memory.learn(builder_of(order), result.peak_rss_bytes)

    def isolate(self, order: Order) -> bool:
        """Note that a job was killed by a foreign signal; return whether it is the first time: it gets another try, alone."""
        is_new = self._failures.isolate(identity_of(order))
        if is_new:
            self._memory.learn_death(builder_of(order))
        return is_new

    def release(self, order: Order) -> None:
        """A job came through: it may run beside others again."""
        self._failures.release(identity_of(order))
