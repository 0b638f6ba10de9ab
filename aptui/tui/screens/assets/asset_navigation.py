"""Ways between assets: along references, to an asset that was named, to one that was moved, back and forward again.

Tests: `tests/tui/screens/assets/test_asset_navigation.py`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aptui.core.fingerprint import MISSING
from aptui.core.model import describe_key
from aptui.store.queries import assets
from aptui.store.queries.reader import JobRow, Reader, RunRow
from aptui.store.queries.reasons import sentence
from aptui.tui.data.asset_tree import Kind, health_text
from aptui.tui.screens.assets.asset_detail import AssetDetail
from aptui.tui.screens.assets.asset_panel import JOB, PRODUCT, Panel, Ref, find, folder_panel, kind_of_source, moment, read_panel
from aptui.tui.screens.assets.asset_readers import PREVIEW, AssetReaders
from aptui.tui.screens.assets.asset_trees import AssetTrees, Place, TreeSearch
from aptui.tui.terminal.safety import glyph, make_safe
from aptui.tui.widgets.textview import Piece, TextPreview
from aptui.tui.words import duration_text

if TYPE_CHECKING:
    from aptui.tui.data.feed import Batch
    from aptui.tui.pane import Shell


# The asset or folder whose details the Assets screen shows: that under the cursor, as soon as it was read.

# Why the jobs of a source ran, wait or failed, as lines for the preview; read from the database, in a thread.

_INPUTS_SHOWN = 40
_RULE = "rule"
Line = tuple[Piece, ...]


def read_why(reader: Reader, source: str) -> TextPreview:
    """Return what is known of every job of a source: the reason of its last run, its inputs, the runs before."""
    row = reader.source(source)
    jobs = reader.jobs_of(row.source_id) if row else []
    lines: list[Line] = []
    for job in jobs:
        lines += [*([()] if lines else []), *_job_lines(reader, job)]
    if row is not None:
        needed_by = assets.source_details(reader, row.source_id)
        names = [edge.text for edge in needed_by.incoming] if needed_by else []
        if names:
            lines += [(), (("needed by", "key"),), *(_entry(name) for name in names[:_INPUTS_SHOWN]), *_more(len(names))]
    sentence = "" if lines else "it has no jobs: its analysis said there is nothing to do, or has not run"
    return TextPreview(sentence, tuple(lines), is_numbered=False)


def _job_lines(reader: Reader, job: JobRow) -> Iterator[Line]:
    yield (
        (f"{glyph(job.status)} {job.status}  ", job.status),
        (make_safe(f"{job.platform}  {describe_key(job.job_key)}"), "title"),
    )
    runs = reader.runs_of(job.job_id) if job.job_id else []
    edges = [edge for edge in reader.edges_of(job.source_id) if edge.builder == job.builder]
    yield (("  why       ", "key"), (make_safe(sentence(job, runs, edges, reader)), ""))
    if job.status == "failed":
        yield (("  error     ", "key"), (make_safe(job.error or "no reason given"), "error"))
    if job.completed_ms:
        took = duration_text(round(job.duration_s * 1000))
        yield (("  last run  ", "key"), (f"{moment(job.completed_ms / 1000)}, {took}", "value"))
    inputs = [entry for entry in (reader.inputs_of(job.job_id) if job.job_id else ()) if entry[0] != _RULE]
    if inputs:
        yield (("  made of", "key"),)
    width = max((len(kind) for kind, _, _ in inputs[:_INPUTS_SHOWN]), default=0)
    for kind, name, digest in inputs[:_INPUTS_SHOWN]:
        is_missing = digest == MISSING
        yield (
            (f"    {kind:<{width}}  ", "muted"),
            (make_safe(name), "path"),
            (f"  {digest if is_missing else digest[:12]}", "warning" if is_missing else "muted"),
        )
    yield from _more(len(inputs))
    yield from map(_run_line, runs[1:])


def _run_line(run: RunRow) -> Line:
    is_failed = run.outcome != 0
    return (
        (f"  before    {moment(run.completed_ms / 1000)}  ", "muted"),
        (make_safe(run.reason), "muted"),
        (f"  {glyph('failed')} failed" if is_failed else "", "failed"),
    )


def _entry(name: str) -> Line:
    return (("    ", ""), (make_safe(name), "path"))


def _more(count: int) -> list[Line]:
    return [((f"    and {count - _INPUTS_SHOWN:,} more", "muted"),)] if count > _INPUTS_SHOWN else []


class SelectedAsset:
    """Reads it and shows it; `panel` is what was read of it, None = nothing yet."""

    def __init__(self, readers: AssetReaders, trees: AssetTrees, detail: AssetDetail) -> None:
        self._readers, self._trees, self._detail = readers, trees, detail
        self.panel: Panel | None = None
        self.place: Place | None = None
        """Where it is in the trees."""
        self._is_stale = False
        self._later: tuple[Place, Callable[[Panel], object]] | None = None

    def show_row(self, key: int) -> None:
        """Show a row of the tree in front: a folder at once, others when they are read."""
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
        """Show nothing: the tree has no row, or none yet."""
        self.place = self.panel = None
        self._detail.clear()

    def refresh_folder(self) -> None:
        """Tell again what a folder holds and how it is, if one is shown."""
        if self.place is not None and self.place[0] is self._trees.kind and self.place[1] < 0:
            self.show_row(self.place[1])

    # ------------------------------------------------------------------------------------------------------------------ news

    def note(self, batch: Batch) -> None:
        """Note whether it is not what it was."""
        source = self.panel.source if self.panel is not None else ""
        self._is_stale |= batch.are_assets_stale or any(news.notice.source == source for news in batch.jobs)

    def mark_stale(self) -> None:
        """Have it read again with the next frame."""
        self._is_stale = True

    def renew(self) -> None:
        """Read it again where it is not what it was."""
        if self._is_stale and self.place is not None and self.place[1] >= 0:
            self._is_stale = False
            self._read(self.place)

    def _read(self, place: Place) -> None:
        places = self._readers.places
        self._readers.queries.request("panel", lambda reader: read_panel(reader, *place, places), partial(self._take, place))

    def _take(self, place: Place, panel: Panel | None) -> None:
        if place != self.place:
            return
        if panel is None:
            self._detail.say_gone()
        elif panel != self.panel:
            self._show(panel)

    def _show(self, panel: Panel) -> None:
        self.panel = panel
        self._detail.show(panel, self._readers.queries, self._readers.decoder)
        later, self._later = self._later, None
        if later is not None and later[0] == (panel.kind, panel.key):
            later[1](panel)

    # --------------------------------------------------------------------------------------------------------- what is done

    def when_read(self, do: Callable[[Panel], object]) -> None:
        """Do something with what the cursor is on, as soon as that was read; never with what it was on before."""
        (kind, key), panel = self._trees.place, self.panel
        self._later = None
        if panel is not None and (panel.kind, panel.key) == (kind, key):
            do(panel)
        elif key is not None:
            self._later = ((kind, key), do)

    def show_why(self, panel: Panel) -> None:
        """Say in the preview why the jobs of the source ran."""
        if panel.source and not panel.is_folder:
            self._readers.queries.request(PREVIEW, lambda reader: read_why(reader, panel.source), self._detail.show_why)

    @property
    def is_awaited(self) -> bool:
        """Whether something shall be done with what the cursor is on, and that is still read."""
        place = self._trees.place
        is_read = place == self.place and not self._readers.queries.is_awaited("panel")
        return self._later is not None and self._later[0] == place and not is_read


TARGET = "target"
"""The kind of queries for an asset to go to."""
_MOST_PLACES = 200
_GIVES_UP_S = 30.0
"""So long what was moved may take to come into the tree."""
_SIGNS = re.compile(r"([.^$*+?{}\[\]|()\\])")


class Stop(NamedTuple):
    """A place on the way; `came_from` is the screen from which somebody came there."""

    kind: Kind
    key: int
    came_from: str = ""


class WayBack:
    """The places where somebody was, the newest 200, and at which of them they are."""

    def __init__(self) -> None:
        self._stops: list[Stop] = []
        self._at = 0

    def go(self, here: Place | None, stop: Stop) -> None:
        """Go from `here`, None = from nowhere, to a place; those that were ahead are forgotten."""
        self._leave(here)
        del self._stops[self._at + 1 :]
        self._stops = [*self._stops, stop][-_MOST_PLACES:]
        self._at = len(self._stops) - 1

    def walk(self, here: Place | None, step: int) -> Stop | None:
        """Go back (-1), or forward again (1); None = there is no such place."""
        if not 0 <= self._at + step < len(self._stops):
            return None
        self._leave(here)
        self._at += step
        return self._stops[self._at]

    def take_origin(self) -> str:
        """Return the screen from which somebody came to this place: once, then "" like for other places."""
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
    """Puts the cursor on the assets that people want to see.

    Args:
        turn_to: puts another tree in front.
    """

    def __init__(
        self, shell: Shell, readers: AssetReaders, trees: AssetTrees, selected: SelectedAsset, search: TreeSearch,
        turn_to: Callable[[Kind], object],
    ) -> None:  # fmt: skip
        self._shell, self._readers, self._trees, self._turn_to = shell, readers, trees, turn_to
        self._selected, self._search = selected, search
        self._way = WayBack()
        self._went = ("", 0.0)

    def reveal(self, text: str, came_from: str = "") -> None:
        """Go to an asset by the path of a source, by a product, a UUID or an asset id; another screen says which it is."""
        if text.strip():
            places, then = self._readers.places, partial(self._go_if_found, text, came_from)
            self._readers.queries.request(TARGET, lambda reader: find(reader, text, places), then)

    def _go_if_found(self, text: str, came_from: str, place: Place | None) -> None:
        if place is None:
            self._shell.show_toast(f"there is no asset '{text.strip()}'", "warning")
        else:
            self.go_to(*place, came_from)

    def follow(self, ref: Ref) -> None:
        """Go where a reference leads."""
        if ref.leads == JOB:
            panel = self._selected.panel
            self.show_jobs(panel.source if panel is not None else "", is_folder=False)
        elif ref.leads == PRODUCT:
            self.go_to(Kind.PRODUCTS, ref.key)
        elif ref.leads:
            kind_of, then = partial(kind_of_source, source_id=ref.key), lambda kind: self.go_to(kind, ref.key)
            self._readers.queries.request(TARGET, kind_of, then)

    def show_jobs(self, source: str, *, is_folder: bool) -> None:
        """Show the jobs of a source, or of all in a folder."""
        self._shell.reveal("jobs", jobs_filter(source, is_folder=is_folder))

    def go_to(self, kind: Kind, key: int, came_from: str = "") -> None:
        """Go to an asset, and remember the way back."""
        self._way.go(self._here, Stop(kind, key, came_from))
        self._want(kind, key)

    def go_where_it_went(self, path: str) -> None:
        """Go to what was moved, as soon as the tree has it."""
        self._went = (path, time.monotonic() + _GIVES_UP_S)
        self.arrive()

    async def walk(self, step: int) -> None:
        """Go back, or forward again; back to another screen once, where one came from there."""
        if step < 0 and (pane := self._way.take_origin()):
            await self._shell.show(pane)
        elif (stop := self._way.walk(self._here, step)) is not None:
            self._want(stop.kind, stop.key)
        else:
            self._shell.show_toast("nowhere to go back to" if step < 0 else "nowhere to go forward to", seconds=2)

    @property
    def _here(self) -> Place | None:
        kind, key = self._trees.place
        return None if key is None else (kind, key)

    def _want(self, kind: Kind, key: int) -> None:
        self._trees.wanted = (kind, key)
        if kind is not self._trees.kind:
            self._turn_to(kind)
        self.arrive()

    def arrive(self) -> None:
        """Put the cursor where people wanted to go, once the tree is there; of a folder tell again how much it holds."""
        self._selected.refresh_folder()
        self._follow_what_went()
        trees, wanted = self._trees, self._trees.wanted
        if wanted is None or wanted[0] is not trees.kind or trees.model.tree is None or self._search.is_under_way:
            return  # what is searched for in this tree could hide it a moment later
        trees.wanted = None
        node = trees.model.node_of(wanted[1])
        if node is None:
            self._shell.show_toast("it is not in the tree: the engine dropped it, or has not written it yet", "warning")
            return
        self._search.reveal(node)
        if trees.view.cursor_key is not None:
            self._selected.show_row(trees.view.cursor_key)

    def _follow_what_went(self) -> None:
        (path, until_s), tree = self._went, self._trees.models[Kind.SOURCES].tree
        if path and self._trees.kind is Kind.SOURCES and tree is not None and (node := tree.node_at(path)) is not None:
            self._went = ("", 0.0)
            self._trees.wanted = (Kind.SOURCES, tree.key(node))
        elif time.monotonic() > until_s:
            self._went = ("", 0.0)


def jobs_filter(source: str, *, is_folder: bool) -> str:
    """Return the filter of the Jobs screen that lets a source through, or all in a folder."""
    pattern = "^" + _SIGNS.sub(r"\\\1", source) + ("/" if is_folder else "$")
    quoted = pattern.replace('"', '\\"')
    return f'"{quoted}"'
