"""Messages of O3DE's protocol: bytes written by hand from the format's rules, round trips, unknown fields, and damaged data."""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aptui.core.paths import to_text
from aptui.features.o3de.binary_stream import type_text
from aptui.features.o3de.connection.o3de_messages import (
    BY_NAME,
    CHANGE,
    CHANGES,
    EXCHANGES,
    NO_ASSET,
    OS_STRING,
    SHOW,
    SOURCE,
    O3deMessage,
    Shape,
    decode,
    encode,
)
from tests.features.o3de.connection import o3de_client as client

PING = bytes.fromhex(
    "00 00000003"  # a binary stream of version 3
    "88 01 E06F6663A168439A83E16F2215BAC0B6"  # an element with a version, and no name: RequestPing, version 1
    "C8 D4925735 01 366A7093C57B4514A1BDA6437AEF2098"  # with a name: BaseClass1, version 1
    "59 42300AF4 A0CA880CAFE443CB926C59AC48496112 00 00"  # with a value of one byte: RequireFencing, false; end
    "00 00 00"  # end of the base class, of the message, of the stream
)
STATUS = bytes.fromhex(
    "00 00000003"
    "88 01 151CB7D28A114072A1735EDF2A11C9E2"  # ResponseAssetStatus, version 1
    "C8 D4925735 01 366A7093C57B4514A1BDA6437AEF2098"
    "59 42300AF4 A0CA880CAFE443CB926C59AC48496112 00 00 00"
    "5C 6463A7C7 72039442EB384D42A1ADCB68F7E0EEF6 00000004 00"  # with a value of four bytes: AssetStatus, 4 (compiled)
    "00 00"
)
NEGOTIATION = bytes.fromhex(
    "00 00000003"
    "88 01 BA6336E44DF549EFA184FE8F5BC73731"  # NegotiationMessage, version 1, without a base class
    "5C C0D873C0 72039442EB384D42A1ADCB68F7E0EEF6 00000007 00"  # ApiVersion
    "5E 772E836A 189CC2EDFDDE568091D49F630A79187F 454449544F52 00"  # Identifier: EDITOR
    "48 72EE07D2 FB96FC4A665D530AA80E2032526E232B"  # NegotiationInfo: a map
    "48 41405E39 A84F78DEB271521786DEE69A15EE48C6"  # element: a pair
    "5C A2756C5A 43DA906B7DEF4CA89790854106D3F983 00000001 00"  # value1: 1, the platforms
    "79 3B7C3DE0 189CC2EDFDDE568091D49F630A79187F 0A 6C696E75782C70635F78 00"  # value2: ten bytes, so the size has a byte
    "00 00 00 00"
)
CATALOG = bytes.fromhex(  # SaveAssetCatalogRequest: a class without fields and base is an empty value
    "00 00000003 18 12B0C07697A84FAE9F5622A890766272 00 00"
)


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        (PING, O3deMessage(BY_NAME["RequestPing"].request)),
        (STATUS, O3deMessage(BY_NAME["RequestAssetStatus"].response or CHANGE, {"AssetStatus": 4})),
        (
            NEGOTIATION,
            O3deMessage(
                BY_NAME["NegotiationMessage"].request,
                {"ApiVersion": 7, "Identifier": "EDITOR", "NegotiationInfo": {1: "linux,pc_x"}},
            ),
        ),
        (CATALOG, O3deMessage(BY_NAME["SaveAssetCatalogRequest"].request)),
    ],
)
def test_messages_equal_bytes_written_by_hand(vector: bytes, message: O3deMessage) -> None:
    assert encode(message).hex() == vector.hex()
    assert decode(message.shape, vector) == message


def test_ids_of_strings_and_types_equal_those_of_the_engine() -> None:
    """The string id is in lists of modules of old projects, the type number in a comment of the engine's source."""
    assert type_text(OS_STRING) == "{189CC2ED-FDDE-5680-91D4-9F630A79187F}"
    assert BY_NAME["GenerateRelativeSourcePathRequest"].type_number == 739777771


SHAPES = [shape for each in EXCHANGES for shape in (each.request, each.response) if shape is not None] + [
    CHANGE, CHANGES, SHOW, SOURCE,
]  # fmt: skip


def sample(name: str, default: Any) -> Any:
    """Return a value for a field that is not its default."""
    if name == "Messages":
        return (("a/b.dds", 0, 5, (b"a" * 16, 7), b"t" * 16, (((b"b" * 16, 1), 3),), "linux"),)
    if name.lower() == "dependencies":
        return (((b"b" * 16, 1), 1 << 63),)
    if name == "JobList":
        return (("a.txt", "linux", b"u" * 16, "key", 3, 4, 0, "", 0, "", 0, "", 9, "/w", 1, 2),)
    if name in ("AssetInfo", "ProductsAssetInfo"):
        info = ((b"a" * 16, 7), "a/b.dds", 300, b"t" * 16)
        return info if name == "AssetInfo" else (info,)
    if name in ("NoLoadSet", "PreloadAssetList"):
        return ()
    kinds = {bool: True, int: 5, str: to_text(b"t\xc3\xabxt\xff"), bytes: b"u" * 16}
    if default == NO_ASSET:
        return (b"a" * 16, 7)
    if isinstance(default, dict):
        return {0: "a", 9: "b" * 300}
    return ("a", "b" * 300) if default == () else kinds[type(default)]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_every_message_is_read_back(shape: Shape) -> None:
    values = {name: sample(name, kind.default) for name, kind in shape.fields}
    message = O3deMessage(shape, values, needs_barrier=shape.has_base)

    assert decode(shape, encode(message)) == message
    empty = decode(shape, encode(O3deMessage(shape)))
    assert empty.values == {name: kind.default for name, kind in shape.fields}


def test_names_and_types_of_messages_are_unique() -> None:
    assert len({shape.type_id for shape in SHAPES}) == len({shape.name for shape in SHAPES})
    assert len({each.type_number for each in EXCHANGES}) == len(EXCHANGES)


def test_unknown_fields_are_ignored_and_missing_ones_have_defaults() -> None:
    newer = client.message(
        "0CBE6A7C-9D19-4D41-B29C-A52476BB337A",
        client.element(client.UUID, "Unknown", None, (client.text("inside", "x"),)),
        client.text("SearchTerm", "hero.png"),
        version=9,
        fence=True,
    )

    found = decode(BY_NAME["RequestAssetStatus"].request, newer)

    assert (found["SearchTerm"], found["AssetId"], found["IsStatusRequest"], found.needs_barrier) == (
        "hero.png",
        NO_ASSET,
        False,
        True,
    )


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"not a stream",
        PING[:-1],
        PING + b"\0",
        STATUS,
        PING[:5] + b"\x18" * 4000,
        PING[:5] + (b"\x08" + bytes(16)) * 40 + b"\0" * 41,
        PING[:5] + b"\x08" + PING[7:23] + b"\x08" + bytes(16) + b"\0" * 30_000,
        client.message("E06F6663-A168-439A-83E1-6F2215BAC0B6", *[client.text("x", "y")] * 30_000),
    ],
)
def test_damaged_message_is_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r"^it "):
        decode(BY_NAME["RequestPing"].request, payload)


def test_number_of_wrong_length_is_refused() -> None:
    payload = client.message("0CBE6A7C-9D19-4D41-B29C-A52476BB337A", client.element(client.INT, "SearchType", b"12345"), version=3)

    with pytest.raises(ValueError, match="another length"):
        decode(BY_NAME["RequestAssetStatus"].request, payload)


@given(st.data())
def test_decoder_accepts_changed_bytes_or_raises_a_value_error(data: st.DataObject) -> None:
    """A changed message is read or refused with `ValueError`; nothing else happens."""
    shape = data.draw(st.sampled_from(SHAPES))
    payload = bytearray(
        encode(O3deMessage(shape, {name: sample(name, kind.default) for name, kind in shape.fields if name != "Data"}))
    )
    for at, value in data.draw(st.lists(st.tuples(st.integers(5, len(payload) - 1), st.integers(0, 255)), min_size=1, max_size=6)):
        payload[at] = value
    cut = data.draw(st.integers(0, len(payload)))

    for damaged in (bytes(payload), bytes(payload[:cut]), struct.pack(">I", cut) + bytes(payload)):
        with contextlib.suppress(ValueError):
            decode(shape, damaged)
