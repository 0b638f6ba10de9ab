"""`move` and `delete` on the command line: their output, exit codes, and forms of paths."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Self

import pytest
import verb_project
from msgspec import to_builtins
from verb_project import Run, runner

from aptui.features.relocation.relocation_records import (
    Relocate,
    RelocationAction,
    RelocationCounts,
    RelocationItem,
    RelocationReport,
)
from aptui.link.engine_client import EngineClient

pytestmark = pytest.mark.real


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return verb_project.write(tmp_path, monkeypatch)


@pytest.fixture
def run(project: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    run = runner(capsys)
    run("batch")
    return run


def test_move_without_confirm_is_a_preview(run: Run, project: Path) -> None:
    code, out, _ = run("move", "sub/b.up", "new/")

    assert code == 0
    assert "sub/b.up → new/b.up" in out
    assert "1 source would be moved, and gets a new UUID; nothing depends on it" in out
    assert "nothing was changed; add --confirm to change the files" in out
    assert (project / "assets/sub/b.up").exists()


def test_confirmed_move_is_processed_by_the_next_run(run: Run, project: Path) -> None:
    code, out, _ = run("move", "sub/b.up", "new/", "--confirm")
    done = json.loads(run("batch", "--json")[1])

    assert code == 0
    assert "1 of 1 file moved" in out
    assert "empty folder removed" in out
    assert (project / "assets/new/b.up").exists()
    assert done["jobs_run"] == 1 + 2  # The two failing jobs of tables/bad.json run every time.


def test_deletion_accepts_a_pattern(run: Run, project: Path) -> None:
    code, out, _ = run("delete", "tables/*", "--confirm")

    assert code == 0
    assert "2 of 2 files deleted" in out
    assert not (project / "assets/tables").exists()


def test_move_that_breaks_dependants_exits_with_3(run: Run, project: Path) -> None:
    refused = run("move", "assets/a.txt", "assets/c.txt", "--confirm")
    allowed = run("move", "assets/a.txt", "assets/c.txt", "--confirm", "--allow-broken-dependencies")

    assert refused[0] == 3
    assert "x.words: source dependency, by path: breaks" in refused[1]
    assert "refused: one file depends on files that would be moved, and would then have missing dependencies" in refused[1]
    assert allowed[0] == 0
    assert (project / "assets/c.txt").exists()


def test_move_command_rewrites_references(run: Run, project: Path) -> None:
    (project / "assets/x.words").write_text("see a.txt")

    code, out, _ = run("move", "assets/a.txt", "assets/new/b.txt", "--confirm", "--update-references")

    assert code == 0
    assert "x.words: 1 reference rewritten" in out
    assert (project / "assets/x.words").read_text() == "see new/b.txt"


def test_ambiguous_path_is_refused(run: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_two_folders = run("move", "a.txt", "b.txt")
    (project / "assets/sub/a.txt").write_text("")
    monkeypatch.chdir(project / "assets/sub")
    here_or_there = run("delete", "a.txt")
    here = run("delete", "./b.up", "--confirm")

    assert (in_two_folders[0], here_or_there[0], here[0]) == (3, 3, 0)
    assert "more than one scan folder" in in_two_folders[2]
    assert "can mean" in here_or_there[2]
    assert not (project / "assets/sub/b.up").exists()


def test_move_command_resolves_paths_from_the_current_folder(run: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project / "assets/tables")

    code, out, _ = run("move", "twice.json", "deep/")

    assert code == 0
    assert "tables/twice.json → tables/deep/twice.json" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("move", "sub", "new/"), "'sub' is a folder; use 'sub/*' to select all files in the folder"),
        (("move", "sub/**", "new/"), "two wildcards in a row"),
        (("move", "none.txt", "new/"), "'none.txt' is not in any scan folder"),
        (("move", "notes.tmp", "new/"), "is not a source: the configuration ignores this path"),
        (("move", "sub/b.up", "../new/"), "contains '..'"),
        (("move", "sub/b.up", "a|b"), "characters"),
        (("delete", "sub/b.up", "--update-references"), "unrecognized arguments"),
        (("move", "sub/b.up"), "DST"),
    ],
)
def test_mistakes_in_a_relocation_command_exit_with_3(run: Run, words: tuple[str, ...], message: str) -> None:
    code, _, err = run(*words)

    assert code == 3
    assert message in err


def test_relocation_report_is_printed_as_json(run: Run) -> None:
    report = json.loads(run("move", "assets/a.txt", "assets/new/", "--json")[1])

    assert report["items"][0]["old"] == "a.txt"
    assert report["items"][0]["new"] == "new/a.txt"
    assert report["items"][0]["dependants"][0]["fate"] == "breaks"
    assert report["counts"]["sources"] == 1
    assert report["is_performed"] is False
    assert len(report["refusals"]) == 1


class FakeEngine:
    """A connection to an engine. The engine answers each relocation with a report of one file, whose move failed."""

    asked: list[Relocate]

    def __init__(self) -> None:
        self.asked = []

    def ask(self, order: Relocate) -> dict[str, object]:
        self.asked.append(order)
        item = RelocationItem(
            "a.txt", "/p/a.txt", "game", "b.txt", "/p/b.txt", "game", action=RelocationAction.FAILED, problem="no space"
        )
        return to_builtins(RelocationReport(order, (item,), is_performed=True, counts=RelocationCounts(sources=1, failed=1)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_move_that_fails_in_a_running_engine_exits_with_1(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine()
    monkeypatch.setattr(EngineClient, "of", lambda *_args, **_named: engine)

    code, out, _ = run("move", "sub/b.up", "new/", "--confirm", "--leave-empty-folders", "--exclude-metadata-files", "--scm")

    assert code == 1
    assert "a.txt → b.txt  failed" in out
    assert "no space" in out
    assert engine.asked == [
        Relocate("sub/b.up", "new/", is_confirmed=True, leaves_empty_folders=True, excludes_metadata=True, uses_scm=True)
    ]
