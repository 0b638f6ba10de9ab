"""What can be done with an asset of the Assets screen: copy, open, show, reprocess, ask why, go to its jobs.

Finding it is the pane's.

Tests: `tests/tui/screens/assets/test_pane.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from aptui.tui.data.asset_tree import Kind
from aptui.tui.data.assets_store import AssetModel
from aptui.tui.pane import Pane
from aptui.tui.screens.assets.actions.copying import AssetCopying
from aptui.tui.screens.assets.actions.moving import Moving
from aptui.tui.screens.assets.actions.programs import AssetPrograms
from aptui.tui.screens.assets.detail import AssetDetail
from aptui.tui.screens.assets.panel import PRODUCT, SOURCE, Panel, Ref, sources_of
from aptui.tui.screens.assets.query_worker import QueryWorker
from aptui.tui.screens.assets.why import read_why
from aptui.tui.widgets.menu import Confirm, Menu, MenuItem
from aptui.tui.widgets.rows.rows import Rows
from aptui.tui.widgets.tree import VTree

if TYPE_CHECKING:
    from aptui.link.port import Answer

_SIGNS = re.compile(r"([.^$*+?{}\[\]|()\\])")
_PRODUCTS_LISTED = 20
Place = tuple[int, int]


class AssetRowActions(Pane):
    """The actions; `AssetsPane` says what they are about."""

    kind: Kind = Kind.SOURCES
    panel: Panel | None = None
    queries: QueryWorker
    _later: tuple[tuple[Kind, int], Callable[[Panel], object]] | None = None

    def shown_tree(self) -> VTree:
        """Return the tree in front."""
        raise NotImplementedError

    def shown_model(self) -> AssetModel:
        """Return what the tree in front shows."""
        raise NotImplementedError

    def follow(self, ref: Ref) -> None:
        """Go where a reference leads."""
        raise NotImplementedError

    def go_where_it_went(self, path: str) -> None:
        """Go to what was moved, as soon as the tree has it."""
        raise NotImplementedError

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave out what needs an engine where none can be asked."""
        return self.shell.can_ask if action in {"reprocess", "move", "delete"} else super().check_action(action, parameters)

    def with_panel(self, do: Callable[[Panel], object]) -> None:
        """Do something with what the cursor is on, as soon as that was read; never with what it was on before."""
        key, panel = self.shown_tree().cursor_key, self.panel
        self._later = None
        if panel is not None and (panel.kind, panel.key) == (self.kind, key):
            do(panel)
        elif key is not None:
            self._later = ((self.kind, key), do)

    def waits_for(self, place: tuple[Kind, int | None]) -> bool:
        """Whether something shall be done as soon as this was read."""
        return self._later is not None and self._later[0] == place

    def take_panel(self, panel: Panel) -> None:
        """Do what waited for this panel; what waited for another is given up."""
        later, self._later = self._later, None
        if later is not None and later[0] == (panel.kind, panel.key):
            later[1](panel)

    # ---------------------------------------------------------------------------------------------------------------- menus

    def action_menu(self) -> None:
        """Open the menu of the row."""
        self.with_panel(self._open_menu)

    def on_rows_context_menu(self, event: Rows.ContextMenu) -> None:
        """Open the menu where the right button was pressed."""
        event.stop()
        self.with_panel(partial(self._open_menu, place=(event.x, event.y)))

    def _open_menu(self, panel: Panel, place: Place | None = None) -> None:
        is_file = bool(panel.file) and not panel.is_folder
        is_product = panel.kind is Kind.PRODUCTS
        other = "Go to its source" if is_product else "Go to a product…"
        items = [
            MenuItem("jobs", "Go to its jobs", "J", bool(panel.source)),
            MenuItem("other_side", other, "p", bool(_other_side(panel))),
            MenuItem("why", "Why its jobs ran", "x", is_file and bool(panel.source)),
            MenuItem("reprocess", self._reprocess_text(panel), "r", self.shell.can_ask),
            None,
            MenuItem("pager", "Open in $PAGER", "o", is_file),
            MenuItem("editor", "Open in $EDITOR", "O", is_file),
            MenuItem("folder", "Show the folder", "F", bool(panel.file)),
            MenuItem("move", "Move…", "m", self._can_move(panel)),
            MenuItem("delete", "Delete…", "D", self._can_move(panel)),
            MenuItem("copy", "Copy…", "y"),
            *self.more_items(panel),
        ]
        Menu.ask(self.app, items, self._do, title=panel.path.rpartition("/")[2], place=place)

    def more_items(self, panel: Panel) -> list[MenuItem | None]:  # noqa: ARG002  # for those who have more
        """Return what else can be done."""
        return []

    def _do(self, answer: str | None) -> None:
        if answer is not None:
            self.call_later(self.run_action, answer)

    def _reprocess_text(self, panel: Panel) -> str:
        count = len(self.shown_tree().marks)
        if count:
            return f"Reprocess {count:,} marked"
        return "Reprocess the folder" if panel.is_folder else "Reprocess"

    def action_copy(self) -> None:
        """Open the menu of what can be copied."""
        self.with_panel(lambda panel: AssetCopying(self.shell, self.shown_tree(), self.shown_model()).ask(panel))

    # ------------------------------------------------------------------------------------------------------------ going there

    def action_jobs(self) -> None:
        """Show the jobs of the source, or of all sources of the folder."""
        self.with_panel(self._show_jobs_of)

    def _show_jobs_of(self, panel: Panel) -> None:
        if not panel.source:
            return
        place = panel.source.partition("/")[2] if panel.is_folder and panel.kind is Kind.PRODUCTS else panel.source
        self.shell.reveal("jobs", jobs_filter(place, is_folder=panel.is_folder))

    def action_other_side(self) -> None:
        """Go to the product of a source, after asking which where there are some; or to the source of a product."""
        self.with_panel(self._go_over)

    def _go_over(self, panel: Panel) -> None:
        refs = _other_side(panel)
        if len(refs) == 1:
            self.follow(refs[0])
        elif refs:
            items = [MenuItem(str(at), ref.text) for at, ref in enumerate(refs[:_PRODUCTS_LISTED])]
            Menu.ask(self.app, items, lambda at: self.follow(refs[int(at)]) if at else None, title="Products")

    # ----------------------------------------------------------------------------------------------------------------- asking

    def action_reprocess(self) -> None:
        """Run the jobs of what is marked, or of the asset or folder under the cursor, again."""
        model, kind = self.shown_model(), self.kind
        keys = self.shown_tree().selected_keys()
        folders = [_pattern(model, key, kind) for key in keys if key < 0]
        files = [key for key in keys if key >= 0]

        def ask(is_sure: bool) -> None:
            if is_sure:
                self.queries.request(
                    "reprocess", lambda reader: sources_of(reader, kind, files), lambda names: self._reprocess([*folders, *names])
                )

        if folders:
            more = f" and {len(keys) - 1:,} more" if len(keys) > 1 else ""
            Confirm.ask(self.app, f"Reprocess all of '{folders[0]}'{more}?", ask, yes="reprocess", no="leave it")
        else:
            ask(is_sure=True)

    def _reprocess(self, names: Sequence[str]) -> None:
        from aptui.link.port import Reprocess  # for start-up: the verbs come after the first paint

        keys = tuple(dict.fromkeys(name.lower() for name in names if name))
        if keys:
            self.shell.ask(Reprocess(keys=keys), then=self._reprocessing)

    def _reprocessing(self, answer: Answer) -> None:
        count = answer.get("count", 0)
        self.shell.tell(f"{count:,} source{'' if count == 1 else 's'} asked for" if isinstance(count, int) else "asked for")

    def action_why(self) -> None:
        """Say in the preview why the jobs of the source ran."""
        self.with_panel(self._tell_why)

    def _tell_why(self, panel: Panel) -> None:
        if panel.is_folder or not panel.source:
            return
        self.queries.request("preview", lambda reader: read_why(reader, panel.source), self.query_one(AssetDetail).show_why)

    # ---------------------------------------------------------------------------------------------------------------- moving

    def _can_move(self, panel: Panel) -> bool:
        return self.shell.can_ask and panel.kind is Kind.SOURCES and bool(panel.path)

    def _moving(self) -> Moving:
        return Moving(self.shell, self.go_where_it_went)

    def action_move(self) -> None:
        """Ask where the source or the folder under the cursor shall go, show what that comes to, and do it."""
        self.with_panel(lambda panel: self._moving().ask_to_move(panel) if self._can_move(panel) else None)

    def action_delete(self) -> None:
        """Show what deleting the source or the folder under the cursor comes to, ask, and do it."""
        self.with_panel(lambda panel: self._moving().ask_to_delete(panel) if self._can_move(panel) else None)

    # ---------------------------------------------------------------------------------------------------------- other programs

    def action_pager(self) -> None:
        """Open the file in `$PAGER`."""
        self.with_panel(AssetPrograms(self.shell).pager)

    def action_editor(self) -> None:
        """Open the file in `$EDITOR`."""
        self.with_panel(AssetPrograms(self.shell).editor)

    def action_folder(self) -> None:
        """Show the folder of the file."""
        self.with_panel(AssetPrograms(self.shell).folder)


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


def jobs_filter(source: str, *, is_folder: bool) -> str:
    """Return the filter of the Jobs screen that lets a source through, or all in a folder."""
    pattern = "^" + _SIGNS.sub(r"\\\1", source) + ("/" if is_folder else "$")
    quoted = pattern.replace('"', '\\"')
    return f'"{quoted}"'
