"""The trees of the Assets screen: search, problems, and keys that wait for search results and rows."""

import asyncio
import sqlite3
import threading
from contextlib import closing

import pytest
from textual import events
from textual.keys import _character_to_key
from textual.widgets import Input

from aptui.core.notices import JobChanged, SourcesChanged
from aptui.shared.errors import HostError, KnownError
from aptui.store.db.schema import uuid_text
from aptui.tui.data import assets_store
from aptui.tui.data.assets_store import Kind
from aptui.tui.data.feed import Batch, JobNews
from aptui.tui.pane_switcher import PaneSwitcher
from aptui.tui.screens.assets import asset_navigation
from aptui.tui.screens.assets import asset_trees as live
from aptui.tui.screens.assets import asset_trees as tree_search
from aptui.tui.screens.assets.asset_detail import AssetDetail, FilePreview, ReferenceTree, TreeTabs
from aptui.tui.screens.assets.asset_trees import AssetTreeView
from aptui.tui.screens.assets.assets_pane import TIGHT
from aptui.tui.shell_commands import run
from aptui.tui.widgets.filterbox import FilterBox
from aptui.tui.widgets.menu import Menu
from aptui.tui.widgets.table import lay_out
from tests.store.conftest import job_row, source_row, uuid_of
from tui.database import database
from tui.fake_panes import FakeSession
from tui.shell_harness import LARGE, SMALL, in_shell, lines, text, until

from .assets_harness import MEDIUM, PANES, at, changed, cursor_on, go, in_assets, on_assets, press, put_on_reference, row_of, shows

pytestmark = pytest.mark.real


@on_assets(size=(60, 20))
async def test_search_count_with_thousands_of_hits_fits_60_columns(app, pilot, pane):
    pane.query_one(TreeTabs).show(Kind.SOURCES, dict.fromkeys(Kind, 12_408), is_roomy=False, is_brief=TIGHT > 60)
    pane.box.show_count("1,234 of 12,408")
    await until(pilot, lambda: any("1,234 of 12,408" in line for line in lines(app)))


@on_assets(size=SMALL)
async def test_zoom_key_shows_preview_on_narrow_screen_and_returns_to_tree(app, pilot, pane):
    await go(pilot, pane, "textures/rock.png")
    await until(pilot, lambda: "⏎ details" in text(app))
    assert "z zoom" in lines(app)[-1]
    await until(pilot, lambda: pane.selected.panel is not None and pane.selected.panel.path == "textures/rock.png")
    await until(pilot, lambda: pane.query_one(FilePreview) in pane.query_one(AssetDetail).parts)
    for back in ("z", "escape"):
        assert "Preview" not in text(app)
        await press(pilot, "z")
        await until(pilot, lambda: "Preview" in text(app))
        assert "Digest" not in text(app)
        assert pane.query_one(FilePreview).size.height >= 16
        await press(pilot, back)
        await until(pilot, lambda: pane.trees.view.has_focus)
        await until(pilot, lambda: "Preview" not in text(app))
    await press(pilot, "enter", "escape")
    await until(pilot, lambda: pane.trees.view.has_focus)


@on_assets()
async def test_n_key_steps_through_search_hits_and_escape_restores_the_tree(app, pilot, pane):
    await press(pilot, "-")
    await press(pilot, "/", *"rock")
    await until(pilot, lambda: "2 of 5" in text(app))
    await until(pilot, lambda: cursor_on(pane) == "mesh/rock.fbx")
    await until(pilot, lambda: pane.trees.model.cell(pane.trees.view.node, "name").spans == ((0, 4),))
    await press(pilot, "enter", "n")
    await until(pilot, lambda: cursor_on(pane) == "textures/rock.png")
    await press(pilot, "n")
    await until(pilot, lambda: cursor_on(pane) == "mesh/rock.fbx")
    await press(pilot, "N")
    await until(pilot, lambda: cursor_on(pane) == "textures/rock.png")
    tree = pane.trees.model.tree
    pane.readers.store.mark_stale()
    await until(pilot, lambda: pane.trees.model.tree is not tree)
    await press(pilot, "escape")
    await until(pilot, lambda: "2 of 5" not in text(app))
    await until(pilot, lambda: cursor_on(pane) == "textures/rock.png")
    await until(pilot, lambda: pane.trees.view.index_of(4) is None)
    pane.box.text = "a("
    await until(pilot, lambda: "^ " in text(app))
    pane.box.text = "no such name"
    await until(pilot, lambda: "nothing matches; press Esc to clear the search" in text(app))
    pane.box.text = "a("
    await until(pilot, lambda: "the search failed; press Esc to clear" in text(app))
    pane.box.text = uuid_text(uuid_of(2)).lower()
    await until(pilot, lambda: "1 of 5" in text(app))
    await press(pilot, "t", "t")
    await until(pilot, lambda: pane.trees.kind is Kind.PRODUCTS and "1 of 3" in text(app))
    pane.box.text = "linux/.*dds$"
    await until(pilot, lambda: "1 of 3" in text(app) and cursor_on(pane) == "linux/textures/rock.dds")
    pane.reveal("common/mesh/rock.model")
    await until(pilot, lambda: cursor_on(pane) == "common/mesh/rock.model")
    await until(pilot, lambda: pane.box.text == "")


@on_assets()
async def test_search_that_is_repeated_after_an_error_says_that_nothing_matches(app, pilot, pane):
    await press(pilot, "/", *"nothing")
    await until(pilot, lambda: "nothing matches; press Esc" in text(app))
    pane.search.show_error(HostError("the database is locked", where="Cache"))
    pane.live.explain_empty_tree()
    await until(pilot, lambda: "the search failed; press Esc" in text(app))

    pane.readers.store.mark_stale()

    await until(pilot, lambda: "nothing matches; press Esc" in text(app))


@on_assets()
async def test_asset_trees_can_be_switched_by_key_or_click_or_command(app, pilot, pane):
    for key, kind in (
        ("t", Kind.INTERMEDIATES),
        (">", Kind.PRODUCTS),
        ("t", Kind.SOURCES),
        ("<", Kind.PRODUCTS),
    ):
        await press(pilot, key)
        await until(pilot, lambda kind=kind: pane.trees.kind is kind and app.focused is pane.trees.view)
    await pilot.click("#assets-tabs", offset=(lines(app)[3].index("Intermediates"), 0))
    await until(pilot, lambda: pane.trees.kind is Kind.INTERMEDIATES)
    run(app, "sources lua", app.commands())
    await until(pilot, lambda: pane.trees.kind is Kind.SOURCES and "1 of 5" in text(app))
    run(app, "asset nothing/there", app.commands())
    await until(pilot, lambda: "'nothing/there' is not an asset" in text(app))
    await until(pilot, lambda: pane.status() == "Sources: 5")


def test_notices_update_tree_and_details_without_moving_cursor(tmp_path, store, monkeypatch):
    monkeypatch.setattr(live, "STALE_S", 0.05)

    async def script(app, pilot, pane, session):
        await go(pilot, pane, "textures/rock.png")
        put_on_reference(pane, "server")
        references = pane.query_one(ReferenceTree)
        line, ref = references.cursor, references.reference()
        y = pane.trees.view.cursor - pane.trees.view.top
        store.put(put_source=[source_row(9, "a/new.txt")], put_job=[job_row(2, 1, platform="server", warnings=0, run_key=6)])
        session.say(SourcesChanged(0, (("a/new.txt", True),)))
        await until(pilot, lambda: "Sources▾ 6" in text(app))
        assert cursor_on(pane) == "textures/rock.png"
        assert pane.trees.view.cursor - pane.trees.view.top in {y, pane.trees.view.cursor}
        await until(pilot, lambda: "✓ completed" in text(app))
        assert (references.cursor, references.reference().text) == (line, ref.text)
        store.put(put_job=[job_row(2, 1, platform="server", warnings=7, run_key=7)])
        notice = JobChanged(0, 2, "textures/rock.png", 1, "server", "Image", "b", "completed", "", "", 7, 0, 1, "", 7)
        pane.on_news(Batch(jobs=(JobNews(notice, is_later=True, received_ms=0),)))
        pane.shell.wake()
        await until(pilot, lambda: "! 7 warnings" in text(app))
        pane.box.text = "new"
        await until(pilot, lambda: "1 of 6" in text(app))
        store.put(put_source=[source_row(10, "a/newer.txt")])
        session.say(SourcesChanged(0, (("a/newer.txt", True),)))
        await until(pilot, lambda: "2 of 7" in text(app))
        pane.reload()

    in_assets(tmp_path, script, size=LARGE)


def test_empty_tree_explains_what_it_would_list(tmp_path):
    async def script(app, pilot, _pane, _session):
        for words in ("no sources yet", "no intermediates; products that become sources", "no products yet"):
            await shows(app, pilot, words)
            await press(pilot, "t")

    with database(tmp_path):
        in_assets(tmp_path, script, size=SMALL)


@pytest.mark.parametrize(("size", "theme"), [(LARGE, "dark"), (SMALL, "monochrome")])
def test_folder_row_counts_the_problems_below_it_and_is_updated_by_notices(tmp_path, store, monkeypatch, size, theme):
    monkeypatch.setattr(live, "STALE_S", 0.05)

    async def script(app, pilot, pane, _session):
        await until(pilot, lambda: "✗ 1 failed" in row_of(app, "rock.png"))
        assert "✗ 1 failed  ! 1" in row_of(app, "textures")
        assert "✗ 1 with errors" in row_of(app, "scripts")
        await press(pilot, "-", "g")
        if size == LARGE:
            await until(pilot, lambda: pane.selected.panel is not None and pane.selected.panel.is_folder)
            pane.trees.view.move_to_key(pane.trees.model.tree.key(pane.trees.model.tree.node_at("textures")))
            await shows(app, pilot, "1 failed, 1 with warnings")
        await press(pilot, "e")
        await until(pilot, lambda: cursor_on(pane) in {"textures/rock.png", "scripts/door.lua"})
        first = cursor_on(pane)
        await press(pilot, "e")
        await until(pilot, lambda: {first, cursor_on(pane)} == {"textures/rock.png", "scripts/door.lua"})
        await press(pilot, "E")
        await until(pilot, lambda: cursor_on(pane) == first)
        store.put(put_job=[job_row(4, 4, state="failed", status=2, warnings=0)])
        pane.on_news(changed("failed"))
        pane.shell.wake()
        await until(pilot, lambda: "✗ 1 failed" in row_of(app, "scripts"))

    in_assets(tmp_path, script, size=size, theme=theme)


def test_problems_are_read_again_until_the_database_agrees_with_the_notices(tmp_path, store, monkeypatch):
    monkeypatch.setattr(live, "STALE_S", 0.02)

    async def script(app, pilot, pane, _session):
        await until(pilot, lambda: "with errors" in row_of(app, "scripts"))
        before = pane.readers.store.unwell
        pane.on_news(changed("failed", moment=(1 << 40, 1)))
        pane.shell.wake()
        await until(pilot, lambda: pane.readers.store.unwell is not before and "with errors" in row_of(app, "scripts"))
        store.put(put_job=[job_row(4, 4, state="failed", status=2, warnings=0)])  # the database changes, but no notice is sent
        await until(pilot, lambda: "✗ 1 failed" in row_of(app, "scripts"))
        await until(pilot, lambda: pane.live.is_at_rest)

    monkeypatch.setattr(live, "_MOST_READS", 100)
    in_assets(tmp_path, script, size=LARGE)


@on_assets()
async def test_tree_without_problems_has_no_problem_column(app, pilot, pane):
    await shows(app, pilot, "Problems")
    await press(pilot, "t")
    await shows(app, pilot, "▸ mesh")
    await until(pilot, lambda: "Problems" not in text(app))


@pytest.mark.parametrize(
    ("width", "ids"),
    [(46, ["name", "health"]), (64, ["name", "health", "duration"]), (72, ["name", "health", "extension", "duration"])],
)
def test_problems_and_name_columns_get_width_before_extension_and_duration(width, ids):
    columns = {column.id: cells for column, cells in lay_out(AssetTreeView(Kind.SOURCES)._measure_columns(width), width)}

    assert list(columns) == ids
    assert columns["health"] == 22
    assert columns["name"] >= 22


@on_assets(size=LARGE)
async def test_running_job_causes_no_read_of_the_asset_problems(app, pilot, pane):
    await until(pilot, lambda: pane.trees.model.health is not None)
    pane.on_news(changed("processing"))
    assert pane.live.is_at_rest
    await press(pilot, "t", "t", "e")
    await shows(app, pilot, "failed jobs have no products")


@pytest.mark.usefixtures("store")
def test_key_presses_wait_for_the_result_of_an_asset_search(tmp_path, monkeypatch):
    may_search = threading.Event()
    search = tree_search.search
    monkeypatch.setattr(tree_search, "search", lambda *what: may_search.wait() and search(*what))

    async def wait(app, pilot, pane, _session):
        pane.box.text = "rose"
        pane.on_filter_box_changed(FilterBox.Changed(pane.box, "rose"))
        assert pane.name_awaited(pane.box.query_one(Input)) == ""
        assert pane.name_awaited(pane.trees.view) == "the search"
        assert pane.trees.view.empty_text == "searching…"
        may_search.set()
        await until(pilot, lambda: pane.name_awaited(pane.trees.view) == "")
        await until(pilot, lambda: "nothing matches" in text(app))
        pane.box.text = "before:never("
        pane._note_failed("search", KnownError("not now", hint="again"))
        assert pane.name_awaited(pane.trees.view) == ""

    in_assets(tmp_path, wait)


@pytest.mark.usefixtures("store")
def test_key_presses_wait_until_the_requested_asset_and_screen_are_shown(tmp_path, monkeypatch):
    may_read, may_go = threading.Event(), asyncio.Event()
    may_read.set()
    read = asset_navigation.read_panel
    monkeypatch.setattr(asset_navigation, "read_panel", lambda *what: may_read.wait() and read(*what))
    mount = PaneSwitcher._mount

    async def mount_late(switcher, spec) -> None:
        await may_go.wait()
        await mount(switcher, spec)

    async def type_ahead(app, pilot, pane, _session):
        monkeypatch.setattr(PaneSwitcher, "_mount", mount_late)
        await go(pilot, pane, "scripts/door.lua")
        assert app.keyboard.name_awaited("j") == ""
        may_read.clear()
        try:
            pane.reveal("textures/rock.png")
            assert app.keyboard.name_awaited("j") == "the asset", "a typed key waits until the requested asset is shown"
            await until(pilot, lambda: cursor_on(pane) == "textures/rock.png")
            await until(pilot, lambda: app.keyboard.name_awaited("j") == "")
            await press(pilot, "J")
            assert app.keyboard.name_awaited("/") == "the asset", (
                "a typed key waits until the jobs of the requested asset are shown"
            )
        finally:
            may_read.set()
        await until(pilot, lambda: app.keyboard.name_awaited("/") == "the screen")
        assert app.keyboard.name_awaited("q") == "", "`q` quits without waiting"
        may_go.set()
        await until(pilot, lambda: app.keyboard.name_awaited("/") == "")
        assert app.pane.revealed == [r'"^textures/rock\.png$"']

    in_assets(tmp_path, type_ahead)


@pytest.mark.usefixtures("store")
def test_keys_wait_for_the_first_tree_unless_they_leave_the_pane(tmp_path, monkeypatch):
    may_read = threading.Event()
    read_tree = assets_store.read_tree
    monkeypatch.setattr(assets_store, "read_tree", lambda *what: may_read.wait() and read_tree(*what))

    async def type_ahead(app, pilot, _session):
        pane = app.pane
        try:
            assert pane.name_awaited(pane.trees.view) == "the first rows"
            assert [app.keyboard.name_awaited(key) for key in ("1", "q")] == ["", ""]
            typed = asyncio.ensure_future(app.gate.lets_through("j"))
            await pilot.pause(0.1)
            assert not typed.done()
        finally:
            may_read.set()
        assert await typed
        await press(pilot, "k")
        assert cursor_on(pane) == "scripts"
        assert "door.lua" in text(app)

    in_shell(tmp_path, type_ahead, size=MEDIUM, session=FakeSession(tmp_path), panes=PANES)


@pytest.mark.usefixtures("store")
def test_cursor_begins_on_the_first_problem_and_later_problems_do_not_move_it(tmp_path):
    async def script(app, pilot, _session):
        pane = app.pane
        await until(pilot, lambda: cursor_on(pane) == "scripts/door.lua")
        assert "door.lua" in text(app)
        await press(pilot, "g")
        pane.on_news(changed("failed"))
        pane.shell.wake()
        await until(pilot, lambda: pane.live.is_at_rest)
        assert pane.trees.view.cursor == 0

    in_shell(tmp_path, script, size=MEDIUM, session=FakeSession(tmp_path), panes=PANES)


@pytest.mark.usefixtures("store")
def test_search_finds_a_uuid_by_its_abbreviation(tmp_path):
    shown = f"{uuid_text(uuid_of(2))[:9]}…}}"

    async def search_for(_app, pilot, pane, _session):
        pane.box.text = shown
        await until(pilot, lambda: not pane.search.is_under_way and pane.search.found is not None)
        assert pane.search.found.file_count == 5, "the UUIDs of all five sources begin with the searched text"
        pane.show_tree(Kind.PRODUCTS)
        pane.box.text = f"{shown}:7"
        await until(pilot, lambda: not pane.search.is_under_way and pane.search.found is not None)
        hits = pane.search.found
        assert [hits.tree.path(node) for node in hits.hits.tolist()] == ["common/mesh/rock.model"]

    in_assets(tmp_path, search_for)


@pytest.mark.usefixtures("store")
def test_empty_tree_does_not_show_the_details_of_another_tree(tmp_path, monkeypatch):
    may_read = threading.Event()
    read_tree = assets_store.read_tree

    def read(reader, kind, *more):
        return (kind is Kind.SOURCES or may_read.wait()) and read_tree(reader, kind, *more)

    monkeypatch.setattr(assets_store, "read_tree", read)

    async def turn(app, pilot, pane, _session):
        await go(pilot, pane, "scripts/door.lua")
        await shows(app, pilot, "local a")
        try:
            await press(pilot, "t", "y")
            await until(pilot, lambda: "local a" not in text(app) and "door.lua" not in text(app))
            assert (pane.selected.panel, pane.query_one(ReferenceTree).reference(), list(app.screen.query(Menu))) == (
                None,
                None,
                [],
            )
        finally:
            may_read.set()
        await until(pilot, lambda: pane.selected.panel is not None and pane.selected.panel.kind is Kind.INTERMEDIATES)
        await press(pilot, "<")
        await at(pilot, pane, "scripts/door.lua")
        await shows(app, pilot, "local a")

    in_assets(tmp_path, turn)


@on_assets()
async def test_cursor_goes_to_the_neighbour_of_a_removed_row(app, pilot, pane, session, store):
    await go(pilot, pane, "textures/rock.png")
    await press(pilot, ".", "escape")
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("DELETE FROM Sources WHERE SourceID = 1")
    pane.on_news(Batch(jobs=(JobNews(JobChanged(0, 1, "textures/rock.png", 1, *[""] * 6, 0, 0, 0, "", 0), True, 0),)))
    pane.shell.wake()
    await until(pilot, lambda: "gone" in text(app))
    session.say(SourcesChanged(0, (("textures/rock.png", False),)))
    await until(pilot, lambda: "Sources▾ 4" in text(app))
    await at(pilot, pane, cursor_on(pane))
    await until(pilot, lambda: "rock.png" not in text(app))


@on_assets()
async def test_keys_typed_right_after_the_search_key_become_search_text(app, pilot, pane, session):
    for character in "/rJ":
        app.post_message(events.Key(_character_to_key(character), character))
    await until(pilot, lambda: pane.box.text == "rJ")
    assert (session.asked, list(app.screen.query(Menu))) == ([], [])


@pytest.mark.parametrize("size", [SMALL, MEDIUM])
@on_assets()
async def test_tab_moves_from_tree_to_details_and_skips_the_search_line(app, pilot, pane, size):
    await press(pilot, *"/door", "enter")
    await go(pilot, pane, "scripts/door.lua")
    await until(pilot, lambda: "lua" in pane.query_one(FilePreview).title())
    tree, references, preview = pane.trees.view, pane.query_one(ReferenceTree), pane.query_one(FilePreview)
    for key, part in [("tab", references), ("tab", preview), ("tab", tree), ("shift+tab", preview), ("shift+tab", references)]:
        await press(pilot, key)
        await until(pilot, lambda part=part: app.focused is part)
        assert part.region.height
    await press(pilot, "tab", "tab", "/", "tab")
    await until(pilot, lambda: app.focused is tree)
    assert pane.box.text == "door"


@on_assets()
async def test_text_typed_in_the_search_replaces_the_previous_search(app, pilot, pane):
    await press(pilot, *"/rock", "enter")
    await until(pilot, lambda: app.focused is pane.trees.view)
    await press(pilot, *"/door")
    await until(pilot, lambda: pane.box.text == "door" and cursor_on(pane) == "scripts/door.lua")


@pytest.mark.usefixtures("store")
def test_search_without_hits_keeps_its_text_and_shows_how_to_clear_it(tmp_path):
    text_of_search = "{8F965DBC-C3D9-5DF9-BA2A-690BDD7241CC}:0"

    async def act(app, pilot, pane, _session):
        await press(pilot, "slash", *text_of_search, "enter")
        await until(pilot, lambda: app.focused is pane.trees.view)
        await until(pilot, lambda: "690BDD7241CC}:0" in lines(app)[3])
        await until(pilot, lambda: "nothing matches; press Esc to clear the search" in text(app))
        assert "textures/" not in text(app)  # Neither the tree nor the details of removed assets are shown.
        await pilot.press("escape")
        await until(pilot, lambda: "textures" in text(app))

    in_assets(tmp_path, act, size=(80, 24))
    in_assets(tmp_path, act, size=(140, 40))


@on_assets(size=(80, 8))
async def test_first_hit_is_visible_together_with_its_folders(app, pilot, pane):
    await go(pilot, pane, "evil/[red]x\x1b]0;t\x07.txt")
    await press(pilot, *"/rock.png", "enter")
    await until(pilot, lambda: cursor_on(pane) == "textures/rock.png" and "▾ textures" in text(app))


@on_assets()
async def test_going_to_a_product_removes_a_search_that_hides_the_product(app, pilot, pane):
    await go(pilot, pane, "linux/textures/rock.dds", Kind.PRODUCTS)  # The tree of products is read from now on.
    await go(pilot, pane, "scripts/door.lua")
    await press(pilot, *"/fbx", "enter")
    await until(pilot, lambda: cursor_on(pane) == "mesh/rock.fbx" and pane.search.is_shown)
    await at(pilot, pane, "mesh/rock.fbx")
    await press(pilot, "p")
    await at(pilot, pane, "common/mesh/rock.model", Kind.PRODUCTS)
    await until(pilot, lambda: not pane.search.is_wanted)
    await until(pilot, lambda: not pane.readers.queries.is_busy)
    assert cursor_on(pane) == "common/mesh/rock.model"


@pytest.mark.usefixtures("store")
def test_chosen_tree_and_its_search_are_remembered(tmp_path):
    async def leave(_app, pilot, pane, _session):
        pane.box.text = "model"
        await press(pilot, "<", "q")

    async def script(app, pilot, pane, _session):
        await until(pilot, lambda: pane.trees.kind is Kind.PRODUCTS and "1 of 3" in text(app))

    in_assets(tmp_path, leave)
    in_assets(tmp_path, script)
