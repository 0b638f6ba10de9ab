"""The gateway process: its application, its socket, its start and its end. A gateway without an engine waits until one starts.

Tests: `tests/features/gateway/access/test_guard.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiohttp import web

from aptui.config import dirs
from aptui.features.gateway import documents, gateway_context, wire_codec
from aptui.features.gateway.access import guard, tokens
from aptui.features.gateway.access.guard import (
    GUARD,
    UNIDENTIFIED_LIMIT,
    Audit,
    ClientConnection,
    ConnectionLimits,
    Guard,
)
from aptui.features.gateway.gateway_context import CONTEXT, GatewayContext
from aptui.features.gateway.http import change_feed, demo_page, http_files
from aptui.features.gateway.peers import peer_connections, proxy
from aptui.features.gateway.ws.client_sessions import REVOKED, SESSIONS, RequestAnswer, WireSession, WireSessions
from aptui.features.gateway.ws.news import NewsPublisher
from aptui.link import places
from aptui.link.engine_link import EngineLink
from aptui.shared.connections.addresses import is_loopback, url_host
from aptui.shared.connections.http_sockets import LimitedServer, bind, load_tls
from aptui.shared.errors import UserError
from aptui.shared.floods import ErrorReports
from aptui.store.queries.serving import Database

if TYPE_CHECKING:
    from pathlib import Path

    from aptui.config.configuration import Config
    from aptui.config.settings import GatewaySettings

_BODY_LIMIT_BYTES = 1 << 20
_KEEPALIVE_S = 30.0
"""Timeout of an HTTP connection between two requests, in seconds."""
_REVOKED_CHECK_S = 1.0
"""Interval (seconds) of the checks for revoked and expired tokens.

It is also the timeout (seconds) for closing a WebSocket whose token is revoked or has expired.
"""
_COLLECTED = (700, 5, 5)
"""Thresholds of the garbage collector (`gc`).

They are low, because each failed connection leaves a reference cycle that contains received bytes.
"""
_NICE = 10
"""Niceness, higher than that of the engine's workers (`engine.pool.worker_processes.PoolSettings`): the workers have priority."""


@dataclass(slots=True, kw_only=True)
class GatewayParts(GatewayContext):
    """All objects of one gateway: the fields of `GatewayContext`, and the objects that only the gateway process starts and ends."""

    sessions: WireSessions
    publisher: NewsPublisher


def build_parts(config: Config, *, local_token: str = "", token_file: Path | None = None) -> GatewayParts:
    """Create the objects of a gateway, without listening or connecting yet."""
    owners = tokens.Tokens(token_file or tokens.path(), local_token)
    sessions = WireSessions(config.serve.clients_limit, _answer)
    database = Database(config.cache_dir / dirs.DATABASE)
    publisher = NewsPublisher(config, database, sessions)
    engine = EngineLink(config.cache_dir, publisher.take_news, publisher.on_engine_change)
    publisher.engine = engine
    guard = Guard(config.serve, owners, Audit(config.log_dir / "gateway-audit.log"))
    return GatewayParts(config, database, engine, guard, publisher.pulse, sessions=sessions, publisher=publisher)


async def _answer(session: WireSession, name: str, request: Any) -> RequestAnswer:
    from aptui.features.gateway.ws.routing import answer  # imported on demand: the import is slow, and only requests need it

    return await answer(session, name, request)


def build_app(parts: GatewayParts) -> web.Application:
    """Return the application with all routes."""
    app = web.Application(middlewares=[guard.middleware, documents.refuse_unknown], client_max_size=_BODY_LIMIT_BYTES)
    app[CONTEXT], app[GUARD], app[SESSIONS], parts.app = parts, parts.guard, parts.sessions, app
    app.on_response_prepare.append(guard.mark_response)
    app.on_shutdown.append(lambda _app: parts.publisher.close())
    app.on_shutdown.append(lambda _app: parts.sessions.close())
    app.router.add_get(wire_codec.PATH, parts.sessions.connect)
    for module in (http_files, change_feed, documents, peer_connections, proxy, demo_page):
        module.add_routes(app)
    return app


class Gateway:
    """One gateway: `open`, then `close`.

    Args:
        token_file: used in place of the user's token file.
    """

    def __init__(self, config: Config, token_file: Path | None = None, reread: Callable[[], Config] | None = None) -> None:
        self.config, self._reread = config, reread
        self._token = tokens.fresh()
        self._token_file = token_file or tokens.path()
        self._server: LimitedServer | None = None
        self._revoking: asyncio.Task[None] | None = None
        self.parts: GatewayParts | None = None

    async def open(self) -> places.GatewayRecord:
        """Listen, and start connecting to the engine. Return the address, and the token of the user who runs the gateway.

        Raises:
            UserError: the configuration is unsafe or invalid. BusyError: the port is taken.
        """
        serve = self.config.serve
        refuse_unsafe(serve, self._token_file)
        context = tls_context(serve)
        listening = bind(serve.address, serve.port, "serve.port")
        try:
            parts = self.parts = build_parts(self.config, local_token=self._token, token_file=self._token_file)
            parts.reread = self._reread
            connections = parts.connections = ConnectionLimits(2 * serve.clients_limit + UNIDENTIFIED_LIMIT)
            connections.refuses = parts.guard.refusal
            self._server = LimitedServer(
                build_app(parts),
                connections,
                acceptor={"context": context, "refuses": parts.guard.refusal},
                keepalive_timeout=_KEEPALIVE_S,
                handler_cancellation=True,
            )
            parts.port = await self._server.open(listening)
            self._revoking = gateway_context.begin(_keep_watch(parts, connections), "checking tokens")
            parts.engine.start()
            parts.publisher.start()
        except BaseException:
            listening.close()
            await self.close()
            raise
        scheme = "https" if context is not None else "http"
        pid, url = os.getpid(), f"{scheme}://{url_host(serve.address)}:{parts.port}"
        return places.GatewayRecord(pid, places.process_start(pid), url, serve.address, parts.port, self._token)

    async def close(self) -> None:
        """End all sessions and release everything."""
        parts, self.parts = self.parts, None
        if parts is None:
            return
        await gateway_context.end(self._revoking)
        if self._server is not None:
            await self._server.close()
        await asyncio.to_thread(parts.engine.close)
        await asyncio.to_thread(parts.database.close)


async def _keep_watch(parts: GatewayParts, connections: ConnectionLimits) -> None:
    """Once per second, end the connections of revoked and expired tokens, and log the number of unlogged refusals.

    First close the WebSockets of the token and send the reason. A second later, drop the connections that still exist.
    """
    warned: set[ClientConnection] = set()
    while True:
        await asyncio.sleep(_REVOKED_CHECK_S)
        await asyncio.to_thread(parts.guard.audit.report_unlogged)
        unknown = connections.list_unknown(parts.guard.is_known)
        for connection in warned.intersection(unknown):
            connection.drop()
        warned = set(unknown)
        revoked = [session for session in parts.sessions if not parts.guard.is_known(session.identity)]
        await asyncio.gather(
            *(asyncio.wait_for(session.close(1008, REVOKED), _REVOKED_CHECK_S) for session in revoked), return_exceptions=True
        )


# ----------------------------------------------------------------------------------------------------- unsafe configurations


def refuse_unsafe(serve: GatewaySettings, token_file: Path) -> None:
    """Refuse an address that other machines can reach if TLS or a token is missing.

    Raises:
        UserError: the message names the missing setting or token.
    """
    if bool(serve.tls_cert) != bool(serve.tls_key):
        lacking = "tls_key" if serve.tls_cert else "tls_cert"
        raise UserError(f"'serve.{lacking}' is missing", hint="set both 'serve.tls_cert' and 'serve.tls_key', or neither")
    if is_loopback(serve.address):
        return
    if not serve.tls_cert:
        raise UserError(
            f"other machines can reach 'serve.address' {serve.address}, but there is no TLS",
            hint="set 'serve.tls_cert' and 'serve.tls_key', or set 'serve.address' to 127.0.0.1",
        )
    if not tokens.read(token_file):
        raise UserError(
            f"other machines can reach 'serve.address' {serve.address}, but there is no token",
            hint="run 'aptui token add NAME' to make a token",
        )


def tls_context(serve: GatewaySettings) -> ssl.SSLContext | None:
    """Return the TLS context, None = no TLS.

    Raises:
        UserError: the certificate or its key cannot be used.
    """
    if not serve.tls_cert:
        return None
    return load_tls(serve.tls_cert, serve.tls_key, "'serve.tls_cert'", "'serve.tls_key'")


# ------------------------------------------------------------------------------------------------------------- the process


def run(
    config: Config, *, say: Callable[[str], object], reread: Callable[[], Config] | None = None, ends_with_input: bool = False
) -> None:
    """Serve until a signal arrives or, with `ends_with_input`, until standard input ends because its writer has ended.

    Args:
        say: called with a sentence about the address.

    Raises:
        KnownError: the gateway cannot listen.
    """
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    # `freeze` makes the garbage collector skip the objects of imported modules, which are never freed. So the collector frees
    # closed connections sooner.
    gc.freeze()
    gc.set_threshold(*_COLLECTED)
    asyncio.run(_run(config, say, reread, ends_with_input=ends_with_input))


async def _run(config: Config, say: Callable[[str], object], reread: Callable[[], Config] | None, *, ends_with_input: bool) -> None:
    loop, over = asyncio.get_running_loop(), gateway_context.end_signal()
    loop.set_exception_handler(ErrorReports().handle)
    if ends_with_input:
        loop.add_reader(sys.stdin.fileno(), over.set)
    gateway = Gateway(config, reread=reread)
    place = await gateway.open()
    try:
        places.announce_gateway(config.cache_dir, place)
        say(f"the gateway of '{config.project_dir}' listens at {place.url}")
        await over.wait()
    finally:
        places.retract_gateway(config.cache_dir)
        await gateway.close()
