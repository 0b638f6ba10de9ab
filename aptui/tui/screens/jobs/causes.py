"""The failures by cause, in the place of the jobs: shown, left again, and one of them opened. How they are grouped is the store's.

Tests: `tests/tui/screens/jobs/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aptui.tui.screens.jobs.texts import term

if TYPE_CHECKING:
    from aptui.tui.screens.jobs.choices import Choices
    from aptui.tui.screens.jobs.columns import Causes
    from aptui.tui.screens.jobs.goal import CursorGoal
    from aptui.tui.screens.jobs.layout import ThreePanes
    from aptui.tui.screens.jobs.selection import SelectedJob


class CausesView:
    """Shows the causes, and the jobs of one.

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
        """Group the failures by cause."""
        self._causes.renew()
        self._pane.shows_causes = True
        self._pane.causes.refresh_model()
        self._pane.go_to("table")

    def draw(self) -> None:
        """Group them again, where they are shown."""
        if self._pane.causes.display:
            self._causes.renew()
            self._pane.causes.refresh_model()

    def close(self) -> None:
        """Show the jobs again, if they are not."""
        if self._pane.shows_causes:
            self._pane.shows_causes = False
            self._selection.be(self._pane.table.cursor_key)
            self._pane.arrange_parts()
            self._left()

    def highlight(self, place: int) -> None:
        """Show the log of the first job of a cause."""
        if self._pane.shows_causes and place < len(self._causes.groups):
            self._selection.be(self._causes.groups[place].keys[0])

    def open(self, place: int) -> None:
        """Show the jobs that failed for a cause; a single one at once."""
        group = self._causes.groups[place]
        self.close()
        if len(group.keys) == 1:
            self._goal.be(group.keys[0])
            self._pane.go_to("table")
            return
        about = term("cause", group.cause, is_whole=True) if group.cause else ""
        self._choices.filter_by(f"status:failed {about}".strip())
        self._pane.table.focus()
