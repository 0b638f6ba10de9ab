"""The sockets of O3DE's protocol: negotiation and its refusals, frames, limits, slow and hostile clients, over a real loopback."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from unittest import mock

import pytest
from waiting import until

from aptui.features.o3de.connection import o3de_server
from aptui.features.o3de.connection.connection_settings import ConnectionSettings, branch_token, canonical_entries, listen
from aptui.features.o3de.connection.o3de_messages import CHANGES, O3deMessage, encode
from aptui.features.o3de.connection.o3de_server import O3deServer, O3deSession, refuse
from aptui.shared.errors import HostError
from tests.features.o3de.connection import o3de_client as client
from tests.features.o3de.connection.o3de_client import O3deClient

pytestmark = pytest.mark.real

PING = client.message("E06F6663-A168-439A-83E1-6F2215BAC0B6")
TOKEN = branch_token("/opt/O3DE")


def settings(**values: Any) -> ConnectionSettings:
    return ConnectionSettings("Game", TOKEN, ("linux",), "/none", "/none/db", "/none/user", "/none/log", **values)


class _Answers:
    """Answers a ping at once, and a status when `gate` is set."""

    def __init__(self, gate: asyncio.Event) -> None:
        self._gate = gate

    def find_handler(self, name: str) -> tuple[Callable[[O3deMessage], Awaitable[dict[str, Any] | None]], bool] | None:
        handlers = {
            "RequestPing": (self._ping, False),
            "RequestAssetStatus": (self._status, False),
            "FileReadRequest": (self._read, True),
            "FileTellRequest": (self._position, True),
        }
        return handlers.get(name)

    async def _ping(self, _request: O3deMessage) -> dict[str, Any]:
        return {}

    async def _read(self, request: O3deMessage) -> dict[str, Any]:
        return {"Data": b"x" * request["BytesToRead"]}

    async def _position(self, _request: O3deMessage) -> dict[str, Any]:
        return {"Offset": -1}

    async def _status(self, request: O3deMessage) -> dict[str, Any]:
        if request["SearchTerm"] == "error":
            raise RuntimeError("mistake")
        await self._gate.wait()
        return {"AssetStatus": 4}

    def close(self) -> None:
        pass


class Serving:
    """A server whose event loop runs in a separate thread."""

    def __init__(self) -> None:
        self.reports: list[str] = []
        self.bulk = [encode(O3deMessage(CHANGES, {"Type": 0, "Messages": ()}))]
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        assert self._ready.wait(20)

    async def _run(self) -> None:
        self.gate, self._over, self.loop = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop()
        self.server = O3deServer(settings(), lambda _session: _Answers(self.gate), self._welcome, self.reports.append)
        listening = listen(settings(), 0)
        self.port = listening.getsockname()[1]
        await self.server.start(listening)
        self._ready.set()
        await self._over.wait()
        await self.server.close()

    async def _welcome(self, session: O3deSession) -> None:
        for payload in self.bulk:
            session.send_now(CHANGES, payload)
        await session.wait_until_sent()

    def in_loop(self, call: Callable[[], object]) -> None:
        self.loop.call_soon_threadsafe(call)

    def connect(self, **values: Any) -> O3deClient:
        connected = O3deClient(self.port)
        connected.negotiate(values.pop("project", "game"), token=TOKEN.lower(), **values)
        return connected

    def end(self) -> None:
        self.in_loop(self._over.set)
        self._thread.join(20)
        assert not self._thread.is_alive()


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    monkeypatch.setattr(o3de_server, "_NEGOTIATION_S", 5.0)
    made = Serving()
    yield made
    made.end()


def has_ended(connected: O3deClient) -> bool:
    """Wait for the end of a connection."""
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        while connected.channel.recv(1 << 16):
            pass
    return True


def test_list_of_products_is_sent_again_if_notices_are_lost_while_it_is_sent() -> None:
    """Received notices are sent before the second list: a product of the first list may have been removed since."""
    sent: list[bytes] = []

    async def connect() -> O3deSession:
        session = O3deSession(mock.Mock(), mock.Mock())
        session.send_now = lambda _shape, payload: sent.append(payload)  # type: ignore[method-assign]

        async def send_all(_session: O3deSession) -> None:
            sent.append(b"all products")
            session.notify(CHANGES, b"removed" if len(sent) == 1 else b"added")
            if len(sent) == 1:
                server.send_bulk_again()

        server = O3deServer(settings(), mock.Mock(), send_all)
        server.sessions.add(session)
        await server._welcome(session)
        return session

    session = asyncio.run(connect())

    assert (sent, session.backlog) == ([b"all products", b"removed", b"all products", b"added"], None)


def test_client_gets_answers_after_its_negotiation_succeeds(serving: Serving) -> None:
    with O3deClient(serving.port) as editor:
        answer = editor.negotiate("game", token=TOKEN)

        facts = {pair["value1"].number: pair["value2"].text for pair in answer["NegotiationInfo"].children}
        assert (answer["ApiVersion"].number, answer["Identifier"].text) == (7, "ASSETPROCESSOR")
        assert facts == {0: str(os.getpid()), 2: TOKEN, 3: "Game"}
        editor.wait_for("AssetProcessorManager::BulkAssetNotification")
        assert editor.ask("AssetSystem::RequestPing", PING).children[0].name == client.crc("BaseClass1")
    assert serving.reports == []


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"version": 6}, "EDITOR uses version 6 of the protocol; this engine uses version 7"),
        ({"project": "other"}, "EDITOR has another project open: 'other', not 'Game'"),
        ({"name": "GAME", "token": "0x0"}, f"GAME belongs to another engine: its branch token is '0x0', not '{TOKEN}'"),
    ],
)
def test_refused_client_gets_an_answer_and_the_user_gets_a_report(serving: Serving, values: dict[str, Any], why: str) -> None:
    given = {"project": "Game", "token": TOKEN} | values
    for _ in range(2):
        with O3deClient(serving.port) as editor:
            assert editor.negotiate(**given)["Identifier"].text == "ASSETPROCESSOR"
            assert has_ended(editor)

    until(lambda: serving.reports == [why])


def test_client_names_are_shortened_and_made_safe_in_reports(serving: Serving) -> None:
    with O3deClient(serving.port) as editor:
        editor.negotiate("Game", token="\x1b[31m" + "x" * 5000, name="\n" + "n" * 5000)
        assert has_ended(editor)

    until(lambda: serving.reports)
    assert "\x1b" not in serving.reports[0]
    assert len(serving.reports[0]) < 600


def test_client_that_runs_in_the_server_process_is_refused() -> None:
    own = {0: str(os.getpid()), 2: TOKEN, 3: "GAME"}

    assert refuse(settings(), "GAME", 7, own) == "GAME sent the process id of this engine instead of its own"
    assert refuse(settings(), "UNITTEST", 7, own) == ""
    assert refuse(settings(), "GAME", 7, own | {0: f"{os.getpid()}1"}) == ""


def test_branch_token_equals_the_token_of_o3de() -> None:
    """The expected token is in O3DE's own tests."""
    assert branch_token("F:\\w s 1\\dev") == branch_token("F:\\w s 1\\dev\\") == "0x68E564C5"


@pytest.mark.parametrize(
    ("remote", "is_local", "why"),
    [
        ("127.0.0.1", True, ""), ("127.0.0.1", False, "a program of another user is refused"), ("10.1.2.3", False, ""),
        ("10.9.9.9", False, "10.9.9.9 is in the rejected list"),
        ("192.168.0.9", False, "192.168.0.9 is not in the allowed list"),
        ("", False, "the address of a client is unknown"),
    ],
)  # fmt: skip
def test_only_programs_of_this_user_and_programs_at_allowed_addresses_are_served(remote: str, is_local: bool, why: str) -> None:
    given = settings(allowed=canonical_entries(["10.0.0.0/8", "not an address!"]), rejected=canonical_entries(["10.9.0.0/16"]))
    server = O3deServer(given, lambda _session: _Answers(asyncio.Event()), _do_nothing)

    assert server.why_refused(remote, is_local=is_local) == why


def test_program_of_another_user_is_refused_at_the_socket(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aptui.link.places.loopback_uid", lambda _channel: os.geteuid() + 1)
    with O3deClient(serving.port) as other:
        assert has_ended(other)

    until(lambda: serving.reports == ["a program of another user is refused"])


async def _do_nothing(_session: O3deSession) -> None:
    pass


def test_server_listens_only_on_this_machine_by_default() -> None:
    for given, address in (
        (settings(), "127.0.0.1"),
        (settings(allowed=("localhost",)), "127.0.0.1"),
        (settings(allowed=("/0",)), "0.0.0.0"),
    ):
        with listen(given, 0) as channel:
            assert channel.getsockname()[0] == address


def test_port_in_use_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(HostError, match="is used by another program"):
        listen(settings(), taken.getsockname()[1])


def test_slow_answer_does_not_delay_other_answers(serving: Serving) -> None:
    status = client.message("0CBE6A7C-9D19-4D41-B29C-A52476BB337A", client.text("SearchTerm", "a"), version=3)
    with serving.connect() as editor:
        editor.send("AssetSystem::RequestAssetStatus", status, 77)
        editor.ask("AssetSystem::RequestPing", PING)
        serving.in_loop(serving.gate.set)

        kind, serial, answer = next(iter([editor.receive()]))
        while kind != client.crc("AssetSystem::RequestAssetStatus"):
            kind, serial, answer = editor.receive()
        assert (serial, answer["AssetStatus"].number) == (77 | 1 << 31, 4)


@pytest.mark.parametrize("name", ["AssetSystem::Unknown", "AssetProcessor::GetAbsoluteAssetDatabaseLocationRequest"])
def test_client_gets_an_empty_answer_to_an_unsupported_request(serving: Serving, name: str) -> None:
    """O3DE's client waits without a limit for the answer to a request, and takes an empty one for a failure."""
    with serving.connect() as editor:
        assert editor.ask(name, b"anything") is client.NOTHING
        assert editor.ask("AssetSystem::RequestPing", PING) is not client.NOTHING


def test_server_does_not_answer_serial_0_and_messages_marked_as_answers(serving: Serving) -> None:
    with serving.connect() as editor:
        editor.send("AssetSystem::Unknown", b"anything", 0)
        editor.send("AssetSystem::Unknown", b"anything", 5 | 1 << 31)
        editor.send("AssetSystem::RequestPing", PING, 0)
        editor.send("AssetSystem::RequestPing", PING, 6)

        received = {editor.receive()[:2] for _ in range(2)}
    assert received == {
        (client.crc("AssetProcessorManager::BulkAssetNotification"), 0),
        (client.crc("AssetSystem::RequestPing"), 6 | 1 << 31),
    }


def test_internal_error_during_an_answer_ends_only_the_affected_connection(serving: Serving) -> None:
    status = client.message("0CBE6A7C-9D19-4D41-B29C-A52476BB337A", client.text("SearchTerm", "error"), version=3)
    with serving.connect() as first, serving.connect() as second:
        first.send("AssetSystem::RequestAssetStatus", status, 1)

        assert has_ended(first)
        assert second.ask("AssetSystem::RequestPing", PING)
    until(lambda: any("RuntimeError: mistake" in report for report in serving.reports))


def test_answer_that_cannot_be_encoded_is_reported(serving: Serving) -> None:
    with serving.connect() as editor:
        editor.send("AssetSystem::FileTell", client.message("EF11067E-5C35-4A3F-8BB2-FEC57C037E3F"), 1)

        assert has_ended(editor)
    until(lambda: any("failed (FileTellRequest)" in report for report in serving.reports))


def frame(name: str, size: int, payload: bytes, serial: int = 1) -> bytes:
    return struct.pack("<III", client.crc(name), size, serial) + payload


GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + b"x" * 200,
    "zeros": bytes(64),
    "huge": frame("AssetSystem::Negotiation", 0xFFFF_FFFF, b""),
    "not a stream": frame("AssetSystem::Negotiation", 4, b"abcd"),
    "another message": frame("AssetSystem::RequestPing", len(PING), PING),
}


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_before_the_negotiation_ends_the_connection(serving: Serving, data: bytes) -> None:
    with O3deClient(serving.port) as outsider:
        outsider.channel.sendall(data)
        assert has_ended(outsider)

    with serving.connect() as editor:
        assert editor.ask("AssetSystem::RequestPing", PING)
    until(lambda: len(serving.reports) == 1)


@pytest.mark.parametrize("data", [frame("AssetSystem::RequestPing", 3, b"abc"), frame("AssetSystem::FileWrite", 1 << 28, b"")])
def test_damaged_or_huge_message_ends_the_connection(serving: Serving, data: bytes) -> None:
    with serving.connect() as editor:
        editor.channel.sendall(data)

        assert has_ended(editor)


def test_client_that_is_silent_or_sends_half_a_frame_is_disconnected(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(o3de_server, "_NEGOTIATION_S", 0.05)
    monkeypatch.setattr(o3de_server, "_FRAME_S", 0.05)
    with O3deClient(serving.port) as silent, O3deClient(serving.port) as half:
        half.channel.sendall(frame("AssetSystem::Negotiation", 100, b"x" * 50))

        assert has_ended(silent)
        assert has_ended(half)


def test_client_that_does_not_read_is_disconnected(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    serving.bulk = [
        encode(O3deMessage(CHANGES, {"Messages": [("x" * 1_000_000, 0, 0, (bytes(16), 0), bytes(16), (), "linux")]}))
    ] * 80
    with serving.connect() as editor:
        until(
            lambda: any(
                "EDITOR reads too slowly: more than 64 MiB of messages wait to be sent" in report for report in serving.reports
            )
        )

        assert has_ended(editor)
    assert not serving.server.sessions


def test_client_that_reads_late_gets_the_answers_in_order(serving: Serving) -> None:
    """Until the client reads, its further requests wait, because their answers would fill the memory."""
    count = 40
    with serving.connect() as editor:
        for number in range(count):
            wanted = client.number("BytesToRead", 3_000_000 + number, client.U64)
            editor.send("AssetSystem::FileRead", client.message("9FC866C7-A9C0-41CB-BC41-A333240D3C7E", wanted), number + 1)
        until(lambda: any(session.queued_bytes for session in serving.server.sessions), "answers are waiting")
        editor.wait_for("AssetProcessorManager::BulkAssetNotification")

        sizes = [len(editor.receive()[2]["Data"].value) for _ in range(count)]
    assert sizes == [3_000_000 + number for number in range(count)]
    assert serving.reports == []


def test_session_ends_if_its_client_leaves_while_many_answers_wait(serving: Serving) -> None:
    """Each answer has more than `_BUSY_BYTES`, so that the server stops reading although the kernel takes some answers."""
    with serving.connect() as editor:
        for number in range(40):
            wanted = client.number("BytesToRead", 5_000_000, client.U64)
            editor.send("AssetSystem::FileRead", client.message("9FC866C7-A9C0-41CB-BC41-A333240D3C7E", wanted), number + 1)
        until(lambda: any(session.queued_bytes > o3de_server._BUSY_BYTES for session in serving.server.sessions))

    until(lambda: not serving.server.sessions, "the session has ended", timeout_s=10)


def test_many_silent_and_aborted_connections_do_not_stop_the_server(serving: Serving) -> None:
    """150 clients are silent, and 200 leave after some bytes. One other client is always served, and no descriptor stays open."""
    chance = random.Random(7)
    with serving.connect() as editor, contextlib.ExitStack() as silent:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(150):
            silent.enter_context(O3deClient(serving.port))
        with serving.connect() as late:
            assert late.ask("AssetSystem::RequestPing", PING)
        silent.close()
        for number in range(200):
            with contextlib.suppress(OSError, EOFError), O3deClient(serving.port) as guest:
                match number % 4:
                    case 0:
                        guest.negotiate("game", token=TOKEN)
                    case 1:
                        guest.channel.sendall(chance.randbytes(chance.randrange(1, 300)))
                    case 2:
                        guest.channel.sendall(frame("AssetSystem::Negotiation", 500, b"half"))

        until(lambda: len(serving.server.sessions) == 1 and len(os.listdir("/proc/self/fd")) <= before)
        assert editor.ask("AssetSystem::RequestPing", PING)
