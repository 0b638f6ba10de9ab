"""The Jobs screen: each of its keys, over a real database, real logs and a fake engine."""

from __future__ import annotations

import re

import pytest

from aptui.store import joblog
from tests.store.conftest import job_row
from tests.tui.jobs_harness import LOG, NOW_MS, fill, in_jobs, notice
from tests.tui.shell_harness import SMALL, layouts_of, lines, text, until

from .jobs_pane_harness import details_of, on_jobs, sees, settled

pytestmark = pytest.mark.real


@on_jobs()
async def test_jobs_screen_shows_the_log_and_the_details_of_the_first_error(app, pilot, pane):
    await details_of(pilot, pane, 1)
    await sees(
        pilot,
        app,
        "7 jobs   failed first",
        "▌✗ failed       textures/rock_01.png",
        "! 1 warning    textures/sand.png",
        "· pending",
        "Event log · textures/rock_01.png · linux · Image Compile · run 1 of 2",
        "✗ Error    Image Compile  ≡ Unexpected end of data",
        "Details of this line",
        "Offset  0x0012F3A0",
    )
    await until(pilot, lambda: app.focused is pane.table)

    await pilot.press("j", "j", "j")  # The cursor moves past the other failed job and the failed analysis.
    await details_of(pilot, pane, 3)
    await sees(pilot, app, "sand is warm")
    await until(pilot, lambda: "Heat" in text(app))  # the log has no error, so the cursor is on its first warning


@on_jobs()
async def test_log_line_without_details_shows_facts_about_the_job(app, pilot, pane):
    await details_of(pilot, pane, 1)
    await sees(pilot, app, "── Details of this line ──", "Offset  0x0012F3A0")
    await pilot.press("tab", "g")
    await sees(pilot, app, "── About this job ──", "Ran because  the source changed", "Error        IDAT chunk is broken")
    assert "Details of this line" not in text(app)
    head = next(at for at, line in enumerate(lines(app)) if "Event log" in line)
    assert lines(app)[head + 1].startswith("▌")  # the cursor was drawn at its new line, although lines are wrapped


@on_jobs()
async def test_enter_goes_to_first_error_and_escape_returns(app, pilot, pane):
    await pilot.press("enter")
    await until(pilot, lambda: app.focused is pane.event_log.log_pane and pane.event_log.log_pane.current())
    await until(pilot, lambda: pane.event_log.log_pane.current().text.startswith("Unexpected end"))
    await pilot.press("enter")
    await until(pilot, lambda: app.focused is pane.event_log.details)
    await pilot.press("escape")
    await until(pilot, lambda: app.focused is pane.event_log.log_pane)
    await pilot.press("e")
    await until(pilot, lambda: pane.event_log.log_pane.current().text == "giving up")
    await pilot.press("escape")
    await until(pilot, lambda: app.focused is pane.table)


def test_tab_visits_the_parts_and_zoom_hides_other_parts_on_a_small_screen(tmp_path):
    async def walk(app, pilot, pane):
        log = pane.event_log
        assert log.log_pane.display
        assert not log.details.display
        await pilot.press("tab")
        await until(pilot, lambda: app.focused is log.log_pane)
        await pilot.press("tab")
        await until(pilot, lambda: app.focused is log.details)
        await until(pilot, lambda: not log.log_pane.display)
        await sees(pilot, app, "Offset")
        await pilot.press("z")
        await pilot.pause()
        await until(pilot, lambda: not pane.query_one("#jobs-upper").display)
        await pilot.press("shift+tab")
        await pilot.pause()
        await until(pilot, lambda: log.log_pane.display)
        await until(pilot, lambda: log.log_pane.size.height > 12)
        await pilot.press("tab", "tab")
        await pilot.pause()
        await until(pilot, lambda: app.focused is pane.table)
        await until(pilot, lambda: not log.display)
        await pilot.press("escape")
        await pilot.pause()
        await until(pilot, lambda: log.display)
        height = log.size.height
        await pilot.press("less_than_sign", "less_than_sign")
        await pilot.pause()
        await until(pilot, lambda: log.size.height > height)
        assert all(len(line) <= 80 for line in lines(app))

    app = in_jobs(tmp_path, walk, size=SMALL)
    drawn = 100 * (24 - 5 - 2 - 7) // (24 - 5)  # initial height of the log (percent), when the table has seven rows
    assert app.memory.get("jobs.split", 0) == drawn + 16


@pytest.mark.parametrize("size", [(20, 6), (40, 9), (200, 70)])
@on_jobs()
async def test_jobs_screen_is_usable_at_any_size(app, pilot, pane, size):
    await pilot.press("enter", "tab", "escape", "z", "z", "f", "escape", "slash", "x", "enter", "full_stop", "escape")
    await pilot.resize_terminal(80, 24)
    await settled(pilot, pane)

    await sees(pilot, app, "x.lua")


@on_jobs()
async def test_brace_keys_step_through_the_runs_of_a_job(app, pilot, pane):
    await details_of(pilot, pane, 1, 9)
    await pilot.press("left_curly_bracket")
    await details_of(pilot, pane, 1, 7)
    await sees(pilot, app, "run 2 of 2")
    await sees(pilot, app, "the run before")
    await pilot.press("left_curly_bracket")
    await until(pilot, lambda: "there is no earlier stored run" in text(app))
    await pilot.press("right_curly_bracket")
    await details_of(pilot, pane, 1, 9)


@on_jobs()
async def test_empty_details_have_no_title(app, pilot, pane):
    await sees(pilot, app, "Details of this line")
    pane.choices.filter_by("there-is-none-of-this-name")
    await sees(pilot, app, "no job is selected")
    await until(pilot, lambda: "Details of this line" not in text(app))
    assert not {"Value", "About this job"} & set(re.split(r"  +", text(app)))
    head = next(line for line in lines(app) if "Event log" in line)
    assert re.fullmatch(" ─+ Event log ─+ *", head)  # the line has the title of the log, but no title of the details


@on_jobs()
async def test_event_log_can_be_searched_and_filtered_by_level(app, pilot, pane):
    log = pane.event_log
    await pilot.press("enter")
    await details_of(pilot, pane, 1)
    await pilot.press("slash", *"open|giving")
    await until(pilot, lambda: "2 hits" in text(app))
    await pilot.press("enter", "n")
    await until(pilot, lambda: log.log_pane.current().text == "giving up")
    await pilot.press("N")
    await until(pilot, lambda: log.log_pane.current().text.startswith("Opening"))
    await pilot.press("ampersand")
    await until(pilot, lambda: log.log_pane.count_rows() == 2)
    await pilot.press("ampersand", "escape")
    await until(pilot, lambda: log.log_pane.count_rows() == 7)
    await until(pilot, lambda: app.focused is log.log_pane)
    await pilot.press("L", "d", "i", "escape")
    await until(pilot, lambda: log.log_pane.count_rows() == 3)
    await sees(pilot, app, "without infos and debug lines")
    await pilot.press("slash", "(")
    await until(pilot, lambda: "^" in text(app))
    await pilot.press("escape", "escape", "escape")
    await until(pilot, lambda: app.focused is pane.table)


def test_log_is_read_again_after_a_run_even_before_the_new_row_is_stored(tmp_path):
    async def run(app, pilot, pane):
        pane.table.move_to_key(3)
        await details_of(pilot, pane, 3)
        app.session.say(notice(3, "processing"), 2)
        await until(pilot, lambda: "▶ processing" in text(app) and "▶ running" in text(app))
        assert pane.table.cursor_key == 3
        joblog.write(tmp_path / "logs/JobLogs/sand-2.log", (LOG[3],), 0, 1)
        app.session.say(notice(3, "failed", run_key=77, error="hot"), 3)
        await until(pilot, lambda: pane.store.info(3).status == "failed")
        row = job_row(3, 2, run_key=77, state="failed", status=2, completed_ms=NOW_MS, last_log="JobLogs/sand-2.log", error="hot")
        pane.test_store.put(put_job=[row])
        await until(pilot, lambda: pane.event_log.job_details.row.run_key == 77)
        await pilot.pause()
        await sees(pilot, app, "Unexpected end of data")
        assert pane.table.cursor_key == 3

    def keep(store, log_dir):
        fill(store, log_dir)
        from aptui.tui.screens.jobs.jobs_pane import JobsPane

        JobsPane.test_store = store

    in_jobs(tmp_path, run, filler=keep)


@on_jobs(running=(3,))
async def test_jobs_are_not_shown_as_running_after_the_connection_is_lost(app, pilot, pane):
    pane.choices.filter_by("sand")
    await until(pilot, lambda: pane.table.cursor_key == 3 and "▶ processing" in text(app) and "▶ running" in text(app))
    for listener in app.session.listeners:
        listener.note_loss()
    await until(pilot, lambda: "▶ processing" not in text(app) and "▶ running" not in text(app))


@on_jobs()
async def test_cursor_moves_and_notices_cause_no_layout_of_the_screen(app, pilot, pane):
    await details_of(pilot, pane, pane.table.cursor_key)
    await pilot.pause(0.3)
    layouts = layouts_of(app)
    await pilot.press("j", "j", "k")
    await details_of(pilot, pane, pane.table.cursor_key)
    app.session.say(notice(3, "processing"), 2)
    await until(pilot, lambda: "▶ processing" in text(app))
    app.session.say(notice(3, "failed"), 3)
    await until(pilot, lambda: pane.store.info(3).status == "failed")
    await pilot.pause(0.3)
    assert layouts == []


@on_jobs()
async def test_durations_are_updated_only_while_jobs_run(app, pilot, pane):
    await pilot.pause(0.3)
    drawn: list[object] = []
    app._display = lambda *arguments: drawn.append(arguments)
    await pilot.pause(0.3)
    assert drawn == []
    app.session.say(notice(3, "processing"), 2)
    await until(pilot, lambda: pane.changes.ticks)
    app.session.say(notice(3, "completed"), 3)
    await until(pilot, lambda: not pane.changes.ticks)
    drawn.clear()
    await pilot.pause(0.2)
    assert drawn == []


@on_jobs()
async def test_untrusted_text_is_shown_without_escape_sequences_and_markup(app, pilot, pane):
    pane.table.move_to_key(6)
    await details_of(pilot, pane, 6)
    await pilot.press("x")
    await until(pilot, lambda: "it last ran because" in text(app))
    assert "\x1b" not in text(app)
    await pilot.press("escape", "full_stop")
    # The log file of this job does not exist.
    await sees(pilot, app, "[/oops] [red]x[/red]", "textures/bad\\xe9name.png", "the log 'gone.log' no longer exists")
    assert "\x1b" not in text(app)
    await pilot.press("escape")
    pane.table.move_to_key(1)
    await details_of(pilot, pane, 1)
    await sees(pilot, app, "[/oops] [red]x[/red]")
    pane.table.move_to_key(5)
    await details_of(pilot, pane, 5)
    await sees(pilot, app, "textures/bad\\xe9name.png · linux")
    assert "\x1b" not in text(app)
    assert "EVIL" not in text(app)
