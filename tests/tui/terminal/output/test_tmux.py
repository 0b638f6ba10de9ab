"""In a real terminal, with any TERM, the same keys show the same characters with the output layer and without it."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools import needs

from tests.tui.model_terminal import Cell, ModelTerminal
from tests.tui.tmux_harness import Home, Pane, Tmux, wait

pytestmark = [
    pytest.mark.real,
    needs("tmux"),
]

SCRIPT = (
    ("j", "j", "Enter"),
    ("Escape", "2"),
    ("Down", "Right", "Down"),
    ("5",),
    ("?",),
    ("Escape", "1", "/"),
    ("d", "a"),
    ("C-l",),
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    with Home(tmp_path_factory.mktemp("home")) as home:
        home.run("batch")
        yield home


class Person:
    """A terminal that displays tmux. Its cells have all colours; `capture-pane` of tmux omits the colours of erased cells."""

    def __init__(self, tmux: Tmux) -> None:
        self._outer = tmux.outer
        self._screen = ModelTerminal(tmux.outer.columns, tmux.outer.lines)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._fed = 0

    def screen_of(self, pane: Pane) -> list[list[Cell]]:
        """Let tmux display a pane, and return the cells of the terminal."""
        before = len(self._outer.seen)
        pane.tmux.say("select-window", "-t", pane.name, ";", "refresh-client")
        self._outer.wait(lambda term: len(term.seen) > before, "a drawn picture")
        self._outer.settle(0.1)
        new = bytes(self._outer.seen[self._fed :])
        self._fed += len(new)
        self._screen.feed(self._decoder.decode(new))
        return self._screen.cells()


@pytest.mark.parametrize(("term", "columns", "lines"), [("xterm-256color", 120, 30), ("screen", 80, 24)], ids=str)
def test_screen_in_tmux_has_the_same_cells_as_the_output_of_textual(
    home: Home, tmp_path: Path, term: str, columns: int, lines: int
) -> None:
    with Tmux(home, columns, lines) as tmux:
        person, panes = Person(tmux), []
        for output in ("stock", "thrifty"):
            environ = (f"TERM={term}", f"APTUI_OUTPUT={output}", f"XDG_STATE_HOME={tmp_path / output}")
            panes.append(tmux.open("open", "Cache", environ=environ))
        for pane in panes:
            pane.shows("bad.json", "✗ failed")

        for keys in SCRIPT:
            for pane in panes:
                pane.keys(*keys)

            def are_alike() -> bool:
                stock, ours = map(person.screen_of, panes)
                return stock == ours

            wait(are_alike, f"the same cells after {keys}", lambda: "\n".join(pane.screen() for pane in panes))
        assert "da" in panes[1].screen()
