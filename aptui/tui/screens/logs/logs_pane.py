"""The Logs screen: the engine's own log in tabs, live, with levels, search, details of a line, and the logs of earlier days."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from aptui.store.joblog import engine_logs
from aptui.store.queries.logs import log_folder
from aptui.tui.background import run_in_background
from aptui.tui.frame import terminal_control
from aptui.tui.frame.commandline import Command
from aptui.tui.frame.line import Bar, Part, TabLine
from aptui.tui.pane import Pane, Shell
from aptui.tui.screens.external_programs import editor, offer_pair, pager
from aptui.tui.screens.jobs.job_texts import log_text
from aptui.tui.screens.logs.log_reader import LogPiece, LogReader, LogRecords, LogView
from aptui.tui.screens.logs.log_tabs import TabList
from aptui.tui.widgets.cells import wrap
from aptui.tui.widgets.filterbox import FilterBox
from aptui.tui.widgets.log_sources import LEVELS
from aptui.tui.widgets.logpane import LogPane
from aptui.tui.widgets.menu import Menu, MenuChoice, MenuItem
from aptui.tui.widgets.row_list import Rows
from aptui.tui.widgets.table import KeyValue
from aptui.tui.words import size_text

if TYPE_CHECKING:
    from textual.widget import Widget

    from aptui.tui.data.feed import Batch


class LogsSearch:
    """The search in the lines."""

    def __init__(self, screen: LogsPane) -> None:
        self._screen, self._box, self._pane, self._lines = screen, screen.box, screen.pane, screen.records.lines
        self.text, self.hits_only = "", False
        self._wants_hit = False

    def restore(self) -> None:
        """Restore the remembered search."""
        memory = self._screen.shell.memory
        self.text, self.hits_only = memory.get("logs.filter", ""), memory.get("logs.hits_only", False)
        self._box.history.texts = memory.history("logs.filters")[::-1]
        if self.text:
            self._box.text, self._box.display = self.text, True

    def keep(self) -> None:
        """Remember the text of the search."""
        self._screen.shell.memory.put("logs.filter", self.text)
        self._screen.shell.memory.put("logs.hits_only", self.hits_only)

    def begin(self) -> None:
        """Open the search line."""
        self._box.display = True
        self._box.begin()

    def toggle_hits_only(self) -> None:
        """Show only lines with a hit, or show all lines."""
        if self.text:
            self.hits_only = not self.hits_only
            self._screen.request_lines()
        else:
            self.begin()

    def handle(self, event: FilterBox.Changed) -> None:
        """Search for the typed text; when the user leaves the search line, go to a hit."""
        if isinstance(event, FilterBox.FilterLeft):
            self._settle(event)
        elif event.text != self.text:
            self.text = event.text
            self._box.show_count("")
            self._screen.request_lines()

    def _settle(self, event: FilterBox.FilterLeft) -> None:
        self._box.display = bool(event.text)
        if event.is_remembered:
            self._screen.shell.memory.remember("logs.filters", event.text)
        self._pane.focus()
        self._wants_hit = True
        if self._screen.asked is None:
            self.reach_hit()

    def clear(self) -> None:
        """Remove the search."""
        self.text, self.hits_only = "", False
        self._box.text, self._box.display = "", False
        self._screen.request_lines()

    def reach_hit(self) -> None:
        """After the user has left the search line, go to the nearest hit above the cursor, or else to the nearest hit below it.

        If the line under the cursor is a hit, the cursor stays.
        """
        if not self._wants_hit:
            return
        self._wants_hit = False
        pane = self._pane
        pane.refresh_source()
        if pane.cursor_key is not None and pane.cursor_key not in self._lines.hits:
            was = pane.cursor
            pane.action_hit(-1)
            if pane.cursor == was:
                pane.action_hit(1)

    def show_count(self, *, is_whole: bool) -> None:
        """Show the number of lines with a hit."""
        if not self._box.display or self._box.query_one(".mistake").display:
            return
        if self._pane.source is not self._lines:
            self._box.show_count("too large to search here; press 'o' to open the pager")
        elif self.text:
            self._box.show_count(f"{len(self._lines.hits):,} of {self._lines.line_count():,}{'' if is_whole else '…'}")
        else:
            self._box.show_count("")


_MOST_ROWS = 6
"""Maximum height of the details (lines)."""
_AROUND_TEXT = 12
"""Approximate number of cells beside a value in a line of the details: the key and the margins."""


_BASES = ("aptui", "AP_GUI", "AP_Batch")
"""Names of aptui's logs and of the logs of O3DE's own programs."""


class LogFiles:
    """The list of a project's logs, the newest first.

    Args:
        show: called when the user chose another log; shows the lines of `path`.
    """

    def __init__(self, shell: Shell, show: Callable[[], None]) -> None:
        self._shell, self._show = shell, show
        self.paths: list[Path] = []
        self.age = 0
        """Number of logs that are newer than the shown log."""

    @property
    def folder(self) -> Path:
        """The folder that contains the logs."""
        config = self._shell.config
        return config.log_dir if config else log_folder(self._shell.session.cache_dir)

    @property
    def path(self) -> Path | None:
        """The shown log."""
        return self.paths[self.age] if self.paths else None

    def find(self) -> bool:
        """List the logs. A shown older log stays shown. Return whether any log exists."""
        shown, folder = self.path if self.age else None, self.folder
        self.paths = [path for base in _BASES for path in engine_logs(folder, base)]
        self.age = self.paths.index(shown) if shown in self.paths else 0
        return bool(self.paths)

    def step(self, step: int) -> None:
        """Show an older (1) or a newer (-1) log."""
        if 0 <= self.age + step < len(self.paths):
            self.show(self.age + step)
        else:
            self._shell.show_toast("there is no older stored log" if step > 0 else "this is the newest log")

    def show(self, age: int) -> None:
        """Show a log, 0 = the current log."""
        self.age = age
        self._show()

    def open_menu(self) -> None:
        """Open the menu of logs."""
        items = [MenuItem(f"{at}", f"{path.name}   {_size_of(path)}") for at, path in enumerate(self.paths)]
        if items:
            Menu.ask(self._shell.app, items, lambda chosen: self.show(int(chosen)) if chosen else None, title="Logs")
        else:
            self._shell.show_toast("no log", "warning")


def _size_of(path: Path) -> str:
    try:
        return size_text(path.stat().st_size)
    except OSError:
        return ""


class LogsPane(Pane):
    """The Logs screen."""

    DEFAULT_CSS = """
    LogsPane { layout: vertical; }
    LogsPane #logs-filter { display: none; }
    LogsPane #logs-details-bar, LogsPane #logs-details { display: none; }
    """
    command_names = ("tab", "new-tab", "older-log")
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
        self.records = LogRecords()
        self.details_bar = Bar(lambda _width: ((Part("This line", "title"),), ()), id="logs-details-bar", rules=True)
        self.details = KeyValue(id="logs-details")
        self.pane = LogPane(self.records.lines, id="logs-lines", window_cells=0)
        self.box = FilterBox(placeholder="search these lines", id="logs-filter")
        self.tabs, self.files = TabList(self.shell, self.request_lines), LogFiles(self.shell, self._show_file)
        self.search = LogsSearch(self)
        self._tab_line = TabLine(lambda: (self.tabs.names(), self.tabs.number), self._words, self.tabs.show, id="logs-tabs")
        self._reader = LogReader(self.shell.wake)
        self._is_whole, self._is_check_due = True, False
        self.asked: LogView | None = None
        """The requested view while it is loading, else None.

        A view with a search is loaded when the first hits, or all lines, have arrived.
        """

    # --------------------------------------------------------------------------------------------------------------- widgets

    def compose(self) -> ComposeResult:
        """Create the widgets."""
        yield self._tab_line
        yield self.box
        yield self.pane
        yield self.details_bar
        yield self.details

    def on_mount(self) -> None:
        """Restore the remembered choices, and start reading."""
        memory, pane = self.shell.memory, self.pane
        pane.is_following, pane.is_wrapped = True, memory.get("logs.wrap", False)
        pane.levels = memory.get("logs.levels", LEVELS) or LEVELS
        self.search.restore()
        self._find_files()
        self.request_lines()

    def on_unmount(self) -> None:
        """End the thread."""
        self._reader.close()

    # ------------------------------------------------------------------------------------------------------ methods of `Pane`

    def activate(self) -> None:
        """Check for new lines."""
        self._is_check_due = True

    def deactivate(self) -> None:
        """Store tabs, filter and modes for the next start."""
        memory, pane = self.shell.memory, self.pane
        self.tabs.keep()
        self.search.keep()
        memory.put("logs.levels", pane.levels)
        memory.put("logs.wrap", pane.is_wrapped)

    def on_news(self, batch: Batch) -> None:
        """Note new messages of the engine; the engine has written them to its log already."""
        if batch.messages:
            self.records.add(batch.messages)
        if batch.messages or any(news.notice.status == "failed" for news in batch.jobs):
            self._is_check_due = True

    def on_frame(self) -> None:
        """Draw new lines."""
        if self._is_check_due:
            self._is_check_due = False
            if self.files.paths:
                self._reader.check()
            elif self._find_files():
                self.request_lines()
        for piece in self._reader.pop():
            self._accept(piece)
        self.pane.refresh_source()
        self.search.show_count(is_whole=self._is_whole)
        self._tab_line.refresh_if_changed()

    def reload(self) -> None:
        """Read the log again."""
        self._find_files()
        self.request_lines()

    def status(self) -> str:
        """Return the name of the shown log."""
        return f"log {path}" if (path := self.files.path) else "no log"

    def commands(self) -> Sequence[Command]:
        """Return the commands of the `:` line."""
        names = self.tabs.names()

        def show(name: str) -> None:
            self.tabs.show(names.index(name)) if name in names else self.tabs.open_menu()

        return (
            Command("tab", "show a tab of the log", show, lambda: names),
            Command("new-tab", "make a new tab with your own filters", lambda _rest: self.tabs.edit(None)),
            Command("older-log", "choose an older log", lambda _rest: self.action_files()),
        )

    # -------------------------------------------------------------------------------------------------------- the shown lines

    def _find_files(self) -> bool:
        """List the logs; if no log exists, show the messages that the engine sends."""
        if self.files.find():
            return True
        rest = "; new messages of the engine appear here" if self.shell.config else ""
        self.pane.empty_text = f"no log yet in '{self.files.folder}'{rest}"
        self.pane.set_source(self.records.live)
        self.asked = None
        return False

    def _show_file(self) -> None:
        """Show another log."""
        self.pane.end_pause()
        self.request_lines()

    def request_lines(self) -> None:
        """Request the lines for the current tab, search and file."""
        if self.files.path is not None:
            self.asked = LogView(self.files.path, self.tabs.current, self.search.text, self.search.hits_only)
            self._reader.show(self.asked)
        self._tab_line.refresh_if_changed()

    def name_awaited(self, focused: Widget | None) -> str:
        """Return "the search" or "the first rows" if the next key has to wait until they are loaded, else ""."""
        if self.asked is None or isinstance(focused, Input):
            return ""
        return "the search" if self.search.text else "the first rows"

    def _accept(self, piece: LogPiece) -> None:
        self._accept_lines(piece)
        # The end of a long log arrives first. If it has a hit, that hit is the nearest one, so the search does not wait for the
        # other lines.
        if piece.view == self.asked and (piece.is_whole or piece.hits or not piece.view.search):
            self.asked = None
            self.search.reach_hit()

    def _accept_lines(self, piece: LogPiece) -> None:
        pane = self.pane
        if piece.mistake is not None:
            self.box.show_error(piece.mistake)
            return
        self._is_whole = piece.is_whole
        source = piece.large or self.records.lines
        if pane.source is not source:
            was_following, pane.is_following = pane.is_following, False
            pane.set_source(source)
            if was_following:
                pane.action_follow()
        pane.empty_text = piece.nothing or (
            "no line matches the search" if self.search.text and self.search.hits_only else "no line has the chosen levels"
        )
        if piece.large is None:
            self.records.lines.add(piece)
            pane.set_search(piece.search.spans_of if piece.search.terms else None, self.records.lines.hits)

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
        """Open the search line."""
        self.search.begin()

    def action_hits_only(self) -> None:
        """Show only lines with a hit, or all."""
        self.search.toggle_hits_only()

    @on(FilterBox.Changed, "#logs-filter")
    def _search_text(self, event: FilterBox.Changed) -> None:
        event.stop()
        self.search.handle(event)

    def action_back(self) -> None:
        """Move the focus from the details to the lines; if the lines already have the focus, remove the search."""
        if not self.pane.has_focus:
            self.pane.focus()
        elif self.search.text:
            self.search.clear()

    # ---------------------------------------------------------------------------------------------------------------- details

    @on(Rows.Highlighted, "#logs-lines")
    def _follow_cursor(self, event: Rows.Highlighted) -> None:
        event.stop()
        self._show_details()

    def on_resize(self) -> None:
        """Check again whether the line under the cursor fits into its row."""
        self.call_after_refresh(self._show_details)

    def _show_details(self) -> None:
        """Show the context of the line under the cursor, and its full text if the row cuts it, in at most a third of the height."""
        record, whole = self.records.record(self.pane.source, self.pane.cursor_key), self.pane.cut_text()
        pairs = [*([("Text", whole)] if whole else []), *(record.context if record is not None else ())]
        if pairs != self.details.pairs:
            self.details.show(pairs)
        rows = sum(len(wrap(value, max(1, self.size.width - _AROUND_TEXT))) for _, value in pairs)
        self.details.styles.height = min(rows + 1, _MOST_ROWS, max(2, self.size.height // 3))
        self.details.display = self.details_bar.display = bool(pairs)

    # ------------------------------------------------------------------------------------------------------------------- tabs

    def action_tabs(self) -> None:
        """Open the menu of tabs."""
        self.tabs.open_menu()

    # ------------------------------------------------------------------------------------------------------------------ files

    def action_file(self, step: int) -> None:
        """Show an older (1) or a newer (-1) log."""
        self._find_files()
        self.files.step(step)

    def action_files(self) -> None:
        """Open the menu of logs."""
        self._find_files()
        self.files.open_menu()

    def action_outside(self, program: str) -> None:
        """Open the log in the pager or the editor."""
        path = self.files.path
        if path is None:
            self.shell.show_toast("no log", "warning")
        else:
            command = pager() if program == "pager" else editor()
            terminal_control.lend(self.shell, [*command, str(path)])

    # ---------------------------------------------------------------------------------------------------------------- copying

    def action_copy(self) -> None:
        """Open the menu of texts to copy: from the details if they have the focus, else from the lines."""
        if offer_pair(self.shell, self.details):
            return
        path, marked = self.files.path, len(self.pane.marks.list_selected())
        what = f"{marked:,} lines" if marked > 1 else "Line"
        copy, knows_all = self._copy_lines, self.records.knows(self.pane.source)
        choices: list[MenuChoice] = [
            (MenuItem("line", what, "y"), partial(copy, is_all=False, has_details=False)),
            (MenuItem("detailed", f"{what} with details", "d"), partial(copy, is_all=False, has_details=True)),
            (MenuItem("all", "All lines with details", "a", knows_all), partial(copy, is_all=True, has_details=True)),
            (MenuItem("path", "Path of the log", "p", path is not None), lambda: self.shell.copy_text(str(path))),
        ]
        Menu.run_one(self.shell.app, choices, title="Copy")

    def _copy_lines(self, *, is_all: bool, has_details: bool) -> None:
        pane = self.pane
        keys = [pane.key_of(at) for at in range(pane.count_rows())] if is_all else pane.marks.list_selected()
        read, is_for_threads = self.records.reader(pane.source)

        def copy() -> None:
            found = [record for key in keys if (record := read(key)) is not None]
            self.shell.in_ui(self.shell.copy_text, log_text(found, has_details=has_details))

        if is_for_threads:
            run_in_background("aptui-copy", copy)
        else:  # this source has few lines, so this thread reads them quickly
            copy()

    def action_menu(self, place: tuple[int, int] | None = None) -> None:
        """Open the menu of this screen's actions."""
        hits = MenuItem("hits", "All lines" if self.search.hits_only else "Hits only", "ampersand", bool(self.search.text))
        choices: list[MenuChoice] = [
            (MenuItem("copy", "Copy…", "y"), self.action_copy),
            (MenuItem("filter", "Search…", "slash"), self.action_filter),
            (hits, self.action_hits_only),
            (MenuItem("tabs", "Tabs…", "t"), self.action_tabs),
            (MenuItem("files", "Log files…", "L"), self.action_files),
            (MenuItem("pager", "Open in the pager", "o"), partial(self.action_outside, "pager")),
            (MenuItem("editor", "Open in the editor", "O"), partial(self.action_outside, "editor")),
        ]
        Menu.run_one(self.shell.app, choices, title="Log", place=place)

    @on(Rows.ContextMenu)
    def _open_menu(self, event: Rows.ContextMenu) -> None:
        event.stop()
        self.action_menu((event.x, event.y))

    @on(LogPane.ModesChanged)
    def _accept_modes(self) -> None:
        self._tab_line.refresh_if_changed()
        self._show_details()
