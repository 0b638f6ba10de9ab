"""Checks of each request: client address, Host, Origin, token, scope, rate; the audit log; and limits of connections.

The first line of a handler is `identity = require(request, Scope.READ)`. `middleware` checks Host and Origin before any handler.
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
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import hdrs, web
from msgspec import Struct, field

from aptui.features.gateway.access.tokens import LOCAL, Tokens
from aptui.features.gateway.wire_codec import Scope
from aptui.shared.connections.addresses import is_loopback, url_host
from aptui.shared.connections.http_sockets import HttpSocket, SocketLimits
from aptui.shared.floods import FloodGate, more_like_this

if TYPE_CHECKING:
    from aptui.config.settings import GatewaySettings


ESCALATIONS_PER_S = 100
"""Maximum number of requests per second with which one client may raise priorities."""
AUDIT_LIMIT_BYTES = 4 << 20
"""Size above which the audit log is renamed, and a new log begins."""
_DETAIL_CHARACTERS = 1 << 10
"""Maximum length (characters) of one detail in the audit log; a longer detail is cut."""
SUBPROTOCOL = "aptui.v1"
"""WebSocket subprotocol that the gateway selects if a client offers it."""
TOKEN_SUBPROTOCOL = "aptui.token."
"""Prefix of the WebSocket subprotocol that carries the token, because a web page cannot set headers."""
COOKIE = "aptui-token"
_LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")
_BODY_TYPES = frozenset({"application/json", "application/octet-stream"})
"""Media types that a page of another origin cannot send without a preflight request."""
_DEFAULT_PORTS = {"http": 80, "https": 443}
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ClientIdentity(Struct, frozen=True):
    """A client: the name of its token, its scopes and address.

    If the client is a device to which the gateway connected, it has no token, and `digest` is "".
    """

    name: str
    scopes: frozenset[Scope]
    address: str
    digest: str = ""

    @property
    def is_owner(self) -> bool:
        """Whether the client is the user who runs the gateway; some capacity is reserved for this user."""
        return self.name == LOCAL

    @property
    def may_see_paths(self) -> bool:
        """Whether answers may contain absolute paths: the client is on this machine, or has the scope `control`."""
        return self.may(Scope.CONTROL) or is_loopback(self.address)

    def may(self, scope: Scope) -> bool:
        """Whether the client has a scope."""
        return scope in self.scopes


_IDENTITY = web.RequestKey("identity", ClientIdentity)


class Audit:
    """The log of requests that change anything, as JSON Lines; each line is written in one call.

    Every accepted request is logged. Ten refused requests per minute and identity are logged; further refused requests are counted,
    and their number is logged. Above the size limit the file is renamed to `<name>.1` and replaces the previous `<name>.1`.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = path, clock
        self._refused = FloodGate()
        self._is_broken = False

    def write(self, identity: ClientIdentity, what: str, outcome: str, **details: object) -> None:
        """Log a request and its outcome. If the file cannot be written, the entry is lost; the first such error is printed."""
        if outcome.startswith("refused") and not self._refused.admit(identity.name, self._clock()):
            return
        self._append({
            "identity": identity.name, "address": identity.address, "request": what, "outcome": outcome[:_DETAIL_CHARACTERS],
            **{name: _shorten(value) for name, value in details.items()},
        })  # fmt: skip

    def report_unlogged(self) -> None:
        """For each identity and past minute, log the number of refused requests without their own log line; called regularly."""
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
    """Return a detail, or the beginning of its text if it is too long."""
    text = json.dumps(value, default=str)
    return value if len(text) <= _DETAIL_CHARACTERS else f"{text[:_DETAIL_CHARACTERS]}… ({len(text):,} characters)"


class Rate:
    """A limit on calls of `admits`: on average, at most `per_s` calls per second succeed. Up to `per_s` calls may come at once."""

    def __init__(self, per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._clock = per_s, clock
        self._left, self._at = per_s, clock()

    def admits(self) -> bool:
        """Count one use and return True. If the use exceeds the rate, return False and do not count the use."""
        now = self._clock()
        self._left = min(self._per_s, self._left + (now - self._at) * self._per_s)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Guard(Struct):
    """The access rules of one gateway.

    Args:
        audit: log of changing requests.
        admissions: called with each client's address before all other checks; each returns why the client is refused, "" = it is
            accepted.
    """

    serve: GatewaySettings
    tokens: Tokens
    audit: Audit
    admissions: list[Callable[[str], str]] = field(default_factory=list)
    _rates: dict[str, Rate] = field(default_factory=dict)

    def refusal(self, address: str) -> str:
        """Return why clients at `address` are refused, "" = they are accepted."""
        return next((why for admits in self.admissions if (why := admits(address))), "")

    def check(self, request: web.Request) -> None:
        """Refuse requests for another host name, requests of other web pages, and requests of HTML forms.

        Raises:
            web.HTTPException: 403, 415 or 421.
        """
        why = self.refusal(address_of(request))
        if why:
            raise web.HTTPForbidden(text=f"{why}\n")
        if request.headers.get(hdrs.HOST, "").lower() not in self.hosts(request):
            raise web.HTTPMisdirectedRequest(text="the host name of this request is not in 'serve.hosts'\n")
        self._check_origin(request)
        if request.body_exists and request.content_type not in _BODY_TYPES:
            raise web.HTTPUnsupportedMediaType(text="'Content-Type: application/json' is missing\n")

    def _check_origin(self, request: web.Request) -> None:
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is not None:
            own = f"{request.scheme}://{request.headers[hdrs.HOST]}"
            if origin.lower() != own.lower() and origin not in self.serve.origins:
                raise web.HTTPForbidden(text="web pages of this origin are not allowed; add the origin to 'serve.origins'\n")
        elif request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            raise web.HTTPForbidden(text="requests from other web pages are not allowed\n")

    def hosts(self, request: web.Request) -> set[str]:
        """Return every value of the header `Host` that is accepted for this request, in lower case (RFC 3986 §3.2.2)."""
        sockname = request.transport.get_extra_info("sockname") if request.transport is not None else None
        port = sockname[1] if sockname else self.serve.port
        names = {name.lower() for name in (*_LOOPBACK_HOSTS, url_host(self.serve.address), *self.serve.hosts)}
        found = {name if _has_port(name) else f"{name}:{port}" for name in names}
        if _DEFAULT_PORTS.get(request.scheme) == port:
            found |= {name for name in names if not _has_port(name)}
        return found

    def require(self, request: web.Request, scope: Scope) -> ClientIdentity:
        """Return the identity of the client.

        Raises:
            web.HTTPException: 401 = unknown token; 403 = the token lacks the scope.
        """
        identity: ClientIdentity | None = request.get(_IDENTITY) or self.identify(read_given_token(request), address_of(request))
        if identity is None:
            raise web.HTTPUnauthorized(
                text="a token is needed; run 'aptui token add NAME' to make one\n", headers={"WWW-Authenticate": "Bearer"}
            )
        request[_IDENTITY] = identity
        if not identity.may(scope):
            raise web.HTTPForbidden(text=f"'{identity.name}' is not allowed: its token lacks the scope '{scope}'\n")
        return identity

    def identify(self, token: str, address: str) -> ClientIdentity | None:
        """Return the identity that belongs to a token, None = unknown token."""
        found = self.tokens.owner_of(token) if token else None
        return ClientIdentity(found.name, found.scopes, address, found.digest) if found is not None else None

    def is_known(self, identity: ClientIdentity) -> bool:
        """Whether the client's token still exists and has not expired."""
        return not identity.digest or self.tokens.knows(identity.digest, identity.scopes)

    def may_escalate(self, identity: ClientIdentity) -> bool:
        """Whether the client may raise a priority now; each call counts toward the client's rate limit."""
        if len(self._rates) > 1_000:
            self._rates.clear()
        return self._rates.setdefault(f"{identity.name}\0{identity.address}", Rate(ESCALATIONS_PER_S)).admits()


GUARD = web.AppKey("guard", Guard)


def require(request: web.Request, scope: Scope = Scope.READ) -> ClientIdentity:
    """Return the identity of the client if it has the scope; the first line of every handler.

    Raises:
        web.HTTPException: 401 = unknown token; 403 = the token lacks the scope; 503 = the token has too many connections.
    """
    identity = request.config_dict[GUARD].require(request, scope)
    admit(request, identity)
    return identity


def admit(request: web.Request, identity: ClientIdentity) -> None:
    """Count a request's connection as a connection of the client's token.

    Raises:
        web.HTTPException: 503 = the token has too many connections.
    """
    admitted = getattr(request.protocol, "admit_request", None)
    if admitted is not None and not admitted(identity):
        raise web.HTTPServiceUnavailable(
            text=f"'{identity.name}' has too many open connections\n", headers={hdrs.RETRY_AFTER: "1", hdrs.CONNECTION: "close"}
        )


@web.middleware
async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Check Host, Origin and content type, then call the handler."""
    request.config_dict[GUARD].check(request)
    return await handler(request)


async def mark_response(_request: web.Request, response: web.StreamResponse) -> None:
    """Set headers that forbid content sniffing and embedding in other pages. The application calls this for each response."""
    response.headers.update(_HEADERS)


def read_given_token(request: web.Request) -> str:
    """Return the token of a request: bearer header, WebSocket subprotocol, or cookie."""
    kind, _, token = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    if kind.lower() == "bearer":
        return token.strip()
    for word in request.headers.get(hdrs.SEC_WEBSOCKET_PROTOCOL, "").split(","):
        if word.strip().startswith(TOKEN_SUBPROTOCOL):
            return word.strip()[len(TOKEN_SUBPROTOCOL) :]
    return request.cookies.get(COOKIE, "")


def address_of(request: web.Request) -> str:
    """Return the client's address."""
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    return str(peer[0]) if peer else ""


def _has_port(name: str) -> bool:
    return name.rpartition(":")[2].isdigit() and not name.endswith("]") and (name.count(":") == 1 or "]:" in name)


# ------------------------------------------------------------------------------------------------------- limits of sockets

HEADER_LIMIT_S = 30.0
"""Timeout (seconds) for receiving a complete request.

The time starts with the connection, or with the first byte of the connection's next request.
"""
UNIDENTIFIED_LIMIT = 128
"""Maximum number of connections without an accepted token. Each new connection above it closes the oldest of them."""
OWNERS_RESERVE = 32
"""Number of connections reserved for the user who runs the gateway."""
_SHARE = 0.5
"""Maximum share of all connections that one token may use."""
UNREAD_LIMIT_S = 120.0
"""Timeout for a client that does not read: the kernel closes the connection (tcp(7), TCP_USER_TIMEOUT)."""
LINGER_S = 2.0
"""Delay (seconds) before a refused connection is closed. If it were closed while data arrives, the answer would be lost."""
_REFUSED = b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
"""Head of the HTTP answer to a refused client. The client's request is not read."""


class ClientConnection(HttpSocket):
    """One connection of a client; `identity` is None until a request with an accepted token has arrived."""

    __slots__ = ("_closing", "identity")
    _limits: ConnectionLimits

    def __init__(self, *values: Any, **more: Any) -> None:
        super().__init__(*values, **more)
        self._closing: asyncio.TimerHandle | None = None
        """The timer that closes this connection after the client was refused."""
        self.identity: ClientIdentity | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection, or refuse it."""
        super().connection_made(transport)
        with contextlib.suppress(OSError):  # `setsockopt` fails if the client has closed the connection already
            wire = transport.get_extra_info("socket")
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNREAD_LIMIT_S * 1000))
        peer = transport.get_extra_info("peername")
        why = self._limits.refuses(str(peer[0]) if peer else "")
        if why and isinstance(transport, asyncio.Transport):
            text = f"{why}\n".encode()
            transport.write(_REFUSED % len(text) + text)
            if transport.can_write_eof():
                transport.write_eof()
            self._closing = asyncio.get_running_loop().call_later(LINGER_S, transport.close)

    def end(self) -> None:
        """Close this connection to admit a new one.

        A refused connection stays open until its timer ends, so that its answer arrives.
        """
        if self._closing is None:
            super().end()

    def data_received(self, data: bytes) -> None:
        """Read a request; discard the data of a refused client."""
        if self._closing is None:
            super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Unregister the connection."""
        if self._closing is not None:
            self._closing.cancel()
        super().connection_lost(exc)

    def admit_request(self, identity: ClientIdentity) -> bool:
        """Count the connection as one of its token's connections; return False if the token has too many connections."""
        self.note_request()
        return self._limits.admit(self, identity)


class ConnectionLimits(SocketLimits):
    """All connections of one gateway."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit, HEADER_LIMIT_S)
        self._unknown_limit = UNIDENTIFIED_LIMIT
        self.unidentified: dict[HttpSocket, None] = {}
        self.refuses: Callable[[str], str] = lambda _address: ""
        """Called with each client's address; returns why the client is refused, "" = the client is accepted."""

    def make_socket(self, *values: Any, **more: Any) -> HttpSocket:
        """Return the handler of a new connection."""
        return ClientConnection(*values, limits=self, **more)

    def list_idle(self) -> Iterable[HttpSocket]:
        """Return the connections that may be closed to admit a new one: connections without an accepted token."""
        return list(self.unidentified)

    def is_over(self) -> bool:
        """Whether there are too many connections."""
        return len(self.unidentified) > self._unknown_limit or super().is_over()

    def has_capacity(self) -> bool:
        """Whether one more connection is possible without closing another connection."""
        return len(self.unidentified) < self._unknown_limit and super().has_capacity()

    def add(self, connection: HttpSocket) -> None:
        """Register a connection."""
        self.unidentified[connection] = None
        super().add(connection)

    def forget(self, connection: HttpSocket) -> None:
        """Unregister a connection."""
        self.unidentified.pop(connection, None)
        super().forget(connection)

    def admit(self, connection: ClientConnection, identity: ClientIdentity) -> bool:
        """Count a connection as one of its token's connections; return False if the token has too many connections.

        Each token may use a share of all connections. Some connections are reserved for the user who runs the gateway.
        """
        if connection.identity is None:
            others = Counter(name for each in self.all if (name := _name_of(each)))
            owners = others.pop(LOCAL, 0)
            is_much = others[identity.name] >= self._limit * _SHARE or others.total() >= self._limit - OWNERS_RESERVE
            if owners >= self._limit if identity.is_owner else is_much:
                return False
        connection.identity = identity
        self.unidentified.pop(connection, None)
        return True

    def list_unknown(self, is_known: Callable[[ClientIdentity], bool]) -> list[ClientConnection]:
        """Return the connections whose tokens are no longer accepted."""
        held = [(each, each.identity) for each in self.all if isinstance(each, ClientConnection) and each.identity is not None]
        unknown = {identity for identity in {identity for _connection, identity in held} if not is_known(identity)}
        return [connection for connection, identity in held if identity in unknown]


def _name_of(connection: HttpSocket) -> str:
    """Return the name of a connection's token, "" = no token was accepted yet."""
    return connection.identity.name if isinstance(connection, ClientConnection) and connection.identity is not None else ""
