"""A circuit breaker for a store, and calls with a deadline.

After some failures the breaker opens for a while, so that the store is not called; then it admits one attempt.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

# Calls with a deadline. A few threads make the calls, and a caller waits at most until its deadline. An unreachable network share
# may block a system call forever. So a thread that is blocked is abandoned, and its later answer is dropped. The threads do not
# keep the process alive.

T = TypeVar("T")


class TooSlow(Exception):
    """The deadline has passed; the call may still run."""


class DeadlineExecutor:
    """Runs calls in order in at most `count` threads, which start on demand."""

    def __init__(self, name: str, count: int) -> None:
        self._name, self._count = name, count
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._started = 0
        self._idle = 0

    def wait(self, call: Callable[[], T], limit_s: float) -> T:
        """Run a call and return its result, or raise its error.

        Raises:
            TooSlow: the call did not end within `limit_s`. A call that has not started yet is cancelled.
        """
        answer = self.submit(call)
        wait([answer], max(limit_s, 0.0))
        if answer.done():
            return answer.result()
        answer.cancel()
        raise TooSlow

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Queue a call, and return a future that gets the call's result."""
        answer: Future[T] = Future()
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
            elif self._started < self._count:
                self._started += 1
                threading.Thread(target=self._work, name=f"{self._name}-{self._started}", daemon=True).start()
        self._calls.put((answer, call))
        return answer

    def close(self) -> None:
        """End the threads after all queued calls have run."""
        with self._lock:
            for _ in range(self._started):
                self._calls.put(None)

    def _work(self) -> None:
        while (task := self._calls.get()) is not None:
            answer, call = task
            if answer.set_running_or_notify_cancel():
                try:
                    answer.set_result(call())
                except BaseException as error:  # noqa: BLE001  # raised again in the caller
                    answer.set_exception(error)
            with self._lock:
                self._idle += 1


FAILURES = 5
"""Number of consecutive failures that opens a circuit breaker."""
_FIRST_REST_S = 30.0
_LONGEST_REST_S = 600.0
"""First and longest pause (seconds) for which an open circuit breaker refuses calls."""


class Breaker:
    """A circuit breaker; any thread may use it. If the attempt after a pause fails, the next pause is twice as long."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._rest_s = _FIRST_REST_S
        self._failures = 0
        self._until = 0.0
        self._is_probed = False
        self._lock = threading.Lock()

    @property
    def is_open(self) -> bool:
        """Whether the circuit breaker is open. While it is open, the store must not be called."""
        with self._lock:
            return self._failures >= FAILURES and (self._is_probed or self._clock() < self._until)

    def allows(self) -> bool:
        """Return whether the store may be called now. After the pause, only one call is allowed until its result is known."""
        with self._lock:
            if self._failures < FAILURES:
                return True
            if self._is_probed or self._clock() < self._until:
                return False
            self._is_probed = True
            return True

    def note_success(self) -> None:
        """Note that the store has answered; the answer that a result does not exist counts, too."""
        with self._lock:
            self._failures, self._is_probed, self._rest_s = 0, False, _FIRST_REST_S

    def open_now(self) -> None:
        """Open the breaker at once, because the store's error is permanent."""
        with self._lock:
            self._failures, self._is_probed = max(self._failures, FAILURES), False
            self._until = self._clock() + self._rest_s

    def note_failure(self) -> bool:
        """Note a failed or slow call; return whether this call opened the breaker."""
        with self._lock:
            was_probed, self._is_probed = self._is_probed, False
            self._failures += 1
            if self._failures < FAILURES:
                return False
            if was_probed:
                self._rest_s = min(self._rest_s * 2, _LONGEST_REST_S)
            self._until = self._clock() + self._rest_s
            return was_probed or self._failures == FAILURES
