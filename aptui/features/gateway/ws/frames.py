"""Messages to clients as WebSocket frames, built once for all receivers and written as they are (RFC 6455, RFC 7692).

A thousand clients who want the same get the same bytes: JSON, frame and compression are made once, and what is left for each of
them is one system call. Compressed is a message on its own, for clients who offered `permessage-deflate`: no context is kept
between messages, so that connections share them and hold no memory for it.

aiohttp makes the connection, reads, and does what frames of control are for. Its writer keeps a compressor for each connection,
whose context would not know of frames that went past it: so all that is said after the upgrade is written here.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from typing import TypeAlias

from aiohttp import ClientWebSocketResponse, WSMsgType, web
from aiohttp.abc import AbstractStreamWriter

_LAST, _DEFLATED = 0x80, 0x40
_WINDOW = 15
"""Of the compression; who wants a smaller one hears everything as it is."""
_WORTH_BYTES = 512
"""What is shorter goes as it is."""
_TAIL = b"\x00\x00\xff\xff"
"""The end of what was flushed, which is left out (RFC 7692 §7.2.1)."""

Socket: TypeAlias = web.WebSocketResponse | ClientWebSocketResponse


class FrameMessage:
    """Something to be said, to one or to many."""

    __slots__ = ("_deflated", "_plain", "data", "kind")

    def __init__(self, data: bytes, kind: WSMsgType = WSMsgType.TEXT) -> None:
        self.data, self.kind = data, kind
        self._plain = self._deflated = b""

    def frame(self, *, is_deflated: bool) -> bytes:
        """Return its frame, made when it is first wanted; deflated only where that is worth it."""
        if is_deflated and self.kind is WSMsgType.TEXT and len(self.data) >= _WORTH_BYTES:
            self._deflated = self._deflated or _frame(_LAST | _DEFLATED | self.kind, _deflate(self.data))
            return self._deflated
        self._plain = self._plain or _frame(_LAST | self.kind, self.data)
        return self._plain


def _frame(first: int, payload: bytes) -> bytes:
    """Return an unmasked frame, as servers send them."""
    length = len(payload)
    if length < 126:
        return bytes((first, length)) + payload
    if length < 1 << 16:
        return struct.pack("!BBH", first, 126, length) + payload
    return struct.pack("!BBQ", first, 127, length) + payload


def _deflate(data: bytes) -> bytes:
    made = zlib.compressobj(level=1, wbits=-_WINDOW)
    return (made.compress(data) + made.flush(zlib.Z_SYNC_FLUSH)).removesuffix(_TAIL)


class Wire:
    """The way to one client.

    Args:
        socket: its WebSocket.
        transport, writer: below it, where it called us; of one that we dialled, frames are masked, each for itself, which aiohttp
            does.
    """

    __slots__ = ("_is_deflated", "_socket", "_transport", "_writer", "sent_bytes")

    def __init__(
        self, socket: Socket, transport: asyncio.WriteTransport | None = None, writer: AbstractStreamWriter | None = None
    ) -> None:
        self._socket, self._transport, self._writer = socket, transport, writer
        self._is_deflated = transport is not None and socket.compress == _WINDOW
        self.sent_bytes = 0

    def takes(self, message: FrameMessage) -> bool:
        """Send a message if that needs no waiting, because all that was said before is gone; return whether it was sent."""
        transport = self._transport
        if transport is None or self._socket.closed or transport.is_closing() or transport.get_write_buffer_size():
            return False
        self._write(transport, message)
        return True

    async def send(self, message: FrameMessage) -> None:
        """Send a message; waits while the client does not read.

        Raises:
            ConnectionError: it is gone.
        """
        if self._transport is None or self._writer is None:
            self.sent_bytes += len(message.data)
            await self._socket.send_frame(message.data, message.kind)
            return
        if self._socket.closed or self._transport.is_closing():
            raise ConnectionResetError("the client is gone")
        self._write(self._transport, message)
        await self._writer.drain()

    def _write(self, transport: asyncio.WriteTransport, message: FrameMessage) -> None:
        frame = message.frame(is_deflated=self._is_deflated)
        self.sent_bytes += len(frame)
        transport.write(frame)
