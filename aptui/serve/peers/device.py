"""A device that listens, for tests and people: a gateway that dials it becomes a connection of `aptui.client`, on which it hears and asks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiohttp import web

from aptui.client import MESSAGE_LIMIT_BYTES, AsyncClient
from aptui.serve.peers.outbound import PATH

if TYPE_CHECKING:
    import ssl

_HEARTBEAT_S = 30.0


class Device:
    """What listens.

    Args:
        hello: fields of `requests.Hello`, said to each gateway that dials.
    """

    def __init__(self, **hello: Any) -> None:
        self._hello = hello
        self._runner: web.AppRunner | None = None
        self.dialled: asyncio.Queue[AsyncClient] = asyncio.Queue()
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
        socket = web.WebSocketResponse(heartbeat=_HEARTBEAT_S, max_msg_size=MESSAGE_LIMIT_BYTES)
        await socket.prepare(request)
        client = await AsyncClient.over(socket, **self._hello)
        self.dialled.put_nowait(client)
        try:
            await client.ended()
        finally:
            await client.close()
        return socket
