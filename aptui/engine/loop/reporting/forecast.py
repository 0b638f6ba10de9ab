"""When the engine will rest: the pending work over the pace at which it is done, never less than its longest chain.

While that is not known, for builders that never ran or results that are restored, it is the pending jobs over the rate at
which jobs end. Every display of the remaining time shows this estimate.

Asked ten times a second; the work is added up anew only now and then, so that it costs a fiftieth of the time at most.

Tests: `tests/engine/loop/reporting/test_forecast.py`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection

from msgspec.structs import replace

from aptui.core.notices import Progress
from aptui.core.pipeline.forecast import OVERHEAD_MS, PendingWork

_ESTIMATE_EVERY_S = 1.0
_MOST_SHARE = 50
"""Between two looks lies so many times what the last one took."""
_WINDOW_S = 30.0
_LEAST_WINDOW_S = 1.0
_RESTORED_SHARE = 0.5

EstimatePending = Callable[[dict[int, float]], PendingWork]
"""{run key: ms it runs already} → what is pending."""


class Forecaster:
    """The estimates of one engine.

    Args:
        estimate: sums the pending work.
        spent: returns (runs of jobs that were measured, ms that they took) since the engine opened.
        workers: how many jobs run at a time.
        cost_clock: clock in seconds that measures the cost of an estimate.
    """

    def __init__(
        self,
        estimate: EstimatePending,
        spent: Callable[[], tuple[int, int]],
        workers: int,
        cost_clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._estimate, self._spent, self._workers, self._cost_clock = estimate, spent, max(1, workers), cost_clock
        self._began_s: dict[int, float] = {}
        self._samples: deque[tuple[float, float, int, int]] = deque()
        self._work: PendingWork | None = None
        self._estimated_s = self._due_s = 0.0

    def complete_progress(self, counts: Progress, at_work: Collection[int], now: float) -> Progress:
        """Return `counts` with an estimate, unchanged where there is none.

        Args:
            at_work: run keys of the jobs that workers are at.
            now: monotonic seconds.
        """
        self._began_s = {key: self._began_s.get(key, now) for key in at_work}
        if counts.is_scanning or not counts.pending_count:
            self._samples.clear()
            self._work = None
            return counts if counts.is_scanning else replace(counts, eta_ms=0)
        elapsed = {key: 1000 * (now - began) for key, began in self._began_s.items()}
        pace = self._pace(counts, sum(elapsed.values()), now)
        if self._work is None or now >= self._due_s:
            self._add_up(elapsed, now)
        work = self._work
        if work is None:
            return counts
        gone_ms = 1000 * (now - self._estimated_s)
        if pace <= 0 or work.unknown_count:
            each_ms = self._job_interval_ms()
            return replace(counts, eta_ms=max(1, int(work.job_count * each_ms - gone_ms))) if each_ms else counts
        least = max(work.chain_ms, work.work_ms / max(pace, self._workers))
        likely = max(work.chain_ms, work.work_ms / pace)
        return replace(
            counts,
            eta_ms=max(1, int(likely - gone_ms)),
            least_ms=max(1, int(least - gone_ms)),
            measured_percent=int(100 * work.measured_ms / work.work_ms),
        )

    def _add_up(self, elapsed: dict[int, float], now: float) -> None:
        began = self._cost_clock()
        self._work = self._estimate(elapsed)
        self._estimated_s, self._due_s = now, now + max(_ESTIMATE_EVERY_S, _MOST_SHARE * (self._cost_clock() - began))

    def _job_interval_ms(self) -> float:
        """Return how often a job ended in the last seconds, 0 if that is not known."""
        (then, _, _, before), (now, _, _, done) = self._samples[0], self._samples[-1]
        return 1000 * (now - then) / (done - before) if done > before and now - then >= _LEAST_WINDOW_S else 0.0

    def _pace(self, counts: Progress, running_ms: float, now: float) -> float:
        """Return how many ms of work are done in one, 0 when nobody can say."""
        runs, spent_ms = self._spent()
        done = counts.jobs_done + counts.jobs_failed
        self._samples.append((now, spent_ms + OVERHEAD_MS * runs + running_ms, runs, done))
        while self._samples[0][0] < now - _WINDOW_S:
            self._samples.popleft()
        then, before_ms, runs_before, done_before = self._samples[0]
        if now - then < _LEAST_WINDOW_S:
            return 0.0
        if runs - runs_before < _RESTORED_SHARE * (done - done_before):
            return 0.0  # most results were there already: what runs take says nothing of them
        return (self._samples[-1][1] - before_ms) / (1000 * (now - then))
