"""Sorts all rows of a table of jobs, by a column or with the most urgent jobs first.

Rows may be added while the order is computed; the order contains only the rows that existed at its start.

Tests: `tests/store/jobs/test_job_table.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aptui.store.jobs.job_table import CANCELLED, COMPLETED, FAILED, PENDING, PROCESSING, JobTable
from aptui.store.jobs.texts import Codes

if TYPE_CHECKING:
    import numpy.typing as npt

    from aptui.store.jobs.texts import Codes


# Sorting of many numbers, whatever they mean.


def argsort(keys: npt.NDArray[np.int64]) -> Codes:
    """Return the stable order of `keys`.

    Numpy sorts 16 bits in linear time. Two such sorts are faster than one of keys with indexes in their low bits, which is
    faster than sorting indexes by keys.
    """
    count = len(keys)
    if not count:
        return np.empty(0, np.int32)
    bits = count.bit_length()
    least = keys.min()
    span = int(keys.max()) - int(least)
    if span < 1 << 32:
        digits = (keys - least).astype(np.uint32)
        low: Codes = np.argsort(digits.astype(np.uint16), kind="stable").astype(np.int32)
        return low[np.argsort((digits >> 16).astype(np.uint16)[low], kind="stable")] if span >> 16 else low
    if span >= 1 << (62 - bits):
        return np.argsort(keys, kind="stable").astype(np.int32)
    packed = (keys - least) << bits
    packed |= np.arange(count, dtype=np.int64)
    packed.sort()
    packed &= (1 << bits) - 1
    order: Codes = packed.astype(np.int32)
    return order


FAILED_FIRST = "failed_first"
"""The default order: failed jobs, jobs with errors, jobs with warnings, the rest; in each the newest first, running ones last."""

_WITH_WARNINGS = 2
"""Urgency rank of completed jobs with warnings."""


def order_rows(table: JobTable, field: str, *, is_descending: bool) -> Codes:
    """Return all rows in the order of a column; rows with equal values stay in the order in which they were read.

    Running jobs count as the newest, because they complete next, and as the longest, because their end is unknown. By reason,
    failures come first, by their errors. Jobs of one status have the newest first, also in `FAILED_FIRST`.
    """
    count = table.row_count()  # rows that are added in the meantime are left out
    status = _first(table, "status", count)
    if field == "completed_ms":
        keys = _moments(table, status)
    elif field == FAILED_FIRST:
        newest = argsort(-_moments(table, status))
        places = _urgency(table, status)
        places[places > _WITH_WARNINGS] = _WITH_WARNINGS + 1  # waiting, cancelled and completed jobs are one group
        places[status == PROCESSING] = _WITH_WARNINGS + 2
        return newest[argsort(places[newest])]
    elif field == "duration_ms":
        keys = _first(table, field, count).astype(np.int64)
        keys[np.isin(status, (PENDING, CANCELLED))] = 0
        keys[status == PROCESSING] = keys.max(initial=0) + 1
    elif field in ("id", "warnings", "errors"):
        keys = _first(table, field, count).astype(np.int64)
    elif field == "status":
        newest = argsort(-_moments(table, status))
        urgency = _urgency(table, status)[newest]
        return newest[argsort(-urgency if is_descending else urgency)]
    elif field == "reason":
        keys = _ranks(table, "reason", count)
        is_failed = (status == FAILED) & (_first(table, "error", count) > 0)
        errors = _ranks(table, "error", count)
        keys[is_failed] = errors[is_failed] - 1 - errors.max(initial=0)
    else:
        keys = _ranks(table, field, count)
    return argsort(-keys if is_descending else keys)


def _first(table: JobTable, field: str, count: int) -> npt.NDArray[np.number]:
    """Return a copy of the first rows of a column of numbers, because other threads may change the column."""
    return table.number(field)[:count].copy()


def _moments(table: JobTable, status: npt.NDArray[np.number]) -> npt.NDArray[np.int64]:
    """Return when rows completed; 0 for waiting jobs, the newest of all for running ones."""
    moments: npt.NDArray[np.int64] = _first(table, "completed_ms", len(status)).astype(np.int64)
    moments[status == PENDING] = 0
    moments[status == PROCESSING] = moments.max(initial=0) + 1
    return moments


def _ranks(table: JobTable, field: str, count: int) -> npt.NDArray[np.int64]:
    codes, texts = table.text(field)
    codes = codes[:count].copy()  # copied before the number of texts is read
    ranks: npt.NDArray[np.int64] = texts.ranks(len(texts))[codes].astype(np.int64)
    return ranks


def _urgency(table: JobTable, status: npt.NDArray[np.number]) -> npt.NDArray[np.int64]:
    """Return ranks of rows by status, problems first."""
    warnings, errors = _first(table, "warnings", len(status)), _first(table, "errors", len(status))
    places: npt.NDArray[np.int64] = np.array((4, 3, 6, 0, 5), np.int64)[status]
    is_completed = status == COMPLETED
    places[is_completed & (warnings > 0)] = _WITH_WARNINGS
    places[is_completed & (errors > 0)] = 1
    return places
