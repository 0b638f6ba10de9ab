"""The JSON of settings files: extensions of JSON, places of values, and error messages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aptui.features.o3de.registry.json_reader import MAX_DEPTH, read_json
from aptui.shared.errors import UserError

WHOLE = st.integers(1 - 2**64, 2**64 - 1)  # integers outside this range are read as floats
SCALARS = st.none() | st.booleans() | WHOLE | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(max_size=8), below, max_size=4), max_leaves=20
)


def plain(text: str) -> Any:
    return read_json(text.encode(), "f").plain()


@given(VALUES, st.booleans())
def test_json_reader_returns_the_values_that_python_wrote_as_json(value: Any, is_ascii: bool) -> None:
    assert plain(json.dumps(value, ensure_ascii=is_ascii, indent=1)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('// first\n{"a": 1, /* in\nbetween */ "b": [1, 2,], }', {"a": 1, "b": [1, 2]}),
        ("\ufeff{} what stands behind the first value is not read", {}),
        ('{"a": "//no comment", "b": "/* nor this */"}', {"a": "//no comment", "b": "/* nor this */"}),
        (r'"\u00e4\n\/\ud83d\ude00"', "ä\n/😀"),
        ("-0.5e+2", -50.0),
        ("18446744073709550592", 2**64 - 1024),  # as a float, this number would be 2^64
        ("18446744073709551617", 2.0**64),
        ('{"a": {"x": 1, "y": 1}, "b": 2, "a": {"y": 2}}', {"a": {"x": 1, "y": 2}, "b": 2}),
    ],
)
def test_json_reader_accepts_comments_and_trailing_commas_and_duplicate_keys(text: str, value: Any) -> None:
    assert plain(text) == value


def test_json_reader_returns_the_place_of_each_key_and_value() -> None:
    root = read_json(b'{\n  "a": [\n    1,\n    "x"]\n}', "file")

    assert (root.where, root.value["a"].key_where, root.value["a"].where) == ("file:1:1", "file:2:3", "file:2:8")
    assert [item.where for item in root.value["a"].value] == ["file:3:5", "file:4:5"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f:1:1: not valid JSON: a value is missing"),
        ('{"a": 1\n "b": 2}', "f:2:2: not valid JSON: ',' or '}' is expected"),
        ('{"a" 1}', "f:1:6: not valid JSON: ':' is missing after 'a'"),
        ("{a: 1}", "f:1:2: not valid JSON: a key in double quotes is expected"),
        ('{"a": yes}', "f:1:7: not valid JSON: 'yes' is not a value; put strings in double quotes"),
        ('{"a": [1, 2', "f:1:7: not valid JSON: ']' is missing"),
        ('{"a": 1e999}', "f:1:7: not valid JSON: a number is out of range"),
        ('{"a": ' + "9" * 5_000 + "}", "f:1:7: not valid JSON: a number is out of range"),
        ('{"a": 1', "f:1:1: not valid JSON: '}' is missing"),
        ('"a\nb"', "f:1:1: not valid JSON: a string has no closing quote"),
        (r'"C:\dir"', "f:1:4: not valid JSON: '\\d' is not a valid escape sequence; write \\\\ for a backslash"),
        (r'"\ud800"', "f:1:2: not valid JSON: the escape sequence is only half of a character (half of a surrogate pair)"),
        ("{} /* ", None),
        ("/* {}", "f:1:1: not valid JSON: a comment has no end (*/)"),
        ("[,]", "f:1:2: not valid JSON: a value is expected"),
    ],
)
def test_json_error_names_the_line_and_column(text: str, message: str | None) -> None:
    if message is None:
        assert plain(text) == {}
        return
    with pytest.raises(UserError) as caught:
        plain(text)

    assert str(caught.value) == message


def test_invalid_utf8_is_replaced_with_a_warning() -> None:
    messages: list[str] = []

    assert read_json(b'{"a": 1,\n "name": "caf\xe9"}', "f", messages.append).plain() == {"a": 1, "name": "caf\ufffd"}
    assert messages == ["f:2:14: byte 0xe9 is not valid UTF-8, and is read as '\ufffd'; save the file as UTF-8"]


def test_file_in_another_encoding_is_refused() -> None:
    with pytest.raises(UserError, match="f:1:1: byte 0xff is not valid UTF-8; save the file as UTF-8"):
        read_json('{"a": 1}'.encode("utf-16"), "f", print)


def test_invalid_utf8_is_refused_if_no_warning_can_be_given() -> None:
    with pytest.raises(UserError, match="f:2:2: byte 0xff is not valid UTF-8"):
        read_json(b'{\n "\xff": 1}'.replace(b'"\xff', b"\xff"), "f")


def test_json_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(UserError, match=f"deeper than {MAX_DEPTH} levels"):
        plain("[" * 100_000)
