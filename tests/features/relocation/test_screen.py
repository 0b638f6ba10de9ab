"""Moving and deleting from the Assets screen: the destination, the preview, the request, and the result."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from msgspec import to_builtins
from msgspec.structs import replace
from textual.widgets import Input
from tui.fake_panes import FakeSession
from tui.shell_harness import SMALL, text, until

from aptui.core.notices import SourcesChanged
from aptui.features.relocation.relocation_records import (
    Dependant,
    Relocate,
    RelocationAction,
    RelocationItem,
    RelocationReport,
    Update,
    count_report,
)
from aptui.features.relocation.screen import RelocationPreview, _wrap, destination_of, new_path
from aptui.shared.errors import UserError
from aptui.tui.data.assets_store import Kind
from aptui.tui.data.session import NoSession
from aptui.tui.screens.assets.asset_panel import Panel
from aptui.tui.widgets.cells import width_of
from aptui.tui.widgets.menu import Menu, Prompt
from tests.store.conftest import source_row
from tests.tui.screens.assets import assets_harness as harness
from tests.tui.screens.assets.assets_harness import at, go, in_assets, press, shows

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("own_homes")]

store = harness.store
ROCK = "textures/rock.png"


class Mover(FakeSession):
    """An engine with one file and one dependant of this file.

    It refuses a move that neither updates references nor allows broken dependencies.
    """

    def __init__(self, folder) -> None:
        super().__init__(folder)
        self.fails = False
        self.orders: list[Relocate] = []

    def ask(self, verb) -> Future:
        if not isinstance(verb, Relocate):
            return super().ask(verb)
        self.orders.append(verb)
        answer = Future()
        if verb.destination.startswith("/outside"):
            answer.set_exception(UserError("the destination is outside the scan folders"))
        else:
            answer.set_result(to_builtins(self.report(verb)))
        return answer

    def report(self, order: Relocate) -> RelocationReport:
        dependant = Dependant("mesh/rock.fbx", "/p/mesh/rock.fbx", "{M}", "source", 1, by_uuid=False)
        item = RelocationItem(ROCK, f"/p/{ROCK}", "project", order.destination, "/p/new", "project",
        source_id=1, uuid="{A}", new_uuid="{B}",
                    dependants=(dependant,))  # fmt: skip
        is_refused = not (order.updates_references or order.allows_broken)
        refusals = (
            ("one file depends on files that would be moved, and would then have missing dependencies",) if is_refused else ()
        )
        if not order.is_confirmed or refusals:
            return count_report(RelocationReport(order, (item,), refusals=refusals))
        outcome = RelocationAction.FAILED if self.fails else RelocationAction.DONE
        done = replace(item, action=outcome, problem="no space" if self.fails else "")
        updates = (Update("mesh/rock.fbx", "/p/mesh/rock.fbx", 2, action=outcome),) if order.updates_references else ()
        return count_report(RelocationReport(order, (done,), updates, is_performed=True))


def previews(app) -> list[RelocationPreview]:
    return list(app.screen.query(RelocationPreview))


async def type_in(app, pilot, destination: str) -> None:
    """Put a destination into the prompt; typing it would take a second."""
    app.screen.query_one(Prompt).query_one(Input).value = destination
    await press(pilot, "enter")


async def to_preview(app, pilot, pane, destination: str) -> None:
    """Request to move the source `ROCK`, and wait for the preview of the move."""
    await go(pilot, pane, ROCK)
    await press(pilot, "m")
    await until(pilot, lambda: bool(app.screen.query(Prompt)))
    assert "to" in str(app.screen.query_one(Prompt).border_title)
    await type_in(app, pilot, destination)


def test_source_is_moved_after_its_preview(tmp_path, store):
    async def move(app, pilot, pane, session):
        await to_preview(app, pilot, pane, "new/rock.png")
        await until(pilot, lambda: "refused: one file depends" in text(app))
        for expected in (f"{ROCK} → new/rock.png", "update references: off", "metadata: on", "Esc", "cancel"):
            await shows(app, pilot, expected)
        await press(pilot, "y")
        assert [order.is_confirmed for order in session.orders] == [False]
        await press(pilot, "u")
        await shows(app, pilot, "update references: on")
        await press(pilot, "y")
        await shows(app, pilot, "1 of 1 file moved")
        await until(pilot, lambda: not previews(app))
        assert app.focused is pane.trees.view
        store.put(put_source=[source_row(9, "new/rock.png")])
        session.say(SourcesChanged(0, (("new/rock.png", True),)))
        await at(pilot, pane, "new/rock.png")
        assert session.orders[-1] == Relocate(f"{tmp_path}/{ROCK}", "new/rock.png", is_confirmed=True, updates_references=True)

    in_assets(tmp_path, move, size=SMALL, session=Mover(tmp_path))


@pytest.mark.usefixtures("store")
def test_folder_is_deleted(tmp_path):
    async def delete(app, pilot, pane, session):
        await go(pilot, pane, ROCK)
        await press(pilot, "h")
        await until(pilot, lambda: pane.selected.panel is not None and pane.selected.panel.path == "textures")
        await press(pilot, "D")
        await shows(app, pilot, "Delete textures")
        assert "update references" not in text(app)
        await press(pilot, "b", "m")
        await shows(app, pilot, "metadata: off")
        await press(pilot, "y")
        await until(pilot, lambda: not previews(app))
        assert session.orders[-1] == Relocate(
            "textures/*", is_delete=True, is_confirmed=True, allows_broken=True, excludes_metadata=True
        )

    in_assets(tmp_path, delete, session=Mover(tmp_path))


@pytest.mark.parametrize(
    ("source", "old", "new", "path"),
    [
        ("/p/a/b.png", "a/b.png", "c/b.png", "c/b.png"),
        ("a/*", "a/deep/b.png", "c/deep/b.png", "c"),
        ("a/*", "a/deep/b.png", "new/c/deep/b.png", "new/c"),
        ("/p/a/b.png", "a/b.png", "", ""),
    ],
)
def test_screen_goes_to_the_new_path_of_a_moved_file_or_folder(source, old, new, path):
    report = RelocationReport(Relocate(source), (RelocationItem(old, f"/p/{old}", "project", new),))

    assert new_path(report) == path


@pytest.mark.parametrize(
    ("key", "typed", "asked"),
    [(-1, "stones", "stones/*"), (-1, "old/", "old/textures/*"), (3, "a.png", "a.png"), (3, "old/", "old/")],
)
def test_typed_destination_is_completed_for_a_folder_but_not_for_a_file(key, typed, asked):
    assert destination_of(Panel(Kind.SOURCES, key, "deep/textures"), typed) == asked


@pytest.mark.usefixtures("store")
def test_user_can_correct_a_refused_destination(tmp_path):
    async def move(app, pilot, pane, _session):
        await to_preview(app, pilot, pane, "/outside/")
        await shows(app, pilot, "outside the scan folders")
        await until(pilot, lambda: bool(app.screen.query(Prompt)))
        await shows(app, pilot, "/outside/")
        await press(pilot, "escape")
        await until(pilot, lambda: not app.screen.query(Prompt))

    in_assets(tmp_path, move, session=Mover(tmp_path))


@pytest.mark.usefixtures("store")
def test_report_of_a_failed_move_stays_on_the_screen(tmp_path):
    session = Mover(tmp_path)
    session.fails = True

    async def move(app, pilot, pane, _session):
        await to_preview(app, pilot, pane, "new/")
        await until(pilot, lambda: bool(previews(app)))
        await press(pilot, "b", "y")
        for expected in ("0 of 1 file moved, 1 failed", "no space", "close"):
            await shows(app, pilot, expected)
        await press(pilot, "u", "y")
        assert len(session.orders) == 3
        await press(pilot, "escape")
        await until(pilot, lambda: not previews(app))

    in_assets(tmp_path, move, session=session)


@pytest.mark.usefixtures("store")
def test_menu_offers_move_and_delete_with_an_engine(tmp_path):
    async def with_engine(app, pilot, pane, _session):
        await go(pilot, pane, ROCK)
        await press(pilot, ".")
        await until(pilot, lambda: bool(app.screen.query(Menu)))
        assert "Move…" in text(app)
        assert "Delete…" in text(app)
        await press(pilot, "m")
        await until(pilot, lambda: bool(app.screen.query(Prompt)))
        await press(pilot, "escape")

    async def without(app, pilot, pane, _session):
        await go(pilot, pane, ROCK)
        await press(pilot, "m", "D")
        assert not app.screen.query(Prompt)
        assert not previews(app)

    in_assets(tmp_path, with_engine, session=Mover(tmp_path))
    in_assets(tmp_path, without, session=Alone("project", tmp_path))


class Alone(NoSession):
    done = ("open",)


@pytest.mark.parametrize("width", [20, 33, 76])
@pytest.mark.parametrize(
    "line",
    ["", "short", "a/very/long/path/that/goes/on/and/on → another/very/long/path/which/is/here", "    " + "x" * 200, "漢字" * 40],
)
def test_long_line_of_a_relocation_report_is_wrapped_completely(line, width):
    parts = ["".join(part.text for part in parts) for parts in _wrap(line, "", width)]

    assert all(width_of(part) <= width for part in parts)
    assert "".join(parts).replace(" ", "") == line.replace(" ", "")
