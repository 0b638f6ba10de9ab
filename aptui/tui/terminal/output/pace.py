"""Decides when the next frame may be sent: after the terminal has shown the last frame.

If frames were sent earlier, they would queue up on a slow connection, and the user would see old frames.

Each frame is followed by a query for the cursor; its reply proves that the frame arrived. After a key a second frame may be under
way, so that the echo does not wait for an earlier frame. A terminal that never replies only has to accept the output.

On a slow connection this is not enough: a key would usually wait for an update. So updates are drawn so rarely (`rest_s`) that the
connection is mostly free. The time that a byte takes is measured: the delay of a reply compared with the quickest reply, divided by
the number of bytes of its frame.

Between a key and the frame that echoes the key, no update is applied or drawn (`key_s`): on a slow processor the key would wait for
the update.

Times are passed in; there is no clock here. All methods are thread-safe.

Tests: `tests/tui/terminal/output/test_pace.py`, `tests/tui/terminal/output/test_slow_line.py`.
"""

from __future__ import annotations

import math
import threading
from collections import deque

ECHO_S = 0.25
"""Maximum time between a key and the frame that echoes it (seconds)."""
_CHECK_S = 0.02
"""Interval of checks whether the echo was sent (seconds)."""
_ACTED_S = 1.0
"""Time after a key during which the user counts as active (seconds)."""
_TIMEOUT_S, _LONGEST_TIMEOUT_S = 2.0, 32.0
"""Timeouts of a reply (seconds): the first timeout, and the longest one after repeated timeouts."""
_MOST_UNANSWERED = 40
"""Number of unanswered queries after which a terminal that never replied is not queried again."""
_SLOW_S = 0.02
"""A frame that fills the connection for less than this time does not delay keys (seconds)."""
_SHARE, _SHARE_AT_WORK = 10, 4
"""Maximum share of the connection's time for updates: 1/10 while the user is idle, 1/4 while the user is active."""
_LONGEST_REST_S = 1.0
_FORGETS = 1.002
"""Factor by which the stored quickest round trip grows with each reply, because the speed of a connection may change."""
_LEAST_SEEN, _SAMPLED_FRAMES = 3, 8
"""Minimum number of frames for a measurement, and number of frames that it uses.

The first frames, which bring the screen, are sent without a wait.
"""
_LONG_BYTES, _SAMPLED_LONG_FRAMES = 1500, 4
"""Minimum size of a frame that measures the cost of bytes (shorter frames are late for other reasons); number of frames kept."""


class Pace:
    """The frames that are under way to one terminal, and the measured speed of the connection."""

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
        """Time of the last key (seconds)."""
        self.round_trip_s = 0.0
        """Round trip of the last reply (seconds)."""

    @property
    def asks(self) -> bool:
        """Whether the next frame must be followed by a query."""
        return self._answered > 0 or self._asked < _MOST_UNANSWERED

    @property
    def answers(self) -> bool:
        """Whether the terminal has ever replied."""
        return self._answered > 0

    @property
    def under_way(self) -> int:
        """Number of queries that were not answered."""
        return len(self._under_way)

    def note_key(self, now_s: float) -> None:
        """Note that a key was pressed."""
        with self._lock:
            if self._first_typed_s <= self._drew_s:
                self._first_typed_s = now_s
            self.typed_s = now_s

    def drew(self, now_s: float) -> None:
        """Note that a frame was sent that may echo the key."""
        self._drew_s = now_s

    def key_s(self, now_s: float) -> float:
        """Return after how long to check again whether a key was echoed (seconds), 0 = no key waits for its echo.

        A key that draws nothing, such as `j` on the last row, delays updates by `ECHO_S`, once.
        """
        with self._lock:
            return _CHECK_S if self._drew_s < self._first_typed_s and now_s < self._first_typed_s + ECHO_S else 0.0

    def echoes(self, now_s: float) -> bool:
        """Return whether a frame that is drawn now may echo a key."""
        return now_s < self.typed_s + ECHO_S

    def note_frame(self, now_s: float, size: int = 0) -> None:
        """Note that a frame of `size` bytes was sent, followed by a query."""
        with self._lock:
            self._asked += 1
            self._first_asked_s = min(self._first_asked_s, now_s)
            self._under_way.append((now_s, size))
            self._left_s, self._left_bytes = now_s, size

    def note_answer(self, now_s: float) -> None:
        """Note the reply to the oldest query."""
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
        """Return the maximum time that the next frame waits (seconds), 0 = send it now; a reply may end the wait earlier."""
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
        """Return how long updates must wait so that the connection is free for keys (seconds)."""
        with self._lock:
            if len(self._seen) < _LEAST_SEEN:
                return 0.0
            filled_s = self._left_bytes * sum(each for each, _ in self._seen) / sum(size for _, size in self._seen)
            if filled_s < _SLOW_S:
                return 0.0
            share = _SHARE_AT_WORK if now_s < self.typed_s + _ACTED_S else _SHARE
            return max(0.0, self._left_s + min(filled_s * share, _LONGEST_REST_S) - now_s)

    def takes_s(self, now_s: float, size: int) -> float | None:
        """Return how long `size` bytes fill the line at least (seconds), None = not measured yet.

        Calculated from the quickest of the longer frames and the quickest reply. A terminal without replies is treated as quick.
        """
        with self._lock:
            if self._long:
                return size * min(max(0.0, round_trip_s - self._quickest_s) / seen for round_trip_s, seen in self._long)
            is_silent = not self._answered and now_s - self._first_asked_s > _TIMEOUT_S
            return 0.0 if is_silent else None

    def forget(self) -> None:
        """Expect no more replies, because the terminal is lent to another program."""
        with self._lock:
            self._under_way.clear()
            self._seen.clear()
            self._long.clear()
            self._quickest_s = self._first_asked_s = math.inf
