"""The keys `retry:`, `resources:` and `quality:`: their meaning, mistakes with their places, and their effect on signatures."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from aptui.config import load as config_load
from aptui.config.configuration import Config, ConfigErrors
from aptui.core.retry import RetryRule
from aptui.shared.errors import UserError

Load = Callable[..., Config]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "kept"))
    (tmp_path / "assets").mkdir()

    def loaded(said: str = "", of_builder: str = "", of_copy: str = "") -> Config:
        (tmp_path / "aptui.yaml").write_text(
            "scan_folders: [{name: game, path: assets}]\n"
            f"builders:\n- {{name: a, patterns: ['*.a'], command: 'cp {{source}} {{products_dir}}'{of_builder}}}\n"
            f"- {{name: c, copy: ['*.c']{of_copy}}}\n{said}"
        )
        return config_load.load(tmp_path)

    return loaded


def test_retry_rules_survive_the_stored_form(load: Load) -> None:
    compiled = load("retry: {times: 1}\n", ", retry: {times: 2, on: [memory, error, 75]}")
    remembered = load("retry: {times: 1}\n", ", retry: {times: 2, on: [memory, error, 75]}")

    assert compiled.project.retry == RetryRule(1, ("crash", "timeout"))
    assert compiled.project.builders[0].retry == RetryRule(2, ("memory", "error", "exit 75"))
    assert remembered == compiled


def test_no_retry_rule_by_default(load: Load) -> None:
    project = load().project

    assert (project.retry, [builder.retry for builder in project.builders]) == (None, [None, None])


def test_retry_rule_changes_no_signature(load: Load) -> None:
    bare, ruled = load().project, load("retry: {times: 1}\n", ", retry: {times: 2}").project

    assert (ruled.signature, ruled.scan_signature) == (bare.signature, bare.scan_signature)


@pytest.mark.parametrize(
    ("said", "where"),
    [
        ("retry: {on: [crash]}", "5:8"),
        ("retry: {times: -1}", "5:16"),
        ("retry: {times: 11}", "5:16"),
        ("retry: {times: 1, on: [crashes]}", "5:24"),
        ("retry: {times: 1, on: [0]}", "5:24"),
        ("retry: {times: 1, on: [256]}", "5:24"),
        ("retry: 3", "5:8"),
    ],
)
def test_invalid_retry_is_refused_with_its_place(load: Load, said: str, where: str) -> None:
    with pytest.raises(UserError) as caught:
        load(f"{said}\n")

    assert str(caught.value).partition("aptui.yaml:")[2].startswith(f"{where}: ")


def test_retry_of_a_copy_rule_is_refused(load: Load) -> None:
    with pytest.raises(ConfigErrors, match="'retry' belongs to a builder with 'uses:', 'command:' or 'steps:'"):
        load(of_copy=", retry: {times: 1}")


def test_resources_are_stored_and_do_not_change_the_signature(load: Load) -> None:
    bare = load().project
    compiled = load("resources: {licence: 2, gpu: 1}\n", ", resources: [licence, gpu, gpu]")
    remembered = load("resources: {licence: 2, gpu: 1}\n", ", resources: [licence, gpu, gpu]")

    assert compiled.project.resources == (("gpu", 1), ("licence", 2))
    assert [builder.resources for builder in compiled.project.builders] == [("gpu", "licence"), ()]
    assert (compiled.project.signature, remembered) == (bare.signature, compiled)


@pytest.mark.parametrize(
    ("said", "of_builder", "where"),
    [
        ("", ", resources: [gpu]", "3:83: there is no resource 'gpu'; say how many there are"),
        ("resources: {gpus: 1}", ", resources: [gpu]", "3:83: there is no resource 'gpu'; did you mean 'gpus'?"),
        ("resources: {gpu: 0}", "", "5:18: "),
        ("resources: {gpu: many}", "", "5:18: "),
        ("resources: [gpu]", "", "5:12: "),
        ("resources: {gpu: 1}", ", resources: gpu", "3:82: "),
    ],
)
def test_invalid_resources_are_refused_with_their_place(load: Load, said: str, of_builder: str, where: str) -> None:
    with pytest.raises(UserError) as caught:
        load(f"{said}\n", of_builder)

    assert str(caught.value).partition("aptui.yaml:")[2].startswith(where)


def test_resources_of_a_copy_rule_are_refused(load: Load) -> None:
    with pytest.raises(ConfigErrors, match="'resources' belongs to a builder with 'uses:', 'command:' or 'steps:'"):
        load("resources: {gpu: 1}\n", of_copy=", resources: [gpu]")


def test_quality_is_stored_and_changes_only_the_signature_of_drafts(load: Load) -> None:
    bare, finals = load().project, load(of_builder=", quality: [final]").project
    compiled = load(of_builder=", quality: [draft, final]")
    remembered = load(of_builder=", quality: [draft, final]")

    assert [builder.has_drafts for builder in compiled.project.builders] == [True, False]
    assert remembered == compiled
    assert finals.signature == bare.signature != compiled.project.signature


@pytest.mark.parametrize(
    "said", ["draft", "[draft]", "[final, draft]", "[draft, final, final]", "[]", "[best]", "true", "{draft: 1}"]
)
def test_invalid_quality_is_refused_with_its_place(load: Load, said: str) -> None:
    with pytest.raises(UserError, match=re.escape("[final] or [draft, final]")) as caught:
        load(of_builder=f", quality: {said}")

    assert str(caught.value).partition("aptui.yaml:")[2].startswith("3:80: ")


def test_drafts_of_a_copy_rule_are_refused(load: Load) -> None:
    with pytest.raises(ConfigErrors, match="'quality' belongs to a builder with 'uses:', 'command:' or 'steps:'"):
        load(of_copy=", quality: [draft, final]")
