"""The binary catalog of O3DE's runtime: type ids equal to those in files of the engine, and streams that are read back."""

import struct
from uuid import UUID

import pytest

from aptui.features.o3de.binary_stream import (
    RegistryAsset,
    bits_of,
    map_of,
    pair_of,
    parse,
    path_uuid,
    stream_of,
    type_text,
    uuid_bytes,
    vector_of,
)

STRING, COORDINATES = UUID("03AAAB3F-5C47-5A66-9EBC-D5FA4DB353C9").bytes, UUID("FC5D6A60-1056-4F6C-96F7-6A47912F8A35").bytes
ONE, TWO = b"1" * 16, b"2" * 16


def test_container_type_ids_equal_those_of_the_engine() -> None:
    """The expected ids of the two vectors come from seed lists and asset lists, the expected id of the map from texture atlases.

    The expected id of the bit set comes from O3DE's own tests.
    """
    assert type_text(vector_of(uuid_bytes("{FACC3682-2ACA-4AA4-B85A-07AD276D18A0}"))) == "{82FC5264-88D0-57CD-9307-FC52E4DAD550}"
    assert type_text(vector_of(uuid_bytes("{F1616D53-9A20-4C04-854E-D458A334B86B}"))) == "{4F6B07E0-7EB7-5CE4-AABE-8717224FC1DB}"
    assert type_text(map_of(STRING, COORDINATES)) == "{23D80BE7-76FE-5C35-B4EA-A4492B2B058C}"
    assert type_text(pair_of(STRING, COORDINATES)) == "{657F8527-0117-54A0-91E7-6E67A7464BC5}"
    assert type_text(bits_of(8)) == "{E5848517-FBDC-5D0F-9012-B16951027D9E}"


def test_asset_id_of_a_path_does_not_depend_on_upper_or_lower_case() -> None:
    assert type_text(path_uuid("Textures\\_dev_purple.tif")) == "{A2482826-053D-5634-A27B-084B1326AAE5}"


def test_saved_asset_registry_is_loaded_unchanged() -> None:
    written = stream_of(
        [RegistryAsset(ONE, 7, "a/b.txt", TWO, 300, ((TWO, 1, 2),), (9,)), RegistryAsset(TWO, 1, "c" * 300, b"", -1)]
    )

    registry = parse(written)

    assert written.startswith(b"\0\0\0\0\x03")
    assert registry.version == 6
    infos, paths, aliases, _back, needs = registry.children
    info = infos.children[0].get("value2")
    assert info is not None
    assert info.version == 2
    path, size = info.get("relativePath"), info.get("sizeBytes")
    assert path is not None
    assert size is not None
    assert (path.value, size.value) == (b"a/b.txt", struct.pack(">Q", 300))
    assert [len(field.children) for field in (infos, paths, aliases, needs)] == [2, 2, 1, 1]
    needed = needs.children[0].get("value2")
    assert needed is not None
    flags = needed.children[0].get("flags")
    assert flags is not None
    assert flags.value == struct.pack("<Q", 2)


@pytest.mark.parametrize("data", [b"", b"<ObjectStream>", stream_of([])[:-1], stream_of([]) + b"more"])
def test_damaged_registry_stream_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^the data "):
        parse(data)
