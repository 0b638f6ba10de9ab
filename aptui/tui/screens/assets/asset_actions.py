"""Actions on an asset of the Assets screen: copy, open, run again, explain, go to its jobs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from aptui.link.port import Answer, ReprocessJobs
from aptui.shared.printing import count
from aptui.tui.data.assets_store import AssetModel, Kind
from aptui.tui.frame import terminal_control
from aptui.tui.screens.assets.asset_detail import ReferenceTree
from aptui.tui.screens.assets.asset_navigation import AssetNavigation, SelectedAsset
from aptui.tui.screens.assets.asset_panel import PRODUCT, SOURCE, Panel, Ref, sources_of
from aptui.tui.screens.assets.asset_readers import AssetReaders
from aptui.tui.screens.assets.asset_trees import AssetTrees
from aptui.tui.screens.external_programs import copy_paths, editor, pager
from aptui.tui.widgets.menu import Confirm, Menu, MenuItem
from aptui.tui.widgets.textview import TextView

if TYPE_CHECKING:
    from aptui.tui.data.feed import Batch
    from aptui.tui.frame.commandline import Command
    from aptui.tui.frame.line import Line
    from aptui.tui.pane import Shell


_COPIED_FACTS = {"Digest": "d", "Type": "t"}
"""{fact that can be copied: its letter in the menu of copies}."""
_PRODUCTS_LISTED = 20
PointerPlace = tuple[int, int]


class AssetParts(NamedTuple):
    """The members of the Assets screen that its actions use."""

    shell: Shell
    readers: AssetReaders
    trees: AssetTrees
    selected: SelectedAsset
    navigation: AssetNavigation


class AssetExtension:
    """Base of an addition to the Assets screen by a feature (extension point `assets`); subclasses override methods."""

    line: Line | None = None
    """A widget of one line above the search, None = no line."""
    command_names: ClassVar[tuple[str, ...]] = ()
    """Names of all commands that `commands` can return."""

    def __init__(self, parts: AssetParts) -> None:
        self.parts = parts

    def actions(self) -> Mapping[str, Callable[[], object]]:
        """Return {id: function for the selected rows}; `assets.<id>` is the id in the keymap. The actions need an engine."""
        return {}

    def menu_items(self, panel: Panel) -> Sequence[MenuItem | None]:
        """Return more entries for the menu of an asset. Each entry has an id of `actions`; None draws a rule between entries."""
        del panel
        return ()

    def commands(self) -> Sequence[Command]:
        """Return commands of the `:` line and the palette."""
        return ()

    def note(self, batch: Batch) -> None:
        """Handle the notices of one frame."""

    def leave_row(self) -> None:
        """Handle a move of the cursor to another row."""


class AssetActions:
    """Offers and runs the actions of one Assets screen; `assets.<id>` is the id of an action in the keymap."""

    def __init__(self, parts: AssetParts, extensions: Sequence[AssetExtension]) -> None:
        self._shell, self._queries, self._trees, self._selected = parts.shell, parts.readers.queries, parts.trees, parts.selected
        self._navigation, self._extensions = parts.navigation, extensions
        self._with_panel: dict[str, Callable[[Panel], object]] = {
            "menu": self._open_menu,
            "jobs": self._show_jobs,
            "other_side": self._go_to_source_or_product,
            "why": self._selected.show_why,
            "compare": lambda panel: self._selected.compare(panel, self._shell.show_toast),
            "copy": self._copy,
            "pager": partial(self._open_in, pager),
            "editor": partial(self._open_in, editor),
            "folder": self._open_folder,
        }
        self._with_rows: dict[str, Callable[[], object]] = {"reprocess": self._reprocess}
        for each in extensions:
            self._with_rows.update(each.actions())

    def can(self, action_id: str) -> bool:
        """Return whether an action is available here: many actions need an engine, some need a feature."""
        return action_id in self._with_panel or (action_id in self._with_rows and self._shell.can_ask)

    def run(self, action_id: str) -> None:
        """Run an action on the marked rows, or on the row under the cursor as soon as its asset is read."""
        if action_id in self._with_rows:
            self._with_rows[action_id]()
        else:
            self._selected.when_read(self._with_panel[action_id])

    def menu_at(self, place: PointerPlace) -> None:
        """Open the menu of actions at a position of the pointer."""
        self._selected.when_read(partial(self._open_menu, place=place))

    def _open_menu(self, panel: Panel, place: PointerPlace | None = None) -> None:
        is_file = bool(panel.file) and not panel.is_folder
        items = [
            MenuItem("jobs", "Go to its jobs", "J", bool(panel.source)),
            MenuItem(
                "other_side",
                "Go to its source" if panel.kind is Kind.PRODUCTS else "Go to a product…",
                "p",
                bool(_other_side(panel)),
            ),
            MenuItem("why", "Why its jobs ran", "x", is_file and bool(panel.source)),
            MenuItem("compare", "Before and after", "=", is_file),
            MenuItem("reprocess", self._reprocess_text(panel), "r", self._shell.can_ask),
            None,
            MenuItem("pager", "Open in $PAGER", "o", is_file),
            MenuItem("editor", "Open in $EDITOR", "O", is_file),
            MenuItem("folder", "Open the folder", "F", bool(panel.file or panel.folders)),
            MenuItem("copy", "Copy…", "y"),
            *(item for each in self._extensions for item in each.menu_items(panel)),
        ]
        title = panel.path.rpartition("/")[2]
        Menu.ask(self._shell.app, items, lambda what: self.run(what) if what else None, title=title, place=place)

    def _reprocess_text(self, panel: Panel) -> str:
        if marks := len(self._trees.view.marks):
            return f"Run {marks:,} marked rows again"
        return "Run all in the folder again" if panel.is_folder else "Run again"

    def _show_jobs(self, panel: Panel) -> None:
        """Show the jobs of the source, or of all sources in the folder, on the Jobs screen."""
        if panel.source:
            is_platform_first = panel.is_folder and panel.kind is Kind.PRODUCTS
            source = panel.source.partition("/")[2] if is_platform_first else panel.source
            self._navigation.show_jobs(source, is_folder=panel.is_folder)

    def _go_to_source_or_product(self, panel: Panel) -> None:
        """Go from a source to its product (ask if it has several), or from a product to its source."""
        refs, follow = _other_side(panel), self._navigation.follow
        if len(refs) == 1:
            follow(refs[0])
        elif refs:
            items = [MenuItem(str(at), ref.text) for at, ref in enumerate(refs[:_PRODUCTS_LISTED])]
            title = "Products" if len(items) == len(refs) else f"{len(items)} of {len(refs):,} products"
            Menu.ask(self._shell.app, items, lambda at: follow(refs[int(at)]) if at else None, title=title)

    # --------------------------------------------------------------------------------------- other programs and the clipboard

    def _open_in(self, command: Callable[[], list[str]], panel: Panel) -> None:
        """Open the file in `$PAGER` or `$EDITOR`."""
        if panel.is_folder or not panel.file:
            return
        if os.path.exists(panel.file):
            terminal_control.lend(self._shell, [*command(), panel.file])
        else:
            self._shell.show_toast(f"the file does not exist: '{panel.file}'", "warning")

    def _open_folder(self, panel: Panel) -> None:
        """Open the folder, or the folder that contains the file."""
        folders = panel.folders or (panel.file if panel.is_folder else os.path.dirname(panel.file),)
        if any(folders):
            terminal_control.show_folder(self._shell, next(filter(os.path.isdir, folders), folders[0]))

    def _copy(self, panel: Panel) -> None:
        """Open the menu of texts to copy."""
        choices = [
            (MenuItem(key, f"Copy {label}", key, any(texts)), partial(copy_paths, self._shell, texts))
            for key, label, texts in self._copies(panel)
        ]
        Menu.run_one(self._shell.app, choices, title="Copy")

    def _copies(self, panel: Panel) -> list[tuple[str, str, Sequence[str]]]:
        """Return (letter, label, lines) of every text that can be copied; a path is one line, even if its name has a line break."""
        marked, product_count = self._list_marked_paths(), len(panel.products)
        found: list[tuple[str, str, Sequence[str]]] = [
            ("y", f"{len(marked):,} paths" if marked else "path", marked or [panel.path]),
            ("f", "full path", [panel.file]),
            ("p", "product path" if product_count == 1 else f"{product_count:,} product paths", panel.products),
            ("u", "UUID", [panel.uuid]),
            ("a", "asset id", [panel.asset_id if panel.kind is Kind.PRODUCTS else ""]),
            *((key, name.lower(), [text]) for name, key in _COPIED_FACTS.items() if (text := dict(panel.facts).get(name))),
        ]
        here = self._text_under_cursor()
        return [("l", "this line", [here]), *found] if here else found

    def _list_marked_paths(self) -> list[str]:
        tree, model = self._trees.view, self._trees.model
        nodes = [node for key in tree.marks.list_selected() if (node := model.node_of(key)) is not None] if tree.marks else []
        return [model.tree.path(node) for node in nodes] if model.tree is not None else []

    def _text_under_cursor(self) -> str:
        """Return the reference under the cursor, or the line of the preview under the cursor."""
        match self._shell.app.focused:
            case ReferenceTree() as references:
                ref = references.reference()
                return ref.text if ref else ""
            case TextView() as preview if preview.cursor_key is not None:
                return preview.text_of(preview.cursor_key)
        return ""

    # ---------------------------------------------------------------------------------------------------- running jobs again

    def _reprocess(self) -> None:
        """Run the jobs of the marked rows again, or of the row under the cursor."""
        kind, keys = self._trees.kind, self._trees.view.marks.list_selected()
        folders = [_pattern(self._trees.model, key, kind) for key in keys if key < 0]
        files = [key for key in keys if key >= 0]

        def ask(is_sure: bool) -> None:
            if is_sure:
                self._queries.request(
                    "reprocess",
                    lambda reader: sources_of(reader, kind, files),
                    lambda names: self._ask_to_reprocess([*folders, *names]),
                )

        if folders:
            more = f" and {len(keys) - 1:,} more" if len(keys) > 1 else ""
            Confirm.ask(self._shell.app, f"Run all jobs of '{folders[0]}'{more} again?", ask, yes="run them", no="leave them")
        else:
            ask(is_sure=True)

    def _ask_to_reprocess(self, names: Sequence[str]) -> None:
        keys = tuple(dict.fromkeys(name.lower() for name in names if name))
        if keys:
            self._shell.ask(ReprocessJobs(keys=keys), then=self._report)

    def _report(self, answer: Answer) -> None:
        number = answer.get("count")
        sources = f"{count(number, 'source')} " if isinstance(number, int) else ""
        self._shell.show_toast(f"{sources}queued to run again")


def _other_side(panel: Panel) -> list[Ref]:
    """Return the products of a source, or, for a product, its source."""
    wanted = SOURCE if panel.kind is Kind.PRODUCTS else PRODUCT
    return [ref for group in panel.groups for ref in group.refs if ref.leads == wanted and group.title in {"", "Products"}]


def _pattern(model: AssetModel, key: int, kind: Kind) -> str:
    """Return a pattern that matches all sources below a folder. It omits the platform, with which a product's path begins."""
    node = model.node_of(key)
    path = model.tree.path(node) if node is not None and model.tree is not None else ""
    if kind is Kind.PRODUCTS:
        path = path.partition("/")[2]
        return f"{path}/*" if path else "*"
    return f"{path}/*" if path else ""
