"""The ground of every list on screen: rows with keys, a cursor that stays on its key, marks, paging, mouse.

What a row looks like is decided elsewhere.

A subclass says how many rows there are, which key each has and how it is drawn. Nothing here is done for all rows: a frame costs
what is visible.

Tests: `tests/tui/widgets/test_table.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Offset, Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import Painter, merge, pad, painter_of, wrap

_WHEEL_ROWS = 3
_KEPT_STRIPS = 1024


class Rows(ScrollView, can_focus=True):
    """A scrolling list of rows, each with a stable key.

    Keys: j k arrows, ctrl+d ctrl+u, page keys, g G home end; space marks, v marks a range (again ends it), u clears; enter opens.
    The ids of the bindings are `rows.<action>`; rebind them with `App.set_keymap`. Ruled by `Highlighted`, `Opened`, `ContextMenu`
    and `MarksChanged`.
    """

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
    class RowMessage(Message):
        """What all messages about a row say: the widget, and the row's key."""

        rows: Rows
        key: int

        @property
        def control(self) -> Rows:
            """The widget it is about; `@on(Rows.Opened, "#jobs")` selects by it."""
            return self.rows

    class Highlighted(RowMessage):
        """The cursor is on another row now."""

    class Opened(RowMessage):
        """Enter, or a double click."""

    @dataclass
    class ContextMenu(RowMessage):
        """The right button, at a place on the screen; the cursor moved there first."""

        x: int
        y: int

    @dataclass
    class MarksChanged(Message):
        """Other rows are marked now."""

        rows: Rows

        @property
        def control(self) -> Rows:
            """The widget it is about."""
            return self.rows

    def __init__(
        self,
        *,
        name: str | None = None,
        id: str | None = None,  # noqa: A002  # Textual's name
        classes: str | None = None,
        disabled: bool = False,
    ) -> None:
        super().__init__(name=name, id=id, classes=classes, disabled=disabled)
        self.cursor = 0
        """Index of the cursor's row in the view; 0 where there are none."""
        self.cursor_key: int | None = None
        self.follows_top = False
        """Whether a cursor on the first row stays on the first row, whichever that is, instead of on its key."""
        self.marks: set[int] = set()
        """Keys of the marked rows; rows that are filtered away stay marked."""
        self._empty_text = ""
        self._range_key: int | None = None
        self._row_count = 0
        self._painter: Painter | None = None
        self._painted_width: int | None = None
        self._drawn: dict[int, tuple[object, ...]] = {}
        """{y: what the line was painted from} of the lines on screen."""

    # ------------------------------------------------------------------------------------------------ what a subclass says

    HEADER_LINES: ClassVar[int] = 0
    leads: ClassVar[bool] = True
    """Whether something else shows what its cursor is on. Where nothing does, the cursor shows only while it has the keys."""

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

    def visual_changed(self) -> None:
        """Forget what was made for another theme or width."""
        self._strips.clear()

    # ------------------------------------------------------------------------------------------------------- what others use

    @property
    def empty_text(self) -> str:
        """What is said where there is no row."""
        return self._empty_text

    @empty_text.setter
    def empty_text(self, text: str) -> None:
        if text != self._empty_text:
            self._empty_text = text
            if not self._row_count:
                self.refresh()

    def refresh_rows(self) -> None:
        """Look at the view again: the cursor stays on its key and on its place on screen, and only what differs is painted.

        Where the row of the cursor is gone, the row that took its place has the cursor.
        """
        count = self.count_rows()
        before = self.cursor
        is_followed = self.follows_top and not before and not self.top
        index = self.index_of(self.cursor_key) if self.cursor_key is not None and count and not is_followed else None
        self.cursor = min(self.cursor, max(0, count - 1)) if index is None else index
        is_other_count, self._row_count = count != self._row_count, count
        if is_other_count:
            # Set as any attribute it has the whole screen laid out again, and no part of it stands elsewhere after.
            self.set_reactive(Rows.virtual_size, Size(self.virtual_size.width, count + self.HEADER_LINES))
        key = self.key_of(self.cursor) if count else None
        if self.is_attached:
            self._keep_place(self.cursor - before)
            self._repaint_changed()
        if is_other_count:
            self._fit_scroll_bar()
        if key != self.cursor_key:
            self.cursor_key = key
            self._move_place()

    def _fit_scroll_bar(self) -> None:
        """Show how long the view is now; a bar that comes or goes is laid out, and a height that follows the rows."""
        is_as_high_as_rows = self.styles.auto_dimensions
        if not is_as_high_as_rows:
            self._scroll_update(self.virtual_size)
        self.refresh(layout=is_as_high_as_rows)

    def move_cursor(self, index: int) -> None:
        """Put the cursor on a row of the view, clamped to it, and show it."""
        count = self._row_count
        if not count:
            return
        index = max(0, min(index, count - 1))
        was, self.cursor = self.cursor, index
        key = self.key_of(index)
        self.show_cursor()
        if self._range_key is not None:
            self._repaint_changed()
        else:
            self._refresh_row(was)
            self._refresh_row(index)
        if key != self.cursor_key:
            self.cursor_key = key
            self._move_place()
        if self._range_key is not None:
            self.post_message(self.MarksChanged(self))

    def move_to_key(self, key: int) -> bool:
        """Put the cursor on the row with this key; return whether the view has it."""
        index = self.index_of(key)
        if index is None:
            return False
        self.move_cursor(index)
        return True

    def selected_keys(self) -> list[int]:
        """Return what an action is about: the marked rows in the order of the view (hidden ones last), or else the cursor's row."""
        keys = self.marks | set(self._range())
        if not keys:
            return [] if self.cursor_key is None else [self.cursor_key]
        order = {key: self.index_of(key) for key in keys}
        return sorted(keys, key=lambda key: (order[key] is None, order[key] or 0, key))

    @property
    def is_in_range(self) -> bool:
        """Whether a range of marks was begun and not ended."""
        return self._range_key is not None

    def is_marked(self, index: int, key: int) -> bool:
        """Whether a row is marked, or will be when the range ends."""
        if key in self.marks:
            return True
        if self._range_key is None:
            return False
        anchor = self.index_of(self._range_key)
        return anchor is not None and min(anchor, self.cursor) <= index <= max(anchor, self.cursor)

    @property
    def page_rows(self) -> int:
        """How many rows are visible at once."""
        return max(1, self.scrollable_content_region.height - self.HEADER_LINES)

    @property
    def top(self) -> int:
        """Index of the first visible row."""
        return round(self.scroll_y)

    def edge(self, *, is_cursor: bool, is_mark: bool, painter: Painter) -> Segment:
        """Return the cell at the left edge: the bar of the cursor, the dot of a mark."""
        is_cursor = is_cursor and (self.leads or self.has_focus)
        name = "cursor_marked" if is_cursor and is_mark else "cursor" if is_cursor else "mark" if is_mark else ""
        role = "mark" if is_mark else ("accent" if self.has_focus else "muted") if is_cursor else ""
        return Segment(glyph(name) if name else " ", painter.style(role))

    @property
    def painter(self) -> Painter:
        """The styles of now."""
        if self._painted_width is not None and self._painter is not None:
            return self._painter
        painter = painter_of(self, self._painter)
        if painter is not self._painter:
            self._painter = painter
            self.visual_changed()
        return painter

    # -------------------------------------------------------------------------------------------------------------- drawing

    @property
    def row_width(self) -> int:
        """How many cells a row has, gutter included."""
        return self.scrollable_content_region.width if self._painted_width is None else self._painted_width

    def render_lines(self, crop: Region) -> list[Strip]:
        """Draw lines; theme and width are looked up once for all of them."""
        _ = self.painter
        self._painted_width = self.row_width
        try:
            return super().render_lines(crop)
        finally:
            self._painted_width = None

    def render_line(self, y: int) -> Strip:
        """Draw one line of the screen; Textual calls it."""
        width = self.row_width
        painter = self.painter
        if y < self.HEADER_LINES:
            return Strip(pad(self.draw_header(), width, painter.ground), width)
        index = y - self.HEADER_LINES + self.top
        if index >= self._row_count or index >= self.count_rows():
            self._drawn.pop(y, None)
            return self.below(y, width, painter)
        state = self.row_state(index)
        self._drawn[y] = state
        return self._strip_of(state, width)

    def below(self, y: int, width: int, painter: Painter) -> Strip:
        """Draw a line that no row is on."""
        if self.empty_text and not self._row_count:
            at = y - self.HEADER_LINES - (0 if self.HEADER_LINES or self.page_rows < 3 else 1)
            rows = wrap(self.empty_text, max(1, width - 2))
            if 0 <= at < len(rows):
                text = self.empty_text[slice(*rows[at])]
                return Strip(pad([Segment(f" {text}", painter.style("muted"))], width, painter.ground), width)
        return Strip([Segment(" " * width, painter.ground)], width)

    @property
    def _strips(self) -> dict[tuple[object, ...], Strip]:
        try:
            return self._strip_cache
        except AttributeError:
            self._strip_cache: dict[tuple[object, ...], Strip] = {}
            return self._strip_cache

    def _strip_of(self, state: tuple[object, ...], width: int) -> Strip:
        strip = self._strips.get(state)
        if strip is None or strip.cell_length != width:
            if len(self._strips) >= _KEPT_STRIPS:
                self._strips.clear()
            strip = Strip(merge(pad(self.draw_row(state), width, self.painter.ground)), width)
            self._strips[state] = strip
        return strip

    def _refresh_row(self, index: int) -> None:
        y = index - self.top + self.HEADER_LINES
        if self.HEADER_LINES <= y < self.size.height:
            self.refresh(Region(0, y, self.size.width, 1))

    def _repaint_changed(self) -> None:
        """Repaint the visible rows that do not look as they did."""
        regions = []
        for y in range(self.HEADER_LINES, self.scrollable_content_region.height):
            index = y - self.HEADER_LINES + self.top
            state = self.row_state(index) if index < self._row_count else None
            if state != self._drawn.get(y):
                regions.append(Region(0, y, self.size.width, 1))
        if self.empty_text and not self._row_count:
            self.refresh()
        elif regions:
            self.refresh(*regions)

    def _keep_place(self, shift: int) -> None:
        """Scroll with the cursor's row, so that it stays where it is on screen."""
        if shift:
            self.scroll_to(y=max(0, min(self.top + shift, self._row_count - self.page_rows)), animate=False, force=True)
        self.show_cursor()

    def show_cursor(self) -> None:
        """Scroll as little as needed to see the cursor."""
        if not self.is_attached or not self.scrollable_content_region.height:
            return
        top, page = self.top, self.page_rows
        if self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False, force=True)
        elif self.cursor >= top + page:
            self.scroll_to(y=self.cursor - page + 1, animate=False, force=True)

    def _move_place(self) -> None:
        self._tell_terminal()
        if self.cursor_key is not None:
            self.post_message(self.Highlighted(self, self.cursor_key))

    def _tell_terminal(self) -> None:
        """Put the terminal's own (hidden) cursor on the row: screen readers and braille displays follow it."""
        if self.has_focus:
            region = self.scrollable_content_region
            line = self.cursor - self.top + self.HEADER_LINES
            self.app.cursor_position = Offset(region.x, region.y + max(0, min(line, region.height - 1)))

    # --------------------------------------------------------------------------------------------------------------- actions

    def action_move(self, rows: int) -> None:
        """Move the cursor."""
        self.move_cursor(self.cursor + rows)

    def action_page(self, pages: float) -> None:
        """Move cursor and view by pages, so that the cursor keeps its place on screen."""
        rows = max(1, round(abs(pages) * self.page_rows)) * (1 if pages > 0 else -1)
        target = max(0, min(self.top + rows, self._row_count - self.page_rows))
        if target != self.top:
            self.scroll_to(y=target, animate=False, force=True)
        self.move_cursor(self.cursor + rows)

    def action_first(self) -> None:
        """Go to the first row."""
        self.move_cursor(0)

    def action_last(self) -> None:
        """Go to the last row."""
        self.move_cursor(self._row_count - 1)

    def action_mark(self) -> None:
        """Mark the row, or take its mark away, and go on to the next one."""
        if self.cursor_key is None:
            return
        self.marks ^= {self.cursor_key}
        self._refresh_row(self.cursor)
        self.move_cursor(self.cursor + 1)
        self.post_message(self.MarksChanged(self))

    def action_range(self) -> None:
        """Begin a range of marks at the cursor, or end it."""
        if self._range_key is None:
            self._range_key = self.cursor_key
        else:
            self.marks |= set(self._range())
            self._range_key = None
        self._repaint_changed()
        self.post_message(self.MarksChanged(self))

    def action_unmark(self) -> None:
        """Clear all marks, and a range that was begun."""
        self.marks.clear()
        self._range_key = None
        self._repaint_changed()
        self.post_message(self.MarksChanged(self))

    def action_open(self) -> None:
        """Say that the row is to be opened."""
        if self.cursor_key is not None:
            self.post_message(self.Opened(self, self.cursor_key))

    def _range(self) -> list[int]:
        anchor = None if self._range_key is None else self.index_of(self._range_key)
        if anchor is None or not self._row_count:
            return []
        low, high = sorted((anchor, self.cursor))
        return [self.key_of(index) for index in range(low, high + 1)]

    # ---------------------------------------------------------------------------------------------------------------- events

    def on_mount(self) -> None:
        """Take the size of the view."""
        super().on_mount()  # type: ignore[no-untyped-call]  # Textual's
        self.refresh_rows()

    def on_resize(self) -> None:
        """Draw for another width, with the cursor in sight."""
        self._drawn.clear()
        self._strips.clear()
        self.show_cursor()
        self.refresh()

    def on_focus(self) -> None:
        """Show that the keys come here."""
        self._tell_terminal()
        self._repaint_changed()

    def on_blur(self) -> None:
        """Show that the keys go elsewhere."""
        self._repaint_changed()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll; the cursor stays on its row."""
        self._wheel(event, _WHEEL_ROWS)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll; the cursor stays on its row."""
        self._wheel(event, -_WHEEL_ROWS)

    def _wheel(self, event: events.MouseEvent, rows: int) -> None:
        event.stop()
        event.prevent_default()
        self.scroll_to(y=self.top + rows, animate=False, force=True)

    def on_click(self, event: events.Click) -> None:
        """Move the cursor, open on a double click, ask for the menu on the right button."""
        event.stop()
        place = event.get_content_offset(self)
        index = None if place is None else self.row_at(place.y)
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

    def row_at(self, y: int) -> int | None:
        """Return the index of the row at a line of the widget."""
        index = y - self.HEADER_LINES + self.top
        return index if y >= self.HEADER_LINES and index < self._row_count else None

    def click_header(self, x: int) -> None:
        """React to a click on the header at a column of cells."""
