import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aptui.builders import json_builder
from aptui.builders.files.json_text import DEEPEST_NESTING, BrokenTextError, validate_json
from aptui.builders.json_builder import JSON_ASSET_TYPE, JsonBuilder
from aptui.sdk import Result

BUILDER = JsonBuilder

TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=30,
)
INDENTS = st.none() | st.integers(0, 4) | st.sampled_from(["\t", "\r\n"])


@given(tree=TREES, indent=INDENTS, is_ascii=st.booleans())
def test_minified_text_equals_the_compact_output_of_json_dumps(tree, indent, is_ascii):
    text = json.dumps(tree, indent=indent, ensure_ascii=is_ascii)

    minified = json_builder._minify(text)

    assert not validate_json(text)
    assert minified == json.dumps(tree, separators=(",", ":"), ensure_ascii=is_ascii)


@given(tree=TREES, indent=st.integers(0, 4))
def test_indented_text_has_the_layout_of_json_dumps(tree, indent):
    text = json.dumps(tree, ensure_ascii=False)

    assert json_builder._lay_out(text, " " * indent) == json.dumps(tree, indent=indent, ensure_ascii=False) + "\n"


@given(tree=TREES, indent=INDENTS)
def test_comment_removal_keeps_text_without_comments_unchanged(tree, indent):
    text = json.dumps(tree, indent=indent, ensure_ascii=False)

    assert json_builder._without_comments(text) == text


@given(text=st.text(alphabet='{}[]",:\\/*\n 1a\u2028'))
def test_text_is_accepted_if_and_only_if_the_standard_parser_accepts_it(text):
    try:
        json.loads(text)
    except json.JSONDecodeError:
        with pytest.raises(BrokenTextError):
            validate_json(text)
    else:
        validate_json(text)


def test_product_has_the_name_of_its_source_and_a_fixed_type_and_sub_id(bench):
    response = bench.process(bench.write("data/Level.json", "{}"))

    assert response.result is Result.SUCCESS
    (product,) = response.products
    assert (product.path, product.sub_id, product.asset_type) == ("Level.json", 0, JSON_ASSET_TYPE)


def test_minified_text_keeps_key_order_and_numbers_and_escapes(bench):
    digits = "9" * 6000
    source = bench.write("a.json", f'{{ "z": {digits},\r\n\t"a": [1.10, 1E400, -0.0, "\\u00e9 é \\" :, "] }}\n')

    assert bench.build(source)["a.json"].decode() == f'{{"z":{digits},"a":[1.10,1E400,-0.0,"\\u00e9 é \\" :, "]}}'


def test_indent_parameter_puts_each_value_on_its_own_line(bench):
    source = bench.write("a.json", '{"a":[1,{}],"b":[]}')

    assert bench.build(source, indent=2)["a.json"].decode() == '{\n  "a": [\n    1,\n    {}\n  ],\n  "b": []\n}\n'


def test_json_is_unchanged_if_neither_minify_nor_indent_is_set(bench):
    text = '{ "a" :1 }\n\n'

    assert bench.build(bench.write("a.json", text), minify=False)["a.json"].decode() == text


@pytest.mark.real
def test_equal_sources_give_equal_bytes_across_processes(bench, made_elsewhere, digests_of):
    source = bench.write("a.json", '{"b": {"x": 1, "y": [1, 2]}, "a": 2}')

    first = bench.build(source)

    assert bench.build(source) == first
    assert made_elsewhere(bench, source) == digests_of(first)


def test_builder_stores_digest_of_the_read_source_in_the_request(bench):
    import hashlib
    from uuid import UUID

    from aptui.sdk import JobLog, PlatformInfo, ProcessJobRequest

    bench.write("a.json", "[]")
    folder = str(bench.folder)
    log = JobLog(lambda *_: None)
    request = ProcessJobRequest(
        "m", f"{folder}/assets", "a.json", UUID(int=1), PlatformInfo("linux"), "m", {}, {}, "", folder, folder, log,
        params_schema=JsonBuilder.params_schema,
    )  # fmt: skip

    bench.builder.process_job(request)

    assert request.read_digest == hashlib.sha256(b"[]").hexdigest()


BROKEN = [
    ("empty", "", "a.json:1:1: the file is empty"),
    ("blank", " \n\n", "a.json:3:1: the file is empty"),
    ("comma", '{\n  "level": 3\n  "name": 4\n}', "a.json:3:3: Expecting ',' delimiter"),
    ("extra", "[1]\n[2]", "a.json:2:1: Extra data"),
    ("nan", '{"NaN": "NaN",\n "a": [NaN]}', "a.json:2:8: NaN is not JSON"),
    ("infinity", "[1, Infinity]", "a.json:1:5: Infinity is not JSON"),
    ("minus", "[-Infinity]", "a.json:1:2: -Infinity is not JSON"),
    ("comment", "[1] // one", "a.json:1:5: Extra data; set allow_comments: true to allow comments"),
    ("utf8", b'{"a":\n "\xc3\xa9\xff"}', "a.json:2:4: invalid UTF-8 at byte offset 10 (0xff)"),
    (
        "utf16",
        '{"a":1}'.encode("utf-16"),
        "a.json:1:1: invalid UTF-8 at byte offset 0: the file is UTF-16 or UTF-32; save it as UTF-8",
    ),
    (
        "deep",
        "[\n" * (DEEPEST_NESTING + 1) + "]" * (DEEPEST_NESTING + 1),
        "a.json:501:1: the data is nested deeper than 500 levels",
    ),
    ("abyss", '{"[":' * 100_000, "a.json:1:2501: the data is nested deeper than 500 levels"),
]


@pytest.mark.parametrize(("data", "error"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_broken_text_fails_with_line_and_column(bench, data, error):
    assert bench.fail(bench.write("a.json", data)) == error


def test_brackets_in_strings_are_not_counted_as_nesting(bench):
    assert bench.build(bench.write("a.json", json.dumps(["[{" * 5000, {' "[': " ["}])))


def test_nesting_of_the_documented_depth_is_accepted(bench):
    text = "[" * DEEPEST_NESTING + "]" * DEEPEST_NESTING

    assert bench.build(bench.write("a.json", text))["a.json"].decode() == text


def test_each_duplicate_key_warns_with_its_line(bench):
    source = bench.write("a.json", '{\n "a": {"x": 1},\n "b": [{"x": 1, "y": 0,\n "\\u0078": 2}],\n "a": 3,\n "a": 4\n}')

    product = bench.build(source)["a.json"]

    assert bench.warnings == [
        'a.json:4:2: duplicate key "x", first on line 3',
        'a.json:5:2: duplicate key "a", first on line 2',
        'a.json:6:2: duplicate key "a", first on line 2',
    ]
    assert json.loads(product) == {"a": 4, "b": [{"x": 2, "y": 0}]}


def test_duplicate_keys_above_the_limit_give_one_summary_warning(bench):
    bench.build(bench.write("a.json", "{" + ",".join(['"' + "k" * 100 + '":1'] * 300) + "}"))

    assert len(bench.warnings) == 201
    assert bench.warnings[-1] == "a.json: the file has 99 more duplicate keys"
    assert len(bench.warnings[0]) < 150


def test_a_byte_order_mark_is_removed_with_a_warning(bench):
    assert bench.build(bench.write("a.json", b"\xef\xbb\xbf[ 1 ]")) == {"a.json": b"[1]"}
    assert bench.warnings == ["a.json:1:1: the byte order mark was removed, because JSON does not allow it (RFC 8259, 8.1)"]


def test_json_comments_are_removed_if_a_parameter_allows_comments(bench):
    source = bench.write("a.json", '// head\n{"a": "// no /* comment", /* a\n * b **/ "b": 1} // end')

    assert bench.build(source, allow_comments=True) == {"a.json": b'{"a":"// no /* comment","b":1}'}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[1, /* two\n lines */ }", "a.json:1:3: JSON does not allow a comma before a closing bracket"),
        ("[1,\n /* end", "a.json:2:2: the comment that begins with /* has no end (*/)"),
        ("[1 /*/ ]", "a.json:1:4: the comment that begins with /* has no end (*/)"),
        ('["a // b\n]', "a.json:1:9: Invalid control character at"),
        ("// all", "a.json:1:7: the file is empty"),
    ],
)
def test_error_positions_are_right_in_a_file_with_comments(bench, text, error):
    assert bench.fail(bench.write("a.json", text), allow_comments=True) == error


def test_error_for_a_deleted_source_names_the_source(bench):
    response = bench.process("gone.json")

    assert response.result is Result.FAILED
    assert "gone.json" in response.error


def test_indent_is_refused_only_if_minify_is_set_explicitly(bench):
    assert bench.analyse("a.x", {"indent": 2}).result is Result.SUCCESS
    assert "'indent' contradicts 'minify: true'" in bench.analyse("a.x", {"indent": 2}, {"server": {"minify": True}}).error


def test_unknown_parameter_fails_the_job(bench):
    assert "unknown parameter 'x'" in bench.fail(bench.write("a.json", "[]"), x=1)
