"""Sheets, which cover the pane with lines: help, key tester, facts about the project, earlier messages. Also the toasts.

Tests: `tests/tui/test_shell.py`, `tests/tui/frame/test_info.py`.
"""

from __future__ import annotations

import os
import platform
import textwrap
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from rich.cells import cell_len
from textual import events
from textual.binding import ActiveBinding, Binding, BindingType
from textual.containers import Vertical
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input

from aptui import __version__
from aptui.shared.printing import sanitize
from aptui.tui.background import call_after
from aptui.tui.frame.line import Part, Parts, strip_of
from aptui.tui.preferences.keymap import EVERYWHERE, MOVES, Actions, Keymap, show_key
from aptui.tui.preferences.theming import roles
from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import width_of, wrap, wrap_at_most
from aptui.tui.words import clock, shorten

if TYPE_CHECKING:
    from textual.app import App
    from textual.screen import Screen

    from aptui.config.configuration import Config
    from aptui.shared.health import Health
    from aptui.tui.data.session import Session
    from aptui.tui.frame.commandline import Command


BREAK = Part("\n")
"""Separates the lines of one entry; a search shows or hides an entry as a whole."""


def break_entries(entries: Sequence[Parts]) -> list[Parts]:
    """Divide each entry into lines at its `BREAK`s; return the lines of all entries."""
    lines: list[Parts] = []
    for entry in entries:
        start = 0
        for at in [at for at, part in enumerate(entry) if part == BREAK]:
            lines.append(entry[start:at])
            start = at + 1
        lines.append(entry[start:])
    return lines


_TWO_COLUMNS = 120
"""Minimum width of the screen for two columns of lines (cells)."""


class Lines(ScrollView, can_focus=True, inherit_bindings=False):
    """A list of lines. With `has_cursor`, the user can choose a line.

    With `folds`, a list that is longer than the view is high is shown in two columns if the screen is wide. The cursor goes down
    the left column, and then down the right column.
    """

    DEFAULT_CSS = "Lines { width: 1fr; height: 1fr; scrollbar-size-vertical: 1; overflow-x: hidden; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "go(-1)", "up", show=False, id="sheet.up"),
        Binding("down,j", "go(1)", "down", show=False, id="sheet.down"),
        Binding("pageup,ctrl+u", "page(-1)", "page up", show=False, id="sheet.page_up"),
        Binding("pagedown,ctrl+d", "page(1)", "page down", show=False, id="sheet.page_down"),
        Binding("home,g", "end(-1)", "first", show=False, id="sheet.first"),
        Binding("end,G", "end(1)", "last", show=False, id="sheet.last"),
        Binding("enter", "choose", "choose", id="sheet.choose"),
    ]

    class LineMoved(Message):
        """Posted when the cursor moved to another line."""

        def __init__(self, lines: Lines, at: int) -> None:
            super().__init__()
            self.lines, self.at = lines, at

    class LineChosen(LineMoved):
        """Posted when the user chose a line."""

    def __init__(self, *, has_cursor: bool = False, folds: bool = False, name: str | None = None) -> None:
        super().__init__(id=name)
        self._lines: Sequence[Parts] = ()
        self.has_cursor, self.at = has_cursor, 0
        self._folds = folds
        self._left_count = 0
        """Number of lines in the left column; if that is the number of all lines, only this column is shown."""

    def show(self, lines: Sequence[Parts], at: int = 0) -> None:
        """Show these lines, with the cursor on line `at`."""
        self._lines, self.at = lines, at
        self.on_resize()

    def on_resize(self) -> None:
        """Divide the lines into columns: near the middle, and if possible between two groups of lines."""
        self._left_count = count = len(self._lines)
        if self._folds and self.app.size.width >= _TWO_COLUMNS and count > self.size.height:
            half = -(-count // 2)
            gaps = (at + 1 for at in range(half - count // 6, half + count // 6) if not self._lines[at])
            self._left_count = min(gaps, key=lambda at: abs(at - half), default=half)
        self.virtual_size = Size(self.size.width, max(self._left_count, count - self._left_count))
        self.refresh()

    def line(self, at: int) -> Parts:
        """Return a line; return () if it does not exist."""
        return self._lines[at] if at < len(self._lines) else ()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002  # Textual's
        """Return whether an action is possible. Only a list with a cursor has the action "choose"."""
        return action != "choose" or self.has_cursor

    def action_page(self, way: int) -> None:
        """Move the cursor or the view one page up (-1) or down (1)."""
        self.action_go(way * max(1, self.size.height - 1))

    def action_end(self, way: int) -> None:
        """Go to the first line (-1) or the last line (1)."""
        self.action_go(way * len(self._lines))

    def action_choose(self) -> None:
        """Choose the line under the cursor."""
        if self._lines:
            self.post_message(self.LineChosen(self, self.at))

    def action_go(self, count: int) -> None:
        """Go `count` lines down, or up if `count` is negative."""
        if not self.has_cursor:
            self.scroll_to(y=self.scroll_y + count, animate=False)
            return
        at = max(0, min(self.at + count, len(self._lines) - 1))
        if at != self.at:
            self.at = at
            row = at if at < self._left_count else at - self._left_count
            top, height = round(self.scroll_y), max(1, self.size.height)
            self.scroll_to(y=min(max(top, row - height + 1), row), animate=False)
            self.refresh()
            self.post_message(self.LineMoved(self, at))

    def render_line(self, y: int) -> Strip:
        """Draw one line of the screen. If the sheet has two columns, the line shows one entry of each column."""
        row = y + round(self.scroll_y)
        width, base = self.size.width, self.rich_style
        left, right = (row, self._left_count), (row + self._left_count, len(self._lines))
        columns = (left, right) if self._left_count < len(self._lines) else (left,)
        strips = []
        for at, end in columns:
            strip = strip_of(self._lines[at] if at < end else (), self, width // len(columns), base)
            is_cursor = self.has_cursor and at == self.at and at < end
            strips.append(strip.apply_style(roles(self.app)["cursor"]) if is_cursor else strip)
        return Strip.join(strips).adjust_cell_length(width, base)

    async def on_click(self, event: events.Click) -> None:
        """Choose the line under the pointer."""
        at, end = round(self.scroll_y) + event.y, self._left_count
        if end < len(self._lines) and event.x >= self.size.width // 2:
            at, end = at + end, len(self._lines)
        if self.has_cursor and at < end:
            self.action_go(at - self.at)
            self.action_choose()


class Sheet(Vertical):
    """A list of lines that covers the pane until `Esc`. With `placeholder`, `/` filters them; Enter runs a line's action."""

    DEFAULT_CSS = "Sheet { width: 1fr; height: 1fr; } Sheet Input { margin: 0 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "close", "back", id="sheet.close"),
        Binding("slash", "search", "search", id="sheet.search"),
    ]

    class SheetClosed(Message):
        """Posted when the sheet was closed; the action `action` runs after that."""

        def __init__(self, action: str = "") -> None:
            super().__init__()
            self.action = action

    def __init__(self, name: str, *, placeholder: str | None = None, folds: bool = False) -> None:
        super().__init__(id=name)
        self._placeholder, self._folds = placeholder, folds
        self._all: Sequence[Parts] = ()
        self.opening_keys: frozenset[str] = frozenset()
        """Keys of the action that opened the sheet; these keys also close the sheet."""

    def _fill(self) -> None:
        """Mount the child widgets when the sheet is first opened, because most sheets are never opened."""
        if self.children:
            return
        if self._placeholder is not None:
            narrow = Input(placeholder=self._placeholder, compact=True, select_on_focus=False)
            narrow.cursor_blink = False
            self.mount(narrow)
        self.mount(Lines(has_cursor=self._placeholder is not None, folds=self._folds))

    def show(self, lines: Sequence[Parts]) -> None:
        """Show these lines from the top, and clear the text of the filter."""
        self._fill()
        self._all = lines
        for narrow in self.query(Input):
            narrow.value = ""
        self.query_one(Lines).show(break_entries(lines))
        self.query_one(Lines).scroll_to(y=0, animate=False)

    def take_focus(self) -> None:
        """Focus the lines."""
        self._fill()
        self.query_one(Lines).focus()

    def _leave_search(self) -> None:
        # `set_focus` takes effect at once, because the user may have typed more keys already.
        self.screen.set_focus(self.query_one(Lines))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002  # Textual defines this signature
        """Return whether an action is possible: only some sheets have a search."""
        return action != "search" or self._placeholder is not None

    def action_search(self) -> None:
        """Focus the input of the search."""
        # `set_focus` takes effect at once, because the user may have typed more keys already.
        self.screen.set_focus(self.query_one(Input))

    def action_close(self) -> None:
        """Clear the filter and leave its input if it has a text or the focus; otherwise close this sheet."""
        for narrow in self.query(Input):
            if narrow.value or narrow.has_focus:
                narrow.value = ""
                self._leave_search()
                return
        self.post_message(self.SheetClosed())

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Move the focus from the input to the lines."""
        event.stop()
        self._leave_search()

    def on_lines_line_chosen(self, event: Lines.LineChosen) -> None:
        """Close the sheet and run the action of the chosen line."""
        event.stop()
        if action := next((part.action for part in event.lines.line(event.at) if part.action), ""):
            self.post_message(self.SheetClosed(action))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show the lines that contain every word of the input."""
        event.stop()
        words = event.value.lower().split()
        texts = ("".join(part.text for part in parts).lower() for parts in self._all)
        found = [parts for parts, text in zip(self._all, texts, strict=True) if all(word in text for word in words)]
        self.query_one(Lines).show(
            break_entries(found) or [(Part(" no entry contains these words; press Esc to show all entries", "muted"),)]
        )

    def on_key(self, event: events.Key) -> None:
        """If the input has the focus, arrow and page keys move the cursor. If not, the keys that opened the sheet close it."""
        ways = {"up": -1, "down": 1, "pageup": -10, "pagedown": 10}
        key = event.key
        if not isinstance(self.app.focused, Input):
            if key in self.opening_keys:
                event.stop()
                event.prevent_default()
                self.action_close()
        elif key in ways:
            self.query_one(Lines).action_go(ways[key])


_KEYS_CELLS = 14


def help_lines(
    active: dict[str, ActiveBinding], keymap: Keymap, commands: Sequence[Command], title: str, width: int = 200
) -> list[Parts]:
    """Return the entries of the help: active actions (those of the current pane first), commands, terms of filters, signs.

    Enter on the first line of an entry runs the action of the entry. Lines are at most `width` cells wide; `BREAK` separates the
    lines of an entry.
    """
    keys: dict[str, list[str]] = {}
    found: dict[str, tuple[str, str]] = {}
    for key, (_node, binding, _is_enabled, _tooltip) in active.items():
        action = keymap.actions.get(binding.id or "")
        does = action.does if action else binding.description
        if binding.id and does:  # Textual's own bindings, for moving and editing, have no id and are left out
            keys.setdefault(binding.id, []).append(key)
            is_move = binding.id.partition(".")[0] in MOVES
            group = "everywhere" if action is not None and action.scope == EVERYWHERE else "move" if is_move else title
            found[binding.id] = group, does
    lines: list[Parts] = []
    for group in (title, "move", "everywhere"):
        rows = [_row("  ".join(map(show_key, keys[name])), found[name][1], width, f"keys.press('{keys[name][0]}')")
                for name in found if found[name][0] == group]  # fmt: skip
        lines += [_heading(group), *rows, ()] if rows else []
    lines += [_heading("commands"), *(_row(f":{each.name}", each.does, width, f"bar.open('{each.name} ')") for each in commands)]
    lines += [(), _heading("filter: terms for '/' and for 'aptui jobs --filter'")]
    lines += [_row(term, does, width) for term, does in FILTER]
    return [*lines, (), _heading("signs"), *(_row(_signs(names), does, width) for names, does in SIGNS)]


FILTER = (
    ("rock", "jobs whose path matches this regular expression (upper or lower case)"),
    (r"\.png$", "jobs whose path ends in '.png'; a '.' without the backslash is any character"),
    ('"my rock"', "jobs whose path matches my rock; quotes are needed for a blank or the name of a status"),
    ("failed", "jobs with this status: failed warnings errors completed processing pending cancelled"),
    ("status:failed,pending", "jobs with any of these statuses"),
    ("!rock", "jobs that do not match the term after '!'"),
    ("platform:linux", "jobs whose platform matches this expression; key, builder, folder and reason work in the same way"),
    ("error:IDAT", "failed jobs whose error contains this text"),
    ("cause:", "failed jobs with this cause (the key 'f' groups failed jobs by cause)"),
    ("after:9:30 before:2h", "jobs completed after 9:30, and more than two hours ago; also dates: 2026-11-20T23:01"),
    ("after:9:00..10:00", "jobs completed from 9:00 to 10:00"),
    ("slower:1.5s faster:2m", "jobs that took longer than 1.5 seconds, and less than 2 minutes; also slower:1s..5s"),
    ("is:draft is:flaky", "jobs with a draft; flaky jobs (success after a failed run); also is:critical"),
    ("one two", "jobs that match all of the terms"),
)
"""(term, meaning) of the filter language, for the help."""
SIGNS = (
    (("failed", "error"), "a failed job; an error in a log"),
    (("warning",), "a job that completed with warnings; a warning in a log; a problem to check"),
    (("completed",), "a completed job"),
    (("processing",), "a running job"),
    (("pending",), "a job that waits for a worker or for another job"),
    (("cancelled",), "a cancelled job"),
    (("critical",), "a critical job, which runs before other jobs"),
    (("mark",), "a marked row, or a menu entry that is on"),
    (("cursor",), "the selected row: keys act on this row"),
    (("open",), "the current tab; an open folder"),
    (("details",), "a line with details; press Enter to show them"),
    (("wrapped",), "the continuation of the line above"),
)
"""(names of signs, meaning), for the help."""


def _signs(names: Sequence[str]) -> str:
    return "  ".join(dict.fromkeys(glyph(name) for name in names))


def _heading(text: str) -> Parts:
    return (Part(f" {text[:1].upper()}{text[1:]}", "title"),)


def _row(keys: str, does: str, width: int, action: str = "") -> Parts:
    shown = f"  {keys:<{_KEYS_CELLS}} "
    first, *more = textwrap.wrap(does, max(1, width - len(shown))) or [""]
    indent = _KEYS_CELLS + 3
    more = textwrap.wrap(" ".join(more), max(1, width - indent))
    return (Part(shown, "key", action), Part(first), *(part for line in more for part in (BREAK, Part(f"{'':{indent}}{line}"))))


class KeyTester(Sheet):
    """Shows the name and the action of each key that the user presses; `Esc` twice closes it."""

    def __init__(self) -> None:
        super().__init__("sheet-keys")
        self._active: dict[str, ActiveBinding] = {}
        self._keymap = Keymap()
        self._last = ""

    def start(self, active: dict[str, ActiveBinding], keymap: Keymap) -> None:
        """Start the key tester with the keys that are active now."""
        self._active, self._keymap, self._last = active, keymap, ""
        self.show([(Part(" Press keys to see their names and actions. Press Esc twice to go back.", "title"),), ()])

    def on_key(self, event: events.Key) -> None:
        """Show the pressed key instead of running its action."""
        event.stop()
        event.prevent_default()
        if event.key == self._last == "escape":
            self.post_message(self.SheetClosed())
            return
        self._last = event.key
        lines = self.query_one(Lines)
        self._all = [*self._all[:2], self._describe(event.key), *self._all[2:200]]
        lines.show(self._all)

    def _describe(self, key: str) -> Parts:
        found = self._active.get(key)
        if found is None:
            return (Part(f"  {show_key(key):<8}", "key"), Part(f"{key:<20}"), Part("nothing here", "muted"))
        name = found.binding.id or found.binding.action
        return (
            Part(f"  {show_key(key):<8}", "key"),
            Part(f"{key:<20}"),
            Part(f"{self._keymap.does(name) or found.binding.description}  "),
            Part(name, "muted"),
        )


_WIDTH = 18
ENGINE_ROOT = "Engine root"
"""Name of the fact that the info sheet shows directly below the project."""


def info_lines(session: Session, config: Config | None, more: list[tuple[str, str]], width: int = 200) -> list[Parts]:
    """Return the entries of the info sheet, at most `width` cells wide; `more` has (name, value) of further facts."""
    project_dir = str(config.project_dir) if config else ""
    engine = session.engine
    roots = [row for row in more if row[0] == ENGINE_ROOT]
    rows = [
        ("Project", f"{session.project_name}   {project_dir}"),
        *roots,
        ("Cache", str(session.cache_dir)),
        ("Engine", f"{session.state.value} since {clock(session.since_ms)}" if session.since_ms else session.state.value),
        ("", session.trouble),
        ("", f"pid {engine.pid}   version {engine.version}   started {clock(engine.started_ms)}" if engine.pid else ""),
        ("Socket", engine.socket),
        ("Ports", ", ".join(f"{name} {port}" for name, port in sorted(engine.ports.items()))),
        ("Gateway", f"{session.gateway.address}:{session.gateway.port}" if session.gateway is not None else ""),
        *(_folder_rows(config) if config else ()),
        ("aptui", f"{__version__}   Python {platform.python_version()}   pid {os.getpid()}"),
        ("Terminal", f"{os.environ.get('TERM', '')}   {'tmux' if os.environ.get('TMUX') else ''}"),
        *(row for row in more if row not in roots),
    ]
    lines = [_fact_row(key, value) for key, value in rows if value.strip()]
    return [_fold_line(line, width) for line in ((), *lines, (), *_health_lines(session.latest_health))]


def _fold_line(line: Parts, width: int) -> Parts:
    """Return a row of the sheet of facts or messages; a value that is too long continues in the next lines."""
    if not line:
        return line
    key, value = line
    first, *more = (value.text[start:end] for start, end in wrap(value.text, width - key.width))
    indent = Part(" " * key.width)
    return (key, Part(first, value.role), *(part for text in more for part in (BREAK, indent, Part(text, value.role))))


def _folder_rows(config: Config) -> list[tuple[str, str]]:
    """Return rows for the scan folders, in the order of their precedence, and a row for the file types with `.meta` files."""
    rows: list[tuple[str, str]] = []
    found = (folder for folder in config.project.scan_folders if not folder.is_intermediate)
    folders = sorted(found, key=lambda folder: folder.order)
    orders = _even([str(folder.order) for folder in folders], is_right=True)
    names = _even([folder.name for folder in folders])
    for at, folder in enumerate(folders):
        only = f"   {', '.join(folder.platforms)}" if folder.platforms else ""
        flat = "" if folder.recursive else "   without subfolders"
        title = f"Scan folders ({len(folders):,})" if not at else ""
        rows.append((title, f"{orders[at]}  {names[at]}   {folder.path}{only}{flat}"))
    if len(folders) > 1:
        rows += [
            ("", "if two folders have a file with the same path, the file in the folder with the lower order is used"),
            ("", "run 'aptui explain PATH' to see which file is used"),
        ]
    if config.project.metadata_types:
        wait = f"   a new source waits up to {config.meta_delay_ms:,} ms for its '.meta' file" if config.meta_delay_ms else ""
        rows.append(("Metadata", f"'.meta' files for {', '.join(config.project.metadata_types)}{wait}"))
    return rows


def _even(texts: list[str], *, is_right: bool = False) -> list[str]:
    """Return the texts, each padded to the width of the widest text."""
    widest = max(map(width_of, texts), default=0)
    return [" " * (widest - width_of(text)) + text if is_right else text + " " * (widest - width_of(text)) for text in texts]


def _fact_row(key: str, value: str, role: str = "value") -> Parts:
    return (Part(f" {key:<{_WIDTH}}", "key"), Part(sanitize(value), role))


def _health_lines(health: Health | None) -> list[Parts]:
    if health is None:
        return []
    title = f"Watched ({len(health.roots):,})"
    modes = _even([root.mode.value for root in health.roots])
    lines = [
        _fact_row("" if at else title, f"{modes[at]}   {root.path}   {root.detail}".rstrip())
        for at, root in enumerate(health.roots)
    ]
    troubles = [
        ("Workers", health.pool),
        ("Sandbox", health.sandbox),
        ("Disk", health.disk),
        ("Database", health.database),
        ("Configuration", health.configuration),
    ]
    troubles += [("Builder", f"{name}: {why}") for name, why in health.broken_builders] + [("Hold", hold) for hold in health.holds]
    return lines + [_fact_row(key, value, "warning") for key, value in troubles if value]


_MOST, _MOST_REMEMBERED = 3, 200
_ROLES = {"information": "info", "warning": "warning", "error": "error"}
_GLYPHS = {"information": "·", "warning": "!", "error": "✗"}


class Toasts(Widget):
    """Messages on the rule above the hints. Each message is shown for some seconds, and is stored for `:messages`.

    A timer runs only while a message is shown.
    """

    DEFAULT_CSS = """
    Toasts { layer: overlay; dock: bottom; width: 1fr; height: 1; margin: 0 0 1 0; display: none; align-horizontal: right; }
    """
    ALLOW_SELECT: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__(id="toasts")
        self.remembered: deque[tuple[int, str, str]] = deque(maxlen=_MOST_REMEMBERED)
        self._shown: list[tuple[float, str, str]] = []
        self._timer: Timer | None = None
        self._width = 0
        """Width in cells. It does not shrink while messages are shown, so that a number in a text does not move them."""

    def show_toast(self, text: str, severity: str = "information", seconds: float = 5.0) -> None:
        """Show one message in the corner; each of its lines is also stored as an entry of `:messages`."""
        now = time.monotonic()
        free_width = max(10, self.app.size.width - 6)
        if severity == "information":  # of several informational messages, only the newest is shown
            self._shown = [each for each in self._shown if each[2].partition(" ")[0] != "information"]
        for line in text.splitlines():
            safe = sanitize(line)
            self.remembered.append((int(time.time() * 1000), safe, severity))
            pieces = [piece.strip() for piece in wrap_at_most(safe, free_width, _MOST)]
            self._shown += [
                (now + seconds, piece, severity if at == 0 else f"{severity} again") for at, piece in enumerate(pieces) if piece
            ]
        self._draw()

    def _draw(self) -> None:
        """Remove messages whose time is over, show the others, and set a timer for the end of the next message."""
        now = time.monotonic()
        self._shown = [each for each in self._shown if each[0] > now][-_MOST:]
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        self.display = bool(self._shown)
        if not self._shown:
            self._width = 0
        else:
            widest = max(self._width, *(cell_len(text) + 4 for _, text, _ in self._shown))
            self._width = min(widest, max(10, self.app.size.width - 2))
            self.styles.height = len(self._shown)
            self.styles.width = self._width
            self.styles.offset = (max(0, self.app.size.width - 1 - self._width), 0)
            self._timer = call_after(self, max(0.05, min(until for until, _, _ in self._shown) - now), self._draw)
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """Draw one line of a message."""
        width = self.size.width
        if y >= len(self._shown):
            return Strip.blank(width, self.rich_style)
        _, text, severity = self._shown[y]
        kind, _, again = severity.partition(" ")
        role = _ROLES.get(kind, "info")
        parts: Parts = (Part("   " if again else f" {_GLYPHS.get(kind, '·')} ", role), Part(shorten(text, width - 4), role))
        return strip_of(parts, self, width, self.rich_style)

    def history(self, width: int) -> list[Parts]:
        """Return all messages that are still stored, the latest first, in entries of at most `width` cells."""
        rows: list[Parts] = [
            _fold_line(
                (Part(f" {clock(time_ms)}  ", "muted"), Part(f"{_GLYPHS.get(severity, '·')} {text}", _ROLES.get(severity, "info"))),
                width,
            )
            for time_ms, text, severity in reversed(self.remembered)
        ]
        return rows or [(Part(" no messages yet", "muted"),)]


_MARGINS = 3


class Stage(Protocol):
    """The widget that shows a sheet in place of the pane."""

    sheet: str

    @property
    def title(self) -> str:
        """The title of the pane."""

    @property
    def status(self) -> str:
        """A few words about the content of the pane."""

    def open_sheet(self, name: str, lines: Sequence[Any] | None = None) -> None:
        """Show a sheet in place of the pane."""


class Sheets(Actions):
    """Opens sheets.

    Args:
        commands: returns the commands that the `:` line accepts now.
        facts: returns facts about the app as (name, value).
    """

    def __init__(
        self, app: App[Any], stage: Stage, keymap: Callable[[], Keymap], commands: Callable[[], Sequence[Command]],
        session: Session, config: Config | None, facts: Callable[[], Sequence[tuple[str, str]]],
    ) -> None:  # fmt: skip
        self._app, self._stage, self._keymap, self._commands = app, stage, keymap, commands
        self._session, self._config, self._facts = session, config, facts

    def show(self, lines: Sequence[Any], action_id: str = "") -> None:
        """Show lines in place of the pane until `Esc`, or a key of the action that opened them.

        The caller has removed control characters from the text of the lines.
        """
        self._open("sheet-info", lines, action_id)

    def _open(self, name: str, lines: Sequence[Any], action_id: str) -> None:
        active = self._app.screen.active_bindings.items()
        keys = frozenset(key for key, found in active if action_id and found.binding.id == action_id)
        self._stage.open_sheet(name, lines)
        self._app.query_one(f"#{name}", Sheet).opening_keys = keys

    def show_news(self, entries: Sequence[Any]) -> None:
        """Show entries in place of the pane; Enter runs the action of the chosen entry."""
        self._stage.open_sheet("sheet-news", entries)

    def action_help(self) -> None:
        """Show the keys and commands of the current place."""
        if self._stage.sheet != "sheet-help":
            width = self._app.size.width
            width = (width // 2 if width >= _TWO_COLUMNS else width) - _MARGINS
            lines = help_lines(self._app.screen.active_bindings, self._keymap(), self._commands(), self._stage.title, width)
            self._open("sheet-help", lines, "app.help")

    def action_keys(self) -> None:
        """Open the key tester."""
        active = self._app.screen.active_bindings
        self._stage.open_sheet("sheet-keys")
        self._app.query_one(KeyTester).start(active, self._keymap())

    def action_messages(self) -> None:
        """Show earlier messages."""
        lines = self._app.query_one(Toasts).history(self._app.size.width - _MARGINS)
        self._stage.open_sheet("sheet-messages", lines)

    def action_info(self) -> None:
        """Show facts about the project, the engine and the versions."""
        here = [("Here", self._stage.status)] if self._stage.status else []
        lines = info_lines(self._session, self._config, [*self._facts(), *here], self._app.size.width - _MARGINS)
        self._open("sheet-info", lines, "app.info")


def actions_of(screen: Screen[Any], keymap: Keymap) -> list[tuple[str, str, str]]:
    """Return (key, id, description) of all actions with a key on a screen."""
    found: dict[str, tuple[str, str, str]] = {}
    for key, (_node, binding, is_enabled, _tooltip) in screen.active_bindings.items():
        does = keymap.does(binding.id or "") or binding.description
        if is_enabled and does and binding.id:
            found.setdefault(binding.id, (key, binding.id, does))
    return list(found.values())
