"""The Logs screen: the engine's own log in tabs, live, with levels, search, details of a line, and the logs of earlier days."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from aptui.store.logs import joblog
from aptui.tui.background import run_in_background
from aptui.tui.control import away
from aptui.tui.frame.commandline import Command
from aptui.tui.frame.line import Part
from aptui.tui.pane import Pane
from aptui.tui.screens.assets.files import editor, pager
from aptui.tui.screens.common.bar import Bar
from aptui.tui.screens.common.tab_line import TabLine
from aptui.tui.screens.jobs.texts import details, log_text
from aptui.tui.screens.logs.files import LogFiles
from aptui.tui.screens.logs.lines import LogPiece, LogReader, LogView, RecordLines, drawn
from aptui.tui.screens.logs.tab_list import TabList
from aptui.tui.widgets.cells import wrap
from aptui.tui.widgets.filterbox import FilterBox
from aptui.tui.widgets.keyvalue import KeyValue
from aptui.tui.widgets.lines import LEVELS, MemoryLines
from aptui.tui.widgets.logpane import LogPane
from aptui.tui.widgets.menu import Menu, MenuItem
from aptui.tui.widgets.rows.rows import Rows

if TYPE_CHECKING:
    from textual.widget import Widget

    from aptui.tui.data.feed import Batch

_DETAIL_ROWS = 6
_AROUND_TEXT = 12
"""What stands around a value of the details, about."""


class LogsPane(Pane):
    """The screen."""

    DEFAULT_CSS = """
    LogsPane { layout: vertical; }
    LogsPane #logs-filter { display: none; }
    LogsPane #logs-details-bar, LogsPane #logs-details { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "search", id="logs.filter"),
        Binding("ampersand", "hits_only", "hits only", show=False, id="logs.hits_only"),
        Binding("greater_than_sign", "tab(1)", "next tab", id="logs.next_tab"),
        Binding("less_than_sign", "tab(-1)", "previous tab", show=False, id="logs.previous_tab"),
        Binding("t", "tabs", "tabs", id="logs.tabs"),
        Binding("left_square_bracket", "file(1)", "older log", show=False, id="logs.older"),
        Binding("right_square_bracket", "file(-1)", "newer log", show=False, id="logs.newer"),
        Binding("L", "files", "log files", id="logs.files"),
        Binding("y", "copy", "copy", id="logs.copy"),
        Binding("full_stop", "menu", "menu", show=False, id="logs.menu"),
        Binding("o", "outside('pager')", "pager", show=False, id="logs.pager"),
        Binding("O", "outside('editor')", "editor", show=False, id="logs.editor"),
        Binding("escape", "back", "back", show=False, id="logs.back"),
    ]

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.lines = RecordLines()
        self._live_lines = MemoryLines()
        self._live_records: list[joblog.JobLogLine] = []
        self._reader: LogReader | None = None
        self._search, self._hits_only = "", False
        self._is_whole, self._shall_look = True, False
        self._asked: LogView | None = None
        """What is being read and nothing of it is known yet."""
        self._wants_hit = False

    # ------------------------------------------------------------------------------------------------------------- the parts

    def compose(self) -> ComposeResult:
        """Make the parts."""
        self.tabs, self.files = TabList(self.shell, self._show), LogFiles(self.shell, self._show)
        yield TabLine(lambda: (self.tabs.names(), self.tabs.number), self._words, self.tabs.show, id="logs-tabs")
        yield FilterBox(placeholder="search these lines", id="logs-filter")
        yield LogPane(self.lines, id="logs-lines", window_cells=0)
        yield Bar(lambda _width: ((Part("This line", "title"),), ()), id="logs-details-bar", rules=True)
        yield KeyValue(id="logs-details")

    @property
    def pane(self) -> LogPane:
        """The lines."""
        return self.query_one("#logs-lines", LogPane)

    @property
    def box(self) -> FilterBox:
        """The filter line."""
        return self.query_one("#logs-filter", FilterBox)

    def on_mount(self) -> None:
        """Take up what is remembered, and begin to read."""
        memory = self.shell.memory
        self._search, self._hits_only = memory.get("logs.filter", ""), memory.get("logs.hits_only", False)
        pane = self.pane
        pane.is_following, pane.is_wrapped = True, memory.get("logs.wrap", False)
        pane.levels = memory.get("logs.levels", LEVELS) or LEVELS
        self.box.history.texts = memory.history("logs.filters")[::-1]
        if self._search:
            self.box.text, self.box.display = self._search, True
        self._reader = LogReader(self.shell.wake)
        self._find_files()
        self._show()

    def on_unmount(self) -> None:
        """End the thread."""
        if self._reader is not None:
            self._reader.close()

    # -------------------------------------------------------------------------------------------------------------- the hooks

    def activate(self) -> None:
        """Look what came while the screen was hidden."""
        self._shall_look = True

    def deactivate(self) -> None:
        """Remember tabs, filter and modes."""
        memory, pane = self.shell.memory, self.pane
        self.tabs.keep()
        for name, value in (
            ("filter", self._search), ("hits_only", self._hits_only), ("levels", pane.levels), ("wrap", pane.is_wrapped),
        ):  # fmt: skip
            memory.put(f"logs.{name}", value)

    def on_news(self, batch: Batch) -> None:
        """Note that the engine said something; what it says stands in its log already."""
        if batch.said:
            new = [joblog.JobLogLine(said.level, "aptui", said.text, _now_ms()) for said in batch.said]
            self._live_records += new
            self._live_lines.add(map(drawn, new))
        if batch.said or any(news.notice.status == "failed" for news in batch.jobs):
            self._shall_look = True

    def on_frame(self) -> None:
        """Draw what was found."""
        if self._reader is None:
            return
        if self._shall_look:
            self._shall_look = False
            if self.files.paths:
                self._reader.look()
            elif self._find_files():
                self._show()
        for piece in self._reader.take():
            self._take(piece)
        self.pane.refresh_source()
        self._tell_count()
        self.query_one(TabLine).changed()

    def reload(self) -> None:
        """Read everything again."""
        self._find_files()
        self._show()

    def status(self) -> str:
        """Say which log is shown."""
        return f"log {path}" if (path := self.files.path) else "no log"

    def commands(self) -> Sequence[Command]:
        """Return what can be said here."""
        names = self.tabs.names()

        def show(name: str) -> None:
            self.tabs.show(names.index(name)) if name in names else self.tabs.ask()

        return (
            Command("tab", "show a tab of the log", show, lambda: names),
            Command("new-tab", "make a tab of your own", lambda _rest: self.tabs.edit(None)),
            Command("older-log", "choose an older log", lambda _rest: self.action_files()),
        )

    # --------------------------------------------------------------------------------------------------------------- the view

    def _find_files(self) -> bool:
        """Look which logs there are; where there is none, show what the engine says."""
        if self.files.find():
            return True
        rest = "; what the engine says from now on is shown here" if self.shell.config else ""
        self.pane.empty_text = f"no log yet in '{self.files.folder}'{rest}"
        self.pane.set_source(self._live_lines)
        self._asked = None
        return False

    def _show(self) -> None:
        """Ask for the lines of tab, search and file."""
        if self._reader is not None and self.files.path is not None:
            self._asked = LogView(self.files.path, self.tabs.current, self._search, self._hits_only)
            self._reader.show(self._asked)
        self.query_one(TabLine).changed()

    def awaited(self, focused: Widget | None) -> str:
        """Return what the next key has to wait for: what a search finds, the lines of a tab."""
        if self._asked is None or isinstance(focused, Input):
            return ""
        return "the search" if self._search else "the first rows"

    def _take(self, piece: LogPiece) -> None:
        self._take_lines(piece)
        # Of a long log the end comes first: where that has a hit, it is the nearest one.
        if piece.view == self._asked and (piece.is_whole or piece.hits or not piece.view.search):
            self._asked = None
            if self._wants_hit:
                self._go_to_hit()

    def _take_lines(self, piece: LogPiece) -> None:
        pane = self.pane
        if piece.mistake is not None:
            column = getattr(piece.mistake, "column", 1)
            self.box.show_mistake(column - 1, piece.mistake.what, piece.mistake.hint)
            return
        self._is_whole = piece.is_whole
        source = piece.large or self.lines
        if pane.source is not source:
            was_following, pane.is_following = pane.is_following, False
            pane.set_source(source)
            if was_following:
                pane.action_follow()
        pane.empty_text = piece.nothing or ("no hit" if self._search and self._hits_only else "no line of these levels")
        if piece.large is None:
            self.lines.take(piece)
            pane.set_search(piece.search.spans_of if piece.search.terms else None, self.lines.hits)

    def _tell_count(self) -> None:
        if not self.box.display or self.box.query_one(".mistake").display:
            return
        if self.pane.source is not self.lines:
            self.box.show_count("too large to search here; 'o' opens the pager")
        elif self._search:
            self.box.show_count(f"{len(self.lines.hits):,} of {self.lines.line_count():,}{'' if self._is_whole else '…'}")
        else:
            self.box.show_count("")

    def _words(self) -> list[Part]:
        source = self.pane.source
        known = source.line_count()
        count = f"{known:,} line{'s' * (known != 1)}{'' if self._is_whole else '…'}"
        where = path.name if (path := self.files.path) else "live"
        age = f" ({self.files.age} older)" if self.files.age else ""
        return [
            Part(f"{where}{age}", "muted"),
            Part(count, "muted"),
            *([Part(modes, "value")] if (modes := self.pane.modes()) else []),
        ]

    def action_tab(self, step: int) -> None:
        """Show the next or the previous tab."""
        self.tabs.show(self.tabs.number + step)

    # -------------------------------------------------------------------------------------------------------------- searching

    def action_filter(self) -> None:
        """Type what to search for."""
        self.box.display = True
        self.box.begin()

    def action_hits_only(self) -> None:
        """Show only lines with a hit, or all again."""
        if not self._search:
            self.action_filter()
            return
        self._hits_only = not self._hits_only
        self._show()

    @on(FilterBox.Changed, "#logs-filter")
    def _search_text(self, event: FilterBox.Changed) -> None:
        event.stop()
        if isinstance(event, FilterBox.Left):
            self._settle(event)
        elif event.text != self._search:
            self._search = event.text
            event.box.show_count("")
            self._show()

    def _settle(self, event: FilterBox.Left) -> None:
        event.box.display = bool(event.text)
        if event.is_kept:
            self.shell.memory.remember("logs.filters", event.text)
        self.pane.focus()
        if self._asked is None:
            self._go_to_hit()
        else:
            self._wants_hit = True

    def _go_to_hit(self) -> None:
        """Put the cursor on the nearest hit before it, else after it."""
        self._wants_hit = False
        pane = self.pane
        pane.refresh_source()
        if pane.cursor_key is not None and pane.cursor_key not in self.lines.hits:
            was = pane.cursor
            pane.action_hit(-1)
            if pane.cursor == was:
                pane.action_hit(1)

    def action_back(self) -> None:
        """Go from the details to the lines; then take the search away."""
        if not self.pane.has_focus:
            self.pane.focus()
        elif self._search:
            self._search, self._hits_only = "", False
            self.box.text, self.box.display = "", False
            self._show()

    # ---------------------------------------------------------------------------------------------------------------- details

    @on(Rows.Highlighted, "#logs-lines")
    def _hear_cursor(self, event: Rows.Highlighted) -> None:
        event.stop()
        self._show_details()

    def on_resize(self) -> None:
        """See whether the line under the cursor still fits."""
        self.call_after_refresh(self._show_details)

    def _show_details(self) -> None:
        """Show the line under the cursor below the others: its text where it is cut, and its context."""
        record, whole = self._record(self.pane.cursor_key), self.pane.cut_text()
        panel = self.query_one("#logs-details", KeyValue)
        pairs = [*([("Text", whole)] if whole else []), *(record.context if record is not None else ())]
        if pairs != panel.pairs:
            panel.show(pairs)
        rows = sum(len(wrap(text, max(1, self.size.width - _AROUND_TEXT))) for _, text in pairs)
        panel.styles.height = min(rows + 1, _DETAIL_ROWS, max(2, self.size.height // 3))
        panel.display = self.query_one("#logs-details-bar").display = bool(pairs)

    def _record(self, key: int | None) -> joblog.JobLogLine | None:
        """Return a line with its context."""
        source = self.pane.source
        place = None if key is None else source.index_of(key)
        if place is None or key is None:
            return None
        if source is self.lines:
            return self.lines.records()(key)
        if source is self._live_lines:
            return self._live_records[key]
        line = source.line(place)
        return joblog.JobLogLine(max(0, "DIWE".find(line.level or "I")), line.window, line.text, 0)

    # ------------------------------------------------------------------------------------------------------------------- tabs

    def action_tabs(self) -> None:
        """Make, change, move or remove a tab."""
        self.tabs.ask()

    # ------------------------------------------------------------------------------------------------------------------ files

    def action_file(self, step: int) -> None:
        """Show an older or a newer log."""
        self._find_files()
        self.files.step(step)

    def action_files(self) -> None:
        """Choose a log."""
        self._find_files()
        self.files.ask()

    def action_outside(self, program: str) -> None:
        """Open the log in the pager or the editor."""
        path = self.files.path
        if path is None:
            self.shell.tell("there is no log", "warning")
        else:
            command = pager(os.environ) if program == "pager" else editor(os.environ)
            away.lend(self.shell, [*command, str(path)])

    # ---------------------------------------------------------------------------------------------------------------- copying

    def action_copy(self) -> None:
        """Choose what to copy."""
        panel = self.query_one("#logs-details", KeyValue)
        if panel.has_focus and panel.current() is not None:
            items = [MenuItem("key", "Key", "k"), MenuItem("value", "Value", "y,v"), MenuItem("values", "All values", "a")]
        else:
            marked = len(self.pane.selected_keys())
            what = f"{marked:,} lines" if marked > 1 else "Line"
            items = [
                MenuItem("line", what, "y"), MenuItem("detailed", f"{what} with details", "d"),
                MenuItem("all", "All lines with details", "a", self.pane.source in (self.lines, self._live_lines)),
                MenuItem("path", "Path of the log", "p", self.files.path is not None),
            ]  # fmt: skip
        Menu.ask(self.shell.app, items, self._copy, title="Copy")

    def _copy(self, what: str | None) -> None:
        pair = self.query_one("#logs-details", KeyValue).current()
        pairs = self.query_one("#logs-details", KeyValue).pairs
        texts: dict[str, Callable[[], str]] = {
            "key": lambda: pair[0] if pair else "",
            "value": lambda: pair[1] if pair else "",
            "values": lambda: "\n".join(details(pairs)),
            "path": lambda: str(self.files.path),
        }
        if what in texts:
            self.shell.copy_text(texts[what]())
        elif what is not None:
            keys = self.pane.selected_keys() if what != "all" else [self.pane.key_of(at) for at in range(self.pane.count_rows())]
            read = self.lines.records() if self.pane.source is self.lines else self._record
            if read == self._record:  # they are few, and of the app's thread
                self._copy_lines(keys, read, what != "line")
            else:
                run_in_background("aptui-copy", self._copy_lines, keys, read, what != "line")

    def _copy_lines(self, keys: Sequence[int], read: Callable[[int], joblog.JobLogLine | None], has_details: bool) -> None:
        found = [record for key in keys if (record := read(key)) is not None]
        self.shell.in_ui(self.shell.copy_text, log_text(found, has_details=has_details))

    def action_menu(self, place: tuple[int, int] | None = None) -> None:
        """Say what can be done here."""
        actions: dict[str, tuple[str, str, Callable[[], object]]] = {
            "copy": ("Copy…", "y", self.action_copy),
            "filter": ("Search…", "slash", self.action_filter),
            "hits": ("All lines" if self._hits_only else "Hits only", "ampersand", self.action_hits_only),
            "tabs": ("Tabs…", "t", self.action_tabs),
            "files": ("Log files…", "L", self.action_files),
            "pager": ("Open in the pager", "o", partial(self.action_outside, "pager")),
            "editor": ("Open in the editor", "O", partial(self.action_outside, "editor")),
        }
        items = [
            MenuItem(name, label, key, is_enabled=name != "hits" or bool(self._search)) for name, (label, key, _) in actions.items()
        ]
        Menu.ask(self.shell.app, items, lambda what: actions[what][2]() if what else None, title="Log", place=place)

    @on(Rows.ContextMenu)
    def _open_menu(self, event: Rows.ContextMenu) -> None:
        event.stop()
        self.action_menu((event.x, event.y))

    @on(LogPane.ModesChanged)
    def _take_modes(self) -> None:
        self.query_one(TabLine).changed()
        self._show_details()


def _now_ms() -> int:
    return int(time.time() * 1000)
