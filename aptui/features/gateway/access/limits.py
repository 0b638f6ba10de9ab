"""Limits for sockets of clients that are not identified yet: how many, and for how long. Permissions are `guard`'s.

Tests: `tests/features/gateway/access/test_guard.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from aptui.features.gateway.access.tokens import LOCAL
from aptui.features.sharing.cache_server.sockets import ErrorReports

if TYPE_CHECKING:
    from aptui.features.gateway.access.guard import ClientIdentity

HEADER_LIMIT_S = 30.0
"""How long a socket may take to say a whole request, from its first moment or from the end of the last one."""
UNIDENTIFIED_LIMIT = 128
"""Sockets that nobody with a token has used yet; one more, and the oldest of them is dropped."""
OWNERS_RESERVE = 32
"""Sockets that are left to the user who runs the gateway, whatever other tokens do."""
_SHARE = 0.5
"""Of all sockets, those that one token may use."""
UNREAD_LIMIT_S = 120.0
"""How long who does not read what is sent to them stays: the kernel ends it (tcp(7), TCP_USER_TIMEOUT), however it is sent."""
_CHECK_S = 1.0
LINGER_S = 2.0
"""How long who is turned away may take to go; a socket that is closed while something arrives takes back what was said last."""
_TURNED_AWAY = (
    b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
)
"""Said to those who may not come in, before anything of theirs is read."""
_FULL_WORDS = b"too many are connected: try again in a moment\n"
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_FULL_WORDS), _FULL_WORDS)
)
"""Said to who has to make room."""


class ClientConnection(RequestHandler):
    """One socket."""

    __slots__ = ("_going", "_limits", "identity", "quiet_since")

    def __init__(self, *values: Any, limits: ConnectionLimits, **more: Any) -> None:
        super().__init__(*values, **more)
        self._limits = limits
        self._going: asyncio.TimerHandle | None = None
        """When it is closed that was turned away."""
        self.quiet_since: float | None = None
        self.identity: ClientIdentity | None = None
        """Who uses it, as far as that is known."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a socket in, if there is room."""
        super().connection_made(transport)
        with contextlib.suppress(OSError):  # it is gone already
            wire = transport.get_extra_info("socket")
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNREAD_LIMIT_S * 1000))
        self._limits.add(self)
        peer = transport.get_extra_info("peername")
        why = self._limits.refuses(str(peer[0]) if peer else "")
        if why and isinstance(transport, asyncio.Transport):
            self._turn_away(transport, f"{why}\n".encode())

    def _turn_away(self, transport: asyncio.Transport, words: bytes) -> None:
        """Say why, and close when it was read, or could have been."""
        transport.write(_TURNED_AWAY % len(words) + words)
        if transport.can_write_eof():
            transport.write_eof()
        self._going = asyncio.get_running_loop().call_later(LINGER_S, transport.close)

    def end_oldest(self) -> None:
        """End it, saying why: it has said nothing whole, and others wait."""
        transport = self.transport
        if self._going is None and isinstance(transport, asyncio.Transport):
            transport.write(_FULL)
            transport.abort()  # what is written is with the kernel; waiting for a good-bye would keep the descriptor

    def data_received(self, data: bytes) -> None:
        """Take what comes, but nothing of who was turned away."""
        if self._going is None:
            super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget a socket."""
        self._limits.drop(self)
        if self._going is not None:
            self._going.cancel()
        super().connection_lost(exc)

    def admit_request(self, identity: ClientIdentity) -> bool:
        """Somebody with a token uses it: a whole request has come. Return whether they may have one socket more."""
        self.quiet_since = None
        return self._limits.admit(self, identity)

    def log_exception(self, *args: Any, **more: Any) -> None:
        """Report our own errors only: whoever sends noise or hangs up must not be able to fill the disk with it."""
        error = more.get("exc_info")
        if isinstance(error, HttpProcessingError):
            error.__traceback__ = None  # whose frame holds what was sent, and the error
        elif not isinstance(error, ConnectionError) and self._limits.reports.admits(type(error).__name__):
            super().log_exception(*args, **more)

    @property
    def is_at_work(self) -> bool:
        """Whether a request is being answered."""
        return self._current_request is not None

    def drop(self) -> None:
        """End it at once, whatever waits to be sent."""
        if self.transport is not None:
            self.transport.abort()


class ConnectionLimits:
    """All sockets of one gateway.

    Args:
        limit: how many may be open in all.
        header_limit_s, unidentified_limit: as above.
    """

    def __init__(self, limit: int, header_limit_s: float = HEADER_LIMIT_S, unidentified_limit: int = UNIDENTIFIED_LIMIT) -> None:
        self._limit, self._header_limit_s, self._unknown_limit = limit, header_limit_s, unidentified_limit
        self.all: set[ClientConnection] = set()
        self.unidentified: dict[ClientConnection, None] = {}
        self.refuses: Callable[[str], str] = lambda _address: ""
        """Asked with each caller's address; returns why it may not come in, "" = it may."""
        self.reports = ErrorReports()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, connection: ClientConnection) -> None:
        """Take a socket in; the oldest stranger makes room."""
        connection.quiet_since = asyncio.get_running_loop().time()
        self.all.add(connection)
        self.unidentified[connection] = None
        while len(self.unidentified) > self._unknown_limit or (len(self.all) > self._limit and self.unidentified):
            self._send_away(next(iter(self.unidentified)))
        self._check_later()

    def admit(self, connection: ClientConnection, identity: ClientIdentity) -> bool:
        """Let somebody with a token use a socket; return whether they have not too many.

        One token has a share of all, and all tokens together leave some to the user who runs the gateway.
        """
        if connection.identity is None:
            others = Counter(other.identity.name for other in self.all if other.identity is not None)
            owners = others.pop(LOCAL, 0)
            is_much = others[identity.name] >= self._limit * _SHARE or others.total() >= self._limit - OWNERS_RESERVE
            if owners >= self._limit if identity.is_owner else is_much:
                return False
        connection.identity = identity
        self.unidentified.pop(connection, None)
        return True

    def unknown(self, is_known: Callable[[ClientIdentity], bool]) -> list[ClientConnection]:
        """Return the sockets of those who are not known any more."""
        found: dict[ClientIdentity, bool] = {}
        mine = [(connection, connection.identity) for connection in self.all if connection.identity is not None]
        return [connection for connection, identity in mine if not found.setdefault(identity, is_known(identity))]

    def end_oldest(self, age_s: float) -> bool:
        """Return whether there is room for one more stranger; the oldest goes for it if it has had so many seconds."""
        if len(self.unidentified) < self._unknown_limit and len(self.all) < self._limit:
            return True
        now = asyncio.get_running_loop().time()
        oldest = next((connection for connection in self.unidentified if not connection.is_at_work), None)
        if oldest is None or now - (oldest.quiet_since or now) < age_s:
            # Where all places are taken by those who may be here, one more comes in to be told so.
            return not self.unidentified and len(self.all) < self._limit + self._unknown_limit
        self._send_away(oldest)
        return True

    def _send_away(self, connection: ClientConnection) -> None:
        self.drop(connection)
        connection.end_oldest()

    def drop(self, connection: ClientConnection) -> None:
        """Forget a socket."""
        self.all.discard(connection)
        self.unidentified.pop(connection, None)

    def check(self) -> None:
        """End the sockets that have said nothing whole for too long."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        for connection in list(self.all):
            if connection.is_at_work:
                connection.quiet_since = None
            elif connection.quiet_since is None:
                connection.quiet_since = now
            elif now - connection.quiet_since > self._header_limit_s:
                connection.drop()
        self._check_later()

    def _check_later(self) -> None:
        if self._timer is None and self.all:
            self._timer = asyncio.get_running_loop().call_later(min(_CHECK_S, self._header_limit_s / 4), self.check)

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()


class LimitedServer(web.Server):
    """aiohttp's server, which counts every socket against the limits."""

    def __init__(self, *values: Any, limits: ConnectionLimits, **more: Any) -> None:
        super().__init__(*values, **more)
        self._limits = limits

    def __call__(self) -> RequestHandler:
        """Return the handler of a new socket."""
        return ClientConnection(self, loop=self._loop, limits=self._limits, **self._kwargs)
