"""Computes the content of the Jobs screen from the table of jobs: cells, facts about one job, failures by cause, ordered rows.

`ViewWorker` filters and sorts rows in a thread; `SourceLines` groups the rows of a source into one line.

Tests: `tests/tui/data/test_jobs_store.py`, `tests/tui/data/test_source_lines.py`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from aptui.core.asset_checks import CheckLevel
from aptui.shared.errors import InternalError, KnownError
from aptui.store.jobs.filter import STATUS_CODES, Filter
from aptui.store.jobs.job_table import (
    CANCELLED,
    COMPLETED,
    FAILED,
    PENDING,
    PROCESSING,
    WITH_WARNINGS,
    JobTable,
    Rows,
    order_of_sources,
    order_rows,
    urgency_of,
)
from aptui.store.jobs.regex import Mask
from aptui.store.jobs.texts import Codes
from aptui.store.queries.checks import CheckMark
from aptui.tui.background import LatestOnly
from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import Cell, add_prefix, width_of
from aptui.tui.words import ROLES, duration_text, moment_text

if TYPE_CHECKING:
    import numpy.typing as npt

WORDS = tuple(STATUS_CODES)
_TEXT_COLUMNS = ("platform", "key", "reason", "builder", "folder")
_FETCHED = re.compile(r"(^|; )its result is (from [^(]+\S) \(.*\)$")
"""Matches "its result is from PLACE (MACHINE, TIME)" in a reason. A row shows only "from PLACE"; the details show the full text."""
_EXIT = re.compile(r"^command exited with status (?:\d+|#): (?=\S)")
"""Matches the first words of each error of a command. Cells omit them, because the column has room only for the error itself."""


def job_cell(table: JobTable, row: int, column_id: str, now_ms: int, began_ms: int | None, percent: int = -1) -> Cell:
    """Return a cell of a job's row.

    Args:
        began_ms: start of the current run (ms since 1970), None = unknown.
        percent: progress of the current run, -1 = unknown.
    """
    match column_id:
        case "status":
            is_shown = percent >= 0 and table.value("status", row) == PROCESSING
            return Cell(f"{glyph('processing')} {percent} %", "processing") if is_shown else _status(table, row)
        case "completed":
            has_ended = table.value("status", row) not in (PENDING, PROCESSING)
            moment = moment_text(table.value("completed_ms", row), now_ms) if has_ended else ""
            return Cell(moment or glyph("none"))
        case "duration":
            return Cell(_duration(table, row, now_ms, began_ms))
        case "reason":
            return _reason(table, row)
    if column_id in _TEXT_COLUMNS:
        return Cell(table.words(column_id, row))
    value = table.value("id" if column_id == "number" else column_id, row)
    return Cell(f"#{value}" if column_id == "number" and value > 0 else str(value) if value > 0 else "")


def source_cell(table: JobTable, row: int, spans: Sequence[tuple[int, int]]) -> Cell:
    """Return the path of a job with marked `spans`; a critical job has a sign before it."""
    cell = Cell(table.words("source", row), "", tuple(spans))
    return add_prefix(f"{glyph('critical')} ", cell) if table.value("critical", row) else cell


class SourceJobs(Struct, frozen=True):
    """The shown jobs of one source: their rows, and the row of the job with the worst status.

    `count` is the number of shown jobs with this status, `job_count` the number of all jobs of the source.
    """

    rows: Rows
    worst: int
    count: int
    job_count: int


def jobs_of_source(table: JobTable, rows: Rows, job_count: int) -> SourceJobs:
    """Return the jobs of a source; `job_count` also counts those that the filter hides."""
    urgency = _urgency(table, rows)
    at = int(np.argmin(urgency))
    return SourceJobs(rows, int(rows[at]), int(np.count_nonzero(urgency == urgency[at])), max(job_count, len(rows)))


def is_worse(table: JobTable, row: int, other: int) -> bool:
    """Return whether the job in `row` has a problem, and its problem is worse than the status of the job in row `other`.

    The problems, the worst first: the job failed, it has errors, it has warnings.
    """
    mine, others = (int(_urgency(table, np.array([each]))[0]) for each in (row, other))
    return mine <= WITH_WARNINGS and mine < others


def _urgency(table: JobTable, rows: Rows) -> Rows:
    status = table.number("status")[rows]
    urgency = urgency_of(table, status, rows)
    if table.checks:
        has_findings = (status == COMPLETED) & table.checks.has_findings(rows)
        urgency[has_findings] = np.minimum(urgency[has_findings], WITH_WARNINGS)
    return urgency


def source_jobs_cell(table: JobTable, jobs: SourceJobs, column_id: str, now_ms: int, began_ms: int | None, percent: int) -> Cell:
    """Return a cell of the line of a source: status and reason of its worst job, the latest time, the longest duration.

    The column of platforms shows how many of the source's jobs have the status of the worst job.
    """
    rows, status = jobs.rows, table.value("status", jobs.worst)
    if column_id in _TEXT_COLUMNS and column_id != "reason":
        value_count = len(set(table.text(column_id)[0][rows].tolist()))
        if column_id == "platform":
            return Cell(f"{jobs.count} of {jobs.job_count}{' jobs' if value_count < len(rows) else ''}")
        return Cell(table.words(column_id, jobs.worst) if value_count == 1 else f"{value_count} {column_id}s")
    if column_id == "number":
        return Cell("")
    field = {"completed": "completed_ms", "duration": "duration_ms"}.get(column_id, column_id)
    if field in ("completed_ms", "duration_ms", "warnings", "errors") and status != PROCESSING:
        each = table.number("status")[rows]
        ended = rows[(each != PENDING) & (each != PROCESSING)]
        if len(ended):
            return job_cell(table, int(ended[np.argmax(table.number(field)[ended])]), column_id, now_ms, None)
    return job_cell(table, jobs.worst, column_id, now_ms, began_ms, percent)


def needs_of(table: JobTable, rows: Sequence[int], margin: int) -> dict[str, int]:
    """Return the width that the texts of these rows need, by column; the longest 5 % of paths are left out.

    Args:
        margin: cells before each path.
    """
    if not rows:
        return {}
    paths = sorted(width_of(source_cell(table, row, ()).text) + margin for row in rows)
    needs = {name: max(width_of(table.words(name, row)) for row in rows) for name in ("platform", "key")}
    if margin and len(set(zip(*(table.number(name)[rows].tolist() for name in ("source", "platform")), strict=True))) < len(rows):
        needs["platform"] = max(needs["platform"], len("2 of 3 jobs"))
    needs["status"] = max(width_of(_status(table, row).text) for row in rows)
    needs["reason"] = max(width_of(_reason(table, row).text) for row in rows)
    return {**needs, "source": paths[(len(paths) - 1) * 19 // 20]}


def word_of(table: JobTable, row: int) -> str:
    """Return the status of a job in the words of `filter.STATUS_WORDS`."""
    status = table.value("status", row)
    if status == COMPLETED:
        return "errors" if table.value("errors", row) else "warnings" if table.value("warnings", row) else "completed"
    return WORDS[status]


def _mark(table: JobTable, row: int) -> CheckMark | None:
    """Return the findings of the checks if the job is completed, else None.

    If a check blocked a job, the job is not completed, and its error contains the finding.
    """
    return table.checks.mark(row) if table.value("status", row) == COMPLETED else None


def _status(table: JobTable, row: int) -> Cell:
    word, mark = word_of(table, row), _mark(table, row)
    if mark is not None and (word == "completed" or (word == "warnings" and mark.level != CheckLevel.WARN)):
        role = "warning" if mark.level == CheckLevel.WARN else "failed"
        return Cell(f"{glyph(role)} {mark.count} {'check' if mark.count == 1 else 'checks'}", role)
    role = ROLES.get(word, word)
    kinds = ("errors", "warnings") if word == "errors" else (word,) if word in ROLES else ()
    counts = [(table.value(kind, row), kind) for kind in kinds]
    text = ", ".join(f"{count} {kind.removesuffix('s') if count == 1 else kind}" for count, kind in counts if count)
    return Cell(f"{glyph(role)} {text or word}", role)


def _reason(table: JobTable, row: int) -> Cell:
    if table.value("status", row) == FAILED and (error := table.words("error", row).strip()):
        return Cell(short_error(error, table.words("source", row)))
    lead = ("draft; " if table.value("draft", row) else "") + ("flaky; " if table.value("flaky", row) else "")
    if (mark := _mark(table, row)) is not None:
        return Cell(lead + mark.text)
    reason = _FETCHED.sub(r"\1\2", table.words("reason", row))
    return Cell(lead + reason.replace(f"source '{table.words('source', row)}'", "the source", 1), "muted")


def short_error(error: str, source: str) -> str:
    """Return the first line of an error without two prefixes that say nothing new in a row.

    These are the words that all failed commands share (`_EXIT`), and the path or name of the source.
    `error` may also be the text of a cause (`cause_of`), in which "#" stands for a number.
    """
    return without_source(_EXIT.sub("", error.partition("\n")[0]), source)


def without_source(error: str, source: str) -> str:
    """Remove the path or name of the source from the beginning of an error, because the row shows it already."""
    name = source.rpartition("/")[2]
    return error.removeprefix(f"{source}:").removeprefix(f"{name}:").lstrip() or error


def _duration(table: JobTable, row: int, now_ms: int, began_ms: int | None) -> str:
    status = table.value("status", row)
    if status == PROCESSING:
        return f"{max(0, now_ms - began_ms) // 1000} s…" if began_ms is not None else glyph("none")
    duration_ms = table.value("duration_ms", row)
    has_run = table.value("completed_ms", row) > 0 and status not in (PENDING, CANCELLED)
    return duration_text(duration_ms) if has_run else glyph("none")


class JobRowInfo(Struct, frozen=True):
    """The facts of a row; `key` is the job id, negative for a failed analysis.

    `status` is a word of `filter.STATUS_WORDS`. `check` has the findings of the configured checks. `source_id` is 0 if the job is
    known only from notices; then query `Reader.job(key).source_id`.
    """

    key: int
    source: str
    scan_folder: str
    platform: str
    job_key: str
    builder: str
    status: str
    warnings: int
    errors: int
    completed_ms: int
    duration_ms: int
    reason: str
    error: str
    cause: str
    run_key: int
    source_id: int
    check: str = ""


class CauseGroup(Struct, frozen=True):
    """Jobs that failed for one cause: the source whose job failed first (`is_source`), or the common text of their errors."""

    cause: str
    is_source: bool
    keys: tuple[int, ...]


def job_info(table: JobTable, key: int) -> JobRowInfo | None:
    """Return the facts of a job's row, None if the job is unknown."""
    row = table.row_of(key)
    if row < 0:
        return None
    return JobRowInfo(
        key, table.words("source", row), table.words("folder", row), table.words("platform", row), table.words("key", row),
        table.words("builder", row), word_of(table, row), table.value("warnings", row), table.value("errors", row),
        table.value("completed_ms", row), table.value("duration_ms", row), table.words("reason", row),
        table.words("error", row),
        table.words("cause", row), table.value("run_key", row), table.value("source_id", row),
        mark.text if (mark := table.checks.mark(row)) is not None else "",
    )  # fmt: skip


def has_failed(table: JobTable) -> bool:
    """Return whether any job failed, or any check in `aptui.yaml` has findings."""
    return bool(table.checks) or bool((table.number("status")[_alive(table)] == FAILED).any())


def alike_columns(table: JobTable) -> frozenset[str]:
    """Return the columns in which all jobs have the same text, so that they can be hidden."""
    alive = _alive(table)
    mixed = table.whole.mixed if table.whole is not None else ()
    return frozenset(name for name in ("reason", "platform", "key") if name not in mixed and _are_alike(table.text(name)[0][alive]))


def find_with(table: JobTable, rows: Rows, word: str) -> Rows:
    """Return the positions of jobs with errors or of jobs with warnings.

    `word` is "errors" or "warnings". A failed job counts as a job with errors; a completed job with check findings counts as a job
    with warnings.
    """
    status = table.number("status")[rows]
    mask = (status == COMPLETED) & (table.number(word)[rows] > 0)
    if word == "errors":
        mask |= status == FAILED
    elif table.checks:
        mask |= (status == COMPLETED) & table.checks.has_findings(rows)
    return np.flatnonzero(mask)


def nearest(places: Rows, at: int, step: int) -> int | None:
    """Return the nearest number in `places` before (-1) or after (1) `at`; after the last number, continue at the other end.

    Return None if `places` has no other number. `places` is ascending.
    """
    places = places[places != at]
    return int(places[(int(np.searchsorted(places, at)) - (step < 0)) % len(places)]) if len(places) else None


def _alive(table: JobTable) -> Mask:
    return table.number("alive").astype(np.bool_)


def _are_alike(codes: Rows) -> bool:
    return not len(codes) or bool((codes == codes[0]).all())


_PEEK = 4096
"""Number of rows that are filtered first, so that a screenful of rows can be shown before all rows are filtered."""
_SCREENFUL = 100
_SAMPLE = 300
"""Approximate number of rows after the first screenful in which the widths of texts are measured."""
_CHEAP_SORT = 200_000
"""Maximum number of rows that are sorted again while the user edits the filter. Sorting them takes 10 ms.

A longer list keeps its order, with new rows last.
"""


class ViewRequest(Struct, frozen=True):
    """A request for the rows to show and their order.

    Each request has a higher `number`; `changes` is the number of changes of the table before the request.
    """

    number: int
    table: JobTable
    filter: Filter
    field: str
    is_descending: bool
    changes: int
    sorts_anew: bool
    by_source: bool = False


class View(Struct, frozen=True):
    """The rows of a view in order, or only the first screenful if the view is not complete; `error` is why a view has no rows.

    `needs` is {column: width of its texts}, measured in the first screenful and in a sample of the other rows. If the request has
    `by_source`, the rows of each source are together.
    """

    request: ViewRequest
    rows: Codes
    is_complete: bool
    error: KnownError | None = None
    needs: Mapping[str, int] = {}


class _SupersededError(Exception):
    """A newer request replaced this one."""


class ViewWorker:
    """Computes views in a thread.

    The UI's thread calls `request` and `pop`. The computing thread calls `wake` when a view is ready.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._condition = threading.Condition()
        self._view: View | None = None
        self._order: tuple[JobTable, str, bool, int, Codes] | None = None
        self._worker = LatestOnly[ViewRequest]("aptui-filter", self._view_of)

    def request(self, request: ViewRequest) -> None:
        """Compute a view; an earlier request is dropped."""
        self._worker.put(request, interrupts=True)

    def pop(self) -> View | None:
        """Return the newest view and remove it; return None if no view is ready."""
        with self._condition:
            view, self._view = self._view, None
            return view

    def wait(self, timeout_s: float) -> bool:
        """Wait until a view is ready; return False after the timeout."""
        with self._condition:
            return self._condition.wait_for(lambda: self._view is not None, timeout_s)

    def close(self) -> None:
        """End the thread."""
        self._worker.close()

    def _view_of(self, _kind: str, request: ViewRequest) -> None:
        try:
            self._compute(request)
        except _SupersededError:
            pass
        except KnownError as error:
            self._publish(View(request, np.empty(0, np.int32), is_complete=True, error=error))
        except Exception as error:
            wrong = InternalError(f"the rows cannot be sorted: {error}", hint="press R to try again")
            self._publish(View(request, np.empty(0, np.int32), is_complete=True, error=wrong))
            raise

    def _compute(self, request: ViewRequest) -> None:
        def check() -> None:
            if self._worker.stop.is_set():
                raise _SupersededError

        request.filter.check()
        table, count = request.table, request.table.row_count()
        alive = table.number("alive")[:count].astype(np.bool_)
        order = self._order_of(request, count)
        check()
        if not request.filter.terms:
            self._publish(_complete(request, order[alive[order]]))
            return
        if count > _PEEK:
            rows = order[:_PEEK]
            first = rows[request.filter.matches(table, rows, check) & alive[rows]]
            if len(first) >= _SCREENFUL:
                self._publish(View(request, _gather(request, first), is_complete=False))
        mask = request.filter.matches(table, None, check)[:count] & alive
        self._publish(_complete(request, order[mask[order]]))

    def _order_of(self, request: ViewRequest, count: int) -> Codes:
        """Return all rows in order. While the user edits a filter over many rows, return the previous order, with new rows last."""
        known = self._order
        if known is not None and known[:3] == (request.table, request.field, request.is_descending):
            rows = known[4]
            if known[3] == request.changes and len(rows) == count:
                return rows
            if not request.sorts_anew and count > _CHEAP_SORT:
                return np.concatenate([rows, np.arange(len(rows), count, dtype=np.int32)])
        rows = order_rows(request.table, request.field, is_descending=request.is_descending)[:]
        rows = rows[rows < count]
        self._order = (request.table, request.field, request.is_descending, request.changes, rows)
        return rows

    def _publish(self, view: View) -> None:
        if self._worker.is_superseded():
            return
        with self._condition:
            self._view = view
            self._condition.notify_all()
        self._wake()


def _gather(request: ViewRequest, rows: Codes) -> Codes:
    """Return the rows; if the view has lines of sources, the rows of each source are together."""
    if not request.by_source:
        return rows
    return order_of_sources(request.table, rows, request.field, is_descending=request.is_descending)


SIGN_CELLS = 2
"""Width of the space before a source's path for the sign that marks a source with several jobs (cells)."""


def _complete(request: ViewRequest, rows: Codes) -> View:
    rows = _gather(request, rows)
    step = max(1, len(rows) // _SAMPLE)
    sample = np.concatenate([rows[:_SCREENFUL], rows[_SCREENFUL::step]])
    table, margin = request.table, SIGN_CELLS * request.by_source
    needs = needs_of(table, sample.tolist(), margin)
    if table.whole is not None:
        others = needs_of(table.whole.sample, range(table.whole.sample.row_count()), margin)
        needs = {name: max(cells, others.get(name, 0)) for name, cells in needs.items()}
    return View(request, rows, is_complete=True, needs=needs)


# ---------------------------------------------------------------------------------------------------------- the lines of the table

# A line shows a source, or a job of a source that is expanded.
#
# The rows of a source are together. Lines are computed with arrays, so that 100,000 jobs take a millisecond. The key of a source is
# computed from the smallest id of its jobs, because ids stay when the table is read again. If a source has only one shown job, its
# line has the key of this job.

_SOURCES = 1 << 62
"""Number that is added to the smallest job id of a source to make its key.

The ids of failed analyses are negative. The number is so large that the key is greater than every job id even then.
"""
_LEAST_SOURCE_KEY = 1 << 61


def source_key(job_ids: npt.NDArray[np.number]) -> int:
    """Return the key of the source with these jobs."""
    return _SOURCES + int(job_ids.min())


def job_of_key(key: int) -> int:
    """Return the job id for the key of a line. The key of a job is its id; for the key of a source, return its smallest job id."""
    return key - _SOURCES if is_source_key(key) else key


def is_source_key(key: int) -> bool:
    """Return whether a key is the key of a source, not of a job."""
    return key > _LEAST_SOURCE_KEY


def without_repeats(values: Rows) -> Rows:
    """Return sorted values, each once; `np.unique` would import `numpy.ma`, which makes the start 10 ms slower."""
    are_first = np.ones(len(values), np.bool_)
    are_first[1:] = values[1:] != values[:-1]
    return values[are_first]


class SourceLines:
    """The lines of the table and the rows that each line shows; rows are positions in the list of shown jobs."""

    def __init__(self) -> None:
        self._starts: npt.NDArray[np.integer] = np.zeros(1, np.int64)
        """Position of the first row of each source; the last element is the number of rows."""
        self._tops: npt.NDArray[np.integer] | None = None
        """Line of each source; the last element is the number of lines. None = no source is expanded."""

    def update(self, sources: Rows, expanded: Rows) -> None:
        """Compute the lines.

        Args:
            sources: the number of the source of each row.
            expanded: the numbers of the expanded sources.
        """
        count = len(sources)
        changes = np.flatnonzero(sources[1:] != sources[:-1]) + 1
        self._starts = np.concatenate([[0], changes, [count]]) if count else np.zeros(1, np.int64)
        self._tops = None
        if len(expanded) and count:
            sizes = np.diff(self._starts)
            heights = np.where((sizes > 1) & np.isin(sources[self._starts[:-1]], expanded), sizes + 1, 1)
            self._tops = np.concatenate([[0], np.cumsum(heights)])

    @property
    def source_count(self) -> int:
        """Number of sources."""
        return len(self._starts) - 1

    @property
    def count(self) -> int:
        """Number of lines."""
        return self.source_count if self._tops is None else int(self._tops[-1])

    def rows_of(self, line: int) -> tuple[int, int]:
        """Return (start, end) of the rows that a line shows: all rows of a source, or the row of one job."""
        source, member = self._place(line)
        start, end = int(self._starts[source]), int(self._starts[source + 1])
        return (start, end) if member < 0 else (start + member, start + member + 1)

    def rows_around(self, row: int) -> tuple[int, int]:
        """Return (start, end) of the rows that have the same source as `row`."""
        source = int(np.searchsorted(self._starts, row, "right")) - 1
        return int(self._starts[source]), int(self._starts[source + 1])

    def is_expanded(self, line: int) -> bool:
        """Return whether a line belongs to an expanded source."""
        source, _member = self._place(line)
        return self._tops is not None and int(self._tops[source + 1] - self._tops[source]) > 1

    def is_member(self, line: int) -> bool:
        """Return whether a line shows a job below the line of its source."""
        return self._place(line)[1] >= 0

    def top_of(self, row: int) -> int:
        """Return the line of the source of a row."""
        source = int(np.searchsorted(self._starts, row, "right")) - 1
        return source if self._tops is None else int(self._tops[source])

    def lines_of(self, rows: Rows) -> Rows:
        """Return the sorted numbers of the lines that show these rows. All rows of a collapsed source share one line."""
        sources = np.searchsorted(self._starts, rows, "right") - 1
        if self._tops is None:
            return without_repeats(sources)
        tops = self._tops[sources]
        is_expanded = self._tops[sources + 1] - tops > 1
        return without_repeats(np.where(is_expanded, tops + 1 + rows - self._starts[sources], tops))

    def _place(self, line: int) -> tuple[int, int]:
        """Return (number of the source that a line belongs to, number of the job within the source; -1 = the source's own line)."""
        if self._tops is None:
            return line, -1
        source = int(np.searchsorted(self._tops, line, "right")) - 1
        return source, line - int(self._tops[source]) - 1
