"""Lines of the Jobs table: one for each source, and one for each job of a source that is expanded.

The rows of a source are together. Lines are computed with arrays, so that 100,000 jobs take a millisecond. The key of a source is
computed from the smallest id of its jobs, because ids stay when the table is read again. If a source has only one shown job, its
line has the key of this job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aptui.store.jobs.job_table import Rows

if TYPE_CHECKING:
    import numpy.typing as npt

_SOURCES = 1 << 62
"""Number that is added to a job id to make the key of a source; ids of failed analyses are negative, so the key may be smaller."""
_LEAST_SOURCE_KEY = 1 << 61


def source_key(job_ids: npt.NDArray[np.number]) -> int:
    """Return the key of the source with these jobs."""
    return _SOURCES + int(job_ids.min())


def job_of_key(key: int) -> int:
    """Return the id of the first job of the source with this key; the key of a job is returned as it is."""
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
            sources: the code of the source of each row.
            expanded: the codes of the expanded sources.
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
        """Return the range of rows of a line: all rows of a source, or the row of one job."""
        source, member = self._place(line)
        start, end = int(self._starts[source]), int(self._starts[source + 1])
        return (start, end) if member < 0 else (start + member, start + member + 1)

    def rows_around(self, row: int) -> tuple[int, int]:
        """Return the range of rows of a row's source."""
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
        """Return the lines of rows: one line for a collapsed source, one line for each job of an expanded source; all in order."""
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
