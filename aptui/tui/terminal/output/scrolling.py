"""Lines that only moved up or down: found by their texts, so that a terminal moves them instead of getting them again.

Tests: `tests/tui/terminal/output/test_scrolling.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

T = TypeVar("T")

_FARTHEST = 16
_LEAST_GAIN = 2
_MOST_ALIKE = 4
"""Lines that look the same say little about where each of them went."""


class Shift(Struct, frozen=True):
    """Lines `top` to `bottom` (included) of a screen move up by `count`, or down if that is negative."""

    top: int
    bottom: int
    count: int


def find_shift(before: Mapping[int, str], after: Mapping[int, str]) -> Shift | None:
    """Return the movement that leaves fewest lines to be written, or None if none is worth it.

    Args:
        before, after: {line: its text}, of the lines that differ; the others stay as they are.
    """
    places: dict[str, list[int]] = {}
    for line, text in before.items():
        if not text.isspace():
            places.setdefault(text, []).append(line)
    shifts: Counter[int] = Counter()
    for line, text in after.items():
        here = places.get(text, ())
        if len(here) < _MOST_ALIKE:
            shifts.update(at - line for at in here if 0 < abs(at - line) <= _FARTHEST)
    found = [_shift(before, after, count) for count, times in shifts.most_common(3) if times >= _LEAST_GAIN]
    return max(filter(None, found), key=lambda each: each[0], default=(0, None))[1]


def _shift(before: Mapping[int, str], after: Mapping[int, str], count: int) -> tuple[int, Shift] | None:
    """Return how many lines a movement saves, and the movement."""
    hits = [line for line, text in after.items() if before.get(line + count) == text and not text.isspace()]
    top, bottom = min(hits + [line + count for line in hits]), max(hits + [line + count for line in hits])
    # What stands still between them would have to be written again.
    gain = len(hits) - sum(line not in after for line in range(top, bottom + 1))
    return (gain, Shift(top, bottom, count)) if gain >= _LEAST_GAIN else None


def shift_lines(rows: Sequence[T], shift: Shift) -> list[T | None]:
    """Return lines `top` to `bottom` after the movement; None = a line that became blank."""
    block = list(rows[shift.top : shift.bottom + 1])
    count = shift.count
    return [*block[count:], *[None] * count] if count > 0 else [*[None] * -count, *block[:count]]
