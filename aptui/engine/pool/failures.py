"""The failure tracker: runs that killed their worker, builders that are broken by that, jobs that have to run alone.

What its orders are answered when a worker dies is `pool.answers`.

Tests: `tests/engine/pool/test_pool.py`.
"""

from __future__ import annotations

from aptui.engine.pool.messages import Identity

MAX_FAILURES = 3
_MAX_LONELY = 10_000


class FailureTracker:
    """The circuit breaker of builders, and the jobs that ran out of memory."""

    def __init__(self) -> None:
        self._failures: dict[str, tuple[int, str]] = {}
        self._answered: set[str] = set()
        self.lonely: dict[Identity, None] = {}

    def note_answer(self, builder: str) -> None:
        """A builder came to an end by itself: it is not one that kills every worker."""
        self._answered.add(builder)
        self._failures.pop(builder, None)

    def note_death(self, builder: str, reason: str) -> None:
        """A worker died over a builder. Only those count that have never answered."""
        if builder not in self._answered:
            self._failures[builder] = (self._failures.get(builder, (0, ""))[0] + 1, reason)

    def list_broken(self) -> dict[str, str]:
        """Return {builder: why} of those whose circuit breaker is open."""
        return {name: reason for name, (count, reason) in self._failures.items() if count >= MAX_FAILURES}

    def refusal(self, builder: str) -> str:
        """Return why no worker is risked for a builder; "" when one is."""
        count, reason = self._failures.get(builder, (0, ""))
        return f"builder {builder!r} died three times at its start: {reason}" if count >= MAX_FAILURES else ""

    def let_off(self) -> None:
        """Give every builder a new chance: it may be another one now."""
        self._failures.clear()
        self._answered.clear()

    def isolate(self, identity: Identity | None) -> bool:
        """Have a job run alone from now on; return whether that is new."""
        if identity is None or identity in self.lonely:
            return False
        if len(self.lonely) >= _MAX_LONELY:
            del self.lonely[next(iter(self.lonely))]
        self.lonely[identity] = None
        return True

    def release(self, identity: Identity | None) -> None:
        """A job came through: it may run beside others again."""
        if identity is not None:
            self.lonely.pop(identity, None)
