"""`help` and `docs`: the same texts as help, plain text, man page and Markdown; the shipped page is up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from aptui.cli import main, manual
from aptui.cli.verbs import all_verbs

PAGE = Path(main.__file__).parents[1] / "VERBS.md"


def test_help_verb_equals_help_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["help", "batch"]) == 0
    said = capsys.readouterr().out
    assert main.main(["batch", "-h"]) == 0

    assert capsys.readouterr().out == said
    assert "examples:\n  aptui batch\n" in said


def test_help_without_verb_groups_verbs_and_shows_first_steps(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["help"]) == 0

    said = capsys.readouterr().out
    assert said.index("\nbegin: ") < said.index("\nbuild: ") < said.index("\nteam: ") < said.index("\nexit codes:")
    assert "New here?" in said


def test_each_action_of_cache_has_a_help_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    texts = set()
    for action in manual.actions_of("cache"):
        assert main.main(["cache", action, "--help"]) == 0
        texts.add(capsys.readouterr().out)
    assert len(texts) == len(manual.actions_of("cache"))

    main.main(["cache", "gc", "-h"])
    said = capsys.readouterr().out
    assert "--limit" in said
    assert "--writable" not in said


def test_shipped_verbs_page_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    main.main(["docs", "--markdown"])

    assert PAGE.read_text(encoding="utf-8") == capsys.readouterr().out, "aptui docs --markdown > aptui/VERBS.md"


def test_the_man_page_names_every_verb_and_starts_no_line_with_a_stray_dot(capsys: pytest.CaptureFixture[str]) -> None:
    main.main(["docs", "--man"])

    lines = capsys.readouterr().out.splitlines()
    assert all(f".SS aptui {verb}".replace("-", "\\-") in lines for verb in all_verbs())
    known = (".TH", ".SH", ".SS", ".TP", ".B ", ".PP", ".nf", ".fi")
    assert all(line.startswith(known) for line in lines if line.startswith("."))


def test_docs_of_one_verb_and_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["docs", "verify"]) == 0
    assert "--rebuild" in capsys.readouterr().out
    assert main.main(["docs", "gc"]) == 3
