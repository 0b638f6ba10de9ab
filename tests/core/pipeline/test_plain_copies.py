"""Files that are only copied: copies that are planned in bulk have the same results as single copies."""

from __future__ import annotations

import random

import pytest
from fake_world import World, settled
from fakes import Setup, copier, glob, scripter, sha
from msgspec import Struct
from msgspec.structs import replace

from aptui.core import machine
from aptui.core.machine import InvalidTransition, Trigger
from aptui.core.messages import CommitProducts
from aptui.core.model import JobState
from aptui.core.notices import JobChanged, ProductsChanged, SourcesChanged
from aptui.core.paths import path_uuid
from aptui.core.pipeline.plain_copies import PlainCopies
from aptui.core.project import Companion
from aptui.core.rows import PlainCopy

TWO = Setup(builders=(copier(platforms=("linux", "server")),), platforms=("linux", "server"))
FILES = ("a.txt", "B.txt", "sub/C.txt", "sub/deeper/d.txt", "e.txt")


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list that records, for each attempt to plan copies in bulk, whether the attempt succeeded."""
    found: list[bool] = []
    plan = PlainCopies.plan

    def watched(self: PlainCopies, *arguments: object) -> bool:
        found.append(plan(self, *arguments))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr(PlainCopies, "plan", watched)
    return found


def world_of(setup: Setup = TWO, *rels: str) -> World:
    """Return a simulated engine with the source files `rels`. Its workers hash and copy a file in one pass."""
    world = World(setup).boot(copies_on_reading=True)
    world.edit({rel: rel for rel in rels})
    return world


def resting(world: World) -> dict[str, object]:
    """Return the rows of the archive without their run keys, because bulk and single planning may assign other run keys."""
    tables = world.archive.tables
    jobs = {row[2:7]: row[:7] + row[8:] for row in tables.jobs.values()}
    runs = {(job_id, *row[2:]) for (job_id, _run_key), row in tables.runs.items()}
    return {
        "sources": tables.sources, "jobs": jobs, "products": tables.products, "runs": sorted(map(repr, runs)),
        "folders": tables.folders, "files": tables.files, "legacy": tables.legacy,
    }  # fmt: skip


def test_copies_planned_in_bulk_have_the_same_results_as_single_copies(taken: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    together = world_of(TWO, *FILES)
    together.settle()
    assert taken
    assert all(taken)

    monkeypatch.setattr(PlainCopies, "may_plan", lambda _self, _event: False)
    alone = world_of(TWO, *FILES)
    alone.settle()

    assert together.cache == alone.cache
    assert len(together.cache) == 2 * len(FILES)
    assert resting(together) == resting(alone)
    assert together.ran() == alone.ran()


def test_copies_planned_in_bulk_have_the_same_notices_as_single_copies(taken: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    def last_notices(world: World) -> dict[tuple[str, str], Struct]:
        notices = [notice for notice in world.notices if isinstance(notice, JobChanged)]
        assert all(notice.cause and notice.run_key for notice in notices)
        return {(notice.source, notice.platform): clear(notice) for notice in notices}

    def clear(notice: JobChanged) -> Struct:
        return replace(notice, cause=0, run_key=0, completed_ms=0, job_id=0)

    together = world_of(TWO, *FILES)
    together.settle()
    monkeypatch.setattr(PlainCopies, "may_plan", lambda _self, _event: False)
    alone = world_of(TWO, *FILES)
    alone.settle()

    assert last_notices(together) == last_notices(alone)
    names = {name for notice in together.notices if isinstance(notice, ProductsChanged) for name, _digest in notice.products}
    assert names == together.cache.keys()
    assert together.pipeline.jobs.reports.counts == alone.pipeline.jobs.reports.counts
    assert together.pipeline.jobs.reports.spent() == alone.pipeline.jobs.reports.spent()


def rewritten(world: World) -> World:
    """Process the files of a world, and then rewrite all files except one; return the world."""
    world.settle().forget_runs()
    world.notices.clear()
    world.apply({rel: rel + " again" for rel in FILES[:-1]})
    return world


@pytest.mark.parametrize("is_followed", [False, True])
def test_changed_copies_planned_in_bulk_have_the_same_results_as_single_copies(
    is_followed: bool, taken: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    def last_notices(world: World) -> dict[tuple[str, str], Struct]:
        notices = [notice for notice in world.notices if isinstance(notice, JobChanged)]
        return {
            (notice.source, notice.platform): replace(notice, cause=0, run_key=0, completed_ms=0, job_id=0) for notice in notices
        }

    def made() -> World:
        world = world_of(TWO, *FILES)
        world.pipeline.jobs.reports.follow(is_followed=is_followed)
        return rewritten(world)

    together = made()
    assert taken
    assert all(taken)
    monkeypatch.setattr(PlainCopies, "may_plan", lambda _self, _event: False)
    alone = made()

    assert together.cache == alone.cache
    assert together.cache["linux/a.txt"] == sha("a.txt again")
    assert resting(together) == resting(alone)
    assert last_notices(together) == last_notices(alone)
    assert len(last_notices(together)) == 2 * (len(FILES) - 1)
    assert together.pipeline.jobs.reports.counts == alone.pipeline.jobs.reports.counts
    assert together.pipeline.jobs.reports.spent() == alone.pipeline.jobs.reports.spent()
    assert together.pipeline.jobs.is_idle
    assert not together.pipeline.jobs.memory.sources


def test_copy_job_fails_if_its_product_cannot_be_placed(taken: list[bool]) -> None:
    world = world_of(TWO, *FILES)
    world.settle()
    world.commit_fates["a.txt@linux:data"] = [0]
    rewritten(world)

    assert all(taken)
    job = world.job("a.txt@linux:data")
    assert job.state is JobState.FAILED
    assert "cannot be placed" in job.error
    assert world.cache["linux/a.txt"] == sha("a.txt")
    assert world.cache["server/a.txt"] == sha("a.txt again")
    world.forget_runs()
    assert world.settle(restart=True).ran() == ["a.txt@linux:data"]
    assert world.cache["linux/a.txt"] == sha("a.txt again")


def test_copies_of_new_and_known_files_are_planned_in_bulk(taken: list[bool]) -> None:
    world = world_of(TWO, *FILES)
    world.settle()
    taken.clear()
    world.apply({"a.txt": "again", "new.txt": "new"})

    assert taken
    assert all(taken)
    assert (world.cache["linux/a.txt"], world.cache["server/new.txt"]) == (sha("again"), sha("new"))


@pytest.mark.parametrize("seed", range(12))
def test_changed_files_get_new_products_after_a_crash_at_any_point(seed: int) -> None:
    for fuse in range(seed, 90, 12):
        world = World(TWO, rng=random.Random(fuse)).boot(copies_on_reading=True).apply({rel: rel for rel in FILES})
        world.edit({rel: rel + " again" for rel in FILES})
        world.crash_after(fuse)
        if fuse % 2:  # after every second crash, the files get their old content back
            world.edit({rel: rel for rel in FILES})
        world.settle()

        now = {rel: rel if fuse % 2 else rel + " again" for rel in FILES}
        assert world.cache == {f"{platform}/{rel.lower()}": sha(now[rel]) for platform in TWO.platforms for rel in FILES}, fuse
        world.settle(restart=True)
        assert world.pipeline.jobs.reports.counts["run"] == 0, fuse


def test_client_that_follows_every_step_is_notified_of_new_sources() -> None:
    world = world_of(TWO, *FILES)
    world.pipeline.jobs.reports.follow(is_followed=True)

    world.settle()

    found = [item for notice in world.notices if isinstance(notice, SourcesChanged) for item in notice.sources]
    assert sorted(found) == sorted((rel, True) for rel in FILES)


def test_copies_planned_in_bulk_create_no_jobs_in_memory(taken: list[bool]) -> None:
    world = world_of(TWO, *FILES)
    seen: list[int] = []
    commit = world._commit

    def watched(order: CommitProducts) -> object:
        assert not world.pipeline.jobs.memory.sources
        assert not world.pipeline.jobs.is_idle
        assert world.pipeline.jobs.memory.unsaved.has_any
        seen.append(len(order.commits))
        assert all(each.is_first for each in order.commits)
        assert sum(world.pipeline.count_pending().pending.values()) == len(order.commits)
        assert all(isinstance(found, PlainCopy) for found in world.pipeline.jobs.committing.values())
        assert world.pipeline.committing(order.commits[0].run_key) is None
        return commit(order)

    world._commit = watched  # type: ignore[method-assign,assignment]
    world.settle()

    assert sum(seen) == 2 * len(FILES)
    assert not world.pipeline.jobs.memory.unsaved.placing
    assert not world.pipeline.jobs.memory.unsaved.has_any
    assert world.pipeline.jobs.is_idle


def test_new_copy_that_cannot_be_placed_is_a_failed_job(taken: list[bool]) -> None:
    world = world_of(TWO, *FILES)
    world.commit_fates["a.txt@linux:data"] = [0]

    world.settle()

    assert all(taken)
    job = world.job("a.txt@linux:data")
    assert job.state is JobState.FAILED
    assert "cannot be placed" in job.error
    assert world.job("a.txt@server:data").state is JobState.COMPLETED
    assert len(world.cache) == 2 * len(FILES) - 1
    world.forget_runs()
    world.settle(restart=True)  # a restarted engine retries failed jobs
    assert world.ran() == ["a.txt@linux:data"]
    assert world.cache["linux/a.txt"] == sha("a.txt")


SAME_PRODUCT = Setup(builders=(copier(), copier("other")))
FOLDERS = Setup(builders=(copier(),), folders=("game", "more"))
COMPANIONS = Setup(builders=(copier(),), companions=(Companion(glob("*.txt"), "info"),))


@pytest.mark.parametrize(
    "setup",
    [SAME_PRODUCT, FOLDERS, COMPANIONS],
    ids=["two sources with one product", "a file at the path of a folder", "companions"],
)
def test_copies_as_ordinary_jobs_have_the_same_cache_and_status(
    setup: Setup, taken: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    def settled() -> World:
        world = world_of(setup, *FILES)
        if setup is FOLDERS:
            world.write("e.txt/below.txt", "below", folder="more")
        world.settle()
        return world

    together = settled()
    assert taken
    assert not all(taken)
    monkeypatch.setattr(PlainCopies, "may_plan", lambda _self, _event: False)
    alone = settled()

    assert together.cache == alone.cache
    assert together.statuses() == alone.statuses()


def test_deleted_and_recreated_file_is_one_source() -> None:
    world = world_of(TWO, *FILES)
    world.settle()
    world.apply({"a.txt": None})
    world.apply({"a.txt": "again"})

    assert [row[2] for row in world.archive.tables.sources.values()].count("a.txt") == 1
    assert world.cache["linux/a.txt"] == sha("again")


@pytest.mark.parametrize("named", ["include sub/C.txt", f"uuid {path_uuid('sub/c.txt').hex()}", "glob sub/*", "after e.txt:data"])
def test_copies_with_dependents_are_ordinary_jobs(named: str, taken: list[bool]) -> None:
    world = world_of(Setup(builders=(copier(), scripter())))
    settled(world, b_s=named, z_s="include other.s")
    world.apply({rel: rel for rel in FILES})

    assert taken
    assert not all(taken)
    assert {f"linux/{rel.lower()}" for rel in FILES} <= world.cache.keys()
    ran = world.ran()
    assert "b.s@linux:main" in ran
    assert {f"{rel}@linux:data" for rel in FILES} <= set(ran)
    assert world.pipeline.jobs.is_idle


def test_copies_without_dependents_are_planned_in_bulk(taken: list[bool]) -> None:
    world = world_of(Setup(builders=(copier(), scripter())), *FILES).apply({"b.s": "include z.s", "z.s": "include missing.s"})

    world.apply({f"more/{rel}": rel for rel in FILES})

    assert all(taken)
    assert {f"linux/more/{rel.lower()}" for rel in FILES} <= world.cache.keys()
    settled(world, y_s="include more/a.txt")
    assert world.apply({"more/a.txt": "another"}).ran() == ["more/a.txt@linux:data", "y.s@linux:main"]


@pytest.mark.parametrize("seed", range(12))
def test_new_copies_are_made_only_once_after_a_crash_at_any_point(seed: int, taken: list[bool]) -> None:
    for fuse in range(seed, 90, 12):
        world = World(TWO, rng=random.Random(fuse)).boot(copies_on_reading=True)
        world.edit({rel: rel for rel in FILES})
        world.crash_after(fuse)
        assert world.settle().cache == {f"{platform}/{rel.lower()}": sha(rel) for platform in TWO.platforms for rel in FILES}, fuse
        world.settle(restart=True)
        assert world.pipeline.jobs.reports.counts["run"] == 0, fuse


def test_sequence_of_triggers_gives_the_last_state_or_an_error() -> None:
    to_commit = (Trigger.PLAN, Trigger.UNBLOCK, Trigger.START, Trigger.SUCCEED)
    assert machine.follow(None, to_commit) is JobState.COMMITTING
    assert machine.follow(JobState.COMMITTING, (Trigger.COMMITTED,)) is JobState.COMPLETED
    with pytest.raises(InvalidTransition, match="a job in state absent does not allow the trigger START"):
        machine.follow(None, (Trigger.START,))
