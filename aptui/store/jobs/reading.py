"""Makes columns (`table`) of every job and every failed analysis of the asset database.

Tests: `tests/store/jobs/test_job_table.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from aptui.core.model import LISTED_ANALYSIS
from aptui.shared.errors import InternalError
from aptui.store.db.schema import uuid_text
from aptui.store.jobs.job_table import FAILED, AnalysisKeys, JobTable, JobValues
from aptui.store.jobs.parts import Beginning, Ending, JobPart, JobPiece, Piece, SourcePiece, read_job_parts
from aptui.store.queries.reader import Reader

if TYPE_CHECKING:
    import numpy.typing as npt

    from aptui.store.jobs.texts import Codes


def read_job_table(reader: Reader, builders: Mapping[bytes, str], analyses: AnalysisKeys | None = None) -> JobTable:
    """Read every job and failed analysis, and the moment of this state, in one transaction; `builders` is {UUID: name}."""
    return build_job_table(read_job_parts(reader), builders, analyses)


def build_job_table(parts: Iterable[JobPart], builders: Mapping[bytes, str], analyses: AnalysisKeys | None = None) -> JobTable:
    """Return a table of the parts that `read_job_parts` yields.

    Raises:
        InternalError: the last part (`Ending`) is missing.
    """
    table = JobTable(builders, analyses or AnalysisKeys())
    sources = _Sources(table)
    for part in parts:
        match part:
            case Beginning():
                table.moment, table.folders = part.moment, part.folders
                table.reserve(part.job_count)
            case SourcePiece():
                sources.extend(part.piece)
            case JobPiece():
                numbers = part.piece.arrays()
                codes = sources.codes_of(numbers[1])
                table.extend(numbers, [text.decode() for text in part.piece.texts], codes, sources.folders_of(codes))
            case Ending():
                _finish(table, part, sources)
                return table
    raise InternalError("the jobs were read without their end")


class _Sources:
    """The sources of a table: the code of a path is its index."""

    def __init__(self, table: JobTable) -> None:
        self._table = table
        self._ids: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)]
        self._owners: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)]
        self._folders: Codes | None = None

    def extend(self, piece: Piece) -> None:
        """Add sources, all with higher ids than the existing ones."""
        ids, owners = piece.arrays()
        self._ids, self._owners = [*self._ids, ids], [*self._owners, owners]
        self._table.text("source")[1].extend_joined(piece.texts[0].data, piece.count)

    def codes_of(self, source_ids: npt.NDArray[np.int64] | int) -> Codes:
        """Return the codes of sources."""
        if len(self._ids) > 1:
            self._ids = [np.concatenate(self._ids)]
        codes: Codes = np.searchsorted(self._ids[0], source_ids).astype(np.int32)
        return codes

    def folders_of(self, codes: Codes) -> Codes:
        """Return the codes of their scan folders' names."""
        if self._folders is None:
            names = np.zeros(max(self._table.folders, default=0) + 1, np.int32)
            for number in self._table.folders:
                names[number] = self._table.folder_code(number)
            self._folders = names[np.concatenate(self._owners)]
        return self._folders[codes]


def _finish(table: JobTable, part: Ending, sources: _Sources) -> None:
    table.set_errors(part.errors)
    table.set_facts(part.facts)
    table.set_flaky(part.flaky)
    table.set_drafts(part.drafts)
    numbers = {table.folder_code(number): number for number in table.folders}
    for analysis in part.analyses:
        _put_analysis(table, analysis, sources, numbers)
    table.set_durations(part.foreign_durations)


def _put_analysis(table: JobTable, analysis: tuple[Any, ...], sources: _Sources, numbers: Mapping[int, int]) -> None:
    source_id, builder, warnings, errors, completed_ms, duration_ms, reason, error = analysis
    code = sources.codes_of(source_id)
    row = table.put(
        JobValues(
            0, table.text("source")[1][int(code)], numbers[int(sources.folders_of(code))], "all",
            f"{LISTED_ANALYSIS}{uuid_text(builder)}", table.builder_name(builder), FAILED,
            warnings, errors, completed_ms, duration_ms, reason, error, 0,
        ),
        int(code),
    )  # fmt: skip
    table.set_source_id(row, source_id)
