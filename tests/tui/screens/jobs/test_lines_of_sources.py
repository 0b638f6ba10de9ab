"""One line for each source, if several platforms are enabled: its jobs, its log, filters, marks, copies and actions."""

from __future__ import annotations

import pytest

from aptui.link.port import ReprocessJobs
from aptui.tui.data.feed import Batch, JobNews
from aptui.tui.data.job_infos import is_source_key
from aptui.tui.preferences.state import UiMemory
from aptui.tui.words import moment_text
from tests.store.conftest import job_row
from tests.tui.jobs_harness import NOW_MS, fill, in_jobs, notice
from tests.tui.shell_harness import until

from .jobs_pane_harness import details_of, on_jobs, sees, settled, sources, typed

pytestmark = pytest.mark.real
ROCK, SAND = "textures/rock_01.png", "textures/sand.png"
on_two_platforms = on_jobs(platforms=("linux", "pc"))


def status(pane, index: int = 0) -> list[str]:
    return [pane.store.cell(index, column).text for column in ("status", "source", "platform")]


def test_project_with_two_platforms_lists_sources_until_t_is_pressed(tmp_path):
    memory = UiMemory(tmp_path / "memory.json")

    async def turn(app, pilot, pane):
        assert status(pane) == ["✗ failed", f"▸ {ROCK}", "2 of 2"]
        await sees(pilot, app, "6 sources, 7 jobs")
        await pilot.press("right", "j", "j")
        assert pane.table.cursor_key == 2
        await pilot.press("t")
        await settled(pilot, pane)
        await sees(pilot, app, "one line for each job")
        await until(pilot, lambda: sources(pane)[:2] == [ROCK, ROCK])
        await until(pilot, lambda: pane.table.cursor_key == 2 == pane.selection.key)
        await pilot.press("t")
        await settled(pilot, pane)
        await until(pilot, lambda: pane.store.row_count() == 8)  # the source is still expanded
        assert (pane.table.cursor_key, pane.selection.key) == (2, 2)
        await pilot.press("t")
        await settled(pilot, pane)

    async def again(app, pilot, pane):
        assert sources(pane)[:2] == [ROCK, ROCK]
        assert "sources" not in pane.status()

    in_jobs(tmp_path, turn, platforms=("linux", "pc"), memory=memory)
    in_jobs(tmp_path, again, platforms=("linux", "pc"), memory=memory, filler=lambda _store, _log_dir: None)
    in_jobs(tmp_path, again, platforms=("linux",), filler=lambda _store, _log_dir: None)


@on_two_platforms
async def test_arrows_show_and_hide_the_jobs_of_a_source(app, pilot, pane):
    await pilot.press("j", "right")
    assert (pane.store.row_count(), pane.table.cursor) == (
        6,
        1,
    )  # A source with one job cannot be expanded, so → scrolls the long texts of its line.
    await pilot.press("left", "k", "right")
    assert [status(pane, at) for at in (0, 1, 2)] == [
        ["✗ failed", f"▾ {ROCK}", "2 of 2"], ["✗ failed", "    Image Compile", "linux"], ["✗ failed", "    Image", "pc"],
    ]  # fmt: skip
    await pilot.press("j", "j")
    await details_of(pilot, pane, 2)
    await pilot.press("left")
    assert (pane.store.row_count(), pane.table.cursor, pane.selection.key) == (6, 0, 2)
    await pilot.click(pane.table, offset=(17, 1))
    assert pane.store.row_count() == 8
    await pilot.click(pane.table, offset=(17, 1))
    assert (pane.store.row_count(), pane.table.cursor) == (6, 0)


@on_two_platforms
async def test_going_to_a_job_expands_the_line_of_its_source(app, pilot, pane):
    pane.reveal("#2")
    await until(pilot, lambda: pane.table.cursor_key == 2)
    await details_of(pilot, pane, 2)
    assert status(pane)[1] == f"▾ {ROCK}"
    pane.reveal("#3")
    await until(pilot, lambda: pane.table.cursor_key == 3)
    assert status(pane, pane.table.cursor)[1] == f"  {SAND}"


@on_two_platforms
async def test_filter_shows_only_matching_jobs_of_a_source(app, pilot, pane):
    await pilot.press("right")
    await typed(pilot, pane, "platform:pc")
    await until(pilot, lambda: [status(pane, at) for at in range(pane.store.row_count())] == [["✗ failed", f"  {ROCK}", "pc"]])
    await sees(pilot, app, "1 source, 1 of 7")
    await pilot.press("ctrl+u", *"rock_01")
    await settled(pilot, pane)
    await until(pilot, lambda: pane.store.cell(0, "source").spans == ((11, 18),))
    assert len(sources(pane)) == 3


@on_two_platforms
async def test_actions_and_copies_of_a_source_include_all_its_jobs(app, pilot, pane):
    await details_of(pilot, pane, 1)
    await pilot.press("r")
    await until(pilot, lambda: app.session.asked == [ReprocessJobs(job_ids=(1, 2))])
    await pilot.press("full_stop")
    await sees(pilot, app, f"{ROCK}: 2 jobs")
    await pilot.press("escape", "y", "y")
    await until(pilot, lambda: app.copied)
    await pilot.press("y", "t", "y", "e")
    await until(pilot, lambda: len(app.copied) == 3)
    await pilot.press("space", "k", "y")
    await sees(pilot, app, "Copy first error with details")
    await pilot.press("e")
    await until(pilot, lambda: len(app.copied) == 4)
    path, rows, error, marked_error = (words for words, _ in app.copied)
    assert error == marked_error
    assert path.endswith(ROCK)
    assert "\n" not in path
    assert [row.split("\t")[:2] for row in rows.splitlines()] == [["✗ failed", ROCK]] * 2
    assert error.count("IDAT chunk") == 1  # both jobs failed for one cause


@on_two_platforms
async def test_marking_a_source_marks_its_jobs(app, pilot, pane):
    await pilot.press("space")
    await sees(pilot, app, "2 marked")
    await pilot.press("k", "right", "j", "space")  # unmarks the first job
    await sees(pilot, app, "1 marked")
    await pilot.press("t", "r")
    await until(pilot, lambda: app.session.asked == [ReprocessJobs(job_ids=(2,))])
    await pilot.press("u", "t")
    await settled(pilot, pane)
    await pilot.press("g", "left", "v", "j", "v")
    await sees(pilot, app, "3 marked")


def three(store, log_dir) -> None:
    fill(store, log_dir)
    store.put(put_job=[job_row(at, 2, platform="pc", job_key=f"Key{at}", warnings=0, completed_ms=NOW_MS - 4000, last_log="")
                       for at in (21, 22)])  # fmt: skip


@on_jobs(platforms=("linux", "pc"), filler=three)
async def test_shown_log_changes_only_if_another_job_of_the_source_fails(app, pilot, pane):
    def report(job_id: int, word: str, **changes: object) -> None:
        pane.store.apply(Batch(jobs=(JobNews(notice(job_id, word, **changes), is_later=True, received_ms=NOW_MS),)))
        app.wake()

    pane.reveal("sand")
    await details_of(pilot, pane, 3)  # the log of job 3 has a warning
    assert status(pane) == ["! 1 warning", f"▸ {SAND}", "1 of 3 jobs"]
    assert [pane.store.cell(0, column).text for column in ("key", "number")] == ["3 keys", ""]
    report(3, "processing", warnings=1)
    report(21, "processing", platform="pc")
    await until(pilot, lambda: status(pane)[::2] == ["▶ processing", "2 of 3 jobs"])
    report(3, "completed")
    await until(pilot, lambda: status(pane)[::2] == ["▶ processing", "1 of 3 jobs"])
    await details_of(pilot, pane, 3)
    assert pane.selection.key == 3
    report(21, "pending", platform="pc")
    await until(pilot, lambda: status(pane)[::2] == ["· pending", "1 of 3 jobs"])
    assert pane.store.cell(0, "completed").text == moment_text(NOW_MS, pane.store._clock_ms())
    assert pane.store.cell(0, "duration").text == "1.50 s"
    report(21, "failed", platform="pc", error="boom", errors=1)
    await details_of(pilot, pane, 21)
    assert pane.store.cell(0, "reason").text == "boom"
    assert is_source_key(pane.table.cursor_key)


@on_two_platforms
async def test_next_failure_key_visits_each_job_only_if_source_is_expanded(app, pilot, pane):
    async def walk(count: int) -> list[int]:
        places = []
        for _ in range(count):
            await pilot.press("e")
            places.append(pane.table.cursor)
        return places

    assert await walk(3) == [1, 0, 1]
    await pilot.press("g", "right")
    assert await walk(4) == [1, 2, 3, 1]


@on_two_platforms
async def test_new_job_is_added_to_the_table_row_of_its_source(app, pilot, pane):
    await pilot.press("j")
    key, before = pane.table.cursor_key, pane.store.row_count()
    pane.store.apply(
        Batch(jobs=(JobNews(notice(77, "pending", source="x.lua", platform="pc"), is_later=True, received_ms=NOW_MS),))
    )
    app.wake()
    at = next(at for at, name in enumerate(sources(pane)) if name.endswith("x.lua"))
    assert pane.store.jobs_of(pane.store.key(at))[-1] == 77
    assert (pane.store.row_count(), pane.store.late_count) == (before, 0)
    await until(pilot, lambda: pane.table.index_of(key) == pane.table.cursor)
