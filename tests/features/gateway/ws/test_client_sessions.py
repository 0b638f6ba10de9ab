"""Messages to clients: hello, the catalog, changes, restarts of engines; and clients that do not read."""

from __future__ import annotations

import asyncio
import http.client
import json
import struct
from types import SimpleNamespace
from typing import Any, Self
from unittest.mock import AsyncMock

import pytest
from msgspec.structs import replace
from waiting import until

from aptui.cli.read_access import running_jobs
from aptui.features.gateway import client as client_module
from aptui.features.gateway import wire_codec, wire_records
from aptui.features.gateway.access import tokens as token_files
from aptui.features.gateway.access.guard import ClientIdentity
from aptui.features.gateway.client import Client, Disconnected, Refusal
from aptui.features.gateway.engine_requests import ShowSource
from aptui.features.gateway.wire_codec import Scope
from aptui.features.gateway.wire_records import Asset
from aptui.features.gateway.ws import client_sessions
from aptui.features.gateway.ws.routing import answer
from aptui.link import places
from aptui.link.engine_client import EngineClient
from tests.features.gateway.live_served import SETTINGS, Garden, garden, receive

pytestmark = pytest.mark.real

FILES = {"a/rose.txt": "red", "a/tulip.txt": "yellow", "x.slow": "x"}


def engine(there: Garden) -> EngineClient:
    return EngineClient.connect(places.socket_path(there.cache))


def catalog(client: Client) -> dict[str, Asset]:
    """Receive all parts of the catalog that the gateway sends to a client; return {platform/path: asset}."""
    assets, parts = {}, []
    while not parts or not parts[-1].is_last:
        parts.append(receive(client, wire_records.Catalog))
        assets.update({f"{asset.platform}/{asset.path}": asset for asset in parts[-1].assets})
    assert [part.is_first for part in parts] == [True] + [False] * (len(parts) - 1)
    return assets


def close(there: Garden, client: Client) -> int:
    """Close a client's connection in the gateway; return the connection's number."""
    number = client.welcome.connection
    asyncio.run_coroutine_threadsafe(there.served.context.sessions.all[number].close(1001, "bye"), there.served.loop).result(5)
    return number


# ------------------------------------------------------------------------------------------------------------------ hello


def test_hello_identifies_client_and_gateway(there: Garden) -> None:
    welcome = there.client(Scope.READ, Scope.CONTROL).welcome

    assert (welcome.protocol, welcome.project, welcome.platforms) == (wire_codec.VERSION, "Garden", ("linux", "server"))
    assert welcome.scopes == ("read", "control")
    assert welcome.epoch > 0


def test_long_client_name_and_repeated_platforms_in_hello_are_shortened(there: Garden) -> None:
    client = there.client(client="n" * 500_000, platforms=("linux",) * 10_000)
    session = there.served.context.sessions.all[client.welcome.connection]

    assert (session.hello.client, session.hello.platforms) == ("n" * 80, ("linux",))


@pytest.mark.parametrize(
    ("hello", "why"),
    [
        ({"project": "Desert"}, "this is the project 'Garden', not 'Desert'"),
        ({"platforms": ("toaster",)}, "'toaster' is not a platform"),
        ({"notices": ("gossip",)}, "'gossip' is not a notification"),
    ],
)
def test_client_of_another_project_is_refused(there: Garden, hello: dict[str, object], why: str) -> None:
    with pytest.raises(Refusal, match=why):
        there.client(**hello)


def test_project_name_is_compared_without_case(there: Garden) -> None:
    assert there.client(project="GARDEN").welcome.project == "Garden"


def test_first_request_must_be_hello_with_a_known_protocol_version(there: Garden) -> None:
    for request_text, why in (
        ({"id": 1, "request": "hello", "protocol": 99, "client": "x"}, "the client uses version 99"),
        ({"id": 1, "request": "ping"}, "the first request must be 'hello'"),
        ({"id": 1, "request": "helo"}, "'helo' is not a request"),
    ):
        with Bare(there) as bare:
            bare.say(json.dumps(request_text))
            assert why in bare.receive()
            assert bare.is_ended()
    with Bare(there) as bare:
        bare.say(HELLO, kind=2)
        assert bare.is_ended(), "requests are frames of text"


def test_second_hello_is_an_error_and_the_connection_continues(there: Garden) -> None:
    client = there.client()

    with pytest.raises(Refusal, match="was sent already"):
        client.ask(wire_records.Hello(wire_codec.VERSION, "again"))
    assert client.ask(wire_records.Ping()) == wire_records.Done()


def test_revoked_token_ends_the_connection_at_the_next_request(there: Garden) -> None:
    token = token_files.add(there.served.token_file, "leaver", [Scope.READ])
    client = Client.connect(there.url, token=token)
    there.clients.append(client)
    token_files.revoke(there.served.token_file, "leaver")

    with pytest.raises(Refusal, match="revoked"):
        client.ask(wire_records.Ping())
    with pytest.raises(Disconnected):
        receive(client, wire_records.Notice, lambda _notice: False)


# ----------------------------------------------------------------------------------------------------- catalog and changes


def test_revoked_token_ends_a_connection_without_requests(there: Garden) -> None:
    name = "listener"
    client = Client.connect(there.url, token=token_files.add(there.served.token_file, name, [Scope.READ]))
    there.clients.append(client)
    token_files.revoke(there.served.token_file, name)
    token_files.add(there.served.token_file, name, [Scope.READ])

    with pytest.raises(Disconnected, match="revoked"):
        receive(client, wire_records.Notice, lambda _notice: False)


def test_expired_token_ends_the_connection(there: Garden, monkeypatch: pytest.MonkeyPatch) -> None:
    token = token_files.add(there.served.token_file, "guest", [Scope.READ], lasts_ms=86_400_000)
    client = Client.connect(there.url, token=token)
    there.clients.append(client)
    client.ask(wire_records.Ping())
    later = token_files.now_ms() + 86_400_000

    monkeypatch.setattr(token_files, "now_ms", lambda: later)
    with pytest.raises(Disconnected, match="revoked or has expired"):
        while True:
            client.next_notice(10)
    with pytest.raises(Refusal, match="does not accept this token"):
        Client.connect(there.url, token=token)


def test_catalog_is_sent_before_changes(there: Garden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_sessions, "_CATALOG_PAGE", 2)
    client = there.client(platforms=("linux",), wants_catalog=True)

    first = catalog(client)
    there.write("a/rose.txt", "red red")
    changed = receive(client, wire_records.AssetChanged).asset
    there.write("a/new.txt", "new")
    fresh = receive(client, wire_records.AssetChanged).asset
    there.project.path("assets/a/new.txt").unlink()
    removed = receive(client, wire_records.AssetRemoved)

    assert first.keys() >= {"linux/a/rose.txt", "linux/a/tulip.txt", "linux/x.out"}
    assert all(name.startswith("linux/") for name in first)
    assert (changed.id, changed.path, changed.size) == (first["linux/a/rose.txt"].id, "a/rose.txt", 7)
    assert changed.digest != first["linux/a/rose.txt"].digest
    assert (fresh.path, removed) == ("a/new.txt", wire_records.AssetRemoved(fresh.id, "linux", "a/new.txt"))


def test_catalog_sent_to_a_client_equals_the_catalog_file_of_the_engine(there: Garden) -> None:
    client = there.client(wants_catalog=True)
    catalog_assets = catalog(client)
    client.ask(wire_records.SaveCatalog())

    for platform in ("linux", "server"):
        lines = [json.loads(line) for line in (there.cache / f"{platform}.catalog.jsonl").read_text().splitlines()[1:]]
        ours = [catalog_assets[f"{platform}/{line['path']}"] for line in lines]
        assert [(asset.id, asset.type, asset.size, asset.digest) for asset in ours] == [
            (line["id"], line["type"], line["size"], line["digest"]) for line in lines
        ]
        assert len(lines) == sum(name.startswith(f"{platform}/") for name in catalog_assets)


def test_catalog_can_be_requested_again(there: Garden) -> None:
    client = there.client(platforms=("server",))
    client.ask(wire_records.SendCatalog())

    assert "server/a/tulip.txt" in catalog(client)


def test_sources_and_jobs_are_notified_from_start_to_end(there: Garden) -> None:
    client = there.client(platforms=("linux",))
    there.gate.touch()
    there.write("told.slow", "told")

    receive(client, wire_records.SourceChanged, lambda notice: notice.path == "told.slow")
    started = receive(client, wire_records.JobStarted).job
    there.gate.unlink()
    ended = receive(client, wire_records.JobCompleted).job
    assert (started.source, started.status, started.job_id) == ("told.slow", "processing", ended.job_id)
    assert (ended.builder, ended.status) == ("slow", "completed")

    there.write("told.slow", "told fail")
    changed = receive(client, wire_records.SourceChanged)
    failed = receive(client, wire_records.JobFailed).job
    source = receive(client, wire_records.SourceFailed)
    assert changed.uuid.startswith("{")
    assert failed.error
    assert (source.path, source.platform) == ("told.slow", "linux")

    there.project.path("assets/told.slow").unlink()
    assert receive(client, wire_records.SourceRemoved).path == "told.slow"
    assert receive(client, wire_records.Counts).eta_ms >= -1


def test_progress_of_a_running_job_is_notified_and_listed(there: Garden) -> None:
    client = there.client(platforms=("linux",))
    there.gate.touch()
    there.write("told.adv", "told")

    started = receive(client, wire_records.JobStarted).job
    there.gate.with_name("advance").touch()  # reports the progress, after the start
    progressed = receive(client, wire_records.JobProgressed).job
    assert (started.percent, progressed) == (-1, replace(started, percent=40))
    (listed,) = client.ask(wire_records.JobsInfo(term="told.adv")).jobs
    assert (listed.status, listed.percent) == ("processing", 40)
    assert running_jobs(there.project.load()) == {started.job_id: 40}

    there.gate.unlink()
    assert receive(client, wire_records.JobCompleted).job.percent == -1
    assert running_jobs(there.project.load()) == {}


def test_clients_receive_only_requested_platforms_and_notifications(there: Garden) -> None:
    everything = there.client()
    server = there.client(platforms=("server",), notices=("asset_changed",))
    there.write("both.txt", "both")

    for _ in range(2):
        receive(everything, wire_records.AssetChanged, lambda notice: notice.asset.path == "both.txt")
    received = [each.notice for each in server.notices(0.2)]
    assert [(type(each), each.asset.platform) for each in received if each.asset.path == "both.txt"] == [
        (wire_records.AssetChanged, "server")
    ]


def test_client_is_notified_after_hello_that_no_critical_job_is_pending(there: Garden) -> None:
    watching, _ = there.client(platforms=("linux",)), there.client()

    assert receive(watching, wire_records.CriticalReady).platform == "linux"
    later = there.client(platforms=("linux",))
    assert receive(later, wire_records.CriticalReady).platform == "linux"


def test_show_in_editor_request_is_sent_to_a_connected_editor(there: Garden) -> None:
    editor = there.client()
    with engine(there) as screen:
        screen.ask(ShowSource("a/rose.txt", "linux/a/rose.txt"), 5)

    shown = receive(editor, wire_records.Show)
    assert (shown.source, shown.product, shown.platform) == ("a/rose.txt", "a/rose.txt", "linux")
    assert shown.source_file == str(there.project.root / "assets/a/rose.txt")
    assert shown.uuid.startswith("{")


# ---------------------------------------------------------------------------------------- invalid frames and slow clients


class Bare:
    """A WebSocket client on a plain socket, which can send invalid frames."""

    def __init__(self, there: Garden) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", there.served.port, timeout=10)
        connection.request(
            "GET",
            wire_codec.PATH,
            headers={
                "Authorization": f"Bearer {there.served.token}", "Connection": "Upgrade", "Upgrade": "websocket",
                "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
            },
        )  # fmt: skip
        assert connection.getresponse().status == 101
        self._connection, self.socket = connection, connection.sock

    def say(self, text: str, kind: int = 1) -> None:
        data = text.encode()
        size = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + struct.pack(">H", len(data))
        self.socket.sendall(bytes([0x80 | kind]) + size + b"\0\0\0\0" + data)

    def receive(self) -> str:
        """Return the next frame's payload."""
        _kind, size = self._read(2)
        length = (
            size if size < 126 else struct.unpack(">H", self._read(2))[0] if size == 126 else struct.unpack(">Q", self._read(8))[0]
        )
        return self._read(length).decode("utf-8", "replace")

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            assert piece, "ended"
            data += piece
        return data

    def is_ended(self) -> bool:
        """Wait until the gateway closes the connection, and return True; other frames are ignored."""
        try:
            while (received := self.socket.recv(65_536)) and b"\x88" not in received:
                pass
        except ConnectionError:
            pass
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
        self._connection.close()


HELLO = json.dumps({"id": 1, "request": "hello", "protocol": wire_codec.VERSION, "client": "bare"})


def test_only_a_frame_beyond_the_size_limit_is_refused(there: Garden) -> None:
    """The maximum length of a frame is 1 MiB."""
    with Bare(there) as bare:
        bare.say(HELLO)
        bare.receive()
        for size in ((1 << 20) - 100, (1 << 20) + 100):
            data = json.dumps({"id": 2, "request": "ping", "x": "y" * size}).encode()
            bare.socket.sendall(b"\x81\xff" + struct.pack(">Q", len(data)) + b"\0\0\0\0" + data)
            if size < 1 << 20:
                while "has no field 'x'" not in bare.receive():
                    pass
        assert bare.is_ended()


class Deaf:
    """A client's socket that reads nothing until `reads` is set, and records the frames."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.taken: list[str] = []

    async def send_frame(self, data: bytes, _kind: object) -> None:
        await self.reads.wait()
        self.taken.append(data.decode())


def test_slow_client_loses_its_queue_and_gets_resync(there: Garden) -> None:
    """The queue of a client holds at most 1,000 notifications. If it overflows, it is dropped, and the client gets `resync`."""

    async def scene() -> tuple[int, list[str]]:
        deaf = Deaf()
        context, every = SimpleNamespace(engine=SimpleNamespace(epoch=1, seq=9)), client_sessions.WireSessions(1, answer)
        session = client_sessions.WireSession(context, every, deaf, ClientIdentity("x", frozenset(Scope), ""), 1)
        session.hello = wire_records.Hello(1, "deaf")
        every.all[1] = session
        writer = asyncio.create_task(session._write())
        most = 0
        for number in range(5_000):
            every.publish(1, number, [wire_records.AssetRemoved("", "linux", str(number))])
            most = max(most, session.waiting_count)
            await asyncio.sleep(0)
        deaf.reads.set()
        while not any("reads too slowly" in text for text in deaf.taken):
            await asyncio.sleep(0.001)
        every.publish(1, 6_000, [wire_records.AssetRemoved("", "linux", "last")])
        while not any("last" in text for text in deaf.taken):
            await asyncio.sleep(0.001)
        writer.cancel()
        return most, deaf.taken

    most, taken = asyncio.run(scene())

    assert most <= wire_codec.QUEUE_LIMIT
    catalog_assets = [wire_codec.record_of(each) for text in taken for each in wire_codec.decode_message(text).notices]
    at = next(index for index, notice in enumerate(catalog_assets) if isinstance(notice, wire_records.Resync))
    after = [int(notice.path) for notice in catalog_assets[at + 1 : -1]]
    assert catalog_assets[-1] == wire_records.AssetRemoved("", "linux", "last")
    assert after == list(range(5_000 - len(after), 5_000))
    assert len(after) <= wire_codec.QUEUE_LIMIT


# -------------------------------------------------------------------------------------------- engines that start and end


def test_engine_restart_is_notified_and_causes_a_new_catalog(tmp_path_factory: pytest.TempPathFactory) -> None:
    with garden(tmp_path_factory.mktemp("garden"), SETTINGS, {"a.txt": "a"}) as there:
        client = there.client(platforms=("linux",), wants_catalog=True)
        assert catalog(client).keys() == {"linux/a.txt"}
        there.served.context.engine._client.hang_up()  # to the gateway, this looks like a crash of the engine

        assert not receive(client, wire_records.EngineChanged).is_here
        receive(client, wire_records.Resync)
        assert catalog(client).keys() == {"linux/a.txt"}
        assert receive(client, wire_records.EngineChanged).is_here


def test_client_gets_stored_data_without_an_engine(there: Garden, monkeypatch: pytest.MonkeyPatch) -> None:
    client = there.client()
    monkeypatch.setattr(there.served.context.engine, "is_here", False)

    state = client.ask(wire_records.AssetStatus(term="a/rose.txt"))
    assert (state.status, state.is_fenced) == ("compiled", False)
    assert client.ask(wire_records.ProcessorStatus()).state == "gone"
    with pytest.raises(Refusal, match="no engine is running") as refused:
        client.ask(wire_records.Reprocess(("*",)))
    assert refused.value.code == 2


def test_client_reconnects_and_reports_resync(there: Garden) -> None:
    client = there.client(platforms=("linux",), wants_catalog=True)
    receive(client, wire_records.Catalog, lambda notice: notice.is_last)
    number = close(there, client)

    receive(client, wire_records.Resync)
    receive(client, wire_records.Catalog, lambda notice: notice.is_last)
    assert client.ask(wire_records.Ping()) == wire_records.Done()
    assert client.welcome.connection != number


@pytest.mark.parametrize("broken", ["send_str", "receive"])
def test_client_tries_again_if_a_new_connection_breaks_before_the_welcome(
    there: Garden, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    client, dial = there.client(), client_module._dial
    error = ConnectionResetError("closing") if broken == "send_str" else TimeoutError()

    async def dial_broken(*values: Any) -> Any:
        monkeypatch.setattr(client_module, "_dial", dial)
        return AsyncMock(**{broken: AsyncMock(side_effect=error)})

    monkeypatch.setattr(client_module, "_dial", dial_broken)
    number = close(there, client)

    until(lambda: client.welcome.connection != number)
    assert client.ask(wire_records.Ping()) == wire_records.Done()


def test_client_gives_up_after_its_timeout(there: Garden) -> None:
    client = there.client(reconnect_s=0.6, place=lambda: ("http://127.0.0.1:9", "token"))
    close(there, client)

    with pytest.raises(Disconnected, match="no gateway answers"):
        while client.next_notice(10) is not None:
            pass
    with pytest.raises(Disconnected):
        client.ask(wire_records.Ping())


def test_client_reports_the_end_of_the_connection(there: Garden) -> None:
    client = there.client(reconnect_s=0)
    number = close(there, client)

    with pytest.raises(Disconnected):
        while client.next_notice(5) is not None:
            pass
    with pytest.raises(Disconnected):
        client.ask(wire_records.Ping())
    until(lambda: number not in there.served.context.sessions.all)
