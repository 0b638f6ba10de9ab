"""What one frame draws: news for every pane, the lines of the frame, the pane in sight. When it does is `frame_clock`'s business.

Tests: `tests/tui/frame/test_main_screen.py`, `tests/tui/test_shell.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from textual.app import App

from aptui.tui.frame.line import Line
from aptui.tui.frame.main_screen import MainScreen

if TYPE_CHECKING:
    from aptui.tui.data.feed import Feed
    from aptui.tui.key_gate import KeyGate
    from aptui.tui.pane_switcher import PaneSwitcher


class FrameDrawing:
    """Draws frames.

    Args:
        feed: returns what has the news, None = nothing was read yet.
        switcher: has the panes.
        gate: lets keys through once what they are about is there.
    """

    def __init__(self, app: App[Any], feed: Callable[[], Feed | None], switcher: PaneSwitcher, gate: KeyGate) -> None:
        self._app, self._feed, self._switcher, self._gate = app, feed, switcher, gate
        self._lines: tuple[Line, ...] = ()

    @property
    def screen(self) -> MainScreen:
        """The screen below whatever is open."""
        return next(screen for screen in self._app.screen_stack if isinstance(screen, MainScreen))

    def draw(self) -> bool:
        """Hand out a part of what happened; return whether there is more. After the last one, draw it."""
        feed = self._feed()
        if not self._app.is_running or feed is None:
            return False
        if self._switcher.take(feed):
            return True
        self.draw_lines()
        self._switcher.draw()
        if self._switcher.pane is None or not self._switcher.pane.name_awaited(None):
            self.screen.show()
        self._gate.check_again()
        return False

    def draw_lines(self) -> None:
        """Draw the lines above and below the pane, where they changed."""
        # Looked for once: they stay, and a search through all that is mounted costs a third of a frame.
        self._lines = self._lines or tuple(self.screen.query("StatusLine, TabBar, Rule, Banner").results(Line))
        for line in self._lines:
            line.refresh_if_changed()
