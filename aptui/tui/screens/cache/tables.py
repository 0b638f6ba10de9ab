"""The tables of the Shared cache screen: what stands in them, how they are sorted, how high they are.

Tests: `tests/tui/screens/cache/test_pane.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.geometry import Size

from aptui.tui.screens.cache import rows
from aptui.tui.screens.cache.contents import CacheInventory, CacheProblem, CacheShare, CheckProgress
from aptui.tui.screens.common.listing import Listing
from aptui.tui.widgets.menu import Menu, MenuItem
from aptui.tui.widgets.table import SideTable, Table

if TYPE_CHECKING:
    from aptui.tui.pane import Shell

_SORTS = {"platforms": ("name", False), "folders": ("size", True), "builders": ("size", True), "findings": ("product", False)}
_RISING = frozenset({"name", "problem", "product", "source"})
"""Columns that begin with the first letter, the others with the largest number."""


class Findings(Table):
    """What a look at the cache found."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "open", "menu", id="rows.open")]


class CacheTables:
    """Amounts by platform, folder and builder, and the findings; each widget is `cache-<name>`."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._amounts = {name: Listing(rows.share_cell, rows.share_order) for name in ("platforms", "folders", "builders")}
        self._problems = Listing(rows.problem_cell, rows.problem_order, lambda problem, _: hash(problem.name))
        self.platforms = SideTable(rows.PLATFORMS, self._amounts["platforms"], id="cache-platforms")
        self.builders = SideTable(rows.BUILDERS, self._amounts["builders"], id="cache-builders")
        self.folders = SideTable(rows.FOLDERS, self._amounts["folders"], id="cache-folders")
        self.findings = Findings(rows.FINDINGS, self._problems, id="cache-findings")
        self._widgets: dict[str, Table] = {
            "platforms": self.platforms,
            "builders": self.builders,
            "folders": self.folders,
            "findings": self.findings,
        }

    def _model(self, name: str) -> Listing[CacheShare] | Listing[CacheProblem]:
        return self._problems if name == "findings" else self._amounts[name]

    def show_inventory(self, contents: CacheInventory) -> None:
        """Show what the cache holds."""
        self.platforms.set_columns(rows.platform_columns(contents.platforms))
        for name, shares in (
            ("platforms", contents.platforms), ("folders", contents.folders), ("builders", contents.builders),
        ):  # fmt: skip
            self._amounts[name].show(shares)
            self._widgets[name].refresh_model()

    def show_findings(self, progress: CheckProgress) -> None:
        """Show what a look found so far."""
        if len(progress.problems) != self._problems.row_count():  # while one look goes on they only become more
            self._problems.show(progress.problems)
        self.findings.refresh_model()

    def problem(self, key: int) -> CacheProblem:
        """Return the finding of a row."""
        return self._problems.at(key)

    def fit(self, size: Size, *, is_narrow: bool, is_zoomed: bool) -> None:
        """Give tables that are short no more lines than they need."""
        platforms, builders, findings = (self._model(name).row_count() + 1 for name in ("platforms", "builders", "findings"))
        self.platforms.styles.height = max(2, min(platforms, 5 if is_narrow else 9))  # the head, and a row or why there is none
        for name in ("builders", "folders"):
            self._widgets[name].display = self._model(name).row_count() > 0
        self.builders.styles.height = min(builders, max(3, size.height // 4 + 1)) if is_narrow else "1fr"
        self.findings.styles.height = "1fr" if is_zoomed else min(findings, max(3, size.height // 2))

    # ----------------------------------------------------------------------------------------------------------------- order

    def restore_order(self) -> None:
        """Sort as it was."""
        for name, usual in _SORTS.items():
            column, is_descending = self._shell.memory.get(f"cache.sort.{name}", list(usual))
            known = {each.id for each in self._widgets[name].columns if each.title}
            self._sort(name, (column, bool(is_descending)) if column in known else usual)

    def ask_order(self, table: Table) -> None:
        """Choose what a table is sorted by."""
        items = [MenuItem(column.id, f"by {column.title}") for column in table.columns if column.title]
        Menu.ask(self._shell.app, items, lambda column: self.turn_order(table, column) if column else None, title="Sort")

    def turn_order(self, table: Table, column: str) -> None:
        """Sort by a column; again: the other way round."""
        name = next((name for name, widget in self._widgets.items() if widget is table), "")
        if not name or column == "share":
            return
        before = self._model(name).sort
        is_descending = not before[1] if before and before[0] == column else column not in _RISING
        self._sort(name, (column, is_descending))
        self._shell.memory.put(f"cache.sort.{name}", [column, is_descending])

    def _sort(self, name: str, sort: tuple[str, bool]) -> None:
        self._model(name).sort_by(sort)
        self._widgets[name].sort = sort
        self._widgets[name].refresh_model()
