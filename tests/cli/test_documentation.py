"""Examples in the documentation: command lines parse, YAML is valid, the guide's first example runs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from aptui.cli import main
from aptui.cli.verbs import all_verbs
from aptui.config.yaml.checking import check, check_folder
from aptui.config.yaml.nodes import read_yaml
from aptui.shared.errors import UserError

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "aptui").glob("*.md"))]
_INCOMPLETE = re.compile(r"are required|expected one argument|expected at least one argument")
"""Errors of a command that the text only mentions, which may leave out arguments."""
_PLACEHOLDER = re.compile(r"\b[A-Z][A-Z]+\b|…|\.\.\.|\[|\]|\|")
"""Words in capitals stand for a value, brackets for an optional word: such a line shows a form and is not run."""


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def commands(lines: list[str]) -> list[list[str]]:
    """Return the words of every `aptui VERB …` line that is an example."""
    found = []
    for line in lines:
        for part in re.split(r"&&|\|\||;|\||[^-]>|\s#\s", line.removeprefix("$ ")):
            command = part.strip().removeprefix("TOKEN=$(").rstrip(")")
            if command.startswith("aptui ") and not _PLACEHOLDER.search(command):
                found.append(shlex.split(command)[1:])
    return found


def refusal(words: list[str]) -> str:
    """Return the reason for which a command line does not parse, "" if it does."""
    verb, others = main._split(words)
    if verb is not None and verb not in all_verbs():
        return f"{' '.join(words)}: unknown verb"
    try:
        (main.parser_of(verb, others) if verb else main.screen_parser()).parse_args(others)
    except SystemExit:  # --help, --version
        pass
    except UserError as error:
        return f"{' '.join(words)}: {error}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_command_lines_of_a_page_parse(page: Path) -> None:
    lines = [line for block in blocks(page, "(?:sh|console)?") for line in block.splitlines()]
    mentions = re.findall(r"`(aptui [^`\n]+)`", page.read_text(encoding="utf-8"))
    wrong = [refusal(words) for words in commands(lines)]
    wrong += [text for words in commands(mentions) if not _INCOMPLETE.search(text := refusal(words))]

    assert [text for text in wrong if text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_configurations_of_a_page_are_valid(page: Path) -> None:
    for block in blocks(page, "yaml"):
        root = read_yaml(block.encode(), page.name)
        if root.get("apiVersion") is not None:  # a manifest of Kubernetes
            continue
        mistakes = check(root, is_partial=True)
        if mistakes and check_folder(root):  # a page may also show an `.aptui.yaml`
            pytest.fail(f"{block}\n{mistakes[0]}")


@pytest.mark.real
def test_first_example_of_the_guide_runs(tmp_path: Path) -> None:
    script = blocks(ROOT / "aptui" / "GUIDE.md", "")[0]
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    environment = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path), "PATH": path}

    ended = subprocess.run(["sh", "-e"], input=script, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stderr
    assert re.findall(r"^\d+ jobs? run", ended.stdout, re.MULTILINE) == ["1 job run", "0 jobs run", "1 job run"]
    assert "it last ran because: source 'greeting.txt' changed" in ended.stdout
