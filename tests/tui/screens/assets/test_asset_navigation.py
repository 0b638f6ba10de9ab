"""The back key uses a history of visited places, which drops its oldest places."""

from aptui.tui.data.assets_store import Kind
from aptui.tui.screens.assets import asset_navigation
from aptui.tui.screens.assets.asset_navigation import Stop, WayBack


def test_visiting_a_new_place_removes_the_places_ahead_in_the_history():
    way = WayBack()
    way.record_move((Kind.SOURCES, 1), Stop(Kind.SOURCES, 2))
    way.record_move((Kind.SOURCES, 2), Stop(Kind.PRODUCTS, 3))

    assert way.walk((Kind.PRODUCTS, 3), -1) == Stop(Kind.SOURCES, 2)
    way.record_move((Kind.SOURCES, 2), Stop(Kind.SOURCES, 4))
    assert way.walk((Kind.SOURCES, 4), 1) is None
    assert [way.walk(None, -1), way.walk(None, -1), way.walk(None, -1)] == [Stop(Kind.SOURCES, 2), Stop(Kind.SOURCES, 1), None]


def test_going_back_returns_to_the_row_that_the_cursor_left():
    way = WayBack()
    way.record_move(None, Stop(Kind.SOURCES, 1))
    way.record_move((Kind.SOURCES, 7), Stop(Kind.SOURCES, 2))

    assert way.walk((Kind.SOURCES, 2), -1) == Stop(Kind.SOURCES, 7)


def test_pop_origin_returns_the_origin_screen_only_once():
    way = WayBack()

    assert way.pop_origin() == ""
    way.record_move((Kind.SOURCES, 1), Stop(Kind.SOURCES, 2, "jobs"))
    assert [way.pop_origin(), way.pop_origin()] == ["jobs", ""]


def test_history_of_visited_places_drops_the_oldest_places(monkeypatch):
    monkeypatch.setattr(asset_navigation, "_MOST_PLACES", 2)
    way = WayBack()
    for key in range(4):
        way.record_move(None, Stop(Kind.SOURCES, key))

    assert way.walk(None, -1) == Stop(Kind.SOURCES, 2)
    assert way.walk(None, -1) is None
