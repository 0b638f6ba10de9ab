"""Which clients may connect and what they may do: Host, Origin, tokens, scopes, rates, the audit log.

A handler's first line is `identity = require(request, Scope.READ)`. Host and Origin are looked at before any handler, by
`middleware`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import hdrs, web
from msgspec import Struct, field

from aptui.features.gateway.access.tokens import LOCAL, Tokens
from aptui.features.gateway.protocol.codec import Scope
from aptui.shared.connections.addresses import is_loopback
from aptui.shared.floods import FloodGate, more_like_this

if TYPE_CHECKING:
    from aptui.config.sections.serve import GatewaySettings

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
