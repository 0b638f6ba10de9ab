"""What goes wrong with a store is said once, not for each of a thousand jobs.

Tests: `tests/sharing/test_service.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from aptui.shared.errors import KnownError
from aptui.sharing.store import Mismatch

_MOST = 200


class TroubleReporter:
    """Passes on what it has not said before; any thread may speak, and `say` is called by it."""

    def __init__(self, say: Callable[[str], None] | None = None) -> None:
        self._say = say or (lambda _text: None)
        self._reported: set[str] = set()
        self._lock = threading.Lock()

    def report(self, key: str, text: str) -> None:
        """Say `text` unless something was said for `key` before, or very much was said already."""
        with self._lock:
            if key in self._reported or len(self._reported) >= _MOST:
                return
            self._reported.add(key)
        self._say(text)

    def about(self, error: BaseException) -> None:
        """Say what went wrong: each lie of a store, but of other trouble each kind once."""
        where = error.where if isinstance(error, KnownError) else ""
        key = str(error) if isinstance(error, Mismatch) else f"{type(error).__name__} {where}"
        self.report(key, f"shared cache: {error or type(error).__name__}")
