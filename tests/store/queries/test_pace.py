"""Jobs that became slower: decided by the median and the noise of earlier runs, not by a fixed number."""

from __future__ import annotations

import pytest

from aptui.store.queries.session_history import LAST_RUNS, pace, paces, slower_builders, slower_jobs
from tests.store.conftest import BUILDER, Store
from tests.store.queries.test_session_history import job, session_row


@pytest.mark.parametrize(
    ("now", "before", "is_slower"),
    [
        (1000, [], False),  # without earlier runs no run is slower
        (210, [100], True),  # more than twice as long as the only earlier run
        (190, [100], False),
        (300, [100, 105, 95, 100, 102], True),
        (128, [100, 100, 100, 100], False),  # more than a quarter slower, but less than 30 ms slower
        (131, [100, 100, 100, 100], True),
        (9000, [5000, 9500, 4000, 10000, 5500], False),  # the durations of earlier runs differ as much
        (9000, [5000, 5100, 4900, 5050, 5000], True),
        (29, [0, 0, 0], False),
        (31, [0, 0, 0], True),
    ],
)
def test_job_is_slower_only_if_it_exceeds_the_noise_of_earlier_runs(now: int, before: list[float], is_slower: bool) -> None:
    assert pace(now, before).is_slower is is_slower


def test_one_slow_earlier_run_does_not_change_the_median() -> None:
    found = pace(300, [100, 2000, 101, 99, 100])

    assert (found.median_ms, found.is_slower, round(found.factor)) == (100, True, 3)


def test_job_counts_as_faster_only_if_the_gain_exceeds_the_noise() -> None:
    assert pace(100, [500, 510, 490]).is_faster
    assert not pace(480, [500, 510, 490]).is_faster


def test_pace_uses_only_the_last_runs() -> None:
    assert pace(300, [300.0] * LAST_RUNS + [1.0] * 50).median_ms == 300


def sessions_of(store: Store, *durations: dict[int, int], **changes: object) -> None:
    """Record one session for each {job: its duration}."""
    for number, jobs in enumerate(durations, 1):
        for job_id, duration_ms in jobs.items():
            job(store, job_id, 100 * number + job_id, duration_ms=duration_ms, **changes)
        store.put(put_session=[session_row()])


def test_job_is_slower_until_a_run_has_its_usual_duration_again(store: Store) -> None:
    sessions_of(store, {1: 100, 2: 100}, {1: 104, 2: 100}, {1: 102}, {1: 400, 2: 120})
    reader = store.reader()

    assert list(slower_jobs(reader)) == [1]
    assert (slower_jobs(reader)[1].median_ms, paces(reader, [2])[2].runs) == (102, 2)

    job(store, 1, 900, duration_ms=101)
    store.put(put_session=[session_row()])
    assert slower_jobs(reader) == {}


def test_failed_and_restored_runs_do_not_affect_slower_jobs(store: Store) -> None:
    sessions_of(store, {1: 100}, {1: 100}, {1: 100})
    sessions_of(store, {1: 9000}, outcome=1)
    job(store, 1, 990, duration_ms=9000, origin="from the store")
    store.put(put_session=[session_row()])

    assert slower_jobs(store.reader()) == {}


def test_builder_is_slower_if_most_of_its_jobs_are(store: Store) -> None:
    usual = dict.fromkeys(range(1, 9), 100)
    sessions_of(store, usual, usual, {number: 150 + number for number in usual})

    found = slower_builders(store.reader())
    assert list(found) == [BUILDER]
    assert 1.5 < found[BUILDER].factor < 1.6


def test_builder_with_one_slow_job_is_not_slower(store: Store) -> None:
    usual = dict.fromkeys(range(1, 9), 100)
    sessions_of(store, usual, usual, usual | {3: 5000})

    assert slower_builders(store.reader()) == {}
    assert list(slower_jobs(store.reader())) == [3]


def test_no_job_is_slower_without_earlier_runs(store: Store) -> None:
    assert slower_jobs(store.reader()) == {}
    assert slower_builders(store.reader()) == {}


def draft(store: Store, job_id: int, run_key: int, duration_ms: int) -> None:
    """Let a job make a draft in a separate session."""
    job(store, job_id, run_key, duration_ms=duration_ms)
    store.put(put_draft=[(job_id, None)])
    store.put(put_session=[session_row()])


def final(store: Store, job_id: int, run_key: int, duration_ms: int) -> None:
    """Let a job make a final in a separate session."""
    job(store, job_id, run_key, duration_ms=duration_ms)
    store.put(drop_draft=[(job_id,)])
    store.put(put_session=[session_row()])


def test_final_is_not_compared_with_its_draft(store: Store) -> None:
    draft(store, 1, 10, 100)
    final(store, 1, 20, 5000)

    assert slower_jobs(store.reader()) == {}
    assert paces(store.reader(), [1])[1].runs == 0


def test_drafts_are_compared_with_drafts_and_finals_with_finals(store: Store) -> None:
    draft(store, 1, 10, 100)
    final(store, 1, 20, 5000)
    draft(store, 1, 30, 300)
    slow_draft = slower_jobs(store.reader())
    final(store, 1, 40, 5100)
    usual_final = slower_jobs(store.reader())
    final(store, 1, 50, 20000)

    assert (slow_draft[1].median_ms, slow_draft[1].now_ms) == (100, 300)
    assert usual_final == {}
    assert slower_jobs(store.reader())[1].median_ms == 5050


def test_pruned_sessions_keep_drafts_and_finals_apart(store: Store) -> None:
    draft(store, 1, 10, 100)
    final(store, 1, 20, 5000)
    store.put(prune_session=[(1,)])

    assert slower_jobs(store.reader()) == {}
