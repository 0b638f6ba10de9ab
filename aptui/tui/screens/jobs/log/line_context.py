"""What stands beside the line under the cursor of a job's log; where it has nothing, what is known of the job.

Tests: `tests/tui/screens/jobs/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Vertical

from aptui.tui.frame.line import Part
from aptui.tui.screens.common.bar import Bar
from aptui.tui.screens.jobs.texts import job_facts
from aptui.tui.widgets.keyvalue import KeyValue

if TYPE_CHECKING:
    from aptui.tui.screens.jobs.details import JobDetails


class LineContext(Vertical):
    """A title, and keys with values."""

    def __init__(self) -> None:
        super().__init__(id="event-side")
        self.panel = KeyValue(id="details")
        self.is_about_job = False
        """Whether they are those of the job."""

    def compose(self) -> ComposeResult:
        """Make the parts."""
        yield Bar(self._title, id="details-title", rules=True)
        yield self.panel

    def _title(self, _width: int) -> tuple[Sequence[Part], Sequence[Part]]:
        words = "About this job" if self.is_about_job else "Details of this line" if self.panel.pairs else ""
        return (Part(words, "title" if self.panel.has_focus else "header"),), ()

    def clear(self) -> None:
        """Show nothing."""
        self.panel.show([])
        self.is_about_job = False

    def show(self, context: Sequence[tuple[str, str]], job_details: JobDetails | None) -> bool:
        """Show what stands beside a line, else of its job, None = nothing; return whether that is something else."""
        is_about_job = not context and job_details is not None
        pairs = job_facts(job_details) if is_about_job and job_details is not None else list(context)
        is_other = pairs != self.panel.pairs or is_about_job != self.is_about_job
        self.is_about_job = is_about_job
        if is_other:
            self.panel.show(pairs)
        return is_other
