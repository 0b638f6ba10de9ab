"""Background tasks beside requests: a failure is logged when it happens, not when the task is collected.

Tests: `tests/features/gateway/test_tasks.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Coroutine
from typing import Any

# The sockets of an HTTP session that goes out, so that all are closed when it is: what aiohttp lets go of may stay open for
# long.

_TURNS, _TURN_S = 100, 0.01
"""Looks at whether all that was cut is closed."""


class Wires:
    """The sockets of a session: `make` is its connector's `socket_factory`, and `end` comes after its `close`."""

    def __init__(self) -> None:
        self._open: list[socket.socket] = []

    def make(self, address: tuple[Any, ...]) -> socket.socket:
        """Return a new socket for an address of getaddrinfo(3)."""
        wire = socket.socket(*address[:3])
        self._open = [*(each for each in self._open if each.fileno() >= 0), wire]
        return wire

    async def end(self) -> None:
        """Cut what is still open, and see it closed: over TLS, a session that is closed waits for the farewell of the other end.

        The event loop may be over right after, and transports that are open then stay so.
        """
        for wire in self._open:
            with contextlib.suppress(OSError):
                wire.shutdown(socket.SHUT_RDWR)
        for _ in range(_TURNS):
            if all(wire.fileno() < 0 for wire in self._open):
                return
            await asyncio.sleep(_TURN_S)


def begin(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Let work begin in the running loop, whose exception handler hears of errors; of a peer that is gone nobody does."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    task.add_done_callback(_log_failure)
    return task


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, ConnectionError):
        task.get_loop().call_exception_handler({"message": f"{task.get_name()} failed", "exception": error, "task": task})
