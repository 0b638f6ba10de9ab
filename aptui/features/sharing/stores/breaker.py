"""A circuit breaker for a store: after some failures in a row it rests a while, is tried once, and closes again on success."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

# Calls that may hang, and callers that do not: a few threads make the calls, and a caller waits no longer than its deadline.
#
# A thread that hangs (a network share that is gone holds a system call for ever) is given up: its answer is thrown away when it
# comes. The threads do not keep the process alive.

T = TypeVar("T")


class TooSlow(Exception):
    """No answer in time; what was asked may still go on."""


class DeadlineAnswer(Generic[T]):
    """What will come of a call."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._done = threading.Event()
        self._is_given_up = False
        self._value: T | None = None
        self._error: BaseException | None = None

    def wait(self, limit_s: float) -> T:
        """Return what the call returned, or raise what it raised.

        Raises:
            TooSlow: it did not end within `limit_s`; if it has not begun, it never will.
        """
        if not self._done.wait(max(limit_s, 0.0)):
            self._is_given_up = True
            raise TooSlow
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # set whenever there is no error

    def run(self) -> None:
        """Do the call, unless nobody waits any more."""
        if self._is_given_up:
            return
        try:
            self._value = self._call()
        except BaseException as error:  # noqa: BLE001  # it is raised again where somebody waits for it
            self._error = error
        self._done.set()


class DeadlineExecutor:
    """At most `count` threads, made when they are needed, that do calls in the order they are given."""

    def __init__(self, name: str, count: int) -> None:
        self._name, self._count = name, count
        self._calls: queue.SimpleQueue[DeadlineAnswer[object] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._started = 0
        self._idle = 0

    def ask(self, call: Callable[[], T]) -> DeadlineAnswer[T]:
        """Have a call done."""
        answer = DeadlineAnswer(call)
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
            elif self._started < self._count:
                self._started += 1
                threading.Thread(target=self._work, name=f"{self._name}-{self._started}", daemon=True).start()
        self._calls.put(answer)  # type: ignore[arg-type]  # whatever it returns
        return answer

    def close(self) -> None:
        """Let the threads end when they have nothing left to do."""
        with self._lock:
            for _ in range(self._started):
                self._calls.put(None)

    def _work(self) -> None:
        while (answer := self._calls.get()) is not None:
            answer.run()
            with self._lock:
                self._idle += 1


FAILURES = 5
_FIRST_REST_S = 30.0
_LONGEST_REST_S = 600.0


class Breaker:
    """A circuit breaker; several threads may use it.

    Args:
        failures: how many in a row open it.
        rest_s: how long nobody asks then; each failure after a rest doubles it, to ten minutes at most.
    """

    def __init__(
        self, failures: int = FAILURES, rest_s: float = _FIRST_REST_S, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit, self._first_rest_s, self._clock = failures, rest_s, clock
        self._rest_s = rest_s
        self._failures = 0
        self._until = 0.0
        self._is_probed = False
        self._lock = threading.Lock()

    @property
    def is_open(self) -> bool:
        """Whether nobody should ask now."""
        with self._lock:
            return self._failures >= self._limit and (self._is_probed or self._clock() < self._until)

    def allows(self) -> bool:
        """Return whether the store may be asked now; after a rest one may, and says how it went, before others do."""
        with self._lock:
            if self._failures < self._limit:
                return True
            if self._is_probed or self._clock() < self._until:
                return False
            self._is_probed = True
            return True

    def note_success(self) -> None:
        """The store answered, be it that it has nothing."""
        with self._lock:
            self._failures, self._is_probed, self._rest_s = 0, False, self._first_rest_s

    def open_now(self) -> None:
        """Leave the store alone at once: it said something that will not change soon."""
        with self._lock:
            self._failures, self._is_probed = max(self._failures, self._limit), False
            self._until = self._clock() + self._rest_s

    def note_failure(self) -> bool:
        """The store did not answer, or not in time; return whether that opened the breaker."""
        with self._lock:
            was_probed, self._is_probed = self._is_probed, False
            self._failures += 1
            if self._failures < self._limit:
                return False
            if was_probed:
                self._rest_s = min(self._rest_s * 2, _LONGEST_REST_S)
            self._until = self._clock() + self._rest_s
            return was_probed or self._failures == self._limit
