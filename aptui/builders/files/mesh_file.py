"""Converts OBJ, STL, PLY and OFF to GLB, scaled and turned upright.

The library trimesh reads and writes the files, but ignores mistakes and missing files. So OBJ is checked line by line first
(`files.obj_text`), and the counts in the headers of other formats are compared with the result.

Tests: `tests/builders/test_mesh_file.py`.
"""

from __future__ import annotations

import math
import os
import re
import struct
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from io import BytesIO
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from aptui.builders.common import SourceError, describe_damage, one_line, shorten, show_count
from aptui.builders.files.obj_text import (
    check_numbers,
    leave_out_wrong_colours,
    list_libraries,
    list_textures,
    list_unused_textures,
    material_names,
    outline_obj,
    split_concave_faces,
    with_textures,
)
from aptui.builders.files.pictures import TEXTURE_FORMATS, PictureError, load_picture, open_picture
from aptui.builders.files.references import read
from aptui.sdk import (
    CreateJobsRequest,
    ForbiddenNameError,
    NamedFileError,
    ProcessJobRequest,
    library,
    placed_name,
)
from aptui.sdk.programs import missing_package

_STL_HEADER_BYTES = 84
_STL_TRIANGLE_BYTES = 50
_PLY_COUNT = re.compile(rb"^element[ \t]+(\w+)[ \t]+(\d+)", re.MULTILINE)
_PLY_TEXTURE = re.compile(rb"^comment[ \t]+TextureFile[ \t]+(\S.*?)\s*$", re.MULTILINE | re.IGNORECASE)
_PLY_END = re.compile(rb"^end_header\r?\n", re.MULTILINE)
_OFF_COUNTS = re.compile(r"^(?:#[^\n]*\n|\s)*C?OFF(?:#[^\n]*\n|\s)+(\d+)\s+(\d+)")

_PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
"""Pillow's modes that PNG has; trimesh writes all pictures except JPEG as PNG."""

MOST_MATERIALS = 4096
"""Maximum number of materials of an OBJ: each becomes a separate mesh, and the time grows with the square of their number."""

MOST_TEXTURE_MEGAPIXELS = 512
"""Maximum total size of a model's textures in megapixels; each texture is counted once."""

_LEAST_SIZE = 1e-45
"""The smallest 32-bit float, which glTF stores."""

_ALL_MATERIALS = "\x00materials"
"""Name of the only material file that a checked OBJ names. The file is not on disk: its text is made from all material files of
the source."""


class MeshParams(Struct, frozen=True, kw_only=True):
    """The parameters of the `model` builder for formats other than glTF."""

    scale: Annotated[
        float,
        Meta(
            ge=1e-6,
            le=1e6,
            description="factor for all coordinates of obj, stl, ply and off; glTF uses metres, so 0.01 is for sources in "
            "centimetres",
        ),
    ] = 1.0
    up_axis: Annotated[
        Literal["y", "z"], Meta(description="axis that points up in the source; z is turned to y, which glTF uses")
    ] = "y"
    merge_vertices: Annotated[bool, Meta(description="merge vertices that differ only by rounding errors")] = True
    normals: Annotated[
        Literal["keep", "smooth", "none"],
        Meta(description="smooth: compute one normal for each position; none: remove all normals, so that faces look flat"),
    ] = "keep"


def is_mesh(source: str) -> bool:
    """Return whether this module reads a file with this name: every model that is not glTF."""
    return _kind(source) not in (".gltf", ".glb")


def convert_mesh(data: bytes, request: ProcessJobRequest, options: MeshParams) -> bytes:
    """Return the model in `data` as GLB.

    Raises:
        SourceError: the model is broken.
        MissingError: trimesh, or a package that trimesh needs, is not installed.
        NamedFileError: the model names files that cannot be used.
    """
    try:
        trimesh = library("trimesh")
        return _convert(_load_scene(trimesh, data, request), options)
    except ImportError as error:
        raise missing_package(error.name or "trimesh") from None


class _Files:
    """Gives trimesh the files that a model names, relative to the scan folder; trimesh calls `get` and `[]`.

    trimesh leaves out the pictures that `get` refuses: the `unusable` ones.
    """

    def __init__(self, request: ProcessJobRequest, materials: str, unusable: Collection[str]) -> None:
        self._request = request
        self._materials = materials
        self._unusable = unusable

    def get(self, name: str) -> bytes:
        """Return the bytes of the file `name`."""
        if name == _ALL_MATERIALS:
            return self._materials.encode()
        path = name if self._materials else placed_name(self._request.source, name)
        if path in self._unusable:
            raise PictureError("the texture cannot be used")
        return read(self._request, path)

    __getitem__ = get


def _kind(source: str) -> str:
    return os.path.splitext(source)[1].lower()


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def list_named_files(request: CreateJobsRequest) -> list[str]:
    """Return the files that the source names, and the files that those files name, relative to the scan folder."""
    kind = _kind(request.source)
    if kind not in (".obj", ".ply"):
        return []
    try:
        data = request.read_source()
    except OSError:
        return []
    if kind == ".ply":
        return _ply_textures(data, request.source)
    found = []
    for path in (placed_name(request.source, name) for name in list_libraries(_text(data))):
        found.append(path)
        try:
            text = _text(read(request, path))
        except NamedFileError:
            continue
        found += [placed_name(path, name) for name in list_textures(text)]
    return found


def _ply_textures(data: bytes, source: str) -> list[str]:
    return [placed_name(source, _text(name)) for name in _PLY_TEXTURE.findall(data[: _end_of_header(data)])]


# ----------------------------------------------------------------------------------------------------- reading and checking


def _load_scene(trimesh: Any, data: bytes, request: ProcessJobRequest) -> Any:
    """Return the scene that trimesh reads. It has at least one triangle."""
    kind = _kind(request.source)
    if not data:
        raise SourceError("the file is empty")
    materials = ""
    textures = _Textures(request)
    if kind == ".obj":
        text = _text(data).replace("\r\n", "\n").replace("\r", "\n")
        data, materials = _prepare_obj(text, request, textures)
    elif kind == ".stl":
        _check_stl(data)
    elif kind == ".ply":
        _check_ply(data)
        textures.check(_ply_textures(data, request.source), request.source)
    elif kind == ".off" and _check_off(_text(data)):
        request.log.warning(f"{request.source}: the colours of an OFF are not supported and are left out; save the model as PLY")
    if kind.removeprefix(".") not in trimesh.available_formats():
        raise SourceError(f"the installed version of trimesh cannot read {kind} files; upgrade the Python package 'trimesh'")
    try:
        scene = trimesh.load_scene(
            BytesIO(data), file_type=kind[1:], resolver=_Files(request, materials, textures.unusable), process=False
        )
    except ImportError:
        raise
    except Exception as error:  # noqa: BLE001 -- trimesh's readers raise whatever damaged bytes lead them to
        request.log.info(f"{request.source}: trimesh: {one_line(error)}")
        raise SourceError(f"the model is damaged: {describe_damage(error)}") from None
    meshes = {name: mesh for name, mesh in scene.geometry.items() if len(getattr(mesh, "faces", ()))}
    if not meshes:
        raise SourceError("the model has no triangles")
    for mesh in meshes.values():
        _check_mesh(mesh)
    _share_textures(meshes.values())
    if kind == ".ply":
        _check_ply_counts(data, meshes)
    return trimesh.Scene({name if len(meshes) > 1 else request.stem: mesh for name, mesh in meshes.items()})


def _prepare_obj(text: str, request: ProcessJobRequest, textures: _Textures) -> tuple[bytes, str]:
    """Return the text of a checked OBJ with a single `mtllib`, and the text of all its material files, joined."""
    outline = outline_obj(text)
    if not outline.face_count:
        raise SourceError("the model has no faces")
    if len(outline.materials) > MOST_MATERIALS:
        raise SourceError(f"the model uses {len(outline.materials):,} materials; the limit is {MOST_MATERIALS:,}")
    parts, names, is_complete = [], set(), True
    for path in (placed_name(request.source, name) for name in outline.libraries):
        try:
            found = _text(read(request, path))
        except ForbiddenNameError:
            raise
        except NamedFileError as error:
            request.log.warning(f"{request.source}: a material file cannot be used: {error}")
            is_complete = False
            continue
        names |= material_names(found)
        found, wrong = leave_out_wrong_colours(found)
        for each in wrong:
            request.log.warning(f"{each.explain(path)}; the line is left out")
        parts.append(with_textures(found, partial(placed_name, path)))
        textures.check((placed_name(path, name) for name in list_textures(found)), path)
        if unused := list_unused_textures(found):
            request.log.warning(f"{path}: pictures of {', '.join(unused)} are left out; save the model as glTF to keep them")
    if is_complete:
        for name, line in outline.materials.items():
            if outline.libraries and name not in names:
                request.log.warning(
                    f"{request.source}:{line}: material '{name}' is not defined in any of the model's material files"
                )
    text = re.sub(r"^[ \t]*mtllib[ \t].*$", "", split_concave_faces(text), flags=re.MULTILINE)
    materials = "\n".join(parts)
    return (f"mtllib {_ALL_MATERIALS}\n{text}" if materials else text).encode(), materials


class _Textures:
    """The pictures that a model names. `unusable` has those that are missing or damaged; the model is built without them."""

    def __init__(self, request: ProcessJobRequest) -> None:
        self._request = request
        self._pixels: dict[str, int] = {}
        self.unusable: set[str] = set()

    def check(self, pictures: Iterable[str], named_by: str) -> None:
        """Decode the pictures that the file `named_by` names, each once, and warn of those that cannot be used.

        Raises:
            ForbiddenNameError: a picture is outside the project.
            SourceError: the pictures together have too many pixels.
        """
        for picture in pictures:
            if picture in self._pixels or picture in self.unusable:
                continue
            try:
                self._decode(picture, named_by)
            except ForbiddenNameError:
                raise
            except (PictureError, NamedFileError) as error:
                self.unusable.add(picture)
                what = f"the texture '{picture}'" if isinstance(error, PictureError) else "a texture"
                self._request.log.warning(f"{named_by}: {what} cannot be used: {error}")

    def _decode(self, picture: str, named_by: str) -> None:
        opened = open_picture(read(self._request, picture, named_by), picture, TEXTURE_FORMATS)
        self._pixels[picture] = opened.width * opened.height
        if sum(self._pixels.values()) > MOST_TEXTURE_MEGAPIXELS * 1_000_000:
            raise SourceError(
                f"the textures of the model have more than {MOST_TEXTURE_MEGAPIXELS} million pixels together, which is the limit"
            )
        if opened.mode in ("I", "F"):
            raise PictureError("pictures with 32 bits per channel are not supported; save the picture with 8 or 16 bits")
        load_picture(opened)


def _check_stl(data: bytes) -> None:
    """Reject a truncated binary STL. A text STL begins with `solid`, but so do some binary files."""
    count = struct.unpack_from("<I", data, 80)[0] if len(data) >= _STL_HEADER_BYTES else 0
    needed = _STL_HEADER_BYTES + _STL_TRIANGLE_BYTES * count
    if data.lstrip().startswith(b"solid") and (b"facet" in data[:1024] or len(data) < needed):
        if b"endsolid" not in data[-1024:]:
            line = data.count(b"\n") + (not data.endswith(b"\n"))
            raise SourceError("the file is cut off: it does not end with 'endsolid'", str(line))
        for number, text in enumerate(data.decode("latin-1").splitlines(), 1):
            if text.lstrip()[:6].lower() == "vertex":
                check_numbers(text.split(), 3, number)
    elif len(data) < needed:
        needs = f"{needed:,} bytes for {show_count(count, 'triangle')}"
        raise SourceError(f"the file is cut off: it needs {needs}, but has {len(data):,}")
    elif not count:
        raise SourceError("the model has no triangles")


def _check_off(text: str) -> bool:
    """Check the lines of an OFF, and return whether it has colours."""
    if not (match := _OFF_COUNTS.match(text)):
        raise SourceError("the file does not begin with 'OFF' and the numbers of vertices and faces", "1")
    vertices, declared = int(match[1]), int(match[1]) + int(match[2])
    first = text.count("\n", 0, match.end()) + 1
    listed = enumerate((line.partition("#")[0].split() for line in text[match.end() :].splitlines()), first)
    found, has_colours = 0, "COFF" in match[0]
    for number, words in [each for each in listed if each[1] and each[0] > first][:declared]:
        found += 1
        if found <= vertices:
            check_numbers(["vertex", *words], 3, number)
        else:
            has_colours |= _check_off_face(words, vertices, number)
    if found < declared:
        raise SourceError(f"the header declares {show_count(declared, 'line')} of vertices and faces, but the file has {found:,}")
    return has_colours


def _check_off_face(words: list[str], vertices: int, number: int) -> bool:
    """Check a line of an OFF: the number of corners, the vertices, and optionally a colour. Return whether it has a colour."""
    if not words[0].isdecimal():
        raise SourceError(f"'{shorten(words[0])}' is not a number of corners", str(number))
    count, corners = int(words[0][:9]), words[1:]
    if count > len(corners):
        raise SourceError(f"the face should have {show_count(count, 'corner')}, but the line has only {len(corners)}", str(number))
    for corner in corners[:count]:
        if not corner.isdecimal() or int(corner[:12]) >= vertices:
            what = f"the face refers to vertex {shorten(corner)}, but the vertices are numbered from 0 to {vertices - 1:,}"
            raise SourceError(what, str(number))
    return len(corners) > count


def _share_textures(meshes: Iterable[Any]) -> None:
    """Give materials with the same texture one decoded picture, because trimesh would decode the file for each material.

    The grey picture that trimesh makes for a mesh with texture coordinates and no texture is removed.
    """
    shared: dict[bytes, Any] = {}
    for mesh in meshes:
        material: Any = getattr(mesh.visual, "material", None)
        file = getattr(getattr(material, "image", None), "fp", None)
        if isinstance(file, BytesIO):
            image = shared.setdefault(file.getvalue(), material.image)
            if image.mode not in _PNG_MODES and image.format != "JPEG":
                image = shared[file.getvalue()] = image.convert("RGB")
            material.image = image
        elif getattr(material, "image", None) is not None:
            material.image = None


def _end_of_header(data: bytes) -> int:
    match = _PLY_END.search(data)
    return match.end() if match else len(data)


def _check_ply(data: bytes) -> None:
    if not data.startswith(b"ply"):
        raise SourceError("the file does not begin with 'ply'", "1")
    if not _PLY_END.search(data):
        raise SourceError("the header does not end with 'end_header'")
    for kind, count in _PLY_COUNT.findall(data[: _end_of_header(data)]):
        if int(count) > len(data):
            raise SourceError(
                f"the header declares {int(count):,} elements of '{kind.decode()}', but the file has only {len(data):,} bytes"
            )


def _check_ply_counts(data: bytes, meshes: Mapping[str, Any]) -> None:
    """Reject a PLY with fewer elements than its header declares. A PLY may have more, because polygons become several triangles."""
    declared = {kind.decode(): int(count) for kind, count in _PLY_COUNT.findall(data[: _end_of_header(data)])}
    for kind, found in (("vertex", "vertices"), ("face", "faces")):
        count = sum(len(getattr(mesh, found)) for mesh in meshes.values())
        if count < declared.get(kind, 0):
            raise SourceError(f"the header declares {show_count(declared[kind], kind, found)}, but the file has {count:,}")


def _check_mesh(mesh: Any) -> None:
    import numpy as np

    if not np.isfinite(mesh.vertices).all():
        raise SourceError(
            f"vertex {int(np.argmin(np.isfinite(mesh.vertices).all(axis=1)))} has a coordinate that is not a finite number"
        )
    if int(mesh.faces.min()) < 0 or int(mesh.faces.max()) >= len(mesh.vertices):
        wrong = (mesh.faces < 0) | (mesh.faces >= len(mesh.vertices))
        face = int(np.argmax(wrong.any(axis=1)))
        raise SourceError(
            f"face {face:,} refers to a vertex that does not exist; the model has "
            f"{show_count(len(mesh.vertices), 'vertex', 'vertices')}"
        )


# --------------------------------------------------------------------------------------------------------------- conversion


def _convert(scene: Any, options: MeshParams) -> bytes:
    trimesh = library("trimesh")
    meshes = {}
    for name, mesh in scene.geometry.items():
        meshes[name] = _transform(trimesh, mesh, options)
        if hasattr(mesh.visual, "material"):
            meshes[name].visual.material = _convert_material(trimesh, mesh.visual.material)
    # `include_normals=None` writes normals only for meshes that have normals.
    product: bytes = trimesh.Scene(meshes).export(file_type="glb", include_normals=None)
    return product


def _convert_material(trimesh: Any, material: Any) -> Any:
    """Return a material of trimesh as glTF has it.

    trimesh's own conversion makes each material a metal, and loses its name, opacity and emitted light.
    """
    opaque, transparent, emitted = (_read_numbers(material.kwargs.get(key, ())) for key in ("d", "tr", "ke"))
    opacity = opaque[0] if opaque else 1 - sum(transparent[:1])
    opacity = min(max(opacity, 0.0), 1.0) or 1.0  # some programs write `Tr 1` or `d 0` for opaque materials
    colour = [*material.diffuse[:3]] if "kd" in material.kwargs else [255, 255, 255]
    return trimesh.visual.material.PBRMaterial(
        name=material.name,
        baseColorTexture=material.image,
        baseColorFactor=[*colour, round(255 * opacity)],
        metallicFactor=0.0,
        roughnessFactor=(2 / (2 + max(0.0, material.glossiness))) ** 0.25,
        emissiveFactor=[min(max(each, 0.0), 1.0) for each in emitted[:3]] if emitted else None,
        alphaMode="BLEND" if opacity < 1 else None,
    )


def _read_numbers(words: Iterable[str]) -> list[float]:
    """Return the numbers of a line of a material file; [] for a colour that is not RGB (spectral, xyz)."""
    try:
        return [float(word) for word in words]
    except ValueError:
        return []


def _transform(trimesh: Any, mesh: Any, options: MeshParams) -> Any:
    import numpy as np

    _check_range(mesh.vertices * float(options.scale), "coordinate")
    _check_range(getattr(mesh.visual, "uv", None), "texture coordinate")
    if options.merge_vertices:
        _merge_vertices(mesh, by_normals=options.normals == "keep")
    normals = None
    if options.normals == "smooth":
        normals = _smooth_normals(mesh)
    elif options.normals == "keep" and "vertex_normals" in mesh._cache:  # noqa: SLF001 -- trimesh's own writer does the same
        normals = np.array(mesh.vertex_normals)
    turn = np.array([[1, 0, 0], [0, 0, 1], [0, -1, 0]] if options.up_axis == "z" else np.eye(3), dtype="float64")
    vertices, faces, visual = mesh.vertices, mesh.faces, mesh.visual
    if visual.kind == "face":
        # glTF stores colours at vertices, so each face gets separate vertices. Otherwise trimesh would blend the colours of
        # adjacent faces.
        corners, count = faces.reshape(-1), len(faces)
        vertices, faces = vertices[corners], np.arange(3 * count).reshape(count, 3)
        normals = None if normals is None else normals[corners]
        visual = trimesh.visual.ColorVisuals(vertex_colors=np.repeat(visual.face_colors, 3, axis=0))
    # This function makes a new mesh, because trimesh keeps the old normals of a mesh whose vertices are replaced.
    return trimesh.Trimesh(
        vertices=vertices @ turn.T * float(options.scale),
        faces=faces,
        vertex_normals=None if normals is None else normals @ turn.T,
        visual=visual,
        process=False,
    )


def _check_range(rows: Any, what: str) -> None:
    """Refuse numbers of vertices that are not finite as 32-bit floats, which glTF stores."""
    import numpy as np

    with np.errstate(over="ignore"):
        is_finite = np.ones(1, bool) if rows is None else np.isfinite(np.asarray(rows).astype("f4")).all(axis=1)
    if not is_finite.all():
        raise SourceError(f"vertex {int(np.argmin(is_finite)):,} has a {what} that is too large for a 32-bit number")


def _merge_vertices(mesh: Any, *, by_normals: bool) -> None:
    """Merge equal vertices. trimesh compares positions, normals and texture coordinates; this function also compares colours.

    Positions are equal if their first 9 digits are, counted from the first digit of the largest coordinate.
    """
    import numpy as np

    digits = 8 - math.floor(math.log10(max(float(np.abs(mesh.vertices).max()), _LEAST_SIZE)))
    has_normals = by_normals and "vertex_normals" in mesh._cache  # noqa: SLF001 -- trimesh's own writer does the same
    if has_normals:
        # The normals are also stored as an attribute, because trimesh deletes normals when faces change, but not attributes.
        mesh.vertex_attributes["normals"] = np.array(mesh.vertex_normals)
    if mesh.visual.kind == "vertex":
        columns = [mesh.vertices.round(digits), mesh.visual.vertex_colors]
        columns += [mesh.vertex_normals.round(2)] if has_normals else []
        _, first, places = np.unique(np.column_stack(columns), axis=0, return_index=True, return_inverse=True)
        order = np.argsort(first)
        mesh.update_vertices(first[order], inverse=np.argsort(order)[places.reshape(-1)])
    else:
        mesh.merge_vertices(merge_norm=not by_normals, digits_vertex=digits)
    if has_normals:
        mesh.vertex_normals = mesh.vertex_attributes.pop("normals")


def _smooth_normals(mesh: Any) -> Any:
    """Return equal normals for vertices at the same position; each face is weighted by its area."""
    import numpy as np

    _, places = np.unique(mesh.vertices, axis=0, return_inverse=True)
    places = places.reshape(-1)
    corners = mesh.vertices[mesh.faces]
    across = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    sums = np.zeros((int(places.max()) + 1, 3))
    for corner in range(3):
        np.add.at(sums, places[mesh.faces[:, corner]], across)
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    sums = np.where(lengths > 0, sums / np.where(lengths > 0, lengths, 1), [0.0, 1.0, 0.0])
    return sums[places]
