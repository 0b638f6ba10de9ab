"""The estimated duration of pending work: the total of all jobs, and the longest chain of jobs.

A job is estimated from its own last run. If that run was not measured, earlier runs of the builder are used instead.
"""

from __future__ import annotations

import pytest
from fake_world import World
from fakes import Setup, copier, scripter
from msgspec.structs import replace

from aptui.core.messages import SlotsFree
from aptui.core.model import FileFact, PathKey
from aptui.core.orders import RunResult
from aptui.core.pipeline.pipeline import OVERHEAD_MS, pending_work


def a_project_that_ran(files: dict[str, str]) -> World:
    return World().boot(duration_ms=1_000).apply(files)


def with_all_changed(world: World, files: dict[str, str]) -> World:
    """Change the files and analyse all of them, but start no job."""
    world.held = {f"{rel}:analyse" for rel in files}
    world.slots = 100
    world.apply(files)
    world.slots = 0
    world.release()
    return world


def test_idle_project_has_no_pending_work() -> None:
    work = a_project_that_ran({"a.s": "info 1"}).pipeline.pending_work({})

    assert (work.work_ms, work.chain_ms, work.unknown_count) == (0, 0, 0)


def test_forecast_of_a_job_is_the_duration_of_its_last_run() -> None:
    world = with_all_changed(a_project_that_ran({"a.s": "info 1"}), {"a.s": "info 2"})

    work = world.pipeline.pending_work({})

    assert (work.work_ms, work.chain_ms) == (1_000 + OVERHEAD_MS,) * 2


def test_fetched_results_do_not_change_the_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    world = a_project_that_ran({"a.s": "info 1", "b.s": "info 1"})
    made = world._outcome

    def fetched(order: object, text: str | None, name: str) -> object:
        result = made(order, text, name)
        return replace(result, origin="fetched", duration_ms=3) if isinstance(result, RunResult) else result

    with monkeypatch.context() as patch:
        patch.setattr(world, "_outcome", fetched)
        world.apply({"a.s": "info 2"})
    assert world.job("a.s@linux:main").duration_ms == 3
    with_all_changed(world, {"a.s": "info 3", "b.s": "info 3"})

    work = world.pipeline.pending_work({})

    assert work.work_ms == 2 * (1_000 + OVERHEAD_MS)


def test_forecast_of_a_new_job_is_the_median_duration_of_its_builder() -> None:
    world = with_all_changed(a_project_that_ran({"a.s": "info 1"}), {"b.s": "info 1"})

    work = world.pipeline.pending_work({})

    assert (work.work_ms, work.unknown_count) == (1_000 + OVERHEAD_MS, 0)


def test_forecast_counts_jobs_of_a_builder_without_runs_as_unknown() -> None:
    world = World(Setup(builders=(copier(), scripter())))

    world = with_all_changed(world, {f"{letter}.s": "info 1" for letter in "abcdef"})

    assert pending_work(world.pipeline.jobs, {}, most=2).unknown_count == 6


def test_forecast_of_a_running_job_is_its_remaining_time() -> None:
    world = with_all_changed(a_project_that_ran({"a.s": "info 1"}), {"a.s": "info 2"})
    world.pipeline.handle(SlotsFree(9_000, 1, jobs=1))
    (run_key,) = world.pipeline.jobs.running

    assert world.pipeline.pending_work({run_key: 400.0}).work_ms == 600 + OVERHEAD_MS
    assert world.pipeline.pending_work({run_key: 4_000.0}).work_ms == OVERHEAD_MS


def test_forecast_has_the_duration_of_the_longest_chain_of_jobs() -> None:
    files = {"a.s": "print b.s:main\n", "b.s": "print c.s:main\n", "c.s": ""}
    world = with_all_changed(a_project_that_ran(files), {name: f"{text}info 2" for name, text in files.items()})

    work = world.pipeline.pending_work({})

    assert (work.work_ms, work.chain_ms) == (3 * (1_000 + OVERHEAD_MS),) * 2


def test_forecast_is_extrapolated_from_the_first_jobs_to_all_jobs() -> None:
    files = {f"{letter}.s": "info 1" for letter in "abcdef"}
    world = with_all_changed(a_project_that_ran(files), dict.fromkeys(files, "info 2"))

    assert pending_work(world.pipeline.jobs, {}, most=2).work_ms == 6 * (1_000 + OVERHEAD_MS)


def test_ended_runs_are_counted_with_their_expected_duration() -> None:
    world = a_project_that_ran({"a.s": "info 1"})
    world.duration_ms = 3_000
    world.apply({"a.s": "info 2"})

    assert world.pipeline.jobs.reports.spent() == (2, 2_000)


def test_forecast_adds_up_durations_of_jobs_that_share_a_resource() -> None:
    world = World(Setup(builders=(copier(), scripter(resources=("gpu",))), resources=(("gpu", 2),)))
    world.duration_ms = 1_000
    names = ("a.s", "b.s", "c.s", "d.s")
    world.apply(dict.fromkeys(names, "info 1"))
    with_all_changed(world, dict.fromkeys(names, "info 2"))

    work = world.pipeline.pending_work({})

    assert (work.work_ms, work.chain_ms) == (4 * (1_000 + OVERHEAD_MS), 2 * (1_000 + OVERHEAD_MS))


def test_source_without_an_analysis_counts_as_one_job_per_platform() -> None:
    world = World(
        Setup(builders=(copier(platforms=("linux", "mac")), scripter(platforms=("linux", "mac"))), platforms=("linux", "mac"))
    )
    world.duration_ms = 1_000
    world.apply({"first.s": ""})
    world.slots = 0
    world.edit({f"{at}.s": "" for at in range(10)})
    world.process()

    analysing = world.pipeline.pending_work({})
    world.pipeline.jobs.memory.hashing.update(
        (f"{at}.txt", replace(fact, rel=f"{at}.txt")) for at, fact in enumerate([_fact(world)] * 3)
    )

    assert (analysing.job_count, analysing.work_ms, analysing.unknown_count) == (20, 20 * (1_000 + OVERHEAD_MS), 0)
    assert world.pipeline.pending_work({}).job_count == 26


def _fact(world: World) -> FileFact:
    (source,) = world.archive.sources([PathKey("first.s")]).values()
    assert source.fact is not None
    return source.fact
