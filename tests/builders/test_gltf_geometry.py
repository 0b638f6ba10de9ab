import random
from collections import deque

import numpy as np
import pytest

from aptui.builders.gltf.geometry import (
    CACHE_VERTICES,
    LARGEST_POSITION,
    cache_order,
    order_vertices,
    quantise_attribute,
    quantise_positions,
    to_indices,
)


def grid(side):
    """Return the triangles of a square of `side` × `side` vertices, shuffled."""
    corners = [(x + y * side, x + 1 + y * side, x + (y + 1) * side) for x in range(side - 1) for y in range(side - 1)]
    corners += [(b, b + side, c) for _, b, c in corners]
    random.Random(1).shuffle(corners)
    return np.array(corners)


def transforms(indices):
    """Return how many vertices a GPU transforms per triangle if its vertex cache drops the oldest vertex first."""
    cache, misses = deque(maxlen=CACHE_VERTICES), 0
    for vertex in indices:
        if vertex not in cache:
            misses += 1
            cache.append(vertex)
    return 3 * misses / len(indices)


def test_cache_order_keeps_each_triangle_and_reduces_vertex_transforms():
    triangles = grid(60)

    order = cache_order(triangles)

    assert sorted(order.tolist()) == list(range(len(triangles)))
    assert transforms(triangles.reshape(-1).tolist()) > 2.5
    assert transforms(triangles[order].reshape(-1).tolist()) < 0.7


@pytest.mark.parametrize("triangles", [[[7, 7, 7]], [[0, 1, 2]], [[5, 9, 1], [3, 3, 8], [5, 9, 1]]])
def test_cache_order_accepts_degenerate_triangles(triangles):
    assert sorted(cache_order(np.array(triangles)).tolist()) == list(range(len(triangles)))


def test_equal_vertices_are_merged_and_unused_vertices_are_dropped():
    places = np.array([[9, 9, 9], [0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0]], "<f4")
    colours = np.array([[0], [5], [6], [7], [5]], "<u1")

    (new, remaining), (first, second) = order_vertices([places, colours], [np.array([1, 2, 3, 2, 2, 3]), np.array([3, 2, 4])])

    assert new.tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0]]
    assert remaining.ravel().tolist() == [5, 6, 7]
    assert first.tolist() == [0, 1, 2]
    assert second.tolist() == [2, 1, 0]


def test_triangles_without_area_are_kept_if_a_list_has_no_other_triangles():
    _, (indices,) = order_vertices([np.zeros((3, 3), "<f4")], [np.array([0, 1, 2])])

    assert indices.tolist() == [0, 0, 0]


@pytest.mark.parametrize(("count", "kind"), [(65535, "<u2"), (65536, "<u4")])
def test_indices_have_16_bits_unless_an_index_would_restart_the_primitive(count, kind):
    assert to_indices(np.array([count - 1]), count).dtype == kind


def test_quantised_positions_are_within_the_stated_error():
    places = np.random.default_rng(2).uniform(-7, 3, (500, 3)).astype("<f4")
    middle, half = np.array([-2.0, -2, -2]), 5.0

    found = quantise_positions(places, middle, half) * (half / LARGEST_POSITION) + middle

    assert np.abs(found - places).max() <= half / 65534 * 1.0001


@pytest.mark.parametrize(
    ("name", "kind", "error"), [("NORMAL", "<i1", 1 / 254), ("TEXCOORD_0", "<u2", 1 / 131070), ("COLOR_0", "<u1", 1 / 510)]
)
def test_quantised_attributes_are_within_the_stated_error(name, kind, error):
    values = np.random.default_rng(3).uniform(0, 1, (500, 3)).astype("<f4")

    found = quantise_attribute(name, values)

    assert found.dtype == np.dtype(kind)
    assert np.abs(found / np.iinfo(found.dtype).max - values).max() <= error * 1.001


def test_quantised_weights_still_add_up_to_one():
    values = np.random.default_rng(4).dirichlet([1, 1, 1, 1], 300).astype("<f4")

    found = quantise_attribute("WEIGHTS_0", values)

    assert set(found.sum(axis=1, dtype=int).tolist()) == {255}
    assert np.abs(found / 255 - values).max() <= 3 / 255


@pytest.mark.parametrize(
    ("name", "value"), [("TEXCOORD_0", 1.5), ("COLOR_0", 2.0), ("NORMAL", 3.0), ("WEIGHTS_0", 0.7), ("_AGE", 0.5)]
)
def test_attribute_with_values_out_of_range_is_not_quantised(name, value):
    assert quantise_attribute(name, np.full((2, 3), value, "<f4")) is None
