"""A whole O3DE project, from sources to bundles: gem, override, tags, scripts, intermediates, `.assetinfo`, seeds, patch."""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from lytesttools import O3deProject

from aptui.features.o3de.binary_stream import parse
from aptui.features.o3de.bundling.bundle_files import load_list

pytestmark = pytest.mark.real

EXAMPLES = Path(__file__).parents[4] / "config" / "o3de-builders"
PROGRAMS = {"AssetProcessorBatch": "asset_processor_batch", "AssetBundlerBatch": "asset_bundler_batch"}
SETTINGS = {
    "Platform pc": {"tags": "tools,renderer"},
    "Platform server": {"tags": "dedicated"},
    "Platform linux": {"tags": "tools"},
    "Platforms": {"pc": "enabled", "server": "enabled"},
    "ScanFolder Project": {"watch": "@PROJECTROOT@", "recursive": 1, "order": 0},
    "ScanFolder Tools": {"watch": "@ENGINEROOT@/Assets/Editor", "recursive": 1, "order": 300, "include": "tools"},
    "RC cfg": {"glob": "*.cfg", "params": "copy", "dedicated": "skip"},
    "RC ini": {"glob": "*.ini", "params": "copy"},
    "MetaDataTypes": {"assetinfo": "", "exportsettings": "png"},
}
DEFAULTS = '<EngineDependencies><Dependency path="*.ini" optional="true"/></EngineDependencies>'
LEVEL = {"Entities": [{"Mesh": {"assetHint": "models/rock.azmodel"}}, {"Image": {"assetHint": "art/wall.png.streamingimage"}}]}


def game(project: O3deProject) -> None:
    """Write the project: an engine with a gem, and a game."""
    project.write("engine.json", json.dumps({"engine_name": "o3de", "external_subdirectories": ["Gems/Art"]}))
    project.write("Gems/Art/gem.json", json.dumps({"gem_name": "Art"}))
    project.write("Gems/Art/Assets/art/wall.png", "the gem's wall")
    project.write("Gems/Art/Assets/art/floor.png", "floor")
    project.write("Gems/Art/Assets/Art_Dependencies.xml", DEFAULTS)
    project.write("Assets/Editor/icon.cfg", "tools alone")
    project.settings(SETTINGS)
    project.source("project.json", json.dumps({"project_name": "AutomatedTesting", "gem_names": ["Art"]}))
    project.source("art/wall.png", "the project's wall")
    project.source("models/rock.fbx", "rock")
    project.source("models/rock.fbx.assetinfo", json.dumps({"values": [{"name": "boulder"}]}))
    project.source("levels/one/one.prefab", json.dumps(LEVEL))
    project.source("scripts/door.scriptcanvas", '{"Nodes": [{"Name": "open"}]}')
    project.source("game.ini", "x=1")
    project.source("client.cfg", "y=1")
    project.source("schemas/shop.xmlschema", json.dumps({"item": "model"}))
    project.source("shop.xml", '<shop><item model="models/rock.azmodel"/></shop>')
    for name in ("bootstrap.py", "stand_ins.py"):
        project.source(f"Editor/Scripts/{name}", (EXAMPLES / name).read_text())


def run(project: O3deProject, folder: Path, *more: str) -> str:
    """Run the script of a build server with our programs in its PATH."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for name, module in PROGRAMS.items():
        code = f"from aptui.features.o3de.programs.{module} import main; raise SystemExit(main())"
        (programs / name).write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{code}' \"$@\"\n")
        (programs / name).chmod(0o755)
    done = subprocess.run(
        [EXAMPLES / "ci.sh", project.project, folder / "out", "pc,server", "levels/one/one.spawnable,shop.xml", *more],
        env={"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(project.root / "person")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_build_server_script_makes_the_bundles_of_an_o3de_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = O3deProject(tmp_path / "engine", monkeypatch)
    game(project)

    output = run(project, tmp_path)

    assert "Number of Assets Failed to Process: 0." in output
    products = {str(path.relative_to(project.cache)) for path in project.cache.glob("pc/**/*") if path.is_file()}
    assert {"pc/icon.cfg", "pc/client.cfg", "pc/scripts/door.scriptcanvas_compiled", "pc/art/floor.png.streamingimage"} < products
    assert project.product("Intermediate Assets/scripts/door.luacanvas") == "open"
    assert project.product("pc/models/rock.azmodel") == "boulder"
    assert not list(project.cache.glob("server/*.cfg"))
    assert int.from_bytes((project.cache / "pc/art/wall.png.streamingimage").read_bytes(), "big") == len("the project's wall")
    assert len(parse((project.cache / "pc/assetcatalog.xml").read_bytes()).children[0].children) == len(products) - 1

    out = tmp_path / "out"
    needed = [
        "art/wall.png.1002.imagemipchain", "art/wall.png.streamingimage", "game.ini",
        "levels/one/one.spawnable", "models/rock.azmodel", "shop.xml",
    ]  # fmt: skip
    assert [item.path for item in load_list(out / "game_pc.assetlist")] == needed
    with zipfile.ZipFile(out / "game_server.pak") as archive:
        assert archive.namelist() == [*needed, "DeltaCatalog.xml", "manifest.xml"]
        assert 'value="levels/one"' in archive.read("manifest.xml").decode()

    for platform in ("pc", "server"):
        shutil.copy(out / f"game_{platform}.assetlist", tmp_path / f"v1_{platform}.assetlist")
    project.source("models/rock.fbx.assetinfo", json.dumps({"values": [{"name": "pebble"}]}))
    output = run(project, tmp_path, str(tmp_path / "v1.assetlist"))

    assert "Number of Assets Successfully Processed: 2." in output
    with zipfile.ZipFile(out / "patch_pc.pak") as archive:
        assert archive.namelist() == ["models/rock.azmodel", "DeltaCatalog.xml", "manifest.xml"]
        assert archive.read("models/rock.azmodel") == b"pebble"
