"""The client, connected to a server in a thread: answers, refusals, notices and ended connections.

Two threads can use one connection.
"""

import errno
import os
import socket
import struct
import subprocess
import sys
import threading
from unittest import mock

import pytest
from link_harness import NOTICES, Engine, example, running, short_folder

from aptui.core.notices import EngineMessage
from aptui.link import codec
from aptui.link.codec import NoticeLine
from aptui.link.engine_client import EngineClient, EngineGone, NoAnswer, NoEngine, RequestRefused
from aptui.link.port import Disconnect, Hold, PingEngine, ReadStatus, RescanSources, Settle, Subscribe
from aptui.link.server import LinkLimits
from aptui.shared.errors import BusyError, HostError, KnownError, UserError

pytestmark = pytest.mark.real


@pytest.fixture
def engine():
    with running() as engine:
        yield engine


def connect(engine: Engine, **options) -> EngineClient:
    return EngineClient.connect(engine.harness.path, **options)


def test_hello_exchanges_process_ids_of_client_and_engine(engine: Engine) -> None:
    with connect(engine, kind="tui", name="me") as client:
        answer = client.ask(ReadStatus(lists_connections=True))

    assert (client.hello.version, client.hello.pid, client.hello.epoch) == ("1.2.3", os.getpid(), 7)
    assert (client.hello.project, client.hello.cache, client.hello.started_ms) == ("/p", "/c", 5)
    assert [(item["kind"], item["name"], item["pid"]) for item in answer["connections"]] == [("tui", "me", os.getpid())]


def test_connecting_to_a_missing_engine_raises_the_no_engine_error() -> None:
    with short_folder() as folder:
        dead = str(folder / "dead")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(dead)

        for path in (dead, str(folder / "absent"), str(folder / "absent" / "socket")):
            with pytest.raises(NoEngine):
                EngineClient.connect(path)
        with pytest.raises(HostError, match="cannot be reached"):
            EngineClient.connect(str(folder / ("x" * 120)))


def test_socket_of_another_user_is_refused(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aptui.link.places.Credentials.is_trusted", False)

    with pytest.raises(HostError, match="belongs to another user"):
        connect(engine)


def test_each_of_two_clients_gets_its_own_answers(engine: Engine) -> None:
    with connect(engine) as first, connect(engine) as second:
        assert first.ask(PingEngine()) == {"verb": "PingEngine"}
        assert second.ask(ReadStatus()) == {"verb": "ReadStatus"}
        assert first.ask(ReadStatus()) == {"verb": "ReadStatus"}


def test_refusal_raises_the_error_class_of_its_exit_code(engine: Engine) -> None:
    with connect(engine) as client:
        with pytest.raises(RequestRefused, match="no scan now; later") as caught:
            client.ask(RescanSources())

        assert isinstance(caught.value, UserError)
        assert caught.value.exit_code == 3
        for code, family in ((4, BusyError), (2, HostError), (77, HostError)):
            received = []
            client.post(Settle(), received.append)
            request = engine.await_request(Settle)
            engine.do(lambda code=code, request=request: request.refuse("no", "because", code))
            client.ask(PingEngine())
            assert isinstance(received[0], family)
            assert isinstance(received[0], RequestRefused)
            assert received[0].exit_code == family.exit_code
            engine.harness.handler.taken.clear()


def test_client_beyond_the_limit_gets_the_reason_of_its_refusal() -> None:
    with running(LinkLimits(connections=1)) as engine, connect(engine), pytest.raises(BusyError, match="already has 1 connections"):
        connect(engine)


def test_late_answer_is_dropped_and_does_not_answer_the_next_request(engine: Engine) -> None:
    with connect(engine) as client:
        with pytest.raises(NoAnswer):
            client.ask(Settle(), timeout_s=0.01)
        assert not client._awaited
        request = engine.await_request(Settle)
        engine.do(lambda: request.answer(run=1))

        assert client.ask(PingEngine(), 5) == {"verb": "PingEngine"}


def test_client_gives_up_an_engine_that_sends_no_hello() -> None:
    with short_folder() as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "s"))
        listener.listen()

        with pytest.raises(NoAnswer):
            EngineClient.connect(str(folder / "s"), timeout_s=0.01)


def test_client_refuses_a_malformed_hello_of_an_engine(engine: Engine) -> None:
    handle = engine.harness.handler.handle
    engine.harness.handler.handle = lambda request: (
        request.answer(pid="many") if not engine.harness.handler.taken else handle(request)
    )

    with pytest.raises(EngineGone, match="greeting is invalid"):
        connect(engine)


def test_client_gives_up_if_the_engine_accepts_no_connection_or_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aptui.link.engine_client._SEND_LIMIT", (0, 10_000))
    with short_folder() as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "s"))
        listener.listen(0)

        with pytest.raises(NoAnswer):
            EngineClient.connect(str(folder / "s"), timeout_s=0.01)
        with pytest.raises(EngineGone, match="does not accept connections"):
            EngineClient.connect(str(folder / "s"), timeout_s=0.01)
        channel, _ = listener.accept()
        channel.close()
        with socket.socket(socket.AF_UNIX) as ours:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 10_000))
            ours.connect(str(folder / "s"))
            client = EngineClient(ours)
            received = []
            client.post(Hold("x" * 1_000_000), received.append)
            with pytest.raises(EngineGone, match="no longer reads requests"):
                client.ask(PingEngine())
            assert isinstance(received[0], EngineGone)


@pytest.mark.parametrize("is_stuck", [False, True])
def test_request_without_time_limit_ends_only_if_the_engine_answers_no_ping(
    is_stuck: bool, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = engine.harness.handler.handle
    pings: list[object] = []

    def answer(request) -> None:
        if isinstance(request.verb, PingEngine):
            pings.append(request)
            if is_stuck:
                return
            if len(pings) == 3:
                next(each for each in engine.harness.handler.taken if isinstance(each.verb, Settle)).answer(run=1)
        handle(request)

    monkeypatch.setattr(engine.harness.handler, "handle", answer)
    monkeypatch.setattr("aptui.link.engine_client._SILENCE_S", 0.2 if is_stuck else 0.05)
    with connect(engine) as client:
        if is_stuck:
            with pytest.raises(NoAnswer, match="has not answered"):
                client.ask(Settle())
        else:
            assert client.ask(Settle()) == {"run": 1}


def test_notices_are_received_while_an_answer_is_awaited(engine: Engine) -> None:
    with connect(engine) as client:
        client.ask(Subscribe())
        client.post(Settle())
        engine.await_request(Settle)
        engine.do(lambda: engine.harness.server.publish(EngineMessage(1, 1, "x"), 7, 1))
        received = []

        client.ask(PingEngine(), on_news=received.append)

        assert [news.seq for news in received] == [1]
        assert client.next_news(0.0) is None


def test_notices_that_arrive_before_an_answer_are_kept(engine: Engine) -> None:
    with connect(engine) as client:
        client.ask(Subscribe())
        received = []
        client.post(Settle(), received.append)
        request = engine.await_request(Settle)

        def notify() -> None:
            for seq in (1, 2, 3):
                engine.harness.server.publish(EngineMessage(seq, 1, "x"), 7, seq)
            request.answer(run=3)

        engine.do(notify)
        assert client.ask(PingEngine()) == {"verb": "PingEngine"}

        assert received == [{"run": 3}]
        assert [news.seq for news in iter(lambda: client.next_news(0.0), None)] == [1, 2, 3]
        assert client.next_news(0.01) is None


def test_every_notice_arrives_as_it_was_published(engine: Engine) -> None:
    notices = [example(record) for record in NOTICES]
    with connect(engine) as client:
        client.ask(Subscribe())
        engine.do(lambda: [engine.harness.server.publish(notice, 7, seq) for seq, notice in enumerate(notices)])

        assert [client.next_news(10) for _ in notices] == [NoticeLine(7, seq, notice) for seq, notice in enumerate(notices)]


def test_end_of_the_connection_is_reported_after_earlier_notices(engine: Engine) -> None:
    with connect(engine) as client:
        client.ask(Subscribe())
        received = []
        client.post(Settle(), received.append)
        number = engine.await_request(Settle).client

        def end() -> None:
            engine.harness.server.publish(EngineMessage(1, 1, "last"), 7, 1)
            engine.harness.server.disconnect(number)

        engine.do(end)

        assert client.next_news(10).notice.text == "last"
        with pytest.raises(EngineGone):
            client.next_news(10)
        assert isinstance(received[0], EngineGone)
        with pytest.raises(EngineGone):
            client.ask(PingEngine())
        with pytest.raises(EngineGone):
            client.next_news()


def test_client_that_disconnects_itself_gets_an_engine_gone_error(engine: Engine) -> None:
    with connect(engine) as client, pytest.raises(EngineGone):
        client.ask(Disconnect(1))


def test_a_request_that_is_too_long_is_refused_with_the_limit(engine: Engine) -> None:
    with connect(engine) as client:
        with pytest.raises(RequestRefused, match="longer than 1048576 bytes"):
            client.ask(Hold("x" * (1 << 20)), 10)

        with pytest.raises(EngineGone, match="longer than 1048576 bytes"):
            client.ask(PingEngine())


def test_malformed_json_ends_the_connection(engine: Engine) -> None:
    with connect(engine) as client:
        engine.do(lambda: engine.harness.server.queue_line(1, b"\xff\xff\n"))

        with pytest.raises(EngineGone, match="invalid message"):
            client.next_news(10)


def test_unknown_messages_of_a_newer_engine_are_ignored(engine: Engine) -> None:
    with connect(engine) as client:
        engine.do(lambda: engine.harness.server.queue_line(1, b'{"notice":"Newer","epoch":1,"seq":1}\n{"wave":1}\n'))
        engine.do(lambda: engine.harness.server.queue_line(1, codec.encode_notice(EngineMessage(1, 1, "known"), 1, 2)))

        assert client.next_news(10).seq == 2


def test_threads_can_post_while_another_thread_reads(engine: Engine) -> None:
    received, is_enough = [], threading.Event()

    def receive(answer) -> None:
        received.append((threading.current_thread(), answer))
        if len(received) == 200:
            is_enough.set()

    with connect(engine) as client:
        ends = []

        def read() -> None:
            try:
                client.next_news()
            except KnownError as error:
                ends.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        posters = [threading.Thread(target=lambda: [client.post(PingEngine(), receive) for _ in range(50)]) for _ in range(4)]
        for poster in posters:
            poster.start()
        for poster in posters:
            poster.join()
        assert is_enough.wait(10)
        client.hang_up()
        reader.join(10)

    assert not reader.is_alive()
    assert {thread for thread, _ in received} == {reader}
    assert all(answer == {"verb": "PingEngine"} for _, answer in received)
    assert isinstance(ends[0], EngineGone)


def test_client_without_notices_does_not_import_notice_records() -> None:
    code = "import sys, aptui.link.engine_client; print([name for name in sys.modules if name.startswith('aptui.')])"

    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "aptui.link.port" in answer.stdout
    unwanted = ("core.messages", "core.model", "link.server", "aptui.engine", "aptui.store")
    assert not [name for name in unwanted if name in answer.stdout]


def test_connecting_without_free_descriptors_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", mock.Mock(side_effect=OSError(errno.EMFILE, os.strerror(errno.EMFILE))))

    with pytest.raises(HostError, match="Too many open files"):
        EngineClient.connect("/nowhere")
