"""What is typed at once, as a slow line brings it, and what is typed with pauses, does the same (`bursts`)."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator

import pytest

from tests.tui.bursts import SCRIPTS, Typist
from tests.tui.tmux_room import Home, Tmux, wait

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not here"),
]


@pytest.fixture(scope="module")
def typist(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Typist]:
    with Home(tmp_path_factory.mktemp("home")) as home:
        home.run("start")
        wait(lambda: home.run("jobs", "--filter", "status:failed").count("bad.json"), "the first build", str, 60)
        with Tmux(home) as tmux:
            yield Typist(tmux)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_copies_the_same_however_it_is_typed(typist: Typist, name: str) -> None:
    script, expected = SCRIPTS[name]
    typist.begin()
    at_once = typist.type(script, None)
    typist.begin()
    with_pauses = typist.type(script, random.Random(name))

    assert at_once.endswith(expected)
    assert with_pauses == at_once
