"""Which rows of a job table are shown, in which order: computed in one background thread, for the newest wish alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from aptui.shared.errors import KnownError
from aptui.store.jobs.filter import Filter
from aptui.store.jobs.job_table import JobTable
from aptui.store.jobs.texts import Codes

_PEEK = 4096
"""So many rows are looked at first, for the first screenful."""
_SCREENFUL = 100
_CHEAP_SORT = 200_000
"""Up to so many rows are sorted anew, if anything changed, whenever the filter is edited: it takes 10 ms."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is wanted: these rows in this order; `number` rises, `changes` is how often the table had changed."""

    number: int
    table: JobTable
    filter: Filter
    field: str
    is_descending: bool
    changes: int
    sorts_anew: bool


@dataclass(frozen=True, slots=True)
class View:
    """Rows in order; not complete = the first screenful. `error` says why there are none."""

    wish: Wish
    rows: Codes
    is_complete: bool
    error: KnownError | None = None


class _SupersededError(Exception):
    """A newer wish came."""


class ViewWorker:
    """The thread. `wish` and `take` are called by the UI; `wake` is called by the thread when there is something to take."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._condition = threading.Condition()
        self._wish: Wish | None = None
        self._newest = 0
        self._view: View | None = None
        self._is_closed = False
        self._order: tuple[JobTable, str, bool, int, Codes] | None = None
        self._thread: threading.Thread | None = None

    def wish(self, wish: Wish) -> None:
        """Want something; what was wanted before is given up."""
        with self._condition:
            self._wish, self._newest = wish, wish.number
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="aptui-filter", daemon=True)
                self._thread.start()
            self._condition.notify_all()

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
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._wish is not None or self._is_closed)
                if self._is_closed:
                    return
                wish, self._wish = self._wish, None
            assert wish is not None
            try:
                self._compute(wish)
            except _SupersededError:
                continue
            except KnownError as error:
                self._publish(View(wish, np.empty(0, np.int32), is_complete=True, error=error))

    def _compute(self, wish: Wish) -> None:
        def check() -> None:
            if self._newest != wish.number or self._is_closed:
                raise _SupersededError

        wish.filter.check()
        table, count = wish.table, wish.table.row_count()
        alive = table.number("alive")[:count].astype(np.bool_)
        order = self._ordered(wish, count)
        check()
        if not wish.filter.terms:
            self._publish(View(wish, order[alive[order]], is_complete=True))
            return
        if count > _PEEK:
            rows = order[:_PEEK]
            first = rows[wish.filter.matches(table, rows) & alive[rows]]
            if len(first) >= _SCREENFUL:
                self._publish(View(wish, first, is_complete=False))
        mask = wish.filter.matches(table, None, check)[:count] & alive
        self._publish(View(wish, order[mask[order]], is_complete=True))

    def _ordered(self, wish: Wish, count: int) -> Codes:
        """Return all rows in order. For a filter that is being typed over many rows the order is that of before, new rows last."""
        known = self._order
        if known is not None and known[:3] == (wish.table, wish.field, wish.is_descending):
            rows = known[4]
            if known[3] == wish.changes and len(rows) == count:
                return rows
            if not wish.sorts_anew and count > _CHEAP_SORT:
                return np.concatenate([rows, np.arange(len(rows), count, dtype=np.int32)])
        rows = wish.table.order(wish.field, is_descending=wish.is_descending)[:]
        rows = rows[rows < count]
        self._order = (wish.table, wish.field, wish.is_descending, wish.changes, rows)
        return rows

    def _publish(self, view: View) -> None:
        with self._condition:
            if self._newest != view.wish.number:
                return
            self._view = view
            self._condition.notify_all()
        self._wake()
