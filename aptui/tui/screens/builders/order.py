"""By which columns the Builders screen sorts: the list, and the metrics.

Tests: `tests/tui/screens/builders/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aptui.tui.screens.builders.facts import BUILDERS, DESCENDING, is_turned
from aptui.tui.screens.builders.metrics import LARGEST_FIRST, METRICS, SORTED_BY, Metrics
from aptui.tui.screens.builders.widgets import BuilderWidgets
from aptui.tui.widgets.menu import Menu, MenuItem

if TYPE_CHECKING:
    from textual.app import App

    from aptui.tui.screens.common.listed import ListedRows


class BuildersOrder:
    """Sorts.

    Args:
        rows: the rows of the list.
        metrics: returns what a builder cost.
    """

    def __init__(self, widgets: BuilderWidgets, rows: ListedRows, metrics: Callable[[], Metrics]) -> None:
        self._widgets, self._rows, self._metrics = widgets, rows, metrics

    def sort_list(self, column_id: str, *, is_descending: bool) -> None:
        """Sort the builders."""
        table = self._widgets.list
        table.sort = (column_id, is_descending)
        self._rows.sort_by(table.sort)
        table.refresh_model()

    def _sort_tree(self, column_id: str, *, is_descending: bool) -> None:
        tree, column_id = self._widgets.spent, column_id if column_id in SORTED_BY else "total"
        tree.sort = (column_id, is_descending)
        self._metrics().sort_by(column_id, is_descending=is_descending)
        tree.refresh_model()

    def turn(self, column_id: str, *, is_tree: bool) -> None:
        """Sort by a column; one that is sorted by already turns round."""
        if is_tree:
            self._sort_tree(column_id, is_descending=is_turned(self._widgets.spent.sort, column_id, LARGEST_FIRST))
        else:
            self.sort_list(column_id, is_descending=is_turned(self._widgets.list.sort, column_id, DESCENDING))

    def ask(self, app: App[object]) -> None:
        """Choose by what to sort, where the focus is."""
        is_tree = self._widgets.spent.has_focus
        columns = [column for column in METRICS if column.id in SORTED_BY] if is_tree else list(BUILDERS)
        items = [MenuItem(column.id, column.title, f"{at}") for at, column in enumerate(columns, start=1)]
        Menu.ask(app, items, lambda column_id: self.turn(column_id, is_tree=is_tree) if column_id else None, title="Sort by")
