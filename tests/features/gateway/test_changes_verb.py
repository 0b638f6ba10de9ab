"""The verb `aptui changes` prints the changes of a project that is processed repeatedly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from disk_project import Project

from aptui.cli import main

pytestmark = pytest.mark.real

SETTINGS = """
platforms: {linux: {}}
scan_folders: [{name: game, path: assets}]
builders: [{name: data, copy: ["*.txt"]}]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    project = Project(tmp_path / "project", SETTINGS)
    monkeypatch.chdir(project.root)
    project.write("assets/A.txt", "a")
    project.engine_run()
    return project


def changes(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main.main(["changes", "--jsonl", *words]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def entries_of(records: list[dict[str, Any]]) -> list[tuple[str, str, bool]]:
    return [(each["kind"], each["name"], each.get("removed", False)) for each in records if "name" in each]


ALL_OF_A = [("source", "A.txt", False), ("product", "linux/a.txt", False)]


def test_complete_change_list_ends_with_the_number_for_the_next_request(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    *listed, end = changes(capsys)
    assert entries_of(listed) == entries_of(changes(capsys, "--since", "0")) == ALL_OF_A
    assert end["kind"] == "listed"

    project.write("assets/b.txt", "b")
    project.delete("assets/A.txt")
    project.engine_run()

    news = changes(capsys, "--since", str(end["seq"]))
    assert sorted(entries_of(news)) == [
        ("product", "linux/a.txt", True), ("product", "linux/b.txt", False), ("source", "A.txt", True), ("source", "b.txt", False),
    ]  # fmt: skip
    numbers = [each["seq"] for each in news]
    assert numbers == sorted(set(numbers))
    assert changes(capsys, "--since", str(numbers[-1])) == []


def test_reprocessing_with_identical_products_is_not_listed_as_a_change(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    end = changes(capsys)[-1]

    assert main.main(["reprocess", "A.txt"]) == 0

    assert changes(capsys, "--since", str(end["seq"])) == []


def test_unknown_change_number_returns_resync(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    [answer] = changes(capsys, "--since", "12345")
    assert answer == {"seq": changes(capsys)[-1]["seq"], "kind": "resync"}

    [answer] = changes(capsys, "--since", "9" * 40)
    assert answer["kind"] == "resync"


def test_changes_are_printed_as_lines(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main.main(["changes"]) == 0
    lines = capsys.readouterr().out.splitlines()

    assert [line.split()[:3] for line in lines[:2]] == [["+", "source", "A.txt"], ["+", "product", "linux/a.txt"]]
    assert "the listing is complete" in lines[2]


@pytest.mark.parametrize("number", ["-1", "x", "1e3", ""])
def test_invalid_number_is_refused(project: Project, number: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["changes", f"--since={number}"]) == 3
    assert "is not the number of a change" in capsys.readouterr().err


def test_changes_verb_refuses_a_project_without_a_database(
    tmp_path: Path, project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = Project(tmp_path / "empty", SETTINGS)

    assert main.main(["changes", "--project", str(empty.root)]) == 3
    assert "nothing was processed yet" in capsys.readouterr().err


def test_follow_option_prints_later_runs_and_a_recreated_cache(project: Project) -> None:
    words = [sys.executable, "-m", "aptui", "changes", "--jsonl", "--follow", "--project", str(project.root)]
    root = str(Path(__file__).parents[3])
    with subprocess.Popen(words, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": root}) as follower:
        assert follower.stdout is not None

        def receive() -> dict[str, Any]:
            assert follower.stdout is not None
            return dict(json.loads(follower.stdout.readline()))

        assert [receive()["kind"] for _ in range(3)] == ["source", "product", "listed"]
        project.write("assets/b.txt", "b")
        project.engine_run()
        assert {receive()["name"] for _ in range(2)} == {"b.txt", "linux/b.txt"}

        project.delete("Cache")
        project.engine_run()
        assert receive()["kind"] == "resync"
        follower.kill()
