"""What every list says of itself, so that parts of `Rows` know it: its rows, their keys and pictures, where the cursor is.

Tests: `tests/tui/widgets/test_table.py`.
"""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollBar

from aptui.tui.widgets.plain_lines import PlainLines


class RowView(ScrollView, PlainLines):  # in this order: rules for `ScrollView` are found by the first base
    """What a subclass of `Rows` answers; nothing is done here."""

    HEADER_LINES: ClassVar[int] = 0
    cursor = 0
    """Index of the cursor's row in the view; 0 where there are none."""
    cursor_key: int | None = None
    shown_count = 0
    """How many rows there were when the view was last looked at."""

    @property
    def page_rows(self) -> int:
        """How many rows are visible at once."""
        return max(1, self.scrollable_content_region.height - self.HEADER_LINES)

    @property
    def top(self) -> int:
        """Index of the first visible row."""
        return round(self.scroll_y)

    @property
    def empty_text(self) -> str:
        """What is said where there is no row."""
        raise NotImplementedError

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Scroll; the bar is drawn again only where it will look different."""
        bar = self.vertical_scrollbar
        if self.show_vertical_scrollbar and _thumb(bar, new_value) == _thumb(bar, bar.position):
            bar.set_reactive(ScrollBar.position, bar.validate_position(new_value))  # so that it is no news to the bar
        super().watch_scroll_y(old_value, new_value)

    def count_rows(self) -> int:
        """Return how many rows the view has."""
        raise NotImplementedError

    def key_of(self, index: int) -> int:
        """Return the stable key of a row."""
        raise NotImplementedError

    def index_of(self, key: int) -> int | None:
        """Return where that row is in the view now."""
        raise NotImplementedError

    def row_state(self, index: int) -> tuple[object, ...]:
        """Return all a row's picture depends on, but for the theme; rows of equal state look alike."""
        raise NotImplementedError

    def draw_row(self, state: tuple[object, ...]) -> list[Segment]:
        """Return the picture of a row, gutter included, from its state alone."""
        raise NotImplementedError

    def draw_header(self) -> list[Segment]:
        """Return the picture of the header line."""
        raise NotImplementedError


def _thumb(bar: ScrollBar, position: float) -> int:
    """Return where the thumb begins, in eighths of a line, as `ScrollBarRender.render_bar` places it."""
    size, window, rows = bar.size.height, bar.window_size, bar.window_virtual_size
    if not size or window >= rows:
        return 0
    thumb_size = max(1.0, window * size / rows)
    return int((size - thumb_size) * position / (rows - window) * len(bar.renderer.VERTICAL_BARS))
