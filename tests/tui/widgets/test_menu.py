"""Menus, questions and prompts."""

from functools import partial

import pytest
from textual.widgets import Static

from aptui.tui.widgets.menu import Confirm, Menu, MenuItem, Prompt
from aptui.tui.widgets.table import Table
from tests.tui.widgets.widgets_harness import COLUMNS, Numbers, play

from .views_harness import ITEMS

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        (["enter"], "copy"),
        (["down", "enter"], "up"),
        (["up", "enter"], "j"),
        (["plus"], "up"),
        (["j"], "j"),
        (["y"], "copy"),
        (["escape"], None),
        (["c", "q"], None),
    ],
)
def test_menu_gives_one_answer_and_restores_the_focus(keys, answer):
    table, answers = Table(COLUMNS, Numbers(10)), []

    async def script(app, pilot):
        menu = Menu.ask(app, ITEMS, answers.append, title="rock[0].png", place=(70, 20))
        await pilot.pause()
        assert app.focused is menu
        assert any("Escalate" in line and line.rstrip().endswith("+") for line in (menu.render_line(y).text for y in range(5)))
        assert app.screen.region.contains_region(menu.region)
        await pilot.press(*keys)
        await pilot.pause()
        assert answers == [answer]
        assert app.focused is table
        assert not app.screen.query(Menu)

    play(table, script)


@pytest.mark.parametrize("opens", [Menu.ask, partial(Menu.ask, place=(40, 10)), Confirm.ask, Prompt.ask])
def test_pop_up_is_in_its_final_place_when_it_is_first_drawn(opens):
    async def script(app, pilot):
        first = "Run 2,000 jobs again?" if opens in (Confirm.ask, Prompt.ask) else ITEMS
        box = opens(app, first, print)
        at_first = box.styles.offset
        await pilot.pause()
        await pilot.pause()

        assert at_first == box.styles.offset
        assert box.region.offset.x > 0

    play(Table(COLUMNS, Numbers(10)), script)


def test_menu_on_a_small_screen_marks_hidden_items_and_shows_all_when_the_screen_grows():
    items = [MenuItem(str(number), f"item {number}", "") for number in range(20)]

    async def script(app, pilot):
        menu = Menu.ask(app, items, print)

        def first_and_last():
            texts = [menu.render_line(y).text for y in range(menu.content_size.height)]
            return [texts[at].removeprefix("▌").removeprefix(" ").split() for at in (0, -1)]

        await pilot.resize_terminal(60, 15)
        await pilot.pause()
        assert first_and_last() == [["item", "0"], ["item", "12", "↓"]]
        await pilot.press("end")
        assert first_and_last() == [["item", "7", "↑"], ["item", "19"]]
        await pilot.press("up")
        await pilot.resize_terminal(60, 40)
        await pilot.pause()
        assert first_and_last() == [["item", "0"], ["item", "19"]]

    play(Table(COLUMNS, Numbers(10)), script)


def test_menu_closes_on_click_outside():
    table, answers = Table(COLUMNS, Numbers(10)), []

    async def script(app, pilot):
        Menu.ask(app, ITEMS, answers.append, place=(40, 10))
        await pilot.pause()
        await pilot.click(table, offset=(3, 3))
        await pilot.pause()
        assert answers == [None]

    play(table, script)


def test_question_default_is_the_safe_answer():
    table, answers = Table(COLUMNS, Numbers(10)), []

    async def script(app, pilot):
        for keys in (["enter"], ["y"], ["n"], ["escape"], ["down", "enter"]):
            Confirm.ask(app, "Stop the engine?\n3 jobs are running.", answers.append, yes="stop it")
            await pilot.pause()
            await pilot.press(*keys)
        assert answers == [False, True, False, False, True]

    play(table, script)


def test_prompt_refuses_invalid_text():
    table, answers = Table(COLUMNS, Numbers(10)), []

    async def script(app, pilot):
        Prompt.ask(app, "Save as [x]", answers.append, value="a", check=lambda text: "" if len(text) > 2 else "[/too] short")
        await pilot.pause()
        await pilot.press("b", "enter")
        assert answers == []
        assert app.screen.query_one(".mistake", Static).display
        await pilot.press("c", "enter")
        assert answers == ["abc"]
        await pilot.pause()
        assert app.focused is table
        Prompt.ask(app, "again", answers.append)
        await pilot.pause()
        await pilot.press("j", "escape")
        assert answers == ["abc", None]

    play(table, script)
