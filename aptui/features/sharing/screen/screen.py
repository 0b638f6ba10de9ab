"""The Shared cache screen: contents and problems of this project's cache, its repairs, and a line about the team's cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, cast

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.geometry import Size

from aptui.features.sharing.screen.cache_contents import (
    WIDE_COLUMNS,
    CacheExamination,
    CacheInventory,
    CacheProblem,
    CacheShare,
    CheckProgress,
    InventoryReader,
    RepairCommands,
)
from aptui.features.sharing.screen.shared_settings import SharedSettings
from aptui.shared.printing import count
from aptui.tui.data.feed import Batch
from aptui.tui.frame.commandline import Command
from aptui.tui.frame.line import Bar, Part
from aptui.tui.pane import Pane, Shell
from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import Cell, share_bar
from aptui.tui.widgets.listing import ListedRow, ListedRows, Listing
from aptui.tui.widgets.menu import Menu, MenuItem
from aptui.tui.widgets.row_list import Rows
from aptui.tui.widgets.table import Column, SideTable, Table
from aptui.tui.words import size_text

# Functions for the columns, cells and sort keys of the tables.

_BAR_CELLS = 12
"""Length of the longest bar in the column "share"."""
PLATFORMS = (
    Column("name", "Platform", 0, 10),
    Column("count", "Products", 9, align="right"),
    Column("size", "Size", 10, align="right"),
    Column("share", "", _BAR_CELLS, drop_rank=2, is_picture=True),
    Column("made", "Last 24 h", 18, align="right", drop_rank=1),
)
FOLDERS = (
    Column("name", "Folder", 0, 12),
    Column("count", "Products", 9, align="right"),
    Column("size", "Size", 10, align="right"),
    Column("share", "", _BAR_CELLS, drop_rank=3, is_picture=True),
)
BUILDERS = (Column("name", "Builder", 0, 12), *FOLDERS[1:])
PRODUCTS = (Column("name", "Largest products", 0, 20), FOLDERS[2])
FINDINGS = (
    Column("problem", "Problem", 11),
    Column("product", "In the cache", 0, 16, weight=3),
    Column("source", "Made of", 0, 12, drop_rank=1, weight=2),
    Column("size", "Size", 10, align="right", drop_rank=2),
)
_PROBLEMS = {"damaged": ("failed", "failed"), "missing": ("warning", "warning"), "unowned": ("hollow", "muted")}


def share_row(at: int, share: CacheShare) -> ListedRow:
    """Return the row of a platform, folder, builder or product.

    If all its products were made in the last 24 h, the column "made" shows "all" instead of repeating number and size.
    """
    made = "all" if share.made == share.count else f"{share.made:,}, {size_text(share.made_bytes)}"
    cells = {
        "name": Cell(share.name, "path"),
        "count": Cell(f"{share.count:,}"),
        "size": Cell(size_text(share.size_bytes)),
        "share": Cell(share_bar(share.size_bytes / max(1, share.of_bytes), _BAR_CELLS), "accent"),
        "made": Cell(made) if share.made else Cell(glyph("none"), "muted"),
    }
    return ListedRow(at, cells, {"count": share.count, "size": share.size_bytes, "made": share.made}, share)


def platform_columns(platforms: Sequence[CacheShare]) -> tuple[Column, ...]:
    """Return the columns of the table of platforms.

    The column "made" is left out if all products, or no products, are new: the summary says so in one line.
    """
    is_shown = any(0 < each.made < each.count for each in platforms) or len({bool(each.made) for each in platforms}) > 1
    return PLATFORMS if is_shown else PLATFORMS[:-1]


def problem_cell(problem: CacheProblem, column: str) -> Cell:
    """Return the table cell for a column in the row of a problem."""
    sign, role = _PROBLEMS[problem.kind]
    match column:
        case "problem":
            return Cell(f"{glyph(sign)} {problem.kind}", role)
        case "product":
            return Cell(problem.name, "path")
        case "source":
            return Cell(problem.source or glyph("none"), "" if problem.source else "muted")
        case _:
            return Cell(size_text(problem.size_bytes) if problem.size_bytes >= 0 else glyph("none"), "muted")


def problem_order(problem: CacheProblem, column: str) -> object:
    """Return the sort key for a column in the row of a problem."""
    orders: dict[str, object] = {"problem": problem.kind, "source": problem.source.lower(), "size": problem.size_bytes}
    return orders.get(column, problem.name.lower())


_SORTS = {
    "platforms": ("name", False), "folders": ("size", True), "builders": ("size", True), "products": ("size", True),
    "findings": ("product", False),
}  # fmt: skip
_RISING = frozenset({"name", "problem", "product", "source"})
"""Columns whose first sort order is ascending; all other columns first show the largest number at the top."""


class Findings(Table):
    """The table of a check's findings."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "open", "menu", id="rows.open")]


class LargestProducts(SideTable):
    """The table of the largest products; Enter goes to a product in Assets."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "open", "show in Assets", id="rows.open")]


class CacheTables:
    """The tables of sizes by platform, folder, builder and product, and of findings; the id of each widget is `cache-<name>`."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._amounts = {name: ListedRows() for name in ("platforms", "folders", "builders", "products")}
        self._problems = Listing(problem_cell, problem_order, lambda problem, _: hash(problem.name))
        self.platforms = SideTable(PLATFORMS, self._amounts["platforms"], id="cache-platforms")
        self.builders = SideTable(BUILDERS, self._amounts["builders"], id="cache-builders")
        self.folders = SideTable(FOLDERS, self._amounts["folders"], id="cache-folders")
        self.products = LargestProducts(PRODUCTS, self._amounts["products"], id="cache-products")
        self.findings = Findings(FINDINGS, self._problems, id="cache-findings")
        self._widgets: dict[str, Table] = {name: getattr(self, name) for name in _SORTS}

    def _model(self, name: str) -> ListedRows | Listing[CacheProblem]:
        return self._problems if name == "findings" else self._amounts[name]

    def show_inventory(self, contents: CacheInventory) -> None:
        """Show the contents of the cache."""
        self.platforms.set_columns(platform_columns(contents.platforms))
        for name, rows in self._amounts.items():
            rows.show_rows([share_row(at, share) for at, share in enumerate(getattr(contents, name))])
            self._widgets[name].refresh_model()

    def show_findings(self, progress: CheckProgress) -> None:
        """Show the findings so far."""
        # If the number of findings did not change, the findings did not change either, because a check only adds findings.
        if len(progress.problems) != self._problems.row_count():
            self._problems.show(progress.problems)
        self.findings.refresh_model()

    def product(self, key: int) -> str:
        """Return the path of the product in a row."""
        return self._amounts["products"].at(key).cell("name").text

    def problem(self, key: int) -> CacheProblem:
        """Return the problem in a row of the table of findings."""
        return self._problems.at(key)

    def fit(self, size: Size, *, is_narrow: bool, is_zoomed: bool) -> None:
        """Shrink short tables to the lines they need."""
        names = ("platforms", "builders", "folders", "findings")
        platforms, builders, folders, findings = (self._model(name).row_count() + 1 for name in names)
        # The minimum of two lines is enough for the heading and one row.
        self.platforms.styles.height = max(2, min(platforms, 5 if is_narrow else 9))
        for name in ("builders", "folders", "products"):
            self._widgets[name].display = self._model(name).row_count() > 0
        # On a narrow screen all tables are one above the other; the last table takes the lines that are left.
        part = max(3, size.height // 5)
        self.builders.styles.height = min(builders, part) if is_narrow else "1fr"
        self.folders.styles.height = min(folders, part if is_narrow else size.height // 3)
        self.findings.styles.height = "1fr" if is_zoomed else min(findings, max(3, size.height // 2))

    # ------------------------------------------------------------------------------------------------------------ sort order

    def restore_order(self) -> None:
        """Restore the saved sort order."""
        for name, usual in _SORTS.items():
            column, is_descending = self._shell.memory.get(f"cache.sort.{name}", list(usual))
            known = {each.id for each in self._widgets[name].columns if each.title}
            self._sort(name, (column, bool(is_descending)) if column in known else usual)

    def ask_order(self, table: Table) -> None:
        """Ask for the sort order of a table."""
        items = [MenuItem(column.id, f"by {column.title}") for column in table.columns if column.title]
        Menu.ask(self._shell.app, items, lambda column: self.turn_order(table, column) if column else None, title="Sort")

    def turn_order(self, table: Table, column: str) -> None:
        """Sort by a column; a second call reverses the order."""
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


class CachePane(Pane):
    """The Shared cache screen: numbers and sizes of products above, findings of a check below."""

    DEFAULT_CSS = """
    CachePane { layout: vertical; }
    #cache-columns { height: 1fr; }
    #cache-left { width: 1fr; }
    #cache-right { width: 1fr; margin: 0 0 0 2; }
    #cache-platforms { height: auto; margin: 0 0 1 0; }
    CachePane.-narrow #cache-columns { layout: vertical; }
    CachePane.-narrow #cache-left { height: auto; width: 1fr; }
    CachePane.-narrow #cache-builders, #cache-folders { margin: 0 0 1 0; }
    CachePane.-narrow #cache-right { height: 1fr; width: 1fr; margin: 0; }
    #cache-shared { margin: 0 0 1 0; }
    CachePane.-narrow #cache-shared { margin: 0; }
    #cache-look { display: none; }
    CachePane.-looked #cache-look { display: block; }
    #cache-findings { height: 2; display: none; }
    CachePane.-found #cache-findings { display: block; }
    CachePane.-zoomed #cache-columns { display: none; }
    """
    command_names = ("verify", "unowned", "share", "test", "repair", "delete")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "cancel", "cancel", id="cache.cancel"),
        Binding("r", "repair", "repair", id="cache.repair"),
        Binding("D", "delete", "delete them", id="cache.delete"),
        Binding("V", "verify", "verify", id="cache.verify"),
        Binding("U", "unowned", "unowned", id="cache.unowned"),
        Binding("O", "share", "shared cache", id="cache.share"),
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
        self.repair_commands = RepairCommands(self.shell, lambda: self.examination.problems, self._take_gone)
        self._is_informed = False
        self.tables = CacheTables(self.shell)

    def compose(self) -> ComposeResult:
        """Yield summary, tables, and findings."""
        yield Bar(self.inventory.summary, id="cache-summary", rules=False)
        yield Bar(self.sharing.summary, id="cache-shared", rules=False)
        with Horizontal(id="cache-columns"):
            with Vertical(id="cache-left"):
                yield self.tables.platforms
                yield self.tables.builders
            with Vertical(id="cache-right"):
                yield self.tables.folders
                yield self.tables.products
        yield Bar(self._verdict, id="cache-look", rules=True)
        yield self.tables.findings

    def on_mount(self) -> None:
        """Restore the saved sort order."""
        self.tables.restore_order()
        self.tables.platforms.empty_text = "no products yet; the products of jobs appear here"

    def on_unmount(self) -> None:
        """Cancel running work."""
        for each in (self.inventory, self.examination, self.repair_commands, self.sharing):
            each.close()

    def on_resize(self, event: events.Resize) -> None:
        """Stack the tables if the screen is narrow."""
        self.set_class(event.size.width < WIDE_COLUMNS, "-narrow")
        self._fit_tables()

    # ------------------------------------------------------------------------------------------------------------- updates

    def activate(self) -> None:
        """Read the inventory of the cache if it may have changed."""
        self.sharing.refresh_account()
        self.inventory.read_if_stale()

    def reload(self) -> None:
        """Read everything again."""
        self.sharing.refresh_account()
        self.inventory.read()

    def on_news(self, batch: Batch) -> None:
        """Note whether the products in the cache may have changed."""
        self.inventory.note(batch)
        self._is_informed = self._is_informed or bool(batch)

    def on_frame(self) -> None:
        """Read the inventory of the cache if the engine is idle. Check whether files that the engine was asked to delete exist."""
        self.inventory.read_if_stale()
        if self._is_informed:
            self.repair_commands.find_gone()
        self._is_informed = False
        self._draw()

    def status(self) -> str:
        """Return the size of the cache as text."""
        known = self.inventory.contents
        return f"{count(known.count, 'product')}, {size_text(known.size_bytes)}" if known else ""

    def commands(self) -> Sequence[Command]:
        """Return the commands of this screen."""
        commands = [
            Command("verify", "compare every product with its digest", lambda _rest: self.action_verify()),
            Command(
                "unowned", "list unowned files (files in the cache that are not products)", lambda _rest: self.action_unowned()
            ),
        ]
        if self.shell.config is not None:
            commands.append(
                Command("share", "show mode, location and patterns of the shared cache", lambda _rest: self.action_share())
            )
            commands.append(Command("test", "test the connection to the shared cache", lambda _rest: self.sharing.test()))
        if self.examination.has_found("damaged", "missing"):
            commands.append(
                Command("repair", "run the jobs of all findings again", lambda _: self.repair_commands.ask_to_repair(), None, True)
            )
        if self.examination.has_found("unowned"):
            commands.append(Command("delete", "delete the unowned files", lambda _: self.action_delete(), None, True))
        return commands

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether the key of an action is shown: only if the action is possible now."""
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

    # ----------------------------------------------------------------------------------------------------------------- drawing

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
        return self.examination.verdict(width, are_going=bool(self.repair_commands.going))

    def _take_gone(self, gone: set[str]) -> None:
        """Remove findings whose files the engine has deleted."""
        self.examination.forget(gone)
        self._draw()

    def _fit_tables(self) -> None:
        self.tables.fit(self.size, is_narrow=self.has_class("-narrow"), is_zoomed=self.has_class("-zoomed"))

    # ----------------------------------------------------------------------------------- keys for settings, checks and repairs

    def action_share(self) -> None:
        """Open the menu of the shared cache: mode, location, patterns, test, save and discard."""
        self.sharing.refresh_account()
        self.sharing.open_menu()

    def action_verify(self) -> None:
        """Compare every product with its digest."""
        self._examine(self.examination.verify)

    def action_unowned(self) -> None:
        """Search for files without a product."""
        self._examine(self.examination.find_unowned)

    def _examine(self, begin: Callable[[], None]) -> None:
        if not self.examination.is_busy:
            self.repair_commands.going = []
            self.tables.findings.marks.clear()
        begin()

    def action_cancel(self) -> None:
        """Cancel the check; its findings stay."""
        self.examination.cancel()

    def action_repair(self) -> None:
        """Ask to run the jobs of findings again: of marked rows, of the row under the cursor, or of all."""
        table = self.tables.findings
        self.repair_commands.ask_to_repair(
            [self.tables.problem(key) for key in table.marks.list_selected()] if table.has_focus else []
        )

    def action_delete(self) -> None:
        """Ask the engine to delete the files without a product, after confirmation."""
        self.repair_commands.ask_to_delete()

    # -------------------------------------------------------------------------------------------------- keys of the tables

    def on_rows_opened(self, event: Rows.Opened) -> None:
        """Open the menu of a finding, or go to a product in Assets."""
        event.stop()
        if event.rows is self.tables.products:
            self.shell.reveal("assets", self.tables.product(event.key))
        elif event.rows is self.tables.findings:
            self.repair_commands.open_menu(self.tables.problem(event.key), None)

    def on_rows_context_menu(self, event: Rows.ContextMenu) -> None:
        """Open the menu of a finding at the pointer."""
        event.stop()
        if event.rows is self.tables.findings:
            self.repair_commands.open_menu(self.tables.problem(event.key), (event.x, event.y))

    def action_menu(self) -> None:
        """Open the menu of the finding under the cursor."""
        table = self.tables.findings
        if table.has_focus and table.cursor_key is not None:
            self.repair_commands.open_menu(self.tables.problem(table.cursor_key), None)

    def action_copy(self) -> None:
        """Copy the marked rows or the row under the cursor."""
        table = self.shell.app.focused
        if isinstance(table, Table) and (text := table.join_selected_rows()):
            self.shell.copy_text(text)

    def action_zoom(self) -> None:
        """Show the findings only, or everything."""
        self.toggle_class("-zoomed")
        if self.has_class("-zoomed"):
            self.tables.findings.focus()
        self._fit_tables()

    def action_sort(self) -> None:
        """Ask for the sort order of the table."""
        table = self.shell.app.focused
        if isinstance(table, Table):
            self.tables.ask_order(table)

    def on_table_header_clicked(self, event: Table.HeaderClicked) -> None:
        """Sort by a column; a second click reverses the order."""
        event.stop()
        self.tables.turn_order(cast(Table, event.rows), event.column_id)

    def _draw(self) -> None:
        for line in self.query(Bar):
            line.refresh_if_changed()
