"""`aptui trace`: a session as a trace that Perfetto and Chrome's tracing page read, from what is kept of its runs.

Tests: `tests/verbs/sessions/test_size.py`.
"""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aptui.config.own_files import note_written
from aptui.shared import printing
from aptui.shared.files.replacing import replacing
from aptui.store.history.sessions import OUTCOMES, WorkSession, session_named
from aptui.store.history.timeline import Span, Timeline, timeline
from aptui.verbs.opening import OpenedProject, open_for_reading
from aptui.verbs.sessions.history import why

_PROCESS = 1
_CRITICAL_LANE = 0
"""The track of the deciding chain stands above those of the workers."""
_MOST_ROWS = 10


def trace_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `trace`."""
    parser.add_argument(
        "session", metavar="SESSION", nargs="?", default="last", help="its number, 'last' (by default), or 'last~1'"
    )
    parser.add_argument(
        "--out", metavar="FILE", help="write a trace for ui.perfetto.dev or chrome://tracing; else tell the critical path"
    )
    parser.add_argument("--json", action="store_true", help="print the trace to stdout")


def trace(arguments: Namespace) -> int:
    """Write a session as a trace, or tell where its time went."""
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
    """Yield the events of the trace: names of tracks, runs, what waited for what."""
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
        name = printing.line(f"{run.source}@{run.platform}:{run.job_key}")
        printing.say(f"  {printing.duration(run.duration_ms / 1000):>10}  {name}")
    if file:
        printing.say(f"the trace is in {printing.line(file)}: open it with ui.perfetto.dev or chrome://tracing")
