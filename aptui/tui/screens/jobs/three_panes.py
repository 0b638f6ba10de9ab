"""Layout of the Jobs screen: the room of table, event log and details, and which of them has the focus.

Tests: `tests/tui/screens/jobs/test_jobs_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from textual import events

from aptui.tui.pane import Pane
from aptui.tui.screens.jobs.event_log import EventLog
from aptui.tui.screens.jobs.job_texts import term
from aptui.tui.screens.jobs.jobs_table import Causes, CausesTable, Choices, JobsTableView
from aptui.tui.widgets.filterbox import FilterBox
from aptui.tui.widgets.table import Table

if TYPE_CHECKING:
    from aptui.tui.screens.jobs.selection import CursorGoal, SelectedJob


class CausesView:
    """Shows the failures by cause in place of the jobs, and the jobs that failed for one cause.

    Args:
        left: called when the jobs are shown again.
    """

    def __init__(
        self,
        pane: ThreePanes,
        causes: Causes,
        selection: SelectedJob,
        choices: Choices,
        goal: CursorGoal,
        left: Callable[[], object],
    ) -> None:
        self._pane, self._causes, self._selection = pane, causes, selection
        self._choices, self._goal, self._left = choices, goal, left

    def show(self) -> None:
        """List the failures by cause."""
        self._causes.renew()
        self._pane.shows_causes = True
        self._pane.causes.refresh_model()
        self._pane.go_to("table")

    def draw(self) -> None:
        """Group the failures again if the list of causes is visible."""
        if self._pane.causes.display:
            self._causes.renew()
            self._pane.causes.refresh_model()

    def close(self) -> None:
        """Show the jobs again."""
        if self._pane.shows_causes:
            self._pane.shows_causes = False
            self._selection.show_job(self._pane.table.cursor_key)
            self._pane.arrange_parts()
            self._left()

    def highlight(self, place: int) -> None:
        """Show the log of the job of a cause that failed first."""
        if self._pane.shows_causes and place < len(self._causes.groups):
            self._selection.show_job(self._causes.find_first(place)[0])

    def open(self, place: int) -> None:
        """Show the jobs that failed for a cause; if it is a single job, go to it directly."""
        group = self._causes.groups[place]
        self.close()
        if len(group.keys) == 1:
            self._goal.set_job(group.keys[0])
            self._pane.go_to("table")
            return
        about = term("cause", group.cause) if group.cause else ""
        self._choices.filter_by(f"status:failed {about}".strip())
        self._pane.table.focus()


_ALONE_BELOW = 12
"""Height of the screen below which only one pane is visible (lines)."""
_LEAST_LOWER = 5
_SPLIT, _SPLIT_BESIDE = 40, 41
"""Default height of the lower panes and default width of the log beside the table, in per cent of the screen."""
BESIDE = 160
"""Minimum width for the log beside the table (columns)."""
_NARROWEST, _WIDEST = 16, 80
_ABOVE_ROWS, _LEAST_ROWS = 2, 6
"""Lines above the rows (filter and header); minimum number of rows that stay visible."""


class ThreePanes(Pane):
    """Shows table, event log and details: all three if there is room, else two or one; `Tab` focuses the next, `z` zooms one."""

    _part = "table"
    _is_zoomed = False
    shows_causes = False
    """Whether the upper pane lists the failures by cause instead of jobs."""

    @property
    def table(self) -> JobsTableView:
        """The widget of the table of jobs."""
        return self.query_one(JobsTableView)

    @property
    def causes(self) -> CausesTable:
        """The widget that lists failures by cause."""
        return self.query_one(CausesTable)

    @property
    def box(self) -> FilterBox:
        """The filter line."""
        return self.query_one("#jobs-filter", FilterBox)

    @property
    def event_log(self) -> EventLog:
        """The widget of the lower panes."""
        return self.query_one(EventLog)

    @property
    def upper(self) -> Table:
        """The table in the upper pane: the jobs or the causes."""
        causes = self.causes
        return causes if causes.display else self.table

    def arrange_parts(self) -> None:
        """Divide the room among all three panes, among two, or give it to the zoomed pane."""
        height = self.size.height
        if not height:
            return
        is_alone = self._is_zoomed or height < _ALONE_BELOW
        is_beside = self.is_beside and not is_alone
        self.set_class(is_beside, "-beside")
        log, shows_upper = self.event_log, not is_alone or self._part == "table"
        self.query_one("#jobs-upper").display = shows_upper
        self.table.display, self.causes.display = not self.shows_causes, self.shows_causes
        log.display = not is_alone or self._part != "table"
        log.styles.height = "1fr" if is_alone or is_beside else self._lower_height(height)
        log.styles.width = f"{self.shell.memory.get('jobs.split', 0) or _SPLIT_BESIDE}%" if is_beside else "1fr"
        log.lay_out("details" if self._part == "details" else "log", is_alone=is_alone, is_tall=is_beside)

    @property
    def is_beside(self) -> bool:
        """Whether there is room for the log beside the table."""
        return self.size.width >= BESIDE

    def _lower_height(self, height: int) -> int:
        """Return the height of the lower panes.

        The user may choose it. The default is the larger of a share of the screen and the room that the rows do not need.
        """
        share = self.shell.memory.get("jobs.split", 0)
        wanted = max(_LEAST_LOWER, height * (share or _SPLIT) // 100)
        return wanted if share else max(wanted, height - _ABOVE_ROWS - max(_LEAST_ROWS, self.upper.count_rows()))

    def follow_rows(self) -> None:
        """Give the lower panes the lines that the rows of the table no longer need, or give lines back to the table."""
        height = self.size.height
        if height and not self._is_zoomed and height >= _ALONE_BELOW and not self.is_beside:
            wanted = self._lower_height(height)
            if self.event_log.styles.height is None or self.event_log.styles.height.value != wanted:
                self.event_log.styles.height = wanted

    def on_resize(self, event: events.Resize) -> None:
        """Lay out again for another size."""
        del event
        self.arrange_parts()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Note the focused part."""
        log = self.event_log
        part = {log.log_pane: "log", log.details: "details", self.table: "table", self.causes: "table"}.get(event.widget)  # type: ignore[call-overload]
        if part is not None and part != self._part:
            self._part = part
            self.arrange_parts()

    def go_to(self, part: str) -> None:
        """Show a part and focus it; hide the previous part only after that, so that no key is lost."""
        self._part = part
        upper = self.causes if self.shows_causes else self.table
        target = {"table": upper, "log": self.event_log.log_pane, "details": self.event_log.details}[part]
        target.display = True
        (self.query_one("#jobs-upper") if part == "table" else self.event_log).display = True
        self.screen.set_focus(target)
        self.arrange_parts()

    def action_part(self, step: int) -> None:
        """Focus the next (1) or previous (-1) of the three panes."""
        parts = ["table", "log", *(["details"] if self.event_log.has_details else [])]
        at = parts.index(self._part) if self._part in parts else 0
        self.go_to(parts[(at + step) % len(parts)])

    def action_zoom(self) -> None:
        """Give one pane all the room, or divide the room again."""
        self._is_zoomed = not self._is_zoomed
        self.arrange_parts()

    def action_split(self, per_cent: int) -> None:
        """Move the border between table and log."""
        share = _SPLIT_BESIDE if self.is_beside else 100 * self._lower_height(self.size.height) // max(1, self.size.height)
        now = self.shell.memory.get("jobs.split", 0) or share
        self.shell.memory.put("jobs.split", max(_NARROWEST, min(_WIDEST, now + per_cent)))
        self.arrange_parts()
