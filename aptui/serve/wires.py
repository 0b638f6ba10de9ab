"""The sockets of an HTTP session that goes out, so that all are closed when it is: what aiohttp lets go of may stay open for long.

Tests: `tests/serve/access/test_guard.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

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
