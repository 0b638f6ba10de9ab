"""Which clients are accepted and answered, the order of their notices, and which are dropped."""

import contextlib
import os
import socket
import sqlite3
import stat
import sys
import tracemalloc

import pytest
from link_room import NOTICES, Bare, Room, example, job, opened

from aptui.core.notices import ConnectionsChanged, EngineMessage, HealthChanged, Progress
from aptui.link.places import Credentials
from aptui.link.port import PROTOCOL, ReadStatus, RescanSources, Settle
from aptui.link.server import LinkLimits, LinkServer
from aptui.shared.errors import BusyError, HostError
from aptui.shared.health import Health

pytestmark = pytest.mark.real


def progress(done: int) -> Progress:
    return Progress(done, 0, 0, 0, 0, 0, done, 0, False)


# -------------------------------------------------------------------------------------------------------------- requests


def test_request_is_answered_in_the_same_turn_of_the_server(room: Room) -> None:
    guest = room.guest()

    guest.say(id=2, verb="ping")

    assert guest.hear() == {"id": 2, "answer": {"verb": "PingEngine"}}


def test_message_can_arrive_in_single_bytes(room: Room) -> None:
    guest = room.guest()
    for byte in b'{"id":2,"verb":"status"}\n':
        guest.send(bytes([byte]))
        room.turn()

    assert guest.hear()["id"] == 2
    assert [request.verb for request in room.desk.taken[1:]] == [ReadStatus()]


def test_many_messages_can_arrive_at_once(room: Room) -> None:
    guest = room.guest()
    guest.send(b"".join(b'{"id":%d,"verb":"ping"}\n' % number for number in range(1, 5001)))

    assert [guest.hear()["id"] for _ in range(5000)] == list(range(1, 5001))


def test_request_can_be_answered_in_a_later_turn_but_only_once(room: Room) -> None:
    guest = room.guest()
    guest.say(id=2, verb="settle")
    guest.say(id=3, verb="ping")
    assert guest.hear()["id"] == 3

    request = room.desk.taken[1]
    request.answer(epoch=1, seq=2)
    request.answer(epoch=9, seq=9)
    request.refuse("too late")
    guest.say(id=4, verb="ping")

    assert guest.hear() == {"id": 2, "answer": {"epoch": 1, "seq": 2}}
    assert guest.hear()["id"] == 4


def test_answer_to_a_client_that_has_left_is_ignored(room: Room) -> None:
    leaver, other = room.guest(), room.guest()
    leaver.say(id=2, verb="settle")
    room.turn_until(lambda: isinstance(room.desk.taken[-1].verb, Settle))
    leaver.socket.close()
    room.turn_until(lambda: room.desk.gone)

    room.desk.taken[-1].answer(x=1)
    other.say(id=2, verb="ping")

    assert other.hear()["id"] == 2
    assert room.desk.gone == [room.desk.taken[0].client]


def test_client_gets_the_refusal_of_the_request_handler(room: Room) -> None:
    guest = room.guest()
    guest.say(id=2, verb="rescan")

    assert guest.hear() == {"id": 2, "refusal": {"what": "no scan now", "hint": "later", "code": 3}}
    assert isinstance(room.desk.taken[-1].verb, RescanSources)


def test_bug_or_database_error_during_a_request_becomes_its_refusal(
    room: Room, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    guest = room.guest()
    take = room.desk.take

    def fail(request) -> None:
        if isinstance(request.verb, RescanSources):
            raise sqlite3.OperationalError("LIKE or GLOB pattern too complex")
        take(request)

    monkeypatch.setattr(room.desk, "take", fail)
    for number in range(2, 40):
        guest.say(id=number, verb="rescan")
        refusal = guest.hear()["refusal"]
    guest.say(id=50, verb="ping")

    assert guest.hear()["id"] == 50
    assert (refusal["code"], "too complex" in refusal["what"]) == (2, True)
    assert 0 < capsys.readouterr().err.count("Traceback") <= 10


def test_answer_that_cannot_be_encoded_is_sent_as_a_refusal(room: Room) -> None:
    guest = room.guest()
    guest.say(id=2, verb="settle")
    room.turn_until(lambda: isinstance(room.desk.taken[-1].verb, Settle))

    room.desk.taken[-1].answer(thing=object())

    assert guest.hear()["refusal"]["code"] == 2


def test_invalid_lines_are_refused_and_the_next_request_is_answered(room: Room) -> None:
    guest = room.guest()
    guest.send(b'\x00\xff\n{"id":5,"verb":"pingg"}\n' + b"[" * 50_000 + b'\n\n{"id":6,"verb":"ping"}\n')

    assert [guest.hear()["id"] for _ in range(4)] == [0, 5, 0, 6]


def test_a_line_without_end_is_refused_and_the_client_dropped(room: Room) -> None:
    guest = room.guest()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        guest.send(b"x" * ((1 << 20) + 100_000))

    assert [message["refusal"]["what"] for message in guest.hear_all()] == ["a message is longer than 1048576 bytes"]
    assert room.desk.gone == [1]


# ---------------------------------------------------------------------------------------------- connecting, disconnecting


def test_socket_and_its_folder_are_accessible_only_to_their_user(room: Room) -> None:
    assert stat.S_IMODE(os.stat(room.path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(room.path)).st_mode) == 0o700


def test_connection_of_another_user_is_closed() -> None:
    with opened(credentials=lambda _channel: Credentials(5, os.geteuid() + 1)) as room:
        bare = room.bare()

        assert bare.hear_all() == []
        assert not room.desk.taken


def test_client_beyond_the_limit_is_refused_with_the_reason() -> None:
    with opened(LinkLimits(connections=2)) as room:
        guests = [room.guest(), room.guest()]
        third = room.bare()

        assert third.hear()["refusal"] == {"what": "the engine already has 2 connections, its maximum", "hint": "", "code": 4}
        assert third.hear() is None
        guests[0].socket.close()
        room.turn_until(lambda: room.desk.gone)
        assert room.guest()


def test_client_without_hello_in_time_is_dropped(room: Room) -> None:
    began = room.clock.now
    bare = room.bare()
    room.turn_until(lambda: room.server.next_deadline() is not None)

    assert room.server.next_deadline() == began + 30
    room.clock.now += 29.9
    room.turn()
    assert room.server.next_deadline() == began + 30
    room.clock.now += 0.1
    assert bare.hear()["refusal"]["what"] == "the client did not send 'hello' after 30 s"
    assert bare.hear() is None
    assert room.server.next_deadline() is None
    assert room.desk.gone == []


def test_incomplete_message_has_the_same_time_limit_as_a_hello(room: Room) -> None:
    patient, slow = room.guest(), room.guest()
    assert room.server.next_deadline() is None
    slow.send(b'{"id":2,')
    room.turn_until(lambda: room.server.next_deadline() is not None)

    room.clock.now += 20
    slow.send(b'"verb":"ping"}\n{')
    assert slow.hear()["id"] == 2
    room.clock.now += 20
    slow.send(b'"id"')
    room.turn()
    assert room.server.next_deadline() == room.clock.now + 10
    room.clock.now += 10

    assert slow.hear()["refusal"]["what"] == "the message is incomplete after 30 s"
    patient.say(id=2, verb="ping")
    assert patient.hear()["id"] == 2


@pytest.mark.parametrize(
    "first", [b'{"id":1,"verb":"ping"}\n', b"GET / HTTP/1.1\r\n\r\n", b"x" * 5000, b'{"id":1,"verb":"hello"}\n']
)
def test_client_without_hello_is_dropped(room: Room, first: bytes) -> None:
    bare = room.bare()
    bare.send(first)

    assert [list(message) for message in bare.hear_all()] == [["id", "refusal"]]
    assert not room.desk.taken


def test_second_hello_is_refused(room: Room) -> None:
    guest = room.guest()
    guest.say(id=2, verb="hello", protocol=PROTOCOL, version="1", kind="x", pid=1)

    assert guest.hear()["refusal"]["what"] == "'hello' was already sent on this connection"


def test_client_of_another_protocol_may_only_ping_read_status_and_stop(room: Room) -> None:
    stranger = room.bare()
    stranger.say(id=1, verb="hello", protocol=PROTOCOL + 1, mood="new")

    assert stranger.hear()["answer"]["protocol"] == PROTOCOL
    heard = {}
    for number, verb in enumerate(("ping", "status", "stop_engine", "subscribe", "cancel"), 2):
        stranger.say(id=number, verb=verb, **({"job_ids": [1]} if verb == "cancel" else {}))
        heard[verb] = stranger.hear()
    assert all("answer" in heard[verb] for verb in ("ping", "status", "stop_engine"))
    assert heard["subscribe"]["refusal"] == heard["cancel"]["refusal"]
    assert heard["cancel"]["refusal"] == {
        "what": f"the engine (aptui 1.2.3) uses protocol {PROTOCOL}, and this client uses protocol {PROTOCOL + 1}",
        "hint": "restart the engine",
        "code": 4,
    }


def test_connection_has_the_name_and_the_kernel_credentials_of_its_client(room: Room) -> None:
    room.bare()
    guest = room.subscriber()
    other = room.guest(kind="x\x1b]0;hi\x07" + "y" * 1000, name="a name", pid=99)

    guest.say(id=9, verb="connections")
    first, second = guest.hear()["answer"]["connections"]

    assert (first["kind"], first["pid"], first["is_subscribed"]) == ("test", os.getpid(), True)
    assert (second["name"], second["pid"], second["is_subscribed"]) == ("a name", os.getpid(), False)
    assert second["kind"].startswith("xy")
    assert len(second["kind"]) <= 80
    assert first["number"] != second["number"]
    other.socket.close()
    room.turn_until(lambda: len(room.server.connections()) == 1)


def test_client_can_disconnect_another_client(room: Room) -> None:
    victim, guest = room.guest(), room.guest()
    room.desk.taken[0].answer()
    number = room.desk.taken[0].client

    guest.say(id=2, verb="disconnect", number=number)

    assert guest.hear()["answer"] == {"was_there": True}
    assert victim.hear() is None
    assert room.desk.gone == [number]
    guest.say(id=3, verb="disconnect", number=number)
    assert guest.hear()["answer"] == {"was_there": False}


def test_client_that_disconnects_itself_gets_its_pending_lines(room: Room) -> None:
    guest = room.guest()
    guest.send(b'{"id":2,"verb":"ping"}\n{"id":3,"verb":"disconnect","number":1}\n{"id":4,"verb":"ping"}\n')

    assert [message["id"] for message in guest.hear_all()] == [2]


def test_socket_of_a_dead_engine_is_replaced_but_not_of_a_running_engine(room: Room) -> None:
    rival = LinkServer(room.path, room.selector, room.desk, version="1")
    with pytest.raises(BusyError, match="a process answers"):
        rival.listen()
    assert room.guest()

    stale = room.path + "2"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(stale)
    room.server.close()
    room.server.path = stale
    room.server.listen()
    room.path = stale
    assert room.guest()


def test_socket_that_cannot_be_created_is_a_host_error(room: Room) -> None:
    room.server.close()
    room.server.path = os.path.join(os.path.dirname(room.path), "x" * 120)

    with pytest.raises(HostError, match="cannot be created"):
        room.server.listen()


def test_closing_server_sends_waiting_notices_and_removes_its_socket(room: Room) -> None:
    guest = room.subscriber()
    room.server.publish(EngineMessage(1, 1, "good night"), 7, 1)

    room.server.close()

    assert [message["text"] for message in guest.hear_all()] == ["good night"]
    assert not os.path.exists(room.path)
    assert room.desk.gone == []


def test_server_accepts_no_clients_for_a_second_without_free_descriptors(room: Room) -> None:
    class Full:
        def accept(self):
            raise OSError(24, "Too many open files")

    listener, room.server._listener = room.server._listener, Full()
    room.server._selector.unregister(listener)
    room.server._selector.register(listener, 1, room.server._on_connection)
    room.server._listener.fileno = listener.fileno
    bare = room.bare()
    room.turn()

    assert room.server.next_deadline() == room.clock.now + 1
    assert room.selector.select(0) == []
    room.server._listener = listener
    room.clock.now += 1
    bare.say(id=1, verb="hello", protocol=PROTOCOL, version="1", kind="x", pid=1)
    assert bare.hear()["id"] == 1


def test_incomplete_messages_of_all_clients_share_a_limit() -> None:
    with opened(LinkLimits(begun_bytes=100_000)) as room:
        guests = [room.guest() for _ in range(3)]
        for guest in guests[:2]:
            guest.send(b"x" * 40_000)
        for _ in range(10):
            room.turn()
        assert not room.desk.gone

        guests[2].send(b"x" * 40_000)

        assert guests[2].hear()["refusal"]["what"] == "too many clients have sent incomplete messages"
        assert room.desk.gone == [3]


def test_client_that_does_not_read_answers_is_no_longer_read(room: Room) -> None:
    guest = room.guest()
    asked = b'{"id":2,"verb":"connections"}\n' * 50
    is_full = False
    while not is_full:
        with contextlib.suppress(BlockingIOError):
            guest.socket.send(asked)
            room.turn()
            continue
        is_full = not room.selector.select(0)

    waiting = room.server.connections()[0].waiting_bytes
    count = len(room.desk.taken)
    room.turn()
    assert 0 < waiting < 1 << 17
    assert len(room.desk.taken) == count
    other = room.guest()
    for number in range(count - 1):
        assert guest.hear()["id"] == 2, number
    other.say(id=9, verb="ping")
    assert other.hear()["id"] == 9
    assert not room.desk.gone


def ask_for_much(room: Room) -> Bare:
    """Return a client that sent 400 requests with answers of 20 kB and has read nothing."""
    take = room.desk.take
    room.desk.take = lambda request: request.answer(text="x" * 20_000) if isinstance(request.verb, ReadStatus) else take(request)
    guest = room.subscriber()
    guest.send(b'{"id":5,"verb":"status"}\n' * 400)
    for _ in range(5):
        room.turn()
    return guest


def test_many_requests_at_once_are_answered_as_fast_as_they_are_read(room: Room) -> None:
    guest = ask_for_much(room)

    assert 0 < room.server.connections()[0].waiting_bytes < 100_000
    assert [guest.hear()["id"] for _ in range(400)] == [5] * 400
    assert not room.desk.gone


def test_client_that_reads_again_is_served_again() -> None:
    with opened(LinkLimits(waiting_bytes=100_000)) as room:
        guest = ask_for_much(room)
        while guest.read():
            pass

        room.server.publish(
            EngineMessage(1, 1, "x" * 100_000), 7, 1
        )  # these bytes exceed the limit, so the server tries to send at once

        heard = [guest.hear() for _ in range(401)]
        assert [message["id"] for message in heard if "id" in message] == [5] * 400
        assert not room.desk.gone


def test_disconnecting_a_closed_client_is_harmless(room: Room) -> None:
    guest = room.subscriber()
    room.server.publish(EngineMessage(1, 1, "x"), 7, 1)
    guest.socket.close()

    assert room.server.disconnect(1)
    room.turn()

    assert room.desk.gone == [1]


def test_client_that_closes_with_unsent_lines_is_dropped(room: Room) -> None:
    guest = room.subscriber()
    while not room.server.connections()[0].waiting_bytes:
        room.server.publish(EngineMessage(1, 1, "x" * 50_000), 7, 1)
        room.turn()

    guest.socket.close()
    room.turn_until(lambda: room.desk.gone)

    assert room.server.connections() == ()


def test_client_without_credentials_is_refused() -> None:
    def unknown(_channel) -> Credentials:
        raise OSError

    with opened(credentials=unknown) as room:
        assert room.bare().hear_all() == []


# --------------------------------------------------------------------------------------------------------------- notices


def test_notices_reach_all_subscribers_in_order(room: Room) -> None:
    first, second, silent = room.subscriber(), room.subscriber(), room.guest()
    for seq in range(1, 3001):
        room.server.publish(job(seq), 7, seq)
        if seq % 500 == 0:
            room.server.flush()

    for hearer in (first, second):
        assert [hearer.hear()["seq"] for _ in range(3000)] == list(range(1, 3001))
    silent.say(id=5, verb="ping")
    assert silent.hear()["id"] == 5


def test_client_of_settled_jobs_gets_neither_pending_nor_running_jobs(room: Room) -> None:
    all_of_it, settled = room.subscriber(), room.subscriber(wants_all=False)
    for seq, status in enumerate(("pending", "processing", "completed", "failed", ""), 1):
        room.server.publish(job(seq, status), 7, seq)
    room.server.publish(EngineMessage(1, 1, "x"), 7, 6)

    assert [all_of_it.hear()["seq"] for _ in range(6)] == [1, 2, 3, 4, 5, 6]
    assert [settled.hear()["seq"] for _ in range(4)] == [3, 4, 5, 6]


def test_only_the_newest_of_several_replaceable_notices_waits(room: Room) -> None:
    hearer = room.subscriber()
    for seq in range(1, 101):
        room.server.publish(progress(seq), 7, seq)
        room.server.publish(HealthChanged(1, Health(disk=str(seq))), 7, seq)
        room.server.publish(ConnectionsChanged(1, room.server.connections()), 7, seq)
        if seq in (10, 20):
            room.server.publish(job(seq), 7, seq)
    waiting = room.server.connections()[0].waiting_bytes
    room.server.publish(EngineMessage(1, 1, "last"), 7, 101)

    heard = [hearer.hear() for _ in range(6)]

    assert [(message["notice"], message["seq"]) for message in heard] == [
        ("JobChanged", 10), ("JobChanged", 20), ("Progress", 100), ("HealthChanged", 100), ("ConnectionsChanged", 100),
        ("Said", 101),
    ]  # fmt: skip
    assert 0 < waiting < 3000


def test_a_line_that_is_half_sent_is_never_replaced(room: Room) -> None:
    hearer = room.subscriber()
    texts = ("x" * 700_000, "y" * 700_000, "z")
    for seq, text in enumerate(texts, 1):
        room.server.publish(HealthChanged(1, Health(disk=text)), 7, seq)
        room.server.flush()

    assert [hearer.hear()["seq"] for _ in range(2)] == [1, 3]


def test_gateway_has_a_higher_limit_of_waiting_notices_than_other_clients() -> None:
    text = "x" * 500_000
    with opened(LinkLimits(waiting_bytes=1_000_000)) as room:
        for kind in ("test", "gateway"):
            guest = room.guest(kind=kind)
            guest.say(id=2, verb="subscribe")
            assert guest.hear()["id"] == 2
        for seq, left in ((5, {"gateway"}), (20, set())):
            for number in range(seq):
                room.server.publish(EngineMessage(1, 1, text), 7, number)
            assert {each.kind for each in room.server.connections()} == left


def test_subscriber_that_never_reads_costs_limited_memory(room: Room) -> None:
    sleeper, hearer = room.subscriber(), room.guest()
    number = room.server.connections()[0].number
    tracemalloc.start()
    for seq in range(100_000):
        room.server.publish(job(seq), 7, seq)
    room.server.flush()
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert room.desk.gone == [number]
    assert peak < 16 << 20
    hearer.say(id=3, verb="ping")
    assert hearer.hear()["id"] == 3
    while sleeper.hear() is not None:
        pass


def test_subscriber_that_never_reads_is_dropped_after_few_lines(room: Room) -> None:
    room.subscriber()
    seq = 0
    while not room.server.connections()[0].waiting_bytes:  # send until the kernel's buffer is full
        seq += 1
        room.server.publish(job(seq), 7, seq)
        room.server.flush()
    for _ in range(1_000):
        room.server.publish(job(seq), 7, seq)
    room.clock.now += 0.9
    room.turn()
    assert not room.desk.gone

    room.clock.now += 0.2
    room.server.publish(job(seq), 7, seq)
    room.turn()

    assert room.desk.gone == [1]
    assert room.server.connections() == ()


def test_burst_does_not_drop_a_subscriber_that_reads(room: Room) -> None:
    hearer = room.subscriber()
    for seq in range(1, 10_001):
        room.server.publish(job(seq), 7, seq)
    room.clock.now += 5

    assert [hearer.hear()["seq"] for _ in range(10_000)] == list(range(1, 10_001))
    assert not room.desk.gone


def test_notices_stay_in_order_when_a_client_is_dropped(room: Room) -> None:
    room.subscriber()
    hearer = room.subscriber()
    room.desk.forget_client = lambda _number: room.server.publish(ConnectionsChanged(1, ()), 7, 999)
    for _ in range(2):
        room.server.publish(EngineMessage(1, 1, "x" * (3 << 20)), 7, 5)
        while not hearer.begun.endswith(b"\n"):
            room.turn()
            hearer.read()

    assert [hearer.hear()["seq"] for _ in range(3)] == [5, 5, 999]


def test_notice_that_no_client_receives_is_not_encoded(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room.guest()
    room.subscriber(wants_all=False)
    monkeypatch.setattr("aptui.link.codec.encode_notice", lambda *_: sys.exit("encoded for nobody"))

    room.server.publish(job(1, "pending"), 7, 1)


def test_every_notice_can_be_published(room: Room) -> None:
    hearer = room.subscriber()
    for record in NOTICES:
        room.server.publish(example(record), 7, 1)

    older = {"EngineMessage": "Said", "ShowRequested": "ShowAsked"}
    wanted = [older.get(record.__name__, record.__name__) for record in NOTICES]
    assert [hearer.hear()["notice"] for _ in NOTICES] == wanted
