"""The registry: its files, their order, the command line, and the places of settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aptui.config.load import ConfigMessage
from aptui.config.yaml.nodes import Node
from aptui.features.o3de.project_facts import BATCH_TAGS, TAGS
from aptui.features.o3de.registry.input_recorder import InputRecorder, probe_again
from aptui.features.o3de.registry.json_reader import read_json
from aptui.features.o3de.registry.settings_registry import (
    MAX_FILES,
    Registry,
    files_of,
    json_patch,
    merge_patch,
    os_name,
    parse_typed,
    resolve_imports,
    split_texts,
    steps_of,
    truth,
)
from aptui.shared.errors import UserError

LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n"


def write(folder: Path, files: dict[str, Any]) -> Path:
    for name, data in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return folder


def order(folder: Path, *tags: str) -> list[str]:
    return [Path(file.path).relative_to(folder).as_posix() for file in files_of(str(folder), tags, InputRecorder())[0]]


def test_settings_files_are_ordered_by_name_then_tag_count_then_tags(tmp_path: Path) -> None:
    names = ["b.setreg", "a.tools.setreg", "a.profile.setreg", "a.setreg", "a.profile.tools.setreg", "Platform/{}/a.tools.setreg"]
    write(tmp_path, {name.format(os_name()): {} for name in names})

    assert order(tmp_path, "tools", "profile") == [
        "a.setreg",
        "a.tools.setreg",
        f"Platform/{os_name()}/a.tools.setreg",
        "a.profile.setreg",
        "a.profile.tools.setreg",
        "b.setreg",
    ]


def test_settings_file_names_are_compared_including_the_dot(tmp_path: Path) -> None:
    write(tmp_path, {name: {} for name in ["a.setreg", "a-b.setreg", "a_b.setreg", "Z.setreg"]})

    assert order(tmp_path) == ["Z.setreg", "a-b.setreg", "a.setreg", "a_b.setreg"]


def test_settings_files_are_ordered_by_name_without_regard_to_case(tmp_path: Path) -> None:
    write(tmp_path, {name: {} for name in ["a.setreg", "A.tools.setreg", "B.setreg"]})

    assert order(tmp_path, "tools") == ["a.setreg", "A.tools.setreg", "B.setreg"]


def test_settings_files_with_equally_many_tags_are_ordered_by_tag_hash(tmp_path: Path) -> None:
    names = ["profile.tools", "assetprocessor.profile", "assetprocessor.tools", "assetprocessorbatch.profile"]
    write(tmp_path, {f"a.{name}.setreg": {} for name in names})

    assert order(tmp_path, *BATCH_TAGS) == [
        "a.assetprocessorbatch.profile.setreg",
        "a.profile.tools.setreg",
        "a.assetprocessor.tools.setreg",
        "a.assetprocessor.profile.setreg",
    ]


def test_settings_for_the_asset_processor_override_settings_for_tools(tmp_path: Path) -> None:
    write(tmp_path, {f"a.{tag}.setreg": {"x": tag} for tag in BATCH_TAGS})

    for tags in (TAGS, BATCH_TAGS):
        registry = Registry(tags=tags)
        registry.merge_folder(str(tmp_path))
        assert registry.text("/x") == "assetprocessor"
    assert order(tmp_path, *BATCH_TAGS) == [f"a.{tag}.setreg" for tag in BATCH_TAGS]


def test_unused_settings_files_do_not_count_toward_the_limit(tmp_path: Path) -> None:
    write(tmp_path, {f"{number}.editor.setreg": {} for number in range(MAX_FILES + 1)} | {"a.setreg": {}})

    assert order(tmp_path, "tools") == ["a.setreg"]


def test_settings_file_is_used_only_if_all_its_tags_are_active(tmp_path: Path) -> None:
    write(tmp_path, {"a.tools.setreg": {}, "a.editor.tools.setreg": {}, "a.Tools.Debug.SETREG": {}, "notes.txt": "", "b.json": {}})

    assert order(tmp_path, "tools") == ["a.tools.setreg"]


def test_settings_files_of_other_platforms_are_not_used(tmp_path: Path) -> None:
    write(tmp_path, {"Platform/Amiga/a.setreg": {}, "Platform/a.setreg": {}})

    assert order(tmp_path) == []


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a.x.y.setreg", "a.y.x.setreg"], "has the same name and tags as 'a.x.y.setreg'"),
        (["a.setreg", "a.setregpatch"], "has the same name and tags as 'a.setreg'"),
        (["a.x.x.setreg"], "has tag 'x' twice"),
        ([f"{number}.setreg" for number in range(MAX_FILES + 1)], f"the folder has more than {MAX_FILES} settings files"),
    ],
)
def test_settings_files_are_refused_if_their_order_is_undefined(tmp_path: Path, names: list[str], message: str) -> None:
    write(tmp_path, {name: {} for name in names})

    with pytest.raises(UserError, match=message):
        order(tmp_path, "x", "y")


def test_settings_file_without_extension_is_reported_once(tmp_path: Path) -> None:
    write(tmp_path, {"README": "", "a.setreg": {}})

    registry = Registry()
    registry.merge_folder(str(tmp_path))
    registry.merge_folder(str(tmp_path))

    assert len(registry.warnings) == 1
    assert registry.warnings[0].startswith(f"{tmp_path}/README: the file is ignored, because settings files have the extension")


def test_settings_files_are_merged_in_order(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "a.setreg": {"A": {"x": 1, "y": [1]}},
            "b.setreg": {"A": {"x": None, "z": 2}},
            "c.setregpatch": [{"op": "add", "path": "/A/y/-", "value": 2}],
            "d.other.setreg": {"A": 0},
        },
    )
    registry = Registry(tags=("tools",))

    registry.merge_folder(str(tmp_path))

    assert registry.root.plain() == {"A": {"y": [1, 2], "z": 2}}


def test_settings_file_is_merged_below_the_given_key(tmp_path: Path) -> None:
    write(tmp_path, {"a.setreg": {"x": 1}, "b.json": [1], "c.setregpatch": [{"op": "add", "path": "/y", "value": 2}]})
    registry = Registry()

    registry.merge_option(f'"{tmp_path}/a.setreg::/deep/er"')
    registry.merge_option(f"{tmp_path}/b.json::/list")
    registry.merge_option(f"{tmp_path}/c.setregpatch::/deep")

    assert registry.root.plain() == {"deep": {"er": {"x": 1}, "y": 2}, "list": [1]}


def test_missing_regset_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        Registry().merge_option(f"{tmp_path}/none.setreg")


def test_settings_file_whose_content_is_not_an_object_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"a.setreg": [1]})

    with pytest.raises(UserError, match=r"a\.setreg:1:1: settings must be an object"):
        Registry().merge_file(f"{tmp_path}/a.setreg")


def test_imports_are_relative_to_the_importing_file(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "a.setreg": {"x": 0, "$import": "below/b.setreg", "z": 3},
            "below/b.setreg": {"$import": "c.setreg", "x": 1, "z": 1},
            "below/c.setreg": {"y": 2},
        },
    )
    registry = Registry()

    registry.merge_file(f"{tmp_path}/a.setreg")

    assert registry.root.plain() == {"x": 1, "y": 2, "z": 3}
    assert registry.root.value["y"].where == f"{tmp_path}/below/c.setreg:1:7"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.setreg": {"$import": "a.setreg"}}, r"a\.setreg:1:13: 'a\.setreg' imports itself"),
        ({"a.setreg": {"$import": "b.setreg"}, "b.setreg": {"$import": "a.setreg"}}, "imports itself"),
        ({"a.setreg": {"$import": "none.setreg"}}, "the imported file '.*none.setreg' does not exist"),
    ],
)
def test_error_about_a_broken_import_has_the_place_of_the_import(tmp_path: Path, files: dict[str, Any], message: str) -> None:
    write(tmp_path, files)

    with pytest.raises(UserError, match=message):
        Registry().merge_file(f"{tmp_path}/a.setreg")


def test_git_lfs_pointer_in_place_of_a_settings_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"a.setreg": LFS})

    with pytest.raises(UserError, match=r"a\.setreg: the file is only a Git LFS pointer; run 'git lfs pull'"):
        Registry().merge_folder(str(tmp_path))


def test_ini_sections_become_registry_objects(tmp_path: Path) -> None:
    write(tmp_path, {"a.ini": '; old\n[RC tga]\nglob = "*.tga"\nparams=copy\n[Platform pc]\ntags=tools,renderer\n'})
    registry = Registry()

    registry.merge_ini(f"{tmp_path}/a.ini", "/S")

    assert registry.root.plain() == {
        "S": {"RC tga": {"glob": "*.tga", "params": "copy"}, "Platform pc": {"tags": "tools,renderer"}}
    }
    assert registry.members("/S/RC tga")["params"].where == f"{tmp_path}/a.ini:4:1"


@pytest.mark.parametrize(("text", "message"), [("[a", "']' is missing"), ("[a]\nb", "is not 'key = value'"), ("a=1", "first")])
def test_error_about_an_invalid_ini_file_names_the_line(tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path, {"a.ini": text})

    with pytest.raises(UserError, match=message):
        Registry().merge_ini(f"{tmp_path}/a.ini", "")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("false", False),
        ("True", "True"),
        ("0x1F", 31),
        ("-3", -3),
        ("4294967296", 4294967296),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("1.2.3", "1.2.3"),
        ("", ""),
        ("pc,linux", "pc,linux"),
    ],
)
def test_values_of_command_line_options_get_a_type(text: str, value: object) -> None:
    assert parse_typed(text) == value
    assert type(parse_typed(text)) is type(value)


def test_registry_options_set_and_remove_keys() -> None:
    registry = Registry()

    for option in ('"/A/b=1"', ' " /A/c = x " ', "/A/d=", '/A/e="q"', "/A~1B/f=1"):
        registry.set(option)
    registry.remove("/A/d")
    registry.remove("/no/such")

    assert registry.root.plain() == {"A": {"b": 1, "c ": "x", "e": "q"}, "A/B": {"f": 1}}


def test_registry_option_without_a_key_is_ignored_with_a_warning() -> None:
    registry = Registry()

    registry.set("f/Amazon/AssetProcessor/Settings/Platforms/pc=enabled")
    registry.set("/no/value")
    registry.remove("nothing")

    assert registry.root.plain() == {}
    assert [warning.partition(" is ignored")[0] for warning in registry.warnings] == [
        "--regset f/Amazon/AssetProcessor/Settings/Platforms/pc=enabled",
        "--regset /no/value",
        "--regremove nothing",
    ]


def test_explanation_of_a_registry_key_lists_all_places_that_set_the_key(tmp_path: Path) -> None:
    write(tmp_path, {"a.setreg": '{\n "A": {"x": 1}\n}', "b.setreg": {"A": {"x": 2, "y": 1}}, "c.setreg": {"A": {"x": None}}})
    registry = Registry()

    for name in ("a", "b", "c", "c"):
        registry.merge_file(f"{tmp_path}/{name}.setreg")
    registry.set("/A/x=3")

    assert registry.explain("/A/x") == [
        ConfigMessage(f"{tmp_path}/a.setreg:2:13", "1"),
        ConfigMessage(f"{tmp_path}/b.setreg:1:13", "2"),
        ConfigMessage(f"{tmp_path}/c.setreg", None),
        ConfigMessage("--regset /A/x", "3"),
    ]
    assert [each.text for each in registry.explain("/A")] == ['{"x": 1}', '{"x": 2, "y": 1}', '{"y": 1}', '{"y": 1, "x": 3}']
    assert registry.explain("/A")[0].where == f"{tmp_path}/a.setreg:2:2"
    assert registry.explain("/B") == []


def test_registry_dump_is_valid_json() -> None:
    registry = Registry()
    registry.set("/A/b=x")

    assert json.loads(registry.dump()) == {"A": {"b": "x"}}
    assert registry.dump("/A/b") == '"x"'
    assert registry.dump("/B") == ""


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", True), ('"1"', True), ("true", True), ('"True"', True), ('"enabled"', True), ("0", False), ('"disabled"', False)],
)
def test_boolean_settings_accept_several_spellings(text: str, value: bool) -> None:
    assert truth(read_json(text.encode(), "f")) is value


def test_text_lists_may_be_a_string_or_an_array() -> None:
    assert [node.value for node in split_texts(read_json(b'"a, b,,c "', "f"))] == ["a", "b", "c"]
    assert [node.value for node in split_texts(read_json(b'["a", "", 1]', "f"))] == ["a", "1"]
    assert split_texts(None) == []


def test_recorded_inputs_detect_every_change_of_a_file_or_folder(tmp_path: Path) -> None:
    write(tmp_path, {"a.setreg": {}, "sub/b": ""})
    recorder = InputRecorder()
    recorder.read(str(tmp_path / "a.setreg"))
    recorder.read(str(tmp_path / "none"))
    recorder.names(str(tmp_path / "sub"))
    recorder.is_folder(str(tmp_path / "later"))

    assert probe_again(recorder.seen) == recorder.seen

    for change in ("a.setreg", "none", "sub/c", "later/x"):
        before = probe_again(recorder.seen)
        write(tmp_path, {change: '{"x": 1}'})
        assert probe_again(recorder.seen) != before


def test_empty_folder_is_watched_for_new_settings_files(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    recorder = InputRecorder()

    assert [recorder.names(str(tmp_path / name)) for name in ("empty", "missing")] == [[], []]
    assert recorder.folders() == (str(tmp_path / "empty"),)


def test_pipe_in_place_of_a_settings_file_is_refused(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "a.setreg")

    with pytest.raises(UserError, match="not a regular file"):
        InputRecorder().read(str(tmp_path / "a.setreg"))


def test_path_that_cannot_exist_is_recorded_as_missing(tmp_path: Path) -> None:
    recorder = InputRecorder()

    for path in (f"{tmp_path}/a\0b", f"{tmp_path}/{'a' * 5_000}"):
        assert (recorder.read(path), recorder.is_folder(path), recorder.names(path)) == (None, False, [])


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


def test_replaced_value_keeps_its_place_among_the_keys() -> None:
    """The order of rules is the order of their keys."""
    patched = json_patch(node({"RC a": 1, "RC b": 2}), node([{"op": "replace", "path": "/RC a", "value": 3}]))

    assert list(patched.plain().items()) == [("RC a", 3), ("RC b", 2)]


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


def test_patch_in_an_import_of_a_json_file_changes_the_imported_value() -> None:
    assert imported({"$import": {"filename": "other", "patch": {"a": None}}}) == {"b": {"c": 1, "d": None}}
    assert imported({"$import": {"filename": "other", "patch": [{"op": "remove", "path": "/b"}]}}) == {"a": 1}


def test_imported_list_replaces_the_object_that_imports_it() -> None:
    assert imported({"x": {"$import": "list"}, "y": [{"$import": "list"}]}) == {"x": [1, 2], "y": [[1, 2]]}


def test_import_must_name_a_file() -> None:
    with pytest.raises(UserError, match="must be the name of a file"):
        imported({"$import": 7})
