"""The scan and identity files: which source a file belongs to, new identity files, and equal paths in two scan folders."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import pytest
from stored_folders import StoredFolders

from aptui.core.identity import META_SUFFIX
from aptui.core.messages import FolderSeen
from aptui.core.model import DUPLICATE_MARK, PathKey
from aptui.core.project import Project, ScanFolder
from aptui.engine.scan.metadata import Metadata
from aptui.engine.scan.scanner import Scanner
from aptui.engine.scan.walk import Walk

ONE, TWO = (f"{{{digit * 8}-2222-4333-8444-555555555555}}" for digit in "12")


class Harness:
    """One or two scan folders on disk, `a` and `b`, with a clock that does not advance."""

    def __init__(self, root: Path, *names: str, types: tuple[str, ...] = (), delay_s: float = 0.0, creates: bool = False) -> None:
        self.root = root
        self.now = 100.0
        self.names = names
        for name in names:
            (root / name).mkdir()
        self.stored = StoredFolders()
        self.types, self.delay_s, self.creates = types, delay_s, creates
        self.metadata = Metadata(types, {}, creates=creates, delay_s=delay_s, clock=lambda: self.now)
        self._numbers = itertools.count(1)
        self._ticks = itertools.count(1)

    def scan(self, *, reassess: bool = False) -> FolderSeen | None:
        """Scan, store the results as the engine would, and return the report of the top folder."""
        parts = tuple(ScanFolder(number, name, str(self.root / name), number) for number, name in enumerate(self.names, 1))
        project = Project((), "linux", parts, (), metadata_types=self.types)
        self.metadata.types = self.types
        self.metadata.roots = {part.id: part.path for part in parts}
        scanner = Scanner(
            project, Walk(project), self.stored, lambda: next(self._numbers), metadata=self.metadata, reassess=reassess
        )
        events = [event for step in scanner.steps() for event in step]
        self.stored.store(events)
        return next((event for event in events if isinstance(event, FolderSeen) and event.folder == ""), None)

    def write(self, rel: str, data: str = "x") -> None:
        """Write a file with a unique time."""
        (self.root / rel).write_text(data)
        tick = next(self._ticks)
        os.utime(self.root / rel, (tick, tick))

    def name(self, rel: str, uuid: str = ONE) -> None:
        """Write the identity file of a source."""
        self.write(rel + META_SUFFIX, json.dumps({"UUID": {"uuid": uuid}}))


def reported(event: FolderSeen | None) -> list[str]:
    return sorted(fact.key for fact in event.facts) if event else []


def uuids_of(event: FolderSeen | None) -> dict[str, str]:
    return {str(key): identity.problem or identity.uuid.hex()[:8] for key, identity in event.identities} if event else {}


# --------------------------------------------------------------------------------------------------- reading identity files


def test_change_of_an_identity_file_reports_its_source(tmp_path: Path) -> None:
    harness = Harness(tmp_path, "a")
    harness.write("a/x.txt")
    harness.write("a/y.txt")
    harness.scan()

    harness.name("a/x.txt")
    event = harness.scan()
    assert reported(event) == ["x.txt", "x.txt.meta"]
    assert uuids_of(event) == {"x.txt": "11111111"}
    harness.name("a/x.txt", TWO)
    assert uuids_of(harness.scan()) == {"x.txt": "22222222"}
    harness.write("a/y.txt", "changed")
    assert reported(harness.scan()) == ["y.txt"]
    (tmp_path / "a/x.txt.meta").unlink()
    event = harness.scan()
    assert (reported(event), uuids_of(event)) == (["x.txt"], {})
    assert event is not None
    assert event.gone == ("x.txt.meta",)


def test_identity_file_belongs_to_a_source_whose_name_differs_in_case(tmp_path: Path) -> None:
    harness = Harness(tmp_path, "a")
    harness.write("a/X.txt")
    harness.name("a/x.TXT")
    harness.name("a/alone.txt")

    event = harness.scan()

    assert uuids_of(event) == {"x.txt": "11111111"}
    assert reported(event) == ["alone.txt.meta", "x.txt", "x.txt.meta"]


def test_identity_file_of_an_overridden_source_is_ignored(tmp_path: Path) -> None:
    harness = Harness(tmp_path, "a", "b")
    harness.write("a/x.txt")
    harness.write("b/x.txt")
    harness.name("b/x.txt")

    assert uuids_of(harness.scan()) == {}


@pytest.mark.parametrize("types", [(), (".txt",)])
@pytest.mark.parametrize(
    "others", [("a/x.txt.meta",), ("a/x.txt",)], ids=["without a neighbour", "beside an identity file without a source"]
)
def test_identity_file_in_the_scan_folder_of_its_source_wins(
    tmp_path: Path, types: tuple[str, ...], others: tuple[str, ...]
) -> None:
    harness = Harness(tmp_path, "a", "b", types=types)
    for rel in others:
        harness.write(rel, "")
    for name in ("b/x.txt", "b/y.txt"):
        harness.write(name)
        harness.name(name)
    first = uuids_of(harness.scan())

    harness.name("b/x.txt", TWO)

    is_hidden = not types and "a/x.txt" in others
    assert uuids_of(harness.scan()) == {key: "22222222" for key in first if key.startswith("x") and not is_hidden}


def test_identity_file_with_exactly_the_name_of_its_source_wins(tmp_path: Path) -> None:
    harness = Harness(tmp_path, "a")
    harness.write("a/x.txt")
    harness.name("a/X.txt", TWO)
    assert uuids_of(harness.scan()) == {"x.txt": "22222222"}

    harness.name("a/x.txt", ONE)
    assert uuids_of(harness.scan()) == {"x.txt": "11111111"}
    harness.name("a/x.txt", TWO)
    assert uuids_of(harness.scan()) == {"x.txt": "22222222"}
    harness.name("a/x.TXT", ONE)
    assert uuids_of(harness.scan()) == {}
    (tmp_path / "a/x.txt.meta").unlink()

    assert uuids_of(harness.scan()) == {"x.txt": "22222222"}, "the identity file whose name comes first is used"


# -------------------------------------------------------------------------------------------------- creating identity files


def test_identity_files_are_made_only_for_the_configured_types(tmp_path: Path) -> None:
    harness = Harness(tmp_path, "a", types=(".txt",), creates=True)
    harness.write("a/x.txt")
    harness.write("a/y.png")

    event = harness.scan()

    assert sorted(os.listdir(tmp_path / "a")) == ["x.txt", "x.txt.meta", "y.png"]
    assert reported(event) == ["x.txt", "x.txt.meta", "y.png"]
    assert list(uuids_of(event)) == ["x.txt"]
    assert harness.scan() is None, "the new identity file is recorded"


def test_batch_creates_no_identity_files(tmp_path: Path) -> None:
    harness = Harness(tmp_path, "a", types=(".txt",))
    harness.write("a/x.txt")

    assert reported(harness.scan()) == ["x.txt"]
    assert os.listdir(tmp_path / "a") == ["x.txt"]


def test_new_source_gets_an_identity_file_after_the_delay(tmp_path: Path) -> None:
    harness = Harness(tmp_path, "a", types=(".txt",), creates=True, delay_s=2.0)
    harness.write("a/x.txt")

    assert reported(harness.scan()) == []
    assert harness.metadata.due(101.9) == []
    harness.now = 102.0
    assert reported(harness.scan()) == ["x.txt", "x.txt.meta"]
    assert not harness.metadata.held


def test_source_no_longer_waits_after_its_identity_file_appears(tmp_path: Path) -> None:
    harness = Harness(tmp_path, "a", types=(".txt",), creates=True, delay_s=2.0)
    harness.write("a/x.txt")
    harness.scan()

    harness.name("a/x.txt")
    event = harness.scan()

    assert uuids_of(event) == {"x.txt": "11111111"}
    assert not harness.metadata.held


def test_source_without_its_identity_file_keeps_its_record_during_the_delay(tmp_path: Path) -> None:
    harness = Harness(tmp_path, "a", types=(".txt",), creates=True, delay_s=2.0)
    harness.write("a/x.txt")
    harness.name("a/x.txt")
    harness.scan()
    (tmp_path / "a/x.txt.meta").unlink()
    harness.write("a/x.txt", "changed")

    event = harness.scan()

    assert event is not None
    assert (reported(event), event.gone) == ([], ())
    (tmp_path / "a/x.txt").unlink()
    harness.now = 103.0
    event = harness.scan()
    assert event is not None
    assert set(event.gone) == {"x.txt", "x.txt.meta"}


def test_source_with_an_empty_identity_file_is_reported(tmp_path: Path) -> None:
    harness = Harness(tmp_path, "a", types=(".txt",), creates=True)
    harness.write("a/x.txt")
    harness.write("a/x.txt.meta", "")

    assert list(uuids_of(harness.scan())) == ["x.txt"]


@pytest.mark.parametrize("creates", [False, True])
def test_sources_whose_names_differ_in_case_clash_despite_identity_files(tmp_path: Path, creates: bool) -> None:
    harness = Harness(tmp_path, "a", "b", types=(".txt",), creates=creates)
    for folder in "ab":
        for name in ("x.txt", "X.txt"):
            harness.write(f"{folder}/{name}")
            harness.name(f"{folder}/{name}")

    event = harness.scan()

    assert event is not None
    assert {str(fact.rel) for fact, _others in event.clashes} == {"x.txt", "X.txt", "x.txt.meta", "X.txt.meta"}
    assert reported(event) == [], "overridden files that differ only in case do not clash"
    for folder in "ab":
        (tmp_path / folder / "X.txt").unlink()
        (tmp_path / folder / "X.txt.meta").unlink()
    assert list(uuids_of(harness.scan())) == ["x.txt", f"x.txt{DUPLICATE_MARK}2"]


# ------------------------------------------------------------------------------------------------------- hidden files


def test_files_of_a_metadata_type_do_not_override_each_other(tmp_path: Path) -> None:
    harness = Harness(tmp_path, "a", "b", types=(".txt",))
    for folder in "ab":
        harness.write(f"{folder}/x.txt")
        harness.name(f"{folder}/x.txt", ONE if folder == "a" else TWO)
        harness.write(f"{folder}/y.png")

    event = harness.scan()

    duplicate = PathKey(f"x.txt{DUPLICATE_MARK}2")
    assert (
        {fact.key: fact.scan_folder for fact in event.facts if "meta" not in fact.key} == {"x.txt": 1, duplicate: 2, "y.png": 1}
        if event
        else False
    )
    assert uuids_of(event) == {"x.txt": "11111111", duplicate: "22222222"}
    harness.name("b/x.txt", "{33333333-2222-4333-8444-555555555555}")
    assert uuids_of(harness.scan()) == {duplicate: "33333333"}
    (tmp_path / "a/x.txt").unlink()
    event = harness.scan()
    assert event is not None
    assert ("x.txt", 2) in [(fact.key, fact.scan_folder) for fact in event.facts], "the file in `b` is now reported as `x.txt`"
    assert duplicate in event.gone


def test_hidden_file_is_reported_as_gone_after_override_rules_change(tmp_path: Path) -> None:
    harness = Harness(tmp_path, "a", "b", types=(".txt",))
    for folder in "ab":
        harness.write(f"{folder}/x.txt")
    harness.scan()
    harness.types = ()

    event = harness.scan(reassess=True)

    assert event is not None
    assert reported(event) == ["x.txt"]
    assert f"x.txt{DUPLICATE_MARK}2" in event.gone
