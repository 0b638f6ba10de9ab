"""The newest trees of the Assets screen, read in a thread, and their cells; `asset_tree` reads one tree."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np

from aptui.shared.errors import KnownError
from aptui.store.jobs.filter import Filter, parse
from aptui.store.jobs.texts import Codes
from aptui.store.queries import assets
from aptui.store.queries.reader import open_reader
from aptui.tui.background import LatestOnly
from aptui.tui.data.asset_tree import AssetTree, FolderKeys, Kind, TreeHealth, UnwellSources, health_cell, read_tree, read_unwell
from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import Cell
from aptui.tui.words import duration_text

_HEALTH = "health"


class AssetsStore:
    """The newest tree of each kind and the sources with problems, read in a thread on demand; calls `wake` after each read."""

    def __init__(self, database: Path, *, wake: Callable[[], None] = lambda: None) -> None:
        self._database, self._wake = database, wake
        self._lock = threading.Lock()
        self._trees: dict[Kind, AssetTree] = {}
        self._visited: set[Kind] = set()
        self._folder_keys = FolderKeys()
        self._worker = LatestOnly[Callable[[], None]]("aptui-assets", self._read_and_wake, last=_HEALTH)
        self.unwell: UnwellSources | None = None
        self.version = 0
        self.error: KnownError | None = None
        self.took_s = 0.0
        """Duration of the last read; callers that read again and again wait in proportion."""

    def tree(self, kind: Kind) -> AssetTree | None:
        """Return the last tree; None while it is read for the first time, which the first call starts."""
        with self._lock:
            if kind not in self._visited:
                self._visited.add(kind)
                self._request(kind)
                self.mark_health_stale()
            return self._trees.get(kind)

    def mark_stale(self) -> None:
        """Read the visited trees again (`Batch.are_assets_stale`); old trees stay until then."""
        with self._lock:
            for kind in self._visited:
                self._request(kind)

    def mark_health_stale(self) -> None:
        """Read the sources with problems again."""
        self._worker.put(self._read_health, _HEALTH)

    def settle(self, timeout_s: float = 10.0) -> None:
        """Wait until no read is pending."""
        self._worker.settle(timeout_s)

    def close(self) -> None:
        """End the thread."""
        self._worker.close()

    def read(self, kind: Kind) -> AssetTree | None:
        """Return the last tree without starting a read."""
        with self._lock:
            return self._trees.get(kind)

    def _request(self, kind: Kind) -> None:
        self._worker.put(partial(self._read, kind), kind.name)

    def _read_and_wake(self, _name: str, read: Callable[[], None]) -> None:
        read()
        self._wake()

    def _read_health(self) -> None:
        try:
            with closing(open_reader(self._database)) as reader:
                self.unwell = read_unwell(reader)
        except KnownError as error:
            with self._lock:
                self.error = error
                self.version += 1

    def _read(self, kind: Kind) -> None:
        tree, failure, start = None, None, time.monotonic()
        try:
            with closing(open_reader(self._database)) as reader:
                tree = read_tree(reader, kind, self._folder_keys)
        except KnownError as error:
            failure = error
        with self._lock:
            self.error, self.took_s = failure, time.monotonic() - start
            if tree is not None:
                self._trees[kind] = tree
            self.version += 1


class AssetModel:
    """One tree for the widget (`widgets.tree.TreeModel`); it changes only in `refresh`, which the UI's thread calls once a frame.

    Columns: "name", "health", "extension", "duration" (of the last analyses).
    """

    def __init__(self, store: AssetsStore, kind: Kind) -> None:
        self._store, self._kind = store, kind
        self._nothing = np.empty(0, np.int32)
        self._spans: dict[int, tuple[tuple[int, int], ...]] = {}
        self._filter = Filter()
        self._unwell: UnwellSources | None = None
        self.tree: AssetTree | None = None
        self.health: TreeHealth | None = None
        self.version = self.structure_version = 0

    def refresh_health(self) -> bool:
        """Apply new problems to this tree; return whether there were any."""
        unwell = self._store.unwell
        if self.tree is None or unwell is None or unwell is self._unwell or self._kind is Kind.PRODUCTS:
            return False
        self._unwell, self.health = unwell, TreeHealth(self.tree.end, self.tree.nodes_of(unwell.rows[:, 0]), unwell)
        self.version += 1
        return True

    def refresh(self) -> bool:
        """Apply a newer tree; return whether there was one. The first call starts the read."""
        tree = self._store.tree(self._kind)
        if tree is None or tree is self.tree:
            return False
        self.tree, self._unwell, self.health = tree, None, None
        self._spans.clear()
        if not self.refresh_health():
            self.version += 1
        self.structure_version += 1
        return True

    @property
    def node_count(self) -> int:
        """Number of nodes."""
        return 0 if self.tree is None else len(self.tree)

    @property
    def parent(self) -> Codes:
        """The parent of each node, -1 = none."""
        return self._nothing if self.tree is None else self.tree.parent

    @property
    def depth(self) -> Codes:
        """The depth of each node."""
        return self._nothing if self.tree is None else self.tree.depth

    @property
    def end(self) -> Codes:
        """One past the last descendant of each node."""
        return self._nothing if self.tree is None else self.tree.end

    def key(self, node: int) -> int:
        """Return the stable id of a node: the id of a source or product, negative for a folder."""
        assert self.tree is not None
        return self.tree.key(node)

    def node_of(self, key: int) -> int | None:
        """Return the node with this key."""
        return None if self.tree is None else self.tree.node_of(key)

    def is_unread(self, _node: int) -> bool:
        """Return False: a tree is read as a whole."""
        return False

    def read(self, _node: int) -> None:
        """Return False: a tree is read as a whole."""

    def cell(self, node: int, column_id: str) -> Cell:
        """Return the content of a cell."""
        tree = self.tree
        assert tree is not None
        name = tree.name(node)
        if column_id == "name" and tree.flawed and tree.key(node) in tree.flawed:
            sign = f"{glyph('error')} "
            shifted = tuple((start + len(sign), end + len(sign)) for start, end in self._spans_of(node))
            return Cell(sign + name, "failed", shifted)
        if column_id == "name":
            return Cell(name, "", self._spans_of(node))
        if column_id == "health":
            return health_cell(self.health.counts(node) if self.health is not None else {})
        if tree.is_folder(node):
            return Cell("")
        if column_id == "extension":
            return Cell(name.rpartition(".")[2] if "." in name else "")
        took_ms = int(tree.analysis_ms[node]) if len(tree.analysis_ms) else 0
        return Cell(duration_text(took_ms) if took_ms else "")

    def highlight(self, text: str) -> None:
        """Mark the hits of a search in the names, "" = none; `AssetTree.search`, which is thread-safe, finds the nodes."""
        self._filter = parse(text) if text.strip() and not assets.is_id(text) else Filter()
        self._spans.clear()
        self.version += 1

    def _spans_of(self, node: int) -> tuple[tuple[int, int], ...]:
        if not self._filter.terms:
            return ()
        if node not in self._spans:
            tree = self.tree
            assert tree is not None
            nodes = range(node, min(len(tree), node + 64))
            self._spans.update(zip(nodes, self._filter.spans([tree.name(other) for other in nodes]), strict=True))
        return self._spans.get(node, ())
