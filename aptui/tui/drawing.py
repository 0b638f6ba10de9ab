"""Frames of the screen: at most ten frames a second, and none while nothing happens.

A frame hands the waiting updates to every pane, then draws the lines around the panes and the visible pane. Updates wait until the
processor and the connection to the terminal are idle, because drawing updates would delay the next key. If updates keep coming,
they are drawn four times a second, or twice a second if they take long to apply.

If many updates wait, a frame applies them in several parts, and draws after the last part. A key that is pressed between two parts
has precedence: until its echo is sent, no part is applied and no update is drawn.

Tests: `tests/tui/test_main_screen.py`, `tests/tui/test_shell.py`.
"""

from __future__ import annotations

import contextvars
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.app import App
from textual.binding import Binding, BindingType
from textual.screen import Screen

from aptui.tui.background import call_after
from aptui.tui.frame.line import Line
from aptui.tui.terminal.output.display import ChangedLines, is_supported

if TYPE_CHECKING:
    from aptui.tui.data.feed import Feed
    from aptui.tui.key_gate import KeyGate
    from aptui.tui.pane_switcher import PaneSwitcher


FRAME_S = 0.1
"""Minimum interval between frames (seconds). The first `_BURST` frames after an idle time are drawn without it."""
_BURST = 6
"""Number of frames that are drawn without a delay after an idle time.

It takes two or three frames to show the result of a changed filter, and five frames to show the first rows.
"""

NEWS_FRAME_S, MANY_NEWS_FRAME_S = 0.25, 0.5
"""Limits of the interval between frames that show updates (seconds). `_INTERVAL_FACTOR` sets the interval within these limits."""
_NEWS_BURST, _NEWS_QUIET_S = 3, 1.0
"""After `_NEWS_QUIET_S` seconds without updates, the next `_NEWS_BURST` frames with updates are drawn without a delay.

So the user sees the first results at once.
"""

_SHARE, _LONGEST_REST_S = 3, 1.0
"""Pause between a frame and a following frame that shows only updates: three times the duration of the first frame, at most 1 s.

Keys are handled in the pause.
"""
_INTERVAL_FACTOR = 40
"""Interval between frames that show updates, as a multiple of the duration of the last frame."""


class FrameClock:
    """Calls `draw` in the app's thread after a frame was requested.

    Args:
        draw: draws one frame, or applies a part of the updates and returns True if more are left.
        rest_s: returns the delay (seconds) before the next frame of updates, so that a slow connection has room for keys.
        key_s: returns the delay (seconds) until the next check whether the last key was echoed, 0 = no key waits for its echo.
    """

    def __init__(
        self, app: App[Any], draw: Callable[[], bool], rest_s: Callable[[], float], key_s: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._app, self._draw, self._rest_s, self._clock, self._key_s = app, draw, rest_s, clock, key_s
        self._context: contextvars.Context | None = None
        self._is_woken = self._is_news_due = False
        self._next_s = self._news_s = self._ended_s = 0.0
        self._drawn_news_s, self._burst_left, self._news_burst_left = 0.0, _BURST, _NEWS_BURST
        self._has_more_parts = self._is_frame_requested = False
        self._spent_s = 0.0

    def start(self) -> None:
        """Store the context of the app's thread, in which calls from other threads run; without it, such calls are dropped."""
        self._context = contextvars.copy_context()

    def wake(self) -> None:
        """Request a frame; thread-safe and cheap."""
        if not self._is_woken:
            self._is_woken = True
            self.in_ui(self._arm)

    def wake_for_news(self) -> None:
        """Request a frame for an update that the user's keys did not cause; thread-safe and cheap."""
        if not (self._is_news_due or self._is_woken):
            self._is_news_due = True
            self.in_ui(self._arm_for_news)

    def in_ui(self, do: Callable[..., object], *arguments: Any) -> None:
        """Schedule `do` in the app's thread and return at once; do nothing if the app has ended."""
        loop = self._app._loop  # noqa: SLF001  # Textual's `call_from_thread` waits
        if loop is None or self._context is None:
            return
        try:
            loop.call_soon_threadsafe(partial(self._do, do, *arguments), context=self._context.copy())
        except RuntimeError:
            pass  # the event loop is closed

    def _do(self, do: Callable[..., object], *arguments: Any) -> None:
        if self._app.is_running:  # an app that has ended no longer has a screen, so `do` would fail
            do(*arguments)

    def _arm(self) -> None:
        now_s = self._clock()
        self._burst_left = min(_BURST, self._burst_left + int((now_s - self._ended_s) / FRAME_S))
        if self._burst_left:
            self._burst_left -= 1
            self._after(0, self._frame)
        else:
            self._after(self._next_s - now_s, self._frame)

    def _arm_for_news(self) -> None:
        if not self._is_news_due:
            return  # a frame that a key caused has shown these updates already, so no other frame is needed
        now_s = self._clock()
        if now_s - self._drawn_news_s > _NEWS_QUIET_S:
            self._news_burst_left = _NEWS_BURST
        apart_s = min(max(NEWS_FRAME_S, _INTERVAL_FACTOR * self._spent_s), MANY_NEWS_FRAME_S)
        next_s = self._news_s if self._news_burst_left else max(self._news_s, self._ended_s + apart_s)
        rest_s = max(self._rest_s(), self._key_s(), next_s - now_s)
        if rest_s > 0:
            self._after(rest_s, self._arm_for_news)
            return
        self._is_news_due, self._drawn_news_s, self._news_burst_left = False, now_s, max(0, self._news_burst_left - 1)
        self.wake()

    def _after(self, wait_s: float, do: Callable[[], object]) -> None:
        if wait_s > 0:
            call_after(self._app, wait_s, do)
        else:
            self._app.call_later(do)

    def _frame(self) -> None:
        if self._has_more_parts:
            # The previous frame is still being drawn. Its first parts are already applied, so they may lack the newest change.
            # Therefore one more frame is requested.
            self._is_frame_requested = True
            return
        self._is_woken = self._is_news_due = self._is_frame_requested = False
        self._spent_s = 0.0
        self._part()

    def _part(self) -> None:
        wait_s = self._key_s() if self._has_more_parts else 0.0
        if wait_s > 0:
            self._after(wait_s, self._part)
            return
        began_s = self._clock()
        self._has_more_parts = False  # reset before `draw`, because `draw` may raise an error
        has_more_parts = self._draw()
        self._ended_s = self._clock()
        self._spent_s += self._ended_s - began_s
        if has_more_parts:
            self._has_more_parts = True
            self._after(0, self._part)
            return
        self._next_s = max(began_s + FRAME_S, self._ended_s + self._spent_s)
        self._news_s = self._ended_s + min(_SHARE * self._spent_s, _LONGEST_REST_S)
        if self._is_frame_requested:
            self._after(0, self._frame)


class MainScreen(Screen[None], inherit_bindings=False):
    """The only screen; pop-ups are parts of it.

    The screen is first drawn when the first rows arrive, so that no part is drawn twice. Until then the terminal shows the frame
    that `terminal/skeleton` wrote, and Textual only lays out the widgets, which is cheap.
    """

    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "app.focus_next", "next part", show=False, id="app.next_part"),
        Binding("shift+tab", "app.focus_previous", "previous part", show=False, id="app.previous_part"),
    ]

    def __init__(self) -> None:
        # The screen begins with the class `-tall`, because nearly all terminals are tall. If the class were added when the size is
        # known, every widget would be styled again.
        super().__init__(id="_default", classes="-tall")
        if is_supported():
            self._compositor = ChangedLines()
        self.is_shown = False
        """Whether drawing has started; until then the widgets are only laid out."""

    def show(self) -> None:
        """Start to draw the screen."""
        if not self.is_shown:
            self.is_shown = True
            self.refresh()

    def _on_screen_resume(self, event: events.ScreenResume) -> None:
        """Restyle only widgets that were not styled when they were mounted; Textual calls its own method after this one."""
        if not self.stack_updates:
            event.refresh_styles = False

    def _compositor_refresh(self) -> None:
        """Draw changes."""
        if self.is_shown:
            super()._compositor_refresh()
        else:
            self._dirty_widgets.clear()


class FrameDrawing:
    """Draws frames.

    Args:
        feed: returns the reader of updates, None = not opened yet.
        gate: holds keys until the rows or filters that they act on are shown.
    """

    def __init__(self, app: App[Any], feed: Callable[[], Feed | None], switcher: PaneSwitcher, gate: KeyGate) -> None:
        self._app, self._feed, self._switcher, self._gate = app, feed, switcher, gate
        self._lines: tuple[Line, ...] = ()

    @property
    def screen(self) -> MainScreen:
        """The main screen; it stays the main screen while the palette is open above it."""
        return next(screen for screen in self._app.screen_stack if isinstance(screen, MainScreen))

    def draw(self) -> bool:
        """Hand some of the updates to the panes and return True if more are left; after the last updates, draw."""
        feed = self._feed()
        if not self._app.is_running or feed is None:
            return False
        if self._switcher.hand_out(feed):
            return True
        self.draw_lines()
        self._switcher.draw()
        if self._switcher.pane is None or not self._switcher.pane.name_awaited(None):
            self.screen.show()
        self._gate.check_again()
        return False

    def draw_lines(self) -> None:
        """Draw the lines above and below the pane if their content changed."""
        # The widgets are queried only once, because they stay mounted. A query of all widgets takes a third of a frame's time.
        self._lines = self._lines or tuple(self.screen.query("StatusLine, TabBar, Rule, Banner").results(Line))
        for line in self._lines:
            line.refresh_if_changed()
