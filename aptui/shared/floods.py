"""Flood control for records that strangers can cause: a bounded number of each kind, the rest counted in one sentence."""

from __future__ import annotations

from msgspec import Struct

KINDS_LIMIT = 256
"""Kinds that are remembered: whoever invents names must not fill our memory; all further kinds are one."""
_OTHERS = "others"


class _Kind(Struct):
    began_s: float
    count: int = 0
    held_back: int = 0


class FloodGate:
    """Lets `limit` records of a kind through in `span_s` seconds.

    Args:
        limit: records of one kind in one span.
        span_s: length of a span.
    """

    def __init__(self, limit: int = 10, span_s: float = 60.0) -> None:
        self._limit, self._span_s = limit, span_s
        self._kinds: dict[str, _Kind] = {}

    def admit(self, kind: str, now: float) -> bool:
        """Return whether a record of this kind may be written now, in seconds of a clock that never goes back."""
        name = kind if kind in self._kinds or len(self._kinds) < KINDS_LIMIT else _OTHERS
        found = self._kinds.setdefault(name, _Kind(now))
        if found.count < self._limit:
            found.count += 1
            return True
        found.held_back += 1
        return False

    def spans_over(self, now: float) -> list[tuple[str, int]]:
        """Return (kind, records held back) of each span that has ended with any held back, and begin those kinds anew."""
        over = [name for name, kind in self._kinds.items() if now >= kind.began_s + self._span_s]
        ended = [(name, self._kinds.pop(name).held_back) for name in over]
        return [(name, count) for name, count in ended if count]


def more_like_this(count: int) -> str:
    """Return the sentence for records that were held back."""
    return f"{count:,} more like this"
