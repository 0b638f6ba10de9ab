"""What changes in the Jobs table without news: durations count on, and rows come back into order. When they may is `resting`'s.

Tests: `tests/tui/screens/jobs/test_resting.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from aptui.tui.widgets.menu import Menu

if TYPE_CHECKING:
    from aptui.tui.data.jobs_store import JobsStore
    from aptui.tui.screens.jobs.resting import Resting
    from aptui.tui.screens.jobs.view import JobsView

_TICK_S = 1.0
_CHECK_S = 0.2
"""So long after an open menu kept rows in their places it is looked for again."""


class TableChanges:
    """Lets durations count on while somebody looks, and puts rows in order unless somebody is at them."""

    def __init__(self, view: JobsView, store: JobsStore, resting: Resting) -> None:
        self._view, self._store, self._resting = view, store, resting
        self._waits = False
        self.ticks = False
        """Whether durations are to be drawn again soon."""

    def keep(self) -> None:
        """Sort and count where that is due; else look again when it may be. Called with each frame."""
        self._sort()
        if not self.ticks and self._store.tick():
            self.ticks = True
            self._view.set_timer(_TICK_S, self._tick)

    def _sort(self) -> None:
        store, view = self._store, self._view
        if not store.is_loaded or not store.is_out_of_order or store.is_busy or self._waits:
            return
        wait_s = self._resting.due_in(view.shell.touched_s, store.total)
        if wait_s > 0 or view.table.marks.are_in_range or view.screen.query(Menu):
            self._waits = True
            view.set_timer(max(wait_s, _CHECK_S), self._check_again)
            return
        self._resting.note_sorted()
        store.resort()

    def _tick(self) -> None:
        self.ticks = False
        if self._is_on_top:
            self._view.shell.wake_for_news()

    def _check_again(self) -> None:
        self._waits = False
        if self._is_on_top:
            self._sort()  # what comes of it is drawn, and not before

    @property
    def _is_on_top(self) -> bool:
        return cast("object", self._view) is self._view.shell.pane
