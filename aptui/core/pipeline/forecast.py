"""Pending work in milliseconds: estimated from the last run of each job, or from runs of its builder if it never ran.

This module computes the amount of work and its longest chain. The time that it takes is computed by `engine.loop.engine_reports`,
which has a clock.

Tests: `tests/core/pipeline/test_forecast.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import islice

from msgspec import Struct

from aptui.core.model import Job, JobState, PathKey
from aptui.core.pipeline.jobs import Jobs
from aptui.core.pipeline.queues import Waiters

OVERHEAD_MS = 1.0
"""Duration of a job apart from its builder's work; for copies and restored results it is the whole duration."""
MOST_JOBS = 4_000
"""Maximum number of jobs of each kind that are examined (5 ms); each other job counts as the average of these.

With more waiting jobs, chains are ignored.
"""
_UNDER_WAY = -1.0


class PendingWork(Struct, frozen=True):
    """The work that is pending.

    `work_ms`: total of all jobs; `chain_ms`: the longest chain of jobs that wait for each other, or for one resource;
    `unknown_count`: jobs of builders that never ran; `job_count`: the number of jobs. New sources that wait for their bytes or
    their analysis count with one job per platform.
    """

    work_ms: float
    chain_ms: float
    unknown_count: int
    job_count: float = 0.0


def pending_work(jobs: Jobs, elapsed_ms: Mapping[int, float], most: int = MOST_JOBS) -> PendingWork:
    """Return the pending work.

    Args:
        elapsed_ms: {run key: ms since it started}.
        most: maximum number of jobs of each kind that are examined.
    """
    usual = {builder: jobs.reports.usual_ms(builder) for builder in jobs.builders}

    def estimate_ms(job: Job) -> float:
        known = job.duration_ms if _is_measured(job) else usual.get(job.builder)
        return OVERHEAD_MS + (known or 0.0)

    waiting_count = sum(len(jobs.waiters.of(key)) for key in jobs.waiters.list_awaited())
    after = _after(jobs.waiters, estimate_ms) if waiting_count <= most else {}
    work = chain = job_count = 0.0
    held: Counter[str] = Counter()
    unknown = 0
    for group, scale in _groups(jobs, most, waiting_count):
        job_count += scale * len(group)
        for job in group:
            need = estimate_ms(job)
            if job.state is JobState.RUNNING:
                need = max(OVERHEAD_MS, need - elapsed_ms.get(job.run_key, 0.0))
            work += need * scale
            if jobs.resources is not None:
                for name in jobs.resources.needs(job):
                    held[name] += round(need * scale)
            chain = max(chain, need + after.get(job.source.key, 0.0))
            if not _is_measured(job) and usual.get(job.builder) is None:
                unknown += 1
    for builder, expected in _count_unplanned(jobs, most).items():
        work += expected * (OVERHEAD_MS + (usual.get(builder) or 0.0))
        job_count += expected
        unknown += usual.get(builder) is None
    if jobs.resources is not None:
        chain = max(chain, *(held[name] / limit for name, limit in jobs.resources.limits.items()))
    return PendingWork(work, chain, unknown, job_count)


def _count_unplanned(jobs: Jobs, most: int) -> dict[bytes, float]:
    """Return {builder: expected number of jobs} for new sources that are not read or analysed yet."""
    planner, expected = jobs.planner, dict.fromkeys(jobs.builders, 0.0)
    ready = [job for job in islice(jobs.ready, most) if job.is_analysis]
    running = [job for job in jobs.running.values() if job.is_analysis]
    for group, scale in ((ready, jobs.ready.analysis_count / len(ready) if ready else 1.0), (running, 1.0)):
        for analysis in group:
            siblings = (job for job in analysis.source.jobs.values() if job.builder == analysis.builder and not job.is_analysis)
            if next(siblings, None) is None:
                platforms = planner.platforms_of(jobs.builders[analysis.builder], analysis.source)
                expected[analysis.builder] += scale * len(platforms)
    unread = [key for key in islice(jobs.memory.hashing, most) if key not in jobs.memory.sources]
    scale = len(jobs.memory.hashing) / most if len(jobs.memory.hashing) > most else 1.0
    for fact in map(jobs.memory.hashing.__getitem__, unread):
        for builder in planner.builders_for(fact.rel, fact.scan_folder):
            expected[builder.uuid] += scale * len(planner.platforms_of(builder, fact))
    return {builder: count for builder, count in expected.items() if count}


def _is_measured(job: Job) -> bool:
    return not (job.origin or job.is_fetched) and (job.duration_ms > 0 or job.completed_ms > 0)


def _groups(jobs: Jobs, most: int, waiting_count: int) -> list[tuple[list[Job], float]]:
    """Return the running, ready and waiting jobs; each group has the number of jobs that one examined job represents."""
    running = [job for job in jobs.running.values() if not job.is_analysis]
    ready = [job for job in islice(jobs.ready, most) if not job.is_analysis]
    ready_count = len(jobs.ready) - jobs.ready.analysis_count
    waiting = dict.fromkeys(islice(jobs.waiters, most))
    blocked = [job for job in waiting if job.state is JobState.WAITING and not job.is_analysis]
    return [(running, 1.0), (ready, ready_count / len(ready) if ready else 1.0), (blocked, max(1.0, waiting_count / most))]


def _after(waiters: Waiters, expected: Callable[[Job], float]) -> dict[PathKey, float]:
    """Return {key: total time of the jobs that wait for the key, one after the other}; a job that waits for itself counts once."""
    found: dict[PathKey, float] = {}
    for start in waiters.list_awaited():
        stack = [start]
        while stack:
            key = stack[-1]
            followers = [job for job in waiters.of(key) if job.state is JobState.WAITING and not job.is_analysis]
            if key not in found:
                found[key] = _UNDER_WAY
                stack += [job.source.key for job in followers if job.source.key in waiters and job.source.key not in found]
                continue
            stack.pop()
            if found[key] == _UNDER_WAY:
                found[key] = max((expected(job) + max(0.0, found.get(job.source.key, 0.0)) for job in followers), default=0.0)
    return found
