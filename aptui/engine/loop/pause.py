"""The paused queue: no job and no analysis starts but what `run-next` names; what runs goes on, and files are read.

`requests.handler` pauses it for clients; the supervisor pauses an engine that winds down, too.

Tests: `tests/engine/requests/test_handler.py`.
"""

from __future__ import annotations

from collections import deque


class QueuePause:
    """Whether the queue of one engine is paused, and what starts all the same."""

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
            self._next.clear()  # `run-next` was for this pause, not for the next one

    @property
    def lets_one_start(self) -> bool:
        """Whether a client asked for one job more."""
        return bool(self._next)

    def run_next(self, job_id: int) -> None:
        """Let one job more start, the one with this id if it is pending."""
        self._next.append(job_id)

    def take_next(self) -> int:
        """Return the job that starts all the same, which `lets_one_start` says there is."""
        return self._next.popleft()
