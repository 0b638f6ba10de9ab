"""Which tools there are now, as rows: made of what is known of engine, settings and screen; what does not work is not in the list.

No widget.

Tests: `tests/tui/screens/tools/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec import Struct

from aptui.shared.printing import count
from aptui.tui.preferences.keymap import own_file
from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import Cell
from aptui.tui.widgets.columns import Column
from aptui.tui.words import brief

if TYPE_CHECKING:
    from aptui.config.editing.edit import Setting
    from aptui.core.notices import Progress
    from aptui.shared.health import Health

COLUMNS = (
    Column("group", "", 8, drop_rank=3),
    Column("name", "Tool", 20),
    Column("now", "Now", 14),
    Column("does", "What it does", 0, 36),
    Column("origin", "Set by", 8, drop_rank=2),
    Column("key", "Key", 12, drop_rank=1),
)


class ToolRow(Struct, frozen=True):
    """A row: `does` is a phrase, `note` sentences with what people should know before they press Enter."""

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
    """A setting that can be written from here; `kind` is "value" or "list", to which one entry is added."""

    key: str
    name: str
    does: str
    example: str
    kind: str = "value"


ADJUSTABLE = (
    Adjustable("workers", "Workers", "worker processes; 0 is one per core", "4"),
    Adjustable("limits.analyse", "Analysis limit", "an analysis that takes longer fails", "30s, 5m"),
    Adjustable("limits.process", "Job limit", "a longer job fails; builders may differ", "10m, 1h"),
    Adjustable("limits.memory", "Memory limit", "a job that takes more fails; 0: no limit", "2GiB"),
    Adjustable("limits.all_memory", "Memory for all", "others wait; 0 is what is left", "16GiB"),
    Adjustable("logs", "Log folder", "where logs of jobs and engine go", "../logs"),
    Adjustable("ignore", "Ignore", "add files to ignore, as in .gitignore", "*.tmp, raw/**/old", "list"),
    Adjustable("metadata_types", "Metadata types", "add a type that has '.meta' files", ".png", "list"),
    Adjustable("meta_delay", "Metadata delay", "a new source waits for its '.meta' file", "10s"),
)
_NOUGHTS = {"workers": "one per core", "limits.memory": "no limit", "limits.all_memory": "what is left"}
"""What 0 means."""


@dataclass(frozen=True, slots=True)
class ToolFacts:
    """All the list is made of.

    `options` None and `failed` -1 = not known yet, `settings` None = they cannot be written from here.
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
    """Return the rows."""
    rows = [*_queue(facts), *_files(facts), *_engine(facts), *_settings(facts), *_screen(facts)]
    if facts.has_doctor:
        note = (
            "'aptui doctor': versions, limits, disk, watches, cache, database. It changes nothing; its findings are listed below."
        )
        rows.append(
            ToolRow("doctor", "Checks", "Doctor", facts.doctor or "not run", "look for trouble around the project", "", note)
        )
    return rows


def _queue(facts: ToolFacts) -> Iterator[ToolRow]:
    if not facts.is_attached:
        return
    health, key = facts.health, facts.key_of("app.pause")
    is_paused, is_draining = (health.is_paused, health.is_draining) if health else (False, False)
    if is_paused:
        yield ToolRow("resume", "Queue", "Resume", "paused", "go on", key, "Jobs start again.", "warning")
        yield ToolRow("next", "Queue", "Run next job", "paused", "start one job more, then stay paused", ":next", "", "warning")
    else:
        note = "Jobs that run go on to their end; no other starts until you say so, also for other people at this engine."
        yield ToolRow("pause", "Queue", "Pause", "off", "start no more jobs", key, note)
    if is_draining and not is_paused:
        yield ToolRow("resume", "Queue", "End draining", "draining", "look at changes again", ":resume", "", "warning")
    elif not is_paused:
        note = "What is pending now is finished; changes wait until ':resume'."
        yield ToolRow("drain", "Queue", "Drain", "off", "finish what waits, look at nothing new", ":drain", note)
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
    note = "Times and sizes decide what is read. Failed jobs are tried again. The engine notices changes itself; this is for doubt."
    yield ToolRow("rescan", "Files", "Rescan", now, "look at all files and folders again", ":rescan", note, role)
    if facts.options is not None and "fast_scan" in facts.options:
        note = (
            "On: a rescan does not read a file that has the stored size and time. Off: a rescan reads every byte of every file,"
            " until the engine ends. Changes that the engine is notified of are always read."
        )
        is_on = facts.options["fast_scan"]
        does = "skip files whose size and time did not change"
        yield ToolRow("faster", "Files", "Faster scanning", _on(is_on), does, ":faster", note, "" if is_on else "warning")
    note = "Every byte of every source is read and compared, also where time and size are as they were. It asks first."
    yield ToolRow("full", "Files", "Full scan", "", "read every byte of every source", ":rescan full", note)


def _engine(facts: ToolFacts) -> Iterator[ToolRow]:
    if facts.can_start:
        yield ToolRow("start", "Engine", "Start engine", "not running", "start an engine for this project", ":start")
    if not facts.is_attached:
        return
    broken = facts.health.configuration if facts.health else ""
    now, role = ("not in use", "warning") if broken else ("in use", "")
    note = broken or "The engine does so by itself whenever a file changes; a broken one is refused, and the old one stays."
    yield ToolRow("reload", "Engine", "Reload configuration", now, "read the configuration again", ":reload", note, role)
    if facts.options is not None and "debug_output" in facts.options:
        is_on = facts.options["debug_output"]
        note = (
            "Builders that know it make products for debugging: their jobs run again each time. The log tells all steps of jobs."
            " It asks first."
        )
        yield ToolRow("debug", "Engine", "Debug output", _on(is_on), "debug products, and a fuller log", ":debug", note)
    yield ToolRow("restart", "Engine", "Restart engine", "runs", "stop it and start one anew", ":restart")


def _settings(facts: ToolFacts) -> Iterator[ToolRow]:
    if facts.settings is None:
        return
    for each in ADJUSTABLE:
        setting = facts.settings.get(each.key)
        origin = "" if setting is None else _origin(setting.file, facts.project_file)
        where = f" It is now set at {setting.where}." if setting and setting.file else ""
        note = (
            f"'{each.key}' in aptui.yaml, for example {each.example}.{where}"
            " Comments and order stay; the engine reloads it by itself."
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
    return _NOUGHTS.get(each.key, "0") if setting.value == 0 else str(setting.value)


def _origin(file: str, project_file: str) -> str:
    return "aptui" if not file else "project" if file == project_file else "you"


def _screen(facts: ToolFacts) -> Iterator[ToolRow]:
    yield ToolRow("theme", "Screen", "Theme", facts.theme, "choose colours, seeing them at once", facts.key_of("app.theme"))
    note = "Off leaves selecting and copying with the mouse to the terminal."
    yield ToolRow("mouse", "Screen", "Mouse", _on(facts.has_mouse), "clicks, wheel and menus", facts.key_of("app.mouse"), note)
    own = f"{facts.own_key_count:,} of your own" if facts.own_key_count else "as shipped"
    note = f"Yours are looked for in '{own_file()}'; '?' shows those of the place you are at."
    yield ToolRow("keymap", "Screen", "Keys", own, "read the key bindings again", ":keymap", note)
    yield ToolRow("keys", "Screen", "Key tester", "", "show what a key is called and does", ":keys")


def _on(is_on: bool) -> str:
    return "on" if is_on else "off"


def tool_cells(rows: list[ToolRow]) -> Callable[[ToolRow, str], Cell]:
    """Return what draws them: a group is named once, at its first row."""
    heads = {each.id: each for at, each in enumerate(rows) if not at or rows[at - 1].group != each.group}

    def cell(tool: ToolRow, column: str) -> Cell:
        match column:
            case "group":
                return Cell(tool.group if heads.get(tool.id) is tool else "", "header")
            case "name":
                return Cell(tool.name)
            case "now":
                return Cell(tool.now, tool.role or ("muted" if tool.now in {"off", "as shipped", "not run"} else "value"))
            case "does":
                return Cell(tool.does, "muted")
            case "origin":
                return Cell(tool.origin, "muted")
            case _:
                return Cell(tool.key, "key")

    return cell
