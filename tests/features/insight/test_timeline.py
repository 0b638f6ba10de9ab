"""The timeline of a session: lanes without overlap, waits between jobs, the critical path."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from aptui.core.model import EdgeKind
from aptui.features.insight.session_trace import timeline
from tests.store.conftest import Store, edge_row, job_row, product_row, source_row
from tests.store.queries.test_session_history import run_row, session_row


def ran(store: Store, number: int, began_ms: int, ended_ms: int, *, platform: str = "linux", name: str = "") -> None:
    store.put(
        put_source=[source_row(number, f"{number}.png")],
        put_job=[job_row(number, number, run_key=number, platform=platform)],
        put_product=[product_row(number, number, name or f"linux/{number}.out")],
        put_run=[run_row(number, number, completed_ms=ended_ms, duration_ms=ended_ms - began_ms)],
    )


def needs(store: Store, number: int, *targets: int) -> None:
    store.put(put_edge=[edge_row(int(EdgeKind.JOB), f"{target}.png", source_id=number) for target in targets])


def session(store: Store, **changes: Any) -> None:
    store.put(put_session=[session_row(1000, 9000, **changes)])


def test_runs_lie_on_the_fewest_lanes(store: Store) -> None:
    ran(store, 1, 1000, 3000)
    ran(store, 2, 1500, 2000)
    ran(store, 3, 2000, 2500)
    ran(store, 4, 3000, 3100)
    session(store)

    found = timeline(store.reader(), 1)

    assert found.lane_count == 2
    assert {span.run.job_id: (span.lane, span.began_ms, span.ended_ms) for span in found.spans} == {
        1: (1, 0, 2000), 2: (0, 500, 1000), 3: (0, 1000, 1500), 4: (0, 2000, 2100),
    }  # fmt: skip


def test_runs_committed_together_ran_one_after_another(store: Store) -> None:
    for number in range(1, 41):  # two messages with twenty runs each, whose results are committed together
        ran(store, number, 2990, 3000)
    ran(store, 41, 2000, 2800)
    session(store)

    found = timeline(store.reader(), 1)

    assert found.lane_count == 2
    spans = sorted((span.lane, span.began_ms, span.ended_ms) for span in found.spans)
    assert all(lane != after or end <= begin for (lane, _, end), (after, begin, _) in pairwise(spans))
    assert max(end for _lane, _begin, end in spans) == 2000


def test_critical_path_is_the_longest_chain(store: Store) -> None:
    ran(store, 1, 1000, 2000)
    ran(store, 2, 2000, 3500)
    ran(store, 3, 3500, 4000)
    ran(store, 4, 1000, 3600)
    needs(store, 2, 1)
    needs(store, 3, 2, 9)
    session(store)

    found = timeline(store.reader(), 1)

    assert found.needs == {2: (1,), 3: (2,)}
    assert (found.critical, found.critical_ms) == ([1, 2, 3], 3000)


def test_job_waits_for_the_maker_of_its_source(store: Store) -> None:
    ran(store, 1, 1000, 2000, platform="common", name="common/2.png")
    ran(store, 2, 2000, 2100)
    session(store)

    assert timeline(store.reader(), 1).critical == [1, 2]


def test_dependency_cycle_ends(store: Store) -> None:
    ran(store, 1, 1000, 2000)
    ran(store, 2, 1000, 2500)
    needs(store, 1, 2)
    needs(store, 2, 1)
    session(store)

    assert timeline(store.reader(), 1).critical == [1, 2]


def test_runs_of_other_sessions_are_not_waited_for(store: Store) -> None:
    ran(store, 1, 1000, 2000)
    session(store)
    ran(store, 2, 3000, 3500)
    needs(store, 2, 1)
    session(store)

    found = timeline(store.reader(), 2)

    assert (found.needs, found.critical) == ({}, [2])


def test_empty_session(store: Store) -> None:
    session(store)

    found = timeline(store.reader(), 1)

    assert (found.spans, found.lane_count, found.critical, found.critical_ms) == ([], 0, [], 0)
