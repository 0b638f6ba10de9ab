"""What stands in the cells of the Jobs table.

Tests: `tests/tui/data/test_jobs_store.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from aptui.core.results.checks import CheckLevel
from aptui.store.jobs.filter import STATUS_CODES
from aptui.store.jobs.table import CANCELLED, COMPLETED, FAILED, PENDING, PROCESSING, JobTable
from aptui.store.queries.problems.checks import CheckMark
from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import Cell, width_of
from aptui.tui.words import ROLES, duration_text, moment_text

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
