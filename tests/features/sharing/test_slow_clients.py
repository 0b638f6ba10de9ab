"""Slow clients, and many clients: none of them delays others."""

import contextlib
import http.client
import os
import select
import socket
import ssl
from contextlib import closing
from urllib.parse import urlsplit

import pytest

pytest.importorskip("aiohttp")

from waiting import until

from aptui.features.sharing import cache_server as servers
from aptui.features.sharing.stores.folder_store import FolderStore
from tests.features.gateway.live_served import CERTIFICATE, KEY
from tests.features.sharing.conftest import serving
from tests.features.sharing.harness import digest_of, files_of

pytestmark = pytest.mark.real

DATA = b"blob" * 5000
DIGEST = digest_of(DATA).hex()
HALF_A_REQUEST = b"GET /cas/0000 HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
HALF_AN_UPLOAD = f"PUT /cas/{DIGEST} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(DATA)}\r\n\r\n".encode() + DATA[:100]


@pytest.fixture(autouse=True)
def no_lingering(monkeypatch):
    monkeypatch.setattr(servers, "_LINGERS_S", 0.05)


@pytest.fixture
def connect():
    """Opens connections with a partial request, and waits for the answer."""
    with contextlib.ExitStack() as stack:

        def made(address, first_bytes=b""):
            url = urlsplit(address)
            connection = stack.enter_context(socket.create_connection((url.hostname, url.port), timeout=10))
            connection.sendall(first_bytes)
            return connection

        yield made


def received_from(connection):
    """Return all bytes until the other end closes."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while data := connection.recv(65536):
            found += data
    return found


def status(address, path=f"/cas/{DIGEST}"):
    with closing(http.client.HTTPConnection(urlsplit(address).netloc, timeout=10)) as connection:
        connection.request("GET", path)
        return connection.getresponse().status


@pytest.mark.parametrize("first_bytes", [b"", HALF_A_REQUEST])
def test_client_without_a_complete_request_is_dropped(tmp_path, connect, first_bytes):
    with serving(tmp_path / "store", timeout_s=0.2) as address:
        assert received_from(connect(address, first_bytes)) == b""


def test_idle_connection_between_requests_stays_open(tmp_path):
    """A client sends its requests over one connection. If the server closed it between them, the client would have to reconnect."""
    with serving(tmp_path / "store", timeout_s=0.05) as address:
        connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=10)
        idle, ports = [], []
        for _ in range(2):
            connection.request("GET", f"/cas/{DIGEST}")
            connection.getresponse().read()
            ports.append(connection.sock.getsockname()[1])
            idle.append(select.select([connection.sock], [], [], 0.2)[0])
        connection.close()

    assert idle == [[], []]
    assert len(set(ports)) == 1


def test_too_slow_upload_is_ended_and_leaves_no_file(tmp_path, connect):
    with serving(tmp_path / "store", is_writable=True, timeout_s=0.2) as address:
        answer = received_from(connect(address, HALF_AN_UPLOAD))

        assert answer.startswith(b"HTTP/1.1 408 ")
        until(lambda: os.listdir(tmp_path / "store" / "tmp") == [])
        assert status(address) == 404


def test_upload_without_a_length_is_limited(tmp_path, connect):
    chunk = b"1000\r\n" + bytes(0x1000) + b"\r\n"
    with serving(tmp_path / "store", is_writable=True, max_blob_bytes=10_000) as address:
        upload = f"PUT /cas/{DIGEST} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + chunk * 3
        answer = connect(address, upload).recv(65536)

        assert answer.startswith(b"HTTP/1.1 413 ")
        until(lambda: os.listdir(tmp_path / "store" / "tmp") == [])


def test_client_that_does_not_read_is_dropped(tmp_path, connect, monkeypatch):
    monkeypatch.setattr(servers, "_SLOWEST_BYTES_PER_S", 1 << 40)
    (tmp_path / "store").mkdir()
    big = bytes(32 << 20)
    [(digest, path)] = files_of(tmp_path / "made", big).items()
    FolderStore(str(tmp_path / "store"), syncs=False).put_blob(digest, path)
    with serving(tmp_path / "store", timeout_s=0.2) as address:
        connection = connect(address, f"GET /cas/{digest} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        events = select.poll()
        events.register(connection, select.POLLHUP | select.POLLERR)

        assert events.poll(10_000)
        assert len(received_from(connection)) < len(big)


def test_incomplete_requests_do_not_block_other_clients(tmp_path, connect):
    with serving(tmp_path / "store", most_connections=4) as address:
        slow = [connect(address, HALF_A_REQUEST) for _ in range(12)]

        assert status(address) == 404
        assert all(received_from(one).partition(b"\r")[0] in (b"", b"HTTP/1.1 503 Service Unavailable") for one in slow[:8])


def test_cache_server_answers_503_while_its_connection_limit_is_reached(tmp_path, connect):
    with serving(tmp_path / "store", is_writable=True, most_connections=2) as address:
        slow = [connect(address, HALF_AN_UPLOAD) for _ in range(2)]
        until(lambda: os.path.isdir(tmp_path / "store" / "tmp") and len(os.listdir(tmp_path / "store" / "tmp")) == 2)

        assert status(address) == 503
        for one in slow:
            one.close()
        until(lambda: status(address) == 404)


def test_slow_uploads_of_one_token_do_not_block_uploads_of_another_token(tmp_path, connect):
    tokens = {"greedy": "one", "modest": "two"}
    upload = HALF_AN_UPLOAD.replace(b"/cas/", b"/ns/one/cas/").replace(b"Host:", b"Authorization: Bearer greedy\r\nHost:")
    with serving(tmp_path / "store", write_tokens=tokens, most_connections=4) as address:
        slow = [connect(address, upload) for _ in range(2)]
        until(lambda: os.path.isdir(tmp_path / "store" / "tmp") and len(os.listdir(tmp_path / "store" / "tmp")) == 2)
        slow += [connect(address, upload) for _ in range(20)]

        assert b" 503 " in received_from(slow[-1])
        connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=10)
        connection.request("PUT", f"/ns/two/cas/{DIGEST}", DATA, {"Authorization": "Bearer modest"})
        assert connection.getresponse().status == 201
        connection.close()


def test_silent_sockets_before_tls_do_not_block_other_clients(tmp_path, connect, monkeypatch):
    monkeypatch.setattr(servers, "HANDSHAKE_LIMIT_S", 2.0)
    (tmp_path / "c.pem").write_text(CERTIFICATE)
    (tmp_path / "k.pem").write_text(KEY)
    files = {"certificate": str(tmp_path / "c.pem"), "private_key": str(tmp_path / "k.pem")}
    with serving(tmp_path / "store", **files) as address:
        silent = [connect(address) for _ in range(200)]
        url = urlsplit(address)
        trusting = ssl.create_default_context(cafile=str(tmp_path / "c.pem"))
        connection = http.client.HTTPSConnection(url.hostname, url.port, context=trusting, timeout=8)
        connection.request("GET", f"/cas/{DIGEST}")

        assert connection.getresponse().status == 404
        assert all(received_from(one) == b"" for one in silent)
        connection.close()
