"""How the project was at the end of two sessions: what began to fail, was mended, takes longer, grew, came or went."""

from __future__ import annotations

from collections import defaultdict

from msgspec import Struct, field

from aptui.store.history import pace
from aptui.store.history.sessions import SessionRun, WorkSession, runs_between, runs_until
from aptui.store.queries.reader import Reader

_LEAST_BYTES = 1024
_LEAST_SHARE = 0.01

Name = tuple[str, str, str, bytes]


class JobComparison(Struct, frozen=True):
    """One job at both ends; `old` is None when nothing is known of it before."""

    old: SessionRun | None
    new: SessionRun
    pace: pace.JobPace | None = None

    @property
    def growth(self) -> int:
        """How many bytes its products have more."""
        return self.new.size - (self.old.size if self.old else 0)


class Comparison(Struct):
    """Jobs that ran in between, by what became of them; the worst first."""

    began_to_fail: list[JobComparison] = field(default_factory=list)
    mended: list[JobComparison] = field(default_factory=list)
    still_failing: list[JobComparison] = field(default_factory=list)
    slower: list[JobComparison] = field(default_factory=list)
    faster: list[JobComparison] = field(default_factory=list)
    grew: list[JobComparison] = field(default_factory=list)
    shrank: list[JobComparison] = field(default_factory=list)
    new: list[JobComparison] = field(default_factory=list)
    gone: list[Name] = field(default_factory=list)
    jobs_run: int = 0


def compare(reader: Reader, old: WorkSession, new: WorkSession) -> Comparison:
    """Compare the end of one session with that of a later one."""
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
        if name not in gone:
            _sort_in(found, before.get(name), run, durations[name][::-1])
    _rank(found)
    return found


def _find_gone(reader: Reader, old: WorkSession, new: WorkSession, after: dict[Name, SessionRun]) -> set[Name]:
    """Return the names of jobs that went in between and did not come back."""
    sql = "SELECT job_id, source, platform, job_key, builder FROM aptui_gone_jobs WHERE gone_ms > ? AND gone_ms <= ?"
    found = set()
    for job_id, source, *rest in reader.ask(sql, (old.ended_ms, new.ended_ms)):
        name = (source.lower(), *rest)
        if name not in after or after[name].job_id <= job_id:
            found.add(name)
    return found


def _sort_in(found: Comparison, old: SessionRun | None, new: SessionRun, before_ms: list[float]) -> None:
    pace_now = pace.pace(new.duration_ms, before_ms)
    change = JobComparison(old, new, pace_now)
    if old is None:
        found.new.append(change)
    if new.is_failed:
        (found.still_failing if old is not None and old.is_failed else found.began_to_fail).append(change)
        return
    if old is not None and old.is_failed:
        found.mended.append(change)
    if not new.is_restored and pace_now.is_slower:
        found.slower.append(change)
    elif not new.is_restored and pace_now.is_faster:
        found.faster.append(change)
    if old is not None and not old.is_failed and abs(change.growth) > max(_LEAST_BYTES, _LEAST_SHARE * old.size):
        (found.grew if change.growth > 0 else found.shrank).append(change)


def _rank(found: Comparison) -> None:
    for listed in (found.began_to_fail, found.mended, found.still_failing, found.new):
        listed.sort(key=lambda change: change.new.name)
    found.slower.sort(key=lambda change: -(change.pace.factor if change.pace else 0))
    found.faster.sort(key=lambda change: change.pace.factor if change.pace else 0)
    found.grew.sort(key=lambda change: -change.growth)
    found.shrank.sort(key=lambda change: change.growth)
