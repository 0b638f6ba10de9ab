import copy
import json
import math
import random
import struct

import pytest
from gltf_sample import Sample, data_uri, embedded, glb, mistakes, picture, read_glb

from aptui.builders.gltf.check import Checker
from aptui.builders.gltf.file import BrokenGltfError, file_uris, pack_glb, parse_document
from aptui.builders.gltf.rewriting import obstacle, rewrite
from aptui.builders.model_builder import ModelBuilder
from aptui.sdk import Result

BUILDER = ModelBuilder


@pytest.fixture
def sample():
    return Sample()


CONTAINERS = [
    ("empty", b"", "a.gltf: the file is empty"),
    ("comma", b'{"asset": 1\n "b": 2}', "a.gltf: line 2, column 2: Expecting ',' delimiter"),
    ("list", b"[]", "a.gltf: the JSON is not an object"),
    ("nan", b'{"asset": NaN}', "a.gltf: NaN is not JSON"),
    ("huge", b'{"asset": 1e999}', "a.gltf: the number 1e999 is too large"),
    ("abyss", b'{"a":' * 100_000, "a.gltf: the JSON is nested too deeply"),
    ("latin", b'{"a": "\xe9"}', "a.gltf: line 1, column 8: the text is not UTF-8; save the file as UTF-8"),
    ("no asset", b"{}", "a.gltf: the file has no asset.version, which every glTF file must have"),
    ("old", b'{"asset": {"version": "1.0"}}', "a.gltf: the file has glTF version 1.0; only version 2 is supported"),
    ("no list", b'{"asset": {"version": "2.0"}, "nodes": {}}', "a.gltf: 'nodes' is not a list"),
    ("no object", b'{"asset": {"version": "2.0"}, "nodes": [3]}', "a.gltf: node 0 is not an object"),
    ("header", b"glTF\x02\0\0\0", "a.gltf: the GLB ends after 8 bytes, in the middle of its header"),
    ("old glb", glb({}, version=1), "a.gltf: the file has GLB version 1; only version 2 is supported"),
    ("cut", glb({})[:-1], "a.gltf: the GLB should have 24 bytes, but has only 23"),
    (
        "chunk",
        glb({}).replace(b"\x04\0\0\0JSON", b"\x05\0\0\0JSON"),
        "a.gltf: chunk 0 of the GLB should have 5 bytes, but has only 4",
    ),
    ("first", glb({}).replace(b"JSON", b"BIN\0"), "a.gltf: chunk 0 of the GLB is not JSON; only the first chunk (0) must be JSON"),
]


@pytest.mark.parametrize(("data", "error"), [case[1:] for case in CONTAINERS], ids=[case[0] for case in CONTAINERS])
def test_error_for_a_broken_glb_container_names_the_byte_offset(bench, data, error):
    assert bench.fail(bench.write("a.gltf", data)) == error


POSITION = "accessor 0 ('POSITION' of mesh 'rock', primitive 0)"
INDICES = "accessor 3 (indices of mesh 'rock', primitive 0)"
ROCK = "mesh 0 ('rock'), primitive 0"
WALK = "animation 0 ('walk')"

MISTAKES = [
    ("accessors.0.count", 5, f"{POSITION}: the elements end at byte 60 of buffer view 0, which has only 48 bytes"),
    ("accessors.0.byteOffset", 4, f"{POSITION}: the elements end at byte 52 of buffer view 0, which has only 48 bytes"),
    (
        "accessors.0.componentType",
        5127,
        f"{POSITION}: 'componentType' is 5127, but must be one of 5120, 5121, 5122, 5123, 5125, 5126",
    ),
    ("accessors.0.type", "VEC5", f"{POSITION}: 'type' is 'VEC5', but must be one of SCALAR, VEC2, VEC3, VEC4, MAT2, MAT3, MAT4"),
    ("accessors.0.count", 0, f"{POSITION}: 'count' is 0, but must be an integer of at least 1"),
    ("accessors.0.count", True, f"{POSITION}: 'count' is True, but must be an integer of at least 1"),
    ("accessors.0.bufferView", 99, f"{POSITION}: bufferView is 99, but the model has 9 buffer views (numbered from 0)"),
    ("accessors.0.min", [0, 0], f"{POSITION}: 'min' must be a list of 3 numbers"),
    ("accessors.3.byteOffset", 1, f"{INDICES}: the elements end at byte 13 of buffer view 3, which has only 12 bytes"),
    ("accessors.0.sparse", {"count": 9}, f"{POSITION}: 'sparse' replaces 9 elements, but the accessor has only 4"),
    ("bufferViews.0.byteLength", 9999, "buffer view 0: the view ends at byte 9,999, but buffer 0 has only 408 bytes"),
    ("bufferViews.0.buffer", 1, "buffer view 0: buffer is 1, but the model has 1 buffer (numbered from 0)"),
    ("bufferViews.0.byteStride", 6, "buffer view 0: 'byteStride' is 6, but must be a multiple of 4 from 4 to 252"),
    ("bufferViews.0.byteStride", 8, f"{POSITION}: an element has 12 bytes, but the 'byteStride' of buffer view 0 is only 8"),
    (
        "bufferViews.0.byteOffset",
        2,
        f"{POSITION}: the position in the buffer is 2, but must be a multiple of 4, which is the size of a number in bytes",
    ),
    ("buffers.0.byteLength", 9999, "buffer 0: 'byteLength' is 9,999, but the data URI has only 408 bytes"),
    ("buffers.0.uri", "data:x;base64,***", "buffer 0: the data URI is damaged: its data is not valid base64"),
    (
        "buffers.0.uri",
        "file:///etc/passwd",
        "buffer 0: 'file:///etc/passwd' is not a file in the project; only files and data URIs are supported",
    ),
    ("images.0", {}, "image 0: an image must have either a 'uri' or a 'bufferView'"),
    ("images.0", {"bufferView": 0}, "image 0: an image in a bufferView must have a 'mimeType'"),
    ("images.0", {"uri": data_uri(b"text")}, "image 0: the data is not an image in a known format (PNG, JPEG, WebP, KTX2, DDS)"),
    (
        "images.0",
        {"uri": data_uri(picture("JPEG")), "mimeType": "image/png"},
        "image 0: 'mimeType' is 'image/png', but the data is image/jpeg",
    ),
    ("textures.0.source", 4, "texture 0: source is 4, but the model has 1 image (numbered from 0)"),
    (
        "textures.0.extensions",
        {"EXT_texture_webp": {"source": 7}},
        "texture 0: source of EXT_texture_webp is 7, but the model has 1 image (numbered from 0)",
    ),
    (
        "materials.0.pbrMetallicRoughness.baseColorTexture.index",
        3,
        "material 0: pbrMetallicRoughness.baseColorTexture.index is 3, but the model has 1 texture (numbered from 0)",
    ),
    ("meshes.0.primitives", [], "mesh 0 ('rock'): the mesh has no primitives"),
    ("meshes.0.primitives.0.attributes", {}, f"{ROCK}: the primitive has no attributes"),
    (
        "meshes.0.primitives.0.attributes.NORMAL",
        77,
        f"{ROCK}: attribute 'NORMAL' is 77, but the model has 9 accessors (numbered from 0)",
    ),
    ("meshes.0.primitives.0.attributes.NORMAL", 2, f"{ROCK}: attribute 'NORMAL' has the type 'VEC2', but must be VEC3"),
    (
        "accessors.1.count",
        3,
        f"{ROCK}: all attributes must have the same number of values: POSITION 4, NORMAL 3, TEXCOORD_0 4, JOINTS_0 4, WEIGHTS_0 4",
    ),
    ("meshes.0.primitives.0.mode", 9, f"{ROCK}: 'mode' is 9, but must be a number from 0 to 6"),
    ("meshes.0.primitives.0.mode", True, f"{ROCK}: 'mode' is True, but must be a number from 0 to 6"),
    ("extensionsUsed", [[]], "'extensionsUsed' or 'extensionsRequired' is not a list of names"),
    ("extensionsRequired", [5], "'extensionsUsed' or 'extensionsRequired' is not a list of names"),
    (
        "bufferViews.0.extensions",
        {"EXT_meshopt_compression": {"buffer": 99}},
        "buffer view 0: buffer is 99, but the model has 1 buffer (numbered from 0)",
    ),
    ("meshes.0.primitives.0.material", 2, f"{ROCK}: material is 2, but the model has 1 material (numbered from 0)"),
    (
        "meshes.0.primitives.0.indices",
        5,
        f"{ROCK}: the indices must have the type SCALAR and an unsigned componentType (5121, 5123 or 5125)",
    ),
    ("meshes.0.primitives.0.targets", [{"POSITION": 5}], f"{ROCK}: attribute 'POSITION' has the type 'SCALAR', but must be VEC3"),
    ("skins.0.joints", [], "skin 0: the skin has no joints"),
    ("skins.0.joints", [0, 0], "skin 0: the skin lists a joint twice"),
    ("skins.0.joints", [0, 1, 2], "skin 0: the skin has 3 joints, but only 2 'inverseBindMatrices'"),
    ("skins.0.inverseBindMatrices", 6, "skin 0: 'inverseBindMatrices' must have the type MAT4 and the componentType 5126 (float)"),
    ("nodes.1.mesh", 1, "node 1: mesh is 1, but the model has 1 mesh (numbered from 0)"),
    ("nodes.1", {"skin": 0}, "node 1: the node has a skin, but no mesh"),
    ("nodes.0.rotation", [0, 0, 1], "node 0 ('root'): rotation must have 4 numbers"),
    ("nodes.0.children", [1, 8], "node 0 ('root'): children[1] is 8, but the model has 3 nodes (numbered from 0)"),
    ("nodes.2.children", [1], "node 2 ('joint'): node 1 is a child of this node and of node 0, but may have only one parent"),
    ("scene", 1, "scene is 1, but the model has 1 scene (numbered from 0)"),
    ("animations.0.samplers", [], f"{WALK}: the animation must have samplers and channels"),
    ("animations.0.samplers.0.input", 99, f"{WALK}: input is 99, but the model has 9 accessors (numbered from 0)"),
    ("animations.0.samplers.0.input", 6, f"{WALK}: sampler 0: its input (accessor 6) must be SCALAR floats"),
    (
        "animations.0.samplers.0.interpolation",
        "FAST",
        f"{WALK}: sampler 0: 'interpolation' is 'FAST', but must be LINEAR, STEP or CUBICSPLINE",
    ),
    (
        "animations.0.samplers.0.interpolation",
        "CUBICSPLINE",
        f"{WALK}: sampler 0: the number of output values, 3, does not fit the 3 times (CUBICSPLINE)",
    ),
    (
        "animations.0.channels.0.sampler",
        1,
        f"{WALK}: channel 0: 'sampler' is 1, but the animation has 1 sampler (numbered from 0)",
    ),
    (
        "animations.0.channels.0.target.path",
        "scale",
        f"{WALK}: channel 0: the output values of a scale must have the type VEC3, not VEC4",
    ),
    (
        "animations.0.channels.0.target.path",
        "spin",
        f"{WALK}: channel 0: 'path' is 'spin', but must be one of translation, rotation, scale, weights",
    ),
]


def put(tree, way, value):
    *steps, last = [int(step) if step.isdigit() else step for step in way.split(".")]
    for step in steps:
        tree = tree[step]
    tree[last] = value


@pytest.mark.parametrize(("way", "value", "error"), MISTAKES, ids=[f"{way}={str(value)[:20]}" for way, value, _ in MISTAKES])
def test_error_for_a_mistake_in_a_model_names_the_object(sample, way, value, error):
    sample = embedded(sample)
    put(sample.tree, way, value)

    errors, _ = mistakes(sample.tree, sample.numbers)

    assert errors[0] == error


def test_checker_finds_no_mistake_in_the_sample_model(sample):
    sample = embedded(sample)

    assert mistakes(sample.tree, sample.numbers) == ([], [])


def change(sample, accessor, form, index, value):
    at = sample.tree["bufferViews"][accessor]["byteOffset"] + struct.calcsize(form) * index
    data = bytearray(sample.numbers)
    struct.pack_into(f"<{form}", data, at, value)
    sample.numbers = bytes(data)


def test_scene_that_lists_a_child_node_warns_and_fails_if_strict(bench, sample):
    sample.tree["scenes"][0]["nodes"] = [1]
    source = sample.write(bench)

    assert bench.build(source)
    assert bench.warnings == ["rock.gltf: scene 0: node 1 is not a root, because it is a child of node 0"]
    assert bench.fail(source, strict=True) == bench.warnings[0]


def test_glb_whose_json_is_padded_with_nul_warns(bench, sample):
    sample = embedded(sample)
    sample.tree["asset"]["generator"] = "x"
    text = json.dumps(sample.tree).encode()
    data = glb(sample.tree, sample.numbers)
    padded = data[: 20 + len(text)] + bytes(-len(text) % 4) + data[20 + len(text) + -len(text) % 4 :]
    assert padded != data

    assert bench.build(bench.write("a.glb", padded), output="copy") == {"a.glb": padded}
    assert bench.warnings == ["a.glb: the JSON of the GLB is padded with NUL bytes, but must be padded with blanks"]


def test_buffer_whose_bytes_are_not_stored_warns_and_is_kept(bench, sample):
    sample.tree["buffers"].insert(0, {"byteLength": 16})
    for view in sample.tree["bufferViews"]:
        view["buffer"] = 1
    sample.tree["bufferViews"].append({"buffer": 0, "byteLength": 16})
    bench.write("rock.bin", sample.numbers)
    bench.write("rock face.png", picture())

    tree, _ = read_glb(bench.build(bench.write("rock.gltf", json.dumps(sample.tree)))["rock.glb"])

    assert bench.warnings == ["rock.gltf: buffer 0: the buffer has no 'uri', so its 16 bytes are not in the model"]
    assert tree["buffers"][1:] == [{"byteLength": 16}]
    assert tree["bufferViews"][9] == {"buffer": 1, "byteLength": 16}


def test_model_whose_only_buffer_has_no_stored_bytes_is_packed(bench):
    tree = {"asset": {"version": "2.0"}, "buffers": [{"byteLength": 16}], "bufferViews": [{"buffer": 0, "byteLength": 16}]}

    made, chunk = read_glb(bench.build(bench.write("a.gltf", json.dumps(tree)))["a.glb"])

    assert (made["buffers"], made["bufferViews"], chunk) == (tree["buffers"], tree["bufferViews"], b"")


def test_indices_written_as_floats_are_accepted(bench, sample):
    for view in sample.tree["bufferViews"]:
        view["buffer"] = 0.0
    sample.tree["meshes"][0]["primitives"][0]["indices"] = 3.0
    source = sample.write(bench)

    tree, _ = read_glb(bench.build(source, optimise=False)["rock.glb"])

    assert bench.warnings == []
    assert tree["meshes"][0]["primitives"][0]["indices"] == 3


NUMBERS = [
    (7, "B", 5, 9, "node 1: joint 9 of attribute 'JOINTS_0' of mesh 0, primitive 0, is not in skin 0, which has 2 joints"),
    (8, "f", 1, -0.5, f"{ROCK}: attribute 'WEIGHTS_0' has negative weights"),
    (
        3,
        "H",
        2,
        0xFFFF,
        f"{ROCK}: index 2 (accessor 3) is 65,535, which glTF forbids, because some engines begin a new primitive there",
    ),
    (3, "H", 4, 4, f"{ROCK}: index 4 (accessor 3) is 4, but the primitive has only 4 vertices"),
    (
        1,
        "f",
        7,
        math.nan,
        "accessor 1 ('NORMAL' of mesh 'rock', primitive 0): element 2 contains a value that is not a finite number",
    ),
]


@pytest.mark.parametrize(("accessor", "form", "index", "value", "error"), NUMBERS)
def test_error_for_a_wrong_number_in_a_buffer_names_the_object(sample, accessor, form, index, value, error):
    change(sample, accessor, form, index, value)

    assert mistakes(embedded(sample).tree, sample.numbers)[0] == [error]


def test_weights_that_do_not_add_up_to_one_warn(sample):
    change(sample, 8, "f", 4, 0.5)

    errors, warnings = mistakes(embedded(sample).tree, sample.numbers)

    assert errors == []
    assert warnings == ["accessor 8 ('WEIGHTS_0' of mesh 'rock', primitive 0): the weights of vertex 1 add up to 0.5, not to 1"]


@pytest.mark.parametrize(("given", "missing"), [("JOINTS_0", "WEIGHTS_0"), ("WEIGHTS_0", "JOINTS_0")])
def test_joints_without_weights_or_weights_without_joints_are_refused(sample, given, missing):
    del sample.tree["meshes"][0]["primitives"][0]["attributes"][missing]

    errors, _ = mistakes(embedded(sample).tree, sample.numbers)

    assert errors == [f"{ROCK}: the primitive has {given}, but no {missing}"]


def test_skin_of_a_mesh_without_joints_warns(sample):
    for key in ("JOINTS_0", "WEIGHTS_0"):
        del sample.tree["meshes"][0]["primitives"][0]["attributes"][key]

    assert mistakes(embedded(sample).tree, sample.numbers) == (
        [],
        [f"{ROCK}: the mesh has a skin, but this primitive has no joints"],
    )


PNG, JPEG = picture(), picture("JPEG")


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (PNG[:-6], f"the PNG is cut off after {len(PNG) - 6} bytes"),
        (PNG[:8], "the PNG is cut off after 8 bytes"),
        (PNG[:8] + PNG[33:], "the PNG is damaged: it does not begin with its header, or has a second header"),
        (JPEG[:-2], f"the JPEG is cut off after {len(JPEG) - 2} bytes"),
        (JPEG[:20], "the JPEG is cut off after 20 bytes"),
        (JPEG[:2] + b"\xff\xe0\0\x04ab" + b"hello", "the JPEG is damaged at byte 8"),
        (JPEG[:2] + b"\xff\xda\0\x02\xff\xd9", "the JPEG is damaged: the segment with the size of the picture is missing"),
    ],
)
def test_truncated_or_damaged_picture_in_a_model_is_an_error(sample, data, error):
    sample = embedded(sample)
    sample.tree["images"][0]["uri"] = data_uri(data)

    assert mistakes(sample.tree, sample.numbers)[0] == [f"image 0: {error}"]


def test_checker_finds_no_mistake_in_a_complete_jpeg(sample):
    sample = embedded(sample)
    sample.tree["images"][0]["uri"] = data_uri(JPEG)

    assert mistakes(sample.tree, sample.numbers) == ([], [])


# ---------------------------------------------------------------------------------------------------------- hostile models


@pytest.mark.parametrize("more", [{}, {"sparse": {"count": 1, "indices": {}, "values": {}}}])
def test_accessor_of_more_than_a_gibibyte_is_refused(more):
    accessor = {"componentType": 5126, "type": "MAT4", "count": 1 << 31, **more}

    errors, _ = mistakes({"asset": {"version": "2.0"}, "accessors": [accessor]})

    assert errors == ["accessor 0: 2,147,483,648 elements ('count') have 137,438,953,472 bytes; the limit is 1,073,741,824"]


def test_model_that_expands_far_beyond_its_files_is_refused(sample, monkeypatch):
    """Every accessor, buffer and image is added to the total, even if several share a file or a view."""
    monkeypatch.setattr("aptui.builders.gltf.data.FREE_EXPANDED_BYTES", 0)
    data = bytes(1000)
    asset = {"asset": {"version": "2.0"}}
    sparse = {"componentType": 5126, "type": "VEC3", "count": 1 << 20, "sparse": {"count": 1, "indices": {}, "values": {}}}
    view = {"bufferView": 0, "componentType": 5126, "type": "SCALAR", "count": 250}
    whole = {"buffers": [{"uri": "a.bin", "byteLength": 1000}], "bufferViews": [{"buffer": 0, "byteLength": 1000}]}
    hostile = [
        {"accessors": [sparse]},
        {"buffers": [{"uri": "a.bin", "byteLength": 1000}]},
        {"images": [{"uri": "a.png"}]},
        {**whole, "accessors": [view]},
    ]

    for tree in hostile:
        name, entries = list(tree.items())[-1]
        repeated = {**asset, **tree, name: entries * 3000 if name != "accessors" or tree is hostile[3] else entries}
        document = parse_document(json.dumps(repeated).encode())
        document.size = 500
        checker = Checker(document, lambda path: data if path == "a.bin" else PNG)
        checker.check()
        assert any("would expand to far more bytes than its files have" in error for error in checker.errors), name


@pytest.mark.parametrize("depth", [900, 100_000])
def test_gltf_whose_json_is_nested_too_deep_is_refused(bench, depth):
    text = '{"asset": {"version": "2.0"}, "materials": [' + '{"a":' * depth + "1" + "}" * depth + "]}"

    response = bench.process(bench.write("a.gltf", text))

    assert response.result is Result.SUCCESS or response.error == "a.gltf: the JSON is nested too deeply"
    assert depth == 900 or response.error


def test_number_with_thousands_of_digits_is_refused(bench):
    text = '{"asset": {"version": "2.0"}, "scene": ' + "1" * 5000 + "}"

    assert bench.fail(bench.write("a.gltf", text)) == f"a.gltf: the number {'1' * 40} is too large"


def test_name_with_half_of_a_surrogate_pair_is_refused(bench, sample):
    sample.tree["nodes"][0]["name"] = "\ud800"

    error = bench.fail(sample.write(bench))

    assert error == r"rock.gltf: a string contains half of a surrogate pair (\ud800 to \udfff)"


def test_animation_times_that_do_not_rise_are_an_error(sample):
    sample = embedded(sample)
    change(sample, 5, "f", 1, 2.0)

    assert (
        f"{WALK}: sampler 0: the times of the input (accessor 5) must not be negative, and each must be later than the "
        "previous time" in mistakes(sample.tree, sample.numbers)[0]
    )


def test_cycle_of_nodes_is_reported(sample):
    sample = embedded(sample)
    sample.tree["nodes"][2]["children"] = [0]

    assert "nodes: 0, 2 are children of each other in a cycle" in mistakes(sample.tree, sample.numbers)[0]


def test_wrong_bounds_of_an_accessor_warn_and_fail_if_strict(bench, sample):
    sample.tree["accessors"][0]["max"] = [1, 2, 0]
    source = sample.write(bench)

    assert bench.build(source)
    assert bench.warnings == [f"rock.gltf: {POSITION}: max[1] is 2, but in the data it is 1"]
    assert bench.fail(source, strict=True) == f"rock.gltf: {POSITION}: max[1] is 2, but in the data it is 1"


def test_bounds_rounded_to_the_precision_of_the_data_are_accepted(sample):
    sample = embedded(sample)
    change(sample, 0, "f", 3, 0.1)
    change(sample, 0, "f", 6, 0.1)
    sample.tree["accessors"][0]["max"] = [0.1, 1, 0]

    assert mistakes(sample.tree, sample.numbers) == ([], [])


def sparse(sample, rows, values):
    """Replace some positions of the sample by a sparse accessor."""
    numbers = struct.pack(f"<{len(rows)}H", *rows).ljust(4, b"\0") + struct.pack(f"<{len(values)}f", *values)
    sample.tree["bufferViews"].append({"buffer": 0, "byteOffset": len(sample.numbers), "byteLength": len(rows) * 2})
    sample.tree["bufferViews"].append({"buffer": 0, "byteOffset": len(sample.numbers) + 4, "byteLength": len(values) * 4})
    sample.tree["accessors"][0]["sparse"] = {
        "count": len(rows),
        "indices": {"bufferView": 9, "componentType": 5123},
        "values": {"bufferView": 10},
    }
    sample.numbers += numbers
    sample.tree["buffers"][0]["byteLength"] = len(sample.numbers)


def test_sparse_accessor_values_are_applied(sample):
    sample = embedded(sample)
    sparse(sample, [1, 3], [9.0, 0, 0, 0, 1, 0])

    assert mistakes(sample.tree, sample.numbers) == ([], [f"{POSITION}: max[0] is 1, but in the data it is 9"])


@pytest.mark.parametrize("rows", [[3, 1], [1, 1], [1, 4]])
def test_sparse_indices_that_do_not_rise_or_are_too_large_are_refused(sample, rows):
    sample = embedded(sample)
    sparse(sample, rows, [0.0] * 6)

    assert (
        mistakes(sample.tree, sample.numbers)[0][0]
        == f"{POSITION}: each sparse index must be larger than the previous index, and less than 4"
    )


def test_all_mistakes_of_a_model_are_logged_and_the_first_is_the_error(bench, sample):
    sample.tree["accessors"][0]["count"] = 5
    sample.tree["nodes"][0]["rotation"] = 1

    error = bench.fail(sample.write(bench))

    assert error == f"rock.gltf: {POSITION}: the elements end at byte 60 of buffer view 0, which has only 48 bytes (and 2 more)"
    assert [text.partition(": ")[2].partition(":")[0] for text in bench.errors] == [ROCK, "node 0 ('root')"]


def test_randomly_changed_document_is_packed_or_refused_with_a_known_error():
    chance = random.Random(3)
    values = [None, True, -1, 0, 2, 1e9, 1.5, "x", [], [1], {}, {"index": 0}, {"bufferView": 0}]

    def spoil(tree):
        while isinstance(tree, dict | list) and tree:
            key = chance.choice(list(tree) if isinstance(tree, dict) else range(len(tree)))
            if not isinstance(tree[key], dict | list) or chance.random() < 0.3:
                tree[key] = copy.deepcopy(chance.choice(values))
                return
            tree = tree[key]

    accepted = 0
    for _ in range(800):
        sample = embedded(Sample())
        spoil(sample.tree)
        try:
            document = parse_document(glb(sample.tree, sample.numbers))
            list(file_uris(document.tree))
            checker = Checker(document, lambda _path: b"")
            checker.check()
        except BrokenGltfError:
            continue
        if not checker.errors:
            accepted += 1
            try:
                document = document if obstacle(document) else rewrite(document, checker, quantises=chance.random() < 0.5)
            except BrokenGltfError:
                continue
            again = Checker(parse_document(pack_glb(document, lambda _path: b"", embeds_images=True)), lambda _path: b"")
            again.check()
            assert not again.errors

    assert accepted > 10


def test_primitive_without_the_texture_coordinates_of_its_material_warns():
    sample = Sample()
    sample.tree["materials"][0]["normalTexture"] = {"index": 0, "texCoord": 1}

    _, warnings = mistakes(embedded(sample).tree, sample.numbers)

    assert warnings == ["mesh 0 ('rock'), primitive 0: the primitive has no TEXCOORD_1, which its material needs"]


def test_material_texture_without_an_index_is_an_error():
    sample = Sample()
    sample.tree["materials"][0]["normalTexture"] = {"scale": 1}

    assert mistakes(embedded(sample).tree, sample.numbers)[0] == ["material 0: normalTexture has no index"]


def test_error_about_a_huge_number_is_short():
    sample = Sample()
    sample.tree["bufferViews"][0]["byteOffset"] = 1e308

    assert mistakes(embedded(sample).tree, sample.numbers)[0][0] == "buffer view 0: 'byteOffset' is 1e+308, which is too large"
