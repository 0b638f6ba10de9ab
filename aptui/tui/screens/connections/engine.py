"""The engine's page of the Connections screen: itself, its clients, its workers and what it watches, and the keys for them.

Tests: `tests/tui/screens/connections/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from aptui.tui.data.session import SessionState
from aptui.tui.frame.commandline import Command
from aptui.tui.frame.line import Part
from aptui.tui.screens.common.bar import Bar
from aptui.tui.screens.common.listed import ListedRow, ListedRows
from aptui.tui.screens.connections import rows
from aptui.tui.screens.connections.facts import Fact
from aptui.tui.screens.connections.inquiry import EngineInquiry
from aptui.tui.screens.connections.steering import EngineSteering
from aptui.tui.screens.connections.tables import ConnectionTables
from aptui.tui.screens.jobs.texts import term
from aptui.tui.widgets.menu import Menu, MenuItem
from aptui.tui.widgets.rows.rows import Rows
from aptui.tui.widgets.table import SideTable
from aptui.tui.words import brief, size_text

if TYPE_CHECKING:
    from aptui.tui.pane import Shell

_LEAST_ROWS = 2
_PARTS = (
    ("clients", "Clients", rows.CLIENTS),
    ("workers", "Workers", rows.WORKERS),
    ("roots", "Scan folders, and what else is watched", rows.ROOTS),
)


class EnginePage(ConnectionTables):
    """The page; the pane tells it when to draw. Its tables are `clients`, `workers` and `roots`."""

    DEFAULT_CSS = """
    EnginePage { width: 1fr; height: 1fr; layout: vertical; }
    EnginePage Table { height: 3; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "disconnect", "disconnect", id="connections.disconnect"),
        Binding("r", "restart", "restart worker", id="connections.restart"),
        Binding("y", "copy", "copy", show=False, id="connections.copy"),
        Binding("full_stop", "menu", "menu", show=False, id="connections.menu"),
        Binding("z", "zoom", "zoom", show=False, id="connections.zoom"),
    ]

    def __init__(self, shell: Shell) -> None:
        super().__init__(id="connections-engine")
        self._shell = shell
        self.lists = {name: ListedRows() for name, _, _ in _PARTS}
        self.inquiry = EngineInquiry(shell, self.set_timer)
        self._steering = EngineSteering(shell, self.inquiry.renew)
        self._is_zoomed = False
        self._counts: list[int] = []

    # ------------------------------------------------------------------------------------------------------------- the parts

    def compose(self) -> ComposeResult:
        """Make the parts."""
        for _ in range(4):
            yield Fact()
        for name, title, columns in _PARTS:
            yield Bar(partial(self._ends, name, title), id=f"connections-{name}-bar", rules=True)
            yield SideTable(columns, id=f"connections-{name}")

    def on_mount(self) -> None:
        """Show what is known already."""
        for name, model in self.lists.items():
            self.table(name).set_model(model)
        self.inquiry.open()

    def on_unmount(self) -> None:
        """Let go."""
        self.inquiry.close()

    def on_resize(self) -> None:
        """Share the height anew."""
        self._share_height()

    def _ends(self, name: str, title: str, _width: int) -> tuple[Sequence[Part], Sequence[Part]]:
        count = self.lists[name].row_count()
        return (Part(title, "title"),), ((Part(f"{count:,}", "muted"),) if count else ())

    # ---------------------------------------------------------------------------------------------------------------- drawing

    def put(self) -> None:
        """Draw what is known."""
        session = self._shell.session
        health = session.latest_health
        for fact, facts in zip(self.query(Fact), self._facts(), strict=True):
            fact.show(facts)
        self.lists["clients"].put(rows.client_rows(self.inquiry.connections))
        self.lists["workers"].put(rows.worker_rows(self.inquiry.workers))
        config = self._shell.config
        watched = health if session.state is SessionState.ATTACHED else None
        roots = rows.root_rows(watched, config.project if config else None, str(session.cache_dir))
        self.lists["roots"].put(roots)
        if self.table("roots").columns != (columns := rows.root_columns(roots)):
            self.table("roots").set_columns(columns)
        for name in self.lists:
            table = self.table(name)
            table.empty_text = self._nothing(name)
            table.refresh_model()
        for bar in self.query(Bar):
            bar.refresh_if_changed()
        self._share_height()
        counts = [model.row_count() for model in self.lists.values()]
        if counts != self._counts:
            self._counts = counts
            self.refresh_bindings()

    def _facts(self) -> list[list[tuple[str, str, str]]]:
        session, status, config = self._shell.session, self.inquiry.status, self._shell.config
        engine, is_attached = session.engine, session.state is SessionState.ATTACHED
        cache = ("Cache  ", str(session.cache_dir), "path")
        project = ("Project", f"{config.project_dir}" if config else "", "path")
        if not is_attached:
            absent = "no engine: this is a database without one" if session.state is SessionState.NONE else "no engine"
            why = session.trouble if session.trouble and session.state is not SessionState.NONE else ""
            hint = "':start' starts one" if self._shell.can_ask else ""
            return [[("", absent, "warning"), ("", why, ""), ("", hint, "muted")], [project], [cache], []]
        trouble = [(what, why, "warning") for what, why in rows.troubles(session.latest_health)]
        return [
            [
                ("Engine ", f"pid {engine.pid}" if engine.pid else "as it was recorded", ""),
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
        session = self._shell.session
        if name == "workers" and session.is_read_only:
            return "a recording does not tell" if session.label else "not asked: the screen was opened with '--read-only'"
        return {"workers": "none; they start with the first work", "roots": "nothing is watched"}.get(name, "nobody")

    def _share_height(self) -> None:
        """Give each table what it needs; where that is too much, the largest give way, and with `z` the others go."""
        tables = [self.table(name) for name in self.lists]
        is_attached = self._shell.session.state is SessionState.ATTACHED
        focused = next((table for table in tables if table.has_focus), tables[0])
        for table, bar in zip(tables, self.query(Bar), strict=True):
            table.display = bar.display = is_attached and (not self._is_zoomed or table is focused)
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
        """Show one table alone, or all again."""
        self._is_zoomed = not self._is_zoomed
        self._share_height()

    def on_descendant_focus(self) -> None:
        """Offer other keys."""
        if self._is_zoomed:
            self._share_height()
        self.refresh_bindings()

    # ------------------------------------------------------------------------------------------------------ clients and workers

    def commands(self) -> Sequence[Command]:
        """Return what can be said here."""
        return tuple(
            Command(name, words, partial(self._run_command, do, which), partial(self._numbers, which), needs_engine=True)
            for name, words, do, which in (
                ("disconnect", "drop a client, by its number", self._steering.disconnect, "clients"),
                ("restart-worker", "restart a worker, by its number", self._steering.restart, "workers"),
            )
        )

    def _numbers(self, name: str) -> list[str]:
        return [f"{row.key}" for row in self.lists[name].records]

    def _run_command(self, do: Callable[[ListedRow | None, str], None], name: str, rest: str) -> None:
        do(self.lists[name].row(int(rest)) if rest.isdecimal() else self.current(name), rest)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer what makes sense: for the table that has the focus, and where there is an engine to ask."""
        if action in {"disconnect", "restart"}:
            name = "clients" if action == "disconnect" else "workers"
            return self._shell.can_ask and self.is_mounted and self.focused == name and self.lists[name].row_count() > 0
        return super().check_action(action, parameters)

    def action_disconnect(self) -> None:
        """Drop the client under the cursor, after asking."""
        self._steering.disconnect(self.current("clients"))

    def action_restart(self) -> None:
        """Restart the worker under the cursor."""
        self._steering.restart(self.current("workers"))

    @on(Rows.Opened, "#connections-workers")
    def _open(self, event: Rows.Opened) -> None:
        event.stop()
        self.go_to_job()

    def go_to_job(self) -> None:
        """Show what the worker under the cursor is at among the jobs."""
        if source := self._source():
            self._shell.reveal("jobs", term("source", source, is_whole=True))

    def _source(self) -> str:
        """Return the source of the job that the worker under the cursor is at, "" = it is at none."""
        row = self.current("workers")
        return rows.source_of(row.data.job) if row else ""

    def action_menu(self, place: tuple[int, int] | None = None) -> None:
        """Say what can be done here."""
        has, has_job = self.check_action, self.focused == "workers" and bool(self._source())
        actions: dict[str, tuple[MenuItem, Callable[[], object]]] = {
            "disconnect": (MenuItem("disconnect", "Disconnect…", "d", has("disconnect", ()) is True), self.action_disconnect),
            "restart": (MenuItem("restart", "Restart the worker", "r", has("restart", ()) is True), self.action_restart),
            "job": (MenuItem("job", "Show in Jobs", "enter", has_job), self.go_to_job),
            "copy": (MenuItem("copy", "Copy the row", "y"), self.action_copy),
        }
        items = [item for item, _ in actions.values()]
        Menu.ask(self._shell.app, items, lambda what: actions[what][1]() if what else None, title="Connections", place=place)
