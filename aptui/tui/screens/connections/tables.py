"""Tables of both pages of the Connections screen: sort by a heading, open the menu at the pointer, copy rows.

Tests: `tests/tui/screens/connections/test_pane.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual import on
from textual.containers import Container

from aptui.tui.screens.common.listed import ListedRow, ListedRows
from aptui.tui.widgets.rows.rows import Rows
from aptui.tui.widgets.table import Table

if TYPE_CHECKING:
    from aptui.tui.pane import Shell

_PREFIX = "connections-"


class ConnectionTables(Container):
    """Holds tables whose ids are `connections-<name>`; `lists` are their models by name."""

    lists: dict[str, ListedRows]

    def action_menu(self, place: tuple[int, int] | None = None) -> None:
        """Say what can be done with the row under the cursor."""
        raise NotImplementedError

    def table(self, name: str) -> Table:
        """Return a table."""
        return self.query_one(f"#{_PREFIX}{name}", Table)

    def current(self, name: str) -> ListedRow | None:
        """Return the row under the cursor of a table."""
        return self.lists[name].row(self.table(name).cursor_key)

    @property
    def focused(self) -> str:
        """The table that has the focus, "" = none."""
        return next((name for name in self.lists if self.table(name).has_focus), "")

    def action_copy(self) -> None:
        """Copy the row, or those that are marked."""
        if self.focused and self.current(self.focused) is not None:
            table = self.table(self.focused)
            cast("Shell", self.app).copy_text("\n".join(table.row_text(key) for key in table.list_selected_keys()))

    @on(Rows.ContextMenu)
    def _open_menu(self, event: Rows.ContextMenu) -> None:
        event.stop()
        event.rows.focus()
        self.call_later(self.action_menu, (event.x, event.y))

    @on(Table.HeaderClicked)
    def _sort(self, event: Table.HeaderClicked) -> None:
        """Sort by the column; again: the other way round."""
        event.stop()
        table = cast(Table, event.rows)
        table.sort = (event.column_id, table.sort == (event.column_id, False))
        self.lists[(table.id or "").removeprefix(_PREFIX)].sort_by(table.sort)
        table.refresh_model()
