"""The Assets screen: its keys over a real database, at both sizes; hostile names; notices while it is shown."""

import asyncio
import os
import sqlite3
import struct
import threading
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image
from textual import events
from textual.app import ComposeResult
from textual.keys import _character_to_key
from textual.widgets import Input

from aptui.core.model import EdgeKind
from aptui.core.notices import JobChanged, SourcesChanged
from aptui.core.paths import to_text
from aptui.link.port import ReprocessJobs
from aptui.shared.errors import KnownError, UserError
from aptui.store.db.schema import uuid_text
from aptui.tui.commands import run
from aptui.tui.data import assets_store
from aptui.tui.data.assets_store import Kind
from aptui.tui.data.feed import Batch, JobNews
from aptui.tui.data.session import NoSession, SessionState
from aptui.tui.frame import terminal_control
from aptui.tui.frame.sheets import Lines
from aptui.tui.pane import Pane, PaneSpec
from aptui.tui.pane_switcher import PaneSwitcher
from aptui.tui.pictures import decoding
from aptui.tui.pictures.decoder import Pixels
from aptui.tui.screens.assets import asset_detail, asset_navigation
from aptui.tui.screens.assets import asset_trees as live
from aptui.tui.screens.assets import asset_trees as tree_search
from aptui.tui.screens.assets.asset_detail import AssetDetail, FilePreview, ReferenceTree, TreeTabs
from aptui.tui.screens.assets.asset_navigation import jobs_filter
from aptui.tui.screens.assets.asset_panel import AssetPlaces, folder_panel
from aptui.tui.screens.assets.asset_readers import QueryWorker
from aptui.tui.screens.assets.asset_trees import AssetTreeView
from aptui.tui.screens.assets.assets_pane import is_brief
from aptui.tui.widgets.filterbox import FilterBox
from aptui.tui.widgets.menu import Menu
from aptui.tui.widgets.table import lay_out
from aptui.tui.words import size_text
from tests.store.conftest import analysis_row, edge_row, job_row, source_row, uuid_of
from tui.database import database
from tui.fake_panes import FakeSession
from tui.shell_room import LARGE, SMALL, in_shell, lines, text, until

pytestmark = pytest.mark.real

MEDIUM = (116, 32)
MESH = b"M" * 16
EVIL = "evil/[red]x\x1b]0;t\x07.txt"
BYTES = to_text(b"evil/\xff.png")
PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBBBBB", 13, b"IHDR", 64, 32, 8, 6, 0, 0, 0)


class FakeJobs(Pane):
    """A Jobs screen that notes what it was shown with."""

    def compose(self) -> ComposeResult:
        self.revealed: list[str] = []
        yield Lines(name="jobs", has_cursor=True)

    def reveal(self, filter_text: str) -> None:
        self.revealed.append(filter_text)


PANES = [
    PaneSpec("assets", 2, "Assets", "Assets", "aptui.tui.screens.assets.assets_pane:AssetsPane"),
    PaneSpec("jobs", 1, "Jobs", "Jobs", "tui.screens.assets.test_assets_pane:FakeJobs"),
]


def product(number: int, job: int, name: str, sub_id: int = 0, flags: int = 1, size: int = 10) -> tuple[object, ...]:
    return (number, job, name, sub_id, b"T" * 16, 0, flags, b"D" * 32, size)


@pytest.fixture(autouse=True)
def _own_homes(tmp_path, monkeypatch):
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.fixture
def store(tmp_path):
    for path, data in {
        b"textures/rock.png": PNG, b"mesh/rock.fbx": bytes(range(256)), b"scripts/door.lua": b"local a = 1 -- [/x]\n",
        b"evil/\xff.png": PNG
    }.items():  # fmt: skip
        file = os.path.join(os.fsencode(tmp_path), path)
        os.makedirs(os.path.dirname(file), exist_ok=True)
        Path(os.fsdecode(file)).write_bytes(data)
    with database(tmp_path) as made:
        ids, _ = made.writer.sync_scan_folders(
            [("project", str(tmp_path), 0), ("intermediates", f"{tmp_path}/Intermediate Assets", -1)]
        )
        made.put(
            put_source=[
                source_row(1, "textures/rock.png"), source_row(2, "mesh/rock.fbx"),
                source_row(3, "mesh/rock.mat", ids["intermediates"]),
                source_row(4, "scripts/door.lua"), source_row(5, EVIL), source_row(6, BYTES),
            ],
            put_analysis=[analysis_row(1, duration_ms=30), analysis_row(2, builder=MESH, duration_ms=50)],
            put_job=[
                job_row(1, 1, duration_ms=100),
                job_row(2, 1, platform="server", state="failed", status=2, error="no [/such] pixel"),
                job_row(3, 2, builder=MESH, platform="common", duration_ms=20, warnings=0), job_row(4, 4, errors=1),
            ],
            put_product=[
                product(1, 1, "linux/textures/rock.dds", size=4_200_000), product(2, 2, "server/textures/rock.dds", size=200),
                product(3, 3, "common/mesh/rock.mat", flags=2), product(4, 3, "common/mesh/rock.model", 7, size=50),
            ],
            put_edge=[
                edge_row(EdgeKind.PATH, "textures/rock.png", source_id=2), edge_row(EdgeKind.PATH, "nobody.txt", source_id=2),
                edge_row(EdgeKind.JOB, "mesh/rock.fbx", bits=2, source_id=4),
            ],
        )  # fmt: skip
        with closing(sqlite3.connect(made.path, isolation_level=None)) as connection:
            connection.executemany(
                "INSERT INTO ProductDependencies("
                "ProductPK, DependencySourceGuid, DependencySubID, Platform, DependencyFlags, UnresolvedPath)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (4, uuid_of(1), 0, "linux", 1, ""), (1, uuid_of(2), 7, "common", 0, ""),
                    (4, bytes(16), 0, "linux", 0, "textures/*.dds"),
                ],
            )  # fmt: skip
            connection.execute(
                "INSERT INTO MissingProductDependencies("
                "ProductPK, ScannerId, ScannerVersion, SourceFileFingerprint, DependencySourceGuid, DependencySubId,"
                " MissingDependencyString, LastScanTime, ScanTimeSecondsSinceEpoch)"
                " VALUES (4, '', '', '', ?, 0, 'rock.dds', '', 50)",
                (uuid_of(1),),
            )
        yield made


def in_assets(tmp_path, do, *, size=MEDIUM, session=None, theme="dark", panes=PANES):
    """Open the screen on the Assets pane; do `do(app, pilot, pane, session)` once the tree is there, everything open."""

    async def begin(app, pilot, session):
        app.copied = []
        app.copy_text = lambda what, *, raw=False: app.copied.append((what, raw))
        await until(pilot, lambda: app.pane is not None and app.pane.trees.model.tree is not None)
        await press(pilot, "*")
        await do(app, pilot, app.pane, session)
        await until(pilot, lambda: not app.switcher.mounted["assets"].readers.queries.is_busy)

    return in_shell(tmp_path, begin, size=size, session=session or FakeSession(tmp_path), theme=theme, panes=panes)


async def press(pilot, *keys: str) -> None:
    """Press keys, and wait until everything they set off is done; the pilot's own waits 40 ms more for each."""
    for key in keys:
        is_character = len(key) == 1
        name = _character_to_key(key) if is_character else key
        pilot.app.post_message(events.Key(name, key if is_character else " " if key == "space" else None))
        for _ in range(6):  # from app to screen to part, and up again to the handler
            await pilot.pause(0)


async def at(pilot, pane, path: str, kind: Kind = Kind.SOURCES) -> None:
    """Wait until the details of an asset are shown."""
    await until(
        pilot,
        lambda: (
            pane.selected.panel is not None and (pane.selected.panel.path, pane.trees.kind, cursor_on(pane)) == (path, kind, path)
        ),
    )


async def shows(app, pilot, expected: str) -> None:
    """Wait until something is on the screen."""
    await until(pilot, lambda: expected in text(app))


async def go(pilot, pane, path: str, kind: Kind = Kind.SOURCES) -> None:
    pane.reveal(path)
    await at(pilot, pane, path, kind)


def cursor_on(pane) -> str:
    tree, model = pane.trees.view, pane.trees.model
    return model.tree.path(tree.node) if model.tree is not None and tree.node is not None else ""


def put_on_reference(pane, wanted: str) -> None:
    """Put the cursor of the references on the first that begins so."""
    tree = pane.query_one(ReferenceTree)
    tree.focus()
    tree.action_unfold_all()
    for index in range(tree.count_rows()):
        ref = tree.reference(tree.key_of(index))
        if ref is not None and ref.text.startswith(wanted):
            tree.move_cursor(index)
            return
    raise AssertionError(f"no reference '{wanted}'")


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(("size", "theme"), [(LARGE, "dark"), (SMALL, "monochrome")])
def test_source_details_show_facts_and_references(tmp_path, size, theme):
    async def look(app, pilot, pane, _session):
        await go(pilot, pane, "textures/rock.png")
        if size == SMALL:
            await until(pilot, lambda: "rock.png" in text(app))
            assert "Scan folder" not in text(app)
            await press(pilot, "enter")
        await until(pilot, lambda: "linux/textures/rock.dds" in text(app) and "PNG 64 × 32" in text(app))
        for expected in (
            "Scan folder",
            "project",
            uuid_text(uuid_of(1)),
            "Products (2)",
            "4.0 MiB",
            "{00000000…}:0",
            "Dependencies out (0)",
        ):
            await shows(app, pilot, expected)
        if size == LARGE:
            for expected in ("Dependencies in (1)", "mesh/rock.fbx", "Jobs (2)", "! 2 warnings", "✗ failed", "30 ms", "Sources▾ 5"):
                await shows(app, pilot, expected)
        await press(pilot, "escape")
        await until(pilot, lambda: app.focused is pane.trees.view)

    in_assets(tmp_path, look, size=size, theme=theme)


@pytest.mark.usefixtures("store")
def test_enter_follows_references_and_brackets_walk_back_and_forward(tmp_path):
    async def walk(app, pilot, pane, _session):
        await go(pilot, pane, "mesh/rock.fbx")
        await press(pilot, "enter")
        await until(pilot, lambda: app.focused is pane.query_one(ReferenceTree))
        put_on_reference(pane, "textures/rock.png")
        await press(pilot, "enter")
        await at(pilot, pane, "textures/rock.png")
        put_on_reference(pane, "linux/")
        await press(pilot, "enter")
        await at(pilot, pane, "linux/textures/rock.dds", Kind.PRODUCTS)
        await press(pilot, "[", "[")
        await at(pilot, pane, "mesh/rock.fbx")
        await press(pilot, "]", "]")
        await at(pilot, pane, "linux/textures/rock.dds", Kind.PRODUCTS)
        await press(pilot, "]")
        await until(pilot, lambda: "no later place" in text(app))
        await press(pilot, "p")
        await at(pilot, pane, "textures/rock.png")
        pane.reveal("mesh/rock.mat")
        await at(pilot, pane, "mesh/rock.mat", Kind.INTERMEDIATES)
        put_on_reference(pane, "mesh/rock.fbx")
        await press(pilot, "enter")
        await at(pilot, pane, "mesh/rock.fbx")

    in_assets(tmp_path, walk)


@pytest.mark.usefixtures("store")
def test_product_dependencies_open_step_by_step_without_cycles(tmp_path):
    async def look(app, pilot, pane, _session):
        await go(pilot, pane, "common/mesh/rock.model", Kind.PRODUCTS)
        for expected in (
            f"{uuid_text(uuid_of(2))}:7", "Last processed", "Job key", "common", "50 B", "Outgoing dependencies (1)", "Unmet path",
            "textures/*.dds",
            "pattern", "Incoming dependencies (1)", "Missing dependencies (1)", "rock.dds", "mesh/rock.fbx", "✗ rock.model",
        ):  # fmt: skip
            await shows(app, pilot, expected)
        references = pane.query_one(ReferenceTree)
        put_on_reference(pane, "linux/textures/rock.dds")
        before = references.count_rows()
        await press(pilot, "right")
        await until(pilot, lambda: references.count_rows() > before)
        await until(pilot, lambda: any("common/mesh/rock.model" in line and "above" in line for line in lines(app)))

    in_assets(tmp_path, look)


@pytest.mark.usefixtures("store")
def test_search_count_of_thousands_fits_60_columns(tmp_path):
    async def look(app, pilot, pane, _session):
        pane.query_one(TreeTabs).show(Kind.SOURCES, dict.fromkeys(Kind, 12_408), is_roomy=False, is_brief=is_brief(60))
        pane.box.show_count("1,234 of 12,408")
        await until(pilot, lambda: any("1,234 of 12,408" in line for line in lines(app)))

    in_assets(tmp_path, look, size=(60, 20))


@pytest.mark.usefixtures("store")
def test_zoom_key_shows_preview_on_narrow_screen_and_returns_to_tree(tmp_path):
    async def look(app, pilot, pane, _session):
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

    in_assets(tmp_path, look, size=SMALL)


@pytest.mark.usefixtures("store")
def test_zoom_of_unread_row_waits_for_its_preview(tmp_path, monkeypatch):
    may_read = threading.Event()
    may_read.set()
    read = asset_detail.preview_of
    monkeypatch.setattr(asset_detail, "preview_of", lambda path: may_read.wait() and read(path))

    async def look(app, pilot, pane, _session):
        await go(pilot, pane, "scripts/door.lua")
        await until(pilot, lambda: app.keyboard.name_awaited("z") == "" and not pane.readers.queries.is_busy)
        may_read.clear()
        try:
            await go(pilot, pane, "textures/rock.png")
            await press(pilot, "z")
            assert app.keyboard.name_awaited("j") == "the preview"
            assert "Preview" not in text(app)
        finally:
            may_read.set()
        await until(pilot, lambda: "Preview" in text(app))
        await until(pilot, lambda: app.focused is pane.query_one(FilePreview))
        assert app.keyboard.name_awaited("j") == ""

    in_assets(tmp_path, look, size=SMALL)


@pytest.mark.usefixtures("store")
def test_search_counts_walks_hits_and_restores_open_nodes(tmp_path):
    async def look(app, pilot, pane, _session):
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
        await until(pilot, lambda: "nothing matches" in text(app))
        pane.box.text = uuid_text(uuid_of(2)).lower()
        await until(pilot, lambda: "1 of 5" in text(app))
        await press(pilot, "t", "t")
        await until(pilot, lambda: pane.trees.kind is Kind.PRODUCTS and "1 of 3" in text(app))
        pane.box.text = "linux/.*dds$"
        await until(pilot, lambda: "1 of 3" in text(app) and cursor_on(pane) == "linux/textures/rock.dds")
        pane.reveal("common/mesh/rock.model")
        await until(pilot, lambda: cursor_on(pane) == "common/mesh/rock.model")
        await until(pilot, lambda: pane.box.text == "")

    in_assets(tmp_path, look)


@pytest.mark.usefixtures("store")
def test_keys_clicks_and_commands_change_trees(tmp_path):
    async def change(app, pilot, pane, _session):
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
        await until(pilot, lambda: "no asset 'nothing/there'" in text(app))
        await until(pilot, lambda: pane.status() == "Sources: 5")

    in_assets(tmp_path, change)


def test_notices_update_tree_and_details_without_moving_cursor(tmp_path, store, monkeypatch):
    monkeypatch.setattr(live, "STALE_S", 0.05)

    async def hear(app, pilot, pane, session):
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

    in_assets(tmp_path, hear, size=LARGE)


def test_empty_tree_explains_its_content(tmp_path):
    async def look(app, pilot, _pane, _session):
        for words in ("no sources yet", "no intermediates: products that are sources", "no products yet"):
            await shows(app, pilot, words)
            await press(pilot, "t")

    with database(tmp_path):
        in_assets(tmp_path, look, size=SMALL)


def changed(status: str, **more: object) -> Batch:
    notice = JobChanged(0, 4, "scripts/door.lua", 1, "linux", "Image", "b", status, "", "", 0, 0, 1, "", 7)
    return Batch(jobs=(JobNews(notice, is_later=True, received_ms=0, **more),))


def row_of(app, name: str) -> str:
    return next((line for line in lines(app) if name in line), "")


@pytest.mark.parametrize(("size", "theme"), [(LARGE, "dark"), (SMALL, "monochrome")])
def test_folders_show_problems_below_them_and_follow_notices(tmp_path, store, monkeypatch, size, theme):
    monkeypatch.setattr(live, "STALE_S", 0.05)

    async def look(app, pilot, pane, _session):
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

    in_assets(tmp_path, look, size=size, theme=theme)


def test_problems_are_read_until_database_agrees_with_notices(tmp_path, store, monkeypatch):
    monkeypatch.setattr(live, "STALE_S", 0.02)

    async def look(app, pilot, pane, _session):
        await until(pilot, lambda: "with errors" in row_of(app, "scripts"))
        before = pane.readers.store.unwell
        pane.on_news(changed("failed", moment=(1 << 40, 1)))
        pane.shell.wake()
        await until(pilot, lambda: pane.readers.store.unwell is not before and "with errors" in row_of(app, "scripts"))
        store.put(put_job=[job_row(4, 4, state="failed", status=2, warnings=0)])  # without a notice
        await until(pilot, lambda: "✗ 1 failed" in row_of(app, "scripts"))
        await until(pilot, lambda: pane.live.is_at_rest)

    monkeypatch.setattr(live, "_MOST_READS", 100)
    in_assets(tmp_path, look, size=LARGE)


@pytest.mark.usefixtures("store")
def test_tree_without_problems_has_no_problem_column(tmp_path):
    async def look(app, pilot, pane, _session):
        await shows(app, pilot, "Problems")
        await press(pilot, "t")
        await shows(app, pilot, "▸ mesh")
        await until(pilot, lambda: "Problems" not in text(app))

    in_assets(tmp_path, look)


@pytest.mark.parametrize(("width", "ids"), [(46, ["name", "health"]), (64, ["name", "health", "duration"])])
def test_problem_column_is_not_cut_in_narrow_tree(width, ids):
    columns = {column.id: cells for column, cells in lay_out(AssetTreeView(Kind.SOURCES)._measure_columns(width), width)}

    assert list(columns)[: len(ids)] == ids
    assert columns["health"] == 22


@pytest.mark.usefixtures("store")
def test_running_jobs_read_nothing_and_products_have_no_failed_jobs(tmp_path):
    async def look(app, pilot, pane, _session):
        await until(pilot, lambda: pane.trees.model.health is not None)
        pane.on_news(changed("processing"))
        assert pane.live.is_at_rest
        await press(pilot, "t", "t", "e")
        await shows(app, pilot, "failed jobs have no products")

    in_assets(tmp_path, look, size=LARGE)


@pytest.mark.usefixtures("store")
def test_menu_copies_runs_again_explains_and_goes_to_jobs(tmp_path):
    async def act(app, pilot, pane, session):
        await go(pilot, pane, "textures/rock.png")
        for key, expected in (
            ("y", "textures/rock.png"), ("f", f"{tmp_path}/textures/rock.png"), ("u", uuid_text(uuid_of(1))),
            ("p", f"{tmp_path}/linux/textures/rock.dds\n{tmp_path}/server/textures/rock.dds"),
        ):  # fmt: skip
            await press(pilot, "y", key)
            await until(pilot, lambda: app.copied)
            assert app.copied.pop() == (expected, True)
        await press(pilot, "r")
        await until(pilot, lambda: session.asked == [ReprocessJobs(keys=("textures/rock.png",))])
        await press(pilot, ".")
        await until(pilot, lambda: app.screen.query_one(Menu).has_focus)
        await press(pilot, "x")
        await until(pilot, lambda: "new source" in text(app) and "no [/such] pixel" in text(app) and "Why" in text(app))
        await pilot.click(f"#{pane.trees.view.id}", offset=(3, 2), button=3)
        await until(pilot, lambda: app.screen.query(Menu))
        await until(pilot, lambda: "x.txt" in str(app.screen.query_one(Menu).border_title))
        await press(pilot, "escape")
        await go(pilot, pane, "textures/rock.png")
        await press(pilot, "J")
        await until(pilot, lambda: app.pane.name_of_pane == "jobs" and app.pane.revealed)
        await until(pilot, lambda: app.pane.revealed == [r'"^textures/rock\.png$"'])
        await press(pilot, "2")
        await until(pilot, lambda: app.pane is pane)
        put_on_reference(pane, "server  Image")
        await press(pilot, "enter")
        await until(pilot, lambda: app.pane.name_of_pane == "jobs" and len(app.pane.revealed) == 2)

    in_assets(tmp_path, act, size=LARGE)


@pytest.mark.usefixtures("store")
def test_marks_and_folders_are_copied_and_run_again_together(tmp_path):
    async def act(app, pilot, pane, session):
        await go(pilot, pane, "mesh/rock.fbx")
        await press(pilot, "space")
        await go(pilot, pane, "textures/rock.png")
        await press(pilot, "space", "y", "y")
        await until(pilot, lambda: app.copied == [("mesh/rock.fbx\ntextures/rock.png", True)])
        await press(pilot, "r")
        await until(pilot, lambda: session.asked == [ReprocessJobs(keys=("mesh/rock.fbx", "textures/rock.png"))])
        await press(pilot, "u", "g", "k")
        session.asked.clear()
        await press(pilot, "r", "n")
        assert session.asked == []
        await press(pilot, "r", "y")
        await until(pilot, lambda: session.asked == [ReprocessJobs(keys=("evil/*",))])
        await until(pilot, lambda: "Holds" in text(app) and "2 sources" in text(app))
        await until(pilot, lambda: not pane.query_one("#assets-preview-title").display)  # a folder has no preview
        await press(pilot, "<")
        await go(pilot, pane, "common/mesh/rock.model", Kind.PRODUCTS)
        session.asked.clear()
        await press(pilot, "r")
        await until(pilot, lambda: session.asked == [ReprocessJobs(keys=("mesh/rock.fbx",))])

    in_assets(tmp_path, act)


@pytest.mark.usefixtures("store")
def test_fast_keys_act_on_row_under_cursor(tmp_path):
    async def act(app, pilot, pane, _session):
        await go(pilot, pane, "mesh/rock.fbx")
        pane.trees.view.action_move(2)
        pane.actions.do("copy")
        await until(pilot, lambda: app.screen.query(Menu))
        await press(pilot, "y")
        await until(pilot, lambda: app.copied == [("scripts/door.lua", True)])

    in_assets(tmp_path, act)


@pytest.mark.usefixtures("store")
def test_keys_wait_for_search_result(tmp_path, monkeypatch):
    may_search = threading.Event()
    search = tree_search.search
    monkeypatch.setattr(tree_search, "search", lambda *what: may_search.wait() and search(*what))

    async def wait(app, pilot, pane, _session):
        pane.box.text = "rose"
        pane.on_filter_box_changed(FilterBox.Changed(pane.box, "rose"))
        assert pane.name_awaited(pane.box.query_one(Input)) == ""
        assert pane.name_awaited(pane.trees.view) == "the search"
        pane.live.take()
        assert pane.trees.view.empty_text == "searching…"
        may_search.set()
        await until(pilot, lambda: pane.name_awaited(pane.trees.view) == "")
        await until(pilot, lambda: "nothing matches" in text(app))
        pane.box.text = "before:never("
        pane._note_failed("search", KnownError("not now", hint="again"))
        assert pane.name_awaited(pane.trees.view) == ""

    in_assets(tmp_path, wait)


@pytest.mark.usefixtures("store")
def test_keys_wait_for_requested_asset_and_screen(tmp_path, monkeypatch):
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
            assert app.keyboard.name_awaited("j") == "the asset", "which is looked for"
            await until(pilot, lambda: cursor_on(pane) == "textures/rock.png")
            await until(pilot, lambda: app.keyboard.name_awaited("j") == "")
            await press(pilot, "J")
            assert app.keyboard.name_awaited("/") == "the asset", "whose jobs shall be shown"
        finally:
            may_read.set()
        await until(pilot, lambda: app.keyboard.name_awaited("/") == "the screen")
        assert app.keyboard.name_awaited("q") == "", "who leaves waits for no screen"
        may_go.set()
        await until(pilot, lambda: app.keyboard.name_awaited("/") == "")
        assert app.pane.revealed == [r'"^textures/rock\.png$"']

    in_assets(tmp_path, type_ahead)


@pytest.mark.usefixtures("store")
def test_keys_wait_for_first_tree_except_keys_that_leave(tmp_path, monkeypatch):
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
        await press(pilot, "j", "j", "l")
        assert cursor_on(pane) == "scripts"
        assert "door.lua" in text(app)

    in_shell(tmp_path, type_ahead, size=MEDIUM, session=FakeSession(tmp_path), panes=PANES)


@pytest.mark.usefixtures("store")
def test_search_finds_abbreviated_uuid(tmp_path):
    shown = f"{uuid_text(uuid_of(2))[:9]}…}}"

    async def look_for(_app, pilot, pane, _session):
        pane.box.text = shown
        await until(pilot, lambda: not pane.search.is_under_way and pane.search.found is not None)
        assert pane.search.found.file_count == 5, "they all begin alike"
        pane.turn_to(Kind.PRODUCTS)
        pane.box.text = f"{shown}:7"
        await until(pilot, lambda: not pane.search.is_under_way and pane.search.found is not None)
        hits = pane.search.found
        assert [hits.tree.path(node) for node in hits.hits.tolist()] == ["common/mesh/rock.model"]

    in_assets(tmp_path, look_for)


@pytest.mark.usefixtures("store")
def test_empty_tree_shows_no_details_of_another_tree(tmp_path, monkeypatch):
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


@pytest.mark.usefixtures("store")
def test_asset_is_found_by_each_of_its_names(tmp_path):
    mesh = uuid_text(uuid_of(2))
    rock, model = ("textures/rock.png", Kind.SOURCES), ("common/mesh/rock.model", Kind.PRODUCTS)

    async def find(_app, pilot, pane, _session):
        for name, (path, kind) in (
            ("TEXTURES/Rock.png", rock), (f"{mesh}:7", model), (f"{tmp_path}/textures/rock.png", rock),
            (f"{tmp_path}/{model[0]}", model),
            (mesh, ("mesh/rock.fbx", Kind.SOURCES)), (f" {model[0]} ", model),
            ("common/mesh/rock.mat", ("mesh/rock.mat", Kind.INTERMEDIATES)),  # as a job calls what it made
        ):  # fmt: skip
            pane.reveal(name)
            await at(pilot, pane, path, kind)

    in_assets(tmp_path, find)


def test_cursor_goes_to_neighbour_of_removed_row(tmp_path, store):
    async def drop(app, pilot, pane, session):
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

    in_assets(tmp_path, drop)


@pytest.mark.usefixtures("store")
def test_keys_typed_ahead_of_search_are_search_text(tmp_path):
    async def type_fast(app, pilot, pane, session):
        for character in "/rJ":
            app.post_message(events.Key(_character_to_key(character), character))
        await until(pilot, lambda: pane.box.text == "rJ")
        assert (session.asked, list(app.screen.query(Menu))) == ([], [])

    in_assets(tmp_path, type_fast)


@pytest.mark.usefixtures("store")
def test_tiny_screen_is_usable(tmp_path):
    async def act(app, pilot, pane, _session):
        await go(pilot, pane, "textures/rock.png")
        await press(pilot, "enter", "z", "tab", "t", "/", "x", "enter", ".")
        assert app.is_running

    in_assets(tmp_path, act, size=(20, 6))


@pytest.mark.usefixtures("store")
def test_hostile_names_are_shown_safe_and_copied_as_bytes(tmp_path):
    async def look(app, pilot, pane, _session):
        await until(pilot, lambda: r"\xff.png" in text(app))
        await until(pilot, lambda: "[red]x" in text(app))
        assert "\x1b" not in text(app)
        await go(pilot, pane, BYTES)
        await until(pilot, lambda: "PNG 64 × 32" in text(app))
        await press(pilot, "y", "f")
        await until(pilot, lambda: app.copied)
        copied, is_raw = app.copied.pop()
        assert (os.fsencode(copied), is_raw) == (os.fsencode(tmp_path) + b"/evil/\xff.png", True)
        await go(pilot, pane, EVIL)
        await press(pilot, "y", "y")
        await until(pilot, lambda: app.copied)
        assert app.copied.pop() == (EVIL, False)

    in_assets(tmp_path, look)


@pytest.mark.usefixtures("store")
def test_pager_editor_and_folder_get_the_path(tmp_path, monkeypatch):
    for name, value in (("PAGER", "view -x"), ("VISUAL", ""), ("EDITOR", "'broken"), ("SHELL", "/bin/zsh"), ("DISPLAY", "")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    ran = []

    async def act(app, pilot, pane, _session):
        await go(pilot, pane, "scripts/door.lua")
        await press(pilot, "o")
        await until(pilot, lambda: "cannot be lent" in text(app))
        monkeypatch.setattr(terminal_control, "lend", lambda _host, command, folder=None, _note="": ran.append((command, folder)))
        await press(pilot, "o", "O", "F")
        file = f"{tmp_path}/scripts/door.lua"
        await until(pilot, lambda: len(ran) >= 3)
        places = AssetPlaces(str(tmp_path), roots=(("over", f"{tmp_path}/over"), ("game", str(tmp_path))))
        pane.actions._open_folder(folder_panel(Kind.SOURCES, -1, "scripts", 1, places))
        assert ran.pop() == (["/bin/zsh"], f"{tmp_path}/scripts"), "the first scan folder that has it"
        assert ran == [(["view", "-x", file], None), (["vi", file], None), (["/bin/zsh"], f"{tmp_path}/scripts")]
        await go(pilot, pane, EVIL)
        await press(pilot, "o")
        await until(pilot, lambda: "the file does not exist" in text(app))

    in_assets(tmp_path, act)


@pytest.mark.usefixtures("store")
def test_zoom_and_tab_walk_the_parts(tmp_path):
    async def act(app, pilot, pane, _session):
        await go(pilot, pane, "scripts/door.lua")
        await until(pilot, lambda: "lua" in pane.query_one(FilePreview).title())
        app.set_focus(pane.trees.view)
        seen = []
        for _ in range(3):
            await press(pilot, "z")
            seen.append((type(app.focused).__name__, "Products (0)" in text(app), "local a = 1 -- [/x]" in text(app)))
            await press(pilot, "z", "tab")
        assert seen == [
            ("AssetTreeView", False, False),
            ("ReferenceTree", True, False),
            ("FilePreview", False, True),
        ]
        await press(pilot, "tab")
        pane.query_one(FilePreview).focus()
        await press(pilot, "y", "l")
        await until(pilot, lambda: app.copied)
        assert app.copied.pop()[0] == "local a = 1 -- [/x]"
        await press(pilot, "z", "escape", "escape")
        await until(pilot, lambda: app.focused is pane.trees.view)

    in_assets(tmp_path, act)


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("size", [SMALL, MEDIUM])
def test_tab_goes_to_details_and_skips_search_line(tmp_path, size):
    async def act(app, pilot, pane, _session):
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

    in_assets(tmp_path, act, size=size)


@pytest.mark.usefixtures("store")
def test_new_search_replaces_previous_one(tmp_path):
    async def act(app, pilot, pane, _session):
        await press(pilot, *"/rock", "enter")
        await until(pilot, lambda: app.focused is pane.trees.view)
        await press(pilot, *"/door")
        await until(pilot, lambda: pane.box.text == "door" and cursor_on(pane) == "scripts/door.lua")

    in_assets(tmp_path, act)


@pytest.mark.usefixtures("store")
def test_search_text_is_kept_and_no_hits_tell_how_to_clear(tmp_path):
    text_of_search = "{8F965DBC-C3D9-5DF9-BA2A-690BDD7241CC}:0"

    async def act(app, pilot, pane, _session):
        await press(pilot, "slash", *text_of_search, "enter")
        await until(pilot, lambda: app.focused is pane.trees.view)
        await until(pilot, lambda: "690BDD7241CC}:0" in lines(app)[3])
        await until(pilot, lambda: "nothing matches: Esc clears the search" in text(app))
        assert "textures/" not in text(app)  # neither the tree nor details of removed assets
        await pilot.press("escape")
        await until(pilot, lambda: "textures" in text(app))

    in_assets(tmp_path, act, size=(80, 24))
    in_assets(tmp_path, act, size=(140, 40))


@pytest.mark.usefixtures("store")
def test_first_hit_is_shown_below_its_folders(tmp_path):
    async def act(app, pilot, pane, _session):
        await go(pilot, pane, "evil/[red]x\x1b]0;t\x07.txt")
        await press(pilot, *"/rock.png", "enter")
        await until(pilot, lambda: cursor_on(pane) == "textures/rock.png" and "▾ textures" in text(app))

    in_assets(tmp_path, act, size=(80, 8))


@pytest.mark.usefixtures("store")
def test_going_to_product_lifts_search_that_hides_it(tmp_path):
    async def act(app, pilot, pane, _session):
        await go(pilot, pane, "linux/textures/rock.dds", Kind.PRODUCTS)  # that tree is there from now on
        await go(pilot, pane, "scripts/door.lua")
        await press(pilot, *"/fbx", "enter")
        await until(pilot, lambda: cursor_on(pane) == "mesh/rock.fbx" and pane.search.is_shown)
        await at(pilot, pane, "mesh/rock.fbx")
        await press(pilot, "p")
        await at(pilot, pane, "common/mesh/rock.model", Kind.PRODUCTS)
        await until(pilot, lambda: not pane.search.is_wanted)
        await until(pilot, lambda: not pane.readers.queries.is_busy)
        assert cursor_on(pane) == "common/mesh/rock.model"

    in_assets(tmp_path, act)


@pytest.mark.usefixtures("store")
def test_back_leads_to_jobs_screen_of_origin(tmp_path):
    async def act(app, pilot, pane, _session):
        await go(pilot, pane, "textures/rock.png")
        pane.reveal("scripts/door.lua", came_from="jobs")
        await at(pilot, pane, "scripts/door.lua")
        await press(pilot, "[")
        await until(pilot, lambda: isinstance(app.pane, FakeJobs))
        await press(pilot, "2", "[")
        await at(pilot, pane, "textures/rock.png")

    in_assets(tmp_path, act)


@pytest.mark.usefixtures("store")
def test_long_list_of_references_is_reachable_to_its_end(tmp_path, store):
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        connection.executemany(
            "INSERT INTO ProductDependencies(ProductPK, DependencySourceGuid, DependencySubID, Platform, DependencyFlags,"
            " UnresolvedPath) VALUES (1, ?, 0, 'linux', 0, ?)",
            [(bytes(16), f"missing/{number:02}.dds") for number in range(20)],
        )

    async def act(app, pilot, pane, _session):
        await go(pilot, pane, "linux/textures/rock.dds", Kind.PRODUCTS)
        await press(pilot, "enter")
        await until(pilot, lambda: app.focused is pane.query_one(ReferenceTree))
        await press(pilot, "G")
        tree = pane.query_one(ReferenceTree)
        await until(pilot, lambda: tree.cursor == tree.count_rows() - 1 and "▌" in text(app))
        assert any(line.startswith("▌") and "Missing dependencies" in line for line in lines(app))

    in_assets(tmp_path, act, size=SMALL)


@pytest.mark.usefixtures("store")
def test_title_is_that_of_visible_part_on_narrow_screen(tmp_path):
    async def act(app, pilot, pane, _session):
        await go(pilot, pane, "textures/rock.png")
        await press(pilot, "enter")
        await shows(app, pilot, "Scan folder")
        titles = [lines(app)[4].strip()]
        await press(pilot, "escape")
        await until(pilot, lambda: "Scan folder" not in text(app))
        for path in ("mesh/rock.fbx", "scripts/door.lua"):
            await go(pilot, pane, path)
            await press(pilot, "enter")
            await shows(app, pilot, "Scan folder")
            titles.append(lines(app)[4].strip())
            await press(pilot, "escape")
            await until(pilot, lambda: "Scan folder" not in text(app))

        assert titles == ["textures/rock.png", "mesh/rock.fbx", "scripts/door.lua"]

    in_assets(tmp_path, act, size=SMALL)


@pytest.mark.usefixtures("store")
def test_reference_without_target_explains_itself(tmp_path):
    async def act(app, pilot, pane, _session):
        await go(pilot, pane, "mesh/rock.fbx")
        put_on_reference(pane, "nobody.txt")
        await press(pilot, "enter")
        await until(pilot, lambda: "'nobody.txt' is not an asset" in text(app))

    in_assets(tmp_path, act, size=LARGE)


@pytest.mark.usefixtures("store")
def test_digest_and_type_can_be_copied(tmp_path):
    async def act(app, pilot, pane, _session):
        await go(pilot, pane, "linux/textures/rock.dds", Kind.PRODUCTS)
        await press(pilot, "y", "d")
        await until(pilot, lambda: app.copied)
        assert app.copied.pop()[0] == (b"D" * 32).hex()
        await press(pilot, "y", "t")
        await until(pilot, lambda: app.copied)
        assert app.copied.pop()[0] == uuid_text(b"T" * 16)

    in_assets(tmp_path, act)


@pytest.mark.usefixtures("store")
def test_tree_and_search_are_remembered(tmp_path):
    async def leave(_app, pilot, pane, _session):
        pane.box.text = "model"
        await press(pilot, "<", "q")

    async def look(app, pilot, pane, _session):
        await until(pilot, lambda: pane.trees.kind is Kind.PRODUCTS and "1 of 3" in text(app))

    in_assets(tmp_path, leave)
    in_assets(tmp_path, look)


@pytest.mark.usefixtures("store")
def test_without_engine_its_actions_are_not_offered(tmp_path):
    class Alone(NoSession):
        done = ("open",)

    async def look(app, pilot, pane, _session):
        await go(pilot, pane, "scripts/door.lua")
        assert "run again" not in lines(app)[-1]
        await press(pilot, "r", ".")
        await until(pilot, lambda: "Run again" in text(app))

    in_assets(tmp_path, look, session=Alone("x", tmp_path))


def test_missing_database_is_reported_in_place(tmp_path):
    async def look(app, pilot, _session):
        await until(pilot, lambda: "there is no asset database" in text(app))
        await press(pilot, "enter", "y", ".", "x", "J", "o", "n", "p", "[", "r")

    in_shell(tmp_path, look, session=FakeSession(tmp_path, SessionState.NONE), panes=PANES)


@pytest.mark.parametrize("state", [SessionState.ATTACHING, SessionState.ATTACHED])
def test_missing_database_waits_for_engine_that_makes_it(tmp_path, state):
    async def look(app, pilot, _session):
        await until(pilot, lambda: "nothing was processed yet" in text(app))
        assert "no asset database" not in text(app)

    in_shell(tmp_path, look, session=FakeSession(tmp_path, state), panes=PANES)


@pytest.mark.usefixtures("store")
def test_picture_is_decoded_after_delay_under_cursor(tmp_path, monkeypatch):
    Image.new("RGB", (64, 32), (255, 0, 0)).save(tmp_path / "textures/rock.png")
    begun = []
    decode = decoding.decode
    monkeypatch.setattr(decoding, "decode", lambda path, *more: begun.append(os.path.basename(path)) or decode(path, *more))

    async def look(app, pilot, pane, _session):
        await go(pilot, pane, "scripts/door.lua")
        await go(pilot, pane, "textures/rock.png")
        await until(pilot, lambda: begun == ["rock.png"])
        view = pane.query_one(FilePreview)
        await until(pilot, lambda: "#ff0000" in {str(each.style.bgcolor.name) for each in view.render_line(0)})
        assert "PNG 64 × 32, RGB, 8 bits" in text(app)
        assert "Format" not in text(app)
        pane.selected.mark_stale()  # reading the same file again draws no second picture
        pane.on_frame()
        await until(pilot, lambda: not pane.readers.queries.is_busy)
        assert begun == ["rock.png"]
        await press(pilot, "x")
        await shows(app, pilot, "── Why")
        await go(pilot, pane, "scripts/door.lua")
        await shows(app, pilot, "local a")
        assert begun == ["rock.png"]

    in_assets(tmp_path, look, size=LARGE)


@pytest.mark.usefixtures("store")
def test_late_picture_does_not_replace_newer_preview(tmp_path, monkeypatch):
    Image.new("RGB", (64, 32)).save(tmp_path / "textures/rock.png")
    came, may_end = threading.Event(), threading.Event()
    monkeypatch.setattr(decoding, "decode", lambda *_: came.set() or (may_end.wait(30) and Pixels(1, 1, bytes(4))))

    async def look(app, pilot, pane, _session):
        try:
            await go(pilot, pane, "textures/rock.png")
            await until(pilot, came.is_set)
            await press(pilot, "x")
            await shows(app, pilot, "── Why")
        finally:
            may_end.set()
        await until(pilot, lambda: not pane.readers.decoder._worker.is_busy)
        await press(pilot, "l")
        assert "── Why" in text(app)

    in_assets(tmp_path, look, size=LARGE)


# ── the parts without a screen ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (-1, ""),
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 KiB"),
        (4_200_000, "4.0 MiB"),
        (1_023_200, "999 KiB"),
        (1_023_999, "1.0 MiB"),
        (123e9, "115 GiB"),
        (64 << 20, "64 MiB"),
    ],
)
def test_sizes_are_short(size, shown):
    assert size_text(size) == shown


def test_jobs_filter_matches_only_its_source():
    assert jobs_filter('a b/"c".png', is_folder=False) == '"^a b/\\"c\\"\\\\.png$"'.replace("\\\\", "\\")
    assert jobs_filter("a", is_folder=True) == '"^a/"'


def test_missing_program_is_reported(tmp_path, monkeypatch):
    assert "cannot be started" in terminal_control.run_in_front([str(tmp_path / "none")])
    told = []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("shutil.which", lambda _: str(tmp_path / "no-browser"))
    terminal_control.show_folder(SimpleNamespace(show_toast=lambda text, _severity: told.append(text)), str(tmp_path))
    assert told == [f"'{tmp_path}/no-browser' cannot be started: no such file or directory"]


def test_only_newest_query_of_each_kind_is_answered(store):
    gate, told, failures = threading.Event(), [], []
    begun, done = threading.Event(), threading.Event()

    def deliver(what, *arguments):
        what(*arguments)

    def waits(_reader):
        begun.set()
        return gate.wait(20) and 1

    def fails(_reader):
        raise UserError("no")

    queries = QueryWorker(store.path, deliver, lambda kind, error: failures.append((kind, isinstance(error, KnownError))))
    queries.request("a", waits, told.append)
    assert begun.wait(20)  # else it is never asked, and nothing waits for the others
    queries.request("a", lambda _: 2, told.append)
    queries.request("preview", lambda _: 4, lambda answer: (told.append(answer), done.set()))
    queries.request("b", lambda reader: reader.ask("SELECT nonsense"), told.append)
    queries.request("c", fails, told.append)
    gate.set()
    assert done.wait(20)
    queries.close()

    assert told == [2, 4]
    assert failures == [("b", True), ("c", True)]
