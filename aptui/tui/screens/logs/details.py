"""The line under the cursor of the Logs screen, below the others: its text where it is cut, and its context.

Tests: `tests/tui/screens/logs/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from textual.geometry import Size

from aptui.tui.frame.line import Part
from aptui.tui.screens.common.bar import Bar
from aptui.tui.widgets.cells import wrap
from aptui.tui.widgets.keyvalue import KeyValue

_MOST_ROWS = 6
_AROUND_TEXT = 12
"""What stands around a value, about."""


class LineDetails:
    """A title and a panel; both are gone where a line has nothing more to say."""

    def __init__(self) -> None:
        self.bar = Bar(lambda _width: ((Part("This line", "title"),), ()), id="logs-details-bar", rules=True)
        self.panel = KeyValue(id="logs-details")

    def show(self, pairs: Sequence[tuple[str, str]], size: Size) -> None:
        """Show keys and values in the lower third, at most, of a room."""
        if list(pairs) != self.panel.pairs:
            self.panel.show(list(pairs))
        rows = sum(len(wrap(text, max(1, size.width - _AROUND_TEXT))) for _, text in pairs)
        self.panel.styles.height = min(rows + 1, _MOST_ROWS, max(2, size.height // 3))
        self.panel.display = self.bar.display = bool(pairs)
