import json
from importlib import import_module

import pytest

from aptui.builders.yaml_builder import JSON_ASSET_TYPE, YAML_ASSET_TYPE, YamlBuilder
from aptui.sdk import Result

BUILDER = YamlBuilder

SCHEMA = {"type": "object", "required": ["name"], "properties": {"size": {"items": {"type": "integer"}}}}


def as_json(bench, text):
    return json.loads(bench.build(bench.write("a.yaml", text), output="min")["a.json"])


def test_yaml_is_copied_byte_for_byte_if_the_output_parameter_is_copy(bench):
    text = "# head\na:   1\r\nb: 'x'\n---\n- 2\n"

    response = bench.process(bench.write("data/Level.yml", text))

    (product,) = response.products
    assert (product.path, product.sub_id, product.asset_type) == ("Level.yml", 0, YAML_ASSET_TYPE)
    assert (bench.products_dir / "Level.yml").read_bytes() == text.encode()


def test_json_output_is_indented_and_min_output_has_no_blanks(bench):
    source = bench.write("a.yaml", "b: [1, é]\na: {}\n")

    assert bench.build(source, output="json") == {"a.json": '{\n  "b": [\n    1,\n    "é"\n  ],\n  "a": {}\n}\n'.encode()}
    assert bench.build(source, output="min") == {"a.json": '{"b":[1,"é"],"a":{}}\n'.encode()}
    assert bench.process(source, output="min").products[0].asset_type == JSON_ASSET_TYPE


def test_values_are_converted_by_the_rules_of_yaml_version_1_2(bench):
    text = "yes: yes\nhex: 0x10\noctal: 0o17\nnone: ~\nfloat: 1e3\nday: 2020-02-30\ntext: '12'\n1: one\nlong: >-\n  a\n  b\n"

    assert as_json(bench, text) == {
        "yes": "yes",
        "hex": 16,
        "octal": 15,
        "none": None,
        "float": 1000.0,
        "day": "2020-02-30",
        "text": "12",
        "1": "one",
        "long": "a b",
    }


def test_map_keys_override_merged_keys_and_earlier_merges_win(bench):
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], x: 3}\n"

    assert as_json(bench, text)["c"] == {"x": 3, "y": 1, "z": 2}


LAUGHS = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcde", "bcdef", strict=True)
)
BROKEN = [
    ("colon", "a: 1\nb: c: d\n", "a.yaml:2:5: mapping values are not allowed here"),
    ("bracket", "a: [1,\n}", "a.yaml:2:1: while parsing a flow node, expected the node content, but found '}'"),
    ("duplicate", "a: 1\nb: 2\na: 3\n", "a.yaml:3:1: duplicate key 'a', first on line 1"),
    ("deep duplicate", "x:\n - {1: a, 0x1: b}\n", "a.yaml:2:11: duplicate key '0x1', first on line 2"),
    ("tag", "a: !!python/name:os.system\n", "a.yaml:1:4: the tag !!python/name:os.system is not supported"),
    ("own tag", "a:\n  !Colour red\n", "a.yaml:2:3: the tag !Colour is not supported"),
    ("alias", "a: *b\n", "a.yaml:1:4: found undefined alias 'b'"),
    ("ring", "a: &a\n  b: *a\n", "a.yaml:1:4: an alias refers to itself"),
    ("laughs", LAUGHS, "a.yaml:5:4: the file has more than 100,000 values when all aliases are expanded"),
    ("deep", "a:\n  " + "[" * 60 + "]" * 60, "a.yaml:2:52: the data is nested deeper than 50 levels"),
    ("abyss", "[" * 1000, "a.yaml:1:51: the data is nested deeper than 50 levels"),
    ("control", "a: 1\nb: \x01\n", "a.yaml:2:4: the file contains a control character that YAML does not allow"),
    ("utf8", b"a: 1\nb: \xe9\n", "a.yaml:2:4: invalid UTF-8 at byte offset 8"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("data", "error"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_broken_text_fails_with_line_and_column(bench, data, error):
    assert bench.fail(bench.write("a.yaml", data)) == error


@pytest.mark.parametrize("text", ["[" * 100_000, "{" * 100_000, "a:\n - " + "[{" * 50_000, "- [a, " + "[b, " * 50_000])
def test_deeply_nested_lists_are_refused_before_they_are_parsed(bench, text, monkeypatch):
    parsed = []
    scanner = import_module("ruamel.yaml.scanner").RoundTripScanner
    base = import_module("ruamel.yaml.scanner").Scanner
    for kind in {scanner, base}:
        fetch = kind.fetch_more_tokens
        monkeypatch.setattr(kind, "fetch_more_tokens", lambda self, fetch=fetch: (parsed.append(1), fetch(self))[1])

    assert "nested deeper than 50 levels" in bench.fail(bench.write("a.yaml", text))
    assert 50 < len(parsed) < 2000


def test_brackets_in_strings_are_not_counted_as_nesting(bench):
    art = "a: |\n" + ("  " + "[" * 60 + "\n") * 3 + "b: '" + "{" * 300 + "'\n# " + "[" * 2000 + "\nc: 1\n"

    assert bench.build(bench.write("a.yaml", art))


def test_error_shortens_a_long_text_of_the_source(bench):
    assert len(bench.fail(bench.write("a.yaml", "a: *" + "x" * 5000))) < 300
    assert len(bench.fail(bench.write("a.yaml", "a: " + "9" * 5000), output="json")) < 300


NO_JSON = [
    ("a: .nan", "a.yaml:1:4: .nan cannot be written as a number in JSON"),
    ("? [1]\n: 2", "a.yaml:1:3: a key must be text or an integer"),
    ("true: 2", "a.yaml:1:1: a key must be text or an integer, not 'true'"),
    ('1: a\n"1": b', "a.yaml:2:1: two keys become the text '1' in JSON"),
    ("a: !!int x", "a.yaml:1:4: 'x' is not of type int"),
    ("a: {<<: 1}", "a.yaml:1:9: '<<' can merge only mappings"),
    ("a: 0x" + "f" * 4000, "a.yaml: a number is too large to be written as JSON"),
    (r'a: "\ud800"', r"a.yaml: a string contains half of a surrogate pair (\ud800 to \udfff)"),
    ("a: 1\n---\nb: 1", "a.yaml: the file has 2 YAML documents, but JSON can have only one; set output: copy"),
    ("", "a.yaml: the file has 0 YAML documents, but JSON can have only one; set output: copy"),
]


@pytest.mark.parametrize(("text", "error"), NO_JSON)
def test_value_without_a_json_equivalent_fails_with_its_position(bench, text, error):
    assert bench.fail(bench.write("a.yaml", text), output="json") == error


def test_yaml_above_the_size_limit_is_refused_unless_a_parameter_allows_it(bench):
    source = bench.write("a.yaml", "# " + "x" * (1 << 20) + "\na: 1\n")

    assert "the file is larger than 1 MiB, which is the limit; raise max_mib" in bench.fail(source)
    assert bench.build(source, max_mib=2)


def test_private_tags_are_copied_if_allowed(bench):
    source = bench.write("a.yaml", "a: !Colour red\nb: !Vector [1, 2]\nc: !Map {x: 1}\n!Key d: 1\n")

    assert bench.build(source, tags="allow")
    assert "'tags: allow' needs 'output: copy'" in bench.analyse("a.x", {"tags": "allow", "output": "json"}).error


def test_schema_is_a_dependency_and_its_violations_have_positions(bench):
    bench.write("schemas/level.json", json.dumps(SCHEMA))
    source = bench.write("levels/a.yaml", "size: [1, b]\n---\nname: x\nsize:\n  - 1\n  - c\n")

    error = bench.fail(source, schema="schemas/level.json")

    assert bench.dependencies(source, schema="schemas/level.json") == ["schemas/level.json"]
    assert error == "levels/a.yaml:1:1: 'name' is a required property (and 2 more)"
    assert bench.errors == ["levels/a.yaml:1:11: 'b' is not of type 'integer'", "levels/a.yaml:6:5: 'c' is not of type 'integer'"]
    assert bench.build(bench.write("levels/b.yaml", "name: x\n"), schema="schemas/level.json")


def test_each_platform_may_have_its_own_schema(bench):
    response = bench.analyse("a.x", {"schema": "a.json"}, {"server": {"schema": "b.json"}})

    assert [each.path for each in response.source_dependencies] == ["a.json", "b.json"]


@pytest.mark.parametrize(
    ("schema", "error"),
    [
        (None, "a.yaml: the file 's.json' is missing"),
        ("{", "a.yaml: the schema s.json:1:2: Expecting property name enclosed in double quotes"),
        ("[", "a.yaml: the schema s.json:1:2: Expecting value"),
        ("5", "a.yaml: the schema s.json: a schema must be an object, true or false"),
        ('{"$schema": []}', "a.yaml: the schema s.json: $['$schema']: [] is not of type 'string'"),
        (b'"\xe9"', "a.yaml: the schema s.json:1:2: invalid UTF-8 at byte offset 1"),
        (
            '{"$ref": "#"}',
            "a.yaml: the schema s.json: its $ref never end, or the data is nested too deeply for them",
        ),
        ('{"type": 1}', "a.yaml: the schema s.json: $.type: 1 is not valid under any of the given schemas"),
        (
            '{"$ref": "http://example.org/x"}',
            "a.yaml: the schema s.json: a $ref names 'http://example.org/x', which is not in this file",
        ),
    ],
)
def test_error_for_an_unusable_schema_names_the_schema(bench, schema, error):
    if schema is not None:
        bench.write("s.json", schema)

    assert bench.fail(bench.write("a.yaml", "a: 1"), schema="s.json") == error


def test_schema_may_contain_a_number_with_thousands_of_digits(bench):
    bench.write("s.json", '{"maximum": ' + "9" * 5000 + "}")

    assert bench.build(bench.write("a.yaml", "1"), schema="s.json")


def test_yaml_in_utf_16_is_read(bench):
    assert bench.build(bench.write("a.yaml", "a: é".encode("utf-16")), output="min") == {"a.json": '{"a":"é"}\n'.encode()}


@pytest.mark.real
def test_equal_sources_give_equal_bytes_in_another_process(bench, made_elsewhere, digests_of):
    source = bench.write("a.yaml", "b: {y: 1, x: 2}\na: [1]\n")

    assert bench.analyse("a.x").result is Result.SUCCESS
    assert made_elsewhere(bench, source, output="json") == digests_of(bench.build(source, output="json"))
