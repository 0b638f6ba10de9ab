"""What a table of jobs says when it is asked: of one job, of all that failed, how many there are of each kind.

Tests: `tests/tui/data/test_jobs_store.py`.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from aptui.store.jobs.table import COMPLETED, FAILED, JobTable, Rows, group_failures
from aptui.store.jobs.texts import Mask
from aptui.tui.data.job_cells import WORDS, word_of


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
