"""A picture uses the available colours and size. On a slow line it uses fewer bytes."""

import asyncio

import pytest

from aptui.tui.pictures.decoder import Pixels
from aptui.tui.preferences import theming
from aptui.tui.terminal.output.display import DiffRenderingApp
from aptui.tui.terminal.pixels import PixelScreen, Protocol
from aptui.tui.terminal.safety import FIRST_COLUMN, TRUECOLOUR, TerminalFacts, picture_row
from aptui.tui.widgets import picture_drawing
from aptui.tui.widgets.textview import TextPreview, TextView
from tests.tui.shell_harness import until
from tests.tui.widgets.widgets_harness import drawn

pytestmark = pytest.mark.real

STRIPES = Pixels(2, 2, (bytes((250, 10, 10, 255)) + bytes((10, 10, 240, 255))) * 2)
PREVIEW = TextPreview("PNG 2 × 2", (), is_numbered=False, pixels=STRIPES)


class Harness(DiffRenderingApp):
    """An app that shows a picture over a connection that sends a byte in `byte_s` seconds."""

    def __init__(self, theme: str, byte_s: float) -> None:
        super().__init__()
        self.shown_theme, self.byte_s, self.output = theme, byte_s, None

    def compose(self):
        yield TextView()

    def on_mount(self):
        self.register_theme(theming.theme_of(theming.load_themes().by_name[self.shown_theme]))
        self.theme = self.shown_theme

    @property
    def output_layer(self):
        return self.output

    def line_takes_s(self, size):
        return None if self.byte_s is None else size * self.byte_s


class FakeOutput:
    """An output layer that records pictures."""

    def __init__(self, protocol):
        self.pixels, self.shown, self.all = PixelScreen(protocol, (8, 16)), {}, []

    def show(self, *_update):
        return False

    def new_number(self):
        return 20 + len(self.all)

    def add_picture(self, picture):
        self.all.append(picture)
        self.shown[picture.number] = picture

    def remove_picture(self, number):
        del self.shown[number]


def play(script, *, theme="dark", byte_s=0.0, size=(21, 10), output=None):
    async def run():
        app = Harness(theme, byte_s)
        app.output = output
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
    monkeypatch.setattr(picture_drawing, "facts", lambda: TerminalFacts(colours))

    async def shown_theme(_app, _pilot, view):
        assert colours_of(view) == expected

    play(shown_theme)


@pytest.mark.parametrize(
    ("colours", "theme"), [(16, "ansi-dark"), (0, "monochrome"), (TRUECOLOUR, "monochrome"), (16, "ansi-light")]
)
def test_picture_uses_shades_on_a_terminal_with_few_or_no_colours(monkeypatch, colours, theme):
    monkeypatch.setattr(picture_drawing, "facts", lambda: TerminalFacts(colours))

    async def shown_theme(_app, _pilot, view):
        letters = set(view.render_line(1).text.strip())
        assert letters
        assert letters <= set("░▒▓█")
        assert {each.style.color.name for each in view.render_line(1) if each.text.strip()} == {"default"}

    play(shown_theme, theme=theme)


@pytest.mark.parametrize(("byte_s", "is_coloured"), [(0.0, True), (0.0001, True), (0.1, False)])
def test_picture_on_a_slow_connection_uses_fewer_bytes(byte_s, is_coloured):
    async def shown_theme(_app, _pilot, view):
        assert bool(colours_of(view)) is is_coloured
        assert bool(view.render_line(1).text.strip("▌ ")) is not is_coloured

    play(shown_theme, byte_s=byte_s)


def test_picture_gets_colours_when_the_connection_speed_is_known(monkeypatch):
    monkeypatch.setattr(picture_drawing, "_RETRY_S", 0.01)
    monkeypatch.setattr(picture_drawing, "_RETRIES", 10_000)

    async def shown_theme(app, pilot, view):
        assert not colours_of(view)
        assert view.render_line(1).text.strip("▌ ")
        app.byte_s = 0.0
        await until(pilot, lambda: colours_of(view))
        assert colours_of(view) == ["#f90909", "#0909f0"]

    play(shown_theme, byte_s=None)


def test_replaced_picture_is_not_drawn_again(monkeypatch):
    monkeypatch.setattr(picture_drawing, "_RETRY_S", 0.01)
    drawings, draw = [], picture_drawing.Picture._draw
    monkeypatch.setattr(picture_drawing.Picture, "_draw", lambda self, *arguments: (drawings.append(self), draw(self, *arguments)))

    async def shown_theme(app, pilot, view):
        before = view._picture
        drawings.clear()
        view.show_preview(PREVIEW)
        await until(pilot, lambda: drawings.count(view._picture) > 1)
        assert before not in drawings

    play(shown_theme, byte_s=None)


def test_picture_is_drawn_again_when_size_theme_or_focus_changes():
    async def shown_theme(app, pilot, view):
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

    play(shown_theme)


def pixels_of(view, y=1):
    """Return (number, row, columns) of the cells of a line that show pixels."""
    found = [(picture_row(text, style), text) for text, style, _ in view.render_line(y)]
    return [(*place, [ord(each) - FIRST_COLUMN for each in text]) for place, text in found if place]


@pytest.mark.parametrize("protocol", list(Protocol))
def test_picture_is_drawn_with_pixels_if_the_terminal_supports_pixels(protocol):
    output = FakeOutput(protocol)

    async def shown_theme(app, pilot, view):
        await until(pilot, lambda: pixels_of(view))
        picture = output.all[-1]
        assert (picture.columns, picture.rows) == (19, 10)
        assert pixels_of(view, 3) == [(picture.number, 3, list(range(19)))]
        await pilot.resize_terminal(11, 10)
        await until(pilot, lambda: pixels_of(view, 3) and pixels_of(view, 3)[0][2] == list(range(9)))
        assert list(output.shown) == [output.all[-1].number], "the picture of the previous size was removed from the terminal"
        view.show_preview(TextPreview("", ()))
        assert output.shown == {}

    play(shown_theme, output=output)


def test_pixels_are_removed_with_their_view():
    output = FakeOutput(Protocol.KITTY)

    async def shown_theme(_app, pilot, view):
        await until(pilot, lambda: pixels_of(view))
        await view.remove()
        assert output.shown == {}

    play(shown_theme, output=output)


def test_picture_on_a_slow_connection_or_without_colours_is_drawn_with_cells():
    async def shown_theme(_app, _pilot, view):
        assert view.render_line(1).text.strip("▌ ")
        assert not pixels_of(view)

    for options in ({"byte_s": 0.1}, {"theme": "monochrome"}):
        output = FakeOutput(Protocol.SIXEL)
        play(shown_theme, output=output, **options)
        assert output.all == []


def test_picture_becomes_pixels_when_the_connection_is_known_to_be_fast(monkeypatch):
    monkeypatch.setattr(picture_drawing, "_RETRY_S", 0.01)
    monkeypatch.setattr(picture_drawing, "_RETRIES", 10_000)

    async def shown_theme(app, pilot, view):
        assert not pixels_of(view)
        app.byte_s = 0.0
        await until(pilot, lambda: pixels_of(view))

    play(shown_theme, byte_s=None, output=FakeOutput(Protocol.SIXEL))


def test_picture_with_too_many_bytes_of_pixels_is_drawn_with_blocks(monkeypatch):
    monkeypatch.setattr(picture_drawing, "_PIXELS_A_BYTE", 1_000_000)
    output = FakeOutput(Protocol.KITTY)

    async def shown_theme(_app, pilot, view):
        await until(pilot, lambda: view.render_line(1).text.strip("▌ "))
        assert output.all == []

    play(shown_theme, byte_s=0.01, output=output)


def test_picture_is_drawn_again_when_pixels_are_turned_off():
    output = FakeOutput(Protocol.SIXEL)

    async def shown_theme(app, pilot, view):
        await until(pilot, lambda: pixels_of(view))
        output.pixels = None
        view.refresh()
        await drawn(app, pilot)
        assert colours_of(view) == ["#f90909", "#0909f0"]
        assert output.shown == {}

    play(shown_theme, output=output)
