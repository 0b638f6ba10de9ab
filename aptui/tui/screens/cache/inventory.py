"""What the cache holds, as the screen knows it: read when it is shown, and again once assets changed and the engine rests."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from aptui.shared.errors import KnownError
from aptui.shared.printing import count
from aptui.tui.background import BackgroundTask
from aptui.tui.frame.line import Part
from aptui.tui.screens.cache import contents as held
from aptui.tui.screens.cache.contents import CacheInventory
from aptui.tui.terminal.safety import glyph, make_safe
from aptui.tui.widgets.cells import share_bar
from aptui.tui.words import clock, size_text

if TYPE_CHECKING:
    from aptui.tui.data.feed import Batch
    from aptui.tui.pane import Shell

WIDE_COLUMNS = 110
"""From here on the tables stand side by side, and the summary says more."""
_GAUGE_CELLS = 16


class InventoryReader:
    """Reads it in a thread; until it was read again a word says it is older.

    Args:
        taken: called with what was read, in the app's thread.
        changed: called when the summary is to be drawn anew.
    """

    def __init__(self, shell: Shell, taken: Callable[[CacheInventory], object], changed: Callable[[], object]) -> None:
        self._shell, self._taken, self._changed = shell, taken, changed
        self._task = BackgroundTask("aptui-cache-contents", shell.in_ui)
        self._is_stale = True
        self.contents: CacheInventory | None = None
        """None = it was not read yet."""
        self.trouble = ""
        """Why it could not be read."""

    def close(self) -> None:
        """Give up what is under way."""
        self._task.close()

    def note(self, batch: Batch) -> None:
        """Note whether assets changed."""
        self._is_stale = self._is_stale or batch.are_assets_stale or batch.table is not None

    def read_if_stale(self) -> None:
        """Read it if it may be otherwise and the engine rests, or if nothing is known yet."""
        progress = self._shell.session.latest_progress
        is_idle = progress is None or not (progress.jobs_running or progress.jobs_waiting or progress.analyses_running)
        if self._is_stale and (is_idle or self.contents is None) and not self.trouble:
            self.read()

    def read(self) -> None:
        """Read it, unless that is under way: it is read again after that."""
        config, cache_dir = self._shell.config, self._shell.session.cache_dir
        builders = {builder.uuid: builder.name for builder in config.project.builders} if config else {}
        now_ms = int(time.time() * 1000)
        self._is_stale = True
        if self._task.start(lambda _task: held.read_contents(cache_dir, builders, now_ms), self._take, self._fail):
            self._is_stale = False
            self._changed()

    def _take(self, contents: CacheInventory) -> None:
        self.contents, self.trouble = contents, ""
        self._taken(contents)
        self.read_if_stale()  # something may have changed while it was read
        self._changed()

    def _fail(self, error: KnownError) -> None:
        self.trouble = str(error)
        self._changed()

    def summary(self, width: int) -> tuple[Sequence[Part], Sequence[Part]]:
        """Return the line of amounts: what there is at the left, the room on its disk at the right."""
        known = self.contents
        if known is None:
            words, role = (make_safe(self.trouble), "warning") if self.trouble else ("reading what the cache holds…", "muted")
            return (Part(f" {words}", role),), ()
        is_wide, is_all = width >= WIDE_COLUMNS, known.made == known.count
        left = [Part(f" {count(known.count, 'product')}", "title"), Part(f"   {size_text(known.size_bytes)}", "title")]
        made = "all" if is_all else f"{known.made:,}" if known.made else "none"
        if known.count and (is_wide or not self._is_stale):
            left.append(Part(f"   {made} made since yesterday", "muted"))
        if known.made and not is_all and is_wide:
            left.append(Part(f", {size_text(known.made_bytes)}", "muted"))
        if self._is_stale:
            left.append(Part(f"   as of {clock(known.at_ms)}", "warning"))
        return left, _disk(known, is_wide=is_wide)


def _disk(known: CacheInventory, *, is_wide: bool) -> list[Part]:
    if known.disk_bytes <= 0:
        return []
    if not is_wide:
        return [Part(f"{size_text(known.free_bytes)} free on its disk", "muted")]
    words = f"{size_text(known.free_bytes)} of {size_text(known.disk_bytes)} free on its disk"
    return [Part(words, "muted"), Part("  "), *gauge((known.disk_bytes - known.free_bytes) / known.disk_bytes, _GAUGE_CELLS)]


def gauge(share: float, cells: int) -> tuple[Part, ...]:
    """Return a bar with what is left of it as a rule."""
    filled = share_bar(share, cells)
    return Part(filled, "accent"), Part(glyph("rule") * (cells - len(filled)), "rule")
