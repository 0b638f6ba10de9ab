"""A circuit breaker for a store: after some failures in a row it rests a while, is tried once, and closes again on success."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

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
