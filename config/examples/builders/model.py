"""`model`: glTF, GLB or OBJ becomes one GLB for each level of detail, optimised by gltfpack."""

import json
import os
from typing import Annotated

from msgspec import Meta, Struct

from aptui.sdk import JobError, SimpleBuilder, placed_name

Ratio = Annotated[float, Meta(gt=0, lt=1)]


class Options(Struct):
    lods: Annotated[tuple[Ratio, ...], Meta(max_length=8, description="share of the triangles in each further level")] = (0.5, 0.25)
    compress: Annotated[bool, Meta(description="compress buffers (EXT_meshopt_compression)")] = False


class Model(SimpleBuilder):
    name = "model"
    patterns = ("*.gltf", "*.glb", "*.obj")
    params_schema = Options
    tools = ("gltfpack",)

    def analyse(self, request):
        for name, is_uri in named_files(request.source, request.read_source()):
            request.depends_on(placed_name(request.source, name, is_uri=is_uri))

    def build(self, request):
        for name, is_uri in named_files(request.source, request.read_source()):
            # fails if the file is missing, or outside the project
            request.read_named(placed_name(request.source, name, is_uri=is_uri))
        for level, ratio in enumerate((1.0, *request.options.lods)):
            name = f"{request.stem}.lod{level}.glb" if level else f"{request.stem}.glb"
            target = request.product_path(name)
            more = [*(["-si", str(ratio)] if level else []), *(["-c"] if request.options.compress else [])]
            request.run_program(["gltfpack", "-i", request.full_path, "-o", target, *more])
            facts = {"triangles": count_triangles(target), "format": "glb"}
            request.add_product(name, sub_id=level << 16, facts=facts, dependencies_handled=True)
            request.log.info(f"{name}: {facts['triangles']} triangles, {os.path.getsize(target)} bytes")
            request.progress((level + 1) / (1 + len(request.options.lods)))


def named_files(source, data):
    """Return (name, whether it is percent-encoded) of the files that a model names: buffers, pictures, material libraries."""
    if source.lower().endswith(".obj"):
        return [(line[7:].decode().strip(), False) for line in data.splitlines() if line.startswith(b"mtllib ")]
    if not source.lower().endswith(".gltf"):
        return []
    try:
        tree = json.loads(data)
    except ValueError as error:
        raise JobError(f"{source} is not JSON: {error}") from None
    uris = [each.get("uri", "") for key in ("buffers", "images") for each in tree.get(key, [])]
    return [(uri, True) for uri in uris if uri and not uri.startswith("data:")]


def count_triangles(path):
    """Return the number of triangles of a GLB."""
    with open(path, "rb") as file:
        head = file.read(20)
        if head[:4] != b"glTF":
            raise JobError("gltfpack wrote something else than a GLB")
        tree = json.loads(file.read(int.from_bytes(head[12:16], "little")))
    primitives = [each for mesh in tree.get("meshes", []) for each in mesh["primitives"] if each.get("mode", 4) == 4]
    return sum(tree["accessors"][each["indices"]]["count"] // 3 for each in primitives if "indices" in each)
