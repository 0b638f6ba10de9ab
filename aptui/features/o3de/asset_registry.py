r"""The catalog of O3DE's runtime (`assetcatalog.xml`, `DeltaCatalog.xml` in a bundle): an asset registry as a binary stream.

A stream is `00`, its version (3) in four bytes, one element, and `00`. An element is a byte of flags (8 element, 16 has a value,
32 separate size, 64 has a field's name, 128 has a version; the low three bits are the size of the value, or of its size),
the CRC-32 of the name in lower case, the version in a byte, the type id, the size, the value, its children, and `00`. Numbers are
big-endian; bits of dependencies have the memory layout of a little-endian machine. The type id of a container is computed from
those of its contents: `UUID(SHA-1(a + b))`, arguments first, the container's own last.

Tests: `tests/features/o3de/test_asset_registry.py`.
"""

from __future__ import annotations

import hashlib
import io
import struct
import zlib
from collections.abc import Iterable
from functools import lru_cache, reduce
from typing import BinaryIO
from uuid import UUID

from msgspec import Struct

FORMAT_VERSION = 3
_ELEMENT, _VALUE, _SIZE, _NAME, _VERSION = 8, 16, 32, 64, 128
_END = b"\0"


def fold_template(*types: bytes) -> bytes:
    """Return the type id of a template, from those of its arguments and the template's own as the last."""
    return reduce(_combine_uuids, types)


def _combine_uuids(one: bytes, other: bytes) -> bytes:
    digest = bytearray(hashlib.sha1(one + other, usedforsecurity=False).digest()[:16])
    digest[6], digest[8] = digest[6] & 0x5F | 0x50, digest[8] & 0xBF | 0x80
    return bytes(digest)


def _id(text: str) -> bytes:
    return UUID(text).bytes


def type_text(type_id: bytes) -> str:
    """Return a type id as text."""
    return f"{{{str(UUID(bytes=type_id)).upper()}}}"


_ALLOCATOR, _VECTOR, _PAIR = (
    _id("E9F5A3BE-2B3D-4C62-9E6B-4E00A13AB452"),
    _id("A60E3E61-1FF6-4982-B6B8-9E4350C4C679"),
    _id("919645C1-E464-482B-A69B-04AA688B6847"),
)
_HASH, _EQUAL, _MAP, _MULTIMAP = (
    _id("EFA74E54-BDFA-47BE-91A7-5A05DA0306D7"),
    _id("4377BCED-F78C-4016-80BB-6AFACE6E5137"),
    _id("41171F6F-9E5E-4227-8420-289F1DD5D005"),
    _id("9ED846FA-31C1-4133-B4F4-91DF9750BA96"),
)
_UUID, _U32, _U64, _STRING = (
    _id("E152C105-A133-4D03-BBF8-3D4B2FBA3E2A"),
    _id("43DA906B-7DEF-4CA8-9790-854106D3F983"),
    _id("D6597933-47CD-4FC8-B911-63F3E2B0993A"),
    _id("03AAAB3F-5C47-5A66-9EBC-D5FA4DB353C9"),
)
_ASSET_ID, _INFO, _DEPENDENCY, _REGISTRY = (
    _id("652ED536-3402-439B-AEBE-4A5DBC554085"),
    _id("E6D8372B-8419-4287-B478-1353709A972F"),
    _id("5B9A8F1C-407A-4D2B-88F4-A79584684CC4"),
    _id("5DBC20D9-7143-48B3-ADEE-CCBD2FA6D443"),
)


def vector_of(type_text_of_element: str) -> bytes:
    """Return the type id of a vector of elements."""
    return fold_template(_id(type_text_of_element), _ALLOCATOR, _VECTOR)


def pair_of(key: bytes, value: bytes) -> bytes:
    """Return the type id of a pair."""
    return fold_template(key, value, _PAIR)


def map_of(key: bytes, value: bytes, *, is_multi: bool = False) -> bytes:
    """Return the type id of an unordered map."""
    return fold_template(
        key, value, fold_template(key, _HASH), fold_template(key, _EQUAL), _ALLOCATOR, _MULTIMAP if is_multi else _MAP
    )


def bits_of(count: int) -> bytes:
    """Return the type id of a set of bits."""
    return fold_template(_combine_uuids(b"", str(count).encode()), _id("6BAE9836-EC49-466A-85F2-F4B1B70839FB"))


_DEPENDENCIES, _BITS_64 = fold_template(_DEPENDENCY, _ALLOCATOR, _VECTOR), bits_of(64)


class RegistryAsset(Struct, frozen=True):
    """A product in the runtime's catalog: `path` relative to its platform; `needs` (UUID, sub id, flags); `former` sub ids."""

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
        paths, needs: empty temporary files: the stream has several lists of all assets, one after the other.
    """
    out.write(b"\0" + struct.pack(">I", FORMAT_VERSION) + _start(_REGISTRY, version=6))
    former: list[tuple[RegistryAsset, int]] = []
    out.write(_start(map_of(_ASSET_ID, _INFO), "m_assetIdToInfo"))
    for item in assets:
        former += [(item, number) for number in item.former]
        known = _asset_id(item.uuid, item.sub_id)
        out.write(_entry(_INFO, known, _info(item, known)))
        paths.write(_by_path(item, known))
        if item.needs:
            needs.write(_entry(_DEPENDENCIES, known, _needs(item)))
    out.write(_END + _start(map_of(_UUID, _ASSET_ID), "m_assetPathToIdMap"))
    _append(out, paths)
    aliases = [(_asset_id(item.uuid, number), _asset_id(item.uuid, item.sub_id)) for item, number in former]
    out.write(_END + _start(map_of(_ASSET_ID, _ASSET_ID), "m_legacyAssetIdToRealAssetId"))
    out.writelines(_alias(legacy, real) for legacy, real in aliases)
    out.write(_END + _start(map_of(_ASSET_ID, _ASSET_ID, is_multi=True), "m_realAssetIdToLegacyAssetIdMap"))
    out.writelines(_alias(real, legacy) for legacy, real in aliases)
    out.write(_END + _start(map_of(_ASSET_ID, _DEPENDENCIES), "m_assetDependencies"))
    _append(out, needs)
    out.write(_END * 3)


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
    """Return the id of a path in a registry: the UUID of its name in lower case, as for the path of a source."""
    return _combine_uuids(path.replace("\\", "/").lower().encode("utf-8", "surrogateescape"), b"")


# ---------------------------------------------------------------------------------------------------------------- elements


def _start(type_id: bytes, name: str = "", value: bytes | None = None, version: int = 0) -> bytes:
    if value is None:
        return _head(type_id, name, version, 0)
    length = len(value)
    if length < 8:
        return _head(type_id, name, version, _VALUE | length) + value
    width = 1 if length < 1 << 8 else 2 if length < 1 << 16 else 4
    return _head(type_id, name, version, _VALUE | _SIZE | width) + length.to_bytes(width, "big") + value


@lru_cache(maxsize=256)
def _head(type_id: bytes, name: str, version: int, flags: int) -> bytes:
    """Return the bytes before the size of a value; cached, because a few dozen occur a hundred thousand times each."""
    flags |= _ELEMENT | (_NAME if name else 0) | (_VERSION if version else 0)
    return b"".join((bytes((flags,)), _crc(name) if name else b"", bytes((version,)) if version else b"", type_id))


def _crc(name: str) -> bytes:
    return struct.pack(">I", zlib.crc32(name.lower().encode()))


_GUID, _SUB_ID = _start(_UUID, "guid", bytes(16))[:-16], _END + _start(_U32, "subId", bytes(4))[:-4]
_pack_32, _pack_64, _pack_bits = struct.Struct(">I").pack, struct.Struct(">Q").pack, struct.Struct("<Q").pack


def _leaf(type_id: bytes, name: str, value: bytes) -> bytes:
    return _start(type_id, name, value) + _END


def _asset_id(uuid: bytes, sub_id: int) -> bytes:
    """Return the content of an asset id's element, with its end."""
    return b"".join((_GUID, uuid, _SUB_ID, _pack_32(sub_id & 0xFFFF_FFFF), _END, _END))


def _of_id(name: str, known: bytes) -> bytes:
    return _head(_ASSET_ID, name, 1, 0) + known


def _entry(value: bytes, known: bytes, element: bytes) -> bytes:
    return b"".join((_head(_pair(_ASSET_ID, value), "element", 0, 0), _of_id("value1", known), element, _END))


def _alias(known: bytes, meant: bytes) -> bytes:
    return _entry(_ASSET_ID, known, _of_id("value2", meant))


_pair = lru_cache(maxsize=16)(pair_of)


def _info(item: RegistryAsset, known: bytes) -> bytes:
    return b"".join((
        _head(_INFO, "value2", 2, 0),
        _of_id("assetId", known),
        _leaf(_STRING, "relativePath", item.path.encode("utf-8", "surrogateescape")),
        _leaf(_U64, "sizeBytes", _pack_64(max(item.size, 0))),
        _leaf(_UUID, "assetType", item.asset_type or bytes(16)),
        _END,
    ))  # fmt: skip


def _by_path(item: RegistryAsset, known: bytes) -> bytes:
    key = _leaf(_UUID, "value1", path_uuid(item.path))
    return b"".join((_head(_pair(_UUID, _ASSET_ID), "element", 0, 0), key, _of_id("value2", known), _END))


def _needs(item: RegistryAsset) -> bytes:
    parts = [_head(_DEPENDENCIES, "value2", 0, 0)]
    for uuid, sub_id, flags in item.needs:
        parts += [
            _head(_DEPENDENCY, "element", 1, 0),
            _of_id("assetId", _asset_id(uuid, sub_id)),
            _leaf(_BITS_64, "flags", _pack_bits(flags & 0xFFFF_FFFF_FFFF_FFFF)),
            _END,
        ]
    return b"".join((*parts, _END))


# ----------------------------------------------------------------------------------------------------------------- reading


class BinaryElement(Struct, frozen=True):
    """An element of a stream: `name` is the CRC-32 of its field's name, 0 = no name."""

    type_id: bytes
    name: int
    version: int
    value: bytes | None
    children: tuple[BinaryElement, ...]

    def get(self, name: str) -> BinaryElement | None:
        """Return the child for a field."""
        wanted = int.from_bytes(_crc(name), "big")
        return next((child for child in self.children if child.name == wanted), None)


def parse(data: bytes) -> BinaryElement:
    """Return the object in a binary stream.

    Raises:
        ValueError: it is not a binary stream.
    """
    if data[:5] != b"\0\0\0\0\x03":
        message = "it is not a binary stream of version 3"
        raise ValueError(message)
    element, at = _parse(data, 5, 0)
    if element is None or data[at:] != _END:
        message = "it does not end where its object ends"
        raise ValueError(message)
    return element


def _parse(data: bytes, at: int, depth: int) -> tuple[BinaryElement | None, int]:
    if at >= len(data) or depth > 16:
        message = "it ends in the middle"
        raise ValueError(message)
    flags = data[at]
    at += 1
    if not flags:
        return None, at
    name = version = 0
    if flags & _NAME:
        name, at = int.from_bytes(data[at : at + 4], "big"), at + 4
    if flags & _VERSION:
        version, at = data[at], at + 1
    type_id, at = data[at : at + 16], at + 16
    value = None
    if flags & _VALUE:
        size = flags & 7
        if flags & _SIZE:
            size, at = int.from_bytes(data[at : at + size], "big"), at + size
        value, at = data[at : at + size], at + size
    children: list[BinaryElement] = []
    while True:
        child, at = _parse(data, at, depth + 1)
        if child is None:
            return BinaryElement(type_id, name, version, value, tuple(children)), at
        children.append(child)
