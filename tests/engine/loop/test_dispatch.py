"""The engine delays some results, so that they share a commit with later results, and offers free slots to jobs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from aptui.core.orders import Outcome, RunResult
from aptui.engine.loop import dispatch
from aptui.engine.loop.context import Inbox
from aptui.engine.loop.dispatch import QueuePause, RunDispatcher


def dispatcher(*, is_live: bool, ready: int, has_resources: bool = False, running: int = 8) -> RunDispatcher:
    """Return a dispatcher that has held a result since second 0."""
    resources = object() if has_resources else None
    pipeline = SimpleNamespace(jobs=SimpleNamespace(running=dict.fromkeys(range(running)), ready=range(ready), resources=resources))
    context = SimpleNamespace(roots={}, live=object() if is_live else None, pipeline=pipeline)
    runs = RunDispatcher(cast("Any", context), runs_builders=True)
    runs._queue_results([RunResult(1, Outcome.SUCCEEDED)])
    runs._results_since = 0.0
    return runs


def test_batch_holds_results_longer_than_a_live_engine_if_jobs_are_ready() -> None:
    assert dispatcher(is_live=False, ready=5).hold_s(0.0) == dispatch._BATCH_HOLD_S > dispatch._HOLD_S


@pytest.mark.parametrize(
    "how",
    [
        {"is_live": True, "ready": 5},  # a client of the live engine may wait for the product
        {"is_live": False, "ready": 0},  # no job is ready, so the remaining jobs may wait for this result
        {"is_live": False, "ready": 5, "has_resources": True},  # a job may wait for a resource that the result releases
    ],
)
def test_result_is_delayed_only_briefly_if_a_client_or_job_may_need_it(how: dict[str, Any]) -> None:
    assert dispatcher(**how).hold_s(0.0) == dispatch._HOLD_S


def test_result_is_not_delayed_after_all_runs_have_reported() -> None:
    assert dispatcher(is_live=False, ready=5, running=1).hold_s(0.0) == 0.0


@pytest.mark.parametrize(("is_critical", "is_analysis"), [(False, False), (True, False), (False, True)])
def test_critical_slot_is_offered_only_to_critical_jobs_and_analyses(is_critical: bool, is_analysis: bool) -> None:
    first = SimpleNamespace(is_critical=is_critical, is_analysis=is_analysis)
    ready = SimpleNamespace(peek=lambda: first)
    context = SimpleNamespace(roots={}, live=None, pipeline=SimpleNamespace(jobs=SimpleNamespace(ready=ready)), inbox=Inbox())
    runs = RunDispatcher(cast("Any", context), runs_builders=True)
    runs.pool_if_any = cast("Any", SimpleNamespace(free=0, free_for_critical=1))

    offered = runs.offer_slots(QueuePause())

    assert (offered is not None) is (is_critical or is_analysis)
