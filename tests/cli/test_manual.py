"""Help, manual and documentation: same texts everywhere, valid examples, complete lists of verbs, keys and variables."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tools import FEATURES, needs_feature

from aptui.cli import main, manual, verbs
from aptui.cli import parser as parsers
from aptui.cli.manual import actions_of
from aptui.cli.verbs import all_verbs
from aptui.config.yaml.config_schema import check, check_folder
from aptui.config.yaml.nodes import read_yaml
from aptui.features.gateway import documents
from aptui.shared import printing
from aptui.shared.errors import UserError
from aptui.store.jobs.filter import FIELDS

PAGE = Path(main.__file__).parents[1] / "VERBS.md"


def test_help_verb_prints_the_same_text_as_the_help_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["help", "batch"]) == 0
    output = capsys.readouterr().out
    assert main.main(["batch", "-h"]) == 0

    assert capsys.readouterr().out == output
    assert "examples:\n  aptui batch\n" in output


def test_general_help_groups_verbs_and_advises_new_users(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["help"]) == 0

    output = capsys.readouterr().out
    assert output.index("\nbegin: ") < output.index("\nbuild: ") < output.index("\nteam: ") < output.index("\nexit codes:")
    assert "New here?" in output


def test_each_action_of_the_cache_verb_has_its_own_help(capsys: pytest.CaptureFixture[str]) -> None:
    texts = set()
    for action in manual.actions_of("cache"):
        assert main.main(["cache", action, "--help"]) == 0
        texts.add(capsys.readouterr().out)
    assert len(texts) == len(manual.actions_of("cache"))

    main.main(["cache", "gc", "-h"])
    output = capsys.readouterr().out
    assert "--limit" in output
    assert "--writable" not in output


@needs_feature(*FEATURES)
def test_shipped_verbs_page_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    main.main(["docs", "--markdown"])

    assert PAGE.read_text(encoding="utf-8") == capsys.readouterr().out, "aptui docs --markdown > aptui/VERBS.md"


def test_the_man_page_names_every_verb_and_starts_no_line_with_a_stray_dot(capsys: pytest.CaptureFixture[str]) -> None:
    main.main(["docs", "--man"])

    lines = capsys.readouterr().out.splitlines()
    assert all(f".SS aptui {verb}".replace("-", "\\-") in lines for verb in all_verbs())
    known = (".TH", ".SH", ".SS", ".TP", ".B ", ".PP", ".nf", ".fi")
    assert all(line.startswith(known) for line in lines if line.startswith("."))


def test_option_with_two_values_is_documented_with_both() -> None:
    assert "--compare N N" in dict(manual.options(parsers.parser_of("log")))


def test_docs_verb_prints_the_page_of_a_verb_and_refuses_unknown_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["docs", "verify"]) == 0
    assert "--rebuild" in capsys.readouterr().out
    assert main.main(["docs", "gc"]) == 3


ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "aptui").glob("*.md"))]
_INCOMPLETE = re.compile(r"are required|expected one argument|expected at least one argument")
"""Parser errors of missing arguments. Commands that a sentence mentions, for example `aptui why`, may omit arguments."""
_PLACEHOLDER = re.compile(r"\b[A-Z][A-Z]+\b|…|\.\.\.|\[|\]|\|")
"""Placeholders in capitals, and optional words in brackets. A line that has them shows a syntax, not an example that can be run."""


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
    """Return the reason why a command line does not parse, "" if it parses."""
    verb, others = main._split_verb(words)
    if verb is not None and verb not in all_verbs():
        return f"{' '.join(words)}: unknown verb"
    try:
        (parsers.parser_of(verb, others) if verb else parsers.screen_parser()).parse_args(others)
    except SystemExit:  # of `--help` and `--version`
        pass
    except UserError as error:
        return f"{' '.join(words)}: {error}"
    return ""


@needs_feature(*FEATURES)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_command_lines_in_each_documentation_page_are_valid(page: Path) -> None:
    lines = [line for block in blocks(page, "(?:sh|console)?") for line in block.splitlines()]
    mentions = re.findall(r"`(aptui [^`\n]+)`", page.read_text(encoding="utf-8"))
    wrong = [refusal(words) for words in commands(lines)]
    wrong += [text for words in commands(mentions) if not _INCOMPLETE.search(text := refusal(words))]

    assert [text for text in wrong if text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_configurations_in_each_documentation_page_are_valid(page: Path) -> None:
    for block in blocks(page, "yaml"):
        root = read_yaml(block.encode(), page.name)
        if root.get("apiVersion") is not None:  # this YAML is a manifest of Kubernetes
            continue
        mistakes = check(root, is_partial=True)
        if mistakes and check_folder(root):  # the block may be an `aptui.yaml` or an `.aptui.yaml`
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


PACKAGE = Path(main.__file__).parents[1]


@pytest.mark.parametrize(("topic", "page"), [(topic, page.file) for topic, page in manual.pages().items()])
def test_shipped_reference_page_is_up_to_date(topic: str, page: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["docs", topic, "--markdown"]) == 0

    output = capsys.readouterr().out
    assert (PACKAGE / page).read_text(encoding="utf-8") == output, f"aptui docs {topic} --markdown > aptui/{page}"


def test_every_configuration_key_has_a_title_or_a_description() -> None:
    unexplained = [path for path, part in manual.schema_keys() if not part.get("description") and not part.get("title")]

    assert unexplained == []


def test_manual_explains_every_field_of_the_filter() -> None:
    assert tuple(manual.FIELD_TEXTS) == FIELDS


def test_every_address_of_the_gateway_is_listed() -> None:
    page = manual.reference_markdown("http")

    assert all(f" {address.path}` |" in page for address in documents.addresses())


def test_docs_verb_prints_a_topic_as_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["docs", "keys"]) == 0

    output = capsys.readouterr().out
    assert "serve.rejected" in output
    assert "`" not in output


@pytest.mark.parametrize(("topic", "file"), manual.WRITTEN_PAGES.items())
def test_docs_verb_prints_and_completes_the_pages_that_people_wrote(
    topic: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["docs", topic]) == 0

    assert capsys.readouterr().out.rstrip() == (PACKAGE / file).read_text(encoding="utf-8").rstrip()
    assert manual.complete_words(["docs", topic[:-2]]) == [topic]
    assert topic not in verbs.all_verbs()


@pytest.mark.parametrize("topic", ["keys", "guide"])
def test_man_page_of_a_topic_is_refused(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["docs", topic, "--man"]) == 3

    assert f"'{topic}' is not a verb, so it does not have a man page" in capsys.readouterr().err


@pytest.mark.parametrize("verb", verbs.all_verbs())
def test_each_verb_has_a_group_and_two_valid_examples(verb: str) -> None:
    info = verbs.all_verbs()[verb]
    assert info.group in verbs.GROUP_TEXTS
    for name in (verb, *(f"{verb} {action}" for action in actions_of(verb))):
        assert len(verbs.examples_of(name)) == 2, name
    for example in info.examples:
        words = shlex.split(example.partition(" > ")[0].removeprefix('eval "$(').removesuffix(')"'))
        assert words[:2] == ["aptui", verb]
        parsers.parser_of(verb).parse_args(words[2:])


def test_all_environment_variables_are_documented() -> None:
    read = set()
    for file in PACKAGE.rglob("*.py"):
        read |= set(re.findall(r'"(APTUI_[A-Z_]+|XDG_[A-Z_]+|NO_COLOR|ACCESSIBLE|PAGER)"', file.read_text(encoding="utf-8")))

    # The engine, not the user, sets these variables: for its workers, for builder commands, and for programs that `on:` starts.
    read -= {"APTUI_WORKER", "APTUI_WORKER_STORE", "APTUI_QUALITY", "APTUI_EVENT", "APTUI_TEXT"}
    read -= {"XDG_RUNTIME_DIR"}  # only removed from the environment of the sandbox; sockets are in the state folder
    assert read <= verbs.ENVIRONMENT.keys(), "verbs.ENVIRONMENT must list every variable that users can set"


def test_docs_are_printed_if_the_pager_cannot_be_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PAGER", "/nonexistent/pager -R")
    monkeypatch.setattr(printing, "is_terminal", lambda _stream: True)

    assert main.main(["docs", "filters"]) == 0

    assert "Filters for jobs" in capsys.readouterr().out
