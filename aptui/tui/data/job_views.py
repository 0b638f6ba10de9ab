"""Which rows of a job table are shown, in which order: computed in one background thread, for the newest request alone.

Tests: `tests/tui/data/test_jobs_store.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import numpy as np
from msgspec import Struct

from aptui.shared.errors import InternalError, KnownError
from aptui.store.jobs.filter import Filter
from aptui.store.jobs.ordering import order_rows
from aptui.store.jobs.table import JobTable
from aptui.store.jobs.texts import Codes
from aptui.tui.background import LatestOnly
from aptui.tui.data.job_infos import needs_of

_PEEK = 4096
"""So many rows are looked at first, for the first screenful."""
_SCREENFUL = 100
_SAMPLE = 300
"""About so many rows beside those are measured."""
_CHEAP_SORT = 200_000
"""Up to so many rows are sorted anew, if anything changed, whenever the filter is edited: it takes 10 ms."""


class ViewRequest(Struct, frozen=True):
    """What is to be shown: these rows in this order; `number` rises, `changes` is how often the table had changed."""

    number: int
    table: JobTable
    filter: Filter
    field: str
    is_descending: bool
    changes: int
    sorts_anew: bool


class View(Struct, frozen=True):
    """Rows in order; not complete = the first screenful. `error` says why there are none.

    `needs` is how many cells their texts take, by column: of the first screenful and a sample of the rest.
    """

    request: ViewRequest
    rows: Codes
    is_complete: bool
    error: KnownError | None = None
    needs: Mapping[str, int] = {}


class _SupersededError(Exception):
    """A newer request came."""


class ViewWorker:
    """Computes views in a thread.

    `request` and `take` are called by the UI; `wake` is called by the thread when there is something to take.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._condition = threading.Condition()
        self._view: View | None = None
        self._order: tuple[JobTable, str, bool, int, Codes] | None = None
        self._worker = LatestOnly[ViewRequest]("aptui-filter", self._view_of)

    def request(self, request: ViewRequest) -> None:
        """Have a view computed; what was requested before is dropped."""
        self._worker.put(request, interrupts=True)

    def take(self) -> View | None:
        """Return the newest view that nobody took."""
        with self._condition:
            view, self._view = self._view, None
            return view

    def wait(self, timeout_s: float) -> bool:
        """Wait until there is something to take."""
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
            wrong = InternalError(f"the rows cannot be put in order: {error}", hint="R tries again")
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
                self._publish(View(request, first, is_complete=False))
        mask = request.filter.matches(table, None, check)[:count] & alive
        self._publish(_complete(request, order[mask[order]]))

    def _order_of(self, request: ViewRequest, count: int) -> Codes:
        """Return all rows in order. For a filter that is being typed over many rows the order is that of before, new rows last."""
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


def _complete(request: ViewRequest, rows: Codes) -> View:
    step = max(1, len(rows) // _SAMPLE)
    sample = np.concatenate([rows[:_SCREENFUL], rows[_SCREENFUL::step]])
    return View(request, rows, is_complete=True, needs=needs_of(request.table, sample.tolist()))
