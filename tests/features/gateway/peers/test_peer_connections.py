"""Connections of a gateway: access lists, dialled devices, the settings file, and reports to the engine."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import socket
import ssl
from contextlib import asynccontextmanager
from ipaddress import ip_address
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from waiting import until as live_until
from waiting import until_async as until

from aptui.config import load
from aptui.config.settings import GatewaySettings
from aptui.core.notices import PeerOrdered
from aptui.features.gateway.client import Device, Disconnected
from aptui.features.gateway.engine_requests import OrderPeers, ReportPeers
from aptui.features.gateway.gateway_context import GatewayContext
from aptui.features.gateway.peers import peer_connections, peer_settings
from aptui.features.gateway.peers.peer_connections import Admission, Peers, local_addresses
from aptui.features.gateway.ws.client_sessions import WireSessions
from aptui.features.gateway.ws.routing import answer
from aptui.link import codec, places, port
from aptui.link.codec import NoticeLine
from aptui.link.engine_client import EngineClient
from aptui.link.engine_link import NewsPulse
from aptui.shared.connections.addresses import apply_order, canonical, entry_for, is_host_name, split
from aptui.shared.connections.peers import Dial, PeerAction, PeerOrder, PeerSettings, PeerState
from aptui.shared.connections.peers import Dial as ConfiguredDial
from aptui.shared.errors import HostError, KnownError, UserError
from tests.features.gateway.live_served import CERTIFICATE, KEY, garden

pytestmark = pytest.mark.real

FAR = "198.51.100.7"
NO_CLIENTS = frozenset()


def admission(settings: PeerSettings = PeerSettings(), names: dict[str, str] | None = None) -> Admission:
    async def resolve(name):
        if name not in (names or {}):
            raise OSError("unknown")
        return {ip_address(word) for word in names[name].split()}

    return Admission(settings, resolve=resolve, local=lambda: NO_CLIENTS)


def listed(allowed: str = "", rejected: str = "", **more) -> PeerSettings:
    return PeerSettings((), tuple(map(canonical, split(allowed))), tuple(map(canonical, split(rejected))), **more)


async def admitted(settings: PeerSettings, remote: str, names: dict[str, str] | None = None) -> bool:
    lists = admission(settings, names)
    await lists.refresh()
    return lists.why_not(remote) == ""


# -------------------------------------------------------------------------------------------- entries of access lists


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("Tablet.Local.", "tablet.local"), ("192.168.1.20", "192.168.1.20"), ("192.168.1.20/24", "192.168.1.0/24"),
        ("[::1]", "::1"),
        ("2001:DB8::1/32", "2001:db8::/32"), ("::ffff:10.0.0.1", "10.0.0.1"), ("::ffff:10.0.0.0/104", "10.0.0.0/8"), ("/0", "/0"),
        ("0.0.0.0/0", "0.0.0.0/0"), ("fe80::1%eth0", "fe80::1"), ("localhost", "localhost"),
    ],
)  # fmt: skip
def test_access_list_entry_is_converted_to_its_canonical_form(text, entry):
    assert canonical(text) == entry
    assert canonical(entry) == entry


@pytest.mark.parametrize("text", ["", "300.1.1.1", "1.2.3", "10.0.0.0/33", "a b", "-x", "a..b", "x/8", "evil;rm", "a" * 300])
def test_invalid_access_list_entry_is_refused(text):
    with pytest.raises(UserError):
        canonical(text)


def test_access_list_text_is_split_at_commas_and_white_space_like_in_o3de():
    assert split("a, b\tc\r\nd,,e ") == ["a", "b", "c", "d", "e"]
    assert not is_host_name("10.0.0.256")


# ---------------------------------------------------------------------------------------------- allowed and rejected lists


@pytest.mark.parametrize(
    ("settings", "remote", "may"),
    [
        (listed(), FAR, False),
        (listed(), "127.0.0.1", True),
        (listed(), "127.9.9.9", True),
        (listed(), "::1", True),
        (listed(), "", False),
        (listed(FAR), FAR, True),
        (listed(FAR), f"::ffff:{FAR}", True),
        (listed("198.51.100.0/24"), FAR, True),
        (listed("198.51.100.0/24"), "198.51.101.7", False),
        (listed("/0"), FAR, True),
        (listed("/0"), "2001:db8::1", True),
        (listed("0.0.0.0/0"), "2001:db8::1", False),
        (listed("2001:db8::/32"), "2001:db8::1", True),
        (listed("fe80::/10"), "fe80::1%eth0", True),
        (listed("/0", FAR), FAR, False),
        (listed("/0", "198.51.100.0/24"), FAR, False),
        (listed(FAR, "/0"), FAR, False),
        (listed("", "/0"), "127.0.0.1", True),
        (listed(has_allow_list=False), FAR, True),
        (listed("", FAR, has_allow_list=False), FAR, False),
    ],
)
def test_allowed_and_rejected_lists_decide_about_an_address(settings, remote, may):
    assert asyncio.run(admitted(settings, remote)) is may


async def test_host_name_matches_only_its_resolved_addresses():
    names = {"tablet.local": f"{FAR} 2001:db8::7"}
    assert await admitted(listed("tablet.local"), FAR, names)
    assert await admitted(listed("tablet.local"), "2001:db8::7", names)
    assert not await admitted(listed("tablet.local"), FAR, {})
    assert not await admitted(listed("/0", "tablet.local"), FAR, names)


async def test_slow_resolution_of_earlier_lists_keeps_the_names_of_later_lists():
    may_end = asyncio.Event()

    async def resolve(name):
        await (may_end.wait() if name == "old.local" else asyncio.sleep(0))
        return {ip_address(FAR)}

    lists = Admission(listed("old.local"), resolve=resolve, local=lambda: NO_CLIENTS)
    earlier = asyncio.get_running_loop().create_task(lists.refresh())
    await asyncio.sleep(0)
    await lists.adopt(listed("tablet.local"))
    may_end.set()
    await earlier
    assert lists.why_not(FAR) == ""


async def test_unresolvable_name_keeps_its_last_addresses():
    names = {"tablet.local": FAR}

    lists = admission(listed("tablet.local"), names)
    await lists.refresh()
    names.clear()
    await lists.refresh()
    assert lists.check(FAR) == ""


def test_this_machine_is_always_allowed_with_any_of_its_addresses(tmp_path):
    (tmp_path / "fib_trie").write_text(
        "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 192.0.2.0\n        /24 link UNICAST\n     |-- 192.0.2.2\n"
        "        /32 link BROADCAST\n"
        "        /32 host LOCAL\n     |-- 192.0.2.255\n        /32 link BROADCAST\n"
    )
    (tmp_path / "if_inet6").write_text("20010db8000000000000000000000002 04 40 00 82     eth0\n")

    assert local_addresses(tmp_path) == {ip_address("192.0.2.2"), ip_address("2001:db8::2")}
    assert local_addresses(tmp_path / "absent") == NO_CLIENTS

    lists = Admission(listed("", "/0"), local=lambda: local_addresses(tmp_path))
    assert lists.why_not("192.0.2.2") == ""
    assert lists.why_not("192.0.2.3") != ""


async def test_rejected_addresses_are_reported_once_and_limited_in_number():
    lists = admission()
    assert lists.check(FAR) == lists.check(FAR) == f"{FAR} is not in the allowed list"
    assert lists.turned_away[FAR].count == 2
    for number in range(1000):
        lists.check(str(ip_address(0x0A000000 + number)))
    assert len(lists.turned_away) == 256
    lists.forget("10.0.0.0/8")
    assert not lists.turned_away


def test_access_list_entry_matches_only_its_own_addresses():
    assert entry_for(ip_address("10.0.0.1"), ["10.0.0.10", "10.0.0.0/31"], {}) == "10.0.0.0/31"
    assert entry_for(ip_address("10.0.0.1"), ["10.0.0.11"], {"x": {ip_address("10.0.0.1")}}) is None


# ---------------------------------------------------------------------------------- orders of the screen and the stored file

PHONE = Dial("phone", "192.168.1.20", 22229)


def test_peer_actions_change_the_connection_settings():
    settings = apply_order(PeerSettings(), PeerOrder(PeerAction.ADD, dial=PHONE))
    settings = apply_order(settings, PeerOrder(PeerAction.DISABLE, "phone"))
    assert settings.connections == (replace(PHONE, is_auto=False),)
    settings = apply_order(settings, PeerOrder(PeerAction.EDIT, "phone", Dial("tablet", "Tablet.local", 99)))
    assert settings.connections == (Dial("tablet", "Tablet.local", 99),)
    settings = apply_order(settings, PeerOrder(PeerAction.REJECT, entry=FAR))
    settings = apply_order(settings, PeerOrder(PeerAction.ALLOW, entry=FAR))
    assert (settings.allowed, settings.rejected) == ((FAR,), ())
    settings = apply_order(settings, PeerOrder(PeerAction.FORGET, entry=FAR))
    settings = apply_order(settings, PeerOrder(PeerAction.LIST_OFF))
    assert settings == PeerSettings((Dial("tablet", "Tablet.local", 99),), has_allow_list=False)
    assert apply_order(settings, PeerOrder(PeerAction.REMOVE, "tablet")).connections == ()


@pytest.mark.parametrize(
    "order",
    [
        PeerOrder(PeerAction.ADD), PeerOrder(PeerAction.ADD, dial=PHONE), PeerOrder(PeerAction.ADD, dial=Dial("", "10.0.0.1")),
        PeerOrder(PeerAction.ADD, dial=Dial("x", "no/address")), PeerOrder(PeerAction.ADD, dial=Dial("x", "10.0.0.1", 0)),
        PeerOrder(PeerAction.ADD, dial=Dial("x", "10.0.0.1", 65536)), PeerOrder(PeerAction.ADD, dial=Dial("a\x1bb", "10.0.0.1")),
        PeerOrder(PeerAction.EDIT, "absent", PHONE), PeerOrder(PeerAction.REMOVE, "absent"), PeerOrder(PeerAction.ENABLE, "absent"),
        PeerOrder(PeerAction.ALLOW, entry="?"), PeerOrder(PeerAction.REJECT, entry="127.0.0.1"),
        PeerOrder(PeerAction.REJECT, entry="localhost"),
    ],
)  # fmt: skip
def test_invalid_peer_orders_are_refused(order):
    with pytest.raises(UserError):
        apply_order(PeerSettings((PHONE,)), order)


def test_saved_settings_override_the_configuration(tmp_path):
    file = tmp_path / ".aptui" / "connections.json"
    configured = peer_settings.read_peer_settings(
        GatewaySettings(allowed=("10.0.0.1/8",), connections=(ConfiguredDial("pc", "10.0.0.2", 7),))
    )
    assert peer_settings.read_stored(file) == peer_settings.PeerLists(None)

    settings = peer_settings.change_settings(file, configured, PeerOrder(PeerAction.ADD, dial=PHONE)).settings
    assert [each.id for each in settings.connections] == ["pc", "phone"]
    assert settings.allowed == ("10.0.0.0/8",)
    assert peer_settings.read_stored(file).settings == settings
    off = peer_settings.change_settings(file, configured, PeerOrder(PeerAction.LIST_OFF)).settings
    assert off == replace(settings, has_allow_list=False)
    assert os.stat(file).st_mode & 0o777 == 0o600


def test_configured_access_list_replaces_the_stored_list_after_a_change(tmp_path):
    file = tmp_path / "connections.json"
    before = peer_settings.read_peer_settings(GatewaySettings(allowed=("10.0.0.1",)))
    peer_settings.change_settings(file, before, PeerOrder(PeerAction.ALLOW, entry=FAR))
    assert peer_settings.read_stored(file).effective_settings(before).allowed == ("10.0.0.1", FAR)
    assert peer_settings.overridden(peer_settings.read_stored(file).effective_settings(before), before) == {
        "serve.allowed": ["10.0.0.1", FAR]
    }

    since = peer_settings.read_peer_settings(GatewaySettings(allowed=("10.0.0.1",), rejected=("1.2.3.4",)))
    now = peer_settings.read_stored(file).effective_settings(since)
    assert now.rejected == ("1.2.3.4",)
    assert now.allowed == ("10.0.0.1", FAR)
    emptied = peer_settings.read_stored(file).effective_settings(PeerSettings())
    assert emptied.allowed == ()
    assert peer_settings.overridden(emptied, PeerSettings()) == {}


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff", b'{"allowed": ["?"]}', b'{"connections": [{"id": "x"}]}', b"[" * 10_000, b'{"allowed": 3}']
)
def test_damaged_connections_file_is_renamed_and_reported(tmp_path, data):
    file = tmp_path / "connections.json"
    file.write_bytes(data)

    unchanged = peer_settings.read_stored(file, puts_aside=False)
    assert unchanged.settings is None
    assert file.read_bytes() == data

    stored = peer_settings.read_stored(file)
    assert stored.settings is None
    assert "damaged" in stored.trouble
    assert (tmp_path / "connections.json.damaged").read_bytes() == data
    assert peer_settings.read_stored(file) == peer_settings.PeerLists(None)


def test_pipe_in_place_of_the_connections_file_is_reported(tmp_path):
    file = tmp_path / "connections.json"
    os.mkfifo(file)

    assert "cannot be read: it is not a regular file" in peer_settings.read_stored(file).trouble


def test_refused_change_leaves_the_connections_file_unchanged(tmp_path):
    file = tmp_path / "connections.json"
    peer_settings.change_settings(file, PeerSettings(), PeerOrder(PeerAction.ADD, dial=PHONE))
    before = file.read_bytes()

    with pytest.raises(UserError):
        peer_settings.change_settings(file, PeerSettings(), PeerOrder(PeerAction.ADD, dial=PHONE))
    assert file.read_bytes() == before
    with pytest.raises(HostError):
        peer_settings.change_settings(tmp_path / "connections.json" / "below", PeerSettings(), PeerOrder(PeerAction.LIST_OFF))


# ------------------------------------------------------------------------------------------------------- a running gateway


class EngineStub:
    """Simulates the gateway's connection to the engine, and stores the reports of the gateway."""

    def __init__(self) -> None:
        self.listeners, self.change_callbacks, self.reports = [], [], []
        self.is_here, self.epoch, self.seq = True, 1, 0

    async def ask(self, verb):
        assert isinstance(verb, ReportPeers)
        self.reports.append(verb.report)
        return {}


@asynccontextmanager
async def gateway(tmp_path, serve: GatewaySettings = GatewaySettings()):
    project = SimpleNamespace(platforms=(SimpleNamespace(id="linux"),))
    config = SimpleNamespace(serve=serve, cache_dir=tmp_path, name="Garden", project=project)
    tokens = SimpleNamespace(holds=lambda *_: False)
    context = GatewayContext(config, None, EngineStub(), SimpleNamespace(admissions=[], tokens=tokens), NewsPulse(), port=7)
    there = Peers(context, WireSessions(4, answer), admission(peer_settings.read_peer_settings(serve)))
    await there.open()
    try:
        yield there
    finally:
        await there.close()


@asynccontextmanager
async def device(**hello):
    there = Device(client="phone", **hello)
    number = await there.open()
    try:
        yield there, number
    finally:
        await there.close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(peer_connections, "RETRY_S", (0.02, 0.05))
    monkeypatch.setattr(peer_connections, "_CHECK_S", 0.05)
    monkeypatch.setattr(peer_connections, "_GATHER_S", 0.01)


def state(there: Peers, name: str):
    return next((each for each in there.report().peers if each.id == name), None)


async def test_device_is_connected_and_reconnected_like_a_client(tmp_path):
    async with gateway(tmp_path) as there, device(platforms=("linux",)) as (phone, number):
        await there.order(PeerOrder(PeerAction.ADD, dial=Dial("phone", "127.0.0.1", number)))
        client = await phone.dialled.get()
        assert (client.welcome.project, set(client.welcome.scopes)) == ("Garden", {"read", "escalate"})
        await until(lambda: state(there, "phone").number)
        peer = state(there, "phone")
        assert (peer.state, peer.platforms, peer.is_dialled) == (PeerState.CONNECTED, ("linux",), True)
        assert peer.sent_bytes > 0

        await there.order(PeerOrder(PeerAction.DISCONNECT, number=peer.number))
        again = await phone.dialled.get()
        assert again.welcome.connection != peer.number

        await there.order(PeerOrder(PeerAction.DISABLE, "phone"))
        await again.wait_for_end()
        assert state(there, "phone").state is PeerState.DISCONNECTED
        await there.order(PeerOrder(PeerAction.ENABLE, "phone"))
        await phone.dialled.get()
        await there.order(PeerOrder(PeerAction.REMOVE, "phone"))
        assert there.report().peers == ()


async def test_missing_device_is_dialled_again_until_it_answers(tmp_path):
    async with device() as (_, number):
        pass  # The port is free after the `with` block.
    async with gateway(tmp_path, GatewaySettings(connections=(ConfiguredDial("phone", "127.0.0.1", number),))) as there:
        await until(lambda: state(there, "phone").trouble == "connection refused")
        assert state(there, "phone").state is PeerState.CONNECTING
        phone = Device(client="phone")
        await phone.open(port=number)
        await phone.dialled.get()
        await until(lambda: state(there, "phone").state is PeerState.CONNECTED and not state(there, "phone").trouble)
        await phone.close()
        await until(lambda: state(there, "phone").state is PeerState.CONNECTING)


async def answering(words: bytes):
    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(words)
        await writer.drain()
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


@pytest.mark.parametrize(
    ("words", "trouble"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "answers with status 404"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "redirects elsewhere"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "this is not an aptui device: its answer is not valid HTTP"),
        (b"*" * 60_000, "this is not an aptui device: its answer is not valid HTTP"),
        (b"", ""),
    ],
)
async def test_dialled_server_that_is_not_a_device_is_reported(tmp_path, words, trouble):
    server = await answering(words)
    number = server.sockets[0].getsockname()[1]
    async with server, gateway(tmp_path, GatewaySettings(connections=(ConfiguredDial("x", "127.0.0.1", number),))) as there:
        await until(lambda: state(there, "x").trouble)
        assert trouble in state(there, "x").trouble


async def test_a_rejected_address_is_not_dialled(tmp_path):
    serve = GatewaySettings(connections=(ConfiguredDial("x", FAR, 9),), rejected=("198.51.100.0/24",))
    async with gateway(tmp_path, serve) as there:
        await until(lambda: "is in the rejected list ('198.51.100.0/24')" in state(there, "x").trouble)
        await there.order(PeerOrder(PeerAction.ADD, dial=Dial("y", "Tablet.local")))
        await there.order(PeerOrder(PeerAction.REJECT, entry="tablet.local"))
        await until(lambda: state(there, "y").trouble == "Tablet.local is in the rejected list")


@pytest.fixture
def certified(tmp_path, monkeypatch):
    """A device's certificate with its key, and a file with the certificate only."""
    monkeypatch.setattr(
        peer_connections, "RETRY_S", (60.0, 60.0)
    )  # wait for the end of all handshakes: otherwise asyncio would leave their sockets open
    (tmp_path / "both.pem").write_text(CERTIFICATE + KEY)
    (tmp_path / "c.pem").write_text(CERTIFICATE)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "both.pem")
    return context, str(tmp_path / "c.pem")


@pytest.mark.parametrize("known", ["ca", "fingerprint", "fingerprint with colons"])
async def test_remote_device_is_verified_by_its_certificate(tmp_path, certified, monkeypatch, known):
    monkeypatch.setattr(peer_connections, "is_loopback", lambda _address: False)
    context, file = certified
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(CERTIFICATE)).digest()
    pins = (f"sha256:{'0' * 64}", digest.hex(":").upper() if "colons" in known else digest.hex())
    serve = GatewaySettings(dial_ca=file) if known == "ca" else GatewaySettings(dial_fingerprints=pins)

    phone = Device(client="phone")
    number = await phone.open(tls=context)
    async with gateway(tmp_path, replace(serve, connections=(ConfiguredDial("phone", "127.0.0.1", number),))) as there:
        client = await phone.dialled.get()
        assert client.welcome.project == "Garden"
        assert state(there, "phone").state is PeerState.CONNECTED
    await phone.close()


@pytest.mark.parametrize(
    ("serve", "has_tls", "trouble"),
    [
        (GatewaySettings(), True, "the certificate of the device is not trusted"),
        (GatewaySettings(dial_fingerprints=("0" * 64,)), True, "is not in 'serve.dial_fingerprints'"),
        (GatewaySettings(), False, "which is required for all addresses except those of this machine"),
    ],
)
async def test_unverified_device_receives_nothing(tmp_path, certified, monkeypatch, serve, has_tls, trouble):
    monkeypatch.setattr(peer_connections, "is_loopback", lambda _address: False)

    phone = Device(client="phone")
    number = await phone.open(tls=certified[0] if has_tls else None)
    async with gateway(tmp_path, replace(serve, connections=(ConfiguredDial("phone", "127.0.0.1", number),))) as there:
        await until(lambda: trouble in state(there, "phone").trouble)
        assert phone.dialled.empty()
    await phone.close()


@pytest.mark.parametrize(
    ("address", "scheme"),
    [("127.0.0.1", "ws"), ("::1", "ws"), ("localhost", "ws"), ("192.168.1.20", "wss"), ("fd00::7", "wss"), ("tablet.local", "wss")],
)
def test_only_loopback_addresses_are_dialled_without_tls(address, scheme):
    dialler = peer_connections.OutboundConnection(Dial("x", address), None, True, None, lambda _address: "", lambda: None)

    assert dialler.url.startswith(f"{scheme}://")


def test_invalid_certificates_of_devices_are_refused(tmp_path):
    (tmp_path / "no.pem").write_text("none")
    for serve, why in (
        (GatewaySettings(dial_ca="/no/such"), "cannot be read"),
        (GatewaySettings(dial_ca=str(tmp_path / "no.pem")), "contains no certificate"),
        (GatewaySettings(dial_fingerprints=("abc",)), "is not the SHA-256"),
        (GatewaySettings(dial_fingerprints=("ab" * 20,)), "is not the SHA-256"),
    ):
        with pytest.raises(UserError, match=why):
            peer_connections.trust(serve)


async def test_gateway_report_lists_a_limited_number_of_clients(tmp_path):
    async with gateway(tmp_path) as there:
        identity = SimpleNamespace(address=FAR, name="x", may=lambda _scope: True)
        hello = SimpleNamespace(client="n" * 80, platforms=("linux",))
        fields = {"identity": identity, "hello": hello, "since_s": 0.0, "last_s": 0.0, "last_request": ""}
        for number in range(1, 2_001):
            session = SimpleNamespace(number=number, received_bytes=0, sent_bytes=0, **fields)
            there.sessions.all[number] = session
        report = there.report()
        there.sessions.all.clear()
    assert len(codec.encode_request(1, ReportPeers(report))) < codec.LINE_LIMIT_BYTES / 4
    assert report.trouble == f"{2_000 - len(report.peers)} more clients are connected than this list shows"


async def test_rejecting_an_address_disconnects_it(tmp_path):
    async with gateway(tmp_path, GatewaySettings(allowed=("/0",))) as there:
        session = SimpleNamespace(identity=SimpleNamespace(address=FAR), hello=None, ends=[])

        async def close(code, why):
            session.ends.append((code, why))

        session.close = close
        there.sessions.all[1] = session
        await there.order(PeerOrder(PeerAction.LIST_OFF))
        assert session.ends == []
        await there.order(PeerOrder(PeerAction.REJECT, entry="198.51.100.0/24"))
        await until(lambda: session.ends)
        assert session.ends[0][0] == 1008


async def test_engine_receives_each_gateway_report_once_and_sends_orders(tmp_path):
    async with gateway(tmp_path) as there:
        engine = there.context.engine
        await until(lambda: engine.reports)
        assert there.refuses(FAR) != ""
        await until(lambda: engine.reports[-1].turned_away)
        for _ in range(5):
            there.refuses(FAR)
        await until(lambda: engine.reports[-1].turned_away[0].count == 6)
        count = len(engine.reports)
        await asyncio.sleep(4 * peer_connections._CHECK_S)
        assert len(engine.reports) == count, "an unchanged report is not sent again"

        there.take_news([NoticeLine(1, 1, PeerOrdered(1, PeerOrder(PeerAction.ALLOW, entry=FAR)))])
        await until(lambda: engine.reports[-1].settings.allowed == (FAR,))
        assert engine.reports[-1].turned_away == ()
        assert there.refuses(FAR) == ""
        there.take_news([NoticeLine(1, 2, PeerOrdered(2, PeerOrder(PeerAction.REMOVE, "absent")))])
        await until(lambda: "absent" in engine.reports[-1].trouble)

        for callback in engine.change_callbacks:
            callback(True)
        count = len(engine.reports)
        await until(lambda: len(engine.reports) > count)


async def test_gateway_applies_the_connections_file_that_the_screen_writes(tmp_path):
    async with gateway(tmp_path) as there:
        peer_settings.change_settings(tmp_path / peer_settings.PLACE, PeerSettings(), PeerOrder(PeerAction.ALLOW, entry=FAR))
        await until(lambda: there.refuses(FAR) == "")
        (tmp_path / peer_settings.PLACE).write_text("{")
        await until(lambda: "damaged" in there.report().trouble)
        assert there.refuses(FAR) != ""


async def test_unwritable_connections_file_is_reported_and_changes_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise HostError("no space left")

    async with gateway(tmp_path) as there:
        monkeypatch.setattr(peer_settings, "change_settings", full)
        await there.order(PeerOrder(PeerAction.ALLOW, entry=FAR))
        assert there.report().trouble == "no space left"
        assert there.report().settings.allowed == ()


def test_configured_list_with_an_invalid_entry_is_refused():
    with pytest.raises(KnownError):
        peer_settings.read_peer_settings(GatewaySettings(allowed=("300.0.0.1",)))


def test_connections_file_is_readable_json(tmp_path):
    peer_settings.change_settings(tmp_path / "x.json", PeerSettings(), PeerOrder(PeerAction.ADD, dial=PHONE))

    assert json.loads((tmp_path / "x.json").read_text()) == {
        "allow_list": True, "allowed": [], "rejected": [],
        "connections": [{"id": "phone", "address": "192.168.1.20", "port": 22229, "auto": True}],
        "configured": {"allow_list": True, "allowed": [], "rejected": [], "connections": []},
    }  # fmt: skip


# ----------------------------------------------------------------------------------------------- a gateway and its engine


def test_orders_reach_the_gateway_and_gateway_reports_reach_clients(tmp_path):
    with garden(tmp_path) as there, EngineClient.connect(places.socket_path(there.cache), kind="test") as person:

        def report() -> dict:
            return person.ask(port.ReadStatus(lists_connections=True), 10)["gateway"] or {}

        def order(*given, **named) -> None:
            assert person.ask(OrderPeers(PeerOrder(*given, **named)), 10) == {}

        viewer = there.client(client="viewer")
        live_until(lambda: [each["id"] for each in report().get("peers", [])] == ["viewer"], "the client is told of")
        order(PeerAction.ALLOW, entry="10.0.0.0/8")
        live_until(lambda: report()["settings"]["allowed"] == ["10.0.0.0/8"], "the order was done")
        order(PeerAction.DISCONNECT, number=viewer.welcome.connection)
        live_until(lambda: report()["peers"] == [], "the client was dropped")
        with pytest.raises(Disconnected, match=r"\(code 1008\): disconnected by a user"):
            for _ in range(1000):
                viewer.next_notice(10)

        there.served.context.engine.close()
        live_until(lambda: report() == {}, "no gateway is there any more")
        with pytest.raises(KnownError, match="no gateway is running"):
            order(PeerAction.LIST_OFF)


def test_rejected_client_is_refused_before_its_request_is_read(tmp_path):
    with garden(tmp_path) as there:
        there.served.context.guard.admissions.append(lambda address: f"{address} may not")
        with socket.create_connection(("127.0.0.1", there.served.port), 10) as outsider:
            text = b""
            while piece := outsider.recv(1000):
                text += piece

        assert text.startswith(b"HTTP/1.1 403 ")
        assert text.endswith(b"\r\n\r\n127.0.0.1 may not\n")


def test_device_certificates_are_read_from_the_configuration(tmp_path):
    (tmp_path / "assets").mkdir()
    (tmp_path / "aptui.yaml").write_text(
        "scan_folders: [{name: game, path: assets}]\n"
        f"serve: {{dial_ca: keys/ca.pem, dial_fingerprints: ['sha256:{'ab' * 32}', '{':'.join(['CD'] * 32)}']}}\n"
    )
    serve = load.load(tmp_path).serve

    assert serve.dial_ca == str(tmp_path / "keys/ca.pem")
    assert serve.dial_fingerprints == (f"sha256:{'ab' * 32}", ":".join(["CD"] * 32))
    (tmp_path / "aptui.yaml").write_text("serve: {dial_fingerprints: [ab]}\n")
    with pytest.raises(UserError, match="fingerprint"):
        load.load(tmp_path)
