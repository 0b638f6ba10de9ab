"""Settings of an O3DE project translated to a configuration, key by key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from small_engine import PLATFORMS, RULES, SCAN_FOLDERS, SmallEngine

from aptui.config.configuration import Config
from aptui.config.load import explain
from aptui.core.model import RelPath
from aptui.core.patterns import PatternSet, ignore_matcher, matches
from aptui.core.planner import Planner
from aptui.core.project import Builder, BuilderKind, Companion, Platform
from aptui.core.settings import SettingsTree
from aptui.features.o3de.project.rules import python_regex
from aptui.features.o3de.project_facts import (
    JobOverride,
    Options,
    ProjectFacts,
    StatsForm,
    UserSettings,
    facts_of,
)
from aptui.shared.errors import UserError


def builder(config: Config, name: str) -> Builder:
    return next(each for each in config.project.builders if each.name == name)


def wanted(config: Config, rel: str) -> list[str]:
    """Return the builders that match a file of the project's own folder."""
    folder = next(each for each in config.project.scan_folders if each.name == "Project/Assets")
    found = PatternSet([each.patterns for each in config.project.builders]).builders_for(rel, folder.path)
    return [config.project.builders[at].name for at in found]


def folders(config: Config) -> list[tuple[str, int]]:
    return [(folder.name, folder.order) for folder in config.project.scan_folders]


def facts(config: Config) -> ProjectFacts:
    found = facts_of(config)
    assert found is not None
    return found


def test_o3de_project_is_opened_without_yaml(engine: SmallEngine) -> None:
    config = engine.load()

    assert (config.name, config.project_dir, config.warnings) == ("Game", engine.project, ())
    assert (config.cache_dir, config.log_dir) == (engine.project / "Cache", engine.project / "user" / "log")
    assert config.project.platforms == (Platform("linux", ("renderer", "tools")),)
    assert folders(config) == [("Project/Assets", 0), ("Root", 10000), ("Engine", 20000)]
    assert [(each.name, each.kind) for each in config.project.builders] == [("txt", BuilderKind.COPY), ("json", BuilderKind.COPY)]
    assert config.project.ignore_regex == ""


def test_host_platform_is_enabled_even_if_its_setting_is_disabled(engine: SmallEngine) -> None:
    engine.add({"Platforms": {"server": "enabled", "pc": "disabled", "linux": "disabled"}})

    config = engine.load()

    assert config.project.platforms == (Platform("linux", ("renderer", "tools")), Platform("server", ("server",)))
    assert set(config.project.declared_platforms) >= {"linux", "server", "pc", "tools", "renderer", "dx12"}


def test_platforms_of_the_command_line_replace_the_enabled_platforms(engine: SmallEngine) -> None:
    config = engine.load(platforms=["pc"])

    assert [platform.id for platform in config.project.platforms] == ["pc"]
    assert config.project.resting_platforms == ("linux",)
    with pytest.raises(UserError, match="unknown platform 'amiga'"):
        engine.load(platforms=["amiga"])


def test_project_keeps_the_products_of_a_disabled_platform(engine: SmallEngine) -> None:
    assert engine.load().project.resting_platforms == ()

    (engine.project / "Cache" / "server").mkdir(parents=True)

    assert engine.load().project.resting_platforms == ("server",)
    assert engine.load(platforms=["server"]).project.resting_platforms == ("linux",)


def test_enabled_platform_must_be_declared(engine: SmallEngine) -> None:
    file = engine.add({"Platforms": {"sever": "enabled"}})

    with pytest.raises(UserError) as caught:
        engine.load()

    assert re.fullmatch(
        rf"{file}:\d+:\d+: platform 'sever' is enabled, but not declared; did you mean 'server'\?", str(caught.value)
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({**SCAN_FOLDERS, **RULES}, "the settings declare no platform"),
        ({**PLATFORMS, **RULES}, "the settings have no scan folder"),
        ({**PLATFORMS, **SCAN_FOLDERS}, "the settings have no rule that copies files"),
    ],
)
def test_project_without_platforms_or_scan_folders_or_rules_is_refused(
    engine: SmallEngine, settings: dict[str, Any], message: str
) -> None:
    engine.settings(settings)

    with pytest.raises(UserError, match=message):
        engine.load()


def test_all_mistakes_are_reported_at_once(engine: SmallEngine) -> None:
    engine.settings({**PLATFORMS, "Platforms": {"nope": "enabled"}})

    with pytest.raises(UserError) as caught:
        engine.load()

    assert len(str(caught.value).splitlines()) == 3


def test_mistakes_of_several_files_are_reported_at_once(engine: SmallEngine) -> None:
    engine.write("Registry/a.setreg", "{")
    engine.write("Game/Registry/b.setreg", "{]")

    with pytest.raises(UserError) as caught:
        engine.load()

    assert [line.partition(": ")[0].rpartition("/")[2] for line in str(caught.value).splitlines()] == [
        "a.setreg:1:1",
        "b.setreg:1:2",
    ]


def test_macros_are_replaced_by_folders(engine: SmallEngine) -> None:
    for name in ("one", "two", "three", "Gem/four"):
        (engine.project / name).mkdir(parents=True)
    engine.write("Game/project.json", {"project_name": "Game", "external_subdirectories": ["Gem"], "gem_names": ["Mine"]})
    engine.write("Game/Gem/gem.json", {"gem_name": "Mine"})
    watches = ["@ROOT@/Game/one", "@EngineRoot@/Game/two", "@PROJECTROOT@/three", "@GEMROOT:Mine@/four"]
    entries = {f"ScanFolder {at}": {"watch": watch, "order": at - 9} for at, watch in enumerate(watches)}
    engine.add({**entries, "ScanFolder x": {"watch": "@EXEFOLDER@"}, "ScanFolder y": {"watch": "@GEMROOT:None@"}})

    config = engine.load()

    assert [Path(folder.path).name for folder in config.project.scan_folders[:4]] == ["one", "two", "three", "four"]
    assert [warning.partition(": ")[2] for warning in config.warnings] == [
        "scan folder 'x' is not scanned, because '@EXEFOLDER@' has no value",
        "scan folder 'y' is not scanned, because '@GEMROOT:None@' has no value",
    ]


def test_scan_folder_names_its_platforms_by_id_or_tag(engine: SmallEngine) -> None:
    engine.add(
        {"Platforms": {"server": "enabled"}, "ScanFolder Root": {"exclude": "Server"}, "ScanFolder x": {"include": "unknown"}}
    )

    config = engine.load()

    assert [folder.platforms for folder in config.project.scan_folders] == [("linux", "server"), ("linux",), ("linux",)]
    assert [warning.partition(": ")[2] for warning in config.warnings] == [
        "scan folder 'x' is not scanned, because its setting 'watch' is missing"
    ]


def test_engine_root_is_never_scanned_recursively(engine: SmallEngine) -> None:
    engine.add({"ScanFolder Root": {"recursive": 1}})

    assert [folder.recursive for folder in engine.load().project.scan_folders] == [True, False, True]


def test_scan_folder_that_is_missing_or_inside_another_is_reported(engine: SmallEngine) -> None:
    (engine.project / "in").mkdir()
    engine.add({"ScanFolder in": {"watch": "@PROJECTROOT@/in", "order": 5}, "ScanFolder gone": {"watch": "@ROOT@/gone"}})

    config = engine.load()

    assert "in" not in dict(folders(config))
    assert [warning.partition(": ")[2] for warning in config.warnings] == [
        f"scan folder 'gone' does not exist: '{engine.root}/gone'",
        "scan folder 'in' has no files of its own: all belong to 'Project/Assets', which has precedence",
    ]
    assert f"{engine.root}/gone" in config.missing_folders


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, [("Project/Assets", 0), ("Out/Assets", 103), ("Out/Registry", 104)]),
        ({"GemScanFolderStartingPriorityOrder": 7}, [("Project/Assets", 0), ("Out/Assets", 10), ("Out/Registry", 11)]),
        (
            {"ProjectRelativeGemsScanFolderPriority": "higher"},
            [("In/Registry", -2), ("In/Assets", -1), ("Project/Assets", 0), ("Out/Assets", 103), ("Out/Registry", 104)],
        ),
        (
            {"ProjectRelativeGemsScanFolderPriority": "lower", "ScanFolder Project/Assets": {"order": 3}},
            [("Project/Assets", 3), ("Out/Assets", 103), ("Out/Registry", 104)],
        ),
    ],
)
def test_gems_add_scan_folders(engine: SmallEngine, given: dict[str, Any], expected: list[tuple[str, int]]) -> None:
    engine.write("engine.json", {"external_subdirectories": ["Gems/Out"], "gem_names": ["Out"]})
    engine.write("Game/project.json", {"project_name": "Game", "external_subdirectories": ["In"], "gem_names": ["In"]})
    for gem in ("Gems/Out", "Game/In"):
        engine.write(f"{gem}/gem.json", {"gem_name": Path(gem).name})
        engine.write(f"{gem}/Assets/a.txt", "")
        engine.write(f"{gem}/Registry/a.setreg", {})
    engine.add(given)

    assert [each for each in folders(engine.load()) if each[0] not in ("Root", "Engine")] == expected


def test_missing_gems_are_reported_once_if_they_are_not_optional(engine: SmallEngine) -> None:
    names = ["Here", "Gone", "Lost", {"name": "Spare", "optional": True}]
    engine.write("engine.json", {"engine_name": "small", "external_subdirectories": ["Here"]})
    engine.write("Here/gem.json", {"gem_name": "Here"})
    engine.write("Game/project.json", {"project_name": "Game", "gem_names": names})

    given = [text for text in engine.load().warnings if "gems" in text]
    assert given == ["gems were not found: Gone, Lost; the settings and assets of these gems are missing"]
    assert not any("gems" in text for text in engine.load(options=Options(has_gem_scan_folders=False)).warnings)

    engine.write("Game/project.json", {"project_name": "Game", "gem_names": [names[0], names[-1]]})
    assert not any("gems" in text for text in engine.load().warnings)


def test_command_line_adds_and_removes_scan_folders(engine: SmallEngine) -> None:
    more = engine.root.parent / "more"
    more.mkdir()

    alone = engine.load(options=Options(scan_folders=(str(more),), has_config_scan_folders=False))
    chosen = engine.load(options=Options(scan_folder_patterns=("*engineroot*",)))
    both = engine.load(options=Options(scan_folder_patterns=("*ENGINEROOT*", "@ROOT?")))

    assert folders(alone) == [("SF0", 0)]
    assert folders(chosen) == [("Engine", 20000)]
    assert folders(both) == [("Root", 10000), ("Engine", 20000)]


def test_scan_folder_is_not_recursive_by_default(engine: SmallEngine) -> None:
    engine.write("Game/one/a.txt", "")
    engine.write("Game/two/a.txt", "")
    engine.settings(
        {
            **PLATFORMS,
            "RC txt": {"glob": "*.txt", "params": "copy"},
            "ScanFolder one": {"watch": "@PROJECTROOT@/one"},
            "ScanFolder two": {"watch": "@PROJECTROOT@/two", "recursive": "1"},
        }
    )

    assert {each.name: each.recursive for each in engine.load().project.scan_folders if not each.is_intermediate} == {
        "one": False,
        "two": True,
    }


def test_recognizer_with_a_simple_glob_keeps_the_glob(engine: SmallEngine) -> None:
    config = engine.load()

    assert [(pattern.text, pattern.is_absolute) for pattern in builder(config, "txt").patterns] == [("*.txt", False)]
    assert wanted(config, "A/B.TXT") == ["txt"]


@pytest.mark.parametrize(
    ("rule", "hits", "misses"),
    [
        (
            {"pattern": r"(.*(Icons|Editor\\/Icons)\\/).*\\.(png|svg)"},
            ["Icons/a.png", "x/editor/icons/b.svg"],
            ["Icons.png", "a.png"],
        ),
        ({"pattern": r"^(?!.*Preload.txt).*\\.dat"}, ["a.dat"], ["Preload.txt.dat", "a.txt"]),
        ({"pattern": r"^((?!\\/level\\.pak).)*\\.pak$"}, ["a.pak", "levels.pak"], ["x/level.pak", "level.pak"]),
        ({"pattern": r".*/Game/a\.x"}, ["a.x"], ["b/a.x", "ba.x"]),
        ({"glob": "*/Game/a?.x"}, ["ab.x"], ["a.x", "b/ab.x"]),
        ({"pattern": ".*/[[:digit:]]+\\\\.x"}, ["12.x"], ["a1.x"]),
    ],
)
def test_recognizer_matches_the_absolute_path_of_a_source(
    engine: SmallEngine, rule: dict[str, str], hits: list[str], misses: list[str]
) -> None:
    engine.settings({**PLATFORMS, **SCAN_FOLDERS, "RC it": {**rule, "params": "copy"}})

    config = engine.load()
    project = replace(config.project, scan_folders=(replace(config.project.scan_folders[0], id=7),))
    planner = Planner(project, SettingsTree(project))

    assert [rel for rel in hits + misses if wanted(config, rel)] == hits
    root = config.project.scan_folders[0].path
    assert [rel for rel in hits + misses if matches(config.project.builders[0].patterns[0], rel, root)] == hits
    assert planner.wants(RelPath(hits[0]), 7)
    assert not planner.wants(RelPath(misses[0]), 7)


def test_doubled_backslashes_in_a_pattern_are_halved() -> None:
    assert python_regex(r".+\\.tga$") == python_regex(r".+\.tga$") == r".+\.tga$"
    assert python_regex(r"(^|.+/)\\$tmp[0-9]*_.*") == r"(^|.+/)\$tmp[0-9]*_.*"
    assert python_regex("[[:alpha:]_]") == "[a-zA-Z_]"


@pytest.mark.parametrize(
    ("rule", "platforms"),
    [
        ({"params": "copy"}, ["linux", "server"]),
        ({"params": "copy", "server": "skip"}, ["linux"]),
        ({"params": "skip", "tools": "copy"}, ["linux"]),
        ({"params": "skip", "TOOLS": "Copy", "linux": "skip", "server": "copy"}, ["server"]),
        ({"params": "copy", "renderer": "skip", "linux": "copy"}, ["linux", "server"]),
        ({"server": "copy"}, ["linux", "server"]),
        ({"server": "skip"}, ["linux"]),
        ({"params": "copy", "nobody": "skip"}, ["linux", "server"]),
        ({"params": "skip"}, []),
        ({"params": "copy", "ignore": True}, []),
        ({"params": "/optimise"}, ["linux", "server"]),
        ({"params": "SKIP", "renderer": "/optimise"}, ["linux"]),
    ],
)
def test_rule_selects_platforms(engine: SmallEngine, rule: dict[str, Any], platforms: list[str]) -> None:
    engine.add({"Platforms": {"server": "enabled"}, "RC it": {"glob": "*.it", **rule}})

    found = [each for each in engine.load().project.builders if each.name == "it"]

    assert [platform for each in found for platform in each.platforms] == platforms


def test_copy_rule_sets_version_and_priority_and_asset_type(engine: SmallEngine) -> None:
    given = {
        "priority": "7",
        "version": 2,
        "lockSource": True,
        "checkServer": True,
        "productAssetType": "a471b2a9-85fc-4993-842d-1881cbc03a2b",
    }
    engine.add({"SJ it": {"glob": "*.it", "params": "copy", **given}})

    it, txt = builder(engine.load(), "it"), builder(engine.load(), "txt")

    assert (it.priority, it.version, it.asset_type.hex()) == (7, "2", "a471b2a985fc4993842d1881cbc03a2b")
    assert it.is_critical
    assert txt.is_critical


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"pattern": "(a", "params": "copy"}, "not a regular expression"),
        ({"params": "copy"}, "rule 'it' is ignored, because it has neither 'glob' nor 'pattern'"),
        ({"glob": "*.a", "params": "x"}, "'params' of rule 'it' is neither copy nor skip, so it is treated as copy"),
        (
            {"glob": "*.a", "params": "copy", "tools": "x"},
            "'tools' of rule 'it' is neither copy nor skip, so it is treated as copy",
        ),
        ({"glob": "*.a", "params": "copy", "priority": "high"}, "this priority is ignored"),
        ({"glob": "*.a", "params": "copy", "priority": "1e999"}, "this priority is ignored"),
        ({"glob": "*.a", "params": "copy", "priority": str(1 << 63)}, "this priority is ignored"),
        ({"glob": "*.a", "params": "copy", "productAssetType": "{x}"}, "this asset type is ignored"),
    ],
)
def test_invalid_rule_is_reported_with_its_place(engine: SmallEngine, rule: dict[str, str], message: str) -> None:
    file = engine.add({"RC it": rule})

    warnings = engine.load().warnings

    assert len(warnings) == 1
    assert re.match(rf"{file}:\d+:\d+: {re.escape(message)}", warnings[0])


def test_recognizer_replaces_an_earlier_recognizer_of_the_same_name(engine: SmallEngine) -> None:
    engine.add({"SJ txt": {"glob": "*.text", "params": "copy"}})

    config = engine.load()

    assert [pattern.text for pattern in builder(config, "txt").patterns] == ["*.text"]
    assert "replaces another rule with the name 'txt'" in config.warnings[0]


def test_unknown_keys_in_settings_are_accepted(engine: SmallEngine) -> None:
    engine.add(
        {"Whatever": {"x": [1]}, "RC": 7, "RC odd": "text", "Exclude": None, "RC it": {"glob": "*.it", "params": "copy", "new": 1}}
    )

    assert engine.load().warnings == ()


def test_exclude_pattern_matches_the_relative_path_of_a_source(engine: SmallEngine) -> None:
    engine.add(
        {
            "Exclude a": {"glob": "user/*"},
            "Exclude b": {"pattern": r"(^|.+/)\\$tmp[0-9]*_.*", "glob": "never"},
            "Exclude c": {"glob": "*/_savebackup/*"},
            "Exclude d": {},
        }
    )

    config = engine.load()
    is_ignored = ignore_matcher(config.project.ignore_regex)

    ignored = ["User/a", "user/b/c", "$tmp1_x", "a/$TMP_/b", "l/_savebackup/x/y"]
    included = ["x/user/a", "user", "_savebackup/x", "tmp1_x", "never", "a.tmp", ".git"]
    assert [path for path in ignored + included if is_ignored(path)] == ignored
    assert [warning.partition(": ")[2] for warning in config.warnings] == [
        "exclude 'd' is ignored, because it has neither 'glob' nor 'pattern'"
    ]


def test_exclude_pattern_with_a_back_reference_is_reported(engine: SmallEngine) -> None:
    engine.add({"Exclude a": {"pattern": r"(a)\\1"}})

    assert "back references" in engine.load().warnings[0]


def test_metadata_type_is_an_extension_or_a_path(engine: SmallEngine) -> None:
    types = {"exportsettings": "", "cbc": "abc", "fbx.assetinfo": "fbx", "Animations/List.xml": "i_caf", "lost/path.xml": ""}
    engine.add({"MetaDataTypes": types})
    engine.write(
        "Registry/importer.setreg", {"O3DE": {"SceneAPI": {"AssetImporter": {"SupportedFileTypeExtensions": [".fbx", ".STL"]}}}}
    )

    config = engine.load()

    def given(companion: Companion) -> tuple[str, str, str, str]:
        return companion.source.text, companion.suffix, companion.replaces, companion.file

    assert [given(companion) for companion in config.project.companions] == [
        ("*", "exportsettings", "", ""),
        ("*.abc", "cbc", "abc", ""),
        ("*.fbx", "assetinfo", "", ""),
        ("*.i_caf", "", "", "Animations/List.xml"),
        ("*.STL", "assetinfo", "", ""),
    ]
    assert "'lost/path.xml' is ignored, because it names no extension of sources" in config.warnings[0]


@pytest.mark.parametrize(("given", "cores", "count"), [(0, 2, 2), (1, 4, 3), (0, 6, 5), (0, 16, 14), (5, 2, 5), ("x", 2, 2)])
def test_maxjobs_setting_sets_the_number_of_workers(
    engine: SmallEngine, monkeypatch: pytest.MonkeyPatch, given: object, cores: int, count: int
) -> None:
    monkeypatch.setattr("aptui.config.dirs.core_count", lambda: cores)
    monkeypatch.setattr("aptui.features.o3de.project.o3de_settings.core_count", lambda: cores)
    engine.add({"Jobs": {"maxJobs": given}})

    assert engine.load().workers == count


def test_metadata_settings_are_translated(engine: SmallEngine) -> None:
    metadata = {"EnabledTypes": [".PNG", "tif"], "MetaCreationDelayMs": 1500}
    engine.write("Registry/m.setreg", {"O3DE": {"AssetProcessor": {"Settings": {"Metadata": metadata}}}})

    config = engine.load()

    assert (config.project.metadata_types, config.meta_delay_ms) == ((".png", ".tif"), 1500)


def test_settings_that_aptui_yaml_cannot_contain_are_stored_as_facts(engine: SmallEngine) -> None:
    engine.add(
        {
            "Stats": {"HumanReadable": False, "MachineReadable": True, "MaxCumulativeStats": 2},
            "BuilderManager": {"StartupTimeoutSeconds": 7},
            "Jobs": {"AlwaysUseMaxJobs": True},
            "Fingerprinting": {"UseFileHashing": False},
        }
    )
    server = {"cacheServerAddress": "/mnt/shared", "assetCacheServerMode": "Client", "ACS Scenes": {"pattern": ".*fbx"}}
    user = {"zeroAnalysisMode": True, "initialScanSkippingEnabled": True, "enableBuilderDebugFlag": True, "verboseLogging": True}
    engine.write("Game/Registry/s.setreg", {"O3DE": {"AssetProcessor": {"Settings": {"Server": server}, "UserSettings": user}}})
    engine.write("Game/Registry/t.setreg", {"Amazon": {"Settings": {"EnableSourceControl": True}}})

    config = engine.load()
    found = facts(config)

    assert found.stats == StatsForm(is_human=False, is_machine=True, cumulative=2)
    assert found.user == UserSettings(zero_analysis=True, skips_start_scan=True, debug_output=True, is_verbose=True)
    assert (found.engine, found.bootstrap["project_path"]) == (str(engine.root), str(engine.project))
    assert config.project.debug_output
    assert [warning.partition(": ")[2] or warning for warning in config.warnings] == [
        "this setting is not used, because files are always identified by their content",
        "Server address (/mnt/shared) is invalid! Reverting back to (), because the folder does not exist; no shared cache is used",
    ]
    assert config.sharing.mode == "inactive"


def test_shared_cache_settings_are_translated(engine: SmallEngine, tmp_path: Path) -> None:
    server = {
        "cacheServerAddress": str(tmp_path),
        "assetCacheServerMode": "Client",
        "ACS Images": {"name": "Image Builder", "glob": "*.png", "checkServer": False},
        "ACS Scenes": {"pattern": ".*fbx", "productAssetType": "{A471B2A9-85FC-4993-842D-1881CBC03A2B}"},
    }
    engine.write("Game/Registry/s.setreg", {"O3DE": {"AssetProcessor": {"Settings": {"Server": server}}}})

    sharing = engine.load().sharing

    assert (sharing.mode, sharing.store) == ("client", str(tmp_path))
    assert [(each.name, each.pattern.text, each.is_enabled) for each in sharing.patterns] == [
        ("Image Builder", "*.png", False),
        ("Scenes", ".*fbx", True),
    ]


def test_older_shared_cache_setting_is_translated(engine: SmallEngine, tmp_path: Path) -> None:
    server = {"enableCacheServer": True, "cacheServerAddress": str(tmp_path)}
    engine.write("Game/Registry/s.setreg", {"O3DE": {"AssetProcessor": {"Settings": {"Server": server}}}})

    sharing = engine.load().sharing

    assert (sharing.mode, sharing.store) == ("server", str(tmp_path))


def test_registry_settings_choose_the_cache_folder_and_the_log_folder(engine: SmallEngine) -> None:
    sets = ["/Amazon/AzCore/Bootstrap/project_cache_path=/elsewhere/Cache", "/Amazon/AzCore/Bootstrap/project_log_path=logs"]

    config = engine.load(sets=sets)

    assert (config.cache_dir, config.log_dir) == (Path("/elsewhere/Cache"), engine.project / "logs")
    assert engine.load().log_dir == engine.project / "user" / "log"
    assert engine.load(sets=["/Amazon/AzCore/Bootstrap/project_user_path=/elsewhere/user"]).log_dir == Path("/elsewhere/user/log")


def test_project_settings_override_settings_in_the_build_folder(engine: SmallEngine) -> None:
    build = "Game/build/linux/bin/profile/Registry"
    engine.write(f"{build}/cmake_dependencies.game.assetprocessor.setreg", {"O3DE": {"Gems": {}}})
    engine.settings({"Jobs": {"maxJobs": 9}, "GemScanFolderStartingPriorityOrder": 5}, f"{build}/a.setreg")
    engine.settings({"Jobs": {"maxJobs": 7}}, "Game/Registry/a.setreg")
    engine.settings({"Jobs": {"maxJobs": 6}}, "Game/Registry/a.GAME.setreg")
    engine.settings({"Jobs": {"maxJobs": 8}}, "Game/Registry/a.other.setreg")

    assert engine.load().workers == 6
    given = explain(engine.project, "GemScanFolderStartingPriorityOrder")
    assert given[-1].where.startswith(f"{engine.root}/{build}/a.setreg")


def test_regset_and_regremove_take_effect_in_command_line_order(engine: SmallEngine) -> None:
    platforms = "/Amazon/AssetProcessor/Settings/Platforms"
    engine.add({"Platforms": {"server": "enabled"}})

    first = engine.load(options=Options((("regremove", platforms), ("regset", f"{platforms}/pc=enabled"))))
    last = engine.load(options=Options((("regset", f"{platforms}/pc=enabled"), ("regremove", platforms))))

    assert [platform.id for platform in first.project.platforms] == ["linux", "pc"]
    assert [platform.id for platform in last.project.platforms] == ["linux"]


def test_builder_config_overrides_jobs_and_builders(engine: SmallEngine) -> None:
    engine.write(
        "Game/BuilderConfig.ini",
        "[Job txt]\nfingerprint=f2\npriority=9\n[Job json]\nparams=skip\n[Builder upper]\nversion=4\n"
        "patterns=*.up,.*x=regex\nflags=2\n[odd]\n",
    )
    engine.write("Game/aptui.yaml", "builders: [{name: upper, command: 'cp {source} {products_dir}', patterns: ['*.u']}]\n")

    config = engine.load()

    assert [each.name for each in config.project.builders] == ["txt", "upper"]
    txt, upper = config.project.builders
    assert (txt.version, txt.priority) == ("1 f2", 9)
    assert (upper.version, upper.deletes_products_on_failure) == ("4", True)
    assert [(pattern.text, pattern.is_absolute) for pattern in upper.patterns] == [("*.up", False), (".*x", True)]
    assert facts(config).job_overrides[0] == JobOverride("txt", fingerprint="f2", priority=9)
    assert config.warnings == (
        f"{engine.project}/BuilderConfig.ini:10:1: section '[odd]' is neither '[Builder NAME]' nor '[Job KEY]'",
    )
