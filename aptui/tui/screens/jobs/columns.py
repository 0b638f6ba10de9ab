"""The tables of the upper pane: which columns the Jobs table has, how it sorts, and the list of causes.

What is in them is the store's.

Tests: `tests/tui/screens/jobs/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

from msgspec.structs import replace
from textual.binding import Binding, BindingType

from aptui.tui.data.job_infos import CauseGroup
from aptui.tui.data.jobs_store import JobsStore
from aptui.tui.widgets.cells import Cell
from aptui.tui.widgets.columns import Column
from aptui.tui.widgets.table import Table

_RAN_OR_FAILED = "Why it ran, or failed"
COLUMNS = (
    Column("status", "Status", 13),
    Column("source", "Source", 0, 28, weight=3),
    Column("completed", "Completed", 12, drop_rank=2),
    Column("platform", "Platform", 8, drop_rank=3),
    Column("key", "Job key", 15, drop_rank=6),
    Column("duration", "Duration", 8, align="right", drop_rank=5),
    Column("reason", _RAN_OR_FAILED, 0, len(_RAN_OR_FAILED), drop_rank=4, weight=3, is_prose=True),
    Column("builder", "Builder", 12, drop_rank=1),
    Column("folder", "Scan folder", 12, drop_rank=1),
    Column("warnings", "Warnings", 10, align="right", drop_rank=1),
    Column("errors", "Errors", 8, align="right", drop_rank=1),
    Column("number", "Number", 9, align="right", drop_rank=1),
)
"""All there are; on narrow screens they go by their rank: what a person asked for last, the status and the source never."""
USUAL = ("status", "source", "completed", "platform", "key", "duration", "reason")
"""Those that are shown unless people choose others."""
DESCENDING = frozenset({"completed", "duration", "warnings", "errors", "number"})
"""What is sorted with the largest first."""
_YIELDS, _SHORT_REASON = 10, 14
_AFTER_DURATION = 6
"""Where nothing failed, why jobs ran goes before how long they took."""
_STEP = 4
"""Cells by which a column becomes wider at a time."""
_WIDEST = {"status": 25, "platform": 16, "key": 16}
"""Columns that are as wide as their texts, and their maximum width in cells."""
_UNKNOWN: Mapping[str, int] = {}
FAILED_FIRST = "failed"
"""The order that is in force until people choose another: running jobs, failed jobs, those with errors, with warnings, the rest."""
_CAUSES = (
    Column("count", "Jobs", 7, align="right"),
    Column("cause", "Cause", 0, 24, weight=3, is_prose=True),
    Column("first", "First source", 0, 18, drop_rank=1, weight=2),
)


def choose_columns(
    ids: Sequence[str], *, has_failed: bool = True, alike: Collection[str] = (), needs: Mapping[str, int] = _UNKNOWN
) -> tuple[Column, ...]:
    """Return these columns in their order; without any that exists, the usual ones.

    Args:
        has_failed: whether there is an error that wants room. Else the reason takes no more than it needs.
        alike: columns in which all jobs say the same. They yield to what says more; the reason does not where errors stand there,
            nor what is shown because a person asked for it.
        needs: how many cells the texts of columns take: {column id: cells}.
    """
    wanted = set(ids) & {column.id for column in COLUMNS} or set(USUAL)
    columns = tuple(_fit_column(column, needs.get(column.id, 0)) for column in COLUMNS if column.id in wanted | {"source"})
    may_yield = set(USUAL) & set(alike) - {"reason"}
    columns = tuple(replace(each, drop_rank=_YIELDS) if each.id in may_yield else each for each in columns)
    if has_failed:
        return columns
    has_one_reason = "reason" in alike
    rank = _YIELDS if has_one_reason else _AFTER_DURATION
    quiet = Column("reason", "Why it ran", 0 if not has_one_reason else _SHORT_REASON, _SHORT_REASON, drop_rank=rank, is_prose=True)
    return tuple(replace(quiet, needs=column.needs) if column.id == "reason" else column for column in columns)


def _fit_column(column: Column, needs: int) -> Column:
    """Return a column that is as wide as its texts, as far as that is known."""
    if not needs:
        return column
    if not column.width:
        return replace(column, needs=max(column.min_width, -(-needs // _STEP) * _STEP))
    if column.id in _WIDEST:
        least = column.width if column.id == "status" else len(column.title)
        return replace(column, width=min(max(needs, least), _WIDEST[column.id]))
    return column


def title_of(column_id: str) -> str:
    """Return what stands over a column."""
    return next(column.title for column in COLUMNS if column.id == column_id)


class JobsTableView(Table):
    """The Jobs table; its columns are measured by who knows all rows (`needs`)."""

    fits_texts: ClassVar[bool] = False
    keeps_titles: ClassVar[bool] = True
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "open", "open", id="rows.open")]


class Causes:
    """Failures by cause, as a table shows them; keys are places in `groups`."""

    def __init__(self, store: JobsStore) -> None:
        self._store = store
        self.version = 0
        self.groups: list[CauseGroup] = []

    def renew(self) -> None:
        """Group again."""
        groups = self._store.failure_groups()
        if groups != self.groups:
            self.groups = groups
            self.version += 1

    def row_count(self) -> int:
        """Return how many causes there are."""
        return len(self.groups)

    def key(self, index: int) -> int:
        """Return the place."""
        return index

    def index_of(self, key: int) -> int | None:
        """Return the place."""
        return key if 0 <= key < len(self.groups) else None

    def cell(self, index: int, column_id: str) -> Cell:
        """Return what stands in a cell."""
        group = self.groups[index]
        if column_id == "count":
            return Cell(f"{len(group.keys):,}", "failed")
        if column_id == "cause":
            return Cell(f"after {group.cause} failed" if group.is_source else group.cause or "no reason given")
        info = self._store.info(group.keys[0])
        return Cell(info.source if info else "", "muted")


class CausesTable(Table):
    """The list of causes."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "open", "show these", id="rows.open")]

    def __init__(self, *, id: str) -> None:  # noqa: A002  # Textual's name
        super().__init__(_CAUSES, id=id)
        self.empty_text = "nothing failed"
