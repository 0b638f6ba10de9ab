"""The moments at which anything has happened, for requests that wait. What happened is told by `ws.news`.

Tests: `tests/features/gateway/peers/test_proxy.py`.
"""

from __future__ import annotations

import asyncio


class NewsPulse:
    """Lets requests wait until anything has happened."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def beat(self) -> None:
        """Wake whoever waits."""
        waiting, self._waiting = self._waiting, set()
        for each in waiting:
            if not each.done():
                each.set_result(None)

    async def wait(self, limit_s: float) -> None:
        """Return at the next beat, or after `limit_s`."""
        beat = asyncio.get_running_loop().create_future()
        self._waiting.add(beat)
        try:
            await asyncio.wait((beat,), timeout=limit_s)
        finally:
            self._waiting.discard(beat)
