"""The line above the Jobs table: the filter, how many jobs it leaves, the order; and which columns say something.

Tests: `tests/tui/screens/jobs/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aptui.shared.printing import count
from aptui.shared.sanitize import sanitize
from aptui.tui.frame.line import Part

if TYPE_CHECKING:
    from aptui.tui.data.jobs_store import JobsStore
    from aptui.tui.screens.jobs.choices import Choices
    from aptui.tui.screens.jobs.columns import Causes
    from aptui.tui.screens.jobs.view import JobsView

_ROOMY, _LEAST = 100, 60


class Head:
    """What stands above the table of one pane."""

    def __init__(self, view: JobsView, store: JobsStore, choices: Choices, causes: Causes) -> None:
        self._jobs, self._store, self._choices, self._causes = view, store, choices, causes

    def count_words(self) -> str:
        """Return how many jobs there are, and of how many."""
        hits, total = self._store.hit_count, self._store.total
        if not self._store.is_loaded:
            return ""
        if self._store.is_filtering and self._choices.mistake() is None:  # with a mistake the last good view stays
            return "filtering…"  # what stands below is what passed the filter before
        return f"{hits:,} of {total:,}" if self._store.filter.terms else count(total, "job")

    def ends(self, width: int) -> tuple[Sequence[Part], Sequence[Part]]:
        """Return both ends of the line."""
        text, mistake = self._choices.text, self._choices.mistake()
        press = "keys.press('slash')"
        if self._jobs.shows_causes:  # no filter holds for them
            return [Part(" all failures by cause", "header")], [Part(count(self._causes.row_count(), "cause"), "title")]
        left = [Part(" / ", "accent", press), Part(sanitize(text) if text else "filter", "path" if text else "muted", press)]
        if mistake is not None:
            left.append(Part(f"   ✗ column {mistake[0] + 1}: {sanitize(mistake[1])}", "error"))
        marks, late = len(self._jobs.table.marks), self._store.late_count
        right = [Part(f"{marks:,} marked   ", "mark")] if marks else []
        if late:
            right.append(Part(f"{late:,} new at the end   " if width >= _ROOMY else f"+{late:,}   ", "accent", "keys.press('R')"))
        right.append(Part(self.count_words(), "title" if text else "muted"))
        if width >= _LEAST:
            words = self._choices.order_words()
            right.append(Part(f"   {words if width >= _ROOMY else words.removeprefix('sorted by ')}", "muted", "keys.press('S')"))
        return left, right
