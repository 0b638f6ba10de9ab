"""Merge patch and JSON patch against their RFCs, and imports."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aptui.config.yaml.nodes import Node
from aptui.features.o3de.registry.json_reader import read_json
from aptui.features.o3de.registry.registry_merge import json_patch, merge_patch, resolve_imports, steps_of
from aptui.shared.errors import UserError

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from("abcd"), below, max_size=4),
    max_leaves=12,
)


def node(value: Any, name: str = "f") -> Node:
    return read_json(json.dumps(value).encode(), name)


def reference(target: Any, patch: Any) -> Any:
    """RFC 7396 §2, word for word."""
    if not isinstance(patch, dict):
        return patch
    if not isinstance(target, dict):
        target = {}
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        else:
            target[name] = reference(target.get(name), value)
    return target


@given(VALUES, VALUES)
def test_merge_patch_gives_the_result_of_the_algorithm_in_rfc_7396(target: Any, patch: Any) -> None:
    base = node(target)

    merged = merge_patch(base, node(patch)).plain()

    assert base.plain() == target
    assert merged == reference(target, patch)


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [  # RFC 7396, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_gives_the_results_in_the_examples_of_rfc_7396(target: Any, patch: Any, result: Any) -> None:
    assert merge_patch(node(target), node(patch)).plain() == result


def test_merge_keeps_the_file_and_line_of_each_value() -> None:
    merged = merge_patch(node({"a": 1, "b": {"c": 1}}, "low"), node({"b": {"d": 2}}, "high"))

    assert [merged.value["a"].where, merged.value["b"].value["c"].where, merged.value["b"].value["d"].where] == [
        "low:1:7",
        "low:1:21",
        "high:1:13",
    ]


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [  # RFC 6902, appendix A
        ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
        ({"foo": ["bar", "baz"]}, [{"op": "add", "path": "/foo/1", "value": "qux"}], {"foo": ["bar", "qux", "baz"]}),
        ({"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
        ({"foo": ["bar", "qux", "baz"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["bar", "baz"]}),
        ({"baz": "qux", "foo": "bar"}, [{"op": "replace", "path": "/baz", "value": "boo"}], {"baz": "boo", "foo": "bar"}),
        (
            {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
            [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
            {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
        ),
        (
            {"foo": ["all", "grass", "cows", "eat"]},
            [{"op": "move", "from": "/foo/1", "path": "/foo/3"}],
            {"foo": ["all", "cows", "eat", "grass"]},
        ),
        (
            {"baz": "qux", "foo": ["a", 2, "c"]},
            [{"op": "test", "path": "/baz", "value": "qux"}, {"op": "test", "path": "/foo/1", "value": 2}],
            {"baz": "qux", "foo": ["a", 2, "c"]},
        ),
        (
            {"foo": "bar"},
            [{"op": "add", "path": "/child", "value": {"grandchild": {}}}],
            {"foo": "bar", "child": {"grandchild": {}}},
        ),
        ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux", "xyz": 123}], {"foo": "bar", "baz": "qux"}),
        ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
        ({"foo": ["bar"]}, [{"op": "add", "path": "/foo/-", "value": ["abc", "def"]}], {"foo": ["bar", ["abc", "def"]]}),
        ({"a": 1}, [{"op": "replace", "path": "", "value": [1]}, {"op": "copy", "from": "/0", "path": "/-"}], [1, 1]),
        ([{"a": [1]}], [{"op": "add", "path": "/0/a/0", "value": 0}, {"op": "remove", "path": "/0/a/1"}], [{"a": [0]}]),
    ],
)
def test_json_patch_gives_the_results_in_the_examples_of_rfc_6902(target: Any, patch: Any, result: Any) -> None:
    assert json_patch(node(target), node(patch)).plain() == result


@pytest.mark.parametrize(
    ("target", "operation", "message"),
    [
        (
            {"baz": "qux"},
            {"op": "test", "path": "/baz", "value": "bar"},
            "the value of '/baz' differs from the value that the patch tests",
        ),
        ({"a": 1}, {"op": "test", "path": "/a", "value": True}, "the value of '/a' differs from the value that the patch tests"),
        ({"foo": "bar"}, {"op": "add", "path": "/baz/bat", "value": "qux"}, "there is no value at '/baz'"),
        ({"foo": [1]}, {"op": "add", "path": "/foo/2", "value": 0}, "'/foo/2' is not a position in the list"),
        ({"foo": [1]}, {"op": "remove", "path": "/foo/x"}, "there is no value at '/foo/x'"),
        ({"foo": "bar"}, {"op": "add", "path": "/foo/a", "value": 0}, "'/foo' is not an object or a list"),
        ({"a": {"b": 1}}, {"op": "move", "from": "/a", "path": "/a/b/c"}, "a value cannot be moved into itself"),
        ({}, {"op": "replace", "path": "/a", "value": 1}, "there is no value at '/a'"),
        ({}, {"op": "add", "path": "/a"}, "'value' is missing in an operation of a JSON patch"),
        ({}, {"op": "ad", "path": "/a"}, "'ad' is not an operation"),
        ({}, {"op": "remove"}, "an operation of a JSON patch needs the text 'path'"),
        ({}, {"op": "remove", "path": "a"}, "'a' is not a JSON pointer"),
    ],
)
def test_error_about_a_patch_operation_has_the_place_of_the_operation(target: Any, operation: Any, message: str) -> None:
    with pytest.raises(UserError) as caught:
        json_patch(node(target), node([operation], "patch"))

    assert (caught.value.what, caught.value.where) == (message, "patch:1:2")


def test_json_patch_must_be_a_list() -> None:
    with pytest.raises(UserError, match="a JSON patch must be a list"):
        json_patch(node({}), node({}))


def test_pointer_escapes_slash_and_tilde() -> None:
    assert steps_of("/a~1b/~01//c") == ["a/b", "~1", "", "c"]
    assert steps_of("") == []


FILES: dict[str, Any] = {"other": {"a": 1, "b": {"c": 1, "d": None}}, "list": [1, 2]}


def imported(value: Any) -> Any:
    return resolve_imports(node(value), lambda name, _asked: node(FILES[name], name)).plain()


def test_key_after_an_import_overrides_the_imported_key() -> None:
    assert imported({"a": 0, "$import": "other", "b": {"c": 2}}) == {"a": 1, "b": {"c": 2, "d": None}}


def test_patch_of_an_import_changes_the_imported_value() -> None:
    assert imported({"$import": {"filename": "other", "patch": {"a": None}}}) == {"b": {"c": 1, "d": None}}
    assert imported({"$import": {"filename": "other", "patch": [{"op": "remove", "path": "/b"}]}}) == {"a": 1}


def test_imported_list_replaces_the_object_with_the_import_key() -> None:
    assert imported({"x": {"$import": "list"}, "y": [{"$import": "list"}]}) == {"x": [1, 2], "y": [[1, 2]]}


def test_import_must_name_a_file() -> None:
    with pytest.raises(UserError, match="must be the name of a file"):
        imported({"$import": 7})
