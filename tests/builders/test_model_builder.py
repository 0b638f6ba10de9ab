import io
import json
import os
import shutil
import sys

import pytest
from disk_project import HOST, Project
from gltf_sample import Sample, data_uri, embedded, glb, mistakes, picture, read_glb
from tools import needs

from aptui.builders.model_builder import GLB_ASSET_TYPE, GLTF_ASSET_TYPE, ModelBuilder, _count
from aptui.config.dirs import data_dir
from aptui.sdk import LoadBehavior

BUILDER = ModelBuilder


@pytest.fixture
def sample():
    return Sample()


# ---------------------------------------------------------------------------------------------------------------- products


def test_a_gltf_becomes_one_glb_with_its_buffer_and_images(bench, sample):
    response = bench.process(sample.write(bench, "art/Rock.gltf"), optimise=False)

    (product,) = response.products
    assert (product.path, product.sub_id, product.asset_type) == ("Rock.glb", 0, GLB_ASSET_TYPE)
    tree, chunk = read_glb((bench.products_dir / "Rock.glb").read_bytes())
    view = tree["bufferViews"][tree["images"][0]["bufferView"]]
    assert tree["images"][0]["mimeType"] == "image/png"
    assert chunk[view["byteOffset"] :][: view["byteLength"]] == picture()
    assert chunk[: len(sample.numbers)] == sample.numbers
    assert tree["buffers"] == [{"byteLength": view["byteOffset"] + view["byteLength"]}]
    assert mistakes(tree, chunk) == ([], [])


def test_images_stay_separate_files_on_request(bench, sample):
    sample.tree["images"][0]["uri"] = "Rock%20face.PNG"
    source = sample.write(bench)
    bench.write("Rock face.PNG", picture())

    tree, chunk = read_glb(bench.build(source, textures="files", optimise=False)["rock.glb"])

    assert tree["images"] == [{"uri": "rock%20face.png"}]
    assert len(chunk) == len(sample.numbers)


@pytest.mark.parametrize("buffer", [{}, {"byteLength": 0}])
def test_empty_buffer_is_left_out_with_a_warning(bench, buffer):
    source = bench.write("a.gltf", json.dumps({"asset": {"version": "2.0"}, "buffers": [buffer]}))

    tree, chunk = read_glb(bench.build(source)["a.glb"])

    assert ("buffers" in tree, chunk) == (False, b"")
    assert bench.warnings[0] == "a.gltf: buffer 0: 'byteLength' is 0, but must be at least 1"


def test_buffers_are_joined_and_equal_images_are_stored_once(bench, sample):
    sample.tree["buffers"].append({"uri": data_uri(b"\x07" * 9), "byteLength": 9})
    sample.tree["bufferViews"].append({"buffer": 1, "byteOffset": 1, "byteLength": 8})
    sample.tree["accessors"].append({"bufferView": 9, "componentType": 5121, "count": 8, "type": "SCALAR"})
    sample.tree["images"].append({"uri": data_uri(picture())})

    tree, chunk = read_glb(bench.build(sample.write(bench), optimise=False)["rock.glb"])

    view = tree["bufferViews"][9]
    assert view["buffer"] == 0
    assert chunk[view["byteOffset"] :][:8] == b"\x07" * 8
    assert tree["images"][0]["bufferView"] == tree["images"][1]["bufferView"]
    assert mistakes(tree, chunk) == ([], [])


def test_fallback_buffer_of_a_compression_extension_keeps_its_buffer_index(bench, sample):
    fallback = {"byteLength": 64, "extensions": {"EXT_meshopt_compression": {"fallback": True}}}
    sample.tree["buffers"].append(fallback)
    compressed = {"buffer": 0, "byteOffset": 0, "byteLength": 48}
    sample.tree["bufferViews"].append({"buffer": 1, "byteLength": 48, "extensions": {"EXT_meshopt_compression": compressed}})
    sample.tree["accessors"].append({"bufferView": 9, "componentType": 5126, "count": 4, "type": "VEC3"})

    tree, chunk = read_glb(bench.build(sample.write(bench))["rock.glb"])

    assert tree["buffers"][1] == fallback
    assert tree["bufferViews"][9] == {"buffer": 1, "byteLength": 48, "extensions": {"EXT_meshopt_compression": compressed}}
    assert mistakes(tree, chunk) == ([], [])


def test_gltf_is_copied_unchanged_if_the_output_parameter_is_copy(bench, sample):
    source = sample.write(bench)

    response = bench.process(source, output="copy")

    assert [(each.path, each.asset_type) for each in response.products] == [("rock.gltf", GLTF_ASSET_TYPE)]
    assert (bench.products_dir / "rock.gltf").read_text() == json.dumps(sample.tree)


def test_product_depends_on_the_files_that_it_still_names(bench, sample):
    source = sample.write(bench, "art/rock.gltf")
    needs = {
        output: [(each.path, each.load) for each in bench.process(source, **params).products[0].path_dependencies]
        for output, params in (("copy", {"output": "copy"}), ("images", {"textures": "files"}), ("one", {}))
    }

    numbers, image = ("art/rock.bin", LoadBehavior.PRE_LOAD), ("art/rock face.png", LoadBehavior.QUEUE_LOAD)
    assert needs == {"copy": [numbers, image], "images": [image], "one": []}


def test_glb_is_copied_unchanged_if_the_output_parameter_is_copy(bench, sample):
    sample = embedded(sample)
    data = glb(sample.tree, sample.numbers)

    assert bench.build(bench.write("a.glb", data), output="copy") == {"a.glb": data}


@pytest.mark.real
def test_equal_sources_give_equal_bytes_across_processes(bench, made_elsewhere, digests_of, sample):
    source = sample.write(bench)

    first = bench.build(source)

    assert bench.build(source) == first
    assert made_elsewhere(bench, source) == digests_of(first)


def test_numbers_and_texts_in_the_json_of_a_model_stay_exact(bench, sample):
    sample.tree["extras"] = {"big": 12345678901234567890, "small": 1e-40, "minus": -0.0, "text": "é\u2028"}

    tree, _ = read_glb(bench.build(sample.write(bench))["rock.glb"])

    assert repr(tree["extras"]) == repr(sample.tree["extras"])


# ------------------------------------------------------------------------------------------------------------ dependencies


def test_files_of_buffers_and_images_are_dependencies(bench, sample):
    sample.tree["buffers"].append({"uri": "../far/b.bin", "byteLength": 1})
    sample.tree["images"] += [
        {"uri": "a\\b%23.png"},
        {"uri": data_uri(b"x")},
        {"uri": "https://example.org/x.png"},
        {"bufferView": 0},
    ]
    source = sample.write(bench, "art/rock.gltf")

    assert bench.dependencies(source) == ["art/rock.bin", "far/b.bin", "art/rock face.png", "art/a/b#.png"]


@pytest.mark.parametrize(
    "uri", ["../../key", "%2e%2e/%2e%2e/key", "..%5c..%5ckey", "x/../../../key", "link", "%2Fetc%2Fpasswd", "/etc/passwd"]
)
@pytest.mark.parametrize("name", ["images", "buffers"])
def test_model_builder_reads_no_file_outside_the_project(bench, uri, name):
    (bench.folder / "key").write_bytes(b"canary" * 8)
    (bench.folder / "assets/art").mkdir()
    (bench.folder / "assets/art/link").symlink_to(bench.folder / "key")
    tree = {"asset": {"version": "2.0"}, name: [{"uri": uri, "byteLength": 8}]}
    source = bench.write("art/a.gltf", json.dumps(tree))

    assert bench.dependencies(source) == []
    error = bench.fail(source)
    assert error.startswith("art/a.gltf: art/a.gltf names '")
    assert error.endswith(("outside the project's scan folders", "out of the project's scan folders"))


def test_uri_with_file_scheme_is_refused(bench):
    tree = {"asset": {"version": "2.0"}, "buffers": [{"uri": "file:///etc/passwd", "byteLength": 8}]}

    assert "is not a file in the project" in bench.fail(bench.write("a.gltf", json.dumps(tree)))


@pytest.mark.parametrize("text", ["{", "[]", '{"images": 3, "buffers": [1, {"uri": 4}]}', "\xff"])
def test_analysis_of_a_broken_source_succeeds_without_dependencies(bench, text):
    assert bench.dependencies(bench.write("a.gltf", text.encode("latin-1"))) == []


@pytest.mark.parametrize(("name", "what"), [("rock.bin", "buffer 0"), ("rock face.png", "image 0")])
def test_error_names_the_missing_file_or_lfs_pointer_that_a_model_needs(bench, sample, name, what):
    source = sample.write(bench)
    (bench.folder / "assets" / name).unlink()

    assert bench.fail(source) == f"rock.gltf: {what}: the file '{name}' is missing"
    bench.write(name, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    assert (
        bench.fail(source)
        == f"rock.gltf: {what}: {name}: the file is only a Git LFS pointer; run `git lfs pull` to download the content"
    )


@pytest.mark.parametrize(("mode", "count"), [(4, 2), (5, 4), (6, 4), (1, 0)])
def test_triangle_count_depends_on_the_primitive_mode(mode, count):
    tree = {"accessors": [{"count": 6}], "meshes": [{"primitives": [{"attributes": {"POSITION": 0}, "mode": mode}]}]}

    assert _count(tree) == (count, 6)


def test_triangle_count_of_a_product_is_computed_from_its_indices(bench, sample):
    (product,) = bench.process(sample.write(bench)).products

    indices = sample.tree["accessors"][sample.tree["meshes"][0]["primitives"][0]["indices"]]
    assert product.facts == {"triangles": indices["count"] // 3, "format": "glb"}


# --------------------------------------------------------------------------------------------- levels of detail, textures

FAKE_GLTFPACK = """#!{python}
import json, struct, sys
words = sys.argv
data = open(words[words.index("-i") + 1], "rb").read()
size = struct.unpack_from("<I", data, 12)[0]
tree = json.loads(data[20 : 20 + size])
for image in tree.get("images", []):
    assert "uri" not in image, "gltfpack would copy or lose a file"
tree["asset"]["extras"] = words[5:]
text = json.dumps(tree).encode()
text += b" " * (-len(text) % 4)
rest = data[20 + size :]
made = struct.pack("<4sIIII", b"glTF", 2, 20 + len(text) + len(rest), len(text), 0x4E4F534A) + text + rest
open(words[words.index("-o") + 1], "wb").write(made)
"""


@pytest.fixture
def gltfpack(tmp_path, monkeypatch):
    """Put a program called gltfpack into PATH that copies the model and notes its arguments."""
    program = tmp_path / "bin/gltfpack"
    program.parent.mkdir()
    program.write_text(FAKE_GLTFPACK.replace("{python}", sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return program


def arguments_of(data):
    tree, _ = read_glb(data)
    return " ".join(tree["asset"].get("extras", []))


@pytest.mark.real
def test_each_level_of_detail_is_a_product(bench, sample, gltfpack):
    made = bench.build(sample.write(bench), lods=[0.5, 0.25], lod_error=0.02)

    assert [(each.path, each.sub_id) for each in bench.products] == [
        ("rock.glb", 0),
        ("rock.lod1.glb", 1 << 16),
        ("rock.lod2.glb", 2 << 16),
    ]
    assert [arguments_of(data) for data in made.values()] == [
        "",
        "-kn -km -ke -kv -si 0.5 -noq -se 0.02",
        "-kn -km -ke -kv -si 0.25 -noq -se 0.02",
    ]
    assert bench.progress == [1 / 3, 2 / 3, 1]


@pytest.mark.real
def test_compressed_model_is_made_by_gltfpack(bench, sample, gltfpack):
    assert arguments_of(bench.build(sample.write(bench), compress=True)["rock.glb"]) == "-kn -km -ke -kv -c"


@pytest.mark.real
def test_gltfpack_without_the_option_to_keep_attributes_is_run_without_it(bench, sample, gltfpack):
    text = gltfpack.read_text().split("\n", 1)
    old = 'import sys\nif "-kv" in sys.argv: raise SystemExit("Unrecognized option -kv")'
    gltfpack.write_text(f"{text[0]}\n{old}\n{text[1]}")

    assert arguments_of(bench.build(sample.write(bench), compress=True)["rock.glb"]) == "-kn -km -ke -c"


@pytest.mark.real
@needs("gltfpack")
def test_level_of_detail_keeps_texture_coordinates_without_a_texture_or_warns(bench):
    text = "v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\nvt 0 0\nvt 1 0\nvt 1 1\nvt 0 1\nf 1/1 2/2 3/3 4/4\n"

    made = bench.build(bench.write("a.obj", text), lods=[0.5])

    tree, _ = read_glb(made["a.lod1.glb"])
    has_coordinates = "TEXCOORD_0" in tree["meshes"][0]["primitives"][0]["attributes"]
    assert has_coordinates or "gltfpack removed TEXCOORD_0" in bench.warnings[0]


def test_levels_of_detail_without_gltfpack_fail_and_name_the_remedy(bench, sample, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    source = sample.write(bench)

    assert (
        bench.fail(source, lods=[0.5])
        == "rock.gltf: 'lods' and 'compress' need the program gltfpack, which was not found; install the package gltfpack"
    )
    assert bench.build(source)


@pytest.mark.real
@pytest.mark.parametrize(
    ("printed", "remedy"),
    [
        ("Unrecognized option -se", "'lod_error' needs gltfpack 0.21 or later, but the installed version is older"),
        (
            "WebAssembly.instantiate(): Out of memory: Cannot allocate Wasm memory for new instance",
            (
                "the gltfpack of npm needs 12 GiB of address space; set memory_limit: 16GiB for this builder, "
                "or install the native program"
            ),
        ),
        ("Error: cannot read", "gltfpack ended with status 1: Error: cannot read"),
    ],
)
def test_failure_of_gltfpack_names_the_remedy(bench, sample, gltfpack, printed, remedy):
    gltfpack.write_text(f"#!{sys.executable}\nraise SystemExit({printed!r})\n")

    assert bench.fail(sample.write(bench), lods=[0.5], lod_error=0.02) == f"rock.gltf: {remedy}"


def test_levels_of_detail_fail_if_gltfpack_would_damage_the_model(bench, sample, gltfpack):
    sample.tree["extensionsUsed"] = ["ACME_doors"]
    source = sample.write(bench)

    error = bench.fail(source, lods=[0.5])
    assert (
        error == "rock.gltf: 'lods' and 'compress' would damage the model, because the model uses the extension ACME_doors, "
        "which may refer to objects by numbers that would change; do not set them for this model"
    )
    assert bench.build(source)


def test_fingerprint_contains_a_program_only_if_the_job_uses_it(bench, sample, gltfpack):
    source = sample.write(bench)

    def fingerprint(**params):
        return bench.analyse(source, params).jobs[0].additional_fingerprint

    plain, before = fingerprint(), fingerprint(lods=[0.5])
    gltfpack.write_text(gltfpack.read_text() + "# a newer one")
    assert (plain, before.partition(" ")[0]) == ("", "gltfpack")
    assert fingerprint() == plain
    assert fingerprint(compress=True) != before
    assert "trimesh" in bench.analyse(bench.write("a.obj", "")).jobs[0].additional_fingerprint


@pytest.mark.real
@pytest.mark.parametrize(
    ("kind", "extension", "media_type"),
    [("ktx2", "KHR_texture_basisu", "image/ktx2"), ("dds", "MSFT_texture_dds", "image/vnd-ms.dds")],
)
def test_textures_refer_to_products_of_the_texture_builder(bench, sample, gltfpack, kind, extension, media_type):
    sample.tree["images"][0]["uri"] = "Rock%20face.PNG"
    source = sample.write(bench, "art/rock.gltf")
    bench.write("art/Rock face.PNG", picture())

    for data in bench.build(source, textures=kind, lods=[0.5]).values():
        tree, _ = read_glb(data)
        assert tree["images"] == [{"uri": f"rock%20face.{kind}", "mimeType": media_type}]
        assert tree["textures"] == [{"sampler": 0, "extensions": {extension: {"source": 0}}}]
        assert tree["extensionsRequired"] == [extension]
    assert [each.path for each in bench.products[1].path_dependencies] == ["art/Rock face.PNG"]


@pytest.mark.parametrize("fallback", [{}, {"source": 0}])
def test_reference_to_a_webp_becomes_a_reference_to_the_product_of_the_texture_builder(bench, sample, fallback):
    sample.tree["images"] = [{"uri": "rock.png"}, {"uri": "rock.webp"}]
    sample.tree["textures"] = [{**fallback, "extensions": {"EXT_texture_webp": {"source": 1}}}]
    sample.tree["extensionsUsed"] = sample.tree["extensionsRequired"] = ["EXT_texture_webp"]
    source = sample.write(bench, "rock.gltf")
    bench.write("rock.png", picture())
    bench.write("rock.webp", picture("WEBP"))

    tree, _ = read_glb(bench.build(source, textures="ktx2", optimise=False)["rock.glb"])

    assert tree["textures"] == [{"extensions": {"KHR_texture_basisu": {"source": 0 if fallback else 1}}}]
    assert tree["extensionsUsed"] == tree["extensionsRequired"] == ["KHR_texture_basisu"]


@pytest.mark.real
@needs("gltfpack")
def test_real_gltfpack_halves_a_model(bench):
    side = 20
    rows = [f"v {x} {(x * y) % 5 / 50} {y}" for y in range(side) for x in range(side)]
    places = [x + y * side for x in range(1, side) for y in range(side - 1)]
    faces = [f"f {at} {at + side} {at + 1}\nf {at + 1} {at + side} {at + side + 1}" for at in places]
    source = bench.write("hill.obj", "\n".join([*rows, *faces]))

    made = bench.build(source, lods=[0.5], compress=True)

    triangles = [each.facts["triangles"] for each in bench.products]
    assert triangles[0] == 2 * len(places)
    assert triangles[1] <= 0.6 * triangles[0]
    tree, _ = read_glb(made["hill.glb"])
    assert "EXT_meshopt_compression" in tree["extensionsRequired"]


def test_product_has_the_same_surface_as_its_source_in_trimesh(bench, sample):
    trimesh = pytest.importorskip("trimesh")
    for key in ("skins", "animations"):
        del sample.tree[key]
    del sample.tree["nodes"][1]["skin"]
    sample.tree["nodes"][1]["translation"] = [5, 0, 0]

    for params in ({"optimise": False}, {}, {"quantise": True}):
        data = bench.build(sample.write(bench), **params)["rock.glb"]
        scene = trimesh.load_scene(io.BytesIO(data), file_type="glb")
        assert scene.to_mesh().area == pytest.approx(1)
        assert scene.bounds.ravel().tolist() == pytest.approx([5, 0, 0, 6, 1, 0], abs=1e-5)


@pytest.mark.real
def test_example_project_builds_levels_of_detail_for_each_platform(tmp_path, gltfpack, sample):
    project = Project(tmp_path / "p", (data_dir() / "config/examples/models/aptui.yaml").read_text(encoding="utf-8"))
    for key in ("images", "textures"):
        del sample.tree[key]
    del sample.tree["materials"][0]["pbrMetallicRoughness"]
    project.write("assets/rock.glb", glb({**sample.tree, "buffers": [{"byteLength": len(sample.numbers)}]}, sample.numbers))

    project.engine_run()

    assert project.errors() == {}
    names = {path.relative_to(project.root / "Cache").as_posix() for path in (project.root / "Cache").glob("*/rock*.glb")}
    assert names >= {f"{platform}/rock{level}.glb" for platform in ("linux", "android") for level in ("", ".lod1", ".lod2")}


TRIANGLE = """<?xml version="1.0"?>
<COLLADA xmlns="http://www.collada.org/2005/11/COLLADASchema" version="1.4.1"><asset><up_axis>Y_UP</up_axis></asset>
<library_images><image id="i"><init_from>face.png</init_from></image></library_images>
<library_effects><effect id="e"><profile_COMMON>
<newparam sid="f"><surface type="2D"><init_from>i</init_from></surface></newparam>
<newparam sid="t"><sampler2D><source>f</source></sampler2D></newparam>
<technique sid="c"><phong><diffuse><texture texture="t" texcoord="UV"/></diffuse></phong></technique></profile_COMMON>
</effect></library_effects>
<library_materials><material id="m"><instance_effect url="#e"/></material></library_materials>
<library_geometries><geometry id="g"><mesh>
<source id="p"><float_array id="a" count="9">0 0 0 1 0 0 0 1 0</float_array>
<technique_common><accessor source="#a" count="3" stride="3">
<param name="X" type="float"/><param name="Y" type="float"/><param name="Z" type="float"/></accessor></technique_common></source>
<vertices id="v"><input semantic="POSITION" source="#p"/></vertices>
<triangles count="1" material="w"><input semantic="VERTEX" source="#v" offset="0"/><p>0 1 2</p></triangles>
</mesh></geometry></library_geometries>
<library_visual_scenes><visual_scene id="s"><node id="n"><instance_geometry url="#g">
<bind_material><technique_common><instance_material symbol="w" target="#m"/></technique_common></bind_material>
</instance_geometry></node>
</visual_scene></library_visual_scenes>
<scene><instance_visual_scene url="#s"/></scene></COLLADA>
"""
CONVERTER = """#!{python}
import re, shutil, sys
words = " ".join(sys.argv[1:])
assert "{source}" in words, words
shutil.copyfile("{model}", re.findall(r"[^ ']+[.]glb", words)[-1])
"""


@pytest.fixture
def imports(tmp_path, monkeypatch):
    """The project of the `imports` example, which needs all converters. A failing script replaces each converter not installed."""
    project = Project(tmp_path / "p", (data_dir() / "config/examples/imports/aptui.yaml").read_text(encoding="utf-8"))
    for program in ("assimp", "blender"):
        if shutil.which(program) is None:
            project.write(f"missing/{program}", "#!/bin/sh\nexit 1\n").chmod(0o755)
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{tmp_path / 'p/missing'}")
    return project


@pytest.mark.real
@pytest.mark.parametrize(
    ("source", "program"), [("a.dae", "assimp"), ("b.fbx", "blender"), ("c.blend", "blender"), ("d.usdc", "blender")]
)
def test_jobs_of_the_imports_example_run_again_after_a_converter_changed(tmp_path, imports, monkeypatch, sample, source, program):
    (tmp_path / "model.glb").write_bytes(glb(embedded(sample).tree, sample.numbers))
    converter = imports.write(
        f"bin/{program}", CONVERTER.format(python=sys.executable, source=source, model=tmp_path / "model.glb")
    )
    converter.chmod(0o755)
    monkeypatch.setenv("PATH", f"{converter.parent}:{os.environ['PATH']}")
    imports.write(f"assets/{source}", "model")

    imports.engine_run()

    assert imports.errors() == {}
    assert f"{HOST}/{source[0]}.glb" in imports.products()

    converter.write_text(converter.read_text() + "# new")

    assert len(imports.engine_run().runs) == 1


@pytest.mark.real
@needs("assimp")
def test_real_assimp_makes_a_model_of_a_collada_file(imports):
    imports.write("assets/a.dae", TRIANGLE)
    imports.write("assets/face.png", picture())

    imports.engine_run()

    assert imports.errors() == {}
    tree, _ = read_glb(imports.products()[f"{HOST}/a.glb"])
    assert _count(tree) == (1, 3)
    assert tree["images"][0]["mimeType"] == "image/png"
