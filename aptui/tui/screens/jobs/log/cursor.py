"""Where the cursor of a job's log goes by itself: to what matters most in it.

Tests: `tests/tui/screens/jobs/log/test_cursor.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from aptui.store.logs.joblog import JobLogLine, is_tally

if TYPE_CHECKING:
    from aptui.tui.screens.jobs.details import JobDetails
    from aptui.tui.widgets.logpane import LogPane


class LogCursor:
    """The cursor of one log.

    Args:
        pane: returns whose cursor it is.
    """

    def __init__(self, pane: Callable[[], LogPane]) -> None:
        self._pane = pane
        self._is_wanted = False

    def want(self) -> None:
        """Have it go to what matters once the log was read."""
        self._is_wanted = True

    def forget(self) -> None:
        """Leave it where it is."""
        self._is_wanted = False

    def reach(self, job_details: JobDetails | None) -> None:
        """Go to what matters in a log that was read, if that is wanted."""
        if self._is_wanted and job_details is not None:
            self._is_wanted = False
            self.go(job_details)

    def go(self, job_details: JobDetails | None) -> None:
        """Go to the first error, else the first warning, else the last line that says more than how many there are.

        Of a run that goes on the last line matters.
        """
        if job_details is not None and job_details.running_key:
            self._pane().action_last()
        elif not self._pane().go_to_first_error():
            self.leave_tally(job_details.records if job_details is not None else ())

    def leave_tally(self, records: Sequence[JobLogLine]) -> None:
        """Go to what was said last where it is on the line that counts errors."""
        pane = self._pane()
        if pane.cursor_key == len(records) - 1 > 0 and is_tally(records[-1].text):
            pane.action_move(-1)
