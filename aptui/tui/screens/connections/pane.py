"""The Connections screen: the gateway's connections (`connections.gateway`), and the engine's: clients, workers, watched roots.

Who is connected comes as news. Ages and memory do not: they are asked for while the screen is visible and a worker works, once a
second, and after news of work that ended. An idle engine is asked nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical

from aptui.link.port import Connections, Disconnect, RestartWorker, Status
from aptui.shared.health import Connection, WorkerInfo
from aptui.shared.sanitize import sanitize
from aptui.tui.data.session import SessionState
from aptui.tui.frame.commandline import Choice, Command
from aptui.tui.frame.line import Part
from aptui.tui.pane import Pane
from aptui.tui.screens.common.bar import Bar
from aptui.tui.screens.common.listed import ListedRow, ListedRows
from aptui.tui.screens.common.navigation import to_jobs
from aptui.tui.screens.common.tab_line import TabLine
from aptui.tui.screens.connections import rows
from aptui.tui.screens.connections.facts import Fact
from aptui.tui.screens.connections.gateway import GatewayPage
from aptui.tui.screens.connections.tables import ConnectionTables
from aptui.tui.screens.jobs.texts import term
from aptui.tui.widgets.menu import Menu, MenuItem
from aptui.tui.widgets.rows.rows import Rows
from aptui.tui.widgets.table import SideTable
from aptui.tui.words import brief, shorten, size_text

if TYPE_CHECKING:
    from aptui.core.notices import Progress
    from aptui.link.port import Answer
    from aptui.tui.data.feed import Batch

ASK_S = 1.0
"""The engine is asked no more often."""
_LEAST_ROWS = 2
_PAGES = ("Gateway", "Engine")
_GATEWAY, _ENGINE = 0, 1
_PARTS = (("clients", "Clients", rows.CLIENTS), ("workers", "Workers", rows.WORKERS), ("roots", "Watched roots", rows.ROOTS))


class ConnectionsPane(ConnectionTables, Pane):
    """The screen; its own tables are `clients`, `workers` and `roots`, those of the gateway are in it too."""

    DEFAULT_CSS = """
    ConnectionsPane { layout: vertical; }
    #connections-engine { width: 1fr; height: 1fr; }
    #connections-engine Table { height: 3; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "disconnect", "disconnect", id="connections.disconnect"),
        Binding("r", "restart", "restart worker", id="connections.restart"),
        Binding("t,greater_than_sign,less_than_sign", "page", "other page", id="connections.page"),
        Binding("y", "copy", "copy", show=False, id="connections.copy"),
        Binding("full_stop", "menu", "menu", show=False, id="connections.menu"),
        Binding("z", "zoom", "zoom", show=False, id="connections.zoom"),
    ]

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.lists = {name: ListedRows() for name, _, _ in _PARTS}
        self._status = rows.EngineStatus()
        self._workers: tuple[WorkerInfo, ...] = ()
        self._connections: tuple[Connection, ...] = ()
        self._progress: Progress | None = None
        self._is_visible = self._shall_ask = self._is_armed = self._is_zoomed = False
        self._asked_s = -ASK_S
        self._answers_pending = 0
        self._counts: list[int] = []
        self._page = _ENGINE

    # ------------------------------------------------------------------------------------------------------------- the parts

    def compose(self) -> ComposeResult:
        """Make the parts."""
        yield TabLine(lambda: (_PAGES, self._page), self._words, self.show_page, id="connections-pages")
        yield GatewayPage(self.shell)
        with Vertical(id="connections-engine"):
            for _ in range(4):
                yield Fact()
            for name, title, columns in _PARTS:
                yield Bar(partial(self._ends, name, title), id=f"connections-{name}-bar", rules=True)
                yield SideTable(columns, id=f"connections-{name}")

    def _ends(self, name: str, title: str, _width: int) -> tuple[Sequence[Part], Sequence[Part]]:
        count = self.lists[name].row_count()
        return (Part(title, "title"),), ((Part(f"{count:,}", "muted"),) if count else ())

    def _words(self) -> Sequence[Part]:
        return (Part(self.gateway.count_text() if self.gateway.orders.report else "no gateway", "muted"),)

    @property
    def gateway(self) -> GatewayPage:
        """The gateway's page."""
        return self.query_one(GatewayPage)

    @property
    def _engine(self) -> Vertical:
        return self.query_one("#connections-engine", Vertical)

    def show_page(self, page: int) -> None:
        """Show the gateway's page, or the engine's, and let the keys go there."""
        self._turn_to(page)
        self.shell.memory.put("connections.page", page)
        self._put()
        self.table("peers" if page == _GATEWAY else "clients").focus()

    def _turn_to(self, page: int) -> None:
        self._page = page
        for number, part in ((_GATEWAY, self.gateway), (_ENGINE, self._engine)):
            part.display = part.visible = number == page  # what is not visible gets no focus either

    def action_page(self) -> None:
        """Show the other page."""
        self.show_page(1 - self._page)

    def _first_page(self) -> int:
        """Return the page that was shown last; else the gateway's where there is one, or shall be."""
        config = self.shell.config
        has_gateway = self.gateway.orders.report is not None or (config is not None and config.serve.is_enabled)
        page = self.shell.memory.get("connections.page", _GATEWAY if has_gateway else _ENGINE)
        return page if page in (_GATEWAY, _ENGINE) else _ENGINE

    def on_mount(self) -> None:
        """Show what is known already."""
        session = self.shell.session
        for name, _, _ in _PARTS:
            self.table(name).set_model(self.lists[name])
        self._connections, self._progress = session.connections, session.latest_progress
        session.on_state.append(self._follow_engine)
        self._turn_to(self._first_page())
        self.gateway.orders.read()
        self._put()

    def on_unmount(self) -> None:
        """Hear no more."""
        if self._follow_engine in self.shell.session.on_state:
            self.shell.session.on_state.remove(self._follow_engine)

    def on_resize(self) -> None:
        """Share the height anew."""
        self._share_height()

    # -------------------------------------------------------------------------------------------------------------- the hooks

    def activate(self) -> None:
        """Ask how things are."""
        self._is_visible = self._shall_ask = True
        self.gateway.orders.read()

    def deactivate(self) -> None:
        """Ask nothing any more."""
        self._is_visible = False

    def on_news(self, batch: Batch) -> None:
        """Note who came and went, and that work went on."""
        if batch.connections is not None:
            self._connections = batch.connections
        if batch.progress is not None:
            self._progress = batch.progress
        if batch.connections is not None or batch.progress is not None or batch.health is not None or batch.said:
            self._shall_ask = True
        if batch.said:  # that no gateway could be started, perhaps
            self.gateway.orders.read()

    def on_frame(self) -> None:
        """Draw what is known, and ask for more where something happened."""
        if self._shall_ask:
            self._ask()
        self._put()

    def reload(self) -> None:
        """Ask again."""
        self._shall_ask, self._asked_s = True, -ASK_S
        self.gateway.orders.read()

    def status(self) -> str:
        """Say how many there are."""
        gateway = f"gateway: {self.gateway.count_text()}; " if self.gateway.orders.report else ""
        return f"{gateway}{len(self._connections)} clients, {len(self._workers)} workers"

    def commands(self) -> Sequence[Command]:
        """Return what can be said here."""
        return (
            *self.gateway.commands(),
            Command(
                "disconnect", "drop a client, by its number", self._say_disconnect, lambda: self._numbers("clients"),
                needs_engine=True,
            ),
            Command(
                "restart-worker", "restart a worker, by its number", self._say_restart, lambda: self._numbers("workers"),
                needs_engine=True
            ),
        )  # fmt: skip

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer what makes sense: for the table that has the focus, and where there is an engine to ask."""
        if action in {"disconnect", "restart"}:
            name = "clients" if action == "disconnect" else "workers"
            return self.shell.can_ask and self.table(name).has_focus and self.lists[name].row_count() > 0
        return super().check_action(action, parameters)

    # ----------------------------------------------------------------------------------------------------------------- asking

    def _follow_engine(self) -> None:
        """The engine came or went; called in any thread."""
        self._shall_ask = True
        self.shell.wake()

    @property
    def _is_working(self) -> bool:
        counts = self._progress
        runs = counts is not None and counts.is_scanning + counts.analyses_running + counts.jobs_running > 0
        return runs or any(worker.state in {"working", "starting", "ending", "lost"} for worker in self._workers)

    def _ask(self) -> None:
        """Ask now, or when a second has passed since it was asked last."""
        if self.shell.session.state is not SessionState.ATTACHED:
            self._status, self._workers, self._connections, self._shall_ask = rows.EngineStatus(), (), (), False
            return
        if self.shell.session.is_read_only:
            self._shall_ask = False
            return
        wait_s = self._asked_s + ASK_S - time.monotonic()
        if wait_s > 0 or self._answers_pending:
            self._arm(max(wait_s, 0.1))
            return
        self._shall_ask, self._asked_s = False, time.monotonic()
        for verb, take in ((Status(), self._take_status), (Connections(), self._take_answer)):
            self._answers_pending += 1
            self.shell.session.ask(verb).add_done_callback(partial(self._answered, take))

    def _arm(self, wait_s: float) -> None:
        if not self._is_armed:
            self._is_armed = True
            self.set_timer(wait_s, self._due)

    def _due(self) -> None:
        self._is_armed = False
        if self._is_visible and (self._shall_ask or self._is_working):
            self._shall_ask = True
            self.shell.wake()

    def _answered(self, take: Callable[[Answer], None], answer: Future[Answer]) -> None:
        """Hand an answer to the app's thread; what is refused is not worth a word, for nobody asked for it."""
        self.shell.in_ui(self._settle, take, None if answer.exception() else answer.result())

    def _settle(self, take: Callable[[Answer], None], answer: Answer | None) -> None:
        self._answers_pending -= 1
        if answer is not None:
            take(answer)
        if self._is_visible:
            if self._is_working:
                self._arm(ASK_S)
            self.shell.wake()

    def _take_status(self, answer: Answer) -> None:
        self._status = rows.read_status(answer)

    def _take_answer(self, answer: Answer) -> None:
        found = rows.read_answer(answer)
        self._workers, self._connections = found.workers, found.connections

    # ---------------------------------------------------------------------------------------------------------------- drawing

    def _put(self) -> None:
        session = self.shell.session
        self.query_one(TabLine).changed()
        if self._page == _GATEWAY:
            self.gateway.put()
            return
        for fact, facts in zip(self._engine.query(Fact), self._facts(), strict=True):
            fact.show(facts)
        self.lists["clients"].put(rows.client_rows(self._connections))
        self.lists["workers"].put(rows.worker_rows(self._workers))
        self.lists["roots"].put(rows.root_rows(session.latest_health if session.state is SessionState.ATTACHED else None))
        self._leave_out_nothing()
        for name, _, _ in _PARTS:
            table = self.table(name)
            table.empty_text = self._nothing(name)
            table.refresh_model()
        for bar in self._engine.query(Bar):
            bar.changed()
        self._share_height()
        counts = [self.lists[name].row_count() for name, _, _ in _PARTS]
        if counts != self._counts:
            self._counts = counts
            self.refresh_bindings()

    def _leave_out_nothing(self) -> None:
        """Show what is known of watched roots beyond their mode where anything is."""
        columns = rows.root_columns(self.shell.session.latest_health)
        if columns != self.table("roots").columns:
            self.table("roots").set_columns(columns)

    def _facts(self) -> list[list[tuple[str, str, str]]]:
        session, status = self.shell.session, self._status
        engine, is_attached = session.engine, session.state is SessionState.ATTACHED
        cache = ("Cache  ", str(session.cache_dir), "path")
        config = self.shell.config
        project = ("Project", f"{config.project_dir}" if config else "", "path")
        if not is_attached:
            absent = "no engine: this is a database without one" if session.state is SessionState.NONE else "no engine"
            why = session.trouble if session.trouble and session.state is not SessionState.NONE else ""
            hint = "':start' starts one" if self.shell.can_ask else ""
            return [[("", absent, "warning"), ("", why, ""), ("", hint, "muted")], [project], [cache], []]
        trouble = [(what, why, "warning") for what, why in rows.troubles(session.latest_health)]
        return [
            [
                ("Engine ", f"pid {engine.pid}", ""),
                ("", status.state, {"idle": "completed", "working": "processing"}.get(status.state, "warning")),
                ("", f"aptui {engine.version}", ""),
                ("", f"up {brief(int(status.uptime_s * 1000))}" if status.pid else "", ""),
                ("", size_text(status.rss_bytes) if status.rss_bytes else "", ""),
                ("", f"epoch {engine.epoch}", "muted"),
            ],
            [project],
            [cache, ("Socket", engine.socket, "path")],
            trouble,
        ]

    def _nothing(self, name: str) -> str:
        session = self.shell.session
        if name == "workers":
            return (
                "not asked: the screen was opened with '--read-only'"
                if session.is_read_only
                else "none; they start with the first work"
            )
        return "nothing is watched" if name == "roots" else "nobody"

    def _share_height(self) -> None:
        """Give each table what it needs; where that is too much, the largest give way, and with `z` the others go."""
        tables = [self.table(name) for name, _, _ in _PARTS]
        is_attached = self.shell.session.state is SessionState.ATTACHED
        focused = next((table for table in tables if table.has_focus), tables[0])
        for table, bar in zip(tables, self._engine.query(Bar), strict=True):
            table.display = bar.display = is_attached and (not self._is_zoomed or table is focused)
        shown = [table for table in tables if table.display]
        room = self.size.height - 1 - sum(1 for fact in self._engine.query(Fact) if fact.display) - len(shown)
        if room <= 0 or not shown:
            return
        heights = [max(1, table.count_rows()) + 1 for table in shown]
        while sum(heights) > room and max(heights) > _LEAST_ROWS:
            heights[heights.index(max(heights))] -= 1
        heights[-1] += max(0, room - sum(heights))
        for table, height in zip(shown, heights, strict=True):
            if table.styles.height is None or table.styles.height.value != height:
                table.styles.height = height

    def action_zoom(self) -> None:
        """Show one table alone, or all again."""
        self._is_zoomed = not self._is_zoomed
        self._share_height()

    def on_descendant_focus(self) -> None:
        """Offer other keys."""
        if self._is_zoomed:
            self._share_height()
        self.refresh_bindings()

    # -------------------------------------------------------------------------------------------------------------------- row
    # actions

    def _numbers(self, name: str) -> list[str]:
        return [f"{row.key}" for row in self.lists[name].records]

    def _say_disconnect(self, rest: str) -> None:
        self._ask_disconnect(self.lists["clients"].row(int(rest)) if rest.isdecimal() else self.current("clients"), rest)

    def _say_restart(self, rest: str) -> None:
        self._ask_restart(self.lists["workers"].row(int(rest)) if rest.isdecimal() else self.current("workers"), rest)

    def action_disconnect(self) -> None:
        """Drop the client under the cursor, after asking."""
        self._ask_disconnect(self.current("clients"))

    def action_restart(self) -> None:
        """Restart the worker under the cursor; what it is at is done again, so that is asked."""
        self._ask_restart(self.current("workers"))

    def _ask_disconnect(self, row: ListedRow | None, said: str = "") -> None:
        if row is None:
            self.shell.tell(f"there is no client {said}".rstrip(), "warning")
            return
        client: Connection = row.data
        who = row.cells["name"].text or f"pid {client.pid}"
        drop = partial(self._do, Disconnect(client.number), f"client {client.number} is disconnected")
        self.shell.question(
            f"disconnect {sanitize(client.kind)} {client.number}, {sanitize(who)}?",
            [Choice("y", "disconnect", drop), Choice("n", "leave it")],
        )

    def _ask_restart(self, row: ListedRow | None, said: str = "") -> None:
        if row is None:
            self.shell.tell(f"there is no worker {said}".rstrip(), "warning")
            return
        worker: WorkerInfo = row.data
        name, order = f"worker {worker.number}", RestartWorker(worker.number)
        if not worker.job:
            self._do(order, f"{name} restarts")
            return
        job = shorten(sanitize(worker.job), 60)
        if worker.state == "ending":
            text, yes, done = (
                f"{name} ends after {job}: end that now? It runs again",
                "end it now",
                f"{name} is ended; its job runs again",
            )
        else:
            text, yes, done = (
                f"{name} is at {job}; restart it when that has ended?",
                "restart it then",
                f"{name} restarts when its job has ended",
            )
        self.shell.question(text, [Choice("y", yes, partial(self._do, order, done)), Choice("n", "let it work")])

    def _do(self, verb: Disconnect | RestartWorker, done: str) -> None:
        self.shell.ask(verb, done, lambda _answer: self._follow_engine())

    @on(Rows.Opened, "#connections-workers")
    def _go_to_job(self, event: Rows.Opened) -> None:
        event.stop()
        self.go_to_job()

    def go_to_job(self) -> None:
        """Show what the worker under the cursor is at among the jobs."""
        row = self.current("workers")
        source = rows.source_of(row.data.job) if row else ""
        if source:
            self.run_worker(to_jobs(self.shell, term("source", source, is_whole=True)), exclusive=True, group="go")

    def action_menu(self, place: tuple[int, int] | None = None) -> None:
        """Say what can be done here."""
        has = self.check_action
        actions: dict[str, tuple[MenuItem, Callable[[], object]]] = {
            "disconnect": (MenuItem("disconnect", "Disconnect…", "d", has("disconnect", ()) is True), self.action_disconnect),
            "restart": (MenuItem("restart", "Restart the worker", "r", has("restart", ()) is True), self.action_restart),
            "job": (MenuItem("job", "Show in Jobs", "enter", self._has_job()), self.go_to_job),
            "copy": (MenuItem("copy", "Copy the row", "y"), self.action_copy),
        }
        Menu.ask(
            self.shell.app, [item for item, _ in actions.values()], lambda what: actions[what][1]() if what else None,
            title="Connections",
            place=place,
        )  # fmt: skip

    def _has_job(self) -> bool:
        row = self.current("workers")
        return self.table("workers").has_focus and row is not None and bool(rows.source_of(row.data.job))
