"""The base class of every list: rows with keys, a cursor that stays on its key, marks, paging and mouse.

A subclass supplies the number of rows, their keys, and the painted rows. Only visible rows are computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events, on
from textual._styles_cache import StylesCache
from textual.binding import Binding, BindingType
from textual.geometry import Offset, Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollBar
from textual.strip import Strip
from textual.widget import Widget

from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import Painter, merge, pad, painter_of, wrap

# Textual draws borders, outlines, padding, tints and hatches around each line. Even for a widget without these, that code takes
# three times as long as drawing the line itself. It also makes a new strip each time, so that the segments and terminal codes
# cached in the old strip are lost. `_PlainCache` overrides `StylesCache.render_line` to avoid both. `StylesCache` is private to
# Textual, so the project pins the version of Textual.

_AROUND = ("outline_top", "outline_right", "outline_bottom", "outline_left", "tint", "hatch", "text_opacity")


class PlainLines(Widget):
    """A widget whose lines are drawn only by its `render_line`.

    If its style has borders or tints, Textual's own code draws them.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._styles_cache = _PlainCache()


class _PlainCache(StylesCache):
    """Textual's cache of lines, which skips the work for borders if the widget has no borders."""

    def render_line(self, *given: Any, **named: Any) -> Strip:
        """Draw a line for Textual."""
        styles, y, size, content_size, _, base_background, background, render_content_line, _, _, opacity, *_ = given
        if styles.gutter or styles.has_any_rules(*_AROUND) or opacity != 1 or y >= content_size.height:
            return super().render_line(*given, **named)
        strip: Strip = render_content_line(y)
        if strip.cell_length == size.width:
            return strip
        inside, _outside = self.get_inner_outer(base_background, background)
        return strip.adjust_cell_length(size.width, inside.rich_style)


@lru_cache(maxsize=64)
def blank_line(width: int, style: Style) -> Strip:
    """Return a line without text."""
    return Strip([Segment(" " * width, style)], width)


def _thumb(bar: ScrollBar, position: float) -> int:
    """Return the start of the scroll bar's thumb, in eighths of a line, as `ScrollBarRender.render_bar` computes it."""
    size, window, rows = bar.size.height, bar.window_size, bar.window_virtual_size
    if not size or window >= rows:
        return 0
    thumb_size = max(1.0, window * size / rows)
    return int((size - thumb_size) * position / (rows - window) * len(bar.renderer.VERTICAL_BARS))


_MOST_STRIPS = 1024


class RowPainting:
    """Paints rows, and caches each painted row (a `Strip` of Textual) by the state of the row."""

    def __init__(self, view: Rows) -> None:
        self._view = view
        self._painter: Painter | None = None
        self._fixed_width: int | None = None
        self._strips: dict[tuple[object, ...], Strip] = {}

    @property
    def painter(self) -> Painter:
        """The painter with the styles of the current theme; after a change of the theme, all cached rows are discarded."""
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
        """End the effect of `begin`: from now on, each line reads theme and width itself."""
        self._fixed_width = None

    def forget(self) -> None:
        """Discard the stored strips after a change of theme or width."""
        self._strips.clear()

    def strip_of(self, state: tuple[object, ...], width: int) -> Strip:
        """Return the strip of a row in this state."""
        strip = self._strips.get(state)
        if strip is None or strip.cell_length != width:
            if len(self._strips) >= _MOST_STRIPS:
                self._strips.clear()
            strip = Strip(merge(pad(self._view.draw_row(state), width, self.painter.ground)), width)
            self._strips[state] = strip
        return strip


class RowLines:
    """The lines of a list below its header."""

    def __init__(self, view: Rows, painting: RowPainting) -> None:
        self.view, self.painting = view, painting
        self._drawn: dict[int, tuple[object, ...]] = {}
        """{y: state that the line was painted from} of the lines on the screen."""

    def draw(self, y: int) -> Strip | None:
        """Return the strip of a line, None if no row is at this line."""
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


class RowMarks:
    """The marked rows of a list, by key: a row that the filter hides stays marked."""

    def __init__(self, view: Rows) -> None:
        self._view = view
        self.keys: set[int] = set()
        self._anchor: int | None = None

    def __len__(self) -> int:
        """Return the number of marked rows. A range that the user is still marking does not count."""
        return len(self.keys)

    @property
    def are_in_range(self) -> bool:
        """Whether the user began to mark a range of rows, and has not ended it."""
        return self._anchor is not None

    def has(self, index: int, key: int) -> bool:
        """Return whether a row is marked, or will be marked when the range ends."""
        if self.keys and self.keys.issuperset(self._view.keys_below(key)):
            return True
        if self._anchor is None:
            return False
        anchor = self._view.index_of(self._anchor)
        return anchor is not None and min(anchor, self._view.cursor) <= index <= max(anchor, self._view.cursor)

    def list_selected(self) -> list[int]:
        """Return the rows for an action: the marked rows in the order of the view (hidden rows last), else the cursor's row."""
        keys = self.keys | set(self._range())
        if not keys:
            return [] if self._view.cursor_key is None else self._view.keys_below(self._view.cursor_key)
        order = {key: self._view.index_of(key) for key in keys}
        return sorted(keys, key=lambda key: (order[key] is None, order[key] or 0, key))

    def toggle(self, key: int) -> None:
        """Mark or unmark a row."""
        keys = set(self._view.keys_below(key))
        self.keys = self.keys - keys if keys <= self.keys else self.keys | keys

    def toggle_range(self) -> None:
        """Begin a range of marks at the cursor, or end it."""
        if self._anchor is None:
            self._anchor = self._view.cursor_key
        else:
            self.keys |= set(self._range())
            self._anchor = None

    def clear(self) -> None:
        """Remove all marks, and an open range."""
        self.keys.clear()
        self._anchor = None

    def _range(self) -> list[int]:
        anchor = None if self._anchor is None else self._view.index_of(self._anchor)
        if anchor is None or not self._view.shown_count:
            return []
        low, high = sorted((anchor, self._view.cursor))
        return [key for index in range(low, high + 1) for key in self._view.keys_below(self._view.key_of(index))]


_WHEEL_ROWS = 3


class Rows(ScrollView, PlainLines, can_focus=True):  # `ScrollView` is first: Textual finds style rules by the first base
    """A scrolling list of rows, each with a stable key. It posts `Highlighted`, `Opened`, `ContextMenu` and `MarksChanged`."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    Rows { height: 1fr; width: 1fr; overflow-x: hidden; overflow-y: auto; scrollbar-gutter: stable; scrollbar-size: 1 1;
           scrollbar-background: $background; scrollbar-background-hover: $background; scrollbar-background-active: $background;
           scrollbar-color: $panel; scrollbar-color-hover: $panel; scrollbar-color-active: $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "next row", id="rows.down", show=False),
        Binding("k,up", "move(-1)", "previous row", id="rows.up", show=False),
        Binding("ctrl+d", "page(0.5)", "half a page down", id="rows.half_down", show=False),
        Binding("ctrl+u", "page(-0.5)", "half a page up", id="rows.half_up", show=False),
        Binding("pagedown", "page(1)", "page down", id="rows.page_down", show=False),
        Binding("pageup", "page(-1)", "page up", id="rows.page_up", show=False),
        Binding("g,home", "first", "first row", id="rows.first", show=False),
        Binding("G,end", "last", "last row", id="rows.last", show=False),
        Binding("space", "mark", "mark", id="rows.mark", show=False),
        Binding("v", "range", "mark a range", id="rows.range", show=False),
        Binding("u", "unmark", "clear marks", id="rows.unmark", show=False),
        Binding("enter", "open", "open", id="rows.open", show=False),
    ]

    @dataclass
    class ListMessage(Message):
        """Base class of the messages."""

        rows: Rows

        @property
        def control(self) -> Rows:
            """The widget that posted the message; Textual compares it with the selector in `@on(Rows.Opened, "#jobs")`."""
            return self.rows

    class MarksChanged(ListMessage):
        """Posted when the marks changed."""

    @dataclass
    class RowMessage(ListMessage):
        """Base class of messages about one row; `key` is its key."""

        key: int

    class Highlighted(RowMessage):
        """Posted when the cursor moved to another row."""

    class Opened(RowMessage):
        """Posted on Enter or a double click."""

    @dataclass
    class ContextMenu(RowMessage):
        """Posted when the right button was pressed at a place on the screen; the cursor moved there first."""

        x: int
        y: int

    def __init__(self, **named: Any) -> None:
        self.marks = RowMarks(self)
        self.painting = RowPainting(self)
        self.row_lines = RowLines(self, self.painting)
        super().__init__(**named)
        self.follows_top = False
        """Whether a cursor on the first row stays at the top when rows move. If False, it moves with its row."""
        self.starts_at_top = False
        """Whether the first row stays at the top while the cursor is visible; if False, the cursor keeps its line on the screen."""
        self._empty_text = ""

    # ---------------------------------------------------------------------------------------------- members of subclasses

    HEADER_LINES: ClassVar[int] = 0
    leads: ClassVar[bool] = True
    """Whether another widget shows details of the cursor's row.

    If False, the cursor is visible only while the list has the focus.
    """

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
        """Return the keys to which marks and actions on a row apply: its own key, or the keys of the rows that it groups."""
        return [key]

    def row_state(self, index: int) -> tuple[object, ...]:
        """Return the state of a row: all values that determine its look, except theme and width. Equal states look the same."""
        raise NotImplementedError

    def draw_row(self, state: tuple[object, ...]) -> list[Segment]:
        """Paint a row with its gutter; the result depends only on the state of the row, the theme and the width."""
        raise NotImplementedError

    def draw_header(self) -> list[Segment]:
        """Paint the header line."""
        raise NotImplementedError

    def click_header(self, x: int) -> None:
        """Handle a click on the header; `x` is the column in cells."""

    # --------------------------------------------------------------------------------------------- members for other widgets

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
        return self._empty_text

    @empty_text.setter
    def empty_text(self, text: str) -> None:
        if text != self._empty_text:
            self._empty_text = text
            if not self.shown_count:
                self.refresh()

    def refresh_rows(self) -> None:
        """Read the rows again.

        The cursor stays on its key and at its place on the screen; only changes are painted. If the cursor's row no longer exists,
        the row at the same place gets the cursor.
        """
        count = self.count_rows()
        before = self.cursor
        is_followed = self.follows_top and not before and not self.top
        index = self.index_of(self.cursor_key) if self.cursor_key is not None and count and not is_followed else None
        self.cursor = min(self.cursor, max(0, count - 1)) if index is None else index
        is_other_count, self.shown_count = count != self.shown_count, count
        if is_other_count:
            # The size is assigned without Textual's watcher, because the watcher would lay out the whole screen although nothing
            # moves.
            self.set_reactive(Rows.virtual_size, Size(self.virtual_size.width, count + self.HEADER_LINES))
        key = self.key_of(self.cursor) if count else None
        if self.is_attached:
            # If `top` is not where `starts_at_top` put it, the user has scrolled.
            self.starts_at_top &= self.top == max(0, before - self.page_rows + 1)
            top = max(0, self.cursor - self.page_rows + 1) if self.starts_at_top else self.top + self.cursor - before
            self.row_lines.keep_place(top - self.top)
            self.row_lines.refresh_changed()
        if is_other_count:
            self._fit_scroll_bar()
        if key != self.cursor_key:
            self.cursor_key = key
            self._move_place()

    def _fit_scroll_bar(self) -> None:
        """Update the length of the view.

        Request a new layout only if the scroll bar appears or disappears, or if the widget's height depends on the number of rows.
        """
        is_as_high_as_rows = self.styles.auto_dimensions
        if not is_as_high_as_rows:
            self._scroll_update(self.virtual_size)
        self.refresh(layout=is_as_high_as_rows)

    def move_cursor(self, index: int) -> None:
        """Put the cursor on a row and show it; an index outside the view is clamped."""
        count = self.shown_count
        if not count:
            return
        index = max(0, min(index, count - 1))
        was, self.cursor = self.cursor, index
        key = self.key_of(index)
        self.row_lines.show_cursor()
        if self.marks.are_in_range:
            self.row_lines.refresh_changed()
        else:
            self.row_lines.refresh_row(was)
            self.row_lines.refresh_row(index)
        if key != self.cursor_key:
            self.cursor_key = key
            self._move_place()
        if self.marks.are_in_range:
            self.post_message(self.MarksChanged(self))

    def start_at_top(self) -> None:
        """Go to the first row; the view stays there until the user moves the cursor."""
        self.action_first()
        self.starts_at_top = True

    def move_to_key(self, key: int) -> bool:
        """Put the cursor on the row with this key; return whether the view contains the row."""
        index = self.index_of(key)
        if index is None:
            return False
        self.move_cursor(index)
        return True

    def edge(self, *, is_cursor: bool, is_mark: bool, painter: Painter) -> Segment:
        """Return the cell at the left edge of a row: the bar of the cursor or the dot of a mark."""
        is_cursor = is_cursor and (self.leads or self.has_focus)
        name = "cursor_marked" if is_cursor and is_mark else "cursor" if is_cursor else "mark" if is_mark else ""
        role = "mark" if is_mark else ("accent" if self.has_focus else "muted") if is_cursor else ""
        return Segment(glyph(name) if name else " ", painter.style(role))

    # -------------------------------------------------------------------------------------------------------------- drawing

    def render_lines(self, crop: Region) -> list[Strip]:
        """Draw lines; theme and width are read once for all of them."""
        self.painting.begin()
        try:
            return super().render_lines(crop)
        finally:
            self.painting.end()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Scroll; draw the scroll bar again only if it looks different."""
        bar = self.vertical_scrollbar
        if self.show_vertical_scrollbar and _thumb(bar, new_value) == _thumb(bar, bar.position):
            bar.set_reactive(ScrollBar.position, bar.validate_position(new_value))  # assigns without notifying the scroll bar
        super().watch_scroll_y(old_value, new_value)

    def render_line(self, y: int) -> Strip:
        """Draw one line of the screen; called by Textual."""
        strip = self.row_lines.draw(y)
        return self.below(y, self.painting.width, self.painting.painter) if strip is None else strip

    def below(self, y: int, width: int, painter: Painter) -> Strip:
        """Draw a line below the last row: a blank line, or in an empty list a line of `empty_text`."""
        at = y - self.HEADER_LINES
        if self.empty_text and not self.shown_count and at >= 0:
            lines = self.empty_text.split("\n")
            rows = [line[start:end] for line in lines for start, end in wrap(line, max(1, width - 2))]
            at -= 0 if self.HEADER_LINES or self.page_rows < 3 else 1
            if 0 <= at < len(rows):
                return Strip(pad([Segment(f" {rows[at]}", painter.style("muted"))], width, painter.ground), width)
        return blank_line(width, painter.ground)

    def _move_place(self) -> None:
        self.row_lines.place_cursor()
        if self.cursor_key is not None:
            self.post_message(self.Highlighted(self, self.cursor_key))

    # --------------------------------------------------------------------------------------------------------------- actions

    def action_move(self, rows: int) -> None:
        """Move the cursor by rows."""
        self.move_cursor(self.cursor + rows)

    def action_page(self, pages: float) -> None:
        """Move cursor and view by pages; the cursor keeps its line on the screen."""
        rows = max(1, round(abs(pages) * self.page_rows)) * (1 if pages > 0 else -1)
        target = max(0, min(self.top + rows, self.shown_count - self.page_rows))
        if target != self.top:
            self.scroll_to(y=target, animate=False, force=True)
        self.move_cursor(self.cursor + rows)

    def action_first(self) -> None:
        """Go to the first row."""
        self.move_cursor(0)

    def action_last(self) -> None:
        """Go to the last row."""
        self.move_cursor(self.shown_count - 1)

    def action_mark(self) -> None:
        """Mark or unmark the cursor's row, and go to the next row."""
        if self.cursor_key is None:
            return
        self.marks.toggle(self.cursor_key)
        self.row_lines.refresh_row(self.cursor)
        self.move_cursor(self.cursor + 1)
        self.post_message(self.MarksChanged(self))

    def action_range(self) -> None:
        """Begin a range of marks at the cursor, or end it."""
        self.marks.toggle_range()
        self.row_lines.refresh_changed()
        self.post_message(self.MarksChanged(self))

    def action_unmark(self) -> None:
        """Clear all marks, and cancel a range that the user has begun."""
        self.marks.clear()
        self.row_lines.refresh_changed()
        self.post_message(self.MarksChanged(self))

    def action_open(self) -> None:
        """Post `Opened` for the cursor's row."""
        if self.cursor_key is not None:
            self.post_message(self.Opened(self, self.cursor_key))

    # ---------------------------------------------------------------------------------------------------------------- events

    def on_mount(self) -> None:
        """Read the view when the widget is mounted."""
        super().on_mount()  # type: ignore[no-untyped-call]  # Textual's
        self.refresh_rows()

    def on_resize(self) -> None:
        """Draw for another width; keep the cursor visible."""
        self.row_lines.forget()
        self.painting.forget()
        self.row_lines.show_cursor()
        self.refresh()

    def on_focus(self) -> None:
        """Draw the cursor as focused."""
        self.row_lines.place_cursor()
        self.row_lines.refresh_changed()

    def on_blur(self) -> None:
        """Draw the cursor as unfocused."""
        self.row_lines.refresh_changed()

    @on(events.MouseScrollDown)
    @on(events.MouseScrollUp)
    def _scroll_by_wheel(self, event: events.MouseEvent) -> None:
        """Scroll; the cursor stays on its row."""
        event.stop()
        event.prevent_default()
        rows = _WHEEL_ROWS if isinstance(event, events.MouseScrollDown) else -_WHEEL_ROWS
        self.scroll_to(y=self.top + rows, animate=False, force=True)

    def on_click(self, event: events.Click) -> None:
        """Move the cursor; post `Opened` on a double click and `ContextMenu` for the right button."""
        event.stop()
        place = event.get_content_offset(self)
        index = None if place is None else self.row_lines.row_at(place.y)
        if place is None or index is None:
            if place is not None and place.y < self.HEADER_LINES:
                self.click_header(place.x)
            return
        was = self.cursor_key
        self.move_cursor(index)
        if self.cursor_key is None:
            return
        if event.button == 3:
            self.post_message(self.ContextMenu(self, self.cursor_key, event.screen_x, event.screen_y))
        elif event.chain == 2 and was == self.cursor_key:
            self.post_message(self.Opened(self, self.cursor_key))
