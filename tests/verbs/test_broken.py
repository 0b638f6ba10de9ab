"""Verbs that only look or ask, beside a configuration or a builder that cannot be loaded, or a scan folder that is away."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import verb_project
from homes import own_homes

from aptui.cli import main

pytestmark = pytest.mark.real

Break = Callable[[Path], None]


def break_yaml(project: Path) -> None:
    """Leave a list open."""
    (project / "aptui.yaml").write_text(verb_project.CONFIG + "cache: [\n")


def break_builder(project: Path) -> None:
    """Leave a function without a name."""
    (project / "builders" / "words.py").write_text("def (\n")


def take_folder_away(project: Path) -> None:
    """Rename a scan folder."""
    (project / "shared").rename(project / "away")


WRONG = {
    "yaml": (break_yaml, "aptui.yaml:"),
    "builder": (break_builder, "words.py:1"),
    "folder": (take_folder_away, "does not exist"),
}


@pytest.fixture(scope="module")
def processed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("broken")
    with pytest.MonkeyPatch.context() as patch:
        project = verb_project.write(folder, patch)
        assert main.main(["batch"]) == 1
    return project


@pytest.fixture
def project(processed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    before = processed.parent / "before"
    if not before.exists():
        shutil.copytree(processed, before)
    shutil.rmtree(processed)
    shutil.copytree(before, processed)
    own_homes(processed.parent, monkeypatch)
    monkeypatch.chdir(processed)
    return processed


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize(
    "words", [("status",), ("why", "x.words"), ("jobs",), ("log", "x.words@linux"), ("stop",), ("changes", "--since", "0")]
)
def test_what_only_looks_or_asks_works_and_says_what_is_broken(
    project: Path, capsys: pytest.CaptureFixture[str], name: str, words: tuple[str, ...]
) -> None:
    spoil, place = WRONG[name]
    spoil(project)

    code = main.main(words)

    told = capsys.readouterr()
    assert code == 0
    assert told.out
    # A builder that cannot be imported fails its own jobs when they run, and nothing else.
    assert place in told.err or name == "builder"


def test_the_names_of_broken_builders_are_those_of_the_last_time(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    break_builder(project)

    assert main.main(["why", "x.words@linux"]) == 0

    assert "builder words" in capsys.readouterr().out


def test_what_runs_something_still_refuses(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    break_yaml(project)

    assert main.main(["batch"]) == 3
    assert "aptui.yaml:" in capsys.readouterr().err


def test_where_nobody_remembers_one_that_was_right_the_mistake_is_told(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(project / "empty"))
    break_yaml(project)

    assert main.main(["status"]) == 3
    assert "aptui.yaml:" in capsys.readouterr().err
