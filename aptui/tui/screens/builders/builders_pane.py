"""The Builders screen: the list of builders, and the patterns, details and metrics of the builder under the cursor."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input

from aptui.config.dirs import asset_database
from aptui.shared.errors import KnownError
from aptui.store.queries.metrics import Entry
from aptui.tui.background import call_after, run_in_background
from aptui.tui.frame.commandline import Command
from aptui.tui.frame.line import Bar, Part, TabLine
from aptui.tui.frame.statusline import Rule
from aptui.tui.pane import Pane, Shell
from aptui.tui.screens.builders import builder_facts as known
from aptui.tui.screens.builders.builder_facts import (
    BUILDERS,
    DESCENDING,
    LARGEST_FIRST,
    METRICS,
    MOST,
    SORTED_BY,
    TABS,
    FoundBuilders,
    KnownBuilder,
    Metrics,
    find,
    is_descending_next,
    join_searched,
)
from aptui.tui.screens.external_programs import Copy, offer_copies, offer_pair
from aptui.tui.screens.jobs.job_texts import details as as_lines
from aptui.tui.screens.jobs.job_texts import term
from aptui.tui.screens.logs.log_tabs import parse_filter
from aptui.tui.widgets.filterbox import FilterBox
from aptui.tui.widgets.listing import ListedRows
from aptui.tui.widgets.menu import Menu, MenuChoice, MenuItem
from aptui.tui.widgets.row_list import Rows
from aptui.tui.widgets.table import KeyValue, SideTable, Table, fit_columns, width_of_all
from aptui.tui.widgets.tree import VTree

if TYPE_CHECKING:
    from textual.widget import Widget

    from aptui.tui.data.feed import Batch


READ_AGAIN_S = 2.0
"""Minimum interval between reads of the builders (seconds); slow reads make it longer."""


class BuilderReading:
    """Reads the builders in a thread: when the screen is first shown, and again after jobs ended. Nothing is polled.

    Args:
        set_timer: calls a function after some seconds.
        due: called when a delayed read can start; it must cause a call of `poll`, which starts the read.
        taken: called in the app's thread after each read; its argument is the previous result.
    """

    def __init__(
        self,
        shell: Shell,
        set_timer: Callable[[float, Callable[[], None]], object],
        due: Callable[[], None],
        taken: Callable[[FoundBuilders], None],
    ) -> None:
        self._shell, self._set_timer, self._due, self._taken = shell, set_timer, due, taken
        self.found = FoundBuilders()
        self.is_known = self.is_stale = False
        self.is_busy = False
        """Whether a read is running or delayed."""
        self.read_s = self._took_s = 0.0

    def poll(self) -> None:
        """Start a read if one is needed and due."""
        if not self.is_stale or self.is_busy:
            return
        wait_s = self.read_s + max(READ_AGAIN_S, 5 * self._took_s) - time.monotonic() if self.is_known else 0
        self.is_busy = True
        if wait_s > 0:
            self._set_timer(wait_s, self._stop_waiting)
        else:
            self._read()

    def _stop_waiting(self) -> None:
        self.is_busy = False
        self._due()

    def _read(self) -> None:
        shell = self._shell
        self.is_stale = False
        run_in_background("aptui-builders", self._find, asset_database(shell.session.cache_dir), shell.config, shell.all_builders)

    def _find(self, *places: Any) -> None:
        """Read the builders in a thread."""
        began_s = time.monotonic()
        found = find(*places)
        self._shell.in_ui(self._accept, found, time.monotonic() - began_s)

    def _accept(self, found: FoundBuilders, took_s: float) -> None:
        was = self.found
        self.is_busy, self.is_known = False, True
        self.read_s, self._took_s, self.found = time.monotonic(), took_s, found
        self._taken(was)


_SORT = ("total", True)
_BESIDE_CELLS = 170
"""Minimum width of the screen for the details beside the list (cells); on a narrower screen they are below it."""
_LEAST_SHARE, _MOST_SHARE = 5, 8
"""Minimum and maximum width of the list, in twelfths of the screen's width. They apply only if the details are beside the list."""
_COLUMNS_LINES = 36
"""Minimum height of the screen at which all three parts of the details are shown, as columns below the list (lines)."""
_LEAST_LIST = 4
_AROUND_LIST = 2
"""Width of the edge and the scroll bar of the list (cells)."""
_DETAIL_LINES = 17
"""Number of lines for the details below the list; on a high screen, the list gets the remaining lines."""
_AROUND_PATTERNS = 3
"""Lines above the patterns: a rule, the tabs, the header."""


class BuildersSearch:
    """The filter line. It filters the list by names and patterns, or the metrics by sources; each has its own filter."""

    def __init__(self, pane: BuildersPane) -> None:
        self._pane = pane
        self._texts = {"list": "", "metrics": ""}
        self._place = "list"

    @property
    def list_text(self) -> str:
        """The filter of the list."""
        return self._texts["list"]

    def begin(self) -> None:
        """Open the filter line for the metrics if they have the focus, else for the list."""
        box = self._pane.box
        self._place = "metrics" if self._pane.spent.has_focus else "list"
        box.text = self._texts[self._place]
        box.show_count("")
        box.display = True
        box.begin()

    def handle(self, event: FilterBox.Changed) -> None:
        """Filter by the typed text; when the user leaves the line, focus the rows."""
        if isinstance(event, FilterBox.FilterLeft):
            self._pane.box.display = bool(event.text)
            (self._pane.spent if self._place == "metrics" else self._pane.list).focus()
        elif event.text != self._texts[self._place]:
            self._narrow(event.text)

    def clear_list(self) -> None:
        """Show all builders."""
        self._place = "list"
        self._hide()
        self._narrow("")

    def forget_list(self) -> None:
        """Clear the filter of the list; afterwards the caller must fill the list again."""
        self._texts["list"] = ""
        self._hide()

    def _hide(self) -> None:
        self._pane.box.text, self._pane.box.display = "", False

    def _narrow(self, text: str) -> None:
        """Apply a filter. If the filter has a mistake, show the mistake and do not change the rows."""
        try:
            parse_filter(text)
        except KnownError as error:
            self._pane.box.show_error(error)
            return
        self._texts[self._place] = text
        if self._place == "list":
            self._pane.fill_list()
        else:
            self.narrow_metrics()
            self._pane.spent.refresh_model()

    def passing(self, builders: Sequence[KnownBuilder]) -> list[KnownBuilder]:
        """Return the builders that match the filter."""
        masks = parse_filter(self._texts["list"]).passing([join_searched(each) for each in builders])
        return [each for each, is_hit in zip(builders, masks, strict=True) if is_hit]

    def show_list_count(self, count: int, of: int) -> None:
        """Show how many of all builders match the filter."""
        if self._pane.box.display and self._place == "list":
            self._pane.box.show_count(f"{count} of {of}" if self._texts["list"] else "")

    def narrow_metrics(self) -> None:
        """Show the entries of the metrics that match the filter."""
        found, metrics = parse_filter(self._texts["metrics"]), self._pane.metrics

        def passes(entries: Sequence[Entry]) -> Sequence[Entry]:
            masks = found.passing([f"{entry.source} {entry.platform} {entry.job_key}" for entry in entries])
            return [entry for entry, is_hit in zip(entries, masks, strict=True) if is_hit]

        metrics.narrow(passes)
        if self._pane.box.display and self._place == "metrics":
            self._pane.box.show_count(f"{metrics.entry_count:,} of the slowest {MOST:,}")


class BuildersPane(Pane):
    """The Builders screen."""

    DEFAULT_CSS = """
    BuildersPane { layout: vertical; }
    BuildersPane #builders-filter { display: none; }
    BuildersPane #builders-both { layout: vertical; }
    BuildersPane #builders-side { height: 1fr; }
    BuildersPane #builders-side Vertical { width: 1fr; height: 1fr; }
    BuildersPane.-beside #builders-both { layout: horizontal; }
    BuildersPane.-beside #builders-list { height: 1fr; }
    BuildersPane.-beside #builders-side { width: 1fr; border-left: solid $role-rule; }
    BuildersPane.-columns #builders-side { layout: horizontal; }
    BuildersPane.-columns #builders-details-column { width: 3fr; }
    BuildersPane.-columns #builders-patterns-column { width: 2fr; }
    BuildersPane.-columns #builders-metrics-column { width: 5fr; }
    """
    command_names = ("builder", "jobs-of")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "filter", id="builders.filter"),
        Binding("p", "part('patterns')", "patterns", id="builders.patterns"),
        Binding("d", "part('details')", "details", id="builders.details"),
        Binding("m", "part('metrics')", "metrics", id="builders.metrics"),
        Binding("J", "jobs", "its jobs", id="builders.jobs"),
        Binding("S", "sort", "sort", show=False, id="builders.sort"),
        Binding("y", "copy", "copy", show=False, id="builders.copy"),
        Binding("full_stop", "menu", "menu", show=False, id="builders.menu"),
        Binding("z", "zoom", "zoom", show=False, id="builders.zoom"),
        Binding("escape", "back", "back", show=False, id="builders.back"),
    ]

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.rows, self.pattern_rows = ListedRows(), ListedRows()
        """The rows of the list, and of the patterns of the builder under the cursor."""
        self.box, self.list = FilterBox(id="builders-filter"), Table(BUILDERS, id="builders-list")
        self.patterns, self.details = SideTable(known.PATTERNS, id="builders-patterns"), KeyValue(id="builders-details")
        self.spent = VTree(METRICS, id="builders-metrics")
        self._parts: dict[str, Rows] = dict(zip(TABS, (self.patterns, self.details, self.spent), strict=True))
        self._tabs = TabLine(self._titles, self._words, lambda at: self.action_part(TABS[at]), id="builders-tabs")
        self._heads = {name: Bar(partial(self._head, name), id=f"builders-{name}-head", rules=True) for name in TABS}
        """The headings of the parts; visible if all parts are visible, in place of the tabs."""
        self._columns = {name: Vertical(self._heads[name], self._parts[name], id=f"builders-{name}-column") for name in TABS}
        self._side = Vertical(self._tabs, *self._columns.values(), id="builders-side")
        self.part = TABS[0]
        self._is_zoomed = self._has_columns = False
        self.search = BuildersSearch(self)
        self._keys: dict[bytes, int] = {}
        self._is_visible = False
        self._wanted = ""

    def compose(self) -> ComposeResult:
        """Create the widgets."""
        self.reading = BuilderReading(self.shell, partial(call_after, self), self._read_on, self._accept_builders)
        yield self.box
        yield Vertical(self.list, Rule(name="builders-rule"), self._side, id="builders-both")

    def _head(self, name: str, _width: int) -> tuple[Sequence[Part], Sequence[Part]]:
        title = self._titles()[0][TABS.index(name)]
        return (Part(title, "title" if self._parts[name].has_focus else "header"),), self._words() if name == TABS[0] else ()

    def _titles(self) -> tuple[Sequence[str], int]:
        count = self.pattern_rows.row_count()
        return (f"Patterns ({count})" if count else "Patterns", "Details", "Metrics"), TABS.index(self.part)

    def _words(self) -> Sequence[Part]:
        current = self.current
        return (Part(current.name, "title"),) if current else ()

    def on_mount(self) -> None:
        """Restore the remembered choices."""
        shell, memory = self.shell, self.shell.memory
        self.metrics = Metrics(asset_database(shell.session.cache_dir), shell.in_ui, self._accept_entries)
        part = memory.get("builders.part", TABS[0])
        self.part = part if part in TABS else TABS[0]
        sort: list[Any] = memory.get("builders.sort", list(_SORT))
        self._sort_list(f"{next(iter(sort), _SORT[0])}", is_descending=sort[1:] != [False])
        self.list.set_model(self.rows)
        self.list.empty_text = "reading the builders"
        self.patterns.set_model(self.pattern_rows)
        self.spent.sort = ("total", True)
        self.spent.set_tree(self.metrics.tree)
        self.spent.empty_text = "reading its metrics"
        self._show_parts()

    # ----------------------------------------------------------------------------------------------------------------- layout

    def on_resize(self) -> None:
        """Put the details beside the list or below it. Show one part of them, or all three as columns if there is room."""
        has_columns = self.size.width >= _BESIDE_CELLS and self.size.height >= _COLUMNS_LINES
        self.set_class(self.size.width >= _BESIDE_CELLS and not has_columns, "-beside")
        self.set_class(has_columns, "-columns")
        if self._has_columns != has_columns:
            self._has_columns = has_columns
            self._show_parts()
        self._divide_height()

    def _is_shown(self, name: str) -> bool:
        """Return whether a part of the details is visible."""
        return self._has_columns or name == self.part

    def _divide_height(self) -> None:
        """If the details are below the list, give the list the height that it needs.

        It is computed for the builder with the most patterns, so that it does not change when the cursor moves.
        """
        is_below = not self.has_class("-beside") and not self._is_zoomed
        lines = _DETAIL_LINES
        if self.part == TABS[0] and not self._has_columns:
            most_patterns = max((len(each.builder.patterns) for each in self.reading.found.builders if each.builder), default=0)
            lines = min(lines, _AROUND_PATTERNS + max(1, most_patterns))
        most = max(_LEAST_LIST, self.size.height * 2 // 5, self.size.height - lines)
        wanted = min(most, max(_LEAST_LIST, self.rows.row_count() + 1 + self._has_columns))
        self.list.styles.height = wanted if is_below else "1fr"
        self.query_one("#builders-rule").display = is_below and not self._has_columns
        needs = width_of_all(self.list.columns) + _AROUND_LIST
        width = max(self.size.width * _LEAST_SHARE // 12, min(needs, self.size.width * _MOST_SHARE // 12))
        self.list.styles.width = width if self.has_class("-beside") and not self._is_zoomed else "1fr"

    def _show_parts(self) -> None:
        """Show the list and the current part, or one of them if it is zoomed."""
        for name in TABS:
            self._columns[name].display = self._parts[name].display = self._is_shown(name)
            self._heads[name].display = self._has_columns
        self._tabs.display = not self._has_columns
        list_has_focus = self.list.has_focus
        self.list.display = not self._is_zoomed or list_has_focus
        self._side.display = not self._is_zoomed or not list_has_focus
        self._divide_height()
        self._open_groups()
        self._refresh_titles()

    def _refresh_titles(self) -> None:
        """Draw the tabs and the headings again if they changed."""
        for line in (self._tabs, *self._heads.values()):
            line.refresh_if_changed()

    # ------------------------------------------------------------------------------------------------------ methods of `Pane`

    def name_awaited(self, focused: Widget | None) -> str:
        """Return "the first rows" if the next key has to wait until the builders are read, else ""."""
        return "" if self.reading.is_known or focused is None or isinstance(focused, Input) else "the first rows"

    def activate(self) -> None:
        """Read the builders if they are unknown or out of date."""
        self._is_visible = True
        self.reading.is_stale |= not self.reading.is_known

    def deactivate(self) -> None:
        """Remember the shown part and the sort order."""
        self._is_visible = False
        self.shell.memory.put("builders.part", self.part)
        if self.list.sort:
            self.shell.memory.put("builders.sort", list(self.list.sort))

    def on_news(self, batch: Batch) -> None:
        """Note that jobs ended."""
        if batch.table is not None or any(news.notice.status in {"completed", "failed"} for news in batch.jobs):
            self.reading.is_stale = True
        if batch.health is not None and self.reading.is_known:
            self.fill_list()

    def on_frame(self) -> None:
        """Read again after jobs ended, and draw."""
        self.reading.poll()
        self.list.refresh_model()
        self.spent.refresh_model()
        self._refresh_titles()

    def reload(self) -> None:
        """Read all builders again."""
        self.reading.is_stale, self.reading.is_known = True, False

    def status(self) -> str:
        """Return the number of builders."""
        return f"{self.rows.row_count()} builders"

    def commands(self) -> Sequence[Command]:
        """Return the commands of the `:` line."""
        names = [each.name for each in self.reading.found.builders]
        return (
            Command("builder", "go to a builder", self.reveal, lambda: names),
            Command(
                "jobs-of", "show the jobs of a builder", lambda rest: self._go_to_jobs(rest or self._shown_name), lambda: names
            ),
        )

    def reveal(self, name: str) -> None:
        """Go to a builder by name. Other screens call this method, even before the builders are read."""
        name = name.strip()
        found = next((each for each in self.reading.found.builders if each.name == name), None)
        if found is None:
            self._wanted = "" if self.reading.is_known else name
            if self.reading.is_known:
                self.shell.show_toast(f"no builder '{name}'", "warning")
            return
        self._wanted = ""
        if not self.list.move_to_key(self._keys[found.uuid]):
            self.search.forget_list()
            self.fill_list()
            self.list.move_to_key(self._keys[found.uuid])
        self.list.focus()

    # ---------------------------------------------------------------------------------------------------------------- reading

    def _read_on(self) -> None:
        if self._is_visible:
            self.shell.wake()

    def _accept_builders(self, was: FoundBuilders) -> None:
        if not self.is_attached:
            return
        trouble = self.reading.found.trouble
        if trouble and trouble != was.trouble:
            self.shell.show_toast(trouble, "warning", 10)
        self.spent.empty_text = "this builder has not run yet"
        self.fill_list()
        if self._wanted:
            self.reveal(self._wanted)
        if self.reading.is_stale:
            self.shell.wake()

    # ---------------------------------------------------------------------------------------------------------------- drawing

    @property
    def current(self) -> KnownBuilder | None:
        """The builder under the cursor."""
        row = self.rows.row(self.list.cursor_key)
        return row.data if row else None

    @property
    def _shown_name(self) -> str:
        return self.current.name if self.current else ""

    def _describe_broken(self, name: str) -> str:
        health = self.shell.session.latest_health
        return dict(health.broken_builders).get(name, "") if health else ""

    def fill_list(self) -> None:
        """Fill the list with the builders that match the filter."""
        found = self.reading.found
        for each in found.builders:
            self._keys.setdefault(each.uuid, len(self._keys))
        builders = self.search.passing(found.builders)
        all_ms = sum(each.all_spent.total_ms for each in found.builders)
        self.list.set_columns(known.columns_for(builders))
        self.rows.show_rows(
            [known.row_of(self._keys[each.uuid], each, self._describe_broken(each.name), all_ms) for each in builders]
        )
        self.list.empty_text = "no builder matches" if self.search.list_text else found.trouble or "no builder"
        self.list.refresh_model()
        self.search.show_list_count(len(builders), len(found.builders))
        self._divide_height()
        self._show_builder()

    def _show_builder(self) -> None:
        current = self.current
        rows = known.pattern_rows(current, self.shell.config) if current else []
        self.pattern_rows.show_rows(rows)
        panel = self.details
        pairs = known.details(current, self.shell.config, self._describe_broken(current.name)) if current else []
        if pairs != panel.pairs:
            panel.show(pairs)
        table = self.patterns
        table.empty_text = (
            "the patterns are unknown, because this builder is only in the database, not in the configuration"
            if current and not current.builder
            else "this builder has no patterns"
        )
        if table.columns != (columns := fit_columns(known.PATTERNS, rows)):
            table.set_columns(columns)
        table.refresh_model()
        if self.metrics.show(current):
            self.spent.refresh_model()
            self._open_groups()
        self._refresh_titles()

    def _open_groups(self) -> None:
        """Open all groups of the tree of metrics, if this tree is shown."""
        for key in self.metrics.group_keys() if self._is_shown("metrics") else ():
            node = self.metrics.tree.node_of(key)
            if node is not None:
                self.spent.set_open(node, is_open=True)

    def _accept_entries(self, trouble: str) -> None:
        if not self.is_attached:
            return
        if trouble:
            self.shell.show_toast(trouble, "warning")
        self.search.narrow_metrics()
        if self.spent.columns != (columns := self.metrics.columns()):
            self.spent.set_columns(columns)
        self.spent.refresh_model()

    @on(Rows.Highlighted, "#builders-list")
    def _accept_choice(self, event: Rows.Highlighted) -> None:
        event.stop()
        self._show_builder()

    @on(Rows.Opened, "#builders-list")
    def _open_row(self, event: Rows.Opened) -> None:
        event.stop()
        self._parts[self.part].focus()

    def action_part(self, name: str) -> None:
        """Show the patterns, details or metrics; if they are shown already, focus them."""
        side_has_focus = self._side.has_focus_within
        was_shown, self.part = self._is_shown(name), name
        if self._is_zoomed and self.list.has_focus:
            self._is_zoomed = False
        self._show_parts()
        if side_has_focus or was_shown:
            self._parts[name].focus()

    def action_back(self) -> None:
        """Focus the list; if the list has the focus already, remove the filter."""
        if not self.list.has_focus:
            self.list.display = True
            self.list.focus()
            self._show_parts()
        elif self.search.list_text:
            self.search.clear_list()

    def action_zoom(self) -> None:
        """Show only the focused part (list or details), or both parts again."""
        self._is_zoomed = not self._is_zoomed
        self._show_parts()

    def on_descendant_focus(self) -> None:
        """Highlight the heading of the focused part."""
        self._refresh_titles()

    # ---------------------------------------------------------------------------------------------------- filter and order

    def action_filter(self) -> None:
        """Open the filter line for the metrics if they have the focus, else for the list."""
        self.search.begin()

    @on(FilterBox.Changed, "#builders-filter")
    def _filter_list(self, event: FilterBox.Changed) -> None:
        event.stop()
        self.search.handle(event)

    @on(Table.HeaderClicked)
    def _sort_by_header(self, event: Table.HeaderClicked) -> None:
        event.stop()
        if event.rows in (self.list, self.spent):
            self.sort_by(event.column_id, is_tree=event.rows is self.spent)

    def _sort_list(self, column_id: str, *, is_descending: bool) -> None:
        self.list.sort = (column_id, is_descending)
        self.rows.sort_by(self.list.sort)
        self.list.refresh_model()

    def sort_by(self, column_id: str, *, is_tree: bool) -> None:
        """Sort the list, or the tree of metrics, by a column; choosing the current column reverses its order."""
        if not is_tree:
            self._sort_list(column_id, is_descending=is_descending_next(self.list.sort, column_id, DESCENDING))
            return
        is_descending = is_descending_next(self.spent.sort, column_id, LARGEST_FIRST)
        self.spent.sort = (column_id if column_id in SORTED_BY else "total", is_descending)
        self.metrics.sort_by(*self.spent.sort)
        self.spent.refresh_model()

    def action_sort(self) -> None:
        """Open the menu of sort orders for the focused part."""
        is_tree = self.spent.has_focus
        columns = [column for column in METRICS if column.id in SORTED_BY] if is_tree else list(BUILDERS)
        items = [MenuItem(column.id, column.title, f"{at}") for at, column in enumerate(columns, start=1)]
        sort = partial(self.sort_by, is_tree=is_tree)
        Menu.ask(self.shell.app, items, lambda column_id: sort(column_id) if column_id else None, title="Sort by")

    # ------------------------------------------------------------------------------------------------------------ row actions

    def action_jobs(self) -> None:
        """Show the jobs of the builder."""
        self._go_to_jobs(self._shown_name)

    def _go_to_jobs(self, name: str) -> None:
        if name:
            self.shell.reveal("jobs", term("builder", name))

    @on(Rows.Opened, "#builders-metrics")
    def _go_to_entry(self, event: Rows.Opened) -> None:
        event.stop()
        entry = self.metrics.entry(event.key)
        if entry is not None:
            builder = f" {term('builder', self._shown_name)}" if not entry.is_analysis else ""
            self.shell.reveal("jobs", f"#{entry.job_id}" if entry.job_id else term("source", entry.source) + builder)

    def action_copy(self) -> None:
        """Open the menu of texts to copy: texts of the focused part, or of the builder under the cursor."""
        if offer_pair(self.shell, self.details):
            return
        name, everything = self._shown_name, "\n".join(as_lines(self.details.pairs))
        part = next((part for part in (self.list, self.patterns, self.spent) if part.has_focus), self.list)
        row: Copy = ("Row", "y", part.join_selected_rows)
        offer_copies(self.shell, [row, ("Name", "n", lambda: name), ("All details", "a", lambda: everything)])

    def action_menu(self, place: tuple[int, int] | None = None) -> None:
        """Open the menu of this screen's actions."""
        choices: list[MenuChoice] = [
            (MenuItem("jobs", "Show its jobs", "J", bool(self._shown_name)), self.action_jobs),
            (MenuItem("copy", "Copy…", "y"), self.action_copy),
            (MenuItem("sort", "Sort by…", "S"), self.action_sort),
            (MenuItem("filter", "Filter…", "slash"), self.action_filter),
            *((MenuItem(name, name.capitalize(), name[0]), partial(self.action_part, name)) for name in TABS),
        ]
        Menu.run_one(self.shell.app, choices, title=self._shown_name or "Builders", place=place)

    @on(Rows.ContextMenu)
    def _open_menu(self, event: Rows.ContextMenu) -> None:
        event.stop()
        self.action_menu((event.x, event.y))
