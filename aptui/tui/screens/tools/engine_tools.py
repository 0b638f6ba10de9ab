"""Tools that ask the engine: pause, scans, options, restart.

Tests: `tests/tui/screens/tools/test_tools_pane.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from aptui.shared.errors import HostError, KnownError
from aptui.shared.health import WatchMode
from aptui.shared.printing import count
from aptui.tui.background import BackgroundTask
from aptui.tui.frame.commandline import Choice
from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import Cell
from aptui.tui.widgets.table import Column

if TYPE_CHECKING:
    from aptui.link.port import Answer
    from aptui.shared.health import Health, WatchedRoot
    from aptui.tui.pane import Shell


# Asking the doctor from the Tools screen: `aptui doctor` in another process, so that nothing it imports or starts can hurt us.

# What is known of the health of engine and machine, as rows with advice: the engine's own words, and what the doctor said.
#
# No widget.

COLUMNS = (
    Column("state", "State", 6),
    Column("name", "Check", 14),
    Column("said", "Said", 0, 20, weight=3),
    Column("advice", "Advice", 0, 16, drop_rank=1, weight=2),
)
_STATES = {"ok": ("completed", "completed"), "warn": ("warning", "warning"), "fail": ("failed", "failed")}
_RANKS = {"fail": 0, "warn": 1, "ok": 2}


class DoctorRow(Struct, frozen=True):
    """A row: `state` is "ok", "warn" or "fail"."""

    name: str
    state: str
    message: str
    advice: str = ""


def columns_for(found: Sequence[DoctorRow]) -> tuple[Column, ...]:
    """Return the columns of these rows: where nobody gives advice, what is said has its room."""
    return COLUMNS if any(check.advice for check in found) else COLUMNS[:-1]


def of_health(health: Health | None) -> list[DoctorRow]:
    """Return what the engine says of itself, the worst first."""
    return sorted(_words(health), key=lambda check: _RANKS[check.state]) if health is not None else []


def _words(health: Health) -> Iterator[DoctorRow]:
    for hold in health.holds:
        yield DoctorRow("held back", "warn", f"by {hold}", "changes wait until that ends")
    if health.is_paused:
        yield DoctorRow("queue", "warn", "paused: no job starts", "'aptui resume' lets it go on")
    if health.is_draining:
        yield DoctorRow("queue", "warn", "draining: changes wait", "'aptui resume' ends that")
    trouble, _, remedy = health.database.partition(": ")
    for name, message, advice in (
        ("workers", health.pool, "the engine tries again by itself"),
        ("disk", health.disk, "free some space; the engine goes on by itself"),
        ("database", trouble, remedy),
    ):
        if message:
            yield DoctorRow(name, "fail", message, advice)
    if health.configuration:
        yield DoctorRow("configuration", "warn", health.configuration, "fix the file; until then the old one is in use")
    for name, why in health.broken_builders:
        yield DoctorRow("builder", "fail", f"{name}: {why}", "fix it; it is tried again when it changes, or by 'Rescan'")
    for root in health.roots:
        yield _watching(root)


def _watching(root: WatchedRoot) -> DoctorRow:
    state, advice = {
        WatchMode.NATIVE: ("ok", ""),
        WatchMode.STARTING: ("ok", "changes made meanwhile are not lost"),
        WatchMode.POLLING: ("warn", "changes are seen some seconds late; a local disk would tell at once"),
        WatchMode.LIMITED: ("warn", "raise the limit of watches (sysctl), then 'Rescan'; what is watched says which, and how far"),
        WatchMode.GONE: ("fail", "mount it again, or fix 'scan_folders'"),
    }[root.mode]
    detail = f" ({root.detail})" if root.detail else f", {count(root.watches, 'folder')}" if root.watches else ""
    return DoctorRow("watching", state, f"{root.mode.value}{detail}: {root.path}", advice)


def summary(checks: list[DoctorRow]) -> str:
    """Return a few words about all of them."""
    failed, warned = (sum(check.state == state for check in checks) for state in ("fail", "warn"))
    if failed:
        return f"{glyph('failed')} {failed} to fix"
    return f"{glyph('warning')} {warned} to see" if warned else f"{glyph('completed')} all well"


def check_cell(check: DoctorRow, column: str) -> Cell:
    """Draw a cell."""
    match column:
        case "state":
            sign, role = _STATES.get(check.state, ("warning", "warning"))
            return Cell(f"{glyph(sign)} {check.state}", role)
        case "name":
            return Cell(check.name, "key")
        case "said":
            return Cell(check.message, "value")
        case _:
            return Cell(check.advice, "muted" if check.state == "ok" else "")


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


_OPTION_NAMES = {"debug_output": "debug output", "fast_scan": "faster scanning"}


class EngineTools:
    """Asks the engine, and knows its options.

    Args:
        changed: called when `options` changed.
    """

    def __init__(self, shell: Shell, changed: Callable[[], object]) -> None:
        self._shell, self._changed = shell, changed
        self._asked_pid = 0
        self.options: dict[str, bool] | None = None
        """{option: whether it is on}; None = not known."""

    def forget(self) -> None:
        """Have the options asked for again."""
        self._asked_pid = 0

    def refresh(self, *, is_attached: bool) -> None:
        """Ask for the options once after the engine was attached to."""
        pid = self._shell.session.engine.pid
        if not is_attached:
            self.options, self._asked_pid = None, 0
        elif self._asked_pid != pid:
            from aptui.link.port import ReadStatus  # for start-up: the verbs come after the first paint

            self._asked_pid = pid
            self._shell.ask(ReadStatus(), then=self._take_status)

    def _take_status(self, answer: Answer) -> None:
        options = answer.get("options")
        self.options = {str(name): bool(value) for name, value in options.items()} if isinstance(options, dict) else {}
        self._changed()

    def resume(self) -> None:
        """Go on after a pause."""
        from aptui.link.port import ResumeJobs  # for start-up: the verbs come after the first paint

        self._shell.ask(ResumeJobs(), "going on")

    def run_next(self) -> None:
        """Run one job more while paused."""
        from aptui.link.port import RunNext  # for start-up: the verbs come after the first paint

        self._shell.ask(RunNext(), then=lambda answer: self._shell.show_toast(_show_start(answer)))

    def drain(self) -> None:
        """Finish what is queued and look at nothing new, after asking."""
        from aptui.link.port import Drain  # for start-up: the verbs come after the first paint

        ask = partial(self._shell.ask, Drain(), "drained: everything pending is done")
        text = "drain? changes wait until you end it"
        self._shell.question(text, [Choice("y", "drain", ask), Choice("n", "no")])

    def rescan(self, *, is_full: bool) -> None:
        """Look at everything again."""
        from aptui.link.port import RescanSources  # for start-up: the verbs come after the first paint

        self._shell.ask(RescanSources(is_full=is_full), "scanning")

    def full_scan(self) -> None:
        """Read every byte of every source, after asking."""
        text = "read every byte of every source?"
        self._shell.question(text, [Choice("y", "scan", partial(self.rescan, is_full=True)), Choice("n", "no")])

    def reload(self) -> None:
        """Read the configuration again."""
        from aptui.link.port import ReloadConfig  # for start-up: the verbs come after the first paint

        def report(answer: Answer) -> None:
            self._shell.show_toast("configuration reloaded" if answer.get("is_changed") else "the configuration has not changed")

        self._shell.ask(ReloadConfig(), then=report)

    def turn_debug(self, *, is_on: bool | None = None) -> None:
        """Turn debug output on or off, after asking; None = the other way."""
        from aptui.link.port import SetOption  # for start-up: the verbs come after the first paint

        options = self.options or {}
        wanted = not options.get("debug_output", False) if is_on is None else is_on
        if wanted == options.get("debug_output"):
            self._shell.show_toast(f"debug output is {'on' if wanted else 'off'} already")
            return
        ask = partial(self._shell.ask, SetOption("debug_output", wanted), then=self._take_option)
        to, now = ("on", "off") if wanted else ("off", "on")
        text = f"turn debug output {to}? it holds for jobs that run from now on"
        self._shell.question(text, [Choice("y", f"turn it {to}", ask), Choice("n", f"leave it {now}")])

    def turn_fast_scanning(self, *, is_on: bool | None = None) -> None:
        """Let rescans skip files with the stored size and time, or have them read every file; None = the other way."""
        from aptui.link.port import SetOption  # for start-up: the verbs come after the first paint

        wanted = not (self.options or {}).get("fast_scan", True) if is_on is None else is_on
        self._shell.ask(SetOption("fast_scan", wanted), then=self._take_option)

    def say_fast_scanning(self, rest: str) -> None:
        """Turn faster scanning on or off, as a word says."""
        self.turn_fast_scanning(is_on={"on": True, "off": False}.get(rest))

    def say_debug(self, rest: str) -> None:
        """Turn debug output on or off, as a word says."""
        self.turn_debug(is_on={"on": True, "off": False}.get(rest))

    def _take_option(self, answer: Answer) -> None:
        name, value = str(answer.get("name", "debug_output")), bool(answer.get("value"))
        self.options = {**(self.options or {}), name: value}
        self._shell.show_toast(f"{_OPTION_NAMES.get(name, name)} is {'on' if value else 'off'}")
        self._changed()

    def restart(self) -> None:
        """Restart the engine, after asking when."""
        restart = self._shell.session.restart_engine
        choices = [
            Choice("w", "when idle", partial(restart, is_when_idle=True)),
            Choice("y", "now", partial(restart, is_when_idle=False)),
            Choice("n", "no"),
        ]
        self._shell.question("restart the engine?", choices)


def _show_start(answer: Answer) -> str:
    return f"running {answer['source']}" if answer.get("job_id") else "nothing is pending"
