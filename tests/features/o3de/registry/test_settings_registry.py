"""The registry: its files, their order, the command line, and the places of settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aptui.features.o3de.project_facts import BATCH_TAGS, TAGS
from aptui.features.o3de.registry.input_recorder import InputRecorder, probe_again
from aptui.features.o3de.registry.json_reader import read_json
from aptui.features.o3de.registry.settings_registry import (
    MAX_FILES,
    Registry,
    RegistryMessage,
    files_of,
    os_name,
    parse_typed,
    split_texts,
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


def test_assetprocessor_files_override_tools_files(tmp_path: Path) -> None:
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


def test_settings_file_without_an_object_is_refused(tmp_path: Path) -> None:
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
        RegistryMessage(f"{tmp_path}/a.setreg:2:13", "1"),
        RegistryMessage(f"{tmp_path}/b.setreg:1:13", "2"),
        RegistryMessage(f"{tmp_path}/c.setreg", None),
        RegistryMessage("--regset /A/x", "3"),
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


def test_pipe_in_place_of_a_settings_file_is_refused(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "a.setreg")

    with pytest.raises(UserError, match="not a regular file"):
        InputRecorder().read(str(tmp_path / "a.setreg"))


def test_path_that_cannot_exist_is_recorded_as_missing(tmp_path: Path) -> None:
    recorder = InputRecorder()

    for path in (f"{tmp_path}/a\0b", f"{tmp_path}/{'a' * 5_000}"):
        assert (recorder.read(path), recorder.is_folder(path), recorder.names(path)) == (None, False, [])
