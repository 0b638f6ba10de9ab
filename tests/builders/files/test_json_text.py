import json

import pytest

from aptui.builders.files.json_text import TRAILING_COMMA, explain, place_in


@pytest.mark.parametrize("text", ['{"a": 1,}', '{"a": [1, 2 ,\n]}', "[1,]", '[1, {"a": 2,\t}]'])
@pytest.mark.parametrize("version", ["before 3.13", "since 3.13"])
def test_trailing_comma_in_json_has_the_same_message_in_every_python_version(text, version):
    comma = text.rindex(",")
    bracket = comma + 1 + len(text[comma + 1 :]) - len(text[comma + 1 :].lstrip())
    if version == "since 3.13":
        error = json.JSONDecodeError("Illegal trailing comma before end of array", text, comma)
    else:
        error = json.JSONDecodeError("Expecting value", text, bracket)

    assert explain(error, text) == (TRAILING_COMMA, comma)


@pytest.mark.parametrize("text", ['{"a": 1,}', "[1 , ]", '{"a": [1, 2 ,\n]}'])
def test_position_of_a_trailing_comma_in_json_is_found(text):
    with pytest.raises(json.JSONDecodeError) as raised:
        json.loads(text)

    assert explain(raised.value, text) == (TRAILING_COMMA, text.rindex(","))


@pytest.mark.parametrize("text", ["[1, 2", "[,]", "{,}", '{"a" 1}', "[1 2, ]", '["a,]'])
def test_json_error_without_a_trailing_comma_has_the_position_that_the_parser_reports(text):
    with pytest.raises(json.JSONDecodeError) as raised:
        json.loads(text)

    assert explain(raised.value, text)[1] == raised.value.pos


def test_lines_and_columns_of_json_errors_are_counted_from_one():
    assert [place_in(text) for text in ("", "ab", "a\n", "a\nbc")] == [(1, 1), (1, 3), (2, 1), (2, 3)]
