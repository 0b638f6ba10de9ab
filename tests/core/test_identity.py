"""Identities of sources: which source owns an identity file, the UUIDs of a path, and the stored form of an identity."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aptui.core.identity import (
    duplicate_prefix,
    duplicate_uuid,
    format_braced,
    intermediate_uuid,
    legacy_of,
    make_contested_uuid,
    owner_of,
    pack,
    path_uuids,
    unpack,
)
from aptui.core.model import DUPLICATE_MARK, Digest, PathKey, RelPath, Source, SourceIdentity, SourceUuid
from aptui.core.paths import path_uuid

UUIDS = st.binary(min_size=16, max_size=16).map(SourceUuid)
NAMES = st.text(alphabet="aB/ü.\U0010ffff", max_size=5)


def source(rel: str, identity: SourceIdentity | None = None, uuid: SourceUuid | None = None) -> Source:
    found = Source(PathKey(rel.lower()), RelPath(rel), 1, uuid or path_uuid(rel), 1)
    found.identity = identity
    return found


def test_only_an_identity_file_has_an_owning_source() -> None:
    assert owner_of(PathKey("sub/a.txt.meta")) == "sub/a.txt"
    assert owner_of(PathKey("sub/a.txt")) is None


def test_path_has_a_second_uuid_only_if_it_has_capital_letters() -> None:
    assert len(path_uuids(RelPath("Sub/A.txt"))) == 2
    assert path_uuids(RelPath("sub/a.txt")) == (path_uuid("sub/a.txt"),)
    assert path_uuids(RelPath("Sub/A.txt"))[0] == path_uuid("sub/a.txt")


def test_source_is_found_by_path_uuids_and_earlier_uuids() -> None:
    one, old = SourceUuid(b"1" * 16), SourceUuid(b"0" * 16)
    named = source("A.txt", SourceIdentity(one, (old,), "A.txt", 1), one)

    assert legacy_of(named) == (old, *path_uuids(RelPath("A.txt")))
    assert legacy_of(source("a.txt")) == ()
    assert legacy_of(source("a.txt", SourceIdentity(one), path_uuid("a.txt"))) == (one,), (
        "the source uses the UUID of its path, so the UUID in its identity file is an additional UUID"
    )


def test_source_with_a_damaged_identity_file_has_no_additional_uuids() -> None:
    broken = SourceIdentity(SourceUuid(bytes(16)), problem="damaged")

    assert legacy_of(source("a.txt", broken)) == ()


def test_source_with_a_duplicate_path_has_no_path_uuid() -> None:
    duplicate = Source(PathKey(f"a.txt{DUPLICATE_MARK}3"), RelPath("a.txt"), 3, duplicate_uuid("shared", RelPath("a.txt")), 1)

    assert legacy_of(duplicate) == ()


def test_derived_uuids_of_different_intermediates_differ() -> None:
    one, two, plain = (
        Source(PathKey("p.txt"), RelPath("p.txt"), 3, uuid, 1)
        for uuid in (SourceUuid(b"1" * 16), SourceUuid(b"2" * 16), path_uuids(RelPath("p.txt"))[0])
    )

    derived = [
        intermediate_uuid(one, b"b" * 16, 0, RelPath("p.mid")),
        intermediate_uuid(one, b"b" * 16, 1, RelPath("p.mid")),
        intermediate_uuid(one, b"c" * 16, 0, RelPath("p.mid")),
        intermediate_uuid(two, b"b" * 16, 0, RelPath("p.mid")),
        intermediate_uuid(plain, b"b" * 16, 0, RelPath("p.mid")),
        duplicate_uuid("game", RelPath("a.txt")),
        duplicate_uuid("shared", RelPath("a.txt")),
        make_contested_uuid(PathKey("a.txt")),
        make_contested_uuid(PathKey("b.txt")),
        path_uuid("a.txt"),
    ]

    assert len(set(derived)) == len(derived)
    assert derived[4] == path_uuid("p.mid")
    assert duplicate_uuid("Game", RelPath("A.txt")) == duplicate_uuid("game", RelPath("a.txt"))


def test_formatted_uuid_has_braces_and_capital_letters() -> None:
    assert format_braced(bytes(range(16))) == "{00010203-0405-0607-0809-0A0B0C0D0E0F}"


@given(UUIDS, st.lists(UUIDS, max_size=3), NAMES, st.integers(0, 1 << 62), st.binary(min_size=32, max_size=32), NAMES)
def test_unpacked_identity_equals_the_packed_identity(
    uuid: SourceUuid, legacy: list[SourceUuid], original: str, created_ms: int, digest: bytes, problem: str
) -> None:
    identity = SourceIdentity(uuid, tuple(legacy), original, created_ms, Digest(digest), problem)

    assert unpack(pack(identity)) == identity


@pytest.mark.parametrize("text", [pack(None)])
def test_missing_identity_is_stored_as_empty_text(text: str) -> None:
    assert text == ""
    assert unpack(text) is None


def test_prefix_of_a_duplicate_path_depends_only_on_the_scan_folder_name() -> None:
    found = [duplicate_prefix(name) for name in ("low", "Low", "Gem/Assets", "gem_assets", "é (2)")]

    assert found[0] == found[1] == "(low)"
    assert found[3] == "(gem_assets)"
    assert len(set(found)) == 4
    assert all(set(prefix[1:-1]) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-") for prefix in found)
