"""When the Builders screen reads: when it is first shown, and again when jobs ended since, some time after the last read.

Reads are done in a thread; nothing is polled. What is read is said in `builders.facts`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from aptui.config.dirs import asset_database
from aptui.tui.background import run_in_background
from aptui.tui.screens.builders.facts import BuilderPlaces, FoundBuilders, find

if TYPE_CHECKING:
    from aptui.tui.pane import Shell

READ_AGAIN_S = 2.0
"""So long after a read, at least, and five times as long as it took, the next one begins."""


class BuilderReading:
    """What was found by the last read, and when the next one begins.

    Args:
        set_timer: has a function called after so many seconds.
        due: called when a read that had to wait may begin: `poll` is to be called.
        taken: called in the app's thread with what had been found before, after each read.
    """

    def __init__(
        self,
        shell: Shell,
        set_timer: Callable[[float, Callable[[], None]], object],
        due: Callable[[], None],
        taken: Callable[[FoundBuilders], None],
    ) -> None:
        self._shell, self._set_timer, self._due, self._taken = shell, set_timer, due, taken
        self.found = FoundBuilders()
        self.is_known = self.is_stale = False
        self.is_busy = False
        """Whether a read is under way, or waits for its time."""
        self.read_s = self._took_s = 0.0

    def poll(self) -> None:
        """Read where that is wanted and its time has come."""
        if not self.is_stale or self.is_busy:
            return
        wait_s = self.read_s + max(READ_AGAIN_S, 5 * self._took_s) - time.monotonic() if self.is_known else 0
        self.is_busy = True
        if wait_s > 0:
            self._set_timer(wait_s, self._stop_waiting)
        else:
            self._read()

    def _stop_waiting(self) -> None:
        self.is_busy = False
        self._due()

    def _read(self) -> None:
        shell, config = self._shell, self._shell.config
        places = BuilderPlaces(
            asset_database(shell.session.cache_dir), config, shell.all_builders,
            {each.uuid: each.name for each in config.project.builders} if config else {},
        )  # fmt: skip
        self.is_stale = False
        run_in_background("aptui-builders", self._find, places)

    def _find(self, places: BuilderPlaces) -> None:
        """Read, in a thread."""
        began_s = time.monotonic()
        found = find(places)
        self._shell.in_ui(self._take, found, time.monotonic() - began_s)

    def _take(self, found: FoundBuilders, took_s: float) -> None:
        was = self.found
        self.is_busy, self.is_known = False, True
        self.read_s, self._took_s, self.found = time.monotonic(), took_s, found
        self._taken(was)
