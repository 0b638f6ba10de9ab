"""`^Z` suspends the screen only if a shell started it; `fg` restores the screen."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools import needs

from aptui.tui.frame.terminal_control import has_shell
from tests.tui.tmux_harness import Home, Pane, Tmux

pytestmark = [pytest.mark.real, needs("tmux")]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Pane]:
    """Yield a shell with job control in a project that was processed."""
    home = Home(tmp_path)
    with home, Tmux(home, columns=100) as tmux:
        home.run("batch")
        start = ["new-window", "-P", "-F", "#{pane_id} #{pane_pid}", "-c", str(home.project), "sh"]
        pane, pid = tmux.say(*start).split()
        yield Pane(tmux, pane, int(pid))


def test_ctrl_z_suspends_the_screen_and_fg_continues_it(shell: Pane) -> None:
    shell.type(f"{shlex.join(shell.tmux.home.command)} open Cache")
    shell.keys("Enter")
    shell.shows("bad.json", "q quit")
    shell.keys("?")
    shell.shows("Esc back")
    before = shell.keys("Escape") or shell.shows("q quit", "1 error, 0 warnings")

    shell.keys("C-z")

    shell.shows("type 'fg' to continue")
    shell.type("echo here we $((40 + 2))")
    shell.keys("Enter")
    shell.shows("here we 42")
    shell.type("bg")
    shell.keys("Enter")
    shell.type("fg")
    shell.keys("Enter")
    after = shell.shows("bad.json", "q quit")
    assert after.splitlines()[2:] == before.splitlines()[2:]
    shell.keys("q")
    shell.shows("here we 42")


def test_sigstop_and_fg_restore_the_screen(shell: Pane) -> None:
    shell.type(f"{shlex.join(shell.tmux.home.command)} open Cache")
    shell.keys("Enter")
    before = shell.shows("bad.json", "q quit", "1 error, 0 warnings")
    (screen,) = map(int, Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text().split())

    os.kill(screen, signal.SIGSTOP)
    shell.shows("Stopped")
    shell.type("stty sane; echo; echo here we $((40 + 2))")
    shell.keys("C-j")  # C-j replaces Enter, because after SIGSTOP the terminal still has the modes of the screen
    shell.shows("here we 42")
    shell.type("fg")
    shell.keys("Enter")
    after = shell.shows_no("here we 42")

    assert after.splitlines()[2:] == before.splitlines()[2:]
    shell.keys("q")
    shell.shows_no("q quit")
    shell.type("stty -a")
    shell.keys("Enter")
    shell.shows(" echo ", " icanon ")


def test_sigcont_without_a_stop_starts_no_second_thread_that_reads_keys(shell: Pane) -> None:
    pane = shell.tmux.open("open", "Cache")
    pane.shows("bad.json", "q quit")

    for _ in range(5):
        os.kill(pane.pid, signal.SIGCONT)
        pane.keys("?")
        pane.shows("Esc back")
        pane.keys("Escape")
        pane.shows("q quit")

    pane.keys("q")
    pane.wait_until_gone()


def test_ctrl_z_does_not_suspend_the_screen_without_a_shell() -> None:
    code = "import os, sys; from aptui.tui.frame.terminal_control import has_shell; sys.exit(has_shell(os.getpid(), os.getppid()))"

    alone = subprocess.run([sys.executable, "-c", code], start_new_session=True, check=False)

    assert alone.returncode == 0


def test_child_process_of_a_shell_or_script_can_be_suspended() -> None:
    code = (
        "import os, sys; from aptui.tui.frame.terminal_control import has_shell; sys.exit(not has_shell(os.getpid(), os.getppid()))"
    )

    direct = subprocess.run([sys.executable, "-c", code], process_group=0, check=False)
    script = subprocess.run(["sh", "-c", f"{shlex.join([sys.executable, '-c', code])}; exit $?"], process_group=0, check=False)

    assert (direct.returncode, script.returncode) == (0, 0)
    assert not has_shell(os.getpid(), 1)
