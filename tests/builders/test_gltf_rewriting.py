import json

import pytest
from gltf_sample import Sample, data_uri, glb, picture, read_glb

from aptui.builders.gltf.check import Checker
from aptui.builders.gltf.file import BrokenGltfError, pack_glb, parse_document
from aptui.builders.gltf.rewriting import QUANTISATION, obstacle, rewrite


@pytest.fixture
def sample():
    sample = Sample()
    del sample.tree["buffers"][0]["uri"]
    sample.tree["images"][0]["uri"] = data_uri(picture())
    return sample


def checked(tree, numbers):
    document = parse_document(glb(tree, numbers))
    checker = Checker(document, lambda _path: b"")
    checker.check()
    assert checker.errors == []
    return document, checker


def rewritten(sample, *, quantises=False):
    """Rewrite and pack a glTF document. Return the pair (JSON, function that maps an accessor index to numbers)."""
    document, checker = checked(sample.tree, sample.numbers)
    assert obstacle(document) == ""
    data = pack_glb(rewrite(document, checker, quantises=quantises), lambda _path: b"", embeds_images=True)
    tree, chunk = read_glb(data)
    _, again = checked(tree, chunk)
    assert again.warnings == []
    return tree, lambda index: again.array_of(index).tolist()


def without_skin(sample):
    """Reduce the document to a plain mesh on node 1."""
    for key in ("skins", "animations"):
        del sample.tree[key]
    del sample.tree["nodes"][1]["skin"]
    attributes = sample.tree["meshes"][0]["primitives"][0]["attributes"]
    del attributes["JOINTS_0"], attributes["WEIGHTS_0"]
    return sample


def shape(tree):
    """Return the number of objects in each list."""
    return {name: len(listed) for name, listed in tree.items() if isinstance(listed, list)}


def test_rewriting_keeps_objects_of_the_scene_and_accessor_values(sample):
    before = shape(sample.tree)

    tree, numbers = rewritten(sample)

    assert {**shape(tree), "bufferViews": 9} == before
    primitive = tree["meshes"][0]["primitives"][0]
    assert sorted(numbers(primitive["attributes"]["POSITION"])) == [[0, 0, 0], [0, 1, 0], [1, 0, 0], [1, 1, 0]]
    assert len(numbers(primitive["indices"])) == 6
    assert numbers(tree["skins"][0]["inverseBindMatrices"])[1][::5] == [1, 1, 1, 1]
    assert numbers(tree["animations"][0]["samplers"][0]["input"]) == [[0], [0.5], [1]]
    assert tree["animations"][0]["channels"] == [{"sampler": 0, "target": {"node": 2, "path": "rotation"}}]


def test_objects_that_no_scene_uses_are_removed(sample):
    tree = sample.tree
    tree["nodes"] = [{"name": "hidden", "mesh": 1, "camera": 0}, *tree["nodes"]]
    tree["nodes"][1]["children"] = [2, 3]
    tree["scenes"][0]["nodes"] = [1]
    tree["skins"][0]["joints"] = [1, 3]
    tree["materials"] = [{"emissiveTexture": {"index": 1}}, *tree["materials"]]
    tree["textures"].append({"source": 1})
    tree["images"].append({"uri": data_uri(b"\xff\xd8\xff\xc0\x00\x02\xff\xda\x00\x02\xff\xd9")})
    tree["meshes"][0]["primitives"][0]["material"] = 1
    tree["meshes"].append({"primitives": [{"attributes": {"POSITION": 1}, "material": 0}]})
    tree["cameras"] = [{"type": "perspective", "perspective": {"yfov": 1, "znear": 1}}]
    walk = tree["animations"][0]
    walk["samplers"] = [{"input": 5, "output": 6}, *walk["samplers"]]
    walk["channels"] = [
        {"sampler": 0, "target": {"node": 0, "path": "rotation"}},
        {"sampler": 1, "target": {"node": 3, "path": "rotation"}},
    ]
    tree["animations"].append({**walk, "channels": [walk["channels"][0]]})

    made, _ = rewritten(sample)

    counts = {"nodes": 3, "meshes": 1, "materials": 1, "textures": 1, "images": 1, "animations": 1, "skins": 1}
    assert {name: shape(made)[name] for name in counts} == counts
    assert "cameras" not in made
    assert made["nodes"] == [{"name": "root", "children": [1, 2]}, {"mesh": 0, "skin": 0}, {"name": "joint"}]
    assert made["meshes"][0]["primitives"][0]["material"] == 0
    assert made["skins"][0]["joints"] == [0, 2]
    assert made["animations"][0]["channels"] == [{"sampler": 0, "target": {"node": 2, "path": "rotation"}}]
    assert len(made["animations"][0]["samplers"]) == 1


def test_document_without_scenes_keeps_all_objects(sample):
    del sample.tree["scenes"], sample.tree["scene"]
    sample.tree["materials"].append({"name": "spare"})

    made, _ = rewritten(sample)

    assert [each.get("name") for each in made["materials"]] == [None, "spare"]


def test_primitives_with_equal_vertices_share_their_accessors(sample):
    without_skin(sample)
    (first,) = sample.tree["meshes"][0]["primitives"]
    sample.tree["meshes"].append({"primitives": [json.loads(json.dumps(first))]})
    sample.tree["nodes"][2]["mesh"] = 1

    tree, _ = rewritten(sample)

    one, other = (mesh["primitives"][0] for mesh in tree["meshes"])
    assert one == other
    assert len(tree["accessors"]) == 4


def test_vertices_of_a_point_primitive_keep_their_order(sample):
    without_skin(sample)
    sample.tree["meshes"][0]["primitives"][0] = {"attributes": {"POSITION": 0}, "mode": 0}

    tree, numbers = rewritten(sample)

    primitive = tree["meshes"][0]["primitives"][0]
    assert "indices" not in primitive
    assert numbers(primitive["attributes"]["POSITION"]) == [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]


def test_morph_targets_are_reordered_together_with_their_vertices(sample):
    without_skin(sample)
    sample.tree["meshes"][0]["primitives"][0]["targets"] = [{"POSITION": 0}, {"NORMAL": 1}]

    tree, numbers = rewritten(sample)

    primitive = tree["meshes"][0]["primitives"][0]
    assert primitive["targets"][0]["POSITION"] == primitive["attributes"]["POSITION"]
    assert numbers(primitive["targets"][1]["NORMAL"]) == [[0, 0, 1]] * 4


def test_child_node_restores_the_scale_of_a_quantised_mesh(sample):
    tree, numbers = rewritten(without_skin(sample), quantises=True)

    attributes = tree["meshes"][0]["primitives"][0]["attributes"]
    kinds = {name: tree["accessors"][index]["componentType"] for name, index in attributes.items()}
    assert kinds == {"POSITION": 5122, "NORMAL": 5120, "TEXCOORD_0": 5123}
    assert tree["nodes"][1] == {"children": [3]}
    node = tree["nodes"][3]
    places = [
        [n * s + t for n, s, t in zip(row, node["scale"], node["translation"], strict=True)]
        for row in numbers(attributes["POSITION"])
    ]
    assert [[round(n, 6) for n in place] for place in sorted(places)] == [[0, 0, 0], [0, 1, 0], [1, 0, 0], [1, 1, 0]]
    assert tree["extensionsUsed"] == tree["extensionsRequired"] == [QUANTISATION]


def test_positions_of_a_skinned_mesh_are_not_quantised(sample):
    tree, _ = rewritten(sample, quantises=True)

    attributes = tree["meshes"][0]["primitives"][0]["attributes"]
    assert tree["accessors"][attributes["POSITION"]]["componentType"] == 5126
    assert tree["accessors"][attributes["WEIGHTS_0"]]["componentType"] == 5121
    assert len(tree["nodes"]) == 3


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"extensionsUsed": ["KHR_draco_mesh_compression"]}, "the model is already compressed (KHR_draco_mesh_compression)"),
        (
            {"extensionsUsed": ["ACME_doors"]},
            "the model uses the extension ACME_doors, which may refer to objects by numbers that would change",
        ),
        (
            {"extensions": {"ACME_doors": {"node": 1}}},
            "the model uses the extension ACME_doors, which may refer to objects by numbers that would change",
        ),
        ({"buffers": [{"byteLength": 408}, {"byteLength": 8}]}, "some of its buffers have no data in its files"),
        ({"extensionsUsed": ["KHR_materials_clearcoat", "KHR_lights_punctual"]}, ""),
    ],
)
def test_obstacle_returns_why_a_document_cannot_be_rewritten(sample, change, reason):
    assert obstacle(parse_document(glb({**sample.tree, **change}, sample.numbers))) == reason


@pytest.mark.parametrize(
    ("where", "extension"),
    [
        ("nodes", {"EXT_mesh_gpu_instancing": {"attributes": {"TRANSLATION": 99}}}),
        ("nodes", {"EXT_mesh_gpu_instancing": {"attributes": {"TRANSLATION": "x"}}}),
    ],
)
def test_wrong_index_in_an_extension_is_an_error(sample, where, extension):
    sample.tree[where][0]["extensions"] = extension

    with pytest.raises(BrokenGltfError, match="an extension refers to"):
        rewritten(sample)


def test_vertex_sets_that_share_accessors_are_refused_above_the_size_limit(sample, monkeypatch):
    without_skin(sample)
    monkeypatch.setattr("aptui.builders.gltf.data.FREE_EXPANDED_BYTES", 0)
    monkeypatch.setattr("aptui.builders.gltf.data.MOST_EXPANDED_PER_BYTE", 1)
    attributes = sample.tree["meshes"][0]["primitives"][0]["attributes"]
    sample.tree["meshes"][0]["primitives"] = [{"attributes": {**attributes, f"_A{n}": 1}} for n in range(200)]

    with pytest.raises(BrokenGltfError, match="would expand to far more bytes than its files have"):
        rewritten(sample)


def test_extension_that_encodes_polygons_by_triangle_order_is_dropped(sample):
    sample.tree["extensionsUsed"] = ["FB_ngon_encoding"]
    sample.tree["meshes"][0]["primitives"][0]["extensions"] = {"FB_ngon_encoding": {}}

    tree, _ = rewritten(sample)

    assert "extensionsUsed" not in tree
    assert "extensions" not in tree["meshes"][0]["primitives"][0]


def test_rewritten_gltf_lists_each_extension_once_and_omits_empty_lists(sample):
    info = sample.tree["materials"][0]["pbrMetallicRoughness"]["baseColorTexture"]
    info["extensions"] = {"KHR_texture_transform": {"scale": [2, 2]}}
    sample.tree |= {"extensionsUsed": ["KHR_materials_unlit", "KHR_materials_unlit"], "cameras": [], "extras": []}

    tree, _ = rewritten(sample)

    assert tree["extensionsUsed"] == ["KHR_materials_unlit", "KHR_texture_transform"]
    assert "cameras" not in tree
    assert tree["extras"] == []
