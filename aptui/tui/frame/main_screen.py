"""The only screen of the app, and when it is first drawn: with the first rows, so that nothing is drawn twice on the way to them.

Until then what `terminal/skeleton` wrote stands. Parts are laid out meanwhile; that costs little.

Tests: `tests/tui/frame/test_main_screen.py`.
"""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.screen import Screen

from aptui.tui.terminal.output.compositor import ChangedLines


class MainScreen(Screen[None], inherit_bindings=False):
    """The only screen; everything that pops up is a part of it."""

    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "app.focus_next", "next part", show=False, id="app.next_part"),
        Binding("shift+tab", "app.focus_previous", "previous part", show=False, id="app.previous_part"),
    ]

    def __init__(self) -> None:
        # Nearly all terminals are tall; the class that comes with the first size has everything styled anew.
        super().__init__(id="_default", classes="-tall")
        self._compositor = ChangedLines()
        self.is_shown = False
        """Whether it is drawn from now on."""

    def show(self) -> None:
        """Draw it, now that there is something to see."""
        if not self.is_shown:
            self.is_shown = True
            self.refresh()

    def _on_screen_resume(self, event: events.ScreenResume) -> None:
        """Spare what was styled as it was mounted the same once more; Textual calls its own method after this one."""
        if not self.stack_updates:
            event.refresh_styles = False

    def _compositor_refresh(self) -> None:
        """Draw what changed."""
        if self.is_shown:
            super()._compositor_refresh()
        else:
            self._dirty_widgets.clear()
