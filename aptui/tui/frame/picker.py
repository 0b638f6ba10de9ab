"""The theme picker: a narrow column beside the pane, so that what is chosen is seen at once.

Which themes there are is `theming`'s.

Tests: `tests/tui/screens/tools/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message

from aptui.tui.frame.line import Part
from aptui.tui.frame.sheet import Lines
from aptui.tui.preferences.theming import Look


class ThemePicker(Vertical):
    """Moving shows a theme, Enter keeps it, Esc goes back to the one before."""

    DEFAULT_CSS = "ThemePicker { width: 34; height: 1fr; display: none; }"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "back", id="picker.close")]

    class Shown(Message):
        """Show this theme for now, or for good."""

        def __init__(self, name: str, *, is_kept: bool) -> None:
            super().__init__()
            self.name, self.is_kept = name, is_kept

    def __init__(self) -> None:
        super().__init__(id="picker")
        self._names: list[str] = []
        self._before = ""

    def start(self, looks: Sequence[Look], current: str) -> None:
        """Offer these themes."""
        self._names, self._before = [look.name for look in looks], current
        self.display = True
        if not self.children:
            self.mount(Lines(has_cursor=True))  # now, for few people ever open it
        at = self._names.index(current) if current in self._names else 0
        self.query_one(Lines).show([(Part(f" {look.name:<15}", "title"), Part(look.description, "muted")) for look in looks], at)
        self.query_one(Lines).focus()

    def on_lines_moved(self, event: Lines.Moved) -> None:
        """Show what the cursor is on."""
        event.stop()
        self.post_message(self.Shown(self._names[event.at], is_kept=False))

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        """Keep it."""
        event.stop()
        self.post_message(self.Shown(self._names[event.at], is_kept=True))

    def action_give_up(self) -> None:
        """Go back to the theme of before."""
        self.post_message(self.Shown(self._before, is_kept=True))
