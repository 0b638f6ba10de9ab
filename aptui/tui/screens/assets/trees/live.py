"""The trees of the Assets screen, kept current: read again when news say so, no more often than reading takes.

Tests: `tests/tui/screens/assets/test_pane.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from aptui.store.queries.reader import NoDatabaseError
from aptui.tui.data.asset_tree import AssetTree, Kind
from aptui.tui.data.session import SessionState
from aptui.tui.screens.assets.trees.search import TreeSearch
from aptui.tui.screens.assets.trees.trees import AssetTrees

if TYPE_CHECKING:
    from aptui.store.jobs.table import Moment
    from aptui.tui.data.feed import Batch
    from aptui.tui.pane import Shell

STALE_S = 1.0
"""Trees are built anew at most so often while the engine works,"""
_REST_FACTOR = 4
"""and take at most a fifth of the time of one processor."""
_MOST_READS = 10
"""So often, a second apart, is looked who is not well until the database says what the news said."""
_MAKES_IT = {SessionState.ATTACHING, SessionState.WAITING, SessionState.ATTACHED, SessionState.REATTACHING}
"""There is, or soon will be, an engine that makes a database."""
_NOTHING = {
    Kind.SOURCES: "no sources yet: files of the scan folders come here",
    Kind.INTERMEDIATES: "no intermediates: products that are sources themselves come here",
    Kind.PRODUCTS: "no products yet: what jobs make comes here",
}
"""What would be in a tree that is empty."""


class LiveTrees:
    """Has trees read again, and shows the newest.

    Args:
        came: called when another tree is shown.
        health_came: called when something else is known of how its rows are.
    """

    def __init__(
        self, shell: Shell, trees: AssetTrees, search: TreeSearch, came: Callable[[], object], health_came: Callable[[], object]
    ) -> None:
        self._shell, self._trees, self._search, self._store = shell, trees, search, trees.store
        self._came, self._health_came = came, health_came
        self._is_stale = self._is_health_stale = False
        self._stale_since, self._has_timer = 0.0, False
        self._newest_moment: Moment = (0, 0)
        self._reads_left = 0

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is to be read again."""
        return not (self._is_stale or self._is_health_stale or self._has_timer)

    def note(self, batch: Batch) -> None:
        """Note that trees are not what they were, or other jobs not well; what runs waits as far as the database knows."""
        self._is_stale |= batch.are_assets_stale
        ended = [news.moment for news in batch.jobs if news.notice.status != "processing"]
        if ended:
            self._newest_moment, self._reads_left = max(self._newest_moment, *ended), _MOST_READS
            self._is_health_stale = True

    def renew(self) -> None:
        """Have what is stale read, now or when the last time is long enough ago."""
        if not (self._is_stale or self._is_health_stale) or self._has_timer:
            return
        wait_s = self._stale_since + max(STALE_S, _REST_FACTOR * self._store.took_s) - time.monotonic()
        if wait_s > 0:
            self._has_timer = True
            self._trees.set_timer(wait_s, self._renew_late)
        else:
            self._stale_since = time.monotonic()
            if self._is_stale:
                self._store.mark_stale()
            self._store.mark_health_stale()
            self._is_stale = self._is_health_stale = False

    def _renew_late(self) -> None:
        self._has_timer = False
        self._shell.wake()

    def take(self) -> None:
        """Show a newer tree; with a search on, as soon as that was searched."""
        model, view = self._trees.model, self._trees.view
        newest = self._store.tree(self._trees.kind)
        self.say_what_is_empty(newest)
        if newest is None or newest is model.tree:
            if model.refresh_health():
                view.fit_health(model.health)
                view.refresh_model()
                self._health_came()
                self._read_until_current()
        elif self._search.is_wanted:
            self._search.start()
        else:
            model.refresh()
            view.fit_health(model.health)
            view.refresh_model()
            self._came()

    def _read_until_current(self) -> None:
        """Read again who is not well where what was read is older than the news: rows come after them."""
        unwell = self._store.unwell
        if unwell is not None and unwell.moment < self._newest_moment and self._reads_left > 0:
            self._reads_left -= 1
            self._is_health_stale = True
            self.renew()

    def search(self) -> None:
        """Search the newest tree in front for what stands in the box, or show all of it again."""
        if self._store.tree(self._trees.kind) is None:
            return
        if self._search.is_wanted:
            self._search.start()
            return
        if self._search.found is not None:
            self._search.lift()
        self.take()

    def say_what_is_empty(self, newest: AssetTree | None) -> None:
        """Say in a tree without rows why it has none."""
        error = self._store.error
        if newest is not None:
            nothing = _NOTHING[self._trees.kind]
        elif isinstance(error, NoDatabaseError) and self._shell.session.state in _MAKES_IT:
            nothing = "nothing was processed yet; what the engine finds comes here"
        else:
            nothing = "reading…" if error is None else str(error)
        if self._search.is_wanted and newest is not None and newest.file_count:
            nothing = "searching…" if self._search.is_under_way else "nothing matches: Esc clears the search"
        self._trees.say_empty(nothing)
