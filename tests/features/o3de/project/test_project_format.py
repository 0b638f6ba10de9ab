"""Loading the configuration of O3DE projects, and the verbs that use it.

Also: the cost of loading an unchanged project, and the `aptui.yaml` that is generated from its settings registry.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from small_engine import SmallEngine

import aptui
from aptui.cli import main
from aptui.config import dirs, load, trust
from aptui.config.configuration import Config
from aptui.config.dirs import TRUST_VARIABLE
from aptui.config.load import ConfigMessage
from aptui.features.o3de.project import project_format
from aptui.features.o3de.project_facts import Options, facts_of
from aptui.shared.errors import UserError

YAML = "builders: [{name: json, version: 3}, {name: upper, command: 'cp {source} {products_dir}', patterns: ['*.up']}]\n"


@pytest.fixture
def rich(engine: SmallEngine) -> SmallEngine:
    """Return an engine whose project has settings of every kind."""
    engine.add(
        {
            "Platforms": {"server": "enabled"},
            "Exclude tmp": {"pattern": r"(^|.+/)\\$tmp[0-9]*_.*"},
            "Exclude it's": {"glob": "it's/*"},
            "MetaDataTypes": {"exportsettings": "", "cbc": "abc", "Animations/List.xml": "i_caf"},
            "RC icons": {"pattern": r"(.*Icons\\/).*\\.png", "params": "skip", "tools": "copy", "version": 2.5},
            "RC typed": {
                "glob": "*.typed",
                "params": "copy",
                "productAssetType": "{A471B2A9-85FC-4993-842D-1881CBC03A2B}",
                "priority": 3,
            },
            "RC level.pak": {"glob": "*/level?.pak", "params": "copy"},
        }
    )
    metadata = {"EnabledTypes": [".png"], "MetaCreationDelayMs": 250}
    engine.write("Registry/m.setreg", {"O3DE": {"AssetProcessor": {"Settings": {"Metadata": metadata}}}})
    return engine


def test_project_is_found_from_a_folder_inside_it(engine: SmallEngine) -> None:
    (engine.project / "a" / "b").mkdir(parents=True)

    assert dirs.find_project(engine.project / "a" / "b") == engine.project


def test_folder_with_only_yaml_is_not_an_o3de_project(engine: SmallEngine, tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    (tmp_path / "project.json").write_text('{"name": "of another tool"}')
    (tmp_path / "aptui.yaml").write_text("scan_folders: [{name: a, path: assets}]\n")

    assert dirs.format_of(tmp_path) is None
    assert load.load(tmp_path).foreign == ""


def test_aptui_yaml_with_scan_folders_replaces_the_registry(engine: SmallEngine) -> None:
    (engine.project / "assets").mkdir()
    engine.write("Game/aptui.yaml", "name: own\nscan_folders: [{name: a, path: assets}]\n")

    assert engine.load().name == "own"


def test_aptui_yaml_beside_the_manifest_adds_builders(engine: SmallEngine) -> None:
    engine.write("Game/aptui.yaml", f"{YAML}ignore: ['*.x']\nworkers: 4\n")

    found = engine.load()

    assert [builder.name for builder in found.project.builders] == ["txt", "json", "upper"]
    assert (found.project.builders[1].version, found.workers, found.project.ignore_regex) == ("3", 4, "")
    assert found.warnings == (
        f"{engine.project}/aptui.yaml:2:1: 'ignore' is ignored, because 'project.json' is in the same folder",
    )


def test_aptui_yaml_of_the_user_overrides_the_registry(engine: SmallEngine) -> None:
    file = dirs.user_file()
    file.parent.mkdir(parents=True)
    file.write_text("workers: 6\n")

    assert engine.load().workers == 6
    assert engine.load(workers=1).workers == 1


def test_command_line_can_set_registry_keys_and_yaml_keys(engine: SmallEngine) -> None:
    found = engine.load(sets=["/Amazon/AssetProcessor/Settings/Platforms/server=enabled", "limits.process=5s"])

    assert [platform.id for platform in found.project.platforms] == ["linux", "server"]
    assert found.limits.process_s == 5.0


def test_registry_key_is_refused_without_a_registry(engine: SmallEngine, tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    (tmp_path / "aptui.yaml").write_text("scan_folders: [{name: a, path: assets}]\n")

    with pytest.raises(UserError, match="but the project is not an O3DE project"):
        load.load(tmp_path, sets=["/Amazon/x=1"])


def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return a list to which each later compilation of a project's configuration adds the project's folder."""
    found: list[Path] = []
    before = project_format._open  # `_open` is wrapped, because a test cannot see a compilation in any other way.

    def spy(project_dir: Path, *rest: object) -> object:
        found.append(project_dir)
        return before(project_dir, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(project_format, "_open", spy)
    return found


def test_unchanged_project_is_not_parsed_again(rich: SmallEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    first = rich.load()
    parsed = compiled(monkeypatch)

    assert rich.load() == first
    assert parsed == []


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("Game/Registry/own.setreg", {}),
        ("Game/Registry/zz.setreg", {}),
        ("Game/user/Registry/zz.setreg", {}),
        ("Game/AssetProcessorGamePlatformConfig.setreg", {}),
        ("Game/BuilderConfig.ini", "[Job x]\n"),
        ("Game/aptui.yaml", YAML),
        ("engine.json", {"engine_name": "other"}),
        ("AssetProcessorConfig/more/a.ini", "[RC x]\nglob=*.x\nparams=copy\n"),
    ],
)
def test_settings_are_compiled_again_after_a_change_of_any_settings_file(
    rich: SmallEngine, monkeypatch: pytest.MonkeyPatch, path: str, data: object
) -> None:
    if path.startswith("AssetProcessorConfig"):
        (rich.root / "AssetProcessorConfig" / "more").mkdir(parents=True)
    rich.load()
    parsed = compiled(monkeypatch)

    rich.write(path, data)
    rich.load()

    assert parsed == [rich.project]


def test_later_commands_use_the_engine_path_of_an_earlier_command(engine: SmallEngine, tmp_path: Path) -> None:
    alone = tmp_path / "Alone"
    alone.mkdir()
    (alone / "project.json").write_text('{"project_name": "Alone"}')
    with pytest.raises(UserError, match="no O3DE engine was found"):
        load.load(alone)

    project_format.load(alone, options=Options(regset=(f"/Amazon/AzCore/Bootstrap/engine_path={engine.root}",)))

    assert facts_of(load.load(alone)).engine == str(engine.root)  # type: ignore[union-attr]  # it is an O3DE project
    engine.root.rename(tmp_path / "moved")
    with pytest.raises(UserError, match="no O3DE engine was found"):
        load.load(alone)


@pytest.mark.parametrize(
    ("pattern", "is_reported"),
    [
        ({"glob": "*.txt"}, True),
        ({"name": "txt", "glob": "*.other"}, True),
        ({"glob": "*.txt", "checkServer": False}, False),
        ({"glob": "*.png"}, False),
    ],
)
@pytest.mark.parametrize("mode", ["server", "inactive"])
def test_warning_is_given_if_shared_cache_patterns_match_plain_copies(
    engine: SmallEngine, tmp_path: Path, pattern: dict[str, object], is_reported: bool, mode: str
) -> None:
    server = {"cacheServerAddress": str(tmp_path), "assetCacheServerMode": mode, "ACS Text": pattern}
    engine.write("Game/Registry/acs.setreg", {"O3DE": {"AssetProcessor": {"Settings": {"Server": server}}}})

    explanation = [text for text in engine.load().warnings if "results of builders that only copy are not shared" in text]

    assert explanation == (
        ["results of builders that only copy are not shared, because fetching takes as long as copying: 'txt'"]
        if is_reported and mode == "server"
        else []
    )


def test_compiled_settings_are_stored_separately_for_each_set_of_options(rich: SmallEngine) -> None:
    few = rich.load(options=Options(has_config_scan_folders=False, scan_folders=(str(rich.root),)))

    assert rich.load() != few
    assert rich.load(options=Options(has_config_scan_folders=False, scan_folders=(str(rich.root),))) == few


def test_settings_are_compiled_again_if_the_record_of_inputs_is_damaged(rich: SmallEngine, tmp_path: Path) -> None:
    first = rich.load()
    for file in (tmp_path / "kept").rglob("*.seen"):
        file.write_text("[1]")

    assert rich.load() == first


def test_configuration_layers_include_all_settings_files_that_were_read(rich: SmallEngine) -> None:
    found = rich.load()

    names = {Path(file).name for file, _digest in found.layers}
    assert names >= {
        "project.json",
        "engine.json",
        "AssetProcessorPlatformConfig.setreg",
        "own.setreg",
        "m.setreg",
        "defaults.yaml",
    }
    assert set(found.settings_folders) >= {str(rich.root / "Registry"), str(rich.project / "Registry")}


@pytest.mark.real
def test_unchanged_project_is_loaded_without_importing_a_parser(rich: SmallEngine) -> None:
    rich.load()
    code = f"""
import sys
from pathlib import Path
from aptui.config import load as config, packing
packing.host_platform = lambda: "linux"
config.load(Path({str(rich.project)!r}))
names = ("ruamel.yaml", "jsonschema", "pathspec", "aptui.features.o3de.project.o3de_settings", "aptui.config.compiler")
print([name for name in names if name in sys.modules])
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(aptui.__file__).parents[1])}  # so that the process imports this package
    process = subprocess.run([sys.executable, "-P", "-c", code], env=environment, capture_output=True, text=True, check=True)

    assert process.stdout.strip() == "[]"


def test_registry_key_is_explained(rich: SmallEngine) -> None:
    rich.add({"RC txt": {"params": "skip"}})
    key = "/Amazon/AssetProcessor/Settings/RC txt/params"

    explanation = load.explain(rich.project, key, ["/Amazon/AssetProcessor/Settings/RC txt/params=copy"])

    assert [each.text for each in explanation] == ['"copy"', '"skip"', '"copy"']
    assert explanation[1].where.startswith(f"{rich.project}/Registry/own.setreg:")
    assert load.explain(rich.project, "RC txt/params") == explanation[:2]


def test_yaml_key_is_explained_in_an_o3de_project(rich: SmallEngine) -> None:
    rich.write("Game/aptui.yaml", YAML)

    assert [each.text for each in load.explain(rich.project, "builders.json.version")] == ["3"]
    assert [each.text for each in load.explain(rich.project, "limits.analyse")] == ['"2m"']


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("Jobs/AlwaysUseMaxJobs", True, "no worker is reserved: a critical job may start an additional worker"),
        ("RC txt/lockSource", True, "files are never read while they are being written"),
        ("Jobs/maxJobs", 4, ""),
        ("RC txt/critical", True, ""),
    ],
)
def test_ignored_key_is_explained_with_its_reason(rich: SmallEngine, key: str, value: object, why: str) -> None:
    section, name = key.split("/")
    rich.add({section: {name: value}})

    explanation = load.explain(rich.project, key)

    assert explanation[-1].text == json.dumps(value)
    assert explanation[-1].where.partition(" (accepted and ignored: ")[2].removesuffix(")") == why


def test_unknown_key_gets_a_hint(rich: SmallEngine) -> None:
    with pytest.raises(UserError, match="no settings file contains '/Amazon/AssetProcessor/Setings'; did you mean 'Settings'"):
        load.explain(rich.project, "/Amazon/AssetProcessor/Setings")


def test_yaml_key_is_explained_with_its_value_in_every_layer(engine: SmallEngine, tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    (tmp_path / "aptui.yaml").write_text("workers: 3\nscan_folders: [{name: a, path: assets}]\n")

    explanation = load.explain(tmp_path, "workers", ["workers=5"])

    assert [each.text for each in explanation] == ["0", "3", "5"]
    assert explanation[1:] == [ConfigMessage(f"{tmp_path}/aptui.yaml:1:10", "3"), ConfigMessage("--set workers:1:1", "5")]
    with pytest.raises(UserError, match="no file sets 'wokers'; did you mean 'workers'"):
        load.explain(tmp_path, "wokers")


def test_config_explain_prints_value_and_overrides(rich: SmallEngine, capsys: pytest.CaptureFixture[str]) -> None:
    rich.add({"RC txt": {"params": "skip"}})
    words = ["config", "--project", str(rich.project), "--explain", "RC txt/params"]

    assert main.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == 'RC txt/params is "skip"'
    assert lines[1].split()[:2] == ["set", "by"]
    assert lines[2].split()[:2] == ["which", "overrode"]

    assert main.main([*words, "--json"]) == 0
    assert [each["value"] for each in json.loads(capsys.readouterr().out)] == ['"skip"', '"copy"']


@pytest.mark.real
def test_second_batch_of_an_o3de_project_runs_no_job(rich: SmallEngine, capsys: pytest.CaptureFixture[str]) -> None:
    rich.write("Game/Data/A.txt", "a")
    rich.write("Game/Icons/x.png", "x")
    rich.write("Game/$tmp1_b.txt", "b")
    rich.write("Assets/Engine/e.json", "{}")

    for expected in (6, 0):
        assert main.main(["batch", "--project", str(rich.project), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["jobs_run"] == expected

    cache = rich.project / "Cache"
    products = {
        file.relative_to(cache).as_posix() for name in ("linux", "server") for file in (cache / name).rglob("*") if file.is_file()
    }
    assert products == {
        "linux/assetcatalog.xml",
        "server/assetcatalog.xml",
        "linux/data/a.txt",
        "server/data/a.txt",
        "linux/icons/x.png",
        "linux/e.json",
        "linux/engine.json",
        "linux/project.json",
    }


@pytest.mark.real
def test_changed_companion_file_runs_the_jobs_of_all_its_sources_again(
    rich: SmallEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    rich.add({"MetaDataTypes": {"Animations/List.xml": "i_caf"}, "RC i_caf": {"glob": "*.i_caf", "params": "copy"}})
    for name in ("a.i_caf", "sub/b.i_caf", "c.txt"):
        rich.write(f"Game/{name}", name)

    def jobs_run() -> int:
        assert main.main(["batch", "--project", str(rich.project), "--json"]) == 0
        return int(json.loads(capsys.readouterr().out)["jobs_run"])

    jobs_run()
    rich.write("Game/Animations/List.xml", "<list/>")
    assert jobs_run() == 2
    rich.write("Game/Animations/List.xml", "<list>changed</list>")
    assert jobs_run() == 2
    (rich.project / "Animations" / "List.xml").unlink()
    assert jobs_run() == 2
    assert jobs_run() == 0


def test_explain_names_the_builder_or_exclude_that_matches_a_file(rich: SmallEngine, capsys: pytest.CaptureFixture[str]) -> None:
    rich.write("Game/Icons/x.png", "x")
    rich.write("Game/it's/x.png", "x")

    assert main.main(["explain", "--project", str(rich.project), str(rich.project / "Icons" / "x.png"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [builder["builder"] for builder in answer["builders"]] == ["icons"]
    assert "own.setreg:" in answer["builders"][0]["from"]

    assert main.main(["explain", "--project", str(rich.project), str(rich.project / "it's" / "x.png"), "--json"]) == 0
    assert "own.setreg:" in json.loads(capsys.readouterr().out)["ignored_by"]


def test_engine_that_a_switch_names_does_not_end_trust(
    engine: SmallEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine's folder is stored in a file of aptui, which the next command reads as one of its inputs."""
    monkeypatch.delenv(TRUST_VARIABLE, raising=False)
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "project.json").write_text('{"project_name": "Alone"}')

    trust.record(project_format.load(alone, options=Options(regset=(f"/Amazon/AzCore/Bootstrap/engine_path={engine.root}",))))

    assert trust.assess(project_format.load(alone)) == trust.Trust(is_given=True)


def test_engine_path_can_be_given_as_an_option(rich: SmallEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lone = tmp_path / "lone"
    lone.mkdir()
    (lone / "project.json").write_text('{"project_name": "Lone"}')

    assert main.main(["config", "--project", str(lone)]) == 3
    assert "--engine-path" in capsys.readouterr().err
    assert main.main(["config", "--project", str(lone), "--engine-path", str(rich.root)]) == 0


def essence(found: Config) -> dict[str, object]:
    project = found.project
    return {
        "platforms": project.platforms,
        "declared": project.declared_platforms,
        "folders": project.scan_folders,
        "ignored": project.ignore_regex,
        "companions": sorted(project.companions, key=str),
        "builders": [replace(builder, code_digest=b"") for builder in project.builders],
        "metadata": (project.metadata_types, found.meta_delay_ms),
        "places": (found.name, found.cache_dir, found.log_dir),
    }


def test_aptui_yaml_from_init_equals_the_configuration_of_the_registry(
    rich: SmallEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    before = rich.load()

    assert main.main(["init", "--from-o3de", str(rich.project)]) == 0
    after = rich.load()

    assert "wrote" in capsys.readouterr().out
    assert (before.foreign, after.foreign) != ("", before.foreign)
    assert after.foreign == ""
    assert essence(after) == essence(before)
    assert after.project.scan_signature == before.project.scan_signature


def test_dry_run_of_init_from_o3de_prints_the_file_and_does_not_write_it(
    rich: SmallEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["init", "--from-o3de", "--dry-run", str(rich.project)]) == 0
    printed = capsys.readouterr().out.partition(":\n\n")[2]

    assert not (rich.project / "aptui.yaml").exists()
    assert main.main(["init", "--from-o3de", str(rich.project)]) == 0
    assert printed == (rich.project / "aptui.yaml").read_text()


def test_init_from_o3de_refuses_copy_patterns(rich: SmallEngine, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["init", "--from-o3de", str(rich.project), "--copy", "*.txt"]) == 3
    assert "'--copy' cannot be used with '--from-o3de'" in capsys.readouterr().err
    assert not (rich.project / "aptui.yaml").exists()


def test_init_reports_script_builders(rich: SmallEngine, capsys: pytest.CaptureFixture[str]) -> None:
    script = rich.write("Game/Editor/Scripts/bootstrap.py", "")

    assert main.main(["init", "--from-o3de", str(rich.project)]) == 0
    assert f"{script}: the builders of this script do not run with 'aptui.yaml'" in capsys.readouterr().err


def test_init_does_not_overwrite_an_existing_aptui_yaml(rich: SmallEngine, capsys: pytest.CaptureFixture[str]) -> None:
    rich.write("Game/aptui.yaml", YAML)

    assert main.main(["init", "--from-o3de", str(rich.project)]) == 3
    assert "aptui.yaml' exists" in capsys.readouterr().err
    assert main.main(["init", "--from-o3de", str(rich.root)]) == 3
    assert "has no 'project.json'" in capsys.readouterr().err


def test_edited_aptui_yaml_is_checked_together_with_the_registry(rich: SmallEngine) -> None:
    file = rich.project / "aptui.yaml"

    load.check_with(rich.project, file, YAML.encode())
    load.check_with(rich.project, dirs.user_file(), b"workers: 2\n")
    with pytest.raises(UserError, match="has both 'copy' and 'uses'"):
        load.check_with(rich.project, file, b"builders: [{name: txt, uses: image}]\n")
