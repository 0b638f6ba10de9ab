"""What a table of jobs says when it is asked: of one job, of all that failed, how many there are of each kind.

Tests: `tests/tui/data/test_jobs_store.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from aptui.core.results.checks import CheckLevel
from aptui.store.jobs.filter import STATUS_CODES
from aptui.store.jobs.regex import Mask
from aptui.store.jobs.table import CANCELLED, COMPLETED, FAILED, PENDING, PROCESSING, JobTable, Rows, group_failures
from aptui.store.queries.problems.checks import CheckMark
from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import Cell, width_of
from aptui.tui.words import ROLES, duration_text, moment_text

# What stands in the cells of the Jobs table.

WORDS = tuple(STATUS_CODES)
_TEXT_COLUMNS = ("platform", "key", "reason", "builder", "folder")
_FETCHED = re.compile(r"(^|; )its result is (from [^(]+\S) \(.*\)$")
"""What a row says of a result that came from elsewhere; who made it when stands in the details."""
_EXIT = re.compile(r"^command exited with status \d+: (?=\S)")
"""What every failure of a command begins with: the column has room for one thing, which is what it said."""


def job_cell(table: JobTable, row: int, column_id: str, now_ms: int, began_ms: int | None) -> Cell:
    """Return a cell; `began_ms` is since when it runs, as far as that is known."""
    match column_id:
        case "status":
            return _status(table, row)
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
    """Return the path of a job, the `spans` of it marked, behind a sign where the job is critical."""
    path = table.words("source", row)
    if not table.value("critical", row):
        return Cell(path, "", tuple(spans))
    sign = f"{glyph('critical')} "
    return Cell(f"{sign}{path}", "", tuple((start + len(sign), end + len(sign)) for start, end in spans))


def needs_of(table: JobTable, rows: Sequence[int]) -> dict[str, int]:
    """Return how many cells the texts of these rows take, by column: all of them, of paths all but the longest."""
    if not rows:
        return {}
    paths = sorted(width_of(source_cell(table, row, ()).text) for row in rows)
    needs = {name: max(width_of(table.words(name, row)) for row in rows) for name in ("platform", "key")}
    needs["status"] = max(width_of(_status(table, row).text) for row in rows)
    needs["reason"] = max(width_of(_reason(table, row).text) for row in rows)
    return {**needs, "source": paths[(len(paths) - 1) * 19 // 20]}


def word_of(table: JobTable, row: int) -> str:
    """Return how a job is, in the words of `filter.STATUS_WORDS`."""
    status = table.value("status", row)
    if status == COMPLETED:
        return "errors" if table.value("errors", row) else "warnings" if table.value("warnings", row) else "completed"
    return WORDS[status]


def _mark(table: JobTable, row: int) -> CheckMark | None:
    """Return what checks found of a completed job; one that is blocked says so as its error."""
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
        return Cell(without_source(_EXIT.sub("", error.partition("\n")[0]), table.words("source", row)))
    lead = ("draft; " if table.value("draft", row) else "") + ("flaky; " if table.value("flaky", row) else "")
    if (mark := _mark(table, row)) is not None:
        return Cell(lead + mark.text)
    return Cell(lead + _FETCHED.sub(r"\1\2", table.words("reason", row)), "muted")


def without_source(error: str, source: str) -> str:
    """Return an error without the path of its source, or its name alone, before it: that stands in the row already."""
    name = source.rpartition("/")[2]
    return error.removeprefix(f"{source}:").removeprefix(f"{name}:").lstrip() or error


def _duration(table: JobTable, row: int, now_ms: int, began_ms: int | None) -> str:
    status = table.value("status", row)
    if status == PROCESSING:
        return f"{max(0, now_ms - began_ms) // 1000} s…" if began_ms is not None else glyph("none")
    duration_ms = table.value("duration_ms", row)
    return duration_text(duration_ms) if duration_ms and status not in (PENDING, CANCELLED) else glyph("none")


class JobRowInfo(Struct, frozen=True):
    """A job as its row knows it; `key` is the job id, negative for a failed analysis.

    `status` is a word of `filter.STATUS_WORDS`, `check` what checks found.

    `source_id` is 0 for jobs that came by news: `Reader.job(key).source_id` knows it.
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
    """Jobs that failed for one cause: the source whose job failed first (`is_source`), or what their errors have in common."""

    cause: str
    is_source: bool
    keys: tuple[int, ...]


def job_info(table: JobTable, key: int) -> JobRowInfo | None:
    """Return what its row knows of a job."""
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


def failure_groups(table: JobTable) -> list[CauseGroup]:
    """Return all failed jobs by their cause, the most frequent first."""
    ids = table.number("id")
    return [CauseGroup(cause, is_source, tuple(int(ids[row]) for row in rows)) for cause, is_source, rows in group_failures(table)]


def status_counts(table: JobTable) -> dict[str, int]:
    """Return {status word: how many}; completed ones with warnings or errors count as those too."""
    alive = _alive(table)
    status = table.number("status")[alive]
    found = dict(zip(WORDS, np.bincount(status, minlength=len(WORDS)).tolist(), strict=True))
    for word in ("warnings", "errors"):
        found[word] = int(np.count_nonzero((status == COMPLETED) & (table.number(word)[alive] > 0)))
    return found


def has_failed(table: JobTable) -> bool:
    """Whether any job is failed, or checks found something."""
    return bool(table.checks) or bool((table.number("status")[_alive(table)] == FAILED).any())


def alike_columns(table: JobTable) -> frozenset[str]:
    """Return the columns in which all jobs say the same: they say nothing of any."""
    alive = _alive(table)
    return frozenset(name for name in ("reason", "platform", "key") if _are_alike(table.text(name)[0][alive]))


def next_with(table: JobTable, rows: Rows, word: str, at: int, step: int) -> int | None:
    """Return the place in `rows` of the nearest before (-1) or after (1) `at` that failed or has errors ("errors") or has warnings.

    It wraps around; None when there is none but where we are.
    """
    status = table.number("status")[rows]
    mask = (status == COMPLETED) & (table.number(word)[rows] > 0)
    if word == "errors":
        mask |= status == FAILED
    elif table.checks:
        mask |= (status == COMPLETED) & table.checks.have(rows)
    places = np.flatnonzero(mask)
    places = places[places != at]
    if not len(places):
        return None
    if step > 0:
        after = int(np.searchsorted(places, at))
        return int(places[after % len(places)])
    return int(places[int(np.searchsorted(places, at)) - 1])


def _alive(table: JobTable) -> Mask:
    return table.number("alive").astype(np.bool_)


def _are_alike(codes: Rows) -> bool:
    return not len(codes) or bool((codes == codes[0]).all())
