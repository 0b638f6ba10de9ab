"""Lends the terminal for a while: plain lines in its own scrollback, a program, or the shell that started the screen.

Tests: `tests/tui/control/test_away.py`, `tests/tui/terminal/output/test_tmux.py`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Protocol, cast

from aptui.shared.sanitize import sanitize

if TYPE_CHECKING:
    from textual.app import App

    from aptui.tui.data.session import Session


class AwayHost(Protocol):
    """What this needs of the app."""

    session: Session

    @property
    def app(self) -> App[Any]:
        """The app as Textual's own."""

    def show_toast(self, text: str, severity: str = "information", seconds: float = 5.0) -> None:
        """Show a message."""

    def wake(self) -> None:
        """Ask for a frame."""


def show_plain(host: AwayHost) -> None:
    """Give the terminal its own screen back and write news there as lines, until a key is pressed."""
    from aptui.tui import plain  # for start-up: few people ask for it

    if not _can_leave(host):
        host.show_toast("this terminal has no scrollback of its own", "warning")
        return
    with host.app.suspend():
        plain.visit(host.session, cast(Any, sys.__stdout__))
    host.wake()


def suspend(host: AwayHost) -> None:
    """Stop, and leave the terminal to the shell; its `fg` brings the screen back."""
    if not _can_leave(host) or not has_shell(os.getpid(), os.getppid()):
        host.show_toast("no shell to go back to: 'q' leaves the screen", "warning")
        return
    with host.app.suspend():
        print("aptui waits: 'fg' brings it back; the engine goes on", flush=True)
        _stop_until_foreground()
    host.wake()


def lend(host: AwayHost, command: list[str], folder: str | None = None, note: str = "") -> None:
    """Let a program have the terminal until it ends; `note` is written above what it writes."""
    if not _can_leave(host):
        host.show_toast("this terminal cannot be lent to another program", "warning")
        return
    with host.app.suspend():
        if note and sys.__stdout__ is not None:
            print(sanitize(note), file=sys.__stdout__, flush=True)
        trouble = run_in_front(command, folder)
    if trouble:
        host.show_toast(trouble, "error")
    host.wake()


def show_folder(host: AwayHost, folder: str) -> None:
    """Show a folder in a window where there are some, else in a shell that begins there."""
    if not os.path.isdir(folder):
        host.show_toast(f"there is no folder '{sanitize(folder)}'", "warning")
    elif (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")) and (browser := shutil.which("xdg-open")):
        if trouble := _run_beside([browser, folder]):
            host.show_toast(trouble, "error")
    else:
        lend(host, [os.environ.get("SHELL") or "/bin/sh"], folder, f"a shell in {folder}; 'exit' comes back to aptui")


def _run_beside(command: list[str]) -> str:
    nothing = subprocess.DEVNULL
    try:
        subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
    except OSError as error:
        return _not_started(command, error)
    return ""


def run_in_front(command: list[str], folder: str | None = None) -> str:
    """Run a command that takes over the terminal; return what went wrong, "" = nothing."""
    try:
        subprocess.run(command, cwd=folder, check=False)
    except OSError as error:
        return _not_started(command, error)
    return ""


def _not_started(command: list[str], error: OSError) -> str:
    return f"'{command[0]}' cannot be started: {(error.strerror or 'no reason given').lower()}"


def _can_leave(host: AwayHost) -> bool:
    app = host.app
    return not app.is_headless and app._driver is not None and app._driver.can_suspend  # noqa: SLF001  # nobody else knows


def has_shell(process: int, parent: int) -> bool:
    """Whether somebody with job control started this: an ancestor in the same session, but in a group of its own.

    Without one, nobody would ever wake who stops (POSIX calls such a group orphaned).
    """
    group, session = os.getpgid(process), os.getsid(process)
    try:
        while os.getpgid(parent) == group and parent > 1:
            parent = _parent_of(parent)
        return parent > 1 and os.getsid(parent) == session
    except (OSError, ValueError):
        return False


def _parent_of(process: int) -> int:
    with open(f"/proc/{process}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])


def _stop_until_foreground() -> None:
    """Stop all of our group, again where `bg` woke it: in the background nothing can be drawn."""
    terminal = cast(Any, sys.__stdin__).fileno()
    while True:
        os.killpg(0, signal.SIGSTOP)
        if os.tcgetpgrp(terminal) == os.getpgrp():
            return
