"""The trees of the Assets screen as people meet them: one in front, live, searched.

What a tree is, and how it is read, is the store's.

Tests: `tests/tui/screens/assets/test_pane.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from textual import on
from textual.widget import Widget

from aptui.shared.errors import KnownError
from aptui.store.jobs.filter import FilterError
from aptui.store.queries.reader import NoDatabaseError, Reader
from aptui.tui.data.asset_tree import AssetTree, Kind
from aptui.tui.data.assets_store import AssetModel, AssetsStore
from aptui.tui.data.session import SessionState
from aptui.tui.screens.assets import parts
from aptui.tui.screens.assets.actions.row_actions import AssetRowActions
from aptui.tui.screens.assets.lines import TreeTabs
from aptui.tui.widgets.filterbox import FilterBox
from aptui.tui.widgets.tree import VTree

if TYPE_CHECKING:
    from aptui.store.jobs.table import Moment
    from aptui.store.jobs.texts import Codes, Mask
    from aptui.tui.data.feed import JobNews

STALE_S = 1.0
"""Trees are built anew at most so often while the engine works,"""
_PATIENCE = 4
"""and take at most a fifth of the time of one processor."""
_LOOKS = 10
"""So often, a second apart, is looked who is not well until the database says what the news said."""
_MAKES_IT = {SessionState.ATTACHING, SessionState.WAITING, SessionState.ATTACHED, SessionState.REATTACHING}
"""There is, or soon will be, an engine that makes a database."""
_NOTHING = {
    Kind.SOURCES: "no sources yet: files of the scan folders come here",
    Kind.INTERMEDIATES: "no intermediates: products that are sources themselves come here",
    Kind.PRODUCTS: "no products yet: what jobs make comes here",
}
"""What would be in a tree that is empty."""
Place = tuple[Kind, int]


class SearchResult(Struct, frozen=True):
    """What a search found: the nodes to show, those that were hit, and of how many files; all of one tree."""

    text: str
    tree: AssetTree
    shown: Codes
    hits: Codes
    file_count: int


def search(tree: AssetTree, text: str, reader: Reader) -> SearchResult:
    """Search a tree; takes as long as its names are many.

    Raises:
        FilterError: the text cannot be understood.
    """
    hits: Mask = tree.search(text, reader)
    passing = tree.with_above_and_below(hits)
    count = int(np.count_nonzero(passing & (tree.keys >= 0)))
    return SearchResult(text, tree, np.flatnonzero(passing).astype(np.int32), np.flatnonzero(hits).astype(np.int32), count)


class AssetTrees(AssetRowActions):
    """The part of the screen with the trees; the pane says what happens when the cursor moves and when a tree has come."""

    store: AssetsStore

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.kind = Kind.SOURCES
        self.models: dict[Kind, AssetModel] = {}
        self._found: dict[Kind, SearchResult | None] = dict.fromkeys(Kind)
        self._refused = ""  # the last search that cannot be understood, or answered
        self.wanted: Place | None = None
        self.is_stale = self.is_health_stale = False
        self._stale_since, self._has_timer = 0.0, False
        self._heard: Moment = (0, 0)
        self._looks_left = 0

    def give_focus(self, part: Widget) -> None:
        """Let the keys go to a part: those that were typed ahead too, unless it has yet to be shown."""
        if part.focusable and part.display:
            self.screen.set_focus(part)
        else:
            part.focus()

    def look_at(self, key: int) -> None:
        """Show the details of what the cursor is on."""
        raise NotImplementedError

    def look_away(self) -> None:
        """Show no details: there is no row."""
        raise NotImplementedError

    def look_again_at_folder(self) -> None:
        """Tell again what a folder holds and how it is, if one is shown."""
        raise NotImplementedError

    def arrive(self) -> None:
        """Put the cursor where people wanted to go, if it can be now."""
        raise NotImplementedError

    @property
    def box(self) -> FilterBox:
        """The search."""
        return self.query_one(FilterBox)

    def shown_tree(self) -> VTree:
        """Return the tree in front."""
        return self._tree_of(self.kind)

    def shown_model(self) -> AssetModel:
        """Return what the tree in front shows."""
        return self.models[self.kind]

    def _tree_of(self, kind: Kind) -> VTree:
        return self.query_one(f"#assets-{kind.value}", VTree)

    def turn_to(self, kind: Kind) -> None:
        """Put another tree in front, with the focus if the one before had it."""
        had_focus = self.shell.app.focused is not None and self.shell.app.focused is self.shown_tree() and kind is not self.kind
        self.kind = kind
        for each in Kind:
            self._tree_of(each).display = each is kind
        if had_focus:
            self.give_focus(self.shown_tree())
        self.show_tabs()
        self.take_tree()
        if self._found_text() != self.box.text:
            self._search()
        else:
            self._show_count()
        key = self.shown_tree().cursor_key
        if key is None:
            self.look_away()
        elif self.wanted is None:
            self.look_at(key)

    def show_tabs(self) -> None:
        """Say in the tabs which tree is in front, and how much there is."""
        trees = {kind: self.models[kind].tree for kind in self.models}
        counts = {kind: tree.file_count if tree is not None else -1 for kind, tree in trees.items()} or dict.fromkeys(Kind, -1)
        width = self.size.width
        self.query_one(TreeTabs).show(self.kind, counts, is_roomy=parts.is_roomy(width), is_brief=parts.is_brief(width))

    def action_next_tree(self, step: int) -> None:
        """Show the next tree."""
        kinds = list(Kind)
        self.turn_to(kinds[(kinds.index(self.kind) + step) % len(kinds)])

    def say_tree(self, kind: Kind, text: str) -> None:
        """Show a tree, searched if `text` says for what."""
        self.turn_to(kind)
        if text:
            self.box.text = text

    def renew_stale(self) -> None:
        """Have stale trees read, and who is not well, now or when the last time is long enough ago."""
        if not (self.is_stale or self.is_health_stale) or self._has_timer:
            return
        wait_s = self._stale_since + max(STALE_S, _PATIENCE * self.store.took_s) - time.monotonic()
        if wait_s > 0:
            self._has_timer = True
            self.set_timer(wait_s, self._renew_late)
        else:
            self._stale_since = time.monotonic()
            if self.is_stale:
                self.store.mark_stale()
            self.store.mark_health_stale()
            self.is_stale = self.is_health_stale = False

    def hear_jobs(self, jobs: Iterable[JobNews]) -> None:
        """Note that other jobs are not well; what runs waits as far as the database knows."""
        ended = [news.moment for news in jobs if news.notice.status != "processing"]
        if ended:
            self._heard, self._looks_left = max(self._heard, *ended), _LOOKS
            self.is_health_stale = True

    def _look_until_current(self) -> None:
        """Read again who is not well where what was read is older than the news: rows come after them."""
        unwell = self.store.unwell
        if unwell is not None and unwell.moment < self._heard and self._looks_left > 0:
            self._looks_left -= 1
            self.is_health_stale = True
            self.renew_stale()

    def _renew_late(self) -> None:
        self._has_timer = False
        self.shell.wake()

    def take_tree(self) -> None:
        """Show a newer tree; with a search on, as soon as that was searched."""
        model, tree = self.shown_model(), self.shown_tree()
        newest = self.store.tree(self.kind)
        self._say_what_is_empty(newest)
        if newest is None or newest is model.tree:
            if model.refresh_health():
                tree.refresh_model()
                self.look_again_at_folder()
                self._look_until_current()
            return
        if self.box.text.strip():
            self._search()
            return
        model.refresh()
        tree.refresh_model()
        self.show_tabs()
        self.arrive()

    def _say_what_is_empty(self, newest: AssetTree | None) -> None:
        tree, error = self.shown_tree(), self.store.error
        if newest is not None:
            nothing = _NOTHING[self.kind]
        elif isinstance(error, NoDatabaseError) and self.shell.session.state in _MAKES_IT:
            nothing = "nothing was processed yet; what the engine finds comes here"
        else:
            nothing = "reading…" if error is None else str(error)
        if self.box.text.strip() and newest is not None and newest.file_count:
            nothing = "searching…" if self.is_searching() else "nothing matches: Esc clears the search"
        if tree.empty_text != nothing:
            tree.empty_text = nothing
            tree.refresh()

    # ---------------------------------------------------------------------------------------------------------------- search

    def on_filter_box_changed(self, event: FilterBox.Changed) -> None:
        """Search as people type."""
        event.stop()
        self._search()

    @on(FilterBox.Left)
    def _leave_search(self, event: FilterBox.Left) -> None:
        event.stop()
        if event.is_kept:
            self.shell.memory.remember("assets.searches", event.text)
        self.give_focus(self.shown_tree())

    def is_searching(self) -> bool:
        """Whether the tree in front does not show yet what the search asks for."""
        text = self.box.text
        return bool(text.strip()) and self.store.error is None and text not in (self._found_text(), self._refused)

    def _found_text(self) -> str:
        found = self._found[self.kind]
        return found.text if found is not None else ""

    def _search(self) -> None:
        """Search the newest tree in front in the thread, or show all of it again."""
        text, kind = self.box.text, self.kind
        newest = self.store.tree(kind)
        if newest is None:
            return
        if text.strip():
            self.queries.request("search", lambda reader: search(newest, text, reader), partial(self._show_found, kind))
            return
        if self._found[kind] is not None:
            self.show_everything()
        self.take_tree()

    def show_everything(self) -> None:
        """Lift the search from the tree in front: what was open before it is open again, and the cursor stays in sight."""
        key, tree, model = self.shown_tree().cursor_key, self.shown_tree(), self.shown_model()
        self.box.text = ""
        self._found[self.kind] = None
        model.highlight("")
        tree.filter(None)
        self._show_count()
        node = model.node_of(key) if key is not None else None
        if node is not None:
            tree.reveal(node)

    def _show_found(self, kind: Kind, found: SearchResult) -> None:
        if kind is not self.kind or found.text != self.box.text:
            return
        model, tree = self.shown_model(), self.shown_tree()
        model.refresh()
        if model.tree is not found.tree:
            self._search()
            return
        is_new = self._found_text() != found.text
        self._found[kind] = found
        model.highlight(found.text)
        tree.filter(found.shown, is_new=is_new)
        self._say_what_is_empty(found.tree)
        self.show_tabs()
        self._show_count()
        if is_new and self.wanted is None and tree.node not in set(found.hits.tolist()[:100_000]):
            self._first_hit(found)
        if not len(found.hits):
            self.look_away()
        self.arrive()

    def _first_hit(self, found: SearchResult) -> None:
        """Put the cursor on the first file that was hit, else on the first folder."""
        files = found.hits[found.tree.keys[found.hits] >= 0]
        nodes = files if len(files) else found.hits
        if len(nodes):
            self.shown_tree().reveal(int(nodes[0]))

    def _show_count(self) -> None:
        found = self._found[self.kind]
        self.box.show_count(f"{found.file_count:,} of {found.tree.file_count:,}" if found is not None else "")

    def action_next_hit(self, step: int) -> None:
        """Go to the next hit; stays where it is on the only one."""
        found, node = self._found[self.kind], self.shown_tree().node
        if found is None or node is None or not len(found.hits):
            return
        at = int(np.searchsorted(found.hits, node, "right")) if step > 0 else int(np.searchsorted(found.hits, node, "left")) - 1
        self.shown_tree().reveal(int(found.hits[at % len(found.hits)]))

    def action_next_bad(self, step: int) -> None:
        """Go to the next source with a failed job or errors; stays where it is on the only one."""
        health, node = self.shown_model().health, self.shown_tree().node
        if self.kind is Kind.PRODUCTS:
            self.shell.tell("failed jobs have no products: t goes to the sources", seconds=2)
        elif health is None or node is None:
            return
        elif (found := health.next_bad(node, step)) is None:
            self.shell.tell("no other source has a failed job", seconds=2)
        elif not self.shown_tree().reveal(found):  # the search hides it
            self.show_everything()
            self.shown_tree().reveal(found)

    def _failed(self, kind: str, error: KnownError) -> None:
        """Say what went wrong with a query."""
        if kind == "search":
            self._refused = self.box.text
        if kind == "search" and isinstance(error, FilterError):
            self.box.show_mistake(error.column - 1, error.what, error.hint)
        elif self.is_attached:
            self.shell.tell(str(error), "warning")
