"""The `table` builder: every format gives the same values, and most errors name the line of the mistake."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aptui.builders.files import json_schema, json_text
from aptui.builders.files.data_text import read_data
from aptui.builders.files.json_text import BrokenTextError, find_places
from aptui.builders.table_builder import MSGPACK_ASSET_TYPE, TableBuilder

BUILDER = TableBuilder

SCHEMA = {
    "type": "array",
    "items": {"required": ["id"], "properties": {"health": {"type": "integer", "minimum": 1}, "name": {"type": "string"}}},
}


def build_value(bench, name, text, **params):
    (product,) = bench.build(bench.write(name, text), **params).values()
    return json.loads(product)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "id,health,boss\nmoth,2,false\nbeetle,5,TRUE\n"),
        ("a.csv", "\ufeffid;health;boss\r\nmoth;2;false\r\n\r\nbeetle;5;true\r\n;;\r\n"),
        ("a.csv", "\r\n\nid;health;boss\nmoth;2;false\nbeetle;5;true\n"),
        ("a.tsv", "id\thealth\tboss\t\nmoth\t2\tfalse\t\nbeetle\t5\ttrue\t\n"),
        ("a.json", '[{"id": "moth", "health": 2, "boss": false}, {"id": "beetle", "health": 5, "boss": true}]'),
        ("a.yaml", "- {id: moth, health: 2, boss: false}\n- id: beetle\n  health: 5\n  boss: true\n"),
    ],
)
def test_every_table_format_gives_equal_rows(bench, name, text):
    assert build_value(bench, name, text) == [
        {"id": "moth", "health": 2, "boss": False},
        {"id": "beetle", "health": 5, "boss": True},
    ]


def test_toml_becomes_json_with_dates_as_text(bench):
    text = 'title = "x"\nmade = 2020-02-29\n[[enemy]]\nid = "moth"\nsize = [1, 2.5]\n'

    assert build_value(bench, "a.toml", text) == {"title": "x", "made": "2020-02-29", "enemy": [{"id": "moth", "size": [1, 2.5]}]}


def test_column_is_numeric_only_if_all_its_cells_are_numbers(bench):
    text = "zip,count,share,note\n00501,1,0.5,\n90210,,1,7\n"

    assert build_value(bench, "a.csv", text) == [
        {"zip": "00501", "count": 1, "share": 0.5, "note": None},
        {"zip": "90210", "count": None, "share": 1.0, "note": 7},
    ]
    assert build_value(bench, "b.csv", text, types="text")[0] == {"zip": "00501", "count": "1", "share": "0.5", "note": ""}


def test_key_parameter_turns_the_rows_into_an_object(bench):
    assert build_value(bench, "a.csv", "id,n\na,1\nb,2\n", key="id") == {"a": {"n": 1}, "b": {"n": 2}}


def test_table_is_written_as_indented_json_or_as_messagepack(bench):
    source = bench.write("a.csv", "id,n\né,1\n")

    assert bench.build(source, output="json") == {"a.json": '[\n  {\n    "id": "é",\n    "n": 1\n  }\n]\n'.encode()}
    assert msgspec.msgpack.decode(bench.build(source, output="msgpack")["a.msgpack"]) == [{"id": "é", "n": 1}]
    assert bench.products[0].asset_type == MSGPACK_ASSET_TYPE


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("a.csv", "", "a.csv: the file is empty"),
        (
            "a.csv",
            "a,b\n1,2\n1,2,3\n",
            "a.csv:3: the row has 3 cells, but the table has 2 columns; put quotes around a cell that contains the delimiter",
        ),
        ("a.csv", "a,,b\n", "a.csv:1: column 2 has no name"),
        ("a.csv", "a,b,a\n", "a.csv:1: two columns are named 'a'"),
        ("a.csv", 'a,b\n1,"2\n3\n', 'a.csv:2: a quotation mark (") is not closed'),
        ("a.csv", b"a,b\n1,\xe9\n", "a.csv:2:3: invalid UTF-8 at byte offset 6"),
        ("a.json", "[1,\n{]", "a.json:2:2: Expecting property name enclosed in double quotes"),
        ("a.json", "[NaN]", "a.json:1:2: NaN is not JSON"),
        ("a.json", "[" * 2000, "a.json:1:501: the data is nested deeper than 500 levels"),
        ("a.json", '["\\ud800"]', "a.json: a string contains half of a surrogate pair (\\ud800 to \\udfff)"),
        ("a.toml", "a = 1\nb = = 2\n", "a.toml:2:5: Invalid value"),
        ("a.toml", "a = 1\n[b]\nc = nan\n", "a.toml:3: nan cannot be written as a number in JSON"),
        ("a.toml", "a = " + "[" * 100_000, "a.toml: the data is nested too deeply"),
        ("a.toml", "a = 1\n" + "b . '.'." * 4_000 + "c = 1", "a.toml:2: a key has more than 32 parts"),
        ("a.toml", f"[a{'.a' * 32}]\nb = 1", "a.toml:1: a key has more than 32 parts"),
        ("a.yaml", "a: 1\n---\nb: 1\n", "a.yaml: the file has 2 YAML documents, but a table must be a single document"),
        ("a.ini", "[a]", "a.ini: '.ini' is not a supported format of tables; use csv, tsv, json, yaml or toml"),
    ],
)
def test_broken_table_fails_with_line_and_column(bench, name, text, error):
    assert bench.fail(bench.write(name, text)) == error


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("a.csv", 'id,health,name\na,1,"x\ny"\n,0,z\n', "a.csv:4: column 'health': 0 is less than the minimum of 1"),
        ("a.csv", "id,health\na,1\nb,x\n", "a.csv:3: column 'health': 'x' is not of type 'integer' (and 1 more)"),
        ("a.json", '[{"id": 1},\n {"id": 2,\n  "health": 0}]', "a.json:3:13: 0 is less than the minimum of 1"),
        ("a.yaml", "- id: 1\n- id: 2\n  health: 0\n", "a.yaml:3:11: 0 is less than the minimum of 1"),
        ("a.json", '[{"id": 1}, {"health": 1}]', "a.json:1:13: 'id' is a required property"),
    ],
)
def test_violation_of_the_schema_is_reported_with_its_line(bench, name, text, error):
    bench.write("s.json", json.dumps(SCHEMA))

    assert bench.fail(bench.write(name, text), schema="s.json") == error
    assert bench.dependencies(name, schema="s.json") == ["s.json"]


def test_places_of_violations_are_searched_only_if_they_are_shown(bench, monkeypatch):
    searched = []
    monkeypatch.setattr(json_text, "write_place", lambda _text, position: searched.append(position) or "1:1")
    bench.write("s.json", json.dumps(SCHEMA))

    assert "(and 199 more)" in bench.fail(bench.write("a.json", json.dumps([{}] * 200)), schema="s.json")
    assert len(searched) == json_schema.MOST_VIOLATIONS_SHOWN


def test_toml_with_many_dots_in_one_line_is_read(bench):
    key, numbers = ".".join("a" * 32), [0.5] * 100
    value = build_value(bench, "a.toml", f"{key} = 1\nnumbers = {numbers}\ntext = '{'.' * 100}'\n")
    assert (value["numbers"], value["text"]) == (numbers, "." * 100)


def test_schema_violation_in_toml_has_the_line_of_its_key(bench):
    properties = {"enemy": {"items": {"properties": {"stats": {"properties": {"health": {"minimum": 1}}}}}}}
    bench.write("s.json", json.dumps({"properties": properties}))
    text = "[[enemy]]\nstats.health = 1\n[[enemy]]\n[enemy.stats] # of the second\nname = 'x'\nhealth = 0\n"

    assert bench.fail(bench.write("a.toml", text), schema="s.json") == "a.toml:6: 0 is less than the minimum of 1"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("id,n\na,1\nb,2\na,3\n", "a.csv:4: 'id' has the value 'a' in two rows; the first is on line 2"),
        ("id,n\n,1\n", "a.csv:2: a row has no value for 'id', which the parameter 'key' names"),
        ("name,n\na,1\n", "a.csv:2: a row has no value for 'id', which the parameter 'key' names"),
    ],
)
def test_row_with_a_missing_or_duplicate_key_fails(bench, text, error):
    assert bench.fail(bench.write("a.csv", text), key="id") == error


def test_integer_beyond_the_messagepack_range_fails_and_names_the_remedy(bench):
    source = bench.write("a.json", f"[{'9' * 30}]")

    assert bench.fail(source, output="msgpack").endswith("set output: json")
    assert bench.build(source)["a.json"] == f"[{'9' * 30}]\n".encode()


def test_table_above_the_size_limit_is_refused(bench):
    assert (
        bench.fail(bench.write("a.csv", "a\n" + "x" * (1 << 20)), max_mib=1)
        == "a.csv: the file is larger than 1 MiB, which is the limit; raise max_mib"
    )


@given(data=st.binary(max_size=200), name=st.sampled_from(["a.csv", "a.tsv", "a.toml", "a.json"]))
def test_random_bytes_give_a_table_or_an_error_of_one_line(data, name):
    wrong = ""
    try:
        read_data(name, data)
    except BrokenTextError as error:
        wrong = str(error)

    assert "\n" not in wrong


@given(
    tree=st.recursive(
        st.integers() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=12,
    ),
    indent=st.none() | st.integers(0, 2),
)
def test_reported_position_of_a_json_value_is_where_the_value_begins(tree, indent):
    text = json.dumps(tree, indent=indent)

    def walk(value, path):
        yield path, value
        for step, each in value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ()):
            yield from walk(each, (*path, step))

    expected = dict(walk(tree, ()))
    lines = text.split("\n")
    for path, place in zip(expected, find_places(text, list(expected)), strict=True):
        line, column = map(int, place.split(":"))
        rest = "\n".join([lines[line - 1][column - 1 :], *lines[line:]])
        assert json.JSONDecoder().raw_decode(rest)[0] == expected[path]


@pytest.mark.real
def test_equal_tables_give_equal_bytes_in_another_process(bench, made_elsewhere, digests_of):
    source = bench.write("a.json", '{"b": {"x": 1, "y": 2}, "a": [1.5]}')

    assert made_elsewhere(bench, source, output="msgpack") == digests_of(bench.build(source, output="msgpack"))
