"""When the next frame may leave: not before the terminal has shown the last one, or a slow line fills up with pictures of the past.

Behind each frame the terminal is asked where its cursor is; the answer says that everything before it arrived. A key may have a
second frame under way, for its echo shall not wait for somebody else's. A terminal that never answers is only waited for until it
has taken what was written. No clock here: times are handed in, and all methods may be called from any thread.

Tests: `tests/tui/output/test_pace.py`.
"""

from __future__ import annotations

import math
import threading
from collections import deque

ECHO_S = 0.25
"""So long after a key its echo is looked for."""
_PATIENCE_S, _MOST_PATIENCE_S = 2.0, 32.0
"""An answer that has not come by then is taken for lost: first, and after many."""
_MOST_UNANSWERED = 40
"""After so many questions a terminal that never answered is asked no more."""


class Pace:
    """Frames under way on one line."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: deque[float] = deque()
        self._asked, self._answered = 0, 0
        self._patience_s = _PATIENCE_S
        self._echo_until = -math.inf
        self.round_trip_s = 0.0
        """How long the last answer took."""

    @property
    def asks(self) -> bool:
        """Whether a frame shall be followed by the question."""
        return self._answered > 0 or self._asked < _MOST_UNANSWERED

    @property
    def answers(self) -> bool:
        """Whether the terminal has ever answered."""
        return self._answered > 0

    @property
    def under_way(self) -> int:
        """How many questions are open."""
        return len(self._under_way)

    def typed(self, now_s: float) -> None:
        """Note that somebody pressed a key."""
        self._echo_until = now_s + ECHO_S

    def sent(self, now_s: float) -> None:
        """Note that a frame with a question behind it left."""
        with self._lock:
            self._asked += 1
            self._under_way.append(now_s)

    def answered(self, now_s: float) -> None:
        """Note an answer."""
        with self._lock:
            self._answered += 1
            self._patience_s = _PATIENCE_S
            if self._under_way:
                self.round_trip_s = now_s - self._under_way.popleft()

    def wait_s(self, now_s: float) -> float:
        """Return how long the next frame has to wait at most, 0 = not at all; an answer may come first."""
        with self._lock:
            if not self._answered or len(self._under_way) < (2 if now_s < self._echo_until else 1):
                return 0.0
            lost_s = self._under_way[-1] + self._patience_s
            if now_s < lost_s:
                return lost_s - now_s
            self._under_way.clear()
            self._patience_s = min(self._patience_s * 2, _MOST_PATIENCE_S)
            return 0.0

    def forget(self) -> None:
        """Expect no answer any more: somebody else has the terminal."""
        with self._lock:
            self._under_way.clear()
