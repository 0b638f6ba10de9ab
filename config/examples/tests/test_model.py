import json
import os
import struct

import pytest
from model import Model

from aptui.sdk.testing import BuilderBench

STAND_IN = """#!/usr/bin/env python3
import json, struct, sys
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
count = int(300 * float(words.get("-si", 1)))
tree = {"meshes": [{"primitives": [{"indices": 0}]}], "accessors": [{"count": count * 3}]}
text = json.dumps(tree).encode()
open(words["-o"], "wb").write(struct.pack("<4sII", b"glTF", 2, 20 + len(text)) + struct.pack("<I4s", len(text), b"JSON") + text)
"""


@pytest.fixture
def bench(tmp_path, monkeypatch):
    tool = tmp_path / "bin/gltfpack"
    tool.parent.mkdir()
    tool.write_text(STAND_IN)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    return BuilderBench(Model(), tmp_path / "bench")


def test_model_has_a_product_for_each_level_of_detail(bench):
    bench.write("a.glb", struct.pack("<4sII", b"glTF", 2, 12))

    made = bench.build("a.glb", lods=[0.5])

    assert sorted(made) == ["a.glb", "a.lod1.glb"]
    assert [(each.sub_id, each.facts["triangles"]) for each in bench.products] == [(0, 300), (1 << 16, 150)]
    assert bench.progress == [0.5, 1.0]


def test_model_depends_on_the_files_that_it_names(bench):
    bench.write("m/a.gltf", json.dumps({"buffers": [{"uri": "a%20b.bin"}, {"uri": "data:,x"}], "images": [{"uri": "../t.png"}]}))
    bench.write("b.obj", "mtllib b.mtl\nv 0 0 0\n")

    assert bench.dependencies("m/a.gltf") == ["m/a b.bin", "t.png"]
    assert bench.dependencies("b.obj") == ["b.mtl"]
    assert bench.fail("b.obj") == "the file 'b.mtl' is missing"
    assert "outside the project's scan folders" in bench.fail(bench.write("c.obj", "mtllib ../../../etc/passwd"))
    assert bench.analyse(bench.write("bad.gltf", "{")).error.startswith("bad.gltf is not JSON")
