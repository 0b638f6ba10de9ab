"""The Shared cache screen: what this project's cache holds, what is wrong in it and how it is mended.

A line says what the team shares.

What it holds is read when the screen is shown, and again when assets changed and the engine rests; until then a word says it is
older.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical

from aptui.shared.errors import KnownError
from aptui.shared.printing import count
from aptui.tui.background import BackgroundTask
from aptui.tui.data.feed import Batch
from aptui.tui.frame.commandline import Command
from aptui.tui.frame.line import Part
from aptui.tui.pane import Pane
from aptui.tui.screens.cache import contents as held
from aptui.tui.screens.cache.contents import CacheInventory, CacheProblem, CacheShare, Looked
from aptui.tui.screens.cache.mending import Mending
from aptui.tui.screens.cache.sharing import SharedSettings
from aptui.tui.screens.common.bar import Bar
from aptui.tui.screens.common.listing import Listing
from aptui.tui.terminal.safety import glyph, shown
from aptui.tui.widgets.cells import share_bar
from aptui.tui.widgets.menu import Menu, MenuItem
from aptui.tui.widgets.rows.rows import Rows
from aptui.tui.widgets.table import SideTable, Table
from aptui.tui.words import clock, size_text

_WIDE_COLUMNS = 110
_GAUGE_CELLS = 16
"""From here on the tables stand side by side."""
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
        self._contents: CacheInventory | None = None
        self._trouble = ""
        self._is_stale = True
        self._look = ""
        """"verify" or "unowned": what is, or was last, looked for."""
        self._looked: Looked | None = None
        self._ended_ms = 0
        self._is_informed = False
        self._models: dict[str, Listing[CacheShare] | Listing[CacheProblem]] = {
            **{name: Listing(held.share_cell, held.share_order) for name in ("platforms", "folders", "builders")},
            "findings": Listing(held.problem_cell, held.problem_order, lambda problem, _: hash(problem.name)),
        }

    def compose(self) -> ComposeResult:
        """Yield summary, tables, and what was found."""
        yield Bar(self._summary, id="cache-summary", rules=False)
        yield Bar(self._shared_line, id="cache-shared", rules=False)
        with Horizontal(id="cache-columns"):
            with Vertical(id="cache-left"):
                yield SideTable(held.PLATFORMS, self._models["platforms"], id="cache-platforms")
                yield SideTable(held.BUILDERS, self._models["builders"], id="cache-builders")
            with Vertical(id="cache-right"):
                yield SideTable(held.FOLDERS, self._models["folders"], id="cache-folders")
        yield Bar(self._verdict, id="cache-look", rules=True)
        yield Findings(held.FINDINGS, self._models["findings"], id="cache-findings")

    def on_mount(self) -> None:
        """Sort as it was, and get ready for background tasks."""
        self._reading = BackgroundTask("aptui-cache-contents", self.shell.in_ui)
        self._looking = BackgroundTask("aptui-cache-look", self.shell.in_ui)
        self._shared = SharedSettings(self.shell, self._draw)
        self._mending = Mending(self.shell, self._problems, self._take_gone)
        for name, usual in _SORTS.items():
            column, is_descending = self.shell.memory.get(f"cache.sort.{name}", list(usual))
            known = {each.id for each in self._table(name).columns if each.title}
            self._sort(name, (column, bool(is_descending)) if column in known else usual)
        self._table("platforms").empty_text = "no products yet: what jobs make comes here"

    def on_unmount(self) -> None:
        """Give up what is under way."""
        for each in (self._reading, self._looking, self._mending, self._shared):
            each.close()

    def on_resize(self, event: events.Resize) -> None:
        """Put the tables below each other where there is no room."""
        self.set_class(event.size.width < _WIDE_COLUMNS, "-narrow")
        self._fit_tables()

    # ---------------------------------------------------------------------------------------------------------------- beat

    def activate(self) -> None:
        """Read what the cache holds, if it may have changed."""
        self._shared.look()
        self._read_if_stale()

    def reload(self) -> None:
        """Read everything again."""
        self._shared.look()
        self._is_stale = True
        self._read()

    def on_news(self, batch: Batch) -> None:
        """Note that something may be otherwise."""
        self._is_stale = self._is_stale or batch.are_assets_stale or batch.table is not None
        self._is_informed = self._is_informed or bool(batch)

    def on_frame(self) -> None:
        """Read again if the engine rests; look whether what it was asked to delete is gone."""
        self._read_if_stale()
        if self._is_informed:
            self._mending.find_gone()
        self._is_informed = False
        self._draw()

    def status(self) -> str:
        """Say how large it is."""
        known = self._contents
        return f"{count(known.count, 'product')}, {size_text(known.size_bytes)}" if known else ""

    def commands(self) -> Sequence[Command]:
        """Return what can be said here."""
        commands = [
            Command("verify", "compare every product with its digest", lambda _rest: self.action_verify()),
            Command("unowned", "list files in the cache that belong to no product", lambda _rest: self.action_unowned()),
        ]
        if self.shell.config is not None:
            commands.append(Command("share", "mode, location and patterns of the shared cache", lambda _rest: self.action_share()))
            commands.append(Command("test", "reach the shared cache", lambda _rest: self._shared.test()))
        if self._kinds("damaged", "missing"):
            commands.append(
                Command("repair", "run the jobs of all findings again", lambda _: self._mending.ask_to_repair(), None, True)
            )
        if self._kinds("unowned"):
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
                return self._contents is not None and not self._looking.is_busy
            case "cancel":
                return self._looking.is_busy
            case "share":
                return self.shell.config is not None
            case "repair":
                return self.shell.can_ask and self._kinds("damaged", "missing")
            case "delete":
                return self.shell.can_ask and not self._looking.is_busy and self._kinds("unowned")
            case "zoom":
                return self.has_class("-found")
            case _:
                return super().check_action(action, parameters)

    # ------------------------------------------------------------------------------------------------------------ contents

    def _read_if_stale(self) -> None:
        progress = self.shell.session.latest_progress
        is_idle = progress is None or not (progress.jobs_running or progress.jobs_waiting or progress.analyses_running)
        if self._is_stale and (is_idle or self._contents is None) and not self._trouble:
            self._read()

    def _read(self) -> None:
        config, cache_dir = self.shell.config, self.shell.session.cache_dir
        builders = {builder.uuid: builder.name for builder in config.project.builders} if config else {}
        now_ms = int(time.time() * 1000)
        if self._reading.start(
            lambda _task: held.read_contents(cache_dir, builders, now_ms), self._take_contents, self._take_trouble
        ):
            self._is_stale = False
            self._draw()

    def _take_contents(self, contents: CacheInventory) -> None:
        is_first = self._contents is None
        self._contents, self._trouble = contents, ""
        self._table("platforms").set_columns(held.platform_columns(contents.platforms))
        for name, rows in (("platforms", contents.platforms), ("folders", contents.folders), ("builders", contents.builders)):
            self._models[name].show(rows)  # type: ignore[arg-type]  # those three hold amounts
            self._table(name).refresh_model()
        self._fit_tables()
        if is_first:
            self.refresh_bindings()
        self._read_if_stale()  # something may have changed while it was read
        self._draw()

    def _take_trouble(self, error: KnownError) -> None:
        self._trouble = str(error)
        self._draw()

    def _fit_tables(self) -> None:
        """Give tables that are short no more lines than they need."""
        platforms, builders, findings = (self._models[name].row_count() + 1 for name in ("platforms", "builders", "findings"))
        is_narrow, half = self.has_class("-narrow"), max(3, self.size.height // 2)
        self._table("platforms").styles.height = min(platforms, 5 if is_narrow else 9)
        self._table("builders").styles.height = min(builders, max(3, self.size.height // 4 + 1)) if is_narrow else "1fr"
        self._table("findings").styles.height = "1fr" if self.has_class("-zoomed") else min(findings, half)

    def _summary(self, width: int) -> tuple[Sequence[Part], Sequence[Part]]:
        known = self._contents
        if known is None:
            return (
                Part(f" {shown(self._trouble) or 'reading what the cache holds…'}", "warning" if self._trouble else "muted"),
            ), ()
        left = [Part(f" {count(known.count, 'product')}", "title"), Part(f"   {size_text(known.size_bytes)}", "title")]
        is_all = known.made == known.count
        made = "all" if is_all else f"{known.made:,}" if known.made else "none"
        if known.count and (width >= _WIDE_COLUMNS or not self._is_stale):
            left.append(Part(f"   {made} made since yesterday", "muted"))
        if known.made and not is_all and width >= _WIDE_COLUMNS:
            left.append(Part(f", {size_text(known.made_bytes)}", "muted"))
        if self._is_stale:
            left.append(Part(f"   as of {clock(known.at_ms)}", "warning"))
        right = []
        if known.disk_bytes > 0:
            room = f" of {size_text(known.disk_bytes)}" if width >= _WIDE_COLUMNS else ""
            right = [Part(f"{size_text(known.free_bytes)}{room} free on its disk", "muted")]
            if width >= _WIDE_COLUMNS:
                right += [Part("  "), *_gauge((known.disk_bytes - known.free_bytes) / known.disk_bytes, _GAUGE_CELLS)]
        return left, right

    def _shared_line(self, width: int) -> tuple[Sequence[Part], Sequence[Part]]:
        return self._shared.summary(width)

    def action_share(self) -> None:
        """Offer mode, location and patterns of the shared cache, a test, and to save or discard what was changed."""
        self._shared.look()
        self._shared.open_menu()

    # ------------------------------------------------------------------------------------------------------------- looking

    def action_verify(self) -> None:
        """Compare every product with its digest."""
        cache_dir = self.shell.session.cache_dir

        def work(task: BackgroundTask) -> Looked:
            held.refuse_unreadable(cache_dir)
            return held.verify(task, cache_dir, lambda looked: self.shell.in_ui(self._take_look, looked))

        self._start("verify", work)

    def action_unowned(self) -> None:
        """Look for files that belong to no product."""
        cache_dir, config = self.shell.session.cache_dir, self.shell.config
        platforms = tuple(platform.id for platform in config.project.platforms) if config else ()

        def work(task: BackgroundTask) -> Looked:
            held.refuse_unreadable(cache_dir)
            return held.find_unowned(task, cache_dir, platforms, lambda looked: self.shell.in_ui(self._take_look, looked))

        self._start("unowned", work)

    def _start(self, look: str, work: object) -> None:
        if not self._looking.start(work, self._take_end, self._take_failure, self._take_cancel):  # type: ignore[arg-type]
            self.shell.tell("the cache is being read already; 'c' cancels that", "warning")
            return
        self._look, self._ended_ms, self._mending.going = look, 0, []
        self._table("findings").marks.clear()
        self._take_look(Looked())
        self.refresh_bindings()

    def action_cancel(self) -> None:
        """Stop looking; what was found so far stays."""
        self._looking.cancel()

    def _take_look(self, looked: Looked) -> None:
        self._looked = looked
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

    def _take_end(self, looked: Looked) -> None:
        self._ended_ms = int(time.time() * 1000)
        self._take_look(looked)
        self.refresh_bindings()
        table = self._table("findings")
        if looked.problems and self.shell.pane is self and not table.has_focus:
            table.move_cursor(0)
            table.focus()

    def _take_failure(self, error: KnownError) -> None:
        self._look, self._looked = "", None
        self.shell.tell(str(error), "error", 10)
        self._draw()
        self.refresh_bindings()

    def _take_cancel(self) -> None:
        self._ended_ms = -1
        self._draw()
        self.refresh_bindings()

    def _verdict(self, width: int) -> tuple[Sequence[Part], Sequence[Part]]:
        """Say in the rule above the findings how the look goes, or went."""
        looked = self._looked
        if looked is None:
            return (), ()
        title = "Verify" if self._look == "verify" else "Unowned files"
        found = len(looked.problems)
        if self._looking.is_busy:
            return self._going_on(title, looked, width)
        ended = "cancelled" if self._ended_ms < 0 else f"at {clock(self._ended_ms)}"
        if self._look == "verify":
            rest = f", {looked.without_digest:,} without a digest" if looked.without_digest else ""
            said = (
                f"{found:,} of {count(looked.count, 'product')} not as recorded"
                if found
                else f"{count(looked.count, 'product')} as recorded"
            )
            said += rest + (" so far" if self._ended_ms < 0 else "")
        elif self._mending.going:
            said = f"{count(found, 'file')} left to delete; the engine is asked"
        else:
            total = sum(max(0, each.size_bytes) for each in looked.problems)
            said = f"{count(found, 'file')} of no product, {size_text(total)}" if found else "every file belongs to a product"
        return (Part(title, "title"), Part(f"  {said}", "warning" if found else "completed")), (Part(ended, "muted"),)

    @staticmethod
    def _going_on(title: str, looked: Looked, width: int) -> tuple[Sequence[Part], Sequence[Part]]:
        found = f", {len(looked.problems):,} found" if looked.problems else ""
        if not looked.whole:
            said = f"  {count(looked.done, 'folder')} looked into{found}"
            return (Part(title, "title"), Part(said, "processing")), (Part("c", "key"), Part(" cancels", "muted"))
        read = f"{size_text(looked.done)} of {size_text(looked.whole)}"
        said = f"  {looked.count:,} of {count(looked.of_count, 'product')}, {read}{found}  "
        cells = max(0, min(30, width - len(title) - len(said) - 24))
        parts = (Part(title, "title"), Part(said, "processing"), *_gauge(looked.done / looked.whole, cells))
        return parts, (Part("c", "key"), Part(" cancels", "muted"))

    # ------------------------------------------------------------------------------------------------------------- mending

    def action_repair(self) -> None:
        """Ask to run the jobs of what is wrong again: of the marked rows or the one under the cursor, or of all."""
        table = self._table("findings")
        self._mending.ask_to_repair([self._problem(key) for key in table.selected_keys()] if table.has_focus else [])

    def action_delete(self) -> None:
        """Have the engine delete the files that belong to no product, after asking."""
        self._mending.ask_to_delete()

    def _take_gone(self, gone: set[str]) -> None:
        """Show without what the engine deleted."""
        if self._looked is not None and gone:
            problems = tuple(each for each in self._looked.problems if each.name not in gone)
            self._take_look(Looked(self._looked.done, 0, self._looked.count, 0, 0, problems))
            self.refresh_bindings()
        self._draw()

    # ------------------------------------------------------------------------------------------------------------ the rest

    def on_rows_opened(self, event: Rows.Opened) -> None:
        """Offer what can be done about a finding."""
        event.stop()
        if event.rows.id == "cache-findings":
            self._mending.open_menu(self._problem(event.key), None)

    def on_rows_context_menu(self, event: Rows.ContextMenu) -> None:
        """Offer the same at the pointer."""
        event.stop()
        if event.rows.id == "cache-findings":
            self._mending.open_menu(self._problem(event.key), (event.x, event.y))

    def action_menu(self) -> None:
        """Offer what can be done about the finding under the cursor."""
        table = self._table("findings")
        if table.has_focus and table.cursor_key is not None:
            self._mending.open_menu(self._problem(table.cursor_key), None)

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

    def _problems(self) -> list[CacheProblem]:
        return list(self._looked.problems) if self._looked else []

    def _problem(self, key: int) -> CacheProblem:
        return self._models["findings"].at(key)  # type: ignore[return-value]  # it holds problems

    def _kinds(self, *kinds: str) -> bool:
        return any(each.kind in kinds for each in self._problems())

    def _draw(self) -> None:
        for line in self.query(Bar):
            line.changed()


def _gauge(share: float, cells: int) -> tuple[Part, ...]:
    """Return a bar with what is left of it as a rule."""
    filled = share_bar(share, cells)
    return Part(filled, "accent"), Part(glyph("rule") * (cells - len(filled)), "rule")
