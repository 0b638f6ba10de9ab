"""Connections to `aptui cache serve`: how many there may be, and how long each may take to say what it wants.

Whoever opens a thousand connections and says a byte a minute (a slow loris) shall hold up nobody: where there are too many, the
oldest that is not being answered goes, and what is begun is ended in time or not at all. What is asked for is no business of this
module.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from aptui.shared.floods import FloodGate, more_like_this

# Reports errors that outsiders can cause on standard error, at a bounded rate, so that they cannot fill a disk.


class ErrorReports:
    """What may be told: of each kind ten in a minute, then how many more there were."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._gate, self._clock = FloodGate(), clock

    def admits(self, kind: str) -> bool:
        """Return whether an error of this kind is told now; those held back before are counted first."""
        now = self._clock()
        for name, count in self._gate.spans_over(now):
            print(f"{name}: {more_like_this(count)}", file=sys.stderr, flush=True)
        return self._gate.admit(kind, now)

    def handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Be the exception handler of a loop."""
        error = context.get("exception")
        if self.admits(type(error).__name__ if error is not None else str(context.get("message"))):
            loop.default_exception_handler(context)


_CHECK_S = 1.0
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n"


class Socket(RequestHandler):
    """One connection; `began_s` is when it began to say what it wants, None where it has said all of it, or nothing yet."""

    __slots__ = ("_gate", "_is_refused", "began_s", "came_s")

    def __init__(self, *values: Any, gate: SocketLimits, **more: Any) -> None:
        super().__init__(*values, **more)
        self._gate = gate
        self.began_s: float | None = None
        self.came_s = 0.0
        self._is_refused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a connection in, if there is room."""
        self.began_s = self.came_s = asyncio.get_running_loop().time()
        super().connection_made(transport)
        if not self._gate.admits(self) and isinstance(transport, asyncio.Transport):
            transport.write(_BUSY)
            transport.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget a connection."""
        self._gate.forget_connection(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Note when something is begun."""
        if self.began_s is None and not self.is_at_work:
            self.began_s = asyncio.get_running_loop().time()
        super().data_received(data)

    def log_exception(self, *args: Any, **more: Any) -> None:
        """Say what went wrong here, as often as helps; what a client sends, or its going, is no news."""
        error = more.get("exc_info")
        is_news = not isinstance(error, (HttpProcessingError, ConnectionError))
        if is_news and self._gate.reports.admits(type(error).__name__):
            super().log_exception(*args, **more)

    @property
    def is_at_work(self) -> bool:
        """Whether a request is being answered; one that was refused may still be sent, and keeps no place."""
        return self._current_request is not None and not self._is_refused

    def note_understood(self) -> None:
        """It has said what it wants."""
        self.began_s, self._is_refused = None, False

    def note_refused(self) -> None:
        """Its request is refused before its body was read."""
        self._is_refused = True

    def drop(self) -> None:
        """End the connection at once, whatever waits to be sent; the kernel would try for many minutes (socket(7))."""
        if self.transport is None:
            return
        with contextlib.suppress(OSError):
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


class SocketLimits:
    """All connections of one server.

    Args:
        limit: how many there may be.
        timeout_s: maximum time for a connection's first request.
    """

    def __init__(self, limit: int, timeout_s: float) -> None:
        self._limit, self._timeout_s = limit, timeout_s
        self._all: dict[Socket, None] = {}
        self.reports = ErrorReports()
        self._timer: asyncio.TimerHandle | None = None

    def admits(self, new: Socket) -> bool:
        """Take a connection in; the oldest that is not being answered makes room, and where there is none the new one has to go."""
        if len(self._all) >= self._limit:
            oldest = next((each for each in self._all if not each.is_at_work), None)
            if oldest is None:
                return False
            self.forget_connection(oldest)
            oldest.drop()
        self._all[new] = None
        self._check_later()
        return True

    def end_oldest(self, age_s: float) -> bool:
        """Return whether one more may come in; the oldest that is not being answered goes for it if it has had so many seconds.

        Where all are being answered, one more comes in to be told so.
        """
        if len(self._all) < self._limit:
            return True
        oldest = next((each for each in self._all if not each.is_at_work), None)
        if oldest is None:
            return True
        if asyncio.get_running_loop().time() - oldest.came_s < age_s:
            return False
        self.forget_connection(oldest)
        oldest.drop()
        return True

    def forget_connection(self, gone: Socket) -> None:
        """Forget a connection."""
        self._all.pop(gone, None)

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        self._timer = None
        before_s = asyncio.get_running_loop().time() - self._timeout_s
        for each in list(self._all):
            if each.began_s is not None and each.began_s < before_s and not each.is_at_work:
                each.drop()
        self._check_later()

    def _check_later(self) -> None:
        if self._timer is None and self._all:
            self._timer = asyncio.get_running_loop().call_later(min(_CHECK_S, self._timeout_s / 4), self._check)


class SocketRunner(web.AppRunner):
    """aiohttp's runner, with a gate."""

    __slots__ = ("_gate",)

    def __init__(self, app: web.Application, gate: SocketLimits, **more: Any) -> None:
        super().__init__(app, **more)
        self._gate = gate

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        return _Server(made.request_handler, request_factory=made.request_factory, gate=self._gate, **made._kwargs)  # noqa: SLF001  # aiohttp offers no other way


class _Server(web.Server):
    def __init__(self, *values: Any, gate: SocketLimits, **more: Any) -> None:
        super().__init__(*values, **more)
        self._gate = gate

    def __call__(self) -> RequestHandler:
        return Socket(self, loop=self._loop, gate=self._gate, **self._kwargs)
