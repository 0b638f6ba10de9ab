r"""Reads and writes the binary form of ObjectStream, including the runtime's `assetcatalog.xml` and `DeltaCatalog.xml`.

A stream is a byte `00`, its version (3) in four bytes, one element, and a byte `00`. Numbers are big-endian. An element has:

- a byte of flags: 8 element, 16 has a value, 32 has a size field, 64 has a field's name, 128 has a version. If flag 32 is set, the
  low three bits are the length of the size field in bytes. Otherwise they are the length of the value.
- the CRC-32 of the field's name in lower case (flag 64), a byte with the version (flag 128), and the type id.
- the size field (flag 32), the value, the child elements, and a byte `00`.

The type id of a container is computed from the type ids of its arguments, followed by the id of the container template. Two ids `a`
and `b` are combined to `UUID(SHA-1(a + b))`, the result is combined with the next id, and so on.

Tests: `tests/features/o3de/test_binary_stream.py`, `tests/features/o3de/connection/test_o3de_messages.py`.
"""

from __future__ import annotations

import hashlib
import io
import struct
import sys
import zlib
from collections.abc import Iterable
from functools import lru_cache, reduce
from typing import BinaryIO
from uuid import UUID

from msgspec import Struct

PREFIX = b"\0" + struct.pack(">I", 3)
_ELEMENT, _VALUE, _SIZE, _NAME, _VERSION = 8, 16, 32, 64, 128
END = b"\0"
_DEEPEST = 16
"""Maximum nesting of elements; the messages and catalogs of O3DE have fewer levels."""


def fold_template(*types: bytes) -> bytes:
    """Return the type id of a template; `types` are the type ids of its arguments, followed by the id of the template itself."""
    return reduce(combine_uuids, types)


def combine_uuids(one: bytes, other: bytes) -> bytes:
    """Return the name-based UUID of two concatenated byte strings (UUIDs or texts)."""
    digest = bytearray(hashlib.sha1(one + other, usedforsecurity=False).digest()[:16])
    digest[6], digest[8] = digest[6] & 0x5F | 0x50, digest[8] & 0xBF | 0x80
    return bytes(digest)


def uuid_bytes(text: str) -> bytes:
    """Return the 16 bytes of a UUID."""
    return UUID(text).bytes


def type_text(type_id: bytes) -> str:
    """Return a type id as text."""
    return f"{{{str(UUID(bytes=type_id)).upper()}}}"


ALLOCATOR, _VECTOR, _PAIR = (
    uuid_bytes("E9F5A3BE-2B3D-4C62-9E6B-4E00A13AB452"),
    uuid_bytes("A60E3E61-1FF6-4982-B6B8-9E4350C4C679"),
    uuid_bytes("919645C1-E464-482B-A69B-04AA688B6847"),
)
_HASH, _EQUAL, _MAP, _MULTIMAP, _SET = (
    uuid_bytes("EFA74E54-BDFA-47BE-91A7-5A05DA0306D7"),
    uuid_bytes("4377BCED-F78C-4016-80BB-6AFACE6E5137"),
    uuid_bytes("41171F6F-9E5E-4227-8420-289F1DD5D005"),
    uuid_bytes("9ED846FA-31C1-4133-B4F4-91DF9750BA96"),
    uuid_bytes("8D60408E-DA65-4670-99A2-8ABB574625AE"),
)
UUID_TYPE, U32, U64, STRING = (
    uuid_bytes("E152C105-A133-4D03-BBF8-3D4B2FBA3E2A"),
    uuid_bytes("43DA906B-7DEF-4CA8-9790-854106D3F983"),
    uuid_bytes("D6597933-47CD-4FC8-B911-63F3E2B0993A"),
    uuid_bytes("03AAAB3F-5C47-5A66-9EBC-D5FA4DB353C9"),
)
ASSET_ID, INFO, DEPENDENCY = (
    uuid_bytes("652ED536-3402-439B-AEBE-4A5DBC554085"),
    uuid_bytes("E6D8372B-8419-4287-B478-1353709A972F"),
    uuid_bytes("5B9A8F1C-407A-4D2B-88F4-A79584684CC4"),
)


def vector_of(element: bytes, allocator: bytes = ALLOCATOR) -> bytes:
    """Return the type id of a vector of elements."""
    return fold_template(element, allocator, _VECTOR)


@lru_cache(maxsize=16)
def pair_of(key: bytes, value: bytes) -> bytes:
    """Return the type id of `AZStd::pair<key, value>`."""
    return fold_template(key, value, _PAIR)


def map_of(key: bytes, value: bytes, *, is_multi: bool = False) -> bytes:
    """Return the type id of an unordered map."""
    return fold_template(
        key, value, fold_template(key, _HASH), fold_template(key, _EQUAL), ALLOCATOR, _MULTIMAP if is_multi else _MAP
    )


def set_of(key: bytes) -> bytes:
    """Return the type id of an unordered set."""
    return fold_template(key, fold_template(key, _HASH), fold_template(key, _EQUAL), ALLOCATOR, _SET)


def bits_of(count: int) -> bytes:
    """Return the type id of `AZStd::bitset` with `count` bits."""
    return fold_template(combine_uuids(b"", str(count).encode()), uuid_bytes("6BAE9836-EC49-466A-85F2-F4B1B70839FB"))


# ----------------------------------------------------------------------------------------------------------------- writing


def start_element(type_id: bytes, name: str = "", value: bytes | None = None, version: int = 0) -> bytes:
    """Return the beginning of an element; the caller appends the children and `END`."""
    if value is None:
        return element_head(type_id, name, version, 0)
    length = len(value)
    if length < 8:
        return element_head(type_id, name, version, _VALUE | length) + value
    width = 1 if length < 1 << 8 else 2 if length < 1 << 16 else 4
    return element_head(type_id, name, version, _VALUE | _SIZE | width) + length.to_bytes(width, "big") + value


@lru_cache(maxsize=512)
def element_head(type_id: bytes, name: str, version: int, flags: int) -> bytes:
    """Return the first bytes of an element: its flags, name, version and type id. The size of the value and the value come next.

    The results are cached, because a stream repeats a few dozen different heads many times.
    """
    flags |= _ELEMENT | (_NAME if name else 0) | (_VERSION if version else 0)
    crc = struct.pack(">I", crc_of(name)) if name else b""
    return b"".join((bytes((flags,)), crc, bytes((version,)) if version else b"", type_id))


def leaf(type_id: bytes, name: str, value: bytes) -> bytes:
    """Return an element without children."""
    return start_element(type_id, name, value) + END


@lru_cache(maxsize=512)
def crc_of(name: str) -> int:
    """Return the CRC-32 of a name in lower case, as O3DE computes it."""
    return zlib.crc32(name.lower().encode())


# ----------------------------------------------------------------------------------------------------------------- reading


class BinaryElement(Struct, frozen=True):
    """An element of a stream; `name` is the CRC-32 of its field's name, 0 without a name."""

    type_id: bytes
    name: int
    version: int
    value: bytes | None
    children: tuple[BinaryElement, ...]

    def get(self, name: str) -> BinaryElement | None:
        """Return the child element that stores a field."""
        wanted = crc_of(name)
        return next((child for child in self.children if child.name == wanted), None)


def parse(data: bytes, most: int = sys.maxsize) -> BinaryElement:
    """Return the object in a binary stream.

    Args:
        most: maximum number of elements in the stream.

    Raises:
        ValueError: the data is not a binary stream.
    """
    if data[:5] != PREFIX:
        raise ValueError("the data is not a binary stream of version 3")
    reader = _StreamReader(data, most)
    element = reader.read_element(0)
    if element is None or data[reader.at :] != END:
        raise ValueError("the data continues after the end of its object")
    return element


class _StreamReader:
    """Reads the elements of a binary stream; `at` is the offset of the next byte."""

    def __init__(self, data: bytes, most: int) -> None:
        self._data, self._left = data, most
        self.at = len(PREFIX)

    def read_element(self, depth: int) -> BinaryElement | None:
        """Return the next element, or None at the end of the parent element."""
        flags = self._read(1)[0]
        if not flags:
            return None
        self._left -= 1
        if depth > _DEEPEST or self._left < 0 or not flags & _ELEMENT:
            raise ValueError(
                "the data is nested too deeply" if depth > _DEEPEST else "the data is damaged, or has too many elements"
            )
        name = int.from_bytes(self._read(4), "big") if flags & _NAME else 0
        version = self._read(1)[0] if flags & _VERSION else 0
        type_id, value = self._read(16), None
        if flags & _VALUE:
            size = flags & 7
            value = self._read(int.from_bytes(self._read(size), "big") if flags & _SIZE else size)
        children: list[BinaryElement] = []
        while (child := self.read_element(depth + 1)) is not None:
            children.append(child)
        return BinaryElement(type_id, name, version, value, tuple(children))

    def _read(self, size: int) -> bytes:
        found = self._data[self.at : self.at + size]
        if len(found) < size:
            raise ValueError("the data ends too early")
        self.at += size
        return found


# --------------------------------------------------------------------------------------------------- the catalog of O3DE's runtime


_REGISTRY = uuid_bytes("5DBC20D9-7143-48B3-ADEE-CCBD2FA6D443")
_DEPENDENCIES, _BITS_64 = vector_of(DEPENDENCY), bits_of(64)


class RegistryAsset(Struct, frozen=True):
    """A product in the runtime's catalog.

    `path` is relative to the platform's folder. `needs` has (UUID, sub id, flags) of each dependency. `former` has the earlier
    sub ids of the product.
    """

    uuid: bytes
    sub_id: int
    path: str
    asset_type: bytes
    size: int
    needs: tuple[tuple[bytes, int, int], ...] = ()
    former: tuple[int, ...] = ()


def write_stream(assets: Iterable[RegistryAsset], out: BinaryIO, paths: BinaryIO, needs: BinaryIO) -> None:
    """Write a registry of these assets as a binary stream.

    Args:
        paths, needs: empty temporary files. They collect the lists that come later in the stream, so that `assets` is iterated only
            once.
    """
    out.write(PREFIX + start_element(_REGISTRY, version=6))
    former: list[tuple[RegistryAsset, int]] = []
    out.write(start_element(map_of(ASSET_ID, INFO), "m_assetIdToInfo"))
    for item in assets:
        former += [(item, number) for number in item.former]
        known = _asset_id(item.uuid, item.sub_id)
        out.write(_entry(INFO, known, _info(item, known)))
        paths.write(_by_path(item, known))
        if item.needs:
            needs.write(_entry(_DEPENDENCIES, known, _needs(item)))
    out.write(END + start_element(map_of(UUID_TYPE, ASSET_ID), "m_assetPathToIdMap"))
    _append(out, paths)
    aliases = [(_asset_id(item.uuid, number), _asset_id(item.uuid, item.sub_id)) for item, number in former]
    out.write(END + start_element(map_of(ASSET_ID, ASSET_ID), "m_legacyAssetIdToRealAssetId"))
    out.writelines(_alias(legacy, real) for legacy, real in aliases)
    out.write(END + start_element(map_of(ASSET_ID, ASSET_ID, is_multi=True), "m_realAssetIdToLegacyAssetIdMap"))
    out.writelines(_alias(real, legacy) for legacy, real in aliases)
    out.write(END + start_element(map_of(ASSET_ID, _DEPENDENCIES), "m_assetDependencies"))
    _append(out, needs)
    out.write(END * 3)


def _append(out: BinaryIO, part: BinaryIO) -> None:
    part.seek(0)
    while data := part.read(1 << 20):
        out.write(data)


def stream_of(assets: Iterable[RegistryAsset]) -> bytes:
    """Return a registry of these assets as a binary stream."""
    out = io.BytesIO()
    write_stream(assets, out, io.BytesIO(), io.BytesIO())
    return out.getvalue()


def path_uuid(path: str) -> bytes:
    """Return the id of a product's path in a registry: the UUID of the lower-case path, computed like the UUID of a source."""
    return combine_uuids(path.replace("\\", "/").lower().encode("utf-8", "surrogateescape"), b"")


_GUID, _SUB_ID = start_element(UUID_TYPE, "guid", bytes(16))[:-16], END + start_element(U32, "subId", bytes(4))[:-4]
_pack_32, _pack_64, _pack_bits = struct.Struct(">I").pack, struct.Struct(">Q").pack, struct.Struct("<Q").pack


def _asset_id(uuid: bytes, sub_id: int) -> bytes:
    """Return the serialized asset id without the bytes of `element_head`."""
    return b"".join((_GUID, uuid, _SUB_ID, _pack_32(sub_id & 0xFFFF_FFFF), END, END))


def _of_id(name: str, known: bytes) -> bytes:
    return element_head(ASSET_ID, name, 1, 0) + known


def _entry(value: bytes, known: bytes, element: bytes) -> bytes:
    return b"".join((element_head(pair_of(ASSET_ID, value), "element", 0, 0), _of_id("value1", known), element, END))


def _alias(known: bytes, meant: bytes) -> bytes:
    return _entry(ASSET_ID, known, _of_id("value2", meant))


def _info(item: RegistryAsset, known: bytes) -> bytes:
    return b"".join((
        element_head(INFO, "value2", 2, 0),
        _of_id("assetId", known),
        leaf(STRING, "relativePath", item.path.encode("utf-8", "surrogateescape")),
        leaf(U64, "sizeBytes", _pack_64(max(item.size, 0))),
        leaf(UUID_TYPE, "assetType", item.asset_type or bytes(16)),
        END,
    ))  # fmt: skip


def _by_path(item: RegistryAsset, known: bytes) -> bytes:
    key = leaf(UUID_TYPE, "value1", path_uuid(item.path))
    return b"".join((element_head(pair_of(UUID_TYPE, ASSET_ID), "element", 0, 0), key, _of_id("value2", known), END))


def _needs(item: RegistryAsset) -> bytes:
    parts = [element_head(_DEPENDENCIES, "value2", 0, 0)]
    for uuid, sub_id, flags in item.needs:
        parts += [
            element_head(DEPENDENCY, "element", 1, 0),
            _of_id("assetId", _asset_id(uuid, sub_id)),
            leaf(_BITS_64, "flags", _pack_bits(flags & 0xFFFF_FFFF_FFFF_FFFF)),
            END,
        ]
    return b"".join((*parts, END))
