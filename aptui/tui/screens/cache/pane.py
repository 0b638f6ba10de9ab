"""The Shared cache screen: what this project's cache holds, what is wrong in it and how it is mended.

Its parts: `cache.inventory` (amounts), `cache.examination` (what a look found), `cache.mending`, and `cache.sharing`, the line that
says what the team shares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical

from aptui.shared.printing import count
from aptui.tui.data.feed import Batch
from aptui.tui.frame.commandline import Command
from aptui.tui.frame.line import Part
from aptui.tui.pane import Pane
from aptui.tui.screens.cache import contents as held
from aptui.tui.screens.cache.contents import CacheInventory, CacheProblem, CacheShare, Looked
from aptui.tui.screens.cache.examination import CacheExamination
from aptui.tui.screens.cache.inventory import WIDE_COLUMNS, InventoryReader
from aptui.tui.screens.cache.mending import Mending
from aptui.tui.screens.cache.sharing import SharedSettings
from aptui.tui.screens.common.bar import Bar
from aptui.tui.screens.common.listing import Listing
from aptui.tui.widgets.menu import Menu, MenuItem
from aptui.tui.widgets.rows.rows import Rows
from aptui.tui.widgets.table import SideTable, Table
from aptui.tui.words import size_text

_SORTS = {"platforms": ("name", False), "folders": ("size", True), "builders": ("size", True), "findings": ("product", False)}
_RISING = frozenset({"name", "problem", "product", "source"})
"""Columns that begin with the first letter, the others with the largest number."""


class Findings(Table):
    """What a look at the cache found."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "open", "menu", id="rows.open")]


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
        self._models: dict[str, Listing[CacheShare] | Listing[CacheProblem]] = {
            **{name: Listing(held.share_cell, held.share_order) for name in ("platforms", "folders", "builders")},
            "findings": Listing(held.problem_cell, held.problem_order, lambda problem, _: hash(problem.name)),
        }

    def compose(self) -> ComposeResult:
        """Yield summary, tables, and what was found."""
        yield Bar(self.inventory.summary, id="cache-summary", rules=False)
        yield Bar(self.sharing.summary, id="cache-shared", rules=False)
        with Horizontal(id="cache-columns"):
            with Vertical(id="cache-left"):
                yield SideTable(held.PLATFORMS, self._models["platforms"], id="cache-platforms")
                yield SideTable(held.BUILDERS, self._models["builders"], id="cache-builders")
            with Vertical(id="cache-right"):
                yield SideTable(held.FOLDERS, self._models["folders"], id="cache-folders")
        yield Bar(self._verdict, id="cache-look", rules=True)
        yield Findings(held.FINDINGS, self._models["findings"], id="cache-findings")

    def on_mount(self) -> None:
        """Sort as it was."""
        for name, usual in _SORTS.items():
            column, is_descending = self.shell.memory.get(f"cache.sort.{name}", list(usual))
            known = {each.id for each in self._table(name).columns if each.title}
            self._sort(name, (column, bool(is_descending)) if column in known else usual)
        self._table("platforms").empty_text = "no products yet: what jobs make comes here"

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
        self.sharing.look()
        self.inventory.read_if_stale()

    def reload(self) -> None:
        """Read everything again."""
        self.sharing.look()
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
        self._table("platforms").set_columns(held.platform_columns(contents.platforms))
        for name, rows in (("platforms", contents.platforms), ("folders", contents.folders), ("builders", contents.builders)):
            self._models[name].show(rows)  # type: ignore[arg-type]  # those three hold amounts
            self._table(name).refresh_model()
        self._fit_tables()
        self.refresh_bindings()

    def _show_findings(self, looked: Looked) -> None:
        self.add_class("-looked")
        findings = self._models["findings"]
        if len(looked.problems) != findings.row_count():  # while one look goes on they only become more
            findings.show(looked.problems)  # type: ignore[arg-type]
        self.set_class(bool(looked.problems), "-found")
        if not looked.problems:
            self.remove_class("-zoomed")
            if self.shell.app.focused is self._table("findings"):
                self._table("platforms").focus()
        self._fit_tables()
        self._table("findings").refresh_model()
        self._draw()

    def _offer_keys(self) -> None:
        self._draw()
        self.refresh_bindings()

    def _go_to_findings(self) -> None:
        table = self._table("findings")
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
        platforms, builders, findings = (self._models[name].row_count() + 1 for name in ("platforms", "builders", "findings"))
        is_narrow, half = self.has_class("-narrow"), max(3, self.size.height // 2)
        self._table("platforms").styles.height = min(platforms, 5 if is_narrow else 9)
        self._table("builders").styles.height = min(builders, max(3, self.size.height // 4 + 1)) if is_narrow else "1fr"
        self._table("findings").styles.height = "1fr" if self.has_class("-zoomed") else min(findings, half)

    # ---------------------------------------------------------------------------------------------------------------- the keys

    def action_share(self) -> None:
        """Offer mode, location and patterns of the shared cache, a test, and to save or discard what was changed."""
        self.sharing.look()
        self.sharing.open_menu()

    def action_verify(self) -> None:
        """Compare every product with its digest."""
        self._look(self.examination.verify)

    def action_unowned(self) -> None:
        """Look for files that belong to no product."""
        self._look(self.examination.find_unowned)

    def _look(self, begin: Callable[[], None]) -> None:
        if not self.examination.is_busy:
            self.mending.going = []
            self._table("findings").marks.clear()
        begin()

    def action_cancel(self) -> None:
        """Stop looking; what was found so far stays."""
        self.examination.cancel()

    def action_repair(self) -> None:
        """Ask to run the jobs of what is wrong again: of the marked rows or the one under the cursor, or of all."""
        table = self._table("findings")
        self.mending.ask_to_repair([self._problem(key) for key in table.selected_keys()] if table.has_focus else [])

    def action_delete(self) -> None:
        """Have the engine delete the files that belong to no product, after asking."""
        self.mending.ask_to_delete()

    # ------------------------------------------------------------------------------------------------------------ the rest

    def on_rows_opened(self, event: Rows.Opened) -> None:
        """Offer what can be done about a finding."""
        event.stop()
        if event.rows.id == "cache-findings":
            self.mending.open_menu(self._problem(event.key), None)

    def on_rows_context_menu(self, event: Rows.ContextMenu) -> None:
        """Offer the same at the pointer."""
        event.stop()
        if event.rows.id == "cache-findings":
            self.mending.open_menu(self._problem(event.key), (event.x, event.y))

    def action_menu(self) -> None:
        """Offer what can be done about the finding under the cursor."""
        table = self._table("findings")
        if table.has_focus and table.cursor_key is not None:
            self.mending.open_menu(self._problem(table.cursor_key), None)

    def action_copy(self) -> None:
        """Copy the rows that are marked, or the one under the cursor."""
        table = self.shell.app.focused
        if isinstance(table, Table):
            lines = [table.row_text(key) for key in table.selected_keys()]
            self.shell.copy_text("\n".join(lines)) if lines else None

    def action_zoom(self) -> None:
        """Give the findings all the room, or give it back."""
        self.toggle_class("-zoomed")
        if self.has_class("-zoomed"):
            self._table("findings").focus()
        self._fit_tables()

    def action_sort(self) -> None:
        """Choose what the table is sorted by."""
        table = self.shell.app.focused
        if isinstance(table, Table) and (table.id or "").startswith("cache-"):
            items = [MenuItem(column.id, f"by {column.title}") for column in table.columns if column.title]
            name = (table.id or "").removeprefix("cache-")
            Menu.ask(self.shell.app, items, lambda column: self._sort_by(name, column) if column else None, title="Sort")

    def on_table_header_clicked(self, event: Table.HeaderClicked) -> None:
        """Sort by a column; again: the other way round."""
        event.stop()
        if (event.rows.id or "").startswith("cache-") and event.column_id != "share":
            self._sort_by((event.rows.id or "").removeprefix("cache-"), event.column_id)

    def _sort_by(self, name: str, column: str) -> None:
        before = self._models[name].sort
        is_descending = not before[1] if before and before[0] == column else column not in _RISING
        self._sort(name, (column, is_descending))
        self.shell.memory.put(f"cache.sort.{name}", [column, is_descending])

    def _sort(self, name: str, sort: tuple[str, bool]) -> None:
        self._models[name].sort_by(sort)
        self._table(name).sort = sort
        self._table(name).refresh_model()

    def _table(self, name: str) -> Table:
        return self.query_one(f"#cache-{name}", Table)

    def _problem(self, key: int) -> CacheProblem:
        return self._models["findings"].at(key)  # type: ignore[return-value]  # it holds problems

    def _draw(self) -> None:
        for line in self.query(Bar):
            line.changed()
