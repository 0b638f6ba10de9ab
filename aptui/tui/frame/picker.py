"""The theme picker: a narrow column beside the pane, so that what is chosen is seen at once.

Which themes there are is `theming`'s.

Tests: `tests/tui/screens/tools/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message

from aptui.tui.frame.line import Part
from aptui.tui.frame.sheet import Lines
from aptui.tui.preferences.theming import Look

_TEXT_CELLS = 28
"""So wide is what is said of a theme."""


class ThemePicker(Vertical):
    """Moving shows a theme, Enter keeps it, Esc goes back to the one before."""

    DEFAULT_CSS = """
    ThemePicker { width: 30; height: 1fr; display: none; }
    ThemePicker #picker-names { height: auto; max-height: 70%; }
    ThemePicker #picker-about { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "back", id="picker.close")]

    class Shown(Message):
        """Show this theme for now, or for good."""

        def __init__(self, name: str, *, is_kept: bool) -> None:
            super().__init__()
            self.name, self.is_kept = name, is_kept

    def __init__(self) -> None:
        super().__init__(id="picker")
        self._looks: Sequence[Look] = ()
        self._names: list[str] = []
        self._before = ""

    def start(self, looks: Sequence[Look], current: str) -> None:
        """Offer these themes."""
        self._names, self._before, self._looks = [look.name for look in looks], current, looks
        self.display = True
        if not self.children:  # now, for few people ever open it
            about = Lines(name="picker-about")
            about.can_focus = False
            self.mount(Lines(name="picker-names", has_cursor=True), about)
        at = self._names.index(current) if current in self._names else 0
        names = self.query_one("#picker-names", Lines)
        names.show([(Part(f" {name}", "title"),) for name in self._names], at)
        names.styles.height = len(self._names)
        self._tell_about(at)
        names.focus()

    def _tell_about(self, at: int) -> None:
        """Say below the names what a theme is like."""
        words = wrap(self._looks[at].description, _TEXT_CELLS) if self._looks else []
        self.query_one("#picker-about", Lines).show([(), *((Part(f" {line}", "muted"),) for line in words)])

    def on_lines_moved(self, event: Lines.Moved) -> None:
        """Show what the cursor is on."""
        event.stop()
        self._tell_about(event.at)
        self.post_message(self.Shown(self._names[event.at], is_kept=False))

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        """Keep it."""
        event.stop()
        self.post_message(self.Shown(self._names[event.at], is_kept=True))

    def action_give_up(self) -> None:
        """Go back to the theme of before."""
        self.post_message(self.Shown(self._before, is_kept=True))
