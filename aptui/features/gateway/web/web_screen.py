"""Shows the screen in a browser, and opens a gateway for the demo's page.

The screen runs in textual-serve's terminal on the loopback. The screen has full control of the engine, so a client needs a token.
textual-serve checks neither a token nor the Origin. So this module listens instead of textual-serve: it checks each request, and
calls textual-serve's WebSocket handler only for a valid ticket. A client exchanges its token for a ticket, which is valid for 30
seconds and opens one screen. The script of textual-serve cannot send headers, so the WebSocket's address must contain a secret: the
ticket, which is worthless after its use.

Tests: `tests/features/gateway/web/test_web_screen.py`, `tests/features/gateway/web/test_web_demo.py`.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web
from msgspec import Struct, field
from msgspec.structs import replace

from aptui.config.settings import GatewaySettings
from aptui.features.gateway import gateway_context
from aptui.features.gateway.access import guard, tokens
from aptui.features.gateway.access.guard import GUARD, UNIDENTIFIED_LIMIT, Audit, ConnectionLimits, Guard
from aptui.features.gateway.gateway import Gateway
from aptui.features.gateway.gateway_context import DrawTexture
from aptui.features.gateway.http.demo_page import PAGE
from aptui.features.gateway.http.sending import send_page
from aptui.features.gateway.wire_codec import Scope
from aptui.link import places
from aptui.shared.connections.http_sockets import LimitedServer, bind, refuse_invalid_dates
from aptui.shared.errors import UserError, install_advice

if TYPE_CHECKING:
    from textual_serve.server import Server

    from aptui.config.configuration import Config


SCREENS_LIMIT = 4
"""Maximum number of open screens; each screen is a process."""
TICKET_LIMIT_S = 30.0
"""Time (seconds) for which a ticket is valid."""
_TICKETS_LIMIT = 32
_FOLDER = Path(__file__).parent / "screen"
_OWN = {"/": ("index.html", "text/html"), "/screen.js": ("screen.js", "text/javascript"), "/screen.css": ("screen.css", "text/css")}
_TERMINAL = {"js/textual.js": "text/javascript", "css/xterm.css": "text/css"}
"""Files of textual-serve that the page needs.

The page of textual-serve itself is not served, because that page loads a font from another server.
"""
# 'unsafe-inline' is needed, because the script of textual-serve writes its styles into the page.
_POLICY = "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; connect-src 'self' {socket}"
_IDENTITY = guard.ClientIdentity("web", frozenset(Scope), "")


class Tickets(Struct):
    """The tickets that were issued and not used yet; a ticket opens one screen."""

    clock: Callable[[], float] = time.monotonic
    _given: dict[str, float] = field(default_factory=dict)

    def issue(self) -> str:
        """Return a new ticket; above the maximum number of tickets, the oldest tickets become invalid."""
        ticket = tokens.fresh()
        while len(self._given) >= _TICKETS_LIMIT:
            del self._given[next(iter(self._given))]
        self._given[tokens.digest_of(ticket)] = self.clock()
        return ticket

    def redeem(self, ticket: str) -> bool:
        """Return whether a ticket is valid, and invalidate it."""
        given = self._given.pop(tokens.digest_of(ticket), None)
        return given is not None and self.clock() - given <= TICKET_LIMIT_S


class Web:
    """The web application that shows screens in browsers.

    Args:
        terminal: textual-serve; its handler runs a screen.
    """

    def __init__(self, terminal: Server, rules: Guard) -> None:
        self._terminal, self._rules = terminal, rules
        self._tickets = Tickets()
        self._screens: dict[int, web.Request] = {}

    def application(self) -> web.Application:
        """Return the application with all routes."""
        app = web.Application(middlewares=[guard.middleware], client_max_size=1 << 16)
        app[GUARD] = self._rules
        app.on_response_prepare.append(guard.mark_response)
        app.on_shutdown.append(self._end_screens)
        for path in _OWN:
            app.router.add_get(path, self._send_page)
        app.router.add_get("/static/{name:[a-z./]+}", self._open_terminal)
        app.router.add_post("/ticket", self._send_ticket)
        app.router.add_get("/ws/{ticket}", self._open)
        return app

    async def _send_page(self, request: web.Request) -> web.Response:
        file, kind = _OWN[request.path]
        # `request.host` is safe to use, because the guard has checked the header `Host`.
        return send_page(_FOLDER / file, kind, _POLICY.format(socket=f"ws://{request.host}"))

    async def _open_terminal(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if name not in _TERMINAL:
            raise web.HTTPNotFound
        refuse_invalid_dates(request)
        return web.FileResponse(
            Path(self._terminal.statics_path, name), headers={"Content-Type": f"{_TERMINAL[name]}; charset=utf-8"}
        )

    async def _send_ticket(self, request: web.Request) -> web.Response:
        self._rules.require(request, Scope.SHUTDOWN)
        guard.admit(request, _IDENTITY)
        if len(self._screens) >= SCREENS_LIMIT:
            raise web.HTTPServiceUnavailable(text=f"{SCREENS_LIMIT} screens are open already; close one\n")
        return web.json_response({"ticket": self._tickets.issue()}, headers={"Cache-Control": "no-store"})

    async def _open(self, request: web.Request) -> web.StreamResponse:
        if not self._tickets.redeem(request.match_info["ticket"]):
            raise web.HTTPForbidden(text="the ticket of this page is invalid or expired; load the page again\n")
        if len(self._screens) >= SCREENS_LIMIT:
            raise web.HTTPServiceUnavailable(text=f"{SCREENS_LIMIT} screens are open already\n")
        identity = guard.ClientIdentity(_IDENTITY.name, _IDENTITY.scopes, guard.address_of(request))
        guard.admit(request, identity)
        self._rules.audit.write(identity, "screen", "opened")
        self._screens[id(request)] = request
        try:
            return await self._terminal.handle_websocket(request)
        finally:
            del self._screens[id(request)]
            self._rules.audit.write(identity, "screen", "closed")

    async def _end_screens(self, _app: web.Application) -> None:
        for request in list(self._screens.values()):
            if request.transport is not None:
                request.transport.close()


# ------------------------------------------------------------------------------------------------------------ start and end


class TerminalPage:
    """Serves screens to browsers: `open`, then `close`.

    Args:
        command: command that draws a screen on a terminal.
    """

    def __init__(self, command: Sequence[str], audit: Path, port: int = 0) -> None:
        self._command, self._audit, self._port = command, audit, port
        self._server: LimitedServer | None = None

    async def open(self) -> str:
        """Listen, and return the address with the token.

        Raises:
            UserError: textual-serve is not installed. BusyError: the port is taken.
        """
        try:
            from textual_serve.server import Server
        except ImportError:
            hint = install_advice("web")
            raise UserError("the screen in a browser needs textual-serve, which is not installed", hint=hint) from None
        bridge = [sys.executable, "-P", "-m", "aptui.features.gateway.web.web_terminal", *self._command]
        serve, token = GatewaySettings(port=self._port), tokens.fresh()
        listening = bind(serve.address, serve.port, "--port")
        try:
            # A path below /dev/null cannot be a file. So there are no stored tokens, and only `token` is accepted.
            rules = Guard(serve, tokens.Tokens(Path(os.devnull, "none"), token), Audit(self._audit))
            app = Web(Server(shlex.join(bridge)), rules).application()
            self._server = LimitedServer(app, ConnectionLimits(2 * SCREENS_LIMIT + UNIDENTIFIED_LIMIT), handler_cancellation=True)
            port = await self._server.open(listening)
        except BaseException:
            listening.close()
            await self.close()
            raise
        return f"http://127.0.0.1:{port}/#token={token}"

    async def close(self) -> None:
        """End every screen and stop listening."""
        if self._server is not None:
            await self._server.close()


async def run(config: Config, command: Sequence[str], port: int, say: Callable[[str], object]) -> None:
    """Serve screens to browsers until a signal arrives.

    Args:
        command: command that draws its screen on a terminal.
        port: port of the loopback, 0 = any free port.
        say: called with the address.

    Raises:
        KnownError: the server cannot listen.
    """
    page = TerminalPage(command, config.log_dir / "gateway-audit.log", port)
    over, address = gateway_context.end_signal(), await page.open()
    try:
        say(address)
        await over.wait()
    finally:
        await page.close()


async def run_demo(config: Config, opened: Callable[[str], object], draw_texture: DrawTexture) -> None:
    """Run a gateway with a read-only token for the page of a demo project (`http.demo_page`) until a signal arrives.

    Args:
        config: configuration of the project, whose engine runs.
        opened: called with the address of the page.
        draw_texture: see `GatewayContext`.

    Raises:
        KnownError: the gateway cannot listen.
    """
    over = gateway_context.end_signal()
    config = replace(config, serve=replace(config.serve, address="127.0.0.1", port=0, tls_cert="", tls_key=""))
    with tempfile.TemporaryDirectory(prefix="aptui-demo-") as folder:
        token_file = Path(folder, tokens.FILE)
        token = tokens.add(token_file, "demo page", {Scope.READ})
        gateway = Gateway(config, token_file)
        place = await gateway.open()
        assert gateway.parts is not None
        gateway.parts.draw_texture = draw_texture
        try:
            places.announce_gateway(config.cache_dir, place)
            opened(f"{place.url}{PAGE}#token={token}")
            await over.wait()
        finally:
            with contextlib.suppress(OSError):
                places.retract_gateway(config.cache_dir)
            await gateway.close()
