"""What the database's thread has told the loop: up to which ticket rows are saved, or that none can be any more.

Rows are ordered saved by ticket (`core.state.ledger`), and written by `store.db.writer`.
"""

from __future__ import annotations

from collections.abc import Callable

from aptui.shared.errors import KnownError


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

    def begin_anew(self) -> None:
        """Tickets begin with one again; what a writer failed of before is not forgotten."""
        self.ticket = self._acknowledged = 0

    def note(self, ticket: int) -> None:
        """Rows up to this ticket are saved; called in the writer's thread."""
        self.ticket = ticket
        self._wake()

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
