"""The status of a job and its reason in one sentence, for `aptui why` and the screen.

The reason itself is decided once, when the run is planned (`core.pipeline.plans`), and stored with the job.

Tests: `tests/cli/test_main.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from aptui.core.patterns import wildcard
from aptui.core.project import COMMON_PLATFORM, INTERMEDIATES
from aptui.shared.printing import when
from aptui.store.db.statements import MOST_RUNS
from aptui.store.queries.reader import EdgeRow, JobRow, Reader, RunRow, SourceRow

_STAGES_MOST = 50
JOB_EDGE, WILDCARD_EDGE = 2, 4
"""Bits of `SourceDependency.TypeOfDependency`."""


def sentence(row: JobRow, runs: Sequence[RunRow], edges: Sequence[EdgeRow], database: Reader, *, pending: str = "") -> str:
    """Return the status of a job and its reason in one sentence.

    Args:
        runs: of the job, the newest first.
        edges: of its source and its builder.
        pending: text to add if the job needs a run, for example what starts it.
    """
    reason = row.reason or "the reason was not recorded"
    match row.status:
        case "pending" | "processing":
            waits = list_unsettled(edges, database)
            return f"it waits for {', '.join(waits)}" if waits else f"it has to run ({reason}){pending}"
        case "failed":
            after = f", after {row.failure_cause} failed" if row.failure_cause else ""
            return f"{_describe_failures(row, runs, database)}{after}; it ran because: {reason}"
        case "cancelled":
            return "it was cancelled; it runs again when its source changes or on request"
        case _:
            return f"it last ran because: {reason}"


def _describe_failures(row: JobRow, runs: Sequence[RunRow], database: Reader) -> str:
    """Return how many runs in a row failed and when the first of them did, in local time.

    More runs in a row may have failed than are kept.
    """
    count = next((at for at, run in enumerate(runs) if run.outcome == 0), len(runs))
    if count < 2:
        return "its last run failed"
    found = database.ask("SELECT FirstFailLogTime FROM Jobs WHERE JobID = ?", (row.job_id,)).fetchone()
    first_ms = (found[0] if found else 0) or runs[count - 1].completed_ms
    more = " or more" if count >= MOST_RUNS else ""
    return f"failed {count}{more} times in a row, first at {when(first_ms)}"


def dependents(path: str, database: Reader) -> list[str]:
    """Return the sources that depend on a path, by its name or by a wildcard, in the order of their names."""
    sql = """SELECT DISTINCT d.DependsOnSource, s.SourceName FROM SourceDependency d JOIN Sources s ON s.SourceGuid = d.SourceGuid
        WHERE d.TypeOfDependency & ?"""
    wild = {name for target, name in database.ask(sql, (WILDCARD_EDGE,)) if wildcard(target).fullmatch(path)}
    return sorted({*database.dependents_of(path), *wild} - {path})


def makers(source: SourceRow | None, database: Reader) -> list[tuple[JobRow, str]]:
    """Return the jobs that led to an intermediate, each with its reason: first its producer, then the producers before that."""
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


def list_unsettled(edges: Sequence[EdgeRow], database: Reader) -> list[str]:
    """Return the pending and running jobs of the job dependencies."""
    waits: list[str] = []
    for edge in edges:
        other = database.source(edge.target) if edge.type_bits & JOB_EDGE else None
        rows = database.jobs_of(other.source_id) if other else ()
        waits += [f"{row.source}@{row.platform}:{row.job_key}" for row in rows if row.status in ("pending", "processing")]
    return waits


def edge_type(edge: EdgeRow) -> str:
    """Return the kind of a dependency in one word."""
    if edge.type_bits & JOB_EDGE:
        return "job"
    return "wildcard" if edge.type_bits & WILDCARD_EDGE else "source"
