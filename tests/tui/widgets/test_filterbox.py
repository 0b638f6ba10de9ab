"""The filter line."""

import pytest
from textual.widgets import Input, Static

from aptui.tui.widgets.filterbox import FilterBox, fitting
from tests.tui.widgets.widgets_harness import drawn, play
from tui.shell_harness import layouts_of

pytestmark = pytest.mark.real


def test_filter_line_reports_each_key_and_escape_restores_the_filter():
    box, reported = FilterBox(history=["failed platform:pc", "png"]), []

    async def script(app, pilot):
        box.post_message = lambda message, send=box.post_message: (
            reported.append((type(message).__name__, getattr(message, "text", None))) or send(message)
        )
        box.focus()
        await pilot.press("f", "a")
        assert [entry for entry in reported if entry[0] == "Changed" and entry[1]] == [("Changed", "f"), ("Changed", "fa")]
        await pilot.pause(0.05)
        await pilot.press("right")
        assert box.text == "failed platform:pc"
        await pilot.press("up", "up")
        assert box.text == "png"
        await pilot.press("enter")
        assert ("FilterLeft", "png") in reported
        assert box.history.texts == ["png", "failed platform:pc"]
        box.begin()
        await pilot.press("x", "escape")
        assert box.text == "png"
        assert reported[-2:] == [("Changed", "png"), ("FilterLeft", "png")]

    play(box, script)


def test_typing_or_a_count_that_is_not_wider_causes_no_layout_of_the_screen():
    box = FilterBox()

    async def script(app, pilot):
        box.focus()
        box.show_count("12,408 jobs")
        await drawn(app, pilot)
        layouts = layouts_of(app)
        for letter, count in (("r", ""), ("o", "37 of 12,40"), ("c", "4 of 12,408"), ("k", "none")):
            await pilot.press(letter)
            box.show_count(count)
            await drawn(app, pilot)
        assert layouts == []
        assert app.screen._compositor.render_strips()[0].text.endswith(" none ")

        await pilot.press(*"a very long filter that does not fit")
        await drawn(app, pilot)
        assert box.query_one(Input).scroll_x > 0
        box.text = "short"
        await drawn(app, pilot)
        assert box.query_one(Input).scroll_x == 0
        assert layouts == []

    play(box, script, size=(30, 10))


def test_long_filter_mistake_is_wrapped_and_the_count_stays_visible():
    box = FilterBox("(?=x)")

    async def script(app, pilot):
        box.show_mistake(0, "look-around is not supported, it says at length", "`!` inverts a term", count="37 of 12,408")
        await pilot.pause()
        shown = "".join(box.query_one(".mistake", Static).render_line(at).text for at in range(box.size.height - 1))
        assert " ".join(shown.split()) == "^ look-around is not supported, it says at length; `!` inverts a term"
        assert str(box.query_one(".count", Static).content) == "37 of 12,408"
        box.text = "a" * 16 + "("
        box.show_mistake(16, "unclosed group of which much more can be said than there is room for", count="")
        await pilot.pause()
        first, *rest = (box.query_one(".mistake", Static).render_line(at).text for at in range(box.size.height - 1))
        assert first.index("^") == 3 + 16
        assert " ".join(" ".join(rest).split()).endswith("than there is room for")

    play(box, script, size=(40, 10))


def test_hint_of_the_filter_line_is_never_cut():
    box = FilterBox(".png")

    async def script(app, pilot):
        count = box.query_one(".count", Static)
        box.show_count("5 of 20", "any character")
        assert str(count.content) == "any character   5 of 20"
        box.show_count("5 of 20", "this is too long for a line of forty")
        assert str(count.content) == "5 of 20"

    play(box, script, size=(44, 10))


def test_mistake_is_marked_at_its_position():
    box = FilterBox("status:failed (abc")

    async def script(app, pilot):
        box.show_count("37 of 12,408")
        box.show_mistake(14, "unclosed group [/x]")
        await pilot.pause()
        assert box.size.height == 2
        line = box.query_one(".mistake", Static).render_line(0).text
        assert line.index("^") == 3 + 14
        assert "unclosed group [/x]" in line
        box.show_count("12 of 12,408")
        await pilot.pause()
        assert box.size.height == 1
        assert not box.query_one(Input).cursor_blink

    play(box, script, size=(60, 10))


@pytest.mark.parametrize(
    ("cells", "expected"),
    [(29, "name, path/, UUID or asset id"), (28, "name, path/"), (11, "name, path/"), (10, "name"), (3, "")],
)
def test_filter_placeholder_that_is_too_long_loses_whole_parts(cells, expected):
    assert fitting("name, path/, UUID or asset id", cells) == expected
