"""The search in the lines of one log.

Tests: `tests/tui/screens/jobs/test_jobs_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np
from rich.cells import cell_len

from aptui.core.notices import LogLevel
from aptui.shared.errors import KnownError
from aptui.shared.printing import count as counted
from aptui.shared.sanitize import sanitize
from aptui.store.joblog import JobLogLine as Record
from aptui.store.jobs.filter import STATUS_CODES, Filter, FilterError, parse
from aptui.store.jobs.texts import Texts
from aptui.tui.frame.line import Part
from aptui.tui.widgets.cells import Spans
from aptui.tui.widgets.filterbox import FilterBox
from aptui.tui.widgets.log_sources import MemoryLines
from aptui.tui.widgets.logpane import LogPane

if TYPE_CHECKING:
    import numpy.typing as npt
    from textual.widget import Widget

    from aptui.tui.pane import Shell
    from aptui.tui.screens.jobs.job_details import JobDetails


_SAMPLED_RECORDS, _WIDEST_WINDOW = 5000, 16
"""Number of lines in which the widths of window names (origins) are measured; maximum width of the window column (cells)."""


class LogColumns:
    """A log as columns of the filter language.

    A bare term matches the message, `error` and `warning` match levels, and fields match the window (the origin of the line).
    """

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
        """Return the number of lines."""
        return self._count

    def text(self, field: str) -> tuple[npt.NDArray[np.integer], Texts]:
        """Return a column of texts."""
        return self._codes, self._messages if field in ("source", "error", "reason") else self._windows

    def read_log_lines(self, _field: str, rows: npt.NDArray[np.integer], _check: Callable[[], None] | None) -> list[str]:
        """Return the texts of a column for these lines."""
        return [self._messages[int(row)] for row in rows]

    def number(self, field: str) -> npt.NDArray[np.number]:
        """Return a column of numbers."""
        return self._numbers[field]


class LineSearch:
    """The result of a valid search in a log; `hits` are the positions of the lines that match."""

    def __init__(self, found: Filter, hits: list[int]) -> None:
        self.filter, self.hits = found, hits

    def spans(self, text: str) -> Spans:
        """Return the matches in a message."""
        return self.filter.spans([text])[0]


def search(text: str, columns: LogColumns) -> LineSearch:
    """Search a log in a thread: the search takes milliseconds, and more at the first call.

    Raises:
        KnownError: the text is not a valid filter.
    """
    found = parse(text)
    found.check()
    return LineSearch(found, np.flatnonzero(found.matches(columns)).tolist())


def window_cells(job_details: JobDetails | None) -> int:
    """Return the width of the window column: the width of the widest window name in the first lines."""
    windows = {record.window for record in (job_details.records[:_SAMPLED_RECORDS] if job_details else ())}
    # The last line of every log has the window name "aptui", but the log of a running job does not have its last line yet.
    windows |= {"aptui"} if job_details and job_details.running_key else set()
    return min(_WIDEST_WINDOW, max(map(cell_len, windows), default=1))


class LogSearch:
    """The search in the log of the selected job; its text stays when another job is selected.

    Args:
        host: the widget that contains the log pane and the search line.
        records: returns the lines of the log as they were read.
        changed: called when the text about the search changed.
    """

    def __init__(self, host: Widget, records: Callable[[], Sequence[Record]], changed: Callable[[], object]) -> None:
        self._host, self._records, self._changed = host, records, changed
        self._columns: LogColumns | None = None
        self._found: LineSearch | None = None
        self._number = 0
        self.text = ""
        self._shows_only_hits = False

    @property
    def _box(self) -> FilterBox:
        return self._host.query_one(FilterBox)

    @property
    def _pane(self) -> LogPane:
        return self._host.query_one(LogPane)

    def begin(self) -> None:
        """Open the search line."""
        box = self._box
        box.disabled, box.display = False, True
        box.text = self.text
        box.begin()

    def leave(self, *, stays: bool) -> None:
        """Close the search line and focus the log; if the user kept the search (`stays`), go to a hit."""
        box, pane = self._box, self._pane
        box.display, box.disabled = False, True
        pane.focus()
        if stays and self._found and self._found.hits and pane.cursor_key not in self._found.hits:
            pane.action_hit(1)

    def toggle_only_hits(self) -> None:
        """Show only lines with a hit, or show all lines."""
        self._shows_only_hits = not self._shows_only_hits
        self._keep_hits()

    def forget(self, *, is_other: bool) -> None:
        """Discard the columns, and for another log (`is_other`) the hits too; called before the changed log is shown."""
        self._columns = None
        if is_other:
            self._found = None
            self._pane.set_search(None)

    def again(self) -> None:
        """Search in the current log."""
        if self.text:
            self.search(self.text)

    def search(self, text: str) -> None:
        """Search for a text; "" ends the search."""
        self.text, self._number = text, self._number + 1
        if not text:
            self._accept(self._number, None)
            return
        work = partial(self._search_in, self._number, text, self._columns, self._records())
        self._host.run_worker(work, thread=True, exclusive=True, group="search")

    def _search_in(self, number: int, text: str, columns: LogColumns | None, records: Sequence[Record]) -> None:
        """Search in a thread."""
        answer: LineSearch | KnownError
        if columns is None:
            columns = self._columns = LogColumns(records)
        try:
            answer = search(text, columns)
        except KnownError as error:
            answer = error
        cast("Shell", self._host.app).in_ui(self._accept, number, answer)

    def _accept(self, number: int, answer: LineSearch | KnownError | None) -> None:
        if number != self._number or not self._host.is_mounted:
            return
        box = self._box
        if isinstance(answer, KnownError):
            column = answer.column - 1 if isinstance(answer, FilterError) else 0
            box.show_mistake(column, answer.what, answer.hint)
            return
        self._found = answer
        box.show_count(counted(len(answer.hits), "hit") if answer else "")
        self._pane.set_search(answer.spans if answer else None, answer.hits if answer else ())
        self._keep_hits()

    def _keep_hits(self) -> None:
        source = self._pane.source
        if isinstance(source, MemoryLines):
            source.keep(self._found.hits if self._found and self._shows_only_hits else None)
            self._pane.refresh_source()
        self._changed()

    def parts(self) -> list[Part]:
        """Return the text about the search for the title."""
        if not self.text:
            return []
        found = self._found
        hits = f" {counted(len(found.hits), 'hit')}" if found else ""
        return [
            Part(f"/ {sanitize(self.text)}", "accent"),
            Part(f"{hits}{', no other lines' if self._shows_only_hits else ''}  ", "muted"),
        ]
