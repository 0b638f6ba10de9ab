"""The recipes for CI that ship: YAML, and every `aptui` line in them is one that the program takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from homes import own_homes
from ruamel.yaml import YAML

from aptui.cli import main
from aptui.config.dirs import data_dir

FOLDER = data_dir() / "config" / "ci"
RECIPES = ("github-actions.yml", "gitlab-ci.yml")


@pytest.mark.parametrize("name", RECIPES)
def test_each_recipe_is_yaml_and_its_lines_are_ours(name: str) -> None:
    text = Path(FOLDER, name).read_text(encoding="utf-8")

    assert YAML(typ="safe").load(text)
    lines = re.findall(r"(?:run: |- )(aptui .*)", text)
    assert any("--junit" in line for line in lines)
    for line in lines:
        words = shlex.split(line)
        main.parser_of(words[1]).parse_args(words[2:])


@pytest.mark.parametrize("name", RECIPES)
def test_nothing_asks_the_asset_database_before_a_batch_made_one(name: str) -> None:
    lines = re.findall(r"(?:run: |- )aptui (\w+)", Path(FOLDER, name).read_text(encoding="utf-8"))

    assert lines[0] == "batch"
    assert {"lint", "verify"} <= set(lines[1:])


@pytest.mark.real
def test_gitlab_recipe_passes_in_a_project_that_init_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_homes(tmp_path / "home", monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".aptui-store"))
    monkeypatch.chdir(tmp_path)
    for name, text in {"a.json": "{}", "b.xml": "<b/>", "c.yml": "c: 1", ".gitlab-ci.yml": "x: !reference [a, b]"}.items():
        (tmp_path / name).write_text(text)
    assert main.main(["init"]) == 0

    lines = re.findall(r"- aptui (.*)", Path(FOLDER, "gitlab-ci.yml").read_text(encoding="utf-8"))
    codes = [main.main(shlex.split(line)) for line in (*lines, *lines)]

    assert codes == [0] * 2 * len(lines)
    assert {path.name for path in (tmp_path / "Cache/linux").iterdir()} == {"a.json", "b.xml", "c.yml"}


def test_the_image_runs_a_verb_by_default() -> None:
    text = Path(FOLDER, "Dockerfile").read_text(encoding="utf-8")

    assert 'ENTRYPOINT ["aptui"]' in text
    assert re.search(r'CMD \["(\w+)"\]', text)[1] in main.all_verbs()  # type: ignore[index]  # it is there
