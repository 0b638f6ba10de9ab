"""What the writer's thread reports to the loop: the ticket of the last saved rows, or why it cannot save any more.

Rows are ordered saved by ticket (`core.state.ledger`), and written by `store.db.writer`.
"""

from __future__ import annotations

from collections.abc import Callable

from aptui.shared.errors import InternalError, KnownError

OVERDUE_S = 10.0
"""How long rows may stay unsaved when no other work is left, before the log says so. Another program may hold the lock."""


class SavedRows:
    """The tickets of one writer.

    Args:
        wake: ends the loop's sleep; any thread may call it.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self.ticket = 0
        """Of the last rows that are saved in the database."""
        self._acknowledged = 0
        self._failure: KnownError | None = None
        self._at_rest_since_s: float | None = None

    def begin_anew(self) -> None:
        """Tickets begin with one again; what a writer failed of before is not forgotten."""
        self.ticket = self._acknowledged = 0

    def note(self, ticket: int) -> None:
        """Rows up to this ticket are saved; called in the writer's thread. A lower ticket than the last one is a failure."""
        if ticket < self.ticket:
            self.fail(InternalError(f"rows {ticket} were saved after rows {self.ticket}", hint="please report this"))
            return
        self.ticket = ticket
        self._wake()

    def find_overdue(self, ordered: int, now: float, *, is_at_rest: bool) -> str:
        """Return what is not saved `OVERDUE_S` after all other work ended, "" if nothing is.

        Args:
            ordered: the ticket of the last rows that were ordered saved.
            now: seconds of a monotonic clock.
            is_at_rest: whether no other work is left.
        """
        if not is_at_rest or self.ticket >= ordered:
            self._at_rest_since_s = None
        elif self._at_rest_since_s is None:
            self._at_rest_since_s = now
        elif now - self._at_rest_since_s >= OVERDUE_S:
            return (
                f"all jobs are done, but for {OVERDUE_S:.0f} s the asset database has had rows {self.ticket + 1} to {ordered} "
                "to save; check whether another program has locked it, or its disk is slow"
            )
        return ""

    def fail(self, error: KnownError) -> None:
        """Nothing can be saved any more; called in the writer's thread."""
        self._failure = error
        self._wake()

    def check(self) -> None:
        """Raise what the writer failed of, if it did."""
        if self._failure is not None:
            raise self._failure

    @property
    def are_news(self) -> bool:
        """Whether the pipeline has not been told of all that is saved."""
        return self._acknowledged < self.ticket

    def take_news(self) -> int:
        """Return the newest ticket; from now on the pipeline knows of it."""
        self._acknowledged = self.ticket
        return self._acknowledged
