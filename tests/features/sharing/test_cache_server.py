"""Aptui's cache server, used by HTTP clients other than aptui, for example ccache."""

import base64
import hashlib
import http.client
import os
import subprocess
from argparse import ArgumentParser
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tools import MACHINE, needs
from waiting import until

pytest.importorskip("aiohttp")

from aptui.features.sharing.cache_server import CacheServer, application, serve
from aptui.features.sharing.record import Seal, base_key, seal_record
from aptui.features.sharing.stores import local as maintenance
from aptui.features.sharing.stores.local import LocalStore
from aptui.features.sharing.stores.remote_stores import HttpStore
from aptui.features.sharing.verbs import cache, cache_arguments
from aptui.shared.errors import BusyError, HostError, UserError
from aptui.shared.result_store import StoreRefused
from tests.features.sharing.conftest import serving
from tests.features.sharing.harness import digest_of, facts, files_of, has, record

pytestmark = pytest.mark.real

KEY = base_key(facts())
RECORD = seal_record(record(facts(), b"one"), Seal())
DATA = b"blob" * 5000
DIGEST = digest_of(DATA).hex()


def ask(address, method, path, body=None, **headers):
    """Send one request unchanged; return status and body."""
    with closing(http.client.HTTPConnection(urlsplit(address).netloc, timeout=10)) as connection:
        connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        if body is not None and "Content_Length" not in headers:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders()
        connection.send(body or b"")
        answer = connection.getresponse()
        return answer.status, answer.read()


@pytest.fixture
def open_server(tmp_path):
    with serving(tmp_path / "store", is_writable=True) as address:
        yield address


def test_cache_server_serves_the_results_of_this_machine(tmp_path):
    local = LocalStore(str(tmp_path / "store"), Seal())
    [(digest, path)] = files_of(tmp_path / "made", DATA).items()
    local.put_blob(digest, path)
    local.put_record(KEY, RECORD)
    with serving(tmp_path / "store") as address:
        store = HttpStore(address)

        assert Seal().open_sealed(store.get_record(KEY)) == Seal().open_sealed(RECORD)
        assert store.get_blob(DIGEST, str(tmp_path / "target"), len(DATA))
        assert ask(address, "HEAD", f"/cas/{DIGEST}") == (200, b"")
        store.close()


def test_writing_to_the_cache_server_needs_permission(tmp_path):
    """A served store is read-only by default."""
    with serving(tmp_path / "store") as address:
        store = HttpStore(address)
        with pytest.raises(StoreRefused):
            store.put_record(KEY, RECORD)
        store.close()

        assert ask(address, "PUT", f"/cas/{DIGEST}", DATA)[0] == 403
    assert maintenance.count(str(tmp_path / "store")).blobs == 0


def test_token_writes_only_to_its_namespace(tmp_path):
    """The token of an untrusted branch cannot write to the trusted namespace."""
    tokens = {"ci-token": "trusted", "branch-token": "branch-7"}
    with serving(tmp_path / "store", write_tokens=tokens) as address:
        for token, namespace in tokens.items():
            for place in ("trusted", "branch-7", "branch-8"):
                store = HttpStore(address, place, token=token)
                if place == namespace:
                    assert store.put_record(KEY, RECORD)
                else:
                    with pytest.raises(StoreRefused):
                        store.put_record(KEY, RECORD, if_absent=False)
                store.close()


def test_token_is_accepted_as_bearer_and_as_password(tmp_path):
    basic = "Basic " + base64.b64encode(b"anybody:secret").decode()
    with serving(tmp_path / "store", read_tokens=("secret",)) as address:
        path = f"/cas/{DIGEST}"

        assert ask(address, "GET", path)[0] == 401
        assert ask(address, "GET", path, Authorization="Bearer wrong")[0] == 401
        assert ask(address, "GET", path, Authorization="Basic !!")[0] == 401
        assert ask(address, "GET", path, Authorization=b"Basic \xff\xfe")[0] == 401
        assert ask(address, "GET", path, Authorization=b"Bearer \xff\xfe")[0] == 401
        assert ask(address, "GET", path, Authorization="Bearer secret")[0] == 404
        assert ask(address, "GET", path, Authorization=basic)[0] == 404


def test_uploaded_blob_with_another_digest_is_refused(open_server, tmp_path):
    """The server verifies uploads, so clients that do not verify downloads are protected, too."""
    assert ask(open_server, "PUT", f"/cas/{DIGEST}", DATA[:-1])[0] == 400
    assert ask(open_server, "PUT", f"/cas/{DIGEST}", DATA + b"x")[0] == 400
    assert ask(open_server, "GET", f"/cas/{DIGEST}")[0] == 404
    assert ask(open_server, "PUT", f"/cas/{DIGEST}", DATA)[0] == 201
    assert ask(open_server, "PUT", f"/cas/{DIGEST}", b"poison")[0] == 400
    assert ask(open_server, "GET", f"/cas/{DIGEST}") == (200, DATA)
    assert os.listdir(tmp_path / "store" / "tmp") == []


def test_interrupted_upload_leaves_no_file(open_server, tmp_path):
    """A client closes its connection during an upload."""
    connection = http.client.HTTPConnection(urlsplit(open_server).netloc, timeout=10)
    connection.putrequest("PUT", f"/cas/{DIGEST}")
    connection.putheader("Content-Length", str(len(DATA)))
    connection.endheaders()
    connection.send(DATA[:1000])
    connection.close()

    assert ask(open_server, "GET", f"/cas/{DIGEST}")[0] == 404
    assert ask(open_server, "PUT", f"/cas/{DIGEST}", DATA)[0] == 201


def test_put_with_if_none_match_header_does_not_replace_a_record(open_server):
    assert ask(open_server, "PUT", f"/ac/{KEY}", b"first", If_None_Match="*")[0] == 201
    assert ask(open_server, "PUT", f"/ac/{KEY}", b"second", If_None_Match="*")[0] == 412
    assert ask(open_server, "GET", f"/ac/{KEY}") == (200, b"first")
    assert ask(open_server, "PUT", f"/ac/{KEY}", b"third")[0] == 201
    assert ask(open_server, "GET", f"/ac/{KEY}") == (200, b"third")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/secret",
        "/ac/../secret",
        "/ac/%2e%2e/secret",
        f"/cas/{'a' * 63}",
        f"/cas/{'A' * 64}",
        f"/ns/../cas/{DIGEST}",
        f"/ns/a/b/cas/{DIGEST}",
    ],
)
def test_request_path_outside_the_store_layout_returns_404(open_server, path):
    """A path can only be a record or a blob of the store."""
    for method in ("GET", "PUT"):
        assert ask(open_server, method, path, b"x")[0] == 404


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_folder_link_or_pipe_in_place_of_a_blob_returns_404(open_server, tmp_path, kind):
    path = tmp_path / "store" / "cas" / DIGEST[:2] / DIGEST
    path.parent.mkdir(parents=True)
    secret = tmp_path / "secret"
    secret.write_text("secret")
    {"link": lambda: path.symlink_to(secret), "pipe": lambda: os.mkfifo(path), "folder": path.mkdir}[kind]()

    assert ask(open_server, "GET", f"/cas/{DIGEST}")[0] == 404


@pytest.mark.parametrize("header", ["If-Modified-Since", "If-Unmodified-Since", "If-Range"])
def test_date_with_a_huge_year_in_a_condition_is_refused(open_server, header):
    ask(open_server, "PUT", f"/cas/{DIGEST}", DATA)
    condition = {header: "Thu, 01 Jan 99999999999999999999 00:00:00 GMT", "Range": "bytes=0-1"}

    assert ask(open_server, "GET", f"/cas/{DIGEST}", **condition) == (400, b"a date in the header of this request is invalid")


def test_cache_server_refuses_unknown_methods(open_server):
    assert ask(open_server, "DELETE", f"/cas/{DIGEST}")[0] == 405
    assert ask(open_server, "PUT", f"/cas/{DIGEST}", DATA, Content_Encoding="gzip")[0] == 415
    assert ask(open_server, "PUT", f"/ac/{KEY}", b"", Content_Length=str(1 << 30))[0] == 413
    assert ask(open_server, "PUT", f"/cas/{KEY}", b"", Content_Length=str(1 << 50))[0] == 413


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
def test_compressed_upload_is_refused_without_decompression(open_server, encoding, caplog):
    """The server does not decompress the uploaded data, and the connection stays usable for the next request."""
    with closing(http.client.HTTPConnection(urlsplit(open_server).netloc, timeout=10)) as connection:
        for place in (f"/ac/{KEY}", f"/cas/{DIGEST}"):
            connection.request("PUT", place, b"packed by nobody", {"Content-Encoding": encoding})
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (415, b"compressed uploads are not accepted")

    assert not caplog.records


def test_requests_of_browser_pages_are_refused(open_server):
    """The server refuses requests with another host name (DNS rebinding), and requests from pages of another origin."""
    for host in ("evil.example", "a:b:c", "[::1]x", "x:99999"):
        assert ask(open_server, "GET", f"/cas/{DIGEST}", Host=host)[0] == 421
    assert ask(open_server, "PUT", f"/cas/{DIGEST}", DATA, Origin="http://evil.example")[0] == 421
    assert ask(open_server, "GET", f"/cas/{DIGEST}", Sec_Fetch_Site="cross-site")[0] == 421


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"read_tokens": ("t",)},
        {"write_tokens": {"t": "trusted"}},
        {"read_tokens": ("t",), "is_plain": True, "is_writable": True},
        {"is_plain": True},
    ],
)
def test_public_address_needs_tokens_and_tls(tmp_path, options):
    """Beyond the loopback, access needs TLS and a token; writing needs a separate token."""
    with pytest.raises(UserError):
        application(CacheServer(str(tmp_path), "0.0.0.0", **options))
    assert application(CacheServer(str(tmp_path), "0.0.0.0", read_tokens=("t",), is_plain=True))


def test_error_of_a_public_writable_server_names_the_option_to_use(tmp_path):
    with pytest.raises(UserError, match="replace --writable by"):
        application(CacheServer(str(tmp_path), "0.0.0.0", read_tokens=("t",), is_plain=True, is_writable=True))


@pytest.mark.parametrize("port", [-1, 1 << 16])
def test_invalid_port_is_a_user_error(port, tmp_path):
    with pytest.raises(UserError, match="is not a port"):
        serve(CacheServer(str(tmp_path), port=port))


@pytest.mark.parametrize(("file", "why"), [("none.pem", "cannot be read"), ("bad.pem", "are not a certificate and its key")])
def test_invalid_certificate_of_the_cache_server_is_reported(tmp_path, file, why):
    (tmp_path / "bad.pem").write_text("no certificate")

    with pytest.raises(UserError, match=why) as error:
        serve(CacheServer(str(tmp_path), port=0, certificate=str(tmp_path / file)))
    assert "--certificate" in error.value.hint


def test_store_that_cannot_be_made_is_reported(tmp_path):
    (tmp_path / "file").touch()
    parser = ArgumentParser()
    cache_arguments(parser)

    with pytest.raises(HostError, match="cannot be made: Not a directory"):
        cache(parser.parse_args(["serve", "--store", str(tmp_path / "file" / "store")]))


def test_occupied_port_of_the_cache_server_is_reported(tmp_path, open_server):
    with pytest.raises(BusyError, match="is in use"):
        serve(CacheServer(str(tmp_path / "store"), port=urlsplit(open_server).port))


def test_serving_a_result_counts_as_use(tmp_path, open_server):
    root = str(tmp_path / "store")
    ask(open_server, "PUT", f"/cas/{DIGEST}", DATA)
    path = tmp_path / "store" / "cas" / DIGEST[:2] / DIGEST
    os.utime(path, ns=(0, path.stat().st_mtime_ns))
    ask(open_server, "GET", f"/cas/{DIGEST}")

    maintenance.gc(root, 1)
    assert path.exists()


def test_served_store_is_cleaned_when_uploads_exceed_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(maintenance, "GRACE_S", 0.0)
    with serving(tmp_path / "store", is_writable=True, limit_bytes=25_000) as address:
        for number in range(6):
            data = bytes([number]) * 10_000
            assert ask(address, "PUT", f"/cas/{hashlib.sha256(data).hexdigest()}", data)[0] == 201
            until(lambda: not maintenance.needs_cleanup(str(tmp_path / "store"), (), 25_000))

    assert 0 < maintenance.count(str(tmp_path / "store")).size_bytes < 25_000


@needs("ccache")
@pytest.mark.skipif(not has("cc"), reason=MACHINE + "no C compiler")
def test_ccache_stores_and_finds_its_results_on_the_cache_server(tmp_path):
    """Another program uses the server with the layout of Bazel's caches."""
    (tmp_path / "work").mkdir()
    source = tmp_path / "work" / "a.c"
    source.write_text("int answer(void) { return 42; }\n")
    with serving(tmp_path / "store", is_writable=True) as address:
        outs, counters = [], []
        for number in range(2):
            environment = os.environ | {
                "CCACHE_DIR": str(tmp_path / f"ccache{number}"),
                "CCACHE_REMOTE_STORAGE": f"{address}|layout=bazel",
                "CCACHE_REMOTE_ONLY": "true",
                "CCACHE_NOHASHDIR": "true",
            }
            out = tmp_path / f"a{number}.o"
            subprocess.run(["ccache", "cc", "-c", "a.c", "-o", str(out)], check=True, env=environment, cwd=source.parent)
            outs.append(hashlib.sha256(out.read_bytes()).digest())
            stats = subprocess.run(["ccache", "--print-stats"], check=True, env=environment, capture_output=True, text=True).stdout
            counters.append({name: int(count) for name, count in (line.split("\t") for line in stats.splitlines())})

    first, second = counters
    assert outs[0] == outs[1]
    assert (first["remote_storage_hit"], second["remote_storage_hit"]) == (0, 1)
    assert (first["remote_storage_error"], second["remote_storage_error"]) == (0, 0)
    assert list(Path(tmp_path / "store" / "ac").rglob("*"))
