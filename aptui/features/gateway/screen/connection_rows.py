"""Columns and rows of the tables on the Connections screen, and the lines that show facts. Other modules draw the tables.

Tests: `tests/features/gateway/screen/test_inquiry.py`, `tests/features/gateway/screen/test_screen.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, cast

import msgspec
from msgspec import Struct
from textual import events, on
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.strip import Strip

from aptui.core.project import Project, ScanFolder
from aptui.shared.connections.peers import GatewayReport, Peer, PeerSettings, PeerState, TurnedAway
from aptui.shared.forms import prepare_form
from aptui.shared.health import Connection, Health, WatchedRoot, WatchMode, WorkerInfo
from aptui.shared.printing import sanitize
from aptui.tui.frame.commandline import Choice
from aptui.tui.frame.line import Bar, Line, Part, Parts, strip_of, width_of
from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import Cell, wrap
from aptui.tui.widgets.listing import ListedRow, ListedRows
from aptui.tui.widgets.menu import Menu, MenuChoice, MenuItem
from aptui.tui.widgets.row_list import Rows
from aptui.tui.widgets.table import Column, Table
from aptui.tui.words import brief, clock, shorten, size_text

if TYPE_CHECKING:
    from aptui.tui.pane import Shell


_BETWEEN = "   "


class Fact(Line):
    """A widget that shows facts side by side on one or more lines; each fact is (key, value, role).

    Facts that do not fit are left out.
    """

    def __init__(self, *, id: str | None = None, most_lines: int = 1) -> None:  # noqa: A002  # Textual's name
        super().__init__(id=id)
        self.facts: list[tuple[str, str, str]] = []
        self._most_lines = most_lines
        self._lines: list[Parts] = []

    def show(self, facts: Sequence[tuple[str, str, str]]) -> None:
        """Show these facts."""
        self.facts = [fact for fact in facts if fact[1]]
        self.display = bool(self.facts)
        self._lay_out(self.size.width)

    def on_resize(self, event: events.Resize) -> None:
        """Adapt the number of lines to the width."""
        self._lay_out(event.size.width)

    def _lay_out(self, width: int) -> None:
        lines = self.lines(width) if width else []
        if lines != self._lines:
            self._lines = lines
            self.styles.height = max(1, len(lines))
            self.refresh()

    def lines(self, width: int) -> list[Parts]:
        """Return the lines. A fact is split only if it is longer than a line; the last line is cut."""
        lines: list[Parts] = [()]
        for key, value, role in self.facts:
            parts = Part(f"{key}  " if key else "", "key"), Part(sanitize(value), role or "value")
            if width_of(lines[-1]) + len(_BETWEEN) + width_of(parts) <= width and lines[-1]:
                lines[-1] += (Part(_BETWEEN), *parts)
                continue
            if lines[-1]:
                if len(lines) == self._most_lines:
                    break
                lines.append(())
            lines[-1:] = _break_fact(parts, width - 1, self._most_lines - len(lines) + 1)
        return lines

    def parts(self, width: int) -> Parts:
        """Return the text of the first line, with the roles of its parts."""
        return self.lines(width)[0]

    def render_line(self, y: int) -> Strip:
        """Return a line."""
        self._drawn = self._lines[y] if y < len(self._lines) else ()
        return strip_of(self._drawn, self, self.size.width, self.rich_style)


def _break_fact(parts: Parts, width: int, most: int) -> list[Parts]:
    """Split a fact into at most `most` lines; a longer fact is cut at the end of the last line."""
    key, value = parts
    rows = wrap(value.text, max(1, width - key.width))
    texts = [value.text[start:end].rstrip() for start, end in rows[: most - 1]]
    if len(rows) >= most:
        texts.append(shorten(value.text[rows[most - 1][0] :], width - key.width))
    lead = (Part(" "), key), (Part(" " * (1 + key.width)),)
    return [(*lead[at > 0], Part(text, value.role)) for at, text in enumerate(texts)]


_PREFIX = "connections-"


class ConnectionTables(Container):
    """A page of the Connections screen with tables: users can sort and zoom a table, open its menu, and copy its rows.

    The table of a list is the widget `connections-<name>`. Above the table is a bar with its title (`title_bar`).

    Args:
        names: names of the lists, which are the models of the tables.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "copy", "copy", show=False, id="connections.copy"),
        Binding("full_stop", "menu", "menu", show=False, id="connections.menu"),
        Binding("z", "zoom", "zoom", show=False, id="connections.zoom"),
    ]

    def __init__(self, shell: Shell, page: str, names: Iterable[str]) -> None:
        super().__init__(id=f"{_PREFIX}{page}")
        self._shell = shell
        self.lists = {name: ListedRows() for name in names}
        self._offered: object = None

    def on_mount(self) -> None:
        """Connect the tables with their models."""
        for name, model in self.lists.items():
            self.table(name).set_model(model)

    def title_bar(self, name: str, title: str) -> Bar:
        """Return the bar above a table."""
        return Bar(lambda _width: ((Part(title, "title"),), self.bar_end(name)), id=f"{_PREFIX}{name}-bar", rules=True)

    def bar_end(self, name: str) -> Sequence[Part]:
        """Return the right end of the bar above a table: the number of rows."""
        count = self.lists[name].row_count()
        return (Part(f"{count:,}", "muted"),) if count else ()

    def show_rows(self, rows: Mapping[str, Sequence[ListedRow]], columns: Mapping[str, tuple[Column, ...]]) -> None:
        """Show the rows of all tables. `columns` are the new columns of the tables whose columns depend on their rows."""
        for name, fitted in columns.items():
            if self.table(name).columns != fitted:
                self.table(name).set_columns(fitted)
        for name, found in rows.items():
            self.lists[name].show_rows(found)
            self.table(name).refresh_model()
        for bar in self.query(Bar):
            bar.refresh_if_changed()

    def offer_keys(self, possible: object) -> None:
        """Update the keys in the footer if `possible` changed since the previous call; it determines which keys are shown."""
        if possible != self._offered:
            self._offered = possible
            self.refresh_bindings()

    def table(self, name: str) -> Table:
        """Return a table."""
        return self.query_one(f"#{_PREFIX}{name}", Table)

    def current(self, name: str) -> ListedRow | None:
        """Return the row under the cursor of a table."""
        return self.lists[name].row(self.table(name).cursor_key)

    @property
    def focused(self) -> str:
        """Name of the table with the focus, "" = none."""
        return next((name for name in self.lists if self.table(name).has_focus), "")

    def confirm(self, text: str, yes: str, do: Callable[[], None], no: str = "leave it") -> None:
        """Ask the user a question; call `do` if the answer is yes."""
        self._shell.question(sanitize(text), [Choice("y", yes, do), Choice("n", no)])

    def open_menu(self, items: Sequence[tuple[str, str, str, Callable[[], object]]], place: tuple[int, int] | None) -> None:
        """Open a menu of these actions and `copy`; each action is (action, label, key, function).

        Actions that do not apply are disabled.
        """
        choices: list[MenuChoice] = [
            (MenuItem(action, label, key, self.check_action(action, ()) is True), do) for action, label, key, do in items
        ]
        choices.append((MenuItem("copy", "Copy the row", "y"), self.action_copy))
        Menu.run_one(self._shell.app, choices, title="Connections", place=place)

    def action_menu(self, place: tuple[int, int] | None = None) -> None:
        """Open the menu of the row under the cursor."""
        raise NotImplementedError

    def action_copy(self) -> None:
        """Copy the marked rows or the row under the cursor."""
        if self.focused and self.current(self.focused) is not None:
            self._shell.copy_text(self.table(self.focused).join_selected_rows())

    @on(Rows.ContextMenu)
    def _open_menu(self, event: Rows.ContextMenu) -> None:
        event.stop()
        event.rows.focus()
        self.call_later(self.action_menu, (event.x, event.y))

    @on(Table.HeaderClicked)
    def _sort(self, event: Table.HeaderClicked) -> None:
        """Sort by the column; a second click reverses the order."""
        event.stop()
        table = cast(Table, event.rows)
        table.sort = (event.column_id, table.sort == (event.column_id, False))
        self.lists[(table.id or "").removeprefix(_PREFIX)].sort_by(table.sort)
        table.refresh_model()


CLIENTS = (
    Column("number", "#", 4, align="right"),
    Column("kind", "Kind", 8),
    Column("name", "Name", 0, 10),
    Column("pid", "Pid", 8, align="right", drop_rank=1),
    Column("since", "Since", 8),
    Column("unread", "Unread", 9, align="right", drop_rank=2),
)
WORKERS = (
    Column("number", "#", 4, align="right"),
    Column("state", "State", 12),
    Column("job", "Working on", 0, 16),
    Column("age", "Since", 7, align="right"),
    Column("memory", "Memory", 8, align="right"),
    Column("runs", "Runs", 8, align="right", drop_rank=2),
    Column("pid", "Pid", 8, align="right", drop_rank=1),
)
ROOTS = (
    Column("mode", "Watched", 12),
    Column("order", "Order", 6, align="right", drop_rank=2),
    Column("name", "Scan folder", 0, 15, weight=2),
    Column("path", "Folder", 0, 16, weight=3),
    Column("watches", "Watches", 9, align="right", drop_rank=1),
    Column("detail", "Detail", 0, 10, weight=3),
)
_MUCH_BYTES = 64 << 10
"""Maximum number of unsent bytes of a client in normal operation. A client with more unsent bytes is shown as not reading."""
_STATES = {
    "working": "processing", "idle": "completed", "starting": "pending", "ending": "cancelled", "lost": "failed",
    "unfit": "warning",
}  # fmt: skip
_MODES = {
    WatchMode.NATIVE: "completed", WatchMode.POLLING: "warning", WatchMode.LIMITED: "warning", WatchMode.GONE: "failed",
    WatchMode.STARTING: "pending",
}  # fmt: skip


class EngineStatus(Struct, frozen=True):
    """The fields that this screen displays from the engine's answer to `ReadStatus`."""

    pid: int = 0
    uptime_s: float = 0.0
    rss_bytes: int = 0
    state: str = ""
    connections: tuple[Connection, ...] = ()
    workers: tuple[WorkerInfo, ...] = ()


def read_status(answer: dict[str, object]) -> EngineStatus:
    """Return an answer of the engine as a record; an empty record if the answer is invalid."""
    try:
        return msgspec.convert(answer, prepare_form(EngineStatus))
    except msgspec.ValidationError:
        return EngineStatus()


def client_row(each: Connection) -> ListedRow:
    """Return the row of a client; this screen's row is marked."""
    is_here = each.pid == os.getpid() and each.kind == "tui"
    name = f"{each.name} (this screen)".strip() if is_here else each.name
    cells = {
        "number": Cell(f"{each.number}", "muted"),
        "kind": Cell(each.kind, "title"),
        "name": Cell(name, "muted" if is_here else ""),
        "pid": Cell(f"{each.pid}" if each.pid else ""),
        "since": Cell(clock(each.since_ms) if each.since_ms else ""),
        "unread": Cell(size_text(each.waiting_bytes) if each.waiting_bytes > _MUCH_BYTES else "", "warning"),
    }
    return ListedRow(each.number, cells, {"number": each.number, "since": each.since_ms, "unread": each.waiting_bytes}, each)


def worker_row(each: WorkerInfo) -> ListedRow:
    """Return the row of a worker."""
    role = _STATES.get(each.state, "")
    cells = {
        "number": Cell(f"{each.number}", "muted"),
        "state": Cell(f"{glyph(role)} {each.state}" if role else each.state, role),
        "job": Cell(each.job or glyph("none"), "" if each.job else "muted"),
        "age": Cell(brief(each.age_ms) if each.job else ""),
        "memory": Cell(size_text(each.rss_bytes) if each.rss_bytes > 0 else ""),
        "runs": Cell(f"{each.runs:,}"),
        "pid": Cell(f"{each.pid}" if each.pid else "", "muted"),
    }
    return ListedRow(each.number, cells, {"age": each.age_ms, "memory": each.rss_bytes, "runs": each.runs}, each)


def root_rows(health: Health | None, project: Project | None = None, cache_dir: str = "") -> list[ListedRow]:
    """Return a row for each scan folder in order of precedence, then a row for each other watched folder.

    Args:
        project: the project with the scan folders; a folder inside another scan folder is watched together with that folder.
        cache_dir: folder of the products.
    """
    roots = {root.path: root for root in (health.roots if health else ())}
    folders = project.scan_folders if project else ()
    everywhere = {platform.id for platform in project.platforms} if project else set()
    found = [_scan_folder(folder, roots, everywhere) for folder in folders if roots]
    named = {folder.path for folder in folders}
    for path, root in roots.items():
        if path not in named:
            is_cache = path == cache_dir or path.startswith(f"{cache_dir}/") if cache_dir else False
            found.append((root, "", Cell("(products)" if is_cache else "(configuration)" if folders else "", "muted"), root.detail))
    return [_root(at, *each) for at, each in enumerate(found)]


def _scan_folder(
    folder: ScanFolder, roots: Mapping[str, WatchedRoot], everywhere: Collection[str]
) -> tuple[WatchedRoot, str, Cell, str]:
    own = roots.get(folder.path)
    above = [root for path, root in roots.items() if folder.path.startswith(f"{path}/")]
    root = own or max(above, key=lambda root: len(root.path), default=WatchedRoot(folder.path, WatchMode.STARTING))
    alone = f"only for platforms {', '.join(folder.platforms) or 'none'}" if {*folder.platforms} < {*everywhere} else ""
    details = (root.detail, "" if folder.recursive else "without its subfolders", alone)
    shown = WatchedRoot(folder.path, root.mode, root.detail, root.watches if own else 0)
    return shown, f"{folder.order}", Cell(folder.name, "title"), "; ".join(filter(None, details))


def drop_empty_columns(columns: Sequence[Column], found: Sequence[ListedRow]) -> tuple[Column, ...]:
    """Return the columns without the columns that are empty in all rows."""
    return tuple(each for each in columns if not found or any(row.cells[each.id].text for row in found))


def _root(at: int, each: WatchedRoot, order: str, name: Cell, detail: str) -> ListedRow:
    role = _MODES[each.mode]
    cells = {
        "mode": Cell(f"{glyph(role)} {each.mode.value}", role),
        "order": Cell(order, "muted"),
        "name": name,
        "path": Cell(each.path, "path"),
        "watches": Cell(f"{each.watches:,}" if each.watches else "", "muted"),
        "detail": Cell(detail, "muted" if each.mode is WatchMode.NATIVE else ""),
    }
    return ListedRow(at, cells, data=each)


def troubles(health: Health | None) -> list[tuple[str, str]]:
    """Return all problems of the engine as pairs (the component that does not work, or "Held by"; reason)."""
    if health is None:
        return []
    found = [
        ("Workers", health.pool), ("Disk", health.disk), ("Database", health.database), ("Configuration", health.configuration),
        *((f"Builder {name}", why) for name, why in health.broken_builders), *(("Held by", hold) for hold in health.holds),
    ]  # fmt: skip
    return [(what, why) for what, why in found if why]


def source_of(job: str) -> str:
    """Return the source path in a worker's text such as `images: textures/a.png (linux, image)`; "" = the text has no source."""
    name, colon, rest = job.partition(": ")
    return rest.rpartition(" (")[0] if colon and name and rest.endswith(")") else ""


PEERS = (
    Column("state", "Status", 14),
    Column("id", "Id", 0, 7, weight=2),
    Column("address", "Address", 0, 12, weight=2),
    Column("port", "Port", 5, align="right"),
    Column("platforms", "Platforms", 0, 9, drop_rank=2),
    Column("enabled", "On", 4),
    Column("received", "In", 7, align="right"),
    Column("sent", "Out", 7, align="right"),
    Column("last", "Last", 8),
    Column("request", "Request", 0, 16, drop_rank=3),
)
ALLOWED = (Column("entry", "Who", 0, 12, weight=3), Column("note", "", 6, drop_rank=1))
REJECTED = (Column("entry", "Who", 0, 12, weight=2), Column("note", "Why", 0, 10, weight=3, is_prose=True))
_PEER_ROLES = {PeerState.CONNECTED: "completed", PeerState.CONNECTING: "pending", PeerState.DISCONNECTED: "cancelled"}


class RowKeys(dict[str, int]):
    """{name in a table: number that identifies the row}; reading a new name gives it the next number."""

    def __missing__(self, name: str) -> int:
        self[name] = len(self) + 1
        return self[name]


def peers_of(report: GatewayReport | None, settings: PeerSettings) -> tuple[Peer, ...]:
    """Return the gateway's connections. Without a gateway, return the configured ones as disconnected."""
    if report is not None:
        return report.peers
    return tuple(
        Peer(0, each.id, True, PeerState.DISCONNECTED, each.address, each.port, is_enabled=each.is_auto)
        for each in settings.connections
    )


def peer_row(each: Peer, keys: RowKeys) -> ListedRow:
    """Return the row of a connection."""
    role = "warning" if each.trouble and each.state is not PeerState.CONNECTED else _PEER_ROLES[each.state]
    none = Cell(glyph("none"), "muted")
    is_here = each.number > 0
    cells = {
        "state": Cell(f"{glyph(role)} {each.state}", role),
        "id": Cell(each.id, "title"),
        "address": Cell(each.address),
        "port": Cell(f"{each.port}" if each.port else "", "muted"),
        "platforms": Cell(", ".join(each.platforms) or ("all" if is_here else ""), "muted"),
        "enabled": Cell("[x]" if each.is_enabled else "[ ]") if each.is_dialled else Cell("auto", "muted"),
        "received": Cell(size_text(each.received_bytes)) if is_here else none,
        "sent": Cell(size_text(each.sent_bytes)) if is_here else none,
        "last": Cell(clock(each.last_ms)) if each.last_ms else none,
        "request": Cell(each.last_request, "muted"),
    }
    order = {"port": each.port, "received": each.received_bytes, "sent": each.sent_bytes, "last": each.last_ms}
    return ListedRow(keys[f"dial {each.id}" if each.is_dialled else f"session {each.number}"], cells, order, each)


def peer_facts(each: Peer | None) -> list[tuple[str, str, str]]:
    """Return the facts about a connection that the connection's row does not show."""
    if each is None:
        return []
    if not each.number:
        trouble = each.trouble or ("" if each.is_enabled else "disabled: aptui does not connect to this device")
        return [("", each.id, "title"), ("", trouble, "warning" if each.trouble else "muted")]
    return [
        ("", f"{each.id} at {each.address}", "title"),
        ("platforms", ", ".join(each.platforms) or "all platforms", ""),
        ("may", ", ".join(each.scopes), ""),
        ("token", "" if each.is_dialled else each.identity, ""),
        ("since", clock(each.since_ms) if each.since_ms else "", ""),
        ("In and Out", "messages, without downloads", "muted"),
    ]


def list_allowed_rows(settings: PeerSettings, keys: RowKeys) -> list[ListedRow]:
    """Return a row for each entry of the allowed list, after a row for this machine."""
    here = ListedRow(keys[""], {"entry": Cell("this machine", "muted"), "note": Cell("always", "muted")})
    return [here, *(ListedRow(keys[entry], {"entry": Cell(entry)}, data=entry) for entry in settings.allowed)]


def list_rejected_rows(settings: PeerSettings, turned_away: Sequence[TurnedAway], keys: RowKeys) -> list[ListedRow]:
    """Return a row for each entry of the rejected list. Add a row for each refused address that is not in this list."""
    came = {each.address: each for each in turned_away}
    rows = []
    for entry in settings.rejected:
        note = f"refused {_times(came[entry])}" if entry in came else "rejected by you"
        rows.append(ListedRow(keys[entry], {"entry": Cell(entry), "note": Cell(note, "muted")}, data=entry))
    for address, each in came.items():
        if address not in settings.rejected:
            note = f"{each.why.removeprefix(f'{address} is ')}: {_times(each)}"
            rows.append(ListedRow(keys[address], {"entry": Cell(address, "warning"), "note": Cell(note)}, data=address))
    return rows


def _times(each: TurnedAway) -> str:
    return clock(each.last_ms) if each.count == 1 else f"{each.count:,} times, last {clock(each.last_ms)}"
