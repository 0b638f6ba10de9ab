"""The Assets screen: the trees of sources, intermediates and products, the details of each, and moves between them.

This module has the keys, the messages and the layout of the screen; the classes of the other modules do the work. Shown data stays
until newer data is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Input

from aptui import feature
from aptui.tui.data.assets_store import Kind
from aptui.tui.frame.commandline import Command
from aptui.tui.pane import Pane
from aptui.tui.screens.assets.asset_actions import AssetActions, AssetExtension, AssetParts
from aptui.tui.screens.assets.asset_detail import TITLES, AssetDetail, FilePreview, ReferenceTree, TreeTabs
from aptui.tui.screens.assets.asset_navigation import TARGET, AssetNavigation, SelectedAsset
from aptui.tui.screens.assets.asset_readers import PREVIEW, AssetReaders
from aptui.tui.screens.assets.asset_trees import SEARCH, AssetTrees, LiveTrees, SearchResult, TreeSearch
from aptui.tui.widgets.filterbox import FilterBox, give_focus
from aptui.tui.widgets.row_list import Rows
from aptui.tui.widgets.textview import TextView

if TYPE_CHECKING:
    from textual.widget import Widget

    from aptui.shared.errors import KnownError
    from aptui.tui.data.feed import Batch
    from aptui.tui.screens.assets.asset_panel import Panel


_NARROW = 110
"""Minimum width of the screen for the details beside the tree (cells); on a narrower screen they replace the tree."""
_ROOMY, TIGHT = 100, 72
"""Minimum width of the screen for tabs with the counts of all trees, and for tabs with full titles (cells)."""
_PEEK = "-peek"
"""CSS class of the pane while, on a narrow screen, the preview replaces the tree; the next zoom shows the tree again."""
_ABOVE_TREE = ("-detail", "-zoom-detail", "-zoom-references", "-zoom-preview", _PEEK)
"""CSS classes of the pane; if it has any of them, a narrow screen shows something else in place of the tree."""

CSS = """
AssetsPane { layers: base; }
#assets-head { dock: top; height: auto; width: 1fr; layout: horizontal; }
#assets-tabs { height: 1; width: 40; }
#assets-body { layout: horizontal; height: 1fr; width: 1fr; }
#assets-trees { width: 3fr; height: 1fr; }
#assets-detail { width: 4fr; height: 1fr; border-left: solid $role-rule; }
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


_PLACEHOLDER = "name, path/, UUID or asset id"
_NO_ASSET = {"pattern": "it is a pattern", "exclusion": "it excludes files", "path": "no product has this path"}
"""{note in the line of a reference: reason why the reference does not lead to an asset, for a message}."""


class AssetsPane(Pane):
    """The Assets screen; other screens call `reveal`."""

    DEFAULT_CSS = CSS
    command_names = ("sources", "intermediates", "products", "asset")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "search", id="assets.search"),
        Binding("t,greater_than_sign", "next_tree(1)", "tree", id="assets.next_tree"),
        Binding("less_than_sign", "next_tree(-1)", "previous tree", id="assets.previous_tree", show=False),
        Binding("z", "zoom", "zoom", id="assets.zoom"),
        Binding("y", "row('copy')", "copy", id="assets.copy"),
        Binding("J", "row('jobs')", "jobs", id="assets.jobs"),
        Binding("x", "row('why')", "why", id="assets.why"),
        Binding("r", "row('reprocess')", "run again", id="assets.reprocess"),
        Binding("full_stop", "row('menu')", "menu", id="assets.menu"),
        Binding("left_square_bracket", "walk(-1)", "back", id="assets.back"),
        Binding("right_square_bracket", "walk(1)", "forward", id="assets.forward", show=False),
        Binding("p", "row('other_side')", "go to product or source", id="assets.other_side", show=False),
        Binding("o", "row('pager')", "open in $PAGER", id="assets.pager", show=False),
        Binding("O", "row('editor')", "open in $EDITOR", id="assets.editor", show=False),
        Binding("F", "row('folder')", "open the folder", id="assets.folder", show=False),
        Binding("U", "row('scan_missing')", "scan", id="assets.scan_missing", show=False),
        Binding("X", "row('clear_missing')", "clear the scan's results", id="assets.clear_missing", show=False),
        Binding("m", "row('move')", "move", id="assets.move", show=False),
        Binding("D", "row('delete')", "delete", id="assets.delete", show=False),
        Binding("n", "next_hit(1)", "next hit", id="assets.next_hit", show=False),
        Binding("N", "next_hit(-1)", "previous hit", id="assets.previous_hit", show=False),
        Binding("e", "next_bad(1)", "next failed", id="assets.next_failed", show=False),
        Binding("E", "next_bad(-1)", "previous failed", id="assets.previous_failed", show=False),
        Binding("right_parenthesis", "texture(1, 0)", "smaller level", id="assets.smaller_level", show=False),
        Binding("left_parenthesis", "texture(-1, 0)", "larger level", id="assets.larger_level", show=False),
        Binding("right_curly_bracket", "texture(0, 1)", "next face or layer", id="assets.next_face", show=False),
        Binding("left_curly_bracket", "texture(0, -1)", "previous face or layer", id="assets.previous_face", show=False),
        Binding("equals_sign", "row('compare')", "compare with an earlier version", id="assets.compare", show=False),
        Binding("tab", "part(1)", "next part", id="app.next_part", show=False),
        Binding("shift+tab", "part(-1)", "previous part", id="app.previous_part", show=False),
        Binding("escape", "leave", "back to the tree", id="assets.leave", show=False),
    ]

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        shell = self.shell
        history = shell.memory.history("assets.searches")[::-1]
        self.readers = AssetReaders(shell, partial(shell.in_ui, self._deliver), self._note_failed)
        queries = self.readers.queries
        self.trees, self._tabs = AssetTrees(self.readers.store), TreeTabs()
        self.detail = AssetDetail(queries, self.readers.decoder)
        self.box = FilterBox(shell.memory.get("assets.search", ""), history=history, placeholder=_PLACEHOLDER, id="assets-search")
        self.selected = SelectedAsset(self.readers, self.trees, self.detail)
        self.search = TreeSearch(shell, self.trees, self.box, queries, self._show_found)
        self.live = LiveTrees(shell, self.trees, self.search, self._show_tree, self.selected.refresh_folder)
        self.navigation = AssetNavigation(shell, self.readers, self.trees, self.selected, self.search, self.show_tree)
        parts = AssetParts(shell, self.readers, self.trees, self.selected, self.navigation)
        self.extensions: list[AssetExtension] = [extend(parts) for extend in feature.load_all("assets")]
        self.actions = AssetActions(parts, self.extensions)

    @classmethod
    def list_command_names(cls) -> Sequence[str]:
        """Return the names of the screen's own commands and of those that features add."""
        return (*cls.command_names, *(name for extend in feature.load_all("assets") for name in extend.command_names))

    def compose(self) -> ComposeResult:
        """Create the widgets."""
        with Horizontal(id="assets-body"):
            yield self.trees
            yield self.detail
        yield from (each.line for each in self.extensions if each.line is not None)
        with Horizontal(id="assets-head"):
            yield self._tabs
            yield self.box

    def on_mount(self) -> None:
        """Read the tree that was shown last."""
        last = self.shell.memory.get("assets.tree", "")
        self.show_tree(Kind(last) if last in set(Kind) else Kind.SOURCES)
        self.shell.wake()

    def _deliver(self, call: Callable[..., object], *arguments: object) -> None:
        """Handle the answer to a query, unless the screen was closed in the meantime."""
        if self.is_attached and self.is_running:
            call(*arguments)

    def _note_failed(self, kind: str, error: KnownError) -> None:
        """Show the error of a query."""
        if kind == SEARCH:
            self.search.show_error(error)
            self.live.explain_empty_tree()
        elif self.is_attached:
            self.shell.show_toast(str(error), "warning")

    def on_unmount(self) -> None:
        """End the threads."""
        self.readers.close()

    def on_resize(self, event: events.Resize) -> None:
        """Lay out again after a change of the size."""
        self.set_class(event.size.width < _NARROW, "-narrow")
        self._show_tabs()

    # ----------------------------------------------------------------------------------------------------- methods of `Pane`

    def activate(self) -> None:
        """Focus the tree instead of the search."""
        if isinstance(self.app.focused, Input):
            give_focus(self.trees.view)

    def deactivate(self) -> None:
        """Remember the tree and the search."""
        self.shell.memory.put("assets.tree", self.trees.kind.value)
        self.shell.memory.put("assets.search", self.box.text)

    def on_news(self, batch: Batch) -> None:
        """Note whether trees or the shown asset may have changed."""
        self.live.note(batch)
        for each in self.extensions:
            each.note(batch)
        self.selected.note(batch)

    def on_frame(self) -> None:
        """Show trees that were read since the last frame. Read outdated trees and outdated details of the shown asset again."""
        self.live.renew()
        self.live.show_newest()
        self.selected.renew()

    def reload(self) -> None:
        """Read everything again."""
        self.readers.store.mark_stale()
        self.selected.mark_stale()
        self.shell.wake()

    def commands(self) -> Sequence[Command]:
        """Return the commands of the `:` line."""
        trees = [
            Command(
                kind.value,
                f"show the tree of {kind.value}, and search it for the text that follows",
                partial(self._run_tree_command, kind),
            )
            for kind in Kind
        ]
        asset = Command("asset", "go to an asset by path, product, UUID or asset id", self.reveal)
        return [*trees, asset, *(command for each in self.extensions for command in each.commands())]

    def status(self) -> str:
        """Return the name of the visible tree and its number of files."""
        tree = self.trees.model.tree
        return f"{TITLES[self.trees.kind]}: {tree.file_count:,}" if tree is not None else ""

    def reveal(self, text: str, came_from: str = "") -> None:
        """Go to an asset; called by other screens."""
        self.navigation.reveal(text, came_from)

    def name_awaited(self, focused: Widget | None) -> str:
        """Return what must be shown before the next key press can act: the first rows, the search result or the requested asset."""
        queries = self.readers.queries
        if (self.trees.model.tree is None or not self.live.is_placed) and self.readers.store.error is None:
            return "the first rows"
        if isinstance(focused, Input):
            return ""
        if self.search.is_under_way:
            return "the search"
        if queries.is_awaited(TARGET) or self.selected.is_awaited:
            return "the asset"
        return "the preview" if queries.has_follow_up(PREVIEW) else ""

    # ----------------------------------------------------------------------------------------------------------------- trees

    def show_tree(self, kind: Kind) -> None:
        """Show another tree."""
        self.trees.put_in_front(kind)
        self._show_tabs()
        self.live.show_newest()
        if self.search.is_shown:
            self.search.show_count()
        else:
            self.live.search()
        key = self.trees.view.cursor_key
        if key is None:
            self.selected.clear()
        elif self.trees.wanted is None:
            self.selected.show_row(key)

    def _run_tree_command(self, kind: Kind, text: str) -> None:
        """Show a tree and search it for `text`."""
        self.show_tree(kind)
        if text:
            self.box.text = text

    def _show_tabs(self) -> None:
        """Draw the tabs again."""
        width = self.size.width
        self._tabs.show(self.trees.kind, self.trees.file_counts(), is_roomy=width >= _ROOMY, is_brief=width < TIGHT)

    def _show_tree(self) -> None:
        """Draw the tabs again and go to the requested asset; called after a tree was read."""
        self._show_tabs()
        self.navigation.apply_target()

    def _show_found(self, found: SearchResult) -> None:
        """Draw the tabs and the tree again after a search."""
        self.live.explain_empty_tree()
        if not len(found.hits):
            self.selected.clear()
        self._show_tree()

    # ------------------------------------------------------------------------------------------------- events of the widgets

    def on_rows_highlighted(self, event: Rows.Highlighted) -> None:
        """Show the row under the cursor, unless the cursor has moved on since the message was posted."""
        if event.rows is self.trees.view and event.key == event.rows.cursor_key:
            if (self.trees.kind, event.key) != self.selected.place:
                for each in self.extensions:
                    each.leave_row()
            self.selected.show_row(event.key)

    def on_rows_opened(self, event: Rows.Opened) -> None:
        """Go to the details of a file, or follow a reference."""
        event.stop()
        references = self.detail.references
        if event.rows is self.trees.view:
            if event.key >= 0:
                self.add_class("-detail")
                give_focus(references)
            elif self.trees.model.node_of(event.key) is not None:
                self.trees.view.action_open()
        elif event.rows is references and (ref := references.reference(event.key)) is not None:
            self.navigation.follow(ref)

    @on(ReferenceTree.NoTarget)
    def _explain_dead_end(self, event: ReferenceTree.NoTarget) -> None:
        event.stop()
        self.shell.show_toast(f"'{event.ref.text}' is not an asset: {_NO_ASSET.get(event.ref.note, 'no builder handles it')}")

    def on_rows_context_menu(self, event: Rows.ContextMenu) -> None:
        """Open the menu at the pointer."""
        event.stop()
        self.actions.menu_at((event.x, event.y))

    def on_filter_box_changed(self, event: FilterBox.Changed) -> None:
        """Search the visible tree for the typed text."""
        event.stop()
        self.live.search()

    @on(FilterBox.FilterLeft)
    def _leave_search(self, event: FilterBox.FilterLeft) -> None:
        event.stop()
        if event.is_remembered:
            self.shell.memory.remember("assets.searches", event.text)
        give_focus(self.trees.view)

    def on_asset_detail_preview_replaced(self, event: AssetDetail.PreviewReplaced) -> None:
        """Show the preview on a screen that is too narrow for tree and details."""
        event.stop()
        self._uncover_preview()

    def on_tree_tabs_tree_chosen(self, event: TreeTabs.TreeChosen) -> None:
        """Show the tree whose tab was clicked."""
        self.show_tree(event.kind)
        self._go_into_tree()

    # ------------------------------------------------------------------------------------------------------------------ keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action is possible; actions that need an engine are hidden while no requests can be sent."""
        return self.actions.can(str(parameters[0])) if action == "row" else super().check_action(action, parameters)

    def action_row(self, action_id: str) -> None:
        """Run an action on the selected rows."""
        self.actions.run(action_id)

    def action_search(self) -> None:
        """Focus the search."""
        self._uncover_tree()
        self.box.begin()

    def action_next_tree(self, step: int) -> None:
        """Show the next tree and focus it."""
        kinds = list(Kind)
        self.show_tree(kinds[(kinds.index(self.trees.kind) + step) % len(kinds)])
        self._go_into_tree()

    async def action_walk(self, step: int) -> None:
        """Go back or forward."""
        await self.navigation.walk(step)

    def action_next_hit(self, step: int) -> None:
        """Go to the next hit of the search."""
        self.search.go_to_hit(step)

    def action_next_bad(self, step: int) -> None:
        """Go to the next source with a problem."""
        self.search.go_to_bad(step)

    def action_texture(self, levels: int, pictures: int) -> None:
        """Show another level (mip), or another face or layer, of a texture."""
        if not self.detail.step_texture(levels, pictures):
            why = (
                "no levels: this is not a texture with mip levels"
                if levels
                else "no faces or layers: this is not a cube map or an array"
            )
            self.shell.show_toast(why, seconds=2)

    # -------------------------------------------------------------------------------------------------------------- layout

    def _uncover_tree(self) -> None:
        self.remove_class(*_ABOVE_TREE)

    def _go_into_tree(self) -> None:
        """Show the tree and focus it."""
        self._uncover_tree()
        give_focus(self.trees.view)

    @property
    def _zooms(self) -> list[str]:
        return [name for name in self.classes if name.startswith("-zoom")]

    def action_part(self, step: int) -> None:
        """Focus the next part: tree, references or preview. The search is skipped, so that letters act as keys."""
        tree, focused = self.trees.view, self.app.focused
        parts: list[Widget] = [tree, *self.detail.parts]
        if self._zooms:
            parts = [part for part in parts if part in self.screen.focus_chain] or [tree]
        at = parts.index(focused) if focused in parts else -1 if step > 0 else 0
        part = parts[(at + step) % len(parts)]
        self.set_class(part is not tree, "-detail")
        give_focus(part)

    def action_leave(self) -> None:
        """End the zoom, else leave the details, else clear the search."""
        if self._zooms and not self.has_class(_PEEK):
            self.remove_class(*self._zooms)
        elif self.app.focused is not self.trees.view:
            self._go_into_tree()
        elif self.box.text:
            self.box.text = ""

    def action_zoom(self) -> None:
        """Enlarge the focused widget to the whole pane, or undo this.

        On a narrow screen, the tree has all the room already: if it has the focus, show the preview in its place. The next zoom
        shows the tree again.
        """
        if self.has_class(_PEEK):
            self._go_into_tree()
        elif self._zooms:
            self.remove_class(*self._zooms)
        elif self.app.focused is self.trees.view and self.has_class("-narrow"):
            self._uncover_preview()  # the tree fills a narrow screen already
        elif self.app.focused is self.trees.view:
            self.add_class("-zoom-tree")
        else:
            part = "-zoom-preview" if isinstance(self.app.focused, TextView) else "-zoom-references"
            self.add_class("-zoom-detail", part)

    def _uncover_preview(self) -> None:
        """On a narrow screen, show the preview of the row once it is read, in place of tree and details."""
        if self.has_class("-narrow"):
            self.selected.when_read(lambda panel: self.readers.queries.call_after(PREVIEW, partial(self._peek, panel)))

    def _peek(self, panel: Panel) -> None:
        """Give the preview all the room."""
        shown, preview = self.selected.panel, self.detail.query_one(FilePreview)
        if shown is None or (shown.kind, shown.key) != (panel.kind, panel.key):
            return
        if preview in self.detail.parts:
            self.add_class("-detail", "-zoom-detail", "-zoom-preview", _PEEK)
            give_focus(preview)
        else:
            self.shell.show_toast("no preview: this is a folder, or the file does not exist", seconds=2)
