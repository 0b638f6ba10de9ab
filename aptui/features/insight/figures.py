"""Metrics for dashboards: done and failed jobs, sizes, durations, the last session.

Most metrics come from the database and do not need a running engine. The other metrics come from the engine's status, which the
caller passes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from aptui.shared import openmetrics
from aptui.shared.openmetrics import Family, Sample, gauge
from aptui.store.queries import checks, session_history
from aptui.store.queries.reader import Reader
from aptui.store.queries.session_history import sessions

BOUNDS_S = (0.01, 0.1, 1.0, 10.0, 60.0, 600.0)
"""Upper bounds of the buckets of durations, in seconds."""
_BUCKET_SQL = "CASE " + " ".join(f"WHEN o.duration_ms <= {round(bound * 1000)} THEN {at}" for at, bound in enumerate(BOUNDS_S))
_DURATIONS_SQL = f"""SELECT j.BuilderGuid, {_BUCKET_SQL} ELSE {len(BOUNDS_S)} END, COUNT(*), SUM(o.duration_ms)
FROM Jobs j JOIN aptui_jobs o ON o.job_id = j.JobID WHERE o.completed_ms > 0 GROUP BY 1, 2"""
_STATES = ("idle", "working", "paused", "draining", "drained", "held", "in trouble")


def document(reader: Reader, name_of: Callable[[bytes], str], status: Mapping[str, Any] | None) -> str:
    """Return all metrics in the OpenMetrics format.

    Args:
        name_of: returns a builder's name for its UUID.
        status: the engine's answer to `link.port.ReadStatus` as JSON; None = no engine runs.
    """
    return openmetrics.text([*_of_database(reader, name_of), *of_engine(status)])


def _of_database(reader: Reader, name_of: Callable[[bytes], str]) -> Iterator[Family]:
    totals = reader.totals()
    yield Family("aptui_jobs", "gauge", "Jobs by status.", [Sample(n, {"status": name}) for name, n in totals.jobs.items()])
    yield gauge("aptui_sources", "Sources that have jobs.", totals.sources)
    yield gauge("aptui_products", "Products in the cache.", totals.products)
    yield gauge("aptui_product_bytes", "Size of all products together.", checks.product_bytes(reader))
    yield gauge("aptui_log_warnings", "Warnings in the logs of completed jobs.", totals.warnings)
    yield gauge("aptui_log_errors", "Errors in the logs of completed jobs.", totals.errors)
    yield gauge(
        "aptui_slower_jobs",
        "Jobs whose last run took longer than earlier runs, by more than their usual variation.",
        len(session_history.slower_jobs(reader)),
    )
    yield _durations(reader, name_of)
    for last in sessions(reader, 1):
        yield gauge("aptui_session", "Number of the last session.", last.number)
        yield gauge("aptui_session_end_timestamp_seconds", "Time at which the last session ended.", last.ended_ms / 1000)
        yield gauge("aptui_session_seconds", "Duration of the last session.", last.seconds)
        yield gauge("aptui_session_jobs_run", "Jobs that ran in the last session.", last.jobs_run)
        yield gauge("aptui_session_jobs_failed", "Jobs that failed in the last session.", last.jobs_failed)
        yield gauge("aptui_session_jobs_restored", "Jobs of the last session that used a stored result.", last.restored)


def _durations(reader: Reader, name_of: Callable[[bytes], str]) -> Family:
    """Return the durations of the last runs of all jobs, as a histogram for each builder.

    The metric is a gauge, because its value is computed from the database for every request.
    """
    counts: dict[str, list[int]] = defaultdict(lambda: [0] * (len(BOUNDS_S) + 1))
    total_ms: dict[str, int] = defaultdict(int)
    for builder, at, count, spent_ms in reader.ask(_DURATIONS_SQL):
        counts[name_of(builder)][at] += count
        total_ms[name_of(builder)] += spent_ms
    samples = []
    for name, listed in sorted(counts.items()):
        so_far = 0
        for bound, count in zip([*map(str, BOUNDS_S), "+Inf"], listed, strict=True):
            so_far += count
            samples.append(Sample(so_far, {"builder": name, "le": bound}, "_bucket"))
        samples += [Sample(so_far, {"builder": name}, "_gcount"), Sample(total_ms[name] / 1000, {"builder": name}, "_gsum")]
    return Family("aptui_job_seconds", "gaugehistogram", "Durations of the last runs of all jobs, by builder.", samples)


def of_engine(status: Mapping[str, Any] | None) -> Iterator[Family]:
    """Yield the metrics that only a running engine has."""
    yield gauge("aptui_engine_up", "1 if an engine is running, otherwise 0.", status is not None)
    if status is None:
        return
    states = [Sample(status["state"] == name, {"aptui_engine_state": name}) for name in _STATES]
    yield Family("aptui_engine_state", "stateset", "State of the engine.", states)
    yield gauge("aptui_engine_uptime_seconds", "Time since the engine started.", status["uptime_s"])
    yield gauge("aptui_engine_resident_bytes", "Memory of the engine's own process.", status["rss_bytes"])
    yield gauge("aptui_connections", "Clients of the engine.", status["connection_count"])
    progress = status["progress"] or {}
    for name, text in (
        ("jobs_waiting", "Waiting jobs."),
        ("jobs_running", "Running jobs."),
        ("analyses_waiting", "Waiting analyses."),
        ("analyses_running", "Running analyses."),
    ):
        yield gauge(f"aptui_queue_{name}", text, progress.get(name, 0))
    if progress.get("eta_ms", -1) >= 0:
        yield gauge("aptui_queue_left_seconds", "Estimated time until nothing is pending.", progress["eta_ms"] / 1000)
    for name, text in (("jobs_done", "Runs of this engine that completed."), ("jobs_failed", "Runs of this engine that failed.")):
        yield Family(f"aptui_engine_{name}", "counter", text, (Sample(progress.get(name, 0), {}, "_total"),))
    modes: dict[str, int] = defaultdict(int)
    for root in status["health"]["roots"]:
        modes[str(root["mode"])] += 1
    text = "Watched folders by watch mode; every mode except native is slower, or misses changes."
    yield Family("aptui_watched_folders", "gauge", text, [Sample(count, {"mode": mode}) for mode, count in sorted(modes.items())])
    troubles = [bool(status["health"][name]) for name in ("disk", "database", "pool", "configuration")]
    yield gauge("aptui_engine_troubles", "Number of problems that the engine reports.", sum(troubles))
