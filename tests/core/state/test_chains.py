"""Chains: products for the platform `common` are sources of other builders. A deleted stage deletes all its later stages."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from fake_world import Crash, World, settled
from fakes import Setup, copier, scripter

from aptui.core.messages import CompareFiles
from aptui.core.model import FileFact, JobState
from aptui.core.orders import Outcome
from aptui.core.run_report import Used
from aptui.core.state import chains


@pytest.fixture
def world() -> World:
    return settled(World(Setup(builders=(copier(), scripter()))), a_s="stage m.s=stage+ n.txt=deep")


CHAIN = ["a.s@common:chain", "a.s@linux:main", "m.s@common:chain", "m.s@linux:main", "n.txt@linux:data"]


def files(world: World) -> list[str]:
    return sorted(name for name in world.cache if name.startswith("common/") or name.endswith(".txt"))


# ------------------------------------------------------------------------------------------------------ stages of a chain


def test_chain_runs_to_its_last_stage_in_one_pass() -> None:
    world = World(Setup())
    assert world.apply({"a.s": "stage m.s=stage+ n.txt=deep"}).ran() == CHAIN
    assert set(files(world)) == {"common/m.s", "common/n.txt", "linux/n.txt"}
    assert set(world.statuses().values()) == {"completed"}
    world.settle()
    assert world.settle(restart=True).ran() == []


def test_intermediate_with_equal_bytes_runs_no_later_stage(world: World) -> None:
    assert world.apply({"a.s": "info other\nstage m.s=stage+ n.txt=deep"}).ran() == ["a.s@common:chain", "a.s@linux:main"]


def test_changed_intermediate_reruns_all_later_stages(world: World) -> None:
    assert world.apply({"a.s": "stage m.s=stage+ n.txt=deeper"}).ran() == CHAIN


def test_deleted_source_removes_its_whole_chain(world: World) -> None:
    assert world.apply({"a.s": None}).cache == {}
    assert world.live_jobs() == {}


def test_intermediate_that_is_no_longer_made_removes_all_later_stages(world: World) -> None:
    world.apply({"a.s": "x"})

    assert set(world.statuses()) == {"a.s@linux:main"}
    assert set(world.cache) == {"linux/a.out"}


def test_failed_job_keeps_its_intermediates_and_all_later_stages(world: World) -> None:
    world.apply({"a.s": "stage m.s=stage+ n.txt=deep\nFAIL"})

    assert world.job("a.s@common:chain").state is JobState.FAILED
    assert set(files(world)) == {"common/m.s", "common/n.txt", "linux/n.txt"}
    assert world.apply({"a.s": None}).cache == {}


def test_intermediate_deleted_by_hand_is_made_again(world: World) -> None:
    for name in ("common/m.s", "common/n.txt", "linux/n.txt"):
        before = dict(world.cache)
        world.lose(name)
        assert world.settle().cache == before, name


def test_stray_file_in_the_intermediate_folder_is_not_a_source(world: World) -> None:
    world.write("stray.s", "x", "made")

    assert world.settle().ran() == []
    assert "stray.s@linux:main" not in world.live_jobs()
    world.delete("stray.s", "made")
    world.settle()
    assert len(world.live_jobs()) > 0
    assert set(world.statuses().values()) == {"completed"}


def test_reprocessed_stage_runs_all_stages_of_its_chain(world: World) -> None:
    world.post_request("reprocess", keys=("m.s",))

    world.run()

    assert world.ran() == CHAIN


# --------------------------------------------------------------------------------------------------------- invalid chains


def test_job_fails_if_its_intermediate_has_the_path_of_a_source() -> None:
    for names in (("a.s", "m.s"), ("m.s", "a.s")):
        world = World()
        for name in names:
            world.apply({name: "x" if name == "m.s" else "stage m.s=y"})

        assert "has the path of an existing source: 'm.s'" in world.job("a.s@common:chain").error
        assert world.job("m.s@linux:main").state is JobState.COMPLETED
        assert files(world) == []
        assert world.cache == world.clean().cache

        world.apply({"m.s": None})
        assert set(world.statuses().values()) == {"completed"}
        assert files(world) == ["common/m.s"]


def test_endless_chain_ends_at_the_maximum_number_of_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "MOST_STAGES", 2)
    world = World()

    world.apply({"a.s": "stage b.s=stage c.s=stage d.s=x"})

    assert "more than 2 stages: a.s -> b.s -> … -> d.s" in world.job("c.s@common:chain").error
    assert set(files(world)) == {"common/b.s", "common/c.s"}
    assert world.cache == world.clean().cache


@pytest.mark.parametrize("order", [("m.s", "a.s", "b.s"), ("m.s", "b.s", "a.s"), ("a.s", "b.s", "m.s")])
def test_failed_job_does_not_block_another_job_with_the_same_intermediate(order: tuple[str, ...]) -> None:
    world = World()
    texts = {"m.s": "real", "a.s": "stage m.s=y\nstage n.txt=a", "b.s": "stage n.txt=b"}
    for name in order:
        world.apply({name: texts[name]})

    assert "'m.s'" in world.job("a.s@common:chain").error
    assert world.job("b.s@common:chain").state is JobState.COMPLETED
    assert world.cache == world.clean().cache

    world.apply({"m.s": None})
    assert {name for name, status in world.statuses().items() if status == "failed"} == {"a.s@common:chain", "b.s@common:chain"}
    assert world.cache == world.clean().cache


def test_error_of_a_later_stage_names_the_source_that_begins_its_chain(world: World) -> None:
    world.apply({"n.txt": "real"})

    assert "(made from 'a.s')" in world.job("m.s@common:chain").error
    assert world.job("a.s@common:chain").state is JobState.COMPLETED
    assert world.cache == world.clean().cache


@pytest.mark.parametrize(
    ("text", "failing", "cycle"),
    [
        ("stage a.s=x", "a.s", "a.s -> a.s"),
        ("stage m.s=stage m.s=x", "m.s", "m.s -> m.s"),
        ("stage m.s=stage a.s=x", "m.s", "a.s -> m.s -> a.s"),
        ("stage m.s=stage n.s=stage m.s=x", "n.s", "m.s -> n.s -> m.s"),
    ],
)
def test_job_fails_if_its_product_is_an_earlier_source_of_its_chain(text: str, failing: str, cycle: str) -> None:
    world = World().apply({"a.s": text})

    failed = {name: job.error for name, job in world.live_jobs().items() if job.state is JobState.FAILED}
    assert failed.keys() == {f"{failing}@common:chain"}
    assert cycle in failed[f"{failing}@common:chain"]
    assert world.apply({"a.s": None}).cache == {}


def test_failed_stage_of_a_circular_chain_does_not_affect_earlier_stages() -> None:
    """`n.s` fails because it would make `m.s`, the product of `a.s`. `m.s` remains a product of `a.s`, so `a.s` can run again."""
    world = World().apply({"a.s": "info 1\nstage m.s=stage n.s=stage m.s=x"})
    world.apply({"a.s": "info 2\nstage m.s=stage n.s=stage m.s=x"})

    assert world.job("a.s@common:chain").state is JobState.COMPLETED
    assert world.cache == world.clean().cache


def test_sources_with_the_same_intermediate_fail_until_one_source_remains() -> None:
    world = World().apply({"a.s": "stage m.txt=a", "b.s": "stage m.txt=b"})

    assert [name for name, status in world.statuses().items() if status == "failed"] == ["a.s@common:chain", "b.s@common:chain"]
    assert files(world) == []
    world.apply({"b.s": None})
    assert files(world) == ["common/m.txt", "linux/m.txt"]


def test_job_that_depends_on_its_own_product_stops_with_an_error() -> None:
    world = World().apply({"a.s": "glob *.txt\nstage+ m.txt=x"})

    assert "check whether it depends on its own products" in world.job("a.s@common:chain").error
    runs = world.runs["a.s@common:chain"]
    world.settle()
    assert world.runs["a.s@common:chain"] <= 2 * runs
    world.apply({"a.s": "stage+ m.txt=x"})
    assert set(world.statuses().values()) == {"completed"}


def test_job_that_depends_on_its_own_product_ends_when_products_are_equal() -> None:
    world = World().apply({"a.s": "glob *.txt\nstage m.txt=x"})

    assert set(world.statuses().values()) == {"completed"}
    assert world.runs["a.s@common:chain"] == 2


# ----------------------------------------------------------------------------------------------------------- dependencies


def test_changed_intermediate_reruns_the_jobs_that_depend_on_it() -> None:
    world = World().apply({"a.s": "stage m.txt=1", "path.s": "include m.txt", "pattern.s": "glob *.txt"})
    assert (world.runs["path.s@linux:main"], world.runs["pattern.s@linux:main"]) == (1, 1), (
        "dependents of the intermediate wait for the end of the chain"
    )
    world.forget_runs()

    world.apply({"a.s": "stage m.txt=2"})

    assert {"path.s@linux:main", "pattern.s@linux:main"} <= set(world.ran())
    assert world.cache == world.clean().cache


def test_job_of_an_intermediate_runs_when_its_source_dependency_changes() -> None:
    world = settled(World(), a_s="stage m.s=include b.txt", b_txt="1")

    assert world.apply({"b.txt": "2"}).ran() == ["b.txt@linux:data", "m.s@linux:main"]


def test_job_waits_for_the_job_of_an_intermediate_that_does_not_exist_yet() -> None:
    world = World(Setup(), rng=random.Random(3)).apply({"a.s": "stage m.s=stage+ n.s=x", "b.s": "after n.s:main"})

    assert world.order.index("n.s@linux:main") < world.order.index("b.s@linux:main")
    assert world.runs["b.s@linux:main"] == 1


def test_job_that_includes_a_missing_intermediate_runs() -> None:
    world = World().apply({"a.s": "stage m.txt=1", "b.s": "after never.s:main\ninclude never.txt"})

    assert world.job("b.s@linux:main").state is JobState.COMPLETED


def test_folder_settings_apply_to_jobs_that_make_intermediates() -> None:
    world = settled(World(), a_s="stage+ m.txt=x")

    world.apply({".aptui.yaml": '{"script": {"params": {"look": 2}}}'})

    assert "a.s@common:chain" in world.ran()
    assert world.cache == world.clean().cache


def test_chains_of_a_removed_builder_are_removed(world: World) -> None:

    assert world.reconfigure(builders=(copier(),)).cache == {}


@pytest.mark.parametrize("fuse", range(0, 60, 4))
def test_next_engine_recovers_from_a_crash_at_any_moment(fuse: int) -> None:
    world = World().apply({"a.s": "stage m.s=stage+ n.txt=deep", "b.s": "glob *.txt"})
    world.write("a.s", "stage m.s=stage+ other.txt=deep")
    world.fuse = fuse

    world.settle()

    world.fuse = None
    assert world.cache == world.clean().cache


@pytest.mark.slow
@pytest.mark.parametrize("fuse", range(11, 17))
def test_change_reverted_after_a_crash_gives_the_result_of_a_clean_build(fuse: int) -> None:
    """The source is changed back, so the products of the job's stored row are valid again: the next engine undoes the commit."""
    for seed in range(30):
        world = World(rng=random.Random(seed)).apply({"a.s": "stage m.s=stage+ n.txt=deep"})
        world.write("a.s", "stage m.s=stage+ n.txt=other")
        world.fuse = fuse
        with suppress(Crash):
            world.process()
        world.write("a.s", "stage m.s=stage+ n.txt=deep")
        world.crash()

        assert world.settle().cache == world.clean().cache, seed


def test_source_can_take_over_a_product_of_its_former_chain_stage() -> None:
    world = World().apply({"a.s": "stage m.s=stage n.txt=x"})

    world.apply({"a.s": "stage n.txt=y"})

    assert set(world.statuses().values()) == {"completed"}
    assert world.cache == world.clean().cache


def test_intermediate_deleted_while_it_is_read_is_forgotten(world: World) -> None:
    world.delete("a.s")
    world.scan(is_full=True)
    world.run_scan_only()
    wanted, world.hashes = world.hashes, []
    world.run()
    world.hashes = wanted

    world.run()

    assert world.cache == {}
    assert not world.pipeline.jobs.memory.unstable


@pytest.mark.parametrize("text", ["jobs-from sub/n.s", "jobs-from sub/n.s\nglob sub/*"])
def test_analysis_that_read_a_missing_intermediate_is_repeated(text: str) -> None:
    world = World().apply(
        {
            "a.s": "stage+ sub/n.s=info",
            "b.s": text,
            "sub/e.txt": "what is beside the intermediate is looked at when that is there already",
        }
    )

    assert "b.s@linux:from-info" in world.live_jobs()
    assert world.live_jobs().keys() == world.clean().live_jobs().keys()


# ------------------------------------------------------------------------------------------------------- shortened chains


@pytest.mark.parametrize("seed", [None, *range(6)])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("stage m.s=make same.bin", "make same.bin"),
        ("stage m.s=stage sub/n.s=make same.bin", "make same.bin"),
        ("stage m.s=stage sub/n.s=make same.bin", "stage m.s=make same.bin"),
        ("stage m.s=stage sub/n.s=make same.bin", "stage sub/n.s=make same.bin"),
        ("stage m.s=stage+ sub/n.s=make same.bin", "stage+ sub/n.s=make same.bin"),
    ],
)
def test_shortened_chain_of_intermediates_is_processed_without_failures(before: str, after: str, seed: int | None) -> None:
    world = settled(World(Setup(builders=(copier(), scripter()))), a_s=before)
    world.rng = None if seed is None else random.Random(seed)
    world.apply({"a.s": after})

    assert "linux/same.bin" in world.cache
    assert [notice for notice in world.notices if getattr(notice, "status", "") == "failed"] == []


# ------------------------------------------------------------------------------------------ intermediates changed by hand


@pytest.mark.parametrize("held", [(), ("m.s@common:chain",)])
@pytest.mark.parametrize("checks", [1, 2])
def test_intermediate_changed_by_hand_is_not_used(world: World, held: tuple[str, ...], checks: int) -> None:
    before = dict(world.cache)
    world.held.update(held)

    # The change may be reported twice, because the job that makes the intermediate is still queued or running after the first
    # report.
    for number in range(checks):
        world.write("n.txt", f"by hand {number}", "made")
        world.process()
    world.release()

    assert set(world.ran()) == {"m.s@common:chain"}
    assert world.cache == before
    assert not world.pipeline.jobs.memory.unstable


@pytest.mark.parametrize("checks", [1, 2])
@pytest.mark.parametrize("restart", [False, True])
def test_no_job_waits_for_a_changed_intermediate_whose_own_job_fails(world: World, checks: int, restart: bool) -> None:
    world.fates["m.s@common:chain"] = [Outcome.FAILED] * 9

    for number in range(checks):
        world.write("n.txt", f"by hand {number}", "made")
        world.settle(restart=restart)

    assert world.is_idle()
    assert world.job("m.s@common:chain").state is JobState.FAILED
    assert "n.txt@linux:data" not in world.ran()
    world.fates.clear()
    world.settle(restart=True)
    assert set(world.statuses().values()) == {"completed"}
    assert world.cache == world.clean().cache


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("way", ["read", "include"])
def test_job_with_its_own_intermediate_as_input_fails(way: str, seed: int) -> None:
    """Each run makes other bytes for `sub/d.s`. A late check may find the bytes of an earlier run, which are not a user's edit."""
    world = World(Setup(builders=(copier(), scripter())), rng=random.Random(seed)).apply(
        {"m.s": f"{way} sub/d.s\nstage+ sub/d.s=x"}
    )

    job = world.job("m.s@common:chain")
    assert job.state is JobState.FAILED
    assert "its intermediate products differed in each of" in job.error


# ------------------------------------------------------------------- a chain whose jobs change the source that starts the chain


@pytest.mark.parametrize("stage", ["stage+ m.s=scribble a.s", "stage+ m.s=stage+ sub/n.s=scribble a.s"])
def test_chain_whose_jobs_rewrite_its_first_source_fails_after_ten_runs(stage: str) -> None:
    world = World().apply({"a.s": stage})
    job = world.job("a.s@common:chain")
    written = world.text("a.s")

    assert "its source 'a.s' changed during each of 10 runs of the jobs that process it" in job.error
    assert (written or "").count("info") <= 13
    world.settle()
    world.settle(restart=True)
    assert world.text("a.s") == written, "the failed chain ran again although no user edited 'a.s'"


@pytest.mark.parametrize(("mtime_ns", "count"), [(6_000_999_999, 1), (6_001_000_001, 0)])
def test_source_written_in_the_last_millisecond_of_a_run_counts_as_written_during_it(mtime_ns: int, count: int) -> None:
    world = World().apply({"a.s": "stage m.s=x"})
    source, feedback = world.job("a.s@common:chain").source, world.pipeline.plans.feedback

    feedback.run_ended(world.job("m.s@linux:main"), Used(began_ns=5_000_000_000), now_ms=6_000)
    feedback.source_changed(source, FileFact(1, "a.s", 9, mtime_ns, mtime_ns, 7))

    assert feedback.count(source) == count


def test_source_edited_during_its_chain_is_processed_in_the_same_batch() -> None:
    world = World()
    world.write("a.s", "stage m.s=x")
    world.held.add("m.s@linux:main")
    world.process()
    world.write("a.s", "stage m.s=y")
    world.release()

    assert world.text("m.s") == "y"


def test_finished_chain_checks_its_first_source_once_for_changes() -> None:
    world = World().apply({"a.s": "stage m.s=x\nstage sub/n.s=y"})
    assert [[fact.rel for fact in command.facts] for command in world.commands_of(CompareFiles)] == [["a.s"]]
    world.forget_runs()
    world.apply({"b.s": ""})

    assert not world.commands_of(CompareFiles)
