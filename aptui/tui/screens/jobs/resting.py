"""When the Jobs table is sorted and filtered again: once it is not in use, and not too often. What is sorted is the store's.

Tests: `tests/tui/screens/jobs/test_resting.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

HOLD_S = 1.2
"""So long after the last key, or the mouse, rows stay where they are."""
AGAIN_S = 0.5
"""So long after it was sorted the table is not sorted again; longer where that costs something."""
_ROWS_A_SECOND = 200_000
_FLIPPED_S = 0.3


class Resting:
    """Counts the time since people did something and since the table was put in order.

    Args:
        clock: seconds of a monotonic clock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sorted_s = self._flipped_s = -1e9

    def due_in(self, touched_s: float, row_count: int) -> float:
        """Return in how many seconds rows may move; not more than 0 = now."""
        again_s = self._sorted_s + AGAIN_S + row_count / _ROWS_A_SECOND
        return max(touched_s + HOLD_S, again_s) - self._clock()

    def note_sorted(self) -> None:
        """Rows are put in order now."""
        self._sorted_s = self._clock()

    def note_cursor(self, touched_s: float) -> None:
        """The cursor is on another row now: by itself, unless somebody just did something."""
        if self._clock() - touched_s > _FLIPPED_S:
            self._flipped_s = self._clock()

    @property
    def has_just_flipped(self) -> bool:
        """Whether the row under the cursor became another one so short a time ago that people cannot have seen it."""
        return self._clock() - self._flipped_s < _FLIPPED_S
