"""Texts of help: every verb stands in one group and has two examples that its parser takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from aptui.cli import main, verbs
from aptui.cli.manual import actions_of

ROOT = Path(main.__file__).parents[1]


def test_every_verb_stands_in_one_group() -> None:
    grouped = [verb for names in verbs.GROUPS.values() for verb in names]

    assert sorted(grouped) == sorted(main.all_verbs())
    assert verbs.GROUPS.keys() == verbs.GROUP_TEXTS.keys()


@pytest.mark.parametrize("verb", main.all_verbs())
def test_every_verb_has_two_examples_that_its_parser_takes(verb: str) -> None:
    for name in (verb, *(f"{verb} {action}" for action in actions_of(verb))):
        assert len(verbs.EXAMPLES[name]) == 2
        for example in verbs.EXAMPLES[name]:
            words = shlex.split(example.partition(" > ")[0].removeprefix('eval "$(').removesuffix(')"'))
            assert words[:2] == ["aptui", verb]
            main.parser_of(verb).parse_args(words[2:])


def test_every_variable_that_the_program_reads_is_listed() -> None:
    read = set()
    for file in ROOT.rglob("*.py"):
        read |= set(re.findall(r'"(APTUI_[A-Z_]+|XDG_[A-Z_]+|NO_COLOR|ACCESSIBLE|PAGER)"', file.read_text(encoding="utf-8")))

    read -= {"APTUI_WORKER", "APTUI_WORKER_STORE"}  # said by an engine to its own workers
    read -= {"APTUI_QUALITY"}  # said to commands
    read -= {"APTUI_EVENT", "APTUI_TEXT"}  # said to the programs that `on` starts
    assert read <= verbs.ENVIRONMENT.keys(), "guide.ENVIRONMENT lists what people can set"
