"""Two sessions compared: jobs that began to fail, were fixed, take longer, grew, were added or deleted."""

from __future__ import annotations

import time
from typing import Any

from aptui.features.insight.history_verb import Comparison, compare
from aptui.store.queries.session_history import session_named
from tests.store.conftest import Store, job_row, source_row
from tests.store.queries.test_session_history import job, run_row, session_row

NOW = time.time_ns() // 1_000_000


def session(store: Store, key: int, jobs: dict[int, dict[str, Any]], begins_ms: int = NOW, ends_ms: int = NOW + 3_600_000) -> None:
    for job_id, changes in jobs.items():
        job(store, job_id, key + job_id, **changes)
    store.put(put_session=[session_row(begins_ms, ends_ms)])


def compared(store: Store, old: str, new: str) -> Comparison:
    reader = store.reader()
    return compare(reader, session_named(reader, old), session_named(reader, new))


def names(found: Comparison) -> dict[str, list[str]]:
    return {kind: [change.new.source for change in changes] for kind, changes in found.changes.items()}


def test_comparison_of_sessions_lists_new_and_lasting_and_fixed_failures(store: Store) -> None:
    failed, good = {"outcome": 1}, {"outcome": 0}
    session(store, 100, {1: good, 2: failed, 3: failed, 4: failed})
    session(store, 200, {1: failed, 2: good, 3: failed, 5: failed})

    found = compared(store, "1", "2")

    assert names(found) == {
        "began_to_fail": ["1.png", "5.png"],
        "mended": ["2.png"],
        "still_failing": ["3.png"],
        "new_jobs": ["5.png"],
    }
    assert found.jobs_run == 4


def test_comparison_of_sessions_ignores_a_failure_in_between(store: Store) -> None:
    session(store, 100, {1: {}})
    session(store, 200, {1: {"outcome": 1}})
    session(store, 300, {1: {}})

    assert not compared(store, "1", "3").changes


def test_comparison_of_sessions_finds_slower_and_faster_jobs(store: Store) -> None:
    for key in (100, 200, 300):
        session(store, key, {1: {"duration_ms": 100 + key // 100}, 2: {"duration_ms": 1000}, 3: {"duration_ms": 100}})
    session(store, 400, {1: {"duration_ms": 500}, 2: {"duration_ms": 100}, 3: {"duration_ms": 110}})

    found = compared(store, "3", "4")

    assert names(found) == {"slower": ["1.png"], "faster": ["2.png"]}
    assert found.changes["slower"][0].pace.runs == 3


def test_comparison_of_sessions_lists_products_that_grew(store: Store) -> None:
    session(store, 100, {1: {}, 2: {}})
    job(store, 1, 201)
    job(store, 2, 202)
    store.put(put_product=[(1, 1, "linux/1.png", 1, b"T" * 16, -2, 1, b"D" * 32, 9000)])
    store.put(put_session=[session_row(NOW)])

    found = compared(store, "1", "2")

    assert names(found) == {"grew": ["1.png"]}
    assert found.changes["grew"][0].growth == 8990


def test_job_that_was_deleted_and_added_again_is_not_listed_as_a_change(store: Store) -> None:
    session(store, 100, {1: {}, 2: {}}, NOW - 9000, NOW - 5000)
    store.put(drop_source=[(1,), (2,)])
    job(store, 2, 203)
    row = store.rows("SELECT job_id FROM aptui_gone_jobs ORDER BY 1")
    assert row == [(1,), (2,)]
    # Source 2 is deleted and then added again, with new ids for the source and its job.
    store.put(drop_source=[(2,)])
    store.put(put_source=[source_row(7, "2.png")], put_job=[job_row(7, 7, run_key=204)], put_run=[run_row(7, 204)])
    store.put(put_session=[session_row(NOW - 4000, NOW + 3_600_000)])

    found = compared(store, "1", "2")

    assert [name[0] for name in found.gone] == ["1.png"]
    assert not found.changes
    assert found.jobs_run == 1


def test_session_compared_with_itself_has_no_differences(store: Store) -> None:
    session(store, 100, {1: {}})

    assert compared(store, "1", "1") == Comparison()
