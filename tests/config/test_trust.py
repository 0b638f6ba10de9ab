"""Records of trusted projects: the covered files, when records are written, and which records are valid."""

from __future__ import annotations

import hashlib
import json
import os
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from msgspec.structs import replace

from aptui.config import load as config_load
from aptui.config import trust
from aptui.config.configuration import Config
from aptui.config.dirs import TRUST_VARIABLE
from aptui.sdk.parameters import schema_of
from aptui.shared.errors import HostError
from aptui.worker.builder_import import ENTRY_POINT_GROUP

PROJECT = """\
scan_folders: [{name: game, path: assets}]
builders:
  - {name: convert, patterns: ["*.a"], command: "sh tools/convert.sh {source} {products_dir}/{stem}.b", products: ["*.b"]}
checks: {look: {files: ["*"], command: [tools/look.sh]}}
on: {idle: {exec: [sh, tools/ring.sh]}}
"""
OTHER = 'builders:\n  - {name: other, patterns: ["*.x"], products: ["*"], command: "%s"}'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with a command, a hook, a check with a command and a Python file; nothing is trusted."""
    for variable in ("CONFIG", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{variable}_HOME", str(tmp_path / variable.lower()))
    monkeypatch.delenv(TRUST_VARIABLE, raising=False)
    folder = tmp_path / "game"
    for name in ("assets", "tools", "builders/parts"):
        (folder / name).mkdir(parents=True)
    (folder / "aptui.yaml").write_text(PROJECT)
    (folder / "builders/atlas.py").write_text("import parts.common\n")
    (folder / "builders/parts/common.py").write_text("")
    for name in ("convert", "look", "ring"):
        (folder / f"tools/{name}.sh").write_text("exit 0\n")
    return folder


def load(project: Path) -> Config:
    return config_load.load(project)


def record_file(tmp_path: Path) -> Path:
    return next((tmp_path / "state/aptui/trust").iterdir())


def test_new_project_is_not_trusted_until_its_trust_is_recorded(project: Path) -> None:
    assert trust.assess(load(project)) == trust.Trust(is_given=False)

    trust.record(load(project))

    assert trust.assess(load(project)) == trust.Trust(is_given=True)


@pytest.mark.parametrize(
    "changed",
    ["aptui.yaml", "builders/atlas.py", "builders/parts/common.py", "tools/convert.sh", "tools/look.sh", "tools/ring.sh"],
)
def test_changed_file_of_a_trusted_project_is_named(project: Path, changed: str) -> None:
    trust.record(load(project))
    with (project / changed).open("a") as file:
        file.write("# more\n")

    assert trust.assess(load(project)) == trust.Trust(is_given=False, changed=(changed,))


def test_project_whose_path_begins_like_a_folder_of_aptui_is_covered(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    project = project.rename(tmp_path / "aptui-game")
    trust.record(load(project))
    with (project / "aptui.yaml").open("a") as file:
        file.write("# more\n")

    assert trust.assess(load(project)).changed == ("aptui.yaml",)


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("[sh, tools/ring.sh]", "[sh, -c, 'sh tools/ring.sh']", "ring"),
        ("[tools/look.sh]", "[sh, -c, tools/look.sh; true]", "look"),
        ("builders:", OTHER % "sh TOP/tools/more.sh; true", "more"),
        ("builders:", OTHER % "sh ../../../../tools/more.sh", "more"),
        ("builders:", OTHER % "(A=TOP/tools/more.sh)", "more"),
    ],
)
def test_changed_script_in_a_command_line_is_found(project: Path, old: str, new: str, name: str) -> None:
    settings, script = project / "aptui.yaml", project / f"tools/{name}.sh"
    script.write_text("exit 0\n")
    settings.write_text(settings.read_text().replace(old, new.replace("TOP", str(project))))
    trust.record(load(project))

    script.write_text("echo hostile")

    assert trust.assess(load(project)).changed == (f"tools/{name}.sh",)


@pytest.mark.parametrize("changed", ["tools/look.sh", "tools/ring.sh"])
def test_files_of_a_project_that_is_opened_through_a_link_are_covered(project: Path, tmp_path: Path, changed: str) -> None:
    (tmp_path / "link").symlink_to(project)
    settings = project / "aptui.yaml"
    tools = 'products: ["*.b"], tools: [{name: sh, files: [tools/ring.sh]}]}'
    text = settings.read_text().replace("[sh, tools/ring.sh]", "[echo]").replace('products: ["*.b"]}', tools)
    settings.write_text(text.replace("[tools/look.sh]", f"[{tmp_path}/link/tools/look.sh]"))
    trust.record(load(tmp_path / "link"))

    (project / changed).write_text("echo hostile")

    assert trust.assess(load(tmp_path / "link")).changed == (changed,)


def test_layer_that_only_another_program_reads_ends_trust_only_if_it_changes(project: Path) -> None:
    layer = project / "settings.assetprocessorbatch.setreg"
    layer.write_text("{}")
    config = load(project)
    batch = replace(config, layers=(*config.layers, (str(layer), hashlib.sha256(b"{}").hexdigest())))
    trust.record(batch)

    assert trust.assess(config) == trust.Trust(is_given=True)
    assert trust.assess(batch) == trust.Trust(is_given=True)

    layer.write_text("[]")
    assert trust.assess(config) == trust.Trust(is_given=False, changed=(layer.name,))


def test_changed_code_with_the_same_size_and_mtime_is_found(project: Path) -> None:
    path = project / "builders/atlas.py"
    os.utime(path, ns=(1, 1))
    trust.record(load(project))
    path.write_text("import parts.hostile"[: path.stat().st_size])
    os.utime(path, ns=(1, 1))

    assert trust.assess(load(project)).changed == ("builders/atlas.py",)


def test_assess_lists_added_and_removed_code_files_as_changed(project: Path) -> None:
    trust.record(load(project))
    (project / "builders/parts/common.py").unlink()
    (project / "builders/new.py").write_text("")

    assert trust.assess(load(project)).changed == ("builders/new.py", "builders/parts/common.py")


def test_changed_code_behind_a_linked_folder_is_found(project: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/linked.py").write_text("")
    (project / "builders/linked").symlink_to(tmp_path / "elsewhere")
    (project / "builders/circle").symlink_to(project / "builders")
    trust.record(load(project))
    (tmp_path / "elsewhere/linked.py").write_text("print()")

    assert "builders/linked/linked.py" in trust.assess(load(project)).changed


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_pipe_or_device_in_place_of_a_code_file_is_not_read(project: Path, kind: str) -> None:
    """Reading a pipe without a writer, or a device such as `/dev/zero`, would not end."""
    trust.record(load(project))
    (project / "builders/atlas.py").unlink()
    if kind == "pipe":
        os.mkfifo(project / "builders/atlas.py")
    else:
        (project / "builders/atlas.py").symlink_to("/dev/zero")

    assert trust.assess(load(project)).changed == ("builders/atlas.py",)


def test_changed_assets_and_unused_files_do_not_end_trust(project: Path) -> None:
    trust.record(load(project))
    (project / "assets/x.a").write_text("new")
    (project / "tools/unused.sh").write_text("new")

    assert trust.is_trusted(load(project))


def test_record_of_an_unchanged_project_is_not_written_again(project: Path, tmp_path: Path) -> None:
    trust.record(load(project))
    before = record_file(tmp_path).stat().st_ino
    trust.record(load(project))

    assert record_file(tmp_path).stat().st_ino == before


def test_record_is_readable_by_its_user_only(project: Path, tmp_path: Path) -> None:
    trust.record(load(project))
    file = record_file(tmp_path)

    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    file.chmod(0o666)
    assert not trust.is_trusted(load(project)), "another user may have written the record"


def test_moved_project_is_not_trusted(project: Path, tmp_path: Path) -> None:
    trust.record(load(project))
    moved = project.rename(tmp_path / "moved")

    assert trust.assess(load(moved)) == trust.Trust(is_given=False)


def test_revoked_project_is_not_trusted(project: Path) -> None:
    trust.record(load(project))

    assert trust.list_recorded() == [str(project)]
    assert trust.revoke(project)
    assert not trust.revoke(project)
    assert trust.list_recorded() == []
    assert not trust.is_trusted(load(project))


def test_environment_variable_makes_every_project_trusted(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TRUST_VARIABLE, "1")

    assert trust.is_trusted(load(project))


def test_edit_by_aptui_keeps_trust_only_if_the_file_was_trusted_before(project: Path) -> None:
    file, text = project / "aptui.yaml", (project / "aptui.yaml").read_bytes()
    trust.record(load(project))
    file.write_bytes(text + b"# a\n")
    trust.follow_edit(project, file, text, text + b"# a\n")
    assert trust.is_trusted(load(project))

    file.write_bytes(text + b"# hostile\n")
    file.write_bytes(text + b"# hostile\n# edited\n")
    trust.follow_edit(project, file, text + b"# hostile\n", text + b"# hostile\n# edited\n")
    assert not trust.is_trusted(load(project))


def test_runnable_code_is_listed_by_kind(project: Path) -> None:
    found = trust.find_runnable(load(project))

    assert [name for name, _ in found.commands] == ["convert"]
    assert found.hooks == (("idle", "sh tools/ring.sh"),)
    assert found.checks == (("look", "tools/look.sh"),)
    assert found.files == ("builders/atlas.py", "builders/parts/common.py")
    assert found.counts() == [(1, "command"), (1, "hook"), (1, "command check"), (2, "Python file")]


def test_trust_covers_the_version_command_of_a_tool_and_its_script(project: Path) -> None:
    settings = project / "aptui.yaml"
    tools = 'products: ["*.b"], tools: [{name: sh, version: "sh tools/version.sh"}]}'
    settings.write_text(settings.read_text().replace('products: ["*.b"]}', tools))
    (project / "tools/version.sh").write_text("echo 1")
    trust.record(load(project))
    assert ("convert", "sh tools/version.sh") in trust.find_runnable(load(project)).commands

    (project / "tools/version.sh").write_text("echo hostile")

    assert trust.assess(load(project)).changed == ("tools/version.sh",)


def test_trust_covers_a_program_in_a_parameter_and_its_file(project: Path) -> None:
    settings, script = project / "aptui.yaml", project / "tools/ring.sh"
    text = f"builders:\n  - {{name: shaders, uses: shader, patterns: [\"*.frag\"], params: {{compiler: '{script}'}}}}"
    settings.write_text(settings.read_text().replace("builders:", text).replace("sh, tools/ring.sh", "sh"))
    trust.record(load(project))
    assert ("shaders", f"{script} (parameter 'compiler')") in trust.find_runnable(load(project)).commands

    script.write_text("echo hostile")

    assert trust.assess(load(project)).changed == ("tools/ring.sh",)


def test_program_params_contains_every_text_parameter_with_is_trusted_only() -> None:
    classes = [point.load() for point in entry_points(group=ENTRY_POINT_GROUP) if point.value.startswith("aptui.")]
    rules = [
        (schema_of(each.params_schema) or {})["properties"].items() for each in classes if getattr(each, "params_schema", None)
    ]
    trusted_texts = {
        name for found in rules for name, rule in found if rule.get("is_trusted_only") and "string" in json.dumps(rule)
    }

    assert trusted_texts == trust.PROGRAM_PARAMS


def test_too_many_code_files_are_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "_MOST_FILES", 1)

    with pytest.raises(HostError, match="more than 1 files"):
        trust.find_runnable(load(project))


def test_unwritable_state_folder_is_an_error(project: Path, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")

    with pytest.raises(HostError, match="cannot be created"):
        trust.record(load(project))
