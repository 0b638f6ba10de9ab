import numpy as np
import pytest
from gltf_sample import Sample, embedded, glb, read_glb

from aptui.builders.gltf.tangents import compute_tangents
from aptui.builders.model_builder import ModelBuilder

BUILDER = ModelBuilder

# The mesh has four bent quads. Their texture is mirrored at the middle row of vertices, and two triangles lie side by side on the
# texture.
POSITIONS = [[0, 0, 0], [1, 0, 0.25], [2, 0, 0], [0, 1, 0], [1, 1, 0.5], [2, 1, 0.25], [0, 2, 0.5], [1, 2, 0], [2, 2, 0]]
NORMALS = [[0, 0, 1], [-0.6, 0, 0.8], [0, 0, 1], [0, -0.6, 0.8], [0, 0, 1], [0.6, 0, 0.8], [0, 0, 1], [0, 0.6, 0.8], [0.8, 0, 0.6]]
COORDINATES = [[0, 0], [0.5, 0], [0, 0.125], [0, 0.5], [0.5, 0.5], [0, 0.75], [0.25, 1], [0.5, 1], [0, 1]]
TRIANGLES = [0, 1, 4, 0, 4, 3, 1, 2, 4, 2, 5, 4, 3, 4, 6, 4, 7, 6, 4, 5, 7, 5, 8, 7]
MIDDLE, MIRRORED = [0.95783, 0.22988, 0.17241, -1], [-0.75119, 0.34396, 0.56339, 1]
EXPECTED = [
    [1, 0, 0, -1], [0.8, 0, 0.6, -1], [1, 0, 0, -1], [1, 0, 0, -1], [1, 0, 0, -1], MIDDLE, [-0.74068, 0.3779, -0.55551, 1],
    [-0.95149, 0.30767, 0, 1], [-0.92556, 0.3786, 0, 1], [-0.95149, 0.30767, 0, 1], MIRRORED, [-0.92556, 0.3786, 0, 1], MIDDLE,
    [1, 0, 0, -1], [1, 0, 0, -1], [1, 0, 0, -1], [0.95783, 0.22988, -0.17241, -1], [1, 0, 0, -1], [-0.92556, 0.3786, 0, 1],
    MIRRORED, [-0.98075, 0.15622, -0.11717, 1], MIRRORED, [-0.6, 0, 0.8, 1], [-0.98075, 0.15622, -0.11717, 1],
]  # fmt: skip
"""Tangents of all corners by mikktspace.c (and by Blender 3.4), with the sign of glTF, whose texture coordinates point down."""


def corners(values):
    return np.array(values, "f4")[TRIANGLES]


def tangents_of(positions=POSITIONS, normals=NORMALS, coordinates=COORDINATES):
    return compute_tangents(corners(positions), corners(normals), corners(coordinates))


def test_tangents_of_all_corners_equal_those_of_the_reference_program():
    found = tangents_of()

    assert found.dtype == np.dtype("<f4")
    assert found == pytest.approx(np.array(EXPECTED), abs=2e-5)


def test_triangle_without_texture_area_gets_tangents_perpendicular_to_its_normals():
    found = tangents_of(coordinates=[[0.5, 0.5]] * 9)

    assert np.linalg.norm(found[:, :3], axis=1) == pytest.approx(np.ones(24), abs=1e-6)
    assert (found[:, :3] * corners(NORMALS)).sum(axis=1) == pytest.approx(np.zeros(24), abs=1e-6)
    assert set(found[:, 3].tolist()) == {1}


def test_triangle_without_area_gets_the_tangents_of_its_vertices():
    flat = [0, 1, 1]
    positions, normals, coordinates = (
        np.vstack([corners(each), np.array(each, "f4")[flat]]) for each in (POSITIONS, NORMALS, COORDINATES)
    )

    found = compute_tangents(positions, normals, coordinates)

    assert found[:24].tolist() == tangents_of().tolist()
    assert found[24:].tolist() == [found[0].tolist(), found[1].tolist(), found[1].tolist()]


def test_third_triangle_at_a_shared_edge_gets_separate_tangents():
    fin = np.array([[0, 0, 0], [1, 1, 0.5], [0, 0, 2]], "f4")
    texture = np.array([[0, 0], [0.5, 0.5], [-1, 0]], "f4")
    normals = np.array([NORMALS[0], NORMALS[4], [1, 0, 0]], "f4")
    whole = [np.vstack(each) for each in ((corners(POSITIONS), fin), (corners(NORMALS), normals), (corners(COORDINATES), texture))]

    found = compute_tangents(*whole)

    assert found[:24] == pytest.approx(np.array(EXPECTED), abs=2e-5)
    assert found[24:].tolist() == compute_tangents(fin, normals, texture).tolist()


# ---------------------------------------------------------------------------------------------- tangents in the model builder


@pytest.fixture
def build(bench):
    """Return a function that builds a model from a glTF sample and returns {attribute: its numbers} of the only mesh."""

    def build(sample, **params):
        data = bench.build(bench.write("rock.glb", glb(sample.tree, sample.numbers)), **params)["rock.glb"]
        tree, chunk = read_glb(data)
        (primitive,) = tree["meshes"][0]["primitives"]
        found = {}
        for name, index in primitive["attributes"].items():
            accessor = tree["accessors"][index]
            view = tree["bufferViews"][accessor["bufferView"]]
            kind = {5126: "<f4", 5120: "<i1", 5122: "<i2", 5123: "<u2", 5121: "<u1"}[accessor["componentType"]]
            width = {"VEC2": 2, "VEC3": 3, "VEC4": 4}[accessor["type"]]
            begin = view.get("byteOffset", 0) + accessor.get("byteOffset", 0)
            rows = [np.frombuffer(chunk, kind, width, begin + at * view["byteStride"]).tolist() for at in range(accessor["count"])]
            found[name] = rows
        return found

    return build


@pytest.fixture
def sample():
    return embedded(Sample())


def with_normal_map(sample, channel=None):
    sample.tree["materials"][0]["normalTexture"] = {"index": 0} if channel is None else {"index": 0, "texCoord": channel}
    return sample


@pytest.mark.parametrize(
    ("has_normal_map", "tangents", "is_added"),
    [(True, "keep", False), (True, "needed", True), (False, "needed", False), (False, "all", True)],
)
def test_tangents_are_added_to_the_meshes_that_the_parameter_selects(build, sample, has_normal_map, tangents, is_added):
    found = build(with_normal_map(sample) if has_normal_map else sample, tangents=tangents)

    assert ("TANGENT" in found) is is_added
    assert set(map(tuple, found.get("TANGENT", []))) == ({(1, 0, 0, -1)} if is_added else set())


def test_tangents_are_computed_from_the_coordinates_of_the_normal_map(build, sample):
    attributes = sample.tree["meshes"][0]["primitives"][0]["attributes"]
    attributes["TEXCOORD_1"] = len(sample.tree["accessors"])
    sample.tree["accessors"].append({**sample.tree["accessors"][2], "bufferView": len(sample.tree["bufferViews"])})
    turned = np.array([[0, 0], [0, 1], [1, 1], [1, 0]], "<f4").tobytes()
    sample.tree["bufferViews"].append({"buffer": 0, "byteOffset": len(sample.numbers), "byteLength": len(turned)})
    sample.numbers += turned
    sample.tree["buffers"][0]["byteLength"] = len(sample.numbers)

    assert build(with_normal_map(sample, 1), tangents="needed")["TANGENT"][0] == [0, 1, 0, 1]


def test_vertex_with_two_tangents_becomes_two_vertices(build, sample):
    kinds = {
        name: at
        for name, at in sample.tree["meshes"][0]["primitives"][0]["attributes"].items()
        if name[:3] in ("POS", "NOR", "TEX")
    }
    sample.tree["meshes"][0]["primitives"][0]["attributes"] = kinds
    del sample.tree["skins"], sample.tree["animations"], sample.tree["nodes"][1]["skin"]
    # The second triangle shows the texture of the first triangle, but mirrored.
    mirrored = np.array([[0, 0], [1, 0], [1, 1], [1, 0]], "<f4").tobytes()
    view = sample.tree["bufferViews"][2]
    sample.numbers = sample.numbers[: view["byteOffset"]] + mirrored + sample.numbers[view["byteOffset"] + len(mirrored) :]

    assert len(build(sample)["POSITION"]) == 4
    found = build(sample, tangents="all")

    assert len(found["POSITION"]) == 6
    assert {row[3] for row in found["TANGENT"]} == {-1, 1}


def test_tangents_of_the_source_are_kept(build, sample):
    given = np.array([[0, 1, 0, 1]] * 4, "<f4").tobytes()
    sample.tree["accessors"].append(
        {"bufferView": len(sample.tree["bufferViews"]), "componentType": 5126, "count": 4, "type": "VEC4"}
    )
    sample.tree["bufferViews"].append({"buffer": 0, "byteOffset": len(sample.numbers), "byteLength": len(given)})
    sample.numbers += given
    sample.tree["buffers"][0]["byteLength"] = len(sample.numbers)
    sample.tree["meshes"][0]["primitives"][0]["attributes"]["TANGENT"] = len(sample.tree["accessors"]) - 1

    assert build(with_normal_map(sample), tangents="all")["TANGENT"] == [[0, 1, 0, 1]] * 4


def test_added_tangents_are_quantised_with_the_other_attributes(build, sample):
    assert build(sample, tangents="all", quantise=True)["TANGENT"] == [[127, 0, 0, -127]] * 4


def test_mesh_without_normals_gets_no_tangents(build, sample):
    del sample.tree["meshes"][0]["primitives"][0]["attributes"]["NORMAL"]

    assert "TANGENT" not in build(sample, tangents="all")


def test_model_that_cannot_be_rewritten_warns_and_gets_no_tangents(bench, sample):
    sample.tree["extensionsUsed"] = ["ACME_gizmo"]

    bench.build(bench.write("rock.glb", glb(sample.tree, sample.numbers)), tangents="needed")

    assert bench.warnings == [
        (
            "rock.glb: the model was packed without optimisation, because the model uses the extension ACME_gizmo, which "
            "may refer to objects by numbers that would change"
        )
    ]
