"""How settings files of nested folders combine."""

from __future__ import annotations

import json

import pytest
from fakes import Setup, copier, glob, scripter
from msgspec.structs import replace

from aptui.core.fingerprint import Manifest
from aptui.core.model import DUPLICATE_MARK, PathKey
from aptui.core.project import BuilderKind, FileRule
from aptui.core.settings import NOTHING, FolderAdjustment, SettingsTree, file_key, is_settings, merge_params

BOTH = ("linux", "server")
SCRIPT = scripter(platforms=BOTH, params='{"format":"png","quality":80}', platform_params=(("server", '{"quality":50}'),))
COPY = copier(platforms=BOTH)
PROJECT = Setup(builders=(COPY, SCRIPT), platforms=BOTH, tags=("headless",)).project({"game": 1})


def text(file: str, **sections: dict[str, object]) -> str:
    """Return the text of a settings file."""
    builders = {name: {"params": {}, "platforms": {}, **section} for name, section in sections.items()}
    return json.dumps({"file": file, "builders": builders, "places": {"script": "2:3", "script\nparams\nquality": "3:7"}})


def settings_of(**folders: dict[str, dict[str, object]]) -> SettingsTree:
    """Return the settings of `folders`: {folder: its sections}. "top" is the scan folder itself; "_" in a name is a slash."""
    texts = {}
    for name, sections in folders.items():
        folder = "" if name == "top" else name.replace("_", "/")
        texts[folder] = text(file_key(folder), **sections)
    return SettingsTree(PROJECT, texts)


def params(settings: SettingsTree, key: str, platform: str = "linux") -> dict[str, object]:
    """Return the parameters of the script builder for one source."""
    common, own = merge_params(SCRIPT, settings.adjustment(PathKey(key), SCRIPT).order)
    return {**common, **own.get(platform, {})}


def entries(settings: SettingsTree, key: str, platform: str) -> Manifest:
    """Return the entries about settings in a job's manifest."""
    return settings.adjustment(PathKey(key), SCRIPT).platform_entries[platform]


def test_folder_settings_affect_only_paths_below_the_folder() -> None:
    settings = settings_of(a={"script": {"params": {"quality": 90}}})

    assert params(settings, "a/b/x.s") == {"format": "png", "quality": 90}
    assert params(settings, "a/x.s") == {"format": "png", "quality": 90}
    assert params(settings, "ab/x.s") == params(settings, "x.s") == {"format": "png", "quality": 80}
    assert settings.adjustment(PathKey("a/x.s"), COPY) == settings.adjustment(PathKey("x.s"), SCRIPT) == NOTHING
    assert settings.files_above(PathKey("a/b/x.s")) == [("a/.aptui.yaml", "")]


@pytest.mark.parametrize("section", [{"params": {"quality": 1}}, {"platforms": {"*": {"quality": 1}}}])
def test_folder_settings_that_set_a_trusted_parameter_are_refused(section: dict[str, object]) -> None:
    project = replace(PROJECT, builders=(COPY, replace(SCRIPT, trusted_params=("quality",))))
    settings = SettingsTree(project, {"a": text("a/.aptui.yaml", script=section)})

    problem = settings.problem(PathKey("a/b/x.s"))

    assert "'quality' of builder 'script' can be set only in the project's aptui.yaml" in problem
    assert problem.startswith("a/.aptui.yaml:3:7: " if "params" in section else "a/.aptui.yaml:")
    assert settings.adjustment(PathKey("a/x.s"), SCRIPT) == NOTHING


@pytest.mark.parametrize(
    ("value", "is_refused"), [("--output=/etc/x", True), ("-", True), ("-1.5", False), (-1, False), ("a-b", False)]
)
def test_folder_setting_that_a_command_would_read_as_an_option_is_refused(value: object, is_refused: bool) -> None:
    project = replace(PROJECT, builders=(COPY, replace(SCRIPT, kind=BuilderKind.COMMAND)))
    settings = SettingsTree(project, {"a": text("a/.aptui.yaml", script={"params": {"quality": value}})})

    assert ("begins with '-'" in settings.problem(PathKey("a/x.s"))) is is_refused


def test_nearer_folder_overrides_each_key_separately() -> None:
    settings = settings_of(
        top={"script": {"params": {"quality": 1, "top": True}}},
        a_b={"script": {"params": {"quality": 3}}},
        a={"script": {"params": {"quality": 2, "mid": None}}},
    )

    assert params(settings, "a/b/x.s") == {"format": "png", "quality": 3, "top": True, "mid": None}
    assert params(settings, "a/x.s") == {"format": "png", "quality": 2, "top": True, "mid": None}
    assert [file for file, _problem in settings.files_above(PathKey("a/b/x.s"))] == [
        ".aptui.yaml",
        "a/.aptui.yaml",
        "a/b/.aptui.yaml",
    ]


def test_platform_settings_override_common_settings() -> None:
    settings = settings_of(a={"script": {"params": {"quality": 90}}}, a_b={"script": {"platforms": {"server": {"quality": 10}}}})

    assert params(settings, "a/x.s", "server") == {"format": "png", "quality": 50}
    assert params(settings, "a/b/x.s", "server") == {"format": "png", "quality": 10}
    assert params(settings, "a/b/x.s", "linux") == {"format": "png", "quality": 90}


def test_platform_id_overrides_tag_and_tag_overrides_star() -> None:
    rules = {"*": {"by": "star"}, "Headless": {"by": "tag"}, "SERVER": {"by": "id"}}
    settings = settings_of(a={"script": {"platforms": rules}}, b={"script": {"platforms": {"*": {"by": "star"}}}})

    assert params(settings, "a/x.s", "server")["by"] == "id"
    assert params(settings, "a/x.s", "linux")["by"] == "tag"
    assert params(settings, "b/x.s", "linux")["by"] == "star"


def test_platform_skipped_by_a_folder_can_be_enabled_by_a_subfolder() -> None:
    settings = settings_of(a={"script": {"platforms": {"server": "skip"}}}, a_b={"script": {"platforms": {"server": {}}}})

    assert settings.adjustment(PathKey("a/x.s"), SCRIPT).skips == {"server": "a/.aptui.yaml:1:1"}
    assert settings.adjustment(PathKey("a/x.s"), SCRIPT).order == ""
    assert settings.adjustment(PathKey("a/b/x.s"), SCRIPT) == NOTHING


def test_manifest_names_only_settings_files_that_have_an_effect() -> None:
    settings = settings_of(top={"script": {"params": {"quality": 1}}}, a={"script": {"platforms": {"linux": {"quality": 2}}}})

    assert [name for _kind, name, _digest in settings.adjustment(PathKey("a/x.s"), SCRIPT).entries] == [
        ".aptui.yaml:script",
        "a/.aptui.yaml:script",
    ]
    assert [name for _kind, name, _digest in entries(settings, "x.s", "linux")] == [".aptui.yaml:script"]
    assert [name for _kind, name, _digest in entries(settings, "a/x.s", "linux")] == ["a/.aptui.yaml:script"]
    # The project's setting for the platform `server` overrides the setting of the folder.
    assert entries(settings, "a/x.s", "server") == ()


def test_planning_parameter_of_a_folder_affects_analyses_and_not_runs() -> None:
    builder = replace(SCRIPT, params_schema='{"properties": {"quality": {"is_planning_only": true}}}')
    section = {"script": {"params": {"quality": 1}}}
    settings = SettingsTree(replace(PROJECT, builders=(COPY, builder)), {"a": text("a/.aptui.yaml", **section)})

    adjustment = settings.adjustment(PathKey("a/x.s"), builder)

    assert len(adjustment.entries) == 1
    assert set(adjustment.platform_entries.values()) == {()}


def test_setting_without_a_recorded_line_is_located_at_the_start_of_its_file() -> None:
    settings = settings_of(a={"script": {"params": {"quality": 90, "other": 1}}})

    values = settings.adjustment(PathKey("a/x.s"), SCRIPT).values

    assert values["", "quality"].where == "a/.aptui.yaml:3:7"
    assert values["", "other"].where == "a/.aptui.yaml:1:1"


def test_rules_and_patterns_apply_to_a_file_with_a_duplicate_path() -> None:
    ruled = replace(SCRIPT, rules=(FileRule((glob("*.s"),), '{"format":"dds"}'),))
    pattern = {"builders": {"script": {"params": {"quality": 9}, "platforms": {}}}, "places": {}}
    file = json.dumps({"file": "a/.aptui.yaml", "builders": {}, "places": {}, "files": {"*.s": pattern}})
    settings = SettingsTree(replace(PROJECT, builders=(COPY, ruled)), {"a": file})

    plain, duplicate = (settings.adjustment(PathKey(key), ruled) for key in ("a/x.s", f"a/x.s{DUPLICATE_MARK}2"))

    assert plain.order == '{"params":{"format":"dds","quality":9},"platforms":{}}'
    assert duplicate == plain


def test_change_of_settings_returns_only_the_affected_builders() -> None:
    settings = settings_of(a={"script": {"params": {"quality": 1}}})
    both = text("a/.aptui.yaml", script={"params": {"quality": 1}}, data={"platforms": {"server": "skip"}})

    assert settings.put("a", both) == {COPY.uuid}
    assert settings.put("a", text("A/.aptui.yaml", data={"platforms": {"server": "skip"}})) == {SCRIPT.uuid}
    assert settings.put("a", "") == {COPY.uuid}
    assert settings.put("a", "") == frozenset()
    assert not settings.folders
    assert settings.text("a") == ""


@pytest.mark.parametrize(("old", "new"), [(1, True), (0, False), (1, 1.0), ([1], [True])])
def test_change_of_only_the_type_of_a_value_affects_its_builder(old: object, new: object) -> None:
    settings = settings_of(a={"script": {"params": {"quality": old}, "platforms": {"linux": {"quality": old}}}})
    before = entries(settings, "a/x.s", "linux")

    affected = settings.put(
        "a", text("a/.aptui.yaml", script={"params": {"quality": new}, "platforms": {"linux": {"quality": new}}})
    )

    assert affected == {SCRIPT.uuid}
    assert entries(settings, "a/x.s", "linux") != before


def test_broken_or_repaired_settings_file_affects_every_builder() -> None:
    settings = settings_of()
    broken = json.dumps({"file": "a/.aptui.yaml", "error": "a/.aptui.yaml:3:5: not valid YAML"})

    assert settings.put("a", broken) == {COPY.uuid, SCRIPT.uuid}
    assert settings.problem(PathKey("a/b/x.s")) == "a/.aptui.yaml:3:5: not valid YAML"
    assert settings.problem(PathKey("x.s")) == ""
    assert settings.adjustment(PathKey("a/x.s"), SCRIPT) == FolderAdjustment()
    assert settings.put("a", text("a/.aptui.yaml")) == {COPY.uuid, SCRIPT.uuid}
    assert settings.problem(PathKey("a/x.s")) == ""


@pytest.mark.parametrize(
    ("sections", "problem"),
    [
        ({"scrpt": {}}, "a/.aptui.yaml:1:1: 'scrpt' is not a builder; did you mean 'script'?"),
        ({"SCRIPT": {}}, "a/.aptui.yaml:1:1: 'SCRIPT' is not a builder; did you mean 'script'?"),
        ({"zzz": {}}, "a/.aptui.yaml:1:1: 'zzz' is not a builder; the known names are: data, script"),
        (
            {"script": {"platforms": {"sever": {}}}},
            "a/.aptui.yaml:1:1: 'sever' is neither a platform nor a tag; did you mean 'server'?",
        ),
        (
            {"data": {"params": {"a": 1}}},
            (
                "a/.aptui.yaml:1:1: builder 'data' has no parameters, because it only copies files; to leave these files out, "
                "write platforms: {'*': skip}"
            ),
        ),
        (
            {"data": {"platforms": {"linux": {"a": 1}}}},
            "a/.aptui.yaml:1:1: builder 'data' has no parameters, because it only copies files",
        ),
        ({"data": {"platforms": {"linux": {}}}}, ""),
    ],
)
def test_folder_settings_with_unknown_names_are_refused(sections: dict[str, dict[str, object]], problem: str) -> None:
    assert settings_of(a=sections).problem(PathKey("a/x.s")) == problem


def test_folder_settings_may_name_disabled_builders_and_platforms() -> None:
    project = PROJECT.__class__(
        PROJECT.platforms,
        "linux",
        PROJECT.scan_folders,
        PROJECT.builders,
        declared_builders=("meshes",),
        declared_platforms=("mac",),
    )

    settings = SettingsTree(
        project, {"a": text("a/.aptui.yaml", meshes={"params": {"a": 1}}, script={"platforms": {"mac": {"a": 1}}})}
    )

    assert settings.problem(PathKey("a/x.s")) == ""
    assert settings.adjustment(PathKey("a/x.s"), SCRIPT) == NOTHING


@pytest.mark.parametrize(
    ("rel", "is_one"),
    [(".aptui.yaml", True), ("a/.APTUI.yaml", True), ("a.aptui.yaml", False), ("aptui.yaml", False), ("a/.aptui.yaml/b", False)],
)
def test_settings_file_is_recognized_by_its_name(rel: str, is_one: bool) -> None:
    assert is_settings(rel) is is_one
