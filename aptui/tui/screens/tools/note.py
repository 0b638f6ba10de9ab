"""The lines below a list that say in full what its row is about; the words come from the list.

Tests: `tests/tui/screens/tools/test_pane.py`.
"""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from textual.strip import Strip
from textual.widget import Widget

from aptui.tui.terminal.safety import make_safe
from aptui.tui.widgets.cells import Painter, pad, painter_of, wrap


class NoteView(Widget):
    """Some lines of text, broken at blanks; what does not fit is left out."""

    DEFAULT_CSS = "NoteView { height: 3; width: 1fr; }"
    ALLOW_SELECT: ClassVar[bool] = False

    def __init__(self, *, id: str) -> None:  # noqa: A002  # Textual's name
        super().__init__(id=id)
        self._text = ""
        self._painter: Painter | None = None

    @property
    def text(self) -> str:
        """What it says."""
        return self._text

    def say(self, text: str) -> None:
        """Say something else."""
        text = make_safe(text)
        if text != self._text:
            self._text = text
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """Draw one line."""
        painter = self._painter = painter_of(self, self._painter)
        width = self.size.width
        rows = wrap(self._text, max(1, width - 2))
        line = self._text[slice(*rows[y])] if y < len(rows) else ""
        return Strip(pad([Segment(f" {line.strip()}", painter.style("muted"))], width, painter.ground), width)
