"""The terminal's size is that of the terminal, whatever the environment says."""

import fcntl
import os
import pty
import struct
import termios
from types import SimpleNamespace

import pytest

from aptui.tui.terminal.driver import Terminal


def test_the_size_is_that_of_the_terminal_whatever_was_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 45, 160, 0, 0))
    with os.fdopen(ours, "wb", 0), os.fdopen(theirs, "w") as stream:
        driver = SimpleNamespace(_file=stream)

        assert Terminal._get_terminal_size(driver) == (160, 45)


def test_without_any_terminal_there_is_a_size_to_draw_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.__stdin__", None)
    with open(os.devnull, "w") as stream:  # a stream that is no terminal
        assert Terminal._get_terminal_size(SimpleNamespace(_file=stream)) == (80, 25)
