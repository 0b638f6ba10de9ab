"""Clients with coalesced notices: when notices arrive, their order relative to answers, and the effect on other clients."""

import pytest
from link_room import Room, job, opened

from aptui.core.notices import EngineMessage
from aptui.link.notice_feed import BEAT_S, BUSY_BEAT_S
from aptui.link.server import LinkLimits

pytestmark = pytest.mark.real


def test_first_notice_is_sent_at_once_and_later_notices_after_the_interval(room: Room) -> None:
    hearer = room.subscriber(is_coalesced=True)
    room.clock.now += 1
    room.server.publish(job(1, "failed"), 7, 1)
    assert hearer.hear()["seqs"] == [1]

    room.server.publish(job(1), 7, 2)
    room.server.publish(job(2, "pending"), 7, 3)
    room.server.publish(job(2), 7, 4)
    room.turn()
    assert not hearer.read()
    assert room.server.next_deadline() == room.clock.now + BEAT_S
    room.clock.now += BEAT_S

    heard = hearer.hear()
    assert (heard["notices"], heard["epoch"], heard["seqs"]) == ("JobChanged", 7, [2, 4])
    assert room.server.next_deadline() is None


def test_interval_is_longer_after_many_notices_and_drops_outdated_notices(room: Room) -> None:
    hearer = room.subscriber(is_coalesced=True)
    room.clock.now += 1
    for number in range(1, 301):
        room.server.publish(job(number, "pending"), 7, number)
    assert len(hearer.hear()["seqs"]) == 300

    room.server.publish(job(1), 7, 301)
    room.turn()
    assert room.server.next_deadline() == room.clock.now + BUSY_BEAT_S
    room.server.publish(job(1, "failed"), 7, 302)
    room.clock.now += BUSY_BEAT_S

    assert hearer.hear()["seqs"] == [302]


def test_notices_are_sent_before_a_later_answer(room: Room) -> None:
    hearer = room.subscriber(is_coalesced=True)
    room.server.publish(job(1), 7, 1)
    room.turn()
    room.server.publish(job(2), 7, 2)
    hearer.say(id=9, verb="ping")

    heard = [hearer.hear() for _ in range(3)]

    assert [message.get("seqs") for message in heard] == [[1], [2], None]


def test_client_of_all_notices_gets_every_step_while_another_one_coalesces(room: Room) -> None:
    plain, drawing = room.subscriber(), room.subscriber(is_coalesced=True)
    for seq, status in enumerate(("pending", "processing", "completed"), 1):
        room.server.publish(job(5, status), 7, seq)

    assert [plain.hear()["notice"] for _ in range(3)] == ["JobChanged"] * 3
    assert drawing.hear()["seqs"] == [3]


def test_burst_beyond_the_limit_does_not_drop_a_client_that_reads(room: Room) -> None:
    hearer, other = room.subscriber(is_coalesced=True), room.subscriber(is_coalesced=True)
    room.clock.now += 1
    for number in range(1, 20_001):
        room.server.publish(job(number), 7, number)

    while not (b",20000]" in hearer.begun and b",20000]" in other.begun):
        room.turn()
        assert [hearer.read(), other.read()] != [False, False]
    assert len(hearer.begun) > LinkLimits().waiting_bytes
    while hearer.read() or other.read():
        room.turn()
    for client in (hearer, other):
        assert [seq for _ in range(10) for seq in client.hear()["seqs"]] == list(range(1, 20_001))
    assert not room.desk.gone


def test_client_that_does_not_read_delays_other_clients_for_a_limited_time() -> None:
    with opened(LinkLimits(waiting_bytes=1 << 30)) as room:
        sleeper, hearer = room.subscriber(is_coalesced=True), room.subscriber(is_coalesced=True)
        room.clock.now += 1
        room.server.publish(EngineMessage(1, 1, "x" * 2_000_000), 7, 1)
        assert hearer.hear()["seqs"] == [1]
        room.clock.now += BEAT_S
        room.server.publish(EngineMessage(1, 1, "y"), 7, 2)
        room.turn()
        assert not hearer.read()  # the server first waits until the sleeper has read the first notice

        room.clock.now += 1.0
        assert hearer.hear()["seqs"] == [2]
        room.clock.now += BEAT_S
        room.server.publish(EngineMessage(1, 1, "z"), 7, 3)
        assert hearer.hear()["seqs"] == [3]
        assert not sleeper.is_over


def test_last_notices_are_sent_before_the_server_closes() -> None:
    with opened() as room:
        hearer = room.subscriber(is_coalesced=True)
        room.server.publish(job(1), 7, 1)
        room.turn()
        room.server.publish(job(1, ""), 7, 2)
        room.server.close()

        assert [message["seqs"] for message in hearer.hear_all()] == [[1], [2]]
