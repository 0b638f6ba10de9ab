"""The Tools screen: available tools, their actions, settings written back, health and the doctor."""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import Future
from functools import partial

import pytest
from textual.widgets import Input

from aptui.config.load import load
from aptui.core.notices import HealthChanged, JobChanged, Progress
from aptui.link.port import Drain, PauseJobs, ReadStatus, ReloadConfig, ReprocessJobs, RescanSources, ResumeJobs, RunNext, SetOption
from aptui.shared.errors import HostError
from aptui.shared.health import Health, WatchedRoot, WatchMode
from aptui.tui.background import BackgroundTask
from aptui.tui.data.session import NoSession, SessionState
from aptui.tui.frame.theme_manager import ThemePicker
from aptui.tui.pane import PaneSpec
from aptui.tui.screens.tools import tool_rows
from aptui.tui.screens.tools.tool_rows import DoctorRow, ToolFacts, columns_for, of_health, summary, tools
from aptui.tui.widgets.menu import Menu, Prompt
from tests.store.conftest import analysis_row, job_row, source_row
from tests.tui.database import database
from tests.tui.fake_panes import PROBES, FakeSession, session_with
from tests.tui.shell_harness import LARGE, SMALL, in_shell, script_test, text, until

pytestmark = pytest.mark.real

PANES = [PaneSpec("tools", 7, "Tools", "Tools", "aptui.tui.screens.tools.tools_pane:ToolsPane"), PROBES[1]]
EVIL = "[/oops]\x1b]0;EVIL\x07\x1b[31m"
PROJECT = """\
# The game.
scan_folders: [{name: game, path: assets}]
builders: [{name: files, copy: ["*.txt"]}]
workers: 2   # two
ignore: ["*.tmp"]
"""
WELL = Health(roots=(WatchedRoot("/game/assets", WatchMode.NATIVE, watches=3),))


class Engine(FakeSession):
    """A session that answers requests as an engine does."""

    def __init__(self, cache_dir, state=SessionState.ATTACHED):
        super().__init__(cache_dir, state)
        self.answers = {
            ReadStatus: {"options": {"debug_output": False, "fast_scan": True}},
            RunNext: {"job_id": 4, "source": f"a{EVIL}.png"},
        }
        self.latest_health = WELL

    def ask(self, verb) -> Future:
        answer = super().ask(verb)
        if self.refusal:
            return answer
        found = Future()
        found.set_result(
            self.answers.get(type(verb), {"name": verb.name, "value": verb.value} if isinstance(verb, SetOption) else {})
        )
        return found

    def requests(self):
        """Return the requests to the engine, except `ReadStatus`."""
        return [verb for verb in self.asked if not isinstance(verb, ReadStatus)]


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "game"
    (folder / "assets").mkdir(parents=True)
    (folder / "aptui.yaml").write_text(PROJECT, encoding="utf-8")
    return folder


def in_tools(tmp_path, do, *, project=None, size=LARGE, session=None):
    """Open the screen, with or without a project."""

    def give_config(app):
        app.config = load(project) if project is not None else None

    async def main(app, pilot, engine):
        if project is not None and not engine.is_read_only:
            await until(pilot, lambda: app.pane._editor.known is not None)
        await pilot.pause()
        await do(app, pilot, engine)

    return in_shell(tmp_path, main, size=size, session=session or Engine, panes=PANES, before=give_config)


on_tools = partial(script_test, in_tools, ("app", "pilot", "session"))


def ids(app) -> list[str]:
    return [tool.id for tool in app.pane._rows]


async def use(app, pilot, tool_id: str, *keys: str) -> None:
    """Move to a tool, press Enter, then press the given keys."""
    table = app.pane._tools_table
    table.focus()
    table.move_cursor(ids(app).index(tool_id))
    await pilot.press("enter", *keys)
    await pilot.pause()


async def say(app, pilot, line: str, *keys: str) -> None:
    """Type a command on the command line."""
    app.bar.action_open(line)
    await pilot.press("enter", *keys)


@pytest.mark.parametrize("size", [SMALL, LARGE])
@on_tools()
async def test_every_tool_shows_name_state_and_purpose(app, pilot, project, size):
    await until(pilot, lambda: "debug" in ids(app))
    await pilot.pause()
    shown = text(app)
    for part in ("Pause", "off", "start no more jobs", "Health and checks", "✓ ok    watching        native"):
        assert part in shown
    if size == LARGE:
        for part in ("Queue", "Debug output", "Workers", "2 ", "project", "Theme", "dark", "Doctor", "not run", ":rescan full"):
            assert part in shown
    assert "Running jobs finish" in shown


def test_metadata_settings_and_faster_scanning_are_explained(tmp_path, project):
    more = "metadata_types: [.png, .tif]\nmeta_delay: 7s\n"
    (project / "aptui.yaml").write_text(PROJECT + more, encoding="utf-8")

    async def steps(app, pilot, _session):
        await until(pilot, lambda: {"faster", "set:metadata_types", "set:meta_delay"} <= set(ids(app)))
        rows = {tool.id: tool for tool in app.pane._rows}
        assert "every byte of every file" in rows["faster"].note
        assert rows["set:metadata_types"].now == ".png .tif"
        assert (rows["set:meta_delay"].now, rows["set:meta_delay"].origin) == ("7s", "project")

    in_tools(tmp_path, steps, project=project, size=LARGE)


@on_tools()
async def test_switches_on_the_tools_screen_send_requests_to_the_engine(app, pilot, session):
    await until(pilot, lambda: "debug" in ids(app))
    await use(app, pilot, "pause")
    await use(app, pilot, "drain", "n")
    await use(app, pilot, "drain", "y")
    await use(app, pilot, "rescan")
    await use(app, pilot, "full", "n")
    await use(app, pilot, "full", "y")
    await use(app, pilot, "reload")
    await use(app, pilot, "debug", "n")
    await use(app, pilot, "debug", "y")
    await until(pilot, lambda: session.requests() == [
        PauseJobs(), Drain(), RescanSources(), RescanSources(is_full=True), ReloadConfig(),
        SetOption("debug_output", value=True),
    ])  # fmt: skip
    await until(pilot, lambda: next(tool.now for tool in app.pane._rows if tool.id == "debug") == "on")
    await use(app, pilot, "debug")
    await until(pilot, lambda: "turn debug output off?" in text(app))
    await pilot.press("escape")
    await use(app, pilot, "restart", "w")
    await use(app, pilot, "restart", "n")

    await until(pilot, lambda: session.done == ["open", ("restart", True)])


@on_tools()
async def test_paused_queue_can_run_the_next_job_or_resume(app, pilot, session):
    assert "next" not in ids(app)
    session.latest_health = Health(roots=WELL.roots, is_paused=True)
    session.say(HealthChanged(0, session.latest_health))
    await until(pilot, lambda: "next" in ids(app))
    assert "pause" not in ids(app)
    await until(pilot, lambda: "paused: no job starts" in text(app))
    await use(app, pilot, "next")
    await until(pilot, lambda: "running a" in text(app))
    await use(app, pilot, "resume")

    await until(pilot, lambda: session.requests() == [RunNext(), ResumeJobs()])


@on_tools(session=session_with(Engine, latest_health=Health(is_draining=True)))
async def test_draining_queue_can_be_resumed(app, pilot, session):
    assert "drain" not in ids(app)
    await use(app, pilot, "resume")

    await until(pilot, lambda: session.requests() == [ResumeJobs()])


def test_failed_jobs_are_counted_and_run_again_after_confirmation(tmp_path):
    (tmp_path / "cache").mkdir()
    with database(tmp_path / "cache") as store:
        store.put(
            put_source=[source_row(1, "a.png"), source_row(2, "B.png")],
            put_job=[job_row(1, 1), job_row(7, 1, job_key="x", state="failed", status=2)],
            put_analysis=[analysis_row(2, state="failed")],
        )

        async def retry(app, pilot, session):
            await until(pilot, lambda: app.pane._failed.total == 2)
            await until(pilot, lambda: "2 jobs" in text(app))
            await use(app, pilot, "retry")
            await until(pilot, lambda: "run 2 failed jobs again?" in text(app))
            await pilot.press("y")
            await until(pilot, lambda: session.requests() == [ReprocessJobs(("b.png",), (7,))])
            store.put(put_job=[job_row(7, 1, job_key="x")], put_analysis=[analysis_row(2)])
            session.say(JobChanged(0, 7, "a.png", 1, "linux", "x", "", "completed", "", "", 0, 0, 5, "", 6))
            await until(pilot, lambda: app.pane._failed.total == 0)

            assert "retry" not in ids(app)

        in_tools(tmp_path, retry)


@on_tools()
async def test_setting_is_written_to_chosen_file_only(app, pilot, project):
    await use(app, pilot, "set:workers")
    await until(pilot, lambda: "This project" in text(app))
    await until(pilot, lambda: str(project / "aptui.yaml") in text(app))
    await pilot.press("p")
    box = app.screen.query_one(Prompt)
    await until(pilot, lambda: box.query_one(Input).value == "2")
    box.query_one(Input).value = "many"
    await pilot.press("enter")
    await pilot.pause()
    await until(pilot, lambda: "must be a whole number" in text(app))
    box.query_one(Input).value = "3"
    await pilot.press("enter")
    await until(pilot, lambda: app.pane._editor.known["workers"].value == 3)

    assert (project / "aptui.yaml").read_text(encoding="utf-8") == PROJECT.replace("workers: 2 ", "workers: 3 ")
    await until(pilot, lambda: "written to" in text(app))
    await until(pilot, lambda: app.focused is app.pane._tools_table)


def test_set_command_adds_an_ignore_rule_to_the_file_of_the_user(tmp_path, project):
    own = tmp_path / "XDG_CONFIG_HOME" / "aptui" / "aptui.yaml"

    async def add(app, pilot, _session):
        before = len(app.pane._editor.known["ignore"].value)
        await say(app, pilot, "set ignore *.bak")
        await until(pilot, lambda: app.screen.query(Menu))
        await pilot.press("u")
        await pilot.pause()
        await pilot.press("enter")
        await until(pilot, lambda: len(app.pane._editor.known["ignore"].value) == before + 1)
        assert own.read_text(encoding="utf-8").endswith('ignore: ["*.bak"]\n')
        await say(app, pilot, "set nothing")
        await pilot.pause()

        await until(pilot, lambda: "'nothing' cannot be set here" in text(app))
        await until(pilot, lambda: app.focused is app.pane._tools_table)

    in_tools(tmp_path, add, project=project)


def test_setting_in_the_file_of_the_user_is_written_without_a_question(tmp_path, project):
    own = tmp_path / "XDG_CONFIG_HOME" / "aptui" / "aptui.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("workers: 5\n", encoding="utf-8")

    async def write(app, pilot, _session):
        await use(app, pilot, "set:workers")
        await until(pilot, lambda: not app.screen.query(Menu))
        app.screen.query_one(Prompt).query_one(Input).value = "6"
        await pilot.press("enter")
        await until(pilot, lambda: own.read_text(encoding="utf-8") == "workers: 6\n")

        await until(pilot, lambda: next(tool.origin for tool in app.pane._rows if tool.id == "set:workers") == "you")

    in_tools(tmp_path, write, project=project)


@on_tools()
async def test_invalid_setting_is_refused(app, pilot, project):
    (project / "aptui.yaml").write_text(PROJECT + "nonsense: 1\n", encoding="utf-8")
    await use(app, pilot, "set:workers", "p")
    await pilot.pause()
    app.screen.query_one(Prompt).query_one(Input).value = "6"
    await pilot.press("enter")
    await until(pilot, lambda: "unknown key 'nonsense'" in text(app))

    assert "workers: 2" in (project / "aptui.yaml").read_text(encoding="utf-8")


def test_screen_tools_need_no_engine_and_no_project(tmp_path):
    session = NoSession("game", tmp_path / "cache")
    session.done = ["open"]

    async def use_them(app, pilot, _session):
        assert ids(app) == ["theme", "mouse", "keymap", "keys"]
        await use(app, pilot, "theme")
        await until(pilot, lambda: app.query_one(ThemePicker).display)
        await pilot.press("escape")
        await use(app, pilot, "mouse")
        await until(pilot, lambda: not app.terminal.has_mouse)
        await until(pilot, lambda: next(tool.now for tool in app.pane._rows if tool.id == "mouse") == "off")
        await pilot.press("M")
        await until(pilot, lambda: next(tool.now for tool in app.pane._rows if tool.id == "mouse") == "on")
        await pilot.press("T")
        await until(pilot, lambda: next(tool.now for tool in app.pane._rows if tool.id == "theme") == app.theme != "dark")
        await use(app, pilot, "keymap")
        await until(pilot, lambda: "keys read" in text(app))
        await use(app, pilot, "keys")
        await until(pilot, lambda: app.switcher.sheet == "sheet-keys")
        await pilot.press("escape", "escape", "K")

        assert "doctor" not in {each.name for each in app.commands()}
        assert "Health and checks" not in text(app)

    in_tools(tmp_path, use_them, session=session)


@on_tools(session=session_with(Engine, is_read_only=True))
async def test_read_only_screen_offers_no_engine_tools_or_settings(app, session, project):
    assert ids(app) == ["theme", "mouse", "keymap", "keys", "doctor"]
    assert session.asked == []
    assert "native, 3 folders" in text(app)


@on_tools()
async def test_engine_can_be_started_and_is_queried_after_attaching(app, pilot, session):
    session.turn(SessionState.REATTACHING, "gone")
    await until(pilot, lambda: "pause" not in ids(app))
    assert "native" not in text(app)
    await use(app, pilot, "start")
    await until(pilot, lambda: session.done[-1] == "start")
    session.answers[ReadStatus] = {"options": {"debug_output": True}}
    session.turn(SessionState.ATTACHED)
    await until(pilot, lambda: "debug" in ids(app))

    await until(pilot, lambda: next(tool.now for tool in app.pane._rows if tool.id == "debug") == "on")
    await until(pilot, lambda: session.asked.count(ReadStatus()) == 2)


def doctor(monkeypatch, script: str) -> None:
    monkeypatch.setattr(tool_rows, "command", lambda _project: [sys.executable, "-S", "-c", script])


def test_doctor_checks_are_listed_below_engine_checks(tmp_path, project, monkeypatch):
    requests = [
        {"name": "disk", "state": "warn", "said": f"little left {EVIL}", "advice": "free some"},
        {"name": "sqlite", "state": "ok", "said": "3.40.1", "advice": ""},
    ]
    doctor(monkeypatch, f"print({json.dumps(json.dumps(requests))})")

    async def ask(app, pilot, _session):
        await pilot.press("K")
        await until(pilot, lambda: "3.40.1" in text(app))
        await until(pilot, lambda: "! warn" in text(app))
        await until(pilot, lambda: "! 1 to check" in text(app))
        assert "\x1b" not in text(app)
        await until(pilot, lambda: app.pane.status() == "! 1 to check")
        app.pane._checks_table.focus()
        await pilot.press("j")
        await until(pilot, lambda: "→ free some" in text(app))
        copied = []
        app.copy_text = copied.append
        await pilot.press("y")
        assert copied[0].startswith("! warn\tdisk\tlittle left")
        await pilot.press("z")
        await until(pilot, lambda: not app.pane._tools_table.display)
        await pilot.press("z", "shift+tab", "z")

        await until(pilot, lambda: not app.pane._checks_table.display)

    in_tools(tmp_path, ask, project=project)


def test_error_of_the_doctor_process_is_reported(tmp_path, project, monkeypatch):
    doctor(monkeypatch, "import sys; sys.exit('no such verb')")

    async def ask(app, pilot, _session):
        await use(app, pilot, "doctor")
        await until(pilot, lambda: "the doctor failed: no such verb" in text(app))

        await until(pilot, lambda: next(tool.now for tool in app.pane._rows if tool.id == "doctor") == "not run")

    in_tools(tmp_path, ask, project=project)


def test_leaving_the_screen_stops_the_running_doctor(tmp_path, project, monkeypatch):
    doctor(monkeypatch, "import time; time.sleep(60)")

    async def ask(app, pilot, _session):
        await pilot.press("K")
        await until(pilot, lambda: "checking…" in text(app))

    in_tools(tmp_path, ask, project=project)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("aptui-tools")]


@on_tools()
async def test_refused_request_is_reported(app, pilot, session):
    session.refusal = "the engine is paused, so the jobs would not end"
    await use(app, pilot, "drain", "y")

    await until(pilot, lambda: "the jobs would not end" in text(app))


@on_tools()
async def test_commands_do_the_same_as_the_rows_of_the_tools_screen(app, pilot, session):
    await until(pilot, lambda: "debug" in ids(app))
    await say(app, pilot, "debug off")
    await until(pilot, lambda: "debug output is already off" in text(app))
    await say(app, pilot, "debug on", "y")

    await until(pilot, lambda: session.requests() == [SetOption("debug_output", value=True)])
    await say(app, pilot, "faster off")
    await until(pilot, lambda: session.requests()[-1] == SetOption("fast_scan", value=False))
    await until(pilot, lambda: next(tool.now for tool in app.pane._rows if tool.id == "faster") == "off")
    assert "faster scanning is off" in text(app)
    await use(app, pilot, "faster")
    await until(pilot, lambda: session.requests()[-1] == SetOption("fast_scan", value=True))


def test_engine_problems_are_rows_with_advice_worst_first():
    health = Health(
        roots=tuple(WatchedRoot(f"/{mode.value}", mode, "why") for mode in WatchMode),
        pool="no workers", broken_builders=(("textures", "crashed 3 times"),), disk="full", database="deleted: restore it",
        configuration="aptui.yaml:1:1: broken", is_paused=True, is_draining=True, holds=("/game/.git/index.lock",),
    )  # fmt: skip
    found = of_health(health)

    assert [check.state for check in found] == sorted((check.state for check in found), key=["fail", "warn", "ok"].index)
    assert all(check.advice for check in found if check.state != "ok")
    assert DoctorRow("held back", "warn", "by /game/.git/index.lock", "changes wait until this hold ends") in found
    assert DoctorRow("database", "fail", "deleted", "restore it") in found
    assert {check.name for check in found} == {
        "held back",
        "queue",
        "workers",
        "disk",
        "database",
        "configuration",
        "builder",
        "watching",
    }
    assert of_health(None) == []
    assert summary(found).startswith("✗")


def test_running_scan_and_refused_configuration_are_shown():
    scanning = Progress(0, 1, 0, 0, 0, 0, 0, 0, True)
    rows = {
        tool.id: tool
        for tool in tools(ToolFacts(is_attached=True, progress=scanning, health=Health(configuration="line 3 is broken")))
    }

    assert rows["rescan"].now == "scanning"
    assert (rows["reload"].now, rows["reload"].note) == ("not in use", "line 3 is broken")


@on_tools(session=session_with(Engine, state=SessionState.DETACHED))
async def test_cursor_stays_on_the_first_row_until_the_user_moves_the_cursor(app, pilot, session):
    session.turn(SessionState.ATTACHED)
    await until(pilot, lambda: "debug" in ids(app))
    await until(pilot, lambda: app.pane._tools_table.cursor == 0)
    await pilot.press("j")
    row = ids(app)[1]
    session.turn(SessionState.REATTACHING)
    await until(pilot, lambda: "debug" not in ids(app))
    await pilot.press("G", "k")
    session.turn(SessionState.ATTACHED)
    await until(pilot, lambda: row in ids(app))

    await until(pilot, lambda: ids(app)[app.pane._tools_table.cursor] == "keymap")


def test_advice_column_is_hidden_without_advice():
    quiet, loud = DoctorRow("disk", "ok", "64 GiB free"), DoctorRow("disk", "fail", "full", "free some space")

    assert [column.title for column in columns_for([quiet])] == ["State", "Check", "Result"]
    assert [column.title for column in columns_for([quiet, loud])] == ["State", "Check", "Result", "Advice"]


def test_explanation_of_a_setting_is_not_cut_at_80_columns():
    assert [each.does for each in tool_rows.ADJUSTABLE if len(each.does) > 40] == []


def test_doctor_that_cannot_be_started_is_an_error_for_the_user():
    with pytest.raises(HostError, match="the doctor cannot be started"):
        tool_rows._ask(BackgroundTask("test", print), ["/no/such/program"])
