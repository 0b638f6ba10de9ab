"""Identity files: their contents, damaged files, and how missing files are created without changes to existing ones."""

from __future__ import annotations

import json
import os
from pathlib import Path
from uuid import UUID

import pytest
from tools import MACHINE

from aptui.core.identity import format_braced, path_uuids
from aptui.core.model import FileFact, PathKey, RelPath, SourceIdentity
from aptui.core.paths import to_text
from aptui.engine.scan.metadata import Metadata, parse, render

ONE = "{11111111-2222-4333-8444-555555555555}"
OLD = "{99999999-2222-4333-8444-555555555555}"
WHOLE = {"uuid": ONE, "legacyUuids": [OLD], "originalPath": "Sub/A.txt", "creationUnixEpochMS": 7}


def fact(rel: str) -> FileFact:
    return FileFact(1, RelPath(rel), 0, 0, 0, 0)


def read(data: bytes, rel: str = "sub/a.txt") -> SourceIdentity:
    return parse(data, fact(f"{rel}.meta"), fact(rel))[0]


def text(*without: str, **fields: object) -> bytes:
    return json.dumps(
        {"FileVersion": 1, "UUID": {key: value for key, value in {**WHOLE, **fields}.items() if key not in without}}
    ).encode()


@pytest.fixture
def identities(tmp_path: Path) -> Metadata:
    return Metadata((".txt",), {1: str(tmp_path)}, creates=True)


# --------------------------------------------------------------------------------------------------- reading identity files


def test_complete_identity_file_gives_the_uuid() -> None:
    identity, document = parse(text(), fact("sub/a.txt.meta"), fact("sub/a.txt"))

    assert (format_braced(identity.uuid), [format_braced(uuid) for uuid in identity.legacy]) == (ONE, [OLD])
    assert (identity.original, identity.created_ms, identity.problem) == ("Sub/A.txt", 7, "")
    assert document is None, "the identity file is complete"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"UUID":\n {"uuid"', "is damaged: line 2"),
        (b"\xff\xfe{}", "is damaged: it is not UTF-8"),
        (b"[" * 20_000, "is damaged"),
        (b'{"UUID": %s}' % (b"1" * 5_000), "is damaged"),
        (b" " * (32 << 10) + b"{}", "is larger than 32 KiB"),
        (b"{}", "has no UUID"),
        (b"[]", "has no UUID"),
        (b'"text"', "has no UUID"),
        (b'{"UUID": null}', "has no UUID"),
        (b'{"UUID": {}}', "has no UUID"),
        (text(legacyUuids=["x"] * 65), "has more than 64 legacy UUIDs"),
        (text(uuid="nobody"), "has 'nobody', which is not a UUID"),
        (text(uuid=None), "has None, which is not a UUID"),
        (text(uuid="{00000000-0000-0000-0000-000000000000}"), "has a UUID that consists of zeros"),
    ],
)
def test_problem_with_an_identity_file_is_reported_with_its_path(data: bytes, why: str) -> None:
    assert f"its identity file 'sub/a.txt.meta' {why}" in read(data).problem


def test_uuid_is_accepted_in_every_spelling_and_after_a_byte_order_mark() -> None:
    assert {read(text(uuid=spelled)).uuid for spelled in (ONE, ONE.strip("{}"), ONE.strip("{}").replace("-", ""))} == {
        UUID(ONE).bytes
    }
    assert not read(b"\xef\xbb\xbf" + text()).problem, "an identity file may begin with a byte order mark"


@pytest.mark.parametrize(
    "fields",
    [
        {"legacyUuids": []},
        {"legacyUuids": ["nonsense"]},
        {"legacyUuids": "none"},
        {"originalPath": ""},
        {"originalPath": 5},
        {"creationUnixEpochMS": 0},
        {"creationUnixEpochMS": "yesterday"},
        {"creationUnixEpochMS": 1 << 80},
        {"creationUnixEpochMS": True},
    ],
)
def test_missing_field_of_an_identity_file_is_added_only_once(
    identities: Metadata, tmp_path: Path, fields: dict[str, object]
) -> None:
    path = tmp_path / "a.txt.meta"
    path.write_bytes(text(**fields))

    identity = identities.read(fact("a.txt.meta"), fact("a.txt"))

    completed = path.read_bytes()
    assert completed != text(**fields)
    assert identity is not None
    assert (format_braced(identity.uuid), identity.problem) == (ONE, "")
    assert identity.created_ms > 0
    identities.read(fact("a.txt.meta"), fact("a.txt"))
    assert path.read_bytes() == completed, "the second read does not change the identity file, which is now complete"


def test_identity_file_is_completed_only_if_the_configuration_allows_it(identities: Metadata, tmp_path: Path) -> None:
    for rel, creates in (("a.png", True), ("a.txt", False)):
        identities.creates = creates
        path = tmp_path / f"{rel}.meta"
        path.write_bytes(text("legacyUuids"))

        identity = identities.read(fact(f"{rel}.meta"), fact(rel))

        assert identity is not None
        assert identity.legacy == path_uuids(RelPath(rel)), (
            "without legacy UUIDs in the file, the UUIDs of the source's path are used"
        )
        assert path.read_bytes() == text("legacyUuids")


def test_unknown_contents_of_an_identity_file_are_kept(identities: Metadata, tmp_path: Path) -> None:
    path = tmp_path / "a.txt.meta"
    path.write_text(json.dumps({"Mine": [1, {"ü": None}], "FileVersion": 3, "UUID": {"uuid": ONE, "mine": 1.5}}))

    identities.read(fact("a.txt.meta"), fact("a.txt"))

    fields = json.loads(path.read_bytes())
    assert (fields["Mine"], fields["FileVersion"], fields["UUID"]["mine"], fields["UUID"]["uuid"]) == (
        [1, {"ü": None}],
        3,
        1.5,
        ONE,
    )


def test_empty_or_deleted_identity_file_gives_no_identity(identities: Metadata, tmp_path: Path) -> None:
    (tmp_path / "a.txt.meta").write_bytes(b" \n")

    assert identities.read(fact("a.txt.meta"), fact("a.txt")) is None
    assert identities.read(fact("gone.txt.meta"), fact("gone.txt")) is None


def test_damaged_identity_file_is_not_changed(identities: Metadata, tmp_path: Path) -> None:
    (tmp_path / "a.txt.meta").write_bytes(b"{")

    identity = identities.read(fact("a.txt.meta"), fact("a.txt"))

    assert identity is not None
    assert "is damaged" in identity.problem
    assert (tmp_path / "a.txt.meta").read_bytes() == b"{"


@pytest.mark.skipif(os.geteuid() == 0, reason=MACHINE + "the administrator may read everything")
def test_unreadable_identity_file_is_reported_as_a_problem(identities: Metadata, tmp_path: Path) -> None:
    (tmp_path / "a.txt.meta").write_bytes(text())
    (tmp_path / "a.txt.meta").chmod(0)

    identity = identities.read(fact("a.txt.meta"), fact("a.txt"))

    assert identity is not None
    assert "cannot be read" in identity.problem


# -------------------------------------------------------------------------------------------------- creating identity files


def test_new_identity_file_has_the_reference_form_and_can_be_read(identities: Metadata, tmp_path: Path) -> None:
    assert identities.make(fact("Sub.txt"))

    data = (tmp_path / "Sub.txt.meta").read_bytes()
    fields = json.loads(data)
    assert (fields["FileVersion"], fields["UUID"]["__version"], fields["UUID"]["originalPath"]) == (1, 0, "Sub.txt")
    assert fields["UUID"]["legacyUuids"] == [format_braced(uuid) for uuid in path_uuids(RelPath("Sub.txt"))]
    identity, document = parse(data, fact("Sub.txt.meta"), fact("Sub.txt"))
    assert document is None, "the new identity file lacks no field, so `parse` returns no document to complete"
    assert UUID(bytes=bytes(identity.uuid)).version == 4
    assert os.listdir(tmp_path) == ["Sub.txt.meta"], "no temporary file stays"


def test_each_source_gets_a_different_uuid(identities: Metadata, tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        identities.make(fact(name))

    assert read((tmp_path / "a.txt.meta").read_bytes()).uuid != read((tmp_path / "b.txt.meta").read_bytes()).uuid


def test_identity_file_of_another_program_is_not_replaced(identities: Metadata, tmp_path: Path) -> None:
    (tmp_path / "a.txt.meta").write_bytes(text())

    assert identities.make(fact("a.txt"))

    assert (tmp_path / "a.txt.meta").read_bytes() == text()
    assert os.listdir(tmp_path) == ["a.txt.meta"]


def test_empty_identity_file_is_completed(identities: Metadata, tmp_path: Path) -> None:
    (tmp_path / "a.txt.meta").touch()

    assert identities.make(fact("a.txt"))

    assert not read((tmp_path / "a.txt.meta").read_bytes()).problem


def test_identity_file_is_created_on_a_file_system_without_hard_links(
    identities: Metadata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_paths: bytes) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)

    assert identities.make(fact("a.txt"))

    assert not read((tmp_path / "a.txt.meta").read_bytes()).problem
    (tmp_path / "b.txt.meta").write_bytes(text())
    identities.make(fact("b.txt"))
    assert (tmp_path / "b.txt.meta").read_bytes() == text()


def test_source_with_an_undecodable_name_gets_an_identity_file(identities: Metadata, tmp_path: Path) -> None:
    assert identities.make(fact(to_text(b"\xff.txt")))

    assert os.listdir(os.fsencode(tmp_path)) == [b"\xff.txt.meta"]
    assert not read((tmp_path / os.fsdecode(b"\xff.txt.meta")).read_bytes()).problem


def test_missing_identity_file_in_an_unwritable_folder_is_only_reported(
    identities: Metadata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_paths: bytes) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "fsync", refuse)

    assert not identities.make(fact("a.txt"))

    assert identities.mistakes == [f"identity file '{tmp_path}/a.txt.meta' cannot be written: Read-only file system"]
    assert os.listdir(tmp_path) == []


def test_name_that_json_cannot_represent_is_not_written() -> None:
    assert render({}, SourceIdentity(path_uuids(RelPath("a"))[0]), RelPath("\udcff.txt")) is None


# ------------------------------------------------------------------------------------------ the delay of new identity files


def test_source_without_an_identity_file_is_held_until_the_delay_ends(tmp_path: Path) -> None:
    now = [10.0]
    identities = Metadata((".txt",), {1: str(tmp_path)}, creates=True, delay_s=2.0, clock=lambda: now[0])

    assert identities.is_held(fact("a.txt"))
    now[0] = 11.0
    assert identities.is_held(fact("a.txt")), "a second query does not restart the delay"
    assert identities.due(11.9) == []
    now[0] = 12.0
    assert identities.due(12.0) == [(1, "a.txt")]
    assert not identities.is_held(fact("a.txt"))
    identities.release(fact("a.txt"))
    assert identities.due(99.0) == []


def test_source_is_not_held_if_there_is_no_delay(identities: Metadata) -> None:
    assert not identities.is_held(fact("a.txt"))
    assert not identities.held


def test_only_sources_of_configured_types_get_identity_files(identities: Metadata) -> None:
    assert identities.wants(PathKey("sub/a.txt"))
    assert not identities.wants(PathKey("sub/a.png"))
    assert not Metadata((), {}).wants(PathKey("sub/a.txt"))


def test_link_at_the_path_of_the_temporary_file_is_not_followed(tmp_path, monkeypatch):
    import os

    from aptui.core.model import FileFact, RelPath
    from aptui.engine.scan import metadata

    canary = tmp_path / "canary"
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets/a.png").write_bytes(b"x")
    monkeypatch.setattr(os, "urandom", bytes)  # makes the random part of the temporary file's name predictable: all zeros
    (tmp_path / "assets/a.png.meta.000000000000.tmp").symlink_to(canary)
    (tmp_path / f"assets/a.png.meta.{os.getpid()}.tmp").symlink_to(canary)
    found = metadata.Metadata((".png",), {1: str(tmp_path / "assets")}, creates=True, delay_s=0)

    is_made = found.make(FileFact(1, RelPath("a.png"), 1, 0, 0, 0))

    assert not is_made
    assert not canary.exists()
    assert "cannot be written: File exists" in found.mistakes[0]
