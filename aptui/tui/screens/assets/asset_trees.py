"""The trees of the Assets screen (sources, intermediates, products), the search in them, and when they are read again.

`data/assets_store` reads the trees from the database.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical

from aptui.shared.errors import KnownError
from aptui.store.jobs.filter import FilterError
from aptui.store.queries.reader import NoDatabaseError, Reader
from aptui.tui.background import call_after
from aptui.tui.data.assets_store import HEALTH_CELLS, AssetModel, AssetsStore, AssetTree, Kind, TreeHealth
from aptui.tui.data.job_infos import nearest
from aptui.tui.data.session import SessionState
from aptui.tui.screens.assets.asset_readers import QueryWorker
from aptui.tui.widgets.cells import width_of
from aptui.tui.widgets.filterbox import FilterBox, give_focus
from aptui.tui.widgets.table import GAP, Column
from aptui.tui.widgets.tree import VTree

if TYPE_CHECKING:
    from aptui.store.jobs.job_table import Moment
    from aptui.store.jobs.regex import Mask
    from aptui.store.jobs.texts import Codes
    from aptui.tui.data.feed import Batch
    from aptui.tui.pane import Shell


_HEALTH = Column("health", "Problems", HEALTH_CELLS, is_prose=True)
SOURCE_COLUMNS = (
    Column("name", "Name", 0, 30, is_name=True),
    _HEALTH,
    Column("extension", "Ext", 6, drop_rank=2),
    Column("duration", "Analysis", 8, align="right", drop_rank=1),
)
PRODUCT_COLUMNS = (Column("name", "Name", 0, 30, is_name=True), Column("extension", "Ext", 6, drop_rank=1))
_LEAST_NAME = 16
Place = tuple[Kind, int]
"""Identifies a row: (tree, key)."""


class AssetTreeView(VTree):
    """A tree of assets; Enter on a file goes to its details."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "open", "details", id="rows.open")]

    def __init__(self, kind: Kind) -> None:
        super().__init__(PRODUCT_COLUMNS if kind is Kind.PRODUCTS else SOURCE_COLUMNS, id=f"assets-{kind.value}")
        self.display = kind is Kind.SOURCES
        self.empty_text = "reading…"
        self._health_cells = 0

    def _measure_columns(self, width: int) -> list[Column]:
        """Return the columns. In a narrow tree, the column of names shrinks, so that the column of problems keeps its width."""
        name, *others = super()._measure_columns(width)
        free_width = width - sum(each.width + len(GAP) for each in others if not each.drop_rank)
        return [replace(name, min_width=max(_LEAST_NAME, min(name.min_width, free_width))), *others]

    def fit_health(self, health: TreeHealth | None) -> None:
        """Fit the column of problems to its texts.

        The column only grows, and is hidden while no asset has a problem.
        """
        if health is None or self.columns[:1] != SOURCE_COLUMNS[:1]:
            return
        self._health_cells = max(self._health_cells, health.most_cells())
        width = min(_HEALTH.width, max(self._health_cells, width_of(_HEALTH.title)))
        health_column = (replace(_HEALTH, width=width),) if self._health_cells else ()
        columns = (*SOURCE_COLUMNS[:1], *health_column, *SOURCE_COLUMNS[2:])
        if columns != self.columns:
            self.set_columns(columns)


class AssetTrees(Vertical):
    """The widgets of the trees of sources, intermediate products and products; one tree is visible at a time.

    `kind` is the kind of the visible tree. `wanted` is the row to which the cursor will go as soon as its tree is read.
    """

    def __init__(self, store: AssetsStore) -> None:
        super().__init__(id="assets-trees")
        self.store = store
        self.kind = Kind.SOURCES
        self.wanted: Place | None = None
        self.models = {kind: AssetModel(store, kind) for kind in Kind}
        self._views = {kind: AssetTreeView(kind) for kind in Kind}

    def compose(self) -> ComposeResult:
        """Create the widgets."""
        yield from self._views.values()

    def on_mount(self) -> None:
        """Show the models of the trees, after the first paint."""
        for kind, model in self.models.items():
            self._views[kind].set_tree(model)

    @property
    def view(self) -> AssetTreeView:
        """The widget of the visible tree."""
        return self._views[self.kind]

    @property
    def model(self) -> AssetModel:
        """The model of the visible tree."""
        return self.models[self.kind]

    @property
    def place(self) -> tuple[Kind, int | None]:
        """The row under the cursor."""
        return self.kind, self.view.cursor_key

    def file_counts(self) -> dict[Kind, int]:
        """Return the number of files in each tree, -1 for a tree that is not read yet."""
        return {kind: model.tree.file_count if model.tree is not None else -1 for kind, model in self.models.items()}

    def put_in_front(self, kind: Kind) -> None:
        """Show this tree instead of the visible tree; if the previous tree had the focus, the new tree gets it."""
        had_focus = self.app.focused is self.view and kind is not self.kind
        self.kind = kind
        for each, view in self._views.items():
            view.display = each is kind
        if had_focus:
            give_focus(self.view)


# The next classes search the visible tree: for a typed text, for the next hit, and for the next source with problems.

SEARCH = "search"
"""Kind of the database queries that search a tree for text."""


class SearchResult(Struct, frozen=True):
    """A search result in one tree: the nodes to show, the hits, and the number of files."""

    text: str
    tree: AssetTree
    shown: Codes
    hits: Codes
    file_count: int


def search(tree: AssetTree, text: str, reader: Reader) -> SearchResult:
    """Search a tree; the duration is proportional to the number of names.

    Raises:
        FilterError: the text is not a valid filter.
    """
    hits: Mask = tree.search(text, reader)
    passing = tree.with_above_and_below(hits)
    count = int(np.count_nonzero(passing & (tree.keys >= 0)))
    return SearchResult(text, tree, np.flatnonzero(passing).astype(np.int32), np.flatnonzero(hits).astype(np.int32), count)


class TreeSearch:
    """Filters the visible tree by the text in the search box.

    Args:
        shown: called with the result once the tree shows it.
    """

    def __init__(
        self, shell: Shell, trees: AssetTrees, box: FilterBox, queries: QueryWorker, shown: Callable[[SearchResult], object]
    ) -> None:
        self._shell, self._trees, self._box, self._queries, self._shown = shell, trees, box, queries, shown
        self._found: dict[Kind, SearchResult | None] = dict.fromkeys(Kind)
        self._refused = ""  # text of the last search that could not run yet

    @property
    def found(self) -> SearchResult | None:
        """The search result in the visible tree, None = this tree is shown without a search."""
        return self._found[self._trees.kind]

    @property
    def is_wanted(self) -> bool:
        """Whether the search box contains a text."""
        return bool(self._box.text.strip())

    @property
    def is_shown(self) -> bool:
        """Whether the visible tree shows the result for the text in the box."""
        return (self.found.text if self.found is not None else "") == self._box.text

    @property
    def is_under_way(self) -> bool:
        """Whether the search for the text in the box is still running."""
        return self.is_wanted and self._trees.store.error is None and not (self.is_shown or self.is_refused)

    @property
    def is_refused(self) -> bool:
        """Whether the search for the text in the box could not run, for example because of a mistake in the text."""
        return self._box.text == self._refused

    def start(self) -> None:
        """Search the newest tree in the thread."""
        text, kind = self._box.text, self._trees.kind
        newest = self._trees.store.tree(kind)
        if newest is not None:
            self._queries.request(SEARCH, lambda reader: search(newest, text, reader), partial(self._show, kind))

    def remove(self) -> None:
        """Show the whole visible tree. Nodes that were open before the search are open again, and the cursor stays visible."""
        trees, key = self._trees, self._trees.view.cursor_key
        self._box.text = ""
        self._found[trees.kind] = None
        trees.model.highlight("")
        trees.view.filter(None)
        self.show_count()
        node = trees.model.node_of(key) if key is not None else None
        if node is not None:
            trees.view.reveal(node)

    def _show(self, kind: Kind, found: SearchResult) -> None:
        if kind is not self._trees.kind or found.text != self._box.text:
            return
        model, view = self._trees.model, self._trees.view
        model.refresh()
        if model.tree is not found.tree:
            self.start()
            return
        is_new = not self.is_shown
        self._found[kind], self._refused = found, ""
        model.highlight(found.text)
        view.filter(found.shown, is_new=is_new)
        self.show_count()
        if is_new and self._trees.wanted is None and view.node not in set(found.hits.tolist()[:100_000]):
            self._go_to_first(found)
        self._shown(found)

    def _go_to_first(self, found: SearchResult) -> None:
        """Put the cursor on the first file among the hits, else on the first folder."""
        files = found.hits[found.tree.keys[found.hits] >= 0]
        nodes = files if len(files) else found.hits
        if len(nodes):
            self._trees.view.reveal(int(nodes[0]))

    def show_count(self) -> None:
        """Show the number of files found."""
        found = self.found
        self._box.show_count(f"{found.file_count:,} of {found.tree.file_count:,}" if found is not None else "")

    def show_error(self, error: KnownError) -> None:
        """Show the mistake in the search text, or the error of the query."""
        self._refused = self._box.text
        if isinstance(error, FilterError):
            self._box.show_error(error)
        elif self._box.is_attached:
            self._shell.show_toast(str(error), "warning")

    def go_to_hit(self, step: int) -> None:
        """Go to the next hit."""
        found, node = self.found, self._trees.view.node
        if found is not None and node is not None and (hit := nearest(found.hits, node, step)) is not None:
            self._trees.view.reveal(hit)

    def go_to_bad(self, step: int) -> None:
        """Go to the next source with a failed job or errors."""
        health, node = self._trees.model.health, self._trees.view.node
        if self._trees.kind is Kind.PRODUCTS:
            self._shell.show_toast("failed jobs have no products; press t to show the sources", seconds=2)
        elif health is None or node is None:
            return
        elif (found := health.next_bad(node, step)) is None:
            self._shell.show_toast("no other source has a failed job", seconds=2)
        else:
            self.reveal(found)

    def reveal(self, node: int) -> None:
        """Put the cursor on a node of the visible tree; if the search hides the node, remove the search."""
        if not self._trees.view.reveal(node):
            self.remove()
            self._trees.view.reveal(node)


STALE_S = 1.0
"""Minimum interval between reads of a tree while the engine works (seconds)."""
_REST_FACTOR = 4
"""Pause between two reads as a multiple of the duration of a read: reads use at most a fifth of one processor."""
_MOST_READS = 10
"""Maximum number of repeated reads, one second apart, while the database lacks changes that notices have reported."""
_CREATES_DATABASE = {SessionState.ATTACHING, SessionState.WAITING, SessionState.ATTACHED, SessionState.REATTACHING}
"""States of the session in which a missing database is not an error, because an engine is about to create it."""
_NOTHING = {
    Kind.SOURCES: "no sources yet; files of the scan folders appear here",
    Kind.INTERMEDIATES: "no intermediates; products that become sources of other jobs appear here",
    Kind.PRODUCTS: "no products yet; products of jobs appear here",
}
"""{tree: text that is shown while the tree is empty}."""


class LiveTrees:
    """Reads trees again after notices and shows the newest trees; the slower a read is, the longer is the interval.

    Args:
        came: called when a newer version of the visible tree is shown.
        health_came: called when the problems in the visible tree changed.
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
        self._is_placed = False

    @property
    def is_placed(self) -> bool:
        """Whether no move of the cursor to the first problem is due: it was tried once, products are shown, or the read failed."""
        return self._is_placed or self._trees.kind is Kind.PRODUCTS or self._store.error is not None

    @property
    def is_at_rest(self) -> bool:
        """Whether all reads have ended."""
        return not (self._is_stale or self._is_health_stale or self._has_timer)

    def note(self, batch: Batch) -> None:
        """Mark the trees, or the problems of jobs, as outdated if the updates in `batch` may change them.

        A started job changes no row, so it is ignored.
        """
        self._is_stale |= batch.are_assets_stale
        ended = [news.moment for news in batch.jobs if news.notice.status != "processing"]
        if ended:
            self._newest_moment, self._reads_left = max(self._newest_moment, *ended), _MOST_READS
            self._is_health_stale = True

    def renew(self) -> None:
        """Read outdated trees and problems again. If the last read was too recent, start a timer that does so later."""
        if not (self._is_stale or self._is_health_stale) or self._has_timer:
            return
        wait_s = self._stale_since + max(STALE_S, _REST_FACTOR * self._store.took_s) - time.monotonic()
        if wait_s > 0:
            self._has_timer = True
            call_after(self._trees, wait_s, self._renew_late)
        else:
            self._stale_since = time.monotonic()
            if self._is_stale:
                self._store.mark_stale()
            self._store.mark_health_stale()
            self._is_stale = self._is_health_stale = False

    def _renew_late(self) -> None:
        self._has_timer = False
        self._shell.wake()

    def show_newest(self) -> None:
        """Show a newer tree; while a search is active, first search the newer tree."""
        model, view = self._trees.model, self._trees.view
        newest = self._store.tree(self._trees.kind)
        self.explain_empty_tree()
        if newest is None or newest is model.tree:
            if model.refresh_health():
                view.fit_health(model.health)
                view.refresh_model()
                self._go_to_first_problem()
                self._health_came()
                self._read_until_current()
        elif self._search.is_wanted:
            self._is_placed = True
            self._search.start()
        else:
            model.refresh()
            view.fit_health(model.health)
            view.refresh_model()
            self._go_to_first_problem()
            self._came()

    def _go_to_first_problem(self) -> None:
        """Once, move the cursor from the first row to the first source with a failed job or errors."""
        trees, health = self._trees, self._trees.model.health
        if self._is_placed or health is None:
            return
        self._is_placed = True
        if trees.view.cursor == 0 and trees.wanted is None and (node := health.next_bad(-1, 1)) is not None:
            trees.view.reveal(node)

    def _read_until_current(self) -> None:
        """Read the problems again while they are older than the newest notice: the engine saves rows after it sends notices."""
        unwell = self._store.unwell
        if unwell is not None and unwell.moment < self._newest_moment and self._reads_left > 0:
            self._reads_left -= 1
            self._is_health_stale = True
            self.renew()

    def search(self) -> None:
        """Search the newest version of the visible tree for the text in the search box, or show the whole tree again."""
        if self._store.tree(self._trees.kind) is None:
            return
        if self._search.is_wanted:
            self._search.start()
            self.explain_empty_tree()
            return
        if self._search.found is not None:
            self._search.remove()
        self.show_newest()

    def explain_empty_tree(self) -> None:
        """Show, in an empty tree, why it has no rows."""
        newest, error = self._store.tree(self._trees.kind), self._store.error
        if newest is not None:
            nothing = _NOTHING[self._trees.kind]
        elif isinstance(error, NoDatabaseError) and self._shell.session.state in _CREATES_DATABASE:
            nothing = "nothing was processed yet; sources appear here as the engine finds them"
        else:
            nothing = "reading…" if error is None else str(error)
        if self._search.is_wanted and newest is not None and newest.file_count:
            result = "the search failed" if self._search.is_refused else "nothing matches"
            nothing = "searching…" if self._search.is_under_way else f"{result}; press Esc to clear the search"
        self._trees.view.empty_text = nothing
