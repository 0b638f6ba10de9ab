"""The asset or folder whose details the Assets screen shows: that under the cursor, as soon as it was read.

Tests: `tests/tui/screens/assets/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from aptui.core.fingerprint import MISSING
from aptui.core.model import describe_key
from aptui.store.queries import assets
from aptui.store.queries.reader import JobRow, Reader, RunRow
from aptui.store.queries.reasons import sentence
from aptui.tui.data.asset_tree import health_text
from aptui.tui.screens.assets.asset_trees import AssetTrees, Place
from aptui.tui.screens.assets.detail import AssetDetail
from aptui.tui.screens.assets.panel import Panel, folder_panel, moment, read_panel
from aptui.tui.screens.assets.readers import PREVIEW, AssetReaders
from aptui.tui.terminal.safety import glyph, make_safe
from aptui.tui.widgets.textview import Piece, TextPreview
from aptui.tui.words import duration_text

if TYPE_CHECKING:
    from aptui.tui.data.feed import Batch


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
