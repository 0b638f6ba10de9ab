"""Tangents of triangles by the rules of MikkTSpace, which glTF names for models without tangents (§3.7.2.1).

This module restates mikktspace.c by Morten S. Mikkelsen (zlib licence) for triangles. Corners with equal position, normal and
texture coordinates are one vertex. The triangles of a vertex form groups; those in a group have one orientation and are connected
by edges. A group has one tangent: the mean of its triangles' directions, weighted by their angles. Equal input gives equal bytes on
every machine. Therefore this module does not use numpy's `arccos` or numpy's matrix products: their results depend on the
processor.

Tests: `tests/builders/test_gltf_tangents.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Array = Any
"""A numpy array; numpy is imported only when needed."""

_LEAST = 1.17549435e-38
"""Smallest normal 32-bit float; MikkTSpace treats smaller numbers as zero."""

_ARCCOS = (-0.0012624911, 0.0066700901, -0.0170881256, 0.0308918810, -0.0501743046, 0.0889789874, -0.2145988016, 1.5707963050)
"""Coefficients of arccos, the highest power first (Abramowitz and Stegun, 4.4.46); the error is at most 2e-8."""


def compute_tangents(positions: Array, normals: Array, coordinates: Array) -> Array:
    """Return the tangent (x, y, z, sign) of each corner as 32-bit floats.

    A corner whose triangles have no area on the texture gets a direction at right angles to its normal.

    Args:
        positions, normals: (3 * triangles, 3), 32-bit floats; three rows make a triangle.
        coordinates: (3 * triangles, 2), 32-bit floats; their y axis points down, as in glTF.
    """
    import numpy as np

    vertices = _weld(np.hstack([positions, normals, coordinates]))
    corners = positions.reshape(-1, 3, 3)
    is_flat = (corners == np.roll(corners, 1, axis=1)).all(axis=2).any(axis=1)
    directions, is_good, is_preserving = _directions(corners.astype("f8"), coordinates.reshape(-1, 3, 2))
    is_good &= ~is_flat
    groups, orientations = _list_groups(vertices, is_flat, is_good, is_preserving)
    tangents, signs = _mean_tangents(corners.astype("f8"), normals.astype("f8"), directions, groups, is_good, orientations)
    found = _copy_to_flat(groups, vertices, np.repeat(is_flat, 3))
    tangents, signs = tangents[found], signs[found]
    return np.hstack([_never_zero(tangents, normals.astype("f8")), -signs[:, None]]).astype("<f4")


def _weld(rows: Array) -> Array:
    """Return the vertex number of each row; equal rows get the same number."""
    import numpy as np

    rows = np.ascontiguousarray(rows + 0.0)  # adding 0 turns -0 into 0, because -0 and 0 are equal but have different bytes
    _, same = np.unique(rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1])))[:, 0], return_inverse=True)
    return same.reshape(-1)


def _directions(corners: Array, coordinates: Array) -> tuple[Array, Array, Array]:
    """Return three arrays with an entry for each triangle: directions of the texture's axes (2, 3), validity, orientation."""
    import numpy as np

    first, second = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    a, b = coordinates[:, 1] - coordinates[:, 0], coordinates[:, 2] - coordinates[:, 0]
    area = a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]  # 32-bit floats, as in mikktspace.c, because rounding may decide the sign
    is_preserving = area > 0
    a, b, flip = a.astype("f8"), b.astype("f8"), np.where(is_preserving, 1.0, -1.0)[:, None]
    along = (b[:, 1:] * first - a[:, 1:] * second) * flip
    across = (a[:, :1] * second - b[:, :1] * first) * flip
    found = np.stack([along, across], axis=1)
    is_good = (np.abs(area) > _LEAST) & (_lengths(found) > _LEAST).all(axis=1)
    return _unit(found) * is_good[:, None, None], is_good, is_preserving


def _list_groups(vertices: Array, is_flat: Array, is_good: Array, is_preserving: Array) -> tuple[Array, list[bool]]:
    """Return the group number of each corner (-1 = no group), and the orientation of each group. A group has one tangent.

    A triangle without directions (not `is_good`), for example without area on the texture, joins the groups of its neighbours. It
    gets the orientation of the first of these groups.
    """
    import numpy as np

    corners, flat = vertices.tolist(), is_flat.tolist()
    neighbours = _list_neighbours(corners, flat)
    orientation: list[bool | None] = [bool(side) if good else None for side, good in zip(is_preserving, is_good, strict=True)]
    good = is_good.tolist()
    groups = [-1] * len(corners)
    orientations: list[bool] = []
    for seed in range(len(corners)):
        if groups[seed] >= 0 or not good[seed // 3]:
            continue
        vertex, side = corners[seed], bool(orientation[seed // 3])
        todo = [seed // 3]
        while todo:
            triangle = todo.pop()
            corner = corners.index(vertex, 3 * triangle, 3 * triangle + 3)
            if groups[corner] >= 0:
                continue
            if orientation[triangle] is None:
                orientation[triangle] = side
            if orientation[triangle] == side:
                groups[corner] = len(orientations)
                before = corner - 1 if corner % 3 else corner + 2
                todo += [each for each in (neighbours[corner], neighbours[before]) if each >= 0]
        orientations.append(side)
    return np.array(groups), orientations


def _list_neighbours(corners: Sequence[int], is_flat: Sequence[bool]) -> list[int]:
    """Return for each corner the number of a neighbouring triangle, -1 if the neighbour does not exist.

    The neighbour of a corner shares the edge between this corner and the next corner of the same triangle.
    """
    found = [-1] * len(corners)
    waiting: dict[tuple[int, int], list[int]] = {}
    for corner, vertex in enumerate(corners):
        if is_flat[corner // 3]:
            continue
        following = corners[corner + 1 if corner % 3 < 2 else corner - 2]
        others = waiting.get((following, vertex))
        if others:
            other = others.pop(0)
            found[corner], found[other] = other // 3, corner // 3
        else:
            waiting.setdefault((vertex, following), []).append(corner)
    return found


def _mean_tangents(
    corners: Array, normals: Array, directions: Array, groups: Array, is_good: Array, orientations: Sequence[bool]
) -> tuple[Array, Array]:
    """Return a tangent and a sign for each corner; a corner without a group gets the tangent zero and the sign -1."""
    import numpy as np

    beside = np.stack([np.roll(corners, 1, axis=1), np.roll(corners, -1, axis=1)], axis=2) - corners[:, :, None]
    edges = _unit(_project(beside.reshape(-1, 2, 3), normals))
    angles = _arccos(_dot(edges[:, 0], edges[:, 1]).clip(-1, 1))
    projected = _unit(_project(np.repeat(directions, 3, axis=0), normals))
    weighted = projected[:, 0] * (angles * np.repeat(is_good, 3))[:, None]
    members = np.flatnonzero(groups >= 0)
    parts = groups[members]
    sums = np.stack([np.bincount(parts, weighted[members, axis], len(orientations)) for axis in range(3)], axis=1)
    found = np.vstack([sums, np.zeros((1, 3))])[groups]  # a corner without a group has group -1, which selects the last row
    signs = np.where(np.array([*orientations, False]), 1.0, -1.0)[groups]
    found = _unit(found)
    # If all angles are 0, the sum is zero, and the projected direction replaces the sum.
    return np.where((_lengths(found) > 0)[:, None], found, projected[:, 0]), signs


def _copy_to_flat(groups: Array, vertices: Array, is_flat: Array) -> Array:
    """Return for each corner the number of the corner whose tangent it gets: its own number, unless its triangle has no area.

    A triangle counts as without area (`is_flat`) if two of its corners have one position. Its corners get the tangent of the first
    corner of the same vertex in a triangle with area. If that does not exist, they keep their own tangent.
    """
    import numpy as np

    found = np.arange(len(groups))
    others = found[~is_flat]
    known, first = np.unique(vertices[others], return_index=True)
    places = np.searchsorted(known, vertices).clip(max=max(len(known) - 1, 0))
    if len(known):
        has_other = is_flat & (known[places] == vertices)
        found[has_other] = others[first[places[has_other]]]
    return found


def _never_zero(tangents: Array, normals: Array) -> Array:
    """Replace tangents of length zero by a direction at right angles to the normal."""
    import numpy as np

    x, y, z = normals.T
    zero = np.zeros(len(normals))
    is_x_least = ((np.abs(x) <= np.abs(y)) & (np.abs(x) <= np.abs(z)))[:, None]
    side = np.where(is_x_least, np.stack([zero, z, -y], axis=1), np.stack([-z, zero, x], axis=1))
    return np.where((_lengths(tangents) > 0)[:, None], tangents, _unit(side))


def _dot(a: Array, b: Array) -> Array:
    product = a * b
    return product[..., 0] + product[..., 1] + product[..., 2]


def _lengths(vectors: Array) -> Array:
    import numpy as np

    return np.sqrt(_dot(vectors, vectors))


def _unit(vectors: Array) -> Array:
    """Return vectors of length 1; zero stays zero."""
    import numpy as np

    lengths = _lengths(vectors)[..., None]
    return np.where(lengths > _LEAST, vectors / np.where(lengths > _LEAST, lengths, 1.0), 0.0)


def _project(vectors: Array, normals: Array) -> Array:
    """Project the vectors of each corner to the plane at right angles to the normal of the corner.

    `vectors` has the shape (corners, vectors of a corner, 3), and so has the result; `normals` has the shape (corners, 3).
    """
    normals = normals[:, None]
    return vectors - normals * _dot(vectors, normals)[..., None]


def _arccos(cosines: Array) -> Array:
    import numpy as np

    size = np.abs(cosines)
    total = np.full(len(size), _ARCCOS[0])
    for factor in _ARCCOS[1:]:
        total = total * size + factor
    total = np.sqrt(1 - size) * total
    return np.where(cosines < 0, np.pi - total, total)
