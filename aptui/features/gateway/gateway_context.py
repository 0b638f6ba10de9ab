"""The shared objects of the gateway: configuration, database, connection to the engine, access rules, and the event pulse.

Tests: `tests/features/gateway/peers/test_proxy.py`, `tests/features/gateway/access/test_guard.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from aiohttp import web

from aptui.features.gateway.wire_codec import RequestMistake

if TYPE_CHECKING:
    from collections.abc import Callable

    from aptui.config.configuration import Config
    from aptui.features.gateway.access.guard import ConnectionLimits, Guard
    from aptui.link.engine_link import EngineLink, NewsPulse
    from aptui.store.queries.reader_pool import Database


DrawTexture: TypeAlias = "Callable[[str, str], tuple[str, bytes] | str]"


@dataclass(slots=True)
class GatewayContext:
    """One gateway.

    Args:
        config: configuration of the project; `config.settings` is that of the gateway.
        database: runs queries in threads.
        engine: connection to the engine.
        guard: access rules.
        pulse: wakes waiting tasks after each batch of notices.
        reread: returns the current configuration, None = it does not change.
        draw_texture: draws a texture (path, name) for the demo's page; returns its facts and a PNG, or the reason why not.
        port: the port it listens at, 0 = not yet.
        connections: its connections; `app` is its application. Both are None before the gateway listens.
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
        """Refuse the id of a platform that is not enabled.

        Raises:
            RequestMistake: with the known ids.
        """
        if platform not in self.platforms:
            raise RequestMistake(f"there is no platform '{platform[:40]}'", f"there are: {', '.join(self.platforms)}")


CONTEXT = web.AppKey("room", GatewayContext)


def context_of(request: web.Request) -> GatewayContext:
    """Return the context of a request, also in nested applications."""
    return request.config_dict[CONTEXT]
