"""The change feed over HTTP: complete, resumable, and ended with the gateway."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from disk_project import Project

from aptui.features.gateway.access import tokens
from aptui.features.gateway.wire_codec import Scope
from tests.features.gateway.served import Served, served

pytestmark = pytest.mark.real

SETTINGS = """
platforms: {linux: {}}
scan_folders: [{name: game, path: assets}]
builders: [{name: data, copy: ["*.txt"]}]
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr("aptui.store.queries.change_tail.PAGE", 2)
    project = Project(tmp_path / "project", SETTINGS)
    for name in "abc":
        project.write(f"assets/{name}.txt", name)
    project.engine_run()
    with served(project, tmp_path / "tokens.json") as place:
        yield place


def records(body: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in body.splitlines()]


def test_change_feed_lists_all_products_and_then_later_changes(place: Served) -> None:
    reply = place.get("/v1/changes")
    *listed, end = records(reply.body)
    assert reply["Content-Type"] == "application/x-ndjson"
    assert [each["name"] for each in listed] == ["a.txt", "b.txt", "c.txt", "linux/a.txt", "linux/b.txt", "linux/c.txt"]
    assert end["kind"] == "listed"
    assert len(records(place.get("/v1/changes?since=0").body)) == 6

    place.project.write("assets/d.txt", "d")
    place.project.delete("assets/a.txt")
    place.project.engine_run()
    news = records(place.get(f"/v1/changes?since={end['seq']}").body)
    assert {(each["name"], "removed" in each) for each in news} == {
        ("d.txt", False), ("linux/d.txt", False), ("a.txt", True), ("linux/a.txt", True),
    }  # fmt: skip
    assert records(place.get(f"/v1/changes?since={news[1]['seq']}").body) == news[2:]


def test_change_feed_returns_resync_only_for_a_valid_but_unknown_number(place: Served) -> None:
    [answer] = records(place.get("/v1/changes?since=77").body)
    assert answer["kind"] == "resync"
    for text in ("x", "-1", "", "1.5"):
        assert place.get(f"/v1/changes?since={text}").status == 400


def test_change_feed_can_be_followed_until_the_gateway_ends(tmp_path: Path, place: Served) -> None:
    with served(place.project, tmp_path / "more-tokens.json") as ending:
        connection = http.client.HTTPConnection("127.0.0.1", ending.port, timeout=30)
        connection.request("GET", "/v1/changes?since=0&follow=1", headers={"Authorization": f"Bearer {ending.token}"})
        reply = connection.getresponse()
        assert len([json.loads(reply.readline()) for _ in range(6)]) == 6
        for turn in range(3):
            place.project.write("assets/a.txt", f"{turn}")
            place.project.engine_run()
            assert [json.loads(reply.readline())["name"] for _ in range(2)] == ["a.txt", "linux/a.txt"]
    assert reply.read() == b""
    connection.close()


def test_change_feed_without_a_database_returns_503(place: Served) -> None:
    place.project.delete("Cache")
    assert place.get("/v1/changes").status == 503


@pytest.fixture
def follow(place: Served) -> Iterator[Callable[[str], http.client.HTTPResponse]]:
    """A function that follows the feed with an `Authorization`, each time on a new connection."""
    with contextlib.ExitStack() as stack:

        def followed(bearer: str) -> http.client.HTTPResponse:
            connection = stack.enter_context(contextlib.closing(http.client.HTTPConnection("127.0.0.1", place.port, timeout=30)))
            connection.request("GET", "/v1/changes?since=0&follow=1", headers={"Authorization": bearer})
            return stack.enter_context(contextlib.closing(connection.getresponse()))

        yield followed


Follow = Callable[[str], http.client.HTTPResponse]


def test_streams_of_one_token_are_limited_and_closed(place: Served, follow: Follow) -> None:
    """The number of streams per token is limited, and some streams are reserved for the user who runs the gateway."""
    assert follow(f"Bearer {place.token}").status == 200  # the first request opens files that stay open
    before = len(os.listdir("/proc/self/fd"))
    bearers = [place.with_scopes(Scope.READ) for _ in range(5)]

    statuses = [follow(bearer).status for bearer in bearers for _ in range(20)]
    held = len(os.listdir("/proc/self/fd")) - before

    assert (statuses.count(200), set(statuses)) == (47, {200, 503})
    assert follow(f"Bearer {place.token}").status == 200
    assert place.get("/v1/changes?since=0").status == 200
    assert held <= 2 * len(statuses) + 8, "each stream of changes opens at most two descriptors"


@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_expired_token_ends_its_stream(place: Served, follow: Follow, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bearer = f"Bearer {tokens.add(place.token_file, 'leaver', [Scope.READ], lasts_ms=3_600_000)}"
    reply = follow(bearer)
    assert len([reply.readline() for _ in range(6)]) == 6

    if how == "revoked":
        tokens.revoke(place.token_file, "leaver")
    else:
        later = tokens.now_ms() + 3_600_000
        monkeypatch.setattr(tokens, "now_ms", lambda: later)

    with contextlib.suppress(ConnectionError, http.client.HTTPException):
        assert reply.read() == b""
