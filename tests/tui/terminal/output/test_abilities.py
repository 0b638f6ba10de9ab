"""Abilities by the names of terminals; compare `infocmp -1 NAME`."""

import pytest

from aptui.tui.terminal.output.cell_rows import abilities_of


@pytest.mark.parametrize(
    ("environ", "erases_in_colour", "is_modern"),
    [
        ({"TERM": "xterm-256color"}, True, True),
        ({"TERM": "linux"}, True, True),
        ({"TERM": "rxvt-unicode-256color"}, True, True),
        ({"TERM": "st-256color"}, True, True),
        ({"TERM": "screen"}, False, True),
        ({"TERM": "screen.xterm-256color"}, False, True),
        ({"TERM": "screen-256color", "TMUX": "/tmp/t,1,0"}, True, True),
        ({"TERM": "vt220"}, False, True),
        ({"TERM": "vt100"}, False, False),
        ({"TERM": "sterile"}, False, True),
        ({}, False, True),
    ],
)
def test_abilities_follow_the_terminal_name(environ, erases_in_colour, is_modern):
    found = abilities_of(environ)

    assert (found.erases_in_colour, found.is_modern) == (erases_in_colour, is_modern)
