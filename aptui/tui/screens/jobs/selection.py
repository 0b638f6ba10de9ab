"""What the parts of the Jobs screen may use of it, and how they read beside it; the screen itself is `pane`.

Tests: `tests/tui/screens/jobs/test_jobs_pane.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from aptui.shared.errors import KnownError
from aptui.store.queries.reader import Reader, open_reader
from aptui.tui.background import run_in_background
from aptui.tui.widgets.menu import Menu

if TYPE_CHECKING:
    from textual.screen import Screen

    from aptui.tui.data.feed import Batch
    from aptui.tui.data.job_infos import JobRowInfo
    from aptui.tui.data.jobs_store import JobsStore
    from aptui.tui.pane import Shell
    from aptui.tui.screens.jobs.event_log import EventLog
    from aptui.tui.widgets.row_list import Rows
    from aptui.tui.widgets.table import Table


# The job that the log of the Jobs screen is about: which it is, and whether it has to be read again since something happened.


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


# Where the cursor of the Jobs table is to go once the rows that were asked for are there: to a job, or to the first row.

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


# When the Jobs table is sorted and filtered again: once it is not in use, and not too often. What is sorted is the store's.

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


# What changes in the Jobs table without news: durations count on, and rows come back into order. When they may is `resting`'s.

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


T = TypeVar("T")


class JobsView(Protocol):
    """The screen."""

    @property
    def shell(self) -> Shell:
        """The app."""

    @property
    def table(self) -> Table:
        """The table of jobs."""

    @property
    def event_log(self) -> EventLog:
        """The lower panes."""

    @property
    def resting(self) -> Resting:
        """When rows move by themselves."""

    @property
    def database(self) -> Path:
        """The asset database."""

    @property
    def shows_causes(self) -> bool:
        """Whether the upper pane groups the failures instead of listing jobs."""

    def list_selected(self) -> list[JobRowInfo]:
        """Return what an action is about: the marked jobs, or the one under the cursor."""

    def reveal(self, text: str) -> None:
        """Show a job (`#12`), or the jobs that pass a filter."""

    def action_filter(self) -> None:
        """Filter as people type."""

    @property
    def screen(self) -> Screen[Any]:
        """The screen with what pops up."""

    def set_timer(self, delay: float, callback: Callable[[], None]) -> object:
        """Have a function called after so many seconds."""


def call_in_background(
    shell: Shell, work: Callable[[], T], then: Callable[[T], object], ended: Callable[[], object] = lambda: None
) -> None:
    """Do `work` in a thread and hand its result to `then` in the app's; errors are shown. `ended` is called there after either."""

    def run() -> None:
        try:
            result = work()
        except KnownError as error:
            shell.in_ui(shell.show_toast, str(error), "error")
        else:
            shell.in_ui(then, result)
        finally:
            shell.in_ui(ended)

    run_in_background("aptui-jobs", run)


def query_in_background(view: JobsView, question: Callable[[Reader], T], then: Callable[[T], object]) -> None:
    """Ask the database in a thread and hand the answer to `then` in the app's, for which keys wait; errors are shown."""

    def work() -> T:
        with closing(open_reader(view.database)) as reader:
            return question(reader)

    call_in_background(view.shell, work, then, view.shell.hold_keys("the answer"))


def path_of(reader: Reader, info: JobRowInfo) -> str:
    """Return the path of a job's source in text form; below its scan folder where that is known."""
    source = reader.source(info.source)
    return f"{source.root}/{source.source}" if source else info.source
