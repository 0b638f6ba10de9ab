"""The rows of the Tools screen (tools, checks), the doctor, and the editor of settings. Only available tools are listed.

Settings are read in a thread and written to the file that the user chooses. `aptui doctor` runs in another process, so that its
imports and the programs it starts cannot affect the screen.

Tests: `tests/tui/screens/tools/test_tools_pane.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from aptui.shared.errors import HostError, KnownError
from aptui.shared.health import Health, WatchedRoot, WatchMode
from aptui.shared.printing import count
from aptui.tui.background import BackgroundTask
from aptui.tui.data.session import SessionState
from aptui.tui.preferences.keymap import own_file
from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import Cell
from aptui.tui.widgets.menu import Menu, MenuItem, Prompt
from aptui.tui.widgets.table import Column
from aptui.tui.words import brief

if TYPE_CHECKING:
    from aptui.config.edit import Setting, Value
    from aptui.core.notices import Progress
    from aptui.tui.pane import Shell


COLUMNS = (
    Column("group", "", 8, drop_rank=3),
    Column("name", "Tool", 20),
    Column("now", "Now", 14),
    Column("does", "Purpose", 0, 36),
    Column("origin", "Set by", 8, drop_rank=2),
    Column("key", "Key", 12, drop_rank=1),
)


class ToolRow(Struct, frozen=True):
    """A row of the table of tools.

    `note` explains the consequences of the tool; the screen shows it at the bottom while the cursor is on the row.
    """

    id: str
    group: str
    name: str
    now: str
    does: str
    key: str = ""
    note: str = ""
    role: str = ""
    origin: str = ""


class Adjustable(Struct, frozen=True):
    """A setting that can be changed on the Tools screen; `kind` is "value", or "list" if a change adds one entry to a list."""

    key: str
    name: str
    does: str
    example: str
    kind: str = "value"


ADJUSTABLE = (
    Adjustable("workers", "Workers", "worker processes; 0 = one per core", "4"),
    Adjustable("limits.analyse", "Analysis limit", "maximum duration of an analysis", "30s, 5m"),
    Adjustable("limits.process", "Job limit", "maximum duration of a job", "10m, 1h"),
    Adjustable("limits.memory", "Memory limit", "maximum memory of a job; 0 = no limit", "2GiB"),
    Adjustable("limits.all_memory", "Memory for all", "maximum for all jobs; 0 = free memory", "16GiB"),
    Adjustable("logs", "Log folder", "folder for logs of jobs and the engine", "../logs"),
    Adjustable("ignore", "Ignore", "add files to ignore, as in .gitignore", "*.tmp, raw/**/old", "list"),
    Adjustable("metadata_types", "Metadata types", "add a type that has '.meta' files", ".png", "list"),
    Adjustable("meta_delay", "Metadata delay", "a new source waits for its '.meta' file", "10s"),
)
_ZERO_MEANINGS = {"workers": "one per core", "limits.memory": "unlimited", "limits.all_memory": "free memory"}
"""{setting: what its value 0 means}."""


@dataclass(frozen=True, slots=True)
class ToolFacts:
    """The values that the rows show.

    Args:
        options: {option of the engine: whether it is on}, None = unknown.
        failed: number of failed jobs, -1 = unknown.
        settings: {key: setting}, None = settings cannot be changed on this screen.
        doctor: summary of the doctor's findings, "" = the doctor was not run.
        key_of: returns the key of an action as the screen shows it.
    """

    is_attached: bool = False
    can_start: bool = False
    progress: Progress | None = None
    health: Health | None = None
    options: Mapping[str, bool] | None = None
    failed: int = -1
    settings: Mapping[str, Setting] | None = None
    project_file: str = ""
    theme: str = ""
    has_mouse: bool = True
    own_key_count: int = 0
    doctor: str = ""
    has_doctor: bool = False
    key_of: Callable[[str], str] = field(default=lambda _action: "", compare=False)


def tools(facts: ToolFacts) -> list[ToolRow]:
    """Return the rows of the tools."""
    rows = [*_queue(facts), *_files(facts), *_engine(facts), *_settings(facts), *_screen(facts)]
    if facts.has_doctor:
        note = (
            "'aptui doctor': versions, limits, disk, watches, cache, database. It changes nothing; its findings are listed below."
        )
        does, now = "check the project and its environment", facts.doctor or "not run"
        rows.append(ToolRow("doctor", "Checks", "Doctor", now, does, facts.key_of("tools.doctor"), note))
    for at in range(len(rows) - 1, 0, -1):  # the first row of a group shows the group's name
        if rows[at].group == rows[at - 1].group:
            rows[at] = replace(rows[at], group="")
    return rows


def _queue(facts: ToolFacts) -> Iterator[ToolRow]:
    if not facts.is_attached:
        return
    health, key = facts.health, facts.key_of("app.pause")
    is_paused, is_draining = (health.is_paused, health.is_draining) if health else (False, False)
    if is_paused:
        yield ToolRow("resume", "Queue", "Resume", "paused", "start jobs again", key, "", "warning")
        yield ToolRow("next", "Queue", "Run next job", "paused", "start one job, then stay paused", ":next", "", "warning")
    else:
        note = "Running jobs finish; no other job starts until you resume, for all users of this engine."
        yield ToolRow("pause", "Queue", "Pause", "off", "start no more jobs", key, note)
    if is_draining and not is_paused:
        yield ToolRow("resume", "Queue", "End draining", "draining", "handle changes again", ":resume", "", "warning")
    elif not is_paused:
        note = "Pending jobs are finished; changes wait until ':resume'."
        yield ToolRow("drain", "Queue", "Drain", "off", "finish the queue; new changes wait", ":drain", note)
    if facts.failed:
        now, role = (count(facts.failed, "job"), "failed") if facts.failed > 0 else ("…", "muted")
        yield ToolRow("retry", "Queue", "Retry failed", now, "run every failed job again", ":retry", "", role)


def _files(facts: ToolFacts) -> Iterator[ToolRow]:
    if not facts.is_attached:
        return
    progress = facts.progress
    is_scanning = progress is not None and progress.is_scanning
    now = "scanning" if is_scanning else f"took {brief(progress.scan_ms)}" if progress and progress.scan_ms else "done"
    role = "processing" if is_scanning else ""
    note = "Reads all files whose size or time changed, and retries failed jobs. The engine notices changes without it."
    yield ToolRow("rescan", "Files", "Rescan", now, "scan all files and folders", ":rescan", note, role)
    if facts.options is not None and "fast_scan" in facts.options:
        note = (
            "On: a rescan does not read a file that has the stored size and time. Off: a rescan reads every byte of every file,"
            " until the engine ends. Changes that the engine is notified of are always read."
        )
        is_on = facts.options["fast_scan"]
        does = "skip files of the same size and time"
        yield ToolRow("faster", "Files", "Faster scanning", _on(is_on), does, ":faster", note, "" if is_on else "warning")
    note = "Reads and compares every byte of every source, even if size and time are unchanged. Asks before it starts."
    yield ToolRow("full", "Files", "Full scan", "", "read every byte of every source", ":rescan full", note)


def _engine(facts: ToolFacts) -> Iterator[ToolRow]:
    if facts.can_start:
        yield ToolRow("start", "Engine", "Start engine", "not running", "start an engine for this project", ":start")
    if not facts.is_attached:
        return
    broken = facts.health.configuration if facts.health else ""
    now, role = ("not in use", "warning") if broken else ("up to date", "")
    note = (
        broken
        or "The engine reloads the configuration when a file changes. It rejects mistakes, and keeps the previous configuration."
    )
    yield ToolRow("reload", "Engine", "Reload configuration", now, "read the configuration again", ":reload", note, role)
    if facts.options is not None and "debug_output" in facts.options:
        is_on = facts.options["debug_output"]
        note = (
            "Builders with debug output make debug products, and the log has all steps of jobs. A switch runs the jobs of these"
            " builders again, after a confirmation."
        )
        yield ToolRow("debug", "Engine", "Debug output", _on(is_on), "debug products, and a fuller log", ":debug", note)
    yield ToolRow("restart", "Engine", "Restart engine", "running", "stop it and start another one", ":restart")


def _settings(facts: ToolFacts) -> Iterator[ToolRow]:
    if facts.settings is None:
        return
    for each in ADJUSTABLE:
        setting = facts.settings.get(each.key)
        origin = "" if setting is None else _origin(setting.file, facts.project_file)
        where = f" It is set at {setting.where}." if setting and setting.file else ""
        note = (
            f"Sets '{each.key}' in aptui.yaml. Example: {each.example}.{where}"
            " Comments and order of the file do not change; the engine reloads it."
        )
        yield ToolRow(
            f"set:{each.key}", "Settings", each.name, _format_setting(each, setting), each.does, "", note, "value", origin
        )


def _format_setting(each: Adjustable, setting: Setting | None) -> str:
    if setting is None:
        return {"logs": "in the cache", "metadata_types": "none"}.get(each.key, glyph("none"))
    if each.key == "metadata_types":
        return " ".join(setting.value) or "none"
    if each.kind == "list":
        return count(len(setting.value), "rule")
    return _ZERO_MEANINGS.get(each.key, "0") if setting.value == 0 else str(setting.value)


def _origin(file: str, project_file: str) -> str:
    return "aptui" if not file else "project" if file == project_file else "you"


def _screen(facts: ToolFacts) -> Iterator[ToolRow]:
    yield ToolRow("theme", "Screen", "Theme", facts.theme, "choose colours with a live preview", facts.key_of("app.theme"))
    note = "Off: the terminal selects and copies with the mouse."
    yield ToolRow("mouse", "Screen", "Mouse", _on(facts.has_mouse), "use clicks, wheel and menus", facts.key_of("app.mouse"), note)
    own = f"{facts.own_key_count:,} of your own" if facts.own_key_count else "as shipped"
    note = f"Your own file: '{own_file()}'; '?' shows the keys of the current place."
    yield ToolRow("keymap", "Screen", "Keys", own, "read the key bindings again", ":keymap", note)
    yield ToolRow("keys", "Screen", "Key tester", "", "show the name and action of a key", ":keys")


def _on(is_on: bool) -> str:
    return "on" if is_on else "off"


_TOOL_ROLES = {"group": "header", "does": "muted", "origin": "muted", "key": "key"}


def tool_cell(tool: ToolRow, column: str) -> Cell:
    """Return a cell of a row of the tools."""
    role = _TOOL_ROLES.get(column, "")
    if column == "now":
        role = tool.role or ("muted" if tool.now in {"off", "as shipped", "not run"} else "value")
    return Cell(getattr(tool, column), role)


class SettingsEditor:
    """Reads and changes settings."""

    def __init__(self, shell: Shell, changed: Callable[[], object]) -> None:
        self._shell, self._changed = shell, changed
        self._reading = BackgroundTask("aptui-tools-settings", shell.in_ui)
        self._writing = BackgroundTask("aptui-tools-write", shell.in_ui)
        self.known: dict[str, Setting] | None = None
        """{key: setting} of all settings that have a value; None = the settings are not read yet, or cannot be read."""

    def close(self) -> None:
        """Cancel running reads and writes of settings."""
        self._reading.close()
        self._writing.close()

    def read(self) -> bool:
        """Read the settings. Return False if a read is running already, so that the caller tries again later."""
        project_dir = self._project_dir

        def work(_task: BackgroundTask) -> dict[str, Setting]:
            from aptui.config.edit import settings  # imported here to start faster

            return settings(project_dir, [each.key for each in ADJUSTABLE])

        return self._reading.start(work, self._accept, self._show_failure)

    def _accept(self, known: dict[str, Setting]) -> None:
        self.known = known
        self._changed()

    def _show_failure(self, error: KnownError) -> None:
        self.known = None
        self._shell.show_toast(f"settings cannot be changed on this screen: {error}", "warning", 10)
        self._changed()

    @property
    def _project_dir(self) -> Path:
        assert self._shell.config is not None
        return self._shell.config.project_dir

    def adjust(self, key: str, text: str = "") -> None:
        """Ask for the file, unless only one is possible, and for the value; then write the value. `text` is the proposed value."""
        from aptui.config.edit import writable_files  # imported here to start faster

        adjustable = next(each for each in ADJUSTABLE if each.key == key)
        project, own = writable_files(self._project_dir)
        setting = (self.known or {}).get(key)
        if setting is not None and setting.file == str(own) and adjustable.kind == "value":
            self._prompt(adjustable, own, text)  # the user's file has precedence over the project's file
            return
        items = [
            MenuItem("project", f"This project   {_short(project)}", "p"),
            MenuItem("own", f"You, in every project   {_short(own)}", "u"),
        ]
        files, title = {"project": project, "own": own}, f"Write '{key}' for"
        Menu.ask(self._shell.app, items, lambda what: self._prompt(adjustable, files[what], text) if what else None, title=title)

    def _prompt(self, adjustable: Adjustable, file: Path, text: str) -> None:
        from aptui.config.edit import mistake_in, value_of  # imported here to start faster

        setting, adds = (self.known or {}).get(adjustable.key), adjustable.kind == "list"

        def check(text: str) -> str:
            if not text.strip():
                return f"for example {adjustable.example}"
            return mistake_in(adjustable.key, [text.strip()] if adds else value_of(text))

        def accept_answer(text: str | None) -> None:
            if text is not None:
                self._write(adjustable, file, text.strip() if adds else value_of(text))

        title = f"{'Add to' if adds else 'Set'} {adjustable.key} in {_short(file)}"
        known = "" if adds or setting is None else str(setting.value)
        Prompt.ask(self._shell.app, title, accept_answer, value=text or known, check=check)

    def _write(self, adjustable: Adjustable, file: Path, value: Value) -> None:
        adds, project_dir = adjustable.kind == "list", self._project_dir

        def work(_task: BackgroundTask) -> None:
            from aptui.config.edit import write  # imported here to start faster

            write(project_dir, file, adjustable.key, value, adds=adds)

        def accept_result(_nothing: None) -> None:
            ending = "; the engine reloads it" if self._shell.session.state is SessionState.ATTACHED else ""
            self._shell.show_toast(
                f"{adjustable.key}{' +' if adds else ':'} {value} written to '{_short(file)}'{ending}", seconds=8
            )
            self.read()

        if not self._writing.start(work, accept_result, lambda error: self._shell.show_toast(str(error), "error", 10)):
            self._shell.show_toast("another setting is being written; try again", "warning")


def _short(file: Path) -> str:
    home, text = os.path.expanduser("~"), str(file)
    return f"~{text[len(home) :]}" if text.startswith(f"{home}/") else text


CHECK_COLUMNS = (
    Column("state", "State", 6),
    Column("name", "Check", 14),
    Column("said", "Result", 0, 20, weight=3),
    Column("advice", "Advice", 0, 16, drop_rank=1, weight=2),
)
_SIGNS = {"ok": "completed", "warn": "warning", "fail": "failed"}
"""{state of a check: name of its glyph, which is also the role of its colour}."""
_RANKS = {"fail": 0, "warn": 1, "ok": 2}


class DoctorRow(Struct, frozen=True):
    """The result of a check of the doctor or of the engine: `state` is "ok", "warn" or "fail"."""

    name: str
    state: str
    message: str
    advice: str = ""


def columns_for(found: Sequence[DoctorRow]) -> tuple[Column, ...]:
    """Return the columns for these rows; the column of advice is left out if no row has advice."""
    return CHECK_COLUMNS if any(check.advice for check in found) else CHECK_COLUMNS[:-1]


def of_health(health: Health | None) -> list[DoctorRow]:
    """Return the checks that the engine itself made, the worst result first."""
    return sorted(_checks_of(health), key=lambda check: _RANKS[check.state]) if health is not None else []


def _checks_of(health: Health) -> Iterator[DoctorRow]:
    for hold in health.holds:
        yield DoctorRow("held back", "warn", f"by {hold}", "changes wait until this hold ends")
    if health.is_paused:
        yield DoctorRow("queue", "warn", "paused: no job starts", "run 'aptui resume' to continue")
    if health.is_draining:
        yield DoctorRow("queue", "warn", "draining: changes wait", "run 'aptui resume' to handle changes again")
    trouble, _, remedy = health.database.partition(": ")
    for name, message, advice in (
        ("workers", health.pool, "the next job starts a worker again; then run the failed jobs again"),
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
        WatchMode.STARTING: ("ok", "changes during the start are not lost"),
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
    if column == "state":
        sign = _SIGNS.get(check.state, "warning")
        return Cell(f"{glyph(sign)} {check.state}", sign)
    return {
        "name": Cell(check.name, "key"),
        "said": Cell(check.message, "value"),
        "advice": Cell(check.advice, "muted" if check.state == "ok" else ""),
    }[column]


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

    def run(self, project_dir: Path) -> None:
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
    try:
        started = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as error:
        hint = "run 'aptui doctor' in a shell"
        raise HostError(f"the doctor cannot be started: {error.strerror or error}", hint=hint) from error
    with started as process:
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
