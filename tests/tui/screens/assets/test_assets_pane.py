"""The Assets screen: its keys over a real database, at both sizes; hostile names; notices while it is shown."""

import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from PIL import Image

from aptui.builders.files.texture_file import Texture, encode_dds, encode_ktx2
from aptui.store.db.schema import uuid_text
from aptui.tui.data.assets_store import Kind
from aptui.tui.data.session import SessionState
from aptui.tui.screens.assets.asset_detail import FilePreview, ReferenceTree
from tests.store.conftest import uuid_of
from tests.tools import MACHINE
from tui.fake_panes import FakeJobs, FakeSession
from tui.shell_harness import LARGE, SMALL, in_shell, lines, text, until

from .assets_harness import PANES, at, go, in_assets, on_assets, press, put_on_reference, shows

pytestmark = pytest.mark.real


@pytest.mark.parametrize(("size", "theme"), [(LARGE, "dark"), (SMALL, "monochrome")])
@on_assets()
async def test_source_details_show_facts_and_references(app, pilot, pane, size, theme):
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


@on_assets()
async def test_enter_follows_a_reference_and_bracket_keys_go_back_or_forward(app, pilot, pane):
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


@on_assets()
async def test_expanded_product_dependency_shows_a_cycle_only_as_a_mark(app, pilot, pane):
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


@pytest.mark.usefixtures("store")
def test_asset_is_found_by_each_of_its_names(tmp_path):
    mesh = uuid_text(uuid_of(2))
    rock, model = ("textures/rock.png", Kind.SOURCES), ("common/mesh/rock.model", Kind.PRODUCTS)

    async def find(_app, pilot, pane, _session):
        for name, (path, kind) in (
            ("TEXTURES/Rock.png", rock), (f"{mesh}:7", model), (f"{tmp_path}/textures/rock.png", rock),
            (f"{tmp_path}/{model[0]}", model),
            (mesh, ("mesh/rock.fbx", Kind.SOURCES)), (f" {model[0]} ", model),
            # The name by which a job refers to its intermediate product.
            ("common/mesh/rock.mat", ("mesh/rock.mat", Kind.INTERMEDIATES)),
        ):  # fmt: skip
            pane.reveal(name)
            await at(pilot, pane, path, kind)

    in_assets(tmp_path, find)


@on_assets(size=(20, 6))
async def test_assets_screen_is_usable_at_a_tiny_size(app, pilot, pane):
    await go(pilot, pane, "textures/rock.png")
    await press(pilot, "enter", "z", "tab", "t", "/", "x", "enter", ".")
    assert app.is_running


@on_assets()
async def test_zoom_shows_only_the_focused_part_and_tab_shows_the_next_part(app, pilot, pane):
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


@on_assets()
async def test_back_returns_to_the_jobs_screen_that_led_to_the_asset(app, pilot, pane):
    await go(pilot, pane, "textures/rock.png")
    pane.reveal("scripts/door.lua", came_from="jobs")
    await at(pilot, pane, "scripts/door.lua")
    await press(pilot, "[")
    await until(pilot, lambda: isinstance(app.pane, FakeJobs))
    await press(pilot, "2", "[")
    await at(pilot, pane, "textures/rock.png")


@pytest.mark.usefixtures("store")
def test_cursor_reaches_the_end_of_a_long_list_of_references(tmp_path, store):
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


@on_assets(size=SMALL)
async def test_title_on_a_narrow_screen_names_the_visible_asset(app, pilot, pane):
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


@on_assets(size=LARGE)
async def test_reference_to_an_unknown_asset_shows_a_message(app, pilot, pane):
    await go(pilot, pane, "mesh/rock.fbx")
    put_on_reference(pane, "nobody.txt")
    await press(pilot, "enter")
    await until(pilot, lambda: "'nobody.txt' is not an asset" in text(app))


def test_missing_asset_database_is_reported_in_place_of_the_tree(tmp_path):
    async def script(app, pilot, _session):
        await until(pilot, lambda: "there is no asset database" in text(app))
        await press(pilot, "enter", "y", ".", "x", "J", "o", "n", "p", "[", "r")

    in_shell(tmp_path, script, session=FakeSession(tmp_path, SessionState.NONE), panes=PANES)


@pytest.mark.parametrize("state", [SessionState.ATTACHING, SessionState.ATTACHED])
def test_missing_database_that_an_engine_may_create_is_shown_as_empty(tmp_path, state):
    async def script(app, pilot, _session):
        await until(pilot, lambda: "nothing was processed yet" in text(app))
        assert "no asset database" not in text(app)

    in_shell(tmp_path, script, session=FakeSession(tmp_path, state), panes=PANES)


@pytest.mark.usefixtures("store")
def test_parentheses_step_through_the_levels_of_a_texture(tmp_path):
    red, blue = b"\x00\xf8" + bytes(6), b"\x1f\x00" + bytes(6)
    levels = [[red * 16], [blue * 4], [red], [red], [red]]
    (tmp_path / "textures" / "rock.png").write_bytes(encode_dds(Texture("bc1", 16, 16, levels, is_srgb=False)))

    async def script(app, pilot, pane, _session):
        await go(pilot, pane, "textures/rock.png")
        for key, level, size in ((")", 2, "8 × 8, 32 B"), (")", 3, "4 × 4, 8 B"), ("(", 2, "8 × 8"), ("(", 1, "16 × 16")):
            await shows(app, pilot, "level 1 of 5" if key == ")" and level == 2 else "level ")
            await press(pilot, key)
            await shows(app, pilot, f"level {level} of 5: {size}")
        await press(pilot, "(")
        await go(pilot, pane, "mesh/rock.fbx")
        await press(pilot, ")")
        await shows(app, pilot, "no levels: this is not a texture with mip levels")

    in_assets(tmp_path, script, size=LARGE)


def commit(folder: Path, name: str) -> None:
    """Commit a file to a new repository."""
    for words in (["init", "-q"], ["add", name], ["-c", "user.name=Bea", "-c", "user.email=b@x", "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


needs_git = pytest.mark.skipif(shutil.which("git") is None, reason=MACHINE + "git is not installed")


@pytest.mark.usefixtures("store")
def test_brace_keys_show_the_next_or_previous_cube_map_face(tmp_path):
    block = b"\x00\xf8" + bytes(6)
    levels = [[block * 4] * 6, [block] * 6]
    (tmp_path / "textures" / "rock.png").write_bytes(encode_ktx2(Texture("bc1", 8, 8, levels, is_srgb=False, face_count=6)))

    async def script(app, pilot, pane, _session):
        await go(pilot, pane, "textures/rock.png")
        await shows(app, pilot, "face +X, level 1 of 2: 8 × 8, 32 B, KTX 2")
        for key, title in (
            ("{", "+X, level 1"),
            ("}", "-X, level 1"),
            (")", "-X, level 2"),
            ("}", "+Y, level 2"),
            ("{", "-X, level 2"),
        ):
            await press(pilot, key)
            await shows(app, pilot, f"face {title} of 2")
        await go(pilot, pane, "mesh/rock.fbx")
        await press(pilot, "}")
        await shows(app, pilot, "no faces or layers: this is not a cube map or an array")

    in_assets(tmp_path, script, size=LARGE)


@pytest.mark.usefixtures("store")
@needs_git
def test_equals_sign_shows_the_committed_and_the_current_picture_together(tmp_path):
    Image.new("RGB", (8, 8), "red").save(tmp_path / "textures" / "rock.png")
    commit(tmp_path, "textures/rock.png")
    Image.new("RGB", (16, 8), "blue").save(tmp_path / "textures" / "rock.png")

    async def script(app, pilot, pane, _session):
        await go(pilot, pane, "textures/rock.png")
        await shows(app, pilot, "PNG 16 × 8")
        await press(pilot, "=")
        await shows(app, pilot, "Before and after")
        await shows(app, pilot, "(Bea)  PNG 8 × 8")
        await shows(app, pilot, "now  PNG 16 × 8")
        await press(pilot, "x")
        await shows(app, pilot, " Why")
        await press(pilot, "=")
        await shows(app, pilot, "now  PNG 16 × 8")
        await press(pilot, "x")
        await until(pilot, lambda: "now  PNG" not in text(app))
        await press(pilot, "x")
        await shows(app, pilot, "Preview  PNG 16 × 8")
        await press(pilot, "=")
        await shows(app, pilot, "Before and after")
        await press(pilot, "=")
        await until(pilot, lambda: "Before and after" not in text(app))
        await go(pilot, pane, "scripts/door.lua")
        await press(pilot, "=")
        await shows(app, pilot, "no earlier version: Git has no earlier version of the source")

    in_assets(tmp_path, script, size=LARGE)


@pytest.mark.usefixtures("store")
@needs_git
def test_difference_key_replaces_preview_or_explanation_by_changed_lines(tmp_path):
    commit(tmp_path, "scripts/door.lua")
    (tmp_path / "scripts" / "door.lua").write_text("local a = 2\n")

    async def script(app, pilot, pane, _session):
        await go(pilot, pane, "scripts/door.lua")
        await shows(app, pilot, "lua  1 line")
        for _ in range(2):
            await press(pilot, "=")
            await shows(app, pilot, "Before and after  1 line removed, 1 added")
            await shows(app, pilot, "1  + local a = 2")
            await press(pilot, "=")
            await shows(app, pilot, "lua  1 line")
        await press(pilot, "x")
        await shows(app, pilot, " Why")
        await press(pilot, "=")
        await shows(app, pilot, "Before and after  1 line removed, 1 added")
        await press(pilot, "x")
        await until(pilot, lambda: "Before and after" not in text(app) and " Why" in text(app))
        await press(pilot, "x")
        await shows(app, pilot, "lua  1 line")

    in_assets(tmp_path, script, size=LARGE)
