"""Estimates of the remaining time: by the pace so far, by the longest chain of jobs, and when the time is unknown."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from aptui.core.notices import Progress
from aptui.core.pipeline.pipeline import PendingWork
from aptui.engine.loop.engine_reports import Forecaster

COUNTS = Progress(1, 0, 0, 0, 50, 2, 0, 0, is_scanning=False)
WORK = PendingWork(60_000.0, 10_000.0, 0)


class Harness:
    """A forecaster for an engine with four workers, and the inputs of the forecast."""

    def __init__(self, work: PendingWork = WORK, cost_s: float = 0.0) -> None:
        self.work, self.spent, self.sums, self.cost_s, self.spent_s = work, (0, 0), 0, cost_s, 0.0
        self.forecaster = Forecaster(self.sum_pending, lambda: self.spent, 4, lambda: self.spent_s)

    def sum_pending(self, _elapsed: dict[int, float]) -> PendingWork:
        self.sums += 1
        self.spent_s += self.cost_s
        return self.work

    def at(self, now: float, done: int = 0, spent_ms: int = 0, **changes: object) -> Progress:
        self.spent = done, spent_ms
        return self.forecaster.complete_progress(replace(COUNTS, jobs_done=done, **changes), (), now)


@pytest.mark.parametrize(("chain_ms", "expected"), [(10_000.0, (30_000, 15_000)), (50_000.0, (50_000, 50_000))])
def test_estimate_is_the_pending_work_divided_by_the_pace_but_at_least_the_longest_chain(
    chain_ms: float, expected: tuple[int, int]
) -> None:
    harness = Harness(PendingWork(60_000.0, chain_ms, 0))
    harness.at(100.0)

    progress = harness.at(110.0, done=20, spent_ms=19_980)

    assert (progress.eta_ms, progress.least_ms) == expected


def test_estimate_is_unknown_during_a_scan_and_before_the_first_result() -> None:
    scanning, idle = Harness(), Harness()
    for harness in (scanning, idle):
        harness.at(100.0)

    assert scanning.at(110.0, 20, 20_000, is_scanning=True).eta_ms == -1
    assert idle.at(110.0).eta_ms == -1


def test_estimate_is_zero_when_nothing_is_pending() -> None:
    harness = Harness()
    harness.at(100.0)

    assert harness.at(110.0, 20, 20_000, jobs_waiting=0, jobs_running=0).eta_ms == 0


def test_sources_that_wait_for_their_analysis_are_part_of_the_estimate() -> None:
    harness = Harness()
    harness.at(100.0, jobs_waiting=0, jobs_running=0, analyses_waiting=50)

    assert harness.at(110.0, 20, 19_980, analyses_waiting=50, jobs_waiting=0).eta_ms == 30_000


def test_jobs_of_builders_that_never_ran_are_estimated_by_the_mean_duration_of_all_runs() -> None:
    harness = Harness(replace(WORK, unknown_count=1, job_count=40.0))
    harness.at(100.0, done=80, spent_ms=0)

    progress = harness.at(110.0, done=100, spent_ms=19_980)

    assert (progress.eta_ms, progress.least_ms) == (30_000 + 99, 15_000)


def test_jobs_with_stored_results_are_estimated_by_the_job_rate() -> None:
    harness = Harness(replace(WORK, job_count=40.0))
    harness.at(100.0)
    harness.spent = 1, 1_000

    progress = harness.forecaster.complete_progress(replace(COUNTS, jobs_done=20), (), 110.0)

    assert (progress.eta_ms, progress.least_ms) == (20_000, -1)


def test_pending_work_is_summed_at_most_once_a_second() -> None:
    quick, slow = Harness(), Harness(cost_s=0.1)
    for harness in (quick, slow):
        for tick in range(100):
            harness.at(100.0 + tick / 10, done=tick, spent_ms=1_000 * tick)

    assert (quick.sums, slow.sums) == (10, 2)


def test_estimate_decreases_between_two_measurements() -> None:
    harness = Harness()
    harness.at(100.0)
    first = harness.at(110.0, done=20, spent_ms=19_980)
    later = harness.at(110.5, done=21, spent_ms=20_979)

    assert first.eta_ms - later.eta_ms >= 400
