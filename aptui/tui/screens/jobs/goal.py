"""Where the cursor of the Jobs table is to go once the rows that were asked for are there: to a job, or to the first row."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aptui.tui.data.jobs_store import JobsStore
    from aptui.tui.widgets.rows.rows import Rows

_FIRST = 0


class CursorGoal:
    """The goal of the cursor, until it is reached.

    Args:
        table: whose cursor it is.
        clear_filter: takes the filter away.
        show_toast: shows a message.
    """

    def __init__(
        self, store: JobsStore, table: Callable[[], Rows], clear_filter: Callable[[], None], show_toast: Callable[[str, str], None]
    ) -> None:
        self._store, self._table, self._clear_filter, self._show_toast = store, table, clear_filter, show_toast
        self._goal: int | None = None

    def be_first(self) -> None:
        """Have the cursor go to the first row of the view that is being made."""
        self._goal = _FIRST

    def be(self, job_id: int) -> None:
        """Put the cursor on a job; the filter is removed where it hides it."""
        if not self._store.is_loaded:
            self._goal = job_id
        elif self._store.info(job_id) is None:
            self._show_toast(f"there is no job #{job_id}", "warning")
        elif not self._table().move_to_key(job_id):
            self._clear_filter()
            self._goal = job_id

    def reach(self) -> None:
        """Put the cursor where it was to be, if the view is complete."""
        if self._goal is None or not self._store.is_loaded or self._store.is_busy:
            return
        goal, self._goal = self._goal, None
        if goal == _FIRST:
            self._table().action_first()
        elif not self._table().move_to_key(goal):
            self.be(goal)
