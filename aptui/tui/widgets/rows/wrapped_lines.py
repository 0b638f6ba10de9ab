"""Rows that take several lines of the screen each, where long texts are broken. What a line holds is `LogPane`'s.

Tests: `tests/tui/widgets/test_views.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from textual.geometry import Region
from textual.strip import Strip

from aptui.tui.widgets.cells import merge, pad
from aptui.tui.widgets.rows.lines import RowLines
from aptui.tui.widgets.rows.painting import RowPainting
from aptui.tui.widgets.rows.view import RowView


class WrappedLines(RowLines):
    """Lines of the screen; the last entry of a row's state says which of its lines is painted.

    Args:
        height_of: returns how many lines a row takes.
    """

    def __init__(self, view: RowView, painting: RowPainting, height_of: Callable[[int], int]) -> None:
        super().__init__(view, painting)
        self._height_of = height_of
        self._laid: list[tuple[int, int]] = []
        """(row, which of its lines) for each line of the screen; empty = to be laid out anew."""

    def draw(self, y: int) -> Strip | None:
        """Return the picture of a line, None = no row is on it."""
        if y == 0 or not self._laid:
            self._laid = self.lay_out()
        if y >= len(self._laid):
            return None
        index, part = self._laid[y]
        state = (*self.view.row_state(index)[:-1], part)
        width = self.painting.width
        return Strip(merge(pad(self.view.draw_row(state), width, self.painting.painter.ground)), width)

    def lay_out(self) -> list[tuple[int, int]]:
        """Return (row, which of its lines) for each line of the screen."""
        rows: list[tuple[int, int]] = []
        index, height = self.view.top, self.view.scrollable_content_region.height
        while len(rows) < height and index < self.view.count_rows():
            rows += [(index, part) for part in range(self._height_of(index))]
            index += 1
        return rows[:height]

    def row_at(self, y: int) -> int | None:
        """Return the row at a line of the widget."""
        return self._laid[y][0] if 0 <= y < len(self._laid) else None

    def forget(self) -> None:
        """Lay all lines out anew."""
        super().forget()
        self._laid = []

    def refresh_row(self, index: int) -> None:
        """Have a row drawn again."""
        if not self._laid:  # they are laid out anew, and nobody knows where the row was
            self.view.refresh()
            return
        lines = [y for y, (row, _) in enumerate(self._laid) if row == index]
        if lines:
            self.view.refresh(Region(0, lines[0], self.view.size.width, len(lines)))

    def refresh_changed(self) -> None:
        """Have everything drawn again: rows may be higher now."""
        self._laid = []
        self.view.refresh()

    def show_cursor(self) -> None:
        """Scroll as little as needed to see the cursor, all of it."""
        view = self.view
        if not view.is_attached or not view.scrollable_content_region.height:
            return
        visible_height, first = view.scrollable_content_region.height, view.cursor
        needed = self._height_of(first) if view.shown_count else 0
        while first > 0 and needed <= visible_height and first > view.top:
            needed += self._height_of(first - 1)
            first -= 1
        top = min(view.cursor, first if needed <= visible_height else first + 1)
        if top != view.top and (view.cursor < view.top or top > view.top):
            view.scroll_to(y=top, animate=False, force=True)
        self._laid = []
