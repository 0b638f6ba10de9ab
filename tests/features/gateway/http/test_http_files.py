"""Products, folders, logs and metrics over HTTP from a real cache, with an engine that replaces products while they are read."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from email.parser import BytesParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from disk_project import Project
from homes import own_homes
from waiting import until

from aptui.features.gateway.http import http_files, sending
from aptui.features.gateway.http.sending import PRODUCT_OPENER
from aptui.features.gateway.wire_codec import Scope
from aptui.shared.files import confinement
from aptui.store.db.schema import uuid_text
from aptui.store.queries.reader import open_reader
from tests.features.gateway.served import Reply, Served, served

pytestmark = pytest.mark.real

SETTINGS = """
platforms: {linux: {}, server: {}}
scan_folders: [{name: game, path: assets}]
builders:
  - {name: data, copy: ["*.txt", "*.bin", "*.json", "*.html"]}
  - name: slow
    patterns: ["*.slow"]
    version: 1
    command: "cat {source} >/dev/null; grep -q fail {source} && exit 1; cp {source} {products_dir}/{stem}.out"
    products: ["*.out"]
"""
BIG = bytes(range(256)) * 4_000


def write_project(root: Path) -> Project:
    project = Project(root, SETTINGS)
    project.write("assets/Sub/A.txt", "hello world")
    project.write("assets/Sub/deep/er/x.json", "{}")
    project.write(b"assets/\xff 100%.txt", "odd")
    project.write("assets/ärger.html", "<script>")
    project.write("assets/big.bin", BIG)
    project.write("assets/empty.txt", b"")
    return project


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("files")
    with pytest.MonkeyPatch.context() as patch:
        own_homes(folder, patch)
        project = write_project(folder / "project")
        project.engine_run()
        (folder / "cache-secret").write_text("secret")
        with served(project, folder / "tokens.json") as place:
            yield place


def etag(data: bytes) -> str:
    return f'"{hashlib.sha256(data).hexdigest()}"'


# ---------------------------------------------------------------------------------------------------------------- products


def test_log_that_is_deleted_while_its_folder_is_listed_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scandir = os.scandir

    @contextmanager
    def delete_after_listing(folder: int) -> Iterator[list[os.DirEntry[str]]]:
        with scandir(folder) as entries:
            listed = list(entries)
        (tmp_path / "a.log").unlink()
        yield listed

    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text("text")
    monkeypatch.setattr(http_files.os, "scandir", delete_after_listing)
    request: Any = SimpleNamespace(query={"list": "plain"})
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        reply = http_files._log_listing(request, folder, "")
    finally:
        os.close(folder)
        monkeypatch.undo()

    assert reply.text == "b.log\n"


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("linux/sub/a.txt", b"hello world"), ("LINUX/Sub/A.TXT", b"hello world"), ("linux%2Fsub%2Fa.txt", b"hello world"),
        ("linux/%ff%20100%25.txt", b"odd"), ("linux/%C3%A4rger.html", b"<script>"), ("linux/big.bin", BIG),
        ("server/empty.txt", b""),
    ],
)  # fmt: skip
def test_product_answer_has_the_digest_of_the_product_as_etag(place: Served, path: str, data: bytes) -> None:
    reply = place.get(f"/v1/products/{path}")

    assert (reply.status, reply.body) == (200, data)
    assert reply["ETag"] == etag(data)
    assert reply["Content-Length"] == str(len(data))
    assert reply["Accept-Ranges"] == "bytes"
    assert reply["Last-Modified"]
    assert "sandbox" in str(reply["Content-Security-Policy"]), "a page among the products must not run scripts"
    assert reply["X-Content-Type-Options"] == "nosniff"

    head = place.ask("HEAD", f"/v1/products/{path}")
    assert (head.status, head.body, head["ETag"], head["Content-Length"]) == (200, b"", reply["ETag"], reply["Content-Length"])


@pytest.mark.parametrize(
    "path",
    [
        "linux/none", "linux/sub", "none/a.txt", "linux/../linux/sub/a.txt", "../assetdb.sqlite",
        "linux/%2e%2e/%2e%2e/assetdb.sqlite",
        "../.aptui/lock", "..%2F..%2Fcache-secret", "%2Fetc%2Fpasswd", "/etc/passwd", "linux/sub/a.txt%00", "linux//sub/a.txt",
        "linux/./sub/a.txt", "assetdb.sqlite", "linux/sub/a.txt/x", "intermediate%20assets/x",
    ],
)  # fmt: skip
def test_path_that_is_not_a_product_returns_404(place: Served, path: str) -> None:
    reply = place.get(f"/v1/products/{path}")
    assert reply.status == 404


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.txt", "text/plain; charset=utf-8"), ("x.json", "application/json"), ("p.png", "image/png"),
        ("m.glb", "model/gltf-binary"),
        ("s.wav", "audio/x-wav"), ("t.ktx2", "image/ktx2"), ("none", "application/octet-stream"),
        ("a.tar.gz", "application/octet-stream"),
    ],
)  # fmt: skip
def test_content_type_depends_on_the_extension(name: str, kind: str) -> None:
    assert sending.content_type(name) == kind


@pytest.mark.parametrize("method", ["PUT", "DELETE", "POST", "PATCH"])
def test_all_writing_methods_are_refused(place: Served, method: str) -> None:
    reply = place.ask(method, "/v1/products/linux/sub/a.txt")
    assert (reply.status, reply["Allow"]) == (405, "GET,HEAD")


def test_conditional_requests_return_304_or_412(place: Served) -> None:
    path, tag = "/v1/products/linux/sub/a.txt", etag(b"hello world")

    known = place.get(path, If_None_Match=tag)
    assert (known.status, known.body, known["ETag"]) == (304, b"", tag)
    assert place.get(path, If_Match='"other"').status == 412
    assert place.get(path, If_None_Match='"other"').status == 200
    assert place.ask("HEAD", path, If_None_Match=tag).status == 304


@pytest.mark.parametrize("length", [11, len(BIG)])
def test_one_requested_range_is_returned(place: Served, length: int) -> None:
    path, data = ("sub/a.txt", b"hello world") if length == 11 else ("big.bin", BIG)
    url = f"/v1/products/linux/{path}"

    part = place.get(url, Range=f"bytes=1-{length - 2}")
    assert (part.status, part.body, part["Content-Range"]) == (206, data[1:-1], f"bytes 1-{length - 2}/{length}")
    assert place.get(url, Range="bytes=-4").body == data[-4:]
    assert place.get(url, Range="bytes=0-3", If_Range='"other"').status == 200
    beyond = place.get(url, Range=f"bytes={length}-")
    assert (beyond.status, beyond["Content-Range"]) == (416, f"bytes */{length}")


def test_several_requested_ranges_are_returned_as_multipart(place: Served) -> None:
    reply = place.get("/v1/products/linux/big.bin", Range="bytes=0-9, 300000-899999, -5")

    assert reply.status == 206
    message = BytesParser().parsebytes(f"Content-Type: {reply['Content-Type']}\r\n\r\n".encode() + reply.body)
    parts: Any = message.get_payload()
    size = len(BIG)
    assert [part["Content-Range"] for part in parts] == [
        f"bytes 0-9/{size}", f"bytes 300000-899999/{size}", f"bytes {size - 5}-{size - 1}/{size}",
    ]  # fmt: skip
    assert reply.body.count(BIG[300000:900000]) == 1
    assert parts[0].get_payload(decode=True) == BIG[:10]


def test_http_connection_stays_usable_after_every_answer(place: Served) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", place.port, timeout=30)
    for path, extra in (
        ("big.bin", {}), ("none", {}), ("big.bin", {"Range": "bytes=0-1,500000-999999"}), ("empty.txt", {}),
        ("big.bin", {"Range": "bytes=9-"}),
    ):  # fmt: skip
        connection.request("GET", f"/v1/products/linux/{path}", headers={"Authorization": f"Bearer {place.token}", **extra})
        connection.getresponse().read()
    connection.request("HEAD", "/v1/products/linux/big.bin", headers={"Authorization": f"Bearer {place.token}"})
    assert connection.getresponse().read() == b""
    connection.request("GET", "/v1/products/linux/sub/a.txt", headers={"Authorization": f"Bearer {place.token}"})
    assert connection.getresponse().read() == b"hello world"
    connection.close()


# --------------------------------------------------------------------------------------------------------------- asset ids


def test_product_is_found_by_asset_id(place: Served) -> None:
    with closing(open_reader(place.project.cache / "assetdb.sqlite")) as reader:
        source = reader.source("sub/a.txt")
    assert source is not None
    guid = uuid_text(source.uuid)

    reply = place.get(f"/v1/assets/{guid}:0?platform=linux")
    assert (reply.body, reply.status, reply["Content-Location"]) == (b"hello world", 200, "/v1/products/linux/sub/a.txt")
    assert place.get(f"/v1/assets/{guid.strip('{}').lower()}:0?platform=SERVER").body == b"hello world"
    assert place.get(f"/v1/assets/{guid}:0").status == 400
    assert place.get(f"/v1/assets/{guid}:1?platform=linux").status == 404
    assert place.get(f"/v1/assets/{guid}?platform=linux").status == 400
    assert place.get("/v1/assets/nonsense?platform=linux").status == 400


# ----------------------------------------------------------------------------------------------------------------- folders


def test_folders_are_listed(place: Served) -> None:
    for path in ("linux/sub/", "linux/Sub?list=1", "linux/sub/?list"):
        reply = place.get(f"/v1/products/{path}")
        assert reply.status == 200, path
        assert b'"folder": "linux/sub", "folders": ["deep"]' in reply.body
        assert hashlib.sha256(b"hello world").hexdigest().encode() in reply.body
    assert place.get("/v1/products/linux?list=plain").body.decode() == "sub/\nbig.bin\nempty.txt\närger.html\n\U0010ffff 100%.txt\n"
    assert place.get("/v1/products?list=plain").body == b"linux/\nserver/\n"
    assert place.get("/v1/products/linux/none/").status == 404
    assert place.get("/v1/products/none/").status == 404
    for item in json.loads(place.get("/v1/products/linux/").body)["files"]:
        assert place.get(item["url"])["ETag"] == f'"{item["digest"]}"'


def test_tree_lists_all_products_below_a_folder(place: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aptui.features.gateway.http.http_files._TREE_PAGE", 2)
    lines = place.get("/v1/tree/linux?list=plain").body.decode().splitlines()
    assert lines == ["big.bin", "empty.txt", "sub/a.txt", "sub/deep/er/x.json", "ärger.html", "\U0010ffff 100%.txt"]
    assert [each["path"] for each in json.loads(place.get("/v1/tree/linux").body)["files"]] == lines
    assert place.get("/v1/tree/linux/sub/deep?list=plain").body == b"er/x.json\n"
    assert len(place.get("/v1/tree?list=plain").body.splitlines()) == 2 * len(lines)
    assert place.get("/v1/tree/linux/none").status == 404
    assert place.get("/v1/tree/lin").status == 404


# -------------------------------------------------------------------------------------------------------- aliases and scopes


def test_products_alias_serves_the_products_of_the_first_platform(place: Served) -> None:
    assert place.get("/v1/files/@products@/sub/a.txt").body == b"hello world"
    assert place.get("/v1/files/@products@/sub/a.txt?platform=server").body == b"hello world"
    assert place.get("/v1/files/@products@?list=plain").body.startswith(b"sub/\n")
    assert place.get("/v1/files/@products@/../../assetdb.sqlite").status == 404
    assert place.get("/v1/files/@user@/x").status == 404
    assert place.get("/v1/files/%40products%40/sub/a.txt").body == b"hello world", "an alias may be percent-encoded"
    assert place.get("/v1/files/%40log%40/none").status == 404


def test_logs_need_scope_control(place: Served) -> None:
    assert b"aptui.log" in place.get("/v1/files/@log@?list=plain").body
    assert place.get("/v1/files/@log@/aptui.log").status == 200
    assert place.get("/v1/files/@log@/none").status == 404
    for path in ("..%2Faptui.yaml", "%2e%2e/aptui.yaml", "%2Fetc%2Fpasswd"):
        assert place.get(f"/v1/files/@log@/{path}").status == 404
    assert place.get("/v1/files/@log@/aptui.log", Authorization=place.with_scopes(Scope.READ)).status == 403


def test_symlink_among_logs_is_not_followed(place: Served) -> None:
    logs = place.context.config.log_dir  # type: ignore[attr-defined]
    (logs / "link").symlink_to("/etc/passwd")
    (logs / "folder").symlink_to("/etc")
    os.mkfifo(logs / "pipe")
    try:
        assert [place.get(f"/v1/files/@log@/{path}").status for path in ("link", "folder/passwd", "folder/", "pipe")] == [404] * 4
    finally:
        for name in ("link", "folder", "pipe"):
            (logs / name).unlink()


@pytest.mark.parametrize(
    "path", ["products/linux/sub/a.txt", "products/", "tree/linux", "assets/x", "files/@products@/", "changes"]
)
def test_every_http_address_needs_scope_read(place: Served, path: str) -> None:
    assert place.get(f"/v1/{path}", Authorization="").status == 401
    assert place.get(f"/v1/{path}", Authorization="Bearer wrong").status == 401


# -------------------------------------------------------------------------------------------- modified and replaced products


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Served]:
    """A gateway for a project that the test may change."""
    project = Project(tmp_path / "project", SETTINGS)
    project.write("assets/Sub/A.txt", "hello world")
    project.write("assets/big.bin", BIG)
    project.engine_run()
    with served(project, tmp_path / "tokens.json") as place:
        yield place


def test_symlink_instead_of_a_product_is_not_followed(own: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aptui.features.gateway.http.sending._TIMEOUT_S", 0.05)
    secret = own.project.write("secret", "hello world")
    target = own.project.cache / "linux/sub/a.txt"
    target.unlink()
    target.symlink_to(secret)
    assert own.get("/v1/products/linux/sub/a.txt").status == 503

    target.unlink()
    (own.project.cache / "linux/sub").rename(own.project.root / "elsewhere")
    (own.project.root / "elsewhere/a.txt").write_text("hello world")
    (own.project.cache / "linux/sub").symlink_to(own.project.root / "elsewhere")
    assert own.get("/v1/products/linux/sub/a.txt").status == 503


def test_modified_product_is_not_sent(own: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aptui.features.gateway.http.sending._TIMEOUT_S", 0.05)
    (own.project.cache / "linux/sub/a.txt").write_text("hello")
    reply = own.get("/v1/products/linux/sub/a.txt")
    assert (reply.status, reply["Retry-After"]) == (503, "1")

    (own.project.cache / "linux/sub/a.txt").unlink()
    assert own.get("/v1/products/linux/sub/a.txt").status == 503


def test_small_product_is_reopened_only_after_a_modification(place: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    opener, url, file = place.context.app[PRODUCT_OPENER], "/v1/products/linux/sub/a.txt", place.project.cache / "linux/sub/a.txt"
    opened: list[bytes] = []
    open_file = confinement.open_confined_file
    monkeypatch.setattr(confinement, "open_confined_file", lambda folder, path: opened.append(path) or open_file(folder, path))
    place.get(url)
    opened.clear()

    assert [place.get(url).body for _ in range(3)] == [b"hello world"] * 3
    assert opened == []
    os.utime(file, (1, 1))
    assert place.get(url)["Last-Modified"] == "Thu, 01 Jan 1970 00:00:01 GMT"
    assert opened == [b"linux/sub/a.txt"]
    os.utime(file)

    stored = list(opener._open_files.values())
    place.loop.call_soon_threadsafe(opener._close_files)
    assert place.get("/v1/products/linux/none").status == 404
    assert [(each.users, each.descriptor) for each in stored] == [(0, -1)] * len(stored)


def test_product_of_a_killed_engine_is_verified_before_sending(own: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aptui.features.gateway.http.sending._TIMEOUT_S", 0.05)
    with closing(sqlite3.connect(own.project.cache / "assetdb.sqlite", isolation_level=None)) as database:
        database.execute("INSERT INTO aptui_intents VALUES (9, 9, 'linux/sub/a.txt', x'00', 11, '[]')")
    assert own.get("/v1/products/linux/sub/a.txt").body == b"hello world"
    (own.project.cache / "linux/sub/a.txt").write_text("HELLO WORLD")
    assert own.get("/v1/products/linux/sub/a.txt").status == 503


def test_content_matches_its_etag_while_products_are_replaced(own: Served) -> None:
    """The old and the new content of a product have the same length, so that only the digest differs."""
    seen: set[bytes] = set()
    wrong: list[Reply] = []
    ends = threading.Event()

    def read() -> None:
        while not ends.is_set():
            for path in ("linux/sub/a.txt", "linux/big.bin"):
                reply = own.get(f"/v1/products/{path}")
                if reply.status != 200 or reply["ETag"] != etag(reply.body):
                    wrong.append(reply)
                seen.add(reply.body[:4])

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for turn in range(6):
            own.project.write("assets/Sub/A.txt", f"{turn:011}")
            own.project.write("assets/big.bin", bytes([turn]) + BIG[1:])
            own.project.engine_run()
    finally:
        ends.set()
        reader.join()
    assert not wrong
    assert len(seen) > 3


def test_download_completes_with_the_old_content_if_the_product_is_replaced(own: Served) -> None:
    huge = os.urandom(1 << 20) * 24
    own.project.write("assets/huge.bin", huge)
    own.project.engine_run()
    with socket.create_connection(("127.0.0.1", own.port)) as slow:
        request = f"GET /v1/products/linux/huge.bin HTTP/1.1\r\nHost: 127.0.0.1:{own.port}\r\nAuthorization: Bearer {own.token}\r\n"
        slow.sendall(f"{request}Connection: close\r\n\r\n".encode())
        got = slow.recv(1000)

        own.project.write("assets/huge.bin", b"short")
        own.project.engine_run()
        assert own.get("/v1/products/linux/huge.bin").body == b"short"
        while data := slow.recv(1 << 20):
            got += data
    head, _, body = got.partition(b"\r\n\r\n")
    assert etag(huge).encode() in head
    assert body == huge


def test_gateway_serves_a_cache_that_was_deleted_and_created_again(own: Served) -> None:
    assert own.get("/v1/products/linux/sub/a.txt").status == 200
    own.project.delete("Cache")
    assert own.get("/v1/products/linux/sub/a.txt").status in (400, 503)
    own.project.write("assets/Sub/A.txt", "anew")
    own.project.engine_run()
    assert own.get("/v1/products/linux/sub/a.txt").body == b"anew"


# ----------------------------------------------------------------------------------------------------------------- metrics


def test_metrics_need_scope_read(own: Served) -> None:
    reply = own.get("/metrics")

    assert reply.status == 200
    assert reply["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    lines = reply.body.decode().splitlines()
    assert lines[-1] == "# EOF"
    assert {'aptui_jobs{status="completed"} 4', "aptui_engine_up 0", 'aptui_job_seconds_gcount{builder="data"} 4'} <= set(lines)
    assert own.get("/metrics", Authorization="").status == 401
    assert own.get("/metrics", Authorization=own.with_scopes(Scope.READ)).status == 200


def test_metrics_request_without_a_database_returns_503(own: Served) -> None:
    (own.project.cache / "assetdb.sqlite").unlink()

    assert own.get("/metrics").status == 503


# --------------------------------------------------------------------------------------------------- requests with `wait=1`


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A project with an engine in its own process."""
    folder = tmp_path_factory.mktemp("live")
    with pytest.MonkeyPatch.context() as patch:
        own_homes(folder, patch)
        project = Project(folder / "project", SETTINGS)
        project.write("assets/a.txt", "one")
        root = str(Path(__file__).parents[4])
        words = [sys.executable, "-m", "aptui", "serve", "--project", str(project.root)]
        with subprocess.Popen(words, env={**os.environ, "PYTHONPATH": root}, stdout=subprocess.DEVNULL) as engine:
            try:
                with served(project, folder / "tokens.json") as place:
                    until(lambda: place.context.engine.is_here)  # type: ignore[attr-defined]
                    yield place
            finally:
                engine.send_signal(signal.SIGTERM)
                engine.wait(30)


def test_request_with_wait_returns_products_of_sources_saved_before_the_request(live: Served) -> None:
    for turn in range(5):
        live.project.write("assets/a.txt", f"turn {turn}")
        reply = live.get("/v1/products/linux/a.txt?wait=1")
        assert (reply.status, reply.body) == (200, f"turn {turn}".encode())


def test_request_with_wait_returns_a_product_of_a_new_source(live: Served) -> None:
    live.project.write("assets/new/Rock.slow", "rock")
    reply = live.get("/v1/products/linux/new/rock.out?wait=1")
    assert (reply.status, reply.body) == (200, b"rock")


def test_request_with_wait_for_an_unknown_product_returns_404(live: Served) -> None:
    assert live.get("/v1/products/linux/nobody.txt?wait=1&timeout=20").status == 404


def test_request_with_wait_reports_a_failed_job(live: Served) -> None:
    live.project.write("assets/bad.slow", "fail")
    reply = live.get("/v1/products/linux/bad.out?wait=1")
    assert (reply.status, reply.body) == (409, b"a job of 'bad.slow' failed\n")


def test_request_with_wait_reports_its_timeout(live: Served) -> None:
    live.project.write("assets/late.slow", "late")
    reply = live.get("/v1/products/linux/late.out?wait=1&timeout=0")
    assert reply.status == 504
    assert live.get("/v1/products/linux/late.out?wait=1").body == b"late"


def test_request_with_wait_accepts_an_asset_id(live: Served) -> None:
    live.get("/v1/products/linux/a.txt?wait=1")
    with closing(open_reader(live.project.cache / "assetdb.sqlite")) as reader:
        source = reader.source("a.txt")
    assert source is not None
    live.project.write("assets/a.txt", "by id")
    assert live.get(f"/v1/assets/{uuid_text(source.uuid)}:0?platform=linux&wait=1").body == b"by id"
    assert live.get(f"/v1/assets/{uuid_text(source.uuid)}:0?wait=1").status == 400


def test_request_with_wait_needs_scope_escalate_and_a_valid_timeout(live: Served) -> None:
    reader = live.with_scopes(Scope.READ)
    assert live.get("/v1/products/linux/a.txt?wait=1").status == 200
    assert live.get("/v1/products/linux/a.txt", Authorization=reader).status == 200
    assert live.get("/v1/products/linux/a.txt?wait=1", Authorization=reader).status == 403
    for timeout in ("-1", "x", "601", "nan"):
        assert live.get(f"/v1/products/linux/a.txt?wait=1&timeout={timeout}").status == 400


def test_request_with_wait_needs_a_running_engine(place: Served) -> None:
    assert place.get("/v1/products/linux/sub/a.txt?wait=1").status == 503
