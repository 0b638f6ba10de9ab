"""Messages of O3DE's protocol: bytes written by hand and by O3DE's own classes, round trips, unknown fields, and damaged data."""

from __future__ import annotations

import contextlib
import hashlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aptui.core.paths import to_text
from aptui.features.o3de.binary_stream import type_text
from aptui.features.o3de.connection.o3de_messages import (
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

BY_NAME = {each.request.name: each for each in EXCHANGES}

PING = bytes.fromhex(
    "00 00000003"  # a binary stream of version 3
    "88 01 E06F6663A168439A83E16F2215BAC0B6"  # an element without a name: RequestPing, version 1
    "C8 D4925735 01 366A7093C57B4514A1BDA6437AEF2098"  # an element with a name: BaseClass1, version 1
    "59 42300AF4 A0CA880CAFE443CB926C59AC48496112 00 00"  # RequireFencing = false in one byte, and the end
    "00 00 00"  # the ends of the base class, the message and the stream
)
STATUS = bytes.fromhex(
    "00 00000003"
    "88 01 151CB7D28A114072A1735EDF2A11C9E2"  # ResponseAssetStatus, version 1
    "C8 D4925735 01 366A7093C57B4514A1BDA6437AEF2098"
    "59 42300AF4 A0CA880CAFE443CB926C59AC48496112 00 00 00"
    "5C 6463A7C7 72039442EB384D42A1ADCB68F7E0EEF6 00000004 00"  # AssetStatus = 4 (compiled) in four bytes
    "00 00"
)
NEGOTIATION = bytes.fromhex(
    "00 00000003"
    "88 01 BA6336E44DF549EFA184FE8F5BC73731"  # message: NegotiationMessage, version 1; it does not have a base class
    "5C C0D873C0 72039442EB384D42A1ADCB68F7E0EEF6 00000007 00"  # field ApiVersion = 7
    "5E 772E836A 189CC2EDFDDE568091D49F630A79187F 454449544F52 00"  # field Identifier = EDITOR
    "48 72EE07D2 FB96FC4A665D530AA80E2032526E232B"  # field NegotiationInfo: a map with one entry
    "48 41405E39 A84F78DEB271521786DEE69A15EE48C6"  # the entry of the map: a pair
    "5C A2756C5A 43DA906B7DEF4CA89790854106D3F983 00000001 00"  # key of the pair (value1) = 1, the key for platforms
    "79 3B7C3DE0 189CC2EDFDDE568091D49F630A79187F 0A 6C696E75782C70635F78 00"  # value of the pair (value2): linux,pc_x in ten bytes
    "00 00 00 00"
)
CATALOG = bytes.fromhex(  # SaveAssetCatalogRequest is empty, because it has no fields and no base class
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
def test_encoded_message_is_identical_to_bytes_written_by_hand(vector: bytes, message: O3deMessage) -> None:
    assert encode(message).hex() == vector.hex()
    assert decode(message.shape, vector) == message


def test_string_type_id_and_message_type_number_are_those_of_o3de() -> None:
    """The expected type id of the string class is from module lists of old projects, the expected number from O3DE's source."""
    assert type_text(OS_STRING) == "{189CC2ED-FDDE-5680-91D4-9F630A79187F}"
    assert BY_NAME["GenerateRelativeSourcePathRequest"].type_number == 739777771


SHAPES = [shape for each in EXCHANGES for shape in (each.request, each.response) if shape is not None] + [
    CHANGE, CHANGES, SHOW, SOURCE,
]  # fmt: skip


DEFAULTS_OF_AZCORE = (  # the first 32 bits of the SHA-256 of each message, sorted by message name
    "b1fa610f feb55b77 d8cf3650 f4fb92d9 21675fdc 525044b7 321cc370 e765e512 d67143de d3e5e02a d50846f0 63aae5f1 9fcaf9d7 "
    "914b609b 91e3577f 1d529bde a86953c2 15fb4920 ac8e74bd d46eb210 81f60c09 b002b599 21cce979 057aa027 8d406e82 224e4a17 "
    "9ee1682a 49d2dc4f 6636164f 8f84cc7d a361453b 958745e7 1b5abd8a 90f5be28 cea2dc6f d4789cb5 88539578 e5062410 4c0e7d93 "
    "32f1e6e2 5c32d79c a5354512 d5a245a0 38da62df 7717b800 5649c420 a78da76e 6055e765 c7f3e74b 53166a66 df69834b b1d6f79c "
    "6070a196 92bf8430 5ab3d442 b0a34752 84fefad6 bd367348 7cea299e 3ce7fe59 570106c3 082e94ca 151672c0 ad792836 3f91eb70 "
    "8dfcb64a de01f71d dd0f6d59 9d5aee06 30c8f02c af22ef3d 731af92d 3562818e 37e90a28 180a2ae4 f4f8e279 49772a42 1c702980 "
    "1dd5b841 84435630 6e22d328 b4bb9734 0b3001c4 6b8c042f 4bd81595 1ee26a53 a4052325 6118abd4 "
)
"""Digests of the messages of a program that was built from O3DE's AzCore, AzFramework and the Editor's asset classes.

The branch was development, the commit 354a2acc of 8 August 2025. Each message has the values from the constructor of its class.
"""
OTHER_DEFAULTS: dict[str, tuple[bool, dict[str, Any]]] = {
    "AssetDependencyInfoRequest": (False, {"DependencyType": 1}),
    "AssetFingerprintClearRequest": (True, {}),
    "AssetJobLogRequest": (True, {}),
    "AssetJobsInfoRequest": (True, {"EscalateJobs": True}),
    "AssetProcessorPendingPlatformAssetsResponse": (False, {"NumberOfPendingJobs": -1}),
    "NegotiationMessage": (False, {"ApiVersion": 7}),
    "RequestAssetStatus": (True, {}),
}
"""{message: (`needs_barrier`, values)} of messages whose O3DE constructor sets values other than 0, false and empty."""
_HERO, _OTHER = (
    (bytes.fromhex("AB1CE6C6ED6E5115835D8FDBA5FB803A"), 0x80000007),
    (bytes.fromhex("3857B672471852EAB426EBA0622E44BD"), 3),
)
_CHANGED = (
    "textures/hero.dds", 0, 0x123456789, _HERO, bytes.fromhex("11111111222243338444555555555555"),
    ((_OTHER, 0x8000000000000102), (_OTHER, 0)), "pc",
)  # fmt: skip
_JOB = ("a/b.png", "pc", _HERO[0], "key", 1234567890123, 4, 0, "", 0, "", -5, "l", 77, "/w", 1, 2)
FILLED_BY_AZCORE: list[tuple[str, bool, dict[str, Any], str]] = [
    ("NegotiationMessage", False,
     {"ApiVersion": 7, "Identifier": "EDITOR", "NegotiationInfo": {0: "4711", 1: "pc,server", 2: "0xC062CDFC", 3: "Game"}},
     "5e103155"),
    ("RequestAssetStatus", True,
     {"SearchTerm": "tëxtures/hero.png", "IsStatusRequest": True, "AssetId": _HERO, "SearchType": 1}, "e337b014"),
    ("AssetNotificationMessage", False, dict(zip((name for name, _ in CHANGE.fields), _CHANGED, strict=True)), "5c10cedf"),
    ("BulkAssetNotificationMessage", False,
     {"Type": 1, "Messages": (_CHANGED, ("x" * 300, *_CHANGED[1:5], (), "pc"))}, "2c0fbc7b"),
    ("AssetDependencyInfoResponse", False, {"Found": True, "ErrorString": "none", "Dependencies": ((_HERO, 0),)}, "3c279f60"),
    ("FileReadResponse", False, {"Data": b"A" * 70_000}, "92341bec"),
    ("FindFilesResponse", False, {"Files": ("@products@/a", "@products@/b")}, "1b998b94"),
    ("AssetInfoResponse", False,
     {"Found": True, "AssetInfo": (_HERO, "a.dds", 9, bytes(16)), "RootFolder": "/cache/pc"}, "9a1f5655"),
    ("FileSeekRequest", False, {"FileHandle": 7, "Offset": -5}, "9943d8ef"),
    ("AssetChangeReportResponse", False, {"Report": ("one", "two"), "Success": True}, "d9e9724d"),
    ("AssetJobsInfoResponse", False, {"JobList": (_JOB,), "Success": True}, "31aeeb5c"),
]  # fmt: skip
"""(message, `needs_barrier` of `O3deMessage`, field values, digest of the bytes that O3DE's own class wrote for these values).

The classes and the form of the digests are those of `DEFAULTS_OF_AZCORE`.
"""
VECTORS = [
    (name, *OTHER_DEFAULTS.get(name, (False, {})), digest)
    for name, digest in zip(sorted({shape.name for shape in SHAPES}), DEFAULTS_OF_AZCORE.split(), strict=True)
] + FILLED_BY_AZCORE


@pytest.mark.parametrize(("name", "needs_barrier", "values", "digest"), VECTORS)
def test_encoded_message_is_identical_to_the_message_of_azcore(
    name: str, needs_barrier: bool, values: dict[str, Any], digest: str
) -> None:
    shape = next(shape for shape in SHAPES if shape.name == name)

    assert hashlib.sha256(encode(O3deMessage(shape, values, needs_barrier))).hexdigest()[:8] == digest


def sample(name: str, default: Any) -> Any:
    """Return a value for a field; the value differs from the field's default."""
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
def test_encoded_message_of_every_shape_is_decoded_unchanged(shape: Shape) -> None:
    values = {name: sample(name, kind.default) for name, kind in shape.fields}
    message = O3deMessage(shape, values, needs_barrier=shape.has_base)

    assert decode(shape, encode(message)) == message
    empty = decode(shape, encode(O3deMessage(shape)))
    assert empty.values == {name: kind.default for name, kind in shape.fields}


def test_every_message_has_its_own_name_and_type_number() -> None:
    assert len({shape.type_id for shape in SHAPES}) == len({shape.name for shape in SHAPES})
    assert len({each.type_number for each in EXCHANGES}) == len(EXCHANGES)


def test_decoder_ignores_unknown_fields_and_fills_in_missing_fields() -> None:
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
    with pytest.raises(ValueError, match=r"^the (data|message) "):
        decode(BY_NAME["RequestPing"].request, payload)


def test_decoder_refuses_a_number_with_the_wrong_length() -> None:
    payload = client.message("0CBE6A7C-9D19-4D41-B29C-A52476BB337A", client.element(client.INT, "SearchType", b"12345"), version=3)

    with pytest.raises(ValueError, match="wrong length"):
        decode(BY_NAME["RequestAssetStatus"].request, payload)


@given(st.data())
def test_decoder_either_reads_changed_bytes_or_raises_a_value_error(data: st.DataObject) -> None:
    """Decoding damaged bytes succeeds or raises `ValueError`, and never raises another exception."""
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
