"""The proposal of `aptui init` for the art of a game: GPU textures, pages of sprites, sounds, fonts and translations."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from aptui.config import proposal
from aptui.config.load import load

SMALL, LARGE = (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", side, 16) for side in (16, 2048))
SHEET = b'{"frames": {}, "meta": {"app": "https://www.aseprite.org/", "image": "hero.png"}}'


@pytest.fixture(autouse=True)
def _all_packages_and_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposal, "find_spec", lambda _module: True)
    monkeypatch.setattr(proposal.shutil, "which", lambda name: f"/usr/bin/{name}")


def propose(root: Path, files: dict[str, bytes] | set[str]) -> dict[str, Any]:
    """Write files, propose and load a project; return {name of a builder: its entry in the aptui.yaml}."""
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(files[name] if isinstance(files, dict) else b"")
    proposal.write(proposal.propose(root))
    load(root)
    return {entry["name"]: entry for entry in YAML(typ="safe").load(root / "aptui.yaml")["builders"]}


def test_proposal_for_two_platforms_has_at_most_forty_lines(tmp_path: Path) -> None:
    names = {
        "textures/wall_albedo.png", "textures/wall_n.png", "ui/hud.png", "ui/hud@2x.png", "music/a.ogg", "sfx/b.wav", "voice/c.wav",
        "models/a.glb", "models/b.obj", "shaders/a.frag", "fonts/a.ttf", "levels/a.tmx", "levels/a.tsx", "text/de.po",
        "text/messages.pot", "data/items.csv", "data/a.json",
    }  # fmt: skip

    entries = propose(tmp_path, names)

    assert {name: entry.get("uses") for name, entry in entries.items()} == {
        "textures": "texture", "sounds": "audio", "models": "model", "meshes": "model", "shaders": "shader", "fonts": "font",
        "glyphs": None, "maps": "tilemap", "texts": "locale", "tables": "table", "data": "json",
    }  # fmt: skip
    assert entries["textures"]["rules"] == [{"files": ["ui/*"], "params": {"usage": "ui"}}]
    assert entries["textures"]["platforms"] == {"mobile": {"max_size": 1024}}
    assert entries["models"]["params"] == {"tangents": "needed", "textures": "ktx2", "lods": [0.5, 0.2]}
    assert entries["shaders"]["params"] == {"reflect": True}
    assert entries["maps"]["params"] == {"textures": "ktx2"}
    lines = [line for line in (tmp_path / "aptui.yaml").read_text().splitlines() if line and not line.startswith("#")]
    assert len(lines) <= 40
    assert {platform.id for platform in load(tmp_path).project.platforms} >= {"mobile"}


def test_small_sprites_of_a_folder_are_packed_into_an_atlas(tmp_path: Path) -> None:
    files = {f"art/icons/{number}.png": SMALL for number in range(4)} | {"art/rock_n.png": SMALL}

    entries = propose(tmp_path, files)

    assert (tmp_path / "art/icons/icons.atlas").read_text() == '{"sprites": ["./*.png"]}\n'
    assert entries["textures"]["exclude"] == ["art/icons/*"]
    assert "rules" not in entries["textures"]
    assert entries["sprites"]["steps"] == [
        {"uses": "atlas", "patterns": ["*.atlas"], "params": {"textures": "ktx2"}},
        {"uses": "texture", "params": {"usage": "ui"}},
    ]


@pytest.mark.parametrize(
    ("more", "patterns"),
    [
        ({"sprites/hero.json": SHEET}, ["./*.png", "./*.json"]),
        ({"sprites/hero.json": SHEET, "sprites/stats.json": b"{}"}, ["./*.png"]),
    ],
)
def test_aseprite_sheets_are_sprites_unless_their_folder_has_other_json(
    tmp_path: Path, more: dict[str, bytes], patterns: list[str]
) -> None:
    propose(tmp_path, {f"sprites/{number}.png": SMALL for number in range(4)} | {"a.wav": b""} | more)

    assert YAML(typ="safe").load(tmp_path / "sprites/sprites.atlas") == {"sprites": patterns}


@pytest.mark.parametrize(
    "more", [{"sprites/back.png": LARGE}, {"sprites/back.jpg": b""}, {"sprites/spark.gif": b""}, {"hud.atlas": b"{}"}]
)
def test_folder_with_an_unsuitable_picture_or_its_own_atlas_gets_no_new_atlas(tmp_path: Path, more: dict[str, bytes]) -> None:
    propose(tmp_path, {f"sprites/{number}.png": SMALL for number in range(4)} | {"a.wav": b""} | more)

    assert not (tmp_path / "sprites/sprites.atlas").exists()


def test_existing_atlas_of_the_proposed_name_is_not_overwritten(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"sprites/{number}.png").parent.mkdir(exist_ok=True)
        (tmp_path / f"sprites/{number}.png").write_bytes(SMALL)
    (tmp_path / "a.wav").touch()
    found = proposal.propose(tmp_path)
    (tmp_path / "sprites/sprites.atlas").write_text("mine")

    proposal.write(found)

    assert (tmp_path / "sprites/sprites.atlas").read_text() == "mine"


@pytest.mark.parametrize("faces", ["px nx py ny pz nz", "right left top bottom front back", "PX NX PY NY PZ NZ"])
def test_six_pictures_of_a_sky_become_a_cube_map(tmp_path: Path, faces: str) -> None:
    first, *others = [f"_{face}.png" for face in faces.split()]

    entries = propose(tmp_path, {f"sky/day{face}" for face in (first, *others)} | {"a.wav"})

    assert entries["textures"]["exclude"] == [f"*{face}" for face in others]
    named = [f"{{name}}{face}" for face in (first, *others)]
    assert entries["textures"]["rules"] == [{"files": [f"*{first}"], "params": {"faces": named}}]


def test_effects_and_speech_get_different_sound_formats(tmp_path: Path) -> None:
    entries = propose(tmp_path, {"a.png", "audio/sfx/a.wav", "audio/music/b.ogg", "vo/c.wav"})

    assert entries["sounds"]["params"] == {"format": "vorbis"}
    assert entries["sounds"]["rules"] == [
        {"files": ["*/sfx/*"], "params": {"format": "adpcm"}},
        {"files": ["vo/*"], "params": {"format": "opus", "channels": "mono"}},
    ]


def test_csv_whose_columns_are_languages_is_a_table_of_texts(tmp_path: Path) -> None:
    files = {
        "a.png": b"", "a.wav": b"", "text/ui.csv": b"\xef\xbb\xbfkey;en;pt_BR\nplay;Play;\n", "items.csv": b"id,hp,mp\n",
        "l/de.po": b"", "l/all.pot": b"",
    }  # fmt: skip

    entries = propose(tmp_path, files)

    assert entries["texts"]["patterns"] == ["*.po", "text/ui.csv"]
    assert entries["texts"]["rules"] == [{"files": ["*.po"], "params": {"template": "./all.pot"}}]
    assert entries["tables"]["exclude"] == ["text/ui.csv"]


@pytest.mark.parametrize(
    ("templates", "template"),
    [
        ({"l/a.pot", "m/a.pot", "m/b.pot"}, "./a.pot"),
        ({"source/all.pot"}, "source/all.pot"),
        ({"l/All.POT", "m/All.POT"}, "./All.POT"),
        ({"l/a.pot", "m/b.pot"}, None),
    ],
)
def test_template_parameter_is_set_only_if_one_template_fits_all_translations(
    tmp_path: Path, templates: set[str], template: str | None
) -> None:
    entries = propose(tmp_path, {"a.png", "a.wav", "l/de.po", "m/de.po", *templates})

    assert entries["texts"].get("params", {}).get("template") == template


def test_glyphs_of_a_font_cover_all_translations(tmp_path: Path) -> None:
    entries = propose(tmp_path, {"a.png", "a.wav", "a.ttf", "b.woff2", "l/de.po", "l/fr.xlf"})

    drawn, texture = entries["glyphs"]["steps"]
    assert drawn == {"uses": "fontatlas", "patterns": ["*.ttf"], "params": {"textures": "ktx2", "files": ["*.po", "*.xlf"]}}
    assert texture == {"uses": "texture", "params": {"usage": "mask", "format": "r8", "mips": False}}


def test_opengl_shaders_are_only_checked(tmp_path: Path) -> None:
    vulkan, opengl, old = b"#version 450\n// an attribute\n", b"// sky\n#version 300 es\n", b"varying vec3 light;\n"
    shaders = {"a.vert": vulkan, "gl/b.frag": opengl, "c.comp.glsl": vulkan, "inc.glsl": b"", "gl/old.frag": old}

    entries = propose(tmp_path, {"a.png": b"", **shaders})

    assert entries["shaders"]["patterns"] == ["*.frag", "*.vert", "*.comp.glsl"]
    assert entries["shaders"]["rules"] == [
        {"files": ["gl/b.frag", "gl/old.frag"], "params": {"output": "source", "reflect": False}}
    ]


@pytest.mark.parametrize("names", [{"photo.png"}, {"a.png", "notes.txt"}, {"project.godot", "a_n.png", "a.wav"}])
def test_image_builder_is_proposed_for_pictures_without_other_game_art(tmp_path: Path, names: set[str]) -> None:
    entries = propose(tmp_path, names)

    assert entries["textures"]["uses"] == "image"
    assert "\nplatforms" not in (tmp_path / "aptui.yaml").read_text()


def test_image_builder_is_proposed_if_texture_packages_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposal, "find_spec", lambda _module: None)

    entries = propose(tmp_path, {f"ui/{number}.png": SMALL for number in range(4)} | {"a.wav": b"", "a.tmx": b""})

    assert (entries["textures"]["uses"], entries["textures"]["exclude"]) == ("image", ["ui/*"])
    assert entries["sprites"] == {"name": "sprites", "uses": "atlas", "patterns": ["*.atlas"]}
    assert "params" not in entries["maps"]
