"""Where the time of a session went: its runs on lanes, what waited for what, and the chain that decided how long it took.

A session remembers when a run's result was committed and how long it took, not which worker had it. So runs are laid on few
lanes that hold them without overlap; a lane stands for a worker, whichever it was. Results that were committed together are those
of runs that a worker had one after the other: they are laid so, before the moment of their commit.
"""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import groupby

from msgspec import Struct, field

from aptui.core.model import EdgeKind
from aptui.core.project import COMMON_PLATFORM
from aptui.store.history.sessions import SessionRun, runs_of
from aptui.store.queries.reader import Reader

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
    """The runs of a session in time; `needs` are {job: jobs of the session it waited for}, `critical` the deciding chain."""

    spans: list[Span] = field(default_factory=list)
    lane_count: int = 0
    needs: dict[int, tuple[int, ...]] = field(default_factory=dict)
    critical: list[int] = field(default_factory=list)

    @property
    def critical_ms(self) -> int:
        """How long the runs of the deciding chain took together."""
        chosen = set(self.critical)
        return sum(span.run.duration_ms for span in self.spans if span.run.job_id in chosen)


def timeline(reader: Reader, session: int) -> Timeline:
    """Return where the time of a session went."""
    runs = runs_of(reader, session)
    found = Timeline(*_lay_on_lanes(runs))
    found.needs = _needs(reader, runs)
    found.critical = _critical(found)
    return found


def _lay_on_lanes(runs: list[SessionRun]) -> tuple[list[Span], int]:
    """Lay runs on lanes: in front of one that was committed with it, else on the lowest lane that is free when it begins."""
    spans: list[Span] = []
    free_ms: list[int] = []
    """When each lane is free, from the runs that were committed before."""
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
    """Return the chain of dependencies whose runs took longest together, in the order in which they ran."""
    durations = {span.run.job_id: span.run.duration_ms for span in found.spans}
    total: dict[int, int] = {}
    before: dict[int, int] = {}
    for span in sorted(found.spans, key=lambda span: (span.run.ended_after_ms, span.run.job_id)):
        job_id = span.run.job_id
        # One that ended later was not waited for: cycles of names and later runs of the same session end here.
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
