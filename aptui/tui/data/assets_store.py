"""The trees of the Assets screen: sources, intermediates and products as arrays, their problems and their cells.

Trees are read in a thread. A tree is a list of nodes in the order of a fully open tree: folders before files, then by name without
regard to case. The arrays `parent`, `depth` and `end` (the first node that is not below a node) make opening, closing and searching
fast.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from msgspec import Struct

from aptui.shared.errors import KnownError
from aptui.store.jobs.filter import Filter, TextMatch, parse
from aptui.store.jobs.job_table import Moment, argsort
from aptui.store.jobs.parts import Packed, read_packed
from aptui.store.jobs.regex import Mask
from aptui.store.jobs.texts import Codes, Texts, rank
from aptui.store.queries import assets
from aptui.store.queries.checks import UNWELL, unwell_sources
from aptui.store.queries.reader import Reader, open_reader
from aptui.tui.background import LatestOnly
from aptui.tui.data.job_infos import nearest
from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import Cell, add_prefix, width_of
from aptui.tui.words import ROLES, duration_text

if TYPE_CHECKING:
    import numpy.typing as npt


HEALTH_CELLS = 22
"""Width of the column of problems (cells): a wider column would leave too little room for names on a screen of 120 columns."""
_LABELS = {"failed": "failed", "errors": "with errors", "warnings": "with warnings", "cancelled": "cancelled", "pending": "waiting"}
"""{problem of jobs, as in `UNWELL`: text after the number of jobs with this problem}."""


class UnwellSources(Struct, frozen=True):
    """Sources with problems: an array of rows (source id, index in `UNWELL`, number of jobs), and the moment of the query."""

    rows: npt.NDArray[np.int64]
    moment: Moment


def read_unwell(reader: Reader) -> UnwellSources:
    """Read the sources with problems."""
    with reader.snapshot():
        moment = reader.moment()
        found = unwell_sources(reader)
    return UnwellSources(np.array(found, np.int64).reshape(-1, 3), moment)


class TreeHealth:
    """Counts the jobs with problems in each file and folder of a tree. A count is the difference of two prefix sums.

    Args:
        nodes: the node in the tree of each of these sources, -1 = not in this tree.
        end: for each node of the tree, one past its last descendant.
    """

    def __init__(self, end: Codes, nodes: npt.NDArray[np.int64], unwell: UnwellSources) -> None:
        known = nodes >= 0
        codes, counts = unwell.rows[known, 1], unwell.rows[known, 2]
        self._end, width = end, len(end) + 1
        flat = np.bincount(codes * width + nodes[known] + 1, counts, len(UNWELL) * width)
        self._sums = flat.reshape(-1, width).astype(np.int32)
        self._is_bad = self._sums[:2, 1:].any(axis=0)
        np.cumsum(self._sums, axis=1, out=self._sums)

    def counts(self, node: int) -> dict[str, int]:
        """Return {word of `UNWELL`: number of jobs} of a file or of all files below a folder, without zeros, the worst first."""
        found = self._sums[:, int(self._end[node])] - self._sums[:, node]
        return {word: int(count) for word, count in zip(UNWELL, found, strict=True) if count}

    def most_cells(self) -> int:
        """Return the maximum width of the cells of all nodes, 0 if no file has a problem."""
        total = {word: int(count) for word, count in zip(UNWELL, self._sums[:, -1], strict=True) if count}
        words = list(total)
        texts = (_signs({word: total[word] for word in words[at:]}) for at in range(len(words)))
        return max((max(width_of(signs[0]), min(HEALTH_CELLS, width_of("  ".join(signs)))) for signs in texts), default=0)

    def next_bad(self, node: int, step: int) -> int | None:
        """Return the next file with a failed job or errors, after (1) or before (-1) `node`, wrapping around, else None."""
        return nearest(np.flatnonzero(self._is_bad), node, step)


def health_cell(counts: dict[str, int]) -> Cell:
    """Return the cell for these problems; the worst has a word, the others only a sign and a number: `✗ 2 failed  ! 3  · 12`.

    Problems that do not fit into `HEALTH_CELLS` are left out. The cell is empty if `counts` is empty.
    """
    if not counts:
        return Cell("")
    text, *others = _signs(counts)
    for sign in others:
        if width_of(f"{text}  {sign}") > HEALTH_CELLS:
            break
        text += f"  {sign}"
    worst = next(iter(counts))
    return Cell(text, ROLES.get(worst, worst))


def _signs(counts: dict[str, int]) -> list[str]:
    # The signs of "failed" and of "errors" are equal, so only one of them is shown.
    words = [word for word in counts if word != "errors" or "failed" not in counts]
    signs = [f"{glyph(ROLES.get(word, word))} {counts[word]:,}" for word in words]
    signs[0] += f" {_LABELS[words[0]]}"
    return signs


def health_text(counts: dict[str, int]) -> str:
    """Return all problems in words: `2 failed, 3 with warnings, 12 waiting`."""
    return ", ".join(f"{count:,} {_LABELS[word]}" for word, count in counts.items())


Ints: TypeAlias = "npt.NDArray[np.signedinteger[Any]]"
_FLAWED_SQL = "SELECT DISTINCT ProductPK FROM MissingProductDependencies WHERE DependencySourceGuid <> zeroblob(16)"
_ANALYSIS_SQL = "(SELECT COALESCE(SUM(a.duration_ms), 0) FROM aptui_analyses a WHERE a.source_id = s.SourceID)"


class Kind(StrEnum):
    """The kind of a tree."""

    SOURCES = "sources"
    INTERMEDIATES = "intermediates"
    PRODUCTS = "products"


class AssetTree(Struct):
    """One tree; nodes are numbers from 0.

    `keys` stay the same when a tree is built again: they are ids of sources or products, and negative numbers for folders.
    `folders` maps the path of a folder in lower case to its node. `analysis_ms` has the durations of the last analyses of each
    source (empty for products). `flawed` has the ids of products that lack a dependency.
    """

    kind: Kind
    parent: Codes
    depth: Codes
    end: Codes
    keys: npt.NDArray[np.int64]
    names: Texts
    folders: dict[str, int]
    analysis_ms: Codes
    flawed: frozenset[int] = frozenset()
    _by_key: Codes | None = None
    _joined_paths: Texts | None = None

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self.parent)

    @property
    def file_count(self) -> int:
        """Number of sources or products."""
        return len(self.parent) - len(self.folders)

    def name(self, node: int) -> str:
        """Return the name of a node."""
        return self.names[int(node)]

    def is_folder(self, node: int) -> bool:
        """Return whether a node is a folder."""
        return bool(self.keys[node] < 0)

    def path(self, node: int) -> str:
        """Return the path of a node."""
        parts = [self.name(node)]
        while (node := int(self.parent[node])) >= 0:
            parts.append(self.name(node))
        return "/".join(reversed(parts))

    def key(self, node: int) -> int:
        """Return the key of a node."""
        return int(self.keys[node])

    def node_of(self, key: int) -> int | None:
        """Return the node of a key."""
        node = int(self.nodes_of(np.array([key]))[0])
        return node if node >= 0 else None

    def nodes_of(self, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the nodes of keys, -1 for unknown keys."""
        if not len(self):
            return np.full(len(keys), -1, np.int64)
        if self._by_key is None:
            self._by_key = argsort(self.keys)
        at = np.minimum(np.searchsorted(self.keys, keys, sorter=self._by_key), len(self) - 1)
        nodes = self._by_key[at].astype(np.int64)
        return np.where(self.keys[nodes] == keys, nodes, -1)

    def node_at(self, path: str) -> int | None:
        """Return the node of a path."""
        start, end, found = 0, len(self), None
        for name in path.split("/"):
            node = start
            while node < end and self.name(node) != name:
                node = int(self.end[node])
            if node >= end:
                return None
            found, start, end = node, node + 1, int(self.end[node])
        return found

    def with_above_and_below(self, hits: Mask) -> Mask:
        """Return the hits, all folders above them, and everything in folders that are hits."""
        found = hits.copy()
        above = self.parent[np.flatnonzero(hits)]
        while len(above := np.unique(above[above >= 0])):
            found[above] = True
            above = self.parent[above]
        inside = np.zeros(len(self) + 1, np.int32)
        folders = np.flatnonzero(hits & (self.keys < 0))
        np.add.at(inside, folders, 1)
        np.add.at(inside, self.end[folders], -1)
        return found | (np.cumsum(inside[:-1]) > 0)

    def search(self, text: str, reader: Reader | None = None) -> Mask:
        """Return which nodes match a filter (bare terms match names, or paths if they contain a slash), a UUID or an asset id.

        Raises:
            FilterError: a term is invalid.
        """
        ids = assets.ids_named(reader, text, of_products=self.kind is Kind.PRODUCTS) if reader is not None else None
        if ids is not None:
            return np.isin(self.keys, ids)
        found = np.ones(len(self), np.bool_)
        for term in parse(text).terms:
            if isinstance(term, TextMatch):
                Filter(text, (term,)).check()
                texts = self._paths() if "/" in term.raw else self.names
                # In other filters, a word such as "failed" is a status. In a search for assets, the word is a part of a name.
                hits = texts.matches(f"(?i){term.raw}", len(self))
                found &= ~hits if term.is_negated else hits
        return found

    def _paths(self) -> Texts:
        if self._joined_paths is None:
            above = ["", *(f"{path}/" for path in self.folders)]
            places = np.zeros(len(self) + 1, np.int64)
            places[np.fromiter(self.folders.values(), np.int64, len(self.folders)) + 1] = np.arange(1, len(above))
            prefixes = map(above.__getitem__, places[self.parent + 1].tolist())
            self._joined_paths = Texts(map(str.__add__, prefixes, self.names))
        return self._joined_paths


def _query_of(kind: Kind) -> Packed:
    """Return the query for the files of a tree.

    Its columns are the id, a number other than 0 if the file belongs to another tree, the duration of the analysis (ms), and the
    path.
    """
    if kind is Kind.PRODUCTS:
        return Packed(
            "p.ProductID", "Products p", ("p.ProductID", f"(p.Flags & {assets.INTERMEDIATE_FLAG}) <> 0", "0"), ("p.ProductName",)
        )
    is_intermediate = f"s.ScanFolderPK IN ({assets.INTERMEDIATE_FOLDERS_SQL})"
    wanted = is_intermediate if kind is Kind.INTERMEDIATES else f"NOT {is_intermediate}"
    return Packed("s.SourceID", "Sources s", ("s.SourceID", f"NOT ({wanted})", _ANALYSIS_SQL), ("s.SourceName",))


class FilesRead(NamedTuple):
    """Files in the order of the database: their paths, their ids, and the durations of their last analyses."""

    paths: Sequence[str]
    ids: Ints
    times_ms: Ints


def read_tree(reader: Reader, kind: Kind, folder_keys: dict[str, int]) -> AssetTree:
    """Read a tree from the database; `folder_keys` are shared by all trees of a program, so that keys of folders stay the same."""
    ids, times = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    paths: list[str] = []
    flawed = frozenset[int]()
    with reader.snapshot():
        if kind is Kind.PRODUCTS:
            flawed = frozenset(number for (number,) in reader.ask(_FLAWED_SQL))
        for piece in read_packed(reader, _query_of(kind)):
            numbers = piece.arrays()
            wanted = numbers[1] == 0
            ids.append(numbers[0][wanted])
            times.append(numbers[2][wanted])
            texts = piece.texts()
            paths += texts if wanted.all() else [text for text, is_wanted in zip(texts, wanted, strict=True) if is_wanted]
    files = FilesRead(paths, np.concatenate(ids), np.concatenate(times))
    tree = build_tree(kind, files, folder_keys)
    tree.flawed = flawed
    return tree


def build_tree(kind: Kind, files: FilesRead, folder_keys: dict[str, int]) -> AssetTree:
    """Return the tree of files; a folder that has no key yet gets the next negative number in `folder_keys` {path: key}."""
    spelled, at, file_names, ids, times_ms = _sort_files(files)
    place = range(len(spelled))
    numbers = {path: number for number, path in enumerate(spelled)}
    above = np.fromiter((numbers.get(path.rpartition("/")[0], -1) for path in spelled), np.int32, len(place))
    counts = np.bincount(at + 1, minlength=len(place) + 1)
    first, sizes = _layout(above, counts[1:])
    total = len(place) + len(at)
    starts = np.concatenate([[total - counts[0]], first + sizes - counts[1:]]).astype(np.int64)
    nodes = starts[at + 1] + np.arange(len(at)) - np.repeat(np.cumsum(counts) - counts, counts)
    level = np.fromiter((path.count("/") for path in spelled), np.int32, len(place))
    own_keys = np.fromiter((folder_keys.setdefault(path, -1 - len(folder_keys)) for path in spelled), np.int64, len(place))

    def lay_out(kind_of: type[np.signedinteger[Any]], of_folders: Ints, of_files: Ints) -> npt.NDArray[Any]:
        values = np.zeros(total, kind_of)
        values[first], values[nodes] = of_folders, of_files
        return values

    # The last element is for the index -1, which stands for files and folders at the top.
    first_or_top, level_or_top = np.append(first, -1), np.append(level, -1)
    order = lay_out(np.int64, np.arange(len(place)), len(place) + np.arange(len(at)))
    return AssetTree(
        kind,
        lay_out(np.int32, first_or_top[above], first_or_top[at]),
        lay_out(np.int32, level, level_or_top[at] + 1),
        lay_out(np.int32, first + sizes, nodes + 1),
        lay_out(np.int64, own_keys, ids),
        Texts(map([*(path.rpartition("/")[2] for path in spelled.values()), *file_names].__getitem__, order.tolist())),
        dict(zip(spelled, first.tolist(), strict=True)),
        np.empty(0, np.int32) if kind is Kind.PRODUCTS else lay_out(np.int32, np.zeros(len(place), np.int64), times_ms),
    )


def _sort_files(files: FilesRead) -> tuple[dict[str, str], Ints, list[str], Ints, Ints]:
    """Return the folders ({path in lower case: its first spelling}), then arrays of all files in the order of the tree.

    The arrays are the index of the file's folder (-1 = at the top), its name, id and time. Files are sorted by folder, name without
    case, and id.
    """
    parts = [path.rpartition("/") for path in files.paths]
    folders = dict.fromkeys(folder for folder, _, _ in parts)
    spelled = _folders(folders)
    place = {path: at for at, path in enumerate(spelled)}
    place_of = {folder: place.get(folder.lower(), -1) for folder in folders}
    at = np.fromiter((place_of[folder] for folder, _, _ in parts), np.int64, len(parts))
    names = [name for _, _, name in parts]
    order = np.lexsort((files.ids, rank([name.lower() for name in names]), at))
    return spelled, at[order], [names[number] for number in order.tolist()], files.ids[order], files.times_ms[order]


def _folders(paths: Collection[str]) -> dict[str, str]:
    """Return {folder in lower case: the folder as the first path spells it} with all parents, in the order of the tree."""
    found: dict[str, str] = {}
    for path in paths:
        while path and path.lower() not in found:
            found[path.lower()] = path
            path = path.rpartition("/")[0]  # noqa: PLW2901 - up to the top
    return {path: found[path] for path in sorted(found, key=lambda path: path.replace("/", "\0"))}


def _layout(above: Codes, files: Ints) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return (node, number of nodes from the folder to its last descendant) of each folder.

    Args:
        above: the parent of each folder, -1 = at the top.
        files: the number of files directly in each folder.
    """
    sizes = (files + 1).tolist()
    for folder in range(len(above) - 1, -1, -1):
        if above[folder] >= 0:
            sizes[above[folder]] += sizes[folder]
    first = [0] * len(above)
    free = [0] * (len(above) + 1)  # the next free node below each folder; the last element is the next free node at the top
    for folder, parent in enumerate(above.tolist()):
        first[folder] = free[parent]
        free[parent] += sizes[folder]
        free[folder] = first[folder] + 1
    return np.array(first, np.int64), np.array(sizes, np.int64)


_HEALTH = "health"


class AssetsStore:
    """The newest tree of each kind and the sources with problems, read in a thread on demand; calls `wake` after each read."""

    def __init__(self, database: Path, *, wake: Callable[[], None] = lambda: None) -> None:
        self._database, self._wake = database, wake
        self._lock = threading.Lock()
        self._trees: dict[Kind, AssetTree] = {}
        self._visited: set[Kind] = set()
        self._folder_keys: dict[str, int] = {}
        self._worker = LatestOnly[Callable[[], None]]("aptui-assets", self._read_and_wake, last=_HEALTH)
        self.unwell: UnwellSources | None = None
        self.version = 0
        self.error: KnownError | None = None
        self.took_s = 0.0
        """Duration of the last read; callers that read repeatedly wait in proportion to this duration."""

    def tree(self, kind: Kind) -> AssetTree | None:
        """Return the last tree. The first call starts to read it; until it is read, return None."""
        with self._lock:
            if kind not in self._visited:
                self._visited.add(kind)
                self._request(kind)
                self.mark_health_stale()
            return self._trees.get(kind)

    def mark_stale(self) -> None:
        """Read all requested trees again, because sources or products changed; `tree` returns an old tree during the read."""
        with self._lock:
            for kind in self._visited:
                self._request(kind)

    def mark_health_stale(self) -> None:
        """Read the sources with problems again."""
        self._worker.put(self._read_health, _HEALTH)

    def wait_until_idle(self, timeout_s: float = 10.0) -> None:
        """Wait until no read is pending."""
        self._worker.wait_until_idle(timeout_s)

    def close(self) -> None:
        """End the thread."""
        self._worker.close()

    def read(self, kind: Kind) -> AssetTree | None:
        """Return the tree that was read last, None if it was not read yet; do not start a read."""
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
        self._spans: dict[int, tuple[tuple[int, int], ...]] = {}
        self._filter = Filter()
        self._unwell: UnwellSources | None = None
        self.tree: AssetTree | None = None
        self.health: TreeHealth | None = None
        self.version = self.structure_version = self.node_count = 0
        self.parent: Codes = np.empty(0, np.int32)
        self.depth = self.end = self.parent

    def refresh_health(self) -> bool:
        """Show the result of the last query of problems; return False if nothing changed."""
        unwell = self._store.unwell
        if self.tree is None or unwell is None or unwell is self._unwell or self._kind is Kind.PRODUCTS:
            return False
        self._unwell, self.health = unwell, TreeHealth(self.tree.end, self.tree.nodes_of(unwell.rows[:, 0]), unwell)
        self.version += 1
        return True

    def refresh(self) -> bool:
        """Show the tree that was read last; return False if nothing changed. The first call starts to read the tree."""
        tree = self._store.tree(self._kind)
        if tree is None or tree is self.tree:
            return False
        self.tree, self._unwell, self.health = tree, None, None
        self.node_count, self.parent, self.depth, self.end = len(tree), tree.parent, tree.depth, tree.end
        self._spans.clear()
        if not self.refresh_health():
            self.version += 1
        self.structure_version += 1
        return True

    def key(self, node: int) -> int:
        """Return the stable id of a node: the id of a source or product, negative for a folder."""
        assert self.tree is not None
        return self.tree.key(node)

    def node_of(self, key: int) -> int | None:
        """Return the node with this key."""
        return None if self.tree is None else self.tree.node_of(key)

    def is_unread(self, _node: int) -> bool:
        """Return False: the children of every node are known, because the whole tree is read at once."""
        return False

    def read(self, _node: int) -> None:
        """Do nothing: every node is already read."""

    def cell(self, node: int, column_id: str) -> Cell:
        """Return the content of a cell."""
        tree = self.tree
        assert tree is not None
        name = tree.name(node)
        if column_id == "name":
            cell = Cell(name, "", self._spans_of(node))
            return add_prefix(f"{glyph('error')} ", cell._replace(role="failed")) if tree.key(node) in tree.flawed else cell
        if column_id == "health":
            return health_cell(self.health.counts(node) if self.health is not None else {})
        if tree.is_folder(node):
            return Cell("")
        if column_id == "extension":
            return Cell(name.rpartition(".")[2] if "." in name else "")
        took_ms = int(tree.analysis_ms[node]) if len(tree.analysis_ms) else 0
        return Cell(duration_text(took_ms) if took_ms else "")

    def highlight(self, text: str) -> None:
        """Mark the matches of `text` in the names, or no matches if it is ""; `AssetTree.search` (thread-safe) finds the nodes."""
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
