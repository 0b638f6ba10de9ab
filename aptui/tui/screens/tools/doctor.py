"""Asking the doctor from the Tools screen: `aptui doctor` in another process, so that nothing it imports or starts can hurt us.

Tests: `tests/tui/screens/tools/test_pane.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from aptui.shared.errors import HostError, KnownError
from aptui.tui.background import BackgroundTask
from aptui.tui.screens.tools.checks import DoctorRow, summary

if TYPE_CHECKING:
    from aptui.tui.pane import Shell

_POLL_S = 0.1
_LIMIT_S = 300.0


class Doctor:
    """Asks it, and keeps what it found.

    Args:
        changed: called when it was asked, and when it answered.
    """

    def __init__(self, shell: Shell, changed: Callable[[], object]) -> None:
        self._shell, self._changed = shell, changed
        self._task = BackgroundTask("aptui-tools-doctor", shell.in_ui)
        self.found: list[DoctorRow] = []

    def close(self) -> None:
        """Give up what is under way."""
        self._task.close()

    @property
    def words(self) -> str:
        """What it comes to, "" = it was not asked."""
        return "looking…" if self._task.is_busy else summary(self.found) if self.found else ""

    def ask(self, project_dir: Path) -> None:
        """Ask it, unless it is at it."""
        words = command(project_dir)
        if self._task.start(lambda task: _ask(task, words), self._take, self._fail):
            self._changed()

    def _take(self, found: list[DoctorRow]) -> None:
        self.found = found
        self._changed()

    def _fail(self, error: KnownError) -> None:
        self._shell.show_toast(str(error), "error", 10)
        self._changed()


def command(project_dir: Path) -> list[str]:
    """Return what is run."""
    return [sys.executable, "-P", "-m", "aptui", "doctor", "--json", "--project", str(project_dir)]


def _ask(task: BackgroundTask, words: list[str]) -> list[DoctorRow]:
    """Run the doctor and return what it found.

    Raises:
        HostError: it says nothing that can be read. CancelledError: nobody waits any more.
    """
    waited_s = 0.0
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            while True:
                try:
                    output, complaint = process.communicate(timeout=_POLL_S)
                    break
                except subprocess.TimeoutExpired:
                    task.check()
                    waited_s += _POLL_S
                    if waited_s > _LIMIT_S:
                        raise HostError(
                            f"the doctor did not end within {_LIMIT_S:g} s", hint="'aptui doctor' may say why"
                        ) from None
        finally:
            process.kill()
    try:
        return [DoctorRow(each["name"], each["state"], each["said"], each["advice"]) for each in json.loads(output)]
    except (ValueError, KeyError, TypeError):
        last = (complaint.decode("utf-8", "replace").strip().splitlines() or ["it printed nothing"])[-1]
        raise HostError(f"the doctor failed: {last}", hint="run 'aptui doctor'") from None
