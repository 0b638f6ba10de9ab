"""Keys, menus and commands run actions on jobs. Some actions open other programs or copy text."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock, patch

import pytest

from aptui.core.notices import ShowRequested
from aptui.features.gateway.engine_requests import ShowSource
from aptui.link.port import Cancel, EscalateJobs, ReprocessJobs
from aptui.shared.connections.peers import GatewayReport, PeerSettings
from aptui.tui.data.session import EngineFacts
from aptui.tui.frame import terminal_control
from aptui.tui.pane import PANES
from aptui.tui.screens.jobs.job_actions import RowActions
from aptui.tui.widgets.menu import Menu
from tests.tui.fake_panes import PROBES
from tests.tui.jobs_harness import LOG, in_jobs, notice
from tests.tui.shell_harness import lines, text, until

from .jobs_pane_harness import INFO, details_of, on_jobs, sees

pytestmark = pytest.mark.real


@on_jobs()
async def test_marked_jobs_can_be_run_again_or_cancelled_or_run_next(app, pilot, pane):
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


@on_jobs()
async def test_cancelled_jobs_are_no_longer_shown_as_running(app, pilot, pane):
    for job_id in (3, 4):  # Job 3 is running and job 4 is pending.
        pane.table.move_to_key(job_id)
        await details_of(pilot, pane, job_id)
        app.session.say(notice(job_id, "processing" if job_id == 3 else "pending"), 2 * job_id)
        await until(pilot, lambda job_id=job_id: pane.store.info(job_id).status in ("processing", "pending"))
        await until(pilot, lambda: not pane.resting.has_just_flipped)
        await pilot.press("c")
        await until(pilot, lambda job_id=job_id: Cancel((job_id,)) in app.session.asked)
        app.session.say(notice(job_id, "cancelled"), 2 * job_id + 1)
        await until(pilot, lambda: not pane.changes.ticks and "▶" not in text(app) and "cancelled" in text(app))
    await until(pilot, lambda: pane.store.counts()["cancelled"] == 2)
    await sees(pilot, app, "no log: the job was cancelled before it ended")


@on_jobs(panes=[PANES[0], PROBES[1]])
async def test_digits_typed_in_an_open_menu_do_not_switch_panes(app, pilot, pane):
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


@on_jobs()
async def test_cursor_stays_on_a_job_that_the_user_runs_again(app, pilot, pane):
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


@on_jobs()
async def test_commands_run_actions_on_selected_jobs(app, pilot, pane):
    next(each for each in pane.commands() if each.name == "reprocess").run("")
    await until(pilot, lambda: app.session.asked == [ReprocessJobs(job_ids=(1,))])
    assert {"reprocess", "cancel", "escalate", "copy", "why"} <= {each.name for each in pane.commands()}


@on_jobs()
async def test_show_key_sends_source_to_connected_editor(app, pilot, pane):
    source = pane.store.info(pane.table.cursor_key).source
    await pilot.press("V")
    await until(pilot, lambda: "the gateway is not running" in text(app))
    assert app.session.asked == []
    app.session.gateway = GatewayReport("127.0.0.1", 45_650, PeerSettings())
    await pilot.press("V")
    await until(pilot, lambda: app.session.asked == [ShowSource(source=source)])
    app.session.gateway, app.session.engine = None, EngineFacts(ports={"o3de": 45_643})
    await pilot.press("V")
    await until(pilot, lambda: app.session.asked == [ShowSource(source=source)] * 2)


@on_jobs(panes=[PANES[0], PROBES[1]])
async def test_assets_screen_opens_when_an_editor_shows_an_asset(app, pilot):
    app.session.say(ShowRequested(1, "a.png", on_screen=True))
    await until(pilot, lambda: "assets" in app.switcher.mounted and app.switcher.pane is app.switcher.mounted["assets"])


@on_jobs()
async def test_hints_hide_action_keys_while_typing(app, pilot):
    await until(pilot, lambda: "/ filter" in lines(app)[-1])
    await pilot.press("slash")
    await until(pilot, lambda: "keep" in lines(app)[-1] and "cancel" in lines(app)[-1])
    assert "/ filter" not in lines(app)[-1]
    assert "+ run next" not in lines(app)[-1]


@pytest.mark.parametrize(("count", "title"), [(20, "Products"), (1_300, "20 of 1,300 products")])
def test_menu_of_products_counts_the_products_that_it_leaves_out(count, title):
    actions = RowActions(Mock())

    with patch.object(actions, "query", lambda _question, then: then(["a.dds"] * count)), patch.object(Menu, "ask") as ask:
        actions.products([INFO])

    assert (len(ask.call_args.args[1]), ask.call_args.kwargs["title"]) == (20, title)


def test_row_menu_writes_capsule_into_start_folder(tmp_path, monkeypatch):
    ran = []

    def run(command, **_named):
        ran.append(command)
        return SimpleNamespace(returncode=0, stdout="rock_01.png@linux.capsule.tgz: 1 input\n", stderr="")

    async def do(app, pilot, pane):
        monkeypatch.setattr("aptui.tui.screens.jobs.job_actions.subprocess.run", run)
        monkeypatch.chdir(tmp_path)
        pane.actions.run("capsule")
        await until(pilot, lambda: "rock_01.png@linux.capsule.tgz: 1 input" in text(app))

    in_jobs(tmp_path, do)

    file = str(tmp_path / "rock_01.png@linux.capsule.tgz")
    python = [sys.executable, "-P"]  # without -P, Python would run a folder `aptui` of the current directory
    assert ran == [[*python, "-m", "aptui", "-C", str(tmp_path), "--color", "never", "capsule", "#1", "--out", file]]


@on_jobs()
async def test_row_menu_offers_available_actions(app, pilot, pane):
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
    assert "View builder" not in text(app)  # This app has no Builders screen.
    await pilot.press("r")
    await until(pilot, lambda: app.session.asked == [ReprocessJobs(job_ids=(pane.table.cursor_key,))])


@on_jobs(read_only=True)
async def test_read_only_screen_offers_no_requests(app, pilot, pane):
    await pilot.press("r", "c", "plus", "full_stop")
    await until(pilot, lambda: "Why" in text(app))

    assert "Run again" not in text(app)
    assert "run again" not in lines(app)[-1]
    await pilot.press("escape")
    for key, what in (("r", "run again"), ("P", "pause"), ("Q", "stop the engine"), ("c", "cancel")):
        await pilot.press(key)
        await sees(pilot, app, f"cannot {what}: the screen is read-only")
    assert app.session.asked == []


def test_keys_open_the_log_the_source_and_the_folder(tmp_path, monkeypatch):
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
        await details_of(pilot, pane, 1)
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


@on_jobs()
async def test_job_rows_are_copied_in_each_offered_form(app, pilot, pane, tmp_path):
    await details_of(pilot, pane, 1)
    await pilot.press("y", "enter")  # `y` opens the menu, and Enter copies the first error.
    assert app.copied.pop()[0].endswith("IDAT chunk\n[Chunk] = IDAT\n[Offset] = 0x0012F3A0\n[Trace] = png.py(212): decode")
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
    await pilot.press("space", "space", "y", "e")  # The second job has no log.
    await until(pilot, lambda: app.copied[-1][0].startswith("textures/rock_01.png (linux)\n"))
    assert app.copied[-1][0].endswith("\n\ntextures/rock_01.png (pc)\nIDAT chunk is broken\nmore")
    await pilot.press("u")
    pane.table.move_to_key(5)
    await pilot.press("y", "r")
    # This name is not valid UTF-8; its bytes are copied unchanged.
    await until(pilot, lambda: app.copied[-1] == ("textures/bad\udce9name.png", True))
    pane.table.move_to_key(6)
    await pilot.press("y", "r")
    await until(pilot, lambda: app.copied[-1][1] is False)  # The name has control characters, which are removed.


@on_jobs()
async def test_log_line_is_copied_in_each_offered_form(app, pilot, pane):
    await pilot.press("enter")
    await details_of(pilot, pane, 1)
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
                "[Chunk] = IDAT\n[Offset] = 0x0012F3A0\n[Trace] = png.py(212): decode",
            ]
        ),
    )
