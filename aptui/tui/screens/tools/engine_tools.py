"""Tools of the Tools screen that send requests to the engine (pause, scans, options, restart), and the doctor.

`aptui doctor` runs in another process, so that its imports and programs cannot harm the screen.

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

from aptui.link.port import Answer, Drain, ReadStatus, ReloadConfig, RescanSources, ResumeJobs, RunNext, SetOption
from aptui.shared.errors import HostError, KnownError
from aptui.shared.health import Health, WatchedRoot, WatchMode
from aptui.shared.printing import count
from aptui.tui.background import BackgroundTask
from aptui.tui.frame.commandline import Choice
from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import Cell
from aptui.tui.widgets.table import Column

if TYPE_CHECKING:
    from aptui.tui.pane import Shell


COLUMNS = (
    Column("state", "State", 6),
    Column("name", "Check", 14),
    Column("said", "Result", 0, 20, weight=3),
    Column("advice", "Advice", 0, 16, drop_rank=1, weight=2),
)
_STATES = {"ok": ("completed", "completed"), "warn": ("warning", "warning"), "fail": ("failed", "failed")}
_RANKS = {"fail": 0, "warn": 1, "ok": 2}


class DoctorRow(Struct, frozen=True):
    """The result of a check of the doctor or of the engine: `state` is "ok", "warn" or "fail"."""

    name: str
    state: str
    message: str
    advice: str = ""


def columns_for(found: Sequence[DoctorRow]) -> tuple[Column, ...]:
    """Return the columns for these rows; the column of advice is left out if no row has advice."""
    return COLUMNS if any(check.advice for check in found) else COLUMNS[:-1]


def of_health(health: Health | None) -> list[DoctorRow]:
    """Return the checks that the engine itself made, the worst result first."""
    return sorted(_checks_of(health), key=lambda check: _RANKS[check.state]) if health is not None else []


def _checks_of(health: Health) -> Iterator[DoctorRow]:
    for hold in health.holds:
        yield DoctorRow("held back", "warn", f"by {hold}", "changes wait until it ends")
    if health.is_paused:
        yield DoctorRow("queue", "warn", "paused: no job starts", "run 'aptui resume' to continue")
    if health.is_draining:
        yield DoctorRow("queue", "warn", "draining: changes wait", "run 'aptui resume' to handle changes again")
    trouble, _, remedy = health.database.partition(": ")
    for name, message, advice in (
        ("workers", health.pool, "the engine retries"),
        ("disk", health.disk, "free some space; the engine continues by itself"),
        ("database", trouble, remedy),
    ):
        if message:
            yield DoctorRow(name, "fail", message, advice)
    if health.configuration:
        yield DoctorRow("configuration", "warn", health.configuration, "fix the file; the previous configuration is in use")
    for name, why in health.broken_builders:
        yield DoctorRow(
            "builder", "fail", f"{name}: {why}", "fix the builder; it is loaded again when its code changes, or by 'Rescan'"
        )
    for root in health.roots:
        yield _check_of_root(root)


def _check_of_root(root: WatchedRoot) -> DoctorRow:
    state, advice = {
        WatchMode.NATIVE: ("ok", ""),
        WatchMode.STARTING: ("ok", "no changes are lost until then"),
        WatchMode.POLLING: (
            "warn",
            "changes are noticed some seconds late; move the folder to a local disk to notice them at once",
        ),
        WatchMode.LIMITED: ("warn", "raise the system's limit of file watches (sysctl), then 'Rescan'"),
        WatchMode.GONE: ("fail", "mount the folder again, or fix 'scan_folders'"),
    }[root.mode]
    detail = f" ({root.detail})" if root.detail else f", {count(root.watches, 'folder')}" if root.watches else ""
    return DoctorRow("watching", state, f"{root.mode.value}{detail}: {root.path}", advice)


def summary(checks: list[DoctorRow]) -> str:
    """Return a summary of the results of all checks."""
    failed, warned = (sum(check.state == state for check in checks) for state in ("fail", "warn"))
    if failed:
        return f"{glyph('failed')} {failed} to fix"
    return f"{glyph('warning')} {warned} to check" if warned else f"{glyph('completed')} all well"


def check_cell(check: DoctorRow, column: str) -> Cell:
    """Return a cell of a row."""
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
"""Timeout of the doctor (seconds)."""


class Doctor:
    """Runs the doctor and stores its result.

    Args:
        changed: called when the doctor starts and when it ends.
    """

    def __init__(self, shell: Shell, changed: Callable[[], object]) -> None:
        self._shell, self._changed = shell, changed
        self._task = BackgroundTask("aptui-tools-doctor", shell.in_ui)
        self.found: list[DoctorRow] = []

    def close(self) -> None:
        """Cancel a running check."""
        self._task.close()

    @property
    def words(self) -> str:
        """The summary of the results, "" if the doctor was not run."""
        return "checking…" if self._task.is_busy else summary(self.found) if self.found else ""

    def ask(self, project_dir: Path) -> None:
        """Run the doctor, unless it is running already."""
        words = command(project_dir)
        if self._task.start(lambda task: _ask(task, words), self._accept, self._fail):
            self._changed()

    def _accept(self, found: list[DoctorRow]) -> None:
        self.found = found
        self._changed()

    def _fail(self, error: KnownError) -> None:
        self._shell.show_toast(str(error), "error", 10)
        self._changed()


def command(project_dir: Path) -> list[str]:
    """Return the command that runs the doctor."""
    return [sys.executable, "-P", "-m", "aptui", "doctor", "--json", "--project", str(project_dir)]


def _ask(task: BackgroundTask, words: list[str]) -> list[DoctorRow]:
    """Run the doctor and return its result.

    Raises:
        HostError: its output cannot be read. CancelledError: the screen was closed.
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
                            f"the doctor did not end within {_LIMIT_S:g} s",
                            hint="run 'aptui doctor' in a shell to see where it waits",
                        ) from None
        finally:
            process.kill()
    try:
        return [DoctorRow(each["name"], each["state"], each["said"], each["advice"]) for each in json.loads(output)]
    except (ValueError, KeyError, TypeError):
        last = (complaint.decode("utf-8", "replace").strip().splitlines() or ["it printed nothing"])[-1]
        raise HostError(f"the doctor failed: {last}", hint="run 'aptui doctor' in a shell to see the whole output") from None


_WORDS = {"on": True, "off": False}
_OPTION_NAMES = {"debug_output": "debug output", "fast_scan": "faster scanning"}


class EngineTools:
    """Sends requests to the engine, and stores the engine's options.

    Args:
        changed: called when `options` changed.
    """

    def __init__(self, shell: Shell, changed: Callable[[], object]) -> None:
        self._shell, self._changed = shell, changed
        self._asked_pid = 0
        self.options: dict[str, bool] | None = None
        """{option: whether it is on}; None = the options are unknown."""

    def forget(self) -> None:
        """Query the options again."""
        self._asked_pid = 0

    def refresh(self, *, is_attached: bool) -> None:
        """Query the options once for each engine."""
        pid = self._shell.session.engine.pid
        if not is_attached:
            self.options, self._asked_pid = None, 0
        elif self._asked_pid != pid:
            self._asked_pid = pid
            self._shell.ask(ReadStatus(), then=self._accept_status)

    def _accept_status(self, answer: Answer) -> None:
        options = answer.get("options")
        self.options = {str(name): bool(value) for name, value in options.items()} if isinstance(options, dict) else {}
        self._changed()

    def resume(self) -> None:
        """Resume the paused queue."""
        self._shell.ask(ResumeJobs(), "resumed")

    def run_next(self) -> None:
        """Run one more job while paused."""
        self._shell.ask(RunNext(), then=lambda answer: self._shell.show_toast(_show_start(answer)))

    def drain(self) -> None:
        """Finish the queue and ignore new changes, after a confirmation."""
        ask = partial(self._shell.ask, Drain(), "drained: the queue is finished")
        text = "finish the queue, and let new changes wait until you resume?"
        self._shell.question(text, [Choice("y", "drain", ask), Choice("n", "no")])

    def rescan(self, *, is_full: bool) -> None:
        """Scan all scan folders."""
        self._shell.ask(RescanSources(is_full=is_full), "scanning")

    def full_scan(self) -> None:
        """Read every byte of every source, after a confirmation."""
        text = "read every byte of every source?"
        self._shell.question(text, [Choice("y", "scan", partial(self.rescan, is_full=True)), Choice("n", "no")])

    def reload(self) -> None:
        """Request that the engine reads the configuration again."""

        def report(answer: Answer) -> None:
            self._shell.show_toast("configuration reloaded" if answer.get("is_changed") else "the configuration has not changed")

        self._shell.ask(ReloadConfig(), then=report)

    def set_debug(self, word: str = "") -> None:
        """Switch debug output "on" or "off", after a confirmation; with another word, toggle it."""
        options = self.options or {}
        wanted = _WORDS.get(word, not options.get("debug_output", False))
        if wanted == options.get("debug_output"):
            self._shell.show_toast(f"debug output is {'on' if wanted else 'off'} already")
            return
        ask = partial(self._shell.ask, SetOption("debug_output", wanted), then=self._accept_option)
        to, now = ("on", "off") if wanted else ("off", "on")
        text = f"turn debug output {to}? it applies to jobs that start from now on"
        self._shell.question(text, [Choice("y", f"turn it {to}", ask), Choice("n", f"leave it {now}")])

    def set_fast_scanning(self, word: str = "") -> None:
        """Let rescans skip files whose size and time are as recorded: "on" or "off"; with another word, toggle it."""
        wanted = _WORDS.get(word, not (self.options or {}).get("fast_scan", True))
        self._shell.ask(SetOption("fast_scan", wanted), then=self._accept_option)

    def _accept_option(self, answer: Answer) -> None:
        name, value = str(answer.get("name", "debug_output")), bool(answer.get("value"))
        self.options = {**(self.options or {}), name: value}
        self._shell.show_toast(f"{_OPTION_NAMES.get(name, name)} is {'on' if value else 'off'}")
        self._changed()

    def restart(self) -> None:
        """Restart the engine, after asking when to do so."""
        restart = self._shell.session.restart_engine
        choices = [
            Choice("w", "when idle", partial(restart, is_when_idle=True)),
            Choice("y", "now", partial(restart, is_when_idle=False)),
            Choice("n", "no"),
        ]
        self._shell.question("restart the engine?", choices)


def _show_start(answer: Answer) -> str:
    return f"running {answer['source']}" if answer.get("job_id") else "no job is pending"
