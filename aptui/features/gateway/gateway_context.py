"""The shared objects of the gateway: configuration, database, connection to the engine, access rules, tasks, HTTP sessions.

Tests: `tests/features/gateway/peers/test_proxy.py`, `tests/features/gateway/access/test_guard.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import aiohttp
from aiohttp import web

from aptui.features.gateway.wire_codec import RequestMistake

if TYPE_CHECKING:
    from aptui.config.configuration import Config
    from aptui.features.gateway.access.guard import ConnectionLimits, Guard
    from aptui.link.engine_link import EngineLink, NewsPulse
    from aptui.store.queries.serving import Database


DrawTexture: TypeAlias = "Callable[[str, str], tuple[str, bytes] | str]"


# Helpers for servers: background tasks that report their errors at once, signals that end a server, and outgoing HTTP sessions that
# close their sockets.

_TURNS, _TURN_S = 100, 0.01
"""Maximum number of checks whether closed sockets are released, and interval between these checks (seconds)."""


class HttpSession:
    """An outgoing HTTP session, `http`, that closes its sockets reliably. A plain session of aiohttp may leave sockets open.

    Args:
        session: further arguments of `aiohttp.ClientSession`.
    """

    def __init__(self, limit: int = 100, **session: Any) -> None:
        self._open: list[socket.socket] = []
        connector = aiohttp.TCPConnector(limit=limit, socket_factory=self._make_socket)
        self.http = aiohttp.ClientSession(connector=connector, **session)

    def _make_socket(self, address: tuple[Any, ...]) -> socket.socket:
        opened = socket.socket(*address[:3])
        self._open = [*(each for each in self._open if each.fileno() >= 0), opened]
        return opened

    async def close(self) -> None:
        """Close the session, shut down its sockets, and wait until they are closed.

        Over TLS, the close waits for an answer of the server. Without this wait, the event loop could end while transports are
        open.
        """
        await self.http.close()
        for opened in self._open:
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
        for _ in range(_TURNS):
            if all(opened.fileno() < 0 for opened in self._open):
                return
            await asyncio.sleep(_TURN_S)


def end_signal() -> asyncio.Event:
    """Return an event that is set when the process gets SIGTERM, SIGINT or SIGHUP; an event loop must be running."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, over.set)
    return over


def begin(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Start a task in the running loop. Its errors go to the loop's exception handler, except errors of lost connections."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    task.add_done_callback(_log_failure)
    return task


async def end(*tasks: asyncio.Task[None] | None) -> None:
    """Cancel tasks and wait until they have ended; None stands for a task that was not started."""
    started = [task for task in tasks if task is not None]
    for task in started:
        task.cancel()
    await asyncio.gather(*started, return_exceptions=True)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, ConnectionError):
        task.get_loop().call_exception_handler({"message": f"{task.get_name()} failed", "exception": error, "task": task})


@dataclass(slots=True)
class GatewayContext:
    """The shared objects of one gateway.

    Args:
        config: configuration of the project; its field `serve` has the settings of the gateway.
        pulse: wakes waiting tasks after each batch of notices.
        reread: returns the current configuration, None = the configuration does not change.
        draw_texture: draws a texture (path, name) for the demo's page; returns (size and format as text, PNG), or why the texture
            cannot be drawn.
        port: the port at which the gateway listens, 0 = the gateway does not listen yet.
        connections: the connections of the gateway's clients; `app` is the web application. Both fields are None before the
            gateway listens.
    """

    config: Config
    database: Database
    engine: EngineLink
    guard: Guard
    pulse: NewsPulse
    reread: Callable[[], Config] | None = None
    port: int = 0
    connections: ConnectionLimits | None = None
    app: web.Application | None = None
    draw_texture: DrawTexture | None = None

    @property
    def platforms(self) -> tuple[str, ...]:
        """Ids of the enabled platforms."""
        return tuple(platform.id for platform in self.config.project.platforms)

    def refuse_unknown(self, platform: str) -> None:
        """Check that a platform is enabled.

        Raises:
            RequestMistake: the platform is not enabled; the message lists the enabled platforms.
        """
        if platform not in self.platforms:
            raise RequestMistake(f"'{platform[:40]}' is not a platform", f"the platforms are {', '.join(self.platforms)}")


CONTEXT = web.AppKey("room", GatewayContext)


def context_of(request: web.Request) -> GatewayContext:
    """Return the gateway's context for a request. This also works in a nested application."""
    return request.config_dict[CONTEXT]
