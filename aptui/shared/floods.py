"""Limits log records that clients can cause: writes a maximum number of records of each kind, and only counts further records."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from aptui.shared import printing

if TYPE_CHECKING:
    import asyncio

LIMIT, SPAN_S = 10, 60.0
KINDS_LIMIT = 256
"""Maximum number of kinds of records that are counted separately. Clients can invent kinds, so all further kinds count as one."""
_OTHERS = "others"


class _Kind(Struct):
    began_s: float
    count: int = 0
    held_back: int = 0


class FloodGate:
    """Admits `LIMIT` records of a kind in `SPAN_S` seconds."""

    def __init__(self) -> None:
        self._kinds: dict[str, _Kind] = {}

    def admit(self, kind: str, now: float) -> bool:
        """Return whether a record of this kind may be written; `now` is in seconds of a monotonic clock."""
        name = kind if kind in self._kinds or len(self._kinds) < KINDS_LIMIT else _OTHERS
        found = self._kinds.setdefault(name, _Kind(now))
        if found.count < LIMIT:
            found.count += 1
            return True
        found.held_back += 1
        return False

    def spans_over(self, now: float) -> list[tuple[str, int]]:
        """End the spans whose time is over; return (kind, number of suppressed records) for each span that suppressed records."""
        over = [name for name, kind in self._kinds.items() if now >= kind.began_s + SPAN_S]
        ended = [(name, self._kinds.pop(name).held_back) for name in over]
        return [(name, count) for name, count in ended if count]


def more_like_this(count: int) -> str:
    """Return the text that reports the number of suppressed records."""
    return f"{count:,} more like this"


class ErrorReports:
    """Prints to stderr the errors that clients can cause: at most ten of a kind per minute, and the number of suppressed ones."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._gate, self._clock = FloodGate(), clock

    def admits(self, kind: str) -> bool:
        """Return whether an error of this kind may be printed now; print the numbers of suppressed reports whose minute is over."""
        now = self._clock()
        for name, count in self._gate.spans_over(now):
            printing.complain(f"{name}: {more_like_this(count)}")
        return self._gate.admit(kind, now)

    def handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle exceptions of an event loop (`loop.set_exception_handler`)."""
        error = context.get("exception")
        if self.admits(type(error).__name__ if error is not None else str(context.get("message"))):
            loop.default_exception_handler(context)
