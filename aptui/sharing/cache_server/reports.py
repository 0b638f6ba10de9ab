"""Reports errors that outsiders can cause on standard error, at a bounded rate, so that they cannot fill a disk.

Tests: `tests/serve/access/test_guard.py`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any

from aptui.shared.floods import FloodGate, more_like_this


class ErrorReports:
    """What may be told: of each kind ten in a minute, then how many more there were."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._gate, self._clock = FloodGate(), clock

    def admits(self, kind: str) -> bool:
        """Return whether an error of this kind is told now; those held back before are counted first."""
        now = self._clock()
        for name, count in self._gate.spans_over(now):
            print(f"{name}: {more_like_this(count)}", file=sys.stderr, flush=True)
        return self._gate.admit(kind, now)

    def handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Be the exception handler of a loop."""
        error = context.get("exception")
        if self.admits(type(error).__name__ if error is not None else str(context.get("message"))):
            loop.default_exception_handler(context)
