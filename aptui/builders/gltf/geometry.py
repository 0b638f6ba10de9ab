"""Orders triangles and vertices for the caches of a GPU, and stores numbers in fewer bits. The functions work only on arrays.

Arrays have the shape (count, numbers of an element), as `gltf.data` reads them. Equal input gives equal arrays on every machine:
all arithmetic is on integers, or on doubles by operations that IEEE 754 defines exactly.

Tests: `tests/builders/test_gltf_geometry.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Array = Any
"""A numpy array; numpy is imported only when needed."""

CACHE_VERTICES = 16
"""Number of vertices in the assumed vertex cache: small enough for every GPU."""

LARGEST_SHORT_INDEX = 0xFFFE
"""Largest 16-bit index of a vertex, because 0xFFFF restarts a primitive (§3.7.2.1)."""

LARGEST_POSITION = 32767
_WEIGHT_STEPS = 255
_LARGEST_WEIGHT_ERROR = 0.01


def order_vertices(arrays: Sequence[Array], index_lists: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    """Return the arrays of a set of vertices and its lists of triangles (flat indices), sorted for the caches of a GPU.

    Vertices that are equal in all arrays are merged, and unused vertices are dropped. `cache_order` sorts the triangles of each
    list. The vertices are sorted by their first use. Triangles with two equal corners are removed, unless the list has only such
    triangles.
    """
    import numpy as np

    rows = np.hstack([np.ascontiguousarray(each).view(np.uint8).reshape(len(each), -1) for each in arrays])
    whole = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1])))[:, 0]
    _, first, same = np.unique(whole, return_index=True, return_inverse=True)
    lists = []
    for indices in index_lists:
        triangles = first[same.reshape(-1)[indices]].reshape(-1, 3)
        a, b, c = triangles.T
        is_real = (a != b) & (b != c) & (c != a)
        triangles = triangles[is_real] if is_real.any() else triangles
        lists.append(triangles[cache_order(triangles)])
    used, first = np.unique(np.concatenate(lists), return_index=True)
    remaining = used[np.argsort(first)]
    places = np.empty(len(whole), np.int64)
    places[remaining] = np.arange(len(remaining))
    return [each[remaining] for each in arrays], [places[triangles].reshape(-1) for triangles in lists]


def cache_order(triangles: Array) -> Array:
    """Return the indices of triangles (count, 3), sorted so that a GPU transforms few vertices twice. Takes linear time.

    Sander, Nehab, Barczak: "Fast Triangle Reordering for Vertex Locality and Reduced Overdraw", 2007 (Tipsify).
    """
    import numpy as np

    _, flat = np.unique(triangles, return_inverse=True)
    flat = flat.reshape(-1)
    counts = np.bincount(flat)
    users = (np.argsort(flat, kind="stable") // 3).tolist()  # numbers of the triangles that use vertex 0, then vertex 1, and so on
    ends = np.cumsum(counts).tolist()
    corners = flat.reshape(-1, 3).tolist()
    live, stamps = counts.tolist(), [0] * len(counts)
    is_done = bytearray(len(corners))
    order: list[int] = []
    recent: list[int] = []
    time, cursor, fan = CACHE_VERTICES + 1, 0, 0
    while fan >= 0:
        begin = len(recent)
        for triangle in users[ends[fan - 1] if fan else 0 : ends[fan]]:
            if is_done[triangle]:
                continue
            is_done[triangle] = True
            order.append(triangle)
            for vertex in corners[triangle]:
                recent.append(vertex)
                live[vertex] -= 1
                if time - stamps[vertex] > CACHE_VERTICES:
                    stamps[vertex] = time
                    time += 1
        fan, best = -1, -1
        for vertex in recent[begin:]:
            if live[vertex]:
                age = time - stamps[vertex]
                rank = age if age + 2 * live[vertex] <= CACHE_VERTICES else 0
                if rank > best:
                    fan, best = vertex, rank
        while fan < 0 and recent:
            vertex = recent.pop()
            fan = vertex if live[vertex] else -1
        while fan < 0 and cursor < len(live):
            fan = cursor if live[cursor] else -1
            cursor += 1
    return np.array(order, np.int64)


def to_indices(indices: Array, vertex_count: int) -> Array:
    """Return indices in 16 bits if all vertices of the primitive fit, else in 32."""
    return indices.astype("<u2" if vertex_count <= LARGEST_SHORT_INDEX + 1 else "<u4")


def to_floats(array: Array, accessor: Mapping[str, Any]) -> Array:
    """Convert the stored numbers of an accessor to 32-bit floats; normalized integers are scaled (§3.6.2.2)."""
    import numpy as np

    if array.dtype.kind == "f" or not accessor.get("normalized"):
        return array.astype("<f4")
    return np.maximum(array.astype("<f4") / np.float32(np.iinfo(array.dtype).max), np.float32(-1))


def quantise_positions(positions: Array, middle: Array, half: float) -> Array:
    """Return positions, which are at most `half` from `middle`, as 16-bit numbers.

    The number `LARGEST_POSITION` stands for the distance `half`. The largest error on each axis is half / 65,534.
    """
    import numpy as np

    steps = np.rint((positions.astype("<f8") - middle) / half * LARGEST_POSITION)
    return steps.clip(-LARGEST_POSITION, LARGEST_POSITION).astype("<i2")


def quantise_attribute(name: str, values: Array) -> Array | None:
    """Return a float attribute as normalised integers, None if its range or its kind does not allow that.

    Largest errors: 1/254 for NORMAL and TANGENT, 1/131,070 for TEXCOORD, 1/510 for COLOR (half a step), and 3/255 for WEIGHTS,
    because their sum must stay 1.
    """
    import numpy as np

    if values.dtype.kind != "f":
        return None
    values = values.astype("<f8")
    lowest, highest = values.min(), values.max()
    match name.partition("_")[0]:
        case "NORMAL" | "TANGENT" if lowest >= -1.001 and highest <= 1.001:
            return np.rint(values.clip(-1, 1) * 127).astype("<i1")
        case "TEXCOORD" if lowest >= 0 and highest <= 1:
            return np.rint(values * 65535).astype("<u2")
        case "COLOR" if lowest >= 0 and highest <= 1:
            return np.rint(values * 255).astype("<u1")
        case "WEIGHTS" if lowest >= 0 and (np.abs(values.sum(axis=1) - 1) <= _LARGEST_WEIGHT_ERROR).all():
            steps = np.rint(values / values.sum(axis=1, keepdims=True) * _WEIGHT_STEPS).astype(np.int64)
            steps[np.arange(len(steps)), steps.argmax(axis=1)] += _WEIGHT_STEPS - steps.sum(axis=1)
            return steps.astype("<u1")
    return None
