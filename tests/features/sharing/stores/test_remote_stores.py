import contextlib
import os
import socket
import ssl
import subprocess
import threading
import tracemalloc

import pytest
from tools import skip_without

from aptui.features.sharing.record import MAX_RECORD_BYTES, Seal, base_key, seal_record
from aptui.features.sharing.stores.remote_stores import HttpStore, ObjectStore
from aptui.shared.errors import UserError
from aptui.shared.result_store import Mismatch, StoreError, StoreFull, StoreRefused
from tests.features.sharing.conftest import s3_options
from tests.features.sharing.harness import (
    LIES,
    SLOW,
    Fault,
    HostileServer,
    digest_of,
    facts,
    files_of,
    free_port,
    open_record,
    record,
)

pytestmark = pytest.mark.real

KEY = base_key(facts())
RECORD = seal_record(record(facts(), b"one"), Seal())
DATA = b"x" * 50_000
DIGEST = digest_of(DATA).hex()


@pytest.fixture
def server():
    with HostileServer() as server:
        server.stored[f"/ac/{KEY}"] = RECORD
        server.stored[f"/cas/{DIGEST}"] = DATA
        server.stored[f"/cas/{'ab' * 32}"] = b"y" * 50_000
        yield server


@pytest.fixture
def store(server):
    store = HttpStore(server.address, limit_s=30.0)
    yield store
    store.close()


def _hurried(server, kind):
    """Return a store whose timeout is short if the fault `kind` makes the server slow, and long for other faults."""
    return contextlib.closing(HttpStore(server.address, limit_s=0.4 if kind in SLOW else 30.0))


@pytest.mark.parametrize("kind", LIES + SLOW)
def test_invalid_or_slow_answer_for_a_blob_is_an_error_within_the_timeout(server, store, tmp_path, kind):
    """Every blob is verified while it is read, up to its length; no answer is decompressed."""
    server.faults.append(Fault(kind, "/cas/"))

    with _hurried(server, kind) as hurried, pytest.raises(StoreError):
        hurried.get_blob(DIGEST, str(tmp_path / "target"), len(DATA))
    assert not (tmp_path / "target").exists()

    server.faults.clear()
    assert store.get_blob(DIGEST, str(tmp_path / "target"), len(DATA))
    assert (tmp_path / "target").read_bytes() == DATA


@pytest.mark.parametrize("kind", [*(kind for kind in LIES if kind != "another"), *SLOW])
def test_invalid_or_slow_answer_for_a_record_is_an_error_within_the_timeout(server, kind):
    """A record is verified while it is read, up to its declared length."""
    server.faults.append(Fault(kind, "/ac/"))

    with _hurried(server, kind) as hurried, pytest.raises(StoreError):
        open_record(hurried.get_record(KEY), Seal(), KEY)


@contextlib.contextmanager
def _answering(head, pieces):
    """Yield the address of a server that sends `head`, and then `pieces`, to every client."""

    def answer(wire):
        with wire, contextlib.suppress(OSError):
            wire.recv(65536)
            wire.sendall(head)
            for piece in pieces():
                wire.sendall(piece)

    def serve():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(listening.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def test_answer_with_a_chunk_of_negative_length_is_refused_at_once(tmp_path):
    """`http.client` reads a chunk of the length -1 until the connection ends, however long the answer is."""
    leaving = threading.Event()

    def pour():
        yield b"x" * 65536
        leaving.wait(30)

    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n"
    with _answering(head, pour) as address, contextlib.closing(HttpStore(address, limit_s=1.0)) as store:
        with pytest.raises(StoreError, match="does not speak HTTP"):
            store.get_record(KEY)
        with pytest.raises(StoreError, match="does not speak HTTP"):
            store.get_blob(DIGEST, str(tmp_path / "target"), len(DATA))
        leaving.set()


def test_record_of_a_bucket_is_read_up_to_the_limit():
    """The declared length of an answer may be wrong."""
    pytest.importorskip("obstore")
    lengths = b"Content-Length: 9\r\nTransfer-Encoding: chunked\r\n"
    head = b"HTTP/1.1 200 OK\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n" + lengths + b"\r\n"

    def pour():
        for _ in range(2 * MAX_RECORD_BYTES // 65536):
            yield b"10000\r\n" + b"x" * 65536 + b"\r\n"

    with _answering(head, pour) as address:
        store = ObjectStore("s3://bucket", options=s3_options(address))
        with pytest.raises(Mismatch, match="the record is too long"):
            store.get_record(KEY)


def test_unknown_host_and_closed_port_are_errors(tmp_path):
    for address in ("http://nobody.invalid/cache", f"http://127.0.0.1:{free_port()}"):
        store = HttpStore(address, limit_s=30.0)
        with pytest.raises(StoreError, match="cannot be reached"):
            store.get_record(KEY)


def test_unverified_server_receives_nothing(tmp_path):
    skip_without("openssl")
    key, certificate = str(tmp_path / "key"), str(tmp_path / "certificate")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*command, *names, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with HostileServer(stored={f"/ac/{KEY}": RECORD}) as server:
        server._server.socket = context.wrap_socket(server._server.socket, server_side=True)
        address = server.address.replace("http://127.0.0.1", "https://localhost")
        outsider = HttpStore(address, limit_s=30.0)
        friend = HttpStore(address, limit_s=30.0, context=ssl.create_default_context(cafile=certificate))

        with pytest.raises(StoreError, match=r"certificate of the server is not valid: .*self-signed.*SSL_CERT_FILE"):
            outsider.get_record(KEY)
        assert friend.get_record(KEY) == RECORD
        friend.close()


@pytest.mark.parametrize(
    ("fault", "error"), [("full", StoreFull), ("forbidden", StoreRefused), ("unavailable", StoreError), ("half_taken", StoreError)]
)
def test_failed_upload_reports_the_reason(server, store, tmp_path, fault, error):
    data = os.urandom(3 << 20)
    [(digest, path)] = files_of(tmp_path / "made", data).items()
    server.faults.append(Fault(fault, "/cas/", "PUT"))

    with pytest.raises(error):
        store.put_blob(digest, path)


def test_partial_upload_on_a_server_is_not_a_blob_and_is_replaced(server, store, tmp_path):
    """Ordinary stores serve half-uploaded objects, so every blob is verified."""
    data = os.urandom(200_000)
    [(digest, path)] = files_of(tmp_path / "made", data).items()
    server.faults.append(Fault("half_taken", "/cas/", "PUT"))
    with pytest.raises(StoreError):
        store.put_blob(digest, path)
    server.faults.clear()

    with pytest.raises(StoreError):
        store.get_blob(digest, str(tmp_path / "target"), len(data))
    store.put_blob(digest, path, replaces=True)
    assert store.get_blob(digest, str(tmp_path / "target"), len(data))


def test_http_connections_are_reused_even_after_error_answers(server, store, tmp_path):
    ports = set()
    answer = server._server.finish_request
    server._server.finish_request = lambda request, client: (ports.add(client), answer(request, client))

    for number in range(5):
        assert store.get_record("cd" * 32) is None
        assert store.get_record(KEY) == RECORD
        assert store.get_blob(DIGEST, str(tmp_path / str(number)), len(DATA))

    assert len(ports) == 1


def test_store_accepts_a_server_that_closes_the_connection_after_its_answer(server, store, tmp_path):
    server.faults.append(Fault("closes"))

    for number in range(3):
        assert store.get_blob(DIGEST, str(tmp_path / str(number)), len(DATA))
        assert store.get_record(KEY) == RECORD
        assert store.get_record("cd" * 32) is None


def test_closed_connection_is_replaced(tmp_path):
    """A server may close idle connections when it restarts; this must not cause a cache miss."""
    port = free_port()
    answers = []

    def serve_once(listener):
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        answers.append(1)

    with socket.create_server(("127.0.0.1", port)) as listener:
        store = HttpStore(f"http://127.0.0.1:{port}", limit_s=30.0)
        for _ in range(2):
            thread = threading.Thread(target=serve_once, args=(listener,))
            thread.start()
            assert store.get_record(KEY) == b"ok"
            thread.join()
        store.close()

    assert len(answers) == 2


def test_secrets_of_an_address_are_sent_but_not_printed(server):
    host = server.address.removeprefix("http://")
    store = HttpStore(f"http://ci:s%40cret@{host}/cache/", limit_s=30.0)

    assert store.address == f"http://{host}/cache"
    assert store._headers["Authorization"] == "Basic Y2k6c0BjcmV0"
    assert HttpStore(f"http://{host}", token="t")._headers["Authorization"] == "Bearer t"


def test_each_namespace_has_its_own_path_on_a_server(server):
    """A server's access rules can therefore distinguish namespaces by their path (`/ns/NAME/`)."""
    store = HttpStore(server.address, "branch-7")

    assert store.get_record(KEY) is None
    assert server.asked == [("GET", f"/ns/branch-7/ac/{KEY}")]
    store.close()


@pytest.mark.parametrize("address", ["ftp://x", "http://", "nothing"])
def test_invalid_store_address_is_a_user_error(address):
    with pytest.raises(UserError):
        HttpStore(address)


def test_refused_write_names_the_setting_for_machines_that_only_read(server, store):
    server.faults.append(Fault("forbidden", method="PUT"))

    with pytest.raises(StoreRefused, match=r"refused to store a result: 403 .*; use a token that allows this, or set"):
        store.put_record("ab" * 32, RECORD)


def test_compressed_answer_is_refused(server, store):
    """Answers are never decompressed, so a small compressed answer cannot exceed the size limit."""
    server.faults.append(Fault("packed", "/ac/"))

    with pytest.raises(Mismatch, match="compresses its answers"):
        store.get_record(KEY)


def test_large_records_of_a_server_are_read_one_at_a_time():
    """A server may send endless answers. Several of them, read at the same time, would fill the memory of the client."""
    body = bytes(8 << 20)
    with socket.create_server(("127.0.0.1", 0), backlog=16) as listening:

        def answer(wire):
            with wire, contextlib.suppress(OSError):
                wire.recv(65536)
                wire.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (100 * len(body)))
                for _ in range(100):
                    wire.sendall(body)

        def serve():
            for _ in range(8):
                threading.Thread(target=answer, args=(listening.accept()[0],)).start()

        def look_up():
            store = HttpStore(f"http://127.0.0.1:{listening.getsockname()[1]}", limit_s=30)
            with contextlib.closing(store), contextlib.suppress(StoreError):
                store.get_record("ab" * 32)

        threads = [threading.Thread(target=each) for each in (serve, *[look_up] * 8)]
        tracemalloc.start()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

    assert peak < len(body) + 4 * MAX_RECORD_BYTES
