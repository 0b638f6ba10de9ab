"""Work in a thread that is done once more if it is requested again before its end.

Tests: `tests/engine/cache/test_catalog.py`, `tests/features/o3de/test_o3de_cache.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator


class RepeatedWork:
    """Work that a thread does in rounds: a request starts the thread, or another round of the thread that is running."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._is_requested, self._lock = threading.Event(), threading.Lock()
        self._thread: threading.Thread | None = None
        """Protected by `_lock`, so that a request does not go to a thread that ends."""

    def request(self, rounds: Iterator[None]) -> None:
        """Do a round in a thread. Each step of `rounds` is one round; a thread that is running continues with its own rounds."""
        with self._lock:
            self._is_requested.set()
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, args=(rounds,), name=self._name, daemon=True)
                self._thread.start()

    def withdraw(self) -> bool:
        """Forget the requests for which no round has begun; return whether there were any."""
        was_requested = self._is_requested.is_set()
        self._is_requested.clear()
        return was_requested

    def join(self) -> None:
        """Wait until the thread has ended."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def _work(self, rounds: Iterator[None]) -> None:
        while True:
            self._is_requested.clear()
            next(rounds)
            with self._lock:
                if not self._is_requested.is_set():
                    self._thread = None
                    return
