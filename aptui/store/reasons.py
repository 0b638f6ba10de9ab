"""Why a job is as it is, in one sentence: said by `aptui why` and by the screen; how it is printed is theirs."""

from __future__ import annotations

from collections.abc import Sequence

from aptui.store.reader import EdgeRow, JobRow, Reader, RunRow

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
