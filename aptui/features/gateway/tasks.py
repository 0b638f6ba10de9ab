"""Background tasks whose failures are logged at once, and the sockets of outgoing HTTP sessions.

Tests: `tests/features/gateway/test_tasks.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Coroutine
from typing import Any

_TURNS, _TURN_S = 100, 0.01
"""Number of checks, and the interval in seconds, until closed sockets are released."""


class OpenSockets:
    """The open sockets of an outgoing HTTP session; aiohttp may keep them open after the session has closed.

    Pass `make` to the connector as `socket_factory`, and call `end` after the session's `close`.
    """

    def __init__(self) -> None:
        self._open: list[socket.socket] = []

    def make(self, address: tuple[Any, ...]) -> socket.socket:
        """Return a new socket for an address of getaddrinfo(3)."""
        opened = socket.socket(*address[:3])
        self._open = [*(each for each in self._open if each.fileno() >= 0), opened]
        return opened

    async def end(self) -> None:
        """Shut down open sockets and wait until they are closed.

        Over TLS, a closed session waits for the other end. If the event loop ended now, its transports would stay open.
        """
        for opened in self._open:
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
        for _ in range(_TURNS):
            if all(opened.fileno() < 0 for opened in self._open):
                return
            await asyncio.sleep(_TURN_S)


def begin(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Start a task in the running loop. Its errors go to the loop's exception handler, except those of lost connections."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    task.add_done_callback(_log_failure)
    return task


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, ConnectionError):
        task.get_loop().call_exception_handler({"message": f"{task.get_name()} failed", "exception": error, "task": task})
