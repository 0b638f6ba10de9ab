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
from aptui.tui.preferences.theming import ThemeFile

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

    class ThemePreviewed(Message):
        """Show this theme for now, or for good."""

        def __init__(self, name: str, *, is_final: bool) -> None:
            super().__init__()
            self.name, self.is_final = name, is_final

    def __init__(self) -> None:
        super().__init__(id="picker")
        self._themes: Sequence[ThemeFile] = ()
        self._names: list[str] = []
        self._before = ""

    def start(self, themes: Sequence[ThemeFile], current: str) -> None:
        """Offer these themes."""
        self._names, self._before, self._themes = [theme.name for theme in themes], current, themes
        self.display = True
        if not self.children:  # now, for few people ever open it
            about = Lines(name="picker-about")
            about.can_focus = False
            self.mount(Lines(name="picker-names", has_cursor=True), about)
        at = self._names.index(current) if current in self._names else 0
        names = self.query_one("#picker-names", Lines)
        names.show([(Part(f" {name}", "title"),) for name in self._names], at)
        names.styles.height = len(self._names)
        self._describe(at)
        names.focus()

    def _describe(self, at: int) -> None:
        """Show the description of a theme below the names."""
        words = wrap(self._themes[at].description, _TEXT_CELLS) if self._themes else []
        self.query_one("#picker-about", Lines).show([(), *((Part(f" {line}", "muted"),) for line in words)])

    def on_lines_line_moved(self, event: Lines.LineMoved) -> None:
        """Show what the cursor is on."""
        event.stop()
        self._describe(event.at)
        self.post_message(self.ThemePreviewed(self._names[event.at], is_final=False))

    def on_lines_line_chosen(self, event: Lines.LineChosen) -> None:
        """Keep it."""
        event.stop()
        self.post_message(self.ThemePreviewed(self._names[event.at], is_final=True))

    def action_give_up(self) -> None:
        """Go back to the theme of before."""
        self.post_message(self.ThemePreviewed(self._before, is_final=True))
