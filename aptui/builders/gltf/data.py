"""Content of a glTF document by index, and the numbers that its accessors refer to. `gltf.check` checks the document.

Tests: `tests/builders/test_gltf_check.py`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from aptui.builders.common import one_line, show_count
from aptui.builders.gltf.file import (
    BrokenGltfError,
    Document,
    Object,
    Read,
    as_object,
    as_objects,
    buffer_bytes,
    find_compressed,
    has_no_bytes,
    is_fallback,
)
from aptui.sdk import NamedFileError

MOST_MISTAKES = 100
"""Maximum number of mistakes reported for one document; a longer list usually has one cause."""

MOST_EXPANDED_PER_BYTE = 64
"""Maximum expanded bytes of all buffers, images and accessors for each byte of the files.

The limit is necessary, because any number of accessors may use the same bytes of a file.
"""

FREE_EXPANDED_BYTES = 256 << 20
"""Expanded bytes that every document may have in addition to `MOST_EXPANDED_PER_BYTE`, even if its files are small.

Sparse morph targets need them, because they take hardly any bytes in a file.
"""

LARGEST_ACCESSOR_BYTES = 1 << 30
"""Maximum size of an accessor.

The limit also holds for accessors that this package does not read, because a game that loads the model allocates them.
"""

_LARGEST_COUNT = 1 << 62

COMPONENTS = {5120: "<i1", 5121: "<u1", 5122: "<i2", 5123: "<u2", 5125: "<u4", 5126: "<f4"}
FLOAT = 5126
SHAPES = {"SCALAR": (1, 1), "VEC2": (1, 2), "VEC3": (1, 3), "VEC4": (1, 4), "MAT2": (2, 2), "MAT3": (3, 3), "MAT4": (4, 4)}
"""{type: (columns, rows)}."""

INDEX_TYPES = (5121, 5123, 5125)
NAMES = {
    "accessors": "accessor",
    "animations": "animation",
    "bufferViews": "buffer view",
    "buffers": "buffer",
    "cameras": "camera",
    "images": "image",
    "materials": "material",
    "meshes": "mesh",
    "nodes": "node",
    "samplers": "sampler",
    "scenes": "scene",
    "skins": "skin",
    "textures": "texture",
}

Array = Any
"""A numpy array of shape (number of elements, components per element); numpy is imported only when needed."""


class GltfContents:
    """The top-level lists of one document. Each entry of `errors` and `warnings` is one line; `read` fetches files."""

    def __init__(self, document: Document, read: Read) -> None:
        self.errors: list[str] = []
        self.warnings: list[str] = list(document.warnings)
        self._np = importlib.import_module("numpy")
        self._document = document
        self._read = self._counting(read)
        self._expandable = FREE_EXPANDED_BYTES + MOST_EXPANDED_PER_BYTE * document.size
        self._tree = document.tree
        self._lists: dict[str, list[Object]] = {}
        self._buffers: dict[int, bytes | None] = {}
        self._users: dict[int, str] = {}
        self._arrays: dict[int, Array] = {}
        self._bad: set[int] = set()
        self._bad_views: set[int] = set()
        self._known: dict[tuple[str, int], Any] = {}

    def _counting(self, read: Read) -> Read:
        """Return a function that calls `read`; the first time that it reads a file, it raises the limit of expanded bytes.

        The limit grows by `MOST_EXPANDED_PER_BYTE` times the size of the file.
        """
        seen: set[str] = set()

        def read_counted(path: str) -> bytes:
            data = read(path)
            if path not in seen:
                seen.add(path)
                self._expandable += MOST_EXPANDED_PER_BYTE * len(data)
            return data

        return read_counted

    def expand(self, size: int) -> None:
        """Subtract `size` bytes from the remaining expanded bytes of the document.

        Raises:
            BrokenGltfError: fewer bytes are left.
        """
        self._expandable -= size
        if self._expandable < 0:
            raise BrokenGltfError("the model would expand to far more bytes than its files have; it is damaged or malicious")

    def _once(self, what: str, index: int, make: Callable[[Array], Any]) -> Any:
        """Return `make(array)` for the array of accessor `index`, and cache it; return None if `array_of` returns None."""
        if index not in self._arrays:
            return None
        if (what, index) not in self._known:
            self._known[what, index] = make(self._arrays[index])
        return self._known[what, index]

    def accessor(self, index: int) -> Object:
        """Return the accessor at `index`."""
        return self._all("accessors")[index]

    def array_of(self, index: int) -> Array | None:
        """Return the elements of a checked accessor as an array of shape (number of elements, components per element).

        Return None if the elements are compressed or all zero.
        """
        return self._arrays.get(index)

    # ------------------------------------------------------------------------------------------------ names and references

    @contextmanager
    def _name_errors(self, name: str) -> Iterator[None]:
        """Turn exceptions that the `with` block raises into an error of the object `name`."""
        try:
            yield
        except (BrokenGltfError, NamedFileError) as error:
            if len(self.errors) < MOST_MISTAKES:
                self.errors.append(f"{name}: {one_line(error)}" if name else one_line(error))

    def _each(self, kind: str, check: Callable[[int, Object], None]) -> None:
        for index, each in enumerate(self._all(kind)):
            with self._name_errors(self._name_of(kind, index)):
                check(index, each)

    def _all(self, kind: str) -> list[Object]:
        if kind not in self._lists:
            self._lists[kind] = as_objects(self._tree.get(kind))
        return self._lists[kind]

    def _name_of(self, kind: str, index: int) -> str:
        name = self._all(kind)[index].get("name")
        return f"{NAMES[kind]} {index}" + (f" ('{name}')" if isinstance(name, str) and name else "")

    def _describe_accessor(self, index: int) -> str:
        """Return the displayed name of an accessor: its index, and the first object that uses it."""
        return f"accessor {index}" + (f" ({self._users[index]})" if index in self._users else "")

    def _one(self, kind: str, holder: Object, key: str, *, is_needed: bool = False) -> int | None:
        """Return the index at `key`, which must be a valid index of the list `kind`; None if the key is missing."""
        if key not in holder:
            if is_needed:
                raise BrokenGltfError(f"'{key}' is missing")
            return None
        return self._index(kind, holder[key], key)

    def _index(self, kind: str, value: object, key: str) -> int:
        count = len(self._all(kind))
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < count:
            raise BrokenGltfError(f"{key} is {value!r}, but the model has {show_count(count, NAMES[kind])} (numbered from 0)")
        return value

    # ------------------------------------------------------------------------------------------------ buffers and accessors

    def _check_data(self) -> None:
        """Check all buffers, buffer views and accessors."""
        self._each("buffers", self._check_buffer)
        for index, view in enumerate(self._all("bufferViews")):
            with self._name_errors(self._name_of("bufferViews", index)):
                self._bad_views.add(index)
                self._check_view(view)
                self._bad_views.discard(index)
        for index, accessor in enumerate(self._all("accessors")):
            with self._name_errors(self._describe_accessor(index)):
                self._bad.add(index)
                self._check_accessor(index, accessor)
                self._bad.discard(index)

    def _check_buffer(self, index: int, buffer: Object) -> None:
        self._buffers[index] = None
        length = count_of(buffer, "byteLength")
        if not length:  # a length of 0 is only a warning, because gltfpack writes an empty buffer for an empty scene
            self.warnings.append(f"buffer {index}: 'byteLength' is 0, but must be at least 1")
        if has_no_bytes(self._document, index, buffer):
            if not is_fallback(buffer):
                self.warnings.append(f"buffer {index}: the buffer has no 'uri', so its {length:,} bytes are not in the model")
            return
        data = buffer_bytes(self._document, index, buffer, self._read)
        if len(data) < length:
            where = (
                f"'{unquote(buffer['uri'])[:80]}'" if not str(buffer.get("uri", "data:")).startswith("data:") else "the data URI"
            )
            raise BrokenGltfError(f"'byteLength' is {length:,}, but {where} has only {show_count(len(data), 'byte')}")
        if "uri" not in buffer and len(data) > length + 3:
            self.warnings.append(f"buffer {index}: 'byteLength' is {length:,}, but the binary chunk has {len(data):,} bytes")
        self.expand(length)
        self._buffers[index] = data

    def _check_view(self, view: Object) -> None:
        buffer = self._one("buffers", view, "buffer", is_needed=True)
        assert buffer is not None
        for compressed in find_compressed(view):
            self._one("buffers", compressed, "buffer")
        offset, length = count_of(view, "byteOffset"), count_of(view, "byteLength", least=1)
        size = count_of(self._all("buffers")[buffer], "byteLength")
        if offset + length > size:
            raise BrokenGltfError(
                f"the view ends at byte {offset + length:,}, but {self._name_of('buffers', buffer)} has only "
                f"{show_count(size, 'byte')}"
            )
        if "byteStride" in view:
            stride = count_of(view, "byteStride", least=4)
            if stride > 252 or stride % 4:
                raise BrokenGltfError(f"'byteStride' is {stride}, but must be a multiple of 4 from 4 to 252")

    def _check_accessor(self, index: int, accessor: Object) -> None:
        component, shape = accessor.get("componentType"), accessor.get("type")
        if not isinstance(component, int) or component not in COMPONENTS:
            raise BrokenGltfError(f"'componentType' is {component!r}, but must be one of {', '.join(map(str, COMPONENTS))}")
        if not isinstance(shape, str) or shape not in SHAPES:
            raise BrokenGltfError(f"'type' is {shape!r}, but must be one of {', '.join(SHAPES)}")
        count = count_of(accessor, "count", least=1)
        columns, rows = SHAPES[shape]
        size = count * columns * rows * self._np.dtype(COMPONENTS[component]).itemsize
        if size > LARGEST_ACCESSOR_BYTES:
            raise BrokenGltfError(f"{count:,} elements ('count') have {size:,} bytes; the limit is {LARGEST_ACCESSOR_BYTES:,}")
        if "bufferView" in accessor or "sparse" in accessor:
            self.expand(size)
        array = self._element_data(accessor, count)
        if "sparse" in accessor:
            array = self._with_sparse(accessor, count, array)
        if array is None:
            return
        self._arrays[index] = array
        if component == FLOAT and not self._np.isfinite(array).all():
            row = int(self._np.argmin(self._np.isfinite(array).all(axis=1)))
            raise BrokenGltfError(f"element {row} contains a value that is not a finite number")
        for key in ("min", "max"):
            if key in accessor:
                self._check_bound(index, accessor, key, getattr(array, key)(axis=0))

    def _element_data(self, accessor: Object, count: int) -> Array | None:
        """Return the elements in the buffer view; None if they cannot be read."""
        columns, rows = SHAPES[accessor["type"]]
        view_index = self._one("bufferViews", accessor, "bufferView")
        if view_index is None:
            if "sparse" not in accessor:
                return None  # by the specification all elements are zero, but Draco stores the elements compressed
            return self._np.zeros((count, columns * rows), COMPONENTS[accessor["componentType"]])
        return self._elements(accessor, view_index, count, count_of(accessor, "byteOffset"))

    def _elements(self, accessor: Object, view_index: int, count: int, offset: int) -> Array | None:
        if view_index in self._bad_views:
            return None
        kind = self._np.dtype(COMPONENTS[accessor["componentType"]])
        columns, rows = SHAPES[accessor["type"]]
        # Each column of a matrix begins at a multiple of 4 bytes (§3.6.2.4).
        column = rows * kind.itemsize + (-(rows * kind.itemsize) % 4 if columns > 1 else 0)
        size = column * (columns - 1) + rows * kind.itemsize
        view = self._all("bufferViews")[view_index]
        begin, length = count_of(view, "byteOffset"), count_of(view, "byteLength")
        stride = count_of(view, "byteStride") or column * columns
        if stride < size:
            raise BrokenGltfError(f"an element has {size} bytes, but the 'byteStride' of buffer view {view_index} is only {stride}")
        needed = stride * (count - 1) + size
        if offset + needed > length:
            raise BrokenGltfError(
                f"the elements end at byte {offset + needed:,} of buffer view {view_index}, which has only "
                f"{show_count(length, 'byte')}"
            )
        for what, value in (("byteOffset", offset), ("the position in the buffer", begin + offset), ("byteStride", stride)):
            if value % kind.itemsize:
                raise BrokenGltfError(
                    f"{what} is {value:,}, but must be a multiple of {kind.itemsize}, which is the size of a number in bytes"
                )
        data = self._buffers.get(view.get("buffer", -1))
        if data is None or _is_compressed(view) or begin + length > len(data):
            return None
        array = self._np.ndarray((count, columns, rows), kind, data, begin + offset, (stride, column, kind.itemsize))
        return array.reshape(count, columns * rows)

    def _with_sparse(self, accessor: Object, count: int, array: Array | None) -> Array | None:
        sparse = as_object(accessor["sparse"])
        changed = count_of(sparse, "count", least=1)
        if changed > count:
            raise BrokenGltfError(f"'sparse' replaces {changed:,} elements, but the accessor has only {count:,}")
        places, values = as_object(sparse.get("indices")), as_object(sparse.get("values"))
        if places.get("componentType") not in INDEX_TYPES:
            raise BrokenGltfError(
                f"the 'componentType' of sparse indices is {places.get('componentType')!r}, but must be 5121, 5123 or 5125"
            )
        of_indices = self._one("bufferViews", places, "bufferView", is_needed=True)
        of_values = self._one("bufferViews", values, "bufferView", is_needed=True)
        assert of_indices is not None
        assert of_values is not None
        rows = self._elements({**places, "type": "SCALAR"}, of_indices, changed, count_of(places, "byteOffset"))
        new = self._elements(accessor, of_values, changed, count_of(values, "byteOffset"))
        if rows is None or new is None or array is None:
            return None
        rows = rows[:, 0].astype("int64")
        if rows[-1] >= count or (self._np.diff(rows) <= 0).any():
            raise BrokenGltfError(f"each sparse index must be larger than the previous index, and less than {count:,}")
        array = array.copy()
        array[rows] = new
        return array

    def _check_bound(self, index: int, accessor: Object, key: str, found: Array) -> None:
        """Compare `min` or `max` with the data; a wrong length is an error, a wrong value is a warning."""
        given = accessor[key]
        if not isinstance(given, list) or not all(is_number(each) for each in given) or len(given) != len(found):
            raise BrokenGltfError(f"'{key}' must be a list of {show_count(len(found), 'number')}")
        if accessor.get("normalized") and accessor["componentType"] != FLOAT:
            return  # bounds of normalised integers are not checked, because some exporters normalise the bounds and some do not
        values = self._np.array(given, dtype="float64").astype(found.dtype if accessor["componentType"] == FLOAT else "float64")
        is_near = self._np.isclose(values, found, rtol=1e-5, atol=1e-6)
        if not is_near.all():
            at = int(self._np.argmin(is_near))
            self.warnings.append(
                f"{self._describe_accessor(index)}: {key}[{at}] is {given[at]:g}, but in the data it is {found[at].item():g}"
            )

    def view_bytes(self, index: int) -> bytes | None:
        """Return the bytes of a buffer view; None if they cannot be read."""
        if index in self._bad_views:
            return None
        view = self._all("bufferViews")[index]
        data = self._buffers.get(view.get("buffer", -1))
        begin, length = count_of(view, "byteOffset"), count_of(view, "byteLength")
        return None if data is None else data[begin : begin + length]


def texture_infos(holder: Object, names: frozenset[str] = frozenset()) -> Iterator[Object]:
    """Yield the `…Texture` objects of a material and of its extensions, for example `normalTexture`.

    If `names` is given, yield only the objects whose key is in `names`.
    """
    for key, value in holder.items():
        if isinstance(value, dict) and key != "extras":
            if key.endswith("Texture") and "index" in value and (not names or key in names):
                yield value
            yield from texture_infos(value, names)


def coordinates_of(info: Object) -> int:
    """Return the number of the set of texture coordinates that a `…Texture` object of a material uses."""
    transform = as_object(as_object(info.get("extensions")).get("KHR_texture_transform"))
    channel = transform.get("texCoord", info.get("texCoord", 0))
    return channel if isinstance(channel, int) else 0


def is_number(value: object) -> bool:
    """Return whether `value` is a number; booleans are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_compressed(view: Object) -> bool:
    return any(isinstance(each, dict) and "buffer" in each for each in as_object(view.get("extensions")).values())


def count_of(holder: Object, key: str, *, least: int = 0) -> int:
    """Return the integer at `key`, which must be at least `least`; 0 if the key is missing."""
    value = holder.get(key, 0)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise BrokenGltfError(f"'{key}' is {holder.get(key)!r}, but must be an integer of at least {least}")
    if value > _LARGEST_COUNT:
        raise BrokenGltfError(f"'{key}' is {float(value)!r}, which is too large")
    return value
