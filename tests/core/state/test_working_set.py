"""The working set: sources and folders in memory, their release from memory, and files that the scan has not checked."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from fakes import FakeArchive, sha

from aptui.core.identity import names_of
from aptui.core.model import Digest, EdgeKind, FileFact, Job, JobState, PathKey, RelPath, Source
from aptui.core.paths import path_uuid
from aptui.core.state import working_set as memory_module
from aptui.core.state.working_set import PendingFolder, Unsettled, WorkingSet


def fact(rel: str, digest: Digest = sha("x")) -> FileFact:
    return FileFact(1, RelPath(rel), 1, 2, 3, 4, digest)


def source(rel: str, state: JobState = JobState.COMPLETED) -> Source:
    found = Source(PathKey(rel), RelPath(rel), 1, path_uuid(rel), 7, fact(rel))
    found.jobs[b"b", "linux", "main"] = Job(found, b"b", "linux", "main", 1, state)
    return found


def row_of(rel: str, source_id: int = 7) -> tuple[object, ...]:
    return (source_id, 1, rel, path_uuid(rel), rel, sha("x"), "", 0, 0)


@pytest.fixture
def archive() -> FakeArchive:
    archive = FakeArchive()
    archive.ranks, archive.scan_folders = {1: 0}, {1}
    archive.save(
        {
            "put_source": [row_of("a.s")],
            "put_folder": [(1, "", b"d", (fact("a.s"), fact("b.bin"))), (1, "sub", b"d", (fact("sub/c.bin"),))],
        }
    )
    return archive


@pytest.fixture
def memory(archive: FakeArchive) -> WorkingSet:
    return WorkingSet(archive)


def test_loaded_source_stays_the_same_object_until_it_leaves_memory(memory: WorkingSet) -> None:
    (first,) = memory.load([PathKey("a.s"), PathKey("unknown")])
    (second,) = memory.load([PathKey("a.s")])

    assert first is second is memory.view(PathKey("a.s"))


def test_release_removes_unchanged_sources_from_memory(memory: WorkingSet) -> None:
    memory.load([PathKey("a.s")])

    memory.release_loaded()

    assert not memory.sources


def test_view_of_a_source_is_cached_outside_the_working_set(memory: WorkingSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "_RECENT_SIZE", 1)
    seen = memory.view(PathKey("a.s"))

    assert seen is not None
    assert memory.view(PathKey("a.s")) is seen
    assert not memory.sources
    assert memory.view(PathKey("b.s")) is None
    assert memory.view(PathKey("a.s")) is not seen


def test_saved_source_is_removed_from_memory_if_no_job_is_active(memory: WorkingSet) -> None:
    moving, still = source("m.s", JobState.RUNNING), source("s.s")
    for item in (moving, still):
        memory.add(item)
        memory.leaves_after(item, 5)
    memory.acknowledge(4)
    assert memory.sources.keys() == {"m.s", "s.s"}

    memory.acknowledge(5)

    assert memory.sources.keys() == {"m.s"}


def test_source_saved_twice_is_removed_from_memory_after_the_second_save(memory: WorkingSet) -> None:
    item = source("s.s")
    memory.add(item)
    memory.leaves_after(item, 5)
    memory.leaves_after(item, 6)

    memory.acknowledge(5)
    assert memory.sources
    memory.acknowledge(6)

    assert not memory.sources


def test_source_whose_rows_are_saved_is_removed_from_memory_at_once(memory: WorkingSet) -> None:
    item = source("s.s")
    memory.add(item)
    memory.acknowledge(5)

    memory.leaves_after(item, 5)

    assert not memory.sources


@pytest.mark.parametrize("flag", ["is_forced", "is_doubted"])
def test_source_with_a_job_to_evaluate_stays_in_memory(memory: WorkingSet, flag: str) -> None:
    item = source("s.s")
    setattr(next(iter(item.jobs.values())), flag, True)
    memory.add(item)

    memory.leaves_after(item, 0)

    assert memory.sources


def test_deleted_source_is_not_loaded_before_its_deletion_is_saved(memory: WorkingSet) -> None:
    (item,) = memory.load([PathKey("a.s")])
    memory.forget(item, 5)

    assert memory.load([PathKey("a.s")]) == []
    assert memory.view(PathKey("a.s")) is None
    assert memory.key_of(path_uuid("a.s")) is None
    memory.acknowledge(5)
    assert memory.load([PathKey("a.s")]) != []


def test_uuid_finds_a_source_in_memory_or_in_the_archive(memory: WorkingSet) -> None:
    memory.add(source("new.s"))

    assert memory.key_of(path_uuid("new.s")) == "new.s"
    assert memory.key_of(path_uuid("a.s")) == "a.s"
    assert memory.key_of(path_uuid("unknown")) is None


def test_source_is_not_found_by_the_uuids_of_its_deleted_identity_file(memory: WorkingSet) -> None:
    former, other = path_uuid("former.s"), path_uuid("other.s")
    named = source("named.s")
    memory.add(named)
    memory.set_legacy(named, (former, named.uuid))
    memory.set_legacy(named, (former, other))
    assert memory.key_of(other) == memory.key_of(former) == "named.s"

    named.identity = None  # the identity file with the UUIDs `former` and `other` was deleted
    memory.leaves_after(named, 1)
    memory.acknowledge(1)

    assert memory.key_of(former) is memory.key_of(other) is memory.key_of(named.uuid) is None


def test_state_of_a_file_is_unsettled_until_the_scan_has_checked_the_file(memory: WorkingSet) -> None:
    assert memory.file(PathKey("a.s")) == fact("a.s")
    memory.begin_scan()
    assert isinstance(memory.file(PathKey("a.s")), Unsettled)
    assert isinstance(memory.matching("*.bin"), Unsettled)

    memory.note_unchanged([""])

    assert memory.file(PathKey("a.s")) == fact("a.s")
    assert isinstance(memory.file(PathKey("sub/c.bin")), Unsettled)
    memory.end_scan()
    assert memory.file(PathKey("sub/c.bin")) == fact("sub/c.bin")
    assert memory.file(PathKey("sub/gone.bin")) is None


@pytest.mark.parametrize("where", ["hashing", "unstable"])
def test_a_file_is_unsettled_while_it_is_read(memory: WorkingSet, where: str) -> None:
    getattr(memory, where).update({PathKey("a.s"): fact("a.s")})

    assert isinstance(memory.file(PathKey("a.s")), Unsettled)


def pending(*facts: FileFact, folder: str = "") -> PendingFolder:
    return PendingFolder(folder, {1: (b"n", {item.rel: item for item in facts})}, {PathKey(item.rel): item for item in facts})


def test_reported_folder_is_used_before_its_rows_are_saved(memory: WorkingSet) -> None:
    memory.folders[""] = pending(fact("b.bin", sha("new")), fact("z.bin"))

    assert memory.file(PathKey("b.bin")) == fact("b.bin", sha("new"))
    assert memory.file(PathKey("a.s")) is None
    assert memory.matching("*.bin") == ["b.bin", "sub/c.bin", "z.bin"]
    assert memory.matching("SUB/*.bin") == ["sub/c.bin"]


def test_loaded_source_has_the_unsaved_digest_that_a_scan_reported(memory: WorkingSet) -> None:
    memory.folders[""] = pending(fact("a.s", sha("new")))

    (item,) = memory.load([PathKey("a.s")])

    assert item.fact == fact("a.s", sha("new"))


def test_folder_leaves_memory_when_its_row_is_saved_and_no_file_is_pending(memory: WorkingSet, archive: FakeArchive) -> None:
    folder = pending(fact("b.bin", sha("new")))
    memory.begin_scan()
    memory.folders[""] = folder
    folder.open.add(PathKey("b.bin"))
    memory.folder_leaves_after(folder, 3)
    memory.acknowledge(3)
    assert memory.folders

    folder.open.clear()
    memory.folder_leaves_after(folder, 4)
    archive.files([PathKey("b.bin")])
    archive.save({"put_folder": [(1, "", b"n", (fact("b.bin", sha("new")),))]})
    memory.acknowledge(4)

    assert not memory.folders
    assert memory.file(PathKey("b.bin")) == fact("b.bin", sha("new"))
    memory.acknowledge(4)


def test_folder_scanned_twice_is_removed_from_memory_after_the_second_save(memory: WorkingSet) -> None:
    first = pending(fact("b.bin"))
    memory.folders[""] = first
    memory.folder_leaves_after(first, 3)
    second = pending(fact("b.bin"))
    memory.folders[""] = second
    memory.folder_leaves_after(second, 4)

    memory.acknowledge(3)
    assert memory.folders
    memory.acknowledge(4)

    assert not memory.folders


def test_digest_from_a_single_file_check_moves_to_the_reported_folder(memory: WorkingSet) -> None:
    memory.newer.facts = {PathKey(name): fact(name, sha("read")) for name in ("b.bin", "gone.bin", "changed.bin", "sub/c.bin")}
    assert memory.file(PathKey("b.bin")) == fact("b.bin", sha("read"))
    folder = pending(fact("b.bin", Digest(b"")), fact("changed.bin", Digest(b"")))

    memory.newer.move_to(folder, {PathKey("changed.bin")})

    assert memory.newer.facts.keys() == {"sub/c.bin"}
    assert folder.winners["b.bin"].digest == folder.parts[1][1]["b.bin"].digest == sha("read")  # type: ignore[index]
    assert folder.winners["changed.bin"].digest == b""  # type: ignore[index]


def test_dependents_of_many_sources_need_one_query_per_event(archive: FakeArchive) -> None:
    asked: list[int] = []
    answer = archive.dependents

    def dependents(targets: Sequence[str]) -> dict[str, set[PathKey]]:
        asked.append(len(targets))
        return answer(targets)

    archive.save({"put_edge": [(path_uuid("a.s"), b"b", int(EdgeKind.PATH), "n1.s", 0, "", 0, 7)]})
    archive.dependents = dependents  # type: ignore[method-assign]
    memory = WorkingSet(archive)
    several = [source(f"n{number}.s") for number in range(20)]

    memory.expect_dependents(several)
    found = [memory.dependents(names_of(each)) for each in several]
    named = [memory.has_dependents(names_of(each)) for each in several]

    assert found == [{"a.s"} if number == 1 else set() for number in range(20)]
    assert named == [number == 1 for number in range(20)]
    assert asked == [40]
    memory.forget_answers()
    assert memory.has_dependents(("n1.s",))
    assert asked == [40, 1]
