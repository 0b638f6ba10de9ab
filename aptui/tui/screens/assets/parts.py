"""Where the parts of the Assets screen stand, and what columns its trees have.

Tests: `tests/tui/screens/assets/test_pane.py`.
"""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical

from aptui.tui.data.asset_tree import Kind
from aptui.tui.screens.assets.detail import AssetDetail
from aptui.tui.screens.assets.lines import TreeTabs
from aptui.tui.widgets.filterbox import FilterBox
from aptui.tui.widgets.table import Column
from aptui.tui.widgets.tree import VTree

SOURCE_COLUMNS = (
    Column("name", "Name", 0, 28),
    Column("health", "Not well", 22, is_prose=True),
    Column("extension", "Ext", 6, drop_rank=2),
    Column("duration", "Analysis", 8, align="right", drop_rank=1),
)
PRODUCT_COLUMNS = (Column("name", "Name", 0, 20), Column("extension", "Ext", 6, drop_rank=1))
NARROW = 110
"""On narrower screens the details take the place of the tree."""
_ROOMY, _TIGHT = 100, 72

CSS = """
AssetsPane { layers: base; }
#assets-head { dock: top; height: auto; width: 1fr; layout: horizontal; }
#assets-tabs { height: 1; width: 40; }
#assets-body { layout: horizontal; height: 1fr; width: 1fr; }
#assets-trees { width: 2fr; height: 1fr; }
#assets-detail { width: 3fr; height: 1fr; border-left: solid $role-rule; }
#assets-facts { height: auto; max-height: 10; }
#assets-references { height: auto; max-height: 50%; min-height: 4; }
#assets-preview { height: 1fr; min-height: 2; }
#assets-scan { dock: bottom; height: 1; display: none; }
#assets-scan.-shown { display: block; }
AssetsPane.-narrow #assets-detail { border-left: none; display: none; }
AssetsPane.-narrow #assets-facts { max-height: 5; }
AssetsPane.-narrow #assets-preview { min-height: 3; }
#assets-detail.-picture #assets-references { max-height: 35%; }
AssetsPane.-narrow #assets-detail.-picture #assets-facts { max-height: 4; }
AssetsPane.-narrow.-detail #assets-detail { display: block; }
AssetsPane.-narrow.-detail #assets-trees { display: none; }
AssetsPane.-zoom-tree #assets-detail { display: none; }
AssetsPane.-zoom-detail #assets-trees { display: none; }
AssetsPane.-zoom-detail #assets-detail { border-left: none; }
AssetsPane.-zoom-references .for-preview, #assets-detail.-without-preview .for-preview { display: none; }
AssetsPane.-zoom-references #assets-facts { max-height: 10; }
AssetsPane.-zoom-references #assets-references { height: 1fr; max-height: 100%; }
#assets-detail.-without-preview #assets-references { height: 1fr; max-height: 100%; }
AssetsPane.-zoom-preview .for-references { display: none; }
"""


class AssetTreeView(VTree):
    """A tree; enter goes into the details of what is no folder."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "open", "details", id="rows.open")]


class AssetsBody(Horizontal):
    """Trees at the left, the details of one asset at the right."""

    def compose(self) -> ComposeResult:
        """Make the parts; models come after the first paint."""
        with Vertical(id="assets-trees"):
            for kind in Kind:
                tree = AssetTreeView(PRODUCT_COLUMNS if kind is Kind.PRODUCTS else SOURCE_COLUMNS, id=f"assets-{kind.value}")
                tree.display = kind is Kind.SOURCES
                tree.empty_text = "reading…"
                yield tree
        yield AssetDetail()


class AssetsHead(Horizontal):
    """Tabs and search, in one line."""

    def __init__(self, text: str, history: list[str]) -> None:
        super().__init__(id="assets-head")
        self._text, self._history = text, history

    def compose(self) -> ComposeResult:
        """Make the parts."""
        yield TreeTabs()
        yield FilterBox(self._text, history=self._history, placeholder="name, path/, UUID or asset id", id="assets-search")


def is_roomy(width: int) -> bool:
    """Whether there is room for the counts of trees that are not in front."""
    return width >= _ROOMY


def is_brief(width: int) -> bool:
    """Whether what a search finds has no room beside whole titles and the count of the tree in front."""
    return width < _TIGHT
