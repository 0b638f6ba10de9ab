"""The lines of one log, all or those with a hit, and the search in them; how they look is the log pane's business.

Tests: `tests/tui/screens/jobs/test_pane.py`.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.cells import cell_len

from aptui.core.notices import LogLevel
from aptui.store.jobs.filter import STATUS_CODES, Filter, parse
from aptui.store.jobs.texts import Texts
from aptui.store.logs.joblog import JobLogLine as Record
from aptui.tui.widgets.cells import Spans
from aptui.tui.widgets.lines import LogPaneLine

if TYPE_CHECKING:
    import numpy.typing as npt

    from aptui.tui.screens.jobs.details import JobDetails

_SAMPLED_RECORDS, _WIDEST_WINDOW = 5000, 16
"""So many lines are looked at for how wide their window's name is, and so many cells it gets at most."""


class EventLines:
    """A `LineSource` over lines that do not change; a line's key is its place in the log, whatever is left out."""

    def __init__(self, lines: Sequence[LogPaneLine] = ()) -> None:
        self._lines = lines
        self._filtered: Sequence[int] | None = None
        self.version = 1

    def keep(self, keys: Sequence[int] | None) -> None:
        """Show these lines alone; None = all."""
        self._filtered = keys
        self.version += 1

    def line_count(self) -> int:
        """Return how many lines there are."""
        return len(self._lines) if self._filtered is None else len(self._filtered)

    def line(self, index: int) -> LogPaneLine:
        """Return a line."""
        return self._lines[self.key(index)]

    def key(self, index: int) -> int:
        """Return a line's place in the log."""
        return index if self._filtered is None else self._filtered[index]

    def index_of(self, key: int) -> int | None:
        """Return where a line is."""
        if self._filtered is None:
            return key if 0 <= key < len(self._lines) else None
        at = bisect.bisect_left(self._filtered, key)
        return at if at < len(self._filtered) and self._filtered[at] == key else None

    def of_levels(self, levels: str) -> Sequence[int]:
        """Return the indices of the lines of these levels."""
        return [index for index in range(self.line_count()) if self.line(index).level in levels]

    def next_of(self, index: int, levels: str, step: int) -> int | None:
        """Return the nearest line of these levels."""
        reach = range(index + step, self.line_count() if step > 0 else -1, step)
        return next((at for at in reach if self.line(at).level in levels), None)


class LogColumns:
    """A log for the filter language: a bare term is about the message, `error` and `warning` are levels, fields the window."""

    def __init__(self, records: Sequence[Record]) -> None:
        count = len(records)
        self._count = count
        self._codes = np.arange(count, dtype=np.int32)
        self._messages = Texts(record.text for record in records)
        self._windows = Texts(record.window for record in records)
        levels = np.fromiter((record.level for record in records), np.int32, count)
        self._numbers: dict[str, npt.NDArray[np.number]] = {
            "status": np.full(count, STATUS_CODES["completed"], np.int32),
            "warnings": (levels == LogLevel.WARNING).astype(np.int32),
            "errors": (levels >= LogLevel.ERROR).astype(np.int32),
            "completed_ms": np.fromiter((record.time_ms for record in records), np.int64, count),
            "duration_ms": np.zeros(count, np.int32),
        }

    def row_count(self) -> int:
        """Return how many lines there are."""
        return self._count

    def text(self, field: str) -> tuple[npt.NDArray[np.integer], Texts]:
        """Return a column of texts."""
        return self._codes, self._messages if field in ("source", "error", "reason") else self._windows

    def read_log_lines(self, _field: str, rows: npt.NDArray[np.integer], _check: Callable[[], None] | None) -> list[str]:
        """Return what these lines say: the log is here."""
        return [self._messages[int(row)] for row in rows]

    def number(self, field: str) -> npt.NDArray[np.number]:
        """Return a column of numbers."""
        return self._numbers[field]


class LineSearch:
    """A search in a log that was understood: `hits` are places, `spans` what is to be highlighted in a message."""

    def __init__(self, found: Filter, hits: list[int]) -> None:
        self.filter, self.hits = found, hits

    def spans(self, text: str) -> Spans:
        """Return where a message is hit."""
        return self.filter.spans([text])[0]


def search(text: str, columns: LogColumns) -> LineSearch:
    """Search a log; takes milliseconds, more where polars is not imported yet: call it in a thread.

    Raises:
        KnownError: the text is no filter.
    """
    found = parse(text)
    found.check()
    return LineSearch(found, np.flatnonzero(found.matches(columns)).tolist())


def window_cells(job_details: JobDetails | None) -> int:
    """Return how wide the column of windows is: as the widest name in the first lines."""
    windows = {record.window for record in (job_details.records[:_SAMPLED_RECORDS] if job_details else ())}
    windows |= {"aptui"} if job_details and job_details.running_key else set()  # who says the last line of every log
    return min(_WIDEST_WINDOW, max(map(cell_len, windows), default=1))
