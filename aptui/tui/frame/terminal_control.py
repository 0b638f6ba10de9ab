"""Actions on the terminal itself: switch the mouse, redraw, show plain lines, lend the terminal to a shell or program, copy.

Tests: `tests/tui/screens/tools/test_tools_pane.py`, `tests/tui/test_shell.py`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from aptui.shared.printing import count, sanitize
from aptui.tui.background import run_in_background
from aptui.tui.preferences.keymap import Actions, show_key
from aptui.tui.terminal.output.display import DiffRenderingApp, output_of
from aptui.tui.words import shorten

if TYPE_CHECKING:
    from aptui.tui.frame.commandline import Host
    from aptui.tui.preferences.state import UiMemory
    from aptui.tui.terminal.clipboard import Clipboard
    from aptui.tui.terminal.pixels import PixelScreen


def lend(host: Host, command: list[str], folder: str | None = None, note: str = "") -> None:
    """Lend the terminal to a program until it ends; `note` is printed before the program's output."""
    if not _can_leave(host):
        host.show_toast("other programs cannot be started in this terminal", "warning")
        return
    with host.app.suspend():
        if note and sys.__stdout__ is not None:
            print(sanitize(note), file=sys.__stdout__, flush=True)
        trouble = run_in_front(command, folder)
    if trouble:
        host.show_toast(trouble, "error")
    host.wake()


def show_folder(host: Host, folder: str) -> None:
    """Show a folder in a window if a desktop is running, otherwise in a shell that starts in the folder."""
    if not os.path.isdir(folder):
        host.show_toast(f"folder not found: '{sanitize(folder)}'", "warning")
    elif (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")) and (browser := shutil.which("xdg-open")):
        if trouble := _run_beside([browser, folder]):
            host.show_toast(trouble, "error")
    else:
        lend(host, [os.environ.get("SHELL") or "/bin/sh"], folder, f"a shell in {folder}; 'exit' returns to aptui")


def _run_beside(command: list[str]) -> str:
    nothing = subprocess.DEVNULL
    try:
        subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
    except OSError as error:
        return _not_started(command, error)
    return ""


def run_in_front(command: list[str], folder: str | None = None) -> str:
    """Run a command on the terminal; return an error message, "" = success."""
    try:
        subprocess.run(command, cwd=folder, check=False)
    except OSError as error:
        return _not_started(command, error)
    return ""


def _not_started(command: list[str], error: OSError) -> str:
    return f"'{command[0]}' cannot be started: {(error.strerror or 'no reason given').lower()}"


def _can_leave(host: Host) -> bool:
    app = host.app
    return not app.is_headless and app._driver is not None and app._driver.can_suspend  # noqa: SLF001  # Textual has no public name for it


def has_shell(process: int, parent: int) -> bool:
    """Return whether a shell with job control started a process.

    If so, an ancestor is in the same session but in another process group. Without this shell, a stopped process would never be
    continued (POSIX calls its group orphaned).
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
    """Suspend the process group. After `bg` suspend it again, because a background process cannot draw on the terminal."""
    terminal = cast(Any, sys.__stdin__).fileno()
    while True:
        os.killpg(0, signal.SIGSTOP)
        if os.tcgetpgrp(terminal) == os.getpgrp():
            return


class TerminalControl(Actions):
    """Actions on the terminal of the app."""

    def __init__(self, host: Host, person: UiMemory, read_again: Callable[[], object]) -> None:
        self._host, self._person, self._read_again = host, person, read_again
        self.has_mouse = True

    def set_mouse(self, *, is_on: bool) -> None:
        """Turn mouse reports on or off; while they are off, the terminal itself selects text with the mouse."""
        self.has_mouse = is_on
        self._person.put("mouse", is_on)
        turn = getattr(self._host.app._driver, "set_mouse", None)  # noqa: SLF001  # Textual does so only when it starts
        if turn is not None:
            turn(is_on=is_on)
        self._host.wake()
        self._host.show_toast("the mouse is on" if is_on else "the mouse is off: the terminal selects text")

    def action_mouse(self) -> None:
        """Toggle mouse reports."""
        self.set_mouse(is_on=not self.has_mouse)

    @property
    def wants_pixels(self) -> bool:
        """Whether the user wants pictures as pixels if the terminal can show them."""
        return self._person.get("pixels", False)

    def set_pixels(self, *, is_on: bool) -> None:
        """Show pictures as pixels if the terminal can, or as blocks of cells."""
        self._person.put("pixels", is_on)
        self.ask_for_pixels(self._report_pixels)

    def action_pixels(self) -> None:
        """Show pictures as pixels, or as blocks."""
        self.set_pixels(is_on=not self.wants_pixels)

    def ask_for_pixels(self, then: Callable[[PixelScreen | None], object] = lambda _: None) -> None:
        """If the user wants pixels, ask the terminal whether it shows them; draw pictures again; call `then` with the answer."""
        app = self._host.app
        output, ask = output_of(app), getattr(app._driver, "ask_for_pixels", None)  # noqa: SLF001  # as above

        def accept() -> None:
            pixels = output.pixels if output is not None else None
            if output is not None and pixels is not None and pixels.is_wrapped:
                output.restore_pictures()  # all pictures are sent again, because another terminal may show the tmux session now
            if isinstance(app, DiffRenderingApp):
                app.pixels_changed.publish(None)
            then(pixels)

        if output is not None and ask is not None and self.wants_pixels:
            ask(accept)
            return
        if output is not None:
            output.pixels = None
        accept()

    def _report_pixels(self, pixels: PixelScreen | None) -> None:
        if not self.wants_pixels:
            self._host.show_toast("pictures are drawn with blocks")
        elif pixels is None:
            self._host.show_toast(
                "this terminal supports neither kitty's placeholders nor sixel, so pictures are drawn with blocks"
            )
        else:
            self._host.show_toast(f"pictures are drawn as pixels ({pixels.protocol}), and with blocks while the connection is slow")

    def action_redraw(self) -> None:
        """Read all data and draw the screen again."""
        app = self._host.app
        if app._driver is not None and not app.is_headless:  # noqa: SLF001  # nothing else clears a terminal
            app._driver.write("\x1b[2J")  # noqa: SLF001  # as above
        app.refresh(layout=True)
        self._read_again()

    def action_plain(self) -> None:
        """Write messages as lines in the terminal's own scrollback until a key is pressed."""
        from aptui.tui import plain  # imported here because this action is rarely used

        host = self._host
        if not _can_leave(host):
            host.show_toast("cannot show plain lines: this terminal has no scrollback of its own", "warning")
            return
        with host.app.suspend():
            plain.visit(host.session, cast(Any, sys.__stdout__))
        host.wake()

    def action_suspend(self) -> None:
        """Stop the process and leave the terminal to the shell until the user enters `fg`."""
        host = self._host
        if not _can_leave(host) or not has_shell(os.getpid(), os.getppid()):
            host.show_toast("cannot suspend aptui, because it was not started from a shell; press 'q' to quit", "warning")
            return
        with host.app.suspend():
            print("aptui is suspended: type 'fg' to continue; the engine keeps running", flush=True)
            _stop_until_foreground()
        host.wake()


_SNIPPET, _LEAST_SNIPPET, _AROUND = 36, 8, 6
"""Widths in the message after a copy (cells): maximum and minimum width of the copied text, width of the margins."""
_TWICE_S = 2.0
"""Maximum time between two presses of `Ctrl+C` that together quit (seconds)."""


class Copying(Actions):
    """Copies text and reports how it reached the clipboard; `Ctrl+C` copies the selected text, or quits if no text is selected."""

    def __init__(self, host: Host, clips: Clipboard) -> None:
        self._host, self._clips = host, clips
        self._ctrl_c_at = -_TWICE_S

    def copy(self, text: str, *, raw: bool = False) -> None:
        """Copy text. Control sequences are removed unless `raw` is set."""
        first, _, rest = text.strip("\n").partition("\n")
        more = f" and {count(1 + rest.count(chr(10)), 'line')} more" if rest else ""

        def say(way: str) -> None:
            rest = f"{more} · {way}"
            free_width = self._host.app.size.width - _AROUND - len("copied ") - len(rest)
            self._host.show_toast(f"copied {shorten(sanitize(first), max(_LEAST_SNIPPET, min(_SNIPPET, free_width)))}{rest}")

        run_in_background("aptui-copy", lambda: self._host.in_ui(say, self._clips.copy(text, raw=raw).toast()))

    def action_copy_or_quit(self) -> None:
        """Copy the selected text. If no text is selected, quit when the key is pressed twice within two seconds."""
        host, app = self._host, self._host.app
        if selected := app.screen.get_selected_text():
            self.copy(selected)
            app.screen.clear_selection()
            return
        now = time.monotonic()
        if now - self._ctrl_c_at < _TWICE_S:
            app.exit()
            return
        self._ctrl_c_at = now
        key = next((key for key, name, _ in host.actions_here() if name == "app.quit"), "")
        leaves = f"press '{show_key(key)}' or ^C again to quit" if key else "press ^C again to quit"
        host.show_toast(f"{leaves}; the engine keeps running")
