"""Rows are sorted only while the user presses no key or button; the first row stays at the top. Keys act on the displayed rows."""

from __future__ import annotations

import asyncio
import random
import threading

import pytest
from textual import events
from textual.keys import _character_to_key
from waiting import Clock

from aptui.core.notices import Progress
from aptui.tui.data.feed import Batch, JobNews
from aptui.tui.screens.jobs import selection
from aptui.tui.screens.jobs.jobs_table import RunningStrip
from aptui.tui.screens.jobs.selection import Resting
from aptui.tui.terminal import driver

from ...jobs_harness import NOW_MS, in_jobs, notice
from ...shell_harness import text, until
from .jobs_pane_harness import many, on_jobs


def test_rows_are_not_sorted_during_input_or_just_after_a_sort() -> None:
    clock = Clock(100.0)
    rest = Resting(clock)

    assert rest.due_in(touched_s=100.0, row_count=10) == pytest.approx(selection.HOLD_S)
    assert rest.due_in(touched_s=90.0, row_count=10) <= 0
    rest.note_sorted()
    assert rest.due_in(touched_s=90.0, row_count=10) == pytest.approx(selection.AGAIN_S, abs=0.01)
    assert rest.due_in(touched_s=90.0, row_count=1_000_000) > selection.AGAIN_S + 1
    assert selection.HOLD_S + selection.AGAIN_S < 2


def test_changed_row_under_the_cursor_is_marked_for_less_than_a_second() -> None:
    clock = Clock(100.0)
    rest = Resting(clock)

    rest.note_cursor(touched_s=99.9)
    assert not rest.has_just_flipped
    rest.note_cursor(touched_s=90.0)
    assert rest.has_just_flipped
    clock.now += 1
    assert not rest.has_just_flipped


def news(job_id: int, status: str, **changes: object) -> Batch:
    return Batch(jobs=(JobNews(notice(job_id, status, **changes), is_later=True, received_ms=NOW_MS),))


async def newest_first(pilot, pane):
    """Sort the jobs by their end time, and put the cursor on the first job."""
    pane.choices._run_sort_command("completed")
    await pilot.press("home")
    await until(pilot, lambda: pane.table.cursor == 0 and pane.store.sort[0] == "completed")


def test_changed_rows_are_sorted_after_a_delay_and_a_cursor_at_the_top_stays_there(tmp_path, monkeypatch):
    monkeypatch.setattr(selection, "HOLD_S", 0.3)

    async def change(app, pilot, pane):
        await newest_first(pilot, pane)
        before = pane.table.cursor_key
        assert pane.table.cursor == 0
        pane.store.apply(news(3, "completed", completed_ms=NOW_MS + 5000))
        app.wake()
        await until(pilot, lambda: pane.store.keys(0, 1) == [3])
        await until(pilot, lambda: (pane.table.cursor, pane.table.cursor_key) == (0, 3))
        await pilot.press("j")
        assert pane.table.cursor_key == before
        pane.store.apply(news(4, "completed", completed_ms=NOW_MS + 9000))
        app.wake()
        await until(pilot, lambda: pane.store.keys(0, 1) == [4])
        await until(pilot, lambda: pane.table.cursor_key == before and pane.table.cursor == 2)
        assert not pane.store.is_out_of_order

    in_jobs(tmp_path, change)


def test_rows_are_not_sorted_while_a_menu_is_open(tmp_path, monkeypatch):
    monkeypatch.setattr(selection, "HOLD_S", 0.0)
    monkeypatch.setattr(selection, "_CHECK_S", 0.01)

    async def change(app, pilot, pane):
        await newest_first(pilot, pane)
        await pilot.press("full_stop")
        await until(pilot, lambda: "Run again" in text(app))
        pane.store.apply(news(3, "completed", completed_ms=NOW_MS + 5000))
        app.wake()
        await pilot.pause(0.1)
        assert pane.store.is_out_of_order
        assert pane.store.keys(0, 1) != [3]
        await pilot.press("escape")
        await until(pilot, lambda: pane.store.keys(0, 1) == [3])

    monkeypatch.setattr(selection, "AGAIN_S", 0.0)
    in_jobs(tmp_path, change)


@on_jobs()
async def test_cursor_stays_on_its_failure_and_running_jobs_are_shown_in_a_strip(app, pilot, pane):
    session, strip = app.session, pane.query_one(RunningStrip)
    assert not strip.display
    session.latest_progress = Progress(1, 10, 0, 0, 5, 2, 40, 1, is_scanning=False)
    session.say(notice(5, "failed", source="x.lua", completed_ms=NOW_MS + 5000), 2)  # A newer failure is inserted above the row.
    await until(pilot, lambda: pane.store.keys(0, 1) == [5])
    await until(pilot, lambda: pane.table.cursor_key == 1)
    assert not strip.display, "no running job is known yet"
    session.say(notice(3, "processing"), 3)
    session.say(notice(4, "processing", source="meshes/rock.fbx"), 4)
    await until(pilot, lambda: "▶ textures/sand.png" in text(app) and "▶ meshes/rock.fbx" in text(app))
    assert strip.size.height == 1, "the strip shows both running jobs in one line"
    session.say(notice(3, "completed"), 5)
    await until(pilot, lambda: "▶ textures/sand.png" not in text(app))
    assert text(app).index("▶ meshes/rock.fbx") > 0
    session.latest_progress = Progress(1, 10, 0, 0, 0, 0, 47, 1, is_scanning=False)
    session.say(notice(4, "completed", source="meshes/rock.fbx"), 6)
    await until(pilot, lambda: not strip.display)


@on_jobs(filler=many)
async def test_newer_failures_are_visible_above_the_cursor_until_it_moves(app, pilot, pane):
    def fail(job_id: int) -> None:
        app.session.say(notice(job_id, "failed", source=f"many/{job_id}.png", completed_ms=NOW_MS + job_id * 1000), job_id)

    fail(105)
    await until(pilot, lambda: pane.store.keys(0, 2) == [105, 1])
    await until(pilot, lambda: pane.table.cursor == 1)
    assert (pane.table.cursor_key, pane.table.top) == (1, 0)
    assert "above" not in text(app)
    await pilot.press("j", "k")
    fail(106)
    await until(pilot, lambda: pane.store.keys(0, 3) == [106, 105, 1])
    await until(pilot, lambda: pane.table.cursor == 2)
    assert (pane.table.cursor_key, pane.table.top) == (1, 1)  # the cursor keeps its line
    await until(pilot, lambda: "↑ 1 failed above" in text(app))
    await pilot.press("G")
    await until(pilot, lambda: "↑ 5 failed above" in text(app))
    await pilot.press("g")
    await until(pilot, lambda: "above" not in text(app))


@on_jobs()
async def test_details_of_the_previous_job_are_replaced_when_a_job_is_selected(app, pilot, pane):
    await newest_first(pilot, pane)
    await until(pilot, lambda: pane.event_log.has_details)
    pane.table.move_to_key(5)  # the log of job 5 is empty
    await until(pilot, lambda: pane.event_log.job_details.info.key == 5 and not pane.event_log.is_reading)
    await until(pilot, lambda: "About this job" in text(app) and "IDAT" not in text(app).partition("Event log")[2])


@on_jobs()
async def test_help_opened_over_a_menu_receives_the_keys_and_closes_with_escape(app, pilot, pane):
    await pilot.press("full_stop", "2", "z")
    assert pane.table.display
    await until(pilot, lambda: "Run again" in text(app))
    await pilot.press("question_mark")
    await until(pilot, lambda: "to search the help" in text(app))
    await pilot.press("r", "c")
    await until(pilot, lambda: app.focused is not None and app.focused.query_ancestor("#sheet-help"))
    await pilot.press("escape", "escape")
    await until(pilot, lambda: app.focused is pane.table)
    assert app.session.asked == []


@on_jobs()
async def test_keys_wait_while_rows_or_filter_or_log_are_not_ready(app, pilot, pane):
    assert pane.name_awaited(pane.table) == ""
    pane.store._number += 1  # The rows for the filter are being computed.
    assert pane.name_awaited(pane.table) == "the filter"
    assert pane.name_awaited(pane.box._line) == ""
    pane.store._number -= 1
    pane.actions.run("why")
    assert pane.name_awaited(pane.table) == "the sheet"
    await until(pilot, lambda: pane.name_awaited(pane.table) == "")
    await pilot.press("escape")
    may_answer = threading.Event()
    pane.actions.query(lambda _reader: may_answer.wait(), lambda _answer: None)
    assert (app.keyboard.name_awaited("r"), app.keyboard.name_awaited("q")) == ("the answer", "")
    may_answer.set()
    await until(pilot, lambda: app.keyboard.name_awaited("r") == "")
    pane.event_log.info = pane.store.info(3)
    assert pane.name_awaited(pane.event_log.log_pane) == "the log"
    pane.store.is_loaded = False
    assert pane.name_awaited(pane.table) == "the first rows"
    assert app.keyboard.name_awaited("j") == "the first rows"
    assert [app.keyboard.name_awaited(key) for key in ("ctrl+c", "q")] == ["", ""], "Ctrl+C and `q` quit without waiting"
    pane.store.is_loaded = True
    pane.name_awaited = lambda _focused: "the sheet"
    assert app.keyboard.name_awaited("q") == "the sheet", "`q` waits until the sheet is open, because `q` closes the sheet"
    del pane.name_awaited


@on_jobs()
async def test_keys_that_are_typed_early_wait_for_the_first_rows(app, pilot, pane):
    async def type_all() -> None:
        for letter in "/frozen":  # Outside the filter, f opens the causes and r runs a job again.
            await driver._handle(app, events.Key(_character_to_key(letter), letter))

    pane.store.is_loaded = False
    typist = asyncio.ensure_future(type_all())
    await pilot.pause(0.1)
    assert (app.focused, pane.box.text, pane.shows_causes) == (pane.table, "", False)
    pane.store.is_loaded = True
    await typist
    await until(pilot, lambda: pane.box.text == "frozen")
    assert not pane.shows_causes
    assert app.session.asked == []


@pytest.mark.parametrize("seed", [1, 2])
def test_screen_matches_model_after_any_keys_and_notices(tmp_path, monkeypatch, seed):
    monkeypatch.setattr(selection, "HOLD_S", 0.2)
    chance = random.Random(seed)
    keys = ("j", "k", "g", "G", "enter", "escape", "e", "tab", "f", "z", "space", "u", "slash", "question_mark", "S", "s", "R")

    async def play(app, pilot, pane):
        for _ in range(40):
            await pilot.press(chance.choice(keys))
            if chance.random() < 0.4:
                status = chance.choice(("processing", "completed", "failed", "cancelled", "pending"))
                pane.store.apply(news(chance.randint(1, 6), status, completed_ms=NOW_MS + chance.randint(1, 99) * 1000))
                app.wake()
        await pilot.press("escape", "escape", "escape", "escape", "1")
        pane.choices.filter_by("!cancelled")
        pane.store.set_sort("completed", is_descending=True)
        pane.table.focus()
        pane.table.action_unmark()
        app.wake()
        await until(pilot, lambda: pane.store.is_loaded and not pane.store.is_out_of_order and not pane.store.is_busy)

        store = pane.store
        infos = [store.info(key) for key in store.keys(0, store.row_count())]
        assert all(info.status != "cancelled" for info in infos)
        ends = [{"processing": 1 << 60, "pending": 0}.get(info.status, info.completed_ms) for info in infos]
        assert ends == sorted(ends, reverse=True)
        await until(pilot, lambda: pane.event_log.info is not None and pane.event_log.info.key == pane.table.cursor_key)
        await until(pilot, lambda: not pane.event_log.is_reading)

    in_jobs(tmp_path, play)
