"""How long something took that several did at once: together they count each moment once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


class Stopwatch:
    """A clock that goes the more slowly the more are at work, so that what all of them took adds up to the time that went by.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._at_s, self._shown_s, self._count = clock, clock(), 0.0, 0
        self._lock = threading.Lock()

    def now(self) -> float:
        """Return what the clock shows, in seconds."""
        with self._lock:
            self._go_on()
            return self._shown_s

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Be one more who is at work."""
        self._add(1)
        try:
            yield
        finally:
            self._add(-1)

    def _add(self, count: int) -> None:
        with self._lock:
            self._go_on()
            self._count += count

    def _go_on(self) -> None:
        now_s = self._clock()
        self._shown_s += (now_s - self._at_s) / max(self._count, 1)
        self._at_s = now_s
