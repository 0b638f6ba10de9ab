"""The one place where bytes leave for the terminal and come from it: Textual's Linux driver with what it lacks on build boxes.

Output goes to the terminal even where stderr is redirected; input may hold invalid bytes; the mouse reports clicks and drags, never mere motion,
which would cost kilobytes a move. What is drawn was made safe before, by `safety`.
"""

from __future__ import annotations

import os
import sys
from codecs import getincrementaldecoder
from functools import partial
from typing import Any

from textual.drivers import linux_driver
from textual.drivers.linux_driver import LinuxDriver


class Terminal(LinuxDriver):
    """The terminal of the screen."""

    def __init__(self, app: Any, *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        setattr(linux_driver, "getincrementaldecoder", _lenient)  # noqa: B010  # a name that the module itself imports
        stream = sys.__stderr__
        if stream is not None and not stream.isatty():
            self._file = open("/dev/tty", "w", encoding=stream.encoding, errors="replace")  # noqa: SIM115  # lives as long as the app

    @property
    def can_suspend(self) -> bool:
        """Whether the terminal can be given to something else for a while."""
        return True

    def _enable_mouse_support(self) -> None:
        if self._mouse:
            self.write("\x1b[?1000h\x1b[?1002h\x1b[?1006h")
            self.flush()

    def _disable_mouse_support(self) -> None:
        self.write("\x1b[?1000l\x1b[?1002l\x1b[?1006l")
        self.flush()

    def _enable_mouse_pixels(self) -> None:
        """Do without: a terminal that reports pixels reports every motion."""

    def set_mouse(self, *, is_on: bool) -> None:
        """Turn the mouse on or off while the app runs; off leaves selecting to the terminal."""
        self._mouse = is_on
        if is_on:
            self._enable_mouse_support()
        else:
            self._disable_mouse_support()


def _lenient(encoding: str) -> Any:
    return partial(getincrementaldecoder(encoding), errors="replace")


def is_possible() -> bool:
    """Whether there is a terminal to draw on: stdin to read keys from, and one behind stderr or `/dev/tty`."""
    if os.environ.get("TERM", "dumb") in {"", "dumb"} or sys.__stdin__ is None or not sys.__stdin__.isatty():
        return False
    if sys.__stderr__ is not None and sys.__stderr__.isatty():
        return True
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
