"""The Tools screen: switches and actions of the engine, settings in YAML, the doctor's checks and the engine's health."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from aptui.config.dirs import asset_database
from aptui.core.paths import key_of
from aptui.link.port import Answer, Drain, ReadStatus, ReloadConfig, ReprocessJobs, RescanSources, ResumeJobs, RunNext, SetOption
from aptui.shared.printing import count
from aptui.store.db.schema import translate_errors
from aptui.store.queries.reader import open_reader
from aptui.tui.background import BackgroundTask
from aptui.tui.data.session import SessionState
from aptui.tui.frame.commandline import Choice, Command
from aptui.tui.frame.line import Bar, Part
from aptui.tui.pane import Pane, Shell
from aptui.tui.preferences.keymap import show_key
from aptui.tui.screens.tools import tool_rows as listed
from aptui.tui.screens.tools.tool_rows import Doctor, DoctorRow, SettingsEditor, ToolFacts, ToolRow
from aptui.tui.terminal.safety import make_safe
from aptui.tui.widgets.listing import Listing
from aptui.tui.widgets.row_list import Rows
from aptui.tui.widgets.table import SideTable, Table

if TYPE_CHECKING:
    from aptui.tui.data.feed import Batch


class FailedJobs:
    """Counts the failed jobs in a thread, and runs them again."""

    def __init__(self, shell: Shell, changed: Callable[[], object]) -> None:
        self._shell, self._changed = shell, changed
        self._task = BackgroundTask("aptui-tools-count", shell.in_ui)
        self.is_stale = True
        """Whether the number of failed jobs may have changed."""
        self.total = -1
        """Number of failed jobs; -1 = unknown."""

    def close(self) -> None:
        """Cancel a running count."""
        self._task.close()

    def refresh(self) -> None:
        """Count the failed jobs again if their number may have changed, but not while jobs run or are pending."""
        progress = self._shell.session.latest_progress
        is_idle = progress is None or not (progress.jobs_running or progress.jobs_waiting)
        if self.is_stale and is_idle:
            self.is_stale = not self._task.start(self._count_failed, self._accept_count, lambda _error: None)

    def _count_failed(self, _task: BackgroundTask) -> int:
        path = asset_database(self._shell.session.cache_dir)
        if not path.is_file():
            return 0
        with closing(open_reader(path)) as reader, translate_errors(path):
            return reader.totals().jobs["failed"]

    def _accept_count(self, total: int) -> None:
        self.total = total
        self._changed()

    def retry(self) -> None:
        """Find all failed jobs and analyses, then ask whether to run them again."""
        database = asset_database(self._shell.session.cache_dir)

        def work(_task: BackgroundTask) -> tuple[list[int], list[str]]:
            with closing(open_reader(database)) as reader, translate_errors(database):
                failed = list(reader.jobs(statuses={"failed"}))
            return [job.job_id for job in failed if job.job_id], sorted({key_of(job.source) for job in failed if not job.job_id})

        if not self._task.start(work, self._ask_to_retry, lambda error: self._shell.show_toast(str(error), "error", 10)):
            self._shell.show_toast("the jobs are being counted; try again", "warning")

    def _ask_to_retry(self, failed: tuple[list[int], list[str]]) -> None:
        job_ids, keys = failed
        total = len(job_ids) + len(keys)
        self._accept_count(total)
        if not total:
            self._shell.show_toast("no failed jobs")
            return
        ask = partial(self._shell.ask, ReprocessJobs(tuple(keys), tuple(job_ids)), f"{count(total, 'job')} queued to run again")
        self._shell.question(f"run {count(total, 'failed job')} again?", [Choice("y", "run them", ask), Choice("n", "no")])


_WORDS = {"on": True, "off": False}
_OPTION_NAMES = {"debug_output": "debug output", "fast_scan": "faster scanning"}


class EngineTools:
    """Sends requests to the engine, and stores the engine's options."""

    def __init__(self, shell: Shell, changed: Callable[[], object]) -> None:
        self._shell, self._changed = shell, changed
        self._asked_pid = 0
        self.options: dict[str, bool] | None = None
        """{option of the engine: whether it is on}; None = the options are unknown."""

    def mark_outdated(self) -> None:
        """Mark the options as outdated, so that the next `refresh` queries them again."""
        self._asked_pid = 0

    def refresh(self, *, is_attached: bool) -> None:
        """Query the options of the engine, such as debug output, once after each attachment to an engine."""
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

    def run_next(self) -> None:
        """Run one more job while paused."""

        def report(answer: Answer) -> None:
            self._shell.show_toast(f"running {answer['source']}" if answer.get("job_id") else "no job is pending")

        self._shell.ask(RunNext(), then=report)

    def drain(self) -> None:
        """Finish the queue while new changes wait, after a confirmation."""
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
            self._shell.show_toast(f"debug output is already {'on' if wanted else 'off'}")
            return
        ask = partial(self._shell.ask, SetOption("debug_output", wanted), then=self._accept_option)
        to, now = ("on", "off") if wanted else ("off", "on")
        text = f"turn debug output {to}? jobs of builders with debug products run again"
        self._shell.question(text, [Choice("y", f"turn it {to}", ask), Choice("n", f"leave it {now}")])

    def set_fast_scanning(self, word: str = "") -> None:
        """Switch fast rescans "on" or "off"; another word toggles them. A fast rescan skips files with unchanged size and time."""
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


_ROOMY_LINES = 30
"""Minimum height of the screen for a note of three lines; on a lower screen the note has two lines."""


class ToolsTable(Table):
    """The table of tools."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "open", "do it", id="rows.open")]


class ToolsPane(Pane):
    """The Tools screen: the tools above, health and checks below, and a note that explains the row under the cursor."""

    DEFAULT_CSS = """
    ToolsPane { layout: vertical; }
    #tools-list { height: 1fr; }
    #tools-checks { height: 2; max-height: 40%; }
    ToolsPane.-zoomed-checks #tools-checks { max-height: 100%; }
    #tools-note { dock: bottom; height: 3; padding: 0 1; color: $role-muted; }
    ToolsPane.-zoomed-list #tools-checks, ToolsPane.-zoomed-list #tools-health { display: none; }
    ToolsPane.-zoomed-checks #tools-list { display: none; }
    ToolsPane.-low #tools-note { height: 2; }
    ToolsPane.-alone #tools-checks, ToolsPane.-alone #tools-health { display: none; }
    """
    command_names = ("doctor", "retry", "faster", "debug", "set")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("K", "doctor", "doctor", id="tools.doctor"),
        Binding("y", "copy", "copy", id="tools.copy"),
        Binding("z", "zoom", "zoom", id="tools.zoom"),
    ]

    def __init__(self, **kwargs: str | None) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]  # id and name
        self._tools: Listing[ToolRow] = Listing(listed.tool_cell, key=lambda tool, _: hash(tool.id))
        self._checks: Listing[DoctorRow] = Listing(listed.check_cell)
        self._rows: list[ToolRow] = []
        self._found: list[DoctorRow] = []
        self._are_settings_stale = True
        self._stays_on_top = True
        """Whether the cursor goes to the first row when rows change. True until the user leaves the first row or runs a tool."""

    def compose(self) -> ComposeResult:
        """Yield the table of tools, the line with the engine's health, the table of checks, and the note about a tool."""
        yield ToolsTable(listed.COLUMNS, self._tools, id="tools-list")
        yield Bar(self._health_line, id="tools-health", rules=True)
        yield SideTable(listed.CHECK_COLUMNS, self._checks, id="tools-checks")
        yield Static(markup=False, id="tools-note")

    def on_mount(self) -> None:
        """Create the background tasks, and observe the state of the engine."""
        self._engine = EngineTools(self.shell, self._draw)
        self._failed = FailedJobs(self.shell, self._draw)
        self._editor = SettingsEditor(self.shell, self._draw)
        self._doctor = Doctor(self.shell, self._draw)
        self.shell.session.on_state.append(self.shell.wake)
        self._checks_table.empty_text = "no checks yet: no engine is connected, and the doctor was not run"
        self.set_class(self.shell.config is None and self.shell.session.state is SessionState.NONE, "-alone")
        self._draw()

    def on_unmount(self) -> None:
        """Cancel background tasks."""
        for each in (self._failed, self._editor, self._doctor):
            each.close()

    def on_resize(self, event: events.Resize) -> None:
        """Make the note shorter on low screens."""
        self.set_class(event.size.height < _ROOMY_LINES, "-low")

    # --------------------------------------------------------------------------------------------------- methods of `Pane`

    def activate(self) -> None:
        """Check for changes of files on disk."""
        self._are_settings_stale = True
        self._refresh_facts()
        self._draw()

    def reload(self) -> None:
        """Read everything again."""
        self._failed.is_stale = True
        self._engine.mark_outdated()
        self.activate()

    def on_news(self, batch: Batch) -> None:
        """Note that displayed values may have changed."""
        if batch.jobs or batch.table is not None:
            self._failed.is_stale = True
        self._are_settings_stale = self._are_settings_stale or batch.health is not None

    def on_frame(self) -> None:
        """Draw changes."""
        self._refresh_facts()
        self._draw()

    def status(self) -> str:
        """Return the summary of the checks."""
        return listed.summary(self._found) if self._found else ""

    def commands(self) -> Sequence[Command]:
        """Return the commands of the `:` line."""
        commands = []
        ids = {tool.id for tool in self._rows}
        if "doctor" in ids:
            commands.append(Command("doctor", "check the project and its environment", lambda _rest: self.action_doctor()))
        if "retry" in ids:
            commands.append(
                Command("retry", "run every failed job again (asks first)", lambda _rest: self._failed.retry(), None, True)
            )
        if "faster" in ids:
            text = "let rescans skip unchanged files, on or off"
            commands.append(Command("faster", text, self._engine.set_fast_scanning, lambda: ("on", "off"), True))
        if "debug" in ids:
            commands.append(
                Command(
                    "debug",
                    "turn debug output on or off (asks first)",
                    self._engine.set_debug,
                    lambda: ("on", "off"),
                    True,
                )
            )
        if self._editor.known is not None:
            keys = tuple(each.key for each in listed.ADJUSTABLE)
            commands.append(Command("set", "change a setting, in the file you choose", self._run_set_command, lambda: keys))
        return commands

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide the action of the doctor if no project is open."""
        if action == "doctor":
            return self.is_attached and self.shell.config is not None
        return super().check_action(action, parameters)

    # --------------------------------------------------------------------------------------------------------------- facts

    @property
    def _is_attached_to_engine(self) -> bool:
        return self.shell.can_ask and self.shell.session.state is SessionState.ATTACHED

    @property
    def _may_write(self) -> bool:
        return self.shell.config is not None and not self.shell.session.is_read_only

    def _refresh_facts(self) -> None:
        """Read displayed values that are out of date. Query the engine only once per connection to it."""
        self._engine.refresh(is_attached=self._is_attached_to_engine)
        self._failed.refresh()
        if self._are_settings_stale and self._may_write:
            self._are_settings_stale = not self._editor.read()

    def _facts(self) -> ToolFacts:
        shell, session = self.shell, self.shell.session
        is_attached = self._is_attached_to_engine
        return ToolFacts(
            is_attached=is_attached,
            can_start=shell.can_ask and session.state in {SessionState.DETACHED, SessionState.REATTACHING},
            progress=session.latest_progress,
            health=session.latest_health,
            options=self._engine.options,
            failed=self._failed.total,
            settings=self._editor.known if self._may_write else None,
            project_file=os.path.join(os.path.abspath(self._project_dir), "aptui.yaml") if shell.config else "",
            theme=shell.app.theme,
            has_mouse=shell.terminal.has_mouse,
            own_key_count=len(shell.keys.keymap.overrides),
            doctor=self._doctor.words,
            has_doctor=shell.config is not None,
            key_of=self._key_of,
        )

    def _key_of(self, action_id: str) -> str:
        action = self.shell.keys.keymap.actions.get(action_id)
        return show_key(action.keys[0]) if action and action.keys else ""

    @property
    def _project_dir(self) -> Path:
        assert self.shell.config is not None
        return self.shell.config.project_dir

    # ------------------------------------------------------------------------------------------------------------- drawing

    def _draw(self) -> None:
        rows = listed.tools(self._facts())
        if rows != self._rows:
            self._rows = rows
            self._tools.show(rows)
            self._tools_table.styles.max_height = len(rows) + 1
            self._tools_table.refresh_model()
            if self._stays_on_top:
                self._tools_table.move_cursor(0)
            if self.is_mounted:
                self.refresh_bindings()
        health = self.shell.session.latest_health if self.shell.session.state is SessionState.ATTACHED else None
        found = [*listed.of_health(health), *self._doctor.found]
        if found != self._found:
            self._found = found
            self._checks.show(found)
            self._checks_table.set_columns(listed.columns_for(found))
            self._checks_table.styles.height = max(2, len(found) + 1)
            self._checks_table.refresh_model()
        for line in self.query(Bar):
            line.refresh_if_changed()
        self._explain()

    def _health_line(self, _width: int) -> tuple[Sequence[Part], Sequence[Part]]:
        bad = sum(check.state != "ok" for check in self._found)
        word = f"  {bad:,} to check" if bad else "  all well" if self._found else ""
        right = (Part("K", "key", "keys.press('K')"), Part(" runs the doctor", "muted")) if self.shell.config else ()
        return (Part("Health and checks", "title"), Part(word, "warning" if bad else "completed")), right

    def _explain(self) -> None:
        """Show the explanation of the row under the cursor."""
        table = self._checks_table if self._checks_table.has_focus else self._tools_table
        if table.cursor_key is None or table.index_of(table.cursor_key) is None:
            text = ""
        elif table is self._checks_table:
            check = self._checks.at(table.cursor_key)
            text = f"{check.name}: {check.message}" + (f" → {check.advice}" if check.advice else "")
        else:
            tool = self._tools.at(table.cursor_key)
            text = tool.note or f"{tool.does[:1].upper()}{tool.does[1:]}."
        note, text = self.query_one("#tools-note", Static), make_safe(text)
        if text != note.content:
            note.update(text, layout=False)

    def on_rows_highlighted(self, event: Rows.Highlighted) -> None:
        """Show the explanation of another row."""
        event.stop()
        if event.rows is self._tools_table and event.rows.cursor:
            self._stays_on_top = False
        self._explain()

    def on_descendant_focus(self) -> None:
        """Show the explanation of the row in the table that got the focus."""
        self._explain()

    @property
    def _tools_table(self) -> Table:
        return self.query_one("#tools-list", Table)

    @property
    def _checks_table(self) -> Table:
        return self.query_one("#tools-checks", Table)

    # ------------------------------------------------------------------------------------------------------------- actions

    def on_rows_opened(self, event: Rows.Opened) -> None:
        """Run the tool that the user chose."""
        event.stop()
        if event.rows is self._tools_table:
            self._stays_on_top = False
            self._use(self._tools.at(event.key))

    def _use(self, tool: ToolRow) -> None:
        if tool.id.startswith("set:"):
            self._editor.adjust(tool.id.removeprefix("set:"))
            return
        acts: dict[str, Callable[[], object]] = {
            "pause": self.shell.engine.action_pause,
            "resume": partial(self.shell.ask, ResumeJobs(), "resumed"),
            "next": self._engine.run_next,
            "drain": self._engine.drain,
            "retry": self._failed.retry,
            "rescan": partial(self._engine.rescan, is_full=False),
            "faster": self._engine.set_fast_scanning,
            "full": self._engine.full_scan,
            "start": self.shell.session.start_engine,
            "reload": self._engine.reload,
            "debug": self._engine.set_debug,
            "restart": self._engine.restart,
            "theme": partial(self.shell.themes.choose, ""),
            "mouse": self._toggle_mouse,
            "keymap": self._reload_keymap,
            "keys": partial(self.shell.schedule_action, "sheets.keys"),
            "doctor": self.action_doctor,
        }
        acts[tool.id]()

    def _toggle_mouse(self) -> None:
        self.shell.terminal.action_mouse()
        self._draw()

    def _reload_keymap(self) -> None:
        self.shell.keys.action_reload()
        self._draw()

    # -------------------------------------------------------------------------------------------------------------- doctor

    def action_doctor(self) -> None:
        """Run the doctor in another process."""
        self._doctor.run(self._project_dir)

    def _run_set_command(self, rest: str) -> None:
        key, _, text = rest.partition(" ")
        if any(each.key == key for each in listed.ADJUSTABLE):
            # When the prompt closes, the focus returns to the widget that had it when the prompt opened. So the prompt opens only
            # after the focus has returned to the pane.
            self.call_after_refresh(self._editor.adjust, key, text.strip())
        else:
            known = ", ".join(each.key for each in listed.ADJUSTABLE)
            self.shell.show_toast(f"'{key}' cannot be set here; you can set {known}", "warning")

    # ---------------------------------------------------------------------------------------------------- copying and zoom

    def action_copy(self) -> None:
        """Copy the marked rows, or the row under the cursor."""
        table = self.shell.app.focused
        if isinstance(table, Table):
            self.shell.copy_text(table.join_selected_rows())

    def action_zoom(self) -> None:
        """Give the focused table all the room, or divide the room again."""
        is_zoomed = self.has_class("-zoomed-list") or self.has_class("-zoomed-checks")
        wants_checks = self._checks_table.has_focus
        self.set_class(not is_zoomed and not wants_checks, "-zoomed-list")
        self.set_class(not is_zoomed and wants_checks, "-zoomed-checks")
