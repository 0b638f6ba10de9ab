"""Checks a glTF 2.0 document: its references, and the data of its accessors.

`Checker(document, read).check()` fills the lists `errors` and `warnings`; each entry is one line. The line identifies an object
by its index and name; for an accessor, the line also names the first object that uses the accessor. After the first mistake in an
object, the rest of this object is not checked; objects that use this object are still checked. Draco, meshopt and quantised meshes
are supported; other extensions are not checked.

Tests: `tests/builders/test_gltf_check.py`.
"""

from __future__ import annotations

from typing import Any

from aptui.builders.common import show_count
from aptui.builders.gltf.data import FLOAT, INDEX_TYPES, NAMES, GltfContents, coordinates_of, count_of, is_number, texture_infos
from aptui.builders.gltf.file import BrokenGltfError, Object, as_object, as_objects, media_type, picture_mistake, uri_bytes

_ATTRIBUTE_TYPES = {
    "POSITION": ("VEC3",),
    "NORMAL": ("VEC3",),
    "TANGENT": ("VEC4",),
    "TEXCOORD": ("VEC2",),
    "COLOR": ("VEC3", "VEC4"),
    "JOINTS": ("VEC4",),
    "WEIGHTS": ("VEC4",),
}
_TEXTURES = frozenset({"baseColorTexture", "metallicRoughnessTexture", "normalTexture", "occlusionTexture", "emissiveTexture"})
_TARGET_TYPES = {"POSITION": ("VEC3",), "NORMAL": ("VEC3",), "TANGENT": ("VEC3",), "TEXCOORD": ("VEC2",), "COLOR": ("VEC3", "VEC4")}
_RESTARTS = {5121: 0xFF, 5123: 0xFFFF, 5125: 0xFFFFFFFF}
"""{componentType of indices: the index that would restart a primitive, which glTF forbids} (§3.7.2.1)."""

_INFLUENCES = ("JOINTS_", "WEIGHTS_")
_LARGEST_ROUNDING = 0.01
"""Maximum difference between 1 and the sum of a vertex's weights, because many exporters round weights."""

_OUTPUT_TYPES = {"translation": "VEC3", "rotation": "VEC4", "scale": "VEC3", "weights": "SCALAR"}


class Checker(GltfContents):
    """Checks one document; `read` fetches the files that the document names."""

    def check(self) -> None:
        """Check the whole document."""
        with self._name_errors(""):
            self._check_asset()
            self._check_lists()
        if self.errors:
            return
        self._name_users()
        self._check_data()
        self._each("images", self._check_image)
        self._each("textures", self._check_texture)
        self._each("materials", lambda _index, material: self._check_textures_of(material))
        for index, mesh in enumerate(self._all("meshes")):
            self._check_mesh(index, mesh)
        self._each("skins", self._check_skin)
        self._each("nodes", self._check_node)
        self._check_tree()
        self._each("animations", self._check_animation)

    # --------------------------------------------------------------------------------------------------------------- asset

    def _check_asset(self) -> None:
        asset = self._tree.get("asset")
        if not isinstance(asset, dict) or not isinstance(asset.get("version"), str):
            raise BrokenGltfError("the file has no asset.version, which every glTF file must have")
        version = asset.get("minVersion") or asset["version"]
        if not isinstance(version, str) or version.split(".")[0] != "2":
            raise BrokenGltfError(f"the file has glTF version {version}; only version 2 is supported")
        used, required = (self._tree.get(f"extensions{which}", []) for which in ("Used", "Required"))
        if not all(isinstance(each, list) and all(isinstance(name, str) for name in each) for each in (used, required)):
            raise BrokenGltfError("'extensionsUsed' or 'extensionsRequired' is not a list of names")
        for name in required:
            if name not in used:
                self.warnings.append(f"extension {name!r} is in 'extensionsRequired', but not in 'extensionsUsed'")

    def _check_lists(self) -> None:
        for name, singular in NAMES.items():
            listed = self._tree.get(name, [])
            if not isinstance(listed, list):
                raise BrokenGltfError(f"'{name}' is not a list")
            for index, each in enumerate(listed):
                if not isinstance(each, dict):
                    raise BrokenGltfError(f"{singular} {index} is not an object")

    def _name_users(self) -> None:
        """Record the first object that uses each accessor, because messages about the accessor name this object."""

        def name(value: object, text: str) -> None:
            if isinstance(value, int):
                self._users.setdefault(value, text)

        for index, mesh in enumerate(self._all("meshes")):
            for number, primitive in enumerate(as_objects(mesh.get("primitives"))):
                where = f"of {_quote('mesh', index, mesh)}, primitive {number}"
                for key, value in as_object(primitive.get("attributes")).items():
                    name(value, f"'{key}' {where}")
                name(primitive.get("indices"), f"indices {where}")
                for order, target in enumerate(as_objects(primitive.get("targets"))):
                    for key, value in target.items():
                        name(value, f"'{key}' {where}, target {order}")
        for index, skin in enumerate(self._all("skins")):
            name(skin.get("inverseBindMatrices"), f"inverse bind matrices of {_quote('skin', index, skin)}")
        for index, animation in enumerate(self._all("animations")):
            for number, sampler in enumerate(as_objects(animation.get("samplers"))):
                for key in ("input", "output"):
                    name(sampler.get(key), f"{key} of {_quote('animation', index, animation)}, sampler {number}")

    # ------------------------------------------------------------------------------------------------------------- pictures

    def _check_image(self, _index: int, image: Object) -> None:
        if ("uri" in image) == ("bufferView" in image):
            raise BrokenGltfError("an image must have either a 'uri' or a 'bufferView'")
        if "uri" in image:
            if not isinstance(image["uri"], str):
                raise BrokenGltfError("'uri' is not a string")
            data: bytes | None = uri_bytes(image["uri"], self._read)
        else:
            if not isinstance(image.get("mimeType"), str):
                raise BrokenGltfError("an image in a bufferView must have a 'mimeType'")
            data = self.view_bytes(self._index("bufferViews", image["bufferView"], "bufferView"))
        if data is None:
            return
        kind, declared_type = media_type(data), image.get("mimeType")
        if not kind:
            raise BrokenGltfError("the data is not an image in a known format (PNG, JPEG, WebP, KTX2, DDS)")
        if declared_type is not None and declared_type != kind:
            raise BrokenGltfError(f"'mimeType' is {declared_type!r}, but the data is {kind}")
        self.expand(len(data))
        if mistake := picture_mistake(data):
            raise BrokenGltfError(mistake)

    def _check_texture(self, _index: int, texture: Object) -> None:
        self._one("images", texture, "source")
        self._one("samplers", texture, "sampler")
        for name, extension in as_object(texture.get("extensions")).items():
            with_source = as_object(extension)
            if "source" in with_source:
                self._index("images", with_source["source"], f"source of {name}")

    def _check_textures_of(self, holder: Object, way: str = "") -> None:
        """Check every key `…Texture` of a material and of its extensions."""
        for key, value in holder.items():
            if not isinstance(value, dict):
                continue
            if key in _TEXTURES and "index" not in value:
                raise BrokenGltfError(f"{way}{key} has no index")
            if key.endswith("Texture") and "index" in value:
                self._index("textures", value["index"], f"{way}{key}.index")
            if key != "extras":
                self._check_textures_of(value, f"{way}{key}.")

    # --------------------------------------------------------------------------------------------------------------- meshes

    def _check_mesh(self, index: int, mesh: Object) -> None:
        name = self._name_of("meshes", index)
        primitives = as_objects(mesh.get("primitives"))
        if not primitives:
            self.errors.append(f"{name}: the mesh has no primitives")
        for number, primitive in enumerate(primitives):
            with self._name_errors(f"{name}, primitive {number}"):
                self._check_primitive(primitive)
                self._check_coordinates(f"{name}, primitive {number}", primitive)

    def _check_primitive(self, primitive: Object) -> None:
        attributes = as_object(primitive.get("attributes"))
        if not attributes:
            raise BrokenGltfError("the primitive has no attributes")
        self._one("materials", primitive, "material")
        mode = primitive.get("mode", 4)
        if mode not in range(7) or isinstance(mode, bool):
            raise BrokenGltfError(f"'mode' is {mode!r}, but must be a number from 0 to 6")
        count = self._vertex_count(attributes, _ATTRIBUTE_TYPES)
        self._check_influences(attributes)
        for order, target in enumerate(as_objects(primitive.get("targets"))):
            if target and self._vertex_count(target, _TARGET_TYPES) != count:
                raise BrokenGltfError(f"morph target {order} must have as many vertices as the primitive ({count:,})")
        indices = self._one("accessors", primitive, "indices")
        if indices is not None and indices not in self._bad:
            self._check_indices(indices, count)

    def _check_coordinates(self, name: str, primitive: Object) -> None:
        """Warn of texture coordinates that the material needs and the primitive does not have (§3.9.2)."""
        if "material" in primitive:
            material = self._all("materials")[primitive["material"]]
            for channel in sorted({coordinates_of(info) for info in texture_infos(material)}):
                if f"TEXCOORD_{channel}" not in primitive["attributes"]:
                    self.warnings.append(f"{name}: the primitive has no TEXCOORD_{channel}, which its material needs")

    def _vertex_count(self, attributes: Object, types: dict[str, tuple[str, ...]]) -> int:
        """Return the number of vertices, which must be the same for all `attributes`."""
        counts: dict[str, int] = {}
        for key in attributes:
            index = self._index("accessors", attributes[key], f"attribute '{key}'")
            accessor = self._all("accessors")[index]
            value_types = types.get(key if key in types else key.rpartition("_")[0])
            if value_types and accessor.get("type") not in value_types:
                raise BrokenGltfError(
                    f"attribute '{key}' has the type {accessor.get('type')!r}, but must be {' or '.join(value_types)}"
                )
            counts[key] = count_of(accessor, "count")
        if len(set(counts.values())) > 1:
            raise BrokenGltfError(
                "all attributes must have the same number of values: "
                f"{', '.join(f'{key} {count:,}' for key, count in counts.items())}"
            )
        return next(iter(counts.values()), 0)

    def _check_influences(self, attributes: Object) -> None:
        """Check that every set of joints has weights, that no weight is negative, and that their sum is 1 (§3.7.3.3)."""
        joints, weights = ({key.removeprefix(kind) for key in attributes if key.startswith(kind)} for kind in _INFLUENCES)
        for number in sorted(joints ^ weights):
            missing, given = ("WEIGHTS", "JOINTS") if number in joints else ("JOINTS", "WEIGHTS")
            raise BrokenGltfError(f"the primitive has {given}_{number}, but no {missing}_{number}")
        sums: Any = 0
        for number in sorted(weights):
            accessor = attributes[f"WEIGHTS_{number}"]
            if self._once("lowest", accessor, lambda array: float(array.min())) is None:
                return
            if self._known["lowest", accessor] < 0:
                raise BrokenGltfError(f"attribute 'WEIGHTS_{number}' has negative weights")
            sums = sums + self._once("sums", accessor, lambda array: self._np.asarray(array, "float64").sum(axis=1))
        if weights and self._all("accessors")[attributes[f"WEIGHTS_{min(weights)}"]]["componentType"] == FLOAT:
            wrong = self._np.abs(sums - 1) > _LARGEST_ROUNDING
            if wrong.any():
                at = int(wrong.argmax())
                where = self._describe_accessor(attributes[f"WEIGHTS_{min(weights)}"])
                self.warnings.append(f"{where}: the weights of vertex {at:,} add up to {sums[at]:.3g}, not to 1")

    def _check_skin_of(self, node: Object) -> None:
        """Check that the joints of a mesh exist in the skin of the node that has the mesh."""
        mesh, skin = self._one("meshes", node, "mesh"), self._one("skins", node, "skin")
        if mesh is None or skin is None:
            return
        joints = self._all("skins")[skin].get("joints")
        count = len(joints) if isinstance(joints, list) else 0
        for number, primitive in enumerate(as_objects(self._all("meshes")[mesh].get("primitives"))):
            attributes = as_object(primitive.get("attributes"))
            found = [key for key in attributes if key.startswith("JOINTS_") and isinstance(attributes[key], int)]
            if not found:
                self.warnings.append(
                    f"{self._name_of('meshes', mesh)}, primitive {number}: the mesh has a skin, but this primitive has no joints"
                )
            for key in found:
                highest = self._once("highest", attributes[key], lambda array: (int(array.max()), int(array.argmax())))
                if highest is not None and highest[0] >= count:
                    raise BrokenGltfError(
                        f"joint {highest[0]:,} of attribute '{key}' of mesh {mesh}, primitive {number}, "
                        f"is not in skin {skin}, which has {show_count(count, 'joint')}"
                    )

    def _check_indices(self, index: int, count: int) -> None:
        accessor = self._all("accessors")[index]
        if accessor["type"] != "SCALAR" or accessor["componentType"] not in INDEX_TYPES:
            raise BrokenGltfError("the indices must have the type SCALAR and an unsigned componentType (5121, 5123 or 5125)")
        found = self._once("highest", index, lambda array: (int(array.max()), int(array.argmax())))
        if found is None:
            return
        highest, at = found
        if highest == _RESTARTS[accessor["componentType"]]:
            raise BrokenGltfError(
                f"index {at:,} (accessor {index}) is {highest:,}, which glTF forbids, because some engines begin a new primitive "
                "there"
            )
        if highest >= count:
            vertices = show_count(count, "vertex", "vertices")
            raise BrokenGltfError(f"index {at:,} (accessor {index}) is {highest:,}, but the primitive has only {vertices}")

    # ---------------------------------------------------------------------------------------------------------------- nodes

    def _check_skin(self, _index: int, skin: Object) -> None:
        joints = self._some("nodes", skin, "joints")
        if not joints:
            raise BrokenGltfError("the skin has no joints")
        if len(set(joints)) < len(joints):
            raise BrokenGltfError("the skin lists a joint twice")
        self._one("nodes", skin, "skeleton")
        matrices = self._one("accessors", skin, "inverseBindMatrices")
        if matrices is None or matrices in self._bad:
            return
        accessor = self._all("accessors")[matrices]
        if (accessor["type"], accessor["componentType"]) != ("MAT4", FLOAT):
            raise BrokenGltfError("'inverseBindMatrices' must have the type MAT4 and the componentType 5126 (float)")
        if accessor["count"] < len(joints):
            raise BrokenGltfError(
                f"the skin has {show_count(len(joints), 'joint')}, but only {accessor['count']:,} 'inverseBindMatrices'"
            )

    def _some(self, kind: str, holder: Object, key: str) -> list[int]:
        listed = holder.get(key, [])
        if not isinstance(listed, list):
            raise BrokenGltfError(f"'{key}' is not a list")
        return [self._index(kind, each, f"{key}[{number}]") for number, each in enumerate(listed)]

    def _check_node(self, _index: int, node: Object) -> None:
        for kind, key in (("meshes", "mesh"), ("skins", "skin"), ("cameras", "camera")):
            self._one(kind, node, key)
        if "skin" in node and "mesh" not in node:
            raise BrokenGltfError("the node has a skin, but no mesh")
        self._check_skin_of(node)
        for key, length in (("matrix", 16), ("translation", 3), ("rotation", 4), ("scale", 3)):
            given = node.get(key, [0] * length)
            if not isinstance(given, list) or len(given) != length or not all(map(is_number, given)):
                raise BrokenGltfError(f"{key} must have {length} numbers")
        self._some("nodes", node, "children")

    def _check_tree(self) -> None:
        """Check that every node has at most one parent and is not its own descendant, and that scenes contain only root nodes."""
        parents: dict[int, int] = {}
        nodes = self._all("nodes")
        for index, node in enumerate(nodes):
            with self._name_errors(self._name_of("nodes", index)):
                for child in dict.fromkeys(self._valid(node.get("children"), len(nodes))):
                    if child in parents:
                        raise BrokenGltfError(
                            f"node {child} is a child of this node and of node {parents[child]}, but may have only one parent"
                        )
                    parents[child] = index
        with self._name_errors("nodes"):
            self._refuse_cycles(parents)
        for index, scene in enumerate(self._all("scenes")):
            with self._name_errors(self._name_of("scenes", index)):
                for node_index in self._some("nodes", scene, "nodes"):
                    if node_index in parents:
                        self.warnings.append(
                            f"{self._name_of('scenes', index)}: node {node_index} is not a root, "
                            f"because it is a child of node {parents[node_index]}"
                        )
        with self._name_errors(""):
            self._one("scenes", self._tree, "scene")

    @staticmethod
    def _valid(listed: object, count: int) -> list[int]:
        return [each for each in listed if isinstance(each, int) and 0 <= each < count] if isinstance(listed, list) else []

    @staticmethod
    def _refuse_cycles(parents: dict[int, int]) -> None:
        done: set[int] = set()
        for first in parents:
            way: dict[int, None] = {}
            node: int | None = first
            while node is not None and node not in done:
                if node in way:
                    cycle = [*way][[*way].index(node) :]
                    raise BrokenGltfError(f"{', '.join(map(str, sorted(cycle)))} are children of each other in a cycle")
                way[node] = None
                node = parents.get(node)
            done.update(way)

    # ----------------------------------------------------------------------------------------------------------- animations

    def _check_animation(self, _index: int, animation: Object) -> None:
        samplers, channels = as_objects(animation.get("samplers")), as_objects(animation.get("channels"))
        if not samplers or not channels:
            raise BrokenGltfError("the animation must have samplers and channels")
        for number, sampler in enumerate(samplers):
            self._check_sampler(number, sampler)
        for number, channel in enumerate(channels):
            which = channel.get("sampler")
            if not isinstance(which, int) or not 0 <= which < len(samplers):
                raise BrokenGltfError(
                    f"channel {number}: 'sampler' is {which!r}, but the animation has "
                    f"{show_count(len(samplers), 'sampler')} (numbered from 0)"
                )
            target = as_object(channel.get("target"))
            self._one("nodes", target, "node")
            path = target.get("path")
            if isinstance(path, str) and path in _OUTPUT_TYPES:
                output = self._all("accessors")[samplers[which]["output"]]
                if output.get("type") != _OUTPUT_TYPES[path]:
                    raise BrokenGltfError(
                        f"channel {number}: the output values of a {path} must have the type {_OUTPUT_TYPES[path]}, not "
                        f"{output.get('type')}"
                    )
            elif path != "pointer":
                raise BrokenGltfError(f"channel {number}: 'path' is {path!r}, but must be one of {', '.join(_OUTPUT_TYPES)}")

    def _check_sampler(self, number: int, sampler: Object) -> None:
        way = sampler.get("interpolation", "LINEAR")
        if way not in ("LINEAR", "STEP", "CUBICSPLINE"):
            raise BrokenGltfError(f"sampler {number}: 'interpolation' is {way!r}, but must be LINEAR, STEP or CUBICSPLINE")
        times = self._one("accessors", sampler, "input", is_needed=True)
        values = self._one("accessors", sampler, "output", is_needed=True)
        if times is None or values is None or {times, values} & self._bad:
            return
        entry, output = self._all("accessors")[times], self._all("accessors")[values]
        if (entry["type"], entry["componentType"]) != ("SCALAR", FLOAT):
            raise BrokenGltfError(f"sampler {number}: its input (accessor {times}) must be SCALAR floats")
        if self._once("falls", times, lambda array: bool((self._np.diff(array[:, 0]) <= 0).any() or array[0, 0] < 0)):
            raise BrokenGltfError(
                f"sampler {number}: the times of the input (accessor {times}) must not be negative, and each must be later "
                "than the previous time"
            )
        expected_count = entry["count"] * (3 if way == "CUBICSPLINE" else 1)
        is_list = output["type"] == "SCALAR"  # an animation of weights has, at each time, one weight for each morph target
        if output["count"] % expected_count if is_list else output["count"] != expected_count:
            raise BrokenGltfError(
                f"sampler {number}: the number of output values, {output['count']:,}, does not fit the "
                f"{show_count(entry['count'], 'time')} ({way})"
            )


def _quote(kind: str, index: int, each: Object) -> str:
    name = each.get("name")
    return f"{kind} '{name}'" if isinstance(name, str) and name else f"{kind} {index}"
