"""Raw TCP through a WebSocket: each binary frame is a piece of the stream, in either direction (for remote shader compilers).

Tests: `tests/serve/peers/test_proxy.py`.
"""

from __future__ import annotations

import asyncio
import contextlib

from aiohttp import WSMsgType, web

from aptui.serve.protocol.codec import FRAME_LIMIT_BYTES

_PIECE_BYTES = 1 << 16
_HEARTBEAT_S = 30.0
_GONE = 1011
"""RFC 6455 §7.4.1: the server cannot go on."""


async def relay(request: web.Request, host: str, port: int, *, connect_s: float, quiet_s: float) -> web.StreamResponse:
    """Connect a WebSocket with `host` and `port`, until either side ends.

    Args:
        connect_s: until the service takes the connection; `quiet_s` for which either side may leave what it is sent untaken.

    Raises:
        web.HTTPException: it is no WebSocket, or the service does not answer.
    """
    socket = web.WebSocketResponse(heartbeat=_HEARTBEAT_S, max_msg_size=FRAME_LIMIT_BYTES, compress=False)
    if not socket.can_prepare(request).ok:
        raise web.HTTPUpgradeRequired(text="this service takes raw bytes, over a WebSocket\n")
    try:
        reader, writer = await asyncio.wait_for(asyncio.open_connection(host, port, limit=_PIECE_BYTES), connect_s)
    except (OSError, TimeoutError):
        raise web.HTTPBadGateway(text="the service cannot be reached\n") from None
    try:
        await socket.prepare(request)
        back = asyncio.get_running_loop().create_task(_back(reader, socket, quiet_s))
        try:
            await _forth(socket, writer, quiet_s)
        finally:
            back.cancel()
            await asyncio.gather(back, return_exceptions=True)
    finally:
        writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return socket


async def _forth(socket: web.WebSocketResponse, writer: asyncio.StreamWriter, quiet_s: float) -> None:
    """Carry what the client sends."""
    async for message in socket:
        if message.type is not WSMsgType.BINARY:
            await socket.close(code=1003, message=b"bytes are expected")
            return
        try:
            writer.write(message.data)
            await asyncio.wait_for(writer.drain(), quiet_s)
        except (OSError, TimeoutError):
            await socket.close(code=_GONE, message=b"the service takes no more")
            return


async def _back(reader: asyncio.StreamReader, socket: web.WebSocketResponse, quiet_s: float) -> None:
    """Carry what the service sends; when it ends, so does the WebSocket."""
    try:
        while piece := await reader.read(_PIECE_BYTES):
            await asyncio.wait_for(socket.send_bytes(piece), quiet_s)
        await socket.close(code=1000, message=b"the service has ended")
    except (OSError, TimeoutError):
        await socket.close(code=_GONE, message=b"the service is gone")
