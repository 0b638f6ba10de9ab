"""What every part of the gateway shares: the configuration, the database, the engine's link, the guard.

Who is connected is `ws.sessions`' business.

Tests: `tests/features/gateway/peers/test_proxy.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Callable

    from aptui.config.model import Config
    from aptui.features.gateway.access.guard import Guard
    from aptui.features.gateway.access.limits import ConnectionLimits
    from aptui.features.gateway.database import Database
    from aptui.features.gateway.engine import EngineLink
    from aptui.features.gateway.news_pulse import NewsPulse


@dataclass(slots=True)
class GatewayContext:
    """One gateway.

    Args:
        config: of the project; `config.serve` says where it listens.
        database: questions to the asset database, answered in threads.
        engine: words to the engine and its news.
        guard: who may come in, and what they may do.
        pulse: beats after each batch of news.
        reread: returns the configuration as it is now, None = it stays as it is.
        port: the one it listens at, 0 = not yet.
        connections: its sockets, and `app` its application, once there are.
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


CONTEXT = web.AppKey("room", GatewayContext)


def context_of(request: web.Request) -> GatewayContext:
    """Return the room of a request, in applications inside the application too."""
    return request.config_dict[CONTEXT]
