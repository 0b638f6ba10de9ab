"""The search for missing dependencies on the Assets screen: requests, refusals, and results."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from tui.fake_panes import FakeSession
from tui.screens.assets.assets_harness import at, go, in_assets, press, put_on_reference, shows, store  # noqa: F401  # the fixture too
from tui.shell_harness import LARGE, SMALL, lines, text, until

from aptui.core.notices import MissingScan, Progress
from aptui.features.shipping.missing_rows import NO_UUID, NOTHING, PARTIAL, ClearMissing, ScanMissing
from aptui.tui.data.assets_store import Kind
from aptui.tui.data.session import SessionState
from aptui.tui.shell_commands import run
from tests.store.conftest import uuid_of

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("own_homes")]

MODEL = "common/mesh/rock.model"


def put(path, *rows):
    sql = """INSERT INTO MissingProductDependencies(
             ProductPK, ScannerId, ScannerVersion, SourceFileFingerprint, DependencySourceGuid,
        DependencySubId, MissingDependencyString, LastScanTime, ScanTimeSecondsSinceEpoch) VALUES (?, '', '', '', ?, 0, ?, '', ?)"""
    with closing(sqlite3.connect(path / "assetdb.sqlite", isolation_level=None)) as database:
        database.executemany(sql, rows)


def asked(session, kind):
    return [verb for verb in session.asked if isinstance(verb, kind)]


@pytest.mark.usefixtures("store")
def test_user_can_scan_products_sources_and_folders_and_clear_scan_results(tmp_path):
    async def ask(app, pilot, pane, session):
        await go(pilot, pane, MODEL, Kind.PRODUCTS)
        await press(pilot, "U")
        await until(pilot, lambda: len(asked(session, ScanMissing)) == 1)
        await press(pilot, "X")
        await until(pilot, lambda: f"clear the scan results of '{MODEL}'?" in text(app))
        await press(pilot, "n")
        await until(pilot, lambda: "clear the scan results" not in text(app))
        await press(pilot, "X")
        await until(pilot, lambda: "clear the scan results" in text(app))
        assert not asked(session, ClearMissing)
        await press(pilot, "y")
        await until(pilot, lambda: len(asked(session, ClearMissing)) == 1)
        await go(pilot, pane, "textures/rock.png")
        await press(pilot, "U")
        await until(pilot, lambda: len(asked(session, ScanMissing)) == 2)
        await press(pilot, "home", "U")
        await until(pilot, lambda: len(asked(session, ScanMissing)) == 3)

        product, source, folder = asked(session, ScanMissing)
        assert (product.product_ids, product.patterns, product.name) == ((4,), (), MODEL)
        assert (source.product_ids, source.patterns, source.name) == ((1, 2), (), "textures/rock.png")
        assert (folder.product_ids, folder.patterns) == ((), ("evil",))
        assert asked(session, ClearMissing)[0].product_ids == (4,)

    in_assets(tmp_path, ask)


@pytest.mark.usefixtures("store")
def test_screen_command_for_missing_dependencies_accepts_a_pattern(tmp_path):
    async def say(app, pilot, _pane, session):
        run(app, "missing *.lua", app.commands())
        run(app, "missing", app.commands())
        await until(pilot, lambda: len(asked(session, ScanMissing)) == 2)
        session.latest_progress = Progress(1, 0, 0, 1, 0, 0, 0, 0, is_scanning=False)
        run(app, "missing", app.commands())
        await shows(app, pilot, "the engine is busy")

        assert [verb.patterns for verb in asked(session, ScanMissing)] == [("*.lua",), ()]

    in_assets(tmp_path, say)


@pytest.mark.usefixtures("store")
def test_asset_without_products_is_not_scanned(tmp_path):
    async def ask(app, pilot, pane, session):
        await go(pilot, pane, "scripts/door.lua")
        await press(pilot, "U")
        await shows(app, pilot, "has no products")

        assert asked(session, ScanMissing) == []

    in_assets(tmp_path, ask)


@pytest.mark.usefixtures("store")
def test_busy_engine_refuses_to_scan_from_the_screen(tmp_path):
    async def ask(app, pilot, pane, session):
        session.latest_progress = Progress(1, 0, 0, 0, 3, 1, 0, 0, is_scanning=False)
        await go(pilot, pane, MODEL, Kind.PRODUCTS)
        await press(pilot, "U")
        await shows(app, pilot, "the engine is busy")
        await press(pilot, ".")
        await shows(app, pilot, "Scan it for missing dependencies (when the engine is idle)")

        assert asked(session, ScanMissing) == []

    in_assets(tmp_path, ask, size=LARGE)


@pytest.mark.usefixtures("store")
def test_scan_is_disabled_without_an_engine(tmp_path):
    async def script(_app, pilot, pane, _session):
        await go(pilot, pane, MODEL, Kind.PRODUCTS)

        assert not pane.check_action("row", ("scan_missing",))
        assert not pane.check_action("row", ("clear_missing",))

    in_assets(tmp_path, script, session=FakeSession(tmp_path, SessionState.NONE))


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_scan_line_shows_the_progress_and_the_result_of_a_scan(tmp_path, size):
    async def script(app, pilot, pane, session):
        session.say(MissingScan(1, "linux/levels", 40, 7, 3))
        await shows(app, pilot, "Scanning 40 files for linux/levels: 7 done, 3 missing")
        session.say(MissingScan(2, "linux/levels", 40, 40, 0, 1.25, is_over=True))
        await shows(app, pilot, "Completed scanning linux/levels in 1.2 s: nothing missing")
        session.say(MissingScan(3, "x" * 300, 1, 0, 0, 0.1, is_over=True, error="given up"))
        await shows(app, pilot, "ended: given up")
        await press(pilot, "j")
        await until(pilot, lambda: "ended: given up" not in text(app))

    in_assets(tmp_path, script, size=size)


@pytest.mark.usefixtures("store")
def test_scan_line_is_hidden_when_the_engine_is_lost_during_a_scan(tmp_path):
    async def script(app, pilot, _pane, session):
        session.say(MissingScan(1, "linux/levels", 40, 7, 3))
        await shows(app, pilot, "Scanning 40 files for linux/levels")
        for listener in session.listeners:
            listener.note_loss()
        await until(pilot, lambda: "Scanning" not in text(app))

    in_assets(tmp_path, script)


@pytest.mark.usefixtures("store")
def test_scan_results_are_listed_newest_first(tmp_path):
    async def script(app, pilot, pane, session):
        put(tmp_path, (4, uuid_of(2), "mesh/rock.fbx", 90), (4, NO_UUID, PARTIAL, 90), (1, NO_UUID, NOTHING, 90))
        session.say(MissingScan(1, MODEL, 1, 1, 1, 0.1, is_over=True))
        await go(pilot, pane, MODEL, Kind.PRODUCTS)
        await shows(app, pilot, "Missing dependencies (2)")
        await shows(app, pilot, "partially scanned")
        shown = lines(app)
        newest, oldest = (
            next(at for at, line in enumerate(shown) if f"→ {name}" in line and "✗" in line)
            for name in ("mesh/rock.fbx", "rock.dds")
        )
        assert newest < oldest
        await until(pilot, lambda: pane.trees.model.tree.flawed == {4})

        put_on_reference(pane, "rock.dds")
        await press(pilot, "enter")
        await at(pilot, pane, "linux/textures/rock.dds", Kind.PRODUCTS)
        await shows(app, pilot, "Missing dependencies (none, 7")
        assert "not scanned yet" not in text(app)

    in_assets(tmp_path, script, size=LARGE)
