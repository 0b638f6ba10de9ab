"""Clients with coalesced notices: the delay of notices, their order relative to answers, and the effect on other clients."""

import pytest
from link_harness import Harness, job, opened

from aptui.core.notices import EngineMessage
from aptui.link.notice_feed import BEAT_S, BUSY_BEAT_S
from aptui.link.server import LinkLimits

pytestmark = pytest.mark.real


def test_first_notice_is_sent_at_once_and_later_notices_after_the_interval(harness: Harness) -> None:
    follower = harness.subscriber(is_coalesced=True)
    harness.clock.now += 1
    harness.server.publish(job(1, "failed"), 7, 1)
    assert follower.receive()["seqs"] == [1]

    harness.server.publish(job(1), 7, 2)
    harness.server.publish(job(2, "pending"), 7, 3)
    harness.server.publish(job(2), 7, 4)
    harness.turn()
    assert not follower.read()
    assert harness.server.next_deadline() == harness.clock.now + BEAT_S
    harness.clock.now += BEAT_S

    received = follower.receive()
    assert (received["notices"], received["epoch"], received["seqs"]) == ("JobChanged", 7, [2, 4])
    assert harness.server.next_deadline() is None


def test_notices_are_delayed_longer_after_a_burst_and_outdated_ones_dropped(harness: Harness) -> None:
    follower = harness.subscriber(is_coalesced=True)
    harness.clock.now += 1
    for number in range(1, 301):
        harness.server.publish(job(number, "pending"), 7, number)
    assert len(follower.receive()["seqs"]) == 300

    harness.server.publish(job(1), 7, 301)
    harness.turn()
    assert harness.server.next_deadline() == harness.clock.now + BUSY_BEAT_S
    harness.server.publish(job(1, "failed"), 7, 302)
    harness.clock.now += BUSY_BEAT_S

    assert follower.receive()["seqs"] == [302]


def test_notices_are_sent_before_a_later_answer(harness: Harness) -> None:
    follower = harness.subscriber(is_coalesced=True)
    harness.server.publish(job(1), 7, 1)
    harness.turn()
    harness.server.publish(job(2), 7, 2)
    follower.say(id=9, verb="ping")

    received = [follower.receive() for _ in range(3)]

    assert [message.get("seqs") for message in received] == [[1], [2], None]


def test_only_the_subscriber_that_requested_coalescing_gets_merged_notices(harness: Harness) -> None:
    plain, drawing = harness.subscriber(), harness.subscriber(is_coalesced=True)
    for seq, status in enumerate(("pending", "processing", "completed"), 1):
        harness.server.publish(job(5, status), 7, seq)

    assert [plain.receive()["notice"] for _ in range(3)] == ["JobChanged"] * 3
    assert drawing.receive()["seqs"] == [3]


def test_burst_beyond_the_limit_does_not_drop_a_client_that_reads(harness: Harness) -> None:
    follower, other = harness.subscriber(is_coalesced=True), harness.subscriber(is_coalesced=True)
    harness.clock.now += 1
    for number in range(1, 20_001):
        harness.server.publish(job(number), 7, number)

    while not (b",20000]" in follower.begun and b",20000]" in other.begun):
        harness.turn()
        assert [follower.read(), other.read()] != [False, False]
    assert len(follower.begun) > LinkLimits().waiting_bytes
    while follower.read() or other.read():
        harness.turn()
    for client in (follower, other):
        assert [seq for _ in range(10) for seq in client.receive()["seqs"]] == list(range(1, 20_001))
    assert not harness.handler.gone


def test_client_that_does_not_read_delays_other_clients_for_a_limited_time() -> None:
    with opened(LinkLimits(waiting_bytes=1 << 30)) as harness:
        sleeper, follower = harness.subscriber(is_coalesced=True), harness.subscriber(is_coalesced=True)
        harness.clock.now += 1
        harness.server.publish(EngineMessage(1, 1, "x" * 2_000_000), 7, 1)
        assert follower.receive()["seqs"] == [1]
        harness.clock.now += BEAT_S
        harness.server.publish(EngineMessage(1, 1, "y"), 7, 2)
        harness.turn()
        assert not follower.read()  # at first the server waits for `sleeper`, a client that reads nothing

        harness.clock.now += 1.0
        assert follower.receive()["seqs"] == [2]
        harness.clock.now += BEAT_S
        harness.server.publish(EngineMessage(1, 1, "z"), 7, 3)
        assert follower.receive()["seqs"] == [3]
        assert not sleeper.is_over


def test_last_notices_are_sent_before_the_server_closes() -> None:
    with opened() as harness:
        follower = harness.subscriber(is_coalesced=True)
        harness.server.publish(job(1), 7, 1)
        harness.turn()
        harness.server.publish(job(1, ""), 7, 2)
        harness.server.close()

        assert [message["seqs"] for message in follower.receive_all()] == [[1], [2]]
