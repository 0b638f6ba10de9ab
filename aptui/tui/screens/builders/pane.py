"""The Builders screen: which builders there are, and of one of them its patterns, its details, and what it cost as a tree.

When it reads is told in `builders.reading`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical

from aptui.config.dirs import asset_database
from aptui.shared.errors import KnownError
from aptui.store.queries.metrics import Entry
from aptui.tui.frame.commandline import Command
from aptui.tui.frame.line import Part
from aptui.tui.frame.statusline import Rule
from aptui.tui.pane import Pane
from aptui.tui.screens.builders import facts as known
from aptui.tui.screens.builders.metrics import LARGEST_FIRST, METRICS, MOST, SORTED_BY, Metrics
from aptui.tui.screens.builders.reading import BuilderReading
from aptui.tui.screens.common.listed import ListedRows, fitted_columns
from aptui.tui.screens.common.navigation import to_jobs
from aptui.tui.screens.common.tab_line import TabLine
from aptui.tui.screens.jobs.texts import details as as_lines
from aptui.tui.screens.jobs.texts import term
from aptui.tui.screens.logs.tabs import parsed
from aptui.tui.widgets.filterbox import FilterBox
from aptui.tui.widgets.keyvalue import KeyValue
from aptui.tui.widgets.menu import Menu, MenuItem
from aptui.tui.widgets.rows.rows import Rows
from aptui.tui.widgets.table import SideTable, Table
from aptui.tui.widgets.tree import VTree

if TYPE_CHECKING:
    from aptui.tui.data.feed import Batch

TABS = ("patterns", "details", "metrics")
_BESIDE_CELLS = 170
"""From this width on the details stand beside the list, else below it."""
_LEAST_LIST = 4
_DETAIL_LINES = 17
"""So many lines do for most of what stands below the list; on a high screen the list has the rest."""
_SORT = ("total", True)


class BuildersPane(Pane):
    """The screen."""

    DEFAULT_CSS = """
    BuildersPane { layout: vertical; }
    BuildersPane #builders-filter { display: none; }
    BuildersPane #builders-both { layout: vertical; }
    BuildersPane #builders-side { height: 1fr; }
    BuildersPane.-beside #builders-both { layout: horizontal; }
    BuildersPane.-beside #builders-list { width: 5fr; height: 1fr; }
    BuildersPane.-beside #builders-side { width: 7fr; border-left: solid $role-rule; }
    """
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
        self._keys: dict[bytes, int] = {}
        self._part = TABS[0]
        self._search = {"list": "", "metrics": ""}
        self._searched = "list"
        self._is_visible = self._is_zoomed = False
        self._wanted = ""

    # ------------------------------------------------------------------------------------------------------------- the parts

    def compose(self) -> ComposeResult:
        """Make the parts."""
        self.reading = BuilderReading(self.shell, self.set_timer, self._read_on, self._take_builders)
        yield FilterBox(id="builders-filter")
        with Vertical(id="builders-both"):
            yield Table(known.BUILDERS, id="builders-list")
            yield Rule(name="builders-rule")
            with Vertical(id="builders-side"):
                yield TabLine(self._titles, self._words, lambda at: self.action_part(TABS[at]), id="builders-tabs")
                yield SideTable(known.PATTERNS, id="builders-patterns")
                yield KeyValue(id="builders-details")
                yield VTree(METRICS, id="builders-metrics")

    @property
    def table(self) -> Table:
        """The list."""
        return self.query_one("#builders-list", Table)

    @property
    def spent(self) -> VTree:
        """The metrics."""
        return self.query_one("#builders-metrics", VTree)

    @property
    def box(self) -> FilterBox:
        """The filter line."""
        return self.query_one("#builders-filter", FilterBox)

    def _titles(self) -> tuple[Sequence[str], int]:
        count = self.patterns.row_count()
        return (f"Patterns ({count})" if count else "Patterns", "Details", "Metrics"), TABS.index(self._part)

    def _words(self) -> Sequence[Part]:
        current = self.current
        return (Part(current.name, "title"),) if current else ()

    def on_mount(self) -> None:
        """Take up what is remembered."""
        shell, memory = self.shell, self.shell.memory
        self.metrics = Metrics(asset_database(shell.session.cache_dir), shell.in_ui, self._take_entries)
        part = memory.get("builders.part", self._part)
        self._part = part if part in TABS else self._part
        sort: list[Any] = memory.get("builders.sort", list(_SORT))
        self._sort_list(f"{next(iter(sort), _SORT[0])}", is_descending=sort[1:] != [False])
        self.table.set_model(self.list)
        self.table.empty_text = "reading the builders"
        self.query_one("#builders-patterns", Table).set_model(self.patterns)
        self.spent.sort = ("total", True)
        self.spent.set_tree(self.metrics.tree)
        self.spent.empty_text = "reading what it did"
        self._show_part()

    def on_resize(self) -> None:
        """Put the details beside the list where there is room."""
        self.set_class(self.size.width >= _BESIDE_CELLS, "-beside")
        self._give_room()

    # -------------------------------------------------------------------------------------------------------------- the hooks

    def activate(self) -> None:
        """Read what is not known, or not any more."""
        self._is_visible = True
        self.reading.is_stale |= not self.reading.is_known

    def deactivate(self) -> None:
        """Remember part and order."""
        self._is_visible = False
        self.shell.memory.put("builders.part", self._part)
        if self.table.sort:
            self.shell.memory.put("builders.sort", list(self.table.sort))

    def on_news(self, batch: Batch) -> None:
        """Note that jobs ended."""
        if batch.table is not None or any(news.notice.status in {"completed", "failed"} for news in batch.jobs):
            self.reading.is_stale = True
        if batch.health is not None and self.reading.is_known:
            self._put()

    def on_frame(self) -> None:
        """Read again where something happened, and draw."""
        self.reading.poll()
        self.table.refresh_model()
        self.spent.refresh_model()
        self.query_one(TabLine).changed()

    def reload(self) -> None:
        """Read everything again."""
        self.reading.is_stale, self.reading.is_known = True, False

    def status(self) -> str:
        """Say how many there are."""
        return f"{self.list.row_count()} builders"

    def commands(self) -> Sequence[Command]:
        """Return what can be said here."""
        names = [each.name for each in self.reading.found.builders]
        return (
            Command("builder", "go to a builder", self.reveal, lambda: names),
            Command(
                "jobs-of", "show the jobs of a builder", lambda rest: self._go_to_jobs(rest or self._shown_name), lambda: names
            ),
        )

    def reveal(self, name: str) -> None:
        """Go to a builder by its name; other screens call it, also before the builders are known."""
        name = name.strip()
        found = next((each for each in self.reading.found.builders if each.name == name), None)
        if found is None:
            self._wanted = "" if self.reading.is_known else name
            if self.reading.is_known:
                self.shell.tell(f"there is no builder '{name}'", "warning")
            return
        self._wanted = ""
        if not self.table.move_to_key(self._keys[found.uuid]):
            self._search["list"] = self.box.text = ""
            self.box.display = False
            self._put()
            self.table.move_to_key(self._keys[found.uuid])
        self.table.focus()

    # ---------------------------------------------------------------------------------------------------------------- reading

    def _read_on(self) -> None:
        if self._is_visible:
            self.shell.wake()

    def _take_builders(self, was: known.FoundBuilders) -> None:
        if not self.is_attached:
            return
        trouble = self.reading.found.trouble
        if trouble and trouble != was.trouble:
            self.shell.tell(trouble, "warning", 10)
        self.spent.empty_text = "it did nothing yet"
        self._put()
        if self._wanted:
            self.reveal(self._wanted)
        if self.reading.is_stale:
            self.shell.wake()

    # ---------------------------------------------------------------------------------------------------------------- drawing

    @property
    def current(self) -> known.KnownBuilder | None:
        """The builder under the cursor."""
        row = self.list.row(self.table.cursor_key)
        return row.data if row else None

    @property
    def _shown_name(self) -> str:
        return self.current.name if self.current else ""

    def _broken(self, name: str) -> str:
        health = self.shell.session.latest_health
        return dict(health.broken_builders).get(name, "") if health else ""

    def _put(self) -> None:
        """Put the builders that pass the filter into the list."""
        found = self.reading.found
        for each in found.builders:
            self._keys.setdefault(each.uuid, len(self._keys))
        builders = [each for each, passes in zip(found.builders, self._passing(found.builders), strict=True) if passes]
        all_ms = sum(each.all_spent.total_ms for each in found.builders)
        self.table.set_columns(known.columns_for([each.name for each in builders]))
        self.list.put([known.row_of(self._keys[each.uuid], each, self._broken(each.name), all_ms) for each in builders])
        self.table.empty_text = "no builder matches" if self._search["list"] else found.trouble or "there is no builder"
        self.table.refresh_model()
        if self.box.display and self._searched == "list":
            self.box.show_count(f"{len(builders)} of {len(found.builders)}" if self._search["list"] else "")
        self._give_room()
        self._show_builder()

    def _give_room(self) -> None:
        """Let the list be as high as it needs to be, where the details stand below it."""
        is_below = not self.has_class("-beside") and not self._is_zoomed
        most = max(_LEAST_LIST, self.size.height * 2 // 5, self.size.height - _DETAIL_LINES)
        self.table.styles.height = min(most, max(_LEAST_LIST, self.list.row_count() + 1)) if is_below else "1fr"
        self.query_one("#builders-rule").display = is_below

    def _show_builder(self) -> None:
        current = self.current
        rows = known.pattern_rows(current, self.shell.config) if current else []
        self.patterns.put(rows)
        panel = self.query_one("#builders-details", KeyValue)
        pairs = known.details(current, self.shell.config, self._broken(current.name)) if current else []
        if pairs != panel.pairs:
            panel.show(pairs)
        table = self.query_one("#builders-patterns", Table)
        table.empty_text = (
            "no pattern is known: only the database names this builder" if current and not current.builder else "no pattern"
        )
        if table.columns != (columns := fitted_columns(known.PATTERNS, rows)):
            table.set_columns(columns)
        table.refresh_model()
        if self.metrics.show(current):
            self.spent.refresh_model()
            self._open_groups()
        self.query_one(TabLine).changed()

    def _open_groups(self) -> None:
        """Open both groups, once they are looked at."""
        for key in self.metrics.group_keys() if self._part == "metrics" else ():
            node = self.metrics.tree.node_of(key)
            if node is not None:
                self.spent.set_open(node, is_open=True)

    def _take_entries(self, trouble: str) -> None:
        if not self.is_attached:
            return
        if trouble:
            self.shell.tell(trouble, "warning")
        self._narrow_metrics()
        self.spent.refresh_model()

    def _show_part(self) -> None:
        for name in TABS:
            self.query_one(f"#builders-{name}").display = name == self._part
        list_has_focus = self.table.has_focus
        self.table.display = not self._is_zoomed or list_has_focus
        self.query_one("#builders-side").display = not self._is_zoomed or not list_has_focus
        self._give_room()
        self._open_groups()
        self.query_one(TabLine).changed()

    @on(Rows.Highlighted, "#builders-list")
    def _take_choice(self, event: Rows.Highlighted) -> None:
        event.stop()
        self._show_builder()

    @on(Rows.Opened, "#builders-list")
    def _open_row(self, event: Rows.Opened) -> None:
        event.stop()
        self.query_one(f"#builders-{self._part}").focus()

    def action_part(self, name: str) -> None:
        """Show patterns, details or metrics; where they are shown already, go there."""
        side_has_focus = self.query_one("#builders-side").has_focus_within
        was, self._part = self._part, name
        if self._is_zoomed and self.table.has_focus:
            self._is_zoomed = False
        self._show_part()
        if side_has_focus or was == name:
            self.query_one(f"#builders-{name}").focus()

    def action_back(self) -> None:
        """Go back to the list; there, take the filter away."""
        if not self.table.has_focus:
            self.table.display = True
            self.table.focus()
            self._show_part()
        elif self._search["list"]:
            self._searched = "list"
            self.box.text, self.box.display = "", False
            self._narrow("")

    def action_zoom(self) -> None:
        """Show the part with the focus alone, or both again."""
        self._is_zoomed = not self._is_zoomed
        self._show_part()

    # ---------------------------------------------------------------------------------------------------- filter and order

    def action_filter(self) -> None:
        """Narrow the list, or the metrics where the focus is there."""
        self._searched = "metrics" if self.spent.has_focus else "list"
        self.box.text = self._search[self._searched]
        self.box.show_count("")
        self.box.display = True
        self.box.begin()

    @on(FilterBox.Changed, "#builders-filter")
    def _filter_list(self, event: FilterBox.Changed) -> None:
        event.stop()
        if isinstance(event, FilterBox.Left):
            self.box.display = bool(event.text)
            (self.spent if self._searched == "metrics" else self.table).focus()
        elif event.text != self._search[self._searched]:
            self._narrow(event.text)

    def _narrow(self, text: str) -> None:
        """Use a filter; one that is not understood is shown as such, and the view stays."""
        try:
            parsed(text)
        except KnownError as error:
            self.box.show_mistake(getattr(error, "column", 1) - 1, error.what, error.hint)
            return
        self._search[self._searched] = text
        if self._searched == "list":
            self._put()
        else:
            self._narrow_metrics()
            self.spent.refresh_model()

    def _passing(self, builders: Sequence[known.KnownBuilder]) -> list[bool]:
        return parsed(self._search["list"]).passing([known.searched_text(each) for each in builders])

    def _narrow_metrics(self) -> None:
        found = parsed(self._search["metrics"])

        def passes(entries: Sequence[Entry]) -> Sequence[Entry]:
            masks = found.passing([f"{entry.source} {entry.platform} {entry.job_key}" for entry in entries])
            return [entry for entry, is_hit in zip(entries, masks, strict=True) if is_hit]

        self.metrics.narrow(passes)
        if self.box.display and self._searched == "metrics":
            self.box.show_count(f"{self.metrics.entry_count:,} of the slowest {MOST:,}")

    @on(Table.HeaderClicked, "#builders-list")
    def _list_header(self, event: Table.HeaderClicked) -> None:
        event.stop()
        self._sort_list(event.column_id, is_descending=known.turned(self.table.sort, event.column_id, known.DESCENDING))

    @on(Table.HeaderClicked, "#builders-metrics")
    def _tree_header(self, event: Table.HeaderClicked) -> None:
        event.stop()
        self._sort_tree(event.column_id, is_descending=known.turned(self.spent.sort, event.column_id, LARGEST_FIRST))

    def _sort_list(self, column_id: str, *, is_descending: bool) -> None:
        self.table.sort = (column_id, is_descending)
        self.list.sort_by(self.table.sort)
        self.table.refresh_model()

    def _sort_tree(self, column_id: str, *, is_descending: bool) -> None:
        column_id = column_id if column_id in SORTED_BY else "total"
        self.spent.sort = (column_id, is_descending)
        self.metrics.sort_by(column_id, is_descending=is_descending)
        self.spent.refresh_model()

    def action_sort(self) -> None:
        """Choose by what to sort; the column that is chosen already turns round."""
        is_tree = self.spent.has_focus
        columns = [column for column in METRICS if column.id in SORTED_BY] if is_tree else list(known.BUILDERS)
        items = [MenuItem(column.id, column.title, f"{at}") for at, column in enumerate(columns, start=1)]

        def sort(column_id: str | None) -> None:
            if column_id is None:
                return
            if is_tree:
                self._sort_tree(column_id, is_descending=known.turned(self.spent.sort, column_id, LARGEST_FIRST))
            else:
                self._sort_list(column_id, is_descending=known.turned(self.table.sort, column_id, known.DESCENDING))

        Menu.ask(self.shell.app, items, sort, title="Sort by")

    # -------------------------------------------------------------------------------------------------------------------- row
    # actions

    def action_jobs(self) -> None:
        """Show the jobs of the builder."""
        self._go_to_jobs(self._shown_name)

    def _go_to_jobs(self, name: str) -> None:
        if name:
            self.run_worker(to_jobs(self.shell, term("builder", name, is_whole=True)), exclusive=True, group="go")

    @on(Rows.Opened, "#builders-metrics")
    def _go_to_entry(self, event: Rows.Opened) -> None:
        event.stop()
        entry = self.metrics.entry(event.key)
        if entry is not None:
            builder = f" {term('builder', self._shown_name, is_whole=True)}" if not entry.is_analysis else ""
            goal = f"#{entry.job_id}" if entry.job_id else term("source", entry.source, is_whole=True) + builder
            self.run_worker(to_jobs(self.shell, goal), exclusive=True, group="go")

    def action_copy(self) -> None:
        """Choose what to copy."""
        panel = self.query_one("#builders-details", KeyValue)
        part = next(
            (part for part in (self.table, self.query_one("#builders-patterns", Table), self.spent) if part.has_focus), self.table
        )
        pair = panel.current()
        texts: dict[str, tuple[MenuItem, Callable[[], str]]] = {
            "row": (MenuItem("row", "Row", "y"), lambda: "\n".join(part.row_text(key) for key in part.selected_keys())),
            "name": (MenuItem("name", "Name", "n"), lambda: self._shown_name),
            "all": (MenuItem("all", "All details", "a"), lambda: "\n".join(as_lines(panel.pairs))),
        }
        if panel.has_focus and pair is not None:
            key, value = pair
            texts = {
                "key": (MenuItem("key", "Key", "k"), lambda: key),
                "value": (MenuItem("value", "Value", "y,v"), lambda: value),
                "all": texts["all"],
            }
        Menu.ask(
            self.shell.app, [item for item, _ in texts.values()],
            lambda what: self.shell.copy_text(texts[what][1]()) if what else None,
            title="Copy",
        )  # fmt: skip

    def action_menu(self, place: tuple[int, int] | None = None) -> None:
        """Say what can be done here."""
        actions: dict[str, tuple[str, str, Callable[[], object]]] = {
            "jobs": ("Show its jobs", "J", self.action_jobs),
            "copy": ("Copy…", "y", self.action_copy),
            "sort": ("Sort by…", "S", self.action_sort),
            "filter": ("Filter…", "slash", self.action_filter),
            **{name: (f"{name.capitalize()}", name[0], partial(self.action_part, name)) for name in TABS},
        }
        items = [MenuItem(name, label, key, name != "jobs" or bool(self._shown_name)) for name, (label, key, _) in actions.items()]
        Menu.ask(
            self.shell.app,
            items,
            lambda what: actions[what][2]() if what else None,
            title=self._shown_name or "Builders",
            place=place,
        )

    @on(Rows.ContextMenu)
    def _open_menu(self, event: Rows.ContextMenu) -> None:
        event.stop()
        self.action_menu((event.x, event.y))
