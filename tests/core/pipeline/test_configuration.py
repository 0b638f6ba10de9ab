"""Changes of the configuration: the jobs that run or are removed after a change of builders, platforms or scan folders."""

from __future__ import annotations

import pytest
from fake_world import World, settled
from fakes import Setup, copier, glob, scripter
from msgspec.structs import replace

from aptui.core.model import SETTLED
from aptui.core.notices import JobChanged
from aptui.core.project import Companion

BOTH = ("linux", "server")


def world_of(*builders: object, **more: object) -> World:
    world = World(Setup(builders=builders or (copier(), scripter()), **more))  # type: ignore[arg-type]
    settled(world, a_txt="x", b_s="")
    return world


REASONS = {
    "version": (scripter(version="2"), "the builder's version changed from '1' to '2'"),
    "analysis fingerprint": (scripter(analysis_fingerprint="y"), "the builder's analysis fingerprint changed from '' to 'y'"),
    "code": (scripter(code_digest=b"1"), "the builder's code or tools ('script') changed (223e7fd7 -> 31)"),
    "parameters": (scripter(params='{"a":1}'), "the builder's parameters changed from '{}' to '{\"a\":1}'"),
    "platform parameters": (
        scripter(platform_params=(("linux", '{"a":1}'),)),
        "the builder's parameters for this platform changed from '{}' to '{\"a\":1}'",
    ),
}


@pytest.mark.parametrize("change", REASONS)
def test_changed_builder_reruns_its_jobs_and_the_reason_names_the_change(change: str) -> None:
    world = world_of()
    changed, reason = REASONS[change]

    assert world.reconfigure(builders=(copier(), changed)).ran() == ["b.s@linux:main"]
    assert world.job("b.s@linux:main").reason == reason


def test_reason_of_a_pending_job_survives_a_restart() -> None:
    world = world_of()
    world.configure(builders=(copier(), scripter(version="2")))
    world.restart()
    assert world.settle(restart=True).job("b.s@linux:main").reason == "the builder's version changed from '1' to '2'"


def test_rerun_reason_names_the_builder_if_its_former_settings_are_unknown() -> None:
    world = world_of()
    world.archive.tables.state = {key: value for key, value in world.archive.tables.state.items() if not key.startswith("rule:")}

    world.reconfigure(builders=(copier(), scripter(version="2")))

    assert "the configuration of builder 'script'" in world.job("b.s@linux:main").reason


def test_enabled_debug_output_reruns_only_jobs_of_builders_that_use_it() -> None:
    world = world_of(copier(), scripter(reads_debug_output=True))

    assert world.reconfigure(debug_output=True).ran() == ["b.s@linux:main"]
    assert world.job("b.s@linux:main").reason == "debug output is new"


@pytest.mark.parametrize("is_restarted", [True, False], ids=["another engine", "the same engine"])
def test_up_to_date_job_shows_the_reason_of_its_last_run(*, is_restarted: bool) -> None:
    world = world_of().apply({"b.s": "edited"})
    reported = world.job("b.s@linux:main").reason
    world.write("b.s", "edited again")
    world.held.add("b.s@linux:main")
    world.process()
    pending = world.job("b.s@linux:main").reason
    world.forget_runs()
    world.held.clear()
    world.apply({"b.s": "edited"}, restart=is_restarted)

    assert pending != reported
    assert world.ran() == []
    assert world.job("b.s@linux:main").reason == reported


def test_changed_platform_tags_rerun_the_jobs_of_the_platform() -> None:
    world = world_of()

    assert world.reconfigure(tags=("mobile",)).ran() == ["a.txt@linux:data", "b.s@linux:main"]
    assert world.job("a.txt@linux:data").reason.startswith("the platform 'linux' or its tags changed")


def test_changed_priority_or_limit_of_a_builder_reruns_no_job() -> None:
    world = world_of()
    world.configure(builders=(copier(priority=5, is_critical=True), scripter(process_limit_s=1.0, memory_limit_bytes=9)))

    assert world.settle(restart=True).ran() == []
    assert not world.analyses


def test_job_that_becomes_critical_is_saved_and_reported_without_a_run() -> None:
    world = world_of()
    before = world.job("a.txt@linux:data").is_critical

    world.reconfigure(builders=(copier(is_critical=True), scripter()))
    marked = world.job("a.txt@linux:data").is_critical
    reported = [each.is_critical for each in world.notices if isinstance(each, JobChanged) and each.source == "a.txt"]
    world.settle(restart=True)

    assert (before, marked, world.job("a.txt@linux:data").is_critical) == (False, True, True)
    assert reported[-1]
    assert world.ran() == []


def test_new_builder_runs_only_its_own_jobs() -> None:
    world = world_of()

    assert world.reconfigure(builders=(copier(), scripter(), copier("other", "*.s"))).ran() == ["b.s@linux:other"]
    assert world.cache == world.clean().cache


def test_jobs_and_products_of_a_removed_builder_are_deleted() -> None:
    world = world_of()

    assert world.reconfigure(builders=(copier(),)).ran() == []
    assert world.cache.keys() == {"linux/a.txt"}
    assert world.statuses() == {"a.txt@linux:data": "completed"}
    assert not world.archive.tables.analyses


def test_sources_that_no_longer_match_a_pattern_are_removed() -> None:
    world = world_of()
    world.configure(builders=(replace(copier(), patterns=(glob("*.dat"),)), scripter()))

    assert world.settle(restart=True).statuses() == {"b.s@linux:main": "completed"}
    assert world.cache.keys() == {"linux/b.out"}


def test_analyses_are_deleted_if_their_builder_becomes_a_copy_rule() -> None:
    world = world_of()
    world.configure(builders=(copier(), replace(copier("script", "*.s"), uuid=scripter().uuid)))

    assert world.settle(restart=True).statuses() == {"a.txt@linux:data": "completed", "b.s@linux:script": "completed"}
    assert world.cache == world.clean().cache
    assert not world.archive.tables.analyses


def test_newly_enabled_platform_runs_only_its_own_jobs() -> None:
    world = world_of(copier(platforms=BOTH), scripter(platforms=BOTH), platforms=("linux",))

    assert world.reconfigure(platforms=BOTH).ran() == ["a.txt@server:data", "b.s@server:main"]
    assert world.cache == world.clean().cache


def test_products_of_a_removed_platform_are_deleted() -> None:
    world = world_of(copier(platforms=BOTH), scripter(platforms=BOTH), platforms=BOTH)

    assert world.reconfigure(platforms=("linux",)).ran() == []
    assert world.cache == world.clean().cache


def test_platform_that_is_not_requested_keeps_its_products() -> None:
    world = world_of(copier(platforms=BOTH), scripter(platforms=BOTH), platforms=BOTH)
    before = dict(world.cache)

    assert world.reconfigure(platforms=("linux",), resting=("server",)).cache == before

    world.write("b.s", "x")
    del world.cache["server/a.txt"]
    assert world.settle().ran() == ["b.s@linux:main"]

    assert world.reconfigure(platforms=BOTH, resting=()).ran() == ["a.txt@server:data", "b.s@server:main"]
    assert world.cache == world.clean().cache


def test_source_of_builders_for_unrequested_platforms_only_keeps_its_products() -> None:
    both, one = copier(platforms=BOTH), scripter(platforms=("linux",))
    world = world_of(both, one, platforms=BOTH)
    before = dict(world.cache)

    # The configuration leaves out a builder that no requested platform uses.
    assert world.reconfigure(builders=(both,), platforms=("server",), resting=("linux",)).cache == before
    assert world.write("b.s", "x") is None
    assert world.settle(restart=True).cache == before

    assert world.reconfigure(builders=(both, one), platforms=BOTH, resting=()).ran() == ["b.s@linux:main"]
    assert world.cache == world.clean().cache

    world.reconfigure(builders=(both,), platforms=("server",), resting=("linux",))
    world.apply({"b.s": None})
    assert "b.s" not in str(sorted(world.cache))
    assert world.reconfigure(platforms=BOTH, resting=()).cache == world.clean().cache


def test_unreadable_source_of_builders_for_unrequested_platforms_only_keeps_its_products() -> None:
    both, one = copier(platforms=BOTH), scripter(platforms=("linux",))
    world = world_of(both, one, platforms=BOTH)
    before = dict(world.cache)

    world.reconfigure(builders=(both,), platforms=("server",), resting=("linux",))
    world.unreadable["b.s"] = "permission denied"
    world.write("b.s", "x")
    world.settle()

    assert world.cache == before
    assert world.settle(restart=True).cache == before
    world.unreadable.clear()
    assert world.reconfigure(builders=(both, one), platforms=BOTH, resting=()).ran() == ["b.s@linux:main"]
    assert world.cache == world.clean().cache


def test_pending_jobs_of_an_unrequested_platform_are_released_from_memory() -> None:
    pending = 0
    for steps in range(1, 12):
        world = world_of(scripter(platforms=BOTH), platforms=BOTH)
        world.write("b.s", "y")
        world.scan()
        world.run_scan_only()
        for _step in range(steps):
            if moves := world._moves():
                moves[0]()

        world.reconfigure(platforms=("linux",), resting=("server",))

        pending += world.job("b.s@server:main").state not in SETTLED
        assert not world.pipeline.jobs.memory.sources, steps
    assert pending, "with every number of steps, the job was settled before its platform was removed from the request"


def test_reprocess_runs_no_job_of_a_platform_that_is_not_requested() -> None:
    world = world_of(copier(platforms=BOTH), scripter(platforms=BOTH), platforms=BOTH)
    world.reconfigure(platforms=("linux",), resting=("server",))

    world.ask("reprocess", keys=("a.txt", "b.s"))

    assert world.ran() == ["a.txt@linux:data", "b.s@linux:main"]
    assert world.is_idle()


def test_failed_job_of_a_removed_platform_is_not_retried() -> None:
    world = world_of(copier(platforms=BOTH), scripter(platforms=BOTH), platforms=BOTH)
    settled(world, b_s="FAIL")

    assert world.reconfigure(platforms=("linux",)).ran() == ["b.s@linux:main"]
    assert world.statuses() == {"a.txt@linux:data": "completed", "b.s@linux:main": "failed"}


def test_failed_source_without_products_is_removed_after_its_deletion() -> None:
    world = world_of(scripter(deletes_products_on_failure=True)).apply({"b.s": "FAIL"})
    assert world.apply({"b.s": None}).cache == {}
    assert world.statuses() == {}


def test_scan_folder_can_exclude_a_platform() -> None:
    world = world_of(copier(platforms=BOTH), scripter(platforms=BOTH), platforms=BOTH, folders=("game", "shared"))
    world.write("c.txt", "x", "shared")
    world.settle()

    world.reconfigure(excluded=(("game", "server"),))

    assert world.statuses().keys() == {"a.txt@linux:data", "b.s@linux:main", "c.txt@linux:data", "c.txt@server:data"}


def test_removed_scan_folder_removes_its_sources() -> None:
    world = world_of(folders=("game", "shared"))
    world.write("c.txt", "x", "shared")
    world.settle()

    assert world.reconfigure(folders=("game",)).statuses() == {"a.txt@linux:data": "completed", "b.s@linux:main": "completed"}
    assert world.cache == world.clean().cache


def test_file_of_the_new_first_scan_folder_wins_after_a_reordering() -> None:
    world = world_of(folders=("game", "shared"))
    world.write("a.txt", "shared", "shared")
    world.settle().forget_runs()

    assert world.reconfigure(folders=("shared", "game")).ran() == ["a.txt@linux:data"]
    assert world.cache == world.clean().cache


def test_new_companion_rule_reruns_only_sources_that_have_the_companion() -> None:
    world = world_of().apply({"b.s.note": "1"})

    assert world.reconfigure(companions=(Companion(glob("*.s"), "note"),)).ran() == ["b.s@linux:main"]


def test_changed_planning_parameter_repeats_the_analysis_and_reruns_no_job() -> None:
    schema = '{"properties":{"jobs":{"is_planning_only":true}}}'
    world = world_of(copier(), scripter(params_schema=schema, params='{"jobs":1}'))

    assert world.reconfigure(builders=(copier(), scripter(params_schema=schema, params='{"jobs":2}'))).ran() == []
    (analysis,) = [job for job in world.job("b.s@linux:main").source.jobs.values() if job.is_analysis]
    assert analysis.reason == "parameters of its analysis changed"
