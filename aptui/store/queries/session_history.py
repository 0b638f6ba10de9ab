"""The sessions that are kept, and the runs in them; read-only."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile

from msgspec import Struct

from aptui.core.orders import Outcome
from aptui.shared.errors import UserError
from aptui.store.queries.reader import Reader

_SESSIONS_SQL = """SELECT session_id, started_ms, ended_ms, kind, detail, commit_id, outcome, jobs_run, jobs_failed, jobs_gone,
    restored, work_ms, saved_ms, fetched_bytes, failing FROM aptui_sessions WHERE session_id > 0"""
_RUNS_SQL = """SELECT r.job_id, COALESCE(s.SourceName, g.source), COALESCE(j.Platform, g.platform), COALESCE(j.JobKey, g.job_key),
    COALESCE(j.BuilderGuid, g.builder), r.outcome, r.is_restored, r.duration_ms, r.ended_after_ms, r.size, r.session_id
FROM aptui_session_runs r LEFT JOIN Jobs j ON j.JobID = r.job_id LEFT JOIN Sources s ON s.SourceID = j.SourcePK
LEFT JOIN aptui_gone_jobs g ON g.job_id = r.job_id WHERE COALESCE(s.SourceName, g.source) IS NOT NULL"""
_OUTCOMES_SQL = """SELECT r.outcome, COALESCE(s.started_ms, 0) + r.ended_after_ms, r.session_id, COALESCE(s.commit_id, '')
FROM aptui_session_runs r LEFT JOIN aptui_sessions s ON s.session_id = r.session_id WHERE r.job_id = ? ORDER BY r.session_id DESC"""
_COMMIT_BEFORE_SQL = "SELECT commit_id FROM aptui_sessions WHERE session_id < ? AND session_id > 0 ORDER BY session_id DESC LIMIT 1"
_NEXT = 1 << 62
"""Number of the present session, which is not recorded yet; no session has a higher number."""
_WORD = re.compile(r"#?(?P<number>\d{1,18})|last(?:~(?P<back>\d{1,9}))?")
_COMMIT = re.compile(r"[0-9a-fA-F]{4,64}")
_DIGITS = 18
_SAY_EITHER = "give a session's number, 'last', or the hash of a commit; 'git rev-parse NAME' prints the hash of a branch"
OUTCOMES = {Outcome.SUCCEEDED: "completed", Outcome.FAILED: "failed"}


class WorkSession(Struct, frozen=True):
    """One session; `kind` and `outcome` are words of the session records, `failing` is the number of failed jobs when it ended."""

    number: int
    started_ms: int
    ended_ms: int
    kind: str
    detail: str
    commit: str
    outcome: str
    jobs_run: int
    jobs_failed: int
    jobs_gone: int
    restored: int
    work_ms: int
    saved_ms: int
    fetched_bytes: int
    failing: int

    @property
    def seconds(self) -> float:
        """Duration of the session in seconds."""
        return max(0, self.ended_ms - self.started_ms) / 1000


class SessionRun(Struct, frozen=True):
    """The last run of a job in a session.

    `ended_after_ms` counts from the beginning of the session; `size` is the size of all its products.
    """

    job_id: int
    source: str
    platform: str
    job_key: str
    builder: bytes
    outcome: int
    is_restored: bool
    duration_ms: int
    ended_after_ms: int
    size: int
    session: int

    @property
    def name(self) -> tuple[str, str, str, bytes]:
        """Identity of the run's job, which stays the same when the source is removed and added again."""
        return self.source.lower(), self.platform, self.job_key, self.builder

    @property
    def is_failed(self) -> bool:
        """Whether the run failed."""
        return self.outcome != Outcome.SUCCEEDED


def sessions(reader: Reader, limit: int = 0) -> list[WorkSession]:
    """Return the sessions that are kept, the last first; `limit` 0 = all."""
    return [
        WorkSession(*row) for row in reader.ask(f"{_SESSIONS_SQL} ORDER BY session_id DESC LIMIT ?", (min(limit, _NEXT) or -1,))
    ]


def session_named(reader: Reader, word: str) -> WorkSession:
    """Return the session that a word means: its number, `last`, or `last~2` for the second session before the last.

    Raises:
        UserError: the session does not exist, or the word does not name one.
    """
    match = _WORD.fullmatch(word)
    if match is None:
        raise UserError(f"'{word}' is not a session", hint="give its number, 'last', or 'last~1' for the session before the last")
    if number := match["number"]:
        sql, value = f"{_SESSIONS_SQL} AND session_id = ?", int(number)
    else:
        sql, value = f"{_SESSIONS_SQL} ORDER BY session_id DESC LIMIT 1 OFFSET ?", int(match["back"] or 0)
    row = reader.ask(sql, (value,)).fetchone()
    if row is None:
        found = reader.ask("SELECT MIN(session_id), MAX(session_id) FROM aptui_sessions WHERE session_id > 0").fetchone()
        known = f"sessions {found[0]} to {found[1]} are stored" if found[0] else "no session is stored yet"
        raise UserError(f"'{word}' is not a session", hint=known)
    return WorkSession(*row)


def session_at(reader: Reader, word: str) -> WorkSession:
    """Return the session with a name that `session_named` accepts, or the last session that ended at a commit.

    The commit is given by its hash or the first characters of its hash.

    Raises:
        UserError: the session does not exist, or the word means several commits.
    """
    if not _COMMIT.fullmatch(word) or _is_session(reader, word):
        if _WORD.fullmatch(word) is None:
            raise UserError(f"'{word}' is neither a session nor a commit", hint=_SAY_EITHER)
        return session_named(reader, word)
    sql = f"{_SESSIONS_SQL} AND commit_id GLOB ? ORDER BY session_id DESC"
    found = [WorkSession(*row) for row in reader.ask(sql, (f"{word.lower()}*",))]
    if not found:
        raise UserError(
            f"no stored session ended at commit '{word}'", hint="'aptui history --json' lists the commits of all sessions"
        )
    if len({session.commit for session in found}) > 1:
        raise UserError(f"several commits begin with '{word}'", hint="give more characters of the hash")
    return found[0]


def _is_session(reader: Reader, word: str) -> bool:
    """Whether a word is the number of a kept session. If not, its digits may be the beginning of a commit's hash."""
    sql = "SELECT 1 FROM aptui_sessions WHERE session_id = ? AND session_id > 0"
    return word.isdecimal() and len(word) <= _DIGITS and reader.ask(sql, (int(word),)).fetchone() is not None


def runs_of(reader: Reader, session: int) -> list[SessionRun]:
    """Return the runs of a session, in the order in which they ended."""
    return [_run(row) for row in reader.ask(f"{_RUNS_SQL} AND r.session_id = ? ORDER BY r.ended_after_ms, r.job_id", (session,))]


def runs_between(reader: Reader, after: int, until: int) -> Iterator[SessionRun]:
    """Yield the runs of sessions with numbers above `after`, up to and including `until`, session by session."""
    return map(_run, reader.ask(f"{_RUNS_SQL} AND r.session_id > ? AND r.session_id <= ? ORDER BY r.session_id", (after, until)))


def runs_until(reader: Reader, until: int) -> Iterator[SessionRun]:
    """Yield the last run of every job up to the end of a session, including runs before the first kept session."""
    sql = f"""{_RUNS_SQL} AND (r.job_id, r.session_id) IN
        (SELECT job_id, MAX(session_id) FROM aptui_session_runs WHERE session_id <= ? GROUP BY job_id)"""
    return map(_run, reader.ask(sql, (until,)))


class OutcomeChange(Struct, frozen=True):
    """The first run of a job's latest series of failed runs, or of successful runs.

    `commit` is the commit of the run's session, "" = unknown.
    `is_after_checkout`: the previous session has another commit, so the change of commit may be the cause of the new outcome.
    """

    is_failed: bool
    ended_ms: int
    commit: str
    is_after_checkout: bool
    author: str = ""


def first_failed(reader: Reader, job_ids: Sequence[int]) -> int:
    """Return the job that has been failing for the longest time, the first job if no time is stored."""
    sql = """SELECT JobID FROM Jobs WHERE JobID IN (SELECT value FROM json_each(?)) AND FirstFailLogTime > 0
        ORDER BY FirstFailLogTime LIMIT 1"""
    found = reader.ask(sql, (json.dumps(job_ids),)).fetchone()
    return found[0] if found else job_ids[0]


def read_first_failure(reader: Reader, job_id: int) -> int:
    """Return when a failed job failed for the first time since it was good (ms since 1970), 0 if no time is stored."""
    found = reader.ask("SELECT FirstFailLogTime FROM Jobs WHERE JobID = ?", (job_id,)).fetchone()
    return (found[0] if found else 0) or 0


def outcome_change(reader: Reader, job_id: int, head: Callable[[], str]) -> OutcomeChange | None:
    """Return the first run of a job's latest series of failed runs, or of successful runs; None if no run is stored.

    A series of failed runs also ends when the job becomes good without a run, because its inputs are as before the failure.

    Args:
        head: returns the commit that is checked out now; called if the first run belongs to the present session.
    """
    recorded = reader.ask(_OUTCOMES_SQL, (job_id,)).fetchall()
    last_ms = recorded[0][1] if recorded else 0
    recent = [(run.outcome, run.completed_ms, _NEXT, "") for run in reader.runs_of(job_id) if run.completed_ms > last_ms]
    if not recent + recorded:
        return None
    newest, *earlier = recent + recorded
    is_failed = newest[0] != Outcome.SUCCEEDED
    since_ms = read_first_failure(reader, job_id) if is_failed else 0
    series = takewhile(lambda row: (row[0] != Outcome.SUCCEEDED) is is_failed and row[1] >= since_ms, earlier)
    *_, (_outcome, ended_ms, session, commit) = newest, *series
    before = reader.ask(_COMMIT_BEFORE_SQL, (session,)).fetchone()
    commit = head() if session == _NEXT else commit
    is_after_checkout = bool(commit and before and before[0] and before[0] != commit)
    return OutcomeChange(is_failed, ended_ms, commit, is_after_checkout)


def _run(row: tuple[int, str, str, str, bytes, int, int, int, int, int, int]) -> SessionRun:
    return SessionRun(*row[:6], bool(row[6]), *row[7:])


# The usual duration of a job is the median of its earlier runs, and its noise is their median absolute deviation (MAD).
#
# If the durations of a job vary much, a slow run means little. So a run counts as slower only if its extra time exceeds three times
# the noise, a quarter of the median, and 30 ms. The noise of a few runs is not reliable; then the run must have taken twice as long
# as the median. If the last run made a draft, only runs for drafts are compared, otherwise only runs for final products.

LAST_RUNS = 12
"""Maximum number of earlier runs that are compared; these are the newest runs."""
_FEW = 3
"""Minimum number of earlier runs from which the noise of their durations can be estimated."""
_NOISES = 3.0
"""A run counts as slower than usual only if it exceeds the median by this multiple of the noise."""
_SIGMA = 1.4826
"""Ratio of the standard deviation to the MAD in a normal distribution."""
_LEAST_SHARE = 0.25
"""A run counts as slower than usual only if it exceeds the median by this share of the median."""
_LEAST_MS = 30.0
"""A run counts as slower than usual only if it exceeds the median by this time (milliseconds)."""
_LEAST_JOBS = 5
"""Minimum number of compared jobs of a builder; with fewer jobs, the builder is never reported as slower than before."""

# A run that took at most `_LEAST_MS` cannot count as slower. Most jobs have only such runs, so the query skips these jobs.
_CANDIDATES_SQL = f"""WITH good AS (SELECT job_id, session_id, duration_ms FROM aptui_session_runs
    WHERE outcome = 0 AND is_restored = 0 AND job_id IN (SELECT job_id FROM aptui_session_runs WHERE duration_ms > {_LEAST_MS})),
    ends AS (SELECT job_id, MAX(session_id) last, MIN(duration_ms) fastest, COUNT(*) runs FROM good GROUP BY job_id)
SELECT e.job_id FROM ends e JOIN aptui_session_runs r ON r.job_id = e.job_id AND r.session_id = e.last
WHERE e.runs > 1 AND r.duration_ms - e.fastest > {_LEAST_MS} AND r.duration_ms > e.fastest * {1 + _LEAST_SHARE}"""
_HISTORY_SQL = """SELECT r.job_id, r.duration_ms, r.is_draft FROM json_each(?) k JOIN aptui_session_runs r ON r.job_id = k.value
WHERE r.outcome = 0 AND r.is_restored = 0 ORDER BY r.job_id, r.session_id DESC"""
_BUILDERS_SQL = """SELECT BuilderGuid, JobID FROM Jobs WHERE JobID IN (SELECT job_id FROM aptui_session_runs
WHERE session_id > 0 AND outcome = 0 AND is_restored = 0)"""


class JobPace(Struct, frozen=True):
    """Duration of a job's last run (`now_ms`), compared with earlier runs.

    `median_ms` is the median of `runs` earlier runs, `noise_ms` the standard deviation, estimated from their MAD.
    """

    now_ms: float
    median_ms: float
    noise_ms: float
    runs: int

    @property
    def factor(self) -> float:
        """Duration of the last run divided by the median of earlier runs."""
        return self.now_ms / max(self.median_ms, 1.0)

    @property
    def is_slower(self) -> bool:
        """Whether the last run took longer than the median of earlier runs by more than `margin_ms`."""
        return self.runs > 0 and self.now_ms > self.median_ms + self.margin_ms

    @property
    def is_faster(self) -> bool:
        """Whether the last run was shorter than the median of earlier runs by more than `margin_ms`, or by more than half."""
        return self.runs > 0 and self.now_ms < self.median_ms - min(self.margin_ms, 0.5 * self.median_ms)

    @property
    def margin_ms(self) -> float:
        """The tolerance in ms: a run is slower only if it exceeds the median by more than this."""
        share = _LEAST_SHARE if self.runs >= _FEW else 1.0
        return max(_NOISES * self.noise_ms, share * self.median_ms, _LEAST_MS)

    def to_json(self) -> dict[str, float]:
        """Return the median duration, its noise and the factor, for JSON output."""
        return {
            "median_s": round(self.median_ms / 1000, 6),
            "noise_s": round(self.noise_ms / 1000, 6),
            "earlier_runs": self.runs,
            "factor": round(self.factor, 3),
        }


def pace(now_ms: float, before_ms: Sequence[float]) -> JobPace:
    """Compare a duration with earlier durations, the newest first."""
    known = before_ms[:LAST_RUNS]
    if not known:
        return JobPace(now_ms, now_ms, 0.0, 0)
    from statistics import median  # imported here for a faster start, because `statistics` imports `fractions`

    middle = median(known)
    return JobPace(now_ms, middle, _SIGMA * median(abs(one - middle) for one in known), len(known))


def paces(reader: Reader, job_ids: Iterable[int]) -> dict[int, JobPace]:
    """Return {job id: comparison of its last run with earlier runs}; jobs that have not run are left out."""
    durations: dict[int, list[float]] = defaultdict(list)
    makes_drafts: dict[int, int] = {}
    for job_id, duration_ms, is_draft in reader.ask(_HISTORY_SQL, (str([*job_ids]),)):
        if makes_drafts.setdefault(job_id, is_draft) == is_draft:
            durations[job_id].append(duration_ms)
    return {job_id: pace(listed[0], listed[1:]) for job_id, listed in durations.items()}


def slower_jobs(reader: Reader) -> dict[int, JobPace]:
    """Return the comparisons (`paces`) of jobs whose last run was slower than earlier runs; takes 0.5 s with 2,000,000 runs."""
    found = paces(reader, [job_id for (job_id,) in reader.ask(_CANDIDATES_SQL)])
    return {job_id: one for job_id, one in found.items() if one.is_slower}


def slower_builders(reader: Reader) -> dict[bytes, JobPace]:
    """Return {builder: comparison with earlier runs} of builders whose jobs have become slower in general.

    The durations in `JobPace` are percentages here: 100 is the median duration of a job's earlier runs.
    """
    from statistics import median  # imported here for a faster start

    owners: dict[int, bytes] = {job_id: builder for builder, job_id in reader.ask(_BUILDERS_SQL)}
    ratios: dict[bytes, list[float]] = defaultdict(list)
    for job_id, one in paces(reader, owners).items():
        if one.runs:
            ratios[owners[job_id]].append(100 * one.factor)
    found = {}
    for builder, listed in ratios.items():
        middle = median(listed)
        noise = _SIGMA * median(abs(one - middle) for one in listed) / max(1.0, len(listed) ** 0.5)
        if len(listed) >= _LEAST_JOBS and middle > 100 * (1 + _LEAST_SHARE) and middle - _NOISES * noise > 100:
            found[builder] = JobPace(middle, 100.0, noise, len(listed))
    return found
