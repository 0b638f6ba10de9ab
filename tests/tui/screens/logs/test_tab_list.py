from types import SimpleNamespace

import pytest

from aptui.tui.screens.logs import log_tabs as tab_list
from aptui.tui.screens.logs.log_tabs import TabList

OWN = [{"name": name, "levels": "EWID", "source": "", "text": ""} for name in ("scan", "own")]


class Memory(dict):
    def put(self, key, value):
        self[key] = value


@pytest.fixture
def menu(monkeypatch):
    """Replace menus and forms by a record of their callbacks; the test answers the last menu by calling `choose`."""
    asked = SimpleNamespace(choose=None, form=None, check=None)
    monkeypatch.setattr(tab_list.Menu, "ask", lambda _app, _items, then, **_named: setattr(asked, "choose", then))

    def fill(_app, _title, _fields, then, check):
        asked.form, asked.check = then, check

    monkeypatch.setattr(tab_list.Form, "ask", fill)
    return asked


def tabs(**remembered):
    shell = SimpleNamespace(memory=Memory({f"logs.{name}": value for name, value in remembered.items()}), app=None)
    shown = []
    found = TabList(shell, lambda: shown.append(found.current.name))
    return found, shown, shell.memory


def test_removed_tab_is_not_shown():
    found, _shown, _memory = tabs(tabs=OWN, tab=9)

    assert found.names() == ["Debug", "Messages", "Warnings/Errors", "scan", "own"]
    assert found.current.name == "own"


def test_next_tab_after_the_last_tab_is_the_first_tab():
    found, shown, _memory = tabs()

    found.show(3)

    assert shown == ["Debug"]


def test_tabs_of_the_user_are_moved_removed_and_remembered(menu):
    found, shown, memory = tabs(tabs=OWN, tab=4)
    found.open_menu()

    menu.choose("left")
    menu.choose("right")
    menu.choose("remove")

    assert shown == ["own", "own", "scan"]
    assert [tab["name"] for tab in memory["logs.tabs"]] == ["scan"]


def test_changed_tab_keeps_its_place_and_a_new_tab_becomes_the_last(menu):
    found, shown, _memory = tabs(tabs=OWN, tab=3)
    found.open_menu()
    form = {"name": "other", "source": "", "text": "", "levels": "EW"}

    menu.choose("edit")
    assert menu.check({**form, "name": "own"}) == ("name", "another tab has this name")
    assert menu.check({**form, "levels": "xy"}) == ("levels", "write only the letters E, W, I and D")
    assert menu.check({**form, "name": "scan"}) is None
    menu.form(form)
    menu.choose("new")
    menu.form({**form, "name": "more"})

    assert found.names()[3:] == ["other", "own", "more"]
    assert shown == ["other", "more"]


def test_cancelling_the_form_for_a_new_log_tab_changes_nothing(menu):
    found, shown, _memory = tabs(tabs=OWN)

    found.edit(None)
    menu.form(None)

    assert len(found.tabs) == 5
    assert shown == []
