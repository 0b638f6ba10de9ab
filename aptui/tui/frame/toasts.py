"""Short messages at the lower right, on the rule above the hints: gone after some seconds, kept for `:messages`. Never markup.

Tests: `tests/tui/preferences/test_theming.py`.
"""

from __future__ import annotations

import time
from collections import deque
from textwrap import wrap
from typing import ClassVar

from rich.cells import cell_len
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from aptui.shared.sanitize import sanitize
from aptui.tui.frame.line import Part, Parts, strip_of
from aptui.tui.words import clock, shorten

_MOST, _MOST_REMEMBERED = 3, 200
_ROLES = {"information": "info", "warning": "warning", "error": "error"}
_GLYPHS = {"information": "·", "warning": "!", "error": "✗"}


class Toasts(Widget):
    """The messages that are to be seen now; one timer while there are any, none else."""

    DEFAULT_CSS = """
    Toasts { layer: overlay; dock: bottom; width: 1fr; height: 1; margin: 0 0 1 0; display: none; align-horizontal: right; }
    """
    ALLOW_SELECT: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__(id="toasts")
        self.remembered: deque[tuple[int, str, str]] = deque(maxlen=_MOST_REMEMBERED)
        self._shown: list[tuple[float, str, str]] = []
        self._timer: Timer | None = None

    def show_toast(self, text: str, severity: str = "information", seconds: float = 5.0) -> None:
        """Show one message; line breaks make several lines."""
        now = time.monotonic()
        free_width = max(10, self.app.size.width - 6)
        if severity == "information":  # one line, on the rule at the bottom; the newest replaces it
            self._shown = [each for each in self._shown if each[2].partition(" ")[0] != "information"]
        for line in text.splitlines():
            safe = sanitize(line)
            self.remembered.append((int(time.time() * 1000), safe, severity))
            self._shown += [
                (now + seconds, piece, severity if at == 0 else f"{severity} again")
                for at, piece in enumerate(wrap(safe, free_width)[:_MOST])
            ]
        self._draw()

    def _draw(self) -> None:
        """Drop what is over, show the rest, and come again when the next one is over."""
        now = time.monotonic()
        self._shown = [each for each in self._shown if each[0] > now][-_MOST:]
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        self.display = bool(self._shown)
        if self._shown:
            widest = max(cell_len(text) for _, text, _ in self._shown) + 4
            self.styles.height = len(self._shown)
            self.styles.width = min(widest, max(10, self.app.size.width - 2))
            self.styles.offset = (max(0, self.app.size.width - 1 - min(widest, max(10, self.app.size.width - 2))), 0)
            self._timer = self.set_timer(max(0.05, min(until for until, _, _ in self._shown) - now), self._draw)
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return one message."""
        width = self.size.width
        if y >= len(self._shown):
            return Strip.blank(width, self.rich_style)
        _, text, severity = self._shown[y]
        kind, _, again = severity.partition(" ")
        role = _ROLES.get(kind, "info")
        parts: Parts = (Part("   " if again else f" {_GLYPHS.get(kind, '·')} ", role), Part(shorten(text, width - 4), role))
        return strip_of(parts, self, width, self.rich_style)

    def history(self) -> list[Parts]:
        """Return all messages that are kept, the latest first."""
        rows: list[Parts] = [
            (Part(f" {clock(time_ms)}  ", "muted"), Part(f"{_GLYPHS.get(severity, '·')} {text}", _ROLES.get(severity, "info")))
            for time_ms, text, severity in reversed(self.remembered)
        ]
        return rows or [(Part(" nothing was said yet", "muted"),)]
