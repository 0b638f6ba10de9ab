"""Job rows as columns for the filter language of `aptui jobs --filter`.

Tests: `tests/features/shipping/test_verbs.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from aptui.core.model import describe_key
from aptui.core.run_report import NO_FACTS, NUMBER_FACTS, ContentFacts
from aptui.store.jobs.filter import STATUS_CODES
from aptui.store.jobs.job_table import cause_of
from aptui.store.jobs.texts import Texts
from aptui.store.queries.checks import CheckMark
from aptui.store.queries.logs import LinesByField, path_of, read_lines
from aptui.store.queries.reader import JobRow

if TYPE_CHECKING:
    import numpy.typing as npt


class JobRowColumns:
    """Columns of a list of rows; `builder_of` names a builder by its UUID, `facts` and `checks` have job ids as keys."""

    def __init__(
        self,
        rows: Sequence[JobRow],
        builder_of: Callable[[bytes], str],
        facts: Mapping[int, ContentFacts] | None = None,
        checks: Callable[[], Mapping[int, CheckMark]] = dict,
        *,
        log_dir: Path,
    ) -> None:
        self._rows, self._builder_of, self._facts, self._checks = rows, builder_of, facts or {}, checks
        self._log_dir, self._lines = log_dir, dict[int, LinesByField]()

    def row_count(self) -> int:
        """Return the number of rows."""
        return len(self._rows)

    def text(self, field: str) -> tuple[npt.NDArray[np.int32], Texts]:
        """Return a column of texts."""
        texts = Texts()
        if field == "check":
            found = self._checks()
            return texts.extend_distinct([found[row.job_id].text if row.job_id in found else "" for row in self._rows]), texts
        return texts.extend_distinct([self._text(row, field) for row in self._rows]), texts

    def read_log_lines(self, field: str, rows: npt.NDArray[np.integer], _check: Callable[[], None] | None) -> list[str]:
        """Return the "error" or "warning" lines of the logs of these rows; each log is read once."""
        for row in rows.tolist():
            if row not in self._lines:
                name = self._rows[row].log
                self._lines[row] = read_lines(path_of(self._log_dir, name)) if name else {}
        return [self._lines[row].get(field, "") for row in rows.tolist()]

    def number(self, field: str) -> npt.NDArray[np.number]:
        """Return a column of numbers."""
        if field in NUMBER_FACTS:
            found = (getattr(self._facts.get(row.job_id, NO_FACTS), field) for row in self._rows)
            return np.fromiter(found, np.float64, len(self._rows))
        return np.fromiter((self._number(row, field) for row in self._rows), np.int64, len(self._rows))

    def _text(self, row: JobRow, field: str) -> str:
        match field:
            case "format":
                return self._facts.get(row.job_id, NO_FACTS).format
            case "folder":
                return row.scan_folder
            case "builder":
                return self._builder_of(row.builder)
            case "key":
                return describe_key(row.job_key, self._builder_of(row.builder))
            case "cause":
                return row.failure_cause or (cause_of(row.error) if row.status == "failed" else "")
            case _:
                return str(getattr(row, field))

    @staticmethod
    def _number(row: JobRow, field: str) -> int:
        match field:
            case "status":
                return STATUS_CODES[row.status]
            case "duration_ms":
                return round(row.duration_s * 1000)
            case "flaky":
                return bool(row.flaky)
            case "draft":
                return row.is_draft
            case "critical":
                return row.is_critical
            case _:
                return int(getattr(row, field))
