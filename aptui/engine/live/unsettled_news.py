"""Notices of jobs that are pending or running, sent a moment later: most of these jobs have ended by then, and need no notice.

There are two kinds of clients. For clients that want each step (the gateway's) the core makes a notice of each, and one that is
outdated here is never sent. For clients that draw now and then no notice is made in advance: the engine is asked for the
latest. How often notices are sent to the latter is `link.beat`'s business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aptui.core.notices import JobChanged, Notice

if TYPE_CHECKING:
    from aptui.engine.loop.engine import Engine

_UNSETTLED = frozenset({"pending", "processing"})
PUT_OFF_S = 0.05
"""Half of a client's frame: most jobs are over by then."""
_MANY, AMONG_MANY_S = 100, 0.25
"""While more jobs than these move, the engine is asked no sooner after the last time: each is looked at, told or not."""


class UnsettledNews:
    """What waits to be told.

    Args:
        clock: seconds of a monotonic clock.
        publish: tells clients.
    """

    def __init__(self, clock: Callable[[], float], publish: Callable[[Notice], None]) -> None:
        self._clock, self._publish = clock, publish
        self._waiting: dict[tuple[int, str, str], JobChanged] = {}
        self._asked_s = 0.0
        self.deadline: float | None = None
        """When (monotonic) `poll` tells what waits; None = nothing does."""

    def put_off(self, notice: Notice) -> bool:
        """Whether clients are notified of this later: that a job is pending or runs is no news of one that ends in a moment."""
        if not isinstance(notice, JobChanged):
            return False
        job = notice.job_id, notice.source, notice.job_key
        if notice.status not in _UNSETTLED:
            self._waiting.pop(job, None)
            return False
        if not self._waiting:
            self.deadline = self._clock() + PUT_OFF_S
        self._waiting[job] = notice
        return True

    def poll(self, now: float, engine: Engine | None) -> None:
        """Tell what is due, and ask the engine for the latest where it owes any."""
        if self.deadline is None and engine is not None and (count := engine.pipeline.moved_count):
            self.deadline = max(now + PUT_OFF_S, self._asked_s + AMONG_MANY_S if count > _MANY else 0.0)
        if self.deadline is None or now < self.deadline:
            return
        waiting, self._waiting, self.deadline, self._asked_s = self._waiting, {}, None, now
        for notice in (*waiting.values(), *(engine.latest() if engine is not None else ())):
            self._publish(notice)
