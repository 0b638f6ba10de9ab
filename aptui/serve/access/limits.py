"""Sockets before anybody has said who they are: how many, and for how long. Who may do what is `guard`'s.

Tests: `tests/serve/access/test_guard.py`.
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

from aptui.serve.access.tokens import LOCAL
from aptui.sharing.cache_server.reports import ErrorReports

if TYPE_CHECKING:
    from aptui.serve.access.guard import ClientIdentity

HEADER_LIMIT_S = 30.0
"""How long a socket may take to say a whole request, from its first moment or from the end of the last one."""
STRANGERS_LIMIT = 128
"""Sockets that nobody with a token has used yet; one more, and the oldest of them is dropped."""
OWNERS_RESERVE = 32
"""Sockets that are left to the user who runs the gateway, whatever other tokens do."""
_SHARE = 0.5
"""Of all sockets, those that one token may use."""
UNREAD_LIMIT_S = 120.0
"""How long who does not read what is sent to them stays: the kernel ends it (tcp(7), TCP_USER_TIMEOUT), however it is sent."""
_LOOK_S = 1.0
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

    __slots__ = ("_doors", "_going", "identity", "quiet_since")

    def __init__(self, *values: Any, doors: ConnectionLimits, **more: Any) -> None:
        super().__init__(*values, **more)
        self._doors = doors
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
        self._doors.add(self)
        peer = transport.get_extra_info("peername")
        why = self._doors.refuses(str(peer[0]) if peer else "")
        if why and isinstance(transport, asyncio.Transport):
            self._turn_away(transport, f"{why}\n".encode())

    def _turn_away(self, transport: asyncio.Transport, words: bytes) -> None:
        """Say why, and close when it was read, or could have been."""
        transport.write(_TURNED_AWAY % len(words) + words)
        if transport.can_write_eof():
            transport.write_eof()
        self._going = asyncio.get_running_loop().call_later(LINGER_S, transport.close)

    def make_room(self) -> None:
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
        self._doors.drop(self)
        if self._going is not None:
            self._going.cancel()
        super().connection_lost(exc)

    def admit_request(self, identity: ClientIdentity) -> bool:
        """Somebody with a token uses it: a whole request has come. Return whether they may have one socket more."""
        self.quiet_since = None
        return self._doors.admit(self, identity)

    def log_exception(self, *args: Any, **more: Any) -> None:
        """Report our own errors only: whoever sends noise or hangs up must not be able to fill the disk with it."""
        error = more.get("exc_info")
        if isinstance(error, HttpProcessingError):
            error.__traceback__ = None  # whose frame holds what was sent, and the error
        elif not isinstance(error, ConnectionError) and self._doors.reports.admits(type(error).__name__):
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
        header_limit_s, strangers_limit: as above.
    """

    def __init__(self, limit: int, header_limit_s: float = HEADER_LIMIT_S, strangers_limit: int = STRANGERS_LIMIT) -> None:
        self._limit, self._header_limit_s, self._strangers_limit = limit, header_limit_s, strangers_limit
        self.all: set[ClientConnection] = set()
        self.strangers: dict[ClientConnection, None] = {}
        self.refuses: Callable[[str], str] = lambda _address: ""
        """Asked with each caller's address; returns why it may not come in, "" = it may."""
        self.reports = ErrorReports()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, door: ClientConnection) -> None:
        """Take a socket in; the oldest stranger makes room."""
        door.quiet_since = asyncio.get_running_loop().time()
        self.all.add(door)
        self.strangers[door] = None
        while len(self.strangers) > self._strangers_limit or (len(self.all) > self._limit and self.strangers):
            self._send_away(next(iter(self.strangers)))
        self._look_later()

    def admit(self, door: ClientConnection, identity: ClientIdentity) -> bool:
        """Let somebody with a token use a socket; return whether they have not too many.

        One token has a share of all, and all tokens together leave some to the user who runs the gateway.
        """
        if door.identity is None:
            others = Counter(other.identity.name for other in self.all if other.identity is not None)
            owners = others.pop(LOCAL, 0)
            is_much = others[identity.name] >= self._limit * _SHARE or others.total() >= self._limit - OWNERS_RESERVE
            if owners >= self._limit if identity.is_owner else is_much:
                return False
        door.identity = identity
        self.strangers.pop(door, None)
        return True

    def unknown(self, is_known: Callable[[ClientIdentity], bool]) -> list[ClientConnection]:
        """Return the sockets of those who are not known any more."""
        found: dict[ClientIdentity, bool] = {}
        mine = [(door, door.identity) for door in self.all if door.identity is not None]
        return [door for door, identity in mine if not found.setdefault(identity, is_known(identity))]

    def make_room(self, age_s: float) -> bool:
        """Return whether there is room for one more stranger; the oldest goes for it if it has had so many seconds."""
        if len(self.strangers) < self._strangers_limit and len(self.all) < self._limit:
            return True
        now = asyncio.get_running_loop().time()
        oldest = next((door for door in self.strangers if not door.is_at_work), None)
        if oldest is None or now - (oldest.quiet_since or now) < age_s:
            # Where all places are taken by those who may be here, one more comes in to be told so.
            return not self.strangers and len(self.all) < self._limit + self._strangers_limit
        self._send_away(oldest)
        return True

    def _send_away(self, door: ClientConnection) -> None:
        self.drop(door)
        door.make_room()

    def drop(self, door: ClientConnection) -> None:
        """Forget a socket."""
        self.all.discard(door)
        self.strangers.pop(door, None)

    def look(self) -> None:
        """End the sockets that have said nothing whole for too long."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        for door in list(self.all):
            if door.is_at_work:
                door.quiet_since = None
            elif door.quiet_since is None:
                door.quiet_since = now
            elif now - door.quiet_since > self._header_limit_s:
                door.drop()
        self._look_later()

    def _look_later(self) -> None:
        if self._timer is None and self.all:
            self._timer = asyncio.get_running_loop().call_later(min(_LOOK_S, self._header_limit_s / 4), self.look)

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()


class LimitedServer(web.Server):
    """aiohttp's server, which counts every socket against the limits."""

    def __init__(self, *values: Any, doors: ConnectionLimits, **more: Any) -> None:
        super().__init__(*values, **more)
        self._doors = doors

    def __call__(self) -> RequestHandler:
        """Return the handler of a new socket."""
        return ClientConnection(self, loop=self._loop, doors=self._doors, **self._kwargs)
