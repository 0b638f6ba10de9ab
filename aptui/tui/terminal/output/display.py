"""The hook: an app of Textual whose pictures go to the output layer, where its driver has one.

It overrides `App._display`, which is Textual's own affair and therefore pinned with its version;
`tests/tui/terminal/test_safety.py` looks at every byte that comes of it.

Tests: `tests/tui/terminal/test_safety.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual.app import App

if TYPE_CHECKING:
    from rich.console import RenderableType
    from textual.screen import Screen


class ThriftyApp(App[None]):
    """An app that sends what differs; with another driver than ours, or `APTUI_OUTPUT=stock`, one like any other."""

    def line_rest_s(self) -> float:
        """Return for how many seconds news are to leave the line to keys."""
        output = getattr(self._driver, "output", None)
        return 0.0 if output is None else output.rest_s()

    def line_key_s(self) -> float:
        """Return after how many seconds to look again whether a key was echoed, 0 = none waits for that."""
        output = getattr(self._driver, "output", None)
        return 0.0 if output is None else output.key_s()

    def line_takes_s(self, size: int) -> float | None:
        """Return for how many seconds so many bytes would fill the line, 0 = nobody can say, None = nobody knows so far."""
        output = getattr(self._driver, "output", None)
        return 0.0 if output is None else output.takes_s(size)

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        """Hand what was drawn to the output layer if there is one and it understands it; else have Textual write it."""
        output = getattr(self._driver, "output", None)
        if output is None or renderable is None or self._batch_count or not self._running or self._closed:
            super()._display(screen, renderable)
            return
        try:
            if not output.show(renderable, self.console, self.size, self.screen.outer_size.clamp_offset(self.cursor_position)):
                super()._display(screen, renderable)
                return
        except Exception as error:  # noqa: BLE001  # as Textual's own: the app ends, and says why
            self._handle_exception(error)
        self.post_display_hook()
