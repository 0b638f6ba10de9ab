"""Rewrites a checked glTF document to make it smaller and faster to draw.

It drops objects that no scene shows, and stores equal data once. Primitives of triangles get new accessors: sorted for GPU caches,
and optionally quantised (`gltf.geometry`). All other accessors are copied without gaps. Section numbers are those of the glTF 2.0
specification.

Tests: `tests/builders/test_gltf_rewriting.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from aptui.builders.gltf import geometry
from aptui.builders.gltf.data import SHAPES, GltfContents, coordinates_of, texture_infos
from aptui.builders.gltf.file import MESHOPT, BrokenGltfError, Document, Object, as_object, as_objects, has_no_bytes
from aptui.builders.gltf.tangents import compute_tangents

QUANTISATION = "KHR_mesh_quantization"

_KNOWN = frozenset({
    QUANTISATION, "EXT_mesh_gpu_instancing", "EXT_texture_avif", "EXT_texture_webp", "KHR_lights_punctual",
    "KHR_materials_variants", "KHR_texture_basisu", "KHR_texture_transform", "KHR_xmp_json_ld", "MSFT_texture_dds",
})  # fmt: skip
"""Extensions whose references to objects are known.

Extensions of materials (KHR_materials_…) are not listed, because all refer to textures in the same way.
"""
_ORDER = "FB_ngon_encoding"
"""Extension that encodes polygons by the order of their triangles; it is dropped, because rewriting changes the order."""
_COMPRESSED = frozenset({*MESHOPT, "KHR_draco_mesh_compression"})
_PRUNED = ("nodes", "meshes", "skins", "cameras", "materials", "textures", "images", "samplers")
_COMPONENT_OF = {"|i1": 5120, "|u1": 5121, "<i2": 5122, "<u2": 5123, "<u4": 5125, "<f4": 5126}
_VERTICES, _INDICES = 34962, 34963
_TRIANGLES = 4
_NORMAL_MAPS = frozenset({"normalTexture", "clearcoatNormalTexture"})
Tangents = Literal["keep", "needed", "all"]
"""Which primitives without tangents get tangents: none, those with a normal map, or all with normals and texture coordinates."""

Array = Any


class _Reference(NamedTuple):
    """A reference between objects: `holder[key]` is an index into the list `kind`.

    `owner` is the (list, index) of the object that contains the reference.
    """

    owner: tuple[str, int]
    holder: Any
    key: Any
    kind: str

    @property
    def target(self) -> tuple[str, int]:
        return self.kind, self.holder[self.key]


def obstacle(document: Document) -> str:
    """Return why a document can only be packed unchanged; "" if the document can be rewritten."""
    listed = document.tree.get("extensionsUsed", ())
    used = {*_list_extensions(document.tree), *(name for name in listed if isinstance(name, str))}
    if found := sorted(used & _COMPRESSED):
        return f"the model is already compressed ({found[0]})"
    unknown = sorted(name for name in used - _KNOWN - {_ORDER} if not name.startswith("KHR_materials_"))
    if unknown:
        return f"the model uses the extension {unknown[0]}, which may refer to objects by numbers that would change"
    absent = any(has_no_bytes(document, index, each) for index, each in enumerate(as_objects(document.tree.get("buffers"))))
    return "some of its buffers have no data in its files" if absent else ""


def _list_extensions(value: object) -> Iterator[str]:
    """Yield the names of all extensions in an object and below it, even if `extensionsUsed` does not list them."""
    if isinstance(value, dict):
        yield from as_object(value.get("extensions"))
        for key, each in value.items():
            if key != "extras":
                yield from _list_extensions(each)
    elif isinstance(value, list):
        for each in value:
            yield from _list_extensions(each)


def rewrite(document: Document, contents: GltfContents, *, quantises: bool, adds_tangents: Tangents = "keep") -> Document:
    """Return a document of equal appearance with one buffer, its binary chunk. Images in separate files remain separate.

    Args:
        document: a document that passed the checks, and has no `obstacle`; its tree is changed.
        quantises: write attributes as integers where their range allows it (`geometry.quantise_attribute`).
        adds_tangents: compute missing tangents (`tangents.compute_tangents`).
    """
    tree = document.tree
    for each in _references(tree):
        _check_index(tree, each.holder[each.key], each.kind)
    for holder, key in _other_accessors(tree):
        _check_index(tree, holder[key], "accessors")
    _prune(tree)
    _tidy(tree)
    writer = _Writer(tree, contents)
    _Geometry(tree, contents, writer, adds_tangents, quantises=quantises).rewrite()
    for holder, key in _other_accessors(tree):
        holder[key] = writer.copy(holder[key], use="matrices" if key == "inverseBindMatrices" else "")
    for image in as_objects(tree.get("images")):
        if "bufferView" in image:
            image["bufferView"] = writer.add_bytes(contents.view_bytes(image["bufferView"]) or b"")
    chunk = writer.finish()
    return Document(tree, document.size, chunk or None)


# ---------------------------------------------------------------------------------------------------------------- references


def _references(tree: Object) -> Iterator[_Reference]:
    """Yield all references between objects, except those to accessors and buffer views."""
    fields = {
        "scenes": {"nodes": "nodes"},
        "nodes": {"mesh": "meshes", "skin": "skins", "camera": "cameras", "children": "nodes"},
        "skins": {"skeleton": "nodes", "joints": "nodes"},
        "textures": {"source": "images", "sampler": "samplers"},
    }
    for name, kinds in fields.items():
        for index, each in enumerate(tree.get(name, ())):
            for key, kind in kinds.items():
                value = each.get(key)
                holder, keys = (value, range(len(value))) if isinstance(value, list) else (each, [key] if key in each else [])
                yield from (_Reference((name, index), holder, at, kind) for at in keys)
    for name, key, kind in (
        ("meshes", "material", "materials"),
        ("materials", "index", "textures"),
        ("textures", "source", "images"),
    ):
        for index, each in enumerate(tree.get(name, ())):
            yield from (_Reference((name, index), holder, key, kind) for holder in _inner_holders(name, each) if key in holder)


def _inner_holders(name: str, each: Object) -> Iterator[Object]:
    """Yield the members of a mesh, material or texture that refer to other objects."""
    match name:
        case "meshes":
            for primitive in each["primitives"]:
                variants = as_object(as_object(primitive.get("extensions")).get("KHR_materials_variants"))
                yield from (primitive, *as_objects(variants.get("mappings")))
        case "materials":
            yield from texture_infos(each)
        case _:
            yield from map(as_object, as_object(each.get("extensions")).values())


def _check_index(tree: Object, value: object, kind: str) -> None:
    """Reject an invalid index in an extension, because the checks of the document do not cover extensions."""
    if not isinstance(value, int) or not 0 <= value < len(tree.get(kind, ())):
        raise BrokenGltfError(
            f"an extension refers to number {value!r} of the {kind}, but the model has {len(tree.get(kind, ()))} (numbered from 0)"
        )


def _other_accessors(tree: Object) -> Iterator[tuple[Object, str]]:
    """Yield (holder, key) of each reference to an accessor in a skin, an animation or a node."""
    for skin in tree.get("skins", ()):
        if "inverseBindMatrices" in skin:
            yield skin, "inverseBindMatrices"
    for animation in tree.get("animations", ()):
        for sampler in animation["samplers"]:
            yield sampler, "input"
            yield sampler, "output"
    for node in tree.get("nodes", ()):
        instancing = as_object(as_object(node.get("extensions")).get("EXT_mesh_gpu_instancing"))
        attributes = as_object(instancing.get("attributes"))
        yield from ((attributes, key) for key in attributes)


def _prune(tree: Object) -> None:
    """Remove the objects that no scene shows, and animations of removed nodes. A document without scenes is a library (§3.5)."""
    if not tree.get("scenes"):
        return
    references = list(_references(tree))
    targets: dict[tuple[str, int], list[tuple[str, int]]] = {}
    for each in references:
        targets.setdefault(each.owner, []).append(each.target)
    todo = [("scenes", index) for index in range(len(tree["scenes"]))]
    seen = set(todo)
    while todo:
        found = set(targets.get(todo.pop(), ())) - seen
        seen |= found
        todo += found
    _prune_animations(tree, seen)
    channels = [channel["target"] for each in tree.get("animations", ()) for channel in each["channels"]]
    references += [_Reference(("scenes", 0), target, "node", "nodes") for target in channels if "node" in target]
    for kind in _PRUNED:
        listed = tree.get(kind, [])
        remaining = [index for index in range(len(listed)) if (kind, index) in seen]
        places = {old: new for new, old in enumerate(remaining)}
        for each in references:
            if each.kind == kind and each.owner in seen:
                each.holder[each.key] = places[each.holder[each.key]]
        if remaining:
            tree[kind] = [listed[index] for index in remaining]
        else:
            tree.pop(kind, None)


def _prune_animations(tree: Object, seen: set[tuple[str, int]]) -> None:
    """Remove the channels of removed nodes, and samplers and animations without channels."""
    remaining = []
    for animation in tree.get("animations", ()):
        channels = [each for each in animation["channels"] if ("nodes", each["target"].get("node", -1)) in seen]
        used = sorted({each["sampler"] for each in channels})
        places = {old: new for new, old in enumerate(used)}
        animation["channels"] = [{**each, "sampler": places[each["sampler"]]} for each in channels]
        animation["samplers"] = [animation["samplers"][index] for index in used]
        remaining += [animation] if channels else []
    tree["animations"] = remaining
    if not remaining:
        del tree["animations"]


def _tidy(tree: Object) -> None:
    """Drop FB_ngon_encoding and empty lists, and complete `extensionsUsed`."""
    for primitive in (each for mesh in tree.get("meshes", ()) for each in mesh["primitives"]):
        extensions = primitive.get("extensions")
        if isinstance(extensions, dict) and extensions.pop(_ORDER, None) is not None and not extensions:
            del primitive["extensions"]
    used = dict.fromkeys((*tree.get("extensionsUsed", ()), *sorted(set(_list_extensions(tree)))))
    tree["extensionsUsed"] = [name for name in used if name != _ORDER]
    for key in [key for key, value in tree.items() if value == [] and key != "extras"]:
        del tree[key]  # the specification does not allow empty lists (§3.3)


# ---------------------------------------------------------------------------------------------------------------- geometry


class _Geometry:
    """Replaces the accessors of triangle primitives. Primitives that share vertices still share them."""

    def __init__(self, tree: Object, contents: GltfContents, writer: _Writer, adds_tangents: Tangents, *, quantises: bool) -> None:
        self._tree = tree
        self._contents = contents
        self._writer = writer
        self._adds_tangents = adds_tangents
        self._quantises = quantises
        self._users: dict[int, list[Object]] = {}
        for node in tree.get("nodes", ()):
            if "mesh" in node:
                self._users.setdefault(node["mesh"], []).append(node)

    def rewrite(self) -> None:
        """Rewrite all meshes of the tree."""
        sets: dict[str, list[Object]] = {}
        scales: dict[str, tuple[Array, float] | None] = {}
        for index, mesh in enumerate(self._tree.get("meshes", ())):
            scale = self._scale_of(index, mesh) if self._quantises else None
            for primitive in mesh["primitives"]:
                # Meshes share positions only if they are not scaled, because each scaled mesh has a scale of its own.
                key = json.dumps([primitive["attributes"], primitive.get("targets"), index if scale else None], sort_keys=True)
                sets.setdefault(key, []).append(primitive)
                scales[key] = scale
            if scale:
                self._scale_nodes(index, *scale)
        for key, primitives in sets.items():
            self._rewrite_set(primitives, scales[key])

    def _rewrite_set(self, primitives: list[Object], scale: tuple[Array, float] | None) -> None:
        """Rewrite the primitives that share one set of vertices."""
        import numpy as np

        first = primitives[0]
        holders = [first["attributes"], *as_objects(first.get("targets"))]
        names = [(number, name) for number, holder in enumerate(holders) for name in holder]
        sources = [self._contents.accessor(holders[number][name]) for number, name in names]
        arrays = [self._contents.array_of(holders[number][name]) for number, name in names]
        indices = {each.get("indices"): self._indices(each) for each in primitives}
        is_ordered = all(each.get("mode", _TRIANGLES) == _TRIANGLES for each in primitives)
        is_ordered &= all(each is not None and len(each) and not len(each) % 3 for each in indices.values())
        is_ordered &= all(each is not None for each in arrays)
        self._contents.expand(sum(each.nbytes for each in arrays if each is not None))
        if is_ordered:
            lists: list[Array] = list(indices.values())
            tangents = self._tangents(primitives, names, sources, arrays, lists)
            if tangents is not None:
                names, sources = [*names, (0, "TANGENT")], [*sources, {"type": "VEC4"}]
                arrays, lists = self._split_corners(arrays, lists, tangents)
            arrays, lists = geometry.order_vertices(arrays, lists)
            indices = dict(zip(indices, lists, strict=True))
        new: list[Object] = [{} for _ in holders]
        for (number, name), source, array in zip(names, sources, arrays, strict=True):
            if array is None:
                new[number][name] = self._writer.copy(holders[number][name])
            else:
                stored, more = self._narrow(name, array, scale, is_target=number > 0)
                bounds = {"min": ()} if name == "POSITION" else {}
                new[number][name] = self._writer.add(stored, {**source, **bounds, **more}, _VERTICES)
        vertices = len(arrays[0]) if arrays[0] is not None else sources[0]["count"]
        for each in primitives:
            found = indices[each.get("indices")]
            if found is not None and ("indices" in each or is_ordered):
                narrow = geometry.to_indices(np.asarray(found), vertices)
                each["indices"] = self._writer.add(narrow, {"type": "SCALAR"}, _INDICES)
            elif "indices" in each:
                each["indices"] = self._writer.copy(each["indices"], _INDICES)
            each["attributes"] = dict(new[0])
            if "targets" in each:
                each["targets"] = [dict(target) for target in new[1:]]

    def _tangents(
        self,
        primitives: list[Object],
        names: list[tuple[int, str]],
        sources: list[Object],
        arrays: list[Array],
        lists: list[Array],
    ) -> Array | None:
        """Return a tangent for each corner of the lists of triangles, None if these primitives get none."""
        import numpy as np

        channels = [channel for each in primitives if (channel := self._normal_map_channel(each)) is not None]
        channel = min(channels, default=0 if self._adds_tangents == "all" else None)
        needed = ("POSITION", "NORMAL", f"TEXCOORD_{channel}")
        found = {name: at for at, (number, name) in enumerate(names) if number == 0}
        if self._adds_tangents == "keep" or channel is None or "TANGENT" in found or not all(name in found for name in needed):
            return None
        numbers = [geometry.to_floats(arrays[found[name]], sources[found[name]]) for name in needed]
        return np.vstack([compute_tangents(*(each[triangles] for each in numbers)) for triangles in lists])

    def _split_corners(self, arrays: list[Array], lists: list[Array], tangents: Array) -> tuple[list[Array], list[Array]]:
        """Return the arrays with `tangents`, and the lists of triangles, with a separate vertex for each corner."""
        import numpy as np

        corners = np.concatenate(lists)
        self._contents.expand(sum(each.nbytes // len(each) for each in (*arrays, tangents)) * len(corners))
        places = np.split(np.arange(len(corners)), np.cumsum([len(each) for each in lists])[:-1])
        return [*(each[corners] for each in arrays), tangents], places

    def _normal_map_channel(self, primitive: Object) -> int | None:
        """Return the set of texture coordinates of the primitive's first normal map, None if it has no normal map."""
        for holder in _inner_holders("meshes", {"primitives": [primitive]}):
            if "material" in holder:
                for info in texture_infos(self._tree["materials"][holder["material"]], _NORMAL_MAPS):
                    return coordinates_of(info)
        return None

    def _indices(self, primitive: Object) -> Array | None:
        """Return the flat indices of a primitive; None if they cannot be read."""
        import numpy as np

        if "indices" in primitive:
            array = self._contents.array_of(primitive["indices"])
            return None if array is None else array[:, 0].astype("int64")
        if primitive.get("mode", _TRIANGLES) != _TRIANGLES:
            return None
        count = self._contents.accessor(next(iter(primitive["attributes"].values())))["count"]
        return np.arange(count)

    def _narrow(self, name: str, array: Array, scale: tuple[Array, float] | None, *, is_target: bool) -> tuple[Array, Object]:
        """Return an attribute and the new members of its accessor.

        Joint numbers become bytes if all are below 256. If `quantises` is set, other attributes become integers if their range
        allows it, except those of morph targets and all weights but `WEIGHTS_0`.
        """
        if name.startswith("JOINTS_") and array.dtype.itemsize > 1 and array.max() < 256:
            return array.astype("u1"), {}
        if not self._quantises or is_target:
            return array, {}
        if name == "POSITION" and scale:
            narrow: Array = geometry.quantise_positions(array, *scale)
        elif name.startswith("WEIGHTS_") and name != "WEIGHTS_0":
            narrow = None
        else:
            narrow = geometry.quantise_attribute(name, array)
        if narrow is None:
            return array, {}
        if not name.startswith(("COLOR", "WEIGHTS")):
            _use_extension(self._tree, QUANTISATION)
        # Positions are not normalised, because some readers ignore `normalized` for positions.
        return narrow, {"normalized": name != "POSITION"}

    def _scale_of(self, index: int, mesh: Object) -> tuple[Array, float] | None:
        """Return (middle, half of the longest side) of a mesh whose positions can be quantised.

        Each node that shows the mesh gets a child node that restores the scale. Return None if a node has a skin, weights or
        instances, because these would not affect the child.
        """
        import numpy as np

        users = self._users.get(index, [])
        names = {"skin", "weights", "extensions"}
        if not users or "weights" in mesh or any(names & node.keys() for node in users):
            return None
        found = [primitive["attributes"].get("POSITION") for primitive in mesh["primitives"]]
        arrays: list[Array] = [None if each is None else self._contents.array_of(each) for each in found]
        if any(each is None or each.dtype.kind != "f" for each in arrays) or any("targets" in each for each in mesh["primitives"]):
            return None
        low = np.min([each.min(axis=0) for each in arrays], axis=0).astype("f8")
        high = np.max([each.max(axis=0) for each in arrays], axis=0).astype("f8")
        return (low + high) / 2, float((high - low).max()) / 2 or 1.0

    def _scale_nodes(self, index: int, middle: Array, half: float) -> None:
        for node in self._users[index]:
            del node["mesh"]
            node.setdefault("children", []).append(len(self._tree["nodes"]))
            scale = [half / geometry.LARGEST_POSITION] * 3
            self._tree["nodes"].append({"mesh": index, "translation": middle.tolist(), "scale": scale})


def _use_extension(tree: Object, name: str) -> None:
    for key in ("extensionsUsed", "extensionsRequired"):
        if name not in tree.setdefault(key, []):
            tree[key].append(name)


# ------------------------------------------------------------------------------------------------------------------ writing


class _Writer:
    """Collects accessors and buffer views. Numbers of one stride and use share a buffer view; equal arrays are stored once."""

    def __init__(self, tree: Object, contents: GltfContents) -> None:
        self._tree = tree
        self._contents = contents
        self._pools: dict[tuple[int, int, str], bytearray] = {}
        """{(target, stride, use): bytes}. Each value becomes a buffer view; the views follow the order of the keys.

        A buffer view contains numbers for one use, for example vertices or indices (glTF 2.0, §3.6.2.2).
        """
        self._accessors: list[Object] = []
        self._known: dict[tuple[object, ...], int] = {}
        self._copies: dict[tuple[int, int, str], int] = {}

    def add(self, array: Array, source: Object, target: int = 0, use: str = "") -> int:
        """Return the index of an accessor for `array`, whose shape is (number of elements, numbers in each element).

        The type, name, extras, extensions and `normalized` are those of the accessor `source`. If `source` has `min` or `max`, both
        are computed from `array`.
        """
        import numpy as np

        shape = source["type"]
        columns, rows = SHAPES[shape]
        array = np.ascontiguousarray(array).reshape(len(array), columns, rows)
        padding = -(rows * array.itemsize) % 4 if columns > 1 or target == _VERTICES else 0
        data = array
        if padding:  # columns of matrices (§3.6.2.4) and attributes begin at multiples of 4 bytes
            data = np.zeros((len(array), columns, rows + padding // array.itemsize), array.dtype)
            data[:, :, :rows] = array
        stride = data.itemsize * data.shape[1] * data.shape[2] if target == _VERTICES else 0
        entry: Object = {key: source[key] for key in ("name", "extras", "extensions") if key in source}
        entry |= {"componentType": _COMPONENT_OF[array.dtype.str], "count": len(array), "type": shape}
        if source.get("normalized"):
            entry["normalized"] = True
        if "min" in source or "max" in source:
            flat = array.reshape(len(array), -1)
            entry |= {"min": flat.min(axis=0).tolist(), "max": flat.max(axis=0).tolist()}
        raw = data.tobytes()
        place = (target, stride, array.dtype.str if target == _INDICES else use)
        key = (place, hashlib.sha256(raw).digest(), json.dumps(entry, sort_keys=True))
        if key not in self._known:
            pool = self._pools.setdefault(place, bytearray())
            pool += b"" if target else bytes(-len(pool) % 4)
            view = list(self._pools).index(place)
            self._known[key] = len(self._accessors)
            self._accessors.append({"bufferView": view, "byteOffset": len(pool), **entry})
            pool += raw
        return self._known[key]

    def copy(self, index: int, target: int = 0, use: str = "") -> int:
        """Copy accessor `index` of the source on the first call, and return the index of the copy."""
        key = (index, target, use)
        if key not in self._copies:
            source, array = self._contents.accessor(index), self._contents.array_of(index)
            if array is None:  # in glTF, all elements of an accessor without a buffer view are zero
                self._copies[key] = len(self._accessors)
                self._accessors.append({key: value for key, value in source.items() if key not in ("bufferView", "byteOffset")})
            else:
                self._copies[key] = self.add(array, source, target, use)
        return self._copies[key]

    def add_bytes(self, data: bytes) -> int:
        """Return the index of a buffer view of `data`."""
        key = (0, 0, hashlib.sha256(data).hexdigest())
        self._pools.setdefault(key, bytearray(data))
        return list(self._pools).index(key)

    def finish(self) -> bytes:
        """Put accessors, buffer views and one buffer into the tree, and return the bytes of the buffer."""
        binary = bytearray()
        views: list[Object] = []
        for (target, stride, _), pool in self._pools.items():
            binary += bytes(-len(binary) % 8)
            view: Object = {"buffer": 0, "byteOffset": len(binary), "byteLength": len(pool)}
            if stride:
                view["byteStride"] = stride
            if target:
                view["target"] = target
            views.append(view)
            binary += pool
        for key, listed in (("accessors", self._accessors), ("bufferViews", views)):
            self._tree[key] = listed
            if not listed:
                del self._tree[key]
        self._tree["buffers"] = [{"byteLength": len(binary)}]
        if not binary:
            del self._tree["buffers"]
        return bytes(binary)
