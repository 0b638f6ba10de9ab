"""Forwards requests of connected devices to other services: HTTP, and raw TCP through a WebSocket.

`/v1/proxy/{name}/{rest}` is open to clients that have a WebSocket with the same token from the same address. The service receives
neither the gateway's token nor its cookies, cannot set cookies, and cannot redirect the gateway. The answers of the service are
marked so that scripts in them do not run in a browser, because these scripts would have the rights of the gateway's pages.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from urllib.parse import unquote, urlsplit

import aiohttp
from aiohttp import WSMsgType, hdrs, web
from msgspec import Struct
from multidict import CIMultiDict
from yarl import URL

from aptui.features.gateway import gateway_context
from aptui.features.gateway.access.guard import ClientIdentity, require
from aptui.features.gateway.gateway_context import CONTEXT, HttpSession
from aptui.features.gateway.wire_codec import FRAME_LIMIT_BYTES, Scope
from aptui.features.gateway.ws.client_sessions import SESSIONS
from aptui.shared.errors import UserError

# Forwards raw TCP through a WebSocket, for example to a remote shader compiler. In both directions, each binary frame contains the
# next bytes of the stream.

_PIECE_BYTES = 1 << 16
"""Maximum number of bytes that are forwarded at a time."""
_HEARTBEAT_S = 30.0
"""Interval of pings in seconds; a connection ends if a ping is not answered."""
_GONE = 1011
"""Close code of a WebSocket when the server cannot continue (RFC 6455 §7.4.1)."""


async def relay(request: web.Request, target: ProxyTarget, limits: ProxyLimits) -> web.StreamResponse:
    """Connect a WebSocket with a service for raw TCP until either side ends.

    Raises:
        web.HTTPException: the request is not a WebSocket, or the service does not answer.
    """
    socket = web.WebSocketResponse(heartbeat=_HEARTBEAT_S, max_msg_size=FRAME_LIMIT_BYTES, compress=False)
    if not socket.can_prepare(request).ok:
        raise web.HTTPUpgradeRequired(text="this service accepts only a WebSocket with binary frames\n")
    try:
        connecting = asyncio.open_connection(target.host, target.port, limit=_PIECE_BYTES)
        reader, writer = await asyncio.wait_for(connecting, limits.connect_s)
    except (OSError, TimeoutError):
        raise web.HTTPBadGateway(text="the service cannot be reached\n") from None
    try:
        await socket.prepare(request)
        back = asyncio.get_running_loop().create_task(_send_to_client(reader, socket, limits.quiet_s))
        try:
            await _send_to_service(socket, writer, limits.quiet_s)
        finally:
            await gateway_context.end(back)
    finally:
        writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return socket


async def _send_to_service(socket: web.WebSocketResponse, writer: asyncio.StreamWriter, quiet_s: float) -> None:
    async for message in socket:
        if message.type is not WSMsgType.BINARY:
            await socket.close(code=1003, message=b"only binary frames are allowed")
            return
        try:
            writer.write(message.data)
            await asyncio.wait_for(writer.drain(), quiet_s)
        except (OSError, TimeoutError):
            await socket.close(code=_GONE, message=b"the service does not read")
            return


async def _send_to_client(reader: asyncio.StreamReader, socket: web.WebSocketResponse, quiet_s: float) -> None:
    """Send the bytes of the proxied service to the client. Close the WebSocket when the service ends its connection."""
    try:
        while piece := await reader.read(_PIECE_BYTES):
            await asyncio.wait_for(socket.send_bytes(piece), quiet_s)
        await socket.close(code=1000, message=b"the service has ended")
    except (OSError, TimeoutError):
        await socket.close(code=_GONE, message=b"the connection to the service was lost")


PREFIX = "/v1/proxy/"
_HOP_BY_HOP = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
    "transfer-encoding",
    "upgrade",
})  # fmt: skip
"""Headers that are not forwarded, because they are valid for one connection only (RFC 9110 §7.6.1)."""
_NOT_FORWARDED = frozenset({"host", "authorization", "cookie", "origin", "referer", "forwarded", "x-forwarded-for", "expect"})
"""Headers that are not forwarded, because they are for the gateway only, or because the gateway sets them itself."""
_NOT_RETURNED = frozenset({
    "set-cookie", "content-security-policy", "access-control-allow-origin", "strict-transport-security", "location", "refresh",
    "clear-site-data", "alt-svc", "nel", "report-to",
})  # fmt: skip
"""Headers that are removed from a service's answer, because browsers would apply them to the gateway's origin.

Redirects get a new `location`: the service's value after a check, rewritten to an address of the gateway.
"""
_MOST_DECODINGS = 8
"""Maximum number of percent-decodings of a path.

The path `%2525…25` needs one decoding for each `25`, and the gateway serves no other client while it decodes.
"""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class ProxyLimits(Struct, frozen=True):
    """Limits of forwarded requests.

    Args:
        connect_s: timeout of the connection to the service; `quiet_s` is the maximum pause between two chunks of a body, and
            the timeout for a side of a WebSocket that does not read.
        request_bytes, response_bytes: maximum sizes of the bodies of requests and answers.
        at_once: maximum number of requests of one client at a time; `in_all` of all clients.
    """

    connect_s: float = 5.0
    quiet_s: float = 120.0
    request_bytes: int = 64 << 20
    response_bytes: int = 256 << 20
    at_once: int = 16
    in_all: int = 64


class ProxyTarget(Struct, frozen=True):
    """A service: `base` is its URL without a final slash, "" = raw TCP to `host` and `port`."""

    base: str
    host: str
    port: int


class Proxy:
    """All configured services, and the number of running requests."""

    def __init__(self, known: dict[str, ProxyTarget]) -> None:
        self.known, self.limits = known, ProxyLimits()
        self._session: HttpSession | None = None
        self._busy: Counter[str] = Counter()

    async def open(self) -> None:
        """Open the HTTP session."""
        limit = aiohttp.ClientTimeout(total=None, sock_connect=self.limits.connect_s, sock_read=self.limits.quiet_s)
        self._session = HttpSession(
            self.limits.in_all, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar(), timeout=limit, trust_env=False,
            skip_auto_headers=(hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.CONTENT_TYPE, hdrs.USER_AGENT),
        )  # fmt: skip

    async def close(self) -> None:
        """Close the HTTP session."""
        if self._session is not None:
            await self._session.close()

    @contextlib.contextmanager
    def count_request(self, identity: ClientIdentity) -> Iterator[None]:
        """Count a request of a client during the `with` block.

        Raises:
            web.HTTPException: too many requests are running.
        """
        if self._busy[identity.name] >= self.limits.at_once or self._busy.total() >= self.limits.in_all:
            raise web.HTTPServiceUnavailable(text="too many requests are being forwarded\n", headers={hdrs.RETRY_AFTER: "1"})
        self._busy[identity.name] += 1
        try:
            yield
        finally:
            self._busy[identity.name] -= 1

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Forward a request to a service of `serve.proxies`, while a WebSocket of the same token is open."""
        identity = require(request, Scope.READ)
        sessions = [(session.identity.name, session.identity.address) for session in request.config_dict[SESSIONS]]
        if (identity.name, identity.address) not in sessions:
            raise web.HTTPForbidden(text="this address is only for devices that have an open WebSocket to the gateway\n")
        target = self.known.get(request.match_info["name"])
        if target is None:
            raise web.HTTPNotFound(text="there is no service with this name; the services are in 'serve.proxies'\n")
        with self.count_request(identity):
            if not target.base:
                return await relay(request, target, self.limits)
            return await self._forward(request, target)

    # ---------------------------------------------------------------------------------------------------------- one request

    async def _forward(self, request: web.Request, target: ProxyTarget) -> web.StreamResponse:
        assert self._session is not None
        url, body = make_forwarded_url(request, target), _Body(request, self.limits)
        if (request.content_length or 0) > self.limits.request_bytes:
            raise web.HTTPRequestEntityTooLarge(self.limits.request_bytes, request.content_length or 0)
        headers = _pass_headers(request.headers, _NOT_FORWARDED)
        headers["X-Forwarded-For"] = request.remote or ""
        try:
            data = body.pieces() if request.body_exists else None
            async with self._session.http.request(request.method, url, headers=headers, data=data, allow_redirects=False) as answer:
                return await self._answer(request, target, answer)
        except TimeoutError:
            raise web.HTTPGatewayTimeout(text="the service did not answer in time\n") from None
        except (aiohttp.ClientError, OSError) as error:
            if body.is_too_long:
                raise web.HTTPRequestEntityTooLarge(self.limits.request_bytes, self.limits.request_bytes + 1) from None
            raise web.HTTPBadGateway(
                text=f"the service cannot be reached, or its answer is invalid: {type(error).__name__}\n"
            ) from None

    async def _answer(self, request: web.Request, target: ProxyTarget, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        if (answer.content_length or 0) > self.limits.response_bytes:
            raise web.HTTPBadGateway(text="the answer of the service is too long\n")
        if not 200 <= answer.status < 600:
            raise web.HTTPBadGateway(text=f"the answer of the service is invalid: its status is {answer.status}\n")
        response = web.StreamResponse(
            status=answer.status, reason=answer.reason, headers=_pass_headers(answer.headers, _NOT_RETURNED)
        )
        response.headers["Content-Security-Policy"] = "sandbox"
        if answer.status in _REDIRECTS:
            response.headers[hdrs.LOCATION] = _own_address(request, target, answer)
        try:
            await response.prepare(request)
        except ValueError:
            raise web.HTTPBadGateway(text="the answer of the service is invalid: its headers have control characters\n") from None
        try:
            await self._send_body(answer, response)
        except (aiohttp.ClientError, OSError, TimeoutError):
            # Abort the connection: if this incomplete answer ended normally, the client would believe that it is complete.
            if request.transport is not None:
                request.transport.abort()
        return response

    async def _send_body(self, answer: aiohttp.ClientResponse, response: web.StreamResponse) -> None:
        sent = 0
        async for piece in answer.content.iter_chunked(_PIECE_BYTES):
            sent += len(piece)
            if sent > self.limits.response_bytes:
                raise aiohttp.ClientPayloadError("the answer is too long")
            await asyncio.wait_for(response.write(piece), self.limits.quiet_s)
        await response.write_eof()


class _Body:
    """The body of a client's request, read in chunks."""

    def __init__(self, request: web.Request, limits: ProxyLimits) -> None:
        self._request, self._limits = request, limits
        self.is_too_long = False

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the chunks of the body.

        Raises:
            ValueError: the body is too long. TimeoutError: the client stopped sending.
        """
        taken = 0
        while piece := await asyncio.wait_for(self._request.content.readany(), self._limits.quiet_s):
            taken += len(piece)
            if taken > self._limits.request_bytes:
                self.is_too_long = True
                raise ValueError("too long")
            yield piece


def _pass_headers(headers: Mapping[str, str], withheld: frozenset[str]) -> CIMultiDict[str]:
    """Return the headers to forward. Headers that `Connection` names are not forwarded, because they are for one hop only."""
    named = {word.strip().lower() for word in headers.get(hdrs.CONNECTION, "").split(",")}
    barred = _HOP_BY_HOP | withheld | named
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in barred)


def make_forwarded_url(request: web.Request, target: ProxyTarget) -> URL:
    """Return the URL at the service: the client's path below the service's base.

    Raises:
        web.HTTPException: the path leads out of the base.
    """
    _, _, rest = request.rel_url.raw_path.removeprefix(PREFIX).partition("/")
    if _may_leave(rest):
        raise web.HTTPBadRequest(text="this path leads out of the base path of the service\n")
    query = request.rel_url.raw_query_string
    return URL(f"{target.base}/{rest}{'?' if query else ''}{query}", encoded=True)


def _may_leave(path: str) -> bool:
    """Whether a server could resolve a path to a path outside the server's base, after any number of percent-decodings."""
    for word in path.split("/"):
        plain = word
        for _ in range(_MOST_DECODINGS):
            plain = unquote(plain)
        if unquote(plain) != plain:
            return True
        name = plain.partition(";")[0]  # some servers, such as Tomcat, read parameters after ";" (RFC 3986 §3.3)
        if name in (".", "..") or not plain.isprintable() or "\\" in plain or "/" in plain:
            return True
    return False


def _own_address(request: web.Request, target: ProxyTarget, answer: aiohttp.ClientResponse) -> str:
    """Return the target of a service's redirect as an address of the gateway.

    Raises:
        web.HTTPException: the target is not below the service's base.
    """
    try:
        place = str(answer.url.join(URL(answer.headers.get(hdrs.LOCATION, ""), encoded=True)))
    except ValueError:
        place = ""
    if not place.startswith(f"{target.base}/") or _may_leave(place.removeprefix(target.base).partition("?")[0].partition("#")[0]):
        raise web.HTTPBadGateway(text="the service redirects to another server, which is not allowed\n")
    return f"{PREFIX}{request.match_info['name']}{place.removeprefix(target.base)}"


def targets(proxies: Iterable[tuple[str, str]]) -> dict[str, ProxyTarget]:
    """Return {name: service}.

    Raises:
        UserError: a URL is not `http://…`, `https://…` or `tcp://host:port`.
    """
    return {name: _target(name, url) for name, url in proxies}


def _target(name: str, url: str) -> ProxyTarget:
    hint = "as 'http://127.0.0.1:8080/path' or 'tcp://127.0.0.1:61453'"
    try:
        found = urlsplit(url)
        host, port = found.hostname or "", found.port
    except ValueError:
        raise UserError(f"'serve.proxies': '{name}': '{url}' is not a URL", hint=hint) from None
    if found.scheme in ("http", "https") and host and not found.query and not found.fragment and found.username is None:
        return ProxyTarget(url.rstrip("/"), host, port or 0)
    if found.scheme == "tcp" and host and port and not found.path.strip("/"):
        return ProxyTarget("", host, port)
    raise UserError(f"'serve.proxies': '{name}': '{url}' cannot be a service", hint=hint)


PROXY = web.AppKey("proxy", Proxy)


def add_routes(app: web.Application) -> None:
    """Add the routes that forward requests to the services of `serve.proxies`."""
    proxy = app[PROXY] = Proxy(targets(app[CONTEXT].config.serve.proxies))
    app.on_startup.append(lambda _app: proxy.open())
    app.on_cleanup.append(lambda _app: proxy.close())
    app.router.add_route("*", f"{PREFIX}{{name}}", proxy.handle)
    app.router.add_route("*", f"{PREFIX}{{name}}/{{rest:.*}}", proxy.handle)
