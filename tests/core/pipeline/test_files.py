"""Files: the effects of a scan, a save, a deletion and a rename."""

from __future__ import annotations

import random

import pytest
from fake_world import World, settled
from fakes import Setup, copier, glob, scripter, sha
from msgspec.structs import replace

from aptui.core.asset_checks import Check, CheckLevel
from aptui.core.messages import (
    CommitProducts,
    DiscardStaging,
    FilesHashed,
    FilesSeen,
    FolderSeen,
    FoldersUnchanged,
    HashFiles,
    ProductsLost,
    RecheckFiles,
    SaveRows,
    SlotsFree,
    StartRuns,
)
from aptui.core.model import PathKey
from aptui.core.notices import JobChanged, ProductsChanged, SourcesChanged
from aptui.core.orders import Outcome
from aptui.core.pipeline.pipeline import Pipeline
from aptui.core.project import Companion
from aptui.core.rows import ROW_OPERATIONS


def test_new_source_is_processed_and_then_released_from_memory(world: World) -> None:
    assert world.apply({"A.txt": "hello"}).cache == {"linux/a.txt": sha("hello")}
    assert world.statuses() == {"A.txt@linux:data": "completed"}
    assert world.job("A.txt@linux:data").reason == "new source"
    assert not world.pipeline.jobs.memory.sources
    assert not world.pipeline.jobs.memory.folders


def test_unmatched_file_is_recorded_and_not_read(world: World) -> None:
    assert world.apply({"a.bin": "x"}).statuses() == {}
    assert (1, "a.bin") in world.archive.tables.files
    assert not any(isinstance(command, HashFiles) for command in world.commands)


def rows_of(world: World, operation: str) -> int:
    """Return the number of database rows that were saved by one operation ("put_job"), both in save commands and in commits."""
    saved = [row for command in world.commands_of(SaveRows) for row in command.rows.get(operation, ())]
    return len(saved) + world.rows_committed[operation]


def test_new_copied_file_saves_one_job_row_and_at_most_five_other_rows(world: World) -> None:

    world.apply({f"{number}.txt": str(number) for number in range(10)})

    assert rows_of(world, "put_job") == 10
    per_folder = rows_of(world, "put_folder") + rows_of(world, "drop_folder") + rows_of(world, "put_state")
    assert sum(rows_of(world, operation) for operation in ROW_OPERATIONS) - per_folder <= 60
    assert not world.pipeline.jobs.memory.unsaved.jobs


def test_changed_copied_file_saves_its_job_row_once(world: World) -> None:
    settled(world, a_txt="a", b_txt="b")
    world.commands.clear()
    world.rows_committed.clear()
    assert world.apply({"a.txt": "changed", "b.txt": "changed too"}).cache == {
        "linux/a.txt": sha("changed"),
        "linux/b.txt": sha("changed too"),
    }
    assert rows_of(world, "put_job") == 2
    assert not world.pipeline.jobs.memory.unsaved.jobs


def test_changed_file_whose_copy_never_ran_is_found_again_after_a_crash(world: World) -> None:
    settled(world, a_txt="a", b_txt="b", c_txt="c")
    world.edit({"a.txt": "a2", "b.txt": "b2"})
    world.held = {"b.txt@linux:data"}
    world.process()
    assert [row[16] for row in world.archive.tables.jobs.values()] == ["completed"] * 3

    world.held = set()
    world.forget_runs()
    assert world.crash().settle().cache == {"linux/a.txt": sha("a2"), "linux/b.txt": sha("b2"), "linux/c.txt": sha("c")}
    assert world.ran() == ["b.txt@linux:data"]


def test_row_of_a_requested_copy_job_has_the_state_waiting(world: World) -> None:
    settled(world, a_txt="a")
    world.held = {"a.txt@linux:data"}
    world.ask("reprocess", keys=("a.txt",))

    assert [row[16] for row in world.archive.tables.jobs.values()] == ["waiting"]


def test_folder_row_has_no_file_times_until_all_new_products_are_placed(world: World) -> None:
    world.edit({"a.txt": "a", "b.txt": "b"})
    world.held = {"b.txt@linux:data"}
    world.process()

    assert world.cache == {"linux/a.txt": sha("a")}
    assert {fact.rel: bool(fact.mtime_ns) for fact in world.archive.tables.folders["", 1][1]} == {"a.txt": False, "b.txt": False}


def test_new_file_whose_copy_never_ran_is_found_again_after_a_crash(world: World) -> None:
    settled(world, c_txt="c")  # without a finished first scan, the next engine would check every file and find `b.txt` anyway
    world.edit({"a.txt": "a", "b.txt": "b"})
    world.held = {"b.txt@linux:data"}
    world.process()
    assert sorted(str(row[2]) for row in world.archive.tables.sources.values()) == ["a.txt", "b.txt", "c.txt"]
    assert len(world.archive.tables.jobs) == 2

    world.held = set()
    world.forget_runs()
    assert world.crash().settle().cache == {"linux/a.txt": sha("a"), "linux/b.txt": sha("b"), "linux/c.txt": sha("c")}
    assert world.ran() == ["b.txt@linux:data"]


def test_new_source_deleted_while_no_engine_runs_is_forgotten(world: World) -> None:
    settled(world, c_txt="c")
    world.edit({"a.txt": "a", "b.txt": "b"})
    world.held = {"b.txt@linux:data"}
    world.process()

    world.crash().apply({"b.txt": None})

    assert sorted(str(row[2]) for row in world.archive.tables.sources.values()) == ["a.txt", "c.txt"]


@pytest.fixture
def copying() -> World:
    """A world whose workers copy files as they read them."""
    return World().boot(copies_on_reading=True)


def test_copied_file_is_read_once_for_several_platforms(copying: World) -> None:
    copying.boot(setup=Setup(builders=(copier(platforms=("linux", "server")),), platforms=("linux", "server")))
    assert copying.apply({"a.txt": "a"}).cache == {"linux/a.txt": sha("a"), "server/a.txt": sha("a")}
    assert copying.ran() == ["a.txt@linux:data", "a.txt@server:data"]
    assert not copying.commands_of(StartRuns)
    assert not copying.staging


def test_touched_file_with_equal_bytes_is_not_copied_again(copying: World) -> None:
    settled(copying, a_txt="a", b_txt="b")
    copying.write("a.txt", "changed")
    copying.touch("b.txt")

    assert copying.settle().cache == {"linux/a.txt": sha("changed"), "linux/b.txt": sha("b")}
    assert copying.ran() == ["a.txt@linux:data"]
    assert not copying.commands_of(StartRuns)
    assert not copying.staging


def test_blocking_check_fails_the_copy_job_and_discards_the_copy(copying: World) -> None:
    checked = replace(copying.project, checks=(Check("names", CheckLevel.BLOCK, file_name="[a-z.]*"),))
    copying.pipeline = Pipeline(checked, copying.archive, lambda _job, _builder: "log", "/staging")
    assert copying.apply({"A.txt": "A", "b.txt": "b"}).cache == {"linux/b.txt": sha("b")}
    assert copying.statuses() == {"A.txt@linux:data": "failed", "b.txt@linux:data": "completed"}
    assert not copying.staging


def test_client_that_follows_every_step_gets_each_status_of_a_copied_file(copying: World) -> None:
    copying.boot(reports_every_step=True)
    copying.apply({"a.txt": "a"})

    assert [notice.status for notice in copying.notices if isinstance(notice, JobChanged)] == ["pending", "processing", "completed"]


def test_file_is_copied_by_a_job_after_a_client_requests_all_job_steps(copying: World) -> None:
    copying.write("a.txt", "a")
    copying.scan()
    copying.run_until(lambda: copying.hashes)
    copying.pipeline.jobs.reports.reports_every_step = True
    copying.run()

    assert len(copying.commands_of(StartRuns)) == 1
    assert copying.cache == {"linux/a.txt": sha("a")}
    assert not copying.staging


def test_workers_do_not_copy_a_file_that_has_jobs_of_another_builder(copying: World) -> None:
    copying.boot(setup=Setup(builders=(copier(pattern="*"), scripter())))
    copying.apply({"a.s": ""})

    assert [order for command in copying.commands_of(HashFiles) for order in command.copies] == []
    assert copying.statuses() == {"a.s@linux:main": "completed", "a.s@linux:data": "completed"}


def test_copies_of_a_deleted_file_are_discarded(copying: World) -> None:
    copying.write("a.txt", "a")
    copying.scan()
    copying.run_until(lambda: copying.hashes)
    copying._hash()
    answer = copying.inbox.pop()
    copying.delete("a.txt")
    event = copying._scanner.compare("", copying._next(), again=frozenset({PathKey("a.txt")}))
    assert isinstance(event, FolderSeen)
    copying._handle(event)

    copying._post(answer)
    copying.run()

    assert copying.cache == {}
    assert not copying.staging
    assert copying.statuses() == {}


def read_one_by_one(copying: World) -> list[FilesHashed]:
    """Scan and read the files; return one hash result for each file, with `has_more` set in all but the last result."""
    copying.scan()
    copying.run_until(lambda: copying.hashes)
    asked, copying.hashes, answers = copying.hashes, [], []
    for wanted in asked:
        copying.hashes = [wanted]
        copying._hash()
        answer = copying.inbox.pop()
        assert isinstance(answer, FilesHashed)
        answers.append(replace(answer, has_more=wanted is not asked[-1]))
    return answers


def test_copies_of_several_hash_results_are_committed_together(copying: World) -> None:
    copying.edit({f"{name}.txt": name for name in "abc"})
    first, *others = read_one_by_one(copying)

    copying._handle(first)
    assert copying.cache == {}
    assert not copying.pipeline.jobs.is_idle
    copying.inbox.extend(others)
    copying.run()

    assert copying.cache == {f"linux/{name}.txt": sha(name) for name in "abc"}
    assert [len(order.commits) for order in copying.commands_of(CommitProducts)] == [3]
    assert not copying.staging


def test_source_rows_of_copies_are_saved_before_the_copies_are_committed(copying: World) -> None:
    copying.edit({f"{name}.txt": name for name in "abc"})
    answers = read_one_by_one(copying)
    before = len(copying.commands)

    for answer in answers:
        copying._handle(answer)

    kinds = [type(command) for command in copying.commands[before:]]
    assert kinds[:2] == [SaveRows, CommitProducts]
    saved = copying.commands[before]
    assert isinstance(saved, SaveRows)
    assert len(saved.rows["put_source"]) == 3


def test_uncommitted_copy_of_a_changed_source_is_discarded(copying: World) -> None:
    copying.edit({"a.txt": "a", "b.txt": "b"})
    first, last = read_one_by_one(copying)
    copying._handle(first)
    copying.write("a.txt", "changed")
    event = copying._scanner.compare("", copying._next(), again=frozenset({PathKey("a.txt")}))
    assert isinstance(event, FolderSeen)

    copying._handle(event)
    copying._hash()
    copying.inbox.append(last)
    copying.run()

    assert copying.cache == {"linux/a.txt": sha("changed"), "linux/b.txt": sha("b")}
    assert not copying.staging


def test_copies_made_while_builders_are_outdated_are_made_again(copying: World) -> None:
    copying.pipeline.jobs.is_outdated = True
    copying.write("a.txt", "a")
    copying.process()
    assert copying.cache == {}
    assert not copying.staging

    copying.pipeline.jobs.is_outdated = False
    copying.run()

    assert copying.cache == {"linux/a.txt": sha("a")}


@pytest.mark.parametrize("stays", [True, False])
def test_new_copies_are_made_after_a_crash_at_any_point(stays: bool) -> None:
    for fuse in range(60):
        world = settled(World(rng=random.Random(fuse)).boot(copies_on_reading=None), c_txt="c")
        world.edit({rel: rel for rel in ("a.txt", "b.txt", "sub/d.txt")})
        world.crash_after(fuse)
        left = ["a.txt", "b.txt", "sub/d.txt"]
        if not stays:
            world.delete(left.pop(fuse % 3))

        assert world.settle().cache == {"linux/c.txt": sha("c"), **{f"linux/{rel}": sha(rel) for rel in left}}, fuse
        assert sorted(str(row[2]) for row in world.archive.tables.sources.values()) == sorted(["c.txt", *left]), fuse
        world.forget_runs()
        assert world.settle(restart=True).ran() == [], fuse
        assert not any(isinstance(command, HashFiles) for command in world.commands), fuse


@pytest.mark.parametrize("is_copied_on_reading", [True, False])
def test_changed_copies_are_made_after_a_crash_at_any_point(is_copied_on_reading: bool) -> None:
    for fuse in range(1, 40):
        world = World(Setup(builders=(copier(),))) if is_copied_on_reading else World()
        files = ("a.txt", "b.txt", "sub/d.txt")
        world.apply({rel: rel for rel in files})
        world.edit({rel: f"{rel} changed" for rel in files})
        world.crash_after(fuse)

        assert world.settle().cache == {f"linux/{rel}": sha(f"{rel} changed") for rel in files}, fuse
        assert set(world.statuses().values()) == {"completed"}, fuse
        world.forget_runs()
        assert world.settle(restart=True).ran() == [], fuse


def test_new_copy_job_that_cannot_start_has_a_row_that_clients_can_read(world: World) -> None:
    world.boot(reports_every_step=True, slots=0)
    world.write("a.txt", "a")
    world.process()

    assert [row[16] for row in world.archive.tables.jobs.values()] == ["waiting"]
    assert not world.pipeline.jobs.memory.unsaved.jobs


def test_engine_saves_planned_jobs_when_it_stops(world: World) -> None:
    world.write("a.txt", "a")
    world.held = {"a.txt@linux:data"}
    world.process()

    world.restart()

    assert [row[16] for row in world.archive.tables.jobs.values()] == ["waiting"]


@pytest.mark.parametrize("restart", [True, False])
def test_scan_of_unchanged_files_reads_and_runs_nothing(world: World, restart: bool) -> None:
    settled(world, a_txt="x", b_s="include a.txt", c_s="glob *.txt")

    assert world.settle(restart=restart).ran() == []
    assert not world.analyses
    assert not any(isinstance(command, (StartRuns, SaveRows, HashFiles)) for command in world.commands)


def test_full_scan_of_unchanged_files_reads_every_source_and_runs_no_job(world: World) -> None:
    settled(world, a_txt="x", b_s="include a.txt", c_bin="x")

    world.settle(is_full=True)

    read = [fact.rel for command in world.commands_of(HashFiles) for fact in command.files]
    assert sorted(read) == ["a.txt", "b.s"]
    assert world.ran() == []
    assert not world.analyses


def test_touched_file_is_read_and_no_job_runs(world: World) -> None:
    settled(world, a_txt="x", b_s="include a.txt\nglob *.txt\nread a.txt")
    world.touch("a.txt")
    world.touch("b.s")

    assert world.settle().ran() == []
    assert not world.analyses
    assert set(world.statuses().values()) == {"completed"}
    fact = world.archive.files([PathKey("a.txt")])[PathKey("a.txt")]
    assert fact.mtime_ns == world.disk.files["game"]["a.txt"].version


def test_changed_file_runs_its_own_job_and_its_dependents(world: World) -> None:
    settled(world, a_txt="x", b_s="include a.txt", c_s="include b.s", d_s="")
    assert world.apply({"a.txt": "y"}).ran() == ["a.txt@linux:data", "b.s@linux:main", "c.s@linux:main"]
    assert world.job("a.txt@linux:data").reason == f"source 'a.txt' changed ({sha('x').hex()[:8]} -> {sha('y').hex()[:8]})"
    assert world.job("c.s@linux:main").reason.startswith("dependency 'a.txt' changed")


def test_change_and_its_later_reversal_each_run_the_job(world: World) -> None:
    settled(world, a_txt="x")

    world.apply({"a.txt": "y"})
    world.apply({"a.txt": "x"})

    assert world.runs == {"a.txt@linux:data": 2}
    assert world.cache == {"linux/a.txt": sha("x")}


def test_change_that_is_reverted_before_its_run_ends_keeps_the_old_product(world: World) -> None:
    settled(world, a_txt="x")
    world.held.add("a.txt@linux:data")
    world.apply({"a.txt": "y"})

    assert world.apply({"a.txt": "x"}).statuses() == {"a.txt@linux:data": "completed"}
    assert world.cache == {"linux/a.txt": sha("x")}
    assert world.is_idle()


@pytest.mark.parametrize("text", ["include e.bin", "jobs-from e.bin", "include e.bin\nread e.bin"])
def test_input_that_was_being_read_at_the_start_of_a_run_is_checked_after_the_run(text: str) -> None:
    world = settled(World(Setup(builders=(scripter(),))), a_s=text, e_bin="one")
    world.post_request("reprocess", keys=("a.s",))
    world.run_until(lambda: any(job.key == "main" for job in world.pipeline.jobs.ready))
    world.write("e.bin", "two")
    world.scan()
    world.run_scan_only()

    world._handle(SlotsFree(99, 4))
    world._finish_runs()
    world._handle(world.inbox.popleft())
    assert world.apply({"e.bin": "one"}).cache == world.clean().cache


def test_two_files_changed_to_the_same_bytes_are_both_processed(world: World) -> None:
    settled(world, a_txt="x", b_txt="y")
    assert world.apply({"a.txt": "same", "b.txt": "same"}).ran() == ["a.txt@linux:data", "b.txt@linux:data"]


@pytest.mark.parametrize("restart", [True, False])
def test_jobs_and_products_of_a_deleted_file_are_deleted(world: World, restart: bool) -> None:
    settled(world, a_txt="x", b_s="include a.txt", c_txt="z")
    world.apply({"a.txt": None}, restart=restart)

    assert "linux/a.txt" not in world.cache
    assert "linux/c.txt" in world.cache
    assert world.job("b.s@linux:main").reason == "dependency 'a.txt' was removed"
    assert [row[4] for row in world.archive.tables.sources.values()] == ["b.s", "c.txt"]
    assert ("a.txt", False) in [item for notice in world.notices if isinstance(notice, SourcesChanged) for item in notice.sources]
    assert (("linux/a.txt", ""),) in [notice.products for notice in world.notices if isinstance(notice, ProductsChanged)]
    assert world.ran() == ["b.s@linux:main"]


def test_deleted_folder_removes_only_its_own_sources() -> None:
    world = World(Setup(folders=("game", "shared")))
    world.write("x/a.txt", "1")
    world.write("x/b.txt", "2", "shared")
    world.settle()
    assert world.apply({"x/a.txt": None}).cache == {"linux/x/b.txt": sha("2")}
    assert set(world.archive.tables.folders) == {("x", 2)}
    world.delete("x/b.txt", "shared")
    assert world.settle().cache == {}
    assert not world.archive.tables.folders


def test_table_of_files_contains_only_existing_files() -> None:
    world = World(Setup(folders=("game", "shared")))
    world.edit({rel: rel for rel in ("a.bin", "b.bin", "c.txt", "d.txt")})
    world.write("c.txt", "low", "shared")
    world.settle()
    world.configure(builders=(scripter(),))
    world.apply({"a.bin": None, "b.bin": None, "c.txt": None, "B.bin": "x"}, restart=True)

    assert set(world.archive.tables.files) == {(1, "B.bin"), (2, "c.txt"), (1, "d.txt")}


def test_renamed_file_is_a_new_source(world: World) -> None:
    settled(world, a_txt="x")
    assert world.apply({"a.txt": None, "b.txt": "x"}).cache == {"linux/b.txt": sha("x")}
    assert world.ran() == ["b.txt@linux:data"]


def test_source_renamed_only_in_case_is_the_same_source(world: World) -> None:
    settled(world, a_txt="x")
    assert world.apply({"a.txt": None, "A.txt": "x"}).cache == {"linux/a.txt": sha("x")}
    assert world.statuses() == {"A.txt@linux:data": "completed"}
    assert world.clean().statuses() == world.statuses()


def test_source_deleted_during_its_run_leaves_no_product(world: World) -> None:
    world.held.add("a.txt@linux:data")
    world.apply({"a.txt": "x"})
    world.apply({"a.txt": None})

    world.deliver_killed()

    assert world.cache == {}
    assert world.statuses() == {}
    assert not world.staging
    assert not world.pipeline.jobs.memory.sources


# ------------------------------------------------------------------------------------------------------- reading of files


def test_source_that_changes_while_it_is_read_is_checked_again(world: World) -> None:
    world.shy["a.txt"] = 3
    world.apply({"a.txt": "x"})

    assert world.commands_of(RecheckFiles)
    assert world.cache == {"linux/a.txt": sha("x")}


def test_folder_with_an_unstable_file_is_scanned_again_after_a_crash(world: World) -> None:
    world.write("a.txt", "x")
    world.shy["a.txt"] = 1
    world.scan()
    world.run_until(lambda: world.again)

    assert world.crash().settle().cache == {"linux/a.txt": sha("x")}


@pytest.mark.parametrize("folder", ["", "sub/"])
@pytest.mark.parametrize("touches", [True, False])
def test_source_that_disappears_before_its_folder_row_is_saved_is_deleted(world: World, folder: str, touches: bool) -> None:
    world.apply({f"{folder}k.txt": "kept"})
    world.shy[f"{folder}b.txt"] = 99
    world.edit({f"{folder}a.txt": "x", f"{folder}b.txt": "y"})
    world.scan()
    world.run_until(lambda: world.shy[f"{folder}b.txt"] <= 90)
    assert f"linux/{folder}a.txt" in world.cache
    world.crash()
    world.edit({f"{folder}a.txt": None, f"{folder}b.txt": None})
    if touches:
        world.touch(f"{folder}k.txt")

    assert world.settle().cache == world.clean().cache
    assert world.statuses() == world.clean().statuses()


def test_source_deleted_while_it_is_read_is_forgotten(world: World) -> None:
    world.write("a.txt", "x")
    world.scan()
    world.run_until(lambda: world.hashes)
    world.delete("a.txt")

    world.run()

    assert world.statuses() == {}
    assert not world.pipeline.jobs.memory.unstable
    assert world.is_idle()


def test_source_makes_no_product_if_it_is_overridden_during_reading() -> None:
    world = World(Setup(folders=("game", "shared")))
    world.write("a.txt", "low", "shared")
    world.scan()
    world.run_until(lambda: world.hashes)
    world.run_scan_only()
    world.write("a.txt", "high")
    world.scan()
    world.run_scan_only()

    world.run()

    assert world.cache == {"linux/a.txt": sha("high")}
    assert world.job("a.txt@linux:data").source.scan_folder == 1


def test_source_that_changes_between_scan_and_reading_is_checked_again(world: World) -> None:
    world.write("a.txt", "x")
    world.scan()
    world.run_until(lambda: world.hashes)
    world.write("a.txt", "y")

    world.run()

    assert world.commands_of(RecheckFiles)
    assert world.cache == {"linux/a.txt": sha("y")}


def test_unstable_file_that_matches_no_builder_is_ignored(world: World) -> None:
    settled(world, a_s="glob *.bin")
    world.write("x.bin", "1")
    world.shy["x.bin"] = 1
    world.apply({"a.s": None})

    assert world.is_idle()
    assert not world.pipeline.jobs.memory.folders


def test_unreadable_source_has_a_failed_analysis_until_it_is_readable(world: World) -> None:
    world.unreadable["a.s"] = "permission denied"
    assert world.apply({"a.s": "x"}).statuses() == {"a.s:analyse": "failed"}
    assert world.job("a.s:analyse").error == "'a.s' cannot be read: permission denied"
    world.unreadable.clear()
    assert world.settle(restart=True).statuses() == {"a.s@linux:main": "completed"}


def test_copied_file_that_becomes_unreadable_keeps_its_product(world: World) -> None:
    settled(world, a_txt="x")
    world.unreadable["a.txt"] = "permission denied"
    assert world.apply({"a.txt": "y"}).cache == {"linux/a.txt": sha("x")}
    assert world.statuses() == {"a.txt@linux:data": "completed", "a.txt:analyse": "failed"}
    world.unreadable.clear()
    assert world.settle().statuses() == {"a.txt@linux:data": "completed"}
    assert world.cache == {"linux/a.txt": sha("y")}


def test_pending_job_fails_when_its_source_is_unreadable(world: World) -> None:
    settled(world, a_txt="x")
    world.held.add("a.txt@linux:data")
    world.apply({"a.txt": "y"})
    world.unreadable["a.txt"] = "permission denied"
    world.touch("a.txt")

    assert world.settle().job("a.txt@linux:data").error == "'a.txt' cannot be read: permission denied"
    assert world.is_idle()


def test_unreadable_file_that_matches_no_builder_is_ignored(world: World) -> None:
    world.unreadable["x.bin"] = "permission denied"
    assert world.apply({"x.bin": "1"}).statuses() == {}


def test_unreadable_dependency_counts_as_missing_until_it_is_readable(world: World) -> None:
    world.unreadable["x.bin"] = "permission denied"
    assert world.apply({"a.s": "include x.bin\nglob *.bin", "x.bin": "1"}).statuses() == {"a.s@linux:main": "completed"}
    world.forget_runs()

    world.unreadable.clear()
    world.touch("x.bin")
    assert world.settle().ran() == ["a.s@linux:main"]
    assert world.job("a.s@linux:main").reason == "dependency 'x.bin' is new"


def test_digest_of_a_deleted_file_is_ignored(world: World) -> None:
    settled(world, a_txt="x")
    fact = world.archive.files([PathKey("a.txt")])[PathKey("a.txt")]
    world.apply({"a.txt": None})

    world._post(FilesHashed(world._next(), (fact,), (), ()))
    world.run()

    assert world.statuses() == {}


def test_digest_of_a_dependency_is_saved_at_the_next_report_of_its_folder(world: World) -> None:
    settled(world, a_bin="1")
    world.write("b/c.s", "include a.bin")
    world.held = {"b/c.s@linux:main"}  # an idle engine would save the digest at once
    world.process()
    assert set(world.pipeline.jobs.memory.newer.facts) == {"a.bin"}

    world.write("z.bin", "2")
    world.process()

    assert not world.pipeline.jobs.memory.newer.facts
    assert world.archive.files([PathKey("a.bin")])[PathKey("a.bin")].digest == sha("1")


# ------------------------------------------------------------------------------------------ overridden and clashing files


def overriding() -> World:
    world = World(Setup(folders=("game", "shared")))
    world.write("a.txt", "low", "shared")
    world.settle().forget_runs()
    return world


def test_overriding_file_wins_until_it_is_deleted() -> None:
    world = overriding()
    assert world.apply({"A.txt": "high"}).cache == {"linux/a.txt": sha("high")}
    assert world.ran() == ["A.txt@linux:data"]

    assert world.apply({"A.txt": None}).cache == {"linux/a.txt": sha("low")}
    assert world.ran() == ["a.txt@linux:data"]


def test_change_of_an_overridden_file_runs_no_job() -> None:
    world = overriding()
    settled(world, a_txt="high")
    world.write("a.txt", "lower", "shared")

    assert world.settle().ran() == []
    assert world.cache == {"linux/a.txt": sha("high")}


def test_overriding_file_with_equal_bytes_runs_no_job() -> None:
    world = overriding()
    assert world.apply({"a.txt": "low"}).ran() == []
    assert next(iter(world.archive.tables.sources.values()))[1] == 1


def test_sources_that_differ_only_in_case_both_fail_without_products(world: World) -> None:
    settled(world, a_txt="x")
    assert world.apply({"A.txt": "y"}).cache == {}
    assert world.statuses() == {"a.txt:analyse": "failed", "A.txt:analyse": "failed"}
    assert world.job("a.txt:analyse").error == "'a.txt' differs only in case from 'A.txt'; rename one of these files"
    assert world.job("A.txt:analyse").error == "'A.txt' differs only in case from 'a.txt'; rename one of these files"
    assert "differs only in case" in world.log_text("a.txt:analyse")


@pytest.mark.parametrize(("goes", "stays"), [("a.txt", "A.txt"), ("A.txt", "a.txt")])
@pytest.mark.parametrize("restart", [True, False])
def test_case_clash_ends_when_one_file_is_deleted(world: World, goes: str, stays: str, restart: bool) -> None:
    settled(world, a_txt="x")
    world.apply({"A.txt": "y"})
    assert world.apply({goes: None}, restart=restart).statuses() == {f"{stays}@linux:data": "completed"}
    assert world.cache == {"linux/a.txt": sha(world.disk.files["game"][stays].text)}


def test_case_clash_of_files_that_match_no_builder_is_ignored(world: World) -> None:
    settled(world, a_bin="x")
    assert world.apply({"A.bin": "y"}).statuses() == {}


def test_case_clash_ends_when_the_builder_of_its_files_is_removed(world: World) -> None:
    settled(world, a_txt="x")
    world.apply({"A.txt": "y"})

    assert world.reconfigure(builders=(scripter(),)).statuses() == {}
    assert not world.archive.tables.sources


def test_reprocessed_files_that_differ_only_in_case_still_fail(world: World) -> None:
    settled(world, a_txt="x")
    world.apply({"A.txt": "y"})

    world.ask("reprocess", keys=("a.txt", "A.txt"))

    assert world.statuses() == {"a.txt:analyse": "failed", "A.txt:analyse": "failed"}
    assert world.is_idle()


def test_case_clash_ends_when_another_file_overrides_the_clashing_files() -> None:
    world = World(Setup(folders=("shared", "game")))
    world.write("a.txt", "x", "shared")
    world.write("A.txt", "y", "shared")
    world.apply({"a.txt": "z"})

    assert world.reconfigure(folders=("game", "shared")).statuses() == {"a.txt@linux:data": "completed"}
    assert world.cache == {"linux/a.txt": sha("z")}


def test_case_clash_is_reported_again_after_a_restart(world: World) -> None:
    settled(world, a_txt="x")
    settled(world, {"A.txt": "y"})

    assert world.settle(restart=True).statuses() == {"a.txt:analyse": "failed", "A.txt:analyse": "failed"}
    assert world.ran() == []


# ------------------------------------------------------------------------------------------------------------- companions


NOTE = Companion(glob("*.s"), "note")
INFO = Companion(glob("*.S"), "info", replaces="s")


@pytest.mark.parametrize(("companion", "name"), [(NOTE, "a.s.note"), (NOTE, "A.S.NOTE"), (INFO, "a.info"), (INFO, "a.INFO")])
def test_changed_companion_reruns_its_source(companion: Companion, name: str) -> None:
    world = settled(World(Setup(companions=(companion,))), a_s="", b_s="")

    for text, reason in (("1", "is new"), ("2", "changed")):
        assert world.apply({name: text}).ran() == ["a.s@linux:main"]
        assert world.job("a.s@linux:main").reason.startswith(f"companion '{name.lower()}' {reason}")

    assert world.apply({name: None}).ran() == ["a.s@linux:main"]
    assert world.job("a.s@linux:main").reason == f"companion '{name.lower()}' was removed"


@pytest.mark.parametrize("restarts", [False, True])
def test_changed_shared_companion_reruns_all_sources_that_share_it(restarts: bool) -> None:
    world = World(Setup(companions=(Companion(glob("*.s"), "", file="all.xml"),)))
    world.apply(dict.fromkeys(("a.s", "sub/b.s", "c.txt"), ""))

    for text in ("1", "2", ""):
        world.forget_runs()
        if restarts:
            world.restart()
        if text:
            world.write("all.xml", text)
        else:
            world.delete("all.xml")
        assert world.settle().ran() == ["a.s@linux:main", "sub/b.s@linux:main"]


def test_changed_companion_of_an_included_file_reruns_the_source() -> None:
    world = settled(World(Setup(companions=(NOTE,))), a_s="include b.s", b_s="")
    assert world.apply({"b.s.note": "1"}).ran() == ["a.s@linux:main", "b.s@linux:main"]


def test_changed_companion_of_a_copied_file_reruns_the_copy() -> None:
    world = settled(World(Setup(companions=(Companion(glob("*.txt"), "note"),))), a_txt="x")
    assert world.apply({"a.txt.note": "1"}).ran() == ["a.txt@linux:data"]


# --------------------------------------------------------------------------------------------------------- lost products


@pytest.mark.parametrize("restart", [True, False])
def test_a_product_deleted_by_hand_is_made_again(world: World, restart: bool) -> None:
    settled(world, a_txt="x", b_s="extra 1")
    del world.cache["linux/a.txt"]
    del world.cache["linux/b.1"]

    assert world.settle(restart=restart).ran() == ["a.txt@linux:data", "b.s@linux:main"]
    assert world.cache == world.clean().cache
    assert world.job("a.txt@linux:data").reason == "a product is missing from the cache"


def test_a_product_deleted_while_its_job_runs_is_made_again(world: World) -> None:
    settled(world, a_txt="x")
    world.held.add("a.txt@linux:data")
    world.ask("reprocess", keys=("a.txt",))
    del world.cache["linux/a.txt"]
    world._post(ProductsLost(world._next(), ("linux/a.txt", "linux/unknown")))
    world.release()
    world.deliver_killed()

    assert world.cache == {"linux/a.txt": sha("x")}


def test_lost_product_of_a_deleted_source_is_not_made_again(world: World) -> None:
    settled(world, a_txt="x")
    del world.cache["linux/a.txt"]
    assert world.apply({"a.txt": None}).ran() == []
    assert world.statuses() == {}


def test_missing_product_is_made_again_after_a_crash_at_any_point(world: World) -> None:
    settled(world, a_txt="x")
    for fuse in range(12):
        world.cache.pop("linux/a.txt", None)
        world.fuse = fuse
        assert world.settle().cache == {"linux/a.txt": sha("x")}, fuse


# ---------------------------------------------------------------------------------------------------------------- notices


def test_client_that_follows_every_step_gets_each_status_of_a_job() -> None:
    world = World().boot(reports_every_step=True).apply({"a.s": ""})

    statuses = [(item.job_key, item.status) for item in world.notices if isinstance(item, JobChanged)]
    key = f"CreateJobs_{{{scripter().uuid.hex()}}}"
    assert statuses == [
        (key, "pending"), (key, "processing"), (key, "completed"), ("main", "pending"), ("main", "processing"),
        ("main", "completed"),
    ]  # fmt: skip
    assert (("a.s", True),) in [item.sources for item in world.notices if isinstance(item, SourcesChanged)]


def test_only_the_end_of_a_job_is_reported_if_no_client_follows_steps(world: World) -> None:
    world.apply({"a.txt": "x"})

    assert [item.status for item in world.notices if isinstance(item, JobChanged)] == ["completed"]


def test_every_command_and_notice_names_the_event_that_caused_it(world: World) -> None:
    world.apply({"a.txt": "x", "b.s": "FAIL"})

    assert all(0 < item.cause <= world._seq for item in (*world.commands, *world.notices))


def test_single_file_check_starts_jobs_before_the_folder_row_is_saved(world: World) -> None:
    settled(world, a_txt="x", b_txt="y")
    before = world.archive.folder_parts("")

    assert world.save_alone("a.txt", "changed")
    world.run()

    assert world.cache["linux/a.txt"] == sha("changed")
    assert [fact.rel for command in world.commands_of(HashFiles) for fact in command.files] == ["a.txt"]  # type: ignore[attr-defined]
    assert world.ran() == ["a.txt@linux:data"]
    assert world.archive.folder_parts("") == before
    assert not world.pipeline.jobs.memory.folders
    assert not world.pipeline.jobs.memory.sources
    assert world.settle().ran() == []
    assert world.archive.folder_parts("") != before
    assert not world.pipeline.jobs.memory.newer.facts


def test_job_of_a_single_checked_file_runs_once_even_after_a_crash(world: World) -> None:
    settled(world, a_txt="x", b_txt="y")
    world.save_alone("a.txt", "changed")
    world.run()

    assert world.crash().settle().ran() == ["a.txt@linux:data"]
    assert world.statuses() == {"a.txt@linux:data": "completed", "b.txt@linux:data": "completed"}


def test_file_checked_alone_with_new_bytes_reruns_its_dependents(world: World) -> None:
    settled(world, a_bin="1", b_s="include a.bin")

    assert world.save_alone("a.bin", "2")
    world.run()
    assert world.save_alone("a.bin", "2")  # the file is saved again with equal bytes
    world.run()

    assert world.ran() == ["b.s@linux:main"]


def test_single_file_check_is_repeated_if_its_folder_is_not_saved_yet(world: World) -> None:
    settled(world, a_txt="x", b_txt="y")
    world.write("c.txt", "new")
    world.scan()
    while "" not in world.pipeline.jobs.memory.folders:
        world._moves()[0]()
    fact = world.disk.files["game"]["a.txt"].fact(1, "a.txt")

    commands, _notices = world.pipeline.handle(FilesSeen(world._next(), (fact,)))

    assert [command.keys for command in commands if isinstance(command, RecheckFiles)] == [(PathKey("a.txt"),)]


def test_unchanged_folders_give_no_commands_or_notices(world: World) -> None:
    settled(world, a_txt="x")
    world.scan()

    commands, notices = world.pipeline.handle(FoldersUnchanged(world._next(), ("", "never/heard/of")))

    assert (commands, notices) == ([], [])


def test_second_report_of_a_folder_is_compared_with_its_first_report(world: World) -> None:
    settled(world, a_txt="x", b_txt="y")
    world.held.add("c.txt@linux:data")
    world.apply({"c.txt": "z"})
    rows = tuple(
        (part, digest, tuple(fact for fact in facts if fact.rel != "b.txt"))
        for part, (digest, facts) in world.archive.folder_parts("").items()
    )

    world._post(FolderSeen(world._next(), "", (), (PathKey("b.txt"),), (), rows))
    world.release()

    assert world.statuses() == {"a.txt@linux:data": "completed", "c.txt@linux:data": "completed"}


def test_staging_folder_is_empty_when_the_engine_is_idle(world: World) -> None:
    settled(world, a_txt="x", b_s="FAIL", c_s="make d.out", d_s="")

    assert not world.staging


def test_late_result_of_a_killed_run_is_discarded_with_its_staged_files(world: World) -> None:
    settled(world, a_s="")
    world.held.add("a.s@linux:main")
    world.apply({"a.s": "x"})
    (key,) = world.running
    world.apply({"a.s": "y"})
    world.release()
    world.forget_runs()

    world.deliver_killed()

    assert [command.run_keys for command in world.commands_of(DiscardStaging)] == [(key,)]
    assert world.cache == world.clean().cache


def test_copy_builder_with_a_changed_pattern_copies_the_matching_files(world: World) -> None:
    world.configure(builders=(copier(pattern="*.s"),))
    assert world.apply({"a.s": "x"}, restart=True).cache == {"linux/a.s": sha("x")}


def test_product_deleted_by_hand_is_made_again_for_a_recreated_source(world: World) -> None:
    world.apply({"e.txt": "one"})
    world.apply({"e.txt": None})
    assert not world.cache
    world.apply({"e.txt": "one"})

    world.delete_product("linux/e.txt")
    world.run()

    assert world.cache == {"linux/e.txt": sha("one")}


@pytest.mark.parametrize("is_known", [True, False])
def test_earlier_product_is_kept_until_a_file_written_in_two_steps_is_complete(world: World, is_known: bool) -> None:
    world.write("other.txt", "other")
    if is_known:
        world.write("e.txt", "one")
    world.settle()
    before = dict(world.cache)
    world.forget_runs()

    world.save_twice("e.txt", "one and two")
    world.scan()
    world.run_scan_only()
    assert world.cache == before
    world.run()

    assert world.cache == {**before, "linux/e.txt": sha("one and two")}
    assert not [notice for notice in world.notices if isinstance(notice, SourcesChanged) and ("e.txt", False) in notice.sources]
    assert world.runs["e.txt@linux:data"] == 1


def test_sources_deleted_together_are_loaded_in_few_queries(world: World) -> None:
    world.apply({f"sub/{number}.txt": "x" for number in range(40)})
    world.restart()
    for number in range(40):
        world.delete(f"sub/{number}.txt")
    asked = []
    sources = world.archive.sources
    world.archive.sources = lambda keys: (asked.append(len(keys)), sources(keys))[1]  # type: ignore[method-assign]

    world.settle()

    assert not [name for name in world.live_jobs() if name.startswith("sub/")]
    assert sum(count > 0 for count in asked) < 10, asked


def test_next_engine_resumes_pending_jobs_without_retrying_failed_jobs(world: World) -> None:
    world.fates["b.s@linux:main"] = [Outcome.FAILED]
    settled(world, a_s="x", b_s="x")
    world.write("a.s", "y")
    world.held.add("a.s@linux:main")
    world.process(retries=False)
    runs = world.runs.copy()
    world.restart()
    world.held.clear()

    world.process(retries=False)

    assert world.statuses() == {"a.s@linux:main": "completed", "b.s@linux:main": "failed"}
    assert world.runs["b.s@linux:main"] == runs["b.s@linux:main"]


def test_failed_job_is_not_retried_if_only_its_folder_row_is_outdated(world: World) -> None:
    settled(world, a_s="x")
    rows = dict(world.archive.tables.folders)
    world.fates["a.s@linux:main"] = [Outcome.FAILED] * 2
    world.apply({"a.s": "longer"})
    runs = world.runs.copy()
    # Simulate an engine that was killed after it saved the rows of the source and the job, but before it saved the folder's row.
    world.archive.tables.folders = {slot: (b"", facts) for slot, (_digest, facts) in rows.items()}
    world.restart()

    world.process(retries=False)

    assert world.statuses() == {"a.s@linux:main": "failed"}
    assert world.runs == runs


def read(world: World) -> list[str]:
    """Return the files that the pipeline requested to read since the last call."""
    files = [fact.rel for command in world.commands_of(HashFiles) for fact in command.files]
    world.commands.clear()
    return sorted(files)


@pytest.mark.parametrize("next_by", ["stays", "restarts", "dies"])
@pytest.mark.parametrize("is_seen_first", [False, True])
@pytest.mark.parametrize("hub", ["hub.bin", "0/hub.bin", "z/hub.bin"])
@pytest.mark.parametrize("word", ["include", "read"])
def test_file_that_is_only_a_dependency_is_read_once(world: World, word: str, hub: str, is_seen_first: bool, next_by: str) -> None:
    world.write(hub, "1")
    world.edit({f"{number}.s": f"{word} {hub}" for number in range(10)})
    world.scan()
    if is_seen_first:  # the scan checks the file before any source depends on the file
        world.run_scan_only()
    world.run()
    assert read(world).count(hub) == 1

    for text in ("x", "y"):
        world.forget_runs()
        if next_by == "dies":
            world.crash()
        world.apply({"4.s": f"{word} {hub}\n{text}"}, restart=next_by == "restarts")
        assert read(world) == ["4.s"]
        assert world.ran() == ["4.s@linux:main"]

    world.write(hub, "2")
    world.forget_runs()
    world.settle(restart=True)
    assert len(world.ran()) == 10


def test_job_reruns_if_a_dependency_is_reverted_before_a_crash(world: World) -> None:
    """Only `hub.bin` is checked, not its folder, so the folder's row still has the old digest of `hub.bin` when the engine dies."""
    settled(world, a_s="include hub.bin", hub_bin="1")
    assert world.save_alone("hub.bin", "2")
    world.run()
    assert world.ran() == ["a.s@linux:main"]
    rows = {fact.rel: fact for _digest, facts in world.archive.folder_parts("").values() for fact in facts}
    assert rows["hub.bin"].digest == sha("1")

    world.write("hub.bin", "1")
    world.forget_runs()
    assert world.crash().settle().ran() == ["a.s@linux:main"]


@pytest.mark.parametrize("text", [None, "FAIL"])
def test_damaged_product_is_deleted_with_its_source_or_by_a_failed_run(text: str | None) -> None:
    world = World().apply({"a.s": "x"})
    assert "linux/a.out" in world.cache

    world._post(ProductsLost(world._next(), ("linux/a.out",)))
    if text is None:
        world.delete("a.s")
    else:
        world.write("a.s", text)
    world.settle()

    assert "linux/a.out" not in world.cache
