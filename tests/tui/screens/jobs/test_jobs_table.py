"""The Jobs table: columns, filters, orders, causes."""

from __future__ import annotations

import pytest

from aptui.tui.preferences.state import UiMemory
from aptui.tui.screens.jobs.jobs_table import USUAL, choose_columns
from aptui.tui.widgets.menu import Menu
from aptui.tui.widgets.table import lay_out
from tests.tui.jobs_harness import in_jobs
from tests.tui.shell_harness import SMALL, lines, text, until

from .jobs_pane_harness import INFO, many, on_jobs, sees, settled, sources, typed

pytestmark = pytest.mark.real


@on_jobs()
async def test_reason_column_shrinks_for_equal_reasons_and_grows_for_errors(app, pilot, pane):
    shown = {column.id: width for column, width in pane.table._lay_columns()}
    assert pane.table.columns[-1].title == "Why it ran, or failed"
    assert shown["reason"] > 20
    assert [column.title for column in choose_columns(USUAL, has_failed=False)][-1] == "Why it ran"
    quiet = choose_columns(USUAL, has_failed=False, alike={"reason"})
    assert "reason" not in {column.id for column, _ in lay_out(quiet, 90)}
    assert "reason" in {column.id for column, _ in lay_out(quiet, 140)}


@on_jobs()
async def test_columns_are_as_wide_as_their_texts(app, pilot, pane):
    shown = {column.id: width for column, width in pane.table._lay_columns()}
    texts = [pane.store.cell(index, "platform").text for index in range(pane.store.row_count())]
    assert shown["platform"] == max(8, *map(len, texts))
    assert shown["key"] == 16  # the maximum width of this column, because some job keys are longer
    assert shown["source"] == 28  # the minimum width of this column, because all paths are shorter
    assert shown["reason"] > shown["source"]
    assert not any(pane.store.cell(index, "reason").text.startswith(" ") for index in range(pane.store.row_count()))


def test_short_paths_leave_room_for_more_table_columns_on_80_cells(tmp_path):
    needs = {"source": 24, "platform": 5, "key": 9, "reason": 40}

    def shown(alike: set[str], source: int = 24) -> set[str]:
        return {column.id for column, _ in lay_out(choose_columns(USUAL, alike=alike, needs=needs | {"source": source}), 78)} - {
            "source"
        }

    assert shown(set()) == {"status", "completed", "platform", "duration"}
    assert shown({"platform"}) == {"status", "completed", "key", "duration"}, (
        "the platform column is hidden if all jobs have the same platform"
    )
    assert shown(set(), source=40) == {"status", "completed", "platform"}, (
        "the duration column is hidden if the path column is wide"
    )


def test_columns_that_the_user_added_are_dropped_last():
    def shown(ids: tuple[str, ...]) -> set[str]:
        return {column.id for column, _ in lay_out(choose_columns(ids, alike={"errors"}, needs={"source": 24}), 78)}

    assert {"warnings", "errors"} <= shown((*USUAL, "warnings", "errors"))
    assert "builder" in shown((*USUAL, "builder"))


def test_narrow_table_without_failures_drops_reasons_before_durations():
    def columns_at(width: int) -> set[str]:
        columns = choose_columns(USUAL, has_failed=False, alike={"platform"}, needs={"source": 24, "reason": 14})
        return {column.id for column, _ in lay_out(columns, width)}

    assert "duration" in columns_at(78)
    assert "reason" not in columns_at(78)
    assert {"duration", "reason"} <= columns_at(110)


@on_jobs()
async def test_default_order_is_failed_first_and_one_key_restores_it(app, pilot, pane):
    await sees(pilot, app, "failed first")
    await pilot.press("S", "s")
    await sees(pilot, app, "sorted by Source ↑")
    await until(pilot, lambda: not pane.store.is_busy and pane.store.info(pane.store.key(0)).source.startswith("evil"))
    await pilot.press("G", "exclamation_mark")
    await sees(pilot, app, "failed first")
    await until(pilot, lambda: pane.table.cursor == 0 and pane.table.cursor_key == 1)
    assert app.memory.get("jobs.sort", None) == ["failed", False]


@on_jobs(filler=many)
async def test_log_takes_the_free_height_of_a_short_table_until_the_user_chooses_a_height(app, pilot, pane):
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


@on_jobs(size=SMALL)
async def test_details_are_shown_below_their_line_at_80_columns(app, pilot, pane):
    await sees(pilot, app, "Chunk  IDAT   Offset  0x0012F3A0   Trace  png.py(212): decode")
    at = next(at for at, line in enumerate(lines(app)) if "Chunk  IDAT" in line)
    assert "Unexpected end of data" in lines(app)[at - 2] + lines(app)[at - 1]
    await pilot.press("enter", "enter")
    await until(pilot, lambda: app.focused is pane.event_log.details and not pane.event_log.log_pane.display)
    await sees(pilot, app, "Offset  0x0012F3A0")
    await pilot.press("y", "a")
    await until(pilot, lambda: app.copied[-1][0].startswith("[Chunk] = IDAT\n"))


@on_jobs(size=(160, 45))
async def test_log_is_beside_the_table_from_160_columns(app, pilot, pane):
    await sees(pilot, app, "Chunk  IDAT   Offset  0x0012F3A0", "About this job", "Why it ran, or failed")
    table, log = pane.query_one("#jobs-upper").region, pane.event_log.region
    assert (table.height, log.height, table.y) == (pane.size.height, pane.size.height, log.y)
    await pilot.press("enter", "enter")
    await until(pilot, lambda: app.focused is pane.event_log.details)
    await sees(pilot, app, "Details of this line")
    await pilot.press("escape", "less_than_sign")
    await until(pilot, lambda: pane.event_log.region.width > log.width)
    await pilot.press("z")
    await until(pilot, lambda: not pane.query_one("#jobs-upper").display)
    await pilot.resize_terminal(100, 30)
    await pilot.press("z")
    await until(pilot, lambda: pane.event_log.region.y > pane.table.region.y)


def test_jobs_filter_applies_while_typing_and_stays_until_it_is_removed(tmp_path):
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
        await typed(pilot, pane, "sand")
        await pilot.press("escape")
        await settled(pilot, pane)
        await until(pilot, lambda: pane.choices.text == "rock" and len(sources(pane)) == 3)
        await pilot.press("g", "n", "n")
        assert pane.table.cursor == 2
        await pilot.press("N")
        assert pane.table.cursor == 1
        await pilot.press("escape")
        await settled(pilot, pane)
        await until(pilot, lambda: len(sources(pane)) == 7)
        await until(pilot, lambda: app.focused is pane.table)
        await pilot.press("n")
        await sees(pilot, app, "no filter: '/' sets one")
        await pilot.press("slash", "up")
        await until(pilot, lambda: pane.box.text == "rock")

    in_jobs(tmp_path, again, filler=lambda _store, _log_dir: None, memory=UiMemory(tmp_path / "project.json"))


@on_jobs()
async def test_count_of_matching_jobs_is_hidden_while_the_filter_is_computed(app, pilot, pane, monkeypatch):
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


@on_jobs()
async def test_invalid_filter_is_shown_and_filters_nothing(app, pilot, pane):
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
    await until(pilot, lambda: pane.box.has_focus_within)  # Enter does nothing until the filter is corrected.
    await pilot.press("backspace", "backspace", "enter")
    await settled(pilot, pane)
    await until(pilot, lambda: app.focused is pane.table)
    await typed(pilot, pane, "")
    pane.box.text = "linux"
    await settled(pilot, pane)
    await sees(pilot, app, "'linux' is a platform; write platform:linux   0 of 7")
    await sees(pilot, app, "no job matches; 'linux' is a platform; write platform:linux; press Esc to clear the filter")
    pane.box.text = ".png"
    await settled(pilot, pane)
    await sees(pilot, app, "`.` matches any character")


@on_jobs()
async def test_filter_with_a_wrong_value_shows_all_jobs_at_once(app, pilot, pane):
    await typed(pilot, pane, "sand")
    await until(pilot, lambda: pane.store.row_count() < pane.store.total)
    await pilot.press("space", *"after:25:99")
    await sees(pilot, app, "'25:99' is not a time")
    await until(pilot, lambda: pane.store.row_count() == pane.store.total)
    await sees(pilot, app, "7 jobs")


@on_jobs()
async def test_excluded_platform_name_gets_a_hint_about_the_platform_field(app, pilot, pane):
    await typed(pilot, pane, "!linux")

    await sees(pilot, app, "'linux' is a platform; write !platform:linux   7 of 7")


@on_jobs(filler=lambda _store, _log_dir: None)
async def test_table_without_jobs_shows_watched_folders_and_patterns(app, pilot, pane):
    await sees(pilot, app, "watched folders  /project/assets")
    await sees(pilot, app, "patterns         *.png")


@on_jobs()
async def test_status_menu_toggles_statuses_until_escape(app, pilot, pane):
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
@on_jobs()
async def test_enter_in_the_status_menu_keeps_the_toggled_statuses(app, pilot, pane, keys, found):
    await pilot.press("s", *keys, "enter")
    await settled(pilot, pane)
    await until(pilot, lambda: not app.screen.query(Menu))
    assert pane.choices.text == found


@on_jobs()
async def test_typing_in_the_filter_line_replaces_the_previous_filter(app, pilot, pane):
    pane.choices.filter_by("status:failed")
    await settled(pilot, pane)
    await pilot.press("slash", *"sand", "enter")
    await settled(pilot, pane)
    await until(pilot, lambda: app.focused is pane.table)
    assert pane.choices.text == "sand"
    assert sources(pane) == ["textures/sand.png"]


@on_jobs(size=SMALL)
async def test_end_of_long_filter_is_visible_while_typing(app, pilot, pane):
    await pilot.press("slash")
    pane.box.text = "textures/" + "very_" * 20 + "long"
    await pilot.press("r", "x")
    await settled(pilot, pane)
    await until(pilot, lambda: "very_very_longrx" in lines(app)[3])


@on_jobs()
async def test_filters_are_saved_applied_and_deleted_by_name(app, pilot, pane):
    pane.choices.filter_by("failed rock")
    await pilot.press("colon", *(letter if letter != " " else "space" for letter in "filter save broken rocks"), "enter")
    await until(pilot, lambda: app.memory.get("jobs.filters", {}))
    pane.choices.filter_by("sand")
    pane.choices._run_filter_command("broken rocks")
    await settled(pilot, pane)
    await until(pilot, lambda: pane.choices.text == "failed rock")
    await until(pilot, lambda: len(sources(pane)) == 2)
    await until(pilot, lambda: "broken rocks" in next(each for each in pane.commands() if each.name == "filter").complete())
    pane.choices._run_filter_command("delete broken rocks")
    assert app.memory.get("jobs.filters", {"x": ""}) == {}


@on_jobs()
async def test_failures_are_grouped_by_cause_and_enter_shows_the_jobs_of_a_cause(app, pilot, pane):
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


@on_jobs()
async def test_filter_is_not_shown_while_failures_are_grouped_by_cause(app, pilot, pane):
    pane.choices.filter_by("platform:pc failed")
    await until(pilot, lambda: len(sources(pane)) == 1)
    await pilot.press("f")
    await sees(pilot, app, "2  IDAT chunk is broken")
    assert "platform:pc" not in text(app)
    await pilot.press("f")
    await sees(pilot, app, "platform:pc failed")


def test_table_remembers_the_order_chosen_by_header_or_menu_or_command(tmp_path):
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
        pane.choices._run_sort_command("status")

    app = in_jobs(tmp_path, order)
    assert app.memory.get("jobs.sort", []) == ["status", False]
    assert "number" in app.memory.get("jobs.columns", [])


@on_jobs()
async def test_error_and_warning_keys_step_through_jobs(app, pilot, pane):
    await pilot.press("e")
    await until(pilot, lambda: pane.table.cursor_key == 2)
    await pilot.press("E")
    await until(pilot, lambda: pane.table.cursor_key == 1)
    await pilot.press("w")
    assert pane.table.cursor_key == 3
    await pilot.press("W")
    assert pane.table.cursor_key == 3


@on_jobs(size=SMALL)
async def test_column_menu_marks_columns_that_do_not_fit(app, pilot):
    await pilot.press("C")
    await sees(pilot, app, "Job key (no room)", "• Status ")


@on_jobs()
async def test_keys_in_the_sort_menu_set_the_sort_order(pilot, pane):
    for key, column in (("s", "source"), ("p", "platform"), ("d", "duration"), ("f", "failed")):
        await pilot.press("S", key)
        await settled(pilot, pane)
        assert pane.store.sort[0] == column


@on_jobs()
async def test_revealing_a_job_removes_the_filter_that_hides_it(app, pilot, pane):
    await typed(pilot, pane, "sand")
    await pilot.press("enter")
    pane.reveal("#5")
    await until(pilot, lambda: pane.table.cursor_key == 5)
    await until(pilot, lambda: pane.choices.text == "")
    pane.reveal("x.lua")
    await settled(pilot, pane)
    await until(pilot, lambda: sources(pane) == ["x.lua"])
    pane.reveal("#99")
    await until(pilot, lambda: "job #99 does not exist" in text(app))
    pane.reveal(f"#{10**25}")
    await until(pilot, lambda: f"job #{(1 << 63) - 1} does not exist" in text(app))


@on_jobs()
async def test_job_command_refuses_a_superscript_digit(app, pilot):
    await pilot.press(":", *"job", "space", "²", "enter")
    await until(pilot, lambda: "type ':job #12'" in text(app))
