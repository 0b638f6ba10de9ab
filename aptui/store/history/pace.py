"""How long jobs usually take, and which take longer now: the median of earlier runs, and how far these lie from it (MAD).

One slow run says little where runs differ, and much where they do not. So a run counts as slower when it lies beyond the
noise of those before it, and is by a fourth and some milliseconds slower than the median. With only a few earlier runs there is
no noise to speak of: then it must have taken twice as long. Drafts are compared with drafts and finals with finals: the one that
was made last decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct

from aptui.store.queries.reader import Reader

LAST_RUNS = 12
"""Earlier runs that are looked at, the newest."""
_FEW = 3
_NOISES = 3.0
_SIGMA = 1.4826
"""Of a normal distribution, the standard deviation over the MAD."""
_LEAST_SHARE = 0.25
_LEAST_MS = 30.0
_LEAST_JOBS = 5
"""Of a builder, before one says that it became slower."""

_CANDIDATES_SQL = f"""WITH good AS (SELECT job_id, session_id, duration_ms FROM aptui_session_runs
    WHERE outcome = 0 AND is_restored = 0),
    ends AS (SELECT job_id, MAX(session_id) last, MIN(duration_ms) fastest, COUNT(*) runs FROM good GROUP BY job_id)
SELECT e.job_id FROM ends e JOIN aptui_session_runs r ON r.job_id = e.job_id AND r.session_id = e.last
WHERE e.runs > 1 AND r.duration_ms - e.fastest > {_LEAST_MS} AND r.duration_ms > e.fastest * {1 + _LEAST_SHARE}"""
_HISTORY_SQL = """SELECT r.job_id, r.duration_ms, r.is_draft FROM json_each(?) k JOIN aptui_session_runs r ON r.job_id = k.value
WHERE r.outcome = 0 AND r.is_restored = 0 ORDER BY r.job_id, r.session_id DESC"""
_BUILDERS_SQL = """SELECT BuilderGuid, JobID FROM Jobs WHERE JobID IN (SELECT job_id FROM aptui_session_runs
WHERE session_id > 0 AND outcome = 0 AND is_restored = 0)"""


class JobPace(Struct, frozen=True):
    """How long something takes now (`now_ms`), and usually (`median_ms`, with `noise_ms` around it) over `runs` earlier runs."""

    now_ms: float
    median_ms: float
    noise_ms: float
    runs: int

    @property
    def factor(self) -> float:
        """How many times as long it takes."""
        return self.now_ms / max(self.median_ms, 1.0)

    @property
    def is_slower(self) -> bool:
        """Whether that is beyond the noise."""
        return self.runs > 0 and self.now_ms > self.median_ms + self.margin_ms

    @property
    def is_faster(self) -> bool:
        """Whether it takes less time, beyond the noise."""
        return self.runs > 0 and self.now_ms < self.median_ms - min(self.margin_ms, 0.5 * self.median_ms)

    @property
    def margin_ms(self) -> float:
        """How far from the median counts as noise."""
        share = _LEAST_SHARE if self.runs >= _FEW else 1.0
        return max(_NOISES * self.noise_ms, share * self.median_ms, _LEAST_MS)

    def to_json(self) -> dict[str, float]:
        """Return the usual duration and its noise as programs get them."""
        return {
            "median_s": round(self.median_ms / 1000, 6),
            "noise_s": round(self.noise_ms / 1000, 6),
            "earlier_runs": self.runs,
            "factor": round(self.factor, 3),
        }


def pace(now_ms: float, before_ms: Sequence[float]) -> JobPace:
    """Compare a duration with those before it, the newest first."""
    known = before_ms[:LAST_RUNS]
    if not known:
        return JobPace(now_ms, now_ms, 0.0, 0)
    from statistics import median  # for start-up: it brings fractions

    middle = median(known)
    return JobPace(now_ms, middle, _SIGMA * median(abs(one - middle) for one in known), len(known))


def paces(reader: Reader, job_ids: Iterable[int]) -> dict[int, JobPace]:
    """Return the pace of these jobs, of those that ran at all."""
    durations: dict[int, list[float]] = defaultdict(list)
    makes_drafts: dict[int, int] = {}
    for job_id, duration_ms, is_draft in reader.ask(_HISTORY_SQL, (_format_ids(job_ids),)):
        if makes_drafts.setdefault(job_id, is_draft) == is_draft:
            durations[job_id].append(duration_ms)
    return {job_id: pace(listed[0], listed[1:]) for job_id, listed in durations.items()}


def slower_jobs(reader: Reader) -> dict[int, JobPace]:
    """Return {job id: its pace} of the jobs whose last run was slower than those before; half a second at 2,000,000 runs."""
    found = paces(reader, [job_id for (job_id,) in reader.ask(_CANDIDATES_SQL)])
    return {job_id: one for job_id, one in found.items() if one.is_slower}


def slower_builders(reader: Reader) -> dict[bytes, JobPace]:
    """Return {builder: its pace} where the jobs of a builder became slower together: ratios to their own medians, in percent."""
    from statistics import median  # for start-up

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


def _format_ids(job_ids: Iterable[int]) -> str:
    return f"[{','.join(map(str, job_ids))}]"
