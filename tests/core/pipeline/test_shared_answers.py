"""Builders whose `create_jobs` plans the same jobs for all sources: a worker analyses only one source."""

from __future__ import annotations

import json

import pytest
from fake_world import ALIKE, World
from fakes import Setup, scripter

from aptui.core.orders import Outcome

SOURCES = {"a.s": "", "b.s": "info x", "one/c.s": "extra 1"}


def world_of(*rels: str, **more: object) -> World:
    """Return an idle simulated engine that has analysed and built the sources `rels`."""
    world = World(Setup(builders=(scripter(ALIKE, platforms=("linux", "server"), **more),), platforms=("linux", "server")))
    world.apply({rel: SOURCES[rel] for rel in rels})
    return world


def test_only_one_source_is_analysed_if_the_answer_holds_for_all_sources() -> None:
    world = world_of("a.s")

    world.apply({"b.s": "info x", "one/c.s": "extra 1"})

    assert dict(world.analyses) == {"a.s": 1}
    assert world.statuses() == {f"{rel}@{name}:main": "completed" for rel in SOURCES for name in ("linux", "server")}
    assert world.job("b.s:analyse").reason == "new source"
    assert world.pipeline.jobs.reports.counts["analysed"] == 3
    assert world.cache == world.clean().cache


def test_queued_analyses_use_the_first_answer_that_covers_all_sources() -> None:
    world = World(Setup(builders=(scripter(ALIKE),)))
    world.slots = 1
    world.apply({f"{number}.s": "" for number in range(100)})

    assert sum(world.analyses.values()) < 50
    assert len(world.ran()) == 100


def test_changed_source_keeps_its_plans_without_an_analysis_by_a_worker() -> None:
    world = world_of("a.s")
    world.forget_runs()

    world.apply({"a.s": "info y"})

    assert not world.analyses
    assert world.ran() == ["a.s@linux:main", "a.s@server:main"]
    assert world.job("a.s:analyse").fingerprint == world.clean().job("a.s:analyse").fingerprint


@pytest.mark.parametrize("section", [{"params": {"look": 1}}, {"platforms": {"server": "skip"}}])
def test_source_with_other_settings_or_platforms_is_analysed_by_a_worker(section: dict[str, object]) -> None:
    world = world_of("a.s")

    world.apply({"one/.aptui.yaml": json.dumps({ALIKE: section}), "one/c.s": ""})
    world.apply({"one/d.s": "x"})

    assert dict(world.analyses) == {"a.s": 1, "one/c.s": 1}
    assert world.cache == world.clean().cache


def test_requested_analysis_is_done_by_a_worker() -> None:
    world = world_of("a.s", "b.s")
    world.forget_runs()

    world.ask("reprocess", keys=("b.s",))

    assert dict(world.analyses) == {"b.s": 1}


def test_failed_analysis_is_repeated_by_a_worker() -> None:
    world = world_of("a.s", "b.s")
    world.fates["b.s:analyse"] = [Outcome.FAILED]
    world.ask("reprocess", keys=("b.s",))
    assert world.statuses()["b.s:analyse"] == "failed"
    world.forget_runs()

    world.apply({"b.s": "info y"})

    assert dict(world.analyses) == {"b.s": 1}
    assert "b.s:analyse" not in world.statuses()


def test_changed_builder_code_needs_one_new_analysis_by_a_worker() -> None:
    world = world_of("a.s", "b.s")
    world.forget_runs()
    world.slots = 1

    world.reconfigure(builders=(scripter(ALIKE, platforms=("linux", "server"), code_digest=b"1"),))

    assert sum(world.analyses.values()) == 1
    assert world.ran() == [f"{rel}@{name}:main" for rel in ("a.s", "b.s") for name in ("linux", "server")]
