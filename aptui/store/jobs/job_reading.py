"""Reads every job and every failed analysis of the asset database into columns (`job_table`), in one transaction.

Tests: `tests/store/jobs/test_job_table.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from aptui.core.results.facts import ProductFacts
from aptui.store.db.schema import uuid_text
from aptui.store.db.statements import job_stat_sql
from aptui.store.jobs.filter import STATUS_CODES
from aptui.store.jobs.job_table import ANALYSIS, FAILED, AnalysisKeys, JobTable, JobValues
from aptui.store.jobs.packed import Packed, read_packed
from aptui.store.jobs.texts import Codes
from aptui.store.queries.reader import CRITICAL_SQL, ERROR_SQL, REASON_SQL, SHOWN, Reader

if TYPE_CHECKING:
    import numpy.typing as npt

_SOURCES = Packed("s.SourceID", "Sources s", ("s.SourceID", "s.ScanFolderPK"), ("s.SourceName",))
_STATE = " ".join(f"WHEN '{state}' THEN {STATUS_CODES[shown]}" for state, shown in SHOWN.items())
_JOBS = Packed(
    "j.JobID",
    "Jobs j LEFT JOIN aptui_jobs o ON o.job_id = j.JobID",
    (
        "j.JobID", "j.SourcePK",
        f"CASE o.state {_STATE} ELSE CASE j.Status WHEN 0 THEN 0 WHEN 1 THEN 1 WHEN 4 THEN 2 ELSE 3 END END",
        "COALESCE(j.WarningCount, 0)", "COALESCE(j.ErrorCount, 0)", "COALESCE(j.JobRunKey, 0)",
        "COALESCE(o.completed_ms, j.LastLogTime, 0)", "COALESCE(o.duration_ms, 0)",
        CRITICAL_SQL,
    ),
    ("j.Platform", "j.JobKey", "hex(j.BuilderGuid)", f"COALESCE({REASON_SQL}, '')"),
)  # fmt: skip
# What went wrong is asked of those alone that are not completed: there is an index of them.
_FACTS_SQL = """SELECT p.JobPK, MAX(f.width), MAX(f.height), MAX(f.triangles), MAX(f.rate), MAX(f.seconds), MAX(f.format)
FROM aptui_facts f JOIN Products p ON p.ProductID = f.product_id GROUP BY p.JobPK"""
_ERRORS_SQL = f"""SELECT j.JobID, {ERROR_SQL}, COALESCE(o.failure_cause, '') FROM Jobs j
    LEFT JOIN aptui_jobs o ON o.job_id = j.JobID
WHERE j.Status <> 4 AND ({ERROR_SQL} <> '' OR o.failure_cause <> '')"""
_ANALYSES_SQL = """SELECT source_id, builder, warnings, errors, completed_ms, duration_ms, reason, error
FROM aptui_analyses WHERE state = 'failed' ORDER BY source_id, builder"""
_FOREIGN_DURATIONS_SQL = f"""
SELECT j.JobID, t.StatValue FROM Jobs j JOIN Sources s ON s.SourceID = j.SourcePK
    JOIN ScanFolders f ON f.ScanFolderID = s.ScanFolderPK
JOIN Stats t ON t.StatName = {job_stat_sql()} WHERE j.JobID NOT IN (SELECT job_id FROM aptui_jobs)"""


def read_facts(reader: Reader) -> Iterator[tuple[int, ProductFacts]]:
    """Yield what is said of the products of jobs, together, by job id; jobs of which nothing is said are left out."""
    for job_id, *values in reader.ask(_FACTS_SQL):
        yield job_id, ProductFacts(*values)


def read_job_table(reader: Reader, builders: Mapping[bytes, str], analyses: AnalysisKeys | None = None) -> JobTable:
    """Read every job and failed analysis, and the moment they are of, in one transaction; `builders` are names by UUID."""
    table = JobTable(builders, analyses or AnalysisKeys())
    with reader.snapshot():
        table.moment = reader.moment()
        table.folders = dict(reader.ask("SELECT ScanFolderID, DisplayName FROM ScanFolders").fetchall())
        jobs, ours = reader.ask("SELECT (SELECT COUNT(*) FROM Jobs), (SELECT COUNT(*) FROM aptui_jobs)").fetchone()
        table.make_room(jobs)
        ids, folders = _read_sources(reader, table)
        for numbers, texts in read_packed(reader, _JOBS):
            codes = np.searchsorted(ids, numbers[1]).astype(np.int32)
            table.extend(numbers, [text.decode() for text in texts], codes, folders[codes])
        table.set_errors(reader.ask(_ERRORS_SQL).fetchall())
        table.set_facts(read_facts(reader))
        table.set_flaky(reader.flaky_jobs())
        table.set_drafts(reader.draft_jobs())
        _read_analyses(reader, table, ids, folders)
        if ours < jobs:
            table.set_durations(reader.ask(_FOREIGN_DURATIONS_SQL).fetchall())
    return table


def _read_sources(reader: Reader, table: JobTable) -> tuple[npt.NDArray[np.int64], Codes]:
    """Return (ids of all sources, codes of their scan folders); a source's code is its place."""
    ids: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)]
    owners: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)]
    for numbers, texts in read_packed(reader, _SOURCES):
        ids.append(numbers[0])
        owners.append(numbers[1])
        table.text("source")[1].extend_joined(texts[0].data, len(numbers[0]))
    codes = np.zeros(max(table.folders, default=0) + 1, np.int32)
    for number in table.folders:
        codes[number] = table.folder_code(number)
    return np.concatenate(ids), codes[np.concatenate(owners)]


def _read_analyses(reader: Reader, table: JobTable, ids: npt.NDArray[np.int64], folders: Codes) -> None:
    numbers = {table.folder_code(number): number for number in table.folders}
    paths = table.text("source")[1]
    for source_id, builder, warnings, errors, completed_ms, duration_ms, reason, error in reader.ask(_ANALYSES_SQL):
        code = int(np.searchsorted(ids, source_id))
        row = table.put(
            JobValues(
                0, paths[code], numbers[int(folders[code])], "all", f"{ANALYSIS}{uuid_text(builder)}",
                table.builder_name(builder), FAILED,
                warnings, errors, completed_ms, duration_ms, reason, error, 0,
            ),
            code,
        )  # fmt: skip
        table.set_source_id(row, source_id)
