"""A user at a build machine: a project with its engine, and tmux in a pseudo-terminal.

Every byte that the pseudo-terminal receives is kept.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from tests.tui.pty_harness import Terminal
from tests.waiting import TIMEOUT_S, until

_LONGEST_S = 0.2
"""Interval of checks of a pane that may be hidden or cut off (seconds)."""
EVIL = base64.b64encode(b"evil").decode()
"""Text that hostile names and logs try to copy to the user's clipboard."""
HOSTILE_NAME = os.fsdecode(b"assets/\x1b]52;c;" + EVIL.encode() + b"\x07\xc2\x9b31m\xe9[@click=app.quit]x[/].loud")
SETTINGS = f"""
platforms: {{linux: {{tags: [tools]}}}}
scan_folders: [{{name: game, path: assets}}]
builders:
  - {{name: data, copy: ["*.txt"]}}
  - {{name: tables, uses: json, patterns: ["*.json"]}}
  - name: loud
    patterns: ["*.loud"]
    version: 1
    command: >-
      printf '\\033]52;c;{EVIL}\\007 \\302\\23331m [@click=app.quit]x[/] heard\\n' >&2;
      cp {{source}} {{products_dir}}/loud.out
    products: ["*.out"]
workers: 1
"""
FILES = {
    "aptui.yaml": SETTINGS,
    "assets/a.txt": "a",
    "assets/b.txt": "b",
    "assets/tables/good.json": '{"a": 1}',
    "assets/tables/bad.json": '{"a": 1,\n "b": oops}',
    HOSTILE_NAME: "",
}
_CLIPBOARD = re.compile(rb"\x1b\]52;[a-z]*;([A-Za-z0-9+/=?]*)(?:\x07|\x1b\\)")


def copied_texts(seen: bytes) -> list[str]:
    """Return the texts that the output of a program copies to the clipboard of the terminal."""
    return [base64.b64decode(found).decode() for found in _CLIPBOARD.findall(seen)]


class Home:
    """The project and the folders of its commands; leaving the `with` block stops its engines."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        for name, text in FILES.items():
            path = self.project / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        homes = {f"XDG_{name}_HOME": str(folder / name) for name in ("STATE", "CACHE", "CONFIG")}
        python = {"PYTHONPATH": os.pathsep.join(each for each in sys.path if each), "PYTHONWARNINGS": ""}
        for mine in ("TMUX", "TMUX_PANE", "STY", "NO_COLOR", "LC_ALL"):
            homes[mine] = ""
        self.environ = {**os.environ, **homes, **python, "TERM": "xterm-256color", "LANG": "C.UTF-8", "ESCDELAY": "25"}
        # These values differ from the size of the terminal, because aptui must ignore both variables.
        self.environ |= {"COLUMNS": "80", "LINES": "24"}
        self.environ = {name: value for name, value in self.environ.items() if value}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.run("stop", "--all")

    @property
    def command(self) -> list[str]:
        """The command that starts aptui."""
        return [sys.executable, "-m", "aptui"]

    def run(self, *words: str) -> str:
        """Run aptui without a terminal and return its output."""
        done = subprocess.run(
            [*self.command, *words], cwd=self.project, env=self.environ, capture_output=True, text=True, timeout=60, check=False
        )
        return done.stdout

    def engines(self) -> list[int]:
        """Return the processes of the running engines."""
        return [row["pid"] for row in json.loads(self.run("ps", "--json"))["engines"]]

    def forget(self) -> None:
        """Delete the values that earlier screens remembered, such as filters."""
        shutil.rmtree(Path(self.environ["XDG_STATE_HOME"], "aptui", "screen"), ignore_errors=True)

    def terminal(self, *words: str, columns: int = 120, lines: int = 30, **environ: str) -> Terminal:
        """Open the screen in a terminal without tmux."""
        self.forget()
        # `Terminal` starts commands in the folder of the tests and drops empty variables. So `env -C` changes the folder, and an
        # empty value removes a variable.
        gone = {name: "" for name in os.environ if name not in self.environ}
        command = ["env", "-C", str(self.project), *self.command, *words]
        return Terminal(command, columns, lines, {**gone, **self.environ, **environ})


class Tmux:
    """A tmux server of our own, with a client in a pseudo-terminal of `columns` × `lines`; leave the `with` block to end it."""

    def __init__(self, home: Home, columns: int = 140, lines: int = 40) -> None:
        self.home = home
        self._name = f"aptui-{os.getpid()}-{time.monotonic_ns()}"
        gone = {name: "" for name in os.environ if name not in home.environ}
        start = ["new-session", "-s", "room", "-c", str(home.project), "sh"]
        settings = ["set", "-s", "escape-time", "10", ";", "set", "-g", "status", "off"]
        command = ["tmux", "-L", self._name, "-f", "/dev/null", *start, ";", *settings]
        self.outer = Terminal(command, columns, lines, {**gone, **home.environ})
        wait(lambda: self.say("list-panes") != "", "tmux", self.outer.screen)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.say("kill-server")
        self.outer.close()

    def say(self, *words: str, data: bytes | None = None) -> str:
        """Run a tmux command on our server and return its output."""
        command = ["tmux", "-L", self._name, *words]
        return subprocess.run(command, capture_output=True, env=self.home.environ, input=data, check=False).stdout.decode()

    def open(self, *words: str, environ: tuple[str, ...] = ()) -> Pane:
        """Open the screen in a new window, which the client shows; `environ` has environment variables as `NAME=value`."""
        start = ["new-window", "-P", "-F", "#{pane_id} #{pane_pid}", "-c", str(self.home.project)]
        command = [*start, *(("env", *environ) if environ else ()), *self.home.command, *words]
        pane, pid = self.say(*command).split()
        return Pane(self, pane, int(pid))


class Pane:
    """One screen of aptui in tmux."""

    def __init__(self, tmux: Tmux, name: str, pid: int) -> None:
        self.tmux, self.name, self.pid = tmux, name, pid

    def screen(self) -> str:
        """Return the text of the screen."""
        return self.tmux.say("capture-pane", "-p", "-t", self.name)

    def keys(self, *keys: str) -> None:
        """Press keys, by tmux's names."""
        self.tmux.say("send-keys", "-t", self.name, *keys)

    def type(self, text: str) -> None:
        """Type a text, letter by letter."""
        self.tmux.say("send-keys", "-t", self.name, "-l", text)

    def wait(self, is_so: Callable[[str], object], what: str, timeout_s: float = TIMEOUT_S) -> str:
        """Wait for a condition of the screen and return the screen."""
        found = ""

        def is_met() -> bool:
            nonlocal found
            found = self.screen()
            return bool(is_so(found))

        until(is_met, lambda: f"{what}\n{found}", timeout_s, self._pause)
        return found

    def _pause(self, left_s: float) -> None:
        """Wait until tmux draws. Checks at short intervals would be slow, because each check starts a process."""
        self.tmux.outer.pause(left_s, _LONGEST_S)

    def shows(self, *texts: str) -> str:
        """Wait until these texts are on the screen and return the screen."""
        return self.wait(lambda screen: all(text in screen for text in texts), repr(texts))

    def shows_no(self, text: str) -> str:
        """Wait until this text is no longer on the screen and return the screen."""
        return self.wait(lambda screen: text not in screen, f"no {text!r}")

    def hang_up(self) -> None:
        """Close the terminal, which ends the screen."""
        self.tmux.say("kill-pane", "-t", self.name)
        self.wait_until_gone()

    def kill(self, number: signal.Signals) -> None:
        """Send the screen a signal that ends it."""
        os.kill(self.pid, number)
        self.wait_until_gone()

    def wait_until_gone(self) -> None:
        """Wait until the process of the screen has ended."""
        wait(lambda: not _lives(self.pid), "the end of the screen", self.screen)


def wait(is_so: Callable[[], object], what: str, picture: Callable[[], str] = str, timeout_s: float = TIMEOUT_S) -> None:
    """Wait for a condition; fail with the screen after the timeout."""
    until(is_so, lambda: f"{what}\n{picture()}", timeout_s)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
