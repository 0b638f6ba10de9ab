"""Why a job is as it is, in one sentence: said by `aptui why` and by the screen; how it is printed is theirs."""

from __future__ import annotations

from collections.abc import Sequence

from aptui.core.model import COMMON_PLATFORM, INTERMEDIATES
from aptui.store.queries.reader import EdgeRow, JobRow, Reader, RunRow, SourceRow

_STAGES_MOST = 50
JOB_EDGE, WILDCARD_EDGE = 2, 4
"""Bits of `TypeOfDependency` (spec/surface.md §4)."""


def sentence(row: JobRow, runs: Sequence[RunRow], edges: Sequence[EdgeRow], database: Reader, *, owed: str = "") -> str:
    """Return why a job is as it is.

    Args:
        runs: of the job, the newest first.
        edges: of its source and its builder.
        owed: what to add where it is owed a run, such as who does it.
    """
    reason = row.reason or (runs[0].reason if runs else "") or "the reason was not recorded"
    match row.status:
        case "pending" | "processing":
            waits = unsettled(edges, database)
            return f"it waits for {', '.join(waits)}" if waits else f"it is owed a run ({reason}){owed}"
        case "failed":
            after = f", after {row.failure_cause} failed" if row.failure_cause else ""
            return f"its last run failed{after}; it ran because: {reason}"
        case "cancelled":
            return "somebody cancelled it; it rests until its source changes or somebody asks for it"
        case _:
            return f"it last ran because: {reason}"


def makers(source: SourceRow | None, database: Reader) -> list[tuple[JobRow, str]]:
    """Return the jobs that an intermediate comes from, each with why it is as it is: the one that made it, what made its source, and so on."""
    found: list[tuple[JobRow, str]] = []
    sql = "SELECT JobPK FROM Products WHERE ProductName = ? ORDER BY ProductID DESC LIMIT 1"
    while source is not None and source.scan_folder == INTERMEDIATES and len(found) < _STAGES_MOST:
        made = database.ask(sql, (f"{COMMON_PLATFORM}/{source.source.lower()}",)).fetchone()
        row = database.job(made[0]) if made else None
        if row is None:
            break
        edges = [edge for edge in database.edges_of(row.source_id) if edge.builder == row.builder]
        found.append((row, sentence(row, database.runs_of(row.job_id), edges, database)))
        source = database.source(row.source)
    return found


def unsettled(edges: Sequence[EdgeRow], database: Reader) -> list[str]:
    """Return the jobs of dependencies that have not come to rest."""
    waits: list[str] = []
    for edge in edges:
        other = database.source(edge.target) if edge.type_bits & JOB_EDGE else None
        rows = database.jobs_of(other.source_id) if other else ()
        waits += [f"{row.source}@{row.platform}:{row.job_key}" for row in rows if row.status in ("pending", "processing")]
    return waits


def edge_type(edge: EdgeRow) -> str:
    """Return what kind of dependency it is, in a word."""
    if edge.type_bits & JOB_EDGE:
        return "job"
    return "wildcard" if edge.type_bits & WILDCARD_EDGE else "source"
