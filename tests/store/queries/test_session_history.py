"""Sessions: the recorded runs, the pruning of old sessions, and queries."""

from __future__ import annotations

from typing import Any

import pytest

from aptui.shared.errors import UserError
from aptui.store.queries.session_history import (
    LAST_RUNS,
    OutcomeChange,
    outcome_change,
    pace,
    paces,
    runs_of,
    runs_until,
    session_named,
    sessions,
    slower_builders,
    slower_jobs,
)
from tests.store.conftest import BUILDER, Store, analysis_row, job_row, product_row, source_row

SECOND = 1000


def run_row(job_id: int, run_key: int, **changes: Any) -> tuple[object, ...]:
    values: dict[str, Any] = {
        "job_id": job_id, "run_key": run_key, "completed_ms": 5 * SECOND, "duration_ms": 100, "outcome": 0, "reason": "new source",
        "error": "", "log_file": "", "fingerprint": 7, "version": "1", "products": b"", "step": "", "origin": "",
    }  # fmt: skip
    return tuple((values | changes).values())


def session_row(started_ms: int = 1 * SECOND, ended_ms: int = 9 * SECOND, **changes: str | int) -> tuple[object, ...]:
    values: dict[str, str | int] = {"kind": "edit", "detail": "", "commit": "", "outcome": "", "saved_ms": 0, "fetched": 0}
    return (started_ms, ended_ms, *(values | changes).values())


def job(store: Store, job_id: int, run_key: int, **changes: Any) -> None:
    """Let a job run, with one product of 10 bytes."""
    is_failed = changes.get("outcome", 0) == 1
    first_fail_ms = changes.pop("first_fail_ms", 0)
    status = {"state": "failed", "status": 2, "first_fail_ms": first_fail_ms} if is_failed else {}
    store.put(
        put_source=[source_row(job_id, f"{job_id}.png")],
        put_job=[job_row(job_id, job_id, run_key=run_key, **status)],
        put_product=[product_row(job_id, job_id, f"linux/{job_id}.png")],
        put_run=[run_row(job_id, run_key, **changes)],
    )


def test_session_has_the_runs_since_the_previous_session(store: Store) -> None:
    job(store, 1, 5)
    store.put(put_session=[session_row(kind="start")])
    job(store, 2, 6, outcome=1, duration_ms=40)
    job(store, 3, 7, origin="from the store")
    store.put(put_session=[session_row(2 * SECOND)])

    second, first = sessions(store.reader())
    assert (first.number, first.kind, first.jobs_run, first.failing) == (1, "start", 1, 0)
    assert (second.jobs_run, second.jobs_failed, second.restored, second.work_ms, second.failing) == (2, 1, 1, 40, 1)
    assert second.detail == "new source"
    runs = runs_of(store.reader(), 2)
    assert [(run.source, run.is_failed, run.is_restored, run.duration_ms, run.size) for run in runs] == [
        ("2.png", True, False, 40, 10), ("3.png", False, True, 100, 10),
    ]  # fmt: skip
    assert {run.ended_after_ms for run in runs} == {3 * SECOND}


def test_failure_of_a_job_that_could_not_run_ends_with_its_session(store: Store) -> None:
    job(store, 1, 5, outcome=1, first_fail_ms=5 * SECOND)
    store.put(put_session=[session_row(commit="a")])
    job(store, 1, 6, outcome=1, completed_ms=0, first_fail_ms=5 * SECOND)
    store.put(put_session=[session_row(11 * SECOND, 12 * SECOND, commit="b")])

    assert [run.ended_after_ms for run in runs_of(store.reader(), 2)] == [1 * SECOND]
    assert outcome_change(store.reader(), 1, lambda: "head") == OutcomeChange(True, 5 * SECOND, "a", False)


def test_session_of_a_killed_engine_begins_with_its_first_run_although_a_job_could_not_run(store: Store) -> None:
    job(store, 1, 5, completed_ms=0, outcome=1)
    job(store, 2, 6, completed_ms=7 * SECOND)
    store.put(put_session=[session_row(0, 0)])

    (session,) = sessions(store.reader())
    assert (session.started_ms, session.ended_ms) == (7 * SECOND - 100, 7 * SECOND)


def test_failed_analysis_is_counted_as_failing_in_its_session(store: Store) -> None:
    job(store, 1, 5)
    store.put(put_analysis=[analysis_row(1, state="failed", fingerprint=None)], put_session=[session_row()])

    assert sessions(store.reader())[0].failing == 1


def test_session_without_runs_is_not_listed(store: Store) -> None:
    job(store, 1, 5)
    store.put(put_session=[session_row()])
    store.put(put_session=[session_row()])
    store.put(put_session=[session_row(kind="checkout", detail="a → b")])

    assert [one.kind for one in sessions(store.reader())] == ["checkout", "edit"]
    assert sessions(store.reader(), 10**30) == sessions(store.reader())


def test_killed_engine_leaves_a_session_with_an_unknown_start(store: Store) -> None:
    archive = store.archive().sessions
    assert not archive.is_session_pending()

    job(store, 1, 5, completed_ms=3000, duration_ms=1000)
    job(store, 2, 6, completed_ms=7000, duration_ms=500)
    assert archive.is_session_pending()
    store.put(put_session=[session_row(0, 0, kind="start", outcome="killed")])

    found = sessions(store.reader())[0]
    assert (found.started_ms, found.ended_ms, found.outcome, found.jobs_run) == (2000, 7000, "killed", 2)
    assert not archive.is_session_pending()


def test_deleted_job_keeps_its_name_and_number(store: Store) -> None:
    job(store, 1, 5)
    job(store, 2, 6)
    store.put(put_session=[session_row()])
    store.put(drop_source=[(2,)])
    store.put(drop_job=[(1,)])

    assert [(run.source, run.platform, run.job_key, run.builder) for run in runs_of(store.reader(), 1)] == [
        ("1.png", "linux", "Image", BUILDER), ("2.png", "linux", "Image", BUILDER),
    ]  # fmt: skip
    assert store.archive().next_ids()[1] == 3


def test_pruning_a_session_keeps_the_last_run_of_each_job(store: Store) -> None:
    job(store, 1, 5, duration_ms=10)
    job(store, 2, 6, duration_ms=20)
    store.put(put_session=[session_row(ended_ms=9 * SECOND)])
    job(store, 2, 7, duration_ms=30)
    store.put(put_session=[session_row(ended_ms=20 * SECOND)])
    archive = store.archive().sessions

    assert archive.find_outdated_session(9 * SECOND, 100, 100) == 0
    assert archive.find_outdated_session(10 * SECOND, 100, 100) == 1
    assert archive.find_outdated_session(0, 2, 100) == 1
    assert archive.find_outdated_session(0, 100, 1) == 1
    store.put(prune_session=[(1,)])

    assert [one.number for one in sessions(store.reader())] == [2]
    assert {run.source: (run.duration_ms, run.session) for run in runs_until(store.reader(), 0)} == {
        "1.png": (10, 0), "2.png": (20, 0)
    }  # fmt: skip
    assert {run.source: run.duration_ms for run in runs_until(store.reader(), 2)} == {"1.png": 10, "2.png": 30}
    assert archive.find_outdated_session(99 * SECOND, 0, 0) == 0, "the only session is not pruned"


def test_large_session_is_pruned_in_parts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from aptui.store.db import statements

    few = tuple(
        (sql.replace(f"LIMIT {statements.PRUNED_AT_ONCE}", "LIMIT 2"), shape)
        for sql, shape in statements.STATEMENTS["prune_session"]
    )
    monkeypatch.setitem(statements.STATEMENTS, "prune_session", few)
    for number in (1, 2, 3):
        job(store, number, number)
    store.put(put_session=[session_row()])

    store.put(prune_session=[(1,)])
    assert [(one.number, one.jobs_run) for one in sessions(store.reader())] == [(1, 3)]
    assert len(runs_of(store.reader(), 1)) == 1

    store.put(prune_session=[(1,)])
    assert sessions(store.reader()) == []
    assert len(list(runs_until(store.reader(), 0))) == 3


def test_session_is_named_by_its_number_or_its_distance_from_the_last(store: Store) -> None:
    for number in (1, 2, 3):
        job(store, number, number)
        store.put(put_session=[session_row()])
    reader = store.reader()

    assert [session_named(reader, word).number for word in ("2", "#2", "last", "last~2")] == [2, 2, 3, 1]


@pytest.mark.parametrize("word", ["", "x", "-1", "last~", "2.5", "٢x", "9" * 40])
def test_unknown_session_is_refused(store: Store, word: str) -> None:
    with pytest.raises(UserError, match="is not a session"):
        session_named(store.reader(), word)


def test_unknown_session_is_refused_with_the_numbers_of_stored_sessions(store: Store) -> None:
    with pytest.raises(UserError, match="no session is stored yet"):
        session_named(store.reader(), "last")
    job(store, 1, 5)
    store.put(put_session=[session_row()])

    for word in ("0", "7", "last~1", "9" * 18):
        with pytest.raises(UserError, match="sessions 1 to 1 are stored"):
            session_named(store.reader(), word)


def test_outcome_change_names_the_git_commit_of_the_first_failed_run(store: Store) -> None:
    job(store, 1, 5, completed_ms=2 * SECOND)
    store.put(put_session=[session_row(1 * SECOND, 3 * SECOND, commit="aa")])
    job(store, 1, 6, completed_ms=12 * SECOND, outcome=1)
    store.put(put_session=[session_row(11 * SECOND, 13 * SECOND, commit="bb")])
    job(store, 1, 7, completed_ms=22 * SECOND, outcome=1)
    store.put(put_session=[session_row(21 * SECOND, 23 * SECOND, commit="cc")])

    assert outcome_change(store.reader(), 1, lambda: "dd") == OutcomeChange(True, 12 * SECOND, "bb", True)

    job(store, 1, 8, completed_ms=32 * SECOND)
    assert outcome_change(store.reader(), 1, lambda: "dd") == OutcomeChange(False, 32 * SECOND, "dd", True)
    assert outcome_change(store.reader(), 1, lambda: "cc") == OutcomeChange(False, 32 * SECOND, "cc", False)
    assert outcome_change(store.reader(), 9, lambda: "dd") is None


def test_series_of_failures_begins_after_the_job_was_good_without_a_run(store: Store) -> None:
    for number, at_s in enumerate((2, 12, 22), 5):
        job(store, 1, number, completed_ms=at_s * SECOND, outcome=1, first_fail_ms=(22 if at_s == 22 else 2) * SECOND)
        store.put(put_session=[session_row((at_s - 1) * SECOND, (at_s + 1) * SECOND)])

    assert outcome_change(store.reader(), 1, lambda: "") == OutcomeChange(True, 22 * SECOND, "", False)


def test_outcome_change_outside_git_is_not_after_a_checkout(store: Store) -> None:
    job(store, 1, 5, completed_ms=2 * SECOND)
    store.put(put_session=[session_row(1 * SECOND, 3 * SECOND, commit="aa")])
    job(store, 1, 6, completed_ms=12 * SECOND, outcome=1)
    store.put(put_session=[session_row(11 * SECOND, 13 * SECOND)])

    assert outcome_change(store.reader(), 1, lambda: "dd") == OutcomeChange(True, 12 * SECOND, "", False)


def test_outcome_of_a_pruned_session_has_no_git_commit(store: Store) -> None:
    job(store, 1, 5, completed_ms=2 * SECOND, outcome=1)
    store.put(put_session=[session_row(1 * SECOND, 3 * SECOND, commit="aa")])
    store.put(prune_session=[(1,)])

    assert outcome_change(store.reader(), 1, lambda: "dd") == OutcomeChange(True, 2 * SECOND, "", False)


@pytest.mark.parametrize(
    ("now", "before", "is_slower"),
    [
        (1000, [], False),  # not slower, because the job has no earlier runs
        (210, [100], True),  # slower, because 210 ms is more than twice the 100 ms of the only earlier run
        (190, [100], False),
        (300, [100, 105, 95, 100, 102], True),
        (128, [100, 100, 100, 100], False),  # 128 ms is 28 % above the median of the earlier runs, but not 30 ms above it
        (131, [100, 100, 100, 100], True),
        (9000, [5000, 9500, 4000, 10000, 5500], False),  # the earlier runs vary from 4 to 10 s
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


def test_job_is_listed_as_slower_until_a_run_takes_the_usual_time(store: Store) -> None:
    sessions_of(store, {1: 100, 2: 100}, {1: 104, 2: 100}, {1: 102}, {1: 400, 2: 120})
    reader = store.reader()

    assert list(slower_jobs(reader)) == [1]
    assert (slower_jobs(reader)[1].median_ms, paces(reader, [2])[2].runs) == (102, 2)

    job(store, 1, 900, duration_ms=101)
    store.put(put_session=[session_row()])
    assert slower_jobs(reader) == {}


def test_slower_jobs_ignores_failed_and_restored_runs(store: Store) -> None:
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


def test_one_slower_job_does_not_make_its_builder_slower(store: Store) -> None:
    usual = dict.fromkeys(range(1, 9), 100)
    sessions_of(store, usual, usual, usual | {3: 5000})

    assert slower_builders(store.reader()) == {}
    assert list(slower_jobs(store.reader())) == [3]


def test_slower_jobs_and_builders_of_an_empty_database_are_empty(store: Store) -> None:
    assert slower_jobs(store.reader()) == {}
    assert slower_builders(store.reader()) == {}


def draft(store: Store, job_id: int, run_key: int, duration_ms: int) -> None:
    """Store a run that made a draft of a job's products, in a separate session."""
    job(store, job_id, run_key, duration_ms=duration_ms)
    store.put(put_draft=[(job_id, None)])
    store.put(put_session=[session_row()])


def final(store: Store, job_id: int, run_key: int, duration_ms: int) -> None:
    """Store a run that made the final products of a job, in a separate session."""
    job(store, job_id, run_key, duration_ms=duration_ms)
    store.put(drop_draft=[(job_id,)])
    store.put(put_session=[session_row()])


def test_run_for_final_products_is_not_compared_with_the_run_for_the_draft(store: Store) -> None:
    draft(store, 1, 10, 100)
    final(store, 1, 20, 5000)

    assert slower_jobs(store.reader()) == {}
    assert paces(store.reader(), [1])[1].runs == 0


def test_runs_for_drafts_and_for_final_products_are_compared_separately(store: Store) -> None:
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


def test_drafts_are_not_compared_with_final_products_after_pruning(store: Store) -> None:
    draft(store, 1, 10, 100)
    final(store, 1, 20, 5000)
    store.put(prune_session=[(1,)])

    assert slower_jobs(store.reader()) == {}
