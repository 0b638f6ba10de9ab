"""Every verb has a group and two examples that its parser accepts; every environment variable is documented."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from aptui.cli import main, verbs
from aptui.cli.manual import actions_of

ROOT = Path(main.__file__).parents[1]


@pytest.mark.parametrize("verb", verbs.all_verbs())
def test_verb_has_a_group_and_two_valid_examples(verb: str) -> None:
    info = verbs.all_verbs()[verb]
    assert info.group in verbs.GROUP_TEXTS
    for name in (verb, *(f"{verb} {action}" for action in actions_of(verb))):
        assert len(verbs.examples_of(name)) == 2, name
    for example in info.examples:
        words = shlex.split(example.partition(" > ")[0].removeprefix('eval "$(').removesuffix(')"'))
        assert words[:2] == ["aptui", verb]
        main.parser_of(verb).parse_args(words[2:])


def test_all_environment_variables_are_documented() -> None:
    read = set()
    for file in ROOT.rglob("*.py"):
        read |= set(re.findall(r'"(APTUI_[A-Z_]+|XDG_[A-Z_]+|NO_COLOR|ACCESSIBLE|PAGER)"', file.read_text(encoding="utf-8")))

    read -= {"APTUI_WORKER", "APTUI_WORKER_STORE"}  # set by an engine for its workers
    read -= {"APTUI_QUALITY"}  # set for commands
    read -= {"APTUI_EVENT", "APTUI_TEXT"}  # set for the programs that `on` starts
    assert read <= verbs.ENVIRONMENT.keys(), "verbs.ENVIRONMENT lists the variables that users can set"
