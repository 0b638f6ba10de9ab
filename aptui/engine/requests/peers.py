"""Requests about the gateway's connections: the engine keeps the last report and passes orders on; it judges nothing itself.

Tests: `tests/engine/requests/test_handler.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aptui.core.notices import PeerOrdered
from aptui.link import codec
from aptui.shared.errors import HostError

if TYPE_CHECKING:
    from aptui.engine.live.supervisor import EngineSupervisor
    from aptui.shared.connections.peers import GatewayReport, PeerOrder


class PeerRequests:
    """The gateway as the engine knows it."""

    def __init__(self, live: EngineSupervisor) -> None:
        self._live = live
        self._gateway = 0
        self.report: GatewayReport | None = None
        """None = no gateway runs."""

    def take_report(self, client: int, report: GatewayReport) -> None:
        """Note what the gateway says of itself."""
        self._gateway, self.report = client, report

    def pass_on(self, order: PeerOrder) -> None:
        """Tell the gateway what it is to do.

        Raises:
            HostError: none runs.
        """
        live = self._live
        if self.report is None or live.server is None:
            raise HostError("no gateway runs", hint="'serve: {enabled: true}' in aptui.yaml has one started")
        engine = live.engine
        notice = PeerOrdered(engine.inbox.seq if engine else 0, order)
        live.server.say(self._gateway, codec.encode_notice(notice, engine.epoch if engine else 0, notice.cause))

    def forget_client(self, client: int) -> None:
        """A client is gone; if it was the gateway, there is none."""
        if client == self._gateway:
            self._gateway, self.report = 0, None
