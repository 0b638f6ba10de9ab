"""Options that would have no effect are refused, with the verb or option with which they have one."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator

import pytest
from _pytest.mark import ParameterSet
from tools import needs_feature

from aptui.cli import main, screen_verb
from aptui.shared.errors import UserError

LOOSE = [
    ("verify --seed 0", "'--seed' has no effect without '--rebuild'; add for example '--rebuild 5%'"),
    ("cache verify --seed 1", "'--seed' has no effect without '--rebuild'"),
    ("cache verify --rebuild 5% --store x", "'--store' has no effect with '--rebuild'"),
    ("cache stats --rebuild 5%", "'--rebuild' is not an option of 'cache stats'; remove it; 'aptui help cache stats'"),
    ("cache gc --platforms linux", "'--platforms' is not an option of 'cache gc'"),
    ("cache test --trust-code", "'--trust-code' is not an option of 'cache test'"),
    ("cache prefetch --limit 5GiB", "'--limit' is not an option of 'cache prefetch'"),
    ("cache serve --json", "'--json' is not an option of 'cache serve'"),
    ("cache verify --port 80", "'--port' is not an option of 'cache verify'"),
    ("logs --lines 0", "--lines: 0 is not a valid number of lines; give a number above 0"),
    ("logs --lines -3", "--lines: -3 is not a valid number of lines"),
    ("logs --path --lines 50", "'--lines' has no effect with '--path'"),
    ("log a.txt --run 0 --follow", "--follow cannot be used with --run"),
    ("doctor --systemd --json", "'--json' has no effect with '--systemd'"),
    ("builder new mine --platform linux", "'--platform' has no effect with 'new'"),
    ("builder new mine a.txt", "'new' does not use a FILE"),
    ("size --by builder --depth 2", "'--depth' has no effect with '--by builder'; remove it, or use '--by folder'"),
    ("size --depth 0", "--depth: 0 is not between 1 and 64"),
    ("size --html a.html --limit 3", "'--limit' has no effect with '--html'"),
    ("report --by owner --depth 2", "'--depth' has no effect with '--by owner'"),
    ("history last --limit 3", "'--limit' has no effect if a session is named"),
    ("scan-missing --clear --sources", "'--sources' has no effect with '--clear'"),
    ("scan-missing --clear --max-matches 0", "'--max-matches' has no effect with '--clear'"),
    ("scan-missing --clear --fail", "'--fail' has no effect with '--clear'"),
    ("token list --scopes read", "'--scopes' has no effect with 'list'"),
    ("token revoke mine --days 3", "'--days' has no effect with 'revoke'"),
    ("token list mine", "'list' does not use the name of a token"),
    ("client catalog --notices a", "'--notices' is an option of 'watch' only"),
    ("client watch --output a", "'--output' is an option of 'get' only"),
    ("client get a.txt --json", "'--json' has no effect with 'get'"),
    ("client watch a.txt", "'watch' does not use the word 'a.txt'"),
    ("client ping --token a --token-file b", "'--token-file' has no effect with '--token'"),
    ("trust --list a", "'--list' does not use DIR"),
    ("trust -C a b", "'--project' and DIR both name the folder of the project; use only one of them"),
    ("init -C a b", "'--project' and DIR both name the folder"),
    ("demo -C a b", "'--project' and DIR both name the folder"),
    ("demo --batch --web", "'--batch' has no effect with '--web'"),
    ("docs --man --markdown", "'--markdown' has no effect with '--man'"),
    ("completion bash jobs", "'bash' does not use the word 'jobs'"),
    ("capsule run a.tgz --out b", "'--out' has no effect with 'run'"),
    ("capsule a.txt --trust-code", "'--trust-code' is an option of 'run' only"),
    ("capsule a.txt --limit 1GiB", "'--limit' is an option of 'run' only"),
]


FEATURES = {
    **dict.fromkeys(("size", "report", "history", "capsule"), "insight"), **dict.fromkeys(("token", "client"), "gateway"),
    "cache": "sharing", "scan-missing": "shipping",
}  # fmt: skip
"""{verb: its feature}."""


def list_cases() -> Iterator[ParameterSet]:
    for words, message in LOOSE:
        feature = FEATURES.get(words.partition(" ")[0])
        yield pytest.param(words, message, id=words, marks=[needs_feature(feature)] if feature else [])


@pytest.mark.parametrize(("words", "message"), [*list_cases()])
def test_option_without_effect_is_refused(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(words.split()) == 3
    assert message in capsys.readouterr().err


def test_read_only_screen_refuses_to_adopt_a_cache() -> None:
    with pytest.raises(UserError, match="'--adopt-cache' cannot be used with '--read-only'"):
        screen_verb.tui(Namespace(read_only=True, adopt_cache=True))
