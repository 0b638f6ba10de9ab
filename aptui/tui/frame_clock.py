"""When the screen draws: ten frames a second at most, and none while nothing happens. What a frame draws is the app's business.

Tests: `tests/tui/screens/logs/test_pane.py`.
"""

from __future__ import annotations

import contextvars
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from textual.app import App

FRAME_S = 0.1
_BURST_S = 6 * FRAME_S
"""So many frames after a rest need not wait: a filter that a key changed takes two or three, the first rows five."""


class FrameClock:
    """Calls `draw` in the app's thread after somebody asked for a frame.

    Args:
        app: whose thread it is.
        draw: draws one frame.
    """

    def __init__(self, app: App[Any], draw: Callable[[], object]) -> None:
        self._app, self._draw = app, draw
        self._context: contextvars.Context | None = None
        self._is_woken, self._next_frame = False, 0.0

    def start(self) -> None:
        """Take the calling thread's context for what other threads ask for; before this, nothing is called."""
        self._context = contextvars.copy_context()

    def wake(self) -> None:
        """Ask for a frame; any thread may, as often as it likes."""
        if not self._is_woken:
            self._is_woken = True
            self.in_ui(self._arm)

    def in_ui(self, do: Callable[..., object], *arguments: Any) -> None:
        """Have `do` called in the app's thread, soon; does not wait, and does nothing once the app has ended."""
        loop = self._app._loop  # noqa: SLF001  # Textual's `call_from_thread` waits
        if loop is None or self._context is None:
            return
        try:
            loop.call_soon_threadsafe(partial(do, *arguments), context=self._context.copy())
        except RuntimeError:
            pass  # the loop is closed: nobody looks any more

    def _arm(self) -> None:
        wait_s = self._next_frame - time.monotonic()
        if wait_s > 0:
            self._app.set_timer(wait_s, self._frame)
        else:
            self._app.call_later(self._frame)

    def _frame(self) -> None:
        self._is_woken = False
        self._next_frame = max(self._next_frame, time.monotonic() - _BURST_S) + FRAME_S
        self._draw()
