"""The recipes for CI that ship: YAML, and every `aptui` line in them is one that the program takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
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


def test_the_image_runs_a_verb_by_default() -> None:
    text = Path(FOLDER, "Dockerfile").read_text(encoding="utf-8")

    assert 'ENTRYPOINT ["aptui"]' in text
    assert re.search(r'CMD \["(\w+)"\]', text)[1] in main.VERBS  # type: ignore[index]  # it is there
