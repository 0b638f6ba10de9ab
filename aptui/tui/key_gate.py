"""Keys wait until what they are about is there; what comes too late is dropped with a word. What is awaited, the app says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

WITHIN_S = {"the first rows": 30.0}
"""So long keys wait for something; for all else `_WITHIN_S`."""
_WITHIN_S = 20.0
_LOOK_S = 0.05


class KeyGate:
    """Lets one key after the other through.

    Args:
        awaited: returns what a key, by its name, has to wait for, "" = nothing.
        drop: called with what is to be said of keys that waited in vain.
    """

    def __init__(self, awaited: Callable[[str], str], drop: Callable[[str], object]) -> None:
        self._awaited, self._drop = awaited, drop
        self._moved = asyncio.Event()

    def look(self) -> None:
        """Something changed: look again whether keys may pass."""
        self._moved.set()

    async def lets_through(self, key: str) -> bool:
        """Wait until a key means what people see; return whether it ever did."""
        began_s = time.monotonic()
        while what := self._awaited(key):
            if time.monotonic() - began_s > WITHIN_S.get(what, _WITHIN_S):
                self._drop(f"a key was dropped: {what} took too long")
                return False
            self._moved.clear()
            try:
                async with asyncio.timeout(_LOOK_S):
                    await self._moved.wait()
            except TimeoutError:
                pass
        return True
