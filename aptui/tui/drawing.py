"""What one frame draws: news for every pane, the lines of the frame, the pane in sight. When it does is `frame_clock`'s business.

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

from aptui.tui.frame.line import Line
from aptui.tui.terminal.output.display import ChangedLines, is_supported

if TYPE_CHECKING:
    from aptui.tui.data.feed import Feed
    from aptui.tui.key_gate import KeyGate
    from aptui.tui.pane_switcher import PaneSwitcher


# When the screen draws: ten frames a second at most, and none while nothing happens. What a frame draws is the app's business.
#
# News can wait until line and processor have had their rest: drawn sooner, they would be in the way of the next key. Where they
# do not end they are drawn four times a second: nobody reads faster, and a frame costs as much as two thousand of them. Where
# they take long to apply, too, it is twice a second.
#
# Many news are applied in parts, and drawn after the last. A key that comes meanwhile is next: until its echo has left no part
# is applied, and nothing is drawn of news.

FRAME_S = 0.1
_BURST = 6
"""So many frames after a rest need not wait: a filter that a key changed takes two or three, the first rows five."""

NEWS_FRAME_S, MANY_NEWS_FRAME_S = 0.25, 0.5
"""So long after a frame for news alone the next one comes, once there were as many as need not wait; and where each takes long."""
_NEWS_BURST, _NEWS_QUIET_S = 3, 1.0
"""So many frames for news need not wait after so long without one: what a person asked for is seen as it comes."""

_SHARE, _LONGEST_REST_S = 3, 1.0
"""For so many times what a frame took, or so long, none of news follows: keys come first where the processor is busy."""
_STORM_SHARE = 40
"""What a frame for news took, so many times, is long if it is longer than `NEWS_FRAME_S`."""


class FrameClock:
    """Calls `draw` in the app's thread after somebody asked for a frame.

    Args:
        app: whose thread it is.
        draw: draws one frame, or applies a part of what is to be drawn and returns whether there is more to apply.
        rest_s: for how many seconds the line is to be left to keys.
        key_s: after how many seconds to look again whether the last key was echoed, 0 = none waits for that.
        clock: for tests.
    """

    def __init__(
        self, app: App[Any], draw: Callable[[], bool], rest_s: Callable[[], float] = lambda: 0.0,
        clock: Callable[[], float] = time.monotonic, key_s: Callable[[], float] = lambda: 0.0,
    ) -> None:  # fmt: skip
        self._app, self._draw, self._rest_s, self._clock, self._key_s = app, draw, rest_s, clock, key_s
        self._context: contextvars.Context | None = None
        self._is_woken = self._is_news_due = False
        self._next_s = self._news_s = self._ended_s = 0.0
        self._drawn_news_s, self._free, self._news_free = 0.0, _BURST, _NEWS_BURST
        self._is_amid = self._is_asked_amid = False
        self._spent_s = 0.0

    def start(self) -> None:
        """Take the calling thread's context for what other threads ask for; before this, nothing is called."""
        self._context = contextvars.copy_context()

    def wake(self) -> None:
        """Ask for a frame; any thread may, as often as it likes."""
        if not self._is_woken:
            self._is_woken = True
            self.in_ui(self._arm)

    def wake_for_news(self) -> None:
        """Ask for a frame that nobody waits for; as `wake`."""
        if not (self._is_news_due or self._is_woken):
            self._is_news_due = True
            self.in_ui(self._arm_for_news)

    def in_ui(self, do: Callable[..., object], *arguments: Any) -> None:
        """Have `do` called in the app's thread, soon; does not wait, and does nothing once the app has ended."""
        loop = self._app._loop  # noqa: SLF001  # Textual's `call_from_thread` waits
        if loop is None or self._context is None:
            return
        try:
            loop.call_soon_threadsafe(partial(self._do, do, *arguments), context=self._context.copy())
        except RuntimeError:
            pass  # the loop is closed: nobody looks any more

    def _do(self, do: Callable[..., object], *arguments: Any) -> None:
        if self._app.is_running:  # it may have ended since: what is asked of it would find no screen
            do(*arguments)

    def _arm(self) -> None:
        now_s = self._clock()
        self._free = min(_BURST, self._free + int((now_s - self._ended_s) / FRAME_S))
        if self._free:
            self._free -= 1
            self._after(0, self._frame)
        else:
            self._after(self._next_s - now_s, self._frame)

    def _arm_for_news(self) -> None:
        if not self._is_news_due:
            return  # another frame brought them
        now_s = self._clock()
        if now_s - self._drawn_news_s > _NEWS_QUIET_S:
            self._news_free = _NEWS_BURST
        apart_s = min(max(NEWS_FRAME_S, _STORM_SHARE * self._spent_s), MANY_NEWS_FRAME_S)
        next_s = self._news_s if self._news_free else max(self._news_s, self._ended_s + apart_s)
        rest_s = max(self._rest_s(), self._key_s(), next_s - now_s)
        if rest_s > 0:
            self._after(rest_s, self._arm_for_news)
            return
        self._is_news_due, self._drawn_news_s, self._news_free = False, now_s, max(0, self._news_free - 1)
        self.wake()

    def _after(self, wait_s: float, do: Callable[[], object]) -> None:
        if wait_s > 0:
            self._app.set_timer(wait_s, do)
        else:
            self._app.call_later(do)

    def _frame(self) -> None:
        if self._is_amid:
            self._is_asked_amid = True  # what it is asked for may not be among the parts
            return
        self._is_woken = self._is_news_due = self._is_asked_amid = False
        self._spent_s = 0.0
        self._part()

    def _part(self) -> None:
        wait_s = self._key_s() if self._is_amid else 0.0
        if wait_s > 0:
            self._after(wait_s, self._part)
            return
        began_s = self._clock()
        self._is_amid = False  # so that one that raises ends it
        is_amid = self._draw()
        self._ended_s = self._clock()
        self._spent_s += self._ended_s - began_s
        if is_amid:
            self._is_amid = True
            self._after(0, self._part)
            return
        self._next_s = max(began_s + FRAME_S, self._ended_s + self._spent_s)
        self._news_s = self._ended_s + min(_SHARE * self._spent_s, _LONGEST_REST_S)
        if self._is_asked_amid:
            self._after(0, self._frame)


# The only screen of the app, and when it is first drawn: with the first rows, so that nothing is drawn twice on the way to
# them.
#
# Until then what `terminal/skeleton` wrote stands. Parts are laid out meanwhile; that costs little.


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
        if is_supported():
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
