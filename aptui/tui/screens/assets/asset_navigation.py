"""The asset under the cursor of the Assets screen, and the ways to other assets: along references, by name, back and forward."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aptui.store.queries.reader import Reader
from aptui.tui.data.assets_store import Kind, health_text
from aptui.tui.screens.assets.asset_detail import AssetDetail
from aptui.tui.screens.assets.asset_panel import JOB, PRODUCT, Panel, Ref, find, folder_panel, kind_of_source, read_panel
from aptui.tui.screens.assets.asset_readers import AssetReaders
from aptui.tui.screens.assets.asset_trees import AssetTrees, Place, TreeSearch
from aptui.tui.screens.assets.file_previews import VersionPair, read_comparison
from aptui.tui.screens.jobs.job_texts import break_line, explain_job
from aptui.tui.widgets.textview import TextPreview

if TYPE_CHECKING:
    from aptui.tui.data.feed import Batch
    from aptui.tui.pane import Shell


def read_why(reader: Reader, source: str, width: int) -> TextPreview:
    """Return the explanation of every job of a source, as lines of the preview that fit into `width` cells."""
    row = reader.source(source)
    jobs = sorted(reader.jobs_of(row.source_id) if row else [], key=lambda job: job.status != "failed")
    explained = [line for job in jobs for line in explain_job(job, "", reader)][1:]  # the first line is blank
    lines = [row for line in explained for row in break_line(line, width)]
    nothing = "" if lines else "this source has no jobs: its analysis found nothing to do, or has not run yet"
    return TextPreview(nothing, tuple(tuple((part.text, part.role) for part in line) for line in lines), is_numbered=False)


class SelectedAsset:
    """Reads and shows the asset or folder under the cursor. `panel` is the content that is shown, None = nothing is shown yet."""

    def __init__(self, readers: AssetReaders, trees: AssetTrees, detail: AssetDetail) -> None:
        self._readers, self._trees, self._detail = readers, trees, detail
        self.panel: Panel | None = None
        self.place: Place | None = None
        """The row of the shown asset in the trees."""
        self._is_stale = False
        self._later: tuple[Place, Callable[[Panel], object]] | None = None
        self._explained_next: Place | None = None
        """The asset whose explanations are being read, None = none."""

    def show_row(self, key: int) -> None:
        """Show a row of the visible tree: a folder at once, an asset after it was read."""
        place = (self._trees.kind, key)
        if place == self.place and self.panel is not None and key >= 0:
            return
        self.place = place
        tree, node, health = self._trees.model.tree, self._trees.model.node_of(key), self._trees.model.health
        if key >= 0:
            self._read(place)
        elif tree is not None and node is not None:
            count = int(np.count_nonzero(tree.keys[node : int(tree.end[node])] >= 0))
            says = health_text(health.counts(node)) if health is not None else ""
            self._show(folder_panel(self._trees.kind, key, tree.path(node), count, self._readers.places, says))

    def clear(self) -> None:
        """Show no asset: the tree is empty or not read yet."""
        self.place = self.panel = None
        self._detail.clear()

    def refresh_folder(self) -> None:
        """Update the job counts of the shown folder."""
        if self.place is not None and self.place[0] is self._trees.kind and self.place[1] < 0:
            self.show_row(self.place[1])

    # --------------------------------------------------------------------------------------------------------------- updates

    def note(self, batch: Batch) -> None:
        """Note whether notices may have changed the shown asset, so that it must be read again."""
        source = self.panel.source if self.panel is not None else ""
        self._is_stale |= batch.are_assets_stale or any(news.notice.source == source for news in batch.jobs)

    def mark_stale(self) -> None:
        """Request that the next frame reads the shown asset again."""
        self._is_stale = True

    def renew(self) -> None:
        """Read the shown asset again if it is out of date."""
        if self._is_stale and self.place is not None and self.place[1] >= 0:
            self._is_stale = False
            self._read(self.place)

    def _read(self, place: Place) -> None:
        places = self._readers.places
        self._readers.queries.request("panel", lambda reader: read_panel(reader, *place, places), partial(self._accept, place))

    def _accept(self, place: Place, panel: Panel | None) -> None:
        if place != self.place:
            return
        if panel is None:
            self._detail.show_gone()
        elif panel != self.panel:
            self._show(panel)

    def _show(self, panel: Panel) -> None:
        self.panel = panel
        self._detail.show(panel)
        later, self._later = self._later, None
        if later is not None and later[0] == (panel.kind, panel.key):
            later[1](panel)

    # -------------------------------------------------------------------------------------------------------------- actions

    def when_read(self, do: Callable[[Panel], object]) -> None:
        """Call `do` with the asset under the cursor, as soon as this asset is read and shown."""
        (kind, key), panel = self._trees.place, self.panel
        self._later = None
        if panel is not None and (panel.kind, panel.key) == (kind, key):
            do(panel)
        elif key is not None:
            self._later = ((kind, key), do)

    def show_why(self, panel: Panel) -> None:
        """Show the explanations of the source's jobs in place of the preview. If they are shown already, show the preview again."""
        place = (panel.kind, panel.key)
        if self._detail.is_explaining or self._explained_next == place:
            self._explained_next = None
            self._detail.show_file()
        elif panel.source and not panel.is_folder:
            self._explained_next = place
            width = self._detail.preview_width
            self._readers.queries.request(
                "why", lambda reader: read_why(reader, panel.source, width), partial(self._accept_why, panel)
            )

    def _accept_why(self, panel: Panel, preview: TextPreview) -> None:
        place, was = (panel.kind, panel.key), self._explained_next
        self._explained_next = None
        if self.panel is not None and place == was == (self.panel.kind, self.panel.key):
            self._detail.show_why(preview)

    def compare(self, panel: Panel, report: Callable[[str], object]) -> None:
        """Show an earlier version beside the current one, or end the comparison; report why no comparison is possible."""

        def accept(found: VersionPair | TextPreview | str) -> None:
            if isinstance(found, str):
                report(found)
            else:
                self._detail.compare(panel, found)

        if self._detail.is_comparing:
            self._detail.show_file()
        elif panel.file and not panel.is_folder:
            places = self._readers.places
            self._readers.queries.request("earlier", lambda reader: read_comparison(reader, panel, places), accept)

    @property
    def is_awaited(self) -> bool:
        """Whether an action of the user is delayed until the asset under the cursor is read."""
        place = self._trees.place
        is_read = place == self.place and not self._readers.queries.is_awaited("panel")
        return self._later is not None and self._later[0] == place and not is_read


TARGET = "target"
"""Kind of the queries that find the asset to which the user wants to go."""
_MOST_PLACES = 200
_GIVES_UP_S = 30.0
"""Maximum time to wait until the tree contains a moved asset (seconds). After this time, the cursor does not go to the asset."""
_SIGNS = re.compile(r"([.^$*+?{}\[\]|()\\])")


class Stop(NamedTuple):
    """A visited place; `came_from` is the screen from which the user came to it."""

    kind: Kind
    key: int
    came_from: str = ""


class WayBack:
    """The history of visited places (the newest 200), and the position of the current place in it."""

    def __init__(self) -> None:
        self._stops: list[Stop] = []
        self._at = 0

    def record_move(self, here: Place | None, stop: Stop) -> None:
        """Record a move from `here` (None at the start) to a place; later places, to which "forward" would go, are removed."""
        self._leave(here)
        del self._stops[self._at + 1 :]
        self._stops = [*self._stops, stop][-_MOST_PLACES:]
        self._at = len(self._stops) - 1

    def walk(self, here: Place | None, step: int) -> Stop | None:
        """Return the previous place (-1) or the next place (1), None if that place does not exist."""
        if not 0 <= self._at + step < len(self._stops):
            return None
        self._leave(here)
        self._at += step
        return self._stops[self._at]

    def pop_origin(self) -> str:
        """Return the screen from which the user came to the current place, and forget it; "" = unknown, or forgotten already."""
        if not self._stops:
            return ""
        stop = self._stops[self._at]
        self._stops[self._at] = stop._replace(came_from="")
        return stop.came_from

    def _leave(self, here: Place | None) -> None:
        if here is None:
            return
        if self._stops:
            self._stops[self._at] = self._stops[self._at]._replace(kind=here[0], key=here[1])
        else:
            self._stops.append(Stop(*here))


class AssetNavigation:
    """Puts the cursor on requested assets."""

    def __init__(
        self, shell: Shell, readers: AssetReaders, trees: AssetTrees, selected: SelectedAsset, search: TreeSearch,
        show_tree: Callable[[Kind], object],
    ) -> None:  # fmt: skip
        self._shell, self._readers, self._trees, self._turn_to = shell, readers, trees, show_tree
        self._selected, self._search = selected, search
        self._way = WayBack()
        self._moved_file = ("", 0.0)

    def reveal(self, text: str, came_from: str = "") -> None:
        """Go to an asset by source path, product, UUID or asset id; called by other screens."""
        if text.strip():
            places, then = self._readers.places, partial(self._go_if_found, text, came_from)
            self._readers.queries.request(TARGET, lambda reader: find(reader, text, places), then)

    def _go_if_found(self, text: str, came_from: str, place: Place | None) -> None:
        if place is None:
            self._shell.show_toast(f"'{text.strip()}' is not an asset; give a source, a product, a UUID or an asset id", "warning")
        else:
            self.go_to(*place, came_from)

    def follow(self, ref: Ref) -> None:
        """Go to the target of a reference."""
        if ref.leads == JOB:
            panel = self._selected.panel
            self.show_jobs(panel.source if panel is not None else "", is_folder=False)
        elif ref.leads == PRODUCT:
            self.go_to(Kind.PRODUCTS, ref.key)
        elif ref.leads:
            kind_of, then = partial(kind_of_source, source_id=ref.key), lambda kind: self.go_to(kind, ref.key)
            self._readers.queries.request(TARGET, kind_of, then)

    def show_jobs(self, source: str, *, is_folder: bool) -> None:
        """Show the jobs of a source, or of all sources in a folder, on the Jobs screen."""
        self._shell.reveal("jobs", jobs_filter(source, is_folder=is_folder))

    def go_to(self, kind: Kind, key: int, came_from: str = "") -> None:
        """Go to an asset, and remember the current place, so that the user can go back."""
        self._way.record_move(self._here, Stop(kind, key, came_from))
        self._want(kind, key)

    def follow_moved_file(self, path: str) -> None:
        """Go to the new path of a moved asset as soon as the tree contains it."""
        self._moved_file = (path, time.monotonic() + _GIVES_UP_S)
        self.apply_target()

    async def walk(self, step: int) -> None:
        """Go back or forward; the first step back may return to the screen from which the user came."""
        if step < 0 and (pane := self._way.pop_origin()):
            await self._shell.show(pane)
        elif (stop := self._way.walk(self._here, step)) is not None:
            self._want(stop.kind, stop.key)
        else:
            self._shell.show_toast(
                "there is no earlier place to go back to" if step < 0 else "there is no later place to go to", seconds=2
            )

    @property
    def _here(self) -> Place | None:
        kind, key = self._trees.place
        return None if key is None else (kind, key)

    def _want(self, kind: Kind, key: int) -> None:
        self._trees.wanted = (kind, key)
        if kind is not self._trees.kind:
            self._turn_to(kind)
        self.apply_target()

    def apply_target(self) -> None:
        """Put the cursor on the requested asset once the tree is read, and update the counts of a folder."""
        self._selected.refresh_folder()
        self._find_moved_file()
        trees, wanted = self._trees, self._trees.wanted
        if wanted is None or wanted[0] is not trees.kind or trees.model.tree is None or self._search.is_under_way:
            return  # no asset of this tree is requested, or the tree is not read yet, or a search is running
        trees.wanted = None
        node = trees.model.node_of(wanted[1])
        if node is None:
            self._shell.show_toast("this asset is not in the tree: it was removed, or is not stored yet", "warning")
            return
        self._search.reveal(node)
        if trees.view.cursor_key is not None:
            self._selected.show_row(trees.view.cursor_key)

    def _find_moved_file(self) -> None:
        (path, until_s), tree = self._moved_file, self._trees.models[Kind.SOURCES].tree
        if path and self._trees.kind is Kind.SOURCES and tree is not None and (node := tree.node_at(path)) is not None:
            self._moved_file = ("", 0.0)
            self._trees.wanted = (Kind.SOURCES, tree.key(node))
        elif time.monotonic() > until_s:
            self._moved_file = ("", 0.0)


def jobs_filter(source: str, *, is_folder: bool) -> str:
    """Return the filter of the Jobs screen for a source, or for all sources in a folder."""
    pattern = "^" + _SIGNS.sub(r"\\\1", source) + ("/" if is_folder else "$")
    quoted = pattern.replace('"', '\\"')
    return f'"{quoted}"'
