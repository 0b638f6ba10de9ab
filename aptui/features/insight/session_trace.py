"""`aptui trace`: a session as a trace for Perfetto and Chrome's tracing page, from its stored runs.

Tests: `tests/features/insight/test_size.py`.
"""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from aptui.cli.read_access import OpenedProject, open_for_reading
from aptui.config.own_files import note_written
from aptui.core.model import EdgeKind
from aptui.core.project import COMMON_PLATFORM
from aptui.features.insight.history_verb import run_name, why
from aptui.shared import printing
from aptui.shared.files.replacing import replacing
from aptui.store.queries.reader import Reader
from aptui.store.queries.session_history import OUTCOMES, SessionRun, WorkSession, runs_of, session_named

# How a session spent its time: its runs on lanes, the dependencies between them, and the critical path.
#
# A session stores when a run's result was committed and how long the run took, but not its worker. Runs are therefore laid out on
# the fewest lanes without overlap; a lane stands for any worker. Results that were committed together belong to runs that one
# worker made in sequence: they are laid out in sequence, ending at the commit.

_EDGES_SQL = f"""SELECT DISTINCT j.JobID, e.target FROM json_each(?) k JOIN Jobs j ON j.JobID = k.value
JOIN aptui_edges e ON e.source_id = j.SourcePK AND e.builder = j.BuilderGuid WHERE e.kind = {int(EdgeKind.JOB)}"""
_MAKERS_SQL = f"""SELECT j.JobID, p.JobPK FROM json_each(?) k JOIN Jobs j ON j.JobID = k.value
JOIN Sources s ON s.SourceID = j.SourcePK JOIN Products p ON p.ProductName = '{COMMON_PLATFORM}/' || s.SourceName COLLATE NOCASE"""


class Span(Struct, frozen=True):
    """One run on its lane; milliseconds since the session began."""

    run: SessionRun
    lane: int
    began_ms: int
    ended_ms: int


class Timeline(Struct):
    """The runs of a session over time; `needs` is {job: jobs it waited for}, `critical` has the jobs of the critical path."""

    spans: list[Span] = field(default_factory=list)
    lane_count: int = 0
    needs: dict[int, tuple[int, ...]] = field(default_factory=dict)
    critical: list[int] = field(default_factory=list)

    @property
    def critical_ms(self) -> int:
        """Total duration of the runs on the critical path."""
        chosen = set(self.critical)
        return sum(span.run.duration_ms for span in self.spans if span.run.job_id in chosen)


def timeline(reader: Reader, session: int) -> Timeline:
    """Return the timeline of a session."""
    runs = runs_of(reader, session)
    found = Timeline(*_lay_on_lanes(runs))
    found.needs = _needs(reader, runs)
    found.critical = _critical(found)
    return found


def _lay_on_lanes(runs: list[SessionRun]) -> tuple[list[Span], int]:
    """Lay out runs on lanes: runs that were committed together share a lane if possible; others use the lowest free lane."""
    spans: list[Span] = []
    free_ms: list[int] = []
    """Times at which the lanes become free after the runs that were committed earlier."""
    for end_ms, together in groupby(sorted(runs, key=lambda run: run.ended_after_ms), key=lambda run: run.ended_after_ms):
        begins: dict[int, int] = {}
        for run in sorted(together, key=lambda run: (-run.duration_ms, run.job_id)):
            lane = next((lane for lane, begin in begins.items() if begin - run.duration_ms >= free_ms[lane]), None)
            if lane is None:
                begin_ms = end_ms - run.duration_ms
                others = (lane for lane, free in enumerate(free_ms) if free <= begin_ms and lane not in begins)
                lane = next(others, len(free_ms))
                free_ms += [0] * (lane == len(free_ms))
                begins[lane] = end_ms
            begins[lane] -= run.duration_ms
            spans.append(Span(run, lane, begins[lane], begins[lane] + run.duration_ms))
        for lane in begins:
            free_ms[lane] = end_ms
    return sorted(spans, key=lambda span: (span.began_ms, span.run.job_id)), len(free_ms)


def _needs(reader: Reader, runs: list[SessionRun]) -> dict[int, tuple[int, ...]]:
    ran = {run.job_id: run for run in runs}
    by_source: dict[tuple[str, str], list[int]] = defaultdict(list)
    for run in runs:
        by_source[run.source.lower(), run.platform].append(run.job_id)
    listed = (json.dumps(list(ran)),)
    needs: dict[int, set[int]] = defaultdict(set)
    for job_id, target in reader.ask(_EDGES_SQL, listed):
        for platform in {ran[job_id].platform, COMMON_PLATFORM}:
            needs[job_id].update(by_source.get((target, platform), ()))
    for job_id, maker in reader.ask(_MAKERS_SQL, listed):
        needs[job_id].update({maker} & ran.keys())
    return {job_id: tuple(sorted(found - {job_id})) for job_id, found in needs.items() if found - {job_id}}


def _critical(found: Timeline) -> list[int]:
    """Return the chain of dependent runs with the longest total duration, in the order of the runs."""
    durations = {span.run.job_id: span.run.duration_ms for span in found.spans}
    total: dict[int, int] = {}
    before: dict[int, int] = {}
    for span in sorted(found.spans, key=lambda span: (span.run.ended_after_ms, span.run.job_id)):
        job_id = span.run.job_id
        # No run waited for a run that ended later. This check also ends dependency cycles, and skips later runs of a job.
        known = [need for need in found.needs.get(job_id, ()) if need in total]
        longest = max(known, key=total.__getitem__, default=0)
        total[job_id] = durations[job_id] + total.get(longest, 0)
        if longest:
            before[job_id] = longest
    at = max(total, key=total.__getitem__, default=0)
    chain = []
    while at:
        chain.append(at)
        at = before.get(at, 0)
    return chain[::-1]


_PROCESS = 1
_CRITICAL_LANE = 0
"""Track of the critical path; above the tracks of workers."""
_MOST_ROWS = 10


def trace_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `trace`."""
    parser.add_argument(
        "session", metavar="SESSION", nargs="?", default="last", help="its number, 'last' (by default), or 'last~1'"
    )
    parser.add_argument(
        "--out", metavar="FILE", help="write a trace for ui.perfetto.dev or chrome://tracing; without it, print the critical path"
    )
    parser.add_argument("--json", action="store_true", help="print the trace to stdout")


def trace(arguments: Namespace) -> int:
    """Write a session as a trace, or print its critical path."""
    with open_for_reading(arguments) as project:
        session = session_named(project.database, arguments.session)
        found = timeline(project.database, session.number)
        document = {"displayTimeUnit": "ms", "traceEvents": list(events(session, found, project))}
        if arguments.json:
            printing.say_json(document)
        if arguments.out:
            _write(arguments.out, document)
        if not arguments.json:
            _print(session, found, arguments.out)
    return 0


def events(session: WorkSession, found: Timeline, project: OpenedProject) -> Iterator[dict[str, Any]]:
    """Yield the events of the trace: names of tracks, runs, and waits."""
    yield _name("process_name", 0, f"session {session.number}: {why(session)}")
    yield _name("thread_name", _CRITICAL_LANE, "critical path")
    for lane in range(1, found.lane_count + 1):
        yield _name("thread_name", lane, f"worker lane {lane}")
    spans = {span.run.job_id: span for span in found.spans}
    for span in found.spans:
        yield _slice(span, span.lane + 1, session, project)
    for job_id in found.critical:
        yield _slice(spans[job_id], _CRITICAL_LANE, session, project)
    yield from _flows(found, spans)


def _name(kind: str, thread: int, text: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": _PROCESS, "tid": thread, "args": {"name": text}}


def _slice(span: Span, thread: int, session: WorkSession, project: OpenedProject) -> dict[str, Any]:
    run = span.run
    return {
        "ph": "X",
        "name": run.source,
        "cat": project.builder_of(run.builder),
        "pid": _PROCESS,
        "tid": thread,
        "ts": span.began_ms * 1000,
        "dur": run.duration_ms * 1000,
        "args": {
            "platform": run.platform,
            "job_key": run.job_key,
            "builder": project.builder_of(run.builder),
            "job": run.job_id,
            "outcome": OUTCOMES.get(run.outcome, "lost"),  # type: ignore[call-overload]
            "restored": run.is_restored,
            "product_bytes": run.size,
            "ended": printing.iso(session.started_ms + span.ended_ms),
        },
    }


def _flows(found: Timeline, spans: dict[int, Span]) -> Iterator[dict[str, Any]]:
    number = 0
    for job_id, needs in sorted(found.needs.items()):
        for need in needs:
            number += 1
            begin, end = spans[need], spans[job_id]
            common = {"cat": "dependency", "name": "needs", "id": number, "pid": _PROCESS}
            yield {**common, "ph": "s", "tid": begin.lane + 1, "ts": max(begin.began_ms, begin.ended_ms - 1) * 1000}
            yield {**common, "ph": "f", "bp": "e", "tid": end.lane + 1, "ts": end.began_ms * 1000}


def _write(file: str, document: dict[str, Any]) -> None:
    with replacing(Path(os.path.abspath(file)), what=f"'{file}'") as stream:
        stream.write(json.dumps(document, separators=(",", ":")).encode())
    note_written(file)


def _print(session: WorkSession, found: Timeline, file: str | None) -> None:
    printing.say(f"session {session.number}: {printing.line(why(session))}", "bold")
    lanes = printing.count(found.lane_count, "worker")
    printing.say(f"{printing.count(len(found.spans), 'job')} in {printing.duration(session.seconds)} on {lanes} at most")
    if found.critical:
        printing.say(
            f"critical path: {printing.count(len(found.critical), 'job')}, {printing.duration(found.critical_ms / 1000)}", "bold"
        )
    spans = {span.run.job_id: span for span in found.spans}
    for job_id in found.critical[-_MOST_ROWS:]:
        run = spans[job_id].run
        printing.say(f"  {printing.duration(run.duration_ms / 1000):>10}  {printing.line(run_name(run))}")
    if file:
        printing.say(f"the trace is in {printing.line(file)}: open it with ui.perfetto.dev or chrome://tracing")
