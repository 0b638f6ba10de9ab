"""When the next frame may leave: not before the terminal has shown the last one, or a slow line fills up with pictures of the past.

Behind each frame the terminal is asked where its cursor is; the answer says that everything before it arrived. A key may have a
second frame under way, for its echo shall not wait for somebody else's. A terminal that never answers is only waited for until it
has taken what was written.

On a slow line that is not enough: a key would meet a frame of news on its way more often than not. How much longer than the
quickest answer the others took, for how many bytes, says what a frame costs; news are then drawn so seldom (`rest_s`) that the line
is free most of the time.

Between a key and the frame that echoes it no news are applied, and none are drawn (`key_s`): where the processor is slow that is
what a key would wait for.

No clock here: times are handed in, and all methods may be called from any thread.

Tests: `tests/tui/terminal/output/test_pace.py`, `tests/tui/terminal/output/test_slow_line.py`.
"""

from __future__ import annotations

import math
import threading
from collections import deque

ECHO_S = 0.25
"""So long after a key its echo is looked for."""
_CHECK_S = 0.02
"""So soon is looked again whether the echo has left."""
_ACTED_S = 1.0
"""So long after a key people wait for what it brings, and may press the next."""
_TIMEOUT_S, _LONGEST_TIMEOUT_S = 2.0, 32.0
"""An answer that has not come by then is taken for lost: first, and after many."""
_MOST_UNANSWERED = 40
"""After so many questions a terminal that never answered is asked no more."""
_SLOW_S = 0.02
"""A frame that fills the line for less than this is in nobody's way."""
_SHARE, _SHARE_AT_WORK = 10, 4
"""One part in so many of the time is the line to be full of news: while nobody does anything, and while somebody does."""
_LONGEST_REST_S = 1.0
_FORGETS = 1.002
"""The quickest answer counts for so much more with each one since: a line may become another."""
_LEAST_SEEN, _SAMPLED_FRAMES = 3, 8
"""So many frames say how slow a line is: the first ones bring the screen, and do not wait."""
_LONG_BYTES, _SAMPLED_LONG_FRAMES = 1500, 4
"""A shorter frame is late for other reasons than its bytes; so many longer ones say what bytes cost."""


class Pace:
    """Frames under way on one line."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: deque[tuple[float, int]] = deque()
        self._asked, self._answered = 0, 0
        self._timeout_s = _TIMEOUT_S
        self._quickest_s = math.inf
        self._seen: deque[tuple[float, int]] = deque(maxlen=_SAMPLED_FRAMES)
        self._long: deque[tuple[float, int]] = deque(maxlen=_SAMPLED_LONG_FRAMES)
        self._first_asked_s = math.inf
        self._left_s, self._left_bytes = -math.inf, 0
        self._drew_s = self._first_typed_s = -math.inf
        self.typed_s = -math.inf
        """When somebody last pressed a key."""
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

    def note_key(self, now_s: float) -> None:
        """Note that somebody pressed a key."""
        with self._lock:
            if self._first_typed_s <= self._drew_s:
                self._first_typed_s = now_s
            self.typed_s = now_s

    def drew(self, now_s: float) -> None:
        """Note that a frame leaves."""
        self._drew_s = now_s

    def key_s(self, now_s: float) -> float:
        """Return after how many seconds to look again whether a key was echoed, 0 = none waits for that.

        A key that draws nothing, such as `j` on the last row, holds news up for as long as an echo is looked for, once.
        """
        with self._lock:
            return _CHECK_S if self._drew_s < self._first_typed_s and now_s < self._first_typed_s + ECHO_S else 0.0

    def echoes(self, now_s: float) -> bool:
        """Whether what is drawn now may be what a key asked for."""
        return now_s < self.typed_s + ECHO_S

    def note_frame(self, now_s: float, size: int = 0) -> None:
        """Note that a frame of so many bytes, with a question behind it, left."""
        with self._lock:
            self._asked += 1
            self._first_asked_s = min(self._first_asked_s, now_s)
            self._under_way.append((now_s, size))
            self._left_s, self._left_bytes = now_s, size

    def note_answer(self, now_s: float) -> None:
        """Note an answer."""
        with self._lock:
            self._answered += 1
            self._timeout_s = _TIMEOUT_S
            if not self._under_way:
                return
            sent_s, size = self._under_way.popleft()
            self.round_trip_s = now_s - sent_s
            self._quickest_s = min(self._quickest_s * _FORGETS, self.round_trip_s)
            if size:
                self._seen.append((self.round_trip_s - self._quickest_s, size))
            if size >= _LONG_BYTES:
                self._long.append((self.round_trip_s, size))

    def wait_s(self, now_s: float) -> float:
        """Return how long the next frame has to wait at most, 0 = not at all; an answer may come first."""
        with self._lock:
            if not self._answered or len(self._under_way) < (2 if self.echoes(now_s) else 1):
                return 0.0
            lost_s = self._under_way[-1][0] + self._timeout_s
            if now_s < lost_s:
                return lost_s - now_s
            self._under_way.clear()
            self._timeout_s = min(self._timeout_s * 2, _LONGEST_TIMEOUT_S)
            return 0.0

    def rest_s(self, now_s: float) -> float:
        """Return how long news have to wait so that the line is free for keys, 0 = not at all."""
        with self._lock:
            if len(self._seen) < _LEAST_SEEN:
                return 0.0
            filled_s = self._left_bytes * sum(each for each, _ in self._seen) / sum(size for _, size in self._seen)
            if filled_s < _SLOW_S:
                return 0.0
            share = _SHARE_AT_WORK if now_s < self.typed_s + _ACTED_S else _SHARE
            return max(0.0, self._left_s + min(filled_s * share, _LONGEST_REST_S) - now_s)

    def takes_s(self, now_s: float, size: int) -> float | None:
        """Return for how long so many bytes would fill the line at least, None = nobody knows yet.

        Told by the quickest of the longer frames, against the quickest answer there was. What does not answer is taken for quick.
        """
        with self._lock:
            if self._long:
                return size * min(max(0.0, round_trip_s - self._quickest_s) / seen for round_trip_s, seen in self._long)
            is_silent = not self._answered and now_s - self._first_asked_s > _TIMEOUT_S
            return 0.0 if is_silent else None

    def forget(self) -> None:
        """Expect no answer any more: somebody else has the terminal."""
        with self._lock:
            self._under_way.clear()
            self._seen.clear()
            self._long.clear()
            self._quickest_s = self._first_asked_s = math.inf
