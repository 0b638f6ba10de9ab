"""aptui draws only changed lines, with the same result as Textual. With an untested version of Textual, Textual draws."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual._compositor import ChopsUpdate, Compositor
from textual.app import App, ComposeResult
from textual.containers import Vertical
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

from aptui.tui.terminal.output import display
from aptui.tui.terminal.output.display import ChangedLines, is_supported, is_tested

WIDTH, HEIGHT = 40, 12


class Part(Static):
    """Counts the lines that it renders."""

    asked: tuple[int, ...] = ()

    def render_lines(self, crop: Region):
        self.asked += tuple(crop.line_range)
        return super().render_lines(crop)


class Harness(Screen):
    def __init__(self) -> None:
        super().__init__()
        self._compositor = ChangedLines()

    def compose(self) -> ComposeResult:
        yield Part("status\n岩石 two\nthree", id="top")
        with Vertical():
            for number in range(4):
                yield Part(f"row {number}\nmore of {number}\nlast {number}", id=f"row{number}")
        yield Part("hints\nof\nkeys", id="bottom")
        yield Part("a\nbox\nover\nall", id="over")


class Stage(App):
    CSS = """
    Part { height: 3; width: 1fr; layer: below; }
    Vertical { height: 5; overflow-y: scroll; layer: below; }
    #over { layer: above; width: 10; height: 4; offset: 12 1; dock: top; }
    Room { layers: below above; }
    """

    def get_default_screen(self) -> Harness:
        return Harness()


def drawn(screen: Harness, kind: type[Compositor], regions: set[Region]) -> list[tuple[int, str]]:
    """Draw these regions; return (line, its drawn texts with their columns), without texts outside the regions."""
    compositor = screen._compositor
    compositor._dirty_regions = set(regions)
    compositor.__class__ = kind
    try:
        update = compositor.render_partial_update()
    finally:
        compositor.__class__ = ChangedLines
    assert isinstance(update, ChopsUpdate)
    return [
        (y, "|".join(f"{x}:{strip.text}" for x, strip in _pieces(update, y) if x < end and x + strip.cell_length > first))
        for y, first, end in update.spans
    ]


def _pieces(update: ChopsUpdate, y: int) -> list[tuple[int, Strip]]:
    return [(x, strip) for x, strip in update.chops[y].items() if strip is not None]


@pytest.mark.parametrize(
    "regions",
    [
        {Region(0, 0, 10, 1), Region(3, 10, 5, 1)},
        {Region(0, 0, WIDTH, HEIGHT - 1)},
        {Region(0, 2, WIDTH, 1), Region(11, 3, 4, 2)},
        {Region(0, 7, 3, 1)},
    ],
)
def test_changed_lines_look_the_same_as_lines_drawn_by_textual(regions):
    async def draw() -> None:
        app = Stage()
        async with app.run_test(size=(WIDTH, HEIGHT)) as pilot:
            app.screen.query_one(Vertical).scroll_to(y=2, animate=False)
            await pilot.pause()

            assert drawn(app.screen, ChangedLines, regions) == drawn(app.screen, Compositor, regions)

    asyncio.run(draw())


def test_widgets_without_changed_lines_are_not_rendered():
    async def draw() -> None:
        app = Stage()
        async with app.run_test(size=(WIDTH, HEIGHT)):
            parts = {part.id: part for part in app.screen.query(Part)}
            for part in parts.values():
                part.asked = ()

            drawn(app.screen, ChangedLines, {Region(0, 0, 5, 1), Region(0, 9, 5, 1)})

            assert {name: part.asked for name, part in parts.items() if part.asked} == {"top": (0,), "bottom": (1,)}

    asyncio.run(draw())


def test_hidden_widgets_are_not_rendered(monkeypatch):
    async def draw() -> None:
        app = Stage()
        async with app.run_test(size=(WIDTH, HEIGHT)):
            asked: list[str] = []
            render_lines = Widget.render_lines
            monkeypatch.setattr(
                Widget,
                "render_lines",
                lambda self, crop: (asked.append(self.id or type(self).__name__), render_lines(self, crop))[1],
            )
            covered = app.screen.query_one("#over").region

            drawn(app.screen, ChangedLines, {Region(covered.x, 4, 3, 1)})
            assert set(asked) == {"over"}, "only the widget that covers the changed cells is rendered"
            asked.clear()
            drawn(app.screen, Compositor, {Region(covered.x, 4, 3, 1)})
            assert len(asked) > 4

    asyncio.run(draw())


def test_unchanged_widget_beside_a_changed_one_is_not_rendered():
    async def draw() -> None:
        app = Stage()
        async with app.run_test(size=(WIDTH, HEIGHT)):
            parts = {part.id: part for part in app.screen.query(Part)}
            box, row = parts["over"], parts["row0"]
            for part in parts.values():
                part.asked = ()

            drawn(app.screen, ChangedLines, {Region(0, 4, box.region.x, 1)})
            assert row.asked
            assert not box.asked

    asyncio.run(draw())


def test_installed_textual_is_supported_by_the_output_layer() -> None:
    assert is_supported()


@pytest.mark.parametrize(("version", "is_so"), [("8.2.8", True), ("8.2.11", True), ("8.20.1", False), ("9.0.0", False)])
def test_only_tested_versions_of_textual_are_accepted(version: str, is_so: bool, tmp_path: Path) -> None:
    (tmp_path / f"textual-{version}.dist-info").mkdir()

    assert is_tested(tmp_path) is is_so


def test_output_layer_is_not_used_if_textual_lacks_a_private_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "_PRIVATE_NAMES", ((Compositor, ("_render_chops", "no_such_name")),))

    assert not is_supported.__wrapped__()
