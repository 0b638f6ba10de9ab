"""Where rows stand on the screen, a line each: what is drawn, what is drawn again, and how far the view is scrolled to its cursor.

Tests: `tests/tui/widgets/test_table.py`.
"""

from __future__ import annotations

from textual.geometry import Offset, Region
from textual.strip import Strip

from aptui.tui.widgets.cells import pad
from aptui.tui.widgets.rows.painting import RowPainting
from aptui.tui.widgets.rows.view import RowView


class RowLines:
    """The lines below the header."""

    def __init__(self, view: RowView, painting: RowPainting) -> None:
        self.view, self.painting = view, painting
        self._drawn: dict[int, tuple[object, ...]] = {}
        """{y: what the line was painted from} of the lines on screen."""

    def draw(self, y: int) -> Strip | None:
        """Return the picture of a line, None = no row is on it."""
        view, width, painter = self.view, self.painting.width, self.painting.painter
        if y < view.HEADER_LINES:
            return Strip(pad(view.draw_header(), width, painter.ground), width)
        index = y - view.HEADER_LINES + view.top
        if index >= view.shown_count or index >= view.count_rows():
            self._drawn.pop(y, None)
            return None
        state = view.row_state(index)
        self._drawn[y] = state
        return self.painting.strip_of(state, width)

    def row_at(self, y: int) -> int | None:
        """Return the index of the row at a line of the widget."""
        index = y - self.view.HEADER_LINES + self.view.top
        return index if y >= self.view.HEADER_LINES and index < self.view.shown_count else None

    def forget(self) -> None:
        """Forget what stands where: the width is another one."""
        self._drawn.clear()

    def refresh_row(self, index: int) -> None:
        """Have a row drawn again."""
        view = self.view
        y = index - view.top + view.HEADER_LINES
        if view.HEADER_LINES <= y < view.size.height:
            view.refresh(Region(0, y, view.size.width, 1))

    def refresh_changed(self) -> None:
        """Have the visible rows drawn again that do not look as they did."""
        view, regions = self.view, []
        for y in range(view.HEADER_LINES, view.scrollable_content_region.height):
            index = y - view.HEADER_LINES + view.top
            state = view.row_state(index) if index < view.shown_count else None
            if state != self._drawn.get(y):
                regions.append(Region(0, y, view.size.width, 1))
        if view.empty_text and not view.shown_count:
            view.refresh()
        elif regions:
            view.refresh(*regions)

    def keep_place(self, shift: int) -> None:
        """Scroll with the cursor's row, so that it stays where it is on screen."""
        view = self.view
        if shift:
            view.scroll_to(y=max(0, min(view.top + shift, view.shown_count - view.page_rows)), animate=False, force=True)
        self.show_cursor()

    def show_cursor(self) -> None:
        """Scroll as little as needed to see the cursor."""
        view = self.view
        if not view.is_attached or not view.scrollable_content_region.height:
            return
        top, page = view.top, view.page_rows
        if view.cursor < top:
            view.scroll_to(y=view.cursor, animate=False, force=True)
        elif view.cursor >= top + page:
            view.scroll_to(y=view.cursor - page + 1, animate=False, force=True)

    def place_cursor(self) -> None:
        """Put the terminal's own (hidden) cursor on the row: screen readers and braille displays follow it."""
        view = self.view
        if view.has_focus:
            region = view.scrollable_content_region
            line = view.cursor - view.top + view.HEADER_LINES
            view.app.cursor_position = Offset(region.x, region.y + max(0, min(line, region.height - 1)))
