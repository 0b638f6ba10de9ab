"""Test that the fast reader of command lines returns the same arguments as `argparse`."""

from __future__ import annotations

import shlex
from functools import partial
from importlib import import_module

import pytest

from aptui.cli import main, plain_words
from aptui.cli.parser import Parser, parser_of
from aptui.cli.verbs import all_verbs
from aptui.shared.errors import UserError


def read(verb, words):
    return plain_words.read(partial(main.declare, module=import_module(main.find_verb(verb).module), verb=verb), words)


def uses_of(parser: Parser):
    """Return valid and invalid words for each argument of a verb."""
    for action in parser._actions:
        values = [[str(each)] for each in action.choices or ("1", "a", "error", "-1", "--", "", "a=b")]
        if isinstance(action.nargs, int):
            values = [] if action.nargs == 0 else [["1"] * action.nargs]
        for name in action.option_strings or [""]:
            yield [name] if name else []
            for value in values:
                yield [name, *value] if name else value
                yield [f"{name}={value[0]}"] if name else [*value, *value]


@pytest.mark.parametrize("verb", sorted(all_verbs()))
def test_plain_words_give_the_same_arguments_as_argparse(verb):
    parser = parser_of(verb)
    uses = list(uses_of(parser))
    lines = [[], *uses, *([*one, *other] for one in uses for other in (["--json"], ["word"])), *(["word", *one] for one in uses)]

    for words in lines:
        found = read(verb, words)
        if found is not None:
            assert vars(found) == vars(parser.parse_args(words)), words


@pytest.mark.parametrize(
    "line",
    [
        "batch", "batch --json --project there", "batch -C there --full-scan --set a=b --set c=d", "status --json", "jobs",
        "jobs --status failed --status pending --json", "why textures/a.png --json", "log '#3' --run 2", "reprocess a b --json",
    ],
)  # fmt: skip
def test_usual_command_line_is_read_without_argparse(line):
    verb, *words = shlex.split(line)

    assert vars(read(verb, words)) == vars(parser_of(verb).parse_args(words))


@pytest.mark.parametrize(
    "line",
    [
        "batch --help", "batch --ful", "batch --fail-on error", "batch --workers many", "batch --json=yes", "batch word",
        "status --json --openmetrics", "why", "why a b", "why a --json b", "jobs --status unknown",
    ],
)  # fmt: skip
def test_invalid_and_rare_command_lines_are_left_to_argparse(line):
    verb, *words = shlex.split(line)

    assert read(verb, words) is None


def test_argparse_reports_a_mistake(capsys):
    assert main.main(["batch", "--workers", "many"]) == UserError.exit_code
    assert "argument --workers: invalid int value: 'many'" in capsys.readouterr().err
