"""The asset or folder whose details the Assets screen shows: that under the cursor, as soon as it was read.

Tests: `tests/tui/screens/assets/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from aptui.tui.data.asset_health import health_text
from aptui.tui.screens.assets.detail import AssetDetail
from aptui.tui.screens.assets.panel import Panel, folder_panel, read_panel
from aptui.tui.screens.assets.query_worker import PREVIEW
from aptui.tui.screens.assets.readers import AssetReaders
from aptui.tui.screens.assets.trees.trees import AssetTrees, Place
from aptui.tui.screens.assets.why import read_why

if TYPE_CHECKING:
    from aptui.tui.data.feed import Batch


class SelectedAsset:
    """Reads it and shows it; `panel` is what was read of it, None = nothing yet."""

    def __init__(self, readers: AssetReaders, trees: AssetTrees, detail: AssetDetail) -> None:
        self._readers, self._trees, self._detail = readers, trees, detail
        self.panel: Panel | None = None
        self.place: Place | None = None
        """Where it is in the trees."""
        self._is_stale = False
        self._later: tuple[Place, Callable[[Panel], object]] | None = None

    def show_row(self, key: int) -> None:
        """Show a row of the tree in front: a folder at once, others when they are read."""
        place = (self._trees.kind, key)
        if place == self.place and self.panel is not None and key >= 0:
            return
        self.place = place
        tree, node, health = self._trees.model.tree, self._trees.model.node_of(key), self._trees.model.health
        if key >= 0:
            self._read(place)
        elif tree is not None and node is not None:
            count = int(np.count_nonzero(tree.keys[node : int(tree.end[node])] >= 0))
            says = health_text(health.counts(node)) if health is not None else ""
            self._show(folder_panel(self._trees.kind, key, tree.path(node), count, self._readers.places, says))

    def clear(self) -> None:
        """Show nothing: the tree has no row, or none yet."""
        self.place = self.panel = None
        self._detail.clear()

    def refresh_folder(self) -> None:
        """Tell again what a folder holds and how it is, if one is shown."""
        if self.place is not None and self.place[0] is self._trees.kind and self.place[1] < 0:
            self.show_row(self.place[1])

    # ------------------------------------------------------------------------------------------------------------------ news

    def note(self, batch: Batch) -> None:
        """Note whether it is not what it was."""
        source = self.panel.source if self.panel is not None else ""
        self._is_stale |= batch.are_assets_stale or any(news.notice.source == source for news in batch.jobs)

    def mark_stale(self) -> None:
        """Have it read again with the next frame."""
        self._is_stale = True

    def renew(self) -> None:
        """Read it again where it is not what it was."""
        if self._is_stale and self.place is not None and self.place[1] >= 0:
            self._is_stale = False
            self._read(self.place)

    def _read(self, place: Place) -> None:
        places = self._readers.places
        self._readers.queries.request("panel", lambda reader: read_panel(reader, *place, places), partial(self._take, place))

    def _take(self, place: Place, panel: Panel | None) -> None:
        if place != self.place:
            return
        if panel is None:
            self._detail.say_gone()
        elif panel != self.panel:
            self._show(panel)

    def _show(self, panel: Panel) -> None:
        self.panel = panel
        self._detail.show(panel, self._readers.queries, self._readers.decoder)
        later, self._later = self._later, None
        if later is not None and later[0] == (panel.kind, panel.key):
            later[1](panel)

    # --------------------------------------------------------------------------------------------------------- what is done

    def when_read(self, do: Callable[[Panel], object]) -> None:
        """Do something with what the cursor is on, as soon as that was read; never with what it was on before."""
        (kind, key), panel = self._trees.place, self.panel
        self._later = None
        if panel is not None and (panel.kind, panel.key) == (kind, key):
            do(panel)
        elif key is not None:
            self._later = ((kind, key), do)

    def show_why(self, panel: Panel) -> None:
        """Say in the preview why the jobs of the source ran."""
        if panel.source and not panel.is_folder:
            self._readers.queries.request(PREVIEW, lambda reader: read_why(reader, panel.source), self._detail.show_why)

    @property
    def is_awaited(self) -> bool:
        """Whether something shall be done with what the cursor is on, and that is still read."""
        place = self._trees.place
        is_read = place == self.place and not self._readers.queries.is_awaited("panel")
        return self._later is not None and self._later[0] == place and not is_read
