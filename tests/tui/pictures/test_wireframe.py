"""Models become wireframes: every kind of triangles, placed by nodes; damaged models are reported, huge ones thinned out."""

from __future__ import annotations

import json
import struct
import threading
from pathlib import Path

import numpy as np
import pytest

from aptui.tui.pictures import glb as models
from aptui.tui.pictures.decoder import PictureView, Pixels
from aptui.tui.pictures.decoding import decode

SQUARE = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]], np.float32)
VIEW = PictureView("GLB", 0, 80, 60)


def glb(path: Path, points=SQUARE, order=(0, 1, 2, 2, 1, 3), *, mode=4, node=None, **changes) -> Path:
    """Write a GLB with one mesh; `changes` are made to the first buffer view."""
    indices = np.array(order, np.uint16).tobytes()
    data = points.tobytes() + indices
    kinds = {"f": 5126, "h": 5122}
    document = {
        "buffers": [{"byteLength": len(data)}],
        "bufferViews": [
            {"buffer": 0, "byteLength": points.nbytes} | changes,
            {"buffer": 0, "byteOffset": points.nbytes, "byteLength": len(indices)},
        ],
        "accessors": [
            {"bufferView": 0, "componentType": kinds[points.dtype.char], "count": len(points), "type": "VEC3",
             "normalized": points.dtype.char == "h"},
            {"bufferView": 1, "componentType": 5123, "count": len(order), "type": "SCALAR"},
        ],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 0}, "indices": 1, "mode": mode}]}],
        "nodes": [{"mesh": 0, **(node or {})}],
    }  # fmt: skip
    text = json.dumps(document).encode()
    text += b" " * (-len(text) % 4)
    head = struct.pack("<4sIIII", b"glTF", 2, 28 + len(text) + len(data), len(text), 0x4E4F534A)
    path.write_bytes(head + text + struct.pack("<II", len(data), 0x4E4942) + data)
    return path


def drawn(path: Path, view: PictureView = VIEW) -> np.ndarray:
    """Return the pixels of the wireframe, as (height, width, 4)."""
    with path.open("rb") as stream:
        return np.asarray(models.draw_model(stream, view))


def test_square_is_drawn_with_its_diagonal_and_nothing_else(tmp_path):
    picture = drawn(glb(tmp_path / "a.glb"))

    is_inked = picture[..., 3] > 0
    width = picture.shape[1]
    assert (picture.shape[0], is_inked.sum()) == (60, pytest.approx(3 * 60 + 2 * width, rel=0.1))
    for row, diagonal in ((20, width * 0.3), (30, width * 0.5), (45, width * 0.75)):
        assert is_inked[row].nonzero()[0].tolist() == [0, pytest.approx(diagonal, abs=3), width - 1]


@pytest.mark.parametrize(("mode", "order"), [(5, (0, 1, 2, 3)), (6, (1, 3, 2, 0))])
def test_strips_and_fans_are_drawn_as_triangles(tmp_path, mode, order):
    expected = drawn(glb(tmp_path / "a.glb"))[..., 3]

    assert (drawn(glb(tmp_path / "b.glb", order=order, mode=mode))[..., 3] == expected).mean() > 0.95


def test_quantised_points_and_interleaved_points_look_the_same(tmp_path):
    expected = drawn(glb(tmp_path / "a.glb"))
    wide = np.zeros((4, 4), np.int16)
    wide[:, :3] = SQUARE * 32_767
    rows = np.zeros((4, 5), np.float32)
    rows[:, :3] = SQUARE

    assert (drawn(glb(tmp_path / "b.glb", wide, byteStride=8)) == expected).all()
    assert (drawn(glb(tmp_path / "c.glb", rows, byteStride=20)) == expected).all()


def test_mesh_is_drawn_at_the_place_of_its_node(tmp_path):
    wide = drawn(glb(tmp_path / "a.glb", node={"scale": [9, 1, 1]}))
    high = drawn(glb(tmp_path / "b.glb", node={"scale": [1, 9, 1]}))

    assert wide.shape[1] == VIEW.width > wide.shape[0]
    assert high.shape[0] == VIEW.height > high.shape[1]


def test_front_of_a_model_is_bright_and_its_back_is_dark(tmp_path):
    front = drawn(glb(tmp_path / "a.glb"))
    back = drawn(glb(tmp_path / "b.glb", order=(0, 2, 1, 2, 3, 1)))

    assert front[front[..., 3] > 0][:, 2].min() > back[back[..., 3] > 0][:, 2].max()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"extensions": {"EXT_meshopt_compression": {}}}, "compressed"), ({"buffer": 1}, "another file"),
        ({"byteLength": 40}, "damaged"), ({"byteOffset": -4}, "damaged"), ({"byteStride": 2}, "4 vertices"),
        ({"byteOffset": 1 << 40}, "truncated"),
    ],
)  # fmt: skip
def test_damaged_or_compressed_buffer_is_reported(tmp_path, changes, why):
    with pytest.raises(ValueError, match=why):
        drawn(glb(tmp_path / "a.glb", **changes))


def test_indices_without_a_vertex_are_not_drawn(tmp_path):
    with pytest.raises(ValueError, match="no triangles"):
        drawn(glb(tmp_path / "a.glb", order=(0, 1, 99)))


def test_model_with_too_many_vertices_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(models, "_MOST_POINTS", 3)

    with pytest.raises(ValueError, match="vertices"):
        drawn(glb(tmp_path / "a.glb"))


def test_edges_are_drawn_in_pieces_and_thinned_out_if_there_are_too_many(tmp_path, monkeypatch):
    grid = np.array([[x, y, 0] for y in range(40) for x in range(40)], np.float32)
    order = [at + each for y in range(39) for at in range(y * 40, y * 40 + 39) for each in (0, 1, 40, 40, 1, 41)]
    path = glb(tmp_path / "a.glb", grid, order)
    whole = drawn(path)

    monkeypatch.setattr(models, "_CHUNK_DOTS", 100)
    monkeypatch.setattr(models, "_CHUNK_TRIANGLES", 1000)
    assert (drawn(path) == whole).all()

    monkeypatch.setattr(models, "_MOST_DOTS", 5000)
    few = drawn(path)
    assert 0.1 < (few[..., 3] > 0).sum() / (whole[..., 3] > 0).sum() < 0.9


@pytest.mark.real
def test_model_is_drawn_by_the_process_without_privileges(tmp_path):
    picture = decode(str(glb(tmp_path / "a.glb")), VIEW, threading.Event())

    assert isinstance(picture, Pixels), picture
    assert (picture.height, picture.is_drawing) == (60, True)
    (tmp_path / "b.glb").write_bytes(b"glTF" + bytes(40))
    assert (
        decode(str(tmp_path / "b.glb"), VIEW, threading.Event())
        == "the file cannot be decoded (the JSON of the model is damaged or too long)"
    )
