"""`completion`: completions of the last word, and valid code for each shell."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import verb_project
from tools import needs

from aptui.cli import completion, main


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["repr"], ["reprocess"]),
        (["rep"], ["reprocess", "report"]),
        (["help", "bat"], ["batch"]),
        (["--vers"], ["--version"]),
        (["cache", "pre"], ["prefetch"]),
        (["batch", "--jun"], ["--junit"]),
        (["token", ""], ["add", "list", "revoke"]),
        (["-C", "x", "stat"], ["status"]),
        (["nothing"], []),
    ],
)
def test_words_are_completed(words: list[str], offered: list[str]) -> None:
    assert completion.complete_words(words) == offered


@pytest.mark.real
def test_sources_and_jobs_are_completed_folder_by_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = verb_project.write(tmp_path, monkeypatch)
    main.main(["batch"])
    capsys.readouterr()

    assert "tables/" in completion.complete_words(["why", ""])
    assert completion.complete_words(["why", "tables/b"]) == ["tables/bad.json"]
    assert "#1" in completion.complete_words(["-C", str(project), "log", "#"])


def test_unprocessed_project_offers_no_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    verb_project.write(tmp_path, monkeypatch)

    assert main.main(["completion", "words", "--", "why", "a"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.real
@pytest.mark.parametrize("shell", ["bash", pytest.param("zsh", marks=needs("zsh")), pytest.param("fish", marks=needs("fish"))])
def test_code_for_each_shell_is_valid(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["completion", shell]) == 0
    code = capsys.readouterr().out

    subprocess.run([shell, "-n"], input=code, text=True, check=True)
    if shell == "bash":
        script = (
            f"aptui() {{ echo batch; echo builders; }}\n{code}\nCOMP_WORDS=(aptui b) COMP_CWORD=1; _aptui; echo ${{COMPREPLY[@]}}"
        )
        ended = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
        assert ended.stdout == "batch builders\n"
