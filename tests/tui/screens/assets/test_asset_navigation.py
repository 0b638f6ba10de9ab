"""The way back: where it leads, what it forgets."""

from aptui.tui.data.asset_tree import Kind
from aptui.tui.screens.assets import asset_navigation
from aptui.tui.screens.assets.asset_navigation import Stop, WayBack


def test_what_is_ahead_is_forgotten_by_who_goes_elsewhere():
    way = WayBack()
    way.go((Kind.SOURCES, 1), Stop(Kind.SOURCES, 2))
    way.go((Kind.SOURCES, 2), Stop(Kind.PRODUCTS, 3))

    assert way.walk((Kind.PRODUCTS, 3), -1) == Stop(Kind.SOURCES, 2)
    way.go((Kind.SOURCES, 2), Stop(Kind.SOURCES, 4))
    assert way.walk((Kind.SOURCES, 4), 1) is None
    assert [way.walk(None, -1), way.walk(None, -1), way.walk(None, -1)] == [Stop(Kind.SOURCES, 2), Stop(Kind.SOURCES, 1), None]


def test_a_place_is_remembered_as_it_was_left():
    way = WayBack()
    way.go(None, Stop(Kind.SOURCES, 1))
    way.go((Kind.SOURCES, 7), Stop(Kind.SOURCES, 2))

    assert way.walk((Kind.SOURCES, 2), -1) == Stop(Kind.SOURCES, 7)


def test_the_screen_somebody_came_from_is_told_once():
    way = WayBack()

    assert way.take_origin() == ""
    way.go((Kind.SOURCES, 1), Stop(Kind.SOURCES, 2, "jobs"))
    assert [way.take_origin(), way.take_origin()] == ["jobs", ""]


def test_the_oldest_places_are_forgotten(monkeypatch):
    monkeypatch.setattr(asset_navigation, "_MOST_PLACES", 2)
    way = WayBack()
    for key in range(4):
        way.go(None, Stop(Kind.SOURCES, key))

    assert way.walk(None, -1) == Stop(Kind.SOURCES, 2)
    assert way.walk(None, -1) is None
