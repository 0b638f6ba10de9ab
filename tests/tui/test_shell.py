"""The parts around a pane (status line, tabs, sheets, `:` line) and the effect of their keys, at two screen sizes."""

import re
from importlib import import_module

import pytest
from textual import events
from textual.binding import ActiveBinding, Binding
from textual.geometry import Size
from textual.screen import Screen
from textual.widgets import Input

from aptui import __version__
from aptui.core.notices import Progress
from aptui.link.port import PauseJobs, ResumeJobs, RunNext, StopEngine
from aptui.shared.health import Health, WatchedRoot, WatchMode
from aptui.tui import app as tui_app
from aptui.tui.data.session import EngineFacts, NoSession, SessionState
from aptui.tui.frame.commandline import Command, CommandLine, completions
from aptui.tui.frame.sheets import FILTER, SIGNS, Lines, Toasts, break_entries, help_lines
from aptui.tui.frame.statusline import Rule
from aptui.tui.pane import PaneSpec
from aptui.tui.preferences.keymap import Keymap, load_keymap
from aptui.tui.preferences.state import UiMemory
from aptui.tui.terminal import safety
from aptui.tui.terminal.safety import TerminalFacts
from tui.fake_panes import PROBES, FakeSession, session_with
from tui.shell_harness import LARGE, SMALL, in_shell, lines, on_shell, text, until

pytestmark = pytest.mark.real

BUSY = Progress(0, 1234, 100, 114, 3390, 12, 812, 3, False, 800, 2100, 48000, 100_000)
IDLE = Progress(0, 1234, 0, 0, 0, 0, 812, 0, False, 800, 2100, 48000)
NATIVE = Health(roots=(WatchedRoot("/a", WatchMode.NATIVE), WatchedRoot("/b", WatchMode.NATIVE)))


busy = session_with(latest_progress=BUSY, latest_health=NATIVE)


@pytest.mark.parametrize("size", [SMALL, LARGE])
@on_shell()
async def test_number_keys_show_panes_and_restore_the_focus(app, pilot, size):
    await pilot.press("tab")
    there = app.focused
    for spec in PROBES[1:]:
        await pilot.press(str(spec.number))
        await until(pilot, lambda spec=spec: app.pane.name_of_pane == spec.id and app.pane.display)
    await pilot.press("1")

    await until(pilot, lambda: app.focused is there)
    await until(pilot, lambda: app.focused.id == "pane-jobs-two")
    await until(pilot, lambda: app.pane.noted == ["activate", "deactivate", "activate"])


@on_shell(panes=[])
async def test_app_works_without_panes(app, pilot):
    await pilot.press("1", "question_mark")

    await until(pilot, lambda: "AutomatedTesting" in lines(app)[0])


@on_shell(size=LARGE, session=busy)
async def test_wide_status_line_has_activity_counts_and_timers(app):
    shown = lines(app)[0]
    assert shown.startswith(" aptui  AutomatedTesting   ● building 18 %  815 of about 4,431 jobs · 3 failed · 1m 40s left · 214")
    assert "processing 48 s" in lines(app)[0] or "12 running · 17 a second" in lines(app)[0]
    assert lines(app)[1].endswith("2 folders watched   connected")
    assert "━━━" in lines(app)[2]


@pytest.mark.parametrize(
    ("terminal", "drawn"),
    [
        (TerminalFacts(), r" ━{2,}─+ "),
        (TerminalFacts(colours=0), r" ━+×+╍+─+ "),
        (TerminalFacts(colours=0, is_utf8=False), r" =+x+>+-+ "),
    ],
)
def test_bar_of_progress_has_a_glyph_for_each_part_if_the_terminal_has_no_colours(tmp_path, terminal, drawn):
    safety.install(terminal)
    try:
        rule = Rule(busy(tmp_path), name="rule-top")
        assert re.fullmatch(drawn, "".join(part.text for part in rule.parts(80)))
    finally:
        safety.install(TerminalFacts())


@on_shell(session=busy)
async def test_status_line_at_80_columns_has_counts_and_no_timers(app):
    assert lines(app)[0].startswith(" AutomatedTesting   ● building 18 %  815 of about 4,431 jobs · 3 failed")
    assert "scan 0.8 s" not in lines(app)[0]
    assert "7 Tools" in lines(app)[1]
    assert lines(app)[1].endswith("7 Tools"), "no text follows the tabs, because the engine has no problem"


@pytest.mark.parametrize("size", [(20, 6), (1, 1), (40, 9), (400, 120)])
@on_shell(session=busy)
async def test_app_works_in_every_size(app, pilot, size):
    await pilot.press("question_mark", "escape", "colon", "escape", "Q", "escape", "i", "escape", "2")

    await until(pilot, lambda: app.pane.name_of_pane == "assets")


@on_shell(
    session=session_with(
        latest_progress=BUSY, latest_health=Health(roots=(WatchedRoot("/a", WatchMode.NATIVE), WatchedRoot("/b", WatchMode.GONE)))
    )
)
async def test_lost_watched_folder_is_shown_at_80_columns(app):
    assert "! gone: 1 of 2 folders" in lines(app)[1]


@on_shell()
async def test_updates_reach_all_panes_and_only_the_visible_pane_draws(app, pilot, session):
    await pilot.press("2", "1")
    jobs, assets = app.switcher.mounted["jobs"], app.switcher.mounted["assets"]
    await pilot.pause(0.15)
    drawn = assets.frames
    session.latest_progress = IDLE
    session.say(IDLE)
    await until(pilot, lambda: all(any(batch.progress == IDLE for batch in pane.received) for pane in (jobs, assets)))

    assert assets.frames == drawn
    await until(pilot, lambda: jobs.frames)
    await until(pilot, lambda: "✓ idle" in lines(app)[0])


def test_frame_that_is_requested_before_the_feed_opens_is_drawn_later(tmp_path):
    def too_early(app):
        open_feed = app.open_feed
        app.open_feed = lambda: (app.drawing.draw(), open_feed())

    async def script(app, pilot, _session):
        await until(pilot, lambda: app.pane.frames)

    in_shell(tmp_path, script, before=too_early)


@on_shell()
async def test_thousands_of_updates_are_drawn_in_at_most_two_frames(app, pilot, session):
    await pilot.pause(0.15)
    before = app.pane.frames
    for seq in range(2000):
        session.say(BUSY, seq)
    await until(pilot, lambda: app.pane.frames > before)

    assert app.pane.frames - before <= 2


@on_shell()
async def test_idle_app_has_no_timer_and_draws_nothing(app, pilot):
    await pilot.pause(0.3)
    frames, drawn = app.pane.frames, []
    app._display = lambda *args: drawn.append(args)
    await pilot.pause(0.3)

    assert app.pane.frames == frames
    assert drawn == []
    assert not any(timer._repeat is None for timer in app._timers if timer._active.is_set())


@pytest.mark.parametrize("key", ["question_mark", "f1"])
@on_shell(size=LARGE)
async def test_help_shows_keys_of_the_pane_and_can_be_filtered(app, pilot, key):
    await pilot.press(key)
    await until(pilot, lambda: "reprocess" in text(app))
    assert "probe.reprocess" not in text(app)
    await pilot.press("slash", *"palette")
    await until(pilot, lambda: "reprocess" not in text(app))
    await pilot.press("escape")
    await until(pilot, lambda: "reprocess" in text(app))
    await pilot.press("q")
    await until(pilot, lambda: app.focused.id == "pane-jobs-one" and "jobs row 1" in text(app))
    await pilot.press(key, "slash", *"reprocess", "enter", "enter")
    await until(pilot, lambda: "reprocess" in app.pane.noted)


@on_shell(size=LARGE)
async def test_info_shows_engine_cache_and_pane_status(app, pilot, tmp_path):
    await pilot.press("i")

    for part in ("AutomatedTesting", "pid 4711", "/run/engine.sock", __version__, "50 rows", str(tmp_path / "cache")):
        await until(pilot, lambda part=part: part in text(app))
    await pilot.press("escape")
    await until(pilot, lambda: "jobs row 1" in text(app))


def test_typed_command_can_be_completed_and_is_remembered(tmp_path):
    async def say(app, pilot, _session):
        await pilot.press("colon", *"pro", "tab", "space", *"b", "tab", "enter")
        await pilot.pause()
        await until(pilot, lambda: "beta" in app.pane.noted)
        await until(pilot, lambda: app.focused.id == "pane-jobs-one")
        await pilot.press("colon", "up")
        await until(pilot, lambda: app.query_one("#command Input", Input).value == "probe beta")
        await pilot.press("down")
        await until(pilot, lambda: app.query_one("#command Input", Input).value == "")
        await pilot.press("escape")

    app = in_shell(tmp_path, say)
    assert UiMemory(tmp_path / "person.json").history("commands") == ["probe beta"]
    assert app.person.get("commands", []) == ["probe beta"]


@on_shell()
async def test_unknown_command_shows_the_nearest_one(app, pilot):
    await pilot.press("colon", *"thme", "enter")
    await until(pilot, lambda: "did you mean 'theme'" in text(app))
    await pilot.press("colon", *"re", "enter")
    await until(pilot, lambda: "'re' is ambiguous" in text(app))


@pytest.mark.parametrize(("key", "sheet"), [("i", "sheet-info"), ("question_mark", "sheet-help")])
@on_shell()
async def test_key_that_opened_a_sheet_closes_it(app, pilot, key, sheet):
    await pilot.press(key)
    await until(pilot, lambda: app.switcher.sheet == sheet)
    await pilot.press(key)
    await until(pilot, lambda: not app.switcher.sheet)
    await pilot.press("i", "question_mark")
    await until(pilot, lambda: app.switcher.sheet == "sheet-help")
    await pilot.press("slash", key)
    await until(pilot, lambda: app.query_one("#sheet-help Input").value)
    assert app.switcher.sheet == "sheet-help"


def test_command_of_a_hidden_pane_works_only_if_it_is_declared_for_all_screens(tmp_path, monkeypatch):
    def commands(pane):
        return [Command("here", "x", pane.noted.append), Command("anywhere", "x", pane.noted.append, is_everywhere=True)]

    probe = import_module("tui.fake_panes").JobsProbe
    monkeypatch.setattr(probe, "commands", commands)
    monkeypatch.setattr(probe, "command_names", ("here", "never"))

    async def say(app, pilot, _session):
        jobs = app.pane
        await pilot.press("2")
        await until(pilot, lambda: app.pane.name_of_pane == "assets")
        await pilot.press("colon", *"anywhere x", "enter")
        await until(pilot, lambda: "x" in jobs.noted)
        await pilot.press("colon", *"here y", "enter")
        await until(pilot, lambda: "':here' works only on the screen Jobs; press 1 to go there" in text(app))
        await pilot.press("1")
        await until(pilot, lambda: app.pane is jobs)
        await pilot.press("colon", *"never", "enter")
        await until(pilot, lambda: "':never' cannot run now" in text(app))

    in_shell(tmp_path, say)


def test_completion_has_commands_and_arguments():
    commands = [Command("theme", "choose", print, lambda: ("dark", "light")), Command("stop", "x", print)]

    assert completions("th", commands) == [("theme", "choose")]
    assert completions("theme l", commands) == [("theme light", "")]
    assert completions("stop ", commands) == []
    assert completions("nothing x", commands) == []


@on_shell()
async def test_pause_key_pauses_a_running_queue_and_opens_a_menu_for_a_paused_queue(app, pilot, session):
    await pilot.press("P")
    session.latest_health = Health(is_paused=True)
    await pilot.press("P", "n", "P", "r", "P", "s", "P", "z", "escape")

    await until(pilot, lambda: session.asked == [PauseJobs(), RunNext(), ResumeJobs()])
    await until(pilot, lambda: app.focused.id == "pane-jobs-one")


@on_shell()
async def test_key_without_an_action_is_reported_once(app, pilot):
    toasts = app.query_one(Toasts)
    await pilot.press("K", "K", "f5", "slash", "question_mark", "Z", "K")
    await until(pilot, lambda: len(toasts.remembered) == 2)
    assert [words for _, words, _ in toasts.remembered] == [f"'{key}' does nothing here; '?' shows the keys" for key in "KZ"]


def test_q_quits_and_the_engine_keeps_running(tmp_path):
    session = FakeSession(tmp_path / "cache")

    async def press(app, pilot, _session):
        await pilot.press("q")

    app = in_shell(tmp_path, press, session=session)
    assert session.asked == []
    assert "close" in session.done
    assert UiMemory(tmp_path / "project.json").get("probe.left", False)
    assert app.return_code == 0


@on_shell(session=busy)
async def test_stop_command_for_the_engine_asks_for_a_confirmation(app, pilot, session):
    await pilot.press("Q")
    await until(pilot, lambda: "stop the engine? 12 jobs are running" in text(app))
    await pilot.press("n")
    assert session.asked == []
    await pilot.press("Q", "w", "Q", "y")
    await until(pilot, lambda: session.asked == [StopEngine(is_when_idle=True), StopEngine()])


@on_shell(session=session_with(refusal="the engine is [bold]busy"))
async def test_refused_request_is_shown_with_its_reason(app, pilot):
    await pilot.press("P")
    await until(pilot, lambda: "✗ the engine is [bold]busy" in text(app))
    await pilot.press("colon", *"messages", "enter")
    await until(pilot, lambda: "the engine is [bold]busy" in text(app))


def test_commands_for_the_engine_are_hidden_without_an_engine(tmp_path):
    session = NoSession("copied", tmp_path)
    session.done = ["open"]

    async def press(app, pilot, _session):
        await pilot.press("P", "Q")
        await until(pilot, lambda: "○ read only" in lines(app)[0])
        assert "stop the engine" not in lines(app)[-1]
        assert not [each for each in app.commands() if each.needs_engine]

    in_shell(tmp_path, press, session=session)


@on_shell()
async def test_lost_and_restored_connection_are_shown(app, pilot, session):
    session.turn(SessionState.REATTACHING, "the connection to the engine has ended")
    await until(pilot, lambda: "disconnected since" in lines(app)[2] + lines(app)[3])
    await until(pilot, lambda: "✗ disconnected" in lines(app)[0])
    assert "jobs row 1" in text(app)
    session.turn(SessionState.ATTACHED)
    await until(pilot, lambda: "connected to the engine again, pid 4711" in text(app))
    await until(pilot, lambda: "disconnected" not in text(app))


@on_shell(session=session_with(engine=EngineFacts(12, "0.0.9")))
async def test_older_engine_is_shown_in_the_banner_without_a_question(app, pilot, session):
    await until(pilot, lambda: "the engine has an older version (aptui 0.0.9)" in text(app))
    await pilot.press("w", "y")
    assert not [each for each in session.done if each[0] == "restart"]
    await pilot.press("colon", *"restart", "enter")
    await until(pilot, lambda: ("restart", True) in session.done)


@on_shell(session=session_with(state=SessionState.DETACHED))
async def test_restart_without_a_running_engine_starts_one(app, pilot, session):
    await pilot.press("colon", *"restart", "enter")
    await until(pilot, lambda: "no engine is running; one starts now" in text(app))
    assert "start" in session.done
    assert not [each for each in session.done if each[0] == "restart"]


def test_banner_cuts_a_long_path_in_its_middle_so_that_the_remedy_is_visible(tmp_path):
    session = FakeSession(tmp_path / "cache", SessionState.DETACHED)
    path = f"/work/{'long-name-of-a-project/' * 4}Cache/assetdb.sqlite"
    session.trouble = (
        f"the asset database '{path}' has version 99, newer than 40, the latest supported version; use the newer program"
    )

    async def script(app, pilot, _session):
        await until(pilot, lambda: "use the newer program" in " ".join(text(app).split()))
        assert "assetdb.sqlite' has version 99" in " ".join(text(app).split())
        assert len([line for line in lines(app)[3:6] if line.strip()]) == 3

    in_shell(tmp_path, script, session=session, size=SMALL)


def test_ctrl_c_copies_or_quits_at_the_second_press(tmp_path):
    async def press(app, pilot, _session):
        await pilot.press("ctrl+c")
        await until(pilot, lambda: "press 'q' or ^C again to quit" in text(app))
        assert app.is_running
        await pilot.press("ctrl+c")

    assert in_shell(tmp_path, press).return_code == 0


@on_shell()
async def test_message_after_copying_has_first_line_and_line_count(app, pilot):
    app.copying.copy("Line = 299\nWord = airship\nPlace = here\n")
    await until(pilot, lambda: "copied Line = 299 and 2 lines more · " in text(app))


@on_shell(size=SMALL)
async def test_message_after_copying_is_one_line_at_80_columns(app, pilot):
    app.copying.copy("/home/ada/games/lantern/assets/textures/ground/stone_rough_01.png\nand so on\n")
    await until(pilot, lambda: "copied /home" in text(app))
    assert next(line for line in text(app).split("\n") if "copied /home" in line).count(" · ") > 0
    assert len(app.query_one(Toasts)._shown) == 1


@on_shell(size=SMALL)
async def test_message_that_is_too_long_ends_with_an_ellipsis(app, pilot):
    app.show_toast("the folder of the shared cache cannot be used " * 12, "error")

    await until(pilot, lambda: "cannot be used" in text(app))
    shown = [words for _, words, _ in app.query_one(Toasts)._shown]
    assert [words.endswith("…") for words in shown] == [False, False, True]


@on_shell(size=SMALL)
async def test_message_with_wide_characters_is_wrapped_at_the_width_of_the_screen(app, pilot):
    app.show_toast("岩" * 80, "error")

    await until(pilot, lambda: "岩" in text(app))
    assert sum(line.count("岩") for line in lines(app)) == 80


@on_shell()
async def test_message_with_a_changing_number_keeps_its_place(app, pilot):
    toasts = app.query_one(Toasts)
    places = []
    for count in (7, 120, 9):
        app.show_toast(f"fixed: {count} sources")
        await pilot.pause()
        places.append((toasts.region.x, toasts.region.width))
    assert places[0] != places[1] == places[2]


@on_shell()
async def test_redraw_key_refreshes_the_pane_and_a_missing_scrollback_is_reported(app, pilot):
    await pilot.press("ctrl+l", "backslash")
    await until(pilot, lambda: "refreshed" in app.pane.noted)
    await until(pilot, lambda: "no scrollback" in text(app))


@on_shell()
async def test_palette_offers_commands_and_keys(app, pilot):
    await pilot.press("ctrl+p")
    await until(pilot, lambda: "filter  /" in text(app))
    assert "probe.filter" not in text(app)
    await pilot.press(*"probe alpha")
    await until(pilot, lambda: ":probe alpha  note an argument" in text(app))
    await pilot.pause(0.2)
    await pilot.press("enter", "enter")
    await until(pilot, lambda: "alpha" in app.pane.noted)


def test_help_is_not_cut_at_80_columns():
    keymap = load_keymap()
    active = {
        f"f{at}": ActiveBinding(Screen(), Binding(f"f{at}", "note", action.does, id=name), enabled=True, tooltip="")
        for at, (name, action) in enumerate(keymap.actions.items())
    }

    entries = help_lines(active, keymap, (), "here", 78)
    lines = ["".join(part.text for part in parts) for parts in break_entries(entries)]
    words = " ".join(" ".join(lines).split())

    assert max(map(len, lines)) <= 78
    assert len(keymap.actions) > 100
    assert [action.does for action in keymap.actions.values() if action.does not in words] == []
    assert [does for _text, does in (*FILTER, *SIGNS) if does not in words] == []


@pytest.mark.parametrize(("width", "has_two"), [(119, False), (120, True), (140, True)])
def test_help_has_two_columns_on_a_wide_screen_and_enter_runs_lines_of_both(tmp_path, width, has_two):
    async def press(app, pilot, _session):
        await pilot.press("question_mark")
        rows = app.query_one("#sheet-help Lines", Lines)
        await until(pilot, lambda: rows.size.height and (rows.virtual_size.height < len(rows._lines)) is has_two)
        assert not rows.show_horizontal_scrollbar
        await pilot.press("G")
        await until(pilot, lambda: any("continuation of the line above" in line[width // 2 * has_two :] for line in lines(app)))
        starts = ["".join(part.text for part in rows.line(at)).split()[:1] for at in range(len(rows._lines))]
        for start in ("i", ":info"):
            rows.action_go(starts.index([start]) - rows.at)
            await until(pilot, lambda start=start: any(f" {start}  " in line for line in lines(app)))
        await pilot.press("enter")
        await until(pilot, lambda: app.query_one(CommandLine).display)

    in_shell(tmp_path, press, size=(width, 24))


def test_help_omits_bindings_of_textual_and_capitalises_headings():
    active = {
        "ctrl+pageup": ActiveBinding(Screen(), Binding("ctrl+pageup", "page_left", "Page Left"), enabled=True, tooltip=""),
        "r": ActiveBinding(Screen(), Binding("r", "note", "reprocess", id="probe.reprocess"), enabled=True, tooltip=""),
    }

    text = "".join(part.text for parts in help_lines(active, Keymap(), (), "here") for part in parts)

    assert " Here" in text
    assert " Commands" in text
    assert "reprocess" in text
    assert "Page Left" not in text


@on_shell()
async def test_key_tester_shows_keys_without_running_actions(app, pilot):
    await pilot.press("colon", *"keys", "enter")
    await pilot.press("r", "q", "ctrl+t")
    await until(pilot, lambda: "probe.reprocess" in text(app))
    await until(pilot, lambda: "app.quit" in text(app))
    await until(pilot, lambda: "ctrl+t" in text(app))
    assert "reprocess" not in app.pane.noted
    await pilot.press("escape", "escape")
    await until(pilot, lambda: app.focused.id == "pane-jobs-one")


def test_mouse_setting_is_remembered(tmp_path):
    async def press(app, pilot, _session):
        await pilot.press("M")
        await until(pilot, lambda: "the mouse is off" in text(app))

    in_shell(tmp_path, press)
    assert UiMemory(tmp_path / "person.json").get("mouse", True) is False


def test_pixels_setting_is_remembered_even_if_the_terminal_has_no_pixels(tmp_path):
    async def press(app, pilot, _session):
        await pilot.press("%")
        await until(pilot, lambda: "this terminal supports neither" in text(app))
        assert app.person.get("pixels", False) is True
        await pilot.press("%")
        await until(pilot, lambda: "pictures are drawn with blocks" in text(app))
        await pilot.press("%")

    in_shell(tmp_path, press)
    assert UiMemory(tmp_path / "person.json").get("pixels", False) is True


@pytest.mark.parametrize("event", [events.Resize(Size(90, 24), Size(90, 24)), events.AppFocus()])
def test_tmux_is_asked_for_pixels_again_after_a_change_of_size_or_focus(tmp_path, monkeypatch, event):
    monkeypatch.setattr(tui_app, "_PIXELS_AFTER_S", 0.01)
    asked = []

    async def change(app, pilot, _session):
        monkeypatch.setattr(app.terminal, "ask_for_pixels", lambda: asked.append(event))
        app.post_message(event)
        await pilot.pause(0.1)
        assert not asked, "the terminal is not inside tmux"
        monkeypatch.setattr(tui_app.safety, "facts", lambda: TerminalFacts(multiplexer="tmux"))
        app.post_message(event)
        await pilot.pause(0.1)
        assert not asked, "the user does not want pixels"
        app.person.put("pixels", True)
        app.post_message(event)
        await until(pilot, lambda: asked)

    in_shell(tmp_path, change)


@on_shell()
async def test_click_on_a_tab_or_hint_runs_its_action(app, pilot):
    await pilot.click("#tabs", offset=(lines(app)[1].index("Assets"), 0))
    await until(pilot, lambda: app.pane.name_of_pane == "assets")
    await pilot.click("#hints", offset=(lines(app)[-1].index("reprocess"), 0))
    await until(pilot, lambda: "reprocess" in app.pane.noted)


def test_current_tab_of_the_screen_is_remembered(tmp_path):
    async def go(app, pilot, _session):
        await pilot.press("3")

    async def script(app, _pilot, _session):
        assert app.pane.name_of_pane == "logs"

    in_shell(tmp_path, go)
    in_shell(tmp_path, script)


@on_shell()
async def test_lines_of_a_sheet_scroll_with_the_cursor(app, pilot):
    rows = app.query_one("#pane-jobs-one", Lines)
    await pilot.press("G", "k", "pageup", "j", "home", "down", "end")
    await until(pilot, lambda: rows.at == 49)
    await until(pilot, lambda: "jobs row 49" in text(app))


@on_shell()
async def test_palette_closes_an_open_question(app, pilot, session):
    await pilot.press("Q")
    await until(pilot, lambda: "stop the engine?" in text(app))
    await pilot.press("ctrl+p")
    await until(pilot, lambda: type(app.screen).__name__ == "Palette")
    await pilot.press("escape")
    await until(pilot, lambda: type(app.screen).__name__ != "Palette")
    await until(pilot, lambda: "stop the engine?" not in text(app))
    await pilot.press("y", "k", "enter")
    assert StopEngine() not in session.asked


@on_shell()
async def test_hints_below_the_palette_name_the_keys_of_the_palette(app, pilot):
    hints = app.screen.query_one("#hints")
    await until(pilot, lambda: "palette" in hints.render_line(0).text)
    await pilot.press("ctrl+p")
    await until(pilot, lambda: hints.render_line(0).text.split() == ["⏎", "choose", "Esc", "close"])
    await pilot.press("escape")
    await until(pilot, lambda: "palette" in hints.render_line(0).text)


@on_shell()
async def test_closing_the_palette_twice_leaves_the_screen_open(app, pilot):
    await pilot.press("ctrl+p")
    await until(pilot, lambda: type(app.screen).__name__ == "Palette")
    palette = app.screen
    palette.dismiss()
    palette.dismiss()
    await until(pilot, lambda: app.screen is not palette)
    await until(pilot, lambda: "jobs row 1" in text(app))


@on_shell(size=SMALL)
async def test_sheet_of_messages_shows_a_long_message_whole(app, pilot):
    words = " ".join(f"word_{number}" for number in range(100))
    app.show_toast(words, "error")
    app.sheets.action_messages()
    await until(pilot, lambda: "word_99" in text(app))
    assert all(f"word_{number}" in text(app) for number in range(100))


def test_pane_that_cannot_be_loaded_is_reported_and_the_screen_goes_on(tmp_path):
    broken = PaneSpec("broken", 8, "Broken", "Broken", "no_such_package:Pane")

    async def visit(app, pilot, _session):
        await pilot.press("8")
        await until(pilot, lambda: "the screen Broken cannot be loaded" in text(app))
        await pilot.press("colon", *"nothing", "enter")
        await until(pilot, lambda: "unknown command 'nothing'" in text(app))
        assert app.pane is app.switcher.mounted["jobs"]

    in_shell(tmp_path, visit, panes=[*PROBES, broken])
