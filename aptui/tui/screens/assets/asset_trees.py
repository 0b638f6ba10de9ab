"""The three trees of the Assets screen, one of them in front: of sources, of intermediates, of products.

What a tree is, and how it is read, is the store's (`data/assets_store`).

Tests: `tests/tui/screens/assets/test_pane.py`.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec.structs import replace
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical

from aptui.tui.data.asset_tree import Kind, TreeHealth
from aptui.tui.data.assets_store import AssetModel, AssetsStore
from aptui.tui.widgets.cells import width_of
from aptui.tui.widgets.columns import GAP, Column
from aptui.tui.widgets.focus import give_focus
from aptui.tui.widgets.tree import VTree

_HEALTH = Column("health", "Not well", 22, is_prose=True)
SOURCE_COLUMNS = (
    Column("name", "Name", 0, 28),
    _HEALTH,
    Column("extension", "Ext", 6, drop_rank=2),
    Column("duration", "Analysis", 8, align="right", drop_rank=1),
)
PRODUCT_COLUMNS = (Column("name", "Name", 0, 20), Column("extension", "Ext", 6, drop_rank=1))
_LEAST_NAME = 16
Place = tuple[Kind, int]
"""A row of a tree: (which tree, key)."""


class AssetTreeView(VTree):
    """A tree; enter goes into the details of what is no folder."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "open", "details", id="rows.open")]

    def __init__(self, kind: Kind) -> None:
        super().__init__(PRODUCT_COLUMNS if kind is Kind.PRODUCTS else SOURCE_COLUMNS, id=f"assets-{kind.value}")
        self.display = kind is Kind.SOURCES
        self.empty_text = "reading…"
        self._health_cells = 0

    def _measure_columns(self, width: int) -> list[Column]:
        """Return the columns; in a narrow tree names give way to what is not well: few of them are long."""
        name, *others = super()._measure_columns(width)
        free_width = width - sum(each.width + len(GAP) for each in others if not each.drop_rank)
        return [replace(name, min_width=max(_LEAST_NAME, min(name.min_width, free_width))), *others]

    def fit_health(self, health: TreeHealth | None) -> None:
        """Give what is not well the room that it takes, none while all is well; it becomes wider and never narrower."""
        if health is None or self.columns[:1] != SOURCE_COLUMNS[:1]:
            return
        self._health_cells = max(self._health_cells, health.most_cells())
        width = min(_HEALTH.width, max(self._health_cells, width_of(_HEALTH.title)))
        health_column = (replace(_HEALTH, width=width),) if self._health_cells else ()
        columns = (*SOURCE_COLUMNS[:1], *health_column, *SOURCE_COLUMNS[2:])
        if columns != self.columns:
            self.set_columns(columns)


class AssetTrees(Vertical):
    """Holds the trees; `kind` is that of the one in front, `wanted` where the cursor shall go once its tree has come."""

    def __init__(self, store: AssetsStore) -> None:
        super().__init__(id="assets-trees")
        self.store = store
        self.kind = Kind.SOURCES
        self.wanted: Place | None = None
        self.models = {kind: AssetModel(store, kind) for kind in Kind}
        self._views = {kind: AssetTreeView(kind) for kind in Kind}

    def compose(self) -> ComposeResult:
        """Make the parts."""
        yield from self._views.values()

    def on_mount(self) -> None:
        """Show the models: after the first paint."""
        for kind, model in self.models.items():
            self._views[kind].set_tree(model)

    @property
    def view(self) -> AssetTreeView:
        """The tree in front."""
        return self._views[self.kind]

    @property
    def model(self) -> AssetModel:
        """What the tree in front shows."""
        return self.models[self.kind]

    @property
    def place(self) -> tuple[Kind, int | None]:
        """Where the cursor is."""
        return self.kind, self.view.cursor_key

    def file_counts(self) -> dict[Kind, int]:
        """Return how many files each tree holds, -1 = it was not read yet."""
        return {kind: model.tree.file_count if model.tree is not None else -1 for kind, model in self.models.items()}

    def put_in_front(self, kind: Kind) -> None:
        """Put another tree in front, with the focus if the one before had it."""
        had_focus = self.app.focused is self.view and kind is not self.kind
        self.kind = kind
        for each, view in self._views.items():
            view.display = each is kind
        if had_focus:
            give_focus(self.view)

    def say_empty(self, text: str) -> None:
        """Say why the tree in front has no rows."""
        if self.view.empty_text != text:
            self.view.empty_text = text
            self.view.refresh()
