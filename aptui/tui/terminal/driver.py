"""The one place where bytes leave for the terminal and come from it: Textual's Linux driver with what it lacks on build boxes.

Output goes to the terminal even where stderr is redirected; input may hold invalid bytes; the mouse reports clicks and drags, never
mere motion, which would cost kilobytes a move. What is drawn was made safe before, by `safety`.

Keys are handed over one by one: a key may move the focus, and Textual moves it some messages later. Over a slow line many keys
arrive at once, and without waiting the `r` of a filter typed behind `/` would run a job again.

Tests: `tests/tui/test_driver.py`, `tests/tui/test_safety.py`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from codecs import getincrementaldecoder
from concurrent import futures
from functools import partial
from typing import TYPE_CHECKING, Any

from textual import events
from textual.drivers import linux_driver
from textual.drivers.linux_driver import LinuxDriver

if TYPE_CHECKING:
    from textual.app import App
    from textual.message import Message
    from textual.message_pump import MessagePump

_KEY_WITHIN_S = 1.0
"""So long the next key waits at most for what a key does; a pane that opens for the first time takes a tenth of it."""
_ROUNDS = 3
"""How often messages go up from the focus to the app before a key is done with: the key; what its action posts.

The focus this moves.
"""


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

    def _get_terminal_size(self) -> tuple[int, int]:
        """Return (columns, lines) of the terminal that is drawn on.

        Never what COLUMNS and LINES say: an exported one is that of another terminal, or of this one before it was resized. And
        not that of stdout, which may be a file.
        """
        for stream in (self._file, sys.__stdin__):
            try:
                columns, lines = os.get_terminal_size(stream.fileno()) if stream is not None else (0, 0)
            except (OSError, ValueError):  # it is no terminal, or closed
                continue
            if columns and lines:
                return columns, lines
        return 80, 25

    def send_message(self, message: Message) -> None:
        """Hand a message to the app.

        After a key wait, here in the thread that reads them, until the app has done what it asks for.
        """
        if not isinstance(message, (events.Key, events.Paste)):
            super().send_message(message)
            return
        taken_in = asyncio.run_coroutine_threadsafe(_take_in(self._app, message), self._loop)
        # Whoever ends the input waits for this thread, in the loop that this thread waits for.
        while not self.exit_event.is_set() and not futures.wait([taken_in], 0.05).done:
            pass

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


async def _take_in(app: App[Any], message: Message) -> None:
    """Post a key and wait until it, and what follows from it, has gone up from the focused widget to the app."""
    way: list[MessagePump] = [app, *(app.focused or app.screen).ancestors_with_self]
    await app._post_message(message)  # noqa: SLF001  # as the driver's own `send_message`
    try:
        async with asyncio.timeout(_KEY_WITHIN_S):
            for pump in way * _ROUNDS:
                await _passed(pump)
    except TimeoutError:
        pass  # what takes longer, the next key does not wait for


async def _passed(pump: MessagePump) -> None:
    """Wait until everything that was posted to `pump` so far is handled; do not wait for one that closes."""
    is_passed = asyncio.Event()
    if pump.call_later(is_passed.set):
        await is_passed.wait()


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
