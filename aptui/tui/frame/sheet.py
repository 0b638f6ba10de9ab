"""A list of lines that scrolls, with or without a cursor; and the sheets made of it, which take a pane's place for a while.

Tests: `tests/tui/test_shell.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Input

from aptui.tui.frame.line import Part, Parts, strip_of
from aptui.tui.preferences.theming import roles

if TYPE_CHECKING:
    from textual import events


BREAK = Part("\n")
"""Where an entry of a sheet goes on in another line; it is found, or not, as a whole."""


def break_entries(entries: Sequence[Parts]) -> list[Parts]:
    """Return the lines of entries."""
    lines: list[Parts] = []
    for entry in entries:
        start = 0
        for at in [at for at, part in enumerate(entry) if part == BREAK]:
            lines.append(entry[start:at])
            start = at + 1
        lines.append(entry[start:])
    return lines


class Lines(ScrollView, can_focus=True, inherit_bindings=False):
    """Lines to read, or with `has_cursor` to choose from."""

    DEFAULT_CSS = "Lines { width: 1fr; height: 1fr; scrollbar-size-vertical: 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "up", "up", show=False, id="sheet.up"),
        Binding("down,j", "down", "down", show=False, id="sheet.down"),
        Binding("pageup,ctrl+u", "page(-1)", "page up", show=False, id="sheet.page_up"),
        Binding("pagedown,ctrl+d", "page(1)", "page down", show=False, id="sheet.page_down"),
        Binding("home,g", "end(-1)", "first", show=False, id="sheet.first"),
        Binding("end,G", "end(1)", "last", show=False, id="sheet.last"),
        Binding("enter", "choose", "choose", id="sheet.choose"),
    ]

    class LineMoved(Message):
        """The cursor is on another line."""

        def __init__(self, lines: Lines, at: int) -> None:
            super().__init__()
            self.lines, self.at = lines, at

    class LineChosen(LineMoved):
        """A line was chosen."""

    def __init__(self, *, has_cursor: bool = False, name: str | None = None) -> None:
        super().__init__(id=name)
        self._lines: Sequence[Parts] = ()
        self.has_cursor, self.at = has_cursor, 0

    def show(self, lines: Sequence[Parts], at: int = 0) -> None:
        """Show these lines, the cursor on line `at`."""
        self._lines, self.at = lines, at
        self.virtual_size = Size(self.size.width, len(lines))
        self.refresh()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002  # Textual's
        """Whether an action makes sense: nothing can be chosen without a cursor."""
        return action != "choose" or self.has_cursor

    def action_up(self) -> None:
        """Go one line up."""
        self._go(-1)

    def action_down(self) -> None:
        """Go one line down."""
        self._go(1)

    def action_page(self, way: int) -> None:
        """Go one page."""
        self._go(way * max(1, self.size.height - 1))

    def action_end(self, way: int) -> None:
        """Go to the first or the last line."""
        self._go(way * len(self._lines))

    def action_choose(self) -> None:
        """Choose the line of the cursor."""
        if self._lines:
            self.post_message(self.LineChosen(self, self.at))

    def _go(self, count: int) -> None:
        if not self.has_cursor:
            self.scroll_to(y=self.scroll_y + count, animate=False)
            return
        at = max(0, min(self.at + count, len(self._lines) - 1))
        if at != self.at:
            self.at = at
            top, height = round(self.scroll_y), max(1, self.size.height)
            self.scroll_to(y=min(max(top, at - height + 1), at), animate=False)
            self.refresh()
            self.post_message(self.LineMoved(self, at))

    def render_line(self, y: int) -> Strip:
        """Return one line."""
        at = y + round(self.scroll_y)
        width, base = self.size.width, self.rich_style
        if at >= len(self._lines):
            return Strip.blank(width, base)
        strip = strip_of(self._lines[at], self, width, base)
        return strip.apply_style(roles(self.app)["cursor"]) if self.has_cursor and at == self.at else strip

    async def on_click(self, event: events.Click) -> None:
        """Choose the line under the pointer."""
        at = round(self.scroll_y) + event.y
        if self.has_cursor and at < len(self._lines):
            self._go(at - self.at)
            self.action_choose()


class Sheet(Vertical):
    """Lines that take the place of the pane until `Esc`; `filter` asks for an input above them that narrows them."""

    DEFAULT_CSS = "Sheet { width: 1fr; height: 1fr; } Sheet Input { margin: 0 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", "back", id="sheet.close")]

    class SheetClosed(Message):
        """The sheet is done with."""

    def __init__(self, name: str, *, placeholder: str | None = None) -> None:
        super().__init__(id=name)
        self._placeholder = placeholder
        self._all: Sequence[Parts] = ()

    def _fill(self) -> None:
        """Mount input and lines with the first lines to show: most sheets are never opened, and all are there from the start."""
        if self.children:
            return
        if self._placeholder is not None:
            narrow = Input(placeholder=self._placeholder, compact=True, select_on_focus=False)
            narrow.cursor_blink = False
            self.mount(narrow)
        self.mount(Lines())

    def show(self, lines: Sequence[Parts]) -> None:
        """Show these lines, all of them."""
        self._fill()
        self._all = lines
        for narrow in self.query(Input):
            narrow.value = ""
        self.query_one(Lines).show(break_entries(lines))
        self.query_one(Lines).scroll_to(y=0, animate=False)

    def take_focus(self) -> None:
        """Put the focus where typing makes sense."""
        self._fill()
        self.query_one(Input if self._placeholder is not None else Lines).focus()

    def action_close(self) -> None:
        """Go back to the pane; with a filter, first clear that."""
        for narrow in self.query(Input):
            if narrow.value:
                narrow.value = ""
                return
        self.post_message(self.SheetClosed())

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show the lines that contain every word."""
        event.stop()
        words = event.value.lower().split()
        texts = ("".join(part.text for part in parts).lower() for parts in self._all)
        found = [parts for parts, text in zip(self._all, texts, strict=True) if all(word in text for word in words)]
        self.query_one(Lines).show(break_entries(found) or [(Part(" nothing here has these words; Esc shows all again", "muted"),)])

    def on_key(self, event: events.Key) -> None:
        """Let arrows and pages scroll while the filter has the focus."""
        ways = {"up": -1, "down": 1, "pageup": -10, "pagedown": 10}
        key = event.key
        if key in ways and isinstance(self.app.focused, Input):
            self.query_one(Lines)._go(ways[key])  # noqa: SLF001  # its own part
