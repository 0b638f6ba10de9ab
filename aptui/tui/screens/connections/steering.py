"""What people do to clients and workers of the engine: drop the one, restart the other, after a question where work is lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from aptui.link.port import Disconnect, RestartWorker
from aptui.shared.health import Connection, WorkerInfo
from aptui.shared.sanitize import sanitize
from aptui.tui.frame.commandline import Choice
from aptui.tui.screens.common.listed import ListedRow
from aptui.tui.words import shorten

if TYPE_CHECKING:
    from aptui.tui.pane import Shell


class EngineSteering:
    """Questions, and the orders they lead to.

    Args:
        done: called once the engine did what it was told.
    """

    def __init__(self, shell: Shell, done: Callable[[], object]) -> None:
        self._shell, self._done = shell, done

    def disconnect(self, row: ListedRow | None, typed: str = "") -> None:
        """Drop a client, after asking.

        Args:
            row: the client's row, None if no client has the typed number.
            typed: the number that the user typed.
        """
        if row is None:
            self._shell.show_toast(f"there is no client {typed}".rstrip(), "warning")
            return
        client: Connection = row.data
        who = row.cells["name"].text or f"pid {client.pid}"
        drop = partial(self._do, Disconnect(client.number), f"client {client.number} is disconnected")
        self._shell.question(
            f"disconnect {sanitize(client.kind)} {client.number}, {sanitize(who)}?",
            [Choice("y", "disconnect", drop), Choice("n", "leave it")],
        )

    def restart(self, row: ListedRow | None, typed: str = "") -> None:
        """Restart a worker; what it is at is done again, so that is asked."""
        if row is None:
            self._shell.show_toast(f"there is no worker {typed}".rstrip(), "warning")
            return
        worker: WorkerInfo = row.data
        name, order = f"worker {worker.number}", RestartWorker(worker.number)
        if not worker.job:
            self._do(order, f"{name} restarts")
            return
        job = shorten(sanitize(worker.job), 60)
        if worker.state == "ending":
            text = f"{name} ends after {job}: end that now? It runs again"
            yes, done = "end it now", f"{name} is ended; its job runs again"
        else:
            text = f"{name} is at {job}; restart it when that has ended?"
            yes, done = "restart it then", f"{name} restarts when its job has ended"
        self._shell.question(text, [Choice("y", yes, partial(self._do, order, done)), Choice("n", "let it work")])

    def _do(self, verb: Disconnect | RestartWorker, done: str) -> None:
        self._shell.ask(verb, done, lambda _answer: self._done())
