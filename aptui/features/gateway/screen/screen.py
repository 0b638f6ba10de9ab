"""The Connections screen: the engine's page and the gateway's page (`gateway_page`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from aptui.features.gateway.screen import connection_rows
from aptui.features.gateway.screen.connection_rows import ConnectionTables, Fact
from aptui.features.gateway.screen.gateway_page import GatewayPage
from aptui.link.port import Answer, Disconnect, ReadStatus, RestartWorker
from aptui.shared.health import Connection, WorkerInfo
from aptui.shared.printing import sanitize
from aptui.tui.background import call_after
from aptui.tui.data.session import SessionState
from aptui.tui.frame.commandline import Command
from aptui.tui.frame.line import Bar, Part, TabLine
from aptui.tui.pane import Pane, Shell
from aptui.tui.screens.jobs.job_texts import term
from aptui.tui.widgets.listing import ListedRow
from aptui.tui.widgets.row_list import Rows
from aptui.tui.widgets.table import SideTable
from aptui.tui.words import brief, shorten, size_text

if TYPE_CHECKING:
    from aptui.core.notices import Progress
    from aptui.tui.data.feed import Batch


ASK_S = 1.0
"""Minimum interval between two queries to the engine, in seconds."""
_BUSY_STATES = frozenset({"working", "starting", "ending", "lost"})


class EngineInquiry:
    """The latest state of the engine, of its clients and of its workers, and the queries that fetch this state.

    Notices report connected clients, but not the ages of jobs and the memory of workers. While the screen is visible and a worker
    runs, the engine is queried once per second; the engine is also queried after notices of ended work. An idle engine is not
    queried.

    Args:
        later: calls a function after a number of seconds in the app's thread.
    """

    def __init__(self, shell: Shell, later: Callable[[float, Callable[[], None]], object]) -> None:
        self._shell, self._later = shell, later
        self.status = connection_rows.EngineStatus()
        self.connections: tuple[Connection, ...] = shell.session.connections
        self._progress: Progress | None = shell.session.latest_progress
        self._is_visible = self._shall_ask = False
        self.is_armed = False
        """Whether a timer for the next query runs."""
        self._asked_s = -ASK_S
        self._is_asking = False

    def show(self, *, is_visible: bool) -> None:
        """Handle that the screen is shown or hidden: query the engine while the screen is visible, otherwise stop querying."""
        self._is_visible = is_visible
        self._shall_ask = self._shall_ask or is_visible

    def renew(self) -> None:
        """Query the engine in the next frame of the screen, because something changed; any thread may call."""
        self._shall_ask = True
        self._shell.wake()

    def force(self) -> None:
        """Query the engine in the next frame, even if the minimum interval has not passed."""
        self._shall_ask, self._asked_s = True, -ASK_S

    def note(self, batch: Batch) -> None:
        """Store the connected clients and the progress from a batch of notices."""
        if batch.connections is not None:
            self.connections = batch.connections
        if batch.progress is not None:
            self._progress = batch.progress
        if batch.connections is not None or batch.progress is not None or batch.health is not None or batch.messages:
            self._shall_ask = True

    @property
    def is_working(self) -> bool:
        """Whether jobs run. While jobs run, their ages and the workers' memory change without notices."""
        counts = self._progress
        runs = counts is not None and counts.is_scanning + counts.analyses_running + counts.jobs_running > 0
        return runs or any(worker.state in _BUSY_STATES for worker in self.status.workers)

    def ask_if_due(self) -> None:
        """Query the engine if something changed: now, or when the minimum interval has passed."""
        if not self._shall_ask:
            return
        if self._shell.session.state is not SessionState.ATTACHED:
            self.status, self.connections, self._shall_ask = connection_rows.EngineStatus(), (), False
            return
        if self._shell.session.is_read_only:
            self._shall_ask = False
            return
        wait_s = self._asked_s + ASK_S - time.monotonic()
        if wait_s > 0 or self._is_asking:
            self._arm(max(wait_s, 0.1))
            return
        self._shall_ask, self._asked_s, self._is_asking = False, time.monotonic(), True
        self._shell.session.ask(ReadStatus(lists_connections=True)).add_done_callback(self._pass_answer)

    def _arm(self, wait_s: float) -> None:
        if not self.is_armed:
            self.is_armed = True
            self._later(wait_s, self._due)

    def _due(self) -> None:
        self.is_armed = False
        if self._is_visible and (self._shall_ask or self.is_working):
            self.renew()

    def _pass_answer(self, answer: Future[Answer]) -> None:
        """Pass an answer to the app's thread. Ignore an error, because no user requested this query."""
        self._shell.in_ui(self._settle, None if answer.exception() else answer.result())

    def _settle(self, answer: Answer | None) -> None:
        self._is_asking = False
        if answer is not None:
            self.status = connection_rows.read_status(answer)
            self.connections = self.status.connections
        if self._is_visible:
            if self.is_working:
                self._arm(ASK_S)
            self._shell.wake()


_LEAST_ROWS = 2
"""Minimum height of a table in lines, with its header."""
_PARTS = {
    "clients": ("Clients", connection_rows.CLIENTS),
    "workers": ("Workers", connection_rows.WORKERS),
    "roots": ("Scan folders and other watched folders", connection_rows.ROOTS),
}


class EnginePage(ConnectionTables):
    """The engine's page: the engine, its clients, its workers and the watched folders. `ConnectionsPane` calls `draw`."""

    DEFAULT_CSS = """
    EnginePage { width: 1fr; height: 1fr; layout: vertical; }
    EnginePage Table { height: 3; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "disconnect", "disconnect", id="connections.disconnect"),
        Binding("r", "restart", "restart worker", id="connections.restart"),
    ]

    def __init__(self, shell: Shell) -> None:
        super().__init__(shell, "engine", _PARTS)
        self.inquiry = EngineInquiry(shell, partial(call_after, self))
        self.is_zoomed = False
        """Whether only one table is shown."""

    # --------------------------------------------------------------------------------------------------------------- widgets

    def compose(self) -> ComposeResult:
        """Yield the widgets."""
        for _ in range(4):
            yield Fact()
        for name, (title, columns) in _PARTS.items():
            yield self.title_bar(name, title)
            yield SideTable(columns, id=f"connections-{name}")

    def on_mount(self) -> None:
        """Subscribe to the state of the engine's connection."""
        self._shell.session.on_state.append(self.inquiry.renew)

    def on_unmount(self) -> None:
        """Unsubscribe from the state of the engine's connection."""
        self._shell.session.on_state.remove(self.inquiry.renew)

    def on_resize(self) -> None:
        """Adapt the heights."""
        self._share_height()

    # ---------------------------------------------------------------------------------------------------------------- drawing

    def draw(self) -> None:
        """Draw the latest state of the engine, its clients, its workers and the watched folders."""
        session, config = self._shell.session, self._shell.config
        for fact, facts in zip(self.query(Fact), self._facts(), strict=True):
            fact.show(facts)
        watched = session.latest_health if session.state is SessionState.ATTACHED else None
        rows = {
            "clients": [connection_rows.client_row(each) for each in self.inquiry.connections],
            "workers": [connection_rows.worker_row(each) for each in self.inquiry.status.workers],
            "roots": connection_rows.root_rows(watched, config.project if config else None, str(session.cache_dir)),
        }
        for name in rows:
            self.table(name).empty_text = self._empty_text(name)
        tables = {"clients": connection_rows.CLIENTS, "roots": connection_rows.ROOTS}
        self.show_rows(rows, {name: connection_rows.drop_empty_columns(every, rows[name]) for name, every in tables.items()})
        self._share_height()
        self.offer_keys([len(each) for each in rows.values()])

    def _facts(self) -> list[list[tuple[str, str, str]]]:
        session, status, config = self._shell.session, self.inquiry.status, self._shell.config
        engine, is_attached = session.engine, session.state is SessionState.ATTACHED
        cache = ("Cache  ", str(session.cache_dir), "path")
        project = ("Project", f"{config.project_dir}" if config else "", "path")
        if not is_attached:
            absent = "no engine: the screen shows a database only" if session.state is SessionState.NONE else "no engine"
            why = session.trouble if session.trouble and session.state is not SessionState.NONE else ""
            hint = "type ':start' to start an engine" if self._shell.can_ask else ""
            return [[("", absent, "warning"), ("", why, ""), ("", hint, "muted")], [project], [cache], []]
        trouble = [(what, why, "warning") for what, why in connection_rows.troubles(session.latest_health)]
        return [
            [
                ("Engine ", f"pid {engine.pid}", ""),
                ("", status.state, {"idle": "completed", "working": "processing"}.get(status.state, "warning")),
                ("", f"aptui {engine.version}", ""),
                ("", f"up {brief(int(status.uptime_s * 1000))}" if status.pid else "", ""),
                ("", size_text(status.rss_bytes) if status.rss_bytes else "", ""),
            ],
            [project],
            [cache, ("Socket", engine.socket, "path")],
            trouble,
        ]

    def _empty_text(self, name: str) -> str:
        if name == "workers" and self._shell.session.is_read_only:
            return "unknown, because a read-only screen does not query the engine"
        progress = self._shell.session.latest_progress
        if name == "workers" and progress is not None and progress.jobs_running:
            return "the engine has not answered yet"
        return {"workers": "none; workers start with the first job", "roots": "no folder is watched"}.get(name, "no clients")

    def _share_height(self) -> None:
        """Set the height of each table. If the tables do not fit, the largest tables shrink.

        After the key `z`, only the focused table is shown.
        """
        tables = [self.table(name) for name in self.lists]
        is_attached = self._shell.session.state is SessionState.ATTACHED
        focused = next((table for table in tables if table.has_focus), tables[0])
        for table, bar in zip(tables, self.query(Bar), strict=True):
            table.display = bar.display = is_attached and (not self.is_zoomed or table is focused)
        shown = [table for table in tables if table.display]
        free_height = self.size.height - sum(1 for fact in self.query(Fact) if fact.display) - len(shown)
        if free_height <= 0 or not shown:
            return
        heights = [max(1, table.count_rows()) + 1 for table in shown]
        while sum(heights) > free_height and max(heights) > _LEAST_ROWS:
            heights[heights.index(max(heights))] -= 1
        heights[-1] += max(0, free_height - sum(heights))
        for table, height in zip(shown, heights, strict=True):
            if table.styles.height is None or table.styles.height.value != height:
                table.styles.height = height

    def action_zoom(self) -> None:
        """Show one table only, or all tables."""
        self.is_zoomed = not self.is_zoomed
        self._share_height()
        self._shell.wake()

    def on_descendant_focus(self) -> None:
        """After the focus has moved: update the keys in the footer. If only one table is shown, show the focused table."""
        if self.is_zoomed:
            self._share_height()
        self.refresh_bindings()

    # ------------------------------------------------------------------------------------------------------ clients and workers

    def commands(self) -> Sequence[Command]:
        """Return the commands of this page."""
        return tuple(
            Command(name, words, partial(self._run_command, do, which), partial(self._numbers, which), needs_engine=True)
            for name, words, do, which in (
                ("disconnect", "disconnect a client by its number", self._disconnect, "clients"),
                ("restart-worker", "restart a worker by its number", self._restart, "workers"),
            )
        )

    def _numbers(self, name: str) -> list[str]:
        return [f"{row.key}" for row in self.lists[name].records]

    def _run_command(self, do: Callable[[ListedRow], None], name: str, rest: str) -> None:
        row = self.lists[name].row(int(rest)) if rest.isdecimal() else self.current(name)
        if row is None:
            self._shell.show_toast(f"there is no {name.removesuffix('s')} {rest}".rstrip(), "warning")
        else:
            do(row)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether a key applies to the focused table; `disconnect` and `restart` also need a connected engine."""
        if action in {"disconnect", "restart"}:
            name = "clients" if action == "disconnect" else "workers"
            return self._shell.can_ask and self.is_mounted and self.focused == name and self.lists[name].row_count() > 0
        if action == "job":
            return self.focused == "workers" and bool(self._source())
        return super().check_action(action, parameters)

    def action_disconnect(self) -> None:
        """Disconnect the client under the cursor after confirmation."""
        self._run_command(self._disconnect, "clients", "")

    def action_restart(self) -> None:
        """Restart the worker under the cursor."""
        self._run_command(self._restart, "workers", "")

    def _disconnect(self, row: ListedRow) -> None:
        client: Connection = row.data
        who = row.cells["name"].text or f"pid {client.pid}"
        drop = partial(self._order, Disconnect(client.number), f"client {client.number} is disconnected")
        self.confirm(f"disconnect {client.kind} {client.number}, {who}?", "disconnect", drop)

    def _restart(self, row: ListedRow) -> None:
        """Restart a worker. If the worker runs a job, ask first, because the job may have to run again."""
        worker: WorkerInfo = row.data
        name, order = f"worker {worker.number}", RestartWorker(worker.number)
        if not worker.job:
            self._order(order, f"{name} restarts")
            return
        job = shorten(sanitize(worker.job), 60)
        if worker.state == "ending":
            text = f"{name} ends when {job} has ended: end the worker now? Then the job runs again"
            yes, done = "end it now", f"{name} is ended; its job runs again"
        else:
            text = f"{name} runs {job}: restart the worker when the job has ended?"
            yes, done = "restart the worker", f"{name} restarts when its job has ended"
        self.confirm(text, yes, partial(self._order, order, done), "do not restart")

    def _order(self, verb: Disconnect | RestartWorker, done: str) -> None:
        self._shell.ask(verb, done, lambda _answer: self.inquiry.renew())

    @on(Rows.Opened, "#connections-workers")
    def _open(self, event: Rows.Opened) -> None:
        event.stop()
        self.go_to_job()

    def go_to_job(self) -> None:
        """Show the current job of the worker under the cursor on the Jobs screen."""
        if source := self._source():
            self._shell.reveal("jobs", term("source", source))

    def _source(self) -> str:
        """Return the source of the job of the worker under the cursor, "" = the worker is idle."""
        row = self.current("workers")
        return connection_rows.source_of(row.data.job) if row else ""

    def action_menu(self, place: tuple[int, int] | None = None) -> None:
        """Open the menu of this page."""
        items = (
            ("disconnect", "Disconnect…", "c", self.action_disconnect),
            ("restart", "Restart the worker", "r", self.action_restart),
            ("job", "Show in Jobs", "enter", self.go_to_job),
        )
        self.open_menu(items, place)


_PAGES = ("Gateway", "Engine")
_GATEWAY, _ENGINE = 0, 1
_BOTH_LINES = 48
"""Minimum height of the screen for both pages, one below the other (lines)."""
_NO_GATEWAY_LINES = 14
"""Height of the gateway's page below the engine's page if no gateway is running (lines)."""


class ConnectionsPane(Pane):
    """The Connections screen: shows one of the two pages, or both on a high screen, and passes events to both pages."""

    DEFAULT_CSS = """
    ConnectionsPane { layout: vertical; }
    ConnectionsPane.-both GatewayPage, ConnectionsPane.-both EnginePage { margin: 0 0 1 0; }
    """
    command_names = ("allow", "reject", "forget", "connect", "allow-list", "disconnect", "restart-worker")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t,greater_than_sign,less_than_sign", "page", "other page", id="connections.page"),
    ]
    _page = _ENGINE

    def compose(self) -> ComposeResult:
        """Yield the widgets."""
        yield TabLine(lambda: (_PAGES, self._page), self._words, self.show_page, id="connections-pages")
        yield EnginePage(self.shell)
        yield GatewayPage(self.shell)

    def _words(self) -> Sequence[Part]:
        return (Part(self.gateway.count_text() if self.gateway.orders.report else "no gateway", "muted"),)

    @property
    def gateway(self) -> GatewayPage:
        """The gateway's page."""
        return self.query_one(GatewayPage)

    @property
    def engine(self) -> EnginePage:
        """The engine's page."""
        return self.query_one(EnginePage)

    # ---------------------------------------------------------------------------------------------------------- the two pages

    def show_page(self, page: int) -> None:
        """Show a page and move the focus to it."""
        self._show_page(page)
        self.shell.memory.put("connections.page", page)
        self._put()
        (self.gateway.table("peers") if page == _GATEWAY else self.engine.table("clients")).focus()

    def _show_page(self, page: int) -> None:
        self._page = page
        self._show_parts()

    @property
    def _shows_both(self) -> bool:
        """Whether the gateway's and the engine's page are shown: the screen is high enough, and neither page is zoomed."""
        return self.size.height >= _BOTH_LINES and not (self.gateway.is_zoomed or self.engine.is_zoomed)

    def _show_parts(self) -> None:
        """Show the current page, or both."""
        both, gateway = self._shows_both, self.gateway
        for number, part in ((_GATEWAY, gateway), (_ENGINE, self.engine)):
            is_shown = both or number == self._page
            if part.display != is_shown:
                part.display = part.visible = is_shown  # the page must be visible before it can get the focus
        self.set_class(both, "-both")
        height = _NO_GATEWAY_LINES if both and gateway.orders.report is None else "1fr"
        if gateway.styles.height is None or str(gateway.styles.height) != str(height):
            gateway.styles.height = height

    def on_resize(self) -> None:
        """Show both pages if there is room."""
        self._put()

    def on_descendant_focus(self) -> None:
        """Mark the page that has the focus as the current page."""
        page = _GATEWAY if self.gateway.has_focus_within else _ENGINE
        if self._shows_both and page != self._page:
            self._page = page
            self.query_one(TabLine).refresh_if_changed()

    def action_page(self) -> None:
        """Switch between the gateway's page and the engine's page."""
        self.show_page(1 - self._page)

    def _first_page(self) -> int:
        """Return the page to show first: the page that was shown last, else the gateway's page if a gateway runs or is enabled."""
        config = self.shell.config
        has_gateway = self.gateway.orders.report is not None or (config is not None and config.serve.is_enabled)
        page = self.shell.memory.get("connections.page", _GATEWAY if has_gateway else _ENGINE)
        return page if page in (_GATEWAY, _ENGINE) else _ENGINE

    def _put(self) -> None:
        self.query_one(TabLine).refresh_if_changed()
        self._show_parts()
        for number, page in ((_GATEWAY, self.gateway), (_ENGINE, self.engine)):
            if number == self._page or self._shows_both:
                page.draw()

    # ---------------------------------------------------------------------------------------------------- events from the app

    def on_mount(self) -> None:
        """Show the first page, and read the stored settings."""
        self._show_page(self._first_page())
        self.gateway.orders.read()
        self._put()

    def activate(self) -> None:
        """Query the engine regularly, and read the stored settings."""
        self.engine.inquiry.show(is_visible=True)
        self.gateway.orders.read()

    def deactivate(self) -> None:
        """Stop querying the engine."""
        self.engine.inquiry.show(is_visible=False)

    def on_news(self, batch: Batch) -> None:
        """Store the connected clients and the progress from a batch of notices."""
        self.engine.inquiry.note(batch)
        if batch.messages:  # the message may say why a gateway could not start
            self.gateway.orders.read()

    def on_frame(self) -> None:
        """Draw both pages again, and query the engine if something changed."""
        self.engine.inquiry.ask_if_due()
        self._put()

    def reload(self) -> None:
        """Query the engine now, and read the stored settings again."""
        self.engine.inquiry.force()
        self.gateway.orders.read()

    def status(self) -> str:
        """Return the numbers of connections and workers as text."""
        gateway = f"gateway: {self.gateway.count_text()}; " if self.gateway.orders.report else ""
        inquiry = self.engine.inquiry
        return f"{gateway}{len(inquiry.connections)} clients, {len(inquiry.status.workers)} workers"

    def commands(self) -> Sequence[Command]:
        """Return the commands of the gateway's page and of the engine's page."""
        return (*self.gateway.commands(), *self.engine.commands())
