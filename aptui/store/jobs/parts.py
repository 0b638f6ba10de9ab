"""Reads all jobs and failed analyses of the asset database, part by part, in one transaction; `reading` makes columns of them.

Nothing here needs numpy: parts can be read while that, or anything else, is still being imported.

Tests: `tests/store/jobs/test_table.py`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, TypeAlias

from msgspec import Struct

from aptui.core.results.facts import ContentFacts
from aptui.store.db.statements import job_stat_sql
from aptui.store.jobs.packed import Packed, Piece, read_packed
from aptui.store.queries.reader import CRITICAL_SQL, ERROR_SQL, REASON_SQL, SHOWN, STATUSES, Reader

_SOURCES = Packed("s.SourceID", "Sources s", ("s.SourceID", "s.ScanFolderPK"), ("s.SourceName",))
_STATE = " ".join(f"WHEN '{state}' THEN {STATUSES.index(shown)}" for state, shown in SHOWN.items())
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


class Beginning(Struct, frozen=True):
    """The moment that all parts are of, the names of scan folders, how many jobs there are."""

    moment: tuple[int, int]
    folders: dict[int, str]
    job_count: int


class SourcePiece(Struct, frozen=True):
    """Sources by id: id, scan folder; path."""

    piece: Piece


class JobPiece(Struct, frozen=True):
    """Jobs by id: numbers and texts as `JobTable.extend` takes them, a source by its id."""

    piece: Piece


class Ending(Struct, frozen=True):
    """What few jobs have, by job id; analyses as `_ANALYSES_SQL` has them."""

    errors: list[tuple[int, str, str]]
    facts: list[tuple[int, ContentFacts]]
    flaky: list[int]
    drafts: list[int]
    analyses: list[tuple[Any, ...]]
    foreign_durations: list[tuple[int, int]]


JobPart: TypeAlias = Beginning | SourcePiece | JobPiece | Ending


def read_job_parts(reader: Reader) -> Generator[JobPart, None, None]:
    """Yield the beginning, all sources, all jobs, the ending."""
    with reader.snapshot():
        folders = dict(reader.ask("SELECT ScanFolderID, DisplayName FROM ScanFolders").fetchall())
        jobs, ours = reader.ask("SELECT (SELECT COUNT(*) FROM Jobs), (SELECT COUNT(*) FROM aptui_jobs)").fetchone()
        yield Beginning(reader.moment(), folders, jobs)
        yield from map(SourcePiece, read_packed(reader, _SOURCES))
        yield from map(JobPiece, read_packed(reader, _JOBS))
        yield Ending(
            reader.ask(_ERRORS_SQL).fetchall(), list(read_facts(reader)), list(reader.flaky_jobs()), list(reader.draft_jobs()),
            reader.ask(_ANALYSES_SQL).fetchall(), reader.ask(_FOREIGN_DURATIONS_SQL).fetchall() if ours < jobs else [],
        )  # fmt: skip


def read_facts(reader: Reader) -> Iterator[tuple[int, ContentFacts]]:
    """Yield what is said of the products of jobs, together, by job id; jobs of which nothing is said are left out."""
    for job_id, *values in reader.ask(_FACTS_SQL):
        yield job_id, ContentFacts(*values)
