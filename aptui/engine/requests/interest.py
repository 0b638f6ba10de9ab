"""What editors and running games look at (`port.NoteInterest`): passed on with a time, and forgotten after a while.

The pipeline reads no clock, so looks are numbered here by seconds.

Tests: `tests/engine/requests/test_interest.py`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from aptui.core.model import PathKey
from aptui.link import port
from aptui.shared.errors import KnownError, UserError

if TYPE_CHECKING:
    from aptui.engine.live.supervisor import EngineSupervisor
    from aptui.link.port import Request

TIME_CONSTANT_S = 30.0
LASTS_S = 3 * TIME_CONSTANT_S
"""After three time constants five hundredths of an interest are left: then it is none."""


class InterestRequests:
    """Takes looks; `clock` counts seconds."""

    def __init__(self, live: EngineSupervisor, clock: Callable[[], float] = time.monotonic) -> None:
        self._live, self._clock = live, clock
        self._start = clock()
        self._numbers: deque[int] = deque()
        live.parts.append(self)

    def take(self, request: Request, verb: port.NoteInterest) -> None:
        """Pass looks on.

        Raises:
            KnownError: they are too many, or there is no engine just now.
        """
        engine = self._live.engine
        if engine is None:
            raise KnownError("the engine is not working", hint="'aptui status' says why")
        if len(verb.keys) > port.MOST_INTERESTING:
            most = f"name {port.MOST_INTERESTING:,} at most"
            raise UserError(f"{len(verb.keys):,} sources are too many to look at at once", hint=most)
        keys = tuple(dict.fromkeys(PathKey(key.lower()) for key in verb.keys))
        number = 1 + int(self._clock() - self._start)
        if not self._numbers or self._numbers[-1] < number:
            self._numbers.append(number)
        engine.ask("interest", keys=keys, value=number)
        request.answer(count=len(keys))

    def next_deadline(self, now: float) -> float | None:
        """Return when the oldest look is to be forgotten."""
        return max(now, self._start + self._numbers[0] + LASTS_S) if self._numbers else None

    def poll(self, now: float) -> None:
        """Forget what is too old."""
        gone = 0
        while self._numbers and now >= self._start + self._numbers[0] + LASTS_S:
            gone = self._numbers.popleft()
        if gone and self._live.engine is not None:
            self._live.engine.ask("fade", value=gone)
