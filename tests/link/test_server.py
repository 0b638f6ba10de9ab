"""Which clients are accepted and answered, the order of their notices, and which are dropped."""

import contextlib
import os
import socket
import sqlite3
import stat
import sys
import tracemalloc

import pytest
from link_harness import NOTICES, Bare, Harness, example, job, opened

from aptui import __version__
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


def test_request_is_answered_in_the_same_turn_of_the_server(harness: Harness) -> None:
    guest = harness.guest()

    guest.say(id=2, verb="ping")

    assert guest.receive() == {"id": 2, "answer": {"verb": "PingEngine"}}


def test_message_can_arrive_in_single_bytes(harness: Harness) -> None:
    guest = harness.guest()
    for byte in b'{"id":2,"verb":"status"}\n':
        guest.send(bytes([byte]))
        harness.turn()

    assert guest.receive()["id"] == 2
    assert [request.verb for request in harness.handler.taken[1:]] == [ReadStatus()]


def test_many_messages_can_arrive_at_once(harness: Harness) -> None:
    guest = harness.guest()
    guest.send(b"".join(b'{"id":%d,"verb":"ping"}\n' % number for number in range(1, 5001)))

    assert [guest.receive()["id"] for _ in range(5000)] == list(range(1, 5001))


def test_request_can_be_answered_in_a_later_turn_but_only_once(harness: Harness) -> None:
    guest = harness.guest()
    guest.say(id=2, verb="settle")
    guest.say(id=3, verb="ping")
    assert guest.receive()["id"] == 3

    request = harness.handler.taken[1]
    request.answer(epoch=1, seq=2)
    request.answer(epoch=9, seq=9)
    request.refuse("too late")
    guest.say(id=4, verb="ping")

    assert guest.receive() == {"id": 2, "answer": {"epoch": 1, "seq": 2}}
    assert guest.receive()["id"] == 4


def test_answer_to_a_client_that_has_left_is_ignored(harness: Harness) -> None:
    leaver, other = harness.guest(), harness.guest()
    leaver.say(id=2, verb="settle")
    harness.turn_until(lambda: isinstance(harness.handler.taken[-1].verb, Settle))
    leaver.socket.close()
    harness.turn_until(lambda: harness.handler.gone)

    harness.handler.taken[-1].answer(x=1)
    other.say(id=2, verb="ping")

    assert other.receive()["id"] == 2
    assert harness.handler.gone == [harness.handler.taken[0].client]


def test_client_gets_the_refusal_of_the_request_handler(harness: Harness) -> None:
    guest = harness.guest()
    guest.say(id=2, verb="rescan")

    assert guest.receive() == {"id": 2, "refusal": {"what": "no scan now", "hint": "later", "code": 3}}
    assert isinstance(harness.handler.taken[-1].verb, RescanSources)


def test_request_is_refused_if_a_bug_or_database_error_interrupts_it(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    guest = harness.guest()
    handle = harness.handler.handle

    def fail(request) -> None:
        if isinstance(request.verb, RescanSources):
            raise sqlite3.OperationalError("LIKE or GLOB pattern too complex")
        handle(request)

    monkeypatch.setattr(harness.handler, "handle", fail)
    for number in range(2, 40):
        guest.say(id=number, verb="rescan")
        refusal = guest.receive()["refusal"]
    guest.say(id=50, verb="ping")

    assert guest.receive()["id"] == 50
    assert (refusal["code"], "too complex" in refusal["what"]) == (2, True)
    assert 0 < capsys.readouterr().err.count("Traceback") <= 10


def test_answer_that_cannot_be_encoded_is_sent_as_a_refusal(harness: Harness) -> None:
    guest = harness.guest()
    guest.say(id=2, verb="settle")
    harness.turn_until(lambda: isinstance(harness.handler.taken[-1].verb, Settle))

    harness.handler.taken[-1].answer(thing=object())

    assert guest.receive()["refusal"]["code"] == 2


def test_invalid_lines_are_refused_and_the_next_request_is_answered(harness: Harness) -> None:
    guest = harness.guest()
    guest.send(b'\x00\xff\n{"id":5,"verb":"pingg"}\n' + b"[" * 50_000 + b'\n\n{"id":6,"verb":"ping"}\n')

    assert [guest.receive()["id"] for _ in range(4)] == [0, 5, 0, 6]


def test_a_line_without_end_is_refused_and_the_client_dropped(harness: Harness) -> None:
    guest = harness.guest()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        guest.send(b"x" * ((1 << 20) + 100_000))

    assert [message["refusal"]["what"] for message in guest.receive_all()] == ["a message is longer than 1048576 bytes"]
    assert harness.handler.gone == [1]


# ---------------------------------------------------------------------------------------------- connecting, disconnecting


def test_socket_and_its_folder_are_accessible_only_to_their_user(harness: Harness) -> None:
    assert stat.S_IMODE(os.stat(harness.path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(harness.path)).st_mode) == 0o700


def test_connection_of_another_user_is_closed() -> None:
    with opened(credentials=lambda _channel: Credentials(5, os.geteuid() + 1)) as harness:
        bare = harness.bare()

        assert bare.receive_all() == []
        assert not harness.handler.taken


def test_client_beyond_the_limit_is_refused_with_the_reason() -> None:
    with opened(LinkLimits(connections=2)) as harness:
        guests = [harness.guest(), harness.guest()]
        third = harness.bare()

        assert third.receive()["refusal"] == {"what": "the engine already has 2 connections, its maximum", "hint": "", "code": 4}
        assert third.receive() is None
        guests[0].socket.close()
        harness.turn_until(lambda: harness.handler.gone)
        assert harness.guest()


def test_client_without_hello_in_time_is_dropped(harness: Harness) -> None:
    began = harness.clock.now
    bare = harness.bare()
    harness.turn_until(lambda: harness.server.next_deadline() is not None)

    assert harness.server.next_deadline() == began + 30
    harness.clock.now += 29.9
    harness.turn()
    assert harness.server.next_deadline() == began + 30
    harness.clock.now += 0.1
    assert bare.receive()["refusal"]["what"] == "the client did not send 'hello' after 30 s"
    assert bare.receive() is None
    assert harness.server.next_deadline() is None
    assert harness.handler.gone == []


def test_incomplete_message_has_the_same_time_limit_as_a_hello(harness: Harness) -> None:
    patient, slow = harness.guest(), harness.guest()
    assert harness.server.next_deadline() is None
    slow.send(b'{"id":2,')
    harness.turn_until(lambda: harness.server.next_deadline() is not None)

    harness.clock.now += 20
    slow.send(b'"verb":"ping"}\n{')
    assert slow.receive()["id"] == 2
    harness.clock.now += 20
    slow.send(b'"id"')
    harness.turn()
    assert harness.server.next_deadline() == harness.clock.now + 10
    harness.clock.now += 10

    assert slow.receive()["refusal"]["what"] == "the message is incomplete after 30 s"
    patient.say(id=2, verb="ping")
    assert patient.receive()["id"] == 2


@pytest.mark.parametrize(
    "first", [b'{"id":1,"verb":"ping"}\n', b"GET / HTTP/1.1\r\n\r\n", b"x" * 5000, b'{"id":1,"verb":"hello"}\n']
)
def test_client_whose_first_message_is_not_a_valid_hello_is_dropped(harness: Harness, first: bytes) -> None:
    bare = harness.bare()
    bare.send(first)

    assert [list(message) for message in bare.receive_all()] == [["id", "refusal"]]
    assert not harness.handler.taken


def test_second_hello_is_refused(harness: Harness) -> None:
    guest = harness.guest()
    guest.say(id=2, verb="hello", protocol=PROTOCOL, version="1", kind="x", pid=1)

    assert guest.receive()["refusal"]["what"] == "'hello' was already sent on this connection"


def test_client_of_another_protocol_may_send_only_three_verbs(harness: Harness) -> None:
    guest_of_other_user = harness.bare()
    guest_of_other_user.say(id=1, verb="hello", protocol=PROTOCOL + 1, mood="new")

    assert guest_of_other_user.receive()["answer"]["protocol"] == PROTOCOL
    received = {}
    for number, verb in enumerate(("ping", "status", "stop_engine", "subscribe", "cancel"), 2):
        guest_of_other_user.say(id=number, verb=verb, **({"job_ids": [1]} if verb == "cancel" else {}))
        received[verb] = guest_of_other_user.receive()
    assert all("answer" in received[verb] for verb in ("ping", "status", "stop_engine"))
    assert received["subscribe"]["refusal"] == received["cancel"]["refusal"]
    assert received["cancel"]["refusal"] == {
        "what": f"the engine (aptui {__version__}) uses protocol {PROTOCOL}, and this client uses protocol {PROTOCOL + 1}",
        "hint": "restart the engine",
        "code": 4,
    }


def test_connection_has_the_name_and_the_kernel_credentials_of_its_client(harness: Harness) -> None:
    harness.bare()
    guest = harness.subscriber()
    other = harness.guest(kind="x\x1b]0;hi\x07" + "y" * 1000, name="a name", pid=99)

    guest.say(id=9, verb="status", lists_connections=True)
    first, second = guest.receive()["answer"]["connections"]

    assert (first["kind"], first["pid"], first["is_subscribed"]) == ("test", os.getpid(), True)
    assert (second["name"], second["pid"], second["is_subscribed"]) == ("a name", os.getpid(), False)
    assert second["kind"].startswith("xy")
    assert len(second["kind"]) <= 80
    assert first["number"] != second["number"]
    other.socket.close()
    harness.turn_until(lambda: len(harness.server.connections()) == 1)


def test_client_can_disconnect_another_client(harness: Harness) -> None:
    victim, guest = harness.guest(), harness.guest()
    harness.handler.taken[0].answer()
    number = harness.handler.taken[0].client

    guest.say(id=2, verb="disconnect", number=number)

    assert guest.receive()["answer"] == {"was_there": True}
    assert victim.receive() is None
    assert harness.handler.gone == [number]
    guest.say(id=3, verb="disconnect", number=number)
    assert guest.receive()["answer"] == {"was_there": False}


def test_client_gets_pending_answers_before_it_is_disconnected_on_request(harness: Harness) -> None:
    guest = harness.guest()
    guest.send(b'{"id":2,"verb":"ping"}\n{"id":3,"verb":"disconnect","number":1}\n{"id":4,"verb":"ping"}\n')

    assert [message["id"] for message in guest.receive_all()] == [2]


def test_socket_of_a_dead_engine_is_replaced_but_not_of_a_running_engine(harness: Harness) -> None:
    rival = LinkServer(harness.path, harness.selector, harness.handler)
    with pytest.raises(BusyError, match="a process answers"):
        rival.listen()
    assert harness.guest()

    stale = harness.path + "2"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(stale)
    harness.server.close()
    harness.server.path = stale
    harness.server.listen()
    harness.path = stale
    assert harness.guest()


def test_server_listens_again_and_keeps_its_clients_after_its_socket_was_deleted(harness: Harness) -> None:
    before = harness.guest()
    os.unlink(harness.path)
    assert harness.server.is_unlinked

    harness.server.listen()

    assert not harness.server.is_unlinked
    for guest in (before, harness.guest()):
        guest.send(b'{"id":2,"verb":"ping"}\n')
        assert guest.receive()["id"] == 2


def test_socket_that_cannot_be_created_is_a_host_error(harness: Harness) -> None:
    harness.server.close()
    harness.server.path = os.path.join(os.path.dirname(harness.path), "x" * 120)

    with pytest.raises(HostError, match="cannot be created"):
        harness.server.listen()


@pytest.mark.parametrize("fault", ["no descriptor", "not selectable"])
def test_socket_that_cannot_be_opened_or_watched_is_a_host_error_and_is_closed(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    harness.server.close()
    before = set(os.listdir("/proc/self/fd"))

    def refuse(*_words: object) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        if fault == "no descriptor":
            patch.setattr("aptui.link.server.socket.socket", refuse)
        else:
            patch.setattr(harness.selector, "register", refuse)
        with pytest.raises(HostError, match="cannot be created: Too many open files; check"):
            harness.server.listen()

    assert set(os.listdir("/proc/self/fd")) <= before
    harness.server.listen()


def test_closing_server_sends_waiting_notices_and_removes_its_socket(harness: Harness) -> None:
    guest = harness.subscriber()
    harness.server.publish(EngineMessage(1, 1, "good night"), 7, 1)

    harness.server.close()

    assert [message["text"] for message in guest.receive_all()] == ["good night"]
    assert not os.path.exists(harness.path)
    assert harness.handler.gone == []


def test_server_without_free_descriptors_accepts_no_clients_for_one_second(harness: Harness) -> None:
    class Full:
        def accept(self):
            raise OSError(24, "Too many open files")

    listener, harness.server._listener = harness.server._listener, Full()
    harness.server._selector.unregister(listener)
    harness.server._selector.register(listener, 1, harness.server._on_connection)
    harness.server._listener.fileno = listener.fileno
    bare = harness.bare()
    harness.turn()

    assert harness.server.next_deadline() == harness.clock.now + 1
    assert harness.selector.select(0) == []
    harness.server._listener = listener
    harness.clock.now += 1
    bare.say(id=1, verb="hello", protocol=PROTOCOL, version="1", kind="x", pid=1)
    assert bare.receive()["id"] == 1


def test_incomplete_messages_of_all_clients_share_a_limit() -> None:
    with opened(LinkLimits(begun_bytes=100_000)) as harness:
        guests = [harness.guest() for _ in range(3)]
        for guest in guests[:2]:
            guest.send(b"x" * 40_000)
        for _ in range(10):
            harness.turn()
        assert not harness.handler.gone

        guests[2].send(b"x" * 40_000)

        assert guests[2].receive()["refusal"]["what"] == "too many clients have sent incomplete messages"
        assert harness.handler.gone == [3]


def test_server_stops_reading_from_a_client_that_does_not_read_answers(harness: Harness) -> None:
    guest = harness.guest()
    asked = b'{"id":2,"verb":"status","lists_connections":true}\n' * 50
    is_full = False
    while not is_full:
        with contextlib.suppress(BlockingIOError):
            guest.socket.send(asked)
            harness.turn()
            continue
        is_full = not harness.selector.select(0)

    waiting = harness.server.connections()[0].waiting_bytes
    count = len(harness.handler.taken)
    harness.turn()
    assert 0 < waiting < 1 << 17
    assert len(harness.handler.taken) == count
    other = harness.guest()
    for number in range(count - 1):
        assert guest.receive()["id"] == 2, number
    other.say(id=9, verb="ping")
    assert other.receive()["id"] == 9
    assert not harness.handler.gone


def ask_for_much(harness: Harness) -> Bare:
    """Return a client that sent 400 requests with answers of 20 kB and has read nothing."""
    handle = harness.handler.handle
    harness.handler.handle = lambda request: (
        request.answer(text="x" * 20_000) if isinstance(request.verb, ReadStatus) else handle(request)
    )
    guest = harness.subscriber()
    guest.send(b'{"id":5,"verb":"status"}\n' * 400)
    for _ in range(5):
        harness.turn()
    return guest


def test_many_requests_at_once_are_answered_as_fast_as_they_are_read(harness: Harness) -> None:
    guest = ask_for_much(harness)

    assert 0 < harness.server.connections()[0].waiting_bytes < 100_000
    assert [guest.receive()["id"] for _ in range(400)] == [5] * 400
    assert not harness.handler.gone


def test_client_that_reads_again_is_served_again() -> None:
    with opened(LinkLimits(waiting_bytes=100_000)) as harness:
        guest = ask_for_much(harness)
        while guest.read():
            pass

        harness.server.publish(
            EngineMessage(1, 1, "x" * 100_000), 7, 1
        )  # these bytes exceed the limit, so the server tries to send at once

        received = [guest.receive() for _ in range(401)]
        assert [message["id"] for message in received if "id" in message] == [5] * 400
        assert not harness.handler.gone


def test_disconnecting_a_closed_client_is_harmless(harness: Harness) -> None:
    guest = harness.subscriber()
    harness.server.publish(EngineMessage(1, 1, "x"), 7, 1)
    guest.socket.close()

    assert harness.server.disconnect(1)
    harness.turn()

    assert harness.handler.gone == [1]


def test_client_that_closes_with_unsent_lines_is_dropped(harness: Harness) -> None:
    guest = harness.subscriber()
    while not harness.server.connections()[0].waiting_bytes:
        harness.server.publish(EngineMessage(1, 1, "x" * 50_000), 7, 1)
        harness.turn()

    guest.socket.close()
    harness.turn_until(lambda: harness.handler.gone)

    assert harness.server.connections() == ()


def test_client_without_credentials_is_refused() -> None:
    def unknown(_channel) -> Credentials:
        raise OSError

    with opened(credentials=unknown) as harness:
        assert harness.bare().receive_all() == []


# --------------------------------------------------------------------------------------------------------------- notices


def test_notices_reach_all_subscribers_in_order(harness: Harness) -> None:
    first, second, silent = harness.subscriber(), harness.subscriber(), harness.guest()
    for seq in range(1, 3001):
        harness.server.publish(job(seq), 7, seq)
        if seq % 500 == 0:
            harness.server.flush()

    for follower in (first, second):
        assert [follower.receive()["seq"] for _ in range(3000)] == list(range(1, 3001))
    silent.say(id=5, verb="ping")
    assert silent.receive()["id"] == 5


def test_subscriber_of_ended_jobs_gets_no_notices_of_pending_or_running_jobs(harness: Harness) -> None:
    all_of_it, settled = harness.subscriber(), harness.subscriber(wants_all=False)
    for seq, status in enumerate(("pending", "processing", "completed", "failed", ""), 1):
        harness.server.publish(job(seq, status), 7, seq)
    harness.server.publish(EngineMessage(1, 1, "x"), 7, 6)

    assert [all_of_it.receive()["seq"] for _ in range(6)] == [1, 2, 3, 4, 5, 6]
    assert [settled.receive()["seq"] for _ in range(4)] == [3, 4, 5, 6]


def test_only_the_newest_of_several_replaceable_notices_waits(harness: Harness) -> None:
    follower = harness.subscriber()
    for seq in range(1, 101):
        harness.server.publish(progress(seq), 7, seq)
        harness.server.publish(HealthChanged(1, Health(disk=str(seq))), 7, seq)
        harness.server.publish(ConnectionsChanged(1, harness.server.connections()), 7, seq)
        if seq in (10, 20):
            harness.server.publish(job(seq), 7, seq)
    waiting = harness.server.connections()[0].waiting_bytes
    harness.server.publish(EngineMessage(1, 1, "last"), 7, 101)

    received = [follower.receive() for _ in range(6)]

    assert [(message["notice"], message["seq"]) for message in received] == [
        ("JobChanged", 10), ("JobChanged", 20), ("Progress", 100), ("HealthChanged", 100), ("ConnectionsChanged", 100),
        ("Said", 101),
    ]  # fmt: skip
    assert 0 < waiting < 3000


def test_a_line_that_is_half_sent_is_never_replaced(harness: Harness) -> None:
    follower = harness.subscriber()
    texts = ("x" * 700_000, "y" * 700_000, "z")
    for seq, text in enumerate(texts, 1):
        harness.server.publish(HealthChanged(1, Health(disk=text)), 7, seq)
        harness.server.flush()

    assert [follower.receive()["seq"] for _ in range(2)] == [1, 3]


def test_gateway_has_a_higher_limit_of_waiting_notices_than_other_clients() -> None:
    text = "x" * 500_000
    with opened(LinkLimits(waiting_bytes=1_000_000)) as harness:
        for kind in ("test", "gateway"):
            guest = harness.guest(kind=kind)
            guest.say(id=2, verb="subscribe")
            assert guest.receive()["id"] == 2
        for seq, left in ((5, {"gateway"}), (20, set())):
            for number in range(seq):
                harness.server.publish(EngineMessage(1, 1, text), 7, number)
            assert {each.kind for each in harness.server.connections()} == left


def test_subscriber_that_never_reads_costs_limited_memory(harness: Harness) -> None:
    sleeper, follower = harness.subscriber(), harness.guest()
    number = harness.server.connections()[0].number
    tracemalloc.start()
    for seq in range(100_000):
        harness.server.publish(job(seq), 7, seq)
    harness.server.flush()
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert harness.handler.gone == [number]
    assert peak < 16 << 20
    follower.say(id=3, verb="ping")
    assert follower.receive()["id"] == 3
    while sleeper.receive() is not None:
        pass


def test_subscriber_that_never_reads_is_dropped_after_few_lines(harness: Harness) -> None:
    harness.subscriber()
    seq = 0
    while not harness.server.connections()[0].waiting_bytes:  # send until the kernel's buffer is full
        seq += 1
        harness.server.publish(job(seq), 7, seq)
        harness.server.flush()
    for _ in range(1_000):
        harness.server.publish(job(seq), 7, seq)
    harness.clock.now += 0.9
    harness.turn()
    assert not harness.handler.gone

    harness.clock.now += 0.2
    harness.server.publish(job(seq), 7, seq)
    harness.turn()

    assert harness.handler.gone == [1]
    assert harness.server.connections() == ()


def test_burst_does_not_drop_a_subscriber_that_reads(harness: Harness) -> None:
    follower = harness.subscriber()
    for seq in range(1, 10_001):
        harness.server.publish(job(seq), 7, seq)
    harness.clock.now += 5

    assert [follower.receive()["seq"] for _ in range(10_000)] == list(range(1, 10_001))
    assert not harness.handler.gone


def test_notices_stay_in_order_when_a_client_is_dropped(harness: Harness) -> None:
    harness.subscriber()
    follower = harness.subscriber()
    harness.handler.forget_client = lambda _number: harness.server.publish(ConnectionsChanged(1, ()), 7, 999)
    for _ in range(2):
        harness.server.publish(EngineMessage(1, 1, "x" * (3 << 20)), 7, 5)
        while not follower.begun.endswith(b"\n"):
            harness.turn()
            follower.read()

    assert [follower.receive()["seq"] for _ in range(3)] == [5, 5, 999]


def test_notice_that_no_client_receives_is_not_encoded(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.guest()
    harness.subscriber(wants_all=False)
    monkeypatch.setattr("aptui.link.codec.encode_notice", lambda *_: sys.exit("encoded for nobody"))

    harness.server.publish(job(1, "pending"), 7, 1)


def test_every_notice_can_be_published(harness: Harness) -> None:
    follower = harness.subscriber()
    for record in NOTICES:
        harness.server.publish(example(record), 7, 1)

    older = {"EngineMessage": "Said", "ShowRequested": "ShowAsked"}
    wanted = [older.get(record.__name__, record.__name__) for record in NOTICES]
    assert [follower.receive()["notice"] for _ in NOTICES] == wanted
