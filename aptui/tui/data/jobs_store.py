"""The rows of the Jobs screen: all jobs, filtered and sorted, kept up to date by notices.

Rows do not move while the user reads them. A changed row keeps its position. A new row that passes the filter is added last. A row
that no longer passes is removed, but not while it is on the screen (`hold`): a failed job that succeeds stays visible.

A line shows one job, or all shown jobs of a source (`group_by_source`); the key of a source's line is the key of the source.
`is_out_of_order` is true if the shown rows or their order are no longer those that the filter and the sort order define; `resort`,
or another filter or order, corrects this. After all jobs were read again, the new table is shown as soon as its rows are filtered
and sorted; rows keep their keys.

Only the UI's thread calls these classes. The feed's thread reads; the view worker's thread filters and sorts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter

import numpy as np
from msgspec import Struct, field

from aptui.core.notices import JobProgress
from aptui.shared.errors import InternalError, KnownError
from aptui.shared.lean_imports import give_memory_back
from aptui.store.jobs.filter import STATUS_CODES, Filter, FilterError, TextMatch, parse
from aptui.store.jobs.job_table import (
    COMPLETED,
    FAILED,
    FAILED_FIRST,
    PENDING,
    PROCESSING,
    AnalysisKeys,
    JobTable,
    Rows,
    gather,
    group_failures,
)
from aptui.store.jobs.regex import Mask
from aptui.store.jobs.texts import Codes
from aptui.store.queries.checks import CheckMark
from aptui.store.queries.logs import LogLines
from aptui.tui.data.feed import Batch, JobNews
from aptui.tui.data.job_infos import (
    SIGN_CELLS,
    WORDS,
    CauseGroup,
    JobRowInfo,
    SourceJobs,
    SourceLines,
    View,
    ViewRequest,
    ViewWorker,
    alike_columns,
    find_with,
    has_failed,
    is_source_key,
    is_worse,
    job_cell,
    job_info,
    job_of_key,
    jobs_of_source,
    nearest,
    source_cell,
    source_jobs_cell,
    source_key,
    without_repeats,
)
from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import Cell, add_prefix

_LEAST_SIZE = 1024
"""Number of spare elements that an array gets for rows that are added later."""


class ShownRows:
    """The shown rows in order; `lingering` rows fail the filter, but stay while they are on the screen.

    If `lines` is set, a line shows a source, and the rows of a source are together. If `lines` is None, a line shows a job.
    """

    def __init__(self) -> None:
        self.rows: Codes = np.empty(0, np.int32)
        self.lingering: set[int] = set()
        self.late_count = 0
        """Number of rows at the end that arrived after the last sorting."""
        self.lines: SourceLines | None = None
        self._is_shown: Mask = np.zeros(0, np.bool_)
        self._held = (0, 0)

    @property
    def line_count(self) -> int:
        """Number of lines."""
        return len(self.rows) if self.lines is None else self.lines.count

    def rows_of(self, line: int) -> Codes:
        """Return the rows of the jobs that a line shows: one job, or all jobs of a source."""
        start, end = (line, line + 1) if self.lines is None else self.lines.rows_of(line)
        return self.rows[start:end]

    def index_of(self, row: int) -> int | None:
        """Return the line of a row, None if the row is not shown."""
        if row < 0 or row >= len(self._is_shown) or not self._is_shown[row]:
            return None
        return int(self.lines_of(np.array([np.argmax(self.rows == row)]))[0])

    def places_of_source(self, row: int, sources: Rows) -> tuple[int, int]:
        """Return the range of the rows of a row's source, as positions in `self.rows`; (0, 0) if no row of the source is shown.

        If each line shows a job, other rows may be between the rows of a source; then the range has only the first row.

        Args:
            sources: the source of each row of the table.
        """
        if self.lines is not None and 0 <= row < len(self._is_shown) and self._is_shown[row]:
            return self.lines.rows_around(int(np.argmax(self.rows == row)))
        places = np.flatnonzero(sources[self.rows] == sources[row])
        if not len(places):
            return 0, 0
        return (int(places[0]), int(places[0]) + 1) if self.lines is None else self.lines.rows_around(int(places[0]))

    def lines_of(self, places: Rows) -> Rows:
        """Return the lines that show the rows at these positions in `self.rows`."""
        return places if self.lines is None else self.lines.lines_of(places)

    def hold(self, start: int, end: int) -> None:
        """Set the range of lines on the screen; the jobs on them stay shown even if they no longer pass the filter."""
        if self.lines is not None and self.lines.count:
            first, last = (self.lines.rows_of(min(line, self.lines.count - 1)) for line in (start, max(start, end - 1)))
            start, end = first[0], last[1]
        self._held = (start, end)

    def replace(self, rows: Codes, row_count: int) -> None:
        """Show these rows of a table with `row_count` rows."""
        self.rows = rows
        self.lingering.clear()
        self._is_shown = np.zeros(row_count + _LEAST_SIZE, np.bool_)
        self._is_shown[rows] = True

    def reconsider(self, table: JobTable, passing: Filter, changed: Rows | set[int]) -> bool:
        """Apply the filter to changed rows: show or remove them; return whether any row was added or removed."""
        rows = without_repeats(np.sort(np.fromiter(changed, np.int64, len(changed))))
        if int(rows[-1]) >= len(self._is_shown):
            self._is_shown = np.concatenate(
                [self._is_shown, np.zeros(table.row_count() + _LEAST_SIZE - len(self._is_shown), np.bool_)]
            )
        alive = table.number("alive")[rows].astype(np.bool_)
        passes = passing.matches(table, rows, reads_logs=False) & alive
        is_shown = self._is_shown[rows]
        come, leave = rows[passes & ~is_shown], rows[~passes & is_shown]
        self.lingering.difference_update(rows[passes].tolist())
        if len(leave):
            held = self.rows[self._held[0] : self._held[1]]
            stays = np.isin(leave, held) & table.number("alive")[leave].astype(np.bool_)
            self.lingering.update(leave[stays].tolist())
            leave = leave[~stays]
            self._leave(leave)
        if len(come):
            self._is_shown[come] = True
            self._add(come.astype(np.int32), None if self.lines is None else table.text("source")[0])
        return bool(len(come) or len(leave))

    def _add(self, rows: Codes, sources: Rows | None) -> None:
        """Add rows below the other rows of their source, or at the end."""
        if sources is None:
            self.rows = np.concatenate([self.rows, rows])
            self.late_count += len(rows)
            return
        rows = rows[gather(sources[rows], by_last=False)]
        shown, wanted = sources[self.rows], sources[rows].tolist()
        found = np.flatnonzero(np.isin(shown, wanted))
        last = dict(zip(shown[found].tolist(), found.tolist(), strict=True))
        self.rows = np.insert(self.rows, [last.get(source, len(shown) - 1) + 1 for source in wanted], rows)
        self.late_count += len(set(wanted) - last.keys())

    def _leave(self, rows: Rows) -> None:
        if len(rows):
            self._is_shown[rows] = False
            self.lingering.difference_update(rows.tolist())
            self.rows = self.rows[self._is_shown[self.rows]]


COLUMNS = {
    "status": "status", "source": "source", "completed": "completed_ms", "platform": "platform",
    "key": "key",
    "duration": "duration_ms",
    "reason": "reason", "builder": "builder", "folder": "folder", "warnings": "warnings", "errors": "errors",
    "number": "id",
}  # fmt: skip
"""{column id: field that it is sorted by}."""
ORDERS = {**COLUMNS, "failed": FAILED_FIRST}
"""{name of an order that the user can choose: field that it is sorted by}."""
_GONE = -1
_CODES = {**STATUS_CODES, "": _GONE}
_CHANGE_FIELDS = attrgetter("notice", "is_later", "received_ms")
_SPANS_AROUND = 64
_MOST_SPANS = 1024


class _Derived(Struct):
    """Values that are computed on demand, and are valid for one `version` of the store."""

    version: int
    sources: dict[int, SourceJobs] = field(default_factory=dict)
    """{first row of a line: the jobs of the line}."""
    job_counts: Rows | None = None
    """Number of jobs of each source; the index is the number of the source."""
    failed_lines: Rows | None = None
    """Lines with a job that failed or has errors, in order."""


class JobsStore:
    """The model of the Jobs table (`version`, `row_count`, `cell`, `key`, `index_of`) and facts about its rows.

    Args:
        wake: called by the view worker's thread when `refresh` has something to do.
        clock_ms: the clock, for durations of running jobs and for "today".
    """

    def __init__(
        self, *, wake: Callable[[], None] = lambda: None, clock_ms: Callable[[], int] = lambda: int(time.time() * 1000)
    ) -> None:
        self._clock_ms = clock_ms
        self._worker = ViewWorker(wake)
        self._table = JobTable({}, AnalysisKeys())
        self._next: JobTable | None = None
        self.filter = Filter()
        self._wanted = Filter()
        self._field, self._is_descending = "completed_ms", True
        self._shown = ShownRows()
        self._number, self._done, self._changes, self._sorted_changes = 0, 0, 0, 0
        self._is_complete = True
        self._touched: set[int] = set()
        self.running: dict[int, int] = {}
        """{key of a running job: its start in ms}."""
        self._percents: dict[int, JobProgress] = {}
        self.by_source = False
        """Whether a line shows a source instead of a job."""
        self._expanded: set[int] = set()
        """For each expanded source, the id of one of its jobs; ids of jobs stay valid when all jobs are read again."""
        self._derived = _Derived(-1)
        self._spans: dict[int, tuple[tuple[int, int], ...]] = {}
        self._found: Mapping[int, CheckMark] = {}
        self.log_lines: LogLines | None = None
        """Reads job logs for filter terms that search log lines."""
        self.version = 0
        self.error: KnownError | None = None
        """Why the requested filter is not applied; the view shows the rows of the last valid filter."""
        self.is_loaded = False
        """Whether the table has all jobs."""
        self.needs: Mapping[str, int] = {}
        """{column: width of its texts}, measured when the view was made."""

    def close(self) -> None:
        """End the worker."""
        self._worker.close()

    # -------------------------------------------------------------------------------------------------- the table's rows

    def row_count(self) -> int:
        """Return the number of lines."""
        return self._shown.line_count

    def key(self, index: int) -> int:
        """Return the key of the job or source that a line shows. The key does not depend on filter and order."""
        rows = self._shown.rows_of(index)
        return self._table.value("id", int(rows[0])) if len(rows) == 1 else source_key(self._table.number("id")[rows])

    def index_of(self, key: int) -> int | None:
        """Return the line of a job or source, None if it is not shown; a job of a collapsed source is in the line of its source."""
        row = self._table.row_of(job_of_key(key))
        if row < 0 or not is_source_key(key):
            return self._shown.index_of(row)
        start, end = self._shown.places_of_source(row, self._table.text("source")[0])
        if start == end:
            return None
        return start if self._shown.lines is None else self._shown.lines.top_of(start)

    def cell(self, index: int, column_id: str) -> Cell:
        """Return the content of a cell."""
        rows, lines = self._shown.rows_of(index), self._shown.lines
        if lines is not None and column_id == "source":
            return self._source_line(index, rows, lines)
        if len(rows) == 1:
            return self._job_cell(int(rows[0]), column_id, index)
        found = self._jobs_at(rows)
        key = self._table.value("id", found.worst)
        return source_jobs_cell(self._table, found, column_id, self._clock_ms(), self.running.get(key), self.percent_of(key))

    def _source_line(self, index: int, rows: Codes, lines: SourceLines) -> Cell:
        """Return the first cell of a line: the path of a source, after a sign if the source has several jobs.

        A line of a job below its source has the job key instead.
        """
        if lines.is_member(index):
            return Cell(f"    {self._table.words('key', int(rows[0]))}", "muted")
        sign = "" if len(rows) == 1 else glyph("open" if lines.is_expanded(index) else "closed")
        return add_prefix(f"{sign:<{SIGN_CELLS}}", self._job_cell(int(rows[0]), "source", index))

    def _job_cell(self, row: int, column_id: str, index: int = -1) -> Cell:
        table = self._table
        if column_id == "source":
            return source_cell(table, row, self._spans_at(index, row) if index >= 0 else ())
        key = table.value("id", row)
        return job_cell(table, row, column_id, self._clock_ms(), self.running.get(key), self.percent_of(key))

    def job_text(self, key: int, column_ids: Sequence[str]) -> str:
        """Return the row of a job as text, with tabs between cells; "" for an unknown job."""
        row = self._table.row_of(key)
        return "" if row < 0 else "\t".join(self._job_cell(row, column_id).text.strip() for column_id in column_ids)

    def _jobs_at(self, rows: Codes) -> SourceJobs:
        """Return the jobs of a line; computed once for each version, because every cell needs them."""
        first, known = int(rows[0]), self._current_derived().sources
        if first not in known:
            known[first] = jobs_of_source(self._table, rows, self._count_jobs(first))
        return known[first]

    def _current_derived(self) -> _Derived:
        if self._derived.version != self.version:
            self._derived = _Derived(self.version)
        return self._derived

    def _count_jobs(self, row: int) -> int:
        """Return the number of jobs of a row's source, including the jobs that the filter hides."""
        if not self.filter.terms:
            return 0  # without a filter all jobs are shown, so the number is not needed
        derived = self._current_derived()
        if derived.job_counts is None:
            alive = self._table.number("alive").astype(np.bool_)
            derived.job_counts = np.bincount(self._table.text("source")[0][alive])
        return int(derived.job_counts[self._table.value("source", row)])

    # ----------------------------------------------------------------------------------------------------------- sources

    @property
    def source_count(self) -> int:
        """Number of shown sources; 0 if each line shows a job."""
        lines, whole = self._shown.lines, self._table.whole
        if lines is None:
            return 0
        return lines.source_count if whole is None else whole.source_count

    def group_by_source(self, *, on: bool) -> None:
        """Show a source in each line (`on`), or a job."""
        if on != self.by_source:
            self.by_source = on
            self._request_view()

    def jobs_of(self, key: int) -> list[int]:
        """Return the shown jobs of the source with this key; if the key belongs to a job, return only this job."""
        if not is_source_key(key):
            return [key]
        row = self._table.row_of(job_of_key(key))
        if row < 0:
            return []
        start, end = self._shown.places_of_source(row, self._table.text("source")[0])
        return [int(job) for job in self._table.number("id")[self._shown.rows[start:end]]]

    def job_at(self, key: int, current: int | None = None) -> int:
        """Return the job whose log is shown for a line; for a source, this is its worst job.

        Args:
            current: the job whose log is shown now. If it is a job of this source, it is returned, unless the worst job has a
                problem that is worse than the status of `current` (`is_worse`).
        """
        jobs = self.jobs_of(key)
        if not is_source_key(key) or not jobs:
            return job_of_key(key)
        worst = jobs_of_source(self._table, self._table.rows_of(jobs), 0).worst
        if current in jobs and not is_worse(self._table, worst, self._table.row_of(current)):
            return current
        return self._table.value("id", worst)

    def expand(self, index: int, *, on: bool) -> int | None:
        """Show or hide the jobs of a line's source; return the line of the source, None if nothing changed."""
        lines = self._shown.lines
        if lines is None or index >= lines.count or lines.is_expanded(index) == on:
            return None
        key = self.key(index)
        if on and not is_source_key(key):
            return None
        row = self._table.row_of(job_of_key(key))
        sources = self._table.text("source")[0]
        self._expanded = {job for job in self._expanded if (at := self._table.row_of(job)) >= 0 and sources[at] != sources[row]}
        if on:
            self._expanded.add(job_of_key(key))
        self._lay_lines()
        self.version += 1
        return self.index_of(key if on else source_key(self._table.number("id")[row : row + 1]))

    def _lay_lines(self) -> None:
        """Compute which line shows which rows."""
        if self._shown.lines is not None:
            sources, expanded = self._table.text("source")[0], self._table.rows_of(sorted(self._expanded))
            self._shown.lines.update(sources[self._shown.rows], sources[expanded[expanded >= 0]])

    # -------------------------------------------------------------------------------------------------- facts about jobs

    @property
    def sort(self) -> tuple[str, bool]:
        """The current order: (its name in `ORDERS`, whether it is descending)."""
        return next(name for name, field in ORDERS.items() if field == self._field), self._is_descending

    @property
    def is_busy(self) -> bool:
        """Whether a view is being computed."""
        return self._done != self._number

    @property
    def is_filtering(self) -> bool:
        """Whether the rows are still those of the previous filter."""
        return self.is_busy and self._wanted is not self.filter

    @property
    def is_out_of_order(self) -> bool:
        """Whether rows changed since they were filtered and sorted; `resort` corrects that."""
        return self._changes != self._sorted_changes or bool(self._shown.lingering)

    @property
    def late_count(self) -> int:
        """Number of rows at the end that arrived after the last sorting."""
        return self._shown.late_count

    @property
    def hit_count(self) -> int:
        """Number of jobs that pass the filter, without rows that stay because they are on the screen."""
        return len(self._shown.rows) - len(self._shown.lingering)

    @property
    def total(self) -> int:
        """Number of all jobs, also while the table has only the first jobs."""
        return self._table.alive_count if self._table.whole is None else self._table.whole.job_count

    @property
    def has_rows(self) -> bool:
        """Whether rows can be shown: all jobs are loaded, or the first jobs are, which are loaded before the others."""
        return self.is_loaded or self._table.whole is not None

    def percent_of(self, key: int) -> int:
        """Return the progress of a running job in per cent, -1 = unknown."""
        found = self._percents.get(key)
        return found.percent if found is not None and key in self.running else -1

    @property
    def has_failed(self) -> bool:
        """Whether any job failed, or any check in `aptui.yaml` has findings."""
        return has_failed(self._table)

    @property
    def alike(self) -> frozenset[str]:
        """The columns in which all jobs have the same text."""
        return alike_columns(self._table)

    def find_field(self, word: str) -> str:
        """Return the field ("platform", "key" or "builder") whose text is this word in at least one job; "" = no field."""
        for name in ("platform", "key", "builder"):
            if any(text.lower() == word.lower() for text in self._table.text(name)[1]):
                return name
        return ""

    def counts(self) -> dict[str, int]:
        """Return {status word: number of jobs}; completed jobs with warnings or errors are also counted under these words."""
        alive = self._table.number("alive").astype(np.bool_)
        status = self._table.number("status")[alive]
        found = dict(zip(WORDS, np.bincount(status, minlength=len(WORDS)).tolist(), strict=True))
        for word in ("warnings", "errors"):
            found[word] = int(np.count_nonzero((status == COMPLETED) & (self._table.number(word)[alive] > 0)))
        return found

    def info(self, key: int) -> JobRowInfo | None:
        """Return the facts of a job, even if the filter hides it; for a source, return the facts of its worst job."""
        return job_info(self._table, self.job_at(key))

    def keys(self, start: int, end: int) -> list[int]:
        """Return the keys of a range of lines."""
        return [self.key(index) for index in range(start, min(end, self.row_count()))]

    def next_with(self, word: str, index: int, step: int) -> int | None:
        """Return the nearest line with "errors" (or a failed job) or with "warnings", before (-1) or after (1) the line `index`."""
        return nearest(self._shown.lines_of(find_with(self._table, self._shown.rows, word)), index, step)

    def count_failed_above(self, index: int) -> int:
        """Return how many lines above a line have a job that failed or has errors."""
        derived = self._current_derived()
        if derived.failed_lines is None:
            derived.failed_lines = self._shown.lines_of(find_with(self._table, self._shown.rows, "errors"))
        return int(np.searchsorted(derived.failed_lines, index))

    def find_failed(self) -> set[int]:
        """Return the keys of all failed jobs, without analyses."""
        failed = (self._table.number("status") == FAILED) & self._table.number("alive").astype(np.bool_)
        return {key for key in self._table.number("id")[failed].tolist() if key > 0}

    def find_among(self, keys: Sequence[int], *statuses: str) -> set[int]:
        """Return which of these jobs have one of the statuses; keys of unknown jobs are ignored."""
        rows = self._table.rows_of(keys)
        is_known, ids = rows >= 0, np.asarray(keys, np.int64)
        codes = [STATUS_CODES[status] for status in statuses]
        return set(ids[is_known][np.isin(self._table.number("status")[rows[is_known]], codes)].tolist())

    def failure_groups(self) -> list[CauseGroup]:
        """Return all failed jobs by their cause, the most frequent first."""
        ids = self._table.number("id")
        groups = group_failures(self._table)
        return [CauseGroup(cause, is_source, tuple(int(ids[row]) for row in rows)) for cause, is_source, rows in groups]

    def tick(self) -> bool:
        """Redraw the durations of running jobs, once a second; return whether any job is running."""
        self.version += bool(self.running)
        return bool(self.running)

    # ------------------------------------------------------------------------------------------------------------ requests

    def set_filter(self, text: str) -> None:
        """Filter by `text`. If `text` is invalid, the last valid view stays, and `error` is set.

        An invalid regular expression is found while the rows are filtered, so it is in `error` only after `refresh`. Other mistakes
        are in `error` at once.
        """
        try:
            self._wanted = parse(text, self._clock_ms())
        except FilterError as error:
            self.error = error
            self.version += 1
            return
        self.error = None
        self._request_view(sorts_anew=False)

    def set_sort(self, order: str, *, is_descending: bool) -> None:
        """Sort by a column, or failed first."""
        self._field, self._is_descending = ORDERS[order], is_descending
        self._request_view()

    def set_checks(self, found: Mapping[int, CheckMark]) -> None:
        """Replace the findings of the checks that `aptui.yaml` defines; `found` is {job id: findings}."""
        self._found = found
        (self._next or self._table).set_checks(found)
        self.version += 1
        if any(isinstance(term, TextMatch) and term.field == "check" for term in self._wanted.terms):
            self._request_view(sorts_anew=False)

    def resort(self) -> None:
        """Sort again, and remove rows that no longer pass the filter."""
        self._request_view()

    def hold(self, start: int, end: int) -> None:
        """Set the range of lines on the screen; the jobs on them stay shown even if they no longer pass the filter."""
        self._shown.hold(start, end)

    def warm(self) -> None:
        """Prepare sorting by path, so that the first sort is fast. May take 0.1 s: call it in a thread after the first paint."""
        self._table.warm()
        give_memory_back()

    # ----------------------------------------------------------------------------------------------------------- updates

    def apply(self, batch: Batch) -> bool:
        """Apply the updates in `batch` and a newly computed view, if one is ready; return whether the display changes."""
        before = self.version
        table = batch.table or (None if self.is_loaded or self._next is not None else batch.first)
        if table is not None:
            self._next = table
            self._next.set_checks(self._found)
            self._next.log_lines = self.log_lines
            self._overlay(self.running, PROCESSING)
        if batch.running is not None:
            self._overlay(self.running, None)
            self.running = dict(batch.running)
            self._overlay(self.running, PROCESSING)
        if table is not None:
            self._request_view()  # called after `running` is set, because running jobs are the first rows of the view
        if batch.jobs:
            self._apply_news(batch.jobs)
        if batch.percents:
            self._percents |= {key: each for key, each in batch.percents.items() if key in self.running}
            self.version += 1
        self._reconsider(self._shown.lingering)
        return self.refresh() or self.version != before

    def refresh(self) -> bool:
        """Show the view that was requested last if it is ready; return whether it was."""
        view = self._worker.pop()
        if view is None or view.request.number != self._number:
            return False
        self._adopt(view)
        return True

    def wait_until_idle(self, timeout_s: float = 10.0) -> None:
        """Wait until the view is complete."""
        deadline = time.monotonic() + timeout_s
        while self.is_busy:
            left = deadline - time.monotonic()
            if left <= 0 or not self._worker.wait(left):
                raise TimeoutError
            self.refresh()

    # -------------------------------------------------------------------------------------------- views and changed rows

    def _request_view(self, *, sorts_anew: bool = True) -> None:
        self._number += 1
        table = self._next or self._table
        self._touched.clear()
        self._worker.request(
            ViewRequest(
                self._number, table, self._wanted, self._field, self._is_descending, self._changes, sorts_anew, self.by_source
            )
        )  # fmt: skip

    def _adopt(self, view: View) -> None:
        self.version += 1
        if view.error is not None:
            self.error, self._wanted = view.error, self.filter
            self._done = view.request.number
            if self._next is not None and not isinstance(view.error, InternalError):
                self._request_view()  # The new rows have no view yet, so a view with the previous filter is requested.
            return
        if isinstance(self.error, InternalError):
            self.error = None
        follows_first = self._table.whole is not None
        if self._next is view.request.table:
            self._table, self._next = self._next, None
            self.is_loaded = self._table.whole is None
        self.filter, self._is_complete = view.request.filter, view.is_complete
        self._spans.clear()
        self._shown.replace(view.rows, self._table.row_count())
        self._shown.lines = SourceLines() if view.request.by_source else None
        self._lay_lines()
        if view.is_complete:
            # The first jobs were shown with widths that were measured in a sample of all jobs. The widths stay, so that no column
            # moves.
            if not follows_first:
                self.needs = view.needs
            self._done, self._sorted_changes = view.request.number, view.request.changes
            self._shown.late_count = 0
            touched, self._touched = self._touched, set()
            self._reconsider(touched)

    def _overlay(self, keys: Iterable[int], status: int | None) -> None:
        """Display this status for the given jobs instead of their stored status; None = display the stored status."""
        table = self._next or self._table
        rows = table.rows_of(np.fromiter(keys, np.int64))
        rows = rows[rows >= 0]
        if status is None:
            table.show_stored(rows)
        else:
            table.show(rows, status)
        self._note_changed(rows)

    def _apply_news(self, jobs: Sequence[JobNews]) -> None:
        table = self._next or self._table
        notices, is_later, received_ms = zip(*map(_CHANGE_FIELDS, jobs), strict=True)
        keys = [each.job_id or table.analyses.of(each.scan_folder, each.source, each.job_key) for each in notices]
        key_of = np.array(keys)
        status = np.array([_CODES[notice.status] for notice in notices], np.int8)
        is_running = status == PROCESSING
        self._note_running(keys, is_running, received_ms, [notice.run_key for notice in notices])
        # The list shows an analysis only if it failed, as the Jobs tab of the Asset Processor does.
        stays, later = np.where(key_of < 0, status == FAILED, status != _GONE), np.array(is_later)
        rows = table.rows_of(key_of)
        leaving = rows[later & ~stays]
        put = np.flatnonzero(later & stays)
        if len(put):
            # In the database a running job is pending. Only notices report that the job runs.
            statuses = np.where(is_running, PENDING, status)[put].tolist()
            ended = [
                0 if code == PENDING else notices[at].completed_ms or received_ms[at]
                for at, code in zip(put.tolist(), statuses, strict=True)
            ]
            rows[put] = table.put_notices([notices[at] for at in put.tolist()], key_of[put], statuses, ended)
        for row in leaving[leaving >= 0].tolist():
            table.drop(row)
        table.show_stored(rows[rows >= 0])
        table.show(rows[is_running & (rows >= 0)], PROCESSING)
        self._note_changed(rows[rows >= 0])

    def _note_running(self, keys: Sequence[int], is_running: Mask, received_ms: Sequence[int], runs: Sequence[int]) -> None:
        """Note which of these jobs run, and their start; forget the progress of other runs."""
        for key in self.running.keys() & keys:
            del self.running[key]
        for at in np.flatnonzero(is_running).tolist():
            self.running[keys[at]] = received_ms[at]
        for key, run_key in zip(keys, runs, strict=True) if self._percents else ():
            known = self._percents.get(key)
            if known is not None and not (key in self.running and known.run_key in (0, run_key)):
                del self._percents[key]

    def _note_changed(self, rows: Rows) -> None:
        if not len(rows):
            return
        self._changes += 1
        if self._next is not None or not self._is_complete:
            self._touched.update(rows.tolist())
            return
        self.version += 1
        if self.is_busy:
            self._touched.update(rows.tolist())
        self._reconsider(rows)

    def _reconsider(self, changed: Rows | set[int]) -> None:
        """Filter the changed rows again: show the rows that match now, and remove the rows that no longer match."""
        if len(changed) and self._is_complete and self._shown.reconsider(self._table, self.filter, changed):
            self._lay_lines()
            self.version += 1

    def _spans_at(self, index: int, row: int) -> tuple[tuple[int, int], ...]:
        """Return the ranges of a row's path that the filter matches.

        The paths of the rows around it are searched in the same call, because each search has a fixed cost.
        """
        if not self.filter.terms:
            return ()
        code = self._table.value("source", row)
        if code not in self._spans:
            if len(self._spans) > _MOST_SPANS:
                self._spans.clear()
            lines = range(max(0, index - _SPANS_AROUND // 2), min(index + _SPANS_AROUND, self.row_count()))
            codes, texts = self._table.text("source")
            wanted = sorted({code, *(int(codes[self._shown.rows_of(line)[0]]) for line in lines)})
            self._spans.update(zip(wanted, self.filter.spans([texts[code] for code in wanted]), strict=True))
        return self._spans[code]
