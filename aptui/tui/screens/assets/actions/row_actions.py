"""What can be done with an asset of the Assets screen: copy, open, show, reprocess, ask why, go to its jobs.

Finding it is `navigation`'s.

Tests: `tests/tui/screens/assets/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from aptui.tui.data.asset_tree import Kind
from aptui.tui.data.assets_store import AssetModel
from aptui.tui.screens.assets.actions.copying import AssetCopying
from aptui.tui.screens.assets.actions.moving import Moving
from aptui.tui.screens.assets.actions.programs import AssetPrograms
from aptui.tui.screens.assets.missing import MissingScans
from aptui.tui.screens.assets.navigation import AssetNavigation
from aptui.tui.screens.assets.panel import PRODUCT, SOURCE, Panel, Ref, sources_of
from aptui.tui.screens.assets.readers import AssetReaders
from aptui.tui.screens.assets.selected import SelectedAsset
from aptui.tui.screens.assets.trees.trees import AssetTrees
from aptui.tui.widgets.menu import Confirm, Menu, MenuItem

if TYPE_CHECKING:
    from aptui.link.port import Answer
    from aptui.tui.pane import Shell

_PRODUCTS_LISTED = 20
_NEED_ENGINE = frozenset({"reprocess", "move", "delete", "scan_missing", "clear_missing"})
PointerPlace = tuple[int, int]


class AssetActions:
    """Offers and does them for one screen; ids are those of the keymap, `assets.<id>`."""

    def __init__(
        self, shell: Shell, readers: AssetReaders, trees: AssetTrees, selected: SelectedAsset, navigation: AssetNavigation,
        missing: MissingScans,
    ) -> None:  # fmt: skip
        self._shell, self._queries, self._trees, self._selected = shell, readers.queries, trees, selected
        self._navigation, self._missing = navigation, missing
        programs, moving = AssetPrograms(shell), Moving(shell, navigation.go_where_it_went)
        self._copying = AssetCopying(shell, trees)
        self._with_panel: dict[str, Callable[[Panel], object]] = {
            "menu": self._open_menu,
            "jobs": self._show_jobs,
            "other_side": self._go_over,
            "why": selected.show_why,
            "copy": self._copying.ask,
            "pager": programs.pager,
            "editor": programs.editor,
            "folder": programs.folder,
            "move": self._if_movable(moving.ask_to_move),
            "delete": self._if_movable(moving.ask_to_delete),
        }
        self._with_rows: dict[str, Callable[[], object]] = {
            "reprocess": self._reprocess,
            "scan_missing": missing.scan,
            "clear_missing": missing.clear,
        }

    def can(self, action_id: str) -> bool:
        """Whether something can be done here at all: much needs an engine."""
        return action_id not in _NEED_ENGINE or self._shell.can_ask

    def do(self, action_id: str) -> None:
        """Do something with the rows that are marked, or with what is under the cursor as soon as that was read."""
        if action_id in self._with_rows:
            self._with_rows[action_id]()
        else:
            self._selected.when_read(self._with_panel[action_id])

    def menu_at(self, place: PointerPlace) -> None:
        """Open the menu where the right button was pressed."""
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
            MenuItem("reprocess", self._reprocess_text(panel), "r", self._shell.can_ask),
            None,
            MenuItem("pager", "Open in $PAGER", "o", is_file),
            MenuItem("editor", "Open in $EDITOR", "O", is_file),
            MenuItem("folder", "Show the folder", "F", bool(panel.file or panel.folders)),
            MenuItem("move", "Move…", "m", self._can_move(panel)),
            MenuItem("delete", "Delete…", "D", self._can_move(panel)),
            MenuItem("copy", "Copy…", "y"),
            *self._missing.menu_items(panel),
        ]
        title = panel.path.rpartition("/")[2]
        Menu.ask(self._shell.app, items, lambda what: self.do(what) if what else None, title=title, place=place)

    def _reprocess_text(self, panel: Panel) -> str:
        count = len(self._trees.view.marks)
        if count:
            return f"Reprocess {count:,} marked"
        return "Reprocess the folder" if panel.is_folder else "Reprocess"

    def _show_jobs(self, panel: Panel) -> None:
        """Show the jobs of the source, or of all sources of the folder."""
        if panel.source:
            is_platform_first = panel.is_folder and panel.kind is Kind.PRODUCTS
            source = panel.source.partition("/")[2] if is_platform_first else panel.source
            self._navigation.show_jobs(source, is_folder=panel.is_folder)

    def _go_over(self, panel: Panel) -> None:
        """Go to the product of a source, after asking which where there are some; or to the source of a product."""
        refs, follow = _other_side(panel), self._navigation.follow
        if len(refs) == 1:
            follow(refs[0])
        elif refs:
            items = [MenuItem(str(at), ref.text) for at, ref in enumerate(refs[:_PRODUCTS_LISTED])]
            Menu.ask(self._shell.app, items, lambda at: follow(refs[int(at)]) if at else None, title="Products")

    def _can_move(self, panel: Panel) -> bool:
        return self._shell.can_ask and panel.kind is Kind.SOURCES and bool(panel.path)

    def _if_movable(self, do: Callable[[Panel], object]) -> Callable[[Panel], object]:
        return lambda panel: do(panel) if self._can_move(panel) else None

    # ------------------------------------------------------------------------------------------------------------- reprocess

    def _reprocess(self) -> None:
        """Run the jobs of what is marked, or of the asset or folder under the cursor, again."""
        kind, keys = self._trees.kind, self._trees.view.list_selected_keys()
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
            Confirm.ask(self._shell.app, f"Reprocess all of '{folders[0]}'{more}?", ask, yes="reprocess", no="leave it")
        else:
            ask(is_sure=True)

    def _ask_to_reprocess(self, names: Sequence[str]) -> None:
        from aptui.link.port import ReprocessJobs  # for start-up: the verbs come after the first paint

        keys = tuple(dict.fromkeys(name.lower() for name in names if name))
        if keys:
            self._shell.ask(ReprocessJobs(keys=keys), then=self._report)

    def _report(self, answer: Answer) -> None:
        count = answer.get("count", 0)
        sources = f"{count:,} source{'' if count == 1 else 's'} " if isinstance(count, int) else ""
        self._shell.show_toast(f"{sources}to be run again")


def _other_side(panel: Panel) -> list[Ref]:
    """Return what a source made, or what a product was made of."""
    wanted = SOURCE if panel.kind is Kind.PRODUCTS else PRODUCT
    return [ref for group in panel.groups for ref in group.refs if ref.leads == wanted and group.title in {"", "Products"}]


def _pattern(model: AssetModel, key: int, kind: Kind) -> str:
    """Return what names all sources below a folder; those of a folder of products lie in the same folder without the platform."""
    node = model.node_of(key)
    path = model.tree.path(node) if node is not None and model.tree is not None else ""
    if kind is Kind.PRODUCTS:
        path = path.partition("/")[2]
        return f"{path}/*" if path else "*"
    return f"{path}/*" if path else ""
