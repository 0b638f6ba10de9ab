"""Writes the catalog of O3DE's runtime: `assetcatalog.xml`, or `DeltaCatalog.xml` in a bundle.

A catalog is an asset registry in the form of a binary stream, which `binary_stream` describes. The flags of a dependency are stored
in little-endian byte order.

Tests: `tests/features/o3de/test_asset_registry.py`.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable
from typing import BinaryIO

from msgspec import Struct

from aptui.features.o3de.binary_stream import (
    ASSET_ID,
    DEPENDENCY,
    END,
    INFO,
    PREFIX,
    STRING,
    U32,
    U64,
    UUID_TYPE,
    bits_of,
    combine_uuids,
    element_head,
    leaf,
    map_of,
    pair_of,
    start_element,
    uuid_bytes,
    vector_of,
)

_REGISTRY = uuid_bytes("5DBC20D9-7143-48B3-ADEE-CCBD2FA6D443")
_DEPENDENCIES, _BITS_64 = vector_of(DEPENDENCY), bits_of(64)


class RegistryAsset(Struct, frozen=True):
    """A product in the runtime's catalog.

    `path` is relative to the platform's folder. `needs` has (UUID, sub id, flags) of each dependency, `former` the earlier sub ids.
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
        paths, needs: empty temporary files for the lists at the end of the stream, because one pass makes all lists.
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
    """Return the id of a path in a registry: the UUID of the lower-case path, computed as for the path of a source."""
    return combine_uuids(path.replace("\\", "/").lower().encode("utf-8", "surrogateescape"), b"")


_GUID, _SUB_ID = start_element(UUID_TYPE, "guid", bytes(16))[:-16], END + start_element(U32, "subId", bytes(4))[:-4]
_pack_32, _pack_64, _pack_bits = struct.Struct(">I").pack, struct.Struct(">Q").pack, struct.Struct("<Q").pack


def _asset_id(uuid: bytes, sub_id: int) -> bytes:
    """Return the bytes of an asset id that follow the start of its element, including the element's end."""
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
