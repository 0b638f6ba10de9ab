"""`scan-missing` for users and CI: with and without an engine, over products, sources and folders."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from homes import own_project
from verb_project import Run

from aptui.features.shipping import missing_verb

pytestmark = pytest.mark.real

CONFIG = """
scan_folders: [{name: game, path: assets}]
builders: [{name: data, copy: ["*.txt", "*.png", "*.lua"]}]
workers: 1
"""
FILES = {
    "aptui.yaml": CONFIG,
    "assets/door.lua": 'show("images/door.png") play("sounds/door.wav") see("door.lua")',
    "assets/images/door.png": "",
    "assets/plain.txt": "nothing",
    "assets/data.png": "\0images/door.png",
    "notes/todo.md": "images/door.png is to be made anew",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    return own_project(tmp_path, monkeypatch, FILES)


def test_missing_dependencies_are_listed_and_counted(run: Run) -> None:
    run("batch")

    code, out, _ = run("scan-missing")

    assert code == 0
    script, picture = out.index("linux/door.lua"), out.index("'images/door.png' is linux/images/door.png")
    assert out.index("linux/data.png") < script < out.rindex("'images/door.png'")
    assert picture < script
    assert "4 products searched, 4 of them read: 2 missing dependencies in 2 files" in out
    assert "plain.txt" not in out


def test_exit_code_shows_missing_dependencies_only_if_requested(run: Run) -> None:
    """The option `--fail` requests it."""
    run("batch")

    assert run("scan-missing", "*.lua", "--fail")[0] == missing_verb.FOUND
    assert run("scan-missing", "*.lua")[0] == 0
    assert run("scan-missing", "%.txt", "--fail")[0] == 0


def test_missing_dependencies_are_printed_as_json(run: Run) -> None:
    run("batch")

    found = json.loads(run("scan-missing", "*.lua", "--folders", "notes", "--json")[1])

    assert (found["done"], found["read"], found["hits"], found["flawed"]) == (2, 2, 2, 2)
    assert [(row["product"], row["text"], row["means"]) for row in found["products"]] == [
        ("linux/door.lua", "images/door.png", "linux/images/door.png")
    ]
    assert found["products"][0]["asset_id"].endswith("}:0")
    assert [(os.path.basename(file["path"]), file["missing"][0]["text"]) for file in found["files"]] == [
        ("todo.md", "images/door.png")
    ]


def test_text_files_of_sources_are_searched_on_request(run: Run) -> None:
    """The option `--sources` is the request."""
    run("batch")

    found = json.loads(run("scan-missing", "*.txt", "*.lua", "*.png", "--sources", "--json")[1])

    assert [os.path.basename(file["path"]) for file in found["files"]] == ["door.lua"]
    assert "door.lua" in run("scan-missing", "--sources")[1]


def test_source_whose_name_has_brackets_is_searched(run: Run, project: Path) -> None:
    (project / "assets/doors[1].lua").write_text("images/door.png")
    run("batch")

    found = json.loads(run("scan-missing", "doors[1].lua", "--sources", "--json")[1])

    assert [os.path.basename(file["path"]) for file in found["files"]] == ["doors[1].lua"]


def test_verb_scan_missing_does_not_read_unchanged_products_again(run: Run, project: Path) -> None:
    run("batch")
    run("scan-missing")
    assert " 0 of them read" in run("scan-missing")[1]

    (project / "assets" / "plain.txt").write_text("door.lua")
    run("batch")
    out = run("scan-missing")[1]

    assert "1 of them read: 3 missing dependencies" in out
    assert "'door.lua' is linux/door.lua" in out


def test_scan_results_can_be_cleared(run: Run, project: Path) -> None:
    run("batch")
    run("scan-missing")

    assert run("scan-missing", "--clear", "*.lua")[1] == "1 product cleared\n"
    with closing(sqlite3.connect(next(project.rglob("assetdb.sqlite")))) as database:
        assert database.execute("SELECT COUNT(*) FROM MissingProductDependencies").fetchone() == (3,)
    assert json.loads(run("scan-missing", "--clear", "--json")[1]) == {"cleared": 4}


@pytest.mark.parametrize(
    ("words", "expected"),
    [(("nothing*",), "no product matches"), (("--folders", "nowhere"), "the folder 'nowhere' does not exist")],
)
def test_scan_missing_reports_mistakes_in_its_command_line(run: Run, words: tuple[str, ...], expected: str) -> None:
    run("batch")

    code, _, err = run("scan-missing", *words)

    assert code == 3
    assert expected in err


def test_scan_missing_refuses_a_project_that_was_never_processed(run: Run) -> None:
    code, _, err = run("scan-missing")

    assert code == 3
    assert "nothing was processed yet" in err


@pytest.mark.parametrize("platforms", ["linux,web", "web"])
def test_verb_scan_missing_gives_no_warning_after_processing(run: Run, project: Path, platforms: str) -> None:
    config = project / "aptui.yaml"
    config.write_text(f"{config.read_text()}\nplatforms: {{web: {{}}}}\n")
    run("batch", "--platforms", platforms)

    assert "jobs are pending" not in run("scan-missing")[2]


def test_product_of_another_platform_is_not_missing(run: Run, project: Path) -> None:
    text = """
platforms: {linux: {}, server: {}}
scan_folders: [{name: game, path: assets}]
builders:
  - {name: data, copy: ["*.lua"]}
  - {name: pictures, copy: ["*.png"], platforms: {server: skip}}
"""
    (project / "aptui.yaml").write_text(text)
    run("batch")

    out = run("scan-missing")[1]

    assert "linux/door.lua" in out
    assert "server/door.lua" not in out


def test_verb_scan_missing_warns_about_unprocessed_changes(run: Run, project: Path) -> None:
    run("batch")
    (project / "assets" / "new.txt").write_text("images/door.png")

    assert "jobs are pending" in run("scan-missing")[2]


def test_running_engine_processes_changes_before_it_searches(run: Run, project: Path) -> None:
    run("start")
    try:
        (project / "assets" / "new.txt").write_text("images/door.png")
        code, out, err = run("scan-missing", "*.txt", "--fail")
        cleared = run("scan-missing", "--clear", "new.txt")[1]
    finally:
        run("stop")

    assert (code, err) == (missing_verb.FOUND, "")
    assert "linux/new.txt" in out
    assert cleared == "1 product cleared\n"
