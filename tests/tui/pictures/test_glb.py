import tracemalloc

import pytest
from gltf_sample import Sample, glb

from aptui.tui.pictures.glb import describe_glb


@pytest.mark.parametrize(("mode", "triangles"), [(4, 2), (5, 4), (6, 4), (1, 0)])
def test_triangle_count_depends_on_the_mode_of_each_primitive(mode, triangles):
    tree = {"accessors": [{"count": 6}], "meshes": [{"primitives": [{"attributes": {"POSITION": 0}, "mode": mode}]}]}

    assert describe_glb(glb(tree))[:2] == [("Triangles", str(triangles)), ("Vertices", "6")]


def test_facts_of_a_glb_are_counts_and_the_size_of_the_scene():
    tree = Sample().tree
    tree["nodes"][0]["scale"] = [2, 3, 1]
    tree["nodes"][1]["rotation"] = [0, 0, 0.5**0.5, 0.5**0.5]
    tree["nodes"][2] = {"matrix": [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 5, 1], "mesh": 0}

    facts = dict(describe_glb(glb(tree)))

    assert (facts["Triangles"], facts["Vertices"], facts["Size"]) == ("2", "4", "4 × 3 × 5 m")
    assert (facts["Meshes"], facts["Animations"]) == ("1", "1")


def test_only_the_json_part_of_a_glb_file_is_read_for_its_facts():
    data = glb({"asset": {"version": "2.0"}, "meshes": []}, bytes(5000))

    assert describe_glb(data[:200]) == [("Triangles", "0"), ("Vertices", "0"), ("Meshes", "0")]


@pytest.mark.parametrize(
    "data", [b"", b"glTF", glb({"meshes": [1]})[:-3], glb([]), glb({}).replace(b"{}", b"{{"), b"\x89PNG\r\n\x1a\n"]
)
def test_bytes_that_are_not_a_glb_have_no_facts(data):
    assert describe_glb(data) == []


def test_nodes_that_share_very_many_children_need_little_memory(monkeypatch):
    monkeypatch.setattr("aptui.tui.pictures.glb._MOST_STEPS", 200)
    data = glb({"nodes": [{"children": [1]}, {"children": [1] * 10_000}]})
    tracemalloc.start()
    try:
        facts = describe_glb(data)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert dict(facts) == {"Triangles": "0", "Vertices": "0", "Nodes": "2"}
    assert peak < 4 << 20


@pytest.mark.parametrize(
    "tree",
    [
        {"nodes": [{"children": [0]}]},
        {"nodes": [{"children": [1, 1, "x", 99]}, {"children": [0], "mesh": 4}]},
        {"nodes": [{"children": [1, 1]}, *({"children": [n, n]} for n in range(2, 40)), {}]},
        {"nodes": 3, "meshes": [{"primitives": [{"attributes": {"POSITION": 9}, "indices": "x"}]}]},
        {"nodes": [{"mesh": 0, "matrix": [0], "scale": "x"}], "meshes": [{"primitives": [{"attributes": []}]}]},
    ],
)
def test_scene_with_a_damaged_tree_of_nodes_has_no_size(tree):
    assert "Size" not in dict(describe_glb(glb(tree)))
