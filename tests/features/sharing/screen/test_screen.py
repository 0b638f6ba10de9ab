"""The Shared cache screen: its contents and keys, and that impossible commands are not offered."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from contextlib import asynccontextmanager
from importlib import import_module

import pytest

from aptui.core.notices import EngineMessage, ProductsChanged, Progress
from aptui.features.sharing.screen import cache_contents
from aptui.features.sharing.screen import screen as rows
from aptui.link.port import ReprocessJobs, RescanSources
from aptui.store.db.schema import uuid_text
from aptui.tui.data.session import NoSession
from aptui.tui.pane import PaneSpec
from aptui.tui.terminal.safety import TerminalFacts, install
from aptui.tui.widgets.menu import Menu
from tests.store.conftest import job_row, product_row, source_row
from tests.tui.database import database
from tests.tui.fake_panes import PROBES, FakeSession
from tests.tui.shell_harness import LARGE, SMALL, shell, text, until

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("own_homes")]

PANES = [PaneSpec("cache", 6, "Cache", "Cache", "aptui.features.sharing.screen.screen:CachePane"), PROBES[1]]
EVIL = "[/oops]\x1b]0;EVIL\x07\x1b[31m"
MADE = b"as made"
NAMES = ["linux/textures/a.png", "linux/textures/b.png", "linux/data/c.json", "pc/data/c.json", "linux/readme.txt"]


@pytest.fixture
def store(tmp_path):
    """A cache with five products of two jobs, one of them made today."""
    (tmp_path / "cache").mkdir()
    with database(tmp_path / "cache") as made:
        rows = []
        for number, name in enumerate(NAMES, 1):
            row = list(product_row(number, 1 if number < 3 else 2, name))
            row[-2:] = [hashlib.sha256(MADE).digest(), 1000 * number]
            rows.append(tuple(row))
            file = tmp_path / "cache" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(MADE)
        made.put(
            put_source=[source_row(1, "textures/A.png"), source_row(2, f"data/{EVIL}c.json")],
            put_job=[
                job_row(1, 1, completed_ms=1 << 50, inputs='[["rule","painter","00"]]'),
                job_row(2, 2, builder=b"X" * 16, completed_ms=1, last_ms=1),
            ],
            put_product=rows,
            put_cache_folder=[(folder, 1) for folder in ("linux", "linux/textures", "linux/data", "pc/data")],
        )
        yield made


@asynccontextmanager
async def in_cache(tmp_path, *, size=LARGE, session=None, shown=True, panes=PANES):
    """Open the screen and wait for the contents of the cache."""
    async with shell(tmp_path, size=size, session=session, panes=panes) as (app, pilot, engine):
        if shown:
            await until(pilot, lambda: app.pane.inventory.contents is not None)
            await pilot.pause()
        yield app, pilot, engine


def damage(tmp_path) -> None:
    (tmp_path / "cache" / NAMES[0]).write_bytes(b"damaged")
    (tmp_path / "cache" / NAMES[2]).unlink()


async def press_and_wait(app, pilot, key: str) -> None:
    await pilot.press(key)
    await until(pilot, lambda: not app.pane.examination.is_busy and app.pane.examination.ended_ms)
    await pilot.pause()


async def say(app, pilot, line: str, *keys: str) -> None:
    """Enter a command."""
    app.bar.action_open(line)
    await pilot.press("enter", *keys)


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_cache_screen_shows_platforms_and_folders_and_builders_and_new_products(tmp_path, store, size):
    async with in_cache(tmp_path, size=size) as (app, _pilot, _session):
        shown = text(app)
        for part in (
            "5 products",
            "15 KiB",
            "2 made in the last 24 h",
            "free on its disk",
            "linux",
            "pc",
            "textures/",
            "data/",
        ):
            assert part in shown
        assert "(top level)" in shown
        assert app.pane.status() == "5 products, 15 KiB"
        assert "2, 2.9 KiB" in shown
        assert "painter" in shown, "the list shows the builder's name as stored in its jobs"
        assert uuid_text(b"X" * 16)[:20] in shown


async def test_cache_screen_without_a_database_offers_no_checks(tmp_path):
    async with in_cache(tmp_path, shown=False) as (app, pilot, _session):
        await until(pilot, lambda: app.pane.inventory.trouble)
        await pilot.press("V", "U", "r", "D", "c")

        await until(pilot, lambda: "there is no asset database" in text(app))
        assert app.pane.examination.progress is None
        assert not {name for _, name, _ in app.actions_here() if name in {"cache.verify", "cache.unowned", "cache.repair"}}


async def test_cache_check_finds_and_repairs_damaged_and_missing_products(tmp_path, store):
    damage(tmp_path)
    async with in_cache(tmp_path) as (app, pilot, session):
        await press_and_wait(app, pilot, "V")
        await until(pilot, lambda: "2 of 5 products differ from their record" in text(app))
        await until(pilot, lambda: "✗ damaged    linux/textures/a.png" in text(app))
        await until(pilot, lambda: "! missing    linux/data/c.json" in text(app))
        await until(pilot, lambda: app.focused.id == "cache-findings")
        await pilot.press("G", "r")
        await until(pilot, lambda: "run the jobs of these sources again?" in text(app))
        await pilot.press("t", "g", "r")
        assert "\x1b" not in text(app)
        await pilot.press("escape")
        await pilot.press("r", "n", "r", "a")

        await until(
            pilot,
            lambda: (
                session.asked
                == [
                    ReprocessJobs(keys=("textures/a.png",)),
                    ReprocessJobs(keys=("textures/a.png", f"data/{EVIL}c.json".lower())),
                ]
            ),
        )


async def test_cache_check_without_findings_reports_a_valid_cache(tmp_path, store):
    async with in_cache(tmp_path, size=SMALL) as (app, pilot, _session):
        assert not app.pane.query_one("#cache-look").display
        await press_and_wait(app, pilot, "V")

        await until(pilot, lambda: "5 products match their records" in text(app))
        await until(pilot, lambda: not app.pane.has_class("-found"))
        assert app.pane.query_one("#cache-look").display


async def test_cache_check_shows_progress_and_can_be_cancelled(tmp_path, store, monkeypatch):
    goes_on, examined = threading.Event(), cache_contents.examine_products
    monkeypatch.setattr(cache_contents, "_REPORT_EVERY_S", -1.0)

    def slow(reader, cache_dir):
        for number, each in enumerate(examined(reader, cache_dir)):
            yield each
            if number == 1:
                goes_on.wait(20)

    monkeypatch.setattr(cache_contents, "examine_products", slow)
    async with in_cache(tmp_path) as (app, pilot, _session):
        await pilot.press("V")
        await until(pilot, lambda: "2 of 5 products" in text(app))
        await until(pilot, lambda: "c cancels" in text(app))
        await pilot.press("V", "U")
        app.pane.action_verify()
        await pilot.press("c")
        goes_on.set()
        await until(pilot, lambda: not app.pane.examination.is_busy)
        await pilot.pause()

        await until(pilot, lambda: "2 products match their records so far" in text(app))
        await until(pilot, lambda: "being read already" in text(app))


async def test_leaving_the_screen_ends_the_thread_of_a_cache_check(tmp_path, store, monkeypatch):
    examined = cache_contents.examine_products

    def endless(reader, cache_dir):
        while not threading.Event().wait(0.01):
            yield from examined(reader, cache_dir)

    monkeypatch.setattr(cache_contents, "examine_products", endless)
    async with in_cache(tmp_path) as (app, pilot, _session):
        await pilot.press("V")
        await until(pilot, lambda: app.pane.examination.is_busy)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("aptui-cache")]


async def test_unowned_files_are_listed_and_deleted_after_confirmation(tmp_path, store):
    cache = tmp_path / "cache"
    (cache / "linux/data/stray.tmp").write_bytes(b"12")
    (cache / "linux/lonely").mkdir()
    (cache / "linux/lonely/x").write_bytes(b"1")
    os.utime(cache / "linux/data", ns=(5, 5))
    async with in_cache(tmp_path) as (app, pilot, session):
        await press_and_wait(app, pilot, "U")
        await until(pilot, lambda: "2 files, 3 B" in text(app))
        await until(pilot, lambda: "○ unowned    linux/data/stray.tmp" in text(app))
        await pilot.press("D")
        await until(pilot, lambda: "delete 1 file, 1 elsewhere stay?" in text(app))
        await pilot.press("n", "D", "y")
        await until(pilot, lambda: session.asked)
        await until(pilot, lambda: session.asked == [RescanSources()])
        assert (cache / "linux/data").stat().st_mtime_ns > 5

        (cache / "linux/data/stray.tmp").unlink()  # the simulated engine deletes the unowned file
        session.say(EngineMessage(0, 1, "'linux/data/stray.tmp' in the cache was deleted, because it does not belong to a product"))
        await until(pilot, lambda: not app.pane.repair_commands.going)
        await until(pilot, lambda: "are deleted" in text(app))
        await until(pilot, lambda: "stray.tmp " not in text(app).split("Unowned")[1])
        await pilot.press("D")
        await until(pilot, lambda: "delete 'linux/lonely' yourself" in text(app))


async def test_findings_are_listed_but_not_repaired_without_an_engine(tmp_path, store):
    damage(tmp_path)
    (tmp_path / "cache/linux/stray").write_bytes(b"")
    session = NoSession("game", tmp_path / "cache")
    session.done = ["open"]
    async with in_cache(tmp_path, session=session) as (app, pilot, _session):
        await press_and_wait(app, pilot, "V")
        await pilot.press("r")
        await until(pilot, lambda: "run the jobs again" not in text(app))
        assert "cache.repair" not in {name for _, name, _ in app.actions_here()}
        await pilot.press("enter")
        await until(pilot, lambda: "Copy its path" in text(app))
        assert "Run its jobs" not in text(app)
        await pilot.press("escape")
        await press_and_wait(app, pilot, "U")
        await pilot.press("D")

        assert "delete" not in text(app).splitlines()[-1]
        assert {"repair", "delete"}.isdisjoint(each.name for each in app.commands())


async def test_menu_of_a_finding_runs_its_jobs_again_and_copies_its_paths(tmp_path, store):
    damage(tmp_path)
    async with in_cache(tmp_path) as (app, pilot, session):
        copied = []
        app.copy_text = copied.append
        await press_and_wait(app, pilot, "V")
        for keys in (["enter", "r"], ["full_stop", "y"], ["enter", "s"], ["y"]):
            await pilot.press(*keys)
        app.query_one("#cache-platforms").focus()
        await pilot.press("y")
        await until(pilot, lambda: not app.screen.query(Menu))
        await until(pilot, lambda: session.asked == [ReprocessJobs(keys=(f"data/{EVIL}c.json".lower(),))])
        assert copied[0] == str(tmp_path / "cache" / NAMES[2])
        assert copied[1] == f"data/{EVIL}c.json"
        assert copied[2].startswith("! missing\tlinux/data/c.json")
        assert "\t" in copied[3]
        assert "━" not in copied[3], "the copied row has no bar characters from the column that draws a bar"


async def test_enter_key_on_a_finding_shows_the_job_of_the_finding(tmp_path, store, monkeypatch):
    damage(tmp_path)
    shown = []
    probe = import_module("tui.fake_panes").JobsProbe
    monkeypatch.setattr(probe, "reveal", lambda _pane, text: shown.append(text), raising=False)
    async with in_cache(tmp_path, panes=[PANES[0], PROBES[0]]) as (app, pilot, _session):
        await press_and_wait(app, pilot, "V")
        await pilot.press("enter", "j")
        await until(pilot, lambda: shown == ["#2"])

        await until(pilot, lambda: app.pane.name_of_pane == "jobs")


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_largest_products_are_listed_and_the_enter_key_shows_them_in_assets(tmp_path, store, size):
    gone_to = []
    async with in_cache(tmp_path, size=size) as (app, pilot, _session):
        app.reveal = lambda *where: gone_to.append(where)
        await until(pilot, lambda: re.search("Largest products .*\n.* linux/readme.txt .* 4.9 KiB", text(app)))
        app.pane.tables.products.focus()
        await pilot.press("enter")
        await until(pilot, lambda: gone_to == [("assets", "linux/readme.txt")])


async def test_tables_are_sorted_and_the_order_is_saved(tmp_path, store):
    async with in_cache(tmp_path) as (app, pilot, _session):
        table = app.pane.query_one("#cache-folders")
        table.focus()
        assert next(each.data.name for each in app.pane.tables.folders.model.records) == "data/"
        await pilot.press("S", "enter")
        await until(pilot, lambda: table.sort == ("name", False))
        table.post_message(table.HeaderClicked(table, "count"))
        await pilot.pause()
        table.post_message(table.HeaderClicked(table, "count"))
        await pilot.pause()
        await until(pilot, lambda: table.sort == ("count", False))
        await until(pilot, lambda: next(each.data.name for each in app.pane.tables.folders.model.records) == "(top level)")
    assert app.memory.get("cache.sort.folders", []) == ["count", False]
    async with in_cache(tmp_path) as (app, *_):
        assert app.pane.query_one("#cache-folders").sort == ("count", False)


async def test_zoom_enlarges_the_findings(tmp_path, store):
    damage(tmp_path)
    async with in_cache(tmp_path) as (app, pilot, _session):
        await press_and_wait(app, pilot, "V")
        await pilot.press("z")
        await until(pilot, lambda: not app.pane.query_one("#cache-columns").display)
        await pilot.press("z")

        await until(pilot, lambda: app.pane.query_one("#cache-columns").display)


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_inventory_is_read_again_after_changes_when_the_engine_is_idle(tmp_path, store, size):
    busy = Progress(0, 1, 0, 0, 5, 1, 0, 0, False)
    session = FakeSession(tmp_path / "cache")
    async with in_cache(tmp_path, session=session, size=size) as (app, pilot, session):
        before = app.pane.inventory.contents
        session.latest_progress = busy
        row = list(product_row(9, 1, "linux/textures/new.png"))
        store.put(put_product=[tuple(row)])
        session.say(ProductsChanged(0, (("linux/textures/new.png", "00"),)))
        await until(pilot, lambda: re.search(r"as of \d\d:\d\d:\d\d  .* free on its disk", text(app)))
        assert app.pane.inventory.contents is before
        session.latest_progress = Progress(0, 1, 0, 0, 0, 0, 6, 0, False)
        session.say(session.latest_progress, 2)
        await until(pilot, lambda: "6 products" in text(app))

        await until(pilot, lambda: "as of" not in text(app))


async def test_commands_of_the_cache_screen_do_the_same_as_its_keys(tmp_path, store):
    damage(tmp_path)
    async with in_cache(tmp_path) as (app, pilot, session):
        await say(app, pilot, "verify")
        await until(pilot, lambda: not app.pane.examination.is_busy and app.pane.examination.ended_ms)
        await say(app, pilot, "repair", "a")
        await until(pilot, lambda: len(session.asked) == 1)
        await say(app, pilot, "unowned")
        await until(pilot, lambda: app.pane.examination.kind == "unowned" and not app.pane.examination.is_busy)

        await until(pilot, lambda: "every file belongs to a product" in text(app))


async def test_hostile_names_are_drawn_as_text(tmp_path, store):
    damage(tmp_path)
    install(TerminalFacts())
    async with in_cache(tmp_path, size=(200, 40)) as (app, pilot, _session):
        await press_and_wait(app, pilot, "V")

        await until(pilot, lambda: "[/oops]" in text(app))
        assert "\x1b" not in text(app)


async def test_unreadable_cache_is_not_shown_as_empty(tmp_path, store, monkeypatch):
    monkeypatch.setattr(cache_contents.os, "access", lambda *_: False)
    async with in_cache(tmp_path) as (app, pilot, _session):
        await pilot.press("V")
        await until(pilot, lambda: "cannot be read" in text(app))

        assert app.pane.examination.progress is None


@pytest.mark.parametrize(
    ("made", "is_reported"), [((4, 2), False), ((0, 0), False), ((4, 0), True), ((1, 2), True)], ids=["all", "none", "one", "some"]
)
def test_column_of_new_products_is_shown_only_if_platforms_differ(made, is_reported):
    platforms = [
        cache_contents.CacheShare(name, of, 10, 20, new, 5) for name, of, new in zip(("linux", "server"), (4, 2), made, strict=True)
    ]

    assert ("made" in {column.id for column in rows.platform_columns(platforms)}) is is_reported


async def test_empty_cache_is_shown_as_one_sentence_without_tables(tmp_path):
    (tmp_path / "cache").mkdir()
    with database(tmp_path / "cache"):
        async with in_cache(tmp_path) as (app, pilot, _session):
            await until(pilot, lambda: "no products yet; the products of jobs appear here" in text(app))
            assert not any(app.pane.query_one(f"#cache-{name}").display for name in ("builders", "folders"))
