"""Ways between assets: along references, to an asset that was named, to one that was moved, back and forward again.

Tests: `tests/tui/screens/assets/test_navigation.py`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from aptui.tui.data.asset_tree import Kind
from aptui.tui.screens.assets.asset_trees import AssetTrees, Place
from aptui.tui.screens.assets.panel import JOB, PRODUCT, Ref, find, kind_of_source
from aptui.tui.screens.assets.readers import AssetReaders
from aptui.tui.screens.assets.search import TreeSearch
from aptui.tui.screens.assets.selected import SelectedAsset

if TYPE_CHECKING:
    from aptui.tui.pane import Shell

TARGET = "target"
"""The kind of queries for an asset to go to."""
_MOST_PLACES = 200
_GIVES_UP_S = 30.0
"""So long what was moved may take to come into the tree."""
_SIGNS = re.compile(r"([.^$*+?{}\[\]|()\\])")


class Stop(NamedTuple):
    """A place on the way; `came_from` is the screen from which somebody came there."""

    kind: Kind
    key: int
    came_from: str = ""


class WayBack:
    """The places where somebody was, the newest 200, and at which of them they are."""

    def __init__(self) -> None:
        self._stops: list[Stop] = []
        self._at = 0

    def go(self, here: Place | None, stop: Stop) -> None:
        """Go from `here`, None = from nowhere, to a place; those that were ahead are forgotten."""
        self._leave(here)
        del self._stops[self._at + 1 :]
        self._stops = [*self._stops, stop][-_MOST_PLACES:]
        self._at = len(self._stops) - 1

    def walk(self, here: Place | None, step: int) -> Stop | None:
        """Go back (-1), or forward again (1); None = there is no such place."""
        if not 0 <= self._at + step < len(self._stops):
            return None
        self._leave(here)
        self._at += step
        return self._stops[self._at]

    def take_origin(self) -> str:
        """Return the screen from which somebody came to this place: once, then "" like for other places."""
        if not self._stops:
            return ""
        stop = self._stops[self._at]
        self._stops[self._at] = stop._replace(came_from="")
        return stop.came_from

    def _leave(self, here: Place | None) -> None:
        if here is None:
            return
        if self._stops:
            self._stops[self._at] = self._stops[self._at]._replace(kind=here[0], key=here[1])
        else:
            self._stops.append(Stop(*here))


class AssetNavigation:
    """Puts the cursor on the assets that people want to see.

    Args:
        turn_to: puts another tree in front.
    """

    def __init__(
        self, shell: Shell, readers: AssetReaders, trees: AssetTrees, selected: SelectedAsset, search: TreeSearch,
        turn_to: Callable[[Kind], object],
    ) -> None:  # fmt: skip
        self._shell, self._readers, self._trees, self._turn_to = shell, readers, trees, turn_to
        self._selected, self._search = selected, search
        self._way = WayBack()
        self._went = ("", 0.0)

    def reveal(self, text: str, came_from: str = "") -> None:
        """Go to an asset by the path of a source, by a product, a UUID or an asset id; another screen says which it is."""
        if text.strip():
            places, then = self._readers.places, partial(self._go_if_found, text, came_from)
            self._readers.queries.request(TARGET, lambda reader: find(reader, text, places), then)

    def _go_if_found(self, text: str, came_from: str, place: Place | None) -> None:
        if place is None:
            self._shell.show_toast(f"there is no asset '{text.strip()}'", "warning")
        else:
            self.go_to(*place, came_from)

    def follow(self, ref: Ref) -> None:
        """Go where a reference leads."""
        if ref.leads == JOB:
            panel = self._selected.panel
            self.show_jobs(panel.source if panel is not None else "", is_folder=False)
        elif ref.leads == PRODUCT:
            self.go_to(Kind.PRODUCTS, ref.key)
        elif ref.leads:
            kind_of, then = partial(kind_of_source, source_id=ref.key), lambda kind: self.go_to(kind, ref.key)
            self._readers.queries.request(TARGET, kind_of, then)

    def show_jobs(self, source: str, *, is_folder: bool) -> None:
        """Show the jobs of a source, or of all in a folder."""
        self._shell.reveal("jobs", jobs_filter(source, is_folder=is_folder))

    def go_to(self, kind: Kind, key: int, came_from: str = "") -> None:
        """Go to an asset, and remember the way back."""
        self._way.go(self._here, Stop(kind, key, came_from))
        self._want(kind, key)

    def go_where_it_went(self, path: str) -> None:
        """Go to what was moved, as soon as the tree has it."""
        self._went = (path, time.monotonic() + _GIVES_UP_S)
        self.arrive()

    async def walk(self, step: int) -> None:
        """Go back, or forward again; back to another screen once, where one came from there."""
        if step < 0 and (pane := self._way.take_origin()):
            await self._shell.show(pane)
        elif (stop := self._way.walk(self._here, step)) is not None:
            self._want(stop.kind, stop.key)
        else:
            self._shell.show_toast("nowhere to go back to" if step < 0 else "nowhere to go forward to", seconds=2)

    @property
    def _here(self) -> Place | None:
        kind, key = self._trees.place
        return None if key is None else (kind, key)

    def _want(self, kind: Kind, key: int) -> None:
        self._trees.wanted = (kind, key)
        if kind is not self._trees.kind:
            self._turn_to(kind)
        self.arrive()

    def arrive(self) -> None:
        """Put the cursor where people wanted to go, once the tree is there; of a folder tell again how much it holds."""
        self._selected.refresh_folder()
        self._follow_what_went()
        trees, wanted = self._trees, self._trees.wanted
        if wanted is None or wanted[0] is not trees.kind or trees.model.tree is None or self._search.is_under_way:
            return  # what is searched for in this tree could hide it a moment later
        trees.wanted = None
        node = trees.model.node_of(wanted[1])
        if node is None:
            self._shell.show_toast("it is not in the tree: the engine dropped it, or has not written it yet", "warning")
            return
        self._search.reveal(node)
        if trees.view.cursor_key is not None:
            self._selected.show_row(trees.view.cursor_key)

    def _follow_what_went(self) -> None:
        (path, until_s), tree = self._went, self._trees.models[Kind.SOURCES].tree
        if path and self._trees.kind is Kind.SOURCES and tree is not None and (node := tree.node_at(path)) is not None:
            self._went = ("", 0.0)
            self._trees.wanted = (Kind.SOURCES, tree.key(node))
        elif time.monotonic() > until_s:
            self._went = ("", 0.0)


def jobs_filter(source: str, *, is_folder: bool) -> str:
    """Return the filter of the Jobs screen that lets a source through, or all in a folder."""
    pattern = "^" + _SIGNS.sub(r"\\\1", source) + ("/" if is_folder else "$")
    quoted = pattern.replace('"', '\\"')
    return f'"{quoted}"'
