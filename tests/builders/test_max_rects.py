"""Rectangles on a page: inside it, without overlap, well filled, and as many as the atlas builder accepts."""

from __future__ import annotations

import random

import pytest

from aptui.builders.atlas_builder import Item, Place, place_items


def make_items(count: int) -> list[Item]:
    """Return items of 10 to 66 pixels, the largest first, the same every time."""
    dice = random.Random(count)
    items = [Item(dice.randint(10, 66), dice.randint(10, 66), key) for key in range(count)]
    return sorted(items, key=lambda item: (-max(item[:2]), item.key))


def paint(places: list[Place], size: tuple[int, int]) -> list[bytearray]:
    """Return how many rectangles cover each pixel of the page."""
    rows = [bytearray(size[0]) for _row in range(size[1])]
    for place in places:
        for y in range(place.y, place.y + place.height):
            for x in range(place.x, place.x + place.width):
                rows[y][x] += 1
    return rows


@pytest.mark.parametrize("can_rotate", [False, True])
def test_rectangles_are_placed_without_overlap_and_fill_the_page(can_rotate: bool) -> None:
    items = make_items(300)
    size = (680, 680)

    places, left = place_items(items, size, can_rotate=can_rotate)

    area = sum(place.width * place.height for place in places)
    assert max(max(row) for row in paint(places, size)) == 1
    assert area > 0.85 * size[0] * size[1]
    assert {place.key for place in places} | {item.key for item in left} == set(range(300))
    shapes = {item.key: item[:2] for item in items}
    turned = [place for place in places if (place.width, place.height) != shapes[place.key]]
    assert all((place.height, place.width) == shapes[place.key] for place in turned)
    assert bool(turned) is can_rotate


def test_rectangle_of_the_page_size_fits_and_a_larger_rectangle_does_not() -> None:
    assert place_items([Item(40, 30, 1)], (40, 30)) == ([Place(0, 0, 40, 30, 1)], [])
    assert place_items([Item(30, 40, 1)], (40, 30)) == ([], [Item(30, 40, 1)])
    assert place_items([Item(30, 40, 1)], (40, 30), can_rotate=True) == ([Place(0, 0, 40, 30, 1)], [])


def test_placing_stops_at_the_first_misfit_if_all_rectangles_are_needed() -> None:
    items = [Item(10, 10, 1), Item(50, 50, 2), Item(5, 5, 3)]

    assert place_items(items, (20, 20)) == ([Place(0, 0, 10, 10, 1), Place(0, 10, 5, 5, 3)], [items[1]])
    assert place_items(items, (20, 20), is_all_needed=True) == ([Place(0, 0, 10, 10, 1)], [items[1]])


def test_thousands_of_rectangles_are_placed_equally_every_time() -> None:
    """The list of free rectangles stays short. If it kept contained rectangles, this test would not end."""
    items = make_items(2400)
    side = int((1.12 * sum(item.width * item.height for item in items)) ** 0.5)

    places, left = place_items(items, (side, side))

    assert left == []
    assert places == place_items(items, (side, side))[0]
