"""A picture uses the available colours and size. On a slow line it uses fewer bytes."""

import asyncio

import pytest

from aptui.tui.pictures.decoder import Pixels
from aptui.tui.preferences import theming
from aptui.tui.terminal.output.display import DiffRenderingApp
from aptui.tui.terminal.safety import TRUECOLOUR, TerminalFacts
from aptui.tui.widgets import textview
from aptui.tui.widgets.textview import TextPreview, TextView
from tests.tui.shell_room import until
from tests.tui.widgets.widgets_room import drawn

pytestmark = pytest.mark.real

STRIPES = Pixels(2, 2, (bytes((250, 10, 10, 255)) + bytes((10, 10, 240, 255))) * 2)
PREVIEW = TextPreview("PNG 2 × 2", (), is_numbered=False, pixels=STRIPES)


class Room(DiffRenderingApp):
    """A view of a picture on a line that takes `byte_s` seconds for a byte."""

    def __init__(self, theme: str, byte_s: float) -> None:
        super().__init__()
        self.look, self.byte_s = theme, byte_s

    def compose(self):
        yield TextView()

    def on_mount(self):
        self.register_theme(theming.theme_of(theming.load_themes().by_name[self.look]))
        self.theme = self.look

    def line_takes_s(self, size):
        return None if self.byte_s is None else size * self.byte_s


def play(script, *, theme="dark", byte_s=0.0, size=(21, 10)):
    async def run():
        app = Room(theme, byte_s)
        async with app.run_test(size=size) as pilot:
            app.query_one(TextView).show_preview(PREVIEW)
            await drawn(app, pilot)
            await script(app, pilot, app.query_one(TextView))

    asyncio.run(run())


def colours_of(view, y=1):
    """Return the background colours of blanks that differ from the ground colour."""
    ground = view.painting.painter.ground.bgcolor
    found = [style.bgcolor for text, style, _ in view.render_line(y) if text.isspace()]
    return [each.triplet.hex for each in found if each != ground]


@pytest.mark.parametrize(("colours", "expected"), [(TRUECOLOUR, ["#f90909", "#0909f0"]), (256, ["#ff0000", "#0000ff"])])
def test_picture_uses_colours_of_terminal(monkeypatch, colours, expected):
    monkeypatch.setattr(textview, "facts", lambda: TerminalFacts(colours))

    async def look(_app, _pilot, view):
        assert colours_of(view) == expected

    play(look)


@pytest.mark.parametrize(
    ("colours", "theme"), [(16, "ansi-dark"), (0, "monochrome"), (TRUECOLOUR, "monochrome"), (16, "ansi-light")]
)
def test_picture_uses_shades_on_a_terminal_with_few_or_no_colours(monkeypatch, colours, theme):
    monkeypatch.setattr(textview, "facts", lambda: TerminalFacts(colours))

    async def look(_app, _pilot, view):
        letters = set(view.render_line(1).text.strip())
        assert letters
        assert letters <= set("░▒▓█")
        assert {each.style.color.name for each in view.render_line(1) if each.text.strip()} == {"default"}

    play(look, theme=theme)


@pytest.mark.parametrize(("byte_s", "is_coloured"), [(0.0, True), (0.0001, True), (0.1, False)])
def test_picture_on_slow_line_uses_fewer_bytes(byte_s, is_coloured):
    async def look(_app, _pilot, view):
        assert bool(colours_of(view)) is is_coloured
        assert bool(view.render_line(1).text.strip("▌ ")) is not is_coloured

    play(look, byte_s=byte_s)


def test_picture_gets_colours_once_speed_of_line_is_known(monkeypatch):
    monkeypatch.setattr(textview, "_RETRY_S", 0.01)
    monkeypatch.setattr(textview, "_RETRIES", 10_000)

    async def look(app, pilot, view):
        assert not colours_of(view)
        assert view.render_line(1).text.strip("▌ ")
        app.byte_s = 0.0
        await until(pilot, lambda: colours_of(view))
        assert colours_of(view) == ["#f90909", "#0909f0"]

    play(look, byte_s=None)


def test_replaced_picture_is_not_drawn_again(monkeypatch):
    monkeypatch.setattr(textview, "_RETRY_S", 0.01)
    drawings, draw = [], textview.Picture._draw
    monkeypatch.setattr(textview.Picture, "_draw", lambda self, *arguments: (drawings.append(self), draw(self, *arguments)))

    async def look(app, pilot, view):
        before = view._picture
        drawings.clear()
        view.show_preview(PREVIEW)
        await until(pilot, lambda: drawings.count(view._picture) > 1)
        assert before not in drawings

    play(look, byte_s=None)


def test_picture_follows_size_theme_and_focus():
    async def look(app, pilot, view):
        assert view.count_rows() == 0
        before, colours = view.render_line(1), colours_of(view)
        view.focus()
        await drawn(app, pilot)
        assert [view.render_line(y).text[0] for y in (0, 1)] == ["▌", " "]
        await pilot.resize_terminal(9, 10)
        await drawn(app, pilot)
        assert colours_of(view) == colours
        assert view.render_line(1) != before
        assert view.render_line(6).text.strip() == ""
        app.register_theme(theming.theme_of(theming.load_themes().by_name["monochrome"]))
        app.theme = "monochrome"
        await drawn(app, pilot)
        assert view.render_line(1).text.strip()
        view.show_preview(TextPreview("", ()))
        await drawn(app, pilot)
        assert view.render_line(1).text.strip() == ""

    play(look)
