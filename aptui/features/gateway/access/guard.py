"""Which clients may connect and what they may do: Host, Origin, tokens, scopes, rates, the audit log.

A handler's first line is `identity = require(request, Scope.READ)`. Host and Origin are looked at before any handler, by
`middleware`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler
from msgspec import Struct, field

from aptui.features.gateway.access.tokens import LOCAL, Tokens
from aptui.features.gateway.protocol.wire_codec import Scope
from aptui.features.sharing.cache_server.sockets import ErrorReports
from aptui.shared.connections.addresses import is_loopback
from aptui.shared.floods import FloodGate, more_like_this

if TYPE_CHECKING:
    from aptui.config.sections.serve import GatewaySettings


# Limits for sockets of clients that are not identified yet: how many, and for how long. Permissions are `guard`'s.

if TYPE_CHECKING:
    pass

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


ESCALATIONS_PER_S = 100
"""Escalations that one client may ask for in a second; more are refused."""
AUDIT_LIMIT_BYTES = 4 << 20
_DETAIL_BYTES = 1 << 10
"""Of what a client said, so much is noted."""
SUBPROTOCOL = "aptui.v1"
TOKEN_SUBPROTOCOL = "aptui.token."
"""Before the token, among the WebSocket subprotocols: a page in a browser can set no header."""
COOKIE = "aptui-token"
_LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")
_BODY_TYPES = frozenset({"application/json", "application/octet-stream"})
"""A page of another origin can send none of these without asking first."""
_DEFAULT_PORTS = {"http": 80, "https": 443}
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ClientIdentity(Struct, frozen=True):
    """A client's identity: the name of its token, its scopes and address; a device that we dialled has no token (`digest` "")."""

    name: str
    scopes: frozenset[Scope]
    address: str
    digest: str = ""

    @property
    def is_owner(self) -> bool:
        """Whether it is the user who runs the gateway: some room is kept for them."""
        return self.name == LOCAL

    @property
    def learns_places(self) -> bool:
        """Whether it is told where this machine has its folders: who is here, and who controls."""
        return self.may(Scope.CONTROL) or is_loopback(self.address)

    def may(self, scope: Scope) -> bool:
        """Whether it has that scope."""
        return scope in self.scopes


_IDENTITY = web.RequestKey("identity", ClientIdentity)


class Audit:
    """The log of what clients had done that changes anything: JSON Lines, each written whole.

    What was done is noted each time; of what was refused, ten a minute and identity, and then how many more. Where it grows too
    long, it becomes `<name>.1`, in place of the one before.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = path, clock
        self._refused = FloodGate()
        self._is_broken = False

    def write(self, identity: ClientIdentity, what: str, outcome: str, **details: object) -> None:
        """Note that somebody asked for something and what came of it; a disk that refuses costs the note, and one complaint."""
        if outcome.startswith("refused") and not self._refused.admit(identity.name, self._clock()):
            return
        self._append({
            "identity": identity.name, "address": identity.address, "request": what, "outcome": outcome[:_DETAIL_BYTES],
            **{name: _shorten(value) for name, value in details.items()},
        })  # fmt: skip

    def report_held_back(self) -> None:
        """Note how much was not noted in the minutes that are over; called now and then."""
        for name, count in self._refused.spans_over(self._clock()):
            self._append({"identity": name, "outcome": f"refused: {more_like_this(count)}", "count": count})

    def _append(self, entry: dict[str, object]) -> None:
        line = json.dumps({"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **entry}, default=str).encode() + b"\n"
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(file, line)
                is_long = os.fstat(file).st_size > AUDIT_LIMIT_BYTES
            finally:
                os.close(file)
            if is_long:
                os.replace(self._path, self._path.with_name(f"{self._path.name}.1"))
        except OSError as error:
            if not self._is_broken:
                print(f"the audit log '{self._path}' cannot be written: {error.strerror}", file=sys.stderr, flush=True)
            self._is_broken = True


def _shorten(value: object) -> object:
    """Return a detail as it is, or the beginning of its text where it is long."""
    text = json.dumps(value, default=str)
    return value if len(text) <= _DETAIL_BYTES else f"{text[:_DETAIL_BYTES]}… ({len(text):,} characters)"


class Rate:
    """How often something may be done: `per_s` a second, and as many at once."""

    def __init__(self, per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._clock = per_s, clock
        self._left, self._at = per_s, clock()

    def takes(self, count: int = 1) -> bool:
        """Take `count` and return whether there were so many left."""
        now = self._clock()
        self._left = min(self._per_s, self._left + (now - self._at) * self._per_s)
        self._at = now
        if self._left < count:
            return False
        self._left -= count
        return True


class Guard(Struct):
    """The rules of one gateway.

    Args:
        serve: its configuration.
        tokens: who has which.
        audit: where it is noted who had what done.
        admissions: asked with each caller's address before anything else; each returns "" or why it may not come in.
    """

    serve: GatewaySettings
    tokens: Tokens
    audit: Audit
    admissions: list[Callable[[str], str]] = field(default_factory=list)
    _rates: dict[str, Rate] = field(default_factory=dict)

    def refusal(self, address: str) -> str:
        """Return why nobody may call from `address`, "" when they may."""
        return next((why for admits in self.admissions if (why := admits(address))), "")

    def check(self, request: web.Request) -> None:
        """Refuse what comes from a place where it cannot come from: another name for us, another page, a form.

        Raises:
            web.HTTPException: 403, 415 or 421.
        """
        why = self.refusal(address_of(request))
        if why:
            raise web.HTTPForbidden(text=f"{why}\n")
        if request.headers.get(hdrs.HOST, "") not in self.hosts(request):
            raise web.HTTPMisdirectedRequest(text="the name in 'Host' is not among 'serve.hosts'\n")
        self._check_origin(request)
        if request.body_exists and request.content_type not in _BODY_TYPES:
            raise web.HTTPUnsupportedMediaType(text="say what you send: 'Content-Type: application/json'\n")

    def _check_origin(self, request: web.Request) -> None:
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is not None:
            own = f"{request.scheme}://{request.headers[hdrs.HOST]}"
            if origin != own and origin not in self.serve.origins:
                raise web.HTTPForbidden(text="pages of that origin may not come in: it is not among 'serve.origins'\n")
        elif request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            raise web.HTTPForbidden(text="other pages may not use this\n")

    def hosts(self, request: web.Request) -> set[str]:
        """Return every form of `Host` under which this request may have come."""
        sockname = request.transport.get_extra_info("sockname") if request.transport is not None else None
        port = sockname[1] if sockname else self.serve.port
        address = f"[{self.serve.address}]" if ":" in self.serve.address else self.serve.address
        names = {*_LOOPBACK_HOSTS, address, *self.serve.hosts}
        found = {name if _has_port(name) else f"{name}:{port}" for name in names}
        if _DEFAULT_PORTS.get(request.scheme) == port:
            found |= {name for name in names if not _has_port(name)}
        return found

    def require(self, request: web.Request, scope: Scope) -> ClientIdentity:
        """Return who asks.

        Raises:
            web.HTTPException: 401, nobody we know; 403, they may not.
        """
        identity: ClientIdentity | None = request.get(_IDENTITY) or self.identify(read_given_token(request), address_of(request))
        if identity is None:
            raise web.HTTPUnauthorized(
                text="a token is needed: 'aptui token add NAME' makes one\n", headers={"WWW-Authenticate": "Bearer"}
            )
        request[_IDENTITY] = identity
        if not identity.may(scope):
            raise web.HTTPForbidden(text=f"'{identity.name}' may not: its token lacks the scope '{scope}'\n")
        return identity

    def identify(self, token: str, address: str) -> ClientIdentity | None:
        """Return who has this token."""
        found = self.tokens.owner_of(token) if token else None
        return ClientIdentity(found.name, found.scopes, address, found.digest) if found is not None else None

    def is_known(self, identity: ClientIdentity) -> bool:
        """Whether its token is neither revoked nor over."""
        return not identity.digest or self.tokens.knows(identity.digest, identity.scopes)

    def may_escalate(self, identity: ClientIdentity) -> bool:
        """Whether this client may hurry one thing more just now."""
        if len(self._rates) > 1_000:
            self._rates.clear()
        return self._rates.setdefault(f"{identity.name}\0{identity.address}", Rate(ESCALATIONS_PER_S)).takes()


GUARD = web.AppKey("guard", Guard)


def require(request: web.Request, scope: Scope = Scope.READ) -> ClientIdentity:
    """Return who asks, if they may; the first line of every handler.

    Raises:
        web.HTTPException: 401, 403, or 503 where this token has too many connections.
    """
    identity = request.config_dict[GUARD].require(request, scope)
    admit(request, identity)
    return identity


def admit(request: web.Request, identity: ClientIdentity) -> None:
    """Count the connection of a request as that of somebody with a token.

    Raises:
        web.HTTPException: 503, they have too many.
    """
    admitted = getattr(request.protocol, "admit_request", None)
    if admitted is not None and not admitted(identity):
        raise web.HTTPServiceUnavailable(
            text=f"'{identity.name}' has too many connections open\n", headers={hdrs.RETRY_AFTER: "1", hdrs.CONNECTION: "close"}
        )


@web.middleware
async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let nobody through to a handler who comes from a wrong place."""
    request.config_dict[GUARD].check(request)
    return await handler(request)


async def mark_response(_request: web.Request, response: web.StreamResponse) -> None:
    """Tell browsers to believe what the answer says it is, and to keep it from other pages; a signal of the application."""
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)


def read_given_token(request: web.Request) -> str:
    """Return the token that a request carries: as bearer, as WebSocket subprotocol, or as our own cookie."""
    kind, _, token = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    if kind.lower() == "bearer":
        return token.strip()
    for word in request.headers.get(hdrs.SEC_WEBSOCKET_PROTOCOL, "").split(","):
        if word.strip().startswith(TOKEN_SUBPROTOCOL):
            return word.strip()[len(TOKEN_SUBPROTOCOL) :]
    return request.cookies.get(COOKIE, "")


def address_of(request: web.Request) -> str:
    """Return the address that a request came from."""
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    return str(peer[0]) if peer else ""


def _has_port(name: str) -> bool:
    return name.rpartition(":")[2].isdigit() and not name.endswith("]") and (name.count(":") == 1 or "]:" in name)
