"""Helpers for tests of the Assets screen."""

import os
import sqlite3
import struct
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from textual import events
from textual.keys import _character_to_key

from aptui.core.model import EdgeKind
from aptui.core.notices import JobChanged
from aptui.core.paths import to_text
from aptui.tui.data.assets_store import Kind
from aptui.tui.data.feed import Batch, JobNews
from aptui.tui.pane import PaneSpec
from aptui.tui.screens.assets.asset_detail import ReferenceTree
from tests.store.conftest import analysis_row, edge_row, job_row, source_row, uuid_of
from tui.database import database
from tui.fake_panes import FAKE_JOBS, FakeSession
from tui.shell_harness import in_shell, lines, script_test, text, until

MEDIUM = (116, 32)
MESH = b"M" * 16
EVIL = "evil/[red]x\x1b]0;t\x07.txt"
BYTES = to_text(b"evil/\xff.png")
PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBBBBB", 13, b"IHDR", 64, 32, 8, 6, 0, 0, 0)


PANES = [
    PaneSpec("assets", 2, "Assets", "Assets", "aptui.tui.screens.assets.assets_pane:AssetsPane"),
    FAKE_JOBS,
]


def product(number: int, job: int, name: str, sub_id: int = 0, flags: int = 1, size: int = 10) -> tuple[object, ...]:
    return (number, job, name, sub_id, b"T" * 16, 0, flags, b"D" * 32, size)


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
    """Open the screen on the Assets pane, with all folders open and the cursor on the first row; then await `do`."""

    async def begin(app, pilot, session):
        app.copied = []
        app.copy_text = lambda what, *, raw=False: app.copied.append((what, raw))
        await until(pilot, lambda: app.pane is not None and app.pane.trees.model.tree is not None and app.pane.live.is_placed)
        await press(pilot, "g", "*")
        await do(app, pilot, app.pane, session)
        await until(pilot, lambda: not app.switcher.mounted["assets"].readers.queries.is_busy)

    return in_shell(tmp_path, begin, size=size, session=session or FakeSession(tmp_path), theme=theme, panes=panes)


async def press(pilot, *keys: str) -> None:
    """Press keys and wait until they are handled. The pilot's own method waits 40 ms longer for each key."""
    for key in keys:
        is_character = len(key) == 1
        name = _character_to_key(key) if is_character else key
        pilot.app.post_message(events.Key(name, key if is_character else " " if key == "space" else None))
        for _ in range(6):  # A key is passed from the app to the screen to a widget, and back up to its handler.
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
    """Wait until the screen contains the text `expected`."""
    await until(pilot, lambda: expected in text(app))


async def go(pilot, pane, path: str, kind: Kind = Kind.SOURCES) -> None:
    pane.reveal(path)
    await at(pilot, pane, path, kind)


def cursor_on(pane) -> str:
    tree, model = pane.trees.view, pane.trees.model
    return model.tree.path(tree.node) if model.tree is not None and tree.node is not None else ""


def put_on_reference(pane, wanted: str) -> None:
    """Move the cursor of the reference tree to the first row that begins with `wanted`."""
    tree = pane.query_one(ReferenceTree)
    tree.focus()
    tree.action_unfold_all()
    for index in range(tree.count_rows()):
        ref = tree.reference(tree.key_of(index))
        if ref is not None and ref.text.startswith(wanted):
            tree.move_cursor(index)
            return
    raise AssertionError(f"no reference '{wanted}'")


def changed(status: str, **more: object) -> Batch:
    notice = JobChanged(0, 4, "scripts/door.lua", 1, "linux", "Image", "b", status, "", "", 0, 0, 1, "", 7)
    return Batch(jobs=(JobNews(notice, is_later=True, received_ms=0, **more),))


def row_of(app, name: str) -> str:
    return next((line for line in lines(app) if name in line), "")


on_assets = partial(script_test, in_assets, ("app", "pilot", "pane", "session"), "store")
