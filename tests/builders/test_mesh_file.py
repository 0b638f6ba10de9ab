import io
import struct
import sys
import tracemalloc

import numpy as np
import pytest
from gltf_sample import read_glb
from PIL import Image
from PIL.PngImagePlugin import PngImageFile

from aptui.builders.common import SourceError
from aptui.builders.files import obj_text
from aptui.builders.files.mesh_file import MOST_MATERIALS
from aptui.builders.files.obj_text import (
    list_libraries,
    list_textures,
    material_names,
    outline_obj,
    split_concave_faces,
    with_textures,
)
from aptui.builders.gltf.check import Checker
from aptui.builders.gltf.file import parse_document
from aptui.builders.model_builder import GLB_ASSET_TYPE, ModelBuilder
from aptui.sdk import Result

BUILDER = ModelBuilder

SQUARE = "v 0 0 0\nv 2 0 0\nv 2 1 0\nv 0 1 0\nvt 0 0\nvt 1 0\nvt 1 1\nvt 0 1\n"
TEXTURED = f"mtllib mat/a.mtl\n{SQUARE}usemtl wood\nf 1/1 2/2 3/3 4/4\n"
ROOF = "v 0 0 0\nv 1 0 0\nv 0 0 1\nv 0 1 0\nf 1 3 2\nf 1 2 4\n"
PLY = (
    "ply\nformat ascii 1.0\nelement vertex 3\nproperty float x\nproperty float y\nproperty float z\nelement face 1\n"
    "property list uchar int vertex_indices\nend_header\n"
)
CORNERS = "0 0 0\n1 0 0\n0 1 0\n"
OFF = f"OFF\n3 1 0\n{CORNERS}3 0 1 2\n"


def stl(count=2):
    triangle = struct.pack("<12fH", 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0)
    return bytes(80) + struct.pack("<I", count) + triangle * count


def picture():
    stream = io.BytesIO()
    Image.new("RGB", (2, 2), (9, 8, 7)).save(stream, format="PNG")
    return stream.getvalue()


def model(bench, source, **params):
    """Return (tree, {attribute: rows}) of the first primitive of a product, which must be valid glTF."""
    ((_, data),) = bench.build(source, **params).items()
    checker = Checker(parse_document(data), lambda _path: b"")
    checker.check()
    assert (checker.errors, checker.warnings) == ([], [])
    tree, _ = read_glb(data)
    primitive = tree["meshes"][0]["primitives"][0]
    indices = {**primitive["attributes"], "indices": primitive["indices"]}
    return tree, {name: [tuple(row) for row in checker.array_of(index).tolist()] for name, index in indices.items()}


def colours(bench, source, **params):
    """Return [((x, y, z), (red, green, blue, alpha))] of a product's vertices."""
    _, rows = model(bench, source, **params)
    return list(zip(rows["POSITION"], rows["COLOR_0"], strict=True))


FACES = (
    "ply\nformat ascii 1.0\nelement vertex 4\nproperty float x\nproperty float y\nproperty float z\nelement face 2\n"
    "property list uchar int vertex_indices\nproperty uchar red\nproperty uchar green\nproperty uchar blue\nend_header\n"
    "0 0 0\n1 0 0\n0 1 0\n1 1 0\n3 0 1 2 255 0 0\n3 1 3 2 0 0 255\n"
)


def test_faces_of_a_ply_keep_their_colours(bench, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)

    found = colours(bench, bench.write("a.ply", FACES))

    assert [colour for _, colour in found] == [(255, 0, 0, 255)] * 3 + [(0, 0, 255, 255)] * 3
    assert [place for place, _ in found][3:] == [(1, 0, 0), (1, 1, 0), (0, 1, 0)]


def test_vertices_of_different_colours_are_not_merged(bench):
    head = PLY.replace("vertex 3", "vertex 4").replace("element face", "property uchar red\nelement face")
    head = head.replace("property uchar red\n", "property uchar red\nproperty uchar green\nproperty uchar blue\n")
    body = "0 0 0 255 0 0\n0 0 0 255 0 0\n1 0 0 255 0 0\n0 0 0 0 255 0\n3 0 2 3\n"

    found = colours(bench, bench.write("a.ply", head + body))

    assert found == [
        ((0, 0, 0), (255, 0, 0, 255)),
        ((1, 0, 0), (255, 0, 0, 255)),
        ((0, 0, 0), (0, 255, 0, 255)),
    ]


@pytest.mark.parametrize("corner", ["1_0", "1/2/3/4", "/1", "one", "1/x"])
def test_invalid_corner_of_a_face_fails_with_its_line(bench, corner):
    text = f"{SQUARE}f 1 2 {corner}\n"

    assert bench.fail(bench.write("a.obj", text)).startswith(
        f"a.obj:{text.count(chr(10))}: {corner!r} is not a valid corner of a face; write corners like 1, 1/2 or 1/2/3"
    )


def test_error_names_a_missing_package_that_trimesh_needs(bench, monkeypatch):
    def load_scene(*_arguments, **_options):
        raise ModuleNotFoundError("No module named 'scipy'", name="scipy")

    monkeypatch.setattr("trimesh.load_scene", load_scene)

    assert (
        bench.fail(bench.write("a.off", OFF))
        == "a.off: the job needs the Python package 'scipy', which is not installed; run pip install scipy"
    )


def test_texture_shared_by_many_materials_is_decoded_at_most_a_few_times(bench, monkeypatch):
    count = 40
    corners = "v 0 0 0\nv 1 0 0\nv 0 1 0\nvt 0 0\n"
    faces = "".join(f"usemtl m{number}\nf 1/1 2/1 3/1\n" for number in range(count))
    bench.write("a.mtl", "".join(f"newmtl m{number}\nmap_Kd wood.png\n" for number in range(count)))
    bench.write("wood.png", picture())
    source = bench.write("a.obj", "mtllib a.mtl\n" + corners + faces)
    decoded = []
    load = PngImageFile.load_prepare
    monkeypatch.setattr(PngImageFile, "load_prepare", lambda self: (decoded.append(self), load(self))[1])

    assert bench.build(source)
    assert len(decoded) <= 4


def test_textures_with_too_many_pixels_in_total_fail(bench, monkeypatch):
    monkeypatch.setattr("aptui.builders.files.mesh_file.MOST_TEXTURE_MEGAPIXELS", 0.000007)
    bench.write("mat/a.mtl", "newmtl wood\nmap_Kd a.png\nbump a.png\nmap_Ks b.png\n")
    bench.write("mat/a.png", picture())
    bench.write("mat/b.png", picture())

    assert "pixels together" in bench.fail(bench.write("a.obj", TEXTURED))


def test_model_with_too_many_materials_fails(bench):
    text = SQUARE + "".join(f"usemtl m{number}\nf 1 2 3\n" for number in range(MOST_MATERIALS + 1))

    assert bench.fail(bench.write("a.obj", text)) == "a.obj: the model uses 4,097 materials; the limit is 4,096"


@pytest.mark.parametrize(
    ("name", "data", "error"),
    [
        (
            "a.ply",
            PLY.replace("vertex 3", "vertex 3000000000") + CORNERS,
            "the header declares 3,000,000,000 elements of 'vertex', but the file has only ",
        ),
        (
            "a.ply",
            PLY.replace("element face", "element dust 9999999999\nelement face") + CORNERS,
            "of 'dust', but the file has only ",
        ),
        (
            "a.off",
            "OFF\n4000000000 4000000000 0\n0 0 0\n",
            "the header declares 8,000,000,000 lines of vertices and faces, but the file has 1",
        ),
        ("a.off", "hello", "a.off:1: the file does not begin with 'OFF' and the numbers of vertices and faces"),
        ("a.off", "OFF\n", "a.off:1: the file does not begin with 'OFF' and the numbers of vertices and faces"),
        ("a.off", "OFF\n1 1 0\nx y z\n3 0 0 0\n", "a.off:3: 'vertex' has 'x', which is not a number"),
    ],
)
def test_model_with_missing_data_fails_with_plain_message(bench, name, data, error):
    assert error in bench.fail(bench.write(name, data))


def test_a_textured_model_becomes_one_glb(bench):
    bench.write("art/mat/a.mtl", "newmtl wood\nmap_Kd ../../tex/wood.png\n")
    bench.write("tex/wood.png", picture())
    source = bench.write("art/Crate.obj", TEXTURED)

    tree, rows = model(bench, source)

    (product,) = bench.process(source).products
    assert (product.path, product.sub_id, product.asset_type) == ("Crate.glb", 0, GLB_ASSET_TYPE)
    assert sorted(rows["POSITION"]) == [(0, 0, 0), (0, 1, 0), (2, 0, 0), (2, 1, 0)]
    assert len(rows["indices"]) == 6
    assert "TEXCOORD_0" in rows
    assert "NORMAL" not in rows
    assert tree["meshes"][0]["name"] == "Crate"
    assert len(tree["images"]) == 1
    assert bench.warnings == []


@pytest.mark.parametrize(
    ("source", "data"),
    [
        ("a.STL", stl()),
        (
            "a.stl",
            "solid x\nfacet normal 0 0 1\nouter loop\nvertex 0 0 0\nvertex 1 0 0\nvertex 0 1 0\nendloop\nendfacet\nendsolid x\n",
        ),
    ]
    + [("a.ply", PLY + CORNERS + "3 0 1 2\n"), ("a.off", OFF), ("a.obj", f"{SQUARE}f 1 2 3".encode("utf-16"))],
)
def test_model_of_every_mesh_format_becomes_triangles(bench, source, data):
    _, rows = model(bench, bench.write(source, data))

    assert len(rows["indices"]) in (3, 6)
    assert len(rows["POSITION"]) == 3


def test_scale_and_up_axis_move_the_vertices(bench):
    _, rows = model(bench, bench.write("a.obj", "v 0 0 0\nv 1 0 0\nv 0 0 3\nvn 0 0 1\nf 1//1 2//1 3//1\n"), scale=2, up_axis="z")

    assert set(rows["POSITION"]) == {(0, 0, 0), (2, 0, 0), (0, 6, 0)}
    assert set(rows["NORMAL"]) == {(0, 1, 0)}


def test_equal_vertices_are_merged_by_default(bench):
    source = bench.write("a.stl", stl())

    assert len(model(bench, source)[1]["POSITION"]) == 3
    assert len(model(bench, source, merge_vertices=False, optimise=False)[1]["POSITION"]) == 6


@pytest.mark.parametrize("size", [1e-30, 1e-9, 1.0, 1e15])
@pytest.mark.parametrize("colour", ["", " 1 0 0"])
def test_vertices_are_merged_by_a_share_of_the_size_of_the_model(bench, size, colour):
    places = [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 0, 0), (1, 1 + 1e-10, 0), (0, 1, 0)]
    text = "".join(f"v {x * size} {y * size} {z * size}{colour}\n" for x, y, z in places) + "f 1 2 3\nf 4 5 6\n"

    found = model(bench, bench.write("a.obj", text))[1]["POSITION"]

    assert len(found) == 4
    assert max(map(max, found)) == pytest.approx(size)


def test_merged_vertices_keep_their_normals(bench):
    obj = f"{SQUARE}v 0 0 0\nvn 0 0 1\nvn 0 0 1\nf 1//1 2//1 3//1\nf 5//2 3//1 4//2\n"
    normals = "property float z\nproperty float nx\nproperty float ny\nproperty float nz\nproperty uchar red\n"
    normals += "property uchar green\nproperty uchar blue\n"
    ply = PLY.replace("vertex 3", "vertex 4").replace("face 1", "face 2").replace("property float z\n", normals)
    ply += "0 0 0 0 0 1 9 9 9\n1 0 0 0 0 1 9 9 9\n0 1 0 0 0 1 9 9 9\n0 0 0 0 0 1 9 9 9\n3 0 1 2\n3 3 1 2\n"

    for source, count in ((bench.write("a.obj", obj), 4), (bench.write("a.ply", ply), 3)):
        assert model(bench, source)[1]["NORMAL"] == [(0, 0, 1)] * count


def test_normals_parameter_keeps_or_computes_or_omits_normals(bench):
    given = bench.write("a.obj", f"{SQUARE}vn 0 1 0\nf 1//1 2//1 3//1\n")
    roof = bench.write("b.obj", ROOF)

    assert set(model(bench, given)[1]["NORMAL"]) == {(0, 1, 0)}
    assert set(model(bench, given, normals="smooth")[1]["NORMAL"]) == {(0, 0, 1)}
    assert "NORMAL" not in model(bench, given, normals="none")[1]
    assert "NORMAL" not in model(bench, roof)[1]
    smooth = model(bench, roof, normals="smooth")[1]
    shared = smooth["NORMAL"][smooth["POSITION"].index((0, 0, 0))]
    assert shared == pytest.approx((0, 0.5**0.5, 0.5**0.5))


@pytest.mark.real
def test_equal_sources_give_equal_bytes_across_processes(bench, made_elsewhere, digests_of):
    bench.write("mat/a.mtl", "newmtl wood\nmap_Kd w.png\nnewmtl red\nKd 1 0 0\n")
    bench.write("mat/w.png", picture())
    source = bench.write("a.obj", TEXTURED + "usemtl red\nf 1 2 3\nf 4 1 2\n")

    first = bench.build(source, normals="smooth")

    assert bench.build(source, normals="smooth") == first
    assert made_elsewhere(bench, source, normals="smooth") == digests_of(first)
    assert str(bench.folder).encode() not in first["a.glb"]


# ------------------------------------------------------------------------------------------------------------ dependencies


def test_material_files_and_textures_are_dependencies_even_if_missing(bench):
    bench.write("art/mat/a.mtl", "newmtl wood\nmap_Kd -clamp on ..\\t\\my wood.png\nbump /n.png\n")
    source = bench.write("art/a.obj", "mtllib mat/a.mtl none.mtl\n" + SQUARE)

    assert bench.dependencies(source) == ["art/mat/a.mtl", "art/t/my wood.png", "art/none.mtl"]


def test_error_for_a_path_outside_the_project_names_the_file_with_the_path(bench):
    (bench.folder / "key").write_bytes(b"newmtl canary\n")
    outside = "is outside the project's scan folders"

    assert (
        bench.fail(bench.write("a.obj", "mtllib ../key\n" + SQUARE + "f 1 2 3\n"))
        == f"a.obj: a.obj names '../key', which {outside}"
    )
    bench.write("b.mtl", "newmtl wood\nmap_Kd ../key\n")
    assert (
        bench.fail(bench.write("b.obj", "mtllib b.mtl\n" + SQUARE + "f 1 2 3\n")) == f"b.obj: b.mtl names '../key', which {outside}"
    )
    ply = PLY.replace("element face", "comment TextureFile ../key\nelement face")
    assert bench.fail(bench.write("c.ply", ply)) == f"c.ply: c.ply names '../key', which {outside}"


@pytest.mark.parametrize("kind", ["obj", "ply"])
def test_postscript_file_as_a_texture_starts_no_program(bench, tmp_path, monkeypatch, kind):
    canary = tmp_path / "canary"
    (tmp_path / "bin").mkdir()
    for name in ("gs", "gswin64c", "gswin32c"):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\ntouch {canary}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    bench.write("t.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n%%EOF\n")
    bench.write("a.mtl", "newmtl wood\nmap_Kd t.png\n")
    text = (
        "mtllib a.mtl\nusemtl wood\n" + SQUARE + "f 1 2 3\n"
        if kind == "obj"
        else PLY.replace("element f", "comment TextureFile t.png\nelement f")
    )

    bench.process(bench.write(f"a.{kind}", text))

    assert not canary.exists()


def test_a_texture_of_too_many_pixels_is_not_decoded(bench):
    from io import BytesIO

    from PIL import Image

    stream = BytesIO()
    Image.new("1", (9600, 9600)).save(stream, "PNG")
    bench.write("t.png", stream.getvalue())
    bench.write("a.mtl", "newmtl wood\nmap_Kd t.png\n")

    bench.build(bench.write("a.obj", "mtllib a.mtl\nusemtl wood\n" + SQUARE + "f 1 2 3\n"))

    assert any("9600x9600 are more than 64 million" in text for text in bench.warnings)


def test_texture_named_by_a_ply_is_a_dependency(bench):
    source = bench.write("art/a.ply", PLY.replace("element face", "comment TextureFile my wood.png\nelement face"))

    assert bench.dependencies(source) == ["art/my wood.png"]
    assert bench.dependencies(bench.write("a.stl", stl())) == []


def test_missing_or_damaged_file_that_a_model_names_gives_a_warning(bench):
    source = bench.write("a.obj", TEXTURED.replace("wood", "oak").replace("mat/a.mtl", "mat/a.mtl gone.mtl"))
    bench.write("mat/a.mtl", "newmtl wood\nmap_Kd gone.png\nbump bad.png\n")
    bench.write("mat/bad.png", b"\x89PNG\r\n\x1a\n")

    assert bench.build(source)
    assert bench.warnings == [
        "mat/a.mtl: a texture cannot be used: the file 'mat/gone.png' is missing",
        "mat/a.mtl: the texture 'mat/bad.png' cannot be used: damaged PNG: the file ends too early",
        "mat/a.mtl: pictures of bump are left out; save the model as glTF to keep them",
        "a.obj: a material file cannot be used: the file 'gone.mtl' is missing",
    ]
    bench.lines.clear()
    assert bench.build(bench.write("b.obj", TEXTURED.replace("wood", "oak")))
    assert "b.obj:10: material 'oak' is not defined in any of the model's material files" in bench.warnings


@pytest.mark.parametrize(("name", "kind"), [("cut.png", "PNG"), ("deep.tif", "TIFF")])
@pytest.mark.parametrize("source", ["a.obj", "a.ply"])
def test_model_is_built_without_a_texture_that_cannot_be_decoded(bench, source, name, kind):
    stream = io.BytesIO()
    Image.new("F" if kind == "TIFF" else "RGB", (40, 40), 9).save(stream, format=kind)
    bench.write(name, stream.getvalue()[: -20 if kind == "PNG" else None])
    bench.write("mat/a.mtl", f"newmtl wood\nmap_Kd ../{name}\n")
    vertices = "0 0 0 0 0\n1 0 0 1 0\n0 1 0 1 1\n"
    textured_ply = PLY.replace("element face", f"property float s\nproperty float t\ncomment TextureFile {name}\nelement face")
    bench.write(source, TEXTURED if source == "a.obj" else textured_ply + vertices + "3 0 1 2\n")

    bench.build(source)

    assert any(f"the texture '{name}' cannot be used: " in text for text in bench.warnings)


def test_texture_in_a_mode_that_png_does_not_have_becomes_rgb(bench):
    stream = io.BytesIO()
    Image.new("CMYK", (2, 2)).save(stream, format="TIFF")
    bench.write("mat/wood.tif", stream.getvalue())
    bench.write("mat/a.mtl", "newmtl wood\nmap_Kd wood.tif\n")

    ((_, data),) = bench.build(bench.write("a.obj", TEXTURED)).items()

    assert read_glb(data)[0]["images"][0]["mimeType"] == "image/png"
    assert bench.warnings == []


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("Kd nan 0 0", "has 'nan', which is not a number"),
        ("Kd 1 inf 0", "has 'inf', which is not a number"),
        ("Ka 1 0 red", "has 'red', which is not a number"),
        ("Ns nan", "has 'nan', which is not a number"),
        ("Kd 0.5", "needs 3 numbers, but has 1"),
    ],
)
def test_colour_of_a_material_that_is_not_a_number_is_left_out_with_a_warning(bench, line, wrong):
    bench.write("mat/a.mtl", f"newmtl wood\n{line}\nKs spectral a.rfl\n")

    bench.build(bench.write("a.obj", TEXTURED))

    assert bench.warnings[0] == f"mat/a.mtl:2: '{line[:2]}' {wrong}; the line is left out"


def test_colours_of_an_off_are_left_out_with_a_warning(bench):
    bench.build(bench.write("a.off", OFF.replace("3 0 1 2", "3 0 1 2 255 0 0")))

    assert bench.warnings == ["a.off: the colours of an OFF are not supported and are left out; save the model as PLY"]


def test_obj_with_the_line_ends_of_old_macs_is_read(bench):
    assert bench.build(bench.write("a.obj", (SQUARE + "f 1 2 3\n").replace("\n", "\r")))


# ----------------------------------------------------------------------------------------------------------- broken models


BROKEN = [
    ("a.obj", "", "a.obj: the file is empty"),
    ("a.obj", SQUARE, "a.obj: the model has no faces"),
    ("a.obj", SQUARE + "f 1 2 9\n", "a.obj:9: the face refers to vertex 9, but the file has only 4 vertices"),
    ("a.obj", "v 0 0\n", "a.obj:1: 'v' needs 3 numbers, but has 2"),
    ("a.stl", stl()[:-1], "a.stl: the file is cut off: it needs 184 bytes for 2 triangles, but has 183"),
    ("a.stl", bytes(10), "a.stl: the file is cut off: it needs 84 bytes for 0 triangles, but has 10"),
    ("a.stl", bytes(100), "a.stl: the model has no triangles"),
    ("a.stl", "solid x\nfacet normal 0 0 1\n", "a.stl:2: the file is cut off: it does not end with 'endsolid'"),
    ("a.ply", "plx", "a.ply:1: the file does not begin with 'ply'"),
    ("a.ply", "ply\nformat ascii 1.0\n", "a.ply: the header does not end with 'end_header'"),
    ("a.ply", PLY.replace("face 1", "face 0") + CORNERS, "a.ply: the model has no triangles"),
    ("a.ply", PLY + CORNERS, "a.ply: "),
    ("a.ply", PLY + CORNERS + "3 0 1 7\n", "a.ply: face 0 refers to a vertex that does not exist; the model has 3 vertices"),
    ("a.ply", PLY + CORNERS.replace("1", "nan", 1) + "3 0 1 2\n", "a.ply: vertex 1 has a coordinate that is not a finite number"),
    ("a.off", "OFF\n3 1 0\n0 0 0\n", "a.off: "),
    ("a.off", "OOPS", "a.off:1: the file does not begin with "),
    ("a.off", OFF.replace("1 0 0", "1 x 0"), "a.off:4: 'vertex' has 'x', which is not a number"),
    ("a.off", OFF.replace("1 0 0", "1 0"), "a.off:4: 'vertex' needs 3 numbers, but has 2"),
    ("a.off", OFF.replace("3 0 1 2", "9 0 1 2"), "a.off:6: the face should have 9 corners, but the line has only 3"),
    ("a.off", OFF.replace("3 0 1 2", "3 0 1 3"), "a.off:6: the face refers to vertex 3, but the vertices are numbered from 0 to 2"),
    ("a.off", OFF.replace("3 0 1 2", "-1 0 1 2"), "a.off:6: '-1' is not a number of corners"),
    ("a.stl", "solid\nfacet\nvertex 0 0 x\nendsolid", "a.stl:3: 'vertex' has 'x', which is not a number"),
    ("a.obj", "v 1e39 0 0\n" + SQUARE + "f 1 2 3\n", "a.obj: vertex 0 has a coordinate that is too large for a 32-bit number"),
    (
        "a.obj",
        SQUARE.replace("vt 0 0", "vt 1e39 0") + "f 1/1 2/2 3/3\n",
        "a.obj: vertex 0 has a texture coordinate that is too large for a 32-bit number",
    ),
    ("a.obj", "v 0 0 " + "x" * 5000, "a.obj:1: 'v' has 'xxx"),
    ("a.xyzzy", "text", "a.xyzzy: the installed version of trimesh cannot read .xyzzy files"),
]


@pytest.mark.parametrize(("source", "data", "error"), BROKEN)
def test_error_for_a_broken_model_names_the_model(bench, source, data, error):
    found = bench.fail(bench.write(source, data))

    assert found.startswith(error)
    assert found != error or not error.endswith(": ")
    assert len(found) < 400


def test_missing_library_is_reported_with_its_install_command(bench, monkeypatch):
    monkeypatch.setitem(sys.modules, "trimesh", None)

    assert (
        bench.fail(bench.write("a.off", OFF))
        == "a.off: the job needs the Python package 'trimesh', which is not installed; run pip install trimesh"
    )


def test_parameters_of_each_platform_are_validated(bench):
    source = bench.write("a.off", OFF)

    assert bench.analyse(source, {"scale": 0.01}, {"server": {"normals": "none"}}).result is Result.SUCCESS
    assert "parameter 'scale' must be a number" in bench.analyse(source, {}, {"server": {"scale": "2"}}).error


def test_triangle_count_of_a_model_is_recorded_with_its_product(bench):
    (product,) = bench.process(bench.write("a.obj", ROOF)).products

    assert product.facts == {"triangles": 2, "format": "glb"}


# ---------------------------------------------------------------------------------------------------------------------- OBJ
CUBE = (
    "mtllib a.mtl\nv 0 0 0\nv 1 0 0 # corner\nv 1 1 0 1.0\nvt 0 0\nvn 0 0 1\nusemtl red brick\nf 1/1/1 2/1/1 3//1\n"
    "f -1 -2 -3 # back\n"
)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("Kd 1 0 0.2 # red\nNs 30", {"baseColorFactor": [1, 0, 0.2, 1], "roughnessFactor": 0.5}),
        ("Kd 1 1 1\nd 0.4\nNs -2", {"baseColorFactor": [1, 1, 1, 0.4], "roughnessFactor": 1, "alphaMode": "BLEND"}),
        ("Kd 0 0 0\nTr 0.8\nNs 30", {"baseColorFactor": [0, 0, 0, 0.2], "roughnessFactor": 0.5, "alphaMode": "BLEND"}),
        ("Tr 1\nNs 30", {"baseColorFactor": [1, 1, 1, 1], "roughnessFactor": 0.5}),
        (
            "d 0\nNs 30\nKe 0.5 2 0 # light",
            {"baseColorFactor": [1, 1, 1, 1], "roughnessFactor": 0.5, "emissiveFactor": [0.5, 1, 0]},
        ),
        ("Ke xyz 1 1 1\nd spectral a\nNs 30", {"baseColorFactor": [1, 1, 1, 1], "roughnessFactor": 0.5}),
        ("map_Kd a.png\nNs 30", {"baseColorFactor": [1, 1, 1, 1], "roughnessFactor": 0.5, "baseColorTexture": {"index": 0}}),
    ],
)
def test_material_of_an_obj_is_not_metallic_and_keeps_its_name_colour_and_opacity(bench, lines, expected):
    bench.write("mat/a.mtl", f"newmtl wood\n{lines}\n")
    bench.write("mat/a.png", picture())

    tree, _ = model(bench, bench.write("a.obj", TEXTURED))

    (material,) = tree["materials"]
    made = {**material.pop("pbrMetallicRoughness"), **material}
    assert made == {**expected, "name": "wood", "metallicFactor": 0, "doubleSided": False}


@pytest.mark.parametrize("turn", [(0, 1, 2), (1, 2, 0), (2, 0, 1), (1, 0, 2)])
@pytest.mark.parametrize(
    ("corners", "area"),
    [
        ([(1, 2), (0, 2), (0, 0), (2, 0), (2, 1), (1, 1)], 3),
        ([(2, 0), (0.5, 0.5), (0, 2), (0, 0)], 1),
        ([(0, 0), (4, 0), (4, 4), (0, 4), (0, 0), (1, 1), (1, 3), (3, 3), (3, 1), (1, 1)], 12),
        ([(0, 0), (1, 0), (2, 0), (2, 2), (1, 1), (0, 2)], 3),
        ([(0, 0), (2, 0), (2, 1), (0, 1)], 2),
    ],
)
def test_concave_face_of_an_obj_covers_only_its_area(bench, corners, area, turn):
    places = [tuple((x * 1e-3, y * 1e-3, 5.0)[axis] for axis in turn) for x, y in corners]
    text = "".join(f"v {x} {y} {z} # place\nvt {x} {y} # chart\n" for x, y, z in places)
    first, *others = (f"{number}/{number}" for number in range(-len(corners), 0))

    _, rows = model(bench, bench.write("a.obj", f"{text}f {first} \\\n{' '.join(others)} # concave\n"))

    found = np.array(rows["POSITION"])[[each for (each,) in rows["indices"]]].reshape(-1, 3, 3)
    normals = np.cross(found[:, 1] - found[:, 0], found[:, 2] - found[:, 0]) * 1e6 / 2
    assert np.linalg.norm(normals, axis=1).sum() == pytest.approx(area, rel=1e-3)
    assert np.linalg.norm(normals.sum(axis=0)) == pytest.approx(area, rel=1e-3)


def test_concave_faces_are_split_in_small_groups(monkeypatch):
    monkeypatch.setattr(obj_text, "_CORNERS_AT_ONCE", 8)
    face, square = "v 2 0 0\nv 0.5 0.5 0\nv 0 2 0\nv 0 0 0\nf -4 -3 -2 -1", "v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\nf -4 -3 -2 -1"

    lines = split_concave_faces("\n".join([face, square] * 3)).split("\n")

    assert [line for line in lines if line.startswith("f")] == ["f -1 -4 -3", "f -3 -2 -1", "f -4 -3 -2 -1"] * 3


def test_search_for_concave_faces_needs_little_memory():
    side = 160
    corners = [at for at in range(1, side * (side - 1)) if at % side]
    text = "".join(f"v {at % side} {at // side} 0\n" for at in range(side * side))
    text += "".join(f"f {at} {at + 1} {at + side + 1} {at + side}\n" for at in corners)

    tracemalloc.start()
    try:
        split_concave_faces(text)
        most_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert most_bytes < 25 * len(text)


def test_face_whose_edges_cross_each_other_is_kept(bench):
    text = "v 0 0 0\nv 3 3 0\nv 3 0 0\nv 0 2 0\nf 1 2 3 4\n"

    assert len(model(bench, bench.write("a.obj", text))[1]["indices"]) == 6


def test_mesh_without_a_material_is_white_and_has_no_picture(bench):
    tree, rows = model(bench, bench.write("a.obj", f"{SQUARE}f 1/1 2/2 3/3 4/4\n"))

    assert "TEXCOORD_0" in rows
    assert not {"images", "textures"} & set(tree)
    assert tree["materials"][0]["pbrMetallicRoughness"]["baseColorFactor"] == [1, 1, 1, 1]


def test_outline_of_an_obj_counts_elements_and_lists_material_names():
    outline = outline_obj(CUBE)

    assert outline.counts == {"v": 3, "vt": 1, "vn": 1}
    assert (outline.face_count, outline.libraries, outline.materials) == (2, ["a.mtl"], {"red brick": 7})


def test_obj_face_may_refer_to_later_vertices_and_span_several_lines():
    assert outline_obj("f 1 2 \\\n3\nv 0 0 0\r\nv 1 0 0\r\nv 1 \\\r\n1 0\r\n").face_count == 1


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("v 1 2\n", 1, "'v' needs 3 numbers, but has 2"),
        ("\n\nv 1 2 x\n", 3, "'v' has 'x', which is not a number"),
        ("v 1 2 nan\n", 1, "'v' has 'nan', which is not a number"),
        ("vn 1 2\n", 1, "'vn' needs 3 numbers, but has 2"),
        ("v 0 0 0\nf 1 1\n", 2, "a face needs at least 3 corners, but this face has 2"),
        ("v 0 0 0\nf 1 1 2\n", 2, "the face refers to vertex 2, but the file has only 1 vertex"),
        ("v 0 0 0\nf 1 1 0\n", 2, "the face refers to vertex 0, but vertices are numbered from 1"),
        ("vt\n", 1, "'vt' needs 1 number, but has 0"),
        (
            "v 0 0 0\nf 1 1 -2\n",
            2,
            "the face refers to vertex -2, counted back from the face, but the file has only 1 vertex before it",
        ),
        ("v 0 0 0\nf 1/1 1 1\n", 2, "the face refers to texture coordinate 1, but the file has only 0 texture coordinates"),
        ("v 0 0 0\nf 1//3 1 1\n", 2, "the face refers to normal 3, but the file has only 0 normals"),
        ("v 0 0 0\nf 1 1 one\n", 2, "'one' is not a valid corner of a face; write corners like 1, 1/2 or 1/2/3"),
        ("v 0 0 0\nf 1/// 1 1\n", 2, "'1///' is not a valid corner of a face; write corners like 1, 1/2 or 1/2/3"),
        ("v 0 0 0\nf 1 \\\n 1 5\n", 2, "the face refers to vertex 5, but the file has only 1 vertex"),
    ],
)
def test_error_for_a_broken_obj_names_the_line(text, line, what):
    with pytest.raises(SourceError) as caught:
        outline_obj(text)

    assert (caught.value.place, str(caught.value)) == (str(line), what)


def test_mtllib_line_may_list_several_names_and_names_with_blanks():
    assert list_libraries("mtllib a.mtl b/c.MTL\n mtllib my old file.mtl\nmtllib odd.mat\n# mtllib no.mtl\n") == [
        "a.mtl",
        "b/c.MTL",
        "my old file.mtl",
        "odd.mat",
    ]


MATERIALS = r"""
newmtl red brick
Kd 1 0 0
map_Kd -s 1 1 1 -o 0.5 tex\wall one.png
map_bump -bm 0.3 -clamp on wall_n.png
refl -type sphere -mm 0 1 sky.png
newmtl plain
# map_Kd none.png
disp wall.png
"""


def test_texture_name_in_an_mtl_is_found_behind_its_options():
    assert list_textures(MATERIALS) == [r"tex\wall one.png", "wall_n.png", "sky.png", "wall.png"]
    assert material_names(MATERIALS) == {"red brick", "plain"}


def test_textures_in_an_mtl_can_be_renamed():
    renamed = with_textures(MATERIALS, str.upper)

    assert r"map_Kd TEX\WALL ONE.PNG" in renamed
    assert "Kd 1 0 0" in renamed
