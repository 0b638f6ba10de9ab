"""Messages that wait for a worker: which message is sent first, and how often and how long a message can be overtaken."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from pool_harness import PLATFORMS

from aptui.core.orders import AnalyseOrder, CopyOrder, HashOrder, ProcessOrder
from aptui.engine.pool.slots import PATIENT_PASSES, PATIENT_S, WaitingOrders
from aptui.engine.pool.worker_messages import PoolMessage, describe, identity_of, messages_of
from aptui.worker import wire


def order(key: int, *, is_critical: bool = False, rel: str = "a.txt") -> ProcessOrder:
    linux = PLATFORMS[0].id
    return ProcessOrder(key, "b", "/r", rel, b"", linux, "k", "{}", "", 0, is_critical, (0, 0, 0, 0), b"", "/s", 1.0, 0)


def message(key: int, **more) -> PoolMessage:
    return PoolMessage(wire.FrameKind.PROCESS, [order(key, **more)])


def keys(messages) -> list[list[int]]:
    return [[one.run_key for one in part.orders] for part in messages]


def test_critical_orders_are_sent_first_in_separate_messages():
    parts = messages_of([order(1), order(2, is_critical=True), order(3), order(4, is_critical=True)])

    assert keys(parts) == [[2, 4], [1, 3]]


def test_an_order_that_must_run_alone_is_sent_in_a_separate_message():
    lonely = {identity_of(order(0, rel="x")): None, identity_of(order(0, rel="y")): None}

    parts = messages_of([order(1), order(2, rel="x"), order(3), order(4, rel="y")], lonely)

    assert keys(parts) == [[1, 3], [2], [4]]
    assert [part.is_alone for part in parts] == [False, True, True]


def test_critical_messages_wait_in_front_of_other_messages():
    waiting = WaitingOrders()
    for one in (message(1), message(2, is_critical=True), message(3), message(4, is_critical=True)):
        waiting.add(one)
    waiting.put_back(message(5))

    assert keys(waiting) == [[2], [4], [5], [1], [3]]
    assert keys(waiting.clear()) == [[2], [4], [5], [1], [3]]
    assert len(waiting) == 0


def test_copies_do_not_count_as_overtakes_of_a_job_that_waits_for_memory():
    waiting, held, free = WaitingOrders(), message(1), message(2)
    copies = PoolMessage(wire.FrameKind.COPY, [CopyOrder(3, "a", "b")])
    for one in (held, free, copies):
        waiting.add(one)
    waiting.hold(held, 0.0)

    waiting.remove_sent(copies)
    assert held.passed == 0
    waiting.remove_sent(free)
    assert (held.passed, waiting.held_count, len(waiting)) == (1, 1, 1)
    waiting.remove_sent(held)
    assert (held.held_since_s, held.passed) == (None, 0)


@pytest.mark.parametrize(("passes", "later_s", "is_enough"), [(0, 0.0, False), (PATIENT_PASSES, 0.0, True), (0, PATIENT_S, True)])
def test_other_jobs_wait_for_a_held_job_after_some_time_or_overtakes(passes, later_s, is_enough):
    waiting, held = WaitingOrders(), message(1)
    waiting.add(held)
    waiting.hold(held, 5.0)
    held.passed = passes

    assert waiting.hold(held, 5.0 + later_s) == is_enough


def test_work_of_a_worker_is_described_in_a_sentence():
    analysis = AnalyseOrder(1, "images", "/r", "t/a.png", b"", ("linux",), 1.0)

    assert describe(messages_of([analysis])[0]) == "images: t/a.png (analysis)"
    assert describe(message(1)) == "b: a.txt (linux, k)"
    assert describe(PoolMessage(wire.FrameKind.HASH, [], HashOrder(1, ("a",)))) == "reading 1 file"
    assert describe(PoolMessage(wire.FrameKind.COPY, [CopyOrder(1, "a", "b")] * 2)) == "copying 2 files"


SHORT, LONG = [order(1), order(2)], [order(3)]
OTHERS = [replace(one, builder="other") for one in SHORT]


@pytest.mark.parametrize(
    ("behind", "first", "may"),
    [
        (PoolMessage(wire.FrameKind.PROCESS, SHORT), PoolMessage(wire.FrameKind.PROCESS, SHORT), True),
        (PoolMessage(wire.FrameKind.PROCESS, SHORT), PoolMessage(wire.FrameKind.PROCESS, OTHERS), False),
        (PoolMessage(wire.FrameKind.PROCESS, SHORT), PoolMessage(wire.FrameKind.PROCESS, LONG), False),
        (PoolMessage(wire.FrameKind.PROCESS, LONG), PoolMessage(wire.FrameKind.PROCESS, SHORT), False),
        (PoolMessage(wire.FrameKind.PROCESS, SHORT, is_alone=True), PoolMessage(wire.FrameKind.PROCESS, SHORT), False),
        (PoolMessage(wire.FrameKind.PROCESS, SHORT), PoolMessage(wire.FrameKind.COPY, [CopyOrder(4, "a", "b")]), False),
        (PoolMessage(wire.FrameKind.COPY, [CopyOrder(4, "a", "b")]), PoolMessage(wire.FrameKind.PROCESS, SHORT), True),
        (PoolMessage(wire.FrameKind.COPY, [CopyOrder(4, "a", "b")]), PoolMessage(wire.FrameKind.PROCESS, LONG), False),
        (
            PoolMessage(wire.FrameKind.HASH, [], HashOrder(5, ("a",))),
            PoolMessage(wire.FrameKind.COPY, [CopyOrder(4, "a", "b")]),
            True,
        ),
    ],
)
def test_jobs_may_wait_at_a_worker_only_behind_short_jobs_of_the_same_builder(behind, first, may):
    assert behind.may_wait_behind(first) is may
