"""The key `on:` of the configuration: its meaning, mistakes with their places, and layers that cannot set it."""

from __future__ import annotations

from pathlib import Path

import pytest
from homes import own_project

from aptui.config.configuration import ConfigErrors
from aptui.config.load import load
from aptui.config.settings import QUIET_S, Alert

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


def test_no_alerts_by_default(folder: Path) -> None:
    config = load(write(folder))

    assert (config.on.alerts, config.on.quiet_s) == ((), QUIET_S)


def test_alerts_are_equal_after_storing_and_change_no_project_signature(folder: Path) -> None:
    before = load(write(folder)).project
    write(folder, "on: {quiet: 1m, failed: {exec: [a, b c], webhook: 'http://[::1]:8/x'}, idle: {bell: true, desktop: true}}\n")

    compiled, remembered = load(folder), load(folder)

    assert compiled.on.quiet_s == 60
    assert compiled.on.alerts == (
        Alert("failed", ("a", "b c"), "http://[::1]:8/x"),
        Alert("idle", desktop=True, bell=True),
    )
    assert remembered == compiled
    assert compiled.project.signature == before.signature


@pytest.mark.parametrize(
    ("said", "place", "what"),
    [
        ("on: {failed: {webhook: 'http://example.org/x'}}", ":3:24", "is not encrypted"),
        ("on: {failed: {webhook: 'ftp://example.org/x'}}", ":3:24", "is not the address of a web hook"),
        ("on: {mended: {webhook: 'https://[x/'}}", ":3:24", "is not the address of a web hook"),
        ("on: {idle: {}}", ":3:12", "'on.idle' says nothing to do"),
        ("on: {failed: {exec: 'rm -rf /'}}", ":3:21", "must be a list"),
        ("on: {failed: {exec: []}}", ":3:21", "exec"),
        ("on: {broken: {bell: true}}", ":3:6", "unknown key"),
        ("on: {quiet: soon}", ":3:13", "duration"),
    ],
)
def test_invalid_alerts_are_refused_with_their_place(folder: Path, said: str, place: str, what: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        load(write(folder, f"{said}\n"))

    (error,) = caught.value.errors
    assert str(error.where).endswith(place)
    assert what in error.what


def test_folder_settings_cannot_set_alerts(folder: Path) -> None:
    from aptui.config.yaml.config_schema import folder_schema

    assert "on" not in folder_schema()["properties"]
