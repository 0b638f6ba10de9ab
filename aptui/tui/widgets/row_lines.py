"""Parts of every list: painting its lines, finding the lines to draw again, and scrolling to the cursor."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual._styles_cache import StylesCache
from textual.color import Color
from textual.geometry import Offset, Region, Size
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollBar
from textual.strip import Strip
from textual.widget import Widget

from aptui.tui.widgets.cells import Painter, merge, pad, painter_of

# Textual draws borders, outlines, padding, tints and hatches around each line. Even for a widget without these, Textual's code
# takes three times as long as drawing the line itself. Textual also makes a new strip each time, which loses the parts and the
# terminal codes that the old strip had cached. `_PlainCache` overrides `StylesCache.render_line` to avoid both. This method is
# private to Textual, so the project pins the version of Textual.

_AROUND = ("outline_top", "outline_right", "outline_bottom", "outline_left", "tint", "hatch", "text_opacity")


class PlainLines(Widget):
    """A widget that draws each line only by `render_line`. If its style has borders or tints, Textual draws the lines."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._styles_cache = _PlainCache()


class _PlainCache(StylesCache):
    """Textual's cache of lines without the work for borders that do not exist."""

    def render_line(  # This signature is Textual's.
        self,
        styles: Any,
        y: int,
        size: Size,
        content_size: Size,
        padding: Any,
        base_background: Color,
        background: Color,
        render_content_line: Callable[[int], Strip],
        border_title: Any,
        border_subtitle: Any,
        opacity: float,
        *others: Any,
    ) -> Strip:
        """Draw a line for Textual."""
        if styles.gutter or styles.has_any_rules(*_AROUND) or opacity != 1 or y >= content_size.height:
            return super().render_line(
                styles,
                y,
                size,
                content_size,
                padding,
                base_background,
                background,
                render_content_line,
                border_title,
                border_subtitle,
                opacity,
                *others,
            )
        strip = render_content_line(y)
        if strip.cell_length == size.width:
            return strip
        inside, _outside = self.get_inner_outer(base_background, background)
        return strip.adjust_cell_length(size.width, inside.rich_style)


@lru_cache(maxsize=64)
def blank_line(width: int, style: Style) -> Strip:
    """Return a line without text."""
    return Strip([Segment(" " * width, style)], width)


class RowView(ScrollView, PlainLines):  # `ScrollView` is the first base, because Textual finds style rules by the first base.
    """The interface of a list for its parts: rows, keys, drawn rows, cursor. Subclasses of `Rows` implement it."""

    HEADER_LINES: ClassVar[int] = 0
    cursor = 0
    """Index of the row under the cursor; 0 in an empty list."""
    cursor_key: int | None = None
    shown_count = 0
    """Number of rows at the last refresh."""

    @property
    def page_rows(self) -> int:
        """Number of visible rows."""
        return max(1, self.scrollable_content_region.height - self.HEADER_LINES)

    @property
    def top(self) -> int:
        """Index of the first visible row."""
        return round(self.scroll_y)

    @property
    def empty_text(self) -> str:
        """Text that an empty list shows."""
        raise NotImplementedError

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Scroll; draw the scroll bar again only if it looks different."""
        bar = self.vertical_scrollbar
        if self.show_vertical_scrollbar and _thumb(bar, new_value) == _thumb(bar, bar.position):
            bar.set_reactive(ScrollBar.position, bar.validate_position(new_value))  # assigns without notifying the scroll bar
        super().watch_scroll_y(old_value, new_value)

    def count_rows(self) -> int:
        """Return the number of rows."""
        raise NotImplementedError

    def key_of(self, index: int) -> int:
        """Return the stable key of a row."""
        raise NotImplementedError

    def index_of(self, key: int) -> int | None:
        """Return the current index of a row."""
        raise NotImplementedError

    def keys_below(self, key: int) -> list[int]:
        """Return the keys that a row stands for in marks and actions: its own key, or the keys of the rows that it groups."""
        return [key]

    def row_state(self, index: int) -> tuple[object, ...]:
        """Return the state of a row: every value on which its picture depends, except the theme. Equal states look the same."""
        raise NotImplementedError

    def draw_row(self, state: tuple[object, ...]) -> list[Segment]:
        """Paint a row with its gutter; the picture depends only on the state of the row."""
        raise NotImplementedError

    def draw_header(self) -> list[Segment]:
        """Paint the header line."""
        raise NotImplementedError


def _thumb(bar: ScrollBar, position: float) -> int:
    """Return the start of the thumb, in eighths of a line, as `ScrollBarRender.render_bar` computes it."""
    size, window, rows = bar.size.height, bar.window_size, bar.window_virtual_size
    if not size or window >= rows:
        return 0
    thumb_size = max(1.0, window * size / rows)
    return int((size - thumb_size) * position / (rows - window) * len(bar.renderer.VERTICAL_BARS))


_MOST_STRIPS = 1024


class RowPainting:
    """Paints rows, and stores the strip of a row by the state of the row."""

    def __init__(self, view: RowView) -> None:
        self._view = view
        self._painter: Painter | None = None
        self._fixed_width: int | None = None
        self._strips: dict[tuple[object, ...], Strip] = {}

    @property
    def painter(self) -> Painter:
        """The current styles; a change of theme discards all strips."""
        if self._fixed_width is not None and self._painter is not None:
            return self._painter
        painter = painter_of(self._view, self._painter)
        if painter is not self._painter:
            self._painter = painter
            self.forget()
        return painter

    @property
    def width(self) -> int:
        """Width of a row in cells, gutter included."""
        return self._view.scrollable_content_region.width if self._fixed_width is None else self._fixed_width

    def begin(self) -> None:
        """Read theme and width once, for all lines until `end`."""
        _ = self.painter
        self._fixed_width = self.width

    def end(self) -> None:
        """End `begin`: read theme and width again for each line."""
        self._fixed_width = None

    def forget(self) -> None:
        """Discard the stored strips after a change of theme or width."""
        self._strips.clear()

    def strip_of(self, state: tuple[object, ...], width: int) -> Strip:
        """Return the picture of a row in this state."""
        strip = self._strips.get(state)
        if strip is None or strip.cell_length != width:
            if len(self._strips) >= _MOST_STRIPS:
                self._strips.clear()
            strip = Strip(merge(pad(self._view.draw_row(state), width, self.painter.ground)), width)
            self._strips[state] = strip
        return strip


class RowLines:
    """The lines of a list below its header."""

    def __init__(self, view: RowView, painting: RowPainting) -> None:
        self.view, self.painting = view, painting
        self._drawn: dict[int, tuple[object, ...]] = {}
        """{y: state that the line was painted from} of the lines on the screen."""

    def draw(self, y: int) -> Strip | None:
        """Return the picture of a line, None if no row is at this line."""
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
        """Discard the states of drawn lines after a change of the width."""
        self._drawn.clear()

    def refresh_row(self, index: int) -> None:
        """Draw a row again."""
        view = self.view
        y = index - view.top + view.HEADER_LINES
        if view.HEADER_LINES <= y < view.size.height:
            view.refresh(Region(0, y, view.size.width, 1))

    def refresh_changed(self) -> None:
        """Draw the visible rows whose state changed."""
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
        """Scroll by `shift` lines, so that the cursor's row stays at its place on the screen."""
        view = self.view
        if shift:
            view.scroll_to(y=max(0, min(view.top + shift, view.shown_count - view.page_rows)), animate=False, force=True)
        self.show_cursor()

    def show_cursor(self) -> None:
        """Scroll as little as possible to show the cursor's row."""
        view = self.view
        if not view.is_attached or not view.scrollable_content_region.height:
            return
        top, page = view.top, view.page_rows
        if view.cursor < top:
            view.scroll_to(y=view.cursor, animate=False, force=True)
        elif view.cursor >= top + page:
            view.scroll_to(y=view.cursor - page + 1, animate=False, force=True)

    def place_cursor(self) -> None:
        """Put the terminal's own (hidden) cursor on the row, for screen readers and braille displays."""
        view = self.view
        if view.has_focus:
            region = view.scrollable_content_region
            line = view.cursor - view.top + view.HEADER_LINES
            view.app.cursor_position = Offset(region.x, region.y + max(0, min(line, region.height - 1)))
