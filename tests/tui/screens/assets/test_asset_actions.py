"""Actions on assets: copying, opening in other programs, running again. Previews and pictures of assets."""

import os
import threading
from types import SimpleNamespace

import pytest
from PIL import Image

from aptui.link.port import ReprocessJobs
from aptui.shared.errors import KnownError, UserError
from aptui.store.db.schema import uuid_text
from aptui.tui.data.assets_store import Kind
from aptui.tui.data.session import NoSession
from aptui.tui.frame import terminal_control
from aptui.tui.pictures import decoding
from aptui.tui.pictures.decoder import Pixels
from aptui.tui.screens.assets import asset_detail
from aptui.tui.screens.assets.asset_detail import FilePreview
from aptui.tui.screens.assets.asset_navigation import jobs_filter
from aptui.tui.screens.assets.asset_panel import AssetPlaces, Panel, folder_panel
from aptui.tui.screens.assets.asset_readers import QueryWorker
from aptui.tui.widgets.menu import Menu
from aptui.tui.words import size_text
from tests.store.conftest import uuid_of
from tui.shell_harness import LARGE, SMALL, lines, text, until

from .assets_harness import BYTES, EVIL, go, in_assets, on_assets, press, put_on_reference, shows

pytestmark = pytest.mark.real


@pytest.mark.usefixtures("store")
def test_zoom_key_waits_until_the_preview_of_the_row_is_read(tmp_path, monkeypatch):
    may_read = threading.Event()
    may_read.set()
    read = asset_detail.preview_of
    monkeypatch.setattr(asset_detail, "preview_of", lambda path: may_read.wait() and read(path))

    async def script(app, pilot, pane, _session):
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

    in_assets(tmp_path, script, size=SMALL)


@on_assets()
async def test_path_with_a_line_break_is_copied_as_one_safe_line(app, pilot, pane):
    pane.actions._copy(Panel(Kind.SOURCES, 9, "a\nls.png", file="/p/a\nls.png"))
    await press(pilot, "f")
    await until(pilot, lambda: app.copied)
    assert app.copied == [("/p/a\nls.png", False)]


@on_assets(size=LARGE)
async def test_asset_actions_work_from_keys_and_from_the_menu(app, pilot, pane, session, tmp_path):
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


@on_assets()
async def test_marked_assets_run_again_at_once_but_folders_after_a_question(app, pilot, pane, session):
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


@on_assets(size=SMALL)
async def test_explanation_key_works_on_a_screen_too_narrow_for_tree_and_details(app, pilot, pane):
    await go(pilot, pane, "textures/rock.png")
    await press(pilot, "x")
    await shows(app, pilot, "Why")
    await shows(app, pilot, "new source")
    await press(pilot, "escape")
    await until(pilot, lambda: pane.trees.view.has_focus)


@on_assets()
async def test_preview_is_shown_after_four_presses_of_the_explanation_key(app, pilot, pane):
    await go(pilot, pane, "textures/rock.png")
    await press(pilot, "x")
    await shows(app, pilot, "new source")
    await press(pilot, "x", "x", "x")
    await until(pilot, lambda: pane.detail.is_explaining is False and not pane.readers.queries.is_busy)
    assert "new source" not in text(app)


@on_assets()
async def test_quickly_typed_keys_act_on_the_row_under_the_cursor(app, pilot, pane):
    await go(pilot, pane, "mesh/rock.fbx")
    pane.trees.view.action_move(2)
    pane.actions.run("copy")
    await until(pilot, lambda: app.screen.query(Menu))
    await press(pilot, "y")
    await until(pilot, lambda: app.copied == [("scripts/door.lua", True)])


@on_assets()
async def test_hostile_names_are_displayed_safely_and_copied_byte_for_byte(app, pilot, pane, tmp_path):
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


@pytest.mark.usefixtures("store")
def test_pager_and_editor_get_the_asset_path_and_shell_gets_its_folder(tmp_path, monkeypatch):
    for name, value in (("PAGER", "view -x"), ("VISUAL", ""), ("EDITOR", "'broken"), ("SHELL", "/bin/zsh"), ("DISPLAY", "")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    ran = []

    async def act(app, pilot, pane, _session):
        await go(pilot, pane, "scripts/door.lua")
        await press(pilot, "o")
        await until(pilot, lambda: "cannot be started in this terminal" in text(app))
        monkeypatch.setattr(terminal_control, "lend", lambda _host, command, folder=None, _note="": ran.append((command, folder)))
        await press(pilot, "o", "O", "F")
        file = f"{tmp_path}/scripts/door.lua"
        await until(pilot, lambda: len(ran) >= 3)
        places = AssetPlaces(str(tmp_path), roots=(("over", f"{tmp_path}/over"), ("game", str(tmp_path))))
        pane.actions._open_folder(folder_panel(Kind.SOURCES, -1, "scripts", 1, places))
        assert ran.pop() == (["/bin/zsh"], f"{tmp_path}/scripts"), "the folder is opened in the first scan folder that contains it"
        assert ran == [(["view", "-x", file], None), (["vi", file], None), (["/bin/zsh"], f"{tmp_path}/scripts")]
        await go(pilot, pane, EVIL)
        await press(pilot, "o")
        await until(pilot, lambda: "the file does not exist" in text(app))

    in_assets(tmp_path, act)


@on_assets()
async def test_digest_and_asset_type_can_be_copied(app, pilot, pane):
    await go(pilot, pane, "linux/textures/rock.dds", Kind.PRODUCTS)
    await press(pilot, "y", "d")
    await until(pilot, lambda: app.copied)
    assert app.copied.pop()[0] == (b"D" * 32).hex()
    await press(pilot, "y", "t")
    await until(pilot, lambda: app.copied)
    assert app.copied.pop()[0] == uuid_text(b"T" * 16)


@pytest.mark.usefixtures("store")
def test_engine_actions_are_not_offered_without_an_engine(tmp_path):
    class Alone(NoSession):
        done = ("open",)

    async def script(app, pilot, pane, _session):
        await go(pilot, pane, "scripts/door.lua")
        assert "run again" not in lines(app)[-1]
        await press(pilot, "r", ".")
        await until(pilot, lambda: "Run again" in text(app))

    in_assets(tmp_path, script, session=Alone("x", tmp_path))


@pytest.mark.usefixtures("store")
def test_picture_under_the_cursor_is_decoded_after_a_delay(tmp_path, monkeypatch):
    Image.new("RGB", (64, 32), (255, 0, 0)).save(tmp_path / "textures/rock.png")
    begun = []
    decode = decoding.decode
    monkeypatch.setattr(decoding, "decode", lambda path, *more: begun.append(os.path.basename(path)) or decode(path, *more))

    async def script(app, pilot, pane, _session):
        await go(pilot, pane, "scripts/door.lua")
        await go(pilot, pane, "textures/rock.png")
        await until(pilot, lambda: begun == ["rock.png"])
        view = pane.query_one(FilePreview)
        await until(pilot, lambda: "#ff0000" in {str(each.style.bgcolor.name) for each in view.render_line(0)})
        assert "PNG 64 × 32, RGB, 8 bits" in text(app)
        assert "Format" not in text(app)
        pane.selected.mark_stale()  # the pane reads the same file again, but must not decode the picture again
        pane.on_frame()
        await until(pilot, lambda: not pane.readers.queries.is_busy)
        assert begun == ["rock.png"]
        await press(pilot, "x")
        await shows(app, pilot, "── Why")
        await go(pilot, pane, "scripts/door.lua")
        await shows(app, pilot, "local a")
        assert begun == ["rock.png"]

    in_assets(tmp_path, script, size=LARGE)


@pytest.mark.usefixtures("store")
def test_late_picture_does_not_replace_newer_preview(tmp_path, monkeypatch):
    Image.new("RGB", (64, 32)).save(tmp_path / "textures/rock.png")
    came, may_end = threading.Event(), threading.Event()
    monkeypatch.setattr(decoding, "decode", lambda *_: came.set() or (may_end.wait(30) and Pixels(1, 1, bytes(4))))

    async def script(app, pilot, pane, _session):
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

    in_assets(tmp_path, script, size=LARGE)


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
def test_size_of_a_file_is_shown_in_an_abbreviated_unit(size, shown):
    assert size_text(size) == shown


def test_jobs_filter_of_a_source_matches_only_this_source():
    assert jobs_filter('a b/"c".png', is_folder=False) == '"^a b/\\"c\\"\\\\.png$"'.replace("\\\\", "\\")
    assert jobs_filter("a", is_folder=True) == '"^a/"'


def test_missing_program_is_reported(tmp_path, monkeypatch):
    assert "cannot be started" in terminal_control.run_in_front([str(tmp_path / "none")])
    reported = []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("shutil.which", lambda _: str(tmp_path / "no-browser"))
    terminal_control.show_folder(SimpleNamespace(show_toast=lambda text, _severity: reported.append(text)), str(tmp_path))
    assert reported == [f"'{tmp_path}/no-browser' cannot be started: no such file or directory"]


def test_only_the_newest_query_of_each_kind_is_answered(store):
    gate, reported, failures = threading.Event(), [], []
    begun, done = threading.Event(), threading.Event()

    def deliver(what, *arguments):
        what(*arguments)

    def waits(_reader):
        begun.set()
        return gate.wait(20) and 1

    def fails(_reader):
        raise UserError("no")

    queries = QueryWorker(store.path, deliver, lambda kind, error: failures.append((kind, isinstance(error, KnownError))))
    queries.request("a", waits, reported.append)
    assert begun.wait(20)  # The first query must be running before the later requests, so that these are queued.
    queries.request("a", lambda _: 2, reported.append)
    queries.request("preview", lambda _: 4, lambda answer: (reported.append(answer), done.set()))
    queries.request("b", lambda reader: reader.ask("SELECT nonsense"), reported.append)
    queries.request("c", fails, reported.append)
    gate.set()
    assert done.wait(20)
    queries.close()

    assert reported == [2, 4]
    assert failures == [("b", True), ("c", True)]
