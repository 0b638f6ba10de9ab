"""The `gltf` builder: checks glTF 2.0 models down to their numbers, and writes them as they are or as one GLB."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar
from uuid import UUID

from aptui.builders.common import one_job_per_platform, one_line, summarize_errors
from aptui.builders.files import lfs_source
from aptui.builders.files.references import (
    UnusableError,
    check_names,
    declare_needed,
    declare_sources,
    filter_allowed,
    placed,
    read,
)
from aptui.builders.gltf.check import Checker
from aptui.builders.gltf.data import Object, as_object, as_objects, count_of
from aptui.builders.gltf.file import BrokenGltfError, Document, Read, file_uris, pack_glb, parse_document
from aptui.sdk import (
    CreateJobsRequest,
    CreateJobsResponse,
    JobProduct,
    LoadBehavior,
    ParamError,
    PathDependency,
    ProcessJobRequest,
    ProcessJobResponse,
    Result,
    check_params,
    library_versions,
)

GLTF_ASSET_TYPE = UUID("07f5c3a1-e84d-5b29-9d06-1ac7b2f45e09")
"""Asset type of a model in JSON, with its buffers and images beside it."""

GLB_ASSET_TYPE = UUID("5b8e1d70-26fa-5c43-a79f-e4d01c93b80a")
"""Asset type of a model in one binary file."""

MOST_SHOWN = 50
_TRIANGLES = 4
_STRIPS_AND_FANS = (5, 6)


class GltfBuilder:
    """Packs a `.gltf` and all files that it names into one GLB, and copies a `.glb`, by default."""

    name: ClassVar[str] = "gltf"
    version: ClassVar[str] = "1"
    patterns: ClassVar[tuple[str, ...]] = ("*.gltf", "*.glb")
    analysis_fingerprint: ClassVar[str] = library_versions("numpy")
    params_schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "output": {
                "enum": ["auto", "copy", "glb"],
                "default": "auto",
                "description": "auto: .gltf becomes .glb, and .glb is copied; a copy's buffers and images are left to other "
                "builders",
            },
            "embed_images": {
                "type": "boolean",
                "default": True,
                "description": "in a GLB; else it names the files as the source did",
            },
            "strict": {"type": "boolean", "default": False, "description": "fail where there would be a warning"},
        },
    }

    def create_jobs(self, request: CreateJobsRequest) -> CreateJobsResponse:
        """Return one job per platform; the files of buffers and images are source dependencies."""
        response = one_job_per_platform(request, self.name, self.params_schema)
        if response.result is Result.SUCCESS:
            try:
                uris = list(file_uris(parse_document(request.read_source()).tree))
            except (BrokenGltfError, OSError):
                uris = []  # the job reports the mistake
            paths = filter_allowed(request, (placed(request.source, uri) for uri in uris))
            response.source_dependencies = declare_sources(request.scan_folder, paths)
        return response

    def process_job(self, request: ProcessJobRequest) -> ProcessJobResponse:
        """Check the source and write its one product."""
        try:
            options = check_params(self.params_schema, request.params)
            data = lfs_source.source_bytes(request)
            document = parse_document(data)
            check_names(request, (placed(request.source, uri) for uri in file_uris(document.tree)))
            _check(document, options, request)
            product = _product(document, data, options, request)
        except RecursionError:
            return ProcessJobResponse(error=f"{request.source}: nested too deep")
        except (BrokenGltfError, ParamError, UnusableError, OSError) as error:
            return ProcessJobResponse(error=f"{request.source}: {one_line(error)}")
        return ProcessJobResponse(Result.SUCCESS, [product])


def _reader(request: ProcessJobRequest) -> Read:
    """Return a function that reads each file that the source names once."""
    known: dict[str, bytes] = {}

    def read_beside(path: str) -> bytes:
        if path not in known:
            known[path] = read(request, placed(request.source, path))
        return known[path]

    return read_beside


def _check(document: Document, options: Mapping[str, Any], request: ProcessJobRequest) -> None:
    checker = Checker(document, _reader(request))
    checker.check()
    errors = [*checker.errors, *(checker.warnings if options["strict"] else [])]
    for text in [] if options["strict"] else checker.warnings[:MOST_SHOWN]:
        request.log.warning(f"{request.source}: {text}")
    for text in errors[1:MOST_SHOWN]:
        request.log.error(f"{request.source}: {text}")
    if errors:
        raise BrokenGltfError(summarize_errors(errors))


def _product(document: Document, data: bytes, options: Mapping[str, Any], request: ProcessJobRequest) -> JobProduct:
    is_glb = data.startswith(b"glTF")
    if options["output"] == "copy" or (options["output"] == "auto" and is_glb):
        name, made = os.path.basename(request.source), data
        asset_type = GLB_ASSET_TYPE if is_glb else GLTF_ASSET_TYPE
    else:
        name, asset_type = f"{request.stem}.glb", GLB_ASSET_TYPE
        made = pack_glb(document, _reader(request), embeds_images=options["embed_images"])
    with open(request.product_path(name), "wb") as file:
        file.write(made)
    facts = {"triangles": _triangle_count(document.tree), "format": "glb" if asset_type == GLB_ASSET_TYPE else "gltf"}
    return JobProduct(name, 0, asset_type, path_dependencies=_needs(document, request), dependencies_handled=True, facts=facts)


def _triangle_count(tree: Object) -> int:
    """Return how many triangles a checked document's meshes have, each mesh once."""
    accessors = as_objects(tree.get("accessors"))
    count = 0
    for mesh in as_objects(tree.get("meshes")):
        for primitive in as_objects(mesh.get("primitives")):
            index = primitive.get("indices", as_object(primitive.get("attributes")).get("POSITION"))
            corners = count_of(accessors[index], "count") if isinstance(index, int) and index < len(accessors) else 0
            mode = primitive.get("mode", _TRIANGLES)
            count += corners // 3 if mode == _TRIANGLES else max(0, corners - 2) if mode in _STRIPS_AND_FANS else 0
    return count


def _needs(document: Document, request: ProcessJobRequest) -> list[PathDependency]:
    """Return the files that the product still names: a model needs its buffers at once, images may load later."""
    found = []
    for name, load in (("buffers", LoadBehavior.PRE_LOAD), ("images", LoadBehavior.QUEUE_LOAD)):
        paths = (placed(request.source, uri) for uri in file_uris(document.tree, (name,)))
        found += declare_needed(request.scan_folder, paths, load)
    return found
