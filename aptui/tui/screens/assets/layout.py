"""How the Assets screen shares its room among tree, references and preview, and which of them has the keys.

Tests: `tests/tui/screens/assets/test_pane.py`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from textual.widgets import Input

from aptui.tui.screens.assets.asset_trees import AssetTrees
from aptui.tui.screens.assets.detail import AssetDetail, FilePreview
from aptui.tui.screens.assets.readers import PREVIEW, QueryWorker
from aptui.tui.screens.assets.selected import SelectedAsset
from aptui.tui.widgets.focus import give_focus
from aptui.tui.widgets.textview import TextView

if TYPE_CHECKING:
    from textual.widget import Widget

    from aptui.tui.pane import Pane
    from aptui.tui.screens.assets.panel import Panel

NARROW = 110
"""On narrower screens the details take the place of the tree."""
_ROOMY, _TIGHT = 100, 72
_PEEK = "-peek"
"""The preview has all the room, and gives it back to the tree."""
_ABOVE_TREE = ("-detail", "-zoom-detail", "-zoom-references", "-zoom-preview", _PEEK)

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


class AssetsLayout:
    """Arranges one screen, by classes of its pane."""

    def __init__(self, pane: Pane, trees: AssetTrees, detail: AssetDetail, selected: SelectedAsset, queries: QueryWorker) -> None:
        self._pane, self._trees, self._detail, self._selected, self._queries = pane, trees, detail, selected, queries

    def fit(self, width: int) -> None:
        """Let the details take the place of the tree where there is no room beside it."""
        self._pane.set_class(width < NARROW, "-narrow")

    def uncover_tree(self) -> None:
        """Show the tree where something has its room."""
        self._pane.remove_class(*_ABOVE_TREE)

    def go_into_tree(self) -> None:
        """Show the tree and let the keys go there."""
        self.uncover_tree()
        give_focus(self._trees.view)

    def go_into_details(self) -> None:
        """Show the details and let the keys go to the references."""
        self._pane.add_class("-detail")
        give_focus(self._detail.references)

    def keep_keys_from_search(self) -> None:
        """Let the keys go to the tree where they would be typed into the search."""
        if isinstance(self._focused, Input):
            give_focus(self._trees.view)

    @property
    def _focused(self) -> Widget | None:
        return self._pane.app.focused

    @property
    def _zooms(self) -> list[str]:
        return [name for name in self._pane.classes if name.startswith("-zoom")]

    def walk_parts(self, step: int) -> None:
        """Walk tree, references and preview, where a screen is narrow too; letters after it never end in the search line."""
        tree, focused = self._trees.view, self._focused
        parts: list[Widget] = [tree, *self._detail.parts]
        if self._zooms:
            parts = [part for part in parts if part in self._pane.screen.focus_chain] or [tree]
        at = parts.index(focused) if focused in parts else -1 if step > 0 else 0
        part = parts[(at + step) % len(parts)]
        self._pane.set_class(part is not tree, "-detail")
        give_focus(part)

    def leave(self) -> bool:
        """Leave the zoom, then the details; return whether there was anything to leave."""
        if self._zooms and not self._pane.has_class(_PEEK):
            self._pane.remove_class(*self._zooms)
        elif self._focused is not self._trees.view:
            self.go_into_tree()
        else:
            return False
        return True

    def zoom(self) -> None:
        """Give the part with the keys all the room, or take it back; a tree that has it all gives it to the preview."""
        if self._pane.has_class(_PEEK):
            self.go_into_tree()
        elif self._zooms:
            self._pane.remove_class(*self._zooms)
        elif self._focused is self._trees.view:
            self._zoom_tree()
        else:
            part = "-zoom-preview" if isinstance(self._focused, TextView) else "-zoom-references"
            self._pane.add_class("-zoom-detail", part)

    def _zoom_tree(self) -> None:
        """Give the tree all the room; where it has that already, show what is under the cursor as soon as it is read."""
        if self._pane.has_class("-narrow"):
            self._selected.when_read(lambda panel: self._queries.after(PREVIEW, partial(self._peek, panel)))
        else:
            self._pane.add_class("-zoom-tree")

    def _peek(self, panel: Panel) -> None:
        """Give the preview all the room, of a picture or a text."""
        shown, preview = self._selected.panel, self._detail.query_one(FilePreview)
        if shown is None or (shown.kind, shown.key) != (panel.kind, panel.key):
            return
        if preview in self._detail.parts:
            self._pane.add_class("-detail", "-zoom-detail", "-zoom-preview", _PEEK)
            give_focus(preview)
        else:
            self._pane.shell.show_toast("there is nothing to preview: it is a folder, or its file is gone", seconds=2)


def is_roomy(width: int) -> bool:
    """Whether there is room for the counts of trees that are not in front."""
    return width >= _ROOMY


def is_brief(width: int) -> bool:
    """Whether what a search finds has no room beside whole titles and the count of the tree in front."""
    return width < _TIGHT
