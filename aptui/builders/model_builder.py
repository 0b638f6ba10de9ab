"""The `model` builder: glTF, GLB, OBJ, STL, PLY and OFF are checked and become one GLB for each level of detail.

A job checks the model including the data of its accessors, removes objects that no scene shows, adds tangents on request, merges
equal vertices, orders triangles and vertices for the caches of a GPU (`gltf.rewriting`), and packs everything into one file. The
program `gltfpack`, if it is installed, makes simpler levels of detail and compresses buffers. No mature Python library does this
for meshes with texture coordinates.
"""

from __future__ import annotations

import os
from base64 import b64encode
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import quote, unquote
from uuid import UUID

from msgspec import Meta

from aptui.builders.common import SourceBuilder, one_line, show_count, summarize_errors
from aptui.builders.files.mesh_file import MeshParams, convert_mesh, is_mesh, list_named_files
from aptui.builders.files.references import check_names, declare_needed, declare_sources, filter_allowed, read
from aptui.builders.gltf.check import Checker
from aptui.builders.gltf.data import count_of
from aptui.builders.gltf.file import (
    BrokenGltfError,
    Document,
    Object,
    Read,
    as_object,
    as_objects,
    file_uris,
    is_file_uri,
    pack_glb,
    parse_document,
)
from aptui.builders.gltf.rewriting import QUANTISATION, Tangents, obstacle, rewrite
from aptui.sdk import (
    CreateJobsRequest,
    CreateJobsResponse,
    JobError,
    LoadBehavior,
    PathDependency,
    ProcessJobRequest,
    find_program,
    library_versions,
    placed_name,
    program_digest,
)

GLTF_ASSET_TYPE = UUID("07f5c3a1-e84d-5b29-9d06-1ac7b2f45e09")
"""Asset type of a model in JSON, with its buffers and images beside it."""

GLB_ASSET_TYPE = UUID("5b8e1d70-26fa-5c43-a79f-e4d01c93b80a")
"""Asset type of a model in one binary file."""

MOST_SHOWN = 50
_TRIANGLES = 4
_STRIPS_AND_FANS = (5, 6)
_LIBRARIES = ("trimesh", "Pillow")
"""Packages that read and write the formats other than glTF."""
_GPU_TEXTURES = {"ktx2": ("KHR_texture_basisu", "image/ktx2"), "dds": ("MSFT_texture_dds", "image/vnd-ms.dds")}
"""{file extension of a texture: (glTF extension for references to it, media type)}."""

_KEEPS = ["-kn", "-km", "-ke", "-kv"]
"""Options of gltfpack that keep names, materials, extras, and attributes that no material needs. Old versions lack the last one."""
_REMEDIES = {
    "Unrecognized option -se": "'lod_error' needs gltfpack 0.21 or later, but the installed version is older",
    "Cannot allocate Wasm memory": "the gltfpack of npm needs 12 GiB of address space; set memory_limit: 16GiB for this "
    "builder, or install the native program",
}
"""{text that gltfpack prints when it fails: what the user can do}."""

Ratio = Annotated[float, Meta(gt=0, lt=1)]


class ModelParams(MeshParams, frozen=True, kw_only=True):
    """Parameters of this builder; the documentation and `aptui explain` show the descriptions of the fields."""

    output: Annotated[
        Literal["glb", "copy"],
        Meta(description="glb: write one .glb file; copy: only check a .gltf or .glb, and copy it unchanged"),
    ] = "glb"
    optimise: Annotated[
        bool, Meta(description="remove unused data, merge equal vertices, and reorder triangles so that GPUs draw them faster")
    ] = True
    quantise: Annotated[
        bool,
        Meta(description="store vertices as 8-bit and 16-bit numbers, which are smaller but less exact (KHR_mesh_quantization)"),
    ] = False
    tangents: Annotated[
        Tangents,
        Meta(
            description="add missing tangents (MikkTSpace); needed: to meshes with a normal map; all: to all meshes with texture "
            "coordinates"
        ),
    ] = "keep"
    textures: Annotated[
        Literal["embed", "files", "ktx2", "dds"],
        Meta(
            description="where pictures are; embed: in the GLB; files: in separate files; ktx2, dds: in products of the `texture` "
            "builder"
        ),
    ] = "embed"
    lods: Annotated[
        list[Ratio],
        Meta(max_length=8, description="share of the triangles that each further level of detail keeps; needs gltfpack"),
    ] = []  # noqa: RUF012 -- msgspec copies it
    lod_error: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | None,
        Meta(description="maximum error of a level of detail, as a share of the size of the model; null: 0.01"),
    ] = None
    compress: Annotated[bool, Meta(description="compress buffers (EXT_meshopt_compression); by gltfpack")] = False
    strict: Annotated[bool, Meta(description="treat each warning as an error")] = False


class ModelBuilder(SourceBuilder):
    """Makes `<stem>.glb`, and `<stem>.lod1.glb` … for further levels of detail."""

    name: ClassVar[str] = "model"
    version: ClassVar[str] = "1"
    patterns: ClassVar[tuple[str, ...]] = ("*.gltf", "*.glb", "*.obj", "*.stl", "*.ply", "*.off")
    params_schema: ClassVar[Any] = ModelParams
    analysis_fingerprint: ClassVar[str] = library_versions("numpy", *_LIBRARIES)

    def create_jobs(self, request: CreateJobsRequest) -> CreateJobsResponse:
        """Return one job per platform; the libraries and programs that a job uses are part of its fingerprint."""
        response = super().create_jobs(request)
        for job in response.jobs:
            used = [library_versions(*_LIBRARIES)] if is_mesh(request.source) else []
            if _needs_gltfpack(request.options_for(job.platform)):
                used.append(program_digest(find_program("gltfpack", ())))
            job.additional_fingerprint = ", ".join(used)
        return response

    def analyse(self, request: CreateJobsRequest) -> None:
        """Declare a dependency on each file in the project that the model names, even if the file is missing."""
        if is_mesh(request.source):
            paths: Any = list_named_files(request)
        else:
            try:
                uris = list(file_uris(parse_document(request.read_source()).tree))
            except (BrokenGltfError, OSError):
                uris = []  # the error is ignored here, because the job reports it
            paths = (placed_name(request.source, uri) for uri in uris)
        request.source_dependencies += declare_sources(request.scan_folder, filter_allowed(request, paths))

    def build(self, request: ProcessJobRequest) -> None:
        """Check the source and write its products."""
        options: ModelParams = request.options
        try:
            data = request.read_source()
            made = convert_mesh(data, request, options) if is_mesh(request.source) else data
            document = parse_document(made)
            check_names(request, (placed_name(request.source, uri) for uri in file_uris(document.tree)))
            checker = _check(document, options, request)
            if options.output == "copy":
                _write(request, os.path.basename(request.source), data, document.tree, _needs(document.tree, request))
            else:
                product = _pack(document, checker, options, request)
                _write_levels(product, options, request)
        except RecursionError:
            raise BrokenGltfError("the model is nested too deeply") from None


def _needs_gltfpack(options: ModelParams) -> bool:
    return options.output == "glb" and (bool(options.lods) or options.compress)


def _reader(request: ProcessJobRequest) -> Read:
    """Return a function that returns the bytes of a file that the source names; each file is read only once."""
    known: dict[str, bytes] = {}

    def read_beside(path: str) -> bytes:
        if path not in known:
            known[path] = read(request, placed_name(request.source, path))
        return known[path]

    return read_beside


def _check(document: Document, options: ModelParams, request: ProcessJobRequest) -> Checker:
    checker = Checker(document, _reader(request))
    checker.check()
    errors = [*checker.errors, *(checker.warnings if options.strict else [])]
    for text in [] if options.strict else checker.warnings[:MOST_SHOWN]:
        request.log.warning(f"{request.source}: {text}")
    for text in errors[1:MOST_SHOWN]:
        request.log.error(f"{request.source}: {text}")
    if errors:
        raise BrokenGltfError(summarize_errors(errors))
    return checker


def _pack(document: Document, checker: Checker, options: ModelParams, request: ProcessJobRequest) -> bytes:
    reason = obstacle(document)
    is_rewritten = options.optimise or options.quantise or options.tangents != "keep"
    if reason and _needs_gltfpack(options):
        raise BrokenGltfError(f"'lods' and 'compress' would damage the model, because {reason}; do not set them for this model")
    if reason and is_rewritten:
        log = request.log.info if options.tangents == "keep" else request.log.warning
        log(f"{request.source}: the model was packed without optimisation, because {reason}")
    elif is_rewritten:
        document = rewrite(document, checker, quantises=options.quantise, adds_tangents=options.tangents)
    return pack_glb(document, _reader(request), embeds_images=options.textures == "embed")


def _write_levels(product: bytes, options: ModelParams, request: ProcessJobRequest) -> None:
    """Write a GLB and its simpler levels of detail."""
    for level, ratio in enumerate((1.0, *options.lods)):
        document = parse_document(product)
        if level or options.compress:
            document = _run_gltfpack(document, ratio, options, request)
        needs = _needs(document.tree, request)
        _name_textures(document.tree, options.textures)
        name = f"{request.stem}.lod{level}.glb" if level else f"{request.stem}.glb"
        data = pack_glb(document, _reader(request), embeds_images=False)
        _write(request, name, data, document.tree, needs, level)
        request.progress((level + 1) / (1 + len(options.lods)))


def _run_gltfpack(document: Document, ratio: float, options: ModelParams, request: ProcessJobRequest) -> Document:
    """Return a model with the share `ratio` of the triangles, compressed on request."""
    program = find_program("gltfpack", ())
    if not program:
        raise JobError(
            f"{request.source}: 'lods' and 'compress' need the program gltfpack, which was not found; install the package gltfpack"
        )
    hidden = _hide_files(document.tree)
    with open(os.path.join(request.temp_dir, "source.glb"), "wb") as file:
        file.write(pack_glb(document, _reader(request), embeds_images=False))
    arguments = ["-si", str(ratio)] if ratio < 1 else []
    arguments += ["-c"] if options.compress else []
    arguments += [] if options.quantise or options.compress else ["-noq"]
    arguments += [] if options.lod_error is None else ["-se", str(options.lod_error)]
    for keeps in (_KEEPS, _KEEPS[:-1]):
        try:
            request.run_program([program, "-i", "source.glb", "-o", "made.glb", *keeps, *arguments])
            break
        except JobError as error:
            if keeps is _KEEPS and f"Unrecognized option {_KEEPS[-1]}" in str(error):
                continue
            remedy = next((remedy for printed, remedy in _REMEDIES.items() if printed in str(error)), one_line(error))
            raise JobError(f"{request.source}: {remedy}") from None
    with open(os.path.join(request.temp_dir, "made.glb"), "rb") as file:
        made = parse_document(file.read())
    _show_files(made, hidden)
    if lost := sorted({*document.tree.get("extensionsUsed", [])} - {*made.tree.get("extensionsUsed", []), QUANTISATION}):
        request.log.warning(f"{request.source}: gltfpack removed the extensions {', '.join(lost)}")
    if lost := sorted(_list_attributes(document.tree) - _list_attributes(made.tree)):
        request.log.warning(
            f"{request.source}: gltfpack removed {', '.join(lost)}, because its materials do not need them; upgrade gltfpack to "
            "keep them"
        )
    return made


def _list_attributes(tree: Object) -> set[str]:
    primitives = (each for mesh in as_objects(tree.get("meshes")) for each in as_objects(mesh.get("primitives")))
    return {name for each in primitives for name in as_object(each.get("attributes"))}


def _hide_files(tree: Object) -> dict[bytes, str]:
    """Replace each image in a separate file by an embedded placeholder, because gltfpack copies or loses such files.

    Return {bytes of the placeholder: URI of the image}.
    """
    hidden: dict[bytes, str] = {}
    for image in as_objects(tree.get("images")):
        if "uri" in image:
            stand_in = b"\x89PNG\r\n\x1a\n" + b"%d" % len(hidden)
            hidden[stand_in] = image["uri"]
            image.update(uri=f"data:image/png;base64,{b64encode(stand_in).decode()}", mimeType="image/png")
    return hidden


def _show_files(document: Document, hidden: dict[bytes, str]) -> None:
    """Undo `_hide_files` in the document that gltfpack wrote."""
    views = as_objects(document.tree.get("bufferViews"))
    for image in as_objects(document.tree.get("images")):
        view = views[image["bufferView"]]
        data = (document.chunk or b"")[view.get("byteOffset", 0) :][: view["byteLength"]]
        if data in hidden:
            del image["bufferView"], image["mimeType"]
            image["uri"] = hidden[data]


def _name_textures(tree: Object, textures: str) -> None:
    """Replace the paths of picture files by the names of the products that are made from them, which are in lower case.

    If the `texture` builder makes these products, the names get its file extension. Textures then refer to these products only by
    the glTF extension in `_GPU_TEXTURES`, not by `source` or the extension of another picture format, such as EXT_texture_webp.
    """
    feature, kind = _GPU_TEXTURES.get(textures, ("", ""))
    changed = set()
    for index, image in enumerate(as_objects(tree.get("images"))):
        uri = image.get("uri")
        if isinstance(uri, str) and is_file_uri(uri):
            path = unquote(uri).replace("\\", "/").lower()
            image["uri"] = quote(f"{os.path.splitext(path)[0]}.{textures}" if feature else path)
            if feature:
                image["mimeType"] = kind
                changed.add(index)
    replaced: set[str] = set()
    for texture in as_objects(tree.get("textures")):
        extensions = as_object(texture.get("extensions"))
        formats = {name: each["source"] for name, each in extensions.items() if as_object(each).get("source") in changed}
        sources = [texture.pop("source")] if texture.get("source") in changed else []
        if sources or formats:
            others = {name: each for name, each in extensions.items() if name not in formats}
            texture["extensions"] = {**others, feature: {"source": [*sources, *formats.values()][0]}}
            replaced.update(formats)
    if changed:
        replaced -= {name for texture in as_objects(tree.get("textures")) for name in as_object(texture.get("extensions"))}
        for key in ("extensionsUsed", "extensionsRequired"):
            tree[key] = sorted({*tree.get(key, [])} - replaced | {feature})


def _write(request: ProcessJobRequest, name: str, data: bytes, tree: Object, needs: list[PathDependency], level: int = 0) -> None:
    is_glb = data.startswith(b"glTF")
    triangles, vertices = _count(tree)
    request.write_product(
        name,
        data,
        sub_id=level << 16,
        asset_type=GLB_ASSET_TYPE if is_glb else GLTF_ASSET_TYPE,
        path_dependencies=needs,
        dependencies_handled=True,
        facts={"triangles": triangles, "format": "glb" if is_glb else "gltf"},
    )
    counts = show_count(triangles, "triangle"), show_count(vertices, "vertex", "vertices"), show_count(len(data), "byte")
    request.log.info(f"{name}: {', '.join(counts)}")


def _count(tree: Object) -> tuple[int, int]:
    """Return the number of triangles and of vertices of a checked document; each mesh and each set of vertices is counted once."""
    accessors = as_objects(tree.get("accessors"))
    triangles = 0
    vertices: dict[object, int] = {}
    for mesh in as_objects(tree.get("meshes")):
        for primitive in as_objects(mesh.get("primitives")):
            position = as_object(primitive.get("attributes")).get("POSITION")
            index = primitive.get("indices", position)
            corners, vertices[position] = (
                count_of(accessors[each], "count") if isinstance(each, int) and each < len(accessors) else 0
                for each in (index, position)
            )
            mode = primitive.get("mode", _TRIANGLES)
            triangles += corners // 3 if mode == _TRIANGLES else max(0, corners - 2) if mode in _STRIPS_AND_FANS else 0
    return triangles, sum(vertices.values())


def _needs(tree: Object, request: ProcessJobRequest) -> list[PathDependency]:
    """Return dependencies on the buffer and image files that the product refers to.

    A game loads buffers together with the model, but may load images later.
    """
    found = []
    for name, load in (("buffers", LoadBehavior.PRE_LOAD), ("images", LoadBehavior.QUEUE_LOAD)):
        paths = (placed_name(request.source, uri) for uri in file_uris(tree, (name,)))
        found += declare_needed(request.scan_folder, paths, load)
    return found
