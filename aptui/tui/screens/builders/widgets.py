"""The parts of the Builders screen by name, for the modules that fill and arrange them. They are made in `pane`.

Tests: `tests/tui/screens/builders/test_pane.py`.
"""

from __future__ import annotations

from textual.containers import Vertical
from textual.widget import Widget

from aptui.tui.screens.common.tab_line import TabLine
from aptui.tui.widgets.filterbox import FilterBox
from aptui.tui.widgets.keyvalue import KeyValue
from aptui.tui.widgets.table import Table
from aptui.tui.widgets.tree import VTree

TABS = ("patterns", "details", "metrics")


class BuilderWidgets:
    """The parts of one pane."""

    def __init__(self, pane: Widget) -> None:
        self.pane = pane

    @property
    def list(self) -> Table:
        """The builders."""
        return self.pane.query_one("#builders-list", Table)

    @property
    def side(self) -> Vertical:
        """What is known of one of them."""
        return self.pane.query_one("#builders-side", Vertical)

    @property
    def tabs(self) -> TabLine:
        """Which part of that is shown."""
        return self.pane.query_one(TabLine)

    @property
    def patterns(self) -> Table:
        """Its patterns."""
        return self.pane.query_one("#builders-patterns", Table)

    @property
    def details(self) -> KeyValue:
        """Its details."""
        return self.pane.query_one("#builders-details", KeyValue)

    @property
    def spent(self) -> VTree:
        """What it cost."""
        return self.pane.query_one("#builders-metrics", VTree)

    @property
    def box(self) -> FilterBox:
        """The filter line."""
        return self.pane.query_one("#builders-filter", FilterBox)

    def part(self, name: str) -> Widget:
        """Return patterns, details or metrics."""
        return self.pane.query_one(f"#builders-{name}")
