"""Plain lines look the same as lines that Textual draws, and their strips are reused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.geometry import Region
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from aptui.tui.widgets.row_list import PlainLines, Rows, blank_line

STYLES = {
    "nothing": "background: #203040;",
    "see-through": "background: red 20%;",
    "edges": "border-left: solid green; padding: 1 2;",
    "outline": "outline: round blue;",
    "tint": "tint: yellow 30%;",
    "faded": "opacity: 50%;",
    "faded text": "text-opacity: 40%;",
}


class Ours(PlainLines):
    """A `PlainLines` widget with three lines: one is as wide as the widget (20 cells), one is shorter, one is longer."""

    def __init__(self) -> None:
        super().__init__()
        self.strips = [Strip([Segment("x" * width, Style(color="red"))], width) for width in (20, 3, 30)]

    def render_line(self, y: int) -> Strip:
        return self.strips[y] if y < len(self.strips) else blank_line(20, Style())


class Theirs(Widget):
    def __init__(self) -> None:
        super().__init__()
        self.strips = Ours().strips

    def render_line(self, y: int) -> Strip:
        return self.strips[y] if y < len(self.strips) else blank_line(20, Style())


def draw(widget: Widget, css: str, ask: Callable[[Widget], Any]) -> Any:
    class Harness(App[None]):
        CSS = f"{type(widget).__name__} {{ width: 20; height: 6; {css} }}"

        def compose(self) -> Any:
            yield widget

    async def run() -> Any:
        async with Harness().run_test(size=(40, 12)):
            return ask(widget)

    return asyncio.run(run())


@pytest.mark.parametrize("css", STYLES.values(), ids=list(STYLES))
@pytest.mark.parametrize("crop", [Region(0, 0, 20, 6), Region(4, 1, 10, 2)], ids=["all", "a part"])
def test_plain_lines_look_the_same_as_lines_drawn_by_textual(css: str, crop: Region) -> None:
    def picture(widget: Widget) -> list[list[Segment]]:
        return [list(strip.simplify()) for strip in widget.render_lines(crop)]

    assert draw(Ours(), css, picture) == draw(Theirs(), css, picture)


def test_plain_line_is_rendered_once_and_reused() -> None:
    def lines(widget: Widget) -> list[Strip]:
        widget.app._filters = []
        return [widget.render_lines(Region(0, 0, 20, 1))[0] for _ in range(2)]

    ours = Ours()

    first, again = draw(ours, "", lines)
    assert first is again is ours.strips[0]


def test_row_lists_follow_the_css_rules_of_scroll_view() -> None:
    assert ScrollView.__name__ in Rows._css_type_names
