"""The key `checks:` of the configuration: its meaning, mistakes with their places, and its effect on signatures."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from homes import own_project

from aptui.config.configuration import ConfigErrors
from aptui.config.load import load
from aptui.core.asset_checks import Check, Limit

PROJECT = """\
scan_folders: [{name: game, path: assets}]
builders: [{name: data, copy: ["*.txt"]}]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return own_project(tmp_path, monkeypatch)


def write(folder: Path, said: str = "") -> Path:
    (folder / "aptui.yaml").write_text(f"{PROJECT}{said}")
    return folder


def test_checks_are_compiled_and_read_back_from_the_stored_form(folder: Path) -> None:
    write(folder, "checks: {small: {bytes: '<= 1KiB', seconds: 1.5..2, level: fail}, mine: {command: [sh, x], budget: 1MiB}}\n")

    compiled, remembered = load(folder), load(folder)

    after = math.nextafter
    assert compiled.checks == (
        Check(
            "small", "fail",
            limits=(Limit("bytes", "<= 1KiB", 0.0, after(1024.0, math.inf)), Limit("seconds", "1.5..2", 1.5, after(2.0, math.inf))),
        ),
        Check("mine", command=("sh", "x"), budget_bytes=1 << 20),
    )  # fmt: skip
    assert remembered == compiled


def test_only_blocking_checks_change_the_signature_of_the_project(folder: Path) -> None:
    bare = load(write(folder)).project
    warned = load(write(folder, "checks: {small: {bytes: '<= 1KiB'}}\n")).project
    blocked = load(write(folder, "checks: {small: {bytes: '<= 1KiB', level: block}}\n"))

    assert (warned.signature, warned.checks) == (bare.signature, ())
    assert blocked.project.signature != bare.signature
    assert blocked.project.checks == blocked.checks
    assert load(folder) == blocked


@pytest.mark.parametrize(
    ("said", "where", "what"),
    [
        ("checks: {a: {level: fail}}", "3:13", "the check 'a' covers nothing"),
        ("checks: {a: {widht: 1}}", "3:14", "unknown key 'widht' in 'checks.a'"),
        ("checks: {a: {facts: {bones: many}}}", "3:29", "'many' is not a range of bones"),
        ("checks: {a: {facts: {Bones: 1}}}", "3:22", "'Bones' is not the name of a fact"),
        ("checks: {a: {width: wide}}", "3:21", "'wide' is not a range of width"),
        ("checks: {a: {bytes: <= 4 parsecs}}", "3:21", "'<= 4 parsecs' is not a range of bytes"),
        ("checks: {a: {name: '['}}", "3:20", "not a regular expression"),
        ("checks: {a: {files: [/x], power_of_two: true}}", "3:22", "must be relative"),
        ("checks: {a: {budget: 1MiB, level: block}}", "3:35", "the check 'a' cannot block: 'budget' covers more than one job"),
        ("checks: {a: {lint: [speling]}}", "3:21", "'checks.a.lint.1' must be spelling, dead or case"),
        ("checks: {a: {width: 1, level: deny}}", "3:31", "'checks.a.level' must be warn, fail or block"),
    ],
)
def test_mistake_in_checks_is_reported_with_its_place(folder: Path, said: str, where: str, what: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        load(write(folder, f"{said}\n"))

    assert f"aptui.yaml:{where}: " in str(caught.value)
    assert what in str(caught.value)
