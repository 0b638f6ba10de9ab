"""The Assets screen: the trees of sources, intermediates and products, the details of each, and the ways between them.

Everything is read in threads: trees by `AssetsStore`, the rest by `QueryWorker`. What is shown stays until something newer is
there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from aptui.config.dirs import asset_database
from aptui.tui.data.asset_health import health_text
from aptui.tui.data.asset_tree import Kind
from aptui.tui.data.assets_store import AssetModel, AssetsStore
from aptui.tui.frame.commandline import Command
from aptui.tui.pictures.decoding import Decoder
from aptui.tui.screens.assets import parts
from aptui.tui.screens.assets.actions.row_actions import jobs_filter
from aptui.tui.screens.assets.detail import AssetDetail, FilePreview, ReferenceTree
from aptui.tui.screens.assets.lines import TITLES, TreeTabs
from aptui.tui.screens.assets.missing import MissingTrees, ScanLine
from aptui.tui.screens.assets.panel import (
    JOB,
    PRODUCT,
    AssetPlaces,
    Panel,
    Ref,
    find,
    folder_panel,
    kind_of_source,
    read_panel,
)
from aptui.tui.screens.assets.parts import AssetsBody, AssetsHead
from aptui.tui.screens.assets.query_worker import PREVIEW, QueryWorker
from aptui.tui.screens.assets.trees import Place
from aptui.tui.widgets.rows.rows import Rows
from aptui.tui.widgets.textview import TextView

if TYPE_CHECKING:
    from textual.widget import Widget

    from aptui.tui.data.feed import Batch

_KEPT_PLACES = 200
_GIVES_UP_S = 30.0
"""So long what was moved may take to come into the tree."""


_PEEK = "-peek"
"""The preview has all the room, and gives it back to the tree."""
_ABOVE_TREE = ("-detail", "-zoom-detail", "-zoom-references", "-zoom-preview", _PEEK)
_NO_ASSET = {"pattern": "it is a pattern", "exclusion": "it says what is left out", "path": "no product has this path"}
"""{what stands beside a reference that leads nowhere: why}."""


class _Stop(NamedTuple):
    """A place on the way; `came_from` is the screen from which somebody came there."""

    kind: Kind
    key: int
    came_from: str = ""


class AssetsPane(MissingTrees):
    """The screen; `reveal` is the way in from elsewhere."""

    DEFAULT_CSS = parts.CSS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "search", id="assets.search"),
        Binding("t,greater_than_sign", "next_tree(1)", "tree", id="assets.next_tree"),
        Binding("less_than_sign", "next_tree(-1)", "tree before", id="assets.previous_tree", show=False),
        Binding("z", "zoom", "zoom", id="assets.zoom"),
        Binding("y", "copy", "copy", id="assets.copy"),
        Binding("J", "jobs", "jobs", id="assets.jobs"),
        Binding("x", "why", "why", id="assets.why"),
        Binding("r", "reprocess", "reprocess", id="assets.reprocess"),
        Binding("full_stop", "menu", "menu", id="assets.menu"),
        Binding("left_square_bracket", "walk(-1)", "back", id="assets.back"),
        Binding("right_square_bracket", "walk(1)", "forward", id="assets.forward", show=False),
        Binding("p", "other_side", "product or source", id="assets.other_side", show=False),
        Binding("o", "pager", "open in $PAGER", id="assets.pager", show=False),
        Binding("O", "editor", "open in $EDITOR", id="assets.editor", show=False),
        Binding("F", "folder", "show the folder", id="assets.folder", show=False),
        Binding("s", "scan_missing", "scan", id="assets.scan_missing", show=False),
        Binding("S", "clear_missing", "clear the scan", id="assets.clear_missing", show=False),
        Binding("m", "move", "move", id="assets.move", show=False),
        Binding("D", "delete", "delete", id="assets.delete", show=False),
        Binding("n", "next_hit(1)", "next hit", id="assets.next_hit", show=False),
        Binding("N", "next_hit(-1)", "hit before", id="assets.previous_hit", show=False),
        Binding("e", "next_bad(1)", "next failed", id="assets.next_failed", show=False),
        Binding("E", "next_bad(-1)", "failed before", id="assets.previous_failed", show=False),
        Binding("tab", "part(1)", "next part", id="app.next_part", show=False),
        Binding("shift+tab", "part(-1)", "previous part", id="app.previous_part", show=False),
        Binding("escape", "leave", "back to the tree", id="assets.leave", show=False),
    ]

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self._looked_at: Place | None = None
        self._places: list[_Stop] = []
        self._at = 0
        self._went = ("", 0.0)
        self._is_panel_stale = False

    def compose(self) -> ComposeResult:
        """Make the parts."""
        yield AssetsBody(id="assets-body")
        yield ScanLine()
        yield AssetsHead(self.shell.memory.get("assets.search", ""), self.shell.memory.history("assets.searches")[::-1])

    def on_mount(self) -> None:
        """Begin to read the tree that was shown last."""
        shell = self.shell
        database = asset_database(shell.session.cache_dir)
        self.store = AssetsStore(database, wake=shell.wake)
        self.queries = QueryWorker(database, partial(shell.in_ui, self._take), self._failed)
        self.decoder = Decoder(partial(shell.in_ui, self._take))
        folders = shell.config.project.scan_folders if shell.config else ()
        self._where = AssetPlaces(
            str(shell.session.cache_dir),
            {folder.name: folder.order for folder in folders},
            shell.config.checks if shell.config else (),
            tuple((folder.name, folder.path) for folder in folders),
        )
        self.models = {kind: AssetModel(self.store, kind) for kind in Kind}
        for kind, model in self.models.items():
            self._tree_of(kind).set_tree(model)
        last = shell.memory.get("assets.tree", "")
        self.turn_to(Kind(last) if last in set(Kind) else Kind.SOURCES)
        shell.wake()

    def _take(self, take: Callable[..., object], *arguments: object) -> None:
        """Take the answer to a query, unless the screen has gone meanwhile."""
        if self.is_attached and self.is_running:
            take(*arguments)

    def on_unmount(self) -> None:
        """End the threads."""
        self.store.close()
        self.queries.close()
        self.decoder.close()

    def on_resize(self, event: events.Resize) -> None:
        """Let the details take the place of the tree where there is no room beside it."""
        self.set_class(event.size.width < parts.NARROW, "-narrow")
        self.show_tabs()

    # ------------------------------------------------------------------------------------------------------------- as a pane

    def activate(self) -> None:
        """Let the keys go to the tree, not into the search."""
        if isinstance(self.shell.app.focused, Input):
            self.give_focus(self.shown_tree())

    def deactivate(self) -> None:
        """Remember tree and search."""
        self.shell.memory.put("assets.tree", self.kind.value)
        self.shell.memory.put("assets.search", self.box.text)

    def on_news(self, batch: Batch) -> None:
        """Note that trees or the asset that is shown are not what they were."""
        self.is_stale |= batch.are_assets_stale
        self.hear_jobs(batch.jobs)
        self.hear_scans(batch.missing_scans)
        source = self.panel.source if self.panel is not None else ""
        self._is_panel_stale |= batch.are_assets_stale or any(news.notice.source == source for news in batch.jobs)

    def on_frame(self) -> None:
        """Take a newer tree if there is one, and read again what is beside it."""
        self.renew_stale()
        self.take_tree()
        if self._is_panel_stale and self._looked_at is not None and self._looked_at[1] >= 0:
            self._is_panel_stale = False
            self._read_panel(self._looked_at)

    def reload(self) -> None:
        """Read everything again."""
        self.store.mark_stale()
        self._is_panel_stale = True
        self.shell.wake()

    def commands(self) -> Sequence[Command]:
        """Return what can be said here."""
        trees = [
            Command(kind.value, f"show the tree of {kind.value}; what follows is searched", partial(self.say_tree, kind))
            for kind in Kind
        ]
        scan = Command(
            "missing",
            "scan for missing dependencies: a folder, '*.lua', a product; all without",
            self.say_missing,
            needs_engine=True,
        )
        return [*trees, Command("asset", "go to an asset by path, product, UUID or asset id", self.reveal), scan]

    def status(self) -> str:
        """Return what is in front."""
        tree = self.shown_model().tree
        return f"{TITLES[self.kind]}: {tree.file_count:,}" if tree is not None else ""

    def reveal(self, text: str, came_from: str = "") -> None:
        """Go to an asset by the path of a source, by a product, a UUID or an asset id; another screen says which it is."""
        if text.strip():
            then = partial(self._go_if_found, text, came_from)
            self.queries.request("target", lambda reader: find(reader, text, self._where), then)

    def _go_if_found(self, text: str, came_from: str, place: Place | None) -> None:
        if place is None:
            self.shell.tell(f"there is no asset '{text.strip()}'", "warning")
        else:
            self.go_to(*place, came_from)

    def go_where_it_went(self, path: str) -> None:
        """Go to what was moved, as soon as the tree has it."""
        self._went = (path, time.monotonic() + _GIVES_UP_S)
        self.arrive()

    # --------------------------------------------------------------------------------------------------------------- details

    def on_rows_highlighted(self, event: Rows.Highlighted) -> None:
        """Show what the cursor is on; it may have gone on since this was said."""
        if event.rows is self.shown_tree() and event.key == event.rows.cursor_key:
            if (self.kind, event.key) != self._looked_at:
                self.query_one(ScanLine).leave()
            self.look_at(event.key)

    def look_at(self, key: int) -> None:
        """Show the details of what the cursor is on: of a folder at once, of others when they are read."""
        place = (self.kind, key)
        if place == self._looked_at and self.panel is not None and key >= 0:
            return
        self._looked_at = place
        tree, node = self.shown_model().tree, self.shown_model().node_of(key)
        if key >= 0:
            self._read_panel(place)
        elif tree is not None and node is not None:
            count = int(np.count_nonzero(tree.keys[node : int(tree.end[node])] >= 0))
            health = self.shown_model().health
            says = health_text(health.counts(node)) if health is not None else ""
            self._show_panel(folder_panel(self.kind, key, tree.path(node), count, self._where, says))

    def look_away(self) -> None:
        """Show no details, for the tree has no row, or none yet."""
        self._looked_at = self.panel = None
        self.query_one(AssetDetail).clear()

    def _read_panel(self, place: Place) -> None:
        self.queries.request("panel", lambda reader: read_panel(reader, *place, self._where), partial(self._take_panel, place))

    def _take_panel(self, place: Place, panel: Panel | None) -> None:
        if place != self._looked_at:
            return
        if panel is None:
            self.query_one(AssetDetail).say_gone()
        elif panel != self.panel:
            self._show_panel(panel)

    def _show_panel(self, panel: Panel) -> None:
        self.panel = panel
        self.query_one(AssetDetail).show(panel, self.queries, self.decoder)
        self.take_panel(panel)

    # ------------------------------------------------------------------------------------------------------------- going there

    def on_rows_opened(self, event: Rows.Opened) -> None:
        """Go into the details of a leaf; follow a reference."""
        event.stop()
        references = self.query_one(ReferenceTree)
        if event.rows is self.shown_tree():
            node = self.shown_model().node_of(event.key)
            if event.key >= 0:
                self.add_class("-detail")
                self.give_focus(references)
            elif node is not None:
                self.shown_tree().action_open()
        elif event.rows is references and (ref := references.reference(event.key)) is not None:
            self.follow(ref)

    @on(ReferenceTree.DeadEnd)
    def _say_dead_end(self, event: ReferenceTree.DeadEnd) -> None:
        event.stop()
        self.shell.tell(f"'{event.ref.text}' is no asset: {_NO_ASSET.get(event.ref.note, 'no builder takes it')}")

    def follow(self, ref: Ref) -> None:
        """Go where a reference leads."""
        if ref.leads == JOB:
            source = self.panel.source if self.panel is not None else ""
            self.shell.reveal("jobs", jobs_filter(source, is_folder=False))
        elif ref.leads == PRODUCT:
            self.go_to(Kind.PRODUCTS, ref.key)
        elif ref.leads:
            self.queries.request("target", lambda reader: kind_of_source(reader, ref.key), lambda kind: self.go_to(kind, ref.key))

    def go_to(self, kind: Kind, key: int, came_from: str = "") -> None:
        """Go to an asset, and remember the way back."""
        self._note_place()
        del self._places[self._at + 1 :]
        self._places = [*self._places, _Stop(kind, key, came_from)][-_KEPT_PLACES:]
        self._at = len(self._places) - 1
        self._select(kind, key)

    def _note_place(self) -> None:
        """Remember where we are as the place that is left."""
        key = self.shown_tree().cursor_key
        if key is None:
            return
        if self._places:
            self._places[self._at] = self._places[self._at]._replace(kind=self.kind, key=key)
        else:
            self._places.append(_Stop(self.kind, key))

    async def action_walk(self, step: int) -> None:
        """Go back, or forward again; back to another screen once, where one came from there."""
        stop = self._places[self._at] if self._places else None
        if step < 0 and stop is not None and stop.came_from:
            self._places[self._at] = stop._replace(came_from="")
            await self.shell.show(stop.came_from)
            return
        at = self._at + step
        if not 0 <= at < len(self._places):
            self.shell.tell("nowhere to go back to" if step < 0 else "nowhere to go forward to", seconds=2)
            return
        self._note_place()
        self._at = at
        self._select(*self._places[at][:2])

    def _select(self, kind: Kind, key: int) -> None:
        self.wanted = (kind, key)
        if kind is not self.kind:
            self.turn_to(kind)
        self.arrive()

    def look_again_at_folder(self) -> None:
        """Tell again what a folder holds and how it is, if one is shown."""
        if self._looked_at is not None and self._looked_at[0] is self.kind and self._looked_at[1] < 0:
            self.look_at(self._looked_at[1])

    def arrive(self) -> None:
        """Put the cursor where people wanted to go, once the tree is there; of a folder tell again how much it holds."""
        self.look_again_at_folder()
        self._follow_what_went()
        if self.wanted is None or self.wanted[0] is not self.kind or self.shown_model().tree is None:
            return
        (_, key), model, tree = self.wanted, self.shown_model(), self.shown_tree()
        node = model.node_of(key)
        if node is None:
            self.shell.tell("it is not in the tree: the engine dropped it, or has not written it yet", "warning")
            self.wanted = None
            return
        self.wanted = None
        if not tree.reveal(node):  # the search hides it
            self.show_everything()
            tree.reveal(node)
        if tree.cursor_key is not None:
            self.look_at(tree.cursor_key)

    def _follow_what_went(self) -> None:
        (path, until_s), tree = self._went, self.models[Kind.SOURCES].tree
        if path and self.kind is Kind.SOURCES and tree is not None and (node := tree.node_at(path)) is not None:
            self._went = ("", 0.0)
            self.wanted = (self.kind, tree.key(node))
        elif time.monotonic() > until_s:
            self._went = ("", 0.0)

    def awaited(self, focused: Widget | None) -> str:
        """Return what the next key has to wait for: the first rows of a tree, what a search finds, an asset that is looked for."""
        if self.kind not in self.models or (self.shown_model().tree is None and self.store.error is None):
            return "the first rows"
        if isinstance(focused, Input):
            return ""
        if self.is_searching():
            return "the search"
        return "the asset" if self._is_on_an_errand() else "the preview" if self.queries.has_errand(PREVIEW) else ""

    def _is_on_an_errand(self) -> bool:
        """Whether what a key set out for is still read: the asset to go to, or the one that something shall be done with."""
        place = (self.kind, self.shown_tree().cursor_key)
        is_read = place == self._looked_at and not self.queries.is_awaited("panel")
        return self.queries.is_awaited("target") or (self.waits_for(place) and not is_read)

    def action_search(self) -> None:
        """Let the keys go into the search; what it finds is in the tree."""
        self.remove_class(*_ABOVE_TREE)
        self.box.begin()

    def action_next_tree(self, step: int) -> None:
        """Show the next tree, and go into it."""
        super().action_next_tree(step)
        self._go_into_tree()

    def on_tree_tabs_chosen(self, event: TreeTabs.Chosen) -> None:
        """Show the tree whose tab was clicked."""
        self.turn_to(event.kind)
        self._go_into_tree()

    def _zoom_tree(self) -> None:
        """Give the tree all the room; where it has that already, show what is under the cursor as soon as it is read."""
        if self.has_class("-narrow"):
            self.with_panel(lambda panel: self.queries.after(PREVIEW, partial(self._peek, panel)))
        else:
            self.add_class("-zoom-tree")

    def _peek(self, panel: Panel) -> None:
        """Give the preview all the room, of a picture or a text."""
        preview = self.query_one(FilePreview)
        if self.panel is None or (self.panel.kind, self.panel.key) != (panel.kind, panel.key):
            return
        if preview in self.query_one(AssetDetail).parts:
            self.add_class("-detail", "-zoom-detail", "-zoom-preview", _PEEK)
            self.give_focus(preview)
        else:
            self.shell.tell("there is nothing to preview: it is a folder, or its file is gone", seconds=2)

    def _go_into_tree(self) -> None:
        self.remove_class(*_ABOVE_TREE)
        self.give_focus(self.shown_tree())

    def action_part(self, step: int) -> None:
        """Walk tree, references and preview, where a screen is narrow too; letters after it never end in the search line."""
        tree, focused = self.shown_tree(), self.shell.app.focused
        parts: list[Widget] = [tree, *self.query_one(AssetDetail).parts]
        if any(name.startswith("-zoom") for name in self.classes):
            parts = [part for part in parts if part in self.screen.focus_chain] or [tree]
        at = parts.index(focused) if focused in parts else -1 if step > 0 else 0
        part = parts[(at + step) % len(parts)]
        self.set_class(part is not tree, "-detail")
        self.give_focus(part)

    def action_leave(self) -> None:
        """Leave the zoom, then the details, then the search."""
        zoomed = [name for name in self.classes if name.startswith("-zoom")]
        if zoomed and not self.has_class(_PEEK):
            self.remove_class(*zoomed)
        elif self.shell.app.focused is not self.shown_tree():
            self._go_into_tree()
        elif self.box.text:
            self.box.text = ""

    def action_zoom(self) -> None:
        """Give the part with the keys all the room, or take it back; a tree that has it all gives it to the preview."""
        zoomed = [name for name in self.classes if name.startswith("-zoom")]
        if self.has_class(_PEEK):
            self._go_into_tree()
        elif zoomed:
            self.remove_class(*zoomed)
        elif self.shell.app.focused is self.shown_tree():
            self._zoom_tree()
        else:
            part = "-zoom-preview" if isinstance(self.shell.app.focused, TextView) else "-zoom-references"
            self.add_class("-zoom-detail", part)
