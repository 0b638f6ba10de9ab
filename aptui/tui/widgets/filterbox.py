"""The filter line `FilterBox`: it has a history, and shows the number of hits or the position of a mistake.

The screen defines what a filter means.

    box = FilterBox(history=["failed", "platform:pc"], id="filter")
    def on_filter_box_changed(self, event):  …event.text  → filter while the user types, then
        box.show_count("37 of 12,408")  or  box.show_mistake(4, "unclosed group")      # column from 0 of the text
    def on_filter_box_filter_left(self, event): table.focus()        # after Enter (kept) and after Esc

Enter keeps the filter and adds it to the history. Esc leaves the line and restores the text that it had when the user began to
type. Up and down move through the history, right accepts the suggestion.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.reactive import Reactive
from textual.suggester import Suggester
from textual.widget import Widget
from textual.widgets import Input, Static
from textual.widgets.input import Selection

from aptui.shared.errors import KnownError
from aptui.tui.terminal.safety import make_safe
from aptui.tui.widgets.cells import width_of, wrap


def give_focus(widget: Widget) -> None:
    """Focus a widget at once, so that it receives keys that were typed ahead; if it is not visible yet, focus it later."""
    if widget.focusable and widget.display:
        widget.screen.set_focus(widget)
    else:
        widget.focus()


MOST_REMEMBERED = 50
_BETWEEN_PARTS = re.compile(r"(?<=[,;:]) ")
_BEFORE_TEXT = 3
"""Number of cells before the filter text, for the sign "/" and the blanks around it."""
_AROUND_COUNT, _MOST_FOR_COUNT = 2, 60
"""The number of hits has `_AROUND_COUNT` blank cells, the left and right sides together.

The hint before the number is shown only if both fit into `_MOST_FOR_COUNT` per cent of the box's width.
"""


class History(Suggester):
    """The texts that were entered earlier, the newest first; the input line suggests them."""

    def __init__(self, texts: Iterable[str]) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self.texts = list(texts)[:MOST_REMEMBERED]

    def add(self, text: str) -> None:
        """Add a text as the newest text of the history."""
        if text:
            self.texts = [text, *(other for other in self.texts if other != text)][:MOST_REMEMBERED]

    async def get_suggestion(self, value: str) -> str | None:
        """Return the newest text that begins with `value`."""
        return next((text for text in self.texts if text.startswith(value) and text != value), None)


def fitting(hint: str, cells: int) -> str:
    """Return as many leading parts of `hint` as fit into `cells` without cutting a part."""
    ends = [found.start() for found in _BETWEEN_PARTS.finditer(hint)] + [len(hint)]
    return next((hint[:end].rstrip(",;") for end in reversed(ends) if width_of(hint[:end].rstrip(",;")) <= cells), "")


class _FilterLine(Input):
    """The input line: arrows walk the history, Esc cancels."""

    virtual_size = Reactive(Size(0, 0))
    """Overrides an attribute of Textual, so that a change of the text's length does not lay out the screen again."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "older", "older filter", id="filter.older", show=False),
        Binding("down", "newer", "newer filter", id="filter.newer", show=False),
        Binding("enter", "submit", "keep", id="filter.keep"),
        Binding("escape", "leave", "cancel", id="filter.leave"),
    ]

    def on_resize(self, event: events.Resize) -> None:
        """Shorten the placeholder to the parts that fit."""
        self.placeholder = fitting(self.box.hint, event.size.width)

    def watch_virtual_size(self) -> None:
        """Scroll back when the text became shorter."""
        self.scroll_x = self.validate_scroll_x(self.scroll_x)

    @property
    def box(self) -> FilterBox:
        found = self.query_ancestor(FilterBox)
        assert isinstance(found, FilterBox)
        return found

    def action_older(self) -> None:
        self.box.walk_history(1)

    def action_newer(self) -> None:
        self.box.walk_history(-1)

    def action_leave(self) -> None:
        self.box.cancel()


class _FilterRow(Widget):
    """The row with sign, input and count. It is not a `Horizontal`, because screens set the sizes of all `Horizontal`s."""


class FilterBox(Widget):
    """The filter line; the module docstring describes it. It is one line high, or more while it shows a mistake."""

    DEFAULT_CSS = """
    FilterBox { height: auto; width: 1fr; }
    FilterBox > _FilterRow { layout: horizontal; height: 1; width: 1fr; }
    FilterBox .sign { width: 3; }
    FilterBox Input, FilterBox Input:focus { width: 1fr; height: 1; background: $background; border: none; padding: 0;
                                             scrollbar-size: 0 0; }
    FilterBox .count { width: 2; max-width: 60%; padding: 0 1; color: $secondary; text-align: right; }
    FilterBox .mistake { height: 1; width: 1fr; display: none; color: $error; }
    """

    @dataclass
    class Changed(Message):
        """Posted for every key that changes the text."""

        box: FilterBox
        text: str

        @property
        def control(self) -> FilterBox:
            """The box that posted the message."""
            return self.box

    @dataclass
    class FilterLeft(Changed):
        """Posted when the user left the line.

        `text` is the filter; after Esc, it is the filter that was active before the user began to type. `is_remembered` is true
        after Enter.
        """

        is_remembered: bool = True

    def __init__(self, text: str = "", *, history: Iterable[str] = (), placeholder: str = "", **named: Any) -> None:
        super().__init__(**named)
        self.history = History(history)
        self._walked = -1
        self._typed = self._before = text
        self.hint = placeholder
        self._line = _FilterLine("", compact=True, select_on_focus=False)
        self._line.cursor_blink = False
        self._count = Static("", markup=False, classes="count")
        self._count_cells = 0
        """Width of the count in cells; it never shrinks, because each change would lay out the whole screen."""
        self._mistake = Static("", markup=False, classes="mistake")

    def compose(self) -> ComposeResult:
        """Create the widgets."""
        with _FilterRow():
            yield Static(" / ", markup=False, classes="sign")
            yield self._line
            yield self._count
        yield self._mistake

    def on_mount(self) -> None:
        """Write the text without posting `Changed`, and start to suggest texts."""
        with self._line.prevent(Input.Changed):
            self.text = self._typed
        self._line.suggester = self.history

    @property
    def text(self) -> str:
        """The current text."""
        return self._line.value if self._line.is_attached else self._typed

    @text.setter
    def text(self, text: str) -> None:
        if not self._line.is_attached:
            self._typed = text
            return
        self._line.value = text
        self._line.cursor_position = len(text)

    def focus(self, scroll_visible: bool = True) -> FilterBox:  # noqa: FBT002  # Textual defines this signature
        """Give the focus to the line."""
        self._line.focus(scroll_visible)
        return self

    def begin(self) -> None:
        """Focus the line at once and select its text, so that typing replaces the text."""
        self._before = self.text
        give_focus(self._line)
        self._line.selection = Selection(0, len(self.text))

    def show_count(self, text: str, hint: str = "") -> None:
        """Show the number of hits at the right, with a hint before it if there is room; hide the message about a mistake."""
        self._mistake.display = False
        hinted = f"{make_safe(hint)}   {make_safe(text)}"
        free_width = self.size.width * _MOST_FOR_COUNT // 100 - _AROUND_COUNT
        self._write_count(Content(hinted if hint and width_of(hinted) <= free_width else make_safe(text)))

    def _write_count(self, content: Content) -> None:
        if content.cell_length > self._count_cells:
            self._count_cells = content.cell_length
            self._count.styles.width = content.cell_length + _AROUND_COUNT
        if content != self._count.content:
            self._count.update(content, layout=False)

    def show_mistake(self, column: int, text: str, hint: str = "", *, count: str | None = None) -> None:
        """Show a mistake below the line, with a "^" at its position.

        `count` is the text with the number of hits; it stays visible beside the mistake.
        """
        message = make_safe(f"{text}; {hint}" if hint else text)
        if count is not None:
            self._write_count(Content(make_safe(count)))
        shift = self._line.scroll_offset.x
        place = _BEFORE_TEXT + max(0, min(column, len(self.text)) - shift)
        rows = _point_at(message, place, self.size.width)
        self._mistake.styles.height = len(rows)
        self._mistake.update(Content("\n".join(rows)), layout=False)
        self._mistake.display = True

    def show_error(self, error: KnownError) -> None:
        """Show an error about the typed text below the line; for a `FilterError`, mark the position of the mistake."""
        self.show_mistake(getattr(error, "column", 1) - 1, error.what, error.hint)

    def walk_history(self, step: int) -> None:
        """Show an older (1) or newer (-1) filter of the history; a step beyond the newest filter restores the typed text."""
        if self._walked < 0:
            self._typed = self.text
        self._walked = max(-1, min(self._walked + step, len(self.history.texts) - 1))
        self.text = self._typed if self._walked < 0 else self.history.texts[self._walked]

    def cancel(self) -> None:
        """Leave the line and restore the text that it had when the user began to type."""
        self._walked = -1
        with self._line.prevent(Input.Changed):
            self.text = self._before
        self.post_message(self.Changed(self, self._before))
        self.post_message(self.FilterLeft(self, self._before, is_remembered=False))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Post `Changed` with the new text."""
        event.stop()
        if self._walked >= 0 and event.value != self.history.texts[self._walked]:
            self._walked = -1
        self.post_message(self.Changed(self, event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Add the typed filter to the history, and end typing."""
        event.stop()
        self.history.add(event.value)
        self._walked = -1
        self.post_message(self.FilterLeft(self, event.value))

    def on_click(self, event: events.Click) -> None:
        """Take the focus for a click anywhere in the box."""
        event.stop()
        self._line.focus()


def _point_at(message: str, place: int, width: int) -> list[str]:
    """Return the rows of a message. The first row has a "^" at column `place`; the message is wrapped into the rows it needs."""
    caret = f"{'^':>{place + 1}}"
    if not width or place + 2 + width_of(message) <= width:
        return [f"{caret} {message}"]
    if width_of(message) < place:
        return [f"{message:>{place - 1}} ^"]
    is_beside = place + 2 <= width // 2
    indent = place + 2 if is_beside else _BEFORE_TEXT
    rows = [" " * indent + message[start:end].rstrip() for start, end in wrap(message, width - indent)]
    return [f"{caret} {rows[0].lstrip()}", *rows[1:]] if is_beside else [caret, *rows]
