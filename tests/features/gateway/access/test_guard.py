"""Access rules: which client, host name and token is accepted, and how often."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hmac
import http.client
import json
import os
import socket
import ssl
import stat
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from disk_project import Project
from msgspec.structs import replace
from waiting import TIMEOUT_S, until

from aptui.config import load
from aptui.config.settings import GatewaySettings
from aptui.features.gateway import gateway
from aptui.features.gateway.access import tokens
from aptui.features.gateway.access.guard import Rate
from aptui.features.gateway.client import Client, Disconnected, Refusal
from aptui.features.gateway.wire_codec import Scope
from aptui.shared.connections import http_sockets
from aptui.shared.connections.http_sockets import PENDING_LIMIT
from aptui.shared.errors import BusyError, HostError, UserError
from aptui.shared.floods import ErrorReports
from tests.features.gateway.live_served import CERTIFICATE, KEY
from tests.features.gateway.served import Served, served

pytestmark = pytest.mark.real

PLAIN = "scan_folders: [{name: game, path: assets}]\n"
KNOCK = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
ENDPOINT = "/v1/protocol"


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("guarded")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        with served(Project(folder / "p", PLAIN), folder / "tokens.json") as opened:
            yield opened


def knock(there: Served, path: str = "/v1/connect", **headers: str) -> int:
    """Return the HTTP status of the answer to a WebSocket upgrade."""
    with closing(http.client.HTTPConnection("127.0.0.1", there.port, timeout=10)) as connection:
        connection.request("GET", path, headers=KNOCK | {name.replace("_", "-"): value for name, value in headers.items()})
        return connection.getresponse().status


def bearer(there: Served) -> str:
    return f"Bearer {there.token}"


# ------------------------------------------------------------------------------------------------- checks of web requests


def test_token_never_begins_with_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    made = iter(["-abc", "--d", "ef-g"])
    monkeypatch.setattr(tokens.secrets, "token_urlsafe", lambda _size: next(made))

    assert tokens.fresh() == "ef-g"


def test_unknown_host_names_are_refused(there: Served) -> None:
    """The exact allow-list for the `Host` header prevents DNS rebinding."""
    port = there.port

    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"LocalHost:{port}", f"[::1]:{port}"):
        assert there.get(ENDPOINT, Host=host).status == 200
    for host in (
        "evil.example",
        f"evil.example:{port}",
        "127.0.0.1",
        f"127.0.0.1:{port + 1}",
        f"127.0.0.1.evil.example:{port}",
        "localhost",
    ):
        assert there.get(ENDPOINT, Host=host).status == 421
        assert knock(there, Host=host, Authorization=bearer(there)) == 421


def test_other_origins_are_refused(there: Served) -> None:
    """`Origin` and `Sec-Fetch-Site` are checked on plain requests and on WebSockets."""
    own = f"http://127.0.0.1:{there.port}"

    assert there.get(ENDPOINT, Origin=own).status == 200
    assert knock(there, Origin=own, Authorization=bearer(there)) == 101
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{there.port}", "http://127.0.0.1:1", "http://localhost:3000"):
        assert there.get(ENDPOINT, Origin=origin).status == 403
        assert knock(there, Origin=origin, Authorization=bearer(there)) == 403
    for site in ("cross-site", "same-site"):
        assert there.get(ENDPOINT, Sec_Fetch_Site=site).status == 403
    assert there.get(ENDPOINT, Sec_Fetch_Site="same-origin").status == there.get(ENDPOINT, Sec_Fetch_Site="none").status == 200


def test_every_request_needs_a_token(there: Served) -> None:
    """GET requests and WebSocket upgrades need a token."""
    wrong = "Bearer " + there.token[:-1] + ("A" if there.token[-1] != "A" else "B")

    for words in ("", wrong, "Bearer", "Bearer ", f"Basic {there.token}", there.token):
        assert there.get(ENDPOINT, Authorization=words).status == 401
        assert knock(there, **({"Authorization": words} if words else {})) == 401
    assert knock(there, Authorization=bearer(there)) == 101


def test_browser_sends_its_token_as_subprotocol_or_cookie(there: Served) -> None:
    assert knock(there, Sec_WebSocket_Protocol=f"aptui.v1, aptui.token.{there.token}") == 101
    assert knock(there, Sec_WebSocket_Protocol="aptui.v1, aptui.token.wrong") == 401
    assert there.get(ENDPOINT, Authorization="", Cookie=f"aptui-token={there.token}").status == 200


def test_answers_lack_cors_headers_and_html_forms_are_refused(there: Served) -> None:
    """Answers have no CORS header and have `X-Content-Type-Options`; the `Content-Type` of requests is checked."""
    reply = there.get(ENDPOINT, Origin=f"http://127.0.0.1:{there.port}")
    refused = there.get(ENDPOINT, Authorization="")

    assert not [name for name in reply.headers if name.lower().startswith("access-control")]
    assert reply["X-Content-Type-Options"] == refused["X-Content-Type-Options"] == "nosniff"
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        assert there.ask("POST", ENDPOINT, b"{}", Content_Type=kind).status == 415
    assert there.ask("POST", ENDPOINT, b"{}", Content_Type="application/json").status == 405


def test_configured_origins_are_accepted(tmp_path: Path) -> None:
    project = Project(tmp_path / "p", PLAIN + "serve: {port: 0, hosts: [Editor.lan], origins: ['https://tools.lan']}\n")
    with served(project, tmp_path / "tokens.json") as there:
        for host in (f"editor.lan:{there.port}", f"EDITOR.lan:{there.port}"):
            assert there.get(ENDPOINT, Host=host, Origin=f"http://{host.lower()}").status == 200
        assert there.get(ENDPOINT, Origin="https://tools.lan", Sec_Fetch_Site="cross-site").status == 200


# -------------------------------------------------------------------------------------------------------- TCP, TLS, tokens


def test_other_machines_need_tls_and_a_token(tmp_path: Path) -> None:
    """A non-loopback address without TLS or without a token is refused; the message names the setting."""
    file = tmp_path / "s" / "tokens.json"
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
    certificate.write_text(CERTIFICATE)
    key.write_text(KEY)
    safe = GatewaySettings(address="0.0.0.0", port=0, tls_cert=str(certificate), tls_key=str(key))

    for address in ("0.0.0.0", "::", "192.168.1.5", "some.host", "10.0.0.1"):
        with pytest.raises(UserError, match="tls_cert"):
            gateway.refuse_unsafe(GatewaySettings(address=address), file)
    with pytest.raises(UserError, match="aptui token add"):
        gateway.refuse_unsafe(safe, file)
    with pytest.raises(UserError, match="tls_key' is missing"):
        gateway.refuse_unsafe(replace(safe, tls_key=""), file)
    tokens.add(file, "phone", [Scope.READ])
    gateway.refuse_unsafe(safe, file)
    for address in ("127.0.0.1", "::1", "localhost", "127.8.9.1"):
        gateway.refuse_unsafe(GatewaySettings(address=address), file)


def test_gateway_is_disabled_and_uses_loopback_by_default(tmp_path: Path) -> None:
    """TCP is disabled by default, and its default address is 127.0.0.1."""
    serve = load.load(Project(tmp_path / "p", PLAIN).root).serve

    assert not serve.is_enabled
    assert serve.address == "127.0.0.1"


def test_tokens_are_256_bits_and_stored_as_digests_in_a_private_file(tmp_path: Path) -> None:
    """A token has 256 bits, and its file has mode 0600."""
    file = tmp_path / "state" / "tokens.json"
    old = os.umask(0)
    try:
        token = tokens.add(file, "phone", [Scope.READ])
    finally:
        os.umask(old)

    assert len(token) == 43  # 32 bytes in base64 without padding
    assert token not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    owner = tokens.Tokens(file).owner_of(token)
    assert owner is not None
    assert (owner.name, owner.scopes) == ("phone", {Scope.READ})
    file.chmod(0o644)
    assert tokens.Tokens(file).owner_of(token) is None
    with pytest.raises(HostError, match="other users can read"):
        tokens.read(file)


def test_tokens_are_compared_in_constant_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every token is compared by `hmac.compare_digest`."""
    file = tmp_path / "tokens.json"
    made = [tokens.add(file, name, [Scope.READ]) for name in ("a", "b", "c")]
    compared = []
    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda one, other: compared.append(one) or real(one, other))

    assert tokens.Tokens(file).owner_of(made[0]).name == "a"
    assert len(compared) == 3


def test_token_is_limited_to_its_scopes_and_revocable(there: Served) -> None:
    """A token allows only its scopes, and a revoked token is refused at once."""
    token = there.with_scopes(Scope.CONTROL)
    reader = there.with_scopes(Scope.READ)

    assert there.get(ENDPOINT, Authorization=token).status == 403
    assert there.get(ENDPOINT, Authorization=reader).status == 200
    tokens.revoke(there.token_file, there.name_of(reader))
    assert there.get(ENDPOINT, Authorization=reader).status == 401


def test_token_names_are_unique_and_unknown_ones_cannot_be_revoked(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    tokens.add(file, "phone", [Scope.READ])

    for name in ("phone", "local", "", "a\nb"):
        with pytest.raises(UserError):
            tokens.add(file, name, [Scope.READ])
    with pytest.raises(UserError, match="the tokens are 'phone'"):
        tokens.revoke(file, "tablet")
    file.write_text("{")
    with pytest.raises(UserError, match="not a list of tokens"):
        tokens.read(file)


@pytest.fixture
def secure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Served, ssl.SSLContext]]:
    """A gateway with TLS, and a TLS context that trusts the gateway's certificate."""
    monkeypatch.setattr(http_sockets, "Acceptor", partial(http_sockets.Acceptor, handshake_s=2.0))
    (tmp_path / "c.pem").write_text(CERTIFICATE)
    (tmp_path / "k.pem").write_text(KEY)
    project = Project(tmp_path / "p", PLAIN + "serve: {port: 0, tls_cert: ../c.pem, tls_key: ../k.pem}\n")
    with served(project, tmp_path / "tokens.json") as there:
        yield there, ssl.create_default_context(cafile=str(tmp_path / "c.pem"))


def ask_over_tls(there: Served, trusting: ssl.SSLContext) -> int:
    with closing(http.client.HTTPSConnection("127.0.0.1", there.port, context=trusting, timeout=8)) as connection:
        connection.request("GET", ENDPOINT, headers={"Authorization": bearer(there)})
        return connection.getresponse().status


def test_gateway_with_tls_refuses_connections_without_tls(secure: tuple[Served, ssl.SSLContext]) -> None:
    assert ask_over_tls(*secure) == 200
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        secure[0].get(ENDPOINT)


def test_client_closes_its_socket_even_if_the_gateway_does_not_answer(
    secure: tuple[Served, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aptui.features.gateway.client._CLOSE_LIMIT_S", 0.1)
    (there, trusting), over = secure, threading.Event()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        client = Client.connect(f"https://127.0.0.1:{there.port}", token=there.token, tls=trusting)
        there.loop.call_soon_threadsafe(over.wait, 60)
        client.close()
        over.set()
        del client
        gc.collect()

    assert not [str(each.message) for each in warned if issubclass(each.category, ResourceWarning)]


def test_refused_and_dropped_clients_receive_the_reason_over_tls(secure: tuple[Served, ssl.SSLContext]) -> None:
    there, trusting = secure
    url = f"https://127.0.0.1:{there.port}"
    with Client.connect(url, token=there.token, tls=trusting) as client:
        (session,) = there.context.sessions
        asyncio.run_coroutine_threadsafe(session.close(1008, "by a person"), there.loop)
        with pytest.raises(Disconnected, match=r"\(code 1008\): by a person"):
            client.next_notice(20)
    there.context.guard.admissions.append(lambda address: f"{address} may not")
    with pytest.raises(Refusal, match=r"refused the connection: 127\.0\.0\.1 may not"):
        Client.connect(url, token=there.token, tls=trusting)


def test_client_that_is_refused_during_its_request_receives_the_whole_reason(
    there: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(there.context.guard, "admissions", [lambda _address: "nobody may"])
    with socket.create_connection(("127.0.0.1", there.port), 10) as wire:
        assert wire.recv(1, socket.MSG_PEEK)
        wire.sendall(b"GET /v1/connect HTTP/1.1\r\n" + b"x" * 100_000)
        data = b""
        while piece := wire.recv(1_000):
            data += piece
        wire.sendall(b"more")

        assert data.endswith(b"nobody may\n")
    until(lambda: not there.context.connections.all)


# -------------------------------------------------------------------------------------------- gateways that cannot start


def test_gateway_that_cannot_listen_reports_the_reason(tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("no certificate")
    bad = str(tmp_path / "bad.pem")

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BusyError, match=f"port {port} of 127.0.0.1 is in use"):
            http_sockets.bind("127.0.0.1", port, "serve.port")
    with pytest.raises(UserError, match="cannot listen"):
        http_sockets.bind("203.0.113.7", 0, "serve.port")
    with pytest.raises(UserError, match="are not a certificate and its key"):
        gateway.tls_context(GatewaySettings(tls_cert=bad, tls_key=bad))
    with pytest.raises(UserError, match="cannot be read"):
        gateway.tls_context(GatewaySettings(tls_cert="/no/such", tls_key="/no/such"))


# --------------------------------------------------------------------------------------------------- limits of connections


def test_connection_with_regular_requests_is_not_closed(there: Served) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", there.port, timeout=10)

    def ask() -> None:
        connection.request("GET", ENDPOINT, headers={"Authorization": bearer(there)})
        assert connection.getresponse().read()

    async def grow_old() -> None:
        there.context.connections.close()  # Stop the regular checks, so that no other thread reads `began_s`.
        for held in there.context.connections.all:
            held.began_s = -1e9

    async def watch() -> None:
        there.context.connections.check()

    connection.connect()
    until(lambda: there.context.connections.all)
    asyncio.run_coroutine_threadsafe(grow_old(), there.loop).result(10)
    ask()
    asyncio.run_coroutine_threadsafe(watch(), there.loop).result(10)
    wire = connection.sock
    ask()
    assert connection.sock is wire
    connection.close()


def test_socket_without_a_complete_request_is_dropped(there: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Single bytes do not extend the timeout for a request's header."""
    connections = there.context.connections
    monkeypatch.setattr(connections, "_header_limit_s", 0.3)

    with socket.create_connection(("127.0.0.1", there.port)) as silent, socket.create_connection(("127.0.0.1", there.port)) as slow:
        silent.settimeout(10)
        slow.settimeout(0.05)
        began, is_over = time.monotonic(), False
        while not is_over and time.monotonic() - began < 10:
            try:
                slow.sendall(b"G")
                is_over = slow.recv(1) == b""
            except TimeoutError:
                continue
            except OSError:
                is_over = True
        assert is_over
        try:
            assert silent.recv(1) == b""
        except ConnectionError:
            pass


def test_new_connection_replaces_the_oldest_unauthenticated_socket(there: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sockets are limited; incomplete requests do not block clients."""
    connections = there.context.connections
    monkeypatch.setattr(connections, "_unknown_limit", 8)

    crowd = [socket.create_connection(("127.0.0.1", there.port)) for _ in range(60)]
    try:
        assert there.get(ENDPOINT).status == 200
        assert len(connections.all) <= 9
    finally:
        for each in crowd:
            each.close()


def test_silent_sockets_before_tls_do_not_block_clients(secure: tuple[Served, ssl.SSLContext]) -> None:
    """A socket counts as a connection from `accept` on, not only from the end of its TLS handshake."""
    there, trusting = secure
    with contextlib.ExitStack() as stack:
        before = len(os.listdir("/proc/self/fd"))
        crowd = [stack.enter_context(socket.create_connection(("127.0.0.1", there.port), 10)) for _ in range(300)]
        assert ask_over_tls(there, trusting) == 200
        assert len(os.listdir("/proc/self/fd")) - before - len(crowd) <= PENDING_LIMIT + 8

        for wire in crowd:
            with contextlib.suppress(ConnectionError):
                assert wire.recv(1) == b""


def test_burst_of_unauthenticated_clients_above_the_limit_is_answered(there: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_sockets, "MIN_AGE_S", TIMEOUT_S)  # a busy machine answers none of the clients within half a second
    data = (
        f"GET {ENDPOINT} HTTP/1.1\r\nHost: 127.0.0.1:{there.port}\r\nAuthorization: {bearer(there)}\r\nConnection: close\r\n\r\n"
    ).encode()

    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", there.port)
        writer.write(data)
        answer = await reader.read(12)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        return answer

    async def crowd() -> list[bytes]:
        return await asyncio.gather(*(ask() for _ in range(300)))

    answers = asyncio.run(asyncio.wait_for(crowd(), TIMEOUT_S))

    assert set(answers) <= {b"HTTP/1.1 200", b"HTTP/1.1 503"}
    assert answers.count(b"HTTP/1.1 200") >= PENDING_LIMIT


def test_closed_unauthenticated_socket_receives_the_reason(there: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(there.context.connections, "_unknown_limit", 1)
    with socket.create_connection(("127.0.0.1", there.port), 10) as first, socket.create_connection(("127.0.0.1", there.port), 10):
        assert first.recv(1000).startswith(b"HTTP/1.1 503 ")


def test_one_token_cannot_use_connections_reserved_for_the_owner(there: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(there.context.connections, "_limit", 40)
    with contextlib.ExitStack() as stack:

        def ask(bearer: str) -> int:
            connection = stack.enter_context(contextlib.closing(http.client.HTTPConnection("127.0.0.1", there.port, timeout=10)))
            connection.request("GET", ENDPOINT, headers={"Authorization": bearer})
            return connection.getresponse().status

        reader, another = there.with_scopes(Scope.READ), there.with_scopes(Scope.READ, Scope.ESCALATE)

        assert [ask(reader) for _ in range(10)] == [200] * 8 + [503] * 2
        assert ask(another) == 503
        assert ask(bearer(there)) == 200


def test_client_that_does_not_read_its_answer_is_dropped(there: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aptui.features.gateway.access.guard.UNREAD_LIMIT_S", 0.5)
    with socket.create_connection(("127.0.0.1", there.port), 10) as deaf:
        data = f"GET {ENDPOINT} HTTP/1.1\r\nHost: 127.0.0.1:{there.port}\r\nAuthorization: {bearer(there)}\r\n\r\n".encode()
        until(lambda: there.context.connections.all)
        deaf.settimeout(0.2)
        with contextlib.suppress(TimeoutError, ConnectionError):
            while True:
                deaf.sendall(data)

        until(lambda: not there.context.connections.all)


def test_number_of_clients_is_limited(tmp_path: Path) -> None:
    """The configurable limit is 64 connections by default."""
    assert GatewaySettings().clients_limit == 64
    project = Project(tmp_path / "p", PLAIN + "serve: {port: 0, clients_limit: 2}\n")
    with served(project, tmp_path / "tokens.json") as there:
        stored = []
        for _ in range(2):
            connection = http.client.HTTPConnection("127.0.0.1", there.port, timeout=10)
            connection.request("GET", "/v1/connect", headers=KNOCK | {"Authorization": bearer(there)})
            assert connection.getresponse().status == 101
            stored.append(connection)
        assert knock(there, Authorization=bearer(there)) == 503
        for connection in stored:
            connection.close()


def test_one_token_cannot_use_all_websockets(tmp_path: Path) -> None:
    project = Project(tmp_path / "p", PLAIN + "serve: {port: 0, clients_limit: 4}\n")
    with served(project, tmp_path / "tokens.json") as there, contextlib.ExitStack() as stack:

        def connect(bearer: str) -> int:
            connection = stack.enter_context(contextlib.closing(http.client.HTTPConnection("127.0.0.1", there.port, timeout=10)))
            connection.request("GET", "/v1/connect", headers=KNOCK | {"Authorization": bearer})
            return connection.getresponse().status

        greedy, another = there.with_scopes(Scope.READ), there.with_scopes(Scope.READ, Scope.ESCALATE)

        assert [connect(greedy) for _ in range(4)] == [101] * 3 + [503]
        assert [connect(another) for _ in range(2)] == [101, 503]
        assert connect(bearer(there)) == 101


def test_rate_limit_admits_a_request_soon_after_the_limit_was_reached() -> None:
    now = [0.0]
    rate = Rate(100, lambda: now[0])

    assert all(rate.admits() for _ in range(100))
    assert not rate.admits()
    now[0] = 0.011
    assert rate.admits()
    assert not rate.admits()


# ------------------------------------------------------------------------------------------------------------ local files


def test_local_token_is_readable_by_its_user_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First the folder of the token file is created with mode 0700, then the token file with mode 0600."""
    from aptui.link import places

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    settings = load.load(Project(tmp_path / "p", PLAIN).root)
    record = places.GatewayRecord(os.getpid(), places.process_start(os.getpid()), "http://127.0.0.1:1", "127.0.0.1", 1, "secret")
    old = os.umask(0)
    try:
        places.announce_gateway(settings.cache_dir, record)
    finally:
        os.umask(old)

    file = places.gateway_record(settings.cache_dir)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    found = places.find_gateway(settings.cache_dir)
    assert found is not None
    assert (found.token, found.is_alive) == ("secret", True)
    places.retract_gateway(settings.cache_dir)
    assert places.find_gateway(settings.cache_dir) is None


def test_audit_log_has_client_request_and_outcome(tmp_path: Path) -> None:
    """The log has one line of JSON for each call and is readable only by its owner. A disk error does not stop requests."""
    from aptui.features.gateway.access.guard import Audit, ClientIdentity

    log = tmp_path / "logs" / "gateway-audit.log"
    identity = ClientIdentity("phone", frozenset({Scope.CONTROL}), "10.0.0.9")

    Audit(log).write(identity, "reprocess", "done", arguments={"sources": ("a\nb",)})
    Audit(tmp_path / "logs" / "gateway-audit.log" / "no").write(identity, "reprocess", "done")

    (line,) = log.read_text().splitlines()
    entry = json.loads(line)
    assert (entry["identity"], entry["address"], entry["request"], entry["outcome"]) == ("phone", "10.0.0.9", "reprocess", "done")
    assert entry["arguments"] == {"sources": ["a\nb"]}
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_refusals_in_the_audit_log_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refusals are counted, long texts are cut, and the log is rotated."""
    from aptui.features.gateway.access.guard import Audit, ClientIdentity

    now, log = [0.0], tmp_path / "audit.log"
    audit = Audit(log, lambda: now[0])
    identity = ClientIdentity("phone", frozenset({Scope.READ}), "10.0.0.9")
    for _ in range(1_214):
        audit.write(identity, "reprocess", "refused: not allowed", arguments={"sources": ["x" * 1_000_000]})
    assert log.stat().st_size < 20_000
    now[0] = 61.0
    audit.report_unlogged()
    assert json.loads(log.read_text().splitlines()[-1])["outcome"] == "refused: 1,204 more like this"

    monkeypatch.setattr("aptui.features.gateway.access.guard.AUDIT_LIMIT_BYTES", 30_000)
    for _ in range(100):
        audit.write(identity, "reprocess", "done", arguments={"sources": ["x" * 900]})
    assert log.stat().st_size < 32_000 > log.with_name("audit.log.1").stat().st_size
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_equal_client_errors_are_logged_ten_times_and_then_only_counted(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    reports = ErrorReports(lambda: now[0])

    assert [reports.admits("OverflowError") for _ in range(30)].count(True) == 10
    assert reports.admits("ValueError")
    now[0] = 60.0
    assert reports.admits("ValueError")
    assert capsys.readouterr().err == "OverflowError: 20 more like this\n"


def test_gateway_that_never_opened_can_be_closed(tmp_path: Path) -> None:
    asyncio.run(gateway.Gateway(load.load(Project(tmp_path / "p", PLAIN).root), tmp_path / "t").close())
