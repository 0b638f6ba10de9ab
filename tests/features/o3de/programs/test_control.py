"""The control channel, over real sockets of this machine."""

import os
import resource
import selectors
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from waiting import TIMEOUT_S, until

from aptui.features.o3de.programs.control import COMMANDS, HOST, ControlChannel, RefusingPort, commands_in, listener
from aptui.link import places
from aptui.shared.errors import HostError


@pytest.mark.parametrize("command", COMMANDS)
def test_every_control_command_is_complete_without_a_line_end(command: str) -> None:
    assert commands_in(command.encode()) == ([command], b"")


@pytest.mark.parametrize(
    ("data", "commands", "rest"),
    [
        (b"pingisidle", ["ping", "isidle"], b""),
        (b"ping\r\nquit\n", ["ping", "quit"], b""),
        (b"waitfor", [], b"waitfor"),
        (b"pingsignali", ["ping"], b"signali"),
        (b"nonsense", [], b""),
        (b"PING", [], b""),
        (b"ping?quit", ["ping"], b""),
        (b"", [], b""),
        (b"\xff\x00", [], b""),
    ],
)
def test_received_bytes_are_split_into_commands_and_an_incomplete_rest(data: bytes, commands: list[str], rest: bytes) -> None:
    assert commands_in(data) == (commands, rest)


class Fake:
    """A processor whose state the test sets."""

    def __init__(self) -> None:
        self.idle = False
        self.waiting: list[Callable[[], None]] = []
        self.signalled: list[Callable[[], None]] = []
        self.is_over = False

    def is_idle(self) -> bool:
        return self.idle

    def when_idle(self, then: Callable[[], None]) -> None:
        self.waiting.append(then)

    def at_next_idle(self, then: Callable[[], None]) -> None:
        self.signalled.append(then)

    def quit(self) -> None:
        self.is_over = True


class Harness:
    """A control channel that the test polls."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.processor = Fake()
        self.channel = ControlChannel(self.selector, self.processor)
        self.clients: list[socket.socket] = []

    def connect(self) -> socket.socket:
        client = socket.create_connection((HOST, self.channel.port), timeout=TIMEOUT_S)
        self.clients.append(client)
        return client

    def until(self, is_true: Callable[[], object]) -> None:
        until(is_true, step=self.turn)

    def turn(self, left_s: float = 0.01) -> None:
        for key, mask in self.selector.select(min(0.02, left_s)):
            key.data(mask)

    def is_hung_up_on(self, client: socket.socket) -> bool:
        client.setblocking(False)

        def is_over() -> bool:
            try:
                return client.recv(100) == b""
            except BlockingIOError:
                return False
            except ConnectionError:
                return True

        self.until(is_over)
        return True

    def answer(self, client: socket.socket) -> str:
        client.setblocking(False)
        received: list[bytes] = []

        def has_come() -> bool:
            try:
                received.append(client.recv(100))
            except BlockingIOError:
                return False
            return True

        self.until(has_come)
        return received[0].decode()

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.channel.close()
        self.selector.close()


@pytest.fixture
def harness() -> Iterator[Harness]:
    harness = Harness()
    yield harness
    harness.close()


@pytest.mark.real
@pytest.mark.parametrize(("command", "answer"), [("ping", "pong"), ("isidle", "false"), ("windowid", "0")])
def test_ping_isidle_and_windowid_are_answered_at_once(harness: Harness, command: str, answer: str) -> None:
    client = harness.connect()

    client.sendall(command.encode())

    assert harness.answer(client) == answer


@pytest.mark.real
def test_isidle_command_is_answered_with_true_when_the_engine_is_idle(harness: Harness) -> None:
    client = harness.connect()
    harness.processor.idle = True

    client.sendall(b"isidle")

    assert harness.answer(client) == "true"


@pytest.mark.real
@pytest.mark.parametrize(("command", "list_name"), [("waitforidle", "waiting"), ("signalidle", "signalled")])
def test_waitforidle_is_answered_when_the_engine_becomes_idle(harness: Harness, command: str, list_name: str) -> None:
    client = harness.connect()
    client.sendall(command.encode())
    waiting = getattr(harness.processor, list_name)
    harness.until(lambda: waiting)
    client.sendall(b"ping")
    assert harness.answer(client) == "pong"

    waiting[0]()

    assert harness.answer(client) == "idle"


@pytest.mark.real
def test_control_command_may_arrive_in_two_parts(harness: Harness) -> None:
    client = harness.connect()
    client.sendall(b"pi")
    for _ in range(3):
        for key, mask in harness.selector.select(0.01):
            key.data(mask)
    client.sendall(b"ng")

    assert harness.answer(client) == "pong"


@pytest.mark.real
@pytest.mark.parametrize(
    "first_bytes",
    [b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9000\r\n\r\n", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01", b"P"],
)
def test_control_channel_disconnects_http_and_tls_clients(harness: Harness, first_bytes: bytes) -> None:
    client = harness.connect()

    client.sendall(first_bytes)

    assert harness.is_hung_up_on(client)
    assert not harness.processor.is_over


@pytest.mark.real
def test_connection_of_another_user_is_closed(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aptui.link.places.loopback_uid", lambda _channel: 65534)
    outsider = harness.connect()
    assert harness.is_hung_up_on(outsider)
    monkeypatch.undo()
    client = harness.connect()
    client.sendall(b"ping")

    assert harness.answer(client) == "pong"


@pytest.mark.real
def test_user_of_a_control_connection_is_read_from_the_kernel(tmp_path: Path) -> None:
    with listener(0) as server, socket.create_connection(server.getsockname()) as client:
        channel = server.accept()[0]
        with channel:
            assert places.loopback_uid(channel) == os.geteuid()
            client.close()
            assert places.loopback_uid(channel) in (None, os.geteuid())
            assert places.loopback_uid(channel, tmp_path / "nothing") is None


@pytest.mark.real
def test_control_channel_limits_its_clients_and_their_waiting_answers(harness: Harness) -> None:
    crowd = [harness.connect() for _ in range(17)]
    assert harness.is_hung_up_on(crowd[-1])
    crowd[0].sendall(b"waitforidle" * 9)

    assert harness.is_hung_up_on(crowd[0])
    assert len(harness.processor.waiting) == 8
    for send_answer in harness.processor.waiting:
        send_answer()


@pytest.mark.real
def test_exhausted_file_descriptors_do_not_cause_a_busy_loop(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    clients = [harness.connect() for _ in range(3)]
    harness.turn()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    crowd = [socket.create_connection((HOST, harness.channel.port)) for _ in range(5)]
    highest = max(map(int, os.listdir("/proc/self/fd")))
    fillers = [os.open(os.devnull, os.O_RDONLY)]
    while fillers[-1] <= highest:
        fillers.append(os.open(os.devnull, os.O_RDONLY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (fillers[-1] + 1, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            os.open(os.devnull, os.O_RDONLY)
        turns = 0
        while harness.selector.select(0) and turns < 100:
            harness.turn()
            turns += 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in (*crowd, *clients):
            each.close()
        for filler in fillers:
            os.close(filler)

    assert turns < 20


@pytest.mark.real
def test_quit_command_of_the_control_channel_gets_no_answer(harness: Harness) -> None:
    client = harness.connect()

    client.sendall(b"quit")

    harness.until(lambda: harness.processor.is_over)


@pytest.mark.real
def test_control_client_that_closed_its_connection_gets_no_answer(harness: Harness) -> None:
    client = harness.connect()
    client.sendall(b"waitforidle")
    harness.until(lambda: harness.processor.waiting)
    client.close()
    other = harness.connect()
    other.sendall(b"ping")
    assert harness.answer(other) == "pong"

    harness.processor.waiting[0]()

    other.sendall(b"ping")
    assert harness.answer(other) == "pong"


@pytest.mark.real
def test_only_the_first_refused_connection_is_reported() -> None:
    reported: list[str] = []
    with selectors.DefaultSelector() as selector:
        port_listener = RefusingPort(selector, 0, lambda: reported.append("once"))
        try:
            for _ in range(2):
                with socket.create_connection((HOST, port_listener.port), timeout=TIMEOUT_S) as client:
                    for key, mask in until(lambda: selector.select(0.1)):
                        key.data(mask)

                    assert client.recv(10) == b""
        finally:
            port_listener.close()

    assert reported == ["once"]


@pytest.mark.real
def test_next_port_is_used_if_the_first_port_is_in_use() -> None:
    with selectors.DefaultSelector() as selector, listener(0) as taken:
        port = taken.getsockname()[1]
        port_listener = RefusingPort(selector, port)
        try:
            assert port_listener.port > port
        finally:
            port_listener.close()


def test_listener_fails_if_no_port_is_free() -> None:
    with selectors.DefaultSelector() as selector, pytest.raises(HostError, match="no port from 65536 upwards is free"):
        RefusingPort(selector, 65536)
