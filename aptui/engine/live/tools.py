"""Re-stat of the tools of commands beside a live engine: from time to time, and whenever a client asks for all changes.

Their folders are not watched: a tool may lie anywhere, behind any number of links, and a look costs one stat each.

Tests: `tests/engine/live/test_supervisor.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from msgspec.structs import replace

from aptui.config import tools
from aptui.config.model import Config, ToolSettings

_CHECK_EVERY_S = 1.0


class Tools:
    """The tools of one configuration after the other.

    Args:
        changed: called when one is not what it was when it was last looked at, or is gone.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._config: Config | None = None
        self._seen: tuple[ToolSettings, ...] | None = ()
        self._due_s = math.inf

    def next_deadline(self, config: Config) -> float:
        """Return when (monotonic) it is time to look again: at once at others, infinite where there are none."""
        if not config.tools:
            return math.inf
        return self._due_s if config is self._config else 0.0

    def poll(self, config: Config, now_s: float) -> None:
        """Look at them when it is time."""
        if now_s < self.next_deadline(config):
            return
        self.check(config)
        self._due_s = now_s + _CHECK_EVERY_S

    def check(self, config: Config) -> None:
        """Look at them now."""
        if not config.tools:
            return
        if config is not self._config:
            self._config, self._seen = config, config.tools
        now = tools.refresh_tools(replace(config, tools=self._seen or config.tools))
        seen, before = (now.tools if now is not None else None), self._seen
        self._seen = seen
        if (seen and tools.without_stamps(seen)) != (before and tools.without_stamps(before)):
            self._changed()
