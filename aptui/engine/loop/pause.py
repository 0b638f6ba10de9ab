"""The paused queue: only jobs and analyses that `run-next` requests start; running jobs continue, and files are read.

The supervisor (`live.supervisor`) remembers that a client asked for a pause, and pauses each engine that it opens. It also pauses
an engine before it closes that engine. `loop.dispatch` offers no slots during a pause.

Tests: `tests/engine/live/test_states.py`.
"""

from __future__ import annotations

from collections import deque


class QueuePause:
    """Whether the queue of one engine is paused, and which jobs may start during the pause."""

    def __init__(self) -> None:
        self._is_on = False
        self._next: deque[int] = deque()

    @property
    def is_on(self) -> bool:
        """Whether the queue is paused."""
        return self._is_on

    @is_on.setter
    def is_on(self, is_on: bool) -> None:
        self._is_on = is_on
        if not is_on:
            self._next.clear()  # a `run-next` is valid only for the pause in which the client requested it

    @property
    def lets_one_start(self) -> bool:
        """Whether a client requested the start of one more job."""
        return bool(self._next)

    def run_next(self, job_id: int) -> None:
        """Let one more job start: the job with this id if it is pending, otherwise the next pending job."""
        self._next.append(job_id)

    def take_next(self) -> int:
        """Return the job that may start during the pause; see `lets_one_start`."""
        return self._next.popleft()
