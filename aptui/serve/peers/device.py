"""A device that listens, for tests and people.

A gateway that dials it becomes a connection of whoever listens, on which it hears and asks.

Tests: `tests/serve/peers/test_peers.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from aiohttp import web

from aptui.serve.peers.outbound import PATH

if TYPE_CHECKING:
    import ssl

_HEARTBEAT_S = 30.0


class DialledConnection(Protocol):
    """What a device asks of its side of a connection."""

    async def wait_for_end(self) -> None:
        """Wait until the connection has ended."""

    async def close(self) -> None:
        """End it."""


C = TypeVar("C", bound=DialledConnection)


class Device(Generic[C]):
    """What listens.

    Args:
        greet: says hello to a gateway that dialled, and returns the connection.
        message_limit_bytes: of what a gateway may say at once.
    """

    def __init__(self, greet: Callable[[web.WebSocketResponse], Awaitable[C]], message_limit_bytes: int) -> None:
        self._greet, self._message_limit_bytes = greet, message_limit_bytes
        self._runner: web.AppRunner | None = None
        self.dialled: asyncio.Queue[C] = asyncio.Queue()
        """A connection for each gateway that dialled and took our hello."""

    async def open(self, address: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None) -> int:
        """Listen, and return the port; `tls` holds the certificate, which a gateway elsewhere wants to see."""
        app = web.Application()
        app.router.add_get(PATH, self._take)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, address, port, ssl_context=tls)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def close(self) -> None:
        """Hang up."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(heartbeat=_HEARTBEAT_S, max_msg_size=self._message_limit_bytes)
        await socket.prepare(request)
        client = await self._greet(socket)
        self.dialled.put_nowait(client)
        try:
            await client.wait_for_end()
        finally:
            await client.close()
        return socket
