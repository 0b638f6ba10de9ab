"""What every part of the gateway shares: the configuration, the database, the engine's link, the guard, who is connected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from aptui.config.model import Config
    from aptui.serve.access.guard import Guard
    from aptui.serve.access.limits import ConnectionLimits
    from aptui.serve.database import Database
    from aptui.serve.engine import EngineLink
    from aptui.serve.http.product_opener import ProductOpener
    from aptui.serve.ws.news import NewsPublisher, NewsPulse
    from aptui.serve.ws.sessions import WireSessions


@dataclass(slots=True)
class GatewayContext:
    """One gateway.

    Args:
        config: of the project; `config.serve` says where it listens.
        database: questions to the asset database, answered in threads.
        engine: words to the engine and its news.
        guard: who may come in, and what they may do.
        sessions: the WebSockets that are open.
        teller: makes notifications of the engine's news.
        port: the one it listens at, 0 = not yet.
        doors: its sockets, and `app` its application, once there are.
    """

    config: Config
    database: Database
    engine: EngineLink
    guard: Guard
    sessions: WireSessions
    teller: NewsPublisher
    port: int = 0
    doors: ConnectionLimits | None = None
    app: web.Application | None = None

    @property
    def shelf(self) -> ProductOpener:
        """Where products are taken from, each as its row says."""
        from aptui.serve.http.files import SHELF

        assert self.app is not None
        return self.app[SHELF]

    @property
    def pulse(self) -> NewsPulse:
        """Beats after each batch of news."""
        return self.teller.pulse


ROOM = web.AppKey("room", GatewayContext)


def room_of(request: web.Request) -> GatewayContext:
    """Return the room of a request, in applications inside the application too."""
    return request.config_dict[ROOM]
