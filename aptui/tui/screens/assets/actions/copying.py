"""Copying from the Assets screen: what there is to copy of an asset, and the menu that asks.

Tests: `tests/tui/screens/assets/test_pane.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aptui.tui.data.asset_tree import Kind
from aptui.tui.screens.assets import files as assets_files
from aptui.tui.screens.assets.detail import ReferenceTree
from aptui.tui.screens.assets.panel import Panel
from aptui.tui.screens.assets.trees.trees import AssetTrees
from aptui.tui.widgets.menu import Menu, MenuItem
from aptui.tui.widgets.textview import TextView

if TYPE_CHECKING:
    from aptui.tui.pane import Shell

_COPIED_FACTS = {"Digest": "d", "Type": "t"}
"""{fact: its letter in the menu of copies}."""


class AssetCopying:
    """Asks what to copy, and copies it."""

    def __init__(self, shell: Shell, trees: AssetTrees) -> None:
        self._shell, self._trees = shell, trees

    def ask(self, panel: Panel) -> None:
        """Open the menu of what can be copied of it."""
        texts = self._copies(panel)
        items = [MenuItem(name, f"Copy {label}", name, bool(text)) for name, label, text in texts]
        by_name = {name: text for name, _, text in texts}
        Menu.ask(self._shell.app, items, lambda name: self.copy_path(by_name[name]) if name else None, title="Copy")

    def _copies(self, panel: Panel) -> list[tuple[str, str, str]]:
        """Return (key, what, text) of all there is to copy."""
        marked = self._list_marked_paths()
        found = [
            ("y", f"{len(marked):,} paths" if marked else "path", "\n".join(marked) or panel.path),
            ("f", "full path", panel.file),
            (
                "p",
                "product path" if len(panel.products) == 1 else f"{len(panel.products):,} product paths",
                "\n".join(panel.products),
            ),
            ("u", "UUID", panel.uuid),
            ("a", "asset id", panel.asset_id if panel.kind is Kind.PRODUCTS else ""),
            *((key, name.lower(), text) for name, key in _COPIED_FACTS.items() if (text := dict(panel.facts).get(name))),
        ]
        here = self._text_under_cursor()
        return [("l", "this line", here), *found] if here else found

    def _list_marked_paths(self) -> list[str]:
        tree, model = self._trees.view, self._trees.model
        nodes = [node for key in tree.list_selected_keys() if (node := model.node_of(key)) is not None] if tree.marks else []
        return [model.tree.path(node) for node in nodes] if model.tree is not None else []

    def _text_under_cursor(self) -> str:
        """Return the reference or the line of the preview that the cursor is on."""
        match self._shell.app.focused:
            case ReferenceTree() as references:
                ref = references.reference()
                return ref.text if ref else ""
            case TextView() as preview if preview.cursor_key is not None:
                return preview.text_of(preview.cursor_key)
        return ""

    def copy_path(self, text: str) -> None:
        """Copy a path as the bytes it is; one that a terminal would act on is made harmless first."""
        text = "\n".join(assets_files.native(line) for line in text.split("\n"))
        self._shell.copy_text(text, raw=all(assets_files.is_plain(line) for line in text.split("\n")))
