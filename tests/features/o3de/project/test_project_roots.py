"""The engine and the gems of a project."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_engine import SmallEngine

from aptui.cli import main
from aptui.features.o3de.project.project_roots import Gem, ProjectRoots, locate
from aptui.features.o3de.project_facts import Options, is_project
from aptui.features.o3de.registry.input_recorder import InputRecorder
from aptui.features.o3de.registry.settings_registry import os_name
from aptui.shared.errors import UserError


def find(engine: SmallEngine, project: Path | None = None, options: Options | None = None) -> ProjectRoots:
    return locate(str(project or engine.project), options or Options(), InputRecorder())


def lone(engine: SmallEngine, text: str = '{"project_name": "Lone"}') -> Path:
    """Create a project outside the folder of the O3DE engine; return the project folder."""
    folder = engine.root.parent / "lone"
    folder.mkdir()
    (folder / "project.json").write_text(text)
    return folder


def test_manifest_with_project_name_marks_a_project(tmp_path: Path) -> None:
    (tmp_path / "project.json").write_text('{"name": "of something else"}')

    assert not is_project(str(tmp_path))
    assert not is_project(str(tmp_path / "none"))

    (tmp_path / "project.json").write_text('{"project_name": "Mine"}')
    assert is_project(str(tmp_path))


@pytest.mark.parametrize("text", ["7", "[]", '["project_name"]', "{", ""])
def test_manifest_that_is_not_a_json_object_is_refused(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "project.json").write_text(text)
    monkeypatch.chdir(tmp_path / "below")

    for words in (["config", "--project", str(tmp_path)], ["config"]):
        assert main.main(words) == 3
        assert f"{tmp_path / 'project.json'}:1:" in capsys.readouterr().err


def test_manifest_of_another_program_is_ignored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "project.json").write_text('{"name": "of something else"}')

    assert main.main(["config", "--project", str(tmp_path)]) == 3
    assert "no 'aptui.yaml' in" in capsys.readouterr().err


def test_engine_whose_folder_contains_the_project_is_found(engine: SmallEngine) -> None:
    places = find(engine)

    assert (places.name, places.engine, places.asset_root) == ("Game", str(engine.root), str(engine.root))


def test_engine_path_comes_from_a_switch_or_the_project_json_of_the_user(engine: SmallEngine) -> None:
    folder = lone(engine)

    message = find(engine, folder, Options(regset=(f"/Amazon/AzCore/Bootstrap/engine_path={engine.root}",)))
    assert message.engine == str(engine.root)

    (folder / "user").mkdir()
    (folder / "user" / "project.json").write_text(f'{{"engine_path": "{engine.root}"}}')
    assert find(engine, folder).engine == str(engine.root)


def test_engine_path_setting_of_a_missing_folder_is_refused(engine: SmallEngine) -> None:
    with pytest.raises(UserError, match="the O3DE engine folder '/no/such' does not exist"):
        find(engine, options=Options(regset=("/Amazon/AzCore/Bootstrap/engine_path=/no/such",)))


@pytest.mark.parametrize(
    ("manifest", "wanted"),
    [
        ('{"engines_path": {"small": "ENGINE", "other": "/x"}}', "small"),
        ('{"engines": ["/gone", "ENGINE"]}', "small>=1.0"),
        ('{"engines": ["ENGINE"]}', ""),
    ],
)
def test_engine_named_in_the_manifest_of_the_user_is_found(engine: SmallEngine, manifest: str, wanted: str) -> None:
    home = engine.root.parent / "home" / ".o3de"
    home.mkdir(parents=True)
    (home / "o3de_manifest.json").write_text(manifest.replace("ENGINE", str(engine.root)))

    assert find(engine, lone(engine, f'{{"project_name": "Lone", "engine": "{wanted}"}}')).engine == str(engine.root)


@pytest.mark.parametrize(("path", "is_link"), [("build/bin/profile/AssetProcessorBatch", False), ("AssetProcessorBatch", True)])
def test_o3de_engine_in_a_folder_above_the_program_is_found(engine: SmallEngine, path: str, is_link: bool) -> None:
    program = engine.root / path
    if is_link:
        program.symlink_to("/usr/bin/env")

    assert find(engine, lone(engine), Options(program=str(program))).engine == str(engine.root)


def test_project_inside_an_engine_may_name_another_registered_engine(engine: SmallEngine) -> None:
    other, home = engine.root.parent / "other", engine.root.parent / "home" / ".o3de"
    for folder in (other, home):
        folder.mkdir(parents=True)
    (other / "engine.json").write_text('{"engine_name": "other"}')
    (home / "o3de_manifest.json").write_text(f'{{"engines_path": {{"other": "{other}", "o3de": "/elsewhere"}}}}')
    engine.write("engine.json", {"engine_name": "o3de"})

    engine.write("Game/project.json", {"project_name": "Game", "engine": "other"})
    assert find(engine).engine == str(other)

    engine.write("Game/project.json", {"project_name": "Game", "engine": "o3de"})
    assert find(engine).engine == str(engine.root)


def test_folder_with_platform_settings_is_used_as_engine(engine: SmallEngine) -> None:
    (engine.root / "engine.json").unlink()
    assert find(engine).engine == str(engine.root)

    places = find(engine, lone(engine), Options(asset_root=str(engine.root)))

    assert (places.engine, places.asset_root) == (str(engine.root), str(engine.root))


def test_error_without_an_engine_has_a_hint(engine: SmallEngine) -> None:
    with pytest.raises(
        UserError, match=r"no O3DE engine was found for project '.*lone'; name the folder of the O3DE engine: --engine-path DIR"
    ):
        find(engine, lone(engine))


def gems_of(engine: SmallEngine) -> None:
    engine.write("engine.json", {"external_subdirectories": ["Gems/A", "Gems/B", "Gems/Gone"], "gem_names": ["B"]})
    engine.write("Gems/A/gem.json", {"gem_name": "A", "external_subdirectories": ["Inner"]})
    engine.write("Gems/A/Inner/gem.json", {"gem_name": "Inner", "dependencies": ["B", "Nowhere"]})
    engine.write("Gems/B/gem.json", {"gem_name": "B"})
    engine.write("Game/Gem/gem.json", {"gem_name": "Game"})


def test_gems_that_another_gem_depends_on_are_included(engine: SmallEngine) -> None:
    gems_of(engine)
    gems = ["Game", {"name": "Inner", "optional": True}, "Missing==1.0"]
    engine.write("Game/project.json", {"project_name": "Game", "external_subdirectories": ["Gem"], "gem_names": gems})

    places = find(engine)

    assert places.gems == (
        Gem("Game", str(engine.project / "Gem")),
        Gem("Inner", str(engine.root / "Gems" / "A" / "Inner")),
        Gem("B", str(engine.root / "Gems" / "B")),
    )
    assert places.missing == ("Missing", "Nowhere")


def test_project_gem_overrides_engine_gem(engine: SmallEngine) -> None:
    gems_of(engine)
    engine.write("Game/B/gem.json", {"gem_name": "B"})
    engine.write("Game/project.json", {"project_name": "Game", "external_subdirectories": ["B"]})

    assert find(engine).gems == (Gem("B", str(engine.project / "B")),)


def test_active_gems_are_read_from_the_gem_list_of_the_build(engine: SmallEngine) -> None:
    gems_of(engine)
    file = "Game/build/linux/bin/profile/Registry/cmake_dependencies.game.assetbuilder.setreg"
    engine.write(file, {"O3DE": {"Gems": {"A": {}, "Other": {"SourcePaths": ["Elsewhere/Other"]}}}})

    places = find(engine)

    assert places.gems == (Gem("A", str(engine.root / "Gems" / "A")), Gem("Other", str(engine.root / "Elsewhere" / "Other")))
    assert places.program == str(engine.project / "build" / "linux" / "bin" / "profile")


def test_gem_list_of_the_build_is_read_in_its_new_and_old_format(engine: SmallEngine) -> None:
    gems_of(engine)
    today = {"O3DE": {"Gems": {"B": {"Targets": {"B.Tools": {"Modules": ["libB.Tools.so"]}, "B.Builders": {}}}}}}
    older = {"Amazon": {"Gems": {f"Old.{part}": {"Module": "x", "SourcePaths": ["Gems/Old"]} for part in ("Editor", "Builders")}}}
    build = engine.root.parent / "build"
    options = Options(regset=(f"/Amazon/Project/Settings/Build/project_build_path={build}",))

    for message, folder, gem in (
        (today, f"bin/{os_name()}/profile", Gem("B", str(engine.root / "Gems" / "B"))),
        (older, "bin/profile", Gem("Old", str(engine.root / "Gems" / "Old"))),
    ):
        engine.write(str(build / folder / "Registry" / "cmake_dependencies.assetprocessor.setreg"), message)
        places = find(engine, options=options)

        assert (places.gems, places.program) == ((gem,), str(build / folder))


def test_error_about_an_invalid_manifest_names_the_line(engine: SmallEngine) -> None:
    engine.write("Game/project.json", '{"project_name": "Game",\n oops}')

    with pytest.raises(UserError, match=r"project\.json:2:2: not valid JSON"):
        find(engine)
