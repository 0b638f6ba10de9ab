"""The Builders screen: the list of builders, and the patterns, details and metrics of the builder under the cursor."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input

from aptui.config.dirs import asset_database
from aptui.tui.background import run_in_background
from aptui.tui.frame.commandline import Command
from aptui.tui.frame.line import Part, TabLine
from aptui.tui.frame.statusline import Rule
from aptui.tui.pane import Pane, Shell
from aptui.tui.screens.builders import builder_facts as known
from aptui.tui.screens.builders.builder_facts import (
    BUILDERS,
    DESCENDING,
    LARGEST_FIRST,
    METRICS,
    SORTED_BY,
    TABS,
    BuilderPlaces,
    BuilderWidgets,
    FoundBuilders,
    Metrics,
    find,
    is_descending_next,
)
from aptui.tui.screens.builders.builders_layout import BuildersLayout, BuildersSearch
from aptui.tui.screens.external_programs import Copy, offer_copies, offer_pair
from aptui.tui.screens.jobs.job_texts import details as as_lines
from aptui.tui.screens.jobs.job_texts import term
from aptui.tui.widgets.filterbox import FilterBox
from aptui.tui.widgets.listing import ListedRows
from aptui.tui.widgets.menu import Menu, MenuChoice, MenuItem
from aptui.tui.widgets.row_list import Rows
from aptui.tui.widgets.table import Table, fit_columns

if TYPE_CHECKING:
    from textual.widget import Widget

    from aptui.tui.data.feed import Batch


def ask_what_to_copy(shell: Shell, widgets: BuilderWidgets, builder: str) -> None:
    """Open the menu of texts to copy: texts of the focused part, or of the builder with this name."""
    if offer_pair(shell, widgets.details):
        return
    part = next((part for part in (widgets.list, widgets.patterns, widgets.spent) if part.has_focus), widgets.list)
    row: Copy = ("Row", "y", part.join_selected_rows)
    everything = "\n".join(as_lines(widgets.details.pairs))
    offer_copies(shell, [row, ("Name", "n", lambda: builder), ("All details", "a", lambda: everything)])


class BuildersOrder:
    """Sorts the list and the metrics.

    Args:
        rows: the rows of the list.
        metrics: returns the metrics.
    """

    def __init__(self, widgets: BuilderWidgets, rows: ListedRows, metrics: Callable[[], Metrics]) -> None:
        self._widgets, self._rows, self._metrics = widgets, rows, metrics

    def sort_list(self, column_id: str, *, is_descending: bool) -> None:
        """Sort builders for the list."""
        table = self._widgets.list
        table.sort = (column_id, is_descending)
        self._rows.sort_by(table.sort)
        table.refresh_model()

    def _sort_tree(self, column_id: str, *, is_descending: bool) -> None:
        tree, column_id = self._widgets.spent, column_id if column_id in SORTED_BY else "total"
        tree.sort = (column_id, is_descending)
        self._metrics().sort_by(column_id, is_descending=is_descending)
        tree.refresh_model()

    def sort_by(self, column_id: str, *, is_tree: bool) -> None:
        """Sort by a column; choosing the current column reverses its order."""
        if is_tree:
            self._sort_tree(column_id, is_descending=is_descending_next(self._widgets.spent.sort, column_id, LARGEST_FIRST))
        else:
            self.sort_list(column_id, is_descending=is_descending_next(self._widgets.list.sort, column_id, DESCENDING))

    def ask(self, app: App[object]) -> None:
        """Open the menu of sort orders for the focused part."""
        is_tree = self._widgets.spent.has_focus
        columns = [column for column in METRICS if column.id in SORTED_BY] if is_tree else list(BUILDERS)
        items = [MenuItem(column.id, column.title, f"{at}") for at, column in enumerate(columns, start=1)]
        Menu.ask(app, items, lambda column_id: self.sort_by(column_id, is_tree=is_tree) if column_id else None, title="Sort by")


READ_AGAIN_S = 2.0
"""Minimum interval between reads of the builders (seconds); slow reads make it longer."""


class BuilderReading:
    """Reads the builders in a thread: when the screen is first shown, and again after jobs ended. Nothing is polled.

    Args:
        set_timer: calls a function after some seconds.
        due: called when the delay of a read has ended; it must lead to a call of `poll`, which starts the read.
        taken: called after each read with the previous result, in the app's thread.
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
        shell, config = self._shell, self._shell.config
        places = BuilderPlaces(
            asset_database(shell.session.cache_dir), config, shell.all_builders,
            {each.uuid: each.name for each in config.project.builders} if config else {},
        )  # fmt: skip
        self.is_stale = False
        run_in_background("aptui-builders", self._find, places)

    def _find(self, places: BuilderPlaces) -> None:
        """Read the builders in a thread."""
        began_s = time.monotonic()
        found = find(places)
        self._shell.in_ui(self._accept, found, time.monotonic() - began_s)

    def _accept(self, found: FoundBuilders, took_s: float) -> None:
        was = self.found
        self.is_busy, self.is_known = False, True
        self.read_s, self._took_s, self.found = time.monotonic(), took_s, found
        self._taken(was)


_SORT = ("total", True)


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
        self.list, self.patterns = ListedRows(), ListedRows()
        tabs = TabLine(self._titles, self._words, lambda at: self.action_part(TABS[at]), id="builders-tabs")
        self.widgets = BuilderWidgets(self, tabs, lambda: self._titles()[0], self._words)
        self.parts = BuildersLayout(self.widgets, self.list.row_count, self._most_patterns, self._open_groups)
        self.search = BuildersSearch(self.widgets, lambda: self.metrics, self._put)
        self.order = BuildersOrder(self.widgets, self.list, lambda: self.metrics)
        self._keys: dict[bytes, int] = {}
        self._is_visible = False
        self._wanted = ""

    def compose(self) -> ComposeResult:
        """Create the widgets."""
        self.reading = BuilderReading(self.shell, self.set_timer, self._read_on, self._accept_builders)
        yield self.widgets.box
        yield Vertical(self.widgets.list, Rule(name="builders-rule"), self.widgets.side, id="builders-both")

    def _titles(self) -> tuple[Sequence[str], int]:
        count = self.patterns.row_count()
        return (f"Patterns ({count})" if count else "Patterns", "Details", "Metrics"), TABS.index(self.parts.part)

    def _words(self) -> Sequence[Part]:
        current = self.current
        return (Part(current.name, "title"),) if current else ()

    def on_mount(self) -> None:
        """Restore the remembered choices."""
        shell, memory = self.shell, self.shell.memory
        self.metrics = Metrics(asset_database(shell.session.cache_dir), shell.in_ui, self._accept_entries)
        part = memory.get("builders.part", TABS[0])
        self.parts.part = part if part in TABS else TABS[0]
        sort: list[Any] = memory.get("builders.sort", list(_SORT))
        self.order.sort_list(f"{next(iter(sort), _SORT[0])}", is_descending=sort[1:] != [False])
        self.widgets.list.set_model(self.list)
        self.widgets.list.empty_text = "reading the builders"
        self.widgets.patterns.set_model(self.patterns)
        self.widgets.spent.sort = ("total", True)
        self.widgets.spent.set_tree(self.metrics.tree)
        self.widgets.spent.empty_text = "reading its metrics"
        self.parts.show()

    def on_resize(self) -> None:
        """Put the details beside the list if there is room, else below it."""
        self.parts.resize()

    # ------------------------------------------------------------------------------------------------------ methods of `Pane`

    def name_awaited(self, focused: Widget | None) -> str:
        """Return what the next key waits for: the read of the builders."""
        return "" if self.reading.is_known or focused is None or isinstance(focused, Input) else "the first rows"

    def activate(self) -> None:
        """Read the builders if they are unknown or out of date."""
        self._is_visible = True
        self.reading.is_stale |= not self.reading.is_known

    def deactivate(self) -> None:
        """Remember the shown part and the sort order."""
        self._is_visible = False
        self.shell.memory.put("builders.part", self.parts.part)
        if self.widgets.list.sort:
            self.shell.memory.put("builders.sort", list(self.widgets.list.sort))

    def on_news(self, batch: Batch) -> None:
        """Note that jobs ended."""
        if batch.table is not None or any(news.notice.status in {"completed", "failed"} for news in batch.jobs):
            self.reading.is_stale = True
        if batch.health is not None and self.reading.is_known:
            self._put()

    def on_frame(self) -> None:
        """Read again after jobs ended, and draw."""
        self.reading.poll()
        self.widgets.list.refresh_model()
        self.widgets.spent.refresh_model()
        self.widgets.refresh_titles()

    def reload(self) -> None:
        """Read all builders again."""
        self.reading.is_stale, self.reading.is_known = True, False

    def status(self) -> str:
        """Return the number of builders."""
        return f"{self.list.row_count()} builders"

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
        if not self.widgets.list.move_to_key(self._keys[found.uuid]):
            self.search.forget_list()
            self._put()
            self.widgets.list.move_to_key(self._keys[found.uuid])
        self.widgets.list.focus()

    # ---------------------------------------------------------------------------------------------------------------- reading

    def _read_on(self) -> None:
        if self._is_visible:
            self.shell.wake()

    def _accept_builders(self, was: known.FoundBuilders) -> None:
        if not self.is_attached:
            return
        trouble = self.reading.found.trouble
        if trouble and trouble != was.trouble:
            self.shell.show_toast(trouble, "warning", 10)
        self.widgets.spent.empty_text = "this builder has not run yet"
        self._put()
        if self._wanted:
            self.reveal(self._wanted)
        if self.reading.is_stale:
            self.shell.wake()

    # ---------------------------------------------------------------------------------------------------------------- drawing

    @property
    def current(self) -> known.KnownBuilder | None:
        """The builder under the cursor."""
        row = self.list.row(self.widgets.list.cursor_key)
        return row.data if row else None

    @property
    def _shown_name(self) -> str:
        return self.current.name if self.current else ""

    def _describe_broken(self, name: str) -> str:
        health = self.shell.session.latest_health
        return dict(health.broken_builders).get(name, "") if health else ""

    def _put(self) -> None:
        """Fill the list with the builders that match the filter."""
        found = self.reading.found
        for each in found.builders:
            self._keys.setdefault(each.uuid, len(self._keys))
        builders = self.search.passing(found.builders)
        all_ms = sum(each.all_spent.total_ms for each in found.builders)
        self.widgets.list.set_columns(known.columns_for(builders))
        self.list.put([known.row_of(self._keys[each.uuid], each, self._describe_broken(each.name), all_ms) for each in builders])
        self.widgets.list.empty_text = "no builder matches" if self.search.list_text else found.trouble or "no builder"
        self.widgets.list.refresh_model()
        self.search.show_list_count(len(builders), len(found.builders))
        self.parts.divide_height()
        self._show_builder()

    def _most_patterns(self) -> int:
        return max((len(each.builder.patterns) for each in self.reading.found.builders if each.builder), default=0)

    def _show_builder(self) -> None:
        current = self.current
        rows = known.pattern_rows(current, self.shell.config) if current else []
        self.patterns.put(rows)
        panel = self.widgets.details
        pairs = known.details(current, self.shell.config, self._describe_broken(current.name)) if current else []
        if pairs != panel.pairs:
            panel.show(pairs)
        table = self.widgets.patterns
        table.empty_text = (
            "the patterns are unknown, because this builder is only in the database, not in the configuration"
            if current and not current.builder
            else "this builder has no patterns"
        )
        if table.columns != (columns := fit_columns(known.PATTERNS, rows)):
            table.set_columns(columns)
        table.refresh_model()
        if self.metrics.show(current):
            self.widgets.spent.refresh_model()
            self._open_groups()
        self.widgets.refresh_titles()

    def _open_groups(self) -> None:
        """Open both groups when the metrics are shown."""
        for key in self.metrics.group_keys() if self.parts.is_shown("metrics") else ():
            node = self.metrics.tree.node_of(key)
            if node is not None:
                self.widgets.spent.set_open(node, is_open=True)

    def _accept_entries(self, trouble: str) -> None:
        if not self.is_attached:
            return
        if trouble:
            self.shell.show_toast(trouble, "warning")
        self.search.narrow_metrics()
        if self.widgets.spent.columns != (columns := self.metrics.columns()):
            self.widgets.spent.set_columns(columns)
        self.widgets.spent.refresh_model()

    @on(Rows.Highlighted, "#builders-list")
    def _accept_choice(self, event: Rows.Highlighted) -> None:
        event.stop()
        self._show_builder()

    @on(Rows.Opened, "#builders-list")
    def _open_row(self, event: Rows.Opened) -> None:
        event.stop()
        self.widgets.parts[self.parts.part].focus()

    def action_part(self, name: str) -> None:
        """Show the patterns, details or metrics; if they are shown already, focus them."""
        self.parts.go_to(name)

    def action_back(self) -> None:
        """Focus the list; if the list has the focus already, remove the filter."""
        if not self.parts.go_to_list() and self.search.list_text:
            self.search.clear_list()

    def action_zoom(self) -> None:
        """Show only the focused part (list or details), or both parts again."""
        self.parts.zoom()

    def on_descendant_focus(self) -> None:
        """Highlight the heading of the focused part."""
        self.widgets.refresh_titles()

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
        if event.rows in (self.widgets.list, self.widgets.spent):
            self.order.sort_by(event.column_id, is_tree=event.rows is self.widgets.spent)

    def action_sort(self) -> None:
        """Open the menu of sort orders; choosing the current column reverses its order."""
        self.order.ask(self.shell.app)

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
        """Open the menu of texts to copy."""
        ask_what_to_copy(self.shell, self.widgets, self._shown_name)

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
