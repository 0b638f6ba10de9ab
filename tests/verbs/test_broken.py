"""Verbs that only read still work with a broken configuration, a broken builder or a missing scan folder, and report it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import verb_project
from homes import own_homes
from tools import needs_feature

from aptui.cli import main

pytestmark = pytest.mark.real

Break = Callable[[Path], None]


def break_yaml(project: Path) -> None:
    """Write YAML with an unclosed list."""
    (project / "aptui.yaml").write_text(verb_project.CONFIG + "cache: [\n")


def break_builder(project: Path) -> None:
    """Write a builder with a syntax error."""
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
    "words",
    [
        ("status",),
        ("why", "x.words"),
        ("jobs",),
        ("log", "x.words@linux"),
        ("stop",),
        pytest.param(("changes", "--since", "0"), marks=needs_feature("gateway")),
    ],
)
def test_reading_verbs_work_and_report_a_mistake_in_the_configuration(
    project: Path, capsys: pytest.CaptureFixture[str], name: str, words: tuple[str, ...]
) -> None:
    spoil, place = WRONG[name]
    spoil(project)

    code = main.main(words)

    output = capsys.readouterr()
    assert code == 0
    assert output.out
    # A builder that cannot be imported fails only its own jobs.
    assert place in output.err or name == "builder"


def test_broken_builder_has_its_name_from_the_last_load(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    break_builder(project)

    assert main.main(["why", "x.words@linux"]) == 0

    assert "builder words" in capsys.readouterr().out


def test_batch_refuses_broken_configuration(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    break_yaml(project)

    assert main.main(["batch"]) == 3
    assert "aptui.yaml:" in capsys.readouterr().err


def test_status_without_stored_configuration_reports_the_mistake(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(project / "empty"))
    break_yaml(project)

    assert main.main(["status"]) == 3
    assert "aptui.yaml:" in capsys.readouterr().err
