"""The metrics of a builder as a tree: its analyses and its jobs, and below them the sources that cost most.

Read where they are opened, in a thread.

Tests: `tests/tui/screens/builders/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from aptui.shared.errors import KnownError
from aptui.store.queries.metrics import Entry, Spent, analysis_entries, job_entries
from aptui.store.queries.reader import open_reader
from aptui.tui.background import run_in_background
from aptui.tui.screens.builders.facts import KnownBuilder, duration_cell
from aptui.tui.widgets.cells import BAR_CELLS, Cell, share_bar, width_of
from aptui.tui.widgets.columns import Column
from aptui.tui.widgets.tree import Branch, LazyTree

METRICS = (
    Column("name", "Name", 0, 16, weight=3),
    Column("platform", "Platform", 0, 10, drop_rank=2, is_prose=True),
    Column("count", "Count", 7, align="right", drop_rank=1),
    Column("total", "Total", 8, align="right"),
    Column("average", "Average", 9, align="right", drop_rank=4),
    Column("slowest", "Slowest", 9, align="right", drop_rank=3),
    Column("bar", "Share", BAR_CELLS, drop_rank=5),
)
MOST = 1000
"""So many entries are shown of each, the slowest."""
SORTED_BY = ("name", "count", "total", "average", "slowest")
LARGEST_FIRST = frozenset(SORTED_BY[1:])
_MOST_NAME = 32
"""As long names are whole, and columns that say less go for them; longer ones have what is left."""
_INDENT = 4
"""So many cells stand before the name of an entry."""
_TITLES = ("Analysis jobs", "Processing jobs")


class MetricsGroup(Struct):
    """The analyses (0) or the jobs (1) of a builder; `entries` is None until they were read."""

    which: int
    spent: Spent
    entries: list[Entry] | None = None
    is_asked: bool = False


class Metrics:
    """The tree of one builder.

    Args:
        database: of the project.
        in_ui: calls a function in the app's thread.
        changed: called there when entries came.
    """

    def __init__(self, database: Path, in_ui: Callable[..., None], changed: Callable[[str], None]) -> None:
        self._database, self._in_ui, self._changed = database, in_ui, changed
        self.tree = LazyTree(self._children)
        self._known: KnownBuilder | None = None
        self._groups: list[MetricsGroup] = []
        self._sort = ("total", True)
        self._passes: Callable[[Sequence[Entry]], Sequence[Entry]] = lambda entries: entries

    def show(self, known: KnownBuilder | None) -> bool:
        """Show a builder; nothing changes where it is the same with the same figures. Return whether anything did."""
        if known == self._known:
            return False
        self._known = known
        spent = (known.spent.analyses, known.spent.jobs) if known and known.spent else ()
        self._groups = [MetricsGroup(which, each) for which, each in enumerate(spent) if each.count]
        self._put_roots()
        return True

    def sort_by(self, column_id: str, *, is_descending: bool) -> None:
        """Sort entries from now on."""
        self._sort = (column_id, is_descending)
        self._grow_all()

    def narrow(self, passes: Callable[[Sequence[Entry]], Sequence[Entry]]) -> None:
        """Show only the entries that pass."""
        self._passes = passes
        self._grow_all()

    def entry(self, key: int | None) -> Entry | None:
        """Return the entry of a branch."""
        branch = None if key is None else self.tree.branch(key)
        return branch.data if branch is not None and isinstance(branch.data, Entry) else None

    def columns(self) -> tuple[Column, ...]:
        """Return the columns as its entries need them."""
        entries = [entry for group in self._groups for entry in group.entries or ()]
        return columns_for(entries, self._known.name if self._known else "")

    def group_keys(self) -> list[int]:
        """Return the keys of the groups."""
        return [self.tree.key(node) for node in range(self.tree.node_count) if self.tree.parent[node] < 0]

    @property
    def entry_count(self) -> int:
        """How many entries there are below them."""
        return self.tree.node_count - len(self.group_keys())

    def _put_roots(self) -> None:
        most = max((group.spent.total_ms for group in self._groups), default=0)
        self.tree.set_roots([Branch(_group_cells(group, most), group, has_children=True) for group in self._groups])
        self._grow_all()

    def _grow_all(self) -> None:
        for key in self.group_keys():
            branch = self.tree.branch(key)
            if branch is not None and branch.data.entries is not None:
                self.tree.grow(branch, self._leaves(branch.data))

    def _children(self, branch: Branch) -> Sequence[Branch] | None:
        group: MetricsGroup = branch.data
        if group.entries is None and not group.is_asked and self._known is not None:
            group.is_asked = True
            run_in_background("aptui-metrics", self._read, self._known, group)
        return None if group.entries is None else self._leaves(group)

    def _read(self, known: KnownBuilder, group: MetricsGroup) -> None:
        try:
            with closing(open_reader(self._database)) as reader:
                found = (job_entries if group.which else analysis_entries)(reader, known.uuid, MOST)
        except KnownError as error:
            self._in_ui(self._take_entries, group, [], error.what)
        else:
            self._in_ui(self._take_entries, group, found, "")

    def _take_entries(self, group: MetricsGroup, entries: list[Entry], trouble: str) -> None:
        group.entries = entries
        if group in self._groups:
            self._grow_all()
        self._changed(trouble)

    def _leaves(self, group: MetricsGroup) -> list[Branch]:
        column_id, is_descending = self._sort
        entries = list(self._passes(group.entries or ()))
        entries.sort(key=_order(column_id), reverse=is_descending)
        slowest = max((entry.duration_ms for entry in entries), default=0)
        return [Branch(_entry_cells(entry, slowest, self._known.name if self._known else ""), entry) for entry in entries]


def _order(column_id: str) -> Callable[[Entry], tuple[object, ...]]:
    if column_id == "name":
        return lambda entry: (entry.source.lower(), entry.platform, entry.job_key)
    field = {"count": "count", "average": "average_ms", "slowest": "slowest_ms"}.get(column_id, "total_ms")
    return lambda entry: (getattr(entry.spent, field), entry.duration_ms, entry.source.lower())


def _group_cells(group: MetricsGroup, most_ms: int) -> dict[str, Cell]:
    spent = group.spent
    return {
        "name": Cell(_TITLES[group.which], "title"),
        **_spent_cells(spent),
        "bar": Cell(share_bar(spent.total_ms / most_ms if most_ms else 0), "accent"),
    }


def _spent_cells(spent: Spent) -> dict[str, Cell]:
    return {
        "count": Cell(f"{spent.count:,}"),
        "total": duration_cell(spent.total_ms),
        "average": duration_cell(spent.average_ms),
        "slowest": duration_cell(spent.slowest_ms),
    }


def columns_for(entries: Sequence[Entry], builder: str) -> tuple[Column, ...]:
    """Return the columns; sources and platforms have what their texts need where there is room, and no more."""
    needs = {
        "name": max((width_of(entry.source) + _INDENT for entry in entries), default=0),
        "platform": max((width_of(_where(entry, builder)) for entry in entries), default=0),
    }
    name, *others = METRICS
    name = replace(name, min_width=max(name.min_width, min(_MOST_NAME, needs["name"])))
    return tuple(replace(each, needs=max(each.min_width, needs[each.id])) if each.id in needs else each for each in (name, *others))


def _where(entry: Entry, builder: str) -> str:
    """Return the platforms of a job, and its key where it is not named like its builder."""
    where = entry.platform if entry.job_key in {"", builder} else f"{entry.platform} {entry.job_key}"
    return "" if entry.is_analysis else where.replace(",", ", ")


def _entry_cells(entry: Entry, slowest_ms: int, builder: str) -> dict[str, Cell]:
    return {
        "name": Cell(entry.source, "path"),
        "platform": Cell(_where(entry, builder), "muted"),
        **_spent_cells(entry.spent),
        "bar": Cell(share_bar(entry.duration_ms / slowest_ms if slowest_ms else 0), "muted"),
    }
