"""The proposal of `aptui init`: rules that fit the game engine, without the engine's own files."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from tools import needs_feature

from aptui.cli import main
from aptui.config import proposal
from aptui.config.load import load
from aptui.core.paths import as_text
from aptui.core.patterns import PatternSet, ignore_matcher
from aptui.shared.errors import UserError

TREES = {
    "Godot": (
        {"project.godot", "art/a.png", "art/a.png.import", "main.gd", "main.tscn", ".godot/x.json"},
        ".",
        {"textures"},
    ),
    "Unity": (
        {"ProjectSettings/ProjectVersion.txt", "Assets/a.png", "Assets/a.png.meta", "Assets/x.unity", "Library/y.png"},
        "Assets",
        {"textures"},
    ),
    "Unreal": ({"Game.uproject", "Content/a.uasset", "Saved/b.png", "Intermediate/c.json", "Art/d.wav"}, ".", {"sounds"}),
    "Defold": ({"game.project", "a.go", "b.collection", "build/c.json", "assets/d.ogg"}, ".", {"sounds"}),
    "Bevy": ({"Cargo.toml", "assets/a.gltf", "assets/a.bin", "src/main.rs", "target/x.json"}, "assets", {"models"}),
    "web": ({"package.json", "public/a.png", "node_modules/x/y.png", "dist/a.png"}, "public", {"textures"}),
    "files": ({"a.png", "b.wav", "c.xyz"}, ".", {"textures", "sounds", "files"}),
}


def tree(root: Path, names: set[str]) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text('bevy = "0.15"\n' if name == "Cargo.toml" else "")
    return root


@pytest.mark.parametrize("engine", TREES)
def test_proposal_has_the_rules_of_each_game_engine(tmp_path: Path, engine: str) -> None:
    names, root, rules = TREES[engine]

    found = proposal.propose(tree(tmp_path, names))

    assert (found.engine.name, found.root) == (engine, root)
    assert {rule.name for rule in found.rules} == rules
    assert all(rule.count == 1 for rule in found.rules)
    proposal.write(found)
    assert {builder.name for builder in load(tmp_path).project.builders} == rules


@pytest.mark.parametrize("name", ["Cargo.toml", "project.json", "builders/own.py", "assets/a.tmx", "Cache/CACHEDIR.TAG"])
def test_pipe_in_place_of_a_file_does_not_block_init(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    os.mkfifo(tmp_path / name)
    (tmp_path / "a.png").write_text("")

    assert main.main(["init", str(tmp_path)]) == 0

    assert (tmp_path / "aptui.yaml").is_file()
    assert (tmp_path / name).is_fifo()


def test_pipe_in_place_of_gitignore_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / ".git").mkdir()
    os.mkfifo(tmp_path / ".gitignore")

    assert main.main(["init", str(tmp_path)]) == 2
    assert "it is not a regular file; add the line '/Cache/'" in capsys.readouterr().err


def test_a_folder_of_art_gets_builders_for_sprites_maps_and_texts(tmp_path: Path) -> None:
    names = {"hud.atlas", "maps/a.tmx", "maps/a.tsx", "world.ldtk", "locale/de.po", "locale/messages.pot", "items.csv"}

    found = proposal.propose(tree(tmp_path, names))

    assert {rule.name: (rule.does, rule.patterns) for rule in found.rules} == {
        "sprites": ("atlas", ("*.atlas",)),
        "maps": ("tilemap", ("*.tmx", "*.ldtk")),
        "texts": ("locale", ("*.po",)),
        "tables": ("table", ("*.csv",)),
    }


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b'(supertux-level\n  (version 3)\n  (name (_ "Welcome to Antarctica"))' + b" " * 80, "files"),
        (b"solid cube\n", "meshes"),
        (bytes(80) + b"\x01\0\0\0" + bytes(50), "meshes"),
    ],
)
def test_stl_file_gets_the_mesh_builder_only_if_it_contains_a_mesh(tmp_path: Path, content: bytes, rule: str) -> None:
    (tmp_path / "a.stl").write_bytes(content)

    assert [each.name for each in proposal.propose(tmp_path).rules] == [rule]


def test_proposal_excludes_files_that_would_make_the_product_of_another_file(tmp_path: Path) -> None:
    names = {"art/Sky.jpg", "art/sky.png", "sounds/grow.ogg", "sounds/grow.wav", "sounds/hop.ogg", "ui/a.png", "icons/ui.ogg"}

    found = proposal.propose(tree(tmp_path, names))

    excluded = {rule.name: (rule.keys.get("exclude"), rule.count) for rule in found.rules}
    assert excluded == {"textures": (["art/Sky.jpg"], 2), "sounds": (["sounds/grow.ogg"], 3)}


def test_init_prints_at_most_five_excluded_files_with_the_files_used_instead(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"art/Sky.jpg", "art/sky.png", *(f"sounds/{number}.{kind}" for number in range(7) for kind in ("wav", "ogg"))}

    assert main.main(["init", str(tree(tmp_path, names))]) == 0

    lines = capsys.readouterr().out.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("  excluded"))
    assert lines[first].endswith(" 8 files  another file makes a product of the same name")
    assert [line.strip() for line in lines[first + 1 : first + 7]] == [
        "art/Sky.jpg (art/sky.png is used)",
        *(f"sounds/{number}.ogg (sounds/{number}.wav is used)" for number in range(4)),
        "and 3 more",
    ]
    text = (tmp_path / "aptui.yaml").read_text()
    for count in ("1 file", "7 files"):
        assert f"\n  # excluded: {count}, because another file makes a product of the same name\n  - " in text


@pytest.mark.parametrize("stem", ["lat\udcefn", "new\nline", "back\\slash", "star*", "what?", "tab\t", "!a: #{b}", " 🔥"])
def test_proposal_excludes_a_file_whose_name_a_pattern_cannot_contain(tmp_path: Path, stem: str) -> None:
    names = {f"art/{stem}.jpg", f"art/{stem}.png"}

    proposal.write(proposal.propose(tree(tmp_path, names)))

    builders = PatternSet([builder.patterns for builder in load(tmp_path).project.builders])
    assert [name for name in sorted(names) if builders.builders_for(name)] == [f"art/{stem}.png"]


def test_proposal_ignores_files_of_desktops_and_editors(tmp_path: Path) -> None:
    left_behind = {"Thumbs.db", "sub/desktop.ini", "a.png~", "#b.png#", ".~lock.c.odt#", "__pycache__/x.png"}

    found = proposal.propose(tree(tmp_path, {"a.png", *left_behind}))

    assert [(rule.name, rule.patterns, rule.count) for rule in found.rules] == [("textures", ("*.png",), 1)]
    assert not found.left


@pytest.mark.parametrize(
    "name", [".bracket[", ".set[ab]", ".backslash\\", ".line\nbreak", ".blank ", ".byte\udcff", f".emoji\U0001f600{'x' * 100}"]
)
def test_hidden_file_of_any_name_is_ignored_in_the_new_project(tmp_path: Path, name: str) -> None:
    proposal.write(proposal.propose(tree(tmp_path, {"a.png", name})))

    assert ignore_matcher(load(tmp_path).project.ignore_regex)(as_text(name))


def test_builder_whose_program_is_missing_is_written_as_a_comment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposal.shutil, "which", lambda _name: None)

    found = proposal.propose(tree(tmp_path, {"x.frag", "y.json"}))

    assert '  # - {name: shaders, uses: shader, patterns: ["*.frag"]}  # needs the program glslangValidator' in found.text()
    proposal.write(found)
    assert [builder.name for builder in load(tmp_path).project.builders] == ["data"]


MATERIALS = {"art/wall.png", "art/wall_n.png", "art/Wall_ORM.tga", "art/ui/button.png", "art/hero.png"}


def test_init_proposes_texture_builder_for_names_of_material_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposal, "find_spec", lambda _module: True)
    found = proposal.propose(tree(tmp_path, MATERIALS))

    assert [(rule.name, rule.does, rule.count) for rule in found.rules] == [("textures", "texture", 5)]
    proposal.write(found)
    config = load(tmp_path)
    (builder,) = config.project.builders
    assert [([each.text for each in rule.patterns], rule.params) for rule in builder.rules] == [(["*/ui/*"], '{"usage":"ui"}')]
    assert [each.id for each in config.project.platforms if "mobile" in each.tags] == ["mobile"]


def test_folder_with_only_interface_pictures_gets_no_texture_rule(tmp_path: Path) -> None:
    found = proposal.propose(tree(tmp_path, {"ui/button.png", "hero.png"}))

    assert [(rule.does, rule.keys) for rule in found.rules] == [("image", {})]


def test_texture_rule_without_its_package_becomes_a_comment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposal, "find_spec", lambda _module: None)

    found = proposal.propose(tree(tmp_path, MATERIALS))

    assert [(rule.does, rule.lacks) for rule in found.rules] == [
        ("texture", "needs a Python package: pip install etcpak astc-encoder-py"),
        ("image", ""),
    ]
    proposal.write(found)
    assert [builder.origin for builder in load(tmp_path).project.builders] == ["entry:image"]


def test_proposal_whose_rules_are_all_commented_out_has_no_builders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposal.shutil, "which", lambda _name: None)

    proposal.write(proposal.propose(tree(tmp_path, {"x.frag"})))

    assert load(tmp_path).project.builders == ()


@pytest.mark.parametrize("line", ['patterns = ["*.atlas"]', 'patterns: tuple = ("*.ATLAS",)', 'name, patterns = "x", ("*.atlas",)'])
def test_proposal_does_not_copy_files_that_a_project_builder_processes(tmp_path: Path, line: str) -> None:
    folder = tree(tmp_path, {"a.atlas", "b.xyz", "builders/x.py", "builders/broken.py"})
    (folder / "builders/x.py").write_text(f"raise SystemExit\nclass Atlas:\n    {line}\n")
    (folder / "builders/broken.py").write_text("class (")

    (rule,) = proposal.propose(folder).rules

    assert (rule.does, rule.patterns) == ("copy", ("*.xyz",))


def test_project_whose_own_builders_cover_all_files_gets_no_rule(tmp_path: Path) -> None:
    folder = tree(tmp_path, {"a.atlas", "builders/x.py"})
    (folder / "builders/x.py").write_text('class Atlas:\n    patterns = ["*.atlas"]\n')

    found = proposal.propose(folder)

    assert (found.rules, "builders: []" in found.text()) == ((), True)


def test_cache_is_added_to_the_missing_target_of_a_linked_gitignore(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").symlink_to("ignored")

    proposal.write(proposal.propose(tmp_path))

    assert (tmp_path / "ignored").read_text() == "/Cache/\n"


def test_cache_is_added_to_gitignore_only_once(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("*.o")

    assert proposal.write(proposal.propose(tmp_path))[1] == tmp_path / ".gitignore"
    assert (tmp_path / ".gitignore").read_text() == "*.o\n/Cache/\n"
    assert (tmp_path / "Cache" / "CACHEDIR.TAG").is_file()
    (tmp_path / "aptui.yaml").unlink()
    assert proposal.write(proposal.propose(tmp_path))[1] is None


def test_cache_outside_a_git_repository_is_tagged_for_backup_programs(tmp_path: Path) -> None:
    tag = tmp_path / "Cache" / "CACHEDIR.TAG"

    assert proposal.write(proposal.propose(tmp_path))[1] == tag
    assert sorted(file.name for file in tmp_path.iterdir()) == ["Cache", "aptui.yaml"]
    assert tag.read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55\n")


def test_a_dry_run_shows_the_proposal_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree(tmp_path, {"project.godot", "a.png", "b.gd"})

    assert main.main(["init", str(tmp_path), "--dry-run"]) == 0

    output = capsys.readouterr().out
    assert "a Godot project" in output
    assert "textures   image        1 file  *.png" in output
    assert "1 *.gd" in output
    assert '  - {name: textures, uses: image, patterns: ["*.png"]}' in output
    assert not (tmp_path / "aptui.yaml").exists()


def test_schema_named_in_the_file_exists_at_the_printed_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main.main(["init", str(tmp_path)])
    (words,) = re.findall(r"the path that 'aptui ([^']*)' prints", (tmp_path / "aptui.yaml").read_text())
    capsys.readouterr()

    assert main.main(words.split()) == 0
    assert json.loads(Path(capsys.readouterr().out.strip()).read_text())["$schema"]


def test_project_inside_another_project_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main.main(["init", str(tmp_path)])
    (tmp_path / "inner").mkdir()

    assert main.main(["init", str(tmp_path / "inner")]) == 0
    assert f"would be inside the project '{tmp_path}'" in capsys.readouterr().err


@needs_feature("o3de")
def test_o3de_project_needs_no_init(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "project.json").write_text('{"project_name": "Game"}')

    assert main.main(["init", str(tmp_path)]) == 3
    assert "does not need an aptui.yaml" in capsys.readouterr().err


def test_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a folder"):
        proposal.propose(tmp_path / "nowhere")
