"""The terminal's size is that of the terminal, whatever the environment says."""

import fcntl
import os
import pty
import struct
import termios
from types import SimpleNamespace

import pytest
from textual import events

from aptui.tui.terminal.driver import Terminal, as_meant


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


def test_enter_typed_before_the_screen_is_there_is_enter() -> None:
    assert as_meant(events.Key("ctrl+j", "\n")).key == "enter"
    assert as_meant(events.Key("j", "j")).key == "j"
    paste = events.Paste("a\nb")
    assert as_meant(paste) is paste
