"""Tells people, once, of each address that the gateway did not let in; how often it came back is in the Connections screen.

Tests: `tests/tui/test_foreign_database.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from aptui.core.notices import ConnectionsChanged
from aptui.shared.connections.peers import GatewayReport
from aptui.tui.terminal.safety import make_safe

if TYPE_CHECKING:
    from aptui.link.codec import NoticeLine

_MOST_REMEMBERED = 1_000
_AT_ONCE = 3
"""So many are told one by one; more of them are told as a number."""


class RejectedPeers:
    """A listener of the session (`session.NoticeListener`).

    Args:
        show_toast: shows a message; called in the session's thread.
    """

    def __init__(self, show_toast: Callable[[str], object]) -> None:
        self._show_toast = show_toast
        self._since_ms = time.time_ns() // 1_000_000
        self._reported: dict[str, None] = {}

    def take(self, news: Sequence[NoticeLine]) -> None:
        """Tell of those who were turned away since the screen is open and whom nobody was told of."""
        for line in news:
            if isinstance(line.notice, ConnectionsChanged) and line.notice.gateway is not None:
                self._report(line.notice.gateway)

    def _report(self, gateway: GatewayReport) -> None:
        fresh = [each for each in gateway.turned_away if each.address not in self._reported and each.last_ms >= self._since_ms]
        self._reported.update(dict.fromkeys(each.address for each in fresh))
        while len(self._reported) > _MOST_REMEMBERED:
            del self._reported[next(iter(self._reported))]
        for each in fresh[:_AT_ONCE]:
            self._show_toast(f"connection refused: {make_safe(each.why)}; the Connections screen can allow it")
        if len(fresh) > _AT_ONCE:
            self._show_toast(f"connections refused: {len(fresh) - _AT_ONCE:,} addresses more; see the Connections screen")

    def note_subscription(self, epoch: int, seq: int, running: Mapping[int, int]) -> None:
        """Nothing is to be read."""

    def note_loss(self) -> None:
        """Nothing is lost."""
