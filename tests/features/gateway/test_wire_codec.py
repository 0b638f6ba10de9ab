"""The encoding of messages on the WebSocket."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest
from disk_project import Project

from aptui.config import dirs, load
from aptui.features.gateway import documents, gateway, wire_codec, wire_records
from aptui.features.gateway.documents import PROTOCOL_FILE, protocol_document
from aptui.features.gateway.wire_codec import NOTICES, REQUESTS, RequestMistake
from aptui.features.gateway.wire_records import Asset, Match
from tests.features.gateway.served import served


def test_published_protocol_document_equals_the_message_records() -> None:
    assert json.loads((dirs.data_dir() / "config" / PROTOCOL_FILE).read_text()) == protocol_document()


def test_published_protocol_document_has_every_request_answer_and_notification() -> None:
    made = protocol_document()

    messages = made["components"]["messages"]
    assert {f"request_{name}" for name in REQUESTS} | {f"answer_{name}" for name in REQUESTS} <= messages.keys()
    assert len(messages["notices"]["payload"]["properties"]["notices"]["items"]["oneOf"]) == len(NOTICES)
    text = json.dumps(made)
    references = {part.split('"')[0] for part in text.split('"$ref": "')[1:]}
    for reference in references:
        found = made
        for step in reference.removeprefix("#/").split("/"):
            found = found[step]
        assert found


def test_every_message_record_has_a_description() -> None:
    records = [*(each for exchange in REQUESTS.values() for each in exchange[:2]), *NOTICES.values()]

    assert all(inspect.getdoc(record) and not inspect.getdoc(record).startswith(f"{record.__name__}(") for record in records)


def test_request_is_unchanged_after_encoding_and_decoding() -> None:
    message = wire_records.AssetStatus(platform="linux", term="Grünes Gras.png", match=Match.EXACT, fence=False)

    assert wire_codec.decode_request(wire_codec.encode_request(7, message)) == (7, "asset_status", message)


def test_notifications_are_unchanged_after_encoding_and_decoding() -> None:
    asset = Asset("{U}:1", "linux", "a.png", "{T}", 3, "00", (("{V}:2", 1),), ("{U}:9",))
    sent = [wire_records.AssetChanged(asset), wire_records.CriticalReady("linux")]

    message = wire_codec.decode_message(wire_codec.encode_notices(3, 9, sent))

    assert (message.epoch, message.seq) == (3, 9)
    assert [wire_codec.record_of(each) for each in message.notices] == sent


def test_unknown_fields_and_notifications_are_ignored() -> None:
    message = wire_codec.decode_message(
        '{"epoch": 1, "seq": 2, "new": 1, "notices": [{"notice": "critical_ready", "platform": "p", "new": 1}]}'
    )

    assert wire_codec.record_of(message.notices[0]) == wire_records.CriticalReady("p")
    assert wire_codec.record_of({"notice": "something_new"}) is None


@pytest.mark.parametrize(
    ("frame", "number", "what"),
    [
        ("", 0, "truncated"),
        ("{", 0, "truncated"),
        ("[]", 0, "expected 'object'"),
        ("[" * 100_000, 0, "expected 'object'"),
        ('{"id": ' + "[" * 5_000 + "1" + "]" * 5_000 + "}", 0, ""),
        ('{"request": "ping"}', 0, "without 'id'"),
        ('{"id": 0, "request": "ping"}', 0, "from 1 to"),
        ('{"id": 99999999999, "request": "ping"}', 0, "from 1 to"),
        ('{"id": 5}', 5, "without 'request'"),
        ('{"id": 5, "request": "pong"}', 5, "'pong' is not a request"),
        ('{"id": 5, "request": "ping", "wish": 1}', 5, "no field 'wish'"),
        ('{"id": "5", "request": "ping"}', 0, "'id': expected 'int', got 'str'"),
        ('{"id": 5, "request": 5}', 5, "'request': expected 'str'"),
        ('{"id": 5, "request": "asset_status", "term": 3}', 5, "'asset_status': 'term'"),
        ('{"id": 5, "request": "hello"}', 5, "protocol"),
        ('{"id": 5, "request": "asset_status", "match": "fuzzy"}', 5, "fuzzy"),
    ],
)
def test_error_of_an_invalid_message_has_the_message_id_if_readable(frame: str, number: int, what: str) -> None:
    with pytest.raises(RequestMistake) as mistake:
        wire_codec.decode_request(frame)

    assert mistake.value.number == number
    assert what in mistake.value.what


def test_half_of_a_surrogate_pair_in_a_message_is_encoded_as_a_question_mark() -> None:
    assert "a?" in wire_codec.encode_refusal(1, "a\ud800")


def test_published_document_has_every_http_address(tmp_path: Path) -> None:
    made = documents.http_document()
    assert json.loads((dirs.data_dir() / "config" / documents.HTTP_FILE).read_text()) == made

    context = gateway.build_parts(load.load(Project(tmp_path / "p", PLAIN).root), token_file=tmp_path / "tokens.json")
    routes = {resource.canonical for resource in gateway.build_app(context).router.resources()}

    assert {address.route for address in documents.addresses()} == routes
    assert all(operation["summary"] for path in made["paths"].values() for operation in path.values())


@pytest.mark.real
def test_root_address_lists_all_http_addresses(tmp_path: Path) -> None:
    with served(Project(tmp_path / "p", PLAIN), tmp_path / "tokens.json") as place:
        reply = place.get("/", Authorization="")
        assert reply.status == 200
        assert json.loads(reply.body)["addresses"].keys() == documents.http_document()["paths"].keys()
        unknown = place.get("/v1/product")
        assert (unknown.status, unknown.body) == (404, b"this address does not exist: 'GET /' lists the addresses\n")
        assert place.get("/v1/openapi", Authorization="").status == 401
        assert json.loads(place.get("/v1/openapi").body)["openapi"] == "3.1.0"


PLAIN = """
platforms: {linux: {}}
scan_folders: [{name: game, path: assets}]
builders: [{name: data, copy: ["*.txt"]}]
"""
