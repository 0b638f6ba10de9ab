"""The process that serves O3DE's programs; `connection_supervisor` starts it.

Tests: `tests/features/o3de/connection/test_connection_process.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from aptui.features.o3de.connection.asset_notifications import AssetNotifications
from aptui.features.o3de.connection.connection_settings import ConnectionSettings
from aptui.features.o3de.connection.o3de_answers import ProjectAnswers
from aptui.features.o3de.connection.o3de_server import O3deServer
from aptui.link.engine_link import EngineLink, NewsPulse
from aptui.shared.forms import prepare_form
from aptui.store.queries.serving import Database

_ENGINE_LIMIT_S = 5.0
"""Maximum wait for the engine before clients are served (seconds).

Without a connection to the engine, clients would miss its notices.
"""


# ------------------------------------------------------------------------------------------------------------- the process


class ConnectionService:
    """The server for O3DE's clients in one event loop; call `open`, and `close` at the end."""

    def __init__(self, settings: ConnectionSettings, report: Callable[[str], object]) -> None:
        self._database = Database(Path(settings.database))
        self._pulse = NewsPulse()
        self._notifications = AssetNotifications(settings, self._database)
        self._engine = EngineLink(Path(settings.cache_dir), self._notifications.take, self._notifications.note_engine, name="o3de")
        self._engine.listeners.append(lambda _batch: self._pulse.beat())
        self._engine.change_callbacks.append(lambda _is_here: self._pulse.beat())
        answers = ProjectAnswers(settings, self._database, self._engine, self._pulse)
        self.server = O3deServer(settings, answers.for_client, self._notifications.send_all, report)
        self._notifications.server = self.server
        self._task: asyncio.Task[None] | None = None

    async def open(self, listening: socket.socket) -> None:
        """Serve clients of a listening socket, and connect to the engine."""
        self._task = asyncio.get_running_loop().create_task(self._notifications.run())
        is_met = asyncio.Event()
        self._engine.change_callbacks.append(lambda _is_here: is_met.set())
        self._engine.start()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(is_met.wait(), _ENGINE_LIMIT_S)
        await self.server.start(listening)

    async def run(self) -> None:
        """Run until the task of the notifications ends, which happens only after an internal error."""
        assert self._task is not None
        await self._task

    async def close(self) -> None:
        """End all connections."""
        await self.server.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.to_thread(self._engine.close)
        await asyncio.to_thread(self._database.close)


async def _serve(settings: ConnectionSettings, listening: socket.socket) -> None:
    service = ConnectionService(settings, lambda text: print(text, flush=True))
    over = asyncio.Event()

    def wait_for_end() -> None:
        sys.stdin.read()  # blocks until the engine ends, because the end of the engine closes this pipe
        os.kill(os.getpid(), signal.SIGTERM)

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    threading.Thread(target=wait_for_end, name="standard input", daemon=True).start()
    await service.open(listening)
    running = asyncio.get_running_loop().create_task(service.run())
    ending = asyncio.get_running_loop().create_task(over.wait())
    try:
        await asyncio.wait((ending, running), return_when=asyncio.FIRST_COMPLETED)
    finally:
        ending.cancel()
        running.cancel()
        await service.close()


def main() -> None:
    """Serve clients of the listening socket with the descriptor in the first argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = msgspec.convert(json.loads(sys.stdin.readline()), prepare_form(ConnectionSettings))
    asyncio.run(_serve(settings, socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
    main()
