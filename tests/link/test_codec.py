"""Decoding lines to records, encoding records to lines, and the texts of refusals."""

import contextlib
import json
import re
import zlib
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from link_harness import NOTICES, example
from tools import needs_feature

from aptui import feature
from aptui.core import notices
from aptui.core.notices import EngineMessage
from aptui.link import codec
from aptui.link.codec import AnswerLine, LineBuffer, LineTooLong, MalformedLine, NoticeLine, RefusalLine
from aptui.link.port import PROTOCOL, VERBS, Cancel, EngineHello, PingEngine, ReprocessJobs, wire_name

RECORDS = {**VERBS, **{name: feature.load(place) for name, place in feature.requests().items()}}
"""{name on the wire: record}, of the kernel and of all features."""


def test_protocol_version_changes_with_the_forms_of_messages() -> None:
    """If this test fails, increase `PROTOCOL`, so that an engine and a client of different versions refuse each other clearly."""
    _, forms = msgspec.json.schema_components([*VERBS.values(), *get_args(notices.Notice)])

    text = json.dumps(forms, sort_keys=True, default=str)
    names = re.sub(r'"description": "(?:[^"\\]|\\.)*", ', "", text)
    assert (PROTOCOL, f"{zlib.crc32(names.encode()):08x}") == (4, "fac7d7e1")


@pytest.mark.parametrize("name", RECORDS)
def test_request_is_unchanged_by_encoding_and_decoding(name: str) -> None:
    verb = example(RECORDS[name])

    line = codec.encode_request(3, verb)

    assert json.loads(line)["verb"] == name
    assert line.count(b"\n") == 1
    assert codec.decode_request(line[:-1]) == (3, verb)


@pytest.mark.parametrize("name", RECORDS)
def test_wire_name_consists_of_words_of_the_record_name(name: str) -> None:
    words = {word.lower() for word in re.findall("[A-Z][a-z]+", RECORDS[name].__name__)}

    assert wire_name(RECORDS[name]) == name
    assert set(name.split("_")) <= words


@pytest.mark.parametrize(
    "name", [name for name in RECORDS if name not in {"report_peers", "order_peers"}]
)  # each of these two requests has only one field, and it has no default
def test_fields_with_defaults_may_be_left_out(name: str) -> None:
    needed: dict[str, dict[str, Any]] = {
        "hello": {"protocol": PROTOCOL, "version": "", "kind": "", "pid": 1},
        "cancel": {"job_ids": [4]},
        "read_run_log": {"job_id": 4},
        "hold": {"why": ""},
    }
    needed |= {"set_option": {"name": "verbose", "value": True}, "disconnect": {"number": 1}, "restart_worker": {"number": 1}}
    fields = needed.get(name, {})

    _number, verb = codec.decode_request(json.dumps({"id": 1, "verb": name, **fields}).encode())

    wanted = {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
    assert verb == RECORDS[name](**wanted)


@pytest.mark.parametrize("record", NOTICES)
def test_notice_is_unchanged_by_encoding_and_decoding(record: type) -> None:
    notice = example(record)

    line = codec.encode_notice(notice, 7, 123)

    assert line.count(b"\n") == 1
    assert list(json.loads(line))[:3] == ["notice", "epoch", "seq"]
    assert codec.decode_message(line[:-1]) == NoticeLine(7, 123, notice)


def test_engine_message_has_the_notice_name_said() -> None:
    line = codec.encode_notice(EngineMessage(0, 1, "x"), 7, 123)

    assert json.loads(line)["notice"] == "Said"
    assert json.loads(codec.encode_notices([EngineMessage(0, 1, "x")], 7, [123]))["notices"] == "Said"


def test_answer_or_refusal_is_unchanged_by_encoding_and_decoding() -> None:
    progress = example(notices.Progress)

    answer = codec.decode_message(codec.encode_answer(3, {"progress": progress, "none": None}))
    refusal = codec.decode_message(codec.encode_refusal(4, "no", "later", 4))

    assert isinstance(answer, AnswerLine)
    assert answer.number == 3
    progress_record: Any = answer.answer["progress"]
    assert progress_record["files_scanned"] == progress.files_scanned
    assert refusal == RefusalLine(4, "no", "later", 4)


def test_lone_surrogate_in_a_notice_is_replaced() -> None:
    decoded = codec.decode_message(codec.encode_notice(EngineMessage(1, 1, "a\udc80b"), 1, 1))

    assert isinstance(decoded, NoticeLine)
    assert decoded.notice == EngineMessage(1, 1, "a?b")


@pytest.mark.parametrize(
    "line",
    [
        b'{"notice":"NeverHeardOf","epoch":1,"seq":2,"x":[]}',
        b'{"notice":"Said","epoch":1,"seq":2}',
        b'{"id":3,"something":"else"}',
        b"{}",
    ],
)
def test_message_of_unknown_kind_from_a_newer_engine_decodes_to_none(line: bytes) -> None:
    assert codec.decode_message(line) is None


def test_unknown_fields_of_a_newer_engine_are_ignored() -> None:
    line = b'{"notice":"Said","epoch":1,"seq":2,"cause":3,"level":1,"text":"x","colour":"red"}'

    assert codec.decode_message(line) == NoticeLine(1, 2, EngineMessage(3, 1, "x"))


@pytest.mark.parametrize(
    ("line", "number", "what", "hint"),
    [
        (b'{"id":3,"verb":"statsu"}', 3, "'statsu' is not a verb", "did you mean 'status'?"),
        (b'{"id":3,"verb":"qqqq"}', 3, "'qqqq' is not a verb", "the known names are: "),
        (b'{"id":3,"verb":7}', 3, "'verb': expected 'str', got 'int'", ""),
        (b'{"id":3}', 3, "a message without 'verb'", ""),
        (b'{"verb":"ping"}', 0, "a message without 'id'", ""),
        (b'{"id":0,"verb":"ping"}', 0, "'id': expected a number from 1", ""),
        (b'{"id":"3","verb":"ping"}', 0, "'id': expected 'int', got 'str'", ""),
        (b'{"id":' + b"9" * 5000 + b',"verb":"ping"}', 0, "'id': ", ""),
        (b'{"id":3,"verb":"ping","loud":1}', 3, "verb 'ping' has no field 'loud'", "this request has no fields"),
        (b'{"id":3,"verb":"cancel","job_id":[1]}', 3, "verb 'cancel' has no field 'job_id'", "did you mean 'job_ids'?"),
        (b'{"id":3,"verb":"cancel","job_ids":[1,"2"]}', 3, "verb 'cancel': 'job_ids[1]': expected 'int', got 'str'", ""),
        (b'{"id":3,"verb":"cancel","job_ids":[1.5]}', 3, "verb 'cancel': 'job_ids[0]': expected 'int', got 'float'", ""),
        (b'{"id":3,"verb":"cancel"}', 3, "verb 'cancel': object missing required field 'job_ids'", ""),
        (
            b'{"id":3,"verb":"cancel","job_ids":[9223372036854775808]}',
            3,
            "verb 'cancel': 'job_ids': a number beyond 64 bits",
            "use a number",
        ),
        pytest.param(
            b'{"id":3,"verb":"order_peers","order":{"deed":"disconnect","number":9223372036854775808}}',
            3,
            "verb 'order_peers': 'order': a number beyond 64 bits",
            "use a number from -9223372036854775807 to",
            marks=needs_feature("gateway"),
        ),
        (
            b'{"id":3,"verb":"escalate","keys":["*' + b"a" * 60_000 + b'"]}',
            3,
            "'keys': a pattern of more than 1024 characters",
            "use a shorter",
        ),
        (
            b'{"id":3,"verb":"reprocess","keys":[' + b'"a*",' * 64 + b'"b*"]}',
            3,
            "'keys': more than 64 patterns",
            "send several requests",
        ),
        pytest.param(
            b'{"id":3,"verb":"relocate","source":"' + b"*?" * 513 + b'"}',
            3,
            "'source': a pattern of more than 1024 characters",
            "use a shorter",
            marks=needs_feature("relocation"),
        ),
        (
            b'{"id":3,"verb":"hold","why":"' + b"a" * 20_000 + b'"}',
            3,
            "'why': a text of more than 16384 characters",
            "use a shorter",
        ),
        pytest.param(
            b'{"id":3,"verb":"order_peers","order":{"deed":"allow","entry":"' + b"a" * 20_000 + b'"}}',
            3,
            "'order': a text of more than",
            "",
            marks=needs_feature("gateway"),
        ),
        (b'{"id":3,"verb":"run_next","job_id":' + b"9" * 5000 + b"}", 3, "verb 'run_next': 'job_id': ", ""),
        (b'{"id":3,"verb":"run_next","job_id":-1e400}', 3, "verb 'run_next': 'job_id': ", ""),
        (b'{"id":3,"verb":"run_next","job_id":NaN}', 0, "JSON is malformed", ""),
        (b'{"id":3,"verb":"hold","why":"\xff"}', 3, "verb 'hold': not valid UTF-8", ""),
        (b'{"id":3,"verb":"hold","why":"\\ud800"}', 0, "", ""),
        (b'{"\xff":3}', 0, "not valid UTF-8", ""),
        (b'{"id":' + b"[" * 100_000, 0, "nested too deeply", ""),
        (b'{"id":3,"verb":"hold","why":' + b'{"a":' * 100_000, 0, "nested too deeply", ""),
        (b"[1]", 0, "expected 'object', got 'array'", ""),
        (b"hello", 0, "", ""),
        (b"GET / HTTP/1.1", 0, "", ""),
        (b'{"id":3,"verb":"ping"} {}', 0, "", ""),
        (b'{"id":3,"verb":"hello","protocol":"x"}', 3, "verb 'hello': 'protocol': expected 'int'", ""),
    ],
)
def test_invalid_request_is_refused_with_the_reason(line: bytes, number: int, what: str, hint: str) -> None:
    with pytest.raises(MalformedLine) as caught:
        codec.decode_request(line)

    assert caught.value.number == number
    assert what.lower() in caught.value.what.lower()
    assert caught.value.hint.startswith(hint)
    assert len(caught.value.what) < 200


@pytest.mark.parametrize("line", [b"GET / HTTP/1.1", b"\0\0"])
def test_malformed_json_has_its_own_refusal(line: bytes) -> None:
    with pytest.raises(MalformedLine, match=r"^JSON is malformed"):
        codec.decode_request(line)


def test_hello_of_another_protocol_may_have_other_fields() -> None:
    line = json.dumps({"id": 1, "verb": "hello", "protocol": PROTOCOL + 1, "colour": "red", "name": "x"}).encode()

    assert codec.decode_request(line) == (1, EngineHello(PROTOCOL + 1, "", "", 0, "x"))


def test_request_lines_with_and_without_fields_have_the_same_form() -> None:
    assert codec.encode_request(1, PingEngine()) == b'{"id":1,"verb":"ping"}\n'
    assert codec.encode_request(2, Cancel((5,))) == b'{"id":2,"verb":"cancel","job_ids":[5]}\n'
    assert codec.decode_request(codec.encode_request(3, ReprocessJobs(("a*",)))) == (3, ReprocessJobs(("a*",)))


@given(st.binary(max_size=300))
def test_any_bytes_are_decoded_or_raise_malformed_line(line: bytes) -> None:
    for decode in (codec.decode_request, codec.decode_message):
        with contextlib.suppress(MalformedLine):
            decode(line)


@settings(max_examples=200)
@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")), max_size=8), st.data())
def test_lines_are_assembled_from_pieces_of_any_size(lines: list[bytes], data: st.DataObject) -> None:
    rest = data.draw(st.binary(max_size=5).map(lambda line: line.replace(b"\n", b"")))
    stream = b"".join(line + b"\n" for line in lines) + rest
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    buffer = LineBuffer(20)

    received = [
        line for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True) for line in buffer.feed(stream[begin:end])
    ]

    assert received == [line for line in lines if line]
    assert buffer.begun_bytes == len(rest)


@settings(max_examples=200)
@given(st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), min_size=1, max_size=5), st.integers(1, 40))
def test_line_over_the_limit_is_not_stored(lines: list[bytes], step: int) -> None:
    stream = b"\n".join(lines)
    buffer = LineBuffer(10)
    received = []

    try:
        for begin in range(0, len(stream), step):
            received += buffer.feed(stream[begin : begin + step])
        is_refused = False
    except LineTooLong:
        is_refused = True

    assert is_refused == any(len(line) > 10 for line in lines)
    fitting = lines[: next((at for at, line in enumerate(lines) if len(line) > 10), len(lines) - 1)]
    assert received == [line for line in fitting if line]
