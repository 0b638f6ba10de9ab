"""`aptui history` and `aptui trace`: list stored sessions, list or trace the runs of one session, or compare two sessions.

`aptui compare` is another verb: it compares asset lists.
"""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from aptui.batch.options import check_list_options, limit_argument, refuse_ignored
from aptui.cli.read_access import OpenedProject, open_for_reading
from aptui.config.own_files import note_written
from aptui.core.model import EdgeKind
from aptui.core.project import COMMON_PLATFORM
from aptui.core.rows import SessionEnd
from aptui.shared import printing
from aptui.shared.errors import UserError
from aptui.shared.files.replacing import replacing
from aptui.store.queries import session_history as pace
from aptui.store.queries.reader import Reader
from aptui.store.queries.session_history import (
    OUTCOMES,
    SessionRun,
    WorkSession,
    runs_between,
    runs_of,
    runs_until,
    session_named,
    sessions,
)

# A comparison of two sessions lists the jobs that began to fail, were fixed, take longer, grew, were added or were deleted between
# the ends of the two sessions.

_LEAST_BYTES = 1024
"""Minimum change of the total size of a job's products that is reported, in bytes."""
_LEAST_SHARE = 0.01
"""Minimum change of the total size of a job's products that is reported, as a share of the earlier size."""

KINDS = ("began_to_fail", "still_failing", "mended", "slower", "faster", "grew", "shrank", "new_jobs")
"""Kinds of changes of a job, in the order in which they are printed; keys of the JSON output."""
_RANKS: dict[str, Callable[[JobComparison], float]] = {
    "slower": lambda change: -change.pace.factor,
    "faster": lambda change: change.pace.factor,
    "grew": lambda change: -change.growth,
    "shrank": lambda change: change.growth,
}
"""{kind of change: its sort key}. The jobs of all other kinds are sorted by name."""
_COLOURS = {"began_to_fail": "red", "still_failing": "yellow", "mended": "green", "slower": "yellow"}

Name = tuple[str, str, str, bytes]
"""(source in lower case, platform, job key, UUID of the builder) of a job.

It stays the same if the job is deleted and added again.
"""


class JobComparison(Struct, frozen=True):
    """A job's last runs before the ends of two sessions: `old` of the earlier session (None = unknown), `new` of the later one."""

    old: SessionRun | None
    new: SessionRun
    pace: pace.JobPace

    @property
    def growth(self) -> int:
        """Growth of the job's products in bytes."""
        return self.new.size - (self.old.size if self.old else 0)


class Comparison(Struct):
    """The jobs that ran, or were deleted, between the ends of two sessions.

    `changes` is {kind (one of `KINDS`): changed jobs}; `gone` has the deleted jobs.
    """

    changes: dict[str, list[JobComparison]] = field(default_factory=dict)
    gone: list[Name] = field(default_factory=list)
    jobs_run: int = 0


def compare(reader: Reader, old: WorkSession, new: WorkSession) -> Comparison:
    """Compare the end of one session with the end of a later session."""
    before: dict[Name, SessionRun] = {}
    for run in runs_until(reader, old.number):
        if run.name not in before or before[run.name].session <= run.session:
            before[run.name] = run
    after = {run.name: run for run in runs_between(reader, old.number, new.number)}
    durations: dict[Name, list[float]] = defaultdict(list)
    for run in runs_between(reader, -1, old.number):
        if run.name in after and not run.is_failed and not run.is_restored:
            durations[run.name].append(run.duration_ms)
    gone = _find_gone(reader, old, new, after)
    found = Comparison(jobs_run=len(after), gone=sorted(gone & before.keys()))
    for name, run in after.items():
        change = JobComparison(before.get(name), run, pace.pace(run.duration_ms, durations[name][::-1]))
        for kind in _kinds_of(change) if name not in gone else ():
            found.changes.setdefault(kind, []).append(change)
    for kind, changes in found.changes.items():
        changes.sort(key=lambda change: change.new.name)
        if kind in _RANKS:
            changes.sort(key=_RANKS[kind])
    return found


def _find_gone(reader: Reader, old: WorkSession, new: WorkSession, after: dict[Name, SessionRun]) -> set[Name]:
    """Return the names of jobs that were deleted between the sessions and were not added again."""
    sql = "SELECT job_id, source, platform, job_key, builder FROM aptui_gone_jobs WHERE gone_ms > ? AND gone_ms <= ?"
    found = set()
    for job_id, source, *rest in reader.ask(sql, (old.ended_ms, new.ended_ms)):
        name = (source.lower(), *rest)
        if name not in after or after[name].job_id <= job_id:
            found.add(name)
    return found


def _kinds_of(change: JobComparison) -> Iterator[str]:
    old, new = change.old, change.new
    if old is None:
        yield "new_jobs"
    if new.is_failed:
        yield "still_failing" if old is not None and old.is_failed else "began_to_fail"
        return
    if old is not None and old.is_failed:
        yield "mended"
    if not new.is_restored and change.pace.is_slower:
        yield "slower"
    elif not new.is_restored and change.pace.is_faster:
        yield "faster"
    if old is not None and not old.is_failed and abs(change.growth) > max(_LEAST_BYTES, _LEAST_SHARE * old.size):
        yield "grew" if change.growth > 0 else "shrank"


def title_of(kind: str) -> str:
    """Return the displayed name of a kind of change."""
    return kind.removesuffix("_jobs").replace("_", " ")


_LISTED = 30
"""Number of printed sessions by default."""
_MOST_ROWS = 20
"""Maximum number of printed rows for each kind of change; the JSON output has all rows."""
_SLOWEST = 10
"""Maximum number of printed runs in the list of the slowest runs."""
_ENDS = {SessionEnd.RESTED: "", SessionEnd.STOPPED: "stopped", SessionEnd.KILLED: "the engine was killed"}


def history_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `history`."""
    parser.add_argument(
        "sessions", metavar="N", nargs="*", help="a session: its number, 'last', or 'last~1' for the session before the last"
    )
    limit_argument(parser, _LISTED)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.epilog = """\
  aptui history            the last sessions: why each began, what ran, what failed
  aptui history last       the runs of the last session, slowest first
  aptui history 12 last    jobs that began to fail, were fixed, became slower, grew,
                           were added or deleted since session 12 ended"""


def history(arguments: Namespace) -> int:
    """List sessions, show one, or compare two."""
    words = arguments.sessions
    if len(words) > 2:
        raise UserError("too many sessions were given", hint="give one session to show it, or two sessions to compare them")
    check_list_options(arguments)
    if words:
        refuse_ignored(arguments, ["limit"], "has no effect if a session is named")
    with open_for_reading(arguments) as project:
        chosen = [session_named(project.database, word) for word in words]
        match chosen:
            case []:
                _list(project, arguments)
            case [one]:
                _show(one, project, arguments)
            case _:
                _compare(sorted(chosen, key=lambda session: session.number), project, arguments)
    return 0


# -------------------------------------------------------------------------------------------------------------------- list


def _list(project: OpenedProject, arguments: Namespace) -> None:
    if arguments.json:
        printing.say_json_list(session_json(one) for one in sessions(project.database, arguments.limit or 0))
        return
    found = sessions(project.database, arguments.limit or _LISTED)
    if not found:
        printing.complain("aptui: no session is stored yet; 'aptui batch' creates the first session")
        return
    header = ("", "began", "took", "why", "run", "failed", "restored", "gone", "failing")
    printing.table(header, (_cells(one) for one in found), right=(0, 2, 4, 5, 6, 7, 8), spare=(7, 6, 2))


def _cells(one: WorkSession) -> list[str]:
    figures = (one.jobs_run, one.jobs_failed, one.restored, one.jobs_gone, one.failing)
    numbers = [f"{number:,}" if number else "" for number in figures]
    return [str(one.number), printing.when(one.started_ms), printing.duration(one.seconds), why(one), *numbers]


def why(one: WorkSession) -> str:
    """Return why a session began. If work was still pending at its end, also return how the session ended."""
    text = f"{one.kind}: {one.detail}" if one.detail else one.kind
    end = _ENDS.get(SessionEnd(one.outcome), "")
    return f"{text}; {end}" if end else text


def session_json(one: WorkSession) -> dict[str, Any]:
    """Return a session as JSON."""
    return {
        "session": one.number,
        "began": printing.iso(one.started_ms),
        "ended": printing.iso(one.ended_ms),
        "seconds": one.seconds,
        "kind": one.kind,
        "detail": one.detail,
        "commit": one.commit,
        "outcome": one.outcome or "rested",
        "jobs_run": one.jobs_run,
        "jobs_failed": one.jobs_failed,
        "jobs_gone": one.jobs_gone,
        "jobs_restored": one.restored,
        "jobs_failing": one.failing,
        "work_s": one.work_ms / 1000,
        "saved_s": one.saved_ms / 1000,
        "fetched_bytes": one.fetched_bytes,
    }


# --------------------------------------------------------------------------------------------------------------------- one


def _show(one: WorkSession, project: OpenedProject, arguments: Namespace) -> None:
    runs = runs_of(project.database, one.number)
    if arguments.json:
        printing.say_json({**session_json(one), "runs": [_run_json(run, one, project) for run in runs]})
        return
    print_session(one)
    builders: dict[str, tuple[int, int]] = {}
    for run in runs:
        count, total_ms = builders.get(project.builder_of(run.builder), (0, 0))
        builders[project.builder_of(run.builder)] = count + 1, total_ms + run.duration_ms * (not run.is_restored)
    _print_runs("failed", [run for run in runs if run.is_failed], project, _MOST_ROWS)
    _print_runs(
        "slowest", sorted((run for run in runs if not run.is_restored), key=lambda run: -run.duration_ms), project, _SLOWEST
    )
    if builders:
        printing.say("builders:", "bold")
    for name, (count, total_ms) in sorted(builders.items(), key=lambda item: (-item[1][1], item[0])):
        printing.say(f"  {printing.duration(total_ms / 1000):>10}  {printing.line(name)}, {printing.count(count, 'job')}")


def print_session(one: WorkSession) -> None:
    """Print a session."""
    printing.say(f"session {one.number}: {printing.line(why(one))}", "bold")
    printing.say(f"began {printing.when(one.started_ms)}, took {printing.duration(one.seconds)}")
    parts = [f"{printing.count(one.jobs_run, 'job')} run", f"{one.jobs_failed:,} failed"]
    if one.restored:
        saved = f", {printing.duration(one.saved_ms / 1000)} saved" if one.saved_ms > 0 else ""
        fetched = f", {printing.size(one.fetched_bytes)} fetched" if one.fetched_bytes else ""
        parts.append(f"{one.restored:,} restored{saved}{fetched}")
    if one.jobs_gone:
        parts.append(f"{one.jobs_gone:,} gone")
    at_once = one.work_ms / 1000 / one.seconds if one.seconds else 0.0
    parts.append(f"{printing.duration(one.work_ms / 1000)} of work, {at_once:.1f} jobs at a time")
    printing.say(", ".join(parts))
    printing.say(
        f"failed jobs at the end of the session: {one.failing:,}" if one.failing else "no failed jobs at the end of the session"
    )
    if one.commit:
        printing.say(f"commit {one.commit}")


def _print_runs(title: str, runs: list[SessionRun], project: OpenedProject, most: int) -> None:
    if not runs:
        return
    printing.say(f"{title}:", "bold")
    for run in runs[:most]:
        printing.say(
            f"  {printing.duration(run.duration_ms / 1000):>10}  {printing.line(run_name(run))}  "
            f"({printing.line(project.builder_of(run.builder))})"
        )
    _print_rest(len(runs), most)


def run_name(run: SessionRun) -> str:
    """Return the name of a run's job; it contains untrusted text."""
    return f"{run.source}@{run.platform}:{run.job_key}"


def _run_json(run: SessionRun, one: WorkSession, project: OpenedProject) -> dict[str, Any]:
    return {
        **_names_json(run, project),
        "outcome": OUTCOMES.get(run.outcome, "lost"),  # type: ignore[call-overload]
        "restored": run.is_restored,
        "duration_s": run.duration_ms / 1000,
        "ended": printing.iso(one.started_ms + run.ended_after_ms),
        "product_bytes": run.size,
    }


def _names_json(run: SessionRun, project: OpenedProject) -> dict[str, Any]:
    return {
        "source": run.source, "platform": run.platform, "job_key": run.job_key, "builder": project.builder_of(run.builder),
        "job_id": run.job_id,
    }  # fmt: skip


# ----------------------------------------------------------------------------------------------------------------- compare


def _compare(chosen: list[WorkSession], project: OpenedProject, arguments: Namespace) -> None:
    old, new = chosen
    found = compare(project.database, old, new)
    if arguments.json:
        printing.say_json(_comparison_json(old, new, found, project))
        return
    for one in chosen:
        printing.say(f"session {one.number}: {printing.when(one.started_ms)}, {printing.line(why(one))}")
    printing.say(
        f"{printing.count(found.jobs_run, 'job')} ran between the sessions; "
        f"failed jobs: {old.failing:,} before, {new.failing:,} after"
    )
    for kind in KINDS:
        if changes := found.changes.get(kind):
            printing.say(f"{title_of(kind)} ({len(changes):,}):", "bold")
            for change in changes[:_MOST_ROWS]:
                printing.say(f"  {_describe(kind, change)}", _COLOURS.get(kind, ""))
            _print_rest(len(changes), _MOST_ROWS)
    if found.gone:
        printing.say(f"gone ({len(found.gone):,}):", "bold")
        for source, platform, job_key, _builder in found.gone[:_MOST_ROWS]:
            printing.say(f"  {printing.line(f'{source}@{platform}:{job_key}')}")
        _print_rest(len(found.gone), _MOST_ROWS)


def _print_rest(count: int, most: int) -> None:
    if count > most:
        printing.say(f"  and {count - most:,} more; --json lists all")


def _describe(kind: str, change: JobComparison) -> str:
    name = printing.line(run_name(change.new))
    if kind in ("slower", "faster"):
        pace = change.pace
        usual = f"{printing.duration(pace.median_ms / 1000)} ± {printing.duration(pace.noise_ms / 1000)}"
        usual += f" in {printing.count(pace.runs, 'run')}"
        return f"{pace.factor:.1f} times  {name}  {printing.duration(pace.now_ms / 1000)}, usually {usual}"
    if kind in ("grew", "shrank"):
        sign = "+" if change.growth > 0 else "-"
        return f"{sign}{printing.size(abs(change.growth))}  {name}  now {printing.size(change.new.size)}"
    return name


def _comparison_json(old: WorkSession, new: WorkSession, found: Comparison, project: OpenedProject) -> dict[str, Any]:
    return {
        "old": session_json(old),
        "new": session_json(new),
        "jobs_run": found.jobs_run,
        **{kind: [_change_json(change, project) for change in found.changes.get(kind, ())] for kind in KINDS},
        "gone": [
            {"source": source, "platform": platform, "job_key": key, "builder": project.builder_of(builder)}
            for source, platform, key, builder in found.gone
        ],
    }


def _change_json(change: JobComparison, project: OpenedProject) -> dict[str, Any]:
    return {
        **_names_json(change.new, project),
        "duration_s": change.new.duration_ms / 1000,
        "product_bytes": change.new.size,
        "product_bytes_before": change.old.size if change.old else None,
        **change.pace.to_json(),
    }


# `aptui trace` writes the stored runs of a session as a trace for Perfetto and Chrome's tracing page. The trace shows the runs on
# lanes, the dependencies between the runs, and the critical path.
#
# A session stores when a run's result was committed and how long the run took, but not which worker ran it. Runs are
# therefore laid out on as few lanes as possible without overlap, and a lane does not stand for a particular worker. Results that
# were committed together come from one worker, which ran the jobs one after another. So these runs are laid out one after another,
# and the last one ends at the commit.

_EDGES_SQL = f"""SELECT DISTINCT j.JobID, e.target FROM json_each(?) k JOIN Jobs j ON j.JobID = k.value
JOIN aptui_edges e ON e.source_id = j.SourcePK AND e.builder = j.BuilderGuid WHERE e.kind = {int(EdgeKind.JOB)}"""
_MAKERS_SQL = f"""SELECT j.JobID, p.JobPK FROM json_each(?) k JOIN Jobs j ON j.JobID = k.value
JOIN Sources s ON s.SourceID = j.SourcePK JOIN Products p ON p.ProductName = '{COMMON_PLATFORM}/' || s.SourceName COLLATE NOCASE"""


class Span(Struct, frozen=True):
    """One run on a lane of the timeline; times are in milliseconds since the session began."""

    run: SessionRun
    lane: int
    began_ms: int
    ended_ms: int


class Timeline(Struct):
    """The runs of a session over time.

    `needs` is {job: the jobs of this session on which it depends}; `critical` are the jobs of the critical path in order.
    """

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
    """Place the runs on the lanes of a timeline, so that runs on the same lane do not overlap; also return the number of lanes.

    Runs that were committed together share a lane if possible. Any other run gets the free lane with the lowest number.
    """
    spans: list[Span] = []
    free_ms: list[int] = []
    """For each lane, the time (ms) from which it is free for the runs of the next commit."""
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
        # A needed job extends the chain only if its run ended before the run of this job: then `total` has its duration already.
        # So a dependency cycle cannot cause an endless loop, and a later run of the needed job is ignored.
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
"""Number of the track for the critical path, which is displayed above the tracks of the workers."""
_MOST_SPANS = 10
"""Maximum number of printed runs of the critical path; the last runs are printed."""


def trace_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `trace`."""
    parser.add_argument(
        "session", metavar="SESSION", nargs="?", default="last", help="number of the session, 'last' (the default), or 'last~1'"
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
    yield _metadata("process_name", 0, f"session {session.number}: {why(session)}")
    yield _metadata("thread_name", _CRITICAL_LANE, "critical path")
    for lane in range(1, found.lane_count + 1):
        yield _metadata("thread_name", lane, f"worker lane {lane}")
    spans = {span.run.job_id: span for span in found.spans}
    for span in found.spans:
        yield _slice(span, span.lane + 1, session, project)
    for job_id in found.critical:
        yield _slice(spans[job_id], _CRITICAL_LANE, session, project)
    yield from _flows(found, spans)


def _metadata(kind: str, thread: int, text: str) -> dict[str, Any]:
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
    printing.say(f"{printing.count(len(found.spans), 'job')} in {printing.duration(session.seconds)}, by at most {lanes}")
    if found.critical:
        printing.say(
            f"critical path: {printing.count(len(found.critical), 'job')}, {printing.duration(found.critical_ms / 1000)}", "bold"
        )
    spans = {span.run.job_id: span for span in found.spans}
    for job_id in found.critical[-_MOST_SPANS:]:
        run = spans[job_id].run
        printing.say(f"  {printing.duration(run.duration_ms / 1000):>10}  {printing.line(run_name(run))}")
    if file:
        printing.say(f"the trace is in {printing.line(file)}; open the file with ui.perfetto.dev or chrome://tracing")
