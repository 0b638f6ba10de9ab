"""The WebDAV view: what a client that mounts it sees, and that it can change nothing."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote_to_bytes
from xml.etree import ElementTree as ET

import pytest
from disk_project import Project
from homes import own_homes
from tools import needs

from aptui.features.gateway.protocol.codec import Scope
from tests.features.gateway.served import Reply, Served, served

pytestmark = pytest.mark.real

SETTINGS = """
platforms: {linux: {}}
scan_folders: [{name: game, path: assets}]
builders: [{name: data, copy: ["*.txt"]}]
"""
D = "{DAV:}"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("dav")
    with pytest.MonkeyPatch.context() as patch:
        own_homes(folder, patch)
        project = Project(folder / "project", SETTINGS)
        project.write("assets/Sub/A & <b>.txt", "hello world")
        project.write(b"assets/\xff.txt", "odd")
        project.engine_run()
        with served(project, folder / "tokens.json") as place:
            yield place


def propfind(place: Served, path: str, depth: str = "1", body: str = "") -> Reply:
    return place.ask("PROPFIND", f"/dav{path}", body.encode() or None, Depth=depth, Content_Type="application/xml" if body else "")


def seen(reply: Reply) -> dict[bytes, dict[str, str]]:
    """Return {path: {property: text}} of what a PROPFIND found."""
    assert reply.status == 207
    found = {}
    for response in ET.fromstring(reply.body):
        path = unquote_to_bytes(response.findtext(f"{D}href") or "")
        props: dict[str, str] = {}
        for stat in response.findall(f"{D}propstat"):
            if "200" in (stat.findtext(f"{D}status") or ""):
                for prop in stat.iterfind(f"{D}prop/*"):
                    props[prop.tag.removeprefix(D)] = prop.text or "".join(child.tag.removeprefix(D) for child in prop)
        found[path] = props
    return found


def test_folders_show_what_is_in_them(place: Served) -> None:
    assert set(seen(propfind(place, "/"))) == {b"/dav/", b"/dav/linux/"}
    assert set(seen(propfind(place, "/linux"))) == {b"/dav/linux/", b"/dav/linux/sub/", b"/dav/linux/\xff.txt"}
    assert set(seen(propfind(place, "/linux/", depth="0"))) == {b"/dav/linux/"}
    assert seen(propfind(place, "/linux", depth="0"))[b"/dav/linux/"]["resourcetype"] == "collection"


def test_a_file_shows_what_a_get_says(place: Served) -> None:
    found = seen(propfind(place, "/linux/sub/"))[b"/dav/linux/sub/a & <b>.txt"]
    got = place.get("/dav/linux/sub/a%20%26%20%3Cb%3E.txt")

    assert (got.status, got.body) == (200, b"hello world")
    assert (found["getcontentlength"], found["resourcetype"], found["displayname"]) == ("11", "", "a & <b>.txt")
    assert (found["getetag"], found["getlastmodified"], found["getcontenttype"]) == (
        got["ETag"], got["Last-Modified"], got["Content-Type"],
    )  # fmt: skip


def test_what_is_asked_for_is_told_and_what_is_unknown_is_not_found(place: Served) -> None:
    body = '<p:propfind xmlns:p="DAV:"><p:prop><p:getetag/><x xmlns="urn:a&quot;b"/></p:prop></p:propfind>'
    reply = propfind(place, "/linux/%ff.txt", "0", body)

    assert list(seen(reply)[b"/dav/linux/\xff.txt"]) == ["getetag"]
    unknown = ET.fromstring(reply.body).findall(f".//{D}propstat")[1]
    assert [each.tag for each in unknown.iterfind(f"{D}prop/*")] == ['{urn:a"b}x']
    assert "404" in (unknown.findtext(f"{D}status") or "")


def test_names_of_properties_come_without_values(place: Served) -> None:
    found = seen(propfind(place, "/linux/%ff.txt", "0", '<propfind xmlns="DAV:"><propname/></propfind>'))[b"/dav/linux/\xff.txt"]
    assert "getetag" in found
    assert set(found.values()) == {""}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("<oops", 400), ("<x/>", 400), ('<!DOCTYPE x [<!ENTITY e "e">]><propfind xmlns="DAV:"/>', 400),
        ("<a>" + " " * 70_000 + "</a>", 413), (f'<p:propfind xmlns:p="DAV:"><p:prop>{"<p:x/>" * 65}</p:prop></p:propfind>', 400),
    ],
)  # fmt: skip
def test_odd_questions_are_refused(place: Served, body: str, status: int) -> None:
    assert propfind(place, "/linux", "0", body).status == status


def test_nobody_may_ask_for_everything_at_once(place: Served) -> None:
    reply = propfind(place, "/", "infinity")
    assert (reply.status, b"propfind-finite-depth" in reply.body) == (403, True)


@pytest.mark.parametrize("path", ["/none", "/linux/none", "/../linux", "/linux/%2e%2e/%2e%2e/assetdb.sqlite", "/linux/%00"])
def test_what_is_not_there_is_not_found(place: Served, path: str) -> None:
    assert propfind(place, path).status == 404
    assert place.get(f"/dav{path}").status == 404


@pytest.mark.parametrize("method", ["PUT", "DELETE", "MKCOL", "MOVE", "COPY", "PROPPATCH", "LOCK", "UNLOCK", "POST"])
def test_nothing_can_be_written(place: Served, method: str) -> None:
    reply = place.ask(method, "/dav/linux/%ff.txt")
    assert (reply.status, reply["Allow"]) == (405, "OPTIONS, GET, HEAD, PROPFIND")


def test_it_says_what_it_is(place: Served) -> None:
    reply = place.ask("OPTIONS", "/dav/")
    assert (reply.status, reply["DAV"], reply["Allow"]) == (200, "1", "OPTIONS, GET, HEAD, PROPFIND")


def basic(password: str) -> str:
    return f"Basic {base64.b64encode(f'anybody:{password}'.encode()).decode()}"


def test_the_password_is_a_token(place: Served) -> None:
    assert place.get("/dav/linux/%ff.txt", Authorization=basic(place.token)).body == b"odd"
    for wrong in (basic("wrong"), basic(""), "Basic !", "Basic", "Bearer wrong", ""):
        reply = place.get("/dav/linux/%ff.txt", Authorization=wrong)
        assert (reply.status, reply["WWW-Authenticate"]) == (401, 'Basic realm="aptui", charset="UTF-8"')


def test_a_token_that_may_not_read_opens_nothing(place: Served) -> None:
    bearer = place.with_scopes(Scope.SHUTDOWN)
    assert place.get("/dav/", Authorization=bearer).status == 403
    assert place.get("/dav/", Authorization=basic(bearer.removeprefix("Bearer "))).status == 403


@needs("cadaver")
def test_a_real_client_lists_and_gets_and_cannot_put(place: Served, tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text(f"machine 127.0.0.1 login me password {place.token}\n")
    (tmp_path / ".netrc").chmod(0o600)
    words = "ls\ncd linux/sub\nls\nget 'a & <b>.txt' got\nput .netrc x.txt\nmkcol y\ndelete 'a & <b>.txt'\nquit\n"

    client = subprocess.run(
        ["cadaver", f"http://127.0.0.1:{place.port}/dav/"], input=words.encode(), stdout=subprocess.PIPE, cwd=tmp_path, timeout=60,
        env={**os.environ, "HOME": str(tmp_path)},
    )  # fmt: skip

    assert b"Coll:   linux" in client.stdout
    assert b"a & <b>.txt" in client.stdout
    assert (tmp_path / "got").read_bytes() == b"hello world"
    assert client.stdout.count(b"405 Method Not Allowed") == 3


def test_a_body_may_come_in_pieces(place: Served) -> None:
    body = b'<D:propfind xmlns:D="DAV:"><D:allprop/></D:propfind>'
    head = (
        f"PROPFIND /dav/ HTTP/1.1\r\nHost: 127.0.0.1:{place.port}\r\nAuthorization: Bearer {place.token}\r\nDepth: 0\r\n"
        f"Content-Type: application/xml\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode()
    with socket.create_connection(("127.0.0.1", place.port), 10) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in (head, body[:20], body[20:]):
            wire.sendall(piece)
            place.get("/v1/protocol")  # so long the piece before has had to arrive

        assert wire.recv(12) == b"HTTP/1.1 207"
