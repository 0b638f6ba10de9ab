"""The Shared cache screen: what this project's cache holds, what is wrong in it and how it is mended.

Its parts: `cache.inventory` (amounts), `cache.examination` (what a look found), `cache.tables` of both, `cache.mending`, and
`cache.sharing`, the line that says what the team shares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, cast

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical

from aptui.shared.printing import count
from aptui.tui.data.feed import Batch
from aptui.tui.frame.commandline import Command
from aptui.tui.frame.line import Part
from aptui.tui.pane import Pane
from aptui.tui.screens.cache.contents import CacheInventory, CheckProgress
from aptui.tui.screens.cache.examination import CacheExamination
from aptui.tui.screens.cache.inventory import WIDE_COLUMNS, InventoryReader
from aptui.tui.screens.cache.mending import Mending
from aptui.tui.screens.cache.sharing import SharedSettings
from aptui.tui.screens.cache.tables import CacheTables
from aptui.tui.screens.common.bar import Bar
from aptui.tui.widgets.rows.rows import Rows
from aptui.tui.widgets.table import Table
from aptui.tui.words import size_text


class CachePane(Pane):
    """Amounts above, findings below."""

    DEFAULT_CSS = """
    CachePane { layout: vertical; }
    #cache-columns { height: 1fr; }
    #cache-left { width: 1fr; }
    #cache-right { width: 1fr; margin: 0 0 0 2; }
    #cache-platforms { height: auto; margin: 0 0 1 0; }
    CachePane.-narrow #cache-columns { layout: vertical; }
    CachePane.-narrow #cache-left { height: auto; width: 1fr; }
    CachePane.-narrow #cache-builders { margin: 0 0 1 0; }
    CachePane.-narrow #cache-right { height: 1fr; width: 1fr; margin: 0; }
    #cache-shared { margin: 0 0 1 0; }
    CachePane.-narrow #cache-shared { margin: 0; }
    #cache-look { display: none; }
    CachePane.-looked #cache-look { display: block; }
    #cache-findings { height: 2; display: none; }
    CachePane.-found #cache-findings { display: block; }
    CachePane.-zoomed #cache-columns { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "cancel", "cancel", id="cache.cancel"),
        Binding("r", "repair", "repair", id="cache.repair"),
        Binding("D", "delete", "delete them", id="cache.delete"),
        Binding("V", "verify", "verify", id="cache.verify"),
        Binding("U", "unowned", "unowned", id="cache.unowned"),
        Binding("e", "share", "shared cache", id="cache.share"),
        Binding("y", "copy", "copy", id="cache.copy"),
        Binding("z", "zoom", "zoom", id="cache.zoom"),
        Binding("S", "sort", "sort", show=False, id="cache.sort"),
        Binding("full_stop", "menu", "menu", show=False, id="cache.menu"),
    ]

    def __init__(self, **kwargs: str | None) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]  # id and name
        self.inventory = InventoryReader(self.shell, self._show_inventory, self._draw)
        self.examination = CacheExamination(self.shell, self._show_findings, self._offer_keys, self._go_to_findings)
        self.sharing = SharedSettings(self.shell, self._draw)
        self.mending = Mending(self.shell, lambda: self.examination.problems, self._take_gone)
        self._is_informed = False
        self.tables = CacheTables(self.shell)

    def compose(self) -> ComposeResult:
        """Yield summary, tables, and what was found."""
        yield Bar(self.inventory.summary, id="cache-summary", rules=False)
        yield Bar(self.sharing.summary, id="cache-shared", rules=False)
        with Horizontal(id="cache-columns"):
            with Vertical(id="cache-left"):
                yield self.tables.platforms
                yield self.tables.builders
            with Vertical(id="cache-right"):
                yield self.tables.folders
        yield Bar(self._verdict, id="cache-look", rules=True)
        yield self.tables.findings

    def on_mount(self) -> None:
        """Sort as it was."""
        self.tables.restore_order()
        self.tables.platforms.empty_text = "no products yet: what jobs make comes here"

    def on_unmount(self) -> None:
        """Give up what is under way."""
        for each in (self.inventory, self.examination, self.mending, self.sharing):
            each.close()

    def on_resize(self, event: events.Resize) -> None:
        """Put the tables below each other where there is no room."""
        self.set_class(event.size.width < WIDE_COLUMNS, "-narrow")
        self._fit_tables()

    # ---------------------------------------------------------------------------------------------------------------- beat

    def activate(self) -> None:
        """Read what the cache holds, if it may have changed."""
        self.sharing.refresh_account()
        self.inventory.read_if_stale()

    def reload(self) -> None:
        """Read everything again."""
        self.sharing.refresh_account()
        self.inventory.read()

    def on_news(self, batch: Batch) -> None:
        """Note that something may be otherwise."""
        self.inventory.note(batch)
        self._is_informed = self._is_informed or bool(batch)

    def on_frame(self) -> None:
        """Read again if the engine rests; look whether what it was asked to delete is gone."""
        self.inventory.read_if_stale()
        if self._is_informed:
            self.mending.find_gone()
        self._is_informed = False
        self._draw()

    def status(self) -> str:
        """Say how large it is."""
        known = self.inventory.contents
        return f"{count(known.count, 'product')}, {size_text(known.size_bytes)}" if known else ""

    def commands(self) -> Sequence[Command]:
        """Return what can be said here."""
        commands = [
            Command("verify", "compare every product with its digest", lambda _rest: self.action_verify()),
            Command("unowned", "list files in the cache that belong to no product", lambda _rest: self.action_unowned()),
        ]
        if self.shell.config is not None:
            commands.append(Command("share", "mode, location and patterns of the shared cache", lambda _rest: self.action_share()))
            commands.append(Command("test", "reach the shared cache", lambda _rest: self.sharing.test()))
        if self.examination.has_found("damaged", "missing"):
            commands.append(
                Command("repair", "run the jobs of all findings again", lambda _: self.mending.ask_to_repair(), None, True)
            )
        if self.examination.has_found("unowned"):
            commands.append(
                Command("delete", "have the engine delete what belongs to no product", lambda _: self.action_delete(), None, True)
            )
        return commands

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave out what makes no sense now."""
        if not self.is_attached:
            return True
        match action:
            case "verify" | "unowned":
                return self.inventory.contents is not None and not self.examination.is_busy
            case "cancel":
                return self.examination.is_busy
            case "share":
                return self.shell.config is not None
            case "repair":
                return self.shell.can_ask and self.examination.has_found("damaged", "missing")
            case "delete":
                return self.shell.can_ask and not self.examination.is_busy and self.examination.has_found("unowned")
            case "zoom":
                return self.has_class("-found")
            case _:
                return super().check_action(action, parameters)

    # ----------------------------------------------------------------------------------------------------------- what is known

    def _show_inventory(self, contents: CacheInventory) -> None:
        self.tables.show_inventory(contents)
        self._fit_tables()
        self.refresh_bindings()

    def _show_findings(self, progress: CheckProgress) -> None:
        self.add_class("-looked")
        self.tables.show_findings(progress)
        self.set_class(bool(progress.problems), "-found")
        if not progress.problems:
            self.remove_class("-zoomed")
            if self.shell.app.focused is self.tables.findings:
                self.tables.platforms.focus()
        self._fit_tables()
        self._draw()

    def _offer_keys(self) -> None:
        self._draw()
        self.refresh_bindings()

    def _go_to_findings(self) -> None:
        table = self.tables.findings
        if self.examination.problems and self.shell.pane is self and not table.has_focus:
            table.move_cursor(0)
            table.focus()

    def _verdict(self, width: int) -> tuple[Sequence[Part], Sequence[Part]]:
        return self.examination.verdict(width, are_going=bool(self.mending.going))

    def _take_gone(self, gone: set[str]) -> None:
        """Show without what the engine deleted."""
        self.examination.forget(gone)
        self._draw()

    def _fit_tables(self) -> None:
        """Give tables that are short no more lines than they need."""
        self.tables.fit(self.size, is_narrow=self.has_class("-narrow"), is_zoomed=self.has_class("-zoomed"))

    # ---------------------------------------------------------------------------------------------------------------- the keys

    def action_share(self) -> None:
        """Offer mode, location and patterns of the shared cache, a test, and to save or discard what was changed."""
        self.sharing.refresh_account()
        self.sharing.open_menu()

    def action_verify(self) -> None:
        """Compare every product with its digest."""
        self._examine(self.examination.verify)

    def action_unowned(self) -> None:
        """Look for files that belong to no product."""
        self._examine(self.examination.find_unowned)

    def _examine(self, begin: Callable[[], None]) -> None:
        if not self.examination.is_busy:
            self.mending.going = []
            self.tables.findings.marks.clear()
        begin()

    def action_cancel(self) -> None:
        """Stop looking; what was found so far stays."""
        self.examination.cancel()

    def action_repair(self) -> None:
        """Ask to run the jobs of what is wrong again: of the marked rows or the one under the cursor, or of all."""
        table = self.tables.findings
        self.mending.ask_to_repair([self.tables.problem(key) for key in table.list_selected_keys()] if table.has_focus else [])

    def action_delete(self) -> None:
        """Have the engine delete the files that belong to no product, after asking."""
        self.mending.ask_to_delete()

    # ------------------------------------------------------------------------------------------------------------ the rest

    def on_rows_opened(self, event: Rows.Opened) -> None:
        """Offer what can be done about a finding."""
        event.stop()
        if event.rows is self.tables.findings:
            self.mending.open_menu(self.tables.problem(event.key), None)

    def on_rows_context_menu(self, event: Rows.ContextMenu) -> None:
        """Offer the same at the pointer."""
        event.stop()
        if event.rows is self.tables.findings:
            self.mending.open_menu(self.tables.problem(event.key), (event.x, event.y))

    def action_menu(self) -> None:
        """Offer what can be done about the finding under the cursor."""
        table = self.tables.findings
        if table.has_focus and table.cursor_key is not None:
            self.mending.open_menu(self.tables.problem(table.cursor_key), None)

    def action_copy(self) -> None:
        """Copy the rows that are marked, or the one under the cursor."""
        table = self.shell.app.focused
        if isinstance(table, Table):
            lines = [table.row_text(key) for key in table.list_selected_keys()]
            self.shell.copy_text("\n".join(lines)) if lines else None

    def action_zoom(self) -> None:
        """Give the findings all the room, or give it back."""
        self.toggle_class("-zoomed")
        if self.has_class("-zoomed"):
            self.tables.findings.focus()
        self._fit_tables()

    def action_sort(self) -> None:
        """Choose what the table is sorted by."""
        table = self.shell.app.focused
        if isinstance(table, Table):
            self.tables.ask_order(table)

    def on_table_header_clicked(self, event: Table.HeaderClicked) -> None:
        """Sort by a column; again: the other way round."""
        event.stop()
        self.tables.turn_order(cast(Table, event.rows), event.column_id)

    def _draw(self) -> None:
        for line in self.query(Bar):
            line.refresh_if_changed()
