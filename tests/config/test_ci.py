"""The shipped CI recipes: valid YAML, and every `aptui` line in them is a valid command."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from tools import needs_feature

from aptui.cli import main
from aptui.cli import parser as parsers
from aptui.config.dirs import data_dir

FOLDER = data_dir() / "config" / "ci"
RECIPES = ("github-actions.yml", "gitlab-ci.yml")


@needs_feature("graph", "shipping", "sharing")
@pytest.mark.parametrize("name", RECIPES)
def test_each_recipe_is_valid_yaml_with_valid_commands(name: str) -> None:
    text = Path(FOLDER, name).read_text(encoding="utf-8")

    assert YAML(typ="safe").load(text)
    lines = re.findall(r"(?:run: |- )(aptui .*)", text)
    assert any("--junit" in line for line in lines)
    for line in lines:
        words = shlex.split(line)
        parsers.parser_of(words[1]).parse_args(words[2:])


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_run_batch_before_lint_and_verify(name: str) -> None:
    lines = re.findall(r"(?:run: |- )aptui (\w+)", Path(FOLDER, name).read_text(encoding="utf-8"))

    assert lines[0] == "batch"
    assert {"lint", "verify"} <= set(lines[1:])


@pytest.mark.real
@needs_feature("graph", "shipping", "sharing")
def test_gitlab_recipe_commands_succeed_in_a_project_made_by_init(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".aptui-store"))
    monkeypatch.chdir(tmp_path)
    for name, text in {"a.json": "{}", "b.xml": "<b/>", "c.yml": "c: 1", ".gitlab-ci.yml": "x: !reference [a, b]"}.items():
        (tmp_path / name).write_text(text)
    assert main.main(["init"]) == 0

    lines = re.findall(r"- aptui (.*)", Path(FOLDER, "gitlab-ci.yml").read_text(encoding="utf-8"))
    codes = [main.main(shlex.split(line)) for line in (*lines, *lines)]

    assert codes == [0] * 2 * len(lines)
    assert {path.name for path in (tmp_path / "Cache/linux").iterdir()} == {"a.json", "b.xml", "c.yml"}


def test_container_image_runs_a_verb_by_default() -> None:
    text = Path(FOLDER, "Dockerfile").read_text(encoding="utf-8")

    assert 'ENTRYPOINT ["aptui"]' in text
    assert re.search(r'CMD \["(\w+)"\]', text)[1] in main.all_verbs()  # type: ignore[index]  # it is there


@pytest.mark.parametrize("name", [*RECIPES, "Dockerfile"])
def test_recipes_install_only_packages_with_checked_hashes(name: str) -> None:
    text = Path(FOLDER, name).read_text(encoding="utf-8")

    installs = re.findall(r"pip install (.*)", text)
    assert installs
    assert [line for line in installs if "--require-hashes" not in line and "--no-deps --no-build-isolation" not in line] == []


def test_github_recipe_has_read_permission_only_and_pins_actions_to_commits() -> None:
    recipe = YAML(typ="safe").load(Path(FOLDER, "github-actions.yml"))
    steps = recipe["jobs"]["assets"]["steps"]

    assert recipe["permissions"] == {"contents": "read"}
    assert [
        step["uses"]
        for step in steps
        if not re.fullmatch(r"actions/[a-z/-]+@[0-9a-f]{40}", step.get("uses", "actions/x@" + "0" * 40))
    ] == []
    # A script must not insert the name of a branch, because an attacker can choose that name.
    assert [step["run"] for step in steps if "${{" in step.get("run", "")] == []
    cache = next(step["with"] for step in steps if step.get("uses", "").startswith("actions/cache/restore@"))
    assert "'untrusted' || 'trusted'" in recipe["env"]["STORE"]
    assert cache["key"].startswith("${{ env.STORE }}-")
    assert cache["restore-keys"] == "${{ env.STORE }}-"


def test_recipes_keep_a_small_store_also_after_a_failed_job() -> None:
    steps = YAML(typ="safe").load(Path(FOLDER, "github-actions.yml"))["jobs"]["assets"]["steps"]
    job = YAML(typ="safe").load(Path(FOLDER, "gitlab-ci.yml"))["assets"]

    clean, save = [step for step in steps if "cache gc" in step.get("run", "") or "cache/save@" in step.get("uses", "")]
    restore = next(step["with"] for step in steps if "cache/restore@" in step.get("uses", ""))
    assert (clean["if"], save["if"]) == ("always()", "always()")
    assert {"restore-keys": "${{ env.STORE }}-", **save["with"]} == restore
    assert job["cache"]["when"] == "always"
    assert job["after_script"] == [clean["run"]]


def test_gitlab_recipe_keeps_no_database_and_isolates_unprotected_branches() -> None:
    job = YAML(typ="safe").load(Path(FOLDER, "gitlab-ci.yml"))["assets"]

    assert "$CI_COMMIT_REF_PROTECTED" in job["cache"]["key"]
    assert "Cache/assetdb.sqlite*" in job["artifacts"]["exclude"]


def test_ci_images_are_pinned_by_digest_and_run_as_ordinary_user() -> None:
    texts = [Path(FOLDER, name).read_text(encoding="utf-8") for name in ("gitlab-ci.yml", "Dockerfile")]
    images = [image for text in texts for image in re.findall(r"^(?:  image:|FROM) (\S+)", text, re.MULTILINE)]
    lines = Path(FOLDER, "Dockerfile").read_text(encoding="utf-8").splitlines()

    assert ["@sha256:" in image for image in images] == [True, True]
    assert lines.index("USER aptui") < lines.index('ENTRYPOINT ["aptui"]')
    assert any("bubblewrap" in line for line in lines if line.startswith("RUN apt-get"))
