"""Keys that arrive together over a slow line have the same effect as keys typed slowly (`bursts`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tools import needs

from tests.tui.bursts import SCRIPTS, Typist
from tests.tui.tmux_harness import Home, Tmux, wait

pytestmark = [
    pytest.mark.real,
    needs("tmux"),
]


@pytest.fixture(scope="module")
def typist(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Typist]:
    with Home(tmp_path_factory.mktemp("home")) as home:
        home.run("start")
        wait(lambda: home.run("jobs", "--filter", "status:failed").count("bad.json"), "the first build", str, 60)
        with Tmux(home) as tmux:
            yield Typist(tmux)


@pytest.mark.parametrize(
    "name",
    [
        "an error by filter",
        "a row after help and reasons",
        "the jobs of an asset",
        "a product",
        "a line of the log",
        "a pattern of a builder",
    ],
)
def test_keys_sent_without_pauses_copy_the_expected_text(typist: Typist, name: str) -> None:
    """Send the keys of one script without pauses.

    `python -m tests.tui.bursts` runs for minutes: it types all scripts, first without pauses and then with random pauses.
    """
    script, expected = SCRIPTS[name]
    typist.begin(script)

    assert typist.type(script, None).endswith(expected)
