"""Background tasks whose failures are logged at once, signals that end a server, and the sockets of outgoing HTTP sessions.

Tests: `tests/features/gateway/test_tasks.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Coroutine
from typing import Any

import aiohttp

_TURNS, _TURN_S = 100, 0.01
"""Number of checks, and the interval in seconds, until closed sockets are released."""


class HttpSession:
    """An outgoing HTTP session, `http`; aiohttp alone may keep sockets open after the session has closed.

    Args:
        limit: maximum number of connections.
        session: further arguments of `aiohttp.ClientSession`.
    """

    def __init__(self, limit: int = 100, **session: Any) -> None:
        self._open: list[socket.socket] = []
        connector = aiohttp.TCPConnector(limit=limit, socket_factory=self._make_socket)
        self.http = aiohttp.ClientSession(connector=connector, **session)

    def _make_socket(self, address: tuple[Any, ...]) -> socket.socket:
        opened = socket.socket(*address[:3])
        self._open = [*(each for each in self._open if each.fileno() >= 0), opened]
        return opened

    async def close(self) -> None:
        """Close the session, shut down its sockets, and wait until they are closed.

        Over TLS, a closed session waits for the other end. If the event loop ended now, its transports would stay open.
        """
        await self.http.close()
        for opened in self._open:
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
        for _ in range(_TURNS):
            if all(opened.fileno() < 0 for opened in self._open):
                return
            await asyncio.sleep(_TURN_S)


def end_signal() -> asyncio.Event:
    """Return an event that SIGTERM, SIGINT and SIGHUP set; called in the running loop."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, over.set)
    return over


def begin(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Start a task in the running loop. Its errors go to the loop's exception handler, except those of lost connections."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    task.add_done_callback(_log_failure)
    return task


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, ConnectionError):
        task.get_loop().call_exception_handler({"message": f"{task.get_name()} failed", "exception": error, "task": task})
