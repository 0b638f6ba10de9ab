"""The examples of builders in config/examples: their own tests pass, and a project with them builds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from disk_project import Project
from PIL import Image

from aptui.config.dirs import data_dir

EXAMPLES = data_dir() / "config/examples"
PROTOTYPE_LINES = {"atlas.py": 124, "model.py": 212, "texture.py": 194}
"""{example builder: its number of lines before `aptui.sdk` had helpers for parameters, products and programs}."""
SETTINGS = """
scan_folders: [{name: game, path: assets}]
local_store: {enabled: false}
builders:
  - {name: atlases, uses: atlas, intermediate: true}
  - {name: frames, copy: ["ui.json"]}
  - {name: pages, patterns: ["ui.png"], command: "cp {source} {products_dir}/{stem}_page.png"}
"""


@pytest.mark.real
def test_example_builders_pass_their_own_tests() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", ".", "tests"],
        cwd=EXAMPLES, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": "builders"},
    )  # fmt: skip

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", PROTOTYPE_LINES)
def test_sdk_helpers_shorten_each_example_builder_to_60_percent(name: str) -> None:
    assert len((EXAMPLES / "builders" / name).read_text().splitlines()) <= 0.6 * PROTOTYPE_LINES[name]


@pytest.mark.real
def test_example_atlas_is_built_again_when_its_sprites_change(tmp_path: Path) -> None:
    project = Project(tmp_path / "p", SETTINGS)
    (project.root / "builders").mkdir()
    shutil.copy(EXAMPLES / "builders/atlas.py", project.root / "builders")
    project.write("assets/ui.atlas", '{"sprites": ["s/*.png"]}')
    for number in range(3):
        path = project.write(f"assets/s/{number}.png", "")
        Image.new("RGBA", (8, 8), (255, number, 0, 255)).save(path)

    project.engine_run()
    assert project.errors() == {}
    assert '"s/2.png"' in products_of(project)["ui.json"].decode()
    before = products_of(project)["ui_page.png"]

    project.delete("assets/s/2.png")
    project.engine_run()
    assert '"s/2.png"' not in products_of(project)["ui.json"].decode()
    assert products_of(project)["ui_page.png"] != before


def products_of(project: Project) -> dict[str, bytes]:
    return {Path(name).name: data for name, data in project.products().items() if not name.startswith("Intermediate")}
