"""The job that the log of the Jobs screen is about: which it is, and whether it has to be read again since something happened.

Tests: `tests/tui/screens/jobs/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aptui.tui.data.feed import Batch
    from aptui.tui.data.jobs_store import JobsStore
    from aptui.tui.screens.jobs.log.event_log import EventLog


class SelectedJob:
    """Shows one job of the store in the log.

    Args:
        log: returns the lower panes.
    """

    def __init__(self, store: JobsStore, log: Callable[[], EventLog]) -> None:
        self._store, self._log = store, log
        self.key: int | None = None
        self._is_stale = False
        self._expects: tuple[str, int] | None = None
        """(status, run key) as news told them; the database is read until it says the same."""

    def be(self, key: int | None) -> None:
        """Show another job, None = none."""
        self.key, self._is_stale, self._expects = key, False, None
        self._log().show(None if key is None else self._store.info(key))

    def mark_stale(self) -> None:
        """Have it read again with the next frame."""
        self._is_stale = True

    def note(self, batch: Batch) -> None:
        """Note what news say of it."""
        self._is_stale |= batch.table is not None
        for news in batch.jobs:
            if news.notice.job_id == self.key and news.notice.status:
                self._is_stale = True
                is_over = news.notice.status not in ("processing", "pending")
                self._expects = (news.notice.status, news.notice.run_key) if is_over else None

    def follow(self, cursor_key: int | None) -> None:
        """Show what became of it; none where the table has no row any more."""
        if self.key is None:
            return
        if cursor_key is None:
            self.be(None)
        elif self._is_stale or self._store.info(self.key) != self._log().info:
            self._log().show(self._store.info(self.key), expects=self._expects, run_key=self._log().chosen_run)
            self._is_stale, self._expects = False, None
