"""The Jobs screen: each of its keys, over a real database, real logs and a fake engine."""

from __future__ import annotations

import os
import re
import sqlite3
import sys
import threading
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from aptui.core.notices import LogLevel
from aptui.features.gateway.engine_requests import ShowSource
from aptui.link.port import Cancel, EscalateJobs, ReprocessJobs
from aptui.shared.connections.peers import GatewayReport, PeerSettings
from aptui.store import joblog
from aptui.store.db.schema import VERSION_KEY
from aptui.tui.data.job_infos import JobRowInfo
from aptui.tui.frame import terminal_control
from aptui.tui.pane import PANES
from aptui.tui.preferences.state import UiMemory
from aptui.tui.screens.jobs import job_texts as texts
from aptui.tui.screens.jobs.job_details import LARGEST_BYTES, DetailsReader, DetailsRequest, JobDetails, read_log
from aptui.tui.screens.jobs.jobs_table import USUAL, choose_columns
from aptui.tui.screens.jobs.log_lines import EventLines, LogColumns, search
from aptui.tui.widgets.log_sources import LogPaneLine
from aptui.tui.widgets.menu import Menu
from aptui.tui.widgets.table import lay_out
from tests.store.conftest import job_row, source_row
from tests.tui.database import database
from tests.tui.fake_panes import PROBES
from tests.tui.jobs_room import LOG, NOW_MS, Session, fill, in_jobs, notice
from tests.tui.shell_room import SMALL, in_shell, layouts_of, lines, text, until

pytestmark = pytest.mark.real

INFO = JobRowInfo(1, "a.png", "project", "linux", "Image", "image", "failed", 0, 1, NOW_MS, 5, "new", "boom `x`", "", 9, 1)


@pytest.fixture(autouse=True)
def _own_homes(tmp_path, monkeypatch):
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


def sources(pane) -> list[str]:
    return [pane.store.cell(index, "source").text for index in range(pane.store.row_count())]


async def settled(pilot, pane) -> None:
    await until(pilot, lambda: not pane.store.is_busy)
    await pilot.pause(0.12)


async def typed(pilot, pane, words: str) -> None:
    await pilot.press("slash", *words)
    await settled(pilot, pane)


async def sees(pilot, app, *parts: str) -> None:
    """Wait until all of this is on the screen."""
    try:
        await until(pilot, lambda: all(part in text(app) for part in parts))
    except AssertionError as error:
        missing = [part for part in parts if part not in text(app)]
        raise AssertionError(f"not on the screen: {missing}\n{text(app)}") from error


async def papers_of(pilot, pane, key: int, run_key: int | None = None) -> None:
    def is_there() -> bool:
        job_details = pane.event_log.job_details
        return bool(
            job_details
            and job_details.info.key == key
            and (run_key is None or (job_details.run and job_details.run.run_key == run_key))
        )

    await until(pilot, is_there)
    await pilot.pause(0.02)


# ------------------------------------------------------------------------------------------------------------ three panes


def test_panes_show_job_log_and_details_of_first_error(tmp_path):
    async def look(app, pilot, pane):
        await papers_of(pilot, pane, 1)
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

        await pilot.press("j", "j", "j")  # past the other failed job and the failed analysis
        await papers_of(pilot, pane, 3)
        await sees(pilot, app, "sand is warm")
        await until(pilot, lambda: "Heat" in text(app))  # without an error the cursor is on the first warning

    in_jobs(tmp_path, look)


def test_line_without_details_shows_facts_about_job(tmp_path):
    async def look(app, pilot, pane):
        await papers_of(pilot, pane, 1)
        await sees(pilot, app, "── Details of this line ──", "Offset  0x0012F3A0")
        await pilot.press("tab", "g")
        await sees(pilot, app, "── About this job ──", "Ran because  the source changed", "Error        IDAT chunk is broken")
        assert "Details of this line" not in text(app)
        head = next(at for at, line in enumerate(lines(app)) if "Event log" in line)
        assert lines(app)[head + 1].startswith("▌")  # wrapped lines draw the cursor again too

    in_jobs(tmp_path, look)


def test_shared_reason_column_yields_and_errors_widen_it(tmp_path):
    async def look(app, pilot, pane):
        shown = {column.id: width for column, width in pane.table._lay_columns()}
        assert pane.table.columns[-1].title == "Why it ran, or failed"
        assert shown["reason"] > 20
        assert [column.title for column in choose_columns(USUAL, has_failed=False)][-1] == "Why it ran"
        quiet = choose_columns(USUAL, has_failed=False, alike={"reason"})
        assert "reason" not in {column.id for column, _ in lay_out(quiet, 90)}
        assert "reason" in {column.id for column, _ in lay_out(quiet, 140)}

    in_jobs(tmp_path, look)


def test_columns_are_as_wide_as_their_texts(tmp_path):
    async def look(app, pilot, pane):
        shown = {column.id: width for column, width in pane.table._lay_columns()}
        texts = [pane.store.cell(index, "platform").text for index in range(pane.store.row_count())]
        assert shown["platform"] == max(8, *map(len, texts))
        assert shown["key"] == 16  # there are longer ones, but names are not all there is to a job
        assert shown["source"] == 28  # its least; no path is longer
        assert shown["reason"] > shown["source"]
        assert not any(pane.store.cell(index, "reason").text.startswith(" ") for index in range(pane.store.row_count()))

    in_jobs(tmp_path, look)


def test_short_paths_leave_room_for_more_columns_at_80(tmp_path):
    needs = {"source": 24, "platform": 5, "key": 9, "reason": 40}

    def shown(alike: set[str], source: int = 24) -> set[str]:
        return {column.id for column, _ in lay_out(choose_columns(USUAL, alike=alike, needs=needs | {"source": source}), 78)} - {
            "source"
        }

    assert shown(set()) == {"status", "completed", "platform", "duration"}
    assert shown({"platform"}) == {"status", "completed", "key", "duration"}, "one platform is none"
    assert shown(set(), source=40) == {"status", "completed", "platform"}, "the path is worth more"


def test_added_columns_are_dropped_last():
    def shown(ids: tuple[str, ...]) -> set[str]:
        return {column.id for column, _ in lay_out(choose_columns(ids, alike={"errors"}, needs={"source": 24}), 78)}

    assert {"warnings", "errors"} <= shown((*USUAL, "warnings", "errors"))
    assert "builder" in shown((*USUAL, "builder"))


def test_duration_is_kept_longer_than_reason_without_failures():
    def kept(width: int) -> set[str]:
        columns = choose_columns(USUAL, has_failed=False, alike={"platform"}, needs={"source": 24, "reason": 14})
        return {column.id for column, _ in lay_out(columns, width)}

    assert "duration" in kept(78)
    assert "reason" not in kept(78)
    assert {"duration", "reason"} <= kept(110)


def test_failed_first_is_default_order_and_returns_with_one_key(tmp_path):
    async def order(app, pilot, pane):
        await sees(pilot, app, "failed first")
        await pilot.press("S", "s")
        await sees(pilot, app, "sorted by Source ↑")
        await until(pilot, lambda: not pane.store.is_busy and pane.store.info(pane.store.key(0)).source.startswith("evil"))
        await pilot.press("G", "exclamation_mark")
        await sees(pilot, app, "failed first")
        await until(pilot, lambda: pane.table.cursor == 0 and pane.table.cursor_key == 1)
        assert app.memory.get("jobs.sort", None) == ["failed", False]

    in_jobs(tmp_path, order)


def test_enter_goes_to_first_error_and_escape_returns(tmp_path):
    async def drill(app, pilot, pane):
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

    in_jobs(tmp_path, drill)


def test_tab_walks_and_zoom_hides_and_small_screens_fold(tmp_path):
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
        await until(pilot, lambda: not pane.table.display)
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
    drawn = 100 * (24 - 5 - 2 - 7) // (24 - 5)  # seven rows leave this to the log
    assert app.memory.get("jobs.split", 0) == drawn + 16


def many(store, log_dir) -> None:
    fill(store, log_dir)
    names = [f"many/{number:02}.png" for number in range(30)]
    store.put(
        put_source=[source_row(at, name) for at, name in enumerate(names, 100)],
        put_job=[job_row(at, at, warnings=0, completed_ms=NOW_MS - 9000, last_log="") for at in range(100, 130)],
    )


def test_log_takes_room_of_few_rows_until_border_is_moved(tmp_path):
    async def look(app, pilot, pane):
        height = pane.event_log.size.height
        assert height == pane.size.height * 40 // 100
        await typed(pilot, pane, "sand")
        await pilot.press("enter")
        await until(pilot, lambda: pane.event_log.size.height == pane.size.height - 8)
        await pilot.press("escape")
        await until(pilot, lambda: pane.event_log.size.height == height)
        await pilot.press("less_than_sign")
        await until(pilot, lambda: pane.event_log.size.height == pane.size.height * 48 // 100)
        await typed(pilot, pane, "sand")
        await settled(pilot, pane)
        assert pane.event_log.size.height == pane.size.height * 48 // 100

    in_jobs(tmp_path, look, filler=many)


def test_details_are_shown_below_short_log_at_80_columns(tmp_path):
    async def look(app, pilot, pane):
        await sees(pilot, app, "Unexpected end of data")
        assert "0x0012F3A0" not in text(app)  # the log has no row too many
        await typed(pilot, pane, "sand")
        await pilot.press("enter")
        await sees(pilot, app, "sand is warm")
        await sees(pilot, app, "Heat    40")
        assert pane.event_log.log_pane.display
        await pilot.press("enter", "tab")
        await until(pilot, lambda: app.focused is pane.event_log.details and pane.event_log.log_pane.display)

    in_jobs(tmp_path, look, size=SMALL)


@pytest.mark.parametrize("size", [(20, 6), (40, 9), (200, 70)])
def test_any_size_is_usable(tmp_path, size):
    async def press(app, pilot, pane):
        await pilot.press("enter", "tab", "escape", "z", "z", "f", "escape", "slash", "x", "enter", "full_stop", "escape")
        await pilot.resize_terminal(80, 24)
        await settled(pilot, pane)

        await sees(pilot, app, "x.lua")

    in_jobs(tmp_path, press, size=size)


def test_braces_step_through_runs_of_job(tmp_path):
    async def step(app, pilot, pane):
        await papers_of(pilot, pane, 1, 9)
        await pilot.press("left_curly_bracket")
        await papers_of(pilot, pane, 1, 7)
        await sees(pilot, app, "run 2 of 2")
        await sees(pilot, app, "the run before")
        await pilot.press("left_curly_bracket")
        await until(pilot, lambda: "no earlier run is kept" in text(app))
        await pilot.press("right_curly_bracket")
        await papers_of(pilot, pane, 1, 9)

    in_jobs(tmp_path, step)


# ----------------------------------------------------------------------------------------------------------------- filter


def test_filter_applies_while_typing_and_stays_until_removed(tmp_path):
    async def filter_(app, pilot, pane):
        await typed(pilot, pane, "rock")
        await sees(pilot, app, "3 of 7")
        await until(pilot, lambda: set(sources(pane)) == {"textures/rock_01.png", "meshes/rock.fbx"})
        await until(pilot, lambda: pane.store.cell(0, "source").spans)
        await pilot.press("enter")
        await until(pilot, lambda: app.focused is pane.table)
        await until(pilot, lambda: "/ rock" in lines(app)[3])

    app = in_jobs(tmp_path, filter_)
    app.memory.save()

    async def again(app, pilot, pane):
        await settled(pilot, pane)
        await until(pilot, lambda: len(sources(pane)) == 3)
        await pilot.press("slash", "escape", "escape")
        await settled(pilot, pane)
        await until(pilot, lambda: len(sources(pane)) == 7)
        await until(pilot, lambda: app.focused is pane.table)
        await pilot.press("slash", "up")
        await until(pilot, lambda: pane.box.text == "rock")

    in_jobs(tmp_path, again, filler=lambda _store, _log_dir: None, memory=UiMemory(tmp_path / "project.json"))


def test_count_is_hidden_while_filter_is_computed(tmp_path, monkeypatch):
    async def filter_(app, pilot, pane):
        await typed(pilot, pane, "rock")
        await sees(pilot, app, "3 of 7")
        wanted = []
        request = pane.store._worker.request
        monkeypatch.setattr(pane.store._worker, "request", wanted.append)
        await pilot.press("ctrl+u", *"sand")
        await sees(pilot, app, "filtering…")
        assert "3 of 7" not in text(app)
        assert len(sources(pane)) == 3
        monkeypatch.undo()
        request(wanted[-1])
        await sees(pilot, app, "1 of 7")
        assert "filtering…" not in text(app)

    in_jobs(tmp_path, filter_)


def test_invalid_filter_is_shown_and_filters_nothing(tmp_path):
    async def mistake(app, pilot, pane):
        await typed(pilot, pane, "sand")
        await pilot.press("space", "(")
        await settled(pilot, pane)
        place = next(at for at, line in enumerate(lines(app)) if "sand (" in line)
        await until(pilot, lambda: "^" in lines(app)[place + 1])
        await until(pilot, lambda: "unclosed group" in lines(app)[place + 1])
        await until(pilot, lambda: pane.store.row_count() == pane.store.total)
        await sees(pilot, app, "7 jobs")
        assert "no job matches" not in text(app)
        await pilot.press("enter")
        await until(pilot, lambda: pane.box.has_focus_within)  # it is to be mended first
        await pilot.press("backspace", "backspace", "enter")
        await settled(pilot, pane)
        await until(pilot, lambda: app.focused is pane.table)
        await typed(pilot, pane, "")
        pane.box.text = ".png"
        await settled(pilot, pane)
        await sees(pilot, app, "`.` is any character")

    in_jobs(tmp_path, mistake)


def test_status_menu_toggles_until_escape(tmp_path):
    async def pick(app, pilot, pane):
        await pilot.press("s")
        await until(pilot, lambda: "completed with warnings" in text(app))
        await pilot.press("f")
        await settled(pilot, pane)
        await until(pilot, lambda: pane.choices.text == "status:failed")
        await until(pilot, lambda: pane.store.hit_count == 3)
        await pilot.press("w", "escape")
        await settled(pilot, pane)
        await until(pilot, lambda: pane.choices.text == "status:failed|warnings")
        await until(pilot, lambda: pane.store.hit_count == 4)
        await pilot.press("left_square_bracket")
        await settled(pilot, pane)
        await until(pilot, lambda: pane.choices.text == "status:failed")
        await pilot.press("right_square_bracket")
        await until(pilot, lambda: pane.choices.text == "status:failed|warnings")
        await pilot.press("s", "f", "w", "escape")
        await until(pilot, lambda: pane.choices.text == "")

    in_jobs(tmp_path, pick)


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ((), "status:failed"),
        (("j",), "status:warnings"),
        (("f",), "status:failed"),
        (("space",), "status:failed"),
        (("f", "j", "space"), "status:failed|warnings"),
        (("f", "f"), ""),
    ],
)
def test_status_menu_enter_keeps_toggled_statuses(tmp_path, keys, found):
    async def pick(app, pilot, pane):
        await pilot.press("s", *keys, "enter")
        await settled(pilot, pane)
        await until(pilot, lambda: not app.screen.query(Menu))
        assert pane.choices.text == found

    in_jobs(tmp_path, pick)


def test_typing_replaces_kept_filter(tmp_path):
    async def type_again(app, pilot, pane):
        pane.choices.filter_by("status:failed")
        await settled(pilot, pane)
        await pilot.press("slash", *"sand", "enter")
        await settled(pilot, pane)
        await until(pilot, lambda: app.focused is pane.table)
        assert pane.choices.text == "sand"
        assert sources(pane) == ["textures/sand.png"]

    in_jobs(tmp_path, type_again)


def test_end_of_long_filter_is_visible_while_typing(tmp_path):
    async def type_long(app, pilot, pane):
        await pilot.press("slash")
        pane.box.text = "textures/" + "very_" * 20 + "long"
        await pilot.press("r", "x")
        await settled(pilot, pane)
        await until(pilot, lambda: "very_very_longrx" in lines(app)[3])

    in_jobs(tmp_path, type_long, size=SMALL)


def test_filters_are_saved_applied_and_deleted_by_name(tmp_path):
    async def say(app, pilot, pane):
        pane.choices.filter_by("failed rock")
        await pilot.press("colon", *(letter if letter != " " else "space" for letter in "filter save broken rocks"), "enter")
        await until(pilot, lambda: app.memory.get("jobs.filters", {}))
        pane.choices.filter_by("sand")
        pane.choices._say_filter("broken rocks")
        await settled(pilot, pane)
        await until(pilot, lambda: pane.choices.text == "failed rock")
        await until(pilot, lambda: len(sources(pane)) == 2)
        await until(pilot, lambda: "broken rocks" in next(each for each in pane.commands() if each.name == "filter").complete())
        pane.choices._say_filter("delete broken rocks")
        assert app.memory.get("jobs.filters", {"x": ""}) == {}

    in_jobs(tmp_path, say)


def test_causes_group_failures_and_enter_shows_jobs(tmp_path):
    async def group(app, pilot, pane):
        await pilot.press("f")
        await pilot.pause()
        await until(pilot, lambda: app.focused is pane.causes)
        await sees(pilot, app, "all failures by cause")
        await sees(pilot, app, "2  IDAT chunk is broken")
        await sees(pilot, app, "1  no such preset")
        await pilot.press("enter")
        await settled(pilot, pane)
        await until(pilot, lambda: pane.choices.text == 'status:failed cause:"^IDAT chunk is broken$"')
        await until(pilot, lambda: sources(pane) == ["textures/rock_01.png"] * 2)
        await pilot.press("f", "j", "enter")
        await until(pilot, lambda: (pane.store.info(pane.table.cursor_key or 0) or INFO).error == "no such preset")
        await until(pilot, lambda: app.focused is pane.table)

    in_jobs(tmp_path, group)


def test_empty_details_have_no_title(tmp_path):
    async def look(app, pilot, pane):
        await sees(pilot, app, "Details of this line")
        pane.choices.filter_by("there-is-none-of-this-name")
        await sees(pilot, app, "no job is selected")
        await until(pilot, lambda: "Details of this line" not in text(app))
        assert not {"Value", "About this job"} & set(re.split(r"  +", text(app)))

    in_jobs(tmp_path, look)


def test_causes_have_no_filter_line(tmp_path):
    async def group(app, pilot, pane):
        pane.choices.filter_by("platform:pc failed")
        await until(pilot, lambda: len(sources(pane)) == 1)
        await pilot.press("f")
        await sees(pilot, app, "2  IDAT chunk is broken")
        assert "platform:pc" not in text(app)
        await pilot.press("f")
        await sees(pilot, app, "platform:pc failed")

    in_jobs(tmp_path, group)


# ------------------------------------------------------------------------------------------------------- order and columns


def test_order_by_header_menu_and_command_is_remembered(tmp_path):
    async def order(app, pilot, pane):
        await pilot.click(pane.table, offset=(18, 0))
        await settled(pilot, pane)
        await until(pilot, lambda: pane.store.sort == ("source", False))
        await sees(pilot, app, "Source ↑")
        await pilot.click(pane.table, offset=(18, 0))
        await settled(pilot, pane)
        await until(pilot, lambda: pane.store.sort == ("source", True))
        await pilot.press("S", "j", "enter")
        await settled(pilot, pane)
        await until(pilot, lambda: pane.store.sort == ("completed", True))
        await pilot.press("C")
        await pilot.press("G", "space", "enter")
        await pilot.pause()
        await until(pilot, lambda: "number" in [column.id for column in pane.table.columns])
        await pilot.press("R")
        await settled(pilot, pane)
        pane.choices._say_sort("status")

    app = in_jobs(tmp_path, order)
    assert app.memory.get("jobs.sort", []) == ["status", False]
    assert "number" in app.memory.get("jobs.columns", [])


def test_error_and_warning_keys_step_through_jobs(tmp_path):
    async def step(app, pilot, pane):
        await pilot.press("e")
        await until(pilot, lambda: pane.table.cursor_key == 2)
        await pilot.press("E")
        await until(pilot, lambda: pane.table.cursor_key == 1)
        await pilot.press("w")
        assert pane.table.cursor_key == 3
        await pilot.press("W")
        assert pane.table.cursor_key == 3

    in_jobs(tmp_path, step)


# --------------------------------------------------------------------------------------------------------------------- row actions


def test_run_again_cancel_and_run_next_act_on_marked_jobs(tmp_path):
    async def ask(app, pilot, pane):
        await pilot.press("r")
        await until(pilot, lambda: "queued to run again" in text(app))
        await pilot.press("plus")
        await until(pilot, lambda: "this job is not waiting" in text(app))
        await pilot.press("space", "space")
        await sees(pilot, app, "2 marked")
        await pilot.press("r", "u")
        pane.table.move_to_key(4)
        await pilot.press("plus", "c")
        pane.table.action_last()
        pane.table.move_to_key(next(key for key in pane.store.keys(0, 9) if key < 0))
        await pilot.press("r")
        pane.table.move_to_key(3)
        await pilot.press("c")
        await until(pilot, lambda: "only pending and running jobs" in text(app))

        await until(pilot, lambda: app.session.asked == [
            ReprocessJobs(job_ids=(1,)), ReprocessJobs(job_ids=(1, 2)), EscalateJobs(job_ids=(4,)), Cancel((4,)),
            ReprocessJobs(keys=("x.lua",)),
        ])  # fmt: skip

    in_jobs(tmp_path, ask)


def test_cancelled_jobs_stop_running_on_screen(tmp_path):
    async def cancel(app, pilot, pane):
        for job_id in (3, 4):  # one runs, one waits
            pane.table.move_to_key(job_id)
            await papers_of(pilot, pane, job_id)
            app.session.say(notice(job_id, "processing" if job_id == 3 else "pending"), 2 * job_id)
            await until(pilot, lambda job_id=job_id: pane.store.info(job_id).status in ("processing", "pending"))
            await until(pilot, lambda: not pane.resting.has_just_flipped)
            await pilot.press("c")
            await until(pilot, lambda job_id=job_id: Cancel((job_id,)) in app.session.asked)
            app.session.say(notice(job_id, "cancelled"), 2 * job_id + 1)
            await until(pilot, lambda: not pane.changes.ticks and "▶" not in text(app) and "cancelled" in text(app))
        await until(pilot, lambda: pane.store.counts()["cancelled"] == 2)
        await sees(pilot, app, "no log: the job was cancelled before it ended")

    in_jobs(tmp_path, cancel)


def test_open_menu_takes_digits(tmp_path):
    async def press(app, pilot, pane):
        for key in ("S", "s", "full_stop"):
            await pilot.press(key)
            await until(pilot, lambda: bool(app.screen.query(Menu)))
            await pilot.press("2", "7")
            assert app.pane is pane
            assert app.screen.query(Menu)
            await pilot.press("escape")
            await until(pilot, lambda: not app.screen.query(Menu))
        await pilot.press("2")
        await until(pilot, lambda: app.pane is not pane)

    in_jobs(tmp_path, press, panes=[PANES[0], PROBES[1]])


def test_selected_job_keeps_cursor_after_run_again(tmp_path):
    async def act(app, pilot, pane):
        await until(pilot, lambda: pane.table.cursor_key == 1)
        await pilot.press("r")
        await until(pilot, lambda: app.session.asked == [ReprocessJobs(job_ids=(1,))])
        rock = {"source": "textures/rock_01.png", "job_key": "Image Compile"}
        app.session.say(notice(1, "processing", **rock), 2)
        await until(pilot, lambda: pane.store.info(1).status == "processing")
        app.session.say(notice(1, "completed", **rock), 3)
        await sees(pilot, app, "fixed: textures/rock_01.png (linux)")
        await until(pilot, lambda: pane.store.keys(0, 1) == [2])
        await until(pilot, lambda: pane.store.key(pane.table.cursor) == 1)
        await pilot.press("g")
        await until(pilot, lambda: pane.table.cursor_key == 2)

    in_jobs(tmp_path, act)


def test_column_menu_marks_columns_without_room(tmp_path):
    async def look(app, pilot, _pane):
        await pilot.press("C")
        await sees(pilot, app, "Job key (no room)", "• Status ")

    in_jobs(tmp_path, look, size=SMALL)


def test_commands_run_actions_on_selected_jobs(tmp_path):
    async def say(app, pilot, pane):
        next(each for each in pane.commands() if each.name == "reprocess").run("")
        await until(pilot, lambda: app.session.asked == [ReprocessJobs(job_ids=(1,))])
        assert {"reprocess", "cancel", "escalate", "copy", "why"} <= {each.name for each in pane.commands()}

    in_jobs(tmp_path, say)


def test_each_order_has_a_key_in_its_menu(tmp_path):
    async def order(_app, pilot, pane):
        for key, column in (("s", "source"), ("p", "platform"), ("d", "duration"), ("f", "failed")):
            await pilot.press("S", key)
            await settled(pilot, pane)
            assert pane.store.sort[0] == column

    in_jobs(tmp_path, order)


def test_show_key_sends_source_to_connected_editor(tmp_path):
    async def ask(app, pilot, pane):
        source = pane.store.info(pane.table.cursor_key).source
        await pilot.press("V")
        await until(pilot, lambda: "the gateway is not running" in text(app))
        assert app.session.asked == []
        app.session.gateway = GatewayReport("127.0.0.1", 45_650, PeerSettings())
        await pilot.press("V")
        await until(pilot, lambda: app.session.asked == [ShowSource(source=source)])

    in_jobs(tmp_path, ask)


def test_hints_hide_action_keys_while_typing(tmp_path):
    async def look(app, pilot, _pane):
        await until(pilot, lambda: "/ filter" in lines(app)[-1])
        await pilot.press("slash")
        await until(pilot, lambda: "keep" in lines(app)[-1] and "clear, then leave" in lines(app)[-1])
        assert "/ filter" not in lines(app)[-1]
        assert "+ run next" not in lines(app)[-1]

    in_jobs(tmp_path, look)


def test_row_menu_writes_capsule_into_start_folder(tmp_path, monkeypatch):
    ran = []

    def run(command, **_named):
        ran.append(command)
        return SimpleNamespace(returncode=0, stdout="rock_01.png@linux.capsule.tgz: 1 input\n", stderr="")

    async def do(app, pilot, pane):
        monkeypatch.setattr("aptui.tui.screens.jobs.job_actions.subprocess.run", run)
        monkeypatch.chdir(tmp_path)
        pane.actions.do("capsule")
        await until(pilot, lambda: "rock_01.png@linux.capsule.tgz: 1 input" in text(app))

    in_jobs(tmp_path, do)

    file = str(tmp_path / "rock_01.png@linux.capsule.tgz")
    assert ran == [[sys.executable, "-m", "aptui", "-C", str(tmp_path), "--color", "never", "capsule", "#1", "--out", file]]


def test_row_menu_offers_available_actions(tmp_path):
    async def menu(app, pilot, pane):
        await pilot.click(pane.table, offset=(20, 2), button=3)
        await until(pilot, lambda: "Run again" in text(app))
        for label in (
            "Open log in $PAGER",
            "Open source in $EDITOR",
            "Open the source's folder",
            "Copy…",
            "Cancel",
            "Run next",
            "Why",
        ):
            await sees(pilot, app, label)
        assert "View builder" not in text(app)  # there is no Builders screen here
        await pilot.press("r")
        await until(pilot, lambda: app.session.asked == [ReprocessJobs(job_ids=(pane.table.cursor_key,))])

    in_jobs(tmp_path, menu)


def test_read_only_screen_offers_no_requests(tmp_path):
    async def look(app, pilot, pane):
        await pilot.press("r", "c", "plus", "full_stop")
        await until(pilot, lambda: "Why" in text(app))

        assert "Run again" not in text(app)
        assert "run again" not in lines(app)[-1]
        await pilot.press("escape")
        for key, what in (("r", "run again"), ("P", "pause"), ("Q", "stop the engine"), ("c", "cancel")):
            await pilot.press(key)
            await sees(pilot, app, f"cannot {what}: the screen is read-only")
        assert app.session.asked == []

    in_jobs(tmp_path, look, read_only=True)


def test_running_job_shows_facts_of_its_last_run_as_such(tmp_path):
    async def look(app, pilot, pane):
        await papers_of(pilot, pane, 1)
        job_details = pane.event_log.job_details
        ended = texts.job_facts(job_details)
        infos = {status: replace(job_details.info, status=status, reason="asked for") for status in ("processing", "pending")}
        now = {status: texts.job_facts(replace(job_details, info=info)) for status, info in infos.items()}

        assert {"Ran because", "Ended", "Took", "Error"} <= dict(ended).keys()
        assert not {"Ran because", "Ended", "Took", "Error"} & (dict(now["processing"]) | dict(now["pending"])).keys()
        assert dict(now["processing"])["Runs because"] == dict(now["pending"])["Waits because"] == "asked for"
        assert dict(now["processing"])["Last run"] == f"{dict(ended)['Ended']}, 1.42 s"

    in_jobs(tmp_path, look)


def test_why_shows_reason_inputs_and_earlier_runs(tmp_path):
    async def ask(app, pilot, pane):
        await pilot.press("x")
        await until(pilot, lambda: "Inputs of the last" in text(app))
        for part in (
            "its last run failed; it ran because: the source changed", "IDAT chunk is broken", "0000000000000abc",
            "linux/textures/rock_01.dds",
            "textures/sand.png  (source)", "source                a.png  00ff", "new source",
        ):  # fmt: skip
            await sees(pilot, app, part)
        await pilot.press("escape")
        await until(pilot, lambda: app.focused is pane.table)

    in_jobs(tmp_path, ask)


def test_why_continues_long_lines_in_next_row(tmp_path):
    async def ask(app, pilot, _pane):
        await pilot.press("x")
        await until(pilot, lambda: "Inputs of the last" in text(app))
        said = " ".join(text(app).split())
        assert "its last run failed; it ran because: the source changed" in said
        assert "IDAT chunk is broken" in said

    in_jobs(tmp_path, ask, size=(44, 30))


def test_log_source_and_folder_open_in_other_programs(tmp_path, monkeypatch):
    monkeypatch.setenv("PAGER", "less -S")
    monkeypatch.setenv("EDITOR", "ed")
    monkeypatch.delenv("VISUAL", raising=False)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SHELL", "/bin/sh")
    (tmp_path / "cache/textures").mkdir(parents=True)
    (tmp_path / "cache/textures/rock_01.png").touch()

    async def open_(app, pilot, pane):
        ran: list[tuple[list[str], str | None]] = []
        read: list[str] = []

        def run(command: list[str], folder: str | None) -> None:
            ran.append((command, folder))
            if command[0] == "less":
                read.append(Path(command[-1]).read_text())

        monkeypatch.setattr(terminal_control, "lend", lambda _host, command, folder=None, note="": run(command, folder))
        source, log = str(tmp_path / "cache/textures/rock_01.png"), str(tmp_path / "logs/JobLogs/rock-9.log")
        await papers_of(pilot, pane, 1)
        await pilot.press("o")
        await pilot.press("O")
        await until(pilot, lambda: len(ran) == 2)
        await pilot.press("F")
        await until(pilot, lambda: len(ran) == 3)
        await pilot.press("enter", "O")
        await until(pilot, lambda: len(ran) == 4)
        await until(pilot, lambda: ran == [
            (["less", "-S", ran[0][0][-1]], None), (["ed", source], None),
            (["/bin/sh"], os.path.dirname(source)), (["ed", log], None),
        ])  # fmt: skip

        assert "| ERROR | origin: Image Compile | Unexpected end of data" in read[0]
        assert "[Chunk] = IDAT" in read[0]
        assert "~~" not in read[0]
        assert "\x1b" not in read[0]

    in_jobs(tmp_path, open_)


# ----------------------------------------------------------------------------------------------------------------- copying


def test_rows_are_copied_as_paths_uuid_products_command_and_report(tmp_path):
    async def copy(app, pilot, pane):
        await papers_of(pilot, pane, 1)
        for key in "ypuctrb":
            count = len(app.copied)
            await pilot.press("y", key)
            await until(pilot, lambda count=count: len(app.copied) > count)
        path, products, uuid, command, row, relative, report = (words for words, _ in app.copied)
        assert path == f"{tmp_path}/cache/textures/rock_01.png"
        assert products.splitlines() == [f"{tmp_path}/cache/linux/textures/rock_01.{kind}" for kind in ("dds", "mip")]
        assert uuid == "{00000000-0000-0000-0000-000000000001}"
        assert command == f"aptui rerun --project {tmp_path} '#1'"
        assert row.split("\t")[1] == relative == "textures/rock_01.png"
        assert report.startswith("### textures/rock_01.png failed on linux")
        pane.table.move_to_key(5)
        await pilot.press("y", "r")
        await until(pilot, lambda: app.copied[-1] == ("textures/bad\udce9name.png", True))  # the byte it is on the disk
        pane.table.move_to_key(6)
        await pilot.press("y", "r")
        await until(pilot, lambda: app.copied[-1][1] is False)  # it holds control characters: they are taken out

    in_jobs(tmp_path, copy)


def test_lines_are_copied_alone_with_details_all_and_as_report(tmp_path):
    async def copy(app, pilot, pane):
        await pilot.press("enter")
        await papers_of(pilot, pane, 1)
        for key in "ydab":
            await pilot.press("y", key)
        line, with_details, everything, report = (words for words, _ in app.copied)
        assert line.endswith("| ERROR | origin: Image Compile | Unexpected end of data in IDAT chunk")
        assert with_details == f"{line}\n[Chunk] = IDAT\n[Offset] = 0x0012F3A0\n[Trace] = png.py(212): decode"
        assert everything.count("\n") == len(LOG) + 3
        assert "* Fingerprint: `0000000000000abc`" in report
        assert "[Trace] = png.py(212): decode" in report
        await pilot.press("space", "space", "y")
        await until(pilot, lambda: "Copy 2 lines" in text(app))
        await pilot.press("y")
        await until(pilot, lambda: app.copied[-1][0].count("\n") == 1)
        await pilot.press("e", "E", "enter", "j", "y", "y", "y", "k", "y", "a")
        await until(
            pilot,
            lambda: (
                [words for words, _ in app.copied[-3:]]
                == [
                    "0x0012F3A0",
                    "Offset",
                    "Chunk = IDAT\nOffset = 0x0012F3A0\nTrace = png.py(212): decode",
                ]
            ),
        )

    in_jobs(tmp_path, copy)


# --------------------------------------------------------------------------------------------------------------- event log


def test_event_log_search_and_levels(tmp_path):
    async def search_(app, pilot, pane):
        log = pane.event_log
        await pilot.press("enter")
        await papers_of(pilot, pane, 1)
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

    in_jobs(tmp_path, search_)


def test_log_is_read_again_after_run_even_before_its_row(tmp_path):
    async def run(app, pilot, pane):
        pane.table.move_to_key(3)
        await papers_of(pilot, pane, 3)
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


def test_lost_engine_ends_running_state_on_screen(tmp_path):
    async def lose(app, pilot, pane):
        pane.choices.filter_by("sand")
        await until(pilot, lambda: pane.table.cursor_key == 3 and "▶ processing" in text(app) and "▶ running" in text(app))
        for listener in app.session.listeners:
            listener.note_loss()
        await until(pilot, lambda: "▶ processing" not in text(app) and "▶ running" not in text(app))

    in_jobs(tmp_path, lose, running=(3,))


def test_cursor_moves_and_notices_do_not_lay_out_screen(tmp_path):
    async def look(app, pilot, pane):
        await papers_of(pilot, pane, pane.table.cursor_key)
        await pilot.pause(0.3)
        layouts = layouts_of(app)
        await pilot.press("j", "j", "k")
        await papers_of(pilot, pane, pane.table.cursor_key)
        app.session.say(notice(3, "processing"), 2)
        await until(pilot, lambda: "▶ processing" in text(app))
        app.session.say(notice(3, "failed"), 3)
        await until(pilot, lambda: pane.store.info(3).status == "failed")
        await pilot.pause(0.3)
        assert layouts == []

    in_jobs(tmp_path, look)


def test_durations_update_while_running_and_idle_draws_nothing(tmp_path):
    async def idle(app, pilot, pane):
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

    in_jobs(tmp_path, idle)


def test_only_last_of_many_requested_jobs_is_read(tmp_path):
    with database(tmp_path) as store:
        store.put(
            put_source=[source_row(at, f"a/{at:04}.png") for at in range(1, 201)],
            put_job=[job_row(at, at, completed_ms=at, last_log="") for at in range(1, 201)],
        )
        arrived: list[int] = []
        last = threading.Event()

        def deliver(job_details: JobDetails) -> None:
            arrived.append(job_details.info.key)
            if job_details.info.key == 200:
                last.set()

        reader = DetailsReader(store.path, tmp_path, deliver)
        for key in range(1, 201):
            reader.request(DetailsRequest(replace(INFO, key=key)))
        assert last.wait(20)
        reader.close()

        assert reader.read_count <= 3
        assert arrived[-1] == 200


def test_foreign_text_is_shown_without_escapes_and_markup(tmp_path):
    async def look(app, pilot, pane):
        pane.table.move_to_key(6)
        await papers_of(pilot, pane, 6)
        await pilot.press("x")
        await until(pilot, lambda: "it last ran because" in text(app))
        assert "\x1b" not in text(app)
        await pilot.press("escape", "full_stop")
        # Its log is gone.
        await sees(pilot, app, "[/oops] [red]x[/red]", "textures/bad\\xe9name.png", "the log 'gone.log' does not exist")
        assert "\x1b" not in text(app)
        await pilot.press("escape")
        pane.table.move_to_key(1)
        await papers_of(pilot, pane, 1)
        await sees(pilot, app, "[/oops] [red]x[/red]")
        pane.table.move_to_key(5)
        await papers_of(pilot, pane, 5)
        await sees(pilot, app, "textures/bad\\xe9name.png · linux")
        assert "\x1b" not in text(app)
        assert "EVIL" not in text(app)

    in_jobs(tmp_path, look)


def test_reveal_shows_job_hidden_by_filter(tmp_path):
    async def reveal(app, pilot, pane):
        await typed(pilot, pane, "sand")
        await pilot.press("enter")
        pane.reveal("#5")
        await until(pilot, lambda: pane.table.cursor_key == 5)
        await until(pilot, lambda: pane.choices.text == "")
        pane.reveal("x.lua")
        await settled(pilot, pane)
        await until(pilot, lambda: sources(pane) == ["x.lua"])
        pane.reveal("#99")
        await until(pilot, lambda: "no job #99" in text(app))

    in_jobs(tmp_path, reveal)


# --------------------------------------------------------------------------------------------------------- parts of it alone


def test_bug_report_fences_backticks_and_removes_escapes():
    line = joblog.JobLogLine(LogLevel.ERROR, "x", "```\x1b[31m", NOW_MS, (("k", "v"),))
    report = texts.bug_report(JobDetails(INFO, records=(line,)))

    assert "````\n" in report
    assert "\x1b" not in report
    assert "* Error: `` boom `x` ``" in report


def test_term_matches_exactly_its_text():
    columns = LogColumns([joblog.JobLogLine(1, "w", words, NOW_MS) for words in ('a.b "c" (x)', 'aXb "c" (x)')])

    assert search(texts.term("error", 'a.b "c" (x)', is_whole=True), columns).hits == [0]
    assert search("!a.b", columns).hits == []


def test_event_lines_keep_positions_of_levels_and_hits():
    source = EventLines([LogPaneLine("", level, "", level) for level in "IDEWI"])
    source.keep([0, 2, 4])

    assert [source.line(index).level for index in range(source.line_count())] == ["I", "E", "I"]
    assert (source.index_of(2), source.index_of(3), source.key(2)) == (1, None, 4)
    assert source.of_levels("E") == [1]
    assert (source.next_of(0, "E", 1), source.next_of(2, "E", -1), source.next_of(1, "E", 1)) == (1, 1, None)


def test_large_log_is_read_from_its_end(tmp_path: Path):
    file = tmp_path / "large.log"
    with file.open("wb") as stream:
        stream.truncate(LARGEST_BYTES)
        stream.seek(0, os.SEEK_END)
        stream.write(b"\n~~1~~3~~0~~w~~E: w: the end\n")

    found = read_log(str(file))
    assert "left out" in found[0].text
    assert found[-1].text == "the end"


def test_missing_database_is_reported_in_details(tmp_path: Path):
    reader = DetailsReader(tmp_path / "assetdb.sqlite", tmp_path, lambda _job_details: None)

    assert "there is no asset database" in reader.read(DetailsRequest(INFO)).nothing


def test_unreadable_database_is_reported_in_place_of_rows(tmp_path: Path):
    cache = tmp_path / "cache"
    cache.mkdir()
    with database(cache) as made, closing(sqlite3.connect(made.path)) as connection, connection:
        connection.execute("UPDATE aptui_state SET value = '1' WHERE key = ?", (VERSION_KEY,))

    async def look(app, pilot, _session):
        await until(pilot, lambda: "was made by another version of aptui" in " ".join(text(app).split()))
        await until(pilot, lambda: "brings it up to date" in " ".join(text(app).split()))
        assert "reading the jobs" not in text(app)

    in_shell(tmp_path, look, panes=[PANES[0]], session=Session(cache))


def test_refused_job_shows_reason_once():
    why = "product 'a.webp' is made by 'b.png' as well"
    info = JobRowInfo(1, "a.png", "game", "linux", "images", "images", "failed", 0, 1, 1, 0, why, why, "", 1, 1)

    assert [name for name, value in texts.job_facts(JobDetails(info)) if value == why] == ["Error"]
